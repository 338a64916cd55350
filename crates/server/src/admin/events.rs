//! Counting what happens to state: the effects of the engine, as they pass.

use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_admin::report::Count;
use holdfast_manager::{Agent, NotKept};
use holdfast_state::Effect;

macro_rules! events {
    ($($event:ident = $pattern:pat => $name:literal;)*) => {
        /// What happened since the start.
        #[derive(Default)]
        pub(crate) struct Events {
            $($event: AtomicU64,)*
        }

        impl Events {
            /// Each sort with its number.
            pub(crate) fn counts(&self) -> Vec<Count> {
                vec![$(Count { name: $name.to_owned(), count: self.$event.load(Ordering::Relaxed) },)*]
            }

            fn of(&self, effect: &Effect) -> Option<&AtomicU64> {
                match effect {
                    $($pattern => Some(&self.$event),)*
                    _ => None,
                }
            }
        }
    };
}

events! {
    recalls = Effect::Recall { .. } => "recall calls";
    ended = Effect::DelegationEnded { .. } => "delegations ended";
    pressure = Effect::RecallAny { .. } => "clients asked to give back what they need least";
    slots = Effect::RecallSlots { .. } => "sessions asked to use fewer slots";
    granted = Effect::NotifyLock { .. } | Effect::ForeignGranted { .. } => "waiting locks granted";
    sessions = Effect::SessionGone(_) => "sessions ended";
    clients = Effect::ForgetClient(_) => "clients forgotten";
}

impl Agent for Events {
    fn run(&self, effect: &Effect) -> Result<(), NotKept> {
        if let Some(count) = self.of(effect) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}
