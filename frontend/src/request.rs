//! Requests of a tool: a launch with its environment, and a daemon.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

pub use gantry_types::launch::{HoldMethod, Mixed, MixedPart};
use gantry_types::output::DaemonOutput;
use gantry_types::rank_set::NodeSet;

use crate::coallocation::Member;
use crate::error::{Error, Result};
use crate::rendezvous::{Multijob, Seat};

/// An application to launch.
///
/// ```
/// use gantry_frontend::LaunchRequest;
/// let request = LaunchRequest::new(["-n", "4", "./solver", "--steps", "10"]).hold(true).env("OMP_NUM_THREADS", "2");
/// ```
#[derive(Debug, Default)]
#[must_use = "a request starts nothing by itself"]
pub struct LaunchRequest {
    pub(crate) args: Vec<OsString>,
    pub(crate) hold: bool,
    pub(crate) hold_at: Option<String>,
    pub(crate) hold_method: HoldMethod,
    pub(crate) linger: bool,
    pub(crate) queue_timeout: Option<Duration>,
    pub(crate) launcher: Option<OsString>,
    pub(crate) launcher_wrapper: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) stdin: Input,
    pub(crate) output: OutputTo,
    pub(crate) subjob: Option<(Multijob, u32)>,
    pub(crate) submitter: Option<String>,
    pub(crate) mixed: Option<Mixed>,
    pub(crate) member: Option<Member>,
    pub(crate) joins_world: bool,
}

impl LaunchRequest {
    /// `args` are exactly the launcher's arguments: its options, the program, the program's arguments.
    pub fn new<A: Into<OsString>>(args: impl IntoIterator<Item = A>) -> Self {
        Self { args: args.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Stops every rank before its first instruction until [`AppHandle::release`](crate::AppHandle::release). Default:
    /// no.
    pub fn hold(mut self, hold: bool) -> Self {
        self.hold = hold;
        self
    }

    /// Holds the first program whose path matches a shell pattern, among the launcher's program and its descendants.
    /// Use it for programs behind a script, `env` or a container's starter. A pattern without a slash is compared with
    /// the last part of the path.
    pub fn hold_at(mut self, pattern: impl Into<String>) -> Self {
        self.hold = true;
        self.hold_at = Some(pattern.into());
        self
    }

    /// How a launcher's ranks are held and found. Default: [`HoldMethod::Detect`].
    pub fn hold_method(mut self, method: HoldMethod) -> Self {
        self.hold_method = method;
        self
    }

    /// Lets daemons and sessions outlive the ranks; new ones can be made after the ranks have ended. All of it ends
    /// when the owner closes the app, or drops it. If the workload manager would end agents with the ranks, gantry
    /// starts them separately. If that is impossible, the launch is refused. Default: no.
    pub fn linger(mut self, linger: bool) -> Self {
        self.linger = linger;
        self
    }

    /// How long the launch may wait for nodes. That time does not count towards the launch's own timeout. Default: no
    /// limit.
    pub fn queue_timeout(mut self, timeout: Duration) -> Self {
        self.queue_timeout = Some(timeout);
        self
    }

    /// The launcher to use: a name that is looked up in PATH, or a path. Default: the workload manager's own way, or
    /// the value of `GANTRY_LAUNCHER` or `CTI_LAUNCHER_NAME`.
    pub fn launcher(mut self, launcher: impl Into<OsString>) -> Self {
        self.launcher = Some(launcher.into());
        self
    }

    /// Gives the launcher's command line to another program, which has to run it: `spindle --pull LAUNCHER ...`.
    /// Default: none.
    pub fn launcher_wrapper<W: Into<OsString>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.launcher_wrapper = words.into_iter().map(Into::into).collect();
        self
    }

    /// Sets a variable in the ranks' environment, which is otherwise this process's own at the time of the launch.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Sets a variable from a string `NAME=VALUE`.
    ///
    /// # Errors
    /// There is no `=`, or nothing before it.
    pub fn env_string(self, string: impl AsRef<OsStr>) -> Result<Self> {
        let (name, value) = parse_env_string(string.as_ref())?;
        Ok(self.env(name, value))
    }

    /// Directory in which ranks start. Default: this process's own at the time of the launch.
    pub fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.cwd = Some(cwd.into());
        self
    }

