//! Why an operation failed, after everything that recovery could do.

use holdfast_rpc::CallError;
use holdfast_rpc::link::Stopped;
use holdfast_wire::nfs4::NfsStat4;
use rustix::io::Errno;

/// Why an operation failed. Delays, grace, and the loss of connections, sessions and state that could be had again are
/// dealt with inside and never seen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The server's answer.
    #[error("the server answered {0:?}")]
    Nfs(NfsStat4),
    /// The caller's token was given. What was asked may still happen.
    #[error("given up")]
    Cancelled,
    /// A soft mount's time is over. What was asked may still happen.
    #[error("the server did not answer in time")]
    TimedOut,
    /// An open, a lock or a delegation that the server does not know any more, and that could not be had again.
    #[error("the server has lost the state of this file")]
    Lost,
    /// The client was shut down.
    #[error("the client is shut down")]
    Closed,
    /// The connection broke under a call of another program, which is not repeated by itself.
    #[error("the connection broke")]
    Disconnected,
    /// A call of another program failed below it.
    #[error(transparent)]
    Rpc(CallError),
    /// The server's answer makes no sense.
    #[error("the server's answer makes no sense: {0}")]
    Protocol(&'static str),
    /// No server could be reached, or none that serves us.
    #[error("no server to be had: {0}")]
    Unreachable(String),
}

/// The result of an operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The server's status, when it is one.
    #[must_use]
    pub const fn status(&self) -> Option<NfsStat4> {
        match self {
            Self::Nfs(status) => Some(*status),
            _ => None,
        }
    }

    /// Why, for an error that says itself that no server is to be had.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Unreachable(why) => why.clone(),
            other => other.to_string(),
        }
    }

    /// What an application is told.
    #[must_use]
    pub const fn errno(&self) -> Errno {
        match self {
            Self::Nfs(status) => errno_of(*status),
            Self::Cancelled => Errno::INTR,
            Self::TimedOut => Errno::TIMEDOUT,
            Self::Lost | Self::Protocol(_) | Self::Rpc(_) | Self::Disconnected => Errno::IO,
            Self::Closed => Errno::NOTCONN,
            Self::Unreachable(_) => Errno::HOSTUNREACH,
        }
    }
}

impl From<Stopped> for Error {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Cancelled => Self::Cancelled,
            Stopped::TimedOut => Self::TimedOut,
        }
    }
}

impl From<holdfast_xdr::Error> for Error {
    fn from(_: holdfast_xdr::Error) -> Self {
        Self::Protocol("a result that cannot be decoded")
    }
}

/// The errno that applications know a status as.
#[must_use]
pub const fn errno_of(status: NfsStat4) -> Errno {
    use NfsStat4 as S;
    match status {
        S::Perm | S::WrongSec | S::BadOwner => Errno::PERM,
        S::NoEnt => Errno::NOENT,
        S::Nxio => Errno::NXIO,
        S::Access => Errno::ACCESS,
        S::Exist => Errno::EXIST,
        S::Xdev => Errno::XDEV,
        S::NotDir => Errno::NOTDIR,
        S::IsDir => Errno::ISDIR,
        S::Inval | S::BadChar | S::BadName | S::BadType | S::BadRange | S::UnionNotSupp => Errno::INVAL,
        S::Fbig => Errno::FBIG,
        S::NoSpc => Errno::NOSPC,
        S::Rofs => Errno::ROFS,
        S::Mlink => Errno::MLINK,
        S::NameTooLong => Errno::NAMETOOLONG,
        S::NotEmpty => Errno::NOTEMPTY,
        S::Dquot => Errno::DQUOT,
        S::Stale | S::BadHandle | S::FhExpired => Errno::STALE,
        S::NotSupp | S::AttrNotSupp | S::OpIllegal | S::OffloadNoReqs | S::LockNotSupp => Errno::OPNOTSUPP,
        S::TooSmall | S::LockRange => Errno::INVAL,
        S::Denied | S::Locked | S::Delay | S::Grace => Errno::AGAIN,
        S::Deadlock => Errno::DEADLK,
        S::ShareDenied | S::FileOpen => Errno::BUSY,
        S::Symlink => Errno::LOOP,
        S::OpenMode => Errno::BADF,
        S::NoXattr => Errno::NODATA,
        S::Xattr2Big => Errno::TOOBIG,
        S::Moved => Errno::REMOTE,
        _ => Errno::IO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_is_told_what_it_knows() {
        assert_eq!(Error::Nfs(NfsStat4::NoEnt).errno(), Errno::NOENT);
        assert_eq!(Error::Nfs(NfsStat4::ServerFault).errno(), Errno::IO);
        assert_eq!(Error::from(Stopped::Cancelled).errno(), Errno::INTR);
        assert_eq!(Error::Lost.errno(), Errno::IO);
    }
}
