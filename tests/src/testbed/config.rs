//! A bed's configuration: the number of nodes, the files they see, the settings of Slurm. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::binaries::clone_folders;

/// The name of the login node.
pub const LOGIN: &str = "login";
/// The ordinary user of every host.
pub const USER: &str = "tester";
/// The ordinary user's number, and that of the user's group.
pub const UID: u32 = 20001;
/// The user of the database in which a PBS server keeps its state.
pub(crate) const POSTGRES_UID: u32 = 304;
/// The user of an instance of Flux that runs jobs of every user.
pub(crate) const FLUX_UID: u32 = 305;
/// The ordinary user's home. It is in `/run`, which is private to each host, so it hides nothing of this machine.
pub const HOME: &str = "/run/home/tester";

/// Where programs are found on every machine.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The maximum number of nodes; a bed has no addresses for more.
pub const MOST_NODES: u16 = 999;

/// How Slurm finds the processes of a step. At the step's end it kills the processes that it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lower")]
pub enum Proctrack {
    /// By parents: a process that has been daemonised outlives its step.
    #[default]
    LinuxProc,
    /// By cgroup: no process outlives its step. Needs the freezer of cgroup v1.
    Cgroup,
}

impl fmt::Display for Proctrack {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::LinuxProc => "linuxproc",
            Self::Cgroup => "cgroup",
        })
    }
}

/// The configuration of a bed. Beds with equal configurations are interchangeable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The number of compute nodes, without the login node: `n001`, `n002`, ...
    pub nodes: u16,
    /// CPUs that each node reports, independent of this machine's number.
    pub cpus: u16,
    /// Folders of this machine that are empty on nodes. If there is one, nodes share no file system: then each node
    /// also has its own home of the user.
    pub hide: Vec<PathBuf>,
    /// Folders of this machine that nodes see although their parent is private to each node (`/tmp`).
    pub share: Vec<PathBuf>,
    /// How Slurm tracks processes.
    pub proctrack: Proctrack,
    /// An installation of PBS, which then manages the nodes in place of Slurm.
    #[serde(default)]
    pub pbs: Option<PathBuf>,
    /// The number of nodes that Slurm manages next to PBS: the first ones.
    #[serde(default)]
    pub kept_by_slurm: u16,
    /// An installation of Flux, which manages the last nodes.
    #[serde(default)]
    pub flux: Option<PathBuf>,
    /// How many nodes Flux manages.
    #[serde(default)]
    pub kept_by_flux: u16,
    /// An installation of Slurm that replaces the machine's own.
    #[serde(default)]
    pub other_slurm: Option<PathBuf>,
    /// Parameters of `slurm.conf`, over the testbed's own.
    pub slurm: BTreeMap<String, String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            nodes: 2,
            cpus: 16,
            hide: Vec::new(),
            share: Vec::new(),
            proctrack: Proctrack::default(),
            pbs: None,
            kept_by_slurm: 0,
            flux: None,
            kept_by_flux: 0,
            other_slurm: None,
            slurm: BTreeMap::new(),
        }
    }
}

impl Config {
    /// A bed with that many nodes, which see this machine's files.
    #[must_use]
    pub fn with_nodes(nodes: u16) -> Self {
        Self { nodes, ..Self::default() }
    }

    /// Hides a folder from the nodes. See [`Config::hide`].
    #[must_use]
    pub fn hiding(mut self, folder: impl Into<PathBuf>) -> Self {
        self.hide.push(folder.into());
        self
    }

    /// Hides this clone and its build results from the nodes: they do not have gantry.
    #[must_use]
    pub fn without_gantry(self) -> Self {
        clone_folders().into_iter().fold(self, Self::hiding)
    }

    /// Has PBS manage the nodes, from where it is installed.
    #[must_use]
    pub fn managed_by_pbs(mut self, installation: impl Into<PathBuf>) -> Self {
        self.pbs = Some(installation.into());
        self
    }

    /// Has Slurm manage the first nodes all the same.
    #[must_use]
    pub fn but_the_first_by_slurm(mut self, nodes: u16) -> Self {
        self.kept_by_slurm = nodes;
        self
    }

    /// Adds nodes that Flux manages, from where it is installed.
    #[must_use]
    pub fn and_by_flux(mut self, installation: impl Into<PathBuf>, nodes: u16) -> Self {
        self.flux = Some(installation.into());
        self.kept_by_flux = nodes;
        self.nodes += nodes;
        self
    }

    /// Takes Slurm from the path in `GANTRY_SLURM`, if that is set.
    #[must_use]
    pub fn with_slurm_of_the_environment(mut self) -> Self {
        self.other_slurm = self.other_slurm.or_else(|| std::env::var_os("GANTRY_SLURM").map(PathBuf::from));
        self
    }

