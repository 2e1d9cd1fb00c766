use super::*;
use weir_driver::IoKind;
use weir_sys::reactor::now;

fn local(kind: &str, query: &str, classes: &[Class]) -> Local {
    let config = DeviceConfig::from_query(kind, query).unwrap();
    let tenant = |c: &Class| LocalTenant { name: c.to_string(), class: *c };
    Local::open(&config, &classes.iter().map(tenant).collect::<Vec<_>>(), Nanos(0)).unwrap()
}

/// Submits and polls until all are done, a microsecond a turn.
fn all(local: &mut Local, client: usize, requests: &[Io]) -> Vec<Done> {
    let mut done = Vec::new();
    let mut pair = local.queue(client, Nanos(0));
    requests.iter().for_each(|io| pair.submit(*io).unwrap());
    for turn in 0..1_000_000 {
        let time = if local.reactor.files_in_flight() > 0 { now() } else { Nanos::from_micros(turn) };
        local.queue(client, time).poll(&mut done).unwrap();
        if done.len() == requests.len() {
            return done;
        }
    }
    panic!("{} of {} came back", done.len(), requests.len());
}

/// What byte `i` of a slot's buffer holds in a round of `len` bytes.
fn pattern(i: usize, slot: u32, len: u32) -> u8 {
    (i / 512) as u8 ^ slot as u8 ^ len.trailing_zeros() as u8
}

#[test]
fn bytes_come_back_at_every_length() {
    let mut local = local("ram", "capacity=16MiB", &[Class::High]);
    let client = local.connect(0, "a", 4, 128 << 10, Nanos(0)).unwrap();
    // One page, two, a list of three, many, and parts of pages.
    for len in [512u32, 4096, 4608, 8192, 12288, 65536, 128 << 10] {
        for slot in 0..4 {
            for (i, b) in local.queue(client, Nanos(0)).buffer(slot)[..len as usize].iter_mut().enumerate() {
                *b = pattern(i, slot, len);
            }
        }
        let io = |kind, slot: u32| Io { kind, offset: u64::from(slot) << 20, len, slot };
        let writes: Vec<Io> = (0..4).map(|s| io(IoKind::Write, s)).collect();
        assert!(all(&mut local, client, &writes).iter().all(|d| d.status.is_success()));
        for slot in 0..4 {
            local.queue(client, Nanos(0)).buffer(slot).fill(0);
        }
        let reads: Vec<Io> = (0..4).map(|s| io(IoKind::Read, s)).collect();
        assert!(all(&mut local, client, &reads).iter().all(|d| d.status.is_success()));
        for slot in 0..4u32 {
            for (i, b) in local.queue(client, Nanos(0)).buffer(slot)[..len as usize].iter().enumerate() {
                assert_eq!(*b, pattern(i, slot, len), "byte {i} of {len}");
            }
        }
    }
    assert_eq!(local.stats().work.errors, 0);
}

#[test]
fn clients_have_their_own_memory_and_share_the_drive() {
    let mut local = local("ram", "capacity=1MiB", &[Class::High, Class::Low]);
    let a = local.connect(0, "a", 1, 4096, Nanos(0)).unwrap();
    let b = local.connect(1, "b", 1, 4096, Nanos(0)).unwrap();
    local.queue(a, Nanos(0)).buffer(0).fill(7);
    all(&mut local, a, &[Io { kind: IoKind::Write, offset: 4096, len: 4096, slot: 0 }]);
    assert!(local.queue(b, Nanos(0)).buffer(0).iter().all(|b| *b == 0));
    let read = Io { kind: IoKind::Read, offset: 4096, len: 4096, slot: 0 };
    all(&mut local, b, &[read]);
    assert!(local.queue(b, Nanos(0)).buffer(0).iter().all(|b| *b == 7));
    let flush = Io { kind: IoKind::Flush, offset: 0, len: 0, slot: 0 };
    for io in [Io { kind: IoKind::Trim, ..read }, flush, read] {
        assert!(all(&mut local, b, &[io])[0].status.is_success());
    }
    assert!(local.queue(b, Nanos(0)).buffer(0).iter().all(|b| *b == 0));
    let work = local.stats().work;
    assert_eq!((work.reads, work.writes, work.others), (2, 1, 2));
}

