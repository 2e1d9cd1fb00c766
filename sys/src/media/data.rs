//! Which bytes of a file its file system keeps: holes, and room that was never written, read as zeroes.

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::OwnedFd;

/// The first bytes of a range that may be other than zeroes, as far as they go in one piece; `None`: all of them are zeroes. Of a file or
/// a device that keeps no holes that is the range itself. It waits for the file system, a few microseconds as a rule.
pub fn next_data(file: &OwnedFd, range: Range<u64>) -> Option<Range<u64>> {
    if range.is_empty() {
        return None;
    }
    let start = match seek(file, SeekFrom::Data(range.start)) {
        Ok(data) if data >= range.end => return None,
        Ok(data) => data.max(range.start),
        // No data from there on.
        Err(Errno::NXIO) => return None,
        Err(_) => range.start,
    };
    let end = seek(file, SeekFrom::Hole(start)).ok().filter(|end| *end > start);
    Some(start..end.map_or(range.end, |end| end.min(range.end)))
}
