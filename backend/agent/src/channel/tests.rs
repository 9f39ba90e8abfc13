//! The hub alone, with inputs by hand: what goes up and down, what a daemon receives, and what it must not do.

use gantry_shared::wire::channel::{CHANNEL_WINDOW_BYTES, MAX_MESSAGE_BYTES, PART_WINDOW_BYTES, cost_of};
use gantry_shared::wire::flow::Word;
use gantry_shared::wire::message::Blob;
use gantry_types::filter::Filter;
use gantry_types::filter::numbers::Numbers;
use proptest::prelude::*;

use super::*;

mod simulated;

/// A few bytes, about a chunk, about a portion of credit, or any number.
fn some_bytes() -> impl Strategy<Value = u32> {
    prop_oneof![0_u32..300, 65_400_u32..65_700, Just(65_536), Just(262_144), any::<u32>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Daemons, nodes below and the tool in any order, of which the first two keep to no rule.
    #[test]
    fn whatever_comes_nothing_goes_up_without_credit(
        steps in proptest::collection::vec((any::<u8>(), any::<u8>(), some_bytes()), 1..200),
    ) {
        let mut trial = trial::Trial::default();
        for step in steps {
            prop_assert_eq!(trial.step(step), Ok(()));
        }
    }
}

const SESSION: SessionId = SessionId(1);
const DAEMON: DaemonId = DaemonId(5);

/// Node 0 of 7 in a tree of radix 2: nodes 2 and 3 are its children, 6 is below.
struct Node {
    hub: Hub,
    heard: mpsc::UnboundedReceiver<ToDaemon>,
}

impl Node {
    fn new() -> Self {
        let subtree = [0, 2, 3, 6].into_iter().map(NodeId).collect();
        let mut hub = Hub::new(NodeId(0), 2, subtree);
        hub.expect(DAEMON, SESSION);
        let heard = hub.open(DAEMON).unwrap();
        Self { hub, heard }
    }

    fn obey(&mut self, order: ChannelOrder) {
        self.hub.obey(Some(RequestId(1)), order, true, &NodeSet::default());
    }

    fn say(&mut self, what: FromDaemon) -> Result<(), Failure> {
        self.hub.hear(DAEMON, what)
    }

    fn collect(&mut self, operation: u64, filter: Option<Filter>) {
        let of = members(0..7);
        self.obey(ChannelOrder::Collect { session: SESSION, operation, tag: 9, of, filter });
    }

    fn hear(&mut self) -> Vec<ToDaemon> {
        std::iter::from_fn(|| self.heard.try_recv().ok()).collect()
    }

    /// The bytes of the rest of a part that have gone up.
    fn rest(&mut self, part: u32) -> Vec<Vec<u8>> {
        let flow = FlowId::Part { operation: 1, part };
        let rest = |effect| match effect {
            Effect::Say(id, Word::Data { bytes, .. }) if id == flow => bytes.0,
            other => panic!("{other:?}"),
        };
        self.hub.take_effects().into_iter().map(rest).collect()
    }

    /// The notices that have gone up.
    fn up(&mut self) -> Vec<ChannelNotice> {
        let up = |effect| match effect {
            Effect::Up(notice) => Some(notice),
            _ => None,
        };
        self.hub.take_effects().into_iter().filter_map(up).collect()
    }

    fn message(&mut self, bytes: usize) {
        let bytes = Blob(vec![0; bytes]);
        self.obey(ChannelOrder::Message { session: SESSION, to: members(0..7), tag: 1, bytes });
    }

    fn answers(&mut self) -> Vec<Result<Answer, Failure>> {
        let answer = |effect| match effect {
            Effect::Answer(_, reply) => Some(reply),
            _ => None,
        };
        self.hub.take_effects().into_iter().filter_map(answer).collect()
    }

    fn rise(&mut self, node: u32, part: u32, of: MemberSet, bytes: &[u8]) -> bool {
        let (total, bytes) = (bytes.len() as u64, Blob(bytes.to_vec()));
        let notice = ChannelNotice::Part { operation: 1, part, of, total, bytes };
        self.hub.rise(NodeId(node), notice).is_none()
    }
}

fn members(nodes: impl IntoIterator<Item = u32>) -> MemberSet {
    nodes.into_iter().map(|node| Member { node: NodeId(node), daemon: DAEMON }).collect()
}

fn word(flow: DaemonFlow, word: Word) -> FromDaemon {
    FromDaemon::Flow { flow, word }
}

fn rest(round: u64, bytes: usize) -> FromDaemon {
    word(DaemonFlow::Part { tag: 9, round }, Word::data(vec![0; bytes]))
}

/// The words that a daemon hears.
fn told(flow: DaemonFlow, word: Word) -> ToDaemon {
    ToDaemon::Flow { flow, word }
}

fn part(round: u64, total: u64, bytes: usize) -> FromDaemon {
    FromDaemon::Part { tag: 9, round, total, bytes: Blob(vec![0; bytes]) }
}

fn number(value: i64) -> Vec<u8> {
    Numbers::Integers(vec![value]).encode().unwrap()
}

#[test]
fn a_message_is_answered_when_it_is_taken_in_and_waits_for_a_daemon_that_takes_nothing() {
    let mut node = Node::new();
    let mut taken_in = 0;
    loop {
        node.message(MAX_MESSAGE_BYTES);
        match node.answers().as_slice() {
            [Ok(Answer::Done)] => taken_in += 1,
            [] => break,
            other => panic!("{other:?}"),
        }
    }
    let chunks: Vec<_> = node.hear();
    assert_eq!(
        (taken_in, chunks.len()),
        (1, 3),
        "a window has room for three chunks and what stands around them"
    );
    let taken = |cost| word(DaemonFlow::Inbox, Word::Credit(cost));
    node.say(taken(cost_of(CHUNK_BYTES))).unwrap();
    assert_eq!(node.answers(), [Ok(Answer::Done)]);
    assert!(node.say(taken(CHANNEL_WINDOW_BYTES)).is_err(), "more than it received");
    // The hub also answers for messages that the daemon will never receive.
    node.message(MAX_MESSAGE_BYTES);
    node.message(MAX_MESSAGE_BYTES);
    node.hub.closed(DAEMON);
    let answers = node.answers();
    assert!(
        answers.iter().any(|it| matches!(it, Ok(Answer::Undelivered(failed)) if failed[0].0 == DAEMON)),
        "{answers:?}"
    );
    node.message(1);
    assert!(matches!(node.answers().as_slice(), [Ok(Answer::Undelivered(_))]));
}

#[test]
fn who_has_no_credit_is_cut_off() {
    let mut node = Node::new();
    let message = |bytes| word(DaemonFlow::Messages, Word::Data { label: 1, bytes: Blob(vec![0; bytes]) });
    assert!(node.say(message(MAX_MESSAGE_BYTES + 1)).is_err());
    assert!(node.say(message(MAX_MESSAGE_BYTES)).is_ok());
    assert!(
        node.say(message(MAX_MESSAGE_BYTES)).is_err(),
        "the window has no room for what stands around both"
    );
    let cost = cost_of(MAX_MESSAGE_BYTES);
    node.hub.earn(FlowId::Messages(DAEMON), cost);
    assert_eq!(node.hear(), [told(DaemonFlow::Messages, Word::Credit(cost))]);
    assert!(node.say(message(MAX_MESSAGE_BYTES)).is_ok());
    assert!(node.say(message(MAX_MESSAGE_BYTES)).is_err());
    let mut node = Node::new();
    assert!(
        node.say(word(DaemonFlow::Messages, Word::Data { label: 1 << 32, bytes: Blob(vec![]) })).is_err()
    );
    assert!(node.say(word(DaemonFlow::Messages, Word::Credit(1))).is_err(), "the tool gives this credit");
    assert!(node.say(rest(0, 1)).is_err(), "it has not begun");
    assert!(node.say(part(1, 1, 1)).is_err(), "out of order");
    assert!(node.say(part(0, 2, 1)).is_err(), "cut short");
    assert!(node.say(part(0, MAX_PART_BYTES + 1, CHUNK_BYTES)).is_err(), "too long");
    assert!(node.say(part(0, 2 * CHUNK_BYTES as u64, CHUNK_BYTES)).is_ok());
    assert!(node.say(part(0, 2 * CHUNK_BYTES as u64, CHUNK_BYTES)).is_err(), "it has begun");
    assert!(node.say(rest(0, 1)).is_err(), "nobody has asked for more");
    for round in 1.. {
        if node.say(part(round, CHUNK_BYTES as u64, CHUNK_BYTES)).is_err() {
            assert_eq!(round, 3, "a window of contributions that nobody has asked for");
            break;
        }
    }
}

#[test]
fn a_contribution_waits_for_the_operation_and_the_rest_of_it_for_credit() {
    let (mut node, total) = (Node::new(), 2 * CHUNK_BYTES as u64 + 1);
    node.say(part(0, total, CHUNK_BYTES)).unwrap();
    assert_eq!((node.up(), node.hear()), (vec![], vec![]));
    node.collect(1, None);
    assert!(matches!(node.up().as_slice(), [ChannelNotice::Part { of, .. }] if *of == members([0])));
    let early = cost_of(CHUNK_BYTES);
    assert_eq!(node.hear(), [told(DaemonFlow::Early, Word::Credit(early))]);
    node.hub.earn(FlowId::Part { operation: 1, part: DAEMON.0 }, PART_WINDOW_BYTES);
    let flow = DaemonFlow::Part { tag: 9, round: 0 };
    assert_eq!(node.hear(), [told(flow, Word::Credit(PART_WINDOW_BYTES))]);
    node.say(rest(0, CHUNK_BYTES)).unwrap();
    assert_eq!(node.rest(DAEMON.0), [[0; CHUNK_BYTES]]);
    assert!(node.say(rest(0, 2)).is_err(), "it is longer than it said");
    // Cancelled in the middle: the hub drops the rest that is on its way.
    node.obey(ChannelOrder::End { operation: 1 });
    assert_eq!(node.hear(), [told(flow, Word::End)]);
    node.say(rest(0, 1)).unwrap();
    assert_eq!(node.up(), []);
}

#[test]
fn a_late_contribution_is_not_taken_for_the_next_operation() {
    let mut node = Node::new();
    node.collect(1, None);
    node.obey(ChannelOrder::End { operation: 1 });
    node.collect(2, None);
    node.say(part(0, 1, 1)).unwrap();
    assert_eq!(node.up(), []);
    node.say(part(1, 1, 1)).unwrap();
    assert!(matches!(node.up().as_slice(), [ChannelNotice::Part { operation: 2, .. }]));
}

#[test]
fn parts_of_a_subtree_become_one() {
    let mut node = Node::new();
    node.collect(1, Some(Filter::Sum));
    assert!(node.rise(6, FIRST_MADE, members([6]), &number(6)));
    assert!(node.rise(2, FIRST_MADE, members([2]), &number(2)));
    node.say(FromDaemon::Part { tag: 9, round: 0, total: number(1).len() as u64, bytes: Blob(number(1)) })
        .unwrap();
    assert_eq!(node.up(), [], "node 3 is owed");
    let nodes = NodeSet::from_range(NodeId(3)..=NodeId(3));
    node.hub.lose(&nodes, false);
    let up = node.up();
    let [ChannelNotice::Part { of, bytes, part: FIRST_MADE, .. }] = up.as_slice() else { panic!("{up:?}") };
    assert_eq!(*of, members([0, 2, 6]));
    assert_eq!(Numbers::decode(&bytes.0).unwrap(), Some(Numbers::Integers(vec![9])));
}

#[test]
fn time_that_runs_out_brings_up_what_there_is_and_names_the_rest() {
    let mut node = Node::new();
    node.collect(1, Some(Filter::Sum));
    assert!(node.rise(2, FIRST_MADE, members([2]), &number(2)));
    node.obey(ChannelOrder::Hurry { operation: 1, patience_ms: 10 });
    let effects = node.hub.take_effects();
    assert!(matches!(&effects[0], Effect::Up(ChannelNotice::Missing { of, .. }) if *of == members([0])));
    assert!(
        matches!(&effects[1], Effect::Later(Later::Expire(1), after) if *after == Duration::from_millis(20))
    );
    node.hub.due(Later::Expire(1));
    let up = node.up();
    assert!(
        up.iter().any(|it| matches!(it, ChannelNotice::Missing { of, .. } if *of == members([3, 6]))),
        "{up:?}"
    );
    assert!(
        up.iter().any(|it| matches!(it, ChannelNotice::Part { of, .. } if *of == members([2]))),
        "{up:?}"
    );
}

#[test]
fn those_below_that_have_left_are_answered_for() {
    let mut node = Node::new();
    let left = NodeSet::from_range(NodeId(3)..=NodeId(3));
    let of = members([0, 3]);
    let order = ChannelOrder::Collect { session: SESSION, operation: 1, tag: 9, of, filter: None };
    node.hub.obey(None, order, true, &left);
    let up = node.up();
    assert!(matches!(up.as_slice(), [ChannelNotice::Missing { of, .. }] if *of == members([3])), "{up:?}");
    node.hub.lose(&left, true);
    assert_eq!(node.up(), [], "once");
}

#[test]
fn a_daemon_that_serves_is_given_all_parts_and_when_it_ends_they_go_up_as_they_are() {
    for fails in [false, true] {
        let mut node = Node::new();
        node.say(FromDaemon::Serve { filter: "own".to_owned() }).unwrap();
        let of = members([0, 2]);
        let filter = Some(Filter::Custom("own".to_owned()));
        node.obey(ChannelOrder::Collect { session: SESSION, operation: 1, tag: 9, of, filter });
        node.say(part(0, 3, 3)).unwrap();
        assert!(node.rise(2, DAEMON.0, members([2]), b"two"));
        let heard = node.hear();
        let Some(ToDaemon::Merge { operation, last: true, .. }) = heard.last() else { panic!("{heard:?}") };
        assert_eq!(node.up(), []);
        if fails {
            node.hub.closed(DAEMON);
            let up = node.up();
            assert!(
                up.iter().all(|it| matches!(it, ChannelNotice::Part { of, .. } if of.len() == 1))
                    && up.len() == 2,
                "{up:?}"
            );
        } else {
            node.say(FromDaemon::Merged {
                operation: *operation,
                bytes: Ok(Blob(b"one".to_vec())),
                last: true,
            })
            .unwrap();
            let up = node.up();
            assert!(
                matches!(up.as_slice(), [ChannelNotice::Part { of, bytes, .. }] if *of == members([0, 2]) && bytes.0 == b"one"),
                "{up:?}"
            );
        }
    }
}

#[test]
fn a_channel_is_opened_once() {
    let mut node = Node::new();
    assert!(node.hub.open(DAEMON).is_err());
    assert!(node.hub.open(DaemonId(6)).is_err());
}

#[test]
fn a_contribution_that_was_given_up_is_missing_and_the_next_one_is_the_next_ones() {
    let mut node = Node::new();
    node.say(part(0, 2 * CHUNK_BYTES as u64, CHUNK_BYTES)).unwrap();
    node.say(word(DaemonFlow::Part { tag: 9, round: 0 }, Word::End)).unwrap();
    node.say(part(1, 1, 1)).unwrap();
    node.collect(1, None);
    assert!(matches!(node.up().as_slice(), [ChannelNotice::Missing { of, .. }] if *of == members([0])));
    node.collect(2, None);
    assert!(matches!(node.up().as_slice(), [ChannelNotice::Part { operation: 2, .. }]));
}

/// A contribution to a sum that is too long to merge on the relay's thread.
fn many_numbers(value: i64) -> Vec<u8> {
    Numbers::Integers(vec![value; 60_000]).encode().unwrap()
}

fn batch_of(effects: Vec<Effect>) -> Batch {
    match effects.into_iter().next() {
        Some(Effect::Merge(1, batch)) => batch,
        other => panic!("{other:?}"),
    }
}

#[test]
fn large_parts_are_merged_elsewhere_while_orders_are_obeyed() {
    let mut node = Node::new();
    node.collect(1, Some(Filter::Sum));
    assert!(node.rise(6, FIRST_MADE, members([6]), &many_numbers(1 << 40)));
    let batch = batch_of(node.hub.take_effects());
    node.message(1000);
    assert_eq!(node.answers(), [Ok(Answer::Done)]);
    // Parts that arrive meanwhile wait, small or large. The hub requests no more of a large part.
    assert!(node.rise(2, FIRST_MADE, members([2]), &many_numbers(1 << 41)));
    let (own, wrong) = (many_numbers(1 << 42), number(1));
    let notice = ChannelNotice::Part {
        operation: 1,
        part: FIRST_MADE,
        of: members([3]),
        total: own.len() as u64,
        bytes: Blob(own[..CHUNK_BYTES].to_vec()),
    };
    assert!(node.hub.rise(NodeId(3), notice).is_none());
    node.say(FromDaemon::Part { tag: 9, round: 0, total: wrong.len() as u64, bytes: Blob(wrong) }).unwrap();
    assert!(node.hub.take_effects().is_empty());
    node.hub.batch_merged(1, batch.merge());
    let second = batch_of(node.hub.take_effects());
    node.hub.batch_merged(1, second.merge());
    let effects = node.hub.take_effects();
    assert!(
        matches!(&effects[..], [
            Effect::Up(ChannelNotice::Missing { of, .. }),
            Effect::Credit(NodeId(3), FlowId::Part { operation: 1, part: FIRST_MADE }, PART_WINDOW_BYTES),
        ] if *of == members([0])),
        "{effects:?}"
    );
    node.hub.lose(&NodeSet::from_range(NodeId(3)..=NodeId(3)), false);
    let last = batch_of(node.hub.take_effects());
    node.hub.batch_merged(1, last.merge());
    let up = node.up();
    let [ChannelNotice::Part { of, total, bytes, .. }] = up.as_slice() else { panic!("{up:?}") };
    assert_eq!((of, bytes.0.len()), (&members([2, 6]), CHUNK_BYTES));
    let (mut sum, bytes) = (bytes.0.clone(), u32::try_from(*total).unwrap());
    node.hub.earn(FlowId::Part { operation: 1, part: FIRST_MADE }, bytes);
    sum.extend(node.rest(FIRST_MADE).into_iter().flatten());
    assert_eq!(Numbers::decode(&sum).unwrap(), Some(Numbers::Integers(vec![3 << 40; 60_000])));
}

#[test]
fn what_is_merged_for_an_operation_that_has_ended_is_nobodys() {
    let mut node = Node::new();
    node.collect(1, Some(Filter::Sum));
    node.rise(6, FIRST_MADE, members([6]), &many_numbers(1));
    node.rise(6, FIRST_MADE, members([6]), &many_numbers(1 << 40));
    let batch = batch_of(node.hub.take_effects());
    node.obey(ChannelOrder::End { operation: 1 });
    node.hub.batch_merged(1, batch.merge());
    assert!(node.hub.take_effects().is_empty());
}
