//! The slow, obvious oracle: plain lists and real rounds.
//!
//! Every scheduler and every ring is a `Level`: a list of members with what each may still spend in this round. A round
//! ends when nobody who has something to serve may spend anything; the next one pays everybody a quantum, however
//! many rounds that takes.

use crate::ring::Price;
use crate::{ArbiterSettings, CHILD_QUANTUM, Mechanism};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use weir_units::Class;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Place {
    Drive,
    Class(usize),
    Tenant(u32, usize),
    Group(u32, usize),
    Local(u32, usize, usize),
}

#[derive(Clone, Debug)]
struct Member {
    id: u32,
    active: bool,
    barred: bool,
    weight: u32,
    /// What it may still spend in this round; zero or less: it has to wait.
    credit: i64,
    /// What it was promised a round when it overdrew, and the least turn it has had since.
    rate: i64,
    cap: i64,
    /// A round has passed since it could have been served.
    rested: bool,
    /// Its place in the queue.
    order: u64,
}

#[derive(Clone, Debug)]
struct Level {
    price: Price,
    quanta: Quantum,
    members: Vec<Member>,
    clock: u64,
}

#[derive(Clone, Debug)]
enum Quantum {
    /// Children: by weight, served in the order they came.
    Each(u32),
    /// Classes: by rank, served in this order.
    Ranked([u32; 3]),
}

impl Level {
    fn quantum(&self, m: &Member) -> i64 {
        match (&self.quanta, m.id) {
            (Quantum::Each(credit), _) => i64::from(*credit) * i64::from(m.weight),
            (Quantum::Ranked(_), 0) => i64::MAX,
            (Quantum::Ranked(credits), class) => i64::from(credits[class as usize - 1]),
        }
    }

    fn quantum_of(&self, id: u32) -> i64 {
        self.quantum(self.members.iter().find(|m| m.id == id).expect("a member"))
    }

    fn add(&mut self, id: u32, weight: u32) {
        let mut m = Member {
            id,
            active: false,
            barred: false,
            weight,
            credit: 0,
            rate: 0,
            cap: i64::MAX,
            rested: false,
            order: 0,
        };
        m.credit = self.quantum(&m);
        self.members.push(m);
    }

    fn get(&mut self, id: u32) -> &mut Member {
        self.members.iter_mut().find(|m| m.id == id).expect("a member")
    }

    fn active(&self) -> bool {
        self.members.iter().any(|m| m.active)
    }

    fn ranked(&self) -> bool {
        matches!(self.quanta, Quantum::Ranked(_))
    }

    fn join(&mut self, id: u32) {
        self.clock += 1;
        let clock = self.clock;
        let quantum = self.quantum_of(id);
        let m = self.get(id);
        if m.active || m.barred {
            return;
        }
        if m.rested {
            m.credit = quantum;
        }
        (m.active, m.rested, m.order) = (true, false, clock);
        self.settle();
    }

    /// Nobody to share with: nothing is counted.
    fn alone(&self) -> bool {
        self.members.iter().filter(|m| m.id > 0 || !self.ranked()).count() <= 1
    }

    fn leave(&mut self, id: u32) {
        let quantum = self.quantum_of(id);
        let alone = self.alone();
        let m = self.get(id);
        m.active = false;
        if 0 < m.credit && m.credit < quantum && !alone {
            (m.credit, m.rate, m.cap) = (0, quantum, quantum);
        }
        self.settle();
    }

    fn charge(&mut self, id: u32, cost: u32, keep: bool) {
        self.clock += 1;
        let clock = self.clock;
        let quantum = self.quantum_of(id);
        let free = self.ranked() && id == 0 || self.alone();
        let price = if free { 0 } else { self.price.of(cost) };
        let m = self.get(id);
        m.credit -= price;
        if m.credit <= 0 && !free {
            (m.rate, m.cap, m.order) = (quantum, quantum, clock);
        }
        if keep {
            self.settle();
        } else {
            self.leave(id);
        }
    }

