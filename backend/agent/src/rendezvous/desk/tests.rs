use gantry_types::rendezvous::Resource;
use tokio::sync::oneshot::Receiver;

use gantry_shared::wire::rendezvous::ITEM_WINDOW_BYTES;

use super::*;

fn gate() -> Gate {
    Gate { resource: Resource::Job, expected: None }
}

fn all() -> Key {
    Key { of: gate(), want: Want::All }
}

fn put(desk: &mut Desk, rank: u32, bytes: usize) -> Receiver<Result<(), Refusal>> {
    let room = Room::default();
    let (told, answer) = oneshot::channel();
    desk.ask(Request::Put { of: gate(), rank: Rank(rank), item: vec![7; bytes], room, told });
    answer
}

fn get(desk: &mut Desk, key: Key) -> Receiver<Result<Arc<Vec<u8>>, Refusal>> {
    let (told, answer) = oneshot::channel();
    desk.ask(Request::Get { key, told });
    answer
}

/// Number of item bytes in the messages for the frontend.
fn sent(desk: &mut Desk) -> usize {
    let bytes = desk.take_notices().into_iter().map(|notice| match notice {
        Notice::Flow { flow: FlowId::Items, word: Word::Data { bytes, .. } } => bytes.0.len(),
        _ => 0,
    });
    bytes.sum()
}

#[test]
fn an_item_is_announced_at_once_and_follows_on_credit() {
    let mut desk = Desk::new(NodeId(3));
    let window = ITEM_WINDOW_BYTES as usize;
    let mut first = put(&mut desk, 0, window + 1000);
    let _second = put(&mut desk, 1, 10);
    let notices = desk.take_notices();
    let announced =
        notices.iter().filter(|notice| matches!(notice, Notice::Rendezvous(RendezvousNotice::Put { .. })));
    assert_eq!(announced.count(), 2);
    assert_eq!(notices.len(), 2 + window / PIECE_BYTES);
    desk.hear_items(&Word::Credit(400));
    assert_eq!(sent(&mut desk), 400);
    desk.hear_items(&Word::Credit(10_000));
    assert_eq!(sent(&mut desk), 610);
    desk.obey(None, RendezvousOrder::Registered { item: 0, outcome: Ok(()) });
    assert_eq!(first.try_recv().unwrap(), Ok(()));
}

#[test]
fn an_item_that_was_refused_is_sent_no_further() {
    let mut desk = Desk::new(NodeId(3));
    let mut answer = put(&mut desk, 0, 2 * ITEM_WINDOW_BYTES as usize);
    desk.take_notices();
    let mut twice = put(&mut desk, 0, 1);
    assert!(twice.try_recv().unwrap().unwrap_err().to_string().contains("rank 0"));
    let no = Failure::new(Kind::Invalid, "no");
    let order = RendezvousOrder::Registered { item: 0, outcome: Err(no.clone().into()) };
    desk.obey(None, order);
    desk.hear_items(&Word::Credit(1000));
    assert_eq!(sent(&mut desk), 0);
    assert_eq!(answer.try_recv().unwrap(), Err(no.into()));
}

#[test]
fn many_who_wait_for_the_same_are_one_question_and_late_ones_none() {
    let mut desk = Desk::new(NodeId(3));
    let mut waiting: Vec<_> = (0..3).map(|_| get(&mut desk, all())).collect();
    assert_eq!(desk.take_notices(), [Notice::Rendezvous(RendezvousNotice::Get(all()))]);
    assert!(waiting[0].try_recv().is_err());
    desk.obey(None, RendezvousOrder::Got { key: all(), outcome: Ok(Blob(b"1 0 ".to_vec())) });
    for answer in &mut waiting {
        assert_eq!(**answer.try_recv().unwrap().as_ref().unwrap(), b"1 0 ");
    }
    let mut late = get(&mut desk, all());
    assert_eq!(**late.try_recv().unwrap().as_ref().unwrap(), b"1 0 ");
    assert!(desk.take_notices().is_empty());
    // The node asks for an item each time, as any rank may have registered it.
    let item = Key { of: gate(), want: Want::Item(4) };
    for _ in 0..2 {
        let mut answer = get(&mut desk, item.clone());
        assert_eq!(desk.take_notices(), [Notice::Rendezvous(RendezvousNotice::Get(item.clone()))]);
        desk.obey(None, RendezvousOrder::Got { key: item.clone(), outcome: Ok(Blob(vec![1])) });
        assert_eq!(**answer.try_recv().unwrap().as_ref().unwrap(), [1]);
    }
}

#[test]
fn what_comes_as_bulk_data_is_whole_or_an_error() {
    let mut desk = Desk::new(NodeId(3));
    let check = |desk: &mut Desk, announced: u64, pieces: &[(&[u8], bool)], good: bool| {
        desk.kept.clear();
        let mut answer = get(desk, all());
        desk.obey(Some(RequestId(1)), RendezvousOrder::Stream { key: all(), stream: 5, bytes: announced });
        let mut said = None;
        for (plain, last) in pieces {
            said = desk.take_piece(Piece::of(5, plain, *last));
        }
        let (request, said) = said.unwrap();
        assert_eq!((request, said.is_ok()), (Some(RequestId(1)), good));
        assert_eq!(answer.try_recv().unwrap().is_ok(), good);
        assert!(desk.take_piece(Piece::of(5, b"", true)).is_none());
    };
    check(&mut desk, 5, &[(b"ab", false), (b"cde", true)], true);
    check(&mut desk, 5, &[(b"ab", false), (b"cd", true)], false);
    check(&mut desk, 5, &[(b"ab", false), (b"cdef", false)], false);
    let mut answer = get(&mut desk, all());
    desk.obey(None, RendezvousOrder::Stream { key: all(), stream: 6, bytes: 5 });
    let mut cut = Piece::of(6, b"ab", false);
    cut.aborted = Some(Failure::new(Kind::Lost, "cut"));
    assert!(desk.take_piece(cut).unwrap().1.is_err());
    assert!(answer.try_recv().unwrap().is_err());
}

#[test]
fn without_a_frontend_nobody_waits() {
    let mut desk = Desk::new(NodeId(3));
    let (mut first, mut second) = (put(&mut desk, 0, 5), get(&mut desk, all()));
    desk.frontend_gone();
    let gone = |refusal: Refusal| matches!(&refusal, Refusal::Failed(why) if why.kind() == Kind::Gone);
    assert!(gone(first.try_recv().unwrap().unwrap_err()));
    assert!(gone(second.try_recv().unwrap().unwrap_err()));
    assert!(gone(put(&mut desk, 1, 5).try_recv().unwrap().unwrap_err()));
}
