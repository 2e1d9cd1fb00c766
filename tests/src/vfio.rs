//! An NVMe driver by hand (NVM Express base 2.0) over rust-vmm's vfio-user client: it shares no code with Weir's driver, its
//! server or its wire structures.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use vfio_user::Client;
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory};

use crate::harness::{Context, Outcome, ensure};

/// DMA address of the memory's first byte.
pub const BASE: u64 = 0x2_0000_0000;
/// Bytes of memory.
const MEMORY: u64 = 64 << 20;
/// A memory page.
pub const PAGE: u64 = 4096;
/// How long a controller may take for anything.
const CONTROLLER_TIMEOUT: Duration = Duration::from_secs(20);
/// Region indices of vfio.
const BAR0: u32 = 0;
const CONFIG: u32 = 7;
/// Where doorbells begin in BAR 0.
const DOORBELLS: u64 = 0x1000;

/// Registers (base 2.0, 3.1.3).
pub mod reg {
    pub const CC: u64 = 0x14;
    pub const CSTS: u64 = 0x1c;
    pub const AQA: u64 = 0x24;
    pub const ASQ: u64 = 0x28;
    pub const ACQ: u64 = 0x30;
    pub const NSSR: u64 = 0x20;
    pub const CMBLOC: u64 = 0x38;
    pub const CMBSZ: u64 = 0x3c;
    pub const CMBMSC: u64 = 0x50;
    pub const CMBSTS: u64 = 0x58;
}

/// CC.AMS.
pub mod ams {
    pub const ROUND_ROBIN: u32 = 0;
    pub const WEIGHTED: u32 = 1;
    pub const VENDOR: u32 = 7;
}

/// QPRIO.
pub mod qprio {
    pub const URGENT: u32 = 0;
    pub const HIGH: u32 = 1;
    pub const MEDIUM: u32 = 2;
    pub const LOW: u32 = 3;
}

/// A command's sixteen words; [`Queue::submit`] writes the command identifier.
pub type Command = [u32; 16];

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    pub cid: u16,
    /// DW0.
    pub result: u32,
    /// Status code type and status code; 0 is success.
    pub status: u16,
    pub sqhd: u16,
}

/// A command for namespace 1 with PRP entries.
pub fn command(opcode: u8, prp: (u64, u64), words: &[(usize, u32)]) -> Command {
    let mut c = [0; 16];
    c[0] = u32::from(opcode);
    c[1] = 1;
    for (i, word) in [prp.0, prp.1].into_iter().enumerate() {
        c[6 + 2 * i] = word as u32;
        c[7 + 2 * i] = (word >> 32) as u32;
    }
    for (i, word) in words {
        c[*i] = *word;
    }
    c
}

/// Read (02h) or write (01h) of `blocks` at `lba`.
pub fn io(opcode: u8, lba: u64, blocks: u32, prp: (u64, u64)) -> Command {
    command(opcode, prp, &[(10, lba as u32), (11, (lba >> 32) as u32), (12, blocks - 1)])
}

/// The host's end of a submission and a completion queue.
#[derive(Debug)]
pub struct Queue {
    pub qid: u16,
    pub entries: u32,
    sq: u64,
    cq: u64,
    pub tail: u32,
    head: u32,
    phase: bool,
}

impl Queue {
    /// Puts a command into the queue; the doorbell is rung by [`Drive::ring`].
    pub fn submit(&mut self, drive: &Drive, cid: u16, mut command: Command) -> Outcome {
        command[0] |= u32::from(cid) << 16;
        let bytes: Vec<u8> = command.iter().flat_map(|w| w.to_le_bytes()).collect();
        drive.write(self.sq + u64::from(self.tail) * 64, &bytes)?;
        self.tail = (self.tail + 1) % self.entries;
        Ok(())
    }

    /// The next completion, if there is one.
    pub fn take(&mut self, drive: &Drive) -> Result<Option<Completion>, String> {
        let at = self.cq + u64::from(self.head) * 16;
        let last: u32 = drive.load(at + 12)?;
        if (last >> 16 & 1 == 1) != self.phase {
            return Ok(None);
        }
        let (result, middle) = (drive.load(at)?, drive.load(at + 8)?);
        self.head += 1;
        if self.head == self.entries {
            (self.head, self.phase) = (0, !self.phase);
        }
        ensure(middle >> 16 == u32::from(self.qid), || format!("a completion of queue {}", middle >> 16))?;
        Ok(Some(Completion { cid: last as u16, result, status: (last >> 17 & 0x7ff) as u16, sqhd: middle as u16 }))
    }
}

