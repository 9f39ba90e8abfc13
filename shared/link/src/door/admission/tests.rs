use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const OWN: u32 = 1000;
const OTHER: u32 = 1001;
const MILLISECOND: Duration = Duration::from_millis(1);

fn host(last: u8) -> Source {
    Source::of([10, 0, 0, last].into())
}

/// A full door of these peers, which arrived one per millisecond in this order.
struct Table {
    door: Admission,
    start: Instant,
    now: Instant,
    ids: Vec<PeerId>,
}

impl Table {
    fn new(peers: &[(Source, Stage)]) -> Self {
        let start = Instant::now();
        let door = Admission::new(Limits::with_places(peers.len()), Some(OWN));
        let mut table = Self { door, start, now: start, ids: Vec::new() };
        for (source, stage) in peers {
            let (id, evicted) = table.door.admit(*source, table.now).unwrap();
            assert_eq!(evicted, None);
            assert!(table.door.reach(id, *stage, table.now));
            table.ids.push(id);
            table.now += MILLISECOND;
        }
        table
    }

    fn victim(&self) -> Option<usize> {
        match self.door.room(self.now) {
            Room::Evicting(victim) => self.ids.iter().position(|id| *id == victim),
            Room::Free | Room::Full(_) => None,
        }
    }
}

/// Checks which peer is evicted for the next one; none: all keep their places.
fn check(peers: &[(Source, Stage)], expected: Option<usize>) {
    assert_eq!(Table::new(peers).victim(), expected, "{peers:?}");
}

#[test]
fn the_oldest_unproven_peer_gives_way() {
    use Stage::{Begun, Opened, Proven, Silent};
    let a = host(1);
    check(&[(a, Silent), (a, Silent)], Some(0));
    check(&[(a, Proven), (a, Silent), (a, Silent)], Some(1));
    // A peer that sends single bytes counts like a silent one.
    check(&[(a, Begun), (a, Silent)], Some(0));
    check(&[(a, Opened), (a, Begun)], Some(1));
    check(&[(a, Opened), (a, Proven)], None);
    check(&[(Source::Brought, Silent), (a, Silent)], Some(1));
    check(&[(Source::Brought, Silent)], None);
}

#[test]
fn the_source_with_the_most_unproven_peers_gives_way() {
    use Stage::{Proven, Silent};
    let (a, b) = (host(1), host(2));
    check(&[(a, Silent), (b, Silent), (b, Silent)], Some(1));
    // Proven peers do not count against others of the same address.
    check(&[(a, Silent), (b, Proven), (b, Proven), (b, Silent), (a, Silent)], Some(0));
    check(&[(b, Silent), (a, Silent)], Some(0));
}

#[test]
fn other_users_of_this_machine_give_way_first() {
    use Stage::{Opened, Silent};
    let (own, root, other) = (Source::User(OWN), Source::User(0), Source::User(OTHER));
    check(&[(own, Silent), (own, Silent), (own, Silent), (other, Silent)], Some(3));
    check(&[(root, Silent), (other, Silent)], Some(1));
    check(&[(host(1), Silent), (own, Silent), (own, Silent)], Some(1));
    check(&[(other, Opened), (own, Silent)], Some(1));
}

#[test]
fn a_peer_that_stalls_after_its_opening_gives_way_in_time() {
    let mut table = Table::new(&[(host(1), Stage::Opened), (host(1), Stage::Opened)]);
    let stalls = table.start + STALL;
    assert_eq!(table.door.room(table.now), Room::Full(Some(stalls)));
    assert_eq!(table.door.admit(host(1), table.now), None);
    table.now = stalls;
    assert_eq!(table.victim(), Some(0));
    assert!(table.door.reach(table.ids[0], Stage::Proven, table.now));
    assert_eq!(table.victim(), None);
}

#[test]
fn strangers_are_counted_once_each() {
    let mut table =
        Table::new(&[(host(1), Stage::Silent), (host(1), Stage::Begun), (host(2), Stage::Proven)]);
    table.door.judge(table.ids[0], Reason::Garbage);
    table.door.judge(table.ids[0], Reason::WrongSecret);
    for _ in 0..2 {
        assert!(table.door.admit(host(3), table.now).is_some());
        table.now += MILLISECOND;
    }
    let seen = table.door.strangers();
    assert_eq!(
        [Reason::Garbage, Reason::WrongSecret, Reason::Unfinished].map(|reason| seen.total_of(reason)),
        [1, 0, 1]
    );
    assert_eq!((seen.total(), seen.evicted()), (2, 2));
    assert!(!table.door.reach(table.ids[0], Stage::Proven, table.now), "it has given way");
}

#[test]
fn without_descriptors_one_peer_gives_way_although_places_are_free() {
    let mut table = Table::new(&[(host(1), Stage::Silent), (host(1), Stage::Proven)]);
    table.door.set_places(10);
    assert_eq!(table.door.room(table.now), Room::Free);
    assert_eq!(table.door.shed(table.now), Some(table.ids[0]));
    assert_eq!(table.door.shed(table.now), None);
    assert_eq!(table.door.peers.len(), 1);
}

