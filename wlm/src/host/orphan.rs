//! Starts a helper that is not a child of this process.
//!
//! The frontend library runs in a foreign program, which may call `waitpid(-1)`, handle SIGCHLD, or ignore it. A helper
//! would interfere there as a child. So the helper is started as a grandchild. The child in between ends before this
//! function returns.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, PipeReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gantry_shared::deadline::bounded;

use super::open_files::{given_open_files, restore_open_files};
use super::sys;
use super::sys::grandchild::{self, Grandchild, above_stdio};
use super::{IsAnswer, Question};

/// The maximum size of an answer.
const MAX_ANSWER_BYTES: u64 = 512 << 20;

/// Starts `program`, a path, with `stdin` as its standard input. It gets its own session, no standard output or error,
/// the directory `/`, and default, unblocked signals. Returns after its exec.
///
/// # Errors
/// The program cannot be executed, or no process can be created.
pub fn spawn_orphan<A: AsRef<OsStr>>(program: &Path, args: &[A], stdin: OwnedFd) -> io::Result<()> {
    let program = to_c(program)?;
    let args = args.iter().map(|arg| to_c(arg.as_ref()));
    let argv = std::iter::once(Ok(program.clone())).chain(args).collect::<io::Result<_>>()?;
    let variables = std::env::vars_os();
    let env = variables
        .map(|(name, value)| to_c([name, value].join(OsStr::new("="))))
        .collect::<io::Result<_>>()?;
    let nowhere = above_stdio(File::options().write(true).open("/dev/null")?.into())?;
    let stdin = above_stdio(stdin)?;
    let stdio = [stdin.as_raw_fd(), nowhere.as_raw_fd(), nowhere.as_raw_fd()];
    let open_files = given_open_files();
    grandchild::spawn(&Grandchild { program, argv, env, directory: c"/", stdio, open_files })
}

fn to_c(text: impl AsRef<OsStr>) -> io::Result<CString> {
    Ok(CString::new(text.as_ref().as_bytes())?)
}

/// A helper that is not a child of this process, with a handle to end it.
#[derive(Debug)]
pub struct Orphan {
    /// `None`: it ended before its handle could be opened.
    process: Option<OwnedFd>,
    /// Its pid, and the number of its process group.
    pid: libc::pid_t,
}

impl Orphan {
    /// Kills it and its process group. An ended helper is not an error.
    ///
    /// # Errors
    /// The system's error.
    pub fn kill(&self) -> io::Result<()> {
        let Some(process) = &self.process else { return Ok(()) };
        // While the process has not ended, its number cannot be reused.
        if sys::is_there(process) {
            sys::kill_group(self.pid);
        }
        sys::kill_process(process)
    }
}

/// As [`spawn_orphan`], with this environment, all three standard descriptors and a handle to end it. Dropping the
/// handle does not end it.
///
/// # Errors
/// As [`spawn_orphan`]; the kernel is older than 5.3.
pub fn spawn_orphan_with<A: AsRef<OsStr>>(
    program: &Path,
    args: &[A],
    env: Vec<(OsString, OsString)>,
    [stdin, stdout, stderr]: [OwnedFd; 3],
) -> io::Result<Orphan> {
    #[expect(clippy::disallowed_methods, reason = "the Host interface starts foreign processes here")]
    let mut command = Command::new(program);
    command.args(args).stdin(stdin).stdout(stdout).stderr(stderr).current_dir("/");
    tracing::debug!(?command, "running");
    command.env_clear().envs(env);
    spawn_told(&mut command)
}

/// Starts it as a grandchild, which reports its pid.
fn spawn_told(command: &mut Command) -> io::Result<Orphan> {
    let (mut told, tell) = io::pipe()?;
    restore_open_files(command);
    sys::fork_once_more(command, tell.into());
    reap(command.spawn()?)?;
    let mut pid = [0; size_of::<libc::c_long>()];
    told.read_exact(&mut pid)?;
    let pid = libc::pid_t::try_from(libc::c_long::from_ne_bytes(pid)).map_err(io::Error::other)?;
    match sys::pidfd_open(pid) {
        Ok(process) => Ok(Orphan { process: Some(process), pid }),
        Err(gone) if gone.raw_os_error() == Some(libc::ESRCH) => Ok(Orphan { process: None, pid }),
        Err(error) => Err(error),
    }
}