    /// The path of the bed's srun.
    #[must_use]
    pub fn srun(&self) -> PathBuf {
        self.other_slurm.clone().unwrap_or_else(|| "/usr".into()).join("bin/srun")
    }

    /// The `PATH` of everything on the bed.
    pub(crate) fn path(&self) -> String {
        let own = self.pbs.iter().chain(&self.flux).chain(&self.other_slurm);
        own.map(|own| format!("{0}/bin:{0}/sbin:", own.display())).collect::<String>() + PATH
    }

    /// The names of the nodes that Slurm manages.
    #[must_use]
    pub fn slurm_nodes(&self) -> Vec<String> {
        let others = self.nodes - self.kept_by_flux;
        let count = if self.pbs.is_some() { self.kept_by_slurm.min(others) } else { others };
        (1..=count).map(node_name).collect()
    }

    /// The names of the nodes that PBS manages.
    #[must_use]
    pub fn pbs_nodes(&self) -> Vec<String> {
        let others = self.nodes - self.kept_by_flux;
        let first = if self.pbs.is_some() { self.kept_by_slurm } else { others };
        (first + 1..=others).map(node_name).collect()
    }

    /// The names of the nodes that Flux manages.
    #[must_use]
    pub fn flux_nodes(&self) -> Vec<String> {
        (self.nodes - self.kept_by_flux + 1..=self.nodes).map(node_name).collect()
    }

    /// Sets a parameter of `slurm.conf`.
    #[must_use]
    pub fn slurm(mut self, name: &str, value: &str) -> Self {
        self.slurm.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Whether every node has its own home of the user.
    pub(crate) fn own_homes(&self) -> bool {
        !self.hide.is_empty()
    }

    /// The names of the nodes, in order.
    #[must_use]
    pub fn node_names(&self) -> Vec<String> {
        (1..=self.nodes).map(node_name).collect()
    }

    /// The names of all hosts: the login node first.
    #[must_use]
    pub fn host_names(&self) -> Vec<String> {
        std::iter::once(LOGIN.to_owned()).chain(self.node_names()).collect()
    }
}

/// The name of node number `number`, counted from 1.
#[must_use]
pub fn node_name(number: u16) -> String {
    format!("n{number:03}")
}

/// The address of a host by its name. None: no bed has a host of that name.
///
/// The network is private to the bed and has no connection to another one, so every bed may use the same one.
#[must_use]
pub fn address(host: &str) -> Option<Ipv4Addr> {
    if host == LOGIN {
        return Some(Ipv4Addr::new(10, 42, 0, 1));
    }
    let number: u16 = host.strip_prefix('n')?.parse().ok()?;
    if !(1..=MOST_NODES).contains(&number) || node_name(number) != host {
        return None;
    }
    let [high, low] = (256 + number).to_be_bytes();
    Some(Ipv4Addr::new(10, 42, high, low))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(host: &str, expected: Option<[u8; 4]>) {
        assert_eq!(address(host), expected.map(Ipv4Addr::from), "{host}");
    }

    #[test]
    fn a_host_has_an_address_by_its_name() {
        check("login", Some([10, 42, 0, 1]));
        check("n001", Some([10, 42, 1, 1]));
        check("n255", Some([10, 42, 1, 255]));
        check("n256", Some([10, 42, 2, 0]));
        check("n999", Some([10, 42, 4, 231]));
        for nobody in ["n000", "n1", "n0001", "node", "n+01", ""] {
            check(nobody, None);
        }
    }

    #[test]
    fn a_node_has_one_manager() {
        let check = |config: Config, slurm: &[&str], pbs: &[&str]| {
            assert_eq!(
                (config.slurm_nodes().as_slice(), config.pbs_nodes().as_slice()),
                (
                    &slurm.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>()[..],
                    &pbs.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>()[..]
                )
            );
        };
        check(Config::with_nodes(2), &["n001", "n002"], &[]);
        check(Config::with_nodes(2).managed_by_pbs("/x"), &[], &["n001", "n002"]);
        check(
            Config::with_nodes(3).managed_by_pbs("/x").but_the_first_by_slurm(2),
            &["n001", "n002"],
            &["n003"],
        );
        let three = Config::with_nodes(1).managed_by_pbs("/x").and_by_flux("/y", 2);
        assert_eq!(three.flux_nodes(), ["n002", "n003"]);
        check(three, &[], &["n001"]);
        check(Config::with_nodes(0).and_by_flux("/y", 2), &[], &[]);
        check(Config::with_nodes(1).and_by_flux("/y", 1), &["n001"], &[]);
    }

    #[test]
    fn the_login_node_is_the_first_host() {
        assert_eq!(Config::with_nodes(2).host_names(), ["login", "n001", "n002"]);
    }
}
