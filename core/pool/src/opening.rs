//! Reads the drives' metadata, stripe by stripe.

use crate::assemble::{DriveContents, Look};
use crate::block::{Crc32c, STRIPE, is_half_made};
use crate::drive::{Copy, Scan, area_of, scan};
use crate::error::PoolOpenError;
use crate::event::SetupDrive;
use crate::extent::CHUNK;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// The reading of one drive after the other.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    drives: Vec<SetupDrive>,
    looks: Vec<Look>,
    copies: [Vec<u8>; 2],
    /// Stripes of each copy that are read before they are looked at.
    target: usize,
    /// The first read that failed on this drive.
    failed: Option<String>,
}

/// What comes next.
pub(crate) enum Next {
    /// Bytes of a drive to read: its place, and where.
    Read(usize, u64),
    /// All that was found.
    Looks(Vec<Look>),
}

impl Reading {
    pub fn new(drives: Vec<SetupDrive>) -> Self {
        Self { drives, looks: Vec::new(), copies: Default::default(), target: 1, failed: None }
    }

    /// A stripe was read, or not: then it counts as damaged.
    pub fn take(&mut self, bytes: Result<&[u8], &str>) {
        let copy = usize::from(self.copies[0].len() > self.copies[1].len());
        match bytes {
            Ok(bytes) if bytes.len() == STRIPE => self.copies[copy].extend_from_slice(bytes),
            other => {
                let why = other.err().unwrap_or("fewer bytes than were asked for");
                self.failed.get_or_insert_with(|| why.into());
                let damaged = self.copies[copy].len() + STRIPE;
                self.copies[copy].resize(damaged, 0xff);
            }
        }
    }

    pub fn next(&mut self, crc: Crc32c) -> Result<Next, PoolOpenError> {
        while let Some(SetupDrive { name, bytes, named }) = self.drives.get(self.looks.len()) {
            let chunks = (*bytes / CHUNK).min(u32::MAX.into()) as u32;
            let stripes = (u64::from(metadata(chunks)) * CHUNK) as usize / STRIPE / 2;
            let have = self.copies[1].len() / STRIPE;
            if self.copies[0].len() > self.copies[1].len() || have < self.target.min(stripes) {
                let at = self.copies[0].len() + self.copies[1].len();
                return Ok(Next::Read(self.looks.len(), at as u64));
            }
            let scans = [0, 1].map(|copy| scan(&self.copies[usize::from(copy)], copy, have == stripes, crc));
            if scans.iter().any(|s| matches!(s, Scan::More)) && have < stripes {
                self.target = have * 2;
                continue;
            }
            let found = match judge(name, scans, &self.copies, self.failed.take()) {
                Err(_) if !*named => DriveContents::Other,
                // Written by another release: it is not lost.
                Err(why @ PoolOpenError::Version(..)) => return Err(why),
                Err(why) => DriveContents::Unusable(why),
                Ok(found) => found,
            };
            self.looks.push(Look { name: name.clone(), named: *named, chunks, found });
            (self.copies, self.target) = (Default::default(), 1);
        }
        Ok(Next::Looks(core::mem::take(&mut self.looks)))
    }
}

/// Chunks of a drive that may be metadata; one that has been cut short may have had more, and is told from others by the first of them.
/// Whatever else a drive says of itself is not followed: it may be a guest's.
fn metadata(chunks: u32) -> u32 {
    chunks.min(area_of(chunks).max(16))
}

/// Which copy of a drive counts.
fn judge(
    name: &str,
    scans: [Scan; 2],
    copies: &[Vec<u8>; 2],
    failed: Option<String>,
) -> Result<DriveContents, PoolOpenError> {
    let version = scans.iter().find_map(|s| match s {
        Scan::Version(version) => Some(*version),
        _ => None,
    });
    if let Some(version) = version {
        return Err(PoolOpenError::Version(name.into(), version));
    }
    let whole = |scan: Scan| match scan {
        Scan::Whole(copy) => Some(copy),
        _ => None,
    };
    let [first, second] = scans.map(whole);
    let found = |copy: Box<Copy>, behind: u8| Ok(DriveContents::Copy(copy, behind));
    match (first, second) {
        (Some(first), Some(second)) if first.drive != second.drive => match (first.header.opens, second.header.opens) {
            // Its making was interrupted, and so was the next.
            (0, 0) => Ok(DriveContents::Empty),
            _ => Err(PoolOpenError::Damaged(name.into())),
        },
        (Some(first), Some(second)) if first.reach() > second.reach() => found(first, 1),
        (Some(_), Some(second)) => found(second, 0),
        (Some(first), None) => found(first, 1),
        (None, Some(second)) => found(second, 0),
        (None, None) => match failed {
            Some(why) => Err(PoolOpenError::Unreadable(name.into(), why)),
            None => nothing(name, copies),
        },
    }
}

/// Neither copy is whole: what is there instead.
fn nothing(name: &str, copies: &[Vec<u8>; 2]) -> Result<DriveContents, PoolOpenError> {
    let [first, second] = copies.each_ref().map(|copy| &copy[..STRIPE.min(copy.len())]);
    if is_half_made(first) && is_half_made(second) {
        return Ok(DriveContents::Empty);
    }
    let ours = |copy: &[u8]| copy.chunks_exact(crate::BLOCK).any(|block| block.starts_with(b"WEIRPOOL"));
    Err(if ours(first) || ours(second) {
        PoolOpenError::Damaged(name.into())
    } else {
        PoolOpenError::Foreign(name.into())
    })
}
