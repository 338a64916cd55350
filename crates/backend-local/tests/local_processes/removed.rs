//! What is promised of files that a client removes by what it has seen.

use holdfast_base::limits::BACKEND_SWEEP_TURNS;
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

    /// Descriptors of this process that alone keep the space of a file of this name.
    fn keepers(&self, n: &str) -> usize {
        let gone = format!("{} (deleted)", self.path(n).display());
        let is_gone = |at: PathBuf| fs::read_link(at).is_ok_and(|to| to.to_str() == Some(&gone[..]));
        fs::read_dir("/proc/self/fd").unwrap().filter(|fd| is_gone(fd.as_ref().unwrap().path())).count()
    }

    fn remove_locally(&self, n: &str) {
        done(self.run("rm \"$1\"", n));
        assert!(self.keepers(n) > 0, "the case is that of a descriptor that is held");
    }

    fn sweep_all(&self) {
        (0..BACKEND_SWEEP_TURNS).for_each(|_| self.backend.sweep());
    }
}

#[test]
fn the_space_of_what_a_local_process_removes_is_not_kept() {
    must_be_root();
    on_each(|w| {
        for is_dirty in [false, true] {
            let file = w.file("file");
            w.backend.read(&w.cx(), File::Stateless(&file), 0, &mut [0; 4]).unwrap();
            if is_dirty {
                w.write(File::Stateless(&file), b"more");
            }
            w.remove_locally("file");
            w.sweep_all();
            assert_eq!(w.keepers("file"), 0, "dirty: {is_dirty}");
        }
    });
}

#[test]
fn what_is_open_or_promised_outlives_its_local_removal_for_as_long() {
    must_be_root();
    on_each(|w| {
        let file = w.file("open");
        let open = w.backend.open(&w.cx(), &file, READ).unwrap();
        let promised = w.file("promised");
        let guard = w.pledge(&promised, Pledge::ReadFile, None);
        for n in ["open", "promised"] {
            w.remove_locally(n);
        }
        w.sweep_all();
        let mut data = [0; 4];
        w.backend.read(&w.cx(), File::Open(&file, &open), 0, &mut data).unwrap();
        w.backend.read(&w.cx(), File::Stateless(&promised), 0, &mut data).unwrap();
        drop((open, guard));
        w.sweep_all();
        assert_eq!((w.keepers("open"), w.keepers("promised")), (0, 0));
    });
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
