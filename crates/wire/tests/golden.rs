//! Messages built by hand from the RFCs' XDR text: the codecs must write these bytes and read them back.

use std::fmt::Debug;

use holdfast_base::{ChangeId, ClientId, Cookie, Length, Offset, Seqid, SessionId, SlotId};
use holdfast_wire::nfs4::{ArgOp, Attr, Bitmap4, CbArgOp, OpNum4, Stateid4};
use holdfast_wire::{mount3, nfs3, nfs4, nlm4, nsm, portmap, rpc};
use holdfast_xdr::{Decode, Encode, Reader, Writer, from_bytes, to_bytes};

/// Bytes from hexadecimal words; what follows `;` on a line says what they are.
#[expect(clippy::unwrap_used, reason = "a wrong digit here is a defect of the test")]
fn hex(text: &str) -> Vec<u8> {
    let digits: String =
        text.lines().filter_map(|l| l.split(';').next()).flat_map(str::split_whitespace).collect();
    (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect()
}

/// The value is written as these bytes, and read from them.
fn is<'a, T: Encode + Decode<'a> + PartialEq + Debug>(value: &T, bytes: &'a [u8]) {
    assert_eq!(to_bytes(value), bytes, "{value:?}");
    assert_eq!(from_bytes::<T>(bytes).as_ref(), Ok(value));
}

#[test]
fn an_nfs3_lookup_call_is_the_rfcs() {
    let bytes = hex("11223344 00000000 00000002           ; xid, CALL, RPC version 2
         000186a3 00000003 00000003           ; NFS, version 3, LOOKUP
         00000001 0000001c                    ; AUTH_SYS of 28 bytes
         00000007 00000003 61626300           ; stamp, machine name `abc`
         000003e8 00000064 00000001 00000018  ; uid 1000, gid 100, one further group: 24
         00000000 00000000                    ; no verifier
         00000005 0102030405 000000           ; handle of 5 bytes
         00000006 6d616b652e63 0000           ; `make.c`");
    let mut w = Writer::new();
    let groups = rpc::Groups::new(&[24]);
    let sys = rpc::AuthSys { stamp: 7, machine_name: b"abc", uid: 1000, gid: 100, gids: groups };
    let sys_bytes = to_bytes(&sys);
    let cred = rpc::OpaqueAuth { flavor: rpc::AUTH_SYS, body: &sys_bytes };
    let proc = nfs3::Proc3::Lookup.as_u32();
    let verf = rpc::OpaqueAuth::NONE;
    let body = rpc::CallBody { rpcvers: 2, prog: nfs3::NFS3_PROGRAM, vers: nfs3::NFS_V3, proc, cred, verf };
    let header = rpc::CallHeader { xid: 0x1122_3344, mtype: rpc::MsgType::Call, body };
    let args = nfs3::DirOpArgs3 { dir: nfs3::Fh3(&[1, 2, 3, 4, 5]), name: b"make.c" };
    header.encode(&mut w);
    args.encode(&mut w);
    assert_eq!(w.as_slice(), bytes);

    let mut r = Reader::new(&bytes);
    assert_eq!(rpc::CallHeader::decode(&mut r), Ok(header));
    assert_eq!(from_bytes(header.body.cred.body), Ok(sys));
    assert_eq!(nfs3::DirOpArgs3::decode(&mut r), Ok(args));
    assert_eq!(r.finish(), Ok(()));
}

#[test]
fn an_nfs3_lookup_reply_is_the_rfcs() {
    let attributes = "00000001 000001a4 00000001          ; regular, 0644, one link
         000003e8 00000064                            ; uid 1000, gid 100
         0000000000000005 0000000000001000            ; 5 bytes, 4096 used
         00000000 00000000                            ; no device
         0000000000000abc 0000000000000def            ; fsid, fileid
         00000001 00000002 00000003 00000004 00000005 00000006 ; atime, mtime, ctime";
    let bytes = hex(&format!(
        "00000000 00000004 aabbccdd
         00000001 {attributes}
         00000000"
    ));
    let (spec, time) =
        (nfs3::SpecData3 { major: 0, minor: 0 }, |s| nfs3::NfsTime3 { seconds: s, nseconds: s + 1 });
    let fattr = nfs3::Fattr3 {
        ftype: nfs3::Ftype3::Reg,
        mode: 0o644,
        nlink: 1,
        uid: 1000,
        gid: 100,
        size: 5,
        used: 4096,
        rdev: spec,
        fsid: 0xabc,
        fileid: 0xdef,
        atime: time(1),
        mtime: time(3),
        ctime: time(5),
    };
    let object = nfs3::Fh3(&[0xaa, 0xbb, 0xcc, 0xdd]);
    let ok = nfs3::Lookup3Ok { object, obj_attributes: Some(fattr), dir_attributes: None };
    is::<nfs3::Lookup3Res<'_>>(&nfs3::Res3::Ok(ok), &bytes);

    let fail = hex(&format!("00000002 00000001 {attributes}"));
    is::<nfs3::Lookup3Res<'_>>(&nfs3::Res3::Fail(nfs3::NfsStat3::NoEnt, Some(fattr)), &fail);
}

#[test]
fn an_nfs3_readdirplus_is_a_chain_of_entries() {
    let bytes = hex("00000000 0000000000000000                   ; no attributes, the verifier
         00000001 000000000000000a 00000001 61000000 0000000000000003 00000000 00000001 00000002 beef0000
         00000001 000000000000000b 00000002 62620000 0000000000000004 00000000 00000000
         00000000 00000001                           ; no more entries, the end");
    let entry = |fileid, name, cookie| nfs3::Entry3 { fileid, name, cookie: Cookie(cookie) };
    let plus = |entry, name_handle| nfs3::EntryPlus3 { entry, name_attributes: None, name_handle };
    let header = nfs3::DirHeader3 { dir_attributes: None, cookieverf: [0; 8] };
    let first = plus(entry(10, b"a".as_slice(), 3), Some(nfs3::Fh3(&[0xbe, 0xef])));
    let entries = vec![first, plus(entry(11, b"bb", 4), None)];
    is(&nfs3::ReadDirPlus3Ok { header, entries, eof: true }, &bytes);
}

#[test]
fn rpc_replies_are_the_rfcs() {
    let reply = |body| rpc::ReplyHeader { xid: 9, mtype: rpc::MsgType::Reply, body };
    let accepted =
        |stat| reply(rpc::ReplyBody::Accepted(rpc::AcceptedReply { verf: rpc::OpaqueAuth::NONE, stat }));
    let range = rpc::VersionRange { low: 3, high: 4 };
    is(&accepted(rpc::AcceptStat::Success), &hex("00000009 00000001 00000000 00000000 00000000 00000000"));
    let mismatch = hex("00000009 00000001 00000000 00000000 00000000 00000002 00000003 00000004");
    is(&accepted(rpc::AcceptStat::ProgMismatch(range)), &mismatch);
    is(
        &accepted(rpc::AcceptStat::GarbageArgs),
        &hex("00000009 00000001 00000000 00000000 00000000 00000004"),
    );
    let denied = |why| reply(rpc::ReplyBody::Denied(why));
    let rpc_mismatch = hex("00000009 00000001 00000001 00000000 00000003 00000004");
    is(&denied(rpc::RejectedReply::RpcMismatch(range)), &rpc_mismatch);
    let weak = hex("00000009 00000001 00000001 00000001 00000005");
    is(&denied(rpc::RejectedReply::AuthError(rpc::AuthStat::TooWeak)), &weak);
}

#[test]
fn mount_and_portmap_lists_are_chains() {
    let exports = hex("00000001 00000002 2f610000 00000001 00000004 686f7374 00000000
         00000001 00000002 2f620000 00000000
         00000000");
    let export = |dir, groups| mount3::Export { dir, groups };
    let list = vec![export(b"/a".as_slice(), vec![mount3::Group(b"host")]), export(b"/b", vec![])];
    is(&mount3::Exports { exports: list }, &exports);
    let ok = mount3::MountOk3 { fhandle: &[1, 2, 3, 4], auth_flavors: vec![1, 0] };
    is(&mount3::MountRes3::Ok(ok), &hex("00000000 00000004 01020304 00000002 00000001 00000000"));
    is(&mount3::MountRes3::Fail(mount3::MountStat3::Acces), &hex("0000000d"));
    let mapping = portmap::Mapping { prog: 100_003, vers: 3, prot: portmap::IPPROTO_TCP, port: 2049 };
    is(&mapping, &hex("000186a3 00000003 00000006 00000801"));
}

#[test]
fn an_nlm_lock_and_what_denies_it_are_the_rfcs() {
    let bytes = hex("00000004 00000001 00000001 00000001            ; cookie, block, exclusive
         00000001 63000000 00000004 0badcafe 00000002 6f680000 ; client `c`, handle, owner `oh`
         0000002a 0000000000000001 0000000000000002      ; process, range
         00000000 00000005                              ; no reclaim, state");
    let (offset, length) = (Offset(1), Length(2));
    let fh = &[0x0b, 0xad, 0xca, 0xfe];
    let lock = nlm4::NlmLock4 { caller_name: b"c", fh, oh: b"oh", svid: 42, offset, length };
    let cookie = &[0, 0, 0, 1];
    is(&nlm4::LockArgs4 { cookie, block: true, exclusive: true, lock, reclaim: false, state: 5 }, &bytes);
    let holder = nlm4::Holder4 { exclusive: false, svid: -1, oh: b"", offset, length };
    let denied = "00000000 00000001 00000000 ffffffff 00000000 0000000000000001 0000000000000002";
    is(&nlm4::TestRes4 { cookie: b"", reply: nlm4::TestReply4::Denied(holder) }, &hex(denied));
    is(&nlm4::TestRes4 { cookie: b"", reply: nlm4::TestReply4::Other(0) }, &hex("00000000 00000000"));
}

/// Arguments and results as Linux 6.1.176 sent them and took them, from a capture: `fcntl(F_SETLK)` of bytes 5 to 14,
/// then the unlock at close.
#[test]
fn linux_locks_and_unlocks_by_nlm() {
    let fh = hex("01014123df3c83764728cd17e5873caf57dba48a010100dd009b00ca0ebc0b");
    let lock = nlm4::NlmLock4 {
        caller_name: b"client-a",
        fh: &fh,
        oh: b"0@client-a",
        svid: 0,
        offset: Offset(5),
        length: Length(10),
    };
    let of_lock = "00000008 636c69656e742d61
         0000001f 01014123df3c83764728cd17e5873caf57dba48a010100dd009b00ca0ebc0b 00
         0000000a 3040636c69656e742d61 0000 00000000";
    let bytes = hex(&format!(
        "00000004 35120000 00000000 00000001            ; does not wait: F_SETLK
         {of_lock} 0000000000000005 000000000000000a
         00000000 00000003                              ; state of its monitor"
    ));
    let cookie = &[0x35, 0x12, 0, 0];
    is(&nlm4::LockArgs4 { cookie, block: false, exclusive: true, lock, reclaim: false, state: 3 }, &bytes);
    is(&nlm4::NlmRes4 { cookie, stat: nlm4::NlmStat4::Granted }, &hex("00000004 35120000 00000000"));
    let bytes = hex(&format!("00000004 3c120000 {of_lock} 0000000000000000 0000000000000000"));
    let lock = nlm4::NlmLock4 { offset: Offset(0), length: Length(0), ..lock };
    is(&nlm4::UnlockArgs4 { cookie: &[0x3c, 0x12, 0, 0], lock }, &bytes);
}

#[test]
fn the_rest_of_nlm_is_the_specifications() {
    let lock = nlm4::NlmLock4 {
        caller_name: b"c",
        fh: b"fh",
        oh: b"o",
        svid: 1,
        offset: Offset(2),
        length: Length(3),
    };
    let of_lock = "00000001 63000000 00000002 66680000 00000001 6f000000 00000001
         0000000000000002 0000000000000003";
    let bytes = hex(&format!("00000001 6b000000 00000001 00000000 {of_lock}"));
    is(&nlm4::CancelArgs4 { cookie: b"k", block: true, exclusive: false, lock }, &bytes);
    let bytes = hex(&format!("00000001 6b000000 00000001 {of_lock}"));
    is(&nlm4::TestArgs4 { cookie: b"k", exclusive: true, lock }, &bytes);
    let share = nlm4::Share4 { caller_name: b"c", fh: b"fh", oh: b"o", mode: 3, access: 1 };
    let bytes = hex("00000000 00000001 63000000 00000002 66680000 00000001 6f000000
         00000003 00000001                              ; fsh4_mode before fsh4_access
         00000001");
    is(&nlm4::ShareArgs4 { cookie: b"", share, reclaim: true }, &bytes);
    let res = nlm4::ShareRes4 { cookie: b"", stat: nlm4::NlmStat4::DeniedGracePeriod, sequence: 0 };
    is(&res, &hex("00000000 00000004 00000000"));
    is(&nlm4::Notify4 { name: b"c", state: 7 }, &hex("00000001 63000000 00000007"));
}

#[test]
fn the_status_monitors_messages_are_the_specifications() {
    let my_id = nsm::MyId { my_name: b"me", my_prog: 100_021, my_vers: 4, my_proc: 16 };
    let mon_id = nsm::MonId { mon_name: b"host", my_id };
    let of_id = "00000004 686f7374 00000002 6d650000 000186b5 00000004 00000010";
    is(&mon_id, &hex(of_id));
    let bytes = hex(&format!("{of_id} 000102030405060708090a0b0c0d0e0f"));
    let private = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    is(&nsm::Mon { mon_id, private }, &bytes);
    // The private bytes are an opaque of fixed length: no length before them.
    let bytes = hex("00000004 686f7374 00000005 000102030405060708090a0b0c0d0e0f");
    is(&nsm::Status { mon_name: b"host", state: 5, private }, &bytes);
    is(&nsm::StatChange { mon_name: b"host", state: 5 }, &hex("00000004 686f7374 00000005"));
    is(&nsm::SmStatRes { failed: true, state: 3 }, &hex("00000001 00000003"));
    is(&nsm::SmStat { state: 3 }, &hex("00000003"));
}

#[test]
fn the_port_mappers_messages_are_rfc_1833s() {
    let rpcb = portmap::Rpcb { prog: 100_021, vers: 4, netid: b"tcp", addr: b"0.0.0.0.8.1", owner: b"0" };
    let of_rpcb = "000186b5 00000004 00000003 74637000 0000000b 302e302e302e302e382e3100 00000001 30000000";
    is(&rpcb, &hex(of_rpcb));
    let list = hex(&format!("00000001 {of_rpcb} 00000000"));
    is(&portmap::RpcbList { entries: vec![rpcb] }, &list);
    let entry = portmap::RpcbEntry {
        maddr: b"::.8.1",
        netid: b"tcp6",
        semantics: portmap::NC_TPI_COTS_ORD,
        protofmly: b"inet6",
        proto: b"tcp",
    };
    let bytes = hex("00000001 00000006 3a3a2e382e310000 00000004 74637036 00000003
         00000005 696e657436000000 00000003 74637000 00000000");
    is(&portmap::RpcbEntryList { entries: vec![entry] }, &bytes);
    let mapping = portmap::Mapping { prog: 100_024, vers: 1, prot: portmap::IPPROTO_UDP, port: 662 };
    is(&mapping, &hex("000186b8 00000001 00000011 00000296"));
    is(&portmap::UniversalAddress(b""), &hex("00000000"));
}

#[test]
fn an_exchange_id_is_the_rfcs() {
    let bytes = hex("0000002a                            ; OP_EXCHANGE_ID
         0102030405060708 00000005 6c696e7578 000000 ; the client's verifier and name
         00000103                            ; referrals, migration, bound state ids
         00000001                            ; SP4_MACH_CRED
         00000002 00000000 00000c00          ;   must enforce 42, 43
         00000001 00000010                   ;   may allow 4
         00000001 00000003 6f726700 00000001 78000000 ffffffffffffffff 00000009");
    let ops = nfs4::StateProtectOps4 {
        must_enforce: Bitmap4::of_ops(&[OpNum4::ExchangeId, OpNum4::CreateSession]),
        must_allow: Bitmap4::of_ops(&[OpNum4::Close]),
    };
    let date = nfs4::NfsTime4 { seconds: -1, nseconds: 9 };
    let args = nfs4::ExchangeId4Args {
        clientowner: nfs4::ClientOwner4 { verifier: [1, 2, 3, 4, 5, 6, 7, 8], ownerid: b"linux" },
        flags: nfs4::EXCHGID4_FLAG_SUPP_MOVED_REFER
            | nfs4::EXCHGID4_FLAG_SUPP_MOVED_MIGR
            | nfs4::EXCHGID4_FLAG_BIND_PRINC_STATEID,
        state_protect: nfs4::StateProtect4A::MachCred(ops),
        client_impl_id: Some(nfs4::NfsImplId4 { domain: b"org", name: b"x", date }),
    };
    is(&ArgOp::ExchangeId(args), &bytes);
}

#[test]
fn a_compound_of_sequence_putrootfh_getattr_is_the_rfcs() {
    let bytes = hex("00000003 746167 00 00000001 00000003        ; `tag`, minor version 1, three operations
         00000035                                   ; OP_SEQUENCE
         000102030405060708090a0b0c0d0e0f           ;   session
         00000007 00000001 00000003 00000001        ;   sequence, slot, highest slot, cache it
         00000018                                   ; OP_PUTROOTFH
         00000009 00000002 0000001a 00000002        ; OP_GETATTR of type, change, size, mode");
    let sessionid = SessionId(std::array::from_fn(|i| i as u8));
    let (sequenceid, slotid, highest_slotid) = (Seqid(7), SlotId(1), SlotId(3));
    let sequence = nfs4::Sequence4Args { sessionid, sequenceid, slotid, highest_slotid, cachethis: true };
    let attr_request = Bitmap4::of(&[Attr::Type, Attr::Change, Attr::Size, Attr::Mode]);
    let getattr = nfs4::GetAttr4Args { attr_request };
    let mut w = Writer::new();
    let ops = [ArgOp::Sequence(sequence), ArgOp::PutRootFh, ArgOp::GetAttr(getattr)];
    nfs4::encode_compound(&mut w, b"tag", 1, &ops);
    assert_eq!(w.as_slice(), bytes);

    // As a server reads it: the header, then one number and its arguments at a time.
    let mut r = Reader::new(&bytes);
    let header = nfs4::CompoundArgsHeader { tag: b"tag", minorversion: 1, ops: 3 };
    assert_eq!(nfs4::CompoundArgsHeader::decode(&mut r), Ok(header));
    assert_eq!(r.u32().map(OpNum4::from_u32), Ok(Some(OpNum4::Sequence)));
    assert_eq!(nfs4::Sequence4Args::decode(&mut r), Ok(sequence));
    assert_eq!(r.u32().map(OpNum4::from_u32), Ok(Some(OpNum4::PutRootFh)));
    assert_eq!(r.u32().map(OpNum4::from_u32), Ok(Some(OpNum4::GetAttr)));
    assert_eq!(nfs4::GetAttr4Args::decode(&mut r), Ok(getattr));
    assert_eq!(r.finish(), Ok(()));
}

#[test]
fn an_open_that_creates_exclusively_is_the_rfcs() {
    let bytes = hex(
        "00000012 00000000 00300003 00000002     ; OP_OPEN, seqid, both with RFC 9754's wants, deny write
         00000000000000ff 00000002 6f770000      ; owner
         00000001 00000003 1111111111111111      ; create, EXCLUSIVE4_1, the verifier
         00000002 00000000 00000002 00000004 000001a4 ; mode 0644
         00000000 00000001 66000000              ; CLAIM_NULL of `f`",
    );
    let attrs = nfs4::Fattr4 { mask: Attr::Mode.into(), values: &[0, 0, 1, 0xa4] };
    let how = nfs4::CreateHow4::Exclusive41(nfs4::CreateVerfAttr { verf: [0x11; 8], attrs });
    let open = nfs4::Open4Args {
        seqid: Seqid(0),
        share_access: nfs4::OPEN4_SHARE_ACCESS_BOTH
            | nfs4::OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS
            | nfs4::OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION,
        share_deny: nfs4::OPEN4_SHARE_DENY_WRITE,
        owner: nfs4::StateOwner4 { clientid: ClientId(255), owner: b"ow" },
        openhow: nfs4::OpenFlag4::Create(how),
        claim: nfs4::OpenClaim4::Null(b"f"),
    };
    is(&ArgOp::Open(open), &bytes);
}

#[test]
fn a_write_delegation_is_the_rfcs() {
    let who = b"OWNER@";
    let permissions = nfs4::NfsAce4 { ace_type: 0, flag: 0, access_mask: 3, who };
    let stateid = Stateid4 { seqid: Seqid(1), other: [9; 12] };
    let write = nfs4::OpenWriteDelegation4 {
        stateid,
        recall: false,
        space_limit: nfs4::SpaceLimit4::Size(u64::MAX),
        permissions,
    };
    let body = "00000001 090909090909090909090909 00000000 00000001 ffffffffffffffff
                00000000 00000000 00000003 00000006 4f574e455240 0000";
    is(&nfs4::OpenDelegation4::Write(write), &hex(&format!("00000002 {body}")));
    is(&nfs4::OpenDelegation4::WriteAttrsDeleg(write), &hex(&format!("00000005 {body}")));
    let none = nfs4::OpenDelegation4::NoneExt(nfs4::OpenNoneDelegation4::Contention(true));
    is(&none, &hex("00000003 00000001 00000001"));
}

#[test]
fn locks_and_what_denies_them_are_the_rfcs() {
    let owner = nfs4::StateOwner4 { clientid: ClientId(2), owner: b"abcd" };
    let owner_hex = "0000000000000002 00000004 61626364";
    let range = "0000000000000010 ffffffffffffffff";
    let (offset, length) = (Offset(16), Length(u64::MAX));
    let open_stateid = Stateid4::CURRENT;
    let new = nfs4::OpenToLockOwner4 {
        open_seqid: Seqid(3),
        open_stateid,
        lock_seqid: Seqid(4),
        lock_owner: owner,
    };
    let (locktype, locker) = (nfs4::LockType4::WriteWait, nfs4::Locker4::New(new));
    is(
        &ArgOp::Lock(nfs4::Lock4Args { locktype, reclaim: false, offset, length, locker }),
        &hex(&format!(
            "0000000c 00000004 00000000 {range} 00000001
             00000003 00000001 000000000000000000000000 00000004 {owner_hex}"
        )),
    );
    let denied = nfs4::Lock4Denied { offset, length, locktype: nfs4::LockType4::Read, owner };
    is(&denied, &hex(&format!("{range} 00000001 {owner_hex}")));
}

#[test]
fn a_recall_on_the_back_channel_is_the_rfcs() {
    let sequence = nfs4::CbSequence4Args {
        sessionid: SessionId([5; 16]),
        sequenceid: Seqid(1),
        slotid: SlotId(0),
        highest_slotid: SlotId(0),
        cachethis: false,
        referring_call_lists: vec![nfs4::ReferringCallList4 {
            sessionid: SessionId([6; 16]),
            calls: vec![nfs4::ReferringCall4 { sequenceid: Seqid(8), slotid: SlotId(9) }],
        }],
    };
    let recall = nfs4::CbRecall4Args { stateid: Stateid4::READ_BYPASS, truncate: true, fh: &[7; 4] };
    let mut w = Writer::new();
    nfs4::encode_cb_compound(&mut w, 1, 0, &[CbArgOp::Sequence(sequence), CbArgOp::Recall(recall)]);
    let bytes =
        hex("00000000 00000001 00000000 00000002      ; no tag, minor version 1, ident 0, two operations
         0000000b 05050505050505050505050505050505 00000001 00000000 00000000 00000000
         00000001 06060606060606060606060606060606 00000001 00000008 00000009
         00000004 ffffffff ffffffffffffffffffffffff 00000001 00000004 07070707");
    assert_eq!(w.as_slice(), bytes);
}

#[test]
fn v42_results_are_the_rfcs() {
    let hole = nfs4::DataInfo4 { offset: Offset(4), length: Length(8) };
    let data = nfs4::Data4 { offset: Offset(0), data: b"abcd" };
    let contents = vec![nfs4::ReadPlusContent::Data(data), nfs4::ReadPlusContent::Hole(hole)];
    is(
        &nfs4::ReadPlus4Ok { eof: true, contents },
        &hex("00000001 00000002
             00000000 0000000000000000 00000004 61626364
             00000001 0000000000000004 0000000000000008"),
    );
    let committed = nfs4::StableHow4::FileSync;
    let response = nfs4::WriteResponse4 { callback_id: None, count: Length(8), committed, writeverf: [1; 8] };
    let requirements = nfs4::CopyRequirements4 { consecutive: true, synchronous: true };
    is(
        &nfs4::Copy4Ok { response, requirements },
        &hex("00000000 0000000000000008 00000002 0101010101010101 00000001 00000001"),
    );
    let info = nfs4::ChangeInfo4 { atomic: true, before: ChangeId(1), after: ChangeId(2) };
    is(&nfs4::SetXattr4Ok { info }, &hex("00000001 0000000000000001 0000000000000002"));
}

#[test]
fn special_state_ids_are_told_by_their_other_part() {
    for special in [Stateid4::ANONYMOUS, Stateid4::READ_BYPASS, Stateid4::CURRENT, Stateid4::INVALID] {
        assert!(special.is_special());
    }
    let mut other = [0; 12];
    other[11] = 1;
    assert!(!Stateid4 { seqid: Seqid(0), other }.is_special());
    assert!(!Stateid4 { seqid: Seqid(0), other: [1; 12] }.is_special());
}
