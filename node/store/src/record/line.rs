//! A line of a record: a call that is over.

use super::text::{decode, encode};
use weir_store::InodeKind;

/// What a line has, in order.
pub(super) const COLUMNS: [&str; 14] = [
    "start_ns",
    "took_ns",
    "called_ns",
    "thread",
    "client",
    "call",
    "path",
    "detail",
    "file",
    "offset",
    "length",
    "done",
    "inode",
    "errno",
];

macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident $text:literal)*) => {
        /// What was called.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        pub enum RecordedCall {
            $($(#[$doc])* $name,)*
        }

        impl RecordedCall {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// As a record has it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

calls! {
    /// A file that is there was opened: `detail` `r`, `w`, or `wt` where it was cut to nothing.
    Open "open"
    /// A file was made or cut to nothing, and opened: `detail` `x` where it must not be there, `p` with the directories on the way,
    /// `k` where one that is there keeps its bytes.
    Create "create"
    /// A file was closed.
    Close "close"
    /// A file was given up: what was not published is lost.
    Drop "drop"
    /// Bytes were read.
    #[default]
    Read "read"
    /// Bytes were written: `detail` `l` where they are the file's last.
    Write "write"
    /// Bytes were written behind the end; `offset`: where that was.
    Append "append"
    /// What was written was published.
    Flush "flush"
    /// A file got the size `length`.
    Truncate "truncate"
    /// A small file was written as a whole: `detail` `p` with the directories on the way.
    Put "put"
    /// A small file was read as a whole.
    Get "get"
    /// A path was looked up: `detail` is its kind, `length` its size.
    Stat "stat"
    /// The same, of a symbolic link itself.
    Lookup "lookup"
    /// A directory was listed, as far as its names were taken.
    List "list"
    /// A page of a directory's names, those behind the name `detail`.
    Page "page"
    /// Where the bytes of a file lie.
    Parts "parts"
    /// A directory was made: `detail` `p` with those on the way.
    MakeDirectory "mkdir"
    /// An inode of the kind `detail` was made; `+p` behind it: with the directories on the way.
    Make "make"
    /// A symbolic link to `detail` was made.
    Symlink "symlink"
    /// Where a symbolic link leads to, which is `detail`.
    ReadLink "readlink"
    /// A path got the name `detail`.
    Rename "rename"
    /// The same, in place of what is there.
    Replace "replace"
    /// A name was deleted: `detail` `r` with all that is in it.
    Remove "remove"
    /// Attributes were changed; the record does not say which.
    SetAttributes "set"
}

const KINDS: [(InodeKind, &str); 5] = [
    (InodeKind::File, "file"),
    (InodeKind::Directory, "directory"),
    (InodeKind::Symlink, "symlink"),
    (InodeKind::Multifile, "multifile"),
    (InodeKind::Table, "table"),
];

/// A kind as a record has it.
pub fn kind_name(kind: InodeKind) -> &'static str {
    KINDS.iter().find(|(of, _)| *of == kind).map_or("", |(_, name)| name)
}

/// The kind of that name.
pub fn kind_of(name: &[u8]) -> Option<InodeKind> {
    KINDS.iter().find(|(_, of)| of.as_bytes() == name).map(|(kind, _)| *kind)
}

/// Behind the kind of what is made with the directories on the way.
const WITH_PARENTS: &str = "+p";

/// What [`RecordedCall::Make`] has as `detail`.
pub fn made_kind(kind: InodeKind, parents: bool) -> String {
    format!("{}{}", kind_name(kind), if parents { WITH_PARENTS } else { "" })
}

/// The opposite of [`made_kind`].
pub fn made_of(detail: &[u8]) -> Option<(InodeKind, bool)> {
    let kind = detail.strip_suffix(WITH_PARENTS.as_bytes());
    kind_of(kind.unwrap_or(detail)).map(|found| (found, kind.is_some()))
}

/// How a call names what it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordPath {
    /// A path; empty for calls of an open file.
    Absolute(Vec<u8>),
    /// An inode by its number.
    Inode(u64),
    /// A name in a container.
    Entry {
        /// The container's number.
        container: u64,
        /// The name.
        name: Vec<u8>,
    },
}

impl Default for RecordPath {
    fn default() -> Self {
        Self::Absolute(Vec::new())
    }
}

impl RecordPath {
    /// As a column has it.
    pub fn text(&self) -> String {
        match self {
            Self::Absolute(path) => encode(path),
            Self::Inode(inode) => format!("@{inode}"),
            Self::Entry { container, name } => format!("@{container}/{}", encode(name)),
        }
    }

    /// The opposite of [`text`](Self::text).
    ///
    /// # Errors
    /// It is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(inode) = text.strip_prefix('@') else { return decode(text).map(Self::Absolute) };
        let (number, name) = inode.split_once('/').map_or((inode, None), |(number, name)| (number, Some(name)));
        let number = number.parse().map_err(|_| format!("\"{text}\" is no inode"))?;
        match name {
            None => Ok(Self::Inode(number)),
            Some(name) => Ok(Self::Entry { container: number, name: decode(name)? }),
        }
    }
}

