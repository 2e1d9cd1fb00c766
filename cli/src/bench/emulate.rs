//! How many requests a drive in this thread answers, by whom it serves next: for reproductions.

use super::{BenchRun, lanes, summarize};
use std::collections::VecDeque;
use weir_arbiter::{Burst, Mechanism};
use weir_config::DeviceConfig;
use weir_config::Target;
use weir_driver::{Done, Io, IoKind, QueuePair, TransportError};
use weir_node::local::{Local, LocalQueuePair, LocalTenant};
use weir_sim::reproduce::{BURST, Design, Load, QueueTimers, SLOT_BYTES, SharedDrive, Span};
use weir_sys::reactor::now;
use weir_sys::sched::time_on_core;
use weir_units::{Bytes, Class, Nanos};
use weir_workload::{Job, JobResult, Xoshiro256};

/// Bytes of the drive: more than a core's caches hold.
const CAPACITY: Bytes = Bytes(64 << 20);
/// A round moves so many bytes, but makes no fewer and no more requests than these.
const BYTES: u64 = 256 << 20;
const REQUESTS: (u64, u64) = (4 * 128, 60_000);

/// Requests a second of each design, in rounds of all in turn.
///
/// # Errors
/// The drive cannot be had, or a request failed.
pub fn speeds(designs: &[Design], load: Load, rounds: usize) -> Result<Vec<Vec<f64>>, String> {
    let opened: Result<Vec<Emulated>, String> = designs.iter().map(|d| Emulated::open(*d, load)).collect();
    let mut opened = opened?;
    let mut speeds = vec![Vec::with_capacity(rounds); designs.len()];
    for _ in 0..rounds {
        for (emulated, speeds) in opened.iter_mut().zip(&mut speeds) {
            speeds.push(emulated.speed().map_err(|e| e.to_string())?);
        }
    }
    Ok(speeds)
}

/// Jobs on a drive in memory that takes `latency` for every command.
///
/// # Errors
/// The drive cannot be had, or a request failed.
pub fn shared(drive: &SharedDrive, jobs: &[Job], span: Span) -> Result<Vec<JobResult>, String> {
    let kind = drive.profile.unwrap_or("ram").to_string();
    let run = BenchRun {
        targets: vec![Target::Local { kind, query: query(drive) }; jobs.len()],
        jobs: jobs.to_vec(),
        time: span.time,
        ramp: span.ramp,
        verify: false,
        series: span.series,
        by_kind: false,
        seed: 1,
        digests: (false, false),
        hostnqn: None,
        queues: 1,
        arbitrate: None,
        packed: false,
        reconnect: None,
        cores: Vec::new(),
    };
    let outcome = lanes::alone(&run).map_err(|e| e.to_string())?;
    match &outcome.trouble {
        Some((job, text)) => Err(format!("job {}: {text}", run.jobs[*job].name)),
        None => Ok(summarize(&run, &outcome).jobs),
    }
}

/// The drive in a bench target's words.
fn query(drive: &SharedDrive) -> String {
    let settings = &drive.settings;
    let burst = match settings.burst {
        Burst::NoLimit => "none".to_string(),
        Burst::Log2(log2) => (1u32 << log2).to_string(),
    };
    let arbitration = match settings.mechanism {
        Mechanism::None => "none".to_string(),
        Mechanism::Rr => format!("rr&burst={burst}"),
        Mechanism::Wrr => {
            let w = settings.weights;
            format!("wrr&burst={burst}&weights={}:{}:{}", w.high, w.medium, w.low)
        }
        Mechanism::Drr => {
            let q = settings.quanta;
            format!("drr&quanta={}B:{}B:{}B", q.high, q.medium, q.low)
        }
    };
    let kind = match drive.profile {
        Some(_) => SharedDrive::WRITTEN.to_string(),
        None => format!("capacity={}B&latency={}ns", weir_sim::reproduce::CAPACITY, drive.latency.0),
    };
    format!("{kind}&slot_bytes={SLOT_BYTES}B&slots={}&arbitration={arbitration}", drive.slots)
}

/// A client: what it may still submit, what is in its submission queue and not handed to the drive, and where it goes next.
struct Client {
    free: Vec<u32>,
    waiting: VecDeque<Io>,
    rng: Xoshiro256,
}

/// A drive of one design and its clients.
struct Emulated {
    local: Local,
    load: Load,
    clients: Vec<Client>,
    timers: Option<QueueTimers>,
    done: Vec<Done>,
}

impl Emulated {
    fn open(design: Design, load: Load) -> Result<Emulated, String> {
        let arbitration = match design {
            Design::Timers => "none",
            Design::Wrr => "wrr",
            Design::Drr => "drr",
        };
        let query = format!("capacity={}B&slot_bytes={SLOT_BYTES}B&arbitration={arbitration}", CAPACITY.0);
        let config = DeviceConfig::from_query("ram", &query).map_err(|e| e.to_string())?;
        let tenants = [LocalTenant { name: "clients".into(), class: Class::Medium }];
        let mut local = Local::open(&config, &tenants, now()).map_err(|e| e.to_string())?;
        for _ in 0..load.clients {
            local.connect(0, "client", Load::DEPTH, load.size, now()).map_err(|e| e.to_string())?;
        }
        fill(&mut local, load.size).map_err(|e| e.to_string())?;
        let client = |seed| Client {
            free: (0..Load::DEPTH).rev().collect(),
            waiting: VecDeque::with_capacity(Load::DEPTH as usize),
            rng: Xoshiro256::new(seed),
        };
        Ok(Emulated {
            local,
            load,
            clients: (0..u64::from(load.clients)).map(client).collect(),
            timers: (design == Design::Timers).then(|| QueueTimers::new(load.clients as usize)),
            done: Vec::with_capacity(Load::DEPTH as usize),
        })
    }

