//! The scriptable tool `fault_tool` in its own process, and its apps' processes by kind.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::proc::SOON;
use crate::{Run, World, binaries, proc};

/// A tool that obeys commands and can be killed.
#[derive(Debug)]
pub struct Tool {
    /// Its process.
    pub run: Run,
    events: VecDeque<Value>,
}

impl Tool {
    /// Starts it.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    #[track_caller]
    pub fn start(world: &World) -> Self {
        Self::spawn(world, Self::command(world))
    }

    /// The command that [`start`](Tool::start) uses.
    #[must_use]
    pub fn command(world: &World) -> Command {
        world.command(binaries().dir.join("fault_tool"))
    }

    /// Starts it in another way: a command that becomes the tool.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    #[track_caller]
    pub fn spawn(world: &World, command: Command) -> Self {
        Self::of(world.spawn(command))
    }

    /// Takes a tool that was started elsewhere.
    #[must_use]
    pub fn of(run: Run) -> Self {
        Self { run, events: VecDeque::new() }
    }

    /// Opens a session of the last app and puts a file into it. A daemon on each of that many nodes gets the file's
    /// path as an argument and looks for it. Returns the session's root.
    ///
    /// # Panics
    /// When a daemon does not find it.
    #[track_caller]
    pub fn check_session_path(&mut self, file: &Path, nodes: usize) -> PathBuf {
        let root = PathBuf::from(self.ask("session")["root"].as_str().expect("a root"));
        self.ask(&format!("file {}", file.display()));
        let there = root.join(file.file_name().expect("a file"));
        self.ask(&format!("daemon test -s {}", there.display()));
        for _ in 0..nodes {
            let ended = self.event("daemon_exited");
            assert_eq!(ended["code"], 0, "{ended}");
        }
        root
    }

    /// Sends a command and does not wait for the answer.
    ///
    /// # Panics
    /// When the tool has ended.
    #[track_caller]
    pub fn tell(&mut self, command: &str) {
        self.run.write(format!("{command}\n").as_bytes());
    }

    /// Sends a command and waits until it is done.
    ///
    /// # Panics
    /// When it fails, with the error.
    #[track_caller]
    pub fn ask(&mut self, command: &str) -> Value {
        self.tell(command);
        let answer = self.answer();
        assert!(answer["done"].is_string(), "{command}: {answer}");
        answer
    }

    /// Sends a command and waits until it has failed.
    ///
    /// # Panics
    /// When it succeeds.
    #[track_caller]
    pub fn refused(&mut self, command: &str) -> Value {
        self.tell(command);
        let answer = self.answer();
        assert!(answer["failed"].is_string(), "{command}: {answer}");
        answer
    }

    /// The next answer to a command.
    ///
    /// # Panics
    /// When none arrives.
    #[track_caller]
    pub fn answer(&mut self) -> Value {
        loop {
            let line = self.next();
            if line["done"].is_string() || line["failed"].is_string() {
                return line;
            }
            self.events.push_back(line);
        }
    }

    /// The next event with that name of any of its apps. Earlier events are dropped.
    ///
    /// # Panics
    /// When none arrives.
    #[track_caller]
    pub fn event(&mut self, name: &str) -> Value {
        while let Some(event) = self.events.pop_front() {
            if event["event"] == name {
                return event;
            }
        }
        loop {
            let line = self.next();
            if line["event"] == name {
                return line;
            }
        }
    }

    /// Fails unless all processes that the tool has started end, and their storage is removed, while the tool lives.
    ///
    /// # Panics
    /// With a list of the remains.
    #[track_caller]
    pub fn assert_alone(&self, world: &World) {
        let others = || world.processes().into_iter().filter(|pid| *pid != self.run.pid());
        let gone = crate::becomes_true(SOON, || others().next().is_none());
        assert!(gone, "left beside the tool: {:#?}", others().map(proc::command_line).collect::<Vec<_>>());
        // The other folder keeps the number of the last process group, as the name of an empty folder.
        let files = || world.files_left();
        let gone = crate::becomes_true(SOON, || files().is_empty());
        assert!(gone, "files are left beside the tool: {:#?}", files());
    }

    #[track_caller]
    fn next(&mut self) -> Value {
        let line = self.run.next_line(2 * SOON);
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}

/// A list of pids in an answer.
///
/// # Panics
/// When there is none.
#[must_use]
#[track_caller]
pub fn numbers(list: &Value) -> Vec<i32> {
    let numbers = list.as_array().unwrap_or_else(|| panic!("{list} is no list")).iter();
    numbers.map(|number| i32::try_from(number.as_i64().expect("a number")).expect("a pid")).collect()
}

/// The processes of this world that run the program of that name. A child that was forked and will soon exec another
/// program does not count.
#[must_use]
pub fn running(world: &World, program: &str) -> Vec<i32> {
    let runs = |pid: i32| {
        !is_keeper(pid)
            && !is_submitter(pid)
            && proc::exe(pid).is_some_and(|exe| exe.file_name().is_some_and(|name| name == program))
    };
    let is_it = |pid: &i32| runs(*pid) && proc::stat(*pid).is_some_and(|stat| !runs(stat.parent));
    world.processes().into_iter().filter(is_it).collect()
}

/// Whether a process is the keeper of a guard or an agent. It runs the same program.
#[must_use]
pub fn is_keeper(pid: i32) -> bool {
    proc::stat(pid).is_some_and(|stat| stat.comm == "gantry-keeper")
}

/// Whether a process submits or cancels a job. It runs the guard's program.
#[must_use]
pub fn is_submitter(pid: i32) -> bool {
    proc::stat(pid).is_some_and(|stat| ["gantry-submit", "gantry-cancel"].contains(&stat.comm.as_str()))
}

/// The guards of this world.
#[must_use]
pub fn guards(world: &World) -> Vec<i32> {
    running(world, "gantry-guard")
}

/// The agents of this world.
#[must_use]
pub fn agents(world: &World) -> Vec<i32> {
    running(world, "gantry-agent")
}

/// An error should take at most a second. This limit allows for a machine that also runs other tests.
const AT_ONCE_MS: u64 = 3_000;

/// The tool must refuse a command at once, with this kind of error and these words in its text and hint. Afterwards
/// no other process may be left.
///
/// # Panics
/// When one of this does not hold.
#[track_caller]
pub fn check(tool: &mut Tool, world: &World, command: &str, kind: &str, text: &str, hint: &str) {
    let error = check_error(tool, command, kind, text, hint);
    tool.assert_alone(world);
    drop(error);
}

/// As [`check`], without looking for other processes.
///
/// # Panics
/// When it succeeds, or its error is another one.
#[track_caller]
pub fn check_error(tool: &mut Tool, command: &str, kind: &str, text: &str, hint: &str) -> Value {
    let error = tool.refused(command);
    assert_eq!(error["kind"], kind, "{command}: {error}");
    let said = |key: &str, words: &str| match error[key].as_str() {
        Some(said) => assert!(said.contains(words), "{command}: the {key} has no {words:?}: {said}"),
        None => panic!("{command}: no {key}: {error}"),
    };
    said("message", text);
    said("hint", hint);
    assert!(error["ms"].as_u64().is_some_and(|ms| ms < AT_ONCE_MS), "{command} took long: {error}");
    error
}
