//! Which associations may have requests at a target: a file in the runtime folder. A restart of the machine removes it, and has ended all
//! connections.
//!
//! ```text
//!   PID NANOSECONDS        the process that has written it, and when
//!   TARGET                 as the configuration has it
//!   controllers 7 3        CNTLID of each association, its own one first; a file without this line does not tell
//! ```

use super::Link;
use crate::target::Identity;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use weir_config::{create_runtime_dir, runtime_dir};
use weir_units::Nanos;

/// Before the identifiers of the controllers.
const CONTROLLERS: &str = "controllers";

/// Says to the next process that this one may have requests at a target.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    head: String,
    /// Its bytes, which no other process writes.
    text: String,
    /// It names all associations; the record of a program before may not have.
    is_told: bool,
}

/// What the record of a process before says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Earlier {
    /// There was one.
    pub is_there: bool,
    /// The associations, where it tells them.
    pub associations: Option<Vec<u16>>,
}

impl Record {
    /// Makes the record of a link in place of an earlier one.
    ///
    /// # Errors
    /// The runtime folder cannot be written to.
    pub fn of(link: &Link, now: Nanos) -> io::Result<(Self, Earlier)> {
        create_runtime_dir(&runtime_dir())?;
        let fnv = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3);
        let text = link.nqn.bytes().chain([0]).chain(link.target.bytes());
        let path = runtime_dir().join(format!("remote-{:016x}", text.fold(0xcbf2_9ce4_8422_2325, fnv)));
        Self::make(&path, link.target, now, link.association.cntlid)
    }

    pub(super) fn make(path: &Path, target: &str, now: Nanos, own: u16) -> io::Result<(Self, Earlier)> {
        let earlier = match fs::read_to_string(path) {
            Ok(text) => Earlier { is_there: true, associations: associations(&text) },
            Err(e) if e.kind() == io::ErrorKind::NotFound => Earlier::default(),
            Err(e) => return Err(e),
        };
        let head = format!("{} {}\n{target}\n", std::process::id(), now.get());
        let mut record = Self { path: path.into(), head, text: String::new(), is_told: true };
        let before = earlier.associations.iter().flatten().copied();
        // What an earlier record does not tell the next process must not be told either.
        record.is_told = !earlier.is_there || earlier.associations.is_some();
        record.write(&[own].into_iter().chain(before).collect::<Vec<u16>>())?;
        Ok((record, earlier))
    }

    fn write(&mut self, controllers: &[u16]) -> io::Result<()> {
        let mut text = self.head.clone();
        if self.is_told {
            let list: String = controllers.iter().map(|id| format!(" {id}")).collect();
            text += &format!("{CONTROLLERS}{list}\n");
        }
        fs::write(&self.path, &text)?;
        self.text = text;
        Ok(())
    }

    /// From now on it names the process's own association only: those of before have ended.
    pub fn clear(&mut self, own: u16) {
        self.is_told = true;
        self.set(own, [].iter());
    }

    /// From now on it names these, the process's own first.
    pub fn set<'a>(&mut self, own: u16, others: impl Iterator<Item = &'a Identity>) {
        let all: Vec<u16> = [own].into_iter().chain(others.map(|id| id.cntlid)).collect();
        if let Err(e) = self.write(&all) {
            tracing::warn!(
                "{}: {e}; after a kill of the whole node requests at the target may not be waited for",
                self.path.display()
            );
        }
    }

    /// This process has nothing at the target. A record of another one stays.
    pub fn end(&self) {
        if fs::read_to_string(&self.path).is_ok_and(|text| text == self.text) {
            // One that stays costs the next start its wait.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn associations(text: &str) -> Option<Vec<u16>> {
    let mut words = text.lines().nth(2)?.split(' ');
    (words.next() == Some(CONTROLLERS)).then(|| words.map(str::parse).collect::<Result<_, _>>().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place(PathBuf);

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    fn place(name: &str) -> Place {
        Place(std::env::temp_dir().join(format!("weir-record-{name}-{}", std::process::id())))
    }

    fn identity(cntlid: u16) -> Identity {
        Identity { cntlid, number: 0, kato: Nanos::from_secs(15) }
    }

    #[test]
    fn it_ends_with_its_own_process_only() {
        let Place(path) = &place("end");
        let (first, earlier) = Record::make(path, "t", Nanos(1), 3).unwrap();
        assert_eq!(earlier, Earlier::default());
        let (second, earlier) = Record::make(path, "t", Nanos(2), 4).unwrap();
        assert!(earlier.is_there);
        first.end();
        assert!(path.exists(), "the second process has requests there");
        second.end();
        assert!(!path.exists());
    }

    #[test]
    fn associations_stay_in_it_until_they_have_ended() {
        let Place(path) = &place("associations");
        let told = |ids: &[u16]| Earlier { is_there: true, associations: Some(ids.to_vec()) };
        Record::make(path, "t", Nanos(1), 3).unwrap();
        let (_, earlier) = Record::make(path, "t", Nanos(2), 4).unwrap();
        assert_eq!(earlier, told(&[3]));
        // That process has died before the first one's had ended.
        let (mut record, earlier) = Record::make(path, "t", Nanos(3), 5).unwrap();
        assert_eq!(earlier, told(&[4, 3]));
        record.set(5, [].iter());
        record.set(6, [identity(5)].iter());
        assert_eq!(Record::make(path, "t", Nanos(4), 7).unwrap().1, told(&[6, 5]));
    }

    /// Bytes of the version before, which had two lines, and of this one.
    #[test]
    fn both_layouts_are_read() {
        let Place(path) = &place("layouts");
        fs::write(path, "4711 123456789\nnvme-tcp://127.0.0.1:4420/nqn.a?ns=1\n").unwrap();
        let (_, earlier) = Record::make(path, "t", Nanos(2), 4).unwrap();
        assert_eq!(earlier, Earlier { is_there: true, associations: None });
        // Nor does the next one tell of what that one may have left, until it has ended.
        let (mut record, earlier) = Record::make(path, "t", Nanos(2), 5).unwrap();
        assert_eq!(earlier.associations, None);
        record.set(6, [].iter());
        assert_eq!(Record::make(path, "t", Nanos(2), 5).unwrap().1.associations, None);
        record.clear(6);
        assert_eq!(Record::make(path, "t", Nanos(2), 5).unwrap().1.associations, Some(vec![6]));
        fs::write(path, "4711 123456789\nnvme-tcp://127.0.0.1:4420/nqn.a?ns=1\ncontrollers 7 3\n").unwrap();
        assert_eq!(Record::make(path, "t", Nanos(2), 4).unwrap().1.associations, Some(vec![7, 3]));
        for broken in ["", "1 2\nt\ncontrollers x\n", "1 2\nt\nsomething 1\n"] {
            fs::write(path, broken).unwrap();
            assert_eq!(Record::make(path, "t", Nanos(2), 4).unwrap().1.associations, None, "{broken}");
        }
    }
}
