//! Decoders of NVMe structures: they take anything, and what they took is what they give back.

use weir_spec::nvme::entry::SglDescriptor;
use weir_spec::nvme::fabrics::{Connect, ConnectData, Disconnect, Property, fctype};
use weir_spec::nvme::feature::{Arbitration, FeatureDw10, Quanta, Queues, TemperatureThreshold};
use weir_spec::nvme::identify::{
    IdentifyController, IdentifyIndependentNamespace, IdentifyNamespace, IdentifyNvmController, NamespaceDescriptor,
    controller_list, namespace_descriptors, namespace_list, put_namespace_descriptor,
};
use weir_spec::nvme::log::{
    AsyncEvent, DiscoveryEntry, DiscoveryHeader, Effects, ErrorEntry, ExtendedAttribute, ExtendedDiscoveryEntry,
    FirmwareSlots, Smart, SupportedLogPages, log_length,
};
use weir_spec::nvme::nvm::DsmRange;
use weir_spec::nvme::opcode::transfer;
use weir_spec::nvme::register::{Aqa, Cap, Cc, Csts, doorbell_at, doorbell_offset, size_at};
use weir_spec::nvme::zns::{
    ChangedZones, IdentifyZonedController, IdentifyZonedNamespace, ReceiveAction, ReceiveDw13, SendAction, SendDw13,
    ZoneDescriptor, ZonedOpcode, report, reports,
};
use weir_spec::nvme::{AdminOpcode, Cqe, IoOpcode, Sqe, Status};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Reads the structure from the input's first bytes, zeroes where it is too short, and compares the bytes written.
fn whole<T: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned>(data: &[u8]) -> T {
    let mut bytes = data[..data.len().min(size_of::<T>())].to_vec();
    bytes.resize(size_of::<T>(), 0);
    let value = T::read_from_bytes(&bytes).expect("the length is right and any bytes will do");
    assert_eq!(value.as_bytes(), &bytes[..]);
    value
}

