//! Drives for tests, with a volatile and a durable half, and a caller that carries effects out and may stop anywhere.

use crate::{
    BLOCK, CHUNK, EffectFailure, Pool, PoolEffect, PoolError, PoolEvent, PoolRequest, STRIPE, Setup, SetupDrive, Uuid,
};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let (mut crc, mut bit) = (i as u32, 0);
        while bit < 8 {
            crc = crc >> 1 ^ if crc & 1 != 0 { 0x82f6_3b78 } else { 0 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
};

/// CRC32C.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, b| crc >> 8 ^ TABLE[((crc ^ u32::from(*b)) & 0xff) as usize])
}

type Blocks = BTreeMap<u64, Vec<u8>>;

/// A drive: its metadata by block, and of every chunk behind them one word that stands for its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Disk {
    pub blocks: Blocks,
    /// What is not zero.
    pub chunks: BTreeMap<u64, u64>,
}

/// Something that a crash may lose, keep, or tear.
#[derive(Clone, Debug)]
pub(crate) enum Pending {
    Block(u64, Vec<u8>),
    Unmap(u64),
    /// The word of a chunk.
    Word(u64, u64),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ModelDrive {
    pub bytes: u64,
    pub now: Disk,
    pub durable: Disk,
    pub pending: Vec<Pending>,
}

impl ModelDrive {
    pub fn new(mib: u64) -> Self {
        Self { bytes: mib * CHUNK, ..Self::default() }
    }

    /// Whole blocks, which are not durable before a flush.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (i, block) in bytes.chunks(BLOCK).enumerate() {
            let at = offset / BLOCK as u64 + i as u64;
            self.now.blocks.insert(at, block.to_vec());
            self.pending.push(Pending::Block(at, block.to_vec()));
        }
    }

    /// The word of a chunk, which is not durable before a flush.
    pub fn put(&mut self, chunk: u32, word: u64) {
        self.now.chunks.insert(chunk.into(), word);
        self.pending.push(Pending::Word(chunk.into(), word));
    }

    /// What was written is durable.
    pub fn flush(&mut self) {
        self.durable = self.now.clone();
        self.pending.clear();
    }

    fn read(&self, offset: u64, len: u32) -> Vec<u8> {
        let block = |at: u64| self.now.blocks.get(&at).cloned().unwrap_or_else(|| alloc::vec![0; BLOCK]);
        (0..u64::from(len) / BLOCK as u64).flat_map(|i| block(offset / BLOCK as u64 + i)).collect()
    }

    /// What a crash leaves: `fate` says of each thing that is not durable whether it is lost (0), kept (1), or the first
    /// (2) or the second (3) half of it.
    pub fn crash(&self, mut fate: impl FnMut(usize) -> u8) -> ModelDrive {
        let mut disk = self.durable.clone();
        for (i, pending) in self.pending.iter().enumerate() {
            match (pending, fate(i)) {
                (_, 0) => {}
                (Pending::Block(at, bytes), how) => {
                    let old = disk.blocks.entry(*at).or_insert_with(|| alloc::vec![0; BLOCK]);
                    let half = BLOCK / 2;
                    let part = match how {
                        1 => 0..BLOCK,
                        2 => 0..half,
                        _ => half..BLOCK,
                    };
                    old[part.clone()].copy_from_slice(&bytes[part]);
                }
                (Pending::Unmap(chunk), _) => {
                    disk.chunks.remove(chunk);
                }
                // One word is there or not.
                (Pending::Word(chunk, word), how) => {
                    if how != 2 {
                        disk.chunks.insert(*chunk, *word);
                    }
                }
            }
        }
        ModelDrive { bytes: self.bytes, now: disk.clone(), durable: disk, pending: Vec::new() }
    }
}

/// What stands for the bytes of a chunk that is not readable.
pub(crate) const UNREADABLE: u64 = u64::MAX;

/// A pool and its drives.
#[derive(Clone, Debug)]
pub(crate) struct ModelWorld {
    pub pool: Pool,
    pub drives: Vec<ModelDrive>,
    pub next: Option<PoolEffect>,
}

/// A UUID that no other call gives with another number.
pub(crate) fn uuid(n: u64) -> Uuid {
    let mut bytes = [0xa5; 16];
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    Uuid(bytes)
}

pub(crate) fn setup(drives: &[ModelDrive], seed: u64) -> Setup {
    let named = |(i, d): (usize, &ModelDrive)| SetupDrive { name: alloc::format!("d{i}"), bytes: d.bytes, named: true };
    Setup {
        name: "p".into(),
        drives: drives.iter().enumerate().map(named).collect(),
        fresh: (0..=drives.len() as u64).map(|i| uuid(seed << 32 | i)).collect(),
        crc: crc32c,
        keeps_layout: false,
        whole: false,
    }
}

impl ModelWorld {
    /// A pool that is about to be opened.
    pub fn opening(drives: Vec<ModelDrive>, seed: u64) -> ModelWorld {
        let mut pool = Pool::new(setup(&drives, seed));
        let next = Some(pool.apply(PoolEvent::Open));
        ModelWorld { pool, drives, next }
    }

