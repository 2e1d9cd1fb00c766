//! How the last process that had the store has ended, as far as a start has to know: the words in `PATH.lock`.
//!
//! | words | meaning |
//! |---|---|
//! | `clean` | it has closed the store: the medium had everything |
//! | a boot id (`/proc/sys/kernel/random/boot_id`) | it had the store open while the machine ran under this id: under the same one, the kernel has what it was given |
//! | `lost` behind either | the metadata may lack what was told last, and clients that go by that may still write |
//!
//! Anything else, also nothing, is not known. Whoever puts an older copy of the metadata back removes the file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

const CLEAN: &str = "clean";
const LOST: &str = "lost";

/// Bytes that the words have at the most.
const WORDS_MAX: usize = 128;

/// See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastRun {
    /// All that it was told is there.
    pub is_known: bool,
    /// What an earlier one had lost may still matter.
    pub may_have_lost: bool,
}

impl LastRun {
    /// Of a store that is made now.
    pub const NEW: Self = Self { is_known: true, may_have_lost: false };

    /// What the words in the file say.
    pub fn read(file: &File) -> Self {
        Self::of(&words(file), &boot_id())
    }

    fn of(words: &str, boot: &str) -> Self {
        let mut words = words.split_whitespace();
        let first = words.next().unwrap_or_default();
        let is_known = first == CLEAN || !boot.is_empty() && first == boot;
        Self { is_known, may_have_lost: words.next() == Some(LOST) }
    }

    /// A process has the store from now on. The medium has that when this returns: a power cut must not bring back that it was closed.
    pub fn begin(file: &File, may_have_lost: bool) -> io::Result<()> {
        write(file, &boot_id(), may_have_lost)?;
        file.sync_data()
    }

    /// Nothing that was lost matters any more.
    pub fn is_over(file: &File) -> io::Result<()> {
        write(file, &boot_id(), false)
    }

    /// The medium has everything, and the process lets go of the store.
    pub fn end(file: &File, may_have_lost: bool) -> io::Result<()> {
        write(file, CLEAN, may_have_lost)
    }
}

fn write(file: &File, first: &str, may_have_lost: bool) -> io::Result<()> {
    let lost = if may_have_lost { format!(" {LOST}") } else { String::new() };
    // Half of it is not known to be anything.
    file.set_len(0)?;
    file.write_all_at(format!("{first}{lost}\n").as_bytes(), 0)
}

fn words(file: &File) -> String {
    let mut bytes = [0; WORDS_MAX];
    // What cannot be read is not known.
    let read = file.read_at(&mut bytes, 0).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}

/// Which start of the machine this is; nothing where the kernel does not say.
fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_words_say() {
        for (words, is_known, may_have_lost) in [
            ("clean\n", true, false),
            ("clean lost\n", true, true),
            ("boot-1\n", true, false),
            ("boot-1 lost\n", true, true),
            ("boot-0\n", false, false),
            ("", false, false),
            ("boo", false, false),
            ("\0\0\0", false, false),
        ] {
            assert_eq!(LastRun::of(words, "boot-1"), LastRun { is_known, may_have_lost }, "{words:?}");
        }
        assert!(!LastRun::of("", "").is_known);
    }
}
