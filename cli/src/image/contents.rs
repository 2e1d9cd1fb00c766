//! What of a volume has to be read, as its node knows it.

use crate::failure::CommandFailure;
use std::collections::VecDeque;
use std::ops::Range;
use weir_api::VolumeContents;

/// Asks the node what there is from a byte on.
type Ask<'a> = Box<dyn FnMut(u64) -> Result<VolumeContents, CommandFailure> + 'a>;

/// Ranges of a volume that may have something, in their order; they are asked for as they are needed.
pub struct DataRanges<'a> {
    ask: Ask<'a>,
    known: VecDeque<Range<u64>>,
    /// Where what is not known begins.
    next: Option<u64>,
}

impl<'a> DataRanges<'a> {
    /// From the beginning of a volume on.
    pub fn new(ask: impl FnMut(u64) -> Result<VolumeContents, CommandFailure> + 'a) -> Self {
        DataRanges { ask: Box::new(ask), known: VecDeque::new(), next: Some(0) }
    }

    /// The next bytes to read of a volume of that size, so many at the most; `None`: that was all.
    ///
    /// # Errors
    /// The node does not say, or what it says makes no sense.
    pub fn next(&mut self, most: u64, size: u64) -> Result<Option<Range<u64>>, CommandFailure> {
        loop {
            let Some(first) = self.known.front_mut() else {
                let Some(from) = self.next.filter(|from| *from < size) else { return Ok(None) };
                self.learn(from, size)?;
                continue;
            };
            if first.is_empty() {
                self.known.pop_front();
                continue;
            }
            let part = first.start..first.end.min(first.start + most);
            first.start = part.end;
            return Ok(Some(part));
        }
    }

    fn learn(&mut self, from: u64, size: u64) -> Result<(), CommandFailure> {
        let VolumeContents { ranges, next_bytes } = (self.ask)(from)?;
        let (mut at, end) = (from, next_bytes.unwrap_or(size));
        for range in ranges {
            let until = range.offset_bytes.checked_add(range.size_bytes).filter(|until| *until <= end);
            let (true, Some(until)) = (range.offset_bytes >= at, until) else { return Err(out_of_order(from)) };
            self.known.push_back(range.offset_bytes..until);
            at = until;
        }
        if next_bytes.is_some_and(|next| next <= from) {
            return Err(out_of_order(from));
        }
        self.next = next_bytes;
        Ok(())
    }
}

fn out_of_order(from: u64) -> CommandFailure {
    CommandFailure::new(format!(
        "what the node says of the volume from byte {from} on is out of order: its version and this program's do not fit"
    ))
}
