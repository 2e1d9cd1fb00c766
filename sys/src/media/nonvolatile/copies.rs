//! Which copy of a drive's nonvolatile state the next write may go over.
//!
//! Three copies must stay: the newest, which the next process finds; the newest that is durable, which the next power-on finds; and the one
//! that a sync under way is about to make durable. So a loss of power at any moment leaves one that is no older than the last sync that has
//! ended, whichever of the writes since then it tears.
//!
//! A process that finds a file after a kill does not know whether the last sync had ended. The generation that the newest copy names was
//! durable, and each copy from there on may be what was promised. They stay until a sync of the process has ended. Two of them, the
//! newest, the one that is being synced, and one to write over are five places; where more than two are found the file is made durable first.
//!
//! ```text
//!   begin_write ─► the place ─► wrote        begin_sync ─► (what is written until then) ─► synced
//! ```

/// Copies in a file.
pub(super) const PLACES: usize = 5;

/// See the [module](self).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct CopyPlaces {
    /// The generation of each whole copy; 0: there is none, or it is being written.
    generations: [u64; PLACES],
    /// The newest copy that is written, that a sync under way began with, that is durable; 0: none.
    newest: u64,
    syncing: u64,
    durable: u64,
    /// Copies that were found, from `durable` to this one, may be durable as well.
    found: u64,
    /// The file has two copies, the place of each its generation's parity.
    is_of_two: bool,
}

impl CopyPlaces {
    /// Of a file with these copies, the newest of which says which one was durable when it was written. `None`: too many of them may be
    /// the one that has to stay; the file is to be made durable first.
    pub(super) fn found(generations: [u64; PLACES], durable: u64) -> Option<Self> {
        let newest = generations.into_iter().max().unwrap_or(0);
        let unsure = generations.iter().filter(|one| **one != 0 && **one >= durable).count();
        let places = Self { generations, newest, durable, found: newest, ..Self::default() };
        (unsure <= PLACES - 3).then_some(places)
    }

    /// Of a file that is durable, and whose newest copy is needed. The others are written over first: of a file of two copies as well, so
    /// that a program which knows no others refuses it.
    pub(super) fn of_durable(generations: [u64; PLACES]) -> Self {
        let newest = generations.into_iter().max().unwrap_or(0);
        let generations = generations.map(|one| if one == newest { one } else { 0 });
        Self { generations, newest, durable: newest, found: newest, ..Self::default() }
    }

    /// Of a durable file of two copies, which stays one: of these, power that is lost while both are being written leaves none.
    pub(super) fn of_two(generations: [u64; PLACES]) -> Self {
        Self { is_of_two: true, ..Self::of_durable(generations) }
    }

    /// Whether the file has two copies.
    pub(super) fn is_of_two(&self) -> bool {
        self.is_of_two
    }

    /// The newest copy.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// The newest copy that is known to be durable.
    pub(super) fn durable(&self) -> u64 {
        self.durable
    }

    /// The place of the next copy, the oldest that is not needed. It is not whole from here on.
    pub(super) fn begin_write(&mut self) -> usize {
        if self.is_of_two {
            return ((self.newest + 1) % 2) as usize;
        }
        let needed = |generation: u64| {
            let is_found = (self.durable..=self.found).contains(&generation);
            generation != 0 && (is_found || [self.newest, self.syncing, self.durable].contains(&generation))
        };
        let free = (0..PLACES).filter(|place| !needed(self.generations[*place]));
        let place = free.min_by_key(|place| self.generations[*place]).expect("at most four are needed");
        self.generations[place] = 0;
        place
    }

    /// The copy after the newest is written there.
    pub(super) fn wrote(&mut self, place: usize) {
        self.newest += 1;
        self.generations[place] = self.newest;
    }

    /// A sync begins; false if there is nothing that it would make durable.
    pub(super) fn begin_sync(&mut self) -> bool {
        self.syncing = self.newest;
        self.syncing != self.durable
    }

    /// It has ended, well or not.
    pub(super) fn synced(&mut self, is_good: bool) {
        if is_good {
            self.durable = self.durable.max(self.syncing);
        }
        self.syncing = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// What a place holds: a whole copy, with what it says is durable, or a torn one.
    type Found = Option<(u64, u64)>;

    /// The file, as processes see it and as the medium may have it.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Disk {
        cached: [Found; PLACES],
        /// What the medium may have of each place.
        stored: [Vec<Found>; PLACES],
        /// A sync under way: what each place had when it began, unless it was written since.
        syncing: Option<[bool; PLACES]>,
    }

