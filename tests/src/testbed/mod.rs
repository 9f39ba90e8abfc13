//! A cluster on one machine, for the suites and for manual use: a real Slurm, PBS or Flux, and sshd, on nodes made of
//! namespaces.
//!
//! ```text
//!  hall (separate namespaces: it adds nothing to the machine's network, /etc or /run)
//!  +------------------------------------------------------------------------+
//!  |  login 10.42.0.1       n001 10.42.1.1        n002 10.42.1.2             |
//!  |  munged, slurmctld     munged, slurmd, sshd  munged, slurmd, sshd   ... |
//!  |      |                     |                     |                      |
//!  |  ----+---------------------+---------------------+---- switch ----      |
//!  +------------------------------------------------------------------------+
//! ```
//!
//! The login node is a separate host, not the machine itself. So this machine's `/etc`, name and network stay
//! unchanged, and two beds do not disturb each other. As on a real cluster, the login side sees few of the nodes'
//! processes. It does see this machine's files, so it finds programs and tests at their usual paths.
//!
//! One process keeps the bed alive: the hall's init. When it ends, the kernel ends everything in the bed (`hall.rs`).
//! It ends on request. In a bed of a test it also ends with the test's process, even if that is killed.

mod bed;
mod cgroup;
mod command;
pub mod config;
mod files;
pub mod flux;
mod hall;
mod host;
mod init;
mod logs;
mod machine;
pub mod pbs;
mod place;
mod shared;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

pub use command::Result;
pub use config::{Config, HOME};
pub use machine::{Machine, Process, program};
pub use shared::{Shared, shared, shared_with_others, turn_of, usable};

use crate::proc::becomes_true;
use bed::Bed;
use command::{complete, complete_output, err};
use place::{HALL, Held, Place};

/// How long the nodes may take until Slurm has them all.
const ASSEMBLING: Duration = Duration::from_secs(90);

/// How long Slurm may need to get all nodes of a running bed. After that the bed is considered broken.
const SETTLING: Duration = Duration::from_secs(8);

/// Requirements of a bed on this machine: command, Debian package.
pub const NEEDS: [(&str, &str); 10] = [
    ("slurmctld", "slurm-wlm"),
    ("slurmd", "slurm-wlm"),
    ("srun", "slurm-wlm"),
    ("munged", "munge"),
    ("sshd", "openssh-server"),
    ("ssh", "openssh-client"),
    ("ssh-keygen", "openssh-client"),
    ("ip", "iproute2"),
    ("nsenter", "util-linux"),
    ("setpriv", "util-linux"),
];

/// A bed that is up.
///
/// Dropping one made by [`up`](Testbed::up) ends it and waits for that. One that was [found](Testbed::find) or [left
/// running](Testbed::leave) continues.
#[derive(Debug)]
pub struct Testbed {
    bed: Bed,
    owned: bool,
}

impl Testbed {
    /// Makes a bed for this process, in a new folder. When this process ends, even by a kill, the bed ends too.
    ///
    /// # Errors
    /// With the last lines of the bed's logs; no remains are left then.
    pub fn up(config: &Config, program: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("gantry-bed-").tempdir().map_err(err("a folder"))?;
        let place = Place::new(folder.keep());
        let owner = i32::try_from(std::process::id()).map_err(err("a pid"))?;
        Self::make(place, config, program, Some(owner))
    }

    /// Ensures that a bed of that name and configuration runs under `base`. A running one is reused; one with another
    /// configuration or a broken one is replaced. It continues until [`down`](Testbed::down). Returns whether it was
    /// made now.
    ///
    /// # Errors
    /// As [`up`](Testbed::up).
    pub fn stand(base: &Path, name: &str, config: &Config, program: &Path) -> Result<(Self, bool)> {
        let _held = Held::new(base)?;
        if let Some(bed) = Self::find_at(Place::new(base.join(name)), program)
            && bed.bed.config == *config
            && bed.is_whole()
        {
            return Ok((bed, false));
        }
        let place = Place::new(base.join(name));
        place.sweep()?;
        let mut bed = Self::make(place, config, program, None)?;
        bed.leave();
        Ok((bed, true))
    }

    /// The bed of that name under `base`, if it is up.
    #[must_use]
    pub fn find(base: &Path, name: &str, program: &Path) -> Option<Self> {
        Self::find_at(Place::new(base.join(name)), program)
    }

