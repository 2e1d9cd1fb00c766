//! What a drive keeps for admin commands.

use crate::admin::exactly_once::ExactlyOnce;
use crate::controller::Features;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use weir_spec::nvme::identify::IDENTIFY_LEN;
use weir_units::Nanos;

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct AdminState {
    /// Controllers with admin commands, in turn.
    pub ready: VecDeque<u32>,
    /// Controllers whose tenant has spent its admin commands.
    pub held: Vec<u32>,
    /// Commands served so far.
    pub served: u64,
    /// Commands that may come again after a crash, and are done; the oldest first.
    pub executed: ExactlyOnce,
    /// The values that features have when a controller is enabled.
    pub saved_features: Features,
    /// No keep alive timer expires before this.
    pub next_expiry: Nanos,
    /// For answers; `IDENTIFY_LEN` bytes.
    pub scratch: Box<[u8]>,
}

impl AdminState {
    pub fn new(volatile_write_cache: bool) -> Self {
        Self {
            ready: VecDeque::new(),
            held: Vec::new(),
            served: 0,
            executed: ExactlyOnce::default(),
            saved_features: Features::new(volatile_write_cache),
            next_expiry: Nanos::NEVER,
            scratch: alloc::vec![0; IDENTIFY_LEN].into(),
        }
    }
}
