//! The socket to a vfio-user server: messages, replies, and what is said when there are none.

use super::super::fds;
use super::BASE;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use weir_driver::TransportError;
use weir_driver::vfio_user::{
    DmaMemory as Ours, Hello, MAX_REPLY, Negotiated, Outgoing, ReplyError, check, read, write,
};
use weir_spec::vfio_user::{Command, Header, RegionAccess, errno, region};
use zerocopy::IntoBytes;

/// How long a server may take to answer a message, where nothing else is asked for.
pub(super) const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects; an AF_UNIX socket's timeout for sends is that of its connect as well (Linux's unix_stream_connect).
fn connect(path: &Path, timeout: Duration) -> Result<UnixStream, Errno> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

/// The control socket; closing it gives the drive back.
#[derive(Debug)]
pub(super) struct ControlSocket {
    pub(super) socket: UnixStream,
    pub(super) path: String,
    /// Number of the last message.
    id: u16,
    timeout: Duration,
    /// Why it can be used no more.
    pub(super) fault: Option<TransportError>,
}

/// A reply with what came with it.
type Reply = (Header, Vec<u8>, Option<OwnedFd>);

impl ControlSocket {
    /// Connects; the server may take so long to accept, and for each answer.
    pub(super) fn open(path: &Path, timeout: Duration) -> Result<Self, TransportError> {
        let name = path.display().to_string();
        let socket = connect(path, timeout).map_err(|e| match e {
            // A stopped server's queue of connections is full.
            Errno::AGAIN => {
                TransportError::Timeout(format!("{name}: the server accepts no connection within {timeout:?}"))
            }
            e => TransportError::Unreachable(format!("cannot connect to the vfio-user socket {name}: {e}")),
        })?;
        // The numbers of later messages are apart from those of `Hello`.
        let mut connection = ControlSocket { socket, path: name, id: 1 << 15, timeout, fault: None };
        connection.patience(timeout)?;
        Ok(connection)
    }

    pub(super) fn patience(&mut self, time: Duration) -> Result<(), TransportError> {
        self.timeout = time;
        let set = self.socket.set_read_timeout(Some(time)).and_then(|()| self.socket.set_write_timeout(Some(time)));
        set.map_err(|e| self.failed(&e))
    }

    pub(super) fn closed(&self) -> TransportError {
        TransportError::Closed(format!(
            "{}: the server closed the connection; it may have ended, or another client has the drive",
            self.path
        ))
    }

