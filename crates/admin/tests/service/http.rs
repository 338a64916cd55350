//! The endpoint for collectors of metrics.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use holdfast_admin::{Administered, MetricsEndpoint};

use crate::fake::Fake;

fn get(endpoint: &MetricsEndpoint, request: &str) -> String {
    let mut stream = TcpStream::connect(endpoint.address().unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Sends what never becomes a request, until the other side has had enough.
fn send_without_end(endpoint: &MetricsEndpoint) {
    let mut stream = TcpStream::connect(endpoint.address().unwrap()).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    let error = (0..1_000_000).find_map(|_| stream.write_all(&[b'x'; 1024]).err()).expect("it is closed");
    assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
}

#[test]
fn metrics_are_at_their_path_and_nothing_is_elsewhere() {
    let server: Arc<dyn Administered> = Arc::new(Fake::default());
    let endpoint = MetricsEndpoint::start("127.0.0.1:0".parse().unwrap(), Arc::downgrade(&server)).unwrap();
    let ok = get(&endpoint, "GET /metrics HTTP/1.1\r\nHost: x\r\nUser-Agent: y\r\n\r\n");
    assert!(ok.starts_with("HTTP/1.1 200 OK\r\n") && ok.ends_with("\r\n\r\nholdfast_x 1\n"), "{ok}");
    assert!(ok.contains("Content-Length: 13\r\n") && ok.contains("text/plain; version=0.0.4"));
    let head = get(&endpoint, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"));
    assert!(get(&endpoint, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(get(&endpoint, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    send_without_end(&endpoint);
    let again = get(&endpoint, "GET /metrics?x=1 HTTP/1.0\r\n\r\n");
    assert!(again.starts_with("HTTP/1.1 200"), "one bad request is not the next one's: {again}");
}

#[test]
fn a_collector_that_takes_little_at_a_time_does_not_keep_the_next_one_waiting() {
    // More than sockets hold.
    let server: Arc<dyn Administered> = Arc::new(Fake { metrics_lines: 4 << 20, ..Fake::default() });
    let endpoint = MetricsEndpoint::start("127.0.0.1:0".parse().unwrap(), Arc::downgrade(&server)).unwrap();
    let address = endpoint.address().unwrap();
    let slow = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut part = vec![0; 1 << 18];
        // Until the other side has had enough, which the rest of what it sent comes before.
        while stream.read(&mut part).is_ok_and(|bytes| bytes > 0) {
            std::thread::sleep(Duration::from_millis(300));
        }
    });
    std::thread::sleep(Duration::from_millis(100));
    let mut next = TcpStream::connect(address).unwrap();
    next.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
    next.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    next.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    drop(endpoint);
    slow.join().unwrap();
}