    impl Disk {
        fn write(&mut self, place: usize, copy: Found) {
            self.cached[place] = copy;
            for one in [None, copy] {
                if !self.stored[place].contains(&one) {
                    self.stored[place].push(one);
                }
            }
            self.stored[place].sort();
            self.syncing.iter_mut().for_each(|untouched| untouched[place] = false);
        }

        fn synced(&mut self) {
            let untouched = self.syncing.take().unwrap();
            for place in (0..PLACES).filter(|place| untouched[*place]) {
                self.stored[place] = vec![self.cached[place]];
            }
        }
    }

    /// As [`super::super::NonvolatileFile`] finds them.
    fn open(disk: &mut Disk) -> CopyPlaces {
        let newest = disk.cached.iter().flatten().max();
        let generations = disk.cached.map(|copy| copy.map_or(0, |c| c.0));
        CopyPlaces::found(generations, newest.map_or(0, |c| c.1)).unwrap_or_else(|| {
            disk.syncing = Some([true; PLACES]);
            disk.synced();
            CopyPlaces::of_durable(generations)
        })
    }

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct World {
        disk: Disk,
        places: CopyPlaces,
        /// A write under way: its place.
        writing: Option<usize>,
        /// What was written to the end, and what a sync that has ended began with.
        written: u64,
        promised: u64,
        deaths: u8,
    }

    impl World {
        fn new() -> Self {
            let disk = Disk { cached: [None; PLACES], stored: [const { Vec::new() }; PLACES], syncing: None };
            let mut world =
                Self { disk, places: CopyPlaces::default(), writing: None, written: 0, promised: 0, deaths: 0 };
            for stored in &mut world.disk.stored {
                stored.push(None);
            }
            // A new file's first copy is durable before anything else is written.
            for act in [Act::BeginWrite, Act::EndWrite, Act::BeginSync, Act::EndSync] {
                world.act(act);
            }
            world
        }

        fn acts(&self) -> Vec<Act> {
            let mut acts = vec![if self.writing.is_some() { Act::EndWrite } else { Act::BeginWrite }];
            acts.push(if self.disk.syncing.is_some() { Act::EndSync } else { Act::BeginSync });
            if self.disk.syncing.is_some() {
                acts.push(Act::FailSync);
            }
            if self.deaths < 2 {
                acts.push(Act::Kill);
            }
            acts
        }

        fn act(&mut self, act: Act) {
            match act {
                Act::BeginWrite => {
                    let place = self.places.begin_write();
                    self.disk.write(place, None);
                    self.writing = Some(place);
                }
                Act::EndWrite => {
                    let place = self.writing.take().unwrap();
                    self.disk.write(place, Some((self.places.newest() + 1, self.places.durable())));
                    self.places.wrote(place);
                    self.written = self.places.newest();
                }
                Act::BeginSync => {
                    if self.places.begin_sync() {
                        self.disk.syncing = Some([true; PLACES]);
                    } else {
                        self.places.synced(true);
                    }
                }
                Act::EndSync => {
                    self.promised = self.places.syncing;
                    self.disk.synced();
                    self.places.synced(true);
                }
                Act::FailSync => {
                    self.disk.syncing = None;
                    self.places.synced(false);
                }
                Act::Kill => {
                    // What it was writing is torn, and a sync makes nothing known.
                    (self.writing, self.disk.syncing) = (None, None);
                    self.places = open(&mut self.disk);
                    assert_eq!(self.places.newest(), self.written, "{self:?}");
                    self.deaths += 1;
                }
            }
        }

        /// Every state that a loss of power may leave.
        fn torn(&self) -> Vec<[Found; PLACES]> {
            let mut all = vec![[None; PLACES]];
            for (place, stored) in self.disk.stored.iter().enumerate() {
                let all_before = std::mem::take(&mut all);
                for copy in stored {
                    all.extend(all_before.iter().map(|before| {
                        let mut one = *before;
                        one[place] = *copy;
                        one
                    }));
                }
            }
            all
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Act {
        BeginWrite,
        EndWrite,
        BeginSync,
        EndSync,
        FailSync,
        Kill,
    }

    #[test]
    fn no_loss_of_power_takes_what_a_sync_has_made_durable() {
        let (mut seen, mut open_worlds) = (HashSet::new(), vec![World::new()]);
        let mut losses = 0;
        while let Some(world) = open_worlds.pop() {
            for found in world.torn() {
                losses += 1;
                let newest = found.iter().flatten().map(|copy| copy.0).max();
                assert!(newest >= Some(world.promised), "{found:?} of {world:?}");
            }
            for act in world.acts() {
                let mut next = world.clone();
                next.act(act);
                if next.written < 9 && seen.insert(next.clone()) {
                    open_worlds.push(next);
                }
            }
        }
        println!("{} states, {losses} losses of power", seen.len());
    }
}
