//! NVMe/TCP: PDUs, and both ends of a connection against a peer that sends anything.
//!
//! The input of the machines is a script: an operation a byte, its arguments after it. Bytes can be fed raw, or as a PDU whose
//! layout and digests are made right, so that the checks behind them are reached.

use weir_driver::nvme_tcp as host;
use weir_session::nvme_tcp::{Budget, Connection, ConnectionSettings, ConnectionState, ReadyCommand};
use weir_spec::nvme::tcp::{
    C2hData, CapsuleCmd, CapsuleResp, CommonHeader, Digest, Framing, H2cData, Header, IcReq, IcResp, R2t, TableDigest,
    hlen,
};
use weir_spec::nvme::{Cqe, Sqe, Status, entry::SglDescriptor};
use weir_units::Nanos;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

const MAX_TRANSFER: u32 = 64 << 10;
const TX_LIMIT: u32 = 32 << 10;
const BUDGET: u64 = 48 << 10;
const DEPTH: u16 = 6;

/// Decoders: they answer for every input, and a header that decodes is made of the bytes that it came from.
pub fn nvme_tcp_pdu(data: &[u8]) {
    let Some((&how, bytes)) = data.split_first() else { return };
    let framing = Framing { header_digest: how & 1 != 0, data_digest: how & 2 != 0, pda: how >> 2 & 31 };
    let Ok(header) = Header::decode(bytes) else { return };
    assert!(bytes.starts_with(header.as_bytes()));
    let ch = CommonHeader::peek(bytes).expect("a header that decodes has a common header");
    if let Ok(body) = framing.split(&ch) {
        let parts = [framing.header_len(ch.pdu_type(), ch.hlen) as u64, body.padding.into(), body.data.into()];
        let digest = if body.digest { 4 } else { 0 };
        assert_eq!(parts.iter().sum::<u64>() + digest, u64::from(ch.plen.get()));
    }
}

/// A script being read.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn take(&mut self, n: usize) -> &'a [u8] {
        let (now, later) = self.0.split_at(n.min(self.0.len()));
        self.0 = later;
        now
    }

    fn word(&mut self) -> u32 {
        let mut le = [0; 4];
        let got = self.take(4);
        le[..got.len()].copy_from_slice(got);
        u32::from_le_bytes(le)
    }
}

/// A PDU with its layout and digests made right; `wrong` breaks one bit of it, 0 none.
fn pdu(framing: Framing, header: &[u8], flag: u8, data: &[u8], wrong: u8) -> Vec<u8> {
    let mut ch = CommonHeader::peek(header).expect("a header");
    ch.flags |= flag;
    framing.fill(&mut ch, data.len() as u32);
    let mut out = ch.as_bytes().to_vec();
    out.extend(&header[8..]);
    if framing.header_digest && Framing::digested(ch.pdu_type()) {
        out.extend(TableDigest::append(0, &out).to_le_bytes());
    }
    if !data.is_empty() {
        out.resize(ch.pdo.into(), 0);
        out.extend(data);
        if framing.data_digest {
            out.extend(TableDigest::append(0, data).to_le_bytes());
        }
    }
    if wrong != 0 {
        let at = usize::from(wrong) % out.len();
        out[at] ^= 1 << (wrong & 7);
    }
    out
}

/// The controller's end and what it is surrounded by.
struct Target {
    c: Connection<TableDigest>,
    budget: Budget,
    now: Nanos,
    framing: Framing,
    executing: Vec<ReadyCommand>,
    r2ts: Vec<R2t>,
    out: Vec<u8>,
}

impl Target {
    fn new(how: u8) -> Self {
        let settings = ConnectionSettings {
            cpda: how >> 4 & 3,
            maxh2cdata: 4096,
            max_transfer: MAX_TRANSFER,
            tx_limit: TX_LIMIT,
            c2h_data: 4096,
            ..ConnectionSettings::default()
        };
        let mut c = Connection::new(Nanos(0), settings);
        c.connected(DEPTH.into(), how & 4 != 0);
        let framing =
            Framing { header_digest: how & 1 != 0, data_digest: how & 2 != 0, pda: (how >> 4 & 3).min(how >> 6) };
        let mut t = Self {
            c,
            budget: Budget::new(BUDGET),
            now: Nanos(0),
            framing,
            executing: Vec::new(),
            r2ts: Vec::new(),
            out: Vec::new(),
        };
        if how & 8 == 0 {
            t.feed(ic_req(how & 3, how >> 6).as_bytes());
        }
        t
    }

