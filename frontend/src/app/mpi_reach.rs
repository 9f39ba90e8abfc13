//! Tests whether the hosts of an MPI program can connect to each other.
//!
//! MPI libraries wait for ever where a firewall drops packets silently. But hosts may also have a network of their own
//! for MPI. So the app goes on, and the user is told.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gantry_shared::wire::message::{Answer, Order};
use gantry_shared::wire::mpi::{MpiNote, MpiSubject};
use gantry_types::id::NodeId;
use gantry_types::rank_set::NodeSet;
use tokio::time::Instant;

use super::core::Core;
use super::state::Happening;
use crate::error::Result;

/// How long a host tries to connect to another one.
const TRY_TIME: Duration = Duration::from_secs(5);

/// Timeout for the whole test.
const TEST_TIME: Duration = Duration::from_secs(30);

/// The limit on hosts that others try to reach. Each host tries all of them.
const MOST_TRIED: usize = 64;

/// A host, another one that it does not reach, and the addresses of that one.
type Unreached = (NodeId, NodeId, Vec<SocketAddr>);

/// Tests whether the app's hosts reach each other, and tells the user of the first that does not.
pub(super) async fn test_hosts(core: Arc<Core>) {
    match find_unreached(&core).await {
        Ok(None) => {}
        Ok(Some(unreached)) => {
            if let Some(note) = build_note(&core, unreached) {
                core.happened(Happening::MpiNote(note));
            }
        }
        // Most often the app is over.
        Err(error) => tracing::debug!(%error, "whether hosts reach each other is not known"),
    }
}

async fn find_unreached(core: &Core) -> Result<Option<Unreached>> {
    let deadline = Instant::now() + TEST_TIME;
    let nodes = core.live_nodes();
    let tried: Vec<NodeId> = nodes.iter().take(MOST_TRIED).collect();
    let listen = Order::Listen { within: TRY_TIME * 2 };
    let phase = "testing whether hosts reach each other";
    let listening: NodeSet = tried.iter().copied().collect();
    let answers = core.ask(&listening, listen, phase, deadline).await?;
    let listens: Vec<(NodeId, Vec<SocketAddr>)> = answers
        .into_iter()
        .filter_map(|(node, answer)| match answer {
            Answer::Listens(addresses) => Some((node, addresses)),
            _ => None,
        })
        .collect();
    let others = listens.iter().map(|(_, addresses)| addresses.clone()).collect();
    let reach = Order::Reach { others, within: TRY_TIME };
    for (node, answer) in core.ask(&nodes, reach, phase, deadline).await? {
        let Answer::Unreached(unreached) = answer else { continue };
        let numbers = unreached.into_iter().filter_map(|number| usize::try_from(number).ok());
        // A host that does not reach itself is of no interest.
        let other = numbers.filter_map(|number| listens.get(number)).find(|(other, _)| *other != node);
        if let Some((other, addresses)) = other {
            return Ok(Some((node, *other, addresses.clone())));
        }
    }
    Ok(None)
}

fn build_note(core: &Core, (node, other, addresses): Unreached) -> Option<MpiNote> {
    let state = core.state();
    let rank = state.placement().ranks_on(node).iter().next()?;
    let at: Vec<String> = addresses.iter().map(|address| address.ip().to_string()).collect();
    let text = format!(
        "MPI may wait for ever: host {} does not connect to host {} at {} within {} s; let the hosts connect to each other by TCP, unless they have another network for MPI",
        state.host(node),
        state.host(other),
        at.join(", "),
        TRY_TIME.as_secs()
    );
    Some(MpiNote { rank, subject: MpiSubject::Network, text })
}
