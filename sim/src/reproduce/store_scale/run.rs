//! What happens in a run: the store is made and filled, the process that serves is killed, machines are lost, then a rack, and all that was
//! acknowledged is looked for.

use super::drives::target;
use super::scale::{REPAIR_AFTER, StoreSize};
use super::seen::{Observed, Phase};
use super::world::World;
use std::collections::BTreeMap;
use weir_store::fsck::Image;
use weir_store::keys::{KeySpace, map_chunk_key};
use weir_store::kv::Kv as _;
use weir_store::protocol::{Answer, Donation, MovementInfo, Request};
use weir_store::records::{MapChunk, from_value};
use weir_store::service::LabelFound;
use weir_store::{ClassName, Location, NamespaceId, StoreError};
use weir_units::Nanos;

/// Donations, and looks for names, that the operator has under way.
const AT_A_TIME: usize = 64;
/// How long a part of a run may take, in virtual time.
const PART_TIME_MAX: Nanos = Nanos::from_secs(1_200);
/// How long the store is used before something fails, and after it.
const USED: Nanos = Nanos::from_secs(20);

/// What becomes of a lost machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It is back with its bytes before its blocks are made again.
    BackInTime,
    /// It never comes back.
    Gone,
    /// It is back without its bytes.
    BackEmpty,
    /// It was in the rack that is lost.
    Rack,
}

impl Loss {
    pub const fn words(self) -> &'static str {
        match self {
            Loss::BackInTime => "goes, and comes back in time",
            Loss::Gone => "is gone",
            Loss::BackEmpty => "goes, and comes back empty",
            Loss::Rack => "is gone with its rack",
        }
    }
}

/// A machine that was lost.
#[derive(Clone, Debug)]
pub struct LostNode {
    pub node: usize,
    pub namespace: NamespaceId,
    pub loss: Loss,
    pub at: Nanos,
    /// Copies on it that have another one elsewhere, and that have none.
    pub copies: [u64; 2],
    /// When all of the former were made again.
    pub repaired: Option<Nanos>,
}

/// Used bytes of a class's drives before anything fails.
#[derive(Clone, Copy, Debug, Default)]
pub struct Balance {
    pub drives: usize,
    pub mean: f64,
    pub least: f64,
    pub most: f64,
    /// Of the mean.
    pub deviation: f64,
}

/// What came of it.
pub struct StoreRun {
    pub seen: Observed,
    pub balance: [Balance; 2],
    pub regions: usize,
    pub donated: Nanos,
    pub killed: Nanos,
    /// From the kill: another process answers, gives out blocks, has answered everybody.
    pub served: Nanos,
    pub granted: Nanos,
    pub all_back: Nanos,
    pub lost: Vec<LostNode>,
    pub rack: Nanos,
    /// Copies left on machines that are lost, by second.
    pub left: Vec<(f64, f64)>,
    pub moved: u64,
    pub files: usize,
    /// Names that are not as they were acknowledged.
    pub wrong_names: Vec<String>,
    /// Files with a block of which no copy can be read: those that had two copies of each, and those that had one.
    pub lost_files: [u64; 2],
    /// Blocks of files with two copies that have both in one rack.
    pub together: u64,
    pub findings: Vec<String>,
    pub check: Result<(), &'static str>,
    pub ended: Nanos,
    pub records: usize,
    pub events: u64,
}

