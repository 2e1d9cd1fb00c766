//! What arrives: bytes cut anywhere become PDUs, PDUs become commands and their data.

use super::pdu::{PduPhase, PduProgress, header_len, header_of};
use super::request::Stage;
use super::{Budget, Closed, Connection, ConnectionState, direction};
use weir_spec::nvme::opcode::Transfer;
use weir_spec::nvme::tcp::{
    Body, CapsuleCmd, CommonHeader, Digest, Fatal, Fes, Framing, H2cData, HEADER_MAX, Header, PduType, TermReq, flags,
    offset,
};
use weir_spec::nvme::{Status, entry::SglDescriptor};
use weir_units::Nanos;

/// The place in the stream.
#[derive(Clone, Debug)]
pub(super) struct Rx {
    pub(super) framing: Framing,
    pub(super) pdu: PduProgress,
    /// The command that the PDU's data belongs to.
    pub(super) tag: u16,
    /// The PDU in work is H2CData.
    pub(super) h2c: bool,
}

/// What came of a step.
enum Step {
    /// So many bytes were used.
    Used(usize),
    /// Nothing: the host must first take what it is sent.
    Stalled,
}

impl Rx {
    pub(super) fn new() -> Self {
        Self { framing: Framing::PLAIN, pdu: PduProgress::default(), tag: 0, h2c: false }
    }
}

impl<D: Digest> Connection<D> {
    /// Takes bytes from the socket, cut anywhere. New commands are to be fetched by
    /// [`next_command`](Self::next_command), answers by [`ready`](Self::ready).
    pub fn receive(&mut self, now: Nanos, bytes: &[u8], budget: &mut Budget) {
        if !self.stash.is_empty() {
            self.stash.extend_from_slice(bytes);
            return;
        }
        self.consume(now, bytes, budget);
    }

    /// Goes on with input that was held.
    pub(super) fn resume(&mut self, now: Nanos, budget: &mut Budget) {
        let stash = core::mem::take(&mut self.stash);
        self.consume(now, &stash, budget);
        if self.stash.is_empty() {
            self.stash = stash;
            self.stash.clear();
        }
    }

    fn consume(&mut self, now: Nanos, bytes: &[u8], budget: &mut Budget) {
        let mut rest = bytes;
        while !rest.is_empty() && matches!(self.state, ConnectionState::AwaitsIcReq | ConnectionState::Running) {
            match self.step(rest, budget) {
                Ok(Step::Used(n)) => rest = rest.get(n..).unwrap_or_default(),
                Ok(Step::Stalled) => {
                    let have = core::mem::take(&mut self.rx.pdu.have);
                    self.stash.extend_from_slice(self.rx.pdu.head.get(..have).unwrap_or_default());
                    self.stash.extend_from_slice(rest);
                    return;
                }
                Err((fatal, len)) => {
                    let header = self.rx.pdu.head;
                    self.terminate(now, fatal, header.get(..len).unwrap_or_default());
                    return;
                }
            }
        }
    }

    fn step(&mut self, bytes: &[u8], budget: &mut Budget) -> Result<Step, (Fatal, usize)> {
        let used = match self.rx.pdu.phase {
            PduPhase::Header => return self.header(bytes, budget),
            PduPhase::Padding => self.rx.pdu.skip_padding(bytes),
            PduPhase::Data => self.fill(bytes),
            PduPhase::Digest => self.digest(bytes),
        };
        self.rx.pdu.settle();
        if self.rx.pdu.is_done() {
            self.finish(budget);
        }
        Ok(Step::Used(used))
    }

    /// The buffer that the next bytes of the stream belong to, where it is worth receiving them straight into it; then
    /// [`filled`](Self::filled).
    pub fn direct(&mut self) -> Option<&mut [u8]> {
        const WORTHWHILE: u32 = 16 << 10;
        let (left, running) = (self.rx.pdu.body.data, self.state == ConnectionState::Running);
        if self.rx.pdu.phase != PduPhase::Data || left < WORTHWHILE || !running || !self.stash.is_empty() {
            return None;
        }
        let r = self.table.get_mut(self.rx.tag)?;
        let from = r.received as usize;
        r.buffer().get_mut(from..from + left as usize)
    }

    /// `n` bytes were received into [`direct`](Self::direct)'s buffer.
    pub fn filled(&mut self, n: usize, budget: &mut Budget) {
        let n = n.min(self.rx.pdu.body.data as usize);
        let Some(r) = self.table.get_mut(self.rx.tag) else { return };
        let from = r.received as usize;
        let has_digest = self.rx.framing.data_digest;
        self.rx.pdu.data_arrived::<D>(n, has_digest, || r.buffer().get(from..from + n).unwrap_or_default());
        r.received += n as u32;
        self.rx.pdu.settle();
        if self.rx.pdu.is_done() {
            self.finish(budget);
        }
    }

