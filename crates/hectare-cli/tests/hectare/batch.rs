//! `hectare sh`: many commands on an image that is opened once.

use crate::support::{Bench, Ran, hectare, hectare_fed};

/// Runs a script on the image of a bench.
fn run(bench: &Bench, words: &[&str], script: &str) -> Ran {
    hectare_fed(&[&["sh"], words, &[bench.image.to_str().unwrap()]].concat(), script)
}

fn bench() -> Bench {
    let bench = Bench::empty();
    hectare(&["mkfs", "-q", bench.image.to_str().unwrap(), "16M"]).ok();
    bench
}

#[test]
fn commands_see_what_those_before_them_did() {
    let bench = bench();
    let file = bench.local("a file");
    std::fs::write(&file, "content").unwrap();
    let script = format!(
        "# comment\n\nmkdir -p /srv/www\n  cp -p '{0}' ':/srv/www/a file'\ncp ':/srv/www/a file' '{0}.back'\n\
         mv '/srv/www/a file' /srv/www/b\nchown 33:34 /srv/www/b\nchmod 600 :/srv/www/b\nfind / --uid 33\n\
         cat /srv/www/b\nxattr set user.x y /srv/www/b\nln -s b /srv/www/l\nrm -r /lost+found\n",
        file.display()
    );
    let ran = run(&bench, &[], &script).ok();
    assert_eq!(ran.text(), "/srv/www/b\ncontent");
    assert_eq!(std::fs::read_to_string(bench.local("a file.back")).unwrap(), "content");
    let listed = hectare(&["ls", "-R", &bench.at("/")]).ok();
    assert!(listed.text().contains("b\nl\n") && !listed.text().contains("lost+found"), "{}", listed.text());
    hectare_oracle::assert_clean(&bench.image).unwrap();
}

#[test]
fn nothing_is_done_unless_all_lines_can_be_parsed() {
    let bench = bench();
    for (line, reason) in [
        ("rm", "required arguments"),
        ("mkdri /b", "did you mean mkdir"),
        ("info disk.img", "not one for batches"),
        ("mkdir --policy mballoc /b", "--policy says how the image is opened"),
        ("ls --partition 1 /", "--partition says"),
        ("cp --from-offset 1 :/a :/b", "--from-offset says"),
        ("xattr get --no-lock user.a /", "--no-lock says"),
        ("mkdir 'b", "a quote is not closed"),
        ("sh disk.img", "not one for batches"),
    ] {
        let ran = run(&bench, &[], &format!("mkdir /a\n{line}\n"));
        let said = ran.refused();
        assert!(said.contains("line 2: ") && said.contains(reason), "{line}: {said}");
        assert_eq!(hectare(&["ls", &bench.at("/")]).ok().text(), "lost+found\n", "{line}");
    }
}

#[test]
fn a_failed_command_ends_the_batch_or_is_counted() {
    let bench = bench();
    let script = "mkdir /a\nmkdir /a\nmkdir /b\nrm /none\n";
    let ran = run(&bench, &[], script);
    assert!(ran.refused().contains("line 2: ") && ran.err.contains(":/a: "), "{}", ran.err);
    assert_eq!(hectare(&["ls", &bench.at("/")]).ok().text(), "a\nlost+found\n");
    let ran = run(&bench, &["-k"], script);
    assert_eq!(ran.code, Some(1));
    assert_eq!(ran.err.lines().count(), 4, "{}", ran.err);
    assert!(ran.err.ends_with("hectare: 3 of the commands failed\n"), "{}", ran.err);
    assert_eq!(hectare(&["ls", &bench.at("/")]).ok().text(), "a\nb\nlost+found\n");
    let ran = run(&bench, &[], "cat --verify /a\n");
    assert!(ran.refused().contains("--verify is not for batches"), "{}", ran.err);
}
