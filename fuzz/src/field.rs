//! The shapes of arguments, as far as a sender who means to be understood must know them; and their values, drawn
//! from the input and from what earlier replies told.

use crate::input::Input;

/// A part of an operation's arguments.
#[derive(Clone, Copy)]
pub(crate) enum Field {
    U32,
    U64,
    Bool,
    /// A number up to this, mostly.
    Upto(u32),
    /// These bits, mostly.
    Bits(u32),
    /// A file offset or a length: small enough to hit data, mostly.
    Offset,
    Cookie,
    Name,
    /// Opaque data of about so many bytes.
    Data(usize),
    Fixed(usize),
    Handle,
    Stateid,
    ClientId,
    SessionId,
    Verifier,
    Bitmap,
    /// `fattr4` of attributes that can be set.
    Attrs,
    /// `sattr3`.
    Sattr,
    Optional(&'static [Field]),
    List(&'static [Field]),
    Union(&'static [(u32, &'static [Field])]),
}

/// What a client has learned and may use again.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) handles: Vec<Vec<u8>>,
    pub(crate) stateids: Vec<[u8; 16]>,
    pub(crate) clients: Vec<[u8; 8]>,
    pub(crate) sessions: Vec<[u8; 16]>,
    pub(crate) verifiers: Vec<[u8; 8]>,
    pub(crate) cookies: Vec<[u8; 8]>,
}

/// As much as is remembered of each kind; the newest replace the oldest but the first.
const REMEMBERED: usize = 32;

pub(crate) fn remember<T: PartialEq>(known: &mut Vec<T>, one: T) {
    // What is told again is the newest again.
    if let Some(at) = known.iter().position(|k| *k == one) {
        known.remove(at);
    } else if known.len() >= REMEMBERED {
        known.remove(1);
    }
    known.push(one);
}

const NAMES: [&[u8]; 16] = [
    b"a",
    b"b",
    b"c",
    b"d",
    b"e",
    b"s",
    b"x",
    b"a",
    b"b",
    b".",
    b"..",
    b"",
    b"a/b",
    b"nul\0",
    b"\xff\xfe",
    b"user.x",
];

fn opaque(bytes: &[u8], to: &mut Vec<u8>) {
    to.extend((bytes.len() as u32).to_be_bytes());
    to.extend(bytes);
    to.resize(to.len().next_multiple_of(4), 0);
}

fn name(input: &mut Input<'_>) -> Vec<u8> {
    match input.u8() {
        n @ 0..=239 => NAMES[usize::from(n) % NAMES.len()].to_vec(),
        240..=247 => vec![b'n'; 255],
        248..=249 => vec![b'n'; 256],
        250 => vec![b'n'; 9000],
        _ => {
            let n = input.below(32);
            input.bytes(n).to_vec()
        }
    }
}

fn known<const N: usize>(input: &mut Input<'_>, known: &[[u8; N]]) -> [u8; N] {
    if input.one_in(32) {
        return input.array();
    }
    input.pick_late(known).copied().unwrap_or([0; N])
}

/// Writes the fields in order.
pub(crate) fn write_all(fields: &[Field], input: &mut Input<'_>, known: &Known, to: &mut Vec<u8>) {
    for field in fields {
        field.write(input, known, to);
    }
}

impl Field {
    fn write(self, input: &mut Input<'_>, known: &Known, to: &mut Vec<u8>) {
        match self {
            Self::Optional(fields) => {
                let is_there = input.u8() % 2;
                to.extend(u32::from(is_there).to_be_bytes());
                if is_there == 1 {
                    write_all(fields, input, known, to);
                }
            }
            Self::List(fields) => {
                let n = input.below(4) as u32;
                to.extend(n.to_be_bytes());
                (0..n).for_each(|_| write_all(fields, input, known, to));
            }
            Self::Union(arms) => {
                let Some((discriminant, fields)) = input.pick(arms) else { return };
                to.extend(discriminant.to_be_bytes());
                write_all(fields, input, known, to);
            }
            Self::Attrs => attrs(input, to),
            Self::Sattr => sattr(input, to),
            _ => self.write_plain(input, known, to),
        }
    }

