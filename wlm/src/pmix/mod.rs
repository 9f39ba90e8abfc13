//! Asks a launcher that is a PMIx server where its ranks are. Such launchers have no table for debuggers; Open MPI's
//! are of this kind since 5.0.
//!
//! This needs PMIx's own library, because its protocol is private and differs between versions. gantry does not link
//! with it: it loads the library that the launcher has loaded. The library starts threads and reads files. So it runs
//! in a process of its own, `gantry-agent pmix`, and never in a tool.
//!
//! A server never ends if a tool connects to it while its job ends (PRRTE 3.0.14, seen in one of 30 launches of
//! programs that end at once). So a launch asks only while its ranks are held. Attaching has to ask at any time.

pub mod abi;
mod sys;
mod told;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_shared::environ;
use gantry_types::error::{Failure, Kind};
use gantry_types::id::Pid;
use gantry_types::placement::{Placement, PlacementBuilder};

use self::told::Told;
use crate::host::{Host, is_own_process};
use crate::{Error, Result, line};

/// The library's file name, without its version.
const LIBRARY: &str = "libpmix.so";

/// The timeout for an answer. A server answers within milliseconds. The library takes up to two seconds to start.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The variables by which the library finds its own files and the server's. The library must see the launcher's values.
const VARIABLES: [&str; 8] = [
    "TMPDIR",
    "TEMP",
    "TMP",
    "LD_LIBRARY_PATH",
    "OPAL_PREFIX",
    "PMIX_PREFIX",
    "PMIX_SYSTEM_TMPDIR",
    "PRTE_PREFIX",
];

/// The printed answer: the ranks, or why they are unknown.
type Answer = std::result::Result<Vec<Told>, String>;

/// Finds the library that the process has loaded. `None`: the process is not a PMIx server.
pub fn find_library(pid: Pid, host: &dyn Host) -> Option<PathBuf> {
    let maps = host.read(Path::new(&format!("/proc/{pid}/maps"))).ok()?;
    let paths = maps.split(|byte| *byte == b'\n').filter_map(|line| {
        let path = line.get(line.iter().position(|byte| *byte == b'/')?..)?;
        Some(Path::new(OsStr::from_bytes(path)))
    });
    let is_library =
        |path: &&Path| path.file_name().is_some_and(|name| name.as_bytes().starts_with(LIBRARY.as_bytes()));
    paths.filter(is_library).map(Path::to_owned).next()
}

/// Asks the server in the process `launcher` where its ranks are. `agent` is the program that asks. Blocks until the
/// answer or the timeout.
///
/// # Errors
/// The launcher belongs to another user, the library cannot be used, or the server is not found. [`Error::NotYet`]: not
/// all ranks have started yet.
pub fn ask_ranks(launcher: Pid, library: &Path, agent: &Path, host: &dyn Host) -> Result<Placement> {
    let command: Vec<OsString> =
        vec![agent.into(), "pmix".into(), launcher.to_string().into(), library.into()];
    let environment = host.read(Path::new(&format!("/proc/{launcher}/environ"))).unwrap_or_default();
    // The launcher chooses library and environment. They would run with this user's rights.
    if !is_own_process(launcher, host) {
        let message =
            format!("the launcher {launcher} belongs to another user, whose PMIx library is not loaded");
        return Err(Error::no_access(message, "attach as that user, or to the ranks by their pids"));
    }
    let asked = host.ask_in_with(Path::new("/"), &command, &find_variables(&environment), ANSWER_WITHIN);
    let asked = asked.map_err(|error| refused(launcher, &error.to_string()))?;
    match line::parse::<Answer>(&asked.stdout) {
        Some(Ok(Ok(ranks))) => build_placement(launcher, ranks),
        Some(Ok(Err(why))) => Err(refused(launcher, &why)),
        Some(Err(error)) => Err(refused(launcher, &error.to_string())),
        None => Err(refused(launcher, asked.stderr.lines().last().unwrap_or("it printed nothing"))),
    }
}

/// The part of [`ask_ranks`] that runs in a process of its own. Prints the server's answer as one line.
///
/// # Errors
/// The answer cannot be written.
pub fn tell_ranks(launcher: Pid, library: &Path, out: &mut impl io::Write) -> io::Result<()> {
    let told: Answer = sys::ask(library, launcher.get());
    out.write_all(line::write(&told)?.as_bytes())
}

fn find_variables(environment: &[u8]) -> Vec<(OsString, OsString)> {
    let entries = environ::entries(environment).filter_map(|entry| {
        let at = entry.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (entry.get(..at)?, entry.get(at + 1..)?);
        VARIABLES.iter().any(|known| known.as_bytes() == name).then(|| (name.to_vec(), value.to_vec()))
    });
    entries.map(|(name, value)| (OsString::from_vec(name), OsString::from_vec(value))).collect()
}

