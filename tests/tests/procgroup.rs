//! Process groups from the command line, on this machine: queried by their processes, signalled, killed. Queries come
//! in a line, in XML, and on a socket.

#![expect(clippy::unwrap_used, reason = "a test that finds something else fails")]

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_frontend::procgroup::xml::{Element, parse_document};
use gantry_tests::{Finished, World, eventually, in_a_world, programs};
use nix::sys::signal::Signal;

const SOON: Duration = Duration::from_secs(20);
const LIMIT: Duration = Duration::from_secs(120);

fn gantry(world: &World, args: &[&str]) -> Finished {
    world.gantry(args).wait(SOON)
}

/// The output of a command that must succeed.
#[track_caller]
fn said(world: &World, args: &[&str]) -> String {
    let done = gantry(world, args);
    assert_eq!(done.code(), 0, "{args:?}: {done:?}");
    done.stdout.join("\n")
}

/// A program that reports its signals, under another name. It is a copy, because a link would show its target.
fn copy(world: &World, name: &str) -> PathBuf {
    world.executable(name, &fs::read(programs::get("report_signal")).unwrap())
}

/// Starts a group in the background and waits until all its processes are ready. Returns the file with its output.
fn start(world: &World, program: &Path, ranks: usize, nodes: usize) -> PathBuf {
    let log = world.work_dir().join(format!("{}.log", program.file_name().unwrap().display()));
    let (program, count, nodes) = (program.display().to_string(), ranks.to_string(), nodes.to_string());
    let to = log.display().to_string();
    let before = lines(&log, "ready");
    said(world, &["launch", "--background", "--output", &to, "--", "-n", &count, "-N", &nodes, &program]);
    eventually(SOON, "ready programs", || lines(&log, "ready") == before + ranks);
    log
}

fn lines(log: &Path, line: &str) -> usize {
    fs::read_to_string(log).unwrap_or_default().lines().filter(|it| *it == line).count()
}

/// The process manager's answer to a message.
fn ask(world: &World, message: impl AsRef<[u8]>) -> Element {
    let mut run = world.gantry(["pm"]);
    run.write(message.as_ref());
    run.close_stdin();
    let done = run.wait(SOON);
    assert_eq!(done.code(), 0, "{done:?}");
    parse_document(done.stdout.join("\n").as_bytes()).unwrap()
}

fn pgids(answer: &Element) -> Vec<&str> {
    answer.all("process-group").filter_map(|group| group.attribute("pgid")).collect()
}

/// The attributes of every process of the first group, as text.
fn processes(answer: &Element) -> Vec<String> {
    let group = answer.all("process-group").next().unwrap();
    let of_one = |process: &Element| {
        let pairs = process.attributes.iter().map(|(name, value)| format!("{name}={value}"));
        pairs.collect::<Vec<_>>().join(" ")
    };
    group.all("process").map(of_one).collect()
}

#[test]
fn groups_are_found_signalled_and_killed_by_their_processes() {
    in_a_world(LIMIT, |world| {
        let (b, c) = (copy(world, "b.out"), copy(world, "c.out"));
        let (log_b, log_c) = (start(world, &b, 4, 2), start(world, &c, 1, 1));
        let host = nix::unistd::gethostname().unwrap().into_string().unwrap();
        let user = nix::unistd::User::from_uid(nix::unistd::getuid()).unwrap().unwrap().name;
        // A query by program and host, like the query of the notebook.
        let query = format!(
            "<get-process-group>
               <process-group submitter='*' pgid='*' totalprocs='*'>
                 <process-group-restriction rank='*' exec='b.out' host='{host}.%d:1-2'/>
               </process-group>
             </get-process-group>"
        );
        let answer = ask(world, &query);
        let [group] = &answer.children[..] else { panic!("{answer:?}") };
        let expected = [("submitter", user.as_str()), ("pgid", "1"), ("totalprocs", "4")];
        let found: Vec<_> = group.attributes.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(found, expected);
        // All processes of the group, not only the matching ones.
        let line = |rank: u32| format!("exec={} host={host}.{} rank={rank}", b.display(), rank / 2);
        assert_eq!(processes(&answer), (0..4).map(line).collect::<Vec<_>>());
        let count = |query: &str| said(world, &["ps", query]).lines().count() - 1;
        assert_eq!((count("exec=b.out host=nowhere"), count(&format!("host={host}"))), (0, 1));
        assert_eq!((count(&format!("submitter={user}")), count("submitter=stranger")), (2, 0));
        assert_eq!(count("exec=b.out and exec=c.out"), 0);

        let shown = said(world, &["signal", "--dry-run", "USR1", "exec=b.out"]);
        assert!(shown.lines().nth(1).unwrap().starts_with("1     "), "{shown}");
        let hit = "<signal-process-group signal='12'><process-group pgid='*'><process-group-restriction exec='c.out'/></process-group></signal-process-group>";
        assert_eq!(pgids(&ask(world, hit)), ["2"]);
        eventually(SOON, "the signal", || lines(&log_c, "got SIGUSR2") == 1);
        assert_eq!(fs::read_to_string(&log_b).unwrap(), "ready\n".repeat(4), "another group got a signal");

        assert_eq!(said(world, &["kill", "--json", "exec=b.out pgid=*"]).matches("\"pgid\":1").count(), 1);
        assert_eq!(count("pgid=*"), 0);
        let none = gantry(world, &["kill", "exec=b.out"]);
        assert_eq!(none.code(), 65, "{none:?}");
    });
}