    fn write_plain(self, input: &mut Input<'_>, known: &Known, to: &mut Vec<u8>) {
        match self {
            Self::U32 => to.extend(input.u32().to_be_bytes()),
            Self::U64 => to.extend(input.u64().to_be_bytes()),
            Self::Bool => to.extend(u32::from(input.u8() % 2).to_be_bytes()),
            Self::Upto(max) => {
                let n = if input.one_in(64) { input.u32() } else { u32::from(input.u8()) % (max + 1) };
                to.extend(n.to_be_bytes());
            }
            Self::Bits(mask) => {
                let n = if input.one_in(64) { u32::MAX } else { input.u32() };
                to.extend((n & mask).to_be_bytes());
            }
            Self::Offset => {
                let n = if input.one_in(8) { input.u64() } else { u64::from(input.u8()) * 512 };
                to.extend(n.to_be_bytes());
            }
            Self::Cookie => to.extend(self::known(input, &known.cookies)),
            Self::Name => opaque(&name(input), to),
            Self::Data(max) => {
                let n = usize::from(input.u8()) * max / 255;
                opaque(&vec![input.u8(); n], to);
            }
            Self::Fixed(n) => (0..n).for_each(|_| to.push(input.u8())),
            Self::Handle => match input.one_in(32) {
                true => opaque(input.bytes(40), to),
                false => opaque(input.pick_late(&known.handles).map_or(&[], |h| h), to),
            },
            Self::Stateid => to.extend(stateid(input, known)),
            Self::ClientId => to.extend(self::known(input, &known.clients)),
            Self::SessionId => to.extend(self::known(input, &known.sessions)),
            Self::Verifier => to.extend(self::known(input, &known.verifiers)),
            Self::Bitmap => bitmap(input, to),
            Self::Attrs | Self::Sattr | Self::Optional(_) | Self::List(_) | Self::Union(_) => {}
        }
    }
}

fn stateid(input: &mut Input<'_>, known: &Known) -> [u8; 16] {
    let mut current = [0; 16];
    current[3] = 1;
    let mut other = match input.u8() {
        0..=20 => return [0; 16],
        21..=30 => return [0xff; 16],
        31..=90 => return current,
        _ => self::known(input, &known.stateids),
    };
    match input.u8() {
        0..=60 => other[..4].fill(0),
        61..=70 => other[..4].copy_from_slice(&input.array::<4>()),
        _ => {}
    }
    other
}

fn bitmap(input: &mut Input<'_>, to: &mut Vec<u8>) {
    // Everything of a file system, what Linux asks of a file, or anything.
    let words: [u32; 3] = match input.u8() {
        0..=80 => [0x0018_091a, 0x00b0_a23a, 0],
        81..=120 => [u32::MAX; 3],
        121..=140 => [0; 3],
        _ => [input.u32(), input.u32(), input.u32()],
    };
    let n = 3 - words.iter().rev().take_while(|w| **w == 0).count() as u32;
    to.extend(n.to_be_bytes());
    words[..n as usize].iter().for_each(|w| to.extend(w.to_be_bytes()));
}

/// Attributes that can be set, in the order in which they travel: number and shape.
const SETTABLE: [(u32, &[Field]); 8] = [
    (4, &[Field::Offset]),
    (12, &[Field::List(&[Field::Upto(3), Field::Upto(3), Field::U32, Field::Name])]),
    (33, &[Field::Bits(0xffff)]),
    (36, &[Field::Name]),
    (37, &[Field::Name]),
    (48, &[Field::Union(&[(0, &[]), (1, &[Field::U64, Field::U32])])]),
    (54, &[Field::Union(&[(0, &[]), (1, &[Field::U64, Field::U32])])]),
    (81, &[Field::Bits(0o7777), Field::Bits(0o777)]),
];

fn attrs(input: &mut Input<'_>, to: &mut Vec<u8>) {
    if input.one_in(16) {
        bitmap(input, to);
        let n = input.below(64);
        return opaque(input.bytes(n), to);
    }
    let chosen = input.u8() & input.u8();
    let (mut words, mut values) = ([0_u32; 3], Vec::new());
    for (i, (number, fields)) in SETTABLE.iter().enumerate() {
        if chosen & (1 << i) != 0 {
            words[*number as usize / 32] |= 1 << (number % 32);
            write_all(fields, input, &Known::default(), &mut values);
        }
    }
    to.extend(3_u32.to_be_bytes());
    words.iter().for_each(|w| to.extend(w.to_be_bytes()));
    opaque(&values, to);
}

fn sattr(input: &mut Input<'_>, to: &mut Vec<u8>) {
    const TIME: Field = Field::Union(&[(0, &[]), (1, &[]), (2, &[Field::U32, Field::U32])]);
    const SATTR: [Field; 6] = [
        Field::Optional(&[Field::Bits(0xffff)]),
        Field::Optional(&[Field::Upto(3)]),
        Field::Optional(&[Field::Upto(3)]),
        Field::Optional(&[Field::Offset]),
        TIME,
        TIME,
    ];
    write_all(&SATTR, input, &Known::default(), to);
}
