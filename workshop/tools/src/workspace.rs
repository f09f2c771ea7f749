//! The packages of the workspace, as `cargo metadata` lists them.

use crate::steps::{metadata, root};
use serde_json::Value;

/// A package.
#[derive(Clone, Debug)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its manifest, from the root of the workspace.
    pub manifest: String,
    /// Whether a registry may have it.
    pub is_published: bool,
    /// Of its metadata, what must be there: a description and a licence.
    pub has: [bool; 2],
    /// Whether it names a repository.
    pub has_repository: bool,
    /// What it depends on.
    pub dependencies: Vec<Dependency>,
}

impl Package {
    /// Its name and version, as files of it are named.
    pub fn stem(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }
}

/// What a package depends on.
#[derive(Clone, Debug)]
pub struct Dependency {
    /// Its name.
    pub name: String,
    /// The versions that will do: `*` if any will.
    pub required: String,
    /// Whether only its tests need it.
    pub is_dev: bool,
    /// Whether it is a package of the workspace.
    pub is_inside: bool,
}

/// All packages; `None` if cargo can't list them.
pub fn packages() -> Option<Vec<Package>> {
    let metadata = metadata()?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let prefix = root().to_string_lossy().into_owned() + "/";
    let dependency = |value: &Value| Dependency {
        name: text(&value["name"]),
        required: text(&value["req"]),
        is_dev: value["kind"].as_str() == Some("dev"),
        is_inside: value["path"].is_string(),
    };
    let package = |value: &Value| Package {
        name: text(&value["name"]),
        version: text(&value["version"]),
        manifest: text(&value["manifest_path"]).replacen(&prefix, "", 1),
        is_published: value["publish"].is_null(),
        has: ["description", "license"].map(|field| !text(&value[field]).is_empty()),
        has_repository: value["repository"].is_string(),
        dependencies: value["dependencies"].as_array().into_iter().flatten().map(dependency).collect(),
    };
    Some(metadata["packages"].as_array()?.iter().map(package).collect())
}
