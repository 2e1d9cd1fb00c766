//! The other side of the machine, with nothing in it that could hide a mistake of ours.

use crate::memory::Memory;
use crate::memory::model::ModelMemory;
use crate::vhost_user::{Action, Disk, DriveCommand, Message, Op, QueueState, VhostUserDevice, Violation};
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use weir_spec::vhost_user::{Header, MemoryRegion, Request, SingleRegion, VringAddress, VringFd, VringState, protocol};
use weir_spec::virtio_blk::{RequestHeader, RequestStatus, RequestType};
use weir_spec::virtqueue::{feature, flag, split};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

/// Guest memory is here ...
pub(super) const RAM: u64 = 0x10_0000;
pub(super) const RAM_LEN: u64 = 0x80_0000;
/// ... and the front end sees it there.
pub(super) const USER: u64 = 0x7fff_0000_0000;
/// Where each queue's rings are, and data begins.
pub(super) const RINGS: u64 = RAM;
pub(super) const DATA: u64 = RAM + 0x10_0000;
pub(super) const SECTORS: u64 = 4096;

pub(super) type Act = Action<Rc<ModelMemory>>;

pub(super) struct Guest {
    pub(super) ram: Rc<ModelMemory>,
    pub(super) memory: ModelMemory,
    pub(super) device: VhostUserDevice<ModelMemory>,
    pub(super) out: Vec<Act>,
    pub(super) disk: Vec<u8>,
    pub(super) avail: u16,
    pub(super) size: u16,
}

/// A descriptor: address, length, whether the device writes it.
pub(super) type Piece = (u64, u32, bool);

/// Header, data and status as Linux lays them out; the header is written.
pub(super) fn chain(g: &Guest, kind: RequestType, sector: u64, data: &[Piece]) -> Vec<Piece> {
    g.ram.write(DATA, RequestHeader::new(kind, sector).as_bytes()).unwrap();
    g.ram.write(DATA + 16, &[0xee]).unwrap();
    let mut pieces = vec![(DATA, 16, false)];
    pieces.extend_from_slice(data);
    pieces.push((DATA + 16, 1, true));
    pieces
}

impl Guest {
    /// Negotiated everything that the device offers except what `without` names, memory handed over, no queue started.
    pub(super) fn without(without: u64) -> Self {
        Self::with_disk(Disk::new(SECTORS * 512, "serial"), without)
    }

    pub(super) fn with_disk(disk: Disk, without: u64) -> Self {
        let mut ram = ModelMemory::new();
        ram.add(RAM, RAM_LEN as usize);
        let features = disk.features() & !without;
        let mut g = Guest {
            ram: Rc::new(ram),
            memory: ModelMemory::new(),
            disk: vec![0; disk.sectors as usize * 512],
            device: VhostUserDevice::new(disk),
            out: Vec::new(),
            avail: 0,
            size: 0,
        };
        g.send(Request::SET_OWNER, &[], vec![]);
        g.send(Request::SET_FEATURES, U64::new(features).as_bytes(), vec![]);
        g.send(Request::SET_PROTOCOL_FEATURES, U64::new(g.device.disk().protocol()).as_bytes(), vec![]);
        assert!(g.out.is_empty(), "{:?}", g.out);
        assert_eq!(g.add_region(RAM, RAM_LEN, USER), 0);
        g
    }

    /// With split rings and started queue 0 of `size` entries.
    pub(super) fn split(size: u16, without: u64) -> Self {
        let mut g = Self::without(without | feature::RING_PACKED);
        g.start(0, size, 0);
        g
    }

    pub(super) fn send(&mut self, request: Request, payload: &[u8], fds: Vec<Rc<ModelMemory>>) {
        let message = Message { request, needs_reply: false, again: false, payload: payload.to_vec(), fds };
        self.device.message(message, &mut self.memory, &mut self.out);
        self.device.check();
    }

    /// Sends with NEED_REPLY and returns the number in the answer; other actions stay.
    pub(super) fn ask(&mut self, request: Request, payload: &[u8], fds: Vec<Rc<ModelMemory>>) -> u64 {
        let payload = self.call(request, payload, fds);
        U64::read_from_bytes(&payload).unwrap().get()
    }

    /// Sends with NEED_REPLY and returns the answer's payload; other actions stay.
    pub(super) fn call(&mut self, request: Request, payload: &[u8], fds: Vec<Rc<ModelMemory>>) -> Vec<u8> {
        let message = Message { request, needs_reply: true, again: false, payload: payload.to_vec(), fds };
        self.device.message(message, &mut self.memory, &mut self.out);
        self.device.check();
        self.reply(request).expect("an answer")
    }

