//! The controller machine under honest and hostile hosts of every model at once.

/// Bytes become events over one drive; its invariants are checked after each, and its answers against what was sent.
pub fn controller(data: &[u8]) {
    weir_controller::testing::drive(data);
}

/// Long mixed sequences to start from: the machine only shows its depths after a few connections and queues.
pub fn seeds() -> Vec<Vec<u8>> {
    let mixed = |seed: u32| {
        let mut x = seed;
        let step = |_| {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (x >> 24) as u8
        };
        (0..1024).map(step).collect()
    };
    (1..=8).map(mixed).collect()
}
