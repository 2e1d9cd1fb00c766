//! The status field of a completion (base 2.0, 3.3.3.2.1, Figures 93 to 101; NVM 1.0; fabrics).

use core::fmt;

/// A status field without the phase tag: SC in bits 7:0, SCT in 10:8, CRD in 12:11, M in 13, DNR in 14.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Status(u16);

impl Status {
    const DNR: u16 = 1 << 14;
    const MORE: u16 = 1 << 13;

    /// From the 15-bit field.
    pub const fn from_field(field: u16) -> Self {
        Status(field & 0x7fff)
    }
    /// The 15-bit field.
    pub const fn field(self) -> u16 {
        self.0
    }
    /// From status code type and status code.
    pub const fn new(sct: u8, sc: u8) -> Self {
        Status((sct as u16 & 7) << 8 | sc as u16)
    }
    /// SC.
    pub const fn sc(self) -> u8 {
        self.0 as u8
    }
    /// SCT.
    pub const fn sct(self) -> u8 {
        (self.0 >> 8) as u8 & 7
    }
    /// With Do Not Retry set.
    pub const fn dnr(self) -> Self {
        Status(self.0 | Self::DNR)
    }
    /// With More set.
    pub const fn more(self) -> Self {
        Status(self.0 | Self::MORE)
    }
    /// Whether Do Not Retry is set.
    pub const fn is_dnr(self) -> bool {
        self.0 & Self::DNR != 0
    }
    /// SCT and SC both 0.
    pub const fn is_success(self) -> bool {
        self.0 & 0x7ff == 0
    }
    /// The same code, whatever DNR, M and CRD say.
    pub const fn same_code(self, other: Status) -> bool {
        self.0 & 0x7ff == other.0 & 0x7ff
    }
}

macro_rules! statuses {
    ($($name:ident = $sct:literal, $sc:literal, $text:literal;)*) => {
        #[allow(missing_docs)]
        impl Status {
            $(pub const $name: Status = Status::new($sct, $sc);)*
            /// The standard's words for this code.
            pub const fn text(self) -> &'static str {
                match (self.sct(), self.sc()) { $(($sct, $sc) => $text,)* _ => "unknown status" }
            }
        }
    };
}

