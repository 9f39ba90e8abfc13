//! Plays the moms of a job, for machines without PBS. Prints its port. Orders on standard input: `die N`, and `end`,
//! which the end of the input also means.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use gantry_tests::pbs::mom::{Job, Order, play};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::mpsc;

/// A stand-in for the moms of a job.
#[derive(Debug, Parser)]
struct Args {
    /// The job's id.
    #[arg(long)]
    job: String,
    /// The job's cookie, which is of no worth.
    #[arg(long)]
    cookie: String,
    /// Where its tasks begin; the node file is written there.
    #[arg(long)]
    home: PathBuf,
    /// How many milliseconds the last host waits before it answers.
    #[arg(long, default_value_t = 0)]
    slowness: u64,
    /// The host of every node.
    #[arg(required = true)]
    hosts: Vec<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(std::io::stderr(), "stand_in_mom: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> std::io::Result<()> {
    std::fs::write(args.home.join("nodes"), args.hosts.join("\n") + "\n")?;
    let Args { job: id, cookie, home, slowness, hosts } = args;
    let job = Job { id, cookie, home, hosts, slowness: Duration::from_millis(slowness) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (orders, received) = mpsc::unbounded_channel();
    let local = tokio::task::LocalSet::new();
    local.spawn_local(listen(orders));
    let played = local.block_on(
        &runtime,
        play(job, received, |port| {
            drop(writeln!(std::io::stdout(), "{port}"));
        }),
    );
    // Standard input may still be waited for, on a thread that cannot be asked to stop.
    runtime.shutdown_background();
    played
}

async fn listen(orders: mpsc::UnboundedSender<Order>) {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let order = match line.split_once(' ') {
            Some(("die", host)) => host.parse().map(Order::Die).ok(),
            _ => (line == "end").then_some(Order::End),
        };
        if order.is_some_and(|order| orders.send(order).is_err()) {
            return;
        }
    }
}
