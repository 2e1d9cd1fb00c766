//! The connection against hand-made PDUs: every line that `NVMe/TCP` hosts get wrong or exploit.

use super::*;
use std::vec;
use std::vec::Vec;
use weir_spec::nvme::tcp::{C2hData, CapsuleCmd, CommonHeader, H2cData, Header, TableDigest, hlen};
use weir_spec::nvme::{AdminOpcode, FabricsType, IoOpcode};

type Target = Connection<TableDigest>;

const MIB: u32 = 1 << 20;

/// A connection, its tenant's budget, and what the host has received.
struct Bench {
    c: Target,
    budget: Budget,
    now: Nanos,
    received: Vec<u8>,
    framing: Framing,
    host_framing: Framing,
}

fn settings() -> ConnectionSettings {
    ConnectionSettings {
        max_transfer: MIB,
        maxh2cdata: 8192,
        c2h_data: 8192,
        tx_limit: 64 << 10,
        ..ConnectionSettings::default()
    }
}

impl Bench {
    fn fresh(s: ConnectionSettings) -> Self {
        Self {
            c: Target::new(Nanos(0), s),
            budget: Budget::new(u64::from(MIB)),
            now: Nanos(0),
            received: vec![],
            framing: Framing::PLAIN,
            host_framing: Framing::PLAIN,
        }
    }

    /// Initialized, with a queue of that depth.
    fn new(s: ConnectionSettings, depth: u32, digests: u8, hpda: u8, flow_control: bool) -> Self {
        let mut b = Self::fresh(s);
        b.feed(ic_req(hpda, digests).as_bytes());
        let resp = b.take();
        let Ok(Header::IcResp(resp)) = Header::decode(&resp) else { panic!("ICResp first: {resp:?}") };
        let (header_digest, data_digest) = (resp.dgst & 1 != 0, resp.dgst & 2 != 0);
        b.framing = Framing { header_digest, data_digest, pda: resp.cpda };
        b.host_framing = Framing { header_digest, data_digest, pda: hpda };
        b.c.connected(depth, flow_control);
        b
    }

    fn plain(depth: u32) -> Self {
        Self::new(settings(), depth, 0, 0, true)
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.c.receive(self.now, bytes, &mut self.budget);
        self.c.check();
        self.budget.check();
    }

    /// Takes what is ready.
    fn take(&mut self) -> Vec<u8> {
        let mut got = vec![];
        while !self.c.ready().is_empty() {
            let ready = self.c.ready().to_vec();
            self.c.sent(self.now, ready.len(), &mut self.budget);
            got.extend(ready);
        }
        self.c.check();
        got
    }

    /// Takes what is ready and splits it into PDUs.
    fn pdus(&mut self) -> Vec<(Header, Vec<u8>)> {
        let bytes = self.take();
        self.received.extend(bytes);
        let mut out = vec![];
        let mut at = 0;
        while let Some(ch) = CommonHeader::peek(&self.received[at..]) {
            let plen = ch.plen.get() as usize;
            let pdu = &self.received[at..at + plen];
            let body = self.host_framing.split(&ch).expect("a lawful layout");
            let header = Header::decode(pdu).expect("a lawful header");
            let hlen = usize::from(ch.hlen);
            if self.host_framing.header_digest && Framing::digested(ch.pdu_type()) {
                let crc = TableDigest::append(0, &pdu[..hlen]);
                assert_eq!(&pdu[hlen..hlen + 4], crc.to_le_bytes(), "header digest");
            }
            let data_at =
                if body.data > 0 && !matches!(header, Header::C2hTermReq(_)) { usize::from(ch.pdo) } else { hlen };
            let data = pdu[data_at..data_at + body.data as usize].to_vec();
            if body.digest {
                assert_eq!(&pdu[plen - 4..], TableDigest::append(0, &data).to_le_bytes(), "data digest");
            }
            out.push((header, data));
            at += plen;
        }
        self.received.drain(..at);
        assert!(self.received.is_empty(), "whole PDUs");
        out
    }

    fn capsule(&self, sqe: Sqe, data: &[u8]) -> Vec<u8> {
        self.pdu(CapsuleCmd { ch: CapsuleCmd::CH, sqe }.as_bytes(), 0, data)
    }

    /// A PDU with its digests.
    fn pdu(&self, header: &[u8], flag: u8, data: &[u8]) -> Vec<u8> {
        let mut ch = CommonHeader::peek(header).unwrap();
        ch.flags |= flag;
        self.framing.fill(&mut ch, data.len() as u32);
        let mut out = ch.as_bytes().to_vec();
        out.extend(&header[8..]);
        if self.framing.header_digest {
            out.extend(TableDigest::append(0, &out).to_le_bytes());
        }
        if !data.is_empty() {
            out.resize(usize::from(ch.pdo), 0);
            out.extend(data);
            if self.framing.data_digest {
                out.extend(TableDigest::append(0, data).to_le_bytes());
            }
        }
        out
    }

    fn h2c(&self, r2t: &R2t, datao: u32, data: &[u8], last: bool) -> Vec<u8> {
        let pdu = H2cData {
            ch: H2cData::CH,
            cccid: r2t.cccid,
            ttag: r2t.ttag,
            datao: U32::new(datao),
            datal: U32::new(data.len() as u32),
            reserved: [0; 4],
        };
        self.pdu(pdu.as_bytes(), if last { flags::LAST_PDU } else { 0 }, data)
    }

    /// The only R2T that was sent.
    fn r2t(&mut self) -> R2t {
        match self.pdus().as_slice() {
            [(Header::R2t(r2t), _)] => *r2t,
            other => panic!("one R2T: {other:?}"),
        }
    }

    fn answer(&mut self, tag: u16, status: Status) {
        let sqe = self.c.table.get(tag).unwrap().sqe;
        let mut cqe = Cqe { cid: sqe.cid, ..Cqe::default() };
        cqe.set_status(status);
        self.c.respond(tag, &cqe, &mut self.budget);
        self.c.check();
    }

    /// The fatal error that the host was told.
    fn fatal(&mut self) -> Fatal {
        let ConnectionState::Quiescing(fatal) = self.c.state() else { panic!("not terminated: {:?}", self.c.state()) };
        let pdus = self.pdus();
        let Some((Header::C2hTermReq(term), _)) = pdus.last() else { panic!("C2HTermReq last: {pdus:?}") };
        assert_eq!(term.fatal(), fatal);
        fatal
    }
}

fn ic_req(hpda: u8, dgst: u8) -> IcReq {
    IcReq { ch: IcReq::CH, pfv: U16::new(0), hpda, dgst, maxr2t: U32::new(0), reserved: [0; 112] }
}

