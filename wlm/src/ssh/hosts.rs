//! Parses lists of hosts as users of launchers write them: on the command line, in MPICH's and Open MPI's files, and in
//! PBS's node file.
//!
//! Sources: the manual pages of mpiexec (Hydra) and mpirun (Open MPI 4.1), "hostfile"; pbs_resources(7), PBS_NODEFILE.

use std::collections::HashMap;

use gantry_types::host_name::{HostName, check_host_name};
use gantry_types::host_set::parse_host_list;

use crate::slots::HostSlots;
use crate::{Error, Result};

/// The maximum number of hosts in a launch: each needs a connection of this machine.
const MAX_HOSTS: usize = 10_000;

/// Parses `n[1-4]:2,m1`: names with brackets, each with an optional number of slots. Slots of repeated hosts add up.
///
/// # Errors
/// The error, and the correct form.
pub(super) fn parse_hosts(text: &str) -> Result<Vec<HostSlots>> {
    let mut hosts = Hosts::default();
    for item in split_outside_brackets(text) {
        let item = item.trim();
        let (names, slots) = parse_item(item)?;
        refuse_login(names)?;
        let names = parse_host_list(names)
            .map_err(|e| Error::invalid_with(format!("'{item}' names no hosts: {e}"), FORM))?;
        if names.is_empty() {
            return Err(Error::invalid_with(format!("an empty name among the hosts '{text}'"), FORM));
        }
        for name in names {
            hosts.add(name, slots)?;
        }
    }
    Ok(hosts.into_vec())
}

/// Parses a file of hosts, one per line: `NAME`, `NAME:4`, `NAME slots=4 max_slots=8`; `#` begins a comment. `file`
/// is its name, for errors.
///
/// # Errors
/// The malformed line, or there is no host.
pub(super) fn parse_host_file(text: &str, file: &str) -> Result<Vec<HostSlots>> {
    let mut hosts = Hosts::default();
    for (number, line) in text.lines().enumerate() {
        let wrong = |what: String| {
            Error::invalid_with(
                format!("{file}, line {}: {what}", number + 1),
                "a line is NAME, NAME:4, or NAME slots=4 max_slots=8",
            )
        };
        let line = line.split('#').next().unwrap_or_default();
        // Open MPI's parser allows blanks around the `=`.
        let line = line.split('=').map(str::trim).collect::<Vec<_>>().join("=");
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        let (name, mut slots) = parse_item(first).map_err(|e| wrong(e.to_string()))?;
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let number = value.parse::<u32>().ok().filter(|number| *number > 0);
            match (key, number) {
                ("slots" | "cpu" | "count", Some(number)) => slots = Some(number),
                ("max_slots" | "max-slots", Some(_)) => {}
                _ => return Err(wrong(format!("'{word}' cannot be parsed"))),
            }
        }
        check_name(name).map_err(|e| wrong(e.to_string()))?;
        hosts.add(name.to_owned(), slots)?;
    }
    match hosts.into_vec() {
        hosts if hosts.is_empty() => Err(Error::invalid(format!("{file} names no host"))),
        hosts => Ok(hosts),
    }
}

const FORM: &str =
    "hosts are written as n[1-4]:2,m1 (names with commas between, a number of ranks after a colon)";

/// A name, and the slots after its last colon. Several colons make an IPv6 address.
fn parse_item(item: &str) -> Result<(&str, Option<u32>)> {
    match item.rsplit_once(':') {
        Some((name, slots)) if !name.contains(':') => match slots.parse() {
            Ok(0) | Err(_) => {
                Err(Error::invalid_with(format!("'{item}': '{slots}' is not a number of ranks"), FORM))
            }
            Ok(slots) => Ok((name, Some(slots))),
        },
        _ => Ok((item, None)),
    }
}

fn check_name(name: &str) -> Result<()> {
    refuse_login(name)?;
    check_host_name(name).map_err(|error| Error::invalid_with(error.to_string(), FORM))
}

/// Checks a host's name from a request, a WLM or a launcher's table before ssh gets it.
///
/// # Errors
/// This is not the name of a host: ssh could take it for an option, a login or a command.
pub(super) fn host_for_ssh(name: &str) -> Result<HostName> {
    let hint =
        "check the origin of the name: the request, the list of hosts, the job, or the launcher's proctable";
    HostName::new(name).map_err(|error| Error::invalid_with(format!("{error}; it is not given to ssh"), hint))
}

