//! The guard's executable in a job that was submitted to bring agents: it starts them on the job's nodes, and stays as long as they do, as the job's script
//! would otherwise be over.

use std::io::BufRead;
use std::time::{Duration, Instant};

use gantry_shared::error::{Failure, Kind};
use gantry_shared::wire::frame;
use gantry_shared::wire::hold::from_hex;
use gantry_shared::wire::message::Ticket;
use gantry_wlm::host::Machine;
use gantry_wlm::queue::Stop;
use gantry_wlm::{AgentCommand, AgentWatch, detect};
use zeroize::Zeroizing;

use crate::error::{Error, Result};
use crate::helpers;

/// Most bytes of the line with the ticket.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// How long agents may take to be started.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts the agents of the ticket that `input` brings, in a job of the WLM of that name, and waits for their ends.
///
/// # Errors
/// There is no such WLM, the ticket is none, agents could not be started or have failed.
pub async fn run(wlm: &str, input: impl BufRead, stop: Stop<'_>) -> Result<()> {
    let wlm = detect::find(wlm)?;
    let queue = wlm.queue().ok_or_else(|| Error::invalid(format!("{} has no queues", wlm.name())))?;
    let ticket = read_ticket(input)?;
    decode(&ticket)?;
    let program = helpers::find_helper(helpers::AGENT, &Machine)?;
    let agent = AgentCommand::new(program, None, move |host| {
        let ticket = decode(&ticket).map_err(|error| error.to_failure())?;
        let ticket = Ticket { host: host.to_owned(), ..ticket };
        frame::encode(&ticket).map_err(|e| Failure::new(Kind::Invalid, e.to_string()))
    });
    let agent = agent.watched_until(Instant::now() + PATIENCE, AgentWatch::default());
    Ok(queue.run_agents(&agent, stop, &Machine).await?)
}

/// The bytes of a frame with a ticket, from a line of hexadecimal digits.
fn read_ticket(input: impl BufRead) -> Result<Zeroizing<Vec<u8>>> {
    let mut line = Zeroizing::new(String::new());
    input.take(MAX_LINE_BYTES).read_line(&mut line).map_err(|e| malformed(&e.to_string()))?;
    from_hex(line.trim()).map_err(|e| malformed(&e.to_string()))
}

fn malformed(why: &str) -> Error {
    Error::Protocol(format!("read the ticket: {why}"))
}

fn decode(mut bytes: &[u8]) -> Result<Ticket> {
    let body = frame::read_frame(&mut bytes).map_err(|e| malformed(&e.to_string()))?;
    let body = body.ok_or_else(|| malformed("there is none"))?;
    let ticket: Ticket = frame::decode(&body).map_err(|e| malformed(&e.to_string()))?;
    if ticket.release != env!("CARGO_PKG_VERSION") {
        let reason =
            format!("the frontend is version {}, this is {}", ticket.release, env!("CARGO_PKG_VERSION"));
        return Err(Error::HelperUnfit { program: helpers::GUARD.into(), reason });
    }
    Ok(ticket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_ticket_is_refused() {
        let check = |text: &str, expected: &str| {
            let read = read_ticket(text.as_bytes()).and_then(|bytes| decode(&bytes).map(drop));
            let error = read.unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        };
        check("", "there is none");
        check("xyz\n", "not hexadecimal");
        check("00ff\n", "read the ticket");
        check(&"00".repeat(100_000), "read the ticket");
    }
}
