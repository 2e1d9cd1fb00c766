//! What a URL opens: the way to a drive, and the queue pairs that it gives ([`weir_node::host`]).
//!
//! | target | a further queue is |
//! |---|---|
//! | `local:` | a client of the drive in this process; a queue that was destroyed is used again |
//! | `nvme-tcp:` | an I/O queue of a controller; of a further controller when one has given all |
//! | `vhost-user:` | one of the rings that the device was opened with; a queue that was destroyed is used again |

use crate::abi::{DATA_DIGEST, HEADER_DIGEST, PACKED_RING};
use crate::error::{Code, Error};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use weir_config::DeviceConfig;
use weir_config::Target as Url;
use weir_driver::TransportError;
use weir_driver::vhost_user::QueueLayout;
use weir_node::host::{Controller, HostQueue, LocalDrive, Namespace, Options, QueueClass};
use weir_node::local::LocalTenant;
use weir_units::{Class, Nanos};

/// Who a program is that does not say it.
pub const HOST_NQN: &str = "nqn.2026-11.io.weir:host:libweir";

/// I/O queues that a controller is asked for at once.
const QUEUES_A_CONTROLLER: u16 = 16;
/// Requests in flight on a queue at most.
const DEPTH_MAX: u32 = 4095;
/// Bytes of a request at most.
const MAX_IO_MAX: u32 = 64 << 20;

/// Who decides a queue's class, from WEIR_CLASS_*.
pub fn class_from_number(number: u32) -> Option<QueueClass> {
    Some(match number {
        0 => QueueClass::Thread,
        1 => QueueClass::Tenant,
        2 => QueueClass::Fixed(Class::Urgent),
        3 => QueueClass::Fixed(Class::High),
        4 => QueueClass::Fixed(Class::Medium),
        5 => QueueClass::Fixed(Class::Low),
        _ => return None,
    })
}

/// The class that a queue asks for, as WEIR_CLASS_*.
pub fn class_number(class: Option<Class>) -> u32 {
    class.map_or(1, |class| u32::from(class.bits()) + 2)
}

/// What a target is opened with; zeroes are replaced by defaults.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who this host is.
    pub hostnqn: String,
    /// Queues of a vhost-user device.
    pub queues: u32,
    /// Requests in flight on a queue.
    pub depth: u32,
    /// Bytes of the longest request.
    pub max_io: u32,
    /// Keep alive timeout.
    pub keep_alive: Nanos,
    /// Flags of `weir.h`.
    pub flags: u32,
}

impl Settings {
    fn check(&self) -> Result<(), Error> {
        if self.depth > DEPTH_MAX {
            return Err(Error::usage(format!("opts.depth: {} is above {DEPTH_MAX}", self.depth)));
        }
        if self.max_io > MAX_IO_MAX {
            return Err(Error::usage(format!("opts.max_io: {} bytes are above {MAX_IO_MAX}", self.max_io)));
        }
        let unknown = self.flags & !(HEADER_DIGEST | DATA_DIGEST | PACKED_RING);
        if unknown != 0 {
            return Err(Error::usage(format!("opts.flags: this library does not know {unknown:#x}")));
        }
        Ok(())
    }

    /// A queue pair has as many slots for the caller's buffers as for other memory, as far as `most` allows.
    fn options(&self, queues: u16, most: u32) -> Options {
        Options {
            hostnqn: self.hostnqn.clone(),
            queues,
            depth: (2 * self.depth).min(most),
            max_io: self.max_io,
            digests: (self.flags & HEADER_DIGEST != 0, self.flags & DATA_DIGEST != 0),
            keep_alive: self.keep_alive,
            packed: self.flags & PACKED_RING != 0,
            ..Options::default()
        }
    }
}

/// What gives queues.
struct Source {
    controller: Controller,
    /// Queues that were destroyed with nothing in flight.
    parked: Vec<HostQueue>,
}

/// See the [module](self).
pub struct Target {
    url: Url,
    options: Options,
    depth: u32,
    namespace: Namespace,
    /// A local drive's own.
    thread: Option<ThreadId>,
    source: Mutex<Source>,
}

