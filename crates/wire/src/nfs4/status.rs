//! `nfsstat4`: the status of an NFSv4 operation. The numbers are those of RFC 7530, 8881, 7862 and 8276.

use holdfast_xdr::{Decode, Encode};

use crate::number::numbered;

numbered! {
    /// The status of an operation, and of a compound (its last operation's).
    NfsStat4 {
        Ok = 0, "NFS4_OK", "The operation succeeded.";
        Perm = 1, "NFS4ERR_PERM", "The caller is neither privileged nor the owner.";
        NoEnt = 2, "NFS4ERR_NOENT", "No such file or directory.";
        Io = 5, "NFS4ERR_IO", "A hard I/O error.";
        Nxio = 6, "NFS4ERR_NXIO", "No such device or address.";
        Access = 13, "NFS4ERR_ACCESS", "The caller lacks the permission.";
        Exist = 17, "NFS4ERR_EXIST", "The name exists already.";
        Xdev = 18, "NFS4ERR_XDEV", "The objects lie in different file systems.";
        NotDir = 20, "NFS4ERR_NOTDIR", "Not a directory.";
        IsDir = 21, "NFS4ERR_ISDIR", "A directory.";
        Inval = 22, "NFS4ERR_INVAL", "An invalid argument.";
        Fbig = 27, "NFS4ERR_FBIG", "The file would exceed the server's maximum.";
        NoSpc = 28, "NFS4ERR_NOSPC", "The file system is full.";
        Rofs = 30, "NFS4ERR_ROFS", "The file system is read-only.";
        Mlink = 31, "NFS4ERR_MLINK", "Too many hard links.";
        NameTooLong = 63, "NFS4ERR_NAMETOOLONG", "The name is longer than the server allows.";
        NotEmpty = 66, "NFS4ERR_NOTEMPTY", "The directory is not empty.";
        Dquot = 69, "NFS4ERR_DQUOT", "The hard quota is reached.";
        Stale = 70, "NFS4ERR_STALE", "The object of the handle no longer exists.";
        BadHandle = 10001, "NFS4ERR_BADHANDLE", "The handle is none of ours.";
        BadCookie = 10003, "NFS4ERR_BAD_COOKIE", "The READDIR cookie is no longer valid.";
        NotSupp = 10004, "NFS4ERR_NOTSUPP", "The operation is legal but not supported here.";
        TooSmall = 10005, "NFS4ERR_TOOSMALL", "The reply does not fit the caller's limit.";
        ServerFault = 10006, "NFS4ERR_SERVERFAULT", "The server failed in a way that has no other code.";
        BadType = 10007, "NFS4ERR_BADTYPE", "The server cannot make an object of this type.";
        Delay = 10008, "NFS4ERR_DELAY", "Busy: try again later.";
        Same = 10009, "NFS4ERR_SAME", "NVERIFY found the attributes to be the same.";
        Denied = 10010, "NFS4ERR_DENIED", "The lock is held by somebody else.";
        Expired = 10011, "NFS4ERR_EXPIRED", "The lease on the state has expired.";
        Locked = 10012, "NFS4ERR_LOCKED", "A lock forbids the I/O.";
        Grace = 10013, "NFS4ERR_GRACE", "The server is in its grace period.";
        FhExpired = 10014, "NFS4ERR_FHEXPIRED", "The volatile handle has expired.";
        ShareDenied = 10015, "NFS4ERR_SHARE_DENIED", "A share reservation forbids the open.";
        WrongSec = 10016, "NFS4ERR_WRONGSEC", "The security flavor is not allowed here.";
        ClidInUse = 10017, "NFS4ERR_CLID_INUSE", "The client's name is used by another principal.";
        Resource = 10018, "NFS4ERR_RESOURCE", "The server ran out of something (4.0 only).";
        Moved = 10019, "NFS4ERR_MOVED", "The file system lies elsewhere now.";
        NoFileHandle = 10020, "NFS4ERR_NOFILEHANDLE", "No current (or saved) filehandle.";
        MinorVersMismatch = 10021, "NFS4ERR_MINOR_VERS_MISMATCH", "The minor version is not supported.";
        StaleClientId = 10022, "NFS4ERR_STALE_CLIENTID",
            "The client id is unknown: from before a restart, or never given out.";
        StaleStateid = 10023, "NFS4ERR_STALE_STATEID", "The state id is from before a restart.";
        OldStateid = 10024, "NFS4ERR_OLD_STATEID", "The state id's seqid is not the newest.";
        BadStateid = 10025, "NFS4ERR_BAD_STATEID", "The state id is none that the operation can use.";
        BadSeqid = 10026, "NFS4ERR_BAD_SEQID", "The 4.0 owner's sequence number is out of order.";
        NotSame = 10027, "NFS4ERR_NOT_SAME",
            "VERIFY found the attributes to differ; or a READDIR verifier is not current.";
        LockRange = 10028, "NFS4ERR_LOCK_RANGE",
            "The range overlaps the owner's locks in a way that is not supported.";
        Symlink = 10029, "NFS4ERR_SYMLINK", "A symbolic link where none may stand.";
        RestoreFh = 10030, "NFS4ERR_RESTOREFH", "No saved filehandle to restore.";
        LeaseMoved = 10031, "NFS4ERR_LEASE_MOVED", "A file system with state of the client has moved.";
        AttrNotSupp = 10032, "NFS4ERR_ATTRNOTSUPP", "An attribute is not supported.";
        NoGrace = 10033, "NFS4ERR_NO_GRACE",
            "A reclaim outside the grace period, or by one who may not reclaim.";
        ReclaimBad = 10034, "NFS4ERR_RECLAIM_BAD", "The server knows that the reclaim is not justified.";
        ReclaimConflict = 10035, "NFS4ERR_RECLAIM_CONFLICT",
            "The reclaim conflicts with state granted already.";
        BadXdr = 10036, "NFS4ERR_BADXDR", "The arguments could not be decoded.";
        LocksHeld = 10037, "NFS4ERR_LOCKS_HELD", "Locks are held that CLOSE or FREE_STATEID may not drop.";
        OpenMode = 10038, "NFS4ERR_OPENMODE", "The open's mode does not allow the operation.";
        BadOwner = 10039, "NFS4ERR_BADOWNER", "The owner or group name has no translation.";
        BadChar = 10040, "NFS4ERR_BADCHAR", "A character that the server does not support.";
        BadName = 10041, "NFS4ERR_BADNAME", "A name that the server does not support.";
        BadRange = 10042, "NFS4ERR_BAD_RANGE", "The lock range is beyond what the server can hold.";
        LockNotSupp = 10043, "NFS4ERR_LOCK_NOTSUPP",
            "An upgrade or downgrade that the server cannot do atomically.";
        OpIllegal = 10044, "NFS4ERR_OP_ILLEGAL", "No such operation in this minor version.";
        Deadlock = 10045, "NFS4ERR_DEADLOCK", "Waiting for the lock would deadlock.";
        FileOpen = 10046, "NFS4ERR_FILE_OPEN", "An open file forbids the operation.";
        AdminRevoked = 10047, "NFS4ERR_ADMIN_REVOKED", "The state was revoked by the administrator.";
        CbPathDown = 10048, "NFS4ERR_CB_PATH_DOWN", "The callback path is down.";
        BadIoMode = 10049, "NFS4ERR_BADIOMODE", "An I/O mode that the operation does not allow.";
        BadLayout = 10050, "NFS4ERR_BADLAYOUT", "The layout arguments are not supported.";
        BadSessionDigest = 10051, "NFS4ERR_BAD_SESSION_DIGEST", "SET_SSV's digest is wrong.";
        BadSession = 10052, "NFS4ERR_BADSESSION", "No such session.";
        BadSlot = 10053, "NFS4ERR_BADSLOT", "The slot is beyond the session's slot table.";
        CompleteAlready = 10054, "NFS4ERR_COMPLETE_ALREADY", "RECLAIM_COMPLETE was done already.";
        ConnNotBoundToSession = 10055, "NFS4ERR_CONN_NOT_BOUND_TO_SESSION",
            "The connection is not bound to the session.";
        DelegAlreadyWanted = 10056, "NFS4ERR_DELEG_ALREADY_WANTED",
            "The client has asked for this delegation already.";
        BackChanBusy = 10057, "NFS4ERR_BACK_CHAN_BUSY", "Callbacks are outstanding.";
        LayoutTryLater = 10058, "NFS4ERR_LAYOUTTRYLATER", "No layout now: try again later.";
        LayoutUnavailable = 10059, "NFS4ERR_LAYOUTUNAVAILABLE", "No layout for this file.";
        NoMatchingLayout = 10060, "NFS4ERR_NOMATCHING_LAYOUT",
            "The client holds no layout that matches the recall.";
        RecallConflict = 10061, "NFS4ERR_RECALLCONFLICT", "A recall of the layout is under way.";
        UnknownLayoutType = 10062, "NFS4ERR_UNKNOWN_LAYOUTTYPE", "The layout type is not known.";
        SeqMisordered = 10063, "NFS4ERR_SEQ_MISORDERED", "The slot's sequence number is out of order.";
        SequencePos = 10064, "NFS4ERR_SEQUENCE_POS", "SEQUENCE is not the first operation.";
        ReqTooBig = 10065, "NFS4ERR_REQ_TOO_BIG", "The request exceeds the channel's maximum.";
        RepTooBig = 10066, "NFS4ERR_REP_TOO_BIG", "The reply would exceed the channel's maximum.";
        RepTooBigToCache = 10067, "NFS4ERR_REP_TOO_BIG_TO_CACHE",
            "The reply would exceed what the session caches.";
        RetryUncachedRep = 10068, "NFS4ERR_RETRY_UNCACHED_REP", "A retry whose reply was not cached.";
        UnsafeCompound = 10069, "NFS4ERR_UNSAFE_COMPOUND", "The compound cannot be recovered safely.";
        TooManyOps = 10070, "NFS4ERR_TOO_MANY_OPS", "More operations than the channel allows.";
        OpNotInSession = 10071, "NFS4ERR_OP_NOT_IN_SESSION", "The operation needs SEQUENCE before it.";
        HashAlgUnsupp = 10072, "NFS4ERR_HASH_ALG_UNSUPP", "No hash algorithm in common.";
        ClientIdBusy = 10074, "NFS4ERR_CLIENTID_BUSY", "The client id still has state.";
        PnfsIoHole = 10075, "NFS4ERR_PNFS_IO_HOLE", "I/O to a hole of a sparse stripe.";
        SeqFalseRetry = 10076, "NFS4ERR_SEQ_FALSE_RETRY", "A retry that differs from its original.";
        BadHighSlot = 10077, "NFS4ERR_BAD_HIGH_SLOT", "The highest slot id is below the slot in use.";
        DeadSession = 10078, "NFS4ERR_DEADSESSION",
            "The session's persistent replies remain, it takes nothing new.";
        EncrAlgUnsupp = 10079, "NFS4ERR_ENCR_ALG_UNSUPP", "No encryption algorithm in common.";
        PnfsNoLayout = 10080, "NFS4ERR_PNFS_NO_LAYOUT", "I/O to a data server without a layout.";
        NotOnlyOp = 10081, "NFS4ERR_NOT_ONLY_OP", "The operation must stand alone.";
        WrongCred = 10082, "NFS4ERR_WRONG_CRED", "The credential does not fit the state.";
        WrongType = 10083, "NFS4ERR_WRONG_TYPE", "The object is of the wrong type.";
        DirDelegUnavail = 10084, "NFS4ERR_DIRDELEG_UNAVAIL", "No directory delegation now.";
        RejectDeleg = 10085, "NFS4ERR_REJECT_DELEG", "The client rejects the pushed delegation.";
        ReturnConflict = 10086, "NFS4ERR_RETURNCONFLICT", "The layout conflicts with a return under way.";
        DelegRevoked = 10087, "NFS4ERR_DELEG_REVOKED", "The delegation or layout was revoked.";
        PartnerNotSupp = 10088, "NFS4ERR_PARTNER_NOTSUPP", "The other server does not support the copy.";
        PartnerNoAuth = 10089, "NFS4ERR_PARTNER_NO_AUTH", "The other server does not authorize the copy.";
        UnionNotSupp = 10090, "NFS4ERR_UNION_NOTSUPP", "An arm of a union is not supported.";
        OffloadDenied = 10091, "NFS4ERR_OFFLOAD_DENIED", "The destination does not allow the copy.";
        WrongLfs = 10092, "NFS4ERR_WRONG_LFS", "The label's format is not supported.";
        BadLabel = 10093, "NFS4ERR_BADLABEL", "The label is invalid.";
        OffloadNoReqs = 10094, "NFS4ERR_OFFLOAD_NO_REQS", "The copy's requirements cannot be met.";
        NoXattr = 10095, "NFS4ERR_NOXATTR", "No such extended attribute.";
        Xattr2Big = 10096, "NFS4ERR_XATTR2BIG", "The extended attribute's value is too big.";
    }
}
