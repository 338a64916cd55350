//! Budgets by memory: never above their bounds, less for less memory, and when it is short less than there is.

use holdfast_base::limits::{
    CAPS_OBJECTS_MAX, COURTESY_CLIENTS_MAX, DELEGATIONS_MAX, MEMORY_OF_WHOLE_BUDGETS, MEMORY_SPARE_BYTES_MAX,
    SESSIONS_SLOTS_MAX, STATEIDS_MAX,
};
use holdfast_state::{InUse, Memory, Policy};
use proptest::prelude::*;

const BOUNDS: [usize; 5] =
    [COURTESY_CLIENTS_MAX, DELEGATIONS_MAX, SESSIONS_SLOTS_MAX, CAPS_OBJECTS_MAX, STATEIDS_MAX];

fn budgets(policy: Policy) -> [usize; 5] {
    [
        policy.courtesy_clients_max,
        policy.delegations_max,
        policy.slots_max,
        policy.capabilities_max,
        policy.stateids_max,
    ]
}

fn within(memory: Memory, in_use: InUse) -> [usize; 5] {
    budgets(Policy::default().within(memory, in_use))
}

fn is_each_at_most(a: [usize; 5], b: [usize; 5]) -> bool {
    a.iter().zip(b).all(|(a, b)| *a <= b)
}

/// Sizes of all orders of magnitude.
fn size() -> impl Strategy<Value = u64> {
    (0_u32..=48, any::<u64>()).prop_map(|(bits, n)| n & ((1 << bits) - 1))
}

fn memory() -> impl Strategy<Value = Memory> {
    (size(), size()).prop_map(|(total, available)| Memory { total, available })
}

fn in_use() -> impl Strategy<Value = InUse> {
    (0..=COURTESY_CLIENTS_MAX, 0..=DELEGATIONS_MAX, 0..=SESSIONS_SLOTS_MAX, 0..=CAPS_OBJECTS_MAX).prop_map(
        |(courteous, delegations, slots, capabilities)| InUse { delegations, slots, courteous, capabilities },
    )
}

proptest! {
    #[test]
    fn no_budget_is_above_its_bound(memory in memory(), in_use in in_use()) {
        prop_assert!(is_each_at_most(within(memory, in_use), BOUNDS));
    }

    #[test]
    fn less_memory_never_means_larger_budgets(a in memory(), b in size(), in_use in in_use()) {
        let fewer_available = Memory { available: a.available.min(b), ..a };
        prop_assert!(is_each_at_most(within(fewer_available, in_use), within(a, in_use)));
        // Memory of which the same part is available, as far as whole bytes go.
        let easy = |total| Memory { total, available: total };
        prop_assert!(is_each_at_most(within(easy(a.total.min(b)), in_use), within(easy(a.total), in_use)));
    }

    #[test]
    fn with_memory_to_spare_budgets_do_not_depend_on_what_is_held(total in size(), in_use in in_use()) {
        let memory = Memory { total, available: total.div_ceil(8).min(MEMORY_SPARE_BYTES_MAX) };
        prop_assert!(!memory.is_short());
        prop_assert_eq!(memory.keep_percent(), 100);
        prop_assert_eq!(within(memory, in_use), within(memory, InUse::default()));
    }

    #[test]
    fn when_memory_is_short_nothing_grows_and_opens_are_not_refused(memory in memory(), in_use in in_use()) {
        prop_assume!(memory.is_short());
        let [courteous, delegations, slots, capabilities, stateids] = within(memory, in_use);
        let held = [in_use.courteous, in_use.delegations, in_use.slots, in_use.capabilities];
        for (budget, held) in [courteous, delegations, slots, capabilities].into_iter().zip(held) {
            prop_assert!(budget <= held);
            // A share of what is held, the share that is available of what should be.
            let share = held as f64 * memory.available as f64 / memory.short_below() as f64;
            prop_assert!((budget as f64) < share + 1.0);
        }
        let easy = Memory { available: memory.total, ..memory };
        prop_assert_eq!(stateids, within(easy, in_use)[4]);
        prop_assert!(stateids >= 4096, "a few clients can work whatever the memory");
    }

    #[test]
    fn what_is_no_budget_stays_as_it_was(memory in memory(), in_use in in_use(), recall_ms in any::<u64>()) {
        let policy =
            Policy { is_delegating: false, recall_ms: Some(recall_ms), courtesy_ms: 5, ..Policy::default() };
        let told = policy.within(memory, in_use);
        prop_assert_eq!((told.is_delegating, told.recall_ms, told.courtesy_ms), (false, Some(recall_ms), 5));
    }
}

#[test]
fn a_machine_of_eight_gibibytes_has_whole_budgets_and_one_of_a_half_a_sixteenth() {
    let easy = |total| within(Memory { total, available: total }, InUse::default());
    assert_eq!(easy(MEMORY_OF_WHOLE_BUDGETS), BOUNDS);
    assert_eq!(easy(MEMORY_OF_WHOLE_BUDGETS * 100), BOUNDS);
    assert_eq!(easy(MEMORY_OF_WHOLE_BUDGETS / 16), BOUNDS.map(|bound| bound / 16));
}
