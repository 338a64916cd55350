//! A client that sends and reads plain bytes.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// How long a test waits for what must come, on a machine that is busy with other tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const LAST: u32 = 1 << 31;

pub(crate) struct Client(pub(crate) TcpStream);

pub(crate) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_be_bytes()).collect()
}

pub(crate) fn word(bytes: &[u8], n: usize) -> u32 {
    u32::from_be_bytes(bytes[4 * n..4 * n + 4].try_into().unwrap())
}

pub(crate) fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut out = words(&[bytes.len() as u32]);
    out.extend(bytes);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// The record as one fragment.
pub(crate) fn marked(record: &[u8]) -> Vec<u8> {
    let mut out = words(&[LAST | record.len() as u32]);
    out.extend(record);
    out
}

/// A call's record, as the superuser (AUTH_SYS without a name or groups).
pub(crate) fn call(xid: u32, (program, version): (u32, u32), procedure: u32, args: &[u8]) -> Vec<u8> {
    let mut out = words(&[xid, 0, 2, program, version, procedure, 1, 20, 0, 0, 0, 0, 0, 0, 0]);
    out.extend(args);
    out
}

pub(crate) const NFS3: (u32, u32) = (100_003, 3);
pub(crate) const NFS4: (u32, u32) = (100_003, 4);
pub(crate) const MOUNT: (u32, u32) = (100_005, 3);

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::adopt(TcpStream::connect(address).unwrap())
    }

    fn adopt(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    /// Connects from another address of this host.
    pub(crate) fn connect_from(source: Ipv4Addr, to: SocketAddr) -> io::Result<Self> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddr::from((source, 0)))?;
        connect(&socket, &to)?;
        Ok(Self::adopt(socket.into()))
    }

    pub(crate) fn send(&mut self, record: &[u8]) {
        self.0.write_all(&marked(record)).unwrap();
    }

    pub(crate) fn try_receive(&mut self) -> io::Result<Vec<u8>> {
        let mut header = [0; 4];
        self.0.read_exact(&mut header)?;
        let header = u32::from_be_bytes(header);
        assert!(header & LAST != 0, "one fragment a reply");
        let mut record = vec![0; (header & !LAST) as usize];
        self.0.read_exact(&mut record)?;
        Ok(record)
    }

    /// One call and its results.
    pub(crate) fn ask(&mut self, program: (u32, u32), procedure: u32, args: &[u8]) -> Vec<u8> {
        self.send(&call(77, program, procedure, args));
        let reply = self.try_receive().unwrap();
        assert_eq!(
            [0, 1, 2, 3, 4, 5].map(|n| word(&reply, n)),
            [77, 1, 0, 0, 0, 0],
            "accepted, and a success"
        );
        reply[24..].to_vec()
    }

    /// The handle of an export's root.
    pub(crate) fn mount(&mut self, path: &[u8]) -> Vec<u8> {
        let results = self.ask(MOUNT, 1, &opaque(path));
        assert_eq!(word(&results, 0), 0, "MOUNT");
        results[8..8 + word(&results, 1) as usize].to_vec()
    }

    /// Reads until the server closes, throwing away what comes. False when it does not close.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut scrap = [0; 4096];
        loop {
            match self.0.read(&mut scrap) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return !matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
            }
        }
    }

    /// Sends what the server takes within a moment; the rest stays unsent.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> usize {
        self.0.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        let mut sent = 0;
        while sent < bytes.len() {
            match self.0.write(&bytes[sent..]) {
                Ok(n) => sent += n,
                Err(_) => break,
            }
        }
        sent
    }
}

/// Numbers that look random and are the same in every run.
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| (self.next() >> 32) as u8).collect()
    }
}
