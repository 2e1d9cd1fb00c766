//! Why a drive refuses what its operator asks for.

/// Why a management call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagementError {
    /// No tenant of that number or name.
    NoTenant,
    /// No such controller, or not of the model that the call is for.
    NoController,
    /// No such namespace.
    NoNamespace,
    /// The configured number of controllers or queues is reached.
    Full,
    /// The tenant has controllers.
    InUse,
    /// A queue of no entry or more than the drive's largest.
    QueueSize,
    /// Two namespaces of one NSID, an NSID of 0 or above 1024, a block size other than 512 and 4096, or a size or start
    /// that is no multiple of it.
    Namespace,
    /// A subsystem name that is no NQN.
    Nqn,
    /// No slots, no queue entries, or a weight or quantum of zero.
    Range,
    /// The namespace's size is its commands' affair, or it is being formatted.
    Fixed,
    /// Other namespaces have what is left of the drive.
    NoRoom,
    /// A memory buffer that no base address register can show: none, or a power of two from 4 KiB to 1 GiB.
    MemoryBuffer,
    /// Zones that do not fill their namespace or do not go with their flash, or a zoned namespace that is to change its size.
    Zones,
}

impl core::fmt::Display for ManagementError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            ManagementError::NoTenant => "there is no such tenant",
            ManagementError::NoController => "there is no such controller, or it is of another kind",
            ManagementError::NoNamespace => "there is no such namespace",
            ManagementError::Full => "the drive has as many controllers or queues as it may have",
            ManagementError::InUse => "it has controllers: disconnect its hosts first",
            ManagementError::QueueSize => "the queue depth is zero or larger than the drive permits",
            ManagementError::Namespace => {
                "a namespace needs an identifier of its own from 1 to 1024, a block size of 512 or 4096, and a start and size \
                 that are multiples of it"
            }
            ManagementError::Nqn => "the subsystem's name is no NQN (nqn.…, at most 223 bytes)",
            ManagementError::Zones => {
                "a zoned namespace is as large as its zones, its zones go with its flash, and its size cannot be changed"
            }
            ManagementError::NoRoom => "the drive has not so much room left: other namespaces have it",
            ManagementError::MemoryBuffer => "the controller memory buffer must be a power of two from 4 KiB to 1 GiB",
            ManagementError::Fixed => "this namespace keeps its size: its addresses are those of its flash",
            ManagementError::Range => "slots, queue entries, weights and quanta must be at least 1",
        })
    }
}

impl core::error::Error for ManagementError {}
