//! What the record's programs found there is made before the replay begins.

use super::super::super::path::{folder_of, join, shown};
use super::args::ReplayArgs;
use super::content;
use super::load::{Prepared, Recording};
use std::io::Write;
use weir_store::InodeKind;
use weir_store_node::client::{Client, ClientError, CreateOptions};

/// Bytes that are written at once.
const PIECE: usize = 1 << 20;

/// Makes what is missing.
///
/// # Errors
/// Something else is there, or it cannot be made.
pub fn make(client: &Client, recording: &Recording, options: &CreateOptions, args: &ReplayArgs) -> Result<(), String> {
    // In the order of their paths: directories come before what is in them.
    for (path, prepared) in &recording.prepared {
        let about = |e: ClientError| format!("{}, which the record found there: {}", shown(path), e.reason());
        match client.stat_link(path) {
            Ok(found) if found.inode.kind != prepared.kind => {
                return Err(format!("{}: something of another kind is there than when it was recorded", shown(path)));
            }
            Ok(found) if prepared.kind == InodeKind::File && found.inode.size != prepared.size => {
                let (is, was) = (found.inode.size, prepared.size);
                return Err(format!(
                    "{}: it has {is} bytes, and {was} when it was recorded; remove it, or replay on another store",
                    shown(path)
                ));
            }
            Ok(_) => {}
            Err(e) if e.is_not_found() => make_one(client, (path, prepared), options, args.seed).map_err(about)?,
            Err(e) => return Err(about(e)),
        }
    }
    Ok(())
}

fn make_one(
    client: &Client,
    (path, prepared): (&[u8], &Prepared),
    options: &CreateOptions,
    seed: u64,
) -> Result<(), ClientError> {
    let options = CreateOptions { parents: true, kind: prepared.kind, ..options.clone() };
    match prepared.kind {
        InodeKind::File => write(client, path, prepared.size, &options, seed),
        InodeKind::Directory => {
            client.make_directory(path, true, 0o755)?;
            fill_directory(client, path, prepared.size, &options)
        }
        InodeKind::Symlink => {
            client.make_directory(folder_of(path), true, 0o755)?;
            client.symlink(&prepared.target, path)
        }
        InodeKind::Multifile | InodeKind::Table => client.make(path, &options),
    }
}

/// As many names as were listed there.
fn fill_directory(client: &Client, path: &[u8], names: u64, options: &CreateOptions) -> Result<(), ClientError> {
    let options = CreateOptions { kind: InodeKind::File, parents: false, ..options.clone() };
    (0..names).try_for_each(|number| client.make(join(path, format!("replay-{number:08}").as_bytes()), &options))
}

fn write(client: &Client, path: &[u8], size: u64, options: &CreateOptions, seed: u64) -> Result<(), ClientError> {
    let mut writer = client.writer(path, options)?;
    let mut bytes = vec![0; PIECE];
    let mut at = 0;
    while at < size {
        let n = (size - at).min(PIECE as u64) as usize;
        content::fill(seed, path, at, &mut bytes[..n]);
        writer.write_all(&bytes[..n]).map_err(|e| client_error(path, &e))?;
        at += n as u64;
    }
    writer.finish()
}

/// What a stream said.
fn client_error(path: &[u8], e: &std::io::Error) -> ClientError {
    let inner = e.get_ref().and_then(|inner| inner.downcast_ref::<ClientError>()).cloned();
    inner.unwrap_or_else(|| {
        ClientError::new(weir_store_node::client::ClientErrorKind::Unreachable(e.to_string())).at(path)
    })
}
