//! Which ranks run where: the proctable in gantry's common form.
//!
//! Tools ask for the ranks of a node and the node of a rank, for apps of up to millions of ranks. Hosts and
//! executables are therefore stored once, a rank is three small numbers, and an index leads from node to ranks.
//!
//! Names of hosts are checked at every input: commands of a WLM must not take them for options or shell syntax.
//!
//! Paths of executables are kept as text. If a path is not UTF-8, its reader replaces invalid bytes
//! (`String::from_utf8_lossy`). It is then for people only; the program itself is found by `/proc/PID/exe` on its
//! node.

mod string_table;

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

pub use self::string_table::StringTable;
use crate::{
    host_name::{HostNameError, check_host_name},
    id::{NodeId, Pid, Rank},
    rank_set::RankSet,
};

/// Hosts of an app and, per rank, its node, pid and executable. At most 16 bytes per rank, names aside.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Stored")]
pub struct Placement {
    hosts: StringTable,
    exes: StringTable,
    ranks: Vec<Process>,
    #[serde(skip_serializing)]
    by_node: RanksByNode,
}

/// The data of one rank: an index into the hosts, its pid, an index into the executables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Process {
    node: NodeId,
    pid: Option<Pid>,
    exe: u32,
}

/// A placement from the wire, unchecked and without its index.
#[derive(Deserialize)]
#[serde(rename = "Placement")]
struct Stored {
    hosts: StringTable,
    exes: StringTable,
    ranks: Vec<Process>,
}

/// Where one rank runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RankPlace<'a> {
    /// The rank.
    pub rank: Rank,
    /// Its node.
    pub node: NodeId,
    /// The node's host name.
    pub host: &'a str,
    /// Its process on that node, once that is known.
    pub pid: Option<Pid>,
    /// The path of its executable; empty while that is not known.
    pub exe: &'a str,
}

/// Why a placement is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlacementError {
    /// More ranks, hosts or executables than 32 bits can number.
    #[error("a placement has more than 4294967294 ranks, hosts or executables")]
    TooLarge,
    /// A rank that the app does not have.
    #[error("there is no rank {rank}, the app has {rank_count}")]
    NoSuchRank {
        /// The rank.
        rank: Rank,
        /// How many ranks there are.
        rank_count: u32,
    },
    /// A node's name is not valid.
    #[error(transparent)]
    BadHost(#[from] HostNameError),
    /// A rank's node or executable is not in the tables that came with it.
    #[error("rank {rank} names a host or executable that is not in its placement")]
    BadIndex {
        /// The rank.
        rank: Rank,
    },
}

impl Placement {
    /// How many ranks the app has.
    #[must_use]
    pub fn rank_count(&self) -> u32 {
        // Checked on every way in; see `RanksByNode::new`.
        u32::try_from(self.ranks.len()).unwrap_or(u32::MAX)
    }

    /// How many nodes there are, those without a rank too.
    #[must_use]
    pub fn node_count(&self) -> u32 {
        u32::try_from(self.hosts.len()).unwrap_or(u32::MAX)
    }

    /// The host name of a node, when there is such a node.
    #[must_use]
    pub fn host(&self, node: NodeId) -> Option<&str> {
        self.hosts.get(node.0)
    }

    /// The host names, by node number.
    pub fn hosts(&self) -> impl ExactSizeIterator<Item = &str> {
        self.hosts.iter()
    }

    /// The node of exactly that host name: `n1` does not find `n1.cluster`.
    #[must_use]
    pub fn find_host(&self, host: &str) -> Option<NodeId> {
        self.hosts.find(host).map(NodeId)
    }

    /// The executables, each once, in the order in which they came. One that [`Placement::set_process`] replaced
    /// everywhere stays in the list.
    pub fn exes(&self) -> impl ExactSizeIterator<Item = &str> {
        self.exes.iter()
    }

