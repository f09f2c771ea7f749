//! Container images as sources: each of their layers is a layer of the tree.
//!
//! Read are OCI image layouts (a directory, or an archive of one) and the archives of `docker save`. Of an
//! image for several platforms one is chosen ([`select`]); its layers are unpacked at the same time, and
//! applied in order. Layers are tar archives, plain or compressed with gzip, zstd, xz or bzip2, whatever
//! their media type says of that.
//!
//! Invariants: no byte of a layer is used before the whole of it was compared with every digest that the
//! image has for it, and so for the descriptions that lead to it. What is chosen is named or is the only one
//! there: a tag that two images have, or none that was asked for, is an error.
//!
//! Hazards: an image comes from strangers. A digest is a name of a file, so its form is checked; descriptions
//! have a greatest length; an index can name itself, so their depth is bounded; and layers unpack to any size
//! (see `spool`).
//!
//! What it is not: a client of registries or daemons, whose images have to be saved first. (OCI image format
//! specification 1.1; Docker image specification 1.2 for `manifest.json`.)

mod description;
mod docker;
mod reference;
mod select;
mod store;

pub use reference::Reference;

use super::builder::{Builder, LayerKind};
use super::digest::LayerDigests;
use super::options::Options;
use super::{spool, tar};
use crate::error::{Error, ShownPath};
use crate::handle::SourceHandle;
use description::{ImageConfig, Manifest};
use hectare_units::u64_of;
use parking_lot::Mutex;
use reference::{Pick, Transport};
use std::borrow::Cow;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use store::Store;

/// The most layers of an image; Docker and containerd have the same limit, which is that of overlayfs.
const LAYERS_MAX: usize = 127;

/// A container image whose layers are known.
pub(crate) struct Container<'o> {
    store: Store,
    layers: Vec<Layer>,
    /// The `config` object of the image's configuration.
    config: Option<String>,
    options: &'o Options,
}

struct Layer {
    /// Where its blob is in the store.
    path: Vec<u8>,
    /// The length that the manifest gives.
    size: Option<u64>,
    digests: LayerDigests,
}

/// Whether a directory is a container image that can be read.
pub(crate) fn is_image(path: &Path) -> bool {
    Store::directory(path).is_ok_and(|store| store.kind().is_some())
}

/// How an image is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Oci,
    Docker,
}

impl<'o> Container<'o> {
    /// Opens the image that a reference names.
    ///
    /// # Errors
    /// If it can't be read, is damaged, or is not the only one that the reference may mean.
    pub(crate) fn open(reference: &Reference, options: &'o Options) -> Result<Self, Error> {
        let store = match reference.transport {
            Transport::Directory => Store::directory(&reference.path)?,
            Transport::OciArchive | Transport::DockerArchive => {
                Store::archive(spool::open(&reference.path, options)?)?
            }
        };
        let kind = match reference.transport {
            Transport::Directory | Transport::OciArchive => Kind::Oci,
            Transport::DockerArchive => Kind::Docker,
        };
        Self::read(store, kind, reference.pick.as_ref(), options)
    }

