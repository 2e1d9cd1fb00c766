//! NVMe/TCP protocol data units (NVMe/TCP Transport specification 1.0, section 3).
//!
//! A PDU is a header of HLEN bytes, a header digest where negotiated, padding up to PDO, data, and a data digest where
//! negotiated; PLEN counts all of it. [`Header::decode`] reads a header without ever panicking and says what is wrong
//! in the terms of a termination request; [`Framing`] knows where digests, padding and data lie.

use super::entry::{Cqe, Sqe};
use super::opcode::codes;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// In-capsule data that every controller accepts on the admin queue and with fabrics commands, whatever IOCCSZ says
/// (NVMe/TCP 1.0, 3.3.2: "8,192 bytes").
pub const ADMIN_IN_CAPSULE: u32 = 8192;
/// The least MAXH2CDATA that the standard permits (NVMe/TCP 1.0, Figure 25).
pub const MAXH2CDATA_MIN: u32 = 4096;
/// The largest PDA: 0-based in dwords (NVMe/TCP 1.0, Figure 24), so data is aligned to 128 bytes at the most.
pub const PDA_MAX: u8 = 31;
/// Bytes of a header or data digest.
pub const DIGEST_LEN: usize = 4;
/// The longest header: ICReq and ICResp.
pub const HEADER_MAX: usize = 128;
/// The longest termination request: its header and the header of the PDU in error.
pub const TERM_MAX: u32 = 24 + HEADER_MAX as u32;
/// TCP port of discovery controllers.
pub const DISCOVERY_PORT: u16 = 8009;
/// TCP port of I/O controllers.
pub const IO_PORT: u16 = 4420;

codes! {
    /// PDU-Type (NVMe/TCP 1.0, Figure 23).
    PduType: u8 {
        IC_REQ = 0x00,
        IC_RESP = 0x01,
        H2C_TERM_REQ = 0x02,
        C2H_TERM_REQ = 0x03,
        CAPSULE_CMD = 0x04,
        CAPSULE_RESP = 0x05,
        H2C_DATA = 0x06,
        C2H_DATA = 0x07,
        R2T = 0x09,
    }
}

codes! {
    /// Fatal Error Status of a termination request (NVMe/TCP 1.0, Figures 27 and 29). 05h is "R2T Limit Exceeded" from
    /// a host and "Data Transfer Limit Exceeded" from a controller.
    Fes: u16 {
        INVALID_HEADER_FIELD = 0x01,
        PDU_SEQUENCE_ERROR = 0x02,
        HEADER_DIGEST_ERROR = 0x03,
        DATA_TRANSFER_OUT_OF_RANGE = 0x04,
        LIMIT_EXCEEDED = 0x05,
        UNSUPPORTED_PARAMETER = 0x06,
    }
}

impl Fes {
    /// The standard's words.
    pub const fn text(self) -> &'static str {
        match self {
            Fes::INVALID_HEADER_FIELD => "Invalid PDU Header Field",
            Fes::PDU_SEQUENCE_ERROR => "PDU Sequence Error",
            Fes::HEADER_DIGEST_ERROR => "Header Digest Error",
            Fes::DATA_TRANSFER_OUT_OF_RANGE => "Data Transfer Out of Range",
            Fes::LIMIT_EXCEEDED => "Transfer or R2T Limit Exceeded",
            Fes::UNSUPPORTED_PARAMETER => "Unsupported Parameter",
            _ => "unknown error",
        }
    }
}

/// What makes a PDU a fatal error: FES and FEI, as they go into a termination request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fatal {
    /// The fatal error status.
    pub fes: Fes,
    /// The fatal error information: the offset of the field in error, or the digest received.
    pub fei: u32,
}

impl Fatal {
    /// With a status and its information.
    pub const fn new(fes: Fes, fei: u32) -> Self {
        Self { fes, fei }
    }
    /// An invalid header field at that offset.
    pub const fn field(offset: u32) -> Self {
        Self { fes: Fes::INVALID_HEADER_FIELD, fei: offset }
    }
}

