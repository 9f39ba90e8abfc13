//! The stacks of a process.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gantry_stack::frame::{Frame, Mark};
use gantry_stack::module::Module;

use crate::aside::{Aside, FIRST_ANSWER, FIRST_ANSWERS, Patience};
use crate::files::Mapped;
use crate::image::{Image, Loaded};
use crate::maps::{FileKey, Maps};
use crate::memory::{Memory, StackCopy};
use crate::polling::{self, Polling};
use crate::python::{self, Calls, Interpreters, Names, Python};
use crate::refusal;
use crate::registers::{Registers, ThreadState};
use crate::script::{Variables, is_interpreter};
use crate::steady::{Same, Steady};
use crate::stop::{NotStopped, Stopped, Stopper};
use crate::unwind::{MAX_FRAMES, RawFrame, Unwinder};

/// The most threads that are stopped at a time.
const AT_A_TIME: usize = 64;

/// The frames at each end of a stack that are sent.
const FRAMES_AT_END: usize = 512;

/// Reads stacks. Knowledge about a file serves all processes.
#[derive(Debug)]
pub struct Reader {
    stopper: Stopper,
    patience: Patience,
    images: HashMap<FileKey, Aside<Loaded>>,
    modules: BTreeSet<Module>,
    steady: Steady,
    /// The process and thread of each last sample that lacks what was late. Its callers were guessed.
    guessed: HashSet<(i32, i32)>,
    polling: Polling,
    compares_scripts: bool,
    interpreters: Interpreters,
    names: Names,
    longest: Duration,
}

/// What is read of a process before its threads are stopped.
struct Process {
    maps: Maps,
    python: Option<Python>,
}

/// A stack, outermost frame first, after marks about the process.
pub type Stack = Vec<Frame>;

/// The copy of a stopped thread's state.
struct Copied {
    state: ThreadState,
    stack: StackCopy,
    calls: Calls,
    before: bool,
}

