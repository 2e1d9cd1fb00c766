//! What goes wrong at a client, as its user reads it.

use rustix::io::Errno;
use std::{fmt, io};
use weir_store::StoreError;
use weir_store::client::{ClientFailure, ClientFault};
use weir_store::file::FileError;

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientErrorKind {
    /// The metadata service refuses.
    Store(StoreError),
    /// A read, write or flush came to nothing.
    File(FileError),
    /// The metadata service, or a drive, cannot be reached.
    Unreachable(String),
    /// The other side does not keep to the protocol, or has another version of it.
    Protocol(String),
    /// The caller has asked for what cannot be.
    Usage(String),
    /// It was not done before its deadline.
    Deadline,
    /// [`Pending::cancel`](super::Pending::cancel) has ended it.
    Cancelled,
    /// The client's session is over: its lease was not renewed in time. What was written and not flushed is lost.
    SessionOver,
}

/// An error, with the path and the node that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientError {
    path: Option<String>,
    node: Option<String>,
    kind: ClientErrorKind,
}

impl ClientError {
    /// An error about no path.
    pub fn new(kind: ClientErrorKind) -> Self {
        Self { path: None, node: None, kind }
    }

    /// The same about a path, if it names none yet.
    #[must_use]
    pub fn at(mut self, path: impl AsRef<[u8]>) -> Self {
        self.path.get_or_insert_with(|| String::from_utf8_lossy(path.as_ref()).into_owned());
        self
    }

    /// The same about a node, or a drive of one, if it names none yet.
    #[must_use]
    pub fn on(mut self, node: &str) -> Self {
        self.node.get_or_insert_with(|| node.into());
        self
    }

    /// What is wrong.
    pub fn kind(&self) -> &ClientErrorKind {
        &self.kind
    }

    /// The path, as the caller gave it.
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// The node or drive.
    pub fn node(&self) -> Option<&str> {
        self.node.as_deref()
    }

    /// What the metadata service says, if it is its refusal.
    pub fn store_error(&self) -> Option<StoreError> {
        match self.kind {
            ClientErrorKind::Store(error) => Some(error),
            _ => None,
        }
    }

    /// The number of POSIX for it, as `errno` has it: `ENOTCONN` where the store is not reached or the session is over, `EBUSY` for a second
    /// writer, `EIO` for what POSIX has no number for.
    pub fn errno(&self) -> i32 {
        let number = match &self.kind {
            ClientErrorKind::Store(error) => store_errno(*error),
            ClientErrorKind::File(FileError::TooFar) => Errno::FBIG,
            ClientErrorKind::File(FileError::NoSpace | FileError::TooFewNodes(_)) => Errno::NOSPC,
            ClientErrorKind::File(FileError::Deadline) | ClientErrorKind::Deadline => Errno::TIMEDOUT,
            ClientErrorKind::File(FileError::Unsettled(_)) => Errno::AGAIN,
            ClientErrorKind::Unreachable(_) | ClientErrorKind::SessionOver => Errno::NOTCONN,
            ClientErrorKind::Usage(_) => Errno::INVAL,
            ClientErrorKind::Cancelled => Errno::INTR,
            _ => Errno::IO,
        };
        number.raw_os_error()
    }

    /// What is wrong, without the path that it is about.
    pub fn reason(&self) -> String {
        let node = self.node.clone().filter(|node| self.path.as_ref() != Some(node));
        Self { path: None, node, kind: self.kind.clone() }.to_string()
    }

    /// Whether nothing has that name.
    pub fn is_not_found(&self) -> bool {
        self.store_error() == Some(StoreError::NotFound)
    }
}

