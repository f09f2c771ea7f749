//! Draws pictures: a [`scene`] of rectangles and texts, as [`svg`] or [`raster`] (PNG); both draw the same.
//!
//! Sizes are in units of the scene, of which an SVG has one a pixel and a PNG two pixels each.

pub(crate) mod color;
mod font;
pub(crate) mod raster;
pub(crate) mod scene;
pub(crate) mod svg;

/// Bytes in the largest binary unit that keeps a number of one or more: `64 MiB`, `1.5 GiB`.
pub(crate) fn size_text(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = bytes.checked_ilog2().unwrap_or(0) / 10;
    let name = UNITS[hectare_units::usize_of(unit)]; // 64 bits end at 16 EiB
    let whole = bytes >> (10 * unit);
    let tenths = ((bytes >> (10 * unit.saturating_sub(1))) & 1023) * 10 / 1024;
    if unit == 0 || whole >= 100 || tenths == 0 {
        return format!("{whole} {name}");
    }
    format!("{whole}.{tenths} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_at_most_one_digit_after_the_point() {
        assert_eq!(size_text(0), "0 B");
        assert_eq!(size_text(1023), "1023 B");
        assert_eq!(size_text(1 << 20), "1 MiB");
        assert_eq!(size_text(3 << 29), "1.5 GiB");
        assert_eq!(size_text(u64::MAX), "15.9 EiB");
    }
}
