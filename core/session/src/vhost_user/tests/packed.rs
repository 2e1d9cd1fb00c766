use super::chain;
use super::guest::{DATA, Guest, put_descriptor};
use crate::memory::Memory;
use crate::vhost_user::Violation;
use alloc::vec::Vec;
use weir_spec::virtio_blk::{RequestStatus, RequestType};
use weir_spec::virtqueue::{EventSuppression, PackedIndex, feature, flag};

pub(super) const START: u32 = 0x8000_8000;

/// A driver of a packed ring.
pub(super) struct Driver {
    at: PackedIndex,
    used: PackedIndex,
    size: u16,
}

impl Driver {
    pub(super) fn new(size: u16) -> Self {
        Self { at: PackedIndex::START, used: PackedIndex::START, size }
    }

    fn ring() -> u64 {
        Guest::places(0)[0]
    }

    pub(super) fn offer(&mut self, g: &Guest, id: u16, pieces: &[(u64, u32, bool)]) {
        for (i, (address, len, write)) in pieces.iter().enumerate() {
            let more = if i + 1 < pieces.len() { flag::NEXT } else { 0 };
            let flags = self.at.avail_flags() | more | if *write { flag::WRITE } else { 0 };
            put_descriptor(&g.ram, Self::ring() + 16 * u64::from(self.at.offset), *address, *len, id, flags);
            self.at = self.at.advance(1, self.size);
        }
    }

    /// The next used descriptor's identifier and length; it took up `slots`.
    pub(super) fn used(&mut self, g: &Guest, slots: u16) -> Option<(u16, u32)> {
        let place = Self::ring() + 16 * u64::from(self.used.offset);
        if !self.used.is_used(g.read16(place + 14)) {
            return None;
        }
        self.used = self.used.advance(slots, self.size);
        Some((g.read16(place + 12), u32::from_le_bytes(g.bytes(place + 8, 4).try_into().unwrap())))
    }
}

fn guest(size: u16, without: u64) -> (Guest, Driver) {
    let mut g = Guest::without(without);
    g.start(0, size, START);
    (g, Driver::new(size))
}

#[test]
fn requests_go_around_the_ring() {
    // Not a power of two, so that chains lie across the end.
    let (mut g, mut d) = guest(7, 0);
    for i in 0..50u16 {
        let pieces = chain(&g, RequestType::IN, u64::from(i), &[(DATA + 0x1000, 512, true)]);
        g.disk[usize::from(i) * 512] = i as u8;
        d.offer(&g, i % 7, &pieces);
        g.serve();
        assert_eq!(d.used(&g, 3), Some((i % 7, 513)), "{i}");
        assert_eq!((g.bytes(DATA + 16, 1)[0], g.bytes(DATA + 0x1000, 1)[0]), (RequestStatus::OK.0, i as u8));
    }
}

#[test]
fn a_batch_becomes_visible_at_once_its_first_flags_last() {
    let (mut g, mut d) = guest(8, 0);
    let flush = chain(&g, RequestType::FLUSH, 0, &[]);
    for id in 0..3 {
        d.offer(&g, id, &flush);
    }
    let taken = g.take().unwrap();
    assert_eq!(taken.len(), 3);
    for t in [taken[1], taken[2], taken[0]] {
        g.execute(&t);
        assert_eq!(d.used(&g, 2), None, "the first one's flags are held back");
    }
    g.device.publish(&g.memory, 0);
    let order: Vec<_> = (0..4).map(|_| d.used(&g, 2).map(|u| u.0)).collect();
    assert_eq!(order, [Some(1), Some(2), Some(0), None]);
}

#[test]
fn the_base_has_both_indices_with_their_wrap_counters() {
    let (mut g, mut d) = guest(5, 0);
    let flush = chain(&g, RequestType::FLUSH, 0, &[]);
    for _ in 0..3 {
        d.offer(&g, 0, &flush);
        g.serve();
        d.used(&g, 2).unwrap();
    }
    // Six slots on in a ring of five: slot 1, counter 0.
    assert_eq!(g.base_of(0), 0x0001_0001);
    g.start(0, 5, 0x0001_0001);
    d.offer(&g, 4, &flush);
    g.serve();
    assert_eq!(d.used(&g, 2), Some((4, 1)));
    assert_eq!(g.base_of(0), 0x0003_0003);
}

