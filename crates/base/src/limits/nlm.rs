//! NLM and NSM.

/// Bytes of an NLM cookie, handle or owner (`MAXNETOBJ_SZ`).
pub const NLM_OBJECT_BYTES_MAX: usize = 1024;

/// Bytes of a host's name in NLM and NSM (`LM_MAXSTRLEN`, `SM_MAXSTRLEN`).
pub const NLM_NAME_BYTES_MAX: usize = 1024;

/// Hosts that hold locks by NLM, or held some lately: each is a record in the store and some 200 bytes here.
pub const NLM_HOSTS_MAX: usize = 16_384;

/// Pairs of an NLM lock-owner and a file it holds something of, of all hosts: each may have a descriptor.
pub const NLM_OWNER_FILES_MAX: usize = 65_536;

/// The same of one site, so that none takes all: hosts name themselves, and an address may have many names.
pub const NLM_OWNER_FILES_PER_SITE_MAX: usize = 16_384;

/// Byte ranges that the hosts of one site hold, a quarter of what the door may have (`LOCK_RANGES_PER_DOOR_MAX`).
pub const NLM_RANGES_PER_SITE_MAX: usize = 131_072;

/// Hosts at one site (an IPv4 address, or a network of IPv6), whatever they call themselves.
pub const NLM_HOSTS_PER_SITE_MAX: usize = 1024;

/// Blocking lock requests of all NLM hosts that wait; one more is denied, and its client asks again.
pub const NLM_BLOCKED_MAX: usize = 16_384;

/// The same of one site.
pub const NLM_BLOCKED_PER_SITE_MAX: usize = 4096;

/// Such requests of one lock-owner on one file: a process waits for one lock at a time, but an NLM owner may be a
/// client that counts all of its threads as one.
pub const NLM_BLOCKED_PER_OWNER_FILE_MAX: usize = 64;

/// Milliseconds for which a lock granted to a waiter is held while its client does not answer GRANTED: as long as
/// Linux's client waits before it asks again by itself.
pub const NLM_GRANTED_PATIENCE_MS: u64 = 30_000;

/// Milliseconds after which a host that holds nothing is forgotten, and not told of a restart any more.
pub const NLM_HOST_IDLE_MS: u64 = 300_000;

/// Calls of ours to NLM and NSM clients under way at once.
pub const NLM_CALLS_MAX: usize = 256;

/// Those of them to one site: one that does not answer keeps each for ten seconds.
pub const NLM_CALLS_PER_SITE_MAX: usize = 32;

/// Results under way that NLM's callers want by calls of ours: an obsolete form, which Linux does not use.
pub const NLM_RESULTS_MAX: usize = 64;

/// Those of them to one site.
pub const NLM_RESULTS_PER_SITE_MAX: usize = 8;

/// Ports of clients' NLM and NSM that are remembered: 40 bytes each.
pub const NLM_PORTS_MAX: usize = 4096;

/// Milliseconds for which a host is told again and again that the server restarted, as `sm-notify` does.
pub const NSM_NOTIFY_MS: u64 = 900_000;

/// Hosts that are being told at the same time.
pub const NSM_NOTIFY_AT_ONCE_MAX: usize = 64;

/// Hosts that programs of this machine have the status monitor watch: the kernel's own client does for each NFSv3
/// server with locks.
pub const NSM_MONITORS_MAX: usize = 1024;
