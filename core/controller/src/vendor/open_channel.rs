//! The Open-Channel set (OCSSD 2.0): geometry, chunk information, vector commands, and `move-page`, on [`OpenChannel`] flash.
//!
//! Ordinary commands work on the same addresses: a read of what cannot be read answers zeroes, a write must keep to the write
//! pointer, a deallocation must be of whole chunks and resets them. They are what a host over a network uses where a vector
//! command would need a list in its memory.

use super::{
    VendorAnswer, VendorCommand, VendorData, VendorOpcode, VendorPort, VendorQueue, VendorRefusal, VendorRequest,
};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::any::Any;
use weir_flash::{
    AddressFormat, ChunkError, OpenChannel, OpenChannelConfig, OpenChannelError, Ppa, RegionError, RegionImage,
    RegionSize, VectorError, VectorOutcome,
};
use weir_spec::nvme::nvm::DsmRange;
use weir_spec::nvme::open_channel::{
    CHUNK_INFORMATION, ChunkInformation, Geometry, MovePair, OpenChannelAdmin, OpenChannelOpcode, SEQUENTIAL_WRITE,
    VECTOR_MAX, mccap,
};
use weir_spec::nvme::{IoOpcode, Status};
use weir_units::Nanos;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a logical block.
const BLOCK: u32 = weir_flash::UNIT;

const fn io(opcode: OpenChannelOpcode, data: VendorData, changes: bool) -> VendorOpcode {
    // A copy costs twice its length.
    let copies = matches!(opcode, OpenChannelOpcode::VECTOR_COPY | OpenChannelOpcode::MOVE_PAGE);
    VendorOpcode { queue: VendorQueue::Io, opcode: opcode.0, data, charge: if copies { 2 * BLOCK } else { 0 }, changes }
}

static COMMANDS: [VendorOpcode; 6] = [
    VendorOpcode {
        queue: VendorQueue::Admin,
        opcode: OpenChannelAdmin::GEOMETRY.0,
        data: VendorData::Bytes(size_of::<Geometry>() as u32),
        charge: 0,
        changes: false,
    },
    io(OpenChannelOpcode::VECTOR_RESET, VendorData::None, true),
    io(OpenChannelOpcode::VECTOR_WRITE, VendorData::Each(BLOCK), true),
    io(OpenChannelOpcode::VECTOR_READ, VendorData::Each(BLOCK), false),
    io(OpenChannelOpcode::VECTOR_COPY, VendorData::None, true),
    io(OpenChannelOpcode::MOVE_PAGE, VendorData::Each(size_of::<MovePair>() as u32), true),
];

/// A namespace of physical addresses.
#[derive(Debug)]
pub struct OpenChannelSet {
    drive: OpenChannel,
    geometry: Box<Geometry>,
    /// Where the namespace begins on the media.
    start: u64,
    list: Vec<Ppa>,
    /// Commands that change chunks and are not over, by ticket.
    under_way: BTreeMap<u64, UnderWay>,
    tickets: u64,
    /// The media moves bytes when commands begin: a reset keeps its distance from writes.
    apart: bool,
}

/// What a command does to chunks.
#[derive(Debug, Default)]
struct UnderWay {
    /// Chunks and their write pointers behind what it writes.
    writes: Vec<(u32, u32)>,
    /// Chunks that it reads from to write elsewhere.
    sources: Vec<u32>,
    resets: Vec<u32>,
}

type Served = Result<VendorAnswer, VendorRefusal>;

impl OpenChannelSet {
    /// Of that flash; its blocks lie on the media from `start` on, one behind the other without the gaps of their addresses.
    ///
    /// # Errors
    /// Says which numbers do not go together.
    pub fn new(config: &OpenChannelConfig, start: u64) -> Result<Self, OpenChannelError> {
        let drive = OpenChannel::new(config)?;
        let geometry = Box::new(geometry(config, &drive));
        let under_way = BTreeMap::new();
        Ok(Self { drive, geometry, start, list: Vec::new(), under_way, tickets: 0, apart: false })
    }

    /// What of the drive survives a loss of power.
    pub fn image_size(&self) -> RegionSize {
        self.drive.image_size()
    }

