//! Parses the text format of Prometheus strictly, independent of the writer, to check what is served to
//! scrapers.
//!
//! Checked of each document: names and labels are well-formed, every family has one help and one type before
//! its samples, which lie together, no sample comes twice, counters end in `_total`, and of each histogram
//! the buckets are in order, do not decrease, end with `+Inf`, and agree with its count.

use std::collections::{BTreeMap, BTreeSet};

/// A sample's labels.
pub type Labels = BTreeMap<String, String>;

/// All samples of a well-formed document.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// The type of each family.
    pub types: BTreeMap<String, String>,
    samples: BTreeMap<String, Vec<(Labels, f64)>>,
}

impl Metrics {
    /// Reads a document.
    ///
    /// # Errors
    /// What breaks the format, and in which line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut metrics = Self::default();
        let (mut helped, mut closed, mut open) = (BTreeSet::new(), BTreeSet::new(), String::new());
        for (nr, line) in text.lines().enumerate() {
            metrics
                .line(line, &mut helped, &mut closed, &mut open)
                .map_err(|why| format!("line {}: {why}: {line}", nr + 1))?;
        }
        if !text.ends_with('\n') {
            return Err("the last line has no end".into());
        }
        metrics.types.iter().try_for_each(|(name, kind)| metrics.check_family(name, kind))?;
        Ok(metrics)
    }

    fn line(
        &mut self,
        line: &str,
        helped: &mut BTreeSet<String>,
        closed: &mut BTreeSet<String>,
        open: &mut String,
    ) -> Result<(), String> {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').ok_or("a help without text")?;
            let new = is_name(name) && !help.is_empty() && helped.insert(name.into());
            return if new { Ok(()) } else { Err("an odd help".into()) };
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or("a type without one")?;
            if !matches!(kind, "counter" | "gauge" | "histogram") || !helped.contains(name) {
                return Err("an odd type".into());
            }
            closed.insert(std::mem::replace(open, name.into()));
            let first = self.types.insert(name.into(), kind.into()).is_none() && !closed.contains(name);
            return if first { Ok(()) } else { Err("a second type".into()) };
        }
        let (name, labels, value) = sample(line)?;
        let of_histogram = ["_bucket", "_sum", "_count"]
            .iter()
            .any(|end| name.strip_suffix(end) == Some(open) && self.types[&*open] == "histogram");
        if name != *open && !of_histogram {
            return Err("a sample of another family, or of none".into());
        }
        let samples = self.samples.entry(name).or_default();
        if samples.iter().any(|(other, _)| *other == labels) {
            return Err("a sample that comes twice".into());
        }
        samples.push((labels, value));
        Ok(())
    }

    fn check_family(&self, name: &str, kind: &str) -> Result<(), String> {
        match kind {
            "counter" if !name.ends_with("_total") => Err(format!("{name} is a counter without _total")),
            "gauge" if name.ends_with("_total") => Err(format!("{name} is a gauge with _total")),
            "histogram" => self.check_histograms(name),
            _ => Ok(()),
        }
    }

    fn check_histograms(&self, name: &str) -> Result<(), String> {
        let mut buckets: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
        for (labels, value) in self.of(&format!("{name}_bucket")) {
            let mut labels = labels.clone();
            let end = labels.remove("le").ok_or_else(|| format!("a bucket of {name} without le"))?;
            let end = end.parse().map_err(|_| format!("{name}: le={end} is no number"))?;
            buckets.entry(labels).or_default().push((end, *value));
        }
        for (labels, buckets) in &buckets {
            let rising = buckets.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
            let last = buckets.last().copied();
            let count = self.value(&format!("{name}_count"), labels);
            let sum = self.value(&format!("{name}_sum"), labels);
            if !rising || last.map(|(end, _)| end) != Some(f64::INFINITY) {
                return Err(format!("the buckets of {name}{labels:?} fall, or do not end"));
            }
            if last.map(|(_, all)| all) != count || sum.is_none() {
                return Err(format!("{name}{labels:?} has another count, or no sum"));
            }
        }
        if self.of(&format!("{name}_count")).len() == buckets.len() {
            return Ok(());
        }
        Err(format!("{name} has counts without buckets"))
    }

    /// All samples of a name.
    #[must_use]
    pub fn of(&self, name: &str) -> &[(Labels, f64)] {
        self.samples.get(name).map_or(&[], Vec::as_slice)
    }

    fn value(&self, name: &str, labels: &Labels) -> Option<f64> {
        self.of(name).iter().find(|(found, _)| found == labels).map(|(_, value)| *value)
    }

    /// The value of a sample with these labels.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    #[track_caller]
    pub fn get(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels: Labels = labels.iter().map(|(label, text)| ((*label).into(), (*text).into())).collect();
        self.value(name, &labels).unwrap_or_else(|| panic!("there is no {name}{labels:?}"))
    }

    /// Whether no counter and no bucket is lower than in an earlier document, and none is gone.
    ///
    /// # Errors
    /// The first that is.
    pub fn not_below(&self, earlier: &Self) -> Result<(), String> {
        for (name, samples) in &earlier.samples {
            let counts = ["_total", "_bucket", "_count", "_sum"].iter().any(|end| name.ends_with(end));
            for (labels, before) in samples.iter().filter(|_| counts) {
                if self.value(name, labels).is_none_or(|now| now < *before) {
                    return Err(format!("{name}{labels:?} was {before}"));
                }
            }
        }
        Ok(())
    }
}

