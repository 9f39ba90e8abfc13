use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread::JoinHandle;

use gantry_shared::wire::frame::{encode, read_frame};
use gantry_types::error::Kind;
use gantry_types::session_dirs::SessionDirs;

use super::*;

fn facts() -> NodeFacts {
    NodeFacts {
        wlm: "localhost".into(),
        app: "3kx9w0fz".parse().unwrap(),
        host: "n1".into(),
        node: NodeId(0),
        nodes: 1,
        size: 2,
        dirs: SessionDirs::new("/x/s1"),
    }
}

fn address(socket: &Path) -> Address {
    Address { socket: socket.to_owned(), session: SessionId(1), daemon: DaemonId(1), token: "t".to_owned() }
}

/// An agent that answers each request with the next of these bytes, then closes when the client does.
fn scripted(socket: &Path, answers: Vec<Vec<u8>>) -> JoinHandle<()> {
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        for answer in answers {
            if read_frame(&mut stream).is_ok_and(|frame| frame.is_some()) {
                std::io::Write::write_all(&mut stream, &answer).unwrap();
            }
        }
    })
}

#[test]
fn the_address_comes_from_four_variables() {
    let check = |env: &[(&str, &str)], expected: Result<(), &str>| {
        let lookup = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v));
        let parsed = parse_address(&lookup);
        match expected {
            Ok(()) => assert_eq!(parsed.unwrap(), address(Path::new("/s"))),
            Err(text) => assert!(parsed.as_ref().is_err_and(|e| e.to_string().contains(text)), "{parsed:?}"),
        }
    };
    let (socket, session, daemon) =
        ((GANTRY_BACKEND_SOCKET, "/s"), (GANTRY_SESSION, "1"), (GANTRY_DAEMON, "1"));
    check(&[socket, session, daemon, (GANTRY_DAEMON_TOKEN, "t")], Ok(()));
    check(&[], Err("not started by gantry"));
    check(&[session, daemon], Err("not started by gantry"));
    check(&[(GANTRY_BACKEND_SOCKET, ""), session, daemon], Err("not started by gantry"));
    check(&[socket, daemon], Err("GANTRY_SESSION is \"\""));
    check(&[socket, session, (GANTRY_DAEMON, "-1")], Err("GANTRY_DAEMON is \"-1\""));
}

#[test]
fn an_agent_that_is_gone_is_unreachable() {
    let scratch = tempfile::tempdir().unwrap();
    let socket = scratch.path().join("agent.sock");
    for _ in 0..2 {
        let error = Backend::connect_to(&address(&socket), DEFAULT_TIMEOUT).unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }) && error.kind() == Kind::Gone, "{error:?}");
        drop(UnixListener::bind(&socket)); // leaves a socket without a listener
    }
}

#[test]
fn an_agent_that_does_not_answer_is_timed_out() {
    let scratch = tempfile::tempdir().unwrap();
    let socket = scratch.path().join("agent.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let error = Backend::connect_to(&address(&socket), Duration::from_millis(30)).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    drop(listener);
}

#[test]
fn an_agent_whose_queue_is_full_is_timed_out() {
    let scratch = tempfile::tempdir().unwrap();
    let socket = scratch.path().join("agent.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
    let held = Link::connect(&socket, DEFAULT_TIMEOUT).unwrap();
    let error = Link::connect(&socket, Duration::from_millis(30)).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    drop(held);
}

#[test]
fn nonsense_from_an_agent_is_an_error_and_ends_the_connection() {
    let check = |second: Vec<u8>, kind: Kind| {
        let scratch = tempfile::tempdir().unwrap();
        let socket = scratch.path().join("agent.sock");
        let agent = scripted(&socket, vec![encode(&Tell::Node(facts())).unwrap(), second]);
        let backend = Backend::connect_to(&address(&socket), Duration::from_secs(10)).unwrap();
        let error = backend.ranks().unwrap_err();
        assert_eq!(error.kind(), kind, "{error:?}");
        assert!(matches!(backend.ranks(), Err(Error::Unusable { .. } | Error::Lost(_))));
        agent.join().unwrap();
    };
    check(vec![], Kind::Lost);
    check(vec![0, 0], Kind::Lost);
    check(vec![0xff; 64], Kind::Protocol);
    check(vec![0, 0, 0, 1, 0xff], Kind::Protocol);
    check(encode(&Tell::Refused(gantry_types::error::Failure::new(Kind::Gone, "x"))).unwrap(), Kind::Gone);
}

#[test]
fn an_agent_of_another_user_is_not_believed() {
    if !nix::unistd::geteuid().is_root() {
        return crate::skip::skip("only root has a second user");
    }
    // The listener's owner is the caller of listen(2): another process, as the user `nobody`.
    let scratch = tempfile::tempdir().unwrap();
    std::fs::set_permissions(scratch.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let socket = scratch.path().join("agent.sock");
    let mut agent = foreign_listener(&socket);
    let error = Backend::connect_to(&address(&socket), DEFAULT_TIMEOUT).unwrap_err();
    assert!(matches!(error, Error::ForeignAgent { found: 65534, expected: 0, .. }), "{error:?}");
    assert!(agent.wait().unwrap().success());
}

/// Another run of this test program, as the user `nobody`: it binds the socket, reports that, and ends with its
/// standard input, so also when this test fails.
#[expect(clippy::disallowed_methods, reason = "a test starts itself again")]
fn foreign_listener(socket: &Path) -> std::process::Child {
    use std::io::BufRead;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    let mut child = Command::new("/proc/self/exe")
        .args(["--exact", "node::tests::listens_for_another_test", "--nocapture"])
        .env("TEST_SOCKET", socket)
        .current_dir("/")
        .uid(65534)
        .gid(65534)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = std::io::BufReader::new(child.stdout.as_mut().unwrap());
    let mut line = String::new();
    while !line.contains("listening") {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "nobody cannot listen");
    }
    child
}

/// Does nothing, except for `foreign_listener`.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test started itself again")]
fn listens_for_another_test() {
    if let Some(socket) = std::env::var_os("TEST_SOCKET") {
        let listener = UnixListener::bind(socket).unwrap();
        println!("listening");
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
        drop(listener);
    }
}
