//! Hosts that cannot connect back. Agents get their link to the tool over the ssh connection that started them.
//! Tested with real firewalls and a real sshd.

use std::time::{Duration, Instant};

use gantry_tests::slurm::{Cluster, error_of, lines_of};
use gantry_tests::ssh::{Closed, change, closed_to_all_but_ssh, on_hosts};
use gantry_tests::testbed::{Config, program};
use gantry_tests::{Run, SOON, eventually, proc, programs, require, tool};
use nix::sys::signal::Signal;

/// Two ranks on each of four nodes.
const HOSTS: &str = "n[001-004]:2";

/// Only ssh gets through: neither the nodes nor the tool's machine accept other connections. None: there is no
/// firewall here, and a skip is recorded.
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
fn with_tcp_alone_the_error_names_the_obstacle() {
    require!(tool("nft"));
    on_hosts(Config::with_nodes(4), |cluster| {
        let Some(_closed) = close_all(cluster) else { return };
        let args = ["--timeout", "6", "--", "--hosts", "n001", "--transport", "tcp", "/bin/true"];
        let error = error_of(&cluster.launch(&args).wait(SOON)).to_string();
        // The error is the agent's own, or the tool's if the agent's does not arrive in time.
        let in_the_way =
            ["Connection refused", "waiting for agents"].iter().any(|words| error.contains(words));
        assert!(in_the_way && error.contains("n001"), "{error}");
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

/// The timeout for a silent node: 40 s by TCP, 75 s by ssh.
const SILENCE: Duration = Duration::from_secs(110);

/// An app with a rank on each of two nodes.
struct Cut {
    run: Run,
    app: String,
    line: String,
    held: bool,
}

/// For each transport, one held app and one running app.
fn start_all(cluster: &Cluster) -> Vec<Cut> {
    let ways = [("tcp", true), ("tcp", false), ("ssh", true), ("ssh", false)];
    let start = |((transport, held), seconds): ((&str, bool), u32)| {
        let seconds = seconds.to_string();
        let args = ["--", "--hosts", "n[001-002]", "--transport", transport, "/bin/sleep", &seconds];
        let (run, app) = cluster.held(&args);
        if !held {
            cluster.ask(&["release", &app]);
        }
        Cut { run, app, line: format!("/bin/sleep {seconds}"), held }
    };
    ways.into_iter().zip(1001..).map(start).collect()
}

/// The number of an app's ranks on a node.
fn ranks_on(cluster: &Cluster, node: &str, line: &str) -> usize {
    cluster.find(line).iter().filter(|(name, _)| name == node).count()
}

#[test]
fn a_node_whose_link_was_cut_for_a_moment_is_not_lost() {
    on_hosts(Config::with_nodes(2), |cluster| {
        let mut apps = start_all(cluster);
        cluster.bed.node(2).cut_link().expect("cut");
        // Orders during the cut are carried out at once on the reachable node. The other node carries them out when
        // it is reachable again.
        let orders = apps.iter().map(|it| match it.held {
            true => cluster.gantry(["release", &it.app]),
            false => cluster.gantry(["kill", &it.app, "-s", "TERM"]),
        });
        let orders: Vec<Run> = orders.collect();
        for it in &apps {
            let is_done = || match it.held {
                true => cluster.find(&it.line).iter().any(|(_, it)| proc::state(it.pid) == Some('S')),
                false => ranks_on(cluster, "n001", &it.line) == 0,
            };
            eventually(SOON, "the order is obeyed where it gets", is_done);
            assert_eq!(ranks_on(cluster, "n002", &it.line), 1, "{}", it.line);
        }
        cluster.bed.node(2).mend_link().expect("mended");
        orders.into_iter().for_each(|mut order| assert_eq!(order.wait(SOON).code(), 0));
        for it in apps.iter_mut().filter(|it| it.held) {
            cluster.ask(&["kill", &it.app, "-s", "TERM"]);
        }
        for it in apps {
            let mut run = it.run;
            let done = run.wait(SOON);
            assert_eq!(done.code(), 128 + 15, "{done:?}");
            assert!(!done.events().iter().any(|event| event["event"] == "nodes_lost"), "{done:?}");
        }
    });
}

/// Run this by hand with `GANTRY_SILENCE=1`, because it waits for the timeout.
#[test]
#[expect(clippy::disallowed_methods, reason = "a longer run is requested in the environment")]
fn a_node_whose_link_is_cut_is_lost_and_ends_its_ranks_by_itself() {
    if std::env::var_os("GANTRY_SILENCE").is_none() {
        return;
    }
    on_hosts(Config::with_nodes(2), |cluster| {
        // How long a node retries to send the agent's data over ssh. The kernel's default is a quarter of an hour.
        let tries = |count: u32| format!("echo {count} >/proc/sys/net/ipv4/tcp_retries2");
        let _tries = change(cluster, 2, &tries(4), &tries(15));
        let mut apps = start_all(cluster);
        cluster.bed.node(2).cut_link().expect("cut");
        let cut = Instant::now();
        for it in &mut apps {
            let lost = it.run.next_event("nodes_lost", SILENCE);
            eprintln!("{}: {lost} after {:?}", it.line, cut.elapsed());
            assert!(lost.to_string().contains("n002") && !lost.to_string().contains("n001"), "{lost}");
            assert_eq!(ranks_on(cluster, "n001", &it.line), 1, "the rest goes on");
        }
        for it in &apps {
            eventually(SILENCE, "the node's rank ends", || ranks_on(cluster, "n002", &it.line) == 0);
            eprintln!("{}: its rank there has ended after {:?}", it.line, cut.elapsed());
        }
        for it in apps {
            cluster.ask(&["kill", &it.app]);
            let mut run = it.run;
            run.exited(SOON);
        }
        cluster.bed.node(2).mend_link().expect("mended");
    });
}
