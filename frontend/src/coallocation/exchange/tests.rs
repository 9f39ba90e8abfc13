//! The switchboard, with no process and no network at all.

use gantry_types::id::NodeId;

use gantry_shared::wire::message::Blob;

use super::super::mailbox::ROOM_BYTES;
use super::*;

const A: SubjobId = SubjobId(0);
const B: SubjobId = SubjobId(1);

/// A job of two subjobs with one rank each on a node each, all of them linked.
fn two() -> Switchboard {
    let mut board = Switchboard::default();
    for id in [A, B] {
        board.add(id, CommsType::BlockingJoin, true);
        board.started(id, 1);
        board.take(id, link(id), Word::Open(Rank(0)));
    }
    board.take_effects();
    board
}

fn link(id: SubjobId) -> LinkId {
    (NodeId(id.0), 5)
}

fn say(board: &mut Switchboard, id: SubjobId, what: &Say) {
    let mut bytes = Vec::new();
    encode_onto(what, &mut bytes).unwrap();
    board.take(id, link(id), Word::data(bytes));
}

fn piece(to: u32, bytes: Vec<u8>) -> Say {
    let peer = Peer { subjob: to, rank: Rank(0) };
    let then = gantry_shared::wire::runtime::Then::Complete;
    Say::Piece(Piece { scope: Scope::Job, peer, message: 1, tag: "t".to_owned(), then, bytes: Blob(bytes) })
}

/// What a rank has been told since the last call, and how much credit it has got back.
fn heard(board: &mut Switchboard, whom: SubjobId) -> (Vec<Hear>, u32) {
    let (mut buffer, mut heard, mut credit) = (FrameBuffer::new(), Vec::new(), 0);
    for effect in board.take_effects() {
        match effect {
            Effect::Say(id, _, Word::Data { bytes: Blob(bytes), .. }) if id == whom => {
                buffer.push(&bytes).unwrap();
                while let Some(frame) = buffer.next_message().unwrap() {
                    heard.push(frame);
                }
            }
            Effect::Say(id, _, Word::Credit(bytes)) if id == whom => credit += bytes,
            Effect::Taken(id, _, bytes) if id == whom => credit += u32::try_from(bytes).unwrap(),
            _ => {}
        }
    }
    (heard, credit)
}

fn arrivals(board: &mut Switchboard) -> Vec<(SubjobId, Arrival)> {
    let told = board.take_effects().into_iter().filter_map(|effect| match effect {
        Effect::Tell(id, arrival) => Some((id, arrival)),
        Effect::Say(..) | Effect::Taken(..) => None,
    });
    told.collect()
}

#[test]
fn a_subjob_has_checked_in_when_all_its_ranks_have_each_once() {
    let mut board = Switchboard::default();
    board.add(A, CommsType::BlockingJoin, true);
    board.started(A, 2);
    for (rank, number) in [(Rank(0), 5), (Rank(1), 6)] {
        board.take(A, (NodeId(0), number), Word::Open(rank));
    }
    say(&mut board, A, &Say::CheckIn);
    say(&mut board, A, &Say::CheckIn);
    assert_eq!(arrivals(&mut board), []);
    let mut bytes = Vec::new();
    encode_onto(&Say::CheckIn, &mut bytes).unwrap();
    // The result must not depend on how the bytes are cut.
    for byte in bytes {
        assert_eq!(arrivals(&mut board), []);
        board.take(A, (NodeId(0), 6), Word::data(vec![byte]));
    }
    assert_eq!(arrivals(&mut board), [(A, Arrival::CheckedIn)]);
    board.release(vec![A]);
    say(&mut board, A, &Say::Passed);
    assert_eq!(arrivals(&mut board), []);
    // An ended rank will not report that it has passed.
    board.rank_ended(A, Rank(1));
    assert_eq!(arrivals(&mut board), [(A, Arrival::Passed)]);
}

