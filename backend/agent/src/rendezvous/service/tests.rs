//! The service with real sockets, and its client library for ranks.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use gantry_backend::Error;
use gantry_backend::rendezvous::{Handle, Rendezvous};
use gantry_shared::wire::flow::Word;
use gantry_shared::wire::rendezvous::{Gate, Want};
use gantry_types::id::NodeId;
use gantry_types::placement::LocalRank;
use gantry_types::rendezvous::Resource;
use gantry_types::status::RankState;

use super::*;
use crate::service::AppFacts;
use crate::testing::{rerun_alone, without_descriptors};

/// How often the service has told that a connection was not accepted.
static NOT_ACCEPTED: AtomicUsize = AtomicUsize::new(0);

const DEADLINE: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(200);

/// A service on its own thread. Its agent gives the last item to every caller. Dropping this ends the thread.
struct Fixture {
    handle: Handle,
    owed: Owed,
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
    fn new(test: &str, limits: Limits) -> Self {
        let service = format!("gantry-test-{}-{test}", std::process::id());
        let socket = Socket::bind_name(service.clone()).unwrap();
        let owed = socket.owed();
        let (view, receiver) = watch::channel(a_view(&[4]));
        let (stop, stopped) = oneshot::channel::<()>();
        let last = std::sync::Mutex::new(Vec::new());
        let linked = std::sync::Mutex::new(None);
        let agent = move |request| match request {
            Request::Put { item, told, rank, .. } => {
                assert_eq!(rank, Rank(4));
                *last.lock().unwrap() = item;
                drop(told.send(Ok(())));
            }
            Request::Get { told, .. } => drop(told.send(Ok(Arc::new(last.lock().unwrap().clone())))),
            Request::Fence { number, .. } => panic!("fence {number}: only the agent asks that"),
            Request::Status { told, .. } => drop(told.send(Ok(Vec::new()))),
            // The agent returns a link's bytes, four at a time. A link must end before the next one opens.
            Request::Open { rank, down, .. } => {
                assert_eq!(rank, Rank(4));
                down.send(Word::Credit(4)).unwrap();
                let before = linked.lock().unwrap().replace(down);
                assert!(before.is_none(), "a link was not closed");
            }
            Request::Word { word: Word::Data { bytes, .. }, .. } => {
                assert!(bytes.0.len() <= 4, "{} bytes have come on a credit of 4", bytes.0.len());
                let given = u32::try_from(bytes.0.len()).unwrap();
                let linked = linked.lock().unwrap();
                let down = linked.as_ref().unwrap();
                down.send(Word::data(bytes.0)).unwrap();
                down.send(Word::Credit(given)).unwrap();
            }
            Request::Word { word: Word::End, .. } => drop(linked.lock().unwrap().take()),
            Request::Word { word, .. } => panic!("{word:?}"),
            Request::NotAccepted(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
                NOT_ACCEPTED.fetch_add(1, Ordering::SeqCst);
            }
            // The server of the connection sends first.
            Request::Mpi { rank, socket } => {
                assert_eq!(rank, Rank(4));
                let mut stream = StdStream::from(socket);
                stream.set_nonblocking(false).unwrap();
                stream.write_all(b"PMI").unwrap();
            }
        };
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! {
                    () = socket.serve_within(limits, receiver, agent) => {}
                    _ = stopped => {}
                }
            });
        });
        let handle = Handle { service, resource: Resource::Job };
        Self { handle, owed, view, stop: Some(stop), thread: Some(thread) }
    }

    fn client(&self) -> Rendezvous {
        Rendezvous::at(self.handle.clone())
    }

    fn knock(&self) -> StdStream {
        let address = SocketAddr::from_abstract_name(&self.handle.service).unwrap();
        let stream = StdStream::connect_addr(&address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
    }
}

/// The connection of a rank that wants to be served as an MPI program is handed over unchanged.
#[test]
fn a_rank_that_asks_for_mpi_gets_that_server_and_a_stranger_does_not() {
    let fixture = Fixture::new("mpi", LIMITS);
    let ask = |rank| {
        let of = Gate { resource: Resource::Job, expected: None };
        let mut stream = fixture.knock();
        let ask = Ask { version: VERSION, rank: Some(Rank(rank)), of, what: AskWhat::Mpi };
        stream.write_all(&frame::encode(&ask).unwrap()).unwrap();
        let mut said = Vec::new();
        stream.read_to_end(&mut said).unwrap();
        said
    };
    assert_eq!(ask(4), b"PMI");
    assert_ne!(ask(5), b"PMI", "this process is rank 4");
}

