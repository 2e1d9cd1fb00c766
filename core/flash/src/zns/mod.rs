//! A zoned namespace (ZNS command set 1.1) on flash: no page map, the host writes each zone from its beginning to its end.
//!
//! ```text
//!  write, append, open, close, finish, reset ──> Zones       states, write pointers, limits; pure, in blocks
//!                         │ accepted
//!                         └──> ZonedFlash ──> Stripe          which block and page of which plane
//!                                         └─> Array           program when a page is full, erase on reset; when it is done
//! ```

mod config;
mod drive;
mod manage;
#[cfg(test)]
mod model;
mod power_loss;
#[cfg(test)]
mod power_loss_tests;
mod stripe;
#[cfg(test)]
mod tests;
mod zones;

pub use config::{ZoneConfig, ZoneConfigError, Zrwa};
pub use drive::{Placed, ZonedBuffer, ZonedConfig, ZonedError, ZonedFlash};
pub use manage::Selection;
pub use stripe::{Stripe, StripeError};
pub use zones::{Zone, ZoneAction, ZoneError, ZoneState, Zones};
