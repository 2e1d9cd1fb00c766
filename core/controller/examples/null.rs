//! Nanoseconds a command of controller, arbiter and a media that does nothing, alone: one ring queue at depth 128.
//!
//! `cargo run --release -p weir-controller --example null [COMMANDS]`

use std::time::Instant;
use weir_arbiter::{ArbiterSettings, Mechanism};
use weir_controller::{
    Attach, ControllerHandle, DataPointer, Effect, Effects, Event, Host, NamespaceConfig, Owner, Subsystem,
    SubsystemConfig, Tag, TenantConfig, TransportModel,
};
use weir_spec::nvme::{AdminOpcode, Cqe, IoOpcode, Sqe, Status, register};
use weir_units::{Class, Nanos};
use zerocopy::little_endian::{U16, U32, U64};

const DEPTH: usize = 128;
const ENTRIES: usize = 256;
const ACQ: u64 = 0x1000;
const SQ: u64 = 0x2000_0000;
const CQ: u64 = 0x3000_0000;

/// Host memory: an admin entry, one submission and one completion ring.
struct Rings {
    admin: Sqe,
    sq: Vec<Sqe>,
    cq: Vec<Cqe>,
}

impl Host for Rings {
    fn fetch(&mut self, _: Owner, address: u64) -> Result<[u64; 8], Status> {
        Ok(match address.checked_sub(SQ) {
            Some(offset) => self.sq[offset as usize / 64].words(),
            None => self.admin.words(),
        })
    }
    fn post(&mut self, _: Owner, address: u64, _: Option<u16>, cqe: &Cqe) -> Result<(), Status> {
        match address.checked_sub(CQ) {
            Some(offset) => self.cq[offset as usize / 16] = *cqe,
            None => assert!(cqe.status().is_success(), "{}", cqe.status()),
        }
        Ok(())
    }
    fn interrupt(&mut self, _: Owner, _: u16) {}
    fn respond(&mut self, _: Owner, _: Tag, _: &Cqe) {}
    fn read_data(&mut self, _: Owner, _: &DataPointer, _: u32, _: &mut [u8]) -> Result<(), Status> {
        Ok(())
    }
    fn write_data(&mut self, _: Owner, _: &DataPointer, _: u32, _: &[u8]) -> Result<(), Status> {
        Ok(())
    }
}

struct Bench {
    drive: Subsystem,
    rings: Rings,
    effects: Effects,
    controller: ControllerHandle,
    admin_tail: u32,
}

impl Bench {
    fn new(mechanism: Mechanism) -> Self {
        let mut config = SubsystemConfig::new("nqn.2026-01.io.weir:null");
        config.arbitration = ArbiterSettings::new(mechanism);
        config.slots = DEPTH as u32;
        config.tenants.push(TenantConfig::new("one", Class::High));
        config.namespaces.push(NamespaceConfig { nsid: 1, start: 0, size: 1 << 40, block_size: 4096, uuid: [0; 16] });
        let mut drive = Subsystem::new(config, Nanos(0)).expect("the configuration is good");
        let attach = Attach { tenant: 0, owner: Owner(1), model: TransportModel::Rings, host: "null".into() };
        let controller = drive.attach(Nanos(0), attach).expect("there is room");
        let rings =
            Rings { admin: Sqe::default(), sq: vec![Sqe::default(); ENTRIES], cq: vec![Cqe::default(); ENTRIES] };
        let mut bench = Bench { drive, rings, effects: Effects::new(256), controller, admin_tail: 0 };
        for (offset, value) in
            [(register::AQA, 0x000f_000f), (register::ASQ, 0), (register::ACQ, ACQ), (register::CC, 0x0046_0001)]
        {
            let size = register::size_at(offset).unwrap_or(4);
            bench.event(Event::Register { controller, offset, value, size });
        }
        let size = (ENTRIES as u32 - 1) << 16 | 1;
        bench.admin(AdminOpcode::CREATE_IO_CQ, CQ, size, 1);
        bench.admin(AdminOpcode::CREATE_IO_SQ, SQ, size, 1 << 16 | 1);
        bench
    }

    fn event(&mut self, event: Event) {
        self.drive.apply(Nanos(0), event, &mut self.rings, &mut self.effects);
    }

    fn admin(&mut self, opcode: AdminOpcode, prp: u64, cdw10: u32, cdw11: u32) {
        let (cdw10, cdw11) = (U32::new(cdw10), U32::new(cdw11));
        self.rings.admin = Sqe { opcode: opcode.0, dptr: [U64::new(prp), U64::ZERO], cdw10, cdw11, ..Sqe::default() };
        self.admin_tail += 1;
        self.event(Event::SqTail { controller: self.controller, qid: 0, tail: self.admin_tail });
        self.event(Event::Run);
    }

    /// Keeps `DEPTH` reads in flight until `commands` are done; answers the nanoseconds each took.
    fn measure(&mut self, commands: u64) -> f64 {
        let controller = self.controller;
        let (mut tail, mut head, mut phase, mut submitted, mut done) = (0usize, 0usize, true, 0u64, 0u64);
        let mut lba = 0u64;
        let start = Instant::now();
        while done < commands {
            while submitted - done < DEPTH as u64 && submitted < commands {
                let sqe = &mut self.rings.sq[tail];
                (sqe.opcode, sqe.nsid, sqe.cid) = (IoOpcode::READ.0, U32::new(1), U16::new(submitted as u16));
                lba = lba.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                sqe.set_slba(lba >> 40);
                tail = (tail + 1) % ENTRIES;
                submitted += 1;
            }
            self.event(Event::SqTail { controller, qid: 1, tail: tail as u32 });
            self.event(Event::Run);
            for i in 0..self.effects.len() {
                if let Effect::Io(io) = self.effects.as_slice()[i] {
                    self.event(Event::Done { slot: io.slot, status: Status::SUCCESS });
                }
            }
            self.effects.clear();
            while self.rings.cq[head].phase() == phase {
                assert!(self.rings.cq[head].status().is_success());
                head += 1;
                if head == ENTRIES {
                    (head, phase) = (0, !phase);
                }
                done += 1;
            }
            self.event(Event::CqHead { controller, qid: 1, head: head as u32 });
        }
        start.elapsed().as_nanos() as f64 / commands as f64
    }
}

fn main() {
    let commands = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(20_000_000);
    for mechanism in [Mechanism::None, Mechanism::Rr, Mechanism::Wrr, Mechanism::Drr] {
        // The phase of the ring starts anew with each drive.
        let warm = Bench::new(mechanism).measure(commands / 20);
        let mut runs: Vec<f64> = (0..3).map(|_| Bench::new(mechanism).measure(commands)).collect();
        runs.sort_by(f64::total_cmp);
        println!(
            "{mechanism:?}: {:.1} ns a command (three runs: {:.1} to {:.1}; warm-up {warm:.1})",
            runs[1], runs[0], runs[2]
        );
    }
}
