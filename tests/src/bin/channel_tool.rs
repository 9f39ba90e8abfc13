//! A tool that launches, starts `channel_daemon` on every node, speaks with it over the channel, and prints what came of it as one line of JSON.
//!
//! Arguments: bytes to broadcast, then what the launcher is given. Times are in milliseconds; that of a question is the shortest of several.

use std::error::Error;
use std::time::{Duration, Instant};

use gantry_frontend::filter::{Filter, numbers::Numbers};
use gantry_frontend::{Channel, Config, DaemonRequest, Frontend, LaunchRequest, Policy};
use serde_json::json;

const MINUTE: Duration = Duration::from_secs(60);

type Done<T> = Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Done<()> {
    let mut args = std::env::args().skip(1);
    let bytes: usize = args.next().ok_or("how many bytes?")?.parse()?;
    let app = Frontend::new(Config::default()).launch(LaunchRequest::new(args).hold(true), MINUTE).await?;
    let session = app.session(MINUTE).await?;
    let daemon = std::env::current_exe()?.with_file_name("channel_daemon");
    let request = DaemonRequest::new(daemon).args(["give:2:numbers", "hash:3", "echoes:1"]);
    session.manifest().exec_daemon(request, MINUTE).await?;
    let channel = session.channel();
    let sum = channel.reduce(2, Filter::Sum, Policy::All, MINUTE).await?;
    let Some(Numbers::Integers(sum)) = Numbers::decode(&sum.bytes)? else { return Err("no sum".into()) };
    let noise: Vec<u8> = (0..bytes as u64)
        .flat_map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .take(bytes)
        .collect();
    let start = Instant::now();
    channel.broadcast(3, &noise, MINUTE).await?;
    let hashes = channel.gather(3, Policy::All, MINUTE).await?;
    let broadcast = start.elapsed();
    let expected = format!("{bytes} {}", blake3::hash(&noise).to_hex());
    let right = hashes.parts.values().filter(|hash| **hash == expected.as_bytes()).count();
    let mut question = MINUTE;
    for _ in 0..20 {
        question = question.min(ask(&channel).await?);
    }
    let said = json!({
        "members": channel.members().len(), "sum": sum, "right": right,
        "broadcast_ms": broadcast.as_secs_f64() * 1e3, "ask_ms": question.as_secs_f64() * 1e3,
    });
    app.release(MINUTE).await?;
    app.close(MINUTE).await?;
    use std::io::Write;
    writeln!(std::io::stdout(), "{said}")?;
    Ok(())
}

/// Asks all for 1 KB.
async fn ask(channel: &Channel) -> Done<Duration> {
    let start = Instant::now();
    channel.broadcast(1, &[7; 1024], MINUTE).await?;
    channel.gather(1, Policy::All, MINUTE).await?;
    Ok(start.elapsed())
}
