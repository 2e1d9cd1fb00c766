//! The metadata service of a node with `[store]`, beside its shards, and the drives that the configuration donates.
//!
//! ```text
//!   fresh start      node serves ─► service ─► donations ─► "serving"           what is wrong ends the start
//!   next worker      node serves ─► "serving" ─► service, as soon as the worker before has let the metadata go ─► donations
//!   hand-over, end   service ends: the metadata are closed ─► the node goes on to its own end
//! ```
//! All that a service knows is in its metadata: clients connect again and go on with their sessions. So nothing of it is handed over.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_config::{Config, Donated, DonatedDrive, StoreConfig};
use weir_store::protocol::Donation;
use weir_store::{ClassName, Location};
use weir_store_node::client::{ClientOptions, Operator, OperatorConnection};
use weir_store_node::service::{self, ServiceHandle, ServiceOptions};

/// Between two attempts to open metadata that a worker before may still have.
const OPEN_EVERY: Duration = Duration::from_millis(20);

/// How long that may take before it is said.
const OPEN_QUIETLY: Duration = Duration::from_secs(3);

/// Between two attempts to donate a drive that cannot be reached.
const DONATE_EVERY: Duration = Duration::from_secs(2);

/// A metadata service, or the attempt to start it.
pub struct StoreService {
    running: Arc<Mutex<Option<ServiceHandle>>>,
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Where it is reached, as far as that is known.
    pub addresses: Vec<String>,
}

/// A drive on its way into the store.
#[derive(Clone)]
struct Gift {
    /// As the configuration names it.
    about: String,
    donation: Donation,
    /// A drive of this node: it is there.
    is_own: bool,
}

/// Starts the service of a node that serves at `listening`. With `goes_on`, for a worker that comes after another one, it starts on a thread of
/// its own; otherwise it is reached, and has this node's drives, when this returns.
///
/// # Errors
/// The metadata cannot be opened, an address is taken, or a drive holds something else.
pub fn start(config: &Config, listening: &[SocketAddr], goes_on: bool) -> Result<Option<StoreService>, String> {
    let Some(store) = &config.store else { return Ok(None) };
    let gifts = gifts(config, store, listening)?;
    let options = ServiceOptions::of(store);
    let (running, stops) = (Arc::new(Mutex::new(None)), Arc::new(AtomicBool::new(false)));
    let mut addresses: Vec<String> = store.listen.iter().map(ToString::to_string).collect();
    let mut left = gifts.clone();
    if !goes_on {
        let handle = service::start(options.clone()).map_err(|e| format!("store: {e}"))?;
        addresses = handle.addresses().iter().map(ToString::to_string).collect();
        // Where another node's service serves the store, that one may not be reached yet.
        left = donate(&addresses, gifts, !handle.stands_by())?;
        *lock(&running) = Some(handle);
    }
    let (shared, ends) = (Arc::clone(&running), Arc::clone(&stops));
    let work = move || {
        if goes_on && !open(&options, &shared, &ends) {
            return;
        }
        let reached = lock(&shared).as_ref().map(|handle| handle.addresses().iter().map(ToString::to_string).collect());
        let reached: Vec<String> = reached.unwrap_or_default();
        while !left.is_empty() && !ends.load(Ordering::Acquire) {
            left = donate(&reached, core::mem::take(&mut left), false).unwrap_or_default();
            wait(DONATE_EVERY, &ends);
        }
    };
    let thread = std::thread::Builder::new().name("weir-store".into()).spawn(work);
    let thread = thread.map_err(|e| format!("store: no thread for it: {e}"))?;
    Ok(Some(StoreService { running, stops, thread: Some(thread), addresses }))
}