impl Reader {
    /// Makes a reader without cached files. It blocks SIGCHLD in the calling thread, which must be the one that reads.
    ///
    /// # Errors
    /// An error of the system.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            stopper: Stopper::new()?,
            patience: Patience::new(FIRST_ANSWER, FIRST_ANSWERS),
            images: HashMap::new(),
            modules: BTreeSet::new(),
            steady: Steady::default(),
            guessed: HashSet::new(),
            polling: Polling::default(),
            compares_scripts: false,
            interpreters: Interpreters::new(),
            names: Names::default(),
            longest: Duration::ZERO,
        })
    }

    /// Begins an order: from now on, files that were late before are used if they are there.
    pub(crate) fn begin_order(&self) {
        self.patience.begin_order();
    }

    /// The paths of files that are late. In stacks of this order, frames in them are unknown.
    pub(crate) fn late_files(&self) -> BTreeSet<&str> {
        let images = self.images.iter().filter(|(_, image)| image.is_late()).map(|(key, _)| key);
        let interpreters = self.interpreters.iter().filter(|(_, it)| it.is_late()).map(|(key, _)| key);
        images.chain(interpreters).map(|key| key.path.as_str()).collect()
    }

    /// Reads the stacks of each process's first thread, or those of `all_threads`. An unreadable process gets a stack
    /// with the reason.
    pub fn read(&mut self, pids: &[i32], all_threads: bool) -> Vec<Vec<Stack>> {
        let mut stacks: Vec<Vec<Stack>> = vec![Vec::new(); pids.len()];
        // Read everything else first, so that each thread is stopped as briefly as possible.
        let known: Vec<Option<Process>> = pids.iter().map(|pid| self.look_at(*pid)).collect();
        let mut threads = Vec::new();
        for (at, pid) in pids.iter().enumerate() {
            match known[at] {
                Some(_) if all_threads => {
                    threads.extend(threads_of(*pid).into_iter().map(|thread| (at, thread)))
                }
                // Others are only sampled.
                Some(_) => {
                    let wanted = self.polling.wanted(*pid);
                    threads.extend(std::iter::once(*pid).chain(wanted).map(|thread| (at, thread)));
                }
                None => stacks[at].push(vec![self.unseen(*pid)]),
            }
        }
        // Copies of stacks are large, so take only some threads at a time.
        for some in threads.chunks(AT_A_TIME) {
            for ((at, thread), copied) in some.iter().zip(self.copy(pids, &known, some)) {
                let pid = pids[*at];
                let Some(known) = &known[*at] else { continue };
                let is_wanted = all_threads || *thread == pid;
                stacks[*at].extend(self.take(pid, *thread, copied, known, is_wanted));
            }
        }
        stacks
    }

    /// What is the same in all samples of a process's first thread since the last call. None: its stack could not be
    /// read. From the first call on, variables of scripts are compared.
    pub(crate) fn ask_steady(&mut self, pid: i32) -> Option<Same> {
        self.compares_scripts = true;
        self.steady.ask(pid)
    }

    /// Names the threads beside a process's first one that are sampled, too.
    pub(crate) fn watch(&mut self, pid: i32, threads: &[i32]) {
        self.polling.watch(pid, threads);
    }

    /// Whether such a thread has only polled since the last call.
    pub(crate) fn ask_polls(&mut self, pid: i32, thread: i32) -> bool {
        self.polling.ask(pid, thread)
    }

    /// The programs and libraries in all stacks so far.
    pub fn modules(&self) -> impl Iterator<Item = &Module> + Clone {
        self.modules.iter()
    }

    /// The longest time that a thread was stopped.
    #[must_use]
    pub fn longest_stop(&self) -> Duration {
        self.longest
    }

    /// Where the file of a module can be read, through a process that has mapped it.
    #[must_use]
    pub fn file_of(pid: i32, module: &Module) -> Option<PathBuf> {
        Mapped { pid, module: module.clone() }.find()
    }

    /// None: the process has ended, or may not be read.
    fn look_at(&mut self, pid: i32) -> Option<Process> {
        let maps = Maps::of_process(pid).ok()?;
        let python = python::find(Memory { pid }, &maps, &mut self.interpreters, &self.patience);
        Some(Process { maps, python })
    }

    fn unseen(&self, pid: i32) -> Frame {
        let why = match fs::metadata(format!("/proc/{pid}")) {
            Err(_) => return Frame::Mark(Mark::Ended),
            Ok(_) => refusal::explain(pid, &io::Error::from_raw_os_error(libc::EPERM)),
        };
        Frame::Mark(Mark::Unreadable(why))
    }

    /// Takes a sample. None: its stack is not wanted, or the thread has ended.
    fn take(
        &mut self,
        pid: i32,
        thread: i32,
        copied: Result<Copied, Mark>,
        known: &Process,
        is_wanted: bool,
    ) -> Option<Stack> {
        let is_first = thread == pid;
        let mut stack = match copied {
            Ok(Copied { state, stack, calls, before }) => {
                let late = self.patience.late();
                let raw = self.find_callers(pid, state.registers, stack, known);
                // A sample differs from a guess also where a thread stands still.
                let is_guess = self.patience.late() != late;
                let is_known_at_last = self.guessed.remove(&(pid, thread)) && !is_guess;
                if is_guess {
                    self.guessed.insert((pid, thread));
                }
                match is_first {
                    true => {
                        if is_known_at_last {
                            self.steady.forget(pid);
                        }
                        let variables = self.variables(&raw, known.python.as_ref(), &calls);
                        self.steady.take(pid, raw.iter().map(RawFrame::state), variables);
                    }
                    false => {
                        let state = polling::state_of(&raw, state.system_call);
                        match is_known_at_last {
                            true => self.polling.correct(pid, thread, state),
                            false => self.polling.take(pid, thread, state),
                        }
                    }
                }
                is_wanted.then(|| self.name_all(&raw, known.python.as_ref(), &calls, before))?
            }
            Err(mark) => {
                self.guessed.remove(&(pid, thread));
                match is_first {
                    true => {
                        self.steady.forget(pid);
                        self.polling.forget(pid);
                    }
                    false => self.polling.take(pid, thread, None),
                }
                // Ignore a thread that has ended meanwhile.
                let is_wanted = is_first || (is_wanted && mark != Mark::Ended);
                is_wanted.then(|| vec![Frame::Mark(mark)])?
            }
        };
        if !is_first {
            stack.insert(0, Frame::Mark(Mark::Thread(thread_name(pid, thread))));
        }
        Some(stack)
    }

    fn find_callers(
        &mut self,
        pid: i32,
        registers: Registers,
        stack: StackCopy,
        known: &Process,
    ) -> Vec<RawFrame> {
        // It may have loaded a library since.
        let newer = match known.maps.is_code(registers.instruction()) {
            true => None,
            false => Maps::of_process(pid).ok(),
        };
        let maps = newer.as_ref().unwrap_or(&known.maps);
        let (images, patience) = (&mut self.images, &self.patience);
        let mut find = |key: &Arc<FileKey>, base: u64| {
            if !images.contains_key(key.as_ref()) {
                images.insert(key.as_ref().clone(), Aside::new(patience));
            }
            let (file, patience) = (Arc::clone(key), patience.clone());
            // Pages that nobody has used yet come from the file.
            let load = move || Image::load(Memory { pid }, base, &file, &patience);
            let loaded = images.get(key.as_ref())?.get(load)?.clone();
            if loaded.is_none() {
                images.remove(key.as_ref());
            }
            loaded?
        };
        Unwinder { maps, stack, images: &mut find }.frames(registers)
    }

    /// The variables of the script that a thread is in. A thread that stands still has the same ones after its stop.
    fn variables(&self, raw: &[RawFrame], python: Option<&Python>, calls: &Calls) -> Variables {
        let is_interpreter =
            |frame: &RawFrame| frame.file.as_ref().is_some_and(|(key, ..)| is_interpreter(&key.path));
        match python.filter(|_| !calls.is_empty()) {
            Some(python) if self.compares_scripts => Variables::Known(python::hash_variables(python, calls)),
            None if !raw.iter().any(is_interpreter) => Variables::Absent,
            Some(_) | None => Variables::Unknown,
        }
    }

    /// The stack for the wire.
    fn name_all(&mut self, raw: &[RawFrame], python: Option<&Python>, calls: &Calls, before: bool) -> Stack {
        let mut frames: Stack = before.then_some(Frame::Mark(Mark::Stopped)).into_iter().collect();
        let modules = &mut self.modules;
        let mut name = |frame: &RawFrame| name(modules, frame);
        let mut innermost_first = match python {
            Some(python) => python::weave(raw, python, calls, &mut self.names, name),
            None => raw.iter().map(&mut name).collect(),
        };
        if raw.len() >= MAX_FRAMES {
            innermost_first.push(Frame::LeftOut { all: 0, code: 0 });
        }
        leave_out(&mut innermost_first);
        frames.extend(innermost_first.into_iter().rev());
        frames
    }

    /// Stops threads, each on its own, copies their state, and lets them continue.
    fn copy(
        &mut self,
        pids: &[i32],
        known: &[Option<Process>],
        threads: &[(usize, i32)],
    ) -> Vec<Result<Copied, Mark>> {
        let mut results: Vec<Result<Copied, Mark>> = threads.iter().map(|_| Err(Mark::Ended)).collect();
        let numbers: Vec<i32> = threads.iter().map(|(_, thread)| *thread).collect();
        let longest = &mut self.longest;
        let traced = self.stopper.each(&numbers, |which, stopped| {
            let (at, thread) = threads[which];
            results[which] = match stopped {
                Ok(stopped) => copy_of(pids[at], thread, known[at].as_ref(), stopped, longest),
                Err(NotStopped::Ended) => Err(Mark::Ended),
                Err(NotStopped::Traced(tracer)) => Err(Mark::Unreadable(refusal::traced_by(tracer))),
                Err(NotStopped::Refused(error)) => Err(Mark::Unreadable(refusal::explain(thread, &error))),
                Err(NotStopped::Busy) => Err(Mark::Kernel(busy_in(pids[at], thread))),
            };
        });
        if let Err(error) = traced {
            results
                .fill_with(|| Err(Mark::Unreadable(format!("no thread can be started to read it: {error}"))));
        }
        results
    }
}

