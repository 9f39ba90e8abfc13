//! Launchers that do not show where their ranks are, but start a proxy on every host, by a remote shell or locally:
//! MPICH's `mpiexec`.
//!
//! The command lines of all its proxies name the port on which they call back. The command line of a remote shell also
//! names the host. In an allocation, another launcher starts the proxies, and its own table names the hosts. On each
//! host the proxy is found by that port, and its descendants are the ranks. Source: the command lines of MPICH 4.0 and
//! 5.0.

use std::path::{Path, PathBuf};

use gantry_types::id::Pid;
use serde::{Deserialize, Serialize};

use crate::beneath::{Beneath, children, find_beneath};
use crate::host::{Host, check_process};
use crate::{Error, Result};

/// The option with the port.
const PORT: &str = "--control-port";

/// The option that tells how the proxy was started. For the methods below, the word before it is the host.
const BY: &str = "--launcher";
const BY_SHELL: [&str; 2] = ["ssh", "rsh"];
/// The proxies of a launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Proxies {
    /// The address at which they call back.
    pub(crate) port: String,
    /// Their hosts, as the launcher names them. `None`: the launcher's own host.
    pub(crate) hosts: Vec<Option<String>>,
}

impl Proxies {
    /// Refuses an invalid port. It comes from another host and becomes an argument of a command there.
    ///
    /// # Errors
    /// The port is not of the form `HOST:NUMBER`.
    pub(crate) fn check(&self) -> Result<()> {
        let parts = self.port.rsplit_once(':');
        let is_port = parts.is_some_and(|(name, number)| {
            number.parse::<u16>().is_ok()
                && name.starts_with(|c: char| c.is_ascii_alphanumeric())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
        });
        if is_port { Ok(()) } else { Err(Error::invalid("the launcher's host names no port of its proxies")) }
    }
}

/// The processes that a launcher has started.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Started {
    /// The proxies with known hosts.
    pub(crate) proxies: Proxies,
    /// Other launchers that start proxies. Their tables name the hosts.
    pub(crate) by: Vec<Pid>,
}

/// Finds the proxies that the process `launcher` has started. `None`: it is not such a launcher.
pub(crate) fn find_proxies(launcher: Pid, host: &dyn Host) -> Option<Started> {
    let started = children(launcher, host).into_iter();
    let mut started = started.filter_map(|pid| Some((pid, parse_proxy(&words_of(pid, host))?))).peekable();
    let port = started.peek()?.1.0.clone();
    let (mut hosts, mut by) = (Vec::new(), Vec::new());
    for (pid, (_, at)) in started.filter(|(_, (its, _))| *its == port) {
        match at {
            At::Here => hosts.push(None),
            At::Host(name) => hosts.push(Some(name)),
            At::TableOfStarter => by.push(pid),
        }
    }
    Some(Started { proxies: Proxies { port, hosts }, by })
}

/// Finds the ranks that the proxy with that port has started on this machine.
///
/// # Errors
/// There is no such proxy here.
pub(crate) fn find_below(port: &str, host: &dyn Host) -> Result<Vec<Beneath>> {
    let pids = host.list(Path::new("/proc")).unwrap_or_default();
    let mut pids = pids.iter().filter_map(|name| Pid::new(name.to_str()?.parse().ok()?));
    // Another user may run a program with the same command line.
    let is_proxy = |pid: &Pid| {
        parse_proxy(&words_of(*pid, host)).is_some_and(|(its, at)| its == port && at == At::Here)
            && check_process(*pid, host).is_ok()
    };
    let proxy = pids.find(is_proxy).ok_or_else(|| {
        Error::not_found(
            format!("no proxy of the launcher with the port {port} runs on {}", host.hostname()),
            "the app may have ended",
        )
    })?;
    find_beneath(proxy, host)
}

/// The place of a proxy.
#[derive(Debug, PartialEq, Eq)]
enum At {
    /// This process is the proxy itself.
    Here,
    /// A remote shell starts it on this host.
    Host(String),
    /// Another launcher starts it, on one or several hosts.
    TableOfStarter,
}

/// Parses the port and the place of a proxy, from its own command line or from that of the command that starts it.
fn parse_proxy(words: &[String]) -> Option<(String, At)> {
    let at = words.iter().position(|word| word == PORT)?;
    let port = words.get(at + 1)?.clone();
    let program = words.get(at.checked_sub(1)?)?.trim_matches('"');
    if !program.rsplit('/').next()?.contains("proxy") {
        return None;
    }
    let by = words.iter().position(|word| word == BY).and_then(|by| words.get(by + 1));
    let place = match (at, by) {
        (1, _) => At::Here,
        (_, Some(by)) if BY_SHELL.contains(&by.as_str()) => At::Host(words.get(at - 2)?.clone()),
        (_, Some(_)) => At::TableOfStarter,
        (_, None) => return None,
    };
    Some((port, place))
}

