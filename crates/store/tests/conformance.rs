//! Every store of this crate keeps the suite's rules, bare and through the decorator; and what only a file has.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use holdfast_store::suite::{self, Fault, Faulty};
use holdfast_store::{Batch, EmbeddedStore, MemoryStore, Store, StoreError};

#[test]
fn the_memory_store_keeps_the_rules() {
    suite::run(&|| Arc::new(MemoryStore::new()));
    suite::run(&|| Arc::new(Faulty::new(MemoryStore::new())));
}

#[test]
fn the_embedded_store_keeps_the_rules() {
    let dir = tempfile::tempdir().unwrap();
    let count = std::cell::Cell::new(0);
    suite::run(&|| {
        count.set(count.get() + 1);
        Arc::new(EmbeddedStore::open(&dir.path().join(count.get().to_string())).unwrap())
    });
}

#[test]
fn the_file_is_private_even_when_somebody_made_it_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    std::fs::write(&path, b"").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let _store = EmbeddedStore::open(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_second_server_is_told_the_file_and_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let first = EmbeddedStore::open(&path).unwrap();
    let error = EmbeddedStore::open(&path).err().unwrap();
    assert_eq!(error, StoreError::InUse { path: path.clone() });
    let text = error.to_string();
    assert!(text.contains(path.to_str().unwrap()) && text.contains("--state-dir"), "{text}");
    drop(first);
    EmbeddedStore::open(&path).unwrap();
}

#[test]
fn a_damaged_file_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    std::fs::write(&path, vec![0x5a; 100_000]).unwrap();
    let error = EmbeddedStore::open(&path).err().unwrap();
    assert!(matches!(error, StoreError::Open { .. }), "{error:?}");
    assert!(error.to_string().contains(path.to_str().unwrap()));
}

#[test]
fn what_was_stored_is_there_after_a_reopen_fences_included() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = EmbeddedStore::open(&path).unwrap();
    let old = store.fence(b"office").unwrap();
    store.put(b"k", b"v").unwrap();
    drop(store);
    let store = EmbeddedStore::open(&path).unwrap();
    assert_eq!(store.get(b"k"), Ok(Some(b"v".to_vec())));
    store.fence(b"office").unwrap();
    assert_eq!(store.transaction(&Batch::new().under(&old).delete(b"k")), Err(StoreError::Fenced));
}

#[test]
fn the_decorator_fails_before_or_after_the_effect() {
    let store = Faulty::new(MemoryStore::new());
    store.fail_nth(1, Fault::Fail);
    store.fail_nth(3, Fault::ApplyThenFail);
    assert!(matches!(store.put(b"a", b"1"), Err(StoreError::Io(_))));
    assert_eq!(store.get(b"a"), Ok(None));
    assert!(matches!(store.put(b"a", b"2"), Err(StoreError::Io(_))));
    assert_eq!(store.get(b"a"), Ok(Some(b"2".to_vec())));
    assert_eq!(store.calls(), 4);
}
