//! The options of `mount -o`, and the one table of options ([`table`]) behind the parser, the help and the
//! tests.
//!
//! Options without meaning for a file system (`noauto`, `_netdev`, `x-...`) are for programs that read
//! `fstab`, and ignored. Options of the kernel's ext4 are accepted, too ([`kernel`]). Anything else that is
//! not in the tables is refused by name.

mod kernel;
mod table;

pub use table::{OPTIONS, OptionRow, metrics_address};

use crate::root::is_root;
use hectare_engine::{DataMode, OnError, OpenOptions, Policy, QuotaKind, Recording, Synchronous, Tunables};
use log::LevelFilter;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use table::Form;

/// Which reads update the access time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Atime {
    /// None.
    Never,
    /// The first after a change, and one a day.
    #[default]
    Relative,
    /// All that reach the server: data in the kernel's cache is read without a request.
    Always,
}

/// How a volume is mounted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountOptions {
    /// Mount read-only.
    pub read_only: bool,
    /// Other users may access the mount; the kernel checks permissions then.
    pub allow_other: bool,
    /// The kernel checks permissions.
    pub default_permissions: bool,
    /// Which reads update the access time.
    pub atime: Atime,
    /// Listing a directory updates its access time.
    pub directory_atime: bool,
    /// Access ACLs are enforced.
    pub acl: bool,
    /// New files get the group of their directory (`grpid`).
    pub directory_groups: bool,
    /// The reported size of the volume includes its metadata (`minixdf`).
    pub counts_overhead: bool,
    /// The journal is not replayed, which needs `read_only`: blocks are read as they are.
    pub no_replay: bool,
    /// Options without effect, a line each, to be logged.
    pub notes: Vec<String>,
    /// Small appends are buffered before they are allocated (delalloc).
    pub delayed_allocation: bool,
    /// The journaling mode of file data; the volume's default, if not given.
    pub data: Option<DataMode>,
    /// What to do on metadata corruption; the volume's default, if not given.
    pub errors: Option<OnError>,
    /// Whether a failed write of file data aborts the journal; the volume's default, if not given.
    pub data_errors_abort: Option<bool>,
    /// The age at which a change is committed.
    pub commit: Duration,
    /// Freed space is discarded on the device.
    pub discard: bool,
    /// The allocation policy.
    pub policy: Policy,
    /// The allocator's tunables.
    pub tunables: Tunables,
    /// Allocation requests are recorded.
    pub explain: bool,
    /// The kinds of quotas whose limits are enforced; all, if not given.
    pub quota_limits: Option<Vec<QuotaKind>>,
    /// The byte offset of the volume in the image.
    pub offset: u64,
    /// The device or file with the volume's journal, if that lies elsewhere.
    pub journal: Option<PathBuf>,
    /// Threads that answer requests; 0: a suitable number.
    pub threads: usize,
    /// Idle processors poll instead of halting during request bursts, in a virtual machine and if that is
    /// permitted.
    pub idle_poll: bool,
    /// Where they don't, a thread polls for requests during bursts.
    pub busy_poll: bool,
    /// Stay in the foreground.
    pub foreground: bool,
    /// The kernel buffers writes.
    pub writeback: bool,
    /// Files are opened without a request.
    pub no_open: bool,
    /// Creation times are reported, which the kernel requests one by one.
    pub creation_times: bool,
    /// Directories are listed with the attributes of their entries, where that seems useful.
    pub list_attributes: bool,
    /// How long the kernel caches names and attributes.
    pub kept: Duration,
    /// How long it caches that a name does not exist; as `kept`, if not given.
    pub kept_absent: Option<Duration>,
    /// The kernel sends `FLUSH` on every `close`, without effect.
    pub ask_flush: bool,
    /// The kernel sends `OPENDIR` before it lists a directory, without effect.
    pub ask_opendir: bool,
    /// Lookups and listings of one directory run in parallel.
    pub parallel_directories: bool,
    /// The largest read and write, in bytes.
    pub transfer_max: u32,
    /// The largest read, in bytes, if that is less.
    pub read_max: u32,
    /// The kernel's limit of readahead in bytes, where it may be set (by root).
    pub read_ahead: u32,
    /// Device nodes can be used (root only).
    pub dev: bool,
    /// Set-ID bits are honoured (root only).
    pub suid: bool,
    /// `dev` was given by the name that no program adds by itself.
    pub allow_dev: bool,
    /// `suid` was given by the name that no program adds by itself.
    pub allow_suid: bool,
    /// Mount as `fuseblk` where possible (root only, with a loop device).
    pub block: bool,
    /// Programs can be run.
    pub exec: bool,
    /// Every change is written through: names, attributes and content.
    pub sync: bool,
    /// Changes of names are written through.
    pub dirsync: bool,
    /// The log level; that of `HECTARE_LOG`, if not given.
    pub log: Option<LevelFilter>,
    /// The file to log to.
    pub log_file: Option<PathBuf>,
    /// Where metrics are served over HTTP.
    pub metrics: Option<SocketAddr>,
    /// They may be served to other hosts.
    pub metrics_public: bool,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            allow_other: false,
            default_permissions: false,
            atime: Atime::default(),
            directory_atime: true,
            acl: true,
            directory_groups: false,
            counts_overhead: false,
            no_replay: false,
            notes: Vec::new(),
            delayed_allocation: true,
            data: None,
            errors: None,
            data_errors_abort: None,
            commit: DEFAULT_COMMIT,
            discard: false,
            policy: Policy::default(),
            tunables: Tunables::default(),
            explain: false,
            quota_limits: None,
            offset: 0,
            journal: None,
            threads: 0,
            idle_poll: true,
            busy_poll: true,
            foreground: false,
            writeback: false,
            no_open: false,
            creation_times: false,
            list_attributes: true,
            kept: KEPT,
            kept_absent: None,
            ask_flush: false,
            ask_opendir: false,
            parallel_directories: true,
            transfer_max: TRANSFER_MAX,
            read_max: READ_MAX,
            read_ahead: READ_AHEAD,
            dev: false,
            suid: false,
            allow_dev: false,
            allow_suid: false,
            block: true,
            exec: true,
            sync: false,
            dirsync: false,
            log: None,
            log_file: None,
            metrics: None,
            metrics_public: false,
        }
    }
}

