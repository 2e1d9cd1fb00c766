//! What was written, published and read, of every file: and whether a read may give what it gave.

use crate::InodeId;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

/// Bytes that carry one stamp. Smaller than a sector: neighbours in a sector are told apart.
pub const UNIT: u64 = 256;

/// Bytes of a block.
pub const BLOCK: u64 = 64 << 10;

/// One write of one unit: which write of the whole run it was; 0 is what was never written, or was cut off.
pub type WriteNumber = u32;

/// A moment of a run: no two things happen at the same one.
pub type Moment = u64;

/// A file that was opened for writing, once: writes of one of them come in order, and those of the next one after them.
pub type Writer = u64;

#[derive(Clone, Copy, Debug)]
struct UnitWrite {
    number: WriteNumber,
    /// It is of a truncation: zeroes.
    is_zero: bool,
    writer: Writer,
    issued: Moment,
    /// The write was answered as done.
    is_done: bool,
    /// It was answered as failed, or its writer was lost: nobody can say what became of it.
    is_in_doubt: bool,
    /// A flush behind it has begun, and has ended well.
    offered: Option<Moment>,
    published: Option<Moment>,
}

#[derive(Clone, Copy, Debug)]
struct Size {
    writer: Writer,
    bytes: u64,
    offered: Moment,
    published: Option<Moment>,
}

#[derive(Clone, Debug, Default)]
struct FileHistory {
    units: Vec<Vec<UnitWrite>>,
    sizes: Vec<Size>,
}

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct History {
    files: BTreeMap<InodeId, FileHistory>,
    last: WriteNumber,
    /// Writers of before publish nothing any more: the metadata may have forgotten them, and they do not know.
    forgotten: Writer,
    /// Units that were read and are right.
    pub units_read: u64,
}

/// A read that was made: of an open file, by whom, and when.
#[derive(Clone, Copy, Debug)]
pub struct ReadOf {
    pub inode: InodeId,
    /// As whom the file was opened, if it may be written.
    pub writer: Option<Writer>,
    /// When the file's opening was sent.
    pub opened: Moment,
    /// When the read was begun and when it ended.
    pub begun: Moment,
    pub ended: Moment,
    pub offset: u64,
}

/// The 256 bytes of a unit: each 16 of them say file, write and place.
fn stamp(inode: InodeId, number: WriteNumber, unit: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    if number != 0 {
        bytes[..8].copy_from_slice(&inode.get().to_le_bytes());
        bytes[8..12].copy_from_slice(&number.to_le_bytes());
        bytes[12..].copy_from_slice(&(unit as u32).to_le_bytes());
    }
    bytes
}

impl History {
    fn file(&mut self, inode: InodeId) -> &mut FileHistory {
        self.files.entry(inode).or_insert_with(|| FileHistory {
            units: Vec::new(),
            sizes: alloc::vec![Size { writer: 0, bytes: 0, offered: 0, published: Some(0) }],
        })
    }

    /// A write is begun: its bytes. `offset` and `len` are of whole units.
    pub fn write(
        &mut self,
        inode: InodeId,
        writer: Writer,
        offset: u64,
        len: u64,
        now: Moment,
    ) -> (WriteNumber, Vec<u8>) {
        self.last += 1;
        let number = self.last;
        self.put(inode, writer, offset / UNIT..(offset + len) / UNIT, (number, false), now);
        let units = offset / UNIT..(offset + len) / UNIT;
        let bytes = units.flat_map(|unit| stamp(inode, number, unit).repeat(UNIT as usize / 16)).collect();
        (number, bytes)
    }

    fn put(
        &mut self,
        inode: InodeId,
        writer: Writer,
        units: Range<u64>,
        (number, is_zero): (WriteNumber, bool),
        now: Moment,
    ) {
        let file = self.file(inode);
        if file.units.len() < units.end as usize {
            file.units.resize(units.end as usize, Vec::new());
        }
        let write = UnitWrite {
            number,
            is_zero,
            writer,
            issued: now,
            is_done: false,
            is_in_doubt: false,
            offered: None,
            published: None,
        };
        for unit in units {
            file.units[unit as usize].push(write);
        }
    }

    fn each(&mut self, inode: InodeId, mut change: impl FnMut(&mut UnitWrite)) {
        self.file(inode).units.iter_mut().flatten().for_each(&mut change);
    }

    /// A write has ended.
    pub fn written(&mut self, inode: InodeId, number: WriteNumber, is_done: bool) {
        self.each(inode, |write| {
            if write.number == number {
                write.is_done = is_done;
                write.is_in_doubt |= !is_done;
            }
        });
    }

    /// A flush is begun: what it offers; the size of the file then.
    pub fn flush(&mut self, inode: InodeId, writer: Writer, bytes: u64, now: Moment) {
        self.each(inode, |write| {
            if write.writer == writer && write.offered.is_none() {
                write.offered = Some(now);
            }
        });
        self.file(inode).sizes.push(Size { writer, bytes, offered: now, published: None });
    }

    /// That flush has ended well.
    pub fn flushed(&mut self, inode: InodeId, writer: Writer, now: Moment) {
        if writer < self.forgotten {
            return;
        }
        self.each(inode, |write| {
            if write.writer == writer && write.offered.is_some() && write.is_done && write.published.is_none() {
                write.published = Some(now);
            }
        });
        if let Some(size) = self.file(inode).sizes.iter_mut().rfind(|size| size.writer == writer) {
            size.published.get_or_insert(now);
        }
    }

