//! `holdfast mount stats`.

use std::path::Path;

use anyhow::Result;
use holdfast_mount::control::{Controller, Request};
use serde_json::Value;

/// Shows the statistics: sections of names and numbers, as the mount tells them.
pub(crate) fn run(mountpoint: &Path, is_json: bool) -> Result<()> {
    let stats: Value = Controller::connect(mountpoint)?.ask(&Request::Stats)?;
    if is_json {
        println!("{}", serde_json::to_string_pretty(&stats)?);
    } else {
        print!("{}", for_people(&stats));
    }
    Ok(())
}

fn for_people(stats: &Value) -> String {
    let mut lines = Vec::new();
    gather(stats, "", &mut lines);
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    lines.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect()
}

fn gather(value: &Value, name: &str, lines: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let words = field.replace('_', " ");
                let whole = if name.is_empty() { words } else { format!("{name}: {words}") };
                gather(value, &whole, lines);
            }
        }
        Value::String(text) => lines.push((name.to_owned(), text.clone())),
        Value::Null => lines.push((name.to_owned(), "-".to_owned())),
        other => lines.push((name.to_owned(), other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_become_names_and_numbers_in_columns() {
        let stats =
            serde_json::json!({ "source": "files:/data", "queue": { "bytes_unsent": 7, "oldest_ms": null } });
        let shown = for_people(&stats);
        assert!(shown.contains("queue: bytes unsent  7\n"), "{shown}");
        assert!(shown.contains("queue: oldest ms     -\n"), "{shown}");
        assert!(shown.contains("source               files:/data\n"), "{shown}");
    }
}
