const CONTENTS: &[Row] = &[
    ("changed here", |w, d| write(w, d, "f", b"ours", false), |_, _| {}, &["-f=old", "+f=ours"], &[]),
    (
        "changed on both sides",
        |w, d| write(w, d, "f", b"ours", false),
        |w, d| there(w, d, "f", b"theirs"),
        &["-f=old", "+f=theirs", "+f-T=ours"],
        &["d/f: changed here and there (f-T)"],
    ),
    (
        "changed here, its attributes there",
        |w, d| write(w, d, "f", b"ours", false),
        |w, d| {
            let (dir, name) = at(w, d, "f");
            let ino = w.server.fs.look(dir, name).unwrap().unwrap();
            w.server.fs.get_mut(ino).unwrap().mode = 0o600;
        },
        &["-f=old", "+f=ours 600"],
        &[],
    ),
    (
        "changed here, renamed there",
        |w, d| write(w, d, "f", b"ours", false),
        |w, d| moved_there(w, d, "f", "t/n"),
        &["-f=old", "+t/n=ours"],
        &[],
    ),
    (
        "changed here, removed there",
        |w, d| write(w, d, "f", b"ours", false),
        |w, d| gone(w, d, "f"),
        &["-f=old", "+f-T=ours"],
        &["d/f: changed here, removed there (f-T)"],
    ),
    (
        "changed and renamed here, removed there",
        |w, d| {
            write(w, d, "f", b"ours", false);
            rename(w, d, "f", "n");
        },
        |w, d| gone(w, d, "f"),
        &["-f=old", "+n-T=ours"],
        &["d/n: changed here, removed there (n-T)"],
    ),
    (
        "changed here, saved by an editor there",
        |w, d| write(w, d, "f", b"ours", false),
        |w, d| saved_there(w, d, "f"),
        &["-f=old", "+f=theirs", "+f-T=ours"],
        &["d/f: changed here, removed there (f-T)"],
    ),
    (
        "removed here, changed there",
        |w, d| remove(w, d, "f"),
        |w, d| there(w, d, "f", b"theirs"),
        &["-f=old", "+f=theirs"],
        &["d/f: removed here, changed there: theirs is kept"],
    ),
    ("removed on both sides", |w, d| remove(w, d, "f"), |w, d| gone(w, d, "f"), &["-f=old"], &[]),
    (
        "removed here, saved by an editor there",
        |w, d| remove(w, d, "f"),
        |w, d| saved_there(w, d, "f"),
        &["-f=old", "+f=theirs"],
        &[],
    ),
    (
        "saved by an editor here, changed there",
        |w, d| {
            write(w, d, "t1", b"ours", true);
            rename(w, d, "t1", "f");
        },
        |w, d| there(w, d, "f", b"theirs"),
        &["-f=old", "+f=theirs", "+f-T=ours"],
        &["d/f: replaced here, changed there (f-T)"],
    ),
    (
        "saved by editors on both sides, here twice",
        |w, d| {
            write(w, d, "t1", b"first", true);
            rename(w, d, "t1", "f");
            write(w, d, "t2", b"ours", true);
            rename(w, d, "t2", "f");
        },
        |w, d| saved_there(w, d, "f"),
        &["-f=old", "+f=theirs", "+f-T=ours"],
        &["d/f: renamed here, the name was taken there (f-T)"],
    ),
    (
        "saved by an editor here, removed there",
        |w, d| {
            write(w, d, "t1", b"ours", true);
            rename(w, d, "t1", "f");
        },
        |w, d| gone(w, d, "f"),
        &["-f=old", "+f=ours"],
        &[],
    ),
    (
        "saved by an editor here twice, changed there",
        |w, d| {
            write(w, d, "t1", b"first", true);
            rename(w, d, "t1", "f");
            write(w, d, "t2", b"ours", true);
            rename(w, d, "t2", "f");
        },
        |w, d| there(w, d, "f", b"theirs"),
        &["-f=old", "+f=theirs", "+f-T=ours"],
        &["d/f: replaced here, changed there (f-T)"],
    ),
    (
        "made here, and changed there what is beside it",
        |w, d| write(w, d, "n", b"ours", true),
        |w, d| there(w, d, "g", b"theirs"),
        &["-g=old", "+g=theirs", "+n=ours"],
        &[],
    ),
    (
        "attributes set here, contents changed there",
        |w, d| chmod(w, d, "f", 0o600),
        |w, d| there(w, d, "f", b"theirs"),
        &["-f=old", "+f=theirs 600"],
        &[],
    ),
    (
        "attributes set on both sides",
        |w, d| chmod(w, d, "f", 0o666),
        |w, d| {
            let (dir, name) = at(w, d, "f");
            let ino = w.server.fs.look(dir, name).unwrap().unwrap();
            w.server.fs.get_mut(ino).unwrap().mode = 0o600;
        },
        &["-f=old", "+f=old 600"],
        &["d/f: attributes set here and there: theirs are kept"],
    ),
    (
        "attributes set here, removed there",
        |w, d| chmod(w, d, "f", 0o600),
        |w, d| gone(w, d, "f"),
        &["-f=old"],
        &[],
    ),
];

