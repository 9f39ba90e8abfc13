//! Reports failed agents of a job. Such a failure is visible only inside the job. So this program connects to the
//! frontend in the place of a missing agent, and reports the reason.

use std::net::SocketAddr;
use std::time::Duration;

use gantry_link::handshake::connect;
use gantry_link::link::Link;
use gantry_shared::wire::message::Brought;
use gantry_shared::wire::message::{AgentHello, Dial, Ticket};
use gantry_types::error::Failure;
use gantry_types::id::Pid;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::error::Error;

/// How long connecting and reporting may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The pause before dialling a frontend that cut the link.
const AGAIN: Duration = Duration::from_millis(100);

/// Reports to the ticket's frontend why agents have failed. False: the report did not arrive.
pub(crate) async fn tell(ticket: &Ticket, error: &Error) -> bool {
    let (host, failure) = match error {
        Error::Wlm(gantry_wlm::Error::Hosts { missing, .. }) if !missing.is_empty() => missing[0].clone(),
        // It concerns this host, whose name the frontend does not need.
        other => (String::new(), other.to_failure()),
    };
    let until = Instant::now() + PATIENCE;
    let Some(link) = dial(ticket, until).await else { return false };
    timeout_at(until, say(link, host, failure)).await.unwrap_or(false)
}

/// A link to the address that answers first.
async fn dial(ticket: &Ticket, until: Instant) -> Option<Link> {
    let mut attempts = JoinSet::new();
    for address in ticket.frontend.clone() {
        let (app, secret) = (ticket.app, ticket.secret.clone());
        attempts.spawn(async move {
            loop {
                let stream = timeout_at(until, TcpStream::connect::<SocketAddr>(address)).await.ok()?.ok()?;
                match connect(stream, &secret, app.as_str().as_bytes(), until).await {
                    // A frontend with too many callers cuts off slow ones, so dial again.
                    Err(error) if error.is_cut() => timeout_at(until, sleep(AGAIN)).await.ok()?,
                    dialled => return dialled.ok(),
                }
            }
        });
    }
    while let Some(attempt) = attempts.join_next().await {
        if let Ok(Some(link)) = attempt {
            return Some(link);
        }
    }
    None
}

async fn say(link: Link, host: String, failure: Failure) -> bool {
    let Some(pid) = i32::try_from(std::process::id()).ok().and_then(Pid::new) else { return false };
    let brought = Some(Brought { size: 0, ranks: Err(failure) });
    let hello = AgentHello { host, pid, listen: Vec::new(), brought };
    let (mut reader, mut writer) = link.split();
    if writer.send(&Dial::Agent(hello)).is_err() || writer.flush().await.is_err() {
        return false;
    }
    // The frontend closes the link after it has read the report.
    drop(reader.next().await);
    true
}
