//! What is kept no longer for want of room, over a real mount. Needs root and `/dev/fuse`.

mod by_name;
mod memory;

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdfast_fuse::{Config, MountOptions, Session, Unmount};
use holdfast_volume::cache::{self, Fh, Forget, Settings};
use holdfast_volume::{Cancel, Invalidate, There, Volume, VolumeOptions};
use parking_lot::Mutex;

use super::Translation;
use crate::kernel_side::KernelSide;
use by_name::truncate;
use memory::Memory;

/// The kernel, which is given files' data when it is let.
struct Gate {
    kernel: KernelSide,
    /// What a file holds that is not let through.
    shut_for: Mutex<Option<Vec<u8>>>,
    /// How many such files have come to it.
    came: AtomicU64,
    /// So long it takes for each.
    pause: Duration,
}

impl Invalidate for Gate {
    fn forget(&self, what: &Forget) -> bool {
        if let Forget::Store(_, whole) = what {
            let is_shut = || self.shut_for.lock().as_ref().is_some_and(|held| whole.data == *held);
            self.came.fetch_add(u64::from(is_shut()), Ordering::SeqCst);
            wait_for(|| !is_shut());
            std::thread::sleep(self.pause);
        }
        self.kernel.forget(what)
    }

    fn forget_names(&self, dirs: &[cache::NodeId]) {
        self.kernel.forget_names(dirs);
    }
}

struct Stage {
    server: Arc<Memory>,
    volume: Volume,
    gate: Arc<Gate>,
    session: Session,
    folder: tempfile::TempDir,
}

impl Stage {
    /// A mount that keeps so many bytes of small files, and takes so long to store one.
    fn keeping(clean_bytes_max: usize, pause: Duration) -> Option<Self> {
        if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
            eprintln!("not run: it mounts, which needs root and /dev/fuse");
            return None;
        }
        let server = Arc::new(Memory::default());
        let settings = Settings { clean_bytes_max, pooled_max: 0, ..Settings::full() };
        let options = VolumeOptions { settings, flushers: 1, patience: None };
        let volume = Volume::start(&memory::root(), Arc::clone(&server) as _, &options).unwrap();
        let files = Arc::new(Translation::new(volume.clone(), (false, There::Server), false));
        let folder = tempfile::tempdir().unwrap();
        let config = Config { threads_max: THREADS, readers: (1, 1), ..Config::default() };
        let session = Session::mount(files, folder.path(), &MountOptions::new("memory:/"), &config).unwrap();
        let gate = Arc::new(Gate {
            kernel: KernelSide::new(session.notifier()),
            shut_for: Mutex::default(),
            came: AtomicU64::new(0),
            pause,
        });
        let told: Arc<dyn Invalidate> = Arc::clone(&gate) as _;
        volume.invalidate_by(&told).unwrap();
        let stage = Self { server, volume, gate, session, folder };
        fs::create_dir(stage.folder.path().join("d")).unwrap();
        Some(stage)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("d").join(name)
    }

    /// READs of the kernel.
    fn asked(&self) -> u64 {
        let reads = self.volume.stats().reads;
        reads.hits + reads.misses
    }

    fn stored(&self) -> u64 {
        self.volume.stats().stores
    }

    /// Until nobody has anything open that he may write: closes are told after close(2) has returned.
    fn is_closed(&self) -> bool {
        wait_for(|| (0..1000).all(|fh| !self.volume.may_write(Fh(fh))))
    }

    /// A file that holds this and is at the gate, and how many operations have waited by then.
    fn storing(&self, contents: &[u8]) -> (PathBuf, u64) {
        let came = self.gate.came.load(Ordering::SeqCst);
        let file = self.path(&format!("file {came}"));
        *self.gate.shut_for.lock() = Some(contents.to_vec());
        fs::write(&file, contents).unwrap();
        assert!(self.is_closed());
        self.volume.sync(&Cancel::new()).unwrap();
        assert!(wait_for(|| self.gate.came.load(Ordering::SeqCst) > came), "{:?}", self.volume.stats());
        (file, self.volume.stats().waited)
    }

    fn let_through(&self) {
        *self.gate.shut_for.lock() = None;
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.let_through();
        let until = Instant::now() + Duration::from_secs(20);
        while self.session.unmount(Unmount::Plain).is_err() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.session.wait_for(Duration::from_secs(20));
        self.volume.close();
    }
}

/// Few enough that all of them wait.
const THREADS: usize = 4;

const CONTENTS: &[u8] = &[b'x'; 10_000];

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % sides
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let (length, byte) = (1 + self.roll(most), self.roll(256));
        (0..length).map(|at| (byte + at / 100) as u8).collect()
    }
}

