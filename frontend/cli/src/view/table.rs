//! Tables for people.

use std::collections::BTreeMap;

use gantry_frontend::event::{RankInfo, StateName};
use gantry_frontend::info::{AppInfo, AppState};
use gantry_types::foreign::ForeignText;
use gantry_types::host_set::fold_hosts;
use gantry_types::rank_set::RankSet;

use super::page::{Line, Page};

/// Up to this number of rows, ranks are shown one by one. Beyond it they are folded.
pub(super) const MAX_ROWS: usize = 20;

/// At most this many apps are named in an error, with this many characters of each command.
const MAX_NAMED: usize = 10;
const MAX_COMMAND: usize = 60;

/// Rows under headings; columns as wide as their widest cell. A `bold` heading is for terminals. The content of a
/// cell cannot break the table.
pub(crate) fn build_table(headings: &[&str], rows: &[Vec<String>], bold: bool) -> Page {
    let show =
        |row: &Vec<String>| row.iter().map(|cell| ForeignText::from(cell.as_str()).to_string()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(show).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([headings[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::with_capacity(widths.iter().sum::<usize>() + 2 * widths.len());
        for (cell, width) in cells.zip(&widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.chars().count()) + 2));
        }
        line.truncate(line.trim_end().len());
        line
    };
    let mut page = Page::default();
    page.add_heading(line(&mut headings.iter().copied()), bold);
    for row in &rows {
        page.add(line(&mut row.iter().map(String::as_str)));
    }
    page
}

/// The places and states of ranks. Many ranks are folded: by node, or by their common state.
pub(crate) fn build_rank_table(ranks: &[RankInfo], bold: bool) -> Page {
    if ranks.len() <= MAX_ROWS {
        let rows: Vec<Vec<String>> = ranks.iter().map(one_rank).collect();
        return build_table(&["RANK", "HOST", "PID", "STATE", "EXE"], &rows, bold);
    }
    let headings = ["RANKS", "COUNT", "HOST", "STATE", "EXE"];
    let by_host = fold(ranks, |rank| (vec![rank.host.clone()], state(rank), rank.exe.clone()));
    if by_host.len() <= MAX_ROWS {
        return build_table(&headings, &by_host, bold);
    }
    build_table(&headings, &fold(ranks, |rank| (Vec::new(), state(rank), rank.exe.clone())), bold)
}

pub(super) fn one_rank(rank: &RankInfo) -> Vec<String> {
    let pid = rank.pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string());
    vec![rank.rank.to_string(), rank.host.clone(), pid, state(rank), rank.exe.clone()]
}

fn fold(ranks: &[RankInfo], key: impl Fn(&RankInfo) -> (Vec<String>, String, String)) -> Vec<Vec<String>> {
    let mut groups: Vec<_> = group_by(ranks, key).into_iter().collect();
    groups.sort_by_key(|(_, (set, _))| set.first().map(|rank| rank.0));
    let row = |((_, state, exe), (set, hosts)): ((_, String, String), Group<'_>)| {
        vec![set.to_string(), set.len().to_string(), fold_hosts(&hosts), state, exe]
    };
    groups.into_iter().map(row).collect()
}

/// Ranks, and their hosts, which may repeat.
pub(super) type Group<'r> = (RankSet, Vec<&'r str>);

/// The ranks with each key.
pub(super) fn group_by<'r, K: Ord>(
    ranks: &'r [RankInfo],
    key: impl Fn(&'r RankInfo) -> K,
) -> BTreeMap<K, Group<'r>> {
    let mut groups: BTreeMap<K, Group<'r>> = BTreeMap::new();
    for rank in ranks {
        let (set, hosts) = groups.entry(key(rank)).or_default();
        set.insert(rank.rank);
        if hosts.last() != Some(&rank.host.as_str()) {
            hosts.push(&rank.host);
        }
    }
    groups
}

fn state(rank: &RankInfo) -> String {
    match (rank.state, rank.ending.code, rank.ending.signal) {
        (StateName::Exited, Some(code), _) => format!("exit {code}"),
        (StateName::Exited, None, Some(signal)) => signal.to_string(),
        (StateName::Exited, None, None) => "ended".to_owned(),
        (state, ..) => state.as_str().to_owned(),
    }
}

