//! Every operation's arguments and every result, from arbitrary bytes: what decodes is encoded to as many bytes
//! as were read, decodes to the same again, and nothing panics. The bytes are words that are mostly small, so
//! that lengths, booleans and discriminants are met often; each type must decode often enough to count.

use std::fmt::Debug;

use holdfast_base::{Entropy, SeededEntropy};
use holdfast_wire::nfs4::{ArgOp, CbArgOp, CbOpNum4, OpNum4};
use holdfast_wire::{caps, mount3, nfs3, nfs4, nlm4, nsm, portmap, rpc};
use holdfast_xdr::{Decode, Encode, Reader, from_bytes, to_bytes};
use proptest::prelude::*;

/// How often each type must decode.
const WANTED: usize = 20;
/// How many messages are tried for that.
const TRIES: usize = 40_000;

fn message(entropy: &mut SeededEntropy, head: Option<u32>) -> Vec<u8> {
    let mut out = head.map_or_else(Vec::new, |n| n.to_be_bytes().to_vec());
    let words = entropy.u64() % 90;
    for _ in 0..words {
        let n = entropy.u64();
        let word = match n % 16 {
            0..=5 => 0,
            6..=9 => 1,
            10..=13 => (n >> 32) as u32 % 8,
            _ => (n >> 32) as u32,
        };
        out.extend_from_slice(&word.to_be_bytes());
    }
    out
}

/// Decodes, encodes, decodes. False when the bytes are no such value.
fn survives<'a, T: Encode + Decode<'a> + PartialEq + Debug>(bytes: &'a [u8]) -> bool {
    let mut r = Reader::new(bytes);
    let Ok(value) = T::decode(&mut r) else { return false };
    let again: &'a [u8] = Vec::leak(to_bytes(&value));
    // A bitmap may come with more words than it needs, which are then left out.
    assert!(again.len() <= r.position(), "{value:?}");
    let back = from_bytes::<T>(again);
    if !format!("{value:?}").contains("beyond: true") {
        assert_eq!(back.as_ref(), Ok(&value));
    }
    assert_eq!(back.map(|b| to_bytes(&b)).as_deref(), Ok(again));
    true
}

fn often<T>(what: &str, head: Option<u32>)
where
    T: for<'a> Check<'a>,
{
    let mut entropy = SeededEntropy(u64::from(head.unwrap_or(77)));
    let mut seen = 0;
    for _ in 0..TRIES {
        let bytes: &'static [u8] = Vec::leak(message(&mut entropy, head));
        seen += usize::from(T::check(bytes));
        if seen == WANTED {
            return;
        }
    }
    panic!("{what} decoded {seen} times of {TRIES}");
}

/// Lets a type with a lifetime be named without one.
trait Check<'a> {
    fn check(bytes: &'a [u8]) -> bool;
}

macro_rules! results {
    ($test:ident: $($t:ty),* $(,)?) => {
        #[test]
        fn $test() {
            $({
                struct This;
                impl<'a> Check<'a> for This {
                    fn check(bytes: &'a [u8]) -> bool {
                        survives::<$t>(bytes)
                    }
                }
                often::<This>(stringify!($t), None);
            })*
        }
    };
}

struct Arg;
impl<'a> Check<'a> for Arg {
    fn check(bytes: &'a [u8]) -> bool {
        survives::<ArgOp<'a>>(bytes)
    }
}

struct CbArg;
impl<'a> Check<'a> for CbArg {
    fn check(bytes: &'a [u8]) -> bool {
        survives::<CbArgOp<'a>>(bytes)
    }
}

#[test]
fn every_operations_arguments_survive() {
    for op in OpNum4::ALL {
        often::<Arg>(op.name(), Some(op.as_u32()));
    }
}

#[test]
fn every_callbacks_arguments_survive() {
    for op in CbOpNum4::ALL {
        often::<CbArg>(op.name(), Some(op.as_u32()));
    }
}

#[test]
fn every_operation_has_its_own_arguments() {
    for op in OpNum4::ALL.iter().filter(|op| **op != OpNum4::Illegal) {
        let mut entropy = SeededEntropy(u64::from(op.as_u32()));
        let found = (0..TRIES).any(|_| {
            let bytes = message(&mut entropy, Some(op.as_u32()));
            let mut r = Reader::new(&bytes);
            ArgOp::decode(&mut r).is_ok_and(|arg| !matches!(arg, ArgOp::Illegal(_)))
        });
        assert!(found, "{op}");
    }
}

