//! How large the rooms are: a report to look at, file by file and function by function.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

/// Prints medians, 90th percentiles and the largest files and functions of production code.
///
/// # Errors
/// When a source file cannot be read.
pub(crate) fn report(root: &Path) -> Result<()> {
    let mut sources = Vec::new();
    collect(&root.join("crates"), &mut sources)?;
    let (mut files, mut functions, mut unwraps, mut unfinished) = (Vec::new(), Vec::new(), 0, 0);
    for path in sources {
        let text = fs::read_to_string(&path)?;
        let production = text.split("#[cfg(test)]").next().unwrap_or_default();
        let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        files.push((production.lines().count(), shown.clone()));
        functions.extend(function_sizes(production, &shown));
        unwraps += production.matches(".unwrap()").count();
        unfinished += text.matches("TODO").count() + text.matches("FIXME").count();
    }
    summary("lines a file", &mut files);
    summary("lines a function", &mut functions);
    println!("unwraps in production code: {unwraps}; unfinished notes: {unfinished}");
    Ok(())
}

fn collect(dir: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() && !path.ends_with("tests") {
            collect(&path, into)?;
        } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("tests.rs") {
            into.push(path);
        }
    }
    Ok(())
}

/// Functions by indentation: rustfmt puts the closing brace under the line that opened the item.
fn function_sizes(text: &str, file: &str) -> Vec<(usize, String)> {
    let mut sizes = Vec::new();
    let mut open: Option<(usize, usize, String)> = None;
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        if let Some(name) = function_name(trimmed) {
            open = Some((number, indent, format!("{file}:{} {name}", number + 1)));
        } else if trimmed == "}"
            && let Some((start, at, name)) = open.take_if(|(_, at, _)| *at == indent)
        {
            debug_assert_eq!(at, indent);
            sizes.push((number - start, name));
        }
    }
    sizes
}

fn function_name(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let only_modifiers = before.split_whitespace().all(|w| {
        w.starts_with("pub")
            || w.ends_with(')')
            || matches!(w, "const" | "async" | "unsafe" | "extern" | "\"C\"")
    });
    only_modifiers.then(|| after.split(['(', '<']).next().unwrap_or(after))
}

fn summary(what: &str, sizes: &mut [(usize, String)]) {
    sizes.sort();
    let at = |percent: usize| sizes.get(sizes.len() * percent / 100).map_or(0, |(n, _)| *n);
    println!("{what}: {} in all, median {}, 90th percentile {}", sizes.len(), at(50), at(90));
    for (lines, name) in sizes.iter().rev().take(8) {
        println!("  {lines:5} {name}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_measured_from_brace_to_brace() {
        let text = "impl X {\n    pub fn a(&self) {\n        if x {\n        }\n    }\n}\nfn b() {}\n";
        assert_eq!(function_sizes(text, "f"), [(3, "f:2 a".to_owned())]);
    }
}
