//! A flush: uploads what changed, then swaps the manifest. Few changes are uploaded as a patch
//! ([`super::patching`]), others with those of all patches as chunks, then their tables.
//!
//! In order:
//! 1. The log is sealed, and writes go to a new one. Reads see both.
//! 2. Changed chunks are put under new names, several at a time; those that are zeros get none.
//! 3. The tables that name them are put under new names, then the list of tables, if there are many.
//!    Or, instead of 2 and 3: a patch is put.
//! 4. The manifest is put, on condition that its version is still the one this device put or read last.
//! 5. The sealed log is removed, and what the manifest no longer names is deleted. What can't be deleted is
//!    garbage, and found by [`crate::sweep`].
//!
//! A crash before 4 leaves the old manifest and objects that nothing names; after it, the new one.

use super::work::{Next, Work, take};
use super::{StoreDevice, Writer};
use crate::bucket::Swapped;
use crate::cost::add;
use crate::draw::draw;
use crate::lease::Lease;
use crate::manifest::{INLINE_TABLES, MANIFEST, Manifest, ObjectId, Slot, Table};
use crate::patches::Patches;
use crate::staged::{Sealed, Source};
use crate::write_log::{Between, WriteLog};
use crate::{Error, Result, runtime};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use hectare_device::Operation;
use hectare_units::{index_of, u64_of};
use object_store::UpdateVersion;
use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The tables of a new manifest, and what they no longer name.
#[derive(Default)]
struct Changed {
    tables: BTreeMap<u32, Option<Slot>>,
    superseded: Vec<ObjectId>,
}

impl StoreDevice {
    /// Flushes if the log, after earlier flushes are done, still is such.
    pub(super) fn flush_if(&self, wanted: impl Fn(&WriteLog) -> bool) -> hectare_device::Result<()> {
        let writer = self.writer(Operation::Flush, None)?;
        let mut version = writer.version.lock();
        // It may have failed while we waited.
        self.writer(Operation::Flush, None)?;
        let fail = |error: &Error| self.fail(Operation::Flush, None, error.reason());
        if !self.state.read().log.as_ref().is_some_and(wanted) {
            return Ok(());
        }
        let Some(work) = self.seal(writer).map_err(|error| fail(&error))? else {
            return writer.lease.check().map_err(|error| fail(&error));
        };
        let before = self.base.bucket.cost();
        let done = runtime::wait(self.upload(writer, &work, &version));
        let (next, new_version) = done.map_err(|error| {
            let _ = writer.failed.set(format!("an earlier flush failed: {error}"));
            fail(&error)
        })?;
        *version = new_version;
        {
            let mut state = self.state.write();
            state.manifest = Arc::new(next.manifest);
            state.patches = Arc::new(next.patches);
            state.sealed = None;
        }
        let _ = std::fs::remove_file(&work.sealed.path);
        self.delete(next.superseded);
        add(&self.base.bucket.counts.flushes, 1);
        let cost = self.base.bucket.cost() - before;
        log::info!("{}: {cost}", self.name);
        Ok(())
    }

    /// Takes all changes so far out of the way of new ones; `None` if there are none.
    fn seal(&self, writer: &Writer) -> Result<Option<Work>> {
        let content = {
            let state = self.state.read();
            if state.staged.is_empty() && !state.resized {
                return Ok(None);
            }
            state.log.as_ref().map_or(0, |log| log.between.next)
        };
        // Made before anything changes, since it may fail.
        let new = writer.logs.lock().create(Between { base: content, next: draw() })?;
        let mut state = self.state.write();
        let Some(old) = state.log.replace(new) else { return Ok(None) };
        state.resized = false;
        let staged = mem::take(&mut state.staged);
        let sealed = Sealed { staged, file: Arc::clone(old.file()), path: old.path().to_owned() };
        let sealed = Arc::new(sealed);
        state.sealed = Some(Arc::clone(&sealed));
        let (base, patches) = (Arc::clone(&state.manifest), Arc::clone(&state.patches));
        Ok(Some(Work { sealed, base, patches, len: state.len, content }))
    }

    /// Steps 2 to 4: the new manifest, and its version.
    async fn upload(
        &self,
        writer: &Writer,
        work: &Work,
        version: &UpdateVersion,
    ) -> Result<(Next, UpdateVersion)> {
        writer.lease.check()?;
        let mut next = match self.is_patch(work) {
            true => self.put_patch(writer, work).await?,
            false => self.put_all(writer, work).await?,
        };
        let manifest = &mut next.manifest;
        manifest.len = work.len;
        manifest.epoch = writer.lease.epoch();
        manifest.generation += 1;
        manifest.writer = writer.session;
        manifest.next_number = writer.next_number.load(Ordering::Relaxed);
        manifest.content = work.content;
        writer.lease.check()?;
        let bucket = &self.base.bucket;
        match bucket.put_if(MANIFEST, manifest.encode().into(), Some(version)).await? {
            Swapped::Done(version) => Ok((next, version)),
            Swapped::Other(None) => Err(Error::Missing("its manifest was removed".to_owned())),
            Swapped::Other(Some(_)) => {
                let holder = Lease::describe_holder(bucket).await;
                Err(Error::Busy(format!("it was taken over by {holder}; nothing was changed")))
            }
        }
    }