    /// Standard input of rank 0; other ranks read nothing. Default: nothing.
    pub fn stdin(mut self, stdin: Input) -> Self {
        self.stdin = stdin;
        self
    }

    /// Makes the app the subjob of that number of a multijob: its ranks find the multijob's rendezvous. Default: no.
    pub fn subjob(mut self, multijob: &Multijob, number: u32) -> Self {
        self.subjob = Some((multijob.clone(), number));
        self
    }

    /// Launches ranks that may differ in their programs.
    pub fn of_mixed(mixed: Mixed) -> Self {
        let mut args: Vec<OsString> = Vec::new();
        for part in &mixed.parts {
            if !args.is_empty() {
                args.push(":".into());
            }
            args.extend(["-n".into(), part.ranks.len().to_string().into(), part.program.clone()]);
            args.extend(part.args.iter().cloned());
        }
        Self { args, mixed: Some(mixed), ..Self::default() }
    }

    /// The submitter's name, for process groups. Default: the user.
    pub fn submitter(mut self, submitter: impl Into<String>) -> Self {
        self.submitter = Some(submitter.into());
        self
    }

    /// Makes the app part of a co-allocated job.
    pub(crate) fn member(mut self, member: Member) -> Self {
        self.member = Some(member);
        self
    }

    /// Holds the app's ranks, and makes them part of an MPI world that becomes known before their release.
    pub(crate) fn join_world(mut self) -> Self {
        self.joins_world = true;
        self.hold(true)
    }

    /// Takes the app's place in a multijob.
    pub(crate) fn take_seat(&self) -> Result<Option<Seat>> {
        self.subjob.as_ref().map(|(multijob, number)| Seat::take(multijob, *number)).transpose()
    }

    /// Where the ranks' standard output and error go. Default: nowhere.
    pub fn output(mut self, output: OutputTo) -> Self {
        self.output = output;
        self
    }
}

/// Standard input of rank 0.
#[derive(Debug, Default)]
#[non_exhaustive]
pub enum Input {
    /// Nothing: `/dev/null`.
    #[default]
    Null,
    /// A file's content.
    File(PathBuf),
    /// Input from this descriptor, read as fast as the rank takes it.
    Fd(OwnedFd),
}

/// Where output goes.
#[derive(Debug, Default)]
#[non_exhaustive]
pub enum OutputTo {
    /// Nowhere.
    #[default]
    Null,
    /// Written to these descriptors, in whole pieces. A separate thread does the blocking writes.
    Fds {
        /// Gets standard output.
        stdout: OwnedFd,
        /// Gets standard error.
        stderr: OwnedFd,
    },
    /// To the tool, by [`AppHandle::take_output`](crate::AppHandle::take_output). A tool that takes it and does not
    /// read it stops the writers.
    Stream,
}

/// A tool daemon to start.
#[derive(Debug, Clone)]
#[must_use = "a request starts nothing by itself"]
pub struct DaemonRequest {
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) nodes: Option<NodeSet>,
    pub(crate) output: DaemonOutput,
    pub(crate) container: Option<OsString>,
}

impl DaemonRequest {
    /// `program`: a path, or a name that is looked up in PATH on this machine. The session's `bin` gets a copy.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            nodes: None,
            output: DaemonOutput::Drop,
            container: None,
        }
    }

    /// Adds arguments.
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable in the daemon's environment. The rest of it is this process's own, with the session's paths in
    /// front, and with the variables in which the workload manager describes the node.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Starts it only on these nodes. Default: one on every node.
    pub fn nodes(mut self, nodes: NodeSet) -> Self {
        self.nodes = Some(nodes);
        self
    }

    /// Starts it in a container instance of Singularity or Apptainer that runs on every node, by its URI:
    /// `instance://NAME`. The session's directory must be visible there, as everything below `/tmp` is by default.
    /// Default: on the node itself.
    pub fn container(mut self, instance: impl Into<OsString>) -> Self {
        self.container = Some(instance.into());
        self
    }

    /// Where its output goes. Default: nowhere.
    pub fn output(mut self, output: DaemonOutput) -> Self {
        self.output = output;
        self
    }
}