/// Makes the run.
pub fn run(scale: StoreSize, progress: &mut dyn FnMut(f64)) -> StoreRun {
    let mut world = World::new(scale);
    let until = Nanos::from_secs(60);
    world.run(until, |world| world.serving().is_some());
    world.operate();
    donate(&mut world, progress);
    let donated = world.now;
    world.begin_clients();
    let is_full =
        |world: &World| world.clients.iter().all(|client| client.rests() && client.files.len() >= world.scale.files);
    for _ in 0..PART_TIME_MAX.get() / 1_000_000_000 {
        world.pass(Nanos::from_secs(1));
        let files: usize = world.clients.iter().map(|client| client.files.len()).sum();
        progress(0.1 + 0.3 * files as f64 / (scale.clients * scale.files) as f64);
        if is_full(&world) {
            break;
        }
    }
    world.pass(Nanos::from_secs(2));
    let balance = balance(&mut world);
    world.load(Some(scale.operations));
    world.phase = Phase::Before;
    world.pass(USED);
    let takeover = take_over(&mut world);
    progress(0.5);
    world.phase = Phase::After;
    world.pass(USED);
    let mut losses = Losses::default();
    world.phase = Phase::Losses;
    losses.machines(&mut world, progress);
    let rack = losses.rack(&mut world, progress);
    world.load(None);
    world.pass(Nanos::from_secs(15));
    let files = world.clients.iter().map(|client| client.files.len()).sum();
    let wrong_names = wrong_names(&mut world);
    progress(0.95);
    let (lost_files, together) = lost_files(&mut world);
    let serving = world.serving();
    let check = serving.map_or(Err("no process serves"), |process| world.processes[process].service.check());
    let (findings, records, regions) = findings(&mut world);
    progress(1.0);
    let (killed, [served, granted, all_back]) = takeover;
    StoreRun {
        balance,
        regions,
        donated,
        killed,
        served,
        granted,
        all_back,
        lost: losses.lost,
        rack,
        left: losses.left,
        moved: world.drives.moved,
        files,
        wrong_names,
        lost_files,
        together,
        findings,
        check,
        ended: world.now,
        records,
        events: world.events_done,
        seen: world.seen,
    }
}

/// The operator gives the store its drives.
fn donate(world: &mut World, progress: &mut dyn FnMut(f64)) {
    let all: Vec<usize> = (0..world.scale.nodes).collect();
    let class = |node| ClassName::new(["dram", "flash"][StoreSize::class(node)]).expect("a class");
    for nodes in all.chunks(AT_A_TIME) {
        let mut orders = Vec::new();
        for node in nodes {
            let location = Location::new(&world.scale.location(*node)).expect("a location");
            let donation = Donation { target: target(*node), class: class(*node), location, overwrite: false };
            orders.push((*node, world.order(Request::Donate { donation })));
        }
        for (node, order) in orders {
            match world.await_told(order) {
                Some(Answer::Donated { namespace }) => _ = world.nodes.insert(namespace, node),
                other => world.seen.unexpected.push(format!("a donation was answered {other:?}")),
            }
        }
        progress(0.1 * world.nodes.len() as f64 / world.scale.nodes as f64);
    }
}

/// How evenly the drives of each class are used.
fn balance(world: &mut World) -> [Balance; 2] {
    let Some(Answer::Namespaces { namespaces }) = world.ask(Request::Namespaces {}) else {
        return Default::default();
    };
    [0, 1].map(|class| {
        let of_class = namespaces.iter().filter(|info| usize::from(info.class.0) == class);
        let used: Vec<f64> = of_class.map(|info| info.mapped as f64).collect();
        let drives = used.len();
        let mean = used.iter().sum::<f64>() / drives.max(1) as f64;
        let squares: f64 = used.iter().map(|bytes| (bytes - mean).powi(2)).sum();
        let (least, most) = used.iter().fold((f64::MAX, 0.0), |(least, most), at| (at.min(least), at.max(most)));
        let deviation = (squares / drives.max(1) as f64).sqrt() / mean;
        Balance { drives, mean, least, most, deviation }
    })
}

/// The process that serves is killed: when, and how long until another one answers, gives out blocks, and has greeted everybody.
fn take_over(world: &mut World) -> (Nanos, [Nanos; 3]) {
    let killed = world.now;
    let Some(process) = world.serving() else { return (killed, [Nanos::NEVER; 3]) };
    world.phase = Phase::Takeover;
    world.kill(process);
    world.granted_at = None;
    let until = killed.saturating_add(Nanos::from_secs(120));
    let after = |world: &World| world.now.saturating_sub(killed);
    world.run(until, |world| world.serving().is_some());
    let served = after(world);
    world.run(until, |world| world.clients.iter().all(|client| client.is_greeted()));
    let all_back = after(world);
    world.run(until, |world| world.granted_at.is_some());
    let granted = world.granted_at.map_or(Nanos::NEVER, |at| at.saturating_sub(killed));
    // What was sent meanwhile is answered.
    world.pass(Nanos::from_secs(1));
    world.operate();
    (killed, [served, granted, all_back])
}