const NAMES: &[Row] = &[
    (
        "made on both sides",
        |w, d| write(w, d, "n", b"ours", true),
        |w, d| there(w, d, "n", b"theirs"),
        &["+n=theirs", "+n-T=ours"],
        &["d/n: made here and there (n-T)"],
    ),
    (
        "a link made here, a pipe there",
        |w, d| symlink(w, d, "n", b"ours"),
        |w, d| made_there(w, d, "n", Kind::Fifo),
        &["+n Fifo", "+n-T -> ours"],
        &["d/n: made here and there (n-T)"],
    ),
    (
        "a pipe made here, a directory there",
        |w, d| {
            let kind = (Kind::Fifo, Device::default());
            w.run(0, |m, t, now| m.mknod(t, d, b"n", kind, 0o644, now)).unwrap();
        },
        |w, d| made_there(w, d, "n", Kind::Dir),
        &["+n/", "+n-T Fifo"],
        &["d/n: made here and there (n-T)"],
    ),
    (
        "renamed here to a name made there",
        |w, d| rename(w, d, "f", "n"),
        |w, d| there(w, d, "n", b"theirs"),
        &["-f=old", "+n=theirs", "+n-T=old"],
        &["d/n: renamed here, the name was taken there (n-T)"],
    ),
    (
        "renamed here to a name made there, and the old name used again",
        |w, d| {
            rename(w, d, "f", "n");
            write(w, d, "f", b"ours", true);
        },
        |w, d| there(w, d, "n", b"theirs"),
        &["-f=old", "+f-T=ours", "+n=theirs", "+n-T=old"],
        &["d/n: renamed here, the name was taken there (n-T)", "d/f: made here and there (f-T)"],
    ),
    (
        "renamed here, changed there",
        |w, d| rename(w, d, "f", "n"),
        |w, d| there(w, d, "f", b"theirs"),
        &["-f=old", "+n=theirs"],
        &[],
    ),
    (
        "renamed on both sides",
        |w, d| rename(w, d, "f", "ours"),
        |w, d| moved_there(w, d, "f", "theirs"),
        &["-f=old", "+theirs=old"],
        &["d/f: renamed here, renamed or removed there: theirs is kept"],
    ),
    (
        "renamed here, removed there",
        |w, d| rename(w, d, "f", "n"),
        |w, d| gone(w, d, "f"),
        &["-f=old"],
        &["d/f: renamed here, removed there"],
    ),
    (
        "removed here, renamed there",
        |w, d| remove(w, d, "f"),
        |w, d| moved_there(w, d, "f", "n"),
        &["-f=old", "+n=old"],
        &[],
    ),
    (
        "linked here to a name made there",
        |w, d| link(w, d, "f", "n"),
        |w, d| there(w, d, "n", b"theirs"),
        &["+n=theirs", "+n-T=old"],
        &["d/n: linked here, the name was taken there (n-T)"],
    ),
    (
        "linked here, removed there",
        |w, d| link(w, d, "f", "n"),
        |w, d| gone(w, d, "f"),
        &["-f=old"],
        &["d/n: linked here, removed there"],
    ),
    (
        "linked here, changed there",
        |w, d| link(w, d, "f", "n"),
        |w, d| there(w, d, "f", b"theirs"),
        &["-f=old", "+f=theirs", "+n=theirs"],
        &[],
    ),
    (
        "linked and removed here, changed there",
        |w, d| {
            link(w, d, "f", "n");
            remove(w, d, "f");
        },
        |w, d| there(w, d, "f", b"theirs"),
        &["-f=old", "+n=theirs"],
        &[],
    ),
];

