//! Where a drive's bytes are, and what is done with them beside commands.

use super::error::OpenError;
use crate::kernel_io::KernelIo;
use crate::pool::front::Front;
use crate::power_cut_undo::{Old, Undo};
use crate::remote::Remote;
use weir_config::DeviceConfig;
use weir_flash::{UNIT, WriteZeroes};
use weir_spec::nvme::Status;
use weir_sys::media::{FlashState, Store};

/// A piece of what is zeroed at once.
const PIECE: u64 = 1 << 30;

/// Where bytes are gone: offset and length.
pub(super) type Gone = Vec<(u64, u64)>;

/// Where a drive's bytes are, by how the medium answers.
pub(super) enum Backend {
    /// At once.
    Store(Store),
    /// Through the reactor.
    KernelIo(KernelIo),
    /// When it is polled.
    Remote(Box<Remote>),
    /// When the drives of a pool have: a volume's front.
    Volume(Box<Front>),
}

impl Backend {
    /// Operations that have not ended.
    pub(super) fn in_flight(&self) -> usize {
        match self {
            Backend::Store(_) | Backend::Volume(_) => 0,
            Backend::KernelIo(direct) => direct.in_flight(),
            Backend::Remote(remote) => remote.in_flight(),
        }
    }

    /// Which medium it is, in memory that outlives the process; 0: it has no number.
    pub(super) fn medium(&self) -> u64 {
        match self {
            Backend::Store(store) => store.identity(),
            Backend::Volume(front) => front.medium,
            Backend::KernelIo(_) | Backend::Remote(_) => 0,
        }
    }

    /// Puts the old bytes of a unit back, as a power cut does.
    pub(super) fn put_back(&mut self, offset: u64, old: &Old) -> Result<(), Status> {
        match self {
            Backend::Store(store) => match old {
                None => store.zero(offset, UNIT),
                Some(bytes) => store.write(offset, UNIT, |at, into| {
                    into.copy_from_slice(&bytes[at as usize..][..into.len()]);
                    Ok(())
                }),
            },
            Backend::KernelIo(direct) => direct.write_now(offset, old.as_deref()),
            Backend::Remote(_) | Backend::Volume(_) => Err(Status::INTERNAL_ERROR),
        }
    }

    /// A state, once what it says is gone is gone.
    pub(super) fn zeroed(&mut self, (state, gone): (FlashState, Gone)) -> Result<FlashState, OpenError> {
        self.zero(&gone).map_err(|e| OpenError::Flash(format!("{}: {e}", state.path().display())))?;
        Ok(state)
    }

    /// Has ranges read as zeroes, at once.
    pub(super) fn zero(&mut self, ranges: &[(u64, u64)]) -> Result<(), Status> {
        for (offset, len) in ranges {
            let mut at = 0;
            while at < *len {
                let piece = (len - at).min(PIECE);
                match self {
                    Backend::Store(store) => store.deallocate(offset + at, piece as u32)?,
                    Backend::KernelIo(direct) => direct.zero_now(offset + at, piece)?,
                    Backend::Remote(_) | Backend::Volume(_) => return Err(Status::INTERNAL_ERROR),
                }
                at += piece;
            }
        }
        Ok(())
    }

    /// What the drive keeps for power cuts: something where its buffer is volatile and they were asked for.
    pub(super) fn undo(&self, config: &DeviceConfig) -> Option<Undo> {
        let flash = config.flash.as_ref().filter(|f| f.is_volatile() && f.config.ftl.spare)?;
        if matches!(self, Backend::Remote(_)) {
            return None;
        }
        let zeroes_are_data = flash.config.ftl.write_zeroes == WriteZeroes::Program;
        Some(Undo::new(flash.config.buffer.write_units(), zeroes_are_data))
    }
}