    fn feed(&mut self, bytes: &[u8]) {
        // A door does not read while the session takes nothing.
        if self.c.wants_input() {
            self.c.receive(self.now, bytes, &mut self.budget);
        }
    }

    fn command(&mut self, script: &mut Script) {
        let (opcode, kind) = (script.byte().unwrap_or(0), script.byte().unwrap_or(0));
        let (len, inside) = (script.word(), script.byte().unwrap_or(0));
        let kinds =
            [SglDescriptor::TRANSPORT_DATA_BLOCK, SglDescriptor::DATA_BLOCK_OFFSET, SglDescriptor::DATA_BLOCK, kind];
        let mut sqe = Sqe { opcode, cid: U16::new(u16::from(kind)), ..Sqe::default() };
        let len = if kind & 4 == 0 { len % (2 * MAX_TRANSFER) } else { len };
        sqe.set_sgl(SglDescriptor::new(kinds[usize::from(kind & 3)], 0, len));
        let data = vec![kind; if inside & 1 == 0 { 0 } else { (len as usize).min(9000) }];
        let bytes = pdu(self.framing, CapsuleCmd { ch: CapsuleCmd::CH, sqe }.as_bytes(), 0, &data, inside & 0xfe);
        self.feed(&bytes);
    }

    fn data(&mut self, script: &mut Script) {
        let how = script.byte().unwrap_or(0);
        let Some(r2t) = self.r2ts.pop() else { return };
        let (mut at, end) = (0, r2t.r2tl.get());
        while at < end && self.c.wants_input() {
            let len = (end - at).min(4096);
            let pdu_header = H2cData {
                ch: H2cData::CH,
                cccid: r2t.cccid,
                ttag: U16::new(r2t.ttag.get() ^ u16::from(how & 8)),
                datao: U32::new(at.wrapping_add(u32::from(how & 16) << 8)),
                datal: U32::new(len),
                reserved: [0; 4],
            };
            let last = if at + len == end { 4 } else { 0 };
            let bytes = pdu(self.framing, pdu_header.as_bytes(), last, &vec![how; len as usize], how & 0xe0);
            self.feed(&bytes);
            at += len;
            if how & 1 != 0 {
                // Stops in the middle: the rest never comes.
                return;
            }
        }
    }

    fn execute(&mut self, script: &mut Script) {
        while let Some(c) = self.c.next_command() {
            self.executing.push(c);
        }
        let how = script.byte().unwrap_or(0);
        if self.executing.is_empty() {
            return;
        }
        let c = self.executing.swap_remove(usize::from(how) % self.executing.len());
        let mut cqe = Cqe { cid: c.sqe.cid, dw0: U32::new(u32::from(how >> 7)), ..Cqe::default() };
        let len = (c.sqe.sgl().length.get().min(MAX_TRANSFER)) as usize;
        let moved = if how & 1 == 0 { len } else { usize::from(how) };
        let bytes = vec![how; moved];
        let result = self
            .c
            .write_data(c.tag, 0, &bytes[..moved / 2])
            .and_then(|()| self.c.write_data(c.tag, (moved / 2) as u32, &bytes[moved / 2..]));
        let mut into = vec![0; moved];
        let read = self.c.read_data(c.tag, u32::from(how & 2), &mut into);
        cqe.set_status(result.or(read).err().unwrap_or(Status::SUCCESS));
        self.c.respond(c.tag, &cqe, &mut self.budget);
    }

    fn send(&mut self, n: usize) {
        let n = n.min(self.c.ready().len());
        self.out.extend(&self.c.ready()[..n]);
        self.c.sent(self.now, n, &mut self.budget);
        // What the host sees of it: the R2Ts.
        while let Some(ch) = CommonHeader::peek(&self.out) {
            let plen = ch.plen.get() as usize;
            if self.out.len() < plen {
                break;
            }
            match Header::decode(&self.out).expect("what is sent decodes") {
                Header::R2t(r2t) => self.r2ts.push(r2t),
                Header::C2hData(C2hData { datal, .. }) => assert!(datal.get() <= 4096),
                _ => {}
            }
            self.out.drain(..plen);
        }
    }