    /// The container image that an archive is, or the archive itself.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub(crate) fn recognise(
        archive: SourceHandle,
        options: &'o Options,
    ) -> Result<Result<Self, SourceHandle>, Error> {
        if !tar::first_name(&archive).is_some_and(|name| begins_an_image(&name)) {
            return Ok(Err(archive));
        }
        // An archive whose members can't be listed is no image's; reading it reports what is wrong with it.
        let Ok(Some(members)) = tar::members(&archive) else { return Ok(Err(archive)) };
        let store = Store::Archive { archive, members };
        match store.kind() {
            Some(kind) => Self::read(store, kind, None, options).map(Ok),
            None => Ok(Err(store.into_archive())),
        }
    }

    fn read(store: Store, kind: Kind, pick: Option<&Pick>, options: &'o Options) -> Result<Self, Error> {
        let (layers, config) = match kind {
            Kind::Oci => oci_layers(&store, pick, options)?,
            Kind::Docker => docker::layers(&store, pick, options)?,
        };
        if layers.len() > LAYERS_MAX {
            let reason =
                format!("the image has {} layers; more than {LAYERS_MAX} are not taken", layers.len());
            return Err(store.refused(reason));
        }
        Ok(Self { store, layers, config, options })
    }

    /// Adds every layer to the tree.
    ///
    /// # Errors
    /// If a layer is missing, damaged, or no layer.
    pub(crate) fn add_to(self, builder: &mut Builder<'_>) -> Result<(), Error> {
        for handle in self.unpacked()? {
            builder.begin_layer(handle, LayerKind::ImageLayer)?;
            tar::read(builder)?;
        }
        builder.image_config = Some(self.config.unwrap_or_else(|| "{}".to_owned()));
        Ok(())
    }

    /// All layers, unpacked and compared with their digests, by as many threads as may be used.
    fn unpacked(&self) -> Result<Vec<SourceHandle>, Error> {
        let done: Vec<_> = self.layers.iter().map(|_| Mutex::new(None)).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(place) = {
                let at = next.fetch_add(1, Ordering::Relaxed);
                done.get(at).map(|place| (at, place))
            } {
                let result = self.unpack(place.0);
                if result.is_err() {
                    next.store(done.len(), Ordering::Relaxed);
                }
                *place.1.lock() = Some(result);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.options.threads.get().min(done.len()) {
                scope.spawn(work);
            }
            work();
        });
        // Layers are taken in order: what comes before one that is not there has failed.
        done.into_iter().filter_map(Mutex::into_inner).collect()
    }

    fn unpack(&self, at: usize) -> Result<SourceHandle, Error> {
        let layer = &self.layers[at];
        let mut name = self.store.name().to_vec();
        let place = format!(": layer {} of {}, {}", at + 1, self.layers.len(), layer.digests.shown());
        name.extend_from_slice(place.as_bytes());
        let refused = |reason: Cow<'static, str>| Error::Refused { path: ShownPath::new(&name), reason };
        let blob = self.store.blob(&layer.path)?.ok_or_else(|| refused("it is not in the image".into()))?;
        if let Some(size) = layer.size.filter(|size| *size != blob.len()) {
            let reason = format!("it has {} bytes, not {size} as the manifest says", blob.len());
            return Err(refused(reason.into()));
        }
        spool::layer(&name, blob, &layer.digests, self.options)
    }
}

/// Whether an archive with this as its first entry may be a container image. Those of `docker save` begin
/// with any of their few names.
fn begins_an_image(name: &[u8]) -> bool {
    let top = name.split(|byte| *byte == b'/').next().unwrap_or_default();
    let stem = top.strip_suffix(b".json").or(top.strip_suffix(b".tar")).unwrap_or(top);
    let is_id = stem.len() == 64 && stem.iter().all(u8::is_ascii_hexdigit);
    let names: [&[u8]; 5] = [b"blobs", b"oci-layout", b"index.json", b"manifest.json", b"repositories"];
    is_id || names.contains(&top)
}

type Layers = (Vec<Layer>, Option<String>);

/// The layers of an image in an OCI layout.
fn oci_layers(store: &Store, pick: Option<&Pick>, options: &Options) -> Result<Layers, Error> {
    let found = select::manifest(store, pick, options.platform.as_ref())?;
    let manifest: Manifest = store.described(&found)?;
    let refused = |reason: String| store.refused(format!("manifest {}: {reason}", found.digest));
    if !manifest.config.is_image_config() {
        let kind = &manifest.config.media_type;
        return Err(refused(format!("it is an artifact ({kind:?}), not an image of a file system")));
    }
    let config: ImageConfig = store.described(&manifest.config)?;
    config.check_platform(options.platform.as_ref()).map_err(refused)?;
    let ids = &config.rootfs.diff_ids;
    if ids.len() != manifest.layers.len() {
        let (layers, ids) = (manifest.layers.len(), ids.len());
        return Err(refused(format!("it has {layers} layers, and its configuration has {ids}")));
    }
    let mut layers = Vec::with_capacity(ids.len());
    for (at, (layer, id)) in manifest.layers.into_iter().zip(ids).enumerate() {
        if !layer.is_layer() {
            let kind = &layer.media_type;
            return Err(refused(format!("layer {} has the media type {kind:?}, which is not known", at + 1)));
        }
        layers.push(Layer {
            path: layer.digest.path().into_bytes(),
            size: Some(layer.size),
            digests: LayerDigests { packed: Some(layer.digest), plain: id.clone() },
        });
    }
    Ok((layers, config.to_run()))
}

/// A length in memory as one of a file.
fn length(len: usize) -> u64 {
    u64_of(len)
}
