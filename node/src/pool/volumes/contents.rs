//! What of a volume may be other than zeroes, chunk by chunk: who copies a volume need not read the rest.

use super::places::Lies;
use super::{Volumes, refusal};
use crate::device::ChunkContents;
use crate::directory::Place;
use crate::refusal::Refusal;
use crate::snapshot::{DataRange, VolumeContents};
use weir_pool::{CHUNK, ChunkRun, CopyState, PoolError};
use weir_sys::media::next_data;
use weir_units::Bytes;

/// Chunks of one drive that are asked for at once: in memory they are looked up between two commands, in 20 us.
const AT_ONCE: u32 = 4096;
/// Pieces that are looked at for one answer.
const MOST_PIECES: usize = 256;
/// Ranges of one answer, beyond which no further piece is looked at.
const MOST_RANGES: usize = 4096;

impl Volumes {
    /// What of a volume, from a byte on, may be other than zeroes: whole chunks, in their order, and where to ask again. Of a volume that is
    /// written it is what there is at that moment. Lost chunks count: whoever reads them hears that they are lost.
    ///
    /// # Errors
    /// There is no volume of that name, or `from` is behind its end.
    pub fn contents(&self, name: &str, from: u64) -> Result<VolumeContents, Refusal> {
        let found = self.find(name)?;
        let (size, first) = (u64::from(found.chunks) * CHUNK, from / CHUNK);
        if from > size {
            return Err(Refusal::Invalid(format!(
                "from: volume {name} has {} bytes, so that {from} is behind its end",
                size
            )));
        }
        let mut at = first as u32;
        let mut ranges: Vec<DataRange> = Vec::new();
        for run in pieces_from(&self.pieces(found.pool, found.id)?, at).take(MOST_PIECES) {
            if ranges.len() >= MOST_RANGES {
                break;
            }
            let has = self.piece_contents(&run)?;
            (at..).zip(has).filter(|(_, has)| *has).for_each(|(chunk, _)| add_chunk(&mut ranges, chunk));
            at += run.segment.len;
        }
        // A volume that is gone by now has no pieces.
        if at == first as u32 && first * CHUNK < size {
            return Err(refusal(PoolError::Unknown(name.into())));
        }
        let next = u64::from(at) * CHUNK;
        Ok(VolumeContents { ranges, next: (next < size).then_some(Bytes(next)) })
    }

    /// Which chunks of a piece may have something: those of which a copy has.
    fn piece_contents(&self, lies: &Lies) -> Result<Vec<bool>, Refusal> {
        let segment = &lies.segment;
        let all = vec![true; segment.len as usize];
        let is_good = |state| state == CopyState::Good;
        let (Some(first), true) = (lies.first, segment.second.is_none_or(|second| is_good(second.state))) else {
            return Ok(all);
        };
        let run = |start| ChunkRun { start, len: segment.len };
        let Some(mut has) = self.drive_contents(first, run(segment.start))? else { return Ok(all) };
        if let (Some(second), Some(place)) = (segment.second, lies.second) {
            let Some(other) = self.drive_contents(place, run(second.start))? else { return Ok(all) };
            has.iter_mut().zip(other).for_each(|(has, other)| *has |= other);
        }
        Ok(has)
    }

    /// The same of chunks of one drive; `None`: nobody knows.
    fn drive_contents(&self, drive: Place, run: ChunkRun) -> Result<Option<Vec<bool>>, Refusal> {
        Ok(match self.at(drive.shard, move |s| s.drives.device(drive.drive).contents(run))? {
            ChunkContents::Unknown => None,
            ChunkContents::Known(has) => Some(has),
            ChunkContents::In(file) => {
                let (mut at, end) = (u64::from(run.start) * CHUNK, run.end() * CHUNK);
                let mut has = vec![false; run.len as usize];
                while let Some(data) = next_data(&file, at..end) {
                    let (from, to) = (data.start / CHUNK, data.end.div_ceil(CHUNK));
                    let start = u64::from(run.start);
                    has[(from - start) as usize..(to - start) as usize].fill(true);
                    at = to * CHUNK;
                }
                Some(has)
            }
        })
    }
}

/// Pieces of a volume from a chunk on, none of them longer than [`AT_ONCE`].
fn pieces_from(pieces: &[Lies], first: u32) -> impl Iterator<Item = Lies> {
    let rest =
        pieces.iter().filter(move |lies| u64::from(lies.segment.logical) + u64::from(lies.segment.len) > first.into());
    rest.flat_map(move |lies| {
        let skipped = first.saturating_sub(lies.segment.logical);
        (skipped..lies.segment.len).step_by(AT_ONCE as usize).map(move |at| lies.part(at, AT_ONCE))
    })
}

fn add_chunk(ranges: &mut Vec<DataRange>, chunk: u32) {
    let offset = u64::from(chunk) * CHUNK;
    match ranges.last_mut() {
        Some(last) if last.offset.get() + last.len.get() == offset => last.len = Bytes(last.len.get() + CHUNK),
        _ => ranges.push(DataRange { offset: Bytes(offset), len: Bytes(CHUNK) }),
    }
}
