use super::*;
use bytes::Bytes;
use holdfast_cache::Name;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

mod storing;

/// Names of directory 1 are kept as long as it is locked.
#[derive(Default)]
struct Kernel {
    is_locked: AtomicBool,
    all: Mutex<Vec<String>>,
    begun: AtomicU64,
    told: AtomicU64,
    /// How often it was said that something is done.
    words: AtomicU64,
    stored: AtomicU64,
}

impl Source for Kernel {
    fn begun(&self, number: u64) {
        self.begun.fetch_max(number, Ordering::SeqCst);
    }

    fn done(&self, number: u64) {
        assert!(self.begun.load(Ordering::SeqCst) >= number, "said before");
        assert!(self.told.swap(number, Ordering::SeqCst) < number, "in order");
        self.words.fetch_add(1, Ordering::SeqCst);
    }

    fn begin_store(&self, _: NodeId, whole: &Whole) -> bool {
        whole.number != OUTDATED
    }

    fn wait_for_stores(&self, _: NodeId) {}

    fn stored(&self, _: NodeId, is_taken: bool) {
        self.stored.fetch_add(u64::from(is_taken), Ordering::SeqCst);
    }
}

impl Invalidate for Kernel {
    fn forget(&self, what: &Forget) -> bool {
        while matches!(what, Forget::Entry(NodeId(1), _)) && self.is_locked.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.all.lock().push(format!("{what:?}"));
        !matches!(what, Forget::Store(NodeId(4), _))
    }

    fn forget_names(&self, dirs: &[NodeId]) {
        self.all.lock().push(format!("all names, {dirs:?}"));
    }
}

fn wait_for(what: impl Fn() -> bool) -> bool {
    let until = Instant::now() + Duration::from_secs(20);
    while !what() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    what()
}

/// Runs both threads beside a test.
fn with(kernel: &Kernel, test: impl FnOnce(&dyn Fn(&[Forget]) -> u64)) {
    let (forgets, last) = (Forgets::default(), AtomicU64::new(0));
    let add = |all: &[Forget]| {
        let number = |what: &Forget| {
            let number = last.fetch_add(1, Ordering::SeqCst) + 1;
            Invalidation { number, what: what.clone() }
        };
        forgets.add(all.iter().map(number).collect());
        last.load(Ordering::SeqCst)
    };
    std::thread::scope(|scope| {
        scope.spawn(|| forgets.work(kernel, kernel));
        scope.spawn(|| forgets.stand_in(kernel, kernel));
        // Also when it fails.
        let _end = End(&forgets, kernel);
        test(&add);
    });
}

struct End<'e>(&'e Forgets, &'e Kernel);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.1.is_locked.store(false, Ordering::SeqCst);
        self.0.end();
    }
}

fn entry(dir: u64, name: &str) -> Forget {
    Forget::Entry(NodeId(dir), Name::new(name.as_bytes()))
}

#[test]
fn a_name_that_is_not_let_go_of_holds_nothing_up() {
    let kernel = Kernel { is_locked: AtomicBool::new(true), ..Kernel::default() };
    with(&kernel, |add| {
        let told = |number| wait_for(|| kernel.told.load(Ordering::SeqCst) == number);
        let last =
            add(&[entry(1, "a"), entry(1, "b"), entry(2, "c"), Forget::Attrs(NodeId(3)), entry(1, "d")]);
        assert!(told(last));
        let last = add(&[entry(2, "e"), store(3, OUTDATED), store(3, 1)]);
        assert!(told(last), "as long as the first one waits");
        let all = std::mem::take(&mut *kernel.all.lock());
        let names = ["all names, [NodeId(1)]", "all names, [NodeId(1), NodeId(2)]", "all names, [NodeId(2)]"];
        assert_eq!([&all[0], &all[1], &all[4]], names);
        assert_eq!(all[2], format!("{:?}", Forget::Attrs(NodeId(3))));
        assert_eq!(all[5..], [format!("{:?}", store(3, 1))]);
        kernel.is_locked.store(false, Ordering::SeqCst);
        assert!(wait_for(|| !kernel.all.lock().is_empty()), "the first one has got through");
        // When it has said so, and gets a processor within the moment that it has for each.
        let is_one = || {
            let last = add(&[entry(2, "f")]);
            told(last) && kernel.all.lock().last() == Some(&format!("{:?}", entry(2, "f")))
        };
        assert!(wait_for(is_one), "one by one again");
    });
}

#[test]
fn attributes_that_follow_each_other_are_told_of_by_one_word() {
    let kernel = Kernel::default();
    with(&kernel, |add| {
        let mut all = vec![entry(2, "a")];
        all.extend((3..303).map(|node| Forget::Attrs(NodeId(node))));
        all.extend([entry(2, "b"), Forget::Attrs(NodeId(3))]);
        let last = add(&all);
        assert!(wait_for(|| kernel.told.load(Ordering::SeqCst) == last));
        let told: Vec<_> = all.iter().map(|what| format!("{what:?}")).collect();
        assert_eq!(*kernel.all.lock(), told, "each, in order");
        assert_eq!(
            kernel.words.load(Ordering::SeqCst),
            5,
            "a name, 256 and 44 of attributes, a name, and one more"
        );
    });
}

/// What was kept under this number is not what the file holds any more.
const OUTDATED: u64 = 0;

fn store(id: u64, number: u64) -> Forget {
    Forget::Store(NodeId(id), Whole { number, data: Bytes::from_static(b"data") })
}

#[test]
fn files_are_stored_in_their_order_by_one_word_but_for_those_that_may_not_be() {
    let kernel = Kernel::default();
    with(&kernel, |add| {
        let all = [
            Forget::Attrs(NodeId(2)),
            store(3, OUTDATED),
            store(3, 1),
            store(4, 2),
            store(5, OUTDATED),
            Forget::Data(NodeId(3)),
        ];
        let last = add(&all);
        assert!(wait_for(|| kernel.told.load(Ordering::SeqCst) == last));
        let told = [&all[0], &all[2], &all[3], &all[5]].map(|what| format!("{what:?}"));
        assert_eq!(*kernel.all.lock(), told);
        assert_eq!(kernel.stored.load(Ordering::SeqCst), 1, "the other it did not take");
        assert_eq!(kernel.words.load(Ordering::SeqCst), 3);
    });
}
