//! A file on drives that fail, with everything in any order, against an array of bytes.

use super::checksum::tests::crc32c;
use super::flush::Flush;
use super::piece::PieceStage;
use super::{
    BlockSeed, DriveFailure, DriveTicket, FileBuffer, FileEffect, FileError, FileEvent, FileIo, FileMemory, FileOpId,
    FileSetup, NewBlock, SectorSize, pieces,
};
use crate::mutant::Mutant;
use crate::records::CHECKSUM_BYTES;
use crate::records::{BlockRecord, MapChunk, blocks_per_chunk};
use crate::space::Epoch;
use crate::{Extent, Generation, InodeId, NamespaceId};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use weir_units::rng::SplitMix64;
use weir_units::{Bytes, Nanos};

extern crate std;

mod beside;
mod compared;
mod epochs;
mod large;
mod mended;

const BLOCK: u32 = 128 << 10;
const BLOCKS: u64 = 5;
const NAMESPACES: u64 = 3;
/// Blocks of a drive.
const DRIVE: u64 = 14;
const INODE: InodeId = InodeId(7);

/// CRC32C eight bits at a time: the tests sum megabytes.
pub(crate) fn crc(so_far: u32, bytes: &[u8]) -> u32 {
    static TABLE: std::sync::OnceLock<Vec<u32>> = std::sync::OnceLock::new();
    let table = TABLE.get_or_init(|| (0..=255u8).map(|byte| !crc32c(!0, &[byte])).collect());
    let step = |crc: u32, byte: &u8| crc >> 8 ^ table[((crc ^ u32::from(*byte)) & 0xff) as usize];
    !bytes.iter().fold(!so_far, step)
}

#[test]
fn the_table_is_right() {
    assert_eq!(crc(0, b"123456789"), 0xe306_9283);
    assert_eq!(crc(crc(0, b"12"), b"3456789"), 0xe306_9283);
}

#[derive(Default)]
struct Memory {
    callers: BTreeMap<FileOpId, Vec<u8>>,
    own: BTreeMap<u64, Vec<u8>>,
}

impl Memory {
    fn bytes(&mut self, at: FileBuffer, len: u32) -> &mut [u8] {
        let (bytes, at) = match at {
            FileBuffer::Caller(op, at) => (self.callers.get_mut(&op).expect("an operation's memory"), at as usize),
            FileBuffer::Own(own, at) => (self.own.get_mut(&own).expect("reserved memory"), at as usize),
        };
        &mut bytes[at..at + len as usize]
    }
}

impl FileMemory for Memory {
    fn reserve(&mut self, number: u64, bytes: u32) {
        assert!(self.own.insert(number, alloc::vec![0; bytes as usize]).is_none());
    }
    fn release(&mut self, number: u64) {
        assert!(self.own.remove(&number).is_some());
    }
    fn copy(&mut self, from: FileBuffer, to: FileBuffer, len: u32) {
        let bytes = self.bytes(from, len).to_vec();
        self.bytes(to, len).copy_from_slice(&bytes);
    }
    fn zero(&mut self, at: FileBuffer, len: u32) {
        self.bytes(at, len).fill(0);
    }
    fn checksum(&mut self, so_far: u32, at: FileBuffer, len: u32) -> u32 {
        crc(so_far, self.bytes(at, len))
    }
}

/// A drive with what is durable.
struct Drive {
    now: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<(usize, usize)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    reads: u64,
    writes: u64,
    flushes: u64,
    replaced: u64,
    marked_out: u64,
    unsettled: u64,
    lease_over: u64,
    deadlines: u64,
    unwritable: u64,
    unreadable: u64,
    commits: u64,
    own_flushes: u64,
    short: u64,
    power_cuts: u64,
    damaged: u64,
    corrupt: u64,
    beginnings: u64,
    beside: u64,
}

struct Issued {
    is_write: bool,
    offset: u64,
    expected: Vec<u8>,
    /// At a flush: the bytes of the file then.
    model: Vec<u8>,
    /// Of a read or flush: bytes that a write which has failed may have changed.
    doubt: Vec<bool>,
}

/// The bytes of the file, and those of them that are in doubt.
type WrittenBytes = (Vec<u8>, Vec<bool>);

struct World {
    random: SplitMix64,
    now: u64,
    lease: u64,
    renews: bool,
    fails: u32,
    copies: usize,
    file: FileIo,
    memory: Memory,
    drives: Vec<Drive>,
    effects: Vec<FileEffect>,
    issued: BTreeMap<FileOpId, Issued>,
    model: Vec<u8>,
    /// Bytes that a write which has failed may have changed.
    unknown: Vec<bool>,
    /// The end of acknowledged writes.
    end: u64,
    /// As the file's owner has it.
    map: BTreeMap<u64, BlockRecord>,
    size: u64,
    next_block: [u64; NAMESPACES as usize],
    /// Bytes of what was granted in each place.
    lengths: BTreeMap<(NamespaceId, u64), u64>,
    /// What was written when the flush of a beginning that is under way took its blocks.
    beginning: Option<(FileOpId, WrittenBytes)>,
    /// Places of blocks of which a write has failed.
    failed: BTreeSet<(NamespaceId, u64)>,
    counter: u64,
    /// Bytes that media have damaged, and that were not written since: by drive and place, the byte of the file.
    damaged: BTreeMap<(u64, usize), u64>,
    damages: bool,
    totals: Totals,
}

fn sectors() -> BTreeMap<NamespaceId, SectorSize> {
    BTreeMap::from([(NamespaceId(0), SectorSize::S512), (NamespaceId(2), SectorSize::S512)])
}

fn setup(size: u64, lease: u64) -> FileSetup {
    FileSetup { inode: INODE, block: BLOCK, size, sectors: sectors(), crc, lease: Nanos(lease) }
}

