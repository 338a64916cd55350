//! SHARE and UNSHARE.

use holdfast_wire::nlm4::{NLM_PROGRAM, NlmProc4, NlmStat4, Share4, ShareArgs4, ShareRes4};
use holdfast_xdr::from_bytes;

use crate::world::{Client, World};

fn share(client: &mut Client, procedure: NlmProc4, fh: &[u8], (access, mode): (u32, u32)) -> NlmStat4 {
    let name = client.name.clone();
    let share = Share4 { caller_name: &name, fh, oh: b"dos", mode, access };
    let args = ShareArgs4 { cookie: b"s", share, reclaim: false };
    let results = client.call(NLM_PROGRAM, procedure.as_u32(), &args);
    let res: ShareRes4<'_> = from_bytes(&results).unwrap();
    assert_eq!(res.cookie, b"s");
    res.stat
}

#[test]
fn reservations_conflict_by_access_and_denial_and_go_with_unshare_or_the_host() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b) = (world.client(1), world.client(2));
    assert_eq!(share(&mut a, NlmProc4::Share, &fh, (1, 2)), NlmStat4::Granted, "reads, denies writing");
    assert_eq!(share(&mut b, NlmProc4::Share, &fh, (2, 0)), NlmStat4::Denied);
    assert_eq!(share(&mut b, NlmProc4::Share, &fh, (1, 0)), NlmStat4::Granted);
    assert_eq!(share(&mut a, NlmProc4::Share, &fh, (1, 3)), NlmStat4::Denied, "B reads");
    assert_eq!(share(&mut a, NlmProc4::Unshare, &fh, (1, 2)), NlmStat4::Granted);
    assert_eq!(share(&mut b, NlmProc4::Share, &fh, (3, 3)), NlmStat4::Granted, "in place of its own");
    assert_eq!(share(&mut a, NlmProc4::Share, &fh, (1, 0)), NlmStat4::Denied);
    b.notify(b"client2", 3);
    assert_eq!(share(&mut a, NlmProc4::Share, &fh, (1, 0)), NlmStat4::Granted);
    assert_eq!(world.lockd.counts(), (1, 0));
    assert_eq!(share(&mut a, NlmProc4::Share, &fh, (7, 0)), NlmStat4::Failed, "bits that mean nothing");
}
