//! The initiator's way to its drive: any events in any order, and whatever a controller says of its namespace.

use weir_driver::TransportError;
use weir_driver::link_recovery::{
    Admission, DriveIdentity, LinkEffect, LinkEvent, LinkPolicy, LinkRecovery, LinkState, MOST_EFFECTS,
};
use weir_driver::nvme_tcp::NamespaceWatch;
use weir_spec::nvme::Cqe;
use weir_units::Nanos;
use zerocopy::little_endian::U32;

fn drive() -> DriveIdentity {
    DriveIdentity { nguid: [1; 16], ..DriveIdentity::default() }
}

fn event(what: u8, now: u64) -> LinkEvent {
    let cause = TransportError::Closed("gone".into());
    let drive = DriveIdentity { capacity: u64::from(what >> 4 & 1), ..drive() };
    match what & 15 {
        0 => LinkEvent::Lost { cause, heard: Nanos(now / 2) },
        1 => LinkEvent::Lost { cause, heard: Nanos(now) },
        2 => LinkEvent::Connected,
        3 => LinkEvent::Enabled,
        4 | 5 => LinkEvent::Identified(drive),
        6 => LinkEvent::AttemptFailed(cause),
        7 => LinkEvent::Ended,
        8 => LinkEvent::Answered,
        9 => LinkEvent::NotReady(cause),
        10 => LinkEvent::Accessible,
        _ => LinkEvent::Tick,
    }
}

/// Two bytes are an event and how much time has passed before it. Nothing is sent between a fence and its end, and what waits fails only
/// where commands fail.
pub fn link_recovery(data: &[u8]) {
    let Some((how, events)) = data.split_first() else { return };
    let policy = LinkPolicy {
        target: "t".into(),
        fast_io_fail_tmo: Nanos::from_secs(u64::from(how >> 4)),
        reconnects: how & 1 == 0,
    };
    let mut machine = LinkRecovery::new(policy, drive(), how & 2 != 0);
    let (mut now, mut effects) = (1u64, Vec::new());
    for pair in events.chunks_exact(2) {
        now = now.saturating_add(1u64 << (pair[1] & 37));
        let before = machine.state();
        machine.apply(Nanos(now), event(pair[0], now), &mut effects);
        machine.check();
        assert!(effects.len() <= MOST_EFFECTS);
        for effect in effects.drain(..) {
            match effect {
                LinkEffect::Replay => assert!(matches!(before, LinkState::Fencing | LinkState::Inaccessible)),
                LinkEffect::Try => assert_eq!(before, LinkState::Inaccessible),
                LinkEffect::Fail => assert_eq!(machine.admission(), Admission::Fail),
                _ => {}
            }
        }
        let _ = machine.status(Nanos(now));
    }
}

/// Completions with any values, and any log pages.
pub fn namespace_watch(data: &[u8]) {
    let Some((nsid, mut rest)) = data.split_first() else { return };
    let mut watch = NamespaceWatch::new(u32::from(*nsid));
    while let [a, b, c, status, len, more @ ..] = rest {
        let (page, left) = more.split_at(usize::from(*len).min(more.len()));
        let sent = watch.next_command();
        assert!(watch.next_command().is_none(), "two commands at a time");
        let mut cqe = Cqe { dw0: U32::new(u32::from_le_bytes([*a, *b, *c, 0])), ..Cqe::default() };
        cqe.set_status(weir_spec::nvme::Status::from_field(u16::from(*status)));
        if sent.is_some() {
            watch.answered(&cqe, page);
        }
        let _ = watch.take();
        rest = left;
    }
}

/// An outage from its beginning to its end.
pub fn recovery_seeds() -> Vec<Vec<u8>> {
    let whole = [0u8, 2, 3, 4, 7, 8].into_iter().flat_map(|event| [event, 20]);
    let again = [1u8, 6, 11, 2, 3, 20, 11, 2, 3, 4, 7, 9, 11, 8].into_iter().flat_map(|event| [event, 37]);
    vec![[0xf0].into_iter().chain(whole.clone()).collect(), [0].into_iter().chain(whole).chain(again).collect()]
}

/// An ANA change and the log page of one group.
pub fn watch_seeds() -> Vec<Vec<u8>> {
    let mut page = [0u8; 52];
    (page[8], page[20], page[32], page[48]) = (1, 1, 3, 1);
    vec![[&[1, 2, 3, 0x0c, 0, 0, 0, 0, 0, 0, 52][..], &page].concat()]
}
