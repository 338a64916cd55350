//! Listeners that do not do what they should.

use super::*;

/// Panics when it is told of anything.
struct Clumsy;

impl LocalListener for Clumsy {
    fn local_deed(&self, _: FileKey, _: LocalDeed) {
        panic!("as a bug would have it");
    }
}

#[test]
fn a_listener_that_panics_does_not_keep_the_next_deed_from_being_told() {
    must_be_root();
    let w = world_on(Disk::tmpfs(), LocalUse::Lazy);
    let clumsy: Arc<dyn LocalListener> = Arc::new(Clumsy);
    w.backend.listen(Arc::downgrade(&clumsy));
    let first = w.file("first");
    let guard = w.pledge(&first, Pledge::ReadFile, None);
    let child = w.run("echo more >> \"$1\"", "first");
    assert!(soon(|| guard.is_broken()));
    drop(guard);
    done(child);
    let ear: Arc<dyn LocalListener> = Arc::<Ear>::clone(&w.ear);
    w.backend.listen(Arc::downgrade(&ear));
    let second = w.file("second");
    let guard = w.pledge(&second, Pledge::ReadFile, None);
    let child = w.run("echo more >> \"$1\"", "second");
    assert!(w.is_told(&second, LocalDeed::OpenToWrite));
    drop(guard);
    done(child);
}
