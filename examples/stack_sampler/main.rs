//! Where are all ranks? One tree of their call paths, with the ranks that are on each: what one wants to see of a program that hangs.
//!
//! ```sh
//! cargo build && cargo run --example stack_sampler -- 4242                   # a launcher's pid, or ranks' pids: 4242,4243
//! cargo run --example stack_sampler -- --svg stacks.svg --samples 10 123.0   # a step of Slurm
//! cargo run --example stack_sampler -- --after 5000 -- -n 64 ./solver        # launched for that
//! ```
//!
//! prints lines such as
//!
//! ```text
//! 64 ranks
//! main > solve [0-63]
//! ├─ exchange > MPI_Waitall [0-3,5-63]
//! └─ write_results > fsync [4]
//! ```
//!
//! A daemon on every node reads the stacks of the ranks there and makes a small tree of them; agents merge trees on their way up, so that the tool gets
//! one, however many nodes there are. A rank that moves between samples is in several places. Programs are shown from `main` on; names need symbols,
//! and stacks are read by `eu-stack` (Debian package elfutils), else by `gdb`.
//!
//! What was attached to is left as it was found. What was launched is sampled again each time you press Enter; the end of the input (Ctrl-D) ends it.
#![expect(clippy::print_stdout, reason = "a command line tool prints")]

mod daemon;
mod dot;
mod stacks;
mod svg;
mod view;

use std::error::Error;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use gantry_frontend::types::filter::{Filter, PrefixTree};
use gantry_frontend::types::foreign::ForeignText;
use gantry_frontend::types::rank_set::RankSet;
use gantry_frontend::{App, DaemonRequest, Frontend, LaunchRequest, OutputTo, Policy, Session};
use tokio::sync::mpsc;

use daemon::Orders;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Everything that may wait takes a timeout.
const MINUTE: Duration = Duration::from_secs(60);

/// Shows where all ranks of a parallel program are, as one tree of call paths.
#[derive(Debug, Parser)]
struct Args {
    /// What runs already: a launcher's pid, pids of ranks (4242,4243), or a job as its workload manager names it
    #[arg(required_unless_present = "launch", conflicts_with = "launch")]
    target: Option<String>,
    /// Also writes the tree as a picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Also writes the tree for Graphviz
    #[arg(long, value_name = "FILE")]
    dot: Option<PathBuf>,
    /// How often each stack is read
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    samples: u32,
    /// Milliseconds from one sample to the next
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(..=60_000))]
    every: u64,
    /// How many functions of a path are shown, from main on
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4096))]
    depth: u32,
    /// Milliseconds from a launch to its first sample
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    after: u64,
    /// Takes the first sample while all ranks are held at their first instruction, and then lets them go
    #[arg(long, requires = "launch")]
    hold: bool,
    /// Launches this: exactly what one would give the launcher
    #[arg(last = true, value_name = "LAUNCH ARGS")]
    launch: Vec<OsString>,
}

fn main() -> Result<()> {
    if std::env::args_os().nth(1).is_some_and(|role| role == daemon::ROLE) {
        return daemon::run();
    }
    sample(Args::parse())
}

/// The tool, on the login side.
#[tokio::main]
async fn sample(args: Args) -> Result<()> {
    let frontend = Frontend::default();
    if let Some(target) = &args.target {
        let app = frontend.attach(target, MINUTE).await?;
        let shown = show(&app, &start_daemons(&app).await?, &args).await;
        // Daemons and session go, ranks stay as they are, whether or not there was something to show.
        app.close(MINUTE).await?;
        return shown;
    }
    let output = OutputTo::Fds {
        stdout: std::io::stdout().as_fd().try_clone_to_owned()?,
        stderr: std::io::stderr().as_fd().try_clone_to_owned()?,
    };
    let request = LaunchRequest::new(args.launch.clone()).hold(args.hold).output(output);
    let app = frontend.launch(request, MINUTE).await?;
    let session = start_daemons(&app).await?;
    if !args.hold {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(args.after)) => {}
            _ended = app.wait() => {}
        }
    }
    show(&app, &session, &args).await?;
    if args.hold {
        app.release(MINUTE).await?;
    }
    let mut enter = lines_of_stdin();
    loop {
        tokio::select! {
            line = enter.recv() => match line {
                Some(_) => show(&app, &session, &args).await?,
                None => break,
            },
            _ended = app.wait() => break,
        }
    }
    Ok(app.close(MINUTE).await?)
}

/// Takes the samples and shows them in every way that was asked for.
async fn show(app: &App, session: &Session, args: &Args) -> Result<()> {
    let tree = ask_daemons(session, args).await?;
    let stretches = view::stretches(&tree);
    let title = match args.samples {
        1 => view::count(&tree.ranks()),
        samples => format!("{}, {samples} samples", view::count(&tree.ranks())),
    };
    println!("{title}");
    // Names of functions are what the ranks' files say.
    view::text(&stretches).lines().for_each(|line| println!("{}", ForeignText::from(line)));
    let all: RankSet = app.placement().iter().map(|place| place.rank).collect();
    let unseen = all.difference(&tree.ranks());
    if !unseen.is_empty() {
        println!("not seen: {} [{}]", view::count(&unseen), view::ranks_text(&unseen));
    }
    if let Some(file) = &args.svg {
        std::fs::write(file, svg::write(&title, &stretches))?;
    }
    if let Some(file) = &args.dot {
        std::fs::write(file, dot::write(&title, &stretches))?;
    }
    Ok(())
}

/// Starts this program as a daemon on every node.
async fn start_daemons(app: &App) -> Result<Session> {
    let session = app.session(MINUTE).await?;
    let request = DaemonRequest::new(std::env::current_exe()?).args([daemon::ROLE]);
    session.manifest().exec_daemon(request, MINUTE).await?;
    Ok(session)
}

/// Tells all daemons what to do, and gets one tree of what they have found.
async fn ask_daemons(session: &Session, args: &Args) -> Result<PrefixTree> {
    let channel = session.channel();
    let orders =
        Orders { samples: args.samples, every: Duration::from_millis(args.every), depth: args.depth };
    channel.broadcast(daemon::ORDERS, orders.to_message().as_bytes(), MINUTE).await?;
    let timeout = 2 * MINUTE + orders.every * orders.samples;
    // A tree without the ranks of a lost node is better than none.
    let reduced = channel.reduce(daemon::STACKS, Filter::PrefixTree, Policy::BestEffort, timeout).await?;
    for missing in &reduced.missing {
        println!("{}", ForeignText::of(&format_args!("no answer from {}: {}", missing.host, missing.why)));
    }
    Ok(PrefixTree::decode(&reduced.bytes)?)
}

/// Lines of standard input, read by a thread because a terminal may keep it waiting for ever.
fn lines_of_stdin() -> mpsc::Receiver<String> {
    let (send, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        std::io::stdin().lines().map_while(|line| line.ok()).try_for_each(|line| send.blocking_send(line))
    });
    lines
}
