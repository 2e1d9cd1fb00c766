//! Asks a target whether it still has an association, over a connection of its own ([`weir_driver::nvme_tcp::association_probe`]).

use super::{Link, Slots};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_driver::TransportError;
use weir_driver::nvme_tcp::{Association, Buffers, ConnectOptions, DataTransfer, HostSettings, association_probe};
use weir_spec::nvme::fabrics::ConnectData;
use weir_spec::nvme::tcp::ADMIN_IN_CAPSULE;
use zerocopy::IntoBytes;

/// Between questions.
const RETRY: Duration = Duration::from_millis(2);

/// Controllers that this process is associated with, by target and identifier, and which of its associations that is, from 1.
static OWN: Mutex<Own> = Mutex::new(Own { live: BTreeMap::new(), count: 0 });

struct Own {
    live: BTreeMap<(String, u16), u64>,
    count: u64,
}

fn own() -> MutexGuard<'static, Own> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An association of this process, while it is used. Its identifier is free for others when the target has ended it, so that a newer
/// association of this process may have it.
#[derive(Debug)]
pub(super) struct AssociationUse {
    key: (String, u16),
    number: u64,
}

impl AssociationUse {
    pub(super) fn new(host: &str, port: u16, options: &ConnectOptions, cntlid: u16) -> Self {
        let (key, mut own) = (key(host, port, options, cntlid), own());
        own.count += 1;
        let number = own.count;
        own.live.insert(key.clone(), number);
        Self { key, number }
    }

    /// Which one of this process it is.
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for AssociationUse {
    fn drop(&mut self) {
        let mut own = own();
        if own.live.get(&self.key) == Some(&self.number) {
            own.live.remove(&self.key);
        }
    }
}

fn key(host: &str, port: u16, options: &ConnectOptions, cntlid: u16) -> (String, u16) {
    (format!("{host}:{port}/{}", options.subnqn), cntlid)
}

/// Whether the target that the options name has the association whose controller has this identifier. `number` tells one of this process
/// ([`NvmeTcpQueue::association`](super::NvmeTcpQueue::association)) from newer ones with the same identifier; 0 is one of another process.
/// Waits for the network.
///
/// # Errors
/// Nobody answers there, or the connection ends before the answer.
pub fn association(
    (host, port): (&str, u16),
    options: &ConnectOptions,
    (cntlid, number): (u16, u64),
) -> Result<Association, TransportError> {
    let newer = own().live.get(&key(host, port, options, cntlid)).is_some_and(|newest| *newest != number);
    if newer {
        return Ok(Association::Ended);
    }
    let settings = HostSettings {
        header_digest: options.header_digest,
        data_digest: options.data_digest,
        hpda: 0,
        depth: 1,
        in_capsule: ADMIN_IN_CAPSULE,
    };
    let mut link = Link::open(host, port, settings, options.answer_timeout)?;
    let data = options.connect_data(cntlid);
    let mut slots = Slots::new(1, size_of::<ConnectData>() as u32);
    slots.buffer(0).copy_from_slice(data.as_bytes());
    let cqe =
        link.run(&mut slots, association_probe::ask(), DataTransfer::ToController(size_of::<ConnectData>() as u32))?;
    Ok(association_probe::read(&cqe))
}

/// Waits until the target no longer has that association, or gives no clear answer.
///
/// # Errors
/// It has it at the deadline, or cannot be asked.
pub(super) fn await_end(
    (host, port): (&str, u16),
    options: &ConnectOptions,
    (cntlid, number): (u16, u64),
    deadline: Instant,
) -> Result<(), TransportError> {
    while association((host, port), options, (cntlid, number))? == Association::Lives {
        if Instant::now() >= deadline {
            return Err(TransportError::Timeout(format!(
                "{host}:{port}: the target still has controller {cntlid}, whose connection has ended: it may carry requests out"
            )));
        }
        std::thread::sleep(RETRY);
    }
    Ok(())
}