#[test]
fn a_held_group_refuses_a_signal_and_others_get_it() {
    in_a_world(LIMIT, |world| {
        let b = copy(world, "b.out");
        said(world, &["launch", "--hold", "--background", "--", "-n", "1", &b.display().to_string()]);
        let log = start(world, &b, 1, 1);
        let answer = ask(
            world,
            "<signal-process-group signal='USR1'><process-group pgid='*'/></signal-process-group>",
        );
        assert_eq!(pgids(&answer), ["2"]);
        let trouble = answer.all("error").next().unwrap();
        assert_eq!((trouble.attribute("pgid"), trouble.attribute("kind")), (Some("1"), Some("invalid")));
        assert!(trouble.attribute("reason").unwrap().contains("is held and cannot take SIGUSR1"));
        eventually(SOON, "the signal", || lines(&log, "got SIGUSR1") == 1);
        assert_eq!(said(world, &["ps", "state=held"]).lines().count(), 2);
        said(world, &["kill", "pgid=*"]);
    });
}

#[test]
fn hostile_messages_are_answered_with_line_and_reason() {
    in_a_world(LIMIT, |world| {
        let check = |message: Vec<u8>, line: &str, part: &str| {
            let answer = ask(world, message);
            let reason = answer.attribute("reason").unwrap();
            assert!(answer.name == "error" && answer.attribute("line") == Some(line), "{answer:?}");
            assert!(reason.contains(part), "{reason}, expected {part}");
        };
        let many: String = (0..1_000_000).map(|n| format!(" x{n}='1'")).collect();
        check(b"<!DOCTYPE a [<!ENTITY b \"c\">]>\n<a>&b;</a>".to_vec(), "1", "a document type");
        check(b"<get-process-group>\n&b;</get-process-group>".to_vec(), "2", "an entity");
        check(format!("<get-process-group{many}/>").into_bytes(), "1", "more than 32 attributes");
        check("<a>\n".repeat(1_000_000).into_bytes(), "9", "more than 8 deep");
        check(b"<get-process-group>\n\xff".to_vec(), "2", "not UTF-8");
        check(b"<get-process-group>\n<process-group".to_vec(), "2", "");
        check(vec![b'x'; (16 << 20) + 1], "1", "more than 16777216 bytes");
        check(Vec::new(), "1", "no message");
    });
}

#[test]
fn at_a_terminal_more_than_one_group_is_asked_for() {
    in_a_world(LIMIT, |world| {
        let b = copy(world, "b.out");
        let (one, two) = (start(world, &b, 1, 1), start(world, &copy(world, "c.out"), 1, 1));
        let mut terminal = world.terminal(["signal", "HUP", "pgid=*"]);
        terminal.wait_text("send SIGHUP to these 2 process groups? [y/N]", SOON);
        terminal.type_text("n\n");
        assert_eq!(terminal.wait(SOON).code(), Some(0));
        assert_eq!(said(world, &["ps", "state=running"]).lines().count(), 3);
        // A single group is signalled without a question.
        let mut terminal = world.terminal(["signal", "HUP", "exec=b.out"]);
        assert_eq!(terminal.wait(SOON).code(), Some(0));
        eventually(SOON, "the signal", || lines(&one, "got SIGHUP") == 1);
        start(world, &b, 1, 1);
        let mut terminal = world.terminal(["kill", "pgid=*"]);
        terminal.wait_text("send SIGKILL to these 2 process groups? [y/N]", SOON);
        terminal.type_text("y\n");
        assert_eq!(terminal.wait(SOON).code(), Some(0));
        assert_eq!(said(world, &["ps", "pgid=*"]).lines().count(), 1);
        assert_eq!(lines(&two, "got SIGHUP"), 0);
    });
}

