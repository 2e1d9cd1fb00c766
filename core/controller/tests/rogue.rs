//! Tenants that do what they like, and what it costs the others: their shares, and the rates and p99 that the plan promised them.
//!
//! A drive of 16 slots and 80 µs a command, shared by deficit round robin: gold (high) and silver (medium) keep 128 reads of
//! 4 KiB waiting; bronze (low) misbehaves, in one way at a time and then in all ways at once, as one tenant and as many.
//! Time is virtual, so every figure is exact. What lies behind a door (data that never comes, answers that are never read) does not
//! reach the drive: the end-to-end suite `rogue` has that.

mod common;

use common::config;
use std::collections::BTreeMap;
use weir_arbiter::Mechanism;
use weir_controller::testing::{Fabric, TestRing, TestWorld, admin, io};
use weir_controller::{
    Attach, BlockRequest, Effect, Effects, Event, Op, Owner, SqHandle, SubsystemConfig, Tag, TenantConfig,
    TransportModel,
};
use weir_plan::{Demand, DriveModel, PlanTenant, Setting, forecast};
use weir_spec::nvme::register::ams;
use weir_spec::nvme::{AdminOpcode, Status};
use weir_units::{Class, Nanos};
use weir_workload::Job;

const SLOTS: u32 = 16;
const LATENCY: Nanos = Nanos::from_micros(80);
/// What gold and silver keep waiting.
const DEPTH: u32 = 128;
const SIZE: u32 = 4096;
/// The longest command that the drive takes.
const MAX: u32 = 1 << 20;
/// How long is measured, after a tenth of it.
const TIME: Nanos = Nanos::from_millis(400);

/// What is asked for next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    /// Reads of 4 KiB.
    Reads,
    /// Reads and writes from 512 bytes to the longest there is.
    Sizes,
    /// The longest there is.
    Longest,
    /// Flushes, deallocations, zeroes and comparisons.
    Oddities,
}

/// A tenant's requests on one or more queues of front controllers, each full all the time.
struct Client {
    owner: Owner,
    queues: Vec<SqHandle>,
    depth: u32,
    asks: Asks,
    /// When the request of a tag was sent, and its cost.
    sent: Vec<(Nanos, u32)>,
    done: u64,
    cost: u64,
    /// Of those that were done.
    latencies: Vec<u64>,
}

/// What somebody does beside sending requests.
enum Deed {
    /// Keeps the admin queue full.
    AdminStorm(Box<Fabric>, u32),
    /// Fills rings whose completions it never takes.
    NeverReaps(TestRing),
    /// Connects queues, fills them, and goes.
    Churn(u16),
}

struct Scene {
    world: TestWorld,
    effects: Effects,
    clients: Vec<Client>,
    deeds: Vec<Deed>,
    random: u64,
    /// By owner: place in `clients`.
    places: BTreeMap<u32, usize>,
    steps: u64,
}

fn tenants(bronzes: u16) -> impl FnOnce(&mut SubsystemConfig) {
    move |config| {
        config.slots = SLOTS;
        config.latency = LATENCY;
        config.tenants.truncate(2);
        for i in 0..bronzes {
            let hosts = vec![format!("nqn.bronze{i}")];
            config.tenants.push(TenantConfig { hosts, ..TenantConfig::new(&format!("bronze{i}"), Class::Low) });
        }
    }
}

impl Scene {
    fn new(bronzes: u16, gold: u32) -> Self {
        let world = TestWorld::new(config(tenants(bronzes)), 8192);
        let mut scene = Scene {
            world,
            effects: Effects::new(8192),
            clients: Vec::new(),
            deeds: Vec::new(),
            random: 0x9e37_79b9_7f4a_7c15,
            places: BTreeMap::new(),
            steps: 0,
        };
        scene.add(0, (1, gold), Asks::Reads);
        scene.add(1, (1, DEPTH), Asks::Reads);
        scene
    }

