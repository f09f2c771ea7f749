//! The tunables of an allocator in use: any of them can be set while requests are served.
//!
//! A request reads each where it needs it, one plain load of a line that is rarely written, so a new value is
//! in effect from the next request on, and a request under way may see both values. What an allocator alone
//! leaves open ([`Tunables::stripe`], [`Tunables::mb_optimize_scan`]) is resolved when it is made.
//!
//! What it is not: the size classes, which stay as they were when the volume was opened.

use super::{BadTunable, Tunables};
use crate::size_class::SizeClasses;
use crate::sync::{Mutex, Ordering, Setting};

macro_rules! live {
    ($($name:ident,)*) => {
        /// The numbers.
        pub(crate) struct Live {
            $($name: Setting,)*
            mb_optimize_scan: Setting,
            stripe: Setting,
            classes: SizeClasses,
            setting: Mutex<()>,
        }

        impl Live {
            /// The tunables of an allocator over `groups` groups.
            pub(crate) fn new(from: &Tunables, groups: u32) -> Self {
                Self {
                    $($name: Setting::new(from.$name),)*
                    mb_optimize_scan: Setting::new(from.optimize_scan(groups).into()),
                    stripe: Setting::new(from.stripe.unwrap_or(0)),
                    classes: from.classes,
                    setting: Mutex::new(()),
                }
            }

            $(
                #[inline]
                pub(crate) fn $name(&self) -> u32 {
                    self.$name.load(Ordering::Relaxed)
                }
            )*

            /// All of them, as they are now.
            pub(crate) fn get(&self) -> Tunables {
                Tunables {
                    $($name: self.$name(),)*
                    mb_optimize_scan: Some(self.mb_optimize_scan()),
                    stripe: Some(self.stripe()),
                    classes: self.classes,
                }
            }

            fn put(&self, to: &Tunables) {
                $(self.$name.store(to.$name, Ordering::Relaxed);)*
                if let Some(on) = to.mb_optimize_scan {
                    self.mb_optimize_scan.store(on.into(), Ordering::Relaxed);
                }
                if let Some(stripe) = to.stripe {
                    self.stripe.store(stripe, Ordering::Relaxed);
                }
            }
        }
    };
}

live! {
    mb_max_to_scan,
    mb_min_to_scan,
    mb_order2_req,
    mb_stream_req,
    mb_group_prealloc,
    mb_best_avail_max_trim_order,
    mb_max_linear_groups,
}

impl Live {
    pub(crate) fn mb_optimize_scan(&self) -> bool {
        self.mb_optimize_scan.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn stripe(&self) -> u32 {
        self.stripe.load(Ordering::Relaxed)
    }

    /// Sets those that are given, each as `NAME=VALUE`; all or none.
    pub(crate) fn set<'a>(&self, given: impl IntoIterator<Item = &'a str>) -> Result<(), BadTunable> {
        let _setting = self.setting.lock();
        let mut to = self.get();
        given.into_iter().try_for_each(|one| to.set(one))?;
        self.put(&to);
        Ok(())
    }
}

#[cfg(test)]
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_there_and_nothing_of_a_list_with_a_fault() {
        let live = Live::new(&Tunables::default(), 16);
        let open = live.get();
        assert_eq!((open.mb_optimize_scan, open.stripe), (Some(true), Some(0)));
        assert!(!Live::new(&Tunables::default(), 15).mb_optimize_scan());
        for (name, most) in Tunables::names() {
            live.set([format!("{name}={}", most.min(7)).as_str()]).unwrap();
        }
        let now: Vec<_> = live.get().values().collect();
        assert!(
            now.iter().all(|(name, value)| *value == Some(if *name == "mb_optimize_scan" { 1 } else { 7 }))
        );
        let error = live.set(["mb_min_to_scan=9", "mb_order2_req=65"]).unwrap_err().to_string();
        assert_eq!(error, "mb_order2_req=65: a number from 0 to 64 is meant");
        assert_eq!(live.mb_min_to_scan(), 7);
    }
}
