//! What Lockdown prohibits (base 2.0, 5.19).

use alloc::collections::BTreeSet;

/// What is prohibited.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prohibited {
    pub opcodes: BTreeSet<u8>,
    pub features: BTreeSet<u8>,
}

impl Prohibited {
    pub fn is_nothing(&self) -> bool {
        self.opcodes.is_empty() && self.features.is_empty()
    }
}