/// Machines that are lost, and how far their repair is.
#[derive(Default)]
struct Losses {
    lost: Vec<LostNode>,
    left: Vec<(f64, f64)>,
}

impl Losses {
    /// Machines are lost one after the other, until what they had is made again.
    fn machines(&mut self, world: &mut World, progress: &mut dyn FnMut(f64)) {
        let count = world.scale.losses;
        for number in 0..count {
            // Of any rack but the first, which is lost later.
            let step = (world.scale.nodes - world.scale.rack) / count.max(1);
            let node = world.scale.rack + number * step + 1 + number;
            let loss = [Loss::Gone, Loss::BackInTime, Loss::BackEmpty][number % 3];
            self.lose(world, node, loss);
            self.pass(world, StoreSize::BETWEEN);
            match loss {
                Loss::BackInTime => world.drives.all[node].is_up = true,
                Loss::BackEmpty => {
                    world.drives.all[node].label = LabelFound::Blank;
                    world.drives.all[node].is_up = true;
                }
                Loss::Gone | Loss::Rack => {}
            }
            progress(0.5 + 0.2 * (number + 1) as f64 / count as f64);
        }
        self.await_repair(world);
        progress(0.75);
    }

    /// All machines of the first rack are lost at once: when.
    fn rack(&mut self, world: &mut World, progress: &mut dyn FnMut(f64)) -> Nanos {
        let at = world.now;
        for node in 0..world.scale.rack {
            self.lose(world, node, Loss::Rack);
        }
        self.await_repair(world);
        progress(0.9);
        at
    }

    fn lose(&mut self, world: &mut World, node: usize, loss: Loss) {
        let Some(namespace) = world.nodes.iter().find(|(_, of)| **of == node).map(|(number, _)| *number) else {
            return;
        };
        world.drives.all[node].is_up = false;
        let copies = copies_on(world, namespace);
        self.lost.push(LostNode { node, namespace, loss, at: world.now, copies, repaired: None });
    }

    fn await_repair(&mut self, world: &mut World) {
        for _ in 0..PART_TIME_MAX.get() / 1_000_000_000 {
            let waits =
                |lost: &LostNode| lost.repaired.is_none() && lost.loss != Loss::BackInTime && lost.copies[0] > 0;
            if !self.lost.iter().any(waits) {
                return;
            }
            self.pass(world, Nanos::from_secs(1));
        }
    }

    /// Time passes, and each second the operator looks at what has moved.
    fn pass(&mut self, world: &mut World, time: Nanos) {
        for _ in 0..time.get() / 1_000_000_000 {
            world.pass(Nanos::from_secs(1));
            let Some(Answer::Movement { namespaces }) = world.ask(Request::Movement {}) else { continue };
            let found: BTreeMap<NamespaceId, &MovementInfo> =
                namespaces.iter().map(|info| (info.namespace, info)).collect();
            let left: u64 = namespaces.iter().map(|info| info.blocks).sum();
            self.left.push((world.now.get() as f64 / 1e9, left as f64));
            for lost in self.lost.iter_mut().filter(|lost| lost.repaired.is_none()) {
                let Some(info) = found.get(&lost.namespace) else { continue };
                if info.moved_blocks > 0 && (info.blocks <= lost.copies[1] || info.moved_blocks >= lost.copies[0]) {
                    lost.repaired = Some(world.now);
                }
            }
        }
    }
}

