//! What a NULL call costs the server: CPU time of its threads per call, for several numbers of connections and
//! calls in flight on each. `cargo run --release -p holdfast-rpc --example null_rate [SECONDS]`

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_rpc::server::{Limits, Server, listen};
use holdfast_rpc::{Call, Outcome, Program};
use holdfast_xdr::Writer;

struct Null;

impl Program for Null {
    fn number(&self) -> u32 {
        100_003
    }

    fn versions(&self) -> (u32, u32) {
        (3, 3)
    }

    fn call(&self, _: &mut Call<'_>, _: &mut Writer) -> Outcome {
        Outcome::Reply
    }
}

/// CPU time of the threads whose name begins so, in nanoseconds.
fn cpu_ns(name: &str) -> std::io::Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir("/proc/self/task")? {
        let path = task?.path();
        if fs::read_to_string(path.join("comm"))?.starts_with(name) {
            let stat = fs::read_to_string(path.join("schedstat"))?;
            sum += stat.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    Ok(sum)
}

/// One NULL call of NFSv3 with an AUTH_SYS credential such as Linux sends.
fn call() -> Vec<u8> {
    let mut w = Writer::new();
    for word in [0, 1, 0, 2, 100_003, 3, 0, 1, 28, 0, 4] {
        w.u32(word);
    }
    w.put(b"host");
    for word in [1000, 1000, 1, 1000, 0, 0] {
        w.u32(word);
    }
    let length = (w.len() - 4) as u32;
    let mut bytes = w.into_vec();
    bytes[..4].copy_from_slice(&(0x8000_0000 | length).to_be_bytes());
    bytes
}

/// Keeps `depth` calls in flight, a batch at a time, until told to stop; returns how many were answered.
fn load(address: SocketAddr, depth: usize, stop: &AtomicBool) -> std::io::Result<u64> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let batch = call().repeat(depth);
    let mut replies = vec![0; 28 * depth];
    let mut answered = 0;
    while !stop.load(Ordering::Relaxed) {
        stream.write_all(&batch)?;
        stream.read_exact(&mut replies)?;
        answered += depth as u64;
    }
    Ok(answered)
}

fn measure(address: SocketAddr, connections: usize, depth: usize, time: Duration) -> std::io::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..connections)
        .map(|_| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || load(address, depth, &stop))
        })
        .collect();
    thread::sleep(time / 10);
    let (before, started) = (cpu_ns("worker")?, Instant::now());
    thread::sleep(time);
    let (cpu, took) = (cpu_ns("worker")? - before, started.elapsed());
    stop.store(true, Ordering::Relaxed);
    let mut answered = 0;
    for client in clients {
        answered += client.join().unwrap_or(Ok(0))?;
    }
    // The clients' counts cover the warm-up too.
    let calls = answered as f64 * took.as_secs_f64() / (time.as_secs_f64() * 1.1);
    let rate = calls / took.as_secs_f64();
    println!(
        "{connections:>3}/{depth:<3} {rate:>9.0}/s {:>7.2} us of server CPU a call",
        cpu as f64 / calls / 1000.0
    );
    Ok(())
}

fn main() -> std::io::Result<()> {
    let seconds = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(2);
    let runtime = holdfast_rpc::runtime::runtime(None)?;
    let inside = runtime.enter();
    let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let server = Server::start(vec![listener], vec![Arc::new(Null)], Limits::default())?;
    drop(inside);
    for (connections, depth) in [(1, 1), (16, 1), (4, 8), (16, 32)] {
        measure(server.addresses()[0], connections, depth, Duration::from_secs(seconds))?;
    }
    runtime.block_on(server.shutdown(Duration::from_secs(1)));
    Ok(())
}
