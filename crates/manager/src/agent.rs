//! Who carries out what the engine leaves to be done.

use holdfast_base::{ByteRange, ClientId, FileKey};
use holdfast_state::{Effect, Verifier};

use crate::entries::EntryChange;

/// A client's record could not be put on stable storage: nothing that depends on it may be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotKept;

/// A service that acts for the engine. Every agent hears of every effect, in the order in which they happened, and
/// does what is its own.
pub trait Agent: Send + Sync {
    /// Hears of all effects of a step before the first of them is run: for what is cheaper done for many at once. As
    /// [`Agent::run`], which is called with each of them all the same.
    fn begin(&self, effects: &[Effect]) {
        let _ = effects;
    }

    /// Takes clients off the record ([`holdfast_state::Witness::forget`]). Within a step: the engine is held, so that nothing
    /// may be asked of it. May wait for a disk, a moment, and for nothing else.
    fn forget(&self, clients: &[ClientId]) -> bool {
        let _ = clients;
        true
    }

    /// Records whether a client has lost something ([`holdfast_state::Witness::note_losses`]). As [`Agent::forget`].
    fn note_losses(&self, client: ClientId, has_lost: bool) -> bool {
        let _ = (client, has_lost);
        true
    }

    /// Whether an incarnation of a client may have been here before ([`holdfast_state::Witness::may_have_met`]). As
    /// [`Agent::forget`], but must not wait.
    fn may_have_met(&self, name: &[u8], verifier: Verifier) -> bool {
        let _ = (name, verifier);
        false
    }

    /// Does its part of an effect, on the thread whose step left it, after the engine was let go of and before the
    /// reply leaves. May take steps of its own. Must not wait for a peer.
    ///
    /// # Errors
    /// [`NotKept`]: the step fails. For [`Effect::PersistClient`], whose client is then revoked, and for
    /// [`Effect::ClientReturned`], whose client keeps what it has, and comes again.
    fn run(&self, effect: &Effect) -> Result<(), NotKept>;

    /// A directory's entries have changed, and somebody is to be told of it. The next change of that directory waits: as
    /// [`Agent::run`], and no look at the directory.
    fn entries_changed(&self, change: &EntryChange<'_>) {
        let _ = change;
    }

    /// A local process's lock that was in the way is gone from this range, or was a moment ago
    /// ([`holdfast_vfs::LocalListener::local_unlock`]). As [`Agent::run`].
    fn local_unlock(&self, file: FileKey, range: ByteRange) {
        let _ = (file, range);
    }
}
