//! The server against a stand-in app, through real sockets and the real client.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use gantry_types::filter::Filter;
use gantry_types::id::{AppId, DaemonId, Pid};
use gantry_types::rank_set::RankSet;
use gantry_types::signal::Signal;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{Notify, mpsc};

use super::*;
use crate::channel::Reduced;
use crate::control::client::{Client, RemoteChannel, list};
use crate::control::protocol::DaemonOrder;
use crate::control::target::Conversation;
use crate::event::{Ending, Exit, Staging};
use crate::info::{AppInfo, AppState};
use crate::procgroup::Numbers;

const SOON: Duration = Duration::from_secs(10);

/// A stand-in app that records its orders.
#[derive(Default)]
struct Puppet {
    signals: Mutex<Vec<(Signal, Option<RankSet>)>>,
    followers: Mutex<Vec<mpsc::UnboundedSender<Event>>>,
    ended: Mutex<bool>,
    daemon_feed: Mutex<Option<mpsc::UnboundedReceiver<Event>>>,
    /// Events that come before a daemon's start.
    before_daemon: Mutex<Vec<Event>>,
    /// Starting a daemon never ends, and keeps this sender.
    stuck: Mutex<Option<mpsc::Sender<()>>>,
    /// Lets a reduction with tag 2 end.
    late: Arc<Notify>,
}

fn id() -> AppId {
    "3kx9w0fz".parse().unwrap()
}

fn label() -> GroupLabel {
    GroupLabel { pgid: 7, submitter: "me".to_owned() }
}

fn exit() -> Exit {
    Exit { app: id(), ranks: Vec::new(), code: 7, cause: None }
}

fn number(daemon: u32, order: &DaemonOrder) -> DaemonNumber {
    let left_out = if order.leave_out { vec!["n2".to_owned()] } else { Vec::new() };
    DaemonNumber { daemon: DaemonId(daemon), left_out }
}

impl Puppet {
    fn say(&self, event: &Event) {
        self.followers.lock().unwrap().retain(|follower| follower.send(event.clone()).is_ok());
    }

    fn end(&self) {
        *self.ended.lock().unwrap() = true;
        self.say(&Event::Exited(exit()));
        self.followers.lock().unwrap().clear();
    }
}

struct Puppeteer(mpsc::UnboundedReceiver<Event>);

#[async_trait]
impl Feed for Puppeteer {
    async fn next(&mut self) -> Option<Event> {
        self.0.recv().await
    }
}

#[async_trait]
impl Target for Puppet {
    fn info(&self) -> AppInfo {
        AppInfo {
            app: id(),
            wlm: "none".to_owned(),
            state: AppState::Held,
            attached: false,
            owner: Pid::new(1).unwrap(),
            command: Vec::new(),
            job: None,
            ranks: Vec::new(),
            left_out: Vec::new(),
            daemons: Vec::new(),
            staging: Vec::new(),
            exit: None,
        }
    }

    fn events(&self) -> Box<dyn Feed> {
        let (sender, receiver) = mpsc::unbounded_channel();
        match *self.ended.lock().unwrap() {
            true => sender.send(Event::Exited(exit())).unwrap(),
            false => self.followers.lock().unwrap().push(sender),
        }
        Box::new(Puppeteer(receiver))
    }

    fn sessions(&self) -> Numbers {
        Numbers::new()
    }

    fn forget(&self) -> Result<()> {
        Err(Error::invalid("it has not ended"))
    }

    async fn release(&self, _deadline: Duration) -> Result<()> {
        Err(Error::invalid("the app is not held"))
    }

    async fn signal(&self, signal: Signal, ranks: Option<&RankSet>, _deadline: Duration) -> Result<()> {
        self.signals.lock().unwrap().push((signal, ranks.cloned()));
        Ok(())
    }

    async fn kill(&self, _deadline: Duration) -> Result<Exit> {
        self.end();
        Ok(exit())
    }

