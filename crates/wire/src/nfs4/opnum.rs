//! `nfs_opnum4`: every operation of RFC 7530 (3-39), RFC 8881 (40-58), RFC 7862 (59-71) and RFC 8276 (72-75).

use holdfast_xdr::{Decode, Encode};

use crate::number::numbered;

numbered! {
    /// An operation's number. On the wire of a server read a `u32` and use [`OpNum4::from_u32`], so that an
    /// unknown number is answered with ILLEGAL and NFS4ERR_OP_ILLEGAL instead of failing the record.
    OpNum4 {
        Access = 3, "ACCESS", "`OP_ACCESS`.";
        Close = 4, "CLOSE", "`OP_CLOSE`.";
        Commit = 5, "COMMIT", "`OP_COMMIT`.";
        Create = 6, "CREATE", "`OP_CREATE`.";
        DelegPurge = 7, "DELEGPURGE", "`OP_DELEGPURGE`.";
        DelegReturn = 8, "DELEGRETURN", "`OP_DELEGRETURN`.";
        GetAttr = 9, "GETATTR", "`OP_GETATTR`.";
        GetFh = 10, "GETFH", "`OP_GETFH`.";
        Link = 11, "LINK", "`OP_LINK`.";
        Lock = 12, "LOCK", "`OP_LOCK`.";
        Lockt = 13, "LOCKT", "`OP_LOCKT`.";
        Locku = 14, "LOCKU", "`OP_LOCKU`.";
        Lookup = 15, "LOOKUP", "`OP_LOOKUP`.";
        Lookupp = 16, "LOOKUPP", "`OP_LOOKUPP`.";
        Nverify = 17, "NVERIFY", "`OP_NVERIFY`.";
        Open = 18, "OPEN", "`OP_OPEN`.";
        OpenAttr = 19, "OPENATTR", "`OP_OPENATTR`.";
        OpenConfirm = 20, "OPEN_CONFIRM", "`OP_OPEN_CONFIRM`.";
        OpenDowngrade = 21, "OPEN_DOWNGRADE", "`OP_OPEN_DOWNGRADE`.";
        PutFh = 22, "PUTFH", "`OP_PUTFH`.";
        PutPubFh = 23, "PUTPUBFH", "`OP_PUTPUBFH`.";
        PutRootFh = 24, "PUTROOTFH", "`OP_PUTROOTFH`.";
        Read = 25, "READ", "`OP_READ`.";
        ReadDir = 26, "READDIR", "`OP_READDIR`.";
        ReadLink = 27, "READLINK", "`OP_READLINK`.";
        Remove = 28, "REMOVE", "`OP_REMOVE`.";
        Rename = 29, "RENAME", "`OP_RENAME`.";
        Renew = 30, "RENEW", "`OP_RENEW`.";
        RestoreFh = 31, "RESTOREFH", "`OP_RESTOREFH`.";
        SaveFh = 32, "SAVEFH", "`OP_SAVEFH`.";
        SecInfo = 33, "SECINFO", "`OP_SECINFO`.";
        SetAttr = 34, "SETATTR", "`OP_SETATTR`.";
        SetClientId = 35, "SETCLIENTID", "`OP_SETCLIENTID`.";
        SetClientIdConfirm = 36, "SETCLIENTID_CONFIRM", "`OP_SETCLIENTID_CONFIRM`.";
        Verify = 37, "VERIFY", "`OP_VERIFY`.";
        Write = 38, "WRITE", "`OP_WRITE`.";
        ReleaseLockOwner = 39, "RELEASE_LOCKOWNER", "`OP_RELEASE_LOCKOWNER`.";
        BackchannelCtl = 40, "BACKCHANNEL_CTL", "`OP_BACKCHANNEL_CTL`.";
        BindConnToSession = 41, "BIND_CONN_TO_SESSION", "`OP_BIND_CONN_TO_SESSION`.";
        ExchangeId = 42, "EXCHANGE_ID", "`OP_EXCHANGE_ID`.";
        CreateSession = 43, "CREATE_SESSION", "`OP_CREATE_SESSION`.";
        DestroySession = 44, "DESTROY_SESSION", "`OP_DESTROY_SESSION`.";
        FreeStateid = 45, "FREE_STATEID", "`OP_FREE_STATEID`.";
        GetDirDelegation = 46, "GET_DIR_DELEGATION", "`OP_GET_DIR_DELEGATION`.";
        GetDeviceInfo = 47, "GETDEVICEINFO", "`OP_GETDEVICEINFO`.";
        GetDeviceList = 48, "GETDEVICELIST", "`OP_GETDEVICELIST`.";
        LayoutCommit = 49, "LAYOUTCOMMIT", "`OP_LAYOUTCOMMIT`.";
        LayoutGet = 50, "LAYOUTGET", "`OP_LAYOUTGET`.";
        LayoutReturn = 51, "LAYOUTRETURN", "`OP_LAYOUTRETURN`.";
        SecInfoNoName = 52, "SECINFO_NO_NAME", "`OP_SECINFO_NO_NAME`.";
        Sequence = 53, "SEQUENCE", "`OP_SEQUENCE`.";
        SetSsv = 54, "SET_SSV", "`OP_SET_SSV`.";
        TestStateid = 55, "TEST_STATEID", "`OP_TEST_STATEID`.";
        WantDelegation = 56, "WANT_DELEGATION", "`OP_WANT_DELEGATION`.";
        DestroyClientId = 57, "DESTROY_CLIENTID", "`OP_DESTROY_CLIENTID`.";
        ReclaimComplete = 58, "RECLAIM_COMPLETE", "`OP_RECLAIM_COMPLETE`.";
        Allocate = 59, "ALLOCATE", "`OP_ALLOCATE`.";
        Copy = 60, "COPY", "`OP_COPY`.";
        CopyNotify = 61, "COPY_NOTIFY", "`OP_COPY_NOTIFY`.";
        Deallocate = 62, "DEALLOCATE", "`OP_DEALLOCATE`.";
        IoAdvise = 63, "IO_ADVISE", "`OP_IO_ADVISE`.";
        LayoutError = 64, "LAYOUTERROR", "`OP_LAYOUTERROR`.";
        LayoutStats = 65, "LAYOUTSTATS", "`OP_LAYOUTSTATS`.";
        OffloadCancel = 66, "OFFLOAD_CANCEL", "`OP_OFFLOAD_CANCEL`.";
        OffloadStatus = 67, "OFFLOAD_STATUS", "`OP_OFFLOAD_STATUS`.";
        ReadPlus = 68, "READ_PLUS", "`OP_READ_PLUS`.";
        Seek = 69, "SEEK", "`OP_SEEK`.";
        WriteSame = 70, "WRITE_SAME", "`OP_WRITE_SAME`.";
        Clone = 71, "CLONE", "`OP_CLONE`.";
        GetXattr = 72, "GETXATTR", "`OP_GETXATTR`.";
        SetXattr = 73, "SETXATTR", "`OP_SETXATTR`.";
        ListXattrs = 74, "LISTXATTRS", "`OP_LISTXATTRS`.";
        RemoveXattr = 75, "REMOVEXATTR", "`OP_REMOVEXATTR`.";
        Illegal = 10044, "ILLEGAL", "`OP_ILLEGAL`.";
    }
}

impl OpNum4 {
    /// The first minor version that has this operation (ILLEGAL stands in all).
    #[must_use]
    pub const fn since_minor(self) -> u32 {
        match self.as_u32() {
            40..=58 => 1,
            59..=75 => 2,
            _ => 0,
        }
    }
}
