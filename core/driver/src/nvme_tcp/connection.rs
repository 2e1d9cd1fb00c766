//! One connection: ICReq, then command capsules out, data both ways, completions in.

use super::receive::{Rx, is_long_read};
use crate::TransportError;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec::Vec;
use core::marker::PhantomData;
use weir_spec::nvme::entry::SglDescriptor;
use weir_spec::nvme::tcp::{
    CapsuleCmd, CommonHeader, Digest, Fatal, Framing, H2cData, IcReq, PduType, R2t, TermReq, dgst, flags,
};
use weir_spec::nvme::{Cqe, Sqe, Status};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

/// The callers' memory: a buffer for each command identifier.
pub trait Buffers {
    /// The buffer of a command that receives; at least as long as its transfer.
    fn buffer(&mut self, cid: u16) -> &mut [u8];
    /// The buffer of a command that sends; at least as long as its transfer.
    fn bytes(&self, cid: u16) -> &[u8];
}

/// What the host wishes for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSettings {
    /// Asks for header digests.
    pub header_digest: bool,
    /// Asks for data digests.
    pub data_digest: bool,
    /// HPDA, 0-based in dwords.
    pub hpda: u8,
    /// Commands that may be outstanding, and so the range of command identifiers.
    pub depth: u16,
    /// Bytes that fit into a command capsule beside the entry: 8192 on an admin queue, by IOCCSZ on an I/O queue.
    pub in_capsule: u32,
}

/// Which way a command's data moves, and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataTransfer {
    /// No data.
    None,
    /// So many bytes into the command's buffer.
    ToHost(u32),
    /// So many bytes out of the command's buffer.
    ToController(u32),
}

/// A piece of what is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendSegment {
    /// Bytes of [`HostConnection::headers`].
    Header {
        /// First byte.
        start: usize,
        /// How many.
        len: usize,
    },
    /// Bytes of a command's buffer.
    Data {
        /// Whose.
        cid: u16,
        /// First byte.
        offset: u32,
        /// How many.
        len: u32,
    },
}

impl SendSegment {
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        match self {
            SendSegment::Header { len, .. } => *len,
            SendSegment::Data { len, .. } => *len as usize,
        }
    }

    /// No bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn advance(&mut self, n: usize) {
        match self {
            SendSegment::Header { start, len } => (*start, *len) = (*start + n, *len - n),
            SendSegment::Data { offset, len, .. } => (*offset, *len) = (*offset + n as u32, *len - n as u32),
        }
    }
}

/// A finished command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FinishedCommand {
    /// Its identifier, free again.
    pub cid: u16,
    /// The completion queue entry; made up where SUCCESS in the data stood for it.
    pub cqe: Cqe,
}

/// Why the connection is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionFailure {
    /// The controller broke the protocol; it is told so by a termination request.
    Controller(Fatal),
    /// The controller says that we broke the protocol.
    Terminated(Fatal),
}

impl From<ConnectionFailure> for TransportError {
    fn from(f: ConnectionFailure) -> Self {
        TransportError::Protocol(match f {
            ConnectionFailure::Controller(fatal) => format!("the controller broke the NVMe/TCP protocol: {fatal}"),
            ConnectionFailure::Terminated(fatal) => format!("the controller ended the connection: {fatal}"),
        })
    }
}

/// An outstanding command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outstanding {
    pub(super) active: bool,
    pub(super) transfer: DataTransfer,
    /// All data went with the capsule.
    pub(super) in_capsule: bool,
    /// Bytes received, or granted by R2Ts so far.
    pub(super) done: u32,
    /// Position in the stream behind its last byte that was queued.
    pub(super) ends: u64,
    /// A data digest was wrong.
    pub(super) damaged: bool,
}

/// The host's end of one connection.
#[derive(Debug)]
pub struct HostConnection<D> {
    pub(super) settings: HostSettings,
    pub(super) failure: Option<ConnectionFailure>,
    pub(super) running: bool,
    pub(super) commands: Vec<Outstanding>,
    pub(super) outstanding: usize,
    /// Of these, long reads.
    pub(super) long_reads: usize,
    pub(super) rx: Rx,
    pub(super) framing: Framing,
    pub(super) maxh2cdata: u32,
    headers: Vec<u8>,
    segments: VecDeque<SendSegment>,
    queued: u64,
    pub(super) sent: u64,
    pub(super) copied: usize,
    digest: PhantomData<fn() -> D>,
}

