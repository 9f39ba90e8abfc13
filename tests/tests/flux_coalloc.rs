//! Co-allocated jobs with a part under a real Flux, beside a real Slurm, a host over ssh, and the login node; process
//! groups; and what Flux cannot be asked for.

use std::fs;

use gantry_tests::flux::{jobs, on_flux, states};
use gantry_tests::launchers::MPICH_4;
use gantry_tests::managers::on_slurm_and_flux;
use gantry_tests::slurm::Cluster;
use gantry_tests::{Run, SOON, becomes_true, binaries, require};

/// A subjob of programs that call the barrier.
fn part(label: &str, contact: &str, steps: &str, more: &str) -> String {
    let program = binaries().dir.join("job_probe").display().to_string();
    format!(
        "(&(resourceManagerContact=\"{contact}\")(label={label})(barrierPoint=runtime)(directory=/)(executable=\"{program}\")(arguments={steps}){more})"
    )
}

/// The same on each of four managers: two ranks on two nodes of each batch system, one on a host over ssh, one here.
fn four(steps: &str) -> [String; 4] {
    [
        part("flux", "flux", steps, "(count=2)(hostCount=2)"),
        part("slurm", "slurm", steps, "(count=2)(hostCount=2)"),
        part("ssh", "ssh://n003", steps, ""),
        part("here", "localhost", steps, ""),
    ]
}

fn begin(cluster: &Cluster, parts: &[String]) -> Run {
    cluster.gantry(["coalloc", "-i", &format!("+{}", parts.concat())])
}

/// Waits until all have come to stand there.
#[track_caller]
fn reach(run: &mut Run, state: &str) {
    for name in ["flux on flux", "slurm on slurm", "ssh on ssh", "here on localhost"] {
        run.stderr_line(&format!("{name}: {state}"), SOON);
    }
}

#[track_caller]
fn nothing_runs(cluster: &Cluster, steps: &str) {
    let gone = becomes_true(2 * SOON, || cluster.find(steps).is_empty() && jobs(cluster).is_empty());
    assert!(gone, "{:?}, {}", cluster.find(steps), jobs(cluster));
}

#[test]
fn four_managers_are_held_at_one_barrier_and_their_processes_find_each_other() {
    on_slurm_and_flux(|cluster| {
        let steps = "barrier bootstrap ring:5 big:300000 order";
        let mut run = begin(cluster, &four(steps));
        reach(&mut run, "checked in");
        let mut nodes: Vec<String> = cluster.find(steps).into_iter().map(|(node, _)| node).collect();
        nodes.sort_unstable();
        assert_eq!(nodes, ["n001", "n002", "n003", "n003", "n004"]);
        assert_eq!(states(cluster), "job_probe RUN\n");
        run.write(b"C\n");
        let done = run.wait(SOON);
        assert_eq!(done.code(), 0, "{done:?}");
    });
}

#[test]
fn a_part_on_flux_that_fails_before_the_barrier_ends_a_strict_job_alone() {
    on_slurm_and_flux(|cluster| {
        for (start, ends_all) in [("strict-barrier", true), ("loose-barrier", false)] {
            let mut parts = four("barrier");
            let more =
                format!("(count=2)(hostCount=2)(subjobStartType={start})(subjobCommsType=independent)");
            parts[0] = part("flux", "flux", "exit-of-rank:1 barrier", &more);
            let done = cluster.gantry(["coalloc", &format!("+{}", parts.concat())]).wait(2 * SOON);
            let said = done.stderr.join("\n");
            assert_eq!(said.contains("the job was killed: subjob flux failed"), ends_all, "{start}: {said}");
            assert_eq!(said.contains("slurm on slurm: done"), !ends_all, "{start}: {said}");
            nothing_runs(cluster, "barrier");
        }
    });
}

#[test]
fn when_the_control_side_is_killed_everything_ends_on_every_manager() {
    on_slurm_and_flux(|cluster| {
        for released in [false, true] {
            let mut run = begin(cluster, &four("barrier wait"));
            reach(&mut run, "checked in");
            if released {
                run.write(b"C\n");
                reach(&mut run, "released");
            }
            assert_eq!(cluster.find("barrier wait").len(), 5);
            run.kill();
            nothing_runs(cluster, "barrier wait");
        }
    });
}

