//! One MPI world of the parts of a co-allocated job: real MPICH under Slurm, over ssh and on this machine at once, held together, let go together; how such a world ends; and what
//! cannot be part of one. PBS is in `coalloc_pbs`.

use std::path::Path;

use gantry_tests::co_allocated::into_files;
use gantry_tests::launchers::{MPICH_4, MPICH_5, OPEN_MPI_4};
use gantry_tests::slurm::{Cluster, on_cluster};
use gantry_tests::testbed::Config;
use gantry_tests::{Run, SOON, becomes_true, binaries, eventually, in_a_world, proc, require, tool};
use nix::sys::signal::Signal;
use serde_json::Value;

/// A part whose ranks are in the job's world.
fn part(label: &str, contact: &str, program: &str, arguments: &str, more: &str) -> String {
    format!(
        "(&(resourceManagerContact=\"{contact}\")(label={label})(jobType=mpi)(directory=/)(executable=\"{program}\")(arguments={arguments}){more})"
    )
}

/// Ranks 0 and 1 on two nodes of Slurm's, 2 and 3 on two hosts over ssh, 4 here.
fn three(program: &str, arguments: &str) -> String {
    let parts = [
        part("slurm", "slurm", program, arguments, "(count=2)(hostCount=2)"),
        part("ssh", "ssh://n003,n004", program, arguments, "(count=2)(hostCount=2)"),
        part("here", "localhost", program, arguments, ""),
    ];
    format!("+{}", parts.concat())
}

/// What they have printed there.
fn read_files(folder: &Path) -> Vec<String> {
    let files = (0..).map_while(|number| std::fs::read_to_string(folder.join(format!("out{number}"))).ok());
    sorted(files.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect())
}

/// So many ranks on this machine, in parts of these sizes.
fn here(sizes: &[u32], program: &str, arguments: &str, more: &str) -> String {
    let parts = sizes
        .iter()
        .zip(["a", "b", "c"])
        .map(|(size, label)| part(label, "localhost", program, arguments, &format!("(count={size}){more}")));
    format!("+{}", parts.collect::<String>())
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort_unstable();
    lines
}

/// What ranks of those parts print when these come out right.
fn right(parts: &[u32], which: &[&str]) -> Vec<String> {
    let programs = parts.iter().zip(0..).flat_map(|(size, part)| (0..*size).map(move |_| part));
    let programs: Vec<i32> = programs.collect();
    let size = programs.len();
    let ranks = programs.iter().enumerate();
    sorted(
        ranks
            .flat_map(|(rank, part)| {
                which.iter().map(move |it| format!("rank {rank} of {size}, program {part}: {it} right"))
            })
            .collect(),
    )
}

#[track_caller]
fn reach(run: &mut Run, states: &[&str]) {
    for state in states {
        run.stderr_line(state, SOON);
    }
}

const CHECKED_IN: [&str; 3] =
    ["slurm on slurm: checked in", "ssh on ssh: checked in", "here on localhost: checked in"];

/// The apps of the user, as `gantry ps` has them.
fn apps(cluster: &Cluster) -> Vec<Value> {
    let done = cluster.gantry(["ps", "--json"]).wait(SOON);
    serde_json::from_str(&done.stdout.concat()).expect("JSON")
}

#[test]
fn three_managers_are_one_world_that_is_held_looked_at_and_let_go() {
    let mpich = require!(MPICH_4.install());
    let program = require!(mpich.program("mpi_work"));
    on_cluster(Config::with_nodes(4), move |cluster| {
        let folder = cluster.world.work_dir().to_owned();
        let job = into_files(&three(&program, "ring 5 allreduce 3 stencil 40"), &folder);
        let mut run = cluster.gantry(["coalloc", "-i", &job]);
        reach(&mut run, &CHECKED_IN);
        let apps = apps(cluster);
        assert_eq!(apps.len(), 3, "{apps:?}");
        for app in &apps {
            let id = app["app"].as_str().expect("an id");
            let looked = cluster.gantry(["stack", id]).wait(2 * SOON);
            let text = looked.stdout.join("\n");
            assert!(looked.code() == 0 && text.contains("(held)"), "{looked:?}");
        }
        run.write(b"C\n");
        let done = run.wait(3 * SOON);
        assert_eq!(
            (done.code(), read_files(&folder)),
            (0, right(&[2, 2, 1], &["ring", "allreduce", "stencil"])),
            "{done:?}"
        );
    });
}