    /// Ends the bed of that name under `base` and removes the remains of a dead one. Returns whether there was anything
    /// to remove.
    ///
    /// # Errors
    /// A process does not die, or a file cannot be removed.
    pub fn sweep(base: &Path, name: &str) -> Result<bool> {
        if !base.exists() {
            return Ok(false);
        }
        let _held = Held::new(base)?;
        Place::new(base.join(name)).sweep()
    }

    fn find_at(place: Place, program: &Path) -> Option<Self> {
        let (hall_pid, _) = place.hall().filter(|_| place.is_ready())?;
        let config = place.config().ok()?;
        Some(Self { bed: Bed { place, config, hall_pid, program: program.to_path_buf() }, owned: false })
    }

    fn make(place: Place, config: &Config, program: &Path, owner: Option<i32>) -> Result<Self> {
        if !(1..=config::MOST_NODES).contains(&config.nodes) {
            return Err(format!("a bed has 1 to {} nodes", config::MOST_NODES));
        }
        place.create(config)?;
        let made = Self::assemble(&place, config, program, owner);
        made.map_err(|why| {
            let logs = logs::of_bed(&place);
            let swept = place.sweep().err().map_or_else(String::new, |error| format!("\nand {error}"));
            format!("{why}{logs}{swept}")
        })
    }

    fn assemble(place: &Place, config: &Config, program: &Path, owner: Option<i32>) -> Result<Self> {
        let mut open = Command::new(program);
        open.args(["inside", "hall"]).arg(place.dir()).args(owner.map(|pid| pid.to_string()));
        // The bed gets nothing from the environment of the process that makes it.
        open.env_clear().env("PATH", config.path());
        complete(open)?;
        let (hall_pid, _) = place.hall().ok_or("the hall is gone as soon as it was made")?;
        let (place, program) = (place.clone(), program.to_path_buf());
        let mut bed = Self { bed: Bed { place, config: config.clone(), hall_pid, program }, owned: false };
        bed.bed.start_hosts(&[config::LOGIN.to_owned()])?;
        bed.bed.start_hosts(&config.node_names())?;
        bed.wait_idle(ASSEMBLING)?;
        bed.bed.place.set_ready()?;
        bed.owned = true;
        Ok(bed)
    }

    /// Waits until Slurm has all nodes and no job.
    ///
    /// # Errors
    /// The timeout expired: Slurm's report about the nodes.
    pub fn wait_idle(&self, timeout: Duration) -> Result<()> {
        let mut said = String::new();
        let idle = becomes_true(timeout, || {
            said = self.node_states().unwrap_or_else(|error| error);
            said.lines().count() == usize::from(self.bed.config.nodes)
                && said.lines().all(|line| line.ends_with(" idle"))
        });
        idle.then_some(()).ok_or_else(|| format!("after {timeout:?} the nodes are not all idle:\n{said}"))
    }

    /// A line for each node: its name and Slurm's word for its state.
    ///
    /// # Errors
    /// The message of `sinfo`, `pbsnodes` or `flux resource`.
    pub fn node_states(&self) -> Result<String> {
        let mut states = String::new();
        if self.bed.config.pbs.is_some() {
            let mut pbsnodes = self.login().root_command("pbsnodes")?;
            pbsnodes.arg("-a");
            states = pbs::parse_states(&complete_output(pbsnodes)?);
        }
        if self.bed.config.flux.is_some() {
            let mut resources = self.login().command("flux")?;
            resources.args(flux::ASK_STATES);
            states += &flux::parse_states(&complete_output(resources)?, &self.bed.config);
        }
        if self.bed.config.slurm_nodes().is_empty() {
            return Ok(states);
        }
        let mut sinfo = self.login().root_command("sinfo")?;
        sinfo.args(["--noheader", "--Node", "--format=%N %t"]);
        complete_output(sinfo).map(|said| said + &states)
    }

