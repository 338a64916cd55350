//! From the server's own words to those of reports.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use holdfast_base::{ByteRange, CapSet, ClientId, Clock, Instant};
use holdfast_state::{Access, DelegationKind, Dialect, LockKind};

/// Bytes that clients chose, as one line of text: what is none is escaped.
pub(super) fn text(bytes: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(bytes) else { return bytes.escape_ascii().to_string() };
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

pub(super) fn client_id(id: ClientId) -> String {
    format!("{:016x}", id.0)
}

pub(super) const fn protocol(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::V40 => "NFSv4.0",
        Dialect::V41 => "NFSv4.1+",
    }
}

pub(super) fn access(access: Access) -> String {
    match access.bits() {
        0 => "none",
        1 => "read",
        2 => "write",
        _ => "both",
    }
    .to_owned()
}

pub(super) fn delegated(kind: DelegationKind) -> String {
    match kind {
        DelegationKind::Read => "read",
        DelegationKind::Write => "write",
        DelegationKind::Directory => "directory",
        DelegationKind::NotifiedDirectory(_) => "directory, notified",
    }
    .to_owned()
}

/// Capabilities, kind by kind.
pub(super) fn capabilities(held: CapSet) -> String {
    let kinds = [
        ("auth", CapSet::AUTH_S, CapSet::AUTH_X),
        ("link", CapSet::LINK_S, CapSet::LINK_X),
        ("xattr", CapSet::XATTR_S, CapSet::XATTR_X),
        ("file", CapSet::FILE_S, CapSet::FILE_X),
    ];
    let word = |(kind, shared, exclusive)| match (held.contains(shared), held.contains(exclusive)) {
        (_, true) => Some(format!("{kind}=x")),
        (true, _) => Some(format!("{kind}=s")),
        _ => None,
    };
    kinds.into_iter().filter_map(word).collect::<Vec<_>>().join(" ")
}

pub(super) fn range((range, kind): (ByteRange, LockKind)) -> holdfast_admin::report::Range {
    let kind = match kind {
        LockKind::Read => "read",
        LockKind::Write => "write",
    };
    let last = (range.last() != u64::MAX).then(|| range.last());
    holdfast_admin::report::Range { kind: kind.to_owned(), first: range.first(), last }
}

/// Now, in milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Turns moments of the server's clock into times of day: the same moment into the same time, until the time of day
/// is set.
#[derive(Debug, Default)]
pub(super) struct Calendar {
    /// When the server's clock stood at 0, in milliseconds since 1970; 0 as long as nobody asked.
    origin: AtomicU64,
}

/// What two looks at the clocks may differ by without any of them having been set.
const JITTER_MS: u64 = 500;

impl Calendar {
    /// Looks whether the time of day was set, before a report is made.
    pub(super) fn look(&self, clock: &dyn Clock) {
        let origin = unix_ms().saturating_sub(clock.now().0);
        if self.origin.load(Ordering::Relaxed).abs_diff(origin) > JITTER_MS {
            self.origin.store(origin, Ordering::Relaxed);
        }
    }

    pub(super) fn unix_ms(&self, at: Instant) -> u64 {
        self.origin.load(Ordering::Relaxed).saturating_add(at.0)
    }
}

/// A path as the kernel tells it of a descriptor: where it is, and whether it is no more.
pub(super) fn path(path: &Path) -> (String, bool) {
    use std::os::unix::ffi::OsStrExt as _;
    let bytes = path.as_os_str().as_bytes();
    // A file may be called so and live.
    match bytes.strip_suffix(b" (deleted)").filter(|_| path.symlink_metadata().is_err()) {
        Some(former) => (text(former), true),
        None => (text(bytes), false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_no_text_do_not_break_a_line() {
        assert_eq!(text("Linux NFSv4.2 müller".as_bytes()), "Linux NFSv4.2 müller");
        assert_eq!(text(b"a\nb\x1b[2J\t"), r"a\nb\u{1b}[2J\t");
        assert_eq!(text(b"\xff\x00x"), r"\xff\x00x");
    }

    #[test]
    fn a_file_is_deleted_when_nothing_of_its_name_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join("a (deleted)");
        std::fs::write(&odd, "").unwrap();
        assert_eq!(path(&odd), (odd.display().to_string(), false));
        let gone = dir.path().join("b (deleted)");
        assert_eq!(path(&gone), (dir.path().join("b").display().to_string(), true));
    }
}
