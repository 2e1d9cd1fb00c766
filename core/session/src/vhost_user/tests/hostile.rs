use super::chain;
use super::guest::{DATA, Guest, RAM, RAM_LEN, put_descriptor};
use crate::memory::{Memory, MemoryFault};
use crate::vhost_user::{MAX_CHAIN, Violation};
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;
use weir_spec::virtio_blk::RequestType;
use weir_spec::virtqueue::{feature, flag};

#[test]
fn an_index_that_jumps_breaks_the_queue() {
    let mut g = Guest::split(8, 0);
    g.ram.write(Guest::places(0)[1] + 2, &9u16.to_le_bytes()).unwrap();
    assert_eq!(g.broken(), Violation::Index);
    let mut g = Guest::split(8, 0);
    g.ram.write(Guest::places(0)[1] + 2, &0xffffu16.to_le_bytes()).unwrap();
    assert_eq!(g.broken(), Violation::Index, "backwards");
}

#[test]
fn a_head_beyond_the_table_breaks_the_queue() {
    let mut g = Guest::split(8, 0);
    g.offer(8);
    assert_eq!(g.broken(), Violation::OutOfRange);
}

#[test]
fn a_chain_that_loops_breaks_the_queue() {
    for back in 0..3 {
        let mut g = Guest::split(8, 0);
        for at in 0..3 {
            g.descriptor(at, DATA, 16, flag::NEXT, if at == 2 { back } else { at + 1 });
        }
        g.offer(0);
        assert_eq!(g.broken(), Violation::TooLong);
    }
    let mut g = Guest::split(8, 0);
    g.descriptor(0, DATA, 16, flag::NEXT, 8);
    g.offer(0);
    assert_eq!(g.broken(), Violation::OutOfRange);
}

#[test]
fn a_chain_has_a_longest_length() {
    let mut g = Guest::split(512, 0);
    let mut pieces = vec![(DATA, 16, false); MAX_CHAIN];
    pieces.push((DATA, 1, true));
    assert_eq!(g.violation(&pieces), Violation::TooLong);
    let mut g = Guest::split(512, 0);
    pieces.remove(0);
    g.lay(0, &pieces);
    g.offer(0);
    assert!(g.take().is_ok());
}

#[test]
fn zero_length_descriptors_are_refused() {
    for at in 0..3 {
        let mut g = Guest::split(8, 0);
        let mut pieces = chain(&g, RequestType::IN, 0, &[(DATA + 0x1000, 512, true)]);
        pieces[at].1 = 0;
        assert_eq!(g.violation(&pieces), Violation::Empty);
    }
}

#[test]
fn readable_after_writable_is_refused() {
    let mut g = Guest::split(8, 0);
    let pieces = [(DATA, 16, false), (DATA + 16, 1, true), (DATA + 0x1000, 512, false)];
    assert_eq!(g.violation(&pieces), Violation::Order);
}

#[test]
fn a_request_needs_a_header_and_a_status() {
    let mut g = Guest::split(8, 0);
    assert_eq!(g.violation(&[(DATA, 15, false), (DATA + 16, 1, true)]), Violation::NoHeader);
    let mut g = Guest::split(8, 0);
    assert_eq!(g.violation(&[(DATA + 16, 1, true)]), Violation::NoHeader);
    let mut g = Guest::split(8, 0);
    assert_eq!(g.violation(&[(DATA, 16, false), (DATA + 0x1000, 512, false)]), Violation::NoStatus);
}

#[test]
fn a_status_outside_memory_breaks_the_queue() {
    let mut g = Guest::split(8, 0);
    let mut pieces = chain(&g, RequestType::FLUSH, 0, &[]);
    pieces[1].0 = RAM + RAM_LEN;
    g.lay(0, &pieces);
    g.offer(0);
    g.serve();
    assert_eq!(g.used(0), (0, 0), "its descriptors come back with nothing written");
    assert_eq!(g.take(), Ok(vec![]));
    let mut g = Guest::split(8, 0);
    assert_eq!(g.violation(&[(DATA, 16, false), (u64::MAX, 2, true)]), Violation::Address);
}

#[test]
fn a_head_in_flight_is_not_taken_again() {
    let mut g = Guest::split(8, 0);
    let pieces = chain(&g, RequestType::FLUSH, 0, &[]);
    g.lay(0, &pieces);
    g.offer(0);
    assert_eq!(g.take().unwrap().len(), 1);
    g.offer(0);
    assert_eq!(g.broken(), Violation::InFlight);
}

