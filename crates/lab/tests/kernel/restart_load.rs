//! The server is killed again and again under a load of real kernel clients and started again: each load ends right, with
//! no error to its programs, and the longest pause is told.

use crate::fixture::{LEVELS_OF_RESTARTS, Served, guest, kernels, start_in};
use crate::nlm;
use anyhow::{Context, Result, ensure};
use holdfast_lab::packets::Packets;
use holdfast_lab::process::tail;
use holdfast_lab::{FsType, Guest, Kernel, LoopFs, NfsVersion, Scale, ServerUnderTest, Trial};
use std::path::PathBuf;
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
/// The same of NFSv3, whose clients nobody tells of grace's end: one that was refused a lock asks again after five seconds.
const WORK_V3: Duration = Duration::from_secs(9);
/// Where it is killed often: before its clients have the last time behind them, what they asked for then is answered by yet
/// another life.
const OFTEN: Strikes = Strikes { count: 8, work: Duration::from_millis(800) };
const OFTEN_SOAK: Strikes = Strikes { count: 60, ..OFTEN };
/// Grace with NFSv3: a host with locks cannot say that it has reclaimed them.
const LEASE_SECONDS_V3: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeper {
    /// Somebody else, as systemd does.
    Another,
    /// The server's own parent, which starts it again as well.
    Parent,
}

/// What is done to the server under a load: so many times, with the load at work for so long before, between and after.
#[derive(Clone, Copy)]
pub(crate) struct Strikes {
    pub(crate) count: usize,
    work: Duration,
}

impl Strikes {
    /// So far apart that the load gets somewhere each time.
    pub(crate) const fn seldom(count: usize, version: NfsVersion) -> Self {
        Self { count, work: if matches!(version, NfsVersion::V3) { WORK_V3 } else { WORK } }
    }
}

/// Work for two guests.
pub(crate) struct Load {
    pub(crate) name: &'static str,
    /// But with 4.0, whose clients keep grace open for as long.
    lease_seconds: u32,
    /// Who keeps the server's socket open while it is away: a client that is refused waits three seconds before it tries
    /// again.
    keeper: Keeper,
    /// Run by the first guest before anybody works.
    prepare: &'static str,
    /// Run by every guest before anybody works.
    each: &'static str,
    /// Run by every guest until the file `$STOP` is there.
    work: &'static str,
    /// Run by the first guest when all have ended.
    judge: &'static str,
}