    /// Queues of a tenant, at most 64 a controller.
    fn add(&mut self, tenant: u16, (queues, depth): (u32, u32), asks: Asks) {
        let owner = Owner(1_000 + self.clients.len() as u32);
        let mut handles = Vec::new();
        while (handles.len() as u32) < queues {
            let attach = Attach { tenant, owner, model: TransportModel::Front, host: format!("client of {tenant}") };
            let controller = self.world.drive.attach(self.world.now, attach).expect("there is room for controllers");
            for _ in 0..(queues - handles.len() as u32).min(64) {
                let queue = self.world.drive.add_message_queue(controller, depth, None, owner);
                handles.push(queue.expect("there is room for queues"));
            }
        }
        let sent = vec![(Nanos(0), 0); (queues * depth) as usize];
        self.places.insert(owner.0, self.clients.len());
        self.clients.push(Client {
            owner,
            queues: handles,
            depth,
            asks,
            sent,
            done: 0,
            cost: 0,
            latencies: Vec::new(),
        });
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % n
    }

    fn apply(&mut self, event: Event) {
        self.world.drive.apply(self.world.now, event, &mut self.world.host, &mut self.effects);
        let mut finished = Vec::new();
        for effect in self.effects.drain() {
            match effect {
                Effect::Io(io) => finished.push(io.slot),
                Effect::Disconnect { owner, queue } => {
                    self.world.host.forget(owner);
                    self.world.closing.push((owner, queue));
                }
            }
        }
        // The bytes move at once: their time has passed.
        for slot in finished {
            self.apply(Event::Done { slot, status: Status::SUCCESS });
        }
    }

    fn submit(&mut self, place: usize, tag: u32) {
        let asks = self.clients[place].asks;
        let (op, len) = match asks {
            Asks::Reads => (Op::Read, SIZE),
            Asks::Longest => (Op::Read, MAX),
            Asks::Sizes => {
                let len = (512u64 << self.below(12)).min(MAX.into()) as u32;
                (if self.below(2) == 0 { Op::Read } else { Op::Write }, len)
            }
            Asks::Oddities => match self.below(4) {
                0 => (Op::Flush, 0),
                1 => (Op::Deallocate, 512 << 10),
                2 => (Op::WriteZeroes { deallocate: self.below(2) == 0 }, 512 << 10),
                _ => (Op::Compare, 64 << 10),
            },
        };
        let offset = if op == Op::Flush { 0 } else { self.below(512) << 20 };
        let now = self.world.now;
        let client = &mut self.clients[place];
        let moves = matches!(op, Op::Read | Op::Write | Op::Compare);
        client.sent[tag as usize] = (now, if moves { len.max(4096) } else { 4096 });
        let (owner, queue) = (client.owner, client.queues[(tag / client.depth) as usize]);
        self.world.host.pending.insert((owner.0, tag), tag as u16);
        self.apply(Event::Submit {
            queue,
            request: BlockRequest { op, nsid: 1, offset, len, fua: false },
            tag: Tag(tag),
        });
    }

    /// Everybody takes what came and asks for more.
    fn answers(&mut self) {
        while let Some((owner, tag, cqe)) = self.world.host.answers.pop_front() {
            let Some(&place) = self.places.get(&owner.0) else { continue };
            assert!(cqe.status().is_success(), "{owner:?} {tag:?}: {}", cqe.status());
            let (now, client) = (self.world.now, &mut self.clients[place]);
            let (sent, cost) = client.sent[tag.0 as usize];
            client.done += 1;
            client.cost += u64::from(cost);
            client.latencies.push(now.saturating_sub(sent).get());
            self.submit(place, tag.0);
        }
    }

