//! Reservations of namespaces (base 2.0, 7.2 to 7.5 and 8.19): the fields of their commands, what the commands carry, what is
//! reported and what is notified.

use super::opcode::codes;
use super::wire::{bits, wire};
use zerocopy::little_endian::{U16, U32, U64};

codes! {
    /// RTYPE: the type of a reservation (base 2.0, Figure 401).
    ReservationType: u8 {
        WRITE_EXCLUSIVE = 1,
        EXCLUSIVE_ACCESS = 2,
        WRITE_EXCLUSIVE_REGISTRANTS = 3,
        EXCLUSIVE_ACCESS_REGISTRANTS = 4,
        WRITE_EXCLUSIVE_ALL = 5,
        EXCLUSIVE_ACCESS_ALL = 6,
    }
}

codes! {
    /// RREGA: what Reservation Register does.
    RegisterAction: u8 {
        REGISTER = 0,
        UNREGISTER = 1,
        REPLACE = 2,
    }
}

codes! {
    /// RACQA: what Reservation Acquire does.
    AcquireAction: u8 {
        ACQUIRE = 0,
        PREEMPT = 1,
        PREEMPT_AND_ABORT = 2,
    }
}

codes! {
    /// RRELA: what Reservation Release does.
    ReleaseAction: u8 {
        RELEASE = 0,
        CLEAR = 1,
    }
}

codes! {
    /// The type of a notification (base 2.0, Reservation Notification log page).
    NotificationType: u8 {
        EMPTY = 0,
        REGISTRATION_PREEMPTED = 1,
        RESERVATION_RELEASED = 2,
        RESERVATION_PREEMPTED = 3,
    }
}

bits! {
    /// CDW10 of Reservation Register, Acquire and Release.
    ReservationDw10: u32 {
        /// RREGA, RACQA or RRELA.
        action, with_action: 2, 0;
        /// IEKEY: the current key is not looked at.
        iekey, with_iekey: 3, 3;
        /// RTYPE of Acquire and Release.
        rtype, with_rtype: 15, 8;
        /// CPTPL of Register: [`cptpl`].
        cptpl, with_cptpl: 31, 30;
    }
}

/// CPTPL: whether the state persists through power loss from now on (base 2.0, 7.3).
pub mod cptpl {
    /// As before.
    pub const KEEP: u32 = 0;
    /// Reserved.
    pub const RESERVED: u32 = 1;
    /// Released and cleared at power on.
    pub const CLEAR: u32 = 2;
    /// Persists.
    pub const PERSIST: u32 = 3;
}

/// CDW11 bit 0 of Reservation Report: the extended data structure, for 128-bit host identifiers.
pub const EDS: u32 = 1;

/// Bits of RESCAP (NVM 1.0, Identify Namespace).
pub mod rescap {
    /// Reservations can persist through power loss.
    pub const PERSIST: u8 = 1;
    /// All six types, bits 6:1.
    pub const ALL_TYPES: u8 = 0b0111_1110;
    /// IEKEY is as in version 1.3 and later: of Register only.
    pub const IEKEY_1_3: u8 = 1 << 7;
}

/// Bits of the Reservation Notification Mask, feature 82h: the notifications that are not wanted.
pub mod notification_mask {
    /// Registration preempted.
    pub const REGISTRATION_PREEMPTED: u32 = 1 << 1;
    /// Reservation released.
    pub const RESERVATION_RELEASED: u32 = 1 << 2;
    /// Reservation preempted.
    pub const RESERVATION_PREEMPTED: u32 = 1 << 3;
    /// All that there are.
    pub const ALL: u32 = 0b1110;
}

wire! {
    /// What Reservation Register carries.
    RegisterData: 16 {
        /// Current reservation key.
        crkey: U64 = 0,
        /// New reservation key.
        nrkey: U64 = 8,
    }
}

wire! {
    /// What Reservation Acquire carries.
    AcquireData: 16 {
        /// Current reservation key.
        crkey: U64 = 0,
        /// The key to be preempted.
        prkey: U64 = 8,
    }
}

