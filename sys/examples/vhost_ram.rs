//! Serves a buffer in memory as a vhost-user-blk device: the device machine and nothing else, for trying front ends
//! against it and for measuring what it costs. `cargo run --release -p weir-sys --example vhost_ram -- SOCKET MIB`

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use weir_session::vhost_user::{Action, Disk, DriveCommand, Inbox, Op, VhostUserDevice};
use weir_spec::virtio_blk::RequestStatus;
use weir_sys::memory::GuestMemory;
use weir_sys::transport::fds;

struct Server {
    device: VhostUserDevice<GuestMemory>,
    memory: GuestMemory,
    inbox: Inbox<OwnedFd>,
    calls: Vec<Option<OwnedFd>>,
    kicks: Vec<Option<OwnedFd>>,
    socket: std::os::unix::net::UnixStream,
    actions: Vec<Action<OwnedFd>>,
    taken: Vec<DriveCommand>,
}

impl Server {
    fn new(socket: std::os::unix::net::UnixStream, bytes: u64) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let device = VhostUserDevice::new(Disk::new(bytes, "vhost_ram"));
        let none = || (0..device.queues()).map(|_| None).collect();
        let (calls, kicks) = (none(), none());
        Ok(Self {
            device,
            memory: GuestMemory::new(),
            inbox: Inbox::default(),
            calls,
            kicks,
            socket,
            actions: Vec::new(),
            taken: Vec::with_capacity(64),
        })
    }

    /// False when the front end has gone.
    fn messages(&mut self) -> io::Result<bool> {
        while !self.device.is_draining() {
            let mut got = Vec::new();
            let n = match fds::receive(&self.socket, self.inbox.space(), &mut got) {
                Ok(0) => return Ok(false),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            };
            if let Some(message) = self.inbox.advance(n, got).map_err(io::Error::other)? {
                if std::env::var_os("VERBOSE").is_some() {
                    eprintln!(
                        "{:?} {} bytes, {} descriptors",
                        message.request,
                        message.payload.len(),
                        message.fds.len()
                    );
                }
                self.device.message(message, &mut self.memory, &mut self.actions);
                self.act()?;
            }
        }
        Ok(true)
    }

    fn act(&mut self) -> io::Result<()> {
        for action in std::mem::take(&mut self.actions) {
            match action {
                Action::Reply(bytes) => {
                    fds::send(&self.socket, &bytes, &[])?;
                }
                Action::ReplyWith(bytes, fd) => {
                    fds::send(&self.socket, &bytes, &[fd.as_fd()])?;
                }
                Action::Recovered(queue, found) => eprintln!("queue {queue}: {found:?}"),
                Action::Unusable(queue, why) => eprintln!("{queue:?}: {why}"),
                Action::Call { queue, fd } => self.calls[usize::from(queue)] = fd,
                Action::Kick { queue, fd } => self.kicks[usize::from(queue)] = fd,
                Action::Started(queue) | Action::Poll(queue) => self.device.quiet(&self.memory, queue),
                Action::Signal(queue) => self.signal(queue),
                Action::Broken(queue, violation) => eprintln!("queue {queue}: {violation}"),
                Action::Close(why) => return Err(io::Error::other(why)),
                Action::Stopped(_) | Action::Tell(_) | Action::Err { .. } | Action::Channel(_) => {}
            }
        }
        Ok(())
    }

    fn signal(&self, queue: u16) {
        if let Some(fd) = &self.calls[usize::from(queue)] {
            fds::signal(fd);
        }
    }

    fn serve(&mut self, disk: &mut [u8]) -> io::Result<bool> {
        let mut any = false;
        for queue in 0..self.device.queues() {
            if self.device.queue(queue).is_none() {
                continue;
            }
            let taken = &mut self.taken;
            taken.clear();
            if let Err(violation) = self.device.take(&self.memory, queue, 32, &mut |t| taken.push(t)) {
                eprintln!("queue {queue}: {violation}");
            }
            any |= !self.taken.is_empty();
            for t in &self.taken {
                let range = t.offset as usize..t.offset as usize + t.len as usize;
                let q = self.device.queue(queue).expect("it gave a request");
                let moved = match t.op {
                    Op::Read => q.write_data(&self.memory, t.tag, 0, &disk[range]),
                    Op::Write => q.read_data(&self.memory, t.tag, 0, &mut disk[range]),
                    Op::WriteZeroes { .. } | Op::Discard => {
                        disk[range].fill(0);
                        Ok(())
                    }
                    Op::Flush => Ok(()),
                };
                let status = if moved.is_ok() { RequestStatus::OK } else { RequestStatus::IOERR };
                self.device.complete(&self.memory, t.tag, status);
            }
            self.device.publish(&self.memory, queue);
            if self.device.wants_signal(&self.memory, queue) {
                self.signal(queue);
            }
        }
        self.device.settle(&self.memory, &mut self.actions);
        self.act()?;
        Ok(any)
    }
}

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(path), Some(mib)) = (args.next(), args.next().and_then(|m| m.parse::<usize>().ok())) else {
        eprintln!("usage: vhost_ram SOCKET MIB");
        std::process::exit(2);
    };
    let mut disk = vec![0u8; mib << 20];
    disk.fill(1);
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path)?;
    loop {
        let mut server = Server::new(listener.accept()?.0, disk.len() as u64)?;
        let mut turn = 0u32;
        let ended = loop {
            let busy = server.serve(&mut disk)?;
            turn = turn.wrapping_add(1);
            if !busy || turn % 1024 == 0 {
                match server.messages() {
                    Ok(true) => {}
                    other => break other,
                }
            }
        };
        eprintln!("the front end has gone: {ended:?}");
    }
}
