use std::sync::atomic::AtomicBool;
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};

use super::*;

fn crew_of(hands: usize) -> (Runtime, Arc<Crew>) {
    let runtime = Builder::new_multi_thread().worker_threads(hands).enable_all().build().unwrap();
    let crew = Crew::start(runtime.handle()).unwrap();
    wait_until(|| crew.state.lock().resting.len() == hands);
    (runtime, crew)
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(20), "it never is");
        std::thread::yield_now();
    }
}

/// Tasks that each keep a hand until so many do, and then count.
fn meet(crew: &Arc<Crew>, number: usize) -> Arc<AtomicUsize> {
    let (barrier, met) = (Arc::new(Barrier::new(number)), Arc::new(AtomicUsize::new(0)));
    for _ in 0..number {
        let (barrier, met) = (Arc::clone(&barrier), Arc::clone(&met));
        crew.spawn(async move {
            barrier.wait();
            met.fetch_add(1, Ordering::Relaxed);
        });
    }
    met
}

#[test]
fn one_hand_does_everything_and_as_many_as_were_called_do_not_wait_for_each_other() {
    let (_runtime, crew) = crew_of(4);
    let threads = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..50 {
        let threads = Arc::clone(&threads);
        crew.spawn(async move { threads.lock().push(std::thread::current().id()) });
        pass_time(&crew);
    }
    wait_until(|| threads.lock().len() == 50);
    assert_eq!(crew.state.lock().awake(), 0);
    (0..9).for_each(|_| crew.call_one());
    assert_eq!(crew.wanted(), 4);
    let met = meet(&crew, 4);
    wait_until(|| met.load(Ordering::Relaxed) == 4);
    (0..9).for_each(|_| crew.rest_one());
    assert!(crew.is_one());
}

/// A moment, in which no second hand is at work.
fn pass_time(crew: &Crew) {
    (0..20).for_each(|_| assert!(crew.state.lock().awake() <= 1));
}

#[test]
fn who_hangs_is_stood_in_for() {
    let (_runtime, crew) = crew_of(4);
    let met = meet(&crew, 4);
    wait_until(|| met.load(Ordering::Relaxed) == 4);
    wait_until(|| crew.is_one());
}

#[test]
fn who_was_lent_is_one_of_those_that_go_first() {
    let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let crew = Crew::new(runtime.handle(), 3);
    (0..3).for_each(|_| crew.lend_one());
    assert_eq!((crew.wanted(), crew.state.lock().lent), (3, 2), "there were no more");
    crew.rest_one();
    assert_eq!((crew.wanted(), crew.state.lock().lent), (2, 1));
}

/// Sends back what comes, and counts it.
async fn echo(mut stream: UnixStream, count: Arc<AtomicUsize>) {
    let mut word = [0; 4];
    while stream.read_exact(&mut word).await.is_ok() && stream.write_all(&word).await.is_ok() {
        if count.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) {
            pass().await;
        }
    }
}

#[test]
fn nothing_is_forgotten_while_hands_come_and_go() {
    let (runtime, crew) = crew_of(4);
    let pair = |count: &Arc<AtomicUsize>| {
        let (a, mut b) = UnixStream::pair().unwrap();
        crew.spawn(echo(a, Arc::clone(count)));
        let count = Arc::clone(count);
        crew.spawn(async move {
            b.write_all(&[0; 4]).await.unwrap();
            echo(b, count).await;
        });
    };
    let counts: Vec<_> = (0..4).map(|_| Arc::new(AtomicUsize::new(0))).collect();
    let inside = runtime.enter();
    counts.iter().for_each(pair);
    drop(inside);
    for _ in 0..200 {
        for _ in 0..50 {
            crew.call_one();
            crew.rest_one();
            std::thread::yield_now();
        }
        for count in &counts {
            let before = count.load(Ordering::Relaxed);
            wait_until(|| count.load(Ordering::Relaxed) > before + 2);
        }
    }
}

#[test]
fn a_task_that_panics_ends_and_when_all_have_the_hands_do() {
    let (runtime, crew) = crew_of(2);
    let others = runtime.metrics().num_alive_tasks() - 2;
    crew.spawn(async { panic!("as it is to") });
    let (done, waits) = (Arc::new(AtomicBool::new(false)), Arc::new(tokio::sync::Notify::new()));
    let (told, waited) = (Arc::clone(&done), Arc::clone(&waits));
    crew.spawn(async move {
        waited.notified().await;
        told.store(true, Ordering::Relaxed);
    });
    wait_until(|| crew.state.lock().live.len() == 1);
    crew.finish();
    assert_eq!(runtime.metrics().num_alive_tasks(), others + 2);
    waits.notify_one();
    wait_until(|| runtime.metrics().num_alive_tasks() == others);
    assert!(done.load(Ordering::Relaxed));
}

/// Says when it goes.
struct Goes(Arc<AtomicBool>);

impl Drop for Goes {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn what_waits_goes_with_its_runtime_though_its_own_waker_is_in_it() {
    let (runtime, crew) = crew_of(2);
    let (gone, place) = (Arc::new(AtomicBool::new(false)), Arc::new(OnceLock::new()));
    let (goes, own) = (Goes(Arc::clone(&gone)), Arc::clone(&place));
    crew.spawn(async move {
        let _goes = goes;
        poll_fn(|cx| {
            own.get_or_init(|| cx.waker().clone());
            Poll::<()>::Pending
        })
        .await;
    });
    wait_until(|| place.get().is_some());
    assert!(!gone.load(Ordering::Relaxed));
    drop(runtime);
    assert!(gone.load(Ordering::Relaxed));
    drop(crew);
}
