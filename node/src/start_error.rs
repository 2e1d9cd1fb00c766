//! Why a node does not start.

use crate::device::OpenError;
use crate::listen;
use std::fmt;
use weir_config::admission::Breach;
use weir_sys::reactor::ReactorError;

/// Why a node does not start.
#[derive(Debug)]
pub enum StartError {
    /// Promises to tenants that cannot be kept.
    Refused(Vec<Breach>),
    /// An address of NVMe/TCP cannot be had.
    Listen(listen::BindError),
    /// A drive cannot be opened.
    Device(String, OpenError),
    /// An export cannot be opened.
    Export(String, String),
    /// A pool does not come up, or a volume is not to be had: the section, and why.
    Pool(String, String),
    /// No event loop.
    Reactor(ReactorError),
    /// What another worker has left cannot be taken over, or it takes over at this moment.
    Owner(std::io::Error),
    /// A thread cannot be started or pinned.
    Thread(usize, std::io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Refused(breaches) => {
                breaches.iter().try_for_each(|breach| writeln!(f, "{breach}"))?;
                f.write_str(
                    "not started: promise less, change weights or quanta (weir plan), or start with --force or \
                     node.admission = \"warn\"",
                )
            }
            StartError::Listen(why) => write!(f, "door.nvme-tcp.listen: {why}"),
            StartError::Device(name, why) => write!(f, "device.{name}: {why}"),
            StartError::Export(door, why) => write!(f, "export {door}: {why}"),
            StartError::Pool(section, why) => write!(f, "{section}: {why}"),
            StartError::Reactor(why) => write!(f, "{why}"),
            StartError::Owner(why) => write!(f, "keeper: {why}"),
            StartError::Thread(core, why) => {
                write!(f, "node.cores: no thread on CPU {core}: {why}; name CPUs that this process may use")
            }
        }
    }
}

impl std::error::Error for StartError {}

impl From<ReactorError> for StartError {
    fn from(e: ReactorError) -> Self {
        StartError::Reactor(e)
    }
}
