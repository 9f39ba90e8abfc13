//! The lines of the live table: the app's state and the places of its ranks, in the available room.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use gantry_frontend::AppHandle;
use gantry_frontend::event::{RankInfo, Staging, StateName};
use gantry_frontend::info::AppInfo;
use gantry_types::host_set::fold_hosts;
use gantry_types::rank_set::RankSet;

use super::bar;
use super::page::{Line, Page};
use super::table::{Group, MAX_ROWS, build_table, group_by, one_rank};

/// The longest cell, in characters.
const MAX_CELL: usize = 32;

/// Lines of the terminal that stay free of the table: the cursor's line, and a few lines of output.
const OTHERS: usize = 4;

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

/// The source of a live table.
#[derive(Debug)]
pub(super) enum Subject {
    /// An app of this process.
    App(AppHandle),
    /// A transfer for a daemon in another process's app; none between transfers.
    Sending(Arc<Mutex<Option<Staging>>>),
}

impl Subject {
    /// Builds the lines. `written`: output stands above, so rows of running ranks would only take its room.
    pub(super) fn build_lines(&self, room: Room, written: bool, bold: bool) -> Vec<Line> {
        match self {
            Self::App(app) => {
                let info = app.info();
                build_status(&info, room, written && !is_held(&info), bold)
            }
            Self::Sending(staging) => {
                let staging = staging.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let bar = bar::build_bar(staging.as_slice(), room.columns);
                bar.map(|bar| Line::cut(&bar, room.columns)).into_iter().collect()
            }
        }
    }
}

/// One line of counts, and one of the transfer if there is one. Unless `brief`, a table follows: a row for each rank,
/// for each node if there are many ranks, or for each state if there are many nodes.
fn build_status(info: &AppInfo, room: Room, brief: bool, bold: bool) -> Vec<Line> {
    let mut lines = vec![build_summary(info)];
    if room.rows > OTHERS {
        lines.extend(bar::build_bar(&info.staging, room.columns));
    }
    let heading = lines.len();
    // Subtract the lines above the rows and the headings.
    let rows = room.rows.saturating_sub(OTHERS + heading + 1).min(MAX_ROWS);
    if !brief && rows > 0 {
        lines.extend(build_rows(info, rows).as_str().lines().map(str::to_owned));
        lines.truncate(heading + 1 + rows);
    }
    let is_bold = |at| bold && at == heading;
    let cut = |(at, line): (usize, String)| {
        let line = Line::cut(&line, room.columns);
        if is_bold(at) { line.into_bold() } else { line }
    };
    lines.into_iter().enumerate().map(cut).collect()
}

fn build_rows(info: &AppInfo, rows: usize) -> Page {
    if info.ranks.len() <= rows {
        let ranks: Vec<_> = info.ranks.iter().map(|rank| clean(one_rank(rank))).collect();
        return build_table(&["RANK", "HOST", "PID", "STATE", "EXE"], &ranks, false);
    }
    let by_node = fold_by_node(info);
    if by_node.len() <= rows {
        return build_table(&["HOST", "RANKS", "STATE", "DAEMONS"], &by_node, false);
    }
    build_table(&["STATE", "RANKS", "HOSTS"], &fold_by_state(info), false)
}

/// Such as `3kx9w0fz: 4 ranks on 1 node: 3 held, 1 exited; daemons: 1 on n1`.
fn build_summary(info: &AppInfo) -> String {
    let by_state = group_by(&info.ranks, |rank| order(rank.state));
    let states: Vec<_> =
        by_state.iter().map(|((_, name), (ranks, _))| format!("{} {name}", ranks.len())).collect();
    let hosts: BTreeSet<&str> = by_state.into_values().flat_map(|(_, hosts)| hosts).collect();
    let ranks = if info.ranks.len() == 1 { "rank" } else { "ranks" };
    let nodes = if hosts.len() == 1 { "node" } else { "nodes" };
    let mut line = format!(
        "{}: {} {ranks} on {} {nodes}: {}",
        info.app,
        info.ranks.len(),
        hosts.len(),
        states.join(", ")
    );
    let mut by_count: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for (host, count) in daemons(info) {
        by_count.entry(count).or_default().push(host);
    }
    if !by_count.is_empty() {
        let counts = by_count.iter().map(|(count, hosts)| format!("{count} on {}", fold_hosts(hosts)));
        line += &format!("; daemons: {}", counts.collect::<Vec<_>>().join(", "));
    }
    line
}