impl core::fmt::Display for Fatal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} (FES {:#x}, FEI {:#x})", self.fes.text(), self.fes.0, self.fei)
    }
}

/// Bits of FLAGS in the common header.
pub mod flags {
    /// HDGSTF: a header digest follows the header.
    pub const HDGST: u8 = 1 << 0;
    /// DDGSTF: a data digest follows the data.
    pub const DDGST: u8 = 1 << 1;
    /// LAST_PDU of H2CData and C2HData.
    pub const LAST_PDU: u8 = 1 << 2;
    /// SUCCESS of C2HData: no CapsuleResp follows.
    pub const SUCCESS: u8 = 1 << 3;
}

/// Bits of DGST in ICReq and ICResp.
pub mod dgst {
    /// HDGST_ENABLE.
    pub const HEADER: u8 = 1 << 0;
    /// DDGST_ENABLE.
    pub const DATA: u8 = 1 << 1;
}

/// Offsets of fields, for FEI.
pub mod offset {
    /// PDU-Type.
    pub const TYPE: u32 = 0;
    /// FLAGS.
    pub const FLAGS: u32 = 1;
    /// HLEN.
    pub const HLEN: u32 = 2;
    /// PDO.
    pub const PDO: u32 = 3;
    /// PLEN.
    pub const PLEN: u32 = 4;
    /// PFV of ICReq and ICResp.
    pub const PFV: u32 = 8;
    /// HPDA of ICReq, CPDA of ICResp.
    pub const PDA: u32 = 10;
    /// DGST of ICReq and ICResp.
    pub const DGST: u32 = 11;
    /// MAXH2CDATA of ICResp.
    pub const MAXH2CDATA: u32 = 12;
    /// CCCID of data PDUs and R2T.
    pub const CCCID: u32 = 8;
    /// TTAG of H2CData and R2T.
    pub const TTAG: u32 = 10;
    /// DATAO of data PDUs, R2TO of R2T.
    pub const DATAO: u32 = 12;
    /// DATAL of data PDUs, R2TL of R2T.
    pub const DATAL: u32 = 16;
}

/// The common header (NVMe/TCP 1.0, Figure 22).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CommonHeader {
    /// PDU-Type ([`PduType`]).
    pub kind: u8,
    /// FLAGS ([`flags`]).
    pub flags: u8,
    /// HLEN: bytes of the header, without digest and padding.
    pub hlen: u8,
    /// PDO: where data starts, from the PDU's first byte; 0 without data.
    pub pdo: u8,
    /// PLEN: bytes of the whole PDU.
    pub plen: U32,
}
const _: () = assert!(size_of::<CommonHeader>() == 8);

impl CommonHeader {
    /// Of a PDU without data and digests: PLEN = HLEN.
    pub const fn bare(kind: PduType, hlen: u8) -> Self {
        Self { kind: kind.0, flags: 0, hlen, pdo: 0, plen: U32::new(hlen as u32) }
    }
    /// PDU-Type.
    pub const fn pdu_type(&self) -> PduType {
        PduType(self.kind)
    }
    /// The first bytes of a PDU, once eight are there.
    pub fn peek(bytes: &[u8]) -> Option<Self> {
        Self::read_from_prefix(bytes).ok().map(|(h, _)| h)
    }
}

