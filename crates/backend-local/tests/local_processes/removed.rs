//! What is promised of files that a client removes by what it has seen.

use holdfast_vfs::{RemoveKind, Removed};

use super::*;

impl World {
    fn remove_seen(&self, n: &str, file: &Handle) -> Option<Removed> {
        let name = Name::new(n.as_bytes()).unwrap();
        self.backend.remove_seen(&self.cx(), &self.root, name, RemoveKind::NonDirectory, file).unwrap()
    }

    fn append(&self, n: &str) -> Child {
        self.run("echo more >> \"$1\"", n)
    }
}

#[test]
fn what_guarded_a_removed_file_is_in_nobodys_way_and_the_next_of_its_name_is_guarded_anew() {
    must_be_root();
    on_each(|w| {
        for is_held in [true, false] {
            for _ in 0..3 {
                let file = w.file("file");
                let guard = w.pledge(&file, Pledge::ReadFile, None);
                if !is_held {
                    w.backend.shed(0);
                }
                assert_eq!(w.remove_seen("file", &file), Some(Removed { is_gone: true }));
                assert!(!guard.is_broken(), "our own deeds break nothing");
                drop(guard);
                w.ear.0.lock().unwrap().clear();
            }
            let next = w.file("file");
            let guard = w.pledge(&next, Pledge::ReadFile, None);
            let child = w.append("file");
            assert!(w.is_told(&next, LocalDeed::OpenToWrite) && guard.is_broken());
            drop(guard);
            done(child);
            fs::remove_file(w.path("file")).unwrap();
        }
    });
}

#[test]
fn a_file_that_has_another_name_stays_guarded_when_one_is_removed() {
    must_be_root();
    on_each(|w| {
        for (is_held, n) in [(true, "one"), (false, "two")] {
            let file = w.file(n);
            fs::hard_link(w.path(n), w.path("other")).unwrap();
            let guard = w.pledge(&file, Pledge::ReadFile, None);
            if !is_held {
                w.backend.shed(0);
            }
            assert_eq!(w.remove_seen(n, &file), Some(Removed { is_gone: false }));
            assert!(!guard.is_broken());
            let child = w.append("other");
            assert!(w.is_told(&file, LocalDeed::OpenToWrite) && guard.is_broken());
            drop(guard);
            done(child);
            fs::remove_file(w.path("other")).unwrap();
        }
    });
}
