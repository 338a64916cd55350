//! Programs without a network: records in, replies out, on one thread. For tests, fuzzing and simulation.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use holdfast_base::batch;
use holdfast_xdr::Writer;

use crate::auth::{Auth, AuthCache};
use crate::callback::OutgoingCall;
use crate::connection::Connection;
use crate::dispatch::{self, Core, Step};
use crate::message;
use crate::output::Output;
use crate::pool::Pool;
use crate::record::{self, Assembler, Record};
use crate::server::Limits;
use crate::service::Program;

/// A connection to programs in the same process. What they offload runs right here, before the answer is looked
/// at; timers do not run.
pub struct Detached {
    connection: Arc<Connection>,
    auths: AuthCache,
    reply: Writer,
}

/// A connection on its way to the programs of another process.
#[derive(Clone, Copy, Debug)]
pub struct HandedDetached {
    id: u64,
    peer: SocketAddr,
    last_xid: u32,
}

impl HandedDetached {
    /// The connection's number, which it keeps.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }
}

impl Detached {
    /// A connection to these programs.
    ///
    /// # Errors
    /// None in fact: no thread is made.
    pub fn new(programs: Vec<Arc<dyn Program>>, limits: Limits) -> io::Result<Self> {
        let pool = Pool::start(0, limits.pool_queue, None)?;
        let core = Core::new(programs, pool, limits, None);
        Ok(Self::on(&core, (Ipv4Addr::LOCALHOST, 700).into()))
    }

    fn on(core: &Arc<Core>, peer: SocketAddr) -> Self {
        let connection = Connection::new(core, peer, (Ipv4Addr::LOCALHOST, 2049).into(), None);
        Self { connection, auths: AuthCache::default(), reply: Writer::new() }
    }

    /// Another connection to the same programs, from this address.
    #[must_use]
    pub fn another(&self, peer: SocketAddr) -> Self {
        Self::on(&self.connection.core, peer)
    }

    /// The connection, as the programs see it.
    #[must_use]
    pub const fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// Hands a record (without its header) to the programs and returns the records they sent since the last
    /// time, without headers. Replies held back come with a later call, or with [`Detached::sent`].
    pub fn exchange(&mut self, record: &[u8]) -> Vec<Vec<u8>> {
        self.give(record);
        self.connection.core.pool.run_queued();
        self.sent()
    }

    /// The record of a call, without its header.
    #[must_use]
    pub fn record(xid: u32, call: &OutgoingCall<'_>) -> Vec<u8> {
        let mut w = Writer::new();
        message::write_call(&mut w, xid, call);
        w.as_slice()[4..].to_vec()
    }

    /// As [`Detached::exchange`], of records that come together, as one read of a connection's worker finds them.
    pub fn exchange_together(&mut self, records: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let framed = |record: &Vec<u8>| [&record::header_of(record.len())[..], record].concat();
        let input: Vec<u8> = records.iter().flat_map(framed).collect();
        let (mut input, mut assembler) = (&input[..], Assembler::new());
        let handling = batch::handling();
        while let Ok(Some(assembled)) = assembler.next(&mut input) {
            self.take(assembled.record().followed_by(input));
        }
        drop(handling);
        self.connection.core.pool.run_queued();
        self.sent()
    }

    /// Calls a procedure and looks at nothing: what is offloaded waits for the next use of any of the connections.
    pub fn post(&mut self, xid: u32, call: &OutgoingCall<'_>) {
        self.give(&Self::record(xid, call));
    }

    /// Hands a record (without its header) to the programs and looks at nothing: what is offloaded waits for the next
    /// look at any of the connections.
    pub fn deliver(&mut self, record: &[u8]) {
        self.give(record);
    }

    /// Hands a record (without its header) to the programs and gives the reply's bytes, likewise, from the buffer that it
    /// was written to: as a connection's worker does, with nothing between. `None` when it is not answered at once, or
    /// with a stretch of a file.
    pub fn answer(&mut self, record: &[u8]) -> Option<&[u8]> {
        match dispatch::handle(
            &self.connection,
            Record::borrowed(record),
            &mut self.auths,
            &mut self.reply,
            &mut false,
        ) {
            Step::Reply => self.reply.as_slice().get(4..),
            Step::ReplyFile(_) | Step::Nothing | Step::Stalled(_) | Step::Close => None,
        }
    }

    fn give(&mut self, record: &[u8]) {
        self.take(Record::borrowed(record));
    }

    fn take(&mut self, record: Record<'_>) {
        match dispatch::handle(&self.connection, record, &mut self.auths, &mut self.reply, &mut false) {
            Step::Reply => self.connection.send(self.reply.as_slice(), None),
            Step::ReplyFile(file) => self.connection.send(self.reply.as_slice(), Some(file)),
            // A queue without room would be a hang on a network; here the call is lost.
            Step::Nothing | Step::Stalled(_) => {}
            Step::Close => self.connection.close(),
        }
    }

    /// Calls a procedure and returns what [`Detached::exchange`] does.
    pub fn call(&mut self, xid: u32, call: &OutgoingCall<'_>) -> Vec<Vec<u8>> {
        self.exchange(&Self::record(xid, call))
    }

