//! A vhost-user front end by hand (vhost-user protocol, QEMU's docs/interop/vhost-user.rst) with one split ring (virtio 1.2,
//! section 2.7) in a memory file that is written with `pwrite`: no mapping, so nothing here needs unsafe code.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use crate::harness::{Context, ensure};

/// Requests of the protocol.
pub mod request {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_LOG_BASE: u32 = 6;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const SET_BACKEND_REQ_FD: u32 = 21;
    pub const GET_CONFIG: u32 = 24;
    pub const GET_INFLIGHT_FD: u32 = 31;
    pub const SET_INFLIGHT_FD: u32 = 32;
    pub const ADD_MEM_REG: u32 = 37;
}

/// Guest physical address of the memory file's first byte.
pub const GUEST: u64 = 0x1_0000_0000;
/// Front end's virtual address of it.
pub const USER: u64 = 0x7f00_0000_0000;
/// Bytes of the memory file.
pub const MEMORY: u64 = 1 << 20;
/// Entries of the ring.
pub const RING: u16 = 64;
/// Offsets in the memory file.
pub const DESC: u64 = 0;
pub const AVAIL: u64 = 0x1000;
pub const USED: u64 = 0x2000;
pub const HEADER: u64 = 0x3000;
pub const STATUS: u64 = 0x3800;
pub const INDIRECT: u64 = 0x4000;
pub const DATA: u64 = 0x1_0000;

/// Flags of a descriptor.
pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const IS_INDIRECT: u16 = 4;

/// A descriptor of the ring.
#[derive(Clone, Copy, Debug)]
pub struct Desc {
    pub addr: u64,
    pub len: u32,
    pub flags: u16,
    pub next: u16,
}

/// A descriptor.
pub const fn desc(addr: u64, len: u32, flags: u16, next: u16) -> Desc {
    Desc { addr, len, flags, next }
}

impl Desc {
    fn bytes(self) -> [u8; 16] {
        let mut b = [0; 16];
        b[..8].copy_from_slice(&self.addr.to_le_bytes());
        b[8..12].copy_from_slice(&self.len.to_le_bytes());
        b[12..14].copy_from_slice(&self.flags.to_le_bytes());
        b[14..].copy_from_slice(&self.next.to_le_bytes());
        b
    }
}

/// A message without its descriptors.
pub fn message(request: u32, flags: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(request.to_le_bytes());
    bytes.extend((1 | flags).to_le_bytes());
    bytes.extend((payload.len() as u32).to_le_bytes());
    bytes.extend(payload);
    bytes
}

/// Little-endian words one after the other.
pub fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// Two 32-bit words.
pub fn pair(a: u32, b: u32) -> Vec<u8> {
    [a.to_le_bytes(), b.to_le_bytes()].concat()
}

/// A connected front end.
pub struct Front {
    socket: UnixStream,
    /// The memory that the server may map.
    pub memory: File,
    kick: OwnedFd,
    /// Signalled by the server.
    pub call: OwnedFd,
    avail: u16,
    used: u16,
}