statuses! {
    SUCCESS = 0, 0x00, "Successful Completion";
    INVALID_OPCODE = 0, 0x01, "Invalid Command Opcode";
    INVALID_FIELD = 0, 0x02, "Invalid Field in Command";
    COMMAND_ID_CONFLICT = 0, 0x03, "Command ID Conflict";
    DATA_TRANSFER_ERROR = 0, 0x04, "Data Transfer Error";
    ABORTED_POWER_LOSS = 0, 0x05, "Commands Aborted due to Power Loss Notification";
    INTERNAL_ERROR = 0, 0x06, "Internal Error";
    ABORT_REQUESTED = 0, 0x07, "Command Abort Requested";
    ABORTED_SQ_DELETION = 0, 0x08, "Command Aborted due to SQ Deletion";
    ABORTED_FAILED_FUSED = 0, 0x09, "Command Aborted due to Failed Fused Command";
    ABORTED_MISSING_FUSED = 0, 0x0a, "Command Aborted due to Missing Fused Command";
    INVALID_NAMESPACE_OR_FORMAT = 0, 0x0b, "Invalid Namespace or Format";
    COMMAND_SEQUENCE_ERROR = 0, 0x0c, "Command Sequence Error";
    INVALID_SGL_SEGMENT = 0, 0x0d, "Invalid SGL Segment Descriptor";
    INVALID_SGL_COUNT = 0, 0x0e, "Invalid Number of SGL Descriptors";
    DATA_SGL_LENGTH_INVALID = 0, 0x0f, "Data SGL Length Invalid";
    METADATA_SGL_LENGTH_INVALID = 0, 0x10, "Metadata SGL Length Invalid";
    SGL_TYPE_INVALID = 0, 0x11, "SGL Descriptor Type Invalid";
    INVALID_CMB_USE = 0, 0x12, "Invalid Use of Controller Memory Buffer";
    PRP_OFFSET_INVALID = 0, 0x13, "PRP Offset Invalid";
    ATOMIC_WRITE_UNIT_EXCEEDED = 0, 0x14, "Atomic Write Unit Exceeded";
    OPERATION_DENIED = 0, 0x15, "Operation Denied";
    SGL_OFFSET_INVALID = 0, 0x16, "SGL Offset Invalid";
    HOST_ID_INCONSISTENT = 0, 0x18, "Host Identifier Inconsistent Format";
    KEEP_ALIVE_EXPIRED = 0, 0x19, "Keep Alive Timer Expired";
    KEEP_ALIVE_INVALID = 0, 0x1a, "Keep Alive Timeout Invalid";
    ABORTED_PREEMPT = 0, 0x1b, "Command Aborted due to Preempt and Abort";
    SANITIZE_FAILED = 0, 0x1c, "Sanitize Failed";
    SANITIZE_IN_PROGRESS = 0, 0x1d, "Sanitize In Progress";
    SGL_GRANULARITY_INVALID = 0, 0x1e, "SGL Data Block Granularity Invalid";
    CMB_COMMAND_NOT_SUPPORTED = 0, 0x1f, "Command Not Supported for Queue in CMB";
    NAMESPACE_WRITE_PROTECTED = 0, 0x20, "Namespace is Write Protected";
    COMMAND_INTERRUPTED = 0, 0x21, "Command Interrupted";
    TRANSIENT_TRANSPORT_ERROR = 0, 0x22, "Transient Transport Error";
    PROHIBITED_BY_LOCKDOWN = 0, 0x23, "Command Prohibited by Command and Feature Lockdown";
    MEDIA_NOT_READY = 0, 0x24, "Admin Command Media Not Ready";
    FDP_DISABLED = 0, 0x29, "Flexible Data Placement Disabled";
    INVALID_PLACEMENT_HANDLE_LIST = 0, 0x2a, "Invalid Placement Handle List";
    LBA_OUT_OF_RANGE = 0, 0x80, "LBA Out of Range";
    CAPACITY_EXCEEDED = 0, 0x81, "Capacity Exceeded";
    NAMESPACE_NOT_READY = 0, 0x82, "Namespace Not Ready";
    RESERVATION_CONFLICT = 0, 0x83, "Reservation Conflict";
    FORMAT_IN_PROGRESS = 0, 0x84, "Format In Progress";
    CQ_INVALID = 1, 0x00, "Completion Queue Invalid";
    INVALID_QUEUE_ID = 1, 0x01, "Invalid Queue Identifier";
    INVALID_QUEUE_SIZE = 1, 0x02, "Invalid Queue Size";
    ABORT_LIMIT_EXCEEDED = 1, 0x03, "Abort Command Limit Exceeded";
    ASYNC_EVENT_LIMIT_EXCEEDED = 1, 0x05, "Asynchronous Event Request Limit Exceeded";
    INVALID_FIRMWARE_SLOT = 1, 0x06, "Invalid Firmware Slot";
    INVALID_FIRMWARE_IMAGE = 1, 0x07, "Invalid Firmware Image";
    INVALID_INTERRUPT_VECTOR = 1, 0x08, "Invalid Interrupt Vector";
    INVALID_LOG_PAGE = 1, 0x09, "Invalid Log Page";
    INVALID_FORMAT = 1, 0x0a, "Invalid Format";
    FIRMWARE_NEEDS_CONVENTIONAL_RESET = 1, 0x0b, "Firmware Activation Requires Conventional Reset";
    INVALID_QUEUE_DELETION = 1, 0x0c, "Invalid Queue Deletion";
    FEATURE_NOT_SAVEABLE = 1, 0x0d, "Feature Identifier Not Saveable";
    FEATURE_NOT_CHANGEABLE = 1, 0x0e, "Feature Not Changeable";
    FEATURE_NOT_NAMESPACE_SPECIFIC = 1, 0x0f, "Feature Not Namespace Specific";
    FIRMWARE_NEEDS_SUBSYSTEM_RESET = 1, 0x10, "Firmware Activation Requires NVM Subsystem Reset";
    FIRMWARE_NEEDS_CONTROLLER_RESET = 1, 0x11, "Firmware Activation Requires Controller Level Reset";
    FIRMWARE_NEEDS_MAXIMUM_TIME = 1, 0x12, "Firmware Activation Requires Maximum Time Violation";
    FIRMWARE_ACTIVATION_PROHIBITED = 1, 0x13, "Firmware Activation Prohibited";
    OVERLAPPING_RANGE = 1, 0x14, "Overlapping Range";
    NAMESPACE_INSUFFICIENT_CAPACITY = 1, 0x15, "Namespace Insufficient Capacity";
    NAMESPACE_ID_UNAVAILABLE = 1, 0x16, "Namespace Identifier Unavailable";
    NAMESPACE_ALREADY_ATTACHED = 1, 0x18, "Namespace Already Attached";
    NAMESPACE_IS_PRIVATE = 1, 0x19, "Namespace Is Private";
    NAMESPACE_NOT_ATTACHED = 1, 0x1a, "Namespace Not Attached";
    THIN_PROVISIONING_NOT_SUPPORTED = 1, 0x1b, "Thin Provisioning Not Supported";
    CONTROLLER_LIST_INVALID = 1, 0x1c, "Controller List Invalid";
    SELF_TEST_IN_PROGRESS = 1, 0x1d, "Device Self-test In Progress";
    BOOT_PARTITION_WRITE_PROHIBITED = 1, 0x1e, "Boot Partition Write Prohibited";
    INVALID_CONTROLLER_ID = 1, 0x1f, "Invalid Controller Identifier";
    INVALID_SECONDARY_STATE = 1, 0x20, "Invalid Secondary Controller State";
    INVALID_RESOURCE_COUNT = 1, 0x21, "Invalid Number of Controller Resources";
    INVALID_RESOURCE_ID = 1, 0x22, "Invalid Resource Identifier";
    SANITIZE_PROHIBITED_WITH_PMR = 1, 0x23, "Sanitize Prohibited While Persistent Memory Region is Enabled";
    ANA_GROUP_ID_INVALID = 1, 0x24, "ANA Group Identifier Invalid";
    ANA_ATTACH_FAILED = 1, 0x25, "ANA Attach Failed";
    INSUFFICIENT_CAPACITY = 1, 0x26, "Insufficient Capacity";
    NAMESPACE_ATTACHMENT_LIMIT_EXCEEDED = 1, 0x27, "Namespace Attachment Limit Exceeded";
    LOCKDOWN_NOT_SUPPORTED = 1, 0x28, "Prohibition of Command Execution Not Supported";
    COMMAND_SET_NOT_SUPPORTED = 1, 0x29, "I/O Command Set Not Supported";
    COMMAND_SET_NOT_ENABLED = 1, 0x2a, "I/O Command Set Not Enabled";
    COMMAND_SET_COMBINATION_REJECTED = 1, 0x2b, "I/O Command Set Combination Rejected";
    INVALID_COMMAND_SET = 1, 0x2c, "Invalid I/O Command Set";
    ID_UNAVAILABLE = 1, 0x2d, "Identifier Unavailable";
    CONFLICTING_ATTRIBUTES = 1, 0x80, "Conflicting Attributes (NVM) / Incompatible Format (Connect)";
    CONNECT_CONTROLLER_BUSY = 1, 0x81, "Connect Controller Busy (fabrics) / Invalid Protection Information (NVM)";
    CONNECT_INVALID_PARAMETERS = 1, 0x82, "Connect Invalid Parameters (fabrics) / Attempted Write to Read Only Range (NVM)";
    CONNECT_RESTART_DISCOVERY = 1, 0x83, "Connect Restart Discovery";
    CONNECT_INVALID_HOST = 1, 0x84, "Connect Invalid Host";
    DISCONNECT_INVALID_QUEUE_TYPE = 1, 0x85, "Invalid Queue Type";
    DISCOVER_RESTART = 1, 0x90, "Discover Restart";
    AUTHENTICATION_REQUIRED = 1, 0x91, "Authentication Required";
    INVALID_ZONE_OPERATION = 1, 0xb6, "Invalid Zone Operation Request";
    ZRWA_RESOURCES_UNAVAILABLE = 1, 0xb7, "ZRWA Resources Unavailable";
    ZONE_BOUNDARY_ERROR = 1, 0xb8, "Zone Boundary Error";
    ZONE_IS_FULL = 1, 0xb9, "Zone Is Full";
    ZONE_IS_READ_ONLY = 1, 0xba, "Zone Is Read Only";
    ZONE_IS_OFFLINE = 1, 0xbb, "Zone Is Offline";
    ZONE_INVALID_WRITE = 1, 0xbc, "Zone Invalid Write";
    TOO_MANY_ACTIVE_ZONES = 1, 0xbd, "Too Many Active Zones";
    TOO_MANY_OPEN_ZONES = 1, 0xbe, "Too Many Open Zones";
    INVALID_ZONE_STATE_TRANSITION = 1, 0xbf, "Invalid Zone State Transition";
    WRITE_FAULT = 2, 0x80, "Write Fault";
    UNRECOVERED_READ_ERROR = 2, 0x81, "Unrecovered Read Error";
    GUARD_CHECK_ERROR = 2, 0x82, "End-to-end Guard Check Error";
    APPLICATION_TAG_CHECK_ERROR = 2, 0x83, "End-to-end Application Tag Check Error";
    REFERENCE_TAG_CHECK_ERROR = 2, 0x84, "End-to-end Reference Tag Check Error";
    COMPARE_FAILURE = 2, 0x85, "Compare Failure";
    ACCESS_DENIED = 2, 0x86, "Access Denied";
    DEALLOCATED_BLOCK = 2, 0x87, "Deallocated or Unwritten Logical Block";
    STORAGE_TAG_CHECK_ERROR = 2, 0x88, "End-to-End Storage Tag Check Error";
    OFFLINE_CHUNK = 2, 0xc0, "Offline Chunk (Open-Channel)";
    INVALID_RESET = 2, 0xc1, "Invalid Reset (Open-Channel)";
    OUT_OF_ORDER_WRITE = 2, 0xf2, "Out of Order Write (Open-Channel)";
    INTERNAL_PATH_ERROR = 3, 0x00, "Internal Path Error";
    ANA_PERSISTENT_LOSS = 3, 0x01, "Asymmetric Access Persistent Loss";
    ANA_INACCESSIBLE = 3, 0x02, "Asymmetric Access Inaccessible";
    ANA_TRANSITION = 3, 0x03, "Asymmetric Access Transition";
    HOST_ABORTED = 3, 0x71, "Command Aborted By Host";
}

impl Status {
    /// Invalid Protection Information (NVM 1.0, Figure 12): of commands of the NVM command set what Connect has for a busy
    /// controller.
    pub const INVALID_PROTECTION_INFORMATION: Status = Status::CONNECT_CONTROLLER_BUSY;
}

impl Status {
    /// The standard's words for this code where it answers Connect: some codes mean something else there.
    pub const fn connect_text(self) -> &'static str {
        match (self.sct(), self.sc()) {
            (1, 0x80) => "Connect Incompatible Format",
            (1, 0x81) => "Connect Controller Busy",
            (1, 0x82) => "Connect Invalid Parameters",
            _ => self.text(),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (SCT {:x}h, SC {:02x}h", self.text(), self.sct(), self.sc())?;
        if self.is_dnr() {
            f.write_str(", DNR")?;
        }
        f.write_str(")")
    }
}
