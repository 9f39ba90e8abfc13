//! Difficult hosts for ssh. Each function changes a node of a bed. Dropping the result undoes the change, so the next
//! test finds the bed unchanged.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;

use nix::sys::signal::Signal;

use crate::proc;
use crate::skip::suite;
use crate::slurm::{Cluster, on_cluster};
use crate::testbed::config::{HOME, UID};
use crate::testbed::{Config, Machine, Process};
use crate::{binaries, record_skip};

/// The login shell's start file.
const BASHRC: &str = ".bashrc";

/// The suites that reach hosts by libssh2; all others do by the OpenSSH client.
const BY_LIBSSH2: &str = "ssh_libssh2";

/// Runs a test on a bed with the running suite's ssh client. Counts a skip if that client was not built.
///
/// # Panics
/// As [`on_cluster`].
#[track_caller]
pub fn on_hosts(config: Config, body: impl FnOnce(&mut Cluster) + Send + 'static) {
    let client = if suite() == BY_LIBSSH2 { "libssh2" } else { "openssh" };
    if client == "libssh2" && !binaries().dir.join("gantry-ssh").exists() {
        return record_skip("gantry-ssh is not built: it needs libssl-dev and pkg-config");
    }
    on_cluster(config, move |cluster| {
        cluster.variables = vec![("GANTRY_SSH", client)];
        body(cluster);
    });
}

/// Something that was done to a node.
#[derive(Debug)]
pub struct Changed<'a> {
    cluster: &'a Cluster,
    node: u16,
    undo: String,
}

impl Drop for Changed<'_> {
    fn drop(&mut self) {
        // If the node is off by now, there is nothing to undo.
        drop(run_on(self.cluster, self.node, &self.undo));
    }
}

fn run_on(cluster: &Cluster, node: u16, script: &str) -> Result<(), String> {
    let mut command = cluster.bed.node(node).root_command("sh")?;
    let output = command.args(["-ec", script]).output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    output.status.success().then_some(()).ok_or_else(|| format!("{script} on n{node:03}: {said}"))
}

/// Runs a script as root on a node. The script `undo` reverts it.
///
/// # Panics
/// When it fails.
#[track_caller]
#[must_use]
pub fn change<'a>(cluster: &'a Cluster, node: u16, script: &str, undo: &str) -> Changed<'a> {
    let changed = Changed { cluster, node, undo: undo.to_owned() };
    if let Err(why) = run_on(cluster, node, script) {
        panic!("{why}");
    }
    changed
}

/// Gives the user another login shell on a node.
///
/// # Panics
/// When that fails.
#[track_caller]
#[must_use]
pub fn with_login_shell<'a>(cluster: &'a Cluster, node: u16, shell: &str) -> Changed<'a> {
    let script = format!(
        "sed 's,:/bin/bash$,:{shell},' /etc/passwd >/run/passwd; mount --bind /run/passwd /etc/passwd"
    );
    change(cluster, node, &script, "umount /etc/passwd; rm /run/passwd")
}

/// Forbids execution in these folders of a node.
///
/// # Panics
/// When that fails.
#[track_caller]
#[must_use]
pub fn noexec<'a>(cluster: &'a Cluster, node: u16, folders: &[&str]) -> Changed<'a> {
    let each = |option: &str| {
        let mount = |folder: &&str| format!("mount -o remount,{option} {folder}; ");
        folders.iter().map(mount).collect::<String>()
    };
    change(cluster, node, &each("noexec"), &each("exec"))
}

/// Stops a node's sshd. The kernel still accepts connections for it, but sends no data.
///
/// # Panics
/// When it does not run.
#[track_caller]
#[must_use]
pub fn stop_sshd(cluster: &Cluster, node: u16) -> Stopped {
    let sshd = find_sshd(cluster, node);
    proc::send(sshd.pid, Signal::SIGSTOP);
    Stopped(sshd.pid)
}

