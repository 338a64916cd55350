use std::io::Write;
use std::time::Duration;

use holdfast_rpc::server::Limits;

use crate::client::{Client, call, marked, results, word, words};
use crate::program::*;

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|n| (n ^ (n >> 8) ^ (n >> 16)) as u8).collect()
}

/// What a FILE call answers.
fn expected(content: &[u8], offset: usize, bytes: usize) -> Vec<u8> {
    let mut out = words(&[bytes as u32], &content[offset..offset + bytes]);
    out.resize(out.len().next_multiple_of(4), 0);
    out.extend(b"end.");
    out
}

#[test]
fn files_in_replies_are_right_at_any_size_and_mixed_with_others() {
    let content = content(3 << 20);
    let host = Host::with(Everything::with_file(&content), Limits::default());
    let mut client = Client::connect(host.address());
    let cases = [(0, 1), (5, 4095), (1, 65_537), (4096, 1 << 20), (77, (2 << 20) + 3), (9, 0)];
    let mut batch = Vec::new();
    for (xid, (offset, bytes)) in cases.iter().enumerate() {
        batch.extend(marked(&call(2 * xid as u32, FILE, &words(&[*offset, *bytes], b""))));
        batch.extend(marked(&call(2 * xid as u32 + 1, ECHO, b"between.")));
    }
    client.0.write_all(&batch).unwrap();
    for (xid, (offset, bytes)) in cases.iter().enumerate() {
        let reply = client.receive();
        assert_eq!(word(&reply, 0), 2 * xid as u32);
        assert!(results(&reply) == expected(&content, *offset as usize, *bytes as usize), "case {xid}");
        assert_eq!(results(&client.receive()), b"between.");
    }
}

#[test]
fn a_slow_reader_gets_files_in_pieces_and_whole() {
    let content = content(1 << 20);
    let host = Host::with(Everything::with_file(&content), Limits::default());
    let mut client = Client::connect(host.address());
    let batch: Vec<u8> =
        (0..40).flat_map(|xid| marked(&call(xid, FILE, &words(&[0, 1 << 20], b"")))).collect();
    client.0.write_all(&batch).unwrap();
    for xid in 0..40 {
        if xid % 8 == 0 {
            std::thread::sleep(Duration::from_millis(30));
        }
        let reply = client.receive();
        assert_eq!(word(&reply, 0), xid);
        assert!(results(&reply) == expected(&content, 0, 1 << 20));
    }
}

#[test]
fn a_file_that_shrank_ends_the_connection_rather_than_falsify_it() {
    let host = Host::with(Everything::with_file(&content(1000)), Limits::default());
    let mut client = Client::connect(host.address());
    client.send(&call(1, FILE, &words(&[500, 5000], b"")));
    assert!(client.try_receive().is_err());
    let mut other = Client::connect(host.address());
    assert_eq!(other.ask(1, ECHO, b"well"), b"well");
}
