//! A process that goes on as another program (execve): its descriptors stay open under their numbers, and its state goes along as a file in
//! memory that nobody changes any more.
//!
//! ```text
//!   before: become(command, state, descriptors) ── WEIR_KEEPER=process:descriptor of the state ──► after: Inherited::find()
//! ```
//! The process, its children, the signals that it has blocked and those that wait stay what they are; threads besides the calling one end.

use crate::keeper_channel::{contents, sealed};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Says which process it is for, and where its state lies; not for those whom it starts.
pub const VARIABLE: &str = "WEIR_KEEPER";

/// Goes on as `command`, with these descriptors and that state. Comes back only if it cannot: then all is as before.
pub fn become_program(mut command: Command, state: &[u8], descriptors: &[BorrowedFd]) -> io::Error {
    let state = match sealed("keeper-state", state) {
        Ok(state) => state,
        Err(e) => return e,
    };
    let all: Vec<BorrowedFd> = descriptors.iter().copied().chain([state.as_fd()]).collect();
    let inherit = |on: bool| {
        let flags = if on { FdFlags::empty() } else { FdFlags::CLOEXEC };
        all.iter().try_for_each(|fd| fcntl_setfd(fd, flags))
    };
    let error = match inherit(true) {
        Ok(()) => {
            command.env(VARIABLE, format!("{}:{}", std::process::id(), state.as_raw_fd()));
            let error = command.exec();
            crate::signals::ignore_broken_pipes();
            error
        }
        Err(e) => e.into(),
    };
    // Whatever is started from here on has no business with them.
    if let Err(e) = inherit(false) {
        tracing::warn!("descriptors stay open in programs that are started: {e}");
    }
    error
}

/// What the program before this one, in the same process, has left.
#[derive(Debug)]
pub struct Inherited {
    state: Vec<u8>,
    taken: BTreeSet<RawFd>,
}

impl Inherited {
    /// What there is by the environment; `None` where the process has begun with this program.
    ///
    /// # Errors
    /// It is there, and is another process's or cannot be read.
    pub fn find() -> io::Result<Option<Inherited>> {
        match std::env::var(VARIABLE) {
            Ok(text) => Self::named(&text).map(Some),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(e) => Err(io::Error::other(format!("{VARIABLE}: {e}"))),
        }
    }

    fn named(text: &str) -> io::Result<Inherited> {
        let wrong = |why: &str| io::Error::other(format!("{VARIABLE}={text}: {why}"));
        let (pid, fd) = text.split_once(':').ok_or_else(|| wrong("this is a process and a descriptor"))?;
        let own = std::process::id();
        if pid.parse() != Ok(own) {
            return Err(wrong(&format!("this is for another process, and this one is {own}")));
        }
        let fd = fd.parse().map_err(|_| wrong("this is no descriptor"))?;
        let mut inherited = Inherited { state: Vec::new(), taken: BTreeSet::new() };
        let fd = inherited.take(fd)?;
        inherited.state = contents(fd)?;
        Ok(inherited)
    }

    /// The state.
    pub fn state(&self) -> &[u8] {
        &self.state
    }

    /// The descriptor of that number, once.
    ///
    /// # Errors
    /// It is not open, was taken already, or is one of the first three.
    pub fn take(&mut self, number: u32) -> io::Result<OwnedFd> {
        let wrong = |why: &str| io::Error::other(format!("descriptor {number} of the keeper before: {why}"));
        let raw = RawFd::try_from(number).map_err(|_| wrong("there is no such number"))?;
        if raw <= 2 || !self.taken.insert(raw) {
            return Err(wrong("it was not handed over, or was taken already"));
        }
        // SAFETY: the program before this one left that descriptor open for this one, so says its state, and nobody else has been told of
        // it. Should there be none of that number, the next line finds out.
        let fd = unsafe { BorrowedFd::borrow_raw(raw) };
        fcntl_getfd(fd)
            .and_then(|flags| fcntl_setfd(fd, flags | FdFlags::CLOEXEC))
            .map_err(|e| wrong(&e.to_string()))?;
        // SAFETY: as above; it is open, and `taken` says that this is the one place that takes it.
        Ok(unsafe { OwnedFd::from_raw_fd(raw) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::fds;
    use std::os::fd::IntoRawFd;

    fn find(text: &str) -> Result<Inherited, String> {
        Inherited::named(text).map_err(|e| e.to_string())
    }

    #[test]
    fn what_was_left_is_taken_once() {
        let left = fds::eventfd().unwrap().into_raw_fd() as u32;
        let state = sealed("x", b"abc").unwrap().into_raw_fd();
        let mut inherited = find(&format!("{}:{state}", std::process::id())).unwrap();
        assert_eq!(inherited.state(), b"abc");
        let taken = inherited.take(left).unwrap();
        assert!(fcntl_getfd(&taken).unwrap().contains(FdFlags::CLOEXEC));
        for number in [0, 1, 2, left, state as u32, 1 << 20, u32::MAX] {
            assert!(inherited.take(number).is_err(), "{number}");
        }
    }

    #[test]
    fn descriptors_of_others_are_refused() {
        let own = std::process::id();
        for (text, part) in [
            (format!("{}:3", own + 1), "another process"),
            (format!("{own}"), "a process and a descriptor"),
            (format!("{own}:x"), "no descriptor"),
            (format!("{own}:1"), "was not handed over"),
        ] {
            let said = find(&text).unwrap_err();
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_changes_nothing() {
        let kept = fds::eventfd().unwrap();
        let error = become_program(Command::new("/nothing/there"), b"x", &[kept.as_fd()]);
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(fcntl_getfd(&kept).unwrap().contains(FdFlags::CLOEXEC));
        // A pipe that nobody reads does not end the process either.
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        assert_eq!(rustix::io::write(&writer, b"x"), Err(rustix::io::Errno::PIPE));
    }
}