    pub(super) fn reply(&mut self, request: Request) -> Option<Vec<u8>> {
        let at = self.out.iter().position(|a| matches!(a, Action::Reply(_)))?;
        let Action::Reply(bytes) = self.out.remove(at) else { unreachable!() };
        let (header, payload) = Header::read_from_prefix(&bytes).unwrap();
        assert_eq!((header.request.get(), header.is_reply()), (request.0, true));
        assert_eq!(header.size.get() as usize, payload.len());
        Some(payload.to_vec())
    }

    pub(super) fn add_region(&mut self, guest: u64, len: u64, user: u64) -> u64 {
        let wire = region(guest, len, user);
        let fds = vec![self.ram.clone()];
        self.ask(Request::ADD_MEM_REG, wire.as_bytes(), fds)
    }

    pub(super) fn state(&mut self, request: Request, index: u32, num: u32) -> u64 {
        self.ask(request, VringState { index: U32::new(index), num: U32::new(num) }.as_bytes(), vec![])
    }

    pub(super) fn places(queue: u16) -> [u64; 3] {
        let base = RINGS + 0x1_0000 * u64::from(queue);
        [base, base + 0x5000, base + 0xa000]
    }

    pub(super) fn set_address(&mut self, queue: u16) -> u64 {
        let [descriptor, available, used] = Self::places(queue).map(|a| U64::new(a - RAM + USER));
        let index = U32::new(queue.into());
        let a = VringAddress { index, descriptor, used, available, ..VringAddress::default() };
        self.ask(Request::SET_VRING_ADDR, a.as_bytes(), vec![])
    }

    pub(super) fn kick(&mut self, queue: u16) -> u64 {
        let fd = vec![self.ram.clone()];
        self.ask(Request::SET_VRING_KICK, VringFd(U64::new(queue.into())).as_bytes(), fd)
    }

    pub(super) fn start(&mut self, queue: u16, size: u16, base: u32) {
        self.configure(queue, size, base);
        assert_eq!(self.kick(queue), 0);
        assert_eq!(self.state(Request::SET_VRING_ENABLE, queue.into(), 1), 0);
    }

    pub(super) fn configure(&mut self, queue: u16, size: u16, base: u32) {
        self.size = size;
        assert_eq!(self.state(Request::SET_VRING_NUM, queue.into(), size.into()), 0);
        assert_eq!(self.state(Request::SET_VRING_BASE, queue.into(), base), 0);
        assert_eq!(self.set_address(queue), 0);
    }

    pub(super) fn base_of(&mut self, queue: u16) -> u32 {
        let state = VringState { index: U32::new(queue.into()), num: U32::ZERO };
        let payload = self.call(Request::GET_VRING_BASE, state.as_bytes(), vec![]);
        VringState::read_from_bytes(&payload).unwrap().num.get()
    }

    // --- split rings, queue 0 ---

    pub(super) fn descriptor(&self, at: u16, address: u64, len: u32, flags: u16, next: u16) {
        put_descriptor(&self.ram, Self::places(0)[0] + 16 * u64::from(at), address, len, flags, next);
    }

    /// Lays a chain out from descriptor `head` on.
    pub(super) fn lay(&self, head: u16, pieces: &[Piece]) {
        for (i, (address, len, write)) in pieces.iter().enumerate() {
            let (at, more) = (head + i as u16, i + 1 < pieces.len());
            let flags = (if *write { flag::WRITE } else { 0 }) | if more { flag::NEXT } else { 0 };
            self.descriptor(at, *address, *len, flags, at + 1);
        }
    }

    pub(super) fn offer(&mut self, head: u16) {
        let avail = Self::places(0)[1];
        let entry = avail + split::RING as u64 + 2 * u64::from(self.avail % self.size);
        self.ram.write(entry, &head.to_le_bytes()).unwrap();
        self.avail = self.avail.wrapping_add(1);
        self.ram.write(avail + 2, &self.avail.to_le_bytes()).unwrap();
    }

    pub(super) fn used_index(&self) -> u16 {
        self.read16(Self::places(0)[2] + 2)
    }

    pub(super) fn used(&self, at: u16) -> (u32, u32) {
        let mut b = [0; 8];
        self.ram.read(Self::places(0)[2] + 4 + 8 * u64::from(at % self.size), &mut b).unwrap();
        (u32::from_le_bytes(b[..4].try_into().unwrap()), u32::from_le_bytes(b[4..].try_into().unwrap()))
    }

