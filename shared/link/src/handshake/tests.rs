use proptest::prelude::*;
use tokio::io::{duplex, split};

use super::super::link::Incoming;
use crate::limits::HANDSHAKE_DEADLINE;
use tokio::io::{AsyncRead, AsyncWrite};

use super::*;

const APP: &[u8] = b"app-0001";
/// The bytes of a dialler: preamble, first message, confirmation. The bytes of an acceptor: preamble, second message.
const DIALLER_BYTES: usize = 8 + 4 + 48 + 4 + 17;
const ACCEPTOR_BYTES: usize = 8 + 4 + 48;

fn secret(digits: &str) -> Secret {
    Secret::from([u8::from_str_radix(digits, 16).unwrap(); 32])
}

fn soon() -> Instant {
    Instant::now() + HANDSHAKE_DEADLINE
}

async fn dial_on(stream: impl Stream) -> Result<Link, LinkError> {
    connect(stream, &secret("5a"), APP, soon()).await
}

async fn accept_on(stream: impl Stream) -> Result<Link, LinkError> {
    accept(stream, &secret("5a"), APP, soon()).await
}

/// The change that an attacker makes to one byte of one direction: `None` cuts the connection.
type Edit<'a> = &'a dyn Fn(usize, u8) -> Option<u8>;

fn as_it_is(_: usize, byte: u8) -> Option<u8> {
    Some(byte)
}

/// Forwards bytes until the end of the stream and returns them; an error is the cut.
async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    edit: Edit<'_>,
) -> Result<Vec<u8>, ()> {
    let mut carried = Vec::new();
    let mut byte = [0];
    while let Ok(1) = from.read(&mut byte).await {
        let edited = edit(carried.len(), byte[0]).ok_or(())?;
        carried.push(edited);
        if to.write_all(&[edited]).await.is_err() {
            break;
        }
    }
    to.shutdown().await.ok();
    Ok(carried)
}

struct Outcome {
    dialled: Result<(), LinkError>,
    accepted: Result<(), LinkError>,
    /// The bytes of the dialler and the acceptor, if nothing was cut.
    said: Option<(Vec<u8>, Vec<u8>)>,
}

/// A handshake through an attacker.
async fn through(to_acceptor: Edit<'_>, to_dialler: Edit<'_>) -> Outcome {
    let (dialler, near) = duplex(64);
    let (far, acceptor) = duplex(64);
    let between = async move {
        let (near_read, near_write) = split(near);
        let (far_read, far_write) = split(far);
        let to_acceptor = carry(near_read, far_write, to_acceptor);
        tokio::try_join!(to_acceptor, carry(far_read, near_write, to_dialler)).ok()
    };
    let ends = async {
        let (dialled, accepted) = tokio::join!(dial_on(dialler), accept_on(acceptor));
        (dialled.map(drop), accepted.map(drop))
    };
    let (said, (dialled, accepted)) = tokio::join!(between, ends);
    Outcome { dialled, accepted, said }
}

/// The results of both sides for these secrets, apps and versions.
async fn check_differing(
    dialler: (u16, &str, &[u8]),
    acceptor: (u16, &str, &[u8]),
) -> (LinkError, LinkError) {
    let (near, far) = duplex(64);
    let (dial_secret, accept_secret) = (secret(dialler.1), secret(acceptor.1));
    let (dialled, accepted) = tokio::join!(
        connect_as(dialler.0, near, &dial_secret, dialler.2, soon()),
        accept_as(acceptor.0, far, &accept_secret, acceptor.2, soon()),
    );
    (dialled.unwrap_err(), accepted.unwrap_err())
}

#[tokio::test(start_paused = true)]
async fn both_sides_come_to_a_link_and_speak_on_it() {
    for buffer in [1, 5, 4096] {
        let (near, far) = duplex(buffer);
        let (dialled, accepted) = tokio::try_join!(dial_on(near), accept_on(far)).unwrap();
        let (mut one_reads, mut one_writes) = dialled.split();
        let (mut other_reads, mut other_writes) = accepted.split();
        one_writes.send("ping").unwrap();
        other_writes.send("pong").unwrap();
        let (sent, came) = tokio::join!(one_writes.flush(), other_reads.next());
        sent.unwrap();
        assert_eq!(came.unwrap(), Some(Incoming::Frame(b"\x04ping".to_vec())));
        let (sent, came) = tokio::join!(other_writes.flush(), one_reads.next());
        sent.unwrap();
        assert_eq!(came.unwrap(), Some(Incoming::Frame(b"\x04pong".to_vec())));
    }
}

