//! Who may change a directory while others may still claim what they had of it before a restart.

use std::sync::Arc;

use holdfast_base::{CapSet, ClientId};
use holdfast_manager::{CapsOn, Unreclaimed};
use holdfast_state::{CapRequest, Recorded};
use holdfast_vfs::{Backend, FileKind, FsError, Name, NewNode, SetAttrs};

use crate::world::World;

/// Gives a client back the directory at the top, to itself.
fn has_back(w: &World, client: ClientId) {
    let backend: Arc<dyn Backend> = w.guarded.clone();
    let root = w.guarded.root().unwrap();
    let on = CapsOn { backend: &backend, handle: &root, kind: FileKind::Directory, file: None };
    let request = CapRequest {
        client,
        file: root.key(),
        want: CapSet::ALL_X,
        is_beside_writers: false,
        reclaim: Some(Recorded::Yes),
    };
    let granted = w.manager.acquire_caps(&request, &on, None).unwrap();
    assert!(granted.held.contains(CapSet::FILE_X));
}

#[test]
fn a_directory_is_changed_by_nobody_but_who_has_it_back_to_himself() {
    let w = World::new(0);
    let (holder, other) = (w.reclaiming("holder"), w.reclaiming("other"));
    for client in [holder, other] {
        w.manager.step(|engine, _| engine.caps_hello(client).unwrap()).unwrap();
        w.manager.step(|engine, _| engine.caps_reachable(client)).unwrap();
    }
    w.manager.await_reclaims(Unreclaimed::Capabilities);
    let (root, none) = (w.guarded.root().unwrap(), SetAttrs::default());
    let make = |by, name: &str| {
        let name = Name::new(name.as_bytes()).unwrap();
        w.guarded.make(&w.cx(Some(by)), &root, name, NewNode::Directory, &none).map(drop)
    };
    assert_eq!(make(other, "d"), Err(FsError::Delay), "the holder may have made it, and have still to tell");
    assert_eq!(make(holder, "d"), Err(FsError::Delay));
    has_back(&w, holder);
    assert_eq!(make(holder, "d"), Ok(()));
    assert_eq!(make(other, "e"), Err(FsError::Delay));
    w.manager.await_no_more_than(Unreclaimed::Nothing);
    assert_eq!(make(other, "e"), Err(FsError::Delay), "it is asked back first");
}
