#![no_std]
#![forbid(unsafe_code)]
//! The NVMe controllers of one drive as a state machine: NVMe base 2.0 (2.1 for flexible data placement), NVM
//! command set 1.0, ZNS 1.1, fabrics. Depends on
//! `weir-spec`, `weir-units`, `weir-arbiter` and, for zones, `weir-flash`; knows no sockets, memory, media or clock: they are a port ([`Host`]), effects and `now`.
//!
//! ```text
//!            Event::{Capsule, Submit, SqTail, CqHead, Register}                  Effect::Io        Event::Done
//!  door ──▶ Subsystem::apply ──▶ Sq ──▶ Arbiter::pick ──▶ Slots ──(latency)──▶ executor ──▶ Subsystem::apply ──▶ Host::respond
//!   ▲          │                 waiting                 in flight            media ⇄ Host::{read,write}_data        Host::post
//!   └──────────┴── admin: Identify, features, log pages, async events, abort: answered at once, before I/O
//! ```
//! A [`Subsystem`] is one drive (or the discovery service): controllers in three models share its arbiter and slots.
//! *Fabrics* controllers are made by [`Subsystem::connect`], one per association; their queues are message queues. *Ring*
//! controllers ([`Subsystem::attach`] with [`TransportModel::Rings`]) have registers, doorbells and queues in host memory, reached
//! through [`Host::fetch`] and [`Host::post`]. A *front* controller ([`TransportModel::Front`]) is ready at once and has message
//! queues only ([`Subsystem::add_message_queue`]): the virtio door's.
//!
//! ```
//! use weir_controller::*;
//! use weir_units::{Class, Nanos};
//! # struct Door;
//! # use weir_spec::nvme::{Cqe, Sqe, Status};
//! # impl Host for Door {
//! #     fn fetch(&mut self, _: Owner, _: u64) -> Result<[u64; 8], Status> { Err(Status::DATA_TRANSFER_ERROR) }
//! #     fn post(&mut self, _: Owner, _: u64, _: Option<u16>, _: &Cqe) -> Result<(), Status> { Ok(()) }
//! #     fn interrupt(&mut self, _: Owner, _: u16) {}
//! #     fn respond(&mut self, _: Owner, tag: Tag, cqe: &Cqe) { assert!(tag == Tag(7) && cqe.status().is_success()); }
//! #     fn read_data(&mut self, _: Owner, _: &DataPointer, _: u32, _: &mut [u8]) -> Result<(), Status> { Ok(()) }
//! #     fn write_data(&mut self, _: Owner, _: &DataPointer, _: u32, _: &[u8]) -> Result<(), Status> { Ok(()) }
//! # }
//! # let (mut door, now) = (Door, Nanos(0));
//! let mut config = SubsystemConfig::new("nqn.2026-01.io.weir:ssd0");
//! config.namespaces.push(NamespaceConfig { nsid: 1, start: 0, size: 1 << 30, block_size: 4096, uuid: [1; 16] });
//! config.tenants.push(TenantConfig::new("gold", Class::High));
//! let mut drive = Subsystem::new(config, now).unwrap();
//! let mut effects = Effects::new(256);
//!
//! let owner = Owner(0);
//! let front = drive.attach(now, Attach { tenant: 0, owner, model: TransportModel::Front, host: "gold-0".into() }).unwrap();
//! let queue = drive.add_message_queue(front, 128, None, owner).unwrap();
//! let request = BlockRequest { op: Op::Read, nsid: 1, offset: 8192, len: 4096, fua: false };
//! drive.apply(now, Event::Submit { queue, request, tag: Tag(7) }, &mut door, &mut effects);
//! drive.apply(now, Event::Run, &mut door, &mut effects);
//! let slots: Vec<SlotId> = effects.drain().map(|e| match e {
//!     Effect::Io(io) => io.slot, // move io.len bytes from the media at io.offset to io.data, or start to
//!     Effect::Disconnect { .. } => unreachable!("nothing went wrong"),
//! }).collect();
//! for slot in slots {
//!     drive.apply(now, Event::Done { slot, status: Status::SUCCESS }, &mut door, &mut effects);
//! }
//! assert_eq!(drive.next_deadline(), None);
//! ```
//! The loop of a driver: feed events; `Run`; execute and clear the effects; feed `Done`s; again while [`Subsystem::has_work`].
//! Only `Run` and `Tick` push effects, and only as many as there is room for. At [`Subsystem::next_deadline`] feed `Tick`.
//!
//! **Rooms.** A [`Subsystem`] is a composition of some twenty states, each in the room of its matter. None of them knows the subsystem. What a command
//! does with several of them is an `impl Subsystem` in the same room. Imports run from operations to `subsystem.rs` to states, and in no circle.
//!
//! | Room | States | Operations |
//! |---|---|---|
//! | `queues` | submission and completion queues, a waiting `Command`, interrupts held back | queues come and go; what doors ask |
//! | `io` | `Slots`, `Starting` (a command that has left its queue), `CommandPlan`, `OwnTiming` | arrival, fetch, `start`, completion, abort |
//! | `io/slow_path` | reservations and unreadable blocks, commands that wait for others | fused pairs, copies, restricted namespaces |
//! | `namespace` | `NamespaceTable`: namespaces, allocator, jobs, access | attachment |
//! | `reservation`, `zns`, `vendor`, `tenant` | a state machine each | their commands; limits of tenants |
//! | `controller` | `Controllers`: registers, features, queues of each | enable, reset, shutdown, doorbells, Connect |
//! | `admin` | `AdminState` | a file for each admin command |
//! | `fault` | `Faults`: rules and what they hold | the hook of each command while there are rules, conditions |
//! | `maintenance`, `log_state`, `power` | firmware, self-tests, long work; events, telemetry; SMART, temperature | long work, the temperature |
//! | `saved` | how bytes are written and read | state without power, for an upgrade, after a crash |
//!
//! **Classes.** A queue's class at the drive is its tenant's, unless the tenant's `class_from` lets somebody wish for a lower
//! one, or for urgent where the operator allows it (`tenant/mod.rs`).
//! **Slots.** A command leaves its submission queue only when the arbiter picked it and a slot is free and, on rings, a
//! completion queue entry is reserved. One that does not fit into `slot_bytes` waits and nobody overtakes it.
//!
//! **Data.** Where a command's bytes are is walked by [`Walk`], for the `Host` that has the memory.
//! **Tests.** With the feature `testing` there are hosts, a medium and an oracle for them: `testing::TestWorld`.
//! **Limits.** Controllers are dynamic only. An association ends with its admin queue's connection.