/// How many tool daemons run on each node that has some.
fn daemons(info: &AppInfo) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for daemon in info.daemons.iter().filter(|daemon| !daemon.ended) {
        *counts.entry(daemon.host.as_str()).or_default() += 1;
    }
    counts
}

fn fold_by_node(info: &AppInfo) -> Vec<Vec<String>> {
    let mut nodes: BTreeMap<&str, BTreeMap<_, RankSet>> = BTreeMap::new();
    for rank in &info.ranks {
        nodes.entry(&rank.host).or_default().entry(order(rank.state)).or_default().insert(rank.rank);
    }
    let first = |states: &BTreeMap<_, RankSet>| states.values().filter_map(RankSet::first).min();
    let mut nodes: Vec<_> = nodes.into_iter().collect();
    nodes.sort_by_key(|(_, states)| first(states));
    let daemons = daemons(info);
    let row = |(host, states): (&str, BTreeMap<(u8, &str), RankSet>)| {
        let count: u64 = states.values().map(RankSet::len).sum();
        let states: Vec<_> = states.iter().map(|((_, name), ranks)| format!("{name} {ranks}")).collect();
        let daemons = daemons.get(host).copied().unwrap_or(0);
        clean(vec![host.to_owned(), count.to_string(), states.join("; "), daemons.to_string()])
    };
    nodes.into_iter().map(row).collect()
}

fn fold_by_state(info: &AppInfo) -> Vec<Vec<String>> {
    let row = |((_, name), (ranks, hosts)): ((u8, &str), Group<'_>)| {
        clean(vec![format!("{name} {ranks}"), ranks.len().to_string(), fold_hosts(&hosts)])
    };
    group_by(&info.ranks, |rank| order(rank.state)).into_iter().map(row).collect()
}

/// The sorting key of a state, and its name.
fn order(state: StateName) -> (u8, &'static str) {
    let states =
        [StateName::Starting, StateName::Held, StateName::Running, StateName::Exited, StateName::Lost];
    let place = states.iter().position(|it| *it == state).unwrap_or(states.len());
    (u8::try_from(place).unwrap_or(u8::MAX), state.as_str())
}

fn clean(cells: Vec<String>) -> Vec<String> {
    cells.into_iter().map(|cell| Line::cut(&cell, MAX_CELL).to_string()).collect()
}

