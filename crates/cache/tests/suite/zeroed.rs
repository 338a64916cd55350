//! Ranges that are made zeros at the server, in steps.

use crate::world::World;
use bytes::Bytes;
use holdfast_cache::*;

#[test]
fn who_asked_for_zeros_and_is_refused_hears_it_when_the_kernel_has_forgotten() {
    let mut world = World::new(1, true, 1);
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let made = world.run(0, |m, t, now| m.create(t, NodeId::ROOT, b"f", 0o644, flags, now)).unwrap();
    let (node, fh) = (made.0.node, made.1.fh);
    world.run(0, |m, t, now| m.write(t, fh, 0, &Bytes::from_static(b"before"), now)).unwrap();
    world.run(0, |m, t, now| m.fsync(t, node, Some(fh), now)).unwrap();
    world.invalidate(0);
    let in_steps = [AllocateMode::ZeroRange, AllocateMode::ZeroRangeKeepSize].map(|mode| (mode, true));
    for (mode, waits) in in_steps.into_iter().chain([(AllocateMode::PunchHole, false)]) {
        let mut turn = Turn::new(Caller::new(7, 0));
        let now = world.now();
        let machine = &mut world.clients[0].machine;
        let step = machine.allocate(&mut turn, fh, mode, (0, 100), now);
        let Step::Ask(ask) = step else { panic!("the server is to be asked: {step:?}") };
        machine.absorb(&mut turn, *ask, Err(Errno::ENOSPC), now);
        let step = machine.allocate(&mut turn, fh, mode, (0, 100), now);
        if waits {
            assert!(matches!(step, Step::Wait(Wait::Forgotten)), "{step:?}");
            let told = machine.take_invalidations();
            assert!(told.iter().any(|told| told.what == Forget::Data(node)), "{told:?}");
            machine.invalidated(told.last().unwrap().number);
            let step = machine.allocate(&mut turn, fh, mode, (0, 100), now);
            assert!(matches!(step, Step::Failed(Errno::ENOSPC)), "{step:?}");
        } else {
            assert!(matches!(step, Step::Failed(Errno::ENOSPC)), "nothing was done: {step:?}");
        }
    }
}

/// He is answered before it is known what was done, and the kernel drops nothing of what it takes to have failed.
#[test]
fn who_gives_up_what_may_put_zeros_or_other_data_into_a_file_has_the_kernel_drop_what_it_keeps() {
    let mut world = World::new(1, true, 1);
    let ((node, fh), (_, from)) = (world.made_and_open(b"f"), world.made_and_open(b"g"));
    let data = Bytes::from(vec![1; 100_000]);
    for fh in [fh, from] {
        world.run(0, |m, t, now| m.write(t, fh, 0, &data, now)).unwrap();
    }
    world.drain();
    let zero = |m: &mut Machine, t: &mut Turn, now| {
        m.allocate(t, fh, AllocateMode::ZeroRangeKeepSize, (0, 4096), now)
    };
    let copy = |m: &mut Machine, t: &mut Turn, now| match m.copy(t, (from, 0), (fh, 0), 100_000, now) {
        Step::Ask(ask) => Step::Ask(ask),
        other => panic!("{other:?}"),
    };
    type Act<'a> = &'a dyn Fn(&mut Machine, &mut Turn, Now) -> Step<()>;
    for act in [&zero as Act<'_>, &copy] {
        world.invalidate(0);
        let (mut turn, now) = (Turn::new(Caller::new(7, 0)), world.now());
        let machine = &mut world.clients[0].machine;
        let Step::Ask(ask) = act(machine, &mut turn, now) else { panic!("the server is to be asked") };
        machine.given_up(&ask);
        let told = machine.take_invalidations();
        assert!(told.iter().any(|told| told.what == Forget::Data(node)), "{told:?}");
        machine.absorb(&mut turn, *ask, Err(Errno::EINTR), now);
    }
}
