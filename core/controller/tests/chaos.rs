//! Random events of honest and hostile hosts over one drive: invariants after every step, no completion without a command,
//! none lost, none twice (the oracle is in `weir_controller::testing`).

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(ProptestConfig::default().cases * 3 / 2)
    })]

    #[test]
    fn any_sequence_of_events(bytes in proptest::collection::vec(any::<u8>(), 0..1500)) {
        weir_controller::testing::drive(&bytes);
    }
}
