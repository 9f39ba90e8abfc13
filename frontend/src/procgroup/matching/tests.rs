//! Compares the matcher with a slow, obvious one, and with the examples in the documents.

use proptest::prelude::*;

use super::*;
use crate::info::AppState;
use crate::procgroup::group::GroupFacts;
use crate::procgroup::hosts::parse_hosts;
use crate::procgroup::query::Number;
use crate::procgroup::text::parse_query;

/// A group of processes with these hosts, programs and pids.
fn group(pgid: u32, submitter: &str, processes: &[(&str, &str, u32)]) -> GroupFacts {
    let mut facts = GroupFacts {
        pgid,
        app: "3kx9w0fz".parse().unwrap(),
        submitter: submitter.to_owned(),
        totalprocs: u32::try_from(processes.len()).unwrap(),
        state: AppState::Running,
        wlm: "none".to_owned(),
        sessions: Numbers::new(),
        exit_code: None,
        hosts: Vec::new(),
        execs: Vec::new(),
        runs: Vec::new(),
    };
    for (rank, (host, exec, pid)) in (0..).zip(processes) {
        facts.hosts.push((*host).to_owned());
        facts.execs.push((*exec).to_owned());
        facts.runs.push(Run { rank, count: 1, pid: *pid, host: rank, exec: rank, state: StateName::Running });
    }
    facts
}

/// Groups as in the notebook.
fn notebook() -> Groups {
    let slaves: Vec<(String, &str, u32)> = (64..=73)
        .map(|n| (format!("ccn-{n}"), if n == 64 { "/bin/cpi_master" } else { "/bin/cpi_slave" }, 3000 + n))
        .collect();
    let slaves: Vec<(&str, &str, u32)> =
        slaves.iter().map(|(host, exec, pid)| (host.as_str(), *exec, *pid)).collect();
    let mut groups = Groups::default();
    groups.push(&group(23, "lusk", &[("230", "/bin/mpd", 5554)])).unwrap();
    groups
        .push(&group(244, "desai", &[("ccn-20", "/home/b.out", 9), ("ccn-30", "/home/c.out", 10)]))
        .unwrap();
    groups.push(&group(4521, "lusk", &slaves)).unwrap();
    groups
}

fn pgids(groups: &Groups, query: &str) -> Vec<u32> {
    let found = find(groups, &parse_query(query).unwrap()).found;
    found.iter().map(|found| groups.pgid(found.at).unwrap()).collect()
}

#[test]
fn the_questions_of_the_notebook() {
    let groups = notebook();
    assert_eq!(pgids(&groups, "exec=b.out host=ccn-%d:20-21"), [244]);
    // This needs one process on each of two hosts; no group has that.
    assert_eq!(pgids(&groups, "submitter=lusk host=ccn-70 and host=ccn-230"), [0_u32; 0]);
    assert_eq!(pgids(&groups, "submitter=lusk host=ccn-70 and host=ccn-73 or submitter=desai"), [244, 4521]);
    assert_eq!(pgids(&groups, "submitter=lusk"), [23, 4521]);
    assert_eq!(pgids(&groups, "host=230"), [23]);
    assert_eq!(pgids(&groups, "submitter=*"), [23, 244, 4521]);
}

#[test]
fn conditions_on_one_process_are_not_met_by_two() {
    let groups = notebook();
    assert_eq!(pgids(&groups, "exec=c.out host=ccn-20"), [0_u32; 0]);
    assert_eq!(pgids(&groups, "exec=c.out and host=ccn-20"), [244]);
    assert_eq!(pgids(&groups, "pid=9 rank=1"), [0_u32; 0]);
    assert_eq!(pgids(&groups, "exec=/home/c.out"), [244]);
    assert_eq!(pgids(&groups, "exec=home/c.out"), [0_u32; 0]);
}

#[test]
fn every_fitting_pattern_adds_its_columns() {
    let groups = notebook();
    let query = parse_query("submitter=desai pgid=* or host=ccn-20 pid=* or pgid=1 exec=*").unwrap();
    let [found] = find(&groups, &query).found[..] else { panic!("not one") };
    let names: Vec<_> = found.columns.of_group().map(GroupAttribute::name).collect();
    assert_eq!(names, ["submitter", "pgid"]);
    let names: Vec<_> = found.columns.of_process().map(ProcessAttribute::name).collect();
    assert_eq!(names, ["pid", "host"]);
}

