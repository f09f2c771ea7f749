//! What comes from outside: licences, sources and bans of every package that a build for Linux on x86-64 has.
//!
//! The rules are in `deny.toml`, in the form of cargo-deny, which looks at more (advisories, texts of
//! licences) but takes many minutes to build; what can be known from `cargo metadata` is checked here, on
//! every machine. Where cargo-deny is installed, `make test` runs it as well.
//!
//! What it is not: a check of the code. A package may be from the right place and be wrong.

use super::{Finding, Severity};
use hectare_tools::steps::{cargo, quiet, root};
use serde_json::Value;
use spdx::{Expression, LicenseItem, ParseMode};
use std::fs;

/// Where the rules are.
const RULES: &str = "deny.toml";
/// How the source of a package of the public registry ends.
const REGISTRY: &str = "/crates.io-index";
/// Whose dependencies are looked at: with all platforms, cargo would have to fetch what is never built.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// What `deny.toml` allows and forbids.
#[derive(Debug, PartialEq, Eq)]
struct Rules {
    licences: Vec<String>,
    /// Packages that may have another licence.
    exceptions: Vec<(String, String)>,
    banned: Vec<String>,
}

impl Rules {
    fn parse(text: &str) -> Result<Self, String> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
        let list = |section: &str, key: &str| {
            let list = table.get(section).and_then(|section| section.get(key)?.as_array());
            list.cloned().ok_or(format!("there is no list '{key}' in [{section}]"))
        };
        let text = |value: &toml::Value| value.as_str().map(str::to_owned);
        Ok(Self {
            licences: list("licenses", "allow")?.iter().filter_map(text).collect(),
            exceptions: list("licenses", "exceptions")
                .unwrap_or_default()
                .iter()
                .filter_map(|one| Some((text(one.get("crate")?)?, text(one.get("allow")?.get(0)?)?)))
                .collect(),
            banned: list("bans", "deny")?.iter().filter_map(|one| text(one.get("name")?)).collect(),
        })
    }

    /// What is wrong with a package from outside.
    fn complaints(&self, package: &Value) -> Vec<String> {
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        let mut complaints = Vec::new();
        if self.banned.iter().any(|name| name == text("name")) {
            complaints.push(format!("{} is banned", text("name")));
        }
        if !(text("source").starts_with("registry+") && text("source").ends_with(REGISTRY)) {
            complaints.push(format!("{} is from {}, not from the registry", text("name"), text("source")));
        }
        let excepted =
            self.exceptions.iter().any(|(name, licence)| name == text("name") && licence == text("license"));
        if !excepted && !self.allows(text("license")) {
            complaints.push(format!("{} has the licence '{}'", text("name"), text("license")));
        }
        complaints
    }

    /// Whether an expression can be met with allowed licences alone. None is not.
    fn allows(&self, licence: &str) -> bool {
        let parsed = Expression::parse_mode(licence, ParseMode::LAX);
        parsed.is_ok_and(|expression| {
            expression.evaluate(|requirement| match &requirement.license {
                LicenseItem::Spdx { id, .. } => self.licences.iter().any(|allowed| allowed == id.name),
                LicenseItem::Other(_) => false,
            })
        })
    }
}

/// Findings about what the workspace depends on, whatever for.
pub(super) fn check() -> Vec<Finding> {
    let found = fs::read_to_string(root().join(RULES)).map_err(|error| error.to_string());
    let complaints = found.and_then(|text| Rules::parse(&text)).and_then(|rules| {
        let packages = packages().ok_or("cargo metadata fails on the workspace")?;
        let outside = packages.iter().filter(|package| package["source"].is_string());
        Ok(outside.flat_map(|package| rules.complaints(package)).collect::<Vec<_>>())
    });
    complaints.unwrap_or_else(|error| vec![error]).into_iter().map(finding).collect()
}

fn packages() -> Option<Vec<Value>> {
    let mut metadata = cargo();
    metadata.args(["metadata", "--locked", "--format-version", "1", "--filter-platform", PLATFORM]);
    let metadata: Value = serde_json::from_slice(&quiet(&mut metadata)?.stdout).ok()?;
    metadata["packages"].as_array().cloned()
}

fn finding(message: String) -> Finding {
    Finding { file: RULES.into(), line: 1, severity: Severity::Error, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn complaints(name: &str, source: &str, licence: Option<&str>) -> usize {
        let rules = "[licenses]\nallow = ['MIT', 'Zlib']\n\
                     exceptions = [{ crate = 'odd', allow = ['MPL-2.0'] }]\n\
                     [bans]\ndeny = [{ name = 'worst' }]";
        let package = json!({ "name": name, "source": source, "license": licence });
        Rules::parse(rules).unwrap().complaints(&package).len()
    }

    #[test]
    fn licences_sources_and_names_are_looked_at() {
        let registry = "registry+https://somewhere/crates.io-index";
        for licence in ["MIT", "MIT/Apache-2.0", "Apache-2.0 OR MIT", "MIT AND Zlib", "Unlicense OR MIT"] {
            assert_eq!(complaints("a", registry, Some(licence)), 0, "{licence}");
        }
        for licence in ["GPL-2.0-only", "MIT AND GPL-2.0-only", "", "my own"] {
            assert_eq!(complaints("a", registry, Some(licence)), 1, "{licence}");
        }
        assert_eq!(complaints("a", registry, None), 1);
        assert_eq!(complaints("odd", registry, Some("MPL-2.0")), 0);
        assert_eq!(complaints("a", registry, Some("MPL-2.0")), 1);
        assert_eq!(complaints("worst", registry, Some("MIT")), 1);
        assert_eq!(complaints("a", "git+https://somewhere/a#1234", Some("MIT")), 1);
    }

    #[test]
    fn rules_without_a_list_are_no_rules() {
        assert!(Rules::parse("[licenses]\nallow = []").is_err());
    }
}