results!(results_of_nfs4_survive:
    nfs4::Access4Ok, nfs4::BindConnToSession4Ok, nfs4::CbGetAttr4Ok<'a>, nfs4::CbSequence4Ok, nfs4::Close4Ok,
    nfs4::Commit4Ok, nfs4::Copy4Ok, nfs4::CopyNotify4Ok<'a>, nfs4::Create4Ok, nfs4::CreateSession4Ok,
    nfs4::ExchangeId4Ok<'a>, nfs4::GetAttr4Ok<'a>, nfs4::GetDeviceInfo4Ok<'a>, nfs4::GetDeviceList4Ok,
    nfs4::GetDirDelegation4Ok, nfs4::GetFh4Ok<'a>, nfs4::GetXattr4Ok<'a>, nfs4::IoAdvise4Ok, nfs4::LayoutCommit4Ok,
    nfs4::LayoutGet4Ok<'a>, nfs4::LayoutReturn4Ok, nfs4::Link4Ok, nfs4::ListXattrs4Ok<'a>, nfs4::Lock4Denied<'a>,
    nfs4::Lock4Ok, nfs4::Locku4Ok, nfs4::OffloadStatus4Ok, nfs4::Open4Ok<'a>, nfs4::OpenConfirm4Ok,
    nfs4::OpenDelegation4<'a>, nfs4::OpenDowngrade4Ok, nfs4::Read4Ok<'a>, nfs4::ReadDir4Ok<'a>, nfs4::ReadLink4Ok<'a>,
    nfs4::ReadPlus4Ok<'a>, nfs4::Remove4Ok, nfs4::RemoveXattr4Ok, nfs4::Rename4Ok, nfs4::SecInfo4Ok<'a>, nfs4::Seek4Ok,
    nfs4::Sequence4Ok, nfs4::SetAttr4Res, nfs4::SetClientId4Ok, nfs4::SetSsv4Ok<'a>, nfs4::SetXattr4Ok,
    nfs4::TestStateid4Ok, nfs4::Write4Ok, nfs4::WriteResponse4,
);

results!(attribute_values_of_nfs4_survive:
    nfs4::Acl4<'a>, nfs4::NfsAcl41<'a>, nfs4::ModeMasked4, nfs4::ModeUmask4, nfs4::ChangePolicy4, nfs4::SetTime4,
    nfs4::FsLocations4<'a>, nfs4::FsLocationsInfo4<'a>, nfs4::FsStatus4<'a>, nfs4::MdsThreshold4<'a>,
    nfs4::LayoutHint4<'a>, nfs4::RetentionGet4, nfs4::RetentionSet4, nfs4::SecLabel4<'a>, nfs4::ChangeAttrType4,
    nfs4::OpenArguments4, nfs4::Fsid4, nfs4::SpecData4, nfs4::NfsFtype4,
);

results!(notifications_survive:
    nfs4::NotifyAdd4<'a>, nfs4::NotifyRemove4<'a>, nfs4::NotifyRename4<'a>, nfs4::NotifyAttr4<'a>,
    nfs4::NotifyVerifier4, nfs4::NotifyDeviceIdChange4, nfs4::NotifyDeviceIdDelete4,
);

results!(arguments_of_nfs3_survive:
    nfs3::Fh3<'a>, nfs3::DirOpArgs3<'a>, nfs3::SetAttr3Args<'a>, nfs3::Access3Args<'a>, nfs3::Read3Args<'a>,
    nfs3::Write3Args<'a>, nfs3::Create3Args<'a>, nfs3::Mkdir3Args<'a>, nfs3::Symlink3Args<'a>, nfs3::Mknod3Args<'a>,
    nfs3::Rename3Args<'a>, nfs3::Link3Args<'a>, nfs3::ReadDir3Args<'a>, nfs3::ReadDirPlus3Args<'a>,
    nfs3::Commit3Args<'a>,
);

results!(results_of_nfs3_survive:
    nfs3::GetAttr3Res, nfs3::SetAttr3Res, nfs3::Lookup3Res<'a>, nfs3::Access3Res, nfs3::ReadLink3Res<'a>,
    nfs3::Read3Res<'a>, nfs3::Write3Res, nfs3::Create3Res<'a>, nfs3::Remove3Res, nfs3::Rename3Res, nfs3::Link3Res,
    nfs3::ReadDir3Res<'a>, nfs3::ReadDirPlus3Res<'a>, nfs3::FsStat3Res, nfs3::FsInfo3Res, nfs3::PathConf3Res,
    nfs3::Commit3Res,
);

