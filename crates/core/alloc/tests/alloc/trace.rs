//! What is recorded of requests: on small volumes where each reason must appear, within the bounds on cost.

use crate::common::{Disk, Unreadable};
use hectare_alloc::{
    Allocator, Answer, Config, Criterion, Ended, FileRequest, GoalFrom, GroupSource, Layout, Mechanism,
    NotMade, Policy, Preallocation, Recording, Request, RequestTrace, Stage, Tunables, What, Why, Window,
};
use hectare_units::{ClusterNr, Clusters, GroupNr};
use std::sync::Arc;

const PER_GROUP: u32 = 1024;

fn layout(groups: u32) -> Layout {
    Layout::new(PER_GROUP, Clusters::new(u64::from(groups * PER_GROUP))).unwrap()
}

fn config(policy: Policy) -> Config {
    let tunables = Tunables { mb_optimize_scan: Some(true), ..Tunables::default() };
    Config { policy, tunables, record: Some(Recording::WHOLE), ..Config::default() }
}

/// Groups of which `used` says what is in use.
fn patterned(config: Config, groups: u32, used: impl Fn(u32, u32) -> bool) -> Allocator<Disk> {
    let layout = layout(groups);
    Allocator::new(Disk::patterned(layout, |group, at| used(group.get(), at)), layout, config)
}

fn data(goal: u64, want: u64, asked: u64) -> Request {
    Request::new(ClusterNr::new(goal), Clusters::new(want)).for_data(Clusters::new(asked))
}

/// Makes a request and gives back what it got; what is recorded of it.
fn traced<S: GroupSource>(allocator: &Allocator<S>, request: Request) -> RequestTrace {
    drop(allocator.reserve(&request));
    allocator.trace().unwrap().requests.pop().unwrap()
}

/// What happened in a pass, with the first group of each event and how many there are.
fn events(trace: &RequestTrace, pass: Criterion) -> Vec<(u32, u32, What)> {
    let of_pass = trace.events.iter().filter(|event| event.pass == pass);
    of_pass.map(|event| (event.group, event.groups, event.what)).collect()
}

fn passed(why: Why, best: u32) -> What {
    What::Passed { why, best }
}

/// Whether some group was passed by for a reason.
fn has(trace: &RequestTrace, reason: Why) -> bool {
    trace.events.iter().any(|event| matches!(event.what, What::Passed { why, .. } if why == reason))
}

fn not_made(trace: &RequestTrace, pass: Criterion) -> Vec<NotMade> {
    let all = events(trace, pass).into_iter();
    all.filter_map(|(.., what)| if let What::NotMade(why) = what { Some(why) } else { None }).collect()
}

/// Every other run of 16 clusters is free.
fn runs_of_16(_: u32, at: u32) -> bool {
    at / 16 % 2 == 1
}

#[test]
fn nothing_is_recorded_unless_it_is_asked_for() {
    let allocator = patterned(Config { record: None, ..config(Policy::MBALLOC) }, 4, runs_of_16);
    drop(allocator.reserve(&data(0, 8, 8)));
    assert_eq!(allocator.trace(), None);
}

/// Groups have runs of 16 but group 6, which is empty; 64 clusters are asked for at cluster 8.
#[test]
fn every_pass_says_what_it_passed_by_and_what_it_took() {
    let policy = Policy::MBALLOC.with(Mechanism::Goal);
    let allocator = patterned(config(policy), 8, |group, at| group != 6 && runs_of_16(group, at));
    let trace = traced(&allocator, data(8, 60, 60));
    assert_eq!(events(&trace, Criterion::Goal), [(0, 1, What::Scanned { extents: 0, longest: 8 })]);
    assert_eq!(not_made(&trace, Criterion::P2Aligned), [NotMade::NoChunk]);
    // Of groups not loaded only the number of free clusters is known; it promises more than there is.
    assert_eq!(
        events(&trace, Criterion::GoalFast),
        [
            (0, 1, passed(Why::Index, 4)),
            (1, 5, passed(Why::Average, 16)),
            (6, 1, What::Scanned { extents: 1, longest: 1024 }),
            (6, 1, What::Taken { start: 0, len: 60 }),
        ]
    );
    assert_eq!(trace.answer, Answer::Taken { by: Criterion::GoalFast, start: 6 * 1024, len: 60 });
    let asked = trace.asked;
    assert_eq!((asked.data, asked.want, asked.asked, asked.least), (true, 60, 60, 1));
    assert_eq!((asked.goal, asked.group, asked.from), (Some(8), 0, GoalFrom::Caller));
    // Now they are loaded, and the index leaves out what it knows.
    let again = traced(&allocator, data(8, 60, 60));
    assert_eq!(events(&again, Criterion::GoalFast)[0], (0, 6, passed(Why::Index, 4)));
    assert_eq!((again.number, trace.number), (2, 1));
}

