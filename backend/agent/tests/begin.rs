//! What the agent's program has done before it does anything else.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);

/// SIGPIPE in a set of signals of `/proc/PID/status`.
const CLOSED_PIPE: u64 = 1 << (13 - 1);

/// Whether these descriptors of the process are the null device, and it ignores writes to closed pipes.
fn has_begun(pid: u32, descriptors: [u32; 2]) -> bool {
    let is_null =
        |fd| std::fs::read_link(format!("/proc/{pid}/fd/{fd}")).is_ok_and(|it| it == Path::new("/dev/null"));
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a status");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).expect("signals");
    descriptors.into_iter().all(is_null)
        && u64::from_str_radix(ignored, 16).expect("a set") & CLOSED_PIPE != 0
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the agent itself is tested, by its process")]
fn standard_descriptors_are_open_and_a_closed_pipe_is_an_error() {
    // A shell has no signal ignored that it does not ignore itself.
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" serve >&- 2>&-", env!("CARGO_BIN_EXE_gantry-agent")]);
    let mut agent = shell.stdin(Stdio::piped()).spawn().unwrap();
    let until = Instant::now() + SOON;
    // It waits for its ticket.
    while !has_begun(agent.id(), [1, 2]) && Instant::now() < until {
        std::thread::yield_now();
    }
    let has_begun = has_begun(agent.id(), [1, 2]);
    drop(agent.stdin.take());
    agent.wait().unwrap();
    assert!(has_begun);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the agent itself is tested, by its process")]
fn the_last_line_is_written_and_the_exit_code_is_the_commands() {
    for (word, expected) in [("--version", (Some(0), true)), ("unknown", (Some(1), false))] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gantry-agent"));
        let mut agent = command.arg(word).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut text = String::new();
        agent.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        let found = (agent.wait().unwrap().code(), text.starts_with("gantry-agent ") && text.ends_with('\n'));
        assert_eq!(found, expected, "{word}: {text:?}");
    }
}
