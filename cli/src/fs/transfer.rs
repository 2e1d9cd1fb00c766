//! `put`, `get`, `cp` and `cat`: what moves bytes. A copy gets its name when it is whole.

use super::args::CopyArgs;
use super::files::Files;
use super::names::{Destination, last, own};
use super::operands::{Found, Operands};
use super::path::{folder_of, join, name_of, shown};
use super::progress::CopyProgress;
use crate::failure::CommandFailure;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weir_store::{Content, Inode, InodeKind, NAME_BYTES_MAX, SetAttributes, StoreError, UnixNanos};
use weir_store_node::client::{ClientError, CreateOptions};

/// Moved at once.
const CHUNK: usize = 1 << 20;
/// A file of at most so many bytes is made in one step: it lies in the metadata.
const SMALL: usize = 2048;

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    pub files: u64,
    pub folders: u64,
    pub links: u64,
    pub bytes: u64,
}

/// Why something was not copied, as the user reads it.
type Failed = String;

/// A copy that is under way.
struct Transfer<'a> {
    args: &'a CopyArgs,
    progress: CopyProgress,
    copied: Copied,
    umask: u32,
}

impl<'a> Transfer<'a> {
    fn new(args: &'a CopyArgs) -> Self {
        Transfer { args, progress: CopyProgress::new(), copied: Copied::default(), umask: super::names::umask() }
    }

    /// The bytes of one file.
    fn bytes(&mut self, from: &mut dyn Read, to: &mut dyn Write, first: &[u8], what: &str) -> Result<(), Failed> {
        to.write_all(first).map_err(|e| e.to_string())?;
        self.progress.bytes(first.len() as u64);
        self.copied.bytes += first.len() as u64;
        let mut buffer = vec![0; CHUNK];
        loop {
            let count = match from.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(about(what, &e)),
            };
            to.write_all(&buffer[..count]).map_err(|e| e.to_string())?;
            self.progress.bytes(count as u64);
            self.copied.bytes += count as u64;
        }
    }

    /// A file of the store from whatever has its bytes.
    fn store_file(
        &mut self,
        from: &mut dyn Read,
        what: &str,
        to: &Found,
        attributes: &Attributes,
    ) -> Result<(), Failed> {
        let path = &to.at.path;
        let exists = || format!("{}: it exists already; -f replaces it", shown(path));
        if !self.args.force && to.files.stat(path, false).is_ok() {
            return Err(exists());
        }
        let (classes, copies) = (self.args.class.clone(), self.args.copies.unwrap_or_default());
        let options = CreateOptions { mode: attributes.mode, classes, copies, ..own() };
        let mut first = Vec::with_capacity(SMALL + 1);
        Read::take(&mut *from, SMALL as u64 + 1).read_to_end(&mut first).map_err(|e| about(what, &e))?;
        if first.len() <= SMALL {
            let options = CreateOptions { exclusive: !self.args.force, ..options };
            to.files.put_small(path, &first, &options).map_err(|e| match e.store_error() {
                Some(StoreError::Exists) if !self.args.force => exists(),
                _ => e.to_string(),
            })?;
            self.copied.bytes += first.len() as u64;
        } else {
            let unfinished = unfinished(path);
            let mut write = |copy: &mut Self| {
                let mut sink = to.files.writer(&unfinished, &options).map_err(text)?;
                copy.bytes(from, &mut *sink, &first, what)?;
                sink.finish().map_err(text)?;
                to.files.rename(&unfinished, path, copy.args.force).map_err(|e| match e.store_error() {
                    Some(StoreError::Exists) if !copy.args.force => exists(),
                    _ => e.to_string(),
                })
            };
            write(self).inspect_err(|_| {
                // It may never have been made; the first error is the one to tell.
                let _ = to.files.remove(&unfinished, false);
            })?;
        }
        self.copied.files += 1;
        match attributes.modified.filter(|_| self.args.preserve) {
            None => Ok(()),
            Some(modified) => {
                let set =
                    SetAttributes { modified: Some(modified), mode: Some(attributes.mode), ..SetAttributes::default() };
                to.files.set(path, set).map_err(text)
            }
        }
    }

    /// Permissions that a copy has.
    fn mode(&self, of: u32) -> u32 {
        if self.args.preserve { of & 0o7777 } else { of & 0o777 & !self.umask }
    }
}

