//! Explains allocation: reports of the search behind each request.
//!
//! An [`Explanation`] comes from a volume that recorded, or from a mount's server, which may be another
//! user's program: no number in it is trusted, and the name of its policy is escaped as a file name is.
//! [`text`] formats it as lines, [`summary`] adds up many requests, [`picture`] colours the groups of the
//! volume by their fate, and [`page`] has all of that in one file.

pub(crate) mod page;
pub(crate) mod picture;
pub(crate) mod summary;
pub(crate) mod text;

use crate::name::shown;
use crate::picture::size_text;
use hectare_alloc::{Event, What};
use hectare_engine::{Explanation, Shape};
use std::fmt::Write;

/// How many of the last requests are listed one by one by default.
pub(crate) const LAST: usize = 5;

/// Lengths and places of a volume in bytes and blocks.
#[derive(Clone, Copy)]
pub(crate) struct Units(Shape);

impl Units {
    pub(crate) const fn of(explanation: &Explanation) -> Self {
        Self(explanation.shape)
    }

    /// A number of clusters as bytes.
    pub(crate) fn size(self, clusters: u64) -> String {
        let cluster = u64::from(self.0.block_bytes).saturating_mul(self.0.cluster_blocks.into());
        size_text(clusters.saturating_mul(cluster))
    }

    /// The first block of a cluster.
    pub(crate) fn block(self, cluster: u64) -> u64 {
        cluster.saturating_mul(self.0.cluster_blocks.into()).saturating_add(self.0.first_block.into())
    }

    /// The blocks of a run: `from-to`.
    pub(crate) fn blocks(self, start: u64, len: u64) -> String {
        let end = self.block(start.saturating_add(len));
        format!("{}-{}", self.block(start), end.saturating_sub(1))
    }

    /// The group of a cluster.
    pub(crate) fn group(self, cluster: u64) -> u64 {
        cluster / u64::from(self.0.group_clusters.max(1))
    }
}

/// The policy and the tunables that were changed, as they may be shown.
pub(crate) fn how(explanation: &Explanation) -> String {
    let words = std::iter::once(&explanation.policy).chain(&explanation.tunables);
    words.map(|word| shown(word.as_bytes())).collect::<Vec<_>>().join(" ")
}

/// An explanation in lines: one request, or all added up and the last of them.
pub fn lines(explanation: &Explanation, last: usize, detail: text::Detail) -> String {
    let requests = &explanation.trace.requests;
    let mut lines = match requests.len() {
        1 => format!("policy {}\n", how(explanation)),
        _ => summary::text(explanation),
    };
    for request in &requests[requests.len().saturating_sub(last)..] {
        let _ = write!(
            lines,
            "{}{}",
            if requests.len() > 1 { "\n" } else { "" },
            text::request(explanation, request, detail)
        );
    }
    lines
}

/// What happened in one pass, for one length: neighbours among the events of a request.
pub(crate) fn sections(events: &[Event]) -> impl Iterator<Item = &[Event]> {
    let is_not_made = |event: &Event| matches!(event.what, What::NotMade(_));
    events.chunk_by(move |a, b| {
        (a.pass, a.stage, a.need) == (b.pass, b.stage, b.need) && !is_not_made(a) && !is_not_made(b)
    })
}

/// Neighbouring groups as ranges: `0-6, 8`; the first `most` of them.
fn ranges(events: &[&Event], most: usize) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let mut events = events.to_vec();
    events.sort_by_key(|event| event.group);
    for event in events {
        let (start, end) = (u64::from(event.group), u64::from(event.group) + u64::from(event.groups));
        match ranges.last_mut() {
            Some((_, last)) if *last >= start => *last = end.max(*last),
            _ => ranges.push((start, end)),
        }
    }
    let shown = |(start, end): &(u64, u64)| match end - start {
        0 | 1 => start.to_string(),
        _ => format!("{start}-{}", end - 1),
    };
    let mut list: Vec<String> = ranges.iter().take(most).map(shown).collect();
    if ranges.len() > most {
        list.push("...".to_owned());
    }
    list.join(", ")
}

