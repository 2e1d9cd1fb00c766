//! The controller memory buffer (base 2.0, 3.1.3.11, 3.1.3.12, 3.1.3.18 and 3.1.3.19; 8.5): memory of the drive that hosts put
//! queues, lists and data into. The bytes are the door's, a region of a BAR; here is where its host sees them.

use crate::event::ControllerHandle;
use crate::subsystem::Subsystem;
use weir_spec::nvme::Status;
use weir_spec::nvme::register::{CmbLoc, CmbMsc, CmbSts, CmbSz};

/// The base address register that the buffer begins at.
pub const CMB_BAR: u8 = 2;

/// Where a host addresses the memory buffer: addresses in it are the drive's own memory in every queue, list and data pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBuffer {
    /// CMBMSC.CBA, in bytes.
    pub base: u64,
    /// Its length in bytes (CMBSZ; NVMe base 2.0, 3.1.3.12).
    pub size: u64,
}

impl MemoryBuffer {
    /// The place in the buffer of `len` bytes at an address; `None`: they are in host memory.
    ///
    /// # Errors
    /// They are partly here and partly there: Invalid Use of Controller Memory Buffer.
    #[inline]
    pub const fn offset(&self, address: u64, len: u64) -> Result<Option<u64>, Status> {
        let end = self.base.saturating_add(self.size);
        let last = address.saturating_add(len);
        match (address >= self.base && address < end, last > self.base && last <= end) {
            (true, true) => Ok(Some(address - self.base)),
            (true, false) => Err(Status::INVALID_CMB_USE.dnr()),
            (false, true) if len > 0 => Err(Status::INVALID_CMB_USE.dnr()),
            (false, _) if address < self.base && last > end => Err(Status::INVALID_CMB_USE.dnr()),
            _ => Ok(None),
        }
    }
}

impl Subsystem {
    /// The memory buffer of a ring controller, if it has one and its host has said where it sees it. It changes with writes of
    /// registers and with resets only.
    pub fn memory_buffer(&self, controller: ControllerHandle) -> Option<MemoryBuffer> {
        let msc = self.ctrl(self.resolve(controller)?)?.cmbmsc;
        let buffer = MemoryBuffer { base: msc.cba() << 12, size: self.config.cmb };
        let on = buffer.size > 0 && msc.cre() == 1 && msc.cmse() == 1;
        (on && self.cmb_status(msc).cbai() == 0).then_some(buffer)
    }

    /// CMBLOC: from the begin of its BAR; queues, lists and data may be mixed with those in host memory in every way.
    pub(crate) fn cmb_location(&self, msc: CmbMsc) -> CmbLoc {
        if self.config.cmb == 0 || msc.cre() == 0 {
            return CmbLoc(0);
        }
        let loc = CmbLoc(0).with_bir(CMB_BAR.into()).with_cqmms(1).with_cqpds(1).with_cdpmls(1);
        loc.with_cdpcils(1).with_cdmmms(1).with_cqda(1)
    }

    /// CMBSZ, in pages of 4 KiB.
    pub(crate) fn cmb_size(&self, msc: CmbMsc) -> CmbSz {
        if self.config.cmb == 0 || msc.cre() == 0 {
            return CmbSz(0);
        }
        CmbSz(0).with_sqs(1).with_cqs(1).with_lists(1).with_rds(1).with_wds(1).with_sz((self.config.cmb >> 12) as u32)
    }

    /// CMBSTS: a buffer that would not fit behind its address is not enabled.
    pub(crate) fn cmb_status(&self, msc: CmbMsc) -> CmbSts {
        let fits = (msc.cba() << 12).checked_add(self.config.cmb).is_some();
        CmbSts(0).with_cbai((self.config.cmb > 0 && msc.cmse() == 1 && !fits).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_partly_inside_is_an_invalid_use() {
        let buffer = MemoryBuffer { base: 0x1_0000, size: 0x1000 };
        let bad = Err(Status::INVALID_CMB_USE.dnr());
        assert_eq!(buffer.offset(0x1_0000, 0x1000), Ok(Some(0)));
        assert_eq!(buffer.offset(0x1_0fff, 1), Ok(Some(0xfff)));
        assert_eq!(buffer.offset(0xffff, 1), Ok(None));
        assert_eq!(buffer.offset(0x1_1000, 64), Ok(None));
        assert_eq!(buffer.offset(0xffff, 2), bad);
        assert_eq!(buffer.offset(0x1_0fff, 2), bad);
        assert_eq!(buffer.offset(0, 0x10_0000), bad);
        assert_eq!(buffer.offset(u64::MAX, 64), Ok(None));
    }
}
