//! The dialogue with one gdb: its commands and its output, without a process.
//!
//! The dialogue first sets gdb up and attaches it to the rank. A command that arrives before that waits. A command that
//! continues the rank is done when the rank stops again.

use std::collections::VecDeque;

use gantry_gdb::answer::{Answer, MAX_SAID_BYTES, Reply, State, Stop, cut};
use gantry_gdb::mi::{Fields, Record, build_console, quote};
use gantry_types::id::Rank;

use crate::symbols::Files;

/// The longest name of a function or a file in an answer.
const MAX_NAME_BYTES: usize = 4 << 10;

/// The first commands for every gdb. A program drives it, so it must not ask for confirmation. The signals that hold and
/// release a rank do not concern the rank. Nor does the signal with which the daemon stops it: see [`INTERRUPT`](crate::interrupt::INTERRUPT).
const SETUP: [&str; 13] = [
    "-gdb-set mi-async on",
    "-gdb-set confirm off",
    "-gdb-set pagination off",
    "-gdb-set height 0",
    "-gdb-set width 0",
    "-gdb-set breakpoint pending on",
    "-interpreter-exec console \"set style enabled off\"",
    "-interpreter-exec console \"set debuginfod enabled off\"",
    "-interpreter-exec console \"handle SIGSTOP nostop noprint nopass\"",
    "-interpreter-exec console \"handle SIGCONT nostop noprint pass\"",
    "-interpreter-exec console \"handle SIGURG stop print nopass\"",
    "-gdb-set print thread-events off",
    "-enable-pretty-printing",
];

/// gdb's routine output when a program starts or continues. `raw` shows it.
const NOISE: [&str; 3] =
    ["Continuing.\n", "[Thread debugging using libthread_db", "Using host libthread_db library"];

/// The number of the attach command. Commands of the setup have lower numbers.
const ATTACH: u64 = 99;

/// The number of the command that tells gdb which rank it has.
const NAMING: u64 = 98;

/// A command for gdb.
#[derive(Debug)]
struct Command {
    token: u64,
    said: String,
    left_out: usize,
    error: Option<String>,
    hint: Option<String>,
    /// gdb has answered.
    is_answered: bool,
    /// It is done when the rank stops.
    waits_for_stop: bool,
    /// It uses gdb's machine interface.
    asks: Option<Asks>,
}

/// Commands for gdb's machine interface.
#[derive(Debug)]
pub(crate) struct Asks {
    /// Commands that were not sent to gdb yet.
    pub(crate) commands: VecDeque<String>,
    /// Number of bytes that are left for the answer.
    pub(crate) room: usize,
    /// Names of values that are left out.
    pub(crate) without: Vec<String>,
}

/// Phase of the dialogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// gdb is attaching to the rank.
    Attaching,
    /// gdb is attached.
    Ready,
    /// gdb cannot be used any more.
    Over,
}

/// State of one gdb, as known from its output.
#[derive(Debug)]
pub(crate) struct Dialogue {
    phase: Phase,
    has_answered: bool,
    has_stood: bool,
    has_ended: bool,
    has_gone_on: bool,
    /// The rank's state without gdb.
    alone: State,
    state: State,
    token: u64,
    current: Option<Command>,
    queued: Option<String>,
    /// The last command that gdb got.
    last: String,
    /// The command that has continued the rank.
    going: String,
    /// The rank was sent our signal, and has not stopped for it yet.
    is_signalled: bool,
    /// The signal is still meant to stop the rank. False: the rank has stopped for another reason since.
    is_wanted: bool,
    /// Bytes to write to gdb.
    pub(crate) output: Vec<u8>,
}

