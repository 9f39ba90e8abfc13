//! The arguments of a launch over ssh: the options that users of `mpiexec` would try, the program and its arguments;
//! and the ranks of each host.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use gantry_types::rank_set::RankSet;
use serde::{Deserialize, Serialize};

use super::hosts::{Hosts, parse_host_file, parse_hosts};
use crate::direct::{self, Dialect, parse_count};
use crate::host::Host;
use crate::slots::HostSlots;
use crate::{Error, Result};

/// The maximum number of connections in progress.
const MAX_WINDOW: u32 = 512;

/// Options before the program, in addition to those of all WLMs.
const DIALECT: Dialect = Dialect {
    nodes: &["-N", "--nodes"],
    own: "--hosts n[1-4]:2,m1 or --hostfile FILE, -N HOSTS, --login NAME or -l NAME, --window CONNECTIONS, --connect-timeout SECONDS, \
          --transport auto|tcp|ssh, --accept-new-host-keys, ",
    letter_labels: false,
};

/// Options for reaching hosts.
const REACHING: &str = "--login NAME, --window CONNECTIONS, --connect-timeout SECONDS, --transport auto|tcp|ssh and --accept-new-host-keys say how hosts are reached";

/// The options that say where ranks go.
const HOSTS: [&str; 7] = ["--hosts", "-hosts", "--host", "-host", "-H", "--nodelist", "-w"];
const HOST_FILE: [&str; 6] =
    ["--hostfile", "-hostfile", "--machinefile", "-machinefile", "--default-hostfile", "-f"];

/// The variable that names PBS's file of hosts.
const PBS_NODEFILE: &str = "PBS_NODEFILE";

/// The transport of agents' links to the frontend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Transport {
    /// They dial the frontend. If they cannot, they use the connection that started them.
    #[default]
    Auto,
    /// They dial the frontend.
    Tcp,
    /// They use the connection that started them, so no port has to be open.
    Ssh,
}

impl Transport {
    /// The word for it in the agent's arguments.
    pub(super) fn to_word(self) -> &'static str {
        match self {
            Self::Auto => "either",
            Self::Tcp => "dial",
            Self::Ssh => "here",
        }
    }

    /// The transport of that name in an option.
    fn parse(name: &str) -> Option<Self> {
        match name {
            "auto" => Some(Self::Auto),
            "tcp" => Some(Self::Tcp),
            "ssh" => Some(Self::Ssh),
            _ => None,
        }
    }
}

/// How to reach hosts. It is passed from the plan to the start of agents as a string.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reaching {
    /// The user's login name on all hosts, if it overrides ssh's configuration.
    pub(super) login: Option<String>,
    /// Accept the key of an unknown host, and remember it.
    pub(super) accept_new: bool,
    /// The maximum number of connections in progress.
    pub(super) window: u32,
    /// The timeout for one connection, including retries.
    pub(super) connect: Duration,
    /// How agents reach the frontend.
    pub(super) transport: Transport,
}

impl Default for Reaching {
    fn default() -> Self {
        let (connect, transport) = (Duration::from_secs(20), Transport::default());
        Self { login: None, accept_new: false, window: 32, connect, transport }
    }
}