/// Reaps the process in between.
fn reap(mut middle: Child) -> io::Result<()> {
    // The middle process has ended or is about to. A host program that waits for any child may have reaped it already,
    // which is fine.
    match middle.wait() {
        Ok(_) => Ok(()),
        Err(e) if e.raw_os_error() == Some(libc::ECHILD) => Ok(()),
        Err(e) => Err(e),
    }
}

/// The output of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// The number of bytes that any pipe takes without a reader.
const MOST_INPUT_BYTES: usize = 60 << 10;

/// How long a caller that gives up waits for a program that is about to start.
const STARTS_WITHIN: Duration = Duration::from_secs(1);

/// How long a program may stay after its answer. It may be a script that does more.
const STAYS_WITHIN: Duration = Duration::from_secs(3);

/// The programs that run for one caller, who may give up.
#[derive(Debug, Default)]
pub(super) struct Running {
    programs: Mutex<Programs>,
    /// A program has started, or has not.
    started: Condvar,
}

#[derive(Debug, Default)]
struct Programs {
    given_up: bool,
    /// How many are about to start.
    starting: usize,
    orphans: Vec<Arc<Orphan>>,
}

impl Running {
    /// Kills them all, and lets no other begin. This process may end next, so it waits a moment for those that start.
    pub(super) fn end(&self) {
        let mut programs = self.lock();
        programs.given_up = true;
        for orphan in programs.orphans.drain(..) {
            // It may have ended.
            orphan.kill().err();
        }
        drop(self.started.wait_timeout_while(programs, STARTS_WITHIN, |programs| programs.starting > 0));
    }

    fn lock(&self) -> MutexGuard<'_, Programs> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a program. It is killed when the caller gives up, as long as the result lives.
    fn start(&self, command: &mut Command) -> io::Result<Watched<'_>> {
        {
            let mut programs = self.lock();
            programs.check()?;
            programs.starting += 1;
        }
        let started = spawn_told(command).map(Arc::new);
        let mut programs = self.lock();
        programs.starting -= 1;
        if let Ok(orphan) = &started {
            match programs.given_up {
                true => drop(orphan.kill()),
                false => programs.orphans.push(Arc::clone(orphan)),
            }
        }
        self.started.notify_all();
        Ok(Watched { orphan: started?, running: self })
    }
}

impl Programs {
    /// # Errors
    /// The caller has given up. What a killed program has said until then is no answer.
    fn check(&self) -> io::Result<()> {
        match self.given_up {
            false => Ok(()),
            // It has no reader.
            true => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}

/// A program that runs for its caller.
struct Watched<'a> {
    orphan: Arc<Orphan>,
    running: &'a Running,
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.running.lock().orphans.retain(|other| !Arc::ptr_eq(other, &self.orphan));
    }
}

/// Runs a small program, not as a child of this process, and returns its output. Its exit status is unknown, so its
/// output must show the result. After the timeout it is killed with its process group, and when `running` is ended.
/// After a line for which `is_answer` holds, it is killed earlier, which is no error.
///
/// # Errors
/// It cannot be executed, or exceeds the timeout (`TimedOut`); the input exceeds a pipe's capacity (`InvalidInput`); its
/// caller has given up.
pub(super) fn ask(question: Question<'_>, running: &Running) -> io::Result<Asked> {
    let Question { dir, command, input, env, is_answer, timeout } = question;
    if input.len() > MOST_INPUT_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too much for its standard input"));
    }
    let (program, args) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let until = Instant::now() + bounded(timeout);
    let (out, to_out) = io::pipe()?;
    let (err, to_err) = io::pipe()?;
    let stdin = if input.is_empty() {
        Stdio::null()
    } else {
        let (stdin, mut to_stdin) = io::pipe()?;
        to_stdin.write_all(input)?;
        Stdio::from(stdin)
    };
    tracing::debug!(?command, "asking");
    #[expect(clippy::disallowed_methods, reason = "the Host interface starts foreign processes here")]
    let mut command = Command::new(program);
    command.args(args).stdin(stdin).stdout(to_out).stderr(to_err).current_dir(dir);
    command.env_clear().envs(env);
    // If there is no thread for its output, the program does not start: it might submit a job that nobody knows.
    let (stdout, stderr) = (read_aside(out, is_answer)?, read_aside(err, None)?);
    let watched = running.start(&mut command)?;
    let orphan = &watched.orphan;
    // `command` holds our ends of the pipes and would keep them open.
    drop(command);
    let late = |_| {
        // The timeout is the error to report.
        orphan.kill().err();
        io::Error::new(io::ErrorKind::TimedOut, format!("did not end within {} s", timeout.as_secs_f32()))
    };
    let left = |until: Instant| until.saturating_duration_since(Instant::now());
    let mut said = stdout.recv_timeout(left(until)).map_err(late)??;
    let has_answered = !said.ended;
    let until = if has_answered { until.min(Instant::now() + STAYS_WITHIN) } else { until };
    if has_answered {
        match stdout.recv_timeout(left(until)) {
            Ok(all) => said = all?,
            // Its answer is complete.
            Err(_stays) => drop(orphan.kill()),
        }
    }
    let errors = match stderr.recv_timeout(left(until)) {
        Ok(errors) => errors?.bytes,
        Err(_stays) if has_answered => Vec::new(),
        Err(error) => return Err(late(error)),
    };
    running.lock().check()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Asked { stdout: text(&said.bytes), stderr: text(&errors) })
}