    fn check(&self) {
        self.c.check();
        self.budget.check();
        let headers = usize::from(DEPTH) * 64 + 4096 + 64 * 160;
        assert!(
            self.c.backlog() <= (TX_LIMIT + MAX_TRANSFER) as usize + headers,
            "what waits for the socket is bounded"
        );
        assert!(self.budget.used() <= BUDGET + u64::from(MAX_TRANSFER), "the budget is bounded");
        assert!(self.c.in_use() <= usize::from(DEPTH));
        if !matches!(self.c.state(), ConnectionState::AwaitsIcReq | ConnectionState::Running) {
            assert!(matches!(self.c.state(), ConnectionState::Closed(_)) || self.c.deadline() != Nanos::NEVER);
        }
    }
}

fn ic_req(dgst: u8, hpda: u8) -> IcReq {
    IcReq { ch: IcReq::CH, pfv: U16::new(0), hpda, dgst, maxr2t: U32::new(0), reserved: [0; 112] }
}

/// The controller's end: any operations in any order. Its invariants hold after each, its memory is bounded, and when the
/// connection has gone its tenant's budget is whole.
pub fn nvme_tcp_target(data: &[u8]) {
    let mut script = Script(data);
    let mut t = Target::new(script.byte().unwrap_or(0));
    while let Some(what) = script.byte() {
        match what & 7 {
            0 => {
                let n = usize::from(script.byte().unwrap_or(0));
                let bytes = script.take(n);
                t.feed(bytes);
            }
            1 | 2 => t.command(&mut script),
            3 => t.data(&mut script),
            4 => t.execute(&mut script),
            5 => t.send(usize::from(what >> 3) * 1000 + 1),
            6 => drop(t.c.grant(&mut t.budget)),
            _ => {
                t.now = t.now.saturating_add(Nanos::from_secs(u64::from(what >> 3)));
                t.c.tick(t.now);
            }
        }
        t.check();
    }
    t.c.close();
    t.c.release(&mut t.budget);
    t.c.check();
    assert_eq!((t.budget.used(), t.c.ready().len()), (0, 0));
}

struct Memory(Vec<Vec<u8>>);

impl host::Buffers for Memory {
    fn buffer(&mut self, cid: u16) -> &mut [u8] {
        &mut self.0[usize::from(cid)]
    }

    fn bytes(&self, cid: u16) -> &[u8] {
        &self.0[usize::from(cid)]
    }
}

fn submit(c: &mut host::HostConnection<TableDigest>, memory: &mut Memory, script: &mut Script) -> usize {
    let how = script.byte().unwrap_or(0);
    let len = (u32::from(script.byte().unwrap_or(0)) + 1) * 64;
    let transfer = match how & 3 {
        0 => host::DataTransfer::None,
        1 => host::DataTransfer::ToController(len),
        _ => host::DataTransfer::ToHost(len),
    };
    let cid = u16::from(how >> 2) % (DEPTH + 1);
    usize::from(c.submit(cid, Sqe::default(), transfer, memory).is_ok())
}

/// A PDU that a controller may send, with fields out of the script.
fn answer(framing: Framing, script: &mut Script) -> Vec<u8> {
    let (kind, cid, flag, wrong) =
        (script.word() as u8, script.word() as u16 % DEPTH, script.word() as u8, script.word() as u8);
    let (at, len) = ((script.word() % 20_000) & !63, script.word() % 20_000);
    let (cccid, at, len32) = (U16::new(cid), U32::new(at), U32::new(len));
    let wrong = if wrong < 200 { 0 } else { wrong };
    let (header, data): (Vec<u8>, usize) = match kind & 3 {
        0 => {
            let mut cqe = Cqe { cid: cccid, ..Cqe::default() };
            cqe.set_status(Status::from_field(u16::from(flag & 1)));
            (CapsuleResp { ch: CapsuleResp::CH, cqe }.as_bytes().to_vec(), 0)
        }
        1 => {
            let r2t = R2t { ch: R2t::CH, cccid, ttag: U16::new(7), r2to: at, r2tl: len32, reserved: [0; 4] };
            (r2t.as_bytes().to_vec(), 0)
        }
        _ => {
            let pdu = C2hData { ch: C2hData::CH, cccid, reserved0: [0; 2], datao: at, datal: len32, reserved: [0; 4] };
            (pdu.as_bytes().to_vec(), len as usize)
        }
    };
    let flag = if kind & 2 != 0 { flag & 12 } else { 0 };
    pdu(framing, &header, flag, &vec![flag; data], wrong)
}

