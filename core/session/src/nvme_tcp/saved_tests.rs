//! The layout of a saved connection, byte by byte: `docs/reference/formats.md`.

use super::saved::{Head, VERSION, get_head, head_rows, put_head, request_rows};
use super::*;
use std::format;
use std::string::String;
use std::vec::Vec;
use weir_codec::{Reader, SavedError, Writer, undocumented};
use weir_spec::nvme::tcp::{CapsuleCmd, TableDigest};

type Target = Connection<TableDigest>;

/// A queue of four with digests, whose host has sent a read and half of a write.
fn half_way() -> (Target, Budget) {
    // The golden bytes are of a target that splits at 128 KiB.
    let settings = ConnectionSettings { c2h_data: 1 << 17, ..ConnectionSettings::default() };
    let (mut target, mut budget) = (Target::new(Nanos(5), settings), Budget::new(1 << 20));
    let both = dgst::HEADER | dgst::DATA;
    let req = IcReq { ch: IcReq::CH, pfv: U16::new(0), hpda: 0, dgst: both, maxr2t: U32::new(0), reserved: [0; 112] };
    target.receive(Nanos(5), req.as_bytes(), &mut budget);
    target.sent(Nanos(5), target.ready().len(), &mut budget);
    target.connected(4, true);
    let mut send = |cid: u16, opcode: IoOpcode, kind: u8, length: u32, data: &[u8], cut: usize| {
        let mut sqe = Sqe { opcode: opcode.0, ..Sqe::default() };
        sqe.cid = U16::new(cid);
        sqe.set_sgl(SglDescriptor::new(kind, 0, length));
        let mut pdu = CapsuleCmd { ch: CapsuleCmd::CH, sqe };
        let framing = Framing { header_digest: true, data_digest: true, pda: 0 };
        framing.fill(&mut pdu.ch, data.len() as u32);
        let mut bytes = pdu.as_bytes().to_vec();
        bytes.extend(TableDigest::append(0, &bytes).to_le_bytes());
        bytes.extend_from_slice(data);
        target.receive(Nanos(5), &bytes[..bytes.len() - cut], &mut budget);
    };
    send(0x11, IoOpcode::READ, SglDescriptor::TRANSPORT_DATA_BLOCK, 512, &[], 0);
    send(0x12, IoOpcode::WRITE, SglDescriptor::DATA_BLOCK_OFFSET, 512, &[7; 512], 508);
    assert_eq!(target.next_command().map(|c| c.sqe.cid.get()), Some(0x11));
    (target, budget)
}

/// Sixteen bytes a line, repeated lines as one.
fn dump(bytes: &[u8]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (i, chunk) in bytes.chunks(16).enumerate() {
        let text: String = chunk.iter().map(|b| format!("{b:02x}")).collect();
        if chunk.iter().any(|b| *b != 0) {
            lines.push(format!("{:03x} {text}", i * 16));
        }
    }
    lines
}

#[test]
fn golden_bytes_of_version_1() {
    let (target, _) = half_way();
    let bytes = target.save(Nanos(5)).unwrap();
    assert_eq!((VERSION, bytes.len()), (1, 248 + 4 + 88 + 88 + 4 + 4));
    let golden: Vec<&str> = include_str!("saved_1.txt").lines().collect();
    assert_eq!(dump(&bytes), golden, "a change of the layout is another version");
}

#[test]
fn the_golden_bytes_are_read() {
    let (mut before, mut budget) = half_way();
    let mut bytes: Vec<u8> = Vec::new();
    for line in include_str!("saved_1.txt").lines() {
        let (at, hex) = line.split_once(' ').unwrap();
        bytes.resize(usize::from_str_radix(at, 16).unwrap(), 0);
        bytes.extend((0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()));
    }
    let mut new = Budget::new(1 << 20);
    let mut after = Target::restore(Nanos(100), &bytes, &mut new).unwrap();
    assert_eq!(after.executing().collect::<Vec<_>>(), [0]);
    // The rest of the write comes, and its digest.
    let mut rest = [7u8; 508].to_vec();
    rest.extend(TableDigest::append(0, &[7; 512]).to_le_bytes());
    for (target, budget) in [(&mut before, &mut budget), (&mut after, &mut new)] {
        target.receive(Nanos(100), &rest, budget);
        let command = target.next_command().unwrap();
        assert_eq!((command.sqe.cid.get(), target.data(command.tag)), (0x12, Ok(&[7; 512][..])));
        target.write_data(0, 0, &[9; 512]).unwrap();
        target.respond(0, &Cqe::default(), budget);
        target.respond(command.tag, &Cqe::default(), budget);
        target.check();
    }
    assert_eq!(before.ready(), after.ready());
}

