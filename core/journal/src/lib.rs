#![no_std]
#![forbid(unsafe_code)]
//! What is in flight, and what to do with it after a crash: the journal of a queue, in memory that outlives the process.
//!
//! Source: Xue et al., "Spool: Reliable Virtualized NVMe Storage Pool in Public Cloud Infrastructure" (USENIX ATC 2020),
//! sections 4.2 to 4.4, Algorithms 1 and 2. Depends on `weir-spec` for the indices of packed rings; the memory is the port [`JournalMemory`].
//!
//! ```text
//!   JournalRegion ─ header: magic, version, length, shape
//!                 ├ queue 0: [merge word][used word][start word] entries ...
//!                 └ queue 1: ...
//!   JournalRegion::ring ─► FoundRing::Fresh ──begin──► RingJournal    take ─► done ─► published         (a virtqueue)
//!                          └► FoundRing::Left ──recover─► RingJournal + RecoveredRing
//!   JournalRegion::nvme ─► FoundNvme, the same ──► NvmeJournal    take ─► (decide) ─► done ─► posted (a submission queue)
//! ```
//!
//! **The merge.** A request's head, the index up to which requests have been taken and the state START lie in one 64-bit
//! word and are stored at once, so a crash cannot come between "taken" and "known to be taken": while the state is START the
//! request of the word's head counts as in flight, whatever its entry says.
//!
//! | Algorithm 1 | store here | [`CrashPoint`] where a crash came after it |
//! |---|---|---|
//! | 2 to 5 | merge word: START, `last_idx`, head | [`CrashPoint::Merged`] |
//! | 6 | entry: INFLIGHT | [`CrashPoint::Marked`] |
//! | 7, then 8 and 9 | merge word: FINISHED | [`CrashPoint::InFlight`] |
//! | 10 | used word: `used_idx` | [`CrashPoint::Counted`] |
//! | 11, then 12 | entry: DONE | [`CrashPoint::Done`] |
//! | 13, the ring's own | | [`CrashPoint::Published`] |
//! | 14 | entry: NONE | [`CrashPoint::Idle`] |
//!
//! In Algorithm 2 `used_idx` is the ring's own and `last_used_idx` is what step 10 stored. A batch is published at once: the
//! entries that are DONE belong to one batch, the last, since step 14 comes before the next completion's step 10.
//!
//! **Orders.** A crash of the process cuts its stores off in program order (the kernel that ends it, and the death notice,
//! order them for the successor), so what must be kept in order is what the compiler does. Every store is `Release`: that
//! forbids the compiler to move it before an earlier one, costs nothing on x86, and lets a live observer who sees one store
//! (`Acquire`) see all before it. What counts while a queue runs is in the process, so a front end that writes into its
//! region harms nobody but itself: at the next recovery, where every field is checked, and through the one word that is read back, the
//! guest address in a packed ring's entry ([`RingJournal::endangered`]), which is checked like any that a driver gives.
//!
//! **Packed rings.** What is in flight in a split ring still stands in the descriptor table. In a packed one used descriptors are written
//! over the ring from slot to slot. The entry has the first one, so a chain of one slot (a table, which is what drivers make) has nothing to lose, nor
//! one that is completed in the order of the ring. The descriptors of others are kept in the region before they are overwritten, and only then
//! ([`RingJournal::endangered`]). So a request costs a packed ring two stores more than a split one.
//!
//! **The region is the front end's, its order ours.** It is handed out by vhost-user's GET_INFLIGHT_FD, whose users only
//! keep it; the layout is private (`docs/reference/formats.md`).
//!
//! **NVMe.** (`weir_controller::Journals` is who keeps them.) An entry has the command's 64 bytes, because the host may overwrite the submission queue's slot. DONE has the completion and its place,
//! so it is posted again, at the same place, rather than executed again. Between the effect of a command and DONE
//! there is room for a crash, so a command that must not be executed twice is first DECIDED: its completion is
//! stored, and with it what remains to be done, which can be repeated (an append's address, a compare that has
//! been passed).

extern crate alloc;

mod crash_point;
mod error;
mod layout;
mod memory;
mod nvme;
mod recover;
mod region;
mod ring;

pub use crash_point::CrashPoint;
pub use error::{Damage, OpenError};
pub use layout::{HEADER_BYTES, MAGIC, VERSION};
pub use memory::JournalMemory;
pub use nvme::{FoundNvme, LeftNvme as NvmeLeft, NvmeJournal, Owed, RecoveredNvme as NvmeRecovered};
pub use recover::{FoundRing, FreshRing, LeftRing, RecoveredRing};
pub use region::{JournalRegion, JournalShape, QueueKind};
pub use ring::{Descriptor, InRing, RingJournal, RingKind};