#[test]
fn a_trimmed_goal_is_noted_length_by_length() {
    let allocator = patterned(config(Policy::MBALLOC), 4, runs_of_16);
    let trace = traced(&allocator, data(8, 64, 10));
    let trimmed: Vec<_> = trace.events.iter().filter(|event| event.pass == Criterion::BestAvail).collect();
    assert_eq!(trimmed.first().unwrap().need, 32);
    let taken = trimmed.last().unwrap();
    assert_eq!((taken.need, taken.what), (16, What::Taken { start: 0, len: 16 }));
    let whole = traced(&allocator, data(8, 64, 64));
    assert_eq!(not_made(&whole, Criterion::BestAvail), [NotMade::NoTrim]);
}

/// What the counters say is what the events say.
#[test]
fn the_slow_passes_name_every_run_they_look_at() {
    let allocator = patterned(config(Policy::MBALLOC), 4, runs_of_16);
    drop(traced(&allocator, data(8, 256, 200)));
    // More than a group has free: only the last pass looks.
    let trace = traced(&allocator, data(8, 1000, 1000));
    let all = allocator.trace().unwrap().requests;
    let scanned = |pass| -> u32 {
        let extents = |what| if let What::Scanned { extents, .. } = what { extents } else { 0 };
        let events = all.iter().flat_map(|trace| events(trace, pass));
        events.map(|(.., what)| extents(what)).sum()
    };
    let passes = allocator.stats().passes;
    assert_eq!(u64::from(scanned(Criterion::GoalSlow)), passes.goal_slow.extents_scanned);
    assert_eq!(u64::from(scanned(Criterion::AnyFree)), passes.any_free.extents_scanned);
    assert!(passes.goal_slow.extents_scanned > 100, "{passes:#?}");
    assert_eq!(events(&trace, Criterion::GoalSlow), [(0, 4, passed(Why::Free, 512))]);
    assert!(has(&trace, Why::NoBetter), "the longest run of group 0 is as long as any: {trace:#?}");
    let limit = Tunables { mb_max_to_scan: 20, mb_optimize_scan: Some(true), ..Tunables::default() };
    let limited = patterned(Config { tunables: limit, ..config(Policy::MBALLOC) }, 4, runs_of_16);
    let trace = traced(&limited, data(8, 256, 200));
    let ended = events(&trace, Criterion::GoalSlow).into_iter().map(|(.., what)| what);
    assert!(ended.into_iter().any(|what| what == What::Ended(Ended::Enough)), "{trace:#?}");
}

#[test]
fn groups_too_full_or_known_to_be_cut_up_say_so() {
    // Group 2 has 4 free clusters, group 3 runs of 2; the last is empty but for its first cluster.
    let used = |group, at: u32| match group {
        2 => at >= 4,
        3 => at % 4 >= 2,
        5 => at == 0,
        _ => true,
    };
    let policy = Policy::MBALLOC_LINEAR;
    let tunables = Tunables { mb_optimize_scan: Some(false), ..Tunables::default() };
    let allocator = patterned(Config { tunables, ..config(policy) }, 6, used);
    let first = traced(&allocator, data(0, 1024, 1024));
    assert!(has(&first, Why::Free), "{first:#?}");
    assert!(has(&first, Why::Average), "{first:#?}");
}