#[test]
fn indirect_tables_are_checked() {
    let table = |g: &mut Guest, address, len, flags| {
        g.descriptor(0, address, len, flag::INDIRECT | flags, 1);
        g.offer(0);
        g.broken()
    };
    for len in [0, 8, 15, 17] {
        assert_eq!(table(&mut Guest::split(8, 0), DATA, len, 0), Violation::Indirect, "{len}");
    }
    assert_eq!(table(&mut Guest::split(8, feature::INDIRECT_DESC), DATA, 32, 0), Violation::Indirect);
    assert_eq!(table(&mut Guest::split(8, 0), DATA, 32, flag::NEXT), Violation::Indirect);
    assert_eq!(table(&mut Guest::split(8, 0), u64::MAX - 8, 32, 0), Violation::Indirect);
    let nowhere = Violation::Ring(MemoryFault::Unmapped);
    assert_eq!(table(&mut Guest::split(8, 0), RAM + RAM_LEN - 8, 16, 0), nowhere);
    // A table within a table, one that loops, one that leads out of itself, and one as long as the address space.
    let mut g = Guest::split(8, 0);
    put_descriptor(&g.ram, DATA, DATA, 16, flag::INDIRECT, 0);
    assert_eq!(table(&mut g, DATA, 16, 0), Violation::Indirect);
    let mut g = Guest::split(8, 0);
    put_descriptor(&g.ram, DATA, DATA, 16, flag::NEXT, 0);
    assert_eq!(table(&mut g, DATA, 16, 0), Violation::TooLong);
    let mut g = Guest::split(8, 0);
    put_descriptor(&g.ram, DATA, DATA, 16, flag::NEXT, 2);
    assert_eq!(table(&mut g, DATA, 32, 0), Violation::OutOfRange);
    let mut g = Guest::split(8, 0);
    put_descriptor(&g.ram, DATA, DATA, 16, flag::NEXT, 0);
    assert_eq!(table(&mut g, DATA, 0xffff_fff0, 0), Violation::TooLong);
}

#[test]
fn rings_outside_memory_do_not_start() {
    let mut g = Guest::without(feature::RING_PACKED);
    g.configure(0, 4096, 0);
    assert_eq!(g.kick(0), 0);
    let mut g = Guest::without(feature::RING_PACKED);
    g.configure(15, 4096, 0);
    // The last queue's rings reach to here: cut the memory off below.
    let wire = super::guest::region(RAM, RAM_LEN, super::guest::USER);
    use weir_spec::vhost_user::Request;
    use zerocopy::IntoBytes;
    assert_eq!(g.ask(Request::REM_MEM_REG, wire.as_bytes(), vec![]), 0);
    assert_eq!(g.kick(15), 1);
}

proptest! {
    /// Whatever is in the ring and in the tables, the queue either serves or breaks; nothing panics, everything that was
    /// taken can be completed, and the work is bounded.
    #[test]
    fn garbage_is_survived(
        bytes in proptest::collection::vec(any::<u8>(), 16 * 16),
        heads in proptest::collection::vec(0u16..18, 1..40),
        near: bool,
        packed: bool,
        statuses in proptest::collection::vec(0u8..3, 8),
    ) {
        let mut g = Guest::without(if packed { 0 } else { feature::RING_PACKED });
        g.start(0, 16, if packed { 0x8000_8000 } else { 0 });
        let table = Guest::places(0)[0];
        let mut bytes = bytes;
        if near {
            // Descriptors that look right in most places reach further.
            for (i, d) in bytes.chunks_exact_mut(16).enumerate() {
                let (address, len) = (DATA + u64::from(d[0]) * 16, u32::from(d[8] % 32));
                d[..8].copy_from_slice(&address.to_le_bytes());
                d[8..12].copy_from_slice(&len.to_le_bytes());
                if packed {
                    d[12] %= 20;
                    (d[13], d[14]) = (0, d[14] & 7 | 0x80);
                    d[15] = 0;
                } else {
                    (d[12], d[13]) = (d[12] & 7, 0);
                    (d[14], d[15]) = ((i as u8 + 1) % 17, 0);
                }
            }
        }
        g.ram.write(table, &bytes).unwrap();
        let mut seen = 0;
        for (i, head) in heads.iter().enumerate() {
            if !packed {
                g.offer(*head);
            }
            let mut taken = Vec::new();
            let _ = g.device.take(&g.memory, 0, 4, &mut |t| taken.push(t));
            g.device.check();
            seen += taken.len();
            for (k, t) in taken.iter().enumerate() {
                if statuses[(i + k) % 8] < 2 {
                    g.execute(t);
                }
            }
            g.device.publish(&g.memory, 0);
            g.device.listen(&g.memory, 0);
            g.device.check();
        }
        prop_assert!(seen <= 4 * heads.len());
    }
}
