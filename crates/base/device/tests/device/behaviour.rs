//! One suite for every backend and every stack of layers: each `Device` must pass all of it.
//!
//! A stack that this machine cannot make (no direct I/O on the host file system, no loop devices without
//! root) is skipped by name.

mod stacks;

use hectare_device::{Device, Operation, Reason};
use hectare_units::Bytes;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use stacks::{SIZE, Stack, for_each_stack};
use std::fs::File;
use std::io::{IoSlice, Write};
use std::os::fd::AsFd;

/// Bytes that differ from their neighbours and from what another seed gives.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..len).map(step).collect()
}

fn read(device: &dyn Device, at: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0xee; len];
    device.read_at(Bytes::new(at), &mut buf).unwrap();
    buf
}

fn source_file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

#[test]
fn what_is_written_is_read_at_any_offset_and_length() {
    for_each_stack(|stack| {
        let device = stack.device();
        for (seed, (at, len)) in
            [(0, 1), (0, 512), (4095, 2), (1, 4096), (511, 70_000), (65_535, 65_538), (SIZE - 1, 1)]
                .into_iter()
                .enumerate()
        {
            let data = pattern(seed as u64, len);
            device.write_at(Bytes::new(at), &data).unwrap();
            assert!(read(device, at, len) == data, "{}: {len} bytes at {at}", stack.name);
        }
        device.flush().unwrap();
    });
}

#[test]
fn a_fresh_device_that_says_so_reads_as_zeros() {
    for_each_stack(|stack| {
        let device = stack.device();
        assert_eq!(device.len(), Bytes::new(SIZE), "{}", stack.name);
        if device.is_zeroed() {
            assert!(read(device, 0, SIZE as usize).iter().all(|b| *b == 0), "{}", stack.name);
        }
    });
}

