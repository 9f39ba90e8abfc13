//! A test's private environment on this machine.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::executable::write_executable;
use crate::leak::{self, Leaks, TAG, Watch};
use crate::proc::{self, Pidfd};
use crate::testbed::config::UID;
use crate::{Run, Terminal, binaries, outside, within};

/// How long processes may take to end after the test. The daemons' own grace period (10 s) is longer on purpose: a
/// test whose daemons use it up calls [`World::set_grace`].
const GRACE: Duration = Duration::from_secs(5);

/// Where a process in a world finds the world's folder.
const PATH: &str = "GANTRY_TEST_WORLD";

/// Variables of the user who runs the tests that would affect the tests: settings of gantry, and the names of a job,
/// a step and a rank. `tests/run` removes the latter too, for tests in this process.
const FOREIGN: [&str; 16] = [
    "GANTRY_",
    "CTI_",
    "XDG_RUNTIME_DIR",
    "SLURM",
    "SBATCH_",
    "SALLOC_",
    "SRUN_",
    "PBS_",
    "FLUX_",
    "PMI",
    "OMPI_",
    "PRTE_",
    "HYDRA_",
    "HYDI_",
    "MPI_",
    "MPIEXEC_",
];

/// The workload manager of processes in a world. The cluster of the machine that runs the tests is not used: its
/// queue is for its users. A test for another WLM sets this variable, or `GANTRY_WLM`, which takes precedence.
const WLM: (&str, &str) = ("CTI_WLM_IMPL", "localhost");

/// A private folder, private runtime and stage directories, and a tag in the environment of every process that is
/// started here.
///
/// The world ends by [`finish`](World::finish) or by dropping it. Its end is the leak check. Declare runs after the
/// world: then they are dropped (killed) before it.
#[derive(Debug)]
pub struct World {
    path: PathBuf,
    /// The path of the same folder on a host of a bed, for the world's processes.
    inside: Option<PathBuf>,
    /// None in a process that lives in another process's world.
    folder: Option<TempDir>,
    ended: bool,
    tag: String,
    since: u64,
    grace: Duration,
    tracked: RefCell<Vec<(i32, Pidfd)>>,
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    /// Makes the folders `runtime`, `stage`, `tmp` and `work` under a new private one.
    ///
    /// # Panics
    /// When the temporary directory cannot be written.
    #[must_use]
    pub fn new() -> Self {
        Self::in_folder(&std::env::temp_dir())
    }

    /// As [`new`](World::new), in the home of a bed's ordinary user, which all hosts share: `home` is its path here,
    /// `there` on the hosts. Sessions have their default place on each node; the bed's own leak check covers that.
    pub(crate) fn on_host(home: &Path, there: &Path) -> Self {
        let mut world = Self::in_folder(home);
        for name in ["runtime", "stage", "tmp", "work", ""] {
            chown(world.path.join(name), Some(UID), Some(UID)).expect("the user's folder");
        }
        world.inside = world.path.file_name().map(|name| there.join(name));
        world
    }

    fn in_folder(parent: &Path) -> Self {
        // A short name: sockets' paths have 107 bytes.
        let folder =
            tempfile::Builder::new().prefix("gantry-t-").tempdir_in(parent).expect("a temporary folder");
        for name in ["runtime", "stage", "tmp", "work"] {
            DirBuilder::new().mode(0o700).create(folder.path().join(name)).expect("a folder");
        }
        // After the last test, the test command looks for processes with its own run's name.
        let run = std::env::var("GANTRY_TEST_RUN").unwrap_or_else(|_| "alone".to_owned());
        let unique = folder.path().file_name().and_then(OsStr::to_str).unwrap_or_default().to_owned();
        let tag = format!("{run}/{}-{unique}", std::process::id());
        within::enrol(&tag, folder.path());
        let since = ticks_now();
        let path = folder.path().to_path_buf();
        Self {
            path,
            inside: None,
            folder: Some(folder),
            ended: false,
            tag,
            since,
            grace: GRACE,
            tracked: RefCell::default(),
        }
    }

    /// The world that this process was started in. Its end is a leak check too, without this process. The folder stays.
    pub(crate) fn around_us() -> Option<Self> {
        let tag = std::env::var(TAG).ok()?;
        let path = PathBuf::from(std::env::var_os(PATH)?);
        let since = ticks_now();
        let inside = outside::is_asked().then(|| path.clone());
        Some(Self {
            path,
            inside,
            folder: None,
            ended: false,
            tag,
            since,
            grace: GRACE,
            tracked: RefCell::default(),
        })
    }

    /// How long the leak check waits for things to go; 5 s when not set.
    pub fn set_grace(&mut self, grace: Duration) {
        self.grace = grace;
    }

