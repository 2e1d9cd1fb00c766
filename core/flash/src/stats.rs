//! What the drive has done so far. Units are 4 KiB; pages are the flash's own.

/// Counters since the drive was made, or since they were reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Units that the host read.
    pub host_reads: u64,
    /// Units that the host wrote.
    pub host_writes: u64,
    /// Units that the host trimmed, or wrote with zeroes where that only unmaps.
    pub trims: u64,
    /// Flush commands.
    pub flushes: u64,
    /// Writes refused because the drive is read-only.
    pub refused: u64,
    /// Units read that have no contents.
    pub unmapped_reads: u64,
    /// Pages read for the host.
    pub page_reads: u64,
    /// Pages programmed for the host (from the buffer, or at once).
    pub page_programs: u64,
    /// Units of those pages that stayed empty: the price of programming less than a page.
    pub padding: u64,
    /// Blocks collected.
    pub victims: u64,
    /// Pages read by collection.
    pub gc_reads: u64,
    /// Pages programmed by collection.
    pub gc_programs: u64,
    /// Units moved by collection.
    pub gc_moves: u64,
    /// Units of `gc_moves` moved from pseudo-SLC blocks into ordinary ones.
    pub folds: u64,
    /// Units of `gc_moves` moved by static wear levelling.
    pub wear_moves: u64,
    /// Choices of the victim policy that freed nothing.
    pub futile: u64,
    /// Times that a write had to wait for collection at the hard threshold (preemptive collection only).
    pub urgent: u64,
    /// Blocks erased.
    pub erases: u64,
    /// Blocks that failed and were retired while the drive was in use.
    pub grown_bad: u64,
    /// Units read that the write buffer had.
    pub buffer_read_hits: u64,
    /// Units written whose version before was still in the buffer.
    pub buffer_write_hits: u64,
    /// Units that waited for room in the buffer.
    pub buffer_waits: u64,
    /// Look-ups that the map cache had.
    pub map_hits: u64,
    /// Look-ups that it had not.
    pub map_misses: u64,
    /// Map pages read.
    pub map_reads: u64,
    /// Map pages programmed.
    pub map_programs: u64,
    /// Hybrid map: log blocks that became data blocks without a copy.
    pub switch_merges: u64,
    /// Hybrid map: log blocks completed from their data block.
    pub partial_merges: u64,
    /// Hybrid map: data blocks written anew.
    pub full_merges: u64,
}

impl Stats {
    /// Pages programmed, whatever for.
    pub const fn programs(&self) -> u64 {
        self.page_programs + self.gc_programs + self.map_programs
    }

    /// Bytes programmed over bytes written by the host; 0 before the first write. `page_units` is a page in units.
    pub fn write_amplification(&self, page_units: u32) -> f64 {
        if self.host_writes == 0 {
            return 0.0;
        }
        (self.programs() * u64::from(page_units)) as f64 / self.host_writes as f64
    }
}

/// The blocks of a die.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DieBlocks {
    /// All of them.
    pub blocks: u32,
    /// Those that have failed, or were bad from the start.
    pub bad: u32,
    /// Those that are empty and ready to be written.
    pub free: u32,
    /// Erases of those that are not bad, together, since they were made.
    pub erases: u64,
    /// Erases of the most worn one of them.
    pub most_erases: u32,
}

/// Erases of the blocks that are not bad.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WearSpread {
    /// Of the least worn.
    pub min: u32,
    /// Mean.
    pub mean: f64,
    /// Of the most worn.
    pub max: u32,
}