impl Dialogue {
    /// Starts the dialogue for a rank with that pid. gdb knows the rank's number as `$rank`. `files`: those that
    /// it does not find by itself.
    pub(crate) fn begin(rank: Rank, pid: i32, alone: State, files: &Files) -> Self {
        let setup: String =
            (1..).zip(SETUP).map(|(number, command)| format!("{number}{command}\n")).collect();
        // gdb reads files with these settings.
        let named = format!("{NAMING}-gdb-set var $rank = {rank}\n{ATTACH}-target-attach {pid}\n");
        let output = [setup, files.commands(), named].concat().into_bytes();
        Self {
            phase: Phase::Attaching,
            has_answered: false,
            has_stood: false,
            has_ended: false,
            has_gone_on: false,
            alone,
            state: State::Coming,
            token: ATTACH,
            current: None,
            queued: None,
            last: String::new(),
            going: String::new(),
            is_signalled: false,
            is_wanted: false,
            output,
        }
    }

    /// Sends gdb a command.
    pub(crate) fn tell(&mut self, line: &str) {
        let was_busy = self.is_busy();
        self.token += 1;
        self.current = Some(Command::new(self.token));
        match (self.phase, &self.state) {
            (Phase::Over, _) => self.fail("gdb has ended", None),
            (_, State::Running) => {
                self.fail("the rank runs", Some("interrupt it first, or wait until it stands"));
            }
            _ if was_busy => self.fail("gdb is not done with the command before", Some("wait for it")),
            _ => self.write(build_console(line)),
        }
    }

    /// Sends commands to gdb's machine interface. An unfinished earlier command gets no answer any more.
    pub(crate) fn ask(&mut self, asks: Asks) {
        self.current = Some(Command { asks: Some(asks), ..Command::new(self.token) });
        match self.phase {
            Phase::Over => self.fail("gdb has ended", None),
            _ => self.ask_next(),
        }
    }

    /// Sends the next of these commands, if there is one.
    fn ask_next(&mut self) {
        self.token += 1;
        let token = self.token;
        let Some(command) = &mut self.current else { return };
        command.token = token;
        match command.asks.as_mut().and_then(|asks| asks.commands.pop_front()) {
            Some(line) => self.write(line),
            None => command.is_answered = true,
        }
    }

    /// Sends gdb a command, as soon as it is attached.
    fn write(&mut self, line: String) {
        match self.phase {
            Phase::Attaching => self.queued = Some(line),
            _ => {
                // A newline would start a second command.
                let line = line.replace('\n', " ");
                self.output.extend_from_slice(format!("{}{line}\n", self.token).as_bytes());
                self.last = line;
            }
        }
    }

    /// Notes that the rank was sent the signal that stops it for us.
    pub(crate) fn note_signal(&mut self) {
        (self.is_signalled, self.is_wanted) = (true, true);
    }

    fn fail(&mut self, error: &str, hint: Option<&str>) {
        if let Some(command) = self.current.as_mut().filter(|command| !command.is_done()) {
            (command.error, command.hint) = (Some(error.to_owned()), hint.map(str::to_owned));
            (command.is_answered, command.waits_for_stop) = (true, false);
        }
    }

    /// Whether a command is not done yet.
    pub(crate) fn is_busy(&self) -> bool {
        self.current.as_ref().is_some_and(|command| !command.is_done())
    }

    /// Whether gdb cannot be used any more, so that another one may replace it.
    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Whether the rank runs under gdb.
    pub(crate) fn is_running(&self) -> bool {
        self.phase == Phase::Ready && self.state == State::Running
    }

    /// The rank's state, and gdb's reply to the last command.
    pub(crate) fn answer(&self) -> Answer {
        let reply = self.current.as_ref().filter(|command| command.is_done()).map(Command::reply);
        Answer { state: self.state.clone(), reply }
    }

    /// Whether a command has continued the rank.
    pub(crate) fn has_gone_on(&self) -> bool {
        self.has_gone_on
    }

