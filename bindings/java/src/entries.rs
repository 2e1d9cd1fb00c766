//! Inodes and pages of names as bytes, which `io.weir.hadoop.Entry` reads: numbers are big-endian, as `DataInputStream` has them.
//!
//! ```text
//!   entry:  i64 inode │ u8 kind │ i64 bytes │ i32 mode │ i32 uid │ i32 gid │ i64 modified, ns │ u8 copies │ i32 block │ u16 length │ name
//!   page:   u8 is the last │ i32 entries │ entry …
//! ```

use crate::failure::Failure;
use weir_store::{Inode, InodeId, InodePath};
use weir_store_node::client::{Client, ListPage};

/// Adds an entry.
pub fn put(to: &mut Vec<u8>, number: InodeId, inode: &Inode, name: &[u8]) {
    to.extend(number.0.to_be_bytes());
    to.push(inode.kind as u8);
    to.extend(inode.size.to_be_bytes());
    for number in [inode.mode, inode.uid, inode.gid] {
        to.extend(number.to_be_bytes());
    }
    to.extend(inode.modified.0.to_be_bytes());
    to.push(inode.copies);
    to.extend(inode.block.to_be_bytes());
    // At most 255 bytes.
    to.extend((name.len() as u16).to_be_bytes());
    to.extend(name);
}

/// A page of a container's names. What is deleted meanwhile is left out.
///
/// # Errors
/// The metadata service does not answer.
pub fn page(client: &Client, container: InodeId, page: &ListPage) -> Result<Vec<u8>, Failure> {
    let (mut bytes, mut count) = (Vec::with_capacity(page.entries.len() * 64), 0_u32);
    for entry in &page.entries {
        let (number, name) = (entry.record.inode, entry.name.as_bytes());
        match &entry.inode {
            Some(inode) => put(&mut bytes, number, inode, name),
            None => match client.stat_inode(InodePath { inode: number, parent: container }) {
                Ok(stat) => put(&mut bytes, number, &stat.inode, name),
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(error.into()),
            },
        }
        count += 1;
    }
    let mut whole = vec![u8::from(page.is_last)];
    whole.extend(count.to_be_bytes());
    whole.extend(bytes);
    Ok(whole)
}