    async fn start_daemon(
        &self,
        order: DaemonOrder,
        news: mpsc::Sender<Event>,
        _deadline: Duration,
    ) -> Result<(DaemonNumber, Box<dyn Feed>)> {
        let before = std::mem::take(&mut *self.before_daemon.lock().unwrap());
        for event in before {
            news.send(event).await.unwrap();
        }
        let stuck = self.stuck.lock().unwrap().take();
        if let Some(_tells_its_end) = stuck {
            std::future::pending::<()>().await;
        }
        let feed = self.daemon_feed.lock().unwrap().take().unwrap();
        Ok((number(3, &order), Box::new(Puppeteer(feed))))
    }

    async fn open_channel(
        &self,
        order: DaemonOrder,
        _deadline: Duration,
    ) -> Result<(DaemonNumber, Box<dyn Conversation>)> {
        let late = Arc::clone(&self.late);
        Ok((number(4, &order), Box::new(Echo { late, ..Echo::default() })))
    }
}

/// Contributes the last message.
#[derive(Default)]
struct Echo {
    last: Mutex<Vec<u8>>,
    late: Arc<Notify>,
}

#[async_trait]
impl Conversation for Echo {
    async fn broadcast(&self, _tag: u32, bytes: &[u8], _deadline: Duration) -> Result<()> {
        bytes.clone_into(&mut self.last.lock().unwrap());
        Ok(())
    }

    async fn reduce(&self, tag: u32, _filter: Filter, _deadline: Duration) -> Result<Reduced> {
        if tag == 2 {
            self.late.notified().await;
        }
        Ok(Reduced { bytes: self.last.lock().unwrap().clone(), contributed: 1, missing: Vec::new() })
    }
}

