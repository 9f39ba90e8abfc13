//! One job: a generated script in a session of its own, and the files in the job's folder.
//!
//! | file | when | content |
//! | --- | --- | --- |
//! | `script` | from the beginning | the job's script; only this user can read it, and `input` |
//! | `nodes` | from the beginning | how many nodes it gets |
//! | `input` | from the beginning | its command's standard input. It contains secrets, and is deleted once open |
//! | `pid` | before the job is known | the script's process, and the number of its process group |
//! | `cancel` | before the job is known | the commands that cancel it |
//! | `running` | once it has nodes | the process of its command |
//! | `end` | at its end | the exit code, or `cancelled`, or `time limit` |
//! | `agents/HOST` | while that agent runs | its pid |
//! | `step` | if whoever plays with the cluster writes it | the process of the job's newest step, `JOB.PID` by name |
//! | `attachments` | once there was one | for each, the name of what agents were to be started for |

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_types::error::{Failure, Kind};
use gantry_types::id::Pid;
use gantry_types::status::{CauseKind, EndCause};
use zeroize::Zeroizing;

use super::site::{JOB, Site, folder, refused};
use crate::error::{Error, Result};
use crate::host::{Host, Machine, spawn_orphan_with};
use crate::job::JobRef;

/// How long a cancellation may take.
const CANCELS_WITHIN: Duration = Duration::from_secs(60);

/// The script writes this as its end when it is cancelled.
const CANCELLED: &str = "cancelled";

/// The script writes this as its end when its time limit expires.
const TIME_LIMIT: &str = "time limit";

/// The state of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// It waits for nodes.
    Queued,
    /// It has nodes.
    Running,
    /// It has ended: the exit code of its command, or the reason why there is none.
    Ended(String),
}

/// The work of a job.
#[derive(Debug)]
pub(super) struct Work<'a> {
    /// The number of nodes.
    pub(super) nodes: u32,
    /// Its command, with arguments.
    pub(super) command: &'a [OsString],
    /// Variables for the command, in addition to those of the submitter.
    pub(super) env: &'a [(OsString, OsString)],
    /// The command's directory.
    pub(super) cwd: &'a Path,
    /// The command's standard input.
    pub(super) input: Option<Zeroizing<String>>,
}

/// A job of the cluster.
#[derive(Debug, Clone)]
pub(super) struct Job {
    number: u32,
    /// The step of the job that is meant.
    step: Option<Pid>,
    folder: PathBuf,
}

