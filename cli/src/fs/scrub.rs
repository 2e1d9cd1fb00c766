//! `weir fs scrub`: whether all copies of files have the bytes that were written.

use super::args::ScrubArgs;
use super::operands::{Found, Operands};
use super::path::{join, shown};
use super::progress::CopyProgress;
use super::text::human;
use crate::failure::CommandFailure;
use crate::output;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use weir_store::InodeKind;
use weir_store_node::client::{CopyFault, CopyFinding, ScrubDrives};

/// What was found, in all.
#[derive(Default)]
struct Sums {
    files: u64,
    blocks: u64,
    bytes: u64,
    unsettled: u64,
    short: u64,
    /// Bad copies with the path of their file, and whether they were written anew.
    copies: Vec<(Vec<u8>, CopyFinding, bool)>,
}

/// Reads all copies of the files at and below the operands.
///
/// # Errors
/// A copy is bad or was, or an operand is none; what could not be read is said at the end.
pub fn scrub(operands: &mut Operands<'_>, args: &ScrubArgs, json: bool) -> Result<(), CommandFailure> {
    let (mut sums, mut progress) = (Sums::default(), CopyProgress::new());
    let mut drives: BTreeMap<Option<String>, ScrubDrives> = BTreeMap::new();
    for one in operands.or_root(&args.paths)? {
        let drives = drives.entry(one.at.store.clone()).or_default();
        let mut next = vec![one.at.path.clone()];
        while let Some(path) = next.pop() {
            if let Err(e) = at(&one, &path, args.repair, (drives, &mut sums, &mut progress, &mut next)) {
                operands.fail(e);
            }
        }
    }
    progress.clear();
    match json {
        true => output::json(&value(&sums))?,
        false => output::raw(&text(&sums))?,
    }
    let (left, repaired) = (sums.count(false), sums.count(true));
    match (left, repaired) {
        (0, 0) => {}
        (0, _) => operands.fail(format_args!("{repaired} bad copies were written anew; none is left")),
        (_, 0) if !args.repair => {
            operands.fail(format_args!("{left} copies are bad; --repair writes them anew where another copy is good"));
        }
        _ => operands.fail(format_args!("{repaired} bad copies were written anew, {left} are left")),
    }
    Ok(())
}

type Parts<'a> = (&'a mut ScrubDrives, &'a mut Sums, &'a mut CopyProgress, &'a mut Vec<Vec<u8>>);

/// A file, or the names of a folder, which come next.
fn at(
    one: &Found,
    path: &[u8],
    repairs: bool,
    (drives, sums, progress, next): Parts<'_>,
) -> Result<(), weir_store_node::client::ClientError> {
    let inode = one.files.stat(path, false)?;
    if inode.kind.is_container() {
        let begin = next.len();
        for entry in one.files.list(path)? {
            next.push(join(path, &entry?.name));
        }
        // In the order of their names.
        next[begin..].reverse();
        return Ok(());
    }
    if inode.kind != InodeKind::File {
        return Ok(());
    }
    progress.file(shown(path), Some(inode.size * u64::from(inode.copies.max(1))));
    let found = one.files.scrub(path, repairs, drives, &mut |bytes| progress.bytes(bytes))?;
    sums.files += 1;
    sums.blocks += found.blocks;
    sums.bytes += found.bytes;
    sums.unsettled += found.unsettled;
    sums.short += found.short;
    let all = found.findings.into_iter().map(|copy| (copy, false));
    let all = all.chain(found.repaired.into_iter().map(|copy| (copy, true)));
    sums.copies.extend(all.map(|(copy, repaired)| (path.to_vec(), copy, repaired)));
    Ok(())
}

impl Sums {
    fn count(&self, repaired: bool) -> usize {
        self.copies.iter().filter(|(.., one)| *one == repaired).count()
    }
}

fn text(sums: &Sums) -> Vec<u8> {
    let mut out = String::new();
    for (path, copy, repaired) in &sums.copies {
        let CopyFinding { offset, length, namespace, target, fault } = copy;
        let done = if *repaired { "repaired" } else { "bad" };
        out += &format!(
            "{done}  {}: {length} bytes from {offset} on namespace {namespace} [{target}]: {fault}\n",
            shown(path)
        );
    }
    out += &format!("{} files, {} blocks, {} read\n", sums.files, sums.blocks, human(sums.bytes));
    if sums.unsettled > 0 {
        out += &format!("{} blocks were being written: nothing can be said of them\n", sums.unsettled);
    }
    if sums.short > 0 {
        out += &format!("{} blocks have fewer copies than their files ask for\n", sums.short);
    }
    out.into_bytes()
}

fn value(sums: &Sums) -> Value {
    let one = |(path, copy, repaired): &(Vec<u8>, CopyFinding, bool)| {
        let (fault, why) = match &copy.fault {
            CopyFault::Bytes => ("bytes", None),
            CopyFault::Unreadable(why) => ("unreadable", Some(why)),
        };
        json!({
            "path": String::from_utf8_lossy(path), "offset": copy.offset, "length": copy.length,
            "namespace": copy.namespace.0, "target": copy.target, "fault": fault, "why": why, "repaired": repaired,
        })
    };
    json!({
        "files": sums.files, "blocks": sums.blocks, "bytes": sums.bytes, "unsettled_blocks": sums.unsettled,
        "short_blocks": sums.short, "copies": sums.copies.iter().map(one).collect::<Vec<_>>(),
    })
}
