//! Finds the ranks of a running job, from inside the job: on its first host directly, and on all others by tasks.
//!
//! PBS knows hosts and sessions, but no ranks. So this tries, in this order: the table of an `mpiexec` of the script;
//! processes to which a launcher or agent gave a rank number; the job's tasks other than its script, as `pbsdsh`
//! starts them; the script's current child processes.
//!
//! A task on each other host looks there, and leaves its result as a text with its mom, where this process reads it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gantry_types::error::{Failure, Kind};
use gantry_types::id::Pid;
use gantry_types::placement::{Placement, PlacementBuilder};
use serde::{Deserialize, Serialize};

use super::pbsdsh::{PBSDSH, find_missing};
use super::place::read_environment;
use super::processes::{Process, SCRIPT, find};
use super::qstat::short_name;
use super::tm::{Client, Environment, Framing, NodeId, Spawn};
use crate::host::Host;
use crate::mpir::{MpirError, read_running};
use crate::{Error, Result, line, pmix};

/// How long a mom may take for each answer, and a task to look.
const PATIENCE: Duration = Duration::from_secs(20);

/// The name under which a task leaves its result.
const LEFT: &[u8] = b"gantry-found";

/// The maximum size of a task's result.
const MAX_LEFT_BYTES: usize = 50_000;

/// The program that asks a PMIx server. It is in the same directory as the program that looks.
const AGENT: &str = "gantry-agent";

/// Prefixes of names of launchers that may show where their ranks are.
const LAUNCHERS: [&str; 5] = ["mpiexec", "mpirun", "orterun", "prterun", "prun"];

/// The report of a look.
#[derive(Debug, Serialize, Deserialize)]
enum Told {
    Found(Placement),
    NotYet(String),
    Failed(Failure),
}

/// The result as a line for [`parse_told`].
pub(super) fn tell(found: Result<Placement>) -> String {
    let told = match found {
        Ok(placement) => Told::Found(placement),
        Err(Error::NotYet { failure, .. }) => Told::NotYet(failure.message().to_owned()),
        Err(error) => Told::Failed(error.to_failure()),
    };
    line::write(&told).unwrap_or_default()
}

/// The result in the output of a login shell and a look. None: there is no report.
///
/// # Errors
/// Why the look found nothing.
pub(super) fn parse_told(text: &str) -> Option<Result<Placement>> {
    Some(match line::parse(text)? {
        Ok(Told::Found(placement)) => Ok(placement),
        Ok(Told::NotYet(message)) => Err(not_yet(message)),
        Ok(Told::Failed(failure)) => Err(Error::Failed(failure)),
        Err(error) => Err(Error::Failed(Failure::new(Kind::Protocol, error.to_string()))),
    })
}

/// The ranks of this process's job; `program` looks on its other hosts, by [`leave`].
///
/// # Errors
/// [`Error::NotYet`]: the job runs nothing yet; no mom answers; ranks of two apps.
pub(super) async fn look(program: &Path, host: &dyn Host) -> Result<Placement> {
    let environment = read_environment(host)?;
    let here = find(&environment.caller.job, host);
    if let Some(placement) = ask_launchers(&here, &environment, &program.with_file_name(AGENT), host)? {
        return Ok(placement);
    }
    let own = host.hostname();
    let mut found = vec![(own.clone(), sort_out(&here))];
    found.extend(look_elsewhere(&environment, &own, program).await?);
    if let Some(placement) = place_numbered(&found)? {
        return Ok(placement);
    }
    if let Some(launcher) = here.iter().find(|it| is_launcher(&it.name)) {
        return Err(not_yet(format!("{} ({}) has started no ranks", launcher.name, launcher.pid)));
    }
    let tasks: Vec<(&str, Pid)> = of_kind(&found, |it| matches!(it.is, Is::Task)).collect();
    let places = environment.hosts.as_ref().map(Vec::len);
    if let Some(missing) = find_missing(&here, places, tasks.len(), host) {
        return Err(not_yet(missing));
    }
    if !tasks.is_empty() {
        return place(tasks);
    }
    let own = std::process::id().cast_signed();
    let run = run_by_script(&here, own);
    if run.is_empty() {
        return Err(not_yet("the job's script runs nothing at the moment".to_owned()));
    }
    let name = on_node_file(&environment, &found[0].0);
    place(run.into_iter().map(|pid| (name.as_str(), pid)).collect())
}

