//! Shows in which function every rank is: a daemon on each node reads the stacks of the ranks there, the tool prints one table.
//!
//! ```sh
//! cargo build && cargo run --example stack_table -- launch -n 4 ./solver --steps 10
//! cargo run --example stack_table -- attach 4242,4243
//! ```
//!
//! The first table comes at once, another one each time you press Enter. The end of the input (Ctrl-D) ends the tool: then an app that
//! it launched ends, one that it attached to goes on. Stacks are read by `eu-stack` (Debian package elfutils), else by `gdb`.
//!
//! One program in two roles: `stack_table daemon` is what the tool starts on the nodes.
#![expect(clippy::print_stdout, reason = "a command line tool prints")]

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::process::Command;
use std::time::Duration;

use gantry_backend::{Backend, Pid, RankState};
use gantry_frontend::types::foreign::ForeignText;
use gantry_frontend::types::output::DaemonOutput;
use gantry_frontend::{DaemonRequest, Frontend, LaunchRequest, OutputTo, Session};
use tokio::sync::mpsc;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Everything that may wait takes a timeout.
const MINUTE: Duration = Duration::from_secs(60);

/// How many functions of a stack are shown, from the innermost on.
const DEPTH: usize = 6;

fn main() -> Result<()> {
    let mut args = std::env::args_os().skip(1);
    let role = args.next().unwrap_or_default();
    match (role.to_str(), args.collect::<Vec<_>>()) {
        (Some("daemon"), _) => read_stacks(),
        (Some("launch" | "attach"), args) if !args.is_empty() => show_tables(role == "launch", args),
        _ => Err("say: launch LAUNCHER'S ARGUMENTS, or: attach PID,PID".into()),
    }
}

/// The tool, on the login side.
#[tokio::main]
async fn show_tables(launch: bool, args: Vec<OsString>) -> Result<()> {
    let frontend = Frontend::default();
    let app = if launch {
        let stdout = std::io::stdout().as_fd().try_clone_to_owned()?;
        let stderr = std::io::stderr().as_fd().try_clone_to_owned()?;
        frontend.launch(LaunchRequest::new(args).output(OutputTo::Fds { stdout, stderr }), MINUTE).await?
    } else {
        frontend.attach(&args[0].to_string_lossy(), MINUTE).await?
    };
    let session = app.session(MINUTE).await?;
    let mut enter = lines_of_stdin();
    loop {
        println!("rank  innermost function first");
        for (rank, functions) in ask_daemons(&session).await? {
            println!("{rank:>4}  {}", ForeignText::from(functions.as_str()));
        }
        tokio::select! {
            line = enter.recv() => if line.is_none() { break },
            _ended = app.wait() => break,
        }
    }
    // Daemons and session go; an app that was launched goes, one that was attached to is left as it was found.
    Ok(app.close(MINUTE).await?)
}

/// Starts this program as a daemon on every node and gathers what the daemons print: for each rank its functions.
async fn ask_daemons(session: &Session) -> Result<BTreeMap<u32, String>> {
    let request = DaemonRequest::new(std::env::current_exe()?).args(["daemon"]).output(DaemonOutput::Forward);
    let daemon = session.manifest().exec_daemon(request, MINUTE).await?;
    let mut output = daemon.take_output().ok_or("forwarded output is there to be taken")?;
    // Pieces from different nodes come mixed, in the middle of lines too: each node's are put together by themselves.
    let mut by_host: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    while let Some(piece) = output.next().await {
        by_host.entry(piece.host).or_default().extend(piece.data.0);
    }
    let mut table = BTreeMap::new();
    for (host, printed) in by_host {
        for line in String::from_utf8_lossy(&printed).lines() {
            match line.split_once(' ') {
                Some((rank, functions)) if rank.parse::<u32>().is_ok() => {
                    table.insert(rank.parse()?, functions.to_owned());
                }
                _ => println!("{}", ForeignText::of(&format_args!("{host}: {line}"))),
            }
        }
    }
    Ok(table)
}

/// The daemon, on a node: a line `RANK FUNCTION FUNCTION ...` for every rank here that has not ended.
fn read_stacks() -> Result<()> {
    for rank in Backend::connect()?.ranks()? {
        if matches!(rank.state, RankState::Held | RankState::Running) {
            println!("{} {}", rank.rank, read_stack(rank.pid)?.join(" "));
        }
    }
    Ok(())
}

/// The functions of a process's main thread, innermost first. The process is stopped for a moment.
fn read_stack(pid: Pid) -> Result<Vec<String>> {
    for reader in ["eu-stack -1 -p", "gdb -nx -batch -ex backtrace -p"] {
        let mut words = reader.split(' ');
        #[expect(
            clippy::disallowed_methods,
            reason = "a daemon is a program of its own and may start others"
        )]
        let mut command = Command::new(words.next().unwrap_or_default());
        match command.args(words).arg(pid.to_string()).output() {
            Ok(read) => {
                let text = String::from_utf8_lossy(&read.stdout).into_owned();
                return Ok(text.lines().filter_map(function_of).take(DEPTH).collect());
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err("neither eu-stack nor gdb is installed".into())
}

/// The function's name, without a symbol's version, in a line of either reader: `#1  0x4242 work`, `#1  0x4242 in work (n=1) at a.c:3`, `#0  work () at a.c:3`.
fn function_of(line: &str) -> Option<String> {
    let mut words = line.strip_prefix('#')?.split_ascii_whitespace().skip(1);
    let name = words.find(|word| !word.starts_with("0x") && *word != "in")?;
    Some(name.split(['(', '@']).next().unwrap_or(name).to_owned())
}

/// Lines of standard input, read by a thread because a terminal may keep it waiting for ever.
fn lines_of_stdin() -> mpsc::Receiver<String> {
    let (send, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        std::io::stdin().lines().map_while(|line| line.ok()).try_for_each(|line| send.blocking_send(line))
    });
    lines
}
