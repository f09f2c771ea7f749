//! Capabilities of a program as the attribute `security.capability` stores them.
//!
//! Version 2 of the attribute (linux/capability.h, `vfs_cap_data`): a word with the version and the effective
//! flag, then permitted and inheritable bits, low words before high ones; all little-endian.
//!
//! The text form is that of setcap: clauses of capability names, an operator (`=`, `+`, `-`) and flags (`e`,
//! `i`, `p`). The effective set of a file is one flag: a text that makes some permitted or inheritable
//! capabilities effective and others not can't be stored, and is refused.

use crate::tree::Xattr;
use hectare_units::low32;

const VERSION_2: u32 = 0x0200_0000;
const EFFECTIVE: u32 = 1;

/// capabilities(7), in the order of their numbers.
const NAMES: [&str; 41] = [
    "chown",
    "dac_override",
    "dac_read_search",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "linux_immutable",
    "net_bind_service",
    "net_broadcast",
    "net_admin",
    "net_raw",
    "ipc_lock",
    "ipc_owner",
    "sys_module",
    "sys_rawio",
    "sys_chroot",
    "sys_ptrace",
    "sys_pacct",
    "sys_admin",
    "sys_boot",
    "sys_nice",
    "sys_resource",
    "sys_time",
    "sys_tty_config",
    "mknod",
    "lease",
    "audit_write",
    "audit_control",
    "setfcap",
    "mac_override",
    "mac_admin",
    "syslog",
    "wake_alarm",
    "block_suspend",
    "audit_read",
    "perfmon",
    "bpf",
    "checkpoint_restore",
];

/// The attribute that makes these capabilities permitted and effective.
pub(super) fn permitted(bits: u64) -> Xattr {
    attribute(bits, 0, true)
}

fn attribute(permitted: u64, inheritable: u64, effective: bool) -> Xattr {
    let head = if effective { VERSION_2 | EFFECTIVE } else { VERSION_2 };
    let words =
        [head, low32(permitted), low32(inheritable), low32(permitted >> 32), low32(inheritable >> 32)];
    let value: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    Xattr { name: (*b"security.capability").into(), value: value.into() }
}

/// Reads the text form.
pub(super) fn from_text(text: &str) -> Result<Xattr, String> {
    let [mut effective, mut inheritable, mut permitted] = [0u64; 3];
    for clause in text.split_ascii_whitespace() {
        let at =
            clause.find(['=', '+', '-']).ok_or("a capability clause is NAMES, `=`, `+` or `-`, FLAGS")?;
        let (names, mut actions) = clause.split_at(at);
        let bits = bits(names, actions.starts_with('='))?;
        while let Some(operator) = actions.chars().next() {
            let end = actions[1..].find(['=', '+', '-']).map_or(actions.len(), |at| at + 1);
            let flags = &actions[1..end];
            if let Some(other) = flags.chars().find(|flag| !"eip".contains(*flag)) {
                return Err(format!("capability flags are e, i and p, not `{}`", other.escape_default()));
            }
            for (set, flag) in [(&mut effective, 'e'), (&mut inheritable, 'i'), (&mut permitted, 'p')] {
                let named = flags.contains(flag);
                match operator {
                    '=' if named => *set |= bits,
                    '=' => *set &= !bits,
                    '+' if named => *set |= bits,
                    '-' if named => *set &= !bits,
                    _ => {}
                }
            }
            actions = &actions[end..];
        }
    }
    let has = permitted | inheritable;
    if effective != 0 && effective != has {
        return Err("a file's capabilities are effective all together or not at all".to_owned());
    }
    Ok(attribute(permitted, inheritable, effective != 0))
}

/// The set of a list of names; an empty list before `=` means all.
fn bits(names: &str, assigned: bool) -> Result<u64, String> {
    let all = (1u64 << NAMES.len()) - 1;
    if names.is_empty() && assigned || names.eq_ignore_ascii_case("all") {
        return Ok(all);
    }
    names.split(',').try_fold(0, |set, name| {
        let lower = name.to_ascii_lowercase();
        let known = lower.strip_prefix("cap_").and_then(|name| NAMES.iter().position(|n| *n == name));
        let at = known.ok_or_else(|| format!("`{}` is not a capability", name.escape_default()))?;
        Ok(set | 1 << at)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn texts_become_what_setcap_stores() {
        let value = |text: &str| from_text(text).unwrap().value.to_vec();
        // As `setcap cap_net_raw+ep` and `setcap cap_net_admin,cap_bpf=p` store it.
        let [mut raw, mut two] = [[0u8; 20]; 2];
        (raw[0], raw[3], raw[5]) = (1, 2, 0x20);
        assert_eq!(value("cap_net_raw+ep"), raw);
        (two[3], two[5], two[12]) = (2, 0x10, 0x80);
        assert_eq!(value("cap_net_admin,CAP_BPF=p"), two);
        assert_eq!(permitted(1 << 13).value.to_vec(), raw);
        assert_eq!(value("cap_net_raw=eip cap_net_raw-i"), raw);
        assert_eq!(value("cap_kill=ep cap_kill= cap_net_raw+p+e"), raw);
    }

    #[test]
    fn what_is_no_capability_is_refused() {
        for (text, reason) in [
            ("cap_net_row+ep", "`cap_net_row` is not a capability"),
            ("cap_net_raw", "a capability clause is"),
            ("cap_net_raw+x", "not `x`"),
            ("cap_net_raw+ep cap_kill+p", "all together or not at all"),
        ] {
            assert!(from_text(text).unwrap_err().contains(reason), "{text}");
        }
    }
}
