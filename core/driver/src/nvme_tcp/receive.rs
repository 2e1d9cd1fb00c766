//! What the controller sends: bytes cut anywhere become completions and data in the callers' buffers.

use super::connection::{Buffers, ConnectionFailure, DataTransfer, FinishedCommand, HostConnection};
use alloc::vec::Vec;
use weir_spec::nvme::tcp::{
    Body, C2hData, CapsuleResp, CommonHeader, DIGEST_LEN, Digest, Fatal, Fes, Framing, HEADER_MAX, Header, IcResp,
    MAXH2CDATA_MIN, PDA_MAX, PduType, R2t, dgst, flags, hlen, offset,
};
use weir_spec::nvme::{Cqe, Status};
use zerocopy::little_endian::U16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Header,
    Padding,
    Data,
    Digest,
}

/// The place in the stream.
#[derive(Debug)]
pub(super) struct Rx {
    phase: Phase,
    head: [u8; HEADER_MAX + DIGEST_LEN],
    have: usize,
    body: Body,
    cid: u16,
    at: u32,
    success: bool,
    crc: u32,
}

impl Rx {
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Header,
            head: [0; HEADER_MAX + DIGEST_LEN],
            have: 0,
            body: Body::default(),
            cid: 0,
            at: 0,
            success: false,
            crc: 0,
        }
    }

    fn settle(&mut self) {
        if self.phase == Phase::Padding && self.body.padding == 0 {
            self.phase = Phase::Data;
        }
        if self.phase == Phase::Data && self.body.data == 0 && self.body.digest {
            self.phase = Phase::Digest;
            self.have = 0;
        }
    }

    fn is_done(&self) -> bool {
        self.phase == Phase::Data && self.body.data == 0 && !self.body.digest
    }
}

impl<D: Digest> HostConnection<D> {
    /// Takes bytes from the socket, cut anywhere; finished commands are appended to `out`.
    pub fn receive<B: Buffers>(&mut self, mut bytes: &[u8], buffers: &mut B, out: &mut Vec<FinishedCommand>) {
        while !bytes.is_empty() && self.failure.is_none() {
            match self.step(bytes, buffers, out) {
                Ok(used) => bytes = bytes.get(used..).unwrap_or_default(),
                Err(fatal) => {
                    let header = self.rx.head;
                    let len = usize::from(header[2]).min(HEADER_MAX);
                    self.fail(fatal, header.get(..len).unwrap_or_default());
                }
            }
        }
    }

    /// Where the next bytes of the stream belong, when it is data of some length: they may be received straight into this
    /// range of the command's buffer; then [`filled`](Self::filled).
    pub fn direct(&self) -> Option<(u16, core::ops::Range<usize>)> {
        const WORTHWHILE: u32 = 8 << 10;
        let rx = &self.rx;
        (rx.phase == Phase::Data && rx.body.data >= WORTHWHILE && self.failure.is_none())
            .then(|| (rx.cid, rx.at as usize..rx.at as usize + rx.body.data as usize))
    }

    /// `n` bytes were received into [`direct`](Self::direct)'s range.
    pub fn filled<B: Buffers>(&mut self, n: usize, buffers: &mut B, out: &mut Vec<FinishedCommand>) {
        let n = n.min(self.rx.body.data as usize);
        if self.framing.data_digest {
            let at = self.rx.at as usize;
            self.rx.crc = D::append(self.rx.crc, buffers.buffer(self.rx.cid).get(at..at + n).unwrap_or_default());
        }
        self.advance(n);
        self.rx.settle();
        if self.rx.is_done() {
            self.finish(out);
        }
    }

    fn advance(&mut self, n: usize) {
        self.rx.at += n as u32;
        self.rx.body.data -= n as u32;
    }

    fn step<B: Buffers>(
        &mut self,
        bytes: &[u8],
        buffers: &mut B,
        out: &mut Vec<FinishedCommand>,
    ) -> Result<usize, Fatal> {
        let used = match self.rx.phase {
            Phase::Header => return self.header(bytes, buffers, out),
            Phase::Padding => {
                let n = bytes.len().min(self.rx.body.padding as usize);
                self.rx.body.padding -= n as u32;
                n
            }
            Phase::Data => {
                let n = bytes.len().min(self.rx.body.data as usize);
                let (part, at) = (bytes.get(..n).unwrap_or_default(), self.rx.at as usize);
                if let Some(to) = buffers.buffer(self.rx.cid).get_mut(at..at + n) {
                    to.copy_from_slice(part);
                }
                if self.framing.data_digest {
                    self.rx.crc = D::append(self.rx.crc, part);
                }
                self.advance(n);
                n
            }
            Phase::Digest => self.digest(bytes),
        };
        self.rx.settle();
        if self.rx.is_done() {
            self.finish(out);
        }
        Ok(used)
    }

