//! Imports point strictly downward: a crate of layer N may depend on crates of layers below N only. The layer
//! stands in each manifest as `package.metadata.holdfast.layer`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

#[derive(Deserialize)]
struct Manifest {
    package: Package,
    #[serde(default)]
    dependencies: BTreeMap<String, toml::Value>,
    #[serde(default, rename = "build-dependencies")]
    build_dependencies: BTreeMap<String, toml::Value>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct Metadata {
    holdfast: House,
}

#[derive(Deserialize)]
struct House {
    layer: u8,
}

/// Checks every crate under `crates/`.
///
/// # Errors
/// A manifest that cannot be read or names no layer, and every upward or sideways import. Test-only
/// dependencies may point anywhere.
pub(crate) fn check(root: &Path) -> Result<()> {
    let manifests = read_all(&root.join("crates"))?;
    let mut layers = BTreeMap::new();
    for manifest in &manifests {
        let name = &manifest.package.name;
        let house = manifest.package.metadata.as_ref().map(|m| &m.holdfast);
        let house = house.with_context(|| format!("{name}: no package.metadata.holdfast.layer"))?;
        layers.insert(name.as_str(), house.layer);
    }
    let wrong = violations(&manifests, &layers);
    if !wrong.is_empty() {
        bail!("imports must point downward:\n  {}", wrong.join("\n  "));
    }
    println!("layers: {} crates, every import points downward", layers.len());
    Ok(())
}

fn read_all(crates: &Path) -> Result<Vec<Manifest>> {
    let mut manifests = Vec::new();
    for entry in fs::read_dir(crates)? {
        let path = entry?.path().join("Cargo.toml");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        manifests.push(toml::from_str(&text).with_context(|| path.display().to_string())?);
    }
    Ok(manifests)
}

fn violations(manifests: &[Manifest], layers: &BTreeMap<&str, u8>) -> Vec<String> {
    let mut wrong = Vec::new();
    for manifest in manifests {
        let (name, own) = (&manifest.package.name, layers[manifest.package.name.as_str()]);
        for import in manifest.dependencies.keys().chain(manifest.build_dependencies.keys()) {
            match layers.get(import.as_str()) {
                Some(&layer) if layer >= own => {
                    wrong.push(format!("{name} (layer {own}) imports {import} (layer {layer})"));
                }
                _ => {}
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str, imports: &[&str]) -> Manifest {
        let dependencies = imports.iter().map(|i| ((*i).to_owned(), toml::Value::Boolean(true))).collect();
        let package = Package { name: name.to_owned(), metadata: None };
        Manifest { package, dependencies, build_dependencies: BTreeMap::new() }
    }

    #[test]
    fn an_import_of_the_same_layer_or_above_is_found() {
        let layers = BTreeMap::from([("low", 1), ("peer", 1), ("high", 2)]);
        let good = [manifest("high", &["low", "serde"])];
        assert!(violations(&good, &layers).is_empty());
        let bad = [manifest("low", &["peer"]), manifest("peer", &["high"])];
        assert_eq!(violations(&bad, &layers).len(), 2);
    }
}
