use proptest::prelude::*;

use super::*;

const ROOM: u64 = 1000;

fn item(bytes: &[u8]) -> Arc<Vec<u8>> {
    Arc::new(bytes.to_vec())
}

fn text_of(gathering: &Gathering) -> Option<Vec<u8>> {
    let parts = gathering.aggregate()?;
    let mut bytes = Vec::new();
    write_parts(&mut bytes, &parts).unwrap();
    assert_eq!(bytes.len() as u64, count_bytes(&parts));
    Some(bytes)
}

/// Registers a member. Returns whether that completes the rendezvous.
fn put(gathering: &mut Gathering, member: u32, bytes: &[u8]) -> Result<bool, Refused> {
    gathering.announce(member, bytes.len() as u64, ROOM)?;
    gathering.arrive(member, item(bytes))
}

/// A possible event.
#[derive(Debug, Clone)]
enum Happening {
    Announce(u32, Vec<u8>),
    Arrive(u32),
    End(u32),
    Lose(u32),
}

fn any_happening() -> impl Strategy<Value = Happening> {
    let member = 0_u32..7;
    let bytes = prop::collection::vec(any::<u8>(), 0..5);
    prop_oneof![
        4 => (member.clone(), bytes).prop_map(|(member, bytes)| Happening::Announce(member, bytes)),
        4 => member.clone().prop_map(Happening::Arrive),
        1 => member.clone().prop_map(Happening::End),
        1 => member.prop_map(Happening::Lose),
    ]
}

/// The same as a plain list that is scanned each time.
struct Obvious {
    expected: usize,
    members: Vec<(Vec<u8>, &'static str)>,
    broken: Option<u32>,
}

impl Obvious {
    fn count(&self, state: &str) -> usize {
        self.members.iter().filter(|(_, is)| *is == state).count()
    }

    fn end(&mut self, member: u32) {
        let Some((_, state)) = self.members.get_mut(member as usize).filter(|(_, is)| *is == "silent") else {
            return;
        };
        *state = "ended";
        let enough = self.members.len() - self.count("ended") >= self.expected;
        if !enough && self.broken.is_none() && self.count("here") < self.expected {
            self.broken = Some(member);
        }
    }

    /// Whether the event was accepted.
    fn happen(&mut self, happening: &Happening) -> bool {
        match happening {
            Happening::Announce(member, bytes) => {
                let full = self.count("here") + self.count("coming") >= self.expected;
                let broken = self.broken.is_some();
                let slot = self.members.get_mut(*member as usize).filter(|(_, is)| *is == "silent");
                let Some(slot) = slot.filter(|_| !full && !broken) else { return false };
                *slot = (bytes.clone(), "coming");
                true
            }
            Happening::Arrive(member) => {
                let slot = self.members.get_mut(*member as usize).filter(|(_, is)| *is == "coming");
                slot.map(|(_, state)| *state = "here").is_some()
            }
            Happening::End(member) => {
                self.end(*member);
                true
            }
            Happening::Lose(member) => {
                if let Some((_, state)) =
                    self.members.get_mut(*member as usize).filter(|(_, is)| *is == "coming")
                {
                    *state = "silent";
                }
                self.end(*member);
                true
            }
        }
    }

