//! Hosts that cannot dial back: agents have their link to the tool over the connection that has brought them. Real firewalls before a real sshd.

use gantry_tests::slurm::{Cluster, error_of, lines_of};
use gantry_tests::ssh::{Closed, closed_to_all_but_ssh, on_hosts};
use gantry_tests::testbed::{Config, program};
use gantry_tests::{SOON, proc, programs, require, tool};
use nix::sys::signal::Signal;

/// Two ranks on each of four nodes.
const HOSTS: &str = "n[001-004]:2";

/// Nobody can be dialled but by ssh: neither the nodes nor the tool's machine. None: there is no firewall here, which is recorded.
fn close_all(cluster: &Cluster) -> Option<Closed<'_>> {
    let closed = closed_to_all_but_ssh(cluster);
    closed.inspect_err(|why| gantry_tests::record_skip(&format!("no firewall: {why}"))).ok()
}

#[test]
fn agents_that_cannot_dial_have_their_link_over_ssh() {
    require!(tool("nft"));
    on_hosts(Config::with_nodes(4), |cluster| {
        let Some(_closed) = close_all(cluster) else { return };
        let daemon = cluster.make_daemon();
        for transport in [&[][..], &["--transport", "ssh"]] {
            let mut args = vec!["--daemon", &daemon, "--hold-for-daemons", "--", "--hosts", HOSTS];
            args.extend(transport);
            let exits = programs::get("exit_with").display().to_string();
            args.extend([&*exits, "7"]);
            let done = cluster.launch(&args).wait(SOON);
            assert_eq!((done.code(), lines_of(&done)), (7, vec!["answer 42".to_owned(); 4]), "{done:?}");
        }
    });
}

#[test]
fn who_wants_tcp_alone_is_told_what_stands_in_its_way() {
    require!(tool("nft"));
    on_hosts(Config::with_nodes(4), |cluster| {
        let Some(_closed) = close_all(cluster) else { return };
        let args = ["--timeout", "6", "--", "--hosts", "n001", "--transport", "tcp", "/bin/true"];
        let error = error_of(&cluster.launch(&args).wait(SOON)).to_string();
        assert!(error.contains("waiting for agents") && error.contains("n001"), "{error}");
    });
}

#[test]
fn a_cut_connection_that_is_a_link_is_a_lost_node() {
    on_hosts(Config::with_nodes(4), |cluster| {
        let args = ["--", "--hosts", HOSTS, "--transport", "ssh", "/bin/sleep", "1000"];
        let (mut run, app) = cluster.held(&args);
        cluster.assert_held("/bin/sleep 1000", 8);
        let processes = cluster.bed.node(2).user_processes();
        let session = processes.iter().find(|process| process.line.starts_with("sshd: ")).expect("a session");
        proc::send(session.pid, Signal::SIGKILL);
        let lost = run.next_event("nodes_lost", SOON);
        assert!(lost.to_string().contains("n002") && !lost.to_string().contains("n003"), "{lost}");
        cluster.ask(&["kill", &app]);
        run.exited(SOON);
    });
}

#[test]
fn a_killed_tool_leaves_nothing_on_hosts_that_it_had_by_ssh_alone() {
    on_hosts(Config::with_nodes(4), |cluster| {
        let args = ["--daemon", "/bin/sleep 999", "--", "--hosts", HOSTS, "--transport", "ssh"];
        let (mut run, _) = cluster.held(&[&args[..], &["/bin/sleep", "1000"]].concat());
        (0..4).for_each(|_| drop(run.next_event("daemon_started", SOON)));
        proc::send(program(run.pid()).expect("the tool"), Signal::SIGKILL);
        run.exited(SOON);
        drop(run);
        cluster.ask(&["ps", "--json"]);
        cluster.bed.assert_nothing_left(SOON);
    });
}
