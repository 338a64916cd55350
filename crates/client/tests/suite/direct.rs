//! I/O to the server's disk: how it is written, and what the server is told of its memory.

use bytes::Bytes;
use holdfast_client::{Handle, Io, Options};
use holdfast_wire::nfs4::{Bitmap4, IO_ADVISE4_DONTNEED, NfsStat4, StableHow4};

use super::protocol::Guest;
use super::script::Script;

const DATA: Bytes = Bytes::from_static(b"data");

/// Writes at 5 and reads at 7, and what the server was told besides.
fn told(script: &Script, guest: &Guest) -> Vec<(Bitmap4, u64, u64)> {
    let file = Handle::new(b"file");
    let written = guest.client.write_to_disk(guest.cx(), Io::anonymous(&file), 5, DATA).unwrap();
    assert_eq!((written.count, written.committed), (4, StableHow4::DataSync));
    let read = guest.client.read_from_disk(guest.cx(), Io::anonymous(&file), 7, 10).unwrap();
    assert_eq!((read.data, read.eof), (DATA, true));
    std::mem::take(&mut script.shared.state.lock().stateful.advised)
}

#[test]
fn the_server_is_told_that_memory_is_not_to_be_spent_on_it() {
    let script = Script::new();
    let guest = Guest::of(&script);
    let drop = Bitmap4::EMPTY.with(IO_ADVISE4_DONTNEED);
    assert_eq!(told(&script, &guest), [(drop, 5, 4), (drop, 7, 10)]);
    // What comes of it does not matter, nor is it asked for again.
    script.shared.state.lock().stateful.advice.extend([NfsStat4::Delay, NfsStat4::Io]);
    assert_eq!(told(&script, &guest).len(), 2);
}

#[test]
fn a_server_that_takes_no_advice_is_asked_once() {
    for status in [NfsStat4::NotSupp, NfsStat4::OpIllegal] {
        let script = Script::new();
        let guest = Guest::of(&script);
        script.shared.state.lock().stateful.advice.push_back(status);
        assert_eq!(told(&script, &guest).len(), 1);
        assert_eq!(told(&script, &guest), []);
    }
}

#[test]
fn in_nfs_4_1_there_is_no_advice() {
    let script = Script::new();
    let mut options = Options::new(vec![script.address.to_string()]);
    options.minor = Some(1);
    assert_eq!(told(&script, &Guest::with(options)), []);
}
