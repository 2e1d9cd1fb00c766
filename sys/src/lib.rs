//! What touches the machine: memory that outlives a process, the event loop, where a drive's bytes live, sockets.
//! The only crate with `unsafe`; each block says why it is sound.
//!
//! ```text
//!   arena    Arena ─────────► Ram          named shared memory, checked when it is opened (docs/reference/formats.md)
//!   reactor  Reactor ───────► FileMedia    io_uring: watched descriptors, file operations, sleeping and waking
//!            Sender ─wakes──►              messages from other threads
//!   media    Media {Store {Null, Ram}, File}
//!   memory   GuestMemory                  a front end's memory, mapped; the Memory port of weir-session
//!   sched    cores, run-queue wait and when it was, who is at the other end of a socket and how the kernel ranks it
//!   keeper_channel   named descriptors that outlive a worker, and its words with the keeper
//!   exec     a process that goes on as another program, with its descriptors
//!   exit     what is done when the process ends in good order
//!   robust_futex     whether the threads of another process still live
//!   lock     files and addresses that one process has, also right after that one was killed
//!   signals  to be waited for beside descriptors
//!   pci      NVMe drives of this machine, and which driver has each
//!   policy_library  policies of flash drives in shared libraries of others
//!   prefetch hints for a model's large arrays: prefetch, huge pages
//!   crc      CRC32C for NVMe/TCP digests
//!   coverage what the compiler counts in a build for fuzzing
//!   transport  queue pairs over sockets and shared rings, for `weir bench` and for drives made of drives
//!   vfio     a PCI device that is this program's alone: registers, DMA memory, interrupts
//! ```
//!
//! Decides nothing about NVMe: machines in `core` say what is to be done, `weir-node` calls this crate to do it.
//! Linux 5.13 or newer (6.1 for its full speed), 64 bits.

pub mod arena;
pub mod copies;
pub mod coverage;
pub mod crc;
pub mod exec;
pub mod exit;
pub mod keeper_channel;
pub mod lock;
pub mod media;
pub mod memory;
pub mod pci;
pub mod policy_library;
pub mod prefetch;
pub mod reactor;
pub mod robust_futex;
pub mod sched;
pub mod signals;
pub mod systemd;
pub mod transport;
pub mod vfio;