    /// The records sent since the last time.
    pub fn sent(&self) -> Vec<Vec<u8>> {
        self.connection.core.pool.run_queued();
        let mut stream = self.connection.output.take_queued().concat();
        let mut records = Vec::new();
        while let Some((header, rest)) = stream.split_first_chunk::<4>() {
            let n = (u32::from_be_bytes(*header) & 0x7fff_ffff) as usize;
            let (record, rest) = rest.split_at(n.min(rest.len()));
            records.push(record.to_vec());
            stream = rest.to_vec();
        }
        records
    }

    /// The time for answers to the programs' calls is over, as if their timers had run.
    pub fn time_out_calls(&self) {
        for xid in self.connection.back.unanswered() {
            self.connection.back.time_out(xid);
        }
    }

    /// Holds still, as a server does that is to be handed over: calls that wait for a peer are put off, and what was
    /// offloaded runs. On any of the connections, for all.
    pub fn hold(&self) {
        let core = &self.connection.core;
        core.set_holding(true);
        core.programs.iter().for_each(|program| program.quiesce());
        core.pool.run_queued();
    }

    /// Goes on after [`Detached::hold`].
    pub fn release(&self) {
        let core = &self.connection.core;
        core.set_holding(false);
        core.programs.iter().for_each(|program| program.release());
    }

    /// Calls over this connection that have no answer yet: those being executed, and those that wait for a peer.
    #[must_use]
    pub fn unanswered(&self) -> (usize, usize) {
        self.connection.unanswered()
    }

    /// Calls of the programs' over this connection that wait for its peer's answer. Runs nothing that was offloaded.
    #[must_use]
    pub fn called_back(&self) -> usize {
        self.connection.back.unanswered().len()
    }

    /// What goes to the next process of a connection that holds still and whose replies were taken
    /// ([`Detached::sent`]); `None` of one that is closed.
    #[must_use]
    pub fn hand_over(&self) -> Option<HandedDetached> {
        let connection = &self.connection;
        let (last_xid, _) = connection.back.progress();
        let handed = HandedDetached { id: connection.id(), peer: connection.peer(), last_xid };
        (!connection.is_closed()).then_some(handed)
    }

    /// A connection of the process before, to the same programs as this one.
    #[must_use]
    pub fn adopt(&self, handed: HandedDetached) -> Self {
        let core = &self.connection.core;
        core.pass_connection_id(handed.id);
        let ends = (handed.peer, self.connection.local());
        let connection = Connection::adopted((core, handed.id), ends, Output::new(None));
        connection.back.go_on_after(handed.last_xid);
        core.programs.iter().for_each(|program| program.connection_adopted(&connection));
        Self { connection, auths: AuthCache::default(), reply: Writer::new() }
    }

    /// The same for one of them, by its transaction id.
    pub fn time_out_call(&self, xid: u32) {
        self.connection.back.time_out(xid);
    }

    /// The results in a reply record, when it is one of success.
    #[must_use]
    pub fn results(record: &[u8]) -> Option<&[u8]> {
        match message::read(record) {
            Ok(message::Message::Reply(_, Ok(results))) => Some(results),
            _ => None,
        }
    }

    /// Ends the connection as a lost one ends: the programs are told.
    pub fn close(self) {
        self.connection.close();
        for program in &self.connection.core.programs {
            program.connection_closed(&self.connection);
        }
    }

    /// Calls as nobody: AUTH_NONE.
    pub const NOBODY: Auth = Auth::None;
}

impl std::fmt::Debug for Detached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.connection.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::service::{Call, Outcome};

    struct Echo;

    impl Program for Echo {
        fn number(&self) -> u32 {
            1
        }
        fn versions(&self) -> (u32, u32) {
            (1, 2)
        }
        fn call(&self, call: &mut Call<'_>, reply: &mut Writer) -> Outcome {
            reply.put(call.args.rest());
            Outcome::Reply
        }
    }

    /// Records that look like calls in most of their words, so that every check of the header is reached.
    fn almost_calls() -> impl Strategy<Value = Vec<u8>> {
        let word = prop_oneof![8 => 0u32..4, 1 => any::<u32>()];
        prop::collection::vec(word, 0..24).prop_map(|ws| ws.iter().flat_map(|w| w.to_be_bytes()).collect())
    }

    proptest! {
        #[test]
        fn any_record_is_answered_once_or_ends_the_connection_or_was_an_answer(
            record in prop_oneof![prop::collection::vec(any::<u8>(), 0..80), almost_calls()],
        ) {
            let mut client = Detached::new(vec![Arc::new(Echo)], Limits::default()).unwrap();
            let sent = client.exchange(&record);
            let is_answer = record.get(4..8) == Some(&[0, 0, 0, 1]);
            prop_assert_eq!(sent.len(), usize::from(!client.connection().is_closed() && !is_answer));
            for reply in &sent {
                prop_assert_eq!(&reply[..4], &record[..4], "the same xid");
            }
        }
    }
}
