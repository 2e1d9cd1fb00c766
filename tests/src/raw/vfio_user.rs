//! A vfio-user client by hand (protocol 0.1, QEMU's docs/interop/vfio-user.rst) with the admin queues of an NVMe controller in a memory
//! file that is read and written by system calls: no mapping, so nothing here needs unsafe code. Doorbells are messages.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv,
    recvmsg, sendmsg,
};

use crate::harness::{Context, Outcome, ensure};

/// Commands of the protocol.
pub mod cmd {
    pub const VERSION: u16 = 1;
    pub const DMA_MAP: u16 = 2;
    pub const DMA_UNMAP: u16 = 3;
    pub const DEVICE_GET_INFO: u16 = 4;
    pub const DEVICE_GET_REGION_INFO: u16 = 5;
    pub const DEVICE_GET_REGION_IO_FDS: u16 = 6;
    pub const DEVICE_GET_IRQ_INFO: u16 = 7;
    pub const DEVICE_SET_IRQS: u16 = 8;
    pub const REGION_READ: u16 = 9;
    pub const REGION_WRITE: u16 = 10;
    pub const DMA_READ: u16 = 11;
    pub const DMA_WRITE: u16 = 12;
    pub const DEVICE_RESET: u16 = 13;
    pub const REGION_WRITE_MULTI: u16 = 15;
    pub const MIG_DATA_WRITE: u16 = 18;
}

/// DMA address of the memory file's first byte.
pub const DMA: u64 = 0x4_0000_0000;
/// Bytes of it.
pub const MEMORY: u64 = 1 << 20;
/// Offsets in the memory file: admin queues of 16 entries, a page for what Identify says.
pub const ASQ: u64 = 0;
pub const ACQ: u64 = 0x1000;
pub const DATA: u64 = 0x2000;
/// Entries of the admin queues.
pub const ENTRIES: u32 = 16;
/// Length of a header.
pub const HEADER: usize = 16;

/// Little-endian words of 32 bits one after the other.
pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// A message without its descriptors.
pub fn message(id: u16, command: u16, payload: &[u8]) -> Vec<u8> {
    let head = [u32::from(id) | u32::from(command) << 16, (HEADER + payload.len()) as u32, 0, 0];
    [words(&head), payload.to_vec()].concat()
}

/// VERSION 0.1 with these capabilities.
pub fn version(json: &str) -> Vec<u8> {
    [words(&[1 << 16]), json.as_bytes().to_vec(), vec![0]].concat()
}

/// The payload of DMA_MAP (32 bytes) for reading and writing.
pub fn dma_map(offset: u64, address: u64, size: u64) -> Vec<u8> {
    [words(&[32, 3]), [offset, address, size].iter().flat_map(|w| w.to_le_bytes()).collect()].concat()
}

/// The payload of DMA_UNMAP.
pub fn dma_unmap(flags: u32, address: u64, size: u64) -> Vec<u8> {
    [words(&[24, flags]), [address, size].iter().flat_map(|w| w.to_le_bytes()).collect()].concat()
}

/// What begins REGION_READ and REGION_WRITE.
pub fn access(region: u32, offset: u64, count: u32) -> Vec<u8> {
    [offset.to_le_bytes().to_vec(), words(&[region, count])].concat()
}

/// The payload of REGION_WRITE.
pub fn write(region: u32, offset: u64, bytes: &[u8]) -> Vec<u8> {
    [access(region, offset, bytes.len() as u32), bytes.to_vec()].concat()
}

/// The payload of DEVICE_SET_IRQS.
pub fn set_irqs(flags: u32, index: u32, start: u32, count: u32) -> Vec<u8> {
    words(&[20, flags, index, start, count])
}

/// How a client takes the server's requests for its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// It does what is asked.
    AtOnce,
    /// It keeps them for [`Client::answer_held`].
    Later,
    /// It says no, with this error number.
    Refuse(u32),
    /// It says nothing.
    Never,
}

/// Memory of a client that the server reaches by messages only.
pub struct Far {
    base: u64,
    bytes: Vec<u8>,
    pub manner: Manner,
    /// Requests so far, and the most bytes of one.
    pub asked: usize,
    pub longest: usize,
    held: Vec<([u32; 4], Vec<u8>)>,
}

impl Far {
    /// Zeroes at a DMA address.
    pub fn new(base: u64, len: u64) -> Self {
        Self { base, bytes: vec![0; len as usize], manner: Manner::AtOnce, asked: 0, longest: 0, held: Vec::new() }
    }

