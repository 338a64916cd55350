//! Writes the seeds of every target below the folder given.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let corpus = env::args_os().nth(1).ok_or_else(|| io::Error::other("usage: seeds FOLDER"))?;
    for (target, _, seeds) in holdfast_fuzz::seeds::targets() {
        let folder = Path::new(&corpus).join(target);
        fs::create_dir_all(&folder)?;
        for (name, bytes) in seeds {
            fs::write(folder.join(name), bytes)?;
        }
    }
    Ok(())
}
