//! Prints the experiment of `virtual_cpus`: `cargo run --release -p hectare-lab --example virtual_cpus -- 1 2
//! 64`. With `calibrate`, measures the costs on this machine; with `validate`, compares real runs on 1 and 2
//! threads with the model.

use hectare_lab::virtual_cpus::{COSTS, Fill, Options, POLICIES, calibrate, run, run_one, run_real};
use std::time::Duration;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("calibrate") => println!("{:#?}", calibrate()),
        Some("validate") => validate(),
        _ => table(arguments.iter().filter_map(|cpus| cpus.parse().ok()).collect()),
    }
}

fn table(cpus: Vec<u32>) {
    let mut options = Options::default();
    if !cpus.is_empty() {
        options.cpus = cpus;
    }
    println!("volume     policy                    cpus       ops/s slowest/fastest   skips   waits scanned");
    for row in run(&options) {
        println!(
            "{:<10} {:<24} {:>5} {:>11.0} {:>7}/{:<7} {:>7} {:>7} {:>7}",
            row.fill.name(),
            row.policy,
            row.cpus,
            row.per_second,
            row.slowest,
            row.fastest,
            row.busy_skips,
            row.busy_waits,
            row.extents_scanned
        );
    }
}

/// Medians of the undisturbed real runs.
fn validate() {
    for (fill, policy) in Fill::ALL.into_iter().flat_map(|fill| POLICIES.map(|policy| (fill, policy))) {
        for threads in [1, 2] {
            let real = |_| run_real(policy, fill, threads, Duration::from_millis(4));
            let mut rates: Vec<f64> = (0..200).filter_map(real).map(|row| row.per_second).collect();
            rates.sort_by(f64::total_cmp);
            let model = run_one(policy, fill, threads, 100_000, &COSTS).per_second;
            match rates.get(rates.len() / 2) {
                Some(real) => println!(
                    "{:<10} {policy:<24} {threads} real {real:.0} ({} runs) model {model:>11.0} {:+.1} %",
                    fill.name(),
                    rates.len(),
                    (model / real - 1.0) * 100.0
                ),
                None => println!("{:<10} {policy:<24} {threads} every real run was disturbed", fill.name()),
            }
        }
    }
}
