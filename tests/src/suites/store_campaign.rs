//! A whole store under blows: three storage nodes, an etcd of three members and two metadata services, each a process of its own, and clients that
//! change files all the time. Any one process is killed and started again, or stands still and goes on, at every step of a client. After each
//! blow everything that was acknowledged is there; where one copy suffices no client sees an error; in the end a process that knows nothing compares every file.

mod client;
mod machines;
mod model;

use std::time::{Duration, Instant};

use weir_units::rng::SplitMix64;

use super::{long, test};
use crate::harness::{Context, Env, Outcome, Test, ensure};
use client::{Tally, Team};
use machines::Machines;
use model::Model;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "store_campaign";
    vec![
        test(S, "clients_go_on_while_processes_are_killed_and_stopped", short),
        long(S, "clients_go_on_through_hundreds_of_blows", many),
    ]
}

/// How long anything may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Longer than three leases of a service.
const THREE_LEASES: Duration = Duration::from_secs(12);

/// Between two blows of the long form every client renews its session: two outages without a renewal in between may be longer than a session lives.
const RENEWED: Duration = Duration::from_secs(3);

/// Blows of the long form, unless `WEIR_CAMPAIGN_BLOWS` says another number: about 50 minutes. `WEIR_CAMPAIGN_SEED` is its seed.
const BLOWS: u64 = 240;

/// Which process a blow is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    /// The process of a storage node that serves; its keeper has the memory.
    Worker,
    /// All processes of a storage node: what it had in memory is gone.
    Node,
    /// The metadata service that serves.
    Serving,
    /// The one that stands by.
    Standby,
    /// The member of etcd that leads.
    Leader,
    /// One that follows.
    Follower,
}

const VICTIMS: [Victim; 6] =
    [Victim::Worker, Victim::Node, Victim::Serving, Victim::Standby, Victim::Leader, Victim::Follower];

/// What a process suffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `kill -9`; it is started again.
    Killed,
    /// SIGSTOP, and SIGCONT three leases later.
    Stopped,
}

/// What a client begins when the blow falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create,
    Overwrite,
    Append,
    /// What was written behind the end is made the file's.
    Publish,
    Rename,
    Delete,
    List,
    Read,
}

const STEPS: [Step; 8] =
    [Step::Create, Step::Overwrite, Step::Append, Step::Publish, Step::Rename, Step::Delete, Step::List, Step::Read];

#[derive(Clone, Copy, Debug)]
struct Blow {
    victim: Victim,
    kind: Kind,
    step: Step,
}

impl Blow {
    fn is_of_storage(&self) -> bool {
        matches!(self.victim, Victim::Worker | Victim::Node)
    }

    fn loses_memory(&self) -> bool {
        self.victim == Victim::Node && self.kind == Kind::Killed
    }
}

/// A slice of a minute: each victim is killed once, and two stand still.
fn short(env: &Env) -> Outcome {
    let all = [
        (Victim::Worker, Kind::Killed, Step::Overwrite),
        (Victim::Serving, Kind::Killed, Step::Create),
        (Victim::Leader, Kind::Killed, Step::Rename),
        (Victim::Node, Kind::Stopped, Step::Append),
        (Victim::Standby, Kind::Killed, Step::List),
        (Victim::Node, Kind::Killed, Step::Publish),
        (Victim::Follower, Kind::Killed, Step::Delete),
    ];
    run(env, 1, &all.map(|(victim, kind, step)| Blow { victim, kind, step }), Duration::ZERO)
}

/// Every kind of blow on every victim, at every step, in any order, again and again.
fn many(env: &Env) -> Outcome {
    let number = |name: &str, usual: u64| match std::env::var(name) {
        Ok(text) => text.parse().context(|| format!("{name}={text}")),
        Err(_) => Ok(usual),
    };
    let (blows, seed) = (number("WEIR_CAMPAIGN_BLOWS", BLOWS)?, number("WEIR_CAMPAIGN_SEED", 2)?);
    let mut random = SplitMix64::new(seed);
    let mut all = Vec::new();
    while (all.len() as u64) < blows {
        let mut cells: Vec<(Victim, Kind)> =
            [Kind::Killed, Kind::Stopped].into_iter().flat_map(|kind| VICTIMS.map(|victim| (victim, kind))).collect();
        while !cells.is_empty() {
            let (victim, kind) = cells.swap_remove((random.next_u64() % cells.len() as u64) as usize);
            // All steps of a cell in turn, each cell from another one on.
            let round = all.len() / (2 * VICTIMS.len());
            let step = STEPS[(round + VICTIMS.iter().position(|of| *of == victim).unwrap_or(0)) % STEPS.len()];
            all.push(Blow { victim, kind, step });
        }
    }
    println!("seed {seed}");
    all.truncate(usize::try_from(blows).unwrap_or(usize::MAX));
    run(env, seed, &all, RENEWED)?;
    let is_hit = |victim: &Victim, kind: Kind| all.iter().any(|blow| blow.victim == *victim && blow.kind == kind);
    let empty = VICTIMS.iter().find(|victim| !is_hit(victim, Kind::Killed) || !is_hit(victim, Kind::Stopped));
    ensure(empty.is_none(), || format!("{empty:?} has an empty cell"))
}

