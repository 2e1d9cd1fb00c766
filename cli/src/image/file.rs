//! The file of an image: raw bytes, with holes where it has zeroes.

use crate::failure::CommandFailure;
use rustix::fs::{SeekFrom, seek};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

/// What begins so is no raw image: the bytes, what it is, and what makes a raw one of it.
const OTHERS: [(&[u8], &str, &str); 6] = [
    (b"QFI\xfb", "a qcow2 image", "qemu-img convert -O raw FILE RAW"),
    (b"KDMV", "a VMDK image", "qemu-img convert -O raw FILE RAW"),
    (b"vhdxfile", "a VHDX image", "qemu-img convert -O raw FILE RAW"),
    (b"\x1f\x8b\x08", "compressed by gzip", "gzip -dc FILE | weir volume import - NAME --size SIZE"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "zstd -dc FILE | weir volume import - NAME --size SIZE"),
    (b"\xfd7zXZ\0", "compressed by xz", "xz -dc FILE | weir volume import - NAME --size SIZE"),
];
/// To compare with, and to write.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];
/// Bytes of the largest block of a volume; the least hole is so long.
const BLOCK: u64 = 4096;

/// Whether nothing else is in there.
pub fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(ZEROES.len()).all(|chunk| *chunk == ZEROES[..chunk.len()])
}

fn about(what: impl std::fmt::Display, error: &io::Error) -> CommandFailure {
    CommandFailure::new(format!("{what}: {error}"))
}

fn to_stdout(bytes: &[u8]) -> Result<(), CommandFailure> {
    io::stdout().lock().write_all(bytes).map_err(|e| about("standard output", &e))
}

/// Where an image goes.
pub enum ImageTarget {
    /// The standard output takes all bytes in their order: how many it has.
    Stdout(u64),
    /// A file of another name until it is whole.
    File {
        /// What has been written.
        file: File,
        /// Where it lies.
        unfinished: PathBuf,
        /// What it is to be called.
        path: PathBuf,
    },
}

impl ImageTarget {
    /// Makes it; `-` is the standard output.
    ///
    /// # Errors
    /// It is there already and not to be replaced, or cannot be made.
    pub fn create(name: &str, force: bool) -> Result<ImageTarget, CommandFailure> {
        if name == "-" {
            return Ok(ImageTarget::Stdout(0));
        }
        let path = PathBuf::from(name);
        match path.symlink_metadata() {
            Ok(found) if !found.is_file() => {
                return Err(CommandFailure::new(format!("{name} is there and is no file; choose another name")));
            }
            Ok(_) if !force => {
                return Err(CommandFailure::new(format!("{name} is there already; -f replaces it")));
            }
            _ => {}
        }
        let unfinished = PathBuf::from(format!("{name}.partial"));
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&unfinished);
        let file = file.map_err(|e| about(unfinished.display(), &e))?;
        Ok(ImageTarget::File { file, unfinished, path })
    }

    /// What has not been written up to there is zeroes: a hole of a file, bytes of the standard output, before each piece of which `check` is
    /// called.
    ///
    /// # Errors
    /// They cannot be written, or what `check` says.
    pub fn pass(
        &mut self,
        to: u64,
        check: &mut dyn FnMut() -> Result<(), CommandFailure>,
    ) -> Result<(), CommandFailure> {
        let ImageTarget::Stdout(at) = self else { return Ok(()) };
        while *at < to {
            check()?;
            let len = (to - *at).min(ZEROES.len() as u64);
            to_stdout(&ZEROES[..len as usize])?;
            *at += len;
        }
        Ok(())
    }

    /// The next bytes, behind what has been written and [passed](Self::pass); those that were no zeroes.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn write(&mut self, at: u64, bytes: &[u8]) -> Result<u64, CommandFailure> {
        match self {
            ImageTarget::Stdout(has) => {
                to_stdout(bytes)?;
                *has += bytes.len() as u64;
                Ok(bytes.len() as u64)
            }
            ImageTarget::File { file, unfinished, .. } => {
                let mut written = 0;
                let mut from = 0;
                // Runs of blocks that are no zeroes, each in one call.
                while from < bytes.len() {
                    let run = bytes[from..].chunks(BLOCK as usize).take_while(|chunk| !is_zero(chunk));
                    let run: usize = run.map(<[u8]>::len).sum();
                    let data = &bytes[from..from + run];
                    file.write_all_at(data, at + from as u64).map_err(|e| about(unfinished.display(), &e))?;
                    written += run as u64;
                    let zeroes = bytes[from + run..].chunks(BLOCK as usize).take_while(|chunk| is_zero(chunk));
                    from += run + zeroes.map(<[u8]>::len).sum::<usize>();
                }
                Ok(written)
            }
        }
    }

    /// All bytes are there: it is made durable and gets its name.
    ///
    /// # Errors
    /// It cannot be finished.
    pub fn finish(mut self, size: u64) -> Result<(), CommandFailure> {
        match &mut self {
            ImageTarget::Stdout(_) => io::stdout().lock().flush().map_err(|e| about("standard output", &e)),
            ImageTarget::File { file, unfinished, path } => {
                let done = file.set_len(size).and_then(|()| file.sync_all());
                done.map_err(|e| about(unfinished.display(), &e))?;
                std::fs::rename(&*unfinished, &*path).map_err(|e| about(path.display(), &e))
            }
        }
    }
}