impl<D: Digest> HostConnection<D> {
    /// A new connection; its ICReq is ready to be sent.
    pub fn new(settings: HostSettings) -> Self {
        let idle = Outstanding {
            active: false,
            transfer: DataTransfer::None,
            in_capsule: false,
            done: 0,
            ends: 0,
            damaged: false,
        };
        let depth = usize::from(settings.depth.max(1));
        let mut c = Self {
            settings,
            failure: None,
            running: false,
            commands: alloc::vec![idle; depth],
            outstanding: 0,
            long_reads: 0,
            rx: Rx::default(),
            framing: Framing::PLAIN,
            maxh2cdata: 0,
            headers: Vec::with_capacity(depth * 128),
            segments: VecDeque::with_capacity(depth * 2),
            queued: 0,
            sent: 0,
            copied: 0,
            digest: PhantomData,
        };
        let wish = |on: bool, bit| if on { bit } else { 0 };
        let req = IcReq {
            ch: IcReq::CH,
            pfv: U16::new(0),
            hpda: settings.hpda,
            dgst: wish(settings.header_digest, dgst::HEADER) | wish(settings.data_digest, dgst::DATA),
            maxr2t: U32::new(0),
            reserved: [0; 112],
        };
        c.put(req.as_bytes());
        c
    }

    /// ICResp has come: commands may be submitted.
    pub fn is_running(&self) -> bool {
        self.running && self.failure.is_none()
    }

    /// What went wrong, if anything did.
    pub fn failure(&self) -> Option<ConnectionFailure> {
        self.failure
    }

    /// Commands without a completion.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Bytes that fit into a capsule; known better once the controller was identified.
    pub fn set_in_capsule(&mut self, bytes: u32) {
        self.settings.in_capsule = bytes;
    }

    /// Digests in force: header, data.
    pub fn digests(&self) -> (bool, bool) {
        (self.framing.header_digest, self.framing.data_digest)
    }

    /// Queues a command under that identifier. Sets CID and the data pointer; small data to the controller goes
    /// with the capsule.
    ///
    /// # Errors
    /// The connection failed or is not initialized, or the identifier is out of range or outstanding.
    pub fn submit<B: Buffers>(
        &mut self,
        cid: u16,
        mut sqe: Sqe,
        transfer: DataTransfer,
        buffers: &mut B,
    ) -> Result<(), TransportError> {
        if let Some(failure) = self.failure {
            return Err(failure.into());
        }
        let running = self.running;
        let slot =
            self.commands.get_mut(usize::from(cid)).filter(|c| running && !c.active).ok_or_else(|| unusable(cid))?;
        let (len, in_capsule) = match transfer {
            DataTransfer::ToController(len) => (len, len <= self.settings.in_capsule && len > 0),
            DataTransfer::ToHost(len) => (len, false),
            DataTransfer::None => (0, false),
        };
        *slot = Outstanding { active: true, transfer, in_capsule, done: 0, ends: 0, damaged: false };
        self.outstanding += 1;
        self.long_reads += usize::from(is_long_read(transfer));
        sqe.cid = U16::new(cid);
        sqe.set_sgl(SglDescriptor::new(
            if in_capsule { SglDescriptor::DATA_BLOCK_OFFSET } else { SglDescriptor::TRANSPORT_DATA_BLOCK },
            0,
            len,
        ));
        let data = if in_capsule { len } else { 0 };
        self.put_pdu(CapsuleCmd { ch: CapsuleCmd::CH, sqe }.as_bytes(), 0, cid, 0, data, buffers);
        self.note_end(cid);
        Ok(())
    }

    /// The bytes that [`SendSegment::Header`]s name.
    pub fn headers(&self) -> &[u8] {
        &self.headers
    }

    /// What is to be sent, in order.
    pub fn segments(&self) -> impl Iterator<Item = &SendSegment> {
        self.segments.iter()
    }

    /// Whether anything is to be sent.
    pub fn has_output(&self) -> bool {
        !self.segments.is_empty()
    }

    /// The socket took `n` bytes.
    pub fn sent(&mut self, mut n: usize) {
        self.sent += n as u64;
        while let Some(first) = self.segments.front_mut() {
            if first.len() > n {
                first.advance(n);
                return;
            }
            n -= first.len();
            self.segments.pop_front();
        }
        self.headers.clear();
    }

    fn put(&mut self, bytes: &[u8]) {
        let start = self.headers.len();
        self.headers.extend_from_slice(bytes);
        self.queued += bytes.len() as u64;
        match self.segments.back_mut() {
            Some(SendSegment::Header { start: s, len }) if *s + *len == start => *len += bytes.len(),
            _ => self.segments.push_back(SendSegment::Header { start, len: bytes.len() }),
        }
    }

