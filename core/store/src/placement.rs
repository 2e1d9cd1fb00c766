//! Placement: which region a block comes from.
//!
//! ```text
//!  PlacementEvent::Ask ─► own regions ─► a free region (Lease) ─► another service (Forward) ─► the directory again (Look) ─► next class
//!                             └──────────────── Grant ─► Granted ─► next copy … ─► Answer
//! ```
//! **Horizontal tiering.** Blocks are taken of the first class of the file's list as long as any region of that class anywhere has room;
//! then of the next, however far the first one was. Before the machine goes on to the next class, every other service that has regions
//! of the better one was asked in this request and had none, the directory of regions was read again after that, and this service's own
//! regions are looked at last. A service that does not answer before the deadline is left out: its regions cannot be had.
//! Location only breaks ties inside a class.
//!
//! **Balance.** Of several nodes that are equally good, the one with most free bytes in the class gives the blocks, and of its regions the
//! one with most.
//!
//! **Copies** are placed one after the other, each by the same rule, on nodes that have none of the copies before it. The first is as near
//! as possible to where the file should be; the others share as few parts of their location as possible with the copies before them
//! (another hall, else another rack), so that what fails together does not have all of them. Like nearness that breaks ties inside a class: a
//! better class in the same rack goes before a worse one in another. A request is
//! answered with as many blocks of each copy as the poorest of them has, and at least one; what is too much is given back.
//!
//! A request that was forwarded is answered from the service's own regions and free ones alone, so that it never goes in a circle.
//! What is not here: the deadline of a forward (whoever sends it says [`ForwardAnswer::Silent`]), demotion and drain (movement).

mod ask;
mod directory;
mod rooms;

#[cfg(test)]
mod tests;

pub use ask::{
    AskId, CopyGrant, ForwardAnswer, GrantAnswer, Placement, PlacementAsk, PlacementEffect, PlacementError,
    PlacementEvent,
};
pub use directory::{BlockWish, OwnRoom, RegionEntry};
