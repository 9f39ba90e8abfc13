//! What the library is told about a job: its size, who is where, and each rank's numbers. Pure.
//!
//! The keys are those of the PMIx standard. The maps are in the library's `raw` form: the nodes' names, and the ranks of
//! each of these nodes.

use std::collections::HashSet;
use std::ffi::CStr;
use std::net::IpAddr;
use std::path::Path;

use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;

use super::message::Setup;

/// A fact: its key and its value.
pub(super) type Fact = (&'static CStr, Told);

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// True.
    Yes,
    /// A text.
    Text(String),
    /// A number of 16 bits.
    Small(u16),
    /// A number of 32 bits.
    Number(u32),
    /// A rank.
    Rank(u32),
    /// Facts that belong together.
    Group(Vec<Fact>),
}

/// What the library is told when it starts.
pub(super) fn build_server(setup: &Setup) -> Vec<Fact> {
    let directory = Told::Text(setup.directory.to_string_lossy().into_owned());
    let host = setup.hosts.get(setup.node as usize).cloned().unwrap_or_default();
    vec![
        (c"pmix.srvr.tmpdir", directory.clone()),
        (c"pmix.sys.tmpdir", directory),
        (c"pmix.srv.nspace", Told::Text(format!("{}_server", setup.namespace))),
        (c"pmix.srv.rank", Told::Rank(setup.node)),
        (c"pmix.hname", Told::Text(host)),
    ]
}

/// What the library is told about the job.
pub(super) fn build_job(setup: &Setup) -> Vec<Fact> {
    let size: u64 = setup.layout.iter().map(RankSet::len).sum();
    let size = u32::try_from(size).unwrap_or(u32::MAX);
    let used: Vec<(&String, &RankSet)> =
        setup.hosts.iter().zip(&setup.layout).filter(|(_, ranks)| !ranks.is_empty()).collect();
    let hosts: Vec<&str> = used.iter().map(|(host, _)| host.as_str()).collect();
    let ranks: Vec<String> = used.iter().map(|(_, ranks)| list(ranks)).collect();
    let top = setup.directory.to_string_lossy().into_owned();
    let mut facts = vec![
        (c"pmix.job.size", Told::Number(size)),
        (c"pmix.max.size", Told::Number(size)),
        (c"pmix.univ.size", Told::Number(size)),
        (c"pmix.num.nodes", Told::Number(count(used.len()))),
        (c"pmix.job.napps", Told::Number(count(setup.parts.len()))),
        (c"pmix.jobid", Told::Text(setup.namespace.clone())),
        (c"pmix.nmap", Told::Text(format!("raw:{}", hosts.join(",")))),
        (c"pmix.pmap", Told::Text(format!("raw:{}", ranks.join(";")))),
        (c"pmix.tmpdir", Told::Text(top.clone())),
        (c"pmix.nsdir", Told::Text(find_job_directory(&top))),
        (c"pmix.tdir.rmclean", Told::Yes),
    ];
    facts.extend((0..).zip(&setup.parts).map(|(number, ranks)| build_part(number, ranks)));
    let mut places = vec![(0, 0); size as usize];
    for (part, ranks) in (0..).zip(&setup.parts) {
        for (number, rank) in (0..).zip(ranks.iter()) {
            if let Some(place) = places.get_mut(rank.index()) {
                *place = (part, number);
            }
        }
    }
    for (node, ranks) in (0..).zip(&setup.layout) {
        for (local, rank) in (0..).zip(ranks.iter()) {
            let of_part = places.get(rank.index()).copied().unwrap_or_default();
            facts.push(build_rank(setup, &top, (rank, node, local), of_part));
        }
    }
    facts
}

/// The directory of the job's own files.
pub(super) fn find_job_directory(top: &str) -> String {
    Path::new(top).join("job").to_string_lossy().into_owned()
}

/// The directory of a rank's own files.
pub(super) fn find_rank_directory(top: &str, rank: Rank) -> String {
    Path::new(&find_job_directory(top)).join(rank.to_string()).to_string_lossy().into_owned()
}

/// One of the job's programs.
fn build_part(number: u32, ranks: &RankSet) -> Fact {
    let first = ranks.iter().next().unwrap_or(Rank(0));
    let facts = vec![
        (c"pmix.appnum", Told::Number(number)),
        (c"pmix.app.size", Told::Number(u32::try_from(ranks.len()).unwrap_or(u32::MAX))),
        (c"pmix.aldr", Told::Rank(first.0)),
    ];
    (c"pmix.app.arr", Told::Group(facts))
}