/// Hosts behind firewalls; dropped, they accept connections again.
#[derive(Debug)]
pub struct Closed<'a>(Vec<Machine<'a>>);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        for host in &self.0 {
            // A host that is off by now has no firewall.
            drop(host.accept_connections());
        }
    }
}

/// Makes all hosts of the bed, including the tool's, refuse every connection except ssh.
///
/// # Errors
/// When there is no firewall here: `nft` is missing, or the kernel does not support it.
pub fn closed_to_all_but_ssh(cluster: &Cluster) -> Result<Closed<'_>, String> {
    let mut closed = Closed(Vec::new());
    for host in cluster.bed.nodes().into_iter().chain([cluster.bed.login()]) {
        host.refuse_connections(&[22])?;
        closed.0.push(host);
    }
    Ok(closed)
}

/// A stopped process. It continues when this is dropped.
#[derive(Debug)]
pub struct Stopped(i32);

impl Drop for Stopped {
    fn drop(&mut self) {
        proc::send(self.0, Signal::SIGCONT);
    }
}

#[track_caller]
fn find_sshd(cluster: &Cluster, node: u16) -> Process {
    let machine = cluster.bed.node(node);
    let init = machine.init().expect("the node is on");
    let is_it = |process: &Process| {
        proc::stat(process.pid).is_some_and(|stat| stat.comm == "sshd" && stat.parent == init)
    };
    machine.processes().into_iter().find(is_it).expect("an sshd")
}

/// Restarts a node's sshd with a changed configuration: the output of this sed script. Dropping the result restores the
/// original configuration.
///
/// # Panics
/// When that fails.
#[track_caller]
#[must_use]
pub fn with_sshd_config<'a>(cluster: &'a Cluster, node: u16, script: &str) -> Changed<'a> {
    cluster.bed.node(node).kill_daemon("sshd").expect("an sshd");
    let start = |config: &str| {
        format!("/usr/sbin/sshd -f {config} -h /etc/ssh/testbed/n{node:03} </dev/null >/dev/null 2>&1")
    };
    let own = "/etc/ssh/testbed/sshd_config";
    let other = format!("sed '{script}' {own} >/run/sshd_config; {}", start("/run/sshd_config"));
    let gone = "pid=$(cat /run/sshd.pid); kill $pid; while kill -0 $pid 2>/dev/null; do :; done";
    change(cluster, node, &other, &format!("{gone}; rm /run/sshd_config; {}", start(own)))
}

/// A file of the user's home, which all hosts share; dropping it restores the previous content.
#[derive(Debug)]
pub struct HomeFile {
    path: PathBuf,
    before: Option<Vec<u8>>,
}

impl Drop for HomeFile {
    fn drop(&mut self) {
        let restored = match &self.before {
            Some(text) => fs::write(&self.path, text),
            None => fs::remove_file(&self.path),
        };
        // The bed may be gone, and the home with it.
        drop(restored);
    }
}

/// Writes a file of the user's home.
///
/// # Panics
/// When that fails.
#[track_caller]
#[must_use]
pub fn home_file(cluster: &Cluster, name: &str, text: &str) -> HomeFile {
    let path = cluster.bed.login().path(format!("{HOME}/{name}")).expect("the login node");
    let file = HomeFile { before: fs::read(&path).ok(), path };
    fs::write(&file.path, text).expect("a file");
    fs::set_permissions(&file.path, fs::Permissions::from_mode(0o600)).expect("permissions");
    chown(&file.path, Some(UID), Some(UID)).expect("the user's");
    file
}

/// Has login shells print something before they do anything.
///
/// # Panics
/// When that fails.
#[track_caller]
#[must_use]
pub fn with_banner(cluster: &Cluster) -> HomeFile {
    home_file(cluster, BASHRC, "echo Welcome to a cluster; echo Mind the gap >&2; printf 'no line end'\n")
}

/// The content of a file in the user's home.
///
/// # Panics
/// When it does not exist.
#[track_caller]
#[must_use]
pub fn read_home(cluster: &Cluster, name: &str) -> String {
    let path = cluster.bed.login().path(format!("{HOME}/{name}")).expect("the login node");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
