//! The changelog's form: `# Changelog`, a `## Unreleased` section first, then `## VERSION - YYYY-MM-DD`,
//! newest first; in each, `###` headings of a fixed set over lists.

use super::{Finding, Source};

const HEADINGS: [&str; 6] = ["Added", "Changed", "Fixed", "Removed", "Security", "Known limits"];

/// Findings about the changelog.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut sections = 0;
    let mut in_heading = false;
    for (number, line) in source.lines() {
        let complaint = if number == 1 {
            (line != "# Changelog").then(|| "the first line must be '# Changelog'".into())
        } else if let Some(section) = line.strip_prefix("## ") {
            sections += 1;
            in_heading = false;
            complaint_about_section(section, sections)
        } else if let Some(heading) = line.strip_prefix("### ") {
            in_heading = true;
            (!HEADINGS.contains(&heading)).then(|| format!("'{heading}' is none of {}", HEADINGS.join(", ")))
        } else if line.starts_with("- ") {
            (!in_heading).then(|| "an entry outside a ### heading".into())
        } else {
            None
        };
        findings.extend(complaint.map(|message: String| Finding::error(source, number, message)));
    }
    if sections == 0 {
        findings.push(Finding::error(source, 1, "there is no '## Unreleased' section"));
    }
    findings
}

fn complaint_about_section(section: &str, position: usize) -> Option<String> {
    let released =
        section.split_once(" - ").is_some_and(|(version, date)| is_version(version) && is_date(date));
    let right = if position == 1 { section == "Unreleased" || released } else { released };
    (!right).then(|| format!("'{section}' is neither Unreleased (first) nor VERSION - YYYY-MM-DD"))
}

fn is_version(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    parts.len() == 3 && parts.iter().all(|part| part.parse::<u32>().is_ok())
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    lengths == [4, 2, 2] && parts.iter().all(|part| part.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{messages, source};
    use super::*;

    fn found(text: &str) -> Vec<String> {
        messages(&check(&source("CHANGELOG.md", text)))
    }

    #[test]
    fn form_is_checked() {
        let good = "# Changelog\n\nWords.\n\n## Unreleased\n\n### Added\n\n- A.\n\n## 0.1.0 - 2026-11-20\n";
        assert!(found(good).is_empty());
        assert_eq!(found("# Changes\n").len(), 2);
        assert_eq!(found("# Changelog\n## Unreleased\n### Stuff\n").len(), 1);
        assert_eq!(found("# Changelog\n## Unreleased\n- early\n").len(), 1);
        assert_eq!(found("# Changelog\n## Unreleased\n## soon\n").len(), 1);
    }
}