    /// Ends rounds in which nobody can be served.
    fn settle(&mut self) {
        while self.active() && !self.members.iter().any(|m| m.active && m.credit > 0) {
            for i in 0..self.members.len() {
                let m = &mut self.members[i];
                if m.credit > 0 {
                    m.rested = true;
                } else {
                    m.credit += m.rate;
                    m.credit = m.credit.min(m.cap);
                }
            }
        }
    }

    /// Other quanta: what is left in turns is cut.
    fn retune(&mut self, quanta: Quantum) {
        self.quanta = quanta;
        for i in 0..self.members.len() {
            let quantum = self.quantum(&self.members[i]);
            let m = &mut self.members[i];
            m.credit = m.credit.min(quantum);
            m.cap = m.cap.min(quantum);
        }
    }

    fn next(&self) -> Option<u32> {
        let ready = self.members.iter().filter(|m| m.active && m.credit > 0);
        let first = if self.ranked() { ready.min_by_key(|m| m.id) } else { ready.min_by_key(|m| m.order) };
        first.map(|m| m.id)
    }
}

fn classes(settings: &ArbiterSettings) -> Level {
    let quanta = Quantum::Ranked(settings.class_credit());
    Level { price: settings.class_price(), quanta, members: Vec::new(), clock: 0 }
}

/// What a turn in ring `slot` is, from the words of the standard and the design.
fn turn(settings: &ArbiterSettings, slot: usize) -> (Price, u32) {
    let weights = [settings.weights.high, settings.weights.medium, settings.weights.low];
    let burst = |no_limit: u32| if settings.burst.bits() == 7 { no_limit } else { 1 << settings.burst.bits() };
    match (settings.mechanism, slot) {
        (Mechanism::None, _) => (Price::Nothing, 1),
        (Mechanism::Rr, _) | (Mechanism::Wrr, 0) => (Price::Command, burst(1)),
        (Mechanism::Wrr, _) => (Price::Command, burst(256).min(u32::from(weights[slot - 1]))),
        (Mechanism::Drr, 0) => (Price::Command, 1),
        (Mechanism::Drr, _) => (Price::Bytes, CHILD_QUANTUM),
    }
}

fn ring(settings: &ArbiterSettings, slot: usize) -> Level {
    let (price, credit) = turn(settings, slot);
    Level { price, quanta: Quantum::Each(credit), members: Vec::new(), clock: 0 }
}

#[derive(Clone, Debug)]
struct Queue {
    group: u32,
    class: Class,
    local: Class,
    ready: bool,
}

/// In a tenant's level queues that stand there themselves are numbered from here, controllers below.
const OWN_TURN: u32 = 1 << 31;

/// The oracle; the same operations as [`crate::Arbiter`], keyed by index.
#[derive(Clone, Debug)]
pub(crate) struct ArbiterModel {
    settings: ArbiterSettings,
    tenants: BTreeMap<u32, (u32, bool)>,
    groups: BTreeMap<u32, (u32, ArbiterSettings)>,
    queues: BTreeMap<u32, Queue>,
    levels: BTreeMap<Place, Level>,
    /// A queue served its last head while nobody else had one: it leaves when anything happens to anybody else.
    lingers: Option<u32>,
}

impl ArbiterModel {
    pub fn new(settings: ArbiterSettings) -> ArbiterModel {
        let (tenants, groups, queues) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let levels = BTreeMap::from([(Place::Drive, classes(&settings))]);
        ArbiterModel { settings, tenants, groups, queues, levels, lingers: None }
    }

    pub fn add_tenant(&mut self, t: u32, weight: u16) {
        self.tenants.insert(t, (u32::from(weight), false));
    }

    pub fn set_tenant(&mut self, t: u32, weight: u16) {
        self.let_go();
        self.tenants.get_mut(&t).expect("live").0 = u32::from(weight);
        for slot in 0..4 {
            if let Some(level) = self.levels.get_mut(&Place::Class(slot)) {
                if level.price == Price::Bytes && level.members.iter().any(|m| m.id == t) {
                    level.get(t).weight = u32::from(weight);
                    let quanta = level.quanta.clone();
                    level.retune(quanta);
                }
            }
        }
    }

