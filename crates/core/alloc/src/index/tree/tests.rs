//! Tests of the tree: against a set of numbers, under both schedule explorers, and with real threads.
//!
//! What the concurrent ones assert, with `steady` a number that is in the set from before the search until
//! after it: the search from anywhere at or below it answers with a number that is no greater.

use super::*;

#[cfg(not(any(feature = "loom", feature = "shuttle")))]
mod alone {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    #[derive(Clone, Debug)]
    enum Op {
        Set(u32),
        Clear(u32),
        Next(u32, u32),
    }

    fn ops(len: u32) -> impl Strategy<Value = Vec<Op>> {
        // Numbers are drawn from few nodes as well as from all of them, so that nodes fill and empty.
        let number = prop_oneof![0..len, (0..len).prop_map(move |n| n % 700 * 97 % len)];
        let op = prop_oneof![
            3 => number.clone().prop_map(Op::Set),
            3 => number.clone().prop_map(Op::Clear),
            2 => (number.clone(), number).prop_map(|(from, end)| Op::Next(from, end)),
        ];
        proptest::collection::vec(op, 1..300)
    }

    fn agrees<const WORDS: usize>(len: u32, all_set: bool, ops: &[Op]) {
        let tree = Tree::<WORDS>::new(len, all_set);
        let mut model: BTreeSet<u32> = if all_set { (0..len).collect() } else { BTreeSet::new() };
        tree.check().unwrap();
        for op in ops {
            match *op {
                Op::Set(i) => {
                    tree.set(i);
                    model.insert(i);
                    assert!(tree.get(i));
                }
                Op::Clear(i) => {
                    tree.clear(i);
                    model.remove(&i);
                    assert!(!tree.get(i));
                }
                Op::Next(from, end) => {
                    assert_eq!(tree.next(from), model.range(from..).next().copied());
                    let within = model.range(from..).next().copied().filter(|found| *found < end);
                    assert_eq!(tree.next_before(from, end), within);
                }
            }
        }
        assert_eq!(usize_of(tree.count()), model.len());
        // Emptied in order, every entry must go with its node.
        for i in model {
            assert_eq!(tree.next(0), Some(i));
            tree.clear(i);
        }
        assert_eq!(tree.next(0), None);
        tree.check().unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn one_level_agrees_with_a_set(ops in ops(64), all_set: bool) {
            agrees::<1>(64, all_set, &ops);
            agrees::<8>(64, all_set, &ops);
        }

        #[test]
        fn two_levels_agree_with_a_set(ops in ops(1999), all_set: bool) {
            agrees::<1>(1999, all_set, &ops);
            agrees::<8>(1999, all_set, &ops);
        }

        #[test]
        fn four_levels_agree_with_a_set(ops in ops(70_001), all_set: bool) {
            agrees::<1>(70_001, all_set, &ops);
            agrees::<2>(70_001, all_set, &ops);
        }
    }

    #[test]
    fn thirty_million_numbers_make_three_levels() {
        let tree = BitTree::new(30_000_000, false);
        assert_eq!(tree.levels.len(), 3);
        tree.set(29_999_999);
        assert_eq!(tree.next(0), Some(29_999_999));
        assert_eq!(tree.next_before(0, 29_999_999), None);
        tree.clear(29_999_999);
        assert_eq!((tree.next(0), tree.count()), (None, 0));
    }

    #[test]
    fn nodes_lie_on_cache_lines() {
        let tree = BitTree::new(100_000, false);
        for level in 0..tree.levels.len() {
            assert_eq!(tree.node(level, 0).as_ptr().addr() % LINE, 0);
        }
    }

    #[test]
    #[should_panic(expected = "bit 10 of a tree of 10")]
    fn a_number_beyond_the_end_is_refused() {
        BitTree::new(10, true).set(10);
    }

