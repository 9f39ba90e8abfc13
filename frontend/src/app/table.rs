//! Compares the launcher's own rank table for debuggers with the ranks that the agents see.
//!
//! The launcher's programs report each rank through the environment, and the agents believe that. The table is the
//! launcher's statement on the same by another way. It is read after the app has started, so that no launch waits for
//! it. A difference is only reported: it is certain that the ranks are where the agents have them.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gantry_types::id::{AppId, Pid};
use gantry_types::placement::{Placement, RankPlace};
use gantry_wlm::pmix::ask_ranks;

use super::asking::ask;
use super::core::{Core, Stage};
use super::state::Happening;
use crate::error::Result;
use crate::event::{Event, RankDiffers, TableDiffers};
use crate::helpers;
use crate::info::AppState;
use gantry_guard::protocol::LauncherTable;

/// When to read the table after the ranks are there. Launchers that fill it from their daemons' reports have done so by
/// then, or are about to.
const WHEN_THERE_MILLIS: [u64; 3] = [0, 250, 1000];

/// When to read it while the ranks run, each pause after the one before. Some launchers fill it when the last rank is
/// in `MPI_Init`, and notify no tool.
const WHEN_RUNNING_MILLIS: [u64; 8] = [100, 200, 400, 800, 1600, 3200, 6400, 12800];

/// How to compare the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    /// The ranks are the processes that the launcher started.
    pub(super) pids: bool,
    /// Another program starts the launcher.
    pub(super) wrapped: bool,
}

/// Compares the launcher's table with the app's ranks once there is a table, as long as the app lives. Returns at once,
/// except for a launcher that is a PMIx server: this waits for its answer, and asks only while the ranks are held. Such
/// a launcher never ends if a tool connects while its job ends (PRRTE 3.0.14).
///
/// A launcher may read its own `files` until it has filled its table: the table names programs. They are dropped then,
/// or soon.
pub(super) async fn check(core: &Arc<Core>, look: Look, held: bool, files: impl Send + 'static) {
    if held && let Some(LauncherTable::ByPmix { launcher, library }) = core.launcher_table(look.wrapped).await
    {
        match ask_pmix(launcher, library).await {
            Ok(table) => judge(core, &table, look),
            Err(reason) => {
                tracing::debug!(app = %core.app, %reason, "the launcher does not publish its ranks")
            }
        }
        return;
    }
    let core = Arc::clone(core);
    tokio::spawn(async move {
        tokio::select! {
            () = look_until_known(&core, look, files) => {}
            () = core.reached(Stage::Exited) => {}
        }
    });
}

async fn look_until_known(core: &Core, look: Look, files: impl Send) {
    let is_known = look_some_times(core, look, &WHEN_THERE_MILLIS).await;
    drop(files);
    if is_known {
        return;
    }
    core.until(|state| (state.app_state() == AppState::Running).then_some(())).await;
    if !look_some_times(core, look, &WHEN_RUNNING_MILLIS).await {
        tracing::debug!(app = %core.app, "the launcher has filled no table of ranks");
    }
}

/// Reads the table after each pause until it is filled. False: the launcher has a table that is not filled yet.
async fn look_some_times(core: &Core, look: Look, pauses_millis: &[u64]) -> bool {
    let app = core.app;
    for pause in pauses_millis {
        tokio::time::sleep(Duration::from_millis(*pause)).await;
        match core.launcher_table(look.wrapped).await {
            Some(LauncherTable::There(table)) => {
                judge(core, &table, look);
                return true;
            }
            Some(LauncherTable::ByPmix { .. }) => {
                tracing::debug!(%app, "the launcher is a PMIx server, which can only be asked about held ranks");
                return true;
            }
            Some(LauncherTable::NotYet(reason)) => {
                tracing::debug!(%app, reason, "the launcher has filled no table yet")
            }
            Some(LauncherTable::Never(reason)) => {
                tracing::debug!(%app, reason, "the launcher has no table of ranks");
                return true;
            }
            None => return true,
        }
    }
    false
}