/// A drive with a client that does everything by hand.
pub struct Drive {
    pub client: Client,
    /// All doorbells, where the server lets them be mapped.
    doorbells: Option<MmapRegion>,
    memory: MmapRegion,
    file: File,
    /// The controller memory buffer: where the drive sees it, and its mapping.
    buffer: Option<(u64, MmapRegion)>,
    admin: Queue,
    /// The first byte of memory that nobody has.
    free: u64,
    /// Completions of Asynchronous Event Requests that came while something else was awaited.
    pub events: Vec<Completion>,
}

impl Drive {
    /// Connects, hands over the memory, and switches memory space and bus master on. The controller is not enabled.
    pub fn connect(path: &Path) -> Result<Self, String> {
        let mut client = Client::new(path).context(|| path.display().to_string())?;
        let mut header = [0; 64];
        client.region_read(CONFIG, 0, &mut header).context(|| "configuration space".into())?;
        ensure(header[9..12] == [2, 8, 1], || format!("class code {:02x?} is not NVMe's", &header[9..12]))?;
        client.region_write(CONFIG, 4, &0x0406u16.to_le_bytes()).context(|| "command register".into())?;
        let file = File::from(memfd_create("vfio-client", MemfdFlags::CLOEXEC).context(|| "memory".into())?);
        ftruncate(&file, MEMORY).context(|| "memory".into())?;
        client.dma_map(0, BASE, MEMORY, file.as_raw_fd()).context(|| "DMA_MAP".into())?;
        let doorbells = doorbells(&client)?;
        let memory = map(file.try_clone().context(|| "memory".into())?, 0, MEMORY)?;
        let admin = Queue { qid: 0, entries: 32, sq: BASE, cq: BASE + PAGE, tail: 0, head: 0, phase: true };
        let (free, events) = (BASE + 2 * PAGE, Vec::new());
        Ok(Self { client, doorbells, memory, file, buffer: None, admin, free, events })
    }

    /// Connects, after the client before may have needed a moment to be gone, and enables.
    pub fn ready(path: &Path, ams: u32) -> Result<Self, String> {
        let mut drive = in_turn(|| Self::connect(path))?;
        drive.enable(ams)?;
        Ok(drive)
    }

    /// Whether doorbells are mapped.
    pub fn is_mapped(&self) -> bool {
        self.doorbells.is_some()
    }

    /// The memory's file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// That many bytes of memory that nobody has, from the beginning of a page.
    pub fn allocate(&mut self, bytes: u64) -> u64 {
        let at = self.free;
        self.free += bytes.next_multiple_of(PAGE);
        assert!(self.free <= BASE + MEMORY, "this test wants too much memory");
        at
    }

    /// What an address is in, and where: the memory buffer, or memory.
    fn place(&self, address: u64) -> Result<(vm_memory::VolatileSlice<'_, ()>, usize), String> {
        let (base, region) = match &self.buffer {
            Some((base, buffer)) if (*base..*base + buffer.size() as u64).contains(&address) => (*base, buffer),
            _ => (BASE, &self.memory),
        };
        let slice = region.get_slice(0, region.size()).context(|| "memory".into())?;
        Ok((slice, address.wrapping_sub(base) as usize))
    }

