//! `gantry coalloc`.

use std::io::{self, BufRead, Read};
use std::os::fd::AsFd;
use std::path::Path;

use gantry_frontend::coallocation::{
    Coallocator, Job, JobEvent, JobEvents, JobExit, JobState, SubjobInfo, SubjobOutput, Unready,
};
use gantry_frontend::{Config, Error};
use gantry_types::error::{Failure, Kind};
use tokio::sync::mpsc;

use super::interrupts::Interrupts;
use super::say;
use crate::args::Coalloc;
use crate::exit::{self, Fault, Outcome};
use crate::view::{self, Page, Screen, table};

/// Longest specification that is read from a file.
const MOST_BYTES: u64 = 2 << 20;

pub(super) async fn run(args: Coalloc, json: bool) -> Outcome {
    let spec = find_spec(&args)?;
    if json && args.interactive {
        return Err(Fault::invalid(
            "--json and interactive questions exclude each other",
            "leave out --interactive",
        ));
    }
    let output = match args.synchronous {
        true => pass_through().map_err(|e| Fault::io("cannot pass output on", &e))?,
        false => SubjobOutput::Null,
    };
    let mut interrupts = Interrupts::new()?;
    let job = request(&args, &spec, output)?;
    let talk = match (json, args.quiet || args.synchronous) {
        (true, _) => Talk::Json,
        (false, true) => Talk::Nothing,
        (false, false) => Talk::Words,
    };
    let told = tokio::spawn(tell(job.events(), job.states(), talk));
    let asked = async {
        match args.interactive {
            true => converse(&job, &args).await,
            false => release(&job, &args).await.map(|_| Leave::AtItsEnd),
        }
    };
    let over = async {
        let leave = asked.await?;
        Ok::<_, Fault>(match leave {
            Leave::AtItsEnd => Some(job.wait().await),
            Leave::AtOnce => None,
        })
    };
    let exit = tokio::select! {
        over = over => over,
        interrupt = interrupts.next() => {
            end(&job).await;
            return Ok(interrupt.code(false));
        }
    };
    let exit = match exit {
        Ok(Some(exit)) => exit,
        left => {
            end(&job).await;
            return left.map(|_| exit::SUCCESS);
        }
    };
    // The task ends with the job's events.
    let all_written = told.await.unwrap_or(true);
    close(&exit, talk).map(|code| if all_written { code } else { exit::of_lost_output(code) })
}

fn request(args: &Coalloc, spec: &str, output: SubjobOutput) -> Result<Job, Fault> {
    let mut coallocator = Coallocator::new(Config::default(), output)?;
    if let Some(timeout) = args.queue_timeout {
        coallocator = coallocator.queue_timeout(timeout);
    }
    Ok(coallocator.request(spec, args.timeout)?)
}

fn find_spec(args: &Coalloc) -> Result<String, Fault> {
    match (&args.spec, &args.file) {
        (Some(spec), _) => Ok(spec.clone()),
        (None, Some(file)) => read_spec(file),
        (None, None) => Err(Fault::invalid("no specification", "give it, or a file with -f")),
    }
}

/// In the background: releases the job when it is ready, reports that to the starting process, and stays until the
/// job ends.
pub(super) async fn stay(args: &Coalloc, output: SubjobOutput, screen: &Screen) -> Outcome {
    if args.file.as_deref() == Some(Path::new("-")) {
        return Err(Fault::invalid("standard input is not read in the background", "name a file"));
    }
    let mut interrupts = Interrupts::new()?;
    let job = request(args, &find_spec(args)?, output)?;
    let over = async {
        if release(&job, args).await? {
            let apps = job.states().iter().filter_map(|info| Some(job.app(&info.label)?.id())).collect();
            if !screen.all_started(apps).await {
                // The starting process has gone without the apps' ids, so the user could not reach the job.
                job.cancel().await?;
            }
        }
        Ok::<_, Fault>(job.wait().await)
    };
    let exit = tokio::select! {
        over = over => over,
        interrupt = interrupts.next() => {
            end(&job).await;
            return Ok(interrupt.code(false));
        }
    };
    match exit {
        Ok(exit) => close(&exit, Talk::Nothing),
        Err(fault) => {
            end(&job).await;
            Err(fault)
        }
    }
}

fn read_spec(file: &Path) -> Result<String, Fault> {
    let failed = |e| Fault::io(&format!("cannot read {}", file.display()), &e);
    let mut text = String::new();
    let read = if file == Path::new("-") {
        io::stdin().lock().take(MOST_BYTES).read_to_string(&mut text)
    } else {
        std::fs::File::open(file).map_err(failed)?.take(MOST_BYTES).read_to_string(&mut text)
    };
    read.map_err(failed)?;
    Ok(text)
}

fn pass_through() -> io::Result<SubjobOutput> {
    let stdout = io::stdout().as_fd().try_clone_to_owned()?;
    Ok(SubjobOutput::Fds { stdout, stderr: io::stderr().as_fd().try_clone_to_owned()? })
}

/// What is printed while a job runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Talk {
    Nothing,
    Words,
    Json,
}