#[test]
fn a_run_costs_as_much_as_one_process() {
    let mut groups = Groups::default();
    for pgid in 1..=100 {
        let mut facts = group(pgid, "u", &[("h", "/e", 1)]);
        facts.hosts = parse_hosts("n%d:1-32").unwrap();
        facts.runs = (0..32)
            .map(|at| Run {
                rank: at * 312,
                count: 312,
                pid: 1000,
                host: at,
                exec: 0,
                state: StateName::Running,
            })
            .collect();
        groups.push(&facts).unwrap();
    }
    // With a million processes, each restriction examines each run at most once.
    let looked_at = |query: &str| find(&groups, &parse_query(query).unwrap()).looked_at;
    assert_eq!(looked_at("host=elsewhere"), 3_200);
    assert_eq!(looked_at("rank=9983"), 3_200);
    assert_eq!(looked_at("host=n1"), 100);
    assert_eq!(looked_at("submitter=stranger host=n1"), 0);
    assert_eq!(looked_at("pgid=7 host=n32 and pid=1311"), 33);
}

/// A process without compression.
#[derive(Debug, Clone)]
struct Plain {
    host: String,
    exec: String,
    pid: u32,
    state: StateName,
}

/// Consecutive processes: pids count up, or none is known.
fn plain_row() -> impl Strategy<Value = Vec<Plain>> {
    let states = prop_oneof![Just(StateName::Running), Just(StateName::Held)];
    ("n[1-4]", "(/bin/)?[ab]", 0..4_u32, states, 1..4_u32).prop_map(|(host, exec, pid, state, count)| {
        let pid_at = |step| if pid == 0 { 0 } else { pid + step };
        let process = |step| Plain { host: host.clone(), exec: exec.clone(), pid: pid_at(step), state };
        (0..count).map(process).collect()
    })
}

fn plain_group() -> impl Strategy<Value = (String, Vec<u32>, Vec<Plain>)> {
    let rows = proptest::collection::vec(plain_row(), 0..4);
    let processes = rows.prop_map(|rows| rows.concat());
    ("[uv]", proptest::collection::vec(1..4_u32, 0..3), processes)
}

fn numbers() -> impl Strategy<Value = Term> {
    proptest::collection::vec(0..6_u32, 1..4)
        .prop_map(|list| Term::Is(Value::Numbers(list.into_iter().map(Number).collect())))
}

fn group_term() -> impl Strategy<Value = (GroupAttribute, Term)> {
    prop_oneof![
        "[uvw]".prop_map(|name| (GroupAttribute::Submitter, Term::Is(Value::Text(name)))),
        numbers().prop_map(|term| (GroupAttribute::Pgid, term)),
        numbers().prop_map(|term| (GroupAttribute::Totalprocs, term)),
        numbers().prop_map(|term| (GroupAttribute::Session, term)),
        Just((GroupAttribute::Wlm, Term::Asked)),
    ]
}

fn process_term() -> impl Strategy<Value = (ProcessAttribute, Term)> {
    let hosts = proptest::collection::vec("n[1-5]", 1..3).prop_map(|hosts| Term::Is(Value::Hosts(hosts)));
    let states = prop_oneof![Just(StateName::Running), Just(StateName::Held), Just(StateName::Lost)];
    prop_oneof![
        hosts.prop_map(|term| (ProcessAttribute::Host, term)),
        "(/bin/)?[abc]".prop_map(|name| (ProcessAttribute::Exec, Term::Is(Value::Text(name)))),
        numbers().prop_map(|term| (ProcessAttribute::Pid, term)),
        numbers().prop_map(|term| (ProcessAttribute::Rank, term)),
        states.prop_map(|state| (ProcessAttribute::State, Term::Is(Value::Process(state)))),
        Just((ProcessAttribute::Pid, Term::Asked)),
    ]
}

/// Keeps one term per attribute, as every parser of queries does.
fn distinct<A: PartialEq + Clone>(terms: Vec<(A, Term)>) -> Vec<(A, Term)> {
    let mut kept: Vec<(A, Term)> = Vec::new();
    for (attribute, term) in terms {
        if kept.iter().all(|(known, _)| *known != attribute) {
            kept.push((attribute, term));
        }
    }
    kept
}

fn query() -> impl Strategy<Value = Query> {
    let restriction = proptest::collection::vec(process_term(), 1..4).prop_map(distinct);
    let pattern = (
        proptest::collection::vec(group_term(), 0..3).prop_map(distinct),
        proptest::collection::vec(restriction, 0..3),
    );
    let pattern =
        pattern.prop_map(|(group, restrictions)| Pattern { group, restrictions, everything: false });
    proptest::collection::vec(pattern, 1..4).prop_map(|patterns| Query { patterns })
}

