//! Our client with the servers of others.

use crate::behaviour::{behaves, neighbours_stay_apart};
use crate::servers::{Theirs, on, open, options};
use hectare_device::Device;
use hectare_nbd::{NbdDevice, Place};
use hectare_oracle::skip;
use hectare_oracle::tool::{need, run};
use hectare_units::Bytes;
use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const LEN: u64 = 16 << 20;

#[test]
fn nbdkit_in_all_its_variants() {
    let variants: [&[&str]; 11] = [
        &["memory", "16M"],
        &["--no-sr", "memory", "16M"],
        &[
            "--filter=blocksize-policy",
            "memory",
            "16M",
            "blocksize-minimum=512",
            "blocksize-error-policy=error",
        ],
        &[
            "--filter=blocksize-policy",
            "memory",
            "16M",
            "blocksize-minimum=4096",
            "blocksize-maximum=64K",
            "blocksize-error-policy=error",
        ],
        &["--filter=nozero", "memory", "16M"],
        &["--filter=nozero", "memory", "16M", "zeromode=notrim"],
        &["--filter=fua", "memory", "16M"],
        &["--filter=noextents", "memory", "16M"],
        &["--filter=noparallel", "memory", "16M"],
        &["--filter=multi-conn", "memory", "16M", "multi-conn-mode=disable"],
        &["--filter=delay", "memory", "16M", "rdelay=1ms", "wdelay=1ms"],
    ];
    for (number, arguments) in variants.into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let server = match Theirs::nbdkit(arguments, &socket) {
            Ok(server) => server,
            Err(reason) => skip!("theirs::nbdkit_in_all_its_variants", reason),
        };
        let client = open(&socket, "");
        assert_eq!(client.len().get(), LEN, "{arguments:?}");
        behaves(&client, number as u64, 200, 1);
        neighbours_stay_apart(&client);
        assert_eq!(client.reconnects(), 0, "{arguments:?}");
        drop(client);
        server.kill();
    }
}

#[test]
fn a_file_behind_nbdkit_and_behind_qemu_has_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    for server in ["nbdkit", "qemu-nbd"] {
        let (socket, path) = (folder.path().join("s"), folder.path().join("file"));
        File::create(&path).unwrap().set_len(LEN).unwrap();
        let mut command = match need(server) {
            Ok(command) => command,
            Err(reason) => skip!("theirs::a_file_behind_nbdkit_and_behind_qemu_has_what_was_written", reason),
        };
        match server {
            "nbdkit" => {
                command.args(["--foreground", "--exit-with-parent", "-U"]).arg(&socket).arg("file").arg(&path)
            }
            _ => command
                .args(["-t", "-f", "raw", "-e", "8", "--discard=unmap", "-x", "vol", "-k"])
                .arg(&socket)
                .arg(&path),
        };
        let running = Theirs::start(&mut command, &socket);
        let client = open(&socket, if server == "nbdkit" { "" } else { "vol" });
        assert!(client.is_zeroed(), "{server}");
        behaves(&client, 3, 300, 1);
        let mut through = vec![0; 16 << 20];
        client.read_at(Bytes::ZERO, &mut through).unwrap();
        drop(client);
        running.kill();
        assert!(std::fs::read(&path).unwrap() == through, "{server}");
        std::fs::remove_file(&socket).unwrap_or_default();
    }
}