/// Looks on this host for [`look`] on another one.
///
/// # Errors
/// The result is too large; or no mom answers.
pub(super) async fn leave(host: &dyn Host) -> Result<()> {
    let environment = read_environment(host)?;
    let lines =
        sort_out(&find(&environment.caller.job, host)).into_iter().map(|Found { pid, order, is }| match is {
            Is::Rank { of } => format!("rank {order} {pid} {}\n", of.unwrap_or_default()),
            Is::Task => format!("task {order} {pid} 0\n"),
        });
    let text: String = lines.collect();
    if text.len() > MAX_LEFT_BYTES {
        return Err(Error::invalid("more processes than a task can report"));
    }
    let client = Client::connect(&environment, Framing::Packets, PATIENCE).await?;
    client.publish(LEFT, text.as_bytes(), PATIENCE).await?;
    Ok(())
}

/// A process that may be a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Found {
    pid: Pid,
    /// Its rank, or its task's number.
    order: u32,
    is: Is,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Is {
    /// It has a rank number, and the number of ranks if known.
    Rank { of: Option<u32> },
    /// A task of the job.
    Task,
}

/// Ranks, and tasks that are neither the script nor of gantry.
fn sort_out(all: &[Process]) -> Vec<Found> {
    let parent = |of: &Process| all.iter().find(|it| it.pid.get() == of.parent);
    let find = |it: &Process| {
        let parent = parent(it);
        // Children of a rank inherit its number.
        if let Some((order, of)) = it.rank.filter(|_| parent.is_none_or(|parent| parent.rank.is_none())) {
            return Some(Found { pid: it.pid, order, is: Is::Rank { of } });
        }
        let leads = it.session == it.pid.get() && parent.is_none();
        let is_task = leads && it.task != SCRIPT && !it.is_ours();
        is_task.then_some(Found { pid: it.pid, order: it.task, is: Is::Task })
    };
    let mut found: Vec<Found> = all.iter().filter_map(find).collect();
    found.sort_by_key(|it| it.order);
    found
}

fn is_launcher(name: &str) -> bool {
    LAUNCHERS.iter().any(|launcher| name.starts_with(launcher))
}

/// The ranks of the script's `mpiexec`: by its table, or by `agent` from its PMIx server. None: there is no such
/// launcher.
fn ask_launchers(
    all: &[Process],
    environment: &Environment,
    agent: &Path,
    host: &dyn Host,
) -> Result<Option<Placement>> {
    let mut waits = None;
    for process in all.iter().filter(|it| is_launcher(&it.name)) {
        let told = match read_running(process.pid, host) {
            Ok(table) => table.placement,
            Err(MpirError::NotALauncher { .. }) => match ask_server(process.pid, agent, host) {
                Ok(Some(told)) => told,
                Ok(None) => continue,
                Err(message) => {
                    waits = Some(format!("{} ({}): {message}", process.name, process.pid));
                    continue;
                }
            },
            Err(error) => {
                waits = Some(format!("{} ({}): {error}", process.name, process.pid));
                continue;
            }
        };
        let mut placement = PlacementBuilder::new();
        for rank in told.iter() {
            let name = on_node_file(environment, rank.host);
            placement.push(&name, rank.pid, rank.exe).map_err(|e| Error::invalid(e.to_string()))?;
        }
        return Ok(Some(placement.build()));
    }
    match waits {
        Some(message) => Err(not_yet(message)),
        None => Ok(None),
    }
}

/// The ranks of a launcher with a PMIx server. Its ranks on other hosts may lack the job's variables. None: it is a
/// script with a launcher's name, or does not answer.
///
/// # Errors
/// It has not started its ranks yet.
fn ask_server(
    launcher: Pid,
    agent: &Path,
    host: &dyn Host,
) -> std::result::Result<Option<Placement>, String> {
    let Some(library) = pmix::find_library(launcher, host) else { return Ok(None) };
    match pmix::ask_ranks(launcher, &library, agent, host) {
        Ok(told) => Ok(Some(told)),
        Err(Error::NotYet { failure, .. }) => Err(failure.message().to_owned()),
        Err(error) => {
            tracing::warn!("the PMIx server {launcher} does not tell its ranks: {error}");
            Ok(None)
        }
    }
}