/// The chunks of all maps.
fn chunks(world: &World) -> impl Iterator<Item = MapChunk> + '_ {
    let of_maps = world.kv.iter().filter(|(key, _)| key.0.first() == Some(&(KeySpace::MapChunk as u8)));
    of_maps.filter_map(|(_, value)| from_value::<MapChunk>(&value.value).ok())
}

/// Copies on a drive of blocks that have another copy, and of those that have none.
fn copies_on(world: &World, namespace: NamespaceId) -> [u64; 2] {
    let mut copies = [0; 2];
    for block in chunks(world).flat_map(|chunk| chunk.blocks) {
        if block.copies.iter().any(|copy| copy.namespace == namespace) {
            copies[usize::from(block.copies.len() < 2)] += 1;
        }
    }
    copies
}

/// Names that are not as they were acknowledged.
fn wrong_names(world: &mut World) -> Vec<String> {
    let mut names = Vec::new();
    for (number, client) in world.clients.iter().enumerate() {
        let Some(directory) = client.directory else { continue };
        let there = client.files.iter().map(|file| (file.name.clone(), true));
        let gone = client.deleted.iter().map(|name| (name.clone(), false));
        names.extend(there.chain(gone).map(|(name, is_there)| (number, directory, name, is_there)));
    }
    let mut wrong = Vec::new();
    for some in names.chunks(AT_A_TIME) {
        let mut orders = Vec::new();
        for (number, from, name, is_there) in some {
            let request = Request::Resolve { from: *from, names: vec![name.clone()], follow: true };
            orders.push((*number, name, *is_there, world.order(request)));
        }
        for (number, name, is_there, order) in orders {
            let is_as_told = match world.await_told(order) {
                Some(Answer::Found { .. }) => is_there,
                Some(Answer::Failed { error: StoreError::NotFound, .. }) => !is_there,
                _ => false,
            };
            if !is_as_told {
                wrong.push(format!("{name} of client {number}"));
            }
        }
    }
    wrong
}

/// Files with a block of which no copy is left; and blocks that have both copies in one rack.
fn lost_files(world: &mut World) -> ([u64; 2], u64) {
    let (mut lost, mut together) = ([0; 2], 0);
    let files: Vec<_> =
        world.clients.iter().flat_map(|client| &client.files).map(|file| (file.at.inode, file.copies)).collect();
    for (inode, copies) in files {
        let found = world.kv.get(&map_chunk_key(inode, 0)).ok().flatten();
        let chunk = found.and_then(|found| from_value::<MapChunk>(&found.value).ok()).unwrap_or_default();
        let node = |namespace: &NamespaceId| world.nodes.get(namespace).copied();
        let is_there = |namespace: &NamespaceId| {
            let drive = node(namespace).map(|node| &world.drives.all[node]);
            drive.is_some_and(|drive| {
                drive.is_up && matches!(drive.label, LabelFound::Label { namespace: of, .. } if of == *namespace)
            })
        };
        let is_lost = chunk.blocks.is_empty()
            || chunk.blocks.iter().any(|block| !block.copies.iter().any(|copy| is_there(&copy.namespace)));
        lost[usize::from(copies < 2)] += u64::from(is_lost);
        for block in &chunk.blocks {
            let mut racks: Vec<_> =
                block.copies.iter().filter_map(|copy| Some(node(&copy.namespace)? / world.scale.rack)).collect();
            racks.sort_unstable();
            together += u64::from(racks.windows(2).any(|pair| pair[0] == pair[1]));
        }
    }
    (lost, together)
}

/// What `weir store fsck` finds, the number of records, and of regions.
fn findings(world: &mut World) -> (Vec<String>, usize, usize) {
    let Ok(image) = Image::read(&mut world.kv) else { return (vec!["the metadata cannot be read".into()], 0, 0) };
    let places = image.places();
    let findings = image.findings(&places).iter().map(|finding| format!("{finding:?}")).collect();
    (findings, image.records(), places.len())
}

/// A machine's blocks are made again so long after it was lost, at the least.
pub const REPAIR_BEGINS: Nanos = REPAIR_AFTER;
