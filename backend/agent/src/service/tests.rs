//! The service with real sockets, and its client library for daemons.

use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream as StdStream;
use std::path::PathBuf;
use std::thread::JoinHandle;

use gantry_backend::{Address, Backend, Error};
use gantry_shared::wire::frame::{FrameError, decode, read_frame, write_frame};
use gantry_types::id::{Pid, Rank};
use gantry_types::status::RankState;
use tokio::sync::oneshot;

use super::*;
use crate::testing::{rerun_alone, without_descriptors};

const DEADLINE: Duration = Duration::from_secs(20);

/// A service on its own thread. Dropping this ends the thread.
struct Fixture {
    scratch: tempfile::TempDir,
    socket: PathBuf,
    view: watch::Sender<View>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok() || std::thread::panicking());
        }
    }
}

impl Fixture {
    fn new() -> Self {
        Self::with(LIMITS, "")
    }

    fn with(limits: Limits, below: &str) -> Self {
        // A short path, whatever TMPDIR is, since lengths matter here.
        let scratch = tempfile::tempdir_in("/tmp").unwrap();
        let dir = scratch.path().join(below);
        std::fs::create_dir_all(&dir).unwrap();
        let socket = dir.join("agent.sock");
        let (view, receiver) = watch::channel(a_view());
        let (stop, stopped) = oneshot::channel::<()>();
        let (bound, is_bound) = std::sync::mpsc::channel();
        let path = socket.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut service = Service::bind(&path, receiver, None).unwrap();
                service.limits = limits;
                bound.send(()).unwrap();
                tokio::select! {
                    () = service.serve() => {}
                    _ = stopped => {}
                }
            });
        });
        is_bound.recv().unwrap();
        Self { scratch, socket, view, stop: Some(stop), thread: Some(thread) }
    }

    fn address(&self) -> Address {
        Address {
            socket: self.socket.clone(),
            session: SessionId(1),
            daemon: DaemonId(5),
            token: token(1, 5),
        }
    }

    fn connect(&self) -> Result<Backend, Error> {
        Backend::connect_to(&self.address(), DEADLINE)
    }

    fn raw(&self) -> StdStream {
        let stream = StdStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
    }

    /// Sends bytes and returns the failure with which the service ends the connection.
    fn refused(&self, bytes: &[u8]) -> Failure {
        let mut stream = self.raw();
        // The service may close the connection before all bytes are written.
        stream.write_all(bytes).ok();
        refusal(&mut stream)
    }
}

/// The refusal, after which the connection must be closed.
fn refusal(stream: &mut StdStream) -> Failure {
    let body = read_frame(stream).unwrap().expect("a reason");
    let Tell::Refused(why) = decode(&body).unwrap() else { panic!("no reason: {body:?}") };
    // If it is closed with bytes unread, the kernel resets it. In either case it is over.
    assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0);
    why
}

fn a_view() -> View {
    let dirs = SessionDirs::new("/stage/gantry-3kx9w0fz-abcdef/s1");
    View {
        facts: AppFacts {
            wlm: "localhost".into(),
            app: "3kx9w0fz".parse().unwrap(),
            host: "n3".into(),
            node: NodeId(3),
            nodes: 8,
            size: 16,
        },
        ranks: vec![a_rank(7, RankState::Held), a_rank(6, RankState::Held)],
        sessions: BTreeMap::from([(SessionId(1), dirs)]),
        secret: secret(),
        daemons: BTreeMap::from([(DaemonId(5), SessionId(1)), (DaemonId(6), SessionId(2))]),
    }
}

fn a_rank(rank: u32, state: RankState) -> LocalRank {
    LocalRank { rank: Rank(rank), pid: Pid::new(1000).unwrap(), exe: "/bin/app".into(), state }
}

fn secret() -> Secret {
    Secret::from([0x5a; 32])
}

fn token(session: u32, daemon: u32) -> String {
    build_token(&secret(), SessionId(session), DaemonId(daemon))
}

fn hello(version: u16, session: u32, daemon: u32) -> Vec<u8> {
    hello_by(version, session, daemon, token(session, daemon))
}

fn hello_by(version: u16, session: u32, daemon: u32, token: String) -> Vec<u8> {
    encode(&Ask::Hello { version, session: SessionId(session), daemon: DaemonId(daemon), token }).unwrap()
}

