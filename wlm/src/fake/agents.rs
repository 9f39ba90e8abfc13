//! In a job: starts an agent for each of its nodes, all on this machine.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use gantry_types::error::{Failure, Kind};
use gantry_types::id::Pid;
use tokio::task::JoinSet;

use super::job::Job;
use crate::AgentCommand;
use crate::caps::queue::Stop;
use crate::error::{Error, Result};
use crate::host::{open_pidfd, signal_process};

/// Starts an agent for each host, and stays until all have ended.
///
/// # Errors
/// Some could not start, or have failed. A killed agent counts as a lost node, which its frontend notices itself.
pub(super) async fn run(agent: &AgentCommand, hosts: &[String], job: &Job, stop: Stop<'_>) -> Result<()> {
    let (mut running, mut processes, mut failed) = (JoinSet::new(), Vec::new(), Vec::new());
    for host in hosts {
        let (mut child, process) = match start(agent, host, job) {
            Ok(started) => started,
            Err(failure) => {
                // All agents, or none.
                processes.iter().for_each(|process| drop(signal_process(process, libc::SIGKILL)));
                return Err(Error::Failed(failure));
            }
        };
        processes.push(process);
        let host = host.clone();
        running.spawn_blocking(move || (host, child.wait()));
    }
    let (mut stop, mut asked) = (stop, false);
    loop {
        tokio::select! {
            ended = running.join_next() => {
                let Some(ended) = ended else { break };
                let Ok((host, status)) = ended else { continue };
                std::fs::remove_file(job.agent_file(&host)).ok();
                match status {
                    Ok(status) if status.success() || status.signal().is_some() => {}
                    Ok(status) => failed.push((host, Failure::new(Kind::LauncherFailed, format!("its agent ended with {status}")))),
                    Err(error) => failed.push((host, Failure::new((&error).into(), error.to_string()))),
                }
            }
            () = &mut stop, if !asked => {
                asked = true;
                for process in &processes {
                    // It may have ended already.
                    signal_process(process, libc::SIGTERM).ok();
                }
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(Error::Hosts { of: hosts.len(), missing: failed }) }
}

/// Starts an agent. Returns it with a pidfd, which never refers to another process.
fn start(agent: &AgentCommand, host: &str, job: &Job) -> std::result::Result<(Child, OwnedFd), Failure> {
    let ticket = agent.ticket(host)?;
    spawn(agent, &ticket, &job.agent_file(host)).map_err(|error| {
        let failure = Failure::new((&error).into(), format!("start the agent of {host}: {error}"));
        failure.with_hint("see that all of gantry is built")
    })
}

/// Starts an agent that reads `ticket`, and writes its pid to `file`.
fn spawn(agent: &AgentCommand, ticket: &[u8], file: &Path) -> io::Result<(Child, OwnedFd)> {
    #[expect(clippy::disallowed_methods, reason = "this stands in for a node that starts its agent")]
    let mut command = Command::new(&agent.program);
    command.arg("serve").stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
    let mut child = command.spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::new).ok_or(io::ErrorKind::NotFound)?;
    let process = open_pidfd(pid)?;
    std::fs::write(file, pid.to_string())?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(ticket)?;
    }
    Ok((child, process))
}