#[test]
fn a_base_beyond_the_ring_does_not_start() {
    let mut g = Guest::without(0);
    for base in [0x8000_8005, 0x8005_8000, 0xffff_ffff] {
        g.configure(0, 5, base);
        assert_eq!(g.kick(0), 1, "{base:x}");
    }
}

/// The virtio-driver crate (libblkio) sends base 0 for a new ring, whose wrap counters are 1.
#[test]
fn a_base_of_zero_with_a_new_ring_is_understood() {
    let mut g = Guest::without(0);
    g.start(0, 8, 0);
    let mut d = Driver::new(8);
    assert!(!g.device.listen(&g.memory, 0) && !g.device.has_request(&g.memory, 0));
    let flush = chain(&g, RequestType::FLUSH, 0, &[]);
    for id in 0..6 {
        d.offer(&g, id, &flush);
        assert!(g.device.listen(&g.memory, 0) && g.device.has_request(&g.memory, 0));
        g.serve();
        assert!(!g.device.has_request(&g.memory, 0));
        assert_eq!(d.used(&g, 2), Some((id, 1)));
    }
    // And where it does mean the second round, it is taken so.
    let mut g = Guest::without(0);
    let mut d = Driver { at: PackedIndex::from_bits(0), used: PackedIndex::from_bits(0), size: 8 };
    for i in 0..8 {
        put_descriptor(&g.ram, Driver::ring() + 16 * i, 0, 0, 0, flag::AVAIL | flag::USED);
    }
    g.start(0, 8, 0);
    assert!(!g.device.has_request(&g.memory, 0));
    assert!(g.take().unwrap().is_empty());
    d.offer(&g, 3, &flush);
    assert!(g.device.has_request(&g.memory, 0));
    g.serve();
    assert_eq!(d.used(&g, 2), Some((3, 1)));
}

/// Without a region, too, a ring that was stopped at 0 goes on there: what its slots still have of another round is not taken for a new ring's.
#[test]
fn a_ring_stopped_at_zero_is_no_new_one() {
    let (mut g, mut d) = guest(4, 0);
    let flush = chain(&g, RequestType::FLUSH, 0, &[]);
    for (i, p) in flush.iter().enumerate() {
        put_descriptor(&g.ram, DATA + 0x800 + 16 * i as u64, p.0, p.1, 0, if p.2 { flag::WRITE } else { 0 });
    }
    let table = |g: &Guest, d: &mut Driver, id: u16| {
        let at = d.at;
        d.offer(g, id, &[(DATA + 0x800, 32, false)]);
        let flags = at.avail_flags() | flag::INDIRECT;
        g.ram.write(Driver::ring() + 16 * u64::from(at.offset) + 14, &flags.to_le_bytes()).unwrap();
    };
    for _ in 0..7 {
        table(&g, &mut d, 0);
        g.serve();
        d.used(&g, 1).unwrap();
    }
    table(&g, &mut d, 0);
    let one = g.take().unwrap();
    let write = chain(&g, RequestType::OUT, 0, &[(DATA + 0x1000, 512, false)]);
    d.offer(&g, 1, &write);
    let other = g.take().unwrap();
    g.execute(&other[0]);
    g.execute(&one[0]);
    g.device.publish(&g.memory, 0);
    assert_eq!((d.used(&g, 3), d.used(&g, 1)), (Some((1, 1)), Some((0, 1))));
    chain(&g, RequestType::FLUSH, 0, &[]);
    table(&g, &mut d, 0);
    g.serve();
    d.used(&g, 1).unwrap();
    assert_eq!((g.base_of(0), d.at.bits()), (0, 0));
    g.start(0, 4, 0);
    assert!(!g.device.listen(&g.memory, 0), "nothing has come");
    assert!(g.take().unwrap().is_empty());
    table(&g, &mut d, 2);
    g.serve();
    assert_eq!(d.used(&g, 1), Some((2, 1)));
}

