//! The corpus to begin with, made by hand here rather than found: small inputs that reach far.

use holdfast_wire::nfs3::{NFS_V3, NFS3_PROGRAM};
use holdfast_xdr::Writer;

/// A target's name, what it runs, and its seeds by name.
pub type Target = (&'static str, fn(&[u8]), Vec<(String, Vec<u8>)>);

/// All targets.
#[must_use]
pub fn targets() -> Vec<Target> {
    vec![
        ("rpc_record", crate::rpc_record::run, records()),
        ("rpc_call", crate::rpc_call::run, calls()),
        ("nfs3_call", crate::nfs3_call::run, steps()),
        ("nfs4_compound", crate::nfs4_compound::run, steps()),
        ("nlm_call", crate::nlm_call::run, steps()),
        ("caps_call", crate::caps_call::run, steps()),
        ("state_ops", crate::state_ops::run, steps()),
        ("xdr_roundtrip", crate::xdr_roundtrip::run, values()),
    ]
}

/// Where `FUZZ_SEEDS` names a folder, writes the seeds of a target there, and ends: nothing else has to be built for them.
///
/// # Panics
/// When they cannot be written.
pub fn write_if_asked(target: &str) {
    let Some(folder) = std::env::var_os("FUZZ_SEEDS") else { return };
    for (_, _, seeds) in targets().into_iter().filter(|(name, ..)| *name == target) {
        for (name, bytes) in seeds {
            let path = std::path::Path::new(&folder).join(name);
            std::fs::write(&path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
    }
    std::process::exit(0);
}

fn named(name: &str, bytes: Vec<u8>) -> (String, Vec<u8>) {
    (format!("seed-{name}"), bytes)
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_be_bytes()).collect()
}

fn records() -> Vec<(String, Vec<u8>)> {
    const LAST: u32 = 1 << 31;
    let mut many = words(&[3]);
    (0..300).for_each(|_| many.extend(words(&[1, 0x6161_6161]).into_iter().take(5)));
    vec![
        named("one", words(&[1, LAST | 8, 1, 2])),
        named("fragments", words(&[2, 4, 1, 0, 4, 2, LAST, LAST | 4, 3])),
        named("too-many-fragments", many),
        named("four-gibibytes", words(&[5, u32::MAX, 1, 2, 3])),
        named("half", words(&[6, LAST | 100, 1, 2])),
        named("empty", words(&[7, LAST, LAST, LAST])),
    ]
}

/// A call's header as far as the arguments.
fn call(program: u32, version: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    let mut w = Writer::new();
    for word in [7, 0, 2, program, version, procedure, 1, 20, 0, 0, 0, 0, 0, 0, 0] {
        w.u32(word);
    }
    w.put(args);
    let record = w.into_vec();
    let mut framed = (record.len() as u16).to_be_bytes().to_vec();
    framed.extend(record);
    framed
}

fn calls() -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for procedure in 0..23 {
        let args = words(&[12, 0x0101_0001, 0, 0, 1, 0x6100_0000, 0, 0, 0, 0, 0, 0]);
        all.push(named(&format!("nfs3-{procedure}"), call(NFS3_PROGRAM, NFS_V3, procedure, &args)));
    }
    for procedure in 0..6 {
        let args = words(&[2, u32::from_be_bytes(*b"/s\0\0")]);
        all.push(named(&format!("mount-{procedure}"), call(100_005, 3, procedure, &args)));
    }
    for minor in 0..3 {
        let args = words(&[0, minor, 2, 24, 10]);
        all.push(named(&format!("compound-{minor}"), call(100_003, 4, 1, &args)));
    }
    all.push(named("other-version", call(100_003, 9, 1, &[])));
    all.push(named("other-program", call(100_021, 4, 1, &[])));
    all
}

/// Bytes that the structured targets turn into decisions: runs of ramps, so that each choice is met.
fn steps() -> Vec<(String, Vec<u8>)> {
    let ramp =
        |n: u8, by: u8| (0..600_u16).map(|i| (i as u8).wrapping_mul(by).wrapping_add(n)).collect::<Vec<_>>();
    let mut all = vec![named("zeros", vec![0; 200]), named("ones", vec![1; 400])];
    for by in [1, 3, 7, 13, 31, 67, 101, 151] {
        all.push(named(&format!("ramp-{by}"), ramp(by / 2, by)));
    }
    all
}

fn values() -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for op in 3..76_u32 {
        let mut bytes = vec![9];
        for filler in 0..3 {
            bytes.extend(words(&[op]));
            bytes.extend(words(&[filler; 24]));
        }
        all.push(named(&format!("op-{op}"), bytes));
    }
    for kind in 0..9_u8 {
        for filler in 0..3 {
            let mut bytes = vec![kind];
            bytes.extend(words(&[filler; 30]));
            all.push(named(&format!("kind-{kind}-{filler}"), bytes));
        }
    }
    all
}
