//! Delegations: had, used without the server, recalled, and reclaimed.

use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_base::ByteRange;
use holdfast_client::{
    Attributes, Create, CreateMode, Cx, DelegationKind, HeldAttributes, Io, LockArgs, OpenArgs, OpenTarget,
    SetAttributes, WantDelegation, Whose,
};
use holdfast_wire::nfs4::{NfsStat4, StableHow4};

use super::world::{User, World};

/// Opens a name until a delegation comes with it: the server may think twice while others are near.
fn delegated(user: &User, name: &str, create: Option<CreateMode>) -> holdfast_client::OpenFile {
    let opened = user.open(name, create, WantDelegation::Write);
    assert_eq!(opened.delegation, Some(DelegationKind::Write), "no delegation came");
    opened.file
}

#[test]
fn another_client_causes_a_recall_and_waits_for_the_return() {
    let world = World::new();
    let (holder, other) = (world.client(), world.client());
    let file = delegated(&holder, "file", Some(CreateMode::Unchecked));
    let handle = file.handle().clone();
    let local = holder.client.open_local(holder.cx(), &handle, 3).unwrap();
    assert!(local.is_local());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let opened = other.open("file", None, WantDelegation::No);
            let read = other.client.read(other.cx(), Io::open(&opened.file), 0, 100).unwrap();
            assert_eq!(read.data, &b"flushed"[..], "opened before the holder had flushed");
        });
        holder.heard.wait("the recall", |said| !said.recalls.is_empty());
        let recall = holder.heard.state.lock().recalls[0].1;
        assert!(Some(recall.number) > holder.client.delegation_number(&handle), "{recall:?}");
        assert_eq!(holder.client.delegated(&handle), None, "relied on while it is recalled");
        let text = Bytes::from_static(b"flushed");
        holder.client.write(holder.cx(), Io::open(&local), 0, text, StableHow4::FileSync).unwrap();
        holder.client.return_delegation(holder.cx(), &handle).unwrap();
    });
    assert!(!local.is_local(), "the server knows the open now");
    assert_eq!(holder.client.delegation(&handle), None);
    let read = holder.client.read(holder.cx(), Io::open(&local), 0, 100).unwrap();
    assert_eq!(read.data, &b"flushed"[..]);
    holder.client.close(holder.cx(), &local).unwrap();
    holder.client.close(holder.cx(), &file).unwrap();
}

#[test]
fn the_server_asks_the_holder_for_size_and_change() {
    let world = World::new();
    let (holder, other) = (world.client(), world.client());
    let file = delegated(&holder, "file", Some(CreateMode::Unchecked));
    let change = holder.client.getattr(holder.cx(), file.handle(), Attributes::STAT).unwrap().change;
    let held = HeldAttributes { change: change.0 + 1, size: 4711, ..HeldAttributes::default() };
    holder.heard.state.lock().held = Some(held);
    let seen = other.client.lookup(other.cx(), &other.root, b"file", Attributes::STAT).unwrap();
    assert_eq!(seen.attributes.size, 4711);
    assert_eq!(holder.client.delegation(file.handle()), Some(DelegationKind::Write));
}

#[test]
fn a_delegation_is_reclaimed_after_a_restart_with_and_without_an_open() {
    let mut world = World::new();
    let holder = world.client();
    let with_open = delegated(&holder, "with", Some(CreateMode::Unchecked));
    let without = delegated(&holder, "without", Some(CreateMode::Unchecked));
    let handle = without.handle().clone();
    holder.client.close(holder.cx(), &without).unwrap();
    let local = holder.client.open_local(holder.cx(), &handle, 1).unwrap();
    world.server.kill().unwrap();
    world.server.restart().unwrap();
    holder.client.getattr(holder.cx(), &holder.root, Attributes::STAT).unwrap();
    for file in [with_open.handle(), &handle] {
        assert_eq!(holder.client.delegation(file), Some(DelegationKind::Write));
        holder.client.return_delegation(holder.cx(), file).unwrap();
    }
    assert!(holder.heard.state.lock().gone.is_empty());
    assert!(!local.is_local());
    holder.client.read(holder.cx(), Io::open(&local), 0, 1).unwrap();
}

#[test]
fn another_users_open_does_not_live_on_a_delegation() {
    let world = World::new();
    let holder = world.client();
    let file = delegated(&holder, "file", Some(CreateMode::Unchecked));
    let stranger = holdfast_client::Cred::sys(1234, 1234, &[]);
    let cx = Cx::new(&stranger, &holder.cancel);
    assert!(holder.client.open_local(cx, file.handle(), 1).is_none());
    let args = OpenArgs {
        target: OpenTarget::File(file.handle()),
        access: 2,
        deny: 0,
        create: None,
        delegation: WantDelegation::No,
        want: Attributes::STAT,
    };
    let refused = holder.client.open(cx, &args).unwrap_err();
    assert_eq!(refused.errno(), rustix::io::Errno::ACCESS);
}

