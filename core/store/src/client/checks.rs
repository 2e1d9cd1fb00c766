//! What a service says is not believed before it has been looked at: numbers within their limits, blocks within their namespaces. What is wrong
//! is said in words.

use super::event::drive_name;
use crate::Extent;
use crate::file::NewBlock;
use crate::id::NamespaceId;
use crate::inode::{Content, Inode, InodeKind};
use crate::protocol::{FRAME_MAX, NamespaceInfo, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, WelcomeInfo};
use crate::records::{COPIES_MAX, MapChunk, blocks_per_chunk};
use crate::space::{BLOCK_MAX, BLOCK_MIN, GRAIN};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

pub(super) type Namespaces = BTreeMap<NamespaceId, NamespaceInfo>;

/// Whether a block can have so many bytes.
fn block(bytes: u32, of: &str) -> Result<(), String> {
    match bytes.is_power_of_two() && (BLOCK_MIN..=BLOCK_MAX).contains(&bytes.into()) {
        true => Ok(()),
        false => Err(format!("blocks of {bytes} bytes, {of}: they have a power of two from 64 KiB to 4 MiB")),
    }
}

/// What a client is told when it is let in.
pub(super) fn welcome(welcome: &WelcomeInfo) -> Result<(), String> {
    if !(PROTOCOL_VERSION_MIN..=PROTOCOL_VERSION).contains(&welcome.version) {
        return Err(format!("version {} of the protocol", welcome.version));
    }
    if welcome.inline_max as usize > FRAME_MAX / 2 {
        return Err(format!("{} bytes of a file in its inode: more than half a message", welcome.inline_max));
    }
    block(welcome.block, "where nothing else is asked for")
}

/// A file that is opened.
pub(super) fn file(inode: &Inode, inline_max: u32) -> Result<(), String> {
    if inode.kind != InodeKind::File {
        return Err(format!("an open {:?}", inode.kind));
    }
    block(inode.block, "of a file")?;
    if !(1..=COPIES_MAX).contains(&usize::from(inode.copies)) {
        return Err(format!("{} copies of a file's blocks: they have 1 to {COPIES_MAX}", inode.copies));
    }
    let most = u64::from(u32::MAX) * u64::from(blocks_per_chunk(inode.block)) * u64::from(inode.block);
    if inode.size > most {
        return Err(format!("a file of {} bytes: with such blocks it has {most} at the most", inode.size));
    }
    match &inode.content {
        Content::Mapped => Ok(()),
        Content::Inline(bytes) if bytes.len() <= inline_max as usize && bytes.len() as u64 <= inode.size => Ok(()),
        Content::Inline(bytes) => {
            Err(format!("{} bytes in the inode of a file of {}: {inline_max} at the most", bytes.len(), inode.size))
        }
        Content::Names | Content::Target(_) => Err("a file that has no bytes, but names".into()),
    }
}

/// An extent, within its namespace if that is known.
pub(super) fn extent(extent: &Extent, known: &Namespaces) -> Result<(), String> {
    let end = extent.end().filter(|_| extent.offset.get() % GRAIN == 0 && extent.length.get() % GRAIN == 0);
    let Some(end) = end else { return Err(format!("{extent}, which are no whole sectors of 4 KiB")) };
    match known.get(&extent.namespace) {
        Some(info) if end.get() > info.bytes => {
            Err(format!("{extent}, which has {} bytes: {}", info.bytes, drive_name(extent.namespace, Some(info))))
        }
        _ => Ok(()),
    }
}

/// A chunk of a file's map.
pub(super) fn chunk(chunk: &MapChunk, known: &Namespaces) -> Result<(), String> {
    for record in &chunk.blocks {
        if !(1..=COPIES_MAX).contains(&record.copies.len()) {
            return Err(format!("{} copies of block {} of a chunk", record.copies.len(), record.index));
        }
        record.copies.iter().try_for_each(|copy| extent(copy, known))?;
    }
    Ok(())
}

/// Blocks that were granted: no more than were asked for, each whole.
pub(super) fn granted(blocks: &[NewBlock], wanted: usize, bytes: u32, known: &Namespaces) -> Result<(), String> {
    if blocks.is_empty() || blocks.len() > wanted {
        return Err(format!("{} blocks, where {wanted} were asked for", blocks.len()));
    }
    for new in blocks {
        if !(1..=COPIES_MAX).contains(&new.copies.len()) {
            return Err(format!("a new block of {} copies", new.copies.len()));
        }
        if let Some(copy) = new.copies.iter().find(|copy| copy.length.get() != u64::from(bytes)) {
            return Err(format!("a new block of {}: the file's have {bytes}", copy.length));
        }
        new.copies.iter().try_for_each(|copy| extent(copy, known))?;
    }
    Ok(())
}

/// A namespace.
pub(super) fn namespace(info: &NamespaceInfo) -> Result<(), String> {
    match info.sector {
        512 | 4096 => Ok(()),
        sector => Err(format!("sectors of {sector} bytes, {}", drive_name(info.namespace, Some(info)))),
    }
}