    /// Does what is asked: the payload of the reply, or an error number.
    fn obey(&mut self, head: [u32; 4], payload: &[u8]) -> Result<Vec<u8>, u32> {
        let word = |at: usize| payload.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
        let (Some(address), Some(count)) = (word(0), word(8)) else { return Err(22) };
        self.longest = self.longest.max(count as usize);
        let at = address.checked_sub(self.base).ok_or(14u32)? as usize;
        let bytes = self.bytes.get_mut(at..at + count as usize).ok_or(14u32)?;
        let mut reply = payload[..16].to_vec();
        match (head[0] >> 16) as u16 {
            cmd::DMA_READ => reply.extend_from_slice(bytes),
            cmd::DMA_WRITE if payload.len() - 16 == bytes.len() => bytes.copy_from_slice(&payload[16..]),
            _ => return Err(22),
        }
        Ok(reply)
    }
}

/// A connected client.
pub struct Client {
    /// Memory that has no descriptor.
    pub far: Option<Far>,
    socket: UnixStream,
    /// The memory that the server may map.
    pub memory: File,
    id: u16,
    tail: u32,
    head: u32,
    phase: u8,
}

impl Client {
    /// Connects; nothing was said yet.
    pub fn open(path: &Path) -> Result<Self, String> {
        let socket = UnixStream::connect(path).context(|| format!("connect {}", path.display()))?;
        let limit = Some(Duration::from_secs(5));
        socket.set_read_timeout(limit).and_then(|()| socket.set_write_timeout(limit)).context(|| "timeouts".into())?;
        let memory: File = memfd_create("e2e", MemfdFlags::CLOEXEC).context(|| "memfd".into())?.into();
        memory.set_len(MEMORY).context(|| "memfd".into())?;
        Ok(Self { far: None, socket, memory, id: 0, tail: 0, head: 0, phase: 1 })
    }