    /// Carries out one effect; the outcome once it was the last.
    pub fn step(&mut self) -> Option<Result<crate::PoolAnswer, PoolError>> {
        let mut bytes = Vec::new();
        match self.next.take().expect("there is something to do") {
            PoolEffect::Finished(result) => return Some(result),
            PoolEffect::Read { drive, offset, len } => {
                assert!(offset + u64::from(len) <= self.drives[drive].bytes && len as usize <= STRIPE);
                bytes = self.drives[drive].read(offset, len);
            }
            PoolEffect::Write { drive, offset, bytes } => {
                assert!(offset % BLOCK as u64 == 0 && bytes.len() % BLOCK == 0 && bytes.len() <= STRIPE);
                self.drives[drive].write(offset, &bytes);
            }
            PoolEffect::Flush { drive } => {
                let drive = &mut self.drives[drive];
                drive.durable = drive.now.clone();
                drive.pending.clear();
            }
            PoolEffect::Copy { from, from_offset, to, to_offset, len } => {
                assert!(len == CHUNK && from_offset % CHUNK == 0 && to_offset % CHUNK == 0);
                let word = self.drives[from].now.chunks.get(&(from_offset / CHUNK)).copied().unwrap_or(0);
                self.drives[to].put((to_offset / CHUNK) as u32, word);
            }
            PoolEffect::Unmap { drive, offset, len } => {
                let drive = &mut self.drives[drive];
                assert!(offset + len <= drive.bytes && offset % CHUNK == 0 && len % CHUNK == 0 && len > 0);
                for chunk in offset / CHUNK..(offset + len) / CHUNK {
                    drive.now.chunks.remove(&chunk);
                    drive.pending.push(Pending::Unmap(chunk));
                }
            }
        }
        self.next = Some(self.pool.apply(PoolEvent::Done(Ok(bytes))));
        None
    }

    /// Carries out everything.
    pub fn finish(&mut self) -> Result<crate::PoolAnswer, PoolError> {
        loop {
            if let Some(result) = self.step() {
                self.pool.check();
                return result;
            }
        }
    }

    pub fn begin(&mut self, request: &PoolRequest) {
        self.next = Some(self.pool.apply(PoolEvent::Request(request.clone())));
    }

    pub fn request(&mut self, request: &PoolRequest) -> Result<crate::PoolAnswer, PoolError> {
        self.begin(request);
        self.finish()
    }

    /// A pool on these drives, open.
    pub fn open(drives: Vec<ModelDrive>, seed: u64) -> Result<ModelWorld, PoolError> {
        let mut world = ModelWorld::opening(drives, seed);
        world.finish().map(|_| world)
    }

    /// Fills every chunk of a volume with what nobody else writes; it is durable.
    pub fn scribble(&mut self, name: &str) {
        let (id, segments) = (self.pool.volume(name).unwrap().id, self.segments(name));
        for s in segments.into_iter().filter(|s| !s.lost) {
            for i in 0..s.len {
                let word = id.0 << 32 | u64::from(s.logical + i) | 1 << 63;
                let second =
                    s.second.filter(|second| second.drive != usize::MAX).map(|second| (second.drive, second.start));
                for (drive, start) in [(s.drive, s.start)].into_iter().chain(second) {
                    let (drive, chunk) = (&mut self.drives[drive], u64::from(start + i));
                    drive.now.chunks.insert(chunk, word);
                    drive.durable.chunks.insert(chunk, word);
                }
            }
        }
    }

    pub fn segments(&self, name: &str) -> Vec<crate::VolumeSegment> {
        self.pool.segments(self.pool.volume(name).unwrap().id)
    }

    /// The words of a volume's chunks, in its order.
    pub fn words(&self, name: &str) -> Vec<u64> {
        let word = |s: &crate::VolumeSegment, i: u32| match s.lost {
            true => UNREADABLE,
            false => self.drives[s.drive].now.chunks.get(&u64::from(s.start + i)).copied().unwrap_or(0),
        };
        self.segments(name).iter().flat_map(|s| (0..s.len).map(|i| word(s, i)).collect::<Vec<_>>()).collect()
    }

    /// Chunks that volumes have, each once.
    pub fn used(&self) -> u64 {
        let places = |v: &crate::Volume| {
            let copies = |s: crate::VolumeSegment| {
                let second = s.second.map(|second| (second.drive, second.start));
                let each = move |(drive, start): (usize, u32)| (0..s.len).map(move |i| (drive, start + i));
                [Some((s.drive, s.start)), second].into_iter().flatten().flat_map(each).collect::<Vec<_>>()
            };
            self.pool.segments(v.id).into_iter().flat_map(copies).collect::<Vec<_>>()
        };
        self.pool.volumes().flat_map(places).collect::<alloc::collections::BTreeSet<_>>().len() as u64
    }

