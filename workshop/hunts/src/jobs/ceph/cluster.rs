//! A Ceph cluster of one monitor and one OSD, in a directory.
//!
//! Both run in the foreground as children, and are killed when the cluster is dropped. The OSD keeps its
//! objects as BlueStore does on a real cluster, on a sparse file, so that it can be killed and started again.
//! There is no manager: images don't need one, and Ceph only warns.
//!
//! Hazards: a path of an administration socket has at most 107 bytes, so the directory's has to be short. The
//! OSD needs a second or two after it was started before it answers; clients wait for it.

use super::Ended;
use hectare_oracle::tool::{self, find, need};
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What the cluster and its images need.
const PROGRAMS: [&str; 6] = ["ceph-mon", "ceph-osd", "monmaptool", "ceph", "rbd", "timeout"];
/// Ceph's name of the cluster; any does.
const CLUSTER_ID: &str = "6d0b0f0e-8a2c-4f6e-9a53-2f3a7c1d5b10";
const OSD_ID: &str = "1c0e7b52-6f3d-4c58-9d0a-7b9f3a2e4c61";
/// How long one command of Ceph's may take, in seconds: far too long, for a machine that is far too busy.
const COMMAND_MAX: &str = "180";
/// How long the cluster may take to answer at first.
const PATIENCE: Duration = Duration::from_secs(180);

/// A cluster that runs.
pub(super) struct Cluster {
    folder: PathBuf,
    _monitor: Daemon,
    osd: Mutex<Option<Daemon>>,
}

/// A process that is killed in the end.
pub(super) struct Daemon(Child);

impl Daemon {
    /// Starts a program whose output goes to a file.
    pub(super) fn start(command: &mut Command, log: &Path) -> Result<Self, Ended> {
        let line = tool::line_of(command);
        let output = File::options().create(true).append(true).open(log);
        let started = output.and_then(|file| {
            let copy = file.try_clone()?;
            command.stdin(Stdio::null()).stdout(copy).stderr(file).spawn()
        });
        started.map(Self).map_err(|error| Ended::Failed(format!("{line}: {error}")))
    }

    /// Whether it has ended by itself.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Both fail only where it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether Ceph's programs are there.
pub(super) fn need_programs() -> Result<(), Ended> {
    PROGRAMS.iter().try_for_each(|name| need(name).map(drop)).map_err(Ended::from)
}

impl Cluster {
    /// Makes a cluster in an empty directory, with a pool for images.
    pub(super) fn start(folder: &Path, verbose: bool) -> Result<Self, Ended> {
        // Held until both are known, so that they differ.
        let ports = [free_port()?, free_port()?].map(|(port, _listener)| port);
        let config = folder.join("ceph.conf");
        fs::write(&config, configuration(folder, ports, verbose)).map_err(|error| error.to_string())?;
        let monitors = format!("[v2:127.0.0.1:{}/0,v1:127.0.0.1:{}/0]", ports[0], ports[1]);
        let map = folder.join("monmap");
        let mut monmaptool = need("monmaptool")?;
        monmaptool.args(["--create", "--fsid", CLUSTER_ID, "--addv", "a", &monitors]);
        finished(monmaptool.arg(&map))?;
        let [monitor, osd] = ["ceph-mon", "ceph-osd"].map(|name| {
            move |config: &Path| -> Result<_, Ended> {
                let mut command = need(name)?;
                command.arg("--conf").arg(config).args(["-i", if name == "ceph-mon" { "a" } else { "0" }]);
                Ok(command)
            }
        });
        finished(monitor(&config)?.args(["--mkfs", "--monmap"]).arg(&map))?;
        let log = folder.join("monitor.out");
        let monitor = Daemon::start(monitor(&config)?.arg("-f"), &log)?;
        let cluster = Self { folder: folder.to_owned(), _monitor: monitor, osd: Mutex::new(None) };
        cluster.answers(&["quorum_status"])?;
        cluster.ceph(&["osd", "new", OSD_ID])?;
        fs::create_dir(folder.join("osd")).map_err(|error| error.to_string())?;
        finished(osd(&config)?.args(["--mkfs", "--osd-uuid", OSD_ID]))?;
        cluster.start_osd()?;
        cluster.ceph(&["osd", "pool", "create", "rbd", "8"])?;
        cluster.rbd(&["pool", "init", "rbd"])?;
        Ok(cluster)
    }

    /// The configuration, for those who connect.
    pub(super) fn configuration(&self) -> PathBuf {
        self.folder.join("ceph.conf")
    }

