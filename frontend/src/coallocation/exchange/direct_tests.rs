//! Bridges and lanes, with agents that the test plays.

use gantry_types::runtime::Peer;

use super::super::lanes::AT_ONE_RANK;
use super::*;

const A: Agent = (SubjobId(0), NodeId(0));
const B: Agent = (SubjobId(1), NodeId(0));

/// Two agents that listen, A where its own machine alone reaches it.
fn two() -> Direct {
    let mut direct = Direct::default();
    direct.listening(A.0, vec![vec!["127.0.0.1:1".parse().unwrap()]]);
    direct.listening(B.0, vec![vec!["10.0.0.2:2".parse().unwrap()]]);
    direct
}

fn course() -> (Course, Ends) {
    let course = Course { from: (A.0, Rank(0)), scope: Scope::Job, to: (B.0, Rank(3)) };
    let address = |subjob, rank| Peer { subjob, rank: Rank(rank) };
    let ends = Ends { from: (A.1, 7), to: (B.1, 9), receiver: address(1, 3), sender: address(0, 0) };
    (course, ends)
}

fn relay(direct: &mut Direct, bytes: usize) -> Option<Said> {
    let (course, ends) = course();
    direct.relayed(course, ends, bytes, true)
}

/// A bridge from A to B that stands.
fn bridged() -> Direct {
    let mut direct = two();
    assert_eq!(relay(&mut direct, 70_000).map(|(agent, _)| agent), Some(B));
    assert!(direct.take(B, BridgeNotice::Awaits { bridge: 1 }).is_some());
    for end in [A, B] {
        assert_eq!(direct.take(end, BridgeNotice::Stands { bridge: 1 }), None);
    }
    direct
}

fn lane(lane: LaneNumber) -> Option<Said> {
    let (_, ends) = course();
    Some((A, BridgeOrder::Lane { lane, bridge: 1, link: 7, scope: Scope::Job, peer: ends.receiver }))
}

#[test]
fn a_few_small_messages_are_passed_on_and_no_more() {
    let mut direct = two();
    for _ in 1..LANE_PIECES {
        assert_eq!(relay(&mut direct, 100), None);
    }
    // Who can be reached by its own machine alone dials.
    let said = relay(&mut direct, 100).unwrap();
    assert!(matches!(said, (B, BridgeOrder::Await { bridge: 1, .. })), "{said:?}");
    assert_eq!(relay(&mut direct, 100), None, "asked twice");
    // Only who was asked may answer.
    assert_eq!(direct.take(A, BridgeNotice::Awaits { bridge: 1 }), None);
    let said = direct.take(B, BridgeNotice::Awaits { bridge: 1 }).unwrap();
    assert!(
        matches!(&said, (A, BridgeOrder::Dial { bridge: 1, addresses, .. }) if addresses[0].port() == 2),
        "{said:?}"
    );
    assert_eq!(direct.take(A, BridgeNotice::Stands { bridge: 1 }), None);
    assert_eq!(relay(&mut direct, 100), None, "one end does not know it yet");
    assert_eq!(direct.take(B, BridgeNotice::Stands { bridge: 1 }), None);
    let (course, ends) = course();
    assert_eq!(direct.relayed(course, ends, 100, false), None, "something waits for the receiver");
    assert_eq!(relay(&mut direct, 100), lane(0));
    assert_eq!(relay(&mut direct, 100), None, "a second lane");
    let bytes = u64::from(LANE_PIECES + 5) * 100;
    assert_eq!(direct.traffic(), Traffic { relayed_bytes: bytes, direct_links: 1, ..Traffic::default() });
}

#[test]
fn who_cannot_be_reached_dials_itself_and_then_it_is_left_at_that() {
    let mut direct = two();
    relay(&mut direct, 70_000);
    direct.take(B, BridgeNotice::Awaits { bridge: 1 });
    let failed = || BridgeNotice::Failed { bridge: 1, reason: "refused".to_owned() };
    assert_eq!(direct.take(B, failed()), None, "it was not the one to dial");
    let said = direct.take(A, failed()).unwrap();
    assert!(matches!(said, (A, BridgeOrder::Await { bridge: 1, .. })), "{said:?}");
    let said = direct.take(A, BridgeNotice::Awaits { bridge: 1 }).unwrap();
    assert!(matches!(said, (B, BridgeOrder::Dial { bridge: 1, .. })), "{said:?}");
    assert_eq!(direct.take(B, failed()), None);
    assert_eq!(relay(&mut direct, 70_000), None);
    assert_eq!(direct.traffic().failed_links, 1);
}

