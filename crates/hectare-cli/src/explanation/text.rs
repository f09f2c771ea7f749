//! One request as lines of text: the request, each pass, and the result.

use super::{Units, counted, ranges, sections};
use hectare_alloc::{
    Answer, Asked, Criterion, Ended, Event, GoalFrom, NotMade, RequestTrace, Stage, What, Why,
};
use hectare_engine::Explanation;
use std::fmt::Write;

/// How many of the groups are listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// The first ranges.
    Short,
    /// All.
    Full,
}

impl Detail {
    const fn ranges(self) -> usize {
        match self {
            Self::Short => 3,
            Self::Full => usize::MAX,
        }
    }
}

/// Names of the size classes, from the smallest.
const CLASSES: [&str; 3] = ["small", "medium", "large"];

/// The reasons, in the order in which they are printed.
const REASONS: [Why; 12] = [
    Why::Index,
    Why::Class,
    Why::Longest,
    Why::Average,
    Why::Chunk,
    Why::Free,
    Why::Directories,
    Why::Busy,
    Why::NoBetter,
    Why::Unread,
    Why::Unreadable,
    Why::Changed,
];

/// Everything of one request.
pub(crate) fn request(explanation: &Explanation, request: &RequestTrace, detail: Detail) -> String {
    let units = Units::of(explanation);
    let mut text = format!("request {}: {}\n", request.number, asked(units, &request.asked));
    let sections: Vec<&[Event]> = sections(&request.events).collect();
    for alike in
        sections.chunk_by(|a, b| is_without_unit(a) && is_without_unit(b) && a[0].stage == b[0].stage)
    {
        let _ = match alike {
            [only] => writeln!(text, "  {}", pass(units, request, only, detail)),
            all => writeln!(text, "  {}", none_made(request, all)),
        };
    }
    if request.left_out > 0 {
        let _ =
            writeln!(text, "  and {}, for which there was no room", counted(request.left_out, "more event"));
    }
    let _ = writeln!(text, "  {}", answer(units, request));
    text
}

fn asked(units: Units, asked: &Asked) -> String {
    let size = |clusters| units.size(clusters);
    let mut text = match (asked.data, asked.file) {
        (_, Some(file)) => format!("for inode {file}, "),
        (true, None) => String::new(),
        (false, None) => "for metadata, ".to_owned(),
    };
    let _ = write!(text, "{} asked", size(asked.asked));
    if asked.want != asked.asked {
        let _ = write!(text, ", goal length {}", size(asked.want));
    }
    if asked.least < asked.asked {
        let _ = write!(text, ", {} at least", size(asked.least));
    }
    match asked.goal {
        Some(goal) => {
            let _ = write!(text, "; goal block {} in group {}", units.block(goal), asked.group);
        }
        None => {
            let _ = write!(text, "; from group {}", asked.group);
        }
    }
    let _ = write!(text, ", {}", from(asked));
    if let Some(class) = asked.class {
        let name = CLASSES.get(usize::from(class)).copied();
        let _ = write!(text, "; size class {}", name.map_or_else(|| class.to_string(), str::to_owned));
    }
    text
}

/// The source of the goal.
fn from(asked: &Asked) -> &'static str {
    match asked.from {
        GoalFrom::Caller if asked.data => "as the caller says",
        GoalFrom::Caller => "near what it belongs to",
        GoalFrom::Continuation => "where the file continues",
        GoalFrom::Home => "the group of its inode",
        GoalFrom::Cursor => "behind the last window of its size",
        GoalFrom::Piece => "behind the piece before",
        GoalFrom::Stream => "where its stream was served last",
        GoalFrom::Kept => "kept for it",
        GoalFrom::Nowhere => "without a goal",
        _ => "from elsewhere",
    }
}

fn is_without_unit(section: &[Event]) -> bool {
    section.iter().all(|event| event.what == What::NotMade(NotMade::NoUnit))
}

