//! Shows the content of `/proc/PID/status` for every rank of a running program: its state, its memory, its threads.
//!
//! ```sh
//! cargo build && cargo run --example rank_status -- 4711
//! ```
//!
//! One program has two roles: the tool starts itself as a daemon on every node. `docs/src/tools/rust.md` explains it.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool prints")]

use std::time::Duration;

use gantry_backend::Backend;
use gantry_frontend::{DaemonRequest, Frontend, Policy};

const MINUTE: Duration = Duration::from_secs(60);
const STATUS: u32 = 1;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("--daemon") => contribute_status(),
        Some(target) => show_status(target),
        None => Err("name the process id of a launcher, or a job".into()),
    }
}

/// The tool: attaches, starts the daemons, and prints what they contribute.
#[tokio::main]
async fn show_status(target: &str) -> Result<()> {
    let app = Frontend::default().attach(target, MINUTE).await?;
    let session = app.session(MINUTE).await?;
    let program = DaemonRequest::new(std::env::current_exe()?).args(["--daemon"]);
    session.manifest().exec_daemon(program, MINUTE).await?;
    let gathered = session.channel().gather(STATUS, Policy::BestEffort, MINUTE).await?;
    for lines in gathered.parts.values() {
        print!("{}", String::from_utf8_lossy(lines));
    }
    for missing in &gathered.missing {
        eprintln!("without {}: {}", missing.host, missing.why);
    }
    Ok(app.close(MINUTE).await?) // the ranks go on
}

/// The daemon: contributes a line for every rank of its node.
fn contribute_status() -> Result<()> {
    let node = Backend::connect()?;
    let mut lines = String::new();
    for rank in node.ranks()? {
        let status = std::fs::read_to_string(format!("/proc/{}/status", rank.pid))?;
        let wanted = |line: &&str| ["State", "VmRSS", "Threads"].iter().any(|name| line.starts_with(name));
        let values: Vec<String> = status.lines().filter(wanted).map(|line| line.replace('\t', " ")).collect();
        lines += &format!("rank {} on {}: {}\n", rank.rank, node.host(), values.join(", "));
    }
    Ok(node.channel()?.contribute(STATUS, lines.as_bytes(), MINUTE)?)
}