    /// Goes on from what an image tells, on media that moves bytes when commands begin. Answers where the media has to read as
    /// zeroes unless the drive was stopped: what lies behind the data of each chunk.
    ///
    /// # Errors
    /// The image is of another size, or more chunks are open than may be.
    pub fn adopt(&mut self, image: RegionImage) -> Result<Vec<(u64, u64)>, RegionError> {
        self.drive.adopt(image)?;
        self.apart = true;
        let all = 0..self.drive.chunks().iter().len() as u32;
        Ok(all.map(|chunk| self.behind(chunk, self.drive.data_end(chunk))).filter(|(_, len)| *len > 0).collect())
    }

    /// The power goes: what has not completed will never have been.
    pub fn power_off(&mut self) {
        self.under_way.clear();
    }

    /// The power is back: where the media has to read as zeroes now.
    pub fn power_on(&mut self) -> Vec<(u64, u64)> {
        self.under_way.clear();
        let loss = self.drive.power_cut();
        loss.gone.iter().map(|(chunk, from)| self.behind(*chunk, *from)).collect()
    }

    /// The media's bytes of a chunk from a block on.
    fn behind(&self, chunk: u32, from: u32) -> (u64, u64) {
        let blocks = self.drive.format().blocks();
        (self.offset(Ppa { chunk, block: from }), u64::from(blocks.saturating_sub(from)) * u64::from(BLOCK))
    }

    /// Whether the media could mix a command's bytes up with those of one that is under way: a host that waits for resets
    /// before it writes, and for writes before it resets, never meets this.
    fn clear_of(&self, written: &[Ppa], reset: &[u32]) -> Result<(), VendorRefusal> {
        let meets = |other: &UnderWay| {
            let touches = |chunk: &u32| other.writes.iter().any(|(c, _)| c == chunk) || other.sources.contains(chunk);
            written.iter().any(|at| other.resets.contains(&at.chunk))
                || reset.iter().any(|chunk| touches(chunk) || other.resets.contains(chunk))
        };
        let mixed = self.apart && self.under_way.values().any(meets);
        if mixed { Err(Status::COMMAND_INTERRUPTED.into()) } else { Ok(()) }
    }

    /// A command was accepted: what it does to chunks, until it is over.
    fn begun(&mut self, under_way: UnderWay, port: &mut VendorPort<'_>) {
        self.tickets += 1;
        port.ticket(self.tickets);
        self.under_way.insert(self.tickets, under_way);
    }

    fn writes(&self, list: &[Ppa]) -> Vec<(u32, u32)> {
        let unit = self.drive.chunks().config().ws_min;
        list.chunks(unit as usize).map(|blocks| (blocks[0].chunk, blocks[0].block + unit)).collect()
    }

    /// Blocks of the address space: the size that the namespace must have.
    pub fn space(&self) -> u64 {
        self.drive.format().space()
    }

    /// Bytes of media that its blocks take.
    pub fn media_bytes(&self) -> u64 {
        u64::from(self.drive.format().chunks()) * u64::from(self.drive.format().blocks()) * u64::from(BLOCK)
    }

    /// The drive, to look at.
    pub fn drive(&self) -> &OpenChannel {
        &self.drive
    }

    fn offset(&self, at: Ppa) -> u64 {
        self.start + self.drive.format().linear(at) * u64::from(BLOCK)
    }

    /// The list of a vector command: one address, or where so many lie.
    fn addresses(&self, at: u64, entries: u32, port: &mut VendorPort<'_>) -> Result<Vec<u64>, VendorRefusal> {
        if entries > VECTOR_MAX {
            return Err(Status::INVALID_FIELD.dnr().into());
        }
        if entries == 1 {
            return Ok(alloc::vec![at]);
        }
        let mut bytes = [0u8; VECTOR_MAX as usize * 8];
        let bytes = &mut bytes[..entries as usize * 8];
        port.list(at, bytes)?;
        Ok(bytes.chunks_exact(8).map(|b| U64::read_from_bytes(b).map_or(0, |a| a.get())).collect())
    }

    fn decode(&self, addresses: &[u64]) -> Result<Vec<Ppa>, VendorRefusal> {
        let mut list = Vec::with_capacity(addresses.len());
        let decoded = self.drive.format().decode_all(addresses.iter().copied(), &mut list);
        decoded.map(|()| list).map_err(|refusal| refused(&refusal, OpenChannelOpcode::VECTOR_READ))
    }

