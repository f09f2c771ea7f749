//! Headers: those of [`hectare_probe::record`].

pub(crate) use hectare_probe::record::{Record, record, uuid_text};
