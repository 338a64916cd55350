//! Every operation by its number, one line each: the arguments that implement it, or that it is not served.

use holdfast_wire::nfs4::*;
use holdfast_xdr::Reader;

use crate::cx::Cx;
use crate::desc::OpDesc;
use crate::error::Failure;
use crate::op::{self, Op};

/// An operation that is served.
pub(crate) struct Row {
    pub(crate) desc: OpDesc,
    pub(crate) run: for<'a, 'c> fn(&mut Reader<'a>, &mut Cx<'c>) -> Result<(), Failure>,
}

macro_rules! row {
    ($args:ty) => {{
        fn run<'a, 'c>(args: &mut Reader<'a>, cx: &mut Cx<'c>) -> Result<(), Failure> {
            op::execute::<$args>(args, cx)
        }
        const ROW: Row = Row { desc: <$args as Op>::DESC, run };
        Some(&ROW)
    }};
}

/// The row of an operation; `None` for one that is known and not served (NFS4ERR_NOTSUPP).
#[rustfmt::skip]
#[expect(clippy::too_many_lines, reason = "a flat table, one line an operation")]
pub(crate) fn row(num: OpNum4) -> Option<&'static Row> {
    match num {
        OpNum4::Access => row!(Access4Args),
        OpNum4::Close => row!(Close4Args),
        OpNum4::Commit => row!(Commit4Args),
        OpNum4::Create => row!(Create4Args<'_>),
        // Nothing of a client's earlier life is kept for it (CLAIM_DELEGATE_PREV), so there is nothing to purge
        // (RFC 8881 section 18.5.3).
        OpNum4::DelegPurge => None,
        OpNum4::DelegReturn => row!(DelegReturn4Args),
        OpNum4::GetAttr => row!(GetAttr4Args),
        OpNum4::GetFh => row!(op::GetFh),
        OpNum4::Link => row!(Link4Args<'_>),
        OpNum4::Lock => row!(Lock4Args<'_>),
        OpNum4::Lockt => row!(Lockt4Args<'_>),
        OpNum4::Locku => row!(Locku4Args),
        OpNum4::Lookup => row!(Lookup4Args<'_>),
        OpNum4::Lookupp => row!(op::LookupP),
        OpNum4::Nverify => row!(Nverify4Args<'_>),
        OpNum4::Open => row!(Open4Args<'_>),
        OpNum4::OpenAttr => None,
        OpNum4::OpenConfirm => row!(OpenConfirm4Args),
        OpNum4::OpenDowngrade => row!(OpenDowngrade4Args),
        OpNum4::PutFh => row!(PutFh4Args<'_>),
        OpNum4::PutPubFh => row!(op::PutPubFh),
        OpNum4::PutRootFh => row!(op::PutRootFh),
        OpNum4::Read => row!(Read4Args),
        OpNum4::ReadDir => row!(ReadDir4Args),
        OpNum4::ReadLink => row!(op::ReadLink),
        OpNum4::Remove => row!(Remove4Args<'_>),
        OpNum4::Rename => row!(Rename4Args<'_>),
        OpNum4::Renew => row!(Renew4Args),
        OpNum4::RestoreFh => row!(op::RestoreFh),
        OpNum4::SaveFh => row!(op::SaveFh),
        OpNum4::SecInfo => row!(SecInfo4Args<'_>),
        OpNum4::SetAttr => row!(SetAttr4Args<'_>),
        OpNum4::SetClientId => row!(SetClientId4Args<'_>),
        OpNum4::SetClientIdConfirm => row!(SetClientIdConfirm4Args),
        OpNum4::Verify => row!(Verify4Args<'_>),
        OpNum4::Write => row!(Write4Args<'_>),
        OpNum4::ReleaseLockOwner => row!(ReleaseLockOwner4Args<'_>),
        OpNum4::BackchannelCtl => row!(BackchannelCtl4Args<'_>),
        OpNum4::BindConnToSession => row!(BindConnToSession4Args),
        OpNum4::ExchangeId => row!(ExchangeId4Args<'_>),
        OpNum4::CreateSession => row!(CreateSession4Args<'_>),
        OpNum4::DestroySession => row!(DestroySession4Args),
        OpNum4::FreeStateid => row!(FreeStateid4Args),
        OpNum4::GetDirDelegation => row!(GetDirDelegation4Args),
        OpNum4::GetDeviceInfo => None,
        OpNum4::GetDeviceList => None,
        OpNum4::LayoutCommit => None,
        OpNum4::LayoutGet => None,
        OpNum4::LayoutReturn => None,
        OpNum4::SecInfoNoName => row!(SecInfoNoName4Args),
        OpNum4::Sequence => row!(Sequence4Args),
        OpNum4::SetSsv => None,
        OpNum4::TestStateid => row!(TestStateid4Args),
        OpNum4::WantDelegation => row!(WantDelegation4Args),
        OpNum4::DestroyClientId => row!(DestroyClientId4Args),
        OpNum4::ReclaimComplete => row!(ReclaimComplete4Args),
        OpNum4::Allocate => row!(Allocate4Args),
        OpNum4::Copy => row!(Copy4Args<'_>),
        OpNum4::CopyNotify => None,
        OpNum4::Deallocate => row!(Deallocate4Args),
        OpNum4::IoAdvise => row!(IoAdvise4Args),
        OpNum4::LayoutError => None,
        OpNum4::LayoutStats => None,
        OpNum4::OffloadCancel => row!(OffloadCancel4Args),
        OpNum4::OffloadStatus => row!(OffloadStatus4Args),
        OpNum4::ReadPlus => row!(ReadPlus4Args),
        OpNum4::Seek => row!(Seek4Args),
        OpNum4::WriteSame => None,
        OpNum4::Clone => row!(Clone4Args),
        OpNum4::GetXattr => row!(GetXattr4Args<'_>),
        OpNum4::SetXattr => row!(SetXattr4Args<'_>),
        OpNum4::ListXattrs => row!(ListXattrs4Args),
        OpNum4::RemoveXattr => row!(RemoveXattr4Args<'_>),
        OpNum4::Illegal => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desc::{Flags, Minor};

    #[test]
    fn every_row_stands_under_its_own_number() {
        let rows = OpNum4::ALL.iter().filter_map(|num| row(*num).map(|row| (*num, row.desc)));
        for (num, desc) in rows {
            assert_eq!(num, desc.num);
            assert!(num.since_minor() <= desc.until as u32, "{num} ends before it begins");
        }
    }

    #[test]
    fn what_writes_is_measured_first_and_has_something_to_write_to() {
        let rows =
            OpNum4::ALL.iter().filter_map(|num| row(*num)).filter(|row| row.desc.flags.has(Flags::WRITES));
        for row in rows {
            assert!(row.desc.flags.has(Flags::MODIFIES | Flags::NEEDS_FH), "{}", row.desc.num);
        }
    }

    #[test]
    fn clients_of_the_first_minor_version_alone_have_operations_of_their_own() {
        let only: Vec<_> = OpNum4::ALL
            .iter()
            .filter_map(|num| row(*num))
            .filter(|row| row.desc.until == Minor::V0)
            .map(|row| row.desc.num.name())
            .collect();
        // RFC 8881 section 15.2: these must not be implemented later.
        let expected = ["OPEN_CONFIRM", "RENEW", "SETCLIENTID", "SETCLIENTID_CONFIRM", "RELEASE_LOCKOWNER"];
        assert_eq!(only, expected);
    }
}