impl Job {
    /// Takes the next free number.
    pub(super) fn create(host: &dyn Host) -> Result<Self> {
        let jobs = folder(host)?.join("jobs");
        let make = |path: &Path| DirBuilder::new().mode(0o700).create(path);
        match make(&jobs) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(&jobs, &error)),
            _ => {}
        }
        for number in 1.. {
            let folder = jobs.join(number.to_string());
            match make(&folder) {
                Ok(()) => {
                    let agents = folder.join("agents");
                    make(&agents).map_err(|error| failed(&agents, &error))?;
                    return Ok(Self { number, step: None, folder });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(&folder, &error)),
            }
        }
        Err(refused("no number is left for a job"))
    }

    /// The job of that name, or of a step of that name.
    pub(super) fn find(name: &JobRef, host: &dyn Host) -> Result<Self> {
        let wrong = || {
            let message = format!("'{}' is no job's number", name.0);
            Error::invalid_with(message, "write the number that was told when the job was submitted")
        };
        let (number, step) = name.0.split_once('.').map_or((name.0.as_str(), None), |(n, s)| (n, Some(s)));
        let number: u32 = number.parse().map_err(|_| wrong())?;
        let step = step.map(|step| step.parse().ok().and_then(Pid::new).ok_or_else(wrong)).transpose()?;
        let job = Self { number, step, folder: folder(host)?.join("jobs").join(number.to_string()) };
        match job.read("nodes", host)? {
            Some(_) => Ok(job),
            None => Err(Error::not_found(format!("there is no job {number}"), "name another one")),
        }
    }

    /// The job of this process.
    pub(super) fn of_process(host: &dyn Host) -> Result<Option<Self>> {
        let name = host.env(JOB).map(|name| JobRef(name.to_string_lossy().into_owned()));
        name.map(|name| Self::find(&name, host)).transpose()
    }

    pub(super) fn name(&self) -> JobRef {
        JobRef(self.number.to_string())
    }

    /// The number of its nodes.
    pub(super) fn nodes(&self, host: &dyn Host) -> Result<u32> {
        let nodes = self.read("nodes", host)?.and_then(|nodes| nodes.parse().ok());
        nodes.ok_or_else(|| refused(format!("job {} has no nodes", self.number)))
    }

    /// The file with the pid of the agent of `host`.
    pub(super) fn agent_file(&self, host: &str) -> PathBuf {
        self.folder.join("agents").join(host)
    }

    /// Starts the job. It waits in the queue first, and reads `input` if there is any.
    pub(super) fn start(&self, site: &Site, work: &Work<'_>) -> Result<()> {
        self.write("nodes", work.nodes.to_string().as_bytes())?;
        if let Some(input) = &work.input {
            self.write("input", input.as_bytes())?;
        }
        self.write("cancel", format!("kill -TERM -$(cat {})\n", self.quote("pid")).as_bytes())?;
        self.write("script", &self.build_script(site, work))?;
        let script = self.folder.join("script");
        let started = || {
            let nowhere = || OpenOptions::new().read(true).write(true).open("/dev/null");
            let (told, tell) = io::pipe()?;
            let stdio = [nowhere()?.into(), tell.into(), nowhere()?.into()];
            spawn_orphan_with(Path::new("/bin/sh"), &[script.as_os_str()], Machine.environment(), stdio)?;
            let mut line = String::new();
            BufReader::new(told).read_line(&mut line)?;
            Ok(line)
        };
        let pid = started().map_err(|error| failed(&script, &error))?;
        self.write("pid", pid.trim().as_bytes())
    }

    fn build_script(&self, site: &Site, work: &Work<'_>) -> Vec<u8> {
        let seconds = |ms: u64| format!("{}.{:03}", ms / 1000, ms % 1000);
        let folder = quote(self.folder.as_os_str());
        let mut script = format!(
            "echo $$\nexec >/dev/null\n\
             finish() {{ echo \"$1\" >{folder}/end.new && mv {folder}/end.new {folder}/end; }}\n\
             trap 'finish \"{CANCELLED}\"; trap \"\" TERM; kill -TERM 0; wait; exit 143' TERM\n\
             sleep {} & wait $!\n\
             export {JOB}={}\n",
            seconds(site.queue_ms),
            self.number
        )
        .into_bytes();
        for (name, value) in work.env {
            script.extend([b"export ", name.as_bytes(), b"=", quote(value).as_bytes(), b"\n"].concat());
        }
        script.extend(format!("cd {}\n", quote(work.cwd.as_os_str())).as_bytes());
        let (input, remove) = match work.input {
            Some(_) => (format!("{folder}/input"), format!("rm {folder}/input\n")),
            None => ("/dev/null".to_owned(), String::new()),
        };
        let limit = site.limit_ms.map(|ms| format!("timeout --foreground {} ", seconds(ms)));
        let words = work.command.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ");
        script.extend(
            format!(
                "exec 3<{input}\n{remove}{}{words} <&3 3<&- &\nexec 3<&-\necho $! >{folder}/running\n\
                 wait $!; code=$?\n[ $code != 124 ] || code=\"{TIME_LIMIT}\"\nfinish \"$code\"\n",
                limit.unwrap_or_default()
            )
            .as_bytes(),
        );
        script
    }

    fn quote(&self, file: &str) -> String {
        quote(self.folder.join(file).as_os_str())
    }

    /// Cancels the job by its file `cancel`. What that prints is no answer.
    pub(super) fn cancel(&self, host: &dyn Host) -> Result<()> {
        if let State::Ended(how) = self.state(host)? {
            return Err(self.has_ended(&how));
        }
        let cancel = self.folder.join("cancel");
        let said = host.ask(&["/bin/sh".into(), cancel.clone().into_os_string()], CANCELS_WITHIN);
        match said.map_err(|error| failed(&cancel, &error))?.stderr.trim() {
            "" => Ok(()),
            words => Err(Error::Unanswered(Failure::new(Kind::TimedOut, words))),
        }
    }

    pub(super) fn state(&self, host: &dyn Host) -> Result<State> {
        if let Some(end) = self.read("end", host)? {
            return Ok(State::Ended(end));
        }
        // A killed script has left no result.
        let pid = self.read("pid", host)?.unwrap_or_default();
        if host.read(&Path::new("/proc").join(&pid).join("stat")).is_err() {
            return Ok(State::Ended(self.read("end", host)?.unwrap_or_else(|| "killed".to_owned())));
        }
        Ok(if self.read("running", host)?.is_some() { State::Running } else { State::Queued })
    }

    /// The step that is meant, or the newest one, or else the process of its command. Returns its name, too.
    pub(super) fn newest_process(&self, host: &dyn Host) -> Result<(JobRef, Pid)> {
        let read = |file: &str| -> Result<Option<Pid>> {
            Ok(self.read(file, host)?.and_then(|pid| pid.parse().ok()).and_then(Pid::new))
        };
        if let Some(step) = self.step.map_or_else(|| read("step"), |step| Ok(Some(step)))? {
            return Ok((JobRef(format!("{}.{step}", self.number)), step));
        }
        let pid = read("running")?.ok_or_else(|| refused(format!("job {} has no process", self.number)))?;
        Ok((self.name(), pid))
    }

    /// Notes that agents are to be started for what has this name.
    pub(super) fn note_attachment(&self, name: &JobRef) -> Result<()> {
        let path = self.folder.join("attachments");
        let noted = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
        let noted = noted.and_then(|mut file| file.write_all(format!("{}\n", name.0).as_bytes()));
        noted.map_err(|error| failed(&path, &error))
    }

    pub(super) fn still_queued(&self, site: &Site) -> Error {
        let message = format!("job {} waits for nodes ({})", self.number, site.reason);
        Error::not_yet(message, "wait, or cancel it", true)
    }

    pub(super) fn has_ended(&self, how: &str) -> Error {
        let failure = Failure::new(Kind::Gone, format!("job {} has ended: {how}", self.number));
        Error::Failed(failure.with_hint("launch or submit again"))
    }

    /// Why the cluster ended it. `None`: the cluster did not.
    pub(super) fn cause(&self, host: &dyn Host) -> Result<Option<EndCause>> {
        let State::Ended(how) = self.state(host)? else {
            return Err(Error::not_yet(
                format!("job {} is ending", self.number),
                "ask again when it has ended",
                false,
            ));
        };
        let kind = match how.as_str() {
            CANCELLED => CauseKind::Cancelled,
            TIME_LIMIT => CauseKind::TimeLimit,
            _ => return Ok(None),
        };
        Ok(Some(EndCause { kind, message: format!("job {}: {how}", self.number) }))
    }

    /// The content of one of its files, without the line break at its end. `None`: the file does not exist.
    fn read(&self, file: &str, host: &dyn Host) -> Result<Option<String>> {
        let path = self.folder.join(file);
        match host.read(&path) {
            Ok(text) => Ok(Some(String::from_utf8_lossy(text.trim_ascii_end()).into_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::Read { path, source }),
        }
    }

    /// Writes a file atomically.
    fn write(&self, file: &str, bytes: &[u8]) -> Result<()> {
        let (path, new) = (self.folder.join(file), self.folder.join(format!("{file}.new")));
        let written = || {
            let mut open: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            open.write_all(bytes)?;
            std::fs::rename(&new, &path)
        };
        written().map_err(|error| failed(&path, &error))
    }
}

/// Quotes a word for a shell.
fn quote(word: &OsStr) -> String {
    format!("'{}'", word.to_string_lossy().replace('\'', "'\\''"))
}

fn failed(path: &Path, error: &io::Error) -> Error {
    let failure = Failure::new(error.into(), format!("cannot use {}: {error}", path.display()));
    Error::Failed(failure.with_hint("see the folder of the cluster that is played"))
}
