//! Buddies beside a naive model, a list of clusters that are free or not.

use super::*;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

/// Whether each cluster is free.
type Model = Vec<bool>;

fn pack(model: &[bool]) -> Vec<u64> {
    let mut words = vec![0; model.len().div_ceil(64)];
    for (at, _) in model.iter().enumerate().filter(|(_, free)| !**free) {
        words[at / 64] |= 1 << (at % 64);
    }
    words
}

fn size(range: &Range<u32>) -> u32 {
    range.end - range.start
}

fn runs(model: &[bool]) -> Vec<Range<u32>> {
    let mut runs: Vec<Range<u32>> = Vec::new();
    for (at, _) in (0_u32..).zip(model).filter(|(_, free)| **free) {
        match runs.last_mut() {
            Some(last) if last.end == at => last.end += 1,
            _ => runs.push(at..at + 1),
        }
    }
    runs
}

/// The chunks by the rule by which the kernel marks a free run: again and again the largest order that the
/// alignment of the start, the length and the highest order allow.
fn chunks(model: &[bool], orders: u32) -> Vec<(u32, u32)> {
    let mut chunks = Vec::new();
    for mut run in runs(model) {
        while run.start < run.end {
            let order = (run.start | 1 << (orders - 1)).trailing_zeros().min(size(&run).ilog2());
            chunks.push((order, run.start));
            run.start += 1 << order;
        }
    }
    chunks
}

fn average(free: u32, fragments: u32, orders: u32) -> Option<u32> {
    let length = free.checked_div(fragments)?;
    let bits = 32 - length.leading_zeros();
    Some(bits.max(2) - 2).map(|order| order.min(orders - 1))
}

/// Compares all that can be seen of the buddies with the model; `at` and `limit` are places to look at.
fn compare(buddy: &Buddy, model: &[bool], orders: u32, at: u32, limit: u32) -> TestCaseResult {
    prop_assert_eq!(buddy.check(), Ok(()));
    let (runs, chunks) = (runs(model), chunks(model, orders));
    let free: u32 = runs.iter().map(size).sum();
    let len = u32::try_from(model.len()).unwrap();
    prop_assert_eq!((buddy.len(), buddy.free(), usize_of(buddy.fragments())), (len, free, runs.len()));
    prop_assert_eq!(buddy.first_free(), runs.first().map_or(len, |run| run.start));
    let mut counters = vec![0; usize_of(orders)];
    chunks.iter().for_each(|(order, _)| counters[usize_of(*order)] += 1);
    prop_assert_eq!(buddy.counters(), counters);
    prop_assert_eq!(buddy.largest_order(), chunks.iter().map(|(order, _)| *order).max());
    prop_assert_eq!(buddy.average_order(), average(free, buddy.fragments(), orders));
    prop_assert_eq!(buddy.longest(), runs.iter().map(size).max().unwrap_or(0));
    for order in 0..orders + 2 {
        let best = chunks.iter().filter(|(k, _)| *k >= order).min().map(|(_, at)| *at);
        prop_assert_eq!(buddy.chunk(order), best, "order {}", order);
    }
    for at in [at, 0, len - 1, len, len + 7] {
        let run = runs.iter().find(|run| run.end > at).map(|run| run.start.max(at)..run.end);
        let seen = run.clone().map(|run| run.start..run.end.min(run.start + limit));
        prop_assert_eq!(buddy.next_run(at, limit), seen);
        let here = run.filter(|run| run.start == at).map_or(0, |run| size(&run).min(limit));
        prop_assert_eq!(buddy.run_at(at, limit), here);
    }
    let mut padded = pack(model);
    if let Some(last) = padded.last_mut().filter(|_| len % 64 > 0) {
        *last |= u64::MAX << (len % 64);
    }
    prop_assert_eq!(buddy.words(), padded);
    Ok(())
}