    /// Whether gdb has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Notes that gdb has ended.
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
        if !matches!(self.state, State::Ended(_)) {
            self.state = self.alone.clone();
        }
        self.phase = Phase::Over;
        self.fail("gdb has ended", Some("'raw' shows its last words; the next command starts another one"));
    }

    /// Takes a record of gdb.
    pub(crate) fn take(&mut self, record: Record) {
        match record {
            Record::Console(text) | Record::Log(text) | Record::Target(text) => self.hear(&text),
            Record::Done { token: Some(ATTACH), class, results } => self.take_attached(&class, &results),
            Record::Done { token, class, results } => self.take_done(token, &class, &results),
            Record::Exec { class, results } => self.take_exec(&class, &results),
            Record::Notice { class, results } => {
                // gdb has detached from the rank.
                let is_gone = class == "thread-group-exited" && results.get("exit-code").is_none();
                if is_gone && self.phase == Phase::Ready && !matches!(self.state, State::Ended(_)) {
                    self.state = State::Free;
                    self.alone = State::Free;
                }
            }
            Record::Prompt | Record::Other(_) => {}
        }
    }

    fn hear(&mut self, text: &str) {
        let is_asked = self.current.as_ref().is_some_and(|command| command.asks.is_some());
        if is_asked || self.phase != Phase::Ready || NOISE.iter().any(|noise| text.starts_with(noise)) {
            return;
        }
        if let Some(command) = &mut self.current {
            let (text, more) = cut(text, MAX_SAID_BYTES.saturating_sub(command.said.len()));
            command.said.push_str(text);
            command.left_out += more;
        }
    }

    fn take_attached(&mut self, class: &str, results: &Fields) {
        if class == "error" {
            let why = results.text("msg").unwrap_or("gdb cannot attach");
            let hint = match why.contains("not permitted") {
                true => {
                    "another debugger may have it; else see /proc/sys/kernel/yama/ptrace_scope: 'gantry doctor' says more"
                }
                false => "'raw' shows what gdb has said",
            };
            let why = why.trim_end_matches('.').to_owned();
            self.fail(&why, Some(hint));
            self.phase = Phase::Over;
            self.state = self.alone.clone();
            return;
        }
        self.has_answered = true;
        self.advance();
    }

    /// gdb is attached when it has reported that and the rank is stopped.
    fn advance(&mut self) {
        if self.phase == Phase::Attaching && self.has_answered && self.has_stood {
            self.phase = Phase::Ready;
            if let Some(line) = self.queued.take() {
                self.write(line);
            }
        }
    }

    fn take_done(&mut self, token: Option<u64>, class: &str, results: &Fields) {
        let Some(command) = self.current.as_mut().filter(|command| Some(command.token) == token) else {
            return;
        };
        if command.asks.is_some() {
            return self.take_asked(class, results);
        }
        command.is_answered = true;
        match class {
            "running" => {
                command.waits_for_stop = true;
                self.going.clone_from(&self.last);
            }
            "error" => command.error = Some(results.text("msg").unwrap_or_default().to_owned()),
            _ => {}
        }
    }

    fn take_asked(&mut self, class: &str, results: &Fields) {
        if let Some(command) = &mut self.current {
            command.add_line(class, results);
        }
        if class == "running" {
            self.going.clone_from(&self.last);
            self.go_on();
        }
        self.ask_next();
    }

    fn go_on(&mut self) {
        self.state = State::Running;
        // The rank never returns to the point where it was held.
        self.alone = State::Free;
        self.has_gone_on = true;
    }

    /// Whether the rank stopped for a late signal of ours: it had already stopped for another reason since.
    fn is_stale(&mut self, results: &Fields) -> bool {
        let by_signal = results.text("signal-name") == Some("SIGURG");
        let was_wanted = std::mem::take(&mut self.is_wanted);
        let was_signalled = self.is_signalled;
        self.is_signalled &= !by_signal;
        by_signal && was_signalled && !was_wanted
    }

    fn take_exec(&mut self, class: &str, results: &Fields) {
        match class {
            "running" if self.phase == Phase::Ready => self.go_on(),
            "stopped" if self.is_stale(results) => {
                let again = self.going.clone();
                self.output.extend_from_slice(format!("{again}\n").as_bytes());
            }
            "stopped" => {
                self.state = parse_stop(results);
                self.has_stood = true;
                if let Some(command) = self.current.as_mut().filter(|command| command.is_answered) {
                    command.waits_for_stop = false;
                }
                self.advance();
            }
            _ => {}
        }
    }
}