impl World {
    fn new(seed: u64, mutant: Option<Mutant>) -> World {
        let mut random = SplitMix64::new(seed);
        let garbage =
            |n: u64| -> Vec<u8> { (0..DRIVE * u64::from(BLOCK)).map(|i| (i / 512 + n * 31) as u8 | 1).collect() };
        let drives =
            (0..NAMESPACES).map(|n| Drive { now: garbage(n), durable: garbage(n), pending: Vec::new() }).collect();
        let (renews, fails) = (random.below(4) > 0, [0, 10_000, 60_000][random.below(3) as usize]);
        let copies = 1 + random.below(3) as usize;
        let mut file = FileIo::new(setup(0, 200));
        file.planted = mutant.into();
        // In some runs a commit has room for few blocks.
        file.publish_keys = [84, 14, 7][random.below(3) as usize];
        let length = (BLOCKS * u64::from(BLOCK)) as usize;
        World {
            random,
            now: 0,
            lease: 200,
            renews,
            fails,
            copies,
            file,
            memory: Memory::default(),
            drives,
            effects: Vec::new(),
            issued: BTreeMap::new(),
            model: alloc::vec![0; length],
            unknown: alloc::vec![false; length],
            end: 0,
            map: BTreeMap::new(),
            size: 0,
            next_block: [0; NAMESPACES as usize],
            lengths: BTreeMap::new(),
            beginning: None,
            failed: BTreeSet::new(),
            counter: 0,
            damaged: BTreeMap::new(),
            damages: seed % 4 == 3,
            totals: Totals::default(),
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.below(n as u32).into()
    }

    fn run(mut self) -> Result<Totals, String> {
        for _ in 0..250 {
            self.now += 1;
            if self.renews && self.now % 50 == 0 {
                self.lease = self.now + 200;
                self.apply(FileEvent::Lease(Nanos(self.lease)))?;
            }
            if self.damages && self.now % 8 == 0 {
                self.damage();
            }
            match self.below(10) {
                // What a drive without power has lost is no damage.
                0 if self.below(40) == 0 && !self.damages => self.power_cut()?,
                0..3 if self.issued.len() < 5 => self.issue()?,
                9 => self.apply(FileEvent::Tick)?,
                _ => self.carry_out()?,
            }
        }
        self.drain()?;
        self.lease = u64::MAX;
        self.fails = 0;
        self.apply(FileEvent::Lease(Nanos(u64::MAX)))?;
        let flushed = self.flush(true, u64::MAX);
        self.apply(flushed)?;
        self.drain()?;
        self.read_as_another()?;
        Ok(self.totals)
    }

    /// A drive is without power for a moment: some of what it was not told to flush is gone, and it is connected to again.
    fn power_cut(&mut self) -> Result<(), String> {
        let number = self.below(NAMESPACES);
        let drive = &mut self.drives[number as usize];
        for (from, to) in drive.pending.drain(..) {
            let sectors = (from..to).step_by(4096).map(|at| at..(at + 4096).min(to));
            for sector in sectors.filter(|_| self.random.below(2) == 0) {
                drive.now[sector.clone()].copy_from_slice(&drive.durable[sector]);
            }
        }
        drive.durable.clone_from(&drive.now);
        self.totals.power_cuts += 1;
        self.apply(FileEvent::Reconnected(NamespaceId(number)))
    }

    /// A medium changes a byte of a published block. Not of one that is being written, nor of a unit that was compared already: that is not found.
    fn damage(&mut self) {
        let is_compared =
            |block: u64, unit: u32| self.file.compared.get(&block).is_some_and(|bits| bits & 1 << unit != 0);
        let mut found = Vec::new();
        for (block, record) in self.map.iter().filter(|(block, _)| !self.file.local.contains_key(block)) {
            for copy in record.copies.iter().filter(|_| !record.is_unsettled) {
                let units = 0..copy.length.get().div_ceil(u64::from(CHECKSUM_BYTES)) as u32;
                found.extend(units.filter(|unit| !is_compared(*block, *unit)).map(|unit| (*block, *copy, unit)));
            }
        }
        if found.is_empty() {
            return;
        }
        let (block, copy, unit) = found[self.random.below(found.len() as u32) as usize];
        let first = u64::from(unit * CHECKSUM_BYTES);
        let at = first + self.below((copy.length.get() - first).min(CHECKSUM_BYTES.into()));
        let place = (copy.namespace.0, (copy.offset.get() + at) as usize);
        if self.damaged.insert(place, block * u64::from(BLOCK) + at).is_none() {
            let drive = &mut self.drives[place.0 as usize];
            drive.now[place.1] ^= 0x55;
            drive.durable[place.1] ^= 0x55;
            self.totals.damaged += 1;
        }
    }

    /// Whether a medium has damaged some of the bytes at a place.
    fn is_damaged(&self, extent: &Extent) -> bool {
        let range = range(extent);
        self.damaged.range((extent.namespace.0, range.start)..(extent.namespace.0, range.end)).next().is_some()
    }

    fn drain(&mut self) -> Result<(), String> {
        for _ in 0..100_000 {
            if self.effects.is_empty() && self.file.pending() == 0 {
                return if self.memory.own.is_empty() { Ok(()) } else { Err("memory is not given back".into()) };
            }
            self.now += 1;
            match self.effects.is_empty() {
                true => self.apply(FileEvent::Tick)?,
                false => self.carry_out()?,
            }
            if self.effects.is_empty() && self.file.pending() > 0 && self.now > 1_000_000 {
                break;
            }
        }
        Err(format!("{} operations are never answered", self.file.pending()))
    }

    fn issue(&mut self) -> Result<(), String> {
        let far = BLOCKS * u64::from(BLOCK);
        let len = match self.below(6) {
            0 => 1 + self.below(150_000),
            1 | 5 => 4096 * (1 + self.below(20)),
            2 => u64::from(BLOCK),
            _ => 1 + self.below(9_000),
        };
        let offset = match self.below(4) {
            0 => self.below(BLOCKS) * u64::from(BLOCK),
            1 => self.end.min(far - 1),
            2 => self.below(far) / 4096 * 4096,
            _ => self.below(far),
        };
        let len = len.min(far - offset);
        let deadline = if self.below(60) == 0 { self.now + self.below(30) } else { self.now + 100_000 };
        let id = FileOpId(self.counter + 1);
        let event = match self.below(10) {
            0..5 => {
                self.counter += 1;
                let fill = (self.counter * 7) as u8 | 1;
                let data: Vec<u8> = (0..len).map(|i| fill.wrapping_add((i / 64) as u8)).collect();
                let range = offset as usize..(offset + len) as usize;
                self.model[range.clone()].copy_from_slice(&data);
                self.unknown[range].fill(false);
                self.memory.callers.insert(id, data.clone());
                self.issued.insert(
                    id,
                    Issued { is_write: true, offset, expected: data, model: Vec::new(), doubt: Vec::new() },
                );
                match self.below(4) {
                    0 => FileEvent::WriteLast(id, offset, len as u32, Nanos(deadline)),
                    _ => FileEvent::Write(id, offset, len as u32, Nanos(deadline)),
                }
            }
            5..9 => {
                self.counter += 1;
                let will = len.min(self.file.size().saturating_sub(offset));
                let expected = self.model[offset as usize..(offset + will) as usize].to_vec();
                self.memory.callers.insert(id, alloc::vec![0xdd; len as usize]);
                let doubt = self.unknown[offset as usize..(offset + will) as usize].to_vec();
                self.issued.insert(id, Issued { is_write: false, offset, expected, model: Vec::new(), doubt });
                FileEvent::Read(id, offset, len as u32, Nanos(deadline))
            }
            _ if self.below(2) == 0 => {
                self.counter += 1;
                let id = FileOpId(self.counter);
                let issued =
                    Issued { is_write: false, offset: 0, expected: Vec::new(), model: Vec::new(), doubt: Vec::new() };
                self.issued.insert(id, issued);
                FileEvent::FlushBeginning(id, Nanos(deadline))
            }
            _ => {
                let cut = self.below(2) == 0;
                self.flush(cut, deadline)
            }
        };
        self.apply(event)
    }

    fn flush(&mut self, cut: bool, deadline: u64) -> FileEvent {
        self.counter += 1;
        let id = FileOpId(self.counter);
        let model = self.model.clone();
        let doubt = self.unknown.clone();
        self.issued.insert(id, Issued { is_write: false, offset: 0, expected: Vec::new(), model, doubt });
        FileEvent::Flush(id, cut, Nanos(deadline))
    }

    fn apply(&mut self, event: FileEvent) -> Result<(), String> {
        let mut effects = Vec::new();
        self.file.apply(Nanos(self.now), event, &mut self.memory, &mut effects);
        self.file.check();
        let begun =
            self.file.flushes.front().filter(|flush| flush.is_beginning && !flush.is_waiting()).map(|flush| flush.op);
        if self.beginning.as_ref().map(|(op, _)| *op) != begun {
            self.beginning = begun.map(|op| (op, self.written_so_far()));
        }
        let writes = self.file.pieces.values().filter(|piece| piece.stage == PieceStage::Write);
        let blocks: Vec<u64> = writes.map(|piece| piece.piece.block).collect();
        self.totals.beside += (blocks.len() - BTreeSet::from_iter(blocks.iter()).len()) as u64;
        for effect in effects {
            let is_sent = matches!(effect, FileEffect::Read(..) | FileEffect::Write(..) | FileEffect::FlushDrive(..));
            if is_sent && self.now >= self.file.setup.lease.get() {
                return Err(format!("{effect:?} is sent after the lease"));
            }
            match effect {
                FileEffect::Answer(id, result) => self.answer(id, result)?,
                FileEffect::Abort(ticket) => self.abort(ticket)?,
                FileEffect::Write(ticket, extent, from) => {
                    self.verify_write(&extent)?;
                    self.effects.push(FileEffect::Write(ticket, extent, from));
                }
                effect => self.effects.push(effect),
            }
        }
        Ok(())
    }

    /// A command that is aborted may have been carried out, or not, or in part.
    fn abort(&mut self, ticket: DriveTicket) -> Result<(), String> {
        let is = |effect: &FileEffect| match effect {
            FileEffect::Read(t, ..) | FileEffect::Write(t, ..) | FileEffect::FlushDrive(t, _) => *t == ticket,
            _ => false,
        };
        let Some(at) = self.effects.iter().position(is) else { return Ok(()) };
        if self.below(3) == 0 {
            return Ok(());
        }
        match self.effects.swap_remove(at) {
            FileEffect::Write(_, extent, from) if self.below(2) == 0 => self.write(&extent, from),
            _ => {}
        }
        // Answered later: not while the machine says so.
        self.effects.push(FileEffect::Read(ticket, Extent::default(), FileBuffer::Own(0, 0)));
        Ok(())
    }

    fn carry_out(&mut self) -> Result<(), String> {
        if self.effects.is_empty() {
            return Ok(());
        }
        let at = self.random.below(self.effects.len() as u32) as usize;
        let fails = self.random.per_million(self.fails);
        let done = if fails { Err(DriveFailure) } else { Ok(()) };
        let event = match self.effects.swap_remove(at) {
            FileEffect::Fetch(chunk) => {
                let first = u64::from(chunk) * u64::from(blocks_per_chunk(BLOCK));
                let blocks = self
                    .map
                    .iter()
                    .map(|(block, record)| BlockRecord { index: (block - first) as u32, ..record.clone() });
                FileEvent::Chunk(chunk, Ok((MapChunk { blocks: blocks.collect() }, Epoch(1))))
            }
            FileEffect::Grant(block) | FileEffect::GrantShort(block) => FileEvent::Granted(block, self.grant(block)),
            FileEffect::Unsettle(block) => {
                self.map.get_mut(&block).ok_or("a block is marked that is not published")?.is_unsettled = true;
                self.totals.unsettled += 1;
                FileEvent::Unsettled(block, Ok(()))
            }
            FileEffect::MarkOut(block, copies) => {
                self.map.get_mut(&block).ok_or("copies are marked out of a block that is not published")?.copies =
                    copies;
                self.totals.marked_out += 1;
                FileEvent::MarkedOut(block, Ok(()))
            }
            FileEffect::Publish(size, blocks) => {
                self.publish(size, blocks)?;
                FileEvent::Published(Ok(()))
            }
            // One that was aborted.
            FileEffect::Read(ticket, extent, _) if extent.length.get() == 0 => {
                FileEvent::Done(ticket, Err(DriveFailure))
            }
            FileEffect::Read(ticket, extent, to) => {
                let bytes = self.drive(&extent)?.now[range(&extent)].to_vec();
                self.memory.bytes(to, bytes.len() as u32).copy_from_slice(&bytes);
                FileEvent::Done(ticket, done)
            }
            FileEffect::Write(ticket, extent, from) => {
                if fails {
                    let half = Extent { length: (extent.length.get() / 2).into(), ..extent };
                    self.write(&half, from);
                    self.failed.insert((extent.namespace, extent.offset.get() / u64::from(BLOCK)));
                } else {
                    self.drive(&extent)?;
                    self.write(&extent, from);
                }
                FileEvent::Done(ticket, done)
            }
            FileEffect::FlushDrive(ticket, namespace) => {
                let drive = &mut self.drives[namespace.0 as usize];
                for (from, to) in drive.pending.drain(..).collect::<Vec<_>>() {
                    let bytes = drive.now[from..to].to_vec();
                    drive.durable[from..to].copy_from_slice(&bytes);
                }
                FileEvent::Done(ticket, Ok(()))
            }
            FileEffect::Abort(_) | FileEffect::Answer(..) => return Ok(()),
        };
        self.apply(event)
    }

    /// The drive of an extent, which has to be whole sectors of it.
    fn drive(&mut self, extent: &Extent) -> Result<&mut Drive, String> {
        let sector = sectors().get(&extent.namespace).map_or(4096, |sector| u64::from(sector.bytes()));
        if extent.offset.get() % sector != 0 || extent.length.get() % sector != 0 {
            return Err(format!("{extent} is not whole sectors"));
        }
        Ok(&mut self.drives[extent.namespace.0 as usize])
    }

    fn write(&mut self, extent: &Extent, from: FileBuffer) {
        let bytes = self.memory.bytes(from, extent.length.get() as u32).to_vec();
        let drive = &mut self.drives[extent.namespace.0 as usize];
        drive.now[range(extent)].copy_from_slice(&bytes);
        self.damaged.retain(|(drive, at), _| *drive != extent.namespace.0 || !range(extent).contains(at));
        drive.pending.push((range(extent).start, range(extent).end));
    }

    /// A block, now and then no longer than it has to be.
    fn grant(&mut self, block: u64) -> Result<NewBlock, FileError> {
        let bytes = match (self.below(3), self.file.needs(block)) {
            (0, Some(needs)) => needs.least,
            (1, Some(needs)) => needs.good,
            _ => BLOCK,
        };
        let first = self.below(NAMESPACES) as usize;
        let mut copies = Vec::new();
        for i in 0..self.copies {
            let n = (first + i) % NAMESPACES as usize;
            if self.next_block[n] == DRIVE {
                return Err(FileError::NoSpace);
            }
            let offset = self.next_block[n] * u64::from(BLOCK);
            copies.push(Extent {
                namespace: NamespaceId(n as u64),
                offset: offset.into(),
                length: u64::from(bytes).into(),
            });
            self.lengths.insert((NamespaceId(n as u64), self.next_block[n]), bytes.into());
            self.next_block[n] += 1;
        }
        self.totals.short += u64::from(bytes < BLOCK);
        self.counter += 1;
        Ok(NewBlock { copies, generation: Generation(self.counter) })
    }

    /// Published bytes are not written over while readers trust their checksums.
    fn verify_write(&mut self, extent: &Extent) -> Result<(), String> {
        let place = |extent: &Extent| (extent.namespace, extent.offset.get() / u64::from(BLOCK));
        let is_behind = |copy: &Extent| place(copy) == place(extent) && extent.end() > copy.end();
        let granted = self.lengths.get(&place(extent)).copied().unwrap_or(0);
        let is_in = extent.offset.get() % u64::from(BLOCK) + extent.length.get() <= granted;
        if !is_in || self.map.values().any(|record| record.copies.iter().any(is_behind)) {
            return Err(format!("{extent} is behind the end of a block"));
        }
        let over = self.map.iter().find(|(_, record)| record.copies.iter().any(|copy| copy.overlaps(extent)));
        match over {
            Some((block, record)) if !record.is_unsettled => {
                Err(format!("block {block} is written over and is not marked"))
            }
            _ => Ok(()),
        }
    }

    fn publish(&mut self, size: u64, blocks: Vec<(u64, BlockRecord)>) -> Result<(), String> {
        // Of one that the machine makes by itself it is not known which writes came before it.
        let is_own = self.file.flushes.front().is_some_and(Flush::is_own);
        self.totals.own_flushes += u64::from(is_own);
        let is_beginning = self.file.flushes.front().is_some_and(|flush| flush.is_beginning);
        self.totals.beginnings += u64::from(is_beginning);
        let flush = self.issued.values().find(|issued| !issued.model.is_empty() && !is_own && !is_beginning);
        let flush = flush.map(|issued| (issued.model.clone(), issued.doubt.clone()));
        let flush = if is_beginning { self.beginning.clone().map(|(_, bytes)| bytes) } else { flush };
        let before = core::mem::replace(&mut self.size, size);
        if !(before..=self.end.max(before)).contains(&size) {
            return Err(format!("the size is published as {size} after {before}, and {} was written", self.end));
        }
        self.totals.commits += 1;
        let sent: BTreeSet<u64> = blocks.iter().map(|(block, _)| *block).collect();
        for (block, record) in blocks {
            let old = self.map.insert(block, record.clone());
            self.totals.replaced += u64::from(old.is_some_and(|old| old.copies[0].offset != record.copies[0].offset));
        }
        // What others read from now on, also after a power cut: blocks that are still to come are what they were.
        let map = self.map.clone();
        let to_come: BTreeSet<u64> = self.file.flushes.front().into_iter().flat_map(|flush| flush.blocks()).collect();
        for (block, record) in map.iter().filter(|(_, record)| !record.is_unsettled) {
            // What was written behind the beginning is still to come as well, and may be in longer blocks.
            let is_new = sent.contains(block) || !(is_beginning || to_come.contains(block));
            self.verify_block(*block, record, flush.as_ref().filter(|_| is_new))?;
        }
        flush.map_or(Ok(()), |(model, doubt)| self.verify_holes(before..size, &model, &doubt))
    }

    /// The bytes of the file; those of writes that are under way are in doubt.
    fn written_so_far(&self) -> WrittenBytes {
        let mut doubt = self.unknown.clone();
        for write in self.issued.values().filter(|issued| issued.is_write) {
            let start = write.offset as usize;
            doubt[start..start + write.expected.len()].fill(true);
        }
        (self.model.clone(), doubt)
    }

    /// Bytes that have come into the file are in blocks, or zeroes.
    fn verify_holes(&self, range: core::ops::Range<u64>, model: &[u8], doubt: &[bool]) -> Result<(), String> {
        let whole = u64::from(BLOCK);
        for block in range.start / whole..range.end.div_ceil(whole) {
            let held = self.map.get(&block).map_or(0, |record| record.copies[0].length.get());
            let from = range.start.max(block * whole + held) as usize;
            let to = range.end.min((block + 1) * whole) as usize;
            if let Some(at) = (from..to.max(from)).find(|at| model[*at] != 0 && !doubt[*at]) {
                return Err(format!("the size is published as {}, and byte {at} is in no block", range.end));
            }
        }
        Ok(())
    }

    fn verify_block(
        &self,
        block: u64,
        record: &BlockRecord,
        model: Option<&(Vec<u8>, Vec<bool>)>,
    ) -> Result<(), String> {
        let seed = BlockSeed { inode: INODE, block, generation: record.generation };
        for copy in &record.copies {
            let bytes = &self.drives[copy.namespace.0 as usize].durable[range(copy)];
            let sums = seed.checksums(bytes, crc);
            // What a medium has damaged is to have other checksums; what has the right ones is to be right.
            let is_damaged = |unit: usize| {
                let first = (unit * CHECKSUM_BYTES as usize) as u64;
                let offset = copy.offset.get() + first;
                let length = u64::from(CHECKSUM_BYTES).min(copy.length.get() - first);
                let is_other = sums[unit] != record.checksums[unit];
                is_other && self.is_damaged(&Extent { offset: offset.into(), length: length.into(), ..*copy })
            };
            let excused: Vec<bool> = (0..sums.len()).map(is_damaged).collect();
            let is_right = |unit: usize| record.checksums.get(unit) == sums.get(unit) || excused[unit];
            if record.checksums.len() != sums.len() || !(0..sums.len()).all(is_right) {
                return Err(format!("block {block} does not have its checksums at {copy}"));
            }
            let Some((model, doubt)) = model else { continue };
            let first = (block * u64::from(BLOCK)) as usize;
            let is_excused = |i: usize| doubt[first + i] || excused[i / CHECKSUM_BYTES as usize];
            let wrong = (0..bytes.len()).find(|i| bytes[*i] != model[first + i] && !is_excused(*i));
            if let Some(wrong) = wrong {
                return Err(format!("byte {wrong} of block {block} is published as {:#x} at {copy}", bytes[wrong]));
            }
        }
        Ok(())
    }

    fn answer(&mut self, id: FileOpId, result: Result<u32, FileError>) -> Result<(), String> {
        // A write that has failed in one block may go on in another one, and is answered later.
        let has_failed = |id: &FileOpId| self.file.ops.get(id).is_some_and(|op| op.error.is_some());
        let failed = self.issued.iter().filter(|(id, issued)| issued.is_write && has_failed(id));
        let failed: Vec<_> = failed.map(|(_, w)| w.offset as usize..w.offset as usize + w.expected.len()).collect();
        failed.into_iter().for_each(|range| self.doubt(range));
        let issued = self.issued.remove(&id).ok_or_else(|| format!("{id:?} is answered twice"))?;
        let memory = self.memory.callers.remove(&id).unwrap_or_default();
        match result {
            Err(FileError::LeaseOver) => self.totals.lease_over += 1,
            Err(FileError::Deadline) => self.totals.deadlines += 1,
            Err(FileError::Unwritable(_)) => self.totals.unwritable += 1,
            Err(FileError::Unreadable(_)) => self.totals.unreadable += 1,
            Err(FileError::NoSpace) => {}
            Err(FileError::Corrupt(_)) if self.damages => self.totals.corrupt += 1,
            Err(other) => return Err(format!("an operation fails by {other:?}")),
            Ok(_) if self.now >= self.lease && !issued.expected.is_empty() => {
                return Err(format!("{id:?} is done after the lease has ended"));
            }
            Ok(_) => {}
        }
        let range = issued.offset as usize..issued.offset as usize + issued.expected.len();
        match (issued.is_write, result) {
            (true, Ok(_)) => {
                self.totals.writes += 1;
                self.end = self.end.max(range.end as u64);
                self.verify_copies(issued.offset, issued.expected.len() as u64)?;
            }
            (true, Err(_)) => self.doubt(range),
            (false, Ok(_)) if !issued.model.is_empty() => {
                self.totals.flushes += 1;
                if self.size < self.end {
                    return Err(format!("a flush is done, and {} of {} bytes are published", self.size, self.end));
                }
            }
            (false, Ok(len)) => {
                self.totals.reads += 1;
                if len as usize != issued.expected.len() {
                    return Err(format!("{len} bytes are read instead of {}", issued.expected.len()));
                }
                // A read of a part of a unit is not compared.
                let damaged: BTreeSet<u64> = self.damaged.values().copied().collect();
                let is_excused = |i: usize| issued.doubt[i] || damaged.contains(&(issued.offset + i as u64));
                let wrong = (0..issued.expected.len()).find(|i| memory[*i] != issued.expected[*i] && !is_excused(*i));
                if let Some(wrong) = wrong {
                    return Err(format!("byte {} is read as {:#x}", range.start + wrong, memory[wrong]));
                }
            }
            (false, Err(_)) => {}
        }
        Ok(())
    }

    /// A write of these bytes has failed.
    fn doubt(&mut self, range: core::ops::Range<usize>) {
        self.unknown[range.clone()].fill(true);
        for issued in self.issued.values_mut().filter(|issued| !issued.is_write) {
            let start = issued.offset as usize;
            let end = start + issued.doubt.len();
            let (from, to) = (range.start.clamp(start, end), range.end.clamp(start, end));
            issued.doubt[from - start..to - start].fill(true);
        }
    }

    /// No reader is sent to a copy that lacks an acknowledged write.
    fn verify_copies(&self, offset: u64, len: u64) -> Result<(), String> {
        // What has failed is then another write of the block, of a file that takes no more of them.
        if matches!(self.file.poison(), Some(FileError::Unwritable(_))) {
            return Ok(());
        }
        for piece in pieces(offset, len, BLOCK) {
            let others = self.issued.values().filter(|other| other.is_write);
            let touches = |other: &&Issued| {
                pieces(other.offset, other.expected.len() as u64, BLOCK).any(|p| p.block == piece.block)
            };
            let Some(record) = self.map.get(&piece.block).filter(|_| others.clone().find(touches).is_none()) else {
                continue;
            };
            let place = |copy: &Extent| (copy.namespace, copy.offset.get() / u64::from(BLOCK));
            if let Some(copy) = record.copies.iter().find(|copy| self.failed.contains(&place(copy))) {
                return Err(format!("a write of block {} is acknowledged, and {copy} lacks it", piece.block));
            }
        }
        Ok(())
    }

    /// Another client, which knows nothing but the map and the size.
    fn read_as_another(&mut self) -> Result<(), String> {
        if self.map.values().any(|record| record.is_unsettled) || self.size == 0 {
            return Ok(());
        }
        // What was acknowledged and could not be published is not there.
        let is_clean = self.file.poison().is_none();
        self.file = FileIo::new(setup(self.size, u64::MAX));
        let id = FileOpId(u64::MAX);
        let expected: Vec<u8> = self.model[..self.size as usize].to_vec();
        let is_clean = is_clean && self.totals.unwritable + self.totals.deadlines + self.totals.lease_over == 0;
        if !is_clean {
            self.unknown.fill(true);
        }
        self.memory.callers.insert(id, alloc::vec![0xdd; expected.len()]);
        let len = expected.len() as u32;
        let doubt = self.unknown[..expected.len()].to_vec();
        self.issued.insert(id, Issued { is_write: false, offset: 0, expected, model: Vec::new(), doubt });
        self.apply(FileEvent::Read(id, 0, len, Nanos(u64::MAX)))?;
        self.drain()
    }
}

fn range(extent: &Extent) -> core::ops::Range<usize> {
    extent.offset.get() as usize..extent.end().unwrap().get() as usize
}

fn run(seed: u64, mutant: Option<Mutant>) -> Result<Totals, String> {
    let run = std::panic::catch_unwind(|| World::new(seed, mutant).run());
    run.unwrap_or_else(|_| Err("a panic".into()))
}

#[test]
fn a_file_is_as_an_array_of_bytes() {
    let mut all = [0; 18];
    for seed in 0..300 {
        let t = World::new(seed, None).run().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        let counts = [
            t.reads,
            t.writes,
            t.flushes,
            t.replaced,
            t.marked_out,
            t.unsettled,
            t.lease_over,
            t.deadlines,
            t.unwritable,
            t.unreadable,
            t.commits.saturating_sub(t.flushes),
            t.power_cuts,
            t.own_flushes,
            t.short,
            t.damaged,
            t.corrupt,
            t.beginnings,
            t.beside,
        ];
        all.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    std::println!(
        "reads, writes, flushes, replaced, marked out, unsettled, lease over, deadlines, unwritable, unreadable, more commits than flushes, power cuts, flushes of its own, short blocks, damaged bytes, corrupt, flushes of the beginning, events with writes beside others of their block: {all:?}"
    );
    assert!(all.iter().all(|count| *count > 20), "everything happens: {all:?}");
}

#[test]
fn every_planted_fault_is_found() {
    for mutant in [
        Mutant::AcknowledgeBeforeMark,
        Mutant::WriteBeforeUnsettle,
        Mutant::LeaseCheckedBeforeOnly,
        Mutant::WaitsBeyondLease,
        Mutant::NoFlushBeforePublish,
        Mutant::GapsNotFilled,
        Mutant::SizeBeforeBlocks,
        Mutant::BeginningUnderWriter,
        Mutant::OverlappingWrites,
        Mutant::FlushVouchesForAll,
        Mutant::UnitNotCompared,
    ] {
        let found = (0..2_000).find_map(|seed| run(seed, Some(mutant)).err().map(|why| (seed, why)));
        std::println!("{mutant:?}: {found:?}");
        assert!(found.is_some(), "{mutant:?} is not found in 2,000 runs");
    }
}

/// A file with two copies of two blocks, published.
fn with_two_copies() -> World {
    let mut world = World::new(1, None);
    (world.copies, world.fails, world.lease) = (2, 0, u64::MAX);
    world.apply(FileEvent::Lease(Nanos(u64::MAX))).unwrap();
    let (id, data) = (FileOpId(1), (0..200_000u32).map(|i| (i / 7) as u8).collect::<Vec<u8>>());
    world.model[..data.len()].copy_from_slice(&data);
    world.memory.callers.insert(id, data.clone());
    let len = data.len() as u32;
    world.issued.insert(id, Issued { is_write: true, offset: 0, expected: data, model: Vec::new(), doubt: Vec::new() });
    world.counter = 1;
    world.apply(FileEvent::Write(id, 0, len, Nanos(u64::MAX))).unwrap();
    world.drain().unwrap();
    let flush = world.flush(true, u64::MAX);
    world.apply(flush).unwrap();
    world.drain().unwrap();
    world
}

#[test]
fn a_copy_with_other_bytes_is_not_believed() {
    let mut world = with_two_copies();
    assert_eq!(
        world.map[&1].copies[0].length.get(),
        (200_000 - u64::from(BLOCK)).div_ceil(4096) * 4096,
        "the tail is cut"
    );
    let copies = world.map[&1].copies.clone();
    let spoil =
        |world: &mut World, copy: &Extent| world.drives[copy.namespace.0 as usize].now[range(copy).start + 5] ^= 1;
    spoil(&mut world, &copies[0]);
    world.read_as_another().unwrap();
    spoil(&mut world, &copies[1]);
    let why = world.read_as_another().unwrap_err();
    assert!(why.contains("Corrupt(1)"), "{why}");
}

/// The last unit of checksums ends behind the file's last byte, at whole 4 KiB.
#[test]
fn the_end_of_a_file_is_compared_with_its_checksum() {
    let world = with_two_copies();
    let copies = world.map[&1].copies.clone();
    let last = 200_000 - u64::from(BLOCK);
    for at in [last / u64::from(CHECKSUM_BYTES) * u64::from(CHECKSUM_BYTES), last - 1, copies[0].length.get() - 1] {
        let mut world = with_two_copies();
        for (copy, wanted) in copies.iter().zip([Ok(()), Err("Corrupt(1)")]) {
            world.drives[copy.namespace.0 as usize].now[range(copy).start + at as usize] ^= 1;
            let read = world.read_as_another();
            assert_eq!(read.as_ref().is_err_and(|why| why.contains("Corrupt(1)")), wanted.is_err(), "{at}: {read:?}");
            assert!(read.is_ok() || wanted.is_err(), "{at}: {read:?}");
        }
    }
}

/// A map that is out of date leads to another block's bytes: they are an error, also where they are the same bytes.
#[test]
fn an_older_map_reads_no_other_bytes() {
    let mut world = with_two_copies();
    for other in [InodeId(8), INODE] {
        let generation = Generation(if other == INODE { 99 } else { world.map[&0].generation.0 });
        let copies = world.map[&0].copies.clone();
        let bytes = world.drives[copies[0].namespace.0 as usize].now[range(&copies[0])].to_vec();
        let checksums = BlockSeed { inode: other, block: 0, generation }.checksums(&bytes, crc);
        let mut reader = World::new(1, None);
        (reader.drives, reader.map) = (core::mem::take(&mut world.drives), world.map.clone());
        reader.map.get_mut(&0).unwrap().checksums = checksums;
        (reader.size, reader.model, reader.fails) = (200_000, world.model.clone(), 0);
        let why = reader.read_as_another().unwrap_err();
        assert!(why.contains("Corrupt(0)"), "{why}");
        world.drives = reader.drives;
    }
}

/// Nothing says whether the bytes of a settled block without checksums are the file's: it is not read.
#[test]
fn a_settled_block_without_checksums_is_not_read() {
    let mut world = with_two_copies();
    let mut reader = World::new(1, None);
    (reader.drives, reader.map) = (core::mem::take(&mut world.drives), world.map.clone());
    reader.map.get_mut(&0).unwrap().checksums.clear();
    (reader.size, reader.model, reader.fails) = (200_000, world.model.clone(), 0);
    let why = reader.read_as_another().unwrap_err();
    assert!(why.contains("BadMap"), "{why}");
}

/// A write that waits for a block is over with the lease: when the block comes, nothing is sent.
#[test]
fn what_waits_ends_with_the_lease() {
    let mut world = World::new(1, None);
    let mut effects = Vec::new();
    world.memory.callers.insert(FileOpId(1), alloc::vec![1; 10]);
    let far = Nanos(u64::MAX);
    let mut apply = |now, event, effects: &mut Vec<FileEffect>| {
        world.file.apply(Nanos(now), event, &mut world.memory, effects);
        world.file.check();
    };
    apply(1, FileEvent::Write(FileOpId(1), 0, 10, far), &mut effects);
    apply(2, FileEvent::Chunk(0, Ok((MapChunk { blocks: Vec::new() }, Epoch(1)))), &mut effects);
    assert_eq!(effects, [FileEffect::Fetch(0), FileEffect::Grant(0)]);
    effects.clear();
    let lease = 200;
    apply(lease, FileEvent::Tick, &mut effects);
    assert_eq!(effects, [FileEffect::Answer(FileOpId(1), Err(FileError::LeaseOver))]);
    effects.clear();
    let extent = Extent { namespace: NamespaceId(0), offset: Bytes(0), length: Bytes(BLOCK.into()) };
    let copies = alloc::vec![extent];
    let block = NewBlock { generation: Generation(1), copies };
    apply(lease + 1, FileEvent::Granted(0, Ok(block)), &mut effects);
    assert_eq!(effects, []);
}

/// One piece has failed, and another one's drive says nothing: the deadline ends the operation all the same.
#[test]
fn a_failed_piece_does_not_take_the_deadline_away() {
    let mut world = with_two_copies();
    let (id, mut effects) = (FileOpId(77), Vec::new());
    world.memory.callers.insert(id, alloc::vec![0; 200_000]);
    world.file.apply(Nanos(10), FileEvent::Read(id, 0, 200_000, Nanos(50)), &mut world.memory, &mut effects);
    let tickets: Vec<DriveTicket> = effects
        .iter()
        .filter_map(|effect| if let FileEffect::Read(ticket, ..) = effect { Some(*ticket) } else { None })
        .collect();
    assert!(tickets.len() >= 2, "{effects:?}");
    // Both copies of the first piece fail.
    let mut first = tickets[0];
    for _ in 0..2 {
        effects.clear();
        world.file.apply(Nanos(20), FileEvent::Done(first, Err(DriveFailure)), &mut world.memory, &mut effects);
        if let Some(FileEffect::Read(again, ..)) = effects.first() {
            first = *again;
        }
    }
    effects.clear();
    world.file.apply(Nanos(60), FileEvent::Tick, &mut world.memory, &mut effects);
    assert!(effects.contains(&FileEffect::Abort(tickets[1])), "{effects:?}");
}

#[test]
fn what_cannot_be_is_refused() {
    let mut world = World::new(1, None);
    for (event, error) in [
        (FileEvent::Write(FileOpId(1), u64::MAX, 1, Nanos(9)), FileError::TooFar),
        (FileEvent::Write(FileOpId(1), 1 << 62, 1, Nanos(9)), FileError::TooFar),
    ] {
        let mut effects = Vec::new();
        world.memory.callers.insert(FileOpId(1), alloc::vec![0]);
        world.file.apply(Nanos(1), event, &mut world.memory, &mut effects);
        assert_eq!(effects, [FileEffect::Answer(FileOpId(1), Err(error))]);
    }
    let mut effects = Vec::new();
    world.file.apply(Nanos(1), FileEvent::Read(FileOpId(2), 5, 9, Nanos(9)), &mut world.memory, &mut effects);
    world.file.apply(Nanos(1), FileEvent::Flush(FileOpId(3), true, Nanos(9)), &mut world.memory, &mut effects);
    world.file.apply(Nanos(200), FileEvent::Write(FileOpId(4), 0, 9, Nanos(999)), &mut world.memory, &mut effects);
    let answers = [(2, Ok(0)), (3, Ok(0)), (4, Err(FileError::LeaseOver))];
    assert_eq!(
        effects,
        answers.map(|(id, result)| FileEffect::Answer(FileOpId(id), result)),
        "behind the end there is nothing"
    );
}

/// What a commit takes is bounded, however many blocks were written: blocks go in their order, and the size with them.
#[test]
fn a_large_flush_has_several_commits() {
    const WRITTEN: u64 = 100;
    let (mut memory, mut effects) = (Memory::default(), Vec::new());
    let mut file = FileIo::new(setup(0, u64::MAX));
    let far = Nanos(u64::MAX);
    for block in 0..WRITTEN {
        let (id, len) = (FileOpId(block), if block + 1 == WRITTEN { 5000 } else { BLOCK });
        memory.callers.insert(id, alloc::vec![7; len as usize]);
        file.apply(Nanos(1), FileEvent::Write(id, block * u64::from(BLOCK), len, far), &mut memory, &mut effects);
    }
    file.apply(Nanos(1), FileEvent::Flush(FileOpId(999), true, far), &mut memory, &mut effects);
    let (mut published, mut size, mut commits, mut answers) = (Vec::new(), 0, 0, 0);
    while let Some(effect) = effects.pop() {
        let event = match effect {
            FileEffect::Fetch(chunk) => FileEvent::Chunk(chunk, Ok((MapChunk::default(), Epoch(1)))),
            FileEffect::Grant(block) => {
                let offset = (block * u64::from(BLOCK)).into();
                let extent = Extent { namespace: NamespaceId(0), offset, length: u64::from(BLOCK).into() };
                FileEvent::Granted(block, Ok(NewBlock { copies: alloc::vec![extent], generation: Generation(block) }))
            }
            FileEffect::Read(ticket, ..) | FileEffect::Write(ticket, ..) | FileEffect::FlushDrive(ticket, _) => {
                FileEvent::Done(ticket, Ok(()))
            }
            FileEffect::Publish(now, blocks) => {
                assert!(!blocks.is_empty() && blocks.len() <= 45, "{} blocks", blocks.len());
                published.extend(blocks.into_iter().map(|(block, _)| block));
                assert!(now > size && now <= published.len() as u64 * u64::from(BLOCK), "{now}");
                (size, commits) = (now, commits + 1);
                FileEvent::Published(Ok(()))
            }
            FileEffect::Answer(id, result) => {
                assert!(result.is_ok() && (id != FileOpId(999) || published.len() as u64 == WRITTEN));
                answers += 1;
                continue;
            }
            other => panic!("{other:?}"),
        };
        file.apply(Nanos(1), event, &mut memory, &mut effects);
        file.check();
    }
    assert_eq!(published, (0..WRITTEN).collect::<Vec<_>>());
    assert_eq!((size, answers, file.published_size()), ((WRITTEN - 1) * u64::from(BLOCK) + 5000, WRITTEN + 1, size));
    assert!(commits >= 3);
    // The rest of the last block is the session's still.
    let rest = Extent {
        namespace: NamespaceId(0),
        offset: ((WRITTEN - 1) * u64::from(BLOCK) + 8192).into(),
        length: (u64::from(BLOCK) - 8192).into(),
    };
    assert_eq!((file.take_unused(), file.close()), (alloc::vec![rest], Vec::new()));
}

#[test]
fn blocks_and_grants_that_cannot_be_are_refused() {
    let (mut memory, mut effects, far) = (Memory::default(), Vec::new(), Nanos(u64::MAX));
    for block in [0, 4096, 96 << 10, 8 << 20] {
        let mut file = FileIo::new(FileSetup { block, ..setup(100, u64::MAX) });
        for event in [
            FileEvent::Read(FileOpId(1), 0, 9, far),
            FileEvent::Write(FileOpId(1), 0, 9, far),
            FileEvent::Flush(FileOpId(1), true, far),
        ] {
            effects.clear();
            file.apply(Nanos(1), event, &mut memory, &mut effects);
            assert_eq!(effects, [FileEffect::Answer(FileOpId(1), Err(FileError::BlockSize(block)))]);
        }
    }
    let extent =
        |offset: u64| Extent { namespace: NamespaceId(0), offset: offset.into(), length: u64::from(BLOCK).into() };
    for copies in [Vec::new(), alloc::vec![extent(0); 5], alloc::vec![extent(1)], alloc::vec![extent(u64::MAX - 4095)]]
    {
        let mut file = FileIo::new(setup(0, u64::MAX));
        memory.callers.insert(FileOpId(1), alloc::vec![1; 9]);
        effects.clear();
        file.apply(Nanos(1), FileEvent::Write(FileOpId(1), 0, 9, far), &mut memory, &mut effects);
        file.apply(Nanos(1), FileEvent::Chunk(0, Ok((MapChunk::default(), Epoch(1)))), &mut memory, &mut effects);
        effects.clear();
        let granted = FileEvent::Granted(0, Ok(NewBlock { copies, generation: Generation(1) }));
        file.apply(Nanos(1), granted, &mut memory, &mut effects);
        assert_eq!(effects, [FileEffect::Answer(FileOpId(1), Err(FileError::BadMap))]);
    }
}

/// A command is done behind the lease: what waits of the same read in another block is not sent.
#[test]
fn a_late_completion_ends_the_other_pieces() {
    let (mut world, mut effects) = (with_two_copies(), Vec::new());
    world.file = FileIo::new(setup(200_000, 100));
    world.memory.callers.insert(FileOpId(70), alloc::vec![0; 200_000]);
    world.memory.callers.insert(FileOpId(71), alloc::vec![1; 10]);
    let mut apply = |now, event| {
        effects.clear();
        world.file.apply(Nanos(now), event, &mut world.memory, &mut effects);
        world.file.check();
        effects.clone()
    };
    let far = Nanos(u64::MAX);
    // A write of the second block waits for its mark, and the read behind it.
    apply(1, FileEvent::Write(FileOpId(71), u64::from(BLOCK), 10, far));
    apply(1, FileEvent::Read(FileOpId(70), 0, 200_000, far));
    let blocks = world.map.iter().map(|(block, record)| BlockRecord { index: *block as u32, ..record.clone() });
    let sent = apply(2, FileEvent::Chunk(0, Ok((MapChunk { blocks: blocks.collect() }, Epoch(1)))));
    let reads = sent.iter().filter_map(|effect| match effect {
        FileEffect::Read(ticket, ..) => Some(*ticket),
        _ => None,
    });
    let reads: Vec<DriveTicket> = reads.collect();
    let mut after = Vec::new();
    for ticket in reads {
        after.extend(apply(100, FileEvent::Done(ticket, Ok(()))));
    }
    let is_over = |id: u64| FileEffect::Answer(FileOpId(id), Err(FileError::LeaseOver));
    assert!(after.contains(&is_over(70)) && after.contains(&is_over(71)), "{after:?}");
    assert!(!after.iter().any(|effect| matches!(effect, FileEffect::Read(..) | FileEffect::Write(..))), "{after:?}");
}