    /// Whether all hosts are up and Slurm has every node.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let here = self.hosts().iter().all(|host| host.init().is_ok());
        here && self.wait_idle(SETTLING).is_ok()
    }

    /// The configuration that the bed was made from.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.bed.config
    }

    /// The bed's folder on this machine.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.bed.place.dir()
    }

    /// The hall's init, as this machine numbers it.
    #[must_use]
    pub fn hall(&self) -> i32 {
        self.bed.hall_pid
    }

    /// The login node.
    #[must_use]
    pub fn login(&self) -> Machine<'_> {
        Machine::new(&self.bed, config::LOGIN.to_owned())
    }

    /// Compute node number `number`, counted from 1 as in its name.
    #[must_use]
    pub fn node(&self, number: u16) -> Machine<'_> {
        Machine::new(&self.bed, config::node_name(number))
    }

    /// The host of that name, if the bed has it.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<Machine<'_>> {
        let known = self.bed.config.host_names().iter().any(|host| host == name);
        known.then(|| Machine::new(&self.bed, name.to_owned()))
    }

    /// All compute nodes.
    #[must_use]
    pub fn nodes(&self) -> Vec<Machine<'_>> {
        (1..=self.bed.config.nodes).map(|number| self.node(number)).collect()
    }

    /// All hosts, the login node first.
    #[must_use]
    pub fn hosts(&self) -> Vec<Machine<'_>> {
        std::iter::once(self.login()).chain(self.nodes()).collect()
    }

    /// Changes parameters of `slurm.conf` while Slurm runs (`scontrol reconfigure`), except those that need a restart.
    ///
    /// # Errors
    /// The message of `scontrol`.
    pub fn reconfigure(&mut self, parameters: &[(&str, &str)]) -> Result<()> {
        for (name, value) in parameters {
            self.bed.config.slurm.insert((*name).to_owned(), (*value).to_owned());
        }
        let path = self.login().path("/etc/slurm/slurm.conf")?;
        fs::write(&path, files::build_slurm_conf(&self.bed.config)).map_err(err(path.display()))?;
        let mut scontrol = self.login().root_command("scontrol")?;
        scontrol.arg("reconfigure");
        complete(scontrol)
    }

    /// All namespaces of the bed, with the names in `/proc/PID/ns`.
    #[must_use]
    pub fn namespaces(&self) -> BTreeSet<String> {
        let hosts = self.hosts().into_iter().flat_map(|host| host.namespaces());
        hosts.chain(machine::namespaces(self.bed.hall_pid)).collect()
    }

    /// All remains of the ordinary user on any host: processes, files in folders that are private to the host,
    /// listening or connected sockets. One line each, which begins with the host's name.
    #[must_use]
    pub fn leftovers(&self) -> Vec<String> {
        self.hosts().iter().flat_map(Machine::leftovers).collect()
    }

    /// Fails the test when the user has remains on any host. They have `patience` to disappear by themselves.
    ///
    /// # Panics
    /// With one line for each of them.
    #[track_caller]
    pub fn assert_nothing_left(&self, patience: Duration) {
        let mut left = Vec::new();
        let gone = becomes_true(patience, || {
            left = self.leftovers();
            left.is_empty()
        });
        assert!(gone, "left on the testbed after {patience:?}:\n  {}", left.join("\n  "));
    }

    /// The last lines of all logs of the bed, for the report of a failure.
    #[must_use]
    pub fn last_log_lines(&self) -> String {
        logs::of_bed(&self.bed.place)
    }

    /// Leaves the bed running when this is dropped.
    pub fn leave(&mut self) {
        self.owned = false;
    }

    /// A second handle of the same bed. Dropping it leaves the bed running.
    pub(crate) fn look(&self) -> Self {
        Self { bed: self.bed.clone(), owned: false }
    }

    /// Ends the bed, found or made, and waits for that.
    ///
    /// # Errors
    /// A process does not die, or a file cannot be removed.
    pub fn down(mut self) -> Result<()> {
        self.owned = false;
        self.bed.place.sweep().map(drop)
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        if self.owned {
            // If something cannot be removed now, it stays visible in the temporary folder.
            drop(self.bed.place.sweep());
        }
    }
}

/// The roles of the program `testbed` inside of beds: `hall DIR [OWNER]`, `host DIR NAME`, `init DIR NAME`.
///
/// # Errors
/// The failure, for its stderr.
pub fn play(part: &[String]) -> Result<()> {
    // Other users must be able to enter the folders that are made here, whichever user makes the bed.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    match part.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["hall", dir] => hall::open(&Place::new(dir), None),
        ["hall", dir, owner] => hall::open(&Place::new(dir), Some(owner.parse().map_err(err(owner))?)),
        ["host", dir, name] => host::open(&Place::new(dir), name),
        ["init", dir, HALL] => hall::run(&Place::new(dir)),
        ["init", dir, name] => host::run(&Place::new(dir), name),
        _ => Err(format!("not a part in a testbed: {part:?}")),
    }
}