    /// Threads set and clear each their own numbers, in turn alone in their nodes and not, and look at what
    /// they have set, while others do the same beside them.
    #[test]
    fn threads_find_what_they_have_set() {
        const THREADS: u32 = 4;
        const LEN: u32 = 64 * 32 * 2; // three levels of one-word nodes
        let tree = Tree::<1>::new(LEN, false);
        let steady = LEN - 1;
        tree.set(steady);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let tree = &tree;
                    scope.spawn(move || {
                        for round in 0..40_000_u32 {
                            let i = (round % 5) * 64 * 8 + thread;
                            tree.set(i);
                            for from in [0, i.saturating_sub(70), i] {
                                let found = tree.next(from).expect("a number that is in the set");
                                assert!(
                                    found <= i,
                                    "thread {thread} set {i}, a search from {from} passed it"
                                );
                            }
                            tree.clear(i);
                            assert!(!tree.get(i));
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert!(tree.next(0).is_some_and(|found| found <= steady));
                    assert!(tree.next(5 * 64 * 8).is_some_and(|found| found == steady));
                }
            });
            for worker in workers {
                worker.join().unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!((tree.next(0), tree.count()), (Some(steady), 1));
        tree.check().unwrap();
    }
}

/// All schedules and all values that weak memory allows, over trees of one-word nodes.
#[cfg(all(feature = "loom", not(feature = "shuttle")))]
mod every_schedule {
    use super::*;
    use crate::sync::{Arc, thread};

    fn explore(preemptions: Option<usize>, run: impl Fn() + Sync + Send + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = preemptions;
        model.check(run);
    }

    /// Runs some of the steps in threads of their own and the last in this one, then checks the tree.
    fn beside<const WORDS: usize>(
        tree: Tree<WORDS>,
        others: Vec<fn(&Tree<WORDS>)>,
        here: fn(&Tree<WORDS>),
    ) -> Arc<Tree<WORDS>> {
        let tree = Arc::new(tree);
        let threads: Vec<_> = others
            .into_iter()
            .map(|other| {
                let tree = Arc::clone(&tree);
                thread::spawn(move || other(&tree))
            })
            .collect();
        here(&tree);
        for thread in threads {
            thread.join().unwrap();
        }
        tree.check().unwrap();
        tree
    }

    /// Two nodes and one above them, with number 1 in the set.
    fn pair() -> Tree<1> {
        let tree = Tree::new(128, false);
        tree.set(1);
        tree
    }

    /// 33 nodes below two, below one.
    fn three_levels() -> Tree<1> {
        Tree::new(64 * 32 + 64, false)
    }

    #[test]
    fn a_neighbour_set_while_the_node_is_closed_is_seen() {
        explore(None, || {
            let set_and_look = |tree: &Tree<1>| {
                tree.set(5);
                assert!(tree.next(0).is_some_and(|found| found <= 5));
                assert_eq!(tree.next(2), Some(5));
            };
            let tree = beside(pair(), vec![|tree| tree.clear(1)], set_and_look);
            assert_eq!(tree.next(0), Some(5));
        });
    }

    #[test]
    fn what_another_thread_was_told_of_is_seen() {
        explore(None, || {
            // The lower entry is made by one thread and found by the other, which must not rely on the first
            // to have made the upper one. The search comes from under another node of the middle level.
            let set_and_look = |tree: &Tree<1>| {
                tree.set(64 * 32 + 3);
                assert!(tree.next(0).is_some_and(|found| found <= 64 * 32 + 3));
            };
            let tree = beside(three_levels(), vec![|tree| tree.set(64 * 32 + 4)], set_and_look);
            assert_eq!((tree.next(0), tree.count()), (Some(64 * 32 + 3), 2));
        });
    }

    #[test]
    fn a_node_emptied_while_it_is_closed_leaves_nothing() {
        explore(None, || {
            let set_and_clear = |tree: &Tree<1>| {
                tree.set(5);
                tree.clear(5);
            };
            let tree = beside(pair(), vec![|tree| tree.clear(1)], set_and_clear);
            assert_eq!(tree.next(0), None);
        });
    }

    #[test]
    fn nodes_of_two_levels_emptied_leave_nothing() {
        explore(None, || {
            let tree = three_levels();
            tree.set(1);
            tree.set(70);
            let tree = beside(tree, vec![|tree| tree.clear(1)], |tree| tree.clear(70));
            assert_eq!(tree.next(0), None);
        });
    }

    #[test]
    fn a_stale_closer_takes_nothing_away() {
        explore(None, || {
            // The node is emptied twice while a closer may be stopped at any point of its first try.
            let back_and_forth = |tree: &Tree<1>| {
                tree.set(5);
                assert_eq!(tree.next(2), Some(5));
                tree.clear(5);
                tree.set(6);
                assert_eq!(tree.next(2), Some(6));
            };
            let tree = beside(pair(), vec![|tree| tree.clear(1)], back_and_forth);
            assert_eq!(tree.next(0), Some(6));
        });
    }

