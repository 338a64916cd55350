//! Operations at random.

use holdfast_cache::RenameMode;
use proptest::prelude::*;

use super::Op;

/// So many cases, or as many as `CACHE_CASES` says.
pub fn config(cases: u32) -> ProptestConfig {
    let wanted = std::env::var("CACHE_CASES").ok().and_then(|n| n.parse().ok());
    ProptestConfig {
        cases: wanted.unwrap_or(cases),
        max_shrink_iters: 20_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// The same, and files without names.
pub fn op_or_nameless() -> impl Strategy<Value = Op> {
    let p = || 0..u8::try_from(super::ops::PATHS.len()).unwrap();
    prop_oneof![
        20 => op(),
        2 => (p(), 0..3_u8).prop_map(|(path, slot)| Op::Nameless { path, slot }),
        3 => (0..3_u8, p()).prop_map(|(slot, to)| Op::Name { slot, to }),
    ]
}

pub fn op() -> impl Strategy<Value = Op> {
    let p = || 0..u8::try_from(super::ops::PATHS.len()).unwrap();
    let s = || 0..3_u8;
    let mode = prop_oneof![
        6 => Just(RenameMode::Replace),
        1 => Just(RenameMode::NoReplace),
        1 => Just(RenameMode::Exchange)
    ];
    prop_oneof![
        8 => (p(), any::<[bool; 3]>(), s()).prop_map(|(path, [exclusive, truncate, append], slot)| Op::Create {
            path, exclusive: exclusive && truncate, truncate, append, slot
        }),
        4 => (p(), any::<bool>(), any::<bool>(), s())
            .prop_map(|(path, truncate, write, slot)| Op::Open { path, truncate, write, slot }),
        8 => (s(), any::<u8>(), 0..90_u8, any::<u8>())
            .prop_map(|(slot, offset, len, byte)| Op::Write { slot, offset, len, byte }),
        6 => (s(), any::<u8>(), any::<u8>()).prop_map(|(slot, offset, len)| Op::Read { slot, offset, len }),
        6 => s().prop_map(|slot| Op::Close { slot }),
        8 => p().prop_map(|path| Op::Stat { path }),
        3 => (p(), any::<u8>()).prop_map(|(path, size)| Op::Truncate { path, size }),
        3 => (p(), any::<u8>()).prop_map(|(path, mode)| Op::Chmod { path, mode }),
        5 => p().prop_map(|path| Op::Mkdir { path }),
        3 => p().prop_map(|path| Op::Rmdir { path }),
        5 => p().prop_map(|path| Op::Unlink { path }),
        5 => (p(), p(), mode).prop_map(|(from, to, mode)| Op::Rename { from, to, mode }),
        2 => (p(), p()).prop_map(|(from, to)| Op::Link { from, to }),
        2 => p().prop_map(|path| Op::Symlink { path }),
        1 => p().prop_map(|path| Op::Readlink { path }),
        4 => (p(), any::<bool>()).prop_map(|(path, plus)| Op::Readdir { path, plus }),
        1 => (p(), any::<u8>()).prop_map(|(path, value)| Op::SetXattr { path, value }),
        1 => p().prop_map(|path| Op::GetXattr { path }),
        1 => s().prop_map(|slot| Op::Fsync { slot }),
        1 => Just(Op::Sync),
        4 => (0..6000_u16).prop_map(|ms| Op::Pause { ms }),
    ]
}