/// What a copy has of the original but its bytes.
struct Attributes {
    mode: u32,
    modified: Option<UnixNanos>,
}

fn text(e: ClientError) -> Failed {
    e.to_string()
}

/// Errors of the store name their paths themselves.
fn about(what: &str, e: &io::Error) -> Failed {
    if e.get_ref().is_some_and(|inner| inner.is::<ClientError>()) { e.to_string() } else { format!("{what}: {e}") }
}

/// The name of a copy that is not whole yet, in the same folder.
pub fn unfinished(path: &[u8]) -> Vec<u8> {
    const END: &[u8] = b"._COPYING_";
    let name = name_of(path).unwrap_or_default();
    let kept = name.len().min(NAME_BYTES_MAX - END.len());
    join(folder_of(path), &[&name[..kept], END].concat())
}

fn is_standard(path: &OsStr) -> bool {
    path == "-"
}

/// `weir fs put`.
pub fn put(operands: &mut Operands<'_>, args: &CopyArgs) -> Result<Copied, CommandFailure> {
    let (from, to) = last(&args.paths)?;
    let to = Destination::of(operands.one(to)?, from.len())?;
    let mut copy = Transfer::new(args);
    for source in from {
        let target = |name: &[u8]| Found { files: to.found.files.clone(), at: to.found.at.with(to.path(name)) };
        let put = if is_standard(source) {
            if to.is_folder {
                Err(format!(
                    "{}: it is a folder; write the name that the standard input is to have",
                    shown(&to.found.at.path)
                ))
            } else {
                copy.progress.file("standard input".into(), None);
                let attributes = Attributes { mode: copy.mode(0o666), modified: None };
                copy.store_file(&mut io::stdin().lock(), "standard input", &target(b""), &attributes)
            }
        } else {
            let source = Path::new(source);
            match local_name(source) {
                Ok(name) => {
                    copy.put_tree(operands, source, &target(&name));
                    Ok(())
                }
                Err(e) => Err(e),
            }
        };
        if let Err(why) = put {
            operands.fail(why);
        }
    }
    copy.progress.clear();
    Ok(copy.copied)
}

/// The last name of a path of this machine, also of `.` and `..`.
fn local_name(path: &Path) -> Result<Vec<u8>, Failed> {
    let named = path.file_name().map(|name| name.as_bytes().to_vec());
    let whole = || path.canonicalize().ok()?.file_name().map(|name| name.as_bytes().to_vec());
    match named.or_else(whole) {
        Some(name) => Ok(name),
        None => Err(format!("{}: it has no name of its own; write what is in it", path.display())),
    }
}