/// Takes frames out of the middle of a long stack.
fn leave_out(frames: &mut Vec<Frame>) {
    let Some(all) = frames.len().checked_sub(2 * FRAMES_AT_END).filter(|it| *it > 0) else { return };
    let middle = FRAMES_AT_END..FRAMES_AT_END + all;
    let is_code = |frame: &&Frame| matches!(frame, Frame::Code { .. } | Frame::Unknown);
    let code = frames[middle.clone()].iter().filter(is_code).count();
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    frames.splice(middle, [Frame::LeftOut { all: number(all), code: number(code) }]);
}

/// A machine frame for the wire. Records its file.
fn name(modules: &mut BTreeSet<Module>, frame: &RawFrame) -> Frame {
    let Some((key, Some(image), base)) = &frame.file else { return Frame::Unknown };
    let module = Module { id: image.id.clone(), path: key.path.clone() };
    if !modules.contains(&module) {
        modules.insert(module);
    }
    Frame::Code { module: image.id.clone(), address: image.to_file(frame.instruction, *base) }
}

/// Copies a stopped thread's state, and lets it continue.
fn copy_of(
    pid: i32,
    thread: i32,
    known: Option<&Process>,
    stopped: Stopped,
    longest: &mut Duration,
) -> Result<Copied, Mark> {
    let started = Instant::now();
    let state = ThreadState::of_thread(thread).map_err(|error| match error.kind() {
        io::ErrorKind::Unsupported => {
            Mark::Unreadable("only stacks of 64-bit processes of x86-64 can be read".to_owned())
        }
        // The thread was killed meanwhile.
        _ => Mark::Ended,
    })?;
    let from = state.registers.stack();
    let end = known.and_then(|known| known.maps.find(from)).map_or(from, |region| region.end);
    let stack = StackCopy::take(Memory { pid }, from, end);
    let python = known.and_then(|known| known.python.as_ref());
    let calls = python.map(|python| python.calls(state.thread_pointer)).unwrap_or_default();
    let before = stopped.before;
    drop(stopped);
    *longest = started.elapsed().max(*longest);
    Ok(Copied { state, stack, calls, before })
}

