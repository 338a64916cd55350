//! What a client has made, and has not opened: the descriptor that made it stays, and is in nobody's way.

use super::*;

impl World {
    fn make(&self, n: &str) -> Handle {
        let set = SetAttrs { mode: Some(0o700), ..SetAttrs::default() };
        let how = CreateHow { mode: CreateMode::Guarded, set: &set, open: None, want: AttrMask::STAT };
        let name = Name::new(n.as_bytes()).unwrap();
        self.backend.create(&self.cx(), &self.root, name, &how).unwrap().node.handle
    }

    /// Descriptors of a file that this process has.
    fn descriptors(&self, n: &str) -> usize {
        let is_it = |at: PathBuf| fs::read_link(at).is_ok_and(|to| to == self.path(n));
        fs::read_dir("/proc/self/fd").unwrap().filter(|fd| is_it(fd.as_ref().unwrap().path())).count()
    }
}

#[test]
fn what_was_made_is_leased_written_run_and_promised_as_if_nobody_had_it() {
    must_be_root();
    on_each(|w| {
        w.make("leased");
        assert_eq!(w.descriptors("leased"), 1, "the descriptor by which it is known");
        let lease = "import fcntl,os,sys;f=os.open(sys.argv[1],os.O_RDWR);\
                     fcntl.fcntl(f,fcntl.F_SETLEASE,fcntl.F_WRLCK)";
        done(w.run(&format!("python3 -c '{lease}' \"$1\""), "leased"));
        w.make("run");
        done(w.run("printf '#!/bin/sh\\nexit 0\\n' > \"$1\" && \"$1\"", "run"));
        let pledged = w.make("pledged");
        let open = w.open(&pledged, BOTH);
        drop(w.pledge(&pledged, Pledge::WriteFile, Some(&open)));
        drop(open);
        drop(w.pledge(&pledged, Pledge::ReadFile, None));
    });
}

#[test]
fn what_was_made_is_written_and_cut_by_its_maker_whatever_its_mode() {
    must_be_root();
    on_each(|w| {
        let caller = Caller { uid: 1000, gid: 1000, groups: [].into() };
        fs::set_permissions(&w.top, fs::Permissions::from_mode(0o777)).unwrap();
        for (n, size) in [("empty", None), ("sized", Some(5))] {
            let set = SetAttrs { mode: Some(0), size, ..SetAttrs::default() };
            let how = CreateHow { mode: CreateMode::Guarded, set: &set, open: None, want: AttrMask::STAT };
            let (cx, name) = (Cx::new(&caller, Wait::Yes), Name::new(n.as_bytes()).unwrap());
            let made = w.backend.create(&cx, &w.root, name, &how).unwrap().node;
            assert_eq!((made.attrs.size, made.attrs.mode), (size.unwrap_or(0), 0));
            let at = WriteAt { offset: 0, stability: Stability::Unstable, want_change: false };
            let written = w.backend.write(&cx, File::Stateless(&made.handle), at, b"its maker's").unwrap();
            assert_eq!(written.bytes, 11);
            assert_eq!(fs::read(w.path(n)).unwrap(), b"its maker's");
        }
    });
}
