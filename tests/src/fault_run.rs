//! Runs a schedule of random faults: drives a tool through an app's life, and meanwhile kills or stops the app's
//! processes.

use std::collections::HashMap;
use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::proc::{self, Pidfd};
use crate::schedule::{Blow, End, Kind, Moment, Schedule, Strike};
use crate::{SOON, binaries, programs};

/// Finds the processes that belong to an app now, in a fixed order.
pub type Find<'a> = &'a (dyn Fn() -> Vec<i32> + Sync);

/// The kind of an app's process. None: it does not belong to gantry.
#[must_use]
pub fn kind_of(pid: i32) -> Option<Kind> {
    let line = proc::command_line(pid);
    let program = line.split(' ').next().and_then(|path| path.rsplit('/').next())?;
    if proc::stat(pid)?.comm == "gantry-keeper" {
        return Some(Kind::Keeper);
    }
    match program {
        "fault_tool" => Some(Kind::Tool),
        "gantry-guard" => Some(Kind::Guard),
        "gantry-agent" if line.contains(" hold ") => Some(Kind::Shim),
        "gantry-agent" => Some(Kind::Agent),
        "srun" => Some(Kind::Launcher),
        "strays" if line.ends_with(" daemon") => Some(Kind::Daemon),
        "strays" => Some(Kind::Rank),
        _ => None,
    }
}

/// Applies the faults of a schedule at their moments.
struct Striker<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    find: Find<'env>,
    schedule: &'env Schedule,
    log: &'env Log,
}

impl Striker<'_, '_> {
    fn now(&self, moment: Moment) {
        self.log.note(format!("{moment:?}"));
        for strike in self.schedule.strikes.iter().filter(|strike| strike.moment == moment) {
            let (find, log) = (self.find, self.log);
            self.scope.spawn(move || {
                thread::sleep(strike.after);
                let hit = hit(find, strike);
                log.note(format!("{:?} to {hit:?}", strike.blow));
            });
        }
    }
}

/// The actions and their times, for the analysis of a failure.
#[derive(Debug)]
struct Log {
    began: Instant,
    lines: Mutex<Vec<String>>,
}

impl Log {
    fn note(&self, text: impl Display) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(format!("{:?}: {text}", self.began.elapsed()));
    }
}

/// Applies a fault. Stopped processes continue after their time. Returns the affected processes.
fn hit(find: Find<'_>, strike: &Strike) -> Vec<(Kind, i32)> {
    let mut by_kind: HashMap<Kind, Vec<i32>> = HashMap::new();
    for pid in find() {
        if let Some(kind) = kind_of(pid) {
            by_kind.entry(kind).or_default().push(pid);
        }
    }
    let mut hit = Vec::new();
    for victim in &strike.victims {
        let all = by_kind.get(&victim.kind).map(Vec::as_slice).unwrap_or_default();
        let count = u64::try_from(all.len()).unwrap_or(0);
        match victim.which {
            None => hit.extend(all.iter().map(|pid| (victim.kind, *pid))),
            Some(_) if count == 0 => {}
            Some(which) => {
                let index = usize::try_from(which % count).unwrap_or(0);
                hit.push((victim.kind, all[index]));
            }
        }
    }
    let held: Vec<Pidfd> = hit.iter().filter_map(|(_, pid)| Pidfd::open(*pid).ok()).collect();
    // An error means that it has ended by itself.
    let send = |signal| held.iter().for_each(|process| drop(process.signal(signal)));
    match strike.blow {
        Blow::Kill => send(Signal::SIGKILL),
        Blow::Stop(time) => {
            send(Signal::SIGSTOP);
            thread::sleep(time);
            send(Signal::SIGCONT);
        }
    }
    hit
}

/// The tool, which may die at any time.
struct Driven {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Driven {
    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the tool");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let (say, lines) = channel();
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| say.send(line)));
        Self { child, stdin, lines }
    }

    /// Sends a command and waits for the answer. None: no answer arrived.
    fn ask(&mut self, command: &str) -> Option<Value> {
        writeln!(self.stdin.as_mut()?, "{command}").ok()?;
        let until = Instant::now() + SOON;
        loop {
            let line = self.lines.recv_timeout(until.saturating_duration_since(Instant::now())).ok()?;
            let line: Value = serde_json::from_str(&line).ok()?;
            if line["done"].is_string() || line["failed"].is_string() {
                return Some(line);
            }
        }
    }

    fn end(mut self) {
        self.stdin = None;
        let ended = proc::becomes_true(SOON, || self.child.try_wait().is_ok_and(|ended| ended.is_some()));
        if !ended {
            self.child.kill().expect("a child");
            self.child.wait().expect("a child");
        }
    }
}

