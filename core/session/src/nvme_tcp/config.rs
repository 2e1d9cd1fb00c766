//! What a connection may do, fixed when it is accepted.

use weir_spec::nvme::tcp::{ADMIN_IN_CAPSULE, MAXH2CDATA_MIN, PDA_MAX};
use weir_units::Nanos;

/// In-capsule data of an I/O queue by default; identify's IOCCSZ must say the same: (64 + this) / 16.
pub const IN_CAPSULE: u32 = ADMIN_IN_CAPSULE;

/// The longest transfer of a command that any connection takes, in bytes; identify's MDTS must say no more. In-capsule data is no longer.
pub const MAX_TRANSFER: u32 = 1 << 20;

/// The largest queue: TTAG keeps the place in twelve bits and a generation in four.
pub const DEPTH_MAX: u32 = 4096;

/// Settings of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionSettings {
    /// Header digests are granted to a host that asks.
    pub header_digest: bool,
    /// Data digests are granted to a host that asks.
    pub data_digest: bool,
    /// C2HData may carry SUCCESS where the standard permits it.
    pub c2h_success: bool,
    /// The largest CPDA (0-based in dwords); the host's HPDA bounds it too. Linux accepts 0 only.
    pub cpda: u8,
    /// MAXH2CDATA.
    pub maxh2cdata: u32,
    /// In-capsule data accepted on an I/O queue, at least 8192 bytes; see [`IN_CAPSULE`].
    pub in_capsule: u32,
    /// The longest transfer of a command; matches MDTS.
    pub max_transfer: u32,
    /// The most data put into one C2HData PDU. The data of a read that is no longer comes in one, whose header says so:
    /// SPDK's initiator fills scattered buffers wrongly from the second one of a command on.
    pub c2h_data: u32,
    /// Read data that may be promised or wait for the socket. A command beyond it is held here, before any drive sees it.
    pub tx_limit: u32,
    /// How long an accepted connection may take to send its ICReq.
    pub icreq_timeout: Nanos,
    /// How long a host may take to close after a C2HTermReq (the standard leaves it 30 s).
    pub close_timeout: Nanos,
}

impl Default for ConnectionSettings {
    fn default() -> Self {
        Self {
            header_digest: true,
            data_digest: true,
            c2h_success: true,
            cpda: 0,
            maxh2cdata: 1 << 17,
            in_capsule: IN_CAPSULE,
            max_transfer: MAX_TRANSFER,
            c2h_data: MAX_TRANSFER,
            tx_limit: 8 << 20,
            icreq_timeout: Nanos::from_secs(10),
            close_timeout: Nanos::from_secs(30),
        }
    }
}

impl ConnectionSettings {
    /// The nearest settings that the standard permits.
    #[must_use]
    pub fn lawful(mut self) -> Self {
        self.cpda = self.cpda.min(PDA_MAX);
        self.maxh2cdata = (self.maxh2cdata & !3).max(MAXH2CDATA_MIN);
        self.in_capsule = self.in_capsule.max(ADMIN_IN_CAPSULE) & !15;
        self.c2h_data = (self.c2h_data & !3).max(4096);
        self
    }
}