#[test]
fn a_part_that_dies_is_named_and_ends_the_others_whichever_it_is() {
    let mpich = require!(MPICH_4.install());
    let program = require!(mpich.program("mpi_work"));
    on_cluster(Config::with_nodes(4), move |cluster| {
        for (label, rank) in [("slurm", 1), ("ssh", 3), ("here", 4)] {
            let folder = cluster.world.work_dir();
            (0..3).for_each(|part| drop(std::fs::remove_file(folder.join(format!("out{part}")))));
            let mut run = cluster.gantry(["coalloc", &into_files(&three(&program, "ring 1 wait"), &folder)]);
            // After MPI_Init: a rank that is killed within it leaves UCX's file in /dev/shm.
            let waiting = || read_files(&folder).iter().filter(|line| line.ends_with(" waits")).count();
            eventually(2 * SOON, "all ranks wait", || waiting() == 5);
            let find = || {
                let there = cluster.find("mpi_work ring 1 wait").into_iter().map(|(_, process)| process.pid);
                let here = cluster.bed.login().user_processes().into_iter().map(|process| process.pid);
                let mut all = there.chain(here);
                let number = rank.to_string();
                let is_meant = |pid: &i32| proc::variable(*pid, "PMI_RANK").as_ref() == Some(&number);
                all.find(|pid| is_meant(pid) && proc::state(*pid) != Some('T'))
            };
            assert!(becomes_true(SOON, || find().is_some()), "it runs");
            let pid = find().expect("a process");
            proc::send(pid, Signal::SIGKILL);
            let done = run.wait(2 * SOON);
            let said = done.stderr.join("\n");
            // Not 255, with which the other ranks' libraries call MPI_Abort.
            assert_eq!(done.code(), 137, "{said}");
            let others = ["slurm on slurm", "ssh on ssh", "here on localhost"];
            for other in others.into_iter().filter(|other| !other.starts_with(label)) {
                let line = done.stderr.iter().find(|line| line.contains(&format!("{other}: done: ")));
                assert!(
                    line.is_some_and(|line| line.contains(&format!("subjob {label}: rank "))),
                    "{label}: {said}"
                );
            }
            let gone = becomes_true(SOON, || cluster.find("mpi_work ring 1 wait").is_empty());
            assert!(gone, "{:?}", cluster.find("mpi_work ring 1 wait"));
        }
    });
}

/// A job is cancelled. The agent of a host is killed, and its ranks die with it.
#[test]
fn a_part_whose_job_or_agent_is_gone_is_named_and_ends_the_others() {
    let mpich = require!(MPICH_4.install());
    let program = require!(mpich.program("mpi_work"));
    on_cluster(Config::with_nodes(4), move |cluster| {
        for label in ["slurm", "ssh"] {
            let folder = cluster.world.work_dir();
            (0..3).for_each(|part| drop(std::fs::remove_file(folder.join(format!("out{part}")))));
            let mut run = cluster.gantry(["coalloc", &into_files(&three(&program, "ring 1 wait"), &folder)]);
            let waiting = || read_files(&folder).iter().filter(|line| line.ends_with(" waits")).count();
            eventually(2 * SOON, "all ranks wait", || waiting() == 5);
            if label == "slurm" {
                assert_eq!(cluster.run("scancel", ["--me"], &[]).wait(SOON).code(), 0);
            } else {
                let processes = cluster.bed.host("n004").expect("a node").user_processes();
                let agents = processes.into_iter().filter(|process| process.line.contains("gantry-agent"));
                proc::send_those_left(agents.map(|agent| agent.pid), Signal::SIGKILL);
            }
            let done = run.wait(3 * SOON);
            let said = done.stderr.join("\n");
            assert_ne!(done.code(), 0, "{said}");
            let others = ["slurm on slurm", "ssh on ssh", "here on localhost"];
            for other in others.into_iter().filter(|other| !other.starts_with(label)) {
                let line = done.stderr.iter().find(|line| line.contains(&format!("{other}: done: ")));
                assert!(
                    line.is_some_and(|line| line.contains(&format!("subjob {label}: "))),
                    "{label}: {said}"
                );
            }
            let gone = becomes_true(2 * SOON, || cluster.find("mpi_work ring 1 wait").is_empty());
            assert!(gone, "{label}: {:?}", cluster.find("mpi_work ring 1 wait"));
        }
    });
}

