//! What the benches under `benches/` reach of the inside. No interface.

mod buddy;
mod index;

pub use buddy::Buddy;
pub use index::Index;
