//! A client that misbehaves: it reclaims what it never had.

use std::rc::Rc;

use holdfast_wire::nfs4::*;

use super::app::{SHARED, file_name};
use super::v4::{Acted, Client4, Kind};
use crate::rng::Rng;
use crate::wire::Ops;
use crate::world::World;

const OWNER: &[u8] = b"liar";

/// Tries again and again, until nothing fails any more, each time as one that has just been started and so has nothing.
pub(crate) async fn lie(world: Rc<World>, host: usize, mut rng: Rng) {
    let kind = Kind { minor: 0, answers_callbacks: true };
    for starts in 1.. {
        world.exec.sleep(rng.between(300, 3_000)).await;
        if world.is_calm() {
            return;
        }
        let client = Client4::new(&world, host, kind, starts, rng.fork());
        reclaim(&client, rng.below(SHARED as u64) as usize).await;
        client.die();
    }
}

async fn reclaim(client: &Client4, file: usize) {
    let name = file_name(file);
    // A server may take whoever asks for one that might have something.
    client.world.oracles.reclaims(|reclaims| {
        reclaims.asks((client.host, client.starts));
        Ok(())
    });
    let after = [OpNum4::PutRootFh, OpNum4::Lookup, OpNum4::Lookup];
    let make = || {
        let open = Open4Args {
            seqid: client.seqid(OWNER),
            share_access: OPEN4_SHARE_ACCESS_BOTH,
            share_deny: OPEN4_SHARE_DENY_NONE,
            owner: StateOwner4 { clientid: client.client_id.get()?, owner: OWNER },
            openhow: OpenFlag4::NoCreate,
            claim: OpenClaim4::Previous(OpenDelegationType4::None),
        };
        Some(Ops::new(&[
            ArgOp::PutRootFh,
            ArgOp::Lookup(Lookup4Args { objname: b"export" }),
            ArgOp::Lookup(Lookup4Args { objname: name.as_bytes() }),
            ArgOp::Open(open),
        ]))
    };
    let acted = client.act_counted(make, (&after, || vec![OWNER.to_vec()])).await;
    let Some(Acted { reply, sent, deaths, .. }) = acted else { return };
    if reply.status == NfsStat4::Ok {
        let who = (client.host, client.starts);
        let what = (Some(OWNER.to_vec()), file);
        client.world.oracles.reclaims(|reclaims| reclaims.reclaimed(who, what, (sent, deaths)));
    }
}
