//! A ring host with memory wherever it is touched, for controllers with many and large queues, and a drive beside it.

use std::collections::BTreeMap;
use weir_controller::{
    Attach, ControllerHandle, DataPiece, DataPointer, Direction, Effect, Effects, Event, Host, Owner, Subsystem,
    SubsystemConfig, Tag, TransportModel, Walk,
};
use weir_spec::nvme::register;
use weir_spec::nvme::{AdminOpcode, Cqe, Sqe, Status};
use weir_units::Nanos;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

#[derive(Clone, Default)]
pub struct Sparse {
    pages: BTreeMap<u64, Box<[u8; 4096]>>,
    /// Address and vector of every completion, in order.
    pub posted: Vec<(u64, Option<u16>)>,
    pub interrupts: Vec<u16>,
    pub fetched: u64,
}

impl Sparse {
    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        for (i, byte) in bytes.iter().enumerate() {
            let at = at + i as u64;
            self.pages.entry(at >> 12).or_insert_with(|| Box::new([0; 4096]))[at as usize & 4095] = *byte;
        }
    }

    pub fn read(&self, at: u64, into: &mut [u8]) {
        for (i, byte) in into.iter_mut().enumerate() {
            let at = at + i as u64;
            *byte = self.pages.get(&(at >> 12)).map_or(0, |page| page[at as usize & 4095]);
        }
    }

    pub fn dword(&self, at: u64) -> u32 {
        let mut bytes = [0; 4];
        self.read(at, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn walk(
        &self,
        data: &DataPointer,
        direction: Direction,
        offset: u32,
        len: usize,
    ) -> Result<Vec<DataPiece>, Status> {
        let (mut walk, mut pieces) = (Walk::new(data, direction, offset, len as u32), Vec::new());
        while let Some(piece) = walk.next(&mut |at, into: &mut [u8]| {
            self.read(at, into);
            Ok(())
        })? {
            pieces.push(piece);
        }
        Ok(pieces)
    }
}

impl Host for Sparse {
    fn fetch(&mut self, _: Owner, address: u64) -> Result<[u64; 8], Status> {
        self.fetched += 1;
        let mut bytes = [0; 64];
        self.read(address, &mut bytes);
        Ok(Sqe::words_of(&bytes))
    }
    fn post(&mut self, _: Owner, address: u64, vector: Option<u16>, cqe: &Cqe) -> Result<(), Status> {
        self.write(address, cqe.as_bytes());
        self.posted.push((address, vector));
        Ok(())
    }
    fn interrupt(&mut self, _: Owner, vector: u16) {
        self.interrupts.push(vector);
    }
    fn respond(&mut self, _: Owner, _: Tag, _: &Cqe) {
        unreachable!("there are no message queues");
    }
    fn read_data(&mut self, _: Owner, data: &DataPointer, offset: u32, into: &mut [u8]) -> Result<(), Status> {
        let mut done = 0;
        for piece in self.walk(data, Direction::FromHost, offset, into.len())? {
            if let DataPiece::Memory { address, len } = piece {
                self.read(address, &mut into[done..done + len as usize]);
            }
            done += piece.len() as usize;
        }
        Ok(())
    }
    fn write_data(&mut self, _: Owner, data: &DataPointer, offset: u32, from: &[u8]) -> Result<(), Status> {
        let mut done = 0;
        for piece in self.walk(data, Direction::ToHost, offset, from.len())? {
            if let DataPiece::Memory { address, len } = piece {
                self.write(address, &from[done..done + len as usize]);
            }
            done += piece.len() as usize;
        }
        Ok(())
    }
}

/// Where a queue's entries are: submission queues below, completion queues above.
pub fn sq_base(qid: u16) -> u64 {
    0x1_0000_0000 + u64::from(qid) * 0x10_0000
}

pub fn cq_base(qid: u16) -> u64 {
    0x80_0000_0000 + u64::from(qid) * 0x10_0000
}

/// A drive with one ring controller, enabled with admin queues of 64 entries.
#[derive(Clone)]
pub struct Machine {
    pub drive: Subsystem,
    pub host: Sparse,
    pub controller: ControllerHandle,
    pub now: Nanos,
    effects: Effects,
    admin: (u32, u32),
}

pub const ADMIN: u32 = 64;

impl Machine {
    pub fn new(config: SubsystemConfig) -> Self {
        let mut machine = Self::bare(config);
        machine.enable();
        machine
    }

    pub fn bare(config: SubsystemConfig) -> Self {
        let mut drive = Subsystem::new(config, Nanos(0)).unwrap();
        let attach = Attach { tenant: 0, owner: Owner(0), model: TransportModel::Rings, host: "sparse".into() };
        let controller = drive.attach(Nanos(0), attach).unwrap();
        let (host, effects) = (Sparse::default(), Effects::new(1024));
        Self { drive, host, controller, now: Nanos(0), effects, admin: (0, 0) }
    }

    pub fn enable(&mut self) {
        self.admin = (0, 0);
        self.set(register::AQA, u64::from((ADMIN - 1) << 16 | (ADMIN - 1)));
        self.set(register::ASQ, sq_base(0));
        self.set(register::ACQ, cq_base(0));
        self.set(register::CC, 0x0046_0001);
        assert_eq!(self.get(register::CSTS), 1);
    }

    pub fn event(&mut self, event: Event) {
        self.drive.apply(self.now, event, &mut self.host, &mut self.effects);
    }

    pub fn set(&mut self, offset: u32, value: u64) {
        let size = register::size_at(offset).unwrap_or(4);
        self.event(Event::Register { controller: self.controller, offset, value, size });
    }

    pub fn get(&self, offset: u32) -> u64 {
        self.drive.register(self.controller, offset, register::size_at(offset).unwrap_or(4))
    }

    pub fn tail(&mut self, qid: u16, tail: u32) {
        self.set(register::doorbell_offset(register::Doorbell::SqTail(qid)), tail.into());
    }

    pub fn head(&mut self, qid: u16, head: u32) {
        self.set(register::doorbell_offset(register::Doorbell::CqHead(qid)), head.into());
    }

    /// Runs, and the media does everything at once.
    pub fn settle(&mut self) {
        loop {
            self.event(Event::Run);
            let slots: Vec<_> = self
                .effects
                .drain()
                .filter_map(|effect| match effect {
                    Effect::Io(io) => Some(io.slot),
                    Effect::Disconnect { .. } => None,
                })
                .collect();
            if slots.is_empty() && !self.drive.has_work() {
                return;
            }
            for slot in slots {
                self.event(Event::Done { slot, status: Status::SUCCESS });
            }
        }
    }

    pub fn put(&mut self, qid: u16, index: u32, sqe: Sqe) {
        self.host.write(sq_base(qid) + u64::from(index) * 64, sqe.as_bytes());
    }

    pub fn completion(&self, qid: u16, index: u32) -> Cqe {
        let mut bytes = [0; 16];
        self.host.read(cq_base(qid) + u64::from(index) * 16, &mut bytes);
        Cqe::read_from_bytes(&bytes).unwrap()
    }

    /// Submits an admin command, which may not be answered.
    pub fn send(&mut self, sqe: Sqe) {
        let (tail, _) = self.admin;
        self.put(0, tail, sqe);
        self.admin.0 = (tail + 1) % ADMIN;
        self.tail(0, self.admin.0);
        // Admin commands have a rate.
        self.now = self.now.saturating_add(Nanos::from_millis(1));
        self.settle();
    }

    /// The next admin completion.
    pub fn answer(&mut self) -> Cqe {
        let head = self.admin.1;
        let cqe = self.completion(0, head);
        self.admin.1 = (head + 1) % ADMIN;
        self.head(0, self.admin.1);
        cqe
    }

    pub fn admin(&mut self, sqe: Sqe) -> Cqe {
        self.send(sqe);
        self.answer()
    }

    pub fn command(&mut self, opcode: AdminOpcode, dptr: [u64; 2], cdw10: u32, cdw11: u32) -> Cqe {
        let (cdw10, cdw11) = (U32::new(cdw10), U32::new(cdw11));
        self.admin(Sqe { opcode: opcode.0, cid: U16::new(7), dptr: dptr.map(U64::new), cdw10, cdw11, ..Sqe::default() })
    }

    pub fn create_cq(&mut self, qid: u16, size: u32, vector: Option<u16>) -> Status {
        let cdw11 = vector.map_or(0, |vector| u32::from(vector) << 16 | 2) | 1;
        self.command(AdminOpcode::CREATE_IO_CQ, [cq_base(qid), 0], (size - 1) << 16 | u32::from(qid), cdw11).status()
    }

    pub fn create_sq(&mut self, qid: u16, size: u32, cqid: u16) -> Status {
        let cdw11 = u32::from(cqid) << 16 | 1;
        self.command(AdminOpcode::CREATE_IO_SQ, [sq_base(qid), 0], (size - 1) << 16 | u32::from(qid), cdw11).status()
    }

    pub fn pair(&mut self, qid: u16, sq: u32, cq: u32, vector: Option<u16>) {
        assert_eq!(self.create_cq(qid, cq, vector), Status::SUCCESS);
        assert_eq!(self.create_sq(qid, sq, qid), Status::SUCCESS);
    }
}
