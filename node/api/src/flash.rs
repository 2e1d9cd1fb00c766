//! What is inside a flash drive, as the API says it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_drive::FlashFigures;

/// A drive's flash. Units are 4 KiB, pages the flash's own; times are parts of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Flash")]
pub struct FlashStatus {
    /// Bytes offered.
    pub capacity_bytes: u64,
    /// Flash beyond them, as a part of them.
    pub over_provisioning: f64,
    /// Bytes programmed over bytes written by the host.
    pub write_amplification: f64,
    /// Garbage collection.
    pub gc: GcStatus,
    /// Blocks erased.
    pub erases: u64,
    /// Erases of the blocks.
    pub wear: WearStatus,
    /// Units of each placement handle, from 0 on, where there are some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handles: Vec<HandleStatus>,
    /// Pages read for the host.
    pub page_reads: u64,
    /// Pages programmed for the host.
    pub page_programs: u64,
    /// Units that stayed empty in them.
    pub padding_units: u64,
    /// Units read that have no contents.
    pub unmapped_reads: u64,
    /// Units read that the write buffer had.
    pub buffer_read_hits: u64,
    /// Units written whose version before it still had.
    pub buffer_write_hits: u64,
    /// Units that waited for room in it.
    pub buffer_waits: u64,
    /// Look-ups that the map cache had.
    pub map_hits: u64,
    /// Look-ups that it had not.
    pub map_misses: u64,
    /// Writes refused because the drive is worn out.
    pub refused: u64,
    /// The busy part of the time of each die and each channel.
    pub utilisation: UtilisationStatus,
}

/// Garbage collection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Collection")]
pub struct GcStatus {
    /// Blocks collected.
    pub victims: u64,
    /// Pages read.
    pub page_reads: u64,
    /// Pages programmed for the host.
    pub page_programs: u64,
    /// Units moved.
    pub moved_units: u64,
    /// Of these, out of pseudo-SLC blocks.
    pub folded_units: u64,
    /// Of these, for static wear levelling.
    pub wear_levelled_units: u64,
    /// Times that a write had to wait for it.
    pub urgent: u64,
}

/// Erases of the least, the average and the most worn block.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Wear")]
pub struct WearStatus {
    /// Least.
    pub min: u32,
    /// Average.
    pub mean: f64,
    /// Most.
    pub max: u32,
}

/// What was programmed for a placement handle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PlacementHandle")]
pub struct HandleStatus {
    /// For the host.
    pub written_units: u64,
    /// By collection, out of blocks that hold its data alone.
    pub moved_units: u64,
    /// Reclaim units that were filled or left.
    pub reclaim_units: u64,
}

/// Parts of the time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Utilisation")]
pub struct UtilisationStatus {
    /// Each die.
    pub dies: Vec<f64>,
    /// Each channel.
    pub channels: Vec<f64>,
}

impl From<FlashFigures> for FlashStatus {
    fn from(flash: FlashFigures) -> Self {
        let FlashFigures { capacity, over_provisioning, write_amplification, stats: s, wear, .. } = flash;
        let FlashFigures { handles, dies, channels, .. } = flash;
        let handles = handles.into_iter().map(|h| HandleStatus {
            written_units: h.written,
            moved_units: h.moved,
            reclaim_units: h.reclaim_units,
        });
        FlashStatus {
            capacity_bytes: capacity,
            over_provisioning,
            write_amplification,
            gc: GcStatus {
                victims: s.victims,
                page_reads: s.gc_reads,
                page_programs: s.gc_programs,
                moved_units: s.gc_moves,
                folded_units: s.folds,
                wear_levelled_units: s.wear_moves,
                urgent: s.urgent,
            },
            erases: s.erases,
            wear: WearStatus { min: wear.min, mean: wear.mean, max: wear.max },
            handles: handles.collect(),
            page_reads: s.page_reads,
            page_programs: s.page_programs,
            padding_units: s.padding,
            unmapped_reads: s.unmapped_reads,
            buffer_read_hits: s.buffer_read_hits,
            buffer_write_hits: s.buffer_write_hits,
            buffer_waits: s.buffer_waits,
            map_hits: s.map_hits,
            map_misses: s.map_misses,
            refused: s.refused,
            utilisation: UtilisationStatus { dies, channels },
        }
    }
}
