//! A cluster on one machine: a real Slurm, or PBS, or Flux, and sshd on nodes made of namespaces, for the suites and to be played with by hand.
//!
//! ```text
//!  hall (namespaces of its own: nothing of it is on the machine's network, in its /etc or its /run)
//!  +------------------------------------------------------------------------+
//!  |  login 10.42.0.1       n001 10.42.1.1        n002 10.42.1.2             |
//!  |  munged, slurmctld     munged, slurmd, sshd  munged, slurmd, sshd   ... |
//!  |      |                     |                     |                      |
//!  |  ----+---------------------+---------------------+---- switch ----      |
//!  +------------------------------------------------------------------------+
//! ```
//!
//! The login node is a host of its own rather than the machine itself: so this machine's `/etc`, name and network stay as they are, two
//! beds do not disturb each other, and the login side sees as little of the nodes' processes as it does on a real cluster. It does see this
//! machine's files, so that programs and tests are found where they are.
//!
//! One process holds all: the hall's init. When it ends, the kernel ends everything in the bed (`hall.rs`). It ends when it is told to
//! or, in a bed of a test, when the test's process ends in whatever way.

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

/// How long a bed that stands may take until Slurm has all nodes, before it counts as broken.
const SETTLING: Duration = Duration::from_secs(8);

/// What a bed needs on this machine: command, Debian package.
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
/// Dropping one made by [`up`](Testbed::up) ends it and waits for that; one that was [found](Testbed::find) or
/// [left standing](Testbed::leave) goes on.
#[derive(Debug)]
pub struct Testbed {
    bed: Bed,
    owned: bool,
}

impl Testbed {
    /// Makes a bed of this process' own, in a new folder. When this process ends, however it does, the bed goes with it.
    ///
    /// # Errors
    /// With the last lines of the bed's logs; nothing is left of it then.
    pub fn up(config: &Config, program: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("gantry-bed-").tempdir().map_err(err("a folder"))?;
        let place = Place::new(folder.keep());
        let owner = i32::try_from(std::process::id()).map_err(err("a pid"))?;
        Self::make(place, config, program, Some(owner))
    }

    /// Has a bed of that name and configuration stand under `base`: one that stands is taken as it is, one of another configuration or
    /// a broken one is replaced. It stays until [`down`](Testbed::down). Says whether it was made now.
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

    /// Ends the bed of that name under `base` and removes what a dead one has left; says whether there was anything.
    ///
    /// # Errors
    /// When a process does not die or a file cannot be removed.
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
        // Nothing of whoever makes the bed gets into it.
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
    /// What Slurm says of the nodes, when the time is up.
    pub fn wait_idle(&self, timeout: Duration) -> Result<()> {
        let mut said = String::new();
        let idle = becomes_true(timeout, || {
            said = self.node_states().unwrap_or_else(|error| error);
            said.lines().count() == usize::from(self.bed.config.nodes)
                && said.lines().all(|line| line.ends_with(" idle"))
        });
        idle.then_some(()).ok_or_else(|| format!("after {timeout:?} the nodes are not all idle:\n{said}"))
    }

    /// A line for each node: its name and what Slurm calls its state.
    ///
    /// # Errors
    /// What `sinfo`, `pbsnodes` or `flux resource` says.
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

    /// What the bed was made of.
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

    /// Changes parameters of `slurm.conf` while Slurm runs (`scontrol reconfigure`); not those that need a restart.
    ///
    /// # Errors
    /// What `scontrol` says.
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

    /// Every namespace that the bed consists of, as `/proc/PID/ns` names them.
    #[must_use]
    pub fn namespaces(&self) -> BTreeSet<String> {
        let hosts = self.hosts().into_iter().flat_map(|host| host.namespaces());
        hosts.chain(machine::namespaces(self.bed.hall_pid)).collect()
    }

    /// Everything that the ordinary user has left on any host: a process, a file in what is the host's own, a listening or connected
    /// socket. One line each, the host's name first.
    #[must_use]
    pub fn leftovers(&self) -> Vec<String> {
        self.hosts().iter().flat_map(Machine::leftovers).collect()
    }

    /// Fails the test when the user has left anything on any host. What goes of itself has `patience` for it.
    ///
    /// # Panics
    /// With one line for each thing.
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

    /// Leaves the bed standing when this is dropped.
    pub fn leave(&mut self) {
        self.owned = false;
    }

    /// The same bed once more, which goes on when this is dropped.
    pub(crate) fn look(&self) -> Self {
        Self { bed: self.bed.clone(), owned: false }
    }

    /// Ends the bed, found or made, and waits for that.
    ///
    /// # Errors
    /// When a process does not die or a file cannot be removed.
    pub fn down(mut self) -> Result<()> {
        self.owned = false;
        self.bed.place.sweep().map(drop)
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        if self.owned {
            // What cannot be removed now is found by whoever looks at the temporary folder.
            drop(self.bed.place.sweep());
        }
    }
}

/// The parts that the program `testbed` plays inside of beds: `hall DIR [OWNER]`, `host DIR NAME`, `init DIR NAME`.
///
/// # Errors
/// What went wrong, for its stderr.
pub fn play(part: &[String]) -> Result<()> {
    // Others are to enter the folders that are made here, whoever makes the bed.
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