#[test]
fn chunks_and_the_group_of_directories() {
    let config = Config { flex_groups: 4, ..config(Policy::MBALLOC) };
    let allocator =
        patterned(config, 8, |group, at| if group == 1 { runs_of_16(group, at) } else { at == 0 });
    let trace = traced(&allocator, data(0, 64, 64).on_stream(0));
    // Of group 1 it is known that it has 512 clusters free, until it is loaded.
    assert_eq!(
        events(&trace, Criterion::P2Aligned),
        [
            (0, 1, passed(Why::Directories, 0)),
            (1, 1, passed(Why::Chunk, 16)),
            (2, 1, What::Scanned { extents: 1, longest: 1023 }),
            (2, 1, What::Taken { start: 64, len: 64 }),
        ]
    );
    let again = traced(&allocator, data(0, 64, 64));
    assert!(events(&again, Criterion::P2Aligned).contains(&(1, 1, passed(Why::Index, 6))), "{again:#?}");
}

#[test]
fn classes_keep_requests_apart_and_say_so() {
    let config = Config { flex_groups: 2, cluster_blocks: 16, ..config(Policy::SIZE_CLASS) };
    let allocator = patterned(config, 6, |_, _| false);
    let small = allocator.reserve(&data(0, 2, 2)).unwrap();
    let trace = traced(&allocator, data(0, 64, 64));
    assert_eq!(trace.asked.class, Some(1));
    let stages: Vec<_> = trace.events.iter().map(|event| (event.stage, event.group, event.what)).collect();
    assert_eq!(stages[0], (Stage::Matching, 0, What::NotMade(NotMade::NoUnit)));
    assert!(stages.contains(&(Stage::Unset, 0, passed(Why::Class, 0))), "{trace:#?}");
    let Answer::Taken { start, .. } = trace.answer else { panic!("{trace:#?}") };
    assert_eq!(start, 2048, "the first group of the second flex group");
    drop(small);
    let without = Config { policy: Policy::SIZE_CLASS.without(Mechanism::ClassIndex), ..config };
    let allocator = patterned(without, 6, |_, _| false);
    let _small = allocator.reserve(&data(0, 2, 2)).unwrap();
    assert!(has(&traced(&allocator, data(0, 64, 64)), Why::Class));
}

/// All groups but the last hide what they have; few may be read.
#[test]
fn what_may_not_be_read_any_more_is_passed_by_as_unread() {
    let used = |group: u32, at: u32| if group == 399 { false } else { runs_of_16(group, at) };
    let allocator = patterned(config(Policy::MBALLOC), 400, used);
    let trace = traced(&allocator, data(0, 60, 60));
    assert!(has(&trace, Why::Unread), "{trace:#?}");
}

/// Only the first groups of flex groups have space, which are for directories.
#[test]
fn a_walk_that_comes_to_nothing_too_often_ends() {
    let config = Config { flex_groups: 4, ..config(Policy::MBALLOC) };
    let allocator = patterned(config, 600, |group, _| group % 4 != 0);
    for group in (0..600).map(GroupNr::new) {
        drop(allocator.free_runs(group).unwrap());
    }
    let trace = traced(&allocator, data(2048, 64, 64));
    let events = events(&trace, Criterion::P2Aligned);
    assert_eq!(events.last().unwrap().2, What::Ended(Ended::Patience), "{events:#?}");
    let directories = events.iter().filter(|(.., what)| *what == passed(Why::Directories, 0));
    assert_eq!(directories.count(), 127);
}

/// A disk of which one group can't be read.
struct Broken(Disk);

impl GroupSource for Broken {
    type Error = Unreadable;

    fn load(&self, group: GroupNr) -> Result<Vec<u64>, Unreadable> {
        if group.get() == 1 { Err(Unreadable(group)) } else { self.0.load(group) }
    }

    fn free_hint(&self, group: GroupNr) -> u32 {
        self.0.free_hint(group)
    }
}

#[test]
fn a_group_that_cannot_be_read_is_named() {
    let layout = layout(3);
    let disk = Disk::patterned(layout, |group, _| group.get() == 0);
    let allocator = Allocator::new(Broken(disk), layout, config(Policy::MBALLOC.with(Mechanism::Goal)));
    let trace = traced(&allocator, data(0, 40, 40));
    assert!(
        trace.events.iter().any(|event| { (event.group, event.what) == (1, passed(Why::Unreadable, 0)) })
    );
    let trace = traced(&allocator, data(1024, 40, 40));
    assert!(
        matches!(trace.answer, Answer::Taken { start: 2048.., .. }),
        "the goal's own: {:?}",
        trace.answer
    );
}

