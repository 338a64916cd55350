//! A well-behaved client beside a hostile one: how long it waits for its answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::child::Server;
use crate::client::{Client, NFS3, opaque, word};

/// The longest that half of the answers may take.
const HALF_WITHIN: Duration = Duration::from_millis(100);

/// The longest that any may take; the machine may be busy with other tests.
const ALL_WITHIN: Duration = Duration::from_secs(10);

/// A client that asks for attributes again and again, with a breath between.
pub(crate) struct Neighbour {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Duration>>,
}

impl Neighbour {
    pub(crate) fn of(server: &Server) -> Self {
        let address = server.address;
        let ends = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ends);
        Self { ends, thread: std::thread::spawn(move || ask_until(address, &until)) }
    }

    /// Ends it, and judges how it was served.
    pub(crate) fn was_served(self) {
        self.ends.store(true, Ordering::Relaxed);
        let mut waits = self.thread.join().expect("every call of a neighbour is answered");
        waits.sort();
        assert!(waits.len() >= 10, "a neighbour was answered {} times only", waits.len());
        let (half, all) = (waits[waits.len() / 2], waits[waits.len() - 1]);
        eprintln!("neighbour: {} calls, half within {half:?}, all within {all:?}", waits.len());
        assert!(half < HALF_WITHIN, "half of a neighbour's answers took up to {half:?}");
        assert!(all < ALL_WITHIN, "a neighbour's answer took {all:?}");
    }
}

fn ask_until(address: SocketAddr, until: &AtomicBool) -> Vec<Duration> {
    let mut client = Client::connect(address);
    let root = opaque(&client.mount(b"/mem"));
    let mut waits = Vec::new();
    // At least a few calls, however short the attack was.
    while waits.len() < 10 || !until.load(Ordering::Relaxed) {
        let asked = Instant::now();
        let results = client.ask(NFS3, 1, &root);
        waits.push(asked.elapsed());
        assert_eq!(word(&results, 0), 0, "GETATTR");
        std::thread::sleep(Duration::from_millis(5));
    }
    waits
}