/// The name that the job's node file has for a host.
fn on_node_file(environment: &Environment, name: &str) -> String {
    let known = environment.hosts.iter().flatten().find(|known| short_name(known) == short_name(name));
    known.map_or(name, String::as_str).to_owned()
}

/// The results from the job's hosts other than `own`, in their order.
async fn look_elsewhere(
    environment: &Environment,
    own: &str,
    program: &Path,
) -> Result<Vec<(String, Vec<Found>)>> {
    let client = Arc::new(Client::connect(environment, Framing::Packets, PATIENCE).await?);
    let hosts = client.nodes().one_per_host().unwrap_or_default();
    let others = hosts.into_iter().filter(|(_, name)| short_name(name) != short_name(own));
    let looks = others.map(|(node, name)| {
        let (client, name, program) = (Arc::clone(&client), name.to_owned(), program.to_owned());
        tokio::spawn(async move {
            let found = look_at(&client, node, &name, &program).await;
            found.map(|found| (name, found))
        })
    });
    let looks: Vec<_> = looks.collect();
    let mut found = Vec::new();
    for look in looks {
        let looked = look.await.map_err(|e| Error::Failed(Failure::new(Kind::Protocol, e.to_string())))?;
        found.push(looked?);
    }
    Ok(found)
}

async fn look_at(client: &Client, node: NodeId, name: &str, program: &Path) -> Result<Vec<Found>> {
    let words = [program.as_os_str(), "leave".as_ref(), "pbs".as_ref()];
    let task = client.spawn(node, Spawn::new(words), PATIENCE).await?;
    let failed = |kind, what: String| Error::Hosts {
        of: 1,
        missing: vec![(name.to_owned(), Failure::new(kind, what))],
    };
    let ended = tokio::time::timeout(PATIENCE, client.obit(task)).await;
    match ended.map_err(|_| failed(Kind::TimedOut, "it was not looked at in time".to_owned()))?? {
        0 => {}
        254 => {
            let what = format!("{} could not be executed there", program.display());
            return Err(failed(Kind::NotFound, what));
        }
        status => {
            return Err(failed(Kind::LauncherFailed, format!("the inspection there ended with {status}")));
        }
    }
    let text = client.subscribe(task, LEFT, PATIENCE).await?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let parse = |line: &str| {
        let mut words = line.split(' ');
        let is_rank = words.next()? == "rank";
        let order = words.next()?.parse().ok()?;
        let pid = Pid::new(words.next()?.parse().ok()?)?;
        let of = Some(words.next()?.parse().ok()?).filter(|of| *of > 0);
        Some(Found { pid, order, is: if is_rank { Is::Rank { of } } else { Is::Task } })
    };
    let strange = || failed(Kind::Protocol, "what was found there makes no sense".to_owned());
    text.lines().map(|line| parse(line).ok_or_else(strange)).collect()
}

/// Processes of a kind, with their hosts.
fn of_kind<'a>(
    found: &'a [(String, Vec<Found>)],
    is: impl Fn(&Found) -> bool + Copy + 'a,
) -> impl Iterator<Item = (&'a str, Pid)> {
    let of = move |(name, those): &'a (String, Vec<Found>)| {
        those.iter().filter(move |it| is(it)).map(move |it| (name.as_str(), it.pid))
    };
    found.iter().flat_map(of)
}

/// The ranks, if there are processes with rank numbers.
///
/// # Errors
/// They belong to two apps; [`Error::NotYet`]: some are missing.
fn place_numbered(found: &[(String, Vec<Found>)]) -> Result<Option<Placement>> {
    let those = found.iter().flat_map(|(name, those)| those.iter().map(move |it| (name, it)));
    let mut ranks = Vec::new();
    let mut size = 0;
    for (name, it) in those {
        if let Is::Rank { of } = it.is {
            size = of.unwrap_or_default().max(size);
            ranks.push((it.order, name.as_str(), it.pid));
        }
    }
    ranks.sort_by_key(|(order, _, _)| *order);
    if let Some(((one, _, _), _)) =
        ranks.iter().zip(&ranks[1.min(ranks.len())..]).find(|(one, next)| one.0 == next.0)
    {
        let message = format!("two processes of the job are rank {one}: it runs more than one app");
        return Err(Error::invalid_with(message, "attach to the processes on their own host by their pids"));
    }
    let count = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
    if !ranks.iter().map(|rank| rank.0).eq(0..count) || count < size {
        let of = size.max(ranks.last().map_or(0, |rank| rank.0 + 1));
        return Err(not_yet(format!("{count} of {of} ranks are there")));
    }
    if ranks.is_empty() {
        return Ok(None);
    }
    place(ranks.into_iter().map(|(_, name, pid)| (name, pid)).collect()).map(Some)
}