    fn vector(&mut self, now: Nanos, request: &VendorRequest, port: &mut VendorPort<'_>) -> Served {
        let opcode = OpenChannelOpcode(request.opcode);
        let addresses = self.addresses(request.slba(), request.entries(), port)?;
        let list = self.decode(&addresses)?;
        match opcode {
            OpenChannelOpcode::VECTOR_READ => {
                let outcome = self.drive.read(now, &list).map_err(|r| refused(&r, opcode))?;
                list.iter().for_each(|at| port.to_host(self.offset(*at), BLOCK));
                Ok(answer(outcome, Status::UNRECOVERED_READ_ERROR))
            }
            OpenChannelOpcode::VECTOR_WRITE => {
                self.clear_of(&list, &[])?;
                let outcome = self.drive.write(now, &list).map_err(|r| refused(&r, opcode))?;
                self.begun(UnderWay { writes: self.writes(&list), ..UnderWay::default() }, port);
                list.iter().for_each(|at| port.from_host(self.offset(*at), BLOCK));
                Ok(answer(outcome, Status::WRITE_FAULT))
            }
            OpenChannelOpcode::VECTOR_COPY => {
                let to = self.addresses(request.second(), request.entries(), port)?;
                let to = self.decode(&to)?;
                self.clear_of(&to, &[])?;
                let outcome = self.drive.copy(now, &list, &to).map_err(|r| refused(&r, opcode))?;
                self.relocated(outcome, &list, &to, port);
                Ok(answer(outcome, Status::UNRECOVERED_READ_ERROR))
            }
            _ => self.reset(now, &list, port),
        }
    }

    /// The page move: its pairs are the command's data.
    fn move_page(&mut self, now: Nanos, request: &VendorRequest, port: &mut VendorPort<'_>) -> Served {
        let entries = request.entries();
        if entries > VECTOR_MAX {
            return Err(Status::INVALID_FIELD.dnr().into());
        }
        let mut bytes = [0u8; VECTOR_MAX as usize * size_of::<MovePair>()];
        let bytes = &mut bytes[..entries as usize * size_of::<MovePair>()];
        port.read(0, bytes)?;
        let pairs = bytes.chunks_exact(size_of::<MovePair>()).map(|b| MovePair::read_from_bytes(b).unwrap_or_default());
        let (from, to): (Vec<u64>, Vec<u64>) = pairs.map(|pair| (pair.from.get(), pair.to.get())).unzip();
        let (from, to) = (self.decode(&from)?, self.decode(&to)?);
        self.clear_of(&to, &[])?;
        let outcome = self.drive.move_pages(now, &from, &to);
        let outcome = outcome.map_err(|r| refused(&r, OpenChannelOpcode::MOVE_PAGE))?;
        self.relocated(outcome, &from, &to, port);
        Ok(answer(outcome, Status::UNRECOVERED_READ_ERROR))
    }

    fn relocated(&mut self, outcome: VectorOutcome, from: &[Ppa], to: &[Ppa], port: &mut VendorPort<'_>) {
        if outcome.failed == 0 {
            let sources = from.iter().map(|at| at.chunk).collect();
            self.begun(UnderWay { writes: self.writes(to), sources, ..UnderWay::default() }, port);
        }
        from.iter().zip(to).for_each(|(from, to)| port.copy(self.offset(*from), self.offset(*to), BLOCK));
    }

    /// Resets the chunks that these addresses lie in; each must be its chunk's first.
    fn reset(&mut self, now: Nanos, list: &[Ppa], port: &mut VendorPort<'_>) -> Served {
        if let Some(i) = list.iter().position(|at| at.block != 0) {
            return Err(VendorRefusal { status: Status::INVALID_FIELD.dnr(), result: VectorError::bit(i) });
        }
        let chunks: Vec<u32> = list.iter().map(|at| at.chunk).collect();
        self.clear_of(&[], &chunks)?;
        let outcome = self.drive.reset(now, &chunks).map_err(|r| refused(&r, OpenChannelOpcode::VECTOR_RESET))?;
        let bytes = u64::from(self.drive.format().blocks()) * u64::from(BLOCK);
        list.iter().for_each(|at| port.deallocate(self.offset(*at), bytes));
        self.begun(UnderWay { resets: chunks, ..UnderWay::default() }, port);
        Ok(answer(outcome, Status::OFFLINE_CHUNK))
    }

