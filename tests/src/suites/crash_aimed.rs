//! The worker is killed at every step of Algorithm 1 that a crash can leave a queue at, each aimed at: its clients notice nothing, and the next worker finds
//! in every queue what lay there.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_journal::{CrashPoint, Owed, RecoveredRing, RingKind};

use super::crash::{campaign, flash, left, slow, standby};
use super::{long, test};
use crate::aimed::rings::{self, Rings};
use crate::aimed::{Aim, Aimed, nvme};
use crate::bench::Bench;
use crate::harness::{Env, Outcome, Test, ensure};
use crate::http;
use crate::node::{Node, Setup, program, with_node};
use crate::process::until;
use crate::raw::Rng;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "crash_aimed";
    vec![
        test(S, "every_step_of_algorithm_1", |env| {
            killed(env, &[case(standby, Door::Split, 1), case(standby, Door::Packed, 4)], 2 * ROUND)
        }),
        test(S, "every_step_of_an_nvme_journal", |env| {
            killed(env, &[case(standby, Door::Nvme, 1), case(slow, Door::Nvme, 2)], 2 * ROUND)
        }),
        long(S, "a_thousand_kills_at_every_step", |env| {
            killed(env, &every_case(&[Door::Split, Door::Packed]), campaign()?)
        }),
        long(S, "a_thousand_kills_at_every_step_of_nvme", |env| killed(env, &every_case(&[Door::Nvme]), campaign()?)),
    ]
}

/// Every step once, and one kill wherever the worker is.
const ROUND: u32 = CrashPoint::ALL.len() as u32 + 1;

/// Whose queues they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Door {
    /// A front end of vhost-user with split rings.
    Split,
    /// And with packed ones.
    Packed,
    /// A client of vfio-user.
    Nvme,
}

/// What is killed.
#[derive(Clone, Copy)]
struct Case {
    drive: fn() -> Setup,
    door: Door,
    queues: u16,
}

const fn case(drive: fn() -> Setup, door: Door, queues: u16) -> Case {
    Case { drive, door, queues }
}

fn every_case(doors: &[Door]) -> Vec<Case> {
    let shapes = doors.iter().flat_map(|door| [(*door, 1), (*door, 4)]);
    let drives: [fn() -> Setup; 3] = [standby, slow, flash];
    shapes.flat_map(|(door, queues)| drives.map(|drive| case(drive, door, queues))).collect()
}

impl Door {
    /// What a crash can leave a queue at.
    fn steps(self) -> impl Iterator<Item = CrashPoint> {
        CrashPoint::ALL.into_iter().filter(move |step| self != Door::Nvme || *step != CrashPoint::Published)
    }
}

/// What kills came to.
#[derive(Default)]
struct Kills {
    made: u32,
    /// By step: aimed at, and hit.
    aims: BTreeMap<CrashPoint, (u32, u32)>,
    /// What the next workers found: queues by step, kills with requests in flight, requests.
    found: BTreeMap<CrashPoint, u64>,
    in_flight: u32,
    requests: u64,
    stops: u64,
    /// What one took in the last run.
    pace: Duration,
}

fn killed(env: &Env, cases: &[Case], wanted: u32) -> Outcome {
    let mut rng = Rng::new(std::process::id().into());
    let mut doors = BTreeMap::<Door, Kills>::new();
    let each = wanted.div_ceil(cases.len() as u32);
    for case in cases {
        let name = format!("{:?}, {} queues", case.door, case.queues);
        let (mut kills, mut idle) = (Kills::default(), 0);
        while kills.made < each {
            let before = kills.made;
            with_node(env, &case.setup(env)?, |node| kill_under(env, node, *case, each, &mut kills, &mut rng))
                .map_err(|e| format!("{name}, after {} kills: {e}", kills.made))?;
            // A busy machine may take longer to begin than the load takes.
            idle = if kills.made > before { 0 } else { idle + 1 };
            ensure(idle < 5, || format!("{name}: the load ended before there was a kill"))?;
        }
        kills.print(&name);
        doors.entry(case.door).or_default().add(kills);
    }
    for (door, kills) in doors {
        kills.print(&format!("{door:?}, all"));
        kills.check(door).map_err(|e| format!("{door:?}: {e}"))?;
    }
    Ok(())
}

