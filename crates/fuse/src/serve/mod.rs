//! The threads that serve a connection.

pub(crate) mod crew;
mod dispatch;

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::abi::operation::{Dialect, Header, Malformed, Operation};
use crate::abi::{OUT_HEADER_BYTES, WRITE_IN_BYTES, encode, opcode::Opcode};
use crate::filesystem::Filesystem;
use crate::groups::GroupCache;
use crate::interrupt::{Board, Slot};
use crate::reply::DataSink;
use crate::request::Request;
use crate::session::{Connection, End};
use crate::types::Forget;
use crew::{Crew, Duty, Next};
use dispatch::Answer;

/// Requests read sooner than this lay waiting; a large one takes longer to be copied.
const WAITED_NOT: Duration = Duration::from_micros(2);

/// So many of them in a row are no accident of scheduling.
const STREAK: u32 = 4;

/// What all threads of a session share.
pub(crate) struct Core {
    pub(crate) device: Arc<OwnedFd>,
    pub(crate) filesystem: Arc<dyn Filesystem>,
    pub(crate) crew: Crew,
    pub(crate) board: Board,
    pub(crate) connection: Connection,
    pub(crate) is_gone: Arc<AtomicBool>,
    groups: GroupCache,
    dialect: Dialect,
    /// Why it ended, told by the first thread that saw it.
    end: Mutex<Option<End>>,
    /// Set when the last thread has left and the file system was told.
    pub(crate) ended: OnceLock<End>,
}

impl Core {
    pub(crate) fn new(
        device: Arc<OwnedFd>,
        filesystem: Arc<dyn Filesystem>,
        connection: Connection,
        crew: Crew,
    ) -> Self {
        Self {
            device,
            filesystem,
            crew,
            board: Board::default(),
            dialect: Dialect { has_setxattr_ext: connection.flags.contains(crate::InitFlags::SETXATTR_EXT) },
            connection,
            is_gone: Arc::new(AtomicBool::new(false)),
            groups: GroupCache::default(),
            end: Mutex::new(None),
            ended: OnceLock::new(),
        }
    }

    /// The connection is gone: nobody will be answered any more.
    fn close(&self, end: End) {
        self.end.lock().get_or_insert(end);
        self.is_gone.store(true, Ordering::Release);
        self.crew.close();
        // Whoever still waits for a server does so for nobody.
        self.board.strike_all();
    }

    /// The whole life of a serving thread.
    pub(crate) fn run(self: &Arc<Self>) {
        let mut lane = Lane {
            core: self,
            duty: self.crew.join(),
            slot: self.board.join(),
            out: Vec::new(),
            data: DataSink::default(),
            lay_waiting: false,
            last_pid: 0,
            streak: 0,
        };
        lane.run();
        self.board.leave(&lane.slot);
        if self.crew.leave(&lane.duty) {
            self.filesystem.destroy();
            let end = self.end.lock().take().unwrap_or(End::Unmounted);
            let _ = self.ended.set(end);
            self.crew.tell_end();
        }
    }
}

/// One serving thread.
struct Lane<'a> {
    core: &'a Arc<Core>,
    duty: Arc<Duty>,
    slot: Arc<Slot>,
    /// The reply, but for the data of a READ.
    out: Vec<u8>,
    data: DataSink,
    /// Whether the request at hand lay waiting when this thread came to read it.
    lay_waiting: bool,
    /// Who sent the last one that somebody waits for.
    last_pid: u32,
    /// How many in a row lay waiting that came from another thread than the one before.
    streak: u32,
}

