//! Runs the suite of task management as the script of a job, or one of its tasks. `tests/tests/pbs_tm.rs` reads its
//! output.

use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use gantry_tests::pbs::cases::{CASES, Case, Context};
use gantry_tests::pbs::task;

/// The timeout of one case.
const LIMIT: Duration = Duration::from_secs(180);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome =
        match words.split_first() {
            Some((first, rest)) if first == "task" => play(rest),
            Some((first, names)) if first == "cases" => run(names),
            Some((first, [folder])) if first == "outlive" => outlive(folder.as_ref()),
            Some((first, [])) if first == "tasks" => list(),
            _ => Err("usage: tm_probe cases [NAME...] | tm_probe outlive FOLDER | tm_probe tasks | tm_probe task WORD..."
                .to_owned()),
        };
    match outcome {
        Ok(code) => code,
        Err(why) => {
            drop(writeln!(std::io::stderr(), "tm_probe: {why}"));
            ExitCode::FAILURE
        }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, String> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())
}

fn play(words: &[String]) -> Result<ExitCode, String> {
    let status = runtime()?.block_on(task::play(words)).map_err(|error| error.to_string())?;
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX)))
}

fn outlive(folder: &Path) -> Result<ExitCode, String> {
    runtime()?.block_on(task::outlive(folder))?;
    writeln!(std::io::stdout(), "passed outlive").map_err(|error| error.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a line for each task of the job, with its host and its id, in the format of `PBS_TASKNUM`.
fn list() -> Result<ExitCode, String> {
    let mut tasks = runtime()?.block_on(task::list())?;
    tasks.sort();
    for (host, id) in tasks {
        writeln!(std::io::stdout(), "task {id:08X} on {host}").map_err(|error| error.to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn run(names: &[String]) -> Result<ExitCode, String> {
    let environment = task::environment().map_err(|error| error.to_string())?;
    let probe = std::env::current_exe().map_err(|error| error.to_string())?;
    let context = Context { environment, probe };
    let chosen =
        CASES.iter().filter(|(name, _)| names.is_empty() || names.iter().any(|wanted| wanted == name));
    let mut failed = false;
    for case in chosen {
        let passed = passes(case, context.clone())?;
        let word = if passed { "passed" } else { "FAILED" };
        failed |= !passed;
        writeln!(std::io::stdout(), "{word} {}", case.0).map_err(|error| error.to_string())?;
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn passes((name, body): &Case, context: Context) -> Result<bool, String> {
    let runtime = runtime()?;
    let limited = async { tokio::time::timeout(LIMIT, body(context)).await };
    let ended = std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(limited)));
    if matches!(ended, Ok(Err(_))) {
        drop(writeln!(std::io::stderr(), "{name} has not ended after {LIMIT:?}"));
    }
    Ok(matches!(ended, Ok(Ok(()))))
}
