//! Arbitrary records, one after the other, to all programs: whatever they are, the next well-formed call is
//! answered.

use holdfast_wire::nfs3::{NFS_V3, NFS3_PROGRAM};

use crate::input::Input;
use crate::world::World;

/// Records in one input at most.
const RECORDS_MAX: usize = 16;

/// See the module.
///
/// # Panics
/// When a reply is none, or when the server does not go on.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World::new();
    for _ in 0..RECORDS_MAX {
        if input.is_empty() {
            break;
        }
        let n = usize::from(u16::from_be_bytes(input.array()));
        let record = input.bytes(n);
        for reply in world.connection.exchange(record) {
            assert!(reply.len() >= 12 && reply.len() % 4 == 0, "a reply of {} bytes", reply.len());
            assert_eq!(reply[4..8], [0, 0, 0, 1], "a reply is no call");
        }
        if world.connection.connection().is_closed() {
            world.reconnect();
        }
    }
    assert_eq!(world.call(NFS3_PROGRAM, NFS_V3, 0, 0, &[]), Some(Vec::new()), "NULL");
    world.end();
}
