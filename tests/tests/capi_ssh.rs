//! The table of ssh functions in the C library: launchers on another host and on this host, with ranks on hosts that
//! ssh reaches.

use gantry_tests::capi::{prefix, program};
use gantry_tests::slurm::on_cluster;
use gantry_tests::testbed::{self, Config};
use gantry_tests::{SOON, proc, programs, require, tool};
use nix::sys::signal::Signal;

#[test]
fn launchers_there_and_here_are_attached_to_by_the_table_of_ssh() {
    require!(tool("mpirun.openmpi"));
    let hang = require!(programs::get_mpi("mpi_hang", "mpicc.openmpi")).display().to_string();
    on_cluster(Config::with_nodes(2), move |cluster| {
        let start = |host: testbed::Machine<'_>| {
            let mut command = host.command("sh").expect("a host");
            command.args([
                "-c",
                "echo $$; exec \"$@\"",
                "sh",
                "mpirun.openmpi",
                "-host",
                "n001:2,n002:2",
                "-n",
                "4",
            ]);
            command.arg(&hang).envs(cluster.world.variables()).env_remove("TMPDIR");
            let mut run = cluster.world.spawn(command);
            let pid = run.next_line(SOON);
            (0..4).for_each(|_| assert_eq!(run.next_line(2 * SOON), "hanging"));
            (run, pid)
        };
        let (there, here) = (start(cluster.bed.node(1)), start(cluster.bed.login()));
        let variables =
            [("CTI_INSTALL_DIR", prefix().to_str().expect("a path")), ("CTI_WLM_IMPL", "generic")];
        let suite = program("ssh", "fe", &[]);
        let done = cluster.run(&suite, ["attaches", &there.1, &here.1], &variables).wait(SOON * 3);
        assert_eq!(done.code(), 0, "{}\n{}", done.stdout.join("\n"), done.stderr.join("\n"));
        assert_eq!(cluster.find(&hang).iter().filter(|(_, it)| it.line == hang).count(), 8, "left as found");
        for (mut run, _) in [there, here] {
            proc::send(testbed::program(run.pid()).expect("a launcher"), Signal::SIGTERM);
            run.exited(2 * SOON);
        }
    });
}
