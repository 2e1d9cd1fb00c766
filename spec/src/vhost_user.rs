//! The vhost-user protocol (QEMU `docs/interop/vhost-user.rst`): messages between the front end (which owns the guest's
//! memory) and the back end (which serves the device). Descriptors travel beside them (SCM_RIGHTS). Integers are in the
//! machine's byte order, which on the machines Weir runs on is little endian.

use crate::nvme::opcode::codes;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The virtio feature bit by which vhost-user itself announces protocol features (VHOST_USER_F_PROTOCOL_FEATURES).
pub const F_PROTOCOL_FEATURES: u64 = 1 << 30;
/// The virtio feature bit for dirty logging (VHOST_F_LOG_ALL).
pub const F_LOG_ALL: u64 = 1 << 26;

/// Bits of GET/SET_PROTOCOL_FEATURES.
pub mod protocol {
    /// GET_QUEUE_NUM, several queues.
    pub const MQ: u64 = 1 << 0;
    /// The dirty log travels as a descriptor.
    pub const LOG_SHMFD: u64 = 1 << 1;
    /// RARP broadcasts (network).
    pub const RARP: u64 = 1 << 2;
    /// [`super::Header::NEED_REPLY`] works.
    pub const REPLY_ACK: u64 = 1 << 3;
    /// MTU (network).
    pub const MTU: u64 = 1 << 4;
    /// SET_BACKEND_REQ_FD.
    pub const BACKEND_REQ: u64 = 1 << 5;
    /// Cross endian (legacy).
    pub const CROSS_ENDIAN: u64 = 1 << 6;
    /// Crypto sessions.
    pub const CRYPTO_SESSION: u64 = 1 << 7;
    /// Postcopy migration.
    pub const PAGEFAULT: u64 = 1 << 8;
    /// GET/SET_CONFIG.
    pub const CONFIG: u64 = 1 << 9;
    /// Descriptors on the back end's channel.
    pub const BACKEND_SEND_FD: u64 = 1 << 10;
    /// Doorbell mappings.
    pub const HOST_NOTIFIER: u64 = 1 << 11;
    /// GET/SET_INFLIGHT_FD.
    pub const INFLIGHT_SHMFD: u64 = 1 << 12;
    /// RESET_DEVICE.
    pub const RESET_DEVICE: u64 = 1 << 13;
    /// Kicks and calls as messages.
    pub const INBAND_NOTIFICATIONS: u64 = 1 << 14;
    /// GET_MAX_MEM_SLOTS, ADD/REM_MEM_REG.
    pub const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
    /// GET/SET_STATUS.
    pub const STATUS: u64 = 1 << 16;
    /// Memory from Xen.
    pub const XEN_MMAP: u64 = 1 << 17;
    /// Shared objects.
    pub const SHARED_OBJECT: u64 = 1 << 18;
    /// Device state for migration.
    pub const DEVICE_STATE: u64 = 1 << 19;
}

codes! {
    /// A message from the front end to the back end.
    Request: u32 {
        GET_FEATURES = 1,
        SET_FEATURES = 2,
        SET_OWNER = 3,
        RESET_OWNER = 4,
        SET_MEM_TABLE = 5,
        SET_LOG_BASE = 6,
        SET_LOG_FD = 7,
        SET_VRING_NUM = 8,
        SET_VRING_ADDR = 9,
        SET_VRING_BASE = 10,
        GET_VRING_BASE = 11,
        SET_VRING_KICK = 12,
        SET_VRING_CALL = 13,
        SET_VRING_ERR = 14,
        GET_PROTOCOL_FEATURES = 15,
        SET_PROTOCOL_FEATURES = 16,
        GET_QUEUE_NUM = 17,
        SET_VRING_ENABLE = 18,
        SEND_RARP = 19,
        NET_SET_MTU = 20,
        SET_BACKEND_REQ_FD = 21,
        IOTLB_MSG = 22,
        SET_VRING_ENDIAN = 23,
        GET_CONFIG = 24,
        SET_CONFIG = 25,
        CREATE_CRYPTO_SESSION = 26,
        CLOSE_CRYPTO_SESSION = 27,
        POSTCOPY_ADVISE = 28,
        POSTCOPY_LISTEN = 29,
        POSTCOPY_END = 30,
        GET_INFLIGHT_FD = 31,
        SET_INFLIGHT_FD = 32,
        GPU_SET_SOCKET = 33,
        RESET_DEVICE = 34,
        VRING_KICK = 35,
        GET_MAX_MEM_SLOTS = 36,
        ADD_MEM_REG = 37,
        REM_MEM_REG = 38,
        SET_STATUS = 39,
        GET_STATUS = 40,
        GET_SHARED_OBJECT = 41,
        SET_DEVICE_STATE_FD = 42,
        CHECK_DEVICE_STATE = 43,
    }
}