#[test]
fn what_is_another_release_or_none_is_told() {
    let (target, mut budget) = half_way();
    let bytes = target.save(Nanos(5)).unwrap();
    let version = SavedError::Version { found: 3, oldest: 1, newest: 1 };
    for (at, error) in [(0, SavedError::Foreign("the state of a connection")), (8, version), (12, SavedError::Damaged)]
    {
        let mut other = bytes.clone();
        other[at] ^= 2;
        assert_eq!(Target::restore(Nanos(5), &other, &mut budget).err(), Some(error));
    }
    let mut closing = target;
    closing.close();
    assert_eq!(closing.save(Nanos(5)), None);
}

/// The fixed part behind magic, version and length.
fn head_of(bytes: &[u8]) -> Head {
    let mut head = Target::new(Nanos(5), ConnectionSettings::default()).head();
    get_head(&mut head, &mut Reader::at(Nanos(5), &bytes[16..])).unwrap();
    head
}

/// Changed where a checksum does not help: whoever wrote it made it right.
fn forged(bytes: &[u8], change: impl FnOnce(&mut Head)) -> Vec<u8> {
    let (mut head, mut to) = (head_of(bytes), Writer::at(Nanos(5)));
    change(&mut head);
    put_head(&head, &mut to);
    let head = to.done();
    assert_eq!(head.len(), 248 - 16);
    let body = bytes.len() - DIGEST_LEN;
    let mut other = [&bytes[..16], &head, &bytes[248..body]].concat();
    other.extend(TableDigest::append(0, &other).to_le_bytes());
    other
}

#[test]
fn a_header_is_never_longer_than_it_says() {
    let (mut target, mut budget) = half_way();
    // The rest of the write, and the beginning of a header.
    let mut rest = [7u8; 508].to_vec();
    rest.extend(TableDigest::append(0, &[7; 512]).to_le_bytes());
    let mut ch = CapsuleCmd::CH;
    Framing { header_digest: true, data_digest: true, pda: 0 }.fill(&mut ch, 0);
    rest.extend_from_slice(ch.as_bytes());
    rest.extend_from_slice(&[0; 40]);
    target.receive(Nanos(5), &rest, &mut budget);
    let bytes = target.save(Nanos(5)).unwrap();
    let whole = size_of::<CapsuleCmd>() + DIGEST_LEN;
    assert_eq!(head_of(&bytes).rx.pdu.have, 48);
    for have in 0..=HEADER_MAX + DIGEST_LEN + 1 {
        let forged = forged(&bytes, |head| head.rx.pdu.have = have);
        match Target::restore(Nanos(5), &forged, &mut Budget::new(1 << 20)) {
            Ok(mut restored) => {
                assert!(have < whole, "{have}");
                restored.receive(Nanos(5), &[0; 200], &mut Budget::new(1 << 20));
            }
            Err(e) => assert!(have >= whole && e == SavedError::Damaged, "{have}: {e}"),
        }
    }
}

#[test]
fn no_transfer_is_longer_than_any_host_was_told() {
    let (target, _) = half_way();
    let bytes = target.save(Nanos(5)).unwrap();
    let longest: [fn(&mut Head) -> &mut u32; 2] = [|h| &mut h.settings.max_transfer, |h| &mut h.settings.in_capsule];
    for (at, of) in longest.into_iter().enumerate() {
        for (most, read) in [(MAX_TRANSFER, true), (MAX_TRANSFER + 16, false), (!15, false)] {
            let forged = forged(&bytes, |head| *of(head) = most);
            let restored = Target::restore(Nanos(5), &forged, &mut Budget::new(1 << 20));
            assert_eq!(restored.is_ok(), read, "{at}: {most}");
        }
    }
}

#[test]
fn fields_are_lines_of_the_formats_page() {
    let page = include_str!("../../../../docs/reference/formats.md");
    let missing = undocumented(page, [("the fixed part", head_rows()), ("a command", request_rows())]);
    assert!(missing.is_empty(), "formats.md has other lines than these:\n{missing}");
}
