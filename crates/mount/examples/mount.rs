//! Mounts in the foreground.
use holdfast_mount::{MountOptions, MountRequest};
fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let args: Vec<String> = std::env::args().collect();
    let options = MountOptions::parse(&args[3..], false).map_err(anyhow::Error::msg)?;
    let request = MountRequest {
        source: args[1].parse().map_err(anyhow::Error::msg)?,
        mountpoint: holdfast_mount::mountinfo::resolve(args[2].as_ref())?,
        options,
    };
    holdfast_mount::run(&request, || {
        println!("mounted");
        Ok(())
    })
}
