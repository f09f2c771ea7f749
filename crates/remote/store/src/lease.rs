//! The lock of a volume: an object that names its writer, renewed while that lives.
//!
//! What it is for: that a second writer is refused by name, before it has done any work. What it is not:
//! what keeps the volume whole. A writer may be paused for hours and wake up behind the end of its lease;
//! what stops it then is that the manifest's version is another, since every writer puts the manifest with
//! its own epoch before it writes anything ([`crate::open`]).
//!
//! Time is compared between this machine's clock and the store's (when the object was put). Clocks that
//! differ make a takeover possible too early or too late, and nothing worse.

use crate::bucket::{Bucket, Object, Swapped};
use crate::note::Note;
use crate::{Error, Options, Result, runtime};
use object_store::UpdateVersion;
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

pub(crate) const LOCK: &str = "lock";
/// The longest lock object.
const LOCK_MAX: u64 = 4096;
/// The note in a lock object.
fn note_of(object: &Object) -> Result<Note> {
    let what = "its lock object is none of this program's; remove it if no writer uses the volume";
    Note::parse(&object.bytes).ok_or_else(|| Error::Damaged(what.to_owned()))
}

/// The right to write a volume, renewed until it is dropped or lost.
pub(crate) struct Lease {
    bucket: Arc<Bucket>,
    note: Arc<Mutex<(Note, UpdateVersion)>>,
    /// Says who has it instead.
    lost: Arc<OnceLock<String>>,
    task: Option<tokio::task::JoinHandle<()>>,
}

/// The holder as it stands in the lock.
fn holder() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host.trim().chars().filter(|c| !c.is_control()).take(255).collect();
    format!("{}, hectare, process {}", if host.is_empty() { "?" } else { &host }, std::process::id())
}

impl Lease {
    /// Takes the lock; the epoch is above `epoch`.
    ///
    /// # Errors
    /// [`Error::Busy`] if another writer has it, or its lease ended and `takeover` is not set; or if the
    /// store takes puts whose condition does not hold.
    pub(crate) async fn take(
        bucket: &Arc<Bucket>,
        session: u64,
        epoch: u64,
        options: &Options,
    ) -> Result<Self> {
        let there = bucket.get(LOCK, LOCK_MAX).await?;
        let old = there.as_ref().map(note_of).transpose()?;
        if let (Some(note), Some(object)) = (&old, &there) {
            refuse_held(note, options.clock.passed(age(object.modified)), options.takeover)?;
        }
        let above = old.as_ref().map_or(0, |note| note.epoch).max(epoch);
        let next = above.checked_add(1).ok_or_else(|| Error::Damaged("its epochs are used up".to_owned()))?;
        let lease = u64::try_from(options.lease.as_millis()).unwrap_or(u64::MAX);
        let mut note = Note { epoch: next, session, holder: holder(), lease, renewal: 0, released: false };
        let mut stale = there.map(|object| object.version);
        let mut version = put(bucket, &note, stale.as_ref()).await?;
        if stale.is_none() {
            // There must be two versions to know whether the store tells them apart.
            note.renewal = 1;
            stale = Some(version.clone());
            version = put(bucket, &note, stale.as_ref()).await?;
        }
        refuse_careless(bucket, &note, stale.as_ref()).await?;
        let note = Arc::new(Mutex::new((note, version)));
        let lost = Arc::<OnceLock<String>>::default();
        let renewing = renew(
            Arc::clone(bucket),
            Arc::clone(&note),
            Arc::clone(&lost),
            options.clock.real(options.lease / 3),
        );
        let task = runtime::spawn(renewing);
        Ok(Self { bucket: Arc::clone(bucket), note, lost, task })
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.note.lock().0.epoch
    }

    /// Fails if another writer has the lock by now.
    pub(crate) fn check(&self) -> Result<()> {
        self.lost.get().map_or(Ok(()), |text| Err(Error::Busy(text.clone())))
    }

    /// Who writes the volume now, as far as that can be found out.
    pub(crate) async fn describe_holder(bucket: &Bucket) -> String {
        let object = bucket.get(LOCK, LOCK_MAX).await.ok().flatten();
        let note = object.and_then(|object| Note::parse(&object.bytes));
        note.map_or_else(|| "another writer".to_owned(), |note| note.holder)
    }

