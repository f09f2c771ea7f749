//! Sizes as the command line takes them: a number with a suffix (`10M`, `10MiB`, `10MB`, `1.5G`).

/// Bytes with an optional suffix: K, M, G and so on are powers of 1024, as are KiB, MiB, GiB; kB, MB, GB are
/// powers of 1000.
pub fn parse_size(text: &str) -> Result<u64, String> {
    with_suffix(text, 1)
}

/// A number with a suffix, or of units of `plain` bytes without one.
pub fn with_suffix(text: &str, plain: u64) -> Result<u64, String> {
    hectare_mkfs::parse_size(text, plain, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_sizes_are_taken_as_people_write_them() {
        assert_eq!(with_suffix("10MiB", 1024), Ok(10 << 20));
        assert_eq!(with_suffix("10KiB", 4096), Ok(10 << 10));
        assert_eq!(with_suffix("1GiB", 1), Ok(1 << 30));
        assert_eq!(with_suffix("10MB", 1024), Ok(10_000_000));
        assert_eq!(with_suffix("1.5G", 1024), Ok(3 << 29));
        assert_eq!(with_suffix("0.5", 1024), Ok(512));
        assert_eq!(with_suffix("1.3GB", 1), Ok(1_300_000_000));
        assert_eq!(with_suffix("1.00001k", 1), Ok(1024));
        for wrong in
            ["10iB", "iB", "10Mb", "10 M", " 10M", "10M ", "1.5.5G", ".G", "1.G", ".5G", "1,5G", "M", "-1"]
        {
            assert!(with_suffix(wrong, 1).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_as_in_mke2fs() {
        assert_eq!(with_suffix("64M", 1024), Ok(64 << 20));
        assert_eq!(with_suffix("100", 1024), Ok(102_400));
        assert_eq!(with_suffix("100", 4096), Ok(409_600));
        assert_eq!(with_suffix("8s", 4096), Ok(4096));
        assert!(
            with_suffix("", 1).is_err() && with_suffix("1X", 1).is_err() && with_suffix("99E", 1).is_err()
        );
    }
}
