//! Prints the experiment of `virtual_cpus`: `cargo run --release -p hectare-lab --example virtual_cpus`.
use hectare_lab::virtual_cpus::{Options, run};

fn main() {
    let mut options = Options::default();
    let arguments: Vec<u32> = std::env::args().skip(1).filter_map(|cpus| cpus.parse().ok()).collect();
    if !arguments.is_empty() {
        options.cpus = arguments;
    }
    println!(
        "volume     policy                    cpus       ops/s  speedup  slowest/fastest  reqs  skips  waits  scanned"
    );
    let started = std::time::Instant::now();
    let mut one = 1.0;
    for row in run(&options) {
        if row.cpus == options.cpus[0] {
            one = row.per_second;
        }
        println!(
            "{:<10} {:<24} {:>5} {:>11.0} {:>8.2} {:>7}/{:<7} {:>7} {:>7} {:>7} {:>7}",
            row.fill.name(),
            row.policy,
            row.cpus,
            row.per_second,
            row.per_second / one,
            row.slowest,
            row.fastest,
            row.requests,
            row.busy_skips,
            row.busy_waits,
            row.extents_scanned
        );
    }
    println!("{:.1} s", started.elapsed().as_secs_f64());
}
