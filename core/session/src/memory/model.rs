//! Memory for tests, simulation and fuzzing: regions of bytes that both sides of a protocol share.

use super::{Bits, Memory, MemoryFault};
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::sync::atomic::Ordering;
use weir_journal::JournalMemory;

#[derive(Debug)]
struct Region {
    address: u64,
    bytes: RefCell<Vec<u8>>,
}

/// Slow, obvious, and counts what is done to it.
#[derive(Debug, Default)]
pub struct ModelMemory {
    regions: Vec<Rc<Region>>,
    epoch: u64,
    fuse: Rc<Fuse>,
}

/// Counts one side's stores, and lets none through any more once that side has died.
#[derive(Debug)]
struct Fuse {
    stores: Cell<u64>,
    limit: Cell<u64>,
}

impl Default for Fuse {
    fn default() -> Self {
        Self { stores: Cell::new(0), limit: Cell::new(u64::MAX) }
    }
}

impl Fuse {
    /// Whether the store is made.
    fn store(&self) -> bool {
        self.stores.set(self.stores.get() + 1);
        self.stores.get() <= self.limit.get()
    }
}

/// Where the words of a journal lie in the region that carries them.
const JOURNAL: u64 = 0;

/// A journal's words in a region of a [`ModelMemory`], under the fuse of the model that mapped them.
#[derive(Clone, Debug)]
pub struct ModelWords {
    region: Rc<Region>,
    offset: usize,
    count: usize,
    fuse: Rc<Fuse>,
}

impl JournalMemory for ModelWords {
    fn count(&self) -> usize {
        self.count
    }
    fn load(&self, at: usize, _: Ordering) -> u64 {
        assert!(at < self.count, "word {at} of {}", self.count);
        let mut b = [0; 8];
        b.copy_from_slice(&self.region.bytes.borrow()[self.offset + 8 * at..][..8]);
        u64::from_le_bytes(b)
    }
    fn store(&self, at: usize, value: u64, _: Ordering) {
        assert!(at < self.count, "word {at} of {}", self.count);
        if self.fuse.store() {
            self.region.bytes.borrow_mut()[self.offset + 8 * at..][..8].copy_from_slice(&value.to_le_bytes());
        }
    }
}

impl Bits for ModelWords {
    fn set(&self, at: usize, bits: u64) {
        self.store(at, self.load(at, Ordering::Relaxed) | bits, Ordering::Release);
    }
}

/// A window of [`ModelMemory`].
#[derive(Clone, Copy, Debug)]
pub struct Window {
    address: u64,
    len: usize,
    epoch: u64,
}

impl ModelMemory {
    /// Memory without regions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Memory with one region of zeroes.
    pub fn flat(address: u64, len: usize) -> Self {
        let mut m = Self::new();
        m.add(address, len);
        m
    }

    /// Adds a region of zeroes.
    pub fn add(&mut self, address: u64, len: usize) {
        self.regions.push(Rc::new(Region { address, bytes: RefCell::new(vec![0; len]) }));
    }

    /// Makes a region that `other` has visible here too, at the same address: shared memory. Its length, or `None` if
    /// there is no such region.
    pub fn share(&mut self, other: &ModelMemory, address: u64) -> Option<u64> {
        let found = other.regions.iter().find(|r| r.address == address)?;
        self.regions.push(found.clone());
        Some(found.bytes.borrow().len() as u64)
    }

    /// Has what `new` has from now on; windows made before are stale.
    pub fn take_over(&mut self, new: ModelMemory) {
        self.regions = new.regions;
        self.epoch += 1;
    }

    /// Removes the region at `address`; windows made before are stale.
    pub fn remove(&mut self, address: u64) -> bool {
        let before = self.regions.len();
        self.regions.retain(|r| r.address != address);
        self.epoch += 1;
        self.regions.len() != before
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.regions.clear();
        self.epoch += 1;
    }

    /// Stores so far, those into journals included.
    pub fn stores(&self) -> u64 {
        self.fuse.stores.get()
    }

    /// Whoever stores through this model dies after that many stores: later ones do nothing.
    pub fn die_after(&self, stores: u64) {
        self.fuse.limit.set(stores);
    }

    /// Whether it has died.
    pub fn is_dead(&self) -> bool {
        self.fuse.stores.get() > self.fuse.limit.get()
    }

    /// Memory for a journal, and what carries it to others.
    pub fn make_words(&self, len: u64) -> (ModelWords, Rc<ModelMemory>) {
        let carrier = Rc::new(ModelMemory::flat(JOURNAL, len as usize));
        let words = self.words_of(&carrier, 0, len).expect("it has just been made");
        (words, carrier)
    }

    /// The words of a journal that another model carries.
    pub fn words_of(&self, carrier: &ModelMemory, offset: u64, len: u64) -> Option<ModelWords> {
        let region = carrier.regions.iter().find(|r| r.address == JOURNAL)?.clone();
        let have = region.bytes.borrow().len() as u64;
        let fits = offset % 8 == 0 && offset.checked_add(len).is_some_and(|end| end <= have);
        let (offset, count) = (offset as usize, (len / 8) as usize);
        fits.then(|| ModelWords { region, offset, count, fuse: self.fuse.clone() })
    }