macro_rules! pdu {
    ($(#[$m:meta])* $name:ident, $kind:ident, $len:literal { $($(#[$fm:meta])* $f:ident: $t:ty,)* }) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub struct $name {
            /// The common header.
            pub ch: CommonHeader,
            $($(#[$fm])* pub $f: $t,)*
        }
        const _: () = assert!(size_of::<$name>() == $len);
        impl $name {
            /// HLEN.
            pub const HLEN: u8 = $len;
            /// The common header of this PDU without data and digests.
            pub const CH: CommonHeader = CommonHeader::bare(PduType::$kind, $len);
        }
    };
}

pdu! {
    /// Initialize Connection Request (NVMe/TCP 1.0, 3.6.2.2, Figure 24).
    IcReq, IC_REQ, 128 {
        /// PFV: 0.
        pfv: U16,
        /// HPDA: alignment of data sent to the host, 0-based in dwords.
        hpda: u8,
        /// DGST ([`dgst`]).
        dgst: u8,
        /// MAXR2T: outstanding R2Ts per command, 0-based.
        maxr2t: U32,
        /// Zero.
        reserved: [u8; 112],
    }
}
pdu! {
    /// Initialize Connection Response (NVMe/TCP 1.0, 3.6.2.3, Figure 25).
    IcResp, IC_RESP, 128 {
        /// PFV: 0.
        pfv: U16,
        /// CPDA: alignment of data sent to the controller, 0-based in dwords.
        cpda: u8,
        /// DGST ([`dgst`]).
        dgst: u8,
        /// MAXH2CDATA: the most data in one H2CData PDU, a multiple of 4, at least 4096.
        maxh2cdata: U32,
        /// Zero.
        reserved: [u8; 112],
    }
}
pdu! {
    /// Termination request, of a host (type 02h) or a controller (03h); the header of the PDU in error may follow as
    /// data (NVMe/TCP 1.0, 3.6.2.4 and 3.6.2.5).
    TermReq, C2H_TERM_REQ, 24 {
        /// FES ([`Fes`]).
        fes: U16,
        /// FEI.
        fei: U32,
        /// Zero.
        reserved: [u8; 10],
    }
}
pdu! {
    /// Command capsule (NVMe/TCP 1.0, 3.6.2.6).
    CapsuleCmd, CAPSULE_CMD, 72 {
        /// The submission queue entry.
        sqe: Sqe,
    }
}
pdu! {
    /// Response capsule (NVMe/TCP 1.0, 3.6.2.7).
    CapsuleResp, CAPSULE_RESP, 24 {
        /// The completion queue entry.
        cqe: Cqe,
    }
}
pdu! {
    /// Host to controller data (NVMe/TCP 1.0, 3.6.2.8).
    H2cData, H2C_DATA, 24 {
        /// CCCID: CID of the command.
        cccid: U16,
        /// TTAG: from the R2T that this answers.
        ttag: U16,
        /// DATAO: offset within the command's data.
        datao: U32,
        /// DATAL.
        datal: U32,
        /// Zero.
        reserved: [u8; 4],
    }
}
pdu! {
    /// Controller to host data (NVMe/TCP 1.0, 3.6.2.9).
    C2hData, C2H_DATA, 24 {
        /// CCCID: CID of the command.
        cccid: U16,
        /// Zero.
        reserved0: [u8; 2],
        /// DATAO: offset within the command's data.
        datao: U32,
        /// DATAL.
        datal: U32,
        /// Zero.
        reserved: [u8; 4],
    }
}
pdu! {
    /// Ready to transfer (NVMe/TCP 1.0, 3.6.2.10).
    R2t, R2T, 24 {
        /// CCCID: CID of the command.
        cccid: U16,
        /// TTAG: to be given back in H2CData.
        ttag: U16,
        /// R2TO: offset within the command's data.
        r2to: U32,
        /// R2TL.
        r2tl: U32,
        /// Zero.
        reserved: [u8; 4],
    }
}

impl TermReq {
    /// Where FES and FEI lie.
    pub const fn new(kind: PduType, fatal: Fatal, data: u32) -> Self {
        Self {
            ch: CommonHeader { kind: kind.0, flags: 0, hlen: 24, pdo: 24, plen: U32::new(24 + data) },
            fes: U16::new(fatal.fes.0),
            fei: U32::new(fatal.fei),
            reserved: [0; 10],
        }
    }
    /// FES and FEI.
    pub fn fatal(&self) -> Fatal {
        Fatal::new(Fes(self.fes.get()), self.fei.get())
    }
}

/// A PDU's header, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Header {
    IcReq(IcReq),
    IcResp(IcResp),
    H2cTermReq(TermReq),
    C2hTermReq(TermReq),
    CapsuleCmd(CapsuleCmd),
    CapsuleResp(CapsuleResp),
    H2cData(H2cData),
    C2hData(C2hData),
    R2t(R2t),
}

/// HLEN of a type, or `None` for a type that the standard does not define.
pub const fn hlen(kind: PduType) -> Option<u8> {
    Some(match kind {
        PduType::IC_REQ => IcReq::HLEN,
        PduType::IC_RESP => IcResp::HLEN,
        PduType::H2C_TERM_REQ | PduType::C2H_TERM_REQ => TermReq::HLEN,
        PduType::CAPSULE_CMD => CapsuleCmd::HLEN,
        PduType::CAPSULE_RESP => CapsuleResp::HLEN,
        PduType::H2C_DATA => H2cData::HLEN,
        PduType::C2H_DATA => C2hData::HLEN,
        PduType::R2T => R2t::HLEN,
        _ => return None,
    })
}

impl Header {
    /// Reads the header at the start of `bytes`. Type and HLEN are checked; flags, PDO and PLEN are [`Framing`]'s.
    ///
    /// # Errors
    /// An unknown type, an HLEN that is not the type's, or fewer bytes than HLEN.
    pub fn decode(bytes: &[u8]) -> Result<Self, Fatal> {
        let ch = CommonHeader::peek(bytes).ok_or(Fatal::field(offset::HLEN))?;
        let expected = hlen(ch.pdu_type()).ok_or(Fatal::field(offset::TYPE))?;
        if ch.hlen != expected {
            return Err(Fatal::field(offset::HLEN));
        }
        fn read<T: FromBytes>(bytes: &[u8]) -> Result<T, Fatal> {
            T::read_from_prefix(bytes).map(|(v, _)| v).map_err(|_| Fatal::field(offset::HLEN))
        }
        Ok(match ch.pdu_type() {
            PduType::IC_REQ => Self::IcReq(read(bytes)?),
            PduType::IC_RESP => Self::IcResp(read(bytes)?),
            PduType::H2C_TERM_REQ => Self::H2cTermReq(read(bytes)?),
            PduType::C2H_TERM_REQ => Self::C2hTermReq(read(bytes)?),
            PduType::CAPSULE_CMD => Self::CapsuleCmd(read(bytes)?),
            PduType::CAPSULE_RESP => Self::CapsuleResp(read(bytes)?),
            PduType::H2C_DATA => Self::H2cData(read(bytes)?),
            PduType::C2H_DATA => Self::C2hData(read(bytes)?),
            PduType::R2T => Self::R2t(read(bytes)?),
            _ => return Err(Fatal::field(offset::TYPE)),
        })
    }

    /// The header's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::IcReq(p) => p.as_bytes(),
            Self::IcResp(p) => p.as_bytes(),
            Self::H2cTermReq(p) | Self::C2hTermReq(p) => p.as_bytes(),
            Self::CapsuleCmd(p) => p.as_bytes(),
            Self::CapsuleResp(p) => p.as_bytes(),
            Self::H2cData(p) => p.as_bytes(),
            Self::C2hData(p) => p.as_bytes(),
            Self::R2t(p) => p.as_bytes(),
        }
    }
}