/// Reports the differences.
fn judge(core: &Core, table: &Placement, look: Look) {
    let found = core.state().placement().clone();
    match compare(core.app, &found, table, look.pids) {
        None => {
            tracing::debug!(app = %core.app, ranks = table.rank_count(), "the launcher's own proctable agrees");
        }
        Some(differs) => core.happened(Happening::Found(Event::TableDiffers(differs))),
    }
}

/// Asks a PMIx server for its ranks.
async fn ask_pmix(launcher: Pid, library: PathBuf) -> Result<Placement> {
    let agent = helpers::find(helpers::AGENT)?;
    ask(move |host| ask_ranks(launcher, &library, &agent, host)).await
}

/// Where the launcher's table differs from the agents' ranks. None: it does not.
fn compare(app: AppId, found: &Placement, table: &Placement, pids: bool) -> Option<TableDiffers> {
    let other_names = find_other_names(found, table);
    let differs = |(found, told): &(RankPlace<'_>, RankPlace<'_>)| {
        let same_host = is_same_host(found.host, told.host)
            || other_names.get(told.host).is_some_and(|host| *host == found.host);
        !same_host || (pids && found.pid != told.pid)
    };
    let (mut ranks, mut count) = (Vec::new(), 0);
    for (found, told) in found.iter().zip(table.iter()).filter(differs) {
        count += 1;
        if ranks.len() < TableDiffers::MOST {
            ranks.push(RankDiffers {
                rank: found.rank,
                host: found.host.to_owned(),
                pid: found.pid,
                table_host: told.host.to_owned(),
                table_pid: told.pid,
            });
        }
    }
    let table_ranks = table.rank_count();
    if count == 0 && table_ranks == found.rank_count() {
        return None;
    }
    let message = describe(found.rank_count(), table_ranks, count, ranks.first());
    Some(TableDiffers { app, table_ranks, count, ranks, message })
}

/// Host names of the table that are not names of our hosts, but each stand for one: an address, or another name of a
/// machine.
fn find_other_names<'a>(found: &'a Placement, table: &'a Placement) -> BTreeMap<&'a str, &'a str> {
    let mut ours: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut theirs: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (found, told) in found.iter().zip(table.iter()) {
        ours.entry(told.host).or_default().insert(found.host);
        theirs.entry(found.host).or_default().insert(told.host);
    }
    let label = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let names: HashSet<String> = found.hosts().map(str::to_ascii_lowercase).collect();
    let labels: HashSet<String> = found.hosts().map(label).collect();
    let is_ours = |told: &str| match told.contains('.') {
        true => names.contains(&told.to_ascii_lowercase()) || names.contains(&label(told)),
        false => labels.contains(&told.to_ascii_lowercase()),
    };
    let only_one = |(told, hosts): (&'a str, BTreeSet<&'a str>)| {
        let host = *hosts.first().filter(|_| hosts.len() == 1)?;
        let one_name = theirs.get(host).is_some_and(|names| names.len() == 1);
        (one_name && !is_ours(told)).then_some((told, host))
    };
    ours.into_iter().filter_map(only_one).collect()
}

/// Whether two names belong to one host. One of them may have a domain suffix.
fn is_same_host(one: &str, other: &str) -> bool {
    let first = |name: &'_ str| name.split('.').next().unwrap_or_default().len();
    let (short, long) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    short.eq_ignore_ascii_case(long)
        || (!short.contains('.') && long.get(..first(long)).is_some_and(|it| it.eq_ignore_ascii_case(short)))
}

