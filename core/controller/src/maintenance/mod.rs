//! What a drive does for itself: long work in the background, sanitizing, self-tests, firmware.

use crate::maintenance::firmware::Firmware;
use crate::maintenance::job::Background;
use crate::maintenance::lockdown::Prohibited;
use crate::maintenance::sanitize::Sanitize;
use crate::maintenance::self_test::SelfTest;

mod background;
pub(crate) mod firmware;
pub(crate) mod job;
pub(crate) mod lockdown;
pub(crate) mod sanitize;
pub(crate) mod self_test;

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Maintenance {
    /// Long work of the drive itself.
    pub background: Background,
    pub sanitize: Sanitize,
    pub firmware: Firmware,
    pub self_test: SelfTest,
    pub prohibited: Prohibited,
}

impl Maintenance {
    /// Of a drive with that firmware that has nothing to do.
    pub fn new(firmware: &str) -> Self {
        Self {
            background: Background::default(),
            sanitize: Sanitize::default(),
            firmware: Firmware::new(firmware),
            self_test: SelfTest::default(),
            prohibited: Prohibited::default(),
        }
    }
}
