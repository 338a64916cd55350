//! What a round trip costs: figures for `docs/design/client.md`, printed.

use std::time::Instant;

use bytes::Bytes;
use holdfast_client::{Attributes, Io};
use holdfast_wire::nfs4::StableHow4;
use rustix::time::{ClockId, clock_gettime};

use super::world::World;

fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

#[test]
#[ignore = "measures"]
fn a_round_trip_over_loopback_costs() {
    let world = World::new();
    let user = world.client();
    let (client, cx) = (&user.client, user.cx());
    let file = user.make("file");
    let page = Bytes::from(vec![1; 4096]);
    let measure = |what: &str, rounds: u32, run: &dyn Fn()| {
        (0..rounds / 10).for_each(|_| run());
        let (began, cpu_before) = (Instant::now(), cpu());
        (0..rounds).for_each(|_| run());
        let (wall, cpu) = (began.elapsed().as_secs_f64() * 1e6, cpu() - cpu_before);
        let server = holdfast_lab::process::cpu_time(world.server.pid().unwrap()).unwrap();
        println!(
            "{what}: {:.1} us wall, {:.1} us CPU of the client (server so far {server:?})",
            wall / f64::from(rounds),
            cpu / f64::from(rounds)
        );
    };
    measure("GETATTR", 20_000, &|| drop(client.getattr(cx, &user.root, Attributes::STAT).unwrap()));
    measure("LOOKUP", 20_000, &|| drop(client.lookup(cx, &user.root, b"file", Attributes::STAT).unwrap()));
    measure("WRITE 4 KiB", 20_000, &|| {
        client.write(cx, Io::open(&file), 0, page.clone(), StableHow4::Unstable).unwrap();
    });
    measure("READ 4 KiB", 20_000, &|| drop(client.read(cx, Io::open(&file), 0, 4096).unwrap()));
    let large = Bytes::from(vec![1; 1 << 20]);
    measure("WRITE 1 MiB", 500, &|| {
        client.write(cx, Io::open(&file), 0, large.clone(), StableHow4::Unstable).unwrap();
    });
    let whole = client.read(cx, Io::open(&file), 0, 1 << 20).unwrap().data.len();
    println!("limits {:?}, one READ brings {whole} bytes", client.limits());
    measure("READ 1 MiB", 500, &|| drop(client.read(cx, Io::open(&file), 0, 1 << 20).unwrap()));
    measure("16 threads, 1000 GETATTR each", 1, &|| {
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        client.getattr(cx, &user.root, Attributes::STAT).unwrap();
                    }
                });
            }
        });
    });
}
