//! The archives of `docker save`: `manifest.json` names the configuration and the layers of each image.
//!
//! Layers have no digest of their own there; the configuration has that of each, and its own is its name.

use super::description::ImageConfig;
use super::reference::{Pick, normal};
use super::store::Store;
use super::{Layer, Layers};
use crate::error::Error;
use crate::source::digest::{Digest, LayerDigests};
use crate::source::options::Options;
use serde::Deserialize;

/// The file that describes the images.
pub(super) const MANIFEST: &[u8] = b"manifest.json";

/// One image. (Docker image specification 1.2, "Combined Image JSON + Filesystem Changeset Format".)
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Image {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

impl Image {
    fn tags(&self) -> impl Iterator<Item = &str> {
        self.repo_tags.iter().flatten().map(String::as_str)
    }

    /// The digest of its configuration, which is part of its name.
    fn digest(&self) -> Option<Digest> {
        let name = self.config.rsplit('/').next().unwrap_or_default();
        Digest::sha256(name.strip_suffix(".json").unwrap_or(name))
    }
}

/// The layers of the image that is meant.
pub(super) fn layers(store: &Store, pick: Option<&Pick>, options: &Options) -> Result<Layers, Error> {
    let images: Vec<Image> = store.json(MANIFEST)?;
    let image = select(store, images, pick)?;
    let path = image.config.as_bytes();
    let text = store.text(path)?.ok_or_else(|| store.refused(format!("there is no {}", image.config)))?;
    let refused = |reason: String| store.refused(format!("{}: {reason}", image.config));
    if let Some(digest) = image.digest() {
        digest.check(&text).map_err(|reason| refused(reason.into_owned()))?;
    }
    let config: ImageConfig = store.parse(path, &text)?;
    config.check_platform(options.platform.as_ref()).map_err(refused)?;
    let ids = &config.rootfs.diff_ids;
    if ids.len() != image.layers.len() {
        let (layers, ids) = (image.layers.len(), ids.len());
        return Err(refused(format!("it has {ids} layers, and manifest.json has {layers}")));
    }
    let layers = image.layers.iter().zip(ids).map(|(path, id)| Layer {
        path: path.clone().into_bytes(),
        size: None,
        digests: LayerDigests { packed: None, plain: id.clone() },
    });
    Ok((layers.collect(), config.to_run()))
}

fn select(store: &Store, images: Vec<Image>, pick: Option<&Pick>) -> Result<Image, Error> {
    let all: Vec<String> = images.iter().flat_map(Image::tags).map(str::to_owned).collect();
    let all = if all.is_empty() { "none with a name".to_owned() } else { all.join(", ") };
    let is_it = |image: &Image| match pick {
        Some(Pick::Tag(tag)) => image.tags().any(|name| name == tag || normal(name) == normal(tag)),
        Some(Pick::Digest(digest)) => image.digest().as_ref() == Some(digest),
        None => true,
    };
    let mut found: Vec<Image> = images.into_iter().filter(is_it).collect();
    match (found.pop(), found.is_empty()) {
        (Some(one), true) => Ok(one),
        (None, _) => Err(store.refused(format!("there is no such image; there is {all}"))),
        (Some(_), false) => {
            Err(store.refused(format!("there are several images: name one, by :TAG; there is {all}")))
        }
    }
}
