//! The blocks that files hold: maps as they can be read, which are stored anew, and who holds a block.

mod allot;
mod claims;
mod maps;
mod store_map;
