//! One host of a bed, seen from outside by a test: its processes and files, and the faults that a test can cause there.
//!
//! All of this uses this machine's `/proc`, so it needs no program on the host and no network to it. It works for a
//! node without a network link, too.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;

use super::bed::{Bed, enter};
use super::command::{Result, complete, complete_with, err};
use super::config::{HOME, LOGIN, UID, USER};
use super::host::OWN_OF_NODES;
use super::place::own_number;
use super::{files, flux};
use crate::fault_run::kind_of;
use crate::proc::Pidfd;
use crate::schedule::Kind;
use crate::{World, proc};

/// How long a killed process may take to be gone.
const DYING: Duration = Duration::from_secs(20);

/// A host of a bed: the login node or a compute node.
#[derive(Debug, Clone)]
pub struct Machine<'a> {
    bed: &'a Bed,
    name: String,
}

/// A process on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number on this machine: for `/proc`, signals and `gantry_tests::proc`.
    pub pid: i32,
    /// Its pid in the host's own namespace.
    pub number: i32,
    /// The user that it belongs to.
    pub uid: u32,
    /// Its command line.
    pub line: String,
}

impl<'a> Machine<'a> {
    pub(crate) fn new(bed: &'a Bed, name: String) -> Self {
        Self { bed, name }
    }

    /// The host's own name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its init, as this machine numbers it.
    ///
    /// # Errors
    /// When it is off.
    pub fn init(&self) -> Result<i32> {
        self.bed.place.host(&self.name).ok_or_else(|| format!("{} is off", self.name))
    }

    /// Where this machine finds a file of the host.
    ///
    /// # Errors
    /// When it is off.
    pub fn path(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        Ok(Path::new("/proc")
            .join(self.init()?.to_string())
            .join("root")
            .join(path.strip_prefix("/").unwrap_or(path)))
    }