#[test]
fn a_lock_makes_an_open_that_lives_on_a_delegation_known_to_the_server() {
    let world = World::new();
    let (holder, other) = (world.client(), world.client());
    let file = delegated(&holder, "file", Some(CreateMode::Unchecked));
    let local = holder.client.open_local(holder.cx(), file.handle(), 3).unwrap();
    let args = LockArgs { owner: b"me", range: ByteRange::ALL, exclusive: true };
    holder.client.lock(holder.cx(), &local, &args).unwrap();
    assert!(!local.is_local());
    let io = Io { file: local.handle(), open: Some(&local), owner: Whose::Of(b"me") };
    holder.client.write(holder.cx(), io, 0, Bytes::from_static(b"x"), StableHow4::Unstable).unwrap();
    holder.client.return_delegation(holder.cx(), local.handle()).unwrap();
    let theirs = other.make("file");
    let refused = other.client.lock(other.cx(), &theirs, &args).unwrap_err();
    assert_eq!(refused.status(), Some(NfsStat4::Denied));
    holder.client.close(holder.cx(), &local).unwrap();
    other.client.lock_wait(other.cx(), &theirs, &args).unwrap();
}

#[test]
fn who_is_let_in_to_write_alone_does_not_read_on_a_delegation() {
    let world = World::new();
    let holder = world.client();
    let set = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
    let args = OpenArgs {
        target: OpenTarget::Name(&holder.root, b"file"),
        access: 2,
        deny: 0,
        create: Some(Create { mode: CreateMode::Unchecked, set: &set }),
        delegation: WantDelegation::Write,
        want: Attributes::STAT,
    };
    let opened = holder.client.open(holder.cx(), &args).unwrap();
    assert_eq!(opened.delegation, Some(DelegationKind::Write));
    assert!(holder.client.open_local(holder.cx(), opened.file.handle(), 2).is_some());
    assert!(holder.client.open_local(holder.cx(), opened.file.handle(), 1).is_none());
}

/// The server puts off other opens of the holder until the delegation is back, which waits for the holder's opens.
#[test]
fn an_open_under_a_recalled_delegation_is_claimed_at_once() {
    let world = World::new();
    let (holder, other) = (world.client(), world.client());
    let file = delegated(&holder, "file", Some(CreateMode::Unchecked));
    let handle = file.handle().clone();
    assert!(holder.client.open_recalled(holder.cx(), &handle, 1).unwrap().is_none(), "nobody wants it back");
    std::thread::scope(|scope| {
        scope.spawn(|| other.open("file", None, WantDelegation::No));
        holder.heard.wait("the recall", |said| !said.recalls.is_empty());
        let started = Instant::now();
        let claimed = holder.client.open_recalled(holder.cx(), &handle, 1).unwrap().expect("nothing claimed");
        assert!(!claimed.is_local() && started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
        holder.client.return_delegation(holder.cx(), &handle).unwrap();
        holder.client.read(holder.cx(), Io::open(&claimed), 0, 1).unwrap();
    });
}

#[test]
fn the_delegation_of_a_directory_is_recalled_for_others_changes_and_not_for_ones_own() {
    let world = World::delegating_directories();
    let (holder, other) = (world.client(), world.client());
    let asked = holder.client.delegate_directory(holder.cx(), &holder.root, Attributes::STAT).unwrap();
    let (held, attributes) = asked.expect("no delegation of the directory");
    assert_eq!((held.kind, attributes.fileid != 0), (DelegationKind::Directory, true));
    holder.client.close(holder.cx(), &holder.make("own")).unwrap();
    assert_eq!(holder.client.delegated(&holder.root), Some(held), "recalled for the holder's own change");
    std::thread::scope(|scope| {
        scope.spawn(|| other.make("others"));
        holder.heard.wait("the recall", |said| said.recalls.len() == 1);
        let missing =
            holder.client.lookup(holder.cx(), &holder.root, b"others", Attributes::STAT).unwrap_err();
        assert_eq!(missing.status(), Some(NfsStat4::NoEnt), "made before the delegation was back");
        holder.client.return_delegation(holder.cx(), &holder.root).unwrap();
    });
}

/// RFC 8881 section 10.9.5.
#[test]
fn the_delegation_of_a_directory_is_lost_with_a_restart_and_that_is_told() {
    let mut world = World::delegating_directories();
    let holder = world.client();
    let (held, _) = holder
        .client
        .delegate_directory(holder.cx(), &holder.root, Attributes::STAT)
        .unwrap()
        .expect("no delegation of the directory");
    world.server.kill().unwrap();
    world.server.restart().unwrap();
    // Where the session outlived the restart, the answer only says that there was one.
    holder.client.getattr(holder.cx(), &holder.root, Attributes::STAT).unwrap();
    holder.heard.wait("the loss", |said| !said.gone.is_empty());
    assert_eq!(holder.client.delegated(&holder.root), None);
    let gone = holder.heard.state.lock().gone.clone();
    assert!(matches!(&gone[..], [(dir, number)] if *dir == holder.root && *number > held.number), "{gone:?}");
}
