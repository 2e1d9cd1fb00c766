//! Opening what a drive's bytes are on.

use super::backend::Backend;
use super::error::OpenError;
use super::handover;
use crate::fence::{Fence, Link};
use crate::kernel_io::KernelIo;
use crate::remote::{Origin, Remote, Source};
use crate::target::{self, OpenOptions, OpenedFor};
use std::os::fd::OwnedFd;
use std::time::Duration;
use weir_config::{DeviceConfig, MediaConfig};
use weir_driver::TransportError;
use weir_sys::keeper_channel::Keep;
use weir_sys::media::{Media, MediaKind, Spec};
use weir_sys::reactor;
use weir_units::Nanos;

/// How long a target may take for an answer while the drive is opened.
const ANSWER_TIMEOUT: Nanos = Nanos::from_secs(10);
/// Between attempts to open one that is out of reach.
const RETRY: Duration = Duration::from_millis(25);

/// The media that the configuration names, and their size.
pub(super) fn open_backend(config: &DeviceConfig, keep: &Keep) -> Result<(Backend, u64), OpenError> {
    let kind = match &config.media {
        MediaConfig::Null => MediaKind::Null { read_zeroes: config.read_zeroes },
        MediaConfig::Ram => MediaKind::Ram,
        MediaConfig::File(path) => MediaKind::File(path.clone()),
        MediaConfig::Block(path) => MediaKind::Block(path.clone()),
        MediaConfig::Nvme(target) => return open_remote(config, target, keep),
    };
    let capacity = config.max_capacity.or(config.capacity).map(|c| c.get());
    let spec = Spec { name: config.name.clone(), kind, capacity, block_size: config.block_size };
    let media = if spec.kind == MediaKind::Ram { handover::ram(config, &spec, keep)? } else { Media::open(&spec)? };
    let size = media.capacity() / u64::from(config.block_size) * u64::from(config.block_size);
    Ok(match media {
        Media::Store(store) => (Backend::Store(store), size),
        Media::File(file) => (Backend::KernelIo(KernelIo::new(file)), size),
    })
}

/// Opens a target, again and again for so long where it is out of reach.
fn open_within(
    patience: Nanos,
    of: &OpenedFor,
    target: &str,
    how: OpenOptions,
) -> Result<target::Opened, TransportError> {
    let (until, mut is_told) = (reactor::now().saturating_add(patience), false);
    loop {
        let e = match target::open(target, how, of, &mut |_| {}) {
            Err(e @ (TransportError::Unreachable(_) | TransportError::Closed(_) | TransportError::Timeout(_))) => e,
            result => return result,
        };
        if reactor::now() >= until {
            return Err(e);
        }
        if !std::mem::replace(&mut is_told, true) {
            tracing::warn!(
                drive = of.drive,
                "the drive behind this one is out of reach: {e}; its node waits for up to {patience}"
            );
        }
        std::thread::sleep(RETRY);
    }
}

fn open_remote(config: &DeviceConfig, target: &str, keep: &Keep) -> Result<(Backend, u64), OpenError> {
    let how = OpenOptions {
        depth: u32::from(config.slots),
        keep_alive_tmo: config.keep_alive_tmo,
        answer_timeout: ANSWER_TIMEOUT,
    };
    // The worker before this one would have waited for its target: the commands that it had wait here.
    let of = OpenedFor { drive: config.name.clone(), keep: keep.clone() };
    let patience = if keep.generation() > 0 { config.fast_io_fail_tmo } else { Nanos(0) };
    let target::Opened { pair, connections, association, identity, interrupt } =
        open_within(patience, &of, target, how).map_err(OpenError::Target)?;
    if identity.is_none() && !target.starts_with("vhost-user:") {
        tracing::warn!(
            drive = config.name,
            "{target} has no NGUID, EUI-64 or UUID to know it by, so it is not connected to again when it goes"
        );
    }
    let (found, block) = (pair.capacity(), pair.block_size());
    if config.block_size % block != 0 {
        let what = format!("{target}: its blocks have {block} bytes; give the drive block_size = {block}");
        return Err(OpenError::Capacity(what));
    }
    let size = config.capacity.map_or(found, |c| c.get());
    if size > found {
        return Err(OpenError::Capacity(format!("{target}: has {found} bytes, less than the drive's capacity {size}")));
    }
    let closed = |e: std::io::Error| OpenError::Target(TransportError::Closed(format!("{target}: {e}")));
    let (drive, nqn) = (&config.name, &config.nqn);
    let (fence, record) = match association {
        Some(association) => {
            let own = connections.iter().map(OwnedFd::try_clone).collect::<Result<_, _>>().map_err(closed)?;
            Fence::new(Link { drive, nqn, target, association }, own, keep, reactor::now()).map_err(closed)?
        }
        None => (None, None),
    };
    let source = Source {
        drive: drive.clone(),
        nqn: nqn.clone(),
        target: target.into(),
        how,
        keep: keep.clone(),
        fast_io_fail_tmo: config.fast_io_fail_tmo,
    };
    let origin = Origin { source, association, connections, identity };
    Ok((
        Backend::Remote(Box::new(Remote::new(pair, origin, fence, record).interrupted_by(interrupt))),
        size / u64::from(config.block_size) * u64::from(config.block_size),
    ))
}
