//! The descriptions in an image: index, manifest, configuration. All untrusted JSON.
//!
//! (OCI image format specification 1.1: "Content Descriptors", "Image Index", "Image Manifest", "Image
//! Configuration". Docker's forms have the same fields and other media types.)

use crate::source::digest::Digest;
use crate::source::platform::Platform;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Names an image in a layout.
pub(super) const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// Names an image with its registry, in archives of Docker and containerd.
pub(super) const IMAGE_NAME: &str = "io.containerd.image.name";
/// On a description of an image rather than an image: provenance, a list of packages.
const ATTESTATION: &str = "vnd.docker.reference.type";

/// A blob: what it is, its length and its digest.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    #[serde(default)]
    pub(super) media_type: String,
    pub(super) digest: Digest,
    pub(super) size: u64,
    #[serde(default)]
    pub(super) annotations: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) platform: Option<Platform>,
}

impl Descriptor {
    pub(super) fn is_index(&self) -> bool {
        let kinds = [
            "application/vnd.oci.image.index.v1+json",
            "application/vnd.docker.distribution.manifest.list.v2+json",
        ];
        kinds.contains(&&*self.media_type)
    }

    pub(super) fn is_manifest(&self) -> bool {
        let kinds = [
            "application/vnd.oci.image.manifest.v1+json",
            "application/vnd.docker.distribution.manifest.v2+json",
        ];
        kinds.contains(&&*self.media_type)
    }

    pub(super) fn is_image_config(&self) -> bool {
        let kinds =
            ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];
        kinds.contains(&&*self.media_type)
    }

    /// Whether it is a layer of files; how it is compressed is seen when it is read.
    pub(super) fn is_layer(&self) -> bool {
        let archives = [
            "application/vnd.oci.image.layer.v1.tar",
            "application/vnd.oci.image.layer.nondistributable.v1.tar",
            "application/vnd.docker.image.rootfs.diff.tar",
            "application/vnd.docker.image.rootfs.foreign.diff.tar",
        ];
        let packed = ["", "+gzip", "+zstd", "+xz", "+bzip2", ".gzip", ".zstd", ".xz", ".bzip2"];
        archives
            .iter()
            .any(|kind| self.media_type.strip_prefix(kind).is_some_and(|rest| packed.contains(&rest)))
    }

    pub(super) fn is_attestation(&self) -> bool {
        self.annotations.contains_key(ATTESTATION) || self.platform.as_ref().is_some_and(Platform::is_unknown)
    }

    /// The names that it has.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        [IMAGE_NAME, REF_NAME].iter().filter_map(|key| self.annotations.get(*key)).map(String::as_str)
    }
}

/// Several images, or one for several platforms.
#[derive(Debug, Deserialize)]
pub(super) struct Index {
    #[serde(default)]
    pub(super) manifests: Vec<Descriptor>,
}

/// One image.
#[derive(Debug, Deserialize)]
pub(super) struct Manifest {
    pub(super) config: Descriptor,
    pub(super) layers: Vec<Descriptor>,
}

/// How an image was made and is to be run.
#[derive(Debug, Deserialize)]
pub(super) struct ImageConfig {
    #[serde(flatten)]
    pub(super) platform: Platform,
    pub(super) rootfs: RootFs,
    #[serde(default)]
    config: Option<serde_json::Value>,
}

/// The layers of an image, by the digests of their archives.
#[derive(Debug, Deserialize)]
pub(super) struct RootFs {
    #[serde(default)]
    pub(super) diff_ids: Vec<Digest>,
}

impl ImageConfig {
    /// Refuses an image that is not for the platform asked for.
    pub(super) fn check_platform(&self, wanted: Option<&Platform>) -> Result<(), String> {
        let own = &self.platform;
        match wanted {
            Some(wanted) if own.is_given() && !own.serves(wanted) && !own.is_of(wanted) => {
                Err(format!("the image is for {own}, not for {wanted}"))
            }
            _ => Ok(()),
        }
    }

    /// The part that says how it is to be run.
    pub(super) fn to_run(&self) -> Option<String> {
        let config = self.config.as_ref().filter(|config| config.is_object())?;
        Some(serde_json::to_string_pretty(config).expect("what was read as JSON can be written as JSON"))
    }
}
