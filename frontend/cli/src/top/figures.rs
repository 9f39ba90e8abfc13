//! The known state of ranks and nodes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gantry_frontend::event::{RankInfo, StateName};
use gantry_stack::load::{Doing, HostLoad, Load};
use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;

/// The heads of a table of ranks.
pub(crate) const RANK_HEADS: [&str; 8] = ["RANK", "HOST", "PID", "STATE", "CPU%", "MEM", "THR", "PROGRAM"];

/// A rank and its resource use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RankFigures {
    pub(crate) rank: Rank,
    /// Its node, as an index into the list of nodes.
    pub(crate) node: usize,
    pub(crate) pid: Option<i32>,
    pub(crate) exe: Arc<str>,
    pub(crate) load: Load,
}

/// A node and the resource use of its ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodeFigures {
    pub(crate) host: Arc<str>,
    pub(crate) ranks: RankSet,
    pub(crate) cpu_percent: u64,
    pub(crate) memory_kib: u64,
    pub(crate) doing: BTreeMap<Doing, u64>,
    /// The machine; none until it has reported.
    pub(crate) machine: Option<HostLoad>,
    /// Tool daemons that run there.
    pub(crate) daemons: usize,
}

/// All ranks, in their order, and all nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) ranks: Vec<RankFigures>,
    pub(crate) nodes: Vec<NodeFigures>,
    /// Nodes without an answer, and why.
    pub(crate) missing: Vec<(String, String)>,
    places: HashMap<Rank, usize>,
}

impl Figures {
    /// Figures of ranks without reports so far.
    pub(crate) fn new(ranks: &[RankInfo]) -> Self {
        let mut figures = Self::default();
        let mut nodes: HashMap<&str, usize> = HashMap::new();
        let mut programs: HashMap<&str, Arc<str>> = HashMap::new();
        for rank in ranks {
            let node = *nodes.entry(&rank.host).or_insert_with(|| {
                figures.nodes.push(NodeFigures::new(&rank.host));
                figures.nodes.len() - 1
            });
            let exe = programs.entry(&rank.exe).or_insert_with(|| Arc::from(rank.exe.as_str()));
            let doing = match rank.state {
                StateName::Exited => Doing::Ended,
                StateName::Held => Doing::Held,
                _ => Doing::Unknown,
            };
            figures.places.insert(rank.rank, figures.ranks.len());
            figures.nodes[node].ranks.insert(rank.rank);
            figures.ranks.push(RankFigures {
                rank: rank.rank,
                node,
                pid: rank.pid.map(gantry_types::id::Pid::get),
                exe: Arc::clone(exe),
                load: Load::nothing(doing),
            });
        }
        figures.add_up();
        figures
    }

    /// Takes the nodes' answers. Ranks that the app does not have are ignored.
    pub(crate) fn take(&mut self, loads: &[(Load, RankSet)], machines: &[(HostLoad, RankSet)]) {
        // Each rank is in one set. A bound stops the work for a node that claims otherwise.
        let most = 2 * self.ranks.len();
        let mut left = most;
        for (load, ranks) in loads {
            for rank in self.known(ranks, &mut left) {
                self.ranks[rank].load = *load;
            }
        }
        left = most;
        for (machine, ranks) in machines {
            for rank in self.known(ranks, &mut left) {
                let node = self.ranks[rank].node;
                self.nodes[node].machine = Some(*machine);
            }
        }
        self.add_up();
    }

    /// Takes the number of tool daemons on each host.
    pub(crate) fn take_daemons(&mut self, daemons: &HashMap<String, usize>) {
        for node in &mut self.nodes {
            node.daemons = daemons.get(node.host.as_ref()).copied().unwrap_or_default();
        }
    }

    /// The indexes of these ranks, for at most `left` of them.
    fn known(&self, ranks: &RankSet, left: &mut usize) -> Vec<usize> {
        let known = ranks.iter().take(*left).map(|rank| self.places.get(&rank).copied());
        let all: Vec<Option<usize>> = known.collect();
        *left -= all.len();
        all.into_iter().flatten().collect()
    }

    fn add_up(&mut self) {
        for node in &mut self.nodes {
            (node.cpu_percent, node.memory_kib) = (0, 0);
            node.doing.clear();
        }
        for rank in &self.ranks {
            let node = &mut self.nodes[rank.node];
            node.cpu_percent = node.cpu_percent.saturating_add(rank.load.cpu_percent.unwrap_or_default());
            node.memory_kib = node.memory_kib.saturating_add(rank.load.memory_kib);
            *node.doing.entry(rank.load.doing).or_default() += 1;
        }
    }