    /// A truncation is begun: what is behind the size is given up. It publishes as well: [`flush`](Self::flush) comes behind it.
    pub fn truncate(&mut self, inode: InodeId, writer: Writer, from: u64, now: Moment) -> WriteNumber {
        self.last += 1;
        let units = self.file(inode).units.len() as u64;
        self.put(inode, writer, (from / UNIT).min(units)..units, (self.last, true), now);
        self.last
    }

    /// The writer is lost, or cannot go on: what it has not published may become the file's, or not.
    pub fn lose(&mut self, inode: InodeId, writer: Writer) {
        self.each(inode, |write| write.is_in_doubt |= write.writer == writer && write.published.is_none());
    }

    /// The metadata have lost what was published behind that moment. Who writes now does not know.
    pub fn undo(&mut self, since: Moment, now: Writer) {
        self.forgotten = now;
        let is_lost = |published: Option<Moment>| published.is_some_and(|at| at > since);
        for file in self.files.values_mut() {
            for write in file.units.iter_mut().flatten().filter(|write| is_lost(write.published)) {
                (write.published, write.is_in_doubt) = (None, true);
            }
            file.sizes.iter_mut().filter(|size| is_lost(size.published)).for_each(|size| size.published = None);
        }
    }

    /// Whether a file that was opened then, for so long, may have had that size.
    pub fn check_size(&self, inode: InodeId, begun: Moment, ended: Moment, bytes: u64) -> Result<(), String> {
        let Some(file) = self.files.get(&inode) else {
            return if bytes == 0 {
                Ok(())
            } else {
                Err(format!("inode {inode} has {bytes} bytes that nobody has written"))
            };
        };
        let sure = file.sizes.iter().rposition(|size| size.published.is_some_and(|at| at <= begun)).unwrap_or(0);
        let may = |(at, size): (usize, &Size)| at == sure || (at > sure && size.offered <= ended);
        let allowed: Vec<u64> =
            file.sizes.iter().enumerate().filter(|of| may(*of)).map(|(_, size)| size.bytes).collect();
        // A change of more blocks than fit into a commit is made in several, from block to block.
        let is_step = file.sizes.windows(2).enumerate().any(|(at, pair)| {
            let (least, most) = (pair[0].bytes.min(pair[1].bytes), pair[0].bytes.max(pair[1].bytes));
            at + 1 > sure && pair[1].offered <= ended && bytes % BLOCK == 0 && (least..=most).contains(&bytes)
        });
        match is_step || allowed.contains(&bytes) {
            true => Ok(()),
            false => Err(format!("inode {inode} has {bytes} bytes: it may have {allowed:?}")),
        }
    }

    /// Whether a read may have given those bytes; `offset` is of a unit.
    pub fn read(&mut self, read: ReadOf, bytes: &[u8]) -> Result<(), String> {
        let first = read.offset / UNIT;
        for (at, bytes) in bytes.chunks(UNIT as usize).enumerate() {
            let unit = first + at as u64;
            self.read_unit(&read, unit, bytes)?;
            self.units_read += 1;
        }
        Ok(())
    }

    fn read_unit(&self, read: &ReadOf, unit: u64, bytes: &[u8]) -> Result<(), String> {
        let inode = read.inode;
        let number = WriteNumber::from_le_bytes(bytes[8..12].try_into().unwrap_or_default());
        let expected = stamp(inode, number, unit);
        let is_whole = bytes.chunks(16).all(|part| *part == expected[..part.len()]);
        if !is_whole {
            let whose = u64::from_le_bytes(bytes[..8].try_into().unwrap_or_default());
            return Err(format!(
                "ANOTHER FILE'S BYTES, or torn ones: unit {unit} of inode {inode} begins with those of {whose}, write {number}: {:?}",
                &bytes[..32.min(bytes.len())]
            ));
        }
        let none = Vec::new();
        let writes = self.files.get(&inode).and_then(|file| file.units.get(unit as usize)).unwrap_or(&none);
        let sure = match read.writer {
            Some(writer) => writes.iter().rposition(|write| {
                let is_own = write.writer == writer && write.is_done && write.issued <= read.begun;
                is_own || write.published.is_some_and(|at| at <= read.opened)
            }),
            None => writes.iter().rposition(|write| write.published.is_some_and(|at| at <= read.opened)),
        };
        // Whoever has the map of a block reads what is being written over there.
        let sizes = self.files.get(&inode).map(|file| &file.sizes[..]).unwrap_or_default();
        let blocks = sizes.iter().map(|size| size.bytes.next_multiple_of(BLOCK)).max().unwrap_or(0);
        let is_over = unit * UNIT < blocks;
        let may = |at: usize, write: &UnitWrite| {
            let is_newer = sure.is_none_or(|sure| at > sure) && write.issued <= read.ended;
            let is_seen = write.is_in_doubt
                || is_over
                || write.offered.is_some_and(|at| at <= read.ended)
                || read.writer == Some(write.writer);
            Some(at) == sure || (is_newer && is_seen)
        };
        let mut allowed: Vec<WriteNumber> = writes
            .iter()
            .enumerate()
            .filter(|(at, write)| may(*at, write))
            .map(|(_, write)| if write.is_zero { 0 } else { write.number })
            .collect();
        if sure.is_none() {
            allowed.push(0);
        }
        match allowed.contains(&number) {
            true => Ok(()),
            false => Err(format!(
                "unit {unit} of inode {inode} is of write {number}: it may be of {allowed:?}; {writes:?}, {read:?}"
            )),
        }
    }
}