results!(rpc_mount_and_portmap_survive:
    rpc::CallHeader<'a>, rpc::ReplyHeader<'a>, rpc::AuthSys<'a>, mount3::MountRes3<'a>, mount3::MountList<'a>,
    mount3::Exports<'a>, portmap::MappingList, portmap::RpcbList<'a>,
);

results!(nlm_and_nsm_survive:
    nlm4::TestArgs4<'a>, nlm4::TestRes4<'a>, nlm4::LockArgs4<'a>, nlm4::CancelArgs4<'a>, nlm4::UnlockArgs4<'a>,
    nlm4::NlmRes4<'a>, nlm4::ShareArgs4<'a>, nlm4::ShareRes4<'a>, nlm4::Notify4<'a>, nsm::Mon<'a>, nsm::MonId<'a>,
    nsm::SmName<'a>, nsm::SmStatRes, nsm::StatChange<'a>, nsm::Status<'a>,
);

proptest! {
    #[test]
    fn an_open_survives_whatever_its_fields(
        (seqid, access, deny) in any::<(u32, u32, u32)>(), client in any::<u64>(),
        owner in proptest::collection::vec(any::<u8>(), 0..=1024),
        name in proptest::collection::vec(any::<u8>(), 0..=8192),
        verf in proptest::option::of(any::<[u8; 8]>()),
        bits in any::<u128>(), values in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let attrs = nfs4::Fattr4 { mask: nfs4::Bitmap4::from_bits(bits), values: &values };
        let how = match verf {
            Some(verf) => nfs4::CreateHow4::Exclusive41(nfs4::CreateVerfAttr { verf, attrs }),
            None => nfs4::CreateHow4::Guarded(attrs),
        };
        let open = nfs4::Open4Args {
            seqid: holdfast_base::Seqid(seqid),
            share_access: access,
            share_deny: deny,
            owner: nfs4::StateOwner4 { clientid: holdfast_base::ClientId(client), owner: &owner },
            openhow: nfs4::OpenFlag4::Create(how),
            claim: nfs4::OpenClaim4::Null(&name),
        };
        let bytes = to_bytes(&open);
        prop_assert_eq!(from_bytes::<nfs4::Open4Args<'_>>(&bytes), Ok(open));
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), op in 0u32..80) {
        let with_op = [&op.to_be_bytes()[..], &bytes].concat();
        // Whether it decodes does not matter here, only that it comes back.
        let _ = from_bytes::<ArgOp<'_>>(&with_op);
        let _ = from_bytes::<CbArgOp<'_>>(&with_op);
        let _ = from_bytes::<rpc::CallHeader<'_>>(&bytes);
        let _ = from_bytes::<nfs3::ReadDirPlus3Res<'_>>(&bytes);
    }
}

results!(caps_arguments_survive:
    caps::HelloArgs, caps::AcquireArgs<'a>, caps::ReleaseArgs<'a>, caps::LookupArgs<'a>, caps::ListArgs<'a>,
    caps::BatchArgs<'a>, caps::BatchOp<'a>, caps::StableArgs, caps::ReclaimArgs<'a>, caps::WhoAmIArgs<'a>,
    caps::ByeArgs, caps::RecallArgs<'a>, caps::StableHint, caps::SameHostArgs, caps::DescriptorArgs<'a>,
    caps::AccessListArgs<'a>,
);

results!(caps_results_survive:
    caps::Res<caps::HelloOk>, caps::Res<caps::AcquireOk>, caps::Res<caps::ReleaseOk>, caps::Res<caps::LookupOk<'a>>,
    caps::Res<caps::ListOk<'a>>, caps::Res<caps::BatchOk<'a>>, caps::Res<caps::ForcedOk<'a>>, caps::Res<caps::OpResult<'a>>,
    caps::Res<caps::SameHostOk<'a>>, caps::Res<caps::DescriptorOk>,
    caps::Res<caps::StableOk>, caps::Res<caps::WhoAmIOk>, caps::Res<caps::AccessListOk<'a>>, caps::Attrs, caps::SetAttrs,
);

#[test]
fn every_operation_of_a_batch_has_its_own_form() {
    for kind in caps::BatchOpKind::ALL {
        let mut entropy = SeededEntropy(u64::from(kind.as_u32()));
        let found = (0..TRIES).filter(|_| {
            let bytes = message(&mut entropy, Some(kind.as_u32()));
            let mut r = Reader::new(&bytes);
            caps::BatchOp::decode(&mut r).is_ok_and(|op| op.kind() == *kind)
        });
        assert!(found.take(WANTED).count() == WANTED, "{kind}");
    }
}