/// All threads, the first one before the others.
fn threads_of(pid: i32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut threads: Vec<i32> =
        entries.filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok())).collect();
    threads.sort_unstable_by_key(|thread| (*thread != pid, *thread));
    if threads.is_empty() { vec![pid] } else { threads }
}

/// The name of a thread without the number at its end.
fn thread_name(pid: i32, thread: i32) -> String {
    let name = fs::read(format!("/proc/{pid}/task/{thread}/comm")).unwrap_or_default();
    let name = String::from_utf8_lossy(&name);
    let name = name.trim_end();
    let stem = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || "-_:/#. ".contains(letter));
    if stem.is_empty() { name.to_owned() } else { stem.to_owned() }
}

/// The kernel function in which a thread waits. Source: proc_pid_wchan(5).
fn busy_in(pid: i32, thread: i32) -> Option<String> {
    let place = fs::read_to_string(format!("/proc/{pid}/task/{thread}/wchan")).ok()?;
    Some(place.trim().to_owned()).filter(|place| !matches!(&**place, "" | "0"))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::sync::mpsc::Sender;

    use super::*;

    struct Sleeper(Child);

    impl Sleeper {
        fn new() -> Self {
            Self::of("sleep", &["300"])
        }

        #[expect(clippy::disallowed_methods, reason = "a test needs a process of its own")]
        fn of(program: &str, words: &[&str]) -> Self {
            Self(Command::new(program).args(words).stdout(Stdio::null()).spawn().unwrap())
        }

        fn pid(&self) -> i32 {
            i32::try_from(self.0.id()).unwrap()
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    /// A reader for which the C library of a process is late until the sender says so.
    fn without_libc(pid: i32) -> (Reader, FileKey, Sender<()>) {
        let mut reader = Reader { patience: Patience::new(Duration::ZERO, 1), ..Reader::new().unwrap() };
        let maps = Maps::of_process(pid).unwrap();
        let (key, base) = maps.files().find(|(key, _)| key.path.contains("libc.")).unwrap();
        let (file, patience) = (Arc::clone(key), reader.patience.clone());
        let load = move || Image::load(Memory { pid }, base, &file, &patience);
        let (image, go_on) = Aside::hung(&reader.patience, load);
        reader.images.insert(FileKey::clone(key), image);
        (reader, FileKey::clone(key), go_on)
    }

    #[test]
    fn a_second_thread_that_polls_still_does_when_a_late_file_comes() {
        // The process that is read runs this test too, on its second thread. The other filter only marks it.
        const MARK: &str = "sleeps";
        const WORDS: [&str; 4] = [
            "--test-threads=2",
            "--exact",
            "reader::tests::a_second_thread_that_polls_still_does_when_a_late_file_comes",
            MARK,
        ];
        if std::env::args().any(|word| word == MARK) {
            #[expect(clippy::disallowed_methods, reason = "it is killed meanwhile")]
            std::thread::sleep(Duration::from_secs(300));
        }
        let sleeper = Sleeper::of(std::env::current_exe().unwrap().to_str().unwrap(), &WORDS);
        let pid = sleeper.pid();
        let until = Instant::now() + Duration::from_secs(60);
        let thread = loop {
            if let [_, thread] = threads_of(pid)[..] {
                break thread;
            }
            assert!(Instant::now() < until, "no second thread");
        };
        // After a sample, the kernel restarts the call.
        let sleeps = || {
            let call = fs::read_to_string(format!("/proc/{pid}/task/{thread}/syscall")).unwrap();
            ["219 ", "230 "].iter().any(|number| call.starts_with(number))
        };
        let polls = |reader: &mut Reader, thread| {
            while !sleeps() {
                assert!(Instant::now() < until, "it does not sleep");
            }
            reader.begin_order();
            reader.read(&[pid], false);
            reader.ask_polls(pid, thread)
        };
        let (mut reader, libc, go_on) = without_libc(pid);
        reader.watch(pid, &[thread]);
        assert_eq!([polls(&mut reader, thread), polls(&mut reader, thread)], [false, true]);
        reader.images[&libc].arrive(&go_on);
        assert!(polls(&mut reader, thread));
        assert!(reader.late_files().is_empty() && reader.guessed.is_empty());
    }

    #[test]
    fn equal_processes_have_equal_stacks_in_an_order_in_whose_midst_a_late_file_comes() {
        let sleepers = [Sleeper::new(), Sleeper::new()];
        let [one, other] = [0, 1].map(|at| sleepers[at].pid());
        let is_unknown = |stack: &Stack| stack.last() == Some(&Frame::Unknown);
        let until = Instant::now() + Duration::from_secs(60);
        let mut reader = Reader::new().unwrap();
        loop {
            let stacks = reader.read(&[one, other], false);
            if stacks[0] == stacks[1] && stacks[0][0].len() > 2 {
                break;
            }
            assert!(Instant::now() < until, "{stacks:?}");
        }

        let (mut reader, libc, go_on) = without_libc(one);
        reader.begin_order();
        assert!(is_unknown(&reader.read(&[one], false)[0][0]));
        reader.images[&libc].arrive(&go_on);
        assert!(is_unknown(&reader.read(&[other], false)[0][0]));
        assert_eq!(reader.late_files(), [libc.path.as_str()].into());
        assert!([one, other].iter().all(|pid| reader.ask_steady(*pid).is_some()));

        reader.begin_order();
        let stacks = reader.read(&[one, other], false);
        assert!(stacks[0] == stacks[1] && !is_unknown(&stacks[0][0]), "{stacks:?}");
        assert!(reader.late_files().is_empty());
        // They have stood still.
        let steady = [one, other].map(|pid| reader.ask_steady(pid).unwrap().frames);
        assert_eq!(steady, [stacks[0][0].len(); 2]);
    }

    #[test]
    fn files_of_a_process_that_ends_while_it_is_read_are_read_from_the_next_one() {
        let other = Sleeper::new();
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let mut one = Sleeper::new();
            let pids = [one.pid(), other.pid()];
            let expected = Reader::new().unwrap().read(&pids[1..], false).remove(0);
            let mut reader = Reader::new().unwrap();
            let known = reader.look_at(pids[0]);
            let copied = reader.copy(&pids, std::slice::from_ref(&known), &[(0, pids[0])]).remove(0);
            one.0.kill().unwrap();
            one.0.wait().unwrap();
            let stack = known.and_then(|known| reader.take(pids[0], pids[0], copied, &known, true));
            let stacks = reader.read(&pids[1..], false).remove(0);
            // The processes may not have reached their function before.
            let is_unread = stack.is_some_and(|stack| stack.contains(&Frame::Unknown));
            if is_unread && stacks == expected && stacks[0].len() > 2 {
                break;
            }
            assert!(Instant::now() < until, "{stacks:?} {expected:?}");
        }
    }
}