impl Lane<'_> {
    fn run(&mut self) {
        let write_bytes = usize::try_from(self.core.connection.write_bytes_max).unwrap_or(1 << 20);
        // The kernel refuses to fill a buffer that is too small for the largest request. Pages of it are taken only
        // once they are written to.
        let mut buffer = vec![0; (crate::abi::IN_HEADER_BYTES + WRITE_IN_BYTES + write_bytes).max(64 << 10)];
        let mut next = Next::Read;
        loop {
            next = match next {
                Next::End => return,
                Next::Serve(request) => self.take(&request, Origin::Queue),
                Next::Read => match self.read(&mut buffer) {
                    Ok(bytes) => self.take(buffer.get(..bytes).unwrap_or_default(), Origin::Kernel),
                    Err(end) => {
                        self.core.close(end);
                        Next::End
                    }
                },
            };
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, End> {
        let mut was_aborted = false;
        loop {
            let before = Instant::now();
            match rustix::io::read(&*self.core.device, &mut *buffer) {
                Ok(bytes) => {
                    let copying = Duration::from_nanos(u64::try_from(bytes / 2).unwrap_or(0));
                    self.lay_waiting = before.elapsed() < WAITED_NOT + copying;
                    return Ok(bytes);
                }
                // A request was taken back before it was read, or a signal came.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::NODEV) => return Err(End::Unmounted),
                // Also said of a request that was being read when the last user of an unmounted file system went: how the
                // connection ended tells the next read.
                Err(Errno::CONNABORTED) if !was_aborted => was_aborted = true,
                Err(Errno::CONNABORTED) => return Err(End::Aborted),
                Err(errno) => {
                    tracing::error!(%errno, "reading requests failed");
                    return Err(End::Failed(errno));
                }
            }
        }
    }

    /// Notes whether several application threads have requests here at the same time. That a request lay waiting says
    /// little by itself: who gets his reply may run at once, in this thread's place, and be back before it.
    fn judge(&mut self, pid: u32) {
        if !self.lay_waiting {
            self.streak = 0;
        } else if pid != self.last_pid && self.last_pid != 0 {
            self.streak = self.streak.saturating_add(1);
            if self.streak >= STREAK {
                self.core.crew.note_backlog();
            }
        }
        self.last_pid = pid;
    }

    /// Serves one request; answers what the thread does next.
    fn take(&mut self, request: &[u8], origin: Origin) -> Next {
        let Ok((header, body)) = Header::decode(request) else {
            tracing::error!(bytes = request.len(), "a request without a proper header");
            return self.core.crew.end(&self.duty);
        };
        match Operation::decode(&header, body, self.core.dialect) {
            Ok(Some(operation)) => {
                let raw = matches!(origin, Origin::Kernel).then_some(request);
                self.serve(&header, &operation, raw);
            }
            Ok(None) => {
                tracing::debug!(opcode = header.opcode, "an unknown operation");
                self.send_status(header.unique, Errno::NOSYS.raw_os_error());
            }
            Err(Malformed) => {
                tracing::error!(opcode = header.opcode, bytes = request.len(), "a malformed request");
                if Opcode::from_number(header.opcode).is_none_or(Opcode::has_reply) {
                    self.send_status(header.unique, Errno::IO.raw_os_error());
                }
            }
        }
        self.core.crew.end(&self.duty)
    }

    /// `raw` are the request's bytes, when they may be queued for another thread.
    fn serve(&mut self, header: &Header, operation: &Operation<'_>, raw: Option<&[u8]>) {
        match operation {
            Operation::Forget(one) => return self.forget(&[*one]),
            Operation::BatchForget(many) => return self.forget(&many.iter().collect::<Vec<_>>()),
            Operation::Interrupt { unique } => return self.interrupt(*unique, header.unique),
            _ => {}
        }
        if !self.core.crew.begin(&self.duty, header.unique, raw) {
            return;
        }
        // What is released in the background has nobody who could be signalled, and must be done.
        let is_signallable = !matches!(operation, Operation::Release(_) | Operation::Releasedir(_));
        if is_signallable {
            self.judge(header.pid);
            let given_back = self.core.board.begin(&self.slot, header.unique);
            self.give_back(&given_back);
        }
        let slot = Arc::clone(&self.slot);
        let request = Request::new(*header, &slot, (&self.core.crew, &self.duty), &self.core.groups);
        self.out.clear();
        encode::header(&mut self.out, header.unique, 0);
        let filesystem = &*self.core.filesystem;
        let (out, data) = (&mut self.out, &mut self.data);
        // A panic is a defect, but must not leave the caller waiting for ever.
        let answer = catch_unwind(AssertUnwindSafe(|| {
            dispatch::perform(filesystem, &request, header, operation, out, data)
        }));
        if is_signallable {
            self.core.board.end(&self.slot);
        }
        self.reply(header.unique, &answer.unwrap_or(Err(Errno::IO)));
        if self.data.tells() {
            let filesystem = &*self.core.filesystem;
            if catch_unwind(AssertUnwindSafe(|| filesystem.taken(header.node))).is_err() {
                tracing::error!(node = header.node.0, "being told of a reply panicked");
            }
        }
        self.data.reset(0);
    }

    fn forget(&self, forgets: &[Forget]) {
        // As with other methods: a defect there must not take this thread away.
        let told = catch_unwind(AssertUnwindSafe(|| self.core.filesystem.forget(forgets)));
        if told.is_err() {
            tracing::error!(count = forgets.len(), "forgetting panicked");
        }
    }

    fn reply(&mut self, unique: u64, answer: &Result<Answer, Errno>) {
        match answer {
            Err(errno) => self.send_status(unique, errno.raw_os_error()),
            Ok(Answer::Done) => self.send_status(unique, 0),
            Ok(Answer::Body) => {
                encode::finish(&mut self.out, 0);
                self.write(unique, &[IoSlice::new(&self.out)]);
            }
            Ok(Answer::Data) => {
                encode::finish(&mut self.out, self.data.bytes());
                let mut slices = Vec::with_capacity(8);
                slices.push(IoSlice::new(&self.out));
                self.data.slices(&mut slices);
                self.write(unique, &slices);
            }
        }
    }

    fn send_status(&self, unique: u64, errno: i32) {
        let reply: [u8; OUT_HEADER_BYTES] = encode::status(unique, errno);
        self.write(unique, &[IoSlice::new(&reply)]);
    }

    fn write(&self, unique: u64, parts: &[IoSlice<'_>]) {
        loop {
            match rustix::io::writev(&*self.core.device, parts) {
                Ok(_) => return,
                Err(Errno::INTR) => {}
                // The request, or the connection, is gone.
                Err(Errno::NOENT | Errno::NODEV | Errno::PERM | Errno::CONNABORTED) => return,
                Err(errno) => {
                    tracing::error!(unique, %errno, "a reply was refused");
                    // The caller must not wait for ever for what cannot be said.
                    let status = encode::status(unique, Errno::IO.raw_os_error());
                    let _ = rustix::io::write(&*self.core.device, &status);
                    return;
                }
            }
        }
    }

    fn interrupt(&self, unique: u64, own_unique: u64) {
        let is_of = |request: &Vec<u8>| Header::decode(request).is_ok_and(|(h, _)| h.unique == unique);
        let queued = self.core.crew.queued(|queue| {
            let at = queue.iter().position(is_of)?;
            queue.remove(at)
        });
        if queued.is_some() {
            return self.send_status(unique, Errno::INTR.raw_os_error());
        }
        let given_back = self.core.board.interrupt(unique, own_unique);
        self.give_back(&given_back);
    }

    fn give_back(&self, interrupts: &[u64]) {
        for own_unique in interrupts {
            self.send_status(*own_unique, Errno::AGAIN.raw_os_error());
        }
    }
}

/// Where a request comes from.
#[derive(Clone, Copy)]
enum Origin {
    /// It was read just now.
    Kernel,
    /// Another thread read it, and had to leave it.
    Queue,
}
