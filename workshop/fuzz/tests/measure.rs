//! Measures an input's cost; excess is a failure. One test only, since all threads are measured.

use hectare_fuzz::measure::{Cost, HEAP_BASE, HEAP_PER_BYTE, TIME_BASE, bounded, processor_time};
use std::hint::black_box;
use std::panic::catch_unwind;
use std::thread;
use std::time::Duration;

hectare_fuzz::count_heap!();

fn take(bytes: usize) {
    drop(black_box(Vec::<u8>::with_capacity(bytes)));
}

#[test]
fn an_input_has_limits_of_heap_and_time() {
    let cost = bounded(10, || take(HEAP_BASE + 9 * HEAP_PER_BYTE));
    assert!(cost.heap >= HEAP_BASE && cost.time < TIME_BASE, "{cost:?}");
    let heap = catch_unwind(|| bounded(10, || take(HEAP_BASE + 10 * HEAP_PER_BYTE + 1)));
    assert!(said(heap).starts_with("amplification: 10 bytes took 33555073 bytes of heap, more than"));
    let end = processor_time() + TIME_BASE + Duration::from_millis(100);
    let time = catch_unwind(|| bounded(0, || while processor_time() < end {}));
    assert!(said(time).ends_with("more than 1s"));
}

fn said(ran: thread::Result<Cost>) -> String {
    *ran.expect_err("it is too much").downcast().expect("a formatted message")
}
