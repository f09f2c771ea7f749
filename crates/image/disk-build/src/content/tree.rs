//! The tree of a volume's files.

use crate::environment::Environment;
use crate::spec::Files;
use hectare_mkfs::FormatOptions;
use hectare_populate::{Options, Tree};
use std::path::Path;

/// Reads the sources of a volume.
pub(super) fn read(
    files: &Files,
    env: &Environment<'_>,
    format: &FormatOptions,
    find_duplicates: bool,
) -> Result<Tree, String> {
    let sources = files.from.iter().map(|source| (env.open)(source)).collect::<Result<_, _>>()?;
    let options = Options {
        threads: env.threads,
        source_date_epoch: env.epoch,
        find_duplicates,
        replaces: env.replaces.map(Path::to_owned),
        ..files.options.clone()
    }
    .for_format(format);
    let tree = Tree::build(sources, &options).map_err(|error| error.to_string())?;
    tree.warnings().iter().for_each(|warning| (env.warn)(warning));
    for (name, count) in tree.left_out() {
        let name = String::from_utf8_lossy(name);
        (env.warn)(&format!("attribute {name:?} of {count} files left out: ext4 has none of its kind"));
    }
    Ok(tree)
}