#[test]
fn who_comes_late_hears_what_the_others_have_heard() {
    let mut board = two();
    board.release(vec![A, B]);
    let expected = vec![
        Hear::Welcome { rank: Rank(0), size: 1 },
        Hear::Released,
        Hear::Joined(Subjobs { index: 1, sizes: vec![1, 1] }),
    ];
    assert_eq!(heard(&mut board, B).0, expected[1..]);
    board.take(B, link(B), Word::End);
    board.take(B, (NodeId(1), 9), Word::Open(Rank(0)));
    assert_eq!(heard(&mut board, B), (expected, LINK_WINDOW_BYTES));
}

#[test]
fn nobody_joins_before_the_last_one_is_there_or_has_failed() {
    let check = |last: fn(&mut Switchboard), sizes: Vec<u32>| {
        let mut board = two();
        let late = SubjobId(2);
        board.add(late, CommsType::BlockingJoin, false);
        board.release(vec![A, B, late]);
        assert_eq!(heard(&mut board, A).0, [Hear::Released]);
        last(&mut board);
        assert_eq!(heard(&mut board, A).0, [Hear::Joined(Subjobs { index: 0, sizes })]);
    };
    check(|board| board.started(SubjobId(2), 7), vec![1, 1, 7]);
    check(|board| board.end(SubjobId(2)), vec![1, 1]);
}

#[test]
fn who_watches_is_told_once_of_all_that_have_ended() {
    let mut board = two();
    board.started(A, 3);
    board.rank_ended(A, Rank(2));
    board.release(vec![A, B]);
    let ended = |own, rank| Hear::RankEnded { own, peer: Peer { subjob: 0, rank: Rank(rank) } };
    // No rank watches.
    assert_eq!(heard(&mut board, A).0.len(), 2);
    say(&mut board, A, &Say::Watch);
    assert_eq!(heard(&mut board, A).0, [ended(true, 2), Hear::Watched]);
    say(&mut board, B, &Say::Watch);
    assert_eq!(heard(&mut board, B).0, [ended(false, 2), Hear::Watched]);
    board.rank_ended(A, Rank(1));
    assert_eq!(heard(&mut board, B).0, []);
    say(&mut board, B, &Say::Watch);
    assert_eq!(heard(&mut board, B).0, [ended(false, 1), Hear::Watched]);
    say(&mut board, B, &Say::Watch);
    board.rank_ended(A, Rank(0));
    assert_eq!(heard(&mut board, B).0, [ended(false, 0), Hear::Watched]);
    board.rank_ended(B, Rank(0));
    assert_eq!(board.watchers, BTreeSet::new());
}

#[test]
fn the_ends_of_those_that_take_no_part_concern_their_own_alone() {
    let mut board = two();
    let own = SubjobId(2);
    board.add(own, CommsType::Independent, true);
    board.started(own, 2);
    board.take(own, (NodeId(2), 5), Word::Open(Rank(0)));
    board.release(vec![A, B, own]);
    for id in [A, own] {
        heard(&mut board, id);
        let mut bytes = Vec::new();
        encode_onto(&Say::Watch, &mut bytes).unwrap();
        board.take(id, (NodeId(id.0), 5), Word::data(bytes));
    }
    heard(&mut board, A);
    board.rank_ended(own, Rank(1));
    assert_eq!(board.watchers, BTreeSet::from([(A, Rank(0))]));
}