    fn fill(&mut self, bytes: &[u8]) -> usize {
        let n = bytes.len().min(self.rx.pdu.body.data as usize);
        let part = bytes.get(..n).unwrap_or_default();
        if let Some(r) = self.table.get_mut(self.rx.tag) {
            let from = r.received as usize;
            if let Some(into) = r.buffer().get_mut(from..from + n) {
                into.copy_from_slice(part);
            }
            r.received += n as u32;
        }
        self.rx.pdu.data_arrived::<D>(n, self.rx.framing.data_digest, || part);
        n
    }

    fn digest(&mut self, bytes: &[u8]) -> usize {
        let (n, right) = self.rx.pdu.digest(bytes);
        if right == Some(false) {
            // Only this command fails; the host may send it again (NVMe/TCP 1.0, 3.3.1.1).
            if let Some(r) = self.table.get_mut(self.rx.tag) {
                r.error = Some(Status::TRANSIENT_TRANSPORT_ERROR);
            }
        }
        n
    }

    /// Header bytes: gathers them where they were cut, then acts on the whole.
    fn header(&mut self, bytes: &[u8], budget: &mut Budget) -> Result<Step, (Fatal, usize)> {
        if self.rx.pdu.have == 0 {
            if let Some(ch) = CommonHeader::peek(bytes) {
                let need = self.expect(&ch).map_err(|f| (f, self.keep(bytes, 8)))?;
                if let Some(whole) = bytes.get(..need) {
                    return match self.begin(whole, &ch, budget) {
                        Ok(true) => Ok(Step::Used(need)),
                        Ok(false) => Ok(Step::Stalled),
                        Err(f) => Err((f, self.keep(bytes, usize::from(ch.hlen)))),
                    };
                }
            }
        }
        self.gather(bytes, budget)
    }

    /// Keeps a copy of a header in error for the termination request.
    fn keep(&mut self, bytes: &[u8], len: usize) -> usize {
        let len = len.min(bytes.len()).min(HEADER_MAX);
        if let (Some(to), Some(from)) = (self.rx.pdu.head.get_mut(..len), bytes.get(..len)) {
            to.copy_from_slice(from);
        }
        len
    }

    fn gather(&mut self, bytes: &[u8], budget: &mut Budget) -> Result<Step, (Fatal, usize)> {
        let mut need = size_of::<CommonHeader>();
        let have = self.rx.pdu.have;
        if have >= need {
            let ch = CommonHeader::peek(&self.rx.pdu.head).unwrap_or_default();
            need = self.expect(&ch).map_err(|f| (f, have))?;
        }
        let n = self.rx.pdu.gather(bytes, need);
        if self.rx.pdu.have < need {
            return Ok(Step::Used(n));
        }
        let ch = CommonHeader::peek(&self.rx.pdu.head).unwrap_or_default();
        let whole = self.expect(&ch).map_err(|f| (f, need))?;
        if self.rx.pdu.have < whole {
            return Ok(Step::Used(n));
        }
        let head = self.rx.pdu.head;
        match self.begin(head.get(..whole).unwrap_or_default(), &ch, budget) {
            Ok(true) => Ok(Step::Used(n)),
            Ok(false) => {
                // The bytes of this call go to the stash with the rest of the call's.
                self.rx.pdu.have -= n;
                Ok(Step::Stalled)
            }
            Err(f) => Err((f, usize::from(ch.hlen))),
        }
    }

    /// How long the header is, digest included; or why this PDU cannot be.
    pub(super) fn expect(&self, ch: &CommonHeader) -> Result<usize, Fatal> {
        let kind = ch.pdu_type();
        let lawful = match self.state {
            ConnectionState::AwaitsIcReq => matches!(kind, PduType::IC_REQ | PduType::H2C_TERM_REQ),
            _ => matches!(kind, PduType::CAPSULE_CMD | PduType::H2C_DATA | PduType::H2C_TERM_REQ),
        };
        header_len(self.rx.framing, ch, lawful)
    }

