//! Maps of files, and the index of regions: each has to say what the other says.

use super::finding::{Finding, FindingKind, Repair};
use super::image::{Image, RegionPlaces};
use crate::inode::Content;
use crate::keys::{map_chunk_key, short_key, unsettled_key};
use crate::kv::KvWrite;
use crate::records::{
    BlockRecord, CHECKSUM_BYTES, COPIES_MAX, MapChunk, ShortRecord, WriterRecord, blocks_per_chunk, to_value,
};
use crate::service::regions_of;
use crate::space::{ExtentRecord, ExtentUse, GRAIN, extent_key, lease_key};
use crate::{Extent, InodeId, RegionId};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use weir_units::Bytes;

/// A block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BlockOf {
    inode: InodeId,
    /// Its number in the file.
    block: u64,
}

/// Where maps say that blocks are: region, offset within the namespace, and whose. Two may say so of one place.
type Claims = BTreeSet<(RegionId, u64, BlockOf)>;

impl Image {
    pub(super) fn find_in_maps(&self, places: &RegionPlaces, findings: &mut Vec<Finding>) {
        for ((inode, number), chunk) in &self.chunks {
            let about = format!("chunk {number} of inode {inode}");
            let file = match self.inodes.get(inode) {
                Some(file) if file.content == Content::Mapped => file,
                None if self.is_inode(*inode) => continue,
                _ => {
                    // No commit leaves this: an inode was lost, and these are its bytes.
                    let what = "its inode is lost; put a copy of the metadata back";
                    findings.push(Finding { kind: FindingKind::ChunkOfNone, about, repair: Repair::Refused(what) });
                    continue;
                }
            };
            let per_chunk = blocks_per_chunk(file.block);
            let is_ordered = chunk.blocks.windows(2).all(|pair| pair[0].index < pair[1].index)
                && chunk.blocks.iter().all(|block| block.index < per_chunk);
            if !is_ordered {
                let what = "put a copy of the metadata back, or delete the file";
                findings.push(Finding { kind: FindingKind::ChunkOrder, about, repair: Repair::Refused(what) });
                continue;
            }
            let first = u64::from(*number) * u64::from(per_chunk);
            let is_behind = |block: &BlockRecord| (first + u64::from(block.index)) * u64::from(file.block) >= file.size;
            if chunk.blocks.iter().any(is_behind) {
                // Blocks go with the commit that makes a file shorter: the size is what is wrong.
                let about = format!("{about}: the file has {} bytes", file.size);
                let repair =
                    Repair::Refused("its size is damaged; put a copy of the metadata back, or copy what can be read");
                findings.push(Finding { kind: FindingKind::BlockBehindEnd, about, repair });
                continue;
            }
            for block in &chunk.blocks {
                let of = BlockOf { inode: *inode, block: first + u64::from(block.index) };
                self.find_in_block(&of, block, file.block, places, findings);
            }
        }
    }

    /// What the index of unsettled blocks has, and what it should.
    pub(super) fn find_unsettled(&self, findings: &mut Vec<Finding>) {
        let has_unsettled = |chunk: &MapChunk| chunk.blocks.iter().any(|block| block.is_unsettled);
        let mut push = |(inode, chunk): (InodeId, u32), what: &str, write| {
            let about = format!("chunk {chunk} of inode {inode}: {what}");
            findings.push(Finding { kind: FindingKind::UnsettledIndex, about, repair: Repair::Writes(vec![write]) });
        };
        for (of, _) in self.chunks.iter().filter(|(_, chunk)| has_unsettled(chunk)) {
            let key = unsettled_key(of.0, of.1);
            // A value that cannot be read is told as such.
            if self.raw(&key).is_none() {
                let write = KvWrite::Put(key, to_value(&WriterRecord::default()));
                push(*of, "it has unsettled blocks that would not be recovered", write);
            }
        }
        for of in self.unsettled.keys() {
            let is_right = match self.chunks.get(of) {
                Some(chunk) => has_unsettled(chunk),
                None => self.raw(&map_chunk_key(of.0, of.1)).is_some(),
            };
            if !is_right {
                push(*of, "it has no unsettled block", KvWrite::Delete(unsettled_key(of.0, of.1)));
            }
        }
    }

