//! A running bed: how to reach and start its hosts.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::command::{Result, err};
use super::config::Config;
use super::place::Place;

/// Data about a bed whose hall runs.
#[derive(Debug, Clone)]
pub(crate) struct Bed {
    pub(crate) place: Place,
    pub(crate) config: Config,
    /// The hall's init, as this machine numbers it.
    pub(crate) hall_pid: i32,
    /// The program `testbed`, which plays the inits.
    pub(crate) program: PathBuf,
}

impl Bed {
    /// Starts hosts, all at once.
    pub(crate) fn start_hosts(&self, names: &[String]) -> Result<()> {
        let start = |name: &String| {
            let mut command = self.in_hall();
            command.arg(&self.program).args(["inside", "host"]).arg(self.place.dir()).arg(name);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()
        };
        let starting: std::io::Result<Vec<_>> = names.iter().map(start).collect();
        let mut failures = Vec::new();
        for child in starting.map_err(err("nsenter"))? {
            let output = child.wait_with_output().map_err(err("nsenter"))?;
            if !output.status.success() {
                failures.push(String::from_utf8_lossy(&output.stderr).trim().to_owned());
            }
        }
        if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
    }

    /// A command that runs its added arguments as a program in the hall, as root.
    pub(crate) fn in_hall(&self) -> Command {
        let mut command = enter(self.hall_pid);
        command.env_clear().env("PATH", self.config.path());
        command
    }
}

/// A command that runs its added arguments as a program in the namespaces of an init.
pub(crate) fn enter(init: i32) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["--target", &init.to_string(), "--mount", "--uts", "--ipc", "--net", "--pid", "--"]);
    command
}