fn describe(ranks: u32, table_ranks: u32, count: u32, first: Option<&RankDiffers>) -> String {
    let mut message = "the launcher's own proctable differs".to_owned();
    if ranks != table_ranks {
        message += &format!(": it has {table_ranks} ranks, and {ranks} are there");
    }
    if let Some(first) = first {
        let pid = |pid: Option<gantry_types::id::Pid>| pid.map_or("?".to_owned(), |pid| pid.to_string());
        let (here, there) = (pid(first.pid), pid(first.table_pid));
        message += &format!(
            ": rank {} is process {here} on {}, and by the table process {there} on {}",
            first.rank, first.host, first.table_host
        );
        if count > 1 {
            message += &format!("; {} more ranks differ", count - 1);
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use gantry_types::placement::PlacementBuilder;

    use super::*;

    /// `HOST:PID` of every rank.
    fn placement(ranks: &str) -> Placement {
        let mut placement = PlacementBuilder::new();
        for rank in ranks.split_whitespace() {
            let (host, pid) = rank.split_once(':').unwrap();
            placement.push(host, Pid::new(pid.parse().unwrap()), "").unwrap();
        }
        placement.build()
    }

    /// Expects these ranks to differ, or this message about another number of ranks.
    #[track_caller]
    fn check(found: &str, table: &str, pids: bool, expected: &[u32], message: &str) {
        let differs = compare("dx0g8sf8".parse().unwrap(), &placement(found), &placement(table), pids);
        let ranks = differs.iter().flat_map(|it| &it.ranks).map(|it| it.rank.0).collect::<Vec<_>>();
        assert_eq!(ranks, expected, "{differs:?}");
        let said = differs.map(|it| it.message).unwrap_or_default();
        assert!(said.contains(message) && said.is_empty() == message.is_empty(), "{said}");
    }

    #[test]
    fn a_table_that_says_the_same_is_not_told_of() {
        check("a:1 a:2 b:1", "a:1 a:2 b:1", true, &[], "");
        check("a:1 b:2", "A.example.org:1 b.example.org:2", true, &[], "");
        check("a.x:1 b.x:2", "a:1 b:2", true, &[], "");
    }

    #[test]
    fn other_names_of_hosts_are_no_contradiction_where_each_stands_for_one() {
        check("a:1 a:2 b:1", "10.0.0.1:1 10.0.0.1:2 10.0.0.2:1", true, &[], "");
        check("a:1 b:2", "localhost:1 b:2", true, &[], "");
        check(
            "a:1 b:2",
            "c:1 c:2",
            true,
            &[0, 1],
            "rank 0 is process 1 on a, and by the table process 1 on c; 1 more",
        );
        check("a:1 a:2", "c:1 d:2", true, &[0, 1], "by the table process 1 on c");
        check("a:1 b:2", "b:1 a:2", true, &[0, 1], "by the table process 1 on b");
        check("a.x:1 a.y:2", "a.y:1 a.x:2", true, &[0, 1], "by the table process 1 on a.y");
        check("a.x:1 b:2", "B:1 A:2", true, &[0, 1], "by the table process 1 on B");
        check("a:1 b:2", "B.x:1 a.x:2", true, &[0, 1], "by the table process 1 on B.x");
    }

    #[test]
    fn other_processes_and_numbers_of_ranks_are_told() {
        check(
            "a:1 a:2 b:3",
            "a:1 a:9 b:3",
            true,
            &[1],
            "rank 1 is process 2 on a, and by the table process 9 on a",
        );
        check("a:1 a:2", "a:5 a:6", false, &[], "");
        check("a:1 a:2", "a:1 a:2 a:3", true, &[], "it has 3 ranks, and 2 are there");
        check("a:1 a:2", "a:3", true, &[0], "it has 1 ranks, and 2 are there: rank 0 is process 1 on a");
    }

    #[test]
    fn of_many_ranks_that_differ_the_first_are_named() {
        let all = |first: u32| (first..first + 20).map(|pid| format!("a:{pid} ")).collect::<String>();
        let app = "dx0g8sf8".parse().unwrap();
        let differs = compare(app, &placement(&all(1)), &placement(&all(100)), true).unwrap();
        assert_eq!((differs.count, differs.ranks.len(), differs.table_ranks), (20, TableDiffers::MOST, 20));
        assert!(differs.message.ends_with("; 19 more ranks differ"), "{}", differs.message);
    }
}