#[test]
fn several_buffers_land_one_after_the_other() {
    for_each_stack(|stack| {
        let device = stack.device();
        let data = pattern(1, 400_000);
        // More parts than one system call takes, some of them empty, of all sizes.
        let mut rest = &data[..];
        let mut parts = Vec::new();
        for n in (0..).map(|n: usize| n * 37 % 1500) {
            let (part, after) = rest.split_at(n.min(rest.len()));
            parts.push(IoSlice::new(part));
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        assert!(parts.len() > 500);
        device.write_all_at(Bytes::new(333), &parts).unwrap();
        assert!(read(device, 333, data.len()) == data, "{}", stack.name);
        device.write_all_at(Bytes::new(SIZE), &[]).unwrap();
        let error = device.write_all_at(Bytes::new(SIZE - 5), &parts[..9]).unwrap_err();
        assert!(matches!(error.reason(), Reason::OutOfRange(_)), "{}: {error}", stack.name);
    });
}

#[test]
fn a_durable_write_is_a_write() {
    for_each_stack(|stack| {
        let device = stack.device();
        let data = pattern(8, 20_000);
        for (at, len, part_len) in
            [(4096, 4096, 4096), (8192, 12_288, 1000), (77, 20_000, 7000), (SIZE, 0, 1)]
        {
            let parts: Vec<_> = data[..len].chunks(part_len).map(IoSlice::new).collect();
            device.write_durable(Bytes::new(at), &parts).unwrap();
            assert!(read(device, at, len) == data[..len], "{}: {len} bytes at {at}", stack.name);
        }
        let error = device.write_durable(Bytes::new(SIZE - 1), &[IoSlice::new(b"xx")]).unwrap_err();
        assert!(matches!(error.reason(), Reason::OutOfRange(_)), "{}: {error}", stack.name);
    });
}

#[test]
fn nothing_reaches_beyond_the_end() {
    for_each_stack(|stack| {
        let device = stack.device();
        device.write_at(Bytes::new(SIZE - 4), b"last").unwrap();
        let source = source_file(b"12345678");
        for at in [SIZE - 3, SIZE, SIZE + 1, u64::MAX - 3, u64::MAX] {
            let (at, len) = (Bytes::new(at), Bytes::new(4));
            let errors = [
                device.read_at(at, &mut [0; 4]).unwrap_err(),
                device.write_at(at, b"xxxx").unwrap_err(),
                device.write_all_at(at, &[IoSlice::new(b"xx"), IoSlice::new(b"xx")]).unwrap_err(),
                device.zero(at, len).unwrap_err(),
                device.discard(at, len).unwrap_err(),
                device.copy_from(at, source.as_fd(), Bytes::ZERO, len).unwrap_err(),
                device.copy_within(at, Bytes::ZERO, len).unwrap_err(),
                device.copy_within(Bytes::ZERO, at, len).unwrap_err(),
            ];
            for error in errors {
                assert_eq!(*error.reason(), Reason::OutOfRange(Bytes::new(SIZE)), "{}", stack.name);
                let text = error.to_string();
                assert!(text.contains(&format!("4 bytes at byte {at}: ")), "{text}");
                assert!(text.starts_with(device.name()) && !text.contains('\n'), "{text}");
            }
        }
        device.zero(Bytes::new(5), Bytes::new(u64::MAX)).unwrap_err();
        assert_eq!(read(device, SIZE - 4, 4), b"last", "{}", stack.name);
        assert_eq!(device.len(), Bytes::new(SIZE));
    });
}

#[test]
fn empty_operations_do_nothing_up_to_the_end() {
    for_each_stack(|stack| {
        let device = stack.device();
        let source = source_file(b"");
        for at in [0, 1, SIZE] {
            let at = Bytes::new(at);
            device.read_at(at, &mut []).unwrap();
            device.write_at(at, &[]).unwrap();
            device.zero(at, Bytes::ZERO).unwrap();
            device.discard(at, Bytes::ZERO).unwrap();
            assert_eq!(device.copy_from(at, source.as_fd(), Bytes::ZERO, Bytes::ZERO).unwrap(), Bytes::ZERO);
        }
        device.read_at(Bytes::new(SIZE + 1), &mut []).expect_err(&stack.name);
    });
}

#[test]
fn zeroed_ranges_read_as_zeros_and_their_neighbours_stay() {
    for_each_stack(|stack| {
        let device = stack.device();
        for (at, len) in [(4096, 4096), (100, 50), (511, 514), (65_000, 200_000), (0, 1), (0, SIZE)] {
            let mut expected = pattern(at + len, SIZE as usize);
            device.write_at(Bytes::ZERO, &expected).unwrap();
            device.zero(Bytes::new(at), Bytes::new(len)).unwrap();
            expected[at as usize..(at + len) as usize].fill(0);
            assert!(read(device, 0, SIZE as usize) == expected, "{}: {len} bytes at {at}", stack.name);
        }
    });
}

#[test]
fn discarding_leaves_the_rest_alone_and_the_range_usable() {
    for_each_stack(|stack| {
        let device = stack.device();
        let all = pattern(3, SIZE as usize);
        device.write_at(Bytes::ZERO, &all).unwrap();
        let (at, len) = (10_000, 300_001);
        device.discard(Bytes::new(at), Bytes::new(len)).unwrap();
        let (before, end) = (at as usize, (at + len) as usize);
        assert!(read(device, 0, before) == all[..before], "{}", stack.name);
        assert!(read(device, at + len, all.len() - end) == all[end..], "{}", stack.name);
        device.write_at(Bytes::new(at), &all[before..end]).unwrap();
        assert!(read(device, 0, all.len()) == all, "{}", stack.name);
    });
}

#[test]
fn copying_within_a_device_moves_what_it_has() {
    for_each_stack(|stack| {
        let device = stack.device();
        for (from, to, len) in [(0, 700_000, 300_000), (524_288, 65_536, 131_072), (1001, 7, 500), (5, 90, 0)]
        {
            let mut expected = pattern(from + len, SIZE as usize);
            device.write_at(Bytes::ZERO, &expected).unwrap();
            device.copy_within(Bytes::new(from), Bytes::new(to), Bytes::new(len)).unwrap();
            expected.copy_within(from as usize..(from + len) as usize, to as usize);
            assert!(read(device, 0, SIZE as usize) == expected, "{}: {len} bytes at {from}", stack.name);
        }
    });
}

#[test]
fn copying_takes_what_the_source_has() {
    let bytes = pattern(4, 300_000);
    for_each_stack(|stack| {
        let device = stack.device();
        let source = source_file(&bytes);
        let copy = |at: u64, source_at: u64, len: u64| {
            let copied =
                device.copy_from(Bytes::new(at), source.as_fd(), Bytes::new(source_at), Bytes::new(len));
            copied.unwrap().get()
        };
        assert_eq!(copy(4096, 0, 300_000), 300_000);
        assert!(read(device, 4096, 300_000) == bytes, "{}", stack.name);
        assert_eq!(copy(77, 1234, 100_001), 100_001);
        assert!(read(device, 77, 100_001) == bytes[1234..101_235], "{}", stack.name);
        // The source ends early, or has ended before.
        device.write_at(Bytes::ZERO, &[9; 64]).unwrap();
        assert_eq!(copy(10, 299_990, 5000), 10);
        assert!(read(device, 10, 10) == bytes[299_990..], "{}", stack.name);
        assert_eq!(copy(0, 300_000, 64) + copy(0, 400_000, 64), 0);
        assert_eq!(read(device, 0, 10), [9; 10], "{}", stack.name);
        assert_eq!(read(device, 20, 10), [9; 10], "{}", stack.name);
    });
}

#[test]
fn a_source_that_cannot_be_read_is_named_as_the_cause() {
    for_each_stack(|stack| {
        let directory = File::open("/").unwrap();
        let error = stack
            .device()
            .copy_from(Bytes::ZERO, directory.as_fd(), Bytes::ZERO, Bytes::new(10))
            .unwrap_err();
        assert!(matches!(error.reason(), Reason::Source(_)), "{}: {error}", stack.name);
        assert_eq!(error.operation(), Operation::Copy);
    });
}

#[test]
fn growing_reveals_zeros_and_shrinking_forgets() {
    for_each_stack(|stack| {
        let device = stack.device();
        device.write_at(Bytes::ZERO, &pattern(5, SIZE as usize)).unwrap();
        let (small, large) = (SIZE / 2 - 4096, SIZE * 2);
        match device.resize(Bytes::new(small)) {
            Ok(()) => {}
            Err(error) => {
                assert!(matches!(error.reason(), Reason::Unsupported(_)), "{}: {error}", stack.name);
                assert_eq!(device.len(), Bytes::new(SIZE));
                return;
            }
        }
        assert_eq!(device.len(), Bytes::new(small));
        device.read_at(Bytes::new(small), &mut [0]).unwrap_err();
        device.resize(Bytes::new(large)).unwrap();
        assert!(read(device, small, (large - small) as usize).iter().all(|b| *b == 0), "{}", stack.name);
        assert!(read(device, 0, small as usize) == pattern(5, SIZE as usize)[..small as usize]);
        device.write_at(Bytes::new(large - 1), b"!").unwrap();
    });
}

#[test]
fn threads_writing_side_by_side_do_not_disturb_each_other() {
    const THREADS: u64 = 4;
    for_each_stack(|stack| {
        let device = stack.device();
        device.zero(Bytes::ZERO, Bytes::new(SIZE)).unwrap();
        // Stripes of 100 bytes: every sector is shared by several threads.
        let stripe = |n: u64| pattern(n + 1, 100);
        let stripes = 60;
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    for n in (thread..stripes).step_by(THREADS as usize) {
                        device.write_at(Bytes::new(n * 100), &stripe(n)).unwrap();
                        let aligned = Bytes::new(65_536 + n * 4096);
                        device.write_at(aligned, &vec![thread as u8 + 1; 4096]).unwrap();
                        assert!(read(device, n * 100, 100) == stripe(n));
                    }
                });
            }
        });
        for n in 0..stripes {
            assert!(read(device, n * 100, 100) == stripe(n), "{}: stripe {n}", stack.name);
            let block = read(device, 65_536 + n * 4096, 4096);
            assert!(block.iter().all(|b| u64::from(*b) == n % THREADS + 1), "{}: block {n}", stack.name);
        }
    });
}