#[test]
fn notifications_by_flags_and_by_position() {
    let (mut g, mut d) = guest(8, 0);
    let [_, driver, device] = Guest::places(0);
    let flush = chain(&g, RequestType::FLUSH, 0, &[]);
    let wish = |g: &Guest, position: PackedIndex, flags: u16| {
        g.ram.write(driver, &position.bits().to_le_bytes()).unwrap();
        g.ram.write(driver + 2, &flags.to_le_bytes()).unwrap();
    };
    for i in 0..30 {
        let next = d.used;
        let (flags, position, signal) = match i % 4 {
            0 => (EventSuppression::ENABLE, next, true),
            1 => (EventSuppression::DISABLE, next, false),
            2 => (EventSuppression::DESC, next, true),
            _ => (EventSuppression::DESC, next.advance(5, 8), false),
        };
        wish(&g, position, flags);
        d.offer(&g, 0, &flush);
        assert_eq!(g.serve(), signal, "{i}");
        d.used(&g, 2).unwrap();
    }
    g.device.quiet(&g.memory, 0);
    assert_eq!(g.read16(device + 2), EventSuppression::DISABLE);
    d.offer(&g, 0, &flush);
    assert!(g.device.listen(&g.memory, 0), "something came meanwhile");
    assert_eq!(g.read16(device + 2), EventSuppression::ENABLE);
}

#[test]
fn a_decision_covers_all_that_was_published_before_it() {
    let (mut g, mut d) = guest(8, 0);
    let driver = Guest::places(0)[1];
    let flush = chain(&g, RequestType::FLUSH, 0, &[]);
    for (slots, wanted) in [(0, true), (3, true), (5, true), (7, false)] {
        let position = d.used.advance(slots, 8);
        g.ram.write(driver, &position.bits().to_le_bytes()).unwrap();
        g.ram.write(driver + 2, &EventSuppression::DESC.to_le_bytes()).unwrap();
        // Three publications of two slots each.
        for _ in 0..3 {
            d.offer(&g, 0, &flush);
            g.take().unwrap().iter().for_each(|t| g.execute(t));
            g.device.publish(&g.memory, 0);
            d.used(&g, 2).unwrap();
        }
        assert_eq!(g.device.wants_signal(&g.memory, 0), wanted, "{slots}");
        assert!(!g.device.wants_signal(&g.memory, 0), "decided twice");
    }
}

#[test]
fn indirect_tables_are_sequential() {
    let (mut g, mut d) = guest(4, 0);
    let pieces = chain(&g, RequestType::IN, 0, &[(DATA + 0x1000, 512, true)]);
    for (i, p) in pieces.iter().enumerate() {
        let flags = if p.2 { flag::WRITE } else { 0 };
        put_descriptor(&g.ram, DATA + 0x801 + 16 * i as u64, p.0, p.1, 0xdead, flags);
    }
    for id in [3, 1] {
        let at = d.at;
        d.offer(&g, id, &[(DATA + 0x801, 48, false)]);
        let flags = at.avail_flags() | flag::INDIRECT;
        g.ram.write(Driver::ring() + 16 * u64::from(at.offset) + 14, &flags.to_le_bytes()).unwrap();
        g.serve();
        assert_eq!(d.used(&g, 1), Some((id, 513)));
    }
}

#[test]
fn hostile_descriptors_break_the_ring_and_nothing_else() {
    let flush = |g: &Guest| chain(g, RequestType::FLUSH, 0, &[]);
    let (mut g, mut d) = guest(4, 0);
    let pieces = flush(&g);
    d.offer(&g, 4, &pieces);
    assert_eq!(g.broken(), Violation::OutOfRange);

    let (mut g, mut d) = guest(8, 0);
    let pieces = flush(&g);
    d.offer(&g, 1, &pieces);
    d.offer(&g, 1, &pieces);
    assert_eq!(g.broken(), Violation::InFlight);

    // Every slot says that the chain goes on.
    let (mut g, _) = guest(4, 0);
    for i in 0..4 {
        put_descriptor(&g.ram, Driver::ring() + 16 * i, DATA, 16, 0, flag::AVAIL | flag::NEXT);
    }
    assert_eq!(g.broken(), Violation::TooLong);

    let (mut g, mut d) = guest(4, feature::INDIRECT_DESC);
    d.offer(&g, 0, &pieces);
    g.ram.write(Driver::ring() + 14, &(flag::AVAIL | flag::INDIRECT).to_le_bytes()).unwrap();
    assert_eq!(g.broken(), Violation::Indirect);

    // A slot that is made available again while the ring is full is not read.
    let (mut g, mut d) = guest(4, 0);
    let pieces = flush(&g);
    d.offer(&g, 0, &pieces);
    d.offer(&g, 1, &pieces);
    assert_eq!(g.take().unwrap().len(), 2);
    d.offer(&g, 2, &pieces);
    assert_eq!(g.take().unwrap().len(), 0);
}
