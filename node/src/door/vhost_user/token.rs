//! What the reactor and the drive call this door's sockets, queues and front ends.

use crate::tokens::{self, Kind, token};
use weir_controller::Owner;

/// What a token of this door is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watched {
    Listener,
    Socket,
    Kick(u16),
}

/// Export in bits 15:0, generation in 31:16, what in 33:32, queue in 55:40.
pub(super) fn encode(export: u16, generation: u16, what: Watched) -> u64 {
    let (kind, queue) = match what {
        Watched::Listener => (0, 0),
        Watched::Socket => (1, 0),
        Watched::Kick(queue) => (2, queue),
    };
    token(Kind::VhostUser, u64::from(export) | u64::from(generation) << 16 | kind << 32 | u64::from(queue) << 40)
}

pub(super) fn decode(rest: u64) -> (u16, u16, Watched) {
    let what = match rest >> 32 & 3 {
        0 => Watched::Listener,
        1 => Watched::Socket,
        _ => Watched::Kick((rest >> 40) as u16),
    };
    (rest as u16, (rest >> 16) as u16, what)
}

/// Export in bits 11:0, generation in 27:12.
pub(super) fn owner(export: u16, generation: u16) -> Owner {
    tokens::owner(Kind::VhostUser, u32::from(export) | u32::from(generation) << 12)
}
