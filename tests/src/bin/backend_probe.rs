//! A tool daemon that prints the backend library's answers and its own environment as one line of JSON, and ends.
//!
//! With the argument `wait`, it continues until it is killed. With `exit N`, it ends with that exit code.
#![expect(clippy::disallowed_methods, reason = "a test program reads its environment")]

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use gantry_backend::Backend;
use serde_json::{Value, json};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let said = match Backend::connect() {
        Ok(backend) => describe(&backend)?,
        Err(error) => json!({"error": error.to_string()}),
    };
    // In one write, so that it arrives in one piece.
    std::io::stdout().write_all(format!("{said}\n").as_bytes())?;
    writeln!(std::io::stderr(), "on stderr")?;
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["wait", ..] => loop {
            std::thread::park();
        },
        ["exit", code] => Ok(ExitCode::from(code.parse::<u8>()?)),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn describe(backend: &Backend) -> Result<Value, Box<dyn Error>> {
    let ranks: Vec<Value> = backend
        .ranks()?
        .into_iter()
        .map(|rank| json!({"rank": rank.rank, "pid": rank.pid, "exe": rank.exe.to_string_lossy(), "state": format!("{:?}", rank.state)}))
        .collect();
    let variable = |name: &str| std::env::var(name).ok();
    let dirs = backend.dirs();
    Ok(json!({
        "wlm": backend.wlm(),
        "app": backend.app(),
        "host": backend.host(),
        "node": backend.node(),
        "nodes": backend.node_count(),
        "size": backend.rank_count(),
        "first": backend.first_rank()?,
        "here": backend.local_rank_count()?,
        "ranks": ranks,
        "root": dirs.root, "bin": dirs.bin, "lib": dirs.lib, "tmp": dirs.tmp,
        "args": std::env::args().skip(1).collect::<Vec<_>>(),
        "exe": std::env::args().next(),
        "cwd": std::env::current_dir()?,
        "TMPDIR": variable("TMPDIR"),
        "PATH": variable("PATH"),
        "LD_LIBRARY_PATH": variable("LD_LIBRARY_PATH"),
        "EXTRA": variable("EXTRA"),
        "pid": std::process::id(),
    }))
}
