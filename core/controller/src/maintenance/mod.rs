//! What a drive does for itself: long work in the background, sanitizing, self-tests, firmware.

mod background;
pub(crate) mod firmware;
pub(crate) mod job;
pub(crate) mod lockdown;
pub(crate) mod sanitize;
pub(crate) mod self_test;