    /// Writes memory.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Outcome {
        let (slice, at) = self.place(address)?;
        slice.write_slice(bytes, at).context(|| format!("memory at {address:#x}"))
    }

    /// Reads memory.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Outcome {
        let (slice, at) = self.place(address)?;
        slice.read_slice(into, at).context(|| format!("memory at {address:#x}"))
    }

    fn load(&self, address: u64) -> Result<u32, String> {
        let (slice, at) = self.place(address)?;
        slice.load(at, Ordering::Acquire).map(u32::from_le).context(|| format!("memory at {address:#x}"))
    }

    /// Maps BAR 2, whose bytes the drive is to see from `base` on; its length.
    pub fn map_buffer(&mut self, base: u64) -> Result<u64, String> {
        let bar = self.client.region(2).ok_or("there is no BAR 2")?;
        let (file, len) = (bar.file_offset.as_ref().ok_or("BAR 2 cannot be mapped")?, bar.size);
        let file_of = file.file().try_clone().context(|| "BAR 2".into())?;
        self.buffer = Some((base, map(file_of, file.start(), len)?));
        Ok(len)
    }

    /// A register of 4 bytes.
    pub fn register(&mut self, offset: u64) -> Result<u32, String> {
        let mut bytes = [0; 4];
        self.client.region_read(BAR0, offset, &mut bytes).context(|| format!("register {offset:#x}"))?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Writes a register of 4 or 8 bytes.
    pub fn set_register(&mut self, offset: u64, bytes: &[u8]) -> Outcome {
        self.client.region_write(BAR0, offset, bytes).context(|| format!("register {offset:#x}"))
    }

    /// Rings a doorbell with any value.
    pub fn doorbell(&mut self, qid: u16, head: bool, value: u32) -> Outcome {
        let offset = 8 * u64::from(qid) + if head { 4 } else { 0 };
        match &self.doorbells {
            Some(mapped) => {
                let slice = mapped.get_slice(offset as usize, 4).context(|| "doorbell".into())?;
                slice.store(value.to_le(), 0, Ordering::SeqCst).context(|| "doorbell".into())
            }
            None => self.set_register(DOORBELLS + offset, &value.to_le_bytes()),
        }
    }

    /// Tells the controller what was submitted to a queue and taken from it.
    pub fn ring(&mut self, queue: &Queue) -> Outcome {
        self.doorbell(queue.qid, true, queue.head)?;
        self.doorbell(queue.qid, false, queue.tail)
    }

    /// Waits for CSTS.RDY to become so.
    pub fn await_ready(&mut self, want: bool) -> Outcome {
        let begin = Instant::now();
        loop {
            let csts = self.register(reg::CSTS)?;
            ensure(csts & 2 == 0, || format!("CSTS {csts:#x}: fatal"))?;
            if (csts & 1 == 1) == want {
                return Ok(());
            }
            ensure(begin.elapsed() < CONTROLLER_TIMEOUT, || format!("CSTS.RDY does not become {want}"))?;
        }
    }

    /// CC.EN = 0, and waits for it.
    pub fn disable(&mut self) -> Outcome {
        let cc = self.register(reg::CC)?;
        self.set_register(reg::CC, &(cc & !1).to_le_bytes())?;
        self.await_ready(false)
    }

    /// Enables the controller anew with fresh admin queues.
    pub fn enable(&mut self, ams: u32) -> Outcome {
        self.disable()?;
        self.write(BASE, &[0; 2 * PAGE as usize])?;
        (self.admin.tail, self.admin.head, self.admin.phase) = (0, 0, true);
        self.set_register(reg::AQA, &(31u32 << 16 | 31).to_le_bytes())?;
        self.set_register(reg::ASQ, &self.admin.sq.to_le_bytes())?;
        self.set_register(reg::ACQ, &self.admin.cq.to_le_bytes())?;
        // IOSQES 64 bytes, IOCQES 16 bytes.
        let cc = 6 << 16 | 4 << 20 | ams << 11 | 1;
        self.set_register(reg::CC, &cc.to_le_bytes())?;
        self.await_ready(true)
    }

    /// Submits an admin command without waiting for it.
    pub fn submit_admin(&mut self, cid: u16, command: Command) -> Outcome {
        let mut admin = std::mem::replace(&mut self.admin, NOBODY);
        let submitted = admin.submit(self, cid, command).and_then(|()| self.ring(&admin));
        self.admin = admin;
        submitted
    }

    /// The next completion of an admin command, within some time.
    pub fn admin_completion(&mut self, within: Duration) -> Result<Option<Completion>, String> {
        let mut admin = std::mem::replace(&mut self.admin, NOBODY);
        let found = self.await_completion(&mut admin, within);
        self.admin = admin;
        found
    }

    /// The next completion of a queue, within some time.
    pub fn await_completion(&mut self, queue: &mut Queue, within: Duration) -> Result<Option<Completion>, String> {
        let begin = Instant::now();
        loop {
            if let Some(done) = queue.take(self)? {
                self.doorbell(queue.qid, true, queue.head)?;
                return Ok(Some(done));
            }
            if begin.elapsed() > within {
                return Ok(None);
            }
            std::hint::spin_loop();
        }
    }

    /// An admin command and its completion, whatever that says. No others may be outstanding but Asynchronous Event Requests, from
    /// [`EVENT`] on.
    pub fn admin(&mut self, command: Command) -> Result<Completion, String> {
        self.submit_admin(0x77, command)?;
        loop {
            let done = self.admin_completion(CONTROLLER_TIMEOUT)?;
            let done = done.ok_or_else(|| format!("admin command {:#04x} does not complete", command[0] & 0xff))?;
            match done.cid {
                0x77 => return Ok(done),
                EVENT.. => self.events.push(done),
                cid => return Err(format!("completion of command {cid:#x}")),
            }
        }
    }

    /// An admin command that has to succeed.
    pub fn admin_ok(&mut self, command: Command) -> Result<u32, String> {
        let done = self.admin(command)?;
        ensure(done.status == 0, || format!("admin command {:#04x}: status {:#x}", command[0] & 0xff, done.status))?;
        Ok(done.result)
    }

    /// Set Features with a value and, where it has one, two more words.
    pub fn set_feature(&mut self, fid: u32, values: [u32; 3]) -> Outcome {
        let [a, b, c] = values;
        self.admin_ok(command(0x09, (0, 0), &[(1, 0), (10, fid), (11, a), (12, b), (13, c)])).map(|_| ())
    }

    /// Creates a queue pair; with a vector its completion queue has interrupts.
    pub fn create_queue(
        &mut self,
        qid: u16,
        entries: u32,
        priority: u32,
        vector: Option<u16>,
    ) -> Result<Queue, String> {
        let (sq, cq) = (self.allocate(u64::from(entries) * 64), self.allocate(u64::from(entries) * 16));
        self.create_queue_at((sq, cq), qid, entries, priority, vector)
    }

    /// The same in memory that the caller has.
    pub fn create_queue_at(
        &mut self,
        (sq, cq): (u64, u64),
        qid: u16,
        entries: u32,
        priority: u32,
        vector: Option<u16>,
    ) -> Result<Queue, String> {
        self.write(cq, &vec![0; entries as usize * 16])?;
        let size = (entries - 1) << 16 | u32::from(qid);
        let interrupts = vector.map_or(0, |v| u32::from(v) << 16 | 2);
        self.admin_ok(command(0x05, (cq, 0), &[(1, 0), (10, size), (11, interrupts | 1)]))?;
        let flags = u32::from(qid) << 16 | priority << 1 | 1;
        self.admin_ok(command(0x01, (sq, 0), &[(1, 0), (10, size), (11, flags)]))?;
        Ok(Queue { qid, entries, sq, cq, tail: 0, head: 0, phase: true })
    }

    /// Deletes a queue pair.
    pub fn delete_queue(&mut self, queue: &Queue) -> Outcome {
        for opcode in [0x00, 0x04] {
            self.admin_ok(command(opcode, (0, 0), &[(1, 0), (10, queue.qid.into())]))?;
        }
        Ok(())
    }

    /// One I/O command and its status.
    pub fn io(&mut self, queue: &mut Queue, command: Command) -> Result<u16, String> {
        queue.submit(self, 0x55, command)?;
        self.ring(queue)?;
        let done = self.await_completion(queue, CONTROLLER_TIMEOUT)?.ok_or("an I/O command does not complete")?;
        ensure(done.cid == 0x55, || format!("completion of command {:#x}", done.cid))?;
        Ok(done.status)
    }

    /// PRP entries for `bytes` at any address; a list, where one is needed, is written to `list`.
    pub fn prp(&self, address: u64, bytes: u64, list: u64) -> Result<(u64, u64), String> {
        let first = PAGE - address % PAGE;
        let mut rest: Vec<u64> = Vec::new();
        let mut at = address + first;
        while at < address + bytes {
            rest.push(at);
            at += PAGE;
        }
        match rest.as_slice() {
            [] => Ok((address, 0)),
            [one] => Ok((address, *one)),
            many => {
                self.write(list, &many.iter().flat_map(|e| e.to_le_bytes()).collect::<Vec<u8>>())?;
                Ok((address, list))
            }
        }
    }
}

