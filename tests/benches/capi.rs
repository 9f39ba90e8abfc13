//! The cost of a call through the C libraries, compared to the same call in Rust. And the cost of loading the daemons'
//! library, compared to an empty one.
//!
//! ```sh
//! cargo bench -p gantry-tests --bench capi
//! ```
//!
//! Prints a Markdown table of medians.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(clippy::disallowed_methods, reason = "it starts the programs that it measures")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use gantry_frontend::info::AppState;
use gantry_frontend::{App, Config, Frontend, LaunchRequest};
use gantry_tests::binaries;
use gantry_tests::capi::{compile, prefix, program};
use gantry_types::signal::Signal;

const DEADLINE: Duration = Duration::from_secs(60);
const ROUNDS: usize = 101;

/// The allowed extra time of a call from C, compared to the same call in Rust.
const GOAL_CALL_MICROS: f64 = 50.0;
/// The allowed extra time for loading the daemons' library, compared to an empty one.
const GOAL_LOAD_MICROS: f64 = 1000.0;
/// The allowed size of that library.
const GOAL_BYTES: f64 = 2.0 * 1024.0 * 1024.0;

#[tokio::main]
async fn main() -> gantry_frontend::Result<()> {
    let prefix = prefix();
    let bench = program("bench", "fe", &[]);
    let said = said(Command::new(&bench).arg("calls").env("GANTRY_INSTALL_DIR", prefix));
    let frontend = Frontend::new(Config::default());
    let app = frontend.launch(LaunchRequest::new(["-n", "8", "sleep", "1000"]), DEADLINE).await?;
    let ended = frontend.launch(LaunchRequest::new(["true"]), DEADLINE).await?;
    ended.wait().await?;
    println!("command: cargo bench -p gantry-tests --bench capi\nhelpers: {}\n", binaries().dir.display());
    println!("| call | C | Rust | more | goal |\n| --- | ---: | ---: | ---: | --- |");
    for line in said.lines() {
        let (name, c) = line.split_once(' ').expect("a name and a number");
        let c: f64 = c.parse().expect("microseconds");
        let rust = if name == "wait" { in_rust(&ended, name).await? } else { in_rust(&app, name).await? };
        println!(
            "| {name} | {c:.1} µs | {rust:.1} µs | {:.1} µs | {} |",
            c - rust,
            judge(c - rust, GOAL_CALL_MICROS, "µs")
        );
    }
    app.close(DEADLINE).await?;
    let folder = tempfile::tempdir().expect("a folder");
    let (source, empty) = (folder.path().join("empty.c"), folder.path().join("libempty.so"));
    std::fs::write(&source, "int empty(void);\nint empty(void) { return 0; }\n").expect("a file");
    compile("cc", &source, &empty, &["-shared".into(), "-fPIC".into()]);
    let library = prefix.join("lib/libcommontools_be.so.2");
    let (ours, none) = (load(&bench, &library), load(&bench, &empty));
    println!(
        "| loading libcommontools_be | {ours:.1} µs | {none:.1} µs (an empty library) | {:.1} µs | {} |",
        ours - none,
        judge(ours - none, GOAL_LOAD_MICROS, "µs")
    );
    let size = std::fs::metadata(&library).expect("the library").len();
    #[expect(clippy::cast_precision_loss, reason = "a library's size")]
    let bytes = size as f64;
    println!("| size of libcommontools_be | {size} bytes | | | {} |", judge(bytes, GOAL_BYTES, "bytes"));
    println!("\n(built as {}; a release build counts)", prefix.display());
    Ok(())
}

/// A goal, and whether it is met.
fn judge(found: f64, goal: f64, unit: &str) -> String {
    format!("under {goal} {unit}: {}", if found < goal { "yes" } else { "no" })
}

#[track_caller]
fn said(command: &mut Command) -> String {
    let output = command.output().expect("the bench");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Loading a library in a fresh process.
fn load(bench: &Path, library: &Path) -> f64 {
    let once = |_| said(Command::new(bench).arg("load").arg(library)).trim().parse().expect("microseconds");
    median((0..ROUNDS).map(once).collect())
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// The same call through the Rust library.
async fn in_rust(app: &App, name: &str) -> gantry_frontend::Result<f64> {
    let mut times = Vec::with_capacity(ROUNDS);
    let inner = if matches!(name, "signal" | "session") { 1 } else { 1000 };
    for _ in 0..ROUNDS {
        let from = Instant::now();
        for _ in 0..inner {
            match name {
                "valid" => drop(std::hint::black_box(app.state() == AppState::Ended)),
                "ranks" => drop(std::hint::black_box(app.placement().rank_count())),
                "hosts" => drop(app.placement().hosts().map(str::to_owned).collect::<Vec<_>>()),
                "programs" => drop(app.info()),
                "wait" => drop(app.wait().await?),
                "signal" => app.signal(Signal::CONT, None, DEADLINE).await?,
                "session" => app.session(DEADLINE).await?.destroy(DEADLINE).await?,
                _ => {}
            }
        }
        times.push(from.elapsed().as_secs_f64() / f64::from(inner) * 1e6);
    }
    Ok(median(times))
}
