//! Any bytes result in a report or an error.

use crate::damage::{choose, volumes};
use crate::support::{load, options};
use hectare_check::{Options, check};
use hectare_device::{Device, MemoryDevice, TraceDevice};
use hectare_oracle::trees::Random;
use hectare_oracle::{Scale, filled, hunt, skip_part};
use hectare_units::Bytes;

#[test]
fn no_volume_at_all_is_a_report() {
    for bytes in [vec![], vec![0; 1024], vec![7; 1 << 20]] {
        let report = check(&MemoryDevice::from_bytes(&bytes), &Options::default()).unwrap();
        assert!(!report.is_clean() && !report.unchecked.is_empty());
    }
}

/// Damage heaps up: up to 40 stretches of a volume are overwritten, then it is restored.
#[test]
fn heaps_of_damage_end_in_a_report() {
    let seed = hunt::seed("heaps of damage");
    for (combo, tree) in volumes() {
        let filled = match filled(&combo, tree, &Scale::SMALL) {
            Ok(filled) => filled,
            Err(reason) => {
                skip_part!(format!("check hostile, {}", combo.name), reason);
                continue;
            }
        };
        let trace = TraceDevice::new(load(filled.image()), 1 << 20);
        assert!(check(&trace, &options()).unwrap().is_clean());
        let reads = trace.take();
        let device = trace.inner();
        let mut random = Random::new(&format!("heaps {} {} {seed}", combo.name, tree.name()));
        for _ in 0..hunt::share(10) {
            let mut undo = Vec::new();
            for _ in 0..40 {
                let (at, _) = choose(device, &reads, &mut random);
                let len = 1 + usize::try_from(random.below(12)).unwrap();
                let mut old = vec![0; len.min(usize::try_from(device.len().get() - at).unwrap())];
                device.read_at(Bytes::new(at), &mut old).unwrap();
                device.write_at(Bytes::new(at), &random.bytes(old.len())).unwrap();
                undo.push((at, old));
                let _ = check(device, &options());
            }
            for (at, old) in undo.into_iter().rev() {
                device.write_at(Bytes::new(at), &old).unwrap();
            }
        }
        assert!(check(device, &options()).unwrap().is_clean());
    }
}