#[test]
fn a_daemon_learns_where_it_is_and_who_runs_there() {
    let node = Fixture::new();
    let backend = node.connect().unwrap();
    assert_eq!((backend.wlm(), backend.host(), backend.node()), ("localhost", "n3", NodeId(3)));
    assert_eq!((backend.node_count(), backend.rank_count()), (8, 16));
    assert_eq!(backend.app().to_string(), "3kx9w0fz");
    assert_eq!(backend.dirs().bin, Path::new("/stage/gantry-3kx9w0fz-abcdef/s1/bin"));
    assert_eq!(backend.ranks().unwrap(), [a_rank(6, RankState::Held), a_rank(7, RankState::Held)]);
    assert_eq!(backend.first_rank().unwrap(), Some(Rank(6)));

    node.view.send_modify(|view| view.ranks = vec![a_rank(6, RankState::Running)]);
    assert_eq!(backend.ranks().unwrap(), [a_rank(6, RankState::Running)]);
    assert_eq!(backend.local_rank_count().unwrap(), 1);
    node.view.send_modify(|view| view.ranks.clear());
    assert_eq!(backend.first_rank().unwrap(), None);
}

#[test]
fn the_socket_is_private() {
    let node = Fixture::new();
    assert_eq!(std::fs::metadata(&node.socket).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn a_socket_at_a_path_of_any_length_is_reached() {
    let node = Fixture::with(LIMITS, &"a-long-name-of-a-directory/".repeat(20));
    assert!(node.socket.as_os_str().len() > 500);
    assert_eq!(node.connect().unwrap().host(), "n3");
}

#[test]
fn paths_around_the_limit_of_an_address_are_reached() {
    for length in 104..112 {
        let base = Fixture::with(LIMITS, "").scratch.path().as_os_str().len();
        let below = "x".repeat(length - base - "//agent.sock".len());
        let node = Fixture::with(LIMITS, &below);
        assert_eq!(node.socket.as_os_str().len(), length);
        assert_eq!(node.connect().unwrap().host(), "n3", "{length} bytes");
    }
}

#[test]
fn who_does_not_belong_here_is_refused_with_the_reason() {
    let node = Fixture::new();
    let check = |bytes: &[u8], kind: Kind, text: &str| {
        let why = node.refused(bytes);
        assert_eq!(why.kind(), kind, "{why}");
        assert!(why.message().contains(text), "{why} has no {text:?}");
    };
    check(&hello(VERSION + 1, 1, 5), Kind::Protocol, "uses protocol version 5: this agent uses 4");
    check(&hello(VERSION, 9, 5), Kind::Gone, "session 9: it is not open");
    check(&hello(VERSION, 1, 9), Kind::NotFound, "daemon 9 of session 1");
    check(&hello(VERSION, 1, 6), Kind::NotFound, "daemon 6 of session 1");
    for other in [String::new(), token(1, 6), token(2, 5)] {
        check(&hello_by(VERSION, 1, 5, other), Kind::NoAccess, "it sent no token");
    }
    check(&encode(&Ask::Ranks).unwrap(), Kind::Protocol, "has not said hello");
    let mut address = node.address();
    address.session = SessionId(9);
    let error = Backend::connect_to(&address, DEADLINE).unwrap_err();
    assert_eq!(error.kind(), Kind::Gone, "{error:?}");
}

#[test]
fn garbage_is_cut_off_and_disturbs_nobody() {
    let node = Fixture::new();
    let backend = node.connect().unwrap();
    let too_long = [0x00, 0x0f, 0xff, 0xff].iter().copied().chain([7; 20_000]).collect::<Vec<u8>>();
    let cases: [(&[u8], &str); 5] = [
        (b"GET / HTTP/1.1\r\n\r\n", "handle a frame of more than"),
        (&[0xff; 4096], "handle a frame of more than"),
        (&[0, 0, 0, 2, 0xff, 0xff], "decode a frame"),
        (&[0, 0, 0, 0], "decode a frame"),
        (&too_long, "its question is too long"),
    ];
    for (bytes, text) in cases {
        let why = node.refused(bytes);
        assert_eq!(why.kind(), Kind::Protocol, "{why}");
        assert!(why.message().contains(text), "{why} has no {text:?}");
        assert_eq!(backend.local_rank_count().unwrap(), 2);
    }
    let mut half = node.raw();
    half.write_all(&hello(VERSION, 1, 5)[..3]).unwrap();
    half.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(refusal(&mut half).message().contains("closed inside a question"));
    let mut twice = node.raw();
    twice.write_all(&hello(VERSION, 1, 5)).unwrap();
    read_frame(&mut twice).unwrap().unwrap();
    twice.write_all(&hello(VERSION, 1, 5)).unwrap();
    assert!(refusal(&mut twice).message().contains("hello twice"));
    assert_eq!(backend.local_rank_count().unwrap(), 2);
}

#[test]
fn a_question_may_come_in_pieces_and_two_at_once() {
    let node = Fixture::new();
    let mut stream = node.raw();
    for byte in hello(VERSION, 1, 5) {
        stream.write_all(&[byte]).unwrap();
    }
    assert!(read_frame(&mut stream).unwrap().is_some());
    stream.write_all(&[encode(&Ask::Ranks).unwrap(), encode(&Ask::Ranks).unwrap()].concat()).unwrap();
    for _ in 0..2 {
        let body = read_frame(&mut stream).unwrap().unwrap();
        assert!(matches!(decode(&body).unwrap(), Tell::Ranks(ranks) if ranks.len() == 2));
    }
}

#[test]
fn a_client_that_says_nothing_is_cut_off_and_one_that_said_hello_is_not() {
    let patience = Duration::from_millis(50);
    let node = Fixture::with(Limits { patience, ..LIMITS }, "");
    let backend = node.connect().unwrap();
    let mut slow = node.raw();
    slow.write_all(&[0, 0]).unwrap();
    for mut silent in [node.raw(), slow] {
        let why = refusal(&mut silent);
        assert_eq!(why.kind(), Kind::TimedOut, "{why}");
    }
    assert_eq!(backend.local_rank_count().unwrap(), 2);
}

#[test]
fn connections_are_bounded_and_a_place_that_gets_free_is_given_away() {
    let node = Fixture::with(Limits { connections: 2, ..LIMITS }, "");
    let first = node.connect().unwrap();
    let second = node.connect().unwrap();
    let error = node.connect().unwrap_err();
    assert!(matches!(&error, Error::Refused(why) if why.kind() == Kind::NoAccess), "{error:?}");
    assert_eq!(first.local_rank_count().unwrap(), 2);
    drop(second);
    // The service notices the end of a connection with a delay.
    let until = std::time::Instant::now() + DEADLINE;
    while node.connect().is_err() {
        assert!(std::time::Instant::now() < until);
        std::thread::yield_now();
    }
}

#[test]
fn the_end_of_the_agent_is_seen_by_its_daemons() {
    let node = Fixture::new();
    let backend = node.connect().unwrap();
    drop(node);
    assert!(matches!(backend.ranks(), Err(Error::Lost(_))));
    assert!(matches!(backend.ranks(), Err(Error::Unusable { .. })));
}

#[test]
fn a_client_that_takes_no_answers_is_dropped() {
    let patience = Duration::from_millis(50);
    let node = Fixture::with(Limits { patience, ..LIMITS }, "");
    node.view.send_modify(|view| view.ranks = (0..20_000).map(|n| a_rank(n, RankState::Held)).collect());
    let mut stream = node.raw();
    stream.write_all(&hello(VERSION, 1, 5)).unwrap();
    stream.set_write_timeout(Some(DEADLINE)).unwrap();
    // The client asks and never reads. Both directions fill up, and writes block until the service times out.
    let end = loop {
        if let Err(error) = write_frame(&mut stream, &Ask::Ranks) {
            break error;
        }
    };
    let FrameError::Io(error) = end else { panic!("{end}") };
    assert!(matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset), "{error}");
    assert_eq!(node.connect().unwrap().local_rank_count().unwrap(), 20_000);
}

/// Not even a process that has left its rank's descendants, whatever it knows of the daemon except the token.
#[test]
fn a_process_without_the_daemons_token_opens_no_channel() {
    let node = Fixture::new();
    let address = Address { token: token(1, 6), ..node.address() };
    match Backend::connect_to(&address, DEADLINE) {
        Err(Error::Refused(why)) => {
            assert!(why.kind() == Kind::NoAccess && why.message().contains("token"), "{why}");
            assert!(!why.message().contains(&token(1, 5)), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_socket_path_that_is_taken_is_a_failure() {
    let node = Fixture::new();
    let (_view, receiver) = watch::channel(a_view());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let failure = runtime.block_on(async { Service::bind(&node.socket, receiver, None) }).unwrap_err();
    assert!(failure.message().contains("agent.sock"), "{failure}");
}

/// Once, the service then waited for the end of another connection, and daemons keep theirs.
#[test]
fn a_daemon_is_served_after_descriptors_were_short_while_another_stays() {
    if rerun_alone("service::tests::a_daemon_is_served_after_descriptors_were_short_while_another_stays") {
        return;
    }
    let fixture = Fixture::with(Limits { patience: 10 * DEADLINE, ..LIMITS }, "");
    let _stays = fixture.connect().unwrap();
    let mut stream = without_descriptors(|| fixture.raw());
    stream.write_all(&[0xff; ASKS.pending]).unwrap();
    refusal(&mut stream);
}