#[test]
fn nbd_server_of_the_protocols_authors() {
    let mut command = match need("nbd-server") {
        Ok(command) => command,
        Err(reason) => skip!("theirs::nbd_server_of_the_protocols_authors", reason),
    };
    let folder = tempfile::tempdir().unwrap();
    let (config, path) = (folder.path().join("config"), folder.path().join("file"));
    File::create(&path).unwrap().set_len(LEN).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let text = format!(
        "[generic]\nlistenaddr = 127.0.0.1\nport = {port}\nallowlist = true\n\
         [vol]\nexportname = {}\nflush = true\nfua = true\ntrim = true\n",
        path.display()
    );
    std::fs::write(&config, text).unwrap();
    let pid_file = folder.path().join("pid");
    // It goes into the background by itself.
    let _ = run(command.arg("-C").arg(&config).arg("-p").arg(&pid_file)).expect_success();
    hectare_oracle::until(|| TcpStream::connect(("127.0.0.1", port)).is_ok() && pid_file.exists());
    let _server = Killed(std::fs::read_to_string(&pid_file).unwrap().trim().to_owned());
    let mut address = on(folder.path(), "vol");
    address.place = Place::Tcp("localhost".to_owned(), port);
    let client = NbdDevice::open(&address, &options()).unwrap();
    behaves(&client, 4, 300, 1);
    let mut through = vec![0; 16 << 20];
    client.read_at(Bytes::ZERO, &mut through).unwrap();
    assert!(std::fs::read(&path).unwrap() == through);
}

/// A process that is ended by its number.
struct Killed(String);

impl Drop for Killed {
    fn drop(&mut self) {
        let number = self.0.parse().ok().and_then(rustix::process::Pid::from_raw);
        let _ = number.map(|number| rustix::process::kill_process(number, rustix::process::Signal::TERM));
    }
}

#[test]
fn errors_of_the_server_are_errors_of_the_operation() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let arguments = ["--filter=error", "memory", "16M", "error=ENOSPC", "error-pwrite-rate=100%"];
    let _server = match Theirs::nbdkit(&arguments, &socket) {
        Ok(server) => server,
        Err(reason) => skip!("theirs::errors_of_the_server_are_errors_of_the_operation", reason),
    };
    let client = open(&socket, "");
    let error = client.write_at(Bytes::kib(4), &[1; 4096]).unwrap_err();
    assert!(error.is_no_space(), "{error}");
    client.read_at(Bytes::ZERO, &mut [0; 512]).unwrap();
}

#[test]
fn a_server_that_stays_away_ends_everything_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let server = match Theirs::nbdkit(&["memory", "16M"], &socket) {
        Ok(server) => server,
        Err(reason) => skip!("theirs::a_server_that_stays_away_ends_everything_in_time", reason),
    };
    let short = hectare_nbd::Options { reconnect_timeout: Duration::from_secs(2), ..options() };
    let client = NbdDevice::open(&on(&socket, ""), &short).unwrap();
    client.write_at(Bytes::ZERO, b"before").unwrap();
    server.kill();
    let began = Instant::now();
    let error = client.flush().unwrap_err().to_string();
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(8), "{took:?}");
    assert!(error.contains("could not be made again within 2 s"), "{error}");
    let began = Instant::now();
    assert!(client.read_at(Bytes::ZERO, &mut [0; 6]).is_err(), "nothing comes after");
    assert!(began.elapsed() < Duration::from_secs(1));
}

/// Its content is gone each time, but for what is written again.
#[test]
fn what_was_not_flushed_is_written_again_to_a_server_that_forgot_it() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let start = || Theirs::nbdkit(&["memory", "16M"], &socket);
    let mut server = match start() {
        Ok(server) => server,
        Err(reason) => {
            skip!("theirs::what_was_not_flushed_is_written_again_to_a_server_that_forgot_it", reason)
        }
    };
    let client = open(&socket, "");
    let mut model = vec![0; 16 << 20];
    for turn in 0..5_usize {
        let at = turn * 300_000;
        let data = vec![u8::try_from(turn + 1).unwrap(); 500_000];
        client.write_at(Bytes::of(at), &data).unwrap();
        model[at..at + data.len()].copy_from_slice(&data);
        client.zero(Bytes::of(at + 1000), Bytes::new(10_000)).unwrap();
        model[at + 1000..at + 11_000].fill(0);
        server.kill();
        std::fs::remove_file(&socket).unwrap();
        server = start().unwrap();
    }
    let mut found = vec![0; model.len()];
    client.read_at(Bytes::ZERO, &mut found).unwrap();
    assert!(found == model);
    assert!(client.reconnects() >= 5);
    drop(server);
}
