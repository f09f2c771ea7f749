//! The virtual processors by themselves: order, locks, lines, and that a run repeats.

use super::*;
use crate::sync::Cost;
use std::sync::atomic::Ordering;

/// Costs whose sums are all different.
fn costs() -> Costs {
    let ns = |ns: u32| Time::from_ns(ns.into());
    Costs {
        load: ns(1),
        update: ns(10),
        near: ns(100),
        far: ns(1000),
        socket: 2,
        behind_lock: 0,
        request: ns(50),
        group: ns(5),
        extent: ns(3),
        word: ns(2),
        change: ns(20),
        mark: ns(30),
        split: ns(7),
    }
}

/// A lock or an atomic that has its line for itself.
#[repr(align(64))]
#[derive(Default)]
struct Own<T>(T);

fn ns(times: &[Time]) -> Vec<u32> {
    times.iter().map(|time| format!("{}", time.ns()).parse().unwrap()).collect()
}

#[test]
fn what_is_shared_is_used_in_the_order_of_time() {
    let word = Own(AtomicU64::new(0));
    let seen = parking_lot::Mutex::new(Vec::new());
    run(7, &costs(), |cpu| {
        for step in 0..50 {
            // Each CPU at a pace of its own.
            charge(Cost::Word, (cpu * 7 + step * 3) % 11);
            let before = now();
            // A read of a line of one's own: the clock that counts is the one before.
            let mine = Own(AtomicU64::new(0));
            mine.0.load(Ordering::Relaxed);
            seen.lock().push((before, cpu));
            word.0.fetch_add(1, Ordering::Relaxed);
        }
    });
    let seen = seen.into_inner();
    assert_eq!((seen.len(), word.0.load(Ordering::Relaxed)), (350, 350));
    assert!(seen.is_sorted(), "{seen:?}");
    assert!(seen.windows(2).filter(|pair| pair[0].1 != pair[1].1).count() > 100, "they take turns");
}

#[test]
fn one_at_a_time_holds_a_lock() {
    let lock = Own(Mutex::new((0, 0)));
    let ends = run(5, &costs(), |cpu| {
        for _ in 0..40 {
            let mut held = lock.0.lock();
            held.0 += 1;
            assert_eq!(held.0, 1, "CPU {cpu} is not alone");
            charge(Cost::Change, 1 + cpu);
            AtomicU64::new(0).load(Ordering::Relaxed); // others get a chance
            held.0 -= 1;
            held.1 += 1;
        }
    });
    assert_eq!(*lock.0.lock(), (0, 200));
    // All that was done under the lock was done one after the other.
    let held: u32 = (0..5).map(|cpu| (1 + cpu) * 20 * 40).sum();
    assert!(ends.iter().max().unwrap().ns() >= f64::from(held), "{ends:?}");
}

#[test]
fn a_lock_held_costs_the_waiter() {
    let lock = Own(Mutex::new(()));
    let job = |cpu| {
        charge(Cost::Mark, cpu); // CPU 1 comes 30 ns after CPU 0
        let _held = lock.0.lock();
        charge(Cost::Request, 10);
    };
    // CPU 0 takes it (10), works (500), gets the line back that CPU 1 has looked at (100), releases it (10).
    // CPU 1, from then on: the line's way (100), and the same but for the look.
    assert_eq!(ns(&run(2, &costs(), job)), [620, 620 + 100 + 10 + 500 + 10]);
    // What lies behind the lock comes as well.
    let costs = Costs { behind_lock: 3, ..costs() };
    assert_eq!(ns(&run(2, &costs, job)), [620, 620 + 100 + 10 + 300 + 500 + 10]);
}

#[test]
fn a_lock_is_handed_over_in_the_order_of_waiting() {
    let lock = Own(Mutex::new(Vec::new()));
    run(4, &costs(), |cpu| {
        charge(Cost::Group, 3 - cpu);
        let mut held = lock.0.lock();
        held.push(cpu);
        charge(Cost::Request, 1);
    });
    assert_eq!(*lock.0.lock(), [3, 2, 1, 0]);
}