    /// A PDU by its header (whose common header is completed here) and where its data lies.
    fn put_pdu<B: Buffers>(&mut self, header: &[u8], flag: u8, cid: u16, offset: u32, len: u32, buffers: &mut B) {
        let mut ch = CommonHeader::peek(header).unwrap_or_default();
        ch.flags |= flag;
        self.framing.fill(&mut ch, len);
        let at = self.headers.len();
        self.put(ch.as_bytes());
        self.put(header.get(size_of::<CommonHeader>()..).unwrap_or_default());
        if self.framing.header_digest && Framing::digested(ch.pdu_type()) {
            let crc = D::append(0, self.headers.get(at..).unwrap_or_default());
            self.put(&crc.to_le_bytes());
        }
        if len == 0 {
            return;
        }
        let padding = at + usize::from(ch.pdo) - self.headers.len();
        self.put([0; 128].get(..padding).unwrap_or_default());
        self.segments.push_back(SendSegment::Data { cid, offset, len });
        self.queued += u64::from(len);
        if self.framing.data_digest {
            let range = offset as usize..(offset + len) as usize;
            let crc = D::append(0, buffers.bytes(cid).get(range).unwrap_or_default());
            self.put(&crc.to_le_bytes());
        }
    }

    /// Answers an R2T that was found right: the data, in PDUs of MAXH2CDATA.
    pub(super) fn transfer<B: Buffers>(&mut self, r2t: &R2t, buffers: &mut B) {
        let (mut offset, mut left) = (r2t.r2to.get(), r2t.r2tl.get());
        let cid = r2t.cccid.get();
        while left > 0 {
            let len = left.min(self.maxh2cdata);
            left -= len;
            let pdu = H2cData {
                ch: H2cData::CH,
                cccid: r2t.cccid,
                ttag: r2t.ttag,
                datao: U32::new(offset),
                datal: U32::new(len),
                reserved: [0; 4],
            };
            let flag = if left == 0 { flags::LAST_PDU } else { 0 };
            self.put_pdu(pdu.as_bytes(), flag, cid, offset, len, buffers);
            offset += len;
        }
        self.note_end(cid);
    }

    /// What was queued so far ends with bytes of this command: until they are sent, nothing may be answered to it.
    fn note_end(&mut self, cid: u16) {
        if let Some(c) = self.commands.get_mut(usize::from(cid)) {
            c.ends = self.queued;
        }
    }

    /// The controller broke the protocol: tell it, then nothing more.
    pub(super) fn fail(&mut self, fatal: Fatal, header: &[u8]) {
        if self.failure.is_none() {
            self.failure = Some(ConnectionFailure::Controller(fatal));
            let header = header.get(..header.len().min(128)).unwrap_or_default();
            self.put(TermReq::new(PduType::H2C_TERM_REQ, fatal, header.len() as u32).as_bytes());
            self.put(header);
        }
    }

    /// The invariants.
    ///
    /// # Panics
    /// When one is broken.
    pub fn check(&self) {
        let active = self.commands.iter().filter(|c| c.active).count();
        assert_eq!(active, self.outstanding, "outstanding commands are counted");
        let long = self.commands.iter().filter(|c| c.active && is_long_read(c.transfer)).count();
        assert_eq!(long, self.long_reads, "long reads are counted");
        let waiting: u64 = self.segments.iter().map(|s| s.len() as u64).sum();
        assert_eq!(self.sent + waiting, self.queued, "what was queued was sent or is a segment");
        for s in &self.segments {
            if let SendSegment::Header { start, len } = s {
                assert!(start + len <= self.headers.len(), "segments lie in the headers");
            }
        }
    }

    /// Ends a command.
    pub(super) fn complete(&mut self, cid: u16, mut cqe: Cqe, out: &mut Vec<FinishedCommand>) {
        let Some(c) = self.commands.get_mut(usize::from(cid)) else { return };
        c.active = false;
        self.outstanding -= 1;
        self.long_reads -= usize::from(is_long_read(c.transfer));
        if cqe.status().is_success() {
            if c.damaged {
                cqe.set_status(Status::TRANSIENT_TRANSPORT_ERROR);
            } else if matches!(c.transfer, DataTransfer::ToHost(len) if len != c.done) {
                cqe.set_status(Status::DATA_TRANSFER_ERROR);
            }
        }
        out.push(FinishedCommand { cid, cqe });
    }
}

#[cold]
fn unusable(cid: u16) -> TransportError {
    TransportError::Usage(format!("command identifier {cid} cannot be used now"))
}