    fn failed(&self, e: &io::Error) -> TransportError {
        match e.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => TransportError::Timeout(format!(
                "{}: no answer from the server within {:?}; another client may have the drive",
                self.path, self.timeout
            )),
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => self.closed(),
            _ => TransportError::Closed(format!("{}: {e}", self.path)),
        }
    }

    pub(super) fn broken(&self, e: impl std::fmt::Display) -> TransportError {
        TransportError::Protocol(format!("{}: {e}", self.path))
    }

    fn refused(&self, e: ReplyError) -> TransportError {
        match e {
            ReplyError::Refused(..) | ReplyError::Missing(_) | ReplyError::Version(..) | ReplyError::NotNvme(_) => {
                TransportError::Refused(format!("{}: {e}", self.path))
            }
            _ => self.broken(e),
        }
    }

    fn send(&self, message: &Outgoing, memory: Option<&OwnedFd>) -> Result<(), TransportError> {
        let with: Vec<_> = memory.iter().map(|fd| fd.as_fd()).collect();
        let sent = fds::send(&self.socket, &message.bytes, &with).map_err(|e| self.failed(&e))?;
        if sent == message.bytes.len() { Ok(()) } else { Err(self.closed()) }
    }

    /// The next reply. Commands of the server are refused: it has all of our memory in its hands.
    fn receive(&self) -> Result<Reply, TransportError> {
        loop {
            let mut header = Header::default();
            let mut attached = Vec::new();
            self.fill(header.as_mut_bytes(), &mut attached)?;
            let size = (header.size.get() as usize).checked_sub(Header::LEN).filter(|n| *n <= MAX_REPLY);
            let size = size.ok_or_else(|| self.broken(format_args!("a message of {} bytes", header.size.get())))?;
            let mut payload = vec![0; size];
            self.fill(&mut payload, &mut attached)?;
            if header.kind() == Header::REPLY {
                return Ok((header, payload, attached.pop()));
            }
            if !header.no_reply() {
                let no = Header::error(&header, errno::ENOTSUP);
                fds::send(&self.socket, no.as_bytes(), &[]).map_err(|e| self.failed(&e))?;
            }
        }
    }

    fn fill(&self, into: &mut [u8], attached: &mut Vec<OwnedFd>) -> Result<(), TransportError> {
        let mut have = 0;
        while have < into.len() {
            match fds::receive(&self.socket, &mut into[have..], attached) {
                Ok(0) => return Err(self.closed()),
                Ok(n) => have += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.failed(&e)),
            }
        }
        Ok(())
    }

    /// Finds the drive, and hands over the memory.
    pub(super) fn hello(
        &self,
        memory: &OwnedFd,
        len: u64,
        queues: u16,
    ) -> Result<(Negotiated, Option<OwnedFd>), TransportError> {
        let mut hello = Hello::new(Ours { address: BASE, len }, queues);
        let mut bar = None;
        while let Some(message) = hello.next_message() {
            self.send(&message, message.memory.then_some(memory))?;
            let (header, payload, file) = self.receive()?;
            hello.reply(&header, &payload, file.is_some()).map_err(|e| self.refused(e))?;
            bar = file.or(bar);
        }
        let found = *hello.negotiated().ok_or_else(|| self.broken("the conversation ended early"))?;
        Ok((found, bar))
    }

    fn next_id(&mut self) -> u16 {
        self.id = self.id.wrapping_add(1) | 1 << 15;
        self.id
    }

    /// Reads a register, at most 8 bytes.
    pub(super) fn read(&mut self, offset: u32, size: u8) -> Result<u64, TransportError> {
        let id = self.next_id();
        let size = usize::from(size).min(8);
        self.send(&read(id, region::BAR0, offset.into(), size), None)?;
        let (header, payload, _) = self.receive()?;
        check(&header, id, Command::REGION_READ).map_err(|e| self.refused(e))?;
        let bytes = payload.get(size_of::<RegionAccess>()..).filter(|b| b.len() == size);
        let bytes = bytes.ok_or_else(|| self.refused(ReplyError::Malformed(Command::REGION_READ)))?;
        let mut value = [0; 8];
        value[..size].copy_from_slice(bytes);
        Ok(u64::from_le_bytes(value))
    }

    pub(super) fn write(&mut self, offset: u32, value: u64, size: u8) -> Result<(), TransportError> {
        let id = self.next_id();
        let bytes = value.to_le_bytes();
        self.send(&write(id, region::BAR0, offset.into(), &bytes[..usize::from(size).min(8)], false), None)?;
        let (header, ..) = self.receive()?;
        check(&header, id, Command::REGION_WRITE).map_err(|e| self.refused(e))
    }

    /// A write that nobody answers.
    pub(super) fn post(&mut self, offset: u32, value: u32) -> Result<(), TransportError> {
        let id = self.next_id();
        self.send(&write(id, region::BAR0, offset.into(), &value.to_le_bytes(), true), None)
    }

    /// What it gave, or `otherwise` for what a link that is gone gives.
    pub(super) fn or_gone<T>(&mut self, did: Result<T, TransportError>, otherwise: T) -> T {
        did.unwrap_or_else(|e| {
            self.fault.get_or_insert(e);
            otherwise
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{bind, listen};

    const TIMEOUT: Duration = Duration::from_millis(50);

    /// A server that is stopped: its queue of connections fills up, and then takes none.
    #[test]
    fn a_server_that_accepts_nothing_and_answers_nothing_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("weir-vfio-stopped-{}.sock", std::process::id()));
        let server = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        bind(&server, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&server, 0).unwrap();
        let mut waiting = Vec::new();
        let refused = loop {
            match ControlSocket::open(&path, TIMEOUT) {
                Ok(connection) => waiting.push(connection),
                Err(e) => break e,
            }
        };
        std::fs::remove_file(&path).unwrap();
        assert!(
            matches!(&refused, TransportError::Timeout(text) if text.contains("accepts no connection within 50ms"))
        );
        let silent = waiting[0].read(0, 8).unwrap_err();
        assert!(
            matches!(&silent, TransportError::Timeout(text) if text.contains("no answer from the server within 50ms"))
        );
    }
}
