//! What is right in a list, what is wrong, and what is said to be an error.
//!
//! The root's own entry is not compared (tools differ in what they give it), nor is `lost+found`, the size of
//! directories and their links. What a peer can't say is no fault.

use super::adapters::{End, Ran};
use super::listing::{Line, Listing, expected};
use hectare_oracle::Entry;
use std::collections::BTreeMap;

/// The judgement of one list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Verdict {
    /// Why the program gave nothing at all.
    pub(super) refused: Option<String>,
    /// It did not come to its end: what happened.
    pub(super) died: Option<String>,
    /// Entries with everything right.
    pub(super) right: usize,
    /// Files with other bytes, links with another target, other kinds, without an error.
    pub(super) contents: usize,
    /// Entries that are left out, or not there, or there twice, without an error.
    pub(super) names: usize,
    /// Fields that are wrong, without an error: how often.
    pub(super) fields: BTreeMap<&'static str, usize>,
    /// Entries that the program said it could not read.
    pub(super) errors: usize,
    /// An example of each, for a reader who doubts.
    pub(super) examples: Vec<String>,
}

impl Verdict {
    /// Judges a list against the truth; `seconds` if times have no more.
    pub(super) fn of(listing: &Listing, ran: &Ran, truth: &[Entry], seconds: bool) -> Self {
        let mut verdict = Self::of_end(listing, ran);
        if verdict.refused.is_some() {
            return verdict;
        }
        verdict.errors = listing.errors.len();
        verdict.examples.extend(listing.errors.iter().take(1).map(|(path, why)| at(path, why)));
        let compared = |path: &[u8]| !path.is_empty() && !path.starts_with(b"lost+found");
        let truth: BTreeMap<&[u8], &Entry> =
            truth.iter().map(|entry| (&entry.path[..], entry)).filter(|(path, _)| compared(path)).collect();
        let is_below = |path: &[u8], at: &[u8]| {
            at.is_empty() || path.strip_prefix(at).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        let failed = |path: &[u8]| listing.errors.iter().any(|(at, _)| is_below(path, at));
        for (path, entry) in &truth {
            match listing.entries.get(*path) {
                Some(found) => verdict.entry(path, &expected(entry), found, seconds),
                // Below or at what it said it could not read; or not reached any more.
                None if failed(path) || verdict.died.is_some() => {}
                None => verdict.name(path, "is left out"),
            }
        }
        for path in listing.entries.keys().filter(|path| compared(path) && !truth.contains_key(&path[..])) {
            verdict.name(path, "is not there");
        }
        verdict.names += listing.twice;
        verdict
    }

    /// Judges only how it ended.
    pub(super) fn of_end(listing: &Listing, ran: &Ran) -> Self {
        let last = || ran.said.lines().last().unwrap_or_default().to_owned();
        let died = match ran.end {
            End::TimedOut => Some("hangs".to_owned()),
            End::Signal(number) => Some(format!("crashes (signal {number})")),
            // Rust's panics, and Go's.
            End::Code(101) => Some(format!("panics: {}", last())),
            End::Code(2) if ran.said.contains("goroutine") => {
                Some(format!("panics: {}", ran.said.lines().next().unwrap_or_default()))
            }
            End::Code(0) if !listing.whole => Some("ends in the middle".to_owned()),
            End::Code(_) if listing.panics > 0 => Some(format!("panics {} times", listing.panics)),
            End::Code(_) => None,
        };
        let nothing = listing.entries.keys().all(Vec::is_empty) && !listing.whole;
        let refused = (died.is_none() && ran.end != End::Code(0) && nothing).then(last);
        let died = match (died, &refused, &ran.end) {
            (None, None, End::Code(code)) if *code != 0 => Some(format!("ends in the middle: {}", last())),
            (died, ..) => died,
        };
        Self { refused, died, errors: listing.errors.len(), ..Self::default() }
    }

    fn entry(&mut self, path: &[u8], expected: &Line, found: &Line, seconds: bool) {
        if (&expected.kind, &expected.held) != (&found.kind, &found.held) {
            self.contents += 1;
            self.example(path, "has other content");
            return;
        }
        let is_directory = expected.kind == "d";
        let differs = |left: &Option<String>, right: &Option<String>| right.is_some() && left != right;
        let whole =
            |time: Option<i128>| time.map(|at| if seconds { at.div_euclid(1_000_000_000) } else { at });
        let fields = [
            ("mode", differs(&expected.mode, &found.mode)),
            ("uid", differs(&expected.uid, &found.uid)),
            ("gid", differs(&expected.gid, &found.gid)),
            ("size", !is_directory && differs(&expected.size, &found.size)),
            ("links", !is_directory && differs(&expected.links, &found.links)),
            ("mtime", found.mtime.is_some() && whole(expected.mtime) != whole(found.mtime)),
            ("xattrs", found.attributes.is_some() && expected.attributes != found.attributes),
        ];
        let wrong: Vec<&'static str> =
            fields.iter().filter(|(_, wrong)| *wrong).map(|(name, _)| *name).collect();
        if wrong.is_empty() {
            self.right += 1;
        } else {
            self.example(path, &format!("has another {}", wrong.join(", ")));
        }
        for name in wrong {
            *self.fields.entry(name).or_default() += 1;
        }
    }

    fn name(&mut self, path: &[u8], what: &str) {
        self.names += 1;
        self.example(path, what);
    }

    fn example(&mut self, path: &[u8], what: &str) {
        if self.examples.len() < 3 {
            self.examples.push(at(path, what));
        }
    }

    /// Whether anything was wrong that was not said to be: what a library must never do.
    pub(super) fn is_wrong(&self) -> bool {
        self.died.is_some() || self.contents + self.names > 0 || !self.fields.is_empty()
    }

    /// In a few words, for a cell of a table.
    pub(super) fn cell(&self) -> String {
        if self.refused.is_some() {
            return "refuses".to_owned();
        }
        let mut parts = Vec::new();
        parts.extend(self.died.as_ref().map(|how| format!("**{}**", how.split(':').next().unwrap_or(how))));
        let fields: usize = self.fields.values().sum();
        let names: Vec<&str> = self.fields.keys().copied().collect();
        for (count, what) in [(self.contents, "other content"), (self.names, "other names")] {
            if count > 0 {
                parts.push(format!("**{count} {what}**"));
            }
        }
        if fields > 0 {
            parts.push(format!("**{fields} other {}**", names.join(", ")));
        }
        if self.errors > 0 {
            parts.push(format!("{} errors", self.errors));
        }
        if parts.is_empty() { "right".to_owned() } else { parts.join(", ") }
    }
}

fn at(path: &[u8], what: &str) -> String {
    format!("{}: {what}", path.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::super::listing::printed;
    use super::*;
    use hectare_oracle::Kind;
    use std::time::Duration;

    fn ran(end: End, said: &str) -> Ran {
        Ran { end, printed: Vec::new(), said: said.to_owned(), time: Duration::ZERO }
    }

    fn truth() -> Vec<Entry> {
        let mut file = Entry::new("f", Kind::File);
        (file.size, file.digest) = (5, [7; 32]);
        file.mtime.nanos = 5;
        vec![Entry::new("", Kind::Directory), Entry::new("d", Kind::Directory), file]
    }

    fn judged(change: impl FnOnce(&mut Vec<Entry>), end: &str) -> Verdict {
        let mut found = truth();
        change(&mut found);
        let lines: Vec<String> = found.iter().map(printed).collect();
        let listing = Listing::parse(format!("{}\n{end}", lines.join("\n")).as_bytes());
        Verdict::of(&listing, &ran(End::Code(0), ""), &truth(), false)
    }

    #[test]
    fn what_is_right_is_right_and_every_fault_is_seen() {
        let right = judged(|_| {}, ".\n");
        assert!(!right.is_wrong() && right.right == 2 && right.cell() == "right", "{right:?}");
        assert_eq!(judged(|all| all[2].digest = [8; 32], ".\n").contents, 1);
        assert_eq!(judged(|all| all[2].mtime.nanos = 6, ".\n").fields["mtime"], 1);
        assert_eq!(judged(|all| drop(all.pop()), ".\n").names, 1);
        assert_eq!(judged(|all| all.push(Entry::new("x", Kind::Fifo)), ".\n").names, 1);
        assert!(judged(|_| {}, "").died.is_some());
        // An error at one file excuses no other whose name begins alike.
        let more = |end: &str| {
            let truth: Vec<Entry> = truth().into_iter().chain([Entry::new("f0", Kind::Fifo)]).collect();
            let lines: Vec<String> = truth[..2].iter().map(printed).collect();
            let listing = Listing::parse(format!("{}\n{end}", lines.join("\n")).as_bytes());
            Verdict::of(&listing, &ran(End::Code(0), ""), &truth, false)
        };
        assert_eq!((more("!\t66\tx\n.\n").names, more("!\t\tx\n.\n").names), (1, 0));
        // Said to be an error: not wrong.
        let said = judged(|all| drop(all.pop()), "!\t66\tdamaged\n.\n");
        assert!(!said.is_wrong() && said.cell() == "1 errors");
    }

    #[test]
    fn ends_are_told_apart() {
        let none = Listing::default();
        let refused = Verdict::of_end(&none, &ran(End::Code(1), "a\nno such feature"));
        assert_eq!(refused.refused.as_deref(), Some("no such feature"));
        assert!(!refused.is_wrong());
        for end in [End::Code(101), End::Signal(11), End::TimedOut, End::Code(0)] {
            assert!(Verdict::of_end(&none, &ran(end, "")).is_wrong());
        }
    }
}