#[derive(Debug, Clone)]
enum Move {
    Arrive(usize),
    Reach(usize, Stage),
    Leave(usize),
    Shed,
    Wait(u64),
}

fn arb_move() -> impl Strategy<Value = Move> {
    use Stage::{Begun, Opened, Proven, Silent};
    prop_oneof![
        4 => (0..4_usize).prop_map(Move::Arrive),
        4 => (0..64_usize, prop::sample::select(vec![Silent, Begun, Opened, Proven]))
            .prop_map(|(at, stage)| Move::Reach(at, stage)),
        1 => (0..64_usize).prop_map(Move::Leave),
        1 => Just(Move::Shed),
        1 => (0..5000_u64).prop_map(Move::Wait),
    ]
}

/// An independent form of the rules, which compares every pair of peers.
#[derive(Debug, Default)]
struct Model {
    peers: Vec<(PeerId, Source, Stage, Instant)>,
    gone: usize,
}

impl Model {
    fn may_give_way(&self, at: usize, now: Instant) -> bool {
        let unproven = |stage| matches!(stage, Stage::Silent | Stage::Begun);
        match self.peers[at] {
            (_, _, stage, _) if unproven(stage) => true,
            (_, _, Stage::Opened, since) => {
                now >= since + STALL && !self.peers.iter().any(|(_, _, stage, _)| unproven(*stage))
            }
            _ => false,
        }
    }

    /// Whether no other peer should be evicted rather than this one.
    fn is_right(&self, victim: PeerId, now: Instant) -> bool {
        let unproven = |source| {
            let holds = |peer: &&(PeerId, Source, Stage, Instant)| peer.1 == source && peer.2 < Stage::Opened;
            self.peers.iter().filter(holds).count()
        };
        let Some(at) = self.peers.iter().position(|peer| peer.0 == victim) else { return false };
        let (_, source, _, since) = self.peers[at];
        let better = |(_, theirs, _, their_since): &(PeerId, Source, Stage, Instant)| {
            let foreign = |source| source == Source::User(OTHER);
            let fair = (foreign(*theirs), unproven(*theirs)).cmp(&(foreign(source), unproven(source)));
            match self.peers[at].2 {
                Stage::Opened => *their_since < since,
                _ => fair.is_gt() || fair.is_eq() && *their_since < since,
            }
        };
        self.may_give_way(at, now)
            && !(0..self.peers.len()).any(|other| self.may_give_way(other, now) && better(&self.peers[other]))
    }
}

proptest! {
    #[test]
    fn the_door_follows_its_rules(places in 1..6_usize, moves in prop::collection::vec(arb_move(), 1..80)) {
        let sources = [host(1), host(2), Source::User(OWN), Source::User(OTHER)];
        let mut now = Instant::now();
        let mut door = Admission::new(Limits::with_places(places), Some(OWN));
        let mut model = Model::default();
        let mut known = BTreeSet::new();
        for step in moves {
            now += MILLISECOND;
            match step {
                Move::Arrive(source) => {
                    let free = model.peers.len() < places;
                    let any = (0..model.peers.len()).any(|at| model.may_give_way(at, now));
                    match door.admit(sources[source], now) {
                        Some((id, evicted)) => {
                            prop_assert!(known.insert(id), "a number is used once");
                            prop_assert_eq!(evicted.is_none(), free);
                            if let Some(evicted) = evicted {
                                prop_assert!(model.is_right(evicted, now), "{evicted:?} {model:?}");
                                model.peers.retain(|peer| peer.0 != evicted);
                                model.gone += 1;
                            }
                            model.peers.push((id, sources[source], Stage::Silent, now));
                        }
                        None => prop_assert!(!free && !any, "{model:?}"),
                    }
                }
                Move::Reach(at, stage) if at < model.peers.len() => {
                    prop_assert!(door.reach(model.peers[at].0, stage, now));
                    if model.peers[at].2 != stage {
                        (model.peers[at].2, model.peers[at].3) = (stage, now);
                    }
                }
                Move::Leave(at) if at < model.peers.len() => door.leave(model.peers.remove(at).0),
                Move::Shed => match door.shed(now) {
                    Some(evicted) => {
                        prop_assert!(model.is_right(evicted, now), "{evicted:?} {model:?}");
                        model.peers.retain(|peer| peer.0 != evicted);
                        model.gone += 1;
                    }
                    None => prop_assert!((0..model.peers.len()).all(|at| !model.may_give_way(at, now))),
                },
                Move::Wait(millis) => now += Duration::from_millis(millis),
                Move::Reach(..) | Move::Leave(_) => {}
            }
            prop_assert!(door.peers.len() <= places);
            prop_assert_eq!(door.peers.len(), model.peers.len());
            prop_assert_eq!(door.strangers().evicted(), model.gone as u64);
        }
    }
}