/// The host's end against a controller that sends anything: no panic, nothing completes that was not submitted, and data
/// lands in the buffers of its own command or nowhere.
pub fn nvme_tcp_initiator(data: &[u8]) {
    let mut script = Script(data);
    let how = script.byte().unwrap_or(0);
    let (header_digest, data_digest) = (how & 1 != 0, how & 2 != 0);
    let settings = host::HostSettings {
        header_digest,
        data_digest,
        hpda: how >> 6,
        depth: DEPTH,
        in_capsule: u32::from(how & 4) * 1024,
    };
    let mut c = host::HostConnection::<TableDigest>::new(settings);
    let mut memory = Memory(vec![vec![0; 64 * 256]; usize::from(DEPTH)]);
    let mut out = Vec::new();
    let (mut submitted, mut completed) = (0, 0);
    let framing = Framing { header_digest, data_digest, pda: how >> 6 };
    if how & 8 == 0 {
        let maxh2cdata = U32::new(4096);
        let resp = IcResp {
            ch: IcResp::CH,
            pfv: U16::new(0),
            cpda: how >> 4 & 3,
            dgst: how & 3,
            maxh2cdata,
            reserved: [0; 112],
        };
        c.sent(128);
        c.receive(resp.as_bytes(), &mut memory, &mut out);
        assert!(c.is_running());
    }
    while let Some(what) = script.byte() {
        match what & 3 {
            0 => {
                let n = usize::from(what >> 2) * 4;
                c.receive(script.take(n), &mut memory, &mut out);
            }
            1 => submitted += submit(&mut c, &mut memory, &mut script),
            2 => {
                let waiting: usize = c.segments().map(host::SendSegment::len).sum();
                c.sent(waiting.min(1 << (what >> 2 & 15)));
            }
            _ => {
                let bytes = answer(framing, &mut script);
                c.receive(&bytes, &mut memory, &mut out);
            }
        }
        completed += out.drain(..).count();
        c.check();
        assert!(completed <= submitted && c.outstanding() == submitted - completed);
    }
}

/// One well-formed conversation for each target.
pub fn target_seeds() -> Vec<Vec<u8>> {
    let read = [1, 2, 0, 0, 0x10, 0, 0, 0];
    let write = [1, 1, 0, 0, 0x20, 0, 0, 0];
    let in_capsule = [1, 1, 1, 0, 2, 0, 0, 1];
    let execute = [4, 0];
    let mut seeds = Vec::new();
    for how in [0, 1, 2, 3, 4, 0x57, 0xf3] {
        let mut s = vec![how];
        s.extend(read);
        s.extend(write);
        s.extend(in_capsule);
        s.extend([0xfd, 3, 0]);
        for _ in 0..3 {
            s.extend(execute);
        }
        s.extend([0xfd, 6]);
        seeds.push(s);
    }
    let mut raw = vec![8];
    for chunk in ic_req(3, 0).as_bytes().chunks(100) {
        raw.extend([0, chunk.len() as u8]);
        raw.extend(chunk);
    }
    seeds.push(raw);
    seeds
}

/// Conversations of the host's end.
pub fn initiator_seeds() -> Vec<Vec<u8>> {
    let word = |w: u32| w.to_le_bytes();
    let answer = |kind: u32, cid: u32, flag: u32, at: u32, len: u32| {
        let mut s = vec![3];
        for w in [kind, cid, flag, 0, at, len] {
            s.extend(word(w));
        }
        s
    };
    let mut seeds = Vec::new();
    for how in [0u8, 1, 2, 3, 0x57, 0xf3] {
        let mut s = vec![how];
        // A read of 4096 bytes under CID 0, a write of 8192 under CID 1.
        s.extend([1, 2, 63, 1, 5, 127, 0x3e]);
        s.extend(answer(2, 0, 12, 0, 4096));
        s.extend(answer(1, 1, 0, 0, 8192));
        s.push(0x3e);
        s.extend(answer(0, 1, 0, 0, 0));
        seeds.push(s);
    }
    seeds
}

/// Headers of every type.
pub fn pdu_seeds() -> Vec<Vec<u8>> {
    (0..=9u8)
        .filter_map(|kind| {
            let len = hlen(weir_spec::nvme::tcp::PduType(kind))?;
            let mut s = vec![0; 1 + usize::from(len)];
            (s[1], s[3], s[5]) = (kind, len, len);
            Some(s)
        })
        .collect()
}
