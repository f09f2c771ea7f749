use super::*;

#[test]
fn a_run_is_the_same_twice() {
    for fill in Fill::ALL {
        for policy in POLICIES {
            let once = || run_one(policy, fill, 8, 5_000, &COSTS);
            assert_eq!(once(), once());
        }
    }
}