extern crate alloc;

mod admin;
mod check;
mod config;
mod controller;
mod data_pointer;
mod error;
mod event;
mod fault;
mod host;
mod io;
mod log_state;
mod maintenance;
mod namespace;
mod operator;
mod power;
mod queues;
mod reservation;
mod saved;
mod stats;
mod subsystem;
mod tenant;
#[cfg(feature = "testing")]
pub mod testing;
mod vendor;
mod zns;

pub use config::{
    ClassFrom, Cost, DiscoveryRecord, Management, NamespaceConfig, SubsystemConfig, SubsystemKind, TenantConfig,
    ZonedNamespace,
};
pub use controller::fabrics::{ConnectError, ConnectRequest, Connected};
pub use controller::memory_buffer::{CMB_BAR, MemoryBuffer};
pub use data_pointer::{DESCRIPTORS_MAX, DataPiece, Direction, Walk};
pub use error::ManagementError;
pub use event::{BlockRequest, ControllerHandle, Effect, Effects, Event, Io, Op, SlotId, SqHandle};
pub use fault::operator::RuleState;
pub use fault::transfer::{SpoiledTransfer, SpoiledTransfers};
pub use host::{Data, DataPointer, Host, Owner, RingCompletion, Tag};
pub use io::charge::{COST_MAX, ChargedCommand, CostPolicy};
pub use io::timing::{Operation, TimingModel};
pub use maintenance::firmware::firmware_image;
pub use namespace::access::{AnaScope, AnaState};
pub use namespace::metadata::{Format, METADATA_SHIFT, Metadata};
pub use namespace::ns_allocator::granule;
pub use power::failing_media::{FAILING_FOR, FailingBlock, FailingDie};
pub use queues::shadow::{Shadow, ShadowPages};
pub use saved::checkpoint::{QueuePosition, Resubmission, RingPlace, VERSION as CHECKPOINT_VERSION};
pub use saved::fabrics::{VERSION as ASSOCIATION_VERSION, WithDrive};
pub use saved::in_flight::{Begun, VERSION as BEGUN_VERSION};
pub use saved::journals::{Journals, RecoveredController, Trouble};
pub use saved::nonvolatile::VERSION as NONVOLATILE_VERSION;
pub use saved::pcie::VERSION as FUNCTION_VERSION;
pub use stats::{ControllerInfo, DriveStats, QueueInfo, ServiceTimes, TenantStats, Work};
pub use subsystem::{Attach, Subsystem, TransportModel};
pub use tenant::latency::{LATENCY_BOUNDS, Latencies, LatencyCounts};
pub use tenant::reserve::{Share, default_reserve, may_have_one_more};
pub use tenant::sla::{Attainment, Judge, PERIOD, PeriodFigures, TOLERANCE};
pub use vendor::{
    OpenChannelSet, VendorAnswer, VendorCommand, VendorData, VendorOpcode, VendorPort, VendorQueue, VendorRefusal,
    VendorRequest,
};
pub use weir_codec::SavedError;
pub use weir_fault::{DriveFacts, FaultRule, FlashPlace, FlashShape, PlannedFault, PlannedState, RuleError};
pub use weir_flash::{Zone, ZoneConfig, ZoneState, ZonedConfig, Zones, Zrwa};
pub use zns::ZoneLoss;