#[test]
fn a_part_that_flux_never_starts_leaves_no_job_in_its_queue() {
    on_slurm_and_flux(|cluster| {
        cluster.said("flux", ["queue", "stop", "--quiet"]);
        let parts = [
            part("never", "flux", "barrier wait", "(count=2)(hostCount=2)"),
            part("here", "localhost", "barrier wait", ""),
        ];
        let mut run = begin(cluster, &parts);
        run.stderr_line("here on localhost: checked in", SOON);
        assert!(becomes_true(SOON, || !jobs(cluster).is_empty()), "Flux was not asked for it");
        run.write(b"K\n");
        assert_eq!(run.wait(SOON).code(), 68);
        nothing_runs(cluster, "barrier wait");
        cluster.said("flux", ["queue", "start", "--quiet"]);
    });
}

#[test]
fn four_managers_are_one_mpi_world() {
    let mpich = require!(MPICH_4.install());
    let work = require!(mpich.program("mpi_work"));
    on_slurm_and_flux(move |cluster| {
        let of_mpi = |part: String| {
            let part = part.replace("(barrierPoint=runtime)", "(jobType=mpi)");
            part.replace(&binaries().dir.join("job_probe").display().to_string(), &work)
        };
        let job = format!("+{}", four("ring 3 allreduce 2 stencil 20").map(of_mpi).concat());
        let done = cluster.gantry(["coalloc", "-s", &job]).wait(3 * SOON);
        let right = done.stdout.iter().filter(|line| line.starts_with("rank ") && line.ends_with(" right"));
        assert_eq!((done.code(), right.count()), (0, 18), "{done:?}");
        let of_flux = "rank 1 of 6, program 0: stencil right";
        assert!(done.stdout.iter().any(|line| line == of_flux), "{done:?}");
    });
}

/// The answer of the process manager.
#[track_caller]
fn ask(cluster: &Cluster, message: &str) -> String {
    let mut run = cluster.gantry(["pm"]);
    run.write(message.as_bytes());
    run.close_stdin();
    let done = run.wait(2 * SOON);
    assert_eq!(done.code(), 0, "{done:?}");
    done.stdout.join("\n")
}

#[test]
fn a_process_group_of_one_program_is_a_job_of_flux() {
    on_flux(2, |cluster| {
        let log = cluster.world.work_dir().join("log");
        let create = |more: &str| {
            format!(
                "<create-process-group totalprocs='3' output='{}'><process-spec exec='/bin/sh' cwd='/usr'>\
                 <arg idx='1' val='-c'/><arg idx='2' val='echo $GANTRY_TEST_WORD in $PWD; exec sleep 1008'/>\
                 <env name='GANTRY_TEST_WORD' val='one'/></process-spec>{more}</create-process-group>",
                log.display()
            )
        };
        let created = ask(cluster, &create(""));
        assert!(created.contains("pgid='1'") || created.contains("pgid=\"1\""), "{created}");
        assert_eq!(states(cluster), "sh RUN\n");
        let text = || fs::read_to_string(&log).unwrap_or_default();
        assert!(becomes_true(SOON, || text().matches("one in /usr").count() == 3), "{}", text());
        ask(cluster, "<kill-process-group><process-group pgid='*'/></kill-process-group>");
        nothing_runs(cluster, "sleep 1008");
        ask(cluster, "<del-process-group-info pgid='1'/>");
        let refused = ask(cluster, &create("<host-spec>n%d:001-002 n002</host-spec>"));
        assert!(refused.contains("a job of Flux has one program"), "{refused}");
    });
}

#[test]
fn what_a_part_cannot_have_of_flux_is_refused() {
    on_flux(1, |cluster| {
        let memory = part("flux", "flux", "barrier", "(minMemory=100)");
        let done = cluster.gantry(["coalloc", &format!("+{memory}")]).wait(SOON);
        let said = done.stderr.join("\n");
        assert!(done.code() != 0 && said.contains("Flux cannot honour minMemory"), "{said}");
    });
}
