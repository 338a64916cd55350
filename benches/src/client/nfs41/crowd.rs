//! Many clients that are there, and do no more than to hold a session, an open and a lock each.

use super::session::{Session, create_session, exchange_id};
use super::{COMPOUND, Compound, open_args, skip_empty_results};
use crate::client::call::{Caller, REPLY_PATIENCE};
use crate::volume::EXPORT_NAME;
use anyhow::{Context, Result, ensure};
use holdfast_base::{Length, Offset, Seqid};
use holdfast_wire::nfs4::*;
use holdfast_xdr::{Decode, Reader};
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

/// Connections of the whole crowd: from one address a server takes 1,024, and each is a descriptor, of which a process
/// may have 20,000 on many a machine. Where there are more clients, several share one, each with a session of its own.
const CONNECTIONS: usize = 1000;
/// Threads that gather them: what each has stored is one commit with what the others have.
const THREADS: usize = 16;

/// How soon what was put off is asked for again.
const PUT_OFF: Duration = Duration::from_millis(1);

/// The clients by their connections.
pub(crate) struct Crowd(Vec<Line>);

struct Line {
    caller: Caller,
    members: Vec<Member>,
}

struct Member {
    session: Session,
    open: Stateid4,
    lock: Stateid4,
}

impl Crowd {
    /// The files that they open, in turn: `entry-0000000` and so on. Each locks a byte of its own.
    pub(crate) const FILES: usize = 1000;

    /// Has `count` of them come, and open files of a directory of the export.
    ///
    /// Errors when the server refuses.
    pub(crate) fn gather(server: SocketAddrV4, directory: &str, count: usize) -> Result<Self> {
        let numbers: Vec<usize> = (0..count).collect();
        let lines: Vec<&[usize]> = numbers.chunks(count.div_ceil(CONNECTIONS)).collect();
        let shares = lines.chunks(lines.len().div_ceil(THREADS));
        let gathered = std::thread::scope(|scope| {
            let gather = |share: &[&[usize]]| -> Result<Vec<Line>> {
                share.iter().map(|numbers| Line::gather(server, directory, numbers)).collect()
            };
            let threads: Vec<_> = shares.map(|share| scope.spawn(move || gather(share))).collect();
            let ends = threads.into_iter().map(|thread| thread.join().ok().context("a thread panicked")?);
            ends.collect::<Result<Vec<_>>>()
        });
        Ok(Self(gathered?.into_iter().flatten().collect()))
    }

    /// How many connections they have.
    pub(crate) fn connections(&self) -> usize {
        self.0.len()
    }

    /// Has each look whether it still holds all that it held, on the connection and the session that it had.
    ///
    /// Errors when one does not.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.0.iter_mut().try_for_each(Line::check)
    }
}

impl Line {
    fn gather(server: SocketAddrV4, directory: &str, numbers: &[usize]) -> Result<Self> {
        let mut caller = Caller::connect(server)?;
        let members = numbers.iter().map(|number| Member::new(&mut caller, directory, *number));
        let members = members.collect::<Result<_>>()?;
        Ok(Self { caller, members })
    }

    fn check(&mut self) -> Result<()> {
        self.members.iter_mut().try_for_each(|member| member.check(&mut self.caller))
    }
}

impl Member {
    fn new(caller: &mut Caller, directory: &str, number: usize) -> Result<Self> {
        let owner = format!("crowd-{number}").into_bytes();
        let (client, sequence) = exchange_id(caller, &owner)?;
        let mut session = Session::new(create_session(caller, client, sequence, 1)?, client, 1);
        let complete = ArgOp::ReclaimComplete(ReclaimComplete4Args { one_fs: false });
        caller.call(COMPOUND, &Compound(&[ArgOp::Sequence(session.sequence(0)), complete]))?;
        let name = format!("entry-{:07}", number % Crowd::FILES);
        let how = OpenFlag4::NoCreate;
        let open = open_args(client, &owner, OPEN4_SHARE_ACCESS_BOTH, how, name.as_bytes());
        let lock = Lock4Args {
            locktype: LockType4::Write,
            reclaim: false,
            offset: Offset((number / Crowd::FILES) as u64),
            length: Length(1),
            locker: Locker4::New(OpenToLockOwner4 {
                open_seqid: Seqid(0),
                open_stateid: Stateid4::CURRENT,
                lock_seqid: Seqid(0),
                lock_owner: StateOwner4 { clientid: client, owner: &owner },
            }),
        };
        let deadline = Instant::now() + REPLY_PATIENCE;
        let reply = loop {
            let ops = [
                ArgOp::Sequence(session.sequence(0)),
                ArgOp::PutRootFh,
                look_up(EXPORT_NAME),
                look_up(directory),
                ArgOp::Open(open),
                ArgOp::Lock(lock),
            ];
            let reply = caller.call(COMPOUND, &Compound(&ops))?;
            let status = CompoundResHeader::decode(&mut Reader::new(&reply))?.status;
            if status != NfsStat4::Delay || Instant::now() > deadline {
                break reply;
            }
            // Another one's open of the file is under way; what was opened is opened again, as one.
            std::thread::sleep(PUT_OFF);
        };
        let mut r = skip_empty_results(&reply, 4).with_context(|| format!("OPEN and LOCK of {name}"))?;
        let open = Open4Ok::decode(&mut r)?.stateid;
        ResOpHeader::decode(&mut r)?;
        let lock = Lock4Ok::decode(&mut r)?.lock_stateid;
        Ok(Self { session, open, lock })
    }

    fn check(&mut self, caller: &mut Caller) -> Result<()> {
        let test = TestStateid4Args { stateids: vec![self.open, self.lock] };
        let ops = [ArgOp::Sequence(self.session.sequence(0)), ArgOp::TestStateid(test)];
        let reply = caller.call(COMPOUND, &Compound(&ops))?;
        let mut r = Reader::new(&reply);
        let header = CompoundResHeader::decode(&mut r)?;
        ensure!(header.status == NfsStat4::Ok, "a client's call is answered with {}", header.status);
        ResOpHeader::decode(&mut r)?;
        let flags = Sequence4Ok::decode(&mut r)?.status_flags & !SEQ4_STATUS_CB_PATH_DOWN;
        ResOpHeader::decode(&mut r)?;
        let told = TestStateid4Ok::decode(&mut r)?.status_codes;
        ensure!(
            flags == 0 && told == [NfsStat4::Ok; 2],
            "a client's open and lock are {told:?}, flags {flags:#x}"
        );
        Ok(())
    }
}

fn look_up(name: &str) -> ArgOp<'_> {
    ArgOp::Lookup(Lookup4Args { objname: name.as_bytes() })
}
