//! Listening sockets, and who has the address when it is taken.
//!
//! A busy port or socket is the first thing that goes wrong when a node starts, and "Address already in use" does not say
//! what to stop. `/proc/net/tcp` gives the inode of the listening socket, `/proc/PID/fd` the process that has it open;
//! a UNIX socket tells its owner by SO_PEERCRED. What cannot be found out (another user's process) is left out.
//!
//! A process that was killed can leave its sockets behind for some milliseconds, while the kernel takes its io_uring apart:
//! what no living process is seen to have is asked for again for a while ([`weir_sys::lock`]).

use crate::held_names::{API_SOCKETS, FRONTS, PLAIN_FRONTS, RELAYS, SOCKETS};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use weir_sys::keeper_channel::Keep;
use weir_sys::lock::{self, ProcessState, Retry};

/// Connections that may wait to be accepted: those of all hosts that come at once while one worker follows another. Of a TCP port the kernel
/// allows `net.core.somaxconn` at most, 4096 by default. A host whose SYN finds the queue full hears nothing, and sends it again after 1 s.
const BACKLOG: i32 = 4096;

/// A process that has an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressOwner {
    /// Its process id.
    pub pid: u32,
    /// Its name (`/proc/PID/comm`), empty where that cannot be read.
    pub name: String,
}

/// `"weir" (process 4711)`.
impl fmt::Display for AddressOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.name.is_empty() {
            write!(f, "{:?} (process {})", self.name, self.pid)
        } else {
            write!(f, "process {}", self.pid)
        }
    }
}

/// Why an address cannot be listened on.
#[derive(Debug)]
pub enum BindError {
    /// Somebody has it.
    Busy {
        /// The address.
        address: String,
        /// Who, where that can be found out.
        holder: Option<AddressOwner>,
    },
    /// There is something else at the socket's path.
    NotASocket(PathBuf),
    /// Anything else.
    Io {
        /// The address.
        address: String,
        /// What the kernel said.
        error: io::Error,
    },
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BindError::Busy { address, holder: Some(who) } => {
                write!(f, "{address}: in use by {who}; stop it or choose another address")
            }
            BindError::Busy { address, holder: None } => {
                write!(f, "{address}: in use by a process of another user; stop it or choose another address")
            }
            BindError::NotASocket(path) => {
                write!(
                    f,
                    "{}: a file that is no socket is in the way; remove it or choose another path",
                    path.display()
                )
            }
            BindError::Io { address, error } => {
                let what_to_do = match error.kind() {
                    io::ErrorKind::PermissionDenied => "run as root or choose another address",
                    io::ErrorKind::NotFound => "create its folder or choose another path",
                    io::ErrorKind::AddrNotAvailable => "no interface has this address; choose another",
                    _ => "choose another address",
                };
                write!(f, "{address}: cannot listen: {error}; {what_to_do}")
            }
        }
    }
}

impl std::error::Error for BindError {}

/// Listens on a TCP address. Port 0 takes any free one.
pub fn listen_tcp(address: SocketAddr) -> Result<TcpListener, BindError> {
    until_free(|| {
        bind_tcp(address).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => {
                BindError::Busy { address: address.to_string(), holder: who_holds_tcp(address) }
            }
            _ => BindError::Io { address: address.to_string(), error },
        })
    })
}

/// As std's, whose queue of connections is of 128.
fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

/// As [`listen_tcp`], or what the worker before held under that name; the keeper holds it from now on.
pub fn keep_tcp(keep: &Keep, name: &str, address: SocketAddr) -> Result<TcpListener, BindError> {
    let fail = |error| BindError::Io { address: address.to_string(), error };
    if let Some(fd) = keep.take_one(name) {
        // Another program may have given it a shorter queue.
        rustix::net::listen(&fd, BACKLOG).map_err(|e| fail(e.into()))?;
        return Ok(TcpListener::from(fd));
    }
    let listener = listen_tcp(address)?;
    keep.hold(name, &[listener.as_fd()]).map_err(fail)?;
    Ok(listener)
}

