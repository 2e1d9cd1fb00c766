//! The Open-Channel set and `move-page` through the controller: rings with lists in host memory, capsules without; and a set of
//! a test's own. In virtual time, on a medium of bytes.

mod common;

use common::config;
use weir_controller::testing::{Fabric, TestRing, TestWorld, admin, io};
use weir_controller::{
    Data, Host as _, ManagementError, NamespaceConfig, Op, OpenChannelSet, Owner, VendorAnswer, VendorCommand,
    VendorData, VendorOpcode, VendorPort, VendorQueue, VendorRefusal, VendorRequest,
};
use weir_flash::{CellType, ChunkState, Geometry as Layout, OpenChannelConfig, PageMap, Preset};
use weir_spec::nvme::log::{Effects, SupportedLogPages, lid};
use weir_spec::nvme::open_channel::{
    CHUNK_INFORMATION, ChunkInformation, Geometry, MovePair, OpenChannelAdmin, OpenChannelOpcode, mccap,
};
use weir_spec::nvme::register::ams;
use weir_spec::nvme::{AdminOpcode, Cqe, Sqe, Status};
use weir_units::Nanos;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

const NSID: u32 = 7;
/// Where namespace 7 begins on the media.
const START: u64 = 8192;
const BLOCK: usize = 4096;

/// Three channels of one die: 3 bits of group and unit together are not all used. Chunks of 8 blocks, write units of 2.
fn flash() -> OpenChannelConfig {
    let mut config = OpenChannelConfig::of(&Preset::FemuBbssd.parts(false));
    config.geometry = Layout {
        channels: 3,
        ways: 1,
        planes: 1,
        blocks: 4,
        pages: 4,
        page_bytes: 8192,
        spare_bytes: 64,
        cell: CellType::Slc,
        page_map: PageMap::Modulo,
    };
    config
}

/// Where the ring's host keeps its lists and its data.
const LIST: u64 = 0x3_0000;
const SECOND: u64 = 0x3_1000;
/// The list of the pages behind `DATA`.
const PAGES: u64 = 0x3_1800;
const DATA: u64 = 0x3_2000;

struct Rig {
    world: TestWorld,
    ring: TestRing,
    fabric: Fabric,
    media: Vec<u8>,
}

impl Rig {
    fn new(flash: &OpenChannelConfig) -> Rig {
        let set = OpenChannelSet::new(flash, START).unwrap();
        let (size, bytes) = (set.space() * BLOCK as u64, set.media_bytes());
        let mut world = TestWorld::new(
            config(|c| {
                c.namespaces.push(NamespaceConfig { nsid: NSID, start: START, size, block_size: 4096, uuid: [7; 16] });
            }),
            64,
        );
        world.drive.set_vendor(NSID, Box::new(set)).unwrap();
        let mut ring = TestRing::ready(&mut world, 0, Owner(1), ams::RR);
        ring.add_queue(&mut world, 1, 16, 0);
        let mut fabric = Fabric::ready(&mut world, "nqn.gold", 100, ams::RR);
        fabric.add_queue(&mut world, 64, 0).unwrap();
        Rig { world, ring, fabric, media: vec![0; (START + bytes) as usize] }
    }

