//! A rendezvous of 16,384 nodes in one process. Counts the bytes that arrive and that each node gets.

use gantry_types::rendezvous::codec::check;
use gantry_types::rendezvous::{Limits, Name};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use super::*;

/// One rank on each of many nodes, and what was sent to them.
struct Job {
    place: Place,
    outlet: Outlet,
    // Keeps the channel open: the outlet has only a weak sender.
    _deliveries: UnboundedSender<Message>,
    sent: UnboundedReceiver<Message>,
}

fn item_of(member: u32) -> Vec<u8> {
    member.to_be_bytes().repeat(usize::try_from(member % 7).unwrap())
}

impl Job {
    fn new(members: u32) -> Self {
        let (deliveries, sent) = mpsc::unbounded_channel();
        let outlet = Outlet { app: "3kx9w0fz".parse().unwrap(), deliveries: deliveries.downgrade() };
        let place = Place::new(Gathering::new(1, members, members).unwrap());
        Self { place, outlet, _deliveries: deliveries, sent }
    }

    fn wait(&mut self, node: u32, want: Want) {
        let of = Gate { resource: Resource::Job, expected: None };
        self.place.wait(Key { of, want }, &self.outlet, NodeId(node));
    }

    /// Registers the item, in pieces if it has bytes.
    fn register(&mut self, member: u32) {
        let item = item_of(member);
        let all_here = self.place.put(member, item.len() as u64, u64::MAX).unwrap();
        assert_eq!(all_here, item.is_empty());
        for piece in item.chunks(5) {
            self.place.piece(member, piece.to_vec()).unwrap_or(Ok(())).unwrap();
        }
    }

    /// What was sent since the last call: the number of nodes, what it was for, and the bytes or the refusal.
    fn sent(&mut self) -> Vec<(u64, Want, Result<Vec<u8>, String>)> {
        let next = |message| {
            let Message::Deliver(delivery) = message else { unreachable!("nothing else is said") };
            let said = delivery.outcome.map(|content| content.to_blob().0).map_err(|why| why.to_string());
            (delivery.nodes.len(), delivery.key.want, said)
        };
        std::iter::from_fn(|| self.sent.try_recv().ok()).map(next).collect()
    }
}

#[test]
fn sixteen_thousand_nodes_get_their_neighbours_items_and_nothing_else_and_all_at_once_only_in_one_piece() {
    const NODES: u32 = 16_384;
    let mut job = Job::new(NODES);
    let neighbour = |node: u32| (node + 1) % NODES;
    (0..NODES).for_each(|node| job.wait(node, Want::Item(neighbour(node))));
    (0..NODES).for_each(|node| job.wait(node, Want::Complete));
    (0..8).for_each(|node| job.wait(node * 100, Want::All));
    assert!(job.sent().is_empty());
    // Not in the order of the ranks.
    for at in 0..NODES {
        let member = at.wrapping_mul(40_503) % NODES;
        job.register(member);
        let (alone, rest): (Vec<_>, Vec<_>) =
            job.sent().into_iter().partition(|(_, want, _)| matches!(want, Want::Item(_)));
        let own = (1, Want::Item(member), Ok(item_of(member)));
        assert!(alone == [own], "as soon as it is there, and nothing else of {member}");
        assert_eq!(rest.len(), if at == NODES - 1 { 2 } else { 0 });
        for (nodes, want, said) in rest {
            let said = said.unwrap();
            match want {
                Want::Complete => assert_eq!((nodes, said.len()), (u64::from(NODES), 0)),
                Want::All => {
                    let data: Vec<u8> =
                        (0..NODES).fold(format!("{NODES} ").into_bytes(), |mut data, member| {
                            let item = item_of(member);
                            data.extend_from_slice(format!("{} ", item.len()).as_bytes());
                            data.extend_from_slice(&item);
                            data
                        });
                    assert!(nodes == 8 && said == data, "in the order of ranks");
                    assert_eq!(check(1, &said, Limits::default()), Ok(u64::from(NODES)));
                }
                Want::Item(member) => panic!("item {member} once more"),
            }
        }
    }
}

#[test]
fn who_comes_late_has_it_at_once_and_who_is_outside_hears_that() {
    let mut job = Job::new(3);
    (0..3).for_each(|member| job.register(member));
    job.wait(7, Want::All);
    job.wait(7, Want::Item(2));
    job.wait(7, Want::Complete);
    let sent = job.sent();
    assert_eq!(sent[0], (1, Want::All, Ok([&b"3 0 4 "[..], &item_of(1), b"8 ", &item_of(2)].concat())));
    assert_eq!(sent[1..], [(1, Want::Item(2), Ok(item_of(2))), (1, Want::Complete, Ok(Vec::new()))]);
    job.wait(7, Want::Item(3));
    assert!(matches!(job.sent().as_slice(), [(1, Want::Item(3), Err(why))] if why.contains("item of 3")));
}

#[test]
fn all_who_wait_are_told_of_a_death_and_what_is_there_stays() {
    let mut job = Job::new(3);
    job.register(0);
    job.wait(1, Want::All);
    job.wait(2, Want::Complete);
    job.wait(2, Want::Item(2));
    assert!(job.place.end(1, "was killed"), "it is broken by that");
    let sent = job.sent();
    assert_eq!(sent.len(), 3);
    for (_, want, said) in sent {
        assert!(
            said.clone().is_err_and(|why| why.contains("rank 1") && why.contains("was killed")),
            "{want:?} {said:?}"
        );
    }
    job.wait(5, Want::All);
    job.wait(5, Want::Item(0));
    let late = job.sent();
    assert!(late[0].2.is_err() && late[1].2 == Ok(item_of(0)), "{late:?}");
    assert!(job.place.put(2, 1, u64::MAX).is_err() && !job.place.end(2, "too"), "it is broken once");
}

#[test]
fn a_second_registration_and_pieces_that_nobody_announced_change_nothing() {
    let mut job = Job::new(2);
    job.register(1);
    let again = job.place.put(1, 3, u64::MAX).unwrap_err();
    assert!(to_refusal(again).to_string().contains("rank 1"));
    assert!(job.place.piece(1, b"abc".to_vec()).is_none() && job.place.piece(0, b"abc".to_vec()).is_none());
    job.wait(0, Want::Item(1));
    assert_eq!(job.sent(), [(1, Want::Item(1), Ok(item_of(1)))]);
    assert_eq!(job.place.status(Resource::Named("x".parse::<Name>().unwrap()), None).registered, 1);
}