impl Target {
    /// Opens what the URL names.
    ///
    /// # Errors
    /// It names nothing, nobody answers, or the other side refuses; the text says which.
    pub fn open(url: &str, settings: &Settings) -> Result<Self, Error> {
        settings.check()?;
        let url: Url = url.parse().map_err(|e: weir_config::TargetError| Error::usage(e.to_string()))?;
        let mut thread = None;
        let (options, controller) = match &url {
            Url::Local { kind, query } => {
                let config = DeviceConfig::from_query(kind, query).map_err(|e| Error::usage(e.to_string()))?;
                // A ring of n entries holds n - 1 requests.
                let most = u32::from(config.queue_depth).saturating_sub(1).max(1);
                let options = settings.options(u16::MAX, most);
                // Whoever opens a drive of its own is its operator: its queues may ask for any class.
                let tenant = LocalTenant { name: "libweir".into(), class: Class::Urgent };
                thread = Some(thread::current().id());
                (options.clone(), Controller::on(&LocalDrive::open(&config, &[tenant])?, 0, options))
            }
            Url::NvmeTcp { .. } => {
                let options = settings.options(QUEUES_A_CONTROLLER, u32::from(u16::MAX) - 1);
                (options.clone(), Controller::open(&url, options)?)
            }
            Url::VfioUser { .. } | Url::Pci { .. } => {
                let queues = settings.queues.clamp(1, u32::from(u16::MAX)) as u16;
                // The drive says how many its queues hold.
                let options = settings.options(queues, u32::from(u16::MAX) - 1);
                (options.clone(), Controller::open(&url, options)?)
            }
            Url::VhostUser { .. } => {
                let queues = settings.queues.clamp(1, u32::from(u16::MAX)) as u16;
                let options = settings.options(queues, QueueLayout::MAX_DEPTH);
                (options.clone(), Controller::open(&url, options)?)
            }
        };
        let (namespace, depth) = (controller.namespace(), settings.depth);
        let source = Mutex::new(Source { controller, parked: Vec::new() });
        Ok(Self { url, options, depth, namespace, thread, source })
    }

    /// What it is.
    pub fn namespace(&self) -> Namespace {
        self.namespace
    }

    /// Name of the transport.
    pub fn transport(&self) -> &'static str {
        match self.url {
            Url::Local { .. } => "local",
            Url::NvmeTcp { .. } => "nvme-tcp",
            Url::VfioUser { .. } => "vfio-user",
            Url::VhostUser { .. } => "vhost-user",
            Url::Pci { .. } => "pci",
        }
    }

    /// Queues at the same time; 0 where it is the target's affair.
    pub fn queues(&self) -> u32 {
        match self.url {
            Url::VfioUser { .. } | Url::VhostUser { .. } | Url::Pci { .. } => self.options.queues.into(),
            _ => 0,
        }
    }

    /// Requests in flight that a queue was asked for.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// A local drive belongs to the thread that opened it.
    ///
    /// # Errors
    /// This is another one.
    #[inline]
    pub fn check_thread(&self) -> Result<(), Error> {
        match self.thread {
            Some(thread) if thread != thread::current().id() => {
                Err(Error::usage("a local: target is for the thread that opened it, and this is another one"))
            }
            _ => Ok(()),
        }
    }

    fn source(&self) -> MutexGuard<'_, Source> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A queue pair of that class.
    ///
    /// # Errors
    /// The target gives no more, or refuses.
    pub fn connect(&self, class: QueueClass) -> Result<HostQueue, Error> {
        let mut source = self.source();
        if let Some(mut parked) = source.parked.pop() {
            parked.hand_over(class);
            return Ok(parked);
        }
        match source.controller.queue_pair(class) {
            Err(TransportError::Refused(_)) if matches!(self.url, Url::NvmeTcp { .. }) => {
                let mut further = Controller::open(&self.url, self.options.clone())?;
                let queue = further.queue_pair(class)?;
                source.controller = further;
                Ok(queue)
            }
            Err(TransportError::Refused(_)) if self.queues() > 0 => {
                let text = format!("all {} queues that the target was opened with are in use", self.queues());
                Err(Error { code: Code::Refused, text })
            }
            other => Ok(other?),
        }
    }

    /// A queue pair with nothing in flight that nobody uses any more.
    pub fn take_back(&self, queue: HostQueue) {
        // A connection is closed; what a local drive or a device has set up for a queue stays.
        if !matches!(self.url, Url::NvmeTcp { .. }) {
            self.source().parked.push(queue);
        }
    }
}
