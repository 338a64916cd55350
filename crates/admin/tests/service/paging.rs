//! Long lists come in pages, and whole.

use holdfast_admin::AdminClient;
use holdfast_admin::request::{ClientsWanted, LocksWanted};

use crate::fake::{Fake, PAGE, scene};

#[test]
fn all_pages_are_asked_for_and_no_row_comes_twice() {
    for rows in [0, 1, PAGE, PAGE + 1, 10 * PAGE] {
        let scene = scene(Fake { clients: rows, holdings: rows, ..Fake::default() });
        let mut client = AdminClient::connect(scene.dir.path()).unwrap();
        let ids: Vec<String> = (0..rows).map(|n| n.to_string()).collect();
        let clients = client.clients(ClientsWanted::default()).unwrap();
        assert_eq!(clients.iter().map(|c| c.id.clone()).collect::<Vec<_>>(), ids);
        let holdings = client.locks(LocksWanted::default()).unwrap();
        assert_eq!(holdings.iter().map(|h| h.id.clone()).collect::<Vec<_>>(), ids);
    }
}