pub(crate) const LOADS: [Load; 4] = [
    Load {
        name: "tree",
        lease_seconds: LEASE_SECONDS,
        keeper: Keeper::Parent,
        prepare: "",
        each: "(cd $SCRIPTS; python3 -c 'import source_tree; source_tree.write(\"/run/tree.tar\")')\n\
               mkdir /run/local; tar -C /run/local -xpf /run/tree.tar",
        // What the other has unpacked is read while it, and the server, go on: the last tree that it said to be whole.
        work: "[ $NAME = one ] && other=two || other=one\n\
               n=0; until [ -e $STOP ]; do n=$((n+1))\n\
               mkdir /mnt/copy-$NAME-$n; tar -C /mnt/copy-$NAME-$n -xpf /run/tree.tar\n\
               echo $n >/mnt/whole-$NAME.new; mv /mnt/whole-$NAME.new /mnt/whole-$NAME\n\
               last=$(cat /mnt/whole-$other 2>/dev/null || true)\n\
               if [ -n \"$last\" ]; then diff -r --no-dereference /run/local /mnt/copy-$other-$last; fi; done",
        judge: "for copy in /mnt/copy-*; do diff -r --no-dereference /run/local $copy; done; ls -d /mnt/copy-* | wc -l",
    },
    Load {
        name: "sqlite",
        lease_seconds: LEASE_SECONDS,
        keeper: Keeper::Another,
        prepare: "python3 $SCRIPTS/sqlite_writers.py make /mnt",
        each: "",
        work: "n=0; until [ -e $STOP ]; do n=$((n+1)); python3 $SCRIPTS/sqlite_writers.py write 5 $NAME-$n /mnt /mnt; done\n\
               echo $n >/mnt/rounds-$NAME",
        judge: "total=$((10 * ($(cat /mnt/rounds-one) + $(cat /mnt/rounds-two))))\n\
                python3 $SCRIPTS/sqlite_writers.py total $total /mnt",
    },
    Load {
        name: "locks",
        lease_seconds: LEASE_SECONDS_LONG,
        keeper: Keeper::Parent,
        prepare: "echo 0 >/mnt/counter",
        each: "",
        work: "n=0; until [ -e $STOP ]; do n=$((n+1)); python3 $SCRIPTS/locked_counter.py count /mnt/counter 2 20; done\n\
               echo $n >/mnt/rounds-$NAME",
        judge: "total=$((40 * ($(cat /mnt/rounds-one) + $(cat /mnt/rounds-two))))\n\
                python3 $SCRIPTS/locked_counter.py judge /mnt/counter $total; echo $total counts",
    },
    Load {
        name: "make",
        lease_seconds: LEASE_SECONDS,
        keeper: Keeper::Another,
        prepare: "",
        each: "cp -r $SCRIPTS/project /mnt/project-$NAME",
        work: "n=0; until [ -e $STOP ]; do n=$((n+1)); make -s -C /mnt/project-$NAME clean\n\
               make -s -j 4 -C /mnt/project-$NAME; done; echo $n builds",
        judge: "cp -r $SCRIPTS/project /run/project; make -s -C /run/project\n\
                for built in /mnt/project-*; do make -q -C $built\n\
                for file in $(ls /run/project); do cmp /run/project/$file $built/$file; done; done",
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
            trials.extend(at_hand.trials(&name, versions, |kernel, version| killed(kernel, version, load)));
        }
    }
    let mut trials: Vec<_> = trials.into_iter().map(|trial| trial.limit(LIMIT)).collect();
    if Scale::from_env() == Scale::Soak {
        for at_hand in kernels() {
            let locks = LOADS.iter().filter(|load| load.name == "locks");
            let of = locks.flat_map(|load| {
                let name = format!("restart::killed_under_load::{}", load.name);
                at_hand.trials(&name, &[NfsVersion::V3], |kernel, version| killed(kernel, version, load))
            });
            // It may have to wait for another one's turn.
            trials.extend(of.map(|trial| trial.limit(nlm::LIMIT)));
        }
    }
    trials
}

fn killed(kernel: &Kernel, version: NfsVersion, load: &Load) -> Result<()> {
    let _turn = if version == NfsVersion::V3 { Some(nlm::turn()?) } else { None };
    let kill = |served: &mut Served| match load.keeper {
        Keeper::Parent => served.server.kill_supervised(),
        Keeper::Another => {
            served.server.kill()?;
            served.server.restart()
        }
    };
    run((kernel, version, load), kills(load, version), ("true", "true"), kill)?;
    Ok(())
}

fn kills(load: &Load, version: NfsVersion) -> Strikes {
    let scale = Scale::from_env();
    // Those who cannot say that they have reclaimed stand still until grace is over.
    let is_soon_over = matches!(version, NfsVersion::V41 | NfsVersion::V42);
    match load.keeper {
        // It gives up at the fifth death within a minute.
        Keeper::Parent => Strikes::seldom(scale.pick(KILLS, KILLS_SOAK.min(4)), version),
        Keeper::Another if is_soon_over => scale.pick(OFTEN, OFTEN_SOAK),
        Keeper::Another => Strikes::seldom(scale.pick(KILLS, KILLS_SOAK), version),
    }
}

