//! The files of a package in memory, sorted by path, and archives of them that are the same bytes every time.

use std::collections::BTreeMap;
use std::io::Write;

use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

/// A name in a tar header of the kind that every tar reads.
const NAME_MAX: usize = 100;

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A folder, mode 0755.
    Folder,
    /// A file and its permission bits.
    File { mode: u32, bytes: Vec<u8> },
    /// A symbolic link and where it points.
    Link(String),
}

/// Paths without a leading slash, each with its parents.
#[derive(Clone, Debug, Default)]
pub struct Files(BTreeMap<String, Node>);

impl Files {
    /// Adds a file that programs read.
    pub fn data(&mut self, path: &str, bytes: impl Into<Vec<u8>>) {
        self.add(path, Node::File { mode: 0o644, bytes: bytes.into() });
    }

    /// Adds a file that is run.
    pub fn program(&mut self, path: &str, bytes: impl Into<Vec<u8>>) {
        self.add(path, Node::File { mode: 0o755, bytes: bytes.into() });
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, target: &str) {
        self.add(path, Node::Link(target.into()));
    }

    /// Adds an empty folder.
    pub fn folder(&mut self, path: &str) {
        self.add(path, Node::Folder);
    }

    fn add(&mut self, path: &str, node: Node) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.add(parent, Node::Folder);
        }
        self.0.insert(path.into(), node);
    }

    /// All entries, parents before what is in them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.0.iter().map(|(path, node)| (path.as_str(), node))
    }

    /// The regular files alone.
    pub fn contents(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.iter().filter_map(|(path, node)| match node {
            Node::File { bytes, .. } => Some((path, bytes.as_slice())),
            Node::Folder | Node::Link(_) => None,
        })
    }

    /// What the files take when installed, KiB, as Debian counts it: each rounded up, 1 for each folder and link.
    pub fn installed_kib(&self) -> u64 {
        self.iter()
            .map(|(_, node)| if let Node::File { bytes, .. } = node { bytes.len().div_ceil(1024) as u64 } else { 1 })
            .sum()
    }

    /// A tar archive: sorted, owned by root, every time `mtime` (seconds since 1970). `prefix` comes before each path.
    ///
    /// # Errors
    /// A path or link that is too long for a tar header.
    pub fn tar(&self, prefix: &str, mtime: u64) -> Result<Vec<u8>, String> {
        let mut builder = Builder::new(Vec::new());
        if !prefix.is_empty() {
            append(&mut builder, prefix, &Node::Folder, mtime)?;
        }
        for (path, node) in self.iter() {
            append(&mut builder, &format!("{prefix}{path}"), node, mtime)?;
        }
        builder.into_inner().map_err(|e| format!("tar: {e}"))
    }
}

/// Names are put into the header as they are: the tar crate would drop the `./` that Debian's tools write.
fn append(builder: &mut Builder<Vec<u8>>, path: &str, node: &Node, mtime: u64) -> Result<(), String> {
    let mut header = Header::new_ustar();
    let (kind, mode, bytes): (_, _, &[u8]) = match node {
        Node::Folder => (EntryType::Directory, 0o755, &[]),
        Node::File { mode, bytes } => (EntryType::Regular, *mode, bytes),
        Node::Link(_) => (EntryType::Symlink, 0o777, &[]),
    };
    let name = if kind == EntryType::Directory && !path.ends_with('/') { format!("{path}/") } else { path.into() };
    if name.len() > NAME_MAX {
        return Err(format!("{name}: longer than {NAME_MAX} bytes"));
    }
    if let Node::Link(target) = node {
        header.set_link_name_literal(target).map_err(|e| format!("{path} -> {target}: {e}"))?;
    }
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_username("root").and_then(|()| header.set_groupname("root")).map_err(|e| format!("{path}: {e}"))?;
    header.set_mtime(mtime);
    header.set_size(bytes.len() as u64);
    header.set_cksum();
    builder.append(&header, bytes).map_err(|e| format!("{path}: {e}"))
}

/// gzip without a name and a time.
pub fn gzip(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).map_err(|e| format!("gzip: {e}"))
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