    /// What the index of blocks that lack copies has, and what it should.
    pub(super) fn find_short(&self, findings: &mut Vec<Finding>) {
        let mut push = |(inode, chunk): (InodeId, u32), what: &str, write| {
            let about = format!("chunk {chunk} of inode {inode}: {what}");
            findings.push(Finding { kind: FindingKind::ShortIndex, about, repair: Repair::Writes(vec![write]) });
        };
        // What is said of a damaged inode or chunk is said of that.
        let wanted = |of: &(InodeId, u32)| self.inodes.get(&of.0).map(|inode| inode.copies);
        for (of, chunk) in &self.chunks {
            let Some(copies) = wanted(of).filter(|copies| chunk.lacks_copies(*copies)) else { continue };
            let key = short_key(of.0, of.1);
            if self.raw(&key).is_none() {
                let write = KvWrite::Put(key, to_value(&ShortRecord { copies }));
                push(*of, "it has blocks whose lacking copies would not be made again", write);
            }
        }
        for of in self.short.keys() {
            let is_right = match (self.chunks.get(of), wanted(of)) {
                (Some(chunk), Some(copies)) => chunk.lacks_copies(copies),
                (Some(_), None) => true,
                (None, _) => self.raw(&map_chunk_key(of.0, of.1)).is_some(),
            };
            if !is_right {
                push(*of, "it has no block that lacks a copy", KvWrite::Delete(short_key(of.0, of.1)));
            }
        }
    }

    fn find_in_block(
        &self,
        of: &BlockOf,
        block: &BlockRecord,
        size: u32,
        places: &RegionPlaces,
        findings: &mut Vec<Finding>,
    ) {
        let about = format!("block {} of inode {}", of.block, of.inode);
        let length = block.copies.first().map_or(0, |copy| copy.length.get());
        let is_shaped = (1..=COPIES_MAX).contains(&block.copies.len())
            && block.copies.iter().all(|copy| copy.length.get() == length)
            && length > 0
            && length % GRAIN == 0
            && length <= size.into()
            && block.checksums.len() as u64 == length.div_ceil(CHECKSUM_BYTES.into());
        if !is_shaped {
            let what = "put a copy of the metadata back, or delete the file";
            return findings.push(Finding { kind: FindingKind::BlockShape, about, repair: Repair::Refused(what) });
        }
        for copy in &block.copies {
            if let Some(finding) = self.of_copy(of, block, copy, places, &about) {
                findings.push(finding);
            }
        }
    }

    /// Whether a block has the copy that it was written with first: its generation is that one's, also when it was marked out.
    fn has_all_copies(&self, of: &BlockOf, block: &BlockRecord) -> bool {
        self.inodes.get(&of.inode).is_some_and(|inode| block.copies.len() >= usize::from(inode.copies))
    }

