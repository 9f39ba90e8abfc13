//! How fast the way to the nodes is. For benches, and for a look at a machine that seems slow.

use std::time::Duration;

use gantry_shared::error::Failure;
use gantry_shared::id::NodeId;
use gantry_shared::wire::message::{Answer, Order, To};
use tokio::io::{AsyncReadExt, repeat};
use tokio::time::Instant;

use crate::app::AppHandle;
use crate::error::{Error, Result};

/// Asks every node of the app that can be reached for a sign of life, and says how many there are. Waits until all have given it.
///
/// # Errors
/// [`Error::Lost`], [`Error::TimedOut`] and [`Error::Gone`], as of every order.
pub async fn ping(app: &AppHandle, deadline: Duration) -> Result<usize> {
    let deadline = Instant::now() + deadline;
    let answers =
        app.core.overlay.request(To::All, Order::Ping, "asking for signs of life", deadline).await?;
    let nodes = answers.len();
    for (node, answer) in answers {
        answer.map_err(|failure| refused(app, node, failure))?;
    }
    Ok(nodes)
}

/// Sends that many bytes to every node of the app. Waits until all have received and hashed them.
///
/// # Errors
/// As [`ping`]; [`Error::Protocol`] when a node received other bytes than were sent.
pub async fn broadcast(app: &AppHandle, bytes: u64, deadline: Duration) -> Result<()> {
    let source = repeat(0x67).take(bytes);
    let answers = app.core.overlay.broadcast_bulk(To::All, source, Instant::now() + deadline).await?;
    let mut first = None;
    for (node, answer) in answers {
        let answer = answer.map_err(|failure| refused(app, node, failure))?;
        let Answer::Received { bytes: received, hash } = answer else {
            return Err(Error::Protocol(format!("node {node} received no data but {answer:?}")));
        };
        if received != bytes || *first.get_or_insert(hash) != hash {
            return Err(Error::Protocol(format!("node {node} received other data than was sent")));
        }
    }
    Ok(())
}

fn refused(app: &AppHandle, node: NodeId, failure: Failure) -> Error {
    Error::Node { hosts: vec![app.core.state().host(node)], failure }
}
