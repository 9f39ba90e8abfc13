//! `gantry doctor`: checks whether gantry can work on this machine, and names the setting to change where it cannot.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gantry_frontend::control::Registry;
use gantry_frontend::info::AppState;
use gantry_frontend::{Config, Error, Frontend, HoldMethod, LaunchRequest};
use gantry_guard::helpers::{AGENT, GUARD, find_helper};
use gantry_shared::storage::GANTRY_STAGE_DIR;
use gantry_shared::wire::build::describe;
use gantry_types::error::Failure;
use gantry_wlm::host::{Machine, run as run_program};
use gantry_wlm::{Host, WLMS};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::mkdtemp;
use serde::Serialize;

use super::queue::note_changes;
use super::say;
use crate::args::Doctor;
use crate::exit::{self, Outcome};
use crate::view::Page;

/// The timeout for a helper's `--version`.
const VERSION_DEADLINE: Duration = Duration::from_secs(5);

/// The timeout for holding and releasing a program that does nothing, and for its wait in a queue.
const HOLD_DEADLINE: Duration = Duration::from_secs(15);

/// The oldest kernel with all that gantry needs: `pidfd_open`.
const OLDEST_KERNEL: (u32, u32) = (5, 3);

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Check {
    check: &'static str,
    result: Verdict,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

pub(super) async fn run(args: &Doctor, json: bool) -> Outcome {
    let mut checks = Vec::new();
    // People get each result at once: the last ones may take a while.
    let mut take = |check: Check| {
        let told = if json { Ok(()) } else { say(&for_people(&check)) };
        checks.push(check);
        told
    };
    take(check_kernel(&read("/proc/sys/kernel/osrelease")))?;
    take(check_ptrace(&read("/proc/sys/kernel/yama/ptrace_scope"), Machine.uid()))?;
    take(check_seccomp(&read("/proc/self/status")))?;
    take(check_stage(args.stage_dir.as_deref()))?;
    take(check_runtime())?;
    take(check_helper(GUARD))?;
    take(check_helper(AGENT))?;
    take(check_wlm())?;
    take(check_hold_method())?;
    take(check_hold(args.stage_dir.clone()).await)?;
    check_transport().into_iter().try_for_each(take)?;
    if json {
        say(&Page::json(&checks))?;
    }
    Ok(if checks.iter().any(|check| check.result == Verdict::Fail) { exit::UNFIT } else { exit::SUCCESS })
}

fn for_people(check: &Check) -> Page {
    let verdict = match check.result {
        Verdict::Ok => "ok",
        Verdict::Warn => "warn",
        Verdict::Fail => "fail",
    };
    let mut page = Page::line(format_args!("{verdict:4}  {}: {}", check.check, check.found));
    check.remedy.iter().flat_map(|remedy| remedy.lines()).for_each(|it| page.add(format_args!("      {it}")));
    page
}

/// A file's text; empty when it cannot be read.
fn read(path: &str) -> String {
    Machine
        .read(Path::new(path))
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}

fn verdict(check: &'static str, result: Verdict, found: impl Into<String>, remedy: Option<&str>) -> Check {
    Check { check, result, found: found.into(), remedy: remedy.map(str::to_owned) }
}

fn from_error(check: &'static str, error: &Failure) -> Check {
    verdict(check, Verdict::Fail, error.to_string(), error.hint())
}

fn check_kernel(release: &str) -> Check {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().ok());
    let version = numbers.next().flatten().zip(numbers.next().flatten());
    let release = release.trim();
    match version {
        Some(version) if version >= OLDEST_KERNEL => verdict("kernel", Verdict::Ok, release, None),
        Some(_) => {
            let remedy = "use a kernel of version 5.3 or later: pidfd_open is needed";
            verdict("kernel", Verdict::Fail, release, Some(remedy))
        }
        None => verdict("kernel", Verdict::Warn, format!("version unknown: '{release}'"), None),
    }
}

