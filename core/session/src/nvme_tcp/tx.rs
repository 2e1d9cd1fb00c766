//! The bytes on their way to the host: one stretch of memory that PDUs are appended to and the socket drains.
//!
//! Read data is copied once, from the medium to its place behind the C2HData header; the header is written when the PDU
//! is sealed, because only the command's end knows LAST_PDU and SUCCESS. An unsealed PDU is always the last one and is not
//! given to the socket; where another command needs the place before all its data has come, it is taken back, so that a
//! read is one PDU up to the limit that the settings have.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::marker::PhantomData;
use weir_spec::nvme::tcp::{C2hData, CommonHeader, Digest, Framing, PduType, flags};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

/// The sent part is cut off once it is this long and at least half of everything.
const COMPACT: usize = 256 << 10;

#[derive(Debug)]
struct Open {
    tag: u16,
    cid: U16,
    datao: u32,
    header: usize,
    data: usize,
}

#[derive(Debug)]
pub(super) struct Tx<D> {
    buf: Vec<u8>,
    start: usize,
    /// Position of `buf[0]` in the stream.
    base: u64,
    open: Option<Open>,
    /// Where in the stream responses end whose last byte has not been sent.
    responses: VecDeque<u64>,
    pub(super) framing: Framing,
    digest: PhantomData<fn() -> D>,
}

impl<D: Digest> Tx<D> {
    pub(super) fn new() -> Self {
        Self {
            buf: Vec::new(),
            start: 0,
            base: 0,
            open: None,
            responses: VecDeque::new(),
            framing: Framing::PLAIN,
            digest: PhantomData,
        }
    }

    pub(super) fn reserve(&mut self, responses: usize) {
        self.responses.reserve(responses);
        self.buf.reserve(64 << 10);
    }

    /// What the socket may have.
    pub(super) fn ready(&self) -> &[u8] {
        let end = self.open.as_ref().map_or(self.buf.len(), |o| o.header);
        self.buf.get(self.start..end).unwrap_or_default()
    }

    /// Bytes appended and not sent.
    pub(super) fn backlog(&self) -> usize {
        self.buf.len() - self.start
    }

    /// Responses whose last byte has not been sent.
    pub(super) fn unsent_responses(&self) -> usize {
        self.responses.len()
    }

    /// Notes that the socket has taken `n` bytes of [`ready`](Self::ready).
    pub(super) fn sent(&mut self, n: usize) {
        let n = n.min(self.ready().len());
        self.start += n;
        let at = self.base + self.start as u64;
        while self.responses.front().is_some_and(|r| *r <= at) {
            self.responses.pop_front();
        }
        if self.start == self.buf.len() {
            self.base = at;
            self.start = 0;
            self.buf.clear();
        } else if self.start >= COMPACT && self.start * 2 >= self.buf.len() {
            self.base = at;
            if let Some(open) = &mut self.open {
                open.header -= self.start;
                open.data -= self.start;
            }
            self.buf.drain(..self.start);
            self.start = 0;
        }
    }

    /// Appends a PDU without data: header digest and PLEN are filled in.
    pub(super) fn bare(&mut self, mut ch: CommonHeader, rest: &[u8]) {
        self.seal(0);
        self.framing.fill(&mut ch, 0);
        let at = self.buf.len();
        self.buf.extend_from_slice(ch.as_bytes());
        self.buf.extend_from_slice(rest);
        if self.framing.header_digest && Framing::digested(PduType(ch.kind)) {
            let crc = D::append(0, self.buf.get(at..).unwrap_or_default());
            self.buf.extend_from_slice(&crc.to_le_bytes());
        }
    }

