//! What nodes put into a fence of the ranks' MPI world, on its way up.

use std::collections::BTreeSet;

use gantry_shared::wire::message::{Blob, Notice, Up};
use gantry_shared::wire::rendezvous::{MAX_SMALL_BYTES, RendezvousNotice};
use gantry_types::id::NodeId;

use super::{chain, daemon_exited, parent_and_child};

/// The nodes of a notice about a fence, and what they put.
fn puts_of(notice: Notice) -> Vec<(u32, Vec<u8>)> {
    match notice {
        Notice::Rendezvous(RendezvousNotice::Fence { number: 7, puts }) => {
            puts.into_iter().map(|(node, put)| (node.0, put.0)).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn puts(node: u32, bytes: usize) -> Notice {
    let puts = vec![(NodeId(node), Blob(vec![b'x'; bytes]))];
    Notice::Rendezvous(RendezvousNotice::Fence { number: 7, puts })
}

#[tokio::test]
async fn the_agent_next_to_the_frontend_speaks_for_its_subtree() {
    let (_front, mut root, agents, _) = chain(4).await;
    for agent in agents.iter().rev() {
        agent.up.notice(puts(agent.node.0, 3));
    }
    let mut came = BTreeSet::new();
    while came.len() < 4 {
        let (node, notice) = root.notice().await;
        assert_eq!(node, 0);
        came.extend(puts_of(notice).into_iter().map(|(node, put)| (node, put.len())));
    }
    assert_eq!(came, BTreeSet::from([(0, 3), (1, 3), (2, 3), (3, 3)]));
}

#[tokio::test]
async fn puts_do_not_wait_for_ever_and_nothing_of_their_node_overtakes_them() {
    let (_front, mut root, agents, _) = chain(2).await;
    agents[1].up.notice(puts(1, 3));
    let (_, notice) = root.notice().await;
    assert_eq!(puts_of(notice), [(1, b"xxx".to_vec())], "node 0 has put nothing");
    agents[0].up.notice(puts(0, 0));
    assert_eq!(puts_of(root.notice().await.1), [(0, Vec::new())]);
    // Its put would wait for node 0. The exit that follows takes it along.
    for _ in 0..20 {
        agents[1].up.notice(puts(1, 1));
        agents[1].up.notice(daemon_exited());
        assert_eq!(puts_of(root.notice().await.1), [(1, b"x".to_vec())]);
        assert!(matches!(root.notice().await, (1, Notice::DaemonExited { .. })));
    }
}

#[tokio::test]
async fn who_sends_an_invalid_put_is_cut_off_by_its_parent() {
    for (of, bytes) in [(0, 1), (2, usize::try_from(MAX_SMALL_BYTES + 1).unwrap())] {
        let (_front, mut root, _agent, mut child) = parent_and_child().await;
        child.say(&Up::Notice { node: NodeId(2), notice: puts(of, bytes) }).await;
        assert!(matches!(root.notice().await, (0, Notice::NodesLost { .. })), "{bytes} bytes of node {of}");
    }
}

#[tokio::test]
async fn a_node_that_puts_twice_is_not_twice_in_one_notice() {
    let (_front, mut root, _agent, mut child) = parent_and_child().await;
    for bytes in [1, 2] {
        child.say(&Up::Notice { node: NodeId(2), notice: puts(2, bytes) }).await;
    }
    for bytes in [1, 2] {
        assert_eq!(puts_of(root.notice().await.1), [(2, vec![b'x'; bytes])]);
    }
}