    /// The value of `GANTRY_TEST_TAG` in the environment of everything started here.
    #[must_use]
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// The private folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The private folder, as the world's processes see it.
    pub(crate) fn inside(&self) -> &Path {
        self.inside.as_ref().unwrap_or(&self.path)
    }

    /// Where frontends put their sockets (`GANTRY_RUNTIME_DIR`). At the end only empty folders may be left in it.
    #[must_use]
    pub fn runtime_dir(&self) -> PathBuf {
        self.path().join("runtime")
    }

    /// The folder where agents put sessions (`GANTRY_STAGE_DIR`). It must be empty at the end.
    #[must_use]
    pub fn stage_dir(&self) -> PathBuf {
        self.path().join("stage")
    }

    /// For the test's own files, and the working directory of its processes. The leak check ignores it.
    #[must_use]
    pub fn work_dir(&self) -> PathBuf {
        self.path().join("work")
    }

    /// Variables of all processes here; for in-process tests that pass an environment themselves.
    #[must_use]
    pub fn variables(&self) -> Vec<(OsString, OsString)> {
        let pair = |name: &str, value: OsString| (OsString::from(name), value);
        let mut all = vec![
            pair(TAG, self.tag.clone().into()),
            pair(PATH, self.inside().into()),
            pair("GANTRY_RUNTIME_DIR", self.inside().join("runtime").into()),
        ];
        if self.inside.is_none() {
            all.push(pair("GANTRY_STAGE_DIR", self.stage_dir().into()));
            all.push(pair("TMPDIR", self.path().join("tmp").into()));
        }
        all
    }