#[test]
fn requests_that_come_to_nothing_say_why() {
    let allocator = patterned(config(Policy::MBALLOC.with(Mechanism::Goal)), 2, |_, at| at % 2 == 0);
    let refused = traced(&allocator, data(0, 8, 8).at_least(Clusters::new(2)));
    assert_eq!(refused.answer, Answer::NoSpace);
    let last = refused.events.last().unwrap();
    assert_eq!((last.pass, last.what), (Criterion::AnyFree, passed(Why::Longest, 1)));
    let too_long = traced(&allocator, data(0, 2000, 2000).at_least(Clusters::new(2000)));
    assert_eq!((too_long.answer, too_long.events.len()), (Answer::TooLong, 0));
    let not_there = traced(&allocator, data(0, 1, 1).exactly_at_goal());
    assert_eq!(not_there.answer, Answer::NotAtGoal);
    let stream = traced(&allocator, data(0, 1, 1).on_stream(3));
    assert_eq!((stream.asked.goal, stream.asked.from), (None, GoalFrom::Stream));
    assert_eq!(not_made(&stream, Criterion::Goal), [NotMade::NoGoal]);
    assert_eq!(traced(&allocator, data(1 << 40, 1, 1)).asked.from, GoalFrom::Nowhere);
}

#[test]
fn what_a_file_or_a_thread_has_kept_makes_no_pass() {
    let config = Config { policy: Policy::MBALLOC, record: Some(Recording::LAST), ..Config::default() };
    let layout = Layout::new(32_768, Clusters::new(4 * 32_768)).unwrap();
    let allocator = Allocator::new(Disk::empty(layout), layout, config);
    let (prealloc, window) = (Preallocation::new(config), Arc::<Window>::default());
    let take = |logical, size, continuation: Option<u64>| {
        let request = FileRequest {
            file: 12,
            logical,
            len: Clusters::ONE,
            size,
            continuation: continuation.map(ClusterNr::new),
            right: None,
            home: ClusterNr::new(32_768),
            explicit: false,
            closed: false,
            take_root_reserve: false,
        };
        let taken = prealloc.take(&allocator, &window, &request).unwrap();
        let trace = allocator.trace().unwrap().requests.pop().unwrap();
        assert_eq!(trace.asked.file, Some(12));
        (taken, trace)
    };
    // A small file: its thread's slot is filled by a search from its goal, and the next piece is there.
    let (first, filled) = take(0, 1, None);
    assert_eq!((filled.asked.want, filled.asked.asked, filled.asked.from), (512, 1, GoalFrom::Home));
    let (_second, kept) = take(1, 2, Some(first.run().end().get()));
    assert!(matches!(kept.answer, Answer::Slot { len: 1, .. }), "{kept:#?}");
    assert!(kept.events.is_empty());
    // A large one: a window, and what is kept in it. Its continuation is not free.
    let (third, searched) = take(100, 200, Some(0));
    assert!(matches!(searched.answer, Answer::Taken { .. }), "{searched:#?}");
    assert_eq!(searched.asked.from, GoalFrom::Continuation);
    let (_fourth, kept) = take(101, 200, Some(third.run().end().get()));
    assert_eq!(kept.answer, Answer::Window { start: third.run().end().get(), len: 1 });
}

#[test]
fn many_threads_are_recorded_in_full() {
    let config = Config { record: Some(Recording { requests: 50, events: 1000 }), ..config(Policy::HYBRID) };
    let allocator = patterned(config, 16, runs_of_16);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let allocator = &allocator;
            scope.spawn(move || {
                for request in 0..100 {
                    drop(allocator.reserve(&data(thread * 4096 + request, 8, 8)));
                }
            });
        }
    });
    let trace = allocator.trace().unwrap();
    assert_eq!((trace.requests.len(), trace.overwritten), (50, 350));
    let numbers = trace.requests.iter().map(|request| request.number);
    assert!(numbers.eq(351..=400), "in the order in which they ended");
    for request in &trace.requests {
        let taken = request.events.iter().filter(|event| matches!(event.what, What::Taken { .. })).count();
        assert_eq!((taken, matches!(request.answer, Answer::Taken { .. })), (1, true), "{request:#?}");
    }
}