impl Kills {
    fn print(&self, name: &str) {
        let Self { made, in_flight, requests, stops, .. } = self;
        let aims: Vec<_> = self.aims.iter().map(|(step, (of, hit))| format!("{} {hit} of {of}", step.name())).collect();
        let found: Vec<_> = self.found.iter().map(|(step, n)| format!("{} {n}", step.name())).collect();
        println!("    {name}: {made} kills, {stops} stops before them; hit: {}", aims.join(", "));
        println!(
            "      each time the next worker found just what lay there, {in_flight} times requests in flight, {requests} in all; queues: {}",
            found.join(", ")
        );
    }

    fn count(&mut self, aim: Aim, Killed { hit, stops, queues }: Killed) {
        self.made += 1;
        self.stops += u64::from(stops);
        if let Some(step) = aim.step {
            let (of, hits) = self.aims.entry(step).or_default();
            (*of, *hits) = (*of + 1, *hits + u32::from(hit));
        }
        self.in_flight += u32::from(queues.iter().any(|(_, requests)| *requests > 0));
        for (step, requests) in queues {
            *self.found.entry(step).or_default() += 1;
            self.requests += requests as u64;
        }
    }

    /// All steps were hit and found. A drive that is never idle is not hit there.
    fn check(&self, door: Door) -> Outcome {
        let hit =
            |step: &CrashPoint| *step == CrashPoint::Idle || self.aims.get(step).is_some_and(|(_, hits)| *hits > 0);
        let missed: Vec<_> = door.steps().filter(|step| !hit(step) || !self.found.contains_key(step)).collect();
        ensure(missed.is_empty(), || format!("steps that no kill has hit: {missed:?}"))
    }

    fn add(&mut self, other: Self) {
        self.made += other.made;
        self.in_flight += other.in_flight;
        self.requests += other.requests;
        self.stops += other.stops;
        for (step, (of, hit)) in other.aims {
            let sum = self.aims.entry(step).or_default();
            *sum = (sum.0 + of, sum.1 + hit);
        }
        for (step, n) in other.found {
            *self.found.entry(step).or_default() += n;
        }
    }
}

/// One run of the load, up to so many kills in all.
fn kill_under(env: &Env, node: &mut Node, case: Case, enough: u32, kills: &mut Kills, rng: &mut Rng) -> Outcome {
    let lasts = kills.pace.max(Duration::from_millis(150)) * (enough - kills.made) * 3 / 2;
    let mut load = case.load(env, node, Duration::from_secs(2) + lasts.min(Duration::from_secs(40)))?;
    until(Duration::from_secs(60), "the client writes", || {
        let status = http::get(&node.api(), "/v1/status").unwrap_or_default();
        let writes = status["tenants"][0]["io"]["writes"].as_u64().unwrap_or(0);
        Ok((writes > 100 || !load.process().running()).then_some(()))
    })?;
    let steps: Vec<_> = case.door.steps().map(Some).chain([None]).collect();
    let (begun, before) = (Instant::now(), kills.made);
    while kills.made < enough && load.process().running() {
        let queue = rng.below(case.queues.into()) as u16;
        let step = steps[kills.made as usize % steps.len()];
        let aim = Aim { queue, step, skip: rng.below(50) as u32 };
        let killed = match case.door {
            Door::Nvme => commands(node, case, aim, &mut load),
            Door::Split | Door::Packed => requests(node, case, aim, &mut load),
        };
        let Some(killed) = killed.map_err(|e| format!("{aim:?}: {e}"))? else { break };
        kills.count(aim, killed);
        std::thread::sleep(Duration::from_micros(300 + rng.below(40_000) as u64));
    }
    kills.pace = begun.elapsed() / (kills.made - before).max(1);
    load.finish()?.clean()
}

impl Case {
    fn setup(self, env: &Env) -> Result<Setup, String> {
        let setup = (self.drive)();
        if self.door != Door::Nvme {
            return Ok(setup);
        }
        // What the next worker finds is told in its log only.
        let script = format!("WEIR_LOG=warn,weir_node::door::vfio_user=info exec {} \"$@\"", env.weir.display());
        let program = Some(program(&env.folder()?, "weir-that-tells", &script)?);
        Ok(Setup { program, ..setup }.vfio("pci.sock", ""))
    }

