//! A mount of what lies above the exports: nothing is promised of that, and it is used nonetheless.

use crate::fixture::run_in;
use anyhow::{Result, ensure};
use holdfast_lab::{FsType, LoopFs, Mount, ServerUnderTest, Trial};

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::new("above::a_mount_of_the_root_reaches_all_exports", reaches_all)]
}

fn reaches_all() -> Result<()> {
    let filesystem = LoopFs::new(FsType::Xfs, 1 << 30)?;
    let (share, other) = (filesystem.path().join("share"), filesystem.path().join("other"));
    for dir in [&share, &other] {
        std::fs::create_dir(dir)?;
    }
    let another = format!("{}:/deep/other", other.display());
    let server = ServerUnderTest::builder(&share).arguments(&[&another]).start()?;
    let mount = Mount::new(server.port(), "/", "")?;
    let work = "ls . deep; echo one > share/f; mkdir deep/other/d; echo two > deep/other/d/f; mv deep/other/d/f deep/other/g; \
                cat share/f deep/other/g; mkdir here 2>/dev/null || echo refused; mv share/f deep/other/f && cat deep/other/f";
    let said = run_in(&mount.path(), work, &[])?;
    let expected = ".:\ndeep\nshare\n\ndeep:\nother\none\ntwo\nrefused\none\n";
    ensure!(said == expected, "{said}\n{}", mount.log());
    mount.sync()?;
    let there = run_in(&filesystem.path(), "cat other/f other/g; ls share other/d", &[])?;
    ensure!(there == "one\ntwo\nother/d:\n\nshare:\n", "{there}");
    mount.unmount(&[])
}