#[tokio::test(start_paused = true)]
async fn another_secret_or_another_app_is_refused_and_told_so() {
    for (text, app) in [("5b", APP), ("5a", b"app-0002"), ("5a", b"")] {
        let (dialled, accepted) = check_differing((1, "5a", APP), (1, text, app)).await;
        assert!(matches!(accepted, LinkError::HandshakeFailed), "{accepted:?}");
        let reason = "another secret or another app";
        assert!(matches!(&dialled, LinkError::Refused { reason: told, .. } if told == reason), "{dialled:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_version_is_named_on_both_sides() {
    for (dials, accepts) in [(1, 2), (2, 1), (0, u16::MAX)] {
        let (dialled, accepted) = check_differing((dials, "5a", APP), (accepts, "5a", APP)).await;
        let expected = |error: &LinkError, mine, other| matches!(error, LinkError::Version { ours, theirs } if (*ours, *theirs) == (mine, other));
        assert!(expected(&dialled, dials, accepts), "{dialled:?}");
        assert!(expected(&accepted, accepts, dials), "{accepted:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stranger_is_given_a_reason_and_nothing_else() {
    let (mut stranger, far) = duplex(4096);
    stranger.write_all(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n").await.unwrap();
    let hear = async {
        let mut heard = Vec::new();
        stranger.read_to_end(&mut heard).await.unwrap();
        heard
    };
    let (accepted, heard) = tokio::join!(accept_on(far), hear);
    assert!(matches!(accepted, Err(LinkError::Malformed { phase: Phase::Preamble, .. })));
    let reason = b"protocol error: it is not gantry";
    let expected = [&build_preamble(PROTOCOL_VERSION)[..], &[3, 0, 0, 32], reason].concat();
    assert_eq!(heard, expected);
}

#[tokio::test(start_paused = true)]
async fn a_server_of_another_kind_is_told_apart() {
    let (near, mut other) = duplex(4096);
    other.write_all(b"SSH-2.0-OpenSSH_9.9\r\n").await.unwrap();
    assert!(matches!(dial_on(near).await, Err(LinkError::Malformed { phase: Phase::Preamble, .. })));
}

#[tokio::test(start_paused = true)]
async fn a_flipped_bit_anywhere_is_refused_by_its_reader() {
    let good = through(&as_it_is, &as_it_is).await;
    assert!(good.dialled.is_ok() && good.accepted.is_ok());
    let (by_dialler, by_acceptor) = good.said.unwrap();
    assert_eq!((by_dialler.len(), by_acceptor.len()), (DIALLER_BYTES, ACCEPTOR_BYTES));
    for bit in 0..DIALLER_BYTES * 8 {
        let flip = |at: usize, byte: u8| Some(if at == bit / 8 { byte ^ 1 << (bit % 8) } else { byte });
        let outcome = through(&flip, &as_it_is).await;
        assert!(outcome.accepted.is_err(), "bit {bit} of the dialler");
        // All changes but those in the confirmation are detected before the dialler is done.
        assert_eq!(outcome.dialled.is_ok(), bit / 8 >= 8 + 4 + 48, "bit {bit} of the dialler");
    }
    for bit in 0..ACCEPTOR_BYTES * 8 {
        let flip = |at: usize, byte: u8| Some(if at == bit / 8 { byte ^ 1 << (bit % 8) } else { byte });
        let outcome = through(&as_it_is, &flip).await;
        assert!(outcome.dialled.is_err() && outcome.accepted.is_err(), "bit {bit} of the acceptor");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cut_in_every_phase_is_a_cut() {
    let expected = |at: usize| if at < 8 { Phase::Preamble } else { Phase::Handshake };
    let is_cut = |result: &Result<(), LinkError>, at: usize| matches!(result, Err(LinkError::Cut { phase, .. }) if *phase == expected(at));
    for at in 0..DIALLER_BYTES {
        let outcome = through(&|place, byte| (place < at).then_some(byte), &as_it_is).await;
        assert!(is_cut(&outcome.accepted, at), "byte {at} of the dialler: {:?}", outcome.accepted);
    }
    for at in 0..ACCEPTOR_BYTES {
        let outcome = through(&as_it_is, &|place, byte| (place < at).then_some(byte)).await;
        assert!(is_cut(&outcome.dialled, at), "byte {at} of the acceptor: {:?}", outcome.dialled);
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_given_up_at_the_deadline() {
    for (said, expected) in [(0, Phase::Preamble), (7, Phase::Preamble), (8, Phase::Handshake)] {
        let started = Instant::now();
        let (mut quiet, far) = duplex(4096);
        quiet.write_all(&build_preamble(PROTOCOL_VERSION)[..said]).await.unwrap();
        let result = accept_on(far).await.unwrap_err();
        assert!(matches!(result, LinkError::TimedOut { phase } if phase == expected), "{result:?}");
        let (near, mut quiet) = duplex(4096);
        quiet.write_all(&build_preamble(PROTOCOL_VERSION)[..said]).await.unwrap();
        let result = dial_on(near).await.unwrap_err();
        assert!(matches!(result, LinkError::TimedOut { phase } if phase == expected), "{result:?}");
        assert!(started.elapsed() < 2 * HANDSHAKE_DEADLINE + Duration::from_secs(1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_drips_gains_no_time() {
    let (mut slow, far) = duplex(4096);
    let drip = async {
        for byte in build_preamble(PROTOCOL_VERSION).into_iter().cycle() {
            tokio::time::sleep(Duration::from_secs(3)).await;
            if slow.write_all(&[byte]).await.is_err() {
                break;
            }
        }
    };
    let started = Instant::now();
    let (accepted, ()) = tokio::join!(accept_on(far), drip);
    assert!(matches!(accepted, Err(LinkError::TimedOut { phase: Phase::Preamble })));
    assert!(started.elapsed() < HANDSHAKE_DEADLINE + Duration::from_secs(4));
}

#[tokio::test(start_paused = true)]
async fn a_recording_of_a_dialler_is_no_peer() {
    let (said, _) = through(&as_it_is, &as_it_is).await.said.unwrap();
    let (mut recording, far) = duplex(4096);
    recording.write_all(&said).await.unwrap();
    assert!(matches!(accept_on(far).await, Err(LinkError::HandshakeFailed)));
    let (mut recording, far) = duplex(4096);
    recording.write_all(&said[..8 + 4 + 48]).await.unwrap();
    assert!(matches!(accept_on(far).await, Err(LinkError::TimedOut { phase: Phase::Handshake })));
}

#[tokio::test(start_paused = true)]
async fn an_endless_stranger_is_listened_to_for_a_moment_only() {
    let (mut stranger, far) = duplex(64);
    let babble = async { while stranger.write_all(&[b'x'; 64]).await.is_ok() {} };
    let started = Instant::now();
    let (accepted, ()) = tokio::join!(accept_on(far), babble);
    assert!(matches!(accepted, Err(LinkError::Malformed { .. })));
    assert!(started.elapsed() <= DRAIN_TIME);
}

#[tokio::test(start_paused = true)]
async fn a_refused_peer_has_time_to_read_why() {
    for (closes, expected) in [(false, DRAIN_TIME), (true, Duration::ZERO)] {
        let (mut stranger, far) = duplex(4096);
        stranger.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        if closes {
            stranger.shutdown().await.unwrap();
        }
        let started = Instant::now();
        assert!(matches!(accept_on(far).await, Err(LinkError::Malformed { .. })));
        assert_eq!(started.elapsed().as_secs(), expected.as_secs());
    }
}

#[tokio::test]
async fn the_reason_comes_over_tcp() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer = async { accept_on(listener.accept().await.unwrap().0).await };
    let dial = async {
        let mut stranger = tokio::net::TcpStream::connect(address).await.unwrap();
        stranger.write_all(&[b'x'; 5000]).await.unwrap();
        let mut heard = Vec::new();
        stranger.read_to_end(&mut heard).await.map(|_| heard)
    };
    let (accepted, heard) = tokio::join!(answer, dial);
    assert!(matches!(accepted, Err(LinkError::Malformed { .. })));
    assert!(heard.unwrap().ends_with(b"it is not gantry"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn garbage_makes_no_link(garbage: Vec<u8>, after_preamble: bool, dials: bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let result = runtime.block_on(async {
            let (near, mut peer) = duplex(4096);
            if after_preamble {
                peer.write_all(&build_preamble(PROTOCOL_VERSION)).await.unwrap();
            }
            peer.write_all(&garbage).await.unwrap();
            peer.shutdown().await.unwrap();
            if dials { dial_on(near).await } else { accept_on(near).await }
        });
        prop_assert!(result.is_err());
    }
}
