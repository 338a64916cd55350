//! The arguments of NFSv4's operations (RFC 5662, 7863, 8276), by number.

use crate::field::Field::{self, *};

const OWNER: [Field; 2] = [ClientId, Name];
const CHANNEL: Field = Union(&[
    (0, &[U32, U32, U32, U32, U32, List(&[U32])]),
    (0, &[U32, U32, U32, Upto(40), Upto(9), List(&[])]),
]);
const SECURITY: Field =
    List(&[Union(&[(0, &[]), (1, &[U32, Name, U32, U32, List(&[U32])]), (6, &[Upto(3), Name, Name])])]);
const CREATE_HOW: Field = Union(&[(0, &[Attrs]), (1, &[Attrs]), (2, &[Fixed(8)]), (3, &[Fixed(8), Attrs])]);
const CLAIM: Field = Union(&[
    (0, &[Name]),
    (0, &[Name]),
    (0, &[Name]),
    (1, &[Upto(5)]),
    (2, &[Stateid, Name]),
    (3, &[Name]),
    (4, &[]),
    (4, &[]),
    (5, &[Stateid]),
    (6, &[]),
]);

/// Number and arguments of each; the common ones more than once, so that they are picked more often.
#[rustfmt::skip]
pub(crate) const OPS: &[(u32, &[Field])] = &[
    (3, &[Bits(0x1ff)]),                                        // ACCESS
    (4, &[Upto(4), Stateid]), (4, &[Upto(4), Stateid]),         // CLOSE
    (5, &[Offset, U32]),                                        // COMMIT
    (6, &[Union(&[(5, &[Name]), (3, &[U32, U32]), (4, &[U32, U32]), (6, &[]), (7, &[]), (2, &[]), (2, &[]), (1, &[])]), Name, Attrs]), // CREATE
    (7, &[ClientId]),                                           // DELEGPURGE
    (8, &[Stateid]),                                            // DELEGRETURN
    (9, &[Bitmap]), (9, &[Bitmap]),                             // GETATTR
    (10, &[]), (10, &[]),                                       // GETFH
    (11, &[Name]),                                              // LINK
    (12, &[Upto(5), Bool, Offset, Offset, Union(&[(1, &[Upto(4), Stateid, Upto(4), ClientId, Name]), (0, &[Stateid, Upto(4)])])]), // LOCK
    (12, &[Upto(5), Bool, Offset, Offset, Union(&[(1, &[Upto(4), Stateid, Upto(4), ClientId, Name]), (0, &[Stateid, Upto(4)])])]),
    (13, &[Upto(5), Offset, Offset, ClientId, Name]),           // LOCKT
    (14, &[Upto(5), Upto(4), Stateid, Offset, Offset]),         // LOCKU
    (15, &[Name]), (15, &[Name]),                               // LOOKUP
    (16, &[]),                                                  // LOOKUPP
    (17, &[Attrs]),                                             // NVERIFY
    (18, &[Upto(4), Bits(0x0030_ff03), Upto(3), ClientId, Name, Union(&[(0, &[]), (1, &[CREATE_HOW])]), CLAIM]), // OPEN
    (18, &[Upto(4), Upto(3), Upto(0), ClientId, Name, Union(&[(1, &[CREATE_HOW])]), Union(&[(0, &[Name])])]),
    (18, &[Upto(4), Upto(3), Upto(3), ClientId, Name, Union(&[(0, &[])]), Union(&[(0, &[Name]), (4, &[])])]),
    (19, &[Bool]),                                              // OPENATTR
    (20, &[Stateid, Upto(4)]),                                  // OPEN_CONFIRM
    (21, &[Stateid, Upto(4), Upto(3), Upto(3)]),                // OPEN_DOWNGRADE
    (22, &[Handle]), (22, &[Handle]), (22, &[Handle]),          // PUTFH
    (23, &[]),                                                  // PUTPUBFH
    (24, &[]), (24, &[]),                                       // PUTROOTFH
    (25, &[Stateid, Offset, U32]),                              // READ
    (26, &[Cookie, Verifier, U32, U32, Bitmap]),                // READDIR
    (27, &[]),                                                  // READLINK
    (28, &[Name]),                                              // REMOVE
    (29, &[Name, Name]),                                        // RENAME
    (30, &[ClientId]),                                          // RENEW
    (31, &[]),                                                  // RESTOREFH
    (32, &[]), (32, &[]),                                       // SAVEFH
    (33, &[Name]),                                              // SECINFO
    (34, &[Stateid, Attrs]),                                    // SETATTR
    (35, &[Fixed(8), Name, U32, Name, Name, U32]),              // SETCLIENTID
    (36, &[ClientId, Verifier]),                                // SETCLIENTID_CONFIRM
    (37, &[Attrs]),                                             // VERIFY
    (38, &[Stateid, Offset, Upto(2), Data(9000)]),              // WRITE
    (39, &OWNER),                                               // RELEASE_LOCKOWNER
    (40, &[U32, SECURITY]),                                     // BACKCHANNEL_CTL
    (41, &[SessionId, Upto(7), Bool]),                          // BIND_CONN_TO_SESSION
    (42, &[Fixed(8), Name, Bits(0x4007_0107), Union(&[(0, &[]), (1, &[Bitmap, Bitmap]), (2, &[Bitmap, Bitmap, List(&[Name]), List(&[Name]), U32, U32])]), List(&[])]), // EXCHANGE_ID
    (43, &[ClientId, Upto(4), Bits(7), CHANNEL, CHANNEL, U32, SECURITY]), // CREATE_SESSION
    (44, &[SessionId]),                                         // DESTROY_SESSION
    (45, &[Stateid]),                                           // FREE_STATEID
    (46, &[Bool, Bitmap, U64, U32, U64, U32, Bitmap, Bitmap]),  // GET_DIR_DELEGATION
    (47, &[Fixed(16), U32, U32, Bitmap]),                       // GETDEVICEINFO
    (48, &[U32, U32, Cookie, Verifier]),                        // GETDEVICELIST
    (49, &[Offset, Offset, Bool, Stateid, Optional(&[Offset]), Optional(&[U64, U32]), U32, Name]), // LAYOUTCOMMIT
    (50, &[Bool, U32, Upto(3), Offset, Offset, Offset, Stateid, U32]), // LAYOUTGET
    (51, &[Bool, U32, Upto(3), Union(&[(1, &[Offset, Offset, Stateid, Name]), (2, &[]), (3, &[])])]), // LAYOUTRETURN
    (52, &[Upto(1)]),                                           // SECINFO_NO_NAME
    (53, &[SessionId, Upto(4), Upto(8), Upto(8), Bool]),        // SEQUENCE, where it may not be
    (54, &[Name, Name]),                                        // SET_SSV
    (55, &[List(&[Stateid])]),                                  // TEST_STATEID
    (56, &[U32, Union(&[(1, &[Upto(5)]), (4, &[]), (6, &[])])]), // WANT_DELEGATION
    (57, &[ClientId]),                                          // DESTROY_CLIENTID
    (58, &[Bool]),                                              // RECLAIM_COMPLETE
    (59, &[Stateid, Offset, Offset]),                           // ALLOCATE
    (60, &[Stateid, Stateid, Offset, Offset, Offset, Bool, Bool, List(&[Union(&[(1, &[Name]), (2, &[Name]), (3, &[Name, Name])])])]), // COPY
    (60, &[Stateid, Stateid, Offset, Offset, Offset, Bool, Bool, Upto(0)]),
    (61, &[Stateid, Union(&[(1, &[Name]), (2, &[Name]), (3, &[Name, Name])])]), // COPY_NOTIFY
    (62, &[Stateid, Offset, Offset]),                           // DEALLOCATE
    (63, &[Stateid, Offset, Offset, Bitmap]),                   // IO_ADVISE
    (64, &[Offset, Offset, Stateid, List(&[Fixed(16), U32, U32])]), // LAYOUTERROR
    (65, &[Offset, Offset, Stateid, U64, U64, U64, U64, Fixed(16), U32, Name]), // LAYOUTSTATS
    (66, &[Stateid]),                                           // OFFLOAD_CANCEL
    (67, &[Stateid]),                                           // OFFLOAD_STATUS
    (68, &[Stateid, Offset, U32]),                              // READ_PLUS
    (69, &[Stateid, Offset, Upto(2)]),                          // SEEK
    (70, &[Stateid, Upto(2), Offset, U64, U64, U64, U32, U64, Name]), // WRITE_SAME
    (71, &[Stateid, Stateid, Offset, Offset, Offset]),          // CLONE
    (72, &[Name]),                                              // GETXATTR
    (73, &[Upto(2), Name, Data(70_000)]), (73, &[Upto(2), Name, Data(100)]), // SETXATTR
    (74, &[Cookie, U32]),                                       // LISTXATTRS
    (75, &[Name]),                                              // REMOVEXATTR
];
