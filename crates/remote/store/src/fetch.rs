//! Fetches objects by what refers to them, from the cache file if one has them.

use crate::bucket::Bucket;
use crate::codec::sum;
use crate::cost::add;
use crate::manifest::Slot;
use crate::{Error, Result};
use bytes::Bytes;
use hectare_units::u64_of;

/// The object that a slot names, if it is the one.
///
/// # Errors
/// [`Error::Missing`] if it is gone, [`Error::Damaged`] if it is another.
pub(crate) async fn fetch(bucket: &Bucket, slot: Slot) -> Result<Bytes> {
    let len = u64::from(slot.len);
    if let Some(bytes) = bucket.kept.get().and_then(|kept| kept.get(slot.id, len, Some(slot.sum))) {
        add(&bucket.counts.kept, 1);
        return Ok(bytes);
    }
    let key = slot.id.key();
    let object = bucket.get(&key, len).await?.ok_or_else(|| {
        Error::Missing(format!(
            "its object {key} is gone: its writer has flushed since the volume was opened, or it was \
             removed; open it again"
        ))
    })?;
    if u64_of(object.bytes.len()) != len || sum(&object.bytes) != slot.sum {
        return Err(Error::Damaged(format!("its object {key} has other bytes than were written")));
    }
    if let Some(kept) = bucket.kept.get() {
        kept.put(slot.id, &object.bytes, slot.sum);
    }
    Ok(object.bytes)
}
