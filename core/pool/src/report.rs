//! What is told of an open pool's drives.

use crate::extent::CHUNK;
use crate::pool::Pool;
use crate::volume::{Uuid, Volume};
use alloc::vec::Vec;

impl Pool {
    /// Of the drive at that place: chunks for volumes, free ones, and those that are nobody's and not unmapped yet.
    pub fn room(&self, position: usize) -> (u64, u64, u64) {
        let Some(drive) = self.books.drives.iter().find(|d| d.position == position) else { return (0, 0, 0) };
        let dirty = drive.dirty.iter().map(|run| u64::from(run.len)).sum();
        (u64::from(drive.member.chunks - drive.area), drive.buddy.free().into(), dirty)
    }

    /// Of the drive at that place: bytes of metadata, from its beginning on.
    pub fn metadata(&self, position: usize) -> u64 {
        let drive = self.books.drives.iter().find(|d| d.position == position);
        drive.map_or(0, |drive| u64::from(drive.area) * CHUNK)
    }

    /// Of the drive at that place: its number in the pool, its UUID, chunks of its largest free block.
    pub fn drive(&self, position: usize) -> Option<(u16, Uuid, u32)> {
        let index = self.books.drives.iter().position(|d| d.position == position)?;
        let drive = &self.books.drives[index];
        Some((index as u16, drive.member.uuid, drive.buddy.largest()))
    }

    /// Drives that the pool serves without: the number in the pool of each, its UUID, its size in bytes, and what it was called.
    pub fn lost(&self) -> Vec<(u16, Uuid, u64, &str)> {
        let lost = (0u16..).zip(&self.books.drives).filter(|(_, d)| d.lost);
        lost.map(|(i, d)| (i, d.member.uuid, u64::from(d.member.chunks) * CHUNK, d.name.as_str())).collect()
    }

    /// Chunks of a volume that are not readable: on lost drives, and on those that have taken the place of one.
    pub fn lost_chunks(&self, volume: &Volume) -> (u32, u32) {
        let (mut missing, mut stale) = (0, 0);
        for segment in self.segments(volume.id).iter().filter(|s| s.lost) {
            match segment.drive {
                usize::MAX => missing += segment.len,
                _ => stale += segment.len,
            }
        }
        (missing, stale)
    }

    /// Places of drives that were named and are not the pool's: they are empty, or have left it.
    pub fn spares(&self) -> Vec<usize> {
        let spare = |i: &usize| self.setup.drives[*i].named && self.drive(*i).is_none();
        (0..self.setup.drives.len()).filter(spare).collect()
    }
}
