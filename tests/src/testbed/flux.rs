//! Flux on a bed: an instance with a broker on the login node, which runs no jobs, and one on each node that Flux
//! manages. It is no package of Debian, so it is taken from where somebody has installed it.
//!
//! It stands where a system's instance stands, so commands find it without a variable. As a system's instance it belongs
//! to a user of its own if the installation has flux-security, which starts the jobs of others. Without it the
//! instance belongs to the ordinary user, and nobody else can use it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use gantry_types::host_set::{fold_hosts, parse_host_list};

use super::command::{Result, complete, err};
use super::config::{Config, FLUX_UID, HOME, LOGIN, PATH, UID, USER};
use crate::proc;

/// Where an installation is looked for when `FLUX_PREFIX` does not say.
const USUAL: &str = "/opt/flux";
/// What the brokers of all hosts are told.
pub(crate) const CONFIG: &str = "/etc/flux/testbed.toml";
/// The key with which brokers know each other; it is made once for a bed.
const KEY: &str = "/etc/flux/testbed.cert";
/// Where a broker has its socket and its files: commands look there.
const RUN: &str = "/run/flux";
/// The port of brokers.
const PORT: u16 = 8050;
/// The folder with the plugin of the command line that labels what ranks write.
pub(crate) const LABELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/flux/cli");

/// How long the key may take.
const STARTING: Duration = Duration::from_secs(30);

/// What prints the states of the nodes: `STATE NODES` in each line.
pub(crate) const ASK_STATES: [&str; 5] =
    ["resource", "list", "--no-header", "--states=free,allocated,down", "--format={state} {nodelist}"];

/// The installation of this machine.
///
/// # Errors
/// The reason of a skip: there is none.
pub fn installation() -> Result<PathBuf> {
    let path = std::env::var_os("FLUX_PREFIX").map_or_else(|| PathBuf::from(USUAL), PathBuf::from);
    if !path.join("bin/flux").is_file() {
        return Err("Flux is not installed (in /opt/flux, or where FLUX_PREFIX says)".to_owned());
    }
    Ok(path)
}

/// As [`installation`], with flux-security: its instance serves every user.
///
/// # Errors
/// The reason of a skip: there is none, or it lacks flux-security.
pub fn installation_for_all() -> Result<PathBuf> {
    let installation = installation()?;
    if !is_for_all(&installation) {
        return Err("Flux is not installed with flux-security".to_owned());
    }
    Ok(installation)
}

/// The program of flux-security that starts jobs as their users.
fn imp(installation: &Path) -> PathBuf {
    installation.join("libexec/flux/flux-imp")
}

/// The user that the instance belongs to.
#[derive(Debug)]
struct Owner {
    uid: u32,
    name: &'static str,
    home: &'static str,
}

fn owner(installation: &Path) -> Owner {
    if is_for_all(installation) {
        Owner { uid: FLUX_UID, name: "flux", home: "/" }
    } else {
        Owner { uid: UID, name: USER, home: HOME }
    }
}

/// Whether the instance runs jobs of users other than its owner.
pub(crate) fn is_for_all(installation: &Path) -> bool {
    imp(installation).is_file()
}

