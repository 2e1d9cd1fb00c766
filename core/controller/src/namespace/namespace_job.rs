//! What an admin command asks of namespaces that takes time: creating, deleting and formatting them, and write protecting them.
//!
//! ```text
//!  start_namespace_job: the command is kept ─▶ commands in flight end ─▶ the media is erased in steps ─▶ namespace_job_done: the change ─▶ complete
//! ```
//! Steps are a background job's. A reset of the controller, or the end of its connection, takes nothing but the answer away.

use crate::admin::exactly_once::CountedCommand;
use crate::namespace::metadata::Format;
use alloc::vec::Vec;

/// What is to become of the namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Create { format: Format, shift: u32 },
    Delete,
    Format { format: Format, shift: u32 },
    Protect { state: u8 },
}

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct NamespaceJob {
    pub id: u32,
    pub task: Task,
    pub nsids: Vec<u32>,
    /// The admin command that waits: its queue, identifier and tag.
    pub waiter: Option<(u32, u16, u32)>,
    /// The command, and its controller's life, whether anybody waits or not: see [`crate::admin::exactly_once`].
    pub by: (u64, CountedCommand),
    /// DW0 of its completion.
    pub result: u64,
    /// NSID and DW10 of the command.
    pub asked: u32,
    pub cdw10: u32,
}
