//! The allocator's counts, parsed from the text of the kernel's `mb_stats`.
//!
//! The kernel's file and our own text have one layout, so one reader serves both, and runs on either can be
//! compared. Names are kept as they are printed; a pass is a section `cr_NAME_stats`.
//!
//! The kernel counts from the mount on: the counts of a run are the difference of two readings.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One pass over the groups.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Pass {
    /// `p2_aligned`, `goal_fast`...
    pub name: String,
    /// Its counts by name: `hits`, `groups_considered`, `extents_scanned`, `useless_loops`.
    pub counts: BTreeMap<String, u64>,
}

impl Pass {
    /// Requests it answered.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.counts.get("hits").copied().unwrap_or(0)
    }
}

/// All counts.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AllocatorStats {
    /// Counts by name: `reqs`, `success`, `groups_scanned`, `extents_scanned`, `goal_hits`...
    pub counts: BTreeMap<String, u64>,
    /// The passes in the order of the text.
    pub passes: Vec<Pass>,
    /// The text itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

impl AllocatorStats {
    /// Reads a text; `None` if there are no counts in it (the kernel says so when they are switched off).
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut stats = Self { text: text.to_owned(), ..Self::default() };
        let mut in_pass = false;
        for line in text.lines() {
            let depth = line.chars().take_while(|c| *c == '\t').count();
            let Some((name, value)) = line.trim().split_once(':') else { continue };
            // "12/512" is 12 of 512.
            let number = value.trim().split('/').next().and_then(|n| n.parse().ok());
            match (pass_name(name), number) {
                (Some(pass), None) => {
                    stats.passes.push(Pass { name: pass.to_owned(), counts: BTreeMap::new() });
                    in_pass = true;
                }
                (_, Some(number)) => {
                    in_pass &= depth >= 2;
                    let pass = stats.passes.last_mut().filter(|_| in_pass);
                    let counts = pass.map_or(&mut stats.counts, |pass| &mut pass.counts);
                    counts.insert(name.to_owned(), number);
                }
                _ => in_pass = false,
            }
        }
        (stats.counts.contains_key("reqs")).then_some(stats)
    }

    /// A count by name; 0 if there is none.
    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// In the layout they were read from. Counts that differ between two readings are those of the
    /// difference.
    #[must_use]
    pub fn shown(&self) -> String {
        let mut shown = String::new();
        let mut pass = None;
        for line in self.text.lines() {
            let depth = line.chars().take_while(|c| *c == '\t').count();
            let Some((name, value)) = line.trim().split_once(':') else { continue };
            let (of, has_number) = (value.split_once('/'), !value.trim().is_empty());
            pass = match pass_name(name) {
                Some(name) if !has_number => self.passes.iter().find(|pass| pass.name == name),
                _ if depth >= 2 => pass,
                _ => None,
            };
            let counts = pass.map_or(&self.counts, |pass| &pass.counts);
            let value = match (counts.get(name), of) {
                (Some(count), Some((_, of))) if has_number => format!(" {count}/{of}"),
                (Some(count), None) if has_number => format!(" {count}"),
                _ => value.to_owned(),
            };
            shown.push_str(&format!("{}{name}:{value}\n", "\t".repeat(depth)));
        }
        shown
    }

    /// What was counted since an earlier reading. The text stays that of the later one: see
    /// [`Self::shown`].
    #[must_use]
    pub fn since(mut self, earlier: &Self) -> Self {
        subtract(&mut self.counts, &earlier.counts);
        for pass in &mut self.passes {
            if let Some(before) = earlier.passes.iter().find(|before| before.name == pass.name) {
                subtract(&mut pass.counts, &before.counts);
            }
        }
        self
    }
}

fn subtract(counts: &mut BTreeMap<String, u64>, earlier: &BTreeMap<String, u64>) {
    for (name, count) in counts {
        *count = count.saturating_sub(earlier.get(name).copied().unwrap_or(0));
    }
}

fn pass_name(name: &str) -> Option<&str> {
    name.strip_suffix("_stats").map(|name| name.strip_prefix("cr_").unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "mballoc:\n\treqs: 40\n\tsuccess: 38\n\tgroups_scanned: 7\n\tcr_p2_aligned_stats:\n\
        \t\thits: 20\n\t\tgroups_considered: 21\n\t\textents_scanned: 22\n\t\tuseless_loops: 1\n\
        \tcr_goal_fast_stats:\n\t\thits: 18\n\t\tuseless_loops: 0\n\textents_scanned: 60\n\t\tgoal_hits: 3\n\
        \t\t2^n_hits: 20\n\tbuddies_generated: 12/512\n\tpreallocated: 9\n";

    #[test]
    fn the_kernels_text_is_read() {
        let stats = AllocatorStats::parse(TEXT).unwrap();
        assert_eq!(
            (stats.count("reqs"), stats.count("extents_scanned"), stats.count("goal_hits")),
            (40, 60, 3)
        );
        assert_eq!((stats.count("2^n_hits"), stats.count("buddies_generated")), (20, 12));
        let passes: Vec<_> = stats.passes.iter().map(|pass| (pass.name.as_str(), pass.hits())).collect();
        assert_eq!(passes, [("p2_aligned", 20), ("goal_fast", 18)]);
        assert_eq!(stats.passes[0].counts["extents_scanned"], 22);
    }

    #[test]
    fn stats_that_are_off_are_none_and_readings_subtract() {
        assert_eq!(AllocatorStats::parse("mballoc:\n\tmb stats collection turned off.\n"), None);
        let early = AllocatorStats::parse(TEXT).unwrap();
        let late =
            AllocatorStats::parse(&TEXT.replace("reqs: 40", "reqs: 45").replace("hits: 18", "hits: 20"));
        let between = late.unwrap().since(&early);
        assert_eq!((between.count("reqs"), between.count("success")), (5, 0));
        assert_eq!((between.passes[0].hits(), between.passes[1].hits()), (0, 2));
        assert_eq!(early.shown(), TEXT);
        let shown = between.shown();
        assert!(shown.starts_with("mballoc:\n\treqs: 5\n\tsuccess: 0\n"), "{shown}");
        assert!(
            shown.contains("\tcr_goal_fast_stats:\n\t\thits: 2\n") && shown.contains(": 0/512\n"),
            "{shown}"
        );
    }
}
