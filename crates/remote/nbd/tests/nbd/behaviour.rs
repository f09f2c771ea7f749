//! What any device must do, tried on one with random operations beside a model.

use hectare_device::{Device, Span};
use hectare_units::random::SplitMix64;
use hectare_units::{Bytes, index_of};
use std::io::IoSlice;

/// Random operations on a device of zeros, each beside a model; `unit` is that of places and lengths.
pub(crate) fn behaves(device: &dyn Device, seed: u64, steps: u32, unit: u64) {
    let len = device.len().get();
    let mut model = vec![0_u8; index_of(len)];
    let mut random = SplitMix64::new(seed);
    for step in 0..steps {
        let longest = if random.below(8) == 0 { len.min(3 << 20) } else { 40_000 };
        let count = (random.below(longest) / unit * unit).min(len);
        let at = random.below(len - count + 1) / unit * unit;
        let range = index_of(at)..index_of(at + count);
        let (place, long) = (Bytes::new(at), Bytes::new(count));
        let data: Vec<u8> =
            (0..count).map(|n| u8::try_from((n * 7 + u64::from(step)) % 251).unwrap()).collect();
        match random.below(10) {
            0 | 1 => {
                device.write_at(place, &data).unwrap();
                model[range].copy_from_slice(&data);
            }
            2 => {
                let (a, b) = data.split_at(data.len() / 3);
                device.write_all_at(place, &[IoSlice::new(a), IoSlice::new(b)]).unwrap();
                model[range].copy_from_slice(&data);
            }
            3 => {
                device.write_durable(place, &[IoSlice::new(&data)]).unwrap();
                model[range].copy_from_slice(&data);
            }
            4 => {
                device.zero(place, long).unwrap();
                model[range].fill(0);
            }
            5 => {
                // The content is anything then.
                device.discard(place, long).unwrap();
                device.write_at(place, &data).unwrap();
                model[range].copy_from_slice(&data);
            }
            6 => device.flush().unwrap(),
            7 => extents_are_true(device, Span::new(place, long), &model),
            _ => {
                let mut found = vec![0xee; data.len()];
                device.read_at(place, &mut found).unwrap();
                assert!(
                    found == model[range],
                    "{}: step {step}, seed {seed}: {count} bytes at {at}",
                    device.name()
                );
            }
        }
    }
    device.flush().unwrap();
    let mut found = vec![0xee; model.len()];
    device.read_at(Bytes::ZERO, &mut found).unwrap();
    assert!(found == model, "{}: seed {seed}: the end", device.name());
    refuses_what_lies_outside(device);
}

fn extents_are_true(device: &dyn Device, span: Span, model: &[u8]) {
    let (mut at, mut left) = (span.at, span.len);
    while left > Bytes::ZERO {
        let extent = device.extent_at(at, left).unwrap();
        assert!(extent.len > Bytes::ZERO && extent.len <= left, "{extent:?} of {left}");
        if extent.is_zero {
            let range = index_of(at.get())..index_of((at + extent.len).get());
            assert!(model[range].iter().all(|byte| *byte == 0), "{extent:?} at {at} holds data");
        }
        at += extent.len;
        left = left - extent.len;
    }
}

fn refuses_what_lies_outside(device: &dyn Device) {
    let end = device.len();
    assert!(device.read_at(end, &mut [0]).is_err());
    assert!(device.write_at(end - Bytes::new(1), &[0; 2]).is_err());
    assert!(device.zero(Bytes::ZERO, end + Bytes::new(1)).is_err());
    assert!(device.read_at(Bytes::new(u64::MAX), &mut [0; 2]).is_err());
    assert!(device.resize(Bytes::ZERO).is_err());
    device.read_at(end, &mut []).unwrap();
    device.write_at(end, &[]).unwrap();
    device.zero(end, Bytes::ZERO).unwrap();
    device.discard(end, Bytes::ZERO).unwrap();
}

/// Several threads change neighbouring bytes, of which many share a block.
pub(crate) fn neighbours_stay_apart(device: &dyn Device) {
    const THREADS: usize = 4;
    const STRIDE: usize = 100;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for turn in 0..100 {
                    let at = Bytes::of((turn * THREADS + thread) * STRIDE);
                    device.write_at(at, &[u8::try_from(thread + 1).unwrap(); STRIDE]).unwrap();
                }
            });
        }
    });
    let mut found = vec![0; 100 * THREADS * STRIDE];
    device.read_at(Bytes::ZERO, &mut found).unwrap();
    for (number, part) in found.chunks(STRIDE).enumerate() {
        let expected = u8::try_from(number % THREADS + 1).unwrap();
        assert!(part.iter().all(|byte| *byte == expected), "{}: part {number}", device.name());
    }
}
