//! Co-allocated jobs over four managers at once: a real PBS, a real Slurm, hosts over ssh, and the login node.

use gantry_tests::co_allocated::{FourManagers, begin, part};
use gantry_tests::launchers::MPICH_4;
use gantry_tests::managers::on_slurm_and_pbs;
use gantry_tests::pbs::{STARTS, jobs};
use gantry_tests::slurm::Cluster;
use gantry_tests::testbed::config::HOME;
use gantry_tests::{SOON, becomes_true, binaries, record_skip, require, tool};

/// The port of the PBS server.
const SERVER_PORT: u16 = 15001;

const MANAGERS: FourManagers =
    FourManagers { name: "pbs", contact: "pbs://workq", jobs: |cluster| jobs(&cluster.bed), starts: STARTS };

#[test]
fn four_managers_are_held_at_one_barrier_and_their_processes_find_each_other() {
    on_slurm_and_pbs(|cluster| MANAGERS.are_held_at_one_barrier(cluster, || ()));
}

#[test]
fn four_managers_are_one_mpi_world_that_ends_as_one() {
    let mpich = require!(MPICH_4.install());
    let [work, world] = [require!(mpich.program("mpi_work")), require!(mpich.program("mpi_world"))];
    on_slurm_and_pbs(move |cluster| {
        MANAGERS.are_one_mpi_world(cluster, &work);
        // An abort in the PBS part ends all parts.
        let job = MANAGERS.job_of_mpi(&world, "sum abort 1 8");
        let done = cluster.gantry(["coalloc", &job]).wait(STARTS);
        let said = done.stderr.join("\n");
        assert_eq!(done.code(), 8, "{said}");
        let reason = "(rank 1 of MPI_COMM_WORLD) called MPI_Abort with exit code 8";
        assert_eq!(said.matches(reason).count(), 4, "{said}");
        MANAGERS.nothing_runs(cluster, "mpi_world");
    });
}

#[test]
fn a_killed_rank_on_pbs_ends_the_mpi_world_of_four_managers() {
    let mpich = require!(MPICH_4.install());
    let work = require!(mpich.program("mpi_work"));
    on_slurm_and_pbs(move |cluster| MANAGERS.a_killed_rank_ends_the_mpi_world(cluster, &work));
}

/// Programs that know nothing of all this, as the document's lowering makes it: the second of its specifications.
#[test]
fn a_lowered_specification_of_the_document_runs_with_real_programs_on_two_batch_systems() {
    on_slurm_and_pbs(|cluster| {
        let contacts = cluster.world.work_dir().join("contacts");
        std::fs::write(&contacts, "RM1 pbs\nRM2 slurm\n").expect("contacts");
        // The document omits the program. It also wraps the specification in parentheses that the language does not
        // have.
        let lowered = "(+ (& (count=3) (resourceManagerContact=RM1 ))\n    (& (count=2) (resourceManagerContact=RM2 )))";
        let program = "(directory=/)(executable=/bin/sh)(arguments=-c \"echo of $RANK_SAYS\")(environment=(RANK_SAYS \"five\"))";
        let spec = lowered.trim_start_matches('(').trim_end_matches(')').to_owned() + "))";
        let spec = spec.replace("(& ", &format!("(& {program} "));
        let contacts = contacts.display().to_string();
        let done = cluster
            .run(&binaries().gantry, ["coalloc", "-s", &spec], &[("GANTRY_CONTACTS", &contacts)])
            .wait(STARTS);
        assert_eq!((done.code(), done.stderr.as_slice()), (0, [].as_slice()), "{done:?}");
        assert_eq!(done.stdout, vec!["of five"; 5]);
    });
}

#[test]
fn a_part_on_pbs_that_fails_before_the_barrier_ends_a_strict_job_alone() {
    on_slurm_and_pbs(|cluster| MANAGERS.a_part_that_fails_ends_a_strict_job_alone(cluster));
}

#[test]
fn when_the_control_side_is_killed_everything_ends_on_every_manager() {
    on_slurm_and_pbs(|cluster| MANAGERS.everything_ends_with_the_control_side(cluster));
}

/// PBS has no free nodes for the subjob. The job stays in the queue until it is cancelled there.
#[test]
fn a_part_that_pbs_never_starts_leaves_no_job_in_its_queue() {
    on_slurm_and_pbs(|cluster| {
        MANAGERS.a_part_that_never_starts_leaves_no_job(cluster, "(count=500)(hostCount=2)");
    });
}

/// Sends an order to the PBS server, as its manager.
#[track_caller]
fn manage(cluster: &Cluster, order: &str) {
    let mut qmgr = cluster.bed.login().root_command("qmgr").expect("the login node");
    assert!(qmgr.args(["-c", order]).status().expect("qmgr").success(), "{order}");
}

/// The PBS server is unreachable when the subjob must be removed from its queue. Later the server starts the job,
/// which is no longer wanted.
#[test]
fn what_a_manager_could_not_cancel_ends_by_itself_when_it_comes_up() {
    require!(tool("nft"));
    on_slurm_and_pbs(|cluster| {
        let login = cluster.bed.login();
        if let Err(why) = login.hide_port_from_user(0).and_then(|()| login.accept_connections()) {
            return record_skip(&format!("no firewall: {why}"));
        }
        manage(cluster, "set server scheduling=False");
        let ran = format!("{HOME}/ran-late");
        let late = format!(
            "(&(resourceManagerContact=pbs)(label=late)(count=2)(hostCount=2)(directory=/)(executable=/bin/sh)(arguments=-c \"echo yes >>{ran}\"))"
        );
        let mut run = begin(cluster, &[late, part("here", "localhost", "barrier wait", "")]);
        run.stderr_line("here on localhost: checked in", SOON);
        assert!(becomes_true(SOON, || !jobs(&cluster.bed).is_empty()), "PBS was not asked for it");
        login.hide_port_from_user(SERVER_PORT).expect("a firewall");
        run.write(b"K\n");
        let done = run.wait(2 * SOON);
        assert_eq!(done.code(), 68, "{done:?}");
        login.accept_connections().expect("no firewall");
        assert!(jobs(&cluster.bed).contains(" Q "), "it was cancelled: {}", jobs(&cluster.bed));
        manage(cluster, "set server scheduling=True");
        let over = becomes_true(STARTS, || jobs(&cluster.bed).is_empty());
        assert!(over, "{}", jobs(&cluster.bed));
        MANAGERS.nothing_runs(cluster, "echo yes");
        for host in 1..=4 {
            let ran = cluster.bed.node(host).path(&ran).expect("a node");
            assert!(!ran.exists(), "a program of the job has run on node {host}");
        }
    });
}
