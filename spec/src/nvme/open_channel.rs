//! The Open-Channel SSD interface (Open-Channel Solid State Drives Specification, revision 2.0, January 2018), and the page
//! move of papers/002, section 4, beside it. Vendor specific opcodes, log pages and status codes.

use super::opcode::codes;
use super::wire::wire;
use zerocopy::little_endian::{U16, U32, U64};

codes! {
    /// Admin command (OCSSD 2.0, "Geometry").
    OpenChannelAdmin: u8 {
        GEOMETRY = 0xe2,
    }
}

codes! {
    /// I/O commands (OCSSD 2.0, "Vector I/O Data Commands"), and `MOVE_PAGE`, which no standard has.
    OpenChannelOpcode: u8 {
        VECTOR_RESET = 0x90,
        VECTOR_WRITE = 0x91,
        VECTOR_READ = 0x92,
        VECTOR_COPY = 0x93,
        /// Its list of [`MovePair`]s is the command's data, so that every transport carries it.
        MOVE_PAGE = 0x95,
    }
}

/// LID of the chunk information log: a [`ChunkInformation`] for each chunk, in the order of addresses.
pub const CHUNK_INFORMATION: u8 = 0xca;

/// Addresses of a vector command at most: the completion has a bit for each.
pub const VECTOR_MAX: u32 = 64;

/// Bits of MCCAP, the media and controller capabilities.
pub mod mccap {
    /// Vector chunk copy.
    pub const VECTOR_COPY: u32 = 1;
    /// A chunk that is free can be reset.
    pub const MULTIPLE_RESET: u32 = 1 << 1;
}

wire! {
    /// The answer to Geometry: 4096 bytes.
    Geometry: 4096 {
        /// Major version: 2.
        mjr: u8 = 0,
        /// Minor version.
        mnr: u8 = 1,
        /// Reserved.
        rsvd2: [u8; 6] = 2,
        /// LBA format: bits of group, parallel unit, chunk and logical block.
        lbaf: [u8; 4] = 8,
        /// Reserved.
        rsvd12: [u8; 4] = 12,
        /// [`mccap`] bits.
        mccap: U32 = 16,
        /// Reserved.
        rsvd20: [u8; 12] = 20,
        /// Wear-level index delta threshold.
        wit: u8 = 32,
        /// Reserved.
        rsvd33: [u8; 31] = 33,
        /// Groups.
        num_grp: U16 = 64,
        /// Parallel units of a group.
        num_pu: U16 = 66,
        /// Chunks of a parallel unit.
        num_chk: U32 = 68,
        /// Logical blocks of a chunk.
        clba: U32 = 72,
        /// Reserved.
        rsvd76: [u8; 52] = 76,
        /// Minimum write size, in logical blocks.
        ws_min: U32 = 128,
        /// Optimal write size.
        ws_opt: U32 = 132,
        /// Cache minimum write size units: blocks to write behind one before it can be read.
        mw_cunits: U32 = 136,
        /// Maximum open chunks; 0: not limited.
        maxoc: U32 = 140,
        /// Maximum open chunks of a parallel unit; 0: not limited.
        maxocpu: U32 = 144,
        /// Reserved.
        rsvd148: [u8; 44] = 148,
        /// Typical and longest read, write and reset, in nanoseconds.
        times: [U32; 6] = 192,
        /// Reserved and vendor specific.
        rsvd216: [u8; 3880] = 216,
    }
}

/// Bits of CS, a chunk's state.
pub mod chunk_state {
    /// Nothing is written.
    pub const FREE: u8 = 1;
    /// Written to its end, or closed early.
    pub const CLOSED: u8 = 1 << 1;
    /// Partly written.
    pub const OPEN: u8 = 1 << 2;
    /// Out of service.
    pub const OFFLINE: u8 = 1 << 3;
}

/// CT, a chunk's type: it is written sequentially.
pub const SEQUENTIAL_WRITE: u8 = 1;

wire! {
    /// What the log says of a chunk: 32 bytes.
    ChunkInformation: 32 {
        /// [`chunk_state`].
        cs: u8 = 0,
        /// Its type.
        ct: u8 = 1,
        /// Wear-level index, 0 to 255.
        wli: u8 = 2,
        /// Reserved.
        rsvd3: [u8; 5] = 3,
        /// Its first address.
        slba: U64 = 8,
        /// Its logical blocks.
        cnlb: U64 = 16,
        /// Its write pointer, in blocks from its beginning.
        wp: U64 = 24,
    }
}

wire! {
    /// An entry of a page move: 16 bytes.
    MovePair: 16 {
        /// Where the block lies.
        from: U64 = 0,
        /// Where it is to lie.
        to: U64 = 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn golden_bytes() {
        let geometry = Geometry {
            mjr: 2,
            lbaf: [4, 3, 11, 12],
            mccap: U32::new(mccap::VECTOR_COPY | mccap::MULTIPLE_RESET),
            num_grp: U16::new(16),
            num_pu: U16::new(8),
            num_chk: U32::new(1067),
            clba: U32::new(4096),
            ws_min: U32::new(16),
            maxocpu: U32::new(0x0102_0304),
            times: [48_000, 64_000, 900_000, 2_400_000, 3_000_000, 0x0a0b_0c0d].map(U32::new),
            ..Geometry::default()
        };
        let bytes = geometry.as_bytes();
        assert_eq!(bytes[..20], [2, 0, 0, 0, 0, 0, 0, 0, 4, 3, 11, 12, 0, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(bytes[64..76], [16, 0, 8, 0, 0x2b, 4, 0, 0, 0, 0x10, 0, 0]);
        assert_eq!((bytes[128], &bytes[144..148]), (16, &[4, 3, 2, 1][..]));
        assert_eq!(bytes[212..216], [0x0d, 0x0c, 0x0b, 0x0a]);
        let chunk = ChunkInformation {
            cs: chunk_state::OPEN,
            ct: SEQUENTIAL_WRITE,
            wli: 7,
            slba: U64::new(0x0102_0304_0506_0708),
            cnlb: U64::new(4096),
            wp: U64::new(16),
            ..ChunkInformation::default()
        };
        let mut golden = [0; 32];
        golden[..3].copy_from_slice(&[4, 1, 7]);
        golden[8..16].copy_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1]);
        (golden[17], golden[24]) = (16, 16);
        assert_eq!(chunk.as_bytes(), golden);
        let pair = MovePair { from: U64::new(1), to: U64::new(0x200) };
        assert_eq!(pair.as_bytes(), [1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0]);
    }
}