/// `1 group`, `2 groups`.
fn counted(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::svg;
    use hectare_alloc::{
        Answer, Asked, Criterion, Ended, GoalFrom, NotMade, RequestTrace, Stage, Trace, Why,
    };

    fn event(pass: Criterion, group: u32, groups: u32, what: What) -> Event {
        Event { pass, stage: Stage::Any, need: 2048, group, groups, what }
    }

    /// A volume of 10 groups of 128 MiB, and one request for 8 MiB.
    fn explanation(events: Vec<Event>, answer: Answer) -> Explanation {
        let shape = Shape {
            block_bytes: 4096,
            cluster_blocks: 1,
            first_block: 0,
            group_clusters: 32_768,
            groups: 10,
            flex_groups: 1,
        };
        let asked = Asked {
            data: true,
            file: None,
            asked: 1,
            want: 2048,
            least: 1,
            goal: Some(32_768),
            group: 1,
            from: GoalFrom::Continuation,
            class: None,
        };
        let request = RequestTrace { number: 1, asked, events, left_out: 0, answer };
        let trace = Trace { requests: vec![request], overwritten: 0 };
        Explanation { policy: "mballoc".into(), tunables: Vec::new(), shape, trace }
    }

    #[test]
    fn a_request_is_told_in_a_line_for_each_pass() {
        let passed = |why, best| What::Passed { why, best };
        let mut explanation = explanation(
            vec![
                event(Criterion::Goal, 1, 1, What::Scanned { extents: 0, longest: 3 }),
                event(Criterion::P2Aligned, 0, 0, What::NotMade(NotMade::NoChunk)),
                event(Criterion::GoalFast, 1, 4, passed(Why::Index, 10)),
                event(Criterion::GoalFast, 5, 1, passed(Why::Average, 100)),
                event(Criterion::GoalFast, 6, 1, passed(Why::Busy, 0)),
                event(Criterion::GoalFast, 0, 1, passed(Why::Index, 10)),
                event(Criterion::BestAvail, 7, 1, What::Scanned { extents: 1, longest: 1024 }),
                event(Criterion::BestAvail, 7, 1, What::Taken { start: 0, len: 1024 }),
            ],
            Answer::Taken { by: Criterion::BestAvail, start: 229_376, len: 1024 },
        );
        for event in &mut explanation.trace.requests[0].events[6..] {
            event.need = 1024;
        }
        let told = lines(&explanation, LAST, text::Detail::Short);
        let expected = "\
policy mballoc
request 1: 4 KiB asked, goal length 8 MiB; goal block 32768 in group 1, where the file continues
  goal                  8 MiB: 12 KiB free there; nothing
  CR_POWER2_ALIGNED         -: not tried, the length is no power of two that it serves
  CR_GOAL_LEN_FAST      8 MiB: 5 groups left out by the index (average run below 8 MiB) [0-4]; \
         1 group with shorter runs on average (400 KiB) [5]; 1 group busy [6]; nothing
  CR_BEST_AVAIL_LEN     4 MiB: 1 group scanned [7], 1 run looked at, the longest of all 4 MiB; \
         took 4 MiB in group 7
  took group 7, blocks 229376-230399 (4 MiB) by CR_BEST_AVAIL_LEN, goal trimmed 8 MiB -> 4 MiB
";
        assert_eq!(told, expected);
    }

    #[test]
    fn groups_are_ranges_in_order_and_cut_unless_all_are_asked_for() {
        let of = |group, groups| event(Criterion::GoalSlow, group, groups, What::Ended(Ended::Enough));
        let events = [of(20, 1), of(8, 1), of(9, 2), of(0, 3), of(30, 1)];
        let events: Vec<&Event> = events.iter().collect();
        assert_eq!(ranges(&events, 3), "0-2, 8-10, 20, ...");
        assert_eq!(ranges(&events, usize::MAX), "0-2, 8-10, 20, 30");
    }

    /// A server may send anything.
    #[test]
    fn numbers_that_make_no_sense_are_told_without_harm() {
        let whats = [
            What::Passed { why: Why::Index, best: u32::MAX },
            What::Passed { why: Why::Free, best: u32::MAX },
            What::Scanned { extents: u32::MAX, longest: u32::MAX },
            What::Taken { start: u32::MAX, len: u32::MAX },
        ];
        let events = whats.map(|what| event(Criterion::GoalFast, u32::MAX, u32::MAX, what));
        let far = Answer::Taken { by: Criterion::BestAvail, start: u64::MAX, len: u64::MAX - 1 };
        let mut odd = explanation(events.to_vec(), far);
        odd.policy = "\u{1b}[2J</pre><script>".into();
        odd.trace.requests[0].asked.want = u64::MAX;
        odd.trace.requests[0].asked.class = Some(200);
        for groups in [0, 1, u32::MAX] {
            odd.shape = Shape {
                block_bytes: u32::MAX,
                cluster_blocks: u32::MAX,
                first_block: u32::MAX,
                group_clusters: groups,
                groups,
                flex_groups: 0,
            };
            for requests in [0, 1, 2] {
                let mut odd = odd.clone();
                let one = odd.trace.requests[0].clone();
                odd.trace.requests = vec![one; requests];
                let told = lines(&odd, usize::MAX, text::Detail::Full);
                assert!(!told.contains('\u{1b}'), "{told}");
                let page = page::draw("x", std::slice::from_ref(&odd), LAST);
                assert!(!page.contains("<script") && page.ends_with("</html>\n"));
                let picture = svg::draw(&picture::scene("x", &[odd.clone(), odd]));
                assert_eq!(picture.matches("<g>").count(), picture.matches("</g>").count());
            }
        }
    }

    #[test]
    fn a_picture_shows_what_went_furthest() {
        let passed = |why| What::Passed { why, best: 0 };
        let explanation = explanation(
            vec![
                event(Criterion::GoalFast, 0, 10, passed(Why::Index)),
                event(Criterion::GoalSlow, 2, 1, passed(Why::Busy)),
                event(Criterion::GoalSlow, 3, 1, What::Scanned { extents: 1, longest: 1 }),
                event(Criterion::GoalSlow, 3, 1, What::Taken { start: 0, len: 1 }),
                event(Criterion::AnyFree, 4, 1, What::Scanned { extents: 1, longest: 1 }),
            ],
            Answer::Taken { by: Criterion::GoalSlow, start: 98_304, len: 1 },
        );
        let drawn = svg::draw(&picture::scene("disk.img", &[explanation]));
        for (group, fate) in [
            (1, "left out by the index"),
            (2, "passed by, busy"),
            (3, "taken"),
            (4, "scanned"),
            (9, "left out by the index"),
        ] {
            let note = format!("<title>group {group}, blocks from {}: {fate}</title>", group * 32_768);
            assert!(drawn.contains(&note), "{note} in {drawn}");
        }
        assert!(drawn.contains(">left out by the index: 7<") && drawn.contains(">where the search starts<"));
    }
}
