//! NULL, FSSTAT, FSINFO, PATHCONF.

use holdfast_base::limits;
use holdfast_wire::nfs3::*;

use crate::world::*;

#[test]
fn null_answers_nothing() {
    assert_eq!(World::new().call(Proc3::Null, &()), b"");
}

#[test]
fn fsstat_counts_what_is_used() {
    let mut w = World::new();
    let (root, f) = (w.root(), w.create("a"));
    w.write(&f, 0, &[1; 8192], StableHow::Unstable);
    let attrs = w.getattr(&root);
    let free = limits::MEM_BYTES_MAX - 8192;
    let expected = FsStat3Ok {
        obj_attributes: Some(attrs),
        tbytes: limits::MEM_BYTES_MAX,
        fbytes: free,
        abytes: free,
        tfiles: limits::MEM_OBJECTS_MAX,
        ffiles: limits::MEM_OBJECTS_MAX - 2,
        afiles: limits::MEM_OBJECTS_MAX - 2,
        invarsec: 0,
    };
    assert_eq!(decode::<FsStat3Res>(&w.call(Proc3::FsStat, &Fh3(&root))), Res3::Ok(expected));
}

#[test]
fn fsinfo_and_pathconf_tell_the_limits_of_exports_and_pseudo_directories() {
    let mut w = World::new();
    let io = limits::IO_BYTES_MAX as u32;
    for (fh, linkmax) in [(w.root(), limits::MEM_LINKS_MAX), (w.handle_at(b"/"), u32::MAX)] {
        let obj_attributes = Some(w.getattr(&fh));
        let info = FsInfo3Ok {
            obj_attributes,
            rtmax: io,
            rtpref: io,
            rtmult: 4096,
            wtmax: io,
            wtpref: io,
            wtmult: 4096,
            dtpref: io,
            maxfilesize: i64::MAX as u64,
            time_delta: NfsTime3 { seconds: 0, nseconds: 1 },
            properties: 0x1b,
        };
        assert_eq!(decode::<FsInfo3Res>(&w.call(Proc3::FsInfo, &Fh3(&fh))), Res3::Ok(info));
        let conf = PathConf3Ok {
            obj_attributes,
            linkmax,
            name_max: 255,
            no_trunc: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        };
        assert_eq!(decode::<PathConf3Res>(&w.call(Proc3::PathConf, &Fh3(&fh))), Res3::Ok(conf));
    }
    assert_eq!(status(&w.call(Proc3::FsInfo, &Fh3(b"nonsense"))), NfsStat3::BadHandle);
}
