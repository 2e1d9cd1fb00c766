//! What goes wrong, at random.

use super::client::ClientProcess;
use super::totals::Fault;
use super::world::{CLIENTS, DRIVES, World, WorldEvent};
use crate::kv::KvFaults;
use alloc::format;
use alloc::vec::Vec;
use weir_units::Nanos;

impl World {
    pub fn fault(&mut self) {
        if self.is_quiet() || self.faults_left == 0 {
            return;
        }
        self.faults_left -= 1;
        let fault = Fault::ALL[self.random.below(Fault::ALL.len() as u32) as usize];
        self.faults.push(fault);
        self.trace(|| format!("FAULT {fault:?}"));
        let client = self.random.below(CLIENTS as u32) as usize;
        let drive = self.random.below(DRIVES as u32) as usize;
        let short = self.micros(1000, 300_000);
        let long = self.micros(100_000, 3_500_000);
        let time = if self.random.below(2) == 0 { short } else { long };
        let until = self.now.saturating_add(time);
        match fault {
            Fault::ConnectionLost => {
                if let Some(link) = self.clients[client].link {
                    self.cut_link(link);
                }
            }
            Fault::NetworkCut => {
                self.cut[client].0 = until;
                // A connection does not outlive every silence.
                if let (Some(link), 0) = (self.clients[client].link, self.random.below(2)) {
                    self.cut_link(link);
                }
            }
            Fault::DriveCut => self.cut[client].1[drive] = until,
            Fault::ClientKilled => self.kill_client(client, time),
            Fault::ClientPaused => self.clients[client].paused_until = until,
            Fault::ServiceKilled | Fault::PowerCut => {
                self.service = None;
                let links: Vec<u64> = self.links.iter().filter(|(_, l)| !l.is_cut).map(|(n, _)| *n).collect();
                links.into_iter().for_each(|link| self.cut_link(link));
                let life = self.service_life;
                self.at(self.now.saturating_add(short), WorldEvent::StartService);
                debug_assert_eq!(life, self.service_life);
                if fault == Fault::PowerCut {
                    self.power_cut();
                }
            }
            Fault::ServicePaused => self.service_paused_until = until,
            Fault::DriveRestarted => {
                self.drives[drive].restart();
                self.drives[drive].down_until = until;
            }
            Fault::DriveSlow => self.slow_until[drive] = until,
            Fault::MetadataUnsure => {
                self.unsure_until = until;
                self.kv.set_faults(KvFaults { repeated: 0, unknown_late: 0, ..KvFaults::all(50_000) });
            }
            Fault::ClockDrifts => {
                let ppm = [-1000, 1000][self.random.below(2) as usize];
                let now = self.now;
                match self.random.below(3) {
                    0 => self.service_clock.set_drift(now, ppm),
                    _ => self.clients[client].clock.set_drift(now, ppm),
                }
            }
        }
    }

    /// A client whose session is over ends, and another one begins.
    pub fn begin_anew(&mut self, client: usize) {
        let (life, time) = (self.clients[client].life, self.micros(1000, 50_000));
        self.after(time, WorldEvent::BeginAnew(client, life));
    }

    pub fn kill_client(&mut self, client: usize, comes_after: Nanos) {
        self.lose_writers(client);
        self.last += 1;
        let clock = self.clients[client].clock;
        if let Some(link) = self.clients[client].link {
            self.cut_link(link);
        }
        self.clients[client] = ClientProcess::new(self.last, clock, 0);
        self.after(comes_after, WorldEvent::StartClient(client));
    }
}
