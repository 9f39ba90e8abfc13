//! Process groups on a real Slurm: mixed programs on repeated hosts, found by host, program and submitter, signalled
//! and killed.

#![expect(clippy::unwrap_used, reason = "a test that finds something else fails")]

use std::fs;

use gantry_frontend::procgroup::xml::{Element, parse_document};
use gantry_tests::slurm::{Cluster, on_cluster};
use gantry_tests::ssh::{home_file, read_home};
use gantry_tests::testbed::Config;
use gantry_tests::testbed::config::HOME;
use gantry_tests::{SOON, becomes_true, programs};

fn ask(cluster: &Cluster, message: &str) -> Element {
    let mut run = cluster.gantry(["pm"]);
    run.write(message.as_bytes());
    run.close_stdin();
    let done = run.wait(2 * SOON);
    assert_eq!(done.code(), 0, "{done:?}");
    parse_document(done.stdout.join("\n").as_bytes()).unwrap()
}

fn show(element: &Element) -> String {
    let pairs = element.attributes.iter().map(|(name, value)| format!("{name}={value}"));
    pairs.collect::<Vec<_>>().join(" ")
}

fn pgids(answer: &Element) -> Vec<&str> {
    answer.all("process-group").filter_map(|group| group.attribute("pgid")).collect()
}

#[test]
fn groups_on_several_nodes_are_created_found_signalled_and_killed() {
    on_cluster(Config::with_nodes(3), |cluster| {
        let (log, reporter) = (cluster.world.work_dir().join("log"), programs::get("report_signal"));
        let one = format!(
            "<create-process-group submitter='desai' totalprocs='4' output='{}'>
              <process-spec exec='/bin/sleep' cwd='/' range='1'> <arg idx='1' val='1000'/> </process-spec>
              <process-spec exec='{}' cwd='/' range='2-4'/>
              <host-spec> n%d:002-003 n002 n002 </host-spec>
            </create-process-group>",
            log.display(),
            reporter.display(),
        );
        let created = ask(cluster, &one);
        assert_eq!(show(&created), "pgid=1", "{}", cluster.bed.last_log_lines());
        let two = "<create-process-group submitter='lusk' totalprocs='2'>
              <process-spec exec='/bin/sleep' cwd='/'> <arg idx='1' val='1000'/> </process-spec>
              <hostspec name='n%d:001,001'/>
            </create-process-group>";
        assert_eq!(show(&ask(cluster, two)), "pgid=2", "{}", cluster.bed.last_log_lines());

        let query = "<get-process-group>
              <process-group submitter='*' totalprocs='*'>
                <process-group-restriction exec='report_signal' host='n%d:001-002'/>
                <process-group-restriction rank='*' host='n003'/>
              </process-group>
            </get-process-group>";
        let answer = ask(cluster, query);
        let [group] = &answer.children[..] else { panic!("{answer:?}") };
        assert_eq!(show(group), "submitter=desai totalprocs=4");
        let ranks: Vec<String> = group.all("process").map(show).collect();
        let line = |host: &str, rank: u32| format!("exec={} host={host} rank={rank}", reporter.display());
        assert!(ranks[0].ends_with("sleep host=n002 rank=0"), "{ranks:?}");
        assert_eq!(ranks[1..], [line("n003", 1), line("n002", 2), line("n002", 3)]);
        let by = |restriction: &str| {
            let text =
                format!("<get-process-group><process-group pgid='*' {restriction}</get-process-group>");
            pgids(&ask(cluster, &text)).join(",")
        };
        assert_eq!(by("><process-group-restriction host='n001'/></process-group>"), "2");
        assert_eq!(by("><process-group-restriction exec='sleep'/></process-group>"), "1,2");
        assert_eq!(by("submitter='lusk'/>"), "2");

        let lines = |line: &str| {
            fs::read_to_string(&log).unwrap_or_default().lines().filter(|it| *it == line).count()
        };
        assert!(becomes_true(SOON, || lines("ready") == 3), "{:?}", fs::read_to_string(&log));
        let hit = "<signal-process-group signal='CONT'><process-group pgid='*'><process-group-restriction host='n003'/></process-group></signal-process-group>";
        assert_eq!(pgids(&ask(cluster, hit)), ["1"]);
        assert!(becomes_true(SOON, || lines("got SIGCONT") >= 3), "{:?}", fs::read_to_string(&log));
        let kill = "<kill-process-group><process-group submitter='*' pgid='*'/></kill-process-group>";
        assert_eq!(pgids(&ask(cluster, kill)), ["1", "2"]);
        assert!(cluster.find("sleep 1000").is_empty());
        let forgotten = ask(cluster, "<del-process-group-info pgid='1-2'/>");
        assert_eq!(pgids(&forgotten), ["1", "2"]);
    });
}