/// One rank: its place, its program, and its number among the ranks of that. The library wants the rank first.
fn build_rank(
    setup: &Setup,
    top: &str,
    (rank, node, local): (Rank, u32, u16),
    (part, in_part): (u32, u32),
) -> Fact {
    let host = setup.hosts.get(node as usize).cloned().unwrap_or_default();
    let mut facts = vec![
        (c"pmix.rank", Told::Rank(rank.0)),
        (c"pmix.grank", Told::Rank(rank.0)),
        (c"pmix.apprank", Told::Rank(in_part)),
        (c"pmix.appnum", Told::Number(part)),
        (c"pmix.lrank", Told::Small(local)),
        (c"pmix.nrank", Told::Small(local)),
        (c"pmix.nodeid", Told::Number(node)),
        (c"pmix.hname", Told::Text(host)),
    ];
    if node == setup.node {
        facts.push((c"pmix.pdir", Told::Text(find_rank_directory(top, rank))));
    }
    (c"pmix.pdata", Told::Group(facts))
}

/// All ranks, with commas between.
fn list(ranks: &RankSet) -> String {
    ranks.iter().map(|rank| rank.to_string()).collect::<Vec<_>>().join(",")
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Names of nodes of which no two are the same, also where only what is before the first dot counts: a machine may play
/// several nodes.
pub(super) fn name_apart(hosts: &[String]) -> Vec<String> {
    let short = |host: &str| host.split('.').next().unwrap_or_default().to_owned();
    let mut seen = HashSet::new();
    if hosts.iter().all(|host| seen.insert(short(host))) || hosts.iter().all(|host| is_address(host)) {
        return hosts.to_vec();
    }
    let plain = hosts.iter().map(|host| host.replace('.', "-"));
    let mut seen = HashSet::new();
    let unique = plain.zip(0_u32..).map(|(host, number)| match seen.insert(host.clone()) {
        true => host,
        false => format!("{host}-{number}"),
    });
    unique.collect()
}

/// Whether it is an address: nothing of that is left out.
fn is_address(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(hosts: &[&str], layout: &[&str], parts: &[&str]) -> Setup {
        let sets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        Setup {
            libraries: Vec::new(),
            namespace: "gantry_x".to_owned(),
            node: 1,
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            layout: sets(layout),
            parts: sets(parts),
            directory: "/t".into(),
        }
    }

    fn find(facts: &[Fact], key: &CStr) -> Vec<Told> {
        facts.iter().filter(|(it, _)| *it == key).map(|(_, told)| told.clone()).collect()
    }

    #[test]
    fn nodes_without_ranks_are_in_no_map() {
        let facts = build_job(&setup(&["a", "b", "c"], &["0,2", "", "1,3"], &["0-3"]));
        assert_eq!(find(&facts, c"pmix.nmap"), [Told::Text("raw:a,c".to_owned())]);
        assert_eq!(find(&facts, c"pmix.pmap"), [Told::Text("raw:0,2;1,3".to_owned())]);
        assert_eq!(find(&facts, c"pmix.num.nodes"), [Told::Number(2)]);
        assert_eq!(find(&facts, c"pmix.job.size"), [Told::Number(4)]);
    }

    #[test]
    fn every_rank_has_its_numbers() {
        let facts = build_job(&setup(&["a", "b"], &["0,1", "2-4"], &["0-1", "2-4"]));
        let ranks = find(&facts, c"pmix.pdata");
        assert_eq!(ranks.len(), 5);
        let Some(Told::Group(last)) = ranks.last() else { panic!("{ranks:?}") };
        assert_eq!(last[0], (c"pmix.rank", Told::Rank(4)));
        let expected = [
            (c"pmix.apprank", Told::Rank(2)),
            (c"pmix.appnum", Told::Number(1)),
            (c"pmix.lrank", Told::Small(2)),
            (c"pmix.nodeid", Told::Number(1)),
            (c"pmix.hname", Told::Text("b".to_owned())),
            (c"pmix.pdir", Told::Text("/t/job/4".to_owned())),
        ];
        expected.iter().for_each(|fact| assert!(last.contains(fact), "{fact:?} is not in {last:?}"));
        assert_eq!(find(&facts, c"pmix.app.arr").len(), 2);
    }

    #[test]
    fn nodes_of_one_machine_get_names_of_their_own() {
        let check = |hosts: &[&str], expected: &[&str]| {
            let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
            assert_eq!(name_apart(&hosts), expected);
        };
        check(&["a.x", "b.x"], &["a.x", "b.x"]);
        check(&["a.0", "a.1"], &["a-0", "a-1"]);
        check(&["a", "a", "b.x"], &["a", "a-1", "b-x"]);
        check(&["10.0.0.1", "10.0.0.2"], &["10.0.0.1", "10.0.0.2"]);
    }
}