#[test]
fn the_numbers_are_those_of_who_takes_part() {
    let mut board = two();
    let own = SubjobId(2);
    board.add(own, CommsType::Independent, true);
    board.started(own, 1);
    board.take(own, (NodeId(2), 5), Word::Open(Rank(0)));
    board.take_effects();
    // The first one was deleted.
    board.abort(A, "its subjob was deleted");
    board.release(vec![B, own]);
    let all = board.take_effects();
    board.effects = all;
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for effect in board.take_effects() {
        if let Effect::Say(id, _, Word::Data { bytes: Blob(bytes), .. }) = effect {
            let mut buffer = FrameBuffer::new();
            buffer.push(&bytes).unwrap();
            while let Some(frame) = buffer.next_message::<Hear>().unwrap() {
                if id == A { a.push(frame) } else { b.push((id, frame)) }
            }
        }
    }
    assert_eq!(a.first(), Some(&Hear::Aborted("its subjob was deleted".to_owned())));
    assert!(!a.contains(&Hear::Released), "it passes though it was deleted");
    assert!(b.contains(&(B, Hear::Joined(Subjobs { index: 0, sizes: vec![1] }))), "{b:?}");
    assert!(b.iter().any(|(id, frame)| *id == own && matches!(frame, Hear::Alone(_))), "{b:?}");
}

#[test]
fn a_mailbox_that_is_full_holds_back_its_senders_and_nobody_else() {
    let mut board = two();
    board.release(vec![A, B]);
    board.take_effects();
    let (mut sent, mut credit) = (0, 0);
    // Senders in this test ignore their credit: what counts is how much they get.
    while credit == sent {
        // Two are more than a portion.
        (0..2).for_each(|_| say(&mut board, A, &piece(1, vec![1; 60_000])));
        sent += 120_000;
        credit += heard(&mut board, A).1.min(120_000);
    }
    let room = u32::try_from(ROOM_BYTES).unwrap() + LINK_WINDOW_BYTES;
    assert!((room..room + 200_000).contains(&sent), "{sent}");
    // The other direction is free.
    (0..2).for_each(|_| say(&mut board, B, &piece(0, vec![2; 40_000])));
    assert!(heard(&mut board, B).1 > 80_000);
    board.take(B, link(B), Word::Credit(300_000));
    assert!(heard(&mut board, A).1 >= 60_000, "there is room again, and no credit for it");
}

#[test]
fn a_full_mailbox_of_one_who_ends_holds_back_nobody() {
    for ends in [
        (|board: &mut Switchboard| board.end(B)) as fn(&mut Switchboard),
        |board| board.rank_ended(B, Rank(0)),
        |board| board.take(B, link(B), Word::End),
    ] {
        let mut board = two();
        board.release(vec![A, B]);
        for _ in 0..30 {
            say(&mut board, A, &piece(1, vec![1; 60_000]));
        }
        board.take_effects();
        ends(&mut board);
        assert!(heard(&mut board, A).1 > 60_000);
    }
}

#[test]
fn what_is_no_word_of_ours_ends_the_link_with_a_reason() {
    let mut board = two();
    board.take(A, link(A), Word::data(vec![0xff; 8]));
    let effects = board.take_effects();
    assert!(matches!(effects.last(), Some(Effect::Say(A, _, Word::End))), "{effects:?}");
    // What arrives on the link later belongs to no rank.
    say(&mut board, A, &Say::CheckIn);
    assert_eq!(board.take_effects(), []);
}

#[test]
fn messages_to_nobody_and_of_nobody_go_nowhere() {
    let mut board = two();
    say(&mut board, A, &piece(1, vec![1]));
    assert_eq!(heard(&mut board, B).0, [], "before all have joined");
    board.release(vec![A, B]);
    board.take_effects();
    for to in [2, u32::MAX] {
        say(&mut board, A, &piece(to, vec![1]));
        assert_eq!(heard(&mut board, B).0, []);
    }
    board.take(SubjobId(9), link(A), Word::data(vec![1]));
    board.take(A, (NodeId(7), 7), Word::data(vec![1]));
    assert_eq!(board.take_effects(), []);
    // A second link of the same rank, and a link of a rank that does not exist.
    for rank in [0, 1] {
        board.take(A, (NodeId(0), 6), Word::Open(Rank(rank)));
        assert!(matches!(board.take_effects().last(), Some(Effect::Say(A, (_, 6), Word::End))));
    }
}