    /// Writes the word of a chunk as a host does: a chunk that others have too is the volume's own first, and of two copies both have it.
    pub fn write(&mut self, name: &str, chunk: u32, word: u64) -> Result<(), PoolError> {
        let (id, copies) = self.pool.volume(name).map(|v| (v.id, v.copies)).unwrap();
        let runs = alloc::vec![crate::ChunkRun { start: chunk, len: 1 }];
        if copies > 1 {
            self.request(&PoolRequest::Written { id, runs: runs.clone() })?;
        }
        if self.pool.locate(id, &runs)[0].shared {
            self.request(&PoolRequest::Unshare { id, runs: runs.clone() })?;
        }
        let place = self.pool.locate(id, &runs)[0];
        assert!(!place.shared && !place.lost);
        place.places().for_each(|(drive, run)| self.drives[drive].put(run.start, word));
        Ok(())
    }

    /// Two good copies of a chunk have the same word.
    pub fn alike(&self) {
        for volume in self.pool.volumes() {
            for s in self.pool.segments(volume.id).iter().filter(|s| !s.lost) {
                let Some(second) = s.second.filter(|second| second.state == crate::CopyState::Good) else { continue };
                let word =
                    |drive: usize, chunk: u32| self.drives[drive].now.chunks.get(&chunk.into()).copied().unwrap_or(0);
                for i in 0..s.len {
                    let (one, other) = (word(s.drive, s.start + i), word(second.drive, second.start + i));
                    assert_eq!(one, other, "{}: the copies of chunk {}", volume.name, s.logical + i);
                }
            }
        }
    }

    /// Name, tenant and the words of every volume: all that anybody sees of the pool.
    pub fn seen(&self) -> BTreeMap<String, (String, Vec<u64>)> {
        self.pool.volumes().map(|v| (v.name.clone(), (v.tenant.clone(), self.words(&v.name)))).collect()
    }
}

pub(crate) fn create(name: &str, chunks: u32) -> PoolRequest {
    let n = name.bytes().fold(0u64, |n, b| n << 8 | u64::from(b));
    PoolRequest::Create { name: name.into(), tenant: "gold".into(), uuid: uuid(n | 1 << 62), chunks, copies: 1 }
}

/// The same, of which two drives have each chunk.
pub(crate) fn create_twice(name: &str, chunks: u32) -> PoolRequest {
    match create(name, chunks) {
        PoolRequest::Create { name, tenant, uuid, chunks, .. } => {
            PoolRequest::Create { name, tenant, uuid, chunks, copies: 2 }
        }
        other => other,
    }
}

pub(crate) fn resize(name: &str, chunks: u32) -> PoolRequest {
    PoolRequest::Resize { name: name.into(), chunks }
}

pub(crate) fn rename(name: &str, to: &str) -> PoolRequest {
    PoolRequest::Rename { name: name.into(), to: to.into() }
}

pub(crate) fn delete(name: &str) -> PoolRequest {
    PoolRequest::Delete { name: name.into() }
}

pub(crate) fn snapshot(name: &str, snapshot: &str) -> PoolRequest {
    let n = name.bytes().chain(snapshot.bytes()).fold(0u64, |n, b| n << 8 | u64::from(b));
    PoolRequest::Snapshot { name: name.into(), snapshot: snapshot.into(), uuid: uuid(n | 3 << 61) }
}

pub(crate) fn clone_of(snapshot: &str, name: &str) -> PoolRequest {
    let n = name.bytes().fold(1u64, |n, b| n << 8 | u64::from(b));
    PoolRequest::Clone { snapshot: snapshot.into(), name: name.into(), tenant: "iron".into(), uuid: uuid(n | 5 << 60) }
}

pub(crate) fn rollback(snapshot: &str) -> PoolRequest {
    PoolRequest::Rollback { snapshot: snapshot.into() }
}

/// The drive of that place of a world joins.
pub(crate) fn join(world: &ModelWorld, place: usize, seed: u64) -> PoolRequest {
    let drive = SetupDrive { name: alloc::format!("d{place}"), bytes: world.drives[place].bytes, named: true };
    PoolRequest::Join { drive, uuid: uuid(seed << 32 | 1 << 61) }
}

/// The drive of that place of a world takes the place of the lost one of that number.
pub(crate) fn replace(world: &ModelWorld, number: u16, place: usize, seed: u64) -> PoolRequest {
    match join(world, place, seed) {
        PoolRequest::Join { drive, uuid } => PoolRequest::Replace { number, drive, uuid },
        other => other,
    }
}

/// The drive of that place of a world is back.
pub(crate) fn online(world: &ModelWorld, place: usize) -> PoolRequest {
    let drive = SetupDrive { name: alloc::format!("d{place}"), bytes: world.drives[place].bytes, named: true };
    PoolRequest::Online { drive }
}

pub(crate) fn failure() -> PoolEvent {
    PoolEvent::Done(Err(EffectFailure("Write Fault".into())))
}

impl Pool {
    /// Blocks that are left in the copies of all drives together.
    pub(crate) fn fill_left(&self) -> u32 {
        self.books.drives.iter().map(|d| d.copy_blocks - d.used).sum()
    }

    /// The copies count as full.
    pub(crate) fn pretend_used(&mut self) {
        self.books.drives.iter_mut().for_each(|d| d.used = d.copy_blocks);
    }
}
