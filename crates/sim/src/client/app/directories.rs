//! Other clients' directories, looked at under a delegation: of changes of their entries the client is told, or nobody makes
//! them meanwhile; kind by kind, as it asked.

use std::collections::BTreeSet;

use holdfast_base::Cookie;

use holdfast_wire::nfs4::*;

use super::{IN_DIRECTORY, Process, directory_name, root};
use crate::client::v4::Acted;
use crate::wire::Ops;

/// Changes of entries of which a client may be told.
const KINDS: [u32; 3] = [NOTIFY4_ADD_ENTRY, NOTIFY4_REMOVE_ENTRY, NOTIFY4_RENAME_ENTRY];
/// All of them, as one asks who knows no order.
const ALL: Bitmap4 = Bitmap4::EMPTY
    .with(NOTIFY4_ADD_ENTRY)
    .with(NOTIFY4_REMOVE_ENTRY)
    .with(NOTIFY4_RENAME_ENTRY)
    .with(NOTIFY4_CHANGE_DIR_ATTRS)
    .with(NOTIFY4_GFLAG_EXTEND);

const NO_TIME: NfsTime4 = NfsTime4 { seconds: 0, nseconds: 0 };

impl Process {
    /// Asks for a delegation of a directory that another client changes.
    pub(super) async fn watch_directory(&self) {
        let client = &self.client;
        // All but the one that lies, which has none.
        let hosts = client.world.hosts() - 1;
        let host = (client.host + 1 + self.below(hosts as u64 - 1) as usize) % hosts;
        self.doing(format!("asks for a delegation of directory {host}"));
        let life = client.world.lives();
        let name = directory_name(host);
        client.world.oracles.reclaims(|reclaims| {
            reclaims.asks((client.host, client.starts));
            Ok(())
        });
        let wanted = wanted(self.below(100));
        let ask = GetDirDelegation4Args {
            signal_deleg_avail: false,
            notification_types: wanted,
            child_attr_delay: NO_TIME,
            dir_attr_delay: NO_TIME,
            child_attributes: Bitmap4::EMPTY,
            dir_attributes: Bitmap4::EMPTY,
        };
        let acted = client
            .act(|| {
                let [put, lookup] = root();
                let enter = ArgOp::Lookup(Lookup4Args { objname: name.as_bytes() });
                Some(Ops::new(&[put, lookup, enter, ArgOp::GetFh, ArgOp::GetDirDelegation(ask)]))
            })
            .await;
        let Some(Acted { mut reply, .. }) = acted else { return };
        let Some(()) = reply.skip(&IN_DIRECTORY) else { return };
        let handle = reply.next::<GetFh4Ok<'_>>(OpNum4::GetFh).map(|ok| ok.object.to_vec());
        let status = reply.status;
        match reply.next::<GetDirDelegation4Ok>(OpNum4::GetDirDelegation).zip(handle) {
            // One of the server's former life stands for nothing.
            Some((GetDirDelegation4Ok::Granted(granted), handle)) if client.is_of(life) => {
                let told = granted.notification;
                let due = if client.world.notifies() { due(wanted) } else { Bitmap4::EMPTY };
                if told != due {
                    client.world.oracles.violated(format!("{}: is told {told:?} for {wanted:?}", self.who));
                }
                let grant = client.directory_delegated(host, handle.clone(), (granted.stateid, told));
                if let Some(grant) = grant.filter(|_| !told.is_empty())
                    && let Some(names) = self.list(&handle).await
                {
                    client.world.oracles.listings(|listings| {
                        listings.read(grant, names);
                        Ok(())
                    });
                }
            }
            Some(_) => {}
            None => client.world.tell(|| format!("{}: GET_DIR_DELEGATION: {status:?}", self.who)),
        }
    }

    /// The names in a directory.
    async fn list(&self, handle: &[u8]) -> Option<BTreeSet<String>> {
        let (mut names, mut cookie, mut cookieverf) = (BTreeSet::new(), Cookie(0), [0; 8]);
        loop {
            let read = ReadDir4Args {
                cookie,
                cookieverf,
                dircount: 4096,
                maxcount: 8192,
                attr_request: Bitmap4::EMPTY,
            };
            let put = ArgOp::PutFh(PutFh4Args { object: handle });
            let acted = self.client.act(|| Some(Ops::new(&[put.clone(), ArgOp::ReadDir(read)]))).await?;
            let mut reply = acted.reply;
            reply.skip(&[OpNum4::PutFh])?;
            let listed = reply.next::<ReadDir4Ok<'_>>(OpNum4::ReadDir)?;
            names.extend(listed.entries.iter().map(|entry| String::from_utf8_lossy(entry.name).into_owned()));
            cookieverf = listed.cookieverf;
            match listed.entries.last() {
                Some(last) if !listed.eof => cookie = last.cookie,
                _ => return Some(names),
            }
        }
    }
}

/// What a client asks for: nothing, all, an order that no server of ours tells, or some.
fn wanted(dice: u64) -> Bitmap4 {
    match dice {
        0..40 => Bitmap4::EMPTY,
        40..70 => ALL,
        70..75 => ALL.with(NOTIFY4_CFLAG_ORDER),
        75..80 => ALL.without(NOTIFY4_GFLAG_EXTEND),
        _ => {
            let not_wanted = KINDS.iter().enumerate().filter(|(bit, _)| dice & (1 << bit) == 0);
            not_wanted.fold(ALL, |some, (_, kind)| some.without(*kind))
        }
    }
}

/// What it is told for that.
fn due(wanted: Bitmap4) -> Bitmap4 {
    let goes_by_order = !wanted.contains(NOTIFY4_GFLAG_EXTEND) || wanted.contains(NOTIFY4_CFLAG_ORDER);
    let has_kinds = KINDS.iter().any(|kind| wanted.contains(*kind));
    if has_kinds && !goes_by_order { wanted } else { Bitmap4::EMPTY }
}
