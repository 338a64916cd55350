//! Other clients' directories, looked at under a delegation: nobody changes their entries meanwhile, or what is changed is
//! told.

use std::collections::BTreeSet;

use holdfast_base::Cookie;

use holdfast_wire::nfs4::*;

use super::{IN_DIRECTORY, Process, directory_name, root};
use crate::client::v4::Acted;
use crate::wire::Ops;

/// Notifications without which a delegation lets nobody change entries.
const ALL: [u32; 4] =
    [NOTIFY4_ADD_ENTRY, NOTIFY4_REMOVE_ENTRY, NOTIFY4_RENAME_ENTRY, NOTIFY4_CHANGE_DIR_ATTRS];

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
        let wanted = ALL.into_iter().fold(Bitmap4::EMPTY, Bitmap4::with);
        let ask = GetDirDelegation4Args {
            signal_deleg_avail: false,
            notification_types: if self.percent(60) { wanted } else { Bitmap4::EMPTY },
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
                let is_told = granted.notification == wanted;
                let grant = client.directory_delegated(host, handle.clone(), (granted.stateid, is_told));
                if let Some(grant) = grant.filter(|_| is_told)
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