fn is_name(name: &str) -> bool {
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    begins && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// One line: name, labels and value.
fn sample(line: &str) -> Result<(String, Labels, f64), String> {
    let name_end = line.find(['{', ' ']).ok_or("no value")?;
    let (name, mut rest) = line.split_at(name_end);
    if !is_name(name) {
        return Err("an odd name".into());
    }
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"").ok_or("a label without a value")?;
            let (text, after) = label_text(after)?;
            if !is_name(label) || labels.insert(label.into(), text).is_some() {
                return Err("an odd label".into());
            }
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').ok_or("no value")?;
    let value = value.parse().map_err(|_| "a value that is no number")?;
    Ok((name.into(), labels, value))
}

/// The text of a label up to its closing quote, and what follows.
fn label_text(rest: &str) -> Result<(String, &str), String> {
    let (mut text, mut chars) = (String::new(), rest.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((text, &rest[at + 1..])),
            '\\' => match chars.next() {
                Some((_, 'n')) => text.push('\n'),
                Some((_, c @ ('\\' | '"'))) => text.push(c),
                _ => return Err("an odd escape".into()),
            },
            c => text.push(c),
        }
    }
    Err("a label without an end".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# HELP a_total It.\n# TYPE a_total counter\na_total{x=\"q\\\"\\\\\\n\"} 3\n\
        # HELP t Times.\n# TYPE t histogram\nt_bucket{le=\"0.5\"} 1\nt_bucket{le=\"+Inf\"} 2\nt_sum 9\n\
        t_count 2\n";

    #[test]
    fn a_good_document_is_read() {
        let metrics = Metrics::parse(GOOD).unwrap();
        assert_eq!(metrics.get("a_total", &[("x", "q\"\\\n")]).to_bits(), 3f64.to_bits());
        let later = Metrics::parse(&GOOD.replace("} 3", "} 4")).unwrap();
        later.not_below(&metrics).unwrap();
        assert!(metrics.not_below(&later).is_err());
    }

    #[test]
    fn a_document_that_breaks_the_format_is_refused() {
        for (from, to) in [
            ("a_total counter", "a_total count"),
            ("a_total", "a"),
            ("# HELP t Times.\n", ""),
            ("} 3", "}"),
            ("} 3", "} x"),
            ("x=", "1x="),
            ("t_count 2", "t_count 3"),
            ("t_sum 9\n", ""),
            ("\"} 1", "\"} 5"),
            ("t_sum 9", "u_sum 9"),
            ("t_sum 9", "t_sum 9\nt_sum 9"),
            ("+Inf", "9"),
        ] {
            assert!(Metrics::parse(&GOOD.replace(from, to)).is_err(), "{from} -> {to}");
        }
    }
}
