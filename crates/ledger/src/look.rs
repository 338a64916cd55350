//! Looking at the file system for settling: what stands where an intent was about to change something.

use std::hash::Hasher;

use holdfast_recovery::intent::NodeKind;
use holdfast_recovery::{Facts, Intent, Look, Seen, Sequence, Settled, settle};
use holdfast_vfs::{
    AttrMask, Attrs, Backend, Caller, Cx, FileKind, FsError, FsResult, Handle, Name, Node, Wait,
};
use siphasher::sip128::{Hasher128, SipHasher13};

/// What one look brought, owned; [`Seen`] borrows from it.
#[expect(clippy::large_enum_variant, reason = "for a moment at a start")]
enum Found {
    Absent,
    Object { handle: Handle, attrs: Attrs, text: Vec<u8> },
    Xattr([u8; 16]),
    Failed,
}

/// Settles an intent by looking now, with the server's own rights.
pub(crate) fn settle_now(backend: &dyn Backend, intent: &Intent<'_>) -> Settled {
    let caller = Caller::root();
    let cx = Cx::new(&caller, Wait::Yes);
    let found = intent.looks().map(|l| l.map_or(Found::Absent, |l| look(backend, &cx, &l)));
    settle(intent, [found[0].seen(), found[1].seen()])
}

/// The same, of operations that followed each other.
pub(crate) fn settle_together(backend: &dyn Backend, sequence: &Sequence<'_>) -> Vec<Settled> {
    let caller = Caller::root();
    let cx = Cx::new(&caller, Wait::Yes);
    let found: Vec<_> = sequence.looks().iter().map(|of| look(backend, &cx, of)).collect();
    let seen: Vec<_> = found.iter().map(Found::seen).collect();
    sequence.settle(&seen)
}

/// What an intent that has happened made: its name may stand for something else by the time that the request comes again.
pub(crate) fn made(backend: &dyn Backend, intent: &Intent<'_>) -> Option<Node> {
    let Intent::Make { at, .. } = intent else { return None };
    let (dir, name) = (handle(at.dir).ok()?, Name::new(at.name).ok()?);
    let caller = Caller::root();
    backend.lookup(&Cx::new(&caller, Wait::Yes), &dir, name, AttrMask::ALL).ok()
}

fn look(backend: &dyn Backend, cx: &Cx<'_>, at: &Look<'_>) -> Found {
    let seen = match at {
        Look::Name(place) => handle(place.dir).and_then(|dir| {
            let node = backend.lookup(cx, &dir, Name::new(place.name)?, AttrMask::STAT | AttrMask::BIRTH)?;
            object(backend, cx, node.handle, node.attrs)
        }),
        Look::Object(bytes) => handle(bytes).and_then(|of| {
            let attrs = backend.getattr(cx, &of, AttrMask::STAT | AttrMask::BIRTH)?;
            object(backend, cx, of, attrs)
        }),
        Look::Xattr { object, name } => handle(object)
            .and_then(|of| backend.getxattr(cx, &of, name))
            .map(|value| Found::Xattr(value_hash(&value))),
    };
    seen.unwrap_or_else(|error| match error {
        FsError::NotFound | FsError::Stale | FsError::NoXattr | FsError::NotDir => Found::Absent,
        error => {
            tracing::warn!(%error, "cannot look what became of a request that a crash cut short");
            Found::Failed
        }
    })
}

fn handle(bytes: &[u8]) -> FsResult<Handle> {
    Handle::new(bytes).ok_or(FsError::Stale)
}

fn object(backend: &dyn Backend, cx: &Cx<'_>, handle: Handle, attrs: Attrs) -> FsResult<Found> {
    let text = if attrs.kind == FileKind::Symlink { backend.readlink(cx, &handle)? } else { Vec::new() };
    Ok(Found::Object { handle, attrs, text })
}

impl Found {
    fn seen(&self) -> Seen<'_> {
        match self {
            Self::Absent => Seen::Absent,
            Self::Object { handle, attrs, text } => Seen::Object(Facts {
                handle: handle.as_bytes(),
                kind: kind_of(attrs, text),
                ctime: attrs.ctime,
                birth: attrs.btime,
            }),
            Self::Xattr(hash) => Seen::Xattr(*hash),
            Self::Failed => Seen::Failed,
        }
    }
}

fn kind_of<'a>(attrs: &Attrs, text: &'a [u8]) -> NodeKind<'a> {
    let device = attrs.rdev;
    match attrs.kind {
        FileKind::Regular => NodeKind::Regular,
        FileKind::Directory => NodeKind::Directory,
        FileKind::Symlink => NodeKind::Symlink(text),
        FileKind::Fifo => NodeKind::Fifo,
        FileKind::Socket => NodeKind::Socket,
        FileKind::Char => NodeKind::Char(device.major, device.minor),
        FileKind::Block => NodeKind::Block(device.major, device.minor),
    }
}

/// The hash by which an extended attribute's value is known again. Goes to disk: it must stay as it is.
pub(crate) fn value_hash(value: &[u8]) -> [u8; 16] {
    let mut hasher = SipHasher13::new();
    hasher.write(value);
    hasher.finish128().as_bytes()
}
