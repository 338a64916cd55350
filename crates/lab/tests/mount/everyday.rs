//! What people do all day.

use crate::fixture::{Served, run_in};
use anyhow::{Result, ensure};
use holdfast_lab::server::Target;
use holdfast_lab::{FsType, Trial};

/// The cases: each over Holdfast, over its network alone, with one connection and with four of one session, over Holdfast with NFSv4
/// delegations alone, with nothing cached, and over somebody else's server.
pub(crate) fn trials() -> Vec<Trial> {
    let ways = [
        ("holdfast", Target::Holdfast, ""),
        ("holdfast-network", Target::Holdfast, "nolocal"),
        ("holdfast-trunked", Target::Holdfast, "nolocal,nconnect=4"),
        ("holdfast-delegated", Target::Holdfast, "cache=delegations"),
        ("holdfast-uncached", Target::Holdfast, "cache=none"),
        ("ganesha", Target::Ganesha, ""),
    ];
    let cases: [(&str, &'static str); 7] = [
        ("names", NAMES),
        ("git", GIT),
        ("make", MAKE),
        ("sqlite", SQLITE),
        ("data", DATA),
        ("set_ids", SET_IDS),
        ("facts", FACTS),
    ];
    let mut trials = Vec::new();
    for (way, target, options) in ways {
        for (case, script) in cases {
            // NFS-Ganesha 4.3 answers the WRITE of who does not own a file with set-id bits with EPERM; and what it has to say beyond
            // 4.1 depends on how it was built.
            if way == "ganesha" && matches!(case, "set_ids" | "facts") {
                continue;
            }
            trials
                .push(Trial::new(format!("everyday::{case}::{way}"), move || over(target, options, script)));
        }
    }
    trials
}

fn over(target: Target, options: &str, script: &str) -> Result<()> {
    let served = Served::by(target, FsType::Ext4)?;
    let mount = served.mount(options)?;
    run_in(&mount.path(), script, &[])?;
    mount.check_alive()?;
    mount.unmount(&[])?;
    // What was done is on the server, and not only in the daemon that has ended.
    let left = run_in(&served.share(), "find . -type f | sort | xargs -r md5sum | md5sum", &[])?;
    let again = served.mount(options)?;
    let seen = run_in(&again.path(), "find . -type f | sort | xargs -r md5sum | md5sum", &[])?;
    ensure!(left == seen, "another mount sees other files than the server");
    again.unmount(&[])
}

pub(crate) const NAMES: &str = "
mkdir -p a/b/c; echo one >a/b/c/f; ln a/b/c/f a/hard; ln -s b/c/f a/soft
[ \"$(cat a/soft)\" = one ]; [ \"$(stat -c %h a/hard)\" = 2 ]
mv a/b/c/f a/b/g; [ ! -e a/soft ]; [ \"$(cat a/hard)\" = one ]
mkfifo a/pipe; [ -p a/pipe ]; chmod 640 a/hard; [ \"$(stat -c %a a/b/g)\" = 640 ]
touch -d '2001-02-03 04:05:06.789 UTC' a/hard; [ \"$(stat -c %Y a/b/g)\" = 981173106 ]
seq 1 500 | xargs -I@ touch a/many-@; [ \"$(ls a | wc -l)\" = 504 ]
rm a/many-*; rmdir a/b/c; [ \"$(ls a)\" = \"$(printf 'b\\nhard\\npipe\\nsoft')\" ]
if rmdir a 2>/dev/null; then exit 1; fi
if mkdir a 2>/dev/null; then exit 1; fi
exec 3<a/b/g; rm a/b/g a/hard; [ \"$(cat <&3)\" = one ]; exec 3<&-
df . >/dev/null; stat -f . >/dev/null
";

/// Who changes a file takes its set-id bits away, unless it is root who writes.
pub(crate) const SET_IDS: &str = "
echo data >f; chmod 777 .
for change in 'echo more >>f' ': >f' 'truncate -s 2 f' 'printf x | dd of=f conv=notrunc status=none' 'fallocate -l 9000 f'; do
    # Where the group may not execute it, who is of the group leaves its bit.
    for way in '6777 --clear-groups 777' '6766 --clear-groups 766' '6766 --groups=0 2766'; do
        set -- $way; chmod $1 f; [ \"$(stat -c %a f)\" = $1 ]
        setpriv --reuid 65534 --regid 65534 $2 bash -c \"$change\"
        [ \"$(stat -c %a f)\" = $3 ] || { echo \"$change $way: $(stat -c %a f)\" >&2; exit 1; }
    done
done
chmod 6755 f; echo root >f; [ \"$(stat -c %a f)\" = 6755 ]
chown 1 f; [ \"$(stat -c %a f)\" = 755 ]; chmod 6744 f; chgrp 1 f; [ \"$(stat -c %a f)\" = 2744 ]
";

/// What is known of a file beside its name and its bytes: when it was made, where it has holes, its extended attributes.
pub(crate) const FACTS: &str = "
before=$(date +%s); sleep 1; echo made >f; born=$(stat -c %W f)
[ \"$born\" -gt \"$before\" ]; sync f; echo more >>f; chmod 600 f; mv f g; sleep 1; touch g
after=$(stat -c %W g); [ $((after - born)) -le 1 ] && [ $((born - after)) -le 1 ]
python3 - <<'E'
import errno, os
fd = os.open('holes', os.O_RDWR | os.O_CREAT); os.ftruncate(fd, 8 << 20); os.pwrite(fd, b'x' * 65536, 4 << 20)
def spans():
    data = os.lseek(fd, 0, os.SEEK_DATA); return data, os.lseek(fd, data, os.SEEK_HOLE)
assert spans() == (4 << 20, (4 << 20) + 65536), spans()
os.fsync(fd); assert spans() == (4 << 20, (4 << 20) + 65536), spans()
assert os.stat('holes').st_blocks * 512 < 1 << 20
os.close(fd)
os.setxattr('g', 'user.one', b'1'); os.setxattr('g', 'user.two', bytes(1000)); os.setxattr('g', 'user.one', b'new')
assert sorted(os.listxattr('g')) == ['user.one', 'user.two'] and os.getxattr('g', 'user.one') == b'new'
os.removexattr('g', 'user.one')
try: os.getxattr('g', 'user.one')
except OSError as e: assert e.errno == errno.ENODATA, e
else: assert False
E
";

pub(crate) const GIT: &str = "
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@a
git init -q first; cd first; mkdir -p d/e
for i in $(seq 1 40); do echo $i >d/e/$i; done
git add .; git commit -q -m one; git mv d/e f; git commit -q -m two; git gc -q
cd ..; git clone -q first second; cd second; [ -z \"$(git status --porcelain)\" ]; git fsck --no-progress
[ \"$(ls f | wc -l)\" = 40 ]; git checkout -q HEAD~1; [ -f d/e/40 ]
";

pub(crate) const MAKE: &str = "
printf 'int two(void) { return 2; }\\n' >two.c
printf '#include <stdio.h>\\nint two(void);\\nint main(void) { printf(\"%%d\\\\n\", two()); return 0; }\\n' >main.c
printf 'all: main\\nmain: main.o two.o\\n\\t$(CC) -o $@ $^\\nclean:\\n\\trm -f main *.o\\n' >Makefile
make -s -j2; [ \"$(./main)\" = 2 ]; make -s clean; [ ! -e main ]; make -s; [ \"$(./main)\" = 2 ]
make -q
";

pub(crate) const SQLITE: &str = "
python3 - <<'E'
import sqlite3
a = sqlite3.connect('db', timeout=30); b = sqlite3.connect('db', timeout=30)
a.execute('create table t (n integer)'); a.commit()
for n in range(40):
    (a if n % 2 else b).execute('insert into t values (?)', (n,)); a.commit(); b.commit()
assert b.execute('select count(*), sum(n) from t').fetchone() == (40, 780)
assert a.execute('pragma integrity_check').fetchone() == ('ok',)
E
";

pub(crate) const DATA: &str = "
head -c 20000000 /dev/urandom >/tmp/holdfast-data-$$; trap 'rm -f /tmp/holdfast-data-$$' EXIT
cp /tmp/holdfast-data-$$ big; cmp /tmp/holdfast-data-$$ big; dd if=big of=copy bs=1M status=none; cmp big copy
truncate -s 100M sparse; [ \"$(stat -c %s sparse)\" = 104857600 ]; echo end >>sparse
[ \"$(tail -c 4 sparse)\" = end ]; rm sparse
for i in 1 2 3 4; do (for j in $(seq 1 200); do echo $i-$j >>log; done) & done; wait; [ \"$(wc -l <log)\" = 800 ]
dd if=big of=direct bs=1M oflag=direct status=none; dd if=direct iflag=direct bs=1M status=none | cmp - big
python3 - <<'E'
import errno, mmap, os, shutil, subprocess
# A program that runs keeps its pages, whoever would empty it.
shutil.copy('/bin/sleep', 'program'); runs = subprocess.Popen(['./program', '60'])
for flags in os.O_WRONLY, os.O_RDONLY | os.O_TRUNC:
    try: os.open('program', flags)
    except OSError as e: assert e.errno == errno.ETXTBSY, e
    else: assert False, flags
assert runs.poll() is None and os.path.getsize('program') == os.path.getsize('/bin/sleep')
runs.kill(); runs.wait()
fd = os.open('big', os.O_RDWR); m = mmap.mmap(fd, 0); m[5:10] = b'HELLO'; m.flush(); m.close(); os.close(fd)
assert open('big', 'rb').read(10)[5:] == b'HELLO'
E
";