    #[test]
    fn two_who_clear_the_last_two_leave_nothing() {
        explore(None, || {
            let tree = pair();
            tree.set(2);
            let tree = beside(tree, vec![|tree| tree.clear(1)], |tree| tree.clear(2));
            assert_eq!(tree.next(0), None);
        });
    }

    #[test]
    fn two_who_clear_the_last_words_of_a_node_leave_nothing() {
        explore(None, || {
            let tree: Tree<2> = Tree::new(256, false);
            tree.set(1);
            tree.set(65);
            let tree = beside(tree, vec![|tree| tree.clear(1)], |tree| tree.clear(65));
            assert_eq!(tree.next(0), None);
        });
    }

    #[test]
    fn a_bit_cleared_before_its_setter_was_done_leaves_nothing() {
        explore(None, || {
            let tree =
                beside(Tree::new(128, false), vec![|tree: &Tree<1>| tree.set(3)], |tree| tree.clear(3));
            let left = tree.get(3).then_some(3);
            assert_eq!(tree.next(0), left);
        });
    }

    #[test]
    fn a_steady_number_is_never_passed() {
        explore(Some(4), || {
            let tree = pair();
            tree.set(100);
            let tree = beside(tree, vec![|tree| tree.clear(1), |tree| tree.set(2)], |tree| {
                assert!(tree.next(0).is_some_and(|found| found <= 100));
            });
            assert_eq!((tree.next(0), tree.count()), (Some(2), 2));
        });
    }

    #[test]
    fn closing_three_levels_hides_nothing() {
        explore(None, || {
            // Clearing closes both levels while the other goes up through them.
            let tree = three_levels();
            tree.set(1);
            let set_and_look = |tree: &Tree<1>| {
                tree.set(70);
                assert!(tree.next(0).is_some_and(|found| found <= 70));
                assert_eq!(tree.next(64), Some(70));
            };
            let tree = beside(tree, vec![|tree| tree.clear(1)], set_and_look);
            assert_eq!(tree.next(0), Some(70));
        });
    }

    #[test]
    fn three_who_fill_and_empty_a_node() {
        explore(Some(4), || {
            // Includes this: one is stopped between looking and saying EMPTY, a second closes the same entry
            // anew, and a third has found it FULL in between.
            let tree = beside(
                pair(),
                vec![|tree| tree.clear(1), |tree| {
                    tree.set(2);
                    assert!(tree.next(2).is_some_and(|found| found == 2));
                    tree.clear(2);
                }],
                |tree| {
                    tree.set(3);
                    assert!(tree.next(3).is_some_and(|found| found == 3));
                },
            );
            assert_eq!((tree.next(0), tree.count()), (Some(3), 1));
        });
    }
}

/// Random schedules over longer runs.
#[cfg(feature = "shuttle")]
mod random_schedules {
    use super::*;
    use crate::sync::{Arc, thread};

    /// Three threads fill and empty nodes of two levels, and look at what they have set.
    fn fill_and_empty() {
        let tree = Arc::new(Tree::<1>::new(64 * 33, false));
        let steady = 64 * 33 - 1;
        tree.set(steady);
        let threads: Vec<_> = (0..3_u32)
            .map(|thread| {
                let tree = Arc::clone(&tree);
                thread::spawn(move || {
                    for round in 0..6 {
                        let i = (round % 2) * 64 + thread;
                        tree.set(i);
                        assert!(tree.next(i).is_some_and(|found| found == i));
                        assert!(tree.next(0).is_some_and(|found| found <= i));
                        tree.clear(i);
                        assert!(tree.next(i).is_some_and(|found| found <= steady));
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!((tree.next(0), tree.count()), (Some(steady), 1));
        tree.check().unwrap();
    }

    /// All threads set and clear the same numbers; whatever is left, the entries agree with it.
    fn quarrel() {
        let tree = Arc::new(Tree::<1>::new(128, false));
        let threads: Vec<_> = (0..3_u32)
            .map(|thread| {
                let tree = Arc::clone(&tree);
                thread::spawn(move || {
                    for round in 0..6 {
                        let i = (round + thread) % 2 * 64;
                        if (round + thread) % 3 == 0 { tree.clear(i) } else { tree.set(i) }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        tree.check().unwrap();
    }

    #[test]
    fn random() {
        shuttle::check_random(fill_and_empty, 3000);
        shuttle::check_random(quarrel, 3000);
    }

    #[test]
    fn pct() {
        shuttle::check_pct(fill_and_empty, 3000, 4);
        shuttle::check_pct(quarrel, 3000, 4);
    }
}
