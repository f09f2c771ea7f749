//! Keeps a process that has lost a device to another host from changing it.
//!
//! A host that uses a device for itself leaves a *mark* there, and renews it. Others take the device over when
//! the mark was not renewed for long enough, and put theirs in its place. A process that was stopped meanwhile
//! (a signal, a suspended machine, a network that was away) does not know that when it continues. So each change
//! asks a [`Fence`] whether the mark was seen in its place a short time ago; if not, the mark is read first.
//!
//! Hazard: a request can be stopped between the question and the storage, and nothing but the storage itself
//! could refuse it then. The time that others wait before their first change has to be longer than a request
//! can be under way.

use std::time::Duration;

/// How often a mark is read again that could not be understood: it may just be written.
pub(crate) const READ_AGAIN: u32 = 5;

/// The pause before each of these.
const READ_PAUSE: Duration = Duration::from_millis(20);

/// Which process a mark names as the user of the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mark {
    /// This process has it.
    Ours,
    /// It can't be understood; the text says why.
    Unclear(String),
    /// Another process has taken it, and this one must not change it any more; the text names the other.
    Lost(String),
}

/// Knows the mark of this process.
pub trait Fence: Send + Sync {
    /// How many bytes the mark has.
    fn mark_len(&self) -> usize;

    /// Whether the mark was seen in its place so recently that no other process can have begun to make changes.
    fn is_fresh(&self) -> bool;

    /// The time by the fence's clock, which goes on while the machine is suspended.
    fn now(&self) -> Duration;

    /// Judges the mark, of which reading began at `asked`. What is lost stays lost.
    fn judge(&self, asked: Duration, mark: &[u8]) -> Mark;
}

/// Says whether a change may be made, reading the mark with `read` if that is needed.
///
/// # Errors
/// Those of `read`, in the outer result. In the inner one, the reason why nothing may be changed any more.
pub fn pass<E>(
    fence: &dyn Fence,
    mut read: impl FnMut(&mut [u8]) -> Result<(), E>,
) -> Result<Result<(), String>, E> {
    if fence.is_fresh() {
        return Ok(Ok(()));
    }
    look(fence, &mut read)
}

/// Reads the mark in any case; otherwise as [`pass`].
///
/// # Errors
/// As [`pass`].
pub fn look<E>(
    fence: &dyn Fence,
    mut read: impl FnMut(&mut [u8]) -> Result<(), E>,
) -> Result<Result<(), String>, E> {
    let mut mark = vec![0; fence.mark_len()];
    let mut unclear = String::new();
    for turn in 0..READ_AGAIN {
        if turn > 0 {
            std::thread::sleep(READ_PAUSE);
        }
        let asked = fence.now();
        read(&mut mark)?;
        match fence.judge(asked, &mark) {
            Mark::Ours => return Ok(Ok(())),
            Mark::Lost(who) => return Ok(Err(who)),
            Mark::Unclear(why) => unclear = why,
        }
    }
    Ok(Err(format!("the mark of who has it can't be read: {unclear}")))
}
