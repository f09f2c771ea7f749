//! What things cost on the machine the model was calibrated on.

use hectare_alloc_virtual::virtual_cpus::{Costs, Time};

/// The calibrated costs.
pub const COSTS: Costs = Costs {
    load: Time::from_ns(0.5),
    update: Time::from_ns(5.0),
    near: Time::from_ns(60.0),
    far: Time::from_ns(150.0),
    socket: 64,
    behind_lock: 0,
    request: Time::from_ns(60.0),
    group: Time::from_ns(3.0),
    extent: Time::from_ns(3.0),
    word: Time::from_ns(0.5),
    change: Time::from_ns(20.0),
    mark: Time::from_ns(10.0),
    split: Time::from_ns(5.0),
};