/// The first command identifier of Asynchronous Event Requests.
pub const EVENT: u16 = 0x900;

/// One client at a time: tries for as long as the one before may need to be gone.
pub fn in_turn<T>(open: impl Fn() -> Result<T, String>) -> Result<T, String> {
    let begin = Instant::now();
    loop {
        match open() {
            Ok(client) => return Ok(client),
            Err(e) if begin.elapsed() > Duration::from_secs(5) => {
                return Err(format!("the next client is not served: {e}"));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Stands where the admin queue is while it is in use.
const NOBODY: Queue = Queue { qid: 0, entries: 1, sq: 0, cq: 0, tail: 0, head: 0, phase: true };

fn map(file: File, offset: u64, len: u64) -> Result<MmapRegion, String> {
    MmapRegion::from_file(FileOffset::new(file, offset), len as usize).context(|| "mmap".into())
}

/// The doorbells, if an area of BAR 0 has them at its beginning.
fn doorbells(client: &Client) -> Result<Option<MmapRegion>, String> {
    let bar = client.region(BAR0).ok_or("there is no BAR 0")?;
    let Some(file) = &bar.file_offset else { return Ok(None) };
    let Some(area) = bar.sparse_areas.iter().find(|a| a.offset == DOORBELLS) else { return Ok(None) };
    let file_of = file.file().try_clone().context(|| "doorbells".into())?;
    map(file_of, file.start() + area.offset, area.size).map(Some)
}