#[test]
fn an_abort_in_one_manager_ends_all_with_its_code() {
    let mpich = require!(MPICH_4.install());
    let program = require!(mpich.program("mpi_world"));
    on_cluster(Config::with_nodes(4), move |cluster| {
        for (rank, label) in [(1, "slurm"), (4, "here")] {
            let job = three(&program, &format!("sum abort {rank} 9"));
            let done = cluster.gantry(["coalloc", &job]).wait(3 * SOON);
            let said = done.stderr.join("\n");
            assert_eq!(done.code(), 9, "{said}");
            let reason = format!("(rank {rank} of MPI_COMM_WORLD) called MPI_Abort with exit code 9");
            assert_eq!(said.matches(&reason).count(), 3, "{label}: {said}");
        }
    });
}

#[test]
fn parts_that_do_not_reach_each_other_are_named_before_any_rank_runs() {
    let mpich = require!(MPICH_4.install());
    let program = require!(mpich.program("mpi_work"));
    on_cluster(Config::with_nodes(4), move |cluster| {
        let mut run = cluster.gantry(["coalloc", "-i", &three(&program, "ring 1")]);
        reach(&mut run, &CHECKED_IN);
        let refused: Result<Vec<()>, String> = cluster
            .bed
            .nodes()
            .iter()
            .map(|host| host.refuse_connections(&[22]).map_err(|why| why.to_string()))
            .collect();
        if let Err(why) = refused {
            run.write(b"K\n");
            drop(run.wait(SOON));
            return gantry_tests::record_skip(&format!("no firewall: {why}"));
        }
        run.write(b"C\n");
        let done = run.wait(2 * SOON);
        cluster.bed.nodes().iter().for_each(|host| host.accept_connections().expect("no firewall any more"));
        let said = done.stderr.join("\n");
        assert_ne!(done.code(), 0, "{said}");
        assert!(said.contains("MPI cannot connect the parts: host "), "{said}");
        assert!(!done.stdout.iter().any(|line| line.starts_with("rank ")), "{done:?}");
    });
}

#[test]
fn parts_on_this_machine_are_one_world_and_know_which_they_are() {
    let mpich = require!(MPICH_4.install());
    let [work, say] = [require!(mpich.program("mpi_work")), require!(mpich.program("mpi_world"))];
    in_a_world(8 * SOON, move |world| {
        let job = here(&[2, 1, 3], &work, "ring 4 stencil 30", "");
        let done = world.gantry(["coalloc", "-s", &job]).wait(3 * SOON);
        assert_eq!(
            (done.code(), sorted(done.stdout.clone())),
            (0, right(&[2, 1, 3], &["ring", "stencil"])),
            "{done:?}"
        );
        // Numbers stand in the environment as well, as whole numbers without zeros before them.
        let done = world.gantry(["coalloc", "-s", &here(&[1, 2], &say, "say", "")]).wait(2 * SOON);
        let told = ["told 0 of 3, 0 of 1 here", "told 1 of 3, 0 of 2 here", "told 2 of 3, 1 of 2 here"];
        assert_eq!(
            (done.code(), sorted(done.stdout.clone())),
            (0, told.map(str::to_owned).to_vec()),
            "{done:?}"
        );
    });
}

#[test]
fn a_part_that_comes_late_is_in_the_world_and_one_that_is_taken_out_is_not() {
    let mpich = require!(MPICH_4.install());
    let program = require!(mpich.program("mpi_work"));
    in_a_world(8 * SOON, move |world| {
        let folder = world.work_dir().to_owned();
        let late = part("late", "localhost", &program, "ring 2", "(count=2)");
        let job = into_files(&format!("{}{late}", here(&[1, 2], &program, "ring 2", "")), &folder);
        let (job, late) = job.split_at(job.rfind("(&").expect("three parts"));
        let mut run = world.gantry(["coalloc", "-i", job]);
        reach(&mut run, &["subjob a on localhost: checked in", "subjob b on localhost: checked in"]);
        run.write(format!("Da\nA{}\n", &late[1..late.len() - 1]).as_bytes());
        reach(&mut run, &["subjob late on localhost: checked in"]);
        run.write(b"C\n");
        let done = run.wait(2 * SOON);
        assert_eq!((done.code(), read_files(&folder)), (0, right(&[2, 2], &["ring"])), "{done:?}");
    });
}

