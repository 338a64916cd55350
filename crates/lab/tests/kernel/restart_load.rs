//! The server is killed twice under a load of real kernel clients and started again: each load ends right, with no
//! error to its programs, and the longest pause is told.

use crate::fixture::{Served, guest, guest_env, kernels};
use anyhow::{Context, Result, ensure};
use holdfast_lab::{FsType, Guest, Kernel, LoopFs, NfsVersion, Scale, ServerUnderTest, Trial};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(240);
/// Of a case, more than all its waits take where nothing hangs.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);
const KILLS: usize = 2;
const KILLS_SOAK: usize = 8;
const SHARE_BYTES: u64 = 2 << 30;
const LEASE_SECONDS: u32 = 10;
/// A pause that had to do with the lease would be seen by it.
const LEASE_SECONDS_LONG: u32 = 90;
/// What a client of 4.1 and later may have to wait where the server's socket is kept, whatever the lease. One that is refused
/// waits for three seconds, each time.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// The same of a single wait, on a machine that may be busy with something else just then: less than the lease.
const ONE_PAUSE_MAX: Duration = Duration::from_secs(8);
/// The load works this long before, between and after the kills.
const WORK: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeper {
    /// Somebody else, as systemd does.
    Another,
    /// The server's own parent, which starts it again as well.
    Parent,
}

/// Work for one or two guests.
pub(crate) struct Load {
    pub(crate) name: &'static str,
    guests: usize,
    /// But with 4.0, whose clients keep grace open for as long.
    lease_seconds: u32,
    /// Who keeps the server's socket open while it is away: a client that is refused waits three seconds before it tries
    /// again.
    keeper: Keeper,
    /// Run by the first guest before anybody works.
    prepare: &'static str,
    /// Run by every guest until the file `$STOP` is there.
    work: &'static str,
    /// Run by the first guest when all have ended.
    judge: &'static str,
}

pub(crate) const LOADS: [Load; 4] = [
    Load {
        name: "tree",
        lease_seconds: LEASE_SECONDS,
        guests: 1,
        keeper: Keeper::Parent,
        prepare: "cd $SCRIPTS; python3 -c 'import source_tree; source_tree.write(\"/run/tree.tar\")'\n\
                  mkdir /run/local; tar -C /run/local -xpf /run/tree.tar; cd /",
        work: "n=0; until [ -e $STOP ]; do n=$((n+1)); mkdir /mnt/copy$n; tar -C /mnt/copy$n -xpf /run/tree.tar; done",
        judge: "for copy in /mnt/copy*; do diff -r --no-dereference /run/local $copy; done; ls -d /mnt/copy* | wc -l",
    },
    Load {
        name: "sqlite",
        lease_seconds: LEASE_SECONDS,
        guests: 2,
        keeper: Keeper::Another,
        prepare: "python3 $SCRIPTS/sqlite_writers.py make /mnt",
        work: "n=0; until [ -e $STOP ]; do n=$((n+1)); python3 $SCRIPTS/sqlite_writers.py write 5 $NAME-$n /mnt /mnt; done\n\
               echo $n >/mnt/rounds-$NAME",
        judge: "total=$((10 * ($(cat /mnt/rounds-one) + $(cat /mnt/rounds-two))))\n\
                python3 $SCRIPTS/sqlite_writers.py total $total /mnt",
    },
    Load {
        name: "locks",
        lease_seconds: LEASE_SECONDS_LONG,
        guests: 2,
        keeper: Keeper::Parent,
        prepare: "echo 0 >/mnt/counter",
        work: "n=0; until [ -e $STOP ]; do n=$((n+1)); python3 $SCRIPTS/locked_counter.py count /mnt/counter 2 20; done\n\
               echo $n >/mnt/rounds-$NAME",
        judge: "total=$((40 * ($(cat /mnt/rounds-one) + $(cat /mnt/rounds-two))))\n\
                python3 $SCRIPTS/locked_counter.py judge /mnt/counter $total; echo $total counts",
    },
    Load {
        name: "make",
        lease_seconds: LEASE_SECONDS,
        guests: 1,
        keeper: Keeper::Another,
        prepare: "cp -r $SCRIPTS/project /mnt/project",
        work: "n=0; until [ -e $STOP ]; do n=$((n+1)); make -s -C /mnt/project clean; make -s -j 4 -C /mnt/project; done",
        judge: "make -q -C /mnt/project; cp -r $SCRIPTS/project /run/project; make -s -C /run/project\n\
                for file in $(ls /run/project); do cmp /run/project/$file /mnt/project/$file; done; echo $n builds",
    },
];

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let versions: &[NfsVersion] = match Scale::from_env() {
        Scale::Test => &[NfsVersion::V42],
        Scale::Soak => &[NfsVersion::V40, NfsVersion::V41, NfsVersion::V42],
    };
    for at_hand in kernels() {
        for load in &LOADS {
            let name = format!("restart::killed_under_load::{}", load.name);
            trials.extend(
                at_hand.trials(&name, versions, |kernel, version| killed_twice(kernel, version, load)),
            );
        }
    }
    trials.into_iter().map(|trial| trial.limit(LIMIT)).collect()
}