/// A call that is over. Times are in nanoseconds, bytes in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordLine {
    /// When it began, from the record's beginning on.
    pub start: u64,
    /// Until it was over for its program. That of a read or write that was begun and waited for later: until the wait was over.
    pub took: u64,
    /// Of that, what the calls took: the rest the program had for itself.
    pub called: u64,
    /// The thread that called, from 1 on.
    pub thread: u32,
    /// The client, from 1 on.
    pub client: u32,
    /// What was called.
    pub call: RecordedCall,
    /// What it is about.
    pub path: RecordPath,
    /// As the call has it.
    pub detail: Vec<u8>,
    /// The open file, as its client numbers them; else 0.
    pub file: u64,
    /// Where in the file.
    pub offset: u64,
    /// Bytes that were asked for; of a call that finds a file its size.
    pub length: u64,
    /// Bytes that were moved, or names that were listed.
    pub done: u64,
    /// The inode that was found or made, where that is known; else 0.
    pub inode: u64,
    /// 0, or what was wrong, as POSIX numbers it. [`UNWAITED`](super::UNWAITED): the program did not wait for it.
    pub errno: i32,
}

impl RecordLine {
    /// When it was over.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.took)
    }

    /// Writes it.
    pub fn put(&self, to: &mut Vec<u8>) {
        let Self { start, took, called, thread, client, file, offset, length, done, inode, errno, .. } = self;
        let (call, path, detail) = (self.call.name(), self.path.text(), encode(&self.detail));
        let text = format!(
            "{start},{took},{called},{thread},{client},{call},{path},{detail},{file},{offset},{length},{done},{inode},{errno}\n"
        );
        to.extend_from_slice(text.as_bytes());
    }

    /// Reads it.
    ///
    /// # Errors
    /// Which column is wrong, and how.
    pub fn parse(text: &str) -> Result<Self, String> {
        let columns: Vec<&str> = text.split(',').collect();
        let Ok(columns) = <[&str; COLUMNS.len()]>::try_from(columns) else {
            return Err(format!("{} columns, and there are {}", text.split(',').count(), COLUMNS.len()));
        };
        let number = |at: usize| columns[at].parse::<u64>().map_err(|_| Self::no_number(at, columns[at]));
        let small = |at: usize| columns[at].parse::<u32>().map_err(|_| Self::no_number(at, columns[at]));
        let call = RecordedCall::ALL.iter().find(|call| call.name() == columns[5]);
        Ok(Self {
            start: number(0)?,
            took: number(1)?,
            called: number(2)?,
            thread: small(3)?,
            client: small(4)?,
            call: *call.ok_or_else(|| format!("there is no call \"{}\"", columns[5]))?,
            path: RecordPath::parse(columns[6]).map_err(|why| format!("path: {why}"))?,
            detail: decode(columns[7]).map_err(|why| format!("detail: {why}"))?,
            file: number(8)?,
            offset: number(9)?,
            length: number(10)?,
            done: number(11)?,
            inode: number(12)?,
            errno: columns[13].parse().map_err(|_| Self::no_number(13, columns[13]))?,
        })
    }

    fn no_number(column: usize, text: &str) -> String {
        format!("{}: \"{text}\" is no number", COLUMNS[column])
    }
}
