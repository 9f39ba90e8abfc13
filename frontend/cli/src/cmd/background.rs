//! `--background`: a frontend process of its own stays with the app.
//!
//! It runs this program again, with the same arguments and a hidden option. Its standard input is a socket to the
//! process that started it. On that socket it reports one JSON value per line: the events of the start, then
//! `{"ok":ID}`, for a job of several apps `{"ok":[ID,..]}`, or `{"error":...}`.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use gantry_frontend::coallocation::SubjobOutput;
use gantry_frontend::control::Answer;
use gantry_frontend::{Input, OutputTo};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::AppId;
use gantry_wlm::Host;
use gantry_wlm::host::{Machine, spawn_orphan};

use super::launch::Surroundings;
use super::{attach, block_on, coalloc, launch, say, submit};
use crate::args::{Coalloc, Command, Launch};
use crate::exit::{self, Fault, Outcome};
use crate::view::{Page, Screen};

/// Starts the process and waits until the app is there.
pub(super) fn start(output: Option<&Path>, json: bool) -> Outcome {
    if let Some(output) = output {
        // Report an unusable file now, before the app exists.
        open_output(output)?;
    }
    let failed = |e: io::Error| Fault::io("cannot start a frontend process", &e);
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let program = Machine.read_link(Path::new("/proc/self/exe")).map_err(failed)?;
    let dir = Machine.current_dir().map_err(failed)?;
    let mut args = vec!["--background-in".into(), dir.into_os_string()];
    args.extend(std::env::args_os().skip(1));
    spawn_orphan(&program, &args, theirs.into()).map_err(failed)?;
    for line in BufReader::new(ours).lines() {
        let line = line.map_err(failed)?;
        match serde_json::from_str(&line) {
            Ok(Answer::Ok::<Begun>(begun)) => {
                let apps = match begun {
                    Begun::App(app) => vec![app],
                    Begun::Job(apps) => apps,
                };
                if !json {
                    let mut page = Page::default();
                    apps.iter().for_each(|app| page.add(app));
                    say(&page)?;
                }
                return Ok(exit::SUCCESS);
            }
            Ok(Answer::Error(failure)) => return Err(Fault(failure)),
            // The line is an event.
            Err(_) if json => say(&Page::data(line + "\n"))?,
            Err(_) => {}
        }
    }
    Err(Fault(Failure::new(Kind::Lost, "the frontend process ended before the app was there")))
}

/// The report that the start succeeded.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Begun {
    App(AppId),
    Job(Vec<AppId>),
}

/// Runs the frontend process in the background. Stays until the app ends.
pub(super) fn serve(dir: &Path, command: Command) -> Outcome {
    let failed = |e: io::Error| Fault::io("cannot start in the background", &e);
    let report = UnixStream::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
    if report.local_addr().is_err() {
        return Err(Fault::invalid("--background-in is not for people", "use --background"));
    }
    // The starting process sees the end of the report only when this was its last open descriptor.
    let nothing = File::open("/dev/null").map_err(failed)?;
    nix::unistd::dup2_stdin(&nothing).map_err(|e| failed(e.into()))?;
    enter(dir).map_err(failed)?;
    let output = match &command {
        Command::Launch(args) => &args.stay.output,
        Command::Attach(args) => &args.stay.output,
        Command::Submit(args) => &args.stay.output,
        Command::Coalloc(args) => &args.output,
        _ => return Err(Fault::invalid("nothing to do in the background", "use --background")),
    };
    let files = output.as_deref().map(open_twice).transpose()?;
    let screen: Arc<Screen> = Screen::background(Box::new(report), files).into();
    block_on(async {
        let outcome = match command {
            Command::Launch(args) => launch_here(args, Arc::clone(&screen)).await,
            Command::Attach(args) => attach::attach(args, None, Arc::clone(&screen)).await,
            Command::Submit(args) => submit::submit(args, Arc::clone(&screen)).await,
            Command::Coalloc(args) => coalloc_here(&args, &screen).await,
            _ => return Ok(exit::USAGE),
        };
        if let Err(Fault(failure)) = &outcome {
            screen.not_started(failure);
        }
        screen.finish(outcome).await
    })
}

async fn launch_here(args: Launch, screen: Arc<Screen>) -> Outcome {
    let output = match &args.stay.output {
        Some(_) if launch::wants_labels(&args)? => OutputTo::Stream,
        Some(path) => {
            let [stdout, stderr] = open_twice(path)?;
            OutputTo::Fds { stdout: stdout.into(), stderr: stderr.into() }
        }
        None => OutputTo::Null,
    };
    let stdin = args.input.clone().map_or(Input::Null, Input::File);
    launch::launch(args, Surroundings { stdin, enter: None, output, debugger: None, screen }).await
}

async fn coalloc_here(args: &Coalloc, screen: &Screen) -> Outcome {
    let output = match &args.output {
        Some(path) => {
            let [stdout, stderr] = open_twice(path)?;
            SubjobOutput::Fds { stdout: stdout.into(), stderr: stderr.into() }
        }
        None => SubjobOutput::Null,
    };
    coalloc::stay(args, output, screen).await
}

fn enter(dir: &Path) -> io::Result<()> {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is our own process, and has just begun: relative paths are still valid"
    )]
    std::env::set_current_dir(dir)
}

fn open_output(path: &Path) -> Result<File, Fault> {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.map_err(|e| Fault::io(&format!("cannot write to {}", path.display()), &e))
}

fn open_twice(path: &Path) -> Result<[File; 2], Fault> {
    Ok([open_output(path)?, open_output(path)?])
}