codes! {
    /// A message from the back end to the front end, on the channel that SET_BACKEND_REQ_FD handed over.
    BackendRequest: u32 {
        IOTLB_MSG = 1,
        CONFIG_CHANGE_MSG = 2,
        VRING_HOST_NOTIFIER_MSG = 3,
        VRING_CALL = 4,
        VRING_ERR = 5,
        SHARED_OBJECT_ADD = 6,
        SHARED_OBJECT_REMOVE = 7,
        SHARED_OBJECT_LOOKUP = 8,
    }
}

/// The 12 bytes before every message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Header {
    /// [`Request`] or [`BackendRequest`].
    pub request: U32,
    /// Version in bits 1:0, [`Header::REPLY`], [`Header::NEED_REPLY`].
    pub flags: U32,
    /// Bytes of payload that follow.
    pub size: U32,
}

const _: () = assert!(size_of::<Header>() == 12);

impl Header {
    /// The protocol's version.
    pub const VERSION: u32 = 1;
    /// Bits 1:0.
    pub const VERSION_MASK: u32 = 3;
    /// This is an answer.
    pub const REPLY: u32 = 1 << 2;
    /// An answer is wanted even where the message has none of its own (REPLY_ACK).
    pub const NEED_REPLY: u32 = 1 << 3;
    /// A reserved bit, and Weir's own: its keeper says again what an earlier process of the back end has heard and acted upon.
    /// Never on a front end's socket.
    pub const AGAIN: u32 = 1 << 4;

    /// A message to the back end.
    pub const fn request(request: Request, size: u32) -> Self {
        Self { request: U32::new(request.0), flags: U32::new(Self::VERSION), size: U32::new(size) }
    }
    /// The answer to `request`.
    pub const fn reply(request: Request, size: u32) -> Self {
        Self { request: U32::new(request.0), flags: U32::new(Self::VERSION | Self::REPLY), size: U32::new(size) }
    }
    /// A message to the front end.
    pub const fn backend(request: BackendRequest, size: u32) -> Self {
        Self { request: U32::new(request.0), flags: U32::new(Self::VERSION), size: U32::new(size) }
    }
    /// Bits 1:0 of the flags.
    pub const fn version(&self) -> u32 {
        self.flags.get() & Self::VERSION_MASK
    }
    /// Whether it is an answer.
    pub const fn is_reply(&self) -> bool {
        self.flags.get() & Self::REPLY != 0
    }
    /// Whether an answer is wanted.
    pub const fn needs_reply(&self) -> bool {
        self.flags.get() & Self::NEED_REPLY != 0
    }
    /// Whether it is said once more to another process.
    pub const fn is_again(&self) -> bool {
        self.flags.get() & Self::AGAIN != 0
    }
}

/// "A vring state description": SET_VRING_NUM, _BASE, _ENABLE, GET_VRING_BASE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct VringState {
    /// Which vring.
    pub index: U32,
    /// Its size, base or state.
    pub num: U32,
}

const _: () = assert!(size_of::<VringState>() == 8);

/// "A vring address description": SET_VRING_ADDR. Addresses are in the front end's own address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct VringAddress {
    /// Which vring.
    pub index: U32,
    /// [`VringAddress::LOG`].
    pub flags: U32,
    /// Descriptor table, or the packed ring.
    pub descriptor: U64,
    /// Used ring, or the packed ring's device event structure.
    pub used: U64,
    /// Available ring, or the packed ring's driver event structure.
    pub available: U64,
    /// Where the log expects the used ring.
    pub log: U64,
}

const _: () = assert!(size_of::<VringAddress>() == 40);

impl VringAddress {
    /// Writes to the used ring are logged (VHOST_VRING_F_LOG).
    pub const LOG: u32 = 1 << 0;
}

/// The payload of SET_VRING_KICK, _CALL and _ERR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct VringFd(
    /// Which vring in bits 7:0, [`VringFd::NO_FD`].
    pub U64,
);

const _: () = assert!(size_of::<VringFd>() == 8);

impl VringFd {
    /// No descriptor comes with it: poll instead.
    pub const NO_FD: u64 = 1 << 8;

    /// Which vring.
    pub const fn index(&self) -> u8 {
        self.0.get() as u8
    }
    /// Whether a descriptor comes with it.
    pub const fn has_fd(&self) -> bool {
        self.0.get() & Self::NO_FD == 0
    }
}

/// "A memory region description".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct MemoryRegion {
    /// Where the guest sees it.
    pub guest_address: U64,
    /// Its length in bytes.
    pub size: U64,
    /// Where the front end sees it.
    pub user_address: U64,
    /// Where it starts in the descriptor's file.
    pub mmap_offset: U64,
}

const _: () = assert!(size_of::<MemoryRegion>() == 32);

/// Most regions in SET_MEM_TABLE, and most descriptors with one message.
pub const MAX_TABLE_REGIONS: usize = 8;

/// What comes before the regions in SET_MEM_TABLE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct MemoryTableHeader {
    /// Number of regions that follow.
    pub regions: U32,
    /// Zero.
    pub padding: U32,
}