#[test]
fn a_dead_frontends_socket_is_swept_and_another_users_is_not_touched() {
    if !nix::unistd::geteuid().is_root() {
        return gantry_tests::record_skip("only root may make another user's socket");
    }
    in_a_world(LIMIT, |world| {
        let runtime = world.runtime_dir();
        let (dead, kept, foreign) =
            (runtime.join("aaaaaaaa.sock"), runtime.join("aaaaaaaa.kept"), runtime.join("bbbbbbbb.sock"));
        drop(UnixListener::bind(&dead).unwrap());
        drop(UnixListener::bind(&kept).unwrap());
        let listener = UnixListener::bind(&foreign).unwrap();
        listener.set_nonblocking(true).unwrap();
        std::os::unix::fs::lchown(&foreign, Some(65534), None).unwrap();
        for command in [&["ps", "pgid=*"][..], &["kill", "--yes", "pgid=*"], &["ps"]] {
            gantry(world, command);
        }
        assert!(!dead.exists() && !kept.exists(), "the sockets of the dead were not swept");
        assert_eq!(fs::metadata(&foreign).unwrap().uid(), 65534);
        let none = listener.accept().unwrap_err();
        assert_eq!(none.kind(), std::io::ErrorKind::WouldBlock, "another user's socket was connected to");
        fs::remove_file(foreign).unwrap();

        // The other user does not reach our groups either.
        let b = copy(world, "b.out");
        start(world, &b, 1, 1);
        let mut command = world.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        command.arg(&gantry_tests::binaries().gantry).args(["kill", "pgid=*"]).current_dir("/");
        let theirs = world.spawn(command).wait(SOON);
        assert_ne!(theirs.code(), 0, "{theirs:?}");
        assert_eq!(said(world, &["ps", "state=running"]).lines().count(), 2);
        said(world, &["kill", "pgid=*"]);
    });
}

#[test]
fn a_shell_completes_queries_by_live_groups() {
    in_a_world(LIMIT, |world| {
        start(world, &copy(world, "b.out"), 1, 1);
        let script = said(world, &["completions", "bash"]);
        fs::write(world.work_dir().join("complete"), script).unwrap();
        let gantry = gantry_tests::binaries().gantry.display().to_string();
        let complete = |words: &str| {
            let line = format!(
                "source ./complete; COMP_WORDS=({gantry} {words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 )); \
                 _gantry_live {gantry} \"${{COMP_WORDS[COMP_CWORD]}}\" ''; printf '%s\\n' \"${{COMPREPLY[@]}}\""
            );
            let done = world.start(Path::new("/bin/bash"), ["-c", &line]).wait(SOON);
            done.stdout
        };
        // bash splits words at '='.
        assert_eq!(complete("kill exec = b"), ["b.out"]);
        assert_eq!(
            complete("ps submitter ="),
            [nix::unistd::User::from_uid(nix::unistd::getuid()).unwrap().unwrap().name]
        );
        assert_eq!(complete("signal USR1 ho"), ["host="]);
        assert!(complete("kill --dry").contains(&"--dry-run".to_owned()));
        said(world, &["kill", "pgid=1"]);
    });
}

/// Sends all messages to a socket at once and ends the sending side.
fn send(socket: &Path, messages: &[u8]) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(messages).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    stream
}

/// As [`send`]. Returns the answers.
fn talk(socket: &Path, messages: &[u8]) -> String {
    let mut text = String::new();
    send(socket, messages).read_to_string(&mut text).unwrap();
    text
}

