//! What recording costs a mutation: CPU time of creates and removals in a directory, with and without a ledger.
//! `cargo run --release -p holdfast-ledger --example cost -- DIR`

use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_backend_local::{LocalBackend, LocalOptions};
use holdfast_base::{ExportId, SessionId, SlotId};
use holdfast_journal::Config;
use holdfast_ledger::{Ledger, Mutation, Undertaking};
use holdfast_vfs::{
    AttrMask, Backend, Caller, CreateHow, CreateMode, Cx, FsResult, Handle, Name, RemoveKind, SetAttrs, Wait,
};

const FILES: u32 = 20_000;

/// Bytes of a reply to an OPEN with GETFH and GETATTR.
const REPLY: [u8; 320] = [0; 320];

struct World {
    backend: LocalBackend,
    root: Handle,
    caller: Caller,
}

impl World {
    fn run(&self, ledger: Option<&Arc<Ledger>>, n: u32, change: &Change) -> FsResult<()> {
        let slot = (SessionId([1; 16]), SlotId(n % 64));
        let mut undertaking = ledger.map(|ledger| Undertaking::on_slot(ledger, slot, n, u64::from(n)));
        let cx = Cx::new(&self.caller, Wait::Yes);
        let export = ExportId(1);
        let mutation = Mutation { backend: &self.backend, cx, export, record: undertaking.as_mut() };
        change(mutation, &self.root, Name::new(format!("file{n}").as_bytes())?)?;
        if let Some(undertaking) = undertaking {
            undertaking.finish(&REPLY);
            undertaking.seal();
        }
        Ok(())
    }
}

type Change = dyn Fn(Mutation<'_>, &Handle, Name<'_>) -> FsResult<()>;

fn create(m: Mutation<'_>, root: &Handle, name: Name<'_>) -> FsResult<()> {
    let set = SetAttrs { mode: Some(0o644), ..SetAttrs::default() };
    let how = CreateHow { mode: CreateMode::Guarded, set: &set, open: None, want: AttrMask::STAT };
    m.create(root, name, &how).map(drop)
}

fn remove(m: Mutation<'_>, root: &Handle, name: Name<'_>) -> FsResult<()> {
    m.remove(root, name, RemoveKind::NonDirectory).map(drop)
}

fn cpu_us() -> f64 {
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    usage.tv_sec as f64 * 1e6 + usage.tv_nsec as f64 / 1e3
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = dir.join(format!("holdfast-ledger-cost-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("files"))?;
    let outcome = measure(&dir);
    std::fs::remove_dir_all(&dir)?;
    outcome
}

fn measure(dir: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let backend = LocalBackend::open(&dir.join("files"), LocalOptions::new(dir.join("state")))?;
    let world = World { root: backend.root()?, backend, caller: Caller::root() };
    let (ledger, _) = Ledger::open(&dir.join("journal"), &Config::default(), &[])?;
    for (what, ledger) in [("warming up", None), ("without a ledger", None), ("with a ledger", Some(&ledger))]
    {
        for (op, change) in [("create", &create as &Change), ("remove", &remove)] {
            let before = cpu_us();
            (0..FILES).try_for_each(|n| world.run(ledger, n, change))?;
            println!("{what:18} {op}: {:.2} us of CPU", (cpu_us() - before) / f64::from(FILES));
        }
    }
    Ok(())
}