#[tokio::test]
async fn a_channel_carries_messages_and_nothing_else() {
    let stage = stage();
    let client = Client::connect(&stage.registry, id()).await.unwrap();
    let mut channel = client.channel(DaemonOrder::default(), SOON).await.unwrap();
    assert_eq!((channel.daemon(), channel.left_out().len()), (DaemonId(4), 0));
    channel.broadcast(1, &[0, 0x1f, 0xff], SOON).await.unwrap();
    let reduced = channel.reduce(1, Filter::PrefixTree, SOON).await.unwrap();
    assert_eq!((reduced.bytes, reduced.contributed), (vec![0, 0x1f, 0xff], 1));
    drop(channel);
    let order = DaemonOrder { leave_out: true, ..DaemonOrder::default() };
    let client = Client::connect(&stage.registry, id()).await.unwrap();
    assert_eq!(client.channel(order, SOON).await.unwrap().left_out(), ["n2"]);
    let refused = within(raw(&stage, b"{\"do\":\"reduce\",\"tag\":1,\"filter\":\"sum\"}\n")).await;
    assert!(refused.contains("no channel is open"), "{refused}");
    let mut stream = BufReader::new(stage.registry.connect(id(), Shelf::Live).await.unwrap());
    let mut answers = String::new();
    for ask in ["{\"do\":\"channel\"}\n", "{\"do\":\"info\"}\n"] {
        stream.write_all(ask.as_bytes()).await.unwrap();
        within(stream.read_line(&mut answers)).await.unwrap();
    }
    let answers: Vec<&str> = answers.lines().collect();
    assert_eq!(answers[0], "{\"ok\":{\"daemon\":4}}");
    assert!(answers[1].contains("and nothing else"), "{answers:?}");
    // A client that leaves while it waits is released, whatever else it has asked.
    let waits = "{\"do\":\"reduce\",\"tag\":2,\"filter\":\"sum\"}\n";
    stream.write_all(waits.repeat(2).as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut rest = String::new();
    assert_eq!(within(stream.read_to_string(&mut rest)).await.unwrap(), 0, "{rest}");
}

/// A channel that carries `message`, and owes the answer of a reduction that is late.
async fn late_channel(stage: &Stage, message: &[u8]) -> RemoteChannel {
    let client = Client::connect(&stage.registry, id()).await.unwrap();
    let mut channel = client.channel(DaemonOrder::default(), SOON).await.unwrap();
    channel.broadcast(1, message, SOON).await.unwrap();
    let late = channel.reduce(2, Filter::PrefixTree, SOON).await.unwrap_err();
    assert_eq!(late.kind(), Kind::TimedOut);
    channel
}

#[tokio::test(start_paused = true)]
async fn a_reduction_that_is_late_does_not_end_the_channel() {
    let stage = stage();
    let mut channel = late_channel(&stage, &[1]).await;
    assert_eq!(channel.broadcast(1, &[7], SOON).await.unwrap_err().kind(), Kind::TimedOut);
    stage.puppet.late.notify_one();
    assert_eq!(channel.reduce(1, Filter::PrefixTree, SOON).await.unwrap().bytes, [7]);
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_and_a_request_of_more_than_a_socket_takes_cross_each_other() {
    let (stage, large) = (stage(), vec![7; 500_000]);
    let mut channel = late_channel(&stage, &large).await;
    stage.puppet.late.notify_one();
    channel.broadcast(1, &large, SOON).await.unwrap();
}

struct Stage {
    puppet: Arc<Puppet>,
    registry: Registry,
    socket: ControlSocket,
    _dir: tempfile::TempDir,
}

fn stage() -> Stage {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::open(Some(&dir.path().join("r"))).unwrap();
    let puppet = Arc::new(Puppet::default());
    let socket =
        serve_target(id(), Arc::clone(&puppet) as Arc<dyn Target>, &registry, label(), Shelf::Live).unwrap();
    Stage { puppet, registry, socket, _dir: dir }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(SOON, future).await.expect("no answer in time")
}

/// Sends `lines` and returns the first line of the answer.
async fn raw(stage: &Stage, lines: &[u8]) -> String {
    let mut stream = stage.registry.connect(id(), Shelf::Live).await.unwrap();
    // The server may disconnect within a line that is too long.
    drop(stream.write_all(lines).await);
    let mut answer = String::new();
    within(BufReader::new(stream).read_line(&mut answer)).await.unwrap();
    answer
}

#[tokio::test]
async fn requests_one_after_the_other_on_one_connection() {
    let stage = stage();
    let mut client = Client::connect(&stage.registry, id()).await.unwrap();
    assert_eq!(client.info(SOON).await.unwrap().state, AppState::Held);
    let refused = client.release(SOON).await.unwrap_err();
    assert_eq!((refused.kind(), refused.to_string().as_str()), (Kind::Invalid, "the app is not held"));
    let ranks: RankSet = "0-3,7".parse().unwrap();
    client.signal(Signal::TERM, Some(&ranks), SOON).await.unwrap();
    assert_eq!(*stage.puppet.signals.lock().unwrap(), [(Signal::TERM, Some(ranks))]);
    assert_eq!(client.kill(SOON).await.unwrap(), exit());
    client.gone(SOON).await.unwrap();
}

#[tokio::test]
async fn the_listing_shows_the_app_until_it_is_gone() {
    let stage = stage();
    let listing = list(&stage.registry, SOON).await.unwrap();
    assert_eq!(listing.apps, [stage.puppet.info()]);
    assert_eq!(Client::find(&stage.registry, Some("3K")).await.unwrap().app(), id());
    assert_eq!(Client::find(&stage.registry, None).await.unwrap().app(), id());
    stage.puppet.end();
    within(stage.socket.close()).await;
    assert_eq!(list(&stage.registry, SOON).await.unwrap(), Default::default());
    assert_eq!(Client::find(&stage.registry, None).await.unwrap_err().kind(), Kind::NotFound);
}

#[tokio::test]
async fn a_dropped_socket_is_gone_at_once() {
    let stage = stage();
    let path = stage.registry.socket_path(id());
    assert!(path.exists());
    drop(stage.socket);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_stopped_frontend_is_listed_as_silent() {
    let stage = stage();
    let other: AppId = "aaaaaaaa".parse().unwrap();
    let _deaf = stage.registry.bind(other, Shelf::Live).unwrap();
    let listing = list(&stage.registry, Duration::from_millis(200)).await.unwrap();
    assert_eq!((listing.apps.len(), listing.silent), (1, vec![other]));
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_is_skipped_and_a_request_that_was_given_up_is_sent_whole() {
    let stage = stage();
    let other: AppId = "aaaaaaaa".parse().unwrap();
    let ear = UnixListener::from_std(stage.registry.bind(other, Shelf::Live).unwrap()).unwrap();
    let client = Client::connect(&stage.registry, other).await.unwrap();
    let mut stream = BufReader::new(ear.accept().await.unwrap().0);
    stream.write_all(b"{\"ok\":{\"daemon\":4}}\n").await.unwrap();
    let mut channel = client.channel(DaemonOrder::default(), SOON).await.unwrap();
    // More than the socket takes at once.
    let late = channel.broadcast(1, &[0; 500_000], SOON).await.unwrap_err();
    assert_eq!(late.kind(), Kind::TimedOut);
    let answering = async {
        let late = "{\"event\":\"of_tomorrow\"}\n{\"error\":{\"kind\":\"gone\",\"message\":\"late\"}}";
        for (request, answer) in [("channel", ""), ("broadcast", late), ("broadcast", r#"{"ok":null}"#)] {
            let mut line = String::new();
            stream.read_line(&mut line).await.unwrap();
            assert!(parse_request(line.as_bytes()).is_ok() && line.contains(request), "{line:.99}");
            stream.write_all(format!("{answer}\n").trim_start().as_bytes()).await.unwrap();
        }
    };
    let (sent, ()) = tokio::join!(channel.broadcast(2, &[1], SOON), answering);
    sent.unwrap();
    drop(stream);
    assert_eq!(channel.broadcast(3, &[1], SOON).await.unwrap_err().kind(), Kind::Lost);
}

#[tokio::test]
async fn a_waiter_gets_the_end_and_a_follower_gets_everything() {
    let stage = stage();
    let mut follower = Client::connect(&stage.registry, id()).await.unwrap().events(SOON).await.unwrap();
    let waiter = tokio::spawn(Client::connect(&stage.registry, id()).await.unwrap().wait());
    // The server itself, the follower and the waiter.
    within(async {
        while stage.puppet.followers.lock().unwrap().len() < 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    stage.puppet.say(&Event::Released { app: id() });
    stage.puppet.end();
    assert_eq!(within(waiter).await.unwrap().unwrap(), exit());
    assert_eq!(within(follower.next()).await.unwrap().unwrap(), Event::Released { app: id() });
    assert_eq!(within(follower.next()).await.unwrap().unwrap(), Event::Exited(exit()));
    assert!(within(follower.next()).await.is_none());
}

#[tokio::test]
async fn a_client_that_has_connected_when_the_app_ends_hears_how_it_ended() {
    // Which of the two the server sees first, the client or the end, depends on timing.
    for _ in 0..20 {
        let stage = stage();
        let seen = Client::connect(&stage.registry, id()).await.unwrap();
        tokio::task::yield_now().await;
        let unseen = Client::connect(&stage.registry, id()).await.unwrap();
        stage.puppet.end();
        assert_eq!(within(unseen.wait()).await.unwrap(), exit());
        assert_eq!(within(seen.wait()).await.unwrap(), exit());
    }
}

#[tokio::test]
async fn a_daemons_news_come_and_its_client_leaving_is_seen() {
    let stage = stage();
    let (news, feed) = mpsc::unbounded_channel();
    *stage.puppet.daemon_feed.lock().unwrap() = Some(feed);
    let client = Client::connect(&stage.registry, id()).await.unwrap();
    let order = DaemonOrder { program: "d".into(), forward: true, leave_out: true, ..Default::default() };
    let (daemon, left_out, mut events) = client.daemon(order, SOON, drop).await.unwrap();
    assert_eq!((daemon, left_out), (DaemonId(3), vec!["n2".to_owned()]));
    let ended = Event::DaemonExited { app: id(), daemon, host: "h".to_owned(), status: Ending::default() };
    news.send(ended.clone()).unwrap();
    assert_eq!(within(events.next()).await.unwrap().unwrap(), ended);
    drop(events);
    within(news.closed()).await;
}

fn staging(bytes: u64) -> Event {
    let session = gantry_types::id::SessionId(1);
    Event::Staging(Staging { app: id(), session, bytes, total_bytes: 100, files: 1, nodes: 1 })
}

#[tokio::test]
async fn progress_before_a_daemon_runs_comes_before_the_answer() {
    let stage = stage();
    let (_news, feed) = mpsc::unbounded_channel();
    *stage.puppet.daemon_feed.lock().unwrap() = Some(feed);
    // More than the queue of a slow client holds.
    let expected: Vec<Event> = (0..20).map(staging).collect();
    stage.puppet.before_daemon.lock().unwrap().clone_from(&expected);
    let client = Client::connect(&stage.registry, id()).await.unwrap();
    let order = DaemonOrder { program: "d".into(), progress: true, ..Default::default() };
    let mut told = Vec::new();
    let (daemon, _, _events) = client.daemon(order, SOON, |event| told.push(event)).await.unwrap();
    assert_eq!((daemon, told), (DaemonId(3), expected));
}

#[tokio::test]
async fn a_daemon_that_ends_with_its_client_is_not_started_when_that_leaves_before() {
    let stage = stage();
    let (stuck, mut over) = mpsc::channel(1);
    *stage.puppet.stuck.lock().unwrap() = Some(stuck);
    stage.puppet.before_daemon.lock().unwrap().push(staging(1));
    let client = Client::connect(&stage.registry, id()).await.unwrap();
    let order = DaemonOrder { program: "d".into(), progress: true, forward: true, ..Default::default() };
    let (told, mut begun) = mpsc::channel(1);
    let asking = tokio::spawn(client.daemon(order, SOON, move |_| told.try_send(()).unwrap()));
    within(begun.recv()).await.unwrap();
    asking.abort();
    assert_eq!(within(over.recv()).await, None);
}

#[tokio::test]
async fn garbage_is_answered_and_harms_nobody() {
    let stage = stage();
    for garbage in [
        &b"garbage\n"[..],
        b"\xff\xfe\n",
        b"\n",
        b"{\"do\":\"daemon\",\"program\":7}\n",
        b"{\"version\":9}\n",
    ] {
        let answer = raw(&stage, garbage).await;
        assert!(answer.starts_with(r#"{"error":{"kind":"protocol""#), "{answer}");
    }
    let deep = [&b"["[..]; 100_000].concat();
    assert!(raw(&stage, &[&deep[..], b"\n"].concat()).await.contains("protocol"));
    let mut stream = stage.registry.connect(id(), Shelf::Live).await.unwrap();
    let long = vec![b'x'; MAX_REQUEST_BYTES + 2];
    drop(stream.write_all(&long).await);
    let mut answer = Vec::new();
    // The server disconnects with unread bytes, so the system may report a reset.
    drop(within(stream.read_to_end(&mut answer)).await);
    assert_eq!(list(&stage.registry, SOON).await.unwrap().apps.len(), 1);
}

#[tokio::test]
async fn the_client_too_many_is_told_and_a_place_becomes_free() {
    let stage = stage();
    let mut clients = Vec::new();
    for _ in 0..MAX_CLIENTS {
        let mut client = Client::connect(&stage.registry, id()).await.unwrap();
        client.info(SOON).await.unwrap();
        clients.push(client);
    }
    let mut one_more = Client::connect(&stage.registry, id()).await.unwrap();
    let refused = one_more.info(SOON).await.unwrap_err();
    assert!(matches!(refused.kind(), Kind::NoAccess | Kind::Lost), "{refused}");
    drop(clients.pop());
    within(async {
        loop {
            let mut client = Client::connect(&stage.registry, id()).await.unwrap();
            if client.info(SOON).await.is_ok() {
                return;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn clients_that_ask_nothing_make_way() {
    let stage = stage();
    let mut busy = Client::connect(&stage.registry, id()).await.unwrap();
    busy.info(SOON).await.unwrap();
    let mut silent = Vec::new();
    for _ in 0..4 * MAX_CLIENTS {
        silent.push(stage.registry.connect(id(), Shelf::Live).await.unwrap());
    }
    let mut client = Client::connect(&stage.registry, id()).await.unwrap();
    within(client.info(SOON)).await.unwrap();
    within(busy.info(SOON)).await.unwrap();
}