fn build_placement(launcher: Pid, mut ranks: Vec<Told>) -> Result<Placement> {
    ranks.sort_unstable();
    let in_order = ranks.iter().map(|told| told.rank).eq(0..u32::try_from(ranks.len()).unwrap_or(u32::MAX));
    let started = ranks.iter().all(|told| told.pid > 0 && !told.host.is_empty());
    if ranks.is_empty() || !in_order || !started {
        return Err(Error::not_yet(
            format!("the launcher {launcher} has not started all of its ranks"),
            "wait for them with --wait",
            false,
        ));
    }
    let mut placement = PlacementBuilder::with_capacity(ranks.len());
    for told in ranks {
        let pushed = placement.push(&told.host, Pid::new(told.pid), &told.exe);
        pushed.map_err(|error| refused(launcher, &error.to_string()))?;
    }
    Ok(placement.build())
}

fn refused(launcher: Pid, why: &str) -> Error {
    let message = format!("ask the PMIx server in process {launcher} for its ranks: {why}");
    let failure = Failure::new(Kind::LauncherFailed, message);
    Error::Failed(failure.with_hint("attach to the ranks by their pids, on each host"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    const MAPS: &str = "55d0-55d1 r--p 00000000 08:01 42   /opt/bin/prterun\n\
        7f00-7f01 r-xp 00000000 08:01 43                   /opt/my lib/libpmix.so.2.13\n";

    fn pid() -> Pid {
        Pid::new(7).unwrap()
    }

    fn host(answer: &str) -> FakeHost {
        host_of("1000", answer)
    }

    /// A host on which that user runs the launcher.
    fn host_of(uid: &str, answer: &str) -> FakeHost {
        let status = format!("Name:\tprterun\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n");
        FakeHost::default().with_file("/proc/7/maps", MAPS).with_file("/proc/7/status", status).with_answer(
            "/g/agent pmix 7 /opt/my lib/libpmix.so.2.13",
            answer,
            "no such library\n",
        )
    }

    fn ask(answer: &str) -> Result<Placement> {
        let host = host(answer);
        ask_ranks(pid(), &find_library(pid(), &host).unwrap(), Path::new("/g/agent"), &host)
    }

    fn rank(rank: u32, host: &str, pid: i32) -> Told {
        Told { rank, host: host.to_owned(), pid, exe: "/bin/a".to_owned() }
    }

    fn tell(answer: &Answer) -> String {
        line::write(answer).unwrap()
    }

    #[test]
    fn the_library_is_the_one_that_the_launcher_has_loaded() {
        let other =
            FakeHost::default().with_file("/proc/7/maps", "7f00-7f01 r-xp 0 08:01 43 /lib/libc.so.6\n");
        assert_eq!(find_library(pid(), &other), None);
        assert_eq!(find_library(pid(), &host("")), Some("/opt/my lib/libpmix.so.2.13".into()));
    }

    #[test]
    fn ranks_are_put_in_order_and_the_librarys_own_lines_are_skipped() {
        let lines = tell(&Ok(vec![rank(1, "b", 12), rank(0, "a", 11)]));
        let placement = ask(&format!("PMIx says hello\n{lines}and goodbye\n")).unwrap();
        let ranks: Vec<_> = placement.iter().map(|place| (place.host, place.pid.unwrap().get())).collect();
        assert_eq!(ranks, [("a", 11), ("b", 12)]);
        for early in [rank(1, "b", 12), rank(0, "b", 0), rank(0, "", 5)] {
            let error = ask(&tell(&Ok(vec![early]))).unwrap_err();
            assert!(matches!(error, Error::NotYet { .. }), "{error}");
        }
    }

    #[test]
    fn code_of_another_users_launcher_is_not_run() {
        let ask_of = |uid: &str| {
            let host = host_of(uid, &tell(&Ok(vec![rank(0, "a", 11)])));
            ask_ranks(pid(), Path::new("/opt/my lib/libpmix.so.2.13"), Path::new("/g/agent"), &host)
        };
        assert!(ask_of("1000").is_ok());
        let error = ask_of("1001").unwrap_err();
        assert_eq!(error.kind(), Kind::NoAccess, "{error}");
    }

    #[test]
    fn why_there_is_no_answer_is_told() {
        let check = |answer: &str, expected: &str| {
            let error = ask(answer).unwrap_err().to_string();
            assert!(error.ends_with(expected), "{error}");
        };
        check(
            &tell(&Err("PMIx_tool_init fails with -25".to_owned())),
            "its ranks: PMIx_tool_init fails with -25",
        );
        check("", "its ranks: no such library");
    }

    #[test]
    fn only_what_the_library_goes_by_is_taken_from_the_launchers_environment() {
        let found = find_variables(b"PATH=/bin\0TMPDIR=/t=1\0SECRET=x\0OPAL_PREFIX=/o\0odd\0");
        assert_eq!(found, [("TMPDIR".into(), "/t=1".into()), ("OPAL_PREFIX".into(), "/o".into())]);
    }
}
