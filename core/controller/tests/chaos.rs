//! Random events of honest and hostile hosts over one drive: invariants after every step, no completion without a command,
//! none lost, none twice (the oracle is in `weir_controller::model`).

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_events(bytes in proptest::collection::vec(any::<u8>(), 0..1500)) {
        weir_controller::model::drive(&bytes);
    }
}