impl Drop for ImageTarget {
    /// What was not finished goes; what was has another name by now.
    fn drop(&mut self) {
        if let ImageTarget::File { unfinished, .. } = self {
            let _ = std::fs::remove_file(unfinished);
        }
    }
}

/// The next bytes of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImagePiece {
    /// Where they are in the image.
    pub at: u64,
    /// How many.
    pub len: usize,
    /// Nothing else is among them.
    pub is_zero: bool,
}

/// Where an image comes from.
enum Origin {
    /// It can be read at any place. Up to `data_end` it has no hole.
    Placed { file: File, len: u64, data_end: u64 },
    /// It comes in its order.
    Stream(Box<dyn Read>),
}

/// An image that is read.
pub struct ImageSource {
    name: String,
    origin: Origin,
    at: u64,
}

impl ImageSource {
    /// Opens it; `-` is the standard input.
    ///
    /// # Errors
    /// It is not to be had, or is no raw image.
    pub fn open(name: &str) -> Result<ImageSource, CommandFailure> {
        let source = |name: &str, origin| ImageSource { name: name.to_string(), origin, at: 0 };
        if name == "-" {
            return Ok(source("standard input", Origin::Stream(Box::new(io::stdin()))));
        }
        let wrong = |e: io::Error| about(name, &e);
        let file = File::open(Path::new(name)).map_err(wrong)?;
        let kind = file.metadata().map_err(wrong)?.file_type();
        if kind.is_dir() {
            return Err(CommandFailure::new(format!("{name} is a folder, no image")));
        }
        if !kind.is_file() && !kind.is_block_device() {
            return Ok(source(name, Origin::Stream(Box::new(file))));
        }
        let len = seek(&file, SeekFrom::End(0)).map_err(|e| wrong(e.into()))?;
        let mut first = [0; 8];
        let have = file.read_at(&mut first, 0).map_err(wrong)?;
        raw(name, &first[..have])?;
        Ok(source(name, Origin::Placed { file, len, data_end: 0 }))
    }

    /// Bytes, where that is known before.
    pub fn len(&self) -> Option<u64> {
        match &self.origin {
            Origin::Placed { len, .. } => Some(*len),
            Origin::Stream(_) => None,
        }
    }

    /// Reads the next piece; holes are passed over.
    ///
    /// # Errors
    /// It cannot be read, or is no raw image.
    pub fn next(&mut self, buffer: &mut [u8]) -> Result<Option<ImagePiece>, CommandFailure> {
        let wrong = |e: io::Error| about(&self.name, &e);
        let len = match &mut self.origin {
            Origin::Stream(from) => {
                let len = filled(buffer, |rest, _| from.read(rest)).map_err(wrong)?;
                if self.at == 0 {
                    raw(&self.name, &buffer[..len])?;
                }
                len
            }
            Origin::Placed { file, len, data_end } => {
                if self.at >= *data_end {
                    match seek(&*file, SeekFrom::Data(self.at)) {
                        Ok(data) => {
                            // The piece begins with a block.
                            self.at = self.at.max(data / BLOCK * BLOCK);
                            *data_end = seek(&*file, SeekFrom::Hole(data)).unwrap_or(*len);
                        }
                        // No data from there on.
                        Err(rustix::io::Errno::NXIO) => return Ok(None),
                        // What keeps no holes has none.
                        Err(_) => *data_end = *len,
                    }
                }
                let most = (*len).min(data_end.next_multiple_of(BLOCK)).saturating_sub(self.at);
                let want = buffer.len().min(usize::try_from(most).unwrap_or(usize::MAX));
                let at = self.at;
                let have = filled(&mut buffer[..want], |rest, done| file.read_at(rest, at + done as u64));
                let have = have.map_err(wrong)?;
                if have < want {
                    return Err(CommandFailure::new(format!("{} has become shorter while it was read", self.name)));
                }
                have
            }
        };
        let piece = ImagePiece { at: self.at, len, is_zero: is_zero(&buffer[..len]) };
        self.at += len as u64;
        Ok((len > 0).then_some(piece))
    }
}

/// Reads until the buffer is full or nothing comes any more: `read` gets what is left of it, and how much it has.
fn filled(buffer: &mut [u8], mut read: impl FnMut(&mut [u8], usize) -> io::Result<usize>) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match read(&mut buffer[len..], len) {
            Ok(0) => break,
            Ok(count) => len += count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(len)
}

/// Refuses what begins as an image of another kind does.
fn raw(name: &str, first: &[u8]) -> Result<(), CommandFailure> {
    match OTHERS.iter().find(|(magic, ..)| first.starts_with(magic)) {
        None => Ok(()),
        Some((_, what, how)) => {
            Err(CommandFailure::new(format!("{name} is {what}, and volumes are made of raw images: {how}")))
        }
    }
}