/// How long the kernel may cache names, negative names and attributes by default: it sees every change.
pub(crate) const KEPT: Duration = Duration::from_secs(24 * 3600);
/// The default limit of reads and writes, and the largest one there can be.
pub(crate) const TRANSFER_MAX: u32 = 1 << 20;
const DEFAULT_COMMIT: Duration = Duration::from_secs(5);
/// The default limit of reads: half of the readahead, so that one half can be requested while the other is
/// read.
const READ_MAX: u32 = READ_AHEAD / 2;
/// The default readahead: the largest request there can be. More is faster for streams, but as much is also
/// read around each of the first hundred places that a program touches in a mapped file.
const READ_AHEAD: u32 = TRANSFER_MAX;

/// An option that can't be used, and the reason.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("mount option '{option}': {reason}")]
pub struct BadOption {
    /// The option as given.
    pub option: String,
    /// The reason.
    pub reason: String,
}
/// Options for programs that read `fstab`: `x-systemd...`, `comment=`.
fn is_for_others(option: &str) -> bool {
    option.starts_with("x-") || option.starts_with("X-") || option.starts_with("comment=")
}

/// All options, including those of the kernel's ext4 without effect here.
fn known() -> impl Iterator<Item = &'static OptionRow> {
    OPTIONS.iter().chain(kernel::OPTIONS)
}