fn sqe(opcode: IoOpcode, cid: u16, kind: u8, len: u32) -> Sqe {
    let mut s = Sqe { opcode: opcode.0, cid: U16::new(cid), ..Sqe::default() };
    s.set_sgl(SglDescriptor::new(kind, 0, len));
    s
}

fn read(cid: u16, len: u32) -> Sqe {
    sqe(IoOpcode::READ, cid, SglDescriptor::TRANSPORT_DATA_BLOCK, len)
}

fn write(cid: u16, len: u32) -> Sqe {
    sqe(IoOpcode::WRITE, cid, SglDescriptor::TRANSPORT_DATA_BLOCK, len)
}

fn write_in_capsule(cid: u16, len: u32) -> Sqe {
    sqe(IoOpcode::WRITE, cid, SglDescriptor::DATA_BLOCK_OFFSET, len)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

// ICReq: PFV 0, length 128, HPDA <= 31, digests per direction, ICResp before any capsule, MAXH2CDATA, a timeout.

#[test]
fn icreq_is_answered_before_anything_else() {
    let mut b = Bench::fresh(settings());
    b.feed(ic_req(3, dgst::HEADER | dgst::DATA).as_bytes());
    let got = b.take();
    assert_eq!(got.len(), 128);
    let Ok(Header::IcResp(resp)) = Header::decode(&got) else { panic!() };
    assert_eq!((resp.pfv.get(), resp.cpda, resp.dgst, resp.maxh2cdata.get()), (0, 0, 3, 8192));
    assert!(b.c.is_running());
    assert_eq!(b.c.deadline(), Nanos::NEVER);
}

#[test]
fn icreq_pfv_other_than_0_is_unsupported() {
    let mut b = Bench::fresh(settings());
    let req = IcReq { pfv: U16::new(1), ..ic_req(0, 0) };
    b.feed(req.as_bytes());
    assert_eq!(b.fatal(), Fatal::new(Fes::UNSUPPORTED_PARAMETER, offset::PFV));
}

#[test]
fn icreq_of_another_length_is_refused() {
    let mut b = Bench::fresh(settings());
    let mut req = ic_req(0, 0);
    req.ch.hlen = 127;
    b.feed(req.as_bytes());
    assert_eq!(b.fatal(), Fatal::field(offset::HLEN));
    let mut b = Bench::fresh(settings());
    let mut req = ic_req(0, 0);
    req.ch.plen = U32::new(129);
    b.feed(req.as_bytes());
    assert_eq!(b.fatal(), Fatal::field(offset::PLEN));
}

#[test]
fn icreq_hpda_beyond_31_is_refused_and_cpda_follows_hpda() {
    let mut b = Bench::fresh(settings());
    b.feed(ic_req(32, 0).as_bytes());
    assert_eq!(b.fatal(), Fatal::field(offset::PDA));
    let b = Bench::new(ConnectionSettings { cpda: 15, ..settings() }, 8, 0, 3, true);
    assert_eq!(b.framing.pda, 3);
    let b = Bench::new(ConnectionSettings { cpda: 2, ..settings() }, 8, 0, 3, true);
    assert_eq!(b.framing.pda, 2);
}

#[test]
fn icreq_digests_are_granted_one_by_one() {
    for wish in 0..4 {
        for (header_digest, data_digest) in [(true, true), (true, false), (false, true), (false, false)] {
            let b = Bench::new(ConnectionSettings { header_digest, data_digest, ..settings() }, 8, wish, 0, true);
            assert_eq!(b.framing.header_digest, header_digest && wish & 1 != 0);
            assert_eq!(b.framing.data_digest, data_digest && wish & 2 != 0);
        }
    }
}

#[test]
fn a_capsule_before_icreq_and_a_second_icreq_are_out_of_sequence() {
    let mut b = Bench::fresh(settings());
    b.feed(CapsuleCmd { ch: CapsuleCmd::CH, sqe: read(1, 512) }.as_bytes());
    assert_eq!(b.fatal(), Fatal::new(Fes::PDU_SEQUENCE_ERROR, offset::TYPE));
    let mut b = Bench::plain(8);
    b.feed(ic_req(0, 0).as_bytes());
    assert_eq!(b.fatal(), Fatal::new(Fes::PDU_SEQUENCE_ERROR, offset::TYPE));
}

#[test]
fn icreq_that_does_not_come_closes_the_connection() {
    let mut b = Bench::fresh(settings());
    b.feed(&ic_req(0, 0).as_bytes()[..127]);
    let deadline = b.c.deadline();
    assert_eq!(deadline, Nanos::from_secs(10));
    b.c.tick(Nanos(deadline.get() - 1));
    assert_eq!(b.c.state(), ConnectionState::AwaitsIcReq);
    b.c.tick(deadline);
    assert_eq!(b.c.state(), ConnectionState::Closed(Closed::Silent));
}

#[test]
fn maxh2cdata_is_lawful_whatever_was_configured() {
    for (wish, got) in [(0, 4096), (4095, 4096), (8195, 8192), (1 << 20, 1 << 20)] {
        assert_eq!(ConnectionSettings { maxh2cdata: wish, ..settings() }.lawful().maxh2cdata, got);
    }
}

// PDO and padding, digests.

#[test]
fn data_starts_where_the_receiver_wants_it() {
    for hpda in [0, 1, 7, 31] {
        for digests in 0..4 {
            let mut b = Bench::new(ConnectionSettings { cpda: 31, ..settings() }, 8, digests, hpda, true);
            let data = pattern(4096);
            let capsule = b.capsule(write_in_capsule(1, 4096), &data);
            assert_eq!(u32::from(capsule[3]) % ((u32::from(hpda) + 1) * 4), 0);
            b.feed(&capsule);
            let tag = b.c.next_command().unwrap().tag;
            assert_eq!(b.c.data(tag).unwrap(), data);
            b.answer(tag, Status::SUCCESS);
            b.feed(&b.capsule(read(2, 4096), &[]));
            let tag = b.c.next_command().unwrap().tag;
            b.c.write_data(tag, 0, &data).unwrap();
            b.answer(tag, Status::SUCCESS);
            let pdus = b.pdus();
            assert_eq!(pdus.len(), 3);
            let (Header::C2hData(pdu), got) = &pdus[1] else { panic!("{pdus:?}") };
            assert_eq!(u32::from(pdu.ch.pdo) % ((u32::from(hpda) + 1) * 4), 0);
            assert_eq!(got, &data);
        }
    }
}

#[test]
fn a_wrong_pdo_is_fatal() {
    let mut b = Bench::new(ConnectionSettings { cpda: 1, ..settings() }, 8, 0, 1, true);
    let mut capsule = b.capsule(write_in_capsule(1, 512), &pattern(512));
    assert_eq!(capsule[3], 72);
    capsule[3] = 76;
    b.feed(&capsule);
    assert_eq!(b.fatal(), Fatal::field(offset::PDO));
}

#[test]
fn a_wrong_header_digest_is_fatal() {
    let mut b = Bench::new(settings(), 8, dgst::HEADER, 0, true);
    let mut capsule = b.capsule(read(1, 4096), &[]);
    capsule[20] ^= 1;
    let sent = u32::from_le_bytes(capsule[72..76].try_into().unwrap());
    b.feed(&capsule);
    assert_eq!(b.fatal(), Fatal::new(Fes::HEADER_DIGEST_ERROR, sent));
    assert_eq!(b.c.next_command(), None);
}

#[test]
fn a_wrong_data_digest_fails_its_command_only() {
    let mut b = Bench::new(settings(), 8, dgst::DATA, 0, true);
    let mut bad = b.capsule(write_in_capsule(1, 512), &pattern(512));
    *bad.last_mut().unwrap() ^= 1;
    let good = b.capsule(write_in_capsule(2, 512), &pattern(512));
    b.feed(&bad);
    b.feed(&good);
    let (first, second) = (b.c.next_command().unwrap(), b.c.next_command().unwrap());
    let mut into = [0; 512];
    assert_eq!(b.c.read_data(first.tag, 0, &mut into), Err(Status::TRANSIENT_TRANSPORT_ERROR));
    assert_eq!(b.c.read_data(second.tag, 0, &mut into), Ok(()));
    assert!(b.c.is_running());
}

#[test]
fn a_wrong_data_digest_of_h2cdata_fails_its_command_only() {
    let mut b = Bench::new(settings(), 8, dgst::DATA, 0, true);
    b.feed(&b.capsule(write(9, 12288), &[]));
    let r2t = b.r2t();
    let mut first = b.h2c(&r2t, 0, &pattern(8192), false);
    first[100] ^= 0x80;
    b.feed(&first);
    b.feed(&b.h2c(&r2t, 8192, &pattern(4096), true));
    let tag = b.c.next_command().unwrap().tag;
    assert_eq!(b.c.data(tag), Err(Status::TRANSIENT_TRANSPORT_ERROR));
    b.answer(tag, Status::TRANSIENT_TRANSPORT_ERROR);
    assert!(b.c.is_running());
    assert_eq!(b.budget.used(), 0);
}

#[test]
fn digest_flags_must_match_what_was_negotiated() {
    let mut b = Bench::new(settings(), 8, dgst::HEADER, 0, true);
    let mut capsule = b.capsule(read(1, 4096), &[]);
    capsule[1] = 0;
    let crc = TableDigest::append(0, &capsule[..72]);
    capsule[72..].copy_from_slice(&crc.to_le_bytes());
    b.feed(&capsule);
    assert_eq!(b.fatal(), Fatal::field(offset::FLAGS));
}

// Fused pairs stay next to each other, whenever their data arrive (base 2.0, 3.4.2).

fn fused(opcode: IoOpcode, cid: u16, fuse: u8, kind: u8, len: u32) -> Sqe {
    let sqe = sqe(opcode, cid, kind, len);
    Sqe { flags: sqe.flags | fuse, ..sqe }
}

#[test]
fn a_pair_is_not_torn_by_data_that_arrive_late() {
    let (by_r2t, inside) = (SglDescriptor::TRANSPORT_DATA_BLOCK, SglDescriptor::DATA_BLOCK_OFFSET);
    for first_by_r2t in [false, true] {
        let mut b = Bench::plain(8);
        // A write whose data come between the two.
        b.feed(&b.capsule(write(1, 4096), &[]));
        let late = b.r2t();
        let kind = if first_by_r2t { by_r2t } else { inside };
        let data = pattern(512);
        b.feed(&b.capsule(fused(IoOpcode::COMPARE, 2, 1, kind, 512), if first_by_r2t { &[] } else { &data }));
        let r2t = first_by_r2t.then(|| b.r2t());
        assert!(b.c.next_command().is_none(), "the first waits for its second");
        b.feed(&b.h2c(&late, 0, &pattern(4096), true));
        b.feed(&b.capsule(fused(IoOpcode::WRITE, 3, 2, inside, 512), &data));
        if let Some(r2t) = r2t {
            assert_eq!(b.c.next_command().map(|c| c.sqe.cid.get()), Some(1));
            assert!(b.c.next_command().is_none(), "the second waits for the first");
            b.feed(&b.capsule(read(4, 512), &[]));
            assert_eq!(b.c.next_command().map(|c| c.sqe.cid.get()), Some(4));
            b.feed(&b.h2c(&r2t, 0, &data, true));
        } else {
            assert_eq!(b.c.next_command().map(|c| c.sqe.cid.get()), Some(1));
        }
        let pair: Vec<u16> = std::iter::from_fn(|| b.c.next_command()).map(|c| c.sqe.cid.get()).collect();
        assert_eq!(pair, [2, 3]);
    }
    // Whatever else comes behind a first command shows that it is alone.
    let mut b = Bench::plain(8);
    b.feed(&b.capsule(fused(IoOpcode::COMPARE, 2, 1, inside, 512), &pattern(512)));
    b.feed(&b.capsule(read(4, 512), &[]));
    let order: Vec<u16> = std::iter::from_fn(|| b.c.next_command()).map(|c| c.sqe.cid.get()).collect();
    assert_eq!(order, [2, 4]);
}

#[test]
fn the_second_of_a_pair_has_room_whoever_holds_the_budget() {
    let mut b = Bench::plain(8);
    let kind = SglDescriptor::TRANSPORT_DATA_BLOCK;
    b.feed(&b.capsule(fused(IoOpcode::COMPARE, 1, 1, kind, 4096), &[]));
    let first = b.r2t();
    b.feed(&b.h2c(&first, 0, &pattern(4096), true));
    // Another connection takes all that is left.
    let others = b.budget.take(MIB - 4096, 0).expect("it is there");
    b.feed(&b.capsule(fused(IoOpcode::WRITE, 2, 2, kind, 4096), &[]));
    let second = b.r2t();
    b.feed(&b.h2c(&second, 0, &pattern(4096), true));
    let pair: Vec<u16> = std::iter::from_fn(|| b.c.next_command()).map(|c| c.sqe.cid.get()).collect();
    assert_eq!(pair, [1, 2]);
    b.budget.put(others);
}

// In-capsule data.

#[test]
fn in_capsule_length_must_equal_the_sgl_length() {
    let mut b = Bench::plain(8);
    b.feed(&b.capsule(write_in_capsule(1, 1024), &pattern(512)));
    b.feed(&b.capsule(write_in_capsule(2, 512), &[]));
    for _ in 0..2 {
        let tag = b.c.next_command().unwrap().tag;
        assert_eq!(b.c.data(tag), Err(Status::DATA_SGL_LENGTH_INVALID));
    }
    assert!(b.c.is_running());
}

#[test]
fn in_capsule_offset_must_be_0() {
    let mut b = Bench::plain(8);
    let mut s = write_in_capsule(1, 512);
    s.set_sgl(SglDescriptor::new(SglDescriptor::DATA_BLOCK_OFFSET, 8, 512));
    b.feed(&b.capsule(s, &pattern(512)));
    let tag = b.c.next_command().unwrap().tag;
    assert_eq!(b.c.data(tag), Err(Status::SGL_OFFSET_INVALID));
}

#[test]
fn in_capsule_data_with_another_kind_of_sgl_is_a_status() {
    let mut b = Bench::plain(8);
    b.feed(&b.capsule(write(1, 512), &pattern(512)));
    b.feed(&b.capsule(sqe(IoOpcode::READ, 2, SglDescriptor::DATA_BLOCK_OFFSET, 512), &pattern(512)));
    b.feed(&b.capsule(sqe(IoOpcode::READ, 3, SglDescriptor::DATA_BLOCK, 512), &[]));
    let tags: Vec<_> = std::iter::from_fn(|| b.c.next_command()).map(|c| c.tag).collect();
    assert_eq!(b.c.data(tags[0]), Err(Status::SGL_TYPE_INVALID));
    assert_eq!(b.c.write_data(tags[1], 0, &[0; 512]), Err(Status::SGL_TYPE_INVALID));
    assert_eq!(b.c.write_data(tags[2], 0, &[0; 512]), Err(Status::SGL_TYPE_INVALID));
}

#[test]
fn admin_and_fabrics_commands_carry_8192_bytes_whatever_ioccsz_says() {
    let mut b = Bench::new(ConnectionSettings { in_capsule: 4096, ..settings() }, 8, 0, 0, true);
    let mut connect = Sqe { opcode: AdminOpcode::FABRICS.0, ..Sqe::default() };
    connect.nsid = U32::new(u32::from(FabricsType::CONNECT.0));
    connect.set_sgl(SglDescriptor::new(SglDescriptor::DATA_BLOCK_OFFSET, 0, 8192));
    b.feed(&b.capsule(connect, &pattern(8192)));
    let tag = b.c.next_command().unwrap().tag;
    assert_eq!(b.c.data(tag).unwrap(), pattern(8192));
}

#[test]
fn more_than_the_capsule_holds_is_fatal_before_it_is_stored() {
    let mut b = Bench::plain(8);
    b.feed(&b.capsule(write_in_capsule(1, 8196), &pattern(8196))[..72]);
    assert_eq!(b.fatal(), Fatal::new(Fes::LIMIT_EXCEEDED, offset::PLEN));
}

#[test]
fn ioccsz_units() {
    assert_eq!((64 + IN_CAPSULE) % 16, 0, "IOCCSZ counts 16 bytes, the entry included");
    assert_eq!(ConnectionSettings { in_capsule: 9001, ..settings() }.lawful().in_capsule, 8992);
}

// R2T and H2CData.

#[test]
fn a_command_is_eligible_only_when_all_its_data_has_arrived() {
    let mut b = Bench::plain(8);
    b.feed(&b.capsule(write(5, 20480), &[]));
    assert_eq!(b.c.next_command(), None);
    let r2t = b.r2t();
    assert_eq!((r2t.cccid.get(), r2t.r2to.get(), r2t.r2tl.get()), (5, 0, 20480));
    let data = pattern(20480);
    b.feed(&b.h2c(&r2t, 0, &data[..8192], false));
    b.feed(&b.h2c(&r2t, 8192, &data[8192..16384], false));
    assert_eq!(b.c.next_command(), None);
    let last = b.h2c(&r2t, 16384, &data[16384..], true);
    b.feed(&last[..last.len() - 1]);
    assert_eq!(b.c.next_command(), None);
    b.feed(&last[last.len() - 1..]);
    let tag = b.c.next_command().unwrap().tag;
    let mut into = vec![0; 4096];
    b.c.read_data(tag, 10000, &mut into).unwrap();
    assert_eq!(into, &data[10000..14096]);
    assert_eq!(b.c.read_data(tag, 20479, &mut into), Err(Status::DATA_SGL_LENGTH_INVALID));
    assert_eq!(b.c.read_data(tag, u32::MAX, &mut into), Err(Status::DATA_SGL_LENGTH_INVALID));
    b.answer(tag, Status::SUCCESS);
    assert_eq!(b.budget.used(), 0);
}

#[test]
fn one_r2t_is_outstanding_per_command() {
    let mut b = Bench::plain(8);
    for cid in 0..4 {
        b.feed(&b.capsule(write(cid, 65536), &[]));
    }
    let pdus = b.pdus();
    let mut cids: Vec<u16> = pdus
        .iter()
        .map(|(h, _)| match h {
            Header::R2t(r) => r.cccid.get(),
            other => panic!("{other:?}"),
        })
        .collect();
    cids.dedup();
    assert_eq!(cids, [0, 1, 2, 3]);
}

#[test]
fn any_ttag_but_the_one_given_is_fatal() {
    let good = {
        let mut b = Bench::plain(8);
        b.feed(&b.capsule(write(5, 512), &[]));
        b.r2t().ttag.get()
    };
    for ttag in (0..=u16::MAX).filter(|t| *t != good) {
        let mut b = Bench::plain(8);
        b.feed(&b.capsule(write(5, 512), &[]));
        let r2t = R2t { ttag: U16::new(ttag), ..b.r2t() };
        b.feed(&b.h2c(&r2t, 0, &[0; 512], true));
        assert_eq!(b.fatal(), Fatal::field(offset::TTAG), "ttag {ttag:#x}");
    }
}

#[test]
fn a_ttag_is_good_for_one_transfer() {
    let mut b = Bench::plain(8);
    b.feed(&b.capsule(write(5, 512), &[]));
    let old = b.r2t();
    b.feed(&b.h2c(&old, 0, &[0; 512], true));
    let tag = b.c.next_command().unwrap().tag;
    b.answer(tag, Status::SUCCESS);
    b.pdus();
    b.feed(&b.capsule(write(5, 512), &[]));
    assert_ne!(b.r2t().ttag, old.ttag);
    b.feed(&b.h2c(&old, 0, &[0; 512], true));
    assert_eq!(b.fatal(), Fatal::field(offset::TTAG));
}

#[test]
fn h2cdata_before_any_command_is_fatal() {
    let mut b = Bench::plain(8);
    let r2t = R2t {
        ch: R2t::CH,
        cccid: U16::new(0),
        ttag: U16::new(0),
        r2to: U32::new(0),
        r2tl: U32::new(512),
        reserved: [0; 4],
    };
    b.feed(&b.h2c(&r2t, 0, &[0; 512], true));
    assert_eq!(b.fatal(), Fatal::field(offset::TTAG));
}

#[test]
fn h2cdata_for_another_command_is_fatal() {
    let mut b = Bench::plain(8);
    b.feed(&b.capsule(write(5, 512), &[]));
    let r2t = R2t { cccid: U16::new(6), ..b.r2t() };
    b.feed(&b.h2c(&r2t, 0, &[0; 512], true));
    assert_eq!(b.fatal(), Fatal::field(offset::CCCID));
}

#[test]
fn h2cdata_must_be_sequential_and_in_range() {
    let range = Fatal::new(Fes::DATA_TRANSFER_OUT_OF_RANGE, offset::DATAO);
    let cases: [(u32, usize, bool, Fatal); 7] = [
        (4096, 4096, false, range),
        (1, 4096, false, range),
        (u32::MAX, 4096, false, range),
        (u32::MAX - 4095, 4096, true, range),
        (16380, 8, true, range),
        (0, 8196, false, Fatal::new(Fes::LIMIT_EXCEEDED, offset::DATAL)),
        (0, 8192, true, Fatal::field(offset::FLAGS)),
    ];
    for (datao, len, last, fatal) in cases {
        let mut b = Bench::plain(8);
        b.feed(&b.capsule(write(5, 16384), &[]));
        let r2t = b.r2t();
        b.feed(&b.h2c(&r2t, datao, &pattern(len), last));
        assert_eq!(b.fatal(), fatal, "datao {datao} datal {len} last {last}");
    }
}

#[test]
fn the_last_h2cdata_must_say_so() {
    let mut b = Bench::plain(8);
    b.feed(&b.capsule(write(5, 512), &[]));
    let r2t = b.r2t();
    b.feed(&b.h2c(&r2t, 0, &[0; 512], false));
    assert_eq!(b.fatal(), Fatal::field(offset::FLAGS));
}

#[test]
fn datal_must_be_the_data_of_the_pdu() {
    let mut b = Bench::plain(8);
    b.feed(&b.capsule(write(5, 4096), &[]));
    let r2t = b.r2t();
    let mut pdu = b.h2c(&r2t, 0, &[0; 4096], true);
    pdu[16..20].copy_from_slice(&8192u32.to_le_bytes());
    b.feed(&pdu);
    assert_eq!(b.fatal(), Fatal::field(offset::DATAL));
}

#[test]
fn a_transfer_longer_than_the_drive_takes_is_a_status() {
    let mut b = Bench::plain(8);
    b.feed(&b.capsule(write(5, MIB + 512), &[]));
    let tag = b.c.next_command().unwrap().tag;
    assert_eq!(b.c.data(tag), Err(Status::DATA_SGL_LENGTH_INVALID));
    assert!(b.pdus().is_empty());
}

#[test]
fn before_connect_no_tenants_budget_is_touched() {
    let mut b = Bench::fresh(settings());
    b.feed(ic_req(0, 0).as_bytes());
    b.take();
    let mut connect = Sqe { opcode: AdminOpcode::FABRICS.0, ..Sqe::default() };
    connect.nsid = U32::new(u32::from(FabricsType::CONNECT.0));
    connect.set_sgl(SglDescriptor::new(SglDescriptor::TRANSPORT_DATA_BLOCK, 0, 1024));
    b.feed(&b.capsule(connect, &[]));
    b.feed(&b.capsule(write(2, 65536), &[]));
    let r2t = b.r2t();
    assert_eq!((r2t.r2tl.get(), b.budget.used()), (1024, 0));
    b.feed(&b.h2c(&r2t, 0, &pattern(1024), true));
    let (early, connect) = (b.c.next_command().unwrap(), b.c.next_command().unwrap());
    assert_eq!(b.c.data(early.tag), Err(Status::DATA_SGL_LENGTH_INVALID));
    assert_eq!(b.c.data(connect.tag).unwrap(), pattern(1024));
}

// Termination.

#[test]
fn termination_quotes_the_header_and_waits_for_the_close() {
    let mut b = Bench::plain(8);
    b.feed(&b.capsule(read(1, 4096), &[]));
    let executing = b.c.next_command().unwrap().tag;
    b.feed(&b.capsule(write(2, 4096), &[]));
    let r2t = b.r2t();
    let held = b.budget.used();
    assert!(held > 0);
    let bad = b.h2c(&R2t { ttag: U16::new(77), ..r2t }, 0, &[0; 4096], true);
    b.feed(&bad);
    let pdus = b.pdus();
    let [(Header::C2hTermReq(term), data)] = pdus.as_slice() else { panic!("{pdus:?}") };
    assert_eq!(term.fatal(), Fatal::field(offset::TTAG));
    assert_eq!(data.as_slice(), &bad[..24]);
    // Everything is ignored now; buffers stay with their commands.
    b.feed(&b.capsule(read(3, 4096), &[]));
    assert_eq!((b.c.next_command(), b.budget.used()), (None, held));
    assert_eq!(b.c.write_data(executing, 0, &[0; 4096]), Ok(()));
    b.answer(executing, Status::SUCCESS);
    assert!(b.pdus().is_empty());
    assert!(b.c.wants_input(), "the close is to be seen");
    b.c.tick(Nanos::from_secs(30));
    assert_eq!(b.c.state(), ConnectionState::Closed(Closed::Lingering));
    b.c.release(&mut b.budget);
    b.c.check();
    assert_eq!(b.budget.used(), 0);
}

#[test]
fn a_hosts_termination_request_closes() {
    let mut b = Bench::plain(8);
    let term = TermReq::new(PduType::H2C_TERM_REQ, Fatal::field(7), 24);
    b.feed(term.as_bytes());
    assert_eq!(b.c.state(), ConnectionState::Closed(Closed::ByHost(Fatal::field(7))));
}

#[test]
fn pdus_of_the_wrong_direction_or_of_no_type_are_fatal() {
    for kind in 0..=255u8 {
        let lawful = [PduType::CAPSULE_CMD, PduType::H2C_DATA, PduType::H2C_TERM_REQ];
        if lawful.contains(&PduType(kind)) {
            continue;
        }
        let mut b = Bench::plain(8);
        b.feed(&[kind, 0, 24, 0, 24, 0, 0, 0]);
        let expected = match hlen(PduType(kind)) {
            Some(_) => Fatal::new(Fes::PDU_SEQUENCE_ERROR, offset::TYPE),
            None => Fatal::field(offset::TYPE),
        };
        assert_eq!(b.fatal(), expected, "type {kind:#x}");
    }
}

// C2HData and SUCCESS.

/// One read of 4096 bytes answered with this entry: the PDUs.
fn read_answered(flow_control: bool, cqe: Cqe, moved: usize) -> Vec<(Header, Vec<u8>)> {
    let mut b = Bench::new(settings(), 8, 0, 0, flow_control);
    b.feed(&b.capsule(read(1, 4096), &[]));
    let tag = b.c.next_command().unwrap().tag;
    b.c.write_data(tag, 0, &pattern(moved)).unwrap();
    b.c.respond(tag, &Cqe { cid: U16::new(1), ..cqe }, &mut b.budget);
    b.pdus()
}

fn is_success(pdus: &[(Header, Vec<u8>)]) -> bool {
    match pdus {
        [(Header::C2hData(d), _)] => {
            assert_eq!(d.ch.flags & (flags::SUCCESS | flags::LAST_PDU), flags::SUCCESS | flags::LAST_PDU);
            true
        }
        [(Header::C2hData(d), _), (Header::CapsuleResp(_), _)] => {
            assert_eq!(d.ch.flags & (flags::SUCCESS | flags::LAST_PDU), flags::LAST_PDU);
            false
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn success_flag_only_where_the_host_needs_no_completion_entry() {
    let ok = Cqe::default();
    assert!(is_success(&read_answered(false, ok, 4096)));
    assert!(!is_success(&read_answered(true, ok, 4096)), "a host with SQ flow control needs SQHD");
    assert!(!is_success(&read_answered(false, Cqe { dw0: U32::new(1), ..ok }, 4096)));
    assert!(!is_success(&read_answered(false, Cqe { dw1: U32::new(1), ..ok }, 4096)));
    assert!(!is_success(&read_answered(false, ok, 512)), "data is missing");
    let mut failed = ok;
    failed.set_status(Status::UNRECOVERED_READ_ERROR);
    assert!(!is_success(&read_answered(false, failed, 4096)));
}

#[test]
fn long_reads_are_split_and_only_the_last_pdu_says_so() {
    let mut b = Bench::new(settings(), 8, 3, 1, false);
    b.feed(&b.capsule(read(1, 20000), &[]));
    let tag = b.c.next_command().unwrap().tag;
    let data = pattern(20000);
    for (i, chunk) in data.chunks(3000).enumerate() {
        b.c.write_data(tag, i as u32 * 3000, chunk).unwrap();
        b.c.check();
    }
    b.answer(tag, Status::SUCCESS);
    let pdus = b.pdus();
    let mut got = vec![];
    for (i, (header, data)) in pdus.iter().enumerate() {
        let Header::C2hData(pdu) = header else { panic!("{header:?}") };
        assert_eq!(pdu.datao.get() as usize, got.len());
        assert_eq!(pdu.datal.get() as usize, data.len());
        assert_eq!(pdu.ch.flags & flags::LAST_PDU != 0, i == 2);
        got.extend(data);
    }
    assert_eq!((pdus.len(), got), (3, data));
}

#[test]
fn an_unfinished_pdu_is_not_given_to_the_socket() {
    let mut b = Bench::plain(8);
    b.feed(&b.capsule(read(1, 8192), &[]));
    let tag = b.c.next_command().unwrap().tag;
    b.c.write_data(tag, 0, &pattern(4096)).unwrap();
    assert!(b.c.ready().is_empty());
    b.c.write_data(tag, 4096, &pattern(4096)).unwrap();
    assert!(b.c.ready().is_empty());
    b.answer(tag, Status::SUCCESS);
    assert_eq!(b.pdus().len(), 2);
}

/// Each read's data comes in one PDU, whatever else is sent between its pieces (here other reads and completions).
#[test]
fn a_read_is_one_pdu() {
    for digests in 0..4 {
        for flow_control in [false, true] {
            let defaults = ConnectionSettings::default();
            let mut b = Bench::new(defaults, 8, digests, 1, flow_control);
            let longest = defaults.max_transfer;
            for (cid, len) in [(1, longest), (2, 8192), (3, 4096)] {
                b.feed(&b.capsule(read(cid, len), &[]));
            }
            let [x, y, z] = [0; 3].map(|_| b.c.next_command().unwrap().tag);
            let quarter = longest / 4;
            let all = pattern(longest as usize);
            for n in 0..4 {
                let at = (n * quarter) as usize;
                b.c.write_data(x, n * quarter, &all[at..at + quarter as usize]).unwrap();
                match n {
                    0 | 1 => b.c.write_data(y, n * 4096, &[2; 4096]).unwrap(),
                    2 => b.c.write_data(z, 0, &[3; 4096]).unwrap(),
                    _ => b.answer(z, Status::SUCCESS),
                }
                b.c.check();
            }
            b.answer(y, Status::SUCCESS);
            b.answer(x, Status::SUCCESS);
            let (mut got, mut answers) = ([(0, 0); 4], 0);
            for (header, data) in b.pdus() {
                match header {
                    Header::C2hData(pdu) => {
                        let cid = usize::from(pdu.cccid.get());
                        assert!(pdu.datao.get() == 0 && pdu.ch.flags & flags::LAST_PDU != 0, "{pdu:?}");
                        assert!(if cid == 1 { data == all } else { data.iter().all(|d| usize::from(*d) == cid) });
                        got[cid] = (got[cid].0 + 1, data.len());
                        answers += u32::from(pdu.ch.flags & flags::SUCCESS != 0);
                    }
                    Header::CapsuleResp(_) => answers += 1,
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!((got, answers), ([(0, 0), (1, longest as usize), (1, 8192), (1, 4096)], 3));
        }
    }
}

/// Pieces of a read come in any order, as those of a volume do that lies on two drives, with others' answers between them, and again where a copy has
/// failed: the host gets each byte once, in its place, in one PDU.
#[test]
fn pieces_of_a_read_come_in_any_order() {
    const PIECE: usize = 4096;
    let orders: [&[usize]; 9] = [
        &[1, 0, 2, 3],
        &[0, 2, 1, 3],
        &[3, 2, 1, 0],
        &[2, 3, 0, 1],
        &[0, 1, 3, 2],
        &[0, 0, 1, 2, 3],
        &[1, 0, 1, 2, 3],
        &[0, 1, 0, 1, 2, 3],
        &[0, 3, 0, 1, 2, 3],
    ];
    for order in orders {
        // After which piece another read is answered, if after one.
        for between in 0..=order.len() {
            let mut b = Bench::new(ConnectionSettings::default(), 8, 3, 1, false);
            b.feed(&b.capsule(read(1, 4 * PIECE as u32), &[]));
            b.feed(&b.capsule(read(2, 512), &[]));
            let (x, y) = (b.c.next_command().unwrap().tag, b.c.next_command().unwrap().tag);
            let all = pattern(4 * PIECE);
            for (n, piece) in order.iter().enumerate() {
                if n == between {
                    b.c.write_data(y, 0, &[2; 512]).unwrap();
                    b.answer(y, Status::SUCCESS);
                }
                let at = piece * PIECE;
                b.c.write_data(x, at as u32, &all[at..at + PIECE]).unwrap();
                b.c.check();
            }
            b.answer(x, Status::SUCCESS);
            let pdus = b.pdus();
            let is_x = |header: &Header| matches!(header, Header::C2hData(pdu) if pdu.cccid.get() == 1);
            let got: Vec<_> = pdus.iter().filter(|(header, _)| is_x(header)).collect();
            let [(Header::C2hData(pdu), data)] = &got[..] else { panic!("{order:?} {between}: {got:?}") };
            assert!(*data == all && pdu.datao.get() == 0, "{order:?}, another after {between}: {:?}", pdu.datao);
            assert_eq!(pdu.ch.flags & (flags::LAST_PDU | flags::SUCCESS), flags::LAST_PDU | flags::SUCCESS);
        }
    }
}

/// The same where a PDU is shorter than the read: what is behind a header already is not sent again.
#[test]
fn pieces_in_any_order_go_on_behind_what_was_sent() {
    let mut b = Bench::new(settings(), 8, 3, 1, false);
    b.feed(&b.capsule(read(1, 20_000), &[]));
    let tag = b.c.next_command().unwrap().tag;
    let all = pattern(20_000);
    for run in [0..9000, 12_000..20_000, 0..9000, 9000..12_000] {
        b.c.write_data(tag, run.start as u32, &all[run]).unwrap();
        b.c.check();
    }
    b.answer(tag, Status::SUCCESS);
    let mut got = vec![];
    for (header, data) in b.pdus() {
        let Header::C2hData(pdu) = header else { panic!("{header:?}") };
        assert_eq!(pdu.datao.get() as usize, got.len());
        got.extend(data);
    }
    assert_eq!(got, all);
}

/// What has come of a read that fails in the end, between others, is not sent.
#[test]
fn a_read_that_fails_half_way_sends_its_status_only() {
    let mut b = Bench::plain(8);
    b.feed(&b.capsule(read(1, 8192), &[]));
    b.feed(&b.capsule(read(2, 4096), &[]));
    let (x, y) = (b.c.next_command().unwrap().tag, b.c.next_command().unwrap().tag);
    b.c.write_data(x, 0, &[1; 4096]).unwrap();
    b.c.write_data(y, 0, &[2; 4096]).unwrap();
    assert!(b.c.save(b.now).is_none(), "half of a read is here");
    b.answer(y, Status::SUCCESS);
    b.answer(x, Status::UNRECOVERED_READ_ERROR);
    let pdus = b.pdus();
    let [(Header::C2hData(data), _), (Header::CapsuleResp(_), _), (Header::CapsuleResp(failed), _)] = &pdus[..] else {
        panic!("{pdus:?}")
    };
    assert_eq!((data.cccid.get(), failed.cqe.cid.get()), (2, 1));
    assert!(failed.cqe.status().same_code(Status::UNRECOVERED_READ_ERROR));
}

#[test]
fn more_than_the_host_described_is_never_sent() {
    let mut b = Bench::plain(8);
    b.feed(&b.capsule(read(1, 512), &[]));
    let tag = b.c.next_command().unwrap().tag;
    assert_eq!(b.c.write_data(tag, 0, &[0; 513]), Err(Status::DATA_SGL_LENGTH_INVALID));
    assert_eq!(b.c.write_data(tag, u32::MAX, &[0; 2]), Err(Status::DATA_SGL_LENGTH_INVALID));
    b.answer(tag, Status::DATA_SGL_LENGTH_INVALID);
    assert!(matches!(b.pdus().as_slice(), [(Header::CapsuleResp(_), _)]));
}

// Command slots.

#[test]
fn the_next_command_may_come_before_our_send_was_reported() {
    let mut b = Bench::plain(4);
    for cid in 0..4 {
        b.feed(&b.capsule(read(cid, 512), &[]));
    }
    let first = b.c.next_command().unwrap().tag;
    b.c.write_data(first, 0, &[0; 512]).unwrap();
    b.answer(first, Status::SUCCESS);
    // On the wire already, but `sent` was not called yet: the host saw the answer and goes on.
    b.feed(&b.capsule(read(4, 512), &[]));
    assert!(b.c.is_running() && !b.c.wants_input());
    b.feed(&b.capsule(read(5, 512), &[])[..13]);
    assert_eq!(b.pdus().len(), 2);
    assert!(b.c.wants_input());
    let cids: Vec<u16> = std::iter::from_fn(|| b.c.next_command()).map(|c| c.sqe.cid.get()).collect();
    assert_eq!(cids, [1, 2, 3, 4]);
}

#[test]
fn a_header_cut_in_two_survives_waiting_for_the_send() {
    let mut b = Bench::plain(4);
    for cid in 0..4 {
        b.feed(&b.capsule(read(cid, 512), &[]));
    }
    let first = b.c.next_command().unwrap().tag;
    b.answer(first, Status::UNRECOVERED_READ_ERROR);
    let next = b.capsule(read(4, 512), &[]);
    b.feed(&next[..30]);
    b.feed(&next[30..]);
    assert!(!b.c.wants_input());
    b.pdus();
    assert!(b.c.is_running() && b.c.wants_input());
    let cids: Vec<u16> = std::iter::from_fn(|| b.c.next_command()).map(|c| c.sqe.cid.get()).collect();
    assert_eq!(cids, [1, 2, 3, 4]);
}

#[test]
fn more_commands_than_the_queue_has_entries_is_fatal() {
    let mut b = Bench::plain(4);
    for cid in 0..5 {
        b.feed(&b.capsule(read(cid, 512), &[]));
    }
    assert_eq!(b.fatal().fes, Fes::PDU_SEQUENCE_ERROR);
}

// Hosts that do not do their part.

#[test]
fn a_host_that_never_sends_its_data_holds_half_the_budget_at_most() {
    let mut silent = Bench::plain(128);
    for cid in 0..128 {
        silent.feed(&silent.capsule(write(cid, 65536), &[]));
    }
    assert_eq!(silent.c.next_command(), None);
    assert_eq!(silent.pdus().len(), 8, "half of 1 MiB in 64 KiB");
    assert!(silent.c.awaits_budget());
    // Another connection of the tenant shares the budget and goes on.
    let mut other = Bench::plain(8);
    std::mem::swap(&mut other.budget, &mut silent.budget);
    for cid in 0..100 {
        other.feed(&other.capsule(write(cid, 65536), &[]));
        let r2t = other.r2t();
        for at in (0..65536).step_by(8192) {
            other.feed(&other.h2c(&r2t, at, &[7; 8192], at == 57344));
        }
        let tag = other.c.next_command().unwrap().tag;
        other.answer(tag, Status::SUCCESS);
        assert_eq!(other.pdus().len(), 1);
    }
    // When the silent one goes, all is free again.
    silent.c.close();
    silent.c.release(&mut other.budget);
    assert_eq!(other.budget.used(), 0);
}

#[test]
fn even_beside_a_full_budget_every_connection_may_move_one_command() {
    let mut budget = Budget::new(65536);
    let mut benches: Vec<Bench> = (0..4).map(|_| Bench::plain(8)).collect();
    for b in &mut benches {
        std::mem::swap(&mut budget, &mut b.budget);
        for cid in 0..8 {
            b.feed(&b.capsule(write(cid, 65536), &[]));
        }
        assert_eq!(b.pdus().len(), 1);
        std::mem::swap(&mut budget, &mut b.budget);
    }
    assert_eq!(budget.used(), 4 * 65536);
}

#[test]
fn an_r2t_that_waited_goes_out_when_the_budget_is_released() {
    let mut b = Bench::plain(8);
    b.budget.set_limit(8192);
    for cid in 0..3 {
        b.feed(&b.capsule(write(cid, 4096), &[]));
    }
    let r2t = b.r2t();
    assert_eq!(r2t.cccid.get(), 0);
    b.feed(&b.h2c(&r2t, 0, &[0; 4096], true));
    let tag = b.c.next_command().unwrap().tag;
    assert!(!b.c.grant(&mut b.budget), "the drive has not read it");
    b.answer(tag, Status::SUCCESS);
    assert!(b.c.grant(&mut b.budget));
    let pdus = b.pdus();
    assert!(matches!(pdus.as_slice(), [(Header::CapsuleResp(_), _), (Header::R2t(r), _)] if r.cccid.get() == 1));
}

#[test]
fn a_host_that_never_reads_has_its_commands_held_here() {
    let mut b = Bench::plain(128);
    for cid in 0..128 {
        b.feed(&b.capsule(read(cid, 8192), &[]));
    }
    // 64 KiB may be promised: the drive sees eight commands, and no more whatever they do.
    let tags: Vec<u16> = std::iter::from_fn(|| b.c.next_command()).map(|c| c.tag).collect();
    assert_eq!(tags.len(), 8);
    for tag in tags {
        b.c.write_data(tag, 0, &pattern(8192)).unwrap();
        b.answer(tag, Status::SUCCESS);
    }
    assert_eq!(b.c.next_command(), None);
    assert!(b.c.backlog() <= (64 << 10) + 8 * 64);
    // What has no data for the host is not held up by what has.
    b.feed(&b.capsule(write_in_capsule(200, 512), &pattern(512))[..72]);
    assert_eq!(b.c.next_command(), None);
    assert!(!b.c.wants_input(), "the queue is full of answers that the host does not take");
    // It reads again: the rest follows, in order.
    let mut seen = 8;
    while seen < 128 {
        b.pdus();
        let tags: Vec<ReadyCommand> = std::iter::from_fn(|| b.c.next_command()).collect();
        assert!(!tags.is_empty());
        for c in tags {
            assert_eq!(c.sqe.cid.get(), seen);
            seen += 1;
            b.c.write_data(c.tag, 0, &pattern(8192)).unwrap();
            b.answer(c.tag, Status::SUCCESS);
        }
    }
}

#[test]
fn a_flood_of_commands_from_a_host_that_never_reads_needs_bounded_memory() {
    let mut b = Bench::plain(16);
    let flush = b.capsule(sqe(IoOpcode::FLUSH, 1, SglDescriptor::TRANSPORT_DATA_BLOCK, 0), &[]);
    for _ in 0..10_000 {
        if !b.c.wants_input() {
            break;
        }
        b.feed(&flush);
        while let Some(c) = b.c.next_command() {
            b.answer(c.tag, Status::SUCCESS);
        }
    }
    assert!(!b.c.wants_input());
    assert!(b.c.backlog() <= 16 * 24);
}

#[test]
fn one_command_longer_than_the_limit_goes_alone() {
    let mut b = Bench::plain(8);
    b.feed(&b.capsule(read(1, 512), &[]));
    b.feed(&b.capsule(read(2, MIB), &[]));
    b.feed(&b.capsule(read(3, 512), &[]));
    let first = b.c.next_command().unwrap();
    assert_eq!(b.c.next_command(), None);
    b.answer(first.tag, Status::UNRECOVERED_READ_ERROR);
    b.pdus();
    let second = b.c.next_command().unwrap();
    assert_eq!(second.sqe.cid.get(), 2);
    assert_eq!(b.c.next_command(), None);
    for at in (0..MIB).step_by(65536) {
        b.c.write_data(second.tag, at, &[9; 65536]).unwrap();
    }
    b.answer(second.tag, Status::SUCCESS);
    assert_eq!(b.pdus().iter().map(|(_, d)| d.len()).sum::<usize>(), MIB as usize);
    assert_eq!(b.c.next_command().unwrap().sqe.cid.get(), 3);
}

#[test]
fn data_is_not_hashed_or_read_again_after_it_was_handed_over() {
    // The digest is computed over the bytes on the wire; what the medium does afterwards does not matter.
    let mut b = Bench::new(settings(), 8, 3, 0, true);
    b.feed(&b.capsule(read(1, 4096), &[]));
    let tag = b.c.next_command().unwrap().tag;
    let mut medium = pattern(4096);
    b.c.write_data(tag, 0, &medium).unwrap();
    medium.fill(0xee);
    b.answer(tag, Status::SUCCESS);
    let pdus = b.pdus();
    assert_eq!(pdus[0].1, pattern(4096));
    let Header::C2hData(C2hData { datal, .. }) = pdus[0].0 else { panic!() };
    assert_eq!(datal.get(), 4096);
}