/// Ranks allow their agent to trace them; scope 1 requires that.
fn check_ptrace(scope: &str, uid: u32) -> Check {
    let knob = Some("as root: sysctl kernel.yama.ptrace_scope=1");
    match (scope.trim(), uid) {
        ("", _) => verdict("ptrace", Verdict::Ok, "not restricted", None),
        (scope @ ("0" | "1"), _) | (scope @ "2", 0) => {
            verdict("ptrace", Verdict::Ok, format!("kernel.yama.ptrace_scope is {scope}"), None)
        }
        ("2", _) => {
            verdict("ptrace", Verdict::Fail, "kernel.yama.ptrace_scope is 2: for administrators only", knob)
        }
        ("3", _) => {
            let knob = "set kernel.yama.ptrace_scope=1 in /etc/sysctl.d and restart: 3 cannot be undone while the system runs";
            verdict("ptrace", Verdict::Fail, "kernel.yama.ptrace_scope is 3: forbidden to all", Some(knob))
        }
        (other, _) => verdict("ptrace", Verdict::Warn, format!("kernel.yama.ptrace_scope is {other}"), knob),
    }
}

fn check_seccomp(status: &str) -> Check {
    match status.lines().find_map(|line| line.strip_prefix("Seccomp:")).map(str::trim) {
        Some("1") => verdict("seccomp", Verdict::Fail, "strict: hardly any system call is allowed", None),
        Some("2") => {
            let knob = "if holding fails: start the container with --cap-add=SYS_PTRACE or --security-opt seccomp=unconfined";
            verdict(
                "seccomp",
                Verdict::Warn,
                "a filter is on, as in containers; it may forbid ptrace",
                Some(knob),
            )
        }
        _ => verdict("seccomp", Verdict::Ok, "no filter", None),
    }
}

/// Searches for a directory as agents do on their nodes. This machine stands for them.
fn check_stage(asked: Option<&Path>) -> Check {
    let by_variable = |name: &str| Machine.env(name).map(PathBuf::from);
    let candidates = match asked.map(Path::to_owned).or_else(|| by_variable(GANTRY_STAGE_DIR)) {
        // A directory that the user named is used or refused.
        Some(asked) => vec![asked],
        None => by_variable("TMPDIR").into_iter().chain(["/tmp".into(), "/var/tmp".into()]).collect(),
    };
    let mut reasons = Vec::new();
    for path in candidates {
        match why_no_stage(&path) {
            None => return verdict("stage directory", Verdict::Ok, path.display().to_string(), None),
            Some(reason) => reasons.push(format!("{}: {reason}", path.display())),
        }
    }
    let knob = Some("set GANTRY_STAGE_DIR to a writable directory that is not mounted noexec");
    verdict("stage directory", Verdict::Fail, reasons.join("; "), knob)
}

fn why_no_stage(path: &Path) -> Option<String> {
    if !path.is_dir() {
        return Some("not a directory".to_owned());
    }
    // Only a trial shows it: permissions, quotas and read-only mounts all have their own ways to fail.
    match mkdtemp(&path.join("gantry-doctor-XXXXXX")) {
        Ok(made) => {
            // A full file system may have room for a directory and none for a file.
            let file = made.join("file");
            let wrote = std::fs::write(&file, "trial");
            drop(std::fs::remove_file(file));
            drop(std::fs::remove_dir(made));
            if let Err(error) = wrote {
                return Some(format!("not writable ({error})"));
            }
        }
        Err(error) => return Some(format!("not writable ({})", error.desc())),
    }
    match statvfs(path) {
        Ok(system) if system.flags().contains(FsFlags::ST_NOEXEC) => Some("mounted noexec".to_owned()),
        Ok(_) => None,
        Err(error) => Some(error.desc().to_owned()),
    }
}

fn check_runtime() -> Check {
    match Registry::open(None) {
        Ok(registry) => {
            verdict("runtime directory", Verdict::Ok, registry.path().display().to_string(), None)
        }
        Err(error) => from_error("runtime directory", &error.to_failure()),
    }
}

