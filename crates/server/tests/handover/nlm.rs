//! Locks of NFSv3 go on.

use holdfast_base::{Length, Offset};
use holdfast_wire::nlm4::{LockArgs4, NlmLock4, UnlockArgs4};
use holdfast_xdr::to_bytes;

use crate::client::{Client, NFS3, opaque, word, words};
use crate::prober::{Prober, is_free};
use crate::server::{Server, root};

const NLM: (u32, u32) = (100_021, 4);
const LOCK: u32 = 2;
const UNLOCK: u32 = 4;

/// `NLM4_GRANTED` and `NLM4_DENIED`.
const GRANTED: u32 = 0;
const DENIED: u32 = 1;

fn whole_file<'a>(fh: &'a [u8], owner: &'a [u8], svid: i32) -> NlmLock4<'a> {
    NlmLock4 { caller_name: b"client", fh, oh: owner, svid, offset: Offset(0), length: Length(0) }
}

fn lock(client: &mut Client, lock: NlmLock4<'_>) -> u32 {
    let args = LockArgs4 { cookie: b"1", block: false, exclusive: true, lock, reclaim: false, state: 1 };
    // The cookie, of four bytes with its length's word, and then the status.
    word(&client.ask(NLM, LOCK, &to_bytes(&args)), 2)
}

fn unlock(client: &mut Client, lock: NlmLock4<'_>) -> u32 {
    word(&client.ask(NLM, UNLOCK, &to_bytes(&UnlockArgs4 { cookie: b"1", lock })), 2)
}

/// Makes a file and gives its handle.
fn make(client: &mut Client, dir: &[u8], name: &[u8]) -> Vec<u8> {
    let args = [&opaque(dir)[..], &opaque(name), &words(&[0, 1, 0o666, 0, 0, 0, 0, 0])].concat();
    let made = client.ask(NFS3, 8, &args);
    assert_eq!([0, 1].map(|n| word(&made, n)), [0, 1], "CREATE, with a handle");
    made[12..12 + word(&made, 2) as usize].to_vec()
}

#[test]
fn a_lock_of_nfsv3_goes_on_and_no_local_process_gets_it() {
    let mut server = Server::start();
    let mut client = Client::connect(server.address);
    let dir = root(&mut client);
    let fh = make(&mut client, &dir, b"file");
    assert_eq!(lock(&mut client, whole_file(&fh, b"one", 1)), GRANTED);
    assert!(!is_free(&server.file("file")));
    let prober = Prober::of(&server.file("file"));
    for _ in 0..3 {
        server.replace();
        assert_eq!(lock(&mut client, whole_file(&fh, b"two", 2)), DENIED);
    }
    let (tried, had) = prober.end();
    assert_eq!(had, 0, "in {tried} tries a local process got the lock");
    assert_eq!(unlock(&mut client, whole_file(&fh, b"one", 1)), GRANTED);
    assert!(is_free(&server.file("file")));
    // Not the very call that was denied before, which would be answered as a repeated one is.
    assert_eq!(lock(&mut client, whole_file(&fh, b"three", 3)), GRANTED);
}