    /// Ordinary reads, writes and deallocations.
    fn ordinary(&mut self, now: Nanos, request: &VendorRequest, port: &mut VendorPort<'_>) -> Served {
        let opcode = IoOpcode(request.opcode);
        if opcode == IoOpcode::DATASET_MANAGEMENT {
            return self.deallocate(now, request.entries(), port);
        }
        self.list.clear();
        let (first, blocks) = (request.slba(), u64::from(request.entries()));
        let mut list = core::mem::take(&mut self.list);
        let decoded = self.drive.format().decode_all((0..blocks).map(|i| first.saturating_add(i)), &mut list);
        let served = match decoded {
            Err(_) => Err(Status::LBA_OUT_OF_RANGE.dnr().into()),
            Ok(()) if opcode == IoOpcode::READ => self.read(now, &list, port),
            Ok(()) if opcode == IoOpcode::COMPARE => {
                let read = self.drive.read(now, &list).map_err(|r| refused(&r, OpenChannelOpcode::VECTOR_READ));
                list.iter().for_each(|at| port.compare(self.offset(*at), BLOCK));
                read.map(|outcome| plain(answer(outcome, Status::UNRECOVERED_READ_ERROR)))
            }
            Ok(()) => {
                let written = self.clear_of(&list, &[]).and_then(|()| {
                    self.drive.write(now, &list).map_err(|r| refused(&r, OpenChannelOpcode::VECTOR_WRITE))
                });
                // Zeroes are there already: what is not written reads as such.
                if opcode == IoOpcode::WRITE {
                    list.iter().for_each(|at| port.from_host(self.offset(*at), BLOCK));
                }
                if written.is_ok() {
                    self.begun(UnderWay { writes: self.writes(&list), ..UnderWay::default() }, port);
                }
                written.map(|outcome| plain(answer(outcome, Status::WRITE_FAULT)))
            }
        };
        self.list = list;
        // DW0 and DW1 of an ordinary command are reserved.
        served.map_err(|refusal| refusal.status.into())
    }

    /// What cannot be read answers zeroes, at once.
    fn read(&mut self, now: Nanos, list: &[Ppa], port: &mut VendorPort<'_>) -> Served {
        let mut readable = Vec::with_capacity(list.len());
        for (at, i) in list.iter().zip(0..) {
            match self.drive.chunks().readable(*at) {
                Ok(()) => {
                    readable.push(*at);
                    port.to_host(self.offset(*at), BLOCK);
                }
                Err(ChunkError::Offline) => return Err(Status::OFFLINE_CHUNK.dnr().into()),
                Err(_) => {
                    port.write(i * BLOCK, &[0; BLOCK as usize])?;
                    port.pass(BLOCK);
                }
            }
        }
        if readable.is_empty() {
            return Ok(VendorAnswer { at: self.drive.other(now), status: Status::SUCCESS, result: 0 });
        }
        let outcome = self.drive.read(now, &readable);
        let outcome = outcome.map_err(|r| refused(&r, OpenChannelOpcode::VECTOR_READ))?;
        Ok(plain(answer(outcome, Status::UNRECOVERED_READ_ERROR)))
    }

    /// Dataset management: ranges of whole chunks are resets.
    fn deallocate(&mut self, now: Nanos, ranges: u32, port: &mut VendorPort<'_>) -> Served {
        let mut list = Vec::with_capacity(ranges as usize);
        for i in 0..ranges {
            let mut bytes = [0u8; size_of::<DsmRange>()];
            port.read(i * bytes.len() as u32, &mut bytes)?;
            let range = DsmRange::read_from_bytes(&bytes).unwrap_or_default();
            let at = self.drive.format().decode(range.slba.get()).ok_or(Status::LBA_OUT_OF_RANGE.dnr())?;
            if at.block != 0 || range.nlb.get() != self.drive.format().blocks() {
                return Err(Status::INVALID_FIELD.dnr().into());
            }
            list.push(at);
        }
        let served = self.reset(now, &list, port).map(plain);
        served.map_err(|refusal| refusal.status.into())
    }
}

/// Without the vector commands' bits.
fn plain(answer: VendorAnswer) -> VendorAnswer {
    VendorAnswer { result: 0, ..answer }
}

fn answer(outcome: VectorOutcome, failure: Status) -> VendorAnswer {
    let status = if outcome.failed == 0 { Status::SUCCESS } else { failure };
    VendorAnswer { at: outcome.done, status, result: outcome.failed }
}