    fn misbehave(&mut self) {
        let mut deeds = std::mem::take(&mut self.deeds);
        for deed in &mut deeds {
            match deed {
                Deed::AdminStorm(fabric, sent) => {
                    let queue = fabric.queues[0];
                    // As many as the queue of 32 takes, of all kinds.
                    while self.world.drive.outstanding(queue) < 31 {
                        *sent += 1;
                        let opcode = [
                            AdminOpcode::IDENTIFY,
                            AdminOpcode::GET_LOG_PAGE,
                            AdminOpcode::GET_FEATURES,
                            AdminOpcode::ABORT,
                            AdminOpcode::KEEP_ALIVE,
                        ][*sent as usize % 5];
                        let sqe = admin(opcode, *sent as u16, [1, 2 | 127 << 16, 7, *sent, 0][*sent as usize % 5], 0);
                        fabric.send(&mut self.world, 0, sqe);
                    }
                }
                Deed::NeverReaps(ring) => {
                    for qid in 1..=4 {
                        while ring.submit(&mut self.world, qid, io(2, 0, u64::from(qid), 8)).is_some() {}
                    }
                }
                Deed::Churn(tenant) => {
                    let owner = Owner(900 + u32::from(*tenant));
                    let attach = Attach { tenant: *tenant, owner, model: TransportModel::Front, host: "churn".into() };
                    let controller = self.world.drive.attach(self.world.now, attach).expect("there is room");
                    let queue = self.world.drive.add_message_queue(controller, 64, None, owner).expect("there is room");
                    for n in 0..64 {
                        self.world.host.pending.insert((owner.0, n), n as u16);
                        let request = BlockRequest { op: Op::Read, nsid: 1, offset: 0, len: SIZE, fua: false };
                        self.apply(Event::Submit { queue, request, tag: Tag(n) });
                    }
                    self.apply(Event::Run);
                    self.world.drive.disconnect(self.world.now, queue);
                    self.world.host.forget(owner);
                    self.world.drive.detach(self.world.now, controller);
                }
            }
        }
        self.deeds = deeds;
        self.world.close();
    }

    fn run_until(&mut self, end: Nanos) {
        while self.world.now < end {
            self.misbehave();
            self.apply(Event::Run);
            let mut turns = 0;
            while self.world.drive.has_work() {
                self.apply(Event::Run);
                turns += 1;
                assert!(turns < 10_000, "there is always more work");
            }
            self.answers();
            let next = self.world.drive.next_deadline().expect("commands are in flight");
            self.world.now = next.max(self.world.now);
            self.apply(Event::Tick);
            self.answers();
            self.steps += 1;
            if self.steps % 512 == 0 {
                self.world.drive.check();
            }
        }
    }

    /// What gold and silver got, and the rest at the drive, in bytes of cost; gold's and silver's longest latency.
    fn measure(&mut self) -> [u64; 3] {
        for place in 0..self.clients.len() {
            (0..self.clients[place].sent.len() as u32).for_each(|tag| self.submit(place, tag));
        }
        self.run_until(Nanos(TIME.0 / 10));
        for client in &mut self.clients {
            (client.done, client.cost) = (0, 0);
            client.latencies.clear();
        }
        self.run_until(Nanos(TIME.0 / 10 + TIME.0));
        let others = self.clients[2..].iter().map(|c| c.cost).sum();
        [self.clients[0].cost, self.clients[1].cost, others]
    }
}

impl Client {
    /// 99th percentile and longest latency, in nanoseconds.
    fn latency(&mut self) -> [f64; 2] {
        self.latencies.sort_unstable();
        let at = |part: usize| self.latencies[(self.latencies.len() - 1) * part / 100] as f64;
        [at(99), at(100)]
    }
}

/// What the plan promises gold and silver beside a bronze that asks without end: commands a second, and p99 and longest latency
/// in nanoseconds.
fn promised(gold: u32) -> [(f64, [f64; 2]); 2] {
    let tenant = |text: &str| {
        let job = Job::parse(text, &Job::default()).expect("a job");
        PlanTenant::new(&job.name, job.class.expect("a class"), Demand::of(&job))
    };
    let tenants = [
        tenant(&format!("name=gold,class=high,qd={gold}")),
        tenant(&format!("name=silver,class=medium,qd={DEPTH}")),
        tenant("name=bronze,class=low,qd=4096"),
    ];
    let drive = DriveModel::fixed(LATENCY, SLOTS, 4 << 20);
    let forecast = forecast(&drive, &Setting::new(Mechanism::Drr), &tenants);
    [0, 1].map(|i| {
        let expected = &forecast.tenants[i];
        let latency = expected.latency.as_ref().expect("a closed loop has a latency");
        (expected.iops, [latency.p99 as f64, latency.max as f64])
    })
}