    pub fn remove_tenant(&mut self, t: u32) {
        self.let_go();
        let groups: Vec<u32> = self.groups.iter().filter(|(_, g)| g.0 == t).map(|(&g, _)| g).collect();
        groups.into_iter().for_each(|g| self.remove_group(g));
        self.tenants.remove(&t);
        for slot in 0..4 {
            self.levels.remove(&Place::Tenant(t, slot));
            if self.settings.mechanism != Mechanism::None {
                if let Some(level) = self.levels.get_mut(&Place::Class(slot)) {
                    level.members.retain(|m| m.id != t);
                }
            }
        }
    }

    pub fn add_group(&mut self, g: u32, t: u32, settings: ArbiterSettings) {
        self.groups.insert(g, (t, settings));
    }

    pub fn set_group(&mut self, g: u32, settings: ArbiterSettings) {
        self.let_go();
        let before = self.groups[&g].1;
        if self.in_turn(&before) != self.in_turn(&settings) {
            return self.move_group(g, settings);
        }
        if self.settings.mechanism == Mechanism::None || before.mechanism == settings.mechanism {
            self.groups.get_mut(&g).expect("live").1 = settings;
        }
        if self.settings.mechanism == Mechanism::None {
            return;
        }
        if before.mechanism == settings.mechanism {
            for (place, level) in &mut self.levels {
                match *place {
                    Place::Group(of, _) if of == g => level.retune(Quantum::Ranked(settings.class_credit())),
                    Place::Local(of, _, slot) if of == g => level.retune(Quantum::Each(turn(&settings, slot).1)),
                    _ => {}
                }
            }
            return;
        }
        let queues: Vec<u32> = self.queues.iter().filter(|(_, q)| q.group == g).map(|(&q, _)| q).collect();
        let ready: Vec<bool> = queues.iter().map(|&q| self.detach(q)).collect();
        self.groups.get_mut(&g).expect("live").1 = settings;
        self.levels.retain(|place, _| !matches!(place, Place::Local(of, ..) if *of == g));
        for (place, level) in &mut self.levels {
            if matches!(place, Place::Group(of, _) if *of == g) {
                *level = classes(&settings);
            }
        }
        queues.into_iter().zip(ready).for_each(|(q, ready)| self.attach(q, ready));
    }

    fn move_group(&mut self, g: u32, settings: ArbiterSettings) {
        let queues: Vec<u32> = self.queues.iter().filter(|(_, q)| q.group == g).map(|(&q, _)| q).collect();
        let ready: Vec<bool> = queues.iter().map(|&q| self.detach(q)).collect();
        self.drop_levels(g);
        self.groups.get_mut(&g).expect("live").1 = settings;
        queues.into_iter().zip(ready).for_each(|(q, ready)| self.attach(q, ready));
    }

    /// Round robin, and the group's host has asked for nothing else: each of its queues has its turn in the tenant's.
    fn in_turn(&self, group: &ArbiterSettings) -> bool {
        let plain = group.mechanism == Mechanism::Rr && matches!(group.burst.bits(), 0 | 7);
        self.settings.mechanism == Mechanism::Rr && plain
    }

    fn drop_levels(&mut self, g: u32) {
        self.levels.retain(|place, _| !matches!(place, Place::Group(of, _) | Place::Local(of, ..) if *of == g));
        for (place, level) in &mut self.levels {
            if matches!(place, Place::Tenant(..)) {
                level.members.retain(|m| m.id != g);
            }
        }
    }

    pub fn remove_group(&mut self, g: u32) {
        self.let_go();
        let queues: Vec<u32> = self.queues.iter().filter(|(_, q)| q.group == g).map(|(&q, _)| q).collect();
        queues.into_iter().for_each(|q| self.remove_queue(q));
        self.drop_levels(g);
        // A group's number may be used again by another tenant's.
        self.groups.remove(&g);
    }