    /// Requests a second of one round: by the time that the thread had a core, so that what else the machine does counts for
    /// nobody.
    fn speed(&mut self) -> Result<f64, TransportError> {
        let count = (BYTES / u64::from(self.load.size)).clamp(REQUESTS.0, REQUESTS.1);
        // Every queue has been through once.
        self.run(u64::from(self.load.clients * Load::DEPTH))?;
        let begun = time_on_core();
        let answered = self.run(count)?;
        let took = time_on_core().saturating_sub(begun);
        Ok(answered as f64 / took.as_secs_f64().max(1e-9))
    }

    /// Turns until so many requests, or a few more, are answered: all clients fill their queues, the design hands over, the drive
    /// runs, all reap.
    fn run(&mut self, count: u64) -> Result<u64, TransportError> {
        let mut answered = 0;
        while answered < count {
            let time = now();
            for place in 0..self.clients.len() {
                self.submit(place, time)?;
            }
            self.expire(time)?;
            self.local.run(time);
            let time = now();
            for (place, client) in self.clients.iter_mut().enumerate() {
                self.local.queue(place, time).reap(&mut self.done)?;
                answered += self.done.len() as u64;
                for Done { slot, status } in self.done.drain(..) {
                    if !status.is_success() {
                        return Err(TransportError::Refused(format!("a request failed: {status}")));
                    }
                    client.free.push(slot);
                }
            }
        }
        Ok(answered)
    }

    /// A client fills its queue; without timers all of it goes to the drive.
    #[inline]
    fn submit(&mut self, place: usize, time: Nanos) -> Result<(), TransportError> {
        let (size, client) = (self.load.size, &mut self.clients[place]);
        let kind = if self.load.write { IoKind::Write } else { IoKind::Read };
        while let Some(slot) = client.free.pop() {
            let offset = client.rng.below(CAPACITY.0 / u64::from(size)) * u64::from(size);
            client.waiting.push_back(Io { kind, offset, len: size, slot });
        }
        match &mut self.timers {
            Some(timers) if !client.waiting.is_empty() => timers.set(place, time),
            Some(_) => {}
            None => hand_over(&mut self.local.queue(place, time), &mut client.waiting, usize::MAX)?,
        }
        Ok(())
    }

    /// What the timers that are over let through.
    fn expire(&mut self, time: Nanos) -> Result<(), TransportError> {
        let Some(timers) = &mut self.timers else { return Ok(()) };
        while let Some(place) = timers.expired(time) {
            let waiting = &mut self.clients[place].waiting;
            hand_over(&mut self.local.queue(place, time), waiting, BURST)?;
            if !waiting.is_empty() {
                timers.set(place, time);
            }
        }
        Ok(())
    }
}

/// Hands so many commands to the drive.
#[inline]
fn hand_over(pair: &mut LocalQueuePair<'_>, waiting: &mut VecDeque<Io>, most: usize) -> Result<(), TransportError> {
    for io in waiting.drain(..most.min(waiting.len())) {
        pair.submit(io)?;
    }
    pair.flush();
    Ok(())
}

/// Writes all of the drive, so that no request finds a hole.
fn fill(local: &mut Local, size: u32) -> Result<(), TransportError> {
    let mut done = Vec::new();
    let mut offsets = (0..CAPACITY.0 / u64::from(size)).map(|i| i * u64::from(size));
    loop {
        let some = offsets.by_ref().take(Load::DEPTH as usize).zip(0..).collect::<Vec<_>>();
        if some.is_empty() {
            return Ok(());
        }
        let mut pair = local.queue(0, now());
        for (offset, slot) in &some {
            pair.submit(Io { kind: IoKind::Write, offset: *offset, len: size, slot: *slot })?;
        }
        while done.len() < some.len() {
            local.queue(0, now()).poll(&mut done)?;
        }
        if let Some(bad) = done.drain(..).find(|d| !d.status.is_success()) {
            return Err(TransportError::Refused(format!("a write failed: {}", bad.status)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_arbiter::ArbiterSettings;

    #[test]
    fn every_design_answers_everybody() {
        let designs = [Design::Timers, Design::Wrr, Design::Drr];
        for (clients, write) in [(1, true), (3, false)] {
            let speeds = speeds(&designs, Load { clients, size: 8192, write }, 1).unwrap();
            assert!(speeds.iter().all(|rounds| rounds.len() == 1 && rounds[0] > 1000.0), "{speeds:?}");
        }
    }

    #[test]
    fn a_shared_drive_gives_what_its_weights_say() {
        let job = |name: &str, class| Job { name: name.into(), class: Some(class), depth: 32, ..Job::default() };
        let jobs = [job("a", Class::High), job("b", Class::Low)];
        let span = Span { ramp: Nanos::from_millis(20), time: Nanos::from_millis(300), series: None };
        for (mechanism, expected) in
            [(Mechanism::None, 1.0), (Mechanism::Rr, 1.0), (Mechanism::Wrr, 4.0), (Mechanism::Drr, 4.0)]
        {
            let settings = ArbiterSettings::new(mechanism);
            let drive = SharedDrive { latency: Nanos::from_millis(1), slots: 8, settings, profile: None };
            let results = shared(&drive, &jobs, span).unwrap();
            let ratio = results[0].summary.iops / results[1].summary.iops;
            assert!((ratio / expected - 1.0).abs() < 0.25, "{mechanism:?}: {ratio}");
        }
    }
}