#[test]
fn processes_of_one_step_have_directories_and_variables_of_their_own() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let log = cluster.world.work_dir().join("log");
        let script = r#"echo "$GANTRY_TEST_WORD in $PWD""#;
        let spec = |range: &str, cwd: &str, word: &str| {
            format!(
                "<process-spec exec='/bin/sh' cwd='{cwd}' range='{range}'><arg idx='1' val='-c'/><arg idx='2' val='{}'/><env name='GANTRY_TEST_WORD' val='{word}'/></process-spec>",
                script.replace('"', "&quot;"),
            )
        };
        let create = format!(
            "<create-process-group totalprocs='3' output='{}'>{}{}<host-spec>n%d:001-002 n002</host-spec></create-process-group>",
            log.display(),
            spec("1", "/usr", "one"),
            spec("2-3", "/var", "two"),
        );
        assert_eq!(show(&ask(cluster, &create)), "pgid=1", "{}", cluster.bed.last_log_lines());
        let ended =
            ask(cluster, "<wait-process-group><process-group pgid='1' exit-code='*'/></wait-process-group>");
        let mut lines: Vec<String> = fs::read_to_string(&log).unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        assert_eq!(lines, ["one in /usr", "two in /var", "two in /var"], "{ended:?}");
        assert_eq!(pgids(&ask(cluster, "<del-process-group-info pgid='1'/>")), ["1"]);
        let nowhere = create.replace("/var", "/no/such/place");
        let refused = ask(cluster, &nowhere);
        let reason = refused.attribute("reason").unwrap_or_default().to_owned();
        assert!(reason.contains("/no/such/place"), "{refused:?}");
    });
}

#[test]
fn a_co_process_runs_on_the_nodes_of_its_processes_before_they_do() {
    on_cluster(Config::with_nodes(2), |cluster| {
        // All hosts share the user's home.
        let _files = [home_file(cluster, "ran", ""), home_file(cluster, "beside", "")];
        let (ran, beside) = (format!("{HOME}/ran"), format!("{HOME}/beside"));
        // The start of the daemon and of a rank, in hundredths of a second since boot. Both run on one machine, so
        // the times can be compared.
        let script = format!(
            "#!/bin/sh\nread -r stat </proc/$$/stat; set -- $stat; echo $(hostname) ${{22}} >>'{beside}'\n"
        );
        let daemon = cluster.world.executable("daemon", script.as_bytes());
        let create = format!(
            "<create-process-group totalprocs='2'>
              <process-spec exec='/bin/sh' cwd='/' range='1'><arg idx='1' val='-c'/><arg idx='2' val='read -r up rest &lt;/proc/uptime; echo $up | tr -d . &gt;{ran}'/></process-spec>
              <process-spec exec='/bin/sleep' cwd='/' range='2' co-process='{}'><arg idx='1' val='0'/></process-spec>
              <host-spec>n%d:001-002</host-spec>
            </create-process-group>",
            daemon.display(),
        );
        assert_eq!(show(&ask(cluster, &create)), "pgid=1", "{}", cluster.bed.last_log_lines());
        ask(cluster, "<wait-process-group><process-group pgid='1'/></wait-process-group>");
        let (beside, ran) = (read_home(cluster, "beside"), read_home(cluster, "ran"));
        let (node, started) = beside.trim().split_once(' ').expect("a node and a time");
        let hundredths = |text: &str| text.trim().parse::<u64>().unwrap_or_else(|_| panic!("{beside} {ran}"));
        assert_eq!(node, "n002");
        assert!(hundredths(started) <= hundredths(&ran), "{beside} {ran}");
        assert_eq!(pgids(&ask(cluster, "<del-process-group-info pgid='1'/>")), ["1"]);
    });
}
