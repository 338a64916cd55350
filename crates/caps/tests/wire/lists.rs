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
    let both = GrantFlags(GrantFlags::PLAIN.0 | GrantFlags::HANDS_ON_NONE.0);
    assert_eq!(flags(&mut client, &root, CapSet::ALL_X), both);
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

#[test]
fn that_a_directory_hands_on_no_list_is_told_who_holds_what_covers_that() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let done = client.batch(1, vec![mkdir(at(&root), "d"), create(at(&root), "f", b"")]).unwrap();
    let [dir, file] = [0, 1].map(|n: usize| made(&done.results[n]).handle.0.to_vec());
    let flags = |client: &mut Client, handle: &[u8], want| client.acquire(handle, want).unwrap().grant.flags;
    let covers = CapSet::AUTH_S | CapSet::XATTR_S;
    assert_eq!(flags(&mut client, &dir, CapSet::AUTH_S), GrantFlags::LISTED, "others may give it one unseen");
    assert_eq!(flags(&mut client, &dir, covers), GrantFlags::HANDS_ON_NONE);
    assert_eq!(flags(&mut client, &file, covers), GrantFlags::default(), "nothing is made in a file");
    // Others hold it as well.
    let mut other = Client::new(&server, "b");
    assert_eq!(flags(&mut other, &dir, CapSet::ALL_S), GrantFlags::HANDS_ON_NONE);
}