    /// Gives the lock back, as far as that works.
    async fn release(&self) {
        let (mut note, mut version) = self.note.lock().clone();
        note.released = true;
        for _ in 0..2 {
            match self.bucket.put_if(LOCK, note.encode().into(), Some(&version)).await {
                // A renewal came between.
                Ok(Swapped::Other(Some(other)))
                    if Note::parse(&other.bytes).is_some_and(|other| other.session == note.session) =>
                {
                    version = other.version;
                }
                _ => return,
            }
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
        if self.lost.get().is_some() {
            return;
        }
        let release = || {
            let _ = runtime::wait(async {
                self.release().await;
                Ok(())
            });
        };
        // On a thread of its own, since it may be dropped by a future, which must not wait.
        std::thread::scope(|scope| {
            let _ = std::thread::Builder::new().spawn_scoped(scope, release);
        });
    }
}

/// How long ago something was put; no time for what is to come.
fn age(modified: SystemTime) -> Duration {
    SystemTime::now().duration_since(modified).unwrap_or_default()
}

/// Refuses a lock of that age that another writer holds, by its name.
fn refuse_held(note: &Note, age: Duration, takeover: bool) -> Result<()> {
    if note.released {
        return Ok(());
    }
    let lease = Duration::from_millis(note.lease);
    let holder = &note.holder;
    match lease.checked_sub(age).filter(|left| !left.is_zero()) {
        Some(left) => Err(Error::Busy(format!(
            "it is written by {holder}, whose lease lasts for another {} s unless it is renewed",
            left.as_secs() + 1
        ))),
        None if takeover => Ok(()),
        None => Err(Error::Busy(format!(
            "it was written by {holder}, which has not ended in order; its lease ended {} s ago: if it is \
             gone for good, use --takeover",
            (age - lease).as_secs()
        ))),
    }
}

/// Puts the lock in the place of an old one.
async fn put(bucket: &Bucket, note: &Note, old: Option<&UpdateVersion>) -> Result<UpdateVersion> {
    match bucket.put_if(LOCK, note.encode().into(), old).await? {
        Swapped::Done(version) => Ok(version),
        Swapped::Other(Some(object)) => {
            let holder = note_of(&object)?.holder;
            Err(Error::Busy(format!("at this moment it was opened for writing by {holder}")))
        }
        Swapped::Other(None) => Err(Error::Busy("its lock was removed at this moment".to_owned())),
    }
}

/// Refuses a store that does a put whose condition does not hold: nothing would be safe on it.
async fn refuse_careless(bucket: &Bucket, note: &Note, stale: Option<&UpdateVersion>) -> Result<()> {
    for expected in [None, stale] {
        if bucket.put_once(LOCK, note.encode().into(), expected).await?.is_some() {
            let what = "the store ignores the conditions of puts (If-None-Match, If-Match), without which a \
                        volume can't be written safely; use another store";
            return Err(Error::Remote(what.to_owned()));
        }
    }
    Ok(())
}

/// Renews the lock until it is lost.
async fn renew(
    bucket: Arc<Bucket>,
    shared: Arc<Mutex<(Note, UpdateVersion)>>,
    lost: Arc<OnceLock<String>>,
    every: Duration,
) {
    loop {
        tokio::time::sleep(every).await;
        let (mut note, version) = shared.lock().clone();
        note.renewal += 1;
        match bucket.put_if(LOCK, note.encode().into(), Some(&version)).await {
            Ok(Swapped::Done(version)) => *shared.lock() = (note, version),
            Ok(Swapped::Other(other)) => {
                let other = other.and_then(|object| Note::parse(&object.bytes));
                let holder = other.map_or_else(|| "its lock was removed".to_owned(), |note| note.holder);
                let _ = lost.set(format!("it was taken over: {holder}"));
                log::error!("{}: the lease is lost: {holder}", bucket.name());
                return;
            }
            // The volume's manifest decides; the lease may well be renewed next time.
            Err(error) => log::warn!("{}: the lease can't be renewed: {error}", bucket.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_lock_is_refused_by_name_and_an_ended_one_until_it_is_asked_for() {
        let ago = |seconds: u64| Duration::from_millis(seconds * 1000 + 1);
        let text = refuse_held(&Note::sample(), ago(10), true).unwrap_err().to_string();
        assert!(text.contains("host, hectare, process 1") && text.contains("another 50 s"), "{text}");
        let text = refuse_held(&Note::sample(), ago(100), false).unwrap_err().to_string();
        assert!(text.contains("ended 40 s ago") && text.contains("--takeover"), "{text}");
        refuse_held(&Note::sample(), ago(100), true).unwrap();
        refuse_held(&Note { released: true, ..Note::sample() }, ago(1), false).unwrap();
        // A clock that is behind the store's: as if it were renewed just now.
        let later = age(SystemTime::now() + Duration::from_secs(1000));
        refuse_held(&Note::sample(), later, true).unwrap_err();
    }
}