fn wait_for(what: impl Fn() -> bool) -> bool {
    let until = Instant::now() + Duration::from_secs(20);
    while !what() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    what()
}

#[test]
fn what_was_written_and_goes_to_make_room_is_read_from_the_kernels_pages() {
    let Some(stage) = Stage::keeping(25_000, Duration::ZERO) else { return };
    let contents = [vec![b'a'; 10_000], vec![b'b'; 5], vec![b'c'; 3 * 4096]];
    for (n, data) in contents.iter().enumerate() {
        fs::write(stage.path(&n.to_string()), data).unwrap();
    }
    assert!(stage.is_closed());
    stage.volume.sync(&Cancel::new()).unwrap();
    assert_eq!(stage.stored(), 0, "there is room");
    fs::write(stage.path("last"), vec![b'd'; 24_000]).unwrap();
    stage.volume.sync(&Cancel::new()).unwrap();
    assert!(wait_for(|| stage.stored() == 3), "{:?}", stage.volume.stats());
    let asked = stage.asked();
    for (n, data) in contents.iter().enumerate() {
        assert!(fs::read(stage.path(&n.to_string())).unwrap() == *data, "{n}");
    }
    assert_eq!(stage.asked(), asked, "the kernel has all of them");
    assert_eq!(stage.server.reads.load(Ordering::SeqCst), 0);
}

#[test]
fn what_was_written_is_read_with_no_question_of_the_kernels() {
    let Some(stage) = Stage::keeping(100_000, Duration::ZERO) else { return };
    let contents = [vec![b'a'; 10_000], vec![b'b'; 5], vec![b'c'; 3 * 4096]];
    for (n, data) in contents.iter().enumerate() {
        fs::write(stage.path(&n.to_string()), data).unwrap();
    }
    assert!(stage.is_closed());
    stage.volume.sync(&Cancel::new()).unwrap();
    let asked = stage.asked();
    for round in [1, 2] {
        for (n, data) in contents.iter().enumerate() {
            assert!(fs::read(stage.path(&n.to_string())).unwrap() == *data, "{n}");
        }
        assert_eq!(stage.asked(), asked, "in round {round}");
        assert_eq!(stage.stored(), 3, "each once");
    }
}

/// Who has it open to be read holds its pages locked until he is answered, by a thread that may wait for the store by then.
#[test]
fn a_store_ends_though_all_threads_wait_for_it_and_somebody_reads_the_file() {
    let Some(stage) = Stage::keeping(0, Duration::ZERO) else { return };
    let (file, waited) = stage.storing(CONTENTS);
    let (has_opened, may_read) = (AtomicBool::new(false), AtomicBool::new(false));
    let (file, has_opened, may_read) = (&*file, &has_opened, &may_read);
    std::thread::scope(|scope| {
        let reading = scope.spawn(move || {
            let file = File::open(file).unwrap();
            has_opened.store(true, Ordering::SeqCst);
            wait_for(|| may_read.load(Ordering::SeqCst));
            let mut data = vec![0; CONTENTS.len()];
            file.read_exact_at(&mut data, 0).map(|()| data)
        });
        wait_for(|| has_opened.load(Ordering::SeqCst) || stage.volume.stats().waited > waited);
        let open = || OpenOptions::new().write(true).open(file).map(drop);
        let opening: Vec<_> = (0..2 * THREADS).map(|_| scope.spawn(open)).collect();
        let most = waited + THREADS as u64 - 1;
        assert!(wait_for(|| stage.volume.stats().waited == most), "{:?}", stage.volume.stats());
        may_read.store(true, Ordering::SeqCst);
        if has_opened.load(Ordering::SeqCst) {
            // So that it is being read when it is stored, if that may be.
            std::thread::sleep(Duration::from_millis(100));
        }
        stage.let_through();
        let is_over = wait_for(|| reading.is_finished() && opening.iter().all(|one| one.is_finished()));
        if !is_over {
            let _ = stage.session.unmount(Unmount::Force);
        }
        assert!(is_over, "they wait for each other");
        assert!(reading.join().unwrap().unwrap() == CONTENTS);
        opening.into_iter().for_each(|one| one.join().unwrap().unwrap());
    });
    assert_eq!(stage.stored(), 1);
}

#[test]
fn who_is_killed_while_he_waits_for_a_store_ends_at_once() {
    let Some(stage) = Stage::keeping(0, Duration::ZERO) else { return };
    let (file, waited) = stage.storing(CONTENTS);
    let mut opening = Command::new("sh");
    opening.args(["-c", ": > \"$1\"", "sh"]).arg(&file).stderr(Stdio::null());
    let mut opening = opening.spawn().unwrap();
    assert!(wait_for(|| stage.volume.stats().waited > waited), "it opens the file to empty it");
    opening.kill().unwrap();
    let ended = opening.wait().unwrap();
    assert!(!ended.success());
    assert!(stage.gate.shut_for.lock().is_some() && stage.stored() == 0);
    stage.let_through();
    assert!(wait_for(|| stage.stored() == 1));
    assert!(fs::read(&file).unwrap() == CONTENTS, "nothing was done");
}

