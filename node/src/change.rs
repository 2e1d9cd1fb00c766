//! What can be changed of a node while it serves.

use crate::promises::Promises;
use std::net::SocketAddr;
use weir_config::{Arbitration, ClassFrom, Doorbells};
use weir_controller::{AnaScope, AnaState};
use weir_units::{Bytes, Class};

/// A change of a drive.
pub struct DeviceChange<'a> {
    /// Its arbitration, from what it is.
    pub arbitration: &'a dyn Fn(Arbitration) -> Arbitration,
    /// Its size.
    pub capacity: Option<Bytes>,
    /// How hosts reach its namespaces.
    pub ana: Option<AnaChange>,
    /// SMART's available spare is no more than this, percent.
    pub spare_percent: Option<u8>,
    /// Do it even where promises to tenants cannot be kept then.
    pub force: bool,
}

/// A change of asymmetric namespace access.
#[derive(Clone, Debug)]
pub struct AnaChange {
    /// The state of the controllers, those that will come included.
    pub state: AnaState,
    /// Of that host alone.
    pub host: Option<String>,
    /// Of all hosts that come by this address.
    pub port: Option<SocketAddr>,
}

impl AnaChange {
    /// Whose access it is about.
    pub(crate) fn scope(&self) -> AnaScope<'_> {
        match (&self.host, self.port) {
            (Some(host), _) => AnaScope::Host(host),
            (None, Some(port)) => AnaScope::Port(port),
            (None, None) => AnaScope::All,
        }
    }
}

/// Promises from what they are, or why not.
pub type PromisesFrom<'a> = &'a dyn Fn(Promises) -> Result<Promises, String>;

/// A change of a tenant; what is `None` stays.
pub struct TenantChange<'a> {
    /// The class of its queues.
    pub class: Option<Class>,
    /// Its share among the tenants of its class.
    pub weight: Option<u16>,
    /// Floor, ceiling and service level.
    pub promises: Option<PromisesFrom<'a>>,
    /// Do it even where promises to tenants cannot be kept then.
    pub force: bool,
}

/// One more tenant.
pub struct NewTenant<'a> {
    /// Its name.
    pub name: &'a str,
    /// NQNs of its hosts; `*`: all hosts that are nobody else's.
    pub hosts: &'a [String],
    /// The class of its queues.
    pub class: Class,
    /// Its share among the tenants of its class.
    pub weight: u16,
    /// Floor, ceiling and service level, from none.
    pub promises: PromisesFrom<'a>,
    /// Do it even where promises to tenants cannot be kept then.
    pub force: bool,
}

/// A drive on one more vfio-user socket.
#[derive(Clone, Debug)]
pub struct NewExport {
    /// The drive.
    pub device: String,
    /// An absolute path at which nobody listens.
    pub socket: String,
    /// Whose queues they are; the only tenant where it is `None`.
    pub tenant: Option<String>,
    /// Who decides the class.
    pub class_from: ClassFrom,
    /// Who sees doorbells.
    pub doorbells: Doorbells,
    /// Do it even where promises to tenants cannot be kept then.
    pub force: bool,
}

/// One more volume.
#[derive(Clone, Debug)]
pub struct NewVolume {
    /// Its name.
    pub name: String,
    /// Whose it is; the only tenant where it is `None`.
    pub tenant: Option<String>,
    /// Its size; rounded up to whole MiB.
    pub size: Bytes,
    /// The pool; the only one where it is `None`.
    pub pool: Option<String>,
    /// How many drives have each chunk, 1 or 2; as the pool has it where it is `None`.
    pub copies: Option<u8>,
}

/// A change of a volume; what is `None` stays.
#[derive(Clone, Debug, Default)]
pub struct VolumeChange {
    /// Another size; rounded up to whole MiB.
    pub size: Option<Bytes>,
    /// The size may be a smaller one: what lies behind it is lost.
    pub shrink: bool,
    /// Another name.
    pub name: Option<String>,
}
