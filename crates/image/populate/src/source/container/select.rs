//! Selects one image of an OCI layout: by tag or digest, then by platform.
//!
//! Descriptions that belong to an image and are none (attestations) are passed over. Whatever is left open is
//! an error that lists what there is.

use super::description::{Descriptor, ImageConfig, Index, Manifest};
use super::reference::{Pick, normal};
use super::store::Store;
use crate::error::Error;
use crate::source::platform::Platform;
use std::collections::BTreeSet;

/// How deep indexes may nest, and how many descriptors are looked at.
const DEPTH_MAX: u32 = 4;
const DESCRIPTORS_MAX: usize = 4096;

/// The manifest of the image that is meant.
pub(super) fn manifest(
    store: &Store,
    pick: Option<&Pick>,
    wanted: Option<&Platform>,
) -> Result<Descriptor, Error> {
    let index: Index = store.json(b"index.json")?;
    let named = match pick {
        Some(Pick::Tag(tag)) => by_tag(store, index.manifests, tag)?,
        Some(Pick::Digest(_)) | None => index.manifests,
    };
    if pick.is_none() {
        refuse_several_names(store, &named)?;
    }
    let mut search = Search { store, found: Vec::new(), looked: 0 };
    search.collect(named, pick, DEPTH_MAX)?;
    one_of(store, search.found, wanted)
}

fn by_tag(store: &Store, all: Vec<Descriptor>, tag: &str) -> Result<Vec<Descriptor>, Error> {
    let names = listed(all.iter().flat_map(Descriptor::names));
    let is_it =
        |descriptor: &Descriptor| descriptor.names().any(|name| name == tag || normal(name) == normal(tag));
    let found: Vec<_> = all.into_iter().filter(is_it).collect();
    match found.is_empty() {
        true => Err(store.refused(format!("there is no image {tag:?}; there is {names}"))),
        false => Ok(found),
    }
}

/// Without a tag, there must not be several.
fn refuse_several_names(store: &Store, all: &[Descriptor]) -> Result<(), Error> {
    let images = || all.iter().filter(|descriptor| !descriptor.is_attestation());
    let digests: BTreeSet<String> = images().map(|descriptor| descriptor.digest.to_string()).collect();
    let names: BTreeSet<Option<&str>> = images().map(|descriptor| descriptor.names().next()).collect();
    match digests.len() > 1 && names.len() > 1 {
        true => {
            let names = listed(images().flat_map(Descriptor::names));
            Err(store.refused(format!("there are several images: name one, by :TAG; there is {names}")))
        }
        false => Ok(()),
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: BTreeSet<&str> = names.collect();
    match names.is_empty() {
        true => "none with a name".to_owned(),
        false => names.into_iter().collect::<Vec<_>>().join(", "),
    }
}

struct Search<'s> {
    store: &'s Store,
    found: Vec<Descriptor>,
    looked: usize,
}

impl Search<'_> {
    /// Adds the manifests below the descriptors: with a digest, those below the one of that digest.
    fn collect(&mut self, all: Vec<Descriptor>, pick: Option<&Pick>, depth: u32) -> Result<(), Error> {
        self.looked += all.len();
        if depth == 0 || self.looked > DESCRIPTORS_MAX {
            return Err(self.store.refused("its indexes are nested too deep, or are too long"));
        }
        for descriptor in all {
            let is_it = match pick {
                Some(Pick::Digest(digest)) => *digest == descriptor.digest,
                _ => true,
            };
            if descriptor.is_index() {
                let index: Index = self.store.described(&descriptor)?;
                self.collect(index.manifests, pick.filter(|_| !is_it), depth - 1)?;
            } else if is_it && !descriptor.is_attestation() {
                if !descriptor.is_manifest() {
                    let (digest, kind) = (&descriptor.digest, &descriptor.media_type);
                    let reason =
                        format!("{digest} has the media type {kind:?}, which is not that of an image");
                    return Err(self.store.refused(reason));
                }
                let is_new = self.found.iter().all(|known| known.digest != descriptor.digest);
                if is_new {
                    self.found.push(descriptor);
                }
            }
        }
        Ok(())
    }
}

/// The manifest for the platform.
fn one_of(store: &Store, mut found: Vec<Descriptor>, wanted: Option<&Platform>) -> Result<Descriptor, Error> {
    if found.len() <= 1 {
        return found.pop().ok_or_else(|| store.refused("there is no such image in it"));
    }
    let host = Platform::host();
    let platform = wanted.unwrap_or(&host);
    let mut known = Vec::with_capacity(found.len());
    for descriptor in found {
        let own = match &descriptor.platform {
            Some(own) => own.clone(),
            None => config_platform(store, &descriptor)?,
        };
        known.push((own, descriptor));
    }
    let matching = |matches: fn(&Platform, &Platform) -> bool| {
        known.iter().filter(move |(own, _)| matches(own, platform)).collect::<Vec<_>>()
    };
    let mut candidates = matching(Platform::serves);
    if candidates.is_empty() {
        candidates = matching(Platform::is_of);
    }
    let all: Vec<String> = known.iter().map(|(own, _)| own.to_string()).collect();
    match candidates[..] {
        [(_, one)] => Ok(one.clone()),
        [] => {
            let all = listed(all.iter().map(String::as_str));
            Err(store.refused(format!("there is no image for {platform}: choose with --platform from {all}")))
        }
        _ => {
            let digests: Vec<String> = candidates.iter().map(|(_, one)| one.digest.to_string()).collect();
            let digests = digests.join(", ");
            Err(store.refused(format!("several images for {platform} have that name: choose by @{digests}")))
        }
    }
}

fn config_platform(store: &Store, descriptor: &Descriptor) -> Result<Platform, Error> {
    let manifest: Manifest = store.described(descriptor)?;
    let config: ImageConfig = store.described(&manifest.config)?;
    Ok(config.platform)
}
