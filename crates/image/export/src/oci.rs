//! Exports a tree as a container image in an OCI image layout: a directory that skopeo, umoci, podman and
//! others read.
//!
//! The image has one layer, the tree, or what changed of it since a base. The same tree and options give the
//! same bytes: the creation time is left out unless one is given.
//!
//! Hazard: programs in Go (umoci, containerd, podman) pass over pax records without a value, and so over an
//! extended attribute whose value is empty.
//!
//! (OCI image specification 1.0: "Image Layout", "Image Manifest", "Image Configuration".)

mod layout;
mod spec;

pub use spec::Config;

use crate::compression::{Compression, Packer};
use crate::digest::{Digest, Digesting};
use crate::entries::Observer;
use crate::error::{Error, Result};
use crate::export::export_layer;
use crate::tree::Tree;
use hectare_device::Overwrite;
use hectare_populate::Platform;
use layout::Layout;
use spec::{Descriptor, Image, LAYER, LAYER_GZIP, LAYER_ZSTD, Manifest, RootFs};
use std::path::Path;

/// What an image says beside its layer.
#[derive(Clone, Debug)]
pub struct ImageOptions {
    /// The platform that its programs are for.
    pub platform: Platform,
    /// How to run it.
    pub config: Config,
    /// When it was made, as RFC 3339.
    pub created: Option<String>,
    /// How its layer is compressed.
    pub compression: Compression,
    /// What to do with an image that has the tag.
    pub overwrite: Overwrite,
}

/// Where an image is written.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The directory of the layout; it is made if there is none.
    pub directory: &'a Path,
    /// The tag of the image in it.
    pub tag: &'a str,
}

/// Writes a tree, or what changed of it since `base`, as an image. Other images of the layout stay.
///
/// # Errors
/// As [`export_layer`]; if the directory is no layout, or has an image of this tag that is not to be
/// replaced. Nothing of the image is visible then.
pub fn export_image(
    base: Option<&Tree<'_>>,
    tree: &Tree<'_>,
    place: Place<'_>,
    options: &ImageOptions,
    observer: &dyn Observer,
) -> std::result::Result<(), Error> {
    let mut layout = Layout::open(place.directory)?;
    layout.check_tag(place.tag, options.overwrite)?;
    let (layer, diff_id) = write_layer(&layout, base, tree, options.compression, observer)?;
    let image = Image {
        created: options.created.clone(),
        platform: options.platform.clone(),
        config: options.config.clone(),
        rootfs: RootFs::of(vec![diff_id.named()]),
    };
    let config = Descriptor::of(spec::CONFIG, &layout.add_json(&image)?);
    let manifest = Manifest::of(config, vec![layer]);
    let manifest = Descriptor::of(spec::MANIFEST, &layout.add_json(&manifest)?);
    layout.set_tag(place.tag, manifest, &options.platform)
}

/// Writes the layer's blob. Returns its descriptor, and the digest of what it unpacks to.
fn write_layer(
    layout: &Layout,
    base: Option<&Tree<'_>>,
    tree: &Tree<'_>,
    compression: Compression,
    observer: &dyn Observer,
) -> Result<(Descriptor, Digest)> {
    let blob = Digesting::new(layout.new_blob()?);
    let archive = Digesting::new(Packer::new(blob, compression));
    let (diff_id, packer) = export_layer(base, tree, archive, observer)?.finish();
    let (digest, blob) = packer.finish()?.finish();
    blob.publish_as(&digest.hex)?;
    let media_type = match compression {
        Compression::None => LAYER,
        Compression::Gzip => LAYER_GZIP,
        Compression::Zstd => LAYER_ZSTD,
    };
    Ok((Descriptor::of(media_type, &digest), diff_id))
}