/// What a program has written.
#[derive(Debug)]
struct Written {
    bytes: Vec<u8>,
    /// There is no more.
    ended: bool,
}

/// Reads to the end on a separate thread. With `is_answer`, what has come by then is a message of its own.
fn read_aside(pipe: PipeReader, is_answer: Option<IsAnswer>) -> io::Result<Receiver<io::Result<Written>>> {
    let (sender, read) = mpsc::channel();
    std::thread::Builder::new().name("answer".to_owned()).spawn(move || {
        let mut pipe = BufReader::new(pipe.take(MAX_ANSWER_BYTES));
        let begun = is_answer.map_or(Ok(Vec::new()), |is_answer| read_answer(&mut pipe, is_answer));
        let all = begun.and_then(|mut bytes| {
            if !bytes.is_empty() {
                drop(sender.send(Ok(Written { bytes: bytes.clone(), ended: false })));
            }
            pipe.read_to_end(&mut bytes).map(|_| Written { bytes, ended: true })
        });
        // The receiver is gone after the timeout.
        drop(sender.send(all));
    })?;
    Ok(read)
}

/// Reads up to the end of the first answer, or to the end.
fn read_answer(pipe: &mut impl BufRead, is_answer: IsAnswer) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let begin = bytes.len();
        if pipe.read_until(b'\n', &mut bytes)? == 0 || is_answer(&String::from_utf8_lossy(&bytes[begin..])) {
            return Ok(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn ask_with(
        dir: &Path,
        command: &[OsString],
        input: &[u8],
        env: Vec<(OsString, OsString)>,
        is_answer: Option<IsAnswer>,
        timeout: Duration,
    ) -> io::Result<Asked> {
        ask(Question { dir, command, input, env, is_answer, timeout }, &Running::default())
    }

    fn own_env() -> Vec<(OsString, OsString)> {
        std::env::vars_os().collect()
    }

    #[test]
    fn a_program_has_the_environment_that_it_was_given_and_no_more() {
        let env = vec![("A".into(), "1".into())];
        let said =
            ask_with(Path::new("/"), &["/usr/bin/env".into()], &[], env, None, Duration::from_secs(60));
        assert_eq!(said.unwrap().stdout, "A=1\n");
    }

    #[test]
    fn the_helper_is_not_our_child_and_has_its_own_session() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let script = "read -r _ _ _ ppid _ sid _ < /proc/self/stat; echo $$ $ppid $sid >&0";
        spawn_orphan(Path::new("/bin/sh"), &["-c", script], theirs.into()).unwrap();
        let mut text = String::new();
        ours.read_to_string(&mut text).unwrap();
        let numbers: Vec<u32> = text.split_whitespace().map(|n| n.parse().unwrap()).collect();
        assert_eq!(numbers.len(), 3, "{text}");
        assert_ne!(numbers[1], std::process::id());
        assert_eq!(numbers[0], numbers[2], "leader of its own session");
    }

    #[test]
    fn the_helper_ignores_no_signal_that_we_do() {
        // SIGWINCH does not matter to tests, so ignoring it is harmless.
        // SAFETY: sets no handler.
        #[expect(unsafe_code, reason = "tests what a process inherits")]
        unsafe {
            libc::signal(libc::SIGWINCH, libc::SIG_IGN)
        };
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        spawn_orphan(Path::new("/bin/sh"), &["-c", "grep SigIgn /proc/self/status >&0"], theirs.into())
            .unwrap();
        let mut text = String::new();
        ours.read_to_string(&mut text).unwrap();
        assert_eq!(text.split_whitespace().nth(1), Some("0000000000000000"), "{text}");
    }

    #[test]
    fn a_program_returns_its_output_and_is_not_our_child() {
        let run = |command: &[OsString], deadline| {
            ask_with(Path::new("/"), command, &[], own_env(), None, deadline)
        };
        let ask = |script: &str, deadline| run(&["/bin/sh".into(), "-c".into(), script.into()], deadline);
        let said = ask("echo $PPID; echo no >&2; exit 3", Duration::from_secs(10)).unwrap();
        assert_eq!(said.stderr, "no\n");
        assert_ne!(said.stdout.trim().parse::<u32>().unwrap(), std::process::id());
        let error = ask("exec sleep 1", Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // Its children have ended, too: the pipe's other end is closed.
        let (mut ours, theirs) = io::pipe().unwrap();
        let path = format!("/proc/{}/fd/{}", std::process::id(), theirs.as_raw_fd());
        let script = format!("exec 3>{path}; sleep 1000 & sleep 1000");
        let error = ask(&script, Duration::from_millis(200)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(theirs);
        assert_eq!(ours.read(&mut [0]).unwrap(), 0);
        let error = run(&["/no/such".into()], Duration::from_secs(10)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_program_that_stays_after_its_answer_is_killed_and_one_that_ends_says_all() {
        let ask = |script: &str, timeout| {
            let command = ["/bin/sh", "-c", script].map(OsString::from);
            let is_answer: IsAnswer = |line| line.trim() == "7";
            ask_with(Path::new("/"), &command, &[], own_env(), Some(is_answer), timeout)
        };
        let (mut ours, theirs) = io::pipe().unwrap();
        let path = format!("/proc/{}/fd/{}", std::process::id(), theirs.as_raw_fd());
        let script = format!("exec 3>{path}; echo hello; echo 7; sleep 1000 & sleep 1000");
        let said = ask(&script, Duration::from_secs(60)).unwrap();
        assert_eq!(said.stdout, "hello\n7\n");
        drop(theirs);
        assert_eq!(ours.read(&mut [0]).unwrap(), 0);
        let said = ask("echo 7; echo more; echo words >&2", Duration::from_secs(60)).unwrap();
        assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("7\nmore\n", "words\n"));
        let said = ask("printf 7; exit 1", Duration::from_secs(60)).unwrap();
        assert_eq!(said.stdout, "7");
        let late = ask("echo 8; exec sleep 1000", Duration::from_millis(100)).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_program_reads_its_input_and_the_end_of_it() {
        let cat = ["/bin/cat".into()];
        let input = vec![b'x'; MOST_INPUT_BYTES];
        let said = ask_with(Path::new("/"), &cat, &input, own_env(), None, Duration::from_secs(10)).unwrap();
        assert_eq!(said.stdout.len(), input.len());
        let more = vec![b'x'; MOST_INPUT_BYTES + 1];
        let error =
            ask_with(Path::new("/"), &cat, &more, own_env(), None, Duration::from_secs(10)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn an_orphan_can_be_killed_and_one_that_has_ended_is_fine() {
        let start = |program: &str, args: &[&str]| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let theirs = OwnedFd::from(theirs);
            let stdio = [theirs.try_clone().unwrap(), theirs.try_clone().unwrap(), theirs];
            (ours, spawn_orphan_with(Path::new(program), args, own_env(), stdio).unwrap())
        };
        let (mut ours, orphan) = start("/bin/sleep", &["1000"]);
        orphan.kill().unwrap();
        // Its ends are closed with it.
        assert_eq!(ours.read(&mut [0]).unwrap(), 0);
        // Its children, which share them, have ended, too.
        let (mut ours, orphan) = start("/bin/sh", &["-c", "sleep 1000 & echo; wait"]);
        assert_eq!(ours.read(&mut [0]).unwrap(), 1);
        orphan.kill().unwrap();
        assert_eq!(ours.read(&mut [0]).unwrap(), 0);
        for _ in 0..20 {
            let (mut ours, orphan) = start("/bin/true", &[]);
            assert_eq!(ours.read(&mut [0]).unwrap(), 0);
            orphan.kill().unwrap();
        }
    }

    #[test]
    fn a_missing_program_is_an_error_here() {
        let (_ours, theirs) = UnixStream::pair().unwrap();
        let error = spawn_orphan::<&str>(Path::new("/no/such/helper"), &[], theirs.into()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
