//! The guard's executable in a job that was submitted to bring agents. It starts them on the job's nodes and stays as
//! long as they run, since the job would end with its script.

use std::ffi::OsString;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gantry_guard::helpers;
use gantry_shared::wire::build::OtherBuild;
use gantry_shared::wire::frame;
use gantry_shared::wire::hold::from_hex;
use gantry_shared::wire::message::{Ticket, TicketError};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::Pid;
use gantry_types::launch::SendAgent;
use gantry_wlm::caps::queue::{SENT, Stop};
use gantry_wlm::host::Machine;
use gantry_wlm::{AgentCommand, FETCHED, Host, JobRef, Queue, registry};
use zeroize::Zeroizing;

use crate::error::{Error, Result};
use crate::last_word;

/// The most bytes of the line with the ticket.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// The most bytes of the line with hosts.
const MAX_HOSTS_BYTES: u64 = 16 << 20;

/// The timeout for starting agents.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts the agents of the ticket from `input`, in a job of the named WLM, and waits until they end. A second line
/// of `input` may name some of the hosts.
///
/// # Errors
/// There is no such WLM, the ticket is malformed, or agents could not start or have failed. Then the frontend gets
/// the reason, if it can be reached.
pub(crate) async fn run(
    wlm: &str,
    send: &str,
    input: impl BufRead,
    stop: Stop<'_>,
) -> std::result::Result<(), Failed> {
    let mut input = input;
    let ticket = read_ticket(&mut input)?;
    let known = decode(&ticket)?;
    let on = read_hosts(&mut input)?;
    let started = start(wlm, send, ticket, on, stop).await;
    if send == SENT {
        remove_own_directory();
    }
    let Err(error) = started else { return Ok(()) };
    let heard = last_word::tell(&known, &error).await;
    Err(Failed { error, unheard: !heard })
}

/// Agents could not start, or have failed.
#[derive(Debug)]
pub(crate) struct Failed {
    /// Why.
    pub error: Error,
    /// The frontend did not get the report.
    pub unheard: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, unheard: false }
    }
}

/// Removes the directory to which this program was sent. All agents from there have ended.
fn remove_own_directory() {
    let program = Machine.read_link(Path::new("/proc/self/exe"));
    let Some(folder) = program.ok().and_then(|program| program.parent().map(Path::to_owned)) else { return };
    let is_own = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(FETCHED.as_bytes());
    if folder.file_name().is_some_and(is_own) {
        // The WLM removes it with the job's own directory.
        std::fs::remove_dir_all(folder).ok();
    }
}

async fn start(
    wlm: &str,
    send: &str,
    ticket: Zeroizing<Vec<u8>>,
    on: Option<Vec<String>>,
    stop: Stop<'_>,
) -> Result<()> {
    let send = if send == SENT { SendAgent::Always } else { send.parse()? };
    let queue = find_queue(wlm)?;
    let program = helpers::find_helper(helpers::AGENT, &Machine)?;
    let mut agent = AgentCommand::new(program, send, move |host| {
        let ticket = decode(&ticket).map_err(|error| error.to_failure())?;
        let ticket = Ticket { host: host.to_owned(), ..ticket };
        ticket.to_frame().map_err(|e| Failure::new(Kind::Invalid, e.to_string()))
    });
    agent.deadline = Some(Instant::now() + PATIENCE);
    Ok(queue.run_agents(&agent, on.as_deref(), stop, &Machine).await?)
}

/// The bytes of a ticket's frame, from a line of hexadecimal digits.
fn read_ticket(input: &mut impl BufRead) -> Result<Zeroizing<Vec<u8>>> {
    let mut line = Zeroizing::new(String::new());
    input.by_ref().take(MAX_LINE_BYTES).read_line(&mut line).map_err(|e| malformed(&e.to_string()))?;
    from_hex(line.trim()).map_err(|e| malformed(&e.to_string()))
}

/// Hosts, separated by commas. None: there is no such line.
fn read_hosts(input: &mut impl BufRead) -> Result<Option<Vec<String>>> {
    let mut line = String::new();
    input.by_ref().take(MAX_HOSTS_BYTES).read_line(&mut line).map_err(|e| malformed(&e.to_string()))?;
    let line = line.trim();
    Ok((!line.is_empty()).then(|| line.split(',').map(str::to_owned).collect()))
}

