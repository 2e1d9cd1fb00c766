//! What goes wrong, at random.

use super::client::ClientProcess;
use super::totals::Fault;
use super::world::{CLIENTS, DRIVES, World, WorldEvent};
use crate::kv::KvFaults;
use crate::service::ServiceEvent;
use alloc::format;
use weir_units::Nanos;

impl World {
    // tidy: long because every kind of fault has an arm here.
    pub fn fault(&mut self) {
        if self.is_quiet() || self.faults_left == 0 {
            return;
        }
        self.faults_left -= 1;
        let kinds = Fault::kinds(self.is_shared());
        let fault = kinds[self.random.below(kinds.len() as u32) as usize];
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
                let at = self.serving();
                self.kill_service(at);
                // Another one serves meanwhile, or not yet.
                let time = if self.is_shared() { time } else { short };
                self.after(time, WorldEvent::StartService(at));
                if fault == Fault::PowerCut {
                    self.power_cut();
                }
            }
            Fault::ServicePaused => {
                let at = self.serving();
                self.services[at].paused_until = until;
                if self.is_shared() {
                    let time = self.micros(100_000, 400_000);
                    self.after(time, WorldEvent::ServiceSilent(self.services[at].life));
                }
            }
            Fault::ServiceCut => {
                let at = self.serving();
                self.services[at].cut_until = until;
            }
            Fault::ServicesRestarted => {
                for at in 0..self.services.len() {
                    self.kill_service(at);
                    let time = self.micros(1000, 300_000);
                    self.after(time, WorldEvent::StartService(at));
                }
            }
            Fault::ServiceStopped => {
                let at = self.serving();
                self.give_service(at, ServiceEvent::Stop);
                self.after(time, WorldEvent::StartService(at));
            }
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
                    0 => {
                        let count = self.services.len() as u32;
                        let at = if count > 1 { self.random.below(count) as usize } else { 0 };
                        self.services[at].clock.set_drift(now, ppm);
                    }
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
        self.after(comes_after, WorldEvent::StartClient(client, self.last));
    }
}
