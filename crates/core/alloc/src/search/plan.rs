//! A request in the terms of one group.

use crate::criteria::{Length, Pass, Scan};
use crate::request::{GoalFrom, Purpose, Request};
use crate::size_class::Class;
use crate::state::State;
use crate::trace::Asked;
use hectare_units::GroupNr;

/// A request in the terms of one group: `least <= asked <= want`, all at least 1.
pub(crate) struct Plan {
    /// The group to start at.
    pub(crate) group: GroupNr,
    /// The goal's position in it; none for a stream, or a goal beyond the end.
    pub(crate) at: Option<u32>,
    /// The full length.
    pub(crate) want: u32,
    /// What the caller needs now.
    pub(crate) asked: u32,
    /// The least acceptable length.
    pub(crate) least: u32,
    /// Whether it is for the contents of files.
    pub(crate) data: bool,
    /// Its size class, where there are any.
    pub(crate) class: Option<Class>,
    /// Its stream, if it has no goal.
    pub(crate) stream: Option<u32>,
    /// Where the goal comes from, and the file it is for: of no use but to be recorded.
    goal_from: GoalFrom,
    file: Option<u32>,
    /// The least order of a request served by an aligned chunk, and the number of orders.
    power2: std::ops::Range<u32>,
}

impl Plan {
    /// `None` if the request can't be met whatever is free: a single group is too small, or it could not
    /// be paid for out of `spendable` clusters.
    pub(crate) fn new(request: &Request, spendable: u64, state: &State) -> Option<Self> {
        let layout = &state.layout;
        let least = request.min.get().max(1);
        let most = spendable.min(u64::from(layout.clusters_per_group()));
        if least > most || layout.groups() == 0 {
            return None;
        }
        let want = request.want.get().clamp(least, most);
        let asked = request.asked.get().clamp(least, want);
        let data = request.purpose == Purpose::Data;
        let located = match request.stream {
            Some(key) => state.stream(key).map(|(_, group)| (group, None)),
            None => layout.locate(request.goal).map(|(group, at)| (group, Some(at))),
        };
        let (group, at) = located.unwrap_or((GroupNr::new(0), None));
        // Not what is left of the request in this group: the class is the caller's affair, not the place's.
        let bytes = request.asked.get().max(least).saturating_mul(state.config.cluster_bytes());
        Some(Self {
            group,
            at,
            want: u32::try_from(want).ok()?,
            asked: u32::try_from(asked).ok()?,
            least: u32::try_from(least).ok()?,
            data,
            class: state.classes.as_ref().filter(|_| data).map(|classes| classes.of(bytes)),
            stream: request.stream,
            goal_from: request.goal_from,
            file: request.file,
            // The kernel compares with the position of the highest bit, counted from 1.
            power2: state.tunables.mb_order2_req().saturating_sub(1)..state.config.orders(),
        })
    }

    /// What it asks for, to be recorded.
    pub(crate) fn described(&self, state: &State) -> Asked {
        Asked {
            data: self.data,
            file: self.file,
            asked: self.asked.into(),
            want: self.want.into(),
            least: self.least.into(),
            goal: self.at.map(|at| state.layout.cluster(self.group, at).get()),
            group: self.group.get(),
            from: match (self.stream, self.at) {
                (Some(_), _) => GoalFrom::Stream,
                (None, None) => GoalFrom::Nowhere,
                (None, Some(_)) => self.goal_from,
            },
            class: self.class.map(|class| u8::try_from(class.index()).unwrap_or(u8::MAX)),
        }
    }

    /// The length a run must have for a pass; `None` if the pass is not for this request.
    pub(crate) fn need(&self, pass: &Pass) -> Option<u32> {
        match (pass.scan, pass.length) {
            (Scan::Chunk, _) => {
                let fits = self.want.is_power_of_two() && self.power2.contains(&self.want.ilog2());
                fits.then_some(self.want)
            }
            // As good as the pass before it.
            (Scan::FromGoal, Length::Asked) if self.asked == self.want => None,
            (_, Length::Want) => Some(self.want),
            (_, Length::Asked) => Some(self.asked),
            (_, Length::Average | Length::Least) => Some(self.least),
        }
    }

    /// The lengths that "best available" tries: powers of two below the full length, by at most `orders`
    /// orders and not below what is asked; with stripes, whole ones. Source: the kernel's rule.
    pub(crate) fn trims(&self, orders: u32, stripe: Option<u32>) -> impl Iterator<Item = u32> + use<> {
        let top = self.want.ilog2();
        let mut low = top.saturating_sub(orders);
        if let Some(stripe) = stripe
            && 1 << low < stripe
        {
            // One lower than a stripe may need: the length is rounded up.
            low = stripe.ilog2();
        }
        let (want, asked) = (self.want, self.asked);
        let round = move |len: u32| stripe.map_or(len, |stripe| len.next_multiple_of(stripe));
        let mut last = want;
        (low..=top)
            .rev()
            .map(move |order| round(1 << order).min(want))
            .take_while(move |len| *len >= asked)
            .filter(move |len| std::mem::replace(&mut last, *len) != *len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(want: u32, asked: u32) -> Plan {
        Plan {
            group: GroupNr::new(0),
            at: None,
            want,
            asked,
            least: 1,
            data: true,
            class: None,
            stream: None,
            goal_from: GoalFrom::Caller,
            file: None,
            power2: 2..14,
        }
    }

    #[test]
    fn goals_are_trimmed_by_orders_but_not_below_what_is_asked() {
        let trims = |want, asked| plan(want, asked).trims(3, None).collect::<Vec<_>>();
        assert_eq!(trims(512, 1), [256, 128, 64]);
        assert_eq!(trims(512, 100), [256, 128]);
        assert_eq!(trims(500, 100), [256, 128]);
        assert_eq!(trims(20, 20), [] as [u32; 0]);
        assert_eq!(trims(20, 17), [] as [u32; 0]);
        assert_eq!(trims(20, 16), [16]);
        assert_eq!(trims(1, 1), [] as [u32; 0]);
    }

    #[test]
    fn trimmed_goals_are_whole_stripes() {
        let trims = |want, stripe| plan(want, 1).trims(3, Some(stripe)).collect::<Vec<_>>();
        assert_eq!(trims(512, 48), [288, 144, 96]);
        assert_eq!(trims(128, 48), [96, 48]);
    }
}
