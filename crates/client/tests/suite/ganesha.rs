//! The same client against NFS-Ganesha, which is started without grace and without delegations, and has neither
//! extended attributes nor COPY here.

use bytes::Bytes;
use holdfast_base::ByteRange;
use holdfast_client::{
    Attributes, CreateKind, CreateMode, Error, Io, LockArgs, Options, SetAttributes, WantDelegation, Whose,
};
use holdfast_lab::server::Target;
use holdfast_wire::nfs4::{NfsStat4, StableHow4};

use super::relay::Relay;
use super::world::{User, World};

fn world() -> World {
    World::with(|builder| builder.target(Target::Ganesha))
}

#[test]
#[ignore = "needs NFS-Ganesha"]
fn files_directories_and_locks_work_on_ganesha() {
    let world = world();
    let user = world.client();
    let (client, cx) = (&user.client, user.cx());
    let set = SetAttributes { mode: Some(0o755), ..SetAttributes::default() };
    let dir = client.create(cx, (&user.root, b"dir"), CreateKind::Directory, &set, Attributes::STAT).unwrap();
    let file = user.open("file", Some(CreateMode::Exclusive), WantDelegation::Any);
    assert_eq!((file.attributes.mode, file.attributes.uid, file.delegation), (0o644, 0, None));
    let data = Bytes::from(vec![3; 3 << 20]);
    let written = client.write(cx, Io::open(&file.file), 0, data.clone(), StableHow4::Unstable).unwrap();
    assert_eq!(written.count, client.limits().max_write);
    assert_eq!(client.commit(cx, file.file.handle(), 0, 0).unwrap(), written.verifier);
    let read = client.read(cx, Io::open(&file.file), 0, 3 << 20).unwrap();
    assert!(!read.data.is_empty() && read.data == data[..read.data.len()]);
    let lock = |owner| LockArgs { owner, range: ByteRange::ALL, exclusive: true };
    client.lock(cx, &file.file, &lock(b"one")).unwrap();
    assert!(client.lock_test(cx, file.file.handle(), &lock(b"two")).unwrap().unwrap().is_own);
    client.unlock(cx.cancel, file.file.handle(), b"one", ByteRange::ALL).unwrap();
    client.lock(cx, &file.file, &lock(b"two")).unwrap();
    client.close(cx, &file.file).unwrap();
    client.rename(cx, (&user.root, b"file"), (&dir.handle, b"moved")).unwrap();
    let listing = client.readdir(cx, &dir.handle, (0, [0; 8]), 4096, Attributes::ENTRY).unwrap();
    assert_eq!(listing.entries.len(), 1);
    assert_eq!(listing.entries[0].attributes.handle.as_ref(), Some(file.file.handle()));
    client.remove(cx, &dir.handle, b"moved").unwrap();
    client.remove(cx, &user.root, b"dir").unwrap();
}

#[test]
#[ignore = "needs NFS-Ganesha"]
fn a_lost_answer_is_asked_for_again_and_ganesha_gives_it() {
    let world = world();
    let relay = Relay::to(&world.address());
    let user = User::connect(Options::new(vec![relay.address.to_string()]));
    let set = SetAttributes::default();
    for n in 0..5 {
        let name = format!("dir{n}");
        relay.lose_next_answer();
        let what = (&user.root, name.as_bytes());
        user.client.create(user.cx(), what, CreateKind::Directory, &set, Attributes::STAT).unwrap();
    }
    assert_eq!(relay.counts().1, 5);
}

#[test]
#[ignore = "needs NFS-Ganesha"]
fn a_killed_ganesha_loses_locks_which_is_told_and_files_stay_open() {
    let mut world = world();
    let user = world.client();
    let (client, cx) = (&user.client, user.cx());
    let file = user.make("file");
    client.lock(cx, &file, &LockArgs { owner: b"me", range: ByteRange::ALL, exclusive: true }).unwrap();
    world.server.kill().unwrap();
    world.server.restart().unwrap();
    // It has no grace: nothing can be reclaimed, all is opened anew.
    let data = Bytes::from_static(b"after");
    client.write(cx, Io::open(&file), 0, data, StableHow4::FileSync).unwrap();
    user.heard.wait("the loss of the lock", |said| said.lost.len() == 1);
    let io = Io { file: file.handle(), open: Some(&file), owner: Whose::Of(b"me") };
    assert_eq!(client.read(cx, io, 0, 5).unwrap_err(), Error::Lost);
    client.close(cx, &file).unwrap();
    let missing = client.lookup(cx, &user.root, b"missing", Attributes::STAT).unwrap_err();
    assert_eq!(missing.status(), Some(NfsStat4::NoEnt));
}