    /// Whoever serves it may come and go: it is told nothing of that, and does not connect again.
    fn load(self, env: &Env, node: &Node, time: Duration) -> Result<Bench, String> {
        let (jobs, time) = (self.queues.to_string(), format!("{}ms", time.as_millis()));
        let args = ["--rw", "randrw", "--bs", "4KiB:80/16KiB:20", "--qd", "32", "--jobs", &jobs, "--time", &time];
        let more = ["--region", "48MiB", "--verify", "crc32c"];
        let (target, ring): (_, &[_]) = match self.door {
            Door::Split => (node.socket_target("gold.sock"), &["--ring", "split"]),
            Door::Packed => (node.socket_target("gold.sock"), &["--ring", "packed"]),
            Door::Nvme => (node.vfio_target("pci.sock"), &[]),
        };
        Bench::start(env, &target, &[&args[..], &more, ring].concat())
    }
}

/// A kill, and what came of it.
struct Killed {
    hit: bool,
    stops: u32,
    /// By queue: its step, and how many requests were in flight.
    queues: Vec<(CrashPoint, usize)>,
}

impl Killed {
    fn of<R>(aimed: &Aimed<R>, queue: impl Fn(&R) -> (CrashPoint, usize)) -> Self {
        Self { hit: aimed.hit, stops: aimed.stops, queues: aimed.left.iter().map(queue).collect() }
    }
}

/// A client that has gone meanwhile leaves nothing to aim at.
fn reached<R>(killed: Result<Aimed<R>, String>, load: &mut Bench) -> Result<Option<Aimed<R>>, String> {
    let Err(e) = killed else { return killed.map(Some) };
    let gone = || Ok((!load.process().running()).then_some(()));
    until(Duration::from_secs(1), "the load ends", gone).map(|()| None).map_err(|_| e)
}

/// Of virtqueues: `weir status` says what the next worker has found.
fn requests(node: &Node, case: Case, aim: Aim, load: &mut Bench) -> Result<Option<Killed>, String> {
    let kind = if case.door == Door::Packed { RingKind::Packed } else { RingKind::Split };
    let worker = node.worker()?;
    let aimed = rings::kill(worker, Rings { kind, queues: case.queues }, aim);
    let Some(aimed) = reached(aimed, load)? else { return Ok(None) };
    // A load that ends meanwhile takes with it what there was to find.
    let Some(found) = left(node, worker, case.queues.into(), load)? else { return Ok(None) };
    let lay = expected(&aimed.left);
    ensure(found == lay, || format!("there lay {lay}, found was {found}"))?;
    Ok(Some(Killed::of(&aimed, |queue| (queue.step, queue.heads.len()))))
}

/// What `weir status` is to say of it.
fn expected(left: &[RecoveredRing]) -> Value {
    let sum = |of: fn(&RecoveredRing) -> usize| left.iter().map(of).sum::<usize>();
    let at = |step: CrashPoint| left.iter().filter(|queue| queue.step == step).count();
    let steps: serde_json::Map<_, _> =
        CrashPoint::ALL.into_iter().map(|step| (step.name().into(), json!(at(step)))).collect();
    json!({
        "queues": left.len(),
        "requests": sum(|queue| queue.heads.len()),
        "rolled_back": sum(|queue| queue.rolled_back.into()),
        "closed": sum(|queue| queue.closed.into()),
        "steps": steps,
    })
}

/// Of NVMe queues: the next worker's log says how many commands it has executed again, and how many completions it has posted.
fn commands(node: &mut Node, case: Case, aim: Aim, load: &mut Bench) -> Result<Option<Killed>, String> {
    let said = |node: &mut Node| node.process().stderr().lines().filter(|line| line.contains("recovered ")).count();
    let (worker, before) = (node.worker()?, said(node));
    let Some(aimed) = reached(nvme::kill(worker, case.queues, aim), load)? else { return Ok(None) };
    let owed = || aimed.left.iter().flat_map(|queue| &queue.commands);
    let done = owed().filter(|(_, _, owed)| matches!(owed, Owed::Completion { .. })).count();
    let lay = format!(" commands={} posted={done}", owed().count() - done);
    until(Duration::from_secs(60), "the next worker goes on", || {
        // It takes over once the threads are dead that serve, and may be there before their process is on its way out.
        let goes_on = said(node) > before && node.worker()? != worker;
        Ok((goes_on || !load.process().running()).then_some(()))
    })?;
    let all = node.process().stderr();
    let found = all.lines().filter(|line| line.contains("recovered ")).nth(before);
    let Some(found) = found else { return Ok(None) };
    ensure(found.trim_end().ends_with(&lay), || format!("there lay {lay}, found was {found}"))?;
    Ok(Some(Killed::of(&aimed, |queue| (queue.step, queue.commands.len()))))
}
