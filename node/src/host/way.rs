//! The queue pairs that there are, each as its transport has it.

use super::local::LocalQueue;
use weir_driver::{Done, Io, QueuePair, TransportError};
use weir_sys::transport::{nvme_tcp as tcp, pci, vfio_user as vfio, vhost_user as vhost};
use weir_units::Class;

pub(super) enum QueueWay {
    Tcp(Box<tcp::NvmeTcpQueue>),
    VfioUser(Box<vfio::VfioUserQueue>),
    Pci(Box<pci::PciQueue>),
    VhostUser(Box<vhost::VhostUserQueue>),
    Local(LocalQueue),
}

impl QueueWay {
    #[inline]
    pub(super) fn pair(&self) -> &dyn QueuePair {
        match self {
            QueueWay::Tcp(q) => &**q,
            QueueWay::VfioUser(q) => &**q,
            QueueWay::Pci(q) => &**q,
            QueueWay::VhostUser(q) => &**q,
            QueueWay::Local(q) => q,
        }
    }

    #[inline]
    pub(super) fn submit(&mut self, io: Io) -> Result<(), TransportError> {
        match self {
            QueueWay::Tcp(q) => q.submit(io),
            QueueWay::VfioUser(q) => q.submit(io),
            QueueWay::Pci(q) => q.submit(io),
            QueueWay::VhostUser(q) => q.submit(io),
            QueueWay::Local(q) => q.submit(io),
        }
    }

    #[inline]
    pub(super) fn poll(&mut self, done: &mut Vec<Done>) -> Result<(), TransportError> {
        match self {
            QueueWay::Tcp(q) => q.poll(done),
            QueueWay::VfioUser(q) => q.poll(done),
            QueueWay::Pci(q) => q.poll(done),
            QueueWay::VhostUser(q) => q.poll(done),
            QueueWay::Local(q) => q.poll(done),
        }
    }

    pub(super) fn buffer(&mut self, slot: u32) -> &mut [u8] {
        match self {
            QueueWay::Tcp(q) => q.buffer(slot),
            QueueWay::VfioUser(q) => q.buffer(slot),
            QueueWay::Pci(q) => q.buffer(slot),
            QueueWay::VhostUser(q) => q.buffer(slot),
            QueueWay::Local(q) => q.buffer(slot),
        }
    }

    /// Makes the submission queue of a memory-model controller anew with another QPRIO; the others' classes are changed otherwise.
    pub(super) fn make_anew(&mut self, class: Class) -> Result<(), TransportError> {
        match self {
            QueueWay::VfioUser(q) => q.set_class(class),
            QueueWay::Pci(q) => q.set_class(class),
            QueueWay::Tcp(_) | QueueWay::VhostUser(_) | QueueWay::Local(_) => Ok(()),
        }
    }
}
