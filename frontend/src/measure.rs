//! Measures the speed of the overlay. For benches, and to diagnose a machine that seems slow.

use std::time::Duration;

use gantry_shared::deadline::bounded;
use gantry_shared::wire::message::{Answer, BulkOrder, Order, To};
use gantry_types::error::Failure;
use gantry_types::id::NodeId;
use gantry_types::rank_set::NodeSet;
use tokio::io::{AsyncRead, AsyncReadExt, repeat};
use tokio::time::Instant;

use crate::app::AppHandle;
use crate::error::{Error, Result};

/// Pings every reachable node of the app, and returns their number. Waits until all have answered.
///
/// # Errors
/// [`Error::Lost`], [`Error::TimedOut`] and [`Error::Gone`], as for every order.
pub async fn ping(app: &AppHandle, timeout: Duration) -> Result<usize> {
    let deadline = Instant::now() + bounded(timeout);
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
pub async fn broadcast(app: &AppHandle, bytes: u64, timeout: Duration) -> Result<()> {
    let source = repeat(0x67).take(bytes);
    let all = app.core.overlay.reachable();
    broadcast_to(app, all, bytes, source, Instant::now() + bounded(timeout)).await
}

/// As [`broadcast`], but only to the nodes with these numbers.
///
/// # Errors
/// As [`broadcast`].
pub async fn broadcast_some(
    app: &AppHandle,
    nodes: impl IntoIterator<Item = u32>,
    bytes: u64,
    timeout: Duration,
) -> Result<()> {
    let nodes: NodeSet = nodes.into_iter().map(NodeId).collect();
    let source = repeat(0x67).take(bytes);
    broadcast_to(app, nodes, bytes, source, Instant::now() + bounded(timeout)).await
}

async fn broadcast_to(
    app: &AppHandle,
    nodes: NodeSet,
    bytes: u64,
    source: impl AsyncRead + Unpin,
    deadline: Instant,
) -> Result<()> {
    let sink = |stream| Order::Sink { stream };
    let answers = app.core.overlay.send_bulk(nodes, sink, source, |_| {}, deadline).await?;
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

/// Bulk data that has passed each reachable node, by node number: received bytes, and bytes sent to other nodes.
///
/// # Errors
/// As [`ping`].
pub async fn bulk_counts(app: &AppHandle, timeout: Duration) -> Result<Vec<(u64, u64)>> {
    let (order, timeout) = (Order::Bulk(BulkOrder::Count), Instant::now() + bounded(timeout));
    let answers = app.core.overlay.request(To::All, order, "counting bulk data", timeout).await?;
    let count = |(node, answer): (NodeId, std::result::Result<Answer, Failure>)| match answer
        .map_err(|failure| refused(app, node, failure))?
    {
        Answer::Bulk(count) => Ok((count.received, count.sent)),
        other => Err(Error::Protocol(format!("node {node} answered {other:?} in place of a count"))),
    };
    answers.into_iter().map(count).collect()
}

fn refused(app: &AppHandle, node: NodeId, failure: Failure) -> Error {
    Error::Node { hosts: vec![app.core.state().host(node)], failure }
}
