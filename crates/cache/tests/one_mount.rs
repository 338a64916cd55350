//! One mount always shows what the model shows, whatever is delayed, lost and sent again.

mod world;

use proptest::prelude::*;
use world::choice::{config, op};
use world::{Model, Op, World};

fn runs_as_the_model(ops: &[Op], caps: bool, seed: u64, loses: bool) {
    let mut world = World::new(1, caps, seed);
    world.loses = loses;
    let mut model = Model::default();
    for op in ops {
        let (shown, expected) = (world.apply(0, op), model.apply(0, op));
        assert_eq!(shown, expected, "{op:?}\n{}", model.canonical());
    }
    world.drain();
    assert_eq!(world.server.fs.canonical(), model.fs.canonical(), "at the server");
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn without_capabilities_every_operation_is_as_the_model(
        ops in prop::collection::vec(op(), 1..60), seed in any::<u64>()
    ) {
        runs_as_the_model(&ops, false, seed, false);
    }

    #[test]
    fn with_capabilities_every_operation_is_as_the_model(
        ops in prop::collection::vec(op(), 1..80), seed in any::<u64>()
    ) {
        runs_as_the_model(&ops, true, seed, false);
    }

    #[test]
    fn lost_replies_change_nothing(ops in prop::collection::vec(op(), 1..80), seed in any::<u64>()) {
        runs_as_the_model(&ops, true, seed, true);
    }
}