impl StoreService {
    /// Where it is reached now; of one that is being started where it will be, as far as the configuration says.
    pub fn where_reached(&self) -> impl Fn() -> Vec<String> + Send + Sync + 'static {
        let (running, expected) = (Arc::clone(&self.running), self.addresses.clone());
        move || match lock(&running).as_ref() {
            Some(handle) => handle.addresses().iter().map(ToString::to_string).collect(),
            None => expected.clone(),
        }
    }

    /// Ends it: everything is on the medium, and the next one may begin.
    pub fn stop(mut self) {
        self.stops.store(true, Ordering::Release);
        // With a service the thread has nothing but drives to donate, and is not waited for.
        if let Some(handle) = lock(&self.running).take() {
            return handle.stop();
        }
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It may be in the middle of starting a service: that one ends as well.
            let _ = thread.join();
        }
        if let Some(handle) = lock(&self.running).take() {
            handle.stop();
        }
    }
}

/// Opens metadata that the worker before may still have; false if the node ends first.
fn open(options: &ServiceOptions, running: &Mutex<Option<ServiceHandle>>, ends: &AtomicBool) -> bool {
    let begun = Instant::now();
    let mut is_said = false;
    while !ends.load(Ordering::Acquire) {
        match service::start(options.clone()) {
            Ok(handle) => {
                *lock(running) = Some(handle);
                return true;
            }
            Err(e) if begun.elapsed() > OPEN_QUIETLY && !is_said => {
                is_said = true;
                tracing::warn!("store: {e}; trying again");
            }
            Err(_) => {}
        }
        wait(OPEN_EVERY, ends);
    }
    false
}

fn wait(time: Duration, ends: &AtomicBool) {
    if !ends.load(Ordering::Acquire) {
        std::thread::park_timeout(time);
    }
}

fn lock(running: &Mutex<Option<ServiceHandle>>) -> std::sync::MutexGuard<'_, Option<ServiceHandle>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the configuration donates, as targets.
fn gifts(config: &Config, store: &StoreConfig, listening: &[SocketAddr]) -> Result<Vec<Gift>, String> {
    let gift = |donated: &Donated| {
        let (about, target, is_own) = match &donated.drive {
            DonatedDrive::Target(target) => (target.clone(), target.clone(), false),
            DonatedDrive::Device(device) => {
                let device = &config.devices[*device];
                let at = listening.first().ok_or_else(|| format!("store: nothing exports drive {}", device.name))?;
                let host = match at.ip() {
                    IpAddr::V4(Ipv4Addr::UNSPECIFIED) => IpAddr::V4(Ipv4Addr::LOCALHOST),
                    other => other,
                };
                let at = SocketAddr::new(host, at.port());
                (device.name.clone(), format!("nvme-tcp://{at}/{}?ns=1", device.nqn), true)
            }
        };
        let class = ClassName::new(&donated.class).map_err(|e| format!("store: class {}: {e}", donated.class))?;
        let location =
            Location::new(&donated.location).map_err(|e| format!("store: location {}: {e}", donated.location))?;
        Ok(Gift { about, donation: Donation { target, class, location, overwrite: false }, is_own })
    };
    store.donate.iter().map(gift).collect()
}

/// Donates; those that could not be reached come back. What is refused for this node's own drives is an error where `is_strict`.
fn donate(addresses: &[String], gifts: Vec<Gift>, is_strict: bool) -> Result<Vec<Gift>, String> {
    if gifts.is_empty() {
        return Ok(gifts);
    }
    let address = addresses.first().map(String::as_str).unwrap_or_default();
    let options = ClientOptions { name: "weir up".into(), ..ClientOptions::default() };
    let reached = OperatorConnection::new(address, &options).and_then(|operator| operator.version().map(|_| operator));
    let operator = match reached {
        Ok(operator) => operator,
        Err(e) if is_strict => return Err(format!("store: {e}")),
        Err(_) => return Ok(gifts),
    };
    let mut left = Vec::new();
    for gift in gifts {
        match operator.donate(gift.donation.clone()) {
            Ok(_) => {}
            Err(e) if is_strict && gift.is_own => return Err(format!("store: drive {}: {e}", gift.about)),
            Err(e) => {
                if is_strict {
                    tracing::warn!("store: {}: {e}; trying again", gift.about);
                }
                left.push(gift);
            }
        }
    }
    Ok(left)
}
