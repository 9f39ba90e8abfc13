//! What a launcher runs on the node after each rank: it waits until the node's agent has cleaned up, where the agent would be killed otherwise.
//!
//! There is only so much time, after which the launcher kills us and the agent: a few seconds.

use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use gantry_backend::connect_abstract;
use gantry_shared::error::{Failure, Kind};
use gantry_shared::wire::frame;
use gantry_shared::wire::hold::{GANTRY_TASK_EPILOG, HoldTicket, ToDesk, build_desk_name};
use gantry_wlm::host::{Host, Machine, run};

use crate::{failure, ranks};

/// How long all of it may take: a little less than the five seconds that it is given.
const PATIENCE: Duration = Duration::from_millis(4500);

/// Runs what the user wanted to be run, and waits for the agent. `ticket` is the text of the app's ticket.
///
/// # Errors
/// The ticket makes no sense; what the user wanted to be run cannot be run or says that it failed.
pub(crate) fn run_epilog(ticket: &str) -> Result<(), Failure> {
    let users = Machine.env(GANTRY_TASK_EPILOG).map_or(Ok(()), |path| run_users(Path::new(&path)));
    let ticket = HoldTicket::from_text(ticket)
        .map_err(|error| Failure::new(Kind::Protocol, ranks::with_causes(&error)))?;
    // Without an agent there is nothing to wait for. One that outlives the step lets us go at once: we cannot tell, as we are not in the
    // step's cgroup ourselves.
    drop(wait_for_agent(&ticket));
    users
}

fn run_users(epilog: &Path) -> Result<(), Failure> {
    let ran = run::<&str>(epilog, &[], PATIENCE);
    let (status, _) =
        ran.map_err(|error| failure::from_io(format_args!("run {}", epilog.display()), &error))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(Kind::LauncherFailed, format!("{} ended with {status}", epilog.display())))
}

fn wait_for_agent(ticket: &HoldTicket) -> io::Result<()> {
    let name = build_desk_name(ticket.agent.app, &ticket.agent.secret);
    let mut desk = connect_abstract(&name, Instant::now() + PATIENCE)?;
    desk.set_read_timeout(Some(PATIENCE))?;
    desk.write_all(&frame::encode(&ToDesk::RankEnded).map_err(io::Error::other)?)?;
    desk.read_to_end(&mut Vec::new()).map(drop)
}
