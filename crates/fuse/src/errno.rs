//! What a request that can't be answered is answered with: the one way from the engine's errors to error
//! numbers.
//!
//! The table itself is the engine's ([`hectare_engine::Error::errno`], exhaustive over its conditions), since
//! those who have no mount want the same numbers. Here is what FUSE makes special: the kernel takes numbers
//! from 1 to 511 only, and `ENOSYS` for "never ask again", so that neither may come from a device.

use fuser::Errno;
use hectare_engine::Error;

/// The largest error number that the kernel takes from a server.
const ERRNO_MAX: i32 = 511;

/// Error numbers that are counted by themselves; those beyond are counted as the last.
pub(crate) const COUNT: usize = 134;

/// Where an error is counted.
pub(crate) fn index(errno: Errno) -> usize {
    usize::try_from(errno.code()).unwrap_or(0).min(COUNT - 1)
}

/// What those who read counters know an error by.
pub(crate) fn name(index: usize) -> String {
    let known = NAMES.iter().find(|(errno, _)| usize::try_from(errno.code()) == Ok(index));
    known.map_or_else(|| format!("errno_{index}"), |(_, name)| (*name).to_owned())
}

macro_rules! names {
    ($($name:ident)*) => { [$((Errno::$name, stringify!($name))),*] };
}

/// The errors that requests are likely to be answered with.
static NAMES: [(Errno, &str); 34] = names! {
    EPERM ENOENT EINTR EIO ENXIO E2BIG EBADF EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST EXDEV ENODEV ENOTDIR
    EISDIR EINVAL ENOTTY ETXTBSY EFBIG ENOSPC EROFS EMLINK ERANGE ENAMETOOLONG ENOTEMPTY ELOOP ENODATA
    EOVERFLOW EOPNOTSUPP ESTALE EDQUOT ENOSYS
};

/// Why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Refusal(pub(crate) Errno);

/// An answer, or why there is none.
pub(crate) type Answer<T = ()> = Result<T, Refusal>;

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let number = error.errno();
        let known = (1..=ERRNO_MAX).contains(&number) && number != Errno::ENOSYS.code();
        Self(if known { Errno::from_i32(number) } else { Errno::EIO })
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self(errno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_device(errno: i32) -> i32 {
        let error = Error::Device { message: "disk: write failed".into(), errno, no_space: false };
        Refusal::from(error).0.code()
    }

    #[test]
    fn conditions_have_the_numbers_that_linux_gives_them() {
        for (error, errno) in [
            (Error::NotFound, Errno::ENOENT),
            (Error::Exists, Errno::EEXIST),
            (Error::NotEmpty, Errno::ENOTEMPTY),
            (Error::NoSpace, Errno::ENOSPC),
            (Error::ReadOnly, Errno::EROFS),
            (Error::NoAttribute, Errno::ENODATA),
            (Error::Unsupported("it".into()), Errno::EOPNOTSUPP),
        ] {
            assert_eq!(Refusal::from(error).0, errno);
        }
    }

    #[test]
    fn errors_are_counted_by_name() {
        assert_eq!(name(index(Errno::ENOSPC)), "ENOSPC");
        assert_eq!(name(index(Errno::from_i32(130))), "errno_130");
        assert_eq!(index(Errno::from_i32(511)), COUNT - 1);
    }

    #[test]
    fn a_device_can_not_make_the_kernel_stop_asking() {
        assert_eq!(of_device(28), 28);
        for strange in [0, -5, 38, 512, i32::MAX] {
            assert_eq!(of_device(strange), 5, "{strange}");
        }
    }
}
