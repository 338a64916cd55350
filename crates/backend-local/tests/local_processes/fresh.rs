//! What is promised of files that were made a moment ago, and of those whose writer is done with them.

use super::*;

impl World {
    /// A file of ours with data that no client has committed, and its open file.
    fn fresh(&self, n: &str) -> (Handle, Arc<dyn FileObject>) {
        let set = SetAttrs { mode: Some(0o644), ..SetAttrs::default() };
        let how = CreateHow { mode: CreateMode::Guarded, set: &set, open: Some(BOTH), want: AttrMask::NONE };
        let name = Name::new(n.as_bytes()).unwrap();
        let created = self.backend.create(&self.cx(), &self.root, name, &how).unwrap();
        let (file, open) = (created.node.handle, created.file.unwrap());
        self.write(File::Open(&file, &open), b"fresh");
        (file, open)
    }
}

#[test]
fn what_is_not_on_disk_yet_is_pledged_to_readers_where_a_word_afterwards_will_do() {
    must_be_root();
    on_each(|w| {
        let (file, open) = w.fresh("file");
        assert!(w.try_pledge(&file, Pledge::ReadFile, None).is_none(), "our own writer is in the way");
        if w.local == LocalUse::Strict {
            assert!(w.try_pledge(&file, Pledge::ReadFile, Some(&open)).is_none());
            return;
        }
        let reader = StdFile::open(w.path("file")).unwrap();
        assert!(w.try_pledge(&file, Pledge::ReadFile, Some(&open)).is_none(), "somebody else has it open");
        drop(reader);
        let guard = w.pledge(&file, Pledge::ReadFile, Some(&open));
        drop(open);
        w.write(File::Stateless(&file), b"again");
        let mut results = [Ok(())];
        w.backend.commit(&[Touched { handle: file, data: true }], &mut results);
        assert!(results[0].is_ok() && !guard.is_broken(), "our own deeds break nothing");
        done(w.run("echo more >> \"$1\"", "file"));
        assert!(w.is_told(&file, LocalDeed::OpenToWrite) && guard.is_broken());
    });
}

#[test]
fn readers_stay_when_the_writers_pledge_goes() {
    must_be_root();
    on_each(|w| {
        let (file, open) = w.fresh("file");
        let writing = w.pledge(&file, Pledge::WriteFile, Some(&open));
        let reading = w.try_pledge(&file, Pledge::ReadFile, None);
        assert!(!writing.is_broken() && w.ear.0.lock().unwrap().is_empty());
        if w.local == LocalUse::Strict {
            assert!(reading.is_none(), "it would be told too late");
            return;
        }
        let reading = reading.expect("the writer's ground is good enough");
        drop((writing, open));
        assert!(!reading.is_broken() && w.ear.0.lock().unwrap().is_empty());
        let mut results = [Ok(())];
        w.backend.commit(&[Touched { handle: file, data: true }], &mut results);
        // Nobody waits for a lease any more, and nothing is missed.
        done(w.run("echo more >> \"$1\"", "file"));
        assert!(w.is_told(&file, LocalDeed::OpenToWrite) && reading.is_broken());
        drop(reading);
        drop(w.pledge(&file, Pledge::ReadFile, None));
    });
}

#[test]
fn beyond_what_may_be_kept_open_readers_are_told_of_deeds_and_writers_promised_nothing() {
    must_be_root();
    let disk = Disk::make("xfs", &[]);
    for local in [LocalUse::Lazy, LocalUse::Strict] {
        let is_lazy = local == LocalUse::Lazy;
        let w = world_with(disk.fresh(), local, |options| options.leases_max = 2);
        let files = ["a", "b", "c", "d"].map(|n| w.file(n));
        let first = w.pledge(&files[0], Pledge::ReadFile, None);
        assert!(!w.backend.leases_are_scarce());
        // Half is left to those who write, where readers can do without.
        let leased = w.open(&files[3], BOTH);
        let third = w.pledge(&files[3], Pledge::WriteFile, Some(&leased));
        // A strict export keeps descriptors for the readers that are left when a writer gives up.
        assert_eq!(w.backend.leases_are_scarce(), is_lazy);
        let second = is_lazy.then(|| w.pledge(&files[1], Pledge::ReadFile, None));
        assert!(second.is_some() || w.try_pledge(&files[1], Pledge::ReadFile, None).is_none());
        let open = w.open(&files[2], BOTH);
        assert!(w.try_pledge(&files[2], Pledge::WriteFile, Some(&open)).is_none());
        drop(open);
        if let Some(second) = second {
            done(w.run("echo more >> \"$1\"", "b"));
            assert!(w.is_told(&files[1], LocalDeed::OpenToWrite) && second.is_broken());
        }
        assert!(!first.is_broken() && !third.is_broken());
        drop((third, leased));
        assert!(!w.backend.leases_are_scarce());
        if is_lazy {
            let by_marks = w.pledge(&files[3], Pledge::ReadFile, None);
            let open = w.open(&files[2], BOTH);
            drop(w.pledge(&files[2], Pledge::WriteFile, Some(&open)));
            drop(by_marks);
        }
        drop(first);
        drop(w.pledge(&files[2], Pledge::ReadFile, None));
    }
}

#[test]
fn of_links_and_pipes_it_is_told_what_changes_their_attributes_and_names() {
    must_be_root();
    on_each(|w| {
        std::os::unix::fs::symlink("somewhere", w.path("link")).unwrap();
        done(w.run("mkfifo \"$1\"", "pipe"));
        for (n, program, deed) in [
            ("link", "chown -h 7 \"$1\"", LocalDeed::ChangedAttrs),
            ("link", "mv \"$1\" \"$1.x\"; mv \"$1.x\" \"$1\"", LocalDeed::ChangedName),
            ("pipe", "chmod 600 \"$1\"", LocalDeed::ChangedAttrs),
            ("link", "rm \"$1\"", LocalDeed::ChangedAttrs),
        ] {
            let object = w.find(n);
            assert!(w.backend.pledge(&object, Pledge::WriteFile, None).is_err());
            let guard = w.pledge(&object, Pledge::ReadFile, None);
            w.ear.0.lock().unwrap().clear();
            done(w.run(program, n));
            assert!(w.is_told(&object, deed) && guard.is_broken(), "{program}");
        }
    });
}
