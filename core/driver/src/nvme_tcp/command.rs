//! Submission queue entries that a host sends, over fabrics and for the NVM command set. CID and data pointer are set when
//! they are submitted.

use crate::IoKind;
use weir_spec::nvme::fabrics::{CATTR_DISABLE_SQ_FLOW, CATTR_PRIORITY, Connect, Property};
use weir_spec::nvme::feature::fid;
use weir_spec::nvme::identify::NSID_ALL;
use weir_spec::nvme::log::lid;
use weir_spec::nvme::nvm::{DEAC, DSM_AD, DsmRange};
use weir_spec::nvme::{AdminOpcode, FabricsType, IoOpcode, Sqe};
use weir_units::Class;
use zerocopy::little_endian::{U16, U32, U64};

/// Connect (base 2.0, 6.3). `depth` is SQSIZE + 1; `kato` in ms counts on the admin queue.
pub fn connect(qid: u16, depth: u16, cattr: u8, kato: u32) -> Sqe {
    Connect {
        opcode: AdminOpcode::FABRICS.0,
        fctype: FabricsType::CONNECT.0,
        qid: U16::new(qid),
        sqsize: U16::new(depth.saturating_sub(1)),
        cattr,
        kato: U32::new(kato),
        ..Connect::default()
    }
    .into()
}

/// CATTR: the priority class wished for (00b, which says urgent, when none is) and whether SQ flow control is disabled.
pub fn cattr(class: Option<Class>, sq_flow_control: bool) -> u8 {
    let priority = match class {
        None | Some(Class::Urgent) => 0,
        Some(Class::High) => 1,
        Some(Class::Medium) => 2,
        Some(Class::Low) => 3,
    };
    priority & CATTR_PRIORITY | if sq_flow_control { 0 } else { CATTR_DISABLE_SQ_FLOW }
}

/// Property Get of a register of 4 or 8 bytes (base 2.0, 6.5).
pub fn property_get(offset: u32, size: u8) -> Sqe {
    Property {
        opcode: AdminOpcode::FABRICS.0,
        fctype: FabricsType::PROPERTY_GET.0,
        attrib: u8::from(size == 8),
        ofst: U32::new(offset),
        ..Property::default()
    }
    .into()
}

/// Property Set of a register of 4 bytes (base 2.0, 6.6).
pub fn property_set(offset: u32, value: u32) -> Sqe {
    Property {
        opcode: AdminOpcode::FABRICS.0,
        fctype: FabricsType::PROPERTY_SET.0,
        ofst: U32::new(offset),
        value: U64::new(u64::from(value)),
        ..Property::default()
    }
    .into()
}

/// Identify (base 2.0, 5.17); 4096 bytes to the host.
pub fn identify(cns: u8, nsid: u32) -> Sqe {
    Sqe { opcode: AdminOpcode::IDENTIFY.0, nsid: U32::new(nsid), cdw10: U32::new(u32::from(cns)), ..Sqe::default() }
}

/// Set Features, Number of Queues: so many I/O queue pairs (base 2.0, 5.27.1.5).
pub fn set_queues(pairs: u16) -> Sqe {
    let n = u32::from(pairs.saturating_sub(1));
    Sqe {
        opcode: AdminOpcode::SET_FEATURES.0,
        cdw10: U32::new(u32::from(fid::QUEUES)),
        cdw11: U32::new(n << 16 | n),
        ..Sqe::default()
    }
}

/// Set Features, Asynchronous Event Configuration (base 2.0, 5.27.1.8): which notices the host wants,
/// [`async_config`](weir_spec::nvme::feature::async_config).
pub fn set_notices(wanted: u32) -> Sqe {
    Sqe {
        opcode: AdminOpcode::SET_FEATURES.0,
        cdw10: U32::new(u32::from(fid::ASYNC_EVENTS)),
        cdw11: U32::new(wanted),
        ..Sqe::default()
    }
}

/// Asynchronous Event Request (base 2.0, 5.2).
pub fn async_event_request() -> Sqe {
    Sqe { opcode: AdminOpcode::ASYNC_EVENT_REQUEST.0, ..Sqe::default() }
}

/// Keep Alive (base 2.0, 5.18).
pub fn keep_alive() -> Sqe {
    Sqe { opcode: AdminOpcode::KEEP_ALIVE.0, ..Sqe::default() }
}

/// [`log_page`] of the discovery log.
pub fn discovery_log(offset: u64, len: u32) -> Sqe {
    log_page(lid::DISCOVERY, offset, len)
}

/// Get Log Page of `len` bytes, a multiple of 4, from `offset` (base 2.0, 5.16). It clears the event that has announced the page.
pub fn log_page(lid: u8, offset: u64, len: u32) -> Sqe {
    let dwords = (len / 4).saturating_sub(1);
    Sqe {
        opcode: AdminOpcode::GET_LOG_PAGE.0,
        cdw10: U32::new((dwords & 0xffff) << 16 | u32::from(lid)),
        cdw11: U32::new(dwords >> 16),
        cdw12: U32::new(offset as u32),
        cdw13: U32::new((offset >> 32) as u32),
        ..Sqe::default()
    }
}

/// Get Log Page of the controller's SMART / Health Information. NSID is the broadcast value: Linux's target refuses 0h, which stands for the
/// same (base 2.0, Figure 202).
pub fn smart_log(len: u32) -> Sqe {
    Sqe { nsid: U32::new(NSID_ALL), ..log_page(lid::SMART, 0, len) }
}

/// An I/O command. A trim carries one [`DsmRange`] of data to the controller: [`trim_range`].
pub fn io(kind: IoKind, nsid: u32, lba: u64, blocks: u32) -> Sqe {
    Sqe::from_words(io_words(kind, nsid, lba, blocks))
}

/// The same as words ([`Sqe::words`]), for rings.
#[inline]
pub fn io_words(kind: IoKind, nsid: u32, lba: u64, blocks: u32) -> [u64; 8] {
    let opcode = match kind {
        IoKind::Read => IoOpcode::READ,
        IoKind::Write => IoOpcode::WRITE,
        IoKind::WriteZeroes => IoOpcode::WRITE_ZEROES,
        IoKind::Trim => IoOpcode::DATASET_MANAGEMENT,
        IoKind::Flush => IoOpcode::FLUSH,
    };
    let deallocate = if kind == IoKind::WriteZeroes { DEAC } else { 0 };
    let (cdw10_11, cdw12) = match kind {
        IoKind::Read | IoKind::Write | IoKind::WriteZeroes => (lba, blocks.saturating_sub(1) & 0xffff | deallocate),
        IoKind::Trim => (u64::from(DSM_AD) << 32, 0),
        IoKind::Flush => (0, 0),
    };
    [u64::from(opcode.0) | u64::from(nsid) << 32, 0, 0, 0, 0, cdw10_11, cdw12.into(), 0]
}

/// The data of a trim.
pub fn trim_range(lba: u64, blocks: u32) -> DsmRange {
    DsmRange::new(lba, blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux's target answers Invalid Namespace or Format to NSID 0h.
    #[test]
    fn the_smart_log_is_that_of_the_controller() {
        let sqe = smart_log(512);
        assert_eq!((sqe.nsid.get(), sqe.cdw10.get()), (0xffff_ffff, 127 << 16 | 0x02));
    }
}