fn check_helper(name: &'static str) -> Check {
    let path = match find_helper(name, &Machine) {
        Ok(path) => path,
        Err(error) => return from_error(name, &error),
    };
    match run_program(&path, &["--version"], VERSION_DEADLINE) {
        Ok((status, said)) if status.success() => {
            judge_version(name, &path, String::from_utf8_lossy(&said).trim())
        }
        Ok((status, _)) => unfit(name, &path, &format!("does not run: {status}")),
        Err(error) => unfit(name, &path, &format!("does not run: {error}")),
    }
}

fn judge_version(name: &'static str, path: &Path, said: &str) -> Check {
    match said.strip_prefix(name).map(str::trim) {
        Some(version) if version == describe() => {
            verdict(name, Verdict::Ok, format!("{} {version}", path.display()), None)
        }
        Some(version) => unfit(name, path, &format!("version {version}, this is {}", describe())),
        None => unfit(name, path, &format!("reports '{said}' as its version")),
    }
}

fn unfit(name: &'static str, path: &Path, why: &str) -> Check {
    let remedy = Some("build or install all of gantry from one version");
    verdict(name, Verdict::Fail, format!("{}: {why}", path.display()), remedy)
}

fn check_wlm() -> Check {
    match Frontend::new(Config::default()).choice() {
        Ok(choice) => {
            let result = if choice.doubt.is_some() { Verdict::Warn } else { Verdict::Ok };
            let found = format!("{}, because {}", choice.wlm, choice.why);
            verdict("workload manager", result, found, choice.doubt.as_deref())
        }
        Err(error) => from_error("workload manager", &error.to_failure()),
    }
}

/// The transport to hosts that the user names.
fn check_transport() -> Vec<Check> {
    const NAME: &str = "hosts that are named";
    let Ok(agent) = find_helper(AGENT, &Machine) else { return Vec::new() };
    let lists = WLMS.iter().filter_map(|wlm| wlm.capabilities().host_lists);
    let checks = lists.map(|lists| match lists.describe_transport(&agent, &Machine) {
        Ok(transport) => verdict(NAME, Verdict::Ok, transport, None),
        Err(error) => verdict(NAME, Verdict::Warn, error.to_string(), error.hint().as_deref()),
    });
    checks.collect()
}

/// Which method would hold ranks, and why that one.
fn check_hold_method() -> Check {
    let frontend = Frontend::new(Config::default());
    match frontend.hold_choice(None) {
        Ok(choice) => {
            let others = [HoldMethod::Exec, HoldMethod::Mpir, HoldMethod::MpirStop];
            let others = others.into_iter().filter_map(|method| frontend.hold_choice_by(None, method).ok());
            let others: Vec<_> = others.map(|it| it.method).filter(|name| *name != choice.method).collect();
            let others = match others.is_empty() || choice.method == "direct" {
                true => String::new(),
                false => format!("; by --hold-method also {}", others.join(", ")),
            };
            let text = format!("{}, because {}{others}", choice.method, choice.why);
            verdict("hold method", Verdict::Ok, text, None)
        }
        Err(error) => from_error("hold method", &error.to_failure()),
    }
}

/// Runs the whole cycle once. It finds problems that the other checks do not know.
async fn check_hold(stage_base: Option<PathBuf>) -> Check {
    judge_hold(hold_once(stage_base).await)
}

fn judge_hold(held: Result<String, Error>) -> Check {
    match held {
        Ok(found) => verdict("hold", Verdict::Ok, found, None),
        Err(error) if error.is_queue_timeout() => {
            let remedy = Some("look again when there are free nodes, or inside an allocation");
            verdict("hold", Verdict::Warn, format!("no node for a trial: {error}"), remedy)
        }
        Err(error) => from_error("hold", &error.to_failure()),
    }
}

