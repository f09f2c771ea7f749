//! Formats numbers for people: thousands, rates, durations.

/// `1,234,567`.
pub(crate) fn whole(figure: f64) -> String {
    let digits = format!("{:.0}", figure.max(0.0));
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Three significant digits: `1,234`, `56.7`, `8.90`, `0.01`.
pub(crate) fn short(figure: f64) -> String {
    match figure {
        f if f >= 100.0 => whole(f),
        f if f >= 10.0 => format!("{f:.1}"),
        f => format!("{f:.2}"),
    }
}

/// For an axis: `0`, `500`, `20k`, `1.5M`.
pub(crate) fn axis(figure: f64) -> String {
    let (scaled, unit) = match figure {
        f if f >= 1e9 => (f / 1e9, "G"),
        f if f >= 1e6 => (f / 1e6, "M"),
        f if f >= 1e3 => (f / 1e3, "k"),
        f => (f, ""),
    };
    let text = format!("{scaled:.2}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

/// A duration in the unit that fits.
pub(crate) fn duration(ns: u64) -> String {
    let ns = crate::run::float(ns);
    match ns {
        n if n >= 1e9 => format!("{} s", short(n / 1e9)),
        n if n >= 1e6 => format!("{} ms", short(n / 1e6)),
        n if n >= 1e3 => format!("{} us", short(n / 1e3)),
        n => format!("{n:.0} ns"),
    }
}

/// `4K`, `512M`, `1G`: the shortest form of a size.
pub(crate) fn size(bytes: u64) -> String {
    let units = [("T", 40), ("G", 30), ("M", 20), ("K", 10)];
    let unit = units.into_iter().find(|(_, shift)| bytes >= 1 << shift);
    unit.map_or(bytes.to_string(), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

/// With the first letter in upper case.
pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!(
            (whole(0.4), whole(999.0), whole(1_234_567.0)),
            ("0".into(), "999".into(), "1,234,567".into())
        );
        assert_eq!((short(8.9), short(56.66), short(1234.4)), ("8.90".into(), "56.7".into(), "1,234".into()));
        assert_eq!((axis(0.0), axis(20_000.0), axis(1.5e6)), ("0".into(), "20k".into(), "1.5M".into()));
        assert_eq!((axis(100.0), axis(2.5), axis(0.25)), ("100".into(), "2.5".into(), "0.25".into()));
        assert_eq!(
            (duration(90), duration(1500), duration(2_000_000_000)),
            ("90 ns".into(), "1.50 us".into(), "2.00 s".into())
        );
        assert_eq!((size(4096), size(1 << 30), size(100)), ("4K".into(), "1G".into(), "100".into()));
        assert_eq!(capital("writes"), "Writes");
    }
}