/// The obvious way: every value in full, every process on its own.
fn obviously_fits(
    pattern: &Pattern,
    pgid: u32,
    (submitter, sessions, processes): &(String, Vec<u32>, Vec<Plain>),
) -> bool {
    let has = |numbers: &Numbers, number: u32| numbers.iter().any(|it| it.0 == number);
    let group = pattern.group.iter().all(|(attribute, term)| match (attribute, term) {
        (_, Term::Asked) => true,
        (GroupAttribute::Submitter, Term::Is(Value::Text(text))) => submitter == text,
        (GroupAttribute::Pgid, Term::Is(Value::Numbers(numbers))) => has(numbers, pgid),
        (GroupAttribute::Totalprocs, Term::Is(Value::Numbers(numbers))) => {
            numbers.iter().any(|number| number.0 as usize == processes.len())
        }
        (GroupAttribute::Session, Term::Is(Value::Numbers(numbers))) => {
            sessions.iter().any(|session| has(numbers, *session))
        }
        other => panic!("{other:?}"),
    });
    group
        && pattern.restrictions.iter().all(|restriction| {
            (0..).zip(processes).any(|(rank, process)| {
                restriction.iter().all(|(attribute, term)| match (attribute, term) {
                    (_, Term::Asked) => true,
                    (ProcessAttribute::Host, Term::Is(Value::Hosts(hosts))) => hosts.contains(&process.host),
                    (ProcessAttribute::Exec, Term::Is(Value::Text(text))) => {
                        process.exec == *text || process.exec == format!("/bin/{text}")
                    }
                    (ProcessAttribute::Pid, Term::Is(Value::Numbers(numbers))) => {
                        process.pid != 0 && has(numbers, process.pid)
                    }
                    (ProcessAttribute::Rank, Term::Is(Value::Numbers(numbers))) => has(numbers, rank),
                    (ProcessAttribute::State, Term::Is(Value::Process(state))) => process.state == *state,
                    other => panic!("{other:?}"),
                })
            })
        })
}

fn facts(pgid: u32, (submitter, sessions, processes): &(String, Vec<u32>, Vec<Plain>)) -> GroupFacts {
    let info = crate::info::AppInfo {
        app: "3kx9w0fz".parse().unwrap(),
        wlm: "none".to_owned(),
        state: AppState::Running,
        attached: false,
        owner: gantry_types::id::Pid::new(1).unwrap(),
        command: Vec::new(),
        job: None,
        ranks: (0..)
            .zip(processes)
            .map(|(rank, process)| crate::event::RankInfo {
                rank: gantry_types::id::Rank(rank),
                host: process.host.clone(),
                pid: gantry_types::id::Pid::new(i32::try_from(process.pid).unwrap()),
                exe: process.exec.clone(),
                state: process.state,
                ending: crate::event::Ending::default(),
            })
            .collect(),
        left_out: Vec::new(),
        daemons: Vec::new(),
        staging: Vec::new(),
        exit: None,
    };
    GroupFacts::of_app(&info, pgid, submitter, sessions.iter().copied().map(Number).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_matcher_finds_what_the_obvious_one_finds(
        plain in proptest::collection::vec(plain_group(), 0..6),
        query in query(),
    ) {
        let mut groups = Groups::default();
        for (pgid, group) in (1..).zip(&plain) {
            groups.push(&facts(pgid, group)).unwrap();
        }
        let found: Vec<u32> = find(&groups, &query).found.iter().filter_map(|found| groups.pgid(found.at)).collect();
        let fits = |pgid: u32, group: &_| query.patterns.iter().any(|pattern| obviously_fits(pattern, pgid, group));
        let expected: Vec<u32> = (1..).zip(&plain).filter(|(pgid, group)| fits(*pgid, group)).map(|(pgid, _)| pgid).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn a_frontends_report_agrees_with_its_processes(plain in plain_group()) {
        let facts = facts(1, &plain);
        let told: GroupFacts = serde_json::from_str(&serde_json::to_string(&facts).unwrap()).unwrap();
        prop_assert_eq!(&told, &facts);
        let mut groups = Groups::default();
        groups.push(&told).unwrap();
        let seen: Vec<_> = groups.processes(0).map(|it| (it.host, it.exec, it.pid.unwrap_or(0), it.state)).collect();
        let expected: Vec<_> = plain.2.iter().map(|it| (it.host.as_str(), it.exec.as_str(), it.pid, it.state)).collect();
        prop_assert_eq!(seen, expected);
    }
}

#[test]
fn facts_that_contradict_themselves_are_refused() {
    let good = group(1, "u", &[("h", "/e", 7)]);
    let mut groups = Groups::default();
    groups.push(&good).unwrap();
    let check = |change: &dyn Fn(&mut Run)| {
        let mut bad = good.clone();
        change(&mut bad.runs[0]);
        Groups::default().push(&bad).unwrap_err()
    };
    assert!(check(&|run| run.host = 1).contains("without a host"));
    assert!(check(&|run| run.count = 0).contains("out of order"));
    assert!(check(&|run| run.count = u32::MAX).contains("beyond all bounds"));
    let mut twice = good.clone();
    twice.runs.push(twice.runs[0]);
    assert!(Groups::default().push(&twice).unwrap_err().contains("out of order"));
}