/// Holds a program that does nothing, releases it and waits for its end. It leaves nothing behind in any case.
async fn hold_once(stage_base: Option<PathBuf>) -> Result<String, Error> {
    let frontend = Frontend::new(Config { stage_base, control: false, ..Config::default() });
    let begun = Instant::now();
    let request = LaunchRequest::new(["-n", "1", "/bin/true"]).hold(true).queue_timeout(HOLD_DEADLINE);
    let app = frontend.launch_with_news(request, note_changes(), HOLD_DEADLINE).await?;
    let (held, took) = (app.state() == AppState::Held, begun.elapsed());
    let ended = async {
        app.session(HOLD_DEADLINE).await?.destroy(HOLD_DEADLINE).await?;
        app.release(HOLD_DEADLINE).await?;
        let exit = tokio::time::timeout(HOLD_DEADLINE, app.wait()).await;
        exit.map_err(|_| Error::TimedOut {
            phase: "waiting for a released rank to end",
            after: HOLD_DEADLINE,
            missing: Vec::new(),
        })?
    };
    let exit = ended.await;
    // Report the first failure.
    let closed = app.close(HOLD_DEADLINE).await;
    let code = exit?.code;
    closed?;
    match (held, code) {
        (true, 0) => Ok(format!("/bin/true was held after {} ms and released", took.as_millis())),
        (held, code) => Err(Error::Protocol(format!("/bin/true: held is {held}, its exit code {code}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels() {
        let check = |release, expected| assert_eq!(check_kernel(release).result, expected, "{release}");
        check("6.8.0-41-generic\n", Verdict::Ok);
        check("5.3", Verdict::Ok);
        check("5.2.9", Verdict::Fail);
        check("3.10.0-1160.el7", Verdict::Fail);
        check("?", Verdict::Warn);
    }

    #[test]
    fn ptrace_scopes_name_the_knob() {
        let check = |scope, uid, expected| {
            let check = check_ptrace(scope, uid);
            assert_eq!(check.result, expected, "{scope} {uid}");
            assert_eq!(check.remedy.is_some(), expected != Verdict::Ok);
        };
        check("", 1000, Verdict::Ok);
        check("0\n", 1000, Verdict::Ok);
        check("1\n", 1000, Verdict::Ok);
        check("2\n", 0, Verdict::Ok);
        check("2\n", 1000, Verdict::Fail);
        check("3\n", 0, Verdict::Fail);
        check("9\n", 0, Verdict::Warn);
    }

    #[test]
    fn seccomp_and_stage_directories() {
        assert_eq!(check_seccomp("Name:\tx\nSeccomp:\t2\n").result, Verdict::Warn);
        assert_eq!(check_seccomp("Name:\tx\nSeccomp:\t0\n").result, Verdict::Ok);
        let missing = check_stage(Some(Path::new("/no/such/place")));
        assert_eq!(
            (missing.result, missing.found.as_str()),
            (Verdict::Fail, "/no/such/place: not a directory")
        );
        assert_eq!(check_stage(Some(Path::new("/proc"))).result, Verdict::Fail);
        assert_eq!(why_no_stage(tempfile::tempdir().unwrap().path()), None);
    }

    #[test]
    fn a_queue_is_no_failure_whatever_other_messages_say() {
        let check = |error, expected| assert_eq!(judge_hold(Err(error)).result, expected);
        let message = "job 1 waits for nodes (Resources), after waiting in the queue for 15 s".to_owned();
        check(Error::Queued { message: message.clone() }, Verdict::Warn);
        check(Error::Invalid { message, hint: None }, Verdict::Fail);
        let (phase, missing) = ("waiting in the queue of a printer", Vec::new());
        check(Error::TimedOut { phase, after: HOLD_DEADLINE, missing }, Verdict::Fail);
    }

    #[test]
    fn versions_must_be_ours() {
        let check =
            |said: &str, expected| assert_eq!(judge_version(AGENT, Path::new("/a"), said).result, expected);
        check(&format!("{AGENT} {}", describe()), Verdict::Ok);
        check(&format!("{AGENT} {} (protocol 1)", env!("CARGO_PKG_VERSION")), Verdict::Fail);
        check(&format!("{AGENT} 0.0.0"), Verdict::Fail);
        check("hello", Verdict::Fail);
    }
}
