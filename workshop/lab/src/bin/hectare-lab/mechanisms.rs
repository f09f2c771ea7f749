//! `hectare-lab mechanisms`: what policies are composed of.

use hectare_cli::shared::{Outcome, Output};
use hectare_lab::{Mechanism, Policy};
use serde::Serialize;

/// List the mechanisms of allocation policies: what each does, its origin, and where it is in the code
///
/// A policy is one of six names; `--policy NAME,+MECHANISM,-MECHANISM` adds mechanisms and leaves them out,
/// so that the worth of one can be measured.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  hectare-lab mechanisms\n  \
    hectare-lab bench small-files --on engine:disk.img --policy mballoc,-best-avail,mballoc --stats")]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A named policy, and its mechanisms.
#[derive(Serialize)]
struct Named {
    policy: &'static str,
    mechanisms: Vec<&'static str>,
}

fn policies() -> Vec<Named> {
    let named = |(policy, name): (Policy, &'static str)| {
        let mechanisms = Mechanism::LIST.iter().filter(|about| policy.has(about.mechanism));
        Named { policy: name, mechanisms: mechanisms.map(|about| about.name).collect() }
    };
    Policy::ALL.into_iter().zip(Policy::NAMES).map(named).collect()
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let mut out = Output::listing();
    if arguments.json {
        return out.json(&serde_json::json!({ "mechanisms": Mechanism::LIST, "policies": policies() }));
    }
    for about in Mechanism::LIST {
        writeln!(out, "{:<14} {}", about.name, about.does)?;
        writeln!(out, "{:<14} {}; {}", "", about.source, about.code)?;
    }
    writeln!(out)?;
    for Named { policy, mechanisms } in policies() {
        writeln!(out, "{policy:<14} {}", mechanisms.join(", "))?;
    }
    out.finish()
}
