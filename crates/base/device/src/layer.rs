//! Devices that wrap another device and intercept every operation. Each is generic over what it wraps, so a
//! stack can be built of values, of references, or of `Arc<dyn Device>`.

pub(crate) mod cache;
pub(crate) mod cancel;
pub(crate) mod elsewhere;
pub(crate) mod fault;
pub(crate) mod fence;
pub(crate) mod overlay;
pub(crate) mod record;
pub(crate) mod remember;
pub(crate) mod slice;
pub(crate) mod stats;
pub(crate) mod trace;
