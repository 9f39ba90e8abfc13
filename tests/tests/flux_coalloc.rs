//! Co-allocated jobs with a part under a real Flux, beside a real Slurm, a host over ssh, and the login node; process
//! groups; and what Flux cannot be asked for.

use std::fs;

use gantry_tests::co_allocated::{FourManagers, part};
use gantry_tests::flux::{jobs, on_flux, set_queue, states};
use gantry_tests::launchers::MPICH_4;
use gantry_tests::managers::on_slurm_and_flux;
use gantry_tests::slurm::Cluster;
use gantry_tests::{SOON, becomes_true, require};

const MANAGERS: FourManagers = FourManagers { name: "flux", contact: "flux", jobs, starts: SOON };

#[test]
fn four_managers_are_held_at_one_barrier_and_their_processes_find_each_other() {
    on_slurm_and_flux(|cluster| {
        let look = || assert_eq!(states(cluster), "job_probe RUN\n");
        MANAGERS.are_held_at_one_barrier(cluster, look);
    });
}

#[test]
fn a_part_on_flux_that_fails_before_the_barrier_ends_a_strict_job_alone() {
    on_slurm_and_flux(|cluster| MANAGERS.a_part_that_fails_ends_a_strict_job_alone(cluster));
}

#[test]
fn when_the_control_side_is_killed_everything_ends_on_every_manager() {
    on_slurm_and_flux(|cluster| MANAGERS.everything_ends_with_the_control_side(cluster));
}

#[test]
fn a_part_that_flux_never_starts_leaves_no_job_in_its_queue() {
    on_slurm_and_flux(|cluster| {
        set_queue(cluster, "stop");
        MANAGERS.a_part_that_never_starts_leaves_no_job(cluster, "(count=2)(hostCount=2)");
        set_queue(cluster, "start");
    });
}

#[test]
fn four_managers_are_one_mpi_world() {
    let mpich = require!(MPICH_4.install());
    let work = require!(mpich.program("mpi_work"));
    on_slurm_and_flux(move |cluster| MANAGERS.are_one_mpi_world(cluster, &work));
}

#[test]
fn a_killed_rank_on_flux_ends_the_mpi_world_of_four_managers() {
    let mpich = require!(MPICH_4.install());
    let work = require!(mpich.program("mpi_work"));
    on_slurm_and_flux(move |cluster| MANAGERS.a_killed_rank_ends_the_mpi_world(cluster, &work));
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
        MANAGERS.nothing_runs(cluster, "sleep 1008");
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
