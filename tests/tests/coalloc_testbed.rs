//! Co-allocated jobs over three managers at once on a testbed: a real Slurm, hosts over ssh, and the login node.

use std::time::{Duration, Instant};

use gantry_tests::co_allocated::{begin, part};
use gantry_tests::slurm::on_cluster;
use gantry_tests::testbed::Config;
use gantry_tests::{Run, SOON, becomes_true, binaries};

/// The same subjob on each of three managers: two ranks on two Slurm nodes, two on two hosts over ssh, one here.
fn three(steps: &str) -> [String; 3] {
    [
        part("slurm", "slurm", steps, "(count=2)(hostCount=2)"),
        part("ssh", "ssh://n003,n004", steps, "(count=2)(hostCount=2)"),
        part("here", "localhost", steps, ""),
    ]
}

/// Waits until the subjobs have reached these states, in any order.
#[track_caller]
fn reach(run: &mut Run, states: &[&str]) {
    for state in states {
        run.stderr_line(state, SOON);
    }
}

const CHECKED_IN: [&str; 3] =
    ["slurm on slurm: checked in", "ssh on ssh: checked in", "here on localhost: checked in"];

const RELEASED: [&str; 3] =
    ["slurm on slurm: released", "ssh on ssh: released", "here on localhost: released"];

#[test]
fn three_managers_are_held_at_one_barrier_and_their_processes_find_each_other() {
    on_cluster(Config::with_nodes(4), |cluster| {
        let mut run = begin(cluster, &three("barrier bootstrap ring:5 big:300000 order"));
        reach(&mut run, &CHECKED_IN);
        assert_eq!(cluster.find("barrier bootstrap ring:5 big:300000 order").len(), 4, "one on each node");
        run.write(b"C\n");
        let done = run.wait(SOON);
        assert_eq!(done.code(), 0, "{done:?}");
    });
}

#[test]
fn what_is_much_goes_between_three_managers_though_nodes_refuse_each_other() {
    on_cluster(Config::with_nodes(4), |cluster| {
        let job = format!("+{}", three("barrier flow:120:20000").concat());
        for host in cluster.bed.nodes() {
            if let Err(why) = host.refuse_connections(&[22]) {
                return gantry_tests::record_skip(&format!("no firewall: {why}"));
            }
        }
        let done = cluster.gantry(["coalloc", &job]).wait(2 * SOON);
        cluster.bed.nodes().iter().for_each(|host| host.accept_connections().expect("no firewall any more"));
        assert_eq!(done.code(), 0, "{done:?}");
    });
}

#[test]
fn one_of_three_managers_fails_under_each_start_type() {
    on_cluster(Config::with_nodes(4), |cluster| {
        for (start, ends_all) in [("strict-barrier", true), ("loose-barrier", false), ("no-barrier", false)] {
            let mut parts = three("barrier ring:1");
            let more =
                format!("(count=2)(hostCount=2)(subjobStartType={start})(subjobCommsType=independent)");
            parts[0] = part("slurm", "slurm", "exit-of-rank:1 barrier", &more);
            let done = cluster.gantry(["coalloc", &format!("+{}", parts.concat())]).wait(SOON);
            let said = done.stderr.join("\n");
            match ends_all {
                true => {
                    assert_eq!(done.code(), 68, "{start}: {said}");
                    assert!(said.contains("the job was killed: subjob slurm failed"), "{said}");
                    assert!(!said.contains("subjob here on localhost: released"), "{said}");
                }
                false => {
                    assert!(said.contains("subjob here on localhost: done"), "{start}: {said}");
                    assert!(said.contains("subjob ssh on ssh: done"), "{start}: {said}");
                }
            }
        }
    });
}

#[test]
fn one_manager_is_taken_out_and_another_comes_before_the_release() {
    on_cluster(Config::with_nodes(4), |cluster| {
        let steps = "barrier bootstrap ring:3";
        let mut run = begin(cluster, &three(steps));
        reach(&mut run, &CHECKED_IN);
        let added = part("more", "ssh://n001,n003", steps, "(count=2)(hostCount=2)");
        run.write(format!("Dssh\nA{}\n", &added[1..added.len() - 1]).as_bytes());
        reach(&mut run, &["more on ssh: checked in"]);
        run.write(b"C\n");
        let done = run.wait(SOON);
        assert_eq!(done.code(), 0, "{done:?}");
    });
}

