//! Access to internals for the benches under `benches/`. Not a public interface.

mod buddy;
mod index;

pub use buddy::Buddy;
pub use index::Index;