/// As [`listen_unix`], or what the worker before held at that path; the keeper holds it from now on.
pub fn keep_unix(keep: &Keep, path: &Path, mode: u32) -> Result<UnixListener, BindError> {
    keep_unix_as(keep, SOCKETS, path, mode)
}

/// The same for a socket of the API, for its owner alone: whoever reaches it commands the node.
pub fn keep_api(keep: &Keep, path: &Path) -> Result<UnixListener, BindError> {
    keep_unix_as(keep, API_SOCKETS, path, 0o600)
}

fn keep_unix_as(keep: &Keep, kind: &str, path: &Path, mode: u32) -> Result<UnixListener, BindError> {
    let name = format!("{kind}{}", path.display());
    if let Some(fd) = keep.take_one(&name) {
        return Ok(UnixListener::from(fd));
    }
    let listener = listen_unix(path, mode)?;
    let fail = |error| BindError::Io { address: path.display().to_string(), error };
    keep.hold(&name, &[listener.as_fd()]).map_err(fail)?;
    Ok(listener)
}

/// As [`keep_unix`] of a socket at which clients come: it may have been held as something else, because of who let them in. `kind` begins
/// the name that it is held by from now on.
pub fn keep_door(keep: &Keep, kind: &str, path: &Path, mode: u32) -> Result<Option<UnixListener>, BindError> {
    let address = path.display().to_string();
    let name = |kind: &str| format!("{kind}{address}");
    if let Some(fds) = keep.take(&name(kind)) {
        return Ok(fds.into_iter().next().map(UnixListener::from));
    }
    let fail = |error| BindError::Io { address: address.clone(), error };
    for other in [SOCKETS, FRONTS, PLAIN_FRONTS, RELAYS].into_iter().filter(|other| *other != kind) {
        let Some(listener) = keep.take_one(&name(other)) else { continue };
        keep.hold(&name(kind), &[listener.as_fd()]).map_err(fail)?;
        // Not before: it is always held.
        keep.release(&name(other)).map_err(fail)?;
        return Ok(Some(listener.into()));
    }
    let listener = listen_unix(path, mode)?;
    keep.hold(&name(kind), &[listener.as_fd()]).map_err(fail)?;
    Ok(Some(listener))
}

/// The socket of [`keep_unix`] is gone, and its path free again.
pub fn remove_unix(keep: &Keep, path: &Path) {
    let _ = keep.release(&format!("{SOCKETS}{}", path.display()));
    let _ = std::fs::remove_file(path);
}

/// Tries again while whoever has the address may be on the way out.
fn until_free<T>(mut listen: impl FnMut() -> Result<T, BindError>) -> Result<T, BindError> {
    let retry = Retry::begin();
    loop {
        match listen() {
            Err(BindError::Busy { holder, .. })
                if retry.again(holder.as_ref().map_or(ProcessState::Unseen, |who| ProcessState::of(who.pid))) => {}
            result => return result,
        }
    }
}

/// Listens on a UNIX stream socket with these permissions (less the umask). What a node that was killed left behind at the
/// path is replaced; a socket that somebody answers is not.
pub fn listen_unix(path: &Path, mode: u32) -> Result<UnixListener, BindError> {
    until_free(|| listen_unix_once(path, mode))
}

fn listen_unix_once(path: &Path, mode: u32) -> Result<UnixListener, BindError> {
    let fail = |error: io::Error| BindError::Io { address: path.display().to_string(), error };
    match std::fs::symlink_metadata(path) {
        Ok(meta) if !meta.file_type().is_socket() => return Err(BindError::NotASocket(path.to_path_buf())),
        Ok(_) => clear_stale(path)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(fail(e)),
    }
    bind_unix(path, mode).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => busy_unix(path),
        _ => fail(error),
    })
}