    fn of_copy(
        &self,
        of: &BlockOf,
        block: &BlockRecord,
        copy: &Extent,
        places: &RegionPlaces,
        about: &str,
    ) -> Option<Finding> {
        let region = region_of(places, copy);
        let record = region.and_then(|region| self.covering(region, copy));
        let scrub = "run weir fs scrub: checksums say whether the bytes are still the file's";
        let (kind, about, repair) = match (region, record) {
            (None, _) => {
                let about = format!("{about}: {copy} is in no region");
                (FindingKind::BlockNotIndexed, about, Repair::Refused("put the namespace back, or delete the file"))
            }
            (Some(region), None) if self.is_free(region, copy) => {
                let used = ExtentUse::Mapped(of.inode, of.block);
                let record = ExtentRecord { len: copy.length.get(), generation: block.generation, used };
                let write = KvWrite::Put(extent_key(region, copy.offset.get()), record.encode());
                let about = format!("{about}: {copy} counts as free");
                (FindingKind::BlockNotIndexed, about, Repair::Writes(vec![write]))
            }
            (Some(_), None) => {
                let about = format!("{about}: parts of {copy} are something else");
                (FindingKind::BlockNotIndexed, about, Repair::Refused(scrub))
            }
            (Some(region), Some((offset, record))) => match record.used {
                ExtentUse::Mapped(inode, number) if (inode, number) == (of.inode, of.block) => {
                    let is_first = block.copies.first() == Some(copy) && self.has_all_copies(of, block);
                    if record.generation == block.generation || !is_first {
                        return None;
                    }
                    let about = format!(
                        "{about}: of generation {} where the index has {}",
                        block.generation, record.generation
                    );
                    (FindingKind::Generation, about, Repair::Refused(scrub))
                }
                ExtentUse::Mapped(inode, number) => {
                    let about = format!("{about}: {copy} is also block {number} of inode {inode}");
                    (FindingKind::BlockTwice, about, Repair::Refused(scrub))
                }
                // Given up by mistake: nobody else has it yet, if the whole of it is this block's.
                ExtentUse::Quarantined if offset == copy.offset.get() && record.len == copy.length.get() => {
                    let right = ExtentRecord { used: ExtentUse::Mapped(of.inode, of.block), ..record };
                    let write = KvWrite::Put(extent_key(region, offset), right.encode());
                    (
                        FindingKind::BlockNotIndexed,
                        format!("{about}: {copy} is quarantined"),
                        Repair::Writes(vec![write]),
                    )
                }
                ExtentUse::Quarantined | ExtentUse::Granted(_) => {
                    let about = format!("{about}: {copy} is not indexed as a file's");
                    (FindingKind::BlockNotIndexed, about, Repair::Refused(scrub))
                }
            },
        };
        Some(Finding { kind, about, repair })
    }

    /// The record of the index that has all of these bytes.
    fn covering(&self, region: RegionId, copy: &Extent) -> Option<(u64, ExtentRecord)> {
        let (from, end) = (copy.offset.get(), copy.end()?.get());
        let ((_, offset), record) = self.extents.range((region, 0)..=(region, from)).next_back()?;
        (offset.checked_add(record.len)? >= end).then_some((*offset, *record))
    }

    /// Whether the index has nothing of these bytes.
    fn is_free(&self, region: RegionId, copy: &Extent) -> bool {
        let Some(end) = copy.end() else { return false };
        let before = self.extents.range((region, 0)..(region, end.get())).next_back();
        before.is_none_or(|((_, offset), record)| offset.saturating_add(record.len) <= copy.offset.get())
    }

    pub(super) fn find_in_index(&self, places: &RegionPlaces, findings: &mut Vec<Finding>) {
        let claims = self.claims(places, findings);
        let mut before: Option<(RegionId, u64)> = None;
        for ((region, offset), record) in &self.extents {
            let end = offset.checked_add(record.len);
            let about = format!("{} bytes at {offset} of region {region}", record.len);
            let mut push = |kind, about: String, repair| findings.push(Finding { kind, about, repair });
            let inside = places.get(region).is_some_and(|place| {
                let whole = place.offset.get()..=place.end().map_or(0, Bytes::get);
                offset % GRAIN == 0 && whole.contains(offset) && end.is_some_and(|end| whole.contains(&end))
            });
            if !inside {
                let what = "the namespace was replaced, or the index is damaged; put a copy of the metadata back";
                push(FindingKind::ExtentOutside, about, Repair::Refused(what));
                continue;
            }
            if before.is_some_and(|(other, behind)| other == *region && behind > *offset) {
                let what = "run weir fs scrub: checksums say whose the bytes are";
                push(FindingKind::ExtentOverlap, about.clone(), Repair::Refused(what));
            }
            before = end.map(|end| (*region, end));
            let term = self.leases.get(region).map(|lease| lease.term.get());
            if term.is_none_or(|term| record.generation.get() >> 32 > term) && self.raw(&lease_key(*region)).is_none() {
                let what = "the region's lease is lost; put a copy of the metadata back";
                push(FindingKind::RegionTerm, about.clone(), Repair::Refused(what));
            } else if term.is_some_and(|term| record.generation.get() >> 32 > term) {
                let what = "the region's lease is of an older copy; put the right one back";
                push(FindingKind::RegionTerm, about.clone(), Repair::Refused(what));
            }
            let quarantined = ExtentRecord { used: ExtentUse::Quarantined, ..*record };
            let quarantine = Repair::Writes(vec![KvWrite::Put(extent_key(*region, *offset), quarantined.encode())]);
            match record.used {
                // One that has a session and no hold is told as such: its client may go on.
                // Those of a service's own are given up by the next one that takes the region.
                ExtentUse::Granted(session)
                    if !session.is_of_service()
                        && !self.holds.contains_key(&session)
                        && !self.sessions.contains_key(&session) =>
                {
                    push(FindingKind::GrantOfNone, format!("{about}: session {session}"), quarantine);
                }
                ExtentUse::Mapped(inode, block) => {
                    let nobody = BlockOf { inode: InodeId(0), block: 0 };
                    let whole = (*region, *offset, nobody)..(*region, end.unwrap_or(*offset), nobody);
                    let is_mapped = claims.range(whole).any(|(.., of)| *of == BlockOf { inode, block });
                    if !is_mapped && !self.is_unsure(inode) {
                        let about = format!("{about}: block {block} of inode {inode}");
                        let repair = match self.inodes.contains_key(&inode) {
                            // The file's map has lost it.
                            true => Repair::Refused("its map has lost it; put a copy of the metadata back"),
                            false => quarantine,
                        };
                        push(FindingKind::MappedByNone, about, repair);
                    }
                }
                _ => {}
            }
        }
    }

