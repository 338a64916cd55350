//! No bytes from the network make the programs panic, hang, or break the file system.

use holdfast_wire::mount3::MOUNT_PROGRAM;
use holdfast_wire::nfs3::{NFS3_PROGRAM, NfsStat3};
use proptest::prelude::*;

use crate::world::World;

/// Words that make something of the bytes: handles, small numbers, names.
fn word() -> impl Strategy<Value = Vec<u8>> {
    let handles = {
        let w = World::new();
        vec![w.root(), w.handle_at(b"/"), w.handle_at(b"/more/other")]
    };
    let opaque = |bytes: &[u8]| holdfast_xdr::to_bytes(&holdfast_wire::nfs3::Fh3(bytes));
    let handles: Vec<_> = handles.iter().map(|h| opaque(h)).collect();
    prop_oneof![
        4 => prop::sample::select(handles),
        2 => (0..4_u32).prop_map(|n| n.to_be_bytes().to_vec()),
        2 => prop::sample::select(vec!["a", "b", ".", "..", "a/b", ""]).prop_map(move |n| opaque(n.as_bytes())),
        1 => any::<u32>().prop_map(|n| n.to_be_bytes().to_vec()),
        1 => any::<u64>().prop_map(|n| n.to_be_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_calls_are_answered_and_leave_the_file_system_whole(
        calls in prop::collection::vec((any::<bool>(), 0..24_u32, prop::collection::vec(word(), 0..12)), 1..40),
        block_every in 0..3_u64,
    ) {
        let mut w = World::new();
        w.fs.block_every(block_every);
        for (is_mount, procedure, words) in calls {
            let program = if is_mount && procedure < 7 { MOUNT_PROGRAM } else { NFS3_PROGRAM };
            w.xid += 1;
            let results = w.raw(program, procedure, &words.concat());
            if let (NFS3_PROGRAM, 1.., Some(results)) = (program, procedure, results) {
                let head: [u8; 4] = results[..4].try_into().unwrap();
                prop_assert!(NfsStat3::from_u32(u32::from_be_bytes(head)).is_some());
            }
        }
        prop_assert_eq!(w.fs.check(), Ok(()));
        prop_assert_eq!(w.other.check(), Ok(()));
    }
}
