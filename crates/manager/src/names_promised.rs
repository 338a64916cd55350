//! Promises of single names: a change of exactly that name has them recalled, and of others does not. To engine and index a
//! name is an object of its own; against local processes its directory is guarded.

use std::sync::atomic::Ordering;

use holdfast_base::ClientId;
use holdfast_state::{CapGrant, NameKey, StateError};
use holdfast_vfs::{Handle, Name};

use crate::caps::CapsOn;
use crate::manager::Manager;

impl Manager {
    /// Promises a name of a directory, if nobody is changing it, and nobody else may change it unseen. Waits for nobody;
    /// what is not given is no error. `on` is the directory. What the name stands for is to be looked up afterwards.
    ///
    /// # Errors
    /// Those of [`holdfast_state::Engine::caps_prepare_name`].
    pub fn acquire_name(
        &self,
        client: ClientId,
        key: NameKey,
        on: &CapsOn<'_>,
    ) -> Result<CapGrant, StateError> {
        let prepare = |engine: &mut holdfast_state::Engine, now| engine.caps_prepare_name(client, key, now);
        self.acquire_offered((client, key.name), false, on, prepare).map(|(grant, _)| grant)
    }

    /// How the engine knows a name.
    #[must_use]
    pub fn name_key(&self, dir: &Handle, name: Name<'_>) -> NameKey {
        let secret = self.names_secret.each_ref().map(|half| half.load(Ordering::Relaxed));
        NameKey { dir: dir.key(), name: dir.key_of_name(name.as_bytes(), secret) }
    }
}