    /// Whether it is not known which blocks a file has: its inode or a part of its map cannot be read.
    fn is_unsure(&self, inode: InodeId) -> bool {
        if !self.inodes.contains_key(&inode) {
            return self.is_inode(inode);
        }
        let (from, until) = crate::keys::map_chunk_range(inode);
        self.raw_range(&from, &until).any(|key| {
            let number = key.0.get(9..13).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
            number.is_none_or(|number| !self.chunks.contains_key(&(inode, number)))
        })
    }

    /// Where all blocks of all maps are; two in one place are told.
    fn claims(&self, places: &RegionPlaces, findings: &mut Vec<Finding>) -> Claims {
        let mut claims = Claims::new();
        let mut mapped: BTreeMap<(RegionId, u64), (BlockOf, u64)> = BTreeMap::new();
        for ((inode, number), chunk) in &self.chunks {
            let Some(file) = self.inodes.get(inode).filter(|file| file.content == Content::Mapped) else { continue };
            let first = u64::from(*number) * u64::from(blocks_per_chunk(file.block));
            for block in &chunk.blocks {
                let of = BlockOf { inode: *inode, block: first + u64::from(block.index) };
                for copy in &block.copies {
                    let Some(region) = region_of(places, copy) else { continue };
                    let (at, end) = (copy.offset.get(), copy.end().map_or(0, Bytes::get));
                    claims.insert((region, at, of));
                    let before = mapped.range((region, 0)..(region, end)).next_back();
                    let other = before.filter(|(_, (_, behind))| *behind > at).map(|(_, (other, _))| *other);
                    if let Some(other) = other {
                        findings.push(Finding {
                            kind: FindingKind::BlockTwice,
                            about: twice(&of, &other, copy),
                            repair: Repair::Refused("run weir fs scrub: checksums say whose the bytes are"),
                        });
                    } else {
                        mapped.insert((region, at), (of, end));
                    }
                }
            }
        }
        claims
    }
}

fn twice(of: &BlockOf, other: &BlockOf, copy: &Extent) -> String {
    format!("block {} of inode {} and block {} of inode {}: {copy}", of.block, of.inode, other.block, other.inode)
}

/// The region that has all of these bytes.
fn region_of(places: &RegionPlaces, copy: &Extent) -> Option<RegionId> {
    let end = copy.end()?;
    let has = |place: &Extent| {
        place.namespace == copy.namespace && place.offset <= copy.offset && place.end().is_some_and(|last| end <= last)
    };
    places.range(regions_of(copy.namespace)).find(|(_, place)| has(place)).map(|(region, _)| *region)
}
