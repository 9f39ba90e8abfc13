//! The findings, and their JSON form.

use std::collections::{BTreeMap, BTreeSet};

use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;
use serde::Serialize;

use super::classes::{Class, Step};
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
pub(crate) struct Report {
    ranks: String,
    rank_count: u64,
    samples: u32,
    threads: bool,
    classes: Vec<ClassReport>,
    not_seen: String,
    missing: Vec<MissingReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nameless: Vec<NamelessReport>,
}

#[derive(Debug, Serialize)]
struct ClassReport {
    ranks: String,
    rank_count: u64,
    /// How many samples of these ranks it has.
    sample_count: u64,
    hosts: Vec<String>,
    /// Marks of the ranks themselves, such as `held`.
    states: Vec<String>,
    frames: Vec<FrameReport>,
}

#[derive(Debug, Serialize)]
struct FrameReport {
    function: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lines: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    module: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    waits: bool,
}

/// A node without an answer.
#[derive(Debug, Serialize)]
pub(crate) struct MissingReport {
    host: String,
    why: String,
}

/// A file without the names of all functions.
#[derive(Debug, Serialize)]
pub(crate) struct NamelessReport {
    file: String,
    why: String,
}

impl MissingReport {
    pub(crate) fn of(found: &Findings) -> Vec<Self> {
        let report = |(host, why): &(String, String)| Self { host: host.clone(), why: why.clone() };
        found.missing.iter().map(report).collect()
    }
}

impl NamelessReport {
    pub(crate) fn of(found: &Findings) -> Vec<Self> {
        let report = |(file, why): &(String, String)| Self { file: file.clone(), why: why.clone() };
        found.nameless.iter().map(report).collect()
    }
}

impl Report {
    pub(crate) fn new(found: &Findings) -> Self {
        let seen = found.seen();
        let class = |class: &Class| {
            let hosts: BTreeSet<&String> =
                class.ranks.iter().filter_map(|rank| found.hosts.get(&rank)).collect();
            ClassReport {
                ranks: class.ranks.to_string(),
                rank_count: class.ranks.len(),
                sample_count: class.numbers.len(),
                hosts: hosts.into_iter().cloned().collect(),
                states: class
                    .steps
                    .iter()
                    .filter(|step| step.is_mark)
                    .map(|step| step.name.clone())
                    .collect(),
                frames: class.steps.iter().filter(|step| !step.is_mark).map(FrameReport::new).collect(),
            }
        };
        Self {
            ranks: seen.to_string(),
            rank_count: seen.len(),
            samples: found.samples,
            threads: found.threads,
            classes: found.classes.iter().map(class).collect(),
            not_seen: found.unseen().to_string(),
            missing: MissingReport::of(found),
            nameless: NamelessReport::of(found),
        }
    }
}

impl FrameReport {
    fn new(step: &Step) -> Self {
        Self {
            function: step.name.clone(),
            file: step.file.clone(),
            lines: step.lines.iter().copied().collect(),
            module: step.module.clone(),
            offset: step.offset,
            waits: step.waits,
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
