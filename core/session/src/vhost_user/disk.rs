//! What a device says about itself: features and configuration space.

use super::queue::MAX_QUEUE_SIZE;
use weir_spec::vhost_user::{F_LOG_ALL, F_PROTOCOL_FEATURES, protocol};
use weir_spec::virtio_blk::{Config, ID_BYTES, SECTOR, SECTOR_SHIFT, feature as blk};
use weir_spec::virtqueue::feature as ring;
use zerocopy::little_endian::{U16, U32, U64};

/// The block device behind a socket.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Capacity in 512-byte sectors.
    pub sectors: u64,
    /// log2 of the block size, 9 at the least.
    pub block_shift: u8,
    /// Writes are refused.
    pub read_only: bool,
    /// Request queues offered, 1 to [`Disk::MAX_QUEUES`].
    pub queues: u16,
    /// Most data segments in a request.
    pub seg_max: u32,
    /// Longest command that the drive takes, in bytes, a multiple of the block size: longer requests become several.
    pub max_transfer: u32,
    /// Longest write-zeroes command that the drive takes, in bytes, a multiple of the block size.
    pub max_zeroes: u32,
    /// Most commands of a queue that the drive takes at once.
    pub max_commands: u32,
    /// Longest DISCARD in sectors.
    pub max_discard_sectors: u32,
    /// Longest WRITE_ZEROES in sectors.
    pub max_write_zeroes_sectors: u32,
    /// Requests in flight are journalled, in a region that the front end keeps (INFLIGHT_SHMFD).
    pub journal: bool,
    /// Which memory its data is in, where that may be gone with the process, so that a front end is not served another one; 0: it is not.
    pub medium: u64,
    /// It has become another disk, and its driver has not asked for the serial since: only GET_ID is answered, all else fails.
    pub renewed: bool,
    /// What GET_ID answers, padded with zeroes.
    pub serial: [u8; ID_BYTES],
}

impl Disk {
    /// Most request queues.
    pub const MAX_QUEUES: u16 = 16;

    /// Protocol features that every disk offers.
    pub const PROTOCOL: u64 = protocol::MQ
        | protocol::LOG_SHMFD
        | protocol::REPLY_ACK
        | protocol::CONFIG
        | protocol::BACKEND_REQ
        | protocol::CONFIGURE_MEM_SLOTS
        | protocol::RESET_DEVICE;

    /// What GET_ID answers for that serial.
    pub(crate) fn id(serial: &str) -> [u8; ID_BYTES] {
        let mut id = [0; ID_BYTES];
        id.iter_mut().zip(serial.bytes()).for_each(|(to, from)| *to = from);
        id
    }

    /// A writable disk of that many bytes with 512-byte blocks and the usual limits.
    pub fn new(bytes: u64, serial: &str) -> Self {
        Self {
            sectors: bytes >> SECTOR_SHIFT,
            block_shift: SECTOR_SHIFT as u8,
            read_only: false,
            queues: Self::MAX_QUEUES,
            seg_max: 126,
            max_transfer: 1 << 20,
            max_zeroes: 32 << 20,
            max_commands: 4096,
            max_discard_sectors: 1 << 21,
            max_write_zeroes_sectors: 1 << 21,
            journal: true,
            medium: 0,
            renewed: false,
            serial: Self::id(serial),
        }
    }

    /// Protocol features that this disk offers.
    pub fn protocol(&self) -> u64 {
        Self::PROTOCOL | if self.journal { protocol::INFLIGHT_SHMFD } else { 0 }
    }

    /// Virtio features offered.
    pub fn features(&self) -> u64 {
        let mut f = ring::VERSION_1
            | ring::RING_PACKED
            | ring::INDIRECT_DESC
            | ring::EVENT_IDX
            | F_PROTOCOL_FEATURES
            | F_LOG_ALL
            | blk::SEG_MAX
            | blk::BLK_SIZE
            | blk::FLUSH
            | blk::MQ;
        f |= if self.read_only { blk::RO } else { blk::DISCARD | blk::WRITE_ZEROES };
        f
    }

    /// The configuration space, without the fields that `features` do not make valid.
    pub fn config(&self, features: u64) -> Config {
        let block_sectors = U32::new(1 << (u32::from(self.block_shift) - SECTOR_SHIFT));
        let mut c = Config {
            capacity: U64::new(self.sectors),
            seg_max: U32::new(self.seg_max),
            blk_size: U32::new(1 << self.block_shift),
            num_queues: U16::new(self.queues),
            max_discard_sectors: U32::new(self.max_discard_sectors),
            max_discard_seg: U32::new(1),
            discard_sector_alignment: block_sectors,
            max_write_zeroes_sectors: U32::new(self.max_write_zeroes_sectors),
            max_write_zeroes_seg: U32::new(1),
            write_zeroes_may_unmap: 1,
            ..Config::default()
        };
        c.keep(features & self.features());
        c
    }

    /// Whether `len` bytes at `sector` are whole blocks of the disk.
    #[inline]
    pub(super) fn holds(&self, sector: u64, len: u64) -> bool {
        let mask = (1u64 << self.block_shift) - 1;
        let count = len >> SECTOR_SHIFT;
        sector <= self.sectors && count <= self.sectors - sector && ((sector * SECTOR) | len) & mask == 0
    }
}

// Tags carry the queue in six bits.
const _: () = assert!(Disk::MAX_QUEUES <= 64 && MAX_QUEUE_SIZE <= 4096);