const DIRECTORIES: &[Row] = &[
    (
        "made on both sides",
        |w, d| {
            mkdir(w, d, "n");
            write(w, d, "n/both", b"ours", true);
            write(w, d, "n/mine", b"ours", true);
        },
        |w, d| {
            made_there(w, d, "n", Kind::Dir);
            there(w, d, "n/both", b"theirs");
            there(w, d, "n/his", b"theirs");
        },
        &["+n/", "+n/both=theirs", "+n/both-T=ours", "+n/his=theirs", "+n/mine=ours"],
        &["d/n/both: made here and there (both-T)"],
    ),
    (
        "made here, a file there",
        |w, d| {
            mkdir(w, d, "n");
            write(w, d, "n/mine", b"ours", true);
        },
        |w, d| there(w, d, "n", b"theirs"),
        &["+n=theirs", "+n-T/", "+n-T/mine=ours"],
        &["d/n: made here and there (n-T)"],
    ),
    (
        "made here, renamed to the same name there",
        |w, d| {
            mkdir(w, d, "n");
            write(w, d, "n/mine", b"ours", true);
        },
        |w, d| moved_there(w, d, "s", "n"),
        &["-s/", "-s/a=old", "-s/u/", "+n/", "+n/a=old", "+n/mine=ours", "+n/u/"],
        &[],
    ),
    (
        "removed here, filled there",
        |w, d| {
            remove(w, d, "s/a");
            rmdir(w, d, "s/u");
            rmdir(w, d, "s");
        },
        |w, d| there(w, d, "s/n", b"theirs"),
        &["-s/a=old", "-s/u/", "+s/n=theirs"],
        &["d/s: removed here, filled there: theirs is kept"],
    ),
    (
        "filled here, removed there",
        |w, d| {
            write(w, d, "s/n", b"ours", true);
            mkdir(w, d, "s/u/deep");
            write(w, d, "s/u/deep/n", b"ours", true);
        },
        removed_there,
        &[
            "-s/",
            "-s/a=old",
            "-s/u/",
            "+s-T/",
            "+s-T/n=ours",
            "+s-T/u/",
            "+s-T/u/deep/",
            "+s-T/u/deep/n=ours",
        ],
        &["d/s: filled here, removed there (s-T)"],
    ),
    (
        "a file in it changed here, all of it removed there",
        |w, d| write(w, d, "s/a", b"ours", false),
        removed_there,
        &["-s/", "-s/a=old", "-s/u/", "+s-T/", "+s-T/a=ours"],
        &["d/s: filled here, removed there (s-T)"],
    ),
    (
        "something moved into it here, all of it removed there",
        |w, d| rename(w, d, "f", "s/u/f"),
        removed_there,
        &["-f=old", "-s/", "-s/a=old", "-s/u/", "+s-T/", "+s-T/u/", "+s-T/u/f=old"],
        &["d/s: filled here, removed there (s-T)"],
    ),
    (
        "filled and renamed here, removed there and made anew",
        |w, d| {
            write(w, d, "s/n", b"ours", true);
            rename(w, d, "s", "r");
        },
        |w, d| {
            removed_there(w, d);
            made_there(w, d, "r", Kind::Dir);
        },
        &["-s/", "-s/a=old", "-s/u/", "+r/", "+r-T/", "+r-T/n=ours"],
        &["d/s: filled here, removed there (s-T)", "d/r: renamed here, the name was taken there (r-T)"],
    ),
    (
        "filled, emptied and removed here, removed there",
        |w, d| {
            write(w, d, "t/n", b"ours", true);
            rename(w, d, "t/n", "n");
            rmdir(w, d, "t");
        },
        |w, d| gone(w, d, "t"),
        &["-t/", "+n=ours"],
        &["d/t: filled here, removed there (t-T)"],
    ),
    (
        "emptied here and removed, removed there",
        |w, d| {
            remove(w, d, "s/a");
            rmdir(w, d, "s/u");
            rmdir(w, d, "s");
        },
        removed_there,
        &["-s/", "-s/a=old", "-s/u/"],
        &[],
    ),
    (
        "renamed here, filled there",
        |w, d| rename(w, d, "t", "r"),
        |w, d| there(w, d, "t/n", b"theirs"),
        &["-t/", "+r/", "+r/n=theirs"],
        &[],
    ),
    (
        "filled here, renamed there",
        |w, d| write(w, d, "t/n", b"ours", true),
        |w, d| moved_there(w, d, "t", "r"),
        &["-t/", "+r/", "+r/n=ours"],
        &[],
    ),
    (
        "moved here below what was moved below it there",
        |w, d| {
            rename(w, d, "s", "t/s");
            write(w, d, "t/s/n", b"ours", true);
        },
        |w, d| moved_there(w, d, "t", "s/u/t"),
        &["-t/", "+s/n=ours", "+s/u/t/"],
        &["d/s: moved here to below itself, as it was moved there: theirs is kept"],
    ),
    (
        "moved here to elsewhere than there",
        |w, d| rename(w, d, "s/u", "t/u"),
        |w, d| moved_there(w, d, "s/u", "v"),
        &["-s/u/", "+v/"],
        &["d/s/u: renamed here, renamed or removed there: theirs is kept"],
    ),
];