/// What was negotiated for one direction of a connection, and so where the parts of its PDUs lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// Header digests are on.
    pub header_digest: bool,
    /// Data digests are on.
    pub data_digest: bool,
    /// The receiver's PDA: data starts at a multiple of (PDA + 1) × 4 bytes.
    pub pda: u8,
}

/// The parts of a PDU behind its header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// Bytes between header (with its digest) and data.
    pub padding: u32,
    /// Bytes of data.
    pub data: u32,
    /// Whether a data digest follows.
    pub digest: bool,
}

impl Framing {
    /// Before ICResp: nothing is on.
    pub const PLAIN: Framing = Framing { header_digest: false, data_digest: false, pda: 0 };

    /// Whether PDUs of that type carry digests when they are on (NVMe/TCP 1.0, Figure 23).
    pub const fn digested(kind: PduType) -> bool {
        matches!(
            kind,
            PduType::CAPSULE_CMD | PduType::CAPSULE_RESP | PduType::H2C_DATA | PduType::C2H_DATA | PduType::R2T
        )
    }

    /// Bytes of header and header digest.
    pub const fn header_len(&self, kind: PduType, hlen: u8) -> usize {
        hlen as usize + if self.header_digest && Self::digested(kind) { DIGEST_LEN } else { 0 }
    }

