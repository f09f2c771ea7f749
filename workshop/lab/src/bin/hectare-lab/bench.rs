//! `hectare-lab bench`.

mod build;
mod common;
mod inspect;
mod report;
mod workloads;

pub(crate) use common::{check_html, write_page};
pub(super) use hectare_cli::shared::Outcome;

/// Measure workloads on the engine and in directories, and image builds
///
/// A workload runs unchanged on an image, by Hectare's engine (--on engine:IMAGE), and in any directory (--on
/// DIR), such as one where the kernel has mounted the same image; --on can be given several times. Files are
/// made in the directory bench-WORKLOAD there. Prints a table; --json prints what `bench report` can read
/// again, --html writes a page with charts.
///
/// Compare only measurements of one call: machines drift.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare mkfs /dev/shm/disk.img 64G\n  \
    hectare-lab bench fallocate2 --on engine:/dev/shm/disk.img --threads 1,2,64\n  \
    hectare-lab bench small-files --on engine:/dev/shm/disk.img --threads 64 --stats --html out.html\n  \
    hectare-lab bench append-vs-fallocate --on engine:/dev/shm/disk.img --policy mballoc,hybrid\n  \
    hectare-lab bench small-files --on engine:disk.img --policy mballoc,-best-avail,mballoc --stats\n  \
    hectare-lab bench fallocate2 --on /mnt/ext4 --json > kernel.json\n  \
    hectare-lab bench random-overwrite --on direct:disk.img --on raw:disk.raw\n  \
    hectare-lab bench report engine.json kernel.json --html both.html\n  \
    hectare-lab bench build --from /usr/share --work /dev/shm")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

/// What to measure.
#[derive(clap::Subcommand)]
enum What {
    Fallocate2(workloads::Fallocate2),
    #[command(hide = true)]
    Fallocate2Job(workloads::Fallocate2Job),
    SmallFiles(workloads::SmallFiles),
    AppendVsFallocate(workloads::AppendVsFallocate),
    CorrelatedLifetimes(workloads::CorrelatedLifetimes),
    FourSizes(workloads::FourSizes),
    FunnySizesHigh(workloads::FunnySizesHigh),
    FunnySizesLow(workloads::FunnySizesLow),
    MixedLifetimes(workloads::MixedLifetimes),
    ManyAppenders(workloads::ManyAppenders),
    Streams(workloads::Streams),
    RandomOverwrite(workloads::RandomOverwrite),
    FsyncAppend(workloads::FsyncAppend),
    Report(report::Arguments),
    Inspect(inspect::Arguments),
    Build(build::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    match &arguments.what {
        What::Fallocate2(arguments) => arguments.run(),
        What::Fallocate2Job(arguments) => {
            arguments.run();
            Ok(())
        }
        What::SmallFiles(arguments) => arguments.run(),
        What::AppendVsFallocate(arguments) => arguments.run(),
        What::CorrelatedLifetimes(arguments) => arguments.run(),
        What::FourSizes(arguments) => arguments.run(),
        What::FunnySizesHigh(arguments) => arguments.run(),
        What::FunnySizesLow(arguments) => arguments.run(),
        What::MixedLifetimes(arguments) => arguments.run(),
        What::ManyAppenders(arguments) => arguments.run(),
        What::Streams(arguments) => arguments.run(),
        What::RandomOverwrite(arguments) => arguments.run(),
        What::FsyncAppend(arguments) => arguments.run(),
        What::Report(arguments) => report::run(arguments),
        What::Inspect(arguments) => inspect::run(arguments),
        What::Build(arguments) => build::run(arguments),
    }
}