/// The whole run of equal clusters around a place, clipped on both sides.
fn stretch(model: &[bool], at: usize, cut: (u32, u32)) -> Range<u32> {
    let start = (0..=at).rev().find(|i| model[*i] != model[at]).map_or(0, |i| i + 1);
    let end = (at..model.len()).find(|i| model[*i] != model[at]).unwrap_or(model.len());
    let [start, at, end] = [start, at, end].map(|i| u32::try_from(i).unwrap());
    let before = (at - start).min(cut.0);
    at - before..end.min(at + 1 + cut.1)
}

fn lengths() -> impl Strategy<Value = (usize, u32)> {
    let special =
        prop::sample::select(vec![1, 2, 63, 64, 65, 100, 128, 129, 257, 515, 1000, 8191, 8192, 8195]);
    let lengths = prop_oneof![special, 1_usize..5000];
    (lengths, prop::sample::select(vec![2, 3, 5, 6, 7, 8, 12, 14, 18]))
}

/// Bitmaps made of runs of very different lengths, since independent bits hardly ever leave a long one.
fn bitmap(len: usize) -> impl Strategy<Value = Model> {
    let run = (any::<bool>(), prop_oneof![1_usize..4, 1_usize..70, 1_usize..3000]);
    prop::collection::vec(run, 0..60).prop_map(move |runs| {
        let mut model: Model =
            runs.iter().flat_map(|(free, n)| std::iter::repeat_n(*free, *n)).take(len).collect();
        model.resize(len, true);
        model
    })
}

/// A place as a share of the length, and how far to go from there to both sides.
fn step() -> impl Strategy<Value = (usize, (u32, u32))> {
    let reach = || prop_oneof![4 => 0_u32..4, 2 => 0_u32..70, 1 => 0_u32..40_000];
    (any::<prop::sample::Index>(), (reach(), reach())).prop_map(|(at, cut)| (at.index(1 << 20), cut))
}

