//! Submission and completion queue entries (NVMe base 2.0, 3.3.3).

use super::status::Status;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A submission queue entry: 64 bytes (base 2.0, Figure 87 "Common Command Format").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Sqe {
    /// OPC.
    pub opcode: u8,
    /// FUSE in bits 1:0, PSDT in bits 7:6.
    pub flags: u8,
    /// CID.
    pub cid: U16,
    /// NSID. In a fabrics command byte 4 is FCTYPE.
    pub nsid: U32,
    /// CDW2.
    pub cdw2: U32,
    /// CDW3.
    pub cdw3: U32,
    /// MPTR.
    pub mptr: U64,
    /// DPTR: PRP1 and PRP2, or one SGL descriptor ([`SglDescriptor`]).
    pub dptr: [U64; 2],
    /// CDW10.
    pub cdw10: U32,
    /// CDW11.
    pub cdw11: U32,
    /// CDW12.
    pub cdw12: U32,
    /// CDW13.
    pub cdw13: U32,
    /// CDW14.
    pub cdw14: U32,
    /// CDW15.
    pub cdw15: U32,
}

const _: () = assert!(size_of::<Sqe>() == 64);

impl Sqe {
    /// From its 64 bytes as eight words, CDW0 in the low half of the first.
    pub fn from_words(words: [u64; 8]) -> Self {
        let half = |i: usize| (U32::new(words[i] as u32), U32::new((words[i] >> 32) as u32));
        let ((cdw2, cdw3), (cdw10, cdw11), (cdw12, cdw13), (cdw14, cdw15)) = (half(1), half(5), half(6), half(7));
        Self {
            opcode: words[0] as u8,
            flags: (words[0] >> 8) as u8,
            cid: U16::new((words[0] >> 16) as u16),
            nsid: half(0).1,
            cdw2,
            cdw3,
            mptr: U64::new(words[2]),
            dptr: [U64::new(words[3]), U64::new(words[4])],
            cdw10,
            cdw11,
            cdw12,
            cdw13,
            cdw14,
            cdw15,
        }
    }
    /// Its 64 bytes as eight words, to be taken apart in registers: entries are written in narrow pieces, and what is read
    /// wide right after a narrow store waits for it.
    #[inline]
    pub fn words(&self) -> [u64; 8] {
        Self::words_of(self.as_bytes().try_into().unwrap_or(&[0; 64]))
    }
    /// An entry in memory as eight words.
    #[inline]
    pub fn words_of(bytes: &[u8; 64]) -> [u64; 8] {
        let mut words = [0; 8];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        }
        words
    }
    /// FUSE, bits 1:0 of the flags: 0 is a normal command.
    pub const fn fuse(&self) -> u8 {
        self.flags & 3
    }
    /// PSDT, bits 7:6 of the flags: 0 PRP, 1 SGL with MPTR an address, 2 SGL with MPTR an SGL.
    pub const fn psdt(&self) -> u8 {
        self.flags >> 6
    }
    /// SLBA of an NVM I/O command: CDW10 and CDW11.
    pub fn slba(&self) -> u64 {
        u64::from(self.cdw10.get()) | u64::from(self.cdw11.get()) << 32
    }
    /// Sets SLBA.
    pub fn set_slba(&mut self, lba: u64) {
        self.cdw10 = U32::new(lba as u32);
        self.cdw11 = U32::new((lba >> 32) as u32);
    }
    /// Number of logical blocks of an NVM I/O command, 1-based here (NLB, CDW12 bits 15:0, is 0-based).
    pub fn blocks(&self) -> u32 {
        (self.cdw12.get() & 0xffff) + 1
    }
    /// The data pointer as one SGL descriptor (PSDT not 0; always so over fabrics).
    pub fn sgl(&self) -> SglDescriptor {
        SglDescriptor::read_from_bytes(self.dptr.as_bytes()).unwrap_or_default()
    }
    /// Sets the data pointer to one SGL descriptor and PSDT to 01b.
    pub fn set_sgl(&mut self, sgl: SglDescriptor) {
        let b = sgl.as_bytes();
        for (d, c) in self.dptr.iter_mut().zip(b.chunks_exact(8)) {
            *d = U64::read_from_bytes(c).unwrap_or_default();
        }
        self.flags = self.flags & 0x3f | 1 << 6;
    }
}

/// An SGL descriptor: 16 bytes (base 2.0, 4.1.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SglDescriptor {
    /// Address, or offset into the capsule.
    pub address: U64,
    /// Length in bytes.
    pub length: U32,
    /// Type specific; zero for the types Weir uses.
    pub reserved: [u8; 3],
    /// Type in bits 7:4, subtype in bits 3:0.
    pub kind: u8,
}

