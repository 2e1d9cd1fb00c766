//! NVMe over Fabrics: the fabrics commands and the data of Connect (base 2.0, 6; Fabrics 1.1).

use super::entry::Sqe;
use super::opcode::AdminOpcode;
use super::wire::{self, wire};
use zerocopy::little_endian::{U16, U32, U64};

/// The well-known discovery subsystem (base 2.0, 3.1.2.3).
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// Longest NQN in bytes, without the terminating zero (base 2.0, 4.5).
pub const NQN_MAX: usize = 223;
/// CNTLID in Connect: let the subsystem choose (dynamic controller model).
pub const CNTLID_DYNAMIC: u16 = 0xffff;
/// CNTLID in Connect: any, in the static controller model.
pub const CNTLID_STATIC_ANY: u16 = 0xfffe;

/// Whether a text is an NQN as far as the controller has to care: `nqn.` and more, no longer than [`NQN_MAX`].
pub fn nqn_valid(nqn: &str) -> bool {
    nqn.len() <= NQN_MAX && nqn.len() > 4 && nqn.starts_with("nqn.")
}

wire! {
    /// The Connect command (base 2.0, 6.3).
    Connect: 64 {
        /// 7Fh.
        opcode: u8 = 0,
        /// PSDT and FUSE.
        flags: u8 = 1,
        /// CID.
        cid: U16 = 2,
        /// FCTYPE, 01h.
        fctype: u8 = 4,
        /// Reserved.
        rsvd5: [u8; 19] = 5,
        /// The data's SGL descriptor.
        sgl1: [u8; 16] = 24,
        /// Record format, 0.
        recfmt: U16 = 40,
        /// Queue identifier; 0 creates the association.
        qid: U16 = 42,
        /// Submission queue size, 0-based.
        sqsize: U16 = 44,
        /// Attributes: priority class in 1:0, disable SQ flow control 2, individual I/O queue deletion 3.
        cattr: u8 = 46,
        /// Reserved.
        rsvd47: u8 = 47,
        /// Keep alive timeout in ms (admin queue).
        kato: U32 = 48,
        /// Reserved.
        rsvd52: [u8; 12] = 52,
    }
}

/// CATTR bits 1:0: the queue's priority class, where CC.AMS is weighted.
pub const CATTR_PRIORITY: u8 = 3;
/// CATTR bit 2: the host does not want SQHD.
pub const CATTR_DISABLE_SQ_FLOW: u8 = 1 << 2;
/// CATTR bit 3: the host may delete I/O queues one by one (Disconnect).
pub const CATTR_IO_QUEUE_DELETION: u8 = 1 << 3;

wire! {
    /// The data of Connect: 1024 bytes (base 2.0, Figure 381).
    ConnectData: 1024 {
        /// Host identifier.
        hostid: [u8; 16] = 0,
        /// Controller identifier; FFFFh lets the subsystem choose.
        cntlid: U16 = 16,
        /// Reserved.
        rsvd18: [u8; 238] = 18,
        /// NQN of the subsystem, ended by zero.
        subnqn: [u8; 256] = 256,
        /// NQN of the host, ended by zero.
        hostnqn: [u8; 256] = 512,
        /// Reserved.
        rsvd768: [u8; 256] = 768,
    }
}

impl ConnectData {
    /// For this subsystem and host, dynamic controller model.
    pub fn new(subnqn: &str, hostnqn: &str, hostid: [u8; 16], cntlid: u16) -> Self {
        let mut d = Self { hostid, cntlid: U16::new(cntlid), ..Self::default() };
        wire::set_text(&mut d.subnqn, subnqn, 0);
        wire::set_text(&mut d.hostnqn, hostnqn, 0);
        d
    }
    /// SUBNQN, if it is a well-formed NQN.
    pub fn subnqn(&self) -> Option<&str> {
        wire::text(&self.subnqn).filter(|n| nqn_valid(n))
    }
    /// The host's name: its NQN, or nothing where the whole field is zeroes, as hosts send it that give themselves none. `None`: the field
    /// is neither.
    pub fn host(&self) -> Option<&str> {
        if self.hostnqn == [0; 256] { Some("") } else { self.hostnqn() }
    }
    /// HOSTNQN, if it is a well-formed NQN.
    pub fn hostnqn(&self) -> Option<&str> {
        wire::text(&self.hostnqn).filter(|n| nqn_valid(n))
    }
}

wire! {
    /// Property Get and Property Set (base 2.0, 6.5 and 6.6).
    Property: 64 {
        /// 7Fh.
        opcode: u8 = 0,
        /// PSDT and FUSE.
        flags: u8 = 1,
        /// CID.
        cid: U16 = 2,
        /// FCTYPE, 00h set or 04h get.
        fctype: u8 = 4,
        /// Reserved.
        rsvd5: [u8; 35] = 5,
        /// Size in bits 2:0: 0 is 4 bytes, 1 is 8 bytes.
        attrib: u8 = 40,
        /// Reserved.
        rsvd41: [u8; 3] = 41,
        /// Offset of the property ([`super::register`]).
        ofst: U32 = 44,
        /// The value to set.
        value: U64 = 48,
        /// Reserved.
        rsvd56: [u8; 8] = 56,
    }
}

