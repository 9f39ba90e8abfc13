//! The findings, and their JSON form.

use std::collections::{BTreeMap, BTreeSet};

use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;
use serde::Serialize;

use super::classes::{Class, Step, marks};
use super::sets::unite;

/// The classes of an app's ranks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Findings {
    /// How often each rank was read.
    pub(crate) samples: u32,
    /// Whether all threads were read.
    pub(crate) threads: bool,
    /// The requested ranks and their hosts.
    pub(crate) hosts: BTreeMap<Rank, String>,
    /// The programs that ranks run.
    pub(crate) programs: BTreeSet<String>,
    pub(crate) classes: Vec<Class>,
    /// Nodes without an answer, and why.
    pub(crate) missing: Vec<(String, String)>,
    /// Files without the names of all functions, and why.
    pub(crate) nameless: Vec<(String, String)>,
}

impl Findings {
    /// The ranks in all classes.
    pub(crate) fn seen(&self) -> RankSet {
        unite(self.classes.iter().map(|class| &class.ranks))
    }

    /// The ranks in no class.
    pub(crate) fn unseen(&self) -> RankSet {
        let all: RankSet = self.hosts.keys().copied().collect();
        all.difference(&self.seen())
    }

    /// Whether there is more than one host.
    pub(crate) fn is_spread(&self) -> bool {
        let mut hosts = self.hosts.values();
        let first = hosts.next();
        hosts.any(|host| Some(host) != first)
    }
}

/// The object of `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct Report<'f> {
    ranks: String,
    rank_count: u64,
    samples: u32,
    threads: bool,
    classes: Vec<ClassReport<'f>>,
    #[serde(flatten)]
    gaps: Gaps<'f>,
}

#[derive(Debug, Serialize)]
struct ClassReport<'f> {
    ranks: String,
    rank_count: u64,
    /// How many samples of these ranks it has.
    sample_count: u64,
    hosts: BTreeSet<&'f str>,
    /// Marks of the ranks themselves, such as `held`.
    states: Vec<&'f str>,
    frames: Vec<&'f Step>,
}

/// What the findings lack.
#[derive(Debug, Serialize)]
pub(crate) struct Gaps<'f> {
    pub(crate) not_seen: String,
    missing: Vec<NodeGap<'f>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nameless: Vec<FileGap<'f>>,
}

/// A node without an answer.
#[derive(Debug, Serialize)]
struct NodeGap<'f> {
    host: &'f str,
    why: &'f str,
}

/// A file without the names of all functions.
#[derive(Debug, Serialize)]
struct FileGap<'f> {
    file: &'f str,
    why: &'f str,
}

impl<'f> Gaps<'f> {
    pub(crate) fn of(found: &'f Findings) -> Self {
        Self {
            not_seen: found.unseen().to_string(),
            missing: found.missing.iter().map(|(host, why)| NodeGap { host, why }).collect(),
            nameless: found.nameless.iter().map(|(file, why)| FileGap { file, why }).collect(),
        }
    }
}

impl<'f> Report<'f> {
    pub(crate) fn new(found: &'f Findings) -> Self {
        let seen = found.seen();
        let class = |class: &'f Class| ClassReport {
            ranks: class.ranks.to_string(),
            rank_count: class.ranks.len(),
            sample_count: class.numbers.len(),
            hosts: class.ranks.iter().filter_map(|rank| Some(found.hosts.get(&rank)?.as_str())).collect(),
            states: marks(&class.steps).collect(),
            frames: class.steps.iter().filter(|step| !step.is_mark).collect(),
        };
        Self {
            ranks: seen.to_string(),
            rank_count: seen.len(),
            samples: found.samples,
            threads: found.threads,
            classes: found.classes.iter().map(class).collect(),
            gaps: Gaps::of(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::classes::tests::class;
    use super::*;

    #[test]
    fn programs_get_the_whole_of_it() {
        let found = Findings {
            samples: 1,
            hosts: [(Rank(0), "n1".to_owned()), (Rank(1), "n2".to_owned())].into(),
            classes: vec![class(&[("main", 9), ("MPI_Wait", 0)], "0")],
            missing: vec![("n2".to_owned(), "it is lost".to_owned())],
            nameless: vec![("/opt/app".to_owned(), "has changed".to_owned())],
            ..Findings::default()
        };
        let json = serde_json::to_value(Report::new(&found)).unwrap();
        assert_eq!(json["classes"][0]["ranks"], "0");
        assert_eq!(json["classes"][0]["hosts"][0], "n1");
        assert_eq!(json["classes"][0]["frames"][0]["lines"][0], 9);
        assert_eq!(json["classes"][0]["frames"][1]["waits"], true);
        assert_eq!(json["not_seen"], "1");
        assert_eq!(json["missing"][0]["host"], "n2");
        assert_eq!(json["nameless"][0]["file"], "/opt/app");
    }
}