#[test]
fn an_agent_that_nobody_can_dial_dials_or_is_left_alone() {
    let mut direct = two();
    direct.listening(B.0, vec![Vec::new()]);
    let said = relay(&mut direct, 70_000).unwrap();
    assert!(matches!(said, (A, BridgeOrder::Await { .. })), "{said:?}");
    let mut direct = Direct::default();
    assert_eq!(relay(&mut direct, 70_000), None);
    assert_eq!(direct.traffic().failed_links, 1);
}

#[test]
fn ranks_of_one_node_need_no_bridge() {
    let mut direct = two();
    let (course, ends) = course();
    let (course, ends) = (Course { to: (A.0, Rank(1)), ..course }, Ends { to: (A.1, 8), ..ends });
    let said = direct.relayed(course, ends, 70_000, true).unwrap();
    assert!(matches!(said, (A, BridgeOrder::Lane { bridge: OWN_BRIDGE, link: 7, .. })), "{said:?}");
}

#[test]
fn the_marker_goes_where_the_lane_ends_and_only_its_sender_has_it() {
    let mut direct = bridged();
    assert_eq!(relay(&mut direct, 1), lane(0));
    let (course, ends) = course();
    assert_eq!(direct.marked(B.0, ends.to, 0), None);
    assert_eq!(direct.marked(A.0, ends.from, 1), None);
    let word = LinkWord::Lane { lane: 0, bridge: 1, scope: Scope::Job, peer: ends.sender };
    assert_eq!(direct.marked(A.0, ends.from, 0), Some((course.to, ends.to, word)));
}

#[test]
fn the_sender_is_told_when_nobody_is_at_the_end_of_its_lane() {
    let mut direct = bridged();
    relay(&mut direct, 1);
    let (_, ends) = course();
    assert_eq!(direct.link_ended(B.0, Rank(3), ends.to), [(A, BridgeOrder::LaneEnded { lane: 0 })]);
    assert_eq!(direct.marked(A.0, ends.from, 0), None);
    // Another process there gets another one.
    assert_eq!(relay(&mut direct, 1), lane(1));
    assert_eq!(direct.link_ended(A.0, Rank(0), ends.from), []);
}

#[test]
fn what_has_come_by_a_broken_bridge_is_told_to_who_has_sent_it() {
    let mut direct = bridged();
    relay(&mut direct, 1);
    let broken = |come| BridgeNotice::Broken { bridge: 1, come };
    let to = |agent, come| Some((agent, BridgeOrder::Broken { bridge: 1, come }));
    // A has sent, and knows nothing of what has come.
    assert_eq!(direct.take(A, broken(vec![])), to(B, vec![]));
    assert_eq!(direct.take(B, broken(vec![(0, 500), (77, 1)])), to(A, vec![(0, 500)]));
    assert_eq!(relay(&mut direct, 70_000), None, "by a bridge that has broken");
    let traffic = direct.traffic();
    assert_eq!((traffic.direct_links, traffic.broken_links), (1, 1));
    // One that ends when nothing goes on it has not broken.
    let mut direct = bridged();
    assert_eq!(direct.take(A, broken(vec![])), to(B, vec![]));
    assert_eq!(direct.traffic().broken_links, 0);
}

#[test]
fn one_rank_is_the_end_of_so_many_lanes_and_no_more() {
    let mut direct = bridged();
    let (course, ends) = course();
    let lanes = (0..100).filter(|rank| {
        let course = Course { from: (A.0, Rank(*rank)), ..course };
        direct.relayed(course, Ends { from: (A.1, *rank), ..ends }, 70_000, true).is_some()
    });
    assert_eq!(lanes.count(), AT_ONE_RANK);
}
