//! Directories that are made with those on the way to them, all with one owner.

use crate::failure::Failure;
use crate::store::Owner;
use weir_store::{InodeKind, StoreError};
use weir_store_node::client::{Client, ClientError, CreateOptions};

/// What a directory is made with.
pub fn options(Owner { uid, gid }: Owner, mode: u32) -> CreateOptions {
    CreateOptions { kind: InodeKind::Directory, mode, uid, gid, ..CreateOptions::default() }
}

/// The path of what a path is in: `/` for the root.
pub fn parent(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let slash = path[..end].iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    if slash == 0 { b"/" } else { &path[..slash] }
}

/// Makes a directory; with `parents` those on the way too, and it is no error that it is there.
///
/// # Errors
/// It is there, or something else is at its path or on the way.
pub fn make(client: &Client, path: &[u8], parents: bool, options: &CreateOptions) -> Result<(), Failure> {
    if parents && path.iter().all(|byte| *byte == b'/') {
        return Ok(());
    }
    // Another one may delete a parent, or make it, at the same time: once more is enough unless that goes on.
    match client.make(path, options) {
        Err(error) if parents && error.is_not_found() => {
            make(client, parent(path), true, options)?;
            client.make(path, options).or_else(|error| is_there(client, path, error))
        }
        Err(error) if parents => is_there(client, path, error),
        made => made,
    }
    .map_err(Failure::from)
}

/// That a directory is there is no error.
fn is_there(client: &Client, path: &[u8], error: ClientError) -> Result<(), ClientError> {
    if error.store_error() != Some(StoreError::Exists) {
        return Err(error);
    }
    match client.stat(path)?.inode.kind {
        InodeKind::Directory => Ok(()),
        _ => Err(error),
    }
}