    pub fn add_queue(&mut self, q: u32, group: u32, class: Class, local: Class) {
        self.let_go();
        self.queues.insert(q, Queue { group, class, local, ready: false });
        self.attach(q, false);
    }

    pub fn set_queue_class(&mut self, q: u32, class: Class, local: Class) {
        if (self.queues[&q].class, self.queues[&q].local) == (class, local) {
            return;
        }
        self.let_go();
        let ready = self.detach(q);
        let queue = self.queues.get_mut(&q).expect("live");
        (queue.class, queue.local) = (class, local);
        self.attach(q, ready);
    }

    pub fn remove_queue(&mut self, q: u32) {
        self.let_go();
        self.detach(q);
        self.queues.remove(&q);
    }

    pub fn configure(&mut self, settings: ArbiterSettings) {
        self.let_go();
        let before = core::mem::replace(&mut self.settings, settings);
        if before.mechanism != settings.mechanism {
            self.levels = BTreeMap::from([(Place::Drive, classes(&settings))]);
            let queues: Vec<(u32, bool)> = self.queues.iter().map(|(&q, queue)| (q, queue.ready)).collect();
            queues.into_iter().for_each(|(q, ready)| self.attach(q, ready));
            return;
        }
        for (place, level) in &mut self.levels {
            match *place {
                Place::Drive => level.retune(Quantum::Ranked(settings.class_credit())),
                Place::Class(slot) | Place::Tenant(_, slot) => level.retune(Quantum::Each(turn(&settings, slot).1)),
                _ => {}
            }
        }
    }

    pub fn set_held(&mut self, t: u32, held: bool) {
        self.let_go();
        if core::mem::replace(&mut self.tenants.get_mut(&t).expect("live").1, held) == held {
            return;
        }
        if self.settings.mechanism == Mechanism::None {
            let of_tenant = |q: &Queue| self.groups[&q.group].0 == t;
            let queues: Vec<u32> = self.queues.iter().filter(|(_, q)| of_tenant(q)).map(|(&q, _)| q).collect();
            for q in queues {
                self.bar(Place::Class(0), q, held, self.queues[&q].ready);
            }
            return;
        }
        for slot in 0..4 {
            if let Some(inner) = self.levels.get(&Place::Tenant(t, slot)) {
                self.bar(Place::Class(slot), t, held, inner.active());
            }
        }
    }

    fn bar(&mut self, place: Place, id: u32, held: bool, ready: bool) {
        if held && ready {
            self.quit(&[(place, id), (Place::Drive, place_slot(place))]);
        }
        self.levels.get_mut(&place).expect("a level").get(id).barred = held;
        if !held && ready {
            self.enter(&[(place, id), (Place::Drive, place_slot(place))]);
        }
    }

    fn let_go(&mut self) {
        if let Some(q) = self.lingers.take() {
            let path = self.path(q);
            self.quit(&path);
        }
    }

    pub fn backlog(&mut self, q: u32) {
        if self.lingers == Some(q) {
            self.lingers = None;
            self.queues.get_mut(&q).expect("live").ready = true;
            return;
        }
        self.let_go();
        if !core::mem::replace(&mut self.queues.get_mut(&q).expect("live").ready, true) {
            let path = self.path(q);
            self.enter(&path);
        }
    }

    pub fn withdraw(&mut self, q: u32) {
        if core::mem::replace(&mut self.queues.get_mut(&q).expect("live").ready, false) {
            let path = self.path(q);
            self.quit(&path);
        }
    }

    pub fn charge(&mut self, q: u32, cost: u32, still_backlogged: bool) {
        self.queues.get_mut(&q).expect("live").ready = still_backlogged;
        let mut keep = still_backlogged;
        if !self.queues.values().any(|queue| queue.ready) {
            self.lingers = Some(q);
            keep = true;
        }
        for (place, id) in self.path(q) {
            let level = self.levels.get_mut(&place).expect("a level");
            level.charge(id, cost, keep);
            keep = level.active();
        }
    }

