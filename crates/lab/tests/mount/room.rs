//! Room reserved for files, whose size stays: a Holdfast server has words for that, NFS has none.

use crate::fixture::{Served, run_in};
use anyhow::Result;
use holdfast_lab::Trial;

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::new("room::what_is_reserved_beyond_the_end_is_there_and_the_size_stays", reserved),
        Trial::new("room::over_nfs_alone_programs_are_told_that_it_cannot_be", unsupported),
    ]
}

/// What a file has is asked for at the server, below what is mounted.
fn reserved() -> Result<()> {
    let served = Served::new()?;
    let mount = served.mount("")?;
    let script = "
below=$1
printf data >f
fallocate -n -o 2 -l 4M f
[ \"$(stat -c %s f)\" = 4 ] && [ \"$(stat -c %b f)\" -ge 8192 ]
[ \"$(stat -c %s $below/f)\" = 4 ] && [ \"$(stat -c %b $below/f)\" -ge 8192 ]
[ \"$(cat f)\" = data ]
printf more >>f; [ \"$(cat f)\" = datamore ]
head -c 3000000 /dev/zero >>f; [ \"$(stat -c %s f)\" = 3000008 ]
sync f; [ \"$(stat -c %s $below/f)\" = 3000008 ]
if fallocate -n -l 1T f 2>said; then exit 1; fi
grep -q 'No space left' said
printf 'all of it' >z
fallocate -z -n -o 4 -l 4M z
[ \"$(stat -c %s z)\" = 9 ] && [ \"$(stat -c %b z)\" -ge 8192 ]
[ \"$(tr '\\0' 0 <z)\" = 'all 00000' ]
sync z; [ \"$(tr '\\0' 0 <$below/z)\" = 'all 00000' ]
if fallocate -z -n -l 1T z 2>said; then exit 1; fi
grep -q 'No space left' said && [ \"$(tr '\\0' 0 <z)\" = 'all 00000' ]
";
    run_in(&mount.path(), script, &[&served.share().to_string_lossy()])?;
    mount.check_alive()
}

fn unsupported() -> Result<()> {
    let served = Served::new()?;
    let mount = served.mount("cache=delegations")?;
    let script = "printf data >f; if fallocate -n -l 1M f 2>said; then exit 1; fi; grep -q supported said";
    run_in(&mount.path(), script, &[])?;
    mount.check_alive()
}
