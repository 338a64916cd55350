//! The arguments of NFSv3's procedures (RFC 1813 section 3.3).

use crate::field::Field::{self, *};

/// By number.
pub(crate) const PROCEDURES: [&[Field]; 22] = [
    &[],
    &[Handle],
    &[Handle, Sattr, Optional(&[U32, U32])],
    &[Handle, Name],
    &[Handle, Bits(0x3f)],
    &[Handle],
    &[Handle, Offset, U32],
    // WRITE counts its bytes twice; an odd count is the server's to judge.
    &[Handle, Offset, U32, Upto(2), Data(9000)],
    &[Handle, Name, Union(&[(0, &[Sattr]), (1, &[Sattr]), (2, &[Fixed(8)])])],
    &[Handle, Name, Sattr],
    &[Handle, Name, Sattr, Name],
    &[
        Handle,
        Name,
        Union(&[
            (3, &[Sattr, U32, U32]),
            (4, &[Sattr, U32, U32]),
            (6, &[Sattr]),
            (7, &[Sattr]),
            (1, &[]),
            (2, &[]),
        ]),
    ],
    &[Handle, Name],
    &[Handle, Name],
    &[Handle, Name, Handle, Name],
    &[Handle, Handle, Name],
    &[Handle, Cookie, Verifier, U32],
    &[Handle, Cookie, Verifier, U32, U32],
    &[Handle],
    &[Handle],
    &[Handle],
    &[Handle, Offset, U32],
];
