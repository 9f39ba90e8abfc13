//! Missing files are sent to nodes over a network, and compressed if that helps. Tested on a real cluster, whose
//! nodes cannot see the login node's files.

#![expect(clippy::unwrap_used, reason = "a test that finds something else fails")]
#![expect(clippy::disallowed_methods, reason = "a test starts foreign programs")]

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use gantry_tests::testbed::config::HOME;
use gantry_tests::testbed::{Config, Shared, shared, usable};
use gantry_tests::{SOON, binaries, require, within};
use serde_json::Value;
use tempfile::TempDir;

/// The timeout of a whole test, including a new testbed.
const LIMIT: Duration = Duration::from_secs(240);
const TEXT_BYTES: u64 = 8_000_000;
const NOISE_BYTES: u64 = 4_000_000;
/// The overhead of an archive of one file: the file's header, the padding of its last block, the end.
const MOST_AROUND_BYTES: u64 = 4 * 512;

/// Nodes that cannot see the folder of the tests' files.
fn hidden() -> Config {
    Config::with_nodes(2).hiding(env!("CARGO_TARGET_TMPDIR"))
}

/// A folder on the login node only, with text, noise, and a script that reports on the copies.
fn files() -> TempDir {
    let here = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (text, noise) = (here.path().join("text"), here.path().join("noise"));
    let line = "all work and no play\n";
    fs::write(&text, line.repeat(usize::try_from(TEXT_BYTES).unwrap() / line.len() + 1)).unwrap();
    fs::File::options().write(true).open(&text).unwrap().set_len(TEXT_BYTES).unwrap();
    let mut bytes = Vec::new();
    fs::File::open("/dev/urandom").unwrap().take(NOISE_BYTES).read_to_end(&mut bytes).unwrap();
    fs::write(&noise, bytes).unwrap();
    let script = here.path().join("sums");
    fs::write(&script, "#!/bin/sh\ncd \"$GANTRY_SESSION_DIR\" && cksum \"$@\"\n").unwrap();
    // The cluster's user is another user.
    for (path, mode) in [(here.path(), 0o755), (&text, 0o644), (&noise, 0o644), (&script, 0o755)] {
        fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    here
}

fn sum_of(folder: &Path, name: &str) -> String {
    let output = Command::new("cksum").arg(name).current_dir(folder).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Sends one file to both nodes of a testbed and compares the copies. Returns the event at the end.
fn send(bed: &Shared, folder: &Path, name: &str) -> Value {
    let mut command = bed.login().command("timeout").unwrap();
    // Leftovers there vanish with the testbed.
    command.env("GANTRY_RUNTIME_DIR", format!("{HOME}/gantry-runtime"));
    command.args(["--kill-after=5", "60"]).arg(binaries().dir.join("gantry"));
    command.args(["launch", "--json", "--hold-for-daemons", "--file"]).arg(folder.join(name));
    command.arg("--daemon").arg(format!("{} {name}", folder.join("sums").display()));
    let output = command.args(["--", "-N", "2", "-n", "2", "true"]).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}\n{}", bed.last_log_lines());
    let text = String::from_utf8(output.stdout).unwrap();
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let said = events.iter().filter(|event| event["event"] == "output");
    let said: String = said.filter_map(|event| event["text"].as_str()).collect();
    assert_eq!(said, sum_of(folder, name).repeat(2), "{text}");
    events.into_iter().find(|event| event["event"] == "staged").expect("something was sent")
}

#[test]
fn text_is_sent_packed_noise_as_it_is_and_both_come_as_they_were() {
    require!(usable(&hidden()));
    within(LIMIT, || {
        let here = files();
        let bed = shared(&hidden());
        let bytes_sent = |name| {
            let staged = send(&bed, here.path(), name);
            assert_eq!((&staged["nodes"], &staged["files_sent"]), (&2.into(), &2.into()), "{staged}");
            staged["bytes_sent"].as_u64().unwrap()
        };
        let (text, noise) = (bytes_sent("text"), bytes_sent("noise"));
        assert!(text < TEXT_BYTES / 10, "{text} bytes for {TEXT_BYTES} that are nearly all the same");
        // The script is sent as well.
        let most = NOISE_BYTES + 2 * MOST_AROUND_BYTES;
        assert!(
            (NOISE_BYTES..most).contains(&noise),
            "{noise} bytes for {NOISE_BYTES} that cannot be packed"
        );
        bed.assert_nothing_left(SOON);
    });
}