/// Splits `NAME=VALUE`.
///
/// # Errors
/// There is no `=`, or nothing before it.
pub fn parse_env_string(string: &OsStr) -> Result<(OsString, OsString)> {
    use std::os::unix::ffi::OsStrExt;
    let bytes = string.as_bytes();
    match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) if at > 0 => {
            Ok((OsStr::from_bytes(&bytes[..at]).to_owned(), OsStr::from_bytes(&bytes[at + 1..]).to_owned()))
        }
        _ => Err(Error::Invalid {
            message: format!("bad environment string '{}'", string.to_string_lossy()),
            hint: Some("write NAME=VALUE".to_owned()),
        }),
    }
}

/// Splits a command line into words at blanks. Blanks between quotation marks do not separate words. A `\` quotes the
/// character after it.
///
/// # Errors
/// A quotation mark is not closed, or there is no word.
pub fn parse_words(text: &OsStr) -> Result<Vec<OsString>> {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let wrong = |why: &str| Error::invalid(format!("'{}' is not a command: {why}", text.to_string_lossy()));
    let (mut words, mut word) = (Vec::new(), None::<Vec<u8>>);
    let mut quote = None;
    let mut bytes = text.as_bytes().iter().copied();
    while let Some(byte) = bytes.next() {
        match (byte, quote) {
            (b'\\', _) => word.get_or_insert_default().extend(bytes.next()),
            (_, Some(mark)) if byte == mark => quote = None,
            (b'"' | b'\'', None) => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (b' ' | b'\t' | b'\n', None) => words.extend(word.take()),
            _ => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    if quote.is_some() {
        return Err(wrong("a quotation mark is not closed"));
    }
    if words.is_empty() {
        return Err(wrong("it is empty"));
    }
    Ok(words.into_iter().map(OsString::from_vec).collect())
}

/// Applies `changes` to `base`. A change replaces an existing variable; the last one wins. The changes come last, and
/// their number is returned, too.
pub(crate) fn build_program_env(
    base: Vec<(OsString, OsString)>,
    changes: &[(OsString, OsString)],
) -> (Vec<(OsString, OsString)>, u32) {
    let chosen: BTreeMap<OsString, OsString> = changes.iter().cloned().collect();
    let mut env: BTreeMap<OsString, OsString> = base.into_iter().collect();
    env.retain(|name, _| !chosen.contains_key(name));
    let count = u32::try_from(chosen.len()).unwrap_or(u32::MAX);
    (env.into_iter().chain(chosen).collect(), count)
}

/// An argument list as text for people.
pub(crate) fn show_args(args: &[OsString]) -> Vec<String> {
    args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_for_a_program_comes_last() {
        let env = |pairs: &[(&str, &str)]| -> Vec<(OsString, OsString)> {
            pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
        };
        let changes = env(&[("D", "1"), ("A", "1"), ("D", "2")]);
        let built = build_program_env(env(&[("B", "0"), ("A", "0"), ("C", "0")]), &changes);
        assert_eq!(built, (env(&[("B", "0"), ("C", "0"), ("A", "1"), ("D", "2")]), 2));
    }

    #[test]
    fn words_of_a_command() {
        let check = |text: &str, expected: &[&str]| {
            let words = parse_words(OsStr::new(text)).unwrap_or_default();
            assert_eq!(words, expected.iter().map(OsString::from).collect::<Vec<_>>(), "{text}");
        };
        check("spindle --pull", &["spindle", "--pull"]);
        check(r#"logger "\"quotes\" and spaces""#, &["logger", "\"quotes\" and spaces"]);
        check("  a 'b c' d\\ e ''", &["a", "b c", "d e", ""]);
        check("a\"b\"c", &["abc"]);
        check("a 'b", &[]);
        check("  ", &[]);
    }

    #[test]
    fn environment_strings() {
        let check = |text: &str, expected: Option<(&str, &str)>| {
            let got = parse_env_string(OsStr::new(text)).ok();
            assert_eq!(got, expected.map(|(n, v)| (n.into(), v.into())), "{text:?}");
        };
        check("A=b", Some(("A", "b")));
        check("A=", Some(("A", "")));
        check("A=b=c", Some(("A", "b=c")));
        check("", None);
        check("=", None);
        check("=x", None);
        check("A", None);
    }
}
