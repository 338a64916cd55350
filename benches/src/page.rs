//! One page, `index.html`, that shows the plots which are in a directory, whichever runs have left them there.

use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The plots that there may be, in the page's order: name without its ending, what it shows, and the table beside it.
const PLOTS: [(&str, &str, &str); 4] = [
    ("plot", "Against other servers", "table"),
    ("growth", "Growth", "growth"),
    ("knfsd", "Against the kernel's server, in a guest", "knfsd"),
    ("limits", "Limits of the machine", "limits"),
];

/// What `page` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct PageArguments {
    /// The directory
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

/// Writes the page.
///
/// Errors when the directory cannot be written to.
pub(crate) fn run(arguments: &PageArguments) -> Result<()> {
    let path = arguments.out.join("index.html");
    fs::write(&path, html(&arguments.out)).with_context(|| path.display().to_string())?;
    println!("{}", path.display());
    Ok(())
}

fn html(out: &Path) -> String {
    let mut body = String::new();
    for (plot, title, table) in PLOTS {
        let is_there = |name: &str| out.join(name).is_file();
        let (plot, table) = (format!("{plot}.svg"), format!("{table}.txt"));
        if !is_there(&plot) && !is_there(&table) {
            continue;
        }
        let _ = writeln!(body, "<h2>{title}</h2>");
        if is_there(&table) {
            let _ = writeln!(body, "<p><a href='{table}'>The figures</a></p>");
        }
        if is_there(&plot) {
            let _ = writeln!(body, "<p><img src='{plot}' alt='{title}'></p>");
        }
    }
    format!(
        "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'><title>Holdfast: the bench</title></head>\n\
         <body style='font-family: sans-serif'>\n<h1>Holdfast: the bench</h1>\n{body}</body></html>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_shown_and_nothing_else() {
        let out = tempfile::tempdir().unwrap();
        for name in ["plot.svg", "table.txt", "limits.txt"] {
            fs::write(out.path().join(name), "").unwrap();
        }
        let html = html(out.path());
        assert!(html.contains("<img src='plot.svg'") && html.contains("href='table.txt'"), "{html}");
        assert!(html.contains("href='limits.txt'") && !html.contains("limits.svg"), "{html}");
        assert!(!html.contains("Growth"), "{html}");
    }
}
