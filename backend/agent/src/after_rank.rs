//! The program that a launcher runs on the node after each rank. It waits until the node's agent has cleaned up.
//!
//! Without it the launcher would kill the agent during its cleanup. The plan says how much time there is: afterwards
//! the launcher may kill both.

use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use gantry_backend::connect_abstract;
use gantry_shared::deadline::bounded;
use gantry_shared::wire::frame;
use gantry_shared::wire::hold::{AfterRank, HoldTicket, ToDesk, build_desk_name};
use gantry_types::error::{Failure, Kind};
use gantry_wlm::host::run;

use crate::failure;
use crate::release::refuse;

/// Runs the user's own program, and waits for the node's agent. `ticket` is the text of the app's ticket.
///
/// # Errors
/// The ticket is invalid. The user's program cannot be run, or reports a failure.
pub(crate) fn run_after_rank(ticket: &str) -> Result<(), Failure> {
    let ticket = HoldTicket::from_text(ticket).map_err(|error| refuse(&error))?;
    let Some(AfterRank { program, within }) = &ticket.after_rank else {
        return Err(Failure::new(Kind::Invalid, "nothing is to be done after a rank")
            .with_hint("gantry-agent needs a command"));
    };
    let deadline = Instant::now() + bounded(*within);
    let users = program.as_ref().map_or(Ok(()), |program| run_users(Path::new(program), *within));
    // Without an agent there is nothing to wait for. An agent that outlives the step ends this wait at once. This
    // process cannot tell which it is, since it is not in the step's cgroup itself.
    drop(wait_for_agent(&ticket, deadline));
    users
}

fn run_users(program: &Path, within: Duration) -> Result<(), Failure> {
    let ran = run::<&str>(program, &[], within);
    let (status, _) =
        ran.map_err(|error| failure::from_io(format_args!("run {}", program.display()), &error))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(Kind::LauncherFailed, format!("{} ended with {status}", program.display())))
}

fn wait_for_agent(ticket: &HoldTicket, deadline: Instant) -> io::Result<()> {
    let name = build_desk_name(ticket.agent.app, &ticket.agent.secret);
    let mut desk = connect_abstract(&name, deadline)?;
    // A timeout of zero would be an error.
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    desk.set_read_timeout(Some(left))?;
    desk.write_all(&frame::encode(&ToDesk::RankEnded).map_err(io::Error::other)?)?;
    desk.read_to_end(&mut Vec::new()).map(drop)
}
