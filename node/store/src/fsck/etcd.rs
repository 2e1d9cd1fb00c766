//! The metadata of a store in etcd, while none of its services runs.
//!
//! ```text
//!   who is there? ─a renewal is seen─► refused             the thread renews the lease
//!        │ none for a lease and its margin                              │
//!        ├─ a check: read, and nobody has begun to serve meanwhile      ▼
//!        └─ a repair: the lease is taken ─► commits that expect that life ─► the lease is given up
//! ```
//! A repair that is killed leaves a lease that nobody renews: a service begins when it is over.

use super::{FsckReport, FsckStep};
use crate::etcd::WaitingEtcdKv;
use crate::service::{SERVICE, SERVICE_LEASE};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_config::{EtcdMeta, StoreMeta};
use weir_store::fsck::{Alive, Image, LeasedKv, Presence, RepairLease, RepairReport, repair_watched};
use weir_store::kv::{Kv as _, KvKey, KvUnavailable};

/// Between two looks at who is there.
const LOOK: Duration = Duration::from_millis(200);

/// A service that lives renews its lease, or its record, within that: a lease and the margin that services allow each other.
const SILENCE: Duration = Duration::from_nanos(SERVICE_LEASE.get() + SERVICE_LEASE.get() / 3);

/// Between two renewals of the lease.
const RENEWAL: Duration = Duration::from_nanos(SERVICE_LEASE.get() / 3);

const STOP_THEM: &str = "stop the metadata services of the store first, on every machine";

pub(super) fn fsck(meta: &EtcdMeta, repairs: bool, watch: &mut dyn FnMut(FsckStep)) -> Result<FsckReport, String> {
    let about = StoreMeta::Etcd(meta.clone()).to_string();
    let mut kv = WaitingEtcdKv::open(meta).map_err(|e| format!("{about}: {e}"))?;
    let said = check(&mut kv, meta, repairs, watch);
    said.map_err(|why| match why {
        Stopped::Silent => format!("{about}: {}", kv.trouble().unwrap_or_else(|| "etcd does not answer".into())),
        Stopped::Because(why) => format!("{about}: {why}"),
    })
}

/// Why there is no report.
enum Stopped {
    /// etcd does not answer, or makes no change.
    Silent,
    Because(String),
}

impl From<KvUnavailable> for Stopped {
    fn from(_: KvUnavailable) -> Self {
        Stopped::Silent
    }
}

fn check(
    kv: &mut WaitingEtcdKv,
    meta: &EtcdMeta,
    repairs: bool,
    watch: &mut dyn FnMut(FsckStep),
) -> Result<FsckReport, Stopped> {
    if kv.range(&KvKey(vec![0]), &KvKey(vec![0xff]), 1)?.is_empty() {
        let why =
            format!("there is no store with the prefix {:?}; write it behind the address of a member", meta.prefix);
        return Err(Stopped::Because(why));
    }
    let seen = silent(kv, watch)?;
    let image = Image::read_watched(kv, &mut |records| watch(FsckStep::Reads(records)))?;
    let (records, places) = (image.records(), image.places());
    let findings = match repairs && image.is_store() {
        true => repair(kv, meta, &seen, &mut |records| watch(FsckStep::Reads(records)), &places)?,
        false => {
            let left = image.findings(&places);
            if Presence::read(kv)?.life() != seen.life() {
                return Err(begun());
            }
            RepairReport { repaired: Vec::new(), left }
        }
    };
    Ok(FsckReport { records, findings })
}

fn begun() -> Stopped {
    Stopped::Because(format!("a metadata service has begun to serve it meanwhile; {STOP_THEM}"))
}

/// Waits until it is certain that nobody serves the store, or stands by.
fn silent(kv: &mut WaitingEtcdKv, watch: &mut dyn FnMut(FsckStep)) -> Result<Presence, Stopped> {
    let (mut seen, begun) = (Presence::read(kv)?, Instant::now());
    while seen.may_be_served() && begun.elapsed() < SILENCE {
        watch(FsckStep::Waits);
        std::thread::sleep(LOOK);
        let now = Presence::read(kv)?;
        let why = match now.alive_since(&seen) {
            None => {
                seen = now;
                continue;
            }
            Some(Alive::Serving(at)) if at.is_empty() => {
                "a metadata service that begins, or another weir store fsck --repair, has its lease; try it again when that is over".into()
            }
            Some(Alive::Serving(at)) => format!("the metadata service at {} serves it; {STOP_THEM}", at.join(", ")),
            Some(Alive::StandingBy(at)) => {
                format!("the metadata service at {} stands by to serve it; {STOP_THEM}", at.join(", "))
            }
        };
        return Err(Stopped::Because(why));
    }
    Ok(seen)
}

fn repair(
    kv: &mut WaitingEtcdKv,
    meta: &EtcdMeta,
    seen: &Presence,
    watch: &mut dyn FnMut(usize),
    places: &weir_store::fsck::RegionPlaces,
) -> Result<RepairReport, Stopped> {
    let process = RandomState::new().hash_one(std::process::id());
    let Some((lease, replaced)) = RepairLease::take(kv, SERVICE, process, seen)? else { return Err(begun()) };
    let mut leased = LeasedKv::new(kv, &lease);
    let no_thread = |e: std::io::Error| Stopped::Because(e.to_string());
    let _renewer = Renewer::start(meta, lease).map_err(no_thread)?;
    let done = repair_watched(&mut leased, places, watch);
    if leased.is_lost() {
        let why = "a metadata service has begun to serve it, since the lease was not renewed in time; what was put right stays so";
        return Err(Stopped::Because(format!("{why}. {STOP_THEM}, and run it again")));
    }
    let mut report = done?;
    report.repaired.splice(0..0, replaced);
    Ok(report)
}

/// Renews the lease of a repair until it is dropped, and gives it up then.
struct Renewer {
    stops: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Renewer {
    fn start(meta: &EtcdMeta, lease: RepairLease) -> std::io::Result<Self> {
        let kv = WaitingEtcdKv::open(meta)?;
        let (stops, stopped) = channel();
        let thread = std::thread::Builder::new().name("weir-fsck-lease".into());
        let thread = thread.spawn(move || renew(kv, lease, &stopped))?;
        Ok(Self { stops: Some(stops), thread: Some(thread) })
    }
}

fn renew(mut kv: WaitingEtcdKv, mut lease: RepairLease, stopped: &Receiver<()>) {
    while stopped.recv_timeout(RENEWAL) == Err(RecvTimeoutError::Timeout) {
        // Another life makes the next commit conflict; where etcd is silent the next renewal tells.
        if lease.renew(&mut kv) == Ok(false) {
            return;
        }
    }
    // Where that is not made a service begins when the lease is over.
    let _ = lease.give_up(&mut kv);
}

impl Drop for Renewer {
    fn drop(&mut self) {
        self.stops = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed.
            let _ = thread.join();
        }
    }
}
