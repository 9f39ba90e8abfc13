//! PBS on a bed, instead of Slurm or next to it: server, scheduler and communication daemon on the login node, a mom on
//! every other node. Debian has no package of it, so it comes from an installation that the user has made.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::command::{Result, complete, complete_with, err};
use super::config::{Config, LOGIN, PATH, POSTGRES_UID};
use crate::proc::becomes_true;

/// The default path of an installation, unless `PBS_EXEC` is set.
const USUAL: &str = "/opt/pbs";
/// The folder of all PBS data of a host; every host has a private `/var/spool`.
const HOME: &str = "/var/spool/pbs";
/// The settings of a host's daemons, which differ between hosts.
const OWN_CONFIG: &str = "/run/pbs.conf";

/// How long the server may take to answer.
const STARTING: Duration = Duration::from_secs(60);

/// The version in the name of the layout of [`HOME`], which the installation's own script checks.
const LAYOUT: &str = "23.06.06";

/// The installation on this machine.
///
/// # Errors
/// The reason of a skip: it does not exist, or ordinary users cannot use it.
pub fn installation() -> Result<PathBuf> {
    let path = std::env::var_os("PBS_EXEC").map_or_else(|| PathBuf::from(USUAL), PathBuf::from);
    if !path.join("sbin/pbs_mom").is_file() {
        return Err("OpenPBS is not installed (in /opt/pbs, or where PBS_EXEC says)".to_owned());
    }
    let helper = path.join("sbin/pbs_iff");
    let mode = fs::metadata(&helper).map_err(err(helper.display()))?.permissions().mode();
    if mode & 0o4000 == 0 {
        return Err(format!("{} is not set-user-id: ordinary users cannot submit jobs", helper.display()));
    }
    Ok(path)
}

/// The configuration for the daemons and commands of a host. `start`: the daemons that its start script starts.
pub(crate) fn build_config(installation: &Path, start: Option<&str>) -> String {
    let on = |daemon: &str| {
        let wanted = match start {
            Some(LOGIN) => daemon != "MOM",
            Some(_) => daemon == "MOM",
            None => false,
        };
        format!("PBS_START_{daemon}={}\n", u8::from(wanted))
    };
    let daemons: String = ["SERVER", "SCHED", "COMM", "MOM"].into_iter().map(on).collect();
    format!(
        "PBS_EXEC={}\nPBS_HOME={HOME}\nPBS_SERVER={LOGIN}\n{daemons}PBS_SCP=/usr/bin/scp\n",
        installation.display()
    )
}

/// Starts the daemons of the login node, and registers all nodes with the server.
pub(crate) fn start_server(installation: &Path, config: &Config) -> Result<()> {
    // The server keeps its data in a PostgreSQL, which has its socket there.
    fs::create_dir_all("/run/postgresql").map_err(err("/run/postgresql"))?;
    std::os::unix::fs::chown("/run/postgresql", Some(POSTGRES_UID), Some(POSTGRES_UID))
        .map_err(err("/run/postgresql"))?;
    lay_out(installation, LOGIN, "server")?;
    start(installation)?;
    let answers = becomes_true(STARTING, || {
        let mut qstat = command(installation, "bin/qstat");
        qstat.arg("-B");
        complete(qstat).is_ok()
    });
    if !answers {
        return Err(format!("pbs_server does not answer after {STARTING:?}"));
    }
    let mut orders = vec![
        "set server flatuid=True".to_owned(),
        "set server job_history_enable=True".to_owned(),
        "set server scheduling=True".to_owned(),
        "set server default_queue=workq".to_owned(),
    ];
    for node in config.pbs_nodes() {
        orders.push(format!("create node {node} resources_available.ncpus={}", config.cpus));
    }
    let mut qmgr = command(installation, "bin/qmgr");
    // An init's stdout carries the report of its host, so this output must not go there.
    qmgr.stdout(Stdio::null());
    complete_with(qmgr, &(orders.join("\n") + "\n"))
}

/// Starts the mom of a node.
pub(crate) fn start_mom(installation: &Path, name: &str) -> Result<()> {
    lay_out(installation, name, "execution")?;
    // By default a mom checks a job's resource usage every ten seconds at first, and less often later.
    let looks = "$min_check_poll 1\n$max_check_poll 1\n";
    let settings = format!("$clienthost {LOGIN}\n$usecp *:/ /\n$restrict_user False\n{looks}");
    let path = Path::new(HOME).join("mom_priv/config");
    fs::write(&path, settings).map_err(err(path.display()))?;
    start(installation)
}

/// A line for each node: its name and `idle`, or PBS's word for its state.
pub(crate) fn parse_states(said: &str) -> String {
    let mut text = String::new();
    let mut node = "";
    for line in said.lines() {
        if !line.starts_with(char::is_whitespace) {
            node = line.trim();
        } else if let Some(state) = line.trim().strip_prefix("state = ") {
            let state = if state == "free" { "idle" } else { state };
            text.push_str(&format!("{node} {state}\n"));
        }
    }
    text
}

/// Makes the folders under [`HOME`], by the installation's own script.
fn lay_out(installation: &Path, host: &str, kind: &str) -> Result<()> {
    fs::write(OWN_CONFIG, build_config(installation, Some(host))).map_err(err(OWN_CONFIG))?;
    let mut script = command(installation, "libexec/pbs_postinstall");
    script.args([kind, LAYOUT]).arg(installation).arg(HOME).args(["", "sameconf"]);
    complete_quietly(script)
}

fn start(installation: &Path) -> Result<()> {
    let mut script = command(installation, "libexec/pbs_init.d");
    script.arg("start");
    complete_quietly(script)
}

fn command(installation: &Path, program: &str) -> Command {
    let mut command = Command::new(installation.join(program));
    let own = installation.display();
    command.env_clear().env("PATH", format!("{own}/bin:{own}/sbin:{PATH}")).env("PBS_CONF_FILE", OWN_CONFIG);
    command
}

/// Runs a script that leaves daemons behind, which keep its output open. So the output goes into the host's log, and is
/// not read to its end.
fn complete_quietly(mut script: Command) -> Result<()> {
    let log = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open("/var/log/pbs.log")
        .map_err(err("/var/log/pbs.log"))?;
    script.stdout(log.try_clone().map_err(err("pbs.log"))?).stderr(log).stdin(Stdio::null());
    let status = script.status().map_err(|error| format!("{script:?}: {error}"))?;
    status.success().then_some(()).ok_or_else(|| format!("{script:?}: {status}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_starts_its_own_daemons() {
        let config = |host| build_config(Path::new("/opt/pbs"), host);
        assert!(
            config(Some(LOGIN))
                .contains("PBS_START_SERVER=1\nPBS_START_SCHED=1\nPBS_START_COMM=1\nPBS_START_MOM=0\n")
        );
        assert!(config(Some("n001")).contains("PBS_START_COMM=0\nPBS_START_MOM=1\n"));
        assert!(!config(None).contains("=1\n"));
    }

    #[test]
    fn a_free_node_is_idle() {
        let said = "n001\n     Mom = n001\n     state = free\n     pcpus = 2\n\nn002\n     state = state-unknown,down\n";
        assert_eq!(parse_states(said), "n001 idle\nn002 state-unknown,down\n");
    }
}
