//! In which class a controller's queues are served: what Weir says of it in the vendor specific part of Identify Controller, since no
//! standard field does (docs/reference/formats.md).

use super::identify::IdentifyController;
use super::wire::wire;
use zerocopy::FromBytes;

/// [`ControllerClass::magic`] of a controller that says it.
pub const MAGIC: [u8; 4] = *b"WEIR";
/// [`ControllerClass::version`].
pub const VERSION: u8 = 1;

/// Bits of [`ControllerClass::wishes`].
pub mod wishes {
    /// What CATTR or QPRIO say of a queue counts, up to the class.
    pub const COUNT: u8 = 1 << 0;
    /// They may say urgent.
    pub const URGENT: u8 = 1 << 1;
}

wire! {
    /// First bytes of the vendor specific part of Identify Controller: in which class the controller's queues are, which no standard
    /// field says.
    ControllerClass: 8 {
        /// [`MAGIC`].
        magic: [u8; 4] = 0,
        /// [`VERSION`].
        version: u8 = 4,
        /// The class of the tenant that the host belongs to, as QPRIO has it.
        class: u8 = 5,
        /// What a queue's own wish does: see [`wishes`].
        wishes: u8 = 6,
        /// Reserved.
        rsvd7: u8 = 7,
    }
}

impl IdentifyController {
    /// In which class its queues are; `None` where it does not say.
    pub fn class(&self) -> Option<&ControllerClass> {
        let (class, _) = ControllerClass::ref_from_prefix(&self.vs).ok()?;
        (class.magic == MAGIC && class.version == VERSION).then_some(class)
    }
}