/// A refusal in the specification's codes.
fn refused(refusal: &VectorError, opcode: OpenChannelOpcode) -> VendorRefusal {
    let reads = opcode == OpenChannelOpcode::VECTOR_READ || opcode == OpenChannelOpcode::VECTOR_RESET;
    let status = match refusal.error {
        ChunkError::OutOfRange => Status::LBA_OUT_OF_RANGE,
        ChunkError::List => Status::INVALID_FIELD,
        ChunkError::Unwritten => Status::DEALLOCATED_BLOCK,
        ChunkError::Offline if reads => Status::OFFLINE_CHUNK,
        ChunkError::OutOfOrder | ChunkError::Offline => Status::OUT_OF_ORDER_WRITE,
        ChunkError::InvalidReset => Status::INVALID_RESET,
        // The specification has no code for MAXOC and MAXOCPU.
        ChunkError::TooManyOpen => Status::COMMAND_SEQUENCE_ERROR,
    };
    VendorRefusal { status: status.dnr(), result: refusal.failed }
}

fn geometry(config: &OpenChannelConfig, drive: &OpenChannel) -> Geometry {
    let chunks = drive.chunks().config();
    let nanos = |t: Nanos| U32::new(u32::try_from(t.0).unwrap_or(u32::MAX));
    let t = &config.timing;
    let most = |levels: &[Nanos; 5]| levels.iter().copied().max().unwrap_or_default();
    let again = if chunks.multiple_reset { mccap::MULTIPLE_RESET } else { 0 };
    Geometry {
        mjr: 2,
        lbaf: drive.format().widths(),
        mccap: U32::new(mccap::VECTOR_COPY | again),
        num_grp: U16::new(chunks.groups as u16),
        num_pu: U16::new(chunks.units as u16),
        num_chk: U32::new(chunks.chunks),
        clba: U32::new(chunks.blocks),
        ws_min: U32::new(chunks.ws_min),
        ws_opt: U32::new(chunks.ws_min),
        mw_cunits: U32::new(chunks.mw_cunits),
        maxoc: U32::new(chunks.max_open),
        maxocpu: U32::new(chunks.max_open_unit),
        times: [
            nanos(t.read[0]),
            nanos(most(&t.read)),
            nanos(t.program[0]),
            nanos(most(&t.program)),
            nanos(t.erase),
            nanos(t.erase),
        ],
        ..Geometry::default()
    }
}

impl VendorCommand for OpenChannelSet {
    fn commands(&self) -> &'static [VendorOpcode] {
        &COMMANDS
    }

    fn claims(&self) -> bool {
        true
    }

    fn serve(&mut self, now: Nanos, request: &VendorRequest, port: &mut VendorPort<'_>) -> Served {
        match OpenChannelOpcode(request.opcode) {
            _ if request.queue == VendorQueue::Admin => {
                port.write(0, self.geometry.as_bytes())?;
                Ok(VendorAnswer { at: now, status: Status::SUCCESS, result: 0 })
            }
            OpenChannelOpcode::MOVE_PAGE => self.move_page(now, request, port),
            opcode if opcode.name().is_some() => self.vector(now, request, port),
            _ => self.ordinary(now, request, port),
        }
    }

    fn log_length(&self, lid: u8) -> Option<u64> {
        let bytes = self.drive.chunks().iter().len() as u64 * size_of::<ChunkInformation>() as u64;
        (lid == CHUNK_INFORMATION).then_some(bytes)
    }

    fn log(&self, _: u8, offset: u64, into: &mut [u8]) {
        const SIZE: u64 = size_of::<ChunkInformation>() as u64;
        let format: &AddressFormat = self.drive.format();
        let mut at = 0;
        while at < into.len() {
            let place = offset + at as u64;
            let number = u32::try_from(place / SIZE).unwrap_or(u32::MAX);
            let Some(chunk) = self.drive.chunks().get(number) else { return };
            let entry = ChunkInformation {
                cs: chunk.state as u8,
                ct: SEQUENTIAL_WRITE,
                wli: self.drive.wear_index(number),
                slba: U64::new(format.encode(Ppa { chunk: number, block: 0 })),
                cnlb: U64::new(format.blocks().into()),
                wp: U64::new(chunk.wp.into()),
                ..ChunkInformation::default()
            };
            let bytes = &entry.as_bytes()[(place % SIZE) as usize..];
            let n = bytes.len().min(into.len() - at);
            into[at..at + n].copy_from_slice(&bytes[..n]);
            at += n;
        }
    }

    fn check(&self) {
        self.drive.check();
    }

    fn settled(&mut self, ticket: u64) {
        let over = self.under_way.remove(&ticket).unwrap_or_default();
        over.writes.into_iter().for_each(|(chunk, wp)| self.drive.landed(chunk, wp));
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> Option<&mut dyn Any> {
        Some(self)
    }
}