impl Transfer<'_> {
    /// A file or folder of this machine, and all that is in it.
    fn put_tree(&mut self, operands: &mut Operands<'_>, source: &Path, target: &Found) {
        let mut left = vec![(source.to_path_buf(), target.at.path.clone(), true)];
        while let Some((from, to, is_named)) = left.pop() {
            let to = Found { files: target.files.clone(), at: target.at.with(to) };
            match self.put_one(&from, &to, is_named) {
                Ok(below) => left.extend(below.into_iter().rev().map(|(from, to)| (from, to, false))),
                Err(why) => operands.fail(why),
            }
        }
    }

    /// One of them; of a folder what is in it, and where it goes. Links lead on only where they were named.
    fn put_one(&mut self, from: &Path, to: &Found, is_named: bool) -> Result<Vec<(PathBuf, Vec<u8>)>, Failed> {
        let shown_from = from.display().to_string();
        let local = |e: io::Error| format!("{shown_from}: {e}");
        let meta = if is_named { fs::metadata(from) } else { fs::symlink_metadata(from) }.map_err(local)?;
        if meta.is_symlink() {
            let target = fs::read_link(from).map_err(local)?;
            self.link(target.as_os_str().as_bytes(), to)?;
            return Ok(Vec::new());
        }
        if meta.is_dir() {
            if !self.args.recursive {
                return Err(format!("{shown_from}: it is a folder; -r copies it with all that is in it"));
            }
            to.files.make_folder(&to.at.path, true, self.mode(meta.mode())).map_err(text)?;
            self.copied.folders += 1;
            let mut below = Vec::new();
            for entry in fs::read_dir(from).map_err(local)? {
                let name = entry.map_err(local)?.file_name();
                below.push((from.join(&name), join(&to.at.path, name.as_bytes())));
            }
            below.sort();
            return Ok(below);
        }
        if !meta.is_file() && !is_named {
            return Err(format!("{shown_from}: it is no file, folder or link, and was left out"));
        }
        let mut file = fs::File::open(from).map_err(local)?;
        self.progress.file(shown_from.clone(), meta.is_file().then_some(meta.len()));
        let attributes = Attributes { mode: self.mode(meta.mode()), modified: unix_nanos(&meta) };
        self.store_file(&mut file, &shown_from, to, &attributes).map(|()| Vec::new())
    }

    /// A symbolic link in the store.
    fn link(&mut self, target: &[u8], to: &Found) -> Result<(), Failed> {
        let path = &to.at.path;
        match to.files.symlink(target, path) {
            Ok(()) => {}
            Err(e) if self.args.force && e.store_error() == Some(StoreError::Exists) => {
                let unfinished = unfinished(path);
                to.files.symlink(target, &unfinished).map_err(text)?;
                to.files.rename(&unfinished, path, true).map_err(|e| {
                    // The first error is the one to tell.
                    let _ = to.files.remove(&unfinished, false);
                    text(e)
                })?;
            }
            Err(e) => return Err(text(e)),
        }
        self.copied.links += 1;
        Ok(())
    }
}

fn unix_nanos(meta: &fs::Metadata) -> Option<UnixNanos> {
    let since = meta.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_nanos()).ok().map(UnixNanos)
}

/// `weir fs cp`.
pub fn cp(operands: &mut Operands<'_>, args: &CopyArgs) -> Result<Copied, CommandFailure> {
    let (from, to) = last(&args.paths)?;
    let from = operands.expand(from)?;
    let to = Destination::of(operands.one(to)?, from.len())?;
    let mut copy = Transfer::new(args);
    for source in from {
        let name = name_of(&source.at.path).unwrap_or_default();
        if name.is_empty() && to.is_folder {
            operands.fail("/: it has no name of its own; write what is in it");
            continue;
        }
        let target = Found { files: to.found.files.clone(), at: to.found.at.with(to.path(name)) };
        let within = [source.at.path.as_slice(), b"/"].concat();
        let is_same = std::rc::Rc::ptr_eq(&source.files, &target.files);
        if is_same && (target.at.path == source.at.path || target.at.path.starts_with(&within)) {
            operands.fail(format_args!("{}: it cannot be copied onto or into itself", shown(&source.at.path)));
            continue;
        }
        let mut left = vec![(source.at.path.clone(), target.at.path.clone(), true)];
        while let Some((from, to, is_named)) = left.pop() {
            let from = Found { files: source.files.clone(), at: source.at.with(from) };
            let to = Found { files: target.files.clone(), at: target.at.with(to) };
            match copy.cp_one(&from, &to, is_named) {
                Ok(below) => left.extend(below.into_iter().rev().map(|(from, to)| (from, to, false))),
                Err(why) => operands.fail(why),
            }
        }
    }
    copy.progress.clear();
    Ok(copy.copied)
}