    /// Sends bytes with descriptors.
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Outcome {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(fds));
        }
        let sent = sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
        ensure(sent.context(|| "sendmsg".into())? == bytes.len(), || "half a message was sent".into())
    }

    /// Waits for the next reply of the server: its header's words, and its payload. Its requests are taken meanwhile.
    pub fn receive(&mut self) -> Result<([u32; 4], Vec<u8>), String> {
        loop {
            let (head, payload) = self.message()?;
            if head[2] & 0xf != 0 {
                return Ok((head, payload));
            }
            self.take(head, payload)?;
        }
    }

    /// Takes what the server has asked by now. That the connection is over is for somebody else to find.
    pub fn serve(&mut self) -> Outcome {
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        while poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&none)).context(|| "poll".into())? > 0 {
            let Ok((head, payload)) = self.message() else { return Ok(()) };
            ensure(head[2] & 0xf == 0, || format!("{head:x?} answers nothing"))?;
            self.take(head, payload)?;
        }
        Ok(())
    }

    fn take(&mut self, head: [u32; 4], payload: Vec<u8>) -> Outcome {
        let Some(far) = &mut self.far else { return self.reply(head, Err(95)) };
        far.asked += 1;
        match far.manner {
            Manner::AtOnce => {
                let answer = far.obey(head, &payload);
                self.reply(head, answer)
            }
            Manner::Refuse(errno) => self.reply(head, Err(errno)),
            Manner::Later | Manner::Never => {
                far.held.push((head, payload));
                Ok(())
            }
        }
    }

    /// Does what was asked and kept, last first; how many requests there were.
    pub fn answer_held(&mut self) -> Result<usize, String> {
        self.serve()?;
        let held = self.far.as_mut().map(|far| std::mem::take(&mut far.held)).unwrap_or_default();
        let count = held.len();
        for (head, payload) in held.into_iter().rev() {
            let answer = self.far.as_mut().map_or(Err(95), |far| far.obey(head, &payload));
            self.reply(head, answer)?;
        }
        Ok(count)
    }

    fn reply(&self, head: [u32; 4], answer: Result<Vec<u8>, u32>) -> Outcome {
        let (flags, error, payload) = match answer {
            Ok(payload) => (1, 0, payload),
            Err(errno) => (0x21, errno, Vec::new()),
        };
        let head = words(&[head[0], (HEADER + payload.len()) as u32, flags, error]);
        self.send(&[head, payload].concat(), &[])
    }

    /// Bytes of the memory that has no descriptor.
    pub fn far_bytes(&mut self, at: u64, len: usize) -> Result<&mut [u8], String> {
        let far = self.far.as_mut().and_then(|far| far.bytes.get_mut(at as usize..at as usize + len));
        far.ok_or_else(|| format!("{len} bytes at {at:#x} of memory without a descriptor"))
    }

    /// The file of the doorbells, which lie where they lie in BAR 0.
    pub fn doorbells(&mut self) -> Result<File, String> {
        self.id = self.id.wrapping_add(1);
        self.send(&message(self.id, cmd::DEVICE_GET_REGION_INFO, &words(&[64, 0, 0, 0, 0, 0, 0, 0])), &[])?;
        let mut bytes = [0; HEADER + 64];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let into = &mut [IoSliceMut::new(&mut bytes)];
        recvmsg(&self.socket, into, &mut control, RecvFlags::WAITALL).context(|| "region info".into())?;
        let fds =
            control.drain().filter_map(|m| if let RecvAncillaryMessage::ScmRights(fds) = m { Some(fds) } else { None });
        fds.flatten().next().map(File::from).ok_or_else(|| "the doorbells cannot be mapped".into())
    }

    /// Writes a doorbell by a message.
    pub fn ring(&mut self, at: u64, value: u32) -> Outcome {
        self.ok(cmd::REGION_WRITE, &write(0, at, &value.to_le_bytes()), &[]).map(|_| ())
    }

    /// The next message of the server: its header's words, and its payload. Descriptors are dropped.
    fn message(&mut self) -> Result<([u32; 4], Vec<u8>), String> {
        let mut head = [0; HEADER];
        self.socket.read_exact(&mut head).context(|| "no message".into())?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let words = [word(0), word(4), word(8), word(12)];
        let len = (words[1] as usize).checked_sub(HEADER).filter(|n| *n <= 1 << 20);
        let mut payload = vec![0; len.ok_or_else(|| format!("a message of {} bytes", words[1]))?];
        self.socket.read_exact(&mut payload).context(|| "half a message".into())?;
        Ok((words, payload))
    }

    /// A command and its reply: the error number, or 0 and the payload.
    pub fn call(&mut self, command: u16, payload: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(u32, Vec<u8>), String> {
        self.id = self.id.wrapping_add(1);
        self.send(&message(self.id, command, payload), fds)?;
        let (head, payload) = self.receive().map_err(|e| format!("command {command}: {e}"))?;
        let wanted = u32::from(self.id) | u32::from(command) << 16;
        ensure(head[0] == wanted && head[2] & 0xf == 1, || format!("{head:x?} answers command {command}"))?;
        if head[2] & 0x20 == 0 {
            return Ok((0, payload));
        }
        ensure(head[3] != 0 && payload.is_empty(), || format!("{head:x?} with {} bytes is an error", payload.len()))?;
        Ok((head[3], payload))
    }

    /// A command that has to succeed.
    pub fn ok(&mut self, command: u16, payload: &[u8], fds: &[BorrowedFd<'_>]) -> Result<Vec<u8>, String> {
        let (errno, payload) = self.call(command, payload, fds)?;
        ensure(errno == 0, || format!("command {command} fails with error {errno}"))?;
        Ok(payload)
    }

    /// The messages of an orderly start, up to CC.EN, each with the descriptor that goes with it.
    pub fn setup_messages(&self) -> Vec<(Vec<u8>, Option<BorrowedFd<'_>>)> {
        self.setup_messages_as(&version("{\"capabilities\":{\"max_msg_fds\":8}}"))
    }

    /// The same with another version.
    fn setup_messages_as(&self, version: &[u8]) -> Vec<(Vec<u8>, Option<BorrowedFd<'_>>)> {
        let entries = ENTRIES - 1;
        let register = |id, at, bytes: &[u8]| (message(id, cmd::REGION_WRITE, &write(0, at, bytes)), None);
        vec![
            (message(1, cmd::VERSION, version), None),
            (message(2, cmd::DEVICE_GET_INFO, &words(&[16, 0, 0, 0])), None),
            (message(3, cmd::DEVICE_GET_REGION_INFO, &words(&[32, 0, 0, 0, 0, 0, 0, 0])), None),
            (message(4, cmd::DEVICE_GET_IRQ_INFO, &words(&[16, 0, 2, 0])), None),
            (message(5, cmd::REGION_WRITE, &write(7, 4, &[6, 4])), None),
            (message(6, cmd::DMA_MAP, &dma_map(0, DMA, MEMORY)), Some(self.memory.as_fd())),
            register(7, 0x24, &words(&[entries << 16 | entries])),
            register(8, 0x28, &(DMA + ASQ).to_le_bytes()),
            register(9, 0x30, &(DMA + ACQ).to_le_bytes()),
            register(10, 0x14, &words(&[6 << 16 | 4 << 20 | 1])),
        ]
    }

    /// Connects and enables the controller.
    pub fn ready(path: &Path) -> Result<Self, String> {
        Self::ready_as(path, &version("{\"capabilities\":{\"max_msg_fds\":8}}"))
    }

    /// The same with another version.
    pub fn ready_as(path: &Path, version: &[u8]) -> Result<Self, String> {
        let mut client = Self::open(path)?;
        let messages: Vec<_> =
            client.setup_messages_as(version).into_iter().map(|(bytes, fd)| (bytes, fd.is_some())).collect();
        for (bytes, memory) in messages {
            let fds = if memory { vec![client.memory.as_fd()] } else { Vec::new() };
            client.send(&bytes, &fds)?;
            let (head, _) = client.receive()?;
            ensure(head[2] & 0x2f == 1, || format!("{head:x?} answers {:02x?}", &bytes[..HEADER]))?;
        }
        client.id = 100;
        let begin = Instant::now();
        while client.register(0x1c)? & 1 == 0 {
            ensure(begin.elapsed() < Duration::from_secs(10), || "the controller does not become ready".into())?;
        }
        Ok(client)
    }

    /// A controller register.
    pub fn register(&mut self, offset: u64) -> Result<u32, String> {
        let payload = self.ok(cmd::REGION_READ, &access(0, offset, 4), &[])?;
        let bytes = payload.get(16..20).and_then(|b| b.try_into().ok());
        bytes.map(u32::from_le_bytes).ok_or_else(|| format!("a register of {} bytes", payload.len()))
    }

    /// Writes into the memory file.
    pub fn put(&self, at: u64, bytes: &[u8]) -> Outcome {
        self.memory.write_all_at(bytes, at).context(|| "pwrite".into())
    }

    /// Reads from the memory file.
    pub fn get<const N: usize>(&self, at: u64) -> Result<[u8; N], String> {
        let mut bytes = [0; N];
        self.memory.read_exact_at(&mut bytes, at).context(|| "pread".into())?;
        Ok(bytes)
    }

    /// Submits an admin command: opcode, NSID, PRP1 and PRP2, CDW10 and CDW11.
    pub fn submit(&mut self, opcode: u8, prp: [u64; 2], cdw: [u32; 2]) -> Outcome {
        let mut entry = words(&[u32::from(opcode) | 0x77 << 16, 0, 0, 0, 0, 0]);
        entry.extend(prp.iter().flat_map(|p| p.to_le_bytes()));
        entry.extend(words(&[cdw[0], cdw[1], 0, 0, 0, 0]));
        self.put(ASQ + u64::from(self.tail) * 64, &entry)?;
        self.tail = (self.tail + 1) % ENTRIES;
        let tail = write(0, 0x1000, &self.tail.to_le_bytes());
        self.ok(cmd::REGION_WRITE, &tail, &[]).map(|_| ())
    }

    /// The status of the next admin completion, within some time.
    pub fn completion(&mut self, limit: Duration) -> Result<Option<u16>, String> {
        let begin = Instant::now();
        while begin.elapsed() < limit {
            self.serve()?;
            let entry: [u8; 16] = self.get(ACQ + u64::from(self.head) * 16)?;
            if entry[14] & 1 == self.phase {
                self.head = (self.head + 1) % ENTRIES;
                self.phase ^= u8::from(self.head == 0);
                let head = write(0, 0x1004, &self.head.to_le_bytes());
                self.ok(cmd::REGION_WRITE, &head, &[])?;
                return Ok(Some(u16::from_le_bytes([entry[14], entry[15]]) >> 1));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(None)
    }

    /// Identify Controller, as it should be.
    pub fn identify(&mut self) -> Outcome {
        self.put(DATA, &[0; 64])?;
        self.submit(0x06, [DMA + DATA, 0], [1, 0])?;
        let status = self.completion(Duration::from_secs(30))?.ok_or("Identify does not complete")?;
        let model: [u8; 4] = self.get(DATA + 24)?;
        ensure(status == 0 && model != [0; 4], || format!("Identify: status {status:#x}, model {model:02x?}"))
    }

    /// Whether the server has closed the connection, and all that it had sent was taken.
    pub fn is_over(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match recv(&self.socket, &mut [0; 1][..], flags) {
            Ok((_, count)) => count == 0,
            Err(e) => e != rustix::io::Errno::AGAIN,
        }
    }

    /// Whether the server closes the connection within `limit`.
    pub fn closed(&self, limit: Duration) -> bool {
        let _ = self.socket.set_read_timeout(Some(limit));
        let begin = Instant::now();
        let mut bytes = [0; 4096];
        while begin.elapsed() < limit {
            match (&self.socket).read(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(e) => {
                    return matches!(e.kind(), std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe);
                }
            }
        }
        false
    }
}
