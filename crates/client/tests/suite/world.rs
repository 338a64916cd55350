//! What the tests stand on: a server over a directory of its own, clients of it, and who hears their callbacks.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_client::{
    Attributes, Callbacks, Cancel, Client, Create, CreateMode, Cred, Cx, Event, Handle, HeldAttributes,
    OpenArgs, OpenFile, OpenTarget, Opened, Options, Recall, SetAttributes, WantDelegation,
};
use holdfast_lab::{ServerBuilder, ServerUnderTest};
use parking_lot::{Condvar, Mutex};

/// How long a test waits for what must come, on a machine that is busy with other tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A server and the directory that it exports.
pub(crate) struct World {
    pub(crate) server: ServerUnderTest,
    pub(crate) directory: PathBuf,
    _temporary: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|builder| builder)
    }

    pub(crate) fn with(adjust: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Self {
        Self::within(tempfile::tempdir().unwrap(), adjust)
    }

    fn within(temporary: tempfile::TempDir, adjust: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Self {
        let directory = temporary.path().join("export");
        std::fs::create_dir(&directory).unwrap();
        let builder = adjust(ServerUnderTest::builder(&directory).listen_on("127.0.0.1"));
        // The port that was free a moment ago may be somebody's by now.
        let server = (0..5).find_map(|_| builder.clone().start().ok());
        let server = server.unwrap_or_else(|| builder.start().unwrap());
        Self { server, directory, _temporary: temporary }
    }

    /// Whose server delegates directories that have changed since the client came, for this one compares what it knows.
    pub(crate) fn delegating_directories() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let config = temporary.path().join("config.toml");
        std::fs::write(&config, "directory_delegations = \"always\"\n").unwrap();
        Self::within(temporary, |builder| builder.arguments(&["--config", &config.to_string_lossy()]))
    }

    /// Has the server answer nothing: every thread of it stands still when this returns.
    pub(crate) fn hang(&self) {
        self.server.pause().unwrap();
        let stat = format!("/proc/{}/stat", self.server.pid().unwrap());
        let until = Instant::now() + PATIENCE;
        while !std::fs::read_to_string(&stat).unwrap().contains(") T ") {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.server.port())
    }

    pub(crate) fn options(&self) -> Options {
        Options::new(vec![self.address()])
    }

    pub(crate) fn client(&self) -> User {
        User::connect(self.options())
    }
}

/// A client with a user's credential, and what its callbacks said.
pub(crate) struct User {
    pub(crate) client: Client,
    pub(crate) cred: Cred,
    pub(crate) cancel: Cancel,
    pub(crate) heard: Arc<Heard>,
    pub(crate) root: Handle,
}

/// What a client was called back with.
#[derive(Default)]
pub(crate) struct Heard {
    pub(crate) state: Mutex<Said>,
    changed: Condvar,
}

#[derive(Default, Clone, Debug)]
pub(crate) struct Said {
    pub(crate) recalls: Vec<(Handle, Recall)>,
    pub(crate) gone: Vec<(Handle, u64)>,
    pub(crate) lost: Vec<(Handle, Vec<u8>)>,
    pub(crate) events: Vec<Event>,
    pub(crate) held: Option<HeldAttributes>,
}

impl Heard {
    fn note(&self, note: impl FnOnce(&mut Said)) {
        note(&mut self.state.lock());
        self.changed.notify_all();
    }

    /// Waits until `is_there`.
    pub(crate) fn wait(&self, what: &str, is_there: impl Fn(&Said) -> bool) {
        let until = Instant::now() + PATIENCE;
        let mut state = self.state.lock();
        while !is_there(&state) {
            let timed_out = self.changed.wait_until(&mut state, until).timed_out();
            assert!(!timed_out, "{what} did not happen: {:?}", *state);
        }
    }
}

impl Callbacks for Heard {
    fn recall(&self, file: &Handle, recall: Recall) {
        self.note(|said| said.recalls.push((file.clone(), recall)));
    }

    fn held_attributes(&self, _: &Handle) -> Option<HeldAttributes> {
        self.state.lock().held
    }

    fn delegation_gone(&self, file: &Handle, number: u64) {
        self.note(|said| said.gone.push((file.clone(), number)));
    }

    fn locks_lost(&self, file: &Handle, owner: &[u8]) {
        self.note(|said| said.lost.push((file.clone(), owner.to_vec())));
    }

    fn happened(&self, event: &Event) {
        self.note(|said| said.events.push(event.clone()));
    }
}

impl User {
    pub(crate) fn connect(options: Options) -> Self {
        let (cred, cancel, heard) = (Cred::sys(0, 0, &[]), Cancel::new(), Arc::new(Heard::default()));
        let client = Client::connect(options, Arc::clone(&heard) as _, &cancel).unwrap();
        let root = client.root(Cx::new(&cred, &cancel), b"/export").unwrap().handle;
        client.adopt_root(Cx::new(&cred, &cancel), &root).unwrap();
        Self { client, cred, cancel, heard, root }
    }

    pub(crate) fn cx(&self) -> Cx<'_> {
        Cx::new(&self.cred, &self.cancel)
    }

    /// Opens a name of the root to read and write.
    pub(crate) fn open(&self, name: &str, create: Option<CreateMode>, delegation: WantDelegation) -> Opened {
        let set = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
        let args = OpenArgs {
            target: OpenTarget::Name(&self.root, name.as_bytes()),
            access: 3,
            deny: 0,
            create: create.map(|mode| Create { mode, set: &set }),
            delegation,
            want: Attributes::STAT,
        };
        self.client.open(self.cx(), &args).unwrap()
    }

    /// Makes a file and keeps it open.
    pub(crate) fn make(&self, name: &str) -> OpenFile {
        self.open(name, Some(CreateMode::Unchecked), WantDelegation::No).file
    }
}