#[test]
fn trying_a_lock_fails_while_it_is_held_at_that_moment() {
    let lock = Own(Mutex::new(()));
    let got = parking_lot::Mutex::new(Vec::new());
    run(3, &costs(), |cpu| match cpu {
        0 => {
            let _held = lock.0.lock();
            charge(Cost::Request, 1); // until 60
        }
        1 => {
            charge(Cost::Request, 1);
            let free = lock.0.try_lock().is_some(); // at 50
            got.lock().push(free);
        }
        _ => {
            charge(Cost::Request, 4);
            let free = lock.0.try_lock().is_some(); // at 200
            got.lock().push(free);
        }
    });
    assert_eq!(*got.lock(), [false, true]);
}

#[test]
fn a_line_costs_by_where_it_was() {
    let word = Own(AtomicU64::new(0));
    let costs_of = |order: &[u32], store: bool| {
        let paid = parking_lot::Mutex::new(vec![0; order.len()]);
        run(4, &costs(), |cpu| {
            for (step, _) in order.iter().enumerate().filter(|(_, who)| **who == cpu) {
                charge(Cost::Request, u32::try_from(step).unwrap() * 100);
                let before = now();
                if store {
                    word.0.store(1, Ordering::Relaxed);
                } else {
                    assert!(word.0.load(Ordering::Relaxed) < 2);
                };
                paid.lock()[step] = ns(&[now()])[0] - ns(&[before])[0];
            }
        });
        paid.into_inner()
    };
    // The first touch is free; then: the same CPU, the same socket, the other socket, and back.
    assert_eq!(costs_of(&[0, 0, 1, 2, 3, 1], true), [1, 1, 101, 1001, 101, 1001]);
    // Copies stay: each CPU pays once, from where the line was written.
    assert_eq!(costs_of(&[0, 1, 2, 1, 2, 0], false), [1, 101, 1001, 1, 1, 1]);
}

#[test]
fn writers_of_one_line_wait_in_a_row() {
    let word = Own(AtomicU64::new(0));
    let ends = run(4, &Costs { socket: 4, ..costs() }, |_| {
        word.0.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(ns(&ends), [10, 110, 210, 310]);
}

#[test]
fn a_run_is_the_same_twice() {
    let once = || {
        let words: Vec<_> = (0..8).map(|_| Own(AtomicU64::new(0))).collect();
        let locks: Vec<_> = (0..4).map(|_| Own(Mutex::new(0_u64))).collect();
        let ends = run(16, &costs(), |cpu| {
            let mut draw = u64::from(cpu);
            for _ in 0..200 {
                draw = draw.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                let at = hectare_units::index_of(draw >> 60);
                match at {
                    0..8 => drop(words[at].0.fetch_add(draw, Ordering::Relaxed)),
                    8..12 => *locks[at % 4].0.lock() ^= draw,
                    _ => drop(locks[at % 4].0.try_lock().map(|mut held| *held = held.rotate_left(3) ^ draw)),
                }
            }
        });
        (ends, locks.iter().map(|lock| *lock.0.lock()).collect::<Vec<_>>())
    };
    assert_eq!(once(), once());
}

#[test]
fn a_job_knows_its_number_and_outside_a_run_nothing_is_paid() {
    let numbers = parking_lot::Mutex::new(Vec::new());
    run(3, &costs(), |_| numbers.lock().push(thread_number()));
    assert_eq!(*numbers.lock(), [0, 1, 2]);
    let lock = Mutex::new(1);
    let held = lock.lock();
    assert!(lock.try_lock().is_none());
    drop(held);
    charge(Cost::Request, 1);
    assert_eq!((now(), lock.try_lock().map(|held| *held)), (Time::ZERO, Some(1)));
}

#[test]
#[should_panic(expected = "in a circle")]
fn jobs_that_wait_for_each_other_are_found() {
    let locks = [Own(Mutex::new(())), Own(Mutex::new(()))];
    run(2, &costs(), |cpu| {
        let first = hectare_units::usize_of(cpu);
        let _held = locks[first].0.lock();
        let _both = locks[1 - first].0.lock();
    });
}

#[test]
fn a_panic_of_a_job_ends_the_run_and_the_next_one_works() {
    let lock = Own(Mutex::new(0));
    let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        run(3, &costs(), |cpu| {
            let _held = lock.0.lock();
            charge(Cost::Request, 1);
            assert_ne!(cpu, 1, "as it was meant");
        });
    }));
    assert!(broken.is_err());
    run(3, &costs(), |_| *lock.0.lock() += 1);
    assert_eq!((*lock.0.lock(), now()), (3, Time::ZERO));
}
