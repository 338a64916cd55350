//! Access lists, where the file system has none. (Where it has, `lab`'s `listed::*` and `backend-local` show them.)

use holdfast_wire::caps::*;

use crate::world::*;

#[test]
fn where_there_are_no_lists_grants_say_so_and_an_empty_one_is_read_by_anybody() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let done = client.batch(1, vec![create(at(&root), "f", b"")]).unwrap();
    let file = made(&done.results[0]).handle.0.to_vec();
    let flags = |client: &mut Client, handle: &[u8], want| client.acquire(handle, want).unwrap().grant.flags;
    // Who might have its extended attributes for himself is not asked for that.
    assert_eq!(flags(&mut client, &file, CapSet::AUTH_S), GrantFlags::LISTED);
    assert_eq!(flags(&mut client, &file, CapSet::AUTH_S | CapSet::XATTR_S), GrantFlags::default());
    assert_eq!(flags(&mut client, &root, CapSet::ALL_X), GrantFlags::PLAIN);
    client.auth = user(1000);
    for handle in [&file, &root] {
        for which in [WhichList::Access, WhichList::Default] {
            let args = AccessListArgs { ticket: client.ticket, handle: Handle(handle), which };
            let ok: AccessListOk<'_> = client.call(CapsProc::AccessList, &args).unwrap();
            assert_eq!(ok.list, b"");
        }
    }
    let args = AccessListArgs { ticket: Ticket(1), handle: Handle(&file), which: WhichList::Access };
    let stale = client.call::<AccessListOk<'_>>(CapsProc::AccessList, &args);
    assert_eq!(stale, Err(CapsStat::BadTicket));
}
