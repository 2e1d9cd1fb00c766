//! MSI-X: the table, who masks a vector, and what is pending.

use super::{PENDING, TABLE};
use alloc::vec::Vec;
use weir_codec::{Coder, Damaged, Flags, Reader, Writer};
use weir_spec::pci::msix::{Control, ENTRY, MASKED, VECTOR_CONTROL};

#[derive(Clone, Copy, Debug, Default)]
struct Vector {
    /// It has an eventfd.
    assigned: bool,
    /// By DEVICE_SET_IRQS.
    masked: bool,
    /// Somebody has written its vector control: what that says counts.
    owned: bool,
    pending: bool,
}

/// The vectors of a function; see the [module](super).
#[derive(Debug)]
pub struct Msix {
    vectors: Vec<Vector>,
    /// The table as it is read.
    table: Vec<u8>,
    function_mask: bool,
}

impl Msix {
    pub(super) fn new(vectors: u16) -> Self {
        let mut msix = Self {
            vectors: alloc::vec![Vector::default(); usize::from(vectors)],
            table: alloc::vec![0; usize::from(vectors) * ENTRY],
            function_mask: false,
        };
        msix.reset();
        msix
    }

    /// The vectors that have an eventfd.
    pub fn assigned(&self) -> impl Iterator<Item = u16> {
        (0u16..).zip(&self.vectors).filter(|(_, v)| v.assigned).map(|(at, _)| at)
    }

    pub(super) fn function_mask(&self) -> bool {
        self.function_mask
    }

    /// A byte of each vector, and the table.
    pub(super) fn write_saved(&self, to: &mut Writer) {
        for v in &self.vectors {
            Flags::<u8>::put(&[v.assigned, v.masked, v.owned, v.pending], to);
        }
        to.array(&self.table);
    }

    /// Takes over what another one of as many vectors has written.
    pub(super) fn read_saved(&mut self, from: &mut Reader<'_>, function_mask: bool) -> Result<(), Damaged> {
        for v in &mut self.vectors {
            [v.assigned, v.masked, v.owned, v.pending] = Flags::<u8>::get(from)?;
        }
        let table = from.take(self.table.len())?;
        self.table.copy_from_slice(table);
        self.function_mask = function_mask;
        let mut controls = self.table.chunks_exact(ENTRY).map(|entry| &entry[VECTOR_CONTROL..VECTOR_CONTROL + 4]);
        if controls.all(|c| c[0] <= MASKED as u8 && c[1..] == [0; 3]) { Ok(()) } else { Err(Damaged) }
    }

    /// How many vectors there are.
    pub fn vectors(&self) -> u16 {
        self.vectors.len() as u16
    }

    /// As at power-on; the eventfds stay.
    pub(super) fn reset(&mut self) {
        for v in &mut self.vectors {
            *v = Vector { assigned: v.assigned, ..Vector::default() };
        }
        self.table.fill(0);
        for entry in self.table.chunks_exact_mut(ENTRY) {
            entry[VECTOR_CONTROL] = MASKED as u8;
        }
        self.function_mask = false;
    }

    fn is_masked(&self, at: usize) -> bool {
        let v = &self.vectors[at];
        let in_table = self.table[at * ENTRY + VECTOR_CONTROL] & MASKED as u8 != 0;
        !v.assigned || v.masked || v.owned && in_table || self.function_mask
    }

    /// Whether the pending bit of a vector is set.
    pub fn is_pending(&self, vector: u16) -> bool {
        self.vectors.get(usize::from(vector)).is_some_and(|v| v.pending)
    }

    /// Completions were posted for this vector: true if it is to be signalled now, else it is pending (or there is none).
    #[inline]
    pub(super) fn fire(&mut self, vector: u16) -> bool {
        let at = usize::from(vector);
        if at >= self.vectors.len() {
            return false;
        }
        let masked = self.is_masked(at);
        self.vectors[at].pending = masked;
        !masked
    }

    /// A mask has changed: signals what was pending and is not masked any more.
    fn settle(&mut self, at: usize, signal: &mut impl FnMut(u16)) {
        if self.vectors[at].pending && !self.is_masked(at) {
            self.vectors[at].pending = false;
            signal(at as u16);
        }
    }

    /// The vector has an eventfd from now on, or none.
    pub(super) fn assign(&mut self, vector: u16, assigned: bool, signal: &mut impl FnMut(u16)) {
        self.vectors[usize::from(vector)].assigned = assigned;
        self.settle(vector.into(), signal);
    }

    /// Masked by DEVICE_SET_IRQS, or not any more.
    pub(super) fn mask(&mut self, vector: u16, masked: bool, signal: &mut impl FnMut(u16)) {
        self.vectors[usize::from(vector)].masked = masked;
        self.settle(vector.into(), signal);
    }

    /// Message control was written.
    pub(super) fn control(&mut self, control: Control, signal: &mut impl FnMut(u16)) {
        self.function_mask = control.enable() == 1 && control.function_mask() == 1;
        for at in 0..self.vectors.len() {
            self.settle(at, signal);
        }
    }

    /// Reads the dword at an offset in BAR 0: of the table, of the pending bits, 0 elsewhere.
    pub(super) fn read(&self, offset: u64) -> u32 {
        if offset >= PENDING {
            let first = (offset - PENDING) as usize * 8;
            let bits = self.vectors.iter().skip(first).take(32).enumerate();
            return bits.fold(0, |word, (i, v)| word | u32::from(v.pending) << i);
        }
        let at = (offset - TABLE) as usize;
        self.table.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// Writes the dword at an offset in BAR 0; pending bits are read-only.
    pub(super) fn write(&mut self, offset: u64, value: u32, signal: &mut impl FnMut(u16)) {
        let at = (offset.wrapping_sub(TABLE)) as usize;
        if offset >= PENDING || at >= self.table.len() {
            return;
        }
        let control = at % ENTRY == VECTOR_CONTROL;
        let value = if control { value & MASKED } else { value };
        self.table[at..at + 4].copy_from_slice(&value.to_le_bytes());
        if control {
            self.vectors[at / ENTRY].owned = true;
            self.settle(at / ENTRY, signal);
        }
    }
}
