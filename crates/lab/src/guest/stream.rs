//! What a guest says, gathered while it speaks.

use std::fs::File;
use std::io::{Read, Write as _};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes kept of one stream; a script that says more is at fault, and the rest is read and dropped.
const STREAM_BYTES_MAX: usize = 64 << 20;

#[derive(Debug, Default)]
struct Heard {
    bytes: Vec<u8>,
    is_closed: bool,
}

/// One stream; clones share what was heard.
#[derive(Debug, Clone, Default)]
pub(super) struct Stream {
    shared: Arc<(Mutex<Heard>, Condvar)>,
}

impl Stream {
    /// Starts to read `source` on a thread of its own, which ends with it. What it hears goes to `copy`, too, for who looks
    /// from outside.
    pub(super) fn follow(mut source: impl Read + Send + 'static, mut copy: Option<File>) -> Self {
        let stream = Self::default();
        let heard = stream.clone();
        std::thread::spawn(move || {
            let mut chunk = vec![0; 64 << 10];
            loop {
                match source.read(&mut chunk) {
                    Ok(count) if count > 0 => {
                        heard.append(&chunk[..count]);
                        // A full disk is told of by what meets it otherwise.
                        let _ = copy.as_mut().map(|copy| copy.write_all(&chunk[..count]));
                    }
                    _ => break,
                }
            }
            heard.close();
        });
        stream
    }

    fn append(&self, bytes: &[u8]) {
        let mut heard = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = STREAM_BYTES_MAX.saturating_sub(heard.bytes.len());
        heard.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.shared.1.notify_all();
    }

    fn close(&self) {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner).is_closed = true;
        self.shared.1.notify_all();
    }

    /// All that was heard so far; bytes that are not UTF-8 are shown as U+FFFD.
    pub(super) fn text(&self) -> String {
        let heard = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&heard.bytes).into_owned()
    }

    /// Waits until `done(text)` holds or the stream closes; says whether it holds.
    pub(super) fn wait_until(&self, deadline: Instant, done: impl Fn(&str) -> bool) -> bool {
        let mut heard = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if done(&String::from_utf8_lossy(&heard.bytes)) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if heard.is_closed || left.is_zero() {
                return false;
            }
            heard = self.shared.1.wait_timeout(heard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for the end of the stream; says whether it came before the deadline.
    pub(super) fn wait_closed(&self, deadline: Instant) -> bool {
        let mut heard = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !heard.is_closed {
            let left = deadline.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return false;
            }
            heard = self.shared.1.wait_timeout(heard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn a_line_is_seen_while_the_stream_is_still_open() {
        let (source, mut sink) = std::io::pipe().unwrap();
        let stream = Stream::follow(source, None);
        std::io::Write::write_all(&mut sink, b"READY\n").unwrap();
        assert!(stream.wait_until(soon(), |text| text.contains("READY")));
        assert!(!stream.wait_closed(Instant::now()));
        drop(sink);
        assert!(stream.wait_closed(soon()));
    }

    #[test]
    fn waiting_for_what_never_comes_ends_with_the_stream() {
        let stream = Stream::follow(&b"something else"[..], None);
        assert!(!stream.wait_until(soon(), |text| text.contains("READY")));
        assert_eq!(stream.text(), "something else");
    }
}