wire! {
    /// What Reservation Release carries.
    ReleaseData: 8 {
        /// Current reservation key.
        crkey: U64 = 0,
    }
}

wire! {
    /// The head of what Reservation Report answers; extended, it is followed by 40 reserved bytes.
    ReservationStatus: 24 {
        /// Generation: counts changes of registrations.
        generation: U32 = 0,
        /// Type of the reservation; 0: there is none.
        rtype: u8 = 4,
        /// Registered controllers.
        regctl: U16 = 5,
        /// Reserved.
        rsvd7: [u8; 2] = 7,
        /// Whether the state persists through power loss.
        ptpls: u8 = 9,
        /// Reserved.
        rsvd10: [u8; 14] = 10,
    }
}

/// Bytes of the head with EDS.
pub const STATUS_EXTENDED: usize = 64;

wire! {
    /// A registered controller.
    RegisteredController: 24 {
        /// Controller identifier; FFFFh where there is none now.
        cntlid: U16 = 0,
        /// Bit 0: its host holds the reservation.
        rcsts: u8 = 2,
        /// Reserved.
        rsvd3: [u8; 5] = 3,
        /// 64-bit host identifier.
        hostid: [u8; 8] = 8,
        /// Reservation key.
        rkey: U64 = 16,
    }
}

wire! {
    /// A registered controller with EDS.
    RegisteredControllerExtended: 64 {
        /// Controller identifier; FFFFh where there is none now.
        cntlid: U16 = 0,
        /// Bit 0: its host holds the reservation.
        rcsts: u8 = 2,
        /// Reserved.
        rsvd3: [u8; 5] = 3,
        /// Reservation key.
        rkey: U64 = 8,
        /// 128-bit host identifier.
        hostid: [u8; 16] = 16,
        /// Reserved.
        rsvd32: [u8; 32] = 32,
    }
}

wire! {
    /// The Reservation Notification log page, 80h.
    ReservationNotification: 64 {
        /// Counts notifications of the controller; 0: there is none.
        count: U64 = 0,
        /// [`NotificationType`].
        kind: u8 = 8,
        /// Further pages that can be read.
        available: u8 = 9,
        /// Reserved.
        rsvd10: [u8; 2] = 10,
        /// The namespace.
        nsid: U32 = 12,
        /// Reserved.
        rsvd16: [u8; 48] = 16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn fields_lie_where_the_standard_has_them() {
        let dw10 = ReservationDw10(0).with_action(2).with_iekey(1).with_rtype(6).with_cptpl(cptpl::PERSIST);
        assert_eq!(dw10.0, 0xc000_060a);
        let data = RegisterData { crkey: U64::new(0x1122), nrkey: U64::new(0x3344) };
        assert_eq!(data.as_bytes(), [0x22, 0x11, 0, 0, 0, 0, 0, 0, 0x44, 0x33, 0, 0, 0, 0, 0, 0]);
        let head = ReservationStatus {
            generation: U32::new(7),
            rtype: 3,
            regctl: U16::new(258),
            ptpls: 1,
            ..Default::default()
        };
        assert_eq!(head.as_bytes()[..12], [7, 0, 0, 0, 3, 2, 1, 0, 0, 1, 0, 0]);
        let one = RegisteredController {
            cntlid: U16::new(0xffff),
            rcsts: 1,
            hostid: [5; 8],
            rkey: U64::new(9),
            ..Default::default()
        };
        assert_eq!(one.as_bytes()[..9], [0xff, 0xff, 1, 0, 0, 0, 0, 0, 5]);
        assert_eq!(one.as_bytes()[15..18], [5, 9, 0]);
        let note = ReservationNotification {
            count: U64::new(1),
            kind: 2,
            available: 4,
            nsid: U32::new(3),
            ..Default::default()
        };
        assert_eq!(note.as_bytes()[..16], [1, 0, 0, 0, 0, 0, 0, 0, 2, 4, 0, 0, 3, 0, 0, 0]);
        assert_eq!(ReservationType::WRITE_EXCLUSIVE_ALL.name(), Some("WRITE_EXCLUSIVE_ALL"));
    }
}
