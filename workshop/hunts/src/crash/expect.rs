//! What a volume must hold after a crash at a point, and whether it does.
//!
//! Of each thread: the names after one of its operations, not before the last promised one and not after the
//! last begun one; and of each file that these names lead to, content as in [`super::content`]. A file that
//! was renamed over another has at least the content it had then: otherwise replacing a file would lose both.

use super::content::Content;
use super::history::{EvaluatedHistory, History, Of, tell};
use super::tree::{Entry, differences, digest_of};
use hectare_units::usize_of;
use std::collections::HashMap;

/// What was found below a thread's directory.
#[derive(Default)]
pub(super) struct ThreadFiles {
    pub(super) entries: Vec<Entry>,
    /// The content of each file, by its id.
    pub(super) contents: HashMap<u32, Vec<u8>>,
}

/// The maximum number of differences reported.
const TOLD_MAX: usize = 8;

/// What must hold at a point, which only moves forward.
pub(super) struct Expected<'a> {
    threads: Vec<Thread<'a>>,
    point: usize,
    /// Whether a file must hold what it held after one of the operations.
    in_order: bool,
}

struct Thread<'a> {
    history: &'a History,
    told: EvaluatedHistory,
    promises_seen: usize,
    names: u32,
    files: u32,
    file: HashMap<u32, u32>,
    /// Contents as they were after the last promised edit, and how many edits are in them.
    durable: HashMap<u32, (usize, Content)>,
}

impl<'a> Expected<'a> {
    /// From the beginning of the log.
    pub(super) fn new(histories: &'a [History], in_order: bool) -> Self {
        let thread = |(history, told)| Thread {
            history,
            told,
            promises_seen: 0,
            names: 0,
            files: 0,
            file: HashMap::new(),
            durable: HashMap::new(),
        };
        Self { threads: histories.iter().zip(tell(histories)).map(thread).collect(), point: 0, in_order }
    }

    /// Goes forward to a point.
    pub(super) fn advance(&mut self, point: usize) {
        self.point = point;
        self.threads.iter_mut().for_each(|thread| thread.advance(point));
    }

    /// The directories of the threads.
    pub(super) fn tops(&self) -> impl Iterator<Item = &str> {
        self.threads.iter().map(|thread| thread.history.top.as_str())
    }

    /// What is wrong with what was found, one of them for each thread.
    pub(super) fn check(&mut self, found: &[ThreadFiles]) -> Result<(), String> {
        let (point, in_order) = (self.point, self.in_order);
        self.threads
            .iter_mut()
            .zip(found)
            .try_for_each(|(thread, found)| thread.check(found, point, in_order))
    }
}

impl Thread<'_> {
    fn advance(&mut self, point: usize) {
        while let Some(promise) = self.told.promises.get(self.promises_seen).filter(|p| p.from <= point) {
            let known = match promise.of {
                Of::Names => &mut self.names,
                Of::Files => &mut self.files,
                Of::File(id) => self.file.entry(id).or_default(),
            };
            *known = promise.upto.max(*known);
            self.promises_seen += 1;
        }
    }

    fn check(&mut self, found: &ThreadFiles, point: usize, in_order: bool) -> Result<(), String> {
        let begun = self.history.begun_before(point);
        let state = self.recognise(&found.entries, begun)?;
        let mut contents: Vec<_> = found.contents.iter().collect();
        contents.sort_unstable_by_key(|(id, _)| **id);
        for (id, content) in contents {
            self.check_content(*id, content, (state, begun), in_order).map_err(|what| {
                let path = found.entries.iter().find(|entry| entry.id == *id).map_or("", |entry| &entry.path);
                format!("{path} (file {id}, names as after operation {state}): {what}")
            })?;
        }
        Ok(())
    }

    /// After which operation the names are as they were found.
    fn recognise(&self, entries: &[Entry], begun: u32) -> Result<u32, String> {
        let digest = digest_of(entries);
        let fits = |state: &u32| self.told.digests.get(usize_of(*state)) == Some(&digest);
        if let Some(state) = (self.names..=begun).find(fits) {
            return Ok(state);
        }
        let likeness = |state: u32| {
            let expected = self.history.tree_after(state).entries();
            (differences(&expected, entries, usize::MAX).len(), state)
        };
        // On failure only, and not for ever: a tree is made for each state.
        let nearest = (self.names..=begun).rev().take(200).map(likeness).min();
        let (count, state) = nearest.unwrap_or((0, self.names));
        let lines = differences(&self.history.tree_after(state).entries(), entries, TOLD_MAX);
        Err(format!(
            "the names below {} are of no state between operations {} (durable) and {begun} (begun); nearest \
             is {state}, with {count} differences: {}",
            self.history.top,
            self.names,
            lines.join("; ")
        ))
    }

    fn check_content(
        &mut self,
        id: u32,
        found: &[u8],
        (state, begun): (u32, u32),
        in_order: bool,
    ) -> Result<(), String> {
        let check = if in_order { Content::check_in_order } else { Content::check };
        let Some(edits) = self.told.edits.get(&id) else {
            return Content::default().check(&[], id, found);
        };
        let promised = self.files.max(self.file.get(&id).copied().unwrap_or(0));
        let (applied, content) = self.durable.entry(id).or_default();
        let count = edits.partition_point(|(number, _)| *number <= promised);
        for (number, edit) in edits.iter().take(count).skip(*applied) {
            content.apply(*edit, *number);
        }
        *applied = count.max(*applied);
        let last = edits.partition_point(|(number, _)| *number <= begun);
        // Later renames of the same file over others promise more; the latest counts.
        let replaced = self.told.replaced.iter().rev().find(|(number, file)| *file == id && *number <= state);
        let kept = replaced.map_or(0, |(number, _)| edits.partition_point(|(edit, _)| edit < number));
        if kept <= *applied {
            return check(content, &edits[*applied..last.max(*applied)], id, found);
        }
        let mut content = content.clone();
        edits[*applied..kept].iter().for_each(|(number, edit)| content.apply(*edit, *number));
        check(&content, &edits[kept..last.max(kept)], id, found)
    }
}