    /// The row of a rank in a table, under [`RANK_HEADS`].
    pub(crate) fn cells(&self, rank: &RankFigures) -> [String; 8] {
        let unknown = || "-".to_owned();
        [
            rank.rank.to_string(),
            self.nodes[rank.node].host.to_string(),
            rank.pid.map_or_else(unknown, |pid| pid.to_string()),
            rank.load.doing.as_str().to_owned(),
            rank.load.cpu_percent.map_or_else(unknown, |percent| percent.to_string()),
            describe_memory(rank.load.memory_kib),
            rank.load.threads.to_string(),
            rank.exe.to_string(),
        ]
    }

    /// How many ranks are in each state.
    pub(crate) fn doing(&self) -> BTreeMap<Doing, u64> {
        let mut all = BTreeMap::new();
        for (doing, count) in self.nodes.iter().flat_map(|node| &node.doing) {
            *all.entry(*doing).or_default() += count;
        }
        all
    }

    /// The resource use of all ranks: hundredths of a processor, and memory.
    pub(crate) fn total(&self) -> (u64, u64) {
        self.nodes.iter().fold((0, 0), |(cpu, memory): (u64, u64), node| {
            (cpu.saturating_add(node.cpu_percent), memory.saturating_add(node.memory_kib))
        })
    }
}

impl NodeFigures {
    fn new(host: &str) -> Self {
        Self { host: Arc::from(host), ..Self::default() }
    }
}

/// Counts of states, in words.
pub(crate) fn describe_doing(doing: &BTreeMap<Doing, u64>) -> String {
    let words: Vec<String> =
        doing.iter().map(|(doing, count)| format!("{count} {}", doing.as_str())).collect();
    words.join(", ")
}

/// The length of the queue for the processors.
pub(crate) fn describe_load(machine: HostLoad) -> String {
    format!("{}.{:02}", machine.load_percent / 100, machine.load_percent % 100)
}

/// An amount of memory in at most four digits and a unit.
pub(crate) fn describe_memory(kib: u64) -> String {
    let mut amount = kib;
    for unit in ["K", "M", "G", "T"] {
        if amount < 10_000 {
            return format!("{amount}{unit}");
        }
        amount = amount.saturating_add(512) / 1024;
    }
    format!("{amount}P")
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// Ranks of `/bin/heat`, this many on each node.
    pub(crate) fn ranks(count: u32, on_each: u32) -> Vec<RankInfo> {
        let rank = |rank: u32| json!({ "rank": rank, "host": format!("n{:03}", rank / on_each), "pid": 4000 + rank, "exe": "/bin/heat", "state": "running" });
        (0..count).map(|number| serde_json::from_value(rank(number)).unwrap()).collect()
    }

    /// The load of some ranks.
    pub(crate) fn load(text: &str, ranks: &str) -> (Load, RankSet) {
        (Load::parse(text).unwrap(), ranks.parse().unwrap())
    }

    #[test]
    fn nodes_have_the_sums_of_their_ranks() {
        let mut figures = Figures::new(&ranks(6, 4));
        let machine = HostLoad { processors: 8, load_percent: 410, memory_kib: 64, available_kib: 32 };
        let loads = [load("R 100 2000 1", "0-2,4"), load("D 3 9000 5", "3"), load("H - 100 1", "5,99")];
        figures.take(&loads, &[(machine, "4".parse().unwrap())]);
        let node = |at: usize| {
            let node = &figures.nodes[at];
            (node.host.to_string(), node.cpu_percent, node.memory_kib, describe_doing(&node.doing))
        };
        assert_eq!(node(0), ("n000".to_owned(), 303, 15_000, "3 running, 1 disk wait".to_owned()));
        assert_eq!(node(1), ("n001".to_owned(), 100, 2100, "1 running, 1 held".to_owned()));
        assert_eq!((figures.nodes[0].machine, figures.nodes[1].machine), (None, Some(machine)));
        assert_eq!(figures.total(), (403, 17_100));
        assert_eq!(describe_doing(&figures.doing()), "4 running, 1 disk wait, 1 held");
        // A node that claims all numbers costs no more than the real number of ranks.
        let all: RankSet = "0-4294967295".parse().unwrap();
        figures.take(&[(Load::nothing(Doing::Ended), all), load("R - 1 1", "0")], &[]);
        assert_eq!(describe_doing(&figures.doing()), "6 ended");
        assert_eq!(figures.ranks[figures.places[&Rank(5)]].pid, Some(4005));
    }

    #[test]
    fn amounts_of_memory_are_short() {
        let check = |kib, expected| assert_eq!(describe_memory(kib), expected);
        check(0, "0K");
        check(9999, "9999K");
        check(10_240, "10M");
        check(123 << 20, "123G");
        check(u64::MAX, "16777216P");
    }
}