    /// A command that runs a program here as the ordinary user, in the home, with a separate environment. Add arguments
    /// and variables and run it. If the process that it starts is killed, the program is killed too. The program is the
    /// only child of that process (see [`program`]). The command's working directory is not the program's: see
    /// [`command_in`](Machine::command_in).
    ///
    /// # Errors
    /// The host is off.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Result<Command> {
        self.command_in(HOME, program)
    }

    /// As [`command`](Machine::command), in a folder of the host.
    ///
    /// # Errors
    /// When it is off.
    pub fn command_in(&self, folder: impl AsRef<OsStr>, program: impl AsRef<OsStr>) -> Result<Command> {
        let mut command = enter(self.init()?);
        command.arg("setpriv");
        // PBS's commands prove the submitter's identity with a set-user-id program.
        if self.bed.config.pbs.is_none() {
            command.arg("--no-new-privs");
        }
        command.args([format!("--reuid={UID}"), format!("--regid={UID}")]);
        command.args(["--clear-groups", "--pdeathsig=KILL", "--", "env", "-C"]).arg(folder).arg(program);
        command
            .env_clear()
            .env("PATH", self.bed.config.path())
            .env("HOME", HOME)
            .env("USER", USER)
            .env("LOGNAME", USER);
        command.env("SHELL", "/bin/bash").env("LANG", "C.UTF-8");
        Ok(command)
    }

    /// As [`command`](Machine::command), in a world: with its variables, so that the world's leak check finds its
    /// processes on every host, and in its folder for work. The ordinary user becomes the owner of the world's folders.
    ///
    /// # Errors
    /// The host is off, or the owner of the world's folders cannot be changed.
    pub fn command_of(&self, world: &World, program: impl AsRef<OsStr>) -> Result<Command> {
        for folder in fs::read_dir(world.path()).map_err(err(world.path().display()))?.flatten() {
            chown(folder.path(), Some(UID), Some(UID)).map_err(err(folder.path().display()))?;
        }
        chown(world.path(), Some(UID), Some(UID)).map_err(err(world.path().display()))?;
        let mut command = self.command_in(world.work_dir(), program)?;
        command.envs(world.variables());
        Ok(command)
    }

    /// A command that runs a program here as root.
    ///
    /// # Errors
    /// When it is off.
    pub fn root_command(&self, program: impl AsRef<OsStr>) -> Result<Command> {
        let mut command = enter(self.init()?);
        command.args(["setpriv", "--pdeathsig=KILL", "--"]).arg(program);
        command
            .env_clear()
            .env("PATH", self.bed.config.path())
            .env("HOME", "/root")
            .env("USER", "root")
            .env("LANG", "C.UTF-8");
        Ok(command)
    }

    /// All processes here except the init, parents before their children. The order of pids is not sufficient: they
    /// start again at low numbers when they are used up.
    #[must_use]
    pub fn processes(&self) -> Vec<Process> {
        let mut found: Vec<Process> = self.pids().into_iter().filter_map(Process::read).collect();
        found.sort_by_cached_key(|process| {
            let parent = |pid: &i32| proc::stat(*pid).map(|stat| stat.parent).filter(|parent| *parent > 1);
            // The limit stops an endless chain: a process may end meanwhile, and another one may get its pid.
            std::iter::successors(Some(process.pid), parent).take(64).count()
        });
        found
    }

    /// All processes here but its init, as this machine numbers them.
    fn pids(&self) -> Vec<i32> {
        let Ok(init) = self.init() else { return Vec::new() };
        let namespace = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let Some(here) = namespace(init) else { return Vec::new() };
        let mut pids = proc::all();
        pids.retain(|pid| *pid != init && namespace(*pid).as_ref() == Some(&here));
        pids
    }

    /// The processes that have these numbers on the host, as this machine numbers them.
    pub(crate) fn pids_of(&self, numbers: &[i32]) -> Vec<Option<i32>> {
        let pids = self.pids();
        let known: HashMap<i32, i32> =
            pids.into_iter().filter_map(|pid| Some((own_number(pid)?, pid))).collect();
        numbers.iter().map(|number| known.get(number).copied()).collect()
    }

    /// The processes of the ordinary user.
    #[must_use]
    pub fn user_processes(&self) -> Vec<Process> {
        self.processes().into_iter().filter(|process| process.uid == UID).collect()
    }

    /// The guard of the ordinary user's app. The keeper above it has the same command line and is not returned.
    ///
    /// # Panics
    /// There is no guard.
    #[must_use]
    #[track_caller]
    pub fn guard(&self) -> Process {
        let processes = self.user_processes();
        let guard = processes.iter().find(|process| kind_of(process.pid) == Some(Kind::Guard));
        guard.cloned().unwrap_or_else(|| panic!("no guard in {processes:?}"))
    }

    /// The ordinary user's files, folders and sockets in the folders that are private to the host, with the host's
    /// paths. The home and its initial content are left out. So is `/tmp` on the login node, because that is this
    /// machine's.
    #[must_use]
    pub fn user_files(&self) -> Vec<PathBuf> {
        let own_of_nodes: &[(&str, &str)] = if self.name == LOGIN { &[] } else { &OWN_OF_NODES };
        let mut found = Vec::new();
        for (folder, _) in own_of_nodes.iter().chain(&[("/run", "")]) {
            if let Ok(root) = self.path("/")
                && let Ok(path) = self.path(folder)
                && let Ok(own) = fs::metadata(&path)
            {
                walk(&path, &root, own.dev(), &mut found);
            }
        }
        found
    }

    /// The TCP sockets of the ordinary user, as `LOCAL -> REMOTE` in the kernel's hexadecimal words.
    #[must_use]
    pub fn user_sockets(&self) -> Vec<String> {
        let Ok(init) = self.init() else { return Vec::new() };
        let tables = ["tcp", "tcp6"].map(|table| format!("/proc/{init}/net/{table}"));
        let texts = tables.iter().filter_map(|table| fs::read_to_string(table).ok());
        texts.flat_map(|text| parse_sockets(&text, UID)).collect()
    }

    /// The ordinary user's remains here, one line each.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let name = &self.name;
        // The brokers are the user's own, and stay.
        let processes =
            self.user_processes().into_iter().filter(|process| !flux::is_broker(process.pid, &process.line));
        let processes =
            processes.map(|process| format!("{name}: process {} {}", process.number, process.line));
        let files = self.user_files().into_iter().filter(|path| !flux::is_of_broker(path));
        let files = files.map(|path| format!("{name}: file {}", path.display()));
        let sockets = self.user_sockets().into_iter().filter(|socket| !flux::is_link(socket));
        let sockets = sockets.map(|socket| format!("{name}: tcp {socket}"));
        processes.chain(files).chain(sockets).collect()
    }

    /// Disconnects the network link: no packet arrives or leaves any more, and no program is notified.
    ///
    /// # Errors
    /// The hall is gone.
    pub fn cut_link(&self) -> Result<()> {
        self.set_link("down")
    }

    /// Plugs the cable in again.
    ///
    /// # Errors
    /// When the hall is gone.
    pub fn mend_link(&self) -> Result<()> {
        self.set_link("up")
    }

    fn set_link(&self, state: &str) -> Result<()> {
        let mut ip = self.bed.in_hall();
        ip.args(["ip", "link", "set", &self.name, state]);
        complete(ip)
    }

    /// Makes the host refuse connections from other hosts, except on Slurm's ports and those in `open`. Its own
    /// connections to other hosts work. On the login node this simulates a site whose nodes cannot dial back.
    ///
    /// # Errors
    /// `nft` (Debian package nftables) is missing, or the kernel does not support it.
    pub fn refuse_connections(&self, open: &[u16]) -> Result<()> {
        self.filter(open, "reject with tcp reset")
    }

    /// As [`refuse_connections`](Machine::refuse_connections), but whoever connects hears nothing, and waits.
    ///
    /// # Errors
    /// As there.
    pub fn ignore_connections(&self, open: &[u16]) -> Result<()> {
        self.filter(open, "drop")
    }

    fn filter(&self, open: &[u16], verdict: &str) -> Result<()> {
        let mut nft = self.root_command("nft")?;
        nft.args(["-f", "-"]).stdin(Stdio::piped());
        complete_with(nft, &build_rules(open, verdict))
    }

    /// Makes that port unreachable for the ordinary user's programs on this host, here and on other hosts, as if the
    /// server were down.
    ///
    /// # Errors
    /// As [`refuse_connections`](Machine::refuse_connections).
    pub fn hide_port_from_user(&self, port: u16) -> Result<()> {
        let mut nft = self.root_command("nft")?;
        nft.args(["-f", "-"]).stdin(Stdio::piped());
        let rule = format!("meta skuid {UID} tcp dport {port} reject with tcp reset");
        let rules = format!(
            "flush ruleset\ntable inet testbed {{\n chain output {{\n  type filter hook output priority 0\n  {rule}\n }}\n}}\n"
        );
        complete_with(nft, &rules)
    }

    /// Undoes [`refuse_connections`](Machine::refuse_connections) and
    /// [`hide_port_from_user`](Machine::hide_port_from_user).
    ///
    /// # Errors
    /// The error of `nft`.
    pub fn accept_connections(&self) -> Result<()> {
        let mut nft = self.root_command("nft")?;
        nft.args(["flush", "ruleset"]);
        complete(nft)
    }

    /// Kills a daemon here (`slurmd`, `sshd`, `munged`, `slurmctld`) and waits until it is gone. The processes that it
    /// has started continue.
    ///
    /// # Errors
    /// It does not run.
    pub fn kill_daemon(&self, name: &str) -> Result<()> {
        let init = self.init()?;
        let is_it = |process: &Process| {
            proc::stat(process.pid).is_some_and(|stat| stat.comm == name && stat.parent == init)
        };
        let found = self.processes().into_iter().find(is_it);
        let process = found.ok_or_else(|| format!("no {name} on {}", self.name))?;
        let gone = kill(process.pid, Signal::SIGKILL)?.wait_end(DYING);
        gone.then_some(()).ok_or_else(|| format!("{name} on {} does not die", self.name))
    }

    /// Starts slurmd again, after [`kill_daemon`](Machine::kill_daemon).
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_slurmd(&self) -> Result<()> {
        let mut slurmd = self.root_command("slurmd")?;
        // It goes into the background with these descriptors open.
        slurmd.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let status = slurmd.status().map_err(err("slurmd"))?;
        status.success().then_some(()).ok_or_else(|| format!("slurmd on {}: {status}", self.name))
    }

    /// Takes its power away: everything on it is gone at once, its own files too.
    ///
    /// # Errors
    /// When it is off.
    pub fn power_off(&self) -> Result<()> {
        let gone = kill(self.init()?, Signal::SIGKILL)?.wait_end(DYING);
        gone.then_some(()).ok_or_else(|| format!("{} does not go off", self.name))
    }

    /// Starts the host again, with empty folders. Returns when its daemons are ready. Slurm may need more time
    /// ([`Testbed::wait_idle`](super::Testbed::wait_idle)).
    ///
    /// # Errors
    /// When it is on, or does not start.
    pub fn power_on(&self) -> Result<()> {
        if self.init().is_ok() {
            return Err(format!("{} is on", self.name));
        }
        // The old cable disappears with the old network, but the kernel needs some time for that.
        let mut unplug = self.bed.in_hall();
        unplug.args(["ip", "link", "del", &self.name]);
        drop(complete(unplug));
        self.bed.start_hosts(std::slice::from_ref(&self.name))
    }

    /// The namespaces that the host consists of, as `/proc/PID/ns` names them.
    #[must_use]
    pub fn namespaces(&self) -> BTreeSet<String> {
        self.init().map(namespaces).unwrap_or_default()
    }
}

