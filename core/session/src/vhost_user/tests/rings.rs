use super::chain;
use super::guest::{DATA, Guest, RAM, RAM_LEN, USER, put_descriptor, region};
use crate::memory::Memory;
use crate::memory::model::ModelMemory;
use crate::vhost_user::Action;
use alloc::rc::Rc;
use alloc::vec;
use weir_spec::vhost_user::Request;
use weir_spec::virtio_blk::{RequestStatus, RequestType};
use weir_spec::virtqueue::{feature, flag, split};
use zerocopy::IntoBytes;

/// Offers a flush on descriptors 0 and 1.
fn flush(g: &mut Guest) {
    let pieces = chain(g, RequestType::FLUSH, 0, &[]);
    g.lay(0, &pieces);
    g.offer(0);
}

#[test]
fn indices_wrap_around_both_ring_and_counter() {
    let mut g = Guest::without(feature::RING_PACKED);
    let (start, used) = (65_530u16, Guest::places(0)[2]);
    g.avail = start;
    g.ram.write(Guest::places(0)[1] + 2, &start.to_le_bytes()).unwrap();
    g.ram.write(used + 2, &start.to_le_bytes()).unwrap();
    g.start(0, 4, start.into());
    for i in 0..20u16 {
        flush(&mut g);
        g.serve();
        assert_eq!(g.used_index(), start.wrapping_add(i + 1));
    }
    assert_eq!(g.base_of(0), u32::from(start.wrapping_add(20)));
}

#[test]
fn a_look_sees_what_would_be_taken() {
    let mut g = Guest::split(8, feature::EVENT_IDX);
    let sees = |g: &Guest| g.device.has_request(&g.memory, 0);
    assert!(!sees(&g) && !g.device.has_request(&g.memory, 99), "nothing is there");
    for _ in 0..20 {
        flush(&mut g);
        assert!(sees(&g) && sees(&g), "a look takes nothing");
        let taken = g.take().unwrap();
        assert!(taken.len() == 1 && !sees(&g), "taken, and not done yet");
        g.execute(&taken[0]);
        g.device.publish(&g.memory, 0);
    }
    flush(&mut g);
    g.state(Request::SET_VRING_ENABLE, 0, 0);
    assert!(!sees(&g), "the queue is not enabled");
    g.state(Request::SET_VRING_ENABLE, 0, 1);
    assert!(sees(&g));
}

#[test]
fn completions_are_published_together_and_signalled_once() {
    let mut g = Guest::split(8, feature::EVENT_IDX);
    for head in [0, 2, 4] {
        let pieces = chain(&g, RequestType::FLUSH, 0, &[]);
        g.lay(head, &pieces);
        g.offer(head);
    }
    let taken = g.take().unwrap();
    for t in [taken[2], taken[0], taken[1]] {
        g.execute(&t);
        assert_eq!(g.used_index(), 0);
    }
    g.device.publish(&g.memory, 0);
    assert!(g.device.wants_signal(&g.memory, 0));
    g.device.publish(&g.memory, 0);
    assert!(!g.device.wants_signal(&g.memory, 0), "nothing new");
    assert_eq!((g.used_index(), g.used(0).0, g.used(1).0, g.used(2).0), (3, 4, 0, 2), "in order of completion");
}

#[test]
fn no_interrupt_is_respected() {
    let mut g = Guest::split(8, feature::EVENT_IDX);
    let flags = Guest::places(0)[1];
    for (wish, signal) in [(0u16, true), (split::NO_INTERRUPT, false), (0, true)] {
        g.ram.write(flags, &wish.to_le_bytes()).unwrap();
        flush(&mut g);
        assert_eq!(g.serve(), signal);
    }
}

#[test]
fn used_event_is_respected() {
    let mut g = Guest::split(8, 0);
    let event = Guest::places(0)[1] + split::used_event(8) as u64;
    flush(&mut g);
    assert!(g.serve(), "the first is signalled in any case");
    for i in 1..40u16 {
        // To be told at every fifth.
        g.ram.write(event, &(i / 5 * 5).to_le_bytes()).unwrap();
        flush(&mut g);
        assert_eq!(g.serve(), i % 5 == 0, "{i}");
    }
}

#[test]
fn a_decision_covers_all_that_was_published_before_it() {
    let mut g = Guest::split(8, 0);
    let event = Guest::places(0)[1] + split::used_event(8) as u64;
    flush(&mut g);
    g.serve();
    for (asked, wanted) in [(1u16, true), (5, true), (20, false)] {
        // Three publications, the first of which is what the driver waits for, or the second, or none.
        g.ram.write(event, &asked.to_le_bytes()).unwrap();
        for _ in 0..3 {
            flush(&mut g);
            for t in g.take().unwrap() {
                g.execute(&t);
            }
            g.device.publish(&g.memory, 0);
        }
        assert_eq!(g.device.wants_signal(&g.memory, 0), wanted, "{asked} of {}", g.used_index());
        assert!(!g.device.wants_signal(&g.memory, 0), "decided twice");
    }
    // The driver asks between the publication and the decision: nobody but the device is left to see it.
    g.ram.write(event, &0x4000u16.to_le_bytes()).unwrap();
    flush(&mut g);
    g.take().unwrap().iter().for_each(|t| g.execute(t));
    g.device.publish(&g.memory, 0);
    let last = g.used_index() - 1;
    g.ram.write(event, &last.to_le_bytes()).unwrap();
    assert!(g.device.wants_signal(&g.memory, 0));
}

