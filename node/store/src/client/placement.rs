//! Where the bytes of a file lie.

use super::error::ClientError;
use super::operators::Operator;
use super::recorder::of_path;
use super::{Client, unexpected};
use crate::record::{RecordLine, RecordedCall};
use weir_store::protocol::{Answer, NamespaceInfo, Request};
use weir_store::records::{BlockRecord, blocks_per_chunk};
use weir_store::{Content, Inode};

/// Bytes of a file whose copies lie on the same drives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// The first one, counted from the beginning of the file.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
    /// The drives that have a copy: [`NamespaceInfo::target`]. None for a hole, and for a file that lies in its inode.
    pub targets: Vec<String>,
}

/// Bytes of a file, and the parts that they were found to be.
struct Parts {
    offset: u64,
    end: u64,
    found: Vec<FilePart>,
}

impl Parts {
    /// Adds the bytes from `begin` to `end`, as far as they are asked for.
    fn add(&mut self, begin: u64, end: u64, targets: Vec<String>) {
        let (begin, end) = (begin.max(self.offset), end.min(self.end));
        if begin >= end {
            return;
        }
        match self.found.last_mut().filter(|last| last.targets == targets) {
            Some(last) => last.length += end - begin,
            None => self.found.push(FilePart { offset: begin, length: end - begin, targets }),
        }
    }
}

/// The drives of a block's copies.
fn targets(block: Option<&BlockRecord>, namespaces: &[NamespaceInfo]) -> Vec<String> {
    let copies = block.map(|block| &block.copies[..]).unwrap_or_default();
    let known = |number| namespaces.iter().find(|found| found.namespace == number);
    copies.iter().filter_map(|copy| known(copy.namespace)).map(|found| found.target.clone()).collect()
}

impl Client {
    /// Where `bytes` bytes of a file from `offset` on lie, as far as it has them: parts in order; neighbours lie on other drives. What is published counts.
    /// Only the metadata service is asked: once for each 64 to 256 blocks.
    ///
    /// # Errors
    /// Nothing has that path, it is no file, or the metadata service does not answer.
    pub fn parts(&self, path: impl AsRef<[u8]>, offset: u64, bytes: u64) -> Result<Vec<FilePart>, ClientError> {
        let path = path.as_ref();
        let line =
            |_: Option<&Vec<FilePart>>| RecordLine { offset, length: bytes, ..of_path(RecordedCall::Parts, path) };
        self.recorded(|| self.parts_at(path, offset, bytes), line)
    }

    fn parts_at(&self, path: &[u8], offset: u64, bytes: u64) -> Result<Vec<FilePart>, ClientError> {
        let open = Request::Open { at: self.stat(path)?.at, write: false };
        let Answer::Opened { handle, inode, .. } = self.ask(open).map_err(|error| error.at(path))? else {
            return Err(unexpected());
        };
        let parts = self.parts_of(handle, &inode, offset, bytes);
        let closed = self.ask(Request::Close { handle });
        let parts = parts.and_then(|parts| closed.map(|_| parts));
        parts.map_err(|error| error.at(path))
    }

    fn parts_of(&self, handle: u64, inode: &Inode, offset: u64, bytes: u64) -> Result<Vec<FilePart>, ClientError> {
        let end = offset.saturating_add(bytes).min(inode.size);
        let mut parts = Parts { offset, end, found: Vec::new() };
        if offset >= end || !matches!(inode.content, Content::Mapped) {
            parts.add(offset, end, Vec::new());
            return Ok(parts.found);
        }
        let (block, per_chunk) = (u64::from(inode.block), blocks_per_chunk(inode.block));
        let chunk_bytes = block * u64::from(per_chunk);
        if chunk_bytes == 0 {
            return Err(unexpected());
        }
        let namespaces = self.namespaces()?;
        for number in offset / chunk_bytes..end.div_ceil(chunk_bytes) {
            let chunk = u32::try_from(number).map_err(|_| unexpected())?;
            let Answer::Chunk { chunk, .. } = self.ask(Request::Map { handle, chunk })? else {
                return Err(unexpected());
            };
            for index in 0..per_chunk {
                let begin = number * chunk_bytes + u64::from(index) * block;
                let record = chunk.blocks.iter().find(|record| record.index == index);
                parts.add(begin, begin.saturating_add(block), targets(record, &namespaces));
            }
        }
        Ok(parts.found)
    }
}

/// The host of a drive's [target](FilePart::targets), as its address says it: a name or an address without a port. `localhost` for a file of
/// this machine, 127.0.0.1 and `::1`. Other addresses of 127.0.0.0/8 stay as they are: on one machine they stand for other hosts.
///
/// ```
/// use weir_store_node::client::host_of;
///
/// assert_eq!(host_of("nvme-tcp://10.0.0.7:4420/nqn.2026-11.io.weir:a:ssd0?ns=1"), "10.0.0.7");
/// assert_eq!(host_of("nvme-tcp://127.0.0.1:4420/nqn.2026-11.io.weir:a:ssd0?ns=1"), "localhost");
/// ```
pub fn host_of(target: &str) -> &str {
    let address = target.strip_prefix("nvme-tcp://").and_then(|rest| rest.split('/').next());
    let host = address.map(|address| address.rsplit_once(':').map_or(address, |(host, _)| host));
    match host.map(|host| host.trim_start_matches('[').trim_end_matches(']')) {
        None | Some("" | "127.0.0.1" | "::1") => "localhost",
        Some(host) => host,
    }
}

#[cfg(test)]
mod tests {
    use super::{FilePart, Parts, host_of};

    fn part(offset: u64, length: u64, targets: &[&str]) -> FilePart {
        FilePart { offset, length, targets: targets.iter().map(|&target| target.into()).collect() }
    }

    #[test]
    fn neighbours_on_the_same_drives_are_one_part_and_only_what_is_asked_for_is_told() {
        let mut parts = Parts { offset: 50, end: 380, found: Vec::new() };
        for (begin, target) in [(0, "a"), (100, "a"), (200, "b"), (300, "a"), (400, "a")] {
            parts.add(begin, begin + 100, vec![target.into()]);
        }
        assert_eq!(parts.found, [part(50, 150, &["a"]), part(200, 100, &["b"]), part(300, 80, &["a"])]);
    }

    #[test]
    fn hosts_are_those_of_the_addresses() {
        let cases = [
            ("nvme-tcp://node7:4420/nqn.x?ns=1", "node7"),
            ("nvme-tcp://192.0.2.7:4420/nqn.x?ns=1", "192.0.2.7"),
            ("nvme-tcp://[2001:db8::7]:4420/nqn.x?ns=1", "2001:db8::7"),
            ("nvme-tcp://127.0.0.2:4420/nqn.x?ns=1", "127.0.0.2"),
            ("nvme-tcp://127.0.0.1:4420/nqn.x?ns=1", "localhost"),
            ("nvme-tcp://[::1]:4420/nqn.x?ns=1", "localhost"),
            ("nvme-tcp://localhost:4420/nqn.x?ns=1", "localhost"),
            ("file:/var/lib/a:b/c.img?sector=512", "localhost"),
            ("", "localhost"),
        ];
        for (target, host) in cases {
            assert_eq!(host_of(target), host, "{target}");
        }
    }
}