/// The script's programs: the children of the innermost shell that only waits for them.
fn run_by_script(all: &[Process], own: i32) -> Vec<Pid> {
    let inside: BTreeSet<i32> = all.iter().map(|it| it.pid.get()).collect();
    let outermost = |it: &&Process| it.task == SCRIPT && !inside.contains(&it.parent) && !it.is_ours();
    let Some(mut shell) = all.iter().find(outermost) else { return Vec::new() };
    // The login shell has a second one run the script.
    let mut is_login = true;
    loop {
        let is_below = |it: &&Process| {
            it.parent == shell.pid.get() && !is_of_pbs(&it.name) && !it.is_ours() && !runs_ours_only(all, it)
        };
        let children: Vec<&Process> = all.iter().filter(is_below).collect();
        match children.as_slice() {
            [one] if is_shell(&one.name) && (is_login || has_children(all, one)) => shell = one,
            _ => {
                let pids = children.into_iter().map(|it| it.pid);
                return pids.filter(|pid| !is_above(all, pid.get(), own)).collect();
            }
        }
        is_login = false;
    }
}

/// Whether it is a shell that waits for gantry and nothing else.
fn runs_ours_only(all: &[Process], it: &Process) -> bool {
    let mut children = all.iter().filter(|child| child.parent == it.pid.get()).peekable();
    is_shell(&it.name) && children.peek().is_some() && children.all(Process::is_ours)
}

fn has_children(all: &[Process], of: &Process) -> bool {
    all.iter().any(|it| it.parent == of.pid.get())
}

/// Whether it is a program that PBS runs next to the script, or a program that starts tasks. It is no part of the job's
/// own work.
fn is_of_pbs(name: &str) -> bool {
    name.starts_with("pbs_") || name == PBSDSH
}

fn is_shell(name: &str) -> bool {
    matches!(name, "sh" | "bash" | "dash" | "ksh" | "zsh" | "csh" | "tcsh" | "fish")
}

/// Whether `pid` is `own` or an ancestor of it.
fn is_above(all: &[Process], pid: i32, own: i32) -> bool {
    let mut at = own;
    for _ in 0..all.len() + 1 {
        if at == pid {
            return true;
        }
        let Some(process) = all.iter().find(|it| it.pid.get() == at) else { return false };
        at = process.parent;
    }
    false
}

fn place(ranks: Vec<(&str, Pid)>) -> Result<Placement> {
    let mut placement = PlacementBuilder::new();
    for (name, pid) in ranks {
        placement.push(name, Some(pid), "").map_err(|e| Error::invalid(e.to_string()))?;
    }
    Ok(placement.build())
}

fn not_yet(message: String) -> Error {
    Error::not_yet(message, "wait for its ranks with --wait", false)
}

#[cfg(test)]
mod tests {
    use super::super::processes::tests::with;
    use super::*;
    use crate::host::fake::FakeHost;

    /// A script of shell 10 with these below it: pid, parent, session, name, task, rank.
    fn script(rest: &[(i32, i32, i32, &str, u32, &str)]) -> Vec<Process> {
        let host = with(FakeHost::default(), (10, 1, 10), "bash", 1, "");
        let host = with(with(host, (11, 10, 10), "bash", 1, ""), (9, 10, 10), "pbs_demux", 1, "");
        let add =
            |host, it: &(i32, i32, i32, &str, u32, &str)| with(host, (it.0, it.1, it.2), it.3, it.4, it.5);
        find(b"7.head", &rest.iter().fold(host, add))
    }

