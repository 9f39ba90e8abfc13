//! In a job: an agent for each of its nodes, all on this machine.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
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
/// Some could not be started, or have failed. One that was killed is a lost node, which its frontend sees by itself.
pub(super) async fn run(agent: &AgentCommand, hosts: &[String], job: &Job, stop: Stop<'_>) -> Result<()> {
    let (mut running, mut processes, mut failed) = (JoinSet::new(), Vec::new(), Vec::new());
    for host in hosts {
        let ticket = agent.ticket(host).map_err(Error::NotStarted)?;
        let (child, process) = start(agent, &ticket, host, job)
            .map_err(|error| Error::NotStarted(Failure::new((&error).into(), format!("{host}: {error}"))))?;
        processes.push(process);
        let (host, mut child): (String, Child) = (host.clone(), child);
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
                    // It may have ended.
                    signal_process(process, libc::SIGTERM).ok();
                }
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(Error::Hosts { of: hosts.len(), missing: failed }) }
}

/// An agent that reads `ticket`, and a handle on it that stays its own.
fn start(agent: &AgentCommand, ticket: &[u8], host: &str, job: &Job) -> io::Result<(Child, OwnedFd)> {
    #[expect(clippy::disallowed_methods, reason = "the node that is played starts its agent")]
    let mut command = Command::new(&agent.program);
    command.arg("serve").stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
    let mut child = command.spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::new).ok_or(io::ErrorKind::NotFound)?;
    let process = open_pidfd(pid)?;
    std::fs::write(job.agent_file(host), pid.to_string())?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(ticket)?;
    }
    Ok((child, process))
}