#[test]
fn a_loose_part_that_dies_before_the_release_is_left_out_of_the_world() {
    let mpich = require!(MPICH_4.install());
    let program = require!(mpich.program("mpi_work"));
    in_a_world(8 * SOON, move |world| {
        let lost = part("lost", "localhost", "/no/such/program", "x", "(subjobStartType=loose-barrier)");
        let job = here(&[2, 1], &program, "ring 2", "").replacen('+', &format!("+{lost}"), 1);
        let done = world.gantry(["coalloc", "-s", &job]).wait(2 * SOON);
        assert_eq!(sorted(done.stdout.clone()), right(&[2, 1], &["ring"]), "{done:?}");
    });
}

#[test]
fn a_loose_part_that_dies_later_leaves_the_others_alone_until_they_wait_for_it() {
    require!(tool("bash"));
    in_a_world(8 * SOON, |world| {
        let begin = "echo cmd=init pmi_version=1 pmi_subversion=1 >&10; read -r answer <&10";
        let script = format!(
            "{begin}; [ $PMI_RANK = 1 ] && exit 5; sleep 1; echo on; echo cmd=barrier_in >&10; read -r answer <&10; echo through"
        );
        let parts = [("a", ""), ("b", "(subjobStartType=loose-barrier)")]
            .map(|(label, more)| part(label, "localhost", "/bin/bash", &format!("-c \"{script}\""), more));
        let done = world.gantry(["coalloc", "-s", &format!("+{}", parts.concat())]).wait(2 * SOON);
        assert_eq!((done.code(), done.stdout.clone()), (1, vec!["on".to_owned()]), "{done:?}");
    });
}

#[test]
fn a_rank_that_breaks_the_rules_of_pmi_ends_the_parts_with_a_reason() {
    require!(tool("bash"));
    in_a_world(8 * SOON, |world| {
        for (bad, reason) in [
            ("echo hello, world >&10", "begins neither with 'cmd=' nor with a length"),
            ("echo cmd=dance >&10", "speaks before it has begun"),
            ("printf cmd= >&10; head -c 70000 /dev/zero | tr '\\0' x >&10", "is longer than 65536 bytes"),
        ] {
            let script = format!("[ $PMI_RANK = 2 ] || exec sleep 300; {bad}; sleep 300");
            let job = here(&[2, 1], "/bin/bash", &format!("-c \"{script}\""), "");
            let done = world.gantry(["coalloc", &job]).wait(2 * SOON);
            let said = done.stderr.join("\n");
            let expected =
                format!("rank 0 (rank 2 of MPI_COMM_WORLD) broke the rules of PMI: its message {reason}");
            assert!(said.contains(&format!("subjob a on localhost: done: subjob b: {expected}")), "{said}");
            assert_eq!(done.code(), 1, "{said}");
        }
    });
}

#[test]
fn a_note_about_the_world_names_the_part() {
    let mpich = require!(MPICH_5.install());
    let program = require!(mpich.program("mpi_world"));
    in_a_world(8 * SOON, move |world| {
        let job = here(&[1, 1], &program, "spawn 1 finalize", "");
        let note = "rank 0 (rank 0 of MPI_COMM_WORLD) asks for MPI_Comm_spawn, and gantry does not start further processes: use the library's launcher, --launcher mpiexec";
        let done = world.gantry(["coalloc", &job]).wait(2 * SOON);
        assert!(done.stderr.iter().any(|line| *line == format!("gantry: subjob a: {note}")), "{done:?}");
        let done = world.gantry(["coalloc", "--json", &job]).wait(2 * SOON);
        let told =
            done.events().into_iter().find(|event| event["event"] == "mpi_note" && event["label"] == "a");
        assert_eq!(told.map(|event| event["message"].clone()), Some(note.into()), "{done:?}");
    });
}

/// Then srun holds the ranks, and no agent stands in their place.
#[test]
fn a_part_of_slurm_to_which_the_agent_must_be_sent_is_refused() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let job = format!("+{}", part("a", "slurm", "/bin/true", "x", ""));
        let always = [("GANTRY_SEND_AGENT", "always")];
        let done = cluster.run(&binaries().gantry, ["coalloc", &job], &always).wait(2 * SOON);
        let said = done.stderr.join("\n");
        assert_ne!(done.code(), 0, "{said}");
        assert!(said.contains("ranks of a job's MPI world need gantry's agent in their place"), "{said}");
    });
}