    /// Puts the chunks that the log and the patches change, with their tables and the list of those.
    async fn put_all(&self, writer: &Writer, work: &Work) -> Result<Next> {
        let changes = self.put_chunks(writer, work).await?;
        let Changed { tables, mut superseded } = self.put_tables(writer, work, changes).await?;
        let mut manifest = Manifest::clone(&work.base);
        let is_changed = !tables.is_empty();
        for (index, slot) in tables {
            match slot {
                Some(slot) => manifest.tables.insert(index, slot),
                None => manifest.tables.remove(&index),
            };
        }
        if is_changed {
            superseded.extend(manifest.list.take().map(|slot| slot.id));
        }
        if manifest.list.is_none() && manifest.tables.len() > INLINE_TABLES {
            manifest.list = Some(self.put_object(writer, manifest.encode_list().into()).await?);
        }
        superseded.extend(manifest.patches.drain(..).map(|slot| slot.id));
        Ok(Next { manifest, patches: Patches::default(), superseded })
    }

    /// Puts what changed; by table and place in it the new slots.
    async fn put_chunks(
        &self,
        writer: &Writer,
        work: &Work,
    ) -> Result<BTreeMap<u32, BTreeMap<u32, Option<Slot>>>> {
        let manifest = &work.base;
        let end = manifest.len.max(work.len);
        let staged = work.sealed.staged.over(work.patches.staged());
        let (changed, cleared) = staged.chunks(manifest.chunk(), end);
        let puts = stream::iter(changed).map(|chunk| async move {
            let bytes = self.merged(work, chunk).await?;
            let slot = match bytes.is_empty() {
                true => None,
                false => Some(self.put_object(writer, bytes.clone()).await?),
            };
            if let Some(slot) = slot {
                let len = bytes.len();
                self.base.chunks.add(slot.id, bytes, len);
            }
            Ok::<_, Error>((chunk, slot))
        });
        let mut changes = BTreeMap::<u32, BTreeMap<u32, Option<Slot>>>::new();
        let mut puts = puts.buffer_unordered(self.base.width(manifest));
        while let Some((chunk, slot)) = puts.try_next().await? {
            let (table, place) = manifest.place(chunk);
            changes.entry(table).or_default().insert(place, slot);
        }
        // Of a cleared range only what has chunks.
        for range in cleared {
            let (first, last) = (manifest.place(range.start).0, manifest.place(range.end - 1).0);
            for index in manifest.tables.range(first..=last).map(|(index, _)| *index) {
                let Some(table) = self.base.table(manifest, index).await? else { continue };
                let start = u64::from(index) << manifest.table_shift;
                let inside =
                    table.chunks.keys().filter(|place| range.contains(&(start + u64::from(**place))));
                changes.entry(index).or_default().extend(inside.map(|place| (*place, None)));
            }
        }
        Ok(changes)
    }

    /// Puts the tables that change.
    async fn put_tables(
        &self,
        writer: &Writer,
        work: &Work,
        changes: BTreeMap<u32, BTreeMap<u32, Option<Slot>>>,
    ) -> Result<Changed> {
        let manifest = &work.base;
        let puts = stream::iter(changes).map(|(index, changes)| async move {
            let old = self.base.table(manifest, index).await?;
            let mut table = old.map_or_else(Table::default, |table| Table::clone(&table));
            let mut superseded = Vec::new();
            for (place, slot) in changes {
                let old = match slot {
                    Some(slot) => table.chunks.insert(place, slot),
                    None => table.chunks.remove(&place),
                };
                superseded.extend(old.map(|old| old.id));
            }
            superseded.extend(manifest.tables.get(&index).map(|slot| slot.id));
            if table.chunks.is_empty() {
                return Ok((index, None, superseded));
            }
            let bytes = Bytes::from(table.encode(manifest.uuid, index));
            let len = bytes.len();
            let slot = self.put_object(writer, bytes).await?;
            self.base.tables.add(slot.id, table, len);
            Ok::<_, Error>((index, Some(slot), superseded))
        });
        let mut changed = Changed::default();
        let mut puts = puts.buffer_unordered(self.base.bucket.parallel);
        while let Some((index, slot, superseded)) = puts.try_next().await? {
            changed.tables.insert(index, slot);
            changed.superseded.extend(superseded);
        }
        Ok(changed)
    }

    /// The bytes of a chunk with the changes of the sealed log, without the zeros at its end.
    async fn merged(&self, work: &Work, chunk: u64) -> Result<Bytes> {
        let size = work.base.chunk();
        let start = chunk * size;
        let sources = work.sources(&(start..start.saturating_add(size)));
        let mut bytes = vec![0; index_of(size)];
        if sources.iter().any(|(_, source)| matches!(source, Source::Below))
            && let Some(old) = self.base.chunk(&work.base, chunk).await?
        {
            bytes[..old.len()].copy_from_slice(&old);
        }
        for (range, source) in sources {
            let part = &mut bytes[index_of(range.start - start)..index_of(range.end - start)];
            take(source, part)?;
        }
        bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        // It is kept, and counted by its length.
        bytes.shrink_to_fit();
        Ok(bytes.into())
    }

    /// Deletes what no manifest names any more; what can't be deleted stays.
    fn delete(&self, superseded: Vec<ObjectId>) {
        let count = u64_of(superseded.len());
        let names = superseded.into_iter().map(ObjectId::key);
        let left = runtime::wait(async { Ok(self.base.bucket.delete(names).await) });
        if let Ok(left @ 1..) = left {
            log::warn!("{}: {left} of {count} old objects could not be deleted", self.name);
        }
    }
}
