//! What the benches under `benches/` reach of the inside. No interface.

mod index;

pub use index::Index;