fn word(data: &[u8], at: usize) -> u32 {
    data.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

/// Every decoder of `weir_spec::nvme`, the TCP units apart.
pub fn spec_nvme(data: &[u8]) {
    entries(data);
    pages(data);
    registers(data);
    zones(data);
}

fn entries(data: &[u8]) {
    let sqe: Sqe = whole(data);
    assert!((1..=65536).contains(&sqe.blocks()));
    let mut copy = sqe;
    copy.set_slba(sqe.slba());
    copy.set_sgl(sqe.sgl());
    assert_eq!((copy.slba(), copy.sgl(), copy.psdt()), (sqe.slba(), sqe.sgl(), 1));
    let _ = (transfer(sqe.opcode), AdminOpcode(sqe.opcode).name(), IoOpcode(sqe.opcode).name(), fctype(&sqe));
    assert_eq!(Sqe::from(Connect::from(sqe)), sqe);
    assert_eq!(Sqe::from(Property::from(sqe)), sqe);
    assert_eq!(Sqe::from(Disconnect::from(sqe)), sqe);
    let _ = Property::from(sqe).size();
    let _: SglDescriptor = whole(data);
    let mut cqe: Cqe = whole(data);
    let (status, phase) = (cqe.status(), cqe.phase());
    assert_eq!(Status::from_field(status.field()), status);
    let _ = status.to_string();
    cqe.set_phase(!phase);
    cqe.set_status(status);
    assert_eq!((cqe.status(), cqe.phase()), (status, !phase));
    assert_eq!(AsyncEvent::from_dw0(AsyncEvent::from_dw0(word(data, 0)).dw0()), AsyncEvent::from_dw0(word(data, 0)));
    let _: DsmRange = whole(data);
    let _: Quanta = whole(data);
}

fn pages(data: &[u8]) {
    let connect: ConnectData = whole(data);
    let _ = (connect.subnqn(), connect.hostnqn());
    let id: IdentifyController = whole(data);
    let _ = (id.subnqn(), id.serial().len(), id.model().len());
    let ns: IdentifyNamespace = whole(data);
    assert!(ns.block_shift().is_none_or(|shift| (9..=20).contains(&shift)));
    let _: IdentifyNvmController = whole(data);
    let _: IdentifyIndependentNamespace = whole(data);
    let _: Smart = whole(data);
    let _: ErrorEntry = whole(data);
    let _: FirmwareSlots = whole(data);
    let _: Effects = whole(data);
    let _: SupportedLogPages = whole(data);
    let _: DiscoveryHeader = whole(data);
    let _: ExtendedDiscoveryEntry = whole(data);
    let _: ExtendedAttribute = whole(data);
    let entry: DiscoveryEntry = whole(data);
    let _ = (entry.subnqn(), entry.traddr(), entry.trsvcid());
    let mut list = vec![0; data.len() + 4];
    let mut at = 0;
    for d in namespace_descriptors(data) {
        at = put_namespace_descriptor(&mut list, at, d).expect("what was read fits");
    }
    let again: Vec<NamespaceDescriptor<'_>> = namespace_descriptors(&list[..at]).collect();
    assert!(again.iter().copied().eq(namespace_descriptors(data)));
    assert!(namespace_list(data).all(|nsid| nsid != 0) && namespace_list(data).count() <= 1024);
    assert!(controller_list(data).count() <= 2047);
}

fn zones(data: &[u8]) {
    let ns: IdentifyZonedNamespace = whole(data);
    let _ = ns.lbafe[63].zdes;
    let _: IdentifyZonedController = whole(data);
    let log: ChangedZones = whole(data);
    assert!(log.zones().count() <= 511 && (!log.is_overflown() || log.zones().count() == 0));
    let zone: ZoneDescriptor = whole(data);
    assert_eq!(zone.with_state(zone.state()), zone);
    let word = word(data, 0);
    let (send, receive) = (SendDw13(word), ReceiveDw13(word));
    assert_eq!(send.with_zsa(send.zsa()).with_all(send.all()).with_zsaso(send.zsaso()), send);
    assert_eq!(receive.with_zra(receive.zra()).with_partial(receive.partial()), receive);
    assert_eq!(reports(receive.zrasf() as u8, zone.state()).is_none(), receive.zrasf() > 7);
    let names = [ZonedOpcode(word as u8).name(), SendAction(word as u8).name(), ReceiveAction(word as u8).name()];
    assert!(names.iter().flatten().count() <= 2, "close and extended report are both 01h");
    for extension in [0, 64, usize::try_from(word).unwrap_or(usize::MAX)] {
        if let Some((zones, found)) = report(data, extension) {
            assert!(found.count() as u64 <= zones.min(data.len() as u64 / 64));
        }
    }
}

fn registers(data: &[u8]) {
    let (a, b) = (word(data, 0), word(data, 4));
    let cap = Cap(u64::from(a) | u64::from(b) << 32);
    assert_eq!(cap.with_mqes(cap.mqes()).with_ams(cap.ams()).with_css(cap.css()).with_mpsmax(cap.mpsmax()), cap);
    let cc = Cc(a);
    assert_eq!(cc.with_ams(cc.ams()).with_shn(cc.shn()).with_mps(cc.mps()).with_iosqes(cc.iosqes()), cc);
    assert_eq!(Csts(a).with_shst(Csts(a).shst()), Csts(a));
    assert_eq!(Aqa(a).with_acqs(Aqa(a).acqs()), Aqa(a));
    let arbitration = Arbitration(a);
    assert_eq!(arbitration.with_hpw(arbitration.hpw()).with_lpw(arbitration.lpw()), arbitration);
    let _ = (FeatureDw10(a).fid(), Queues(a).ncq(), TemperatureThreshold(a).thsel(), size_at(a));
    assert!((4..=1 << 34).contains(&log_length(a, b)));
    if let Some(doorbell) = doorbell_at(a) {
        assert_eq!(doorbell_offset(doorbell), a);
    }
}