impl Transfer<'_> {
    fn cp_one(&mut self, from: &Found, to: &Found, is_named: bool) -> Result<Below<Vec<u8>>, Failed> {
        let path = &from.at.path;
        let inode = from.files.stat(path, is_named).map_err(text)?;
        if let Content::Target(target) = &inode.content {
            self.link(target, to)?;
            return Ok(Vec::new());
        }
        if inode.kind.is_container() {
            self.may_go_down(path)?;
            to.files.make_folder(&to.at.path, true, self.mode(inode.mode)).map_err(text)?;
            self.copied.folders += 1;
            return below(&*from.files, path, |name| join(&to.at.path, name));
        }
        let mut reader = from.files.reader(path).map_err(text)?;
        self.progress.file(shown(path), Some(inode.size));
        let attributes = Attributes { mode: self.mode(inode.mode), modified: Some(inode.modified) };
        self.store_file(&mut reader, &shown(path), to, &attributes).map(|()| Vec::new())
    }

    fn may_go_down(&self, path: &[u8]) -> Result<(), Failed> {
        if self.args.recursive {
            return Ok(());
        }
        Err(format!("{}: it is a folder; -r copies it with all that is in it", shown(path)))
    }
}

/// Paths in a folder of the store, and where each of them goes.
type Below<T> = Vec<(Vec<u8>, T)>;

/// What is in a folder of the store, and where it goes.
fn below<T>(files: &dyn Files, path: &[u8], to: impl Fn(&[u8]) -> T) -> Result<Below<T>, Failed> {
    let entries = files.list(path).map_err(text)?;
    entries.map(|entry| entry.map(|e| (join(path, &e.name), to(&e.name))).map_err(text)).collect()
}

/// `weir fs get`.
pub fn get(operands: &mut Operands<'_>, args: &CopyArgs) -> Result<Copied, CommandFailure> {
    let (from, to) = last(&args.paths)?;
    let from = operands.expand(from)?;
    let mut copy = Transfer::new(args);
    if is_standard(to) {
        for source in from {
            if let Err(why) = copy.write_out(&source, &mut io::stdout().lock()) {
                operands.fail(why);
            }
        }
        copy.progress.clear();
        return Ok(copy.copied);
    }
    let to = Path::new(to);
    let is_folder = to.is_dir();
    let ends_in_slash = to.as_os_str().as_bytes().ends_with(b"/");
    if !is_folder && (from.len() > 1 || ends_in_slash) {
        return Err(CommandFailure::new(format_args!(
            "{}: it is no folder of this machine; make it first",
            to.display()
        )));
    }
    for source in from {
        let target = match name_of(&source.at.path) {
            Some(name) if is_folder => to.join(OsStr::from_bytes(name)),
            _ => to.to_path_buf(),
        };
        let mut left = vec![(source.at.path.clone(), target, true)];
        while let Some((from, to, is_named)) = left.pop() {
            let from = Found { files: source.files.clone(), at: source.at.with(from) };
            match copy.get_one(&from, &to, is_named) {
                Ok(below) => left.extend(below.into_iter().rev().map(|(from, to)| (from, to, false))),
                Err(why) => operands.fail(why),
            }
        }
    }
    copy.progress.clear();
    Ok(copy.copied)
}