    /// PDO for a PDU with data: the first aligned byte behind the header and its digest.
    pub const fn data_offset(&self, kind: PduType, hlen: u8) -> u8 {
        let align = (self.pda as usize + 1) * 4;
        (self.header_len(kind, hlen).div_ceil(align) * align) as u8
    }

    /// Completes a common header for `data` bytes of data: flags of the digests, PDO and PLEN.
    pub const fn fill(&self, ch: &mut CommonHeader, data: u32) {
        let kind = PduType(ch.kind);
        let mut plen = self.header_len(kind, ch.hlen) as u32;
        if self.header_digest && Self::digested(kind) {
            ch.flags |= flags::HDGST;
        }
        ch.pdo = 0;
        if data > 0 {
            ch.pdo = self.data_offset(kind, ch.hlen);
            plen = ch.pdo as u32 + data;
            if self.data_digest {
                ch.flags |= flags::DDGST;
                plen += DIGEST_LEN as u32;
            }
        }
        ch.plen = U32::new(plen);
    }

    /// Splits a PDU by its common header, whose type and HLEN are already known to be right.
    ///
    /// # Errors
    /// Digest flags that were not negotiated, or missing; PDO inside the header, unaligned or beyond the PDU; PLEN too
    /// short for its parts, or with data where the type has none.
    pub fn split(&self, ch: &CommonHeader) -> Result<Body, Fatal> {
        let kind = ch.pdu_type();
        let header = self.header_len(kind, ch.hlen) as u32;
        let plen = ch.plen.get();
        if plen < header {
            return Err(Fatal::field(offset::PLEN));
        }
        if matches!(kind, PduType::H2C_TERM_REQ | PduType::C2H_TERM_REQ) {
            let data = plen - header;
            return if plen > TERM_MAX {
                Err(Fatal::field(offset::PLEN))
            } else {
                Ok(Body { data, ..Body::default() })
            };
        }
        if (ch.flags & flags::HDGST != 0) != (self.header_digest && Self::digested(kind)) {
            return Err(Fatal::field(offset::FLAGS));
        }
        let carries = matches!(kind, PduType::CAPSULE_CMD | PduType::H2C_DATA | PduType::C2H_DATA);
        if plen == header {
            return Ok(Body::default());
        }
        if !carries {
            return Err(Fatal::field(offset::PLEN));
        }
        if (ch.flags & flags::DDGST != 0) != self.data_digest {
            return Err(Fatal::field(offset::FLAGS));
        }
        let pdo = u32::from(ch.pdo);
        if pdo < header || pdo % ((u32::from(self.pda) + 1) * 4) != 0 {
            return Err(Fatal::field(offset::PDO));
        }
        let tail = if self.data_digest { DIGEST_LEN as u32 } else { 0 };
        match plen.checked_sub(pdo + tail) {
            None => Err(Fatal::field(offset::PLEN)),
            Some(data) => Ok(Body { padding: pdo - header, data, digest: self.data_digest }),
        }
    }
}

/// CRC32C (Castagnoli, reflected), which header and data digests are (NVMe/TCP 1.0, 3.3.1.1): the port through which the
/// protocol machines reach the processor's instruction for it.
pub trait Digest {
    /// The CRC of what `crc` is the CRC of, followed by `bytes`; start with 0.
    fn append(crc: u32, bytes: &[u8]) -> u32;
}

/// [`Digest`] by a table: for tests, and where there is no instruction.
#[derive(Clone, Copy, Debug, Default)]
pub struct TableDigest;

impl Digest for TableDigest {
    fn append(crc: u32, bytes: &[u8]) -> u32 {
        crate::crc32c::append(crc, bytes)
    }
}

#[cfg(test)]
#[path = "tcp_tests.rs"]
mod tests;