/// What flux-security is told: paths and texts.
pub(crate) fn build_security(installation: &Path) -> [(&'static str, String); 2] {
    let shell = installation.join("libexec/flux/flux-shell");
    [
        (
            "/etc/flux/security/conf.d/sign.toml",
            "[sign]\nmax-ttl = 1209600\ndefault-type = \"munge\"\nallowed-types = [\"munge\"]\n".to_owned(),
        ),
        (
            "/etc/flux/imp/conf.d/imp.toml",
            format!("[exec]\nallowed-users = [\"flux\"]\nallowed-shells = [\"{}\"]\n", shell.display()),
        ),
    ]
}

/// What all brokers are told. Root has the rights of the owner.
pub(crate) fn build_config(config: &Config, installation: &Path) -> String {
    let access = if is_for_all(installation) {
        format!("allow-guest-user = true\n\n[exec]\nimp = \"{}\"\n", imp(installation).display())
    } else {
        String::new()
    };
    let nodes = config.flux_nodes();
    let hosts: String = std::iter::once(LOGIN.to_owned())
        .chain(nodes.clone())
        .map(|host| format!("    {{ host = \"{host}\" }},\n"))
        .collect();
    let all = fold_hosts(&[&[LOGIN.to_owned()], nodes.as_slice()].concat());
    let cores = config.cpus.saturating_sub(1);
    format!(
        "[bootstrap]\ncurve_cert = \"{KEY}\"\ndefault_port = {PORT}\ndefault_bind = \"tcp://eth0:%p\"\ndefault_connect = \"tcp://%h:%p\"\n\
         hosts = [\n{hosts}]\n\n[access]\nallow-root-owner = true\n{access}\n[resource]\nnoverify = true\nexclude = \"{LOGIN}\"\n\n\
         [[resource.config]]\nhosts = \"{all}\"\ncores = \"0-{cores}\"\n"
    )
}

/// Starts the broker of this host. It goes on when this returns, and joins the others when they are there.
pub(crate) fn start_broker(installation: &Path) -> Result<()> {
    std::fs::create_dir_all(RUN).map_err(err(RUN))?;
    let owner = owner(installation);
    std::os::unix::fs::chown(RUN, Some(owner.uid), Some(owner.uid)).map_err(err(RUN))?;
    let log = std::fs::File::create("/var/log/flux.log").map_err(err("/var/log/flux.log"))?;
    let flux = installation.join("bin/flux");
    let mut broker = as_owner(installation, &owner, "setsid");
    broker.args(["--fork"]).arg(flux).args([
        "broker",
        &format!("--config-path={CONFIG}"),
        &format!("-Srundir={RUN}"),
        &format!("-Slocal-uri=local://{RUN}/local"),
        "-Slog-stderr-level=4",
        "-Slog-stderr-mode=local",
        "-Sbroker.rc2_none",
    ]);
    broker.stdin(Stdio::null()).stdout(log.try_clone().map_err(err("flux.log"))?).stderr(log);
    let status = broker.status().map_err(|error| format!("{broker:?}: {error}"))?;
    status.success().then_some(()).ok_or_else(|| format!("{broker:?}: {status}"))
}

/// Makes the key of a bed's brokers.
pub(crate) fn make_key(installation: &Path) -> Result<()> {
    let mut keygen = Command::new("timeout");
    keygen.arg(STARTING.as_secs().to_string()).arg(installation.join("bin/flux")).args(["keygen", KEY]);
    keygen.env_clear().env("PATH", PATH).env("HOME", "/");
    complete(keygen)?;
    let uid = owner(installation).uid;
    std::os::unix::fs::chown(KEY, Some(uid), Some(uid)).map_err(err(KEY))
}

fn as_owner(installation: &Path, owner: &Owner, program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={}", owner.uid), format!("--regid={}", owner.uid)]);
    command.args(["--clear-groups", "--", "env", "-C", "/", program]);
    command
        .env_clear()
        .env("PATH", format!("{}/bin:{PATH}", installation.display()))
        .env("HOME", owner.home)
        .env("USER", owner.name)
        .env("LANG", "C.UTF-8");
    command
}

/// A line for each node that Flux manages: its name and `idle`, or Flux's word for its state.
pub(crate) fn parse_states(said: &str, config: &Config) -> String {
    let ours = config.flux_nodes();
    let mut text = String::new();
    for (state, nodes) in said.lines().filter_map(|line| line.trim().split_once(' ')) {
        let state = if state == "free" { "idle" } else { state };
        for node in
            parse_host_list(nodes.trim()).unwrap_or_default().into_iter().filter(|node| ours.contains(node))
        {
            text.push_str(&format!("{node} {state}\n"));
        }
    }
    text
}

/// Whether a process is a broker, or one of its modules that has a process of its own.
pub(crate) fn is_broker(pid: i32, line: &str) -> bool {
    let is_itself = || proc::stat(pid).is_some_and(|stat| stat.comm.starts_with("flux-broker"));
    line.contains("/flux-module-") || is_itself()
}

/// Whether a file belongs to a broker. Folders of jobs, which are among them, go with the jobs.
pub(crate) fn is_of_broker(path: &Path) -> bool {
    let Ok(rest) = path.strip_prefix(RUN) else { return false };
    !rest.components().next().is_some_and(|first| first.as_os_str().to_string_lossy().starts_with("jobtmp"))
}

/// Whether a socket of `/proc/net/tcp` is one by which brokers speak to each other.
pub(crate) fn is_link(socket: &str) -> bool {
    let port = format!(":{PORT:04X}");
    socket.split(" -> ").any(|end| end.ends_with(&port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_login_node_has_a_broker_and_runs_no_jobs() {
        let config = Config { cpus: 8, ..Config::with_nodes(1).and_by_flux("/x", 2) };
        let text = build_config(&config, Path::new("/x"));
        assert!(
            text.contains("{ host = \"login\" },\n    { host = \"n002\" },\n    { host = \"n003\" },\n]"),
            "{text}"
        );
        assert!(text.contains("exclude = \"login\"") && text.contains("cores = \"0-7\""), "{text}");
        assert!(text.contains("hosts = \"login,n[002-003]\""), "{text}");
    }

    #[test]
    fn a_free_node_is_idle() {
        let config = Config::with_nodes(0).and_by_flux("/x", 3);
        let said = "free n[001-002]\nallocated \ndown n003,login\n";
        assert_eq!(parse_states(said, &config), "n001 idle\nn002 idle\nn003 down\n");
    }

    #[test]
    fn what_belongs_to_brokers_is_told_apart() {
        assert!(is_of_broker(Path::new("/run/flux/local")) && is_of_broker(Path::new("/run/flux")));
        assert!(!is_of_broker(Path::new("/run/flux/jobtmp-0-f7")) && !is_of_broker(Path::new("/run/x")));
        assert!(is_link("0101060A:1F72 -> 00000000:0000") && !is_link("0101060A:1F90 -> 00000000:0000"));
    }
}
