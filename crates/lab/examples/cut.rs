use hectare_device::*;
use hectare_engine::*;
use std::sync::Arc;
fn main() {
    let path = std::env::args().nth(1).unwrap();
    let bytes = std::fs::read(path).unwrap();
    let image = Arc::new(MemoryDevice::from_bytes(&bytes));
    let options = OpenOptions { commit_interval: None, seed: Some(1), ..OpenOptions::default() };
    let rec = Arc::new(RecordDevice::new(OverlayDevice::new(Arc::clone(&image))));
    let v = Volume::open(Arc::clone(&rec) as Arc<dyn Device>, options.clone()).unwrap();
    println!("cleaned {:?} after {} events", v.cleaned(), rec.events());
    v.close().unwrap();
    drop(v);
    let log = rec.log();
    for (n, e) in log.iter().enumerate() {
        match e {
            Event::Write { at, data, durable } => println!("{n}: write {} at {} {}", data.len(), at.get(), durable),
            other => println!("{n}: {other:?}"),
        }
    }
    let mut states = CrashStates::new(OverlayDevice::new(image), log);
    let points: Vec<usize> = states.points().collect();
    for n in points {
        for seed in 0..30u64 {
            let state = if seed == 0 { states.prefix(n).unwrap() } else { states.torn(n, seed).unwrap() };
            let state = Arc::new(state);
            let v = Volume::open(Arc::clone(&state) as Arc<dyn Device>, options.clone()).unwrap();
            let cleaned = v.cleaned();
            v.close().unwrap();
            drop(v);
            let report = hectare_check::check(&*state, &hectare_check::Options::default()).unwrap();
            if !report.is_clean() {
                println!("{n}/{seed}: {cleaned:?} {}", report.problems[0]);
            }
        }
    }
}