/// The line of several passes that did not run because no group has a class.
fn none_made(request: &RequestTrace, sections: &[&[Event]]) -> String {
    let names: Vec<&str> = sections.iter().map(|section| section[0].pass.criterion()).collect();
    let (names, classes) = (names.join(", "), classes(request, sections[0][0].stage));
    format!("{names}{classes}: not tried, {}", not_made(NotMade::NoUnit))
}

/// Which groups a pass examined, where there are size classes.
const fn classes(request: &RequestTrace, stage: Stage) -> &'static str {
    match (request.asked.class, stage) {
        (None, _) => "",
        (_, Stage::Matching) => " (its class)",
        (_, Stage::Unset) => " (no class)",
        (_, Stage::Any) => " (any class)",
    }
}

/// The line of a pass.
fn pass(units: Units, request: &RequestTrace, section: &[Event], detail: Detail) -> String {
    let Some(first) = section.first() else { return String::new() };
    let name = format!("{}{}", first.pass.criterion(), classes(request, first.stage));
    let width = if request.asked.class.is_some() { 29 } else { 18 };
    if let What::NotMade(why) = first.what {
        return format!("{name:<width$} {:>8}: not tried, {}", "-", not_made(why));
    }
    let mut parts = Vec::new();
    for why in REASONS {
        let groups: Vec<&Event> = section.iter().filter(|event| is_passed_for(event, why)).collect();
        if !groups.is_empty() {
            parts.push(passed(units, why, &groups, detail));
        }
    }
    parts.extend(scanned(units, section, detail));
    parts.extend(section.iter().filter_map(|event| ended(event.what)).map(str::to_owned));
    parts.push(taken(units, section).unwrap_or_else(|| "nothing".to_owned()));
    format!("{name:<width$} {:>8}: {}", units.size(first.need.into()), parts.join("; "))
}

fn is_passed_for(event: &Event, reason: Why) -> bool {
    matches!(event.what, What::Passed { why, .. } if why == reason)
}

const fn not_made(why: NotMade) -> &'static str {
    match why {
        NotMade::NoUnit => "there is no such group",
        NotMade::NoGoal => "there is no goal",
        NotMade::NoChunk => "the length is no power of two that it serves",
        NotMade::SameLength => "it would ask for the same once more",
        NotMade::NoTrim => "the goal can't be trimmed below what is asked",
        _ => "for a reason of a newer version",
    }
}

const fn ended(what: What) -> Option<&'static str> {
    Some(match what {
        What::Ended(Ended::Patience) => "ended: too many groups came to nothing",
        What::Ended(Ended::Enough) => "ended: enough runs were looked at",
        What::Ended(Ended::Lost) => "lost the chosen run to another request",
        _ => return None,
    })
}

/// Whether a pass's index is by average run.
const fn is_by_average(pass: Criterion) -> bool {
    matches!(pass, Criterion::GoalFast | Criterion::BestAvail | Criterion::Split)
}

/// The minimum length of what the index names, for a pass.
fn least_of_order(pass: Criterion, order: u32) -> u64 {
    let log = if is_by_average(pass) && order > 0 { order.saturating_add(1) } else { order };
    1_u64.checked_shl(log).unwrap_or(u64::MAX)
}

/// Groups that were skipped for one reason.
fn passed(units: Units, why: Why, groups: &[&Event], detail: Detail) -> String {
    let count: u64 = groups.iter().map(|event| u64::from(event.groups)).sum();
    let best = |event: &&Event| if let What::Passed { best, .. } = event.what { best } else { 0 };
    let best = groups.iter().map(best).max().unwrap_or(0);
    let (pass, stage) =
        groups.first().map_or((Criterion::Goal, Stage::Any), |event| (event.pass, event.stage));
    let size = units.size(best.into());
    let reason = match why {
        Why::Index => {
            let least = units.size(least_of_order(pass, best));
            let what = if is_by_average(pass) { "average run" } else { "largest chunk" };
            format!("left out by the index ({what} below {least})")
        }
        Why::Class if stage == Stage::Unset => "with a class".to_owned(),
        Why::Class => "of other classes".to_owned(),
        Why::Busy => "busy".to_owned(),
        Why::Average => format!("with shorter runs on average ({size})"),
        Why::Chunk => format!("with smaller chunks ({size})"),
        Why::Longest => format!("known to have shorter runs ({size})"),
        Why::Free => format!("with too little free ({size})"),
        Why::Directories => "left to directories".to_owned(),
        Why::NoBetter => "with nothing better than the best so far".to_owned(),
        Why::Unread => "not in memory, and no more may be read".to_owned(),
        Why::Unreadable => "that can't be read".to_owned(),
        Why::Changed => "changed before their lock was had".to_owned(),
        _ => "passed by for a reason of a newer version".to_owned(),
    };
    format!("{} {reason}{}", counted(count, "group"), listed(groups, detail))
}