fn run(env: &Env, seed: u64, blows: &[Blow], pause: Duration) -> Outcome {
    let Some(mut machines) = Machines::start(env, "10s")? else { return Ok(()) };
    let team = Team::start(&machines.address(), seed)?;
    let (begun, mut done) = (Instant::now(), Vec::new());
    let mut random = SplitMix64::new(seed);
    let mut ends = Ok(());
    for (turn, blow) in blows.iter().enumerate() {
        let at = Instant::now();
        ends = falls(&mut machines, &team, *blow, turn, pause, &mut random);
        if let Err(why) = &mut ends {
            *why = format!("blow {turn}, {blow:?}, seed {seed}: {why}");
            break;
        }
        done.push(*blow);
        println!("{turn:4} {:?} {:?} at {:?}: {:.1} s", blow.victim, blow.kind, blow.step, at.elapsed().as_secs_f64());
    }
    let finished = team.finish();
    let said = |why: String| format!("{why}\n{}", machines.log());
    let (models, tally) = match (ends, finished) {
        (Ok(()), Ok(all)) => all,
        (Ok(()), Err(why)) => return Err(said(why)),
        (Err(why), Ok(_)) => return Err(said(why)),
        (Err(why), Err(client)) => return Err(said(format!("{why}\n{client}"))),
    };
    verify(&machines, &models).map_err(said)?;
    table(&done, &tally, begun.elapsed());
    machines.stop()
}

/// One blow: it falls at its step, everything is there again, and everything is compared; nothing follows for as long as `pause`.
fn falls(
    machines: &mut Machines,
    team: &Team,
    blow: Blow,
    turn: usize,
    pause: Duration,
    random: &mut SplitMix64,
) -> Outcome {
    let struck = machines.aim(blow.victim, turn)?;
    team.reaches(blow.step)?;
    team.is_struck(blow.is_of_storage(), blow.loses_memory());
    std::thread::sleep(Duration::from_micros(random.next_u64() % 3000));
    machines.strike(blow.kind, &struck)?;
    match blow.kind {
        Kind::Killed => std::thread::sleep(Duration::from_millis(random.next_u64() % 1000)),
        Kind::Stopped => std::thread::sleep(THREE_LEASES),
    }
    machines.heal(blow, &struck)?;
    machines.settled()?;
    team.compare()?;
    if blow.is_of_storage() {
        machines.copies_are_made()?;
    }
    std::thread::sleep(pause);
    Ok(())
}

/// Processes that know nothing read every file.
fn verify(machines: &Machines, models: &[Model]) -> Outcome {
    for (number, model) in models.iter().enumerate() {
        let folder = format!("/c{number}");
        let to = machines.storage[0].socket(&format!("got{number}"));
        machines.fs(&["get", "-r", &folder, &to.display().to_string()])?.success("weir fs get -r")?;
        for (path, known) in &model.known {
            let at = to.join(path.trim_start_matches(&folder).trim_start_matches('/'));
            let found = std::fs::read(&at).context(|| at.display().to_string())?;
            known.is(path, &found)?;
        }
        let listed = machines.fs(&["ls", &folder])?.success("weir fs ls")?;
        let count = model.known.len();
        ensure(listed.lines().count() == count, || format!("{folder}: {count} files, these are there:\n{listed}"))?;
    }
    Ok(())
}

/// Victims by kinds of blow, and by steps.
fn table(blows: &[Blow], tally: &Tally, took: Duration) {
    let count = |is: &dyn Fn(&Blow) -> bool| blows.iter().filter(|blow| is(blow)).count();
    let heads: String = STEPS.iter().map(|step| format!("{:>10}", format!("{step:?}"))).collect();
    println!("{:10}{:>8}{:>8}{heads}", "", "Killed", "Stopped");
    for victim in VICTIMS {
        let of = |kind: Kind| count(&|blow| blow.victim == victim && blow.kind == kind);
        let at = |step: &Step| format!("{:10}", count(&|blow| blow.victim == victim && blow.step == *step));
        let steps: String = STEPS.iter().map(at).collect();
        println!("{:10}{:8}{:8}{steps}", format!("{victim:?}"), of(Kind::Killed), of(Kind::Stopped));
    }
    let Tally { operations, failed, lost, slowest } = tally;
    println!(
        "{} blows in {:.0} s: {operations} operations, the slowest {:.1} s; {failed} of files with one copy failed while a storage node was struck, \
         {lost} files with one copy were lost with its memory",
        blows.len(),
        took.as_secs_f64(),
        slowest.as_secs_f64()
    );
}