    /// Does what is issued until nothing moves, as an executor would.
    fn settle(&mut self) {
        loop {
            self.world.run();
            let Some(i) = self.world.issued.first().copied() else {
                match self.world.drive.next_deadline() {
                    Some(at) if self.world.drive.stats().slots_used > 0 => {
                        let span = at.saturating_sub(self.world.now);
                        self.world.pass(span);
                        continue;
                    }
                    _ => return,
                }
            };
            let range = i.offset as usize..i.offset as usize + i.len as usize;
            let host = &mut self.world.host;
            let moved = match i.op {
                Op::Read => host.write_data(i.owner, &i.data, i.skip, &self.media[range]),
                Op::Write => host.read_data(i.owner, &i.data, i.skip, &mut self.media[range]),
                Op::Deallocate => {
                    self.media[range].fill(0);
                    Ok(())
                }
                Op::Copy => {
                    let Data::Media(from) = i.data.get() else { panic!("a copy is of the media") };
                    self.media.copy_within(from as usize..from as usize + i.len as usize, range.start);
                    Ok(())
                }
                Op::Flush => Ok(()),
                other => panic!("{other:?}"),
            };
            self.world.done(0, moved.err().unwrap_or(Status::SUCCESS));
        }
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        self.world.host.ring(Owner(1))[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn list(&mut self, at: u64, addresses: &[u64]) {
        let bytes: Vec<u8> = addresses.iter().flat_map(|a| a.to_le_bytes()).collect();
        self.put(at, &bytes);
    }

    /// A vector command on the ring, its list in memory if it has more than one entry.
    fn vector(&mut self, opcode: OpenChannelOpcode, addresses: &[u64], second: &[u64]) -> Cqe {
        self.list(LIST, addresses);
        self.list(SECOND, second);
        let one = |list: &[u64], at| if list.len() == 1 { list[0] } else { at };
        self.raw(opcode, one(addresses, LIST), addresses.len() as u32 - 1, one(second, SECOND))
    }

    fn raw(&mut self, opcode: OpenChannelOpcode, first: u64, nlb: u32, second: u64) -> Cqe {
        let pages: Vec<u64> = (1..=u64::from(nlb)).map(|i| DATA + i * 4096).collect();
        self.list(PAGES, &pages);
        let prp2 = if pages.len() == 1 { pages[0] } else { PAGES };
        let sqe = Sqe {
            dptr: [U64::new(DATA), U64::new(prp2)],
            cdw14: U32::new(second as u32),
            cdw15: U32::new((second >> 32) as u32),
            cdw12: U32::new(nlb),
            ..io(opcode.0, 0, first, 1)
        };
        self.ring.submit(&mut self.world, 1, Sqe { nsid: U32::new(NSID), ..sqe }).unwrap();
        self.settle();
        self.ring.reap(&mut self.world, 1)[0]
    }

    /// A command by capsule; its completion and its data.
    fn capsule(&mut self, sqe: Sqe, data: Vec<u8>) -> (Cqe, Vec<u8>) {
        // Tags count up from what the last one was.
        let probe = self.fabric.send(&mut self.world, 1, Sqe { nsid: U32::new(NSID), ..io(0, 1, 0, 1) });
        self.settle();
        self.fabric.answer(&mut self.world, 1, probe).unwrap();
        let owner = 101;
        self.world.host.data.insert((owner, probe + 1), data);
        let tag = self.fabric.send(&mut self.world, 1, Sqe { nsid: U32::new(NSID), ..sqe });
        assert_eq!(tag, probe + 1);
        self.settle();
        let cqe = self.fabric.answer(&mut self.world, 1, tag).unwrap();
        (cqe, self.world.host.data.remove(&(owner, tag)).unwrap_or_default())
    }

    fn set(&self) -> &OpenChannelSet {
        self.world.drive.vendor().unwrap().as_any().downcast_ref().unwrap()
    }

    fn state(&self, chunk: u32) -> (ChunkState, u32) {
        let chunk = self.set().drive().chunks().get(chunk).unwrap();
        (chunk.state, chunk.wp)
    }

    fn host(&mut self, at: u64, len: usize) -> Vec<u8> {
        self.world.host.ring(Owner(1))[at as usize..][..len].to_vec()
    }
}

/// DW0 and DW1 of a completion.
fn result(cqe: &Cqe) -> u64 {
    u64::from(cqe.dw0.get()) | u64::from(cqe.dw1.get()) << 32
}

/// The address of a block: 2 bits of chunk over 3 bits of block, groups above.
const fn at(chunk: u64, block: u64) -> u64 {
    (chunk / 4) << 5 | (chunk % 4) << 3 | block
}

fn blocks(first: u8, count: usize) -> Vec<u8> {
    (0..count).flat_map(|i| vec![first + i as u8; BLOCK]).collect()
}

const READ: OpenChannelOpcode = OpenChannelOpcode::VECTOR_READ;
const WRITE: OpenChannelOpcode = OpenChannelOpcode::VECTOR_WRITE;
const RESET: OpenChannelOpcode = OpenChannelOpcode::VECTOR_RESET;
const COPY: OpenChannelOpcode = OpenChannelOpcode::VECTOR_COPY;

#[test]
fn geometry_and_the_chunk_log() {
    let mut rig = Rig::new(&OpenChannelConfig { max_open: 5, multiple_reset: true, ..flash() });
    let sqe = Sqe { nsid: U32::new(NSID), ..admin(AdminOpcode(OpenChannelAdmin::GEOMETRY.0), 1, 0, 0) };
    let (cqe, data) = rig.fabric.admin_data(&mut rig.world, sqe);
    assert!(cqe.status().is_success());
    let geometry = Geometry::read_from_bytes(&data[..4096]).unwrap();
    assert_eq!((geometry.mjr, geometry.lbaf), (2, [2, 0, 2, 3]));
    assert_eq!(geometry.mccap.get(), mccap::VECTOR_COPY | mccap::MULTIPLE_RESET);
    let counts = [geometry.num_chk, geometry.clba, geometry.ws_min, geometry.ws_opt, geometry.maxoc, geometry.maxocpu];
    assert_eq!((geometry.num_grp.get(), geometry.num_pu.get()), (3, 1));
    assert_eq!(counts.map(|n| n.get()), [4, 8, 2, 2, 5, 0]);
    assert_eq!(geometry.times.map(|n| n.get()), [40_000, 40_000, 200_000, 200_000, 2_000_000, 2_000_000]);
    // Of another namespace, and of none.
    for (nsid, status) in [(1, Status::INVALID_FIELD), (0, Status::INVALID_NAMESPACE_OR_FORMAT)] {
        let cqe = rig.fabric.admin(&mut rig.world, Sqe { nsid: U32::new(nsid), ..sqe });
        assert!(cqe.status().same_code(status), "{nsid}: {}", cqe.status());
    }
    rig.put(DATA, &blocks(1, 2));
    assert!(rig.vector(WRITE, &[at(5, 0), at(5, 1)], &[]).status().is_success());
    let log = |rig: &mut Rig, offset: u32, dwords: u32| {
        let log = admin(AdminOpcode::GET_LOG_PAGE, 2, u32::from(CHUNK_INFORMATION) | (dwords - 1) << 16, 0);
        let sqe = Sqe { nsid: U32::new(NSID), cdw12: U32::new(offset), ..log };
        rig.fabric.admin_data(&mut rig.world, sqe)
    };
    let (cqe, page) = log(&mut rig, 0, 12 * 8 + 8);
    assert!(cqe.status().is_success());
    let chunk = |page: &[u8], i: usize| ChunkInformation::read_from_bytes(&page[i * 32..][..32]).unwrap();
    let five = chunk(&page, 5);
    assert_eq!((five.cs, five.ct, five.slba.get(), five.cnlb.get(), five.wp.get()), (4, 1, at(5, 0), 8, 2));
    assert_eq!((chunk(&page, 11).cs, chunk(&page, 11).slba.get()), (1, at(11, 0)));
    assert_eq!(chunk(&page, 12), ChunkInformation::default(), "behind the last one");
    // By offset, also in the middle of an entry.
    let (_, part) = log(&mut rig, 5 * 32 + 8, 6);
    assert_eq!(part[..24], page[5 * 32 + 8..6 * 32]);
    assert!(log(&mut rig, 12 * 32 + 4, 1).0.status().same_code(Status::INVALID_FIELD));
    // What there is says so.
    let (_, page) = rig.fabric.admin_data(&mut rig.world, admin(AdminOpcode::GET_LOG_PAGE, 3, 255 << 16, 0));
    let pages = SupportedLogPages::read_from_bytes(&page[..1024]).unwrap();
    assert_eq!(pages.pages[usize::from(CHUNK_INFORMATION)].get(), 1);
    let effects = admin(AdminOpcode::GET_LOG_PAGE, 4, u32::from(lid::EFFECTS) | 1023 << 16, 0);
    let (_, page) = rig.fabric.admin_data(&mut rig.world, effects);
    let effects = Effects::read_from_bytes(&page[..4096]).unwrap();
    assert_eq!(effects.io[0x90..0x96].iter().map(|e| e.get()).collect::<Vec<_>>(), [3, 3, 1, 3, 0, 3]);
    assert_eq!(effects.admin[0xe2].get(), 1);
}

#[test]
fn vectors_move_bytes() {
    let mut rig = Rig::new(&flash());
    // Two write units of two dies in one list, interleaved with nothing lost.
    rig.put(DATA, &blocks(1, 4));
    let written = [at(0, 0), at(0, 1), at(9, 0), at(9, 1)];
    let before = rig.world.now;
    let cqe = rig.vector(WRITE, &written, &[]);
    assert_eq!((cqe.status(), result(&cqe)), (Status::SUCCESS, 0));
    assert_eq!(rig.world.now.saturating_sub(before), Nanos(200_000), "a program on each of two dies");
    assert_eq!((rig.state(0), rig.state(9)), ((ChunkState::Open, 2), (ChunkState::Open, 2)));
    // Read in another order, and one twice.
    let read = [written[3], written[0], written[0], written[2]];
    assert!(rig.vector(READ, &read, &[]).status().is_success());
    let expected: Vec<u8> = [4, 1, 1, 3].into_iter().flat_map(|b| vec![b; BLOCK]).collect();
    assert_eq!(rig.host(DATA, 4 * BLOCK), expected);
    // One address needs no list.
    assert!(rig.vector(READ, &[written[1]], &[]).status().is_success());
    assert_eq!(rig.host(DATA, BLOCK), blocks(2, 1));
    // Copied inside the drive, to another die and in another order.
    let to = [at(4, 0), at(4, 1)];
    assert!(rig.vector(COPY, &[written[3], written[1]], &to).status().is_success());
    assert!(rig.vector(READ, &to, &[]).status().is_success());
    assert_eq!(rig.host(DATA, 2 * BLOCK), [blocks(4, 1), blocks(2, 1)].concat());
    // A reset takes the bytes with it.
    assert!(rig.vector(RESET, &[at(0, 0), at(9, 0)], &[]).status().is_success());
    assert_eq!(rig.state(0), (ChunkState::Free, 0));
    assert!(rig.media[START as usize..][..2 * BLOCK].iter().all(|b| *b == 0));
    let work = rig.world.drive.stats().work;
    assert_eq!((work.reads, work.writes, work.read_bytes), (3, 1, 7 * BLOCK as u64));
}

/// A command with its lists, and what it is refused with.
type Case<'a> = (OpenChannelOpcode, &'a [u64], &'a [u64], Status, u64);

#[test]
fn hostile_lists_are_refused_and_change_nothing() {
    let mut rig = Rig::new(&OpenChannelConfig { max_open: 1, early_reset: false, ..flash() });
    rig.put(DATA, &blocks(1, 2));
    rig.vector(WRITE, &[at(1, 0), at(1, 1)], &[]);
    // The fourth group does not exist.
    const GAP: u64 = 3 << 5;
    let cases: &[Case] = &[
        (READ, &[at(1, 0), GAP, at(1, 1), u64::MAX], &[], Status::LBA_OUT_OF_RANGE, 0b1010),
        (READ, &[at(1, 1), at(1, 2)], &[], Status::DEALLOCATED_BLOCK, 0b10),
        (READ, &[at(2, 0)], &[], Status::DEALLOCATED_BLOCK, 0b1),
        (WRITE, &[at(1, 3), at(1, 2)], &[], Status::OUT_OF_ORDER_WRITE, 0b11),
        (WRITE, &[at(1, 2), at(1, 3), at(1, 2), at(1, 3)], &[], Status::OUT_OF_ORDER_WRITE, 0b1100),
        (WRITE, &[at(1, 2)], &[], Status::INVALID_FIELD, 0b1),
        (WRITE, &[at(2, 0), at(2, 1)], &[], Status::COMMAND_SEQUENCE_ERROR, 0b11),
        (COPY, &[at(1, 0), at(2, 0)], &[at(1, 2), at(1, 3)], Status::DEALLOCATED_BLOCK, 0b10),
        (COPY, &[at(1, 0), at(1, 1)], &[at(1, 0), at(1, 1)], Status::OUT_OF_ORDER_WRITE, 0b11),
        (RESET, &[at(1, 0)], &[], Status::INVALID_RESET, 0b1),
        (RESET, &[at(2, 0)], &[], Status::INVALID_RESET, 0b1),
        (RESET, &[at(1, 0), at(1, 1)], &[], Status::INVALID_FIELD, 0b10),
    ];
    for (opcode, first, second, status, bits) in cases {
        let media = rig.media.clone();
        let cqe = rig.vector(*opcode, first, second);
        assert!(cqe.status().same_code(*status), "{opcode:?} {first:x?}: {}", cqe.status());
        assert_eq!(result(&cqe), *bits, "{opcode:?} {first:x?}");
        assert_eq!((rig.state(1), rig.state(2)), ((ChunkState::Open, 2), (ChunkState::Free, 0)));
        assert_eq!(rig.media, media);
    }
    // A list that is too long, lies askew, or lies nowhere.
    for (address, nlb) in [(LIST, 64), (LIST + 4, 1), (u64::MAX - 7, 1), (1 << 40, 1)] {
        let cqe = rig.raw(READ, address, nlb, 0);
        assert!(!cqe.status().is_success() && !cqe.status().same_code(Status::INTERNAL_ERROR), "{address:#x}");
    }
    assert_eq!(rig.state(1), (ChunkState::Open, 2));
    assert_eq!(rig.world.drive.resize_namespace(NSID, 8192), Err(ManagementError::Fixed));
}

#[test]
fn capsules_carry_what_they_can() {
    let mut rig = Rig::new(&flash());
    // Ordinary writes keep to the write pointer.
    let write = |lba| io(1, 9, lba, 4);
    let (cqe, _) = rig.capsule(write(at(2, 0)), blocks(10, 4));
    assert!(cqe.status().is_success(), "{}", cqe.status());
    for lba in [at(2, 0), at(2, 2), at(2, 6)] {
        assert!(rig.capsule(write(lba), blocks(1, 4)).0.status().same_code(Status::OUT_OF_ORDER_WRITE));
    }
    assert!(rig.capsule(write(at(11, 6)), blocks(1, 4)).0.status().same_code(Status::LBA_OUT_OF_RANGE));
    // What is not written reads as zeroes, beside what is.
    let (cqe, data) = rig.capsule(io(2, 9, at(2, 3), 2), vec![0xee; 2 * BLOCK]);
    assert!(cqe.status().is_success() && data == [blocks(13, 1), blocks(0, 1)].concat());
    // A vector command with one address; a list has no place to lie.
    let (cqe, data) = rig.capsule(io(READ.0, 9, at(2, 1), 1), vec![0; BLOCK]);
    assert!(cqe.status().is_success() && data == blocks(11, 1));
    let (cqe, _) = rig.capsule(io(READ.0, 9, LIST, 2), vec![0; 2 * BLOCK]);
    assert!(cqe.status().same_code(Status::INVALID_FIELD));
    // move-page has its pairs as data.
    let pair = |from, to| MovePair { from: U64::new(from), to: U64::new(to) };
    let pairs = [pair(at(2, 2), at(0, 0)), pair(at(2, 0), at(0, 1))];
    let before = rig.set().drive().host().busy_until(Nanos::from_secs(9));
    let (cqe, _) = rig.capsule(io(OpenChannelOpcode::MOVE_PAGE.0, 9, 0, 2), pairs.as_bytes().to_vec());
    assert_eq!((cqe.status(), result(&cqe)), (Status::SUCCESS, 0));
    assert_eq!(rig.set().drive().host().busy_until(Nanos::from_secs(9)), before);
    let (_, data) = rig.capsule(io(2, 9, at(0, 0), 2), vec![0; 2 * BLOCK]);
    assert_eq!(data, [blocks(12, 1), blocks(10, 1)].concat());
    let twice = [pair(at(2, 2), at(0, 2)), pair(at(2, 2), at(0, 2))];
    let (cqe, _) = rig.capsule(io(OpenChannelOpcode::MOVE_PAGE.0, 9, 0, 2), twice.as_bytes().to_vec());
    assert!(cqe.status().same_code(Status::OUT_OF_ORDER_WRITE) && result(&cqe) == 0b11);
    // Deallocation of a whole chunk resets it; of less it is refused.
    let range = |lba: u64, blocks: u32| {
        let mut bytes = [0u8; 16];
        bytes[4..8].copy_from_slice(&blocks.to_le_bytes());
        bytes[8..].copy_from_slice(&lba.to_le_bytes());
        bytes.to_vec()
    };
    let dsm = Sqe { cdw11: U32::new(4), ..io(9, 9, 0, 1) };
    assert!(rig.capsule(dsm, range(at(2, 0), 7)).0.status().same_code(Status::INVALID_FIELD));
    assert!(rig.capsule(dsm, range(at(2, 0), 8)).0.status().is_success());
    assert_eq!(rig.state(2), (ChunkState::Free, 0));
    // Commands of no set, and of the set on another namespace.
    assert!(rig.capsule(io(0x94, 9, 0, 1), Vec::new()).0.status().same_code(Status::INVALID_OPCODE));
    let tag = rig.fabric.send(&mut rig.world, 1, Sqe { nsid: U32::new(1), ..io(READ.0, 9, 0, 1) });
    rig.settle();
    assert!(rig.fabric.answer(&mut rig.world, 1, tag).unwrap().status().same_code(Status::INVALID_FIELD));
}

/// A set of two commands: one counts, one tells.
#[derive(Debug, Default)]
struct Counter(u64);

impl VendorCommand for Counter {
    fn commands(&self) -> &'static [VendorOpcode] {
        const fn of(queue: VendorQueue, opcode: u8, data: VendorData) -> VendorOpcode {
            VendorOpcode { queue, opcode, data, charge: 0, changes: false }
        }
        &const { [of(VendorQueue::Io, 0xc0, VendorData::None), of(VendorQueue::Admin, 0xc2, VendorData::Bytes(8))] }
    }

    fn serve(
        &mut self,
        now: Nanos,
        request: &VendorRequest,
        port: &mut VendorPort<'_>,
    ) -> Result<VendorAnswer, VendorRefusal> {
        match request.queue {
            VendorQueue::Admin => port.write(0, &self.0.to_le_bytes())?,
            VendorQueue::Io => self.0 += request.second(),
        }
        Ok(VendorAnswer { at: Nanos(now.0 + 500), status: Status::SUCCESS, result: self.0 })
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

#[test]
fn a_set_of_ones_own_leaves_ordinary_commands_alone() {
    let mut world = TestWorld::new(config(|_| {}), 64);
    world.drive.set_vendor(3, Box::<Counter>::default()).unwrap();
    assert!(world.drive.set_vendor(1, Box::<Counter>::default()).is_err(), "one set a drive");
    let mut fabric = Fabric::ready(&mut world, "nqn.gold", 100, ams::RR);
    fabric.add_queue(&mut world, 64, 0).unwrap();
    let count = Sqe { nsid: U32::new(3), cdw14: U32::new(5), cdw15: U32::new(1), ..io(0xc0, 1, 0, 1) };
    let first = fabric.send(&mut world, 1, count);
    world.run();
    assert!(fabric.answer(&mut world, 1, first).is_none(), "its time has not come");
    // One that has begun is not aborted.
    let abort = fabric.admin(&mut world, admin(AdminOpcode::ABORT, 2, 1 | 1 << 16, 0));
    assert_eq!(result(&abort), 1);
    world.pass(Nanos(500));
    world.run();
    assert_eq!(result(&fabric.answer(&mut world, 1, first).unwrap()), 5 | 1 << 32);
    let (cqe, data) = fabric.admin_data(&mut world, Sqe { nsid: U32::new(3), ..admin(AdminOpcode(0xc2), 3, 0, 0) });
    assert!(cqe.status().is_success() && data[..8] == (5u64 | 1 << 32).to_le_bytes());
    let read = fabric.send(&mut world, 1, Sqe { nsid: U32::new(3), ..io(2, 4, 0, 1) });
    world.settle();
    assert!(fabric.answer(&mut world, 1, read).unwrap().status().is_success());
}