    fn each(&self, address: u64, len: usize, mut f: impl FnMut(&mut [u8], usize)) -> Result<(), MemoryFault> {
        let mut done = 0;
        while done < len {
            let at = address.checked_add(done as u64).ok_or(MemoryFault::Unmapped)?;
            let r = self
                .regions
                .iter()
                .find(|r| at >= r.address && at - r.address < r.bytes.borrow().len() as u64)
                .ok_or(MemoryFault::Unmapped)?;
            let mut bytes = r.bytes.borrow_mut();
            let from = (at - r.address) as usize;
            let n = (bytes.len() - from).min(len - done);
            f(&mut bytes[from..from + n], done);
            done += n;
        }
        Ok(())
    }

    fn place(&self, w: &Window, at: usize, size: usize) -> Result<u64, MemoryFault> {
        if w.epoch != self.epoch {
            return Err(MemoryFault::Stale);
        }
        if at.checked_add(size).is_none_or(|end| end > w.len) {
            return Err(MemoryFault::OutOfWindow);
        }
        let place = w.address + at as u64;
        if place % size as u64 != 0 { Err(MemoryFault::Misaligned) } else { Ok(place) }
    }

    fn load<const N: usize>(&self, w: &Window, at: usize) -> Result<[u8; N], MemoryFault> {
        let mut b = [0; N];
        let place = self.place(w, at, N)?;
        self.read(place, &mut b)?;
        Ok(b)
    }

    fn store<const N: usize>(&self, w: &Window, at: usize, value: [u8; N]) -> Result<(), MemoryFault> {
        let place = self.place(w, at, N)?;
        self.write(place, &value)
    }
}

impl Memory for ModelMemory {
    type Window = Window;
    type Words = ModelWords;

    fn window(&self, address: u64, len: usize) -> Result<Window, MemoryFault> {
        let inside = self.regions.iter().any(|r| {
            let end = r.address + r.bytes.borrow().len() as u64;
            address >= r.address && address.checked_add(len as u64).is_some_and(|e| e <= end)
        });
        if inside { Ok(Window { address, len, epoch: self.epoch }) } else { Err(MemoryFault::Unmapped) }
    }
    fn load16(&self, w: &Window, at: usize, _: Ordering) -> Result<u16, MemoryFault> {
        self.load(w, at).map(u16::from_le_bytes)
    }
    fn load32(&self, w: &Window, at: usize, _: Ordering) -> Result<u32, MemoryFault> {
        self.load(w, at).map(u32::from_le_bytes)
    }
    fn load64(&self, w: &Window, at: usize, _: Ordering) -> Result<u64, MemoryFault> {
        self.load(w, at).map(u64::from_le_bytes)
    }
    fn store16(&self, w: &Window, at: usize, value: u16, _: Ordering) -> Result<(), MemoryFault> {
        self.store(w, at, value.to_le_bytes())
    }
    fn store_pair32(&self, w: &Window, at: usize, low: u32, high: u32) -> Result<(), MemoryFault> {
        self.store(w, at, low.to_le_bytes())?;
        self.store(w, at + 4, high.to_le_bytes())
    }
    fn store64(&self, w: &Window, at: usize, value: u64, _: Ordering) -> Result<(), MemoryFault> {
        self.store(w, at, value.to_le_bytes())
    }
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryFault> {
        let len = into.len();
        self.each(address, len, |from, done| into[done..done + from.len()].copy_from_slice(from))
    }
    fn write(&self, address: u64, from: &[u8]) -> Result<(), MemoryFault> {
        let made = self.fuse.store();
        self.each(address, from.len(), |into, done| {
            if made {
                into.copy_from_slice(&from[done..done + into.len()]);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_one_region_and_dies_with_it() {
        let mut m = ModelMemory::flat(0x1000, 0x1000);
        m.add(0x2000, 0x1000);
        assert_eq!(m.window(0x1ff0, 32).unwrap_err(), MemoryFault::Unmapped);
        let w = m.window(0x1ff0, 16).unwrap();
        m.store16(&w, 14, 0xabcd, Ordering::Relaxed).unwrap();
        assert_eq!(m.load16(&w, 14, Ordering::Relaxed), Ok(0xabcd));
        assert_eq!(m.load16(&w, 15, Ordering::Relaxed), Err(MemoryFault::OutOfWindow));
        assert_eq!(m.load16(&w, 13, Ordering::Relaxed), Err(MemoryFault::Misaligned));
        m.write(0x1ffe, &[1, 2, 3, 4]).unwrap();
        assert_eq!(m.load16(&w, 14, Ordering::Relaxed), Ok(0x0201));
        m.remove(0x2000);
        assert_eq!(m.load16(&w, 14, Ordering::Relaxed), Err(MemoryFault::Stale));
        assert_eq!(m.read(0x1ffe, &mut [0; 4]), Err(MemoryFault::Unmapped));
        assert_eq!(m.window(u64::MAX, 16).unwrap_err(), MemoryFault::Unmapped);
    }
}