/// Gold and silver keep 4/7 and 2/7 of the drive, bytes by bytes, and the rate and the p99 that the plan has for them; so does a gold
/// tenant with four requests.
fn kept(what: &str, bronzes: u16, rogue: fn(&mut Scene)) {
    for gold in [DEPTH, 4] {
        let mut scene = Scene::new(bronzes, gold);
        rogue(&mut scene);
        let got = scene.measure();
        let all = got.iter().sum::<u64>() as f64;
        for (i, (planned, [p99, max])) in promised(gold).into_iter().enumerate() {
            let client = &mut scene.clients[i];
            let (part, rate) = (got[i] as f64 / all, client.done as f64 / TIME.as_secs_f64());
            let [found, worst] = client.latency();
            println!(
                "{what:<28} {} at depth {:>3}: {part:.4} of the bytes, {:.3} of its rate, p99 {:.0} of {:.0} us, longest {:.0} of {:.0} us",
                ["gold  ", "silver"][i],
                [gold, DEPTH][i],
                rate / planned,
                found / 1e3,
                p99 / 1e3,
                worst / 1e3,
                max / 1e3
            );
            if gold == DEPTH {
                let share = [4.0 / 7.0, 2.0 / 7.0][i];
                // Where the others leave something, it is theirs as well.
                assert!(part > share * 0.97, "{what}: {part:.4} of the bytes instead of {share:.4}");
            }
            assert!(rate > planned * 0.97, "{what}: {rate:.0} a second instead of {planned:.0}");
            assert!(found <= p99 * 1.03, "{what}: a p99 of {found} ns, the plan says {p99}");
        }
        let ratio = got[0] as f64 / got[1] as f64;
        assert!(gold != DEPTH || (1.94..2.06).contains(&ratio), "{what}: gold to silver {ratio:.3}");
        scene.world.drive.check();
    }
}

fn storm(scene: &mut Scene, tenant: u16) {
    let host = format!("nqn.bronze{}", tenant - 2);
    let fabric = Fabric::ready(&mut scene.world, &host, 10_000 + u32::from(tenant) * 100, ams::RR);
    scene.deeds.push(Deed::AdminStorm(Box::new(fabric), 0));
}

fn never_reaps(scene: &mut Scene, tenant: u16) {
    let mut ring = TestRing::ready(&mut scene.world, tenant, Owner(20_000 + u32::from(tenant)), ams::RR);
    for qid in 1..=4 {
        ring.add_queue(&mut scene.world, qid, 256, 0);
    }
    scene.deeds.push(Deed::NeverReaps(ring));
}

#[test]
fn who_asks_without_end() {
    kept("a queue of 4096", 1, |scene| scene.add(2, (1, 4096), Asks::Reads));
}

#[test]
fn who_has_very_many_queues() {
    kept("1024 queues of 64", 1, |scene| scene.add(2, (1024, 64), Asks::Reads));
}

#[test]
fn who_asks_for_every_size() {
    kept("512 bytes to 1 MiB", 1, |scene| scene.add(2, (64, 256), Asks::Sizes));
    kept("1 MiB", 1, |scene| scene.add(2, (64, 64), Asks::Longest));
}

#[test]
fn who_asks_for_everything_but_data() {
    kept("flush, trim, zeroes, compare", 1, |scene| scene.add(2, (64, 64), Asks::Oddities));
}

#[test]
fn who_storms_the_admin_queue() {
    kept("admin commands without end", 1, |scene| {
        scene.add(2, (1, 256), Asks::Reads);
        storm(scene, 2);
    });
}

#[test]
fn who_never_takes_completions() {
    kept("completions never taken", 1, |scene| never_reaps(scene, 2));
}

#[test]
fn who_comes_and_goes() {
    kept("queues that come and go", 1, |scene| {
        scene.add(2, (1, 256), Asks::Reads);
        scene.deeds.push(Deed::Churn(2));
    });
}

#[test]
fn all_of_them_at_once() {
    kept("all of them, six tenants", 6, |scene| {
        scene.add(2, (1, 4096), Asks::Reads);
        scene.add(3, (512, 64), Asks::Sizes);
        scene.add(4, (64, 64), Asks::Longest);
        scene.add(5, (16, 256), Asks::Oddities);
        storm(scene, 6);
        never_reaps(scene, 7);
        scene.deeds.push(Deed::Churn(7));
    });
}
