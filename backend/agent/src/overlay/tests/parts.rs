//! The rest of large contributions: taken where it is merged, passed on elsewhere.

use gantry_shared::wire::channel::{CHUNK_BYTES, ChannelNotice, ChannelOrder, FIRST_MADE, Member};
use gantry_shared::wire::message::Blob;
use gantry_types::filter::Filter;
use gantry_types::id::SessionId;

use super::*;

const PART: FlowId = FlowId::Part { operation: 1, part: FIRST_MADE };

/// A word of node 2, which is below the child that the test plays.
fn word(word: Word) -> Vec<u8> {
    let notice = Notice::Flow { flow: PART, word };
    frame::encode_body(&Up::Notice { node: NodeId(2), notice }).unwrap()
}

/// The agent begins an operation for the nodes below it, which its child hears too.
async fn collect(root: &mut Peer, child: &mut Peer, filter: Option<Filter>) {
    let of = [1, 2].map(|node| Member { node: NodeId(node), daemon: DaemonId(5) }).into_iter().collect();
    let order = ChannelOrder::Collect { session: SessionId(1), operation: 1, tag: 9, of, filter };
    let down = Down { request: None, to: To::All, order: Order::Channel(order) };
    root.say(&down).await;
    assert_eq!(child.hear::<Down>().await, down);
}

/// The child may have passed it on unread, so it is not to blame. The frontend finds out who is.
#[tokio::test]
async fn an_agent_that_merges_passes_on_what_is_no_data() {
    let (_front, mut root, _agent, mut child) = parent_and_child().await;
    collect(&mut root, &mut child, Some(Filter::Sum)).await;
    let mut garbled = word(Word::End);
    *garbled.last_mut().unwrap() = 99;
    for body in [garbled, word(Word::End)] {
        child.say_body(&body).await;
        assert_eq!(root.hear_body().await, body);
    }
}

#[tokio::test]
async fn the_rest_of_a_part_goes_to_the_agent_that_merges_it_and_else_to_the_frontend() {
    let data = word(Word::data(vec![7; 100]));
    for merges in [true, false] {
        let (_front, mut root, _agent, mut child) = parent_and_child().await;
        collect(&mut root, &mut child, merges.then_some(Filter::Sum)).await;
        let of = std::iter::once(Member { node: NodeId(2), daemon: DaemonId(5) }).collect();
        let (total, bytes) = (CHUNK_BYTES as u64 + 100, Blob(vec![7; CHUNK_BYTES]));
        let part = ChannelNotice::Part { operation: 1, part: FIRST_MADE, of, total, bytes };
        let first = Up::Notice { node: NodeId(2), notice: Notice::Channel(part) };
        child.say(&first).await;
        if merges {
            let credit = child.hear::<Down>().await;
            assert!(matches!(credit.order, Order::Flow { flow: PART, word: Word::Credit(_) }), "{credit:?}");
            child.say_body(&data).await;
            // The bytes are no numbers: the agent reports them, and passes none of them on.
            let missing = root.notice().await;
            assert!(
                matches!(missing, (0, Notice::Channel(ChannelNotice::Missing { operation: 1, .. }))),
                "{missing:?}"
            );
        } else {
            assert_eq!(root.hear::<Up>().await, first);
            child.say_body(&data).await;
            assert_eq!(root.hear_body().await, data);
        }
    }
}
