//! Opening and making volumes, and images.
//!
//! A writer takes the lock, then puts the manifest again with its own epoch, on condition of the version it
//! read ([`claim`]). From then on no earlier writer can swap the manifest any more, however late it wakes
//! up.

use crate::bucket::{Bucket, Swapped};
use crate::draw::draw;
use crate::fetch::fetch;
use crate::lease::Lease;
use crate::manifest::{MANIFEST, MANIFEST_MAX, Manifest, ObjectId, session_key};
use crate::patches::Patches;
use crate::volume::{Claim, StoreDevice};
use crate::{Address, Error, ImageDevice, Options, Place, Result, runtime};
use hectare_device::{Device, Operation};
use hectare_units::Bytes;
use object_store::UpdateVersion;
use std::sync::Arc;

/// The cache file has room for tables, too, where chunks are small.
const KEPT_LEAST: u64 = 256 << 10;
/// How often a manifest that changes while it is claimed is read again.
const AGAIN: usize = 5;

/// What an address names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A volume under a prefix.
    Volume,
    /// An object that is an image.
    Image,
}

/// An open volume or image.
pub enum Opened {
    /// A volume.
    Volume(Box<StoreDevice>),
    /// An image.
    Image(ImageDevice),
}

impl Opened {
    /// It as a device.
    #[must_use]
    pub fn into_device(self) -> Arc<dyn Device> {
        match self {
            Self::Volume(device) => Arc::new(*device),
            Self::Image(device) => Arc::new(device),
        }
    }
}

/// What a volume's manifest says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    /// The length of the volume.
    pub len: Bytes,
    /// The bytes of a chunk.
    pub chunk: Bytes,
    /// How many tables of chunks there are.
    pub tables: usize,
    /// How many patches there are: small changes that are not in chunks yet.
    pub patches: usize,
    /// How many writers there were.
    pub epoch: u64,
    /// How many manifests there were.
    pub generation: u64,
    /// The volume's identity in hexadecimal, which is not that of a file system on it.
    pub uuid: String,
}

/// What an address names; `None` if there is nothing.
///
/// # Errors
/// If the store can't be asked.
pub fn kind_of(bucket: &Bucket, address: &Address) -> Result<Option<Kind>> {
    runtime::wait(async {
        let manifest = match address.place {
            Place::Web(_) => Ok(None),
            _ => bucket.head(MANIFEST).await,
        };
        if let Ok(Some(_)) = manifest {
            return Ok(Some(Kind::Volume));
        }
        if address.path.is_empty() {
            return manifest.map(|_| None);
        }
        // Who may not list a bucket is denied what is missing: the answer about a manifest counts only if
        // there is no object.
        match bucket.head("").await? {
            Some(_) => Ok(Some(Kind::Image)),
            None => manifest.map(|_| None),
        }
    })
}

/// Opens what an address names.
///
/// # Errors
/// If there is nothing, another writer has it, an image is to be written, or the store fails.
pub fn open(bucket: Arc<Bucket>, address: &Address, options: &Options) -> hectare_device::Result<Opened> {
    let name = bucket.name().to_owned();
    opened(bucket, address, options)
        .map_err(|error| hectare_device::Error::new(&name, Operation::Open, None, error.reason()))
}

fn opened(bucket: Arc<Bucket>, address: &Address, options: &Options) -> Result<Opened> {
    match kind_of(&bucket, address)? {
        None => Err(missing()),
        Some(Kind::Image) if options.write => Err(Error::Remote(
            "an image in an object store is for reading only: copy it (hectare convert), or make a volume \
             there with hectare mkfs and another name"
                .to_owned(),
        )),
        Some(Kind::Image) if matches!(address.place, Place::Web(_)) && options.cache_file.is_some() => {
            Err(Error::Cache(
                "a cache file is for object stores: a web server may name the same version (ETag) for a file \
                 that was changed twice in a second, so what was kept could be out of date"
                    .to_owned(),
            ))
        }
        Some(Kind::Image) => ImageDevice::open(bucket, options).map(Opened::Image),
        Some(Kind::Volume) => StoreDevice::open(bucket, options).map(Box::new).map(Opened::Volume),
    }
}

fn missing() -> Error {
    Error::Missing(
        "there is neither a volume nor an image; hectare mkfs with a SIZE makes a volume".to_owned(),
    )
}

impl StoreDevice {
    /// Opens the volume of a prefix.
    ///
    /// # Errors
    /// If there is none, another writer has it, its manifest is damaged, or the store fails.
    pub fn open(bucket: Arc<Bucket>, options: &Options) -> Result<Self> {
        if !options.write {
            let (manifest, _) = runtime::wait(read(&bucket, options, None))?;
            let (manifest, patches) = runtime::wait(with_patches(&bucket, manifest, options))?;
            return Ok(Self::reading(bucket, manifest, patches, options));
        }
        let claim = runtime::wait(claim(&bucket, options))?;
        Self::writing(bucket, claim, options)
    }
}