    fn digest(&mut self, bytes: &[u8]) -> usize {
        let n = self.gather(bytes, DIGEST_LEN);
        if self.rx.have == DIGEST_LEN {
            self.rx.have = 0;
            self.rx.body.digest = false;
            self.rx.phase = Phase::Data;
            let got = self.rx.head.first_chunk().map_or(0, |c| u32::from_le_bytes(*c));
            if let Some(c) = self.commands.get_mut(usize::from(self.rx.cid)) {
                c.damaged |= got != self.rx.crc;
            }
        }
        n
    }

    /// Appends to the gathered bytes, up to `need` of them.
    fn gather(&mut self, bytes: &[u8], need: usize) -> usize {
        let have = self.rx.have;
        let n = bytes.len().min(need.saturating_sub(have));
        if let (Some(to), Some(from)) = (self.rx.head.get_mut(have..have + n), bytes.get(..n)) {
            to.copy_from_slice(from);
        }
        self.rx.have += n;
        n
    }

    fn header<B: Buffers>(
        &mut self,
        bytes: &[u8],
        buffers: &mut B,
        out: &mut Vec<FinishedCommand>,
    ) -> Result<usize, Fatal> {
        const COMMON: usize = size_of::<CommonHeader>();
        let mut used = self.gather(bytes, COMMON);
        if self.rx.have < COMMON {
            return Ok(used);
        }
        let ch = CommonHeader::peek(&self.rx.head).unwrap_or_default();
        let need = self.expect(&ch)?;
        used += self.gather(bytes.get(used..).unwrap_or_default(), need);
        if self.rx.have == need {
            let head = self.rx.head;
            self.begin(head.get(..need).unwrap_or_default(), &ch, buffers, out)?;
        }
        Ok(used)
    }

    fn expect(&self, ch: &CommonHeader) -> Result<usize, Fatal> {
        let kind = ch.pdu_type();
        let Some(expected) = hlen(kind) else { return Err(Fatal::field(offset::TYPE)) };
        let lawful = match self.running {
            false => matches!(kind, PduType::IC_RESP | PduType::C2H_TERM_REQ),
            true => matches!(kind, PduType::CAPSULE_RESP | PduType::C2H_DATA | PduType::R2T | PduType::C2H_TERM_REQ),
        };
        if !lawful {
            return Err(Fatal::new(Fes::PDU_SEQUENCE_ERROR, offset::TYPE));
        }
        if ch.hlen != expected {
            return Err(Fatal::field(offset::HLEN));
        }
        Ok(Framing { pda: self.settings.hpda, ..self.framing }.header_len(kind, ch.hlen))
    }

    fn begin<B: Buffers>(
        &mut self,
        bytes: &[u8],
        ch: &CommonHeader,
        buffers: &mut B,
        out: &mut Vec<FinishedCommand>,
    ) -> Result<(), Fatal> {
        let (header, digest) = bytes.split_at(usize::from(ch.hlen).min(bytes.len()));
        if let Some(d) = digest.first_chunk() {
            let got = u32::from_le_bytes(*d);
            if got != D::append(0, header) {
                return Err(Fatal::new(Fes::HEADER_DIGEST_ERROR, got));
            }
        }
        let body = Framing { pda: self.settings.hpda, ..self.framing }.split(ch)?;
        self.rx.success = false;
        match Header::decode(header)? {
            Header::CapsuleResp(pdu) => self.response(&pdu, out)?,
            Header::C2hData(pdu) => self.c2h_data(&pdu, &body)?,
            Header::R2t(pdu) => self.r2t(&pdu, buffers)?,
            Header::IcResp(pdu) => self.initialized(&pdu, &body)?,
            Header::C2hTermReq(pdu) => {
                self.failure = Some(ConnectionFailure::Terminated(pdu.fatal()));
                return Ok(());
            }
            _ => return Err(Fatal::field(offset::TYPE)),
        }
        (self.rx.body, self.rx.have, self.rx.crc, self.rx.phase) = (body, 0, 0, Phase::Padding);
        self.rx.settle();
        if self.rx.is_done() {
            self.finish(out);
        }
        Ok(())
    }