    /// Where it keeps what belongs to it.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The version of Ceph.
    pub(super) fn version() -> Result<String, Ended> {
        finished(need("ceph-osd")?.arg("--version"))
    }

    /// Kills the OSD, as a loss of its machine's power would, and starts it again.
    pub(super) fn crash_osd(&self) -> Result<(), Ended> {
        drop(self.osd.lock().map_err(|_| "a thread panicked".to_owned())?.take());
        self.start_osd()
    }

    fn start_osd(&self) -> Result<(), Ended> {
        let mut command = need("ceph-osd")?;
        command.arg("--conf").arg(self.configuration()).args(["-i", "0", "-f"]);
        let daemon = Daemon::start(&mut command, &self.folder.join("osd.out"))?;
        *self.osd.lock().map_err(|_| "a thread panicked".to_owned())? = Some(daemon);
        Ok(())
    }

    /// Runs a command of the program `rbd` to its end; its output.
    pub(super) fn rbd(&self, words: &[&str]) -> Result<String, Ended> {
        finished(self.limited("rbd")?.args(words))
    }

    fn ceph(&self, words: &[&str]) -> Result<String, Ended> {
        finished(self.limited("ceph")?.args(words))
    }

    /// Waits until a command of the program `ceph` succeeds.
    fn answers(&self, words: &[&str]) -> Result<(), Ended> {
        let began = Instant::now();
        loop {
            match finished(self.limited("ceph")?.args(["--connect-timeout", "10"]).args(words)) {
                Ok(_) => return Ok(()),
                Err(error) if began.elapsed() > PATIENCE => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }

    /// A program of Ceph's that is ended when it waits for too long.
    fn limited(&self, name: &str) -> Result<Command, Ended> {
        let program =
            find(name).ok_or_else(|| Ended::Skipped(format!("the tool {name} is not installed")))?;
        let mut command = need("timeout")?;
        command.args(["-k", "5", COMMAND_MAX]).arg(program).arg("--conf").arg(self.configuration());
        Ok(command)
    }
}

/// A port that is free, for as long as the listener lives.
fn free_port() -> Result<(u16, TcpListener), Ended> {
    let free =
        TcpListener::bind("127.0.0.1:0").and_then(|listener| Ok((listener.local_addr()?.port(), listener)));
    free.map_err(|error| Ended::Failed(format!("no free port on loopback: {error}")))
}

/// Runs a command to its end; its output, or all that it said if it failed.
pub(super) fn finished(command: &mut Command) -> Result<String, Ended> {
    let said = tool::run(command);
    if said.succeeded() { Ok(said.stdout) } else { Err(Ended::Failed(said.report())) }
}

/// The configuration of everything in a directory, with the monitor on these ports.
fn configuration(folder: &Path, ports: [u16; 2], verbose: bool) -> String {
    let folder = folder.display();
    let level = if verbose { "" } else { "debug ms = 0/0\nlog to file = false\n" };
    format!(
        "[global]\n\
         fsid = {CLUSTER_ID}\n\
         mon host = [v2:127.0.0.1:{},v1:127.0.0.1:{}]\n\
         public addr = 127.0.0.1\n\
         cluster addr = 127.0.0.1\n\
         auth cluster required = none\n\
         auth service required = none\n\
         auth client required = none\n\
         run dir = {folder}\n\
         admin socket = {folder}/$name.$pid.asok\n\
         pid file = {folder}/$name.pid\n\
         log file = {folder}/$name.log\n\
         crash dir = {folder}\n\
         {level}\
         mon data = {folder}/mon\n\
         mon data avail warn = 1\n\
         mon data avail crit = 0\n\
         mon allow pool size one = true\n\
         osd data = {folder}/osd\n\
         osd objectstore = bluestore\n\
         bluestore block create = true\n\
         bluestore block size = 3221225472\n\
         osd memory target = 939524096\n\
         osd crush chooseleaf type = 0\n\
         osd pool default size = 1\n\
         osd pool default min size = 1\n\
         osd pool default pg autoscale mode = off\n",
        ports[0], ports[1]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_keeps_to_its_directory_and_to_loopback() {
        let text = configuration(Path::new("/somewhere"), [3, 4], false);
        assert!(text.contains("[v2:127.0.0.1:3,v1:127.0.0.1:4]") && text.contains("size = 1\n"));
        let places = text.lines().filter(|line| line.contains('/') && !line.contains("debug"));
        assert!(places.clone().count() > 5);
        places.for_each(|line| assert!(line.contains(" = /somewhere"), "{line}"));
    }
}