impl Front {
    /// Connects; nothing was said yet.
    pub fn open(path: &Path) -> Result<Self, String> {
        let socket = UnixStream::connect(path).context(|| format!("connect {}", path.display()))?;
        let limit = Some(Duration::from_secs(5));
        socket.set_read_timeout(limit).and_then(|()| socket.set_write_timeout(limit)).context(|| "timeouts".into())?;
        let memory: File = memfd_create("e2e", MemfdFlags::CLOEXEC).context(|| "memfd".into())?.into();
        memory.set_len(MEMORY).context(|| "memfd".into())?;
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).context(|| "eventfd".into());
        Ok(Self { socket, memory, kick: event()?, call: event()?, avail: 0, used: 0 })
    }

    /// Sends bytes with descriptors.
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), String> {
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(fds));
        }
        let sent = sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
        let sent = sent.context(|| "sendmsg".into())?;
        ensure(sent == bytes.len(), || "half a message was sent".into())
    }

    /// Sends a request that has no reply.
    pub fn tell(&self, request: u32, payload: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), String> {
        self.send(&message(request, 0, payload), fds)
    }

    /// Sends a request and gives the payload of its reply.
    pub fn ask(&mut self, request: u32, payload: &[u8]) -> Result<Vec<u8>, String> {
        self.tell(request, payload, &[])?;
        self.reply(request)
    }

    /// Waits for the reply to a request.
    pub fn reply(&mut self, request: u32) -> Result<Vec<u8>, String> {
        let mut head = [0; 12];
        self.socket.read_exact(&mut head).context(|| format!("no reply to request {request}"))?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        ensure(word(0) == request, || format!("a reply to {} instead of {request}", word(0)))?;
        ensure(word(4) & 7 == 5, || format!("flags {:#x} of a reply", word(4)))?;
        ensure(word(8) < 4096, || format!("a reply of {} bytes", word(8)))?;
        let mut payload = vec![0; word(8) as usize];
        self.socket.read_exact(&mut payload).context(|| format!("half a reply to request {request}"))?;
        Ok(payload)
    }

    /// As [`ask`](Self::ask), where a descriptor comes with the reply.
    pub fn ask_for_descriptor(&mut self, request: u32, payload: &[u8]) -> Result<(Vec<u8>, OwnedFd), String> {
        self.tell(request, payload, &[])?;
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; 64];
        let got = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC);
        let got = got.context(|| format!("no reply to request {request}"))?.bytes;
        ensure(got > 12, || format!("request {request}: {got} bytes came"))?;
        let fds = control.drain().filter_map(|m| match m {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        let fd = fds.flatten().next().ok_or_else(|| format!("no descriptor came with the reply to {request}"))?;
        Ok((bytes[12..got].to_vec(), fd))
    }

    /// A 64-bit reply.
    pub fn ask_u64(&mut self, request: u32) -> Result<u64, String> {
        let payload = self.ask(request, &[])?;
        payload.try_into().map(u64::from_le_bytes).map_err(|p| format!("request {request}: {p:02x?} is no u64"))
    }

    /// The memory table: the whole file in one region.
    pub fn mem_table() -> Vec<u8> {
        [pair(1, 0), words(&[GUEST, MEMORY, USER, 0])].concat()
    }

    /// Where the ring lies.
    pub fn vring_addr() -> Vec<u8> {
        [pair(0, 0), words(&[USER + DESC, USER + USED, USER + AVAIL, 0])].concat()
    }

    /// The messages of an orderly set-up after the features, in order; `true`: the memory, kick or call goes with it.
    pub fn setup_messages(&self) -> Vec<(Vec<u8>, Option<BorrowedFd<'_>>)> {
        use request as r;
        vec![
            (message(r::SET_MEM_TABLE, 0, &Self::mem_table()), Some(self.memory.as_fd())),
            (message(r::SET_VRING_NUM, 0, &pair(0, RING.into())), None),
            (message(r::SET_VRING_BASE, 0, &pair(0, 0)), None),
            (message(r::SET_VRING_ADDR, 0, &Self::vring_addr()), None),
            (message(r::SET_VRING_CALL, 0, &words(&[0])), Some(self.call.as_fd())),
            (message(r::SET_VRING_KICK, 0, &words(&[0])), Some(self.kick.as_fd())),
            (message(r::SET_VRING_ENABLE, 0, &pair(0, 1)), None),
        ]
    }

    /// Features and protocol features: version 1, indirect, protocol features with configuration space.
    pub fn negotiate(&mut self) -> Result<(), String> {
        self.tell(request::SET_OWNER, &[], &[])?;
        let offered = self.ask_u64(request::GET_FEATURES)?;
        let wanted = 1 << 32 | 1 << 30 | 1 << 28;
        ensure(offered & wanted == wanted, || format!("features {offered:#x}"))?;
        let protocol = self.ask_u64(request::GET_PROTOCOL_FEATURES)?;
        self.tell(request::SET_PROTOCOL_FEATURES, &words(&[protocol & (1 << 9)]), &[])?;
        self.tell(request::SET_FEATURES, &words(&[wanted]), &[])
    }

    /// Also agrees to messages of the server's own and hands it the socket for them; the other end of it.
    pub fn back_channel(&mut self) -> Result<UnixStream, String> {
        let protocol = self.ask_u64(request::GET_PROTOCOL_FEATURES)?;
        let wanted = 1 << 9 | 1 << 5;
        ensure(protocol & wanted == wanted, || format!("protocol features {protocol:#x}"))?;
        self.tell(request::SET_PROTOCOL_FEATURES, &words(&[wanted]), &[])?;
        let (ours, theirs) = UnixStream::pair().context(|| "socket pair".into())?;
        ours.set_read_timeout(Some(Duration::from_secs(5))).context(|| "timeout".into())?;
        self.tell(request::SET_BACKEND_REQ_FD, &[], &[theirs.as_fd()])?;
        Ok(ours)
    }

    /// The disk's capacity in sectors, as the configuration space has it.
    pub fn capacity(&mut self) -> Result<u64, String> {
        let space = [&0u32.to_le_bytes()[..], &8u32.to_le_bytes(), &[0; 4], &[0; 8]].concat();
        let answer = self.ask(request::GET_CONFIG, &space)?;
        let bytes = answer.get(12..20).and_then(|b| b.try_into().ok());
        bytes.map(u64::from_le_bytes).ok_or_else(|| format!("configuration space: {answer:02x?}"))
    }

    /// Connects and sets one ring up.
    pub fn ready(path: &Path) -> Result<Self, String> {
        let mut front = Self::open(path)?;
        front.negotiate()?;
        for (bytes, fd) in front.setup_messages() {
            front.send(&bytes, fd.as_slice())?;
        }
        Ok(front)
    }

    /// Writes into the memory file.
    pub fn put(&self, at: u64, bytes: &[u8]) -> Result<(), String> {
        self.memory.write_all_at(bytes, at).context(|| "pwrite".into())
    }

    /// Reads from the memory file.
    pub fn get<const N: usize>(&self, at: u64) -> Result<[u8; N], String> {
        let mut bytes = [0; N];
        self.memory.read_exact_at(&mut bytes, at).context(|| "pread".into())?;
        Ok(bytes)
    }

    /// Puts descriptors from index 0 on.
    pub fn table(&self, at: u64, descs: &[Desc]) -> Result<(), String> {
        let bytes: Vec<u8> = descs.iter().flat_map(|d| d.bytes()).collect();
        self.put(at, &bytes)
    }

    /// Makes the chain at `head` available and kicks.
    pub fn offer(&mut self, head: u16) -> Result<(), String> {
        self.put(AVAIL + 4 + 2 * u64::from(self.avail % RING), &head.to_le_bytes())?;
        self.avail = self.avail.wrapping_add(1);
        self.put(AVAIL + 2, &self.avail.to_le_bytes())?;
        self.kick()
    }

    /// Kicks.
    pub fn kick(&self) -> Result<(), String> {
        rustix::io::write(&self.kick, &1u64.to_ne_bytes()).map(|_| ()).context(|| "kick".into())
    }

    /// Waits until the used index moves; the element that was added.
    pub fn completion(&mut self, limit: Duration) -> Result<Option<(u32, u32)>, String> {
        let begin = Instant::now();
        while begin.elapsed() < limit {
            if u16::from_le_bytes(self.get(USED + 2)?) != self.used {
                let element: [u8; 8] = self.get(USED + 4 + 8 * u64::from(self.used % RING))?;
                self.used = self.used.wrapping_add(1);
                let word =
                    |at: usize| u32::from_le_bytes([element[at], element[at + 1], element[at + 2], element[at + 3]]);
                return Ok(Some((word(0), word(4))));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(None)
    }

    /// The header of a request: type and sector.
    pub fn header(&self, kind: u32, sector: u64) -> Result<(), String> {
        self.put(HEADER, &[&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat())?;
        self.put(STATUS, &[0xff])
    }

    /// A read of 512 bytes from sector 0, as it should be; the status byte.
    pub fn read_sector(&mut self) -> Result<u8, String> {
        self.begin_read()?;
        let used = self.completion(Duration::from_secs(5))?.ok_or("a good request does not complete")?;
        ensure(used == (0, 513), || format!("used element {used:?} of a read of 512 bytes"))?;
        Ok(self.get::<1>(STATUS)?[0])
    }

    /// The same, not waited for.
    pub fn begin_read(&mut self) -> Result<(), String> {
        self.header(0, 0)?;
        self.table(
            DESC,
            &[
                desc(GUEST + HEADER, 16, NEXT, 1),
                desc(GUEST + DATA, 512, NEXT | WRITE, 2),
                desc(GUEST + STATUS, 1, WRITE, 0),
            ],
        )?;
        self.offer(0)
    }

    /// Whether the server closes the connection within `limit`.
    pub fn closed(&self, limit: Duration) -> bool {
        let _ = self.socket.set_read_timeout(Some(limit));
        let mut bytes = [0; 256];
        let begin = Instant::now();
        while begin.elapsed() < limit {
            let mut control = RecvAncillaryBuffer::new(&mut []);
            match recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::empty()) {
                Ok(message) if message.bytes == 0 => return true,
                Ok(_) => {}
                Err(rustix::io::Errno::CONNRESET | rustix::io::Errno::PIPE) => return true,
                Err(_) => return false,
            }
        }
        false
    }
}