/// The message for an option that is in no table: with the most similar name, if there is one.
fn unknown(name: &str) -> String {
    let likeness = |row: &OptionRow| strsim::damerau_levenshtein(row.name, name);
    let nearest = known().min_by_key(|row| likeness(row)).filter(|row| likeness(row) <= name.len() / 3);
    let hint = nearest.map_or_else(String::new, |row| format!(", the nearest is '{}'", row.name));
    format!("there is no such option{hint}; `hectare mount --help` lists them")
}

impl MountOptions {
    /// Adds a list of options as `-o` takes it, separated by commas; later ones win.
    ///
    /// # Errors
    /// The first option that is unknown or has an invalid value.
    pub fn add(&mut self, list: &str) -> Result<(), BadOption> {
        list.split(',')
            .filter(|option| !option.is_empty() && !is_for_others(option))
            .try_for_each(|option| self.add_one(option))
    }

    fn add_one(&mut self, option: &str) -> Result<(), BadOption> {
        let bad = |reason: String| BadOption { option: option.to_owned(), reason };
        let (name, given) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let row = known().find(|row| row.name == name).ok_or_else(|| bad(unknown(name)))?;
        match (&row.form, given) {
            (Form::Flag(set), None) => set(self),
            (Form::Value(_, set), Some(value)) => set(self, value).map_err(bad)?,
            (Form::Ignored, _) => {}
            (Form::Accepted(why), _) => {
                self.notes.push(format!("mount option '{option}' changes nothing: {why}"));
            }
            (Form::Refused(why), _) => return Err(bad((*why).to_owned())),
            (Form::Flag(_), Some(_)) => return Err(bad("it takes no value".into())),
            (Form::Value(..), None) => return Err(bad(format!("it is given as {}", row.usage()))),
        }
        Ok(())
    }

    /// Clears `dev` and `suid` unless they were given as `allow_dev` and `allow_suid`: for options passed
    /// through `mount.fuse`, which adds both whenever root mounts.
    pub fn drop_added(&mut self) {
        self.dev &= self.allow_dev;
        self.suid &= self.allow_suid;
    }

    /// Whether changes are committed soon where the kernel does not pass on `sync`: unless an interval was
    /// given.
    pub(crate) fn settles(&self) -> bool {
        self.commit == DEFAULT_COMMIT
    }

