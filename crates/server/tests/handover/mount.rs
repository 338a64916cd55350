//! A Holdfast mount as far as the caps program shows it, on one connection for all its life.

use holdfast_base::SessionId;
use holdfast_wire::caps::*;
use holdfast_xdr::{Decode, Encode, from_bytes, to_bytes};

use crate::client::{Client, call, word, words};
use crate::server::Server;

const CAPS: (u32, u32) = (CAPS_PROGRAM, CAPS_V1);

/// A mount on one connection, which answers recalls when it is asked to.
pub(crate) struct Mount {
    connection: Client,
    pub(crate) ticket: Ticket,
    epoch: u64,
    /// Calls of the server's that were not answered yet.
    pub(crate) calls: Vec<Vec<u8>>,
}

impl Mount {
    pub(crate) fn new(server: &Server, session: SessionId) -> Self {
        let connection = Client::connect(server.address);
        let mut mount = Self { connection, ticket: Ticket(0), epoch: 0, calls: Vec::new() };
        let args = HelloArgs {
            session,
            incarnation: [7; 16],
            features: Features::default(),
            done_through: TxnId(0),
        };
        let hello: HelloOk = mount.ask(CapsProc::Hello, &args).unwrap();
        (mount.ticket, mount.epoch) = (hello.ticket, hello.epoch);
        mount
    }

    pub(crate) fn ask<R: Decode<'static>>(
        &mut self,
        procedure: CapsProc,
        args: &impl Encode,
    ) -> Result<R, CapsStat> {
        self.post(procedure, args);
        self.answer()
    }

    /// Asks, and does not wait for the answer.
    fn post(&mut self, procedure: CapsProc, args: &impl Encode) {
        self.connection.send(&call(77, CAPS, procedure.as_u32(), &to_bytes(args)));
    }

    fn answer<R: Decode<'static>>(&mut self) -> Result<R, CapsStat> {
        let reply = loop {
            let record = self.receive();
            if word(&record, 1) == 1 {
                break record;
            }
            self.calls.push(record);
        };
        assert_eq!([0, 1, 2, 3, 4, 5].map(|n| word(&reply, n)), [77, 1, 0, 0, 0, 0]);
        let results: &'static [u8] = reply[24..].to_vec().leak();
        from_bytes::<Res<R>>(results).unwrap().into_result()
    }

    /// The next record but for words of what is on disk, which are heard and passed over.
    fn receive(&mut self) -> Vec<u8> {
        loop {
            let record = self.connection.try_receive().expect("the connection lives");
            let is_call = word(&record, 1) == 0;
            if !is_call || word(&record, 5) != CapsCallbackProc::Stable.as_u32() {
                return record;
            }
            self.connection.send(&words(&[word(&record, 0), 1, 0, 0, 0, 0]));
        }
    }

    pub(crate) fn acquire(&mut self, handle: &[u8], want: CapSet) -> Grant {
        let items = vec![AcquireItem { handle: Handle(handle), want }];
        let args = AcquireArgs { ticket: self.ticket, items };
        let told: AcquireOk = self.ask(CapsProc::Acquire, &args).unwrap();
        told.items[0].into_result().unwrap().grant
    }

    /// One file in the root; its handle and what came with it.
    pub(crate) fn create(&mut self, dir: &[u8]) -> (Vec<u8>, Grant) {
        let set = SetAttrs { mode: Some(0o644), ..SetAttrs::default() };
        let (dir, if_taken, want) = (Ref::Handle(Handle(dir)), IfTaken::Fail, CapSet::ALL_S);
        let ops = vec![BatchOp::Create { dir, name: b"made", if_taken, set, want, data: b"ten bytes!" }];
        let (ticket, txn, done_through) = (self.ticket, TxnId(1), TxnId(0));
        let args = BatchArgs { ticket, txn, how: BatchHow::FIRST, done_through, ops };
        let told: BatchOk<'static> = self.ask(CapsProc::Batch, &args).unwrap();
        match told.results[0].into_result().unwrap() {
            OpResult::Made(made) => (made.handle.0.to_vec(), made.grant),
            other => panic!("{other:?}"),
        }
    }

    /// Has one file made in the root, to be answered when it is on the disk; does not wait for that.
    pub(crate) fn force(&mut self, (txn, name): (u64, &[u8]), dir: &[u8], how: BatchHow) {
        let set = SetAttrs { mode: Some(0o644), ..SetAttrs::default() };
        let (dir, if_taken, want) = (Ref::Handle(Handle(dir)), IfTaken::Fail, CapSet::NONE);
        let ops = vec![BatchOp::Create { dir, name, if_taken, set, want, data: b"ten bytes!" }];
        let (ticket, done_through, how) = (self.ticket, TxnId(0), how.until(Until::Stable));
        self.post(CapsProc::Batch, &BatchArgs { ticket, txn: TxnId(txn), how, done_through, ops });
    }

    /// What comes of that: the file, and through which transaction all is on the disk.
    pub(crate) fn forced(&mut self) -> (Vec<u8>, TxnId) {
        let told: ForcedOk<'static> = self.answer().unwrap();
        assert_eq!(told.failed, []);
        match told.batch.results[0].into_result().unwrap() {
            OpResult::Made(made) => (made.handle.0.to_vec(), told.batch.stable_through),
            other => panic!("{other:?}"),
        }
    }

    /// The handle of a name.
    pub(crate) fn look_up(&mut self, dir: &[u8], name: &[u8]) -> Vec<u8> {
        let (ticket, none) = (self.ticket, CapSet::NONE);
        let args = LookupArgs { ticket, dir: Handle(dir), name, want_dir: none, want: none };
        match self.ask::<LookupOk<'static>>(CapsProc::Lookup, &args).unwrap().found {
            Looked::Present(node) => node.handle.0.to_vec(),
            Looked::Absent => panic!("{} is there", name.escape_ascii()),
        }
    }

    /// Waits for a recall and answers the call: what is asked for, what may be kept of it, and the number.
    pub(crate) fn next_recall(&mut self) -> Vec<(Vec<u8>, CapSet, u64)> {
        let record = match self.calls.pop() {
            Some(record) => record,
            None => self.receive(),
        };
        assert_eq!([1, 3, 4, 5].map(|n| word(&record, n)), [0, CAPS_CALLBACK_PROGRAM, CAPS_CALLBACK_V1, 1]);
        self.connection.send(&words(&[word(&record, 0), 1, 0, 0, 0, 0]));
        let recall = from_bytes::<RecallArgs<'_>>(&record[40..]).unwrap();
        assert_eq!(recall.epoch, self.epoch, "nothing was lost");
        recall.items.iter().map(|item| (item.handle.0.to_vec(), item.keep, item.seq)).collect()
    }

    /// Gives back what was asked for.
    pub(crate) fn release(&mut self, asked: &[(Vec<u8>, CapSet, u64)]) {
        let items = asked.iter();
        let items =
            items.map(|(handle, keep, seq)| ReleaseItem { handle: Handle(handle), keep: *keep, seq: *seq });
        let args = ReleaseArgs { ticket: self.ticket, items: items.collect() };
        let released: ReleaseOk = self.ask(CapsProc::Release, &args).unwrap();
        assert!(released.items.iter().all(|item| item.into_result().is_ok()));
    }
}
