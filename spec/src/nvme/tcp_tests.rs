//! Round trips of every header and of every layout; known bytes.

use super::*;
use proptest::prelude::*;
extern crate std;
use std::vec;

fn kinds() -> impl Strategy<Value = PduType> {
    prop::sample::select(vec![
        PduType::IC_REQ,
        PduType::IC_RESP,
        PduType::H2C_TERM_REQ,
        PduType::C2H_TERM_REQ,
        PduType::CAPSULE_CMD,
        PduType::CAPSULE_RESP,
        PduType::H2C_DATA,
        PduType::C2H_DATA,
        PduType::R2T,
    ])
}

fn framings() -> impl Strategy<Value = Framing> {
    (any::<bool>(), any::<bool>(), 0..=PDA_MAX).prop_map(|(header_digest, data_digest, pda)| Framing {
        header_digest,
        data_digest,
        pda,
    })
}

proptest! {
    #[test]
    fn a_header_survives_decoding(kind in kinds(), mut bytes in prop::collection::vec(any::<u8>(), HEADER_MAX)) {
        bytes[0] = kind.0;
        bytes[2] = hlen(kind).unwrap();
        let len = usize::from(bytes[2]);
        let header = Header::decode(&bytes).unwrap();
        prop_assert_eq!(header.as_bytes(), &bytes[..len]);
        prop_assert!(Header::decode(&bytes[..len - 1]).is_err());
    }

    #[test]
    fn any_bytes_decode_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..160), framing in framings()) {
        let _ = Header::decode(&bytes);
        if let Some(ch) = CommonHeader::peek(&bytes) {
            if hlen(ch.pdu_type()) == Some(ch.hlen) {
                if let Ok(body) = framing.split(&ch) {
                    let parts = framing.header_len(ch.pdu_type(), ch.hlen) as u64
                        + u64::from(body.padding) + u64::from(body.data) + if body.digest { 4 } else { 0 };
                    prop_assert_eq!(parts, u64::from(ch.plen.get()));
                }
            }
        }
    }

    #[test]
    fn what_fill_lays_out_split_finds(
        kind in prop::sample::select(vec![PduType::CAPSULE_CMD, PduType::H2C_DATA, PduType::C2H_DATA]),
        framing in framings(),
        data in 0u32..0x7fff_ffff,
    ) {
        let mut ch = CommonHeader::bare(kind, hlen(kind).unwrap());
        framing.fill(&mut ch, data);
        let body = framing.split(&ch).unwrap();
        prop_assert_eq!(body.data, data);
        prop_assert_eq!(body.digest, data > 0 && framing.data_digest);
        if data > 0 {
            prop_assert_eq!(u32::from(ch.pdo) % ((u32::from(framing.pda) + 1) * 4), 0);
            prop_assert!(body.padding < (u32::from(framing.pda) + 1) * 4);
        }
    }

    #[test]
    fn digests_can_be_computed_in_pieces(bytes in prop::collection::vec(any::<u8>(), 0..100), cut in 0usize..100) {
        let cut = cut.min(bytes.len());
        let whole = TableDigest::append(0, &bytes);
        prop_assert_eq!(TableDigest::append(TableDigest::append(0, &bytes[..cut]), &bytes[cut..]), whole);
    }
}

#[test]
fn crc32c_of_the_check_string_and_of_rfc_3720_vectors() {
    assert_eq!(TableDigest::append(0, b"123456789"), 0xe306_9283);
    assert_eq!(TableDigest::append(0, &[0; 32]), 0x8a91_36aa);
    assert_eq!(TableDigest::append(0, &[0xff; 32]), 0x62a8_ab43);
}

#[test]
fn fields_lie_where_fei_says() {
    assert_eq!(core::mem::offset_of!(IcReq, pfv) as u32, offset::PFV);
    assert_eq!(core::mem::offset_of!(IcReq, hpda) as u32, offset::PDA);
    assert_eq!(core::mem::offset_of!(IcReq, dgst) as u32, offset::DGST);
    assert_eq!(core::mem::offset_of!(IcResp, maxh2cdata) as u32, offset::MAXH2CDATA);
    assert_eq!(core::mem::offset_of!(H2cData, cccid) as u32, offset::CCCID);
    assert_eq!(core::mem::offset_of!(H2cData, ttag) as u32, offset::TTAG);
    assert_eq!(core::mem::offset_of!(H2cData, datao) as u32, offset::DATAO);
    assert_eq!(core::mem::offset_of!(C2hData, datao) as u32, offset::DATAO);
    assert_eq!(core::mem::offset_of!(C2hData, datal) as u32, offset::DATAL);
    assert_eq!(core::mem::offset_of!(R2t, r2to) as u32, offset::DATAO);
    assert_eq!(core::mem::offset_of!(R2t, r2tl) as u32, offset::DATAL);
    assert_eq!(core::mem::offset_of!(TermReq, fei), 10);
}

#[test]
fn wrong_layouts_are_named() {
    let plain = Framing::PLAIN;
    let digests = Framing { header_digest: true, data_digest: true, pda: 1 };
    let with = |ch: CommonHeader, f: fn(&mut CommonHeader)| {
        let mut ch = ch;
        f(&mut ch);
        ch
    };
    let mut data = H2cData::CH;
    digests.fill(&mut data, 100);
    assert_eq!(plain.split(&data), Err(Fatal::field(offset::FLAGS)));
    assert_eq!(digests.split(&with(data, |c| c.flags &= !flags::HDGST)), Err(Fatal::field(offset::FLAGS)));
    assert_eq!(digests.split(&with(data, |c| c.flags &= !flags::DDGST)), Err(Fatal::field(offset::FLAGS)));
    assert_eq!(digests.split(&with(data, |c| c.pdo = 24)), Err(Fatal::field(offset::PDO)));
    assert_eq!(digests.split(&with(data, |c| c.pdo = 36)), Err(Fatal::field(offset::PDO)));
    assert_eq!(digests.split(&with(data, |c| c.plen = U32::new(20))), Err(Fatal::field(offset::PLEN)));
    assert_eq!(digests.split(&with(data, |c| c.plen = U32::new(33))), Err(Fatal::field(offset::PLEN)));
    assert_eq!(plain.split(&with(R2t::CH, |c| c.plen = U32::new(25))), Err(Fatal::field(offset::PLEN)));
    let mut term = TermReq::new(PduType::H2C_TERM_REQ, Fatal::field(3), 128).ch;
    assert_eq!(digests.split(&term).map(|b| b.data), Ok(128));
    term.plen = U32::new(TERM_MAX + 1);
    assert_eq!(digests.split(&term), Err(Fatal::field(offset::PLEN)));
}