    pub fn pick(&self) -> Option<u32> {
        if self.lingers.is_some() {
            return None;
        }
        let slot = self.levels[&Place::Drive].next()? as usize;
        let first = self.levels[&Place::Class(slot)].next()?;
        if self.settings.mechanism == Mechanism::None {
            return Some(first);
        }
        let group = self.levels[&Place::Tenant(first, slot)].next()?;
        if group >= OWN_TURN {
            return Some(group - OWN_TURN);
        }
        let local = self.levels[&Place::Group(group, slot)].next()? as usize;
        self.levels[&Place::Local(group, slot, local)].next()
    }

    fn enter(&mut self, path: &[(Place, u32)]) {
        for &(place, id) in path {
            let level = self.levels.get_mut(&place).expect("a level");
            let before = level.active();
            level.join(id);
            if before || !level.active() {
                return;
            }
        }
    }

    fn quit(&mut self, path: &[(Place, u32)]) {
        for &(place, id) in path {
            let level = self.levels.get_mut(&place).expect("a level");
            if !level.get(id).active {
                return;
            }
            level.leave(id);
            if level.active() {
                return;
            }
        }
    }

    /// The levels above a queue and who stands for it there, from the bottom.
    fn path(&self, q: u32) -> Vec<(Place, u32)> {
        let Queue { group, class, local, .. } = self.queues[&q];
        if self.settings.mechanism == Mechanism::None {
            return [(Place::Class(0), q), (Place::Drive, 0)].into();
        }
        let slot = self.settings.slot(class);
        let (tenant, ref settings) = self.groups[&group];
        if self.in_turn(settings) {
            return [
                (Place::Tenant(tenant, slot), OWN_TURN + q),
                (Place::Class(slot), tenant),
                (Place::Drive, slot as u32),
            ]
            .into();
        }
        let local = settings.slot(local);
        [
            (Place::Local(group, slot, local), q),
            (Place::Group(group, slot), local as u32),
            (Place::Tenant(tenant, slot), group),
            (Place::Class(slot), tenant),
            (Place::Drive, slot as u32),
        ]
        .into()
    }

    fn attach(&mut self, q: u32, ready: bool) {
        for (place, id) in self.path(q).into_iter().rev() {
            let settings = match place {
                Place::Group(g, _) | Place::Local(g, ..) => self.groups[&g].1,
                _ => self.settings,
            };
            let level = self.levels.entry(place).or_insert_with(|| match place {
                Place::Drive | Place::Group(..) => classes(&settings),
                Place::Class(slot) | Place::Tenant(_, slot) | Place::Local(_, _, slot) => ring(&settings, slot),
            });
            if level.members.iter().any(|m| m.id == id) {
                continue;
            }
            let held = |t: u32| self.tenants[&t].1;
            let of_tenants = matches!(place, Place::Class(_)) && self.settings.mechanism != Mechanism::None;
            let weight = if of_tenants && level.price == Price::Bytes { self.tenants[&id].0 } else { 1 };
            level.add(id, weight);
            if matches!(place, Place::Class(_)) {
                level.get(id).barred = held(if of_tenants { id } else { self.groups[&self.queues[&q].group].0 });
            }
        }
        self.queues.get_mut(&q).expect("live").ready = false;
        if ready {
            self.backlog(q);
        }
    }

    fn detach(&mut self, q: u32) -> bool {
        let ready = self.queues[&q].ready;
        self.withdraw(q);
        let (place, id) = self.path(q)[0];
        self.levels.get_mut(&place).expect("a level").members.retain(|m| m.id != id);
        ready
    }
}

fn place_slot(place: Place) -> u32 {
    match place {
        Place::Class(slot) => slot as u32,
        _ => unreachable!("only tenants and queues of the drive's rings are held"),
    }
}
