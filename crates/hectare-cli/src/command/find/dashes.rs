//! The options of `find` as they are typed elsewhere, with one dash, where they mean the same.
//!
//! What this is not: find(1). Options that would mean something else (`-perm`, `-newer FILE`) or are not here
//! (`-size`, `-exec`) are errors, as any other is.

use std::ffi::OsString;

/// What is typed, and the option that it is.
const SAME: [(&str, &str); 10] = [
    ("-name", "--name"),
    ("-iname", "--iname"),
    ("-type", "--type"),
    ("-empty", "--empty"),
    ("-uid", "--uid"),
    ("-gid", "--gid"),
    ("-inum", "--inode"),
    ("-mindepth", "--min-depth"),
    ("-maxdepth", "--max-depth"),
    ("-print0", "--print0"),
];

/// The arguments, of which `command` is the command, with options of `find` spelt as they are declared.
pub(crate) fn spelt(mut arguments: Vec<OsString>, command: usize) -> Vec<OsString> {
    if arguments.get(command).is_none_or(|command| command != "find") {
        return arguments;
    }
    for argument in arguments.iter_mut().skip(command).take_while(|argument| *argument != "--") {
        if let Some((_, option)) = SAME.iter().find(|(typed, _)| *argument == *typed) {
            *argument = OsString::from(*option);
        }
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_spelt_and_values_are_left_alone() {
        let spelt = |line: &str| {
            let words = line.split(' ').map(OsString::from).collect();
            let words: Vec<_> = spelt(words, 1).into_iter().map(|word| word.into_string().unwrap()).collect();
            words.join(" ")
        };
        assert_eq!(
            spelt("hectare find a: -type f -name *.c -maxdepth 2 -empty -print0"),
            "hectare find a: --type f --name *.c --max-depth 2 --empty --print0"
        );
        assert_eq!(spelt("hectare find a: -perm 644 -size +1"), "hectare find a: -perm 644 -size +1");
        assert_eq!(spelt("hectare find -- -name"), "hectare find -- -name");
        assert_eq!(spelt("hectare ls -name"), "hectare ls -name");
    }
}
