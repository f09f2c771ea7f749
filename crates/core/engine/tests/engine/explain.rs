//! Traces of requests for space, recorded and simulated.

use crate::common::{format_bytes, in_memory_with, pattern};
use hectare_alloc::{Answer, GoalFrom};
use hectare_engine::{Ask, AskGoal, Creation, Error, OpenOptions, Policy, Recording};
use hectare_oracle::skip;
use hectare_units::{BlockNr, Clusters};

fn ask(want: u64, goal: AskGoal) -> Ask {
    Ask { want: Clusters::new(want), asked: Clusters::new(want), least: Clusters::ONE, goal }
}

#[test]
fn a_volume_tells_what_its_requests_went_through_if_it_was_opened_so() {
    let bytes = match format_bytes(&["-t", "ext4", "-b", "4096"], "64M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("explain::a_volume_tells", reason),
    };
    let options = OpenOptions {
        policy: Policy::MBALLOC,
        delayed_bytes: 0,
        record: Some(Recording::LAST),
        ..Default::default()
    };
    let held = in_memory_with(&bytes, options.clone()).unwrap();
    let file = held.volume.create_file("file", Creation::default()).unwrap();
    for step in 0..30 {
        file.write_all_at(step * 8192, &pattern(1, step * 8192, 8192)).unwrap();
    }
    let explanation = held.volume.explanation().unwrap();
    let own =
        explanation.trace.requests.iter().filter(|request| request.asked.file == Some(file.inode().get()));
    let answers: Vec<Answer> = own.map(|request| request.answer).collect();
    // Small at first: from the thread's space. Then a window of its own, and its preallocation.
    for (what, is) in [
        ("a pass", (|answer| matches!(answer, Answer::Taken { .. })) as fn(&Answer) -> bool),
        ("the thread's", |answer| matches!(answer, Answer::Slot { .. })),
        ("the window", |answer| matches!(answer, Answer::Window { .. })),
    ] {
        assert!(answers.iter().any(is), "{what}: {answers:#?}");
    }
    assert_eq!(explanation.policy, "mballoc");
    let silent = in_memory_with(&bytes, OpenOptions { record: None, ..options }).unwrap();
    assert_eq!(silent.volume.explanation(), None);
}

#[test]
fn a_request_is_made_for_nothing_and_changes_nothing() {
    let bytes = match format_bytes(&["-t", "ext4", "-b", "1024"], "64M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("explain::a_request_is_made_for_nothing", reason),
    };
    let (root, policy) = (hectare_units::InodeNr::new(2), Policy::MBALLOC);
    let options = OpenOptions { policy, ..OpenOptions::default() };
    let working = in_memory_with(&bytes, options.clone()).unwrap();
    let refused = working.volume.explain(&ask(8, AskGoal::Behind(root)), &options).unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused}");

    let held = in_memory_with(&bytes, OpenOptions { policy, ..OpenOptions::read_only() }).unwrap();
    let explain = |want, goal| held.volume.explain(&ask(want, goal), &options);
    let at_block = explain(8, AskGoal::Block(BlockNr::new(20_001))).unwrap();
    let [request] = &at_block.trace.requests[..] else { panic!("{at_block:#?}") };
    // Blocks of 1 KiB begin with block 1, clusters with 0.
    assert_eq!((request.asked.goal, at_block.shape.first_block), (Some(20_000), 1));
    assert!(matches!(request.answer, Answer::Taken { len: 8, .. }), "{request:#?}");
    let again = explain(8, AskGoal::Block(BlockNr::new(20_001))).unwrap();
    assert_eq!(again, at_block, "what was taken is forgotten");
    let behind = explain(8, AskGoal::Behind(root)).unwrap();
    assert_eq!(behind.trace.requests[0].asked.from, GoalFrom::Continuation);
    assert!(matches!(explain(8, AskGoal::Block(BlockNr::new(0))), Err(Error::Invalid(_))));
    assert!(matches!(explain(8, AskGoal::Block(BlockNr::new(65_536))), Err(Error::Invalid(_))));
    let most = Ask { least: Clusters::new(9000), ..ask(9000, AskGoal::Behind(root)) };
    let full = held.volume.explain(&most, &options).unwrap();
    assert_eq!(full.trace.requests[0].answer, Answer::TooLong, "a group has 8192");
    assert_eq!(held.device.to_vec(), bytes);
}
