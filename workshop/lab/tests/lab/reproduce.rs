//! Reproductions: the page is well-formed and has every table, and nothing is left behind.

use crate::markup::complaint;
use hectare_lab::reproduce::{Experiment, Options, page};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn quick(work: &Path) -> Options {
    Options {
        rounds: 2,
        quick: true,
        kernel: false,
        part: None,
        cpus: vec![1],
        work: work.to_owned(),
        stop: Arc::default(),
    }
}

#[test]
fn regression_what_is_interrupted_leaves_nothing() {
    for name in ["ag-headers", "overwrite"] {
        let work = tempfile::tempdir().unwrap();
        let options = quick(work.path());
        let experiment = Experiment::named(name).unwrap();
        let stop = |line: &str| options.stop.store(line.contains("round 1"), Ordering::Relaxed);
        let error = experiment.run(&options, stop).err().unwrap();
        assert!(error.to_string().contains("interrupted"), "{error}");
        assert_eq!(std::fs::read_dir(&work).unwrap().count(), 0, "{name}");
    }
}

#[test]
fn the_page_is_well_formed_and_the_volumes_are_gone() {
    let work = tempfile::tempdir().unwrap();
    let options = quick(work.path());
    let mut said = Vec::new();
    let headers = Experiment::named("ag-headers").unwrap();
    let reproduction = headers.run(&options, |line| said.push(line.to_owned())).unwrap();
    assert_eq!(said.len(), 3 * 2 * 2, "{said:?}");
    let page = page(std::slice::from_ref(&reproduction));
    assert_eq!(complaint(&page), None);
    for part in &reproduction.parts {
        assert!(page.contains(&part.title) && reproduction.text().contains(&part.about));
    }
    assert!(page.matches("<svg").count() >= 6, "charts are drawn");
    assert_eq!(std::fs::read_dir(&work).unwrap().count(), 0);
}
