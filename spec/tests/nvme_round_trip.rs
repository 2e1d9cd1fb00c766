//! Any bytes are some structure, and come back as they were; every field setter changes its own bits only.

use proptest::prelude::*;
use weir_spec::nvme::fabrics::{Connect, ConnectData, Disconnect, Property};
use weir_spec::nvme::fdp;
use weir_spec::nvme::feature::{Arbitration, FeatureDw10, Quanta, Queues, TemperatureThreshold};
use weir_spec::nvme::identify::{
    IdentifyController, IdentifyIndependentNamespace, IdentifyNamespace, IdentifyNvmController,
};
use weir_spec::nvme::log::{
    AsyncEvent, DiscoveryEntry, DiscoveryHeader, Effects, ErrorEntry, ExtendedAttribute, ExtendedDiscoveryEntry,
    FirmwareSlots, GetLogDw10, Smart, SupportedLogPages, adrfam, subtype,
};
use weir_spec::nvme::nvm::DsmRange;
use weir_spec::nvme::register::{Aqa, Cap, Cc, Csts, Doorbell, doorbell_at, doorbell_offset};
use weir_spec::nvme::zns::{
    ChangedZones, IdentifyZonedController, IdentifyZonedNamespace, ReceiveDw13, ReportHeader, SendDw13, ZoneDescriptor,
    ZoneState, report,
};
use weir_spec::nvme::{Cqe, Sqe, Status};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

fn comes_back<T: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned>(bytes: &[u8]) {
    let value = T::read_from_bytes(&bytes[..size_of::<T>()]).expect("any bytes will do");
    assert_eq!(value.as_bytes(), &bytes[..size_of::<T>()]);
    assert!(T::read_from_bytes(&bytes[..size_of::<T>() - 1]).is_err(), "too short is an error");
}

/// Setting a field makes it that value and leaves the other bits; `$bits` is the field's width.
macro_rules! field {
    ($t:ident, $word:expr, $value:expr, $get:ident, $with:ident, $bits:literal) => {
        let (word, mask) = ($t($word as _), (1u64 << $bits) - 1);
        let value = ($value & mask) as _;
        prop_assert_eq!(word.$with(value).$get(), value);
        prop_assert_eq!(word.$with(word.$get()), word);
        prop_assert_eq!(word.$with(value).$with(word.$get()), word, "other bits stay");
        prop_assert_eq!(word.$with($value as _), word.$with(value), "too large is cut");
    };
}