fn play(mut model: Model, orders: u32, steps: &[(usize, (u32, u32))]) -> TestCaseResult {
    let len = u32::try_from(model.len()).unwrap();
    let mut buddy = Buddy::new(pack(&model), len, orders);
    compare(&buddy, &model, orders, 0, 1)?;
    for (at, cut) in steps {
        let at = at % model.len();
        let range = stretch(&model, at, *cut);
        let free = model[at];
        if free {
            buddy.take(&range);
        } else {
            buddy.give(&range);
        }
        model[usize_of(range.start)..usize_of(range.end)].fill(!free);
        compare(&buddy, &model, orders, range.start, 1 + cut.1)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_the_model(
        (model, orders) in lengths().prop_flat_map(|(len, orders)| (bitmap(len), Just(orders))),
        steps in prop::collection::vec(step(), 0..30),
    ) {
        play(model, orders, &steps)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_the_model_in_a_large_group(
        model in prop_oneof![Just(32_768), 30_000_usize..40_000].prop_flat_map(bitmap),
        steps in prop::collection::vec(step(), 0..30),
    ) {
        play(model, 14, &steps)?;
    }
}

#[test]
fn an_empty_group_is_made_of_chunks_of_the_highest_order() {
    let buddy = Buddy::new(vec![0; 512], 32_768, 14);
    assert_eq!(buddy.counters(), [[0; 13].as_slice(), &[4]].concat());
    assert_eq!((buddy.largest_order(), buddy.average_order()), (Some(13), Some(13)));
    // The last group of a volume may have any length: 100 = 64 + 32 + 4.
    let buddy = Buddy::new(vec![0; 2], 100, 14);
    assert_eq!(buddy.counters()[..8], [0, 0, 1, 0, 0, 1, 1, 0]);
}

#[test]
fn two_clusters_split_a_chunk_down_and_giving_them_back_joins_it() {
    let mut buddy = Buddy::new(vec![0; 512], 32_768, 14);
    buddy.take(&(8194..8196));
    assert_eq!(buddy.counters(), [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3]);
    assert_eq!((buddy.fragments(), buddy.free()), (2, 32_766));
    assert_eq!(buddy.chunk(3), Some(8200));
    assert_eq!(buddy.next_run(8194, 10), Some(8196..8206));
    buddy.give(&(8194..8196));
    assert_eq!(buddy.counters()[13], 4);
    assert_eq!(buddy.check(), Ok(()));
}

#[test]
fn a_range_may_span_chunks() {
    let mut buddy = Buddy::new(vec![0; 512], 32_768, 14);
    buddy.take(&(1..32_767));
    assert_eq!((buddy.counters()[0], buddy.free(), buddy.fragments(), buddy.first_free()), (2, 2, 2, 0));
    assert_eq!(buddy.check(), Ok(()));
    buddy.take(&(0..1));
    buddy.take(&(32_767..32_768));
    assert_eq!((buddy.free(), buddy.largest_order(), buddy.average_order()), (0, None, None));
    assert_eq!((buddy.first_free(), buddy.chunk(0), buddy.next_run(0, 1)), (32_768, None, None));
    assert_eq!(buddy.check(), Ok(()));
    buddy.give(&(0..32_768));
    assert_eq!((buddy.counters()[13], buddy.fragments(), buddy.first_free()), (4, 1, 0));
    assert_eq!(buddy.check(), Ok(()));
}

#[test]
fn missing_words_are_used_and_bits_beyond_the_end_too() {
    assert_eq!(Buddy::new(vec![0], 100, 14).free(), 64);
    assert_eq!(Buddy::new(vec![0, 0, 0], 100, 14).words(), [0, u64::MAX << 36]);
    assert_eq!(Buddy::new(Vec::new(), 0, 14).check(), Ok(()));
}

#[test]
fn a_cluster_behind_the_last_place_of_an_order_is_not_taken_for_a_chunk() {
    // 64 places of order 1 fill a word; cluster 128 would be in the next.
    let mut buddy = Buddy::new(vec![!0x30f, u64::MAX, 0], 129, 14);
    assert_eq!(buddy.counters()[..3], [1, 1, 1]);
    buddy.take(&(128..129));
    assert_eq!(buddy.check(), Ok(()));
}

#[test]
fn the_largest_group_there_is_has_eighteen_orders() {
    let mut buddy = Buddy::new(vec![0; 8192], 1 << 19, 18);
    assert_eq!((buddy.counters()[17], buddy.largest_order()), (4, Some(17)));
    buddy.take(&(0..1));
    assert_eq!(buddy.counters()[..17], [1; 17]);
    assert_eq!(buddy.check(), Ok(()));
}

/// Breaks something.
type Harm = fn(&mut Buddy);

#[test]
fn check_finds_what_is_wrong() {
    let whole = || Buddy::new(vec![0xf0; 1], 64, 14);
    let broken: [(&str, Harm); 10] = [
        ("is not free", |buddy| buddy.words[0] |= 1 << 20),
        ("not joined", |buddy| buddy.words[0] &= !0x30),
        ("chunk 2 of order 3 and its buddy are not joined", |buddy| {
            buddy.remove(4, 1);
            buddy.insert(3, 2);
            buddy.insert(3, 3);
        }),
        ("the number of chunks of order 2", |buddy| buddy.counters[2] += 1),
        ("the mark of order 7", |buddy| buddy.present |= 1 << 7),
        ("the number of free clusters", |buddy| buddy.free -= 1),
        ("the number of free runs", |buddy| buddy.fragments += 1),
        ("the first free cluster", |buddy| buddy.first_free = 8),
        ("overlaps", |buddy| buddy.insert(1, 0)),
        ("beyond the end", |buddy| buddy.insert(6, 1)),
    ];
    assert_eq!(whole().check(), Ok(()));
    for (what, harm) in broken {
        let mut buddy = whole();
        harm(&mut buddy);
        let error = buddy.check().unwrap_err();
        assert!(error.contains(what), "{error:?} should say {what:?}");
    }
}