/// Ways to change a file.
const WAYS: u64 = 6;

/// One change of a file, and the same of what it is to hold.
fn change(path: &Path, holds: &mut Vec<u8>, (way, dice): (u64, &mut Dice)) -> &'static str {
    let data = dice.bytes(9000);
    match way {
        0 => {
            // Opened to be emptied.
            fs::write(path, &data).unwrap();
            *holds = data;
            "written anew"
        }
        1 => {
            let more = &data[..data.len().min(900)];
            OpenOptions::new().append(true).open(path).unwrap().write_all(more).unwrap();
            holds.extend_from_slice(more);
            "appended to"
        }
        2 => {
            let at = dice.roll(holds.len() as u64 + 1);
            let file = OpenOptions::new().write(true).open(path).unwrap();
            file.write_all_at(&data, at).unwrap();
            let at = usize::try_from(at).unwrap();
            holds.resize(holds.len().max(at + data.len()), 0);
            holds[at..at + data.len()].copy_from_slice(&data);
            "written in its midst"
        }
        3 => {
            let size = dice.roll(12_000);
            truncate(path, size).unwrap();
            holds.resize(usize::try_from(size).unwrap(), 0);
            "cut off by its name"
        }
        4 => {
            let size = dice.roll(12_000);
            OpenOptions::new().write(true).open(path).unwrap().set_len(size).unwrap();
            holds.resize(usize::try_from(size).unwrap(), 0);
            "cut off by an open"
        }
        _ => {
            drop(OpenOptions::new().read(true).custom_flags(libc::O_TRUNC).open(path).unwrap());
            holds.clear();
            "emptied by who reads it"
        }
    }
}

#[test]
fn what_was_changed_while_it_was_being_stored_is_what_it_was_changed_to() {
    let Some(stage) = Stage::keeping(0, Duration::ZERO) else { return };
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for round in 0..10 * WAYS {
        let mut holds = dice.bytes(9000);
        let (path, waited) = stage.storing(&holds);
        let how = std::thread::scope(|scope| {
            let changing = scope.spawn(|| change(&path, &mut holds, (round % WAYS, &mut dice)));
            wait_for(|| stage.volume.stats().waited > waited || changing.is_finished());
            stage.let_through();
            changing.join().unwrap()
        });
        let found = fs::read(&path).unwrap();
        assert!(found == holds, "in round {round} {how}: {} bytes, not {}", found.len(), holds.len());
    }
}

/// Changes files that are sent, and stored, at any moment, and looks at each.
fn change_them(stage: &Stage, who: u64) {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ ((who + 1) << 7));
    let mut files: Vec<_> = (0..8).map(|n| (stage.path(&format!("{who}-{n}")), dice.bytes(9000))).collect();
    files.iter().for_each(|(path, holds)| fs::write(path, holds).unwrap());
    for round in 0..100 {
        let (path, holds) = &mut files[usize::try_from(dice.roll(8)).unwrap()];
        let mut changed = |dice: &mut Dice| change(path, holds, (dice.roll(WAYS), dice));
        let first = changed(&mut dice);
        // Until it is sent, or stored.
        std::thread::sleep(Duration::from_micros(dice.roll(1500)));
        let second = if dice.roll(3) > 0 { changed(&mut dice) } else { "left alone" };
        let found = fs::read(&*path).unwrap();
        assert!(found == *holds, "{path:?} in round {round}: {first}, then {second}; {} bytes", found.len());
    }
    for (path, holds) in files {
        assert!(fs::read(&path).unwrap() == holds, "{path:?} at the end");
    }
}

#[test]
fn whatever_is_changed_meanwhile_is_what_it_was_changed_to() {
    let Some(stage) = Stage::keeping(8000, Duration::from_micros(500)) else { return };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Whatever was written is sent at once, and goes at once.
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                stage.volume.sync(&Cancel::new()).unwrap();
                std::thread::sleep(Duration::from_micros(50));
            }
        });
        let stage = &stage;
        let changing: Vec<_> = (0..3).map(|who| scope.spawn(move || change_them(stage, who))).collect();
        let done: Vec<_> = changing.into_iter().map(|changing| changing.join()).collect();
        is_over.store(true, Ordering::SeqCst);
        done.into_iter().for_each(|done| done.unwrap());
    });
}