    /// A whole header. False: not now.
    fn begin(&mut self, bytes: &[u8], ch: &CommonHeader, budget: &mut Budget) -> Result<bool, Fatal> {
        let header = header_of::<D>(bytes, ch)?;
        let body = self.rx.framing.split(ch)?;
        match Header::decode(header)? {
            Header::CapsuleCmd(pdu) => {
                if !self.capsule(&pdu, &body)? {
                    return Ok(false);
                }
            }
            Header::H2cData(pdu) => self.h2c_data(&pdu, &body)?,
            Header::IcReq(pdu) => {
                if body != Body::default() {
                    return Err(Fatal::field(offset::PLEN));
                }
                self.initialize(&pdu)?;
                self.rx.pdu.have = 0;
                return Ok(true);
            }
            Header::H2cTermReq(pdu) => {
                self.terminated(&pdu);
                return Ok(true);
            }
            _ => return Err(Fatal::field(offset::TYPE)),
        }
        self.rx.pdu.begin(body);
        if self.rx.pdu.is_done() {
            self.finish(budget);
        }
        Ok(true)
    }

    fn terminated(&mut self, pdu: &TermReq) {
        self.set_state(ConnectionState::Closed(Closed::ByHost(pdu.fatal())));
    }

    /// A command capsule's header. False: the table is full of commands whose answers the host has not been sent yet; it
    /// may have seen one (a send that has not been reported to us), so it waits.
    fn capsule(&mut self, pdu: &CapsuleCmd, body: &Body) -> Result<bool, Fatal> {
        if body.data > self.settings.in_capsule {
            return Err(Fatal::new(Fes::LIMIT_EXCEEDED, offset::PLEN));
        }
        if self.table.in_use() + self.tx.unsent_responses() >= self.table.len() {
            if self.tx.unsent_responses() > 0 {
                return Ok(false);
            }
            return Err(Fatal::new(Fes::PDU_SEQUENCE_ERROR, offset::TYPE));
        }
        let Some((tag, r)) = self.table.take(pdu.sqe) else {
            return Err(Fatal::new(Fes::PDU_SEQUENCE_ERROR, offset::TYPE));
        };
        if body.data > 0 {
            r.length = body.data;
            if r.small.len() < body.data as usize {
                r.small.resize(body.data as usize, 0);
            }
            let sgl = pdu.sqe.sgl();
            r.error =
                if sgl.kind != SglDescriptor::DATA_BLOCK_OFFSET || direction(&pdu.sqe) != Transfer::HostToController {
                    Some(Status::SGL_TYPE_INVALID)
                } else if sgl.address.get() != 0 {
                    Some(Status::SGL_OFFSET_INVALID)
                } else if sgl.length.get() != body.data {
                    Some(Status::DATA_SGL_LENGTH_INVALID)
                } else {
                    None
                };
        }
        (self.rx.tag, self.rx.h2c) = (tag, false);
        Ok(true)
    }

    /// An H2CData PDU's header (NVMe/TCP 1.0, 3.6.2.8): it must answer an R2T that is out, and continue where the last one
    /// ended.
    fn h2c_data(&mut self, pdu: &H2cData, body: &Body) -> Result<(), Fatal> {
        let maxh2cdata = self.settings.maxh2cdata;
        let (tag, r) = self.table.find_ttag(pdu.ttag.get()).ok_or(Fatal::field(offset::TTAG))?;
        if pdu.cccid != r.sqe.cid {
            return Err(Fatal::field(offset::CCCID));
        }
        let datal = pdu.datal.get();
        if datal != body.data {
            return Err(Fatal::field(offset::DATAL));
        }
        if datal > maxh2cdata {
            return Err(Fatal::new(Fes::LIMIT_EXCEEDED, offset::DATAL));
        }
        let end = pdu.datao.get().checked_add(datal).filter(|end| *end <= r.length);
        let Some(end) = end else {
            return Err(Fatal::new(Fes::DATA_TRANSFER_OUT_OF_RANGE, offset::DATAO));
        };
        if pdu.datao.get() != r.received {
            return Err(Fatal::new(Fes::DATA_TRANSFER_OUT_OF_RANGE, offset::DATAO));
        }
        if (pdu.ch.flags & flags::LAST_PDU != 0) != (end == r.length) {
            return Err(Fatal::field(offset::FLAGS));
        }
        (self.rx.tag, self.rx.h2c) = (tag, true);
        Ok(())
    }

    /// The PDU in work has arrived whole.
    fn finish(&mut self, budget: &mut Budget) {
        self.rx.pdu.finish();
        let tag = self.rx.tag;
        if !self.rx.h2c {
            self.dispatch(tag, budget);
        } else if self.table.get(tag).is_some_and(|r| r.stage == Stage::Transferring && r.received == r.length) {
            self.make_ready(tag);
        }
    }
}
