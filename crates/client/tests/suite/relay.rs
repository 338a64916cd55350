//! A relay between client and server that can be cut, stalled, or made to lose answers.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// The relay.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    server: Option<SocketAddr>,
    streams: Vec<TcpStream>,
    is_stalled: bool,
    /// The same for what the server says alone.
    are_answers_stalled: bool,
    /// The next answer is not passed on: the connection is cut instead.
    loses_next: bool,
    accepted: u32,
    lost: u32,
}

impl Relay {
    pub(crate) fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        shared.state.lock().server = Some(server.parse().unwrap());
        let own = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Some(to) = own.state.lock().server else { continue };
                let Ok(server) = TcpStream::connect(to) else { continue };
                own.carry(&client, &server);
            }
        });
        Self { address, shared }
    }

    /// Cuts every connection.
    pub(crate) fn cut(&self) {
        self.shared.state.lock().cut();
    }

    /// Passes nothing on until [`Relay::resume`].
    pub(crate) fn stall(&self) {
        self.shared.state.lock().is_stalled = true;
    }

    /// Passes nothing of the server's on until [`Relay::resume`].
    pub(crate) fn stall_answers(&self) {
        self.shared.state.lock().are_answers_stalled = true;
    }

    pub(crate) fn resume(&self) {
        let mut state = self.shared.state.lock();
        (state.is_stalled, state.are_answers_stalled) = (false, false);
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Loses the next answer, and the connection with it.
    pub(crate) fn lose_next_answer(&self) {
        self.shared.state.lock().loses_next = true;
    }

    /// Connections that were made, and answers lost.
    pub(crate) fn counts(&self) -> (u32, u32) {
        let state = self.shared.state.lock();
        (state.accepted, state.lost)
    }
}

impl State {
    fn cut(&mut self) {
        for stream in self.streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn carry(self: &Arc<Self>, client: &TcpStream, server: &TcpStream) {
        let mut state = self.state.lock();
        state.accepted += 1;
        state.streams.extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
        drop(state);
        let ends = [(client, server, false), (server, client, true)];
        for (from, to, is_answer) in ends {
            let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let _ = to.set_nodelay(true);
            let shared = Arc::clone(self);
            std::thread::spawn(move || {
                let mut buf = vec![0; 64 << 10];
                while let Ok(n @ 1..) = from.read(&mut buf) {
                    if !shared.pass(is_answer) || to.write_all(&buf[..n]).is_err() {
                        break;
                    }
                }
                let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
            });
        }
    }

    /// Waits while stalled; false when this is the answer to lose.
    fn pass(&self, is_answer: bool) -> bool {
        let mut state = self.state.lock();
        while state.is_stalled || is_answer && state.are_answers_stalled {
            self.changed.wait_for(&mut state, Duration::from_millis(100));
        }
        if is_answer && std::mem::take(&mut state.loses_next) {
            state.lost += 1;
            state.cut();
            return false;
        }
        true
    }
}