    /// The engine's options. Checks whether this process is root, whose mounts may use the blocks reserved
    /// for root unless other users have access.
    #[must_use]
    pub fn open_options(&self) -> OpenOptions {
        let defaults = OpenOptions::default();
        OpenOptions {
            read_only: self.read_only,
            no_replay: self.no_replay,
            policy: self.policy,
            tunables: self.tunables,
            record: self.explain.then_some(Recording::LAST),
            discard: self.discard,
            data_mode: self.data,
            errors: self.errors,
            data_errors_abort: self.data_errors_abort,
            // Only root can access such a mount; on others, buffered data comes without its writer's
            // identity.
            use_reserved_blocks: is_root() && !self.allow_other,
            synchronous: match (self.sync, self.dirsync) {
                (true, _) => Synchronous::All,
                (false, true) => Synchronous::Names,
                (false, false) => Synchronous::Flagged,
            },
            commit_interval: Some(self.commit),
            quota_limits: self.quota_limits.clone().unwrap_or(defaults.quota_limits),
            delayed_bytes: if self.delayed_allocation { defaults.delayed_bytes } else { 0 },
            ..defaults
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn parse(list: &str) -> Result<MountOptions, BadOption> {
        let mut options = MountOptions::default();
        options.add(list).map(|()| options)
    }

    #[test]
    fn every_option_is_there_once_and_can_be_given() {
        let mut seen = HashSet::new();
        for row in known() {
            assert!(seen.insert(row.name), "{}", row.name);
            let given = match row.form {
                Form::Value("MODE", _) => "data=ordered".to_owned(),
                Form::Value("NAME", _) => "policy=best-fit".to_owned(),
                Form::Value("BEHAVIOR", _) if row.name == "data_err" => "data_err=abort".to_owned(),
                Form::Value("BEHAVIOR", _) => "errors=continue".to_owned(),
                Form::Value("LEVEL", _) => "log=info".to_owned(),
                Form::Value("NAME=VALUE", _) => "tunable=mb_max_to_scan=50".to_owned(),
                Form::Value("BYTES", _) => format!("{}=4096", row.name),
                Form::Value(..) => format!("{}=1", row.name),
                _ => row.name.to_owned(),
            };
            assert_eq!(parse(&given).is_err(), matches!(row.form, Form::Refused(_)), "{given}");
            let does_something = matches!(row.form, Form::Flag(_) | Form::Value(..));
            assert_eq!(row.help().is_empty(), !does_something);
        }
    }

    #[test]
    fn data_that_can_not_be_written_is_dealt_with_as_asked() {
        for (given, expected) in
            [("", None), ("data_err=abort", Some(true)), ("data_err=ignore", Some(false))]
        {
            assert_eq!(parse(given).unwrap().open_options().data_errors_abort, expected, "{given}");
        }
        assert!(parse("data_err=panic").is_err());
    }

    #[test]
    fn limits_are_enforced_for_all_or_for_those_that_are_named() {
        for (given, expected) in [
            ("", &QuotaKind::ALL[..]),
            ("grpquota,prjquota,grpquota", &QuotaKind::ALL[1..]),
            ("quota", &QuotaKind::ALL[..1]),
            ("usrquota,noquota", &[]),
        ] {
            assert_eq!(parse(given).unwrap().open_options().quota_limits, expected, "{given}");
        }
    }

    #[test]
    fn what_is_written_through_is_the_engines_to_do_too() {
        for (given, expected) in [
            ("", Synchronous::Flagged),
            ("dirsync", Synchronous::Names),
            ("sync", Synchronous::All),
            ("sync,dirsync,async", Synchronous::Names),
        ] {
            assert_eq!(parse(given).unwrap().open_options().synchronous, expected, "{given}");
        }
    }

    /// A line of `fstab` that the kernel's ext4 takes.
    #[test]
    fn regression_what_the_kernel_takes_is_taken() {
        let options = parse(
            "nodiratime,noacl,user_xattr,dioread_nolock,minixdf,noblock_validity,barrier=1,nobarrier,grpid,\
             journal_checksum,auto_da_alloc,i_version,init_itable=10,inode_readahead_blks=32,stripe=128,\
             max_batch_time=0,mb_optimize_scan=0,nombcache,prjquota,resuid=0,relatime,mand,iversion,_netdev",
        )
        .unwrap();
        assert!(!options.directory_atime && !options.acl && options.counts_overhead);
        assert!(options.directory_groups);
        let note = "mount option 'mand' changes nothing: the kernel has removed this option, too";
        assert!(options.notes.iter().any(|found| found == note), "{:?}", options.notes);
        assert_eq!((options.tunables.stripe, options.tunables.mb_optimize_scan), (Some(128), Some(false)));
        assert_eq!(options.notes.len(), 15, "all but those that do something, and relatime and _netdev");
        assert!(parse("ro,norecovery").unwrap().open_options().no_replay);
    }

    #[test]
    fn regression_what_mount_fuse_adds_does_not_count() {
        for (given, dev, suid) in [
            ("rw,dev,suid", false, false),
            ("allow_suid,dev,suid", false, true),
            ("allow_dev,allow_suid", true, true),
            ("allow_dev,allow_suid,nodev,nosuid,dev,suid", false, false),
        ] {
            let mut options = parse(given).unwrap();
            options.drop_added();
            assert_eq!((options.dev, options.suid), (dev, suid), "{given}");
        }
        let own = parse("dev,suid").unwrap();
        assert!(own.dev && own.suid);
    }

    #[test]
    fn later_ones_win() {
        let options = parse("ro,noatime,commit=30,rw,strictatime,,threads=3,x-systemd.requires=/a").unwrap();
        assert!(!options.read_only);
        assert_eq!(options.atime, Atime::Always);
        assert_eq!((options.commit, options.threads), (Duration::from_secs(30), 3));
        assert_eq!(parse("nodelalloc").unwrap().open_options().delayed_bytes, 0);
        assert_eq!(parse("policy=best-fit,offset=1048576").unwrap().offset, 1 << 20);
        let asked = parse("data=journal,errors=remount-ro,data=writeback").unwrap().open_options();
        assert_eq!(asked.data_mode, Some(DataMode::Writeback));
        assert_eq!(asked.errors, Some(OnError::RemountReadOnly));
    }

    #[test]
    fn statistics_stay_on_this_machine_unless_an_address_is_named() {
        for (given, address) in [
            ("9100", "127.0.0.1:9100"),
            (":0", "127.0.0.1:0"),
            ("localhost:9100", "127.0.0.1:9100"),
            ("[::1]:9100", "[::1]:9100"),
            ("0.0.0.0:80", "0.0.0.0:80"),
        ] {
            assert_eq!(metrics_address(given).unwrap(), address.parse().unwrap());
        }
        for given in ["", "host:9100", "70000", "127.0.0.1", "::1:"] {
            assert!(metrics_address(given).is_err(), "{given}");
        }
        let options = parse("metrics=:9100,log=debug,logfile=/var/log/a").unwrap();
        assert_eq!(options.log, Some(LevelFilter::Debug));
        assert_eq!((options.metrics.unwrap().port(), options.metrics_public), (9100, false));
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        for (given, text) in [
            ("rw,fast", "mount option 'fast': there is no such option; `hectare mount --help` lists them"),
            (
                "nobarier",
                "mount option 'nobarier': there is no such option, the nearest is 'nobarrier'; \
                 `hectare mount \
                 --help` lists them",
            ),
            (
                "test_dummy_encryption=v2",
                "mount option 'test_dummy_encryption=v2': encryption is not supported",
            ),
            (
                "dax=always",
                "mount option 'dax=always': files can't be mapped past the page cache through FUSE",
            ),
            ("ro=1", "mount option 'ro=1': it takes no value"),
            ("threads", "mount option 'threads': it is given as threads=N"),
            ("threads=0", "mount option 'threads=0': it takes a number from 1 to 256"),
            ("commit=-1", "mount option 'commit=-1': it takes seconds from 0 to 3600"),
            ("data=none", "mount option 'data=none': there are journal, ordered and writeback"),
            ("log=loud", "mount option 'log=loud': there are off, error, warn, info, debug and trace"),
            ("max_write=1", "mount option 'max_write=1': it takes bytes from 4096 to 1048576"),
            ("actimeo=-1", "mount option 'actimeo=-1': it takes seconds from 0 to 31536000"),
            ("errors=stop", "mount option 'errors=stop': there are continue, remount-ro and panic"),
        ] {
            assert_eq!(parse(given).unwrap_err().to_string(), text);
        }
        let policy = parse("policy=mballoc:-best-avail,tunable=mb_max_to_scan=50").unwrap();
        assert_eq!(policy.policy.to_string(), "mballoc,-best-avail");
        assert_eq!(policy.open_options().tunables.mb_max_to_scan, 50);
        let classes = parse("classes=64K:1M").unwrap().open_options().tunables.classes;
        assert_eq!(classes.bounds(), [64 << 10, 1 << 20]);
        let error = parse("classes=1M:64K").unwrap_err().to_string();
        assert_eq!(error, "mount option 'classes=1M:64K': the bounds of size classes 1M and 64K do not rise");
        assert!(parse("tunable=mb_max_to_scan").is_err() && parse("stripe=x").is_err());
        assert!(parse("policy=worst").is_err() && parse("offset=").is_err());
    }
}