/// All apps of the user.
pub(crate) fn build_app_table(apps: &[AppInfo], bold: bool) -> Page {
    let row = |app: &AppInfo| {
        let mut hosts: Vec<&str> = app.ranks.iter().map(|rank| rank.host.as_str()).collect();
        hosts.dedup();
        let daemons = app.daemons.iter().filter(|daemon| !daemon.ended).count();
        vec![
            app.app.to_string(),
            app.wlm.clone(),
            app_state(app).to_owned(),
            app.ranks.len().to_string(),
            fold_hosts(&hosts),
            daemons.to_string(),
            app.owner.to_string(),
            app.command.join(" "),
        ]
    };
    let rows: Vec<_> = apps.iter().map(row).collect();
    build_table(&["APP", "WLM", "STATE", "RANKS", "HOSTS", "DAEMONS", "OWNER PID", "COMMAND"], &rows, bold)
}

/// Apps that an error names: one on each line, and the first ones of many.
pub(crate) fn describe_apps(apps: &[AppInfo]) -> String {
    let width = apps.iter().map(|app| app_state(app).len()).max().unwrap_or(0);
    let line = |app: &AppInfo| {
        let command = Line::cut(&app.command.join(" "), MAX_COMMAND);
        format!("{}  {:width$}  {command}", app.app, app_state(app))
    };
    let mut lines: Vec<String> = apps.iter().take(MAX_NAMED).map(line).collect();
    if apps.len() > MAX_NAMED {
        lines.push(format!("and {} more: 'gantry ps' lists them", apps.len() - MAX_NAMED));
    }
    lines.join("\n")
}

fn app_state(app: &AppInfo) -> &'static str {
    match (app.state, app.attached) {
        (AppState::Running, true) => "attached",
        (state, _) => state.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rank(number: u32, host: &str, state: StateName) -> RankInfo {
        let told =
            json!({ "rank": number, "host": host, "pid": 1000 + number, "exe": "/app", "state": state });
        serde_json::from_value(told).unwrap()
    }

    #[test]
    fn few_ranks_one_by_one() {
        let ranks = [rank(0, "a", StateName::Held), rank(1, "long-name", StateName::Running)];
        let expected = "\
RANK  HOST       PID   STATE    EXE
0     a          1000  held     /app
1     long-name  1001  running  /app
";
        assert_eq!(build_rank_table(&ranks, false).as_str(), expected);
        assert!(build_rank_table(&ranks, true).as_str().starts_with("\x1b[1mRANK"));
    }

    #[test]
    fn a_name_stays_in_its_cell_whatever_is_in_it() {
        let mut ranks = [rank(0, "a", StateName::Held), rank(1, "n\u{202e}1", StateName::Running)];
        ranks[0].exe = "/app\x1b[2J\x07\n1     forged".to_owned();
        let expected = "\
RANK  HOST        PID   STATE    EXE
0     a           1000  held     /app\\x1b[2J\\x07\\n1     forged
1     n\\u{202e}1  1001  running  /app
";
        assert_eq!(build_rank_table(&ranks, false).as_str(), expected);
    }

    #[test]
    fn many_ranks_by_node_and_very_many_by_state() {
        let mut ranks: Vec<_> =
            (0..64).map(|n| rank(n, if n < 32 { "n1" } else { "n2" }, StateName::Held)).collect();
        ranks[3].state = StateName::Running;
        let expected = "\
RANKS     COUNT  HOST  STATE    EXE
0-2,4-31  31     n1    held     /app
3         1      n1    running  /app
32-63     32     n2    held     /app
";
        assert_eq!(build_rank_table(&ranks, false).as_str(), expected);
        let ranks: Vec<_> = (0..64).map(|n| rank(n, &format!("n{}", 100 + n), StateName::Held)).collect();
        let expected = "\
RANKS  COUNT  HOST         STATE  EXE
0-63   64     n[100-163]  held   /app
";
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(squeezed(build_rank_table(&ranks, false).as_str()), squeezed(expected));
    }
}