    /// ICResp (NVMe/TCP 1.0, 3.6.2.3).
    fn initialized(&mut self, pdu: &IcResp, body: &Body) -> Result<(), Fatal> {
        let s = self.settings;
        if *body != Body::default() {
            return Err(Fatal::field(offset::PLEN));
        }
        if pdu.pfv.get() != 0 {
            return Err(Fatal::new(Fes::UNSUPPORTED_PARAMETER, offset::PFV));
        }
        if pdu.cpda > PDA_MAX {
            return Err(Fatal::field(offset::PDA));
        }
        let (header_digest, data_digest) = (pdu.dgst & dgst::HEADER != 0, pdu.dgst & dgst::DATA != 0);
        if header_digest && !s.header_digest || data_digest && !s.data_digest {
            return Err(Fatal::field(offset::DGST));
        }
        if pdu.maxh2cdata.get() < MAXH2CDATA_MIN || pdu.maxh2cdata.get() % 4 != 0 {
            return Err(Fatal::field(offset::MAXH2CDATA));
        }
        self.maxh2cdata = pdu.maxh2cdata.get();
        self.framing = Framing { header_digest, data_digest, pda: pdu.cpda };
        self.running = true;
        Ok(())
    }

    fn response(&mut self, pdu: &CapsuleResp, out: &mut Vec<FinishedCommand>) -> Result<(), Fatal> {
        const CID: u32 = 8 + core::mem::offset_of!(Cqe, cid) as u32;
        let cid = pdu.cqe.cid.get();
        let c = self.commands.get(usize::from(cid)).filter(|c| c.active).ok_or(Fatal::field(CID))?;
        if c.ends > self.sent {
            // The command has not left whole: its buffer is still being read.
            return Err(Fatal::new(Fes::PDU_SEQUENCE_ERROR, CID));
        }
        self.complete(cid, pdu.cqe, out);
        Ok(())
    }

    /// C2HData (NVMe/TCP 1.0, 3.6.2.9): for a command that reads, in order, within what it asked for.
    fn c2h_data(&mut self, pdu: &C2hData, body: &Body) -> Result<(), Fatal> {
        let cid = pdu.cccid.get();
        let c = self.commands.get_mut(usize::from(cid)).filter(|c| c.active).ok_or(Fatal::field(offset::CCCID))?;
        let DataTransfer::ToHost(length) = c.transfer else { return Err(Fatal::field(offset::CCCID)) };
        let (datao, datal) = (pdu.datao.get(), pdu.datal.get());
        if datal != body.data {
            return Err(Fatal::field(offset::DATAL));
        }
        let in_range = datao.checked_add(datal).is_some_and(|end| end <= length);
        if !in_range || datao != c.done {
            return Err(Fatal::new(Fes::DATA_TRANSFER_OUT_OF_RANGE, offset::DATAO));
        }
        let flag = pdu.ch.flags;
        if flag & flags::SUCCESS != 0 && flag & flags::LAST_PDU == 0 {
            return Err(Fatal::field(offset::FLAGS));
        }
        c.done += datal;
        (self.rx.cid, self.rx.at, self.rx.success) = (cid, datao, flag & flags::SUCCESS != 0);
        Ok(())
    }

    /// R2T (NVMe/TCP 1.0, 3.6.2.10): for a command that writes, the next part of its data, one at a time.
    fn r2t<B: Buffers>(&mut self, pdu: &R2t, buffers: &mut B) -> Result<(), Fatal> {
        let sent = self.sent;
        let cid = usize::from(pdu.cccid.get());
        let c = self.commands.get_mut(cid).filter(|c| c.active && !c.in_capsule).ok_or(Fatal::field(offset::CCCID))?;
        let DataTransfer::ToController(length) = c.transfer else { return Err(Fatal::field(offset::CCCID)) };
        let (r2to, r2tl) = (pdu.r2to.get(), pdu.r2tl.get());
        let in_range = r2to.checked_add(r2tl).is_some_and(|end| end <= length);
        if !in_range || r2to != c.done || r2tl == 0 {
            return Err(Fatal::new(Fes::DATA_TRANSFER_OUT_OF_RANGE, offset::DATAO));
        }
        if c.ends > sent {
            return Err(Fatal::new(Fes::LIMIT_EXCEEDED, offset::TYPE));
        }
        c.done += r2tl;
        self.transfer(pdu, buffers);
        Ok(())
    }

    /// The PDU in work has arrived whole.
    fn finish(&mut self, out: &mut Vec<FinishedCommand>) {
        self.rx.phase = Phase::Header;
        self.rx.have = 0;
        if core::mem::take(&mut self.rx.success) {
            let mut cqe = Cqe { cid: U16::new(self.rx.cid), ..Cqe::default() };
            cqe.set_status(Status::SUCCESS);
            self.complete(self.rx.cid, cqe, out);
        }
    }
}