    fn pids(found: &[Found]) -> Vec<(i32, u32, Is)> {
        found.iter().map(|it| (it.pid.get(), it.order, it.is)).collect()
    }

    #[test]
    fn tasks_exclude_the_script_agents_and_children_of_tasks() {
        let all = script(&[
            (12, 11, 10, "pbsdsh", 1, ""),
            (31, 1, 31, "app", 3, ""),
            (30, 1, 30, "app", 2, ""),
            (32, 30, 32, "escaped", 2, ""),
            (40, 1, 40, "gantry-agent", 4, ""),
            (41, 40, 40, "app", 4, "0"),
            (42, 41, 40, "child", 4, "0"),
        ]);
        let found = sort_out(&all);
        assert_eq!(pids(&found), [(41, 0, Is::Rank { of: Some(2) }), (30, 2, Is::Task), (31, 3, Is::Task)]);
        assert!(run_by_script(&all, 0).is_empty(), "a starter is not a rank");
    }

    #[test]
    fn a_scripts_programs_are_below_its_innermost_shell() {
        let run = |rest: &[_], own| -> Vec<i32> {
            run_by_script(&script(rest), own).into_iter().map(Pid::get).collect()
        };
        assert_eq!(run(&[], 0), Vec::<i32>::new());
        assert_eq!(run(&[(12, 11, 10, "app", 1, ""), (13, 12, 10, "part", 1, "")], 0), [12]);
        assert_eq!(run(&[(12, 11, 10, "sh", 1, ""), (13, 12, 10, "app", 1, "")], 0), [13]);
        assert_eq!(run(&[(12, 11, 10, "a", 1, ""), (13, 11, 10, "b", 1, "")], 0), [12, 13]);
        // The tool itself, started by the script, and its children.
        assert_eq!(run(&[(12, 11, 10, "a", 1, ""), (13, 11, 10, "tool", 1, "")], 13), [12]);
        assert_eq!(run(&[(12, 11, 10, "a", 1, ""), (13, 11, 10, "gantry", 1, "")], 0), [12]);
        let waits = [(12, 11, 10, "a", 1, ""), (13, 11, 10, "bash", 1, ""), (14, 13, 10, "gantry", 1, "")];
        assert_eq!(run(&waits, 0), [12]);
    }

    #[test]
    fn numbered_ranks_are_all_there_once() {
        let rank = |order, pid| Found { pid: Pid::new(pid).unwrap(), order, is: Is::Rank { of: Some(2) } };
        let found =
            |there| vec![("n1".to_owned(), vec![rank(1, 5)]), ("n2".to_owned(), vec![rank(there, 6)])];
        let placed = place_numbered(&found(0)).unwrap().unwrap();
        let shown: Vec<_> = placed.iter().map(|it| (it.host.to_owned(), it.pid.unwrap().get())).collect();
        assert_eq!(shown, [("n2".to_owned(), 6), ("n1".to_owned(), 5)]);
        let twice = place_numbered(&found(1)).unwrap_err().to_string();
        assert_eq!(twice, "two processes of the job are rank 1: it runs more than one app");
        assert_eq!(place_numbered(&found(3)).unwrap_err().to_string(), "2 of 4 ranks are there");
        assert_eq!(place_numbered(&found(0)[1..]).unwrap_err().to_string(), "1 of 2 ranks are there");
        assert_eq!(place_numbered(&[]).unwrap(), None);
    }

    #[test]
    fn a_report_is_found_after_any_banner() {
        let placement = place(vec![("n1", Pid::new(3).unwrap())]).unwrap();
        let text = format!("Welcome{}", tell(Ok(placement.clone())));
        assert_eq!(parse_told(&text).unwrap().unwrap(), placement);
        let waits = parse_told(&tell(Err(not_yet("x".to_owned())))).unwrap();
        assert!(matches!(waits, Err(Error::NotYet { failure, .. }) if failure.message() == "x"));
        let failed = parse_told(&tell(Err(Error::invalid_with("bad", "do")))).unwrap().unwrap_err();
        assert_eq!((failed.to_string().as_str(), failed.hint().as_deref()), ("bad", Some("do")));
        assert!(parse_told("Welcome\n").is_none());
        assert!(parse_told("gantry-found {\n").unwrap().is_err());
    }
}