/// What a process needs to act in a job: the program, its arguments and variables.
#[derive(Debug)]
pub(crate) struct Entrance {
    /// This program.
    pub program: PathBuf,
    /// The subcommand and the name of the WLM.
    pub args: Vec<String>,
    /// The job's variables.
    pub variables: Vec<(OsString, OsString)>,
}

/// Finds the way into a job through the variables of one of its processes on this machine: `pid`, or any if that is
/// 0.
///
/// # Errors
/// There is no such WLM or process, or the process belongs to another job.
pub(crate) fn enter(wlm: &str, job: &str, pid: &str, what: &str) -> Result<Entrance> {
    let queue = find_queue(wlm)?;
    let number = pid.parse().map_err(|_| Error::new(Kind::Invalid, format!("'{pid}' is not a pid")))?;
    let variables = queue.read_variables(&JobRef(job.to_owned()), Pid::new(number), &Machine)?;
    let program = helpers::find_helper(helpers::GUARD, &Machine)?;
    let mut args = vec![what.to_owned(), wlm.to_owned()];
    if what == "start" {
        args.push(SendAgent::Never.to_string());
    }
    Ok(Entrance { program, args, variables })
}

/// Reports in a job where its ranks are.
///
/// # Errors
/// There is no such WLM.
pub(crate) async fn look(wlm: &str) -> Result<String> {
    let program = helpers::find_helper(helpers::GUARD, &Machine)?;
    Ok(find_queue(wlm)?.look(&program, &Machine).await)
}

/// Records the job's processes on this host.
///
/// # Errors
/// There is no such WLM, or the WLM fails.
pub(crate) async fn leave(wlm: &str) -> Result<()> {
    Ok(find_queue(wlm)?.leave(&Machine).await?)
}

/// Records why the agent in this process ended, and fails with that reason.
///
/// # Errors
/// Always: with that reason.
pub(crate) async fn leave_word(wlm: &str, word: &str) -> Result<()> {
    let word = from_hex(word).map_err(|e| Error::new(Kind::Protocol, e.to_string()))?;
    let failure: Failure = frame::decode(&word).map_err(|e| Error::new(Kind::Protocol, e.to_string()))?;
    // If it cannot be recorded, only the output of this process has the reason.
    find_queue(wlm)?.leave_word(&failure, &Machine).await.ok();
    Err(Error::Here(failure))
}

fn find_queue(wlm: &str) -> Result<&'static dyn Queue> {
    Ok(gantry_wlm::find_queue(registry::find(wlm)?)?)
}

fn malformed(why: &str) -> Error {
    Error::new(Kind::Protocol, format!("read the ticket: {why}"))
}

fn decode(mut bytes: &[u8]) -> Result<Ticket> {
    let body = frame::read_frame(&mut bytes).map_err(|e| malformed(&e.to_string()))?;
    let body = body.ok_or_else(|| malformed("there is none"))?;
    Ticket::from_body(&body).map_err(|error| match error {
        TicketError::OtherBuild(OtherBuild { theirs, ours }) => {
            let reason = format!("{}: the frontend is version {theirs}, this is {ours}", helpers::GUARD);
            Failure::new(Kind::Unsupported, reason).with_hint(helpers::ONE_VERSION).into()
        }
        other => Error::new(Kind::Protocol, other.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use gantry_shared::wire::build::stamp;
    use gantry_shared::wire::hold::to_hex;

    use super::*;

    #[test]
    fn a_malformed_ticket_is_refused() {
        let check = |text: &str, expected: &str| {
            let read = read_ticket(&mut text.as_bytes()).and_then(|bytes| decode(&bytes).map(drop));
            let error = read.unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        };
        check("", "there is none");
        check("xyz\n", "not hexadecimal");
        check("00ff\n", "read the ticket");
        check(&"00".repeat(100_000), "the frontend is version unknown");
        let body = stamp(b"\xff");
        let body = [&frame::build_prefix(body.len()).unwrap()[..], &body].concat();
        check(&to_hex(&body), "read the ticket");
    }

    #[test]
    fn hosts_are_a_line_or_all() {
        assert_eq!(read_hosts(&mut "".as_bytes()).unwrap(), None);
        let named = read_hosts(&mut "a,b\nmore".as_bytes()).unwrap();
        assert_eq!(named, Some(vec!["a".to_owned(), "b".to_owned()]));
    }
}