impl Property {
    /// The size that ATTRIB says, 4 or 8; `None` where reserved.
    pub const fn size(&self) -> Option<u8> {
        match self.attrib & 7 {
            0 => Some(4),
            1 => Some(8),
            _ => None,
        }
    }
}

wire! {
    /// Disconnect (base 2.0, 6.4).
    Disconnect: 64 {
        /// 7Fh.
        opcode: u8 = 0,
        /// PSDT and FUSE.
        flags: u8 = 1,
        /// CID.
        cid: U16 = 2,
        /// FCTYPE, 08h.
        fctype: u8 = 4,
        /// Reserved.
        rsvd5: [u8; 35] = 5,
        /// Record format, 0.
        recfmt: U16 = 40,
        /// Reserved.
        rsvd42: [u8; 22] = 42,
    }
}

impl From<Sqe> for Connect {
    fn from(sqe: Sqe) -> Self {
        zerocopy::transmute!(sqe)
    }
}
impl From<Connect> for Sqe {
    fn from(c: Connect) -> Self {
        zerocopy::transmute!(c)
    }
}
impl From<Sqe> for Property {
    fn from(sqe: Sqe) -> Self {
        zerocopy::transmute!(sqe)
    }
}
impl From<Property> for Sqe {
    fn from(c: Property) -> Self {
        zerocopy::transmute!(c)
    }
}
impl From<Sqe> for Disconnect {
    fn from(sqe: Sqe) -> Self {
        zerocopy::transmute!(sqe)
    }
}
impl From<Disconnect> for Sqe {
    fn from(c: Disconnect) -> Self {
        zerocopy::transmute!(c)
    }
}

/// FCTYPE: byte 4 of a command whose opcode is 7Fh.
pub fn fctype(sqe: &Sqe) -> Option<u8> {
    (sqe.opcode == AdminOpcode::FABRICS.0).then(|| sqe.nsid.get() as u8)
}

/// DW0 of a Connect that was refused with Connect Invalid Parameters: IPO in 15:0, IATTR in 16 (base 2.0, Figure 383).
pub const fn invalid_parameter(in_data: bool, offset: u16) -> u32 {
    offset as u32 | (in_data as u32) << 16
}

/// The parameter that [`invalid_parameter`] points to: whether it is in the data, and its offset.
pub const fn invalid_parameter_of(dw0: u32) -> (bool, u16) {
    (dw0 >> 16 & 1 == 1, dw0 as u16)
}

/// What the parameter of Connect at that offset is called, of its data or of its command.
pub const fn parameter_name(in_data: bool, offset: u16) -> &'static str {
    match (in_data, offset) {
        (true, 0) => "HOSTID",
        (true, 16) => "CNTLID",
        (true, 256) => "SUBNQN",
        (true, 512) => "HOSTNQN",
        (false, 40) => "RECFMT",
        (false, 42) => "QID",
        (false, 44) => "SQSIZE",
        (false, 46) => "CATTR",
        (false, 48) => "KATO",
        _ => "an unnamed parameter",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn connect_lies_over_the_entry() {
        let mut sqe = Sqe { opcode: 0x7f, ..Sqe::default() };
        sqe.nsid = U32::new(1);
        sqe.cdw10 = U32::new(0x0003_0000);
        sqe.cdw11 = U32::new(0x0004_007f);
        sqe.cdw12 = U32::new(5000);
        let c = Connect::from(sqe);
        assert_eq!((c.fctype, c.recfmt.get(), c.qid.get(), c.sqsize.get()), (1, 0, 3, 127));
        assert_eq!((c.cattr, c.kato.get()), (CATTR_DISABLE_SQ_FLOW, 5000));
        assert_eq!(Sqe::from(c), sqe);
        assert_eq!(fctype(&sqe), Some(1));
    }

    #[test]
    fn names_are_checked() {
        let d = ConnectData::new(DISCOVERY_NQN, "nqn.2014-08.org.nvmexpress:uuid:1", [7; 16], CNTLID_DYNAMIC);
        assert_eq!(d.subnqn(), Some(DISCOVERY_NQN));
        assert_eq!(d.as_bytes().len(), 1024);
        let mut bad = d;
        bad.hostnqn.fill(b'n');
        assert_eq!(bad.hostnqn(), None);
        bad.hostnqn.fill(0xff);
        assert_eq!(bad.hostnqn(), None);
        bad.hostnqn.fill(0);
        assert_eq!(bad.hostnqn(), None);
    }
}
