//! The suite for a client of task management. Each case runs as the script of a job with three hosts of two nodes
//! each, against any mom.

use std::collections::BTreeSet;
use std::future::Future;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use gantry_wlm::pbs::tm::blocking::{Polled, Session, attach};
use gantry_wlm::pbs::tm::reply::Answer;
use gantry_wlm::pbs::tm::{
    Client, Command, Cookie, Environment, Framing, Loss, NodeId, Spawn, Task, TaskId, TmError,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::task::{DONE, SOON};
use crate::proc;

/// How long to wait for an event that must not come.
const NEVER: Duration = Duration::from_millis(700);

/// Nodes of each host.
const PER_HOST: i32 = 2;
/// Hosts of the job.
const HOSTS: i32 = 3;
/// A node of the own host.
const HERE: NodeId = NodeId(0);
/// A node of another host.
const THERE: NodeId = NodeId(2);
/// A node of the last host.
const LAST: NodeId = NodeId(4);

/// The resources of a case.
#[derive(Debug, Clone)]
pub struct Context {
    /// The script's place in its job.
    pub environment: Environment,
    /// The program that plays tasks, on every host.
    pub probe: PathBuf,
}

type Running = Pin<Box<dyn Future<Output = ()>>>;

/// A case: its name, and its function, which panics on failure.
pub type Case = (&'static str, fn(Context) -> Running);

macro_rules! cases {
    ($($name:ident,)*) => {
        /// All cases, in the order in which they are run.
        pub const CASES: &[Case] = &[$((stringify!($name), |context| Box::pin($name(context))),)*];
    };
}

cases![
    a_script_learns_its_nodes_and_has_no_parent_task,
    a_task_runs_on_every_host_and_its_end_is_told,
    a_program_that_is_not_there_is_started_and_ends_with_254,
    missing_things_are_not_found_on_the_own_host_and_on_others,
    an_invalid_request_is_refused_with_the_reason,
    signals_reach_the_session_and_the_dead_do_not_complain,
    published_bytes_are_read_unchanged,
    another_hosts_task_is_a_caller_too,
    a_task_has_its_own_identity_and_the_variables_that_it_was_sent,
    tasks_are_listed_and_hosts_described,
    ends_are_reported_to_all_and_to_late_callers,
    a_thousand_requests_are_under_way,
    blocking_requests_end_in_the_order_of_their_answers,
    an_untrusted_caller_is_disconnected,
    a_request_that_no_pbs_carries_out_is_refused,
    a_session_is_attached_once_and_asks_only_its_own_host,
];

impl Context {
    async fn client(&self) -> Client {
        Client::connect(&self.environment, Framing::Packets, SOON).await.expect("a mom")
    }

    fn play(&self, words: &[&str]) -> Spawn {
        let probe = [self.probe.as_os_str(), "task".as_ref()];
        Spawn::new(probe.into_iter().chain(words.iter().map(AsRef::as_ref)))
    }
}

fn shell(script: &str) -> Spawn {
    Spawn::new(["/bin/sh", "-c", script])
}

#[track_caller]
fn code<T: std::fmt::Debug>(outcome: Result<T, TmError>) -> i32 {
    match outcome {
        Err(TmError::Refused { code, .. }) => code.0,
        other => panic!("a refusal was to come: {other:?}"),
    }
}

async fn a_script_learns_its_nodes_and_has_no_parent_task(context: Context) {
    let client = context.client().await;
    let expected: Vec<NodeId> = (0..HOSTS * PER_HOST).map(NodeId).collect();
    assert_eq!(client.nodes().ids(), expected);
    let hosts = client.nodes().one_per_host().expect("a node file");
    assert_eq!(hosts.iter().map(|(node, _)| *node).collect::<Vec<_>>(), [HERE, THERE, LAST]);
    let names: BTreeSet<&str> = hosts.iter().map(|(_, name)| *name).collect();
    assert_eq!(names.len(), 3);
    let roots = client.roots();
    let again = client.ask_by(Command::Init, SOON).await.expect("again");
    assert_eq!(again, Answer::Init(roots.clone()));
    assert_eq!((roots.parent_node, roots.parent_task), (-1, 0));
    assert_eq!(roots.parent_job, context.environment.caller.job);
    assert!(!roots.is_attached());
}

async fn a_task_runs_on_every_host_and_its_end_is_told(context: Context) {
    let client = context.client().await;
    for (node, status) in [(HERE, 0), (THERE, 3), (LAST, 255)] {
        let task = client.spawn(node, shell(&format!("exit {status}")), SOON).await.expect("a task");
        assert_eq!(task.node, node);
        assert_eq!(client.obit(task).await.expect("an end"), status);
    }
    // A program without a slash is looked for, and arguments may be anything.
    let odd = Spawn::new([
        "sh",
        "-c",
        "[ \"$1\" = '' ] && [ \"$2\" = \"a\nb'\\\"\" ] && exit 7",
        "x",
        "",
        "a\nb'\"",
    ]);
    let task = client.spawn(LAST, odd, SOON).await.expect("a task");
    assert_eq!(client.obit(task).await.expect("an end"), 7);
}

async fn a_program_that_is_not_there_is_started_and_ends_with_254(context: Context) {
    let client = context.client().await;
    for node in [HERE, LAST] {
        let task = client.spawn(node, Spawn::new(["/nonexistent/program"]), SOON).await.expect("TM says yes");
        assert_eq!(client.obit(task).await.expect("an end"), 254);
    }
}

async fn missing_things_are_not_found_on_the_own_host_and_on_others(context: Context) {
    let client = context.client().await;
    let beyond = NodeId(HOSTS * PER_HOST);
    assert_eq!(code(client.spawn(beyond, shell("exit"), SOON).await), 17006);
    assert_eq!(code(client.task_info(NodeId(99), SOON).await), 17006);
    for (node, expected) in [(HERE, 17006), (LAST, 15009)] {
        let missing = Task { id: TaskId(0x0fff_ffff), node };
        assert_eq!(code(client.kill(missing, 0, SOON).await), expected);
        assert_eq!(code(client.obit(missing).await), expected);
        let task = client.spawn(node, shell("exit"), SOON).await.expect("a task");
        let refused = client.subscribe(task, b"no such name", SOON).await.expect_err("nothing is there");
        assert!(
            matches!(&refused, TmError::Refused { code, .. } if code.is_not_found() && code.0 == expected)
        );
        assert!(refused.to_string().contains("no such"), "{refused}");
        // A node of another host than the task's.
        let elsewhere = Task { id: task.id, node: if node == HERE { LAST } else { HERE } };
        assert_eq!(code(client.kill(elsewhere, 0, SOON).await), if node == HERE { 15009 } else { 17006 });
    }
}

async fn an_invalid_request_is_refused_with_the_reason(context: Context) {
    let client = context.client().await;
    let sized = |bytes: usize| shell("[ ${#LONG} -gt 59000 ] && exit 9").variable("LONG", "x".repeat(bytes));
    let error = client.spawn(LAST, sized(60_000), SOON).await.expect_err("too large");
    assert!(matches!(error, TmError::TooLarge { most: 60_000, .. }), "{error}");
    assert!(error.to_string().contains("60000"), "{error}");
    // The largest that is sent arrives, again and again.
    for node in [HERE, THERE, LAST, HERE, THERE, LAST] {
        let task = client.spawn(node, sized(59_700), SOON).await.expect("a task");
        assert_eq!(client.obit(task).await.expect("an end"), 9);
    }
    for command in [
        Command::Tasks { node: NodeId(-1) },
        Spawn::new(["a\0b"]).on(HERE),
        Spawn::new([""]).on(HERE),
        Command::Spawn {
            node: HERE,
            argv: vec![b"true".to_vec()],
            variables: vec![b"no equals sign".to_vec()],
        },
    ] {
        let error = client.ask_by(command, SOON).await.expect_err("nonsense");
        assert!(matches!(error, TmError::Invalid { .. }), "{error}");
    }
    client.ask_by(Command::Init, SOON).await.expect("the connection still stands");
}

async fn signals_reach_the_session_and_the_dead_do_not_complain(context: Context) {
    let client = context.client().await;
    for node in [HERE, LAST] {
        for (signal, status) in [(libc::SIGTERM, 271), (libc::SIGKILL, 265)] {
            let task = client.spawn(node, Spawn::new(["/bin/sleep", "300"]), SOON).await.expect("a task");
            client.kill(task, signal, SOON).await.expect("sent");
            assert_eq!(client.obit(task).await.expect("an end"), status);
            client.kill(task, signal, SOON).await.expect("it is dead already");
        }
        // A stopped task continues where it was.
        let task = client.spawn(node, shell("kill -STOP $$; exit 5"), SOON).await.expect("a task");
        let end = client.obit(task);
        tokio::pin!(end);
        assert!(timeout(NEVER, &mut end).await.is_err(), "a stopped task does not end");
        client.kill(task, libc::SIGCONT, SOON).await.expect("sent");
        assert_eq!(end.await.expect("an end"), 5);
    }
}

async fn published_bytes_are_read_unchanged(context: Context) {
    let client = context.client().await;
    let own = Task { id: context.environment.caller.task, node: HERE };
    let long = vec![0xfe; 50_000];
    for info in [&b"a\0b\xff"[..], b"", &long, b"the last"] {
        client.publish(b"name", info, SOON).await.expect("left");
        assert_eq!(client.subscribe(own, b"name", SOON).await.expect("read"), info);
    }
    let error = client.publish(b"name", &vec![0; 60_000], SOON).await.expect_err("too large");
    assert!(matches!(error, TmError::TooLarge { .. }), "{error}");
    let task =
        client.spawn(LAST, context.play(&["publish", "place", "over there"]), SOON).await.expect("a task");
    let read = loop {
        // A read does not wait, so it is repeated until the other task has published the data.
        match client.subscribe(task, b"place", SOON).await {
            Err(TmError::Refused { code, .. }) if code.is_not_found() => sleep(NEVER / 20).await,
            other => break other,
        }
    };
    assert_eq!(read.expect("read"), b"over there");
    client.kill(task, libc::SIGKILL, SOON).await.expect("sent");
    assert_eq!(client.obit(task).await.expect("an end"), 265);
}

async fn another_hosts_task_is_a_caller_too(context: Context) {
    let client = context.client().await;
    for node in [HERE, THERE, LAST] {
        let task = client.spawn(node, context.play(&["back"]), SOON).await.expect("a task");
        assert_eq!(client.obit(task).await.expect("an end"), DONE, "from {node}");
        let task = client.spawn(node, context.play(&["parent", "0", "1"]), SOON).await.expect("a task");
        assert_eq!(client.obit(task).await.expect("an end"), DONE, "on {node}");
    }
}

async fn a_task_has_its_own_identity_and_the_variables_that_it_was_sent(context: Context) {
    let client = context.client().await;
    let given =
        [("COLOUR", "green"), ("EMPTY", ""), ("PBS_TASKNUM", "00000001"), ("PBS_JOBCOOKIE", "not this")];
    for node in [HERE, LAST] {
        for (words, expected) in [
            (["variable", "COLOUR", "green"], DONE),
            (["variable", "EMPTY", ""], DONE),
            (["not-variable", "PBS_TASKNUM", "00000001"], DONE),
            (["not-variable", "PBS_JOBCOOKIE", "not this"], DONE),
        ] {
            let program = context.play(&words).inherit(given);
            let task = client.spawn(node, program, SOON).await.expect("a task");
            assert_eq!(client.obit(task).await.expect("an end"), expected, "{words:?} on {node}");
        }
    }
}

async fn tasks_are_listed_and_hosts_described(context: Context) {
    let client = context.client().await;
    for (index, node) in [HERE, THERE, LAST].into_iter().enumerate() {
        let task = client.spawn(node, shell("exit"), SOON).await.expect("a task");
        client.obit(task).await.expect("an end");
        assert!(
            client.task_info(node, SOON).await.expect("a list").contains(&task),
            "those that have ended too"
        );
        let answer = client.ask_by(Command::Resources { node }, SOON).await;
        let Ok(Answer::Resources(text)) = answer else { panic!("a text was to come: {answer:?}") };
        let host = client.nodes().all()[index * 2].host.clone().expect("a node file");
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(text.starts_with("Linux ") && text.contains(&host) && text.contains(":"), "{text}");
    }
    let script = Task { id: TaskId::SCRIPT, node: HERE };
    assert!(client.task_info(HERE, SOON).await.expect("a list").contains(&script));
}

async fn ends_are_reported_to_all_and_to_late_callers(context: Context) {
    let client = context.client().await;
    let task = client.spawn(LAST, Spawn::new(["/bin/sleep", "300"]), SOON).await.expect("a task");
    let other = context.client().await;
    let killed = async {
        // Dropping a future cancels its request and no other request.
        assert!(timeout(NEVER, other.obit(task)).await.is_err());
        client.kill(task, libc::SIGKILL, SOON).await.expect("sent");
    };
    let (first, second, third, ()) =
        tokio::join!(client.obit(task), client.obit(task), other.obit(task), killed);
    assert_eq!((first.expect("told"), second.expect("told"), third.expect("told")), (265, 265, 265));
    drop(client);
    let late = context.client().await;
    assert_eq!(late.obit(task).await.expect("told"), 265);
}

async fn a_thousand_requests_are_under_way(context: Context) {
    let client = Arc::new(context.client().await);
    let mut running = JoinSet::new();
    // More than a mom could take at once.
    for node in [HERE, THERE, LAST].into_iter().cycle().take(1000) {
        let client = Arc::clone(&client);
        running.spawn(async move {
            let program = shell("exit 11").variable("PADDING", "p".repeat(400));
            let task = client.spawn(node, program, SOON * 6).await.expect("a task");
            assert_eq!(client.obit(task).await.expect("an end"), 11);
            task.id
        });
    }
    let tasks = timeout(SOON * 6, running.join_all()).await.expect("in time");
    assert_eq!(tasks.into_iter().collect::<BTreeSet<_>>().len(), 1000, "no task comes twice");
}

async fn blocking_requests_end_in_the_order_of_their_answers(context: Context) {
    let client = context.client().await;
    let task = client.spawn(LAST, Spawn::new(["/bin/sleep", "300"]), SOON).await.expect("a task");
    let mut session = Session::start(context.environment, Framing::Packets, SOON).expect("a mom");
    let error = session.begin(&Command::Tasks { node: NodeId(-5) }).expect_err("nonsense");
    assert!(matches!(error, TmError::Invalid { .. }), "{error}");
    let mut begin = |command: Command| session.begin(&command).expect("sent");
    // Asked first, answered last.
    let end = begin(Command::Obit { node: LAST, task: task.id });
    let tasks = begin(Command::Tasks { node: LAST });
    let bad = begin(Command::Tasks { node: NodeId(99) });
    let kill = begin(Command::Signal { node: LAST, task: task.id, signal: libc::SIGKILL });
    let mut order = Vec::new();
    while order.len() < 4 {
        if let Some(arriving) = session.readable().expect("a descriptor") {
            let mut arriving = [PollFd::new(arriving.as_fd(), PollFlags::POLLIN)];
            let limit = PollTimeout::try_from(SOON).expect("a time");
            assert_eq!(poll(&mut arriving, limit), Ok(1), "only {order:?} have ended");
        }
        let ended = match session.poll(false).expect("the connection stands") {
            Polled::Ended(ended) => ended,
            Polled::NotYet => continue,
            Polled::Idle => panic!("only {order:?} have ended"),
        };
        assert_eq!(ended.outcome.is_err(), ended.event == bad, "{ended:?}");
        order.push(ended.event);
    }
    let place = |event| order.iter().position(|other| *other == event).expect("it has ended");
    assert!(place(end) > place(tasks) && order.contains(&kill), "{order:?}");
}

async fn an_untrusted_caller_is_disconnected(context: Context) {
    let mut wrong_cookie = context.environment.clone();
    wrong_cookie.caller.cookie = Cookie::new("0".repeat(32));
    let mut wrong_job = context.environment.clone();
    wrong_job.caller.job = b"99999.nowhere".to_vec();
    for environment in [wrong_cookie, wrong_job] {
        let error = Client::connect(&environment, Framing::Packets, SOON).await.expect_err("not trusted");
        assert!(matches!(error, TmError::Lost { loss: Loss::Distrust, .. }), "{error}");
        assert_eq!(error.kind(), gantry_types::error::Kind::NoAccess);
    }
    let mut unknown = context.environment.clone();
    unknown.caller.task = TaskId(0x0fff_fff0);
    assert_eq!(code(Client::connect(&unknown, Framing::Packets, SOON).await), 17006);
    let mut nowhere = context.environment.clone();
    nowhere.port = 1;
    let error = Client::connect(&nowhere, Framing::Packets, SOON).await.expect_err("no mom is there");
    assert!(matches!(error, TmError::Connect { .. }), "{error}");
    // A client with the old servers' framing gets no answer.
    let error = Client::connect(&context.environment, Framing::Bare, NEVER).await.expect_err("not heard");
    assert!(matches!(error, TmError::TimedOut { .. }), "{error}");
}

async fn a_request_that_no_pbs_carries_out_is_refused(context: Context) {
    for (number, expected) in [(108, 17003), (109, 17004), (112, 17003), (555, 17003)] {
        let client = context.client().await;
        assert_eq!(code(client.ask_by(Command::Other { number, node: HERE }, SOON).await), expected);
        // Then the mom disconnects; the next request and all later ones fail.
        loop {
            match client.ask_by(Command::Init, SOON).await {
                Ok(_) => {}
                Err(TmError::Lost { loss: Loss::HungUp, .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
        let again = client.ask_by(Command::Init, SOON).await.expect_err("the connection is gone");
        assert!(matches!(again, TmError::Lost { .. }), "{again}");
    }
}

async fn a_session_is_attached_once_and_asks_only_its_own_host(context: Context) {
    let mut sleeper = std::process::Command::new("setsid").args(["sleep", "300"]).spawn().expect("setsid");
    let pid = i32::try_from(sleeper.id()).expect("a pid");
    let leads = || proc::stat(pid).is_some_and(|stat| stat.session == pid);
    proc::eventually(SOON, "setsid leads a session", leads);
    let job = context.environment.caller.job.clone();
    let port = context.environment.port;
    let uid = nix::unistd::geteuid().as_raw();
    let task = attach(&job, uid, pid, port, SOON).expect("attached");
    assert_eq!(code(attach(&job, uid, pid, port, SOON)), 17008);
    assert_eq!(code(attach(&job, uid, i32::MAX, port, SOON)), 17011);
    let mut environment = context.environment.clone();
    environment.caller.task = task;
    let attached = Client::connect(&environment, Framing::Packets, SOON).await.expect("a mom");
    assert!(attached.roots().is_attached());
    // Without a name, the client does not know which host is its own.
    let error = attached.task_info(HERE, SOON).await.expect_err("not asked");
    assert!(matches!(error, TmError::AttachedCaller { .. }), "{error}");
    let own = attached.nodes().all()[0].host.clone().expect("a node file");
    let attached = Client::connect(&environment.on_host(own), Framing::Packets, SOON).await.expect("a mom");
    attached.publish(b"name", b"info", SOON).await.expect("left");
    assert!(attached.task_info(HERE, SOON).await.expect("a list").iter().any(|listed| listed.id == task));
    let error = attached.spawn(LAST, shell("exit"), SOON).await.expect_err("not asked");
    assert!(matches!(error, TmError::AttachedCaller { .. }), "{error}");
    sleeper.kill().and_then(|()| sleeper.wait()).expect("it ends");
}
