//! Tests the engine without a connection.

use proptest::prelude::*;

use super::super::id::TaskId;
use super::super::reply::{Roots, encode};
use super::super::request::{Cookie, Head};
use super::*;

#[derive(Debug, Clone, Copy, PartialEq)]
struct TestWaiter {
    gone: bool,
}

impl Waiter for TestWaiter {
    fn is_gone(&self) -> bool {
        self.gone
    }
}

const HERE: TestWaiter = TestWaiter { gone: false };

fn engine(framing: Framing) -> Engine<TestWaiter> {
    let caller = Caller { job: b"1.head".to_vec(), cookie: Cookie::new("AB"), task: TaskId::SCRIPT };
    Engine::new(caller, framing)
}

fn tasks(node: i32) -> Command {
    Command::Tasks { node: NodeId(node) }
}

fn spawn(argument: &[u8]) -> Command {
    Command::Spawn { node: NodeId(0), argv: vec![argument.to_vec()], variables: Vec::new() }
}

/// The packets that can be sent now, as the mom reads them.
fn sent(engine: &mut Engine<TestWaiter>) -> Vec<(Head, Command)> {
    let mut heads = Vec::new();
    while let Some(packet) = engine.next_packet().unwrap() {
        let message = match engine.framing {
            Framing::Bare => &packet[..],
            Framing::Packets => packet::open(&packet, 1 << 20).unwrap().unwrap().0,
        };
        let mut reader = Reader::new(message);
        let head = Head::decode(&mut reader).unwrap();
        let command = Command::decode(head.verb, &mut reader).unwrap();
        heads.push((head, command));
    }
    heads
}

fn reply(framing: Framing, event: EventId, outcome: std::result::Result<Answer, Code>) -> Vec<u8> {
    let message = encode(event, &outcome).unwrap();
    match framing {
        Framing::Bare => message,
        Framing::Packets => packet::seal(&message).unwrap(),
    }
}

/// The events and outcomes of all requests that end with these bytes.
fn heard(engine: &mut Engine<TestWaiter>, bytes: &[u8]) -> Vec<(EventId, std::result::Result<Answer, i32>)> {
    let mut ended = Vec::new();
    let finish = |finished: Finished<TestWaiter>| {
        ended.push((finished.event, finished.outcome.map_err(|error| error.code().0)));
    };
    engine.receive(bytes, finish).unwrap();
    ended
}

#[test]
fn replies_are_matched_in_any_order_and_strangers_are_ignored() {
    let mut engine = engine(Framing::Packets);
    let first = engine.submit(&tasks(0), HERE).unwrap();
    let second = engine.submit(&spawn(b"true"), HERE).unwrap();
    assert_eq!(sent(&mut engine).len(), 2);
    let mut bytes = reply(Framing::Packets, EventId(99), Ok(Answer::Done));
    bytes.extend(reply(Framing::Packets, second, Ok(Answer::Task(TaskId(7)))));
    bytes.extend(reply(Framing::Packets, first, Err(Code::NOT_FOUND)));
    let ended = heard(&mut engine, &bytes);
    assert_eq!(ended, [(second, Ok(Answer::Task(TaskId(7)))), (first, Err(17006))]);
    assert_eq!(engine.outstanding(), 0);
    // The second answer to the same request is ignored.
    assert_eq!(heard(&mut engine, &reply(Framing::Packets, first, Ok(Answer::Done))), []);
}

#[test]
fn requests_that_make_a_mom_disconnect_are_not_sent() {
    let mut engine = engine(Framing::Packets);
    let variable = |text: &[u8]| Command::Spawn {
        node: NodeId(0),
        argv: vec![b"true".to_vec()],
        variables: vec![text.to_vec()],
    };
    let objected = [
        tasks(-1),
        spawn(b""),
        spawn(b"a\0b"),
        variable(b""),
        variable(b"A"),
        variable(b"=1"),
        variable(b"A=\0"),
        Command::Publish { name: b"\0".to_vec(), info: Vec::new() },
    ];
    for command in objected {
        let (error, _) = engine.submit(&command, HERE).unwrap_err();
        assert!(matches!(error, TmError::Invalid { .. }), "{command:?}: {error}");
    }
    let (error, _) = engine.submit(&spawn(&vec![b'a'; 60_000]), HERE).unwrap_err();
    assert!(matches!(error, TmError::TooLarge { bytes: 60_001.., most: 60_000, .. }), "{error:?}");
    engine.restrict(vec![NodeId(1)]);
    let (error, _) = engine.submit(&tasks(0), HERE).unwrap_err();
    assert!(matches!(error, TmError::AttachedCaller { .. }), "{error}");
    engine.submit(&tasks(1), HERE).unwrap();
    engine.submit(&Command::Init, HERE).unwrap();
    assert_eq!(sent(&mut engine).len(), 2);
}