    /// Appends bytes as they are (ICResp, termination requests).
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.seal(0);
        self.buf.extend_from_slice(bytes);
    }

    /// Notes that what was appended so far ends with a response.
    pub(super) fn response_ends(&mut self) {
        self.responses.push_back(self.base + self.buf.len() as u64);
    }

    /// Appends data of a command, which continues its open PDU where it can.
    pub(super) fn data(&mut self, tag: u16, cid: U16, mut datao: u32, mut from: &[u8], max: u32) {
        while !from.is_empty() {
            let room = match &self.open {
                Some(o) if o.tag == tag && o.datao as usize + self.buf.len() - o.data == datao as usize => {
                    max as usize - (self.buf.len() - o.data)
                }
                _ => 0,
            };
            if room == 0 {
                self.begin(tag, cid, datao);
                continue;
            }
            let (now, later) = from.split_at(room.min(from.len()));
            self.buf.extend_from_slice(now);
            datao += now.len() as u32;
            from = later;
        }
    }

    fn begin(&mut self, tag: u16, cid: U16, datao: u32) {
        self.seal(0);
        let header = self.buf.len();
        let data = header + usize::from(self.framing.data_offset(PduType::C2H_DATA, C2hData::HLEN));
        self.buf.resize(data, 0);
        self.open = Some(Open { tag, cid, datao, header, data });
    }

    /// The command whose PDU is the last one and has no header yet.
    pub(super) fn open_tag(&self) -> Option<u16> {
        self.open.as_ref().map(|o| o.tag)
    }

    /// Takes the unsealed PDU back: where its data begin in the command's buffer, and these.
    pub(super) fn take_back(&mut self) -> (u32, Vec<u8>) {
        let Some(open) = self.open.take() else { return (0, Vec::new()) };
        let data = self.buf.split_off(open.data);
        self.buf.truncate(open.header);
        (open.datao, data)
    }

    /// Whether the last PDU is this command's and its header is not written yet.
    pub(super) fn is_open(&self, tag: u16) -> bool {
        self.open.as_ref().is_some_and(|o| o.tag == tag)
    }

    /// Writes the open PDU's header, with these flags, and its digests.
    pub(super) fn seal(&mut self, flag: u8) {
        let Some(open) = self.open.take() else { return };
        let datal = (self.buf.len() - open.data) as u32;
        let mut pdu = C2hData {
            ch: C2hData::CH,
            cccid: open.cid,
            reserved0: [0; 2],
            datao: U32::new(open.datao),
            datal: U32::new(datal),
            reserved: [0; 4],
        };
        pdu.ch.flags = flag & (flags::LAST_PDU | flags::SUCCESS);
        self.framing.fill(&mut pdu.ch, datal);
        let hlen = usize::from(C2hData::HLEN);
        if self.framing.data_digest {
            let crc = D::append(0, self.buf.get(open.data..).unwrap_or_default());
            self.buf.extend_from_slice(&crc.to_le_bytes());
        }
        if let Some(header) = self.buf.get_mut(open.header..open.data) {
            let (head, rest) = header.split_at_mut(hlen);
            head.copy_from_slice(pdu.as_bytes());
            if self.framing.header_digest {
                let crc = D::append(0, head);
                if let Some(d) = rest.first_chunk_mut() {
                    *d = crc.to_le_bytes();
                }
            }
        }
    }

    /// What has not been sent, and where in it responses end; `None` where a PDU is open.
    pub(super) fn unsent(&self) -> Option<(&[u8], Vec<u64>)> {
        let from = self.base + self.start as u64;
        let ends = self.responses.iter().map(|end| end - from).collect();
        self.open.is_none().then(|| (self.ready(), ends))
    }

    /// With bytes that were not sent, as [`unsent`](Self::unsent) had them; `None` where responses do not end among them, in order.
    pub(super) fn of(framing: Framing, unsent: &[u8], ends: &[u64]) -> Option<Self> {
        let ordered = ends.is_sorted() && ends.iter().all(|end| (1..=unsent.len() as u64).contains(end));
        ordered.then(|| Self {
            buf: unsent.to_vec(),
            responses: ends.iter().copied().collect(),
            framing,
            ..Self::new()
        })
    }

    pub(super) fn check(&self) {
        assert!(self.start <= self.buf.len(), "only what was appended is sent");
        if let Some(open) = &self.open {
            assert!(self.start <= open.header && open.header < open.data && open.data <= self.buf.len());
        }
        assert!(self.responses.iter().all(|r| *r > self.base + self.start as u64), "sent responses are forgotten");
    }
}
