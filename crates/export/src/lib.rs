//! The content of a volume in an order that depends on nothing but the content.

mod names;

pub use names::{Entry, MET_TWICE, Names, TOO_MANY, is_room_for};
