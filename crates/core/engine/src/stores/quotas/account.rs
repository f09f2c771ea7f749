//! The account of one id: its record, what is claimed, and what its limits leave.

use hectare_ext4::quota::{Info, Record, Resource, Slot};

/// An amount of both resources: bytes, and inodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Amount {
    pub(crate) space: u64,
    pub(crate) inodes: u64,
}

/// What an id uses, has claimed and may use.
#[derive(Default)]
pub(super) struct Account {
    pub(super) record: Record,
    pub(super) claimed: Amount,
    /// Where the record lies in the file.
    pub(super) slot: Option<Slot>,
}

impl Account {
    /// How much more the limits allow.
    pub(super) fn room(&self, now: u64) -> Amount {
        Amount {
            space: room(&self.record.space, self.claimed.space, now),
            inodes: room(&self.record.inodes, self.claimed.inodes, now),
        }
    }

    /// What is used now.
    pub(super) fn used(&self) -> Amount {
        Amount { space: self.record.space.used, inodes: self.record.inodes.used }
    }

    /// Sets what is used.
    pub(super) fn set_used(&mut self, used: Amount) {
        (self.record.space.used, self.record.inodes.used) = (used.space, used.inodes);
    }

    /// Starts and stops the grace periods. Returns whether that changed anything.
    pub(super) fn time(&mut self, info: &Info, now: u64) -> bool {
        let before = self.record;
        time(&mut self.record.space, self.claimed.space, info.space_grace, now);
        time(&mut self.record.inodes, self.claimed.inodes, info.inode_grace, now);
        before != self.record
    }
}

/// A limit of 0 is none.
fn bound(limit: u64, used: u64) -> u64 {
    if limit == 0 { u64::MAX } else { limit.saturating_sub(used) }
}

fn room(resource: &Resource, claimed: u64, now: u64) -> u64 {
    let used = resource.used.saturating_add(claimed);
    let is_late = resource.expires != 0 && now >= resource.expires;
    let soft = if is_late { bound(resource.soft, used) } else { u64::MAX };
    bound(resource.hard, used).min(soft)
}

fn time(resource: &mut Resource, claimed: u64, grace: u32, now: u64) {
    let is_over = resource.soft != 0 && resource.used.saturating_add(claimed) > resource.soft;
    if !is_over {
        resource.expires = 0;
    } else if resource.expires == 0 {
        resource.expires = now.saturating_add(grace.into()).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_soft_limit_is_a_hard_one_after_its_time() {
        let space = Resource { used: 90, soft: 100, hard: 200, expires: 0 };
        let mut account = Account { record: Record { space, ..Record::default() }, ..Account::default() };
        let mut info = Info::empty();
        info.space_grace = 10;
        assert_eq!(account.room(1000), Amount { space: 110, inodes: u64::MAX });
        assert!(!account.time(&info, 1000));
        account.claimed.space = 20;
        assert!(account.time(&info, 1000) && account.record.space.expires == 1010);
        assert_eq!((account.room(1009).space, account.room(1010).space), (90, 0));
        assert!(!account.time(&info, 1020), "it is not extended");
        account.claimed.space = 10;
        assert!(account.time(&info, 1020) && account.record.space.expires == 0);
        assert_eq!(account.room(1020).space, 100);
    }
}
