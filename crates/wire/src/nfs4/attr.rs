//! The numbers of the file attributes (RFC 8881 section 5, RFC 7862, 8275, 8276, 9754).

use holdfast_xdr::{Decode, Encode};

use crate::number::numbered;

numbered! {
    /// A file attribute: the bit's number in a [`super::Bitmap4`].
    Attr {
        SupportedAttrs = 0, "supported_attrs", "`bitmap4`.";
        Type = 1, "type", "`nfs_ftype4`.";
        FhExpireType = 2, "fh_expire_type", "`uint32_t`.";
        Change = 3, "change", "`changeid4`.";
        Size = 4, "size", "`uint64_t`.";
        LinkSupport = 5, "link_support", "`bool`.";
        SymlinkSupport = 6, "symlink_support", "`bool`.";
        NamedAttr = 7, "named_attr", "`bool`.";
        Fsid = 8, "fsid", "`fsid4`.";
        UniqueHandles = 9, "unique_handles", "`bool`.";
        LeaseTime = 10, "lease_time", "`nfs_lease4`.";
        RdAttrError = 11, "rdattr_error", "`nfsstat4`.";
        Acl = 12, "acl", "`nfsace4<>`.";
        AclSupport = 13, "aclsupport", "`uint32_t`.";
        Archive = 14, "archive", "`bool`.";
        CanSetTime = 15, "cansettime", "`bool`.";
        CaseInsensitive = 16, "case_insensitive", "`bool`.";
        CasePreserving = 17, "case_preserving", "`bool`.";
        ChownRestricted = 18, "chown_restricted", "`bool`.";
        FileHandle = 19, "filehandle", "`nfs_fh4`.";
        FileId = 20, "fileid", "`uint64_t`.";
        FilesAvail = 21, "files_avail", "`uint64_t`.";
        FilesFree = 22, "files_free", "`uint64_t`.";
        FilesTotal = 23, "files_total", "`uint64_t`.";
        FsLocations = 24, "fs_locations", "`fs_locations4`.";
        Hidden = 25, "hidden", "`bool`.";
        Homogeneous = 26, "homogeneous", "`bool`.";
        MaxFileSize = 27, "maxfilesize", "`uint64_t`.";
        MaxLink = 28, "maxlink", "`uint32_t`.";
        MaxName = 29, "maxname", "`uint32_t`.";
        MaxRead = 30, "maxread", "`uint64_t`.";
        MaxWrite = 31, "maxwrite", "`uint64_t`.";
        MimeType = 32, "mimetype", "`ascii_REQUIRED4`.";
        Mode = 33, "mode", "`mode4`.";
        NoTrunc = 34, "no_trunc", "`bool`.";
        NumLinks = 35, "numlinks", "`uint32_t`.";
        Owner = 36, "owner", "`utf8str_mixed`.";
        OwnerGroup = 37, "owner_group", "`utf8str_mixed`.";
        QuotaAvailHard = 38, "quota_avail_hard", "`uint64_t`.";
        QuotaAvailSoft = 39, "quota_avail_soft", "`uint64_t`.";
        QuotaUsed = 40, "quota_used", "`uint64_t`.";
        RawDev = 41, "rawdev", "`specdata4`.";
        SpaceAvail = 42, "space_avail", "`uint64_t`.";
        SpaceFree = 43, "space_free", "`length4`.";
        SpaceTotal = 44, "space_total", "`uint64_t`.";
        SpaceUsed = 45, "space_used", "`uint64_t`.";
        System = 46, "system", "`bool`.";
        TimeAccess = 47, "time_access", "`nfstime4`.";
        TimeAccessSet = 48, "time_access_set", "`settime4`.";
        TimeBackup = 49, "time_backup", "`nfstime4`.";
        TimeCreate = 50, "time_create", "`nfstime4`.";
        TimeDelta = 51, "time_delta", "`nfstime4`.";
        TimeMetadata = 52, "time_metadata", "`nfstime4`.";
        TimeModify = 53, "time_modify", "`nfstime4`.";
        TimeModifySet = 54, "time_modify_set", "`settime4`.";
        MountedOnFileId = 55, "mounted_on_fileid", "`uint64_t`.";
        DirNotifDelay = 56, "dir_notif_delay", "`nfstime4`.";
        DirentNotifDelay = 57, "dirent_notif_delay", "`nfstime4`.";
        Dacl = 58, "dacl", "`nfsacl41`.";
        Sacl = 59, "sacl", "`nfsacl41`.";
        ChangePolicy = 60, "change_policy", "`change_policy4`.";
        FsStatus = 61, "fs_status", "`fs4_status`.";
        FsLayoutTypes = 62, "fs_layout_types", "`layouttype4<>`.";
        LayoutHint = 63, "layout_hint", "`layouthint4`.";
        LayoutTypes = 64, "layout_types", "`layouttype4<>`.";
        LayoutBlkSize = 65, "layout_blksize", "`uint32_t`.";
        LayoutAlignment = 66, "layout_alignment", "`uint32_t`.";
        FsLocationsInfo = 67, "fs_locations_info", "`fs_locations_info4`.";
        MdsThreshold = 68, "mdsthreshold", "`mdsthreshold4`.";
        RetentionGet = 69, "retention_get", "`retention_get4`.";
        RetentionSet = 70, "retention_set", "`retention_set4`.";
        RetentevtGet = 71, "retentevt_get", "`retention_get4`.";
        RetentevtSet = 72, "retentevt_set", "`retention_set4`.";
        RetentionHold = 73, "retention_hold", "`uint64_t`.";
        ModeSetMasked = 74, "mode_set_masked", "`mode_masked4`.";
        SuppAttrExclCreat = 75, "suppattr_exclcreat", "`bitmap4`.";
        FsCharsetCap = 76, "fs_charset_cap", "`fs_charset_cap4`.";
        CloneBlkSize = 77, "clone_blksize", "`uint32_t`.";
        SpaceFreed = 78, "space_freed", "`uint64_t`.";
        ChangeAttrType = 79, "change_attr_type", "`change_attr_type4`.";
        SecLabel = 80, "sec_label", "`sec_label4`.";
        ModeUmask = 81, "mode_umask", "`mode_umask4`.";
        XattrSupport = 82, "xattr_support", "`bool`.";
        Offline = 83, "offline", "`bool`.";
        TimeDelegAccess = 84, "time_deleg_access", "`nfstime4`.";
        TimeDelegModify = 85, "time_deleg_modify", "`nfstime4`.";
        OpenArguments = 86, "open_arguments", "`open_arguments4`.";
    }
}