fn refuse_login(name: &str) -> Result<()> {
    if name.contains('@') {
        let hint = "set it with --login NAME for all hosts, or with 'User' in ~/.ssh/config for one";
        return Err(Error::invalid_with(format!("'{name}': a login name does not belong here"), hint));
    }
    Ok(())
}

/// Hosts in the order of their first occurrence.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    hosts: Vec<HostSlots>,
    at: HashMap<String, usize>,
}

impl Hosts {
    /// Adds a host, or adds places to a known one.
    ///
    /// # Errors
    /// The name is invalid, or there are too many hosts.
    fn add(&mut self, name: String, slots: Option<u32>) -> Result<()> {
        check_name(&name)?;
        self.push(HostSlots { name, slots: slots.unwrap_or(1), stated: slots.is_some() })
    }

    /// As [`Hosts::add`], for a parsed host.
    pub(super) fn push(&mut self, host: HostSlots) -> Result<()> {
        if let Some(known) = self.at.get(&host.name).and_then(|at| self.hosts.get_mut(*at)) {
            known.slots = known.slots.saturating_add(host.slots);
            known.stated = true;
            return Ok(());
        }
        if self.hosts.len() == MAX_HOSTS {
            return Err(Error::invalid(format!("more than {MAX_HOSTS} hosts")));
        }
        self.at.insert(host.name.clone(), self.hosts.len());
        self.hosts.push(host);
        Ok(())
    }

    /// All of them.
    pub(super) fn into_vec(self) -> Vec<HostSlots> {
        self.hosts
    }
}

/// Splits at commas, but not inside of brackets.
fn split_outside_brackets(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    text.split(move |c| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth <= 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(hosts: Result<Vec<HostSlots>>) -> String {
        match hosts {
            Ok(hosts) => {
                let show = |host: &HostSlots| match host.stated {
                    true => format!("{}:{}", host.name, host.slots),
                    false => host.name.clone(),
                };
                hosts.iter().map(show).collect::<Vec<_>>().join(" ")
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn hosts_as_users_write_them() {
        let check = |text, expected| assert_eq!(show(parse_hosts(text)), expected, "{text}");
        check("n[1-3]:2,m1", "n1:2 n2:2 n3:2 m1");
        check("a, b:3", "a b:3");
        check("a,b,a", "a:2 b");
        check("a:2,a:2", "a:4");
        check("n[01-02,5]", "n01 n02 n5");
        check("fe80::1", "fe80::1");
        check("a:x", "'a:x': 'x' is not a number of ranks");
        check("a:0", "'a:0': '0' is not a number of ranks");
        check("a,,b", "an empty name among the hosts 'a,,b'");
        check(
            "-oProxyCommand=x",
            "'-oProxyCommand=x' names no hosts: a host name starts with '-' at character 1",
        );
        check("me@a", "'me@a': a login name does not belong here");
        check("n[1-", "'n[1-' names no hosts: a bracket that is not closed at character 2");
        check("n[1-99999]", "more than 10000 hosts");
    }

    #[test]
    fn files_of_hosts() {
        let check = |text, expected| assert_eq!(show(parse_host_file(text, "f")), expected, "{text}");
        check("# mine\nn1:4\n\nn2  # the other\n", "n1:4 n2");
        check("n1 slots=4 max_slots=8\nn2 slots = 2\n", "n1:4 n2:2");
        check("n1\nn1\nn2\n", "n1:2 n2");
        check("n1 binding=x", "f, line 1: 'binding=x' cannot be parsed");
        check("n1\nn2 slots=0", "f, line 2: 'slots=0' cannot be parsed");
        check("\n#\n", "f names no host");
        check("n1\n$(id)", "f, line 2: '$(id)' is not the name of a host: a host name has no '$'");
        check(
            "-oProxyCommand=x",
            "f, line 1: '-oProxyCommand=x' is not the name of a host: a host name starts with '-'",
        );
        check("me@n1", "f, line 1: 'me@n1': a login name does not belong here");
    }

    #[test]
    fn recorded_files() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/ssh/openssh-9.2p1/host-files");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "expected") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let expected = std::fs::read_to_string(path.with_extension("expected")).unwrap();
            assert_eq!(show(parse_host_file(&text, "f")), expected.trim(), "{}", path.display());
            seen += 1;
        }
        assert!(seen >= 3, "{seen} files");
    }
}