fn killed_twice(kernel: &Kernel, version: NfsVersion, load: &Load) -> Result<()> {
    let kill = |served: &mut Served| match load.keeper {
        Keeper::Parent => served.server.kill_supervised(),
        Keeper::Another => {
            served.server.kill()?;
            served.server.restart()
        }
    };
    let kills = match load.keeper {
        // It gives up at the fifth death within a minute.
        Keeper::Parent => KILLS_SOAK.min(4),
        Keeper::Another => KILLS_SOAK,
    };
    run((kernel, version, load), Scale::from_env().pick(KILLS, kills), ("true", "true"), kill)?;
    Ok(())
}

/// Works off a load, and does something to the server in between, several times. The shell's two commands are run in
/// each guest before its work and after it. Gives, for each guest, the shortest of as many pauses, the longest that it saw.
pub(crate) fn run(
    (kernel, version, load): (&Kernel, NfsVersion, &Load),
    strikes: usize,
    around: (&str, &str),
    mut strike: impl FnMut(&mut Served) -> Result<()>,
) -> Result<Vec<Duration>> {
    let mut served = serve_with(load, version)?;
    let names = &["one", "two"][..load.guests];
    let guests = names
        .iter()
        .map(|name| start(&served, (kernel, version, load), name, around))
        .collect::<Result<Vec<_>>>()?;
    let (first, others) = guests.split_first().context("a load without guests")?;
    first.wait_for("prepared\n", PATIENCE)?;
    guests.iter().try_for_each(|guest| guest.signal("work"))?;
    guests.iter().try_for_each(|guest| guest.wait_for("working\n", PATIENCE))?;
    for _ in 0..strikes {
        std::thread::sleep(WORK);
        strike(&mut served)?;
    }
    std::thread::sleep(WORK);
    guests.iter().try_for_each(|guest| guest.signal("enough"))?;
    guests.iter().try_for_each(|guest| guest.wait_for("worked\n", PATIENCE))?;
    others.iter().try_for_each(|guest| guest.signal("end"))?;
    first.signal("judge")?;
    let mut shortest = Vec::new();
    for (guest, name) in guests.into_iter().zip(names) {
        let said = guest.wait()?.success().with_context(|| format!("guest {name}"))?;
        println!(
            "{} {version} {}, guest {name}: {}",
            load.name,
            kernel.label(),
            said.trim().replace('\n', "; ")
        );
        let pauses = longest_pauses(&said).context("no heartbeat")?;
        // What every strike costs is seen in as many pauses; in a soak run none may be long.
        let each =
            Scale::from_env().pick(pauses.get(strikes - 1), pauses.first()).context("few heartbeats")?;
        let is_short = *each < PAUSE_MAX && pauses[0] < ONE_PAUSE_MAX;
        ensure!(version == NfsVersion::V40 || is_short, "pauses of {pauses:?}");
        shortest.push(*pauses.get(strikes - 1).context("few heartbeats")?);
    }
    served.server.check_alive()?;
    Ok(shortest)
}

fn serve_with(load: &Load, version: NfsVersion) -> Result<Served> {
    let filesystem = LoopFs::new(FsType::Ext4, SHARE_BYTES)?;
    let share = filesystem.path().join("share");
    std::fs::create_dir(&share)?;
    let lease_seconds = if version == NfsVersion::V40 { LEASE_SECONDS } else { load.lease_seconds };
    let server = ServerUnderTest::builder(&share).lease_seconds(lease_seconds);
    let server = match load.keeper {
        Keeper::Another => server.keep_listener(),
        Keeper::Parent => server.supervised(),
    };
    Ok(Served { server: server.start()?, filesystem })
}

/// The longest first: `heartbeat.py` says "longest pause 0.26 s, then 0.20 0.15" and more.
fn longest_pauses(said: &str) -> Option<Vec<Duration>> {
    let (_, rest) = said.split_once("longest pause ")?;
    let (longest, rest) = rest.split_once(" s, then ")?;
    let all = [longest].into_iter().chain(rest.lines().next()?.split_whitespace());
    all.map(|seconds| Some(Duration::from_secs_f64(seconds.parse().ok()?))).collect()
}

fn start(
    served: &Served,
    (kernel, version, load): (&Kernel, NfsVersion, &Load),
    name: &str,
    (before, after): (&str, &str),
) -> Result<Guest> {
    let script = format!(
        "STOP=$OUT/.signal/enough\nlab_mount $VERSION /mnt\n\
         if [ $NAME = one ]; then\n{}\nfi\n\
         echo prepared; lab_wait work 120; {before}; echo working\n\
         mkdir -p /mnt/heart-$NAME; python3 $SCRIPTS/heartbeat.py /mnt/heart-$NAME $STOP & heart=$!\n\
         {}\nwait $heart; {after}; echo worked\n\
         if [ $NAME = one ]; then\nlab_wait judge 240\n{}\nelse\nlab_wait end 240\nfi\n\
         cd /; umount /mnt",
        load.prepare, load.work, load.judge
    );
    let env = guest_env(served, &[("VERSION", version.as_str()), ("NAME", name)]);
    let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    guest(kernel, "768M", PATIENCE).start(&script, &env)
}