    /// Where a rank runs, when there is such a rank.
    #[must_use]
    pub fn get(&self, rank: Rank) -> Option<RankPlace<'_>> {
        self.ranks.get(rank.index()).map(|process| self.place(rank, process))
    }

    /// Where each rank runs, by ascending rank.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = RankPlace<'_>> {
        (0..self.rank_count()).map(Rank).zip(&self.ranks).map(|(rank, process)| self.place(rank, process))
    }

    /// The ranks of a node, in the time that it takes to list them; none for a node that is not there.
    #[must_use]
    pub fn ranks_on(&self, node: NodeId) -> RankSet {
        self.by_node.of(node).iter().copied().collect()
    }

    /// Adds data about a rank that was not known when the placement was built.
    ///
    /// # Errors
    /// When there is no such rank, or no room for one more executable.
    pub fn set_process(&mut self, rank: Rank, pid: Option<Pid>, exe: &str) -> Result<(), PlacementError> {
        let rank_count = self.rank_count();
        let process =
            self.ranks.get_mut(rank.index()).ok_or(PlacementError::NoSuchRank { rank, rank_count })?;
        process.exe = self.exes.intern(exe).ok_or(PlacementError::TooLarge)?;
        process.pid = pid;
        Ok(())
    }

    fn place(&self, rank: Rank, process: &Process) -> RankPlace<'_> {
        let &Process { node, pid, exe } = process;
        // Indices were checked on every way in, so the defaults are never taken.
        let (host, exe) =
            (self.hosts.get(node.0).unwrap_or_default(), self.exes.get(exe).unwrap_or_default());
        RankPlace { rank, node, host, pid, exe }
    }
}

impl TryFrom<Stored> for Placement {
    type Error = PlacementError;

    fn try_from(Stored { hosts, exes, mut ranks }: Stored) -> Result<Self, PlacementError> {
        hosts.iter().try_for_each(check_host_name)?;
        for (rank, process) in (0..u32::MAX).map(Rank).zip(&ranks) {
            if process.node.index() >= hosts.len() || process.exe as usize >= exes.len() {
                return Err(PlacementError::BadIndex { rank });
            }
        }
        let by_node = RanksByNode::new(hosts.len(), &ranks).ok_or(PlacementError::TooLarge)?;
        ranks.shrink_to_fit();
        Ok(Self { hosts, exes, ranks, by_node })
    }
}

/// Makes a [`Placement`], rank by rank.
#[derive(Clone, Debug, Default)]
pub struct PlacementBuilder {
    hosts: StringTable,
    exes: StringTable,
    ranks: Vec<Process>,
}

impl PlacementBuilder {
    /// No hosts and no ranks yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, with room for that many ranks.
    #[must_use]
    pub fn with_capacity(rank_count: usize) -> Self {
        Self { ranks: Vec::with_capacity(rank_count), ..Self::default() }
    }

    /// Adds a host when it is new, and says which node it is. Only needed to fix the nodes' order before the ranks
    /// come, or for a node without ranks.
    ///
    /// # Errors
    /// When there is no room for one more, or this is not the name of a host.
    pub fn push_host(&mut self, host: &str) -> Result<NodeId, PlacementError> {
        if let Some(known) = self.hosts.find(host) {
            return Ok(NodeId(known));
        }
        check_host_name(host)?;
        self.hosts.intern(host).map(NodeId).ok_or(PlacementError::TooLarge)
    }

    /// Adds the next rank, and says which it is: they come in order, from 0. A host that is new becomes the next
    /// node. `exe` is empty while it is not known.
    ///
    /// # Errors
    /// When there is no room for one more, or this is not the name of a host.
    pub fn push(&mut self, host: &str, pid: Option<Pid>, exe: &str) -> Result<Rank, PlacementError> {
        let rank = u32::try_from(self.ranks.len()).ok().filter(|&rank| rank < u32::MAX - 1);
        let rank = rank.map(Rank).ok_or(PlacementError::TooLarge)?;
        // Most ranks are like the one before: no need to look their strings up.
        let (node_before, exe_before) =
            self.ranks.last().map_or((None, None), |it| (Some(it.node), Some(it.exe)));
        let node = match node_before.filter(|node| self.hosts.get(node.0) == Some(host)) {
            Some(node) => node,
            None => self.push_host(host)?,
        };
        let exe = match exe_before.filter(|before| self.exes.get(*before) == Some(exe)) {
            Some(exe) => exe,
            None => self.exes.intern(exe).ok_or(PlacementError::TooLarge)?,
        };
        self.ranks.push(Process { node, pid, exe });
        Ok(rank)
    }

    /// The placement of all that was pushed.
    #[must_use]
    pub fn build(self) -> Placement {
        let Self { hosts, exes, mut ranks } = self;
        ranks.shrink_to_fit();
        // `push` let no more ranks in than can be indexed, so the default is never taken.
        let by_node = RanksByNode::new(hosts.len(), &ranks).unwrap_or_default();
        Placement { hosts, exes, ranks, by_node }
    }
}

/// The ranks sorted by node, and where each node's ranks start: four bytes per rank and per node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct RanksByNode {
    ranks: Vec<Rank>,
    /// One entry per node and a last one: the end.
    starts: Vec<u32>,
}

