//! What tells a call from another, and hashes of it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;

use holdfast_xdr::{Decode, Encode, Reader, Writer};
use siphasher::sip::SipHasher13;

use crate::auth::Auth;
use crate::service::Call;

/// Bytes of the arguments that the sum covers: everything but what a WRITE carries. Handles, names, attributes and a
/// link's text fit. To sum a whole WRITE would cost as much as to do it, and one may be done twice.
const SUM_BYTES: usize = 8 << 10;

/// Bytes of them, with the credential, under a hash that nobody can aim at another's call. What follows is data of the
/// same call by the same user, who would deceive only himself: a quicker sum does, for this is half of a WRITE's cost.
const SUM_HEAD_BYTES: usize = 512;

/// The same of a call that carries more than handles, names and attributes: its handle, and what it does with it.
const SUM_HEAD_BYTES_OF_BULK: usize = 128;

/// What two sendings of one call have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The client's address.
    pub client: IpAddr,
    /// Transaction id.
    pub xid: u32,
    /// Program number.
    pub program: u32,
    /// Program version.
    pub version: u32,
    /// Procedure number.
    pub procedure: u32,
    /// Bytes of the arguments.
    pub length: u32,
    /// Over the credential and the arguments but for bulk data. Stable across restarts.
    pub sum: u64,
}

impl std::hash::Hash for Key {
    /// The sum is a hash of nearly all the rest, but not by a secret: what it is and the xid are the client's to choose.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.sum);
        state.write_u32(self.xid);
    }
}

/// Hashes keys by a secret of this process, at a fifth of what the standard library's hash costs: keys are two words, of
/// which one is a hash.
pub(super) struct Secret([u64; 2]);

impl Default for Secret {
    fn default() -> Self {
        let random = RandomState::new();
        Self([random.hash_one(0), random.hash_one(1) | 1])
    }
}

impl BuildHasher for Secret {
    type Hasher = SecretHasher;

    fn build_hasher(&self) -> SecretHasher {
        SecretHasher { hash: self.0[0], factor: self.0[1] }
    }
}

/// Any number in which ones and zeros are mixed well (the golden ratio's).
const FINISH: u64 = 0x9e37_79b9_7f4a_7c15;

/// Multiplies what has come so far by a secret factor, and folds the product.
pub(super) struct SecretHasher {
    hash: u64,
    factor: u64,
}

impl Hasher for SecretHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        self.hash = mix(self.hash ^ n, self.factor);
    }

    /// Once more: numbers that follow one another, as those of one client's calls do, crowd together after one
    /// multiplication by a factor that chance made a bad one.
    fn finish(&self) -> u64 {
        mix(self.hash ^ FINISH, self.factor)
    }
}

fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// A quick sum: four lanes of 16 bytes a multiplication, so that none waits for the one before.
pub(super) fn fold(bytes: &[u8]) -> u64 {
    const SECRETS: [u64; 4] =
        [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f, 0x1656_67b1_9e37_79f9, 0x27d4_eb2f_1656_67c5];
    // Neither is a lane's start: a factor of nothing would make nothing of all before it.
    const LAST: [u64; 2] = [0x85eb_ca77_c2b2_ae63, 0xff51_afd7_ed55_8ccd];
    let (rows, rest) = bytes.as_chunks::<64>();
    let mut lanes = SECRETS;
    for row in rows {
        let (pairs, _) = row.as_chunks::<16>();
        for ((lane, pair), secret) in lanes.iter_mut().zip(pairs).zip(SECRETS) {
            let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| pair[at + i]));
            *lane = mix(word(0) ^ secret, word(8) ^ *lane);
        }
    }
    let (words, last) = rest.as_chunks::<8>();
    let last = last.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let words = words.iter().map(|word| u64::from_le_bytes(*word)).chain([last]);
    lanes.into_iter().chain(words).fold(bytes.len() as u64, |sum, word| mix(sum ^ LAST[0], word ^ LAST[1]))
}

impl Key {
    /// The key of a call whose arguments have not been read yet.
    #[must_use]
    pub fn of(program: u32, call: &Call<'_>) -> Self {
        let args = call.args.rest();
        let mut hasher = SipHasher13::new();
        if let Auth::Sys(sys) = &**call.auth {
            hasher.write_u32(sys.uid);
            hasher.write_u32(sys.gid);
            hasher.write_usize(sys.groups.len());
            sys.groups.iter().for_each(|gid| hasher.write_u32(*gid));
            hasher.write_usize(sys.machine.len());
            hasher.write(&sys.machine);
        }
        let summed = &args[..args.len().min(SUM_BYTES)];
        let head_bytes =
            if summed.len() > 2 * SUM_HEAD_BYTES { SUM_HEAD_BYTES_OF_BULK } else { SUM_HEAD_BYTES };
        let (head, bulk) = summed.split_at(summed.len().min(head_bytes));
        hasher.write(head);
        if !bulk.is_empty() {
            hasher.write_u64(fold(bulk));
        }
        Self {
            client: call.connection.peer().ip(),
            xid: call.xid,
            program,
            version: call.version,
            procedure: call.procedure,
            length: args.len() as u32,
            sum: hasher.finish(),
        }
    }
}

/// The form in which the journal keeps keys: 44 bytes. An IPv4 address is kept as an IPv4-mapped one.
impl Encode for Key {
    fn encode(&self, w: &mut Writer) {
        let ip = match self.client {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        w.fixed(&ip.octets());
        for word in [self.xid, self.program, self.version, self.procedure, self.length] {
            w.u32(word);
        }
        w.u64(self.sum);
    }
}

impl Decode<'_> for Key {
    fn decode(r: &mut Reader<'_>) -> holdfast_xdr::Result<Self> {
        Ok(Self {
            client: IpAddr::from(r.array::<16>()?).to_canonical(),
            xid: r.u32()?,
            program: r.u32()?,
            version: r.u32()?,
            procedure: r.u32()?,
            length: r.u32()?,
            sum: r.u64()?,
        })
    }
}
