//! Finds and deletes objects that the manifest does not name: what an interrupted flush had put, or what
//! could not be deleted.
//!
//! Invariant: it holds the volume as a writer does, so no other writer has objects that are not named yet. A
//! writer that was taken over may still put some, late; they are found the next time.
//!
//! Hazard: a device that was opened for reading before may still use an older manifest, and then reports
//! that objects are gone. Memory: about 40 bytes for each object of the volume.

use crate::bucket::Bucket;
use crate::codec::sum;
use crate::manifest::{ObjectId, Table};
use crate::open::claim;
use crate::{Error, Options, Result, runtime};
use std::collections::HashSet;
use std::sync::Arc;

/// What was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Swept {
    /// Objects that the volume uses.
    pub used: u64,
    /// Objects that nothing used.
    pub garbage: u64,
    /// The bytes of those.
    pub bytes: u64,
    /// How many of them could not be deleted.
    pub left: u64,
}

/// Deletes what the volume of a prefix does not use; with `keep` it is only counted.
///
/// # Errors
/// If there is no volume, a writer has it, an object that it uses is missing, or the store fails.
pub fn sweep(bucket: &Arc<Bucket>, options: &Options, keep: bool) -> Result<Swept> {
    runtime::wait(async {
        let claim = claim(bucket, &Options { write: true, ..options.clone() }).await?;
        swept(bucket, &claim.manifest, keep).await
    })
}

async fn swept(bucket: &Bucket, manifest: &crate::manifest::Manifest, keep: bool) -> Result<Swept> {
    let mut used: HashSet<_> = manifest.patches.iter().chain(&manifest.list).map(|slot| slot.id).collect();
    for (index, slot) in &manifest.tables {
        let key = slot.id.key();
        let object = bucket.get(&key, u64::from(slot.len)).await?;
        let object = object.filter(|object| sum(&object.bytes) == slot.sum);
        let object = object.ok_or_else(|| Error::Damaged(format!("its object {key} is missing or wrong")))?;
        let table = Table::parse(&object.bytes, manifest, *index)?;
        used.insert(slot.id);
        used.extend(table.chunks.values().map(|slot| slot.id));
    }
    let mut swept = Swept::default();
    let mut garbage = Vec::new();
    for (name, len) in bucket.list("objects", None).await? {
        match ObjectId::of_key(&name) {
            Some(id) if used.contains(&id) => swept.used += 1,
            Some(_) => {
                swept.garbage += 1;
                swept.bytes += len;
                garbage.push(name);
            }
            // Not ours: left alone.
            None => {}
        }
    }
    if keep {
        swept.left = swept.garbage;
    } else {
        swept.left = bucket.delete(garbage).await;
    }
    Ok(swept)
}