impl Process {
    fn read(pid: i32) -> Option<Self> {
        let uid = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
        proc::is_alive(pid).then_some(())?;
        Some(Self { pid, number: own_number(pid)?, uid, line: proc::command_line(pid) })
    }
}

/// The namespaces of a process that this process is not in.
pub(crate) fn namespaces(pid: i32) -> BTreeSet<String> {
    let of = |pid: &str| -> BTreeSet<String> {
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/ns")) else { return BTreeSet::new() };
        let links = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        links.map(|link| link.to_string_lossy().into_owned()).collect()
    };
    of(&pid.to_string()).difference(&of("self")).cloned().collect()
}

/// This machine's pid of the program that a command of [`Machine::command`] runs. None: it does not run yet, or has
/// ended.
#[must_use]
pub fn program(command: i32) -> Option<i32> {
    proc::children(command).first().copied()
}

/// Lists the user's files under a folder, with paths relative to `root`. Skips other file systems: they are not private
/// to the host.
fn walk(folder: &Path, root: &Path, own: u64, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = Path::new("/").join(entry.path().strip_prefix(root).unwrap_or(&entry.path()));
        let Ok(metadata) = entry.metadata() else { continue };
        if path == Path::new(HOME) || metadata.dev() != own {
            continue;
        }
        if metadata.uid() == UID {
            found.push(path);
        }
        if metadata.is_dir() {
            walk(&entry.path(), root, own, found);
        }
    }
}

