//! A file of this machine as a namespace: for tests, and for drives that no other machine is to reach.

use super::{LABEL_BYTES, Tier, TierCommand, TierCommandId, TierDone, TierGeometry, TierMemory, TierOptions};
use std::fs::{File, OpenOptions};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use weir_driver::TransportError;
use weir_units::Nanos;

/// See [the module](self). Its commands are done when they are submitted.
#[derive(Debug)]
pub struct FileTier {
    file: File,
    geometry: TierGeometry,
    over: Vec<TierDone>,
    trouble: Option<String>,
}

impl FileTier {
    /// The file at that path, in whole sectors of that many bytes.
    ///
    /// # Errors
    /// It cannot be opened, is locked by another process, or its label is wrong.
    pub fn open(path: &Path, sector: u32, options: &TierOptions) -> Result<Self, TransportError> {
        let failed = |e: std::io::Error| TransportError::Unreachable(format!("{}: {e}", path.display()));
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
        if options.is_locked {
            let is_ours = weir_sys::lock::exclusive(&file).map_err(|e| failed(e.into()))?;
            if !is_ours {
                let why = "another process is at work on it, perhaps one that stands still";
                return Err(TransportError::Unreachable(format!("{}: {why}", path.display())));
            }
        }
        let bytes = file.metadata().map_err(failed)?.len();
        let geometry = TierGeometry { sector, bytes: bytes - bytes % u64::from(sector) };
        if let Some(check) = &options.label {
            let mut first = vec![0; LABEL_BYTES];
            file.read_exact_at(&mut first, 0).map_err(failed)?;
            check(&first).map_err(|e| TransportError::Refused(format!("{}: {e}", path.display())))?;
        }
        Ok(Self { file, geometry, over: Vec::new(), trouble: None })
    }

    fn carry_out(&self, what: &TierCommand, memory: &mut dyn TierMemory) -> std::io::Result<()> {
        let whole = |offset: u64, len: u32| {
            let sector = u64::from(self.geometry.sector);
            let end = offset.checked_add(len.into()).filter(|end| *end <= self.geometry.bytes);
            match end.is_some() && offset % sector == 0 && u64::from(len) % sector == 0 {
                true => Ok(()),
                false => Err(std::io::Error::other(format!("{len} bytes at {offset} are no sectors of it"))),
            }
        };
        match what {
            TierCommand::Read(offset, place) => {
                whole(*offset, place.len)?;
                self.file.read_exact_at(memory.bytes_mut(place), *offset)
            }
            TierCommand::Write(offset, place) => {
                whole(*offset, place.len)?;
                self.file.write_all_at(memory.bytes(place), *offset)
            }
            TierCommand::Flush => self.file.sync_data(),
        }
    }
}

impl Tier for FileTier {
    fn geometry(&self) -> Option<TierGeometry> {
        Some(self.geometry)
    }

    fn is_local(&self) -> bool {
        true
    }

    fn submit(&mut self, _: Nanos, command: TierCommandId, what: TierCommand, memory: &mut dyn TierMemory) {
        let result = self.carry_out(&what, memory);
        self.over.push(TierDone { command, is_done: result.is_ok() });
        self.trouble = result.err().map(|e| e.to_string());
    }

    fn abort(&mut self, _: TierCommandId) {}

    fn poll(&mut self, _: Nanos, _: &mut dyn TierMemory, done: &mut Vec<TierDone>) -> bool {
        let any = !self.over.is_empty();
        done.append(&mut self.over);
        any
    }

    fn attend(&mut self, _: Nanos) {}

    fn pending(&self) -> usize {
        self.over.len()
    }

    fn socket(&self) -> Option<(BorrowedFd<'_>, bool)> {
        None
    }

    fn connection(&self) -> u64 {
        0
    }

    fn has_volatile_cache(&self) -> bool {
        true
    }

    fn due(&self) -> Nanos {
        if self.over.is_empty() { Nanos::NEVER } else { Nanos(0) }
    }

    fn may_still_write(&self, _: Nanos) -> bool {
        false
    }

    fn trouble(&self) -> Option<String> {
        self.trouble.clone()
    }
}