impl Command {
    fn new(token: u64) -> Self {
        Self {
            token,
            said: String::new(),
            left_out: 0,
            error: None,
            hint: None,
            is_answered: false,
            waits_for_stop: false,
            asks: None,
        }
    }

    /// Adds a line to the answer of gdb's machine interface.
    fn add_line(&mut self, class: &str, results: &Fields) {
        let Some(asks) = &mut self.asks else { return };
        let mut results = results.clone();
        results.leave_out(&asks.without);
        let comma = if results.0.is_empty() { "" } else { "," };
        let mut line = format!("^{class}{comma}{results}\n");
        if line.len() > asks.room {
            line = format!("^error,msg={}\n", quote("the answer is too long"));
        }
        asks.room = asks.room.saturating_sub(line.len());
        self.said.push_str(&line);
    }

    fn is_done(&self) -> bool {
        self.is_answered && !self.waits_for_stop
    }

    fn reply(&self) -> Reply {
        let mut said = self.said.clone();
        if self.left_out > 0 {
            said.push_str(&format!("\n({} more bytes: 'raw' shows them)", self.left_out));
        }
        Reply { said, error: self.error.clone(), hint: self.hint.clone() }
    }
}

/// Why and where a rank is stopped. Source: "GDB/MI Async Records" in gdb's manual.
fn parse_stop(results: &Fields) -> State {
    let name = |text: Option<&str>| cut(text.unwrap_or_default(), MAX_NAME_BYTES).0.to_owned();
    let signal = || name(results.text("signal-name"));
    let why = match results.text("reason").unwrap_or_default() {
        "exited-normally" => return State::Ended("exit code 0".to_owned()),
        "exited" => {
            // gdb writes it in octal digits.
            let code = results.text("exit-code").and_then(|code| u32::from_str_radix(code, 8).ok());
            return State::Ended(code.map_or("exit".to_owned(), |code| format!("exit code {code}")));
        }
        "exited-signalled" => return State::Ended(format!("killed by {}", signal())),
        // Our own signal has stopped it.
        "signal-received" if ["SIGURG", "0"].contains(&signal().as_str()) => "interrupted".to_owned(),
        "signal-received" => format!("signal {}", signal()),
        why => name(Some(why)),
    };
    let frame = results.tuple("frame");
    let text = |field: &str| frame.and_then(|frame| frame.text(field));
    let file = text("fullname").or_else(|| text("file"));
    let function = text("func").filter(|function| *function != "??");
    State::Stopped(Stop {
        why,
        function: name(function),
        file: name(file),
        line: text("line").and_then(|line| line.parse().ok()).unwrap_or_default(),
        breakpoint: results.text("bkptno").and_then(|number| number.parse().ok()).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use gantry_gdb::mi::parse_line;

    use super::*;

    fn hear(dialogue: &mut Dialogue, lines: &[&str]) {
        lines.iter().for_each(|line| dialogue.take(parse_line(line.as_bytes())));
    }

    fn written(dialogue: &mut Dialogue) -> String {
        String::from_utf8(std::mem::take(&mut dialogue.output)).unwrap()
    }

    /// A dialogue with an attached gdb, with the output of gdb 13.1.
    fn ready(alone: State) -> Dialogue {
        let mut dialogue = Dialogue::begin(Rank(3), 7, alone, &Files::default());
        assert!(written(&mut dialogue).ends_with("99-target-attach 7\n"));
        hear(&mut dialogue, &["1^done", "(gdb)", "99^done", "~\"_start ()\\n\""]);
        assert_eq!(dialogue.answer().state, State::Coming);
        hear(&mut dialogue, &["*stopped,frame={addr=\"0x1\",func=\"_start\",args=[]}"]);
        dialogue
    }

    fn said(dialogue: &Dialogue) -> Option<(String, Option<String>)> {
        dialogue.answer().reply.map(|reply| (reply.said, reply.error))
    }

    #[test]
    fn a_command_waits_until_gdb_has_the_rank() {
        let mut dialogue = Dialogue::begin(Rank(3), 7, State::Free, &Files::default());
        dialogue.tell("bt");
        assert!(!written(&mut dialogue).contains("bt") && dialogue.is_busy());
        hear(
            &mut dialogue,
            &["99^done", "*stopped,frame={func=\"main\",file=\"a.c\",fullname=\"/x/a.c\",line=\"3\"}"],
        );
        assert_eq!(written(&mut dialogue), "100-interpreter-exec console \"bt\"\n");
        hear(&mut dialogue, &["~\"#0  main ()\\n\"", "100^done"]);
        assert_eq!(said(&dialogue), Some(("#0  main ()\n".to_owned(), None)));
        let State::Stopped(stop) = dialogue.answer().state else { panic!("it stands") };
        assert_eq!(stop.to_string(), "main at a.c:3");
    }

    #[test]
    fn a_step_is_done_when_the_rank_stands() {
        let mut dialogue = ready(State::Held);
        assert!(!dialogue.has_gone_on());
        dialogue.tell("next");
        hear(&mut dialogue, &["100^running", "*running,thread-id=\"all\"", "~\"Continuing.\\n\""]);
        assert!(dialogue.is_busy() && dialogue.is_running() && dialogue.has_gone_on());
        assert_eq!(said(&dialogue), None);
        hear(
            &mut dialogue,
            &["~\"5\\tx = 1;\\n\"", "*stopped,reason=\"end-stepping-range\",frame={func=\"f\"}"],
        );
        assert_eq!(said(&dialogue), Some(("5\tx = 1;\n".to_owned(), None)));
        dialogue.tell("continue");
        hear(&mut dialogue, &["101^running", "*running,thread-id=\"all\""]);
        // Another command does not wait for that.
        dialogue.tell("bt");
        assert_eq!(said(&dialogue).unwrap().1.unwrap(), "the rank runs");
        hear(&mut dialogue, &["*stopped,reason=\"exited\",exit-code=\"013\""]);
        assert_eq!(dialogue.answer().state, State::Ended("exit code 11".to_owned()));
    }

    #[test]
    fn what_is_asked_of_the_machine_interface_has_a_line_for_each_command() {
        let mut dialogue = Dialogue::begin(Rank(3), 7, State::Free, &Files::default());
        let ask = |dialogue: &mut Dialogue, commands: &[&str], room| {
            let commands = commands.iter().map(|it| (*it).to_owned()).collect();
            dialogue.ask(Asks { commands, room, without: vec!["addr".to_owned()] });
        };
        ask(&mut dialogue, &["-stack-list-frames", "-break-insert x\n-gdb-exit", "-exec-continue"], 200);
        assert!(written(&mut dialogue).contains("98-gdb-set var $rank = 3\n") && dialogue.is_busy());
        hear(&mut dialogue, &["99^done", "*stopped,frame={func=\"f\"}"]);
        assert_eq!(written(&mut dialogue), "100-stack-list-frames\n");
        hear(&mut dialogue, &["~\"noise\"", "100^done,stack=[frame={addr=\"0x1\",func=\"f\"}]"]);
        assert_eq!(written(&mut dialogue), "101-break-insert x -gdb-exit\n");
        hear(&mut dialogue, &["101^error,msg=\"no\""]);
        assert_eq!((written(&mut dialogue).as_str(), dialogue.is_busy()), ("102-exec-continue\n", true));
        hear(&mut dialogue, &["102^running"]);
        // It does not wait for a rank that runs.
        assert!(!dialogue.is_busy() && dialogue.is_running() && dialogue.has_gone_on());
        let lines = "^done,stack=[frame={func=\"f\"}]\n^error,msg=\"no\"\n^running\n";
        assert_eq!(said(&dialogue), Some((lines.to_owned(), None)));
        // A rank that runs can be asked, too; gdb reports what it cannot do.
        ask(&mut dialogue, &["-break-list"], 30);
        assert_eq!(written(&mut dialogue), "104-break-list\n");
        hear(&mut dialogue, &[&format!("104^done,x=\"{}\"", "x".repeat(100))]);
        assert_eq!(said(&dialogue).unwrap().0, "^error,msg=\"the answer is too long\"\n");
        assert!(dialogue.is_running());
    }

    #[test]
    fn a_signal_of_ours_that_comes_too_late_stops_nothing() {
        let mut dialogue = ready(State::Free);
        dialogue.tell("next");
        hear(&mut dialogue, &["100^running", "*running,thread-id=\"all\""]);
        dialogue.note_signal();
        hear(&mut dialogue, &["*stopped,reason=\"end-stepping-range\",frame={func=\"f\"}"]);
        dialogue.tell("continue");
        drop(written(&mut dialogue));
        hear(&mut dialogue, &["101^running", "*running,thread-id=\"all\""]);
        let urgent = "*stopped,reason=\"signal-received\",signal-name=\"SIGURG\",frame={func=\"f\"}";
        hear(&mut dialogue, &[urgent]);
        assert_eq!(written(&mut dialogue), "-interpreter-exec console \"continue\"\n");
        assert!(dialogue.is_running());
        // A SIGURG that was not ours stops it.
        hear(&mut dialogue, &[urgent]);
        assert!(!dialogue.is_running());
    }

    #[test]
    fn who_is_interrupted_is_not_said_to_have_got_a_signal() {
        let mut dialogue = ready(State::Free);
        let mut stop = |line: &str| {
            hear(&mut dialogue, &[line]);
            match dialogue.answer().state {
                State::Stopped(stop) => stop.why,
                other => format!("{other:?}"),
            }
        };
        assert_eq!(stop("*stopped,reason=\"signal-received\",signal-name=\"SIGURG\""), "interrupted");
        assert_eq!(stop("*stopped,reason=\"signal-received\",signal-name=\"SIGSEGV\""), "signal SIGSEGV");
        assert_eq!(
            stop("*stopped,reason=\"exited-signalled\",signal-name=\"SIGKILL\""),
            "Ended(\"killed by SIGKILL\")"
        );
    }

    #[test]
    fn errors_have_their_cause() {
        let mut dialogue = Dialogue::begin(Rank(3), 7, State::Held, &Files::default());
        dialogue.tell("bt");
        hear(&mut dialogue, &["99^error,msg=\"ptrace: Operation not permitted.\""]);
        let reply = dialogue.answer().reply.unwrap();
        assert_eq!(reply.error.unwrap(), "ptrace: Operation not permitted");
        assert!(reply.hint.unwrap().contains("ptrace_scope"));
        assert!(dialogue.is_over() && dialogue.answer().state == State::Held);
        let mut dialogue = ready(State::Free);
        dialogue.tell("print x");
        hear(&mut dialogue, &["&\"No symbol.\\n\"", "100^error,msg=\"No symbol.\""]);
        assert_eq!(said(&dialogue), Some(("No symbol.\n".to_owned(), Some("No symbol.".to_owned()))));
        dialogue.tell("print y");
        dialogue.end();
        assert_eq!(said(&dialogue).unwrap().1.unwrap(), "gdb has ended");
        assert_eq!((dialogue.answer().state, dialogue.has_ended()), (State::Free, true));
    }

    #[test]
    fn long_answers_are_cut() {
        let mut dialogue = ready(State::Free);
        dialogue.tell("x/99999x $sp");
        for _ in 0..MAX_SAID_BYTES / 1000 + 2 {
            dialogue.take(Record::Console("x".repeat(1000)));
        }
        hear(&mut dialogue, &["100^done"]);
        let (said, _) = said(&dialogue).unwrap();
        assert!(
            said.ends_with("more bytes: 'raw' shows them)") && said.len() < MAX_SAID_BYTES + 100,
            "{}",
            said.len()
        );
    }
}
