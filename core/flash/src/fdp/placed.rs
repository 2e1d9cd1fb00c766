//! Writes through placement handles, and the handles that are found again.

use super::MIXED;
use crate::array::Array;
use crate::ftl::{NONE, PageFtl, Route};
use crate::scheduler::When;

impl PageFtl {
    /// Writes units of the host's stream `stream`; as [`PageFtl::write`].
    #[inline]
    pub(crate) fn write_stream(&mut self, from: When, silicon: &mut Array, stream: u8, lpns: &[u32]) -> Option<When> {
        if self.fdp.is_none() {
            self.write(from, silicon, stream.into(), lpns)
        } else {
            self.write_placed(from, silicon, stream, lpns)
        }
    }

    #[cold]
    fn write_placed(&mut self, from: When, silicon: &mut Array, stream: u8, lpns: &[u32]) -> Option<When> {
        let Some(fdp) = &mut self.fdp else { return None };
        core::mem::swap(&mut self.route, &mut fdp.streams[usize::from(stream)].route);
        let kind = fdp.handle_of(stream.into());
        let done = self.write(from, silicon, kind, lpns);
        let pages = (lpns.len() as u32).div_ceil(self.map.shape.units_per_page());
        let plane = self.programmed;
        if let Some(fdp) = &mut self.fdp {
            core::mem::swap(&mut self.route, &mut fdp.streams[usize::from(stream)].route);
            if done.is_some() {
                fdp.programmed(silicon.present_of(from), stream.into(), pages * self.map.shape.units_per_page(), plane);
            }
        }
        done
    }

    /// Closes what the stream's reclaim unit has written; the rest of its blocks stays unwritten until they are collected.
    pub(super) fn close_stream(&mut self, stream: u32) {
        let Some(fdp) = &self.fdp else { return };
        let (kind, planes) = (fdp.handle_of(stream), fdp.planes_of(stream));
        for plane in planes {
            let at = self.point_index(plane, kind);
            self.leave_rest(at);
        }
        let shape = self.map.shape;
        if let Some(fdp) = &mut self.fdp {
            let route = Route::of(&shape, fdp.whole_dies, fdp.planes_of(stream));
            let s = &mut fdp.streams[stream as usize];
            (s.route, s.left) = (route, fdp.unit);
            s.work.reclaim_units += 1;
        }
    }

    /// After a loss of power: whose the blocks are, and what is left of the reclaim units, as the blocks tell.
    pub(crate) fn recover_placement(&mut self) {
        let Some(mut fdp) = self.fdp.take() else { return };
        let (own, shape) = (self.kinds.slc + 1, self.map.shape);
        for (block, state) in (0u32..).zip(self.map.state.iter()) {
            // Free, bad and damaged ones are nobody's.
            fdp.opened(block, state.wrapping_sub(1), own);
        }
        for i in 0..fdp.streams.len() as u32 {
            let (kind, planes) = (fdp.handle_of(i), fdp.planes_of(i));
            let open = planes.clone().map(|plane| &self.points[self.point_index(plane, kind)]);
            let open: u32 = open.map(|p| p.end - p.next).sum();
            let s = &mut fdp.streams[i as usize];
            (s.route, s.displaced) = (Route::of(&shape, fdp.whole_dies, planes), false);
            s.left = if open == 0 { fdp.unit } else { open };
        }
        self.fdp = Some(fdp);
    }

    /// States the invariants of placement.
    pub(crate) fn check_placement(&self) {
        let Some(fdp) = &self.fdp else { return };
        let (handles, own) = (u32::from(fdp.config.handles), self.kinds.slc + 1);
        for plane in 0..self.shape().planes() {
            for kind in 0..self.kinds.count {
                let point = &self.points[self.point_index(plane, kind)];
                let expected = match kind {
                    _ if kind < handles => kind as u8,
                    _ if kind >= own => fdp.keeper(kind - own),
                    _ => MIXED,
                };
                assert!(
                    point.block == NONE || fdp.owner[point.block as usize] == expected,
                    "block {} of kind {kind} belongs to handle {}",
                    point.block,
                    fdp.owner[point.block as usize]
                );
            }
        }
        let block = self.shape().units_per_block();
        for (i, stream) in (0u32..).zip(&fdp.streams) {
            assert!((1..=fdp.unit).contains(&stream.left), "reclaim unit of stream {i}: {} left", stream.left);
            let open = fdp.planes_of(i).map(|plane| &self.points[self.point_index(plane, fdp.handle_of(i))]);
            let open: u32 = open.map(|p| p.end - p.next).sum();
            let agree = stream.left % block == open % block;
            assert!(agree || fdp.overflown, "stream {i}: {} left, {open} in its open blocks", stream.left);
        }
    }
}
