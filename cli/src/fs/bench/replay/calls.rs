//! Each call, made again.

use super::load::RecordedStep;
use super::run::{Run, lock};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_store::{EntryName, InodeKind, SetAttributes};
use weir_store_node::client::{Client, ClientError, ClientErrorKind, CreateOptions, File, OpenOptions, Pending};
use weir_store_node::record::{RecordedCall, made_of};

/// A call that was made.
pub struct Made {
    pub took: Duration,
    /// How many bytes it moved, or names it listed.
    pub result: Result<u64, ClientError>,
    /// What was read.
    pub bytes: Vec<u8>,
    /// Of those, what can be compared.
    pub known: Vec<(u64, u64)>,
}

/// The file is not open: its opening came out otherwise.
fn not_open() -> ClientError {
    ClientError::new(ClientErrorKind::Usage("the file is not open".into()))
}

impl Run<'_> {
    fn file(&self, step: &RecordedStep) -> Result<Arc<File>, ClientError> {
        let file = step.file.and_then(|file| self.files.get(file)).and_then(|file| lock(file).clone());
        file.ok_or_else(not_open)
    }

    /// Takes an open file away from the others.
    fn take(&self, step: &RecordedStep) -> Result<Arc<File>, ClientError> {
        let file = step.file.and_then(|file| self.files.get(file)).and_then(|file| lock(file).take());
        file.ok_or_else(not_open)
    }

    fn keep(&self, step: &RecordedStep, file: File) {
        if let Some(place) = step.file.and_then(|file| self.files.get(file)) {
            *lock(place) = Some(Arc::new(file));
        }
    }

    /// Memory for what is read, or with what is written.
    fn buffer(&self, step: &RecordedStep, spare: Vec<u8>) -> Vec<u8> {
        let mut bytes = spare;
        bytes.resize(step.line.length as usize, 0);
        let writes = matches!(step.line.call, RecordedCall::Write | RecordedCall::Append | RecordedCall::Put);
        if let (true, Some(content)) = (writes, step.content) {
            self.contents.fill(content, step.line.offset, &mut bytes);
        }
        bytes
    }

    fn known(&self, step: &RecordedStep) -> Vec<(u64, u64)> {
        let reads = matches!(step.line.call, RecordedCall::Read | RecordedCall::Get);
        let content = step.content.filter(|_| reads);
        content.map(|content| self.contents.known(content, step.line.offset, step.line.length)).unwrap_or_default()
    }

    /// Begins a read or write: when, what of it can be compared, and what is under way.
    pub fn begin(
        &self,
        step: &RecordedStep,
        spare: Vec<u8>,
    ) -> (Instant, Vec<(u64, u64)>, Result<Pending, ClientError>) {
        let (buffer, known, file) = (self.buffer(step, spare), self.known(step), self.file(step));
        let since = Instant::now();
        let pending = file.and_then(|file| match step.line.call {
            RecordedCall::Write if step.line.detail == b"l" => file.begin_write_last(step.line.offset, buffer),
            RecordedCall::Write => file.begin_write(step.line.offset, buffer),
            _ => file.begin_read(step.line.offset, buffer),
        });
        (since, known, pending)
    }

    /// Makes a call to its end. What has to be there for it is made before its time begins.
    pub fn make(&self, step: &RecordedStep, spare: Vec<u8>) -> Made {
        let known = self.known(step);
        let mut bytes = match step.line.call {
            RecordedCall::Read | RecordedCall::Write | RecordedCall::Append | RecordedCall::Put => {
                self.buffer(step, spare)
            }
            _ => spare,
        };
        let client = &self.clients[step.client];
        let container = match step.line.call {
            RecordedCall::Page => Some(client.stat(&step.path).map(|stat| stat.at.inode)),
            _ => None,
        };
        let since = Instant::now();
        let result = match (step.line.call, container) {
            (RecordedCall::Page, Some(container)) => container.and_then(|container| {
                let after = &step.line.detail;
                let after = if after.is_empty() { None } else { Some(EntryName::new(after)?) };
                Ok(client.list_page(container, after)?.entries.len() as u64)
            }),
            (RecordedCall::Get, _) => client.get_small(&step.path, usize::MAX).map(|read| {
                bytes = read;
                bytes.len() as u64
            }),
            (call, _) if super::names::is_of_file(call) => self.of_file(step, &mut bytes),
            _ => self.of_name(client, step, &bytes),
        };
        Made { took: since.elapsed(), result, bytes, known }
    }

    fn of_file(&self, step: &RecordedStep, bytes: &mut Vec<u8>) -> Result<u64, ClientError> {
        let (offset, length) = (step.line.offset, step.line.length);
        match step.line.call {
            RecordedCall::Read => {
                let n = self.file(step)?.read_at(offset, bytes)?;
                bytes.truncate(n);
                Ok(n as u64)
            }
            RecordedCall::Write if step.line.detail == b"l" => {
                let completed = self.file(step)?.begin_write_last(offset, std::mem::take(bytes))?.wait();
                *bytes = completed.buffer;
                completed.result.map(|n| n as u64)
            }
            RecordedCall::Write => self.file(step)?.write_at(offset, bytes).map(|()| length),
            RecordedCall::Append => self.file(step)?.append(bytes).map(|_| length),
            RecordedCall::Flush => self.file(step)?.flush().map(|()| 0),
            RecordedCall::Truncate => self.file(step)?.truncate(length).map(|()| 0),
            RecordedCall::Close => match Arc::try_unwrap(self.take(step)?) {
                Ok(file) => file.close().map(|()| 0),
                // Another thread still reads it, as when it was recorded.
                Err(shared) => shared.flush().map(|()| 0),
            },
            _ => self.take(step).map(|_| 0),
        }
    }

    fn of_name(&self, client: &Client, step: &RecordedStep, bytes: &[u8]) -> Result<u64, ClientError> {
        let (path, detail) = (&step.path, &step.line.detail[..]);
        match step.line.call {
            RecordedCall::Open | RecordedCall::Create => {
                let file = self.open(client, step)?;
                self.keep(step, file);
            }
            RecordedCall::Put => {
                client.put_small(path, bytes, &CreateOptions { parents: detail == b"p", ..self.options.clone() })?;
                return Ok(bytes.len() as u64);
            }
            RecordedCall::Stat => drop(client.stat(path)?),
            RecordedCall::Lookup => drop(client.stat_link(path)?),
            RecordedCall::List => return list(client, step),
            RecordedCall::Parts => drop(client.parts(path, step.line.offset, step.line.length)?),
            RecordedCall::MakeDirectory => client.make_directory(path, detail == b"p", 0o755)?,
            RecordedCall::Make => {
                let (kind, parents) = made_of(detail).unwrap_or((InodeKind::File, false));
                client.make(path, &CreateOptions { kind, parents, ..self.options.clone() })?;
            }
            RecordedCall::Symlink => client.symlink(detail, path)?,
            RecordedCall::ReadLink => drop(client.read_link(path)?),
            RecordedCall::Rename => client.rename(path, &step.other, false)?,
            RecordedCall::Replace => client.rename(path, &step.other, true)?,
            RecordedCall::Remove => client.remove(path, detail == b"r")?,
            _ => client.set_attributes(path, SetAttributes::default())?,
        }
        Ok(0)
    }

    fn open(&self, client: &Client, step: &RecordedStep) -> Result<File, ClientError> {
        let (path, detail) = (&step.path, &step.line.detail[..]);
        if step.line.call == RecordedCall::Open {
            let (write, truncate) = (detail != b"r", detail == b"wt");
            return client.open(path, OpenOptions { read: true, write, append: false, truncate });
        }
        let has = |flag: u8| detail.contains(&flag);
        if has(b'k') && !has(b'x') {
            match client.open(path, OpenOptions::read_write()) {
                Err(e) if e.is_not_found() => {}
                opened => return opened,
            }
        }
        client.create(path, &CreateOptions { exclusive: has(b'x'), parents: has(b'p'), ..self.options.clone() })
    }
}

/// As many names as were taken.
fn list(client: &Client, step: &RecordedStep) -> Result<u64, ClientError> {
    let most = usize::try_from(step.line.done).unwrap_or(usize::MAX);
    let mut names = 0;
    for entry in client.list(&step.path)?.take(most.max(1)) {
        entry?;
        names += 1;
    }
    Ok(names)
}