#[test]
fn a_service_time_is_waited_for() {
    let mut local = local("null", "latency=80us&slots=2", &[Class::Medium]);
    let client = local.connect(0, "a", 4, 512, Nanos(0)).unwrap();
    let mut done = Vec::new();
    let t = |us| Nanos::from_secs(1).saturating_add(Nanos::from_micros(us));
    for slot in 0..4 {
        local.queue(client, t(0)).submit(Io { kind: IoKind::Read, offset: 0, len: 512, slot }).unwrap();
    }
    for (us, want) in [(0, 0), (79, 0), (80, 2), (159, 2), (160, 4)] {
        local.queue(client, t(us)).poll(&mut done).unwrap();
        assert_eq!(done.len(), want, "after {us} us, two slots of 80 us");
    }
}

#[test]
fn what_cannot_be_connected_says_why() {
    let mut local = local("null", "queue_depth=64", &[Class::Medium]);
    let e = local.connect(0, "a", 64, 4096, Nanos(0)).unwrap_err().to_string();
    assert!(e.contains("depth of 64 is above its largest, 63"), "{e}");
    assert!(local.connect(1, "a", 1, 4096, Nanos(0)).unwrap_err().to_string().contains("no such tenant"));
    let missing = DeviceConfig::from_query("file:/nonexistent/weir", "").unwrap();
    assert!(Local::open(&missing, &[], Nanos(0)).is_err());
}

#[test]
fn requests_that_break_the_rules_are_refused() {
    let mut local = local("null", "capacity=1MiB", &[Class::Medium]);
    let client = local.connect(0, "a", 2, 4096, Nanos(0)).unwrap();
    let good = Io { kind: IoKind::Read, offset: 0, len: 4096, slot: 0 };
    let mut pair = local.queue(client, Nanos(0));
    for bad in [
        Io { slot: 2, ..good },
        Io { len: 0, ..good },
        Io { len: 100, ..good },
        Io { len: 8192, ..good },
        Io { offset: 7, ..good },
        Io { offset: 1 << 20, ..good },
        Io { offset: u64::MAX - 4095, ..good },
        Io { kind: IoKind::Flush, ..good },
    ] {
        assert!(matches!(pair.submit(bad), Err(TransportError::Usage(_))), "{bad:?}");
    }
    pair.submit(good).unwrap();
    assert!(matches!(pair.submit(good), Err(TransportError::Usage(_))), "in flight already");
}

#[test]
fn a_flash_drive_says_what_its_flash_did() {
    let mut local = local("femu-bbssd", "capacity=64MiB&block_size=4096", &[Class::High]);
    let client = local.connect(0, "a", 4, 4096, Nanos(0)).unwrap();
    let writes: Vec<Io> =
        (0..4).map(|slot| Io { kind: IoKind::Write, offset: u64::from(slot) << 12, len: 4096, slot }).collect();
    assert!(all(&mut local, client, &writes).iter().all(|d| d.status.is_success()));
    let figures = local.flash(Nanos::from_millis(1)).expect("flash");
    assert_eq!((figures.capacity, figures.stats.host_writes, figures.stats.page_programs), (64 << 20, 4, 4));
    let busy: f64 = figures.dies.iter().sum();
    assert!((busy - 0.8).abs() < 0.01, "four programs of 200 us in a millisecond: {busy}");
    assert_eq!(figures.channels.len(), 8);
}

#[test]
fn a_drive_without_flash_has_none_of_its_figures() {
    assert!(local("ram", "capacity=1MiB", &[Class::High]).flash(Nanos(1)).is_none());
}