proptest! {
    #[test]
    fn structures(bytes in proptest::collection::vec(any::<u8>(), 4096)) {
        comes_back::<Sqe>(&bytes);
        comes_back::<Cqe>(&bytes);
        comes_back::<Connect>(&bytes);
        comes_back::<ConnectData>(&bytes);
        comes_back::<Property>(&bytes);
        comes_back::<Disconnect>(&bytes);
        comes_back::<Quanta>(&bytes);
        comes_back::<DsmRange>(&bytes);
        comes_back::<IdentifyController>(&bytes);
        comes_back::<IdentifyNamespace>(&bytes);
        comes_back::<IdentifyNvmController>(&bytes);
        comes_back::<IdentifyIndependentNamespace>(&bytes);
        comes_back::<fdp::ConfigurationsHeader>(&bytes);
        comes_back::<fdp::Configuration>(&bytes);
        comes_back::<fdp::HandleDescriptor>(&bytes);
        comes_back::<fdp::UsageHeader>(&bytes);
        comes_back::<fdp::UsageDescriptor>(&bytes);
        comes_back::<fdp::Statistics>(&bytes);
        comes_back::<fdp::EventsHeader>(&bytes);
        comes_back::<fdp::Event>(&bytes);
        comes_back::<fdp::Reallocated>(&bytes);
        comes_back::<fdp::SupportedEvent>(&bytes);
        comes_back::<fdp::StatusHeader>(&bytes);
        comes_back::<fdp::StatusDescriptor>(&bytes);
        comes_back::<fdp::EnduranceGroup>(&bytes);
        comes_back::<fdp::DirectiveParameters>(&bytes);
        comes_back::<Smart>(&bytes);
        comes_back::<ErrorEntry>(&bytes);
        comes_back::<FirmwareSlots>(&bytes);
        comes_back::<Effects>(&bytes);
        comes_back::<SupportedLogPages>(&bytes);
        comes_back::<DiscoveryHeader>(&bytes);
        comes_back::<DiscoveryEntry>(&bytes);
        comes_back::<IdentifyZonedNamespace>(&bytes);
        comes_back::<IdentifyZonedController>(&bytes);
        comes_back::<ReportHeader>(&bytes);
        comes_back::<ZoneDescriptor>(&bytes);
        comes_back::<ChangedZones>(&bytes);
        comes_back::<ExtendedDiscoveryEntry>(&bytes);
        comes_back::<ExtendedAttribute>(&bytes);
    }

    #[test]
    fn fields(word: u64, value: u64) {
        field!(Cap, word, value, mqes, with_mqes, 16);
        field!(Cap, word, value, ams, with_ams, 2);
        field!(Cap, word, value, to, with_to, 8);
        field!(Cap, word, value, dstrd, with_dstrd, 4);
        field!(Cap, word, value, css, with_css, 8);
        field!(Cap, word, value, mpsmax, with_mpsmax, 4);
        field!(Cc, word, value, en, with_en, 1);
        field!(Cc, word, value, css, with_css, 3);
        field!(Cc, word, value, mps, with_mps, 4);
        field!(Cc, word, value, ams, with_ams, 3);
        field!(Cc, word, value, shn, with_shn, 2);
        field!(Cc, word, value, iosqes, with_iosqes, 4);
        field!(Cc, word, value, iocqes, with_iocqes, 4);
        field!(Csts, word, value, cfs, with_cfs, 1);
        field!(Csts, word, value, shst, with_shst, 2);
        field!(Aqa, word, value, asqs, with_asqs, 12);
        field!(Aqa, word, value, acqs, with_acqs, 12);
        field!(Arbitration, word, value, ab, with_ab, 3);
        field!(Arbitration, word, value, hpw, with_hpw, 8);
        field!(FeatureDw10, word, value, fid, with_fid, 8);
        field!(FeatureDw10, word, value, sel, with_sel, 3);
        field!(Queues, word, value, nsq, with_nsq, 16);
        field!(TemperatureThreshold, word, value, tmpsel, with_tmpsel, 4);
        field!(GetLogDw10, word, value, rae, with_rae, 1);
        field!(SendDw13, word, value, zsa, with_zsa, 8);
        field!(SendDw13, word, value, all, with_all, 1);
        field!(SendDw13, word, value, zsaso, with_zsaso, 1);
        field!(ReceiveDw13, word, value, zra, with_zra, 8);
        field!(ReceiveDw13, word, value, zrasf, with_zrasf, 8);
        field!(ReceiveDw13, word, value, partial, with_partial, 1);
    }

    #[test]
    fn entries(slba: u64, status in 0u16..0x8000, phase: bool, dw0: u32, qid: u16) {
        let mut sqe = Sqe::default();
        sqe.set_slba(slba);
        prop_assert_eq!(sqe.slba(), slba);
        let mut cqe = Cqe::default();
        cqe.set_phase(phase);
        cqe.set_status(Status::from_field(status));
        prop_assert_eq!((cqe.status().field(), cqe.phase()), (status, phase));
        let event = AsyncEvent::from_dw0(dw0);
        prop_assert_eq!(AsyncEvent::from_dw0(event.dw0()), event);
        for doorbell in [Doorbell::SqTail(qid), Doorbell::CqHead(qid)] {
            prop_assert_eq!(doorbell_at(doorbell_offset(doorbell)), Some(doorbell));
        }
    }

    #[test]
    fn zone_reports(zones in proptest::collection::vec((0u8..16, any::<u64>(), any::<u64>()), 0..20), more in 0u64..3, extension in 0usize..3) {
        let extension = extension * 64;
        let descriptor = |&(state, zslba, wp): &(u8, u64, u64)| {
            ZoneDescriptor { zt: 2, zslba: zslba.into(), wp: wp.into(), ..Default::default() }.with_state(ZoneState(state))
        };
        let count = zones.len() as u64 + more;
        let mut bytes = ReportHeader { zones: count.into(), ..Default::default() }.as_bytes().to_vec();
        for zone in &zones {
            bytes.extend_from_slice(descriptor(zone).as_bytes());
            bytes.resize(bytes.len() + extension, 0xff);
        }
        let (said, found) = report(&bytes, extension).expect("it has a header");
        prop_assert_eq!(said, count);
        prop_assert!(found.eq(zones.iter().map(descriptor)));
    }

    #[test]
    fn names(nqn in "nqn\\.[a-z0-9.:-]{1,219}", port: u16, addr in "[0-9a-f.:]{0,40}") {
        let connect = ConnectData::new(&nqn, &nqn, [3; 16], 7);
        prop_assert_eq!((connect.subnqn(), connect.hostnqn()), (Some(&nqn[..]), Some(&nqn[..])));
        let entry = DiscoveryEntry::tcp(subtype::NVM, &nqn, adrfam::IPV6, &addr, port);
        prop_assert_eq!((entry.subnqn(), entry.traddr()), (Some(&nqn[..]), Some(&addr[..])));
        prop_assert_eq!(entry.trsvcid().and_then(|p| p.parse().ok()), Some(port));
    }
}
