//! The tokens by which the reactor tells the door what has something to say.

use crate::tokens::{Kind, token};

/// What a token of this door is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watched {
    Listener,
    Input,
    Output,
}

/// Export in bits 15:0, generation in 31:16, what in 33:32.
pub(super) fn encode(export: u16, generation: u16, what: Watched) -> u64 {
    token(Kind::VfioUser, u64::from(export) | u64::from(generation) << 16 | (what as u64) << 32)
}

/// The inverse of [`encode`], of a token without its kind.
pub(super) fn decode(rest: u64) -> (u16, u16, Watched) {
    let what = match rest >> 32 & 3 {
        0 => Watched::Listener,
        1 => Watched::Input,
        _ => Watched::Output,
    };
    (rest as u16, (rest >> 16) as u16, what)
}