impl Reaching {
    /// Parses options that are given without a program.
    ///
    /// # Errors
    /// The arguments contain something else.
    pub(super) fn parse(args: &[OsString]) -> Result<Self> {
        let mut reaching = Self::default();
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            let text = arg.to_string_lossy();
            let (name, given) = direct::split(&text);
            let missing = |what: &str| Error::invalid_with(format!("option '{name}' needs {what}"), REACHING);
            let value = |what: &str| given.or_else(|| rest.next().cloned()).ok_or_else(|| missing(what));
            if !reaching.set(name, value)? {
                let what = format!("'{}' does not say how hosts are reached", arg.display());
                return Err(Error::invalid_with(what, REACHING));
            }
        }
        Ok(reaching)
    }

    /// Takes an option. False: it is not one of these.
    fn set(&mut self, name: &str, value: impl FnOnce(&str) -> Result<OsString>) -> Result<bool> {
        match name {
            "--accept-new-host-keys" => self.accept_new = true,
            "--login" | "-l" => self.login = Some(parse_login(&value("a name")?)?),
            "--window" => {
                self.window = parse_count(name, &value("a number of connections")?, MAX_WINDOW, REACHING)?
            }
            "--connect-timeout" => {
                let seconds = parse_count(name, &value("a number of seconds")?, 86_400, REACHING)?;
                self.connect = Duration::from_secs(seconds.into());
            }
            "--transport" => {
                let text = value("'auto', 'tcp' or 'ssh'")?;
                let text = text.to_string_lossy();
                self.transport = Transport::parse(&text).ok_or_else(|| {
                    let what = format!("'--transport {text}': links go by tcp or by ssh, or auto: ssh where tcp does not get through");
                    Error::invalid_with(what, REACHING)
                })?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Formats it for [`Reaching::from_words`].
    pub(super) fn to_words(&self) -> Vec<String> {
        // Every value has a form in JSON.
        vec![serde_json::to_string(self).unwrap_or_default()]
    }

    /// Parses the strings of [`Reaching::to_words`]. The default if there are none.
    pub(super) fn from_words(words: &[String]) -> Self {
        words.first().and_then(|word| serde_json::from_str(word).ok()).unwrap_or_default()
    }
}

/// The program and its placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Options {
    hosts: Option<Vec<HostSlots>>,
    pub(super) reaching: Reaching,
    pub(super) common: direct::Options,
}

/// The hosts in the arguments, if there are any. Then the launch uses ssh unless another WLM is named.
pub(super) fn names_hosts(args: &[OsString]) -> Option<String> {
    let mut rest = args.iter().map(|arg| arg.to_string_lossy()).take_while(|arg| arg != "--");
    while let Some(option) = rest.next().filter(|arg| arg.starts_with('-')) {
        let (name, value) = direct::split(&option);
        if ["--hosts", "--hostfile", "--machinefile"].contains(&name) {
            return Some(name.to_owned());
        }
        let own = ["-N", "--nodes", "--login", "-l", "--transport"].contains(&name);
        let values = direct::count_values(name).unwrap_or(own.into());
        for _ in usize::from(value.is_some())..values {
            rest.next();
        }
    }
    None
}

/// Parses the arguments; files of hosts are read through `host`.
pub(super) fn parse_args(args: &[OsString], host: &dyn Host) -> Result<Options> {
    let (mut hosts, mut reaching) = (None::<Vec<HostSlots>>, Reaching::default());
    let common = direct::parse_args(args, DIALECT, &mut |given| {
        match given.name {
            name if HOSTS.contains(&name) => {
                let named = parse_hosts(&given.value("hosts")?.to_string_lossy())?;
                hosts.get_or_insert_default().extend(named);
            }
            name if HOST_FILE.contains(&name) => {
                let named = read_host_file(&given.value("a file")?, host)?;
                hosts.get_or_insert_default().extend(named);
            }
            name => return reaching.set(name, |what| given.value(what)),
        }
        Ok(true)
    })?;
    Ok(Options { hosts, reaching, common })
}

impl Options {
    /// The hosts that get ranks, and the ranks of each. Hosts in `without` are unavailable.
    pub(super) fn place(&self, without: &[String], host: &dyn Host) -> Result<Placed> {
        let mut hosts = match (&self.hosts, host.env(PBS_NODEFILE)) {
            (Some(hosts), _) => hosts.clone(),
            (None, Some(file)) => read_host_file(&file, host)?,
            (None, None) => {
                return Err(Error::invalid_with(
                    "no hosts are named",
                    "write: --hosts n[1-4]:2 or --hostfile FILE",
                ));
            }
        };
        // Options may be repeated, and may name a host again.
        let mut merged = Hosts::default();
        for host in hosts.drain(..) {
            merged.push(host)?;
        }
        let mut hosts = merged.into_vec();
        let gone: HashSet<&str> = without.iter().map(String::as_str).collect();
        hosts.retain(|host| !gone.contains(host.name.as_str()));
        let names: Vec<String> = hosts.iter().map(|host| host.name.clone()).collect();
        if let Some(first) = self.common.nodes {
            let first = first as usize;
            if first > hosts.len() && without.is_empty() {
                let what = format!("{first} hosts are asked for, and {} are named", hosts.len());
                return Err(Error::invalid_with(what, "name more hosts, or ask for fewer"));
            }
            hosts.truncate(first);
        }
        let hint = match without.is_empty() {
            true => "ask for fewer, or say how many each host takes: --hosts n[1-2]:8, --ppn 8",
            false => "leave out -n, and there are as many ranks as the hosts that can be reached take",
        };
        let (hosts, layout) = self.common.place(hosts, hint)?;
        let used: HashSet<&String> = hosts.iter().collect();
        let spare = names.iter().filter(|name| !used.contains(name)).cloned().collect();
        Ok(Placed { hosts, layout, spare })
    }
}

/// The ranks of each host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placed {
    /// Hosts that get ranks.
    pub(super) hosts: Vec<String>,
    /// The ranks of each of them.
    pub(super) layout: Vec<RankSet>,
    /// The other named hosts.
    pub(super) spare: Vec<String>,
}

fn read_host_file(file: &OsStr, host: &dyn Host) -> Result<Vec<HostSlots>> {
    let mut path = PathBuf::from(file);
    if path.is_relative()
        && let Ok(here) = host.current_dir()
    {
        path = here.join(path);
    }
    let text = host.read(&path).map_err(|source| Error::Read { path: path.clone(), source })?;
    parse_host_file(&String::from_utf8_lossy(&text), &file.to_string_lossy())
}

/// Parses a login name. The user's own ProxyCommand may contain it, so it must have no character that a shell
/// interprets. OpenSSH refuses those since 9.6.
pub(super) fn parse_login(name: &OsStr) -> Result<String> {
    let text = name.to_string_lossy();
    let is_obeyed = |sign: char| sign.is_control() || sign.is_whitespace() || "'`\"$;&<>|(){}".contains(sign);
    match text.is_empty() || text.starts_with('-') || text.ends_with('\\') || text.contains(is_obeyed) {
        true => Err(Error::invalid(format!("'{text}' is not a login name"))),
        false => Ok(text.into_owned()),
    }
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