impl Transfer<'_> {
    fn get_one(&mut self, from: &Found, to: &Path, is_named: bool) -> Result<Below<PathBuf>, Failed> {
        let path = &from.at.path;
        let inode = from.files.stat(path, is_named).map_err(text)?;
        let local = |e: io::Error| format!("{}: {e}", to.display());
        let exists = || format!("{}: it exists already; -f replaces it", to.display());
        if let Content::Target(target) = &inode.content {
            if self.args.force && to.is_symlink() {
                fs::remove_file(to).map_err(local)?;
            }
            std::os::unix::fs::symlink(OsStr::from_bytes(target), to).map_err(|e| match e.kind() {
                io::ErrorKind::AlreadyExists => exists(),
                _ => local(e),
            })?;
            self.copied.links += 1;
            return Ok(Vec::new());
        }
        if inode.kind.is_container() {
            self.may_go_down(path)?;
            match fs::create_dir(to) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && to.is_dir() => {}
                made => made.map_err(local)?,
            }
            self.copied.folders += 1;
            return below(&*from.files, path, |name| to.join(OsStr::from_bytes(name)));
        }
        let there = fs::symlink_metadata(to).ok();
        if there.is_some() && !self.args.force && !to.metadata().is_ok_and(|meta| is_stream(&meta)) {
            return Err(exists());
        }
        let mut reader = from.files.reader(path).map_err(text)?;
        self.progress.file(shown(path), Some(inode.size));
        if to.metadata().is_ok_and(|meta| is_stream(&meta)) {
            let mut file = fs::File::options().write(true).open(to).map_err(local)?;
            self.bytes(&mut reader, &mut file, &[], &shown(path)).map_err(|e| format!("{}: {e}", to.display()))?;
        } else {
            self.get_file(&mut reader, &inode, path, to)?;
        }
        self.copied.files += 1;
        Ok(Vec::new())
    }

    fn get_file(&mut self, reader: &mut dyn Read, inode: &Inode, path: &[u8], to: &Path) -> Result<(), Failed> {
        let local = |e: io::Error| format!("{}: {e}", to.display());
        if to.is_dir() {
            return Err(format!("{}: it is a folder of this machine", to.display()));
        }
        let mut name = std::ffi::OsString::from(".weir-get-");
        name.push(std::process::id().to_string());
        let unfinished = to.with_file_name(name);
        let mut write = || {
            // With the permissions from the start on: others must not read it meanwhile.
            let mode = inode.mode & 0o777;
            let options = || fs::File::options().write(true).create(true).truncate(true).mode(mode).open(&unfinished);
            let mut file = options().map_err(local)?;
            let begun = self.copied.bytes;
            self.bytes(reader, &mut LocalFile(&mut file, to), &[], &shown(path))?;
            let got = self.copied.bytes - begun;
            if got != inode.size {
                let size = inode.size;
                tracing::debug!("{}: {got} bytes, it had {size} when it was looked at", shown(path));
            }
            if self.args.preserve {
                file.set_permissions(fs::Permissions::from_mode(inode.mode & 0o7777)).map_err(local)?;
                let at: SystemTime = UNIX_EPOCH + Duration::from_nanos(inode.modified.0);
                file.set_modified(at).map_err(local)?;
            }
            fs::rename(&unfinished, to).map_err(local)
        };
        write().inspect_err(|_| {
            // The first error is the one to tell.
            let _ = fs::remove_file(&unfinished);
        })
    }

    /// A file to the standard output.
    fn write_out(&mut self, from: &Found, out: &mut dyn Write) -> Result<(), Failed> {
        let path = &from.at.path;
        let inode = from.files.stat(path, true).map_err(text)?;
        if matches!(inode.kind, InodeKind::Directory | InodeKind::Table) {
            return Err(ClientError::from(StoreError::IsDirectory).at(path).to_string());
        }
        let mut reader = from.files.reader(path).map_err(text)?;
        self.progress.file(shown(path), Some(inode.size));
        let written = self.bytes(&mut reader, &mut LocalFile(out, Path::new("standard output")), &[], &shown(path));
        self.copied.files += 1;
        written
    }
}

/// Devices and pipes are written to, not replaced.
fn is_stream(meta: &fs::Metadata) -> bool {
    !meta.is_file() && !meta.is_dir()
}

/// Its errors name it.
struct LocalFile<'a, W: Write + ?Sized>(&'a mut W, &'a Path);

impl<W: Write + ?Sized> Write for LocalFile<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", self.1.display())))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", self.1.display())))
    }
}

/// `weir fs cat`.
pub fn cat(operands: &mut Operands<'_>) -> Result<(), CommandFailure> {
    let args = CopyArgs {
        recursive: false,
        force: false,
        preserve: false,
        class: Vec::new(),
        copies: None,
        paths: Vec::new(),
    };
    let mut copy = Transfer { progress: CopyProgress::hidden(), ..Transfer::new(&args) };
    let mut out = io::stdout().lock();
    for one in operands.expanded()? {
        if let Err(why) = copy.write_out(&one, &mut out) {
            operands.fail(why);
        }
    }
    Ok(())
}