    fn aggregate(&self) -> Option<Vec<u8>> {
        let here: Vec<_> = self.members.iter().filter(|(_, is)| *is == "here").collect();
        let mut bytes = format!("{} ", here.len()).into_bytes();
        for (item, _) in &here {
            bytes.extend(format!("{} ", item.len()).into_bytes());
            bytes.extend(item);
        }
        (here.len() == self.expected).then_some(bytes)
    }
}

proptest! {
    #[test]
    fn agrees_with_an_obvious_list(
        members in 1_usize..6,
        expected in 1_usize..6,
        happenings in prop::collection::vec(any_happening(), 0..60),
    ) {
        let expected = expected.min(members);
        let of = |number: usize| u32::try_from(number).unwrap();
        let mut gathering = Gathering::new(1, of(members), of(expected)).unwrap();
        let mut obvious =
            Obvious { expected, members: vec![(Vec::new(), "silent"); members], broken: None };
        for happening in happenings {
            let accepted = match &happening {
                Happening::Announce(member, bytes) => {
                    gathering.announce(*member, bytes.len() as u64, ROOM).is_ok()
                }
                Happening::Arrive(member) => {
                    let bytes = obvious.members.get(*member as usize).map(|(bytes, _)| bytes.clone());
                    gathering.arrive(*member, item(&bytes.unwrap_or_default())).is_ok()
                }
                Happening::End(member) => {
                    gathering.end(*member, "ended");
                    true
                }
                Happening::Lose(member) => {
                    gathering.lose(*member, "was lost");
                    true
                }
            };
            prop_assert_eq!(accepted, obvious.happen(&happening), "{:?}", happening);
            prop_assert_eq!(gathering.registered() as usize, obvious.count("here"));
            prop_assert_eq!(gathering.broken().map(|broken| broken.member), obvious.broken);
            prop_assert_eq!(text_of(&gathering), obvious.aggregate());
            let held = obvious.members.iter().filter(|(_, is)| matches!(*is, "here" | "coming"));
            prop_assert_eq!(gathering.bytes(), held.map(|(bytes, _)| bytes.len() as u64).sum::<u64>());
        }
    }
}

#[test]
fn the_last_one_completes_it_whatever_the_order() {
    let mut gathering = Gathering::new(1, 2, 2).unwrap();
    assert_eq!(put(&mut gathering, 1, b"xyz"), Ok(false));
    assert_eq!((gathering.standing(), text_of(&gathering)), (Standing::Open, None));
    assert_eq!(put(&mut gathering, 0, b"ab"), Ok(true));
    assert_eq!((gathering.standing(), gathering.bytes()), (Standing::Complete, 5));
    assert_eq!(text_of(&gathering).unwrap(), b"2 2 ab3 xyz");
    assert!(!gathering.end(0, "ended") && gathering.is_complete());
}

#[test]
fn a_level_above_puts_aggregates_together_as_they_are() {
    let mut above = Gathering::new(2, 2, 2).unwrap();
    put(&mut above, 0, b"2 2 ab3 xyz").unwrap();
    put(&mut above, 1, b"2 2 ab3 xyz").unwrap();
    assert_eq!(text_of(&above).unwrap(), b"2 2 2 ab3 xyz2 2 ab3 xyz");
}

#[test]
fn malformed_data_of_the_level_below_breaks_a_level_above() {
    let mut above = Gathering::new(2, 2, 2).unwrap();
    let refused = put(&mut above, 1, b"2 2 ab3 xy").unwrap_err();
    assert!(matches!(refused, Refused::Malformed { member: 1, .. }), "{refused}");
    assert_eq!(above.broken().map(|broken| broken.member), Some(1));
    assert!(above.broken().unwrap().to_string().contains("subjob 1 registered data that is not"));
    assert_eq!(above.bytes(), 0);
}

#[test]
fn refusals_name_the_member() {
    let mut gathering = Gathering::new(1, 3, 2).unwrap();
    put(&mut gathering, 1, b"").unwrap();
    let check = |refused: Result<bool, Refused>, text: &str| {
        assert_eq!(refused.unwrap_err().to_string(), text);
    };
    check(put(&mut gathering, 1, b""), "register rank 1: it has registered already");
    check(put(&mut gathering, 3, b""), "register 3: the members are 0 to 2");
    let large = vec![0; 1001];
    check(
        put(&mut gathering, 0, &large),
        "register 0: 1001 bytes are more than the 1000 that there is room for",
    );
    put(&mut gathering, 0, b"").unwrap();
    check(put(&mut gathering, 2, b""), "register 2: all 2 members have registered already");
    assert_eq!(text_of(&gathering).unwrap(), b"2 0 0 ");
}

#[test]
fn it_breaks_when_too_few_are_left_and_stays_so() {
    let mut gathering = Gathering::new(1, 3, 2).unwrap();
    put(&mut gathering, 0, b"a").unwrap();
    assert!(!gathering.end(1, "ended") && !gathering.end(1, "ended"));
    assert!(gathering.end(2, "was killed by signal 9"));
    let broken = gathering.broken().unwrap().to_string();
    assert_eq!(broken, "wait for the rendezvous: rank 2 was killed by signal 9");
    assert!(matches!(put(&mut gathering, 1, b""), Err(Refused::Broken(_))));
    assert!(matches!(gathering.standing(), Standing::Broken(_)));
    assert_eq!(gathering.item(0).map(|item| item.as_slice()), Some(&b"a"[..]));
}

#[test]
fn the_end_of_one_whose_bytes_are_on_their_way_does_no_harm_unless_they_are_lost() {
    let mut gathering = Gathering::new(1, 2, 2).unwrap();
    gathering.announce(0, 3, ROOM).unwrap();
    assert!(!gathering.end(0, "ended"));
    assert_eq!(gathering.arrive(0, item(b"abc")), Ok(false));
    gathering.announce(1, 3, ROOM).unwrap();
    assert!(gathering.lose(1, "was lost with its node"));
    assert_eq!((gathering.registered(), gathering.bytes()), (1, 3));
}

#[test]
fn impossible_numbers_are_refused() {
    for (level, members, expected) in
        [(1, 2, 3), (1, 2, 0), (1, 0, 0), (0, 2, 2), (MAX_LEVEL + 1, 2, 2), (1, MAX_MEMBERS + 1, 2)]
    {
        let made = Gathering::new(level, members, expected);
        assert!(made.is_err(), "{level} {members} {expected}");
    }
}
