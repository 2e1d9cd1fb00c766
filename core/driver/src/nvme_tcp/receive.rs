//! What the controller sends: bytes cut anywhere become completions and data in the callers' buffers.

use super::connection::{Buffers, ConnectionFailure, DataTransfer, FinishedCommand, HostConnection};
use alloc::vec::Vec;
use weir_session::nvme_tcp::pdu::{PduPhase, PduProgress, header_len, header_of};
use weir_spec::nvme::tcp::{
    Body, C2hData, CapsuleResp, CommonHeader, Digest, Fatal, Fes, Framing, HEADER_MAX, Header, IcResp, MAXH2CDATA_MIN,
    PDA_MAX, PduType, R2t, dgst, flags, offset,
};
use weir_spec::nvme::{Cqe, Status};
use zerocopy::little_endian::U16;

/// Bytes of data that are worth a system call of their own rather than a copy, at the least.
const DIRECT_MIN_BYTES: u32 = 8 << 10;
/// Bytes of a read whose header is received by a system call of its own, at the least.
const LONG_READ_MIN_BYTES: u32 = 32 << 10;

/// A read whose data had better not be received together with its header.
pub(super) fn is_long_read(transfer: DataTransfer) -> bool {
    matches!(transfer, DataTransfer::ToHost(bytes) if bytes >= LONG_READ_MIN_BYTES)
}

/// The place in the stream.
#[derive(Debug, Default)]
pub(super) struct Rx {
    pdu: PduProgress,
    cid: u16,
    at: u32,
    success: bool,
}

impl<D: Digest> HostConnection<D> {
    /// Takes bytes from the socket, cut anywhere; finished commands are appended to `out`.
    pub fn receive<B: Buffers>(&mut self, mut bytes: &[u8], buffers: &mut B, out: &mut Vec<FinishedCommand>) {
        while !bytes.is_empty() && self.failure.is_none() {
            match self.step(bytes, buffers, out) {
                Ok(used) => bytes = bytes.get(used..).unwrap_or_default(),
                Err(fatal) => {
                    let header = self.rx.pdu.head;
                    let len = usize::from(header[2]).min(HEADER_MAX);
                    self.fail(fatal, header.get(..len).unwrap_or_default());
                }
            }
        }
    }

    /// Where the next bytes of the stream belong, when it is data of some length: they may be received straight into this
    /// range of the command's buffer; then [`filled`](Self::filled).
    pub fn direct(&self) -> Option<(u16, core::ops::Range<usize>)> {
        let rx = &self.rx;
        (rx.pdu.phase == PduPhase::Data && rx.pdu.body.data >= DIRECT_MIN_BYTES && self.failure.is_none())
            .then(|| (rx.cid, rx.at as usize..rx.at as usize + rx.pdu.body.data as usize))
    }

    /// Whether a long read is outstanding. What is received while no data is [`direct`](Self::direct) had then better be little more than a header:
    /// the data behind it is copied.
    pub fn expects_long_data(&self) -> bool {
        self.long_reads > 0
    }

    /// Bytes of data that came by [`receive`](Self::receive), and were copied to where they belong, since this was asked last.
    pub fn take_copied(&mut self) -> usize {
        core::mem::take(&mut self.copied)
    }

    /// `n` bytes were received into [`direct`](Self::direct)'s range.
    pub fn filled<B: Buffers>(&mut self, n: usize, buffers: &mut B, out: &mut Vec<FinishedCommand>) {
        let n = n.min(self.rx.pdu.body.data as usize);
        let (cid, at) = (self.rx.cid, self.rx.at as usize);
        let has_digest = self.framing.data_digest;
        self.rx.pdu.data_arrived::<D>(n, has_digest, || buffers.buffer(cid).get(at..at + n).unwrap_or_default());
        self.rx.at += n as u32;
        self.rx.pdu.settle();
        if self.rx.pdu.is_done() {
            self.finish(out);
        }
    }

    fn step<B: Buffers>(
        &mut self,
        bytes: &[u8],
        buffers: &mut B,
        out: &mut Vec<FinishedCommand>,
    ) -> Result<usize, Fatal> {
        let used = match self.rx.pdu.phase {
            PduPhase::Header => return self.header(bytes, buffers, out),
            PduPhase::Padding => self.rx.pdu.skip_padding(bytes),
            PduPhase::Data => {
                let n = bytes.len().min(self.rx.pdu.body.data as usize);
                let (part, at) = (bytes.get(..n).unwrap_or_default(), self.rx.at as usize);
                if let Some(to) = buffers.buffer(self.rx.cid).get_mut(at..at + n) {
                    to.copy_from_slice(part);
                    self.copied += n;
                }
                self.rx.pdu.data_arrived::<D>(n, self.framing.data_digest, || part);
                self.rx.at += n as u32;
                n
            }
            PduPhase::Digest => self.digest(bytes),
        };
        self.rx.pdu.settle();
        if self.rx.pdu.is_done() {
            self.finish(out);
        }
        Ok(used)
    }

    fn digest(&mut self, bytes: &[u8]) -> usize {
        let (n, right) = self.rx.pdu.digest(bytes);
        if let Some(c) = self.commands.get_mut(usize::from(self.rx.cid)) {
            c.damaged |= right == Some(false);
        }
        n
    }

    fn header<B: Buffers>(
        &mut self,
        bytes: &[u8],
        buffers: &mut B,
        out: &mut Vec<FinishedCommand>,
    ) -> Result<usize, Fatal> {
        const COMMON: usize = size_of::<CommonHeader>();
        let mut used = self.rx.pdu.gather(bytes, COMMON);
        if self.rx.pdu.have < COMMON {
            return Ok(used);
        }
        let ch = CommonHeader::peek(&self.rx.pdu.head).unwrap_or_default();
        let need = self.expect(&ch)?;
        used += self.rx.pdu.gather(bytes.get(used..).unwrap_or_default(), need);
        if self.rx.pdu.have == need {
            let head = self.rx.pdu.head;
            self.begin(head.get(..need).unwrap_or_default(), &ch, buffers, out)?;
        }
        Ok(used)
    }

    fn expect(&self, ch: &CommonHeader) -> Result<usize, Fatal> {
        let kind = ch.pdu_type();
        let lawful = match self.running {
            false => matches!(kind, PduType::IC_RESP | PduType::C2H_TERM_REQ),
            true => matches!(kind, PduType::CAPSULE_RESP | PduType::C2H_DATA | PduType::R2T | PduType::C2H_TERM_REQ),
        };
        header_len(Framing { pda: self.settings.hpda, ..self.framing }, ch, lawful)
    }

    fn begin<B: Buffers>(
        &mut self,
        bytes: &[u8],
        ch: &CommonHeader,
        buffers: &mut B,
        out: &mut Vec<FinishedCommand>,
    ) -> Result<(), Fatal> {
        let header = header_of::<D>(bytes, ch)?;
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
        self.rx.pdu.begin(body);
        if self.rx.pdu.is_done() {
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
        self.rx.pdu.finish();
        if core::mem::take(&mut self.rx.success) {
            let mut cqe = Cqe { cid: U16::new(self.rx.cid), ..Cqe::default() };
            cqe.set_status(Status::SUCCESS);
            self.complete(self.rx.cid, cqe, out);
        }
    }
}