#[test]
fn a_ring_that_moves_is_signalled_for_what_was_published_there() {
    let mut g = Guest::split(8, feature::EVENT_IDX);
    flush(&mut g);
    g.take().unwrap().iter().for_each(|t| g.execute(t));
    g.device.publish(&g.memory, 0);
    // Another region: every ring is found again, before the decision.
    let (other, at) = (RAM + RAM_LEN + 0x1000, USER + RAM_LEN);
    let mut more = ModelMemory::new();
    more.add(other, 0x1000);
    assert_eq!(g.ask(Request::ADD_MEM_REG, region(other, 0x1000, at).as_bytes(), vec![Rc::new(more)]), 0);
    let signals = g.out.iter().filter(|action| matches!(action, Action::Signal(0))).count();
    assert_eq!((signals, g.device.wants_signal(&g.memory, 0)), (1, false));
}

#[test]
fn the_driver_is_asked_to_kick_only_when_nobody_polls() {
    // By flags ...
    let mut g = Guest::split(8, feature::EVENT_IDX);
    let used = Guest::places(0)[2];
    g.device.quiet(&g.memory, 0);
    assert_eq!(g.read16(used), split::NO_NOTIFY);
    assert!(!g.device.listen(&g.memory, 0));
    assert_eq!(g.read16(used), 0);
    // ... and by event index.
    let mut g = Guest::split(8, 0);
    let event = used + split::avail_event(8) as u64;
    flush(&mut g);
    g.serve();
    g.device.quiet(&g.memory, 0);
    assert_eq!(g.read16(event), 1u16.wrapping_add(0x8000));
    assert!(!g.device.listen(&g.memory, 0));
    assert_eq!(g.read16(event), 1, "the next one is to kick");
}

#[test]
fn what_comes_while_notifications_are_turned_on_is_seen() {
    for without in [0, feature::EVENT_IDX] {
        let mut g = Guest::split(8, without);
        g.device.quiet(&g.memory, 0);
        flush(&mut g);
        assert!(g.device.listen(&g.memory, 0), "it is there already");
        g.serve();
        assert!(!g.device.listen(&g.memory, 0));
    }
}

#[test]
fn indirect_tables_are_followed_by_next() {
    let mut g = Guest::split(8, 0);
    let pieces = chain(&g, RequestType::IN, 0, &[(DATA + 0x1000, 512, true)]);
    let table = DATA + 0x801;
    // Out of order, and at an odd address.
    for (place, piece, next) in [(3u64, pieces[0], 1u16), (1, pieces[1], 2), (2, pieces[2], 0)] {
        let flags = (if piece.2 { flag::WRITE } else { 0 }) | if next != 0 { flag::NEXT } else { 0 };
        put_descriptor(&g.ram, table + 16 * (place % 3), piece.0, piece.1, flags, next);
    }
    g.disk[..512].fill(3);
    g.descriptor(5, table, 48, flag::INDIRECT, 0);
    g.offer(5);
    g.serve();
    assert_eq!((g.used_index(), g.used(0)), (1, (5, 513)));
    assert_eq!((g.bytes(DATA + 16, 1)[0], g.bytes(DATA + 0x1000, 2)), (RequestStatus::OK.0, alloc::vec![3, 3]));
}

#[test]
fn an_indirect_table_may_end_a_direct_chain() {
    let mut g = Guest::split(8, 0);
    let pieces = chain(&g, RequestType::IN, 0, &[(DATA + 0x1000, 512, true)]);
    let table = DATA + 0x800;
    put_descriptor(&g.ram, table, pieces[1].0, pieces[1].1, flag::WRITE | flag::NEXT, 1);
    put_descriptor(&g.ram, table + 16, pieces[2].0, pieces[2].1, flag::WRITE, 0);
    g.descriptor(0, pieces[0].0, pieces[0].1, flag::NEXT, 1);
    g.descriptor(1, table, 32, flag::INDIRECT, 0);
    g.offer(0);
    g.serve();
    assert_eq!((g.used_index(), g.bytes(DATA + 16, 1)[0]), (1, RequestStatus::OK.0));
}

#[test]
fn a_small_pool_delays_requests_and_loses_none() {
    let mut g = Guest::split(256, 0);
    // Indirect tables of 126 segments each, more than the pool holds at once.
    let table = |i: u64| DATA + 0x10_0000 + i * 4096;
    for i in 0..200u64 {
        put_descriptor(&g.ram, table(i), DATA, 16, flag::NEXT, 1);
        for s in 0..126u16 {
            let at = table(i) + 16 * u64::from(s + 1);
            put_descriptor(&g.ram, at, DATA + 0x1000 + 512 * u64::from(s), 512, flag::WRITE | flag::NEXT, s + 2);
        }
        put_descriptor(&g.ram, table(i) + 16 * 127, DATA + 16, 1, flag::WRITE, 0);
        g.descriptor(i as u16, table(i), 16 * 128, flag::INDIRECT, 0);
    }
    chain(&g, RequestType::IN, 0, &[]);
    for i in 0..200 {
        g.offer(i);
    }
    let mut seen = 0;
    loop {
        let taken = g.take().unwrap();
        if taken.is_empty() {
            break;
        }
        assert!(taken.len() < 200);
        seen += taken.len();
        for t in taken {
            g.execute(&t);
        }
    }
    g.device.publish(&g.memory, 0);
    assert_eq!((seen, g.used_index()), (200, 200));
}
