//! What survives the loss of power, and what the zones are after it (ZNS 1.1, 2.1.1.4: the initial state of a zone's state machine;
//! the rows of open and closed zones are those of QEMU's `nvme_clear_zone`, hw/nvme/ns.c).
//!
//! A zone's write pointer moves when a write begins; its word follows when the write has [landed](Zones::landed). So what is
//! found covers every write that was completed, and of the others only those in front of a completed one.
//!
//! | before | after |
//! |---|---|
//! | read only, offline | the same |
//! | full: finished, or its last write has landed | full |
//! | anything else, something is written or the descriptor extension is valid | closed; keeps its random write area |
//! | anything else | empty |

use super::config::{ZoneConfig, Zrwa};
use super::zones::{EMPTY, Zone, ZoneState, Zones};
use crate::cells::Cells;
use crate::region::{RegionError, RegionImage, RegionLoss, RegionSize, RegionWord};
use weir_units::rng::SplitMix64;

impl ZoneState {
    /// By its number; `None`: no state has it.
    pub(super) const fn of(number: u8) -> Option<ZoneState> {
        Some(match number {
            1 => ZoneState::Empty,
            2 => ZoneState::ImplicitlyOpened,
            3 => ZoneState::ExplicitlyOpened,
            4 => ZoneState::Closed,
            0xd => ZoneState::ReadOnly,
            0xe => ZoneState::Full,
            0xf => ZoneState::Offline,
            _ => return None,
        })
    }
}

impl Zones {
    /// A zone's word, taken apart.
    pub(super) fn kept(&self, zone: u32) -> RegionWord {
        RegionWord::of(self.words[zone as usize])
    }

    /// Keeps what a zone has become.
    pub(super) fn keep(&mut self, zone: u32) {
        let Zone { state, zrwa, extended, .. } = self.zones[zone as usize];
        let was = self.kept(zone);
        let empty = state == ZoneState::Empty;
        if empty && !self.flushed.is_empty() {
            self.flushed[zone as usize] = 0;
        }
        let end = if empty { 0 } else { was.end };
        let lives = matches!(state, ZoneState::Full | ZoneState::ReadOnly | ZoneState::Offline);
        let word = RegionWord { end, state: state as u8, zrwa, extended, finished: was.finished && lives };
        self.words[zone as usize] = word.word();
    }

    /// A zone is finished: full wherever its data ends, durably.
    pub(super) fn finished(&mut self, zone: u32) {
        let kept = self.kept(zone);
        self.words[zone as usize] = RegionWord { finished: true, ..kept }.word();
        if let Some(flushed) = self.flushed.get_mut(zone as usize) {
            *flushed = self.config.capacity;
        }
    }

    /// A write that has moved the write pointer to `wp` is over: its data is there. `durable`: as if it had been flushed.
    pub fn landed(&mut self, zone: u32, wp: u32, durable: bool) {
        let Some(held) = self.zones.get(zone as usize).filter(|z| z.state != ZoneState::Empty) else { return };
        let wp = wp.min(held.wp);
        let kept = self.kept(zone);
        if wp > kept.end {
            self.words[zone as usize] = RegionWord { end: wp, ..kept }.word();
        }
        if durable {
            if let Some(flushed) = self.flushed.get_mut(zone as usize) {
                *flushed = (*flushed).max(wp);
            }
        }
    }

    /// What is complete lies in a buffer that a loss of power empties, until it is flushed.
    pub fn set_volatile(&mut self) {
        self.flushed = self.words.iter().map(|word| RegionWord::of(*word).end).collect();
    }

    /// Everything that has landed is durable.
    pub fn flush(&mut self) {
        for (flushed, word) in self.flushed.iter_mut().zip(self.words.iter()) {
            *flushed = (*flushed).max(RegionWord::of(*word).end);
        }
    }

    /// Where the data of a zone ends: nothing was completed from this block on. In a zone with a random write area the area
    /// belongs to it.
    pub fn data_end(&self, zone: u32) -> u32 {
        let (kept, ZoneConfig { capacity, zrwa, .. }) = (self.kept(zone), self.config);
        match zrwa {
            Some(Zrwa { size, .. }) if kept.zrwa => kept.end.saturating_add(size).min(capacity),
            _ => kept.end.min(capacity),
        }
    }

    /// The power was away. Where the buffer is volatile, a part of what no flush has covered is gone as `rng` draws it, but not what
    /// `programmed` says of a zone: blocks from its beginning that are in the flash.
    pub fn power_on(&mut self, rng: Option<&mut SplitMix64>, programmed: impl Fn(u32) -> u32) -> RegionLoss {
        let mut loss = RegionLoss::default();
        let before = self.zones.clone();
        if let Some(rng) = rng.filter(|_| !self.flushed.is_empty()) {
            for zone in 0..self.config.zones {
                let kept = self.kept(zone);
                let safe = self.flushed[zone as usize].max(programmed(zone)).min(kept.end);
                // A random write area is always in the part of the buffer that outlives the power.
                if kept.zrwa || safe == kept.end {
                    continue;
                }
                let end = safe + rng.below(kept.end - safe + 1);
                loss.lost += u64::from(kept.end - end);
                self.words[zone as usize] = RegionWord { end, ..kept }.word();
            }
        }
        // As many zones as before are active at most: limits hold.
        let _ = self.rebuild();
        for (zone, before) in (0..).zip(&before) {
            let end = self.data_end(zone);
            let reach = self.config.zrwa.filter(|_| before.zrwa).map_or(0, |area| area.size);
            if before.wp.saturating_add(reach).min(self.config.capacity) > end {
                loss.gone.push((zone, end));
            }
        }
        if !self.flushed.is_empty() {
            self.set_volatile();
        }
        loss
    }