/// Makes a volume of zeros, unless there is one.
///
/// # Errors
/// If there is one, or a length or chunk size is impossible, or the store fails.
pub fn create(bucket: &Bucket, len: Bytes, chunk: Bytes) -> Result<()> {
    let uuid = *uuid::Uuid::new_v4().as_bytes();
    let manifest = Manifest::new(uuid, len.get(), chunk.get(), draw())?;
    runtime::wait(async {
        let there = || Err(Error::Busy("there is a volume already".to_owned()));
        // Also asked first: whether the store heeds conditions is found out when a volume is opened.
        if bucket.head(MANIFEST).await?.is_some() {
            return there();
        }
        match bucket.put_if(MANIFEST, manifest.encode().into(), None).await? {
            Swapped::Done(_) => Ok(()),
            Swapped::Other(_) => there(),
        }
    })
}

/// What the manifest says.
///
/// # Errors
/// If there is no volume, its manifest is damaged, or the store fails.
pub fn summary(bucket: &Bucket) -> Result<Summary> {
    let (manifest, _) = runtime::wait(read(bucket, &Options::default(), None))?;
    Ok(Summary {
        len: Bytes::new(manifest.len),
        chunk: Bytes::new(manifest.chunk()),
        tables: manifest.tables.len(),
        patches: manifest.patches.len(),
        epoch: manifest.epoch,
        generation: manifest.generation,
        uuid: hectare_units::hex(&manifest.uuid),
    })
}

/// The manifest with its version, of which `known` was an earlier one. It is read again if its list is gone: a
/// writer has flushed meanwhile. From here on what is fetched comes from the cache file, if there is one.
async fn read(
    bucket: &Bucket,
    options: &Options,
    known: Option<&Manifest>,
) -> Result<(Manifest, UpdateVersion)> {
    let mut tries = 0;
    loop {
        tries += 1;
        let object = bucket.get(MANIFEST, MANIFEST_MAX).await?.ok_or_else(missing)?;
        let parsed = Manifest::parse(&object.bytes)?;
        keep(bucket, parsed.head(), options)?;
        let Some(slot) = parsed.list() else { return Ok((parsed.listed(None)?, object.version)) };
        if let Some(known) = known.filter(|known| known.list == Some(slot)) {
            return Ok((parsed.with_tables_of(known), object.version));
        }
        match fetch(bucket, slot).await {
            Err(Error::Missing(_)) if tries < AGAIN => {}
            list => return Ok((parsed.listed(Some(&list?))?, object.version)),
        }
    }
}

/// A manifest that was just read, or one that was put since, with its patches.
async fn with_patches(bucket: &Bucket, manifest: Manifest, options: &Options) -> Result<(Manifest, Patches)> {
    let (mut manifest, mut tries) = (manifest, 0);
    loop {
        tries += 1;
        match Patches::load(bucket, &manifest).await {
            // A writer has flushed meanwhile.
            Err(Error::Missing(_)) if tries < AGAIN => {
                manifest = read(bucket, options, Some(&manifest)).await?.0;
            }
            patches => return Ok((manifest, patches?)),
        }
    }
}

/// Uses the cache file for the objects of a volume, by its identity. Their names are never used twice.
fn keep(bucket: &Bucket, manifest: &Manifest, options: &Options) -> Result<()> {
    let identity = format!("volume {}", hectare_units::hex(&manifest.uuid));
    bucket.keep(options, &identity, manifest.chunk().max(KEPT_LEAST))
}

/// Takes a volume for writing: the lock first, then the manifest with a new epoch.
pub(crate) async fn claim(bucket: &Arc<Bucket>, options: &Options) -> Result<Claim> {
    let session = draw();
    let (seen, _) = read(bucket, options, None).await?;
    let lease = Lease::take(bucket, session, seen.epoch, options).await?;
    for _ in 0..AGAIN {
        // What an earlier writer swapped until now counts.
        let (old, version) = read(bucket, options, Some(&seen)).await?;
        if old.epoch >= lease.epoch() {
            return Err(Error::Busy("another writer has taken it at this moment".to_owned()));
        }
        let (epoch, generation) = (lease.epoch(), old.generation + 1);
        let mut manifest = old.clone();
        (manifest.epoch, manifest.generation) = (epoch, generation);
        (manifest.writer, manifest.next_number) = (session, 0);
        match bucket.put_if(MANIFEST, manifest.encode().into(), Some(&version)).await? {
            Swapped::Done(version) => {
                clean_up_after(bucket, &old).await;
                return Ok(Claim { manifest, version, lease, session });
            }
            Swapped::Other(_) => {}
        }
    }
    Err(Error::Busy("its manifest changes faster than it can be read".to_owned()))
}

/// Deletes what the last writer had put and no manifest names, because a flush of it was not finished:
/// since the manifest has our epoch, none ever will. That is one request where nothing is to be deleted.
async fn clean_up_after(bucket: &Bucket, old: &Manifest) {
    if old.writer == 0 {
        return;
    }
    let below = session_key(old.writer);
    let after = old.next_number.checked_sub(1).map(|number| ObjectId { session: old.writer, number }.key());
    // Without it garbage stays, until it is swept.
    let Ok(found) = bucket.list(&below, after.as_deref()).await else { return };
    let names = found.into_iter().map(|(name, _)| name).filter(|name| {
        ObjectId::of_key(name).is_some_and(|id| id.session == old.writer && id.number >= old.next_number)
    });
    let names: Vec<_> = names.collect();
    if names.is_empty() {
        return;
    }
    log::info!("{}: {} objects of an unfinished flush are deleted", bucket.name(), names.len());
    bucket.delete(names).await;
}
