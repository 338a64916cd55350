//! What became of a call, or of one part of it.

use holdfast_xdr::{Decode, Encode};

use crate::number::numbered;

numbered! {
    /// A status. Numbers below 20,000 are NFSv4's and mean what they mean there (RFC 8881 section 15.1).
    CapsStat {
        Ok = 0, "OK", "Done.";
        Perm = 1, "PERM", "The caller is neither privileged nor the owner.";
        NoEnt = 2, "NOENT", "No such name.";
        Io = 5, "IO", "A hard I/O error.";
        Nxio = 6, "NXIO", "No such device or address.";
        Access = 13, "ACCESS", "The caller lacks the permission.";
        Exist = 17, "EXIST", "The name exists already.";
        Xdev = 18, "XDEV", "The objects lie in different file systems.";
        NotDir = 20, "NOTDIR", "Not a directory.";
        IsDir = 21, "ISDIR", "A directory.";
        Inval = 22, "INVAL", "An invalid argument.";
        Fbig = 27, "FBIG", "The file would exceed the server's maximum.";
        NoSpc = 28, "NOSPC", "The file system is full.";
        Rofs = 30, "ROFS", "The file system, or the export, is read-only.";
        Mlink = 31, "MLINK", "Too many hard links.";
        NameTooLong = 63, "NAMETOOLONG", "The name is longer than the file system allows.";
        NotEmpty = 66, "NOTEMPTY", "The directory is not empty.";
        Dquot = 69, "DQUOT", "The quota is reached.";
        Stale = 70, "STALE", "The object of the handle no longer exists.";
        BadHandle = 10_001, "BADHANDLE", "The handle is none of this server's.";
        BadCookie = 10_003, "BAD_COOKIE", "The cookie is not one of this directory.";
        NotSupp = 10_004, "NOTSUPP", "Not served here.";
        TooSmall = 10_005, "TOOSMALL", "Not even one entry fits.";
        ServerFault = 10_006, "SERVERFAULT", "The server failed in a way that has no other name.";
        BadType = 10_007, "BADTYPE", "The server cannot make an object of this kind.";
        Delay = 10_008, "DELAY", "Busy, or others have to give back first: the same again, a little later.";
        Grace = 10_013, "GRACE", "Only reclaims are served now.";
        WrongSec = 10_016, "WRONGSEC", "The credential's flavor is not allowed here.";
        Moved = 10_019, "MOVED", "The export is served elsewhere: nothing was done.";
        Symlink = 10_029, "SYMLINK", "A symbolic link where none may stand.";
        NoGrace = 10_033, "NO_GRACE", "There is nothing to reclaim: the client was not known to hold anything.";
        BadName = 10_041, "BADNAME", "No name for an entry.";
        FileOpen = 10_046, "FILE_OPEN", "The object is in use.";
        BadSession = 10_052, "BADSESSION", "HELLO named no session that lives.";
        NoXattr = 10_095, "NOXATTR", "No such extended attribute.";
        Xattr2Big = 10_096, "XATTR2BIG", "The extended attribute's value is too big.";
        BadTicket = 20_001, "BADTICKET", "Not the client's ticket any more: HELLO again.";
        Depends = 20_002, "DEPENDS", "An operation of a batch needs what an earlier one failed to make.";
        BadRef = 20_003, "BADREF", "An operation names what no operation made, or what was forgotten.";
        Changed = 20_004, "CHANGED", "The object is not as the caller saw it: nothing was done.";
        NotHeld = 20_005, "NOTHELD", "It needs a capability that the client does not hold.";
        Crossed = 20_006, "CROSSED", "A release that had not seen the last grant: nothing was released.";
        Misordered = 20_007, "MISORDERED", "The transaction before it has not come yet, and is too far off.";
        Forgotten = 20_008, "FORGOTTEN", "A transaction that the client said it would not send again.";
        Window = 20_009, "WINDOW", "Too many transactions are remembered: STABLE, then say so.";
        Mixed = 20_010, "MIXED", "Another batch came under this number before.";
    }
}