/// A view in which this process is each of these ranks.
fn a_view(ranks: &[u32]) -> View {
    let pid = Pid::new(i32::try_from(std::process::id()).unwrap()).unwrap();
    let rank = |rank: &u32| LocalRank { rank: Rank(*rank), pid, exe: "x".into(), state: RankState::Running };
    View {
        facts: AppFacts {
            wlm: "localhost".into(),
            app: "3kx9w0fz".parse().unwrap(),
            host: "here".into(),
            node: NodeId(0),
            nodes: 1,
            size: 5,
        },
        ranks: ranks.iter().map(rank).collect(),
        sessions: BTreeMap::new(),
        secret: Secret::random().unwrap(),
        daemons: BTreeMap::new(),
    }
}

/// The one answer to these bytes; the connection must end after it.
fn answer_to(stream: &mut StdStream, said: &[u8]) -> Vec<u8> {
    // The service may refuse the client before it has read all bytes.
    drop(stream.write_all(said));
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer));
    answer
}

#[test]
fn what_was_registered_is_what_is_got() {
    let fixture = Fixture::new("same", LIMITS);
    for bytes in [0, 1, CHUNK_BYTES + 1, 3_000_000] {
        let item = vec![0xa5; bytes];
        fixture.client().register(&item, DEADLINE).unwrap();
        assert_eq!(fixture.client().as_rank(Rank(4)).get_all(DEADLINE).unwrap(), item);
    }
    let error = fixture.client().as_rank(Rank(3)).register(b"", DEADLINE).unwrap_err();
    assert!(matches!(&error, Error::Refused(why) if why.message().contains("belongs to rank 4")), "{error}");
    let error = fixture.client().register(&vec![0; 17 * 1024 * 1024], DEADLINE).unwrap_err();
    assert!(matches!(&error, Error::Refused(why) if why.message().contains("at most 16777216")), "{error}");
}

#[test]
fn who_has_asked_is_owed_an_answer_until_all_of_it_is_written() {
    let fixture = Fixture::new("owed", LIMITS);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let nothing_owed = |patience| runtime.block_on(fixture.owed.nothing(patience));
    let item = vec![0xa5; 8_000_000];
    fixture.client().register(&item, DEADLINE).unwrap();
    assert!(nothing_owed(DEADLINE));
    let mut slow = fixture.knock();
    slow.write_all(&frame::encode(&ask_for(AskWhat::Get(Want::All))).unwrap()).unwrap();
    slow.read_exact(&mut [0]).unwrap();
    assert!(!nothing_owed(SHORT));
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest).unwrap();
    assert!(rest.ends_with(&item));
    assert!(nothing_owed(DEADLINE));
}

#[test]
fn who_takes_an_answer_slowly_gets_all_of_it() {
    let fixture = Fixture::new("slowly", LIMITS);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let item = vec![0xa5; 8_000_000];
    fixture.client().register(&item, DEADLINE).unwrap();
    let mut slow = fixture.knock();
    slow.write_all(&frame::encode(&ask_for(AskWhat::Get(Want::All))).unwrap()).unwrap();
    slow.read_exact(&mut [0]).unwrap();
    let reader = std::thread::spawn(move || {
        // Each part comes within the patience, and all of them together take longer.
        let (_open, never) = std::sync::mpsc::channel::<()>();
        let mut part = vec![0; CHUNK_BYTES];
        let mut taken = 0;
        loop {
            never.recv_timeout(SHORT / 8).unwrap_err();
            match slow.read(&mut part).unwrap() {
                0 => return taken,
                read => taken += read,
            }
        }
    });
    assert!(runtime.block_on(fixture.owed.nothing(SHORT)));
    assert!(reader.join().unwrap() > item.len());
}

fn ask_for(what: AskWhat) -> Ask {
    let of = gantry_shared::wire::rendezvous::Gate { resource: Resource::Job, expected: None };
    Ask { version: VERSION, rank: None, of, what }
}

#[test]
fn a_rank_that_is_quicker_than_its_own_start_waits_and_a_stranger_is_refused() {
    let fixture = Fixture::new("quick", LIMITS);
    fixture.view.send_replace(a_view(&[]));
    let client = fixture.client();
    let quick = std::thread::spawn(move || client.register(b"x", DEADLINE));
    fixture.view.send_replace(a_view(&[4]));
    quick.join().unwrap().unwrap();
    let mut strangers = a_view(&[4]);
    strangers.ranks[0].pid = Pid::new(i32::MAX).unwrap();
    fixture.view.send_replace(strangers);
    let error = fixture.client().register(b"x", DEADLINE).unwrap_err();
    assert!(matches!(&error, Error::Refused(why) if why.kind() == Kind::NoAccess), "{error}");
}

