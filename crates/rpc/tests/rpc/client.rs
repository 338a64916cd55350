//! A client that sends and reads plain bytes.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::program::PROGRAM;

/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Client(pub(crate) TcpStream);

/// A call's record without its header.
pub(crate) fn call(xid: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    words(&[xid, 0, 2, PROGRAM, 1, procedure, 0, 0, 0, 0], args)
}

pub(crate) fn words(words: &[u32], tail: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
    out.extend(tail);
    out
}

/// The record as one fragment.
pub(crate) fn marked(record: &[u8]) -> Vec<u8> {
    words(&[0x8000_0000 | record.len() as u32], record)
}

pub(crate) fn word(bytes: &[u8], n: usize) -> u32 {
    u32::from_be_bytes(bytes[4 * n..4 * n + 4].try_into().unwrap())
}

/// The results of a reply that must be one of success.
pub(crate) fn results(reply: &[u8]) -> &[u8] {
    assert_eq!([1, 0, 0, 0, 0], [1, 2, 3, 4, 5].map(|n| word(reply, n)), "accepted, and a success");
    &reply[24..]
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    pub(crate) fn send(&mut self, record: &[u8]) {
        self.0.write_all(&marked(record)).unwrap();
    }

    pub(crate) fn try_receive(&mut self) -> io::Result<Vec<u8>> {
        let mut header = [0; 4];
        self.0.read_exact(&mut header)?;
        let header = u32::from_be_bytes(header);
        assert!(header & 0x8000_0000 != 0, "one fragment a reply");
        let mut record = vec![0; (header & 0x7fff_ffff) as usize];
        self.0.read_exact(&mut record)?;
        Ok(record)
    }

    pub(crate) fn receive(&mut self) -> Vec<u8> {
        self.try_receive().unwrap()
    }

    /// One call and its results.
    pub(crate) fn ask(&mut self, xid: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
        self.send(&call(xid, procedure, args));
        let reply = self.receive();
        assert_eq!(word(&reply, 0), xid);
        results(&reply).to_vec()
    }

    /// Whether the server has closed the connection, now or soon.
    pub(crate) fn is_dropped(&mut self) -> bool {
        let mut byte = [0];
        match self.0.read(&mut byte) {
            Ok(n) => n == 0,
            Err(e) => !matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
        }
    }
}