/// The sockets of a user in a table of `/proc/net/tcp` (proc(5)).
fn parse_sockets(table: &str, user: u32) -> Vec<String> {
    let mut found = Vec::new();
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        // A socket in TIME_WAIT (06) belongs to no process any more.
        if let [_, local, remote, state, _, _, _, uid, ..] = fields[..]
            && uid.parse() == Ok(user)
            && state != "06"
        {
            found.push(format!("{local} -> {remote}"));
        }
    }
    found
}

/// Rules for a host that only lets Slurm in.
fn build_rules(open: &[u16], verdict: &str) -> String {
    let (first, last) = files::SRUN_PORTS;
    let mut ports =
        vec![files::SLURMCTLD_PORT.to_string(), files::SLURMD_PORT.to_string(), format!("{first}-{last}")];
    ports.extend(open.iter().map(u16::to_string));
    format!(
        "flush ruleset\ntable inet testbed {{\n chain input {{\n  type filter hook input priority 0\n  iif lo accept\n  \
         tcp dport {{ {} }} accept\n  tcp flags & (syn | ack) == syn {verdict}\n }}\n}}\n",
        ports.join(", ")
    )
}

/// Sends a signal to a process of a bed that was found just before.
fn kill(pid: i32, signal: Signal) -> Result<Pidfd> {
    let process = Pidfd::open(pid).map_err(err(pid))?;
    process.signal(signal).map_err(err(pid))?;
    Ok(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rows: &[&str], expected: &[&str]) {
        let table = format!("  sl  local_address rem_address st ...\n{}\n", rows.join("\n"));
        assert_eq!(parse_sockets(&table, 20001), expected, "{table}");
    }

    #[test]
    fn the_users_sockets_are_found_in_the_kernels_table() {
        let row = |state: &str, uid: u32| {
            format!(
                "   0: 0100007F:1F90 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 {uid} 0 1 1"
            )
        };
        check(&[&row("0A", 20001)], &["0100007F:1F90 -> 00000000:0000"]);
        check(&[&row("0A", 0), &row("06", 20001), "nonsense"], &[]);
    }

    #[test]
    fn a_closed_host_still_lets_slurm_in() {
        let rules = build_rules(&[22], "reject with tcp reset");
        assert!(rules.contains("dport { 6817, 6818, 60001-63000, 22 } accept"), "{rules}");
    }
}