    /// A command in this world, with its environment, its working directory and a new process group. Its workload
    /// manager is `localhost`, independent of this machine's: `CTI_WLM_IMPL` selects it. Change it as needed and pass
    /// it to [`spawn`](World::spawn).
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.command_in_our_group(program);
        command.process_group(0);
        command
    }

    /// As [`command`](World::command), in the process group of this process. A terminal needs that, because its program
    /// becomes a session leader.
    #[must_use]
    pub fn command_in_our_group(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if FOREIGN.iter().any(|foreign| name.as_encoded_bytes().starts_with(foreign.as_bytes())) {
                command.env_remove(name);
            }
        }
        command.envs(self.variables()).envs([WLM]).current_dir(self.work_dir());
        command
    }

    /// As [`command`](World::command), for the command line under test. It finds the helpers in its own folder.
    #[must_use]
    pub fn gantry_command<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = self.command(&binaries().gantry);
        command.args(args);
        command
    }

    /// Starts the command line under test.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    pub fn gantry<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Run {
        self.spawn(self.gantry_command(args))
    }

    /// Starts the command line under test at a separate terminal with 80 columns and 24 rows.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    pub fn terminal<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Terminal {
        Terminal::spawn(self.terminal_command(args), 80, 24, false)
    }

    /// Starts a command at such a terminal that must not lead a process group yet.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    pub fn terminal_of(&self, command: Command) -> Terminal {
        Terminal::spawn(command, 80, 24, false)
    }

    /// As [`terminal_of`](World::terminal_of), of another size.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    pub fn terminal_sized(&self, command: Command, columns: u16, rows: u16) -> Terminal {
        Terminal::spawn(command, columns, rows, false)
    }

    /// As [`terminal`](World::terminal), with variables in the environment.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    pub fn terminal_with<A: AsRef<OsStr>, const N: usize>(
        &self,
        args: impl IntoIterator<Item = A>,
        variables: [(&str, &str); N],
    ) -> Terminal {
        let mut command = self.terminal_command(args);
        command.envs(variables);
        Terminal::spawn(command, 80, 24, false)
    }

    /// As [`terminal`](World::terminal), but its output is not read until [`Terminal::resume`].
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    pub fn paused_terminal<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Terminal {
        Terminal::spawn(self.terminal_command(args), 80, 24, true)
    }

    /// A group leader cannot start a session, so this program is not one.
    fn terminal_command<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        self.terminal_command_of(&binaries().gantry, args)
    }

    /// As [`World::terminal_command`], of another program.
    pub(crate) fn terminal_command_of<A: AsRef<OsStr>>(
        &self,
        program: &Path,
        args: impl IntoIterator<Item = A>,
    ) -> Command {
        let mut command = self.command_in_our_group(program);
        command.args(args).env("TERM", "xterm").env_remove("NO_COLOR");
        command
    }

    /// Starts an example of this repository, which finds the helpers by `GANTRY_INSTALL_DIR`.
    ///
    /// # Panics
    /// When it has not been built.
    #[track_caller]
    pub fn example<A: AsRef<OsStr>>(&self, name: &str, args: impl IntoIterator<Item = A>) -> Run {
        let dir = &binaries().dir;
        let places = [dir.join("examples").join(name), dir.join(name)];
        let Some(program) = places.iter().find(|place| place.is_file()) else {
            panic!("the example {name} is not built: none of {places:?} is there")
        };
        let mut command = self.command(program);
        command.args(args).env("GANTRY_INSTALL_DIR", dir);
        self.spawn(command)
    }

    /// Starts any program in this world.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    pub fn start<A: AsRef<OsStr>>(&self, program: &Path, args: impl IntoIterator<Item = A>) -> Run {
        let mut command = self.command(program);
        command.args(args);
        self.spawn(command)
    }

    /// Starts a command made by [`command`](World::command), with pipes at stdin, stdout and stderr.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    pub fn spawn(&self, command: Command) -> Run {
        Run::spawn(command)
    }

    /// Writes an executable file into the work directory: a script, or bytes that only resemble a program.
    ///
    /// # Panics
    /// When it cannot be written.
    #[track_caller]
    pub fn executable(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.work_dir().join(name);
        write_executable(&path, bytes);
        path
    }

    /// Adds a process that must be gone at the end, even without the tag.
    ///
    /// # Panics
    /// When there is no such process now.
    #[track_caller]
    pub fn track(&self, pid: i32) {
        let process = Pidfd::open(pid).unwrap_or_else(|error| panic!("process {pid}: {error}"));
        self.tracked.borrow_mut().push((pid, process));
    }

    /// The processes of this world that live now.
    #[must_use]
    pub fn processes(&self) -> Vec<i32> {
        proc::bearing(TAG, &self.tag)
    }

    /// Waits for the end of everything within the grace time, and reports the rest. Kills nothing.
    #[must_use]
    pub fn leaks(&self) -> Leaks {
        let (runtime, stage, tmp) = (self.runtime_dir(), self.stage_dir(), self.path().join("tmp"));
        let tracked = self.tracked.borrow();
        let watch = Watch {
            tag: &self.tag,
            tracked: &tracked,
            empty: &[&stage, &tmp],
            no_files: &[&runtime],
            since: self.since,
        };
        watch.look(self.grace)
    }

    /// The current remains of sessions and sockets.
    #[must_use]
    pub fn files_left(&self) -> Vec<String> {
        let (runtime, stage) = (self.runtime_dir(), self.stage_dir());
        let (empty, no_files) = (&[&*stage][..], &[&*runtime][..]);
        Watch { tag: &self.tag, tracked: &[], empty, no_files, since: self.since }.files()
    }

    /// Fails the test when there are remains: a process, a zombie, a file.
    ///
    /// # Panics
    /// With one line for each of them.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        let leaks = self.leaks();
        assert!(leaks.is_empty(), "left behind after {:?}:\n{leaks}", self.grace);
    }

    /// Ends the world: runs the leak check, then removes the folder. All remaining processes are killed before the test
    /// fails.
    ///
    /// # Panics
    /// As [`assert_nothing_left`](World::assert_nothing_left).
    #[track_caller]
    pub fn finish(mut self) {
        self.end();
    }

    /// As [`finish`](World::finish), for tests whose runtime must continue because the library's own tasks clean up.
    ///
    /// # Panics
    /// As [`assert_nothing_left`](World::assert_nothing_left).
    pub async fn finish_async(self) {
        if let Err(error) = tokio::task::spawn_blocking(move || self.finish()).await {
            std::panic::resume_unwind(error.into_panic());
        }
    }

    #[track_caller]
    fn end(&mut self) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let leaks = if std::thread::panicking() { Leaks::default() } else { self.leaks() };
        self.kill_all();
        drop(self.folder.take());
        assert!(leaks.is_empty(), "left behind after {:?} (killed now):\n{leaks}", self.grace);
    }

    fn kill_all(&self) {
        for (_, process) in self.tracked.borrow().iter() {
            // An error means that it is gone already.
            drop(process.signal(nix::sys::signal::Signal::SIGKILL));
        }
        leak::describe_and_kill(&self.tag);
    }
}

/// A failed test only kills its processes. Any other test is checked.
impl Drop for World {
    fn drop(&mut self) {
        self.end();
    }
}

/// Clock ticks since boot, by the start time of a process that has just been started.
fn ticks_now() -> u64 {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let hundredths = text.split_ascii_whitespace().next().unwrap_or("0").replace('.', "");
    // USER_HZ is 100 on every Linux that Rust's std runs on, as the two digits of /proc/uptime are hundredths.
    hundredths.parse().unwrap_or(0)
}

/// Runs the body of a test in a private world. Fails when it takes longer than `limit`, or has remains.
///
/// # Panics
/// As [`within`] and [`World::finish`].
pub fn in_a_world(limit: Duration, body: impl FnOnce(&World) + Send + 'static) {
    within(limit, || {
        let world = World::new();
        body(&world);
        world.finish();
    });
}