const _: () = assert!(size_of::<MemoryTableHeader>() == 8);

/// The payload of ADD_MEM_REG and REM_MEM_REG ("single memory region description").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SingleRegion {
    /// Zero.
    pub padding: U64,
    /// The region.
    pub region: MemoryRegion,
}

const _: () = assert!(size_of::<SingleRegion>() == 40);

/// What comes before the bytes in GET_CONFIG and SET_CONFIG.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ConfigHeader {
    /// Offset in the configuration space.
    pub offset: U32,
    /// Bytes that follow.
    pub size: U32,
    /// 0 the driver writes writable fields, 1 migration.
    pub flags: U32,
}

const _: () = assert!(size_of::<ConfigHeader>() == 12);

/// Largest configuration space that vhost-user can carry (VHOST_USER_MAX_CONFIG_SIZE).
pub const MAX_CONFIG: usize = 256;

/// "Inflight description": GET/SET_INFLIGHT_FD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Inflight {
    /// Length of the region.
    pub mmap_size: U64,
    /// Where it starts in the file.
    pub mmap_offset: U64,
    /// Number of queues.
    pub num_queues: U16,
    /// Their size.
    pub queue_size: U16,
    /// Nothing.
    pub padding: [u8; 4],
}

const _: () = assert!(size_of::<Inflight>() == 24);

/// "A log description": SET_LOG_BASE. The bitmap's file comes beside it; the answer has no payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LogBase {
    /// Length of the bitmap in bytes.
    pub mmap_size: U64,
    /// Where it starts in the file.
    pub mmap_offset: U64,
}

const _: () = assert!(size_of::<LogBase>() == 16);

/// Bytes of guest memory that a bit of the dirty log stands for.
pub const LOG_PAGE: u64 = 4096;

/// Largest payload that Weir reads: every message above fits many times.
pub const MAX_PAYLOAD: usize = 1024;

const _: () = assert!(MAX_PAYLOAD >= size_of::<MemoryTableHeader>() + MAX_TABLE_REGIONS * size_of::<MemoryRegion>());
const _: () = assert!(MAX_PAYLOAD >= size_of::<ConfigHeader>() + MAX_CONFIG);

/// Splits SET_MEM_TABLE's payload into its regions; `None` when count and length do not agree.
pub fn memory_table(payload: &[u8]) -> Option<&[MemoryRegion]> {
    let (head, rest) = MemoryTableHeader::ref_from_prefix(payload).ok()?;
    let count = head.regions.get() as usize;
    if count > MAX_TABLE_REGIONS {
        return None;
    }
    // QEMU sends the whole table whatever the count; the surplus means nothing.
    <[MemoryRegion]>::ref_from_prefix_with_elems(rest, count).ok().map(|(regions, _)| regions)
}

/// Splits GET_CONFIG's and SET_CONFIG's payload; `None` when the lengths do not agree.
pub fn config_payload(payload: &[u8]) -> Option<(&ConfigHeader, &[u8])> {
    let (head, rest) = ConfigHeader::ref_from_prefix(payload).ok()?;
    let size = head.size.get() as usize;
    (size <= MAX_CONFIG && rest.len() == size).then_some((head, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn same<T: FromBytes + IntoBytes + Immutable>(bytes: &[u8]) -> bool {
        T::read_from_prefix(bytes).is_ok_and(|(v, _)| v.as_bytes() == &bytes[..size_of::<T>()])
    }

    proptest! {
        #[test]
        fn round_trip(bytes in proptest::array::uniform32(any::<u8>()), more in proptest::array::uniform32(any::<u8>())) {
            let mut b = [0; 64];
            b[..32].copy_from_slice(&bytes);
            b[32..].copy_from_slice(&more);
            prop_assert!(same::<Header>(&b) && same::<VringState>(&b) && same::<VringAddress>(&b) && same::<VringFd>(&b));
            prop_assert!(same::<MemoryRegion>(&b) && same::<SingleRegion>(&b) && same::<ConfigHeader>(&b) && same::<Inflight>(&b) && same::<LogBase>(&b));
        }

        #[test]
        fn decoders_take_anything(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            if let Some(regions) = memory_table(&bytes) {
                prop_assert!(8 + 32 * regions.len() <= bytes.len() && regions.len() <= MAX_TABLE_REGIONS);
            }
            if let Some((head, data)) = config_payload(&bytes) {
                prop_assert_eq!(head.size.get() as usize, data.len());
            }
        }
    }

    #[test]
    fn a_table_says_how_many_regions_it_has() {
        let mut b = [0u8; 8 + 3 * 32];
        b[0] = 3;
        assert_eq!(memory_table(&b).map(<[_]>::len), Some(3));
        b[0] = 4;
        assert_eq!(memory_table(&b), None);
        assert_eq!(memory_table(&b[..7]), None);
    }
}
