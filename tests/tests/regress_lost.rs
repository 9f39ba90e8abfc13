//! The rest of an app continues when one of its nodes is lost, and waiting callers learn of the loss.
//!
//! What broke: a session with a lost node refused all requests. An agent that was told to end left without a message,
//! so a caller that waited for attached ranks waited forever. If one of a daemon's nodes was lost, the daemon's
//! output ended only with the app.

use std::time::Duration;

use gantry_frontend::{App, DaemonRequest, Event};
use gantry_tests::{SOON, on_processes, on_this_machine, pids, proc};
use gantry_types::output::DaemonOutput;
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(90);

/// Kills the agent of rank 1 and waits until the app knows that its node is lost.
async fn lose_second_node(app: &App) {
    // Subscribe before the kill: events report only what happens later.
    let mut events = app.events();
    let agent = proc::stat(pids(app)[1]).expect("a rank").parent;
    proc::send(agent, Signal::SIGKILL);
    while let Some(event) = events.next().await {
        if matches!(event, Event::NodesLost { .. }) {
            return;
        }
    }
    panic!("the app ended without a word of the lost node");
}

#[test]
fn a_session_serves_the_nodes_that_it_still_has() {
    on_this_machine(LIMIT, async |site| {
        let app = site.held(["-N", "3", "-n", "3", "/bin/true"]).await;
        let session = app.session(SOON).await.expect("a session");
        lose_second_node(&app).await;
        let daemon =
            session.manifest().exec_daemon(DaemonRequest::new("true"), SOON).await.expect("a daemon");
        let nodes: Vec<u32> = daemon.processes().iter().map(|(node, _)| node.0).collect();
        assert_eq!(nodes, [0, 2]);
        let gone = DaemonRequest::new("true").nodes("1".parse().expect("nodes"));
        session.manifest().exec_daemon(gone, SOON).await.expect_err("the node is lost");
        session.destroy(SOON).await.expect("destroy");
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn a_daemons_output_ends_with_the_last_node_that_can_be_reached() {
    on_this_machine(LIMIT, async |site| {
        let app = site.held(["-N", "2", "-n", "2", "/bin/true"]).await;
        let session = app.session(SOON).await.expect("a session");
        let request = DaemonRequest::new("sleep").args(["1000"]).output(DaemonOutput::Forward);
        let daemon = session.manifest().exec_daemon(request, SOON).await.expect("a daemon");
        let mut output = daemon.take_output().expect("its output");
        lose_second_node(&app).await;
        daemon.signal(gantry_types::signal::Signal::KILL, SOON).await.expect("the other one is killed");
        let end = tokio::time::timeout(SOON / 3, output.next()).await.expect("an end in time");
        assert_eq!(end, None);
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn an_agent_that_is_asked_to_go_does_not_go_unseen() {
    on_processes(LIMIT, async |site| {
        let mut command = site.world.command("/bin/sleep");
        command.arg("1000");
        let rank = site.world.spawn(command);
        let app = site.frontend().attach(&rank.pid().to_string(), SOON).await.expect("attached");
        let agents: Vec<i32> = proc::all()
            .into_iter()
            .filter(|pid| proc::variable(*pid, "GANTRY_TEST_TAG").as_deref() == Some(site.world.tag()))
            .filter(|pid| proc::exe(*pid).is_some_and(|exe| exe.ends_with("gantry-agent")))
            .collect();
        assert_eq!(agents.len(), 1);
        proc::send(agents[0], Signal::SIGTERM);
        let exit = tokio::time::timeout(SOON / 3, app.wait()).await.expect("told in time").expect("an end");
        assert_ne!(exit.code, 0);
        assert!(proc::is_alive(rank.pid()), "what was attached to is left alone");
        app.close(SOON).await.expect("close");
        drop(rank);
    });
}