impl RanksByNode {
    /// Sorts by counting. Every node of `ranks` is below `node_count`. `None` when there are too many ranks.
    fn new(node_count: usize, ranks: &[Process]) -> Option<Self> {
        let rank_count = u32::try_from(ranks.len()).ok().filter(|&count| count < u32::MAX)?;
        let mut starts = vec![0_u32; node_count + 1];
        for process in ranks {
            starts[process.node.index() + 1] += 1;
        }
        for node in 1..starts.len() {
            starts[node] += starts[node - 1];
        }
        let mut next = starts.clone();
        let mut sorted = vec![Rank(0); ranks.len()];
        for (rank, process) in (0..rank_count).map(Rank).zip(ranks) {
            let at = &mut next[process.node.index()];
            sorted[*at as usize] = rank;
            *at += 1;
        }
        Some(Self { ranks: sorted, starts })
    }

    fn of(&self, node: NodeId) -> &[Rank] {
        let bounds = self.starts.get(node.index()..).unwrap_or_default();
        match *bounds {
            [start, end, ..] => self.ranks.get(start as usize..end as usize).unwrap_or_default(),
            _ => &[],
        }
    }
}

/// A rank on this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalRank {
    /// Which rank.
    pub rank: Rank,
    /// Its process.
    pub pid: Pid,
    /// Its executable.
    pub exe: OsString,
    /// Whether it is held, runs, or has ended.
    pub state: crate::status::RankState,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn build(hosts: &[&str]) -> Placement {
        let mut builder = PlacementBuilder::new();
        for (host, pid) in hosts.iter().zip(100..) {
            builder.push(host, Pid::new(pid), "/bin/app").unwrap();
        }
        builder.build()
    }

    #[test]
    fn a_host_that_is_no_name_of_one_is_refused_by_the_builder_and_from_the_wire() {
        for name in ["", "-oProxyCommand=x", "$(id)", "me@n1", "n 1", "n1\n"] {
            let refused = PlacementBuilder::new().push(name, None, "");
            assert!(matches!(refused, Err(PlacementError::BadHost(_))), "{name:?}: {refused:?}");
            // As it would travel if the sender did not check.
            let stored = (vec![name], vec![""], vec![(0_u32, None::<i32>, 0_u32)]);
            let bytes = postcard::to_stdvec(&stored).unwrap();
            assert!(postcard::from_bytes::<Placement>(&bytes).is_err(), "{name:?}");
        }
        let good = postcard::to_stdvec(&(vec!["n1"], vec![""], vec![(0_u32, None::<i32>, 0_u32)])).unwrap();
        assert_eq!(postcard::from_bytes::<Placement>(&good).unwrap().host(NodeId(0)), Some("n1"));
    }

    #[test]
    fn ranks_and_nodes_lead_to_each_other() {
        let placement = build(&["n2", "n1", "n2", "n1", "n2"]);
        assert_eq!((placement.rank_count(), placement.node_count()), (5, 2));
        assert_eq!(placement.hosts().collect::<Vec<_>>(), ["n2", "n1"]);
        assert_eq!(placement.exes().collect::<Vec<_>>(), ["/bin/app"]);
        assert_eq!((placement.host(NodeId(1)), placement.host(NodeId(2))), (Some("n1"), None));
        assert_eq!((placement.find_host("n2"), placement.find_host("n")), (Some(NodeId(0)), None));
        let expected =
            RankPlace { rank: Rank(3), node: NodeId(1), host: "n1", pid: Pid::new(103), exe: "/bin/app" };
        assert_eq!(placement.get(Rank(3)), Some(expected));
        assert_eq!(placement.iter().nth(3), Some(expected));
        assert_eq!(placement.get(Rank(5)), None);
        let ranks = [NodeId(0), NodeId(1), NodeId(2), NodeId(u32::MAX)].map(|node| placement.ranks_on(node));
        assert_eq!(ranks.map(|set| set.to_string()), ["0,2,4", "1,3", "", ""]);
    }

    #[test]
    fn hosts_may_come_before_their_ranks_or_have_none() {
        let mut builder = PlacementBuilder::with_capacity(1);
        let nodes = ["n1", "n2", "n1"].map(|host| builder.push_host(host));
        assert_eq!(nodes, [Ok(NodeId(0)), Ok(NodeId(1)), Ok(NodeId(0))]);
        assert_eq!(builder.push("n2", None, ""), Ok(Rank(0)));
        let placement = builder.build();
        assert_eq!((placement.rank_count(), placement.node_count()), (1, 2));
        assert!(placement.ranks_on(NodeId(0)).is_empty());
        let empty = PlacementBuilder::new().build();
        assert_eq!((empty.rank_count(), empty.node_count(), empty.iter().len()), (0, 0, 0));
        assert!(empty.ranks_on(NodeId(0)).is_empty());
    }

    #[test]
    fn later_data_about_a_rank_is_filled_in() {
        let mut placement = build(&["n1", "n1"]);
        placement.set_process(Rank(1), Pid::new(7), "/bin/other").unwrap();
        let place = placement.get(Rank(1)).unwrap();
        assert_eq!((place.host, place.pid, place.exe), ("n1", Pid::new(7), "/bin/other"));
        assert_eq!(placement.get(Rank(0)).unwrap().exe, "/bin/app");
        let error = placement.set_process(Rank(2), None, "").unwrap_err();
        assert_eq!(error.to_string(), "there is no rank 2, the app has 2");
    }

    #[test]
    fn a_million_ranks_take_less_than_24_bytes_each() {
        let count = 1_000_000;
        let hosts: Vec<String> = (0..count / 128).map(|node| format!("n{node:05}")).collect();
        let mut builder = PlacementBuilder::new();
        for (host, pid) in hosts.iter().cycle().zip(1..=count) {
            builder.push(host, Pid::new(pid), "/bin/app").unwrap();
        }
        let placement = builder.build();
        let RanksByNode { ranks, starts } = &placement.by_node;
        let bytes = placement.ranks.capacity() * size_of::<Process>()
            + ranks.capacity() * size_of::<Rank>()
            + starts.capacity() * size_of::<u32>();
        assert_eq!(placement.rank_count(), 1_000_000);
        assert!(bytes < 24 * placement.ranks.len(), "{bytes}");
        let read: Placement = postcard::from_bytes(&postcard::to_stdvec(&placement).unwrap()).unwrap();
        assert_eq!(read, placement);
        assert!(read.ranks.capacity() * size_of::<Process>() < 24 * read.ranks.len());
    }

    #[test]
    fn a_placement_that_contradicts_itself_is_not_read() {
        let check = |ranks: &str, expected: Result<u32, &str>| {
            let json = format!(r#"{{"hosts":["n1"],"exes":["a","b"],"ranks":[{ranks}]}}"#);
            let read = serde_json::from_str::<Placement>(&json).map(|placement| placement.rank_count());
            let read = read.map_err(|error| error.to_string());
            assert_eq!(
                read.as_ref().map_err(String::as_str),
                expected.as_ref().map_err(|&text| text),
                "{ranks}"
            );
        };
        let good = r#"{"node":0,"pid":7,"exe":1}"#;
        check("", Ok(0));
        check(&format!(r#"{good},{{"node":0,"pid":null,"exe":0}}"#), Ok(2));
        let bad = "rank 1 names a host or executable that is not in its placement";
        check(&format!(r#"{good},{{"node":1,"pid":7,"exe":1}}"#), Err(bad));
        check(&format!(r#"{good},{{"node":0,"pid":7,"exe":2}}"#), Err(bad));
        let json = r#"{"hosts":["n1"],"exes":["a"],"ranks":[{"node":0,"pid":0,"exe":0}]}"#;
        assert!(
            serde_json::from_str::<Placement>(json)
                .unwrap_err()
                .to_string()
                .contains("a pid is greater than 0")
        );
    }

    proptest! {
        #[test]
        fn the_index_agrees_with_the_ranks_and_all_reads_back(nodes in prop::collection::vec(0..9, 0..60)) {
            let hosts: Vec<String> = nodes.iter().map(|node| format!("n{node}")).collect();
            let placement = build(&hosts.iter().map(String::as_str).collect::<Vec<_>>());
            for (node, host) in placement.hosts().enumerate() {
                let node = NodeId(u32::try_from(node).unwrap());
                let expected: RankSet = placement.iter().filter(|place| place.host == host).map(|place| place.rank).collect();
                prop_assert_eq!(placement.ranks_on(node), expected);
            }
            prop_assert!(placement.iter().map(|place| place.host).eq(hosts.iter().map(String::as_str)));
            let bytes = postcard::to_stdvec(&placement).unwrap();
            prop_assert_eq!(postcard::from_bytes::<Placement>(&bytes).unwrap(), placement);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _outcome = postcard::from_bytes::<Placement>(&bytes).map(|placement| placement.iter().count());
        }
    }
}
