//! What a front knows of copies that may not have what was written last, before a layout says so.

use super::layout::without;
use super::{Front, Stretch};
use weir_pool::{ChunkRun, PoolRequest};

impl Front {
    /// Nothing is read from these copies any more; the number of the last note that says so.
    pub(super) fn mark_stale(&mut self, stale: Vec<(usize, ChunkRun)>) -> Option<u64> {
        let id = self.volume.1;
        let copies = self.copies.as_mut().filter(|_| !stale.is_empty())?;
        let mut last = None;
        for (drive, run) in stale {
            if !copies.stale.contains(&(drive, run)) {
                copies.stale.push((drive, run));
            }
            last = Some(copies.note(PoolRequest::MarkStale { id, drive, runs: vec![run] }));
        }
        self.keep_stale();
        last
    }

    /// The drive at a way may have lost what it had acknowledged and nobody had flushed: what may be written of the copies there is stale.
    /// `false`: no other copy has all of that.
    pub fn lose_way(&mut self, way: u32) -> bool {
        if self.copies.is_none() {
            return false;
        }
        let (stale, none) = self.missed(&[way], &self.written());
        self.mark_stale(stale);
        !none
    }

    /// Drives are back: they have missed what was written while the front had no way there. The pool knows it too.
    pub fn miss_at(&mut self, members: &[usize]) {
        let written = self.written();
        let Some(copies) = &mut self.copies else { return };
        for member in members {
            copies.stale.extend(written.iter().map(|run| (*member, *run)));
        }
    }

    /// These chunks have got other places, with what was written last: what was stale of the old ones says nothing, but for what the pool is
    /// still to be told.
    pub(super) fn forget_stale(&mut self, run: ChunkRun) {
        let Some(copies) = &mut self.copies else { return };
        if copies.is_to_tell_of(run) {
            return;
        }
        let cut = |(drive, stale): (usize, ChunkRun)| without(stale, run).into_iter().map(move |left| (drive, left));
        copies.stale = std::mem::take(&mut copies.stale).into_iter().flat_map(cut).collect();
    }

    /// What is known to be stale is so in the layout too.
    pub(super) fn keep_stale(&mut self) {
        let Some(copies) = &mut self.copies else { return };
        let ways = &self.ways;
        copies.stale.retain(|(drive, _)| ways.iter().any(|way| way.member == *drive && !way.has_left()));
        for (drive, run) in &copies.stale {
            let is = |way: u32| ways[way as usize].member == *drive;
            let cut = |s: Stretch| s.with_stale(*run, is);
            self.stretches = std::mem::take(&mut self.stretches).into_iter().flat_map(cut).collect();
        }
    }
}