#[test]
fn who_makes_no_sense_or_says_nothing_is_cut_off_and_others_are_served() {
    let fixture = Fixture::new("garbage", Limits { newcomers: 4, patience: SHORT, ..LIMITS });
    let mut silent: Vec<StdStream> = (0..8).map(|_| fixture.knock()).collect();
    let ask = ask_for(AskWhat::Get(Want::All));
    let good = frame::encode(&ask).unwrap();
    let old = frame::encode(&Ask { version: VERSION + 1, ..ask.clone() }).unwrap();
    let half = frame::encode(&Ask { what: AskWhat::Put { bytes: 1000 }, ..ask }).unwrap();
    for said in [&[0xff; 8][..], &[0, 0, 0, 3, 9, 9, 9], &old, &half, &[half.clone(), vec![1; 10]].concat()] {
        let answer = answer_to(&mut fixture.knock(), said);
        let tell: Tell = frame::decode(answer.get(4..).unwrap_or_default()).unwrap();
        assert!(matches!(tell, Tell::Refused(_)), "{tell:?}");
    }
    assert!(answer_to(&mut fixture.knock(), &good).len() > 4);
    fixture.client().register(b"x", DEADLINE).unwrap();
    for stream in &mut silent {
        assert!(!answer_to(stream, b"").is_empty());
    }
}

#[test]
fn an_item_that_is_announced_and_does_not_come_takes_no_room_from_others() {
    // Room for one item of the announced size. No client is cut off meanwhile.
    let patience = 10 * DEADLINE;
    let fixture = Fixture::new("announced", Limits { items_kib: 64, patience, ..LIMITS });
    let of = gantry_shared::wire::rendezvous::Gate { resource: Resource::Job, expected: None };
    let put = |bytes| {
        let ask = Ask { version: VERSION, rank: None, of: of.clone(), what: AskWhat::Put { bytes } };
        frame::encode(&ask).unwrap()
    };
    let mut announced: Vec<StdStream> = (0..8).map(|_| fixture.knock()).collect();
    for stream in &mut announced {
        stream.write_all(&put(64 * 1024)).unwrap();
    }
    fixture.client().register(b"small", DEADLINE).unwrap();
    // All items that have begun are completed, though there is room for only one.
    for stream in &mut announced {
        stream.write_all(&[7; 1000]).unwrap();
    }
    for stream in &mut announced {
        stream.write_all(&[7; 64 * 1024 - 1000]).unwrap();
    }
    for stream in &mut announced {
        let tell: Tell = frame::decode(answer_to(stream, b"").get(4..).unwrap_or_default()).unwrap();
        assert!(matches!(tell, Tell::Done), "{tell:?}");
    }
}

#[test]
fn a_link_carries_bytes_both_ways_as_far_as_there_is_credit() {
    let fixture = Fixture::new("link", LIMITS);
    let of = gantry_shared::wire::rendezvous::Gate { resource: Resource::Job, expected: None };
    let ask = frame::encode(&Ask { version: VERSION, rank: None, of, what: AskWhat::Link }).unwrap();
    let done = frame::encode(&Tell::Done).unwrap();
    for _ in 0..2 {
        let mut stream = fixture.knock();
        stream.write_all(&ask).unwrap();
        stream.write_all(b"ten bytes.").unwrap();
        let mut answer = vec![0; done.len() + 10];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [&done[..], b"ten bytes."].concat());
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(answer_to(&mut stream, b""), b"");
    }
    let mut stranger = a_view(&[4]);
    stranger.ranks[0].pid = Pid::new(i32::MAX).unwrap();
    fixture.view.send_replace(stranger);
    let answer = answer_to(&mut fixture.knock(), &ask);
    let tell: Tell = frame::decode(answer.get(4..).unwrap_or_default()).unwrap();
    assert!(matches!(tell, Tell::Refused(_)), "{tell:?}");
}

/// Once, the service then waited for the end of another connection, and ranks wait for each other.
#[test]
fn a_rank_is_served_after_descriptors_were_short_while_another_waits() {
    if rerun_alone(
        "rendezvous::service::tests::a_rank_is_served_after_descriptors_were_short_while_another_waits",
    ) {
        return;
    }
    let fixture = Fixture::new("short", Limits { patience: 10 * DEADLINE, ..LIMITS });
    let mut waits = fixture.knock();
    waits.write_all(&frame::encode(&ask_for(AskWhat::Link)).unwrap()).unwrap();
    waits.read_exact(&mut [0]).unwrap();
    let mut stream = without_descriptors(|| fixture.knock());
    let answer = answer_to(&mut stream, &frame::encode(&ask_for(AskWhat::Get(Want::All))).unwrap());
    assert!(!answer.is_empty());
    assert_eq!(NOT_ACCEPTED.load(Ordering::SeqCst), 1, "it is told once");
}
