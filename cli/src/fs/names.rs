//! `mv`, `rm`, `mkdir`, `touch` and `ln`: what changes names and moves no bytes.

use super::operands::{Found, Operands};
use super::path::{join, name_of, shown};
use crate::failure::CommandFailure;
use std::ffi::OsString;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_store::{SetAttributes, StoreError, UnixNanos};
use weir_store_node::client::{ClientError, CreateOptions};

/// Where several things go, or one: into a folder that is there, else under that name.
#[derive(Clone)]
pub struct Destination {
    pub found: Found,
    pub is_folder: bool,
}

impl Destination {
    /// Of what `count` operands go to.
    ///
    /// # Errors
    /// Several, or a path that ends in `/`, need a folder that is there.
    pub fn of(found: Found, count: usize) -> Result<Self, CommandFailure> {
        let is_folder = match found.files.stat(&found.at.path, true) {
            Ok(inode) => inode.kind.is_container(),
            Err(e) if e.is_not_found() => false,
            Err(e) => return Err(CommandFailure::new(e)),
        };
        if !is_folder && (count > 1 || found.at.is_folder) {
            let path = shown(&found.at.path);
            return Err(CommandFailure::new(format_args!("{path}: it is no folder; make it with weir fs mkdir")));
        }
        Ok(Destination { found, is_folder })
    }

    /// Where something of that name goes.
    pub fn path(&self, name: &[u8]) -> Vec<u8> {
        if self.is_folder { join(&self.found.at.path, name) } else { self.found.at.path.clone() }
    }
}

/// The last operand, and those before it. Clap has seen that there are two.
pub fn last(paths: &[OsString]) -> Result<(&[OsString], &OsString), CommandFailure> {
    match paths.split_last() {
        Some((last, others)) if !others.is_empty() => Ok((others, last)),
        _ => Err(CommandFailure::usage("write what, and where to")),
    }
}

/// How many were done.
pub type Done = u64;

/// `weir fs mv`.
pub fn mv(operands: &mut Operands<'_>, paths: &[OsString], force: bool) -> Result<Done, CommandFailure> {
    let (from, to) = last(paths)?;
    let from = operands.expand(from)?;
    let to = operands.one(to)?;
    let to = Destination::of(to, from.len())?;
    let mut done = 0;
    for one in from {
        if !Rc::ptr_eq(&one.files, &to.found.files) {
            let what = "nothing is moved from one store to another; use weir fs cp, then weir fs rm";
            operands.fail(format_args!("{}: {what}", shown(&one.at.path)));
            continue;
        }
        let Some(name) = name_of(&one.at.path) else {
            operands.fail(ClientError::from(StoreError::Root).at(&one.at.path));
            continue;
        };
        let target = to.path(name);
        match one.files.rename(&one.at.path, &target, force) {
            Ok(()) => done += 1,
            Err(e) if !force && e.store_error() == Some(StoreError::Exists) => {
                operands.fail(format_args!("{}: it exists already; -f replaces it", shown(&target)));
            }
            Err(e) => operands.fail(e),
        }
    }
    Ok(done)
}

/// `weir fs rm`.
pub fn rm(operands: &mut Operands<'_>, recursive: bool, force: bool) -> Result<Done, CommandFailure> {
    let mut done = 0;
    for one in all_but_missing(operands, force)? {
        let path = &one.at.path;
        let removed = match one.files.stat(path, false) {
            Ok(inode) if inode.kind.is_container() && !recursive => {
                let what = format!(
                    "{}: it is a {}; -r removes it with all that is in it",
                    shown(path),
                    super::text::kind(inode.kind)
                );
                operands.fail(what);
                continue;
            }
            Ok(_) => one.files.remove(path, recursive),
            Err(e) => Err(e),
        };
        match removed {
            Ok(()) => done += 1,
            Err(e) if force && e.is_not_found() => {}
            Err(e) => operands.fail(e),
        }
    }
    Ok(done)
}

/// With `force` a pattern that meets nothing is no error either.
fn all_but_missing(operands: &mut Operands<'_>, force: bool) -> Result<Vec<Found>, CommandFailure> {
    if !force {
        return operands.expanded();
    }
    let mut all = Vec::new();
    for one in operands.plain()? {
        match super::glob::expand(&*one.files, &one.at.path) {
            Ok(paths) => all.extend(paths.into_iter().map(|p| Found { files: one.files.clone(), at: one.at.with(p) })),
            Err(e) => operands.fail(e),
        }
    }
    Ok(all)
}

/// `weir fs mkdir`.
pub fn mkdir(operands: &mut Operands<'_>, parents: bool, mode: u32) -> Result<Done, CommandFailure> {
    let mut done = 0;
    for one in operands.plain()? {
        match one.files.make_folder(&one.at.path, parents, mode) {
            Ok(()) => done += 1,
            Err(e) => operands.fail(e),
        }
    }
    Ok(done)
}

/// `weir fs touch`.
pub fn touch(operands: &mut Operands<'_>, create: bool) -> Result<Done, CommandFailure> {
    let mut done = 0;
    for one in operands.plain()? {
        let path = &one.at.path;
        let now = SetAttributes { modified: Some(now()), ..SetAttributes::default() };
        let touched = match one.files.set(path, now) {
            Err(e) if e.is_not_found() && !create => continue,
            Err(e) if e.is_not_found() => {
                let options = CreateOptions { mode: 0o644 & !umask(), exclusive: true, ..own() };
                match one.files.put_small(path, b"", &options) {
                    // Made by another client meanwhile.
                    Err(e) if e.store_error() == Some(StoreError::Exists) => Ok(()),
                    made => made,
                }
            }
            set => set,
        };
        match touched {
            Ok(()) => done += 1,
            Err(e) => operands.fail(e),
        }
    }
    Ok(done)
}

/// `weir fs ln -s`.
pub fn ln(
    operands: &mut Operands<'_>,
    target: &OsString,
    link: &OsString,
    force: bool,
) -> Result<Done, CommandFailure> {
    use std::os::unix::ffi::OsStrExt;
    let to = Destination::of(operands.one(link)?, 1)?;
    let target = target.as_bytes();
    let name = name_of(target.strip_suffix(b"/").unwrap_or(target)).unwrap_or(b"root");
    let path = to.path(name);
    let files = &to.found.files;
    let made = match files.symlink(target, &path) {
        Err(e) if force && e.store_error() == Some(StoreError::Exists) => {
            let unfinished = super::transfer::unfinished(&path);
            let replaced = files.symlink(target, &unfinished).and_then(|()| files.rename(&unfinished, &path, true));
            replaced.inspect_err(|_| {
                // The first error is the one to tell.
                let _ = files.remove(&unfinished, false);
            })
        }
        made => made,
    };
    match made {
        Ok(()) => Ok(1),
        Err(e) => {
            operands.fail(e);
            Ok(0)
        }
    }
}

/// What this process makes is its user's.
pub fn own() -> CreateOptions {
    CreateOptions {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        ..CreateOptions::default()
    }
}

/// Permissions that this process's new files do not have.
pub fn umask() -> u32 {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.bits()
}

fn now() -> UnixNanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixNanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