/// Runs a schedule to its end: `tool` becomes the tool, `launch` is a launch's arguments without the program. Returns
/// the actions, for the analysis of a failure. The caller checks for remains.
///
/// # Panics
/// When no process can be started.
#[must_use]
pub fn play(schedule: &Schedule, tool: Command, launch: &str, find: Find<'_>) -> Vec<String> {
    let log = Log { began: Instant::now(), lines: Mutex::default() };
    let mut tool = Driven::start(tool);
    // It is over when the last strike is.
    thread::scope(|scope| live(launch, &mut tool, &Striker { scope, find, schedule, log: &log }));
    tool.end();
    log.note("the tool has ended");
    log.lines.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Drives the tool through an app's life until the end or the first failure.
fn live(launch: &str, tool: &mut Driven, striker: &Striker<'_, '_>) {
    let schedule = striker.schedule;
    let strays = programs::get("strays").display().to_string();
    let ask = |tool: &mut Driven, command: &str| {
        let answer = tool.ask(command);
        let done = answer.as_ref().is_some_and(|answer| answer["done"].is_string());
        let word = command.split(' ').next().unwrap_or_default();
        striker.log.note(match answer {
            Some(answer) if !done => format!("{word}: {}", answer["message"]),
            Some(_) => format!("{word}: done"),
            None => format!("{word}: no answer"),
        });
        done
    };
    let order = if schedule.hold { "hold" } else { "launch" };
    let leave = if schedule.leave { " leave" } else { "" };
    striker.now(Moment::Launching);
    if !ask(tool, &format!("{order} {launch} {strays}{leave}")) {
        return;
    }
    striker.now(Moment::Launched);
    if schedule.daemon {
        striker.now(Moment::Daemon);
        if ask(tool, "session") {
            ask(tool, &format!("daemon {strays} daemon"));
        }
    }
    if schedule.hold {
        striker.now(Moment::Released);
        ask(tool, "release");
    }
    striker.now(Moment::Ending);
    match schedule.end {
        End::Close => drop(ask(tool, "close")),
        End::Return => tool.stdin = None,
        End::Killed => {
            let tools = find_kind(striker.find, Kind::Tool);
            // An error means that it has ended by itself.
            tools.iter().for_each(|it| drop(it.signal(Signal::SIGKILL)));
        }
    }
}

fn find_kind(find: Find<'_>, kind: Kind) -> Vec<Pidfd> {
    let of_kind = find().into_iter().filter(|pid| kind_of(*pid) == Some(kind));
    of_kind.filter_map(|pid| Pidfd::open(pid).ok()).collect()
}

/// The program that is the tool.
#[must_use]
pub fn tool_program() -> std::path::PathBuf {
    binaries().dir.join("fault_tool")
}

/// The number of runs, and the number of the first one.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The first number.
    pub seed: u64,
    /// The number of runs. None: as many as the time allows.
    pub runs: Option<u64>,
}

impl Plan {
    /// From the environment: `GANTRY_FAULT_SEED` and `GANTRY_FAULT_RUNS`. Without a seed, the current time is the first
    /// number. Without a count, a given seed runs once; otherwise runs continue for the whole time.
    #[must_use]
    pub fn of_environment() -> Self {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_secs() * 1000 + u64::from(now.subsec_millis()));
        match (number("GANTRY_FAULT_SEED"), number("GANTRY_FAULT_RUNS")) {
            (Some(seed), runs) => Self { seed, runs: Some(runs.unwrap_or(1)) },
            (None, runs) => Self { seed: now, runs },
        }
    }

    /// The numbers of the runs. If their count is not given, they end after `time`.
    pub fn seeds(self, time: Duration) -> impl Iterator<Item = u64> {
        let until = Instant::now() + time;
        let wanted = move |done: &u64| self.runs.map_or_else(|| Instant::now() < until, |runs| *done < runs);
        (0..).take_while(wanted).map(move |done| self.seed.wrapping_add(done))
    }
}
