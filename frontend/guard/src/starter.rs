//! The guard's executable in a job that was submitted to bring agents: it starts them on the job's nodes, and stays as long as they do, as the job's script
//! would otherwise be over.

use std::ffi::OsString;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gantry_guard::helpers;
use gantry_shared::wire::frame;
use gantry_shared::wire::hold::from_hex;
use gantry_shared::wire::message::Ticket;
use gantry_types::error::{Failure, Kind};
use gantry_types::id::Pid;
use gantry_types::launch::SendAgent;
use gantry_wlm::caps::queue::{SENT, Stop};
use gantry_wlm::host::Machine;
use gantry_wlm::{AgentCommand, AgentWatch, FETCHED, Host, JobRef, Queue, registry};
use zeroize::Zeroizing;

use crate::error::{Error, Result};
use crate::last_word;

/// Most bytes of the line with the ticket.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// Most bytes of the line with hosts.
const MAX_HOSTS_BYTES: u64 = 16 << 20;

/// How long agents may take to be started.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts the agents of the ticket that `input` brings, in a job of the WLM of that name, and waits for their ends. A second line names the hosts that are
/// meant, if not all are.
///
/// # Errors
/// There is no such WLM, the ticket is none, agents could not be started or have failed: then the frontend is told why, if it can be reached.
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

/// Agents could not be started, or have failed.
#[derive(Debug)]
pub(crate) struct Failed {
    /// Why.
    pub error: Error,
    /// The frontend could not be told that.
    pub unheard: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, unheard: false }
    }
}

/// Removes the directory to which this program was sent. All agents that were to come from there have ended.
fn remove_own_directory() {
    let program = Machine.read_link(Path::new("/proc/self/exe"));
    let Some(folder) = program.ok().and_then(|program| program.parent().map(Path::to_owned)) else { return };
    let is_own = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(FETCHED.as_bytes());
    if folder.file_name().is_some_and(is_own) {
        // The WLM removes it with the job's own directory, if it is there.
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
    let agent = AgentCommand::new(program, send, move |host| {
        let ticket = decode(&ticket).map_err(|error| error.to_failure())?;
        let ticket = Ticket { host: host.to_owned(), ..ticket };
        frame::encode(&ticket).map_err(|e| Failure::new(Kind::Invalid, e.to_string()))
    });
    let agent = agent.watched_until(Instant::now() + PATIENCE, AgentWatch::default());
    Ok(queue.run_agents(&agent, on.as_deref(), stop, &Machine).await?)
}

/// The bytes of a frame with a ticket, from a line of hexadecimal digits.
fn read_ticket(input: &mut impl BufRead) -> Result<Zeroizing<Vec<u8>>> {
    let mut line = Zeroizing::new(String::new());
    input.by_ref().take(MAX_LINE_BYTES).read_line(&mut line).map_err(|e| malformed(&e.to_string()))?;
    from_hex(line.trim()).map_err(|e| malformed(&e.to_string()))
}

/// Hosts, with commas between. None: there is no such line.
fn read_hosts(input: &mut impl BufRead) -> Result<Option<Vec<String>>> {
    let mut line = String::new();
    input.by_ref().take(MAX_HOSTS_BYTES).read_line(&mut line).map_err(|e| malformed(&e.to_string()))?;
    let line = line.trim();
    Ok((!line.is_empty()).then(|| line.split(',').map(str::to_owned).collect()))
}

/// What a process of a job needs to know to act in it: the program, and its arguments behind its name.
#[derive(Debug)]
pub(crate) struct Entrance {
    /// This program.
    pub program: PathBuf,
    /// What it is to do there, for the WLM of that name.
    pub args: Vec<String>,
    /// The job's variables.
    pub variables: Vec<(OsString, OsString)>,
}

/// Finds the way into a job: by the variables of one of its processes on this machine, which is `pid`, or looked for if that is 0.
///
/// # Errors
/// There is no such WLM or process, or it is not of that job.
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

/// What is said of where a job's ranks are, in the job.
///
/// # Errors
/// There is no such WLM.
pub(crate) async fn look(wlm: &str) -> Result<String> {
    let program = helpers::find_helper(helpers::GUARD, &Machine)?;
    Ok(find_queue(wlm)?.look(&program, &Machine).await)
}

/// Leaves word of what is on this host of a job.
///
/// # Errors
/// There is no such WLM; what it says.
pub(crate) async fn leave(wlm: &str) -> Result<()> {
    Ok(find_queue(wlm)?.leave(&Machine).await?)
}

/// Leaves word of why the agent has ended that this process was, and fails as it did.
///
/// # Errors
/// Always: with that reason.
pub(crate) async fn leave_word(wlm: &str, word: &str) -> Result<()> {
    let word = from_hex(word).map_err(|e| Error::new(Kind::Protocol, e.to_string()))?;
    let failure: Failure = frame::decode(&word).map_err(|e| Error::new(Kind::Protocol, e.to_string()))?;
    if let Err(error) = find_queue(wlm)?.leave_word(&failure, &Machine).await {
        tracing::debug!(%error, "no reason could be recorded");
    }
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
    let ticket: Ticket = frame::decode(&body).map_err(|e| malformed(&e.to_string()))?;
    if ticket.release != env!("CARGO_PKG_VERSION") {
        let (theirs, ours) = (&ticket.release, env!("CARGO_PKG_VERSION"));
        let reason = format!("{}: the frontend is version {theirs}, this is {ours}", helpers::GUARD);
        return Err(Failure::new(Kind::Unsupported, reason).with_hint(helpers::ONE_VERSION).into());
    }
    Ok(ticket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_ticket_is_refused() {
        let check = |text: &str, expected: &str| {
            let read = read_ticket(&mut text.as_bytes()).and_then(|bytes| decode(&bytes).map(drop));
            let error = read.unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        };
        check("", "there is none");
        check("xyz\n", "not hexadecimal");
        check("00ff\n", "read the ticket");
        check(&"00".repeat(100_000), "read the ticket");
    }

    #[test]
    fn hosts_are_a_line_or_all() {
        assert_eq!(read_hosts(&mut "".as_bytes()).unwrap(), None);
        let named = read_hosts(&mut "a,b\nmore".as_bytes()).unwrap();
        assert_eq!(named, Some(vec!["a".to_owned(), "b".to_owned()]));
    }
}
