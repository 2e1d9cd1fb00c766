//! Listings under way: the kernel reads a directory in parts, from an offset that an entry was given with.

use crate::errors::Failed;
use crate::link::StoreLink;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use weir_store::{EntryName, InodeId, ListEntry};

/// Offsets before the first name: those of `.` and `..`.
pub const DOTS: u64 = 2;

/// Names of a directory that was opened.
#[derive(Debug)]
pub struct Directory {
    container: InodeId,
    listing: Mutex<Listing>,
}

/// A window of the names, which moves forward; back to the beginning it is fetched anew.
#[derive(Debug, Default)]
struct Listing {
    /// The place of the first name of the window among all.
    first: u64,
    window: VecDeque<ListEntry>,
    after: Option<EntryName>,
    is_last: bool,
}

impl Directory {
    /// The names from that place on, 0 for the first: each is given to `take` with the offset behind it, until that says that it is full.
    ///
    /// # Errors
    /// The metadata service does not answer.
    pub fn read(
        &self,
        link: &StoreLink,
        place: u64,
        mut take: impl FnMut(u64, &ListEntry) -> bool,
    ) -> Result<(), Failed> {
        let mut listing = self.listing.lock().unwrap_or_else(PoisonError::into_inner);
        if place == 0 || place < listing.first {
            *listing = Listing::default();
        }
        let mut place = place;
        while let Some(entry) = listing.get(link, self.container, place)? {
            place += 1;
            if take(place + DOTS, entry) {
                break;
            }
        }
        Ok(())
    }
}

impl Listing {
    /// The name at a place; those before it are let go.
    fn get(&mut self, link: &StoreLink, container: InodeId, place: u64) -> Result<Option<&ListEntry>, Failed> {
        loop {
            while self.first < place && self.window.pop_front().is_some() {
                self.first += 1;
            }
            if !self.window.is_empty() || self.is_last {
                return Ok(self.window.front().filter(|_| self.first == place));
            }
            let page = link.ask(|client| client.list_page(container, self.after.clone()))?;
            self.after = page.entries.last().map(|entry| entry.name.clone());
            self.is_last = page.is_last;
            self.window = page.entries.into();
        }
    }
}

/// All directories that are open, by the number of their opening.
#[derive(Debug, Default)]
pub struct Directories {
    open: Mutex<(u64, HashMap<u64, Arc<Directory>>)>,
}

impl Directories {
    /// Opens one: its number.
    pub fn open(&self, container: InodeId) -> u64 {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.0 += 1;
        let number = open.0;
        open.1.insert(number, Arc::new(Directory { container, listing: Mutex::default() }));
        number
    }

    /// The one of that number.
    pub fn get(&self, number: u64) -> Option<Arc<Directory>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).1.get(&number).cloned()
    }

    /// It is closed.
    pub fn close(&self, number: u64) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&number);
    }
}
