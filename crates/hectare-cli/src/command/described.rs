//! Options of `hectare build` that say what the sources can't.

use crate::failure::{Failure, Outcome};
use hectare_populate::{FileContexts, Options, Spec};
use std::path::PathBuf;
use std::sync::Arc;

/// What is applied to the tree after the sources.
#[derive(clap::Args)]
pub(crate) struct DescribedArguments {
    /// Set owners, modes and devices as a file says: mtree, a device table (Buildroot, genext2fs), fs_config
    /// (Android)
    ///
    /// The format is recognized by the content. What is listed and does not exist (directories, devices,
    /// pipes, links, mtree files with contents=) is made; anything else that is listed and missing is an
    /// error. Several are applied in order, after all sources, --owner and --modes.
    #[arg(long, value_name = "FILE")]
    spec: Vec<PathBuf>,
    /// Set SELinux labels as setfiles would, from a file of contexts
    ///
    /// FILE.homedirs, FILE.local, FILE.subs and FILE.subs_dist are used where they exist. Everything that a
    /// line matches gets its label, the root and lost+found too; the rest keeps what it has.
    #[arg(long, value_name = "FILE")]
    file_contexts: Option<PathBuf>,
}

impl DescribedArguments {
    /// Whether any of them was given.
    pub(crate) fn is_given(&self) -> bool {
        !self.spec.is_empty() || self.file_contexts.is_some()
    }

    /// `options` with what the arguments say.
    pub(crate) fn fill(&self, options: Options) -> Outcome<Options> {
        let failed = |error: hectare_populate::Error| Failure::Line(error.to_string());
        let specs =
            self.spec.iter().map(|path| Spec::read(path)).collect::<Result<_, _>>().map_err(failed)?;
        let labels = self.file_contexts.as_deref().map(FileContexts::read).transpose().map_err(failed)?;
        Ok(Options { specs, labels: labels.map(Arc::new), ..options })
    }
}
