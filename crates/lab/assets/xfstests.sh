#!/bin/bash
# Runs cases of xfstests over `holdfast mount`: xfstests.sh CASE... in namespaces of mounts and processes of its own, so that
# whatever a case leaves behind ends with them. By environment: SUITE, the suite, built; HERE, an empty folder; HOLDFAST_BIN;
# TEST_DEV and SCRATCH_DEV, what is mounted; OPTIONS, how. What check(1) of the suite says goes to standard output.
set -euo pipefail

mount --make-rprivate /
# What others have mounted would not end as long as this lives.
awk '$3 == "fuse.holdfast" {print $2}' /proc/self/mounts | xargs -r -n1 umount -l
mkdir "$HERE"/{sbin,work,run,test,scratch,results,tmp}

# Who ends this has to abort the connections; not every host has this mounted.
mount -t fusectl fusectl /sys/fs/fuse/connections

# mount(8) finds its helpers here, and the suite its users.
sbin=$(readlink -f /sbin)
mount -t overlay overlay -o "lowerdir=$sbin,upperdir=$HERE/sbin,workdir=$HERE/work" "$sbin"
ln -sf "$HOLDFAST_BIN" "$sbin/mount.fuse.holdfast"
ln -sf "$HOLDFAST_BIN" "$sbin/umount.fuse.holdfast"
# The suite looks in df(1) whether what is mounted is of its type, and knows no subtypes.
printf '#!/bin/bash\n/bin/df "$@" | sed "s/ fuse[.]holdfast / fuse /"\n' >"$sbin/df"
chmod +x "$sbin/df"
for table in passwd group; do
	grep -v fsgqa /etc/$table >"$HERE/$table"
done
for user in fsgqa:7001 fsgqa2:7002 123456-fsgqa:7003; do
	echo "${user%:*}:*:${user#*:}:${user#*:}::/:/bin/bash" >>"$HERE/passwd"
	echo "${user%:*}:x:${user#*:}:" >>"$HERE/group"
done
for table in passwd group; do
	mount --bind "$HERE/$table" /etc/$table
done

# The suite names its temporary files by process ids, which begin anew in each namespace.
chmod 1777 "$HERE/tmp"
export TMPDIR=$HERE/tmp
export FSTYP=fuse FUSE_SUBTYP=.holdfast TEST_DIR=$HERE/test SCRATCH_MNT=$HERE/scratch RESULT_BASE=$HERE/results
export MOUNT_OPTIONS="-o $OPTIONS" TEST_FS_MOUNT_OPTS="-o $OPTIONS" HOLDFAST_RUNTIME_DIR=$HERE/run
unset HOST_OPTIONS OPTIONS
cd "$SUITE"
# Not `exec`: the first process of the namespace takes in the children that others leave.
./check -fuse "$@" </dev/null
