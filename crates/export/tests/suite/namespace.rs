//! The tree that clients see: what is visible to whom, and which sets of exports make no tree.

use std::net::IpAddr;
use std::sync::Arc;

use holdfast_base::{ExportId, Timestamp};
use holdfast_export::{ClientRule, Export, ExportOptions, Namespace, NamespaceError, Object, Sealer};
use holdfast_vfs::FsError;
use holdfast_vfs::mem::{MemBackend, MemOptions};

fn export(path: &str, clients: &[&str]) -> Arc<Export> {
    let path: Vec<Vec<u8>> =
        path.split('/').filter(|c| !c.is_empty()).map(|c| c.as_bytes().to_vec()).collect();
    let mut options = MemOptions::deterministic();
    options.fsid.minor = u64::from(Namespace::derived_id(&path).0);
    Arc::new(Export {
        id: Namespace::derived_id(&path),
        path,
        backend: Arc::new(MemBackend::new(&options)),
        options: ExportOptions {
            clients: clients.iter().map(|c| c.parse().unwrap()).collect(),
            ..ExportOptions::default()
        },
    })
}

fn namespace(exports: Vec<Arc<Export>>) -> Result<Namespace, NamespaceError> {
    Namespace::new(Sealer::new([7; 16]), exports, Timestamp { seconds: 1_000, nanos: 0 })
}

fn peer(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn root_of(namespace: &Namespace) -> u64 {
    match namespace.root().unwrap() {
        Object::Pseudo(n) => n,
        Object::Export(..) => panic!("the root is an export"),
    }
}

fn names(namespace: &Namespace, dir: u64, peer: IpAddr) -> Vec<String> {
    let entries = namespace.entries(dir, peer).unwrap();
    entries.into_iter().map(|(name, _)| String::from_utf8(name).unwrap()).collect()
}

#[test]
fn exports_hang_below_pseudo_directories() {
    let tree =
        namespace(vec![export("/a/b", &["all"]), export("/a/c", &["all"]), export("/d", &["all"])]).unwrap();
    let anyone = peer("192.0.2.1");
    let root = root_of(&tree);
    assert_eq!(names(&tree, root, anyone), ["a", "d"]);
    let Object::Pseudo(a) = tree.lookup(root, b"a", anyone).unwrap() else { panic!("a is an export") };
    assert_eq!(names(&tree, a, anyone), ["b", "c"]);
    let Object::Export(b, _) = tree.lookup(a, b"b", anyone).unwrap() else { panic!("b is none") };
    assert_eq!(b.path_display(), "/a/b");
    assert!(tree.parent_of_export(&b).unwrap().is_same(&Object::Pseudo(a)));
    assert!(tree.parent(a).unwrap().is_same(&Object::Pseudo(root)));
    assert_eq!(tree.parent(root).unwrap_err(), FsError::NotFound);
    assert_eq!(tree.attrs(root).unwrap().nlink, 3);
}

#[test]
fn what_does_not_admit_a_host_is_invisible_to_it() {
    let tree = namespace(vec![export("/x/secret", &["10.0.0.0/8"]), export("/open", &["all"])]).unwrap();
    let root = root_of(&tree);
    assert_eq!(names(&tree, root, peer("192.0.2.1")), ["open"]);
    assert_eq!(tree.lookup(root, b"x", peer("192.0.2.1")).unwrap_err(), FsError::NotFound);
    assert_eq!(names(&tree, root, peer("10.1.1.1")), ["open", "x"]);
}

#[test]
fn an_export_may_be_the_root_and_is_then_alone() {
    let tree = namespace(vec![export("/", &["all"])]).unwrap();
    let Object::Export(all, _) = tree.root().unwrap() else { panic!("the root is a pseudo directory") };
    assert_eq!(all.path_bytes(), b"/");
    assert_eq!(tree.parent_of_export(&all).unwrap_err(), FsError::NotFound);
    let both = namespace(vec![export("/", &["all"]), export("/a", &["all"])]).map(|_| ());
    assert_eq!(both, Err(NamespaceError::Nested { outer: "/".into(), inner: "/a".into() }));
}

#[test]
fn exports_that_clients_could_not_tell_apart_are_refused() {
    let two = |a, b| namespace(vec![export(a, &[]), export(b, &[])]).map(|_| ());
    assert_eq!(two("/a", "/a"), Err(NamespaceError::SamePath("/a".into())));
    assert_eq!(
        two("/a", "/a/b/c"),
        Err(NamespaceError::Nested { outer: "/a".into(), inner: "/a/b/c".into() })
    );
    assert_eq!(two("/a", "/ab"), Ok(()));
}

#[test]
fn handles_of_an_export_that_is_gone_are_stale_and_come_back_with_it() {
    let (a, b) = (export("/a", &["all"]), export("/b", &["all"]));
    let tree = namespace(vec![a.clone(), b.clone()]).unwrap();
    let root = a.backend.root().unwrap();
    let sealed = tree.seal_in(&a, &root);
    assert!(tree.open(sealed.as_bytes()).unwrap().is_same(&Object::Export(a.clone(), root)));
    tree.replace(vec![b.clone()], Timestamp::default()).unwrap();
    assert_eq!(tree.open(sealed.as_bytes()).unwrap_err(), FsError::Stale);
    tree.replace(vec![a, b], Timestamp::default()).unwrap();
    assert!(tree.open(sealed.as_bytes()).is_ok());
    assert_eq!(tree.open(b"anything else").unwrap_err(), FsError::BadHandle);
}

#[test]
fn a_path_is_followed_to_its_export_and_what_is_left_is_told() {
    let tree = namespace(vec![export("/a/b", &["all"])]).unwrap();
    let (object, rest) = tree.resolve(b"/a//b/./c/d/", peer("::1")).unwrap();
    assert!(matches!(object, Object::Export(..)));
    assert_eq!(rest, [b"c".to_vec(), b"d".to_vec()]);
    let (object, rest) = tree.resolve(b"/a", peer("::1")).unwrap();
    assert!(matches!(object, Object::Pseudo(_)) && rest.is_empty());
    assert_eq!(tree.resolve(b"/z", peer("::1")).unwrap_err(), FsError::NotFound);
}

#[test]
fn high_ports_are_refused_where_the_export_says_so() {
    let mut picky = ExportOptions { clients: vec![ClientRule::All], ..ExportOptions::default() };
    picky.accepts_high_ports = false;
    let picky = Export {
        id: ExportId(1),
        path: vec![],
        backend: Arc::new(MemBackend::new(&MemOptions::deterministic())),
        options: picky,
    };
    assert!(picky.admits(peer("192.0.2.1"), 1023));
    assert!(!picky.admits(peer("192.0.2.1"), 1024));
}
