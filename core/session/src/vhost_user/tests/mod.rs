//! A guest made of bytes: messages and raw rings against the device machine, over model memory.

mod crash;
mod guest;
mod handover;
mod hostile;
mod log;
mod messages;
mod packed;
mod requests;
mod rings;

use guest::chain;
