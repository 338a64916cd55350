//! Random histories of hosts, and of an owner of another protocol, against one lock a byte: the same grants, the same refusals, nothing left at the end.

use holdfast_wire::nlm4::NlmStat4;
use proptest::prelude::*;

use holdfast_state::{Door, ForeignOwner, LockKind};

use crate::world::{Client, Process, World, range};

const BYTES: u64 = 12;
const HOSTS: u8 = 3;
const PROCESSES: i32 = 2;

#[derive(Clone, Copy, Debug)]
enum Step {
    Lock {
        is_write: bool,
    },
    Wait {
        is_write: bool,
    },
    Cancel {
        is_write: bool,
    },
    Unlock,
    Restart,
    /// An owner of another protocol locks or unlocks, which the engine alone sees.
    Other {
        is_write: Option<bool>,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let write = any::<bool>;
    prop_oneof![
        4 => write().prop_map(|is_write| Step::Lock { is_write }),
        4 => write().prop_map(|is_write| Step::Wait { is_write }),
        1 => write().prop_map(|is_write| Step::Cancel { is_write }),
        4 => Just(Step::Unlock),
        1 => Just(Step::Restart),
        3 => prop::option::of(write()).prop_map(|is_write| Step::Other { is_write }),
    ]
}

/// One lock a byte and owner: `Some(is_write)`.
type Model = Vec<[Option<bool>; BYTES as usize]>;

fn is_free(model: &Model, owner: usize, (first, last): (u64, u64), is_write: bool) -> bool {
    let others = model.iter().enumerate().filter(|(n, _)| *n != owner);
    others.flat_map(|(_, bytes)| &bytes[first as usize..=last as usize]).flatten().all(|w| !w && !is_write)
}

fn set(model: &mut Model, owner: usize, (first, last): (u64, u64), to: Option<bool>) {
    model[owner][first as usize..=last as usize].fill(to);
}

/// Compares every byte with what TEST tells.
fn compare(clients: &mut [Client], fh: &[u8], model: &Model) -> Result<(), TestCaseError> {
    for byte in 0..BYTES {
        // A process that never locks anything.
        let seen = clients[0].test(fh, Process(99), (byte, 1, true));
        let held = model.iter().any(|bytes| bytes[byte as usize].is_some());
        prop_assert_eq!(seen.is_err(), held, "byte {}: {:?}", byte, seen);
    }
    Ok(())
}

/// Hears what the server has to tell, until there is no more: locks granted to waiters enter the model.
fn deliver(world: &World, model: &mut Model) {
    loop {
        world.work();
        let Some(told) = world.next_granted() else { return };
        let args = told.args();
        let owner = host_of(&told.call.peer) * PROCESSES as usize + args.lock.svid as usize;
        let first = args.lock.offset.0;
        let span = (first, first + args.lock.length.0 - 1);
        assert!(is_free(model, owner, span, args.exclusive), "granted though held by another: {args:?}");
        let is_write = args.exclusive;
        set(model, owner, span, Some(is_write));
        told.answer(NlmStat4::Granted);
    }
}

fn host_of(ip: &std::net::IpAddr) -> usize {
    let std::net::IpAddr::V4(ip) = ip else { panic!("an IPv4 address") };
    usize::from(ip.octets()[3]) - 1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn grants_and_refusals_are_those_of_one_lock_a_byte(
        steps in prop::collection::vec((0..HOSTS, 0..PROCESSES, 0..BYTES, 0..BYTES, step()), 1..60),
    ) {
        let world = World::new();
        let fh = world.fh(&world.file("f"));
        let mut clients: Vec<_> = (1..=HOSTS).map(|n| world.client(n)).collect();
        // The last is that of another protocol.
        let others = usize::from(HOSTS) * PROCESSES as usize;
        let mut model: Model = vec![[None; BYTES as usize]; others + 1];
        let file = world.file("f").key();
        let other = ForeignOwner { door: Door::P9, id: 1 };
        let mut state = 1;
        for (host, process, a, b, step) in steps {
            let (first, last) = (a.min(b), a.max(b));
            let owner = usize::from(host) * PROCESSES as usize + process as usize;
            let by = Process(process);
            let wanted = |is_write| (first, last - first + 1, is_write);
            let client = &mut clients[usize::from(host)];
            match step {
                Step::Lock { is_write } => {
                    let stat = client.lock(&fh, by, wanted(is_write));
                    if stat != NlmStat4::Granted {
                        // By asking for an exclusive lock an owner gives up its place in line for shared ones, so
                        // that one behind it may have been granted just before.
                        deliver(&world, &mut model);
                    }
                    let free = is_free(&model, owner, (first, last), is_write);
                    prop_assert_eq!(stat == NlmStat4::Granted, free, "{:?}", stat);
                    if free {
                        set(&mut model, owner, (first, last), Some(is_write));
                    }
                }
                Step::Wait { is_write } => {
                    let stat = client.wait(&fh, by, wanted(is_write));
                    if stat != NlmStat4::Granted {
                        deliver(&world, &mut model);
                    }
                    match stat {
                        NlmStat4::Granted => {
                            prop_assert!(is_free(&model, owner, (first, last), is_write));
                            set(&mut model, owner, (first, last), Some(is_write));
                        }
                        NlmStat4::Blocked | NlmStat4::Deadlck => {
                            prop_assert!(!is_free(&model, owner, (first, last), is_write), "{:?}", stat);
                        }
                        other => prop_assert!(false, "{:?}", other),
                    }
                }
                Step::Cancel { is_write } => {
                    let stat = client.cancel(&fh, by, wanted(is_write));
                    prop_assert!(matches!(stat, NlmStat4::Granted | NlmStat4::Denied));
                }
                Step::Unlock => {
                    prop_assert_eq!(client.unlock(&fh, by, wanted(true)), NlmStat4::Granted);
                    set(&mut model, owner, (first, last), None);
                }
                Step::Other { is_write: Some(is_write) } => {
                    let kind = if is_write { LockKind::Write } else { LockKind::Read };
                    let span = range(first, last);
                    let lock = world.manager.step(|e, now| e.foreign_lock(other, file, span, kind, now)).unwrap();
                    prop_assert_eq!(lock.is_ok(), is_free(&model, others, (first, last), is_write));
                    if lock.is_ok() {
                        set(&mut model, others, (first, last), Some(is_write));
                    }
                }
                Step::Other { is_write: None } => {
                    let span = range(first, last);
                    world.manager.step(|e, now| e.foreign_unlock(other, file, span, now)).unwrap();
                    set(&mut model, others, (first, last), None);
                }
                Step::Restart => {
                    state += 2;
                    let name = client.name.clone();
                    client.notify(&name, state);
                    for process in 0..PROCESSES {
                        let owner = usize::from(host) * PROCESSES as usize + process as usize;
                        set(&mut model, owner, (0, BYTES - 1), None);
                    }
                }
            }
            deliver(&world, &mut model);
            compare(&mut clients, &fh, &model)?;
        }
        for client in &mut clients {
            let name = client.name.clone();
            client.notify(&name, 1001);
        }
        while let Some(told) = world.next_granted() {
            // Of one that restarted later.
            told.lose();
        }
        prop_assert_eq!((world.lockd.counts(), world.machine.fs.open_files()), ((0, 0), 0));
    }
}
