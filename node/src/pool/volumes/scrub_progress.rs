//! How far a comparison of copies is.

use weir_pool::VolumeId;

/// A comparison that is under way, or the last one that was.
#[derive(Clone, Debug)]
pub(super) struct ScrubProgress {
    /// Where copies differ, the second one is written anew.
    pub repair: bool,
    /// The volume that is compared, or the next one after it.
    pub volume: VolumeId,
    /// The next chunk of it.
    pub at: u32,
    pub compared: u64,
    pub differing: u64,
    pub failed: u64,
    pub running: bool,
}
