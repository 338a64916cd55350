//! Metrics over HTTP, for Prometheus: `GET /metrics` and nothing else. One request at a time: a collector comes every
//! few seconds.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Weak;
use std::thread;
use std::time::{Duration, Instant};

use holdfast_base::limits::METRICS_REQUEST_BYTES_MAX;

use crate::service::Administered;

/// How long one request may take, from its first byte to the last of its answer: the next waits for it.
const PATIENCE: Duration = Duration::from_secs(5);

/// The endpoint. Ends when dropped.
#[derive(Debug)]
pub struct MetricsEndpoint {
    listener: TcpListener,
}

impl MetricsEndpoint {
    /// Answers on an address for as long as the server lives.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub fn start(address: SocketAddr, server: Weak<dyn Administered>) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let accepting = listener.try_clone()?;
        thread::Builder::new().name("metrics".into()).spawn(move || accept(&accepting, &server))?;
        Ok(Self { listener })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// Those of the system.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Drop for MetricsEndpoint {
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

fn accept(listener: &TcpListener, server: &Weak<dyn Administered>) {
    loop {
        match listener.accept() {
            Ok((stream, peer)) => {
                let Some(server) = server.upgrade() else { return };
                if let Err(error) = serve(stream, server.as_ref()) {
                    tracing::debug!(%peer, %error, "metrics were not taken");
                }
            }
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => return,
            Err(error) => {
                tracing::debug!(%error, "metrics");
                thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

fn serve(mut stream: TcpStream, server: &dyn Administered) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let line = request_line(&mut stream, deadline)?;
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default();
    let (status, body) = match (method, path) {
        ("GET" | "HEAD", "/metrics") => ("200 OK", server.metrics()),
        ("GET" | "HEAD", _) => ("404 Not Found", "metrics are at /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "only GET\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    let body = if method == "HEAD" { "" } else { &body };
    put(&mut stream, &[head.as_bytes(), body.as_bytes()].concat(), deadline)?;
    stream.shutdown(Shutdown::Write)
}

/// Sends all of it, in time: a peer that takes little at a time is no better than one that takes nothing.
fn put(stream: &mut TcpStream, mut answer: &[u8], deadline: Instant) -> io::Result<()> {
    while !answer.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        let sent = stream.write(answer)?;
        answer = &answer[sent..];
    }
    Ok(())
}

/// What is left of the time.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Reads a request to the empty line at its end, and gives its first line. The headers are of no interest.
fn request_line(stream: &mut TcpStream, deadline: Instant) -> io::Result<String> {
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() > METRICS_REQUEST_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => request.extend_from_slice(&part[..n]),
        }
    }
    let end = request.iter().position(|b| *b == b'\r').unwrap_or_default();
    Ok(String::from_utf8_lossy(&request[..end]).into_owned())
}
