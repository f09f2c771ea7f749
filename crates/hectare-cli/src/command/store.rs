//! `hectare store`.

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::store::{connect, options};
use hectare_store::{Summary, Swept, summary, sweep};
use indicatif::HumanBytes;
use serde::Serialize;
use std::path::PathBuf;

/// Look after volumes in object stores
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare store info s3://bucket/volume\n  \
    hectare store gc s3://bucket/volume")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Delete the objects that a volume does not use: what an interrupted command had put
    Gc(Gc),
    /// Print what a volume's manifest says
    Info(Info),
}

#[derive(clap::Args)]
struct Gc {
    /// Count them only
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The address of the volume
    volume: PathBuf,
}

#[derive(clap::Args)]
struct Info {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The address of the volume
    volume: PathBuf,
}

#[derive(Serialize)]
struct JsonSwept {
    used: u64,
    garbage: u64,
    garbage_bytes: u64,
    deleted: u64,
}

#[derive(Serialize)]
struct JsonSummary {
    bytes: u64,
    chunk_bytes: u64,
    tables: usize,
    patches: usize,
    epoch: u64,
    generation: u64,
    uuid_hex: String,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    match &arguments.what {
        What::Gc(gc) => collect(gc),
        What::Info(info) => print(info),
    }
}

fn collect(arguments: &Gc) -> Outcome {
    let options = options(true);
    let (bucket, address) = connect(&arguments.volume, &options)?;
    let swept = sweep(&bucket, &options, arguments.dry_run);
    let Swept { used, garbage, bytes, left } = swept.map_err(|error| Failure::of(&address, error))?;
    let deleted = garbage.saturating_sub(left);
    let mut out = Output::report();
    if arguments.json {
        out.json(&JsonSwept { used, garbage, garbage_bytes: bytes, deleted })?;
    } else {
        let size = HumanBytes(bytes);
        writeln!(out, "{used} objects in use, {garbage} not in use ({size}), {deleted} of them deleted")?;
        out.finish()?;
    }
    match arguments.dry_run || left == 0 {
        true => Ok(()),
        false => Err(Failure::of(address, format_args!("{left} objects could not be deleted"))),
    }
}

fn print(arguments: &Info) -> Outcome {
    let (bucket, address) = connect(&arguments.volume, &options(false))?;
    let found = summary(&bucket).map_err(|error| Failure::of(address, error))?;
    let Summary { len, chunk, tables, patches, epoch, generation, uuid } = found;
    let mut out = Output::listing();
    if arguments.json {
        let (bytes, chunk_bytes) = (len.get(), chunk.get());
        let uuid_hex = uuid;
        return out.json(&JsonSummary { bytes, chunk_bytes, tables, patches, epoch, generation, uuid_hex });
    }
    writeln!(out, "Size:        {len} bytes ({})", HumanBytes(len.get()))?;
    writeln!(out, "Chunks:      {}", HumanBytes(chunk.get()))?;
    writeln!(out, "Tables:      {tables}")?;
    writeln!(out, "Patches:     {patches}")?;
    writeln!(out, "Writers:     {epoch}")?;
    writeln!(out, "Manifests:   {generation}")?;
    writeln!(out, "Identity:    {uuid}")?;
    out.finish()
}
