//! Another process of the server takes over while local processes wait.

use holdfast_vfs::handover::{Incoming, Outgoing};

use super::*;

#[test]
fn who_waits_for_a_lease_goes_on_waiting_while_another_process_takes_over() {
    must_be_root();
    on_each(|w| {
        for ends_with_its_promise in [true, false] {
            let n = if ends_with_its_promise { "promise" } else { "close" };
            let file = w.file(n);
            let open = w.open(&file, BOTH);
            let guard = w.pledge(&file, Pledge::WriteFile, Some(&open));
            let mut child = w.run("test \"$(cat \"$1\")\" = late", n);
            assert!(w.is_told(&file, LocalDeed::OpenToRead));
            let mut outgoing = Outgoing::default();
            let number = outgoing.add_file(&open).unwrap();
            let descriptors = outgoing.descriptors().map(|fd| fd.try_clone_to_owned().ok()).collect();
            let next: Arc<dyn Backend> = Arc::new(world(w.top.clone(), w.local).backend);
            // The process before ends without letting go of anything.
            std::mem::forget((guard, open));
            let mut incoming = Incoming::new(descriptors);
            assert_eq!(incoming.open_files(outgoing.files(), std::slice::from_ref(&next)), 0);
            let open = incoming.file(number).unwrap();
            drop((incoming, outgoing));
            assert!(is_waiting(&mut child), "what is unwritten must not be read yet");
            let again = ends_with_its_promise
                .then(|| next.pledge(&file, Pledge::WriteFile, Some(&open)).unwrap().unwrap());
            assert!(again.as_ref().is_none_or(|guard| guard.is_broken()), "it is to be recalled");
            let at = WriteAt { offset: 0, stability: Stability::Unstable, want_change: false };
            next.write(&w.cx(), File::Open(&file, &open), at, b"late").unwrap();
            assert!(is_waiting(&mut child));
            if ends_with_its_promise {
                drop(again);
                done(child);
            } else {
                drop(open);
                done(child);
            }
        }
    });
}