#[test]
fn a_mom_is_asked_whether_it_reads_before_it_is_sent_too_much() {
    let mut engine = engine(Framing::Packets);
    for _ in 0..5 {
        engine.submit(&spawn(&[b'a'; 25_000]), HERE).unwrap();
    }
    let verbs = |sent: &[(Head, Command)]| sent.iter().map(|(head, _)| head.verb).collect::<Vec<_>>();
    let out = sent(&mut engine);
    assert_eq!(verbs(&out), [Verb::Spawn, Verb::Spawn, Verb::Init]);
    assert!(engine.is_blocked());
    assert_eq!(sent(&mut engine), []);
    // The probe's answer has no receiver. It confirms that everything before it was read.
    let init = Ok(Answer::Init(Roots::default()));
    assert_eq!(heard(&mut engine, &reply(Framing::Packets, out[2].0.event, init)), []);
    let out = sent(&mut engine);
    assert_eq!(verbs(&out), [Verb::Spawn, Verb::Spawn, Verb::Init]);
    // So does the answer to a request.
    let answer = Ok(Answer::Task(TaskId(3)));
    assert_eq!(heard(&mut engine, &reply(Framing::Packets, out[1].0.event, answer)).len(), 1);
    assert_eq!(verbs(&sent(&mut engine)), [Verb::Spawn]);
    assert!(!engine.is_blocked());
    assert_eq!(engine.outstanding(), 4);
}

#[test]
fn a_request_without_a_waiter_is_not_sent() {
    let mut engine = engine(Framing::Packets);
    engine.submit(&spawn(b"late"), TestWaiter { gone: true }).unwrap();
    let event = engine.submit(&spawn(b"in time"), HERE).unwrap();
    let out = sent(&mut engine);
    assert_eq!(out.iter().map(|(head, _)| head.event).collect::<Vec<_>>(), [event]);
}

#[test]
fn a_lost_connection_ends_everything_and_says_why() {
    let mut engine = engine(Framing::Packets);
    engine.submit(&tasks(0), HERE).unwrap();
    assert!(matches!(engine.hung_up(), Loss::Distrust));
    sent(&mut engine);
    engine.submit(&tasks(1), HERE).unwrap();
    let mut ended = Vec::new();
    engine
        .lose(&engine.hung_up(), |finished| ended.push((finished.asked.node, finished.outcome.unwrap_err())));
    assert_eq!(ended.iter().map(|(node, _)| *node).collect::<Vec<_>>(), [Some(NodeId(0)), Some(NodeId(1))]);
    assert!(ended.iter().all(|(_, error)| matches!(error, TmError::Lost { loss: Loss::Distrust, .. })));
    engine.renew();
    // Numbers continue: an answer to the old connection's request would match no request.
    assert_eq!(engine.submit(&tasks(0), HERE).unwrap(), EventId(3));
}

#[test]
fn nonsense_is_known_at_once() {
    for (bytes, expected) in [
        (&b"HTTP/1.1"[..], Nonsense::Packet(packet::PacketError::Magic)),
        (b"PKTV1\0\0\0\0\0\x02+3", Nonsense::Reply(DisError::Short)),
        (b"PKTV1\0\0\0\0\0\x08+2+3+0+1", Nonsense::Protocol { protocol: 2, version: 3 }),
        (b"PKTV1\0\0\0\0\0\x0c+2+2+0+1+1+1", Nonsense::Reply(DisError::Short)),
        (b"PKTV1\0\0\0\0\0\x0e+2+2+0+1+1+0+0", Nonsense::Reply(DisError::Trailing(2))),
    ] {
        let mut engine = engine(Framing::Packets);
        engine.submit(&tasks(0), HERE).unwrap();
        sent(&mut engine);
        assert_eq!(engine.receive(bytes, drop), Err(expected));
    }
    let mut engine = engine(Framing::Bare);
    assert_eq!(engine.receive(b"+2+2+0+9", drop), Err(Nonsense::Event(9)));
}

proptest! {
    #[test]
    fn replies_may_come_in_any_pieces(bare: bool, pieces in prop::collection::vec(1_usize..9, 1..60)) {
        let framing = if bare { Framing::Bare } else { Framing::Packets };
        let mut engine = engine(framing);
        let answers = [
            Ok(Answer::Tasks(vec![TaskId(1), TaskId(0x8000_0001)])),
            Err(Code::NOT_FOUND),
            Ok(Answer::Tasks(Vec::new())),
        ];
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        for answer in answers {
            let event = engine.submit(&tasks(0), HERE).unwrap();
            bytes.extend(reply(framing, event, answer.clone()));
            expected.push((event, answer.map_err(|code| code.0)));
        }
        sent(&mut engine);
        let mut ended = Vec::new();
        let mut rest = &bytes[..];
        for length in pieces.iter().cycle() {
            let (piece, next) = rest.split_at(rest.len().min(*length));
            ended.extend(heard(&mut engine, piece));
            rest = next;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(ended, expected);
    }

    #[test]
    fn no_bytes_are_too_much(bare: bool, bytes: Vec<u8>) {
        let mut engine = engine(if bare { Framing::Bare } else { Framing::Packets });
        engine.submit(&Command::Init, HERE).unwrap();
        sent(&mut engine);
        let _nonsense = engine.receive(&bytes, drop);
    }
}