fn words_of(pid: Pid, host: &dyn Host) -> Vec<String> {
    let line = host.read(&PathBuf::from(format!("/proc/{pid}/cmdline"))).unwrap_or_default();
    String::from_utf8_lossy(&line).split_terminator('\0').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    #[track_caller]
    fn check(line: &str, expected: Option<(&str, At)>) {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let expected = expected.map(|(port, at)| (port.to_owned(), at));
        assert_eq!(parse_proxy(&words), expected, "{line}");
    }

    const TAIL: &str = "--control-port vm:39457 --rmk user --launcher";

    #[test]
    fn a_proxys_command_line_names_its_port_and_that_of_a_remote_shell_its_host() {
        let remote = format!("/usr/bin/ssh -x n001 \"/usr/bin/hydra_pmi_proxy\" {TAIL} ssh --demux poll");
        check(&remote, Some(("vm:39457", At::Host("n001".to_owned()))));
        check(&format!("/usr/bin/hydra_pmi_proxy {TAIL} ssh"), Some(("vm:39457", At::Here)));
        // Another launcher starts it.
        let line = format!("start -N 2 --input none /usr/bin/hydra_pmi_proxy {TAIL} pool");
        check(&line, Some(("vm:39457", At::TableOfStarter)));
        check("start /usr/bin/hydra_pmi_proxy --control-port vm:39457", None);
        check("/usr/bin/other --control-port vm:1", None);
        check("--control-port vm:1", None);
        check("/usr/bin/hydra_pmi_proxy --control-port", None);
    }

    #[test]
    fn a_port_from_another_host_is_only_a_port() {
        let check = |port: &str| Proxies { port: port.to_owned(), hosts: Vec::new() }.check().is_ok();
        assert!(check("vm:39457") && check("10.1.2.3:1") && check("n-1.x_y:65535"));
        for bad in ["", "vm", "vm:", ":1", "vm:65536", "-x:1", "a b:1", "$(id):1", "a;b:1", "a'b:1"] {
            assert!(!check(bad), "{bad}");
        }
    }

    fn process(host: FakeHost, pid: u32, children: &str, line: &str, environment: &str) -> FakeHost {
        host.with_file(format!("/proc/{pid}/status"), "Name:\tx\nUid:\t1000\t1000\t1000\t1000\n")
            .with_file(format!("/proc/{pid}/task/{pid}/children"), children)
            .with_file(format!("/proc/{pid}/cmdline"), line.replace(' ', "\0") + "\0")
            .with_file(format!("/proc/{pid}/environ"), environment)
            .with_link(format!("/proc/{pid}/exe"), "/bin/app")
    }

    #[test]
    fn proxies_are_found_below_their_launcher_and_ranks_below_a_proxy() {
        let pid = |pid| Pid::new(pid).unwrap();
        let host = process(FakeHost::default(), 10, "11 12 15", "mpiexec -n 3 app", "");
        let host = process(host, 11, "", &format!("ssh n001 \"/b/hydra_pmi_proxy\" {TAIL} ssh"), "");
        let host = process(host, 12, "13 14", &format!("/b/hydra_pmi_proxy {TAIL} ssh"), "");
        let line = format!("start -N 2 /b/hydra_pmi_proxy {TAIL} pool");
        let host = process(host, 15, "", &line, "");
        let host = process(host, 13, "", "app", "PMI_RANK=2\0PMI_SIZE=3\0");
        let host = process(host, 14, "", "app", "PMI_RANK=1\0PMI_SIZE=3\0");
        let proxies = Proxies { port: "vm:39457".to_owned(), hosts: vec![Some("n001".to_owned()), None] };
        assert_eq!(find_proxies(pid(10), &host), Some(Started { proxies, by: vec![pid(15)] }));
        assert_eq!(find_proxies(pid(12), &host), None);
        let below = find_below("vm:39457", &host).unwrap();
        let ranks: Vec<_> = below.iter().map(|it| (it.rank, it.pid.get(), it.size)).collect();
        assert_eq!(ranks, [(1, 14, Some(3)), (2, 13, Some(3))]);
        let error = find_below("vm:1", &host).unwrap_err().to_string();
        assert_eq!(error, "no proxy of the launcher with the port vm:1 runs on fake");
    }
}
