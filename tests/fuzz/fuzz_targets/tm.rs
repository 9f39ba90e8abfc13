//! Answers of a mom, and requests of a tool, read in pieces. If the bytes can be decoded, they must be encoded to the
//! same bytes.
//!
//! The first byte selects the format (requests, replies in packets, or bare replies) and the size of the pieces.
#![no_main]

use gantry_wlm::pbs::tm::dis::Reader;
use gantry_wlm::pbs::tm::engine::{Engine, Waiter};
use gantry_wlm::pbs::tm::packet;
use gantry_wlm::pbs::tm::reply::{ReplyHead, decode_rest, encode};
use gantry_wlm::pbs::tm::request::Head;
use gantry_wlm::pbs::tm::{Caller, Command, Cookie, Framing, NodeId, TaskId, Verb};

struct Anybody;

impl Waiter for Anybody {}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((how, bytes)) = bytes.split_first() else { return };
    match how & 3 {
        0 => ask(bytes),
        1 => answer(bytes),
        2 => hear(Framing::Packets, usize::from(how >> 2) + 1, bytes),
        _ => hear(Framing::Bare, usize::from(how >> 2) + 1, bytes),
    }
});

/// A request, decoded as a mom does it.
fn ask(bytes: &[u8]) {
    let message = packet::open(bytes, 1 << 20).ok().flatten().map_or(bytes, |(message, _)| message);
    let mut reader = Reader::new(message);
    let Ok(head) = Head::decode(&mut reader) else { return };
    let Ok(command) = Command::decode(head.verb, &mut reader) else { return };
    let length = message.len() - reader.rest().len();
    let again = command.encode(&head.caller, head.event).expect("it was read");
    if (head.protocol, head.version) == (2, 2) {
        assert_eq!(&message[..length], &again[..]);
    }
}

/// A reply to each command.
fn answer(bytes: &[u8]) {
    for verb in (100..=113).map(Verb::from_number) {
        let mut reader = Reader::new(bytes);
        let Ok(head) = ReplyHead::decode(&mut reader) else { return };
        let Ok(outcome) = decode_rest(verb, head, &mut reader) else { continue };
        let length = bytes.len() - reader.rest().len();
        if head.fits() && (head.code == 0 || head.code == 999) {
            assert_eq!(&bytes[..length], encode(head.event, &outcome).expect("it was read"));
        }
    }
}

/// A connection with a request of every kind under way.
fn hear(framing: Framing, piece: usize, bytes: &[u8]) {
    let caller = Caller { job: b"1.head".to_vec(), cookie: Cookie::new("AB"), task: TaskId::SCRIPT };
    let mut engine = Engine::new(caller, framing);
    let (node, task, name) = (NodeId(0), TaskId(7), b"name".to_vec());
    let commands = [
        Command::Init,
        Command::Tasks { node },
        Command::Spawn { node, argv: vec![b"true".to_vec()], variables: Vec::new() },
        Command::Signal { node, task, signal: 9 },
        Command::Obit { node, task },
        Command::Resources { node },
        Command::Publish { name: name.clone(), info: Vec::new() },
        Command::Subscribe { node, task, name },
        Command::Attach { uid: 1, pid: 1 },
    ];
    for command in &commands {
        assert!(engine.submit(command, Anybody).is_ok());
    }
    while let Ok(Some(_packet)) = engine.next_packet() {}
    let mut ended = 0;
    for piece in bytes.chunks(piece) {
        if engine.receive(piece, |_| ended += 1).is_err() {
            break;
        }
    }
    assert_eq!(engine.outstanding() + ended, commands.len());
}
