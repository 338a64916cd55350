//! Every file of the corpus, through its target.

use std::fs;
use std::path::Path;

use holdfast_fuzz::seeds::targets;

#[test]
fn every_seed_and_every_found_input_passes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (target, run, seeds) in targets() {
        assert!(!seeds.is_empty(), "{target} has no seeds");
        seeds.iter().for_each(|(name, bytes)| {
            eprintln!("{target}/{name}");
            run(bytes);
        });
        let Ok(kept) = fs::read_dir(corpus.join(target)) else { continue };
        for entry in kept {
            let path = entry.unwrap().path();
            eprintln!("{}", path.display());
            run(&fs::read(&path).unwrap());
        }
    }
}
