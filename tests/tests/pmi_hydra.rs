//! The same MPICH program under gantry and under MPICH's launcher, Hydra: exit codes, and which ranks share memory. Where the two differ, `docs/src/guide/mpi.md` says so.

use std::time::Duration;

use gantry_tests::launchers::{MPICH_4, MPICH_5};
use gantry_tests::slurm::lines_of;
use gantry_tests::ssh::on_hosts;
use gantry_tests::testbed::Config;
use gantry_tests::{Finished, SOON, in_a_world, require};

const LIMIT: Duration = Duration::from_secs(180);

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort_unstable();
    lines
}

#[test]
fn exit_codes_are_those_of_hydra_or_differ_as_the_guide_says() {
    let hydra = require!(MPICH_4.install()).path;
    // Its MPI_Finalize never hangs.
    let program = require!(require!(MPICH_5.install()).program("mpi_world"));
    in_a_world(LIMIT, move |world| {
        let check = |args: &str, here: i32, there: i32| {
            let ours: Vec<&str> = ["-n", "3", &program].into_iter().chain(args.split(' ')).collect();
            let by_gantry = world.gantry(["launch", "--json", "--"].iter().chain(&ours)).wait(2 * SOON);
            let mut command = world.command(&hydra);
            command.args(&ours);
            let by_hydra = world.spawn(command).wait(2 * SOON);
            assert_eq!(
                (by_gantry.code(), by_hydra.code()),
                (here, there),
                "{args}: {by_gantry:?}, {by_hydra:?}"
            );
        };
        check("exit 0 0", 0, 0);
        check("exit 3 0", 3, 3);
        check("abort 1 7", 7, 7);
        check("abort 1 0", 0, 0);
        // Codes 3, 4 and 5: the highest here, all bits of all there.
        check("exit 3 1", 5, 7);
        // Codes 0, 100 and 200.
        check("exit 0 100", 200, 236);
        // A signal: 128 and its number here, its number there.
        check("kill 1 9", 137, 9);
        check("kill 1 15", 143, 15);
    });
}

/// A line for each rank.
fn shared(sizes: &[u32]) -> Vec<String> {
    let line = |(rank, size): (usize, &u32)| format!("rank {rank} shares memory with {size}");
    sorted(sizes.iter().enumerate().map(line).collect())
}

#[track_caller]
fn check_shared(done: &Finished, sizes: &[u32]) {
    assert_eq!((done.code(), sorted(lines_of(done))), (0, shared(sizes)), "{done:?}");
}

#[test]
fn ranks_of_a_node_share_memory_and_those_of_others_do_not() {
    let mpich = require!(MPICH_4.install());
    let program = require!(mpich.program("mpi_world"));
    in_a_world(LIMIT, move |world| {
        for (args, sizes) in [
            (&["-n", "3"][..], &[3, 3, 3][..]),
            // Two agents on this machine are two nodes.
            (&["-N", "2", "-n", "5"], &[3, 3, 3, 2, 2]),
            (&["-N", "2", "-n", "5", "--map-by", "node"], &[3, 2, 3, 2, 3]),
        ] {
            let args = [&["launch", "--json", "--"], args, &[&program, "shared"]].concat();
            check_shared(&world.gantry(args).wait(2 * SOON), sizes);
        }
        // Parts of a co-allocated job on one host are nodes of their own.
        let part = |label: &str, count: u32| {
            format!(
                "(&(resourceManagerContact=\"localhost\")(label={label})(count={count})(jobType=mpi)(directory=/)(executable=\"{program}\")(arguments=shared))"
            )
        };
        let job = format!("+{}{}", part("a", 2), part("b", 1));
        let done = world.gantry(["coalloc", "-s", &job]).wait(2 * SOON);
        assert_eq!((done.code(), sorted(done.stdout.clone())), (0, shared(&[2, 2, 1])), "{done:?}");
    });
}

#[test]
fn ranks_of_a_host_share_memory_over_ssh_too() {
    let mpich = require!(MPICH_4.install());
    let program = require!(mpich.program("mpi_world"));
    on_hosts(Config::with_nodes(2), move |cluster| {
        let done = cluster.launch(&["--", "--hosts", "n[001-002]:2", &program, "shared"]).wait(2 * SOON);
        check_shared(&done, &[2, 2, 2, 2]);
        let args = ["--", "--hosts", "n[001-002]:2", "-n", "3", "--map-by", "node", &program, "shared"];
        check_shared(&cluster.launch(&args).wait(2 * SOON), &[2, 1, 2]);
    });
}

/// `--label` of `mpiexec` and `-l` of Hydra, before the program; over ssh `-l` is the login's name.
#[test]
fn output_is_labelled_as_users_of_mpiexec_ask_for_it() {
    let mpich = require!(MPICH_4.install());
    let program = require!(mpich.program("mpi_world"));
    in_a_world(LIMIT, move |world| {
        for option in ["--label", "-l", "-prepend-rank"] {
            let done = world.gantry(["launch", "-n", "3", option, &program, "shared"]).wait(2 * SOON);
            let expected = (0..3).map(|rank| format!("{rank}: rank {rank} shares memory with 3")).collect();
            assert_eq!((done.code(), sorted(done.stdout.clone())), (0, expected), "{done:?}");
        }
        let done = world.gantry(["launch", "-n", "1", &program, "shared", "--label"]).wait(2 * SOON);
        assert_eq!(done.stdout, shared(&[1]), "it is the program's own argument: {done:?}");
        let done = world.gantry(["launch", "--", "-n", "2", "-configfile", "f", &program]).wait(SOON);
        let said = done.stderr.join("\n");
        assert!(
            done.code() != 0 && said.contains("write the programs here, with ':' between them"),
            "{said}"
        );
    });
}
