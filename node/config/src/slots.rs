//! How many commands a drive works on at once, which it has from its profile where nothing else says so.

use super::read::{Section, integer};

/// What `slots` may be.
pub(super) const COMMANDS: std::ops::RangeInclusive<u64> = 1..=4096;

/// How many commands a drive works on at once (`slots`), where its configuration does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Where one tenant has it: no fewer than it takes to keep the drive busy.
    pub alone: u16,
    /// Where several tenants share it: fewer than a busy tenant has in flight, so that its commands wait where they are arbitrated.
    pub shared: u16,
}

impl Slots {
    /// Of a drive of which nothing is known.
    pub const DEFAULT: Slots = Slots { alone: 64, shared: 64 };

    /// What a profile's file says.
    pub(super) fn read(root: &Section<'_>) -> Slots {
        let number = |key| root.get(key, integer(COMMANDS)).map(|n| n as u16);
        let alone = number("slots").unwrap_or(Slots::DEFAULT.alone);
        let shared = number("shared_slots").unwrap_or(alone);
        if shared > alone {
            root.fault("shared_slots", format_args!("{shared} is more than the drive has alone, slots = {alone}"));
        }
        Slots { alone, shared }
    }
}
