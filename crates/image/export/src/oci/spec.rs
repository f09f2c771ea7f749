//! The JSON documents of an image, with the names that the OCI image specification gives them.

use crate::digest::Digest;
use hectare_populate::Platform;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(super) const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(super) const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
pub(super) const LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
pub(super) const LAYER_ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";
/// The annotation with the tag of an image in an index.
pub(super) const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// Where a blob is, and what.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    media_type: &'static str,
    digest: String,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) platform: Option<Platform>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<&'static str, String>,
}

impl Descriptor {
    pub(super) fn of(media_type: &'static str, digest: &Digest) -> Self {
        let (digest, size) = (digest.named(), digest.size.get());
        Self { media_type, digest, size, platform: None, annotations: BTreeMap::new() }
    }
}

/// An image: its configuration and its layers.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    schema_version: u8,
    media_type: &'static str,
    config: Descriptor,
    layers: Vec<Descriptor>,
}

impl Manifest {
    pub(super) fn of(config: Descriptor, layers: Vec<Descriptor>) -> Self {
        Self { schema_version: 2, media_type: MANIFEST, config, layers }
    }
}

/// The configuration of an image.
#[derive(Debug, Serialize)]
pub(super) struct Image {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) created: Option<String>,
    #[serde(flatten)]
    pub(super) platform: Platform,
    pub(super) config: Config,
    pub(super) rootfs: RootFs,
}

/// The layers of an image, unpacked.
#[derive(Debug, Serialize)]
pub(super) struct RootFs {
    #[serde(rename = "type")]
    kind: &'static str,
    diff_ids: Vec<String>,
}

impl RootFs {
    pub(super) fn of(diff_ids: Vec<String>) -> Self {
        Self { kind: "layers", diff_ids }
    }
}

/// How a container of the image is run: the object `config` of its configuration. What is not known is
/// refused rather than dropped.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct Config {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exposed_ports: Option<BTreeMap<String, Map<String, Value>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    env: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    entrypoint: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cmd: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    volumes: Option<BTreeMap<String, Map<String, Value>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    working_dir: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stop_signal: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    args_escaped: Option<bool>,
    /// Docker's, as is the next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    healthcheck: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shell: Option<Vec<String>>,
}

impl Config {
    /// Reads the object from its JSON.
    ///
    /// # Errors
    /// If it is no object, or has a member that is not known or not of its type.
    pub fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        // A list would be taken for the members in order.
        serde_json::from_slice::<Map<String, Value>>(json)?;
        serde_json::from_slice(json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_keeps_what_it_says_and_refuses_what_is_not_known() {
        let text = r#"{"User":"1000","Env":["A=b"],"Entrypoint":["/init"],"WorkingDir":"/srv"}"#;
        let config = Config::parse(text.as_bytes()).unwrap();
        assert_eq!(serde_json::to_string(&config).unwrap(), text);
        assert_eq!(Config::parse(br#"{"Cmd":null}"#).unwrap(), Config::default());
        for text in [r#"{"entrypoint":["/init"]}"#, r#"{"Env":"A=b"}"#, "[]"] {
            assert!(Config::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