const _: () = assert!(size_of::<SglDescriptor>() == 16);

impl SglDescriptor {
    /// Data block, address: type 0h, subtype 0h.
    pub const DATA_BLOCK: u8 = 0x00;
    /// Data block, offset into the capsule: type 0h, subtype 1h (in-capsule data).
    pub const DATA_BLOCK_OFFSET: u8 = 0x01;
    /// Bit bucket: type 1h, subtype 0h.
    pub const BIT_BUCKET: u8 = 0x10;
    /// Segment, address: type 2h, subtype 0h.
    pub const SEGMENT: u8 = 0x20;
    /// Last segment, address: type 3h, subtype 0h.
    pub const LAST_SEGMENT: u8 = 0x30;
    /// Keyed data block, address: type 4h, subtype 0h (memory-based fabrics).
    pub const KEYED_DATA_BLOCK: u8 = 0x40;
    /// Transport data block: type 5h, subtype Ah (data by R2T or C2HData over TCP).
    pub const TRANSPORT_DATA_BLOCK: u8 = 0x5a;

    /// From its 16 bytes as two words.
    #[inline]
    pub const fn from_words(words: [u64; 2]) -> Self {
        let [_, _, _, _, r0, r1, r2, kind] = words[1].to_le_bytes();
        let length = U32::new(words[1] as u32);
        Self { address: U64::new(words[0]), length, reserved: [r0, r1, r2], kind }
    }

    /// Its 16 bytes as two words.
    #[inline]
    pub const fn words(&self) -> [u64; 2] {
        let [r0, r1, r2] = self.reserved;
        let [l0, l1, l2, l3] = self.length.get().to_le_bytes();
        [self.address.get(), u64::from_le_bytes([l0, l1, l2, l3, r0, r1, r2, self.kind])]
    }

    /// Whether it names more descriptors: a segment or the last segment, whatever its subtype.
    pub const fn leads_on(&self) -> bool {
        matches!(self.kind >> 4, 2 | 3)
    }

    /// A descriptor of that kind.
    pub const fn new(kind: u8, address: u64, length: u32) -> Self {
        Self { address: U64::new(address), length: U32::new(length), reserved: [0; 3], kind }
    }
}

/// A completion queue entry: 16 bytes (base 2.0, 3.3.3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Cqe {
    /// DW0, command specific.
    pub dw0: U32,
    /// DW1, command specific.
    pub dw1: U32,
    /// SQHD: the consumed head of the submission queue.
    pub sqhd: U16,
    /// SQID.
    pub sqid: U16,
    /// CID.
    pub cid: U16,
    /// Phase tag in bit 0, status field in bits 15:1 (see [`Status`]).
    pub status_phase: U16,
}

const _: () = assert!(size_of::<Cqe>() == 16);

impl Cqe {
    /// Its 16 bytes as two words; the phase tag is in the second.
    #[inline]
    pub fn words(&self) -> [u64; 2] {
        let wide = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let dword = |low: u16, high: u16| u32::from(low) | u32::from(high) << 16;
        let (dw2, dw3) = (dword(self.sqhd.get(), self.sqid.get()), dword(self.cid.get(), self.status_phase.get()));
        [wide(self.dw0.get(), self.dw1.get()), wide(dw2, dw3)]
    }
    /// From those two words.
    pub fn from_words([first, last]: [u64; 2]) -> Self {
        Self {
            dw0: U32::new(first as u32),
            dw1: U32::new((first >> 32) as u32),
            sqhd: U16::new(last as u16),
            sqid: U16::new((last >> 16) as u16),
            cid: U16::new((last >> 32) as u16),
            status_phase: U16::new((last >> 48) as u16),
        }
    }
    /// The status field, without the phase tag.
    pub fn status(&self) -> Status {
        Status::from_field(self.status_phase.get() >> 1)
    }
    /// Sets the status field, keeping the phase tag.
    pub fn set_status(&mut self, s: Status) {
        self.status_phase = U16::new(self.status_phase.get() & 1 | s.field() << 1);
    }
    /// The phase tag.
    pub fn phase(&self) -> bool {
        self.status_phase.get() & 1 != 0
    }
    /// Sets the phase tag, keeping the status field.
    pub fn set_phase(&mut self, phase: bool) {
        self.status_phase = U16::new(self.status_phase.get() & !1 | u16::from(phase));
    }
}
