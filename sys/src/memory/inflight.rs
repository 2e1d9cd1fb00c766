//! The in-flight regions that were made for the front ends of one socket (GET_INFLIGHT_FD of vhost-user): who asks again and again gets
//! no more memory for it.
//!
//! A front end keeps the descriptor of what it was given for as long as it likes, beyond its connection too. So memory is taken back
//! through the file: of the regions that were made on a socket two at the most have pages, the one that was handed back last and the one
//! that was made last. Another one reads as zeroes, which is an unused region.

use super::journal::JournalWords;
use rustix::fs::{FallocateFlags, fallocate, fstat};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Device and inode of a file.
type FileId = (u64, u64);

fn id_of(fd: impl AsFd) -> io::Result<FileId> {
    let stat = fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// See the [module](self).
#[derive(Debug, Default)]
pub struct InflightRegions {
    /// Those that have pages.
    made: Vec<(FileId, OwnedFd)>,
    /// What was handed back last, and may be in use or come again.
    used: Option<FileId>,
}

impl InflightRegions {
    /// A region of `len` bytes (rounded up to pages) of zeroes and its descriptor; those that are not in use give their memory back.
    ///
    /// # Errors
    /// What the system said.
    pub(super) fn make(&mut self, len: u64) -> io::Result<(JournalWords, OwnedFd)> {
        let made = std::mem::take(&mut self.made).into_iter();
        let (used, idle): (_, Vec<_>) = made.partition(|(id, _)| Some(*id) == self.used);
        self.made = used;
        for (_, fd) in idle {
            let all = fstat(&fd)?.st_size as u64;
            fallocate(&fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, all)?;
        }
        let (words, fd) = JournalWords::create(len)?;
        self.made.push((id_of(&fd)?, fd.try_clone()?));
        Ok((words, fd))
    }

    /// Maps what a front end hands back.
    ///
    /// # Errors
    /// See [`JournalWords::map`].
    pub(super) fn map(&mut self, fd: OwnedFd, offset: u64, len: u64) -> io::Result<JournalWords> {
        let words = JournalWords::map(fd.as_fd(), offset, len)?;
        self.used = Some(id_of(&fd)?);
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = 64 << 10;

    /// Bytes that a file has pages for.
    fn pages(fd: &OwnedFd) -> u64 {
        fstat(fd).unwrap().st_blocks as u64 * 512
    }

    #[test]
    fn who_asks_again_and_again_has_two_regions() {
        let mut regions = InflightRegions::default();
        let made: Vec<OwnedFd> = (0..50).map(|_| regions.make(LEN).unwrap().1).collect();
        assert_eq!(made.iter().map(pages).sum::<u64>(), LEN, "one is at hand");
        let used = made.last().unwrap();
        regions.map(used.try_clone().unwrap(), 0, LEN).unwrap();
        let more: Vec<OwnedFd> = (0..50).map(|_| regions.make(LEN).unwrap().1).collect();
        assert_eq!(pages(used), LEN, "it is in use");
        assert_eq!(more.iter().map(pages).sum::<u64>(), LEN);
        // The next one is handed back, of another size.
        let (_, larger) = regions.make(2 * LEN).unwrap();
        regions.map(larger.try_clone().unwrap(), 0, 2 * LEN).unwrap();
        let (_, last) = regions.make(LEN).unwrap();
        assert_eq!((pages(used), pages(&larger), pages(&last)), (0, 2 * LEN, LEN));
    }

    #[test]
    fn a_front_ends_own_file_is_left_alone() {
        let mut regions = InflightRegions::default();
        let (_, own) = JournalWords::create(LEN).unwrap();
        regions.map(own.try_clone().unwrap(), 0, LEN).unwrap();
        let (_, made) = regions.make(LEN).unwrap();
        regions.map(made.try_clone().unwrap(), 0, LEN).unwrap();
        regions.make(LEN).unwrap();
        assert_eq!((pages(&own), pages(&made)), (LEN, LEN));
    }
}