fn store_errno(error: StoreError) -> Errno {
    match error {
        StoreError::NotFound => Errno::NOENT,
        StoreError::Exists => Errno::EXIST,
        StoreError::NotDirectory => Errno::NOTDIR,
        StoreError::IsDirectory => Errno::ISDIR,
        StoreError::NotEmpty => Errno::NOTEMPTY,
        StoreError::IntoItself
        | StoreError::BadName
        | StoreError::WrongKind
        | StoreError::ClassName
        | StoreError::NoClass
        | StoreError::Location
        | StoreError::Malformed
        | StoreError::BlockSize
        | StoreError::Copies
        | StoreError::Classes => Errno::INVAL,
        StoreError::NameTooLong => Errno::NAMETOOLONG,
        StoreError::HardLink => Errno::PERM,
        StoreError::Root | StoreError::Busy | StoreError::InUse => Errno::BUSY,
        StoreError::TooLarge(_) => Errno::FBIG,
        StoreError::NoAttribute => Errno::NODATA,
        StoreError::AttributeSpace(_) | StoreError::NoSpace | StoreError::TooFewNodes(_) | StoreError::Freeing(_) => {
            Errno::NOSPC
        }
        StoreError::TooManyLinks => Errno::LOOP,
        StoreError::Recovering | StoreError::Overloaded | StoreError::Unavailable => Errno::AGAIN,
        _ => Errno::IO,
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{path}: ")?;
        }
        match &self.kind {
            ClientErrorKind::Store(error) => error.fmt(f)?,
            ClientErrorKind::File(error) => error.fmt(f)?,
            ClientErrorKind::Unreachable(text) | ClientErrorKind::Protocol(text) | ClientErrorKind::Usage(text) => {
                f.write_str(text)?;
            }
            ClientErrorKind::Deadline => f.write_str("it was not done before its deadline")?,
            ClientErrorKind::Cancelled => f.write_str("it was cancelled")?,
            ClientErrorKind::SessionOver => f.write_str("the client's session has ended; open the store again")?,
        }
        match &self.node {
            // The metadata service names the path that it was given: once is enough.
            Some(node) if self.path.as_ref() != Some(node) => write!(f, " ({node})"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for ClientError {}

impl From<StoreError> for ClientError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::SessionGone => Self::new(ClientErrorKind::SessionOver),
            error => Self::new(ClientErrorKind::Store(error)),
        }
    }
}

impl From<FileError> for ClientError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Deadline => Self::new(ClientErrorKind::Deadline),
            FileError::LeaseOver => Self::new(ClientErrorKind::SessionOver),
            error => Self::new(ClientErrorKind::File(error)),
        }
    }
}

impl From<ClientFailure> for ClientError {
    fn from(failure: ClientFailure) -> Self {
        let text = failure.fault.to_string();
        let error = match failure.fault {
            ClientFault::Store(error, detail) if detail.is_empty() => Self::from(error),
            ClientFault::Store(error, detail) => Self::from(error).on(&detail),
            ClientFault::File(error) => Self::from(error),
            ClientFault::Unreachable(_) => Self::new(ClientErrorKind::Unreachable(text)),
            ClientFault::Protocol(_) => Self::new(ClientErrorKind::Protocol(text)),
            ClientFault::TooLong => Self::new(ClientErrorKind::Usage(text)),
            ClientFault::Deadline => Self::new(ClientErrorKind::Deadline),
            ClientFault::Cancelled => Self::new(ClientErrorKind::Cancelled),
            ClientFault::SessionOver => Self::new(ClientErrorKind::SessionOver),
        };
        match failure.drive {
            Some(drive) => error.on(&drive),
            None => error,
        }
    }
}

impl From<ClientError> for io::Error {
    fn from(error: ClientError) -> Self {
        let kind = match error.kind() {
            ClientErrorKind::Store(StoreError::NotFound) => io::ErrorKind::NotFound,
            ClientErrorKind::Store(StoreError::Exists) => io::ErrorKind::AlreadyExists,
            ClientErrorKind::Usage(_) | ClientErrorKind::Store(StoreError::BadName) => io::ErrorKind::InvalidInput,
            ClientErrorKind::Deadline => io::ErrorKind::TimedOut,
            ClientErrorKind::Protocol(_) => io::ErrorKind::InvalidData,
            ClientErrorKind::Unreachable(_) | ClientErrorKind::SessionOver => io::ErrorKind::NotConnected,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_and_node_are_named_once() {
        let error = ClientError::from(StoreError::NotFound).at("/a/b").at("/c").on("node 3");
        assert_eq!(error.to_string(), "/a/b: no such file or directory (node 3)");
        assert!(error.is_not_found() && error.path() == Some("/a/b") && error.node() == Some("node 3"));
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::NotFound);
        let once = ClientError::from(StoreError::NotFound).at("/a/b").on("/a/b");
        assert_eq!(once.to_string(), "/a/b: no such file or directory");
        assert_eq!((once.reason().as_str(), once.errno()), ("no such file or directory", 2));
        let late = ClientError::from(FileError::Deadline).at(b"/\xff");
        assert_eq!(late.to_string(), "/\u{fffd}: it was not done before its deadline");
        assert_eq!(io::Error::from(late).kind(), io::ErrorKind::TimedOut);
        assert_eq!(ClientError::from(FileError::LeaseOver), ClientError::from(StoreError::SessionGone));
    }
}