#[test]
fn a_job_is_cancelled_in_each_state() {
    on_cluster(Config::with_nodes(4), |cluster| {
        // Before the barrier, at the barrier, and after the barrier.
        for (steps, states) in [
            ("wait barrier", ["slurm on slurm: active", "ssh on ssh: active", "here on localhost: active"]),
            ("barrier wait", CHECKED_IN),
            ("barrier wait", RELEASED),
        ] {
            let mut run = begin(cluster, &three(steps));
            if states[0].ends_with("released") {
                reach(&mut run, &CHECKED_IN);
                run.write(b"C\n");
            }
            reach(&mut run, &states);
            run.write(b"K\n");
            assert_eq!(run.wait(SOON).code(), 68, "{states:?}");
            let gone = becomes_true(SOON, || cluster.find(steps).is_empty());
            assert!(gone, "{states:?}: {:?}", cluster.find(steps));
        }
    });
}

#[test]
fn a_manager_that_never_starts_its_part_stops_nobody_for_ever() {
    on_cluster(Config::with_nodes(2), |cluster| {
        // Slurm accepts the job and never starts it.
        let set = |state: &str| {
            let mut scontrol = cluster.bed.login().root_command("scontrol").expect("the login node");
            scontrol.args(["update", "nodename=n001,n002", "reason=test", &format!("state={state}")]);
            assert!(cluster.world.spawn(scontrol).wait(SOON).status.success());
        };
        set("drain");
        let parts = |steps| {
            [part("never", "slurm", steps, "(count=2)(hostCount=2)"), part("here", "localhost", steps, "")]
        };
        let mut run = begin(cluster, &parts("barrier wait"));
        reach(&mut run, &["here on localhost: checked in"]);
        run.write(b"K\n");
        assert_eq!(run.wait(SOON).code(), 68);
        // The timeout for the queue also ends the job.
        let command = |option: &str| {
            [
                "coalloc".to_owned(),
                option.to_owned(),
                "3".to_owned(),
                format!("+{}", parts("barrier").concat()),
            ]
        };
        let done = cluster.gantry(command("--queue-timeout")).wait(SOON);
        assert_ne!(done.code(), 0, "{done:?}");
        let said = done.stderr.join("\n");
        assert!(!said.contains("subjob never on slurm: active"), "{said}");
        assert!(said.contains("subjob never on slurm: failed: no answer within 3"), "{said}");
        assert!(said.contains("waiting in the queue"), "{said}");
        // Time in the queue does not count towards the launch timeout.
        let mut run = cluster.gantry(command("--timeout"));
        let queued = || cluster.said("squeue", ["--me", "--noheader", "--format=%T"]);
        assert!(becomes_true(SOON, || queued() == "PENDING\n"), "{}", queued());
        let begun = Instant::now();
        assert!(becomes_true(SOON, || begun.elapsed() > Duration::from_secs(5)));
        set("resume");
        reach(&mut run, &["never on slurm: active"]);
        assert_eq!(run.wait(SOON).code(), 0);
    });
}

#[test]
fn when_the_control_side_is_killed_everything_ends_everywhere() {
    on_cluster(Config::with_nodes(4), |cluster| {
        for released in [false, true] {
            let mut run = begin(cluster, &three("barrier wait"));
            reach(&mut run, &CHECKED_IN);
            if released {
                run.write(b"C\n");
                reach(&mut run, &RELEASED);
            }
            assert_eq!(cluster.find("barrier wait").len(), 4, "one on each node");
            run.kill();
            let gone = becomes_true(2 * SOON, || cluster.find("barrier wait").is_empty());
            assert!(gone, "{:?}", cluster.find("barrier wait"));
        }
    });
}

#[test]
fn the_example_of_the_document_runs_with_real_programs() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let folder = cluster.world.work_dir().to_owned();
        let contacts = folder.join("contacts");
        std::fs::write(&contacts, "RM1 slurm\nRM2 localhost\n").expect("contacts");
        // The programs of the document, in a folder that every node can access. Without arguments they pass the
        // barrier and find each other.
        let probe = binaries().dir.join("job_probe");
        let names = ["myprog.sparc", "myprog.rs6000"].map(|name| probe.with_file_name(name));
        for name in &names {
            drop(std::fs::remove_file(name));
            std::os::unix::fs::symlink(&probe, name).expect("a link");
        }
        let spec = "+(&(resourceManagerContact=RM1)(count=3)(executable=myprog.sparc))\n(&(resourceManagerContact=RM2)(count=2)(executable=myprog.rs6000))";
        let spec = names.iter().fold(spec.to_owned(), |spec, path| {
            let name = path.file_name().and_then(std::ffi::OsStr::to_str).expect("a name");
            spec.replace(
                &format!("executable={name}"),
                &format!("directory=/)(executable=\"{}\"", path.display()),
            )
        });
        let contacts = contacts.display().to_string();
        let done = cluster
            .run(&binaries().gantry, ["coalloc", "-s", &spec], &[("GANTRY_CONTACTS", &contacts)])
            .wait(SOON);
        names.iter().for_each(|name| drop(std::fs::remove_file(name)));
        assert_eq!((done.code(), done.stderr.as_slice()), (0, [].as_slice()), "{done:?}");
    });
}