    /// What of them survives: see [`RegionImage`].
    pub fn image_size(&self) -> RegionSize {
        RegionSize { words: self.words.len() as u64, wear: 0, extensions: self.extensions.len() as u64 }
    }

    /// Goes on from what other zones of the same configuration have left, or from nothing: all zeroes.
    ///
    /// # Errors
    /// The image is of another size, or has more active zones than there may be.
    pub fn adopt_image(&mut self, image: RegionImage) -> Result<(), RegionError> {
        let (found, wanted) = (image.size(), self.image_size());
        if found != wanted {
            return Err(RegionError::Size { found, wanted });
        }
        self.adopt(image.words, image.extensions)
    }

    pub(super) fn adopt(
        &mut self,
        words: &'static mut [u64],
        extensions: &'static mut [u8],
    ) -> Result<(), RegionError> {
        (self.words, self.extensions) = (Cells::Lent(words), Cells::Lent(extensions));
        self.rebuild()?;
        if !self.flushed.is_empty() {
            self.set_volatile();
        }
        Ok(())
    }

    /// The zones from their words.
    fn rebuild(&mut self) -> Result<(), RegionError> {
        let ZoneConfig { capacity, max_active: limit, extension, zrwa, .. } = self.config;
        self.implicit.clear();
        (self.open, self.active, self.areas) = (0, 0, 0);
        // Zones whose last write was lost take it again, as far as there may be so many.
        let certain = |kept: &RegionWord| !matches!(ZoneState::of(kept.state), Some(ZoneState::Full)) || kept.finished;
        for pass in [true, false] {
            for zone in 0..self.config.zones {
                let kept = self.kept(zone);
                if certain(&kept) != pass {
                    continue;
                }
                let end = kept.end.min(capacity);
                let extended = kept.extended && extension > 0;
                let full = Zone { state: ZoneState::Full, wp: capacity, zrwa: false, extended };
                let made = match ZoneState::of(kept.state) {
                    Some(state @ (ZoneState::ReadOnly | ZoneState::Offline)) => {
                        let wp = if kept.finished { capacity } else { end };
                        Zone { state, wp, zrwa: false, extended: extended && state == ZoneState::ReadOnly }
                    }
                    Some(ZoneState::Full) if kept.finished => full,
                    Some(ZoneState::Empty) | None => EMPTY,
                    _ if end == capacity => full,
                    Some(ZoneState::Full) if limit != 0 && self.active >= limit => full,
                    _ if end == 0 && !extended => EMPTY,
                    _ => {
                        let area = kept.zrwa && zrwa.is_some_and(|area| self.areas < area.areas);
                        Zone { state: ZoneState::Closed, wp: end, zrwa: area, extended }
                    }
                };
                self.active += u32::from(made.state.is_active());
                self.areas += u32::from(made.zrwa);
                self.zones[zone as usize] = made;
                let finished = made.state == ZoneState::Full && end < capacity || kept.finished;
                self.words[zone as usize] = RegionWord { end, finished, ..kept }.word();
                self.keep(zone);
            }
        }
        match limit != 0 && self.active > limit {
            true => Err(RegionError::Active { found: self.active, limit }),
            false => Ok(()),
        }
    }

    /// A zone's descriptor extension; empty where there are none.
    pub fn extension(&self, zone: u32) -> &[u8] {
        let each = usize::from(self.config.extension) * 64;
        self.extensions.get(zone as usize * each..).and_then(|rest| rest.get(..each)).unwrap_or_default()
    }

    /// Puts bytes into a zone's descriptor extension, which [`set_extension`](Self::set_extension) makes valid.
    pub fn put_extension(&mut self, zone: u32, bytes: &[u8]) {
        let each = usize::from(self.config.extension) * 64;
        let place = self.extensions.get_mut(zone as usize * each..).unwrap_or_default();
        place.iter_mut().take(each).zip(bytes).for_each(|(to, from)| *to = *from);
    }

    /// Puts zeroes into all of them.
    pub fn clear_extensions(&mut self) {
        self.extensions.fill(0);
    }

    /// What is kept of a zone goes with what it is.
    pub(super) fn check_kept(&self, zone: usize, z: &Zone) {
        let kept = self.kept(zone as u32);
        let state = ZoneState::of(kept.state).unwrap_or(ZoneState::Empty);
        assert_eq!((state, kept.zrwa, kept.extended), (z.state, z.zrwa, z.extended), "zone {zone}");
        assert!(kept.end <= z.wp, "zone {zone}: {kept:?} of {z:?}");
        if let Some(flushed) = self.flushed.get(zone).filter(|_| !kept.finished) {
            assert!(*flushed <= kept.end, "zone {zone}: {flushed} are flushed of {kept:?}");
        }
    }
}
