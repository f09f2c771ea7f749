//! The costs on the machine the model was calibrated on.

use hectare_alloc_virtual::virtual_cpus::{Costs, Time};

/// The calibrated costs.
pub const COSTS: Costs = Costs {
    load: Time::from_ns(0.34),
    update: Time::from_ns(2.4),
    near: Time::from_ns(82.0),
    far: Time::from_ns(205.0),
    socket: 64,
    behind_lock: 0,
    request: Time::from_ns(162.0),
    group: Time::from_ns(21.0),
    extent: Time::from_ns(11.0),
    word: Time::from_ns(0.7),
    change: Time::from_ns(24.0),
    mark: Time::from_ns(13.5),
    split: Time::from_ns(13.0),
};

/// An operation that is done often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Probe {
    Word,
    Extent,
    Group,
    Change,
    Mark,
    Split,
    Request,
}