#[derive(Clone, Debug)]
enum Op {
    Write { at: u64, len: usize, seed: u64 },
    Vectored { at: u64, lens: Vec<usize>, seed: u64 },
    Zero { at: u64, len: u64 },
    Discard { at: u64, len: u64 },
    Copy { at: u64, source_at: u64, len: u64 },
    Read { at: u64, len: usize },
    Flush,
}

/// Offsets near the borders of sectors, pages and chunks as often as anywhere.
fn offset() -> impl Strategy<Value = u64> {
    let border = (0..SIZE / 512, -2_i64..3)
        .prop_map(|(n, off)| (n * 512).checked_add_signed(off).unwrap_or(0).min(SIZE));
    let page = (0..SIZE / 4096).prop_map(|n| n * 4096);
    prop_oneof![0..=SIZE, border, page]
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..5000_u64, 2 => (0..40_u64).prop_map(|n| n * 512), 1 => 0..SIZE]
}

fn op() -> impl Strategy<Value = Op> {
    let fit = |at: u64, len: u64| len.min(SIZE - at);
    let range = || (offset(), length()).prop_map(move |(at, len)| (at, fit(at, len)));
    prop_oneof![
        4 => (range(), any::<u64>())
            .prop_map(|((at, len), seed)| Op::Write { at, len: len as usize, seed }),
        1 => (0..SIZE / 2, prop::collection::vec(0..3000_usize, 0..20), any::<u64>())
            .prop_map(|(at, lens, seed)| Op::Vectored { at, lens, seed }),
        2 => range().prop_map(|(at, len)| Op::Zero { at, len }),
        1 => range().prop_map(|(at, len)| Op::Discard { at, len }),
        1 => (range(), 0..200_000_u64).prop_map(|((at, len), source_at)| Op::Copy { at, source_at, len }),
        3 => range().prop_map(|(at, len)| Op::Read { at, len: len as usize }),
        1 => Just(Op::Flush),
    ]
}