/// Works off a load, and does something to the server in between, several times. The shell's two commands are run in
/// each guest before its work and after it. Gives, for each guest, the shortest of as many pauses, the longest that it saw.
pub(crate) fn run(
    of: (&Kernel, NfsVersion, &Load),
    strikes: Strikes,
    around: (&str, &str),
    strike: impl FnMut(&mut Served) -> Result<()>,
) -> Result<Vec<Duration>> {
    let (kernel, version, load) = of;
    let mut served = serve_with(load, version)?;
    let name = format!("{}-{version}-{}", load.name, kernel.label());
    let packets = match Scale::from_env() {
        Scale::Soak => Some(Packets::of(served.server.port(), &name)?),
        Scale::Test => None,
    };
    let outcome = run_on(&mut served, of, strikes, around, strike);
    outcome.with_context(|| {
        let kept = packets.map_or_else(PathBuf::new, Packets::keep);
        format!("the server said\n{}\npackets: {}", tail(&served.server.log(), 60), kept.display())
    })
}

fn run_on(
    served: &mut Served,
    (kernel, version, load): (&Kernel, NfsVersion, &Load),
    strikes: Strikes,
    around: (&str, &str),
    mut strike: impl FnMut(&mut Served) -> Result<()>,
) -> Result<Vec<Duration>> {
    let names = ["one", "two"];
    let guests = names
        .iter()
        .map(|name| start(served, (kernel, version, load), name, around))
        .collect::<Result<Vec<_>>>()?;
    let (first, others) = guests.split_first().context("a load without guests")?;
    first.wait_for("prepared\n", PATIENCE)?;
    guests.iter().try_for_each(|guest| guest.signal("work"))?;
    guests.iter().try_for_each(|guest| guest.wait_for("working\n", PATIENCE))?;
    for _ in 0..strikes.count {
        std::thread::sleep(strikes.work);
        strike(served)?;
    }
    std::thread::sleep(strikes.work);
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
        let each = Scale::from_env()
            .pick(pauses.get(strikes.count - 1), pauses.first())
            .context("few heartbeats")?;
        let is_short = *each < PAUSE_MAX && pauses[0] < ONE_PAUSE_MAX;
        ensure!(matches!(version, NfsVersion::V3 | NfsVersion::V40) || is_short, "pauses of {pauses:?}");
        shortest.push(*pauses.get(strikes.count - 1).context("few heartbeats")?);
    }
    served.server.check_alive()?;
    Ok(shortest)
}

fn serve_with(load: &Load, version: NfsVersion) -> Result<Served> {
    let filesystem = LoopFs::new(FsType::Ext4, SHARE_BYTES)?;
    let share = filesystem.path().join("share");
    std::fs::create_dir(&share)?;
    let lease_seconds = match version {
        NfsVersion::V3 => LEASE_SECONDS_V3,
        NfsVersion::V40 => LEASE_SECONDS,
        _ => load.lease_seconds,
    };
    let (name, levels) = LEVELS_OF_RESTARTS;
    let server = ServerUnderTest::builder(&share).lease_seconds(lease_seconds).environment(name, levels);
    let server = if version == NfsVersion::V3 { server.with_portmap() } else { server };
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
    let mount = match version {
        NfsVersion::V3 => nlm::begin_at(name, "/mnt"),
        _ => "lab_mount $VERSION /mnt\n".to_owned(),
    };
    let script = format!(
        "trap 'dmesg | grep -i nfs | tail -20 >&2' ERR\nSTOP=$OUT/.signal/enough\n{mount}\
         if [ $NAME = one ]; then\n:\n{}\nfi\n{}\n\
         echo prepared; lab_wait work 120; {before}; echo working\n\
         mkdir -p /mnt/heart-$NAME; python3 $SCRIPTS/heartbeat.py /mnt/heart-$NAME $STOP & heart=$!\n\
         {}\nwait $heart; {after}; echo worked\n\
         if [ $NAME = one ]; then\nlab_wait judge 240\n{}\nelse\nlab_wait end 240\nfi\n\
         cd /; umount /mnt",
        load.prepare, load.each, load.work, load.judge
    );
    let env = [("VERSION", version.as_str()), ("NAME", name)];
    start_in(guest(kernel, "768M", PATIENCE), served, &script, &env)
}