/// Whether the table shows each rank. A user of a held app looks for ranks; a user of a running one reads output.
fn is_held(info: &AppInfo) -> bool {
    info.ranks.iter().any(|rank: &RankInfo| rank.state == StateName::Held)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn app(ranks: u32, per_node: u32) -> AppInfo {
        let rank = |number: u32| {
            let host = format!("n{}", 1 + number / per_node);
            json!({ "rank": number, "host": host, "pid": 1000 + number, "exe": "/app", "state": "held" })
        };
        let told = json!({
            "app": "abcdefgh", "wlm": "w", "state": "held", "attached": false, "owner": 1, "command": [],
            "ranks": (0..ranks).map(rank).collect::<Vec<_>>(), "left_out": [], "daemons": [], "staging": []
        });
        serde_json::from_value(told).unwrap()
    }

    fn daemon(app: &mut AppInfo, host: &str, ended: bool) {
        let told = json!({ "daemon": 1, "host": host, "pid": 1, "ended": ended });
        app.daemons.push(serde_json::from_value(told).unwrap());
    }

    fn lines_of(info: &AppInfo, room: Room, brief: bool, bold: bool) -> Vec<String> {
        build_status(info, room, brief, bold).iter().map(ToString::to_string).collect()
    }

    fn check(info: &AppInfo, columns: usize, rows: usize, expected: &[&str]) {
        assert_eq!(lines_of(info, Room { columns, rows }, false, false), expected);
    }

    #[test]
    fn few_ranks_have_a_row_each_and_states_are_counted() {
        let mut info = app(2, 2);
        info.ranks[1].state = StateName::Exited;
        info.ranks[1].ending.code = Some(3);
        daemon(&mut info, "n1", false);
        daemon(&mut info, "n1", true);
        let summary = "abcdefgh: 2 ranks on 1 node: 1 held, 1 exited; daemons: 1 on n1";
        let rows = [
            "RANK  HOST  PID   STATE   EXE",
            "0     n1    1000  held    /app",
            "1     n1    1001  exit 3  /app",
        ];
        check(&info, 80, 24, &[&[summary], &rows[..]].concat());
        assert_eq!(lines_of(&info, Room { columns: 80, rows: 24 }, true, true), [summary]);
        assert!(lines_of(&info, Room { columns: 80, rows: 24 }, false, true)[1].starts_with("\x1b[1mRANK"));
    }

    #[test]
    fn many_ranks_have_a_row_for_each_node_with_its_daemons() {
        let mut info = app(64, 32);
        info.ranks[3].state = StateName::Running;
        daemon(&mut info, "n2", false);
        daemon(&mut info, "n2", false);
        check(
            &info,
            80,
            24,
            &[
                "abcdefgh: 64 ranks on 2 nodes: 63 held, 1 running; daemons: 2 on n2",
                "HOST  RANKS  STATE                     DAEMONS",
                "n1    32     held 0-2,4-31; running 3  0",
                "n2    32     held 32-63                2",
            ],
        );
        // No rank is listed if the terminal is too low for all of them.
        check(
            &app(4, 4),
            80,
            9,
            &[
                "abcdefgh: 4 ranks on 1 node: 4 held",
                "HOST  RANKS  STATE     DAEMONS",
                "n1    4      held 0-3  0",
            ],
        );
    }

    #[test]
    fn many_nodes_have_a_row_for_each_state() {
        let mut info = app(64, 1);
        info.ranks[63].state = StateName::Lost;
        check(
            &info,
            80,
            24,
            &[
                "abcdefgh: 64 ranks on 64 nodes: 63 held, 1 lost",
                "STATE      RANKS  HOSTS",
                "held 0-62  63     n[1-63]",
                "lost 63    1      n64",
            ],
        );
    }

    #[test]
    fn a_transfer_has_a_line_below_the_counts() {
        let mut info = app(1, 1);
        info.staging.push(super::bar::tests::half());
        let lines = lines_of(&info, Room { columns: 80, rows: 24 }, false, true);
        assert!(lines[1].starts_with("sending 3 files to 2 nodes ["), "{lines:?}");
        assert!(lines[2].starts_with("\x1b[1mRANK"), "{lines:?}");
        let brief = lines_of(&info, Room { columns: 80, rows: 24 }, true, true);
        assert_eq!(brief, lines[..2]);
    }

    #[test]
    fn it_fits_into_any_terminal() {
        let mut info = app(100, 3);
        info.staging.push(super::bar::tests::half());
        info.ranks[0].exe = format!("/{}\x1b[2J\n", "x".repeat(300));
        info.ranks.iter_mut().step_by(2).for_each(|rank| rank.state = StateName::Running);
        for (columns, rows) in [(1, 1), (2, 6), (10, 7), (40, 8), (80, 24), (300, 100)] {
            for ranks in [1, 7, 100] {
                let mut info = info.clone();
                info.ranks.truncate(ranks);
                let lines = lines_of(&info, Room { columns, rows }, false, false);
                assert!(lines.len() <= (rows - 1).max(1), "{columns}x{rows}: {lines:?}");
                assert!(
                    lines.iter().all(|line| line.chars().count() <= columns),
                    "{columns}x{rows}: {lines:?}"
                );
                assert!(!lines.concat().contains(char::is_control));
            }
        }
    }
}