/// What each rank of the parts has for UCX and libfabric.
const SHOW: &str = "-c \"echo $UCX_TLS $FI_PROVIDER\"";

#[test]
fn parts_of_several_managers_have_a_common_network_unless_the_user_has_chosen_one() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let folder = cluster.world.work_dir().to_owned();
        let run = |contacts: [(&str, &str); 2]| {
            let parts = contacts.iter().zip(["a", "b"]);
            let parts = parts.map(|((contact, more), label)| part(label, contact, "/bin/sh", SHOW, more));
            let job = into_files(&format!("+{}", parts.collect::<String>()), &folder);
            let done = cluster.gantry(["coalloc", &job]).wait(2 * SOON);
            assert_eq!(done.code(), 0, "{done:?}");
            read_files(&folder)
        };
        let own = "(environment=(UCX_TLS self))";
        assert_eq!(run([("slurm", ""), ("localhost", "")]), ["tcp,self,sm tcp"; 2]);
        assert_eq!(run([("ssh://n001", own), ("localhost", "")]), ["self tcp", "tcp,self,sm tcp"]);
        assert_eq!(run([("ssh://n001", ""), ("ssh://n002", "")]), [""; 2], "one manager");
    });
}

#[test]
fn a_late_part_of_a_second_manager_is_refused_unless_the_parts_before_have_a_common_network() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let folder = cluster.world.work_dir().to_owned();
        for (own, refused) in [("", true), ("(environment=(UCX_TLS \"tcp,self,sm\"))", false)] {
            let parts = [
                part("early", "localhost", "/bin/sh", SHOW, own),
                part("late", "ssh://n001", "/bin/sh", SHOW, ""),
            ];
            let job = into_files(&format!("+{}", parts.concat()), &folder);
            let (job, late) = job.split_at(job.rfind("(&").expect("two parts"));
            let mut run = cluster.gantry(["coalloc", "-i", job]);
            reach(&mut run, &["subjob early on localhost: checked in"]);
            run.write(format!("A{}\n", &late[1..late.len() - 1]).as_bytes());
            if refused {
                let reason =
                    "the part is of ssh, and subjob early was started with the network of localhost alone";
                reach(&mut run, &[reason, "set UCX_TLS=tcp,self,sm in your shell before"]);
            } else {
                reach(&mut run, &["subjob late on ssh: checked in"]);
            }
            run.write(b"C\n");
            assert_eq!(run.wait(2 * SOON).code(), 0);
            let expected: &[&str] = if refused { &[""] } else { &["tcp,self,sm", "tcp,self,sm tcp"] };
            assert_eq!(read_files(&folder), expected);
            (0..2).for_each(|part| drop(std::fs::remove_file(folder.join(format!("out{part}")))));
        }
    });
}

#[test]
fn what_cannot_be_part_of_a_world_is_refused_with_the_remedy() {
    in_a_world(8 * SOON, |world| {
        let check = |program: &str, more: &str, expected: [&str; 2]| {
            let job = format!("+{}", part("a", "localhost", program, "x", more));
            let done = world.gantry(["coalloc", &job]).wait(SOON);
            let said = done.stderr.join("\n");
            assert_ne!(done.code(), 0, "{said}");
            for text in expected {
                assert!(said.contains(text), "{text}: {said}");
            }
        };
        check("/bin/true", "(subjobStartType=no-barrier)", ["jobType=mpi needs a barrier", "independent"]);
        check("/bin/true", "(barrierPoint=runtime)", ["barrierPoint=runtime lets them run", "independent"]);
        if let Ok(open) = OPEN_MPI_4.install()
            && let Ok(program) = open.program("mpi_world")
        {
            check(&program, "(count=2)", ["is a program of Open MPI", "subjobCommsType=independent"]);
        }
        // A world of its own asks for nothing of that.
        let own = part(
            "a",
            "localhost",
            "/bin/true",
            "x",
            "(subjobStartType=no-barrier)(subjobCommsType=independent)",
        );
        let done = world.gantry(["coalloc", &format!("+{own}")]).wait(SOON);
        assert_eq!(done.code(), 0, "{done:?}");
    });
}