/// Reports the events of a job until it is over. False: output of the ranks could not be written.
async fn tell(mut events: JobEvents, states: Vec<SubjobInfo>, talk: Talk) -> bool {
    let past = states.into_iter().map(JobEvent::Subjob);
    past.for_each(|event| tell_one(&event, talk));
    let mut all_written = true;
    while let Some(event) = events.next().await {
        all_written &= !matches!(event, JobEvent::OutputLost { .. });
        tell_one(&event, talk);
    }
    all_written
}

fn tell_one(event: &JobEvent, talk: Talk) {
    match (talk, event) {
        (Talk::Nothing | Talk::Words, JobEvent::OutputLost { label, stream, message }) => {
            let failure = view::describe_loss(*stream, message).at(format!("subjob {label}"));
            view::complain(&Page::failure(&failure));
        }
        (Talk::Nothing, _) => {}
        // Ignore a closed pipe: the job continues.
        (Talk::Json, event) => drop(view::print(&Page::json(event))),
        (Talk::Words, JobEvent::Subjob(info)) => view::note(&describe(info)),
        (Talk::Words, JobEvent::Job { state }) => view::note(&format!("the job is {state}")),
        (Talk::Words, JobEvent::MpiNote { label, message }) => {
            view::note(&format!("subjob {label}: {message}"));
        }
        (Talk::Words, _) => {}
    }
}

fn describe(info: &SubjobInfo) -> String {
    let why = match (&info.why, info.code) {
        (Some(why), _) => format!(": {why}"),
        (None, Some(code)) if code != 0 => format!(", code {code}"),
        (None, _) => String::new(),
    };
    format!("subjob {} on {}: {}{why}", info.label, info.wlm, info.state)
}

/// Waits for all parts and releases them. False: the job was killed before.
async fn release(job: &Job, args: &Coalloc) -> Result<bool, Fault> {
    match job.release(Unready::Await, args.timeout).await {
        // The end of the job reports why it was killed.
        Err(Error::Lost { .. }) => Ok(false),
        Err(Error::Gone { .. }) if job.state() == JobState::Over => Ok(false),
        other => Ok(other.map(|()| true)?),
    }
}

/// Whether the command waits for the job's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leave {
    AtItsEnd,
    AtOnce,
}

/// Runs the dialogue until the job is released and over, killed, or left.
async fn converse(job: &Job, args: &Coalloc) -> Result<Leave, Fault> {
    let (typed, mut lines) = mpsc::unbounded_channel();
    // The thread ends with the input or with this process.
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if typed.send(line).is_err() {
                break;
            }
        }
    });
    loop {
        show(job)?;
        view::note("C: let go  D<label>: take out  A<subjob>: add  K: kill  Q: leave at once");
        let line = tokio::select! {
            line = lines.recv() => line,
            _ = job.wait() => return Ok(Leave::AtItsEnd),
        };
        // At the end of the input the user cannot answer any more.
        let Some(line) = line else { return Ok(Leave::AtOnce) };
        let line = line.trim();
        let mut signs = line.chars();
        let done = match (signs.next().map(|sign| sign.to_ascii_uppercase()), signs.as_str().trim()) {
            (Some('C'), "") => job.release(Unready::Await, args.timeout).await,
            (Some('D'), label) => job.delete(label).await,
            (Some('A'), subjob) => job.add(subjob).await,
            (Some('K'), "") => job.cancel().await,
            (Some('Q'), "") => return Ok(Leave::AtOnce),
            _ => Ok(()),
        };
        if let Err(error) = done {
            view::tell_failure(&error.to_failure(), false);
        }
        if job.state() == JobState::Over {
            return Ok(Leave::AtItsEnd);
        }
    }
}

fn show(job: &Job) -> Result<(), Fault> {
    let row = |info: SubjobInfo| {
        let why =
            info.why.unwrap_or_else(|| info.code.map_or_else(String::new, |code| format!("code {code}")));
        vec![info.label, info.wlm.to_owned(), info.state.to_string(), why]
    };
    let rows: Vec<_> = job.states().into_iter().map(row).collect();
    let bold = view::colours(&io::stdout());
    say(&table::build_table(&["SUBJOB", "ON", "STATE", ""], &rows, bold))
}

/// Ends a job and waits until all of it is gone.
async fn end(job: &Job) {
    // An error means that the job is over already.
    drop(job.cancel().await);
    drop(tokio::time::timeout(super::END, job.wait()).await);
}

fn close(exit: &JobExit, talk: Talk) -> Outcome {
    if let Some(why) = &exit.why {
        let kind = exit.kind.filter(|kind| *kind == Kind::TimedOut).unwrap_or(Kind::LauncherFailed);
        return Err(Fault(Failure::new(kind, format!("the job was killed: {why}"))));
    }
    if talk == Talk::Json {
        #[derive(serde::Serialize)]
        struct Exited<'a> {
            event: &'static str,
            #[serde(flatten)]
            exit: &'a JobExit,
        }
        say(&Page::json(&Exited { event: "job_exited", exit }))?;
    }
    Ok(exit::of_app(exit.code))
}