#[test]
fn clients_that_hang_up_while_they_wait_make_room_and_one_too_many_is_told() {
    in_a_world(LIMIT, |world| {
        start(world, &copy(world, "b.out"), 1, 1);
        let own = world.work_dir().join("own");
        fs::DirBuilder::new().mode(0o700).create(&own).unwrap();
        let socket = own.join("s");
        let mut service = world.gantry(["pm", "--listen", &socket.display().to_string()]);
        eventually(SOON, "the socket", || UnixStream::connect(&socket).is_ok());
        // There is one more than places. All have ended their sending side, and wait for their answers.
        let wait = "<wait-process-group pgid='*'/>";
        let mut waiting: Vec<UnixStream> = (0..33).map(|_| send(&socket, wait.as_bytes())).collect();
        waiting.iter().for_each(|client| client.set_nonblocking(true).unwrap());
        let mut refused = String::new();
        eventually(SOON, "a refusal", || {
            let mut bytes = [0; 1024];
            let told = (0..waiting.len()).find_map(|at| Some((at, waiting[at].read(&mut bytes).ok()?)));
            told.inspect(|(at, count)| {
                waiting.swap_remove(*at);
                refused = String::from_utf8_lossy(&bytes[..*count]).into_owned();
            })
            .is_some()
        });
        let refused = parse_document(refused.as_bytes()).unwrap();
        assert_eq!(refused.attribute("reason"), Some("32 clients wait for answers already"));
        assert_eq!(refused.attribute("kind"), Some("no-access"));

        let mut patient = waiting.pop().unwrap();
        drop(waiting);
        let query = "<get-process-group><process-group pgid='*'/></get-process-group>";
        eventually(SOON, "room", || talk(&socket, query.as_bytes()).contains("<process-group pgid=\"1\"/>"));
        patient.set_nonblocking(false).unwrap();
        said(world, &["kill", "pgid=1"]);
        let mut answer = String::new();
        patient.read_to_string(&mut answer).unwrap();
        assert_eq!(pgids(&parse_document(answer.as_bytes()).unwrap()), ["1"]);
        service.signal(Signal::SIGTERM);
        assert_eq!(service.wait(SOON).code(), 0);
    });
}

#[test]
fn standard_input_takes_messages_as_the_socket_does() {
    in_a_world(LIMIT, |world| {
        start(world, &copy(world, "b.out"), 1, 1);
        let mut run = world.gantry(["pm"]);
        run.write(b"<nonsense/>\0");
        // The answer comes before the next message is sent.
        let refused = run.next_line(SOON);
        let refused = parse_document(refused.as_bytes()).unwrap();
        assert!(refused.attribute("reason").unwrap().contains("<nonsense>"), "{refused:?}");
        run.write(b"<get-process-group><process-group pgid='*'/></get-process-group>\0<kill-process-group pgid='1'/>\n");
        run.close_stdin();
        let done = run.wait(SOON);
        assert_eq!(done.code(), 0, "{done:?}");
        let answers = done.stdout.join("\n");
        let answers: Vec<_> = answers.split('\0').map(|it| parse_document(it.as_bytes()).unwrap()).collect();
        let [_, groups, killed] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!((pgids(groups), pgids(killed)), (vec!["1"], vec!["1"]));
        assert_eq!(said(world, &["ps", "pgid=*"]).lines().count(), 1);
    });
}

#[test]
fn a_private_socket_serves_several_clients_until_it_is_told_to_end() {
    in_a_world(LIMIT, |world| {
        let b = copy(world, "b.out");
        start(world, &b, 1, 1);
        let open = world.work_dir().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        let refused = gantry(world, &["pm", "--listen", &open.join("s").display().to_string()]);
        assert_eq!(refused.code(), 66, "{refused:?}");
        assert!(!open.join("s").exists());
        fs::set_permissions(&open, fs::Permissions::from_mode(0o700)).unwrap();
        let socket = open.join("s");
        // A socket that a killed process has left is no obstacle.
        drop(UnixListener::bind(&socket).unwrap());
        let name = socket.display().to_string();
        let mut service = world.gantry(["pm", "--listen", &name]);
        eventually(SOON, "the socket", || UnixStream::connect(&socket).is_ok());
        assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
        let second = gantry(world, &["pm", "--listen", &name]);
        assert_ne!(second.code(), 0, "{second:?}");

        // Silent clients are dropped when others need their places. There are more of them than places.
        let _silent: Vec<_> = (0..100).map(|_| UnixStream::connect(&socket).unwrap()).collect();
        let query = "<get-process-group><process-group pgid='*'/></get-process-group>";
        assert!(talk(&socket, query.as_bytes()).contains("<process-group pgid=\"1\"/>"));
        let both = talk(&socket, format!("{query}\0<nonsense/>\0").as_bytes());
        let answers: Vec<&str> = both.split_terminator('\0').collect();
        let [groups, error] = answers[..] else { panic!("{both}") };
        assert_eq!(pgids(&parse_document(groups.as_bytes()).unwrap()), ["1"]);
        assert!(
            parse_document(error.as_bytes()).unwrap().attribute("reason").unwrap().contains("<nonsense>")
        );
        let kill = "<kill-process-group pgid='1'/>";
        assert!(talk(&socket, kill.as_bytes()).contains("pgid=\"1\""));
        service.signal(Signal::SIGTERM);
        assert_eq!(service.wait(SOON).code(), 0);
        assert!(!socket.exists(), "the socket stays behind");
    });
}
