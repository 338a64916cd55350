//! Names in a directory of the client's own: made, renamed, removed.

use holdfast_wire::nfs4::*;

use super::{IN_DIRECTORY, Process, directory_name, root};
use crate::client::v4::Acted;
use crate::oracle::once::{Deed, End};
use crate::wire::Ops;

impl Process {
    pub(super) async fn change_names(&self) {
        let own = |name: &String| name.starts_with(&format!("p{}-", self.number));
        let mut names = Vec::new();
        self.client.world.oracles.once(|once| {
            names = once.names(self.client.host);
            Ok(())
        });
        names.retain(own);
        self.names.set(self.names.get() + 1);
        let fresh = format!("p{}-{}-{}", self.number, self.client.starts, self.names.get());
        let deed = match (self.below(4), names.is_empty()) {
            (0, false) => Deed::Remove(names[self.below(names.len() as u64) as usize].clone()),
            (1, false) => Deed::Rename(names[self.below(names.len() as u64) as usize].clone(), fresh),
            _ => Deed::Make(fresh),
        };
        self.doing(format!("{deed:?}"));
        let (client, directory) = (&self.client, directory_name(self.client.host));
        let (mut sent, begun) = (None, client.world.now());
        client.world.oracles.once(|once| {
            sent = Some(once.begin(client.host, &deed));
            Ok(())
        });
        let is_file = self.percent(50);
        let owner = format!("process {}", self.number).into_bytes();
        let is_open = is_file && matches!(deed, Deed::Make(_));
        let owners = || if is_open { vec![owner.clone()] } else { Vec::new() };
        let make = || self.name_ops(&deed, &directory, is_file, &owner);
        let acted = client.act_counted(make, (&IN_DIRECTORY, owners)).await;
        let (Some(Acted { mut reply, is_excused, .. }), Some(sent)) = (acted, sent) else { return };
        let status = reply.status;
        let end = match status {
            NfsStat4::Ok => End::Done,
            NfsStat4::Exist => End::Exists,
            NfsStat4::NoEnt => End::NoEntry,
            NfsStat4::NoSpc => End::NoRoom,
            NfsStat4::Io => End::Unknown,
            other => {
                let what = format!("{}: {deed:?} was answered {other:?}", self.who);
                return client.world.oracles.violated(what);
            }
        };
        client.world.oracles.once(|once| once.end(client.host, &deed, sent, (end, is_excused)));
        if end == End::Done {
            let now = client.world.now();
            client.world.oracles.grants(|grants| grants.entries_changed(now, client.host, begun));
        }
        if !is_open || reply.skip(&IN_DIRECTORY).is_none() {
            return;
        }
        let opened = reply.next::<Open4Ok<'_>>(OpNum4::Open).map(|ok| (ok.stateid, ok.rflags));
        let handle = reply.next::<GetFh4Ok<'_>>(OpNum4::GetFh).map(|ok| ok.object.to_vec());
        if let Some((opened, handle)) = opened.zip(handle) {
            self.close_new(&owner, &handle, opened).await;
        }
    }

    /// Closes a file that was made with its name; should the open be gone, so be it.
    async fn close_new(&self, owner: &[u8], handle: &[u8], (mut stateid, rflags): (Stateid4, u32)) {
        let client = &self.client;
        if rflags & OPEN4_RESULT_CONFIRM != 0 {
            let Some(confirmed) = self.client.confirm(owner, handle, stateid).await else { return };
            stateid = confirmed;
        }
        let epoch = client.epoch.get();
        // Whatever comes of it, nobody uses that open any more.
        let _ = client
            .act_counted(
                || {
                    let close = Close4Args { seqid: client.seqid(owner), open_stateid: stateid };
                    let put = ArgOp::PutFh(PutFh4Args { object: handle });
                    (client.epoch.get() == epoch).then(|| Ops::new(&[put, ArgOp::Close(close)]))
                },
                (&[OpNum4::PutFh], || vec![owner.to_vec()]),
            )
            .await;
    }

    fn name_ops(&self, deed: &Deed, directory: &str, is_file: bool, owner: &[u8]) -> Option<Ops> {
        let none = Fattr4 { mask: Bitmap4::EMPTY, values: b"" };
        let [put, lookup] = root();
        let enter = ArgOp::Lookup(Lookup4Args { objname: directory.as_bytes() });
        let mut ops = vec![put, lookup, enter];
        match deed {
            Deed::Make(name) if is_file => {
                self.client.world.oracles.reclaims(|reclaims| {
                    reclaims.asks((self.client.host, self.client.starts));
                    Ok(())
                });
                ops.push(ArgOp::Open(Open4Args {
                    seqid: self.client.seqid(owner),
                    share_access: OPEN4_SHARE_ACCESS_WRITE | self.want(),
                    share_deny: 0,
                    owner: StateOwner4 { clientid: self.client.client_id.get()?, owner },
                    openhow: OpenFlag4::Create(CreateHow4::Guarded(none)),
                    claim: OpenClaim4::Null(name.as_bytes()),
                }));
                ops.push(ArgOp::GetFh);
            }
            Deed::Make(name) => ops.push(ArgOp::Create(Create4Args {
                objtype: CreateType4::Dir,
                objname: name.as_bytes(),
                createattrs: none,
            })),
            Deed::Remove(name) => ops.push(ArgOp::Remove(Remove4Args { target: name.as_bytes() })),
            Deed::Rename(from, to) => ops.extend([
                ArgOp::SaveFh,
                ArgOp::Rename(Rename4Args { oldname: from.as_bytes(), newname: to.as_bytes() }),
            ]),
        }
        Some(Ops::new(&ops))
    }
}
