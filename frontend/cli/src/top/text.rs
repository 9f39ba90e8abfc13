//! The state of ranks and nodes as tables, and as JSON.

use serde::Serialize;

use super::figures::{
    Figures, NodeFigures, RANK_HEADS, RankFigures, describe_doing, describe_load, describe_memory,
};
use crate::stack::report::{Findings, Report};
use crate::stack::text::build_page;
use crate::view::Page;
use crate::view::table::build_table;

/// All of it: nodes, ranks, and call paths.
pub(crate) fn build(figures: &Figures, found: &Findings, bold: bool) -> Page {
    let unknown = || "-".to_owned();
    let node = |node: &NodeFigures| {
        vec![
            node.host.to_string(),
            node.ranks.to_string(),
            node.cpu_percent.to_string(),
            describe_memory(node.memory_kib),
            node.machine.map_or_else(unknown, describe_load),
            node.machine.map_or_else(unknown, |machine| machine.processors.to_string()),
            node.machine.map_or_else(unknown, |machine| describe_memory(machine.available_kib)),
            node.daemons.to_string(),
            describe_doing(&node.doing),
        ]
    };
    let nodes: Vec<_> = figures.nodes.iter().map(node).collect();
    let ranks: Vec<_> = figures.ranks.iter().map(|rank| figures.cells(rank).to_vec()).collect();
    let heads = ["NODE", "RANKS", "CPU%", "MEM", "LOAD", "CPUS", "FREE", "DAEMONS", "STATES"];
    let mut page = build_table(&heads, &nodes, bold);
    page.add("");
    page.append(&build_table(&RANK_HEADS, &ranks, bold));
    page.add("");
    page.append(&build_page(found, bold));
    page
}

/// The object of `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct Object<'f> {
    nodes: Vec<NodeObject>,
    ranks: Vec<RankObject>,
    stacks: Report<'f>,
}

#[derive(Debug, Serialize)]
struct NodeObject {
    host: String,
    ranks: String,
    cpu_percent: u64,
    memory_kib: u64,
    #[serde(flatten)]
    machine: Option<MachineObject>,
    daemons: usize,
}

#[derive(Debug, Serialize)]
struct MachineObject {
    processors: u64,
    load_percent: u64,
    total_memory_kib: u64,
    available_memory_kib: u64,
}

#[derive(Debug, Serialize)]
struct RankObject {
    rank: u32,
    host: String,
    pid: Option<i32>,
    state: &'static str,
    /// None: the rank was not observed long enough.
    cpu_percent: Option<u64>,
    memory_kib: u64,
    threads: u64,
    exe: String,
}

impl<'f> Object<'f> {
    pub(crate) fn new(figures: &Figures, found: &'f Findings) -> Self {
        let machine = |machine: gantry_stack::load::HostLoad| MachineObject {
            processors: machine.processors,
            load_percent: machine.load_percent,
            total_memory_kib: machine.memory_kib,
            available_memory_kib: machine.available_kib,
        };
        let node = |node: &NodeFigures| NodeObject {
            host: node.host.to_string(),
            ranks: node.ranks.to_string(),
            cpu_percent: node.cpu_percent,
            memory_kib: node.memory_kib,
            machine: node.machine.map(machine),
            daemons: node.daemons,
        };
        let rank = |rank: &RankFigures| RankObject {
            rank: rank.rank.0,
            host: figures.nodes[rank.node].host.to_string(),
            pid: rank.pid,
            state: rank.load.doing.as_str(),
            cpu_percent: rank.load.cpu_percent,
            memory_kib: rank.load.memory_kib,
            threads: rank.load.threads,
            exe: rank.exe.to_string(),
        };
        Self {
            nodes: figures.nodes.iter().map(node).collect(),
            ranks: figures.ranks.iter().map(rank).collect(),
            stacks: Report::new(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::{load, ranks};
    use super::*;

    #[test]
    fn programs_get_the_figures_and_people_a_table() {
        let mut figures = Figures::new(&ranks(2, 1));
        figures.take(&[load("R 98 2048 3", "1")], &[]);
        let found = Findings { samples: 1, ..Findings::default() };
        let object = serde_json::to_value(Object::new(&figures, &found)).unwrap();
        assert_eq!(object["ranks"][1]["state"], "running");
        assert_eq!(object["ranks"][1]["cpu_percent"], 98);
        assert_eq!(object["nodes"][1]["memory_kib"], 2048);
        assert!(object["ranks"][0]["cpu_percent"].is_null() && object["stacks"]["classes"].is_array());
        let page = build(&figures, &found, false);
        assert!(
            page.as_str().contains("\n1     n001  4001  running  98    2048K  3    /bin/heat\n"),
            "{}",
            page.as_str()
        );
    }
}
