//! Tests of whole directories: against a model, against hostile bytes, against e2fsprogs and the kernel.

mod hostile;
mod kernel;
mod model;
mod oracle;
mod scan;
mod store;
