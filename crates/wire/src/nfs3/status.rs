//! `nfsstat3` and the procedures' numbers (RFC 1813 sections 2.6 and 3).

use holdfast_xdr::{Decode, Encode};

use crate::number::numbered;

numbered! {
    /// The status of a procedure.
    NfsStat3 {
        Ok = 0, "NFS3_OK", "The procedure succeeded.";
        Perm = 1, "NFS3ERR_PERM", "The caller is neither privileged nor the owner.";
        NoEnt = 2, "NFS3ERR_NOENT", "No such file or directory.";
        Io = 5, "NFS3ERR_IO", "A hard I/O error.";
        Nxio = 6, "NFS3ERR_NXIO", "No such device or address.";
        Acces = 13, "NFS3ERR_ACCES", "The caller lacks the permission.";
        Exist = 17, "NFS3ERR_EXIST", "The name exists already.";
        Xdev = 18, "NFS3ERR_XDEV", "The objects lie in different file systems.";
        NoDev = 19, "NFS3ERR_NODEV", "No such device.";
        NotDir = 20, "NFS3ERR_NOTDIR", "Not a directory.";
        IsDir = 21, "NFS3ERR_ISDIR", "A directory.";
        Inval = 22, "NFS3ERR_INVAL", "An invalid argument.";
        Fbig = 27, "NFS3ERR_FBIG", "The file would exceed the server's maximum.";
        NoSpc = 28, "NFS3ERR_NOSPC", "The file system is full.";
        Rofs = 30, "NFS3ERR_ROFS", "The file system is read-only.";
        Mlink = 31, "NFS3ERR_MLINK", "Too many hard links.";
        NameTooLong = 63, "NFS3ERR_NAMETOOLONG", "The name is longer than the server allows.";
        NotEmpty = 66, "NFS3ERR_NOTEMPTY", "The directory is not empty.";
        Dquot = 69, "NFS3ERR_DQUOT", "The hard quota is reached.";
        Stale = 70, "NFS3ERR_STALE", "The object of the handle no longer exists.";
        Remote = 71, "NFS3ERR_REMOTE", "Too many levels of remote in the path.";
        BadHandle = 10001, "NFS3ERR_BADHANDLE", "The handle is none of ours.";
        NotSync = 10002, "NFS3ERR_NOT_SYNC", "SETATTR's guard did not match.";
        BadCookie = 10003, "NFS3ERR_BAD_COOKIE", "The READDIR cookie is no longer valid.";
        NotSupp = 10004, "NFS3ERR_NOTSUPP", "The procedure is not supported.";
        TooSmall = 10005, "NFS3ERR_TOOSMALL", "The reply does not fit the caller's limit.";
        ServerFault = 10006, "NFS3ERR_SERVERFAULT", "The server failed in a way that has no other code.";
        BadType = 10007, "NFS3ERR_BADTYPE", "The server cannot make an object of this type.";
        Jukebox = 10008, "NFS3ERR_JUKEBOX", "Busy: try again later.";
    }
}

numbered! {
    /// A procedure's number.
    Proc3 {
        Null = 0, "NULL", "Does nothing.";
        GetAttr = 1, "GETATTR", "`Fh3` to `GetAttr3Res`.";
        SetAttr = 2, "SETATTR", "`SetAttr3Args` to `SetAttr3Res`.";
        Lookup = 3, "LOOKUP", "`DirOpArgs3` to `Lookup3Res`.";
        Access = 4, "ACCESS", "`Access3Args` to `Access3Res`.";
        ReadLink = 5, "READLINK", "`Fh3` to `ReadLink3Res`.";
        Read = 6, "READ", "`Read3Args` to `Read3Res`.";
        Write = 7, "WRITE", "`Write3Args` to `Write3Res`.";
        Create = 8, "CREATE", "`Create3Args` to `Create3Res`.";
        Mkdir = 9, "MKDIR", "`Mkdir3Args` to `Create3Res`.";
        Symlink = 10, "SYMLINK", "`Symlink3Args` to `Create3Res`.";
        Mknod = 11, "MKNOD", "`Mknod3Args` to `Create3Res`.";
        Remove = 12, "REMOVE", "`DirOpArgs3` to `Remove3Res`.";
        Rmdir = 13, "RMDIR", "`DirOpArgs3` to `Remove3Res`.";
        Rename = 14, "RENAME", "`Rename3Args` to `Rename3Res`.";
        Link = 15, "LINK", "`Link3Args` to `Link3Res`.";
        ReadDir = 16, "READDIR", "`ReadDir3Args` to `ReadDir3Res`.";
        ReadDirPlus = 17, "READDIRPLUS", "`ReadDirPlus3Args` to `ReadDirPlus3Res`.";
        FsStat = 18, "FSSTAT", "`Fh3` to `FsStat3Res`.";
        FsInfo = 19, "FSINFO", "`Fh3` to `FsInfo3Res`.";
        PathConf = 20, "PATHCONF", "`Fh3` to `PathConf3Res`.";
        Commit = 21, "COMMIT", "`Commit3Args` to `Commit3Res`.";
    }
}
