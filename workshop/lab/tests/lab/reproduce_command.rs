//! `hectare-lab reproduce`: its list, its refusals, and the results that do not depend on the machine.

use crate::support::hectare;
use serde_json::Value;

fn rows(part: &Value) -> Vec<(String, Vec<Vec<f64>>)> {
    let figures = |samples: &Value| -> Vec<f64> {
        samples.as_array().unwrap().iter().map(|figure| figure.as_f64().unwrap()).collect()
    };
    let row = |row: &Value| {
        let samples = row["samples"].as_array().unwrap().iter().map(figures).collect();
        (row["name"].as_str().unwrap().to_owned(), samples)
    };
    part["rows"].as_array().unwrap().iter().map(row).collect()
}

fn samples(part: &Value, name: &str) -> Vec<Vec<f64>> {
    rows(part).into_iter().find(|(row, _)| row == name).map(|(_, samples)| samples).unwrap()
}

#[test]
fn experiments_are_listed_with_their_sources() {
    let listed = hectare(&["reproduce"]).ok();
    let names = ["best-available", "busy-groups", "overwrite", "size-classes", "ag-headers"];
    for name in names {
        assert!(listed.text().lines().any(|line| line.starts_with(name)), "{name}");
    }
    let json: Value = hectare(&["reproduce", "--json"]).ok().json();
    assert_eq!(json.as_array().unwrap().len(), names.len());
    assert!(json[0]["source"].as_str().unwrap().contains("2023"));
}

#[test]
fn what_can_not_be_reproduced_is_refused_on_one_line() {
    for (words, part) in [
        (&["reproduce", "overwrites"][..], "overwrite"),
        (&["reproduce", "overwrite", "--rounds", "0"], "0"),
        (&["reproduce", "busy-groups", "--cpus", "1,257"], "257"),
        (&["reproduce", "--html", "page.html"], "name one"),
        (&["reproduce", "overwrite", "--html", "disk.img"], ".html"),
    ] {
        let refused = hectare(words);
        assert_eq!(refused.code, Some(2), "{words:?}");
        assert!(refused.err.contains(part), "{words:?}: {}", refused.err);
    }
    let nowhere = hectare(&["reproduce", "overwrite", "--quick", "--work", "/nonexistent/place"]);
    assert_eq!(nowhere.code, Some(1));
    assert!(nowhere.refused().contains("/nonexistent/place"), "{}", nowhere.err);
}

#[test]
fn an_overwrite_starts_a_handle_before_and_none_after() {
    let work = tempfile::tempdir().unwrap();
    let place = work.path().to_str().unwrap();
    let page = work.path().join("page.html");
    let words = ["reproduce", "overwrite", "--quick", "--no-kernel", "--json", "--work", place, "--html"];
    let ran = hectare(&[&words[..], &[page.to_str().unwrap()]].concat()).ok();
    let json: Value = ran.json();
    let direct = &json[0]["parts"][0];
    let handles = samples(direct, "handles per write");
    assert!(handles[0].len() == 2 && handles[1].len() == 2, "two rounds: {handles:?}");
    assert!(handles[0].iter().all(|handles| (0.9..1.2).contains(handles)), "{handles:?}");
    assert!(handles[1].iter().all(|handles| *handles < 0.1), "{handles:?}");
    let dax = &json[0]["parts"][1]["sides"][0];
    assert!(dax["left_out"].is_string() || samples(&json[0]["parts"][1], "MB/s")[0].len() == 2, "{dax}");
    assert_eq!(direct["rows"][0]["published"], serde_json::json!([3018.0, 4059.0]));
    assert!(std::fs::read_to_string(&page).unwrap().contains("</html>"));
    let left: Vec<_> = std::fs::read_dir(&work).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["page.html"], "volumes are removed");
}

#[test]
fn headers_are_written_in_one_pass_without_ten_calls_a_group() {
    let words = ["reproduce", "ag-headers", "--quick", "--no-kernel", "--json"];
    let ran = hectare(&words).ok();
    let json: Value = ran.json();
    for part in json[0]["parts"].as_array().unwrap() {
        let (reads, writes) = (samples(part, "reads"), samples(part, "writes"));
        let groups = reads[0][0] / 5.0;
        assert!(groups >= 10.0 && reads[1][0] == 0.0, "{reads:?}");
        assert!((writes[0][0] - writes[1][0] - 5.0 * groups).abs() < 0.5, "{writes:?} {groups}");
    }
}

/// Regression: tables of threads were made and then discarded, because none of virtual processors has such a
/// title.
#[test]
fn regression_one_table_of_threads_is_made_alone() {
    let work = tempfile::tempdir().unwrap();
    let place = work.path().to_str().unwrap();
    let words =
        ["reproduce", "busy-groups", "--quick", "--no-kernel", "--json", "--part", "2 threads", "--work"];
    let json: Value = hectare(&[&words[..], &[place]].concat()).ok().json();
    let titles: Vec<&str> =
        json[0]["parts"].as_array().unwrap().iter().map(|part| part["title"].as_str().unwrap()).collect();
    assert_eq!(titles, ["2 threads, mb_optimize_scan=0", "2 threads, mb_optimize_scan=1"]);
}