fn clear_stale(path: &Path) -> Result<(), BindError> {
    match UnixStream::connect(path) {
        Ok(_) => Err(busy_unix(path)),
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            let fail = |error| BindError::Io { address: path.display().to_string(), error };
            std::fs::remove_file(path).map_err(fail)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        // Not allowed to connect, or its backlog is full: somebody is there.
        Err(_) => Err(busy_unix(path)),
    }
}

fn busy_unix(path: &Path) -> BindError {
    BindError::Busy { address: path.display().to_string(), holder: who_holds_unix(path) }
}

/// The mode is set before the socket has a name: there is no moment in which others may connect.
fn bind_unix(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::fs::fchmod(&socket, rustix::fs::Mode::from_raw_mode(mode))?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

/// The process that listens on a TCP address, or on that port of all addresses.
pub fn who_holds_tcp(address: SocketAddr) -> Option<AddressOwner> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let inode = tables.iter().find_map(|table| {
        let text = std::fs::read_to_string(table).ok()?;
        text.lines().skip(1).find_map(|line| listening_inode(line, address))
    })?;
    process_with_socket(inode)
}

/// The process that listens on a UNIX socket.
pub fn who_holds_unix(path: &Path) -> Option<AddressOwner> {
    if let Ok(stream) = UnixStream::connect(path) {
        if let Ok(peer) = sockopt::socket_peercred(&stream) {
            // Credentials are those of listen(2): a process that may have gone, after it has passed the socket on.
            let pid = peer.pid.as_raw_pid().unsigned_abs();
            if ProcessState::of(pid) == ProcessState::Living {
                return Some(holder(pid));
            }
        }
    }
    let table = std::fs::read_to_string("/proc/net/unix").ok()?;
    let path = path.to_str()?;
    let inode = table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace();
        let inode = fields.nth(6)?;
        (fields.next()? == path).then(|| inode.parse().ok()).flatten()
    })?;
    process_with_socket(inode)
}

/// One line of `/proc/net/tcp`: `sl local_address rem_address st … inode`; 0A is LISTEN.
fn listening_inode(line: &str, wanted: SocketAddr) -> Option<u64> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (local, state, inode) = (*fields.get(1)?, *fields.get(3)?, *fields.get(9)?);
    let (ip, port) = local.split_once(':')?;
    if state != "0A" || u16::from_str_radix(port, 16).ok()? != wanted.port() {
        return None;
    }
    let ip = kernel_ip(ip)?;
    let same = ip == wanted.ip() || ip.is_unspecified() || wanted.ip().is_unspecified();
    same.then(|| inode.parse().ok()).flatten()
}

/// Four bytes at a time, each word in the machine's byte order.
fn kernel_ip(hex: &str) -> Option<IpAddr> {
    let mut bytes = Vec::with_capacity(16);
    for word in hex.as_bytes().chunks(8) {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

fn process_with_socket(inode: u64) -> Option<AddressOwner> {
    let wanted = format!("socket:[{inode}]");
    for process in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        let Ok(files) = std::fs::read_dir(process.path().join("fd")) else { continue };
        let has = |file: io::Result<std::fs::DirEntry>| {
            file.and_then(|f| std::fs::read_link(f.path())).is_ok_and(|link| link.as_os_str() == wanted.as_str())
        };
        if files.into_iter().any(has) {
            return Some(holder(pid));
        }
    }
    None
}

/// Of a node's worker its keeper, which is the process to be stopped.
fn holder(pid: u32) -> AddressOwner {
    let name =
        |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_string();
    let found = AddressOwner { pid, name: name(pid) };
    if !matches!(found.name.as_str(), "weir-worker" | "weir-standby") {
        return found;
    }
    let keeper = lock::parent_of(pid).map(|pid| AddressOwner { pid, name: name(pid) });
    keeper.filter(|keeper| keeper.name == "weir-keeper").unwrap_or(found)
}

#[cfg(test)]
#[path = "listen_tests.rs"]
mod tests;
