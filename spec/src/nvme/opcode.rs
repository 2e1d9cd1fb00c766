//! Opcodes (base 2.0, Figures 138 and 390; NVM command set 1.0, Figure 22). Unknown values stay representable.

macro_rules! codes {
    ($(#[$m:meta])* $name:ident: $t:ty { $($(#[$vm:meta])* $v:ident = $n:literal,)* }) => {
        $(#[$m])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub $t);
        impl $name {
            $($(#[$vm])* #[allow(missing_docs)] pub const $v: $name = $name($n);)*
            /// The name in the standard's words, or `None` for a value it does not define.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 { $($n => Some(stringify!($v)),)* _ => None }
            }
        }
        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(n) => f.write_str(n),
                    None => write!(f, "{}({:#x})", stringify!($name), self.0),
                }
            }
        }
    };
}
pub(crate) use codes;

codes! {
    /// An admin command's OPC.
    AdminOpcode: u8 {
        DELETE_IO_SQ = 0x00,
        CREATE_IO_SQ = 0x01,
        GET_LOG_PAGE = 0x02,
        DELETE_IO_CQ = 0x04,
        CREATE_IO_CQ = 0x05,
        IDENTIFY = 0x06,
        ABORT = 0x08,
        SET_FEATURES = 0x09,
        GET_FEATURES = 0x0a,
        ASYNC_EVENT_REQUEST = 0x0c,
        NAMESPACE_MANAGEMENT = 0x0d,
        FIRMWARE_COMMIT = 0x10,
        FIRMWARE_DOWNLOAD = 0x11,
        DEVICE_SELF_TEST = 0x14,
        NAMESPACE_ATTACHMENT = 0x15,
        KEEP_ALIVE = 0x18,
        DIRECTIVE_SEND = 0x19,
        DIRECTIVE_RECEIVE = 0x1a,
        VIRTUALIZATION_MANAGEMENT = 0x1c,
        MI_SEND = 0x1d,
        MI_RECEIVE = 0x1e,
        CAPACITY_MANAGEMENT = 0x20,
        LOCKDOWN = 0x24,
        DOORBELL_BUFFER_CONFIG = 0x7c,
        FABRICS = 0x7f,
        FORMAT_NVM = 0x80,
        SECURITY_SEND = 0x81,
        SECURITY_RECEIVE = 0x82,
        SANITIZE = 0x84,
        GET_LBA_STATUS = 0x86,
    }
}

codes! {
    /// An NVM command set I/O command's OPC.
    IoOpcode: u8 {
        FLUSH = 0x00,
        WRITE = 0x01,
        READ = 0x02,
        WRITE_UNCORRECTABLE = 0x04,
        COMPARE = 0x05,
        WRITE_ZEROES = 0x08,
        DATASET_MANAGEMENT = 0x09,
        VERIFY = 0x0c,
        RESERVATION_REGISTER = 0x0d,
        RESERVATION_REPORT = 0x0e,
        RESERVATION_ACQUIRE = 0x11,
        IO_MANAGEMENT_RECEIVE = 0x12,
        RESERVATION_RELEASE = 0x15,
        COPY = 0x19,
        IO_MANAGEMENT_SEND = 0x1d,
        FABRICS = 0x7f,
    }
}

codes! {
    /// FCTYPE of a fabrics command.
    FabricsType: u8 {
        PROPERTY_SET = 0x00,
        CONNECT = 0x01,
        PROPERTY_GET = 0x04,
        AUTHENTICATION_SEND = 0x05,
        AUTHENTICATION_RECEIVE = 0x06,
        DISCONNECT = 0x08,
    }
}

/// Bits 1:0 of any opcode say which way data moves (base 2.0, Figure 87).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// 00b.
    None,
    /// 01b.
    HostToController,
    /// 10b.
    ControllerToHost,
    /// 11b.
    Bidirectional,
}

/// The direction that an opcode's low bits state.
pub const fn transfer(opcode: u8) -> Transfer {
    match opcode & 3 {
        0 => Transfer::None,
        1 => Transfer::HostToController,
        2 => Transfer::ControllerToHost,
        _ => Transfer::Bidirectional,
    }
}
