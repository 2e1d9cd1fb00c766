//! Where bytes of a file lie, as `io.weir.hadoop.Locations` reads it: numbers are big-endian, as `DataInputStream` has them.
//!
//! ```text
//!   i32 locations │ location …
//!   location:  i64 offset │ i64 bytes │ u8 copies │ copy …
//!   copy:      u16 length │ host │ u16 length │ target
//! ```

use crate::failure::Failure;
use std::collections::BTreeSet;
use weir_store_node::client::{Client, FilePart, Operator as _, host_of};

/// The host of what lies in no drive, or not known where.
const HERE: &str = "localhost";

fn put_text(to: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).unwrap_or(0);
    to.extend(length.to_be_bytes());
    to.extend(&text.as_bytes()[..length.into()]);
}

/// A location without its copies, of which there are so many: at most 4.
fn put_bytes(to: &mut Vec<u8>, offset: u64, bytes: u64, copies: usize) {
    to.extend(offset.to_be_bytes());
    to.extend(bytes.to_be_bytes());
    to.push(copies as u8);
}

fn put_copy(to: &mut Vec<u8>, host: &str, target: &str) {
    put_text(to, host);
    put_text(to, target);
}

/// The locations of a file's bytes. Where all drives are on one host there is one, and the file is not looked at.
///
/// # Errors
/// Nothing has that path, or the metadata service does not answer.
pub fn find(client: &Client, path: &[u8], offset: u64, bytes: u64) -> Result<Vec<u8>, Failure> {
    let namespaces = client.namespaces()?;
    let hosts: BTreeSet<&str> = namespaces.iter().map(|namespace| host_of(&namespace.target)).collect();
    let alone = hosts.first().copied().filter(|_| hosts.len() == 1);
    let parts = match alone {
        Some(_) => vec![FilePart { offset, length: bytes, targets: Vec::new() }],
        None => client.parts(path, offset, bytes)?,
    };
    let mut found = Vec::new();
    found.extend(u32::try_from(parts.len()).unwrap_or(0).to_be_bytes());
    for part in &parts {
        put_bytes(&mut found, part.offset, part.length, part.targets.len().max(1));
        part.targets.iter().for_each(|target| put_copy(&mut found, host_of(target), target));
        if part.targets.is_empty() {
            let host = alone.unwrap_or(HERE);
            put_copy(&mut found, host, host);
        }
    }
    Ok(found)
}