    pub(super) fn read16(&self, address: u64) -> u16 {
        let mut b = [0; 2];
        self.ram.read(address, &mut b).unwrap();
        u16::from_le_bytes(b)
    }

    pub(super) fn bytes(&self, address: u64, len: usize) -> Vec<u8> {
        let mut b = vec![0; len];
        self.ram.read(address, &mut b).unwrap();
        b
    }

    // --- the drive ---

    pub(super) fn take(&mut self) -> Result<Vec<DriveCommand>, Violation> {
        let mut taken = Vec::new();
        while self.device.take(&self.memory, 0, 8, &mut |t| taken.push(t))? {}
        self.device.check();
        Ok(taken)
    }

    pub(super) fn execute(&mut self, t: &DriveCommand) {
        let range = t.offset as usize..t.offset as usize + t.len as usize;
        let q = self.device.queue(t.tag.queue()).unwrap();
        let moved = match t.op {
            Op::Read => q.write_data(&self.memory, t.tag, 0, &self.disk[range]),
            Op::Write => q.read_data(&self.memory, t.tag, 0, &mut self.disk[range]),
            Op::Discard | Op::WriteZeroes { .. } => {
                self.disk[range].fill(0);
                Ok(())
            }
            Op::Flush => Ok(()),
        };
        let status = if moved.is_ok() { RequestStatus::OK } else { RequestStatus::IOERR };
        self.device.complete(&self.memory, t.tag, status);
        self.device.check();
    }

    /// Serves what is there and publishes; whether the driver is to be signalled.
    pub(super) fn serve(&mut self) -> bool {
        for t in self.take().unwrap() {
            self.execute(&t);
        }
        self.device.publish(&self.memory, 0);
        self.device.wants_signal(&self.memory, 0)
    }

    /// One request of these pieces on descriptors from 0 on; its status byte must be the last writable one.
    pub(super) fn request(&mut self, pieces: &[Piece]) -> RequestStatus {
        self.lay(0, pieces);
        self.offer(0);
        let before = self.used_index();
        self.serve();
        assert_eq!(self.used_index(), before.wrapping_add(1), "one completion");
        assert_eq!(self.used(before).0, 0);
        let (address, len, _) = pieces.last().unwrap();
        RequestStatus(self.bytes(address + u64::from(*len) - 1, 1)[0])
    }

    /// A chain on descriptors from 0 on that must break the queue.
    pub(super) fn violation(&mut self, pieces: &[Piece]) -> Violation {
        self.lay(0, pieces);
        self.offer(0);
        self.broken()
    }

    pub(super) fn broken(&mut self) -> Violation {
        let violation = self.take().unwrap_err();
        assert_eq!(self.device.queue(0).unwrap().state(), QueueState::Broken(violation));
        assert_eq!(self.take(), Ok(vec![]), "nothing is taken any more");
        violation
    }
}

pub(super) fn region(guest: u64, len: u64, user: u64) -> SingleRegion {
    let (guest_address, size, user_address) = (U64::new(guest), U64::new(len), U64::new(user));
    let region = MemoryRegion { guest_address, size, user_address, mmap_offset: U64::ZERO };
    SingleRegion { padding: U64::ZERO, region }
}

pub(super) fn put_descriptor(ram: &ModelMemory, place: u64, address: u64, len: u32, third: u16, fourth: u16) {
    let mut b = [0; 16];
    b[..8].copy_from_slice(&address.to_le_bytes());
    b[8..12].copy_from_slice(&len.to_le_bytes());
    b[12..14].copy_from_slice(&third.to_le_bytes());
    b[14..].copy_from_slice(&fourth.to_le_bytes());
    ram.write(place, &b).unwrap();
}

/// Protocol features that the tests rely on are offered.
#[test]
fn the_protocol_features_that_clients_insist_on_are_offered() {
    // libblkio.
    let insists = protocol::REPLY_ACK | protocol::CONFIG | protocol::CONFIGURE_MEM_SLOTS;
    assert_eq!(Disk::PROTOCOL & insists, insists);
    let mut disk = Disk::new(0, "");
    assert_eq!(disk.protocol() & (insists | protocol::INFLIGHT_SHMFD), insists | protocol::INFLIGHT_SHMFD);
    disk.journal = false;
    assert_eq!(disk.protocol() & protocol::INFLIGHT_SHMFD, 0);
}
