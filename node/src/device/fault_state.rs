//! What the rules of failures of a drive have done, in a memory file that the keeper holds: a rule that is over does not apply again because the worker
//! has died, or the program was replaced. See docs/reference/formats.md, "What rules of failures have done".
//!
//! It is written when a run of the drive's machine has changed it, before what that run completed leaves the node over NVMe/TCP. A vhost-user or
//! vfio-user client may see a completion some microseconds earlier, in its own memory.

use super::Device;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use weir_controller::{PlannedState, RuleState};
use weir_sys::crc::crc32c;
use weir_sys::keeper_channel::{Keep, LIVE, contents, memory_file};
use weir_units::Nanos;

/// Raised with every change of the layout; what another version has written is left out.
const VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"WEIRRULE";
/// Magic, version, rules, CRC of what follows.
const HEAD: usize = 20;
/// Words of a rule.
const WORDS: usize = 7;
/// In place of a time that is not known.
const NO_TIME: u64 = u64::MAX;

fn name(drive: &str) -> String {
    format!("{LIVE}faults:{drive}")
}

fn encode(states: &[RuleState]) -> Vec<u8> {
    let words = |state: &RuleState| -> [u64; WORDS] {
        let RuleState { planned, has_begun, drifted } = *state;
        let PlannedState { fingerprint, matched, applied, begins, random } = planned;
        [fingerprint, matched, applied, begins.map_or(NO_TIME, Nanos::get), random, drifted, u64::from(has_begun)]
    };
    let body: Vec<u8> = states.iter().flat_map(words).flat_map(u64::to_le_bytes).collect();
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((states.len() as u32).to_le_bytes());
    bytes.extend(crc32c(&body).to_le_bytes());
    bytes.extend(body);
    bytes
}

/// `None`: it is of another version, or damaged. A file that is longer had more rules before.
fn decode(bytes: &[u8]) -> Option<Vec<RuleState>> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    if bytes.get(..8)? != MAGIC || word(8)? != VERSION {
        return None;
    }
    let length = (word(12)? as usize).checked_mul(WORDS * 8)?;
    let body = bytes.get(HEAD..HEAD.checked_add(length)?).filter(|body| word(16) == Some(crc32c(body)))?;
    let state = |rule: &[u8]| {
        let mut words = rule.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
        let mut next = || words.next().unwrap_or_default();
        let (fingerprint, matched, applied, begins, random) = (next(), next(), next(), next(), next());
        let begins = (begins != NO_TIME).then_some(Nanos(begins));
        let planned = PlannedState { fingerprint, matched, applied, begins, random };
        RuleState { planned, drifted: next(), has_begun: next() == 1 }
    };
    Some(body.chunks_exact(WORDS * 8).map(state).collect())
}

/// The file, and what of the drive's machine is in it.
pub(super) struct FaultStateFile {
    name: String,
    keep: Keep,
    /// Once there is something to be written.
    file: Option<File>,
}

impl FaultStateFile {
    fn write(&mut self, states: &[RuleState]) -> io::Result<()> {
        if self.file.is_none() {
            let file = File::from(memory_file("faults")?);
            self.keep.hold(&self.name, &[file.as_fd()])?;
            self.file = Some(file);
        }
        self.file.iter().try_for_each(|file| file.write_all_at(&encode(states), 0))
    }

    /// What the worker before has left, and the file, which goes on.
    fn take(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(fd) = self.keep.take_one(&self.name) else { return Ok(None) };
        let other: OwnedFd = fd.try_clone()?;
        self.file = Some(File::from(fd));
        contents(other).map(Some)
    }
}

impl Device {
    /// Its rules, which were just added, go on from what the worker before has left; from now on what they do is kept.
    pub fn keep_faults(&mut self, drive: &str, keep: &Keep) {
        if !keep.is_kept() {
            return;
        }
        let mut file = FaultStateFile { name: name(drive), keep: keep.clone(), file: None };
        match file.take() {
            Ok(None) => {}
            Ok(Some(bytes)) => match decode(&bytes) {
                Some(states) => _ = self.machine_mut().resume_faults(&states),
                None => tracing::warn!(
                    drive,
                    "what its rules of failures have done is of another version, or damaged: they begin anew"
                ),
            },
            Err(e) => {
                tracing::warn!(drive, "what its rules of failures have done cannot be read: {e}; they begin anew")
            }
        }
        // The first run writes what there is: also when a rule begins that no command has met.
        (self.fault_state, self.faults_seen) = (Some(file), 0);
    }

    /// What its rules do has changed.
    #[cold]
    pub(super) fn write_faults(&mut self) {
        self.faults_seen = self.machine().fault_changes();
        let states = self.machine().fault_states();
        let Some(file) = &mut self.fault_state else { return };
        if let Err(e) = file.write(&states) {
            tracing::error!("{}: {e}; rules that are over may apply again in the next worker", file.name);
            self.fault_state = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states() -> Vec<RuleState> {
        let planned = PlannedState { fingerprint: 1, matched: 2, applied: 3, begins: Some(Nanos(4)), random: 5 };
        let one = RuleState { planned, has_begun: true, drifted: 6 };
        vec![one, RuleState { planned: PlannedState { begins: None, ..planned }, ..RuleState::default() }]
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = encode(&states());
        assert_eq!(decode(&bytes), Some(states()));
        assert_eq!(decode(&[bytes.clone(), vec![9; 100]].concat()), Some(states()), "longer ones lay there");
        assert_eq!(decode(&encode(&[])), Some(Vec::new()));
        for at in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 0x40;
            assert_ne!(decode(&wrong), Some(states()), "byte {at}");
            assert_eq!(decode(&bytes[..at]), None);
        }
    }

    /// The bytes of version 1.
    #[test]
    fn golden_bytes_of_version_1() {
        let bytes = encode(&states()[..1]);
        let body: Vec<u8> = [1u64, 2, 3, 4, 5, 6, 1].into_iter().flat_map(u64::to_le_bytes).collect();
        assert_eq!(bytes[..16], *b"WEIRRULE\x01\0\0\0\x01\0\0\0");
        assert_eq!(bytes[16..20], crc32c(&body).to_le_bytes());
        assert_eq!(bytes[20..], body);
    }
}