/// Which groups: ` [0-6, 8]`.
fn listed(groups: &[&Event], detail: Detail) -> String {
    format!(" [{}]", ranges(groups, detail.ranges()))
}

fn scanned(units: Units, section: &[Event], detail: Detail) -> Option<String> {
    let groups: Vec<&Event> =
        section.iter().filter(|event| matches!(event.what, What::Scanned { .. })).collect();
    let pass = groups.first()?.pass;
    let seen = groups.iter().map(|event| match event.what {
        What::Scanned { extents, longest } => (u64::from(extents), longest),
        _ => (0, 0),
    });
    let (extents, longest) = seen.fold((0, 0), |sum, seen| (sum.0 + seen.0, sum.1.max(seen.1)));
    let longest = units.size(longest.into());
    if pass == Criterion::Goal {
        return Some(format!("{longest} free there"));
    }
    Some(format!(
        "{} scanned{}, {} looked at, the longest of all {longest}",
        counted(hectare_units::u64_of(groups.len()), "group"),
        listed(&groups, detail),
        counted(extents, "run"),
    ))
}

fn taken(units: Units, section: &[Event]) -> Option<String> {
    section.iter().find_map(|event| match event.what {
        What::Taken { len, .. } => Some(format!("took {} in group {}", units.size(len.into()), event.group)),
        _ => None,
    })
}

/// The result of a request.
pub(crate) fn answer(units: Units, request: &RequestTrace) -> String {
    let place = |start, len| {
        format!("group {}, blocks {} ({})", units.group(start), units.blocks(start, len), units.size(len))
    };
    let asked = &request.asked;
    match request.answer {
        Answer::Taken { by, start, len } => {
            let how = match asked.goal {
                Some(goal) if goal == start && by == Criterion::Goal => "at the goal".to_owned(),
                Some(goal) if goal == start => format!("at the goal, by {}", by.criterion()),
                _ => format!("by {}", by.criterion()),
            };
            let short = if len >= asked.want {
                String::new()
            } else if by == Criterion::BestAvail {
                format!(", goal trimmed {} -> {}", units.size(asked.want), trimmed(units, request))
            } else {
                format!(", {} less than the goal length", units.size(asked.want - len))
            };
            format!("took {} {how}{short}", place(start, len))
        }
        Answer::Window { start, len } => {
            format!("took {} of what is kept for the file: no pass ran", place(start, len))
        }
        Answer::Slot { start, len } => {
            format!("took {} of what its thread keeps for small files: no pass ran", place(start, len))
        }
        Answer::NotAtGoal => {
            "took nothing: less than that is free at the goal, and only that would do".to_owned()
        }
        Answer::NoSpace => format!("no space: there is no free run of {}", units.size(asked.least)),
        Answer::TooLong => format!(
            "no space: {} in one run are more than is free, or than a group holds; no pass ran",
            units.size(asked.least)
        ),
        Answer::Failed => "failed: a group that was needed can't be read".to_owned(),
        _ => "an answer of a newer version".to_owned(),
    }
}

/// The length that the goal was trimmed to.
fn trimmed(units: Units, request: &RequestTrace) -> String {
    let taken = request.events.iter().find(|event| matches!(event.what, What::Taken { .. }));
    units.size(taken.map_or(0, |event| event.need.into()))
}
