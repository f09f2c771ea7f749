//! Converts the engine's errors to the error numbers of answers.
//!
//! The table itself is the engine's ([`hectare_engine::Error::errno`], exhaustive over its conditions), since
//! users without a mount need the same numbers. Here is what is special to FUSE: the kernel accepts numbers
//! from 1 to 511 only, and takes `ENOSYS` as "never ask again", so that neither may come from a device.

use hectare_engine::Error;
use rustix::io::Errno;

/// The largest error number that the kernel accepts from a server.
const ERRNO_MAX: i32 = 511;

/// Error numbers that are counted separately; larger ones are counted as the last.
pub(crate) const COUNT: usize = 134;

/// The index of the counter of an error.
pub(crate) fn index(errno: Errno) -> usize {
    usize::try_from(errno.raw_os_error()).unwrap_or(0).min(COUNT - 1)
}

/// The name of an error in the metrics.
pub(crate) fn name(index: usize) -> String {
    let known = NAMES.iter().find(|(errno, _)| usize::try_from(errno.raw_os_error()) == Ok(index));
    known.map_or_else(|| format!("errno_{index}"), |(_, name)| (*name).to_owned())
}

macro_rules! names {
    ($($errno:ident $name:literal)*) => { [$((Errno::$errno, $name)),*] };
}

/// The errors that requests are likely to be answered with.
static NAMES: [(Errno, &str); 34] = names! {
    PERM "EPERM" NOENT "ENOENT" INTR "EINTR" IO "EIO" NXIO "ENXIO" TOOBIG "E2BIG" BADF "EBADF"
    AGAIN "EAGAIN" NOMEM "ENOMEM" ACCESS "EACCES" FAULT "EFAULT" BUSY "EBUSY" EXIST "EEXIST" XDEV "EXDEV"
    NODEV "ENODEV" NOTDIR "ENOTDIR" ISDIR "EISDIR" INVAL "EINVAL" NOTTY "ENOTTY" TXTBSY "ETXTBSY"
    FBIG "EFBIG" NOSPC "ENOSPC" ROFS "EROFS" MLINK "EMLINK" RANGE "ERANGE" NAMETOOLONG "ENAMETOOLONG"
    NOTEMPTY "ENOTEMPTY" LOOP "ELOOP" NODATA "ENODATA" OVERFLOW "EOVERFLOW" OPNOTSUPP "EOPNOTSUPP"
    STALE "ESTALE" DQUOT "EDQUOT" NOSYS "ENOSYS"
};

/// The error number of a refused request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Refusal(pub(crate) Errno);

/// An answer, or the error.
pub(crate) type Answer<T = ()> = Result<T, Refusal>;

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let number = error.errno();
        let known = (1..=ERRNO_MAX).contains(&number) && number != Errno::NOSYS.raw_os_error();
        Self(if known { Errno::from_raw_os_error(number) } else { Errno::IO })
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
    use hectare_device::{Operation, Reason};

    fn of_device(errno: i32) -> i32 {
        let error = hectare_device::Error::new("disk", Operation::Write, None, Reason::Io(errno));
        Refusal::from(Error::from(error)).0.raw_os_error()
    }

    #[test]
    fn conditions_have_the_numbers_that_linux_gives_them() {
        for (error, errno) in [
            (Error::NotFound, Errno::NOENT),
            (Error::Exists, Errno::EXIST),
            (Error::NotEmpty, Errno::NOTEMPTY),
            (Error::NoSpace, Errno::NOSPC),
            (Error::ReadOnly, Errno::ROFS),
            (Error::NoAttribute, Errno::NODATA),
            (Error::Unsupported("it".into()), Errno::OPNOTSUPP),
        ] {
            assert_eq!(Refusal::from(error).0, errno);
        }
    }

    #[test]
    fn errors_are_counted_by_name() {
        assert_eq!(name(index(Errno::NOSPC)), "ENOSPC");
        assert_eq!(name(index(Errno::from_raw_os_error(130))), "errno_130");
        assert_eq!(index(Errno::from_raw_os_error(511)), COUNT - 1);
    }

    #[test]
    fn a_device_can_not_make_the_kernel_stop_asking() {
        assert_eq!(of_device(28), 28);
        for strange in [0, -5, 38, 512, i32::MAX] {
            assert_eq!(of_device(strange), 5, "{strange}");
        }
    }
}