/// What the device must hold; `None` where the content is undefined.
struct Model(Vec<Option<u8>>);

impl Model {
    fn set(&mut self, at: u64, data: &[u8]) {
        for (slot, byte) in self.0[at as usize..].iter_mut().zip(data) {
            *slot = Some(*byte);
        }
    }

    fn check(&self, at: u64, found: &[u8]) -> Result<(), TestCaseError> {
        let wrong =
            self.0[at as usize..].iter().zip(found).position(|(want, got)| want.is_some_and(|w| w != *got));
        prop_assert!(wrong.is_none(), "byte {} differs", at as usize + wrong.unwrap_or_default());
        Ok(())
    }
}

fn run(stack: &Stack, ops: &[Op], source: &File, source_bytes: &[u8]) -> Result<(), TestCaseError> {
    let device = stack.device();
    device.zero(Bytes::ZERO, Bytes::new(SIZE)).unwrap();
    let mut model = Model(vec![Some(0); SIZE as usize]);
    for op in ops {
        match op {
            Op::Write { at, len, seed } => {
                let data = pattern(*seed, *len);
                device.write_at(Bytes::new(*at), &data).unwrap();
                model.set(*at, &data);
            }
            Op::Vectored { at, lens, seed } => {
                let parts: Vec<_> = lens.iter().map(|len| pattern(*seed, *len)).collect();
                let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
                device.write_all_at(Bytes::new(*at), &slices).unwrap();
                model.set(*at, &parts.concat());
            }
            Op::Zero { at, len } => {
                device.zero(Bytes::new(*at), Bytes::new(*len)).unwrap();
                model.set(*at, &vec![0; *len as usize]);
            }
            Op::Discard { at, len } => {
                device.discard(Bytes::new(*at), Bytes::new(*len)).unwrap();
                model.0[*at as usize..(at + len) as usize].fill(None);
            }
            Op::Copy { at, source_at, len } => {
                let (to, from) = (Bytes::new(*at), Bytes::new(*source_at));
                let copied = device.copy_from(to, source.as_fd(), from, Bytes::new(*len)).unwrap().get();
                let there = source_bytes.get(*source_at as usize..).unwrap_or_default();
                prop_assert_eq!(copied, (*len).min(there.len() as u64));
                model.set(*at, &there[..copied as usize]);
            }
            Op::Read { at, len } => model.check(*at, &read(device, *at, *len))?,
            Op::Flush => device.flush().unwrap(),
        }
    }
    model.check(0, &read(device, 0, SIZE as usize))
}

#[test]
fn random_operations_agree_with_a_plain_vector() {
    let source_bytes = pattern(99, 150_000);
    for_each_stack(|stack| {
        let source = source_file(&source_bytes);
        let config = Config { cases: 24, failure_persistence: None, ..Config::default() };
        let ops = prop::collection::vec(op(), 1..40);
        let result = TestRunner::new(config).run(&ops, |ops| run(stack, &ops, &source, &source_bytes));
        if let Err(error) = result {
            panic!("{}: {error}", stack.name);
        }
    });
}
