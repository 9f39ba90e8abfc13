//! Attaching to running apps, and leaving them unchanged.

use std::path::PathBuf;
use std::time::Duration;

use gantry_frontend::info::AppState;
use gantry_frontend::{App, DaemonRequest, Event};
use gantry_tests::fault::{agents, guards};
use gantry_tests::{
    Run, SOON, Site, binaries, daemon_pids, on_every_wlm, on_processes, outside, pids, proc, programs,
    require, tool,
};
use gantry_types::error::Kind;
use gantry_types::id::NodeId;
use gantry_types::output::DaemonOutput;
use gantry_types::signal::Signal;

const LIMIT: Duration = Duration::from_secs(120);

async fn attach(site: &Site, target: &str) -> App {
    let attached = site.frontend().attach(target, SOON).await;
    attached.unwrap_or_else(|error| panic!("attach to {target}: {error}, hint {:?}", error.hint()))
}

/// Programs that wait, started by this process and ready.
fn waiting(site: &Site, count: usize) -> Vec<Run> {
    let start = |_| {
        let mut run = site.world.start(&programs::get("loop_forever"), [""; 0]);
        assert_eq!(run.next_line(SOON), "looping");
        proc::eventually(SOON, "it waits", || proc::state(run.pid()) == Some('S'));
        run
    };
    (0..count).map(start).collect()
}

fn target(runs: &[Run]) -> String {
    runs.iter().map(|run| run.pid().to_string()).collect::<Vec<_>>().join(",")
}

/// Everything about a process that attaching could change and that its own work does not.
fn look_of(pid: i32) -> Vec<String> {
    let status = outside::read_text(format!("/proc/{pid}/status")).expect("a process");
    let kept = [
        "State",
        "TracerPid",
        "PPid",
        "Threads",
        "SigPnd",
        "ShdPnd",
        "SigBlk",
        "SigIgn",
        "SigCgt",
        "Seccomp:",
    ];
    let mut look: Vec<String> = status
        .lines()
        .filter(|line| kept.iter().any(|name| line.starts_with(name)))
        .map(str::to_owned)
        .collect();
    let count = outside::list(format!("/proc/{pid}/fd")).expect("descriptors").len();
    let stat = proc::stat(pid).expect("a process");
    look.push(format!("{count} descriptors, group {}, session {}", stat.group, stat.session));
    look
}

#[test]
fn pids_become_ranks_in_their_order_and_are_left_as_they_were() {
    on_processes(LIMIT, async |site| {
        let mut runs = waiting(site, 3);
        runs.reverse();
        let before: Vec<_> = runs.iter().map(|run| look_of(run.pid())).collect();
        let app = attach(site, &target(&runs)).await;
        assert_eq!(pids(&app), runs.iter().map(Run::pid).collect::<Vec<_>>());
        assert_eq!(app.state(), AppState::Running);
        let info = app.info();
        assert!(info.attached);
        assert_eq!(info.command, [target(&runs)]);
        assert!(info.ranks.iter().all(|rank| rank.exe.ends_with("/loop_forever")));
        let during: Vec<_> = runs.iter().map(|run| look_of(run.pid())).collect();
        assert_eq!(during, before, "attaching stops nothing and changes nothing");
        let mut events = app.events();
        app.close(SOON).await.expect("close");
        let mut names = Vec::new();
        while let Some(event) = events.next().await {
            names
                .push(serde_json::to_value(event).expect("JSON")["event"].as_str().unwrap_or("?").to_owned());
        }
        assert_eq!(names, ["attached", "detached"]);
        let after: Vec<_> = runs.iter().map(|run| look_of(run.pid())).collect();
        assert_eq!(after, before);
    });
}

fn looks_of(pids: &[i32]) -> Vec<Vec<String>> {
    pids.iter().map(|pid| look_of(*pid)).collect()
}

/// The fake cluster has no such apps: only gantry starts programs on it.
#[test]
fn a_foreign_app_gets_daemons_and_is_left_unchanged() {
    on_every_wlm(LIMIT, async |site| {
        let Some(mut others) = site.others() else { return };
        let before = looks_of(&others.ranks);
        let app = attach(site, &others.target).await;
        assert_eq!((app.state(), app.info().attached), (AppState::Running, true));
        let mut found = pids(&app);
        found.sort_unstable();
        assert_eq!(found, others.ranks);
        let session = app.session(SOON).await.expect("a session");
        let request = DaemonRequest::new(programs::get("loop_forever"));
        let daemon = session.manifest().exec_daemon(request, SOON).await.expect("daemons");
        let daemons = daemon_pids(&app, &daemon);
        assert_eq!(daemons.len(), app.placement().hosts().count());
        assert_eq!(looks_of(&others.ranks), before, "attaching stops nothing and changes nothing");
        app.close(SOON).await.expect("close");
        assert!(!daemons.iter().any(|pid| proc::is_alive(*pid)));
        assert_eq!(looks_of(&others.ranks), before);

        for killed in ["tool", "guard", "agent"] {
            let mut tool = site.tool();
            tool.ask(&format!("attach {}", others.target));
            tool.ask("session");
            let program = programs::get("loop_forever").display().to_string();
            let daemons = site.seen(&tool.ask(&format!("daemon {program}")));
            let guards = guards(&site.world);
            assert_eq!(guards.len(), 1, "{guards:?}");
            match killed {
                "tool" => tool.run.kill(),
                "guard" => {
                    proc::send(guards[0], nix::sys::signal::Signal::SIGKILL);
                    proc::eventually(SOON, "its daemons are gone", || {
                        !daemons.iter().any(|it| proc::is_alive(*it))
                    });
                    tool.run.close_stdin();
                }
                _ => {
                    proc::send(site.agents(&daemons)[0], nix::sys::signal::Signal::SIGKILL);
                    tool.event("nodes_lost");
                    tool.run.close_stdin();
                }
            }
            tool.run.exited(SOON);
            let helpers = || agents(&site.world).into_iter().chain(daemons.iter().copied());
            let gone = || !helpers().any(proc::is_alive);
            proc::eventually(SOON, "agents and daemons are gone", gone);
            assert_eq!(looks_of(&others.ranks), before, "{killed}");
            site.sweep_sockets();
        }

        // A launcher that loses a rank may kill the others.
        proc::send_those_left(others.ranks.iter().copied(), nix::sys::signal::Signal::SIGKILL);
        others.launcher.exited(SOON);
    });
}

#[test]
fn a_foreign_app_is_ended_on_request() {
    on_every_wlm(LIMIT, async |site| {
        let Some(mut others) = site.others() else { return };
        let app = attach(site, &others.target).await;
        app.signal(Signal::TERM, Some(&"1".parse().expect("a rank")), SOON).await.expect("a signal");
        let second = pids(&app)[1];
        proc::eventually(SOON, "rank 1 is gone", || !proc::is_alive(second));
        app.kill(SOON).await.expect("kill");
        assert!(!others.ranks.iter().any(|pid| proc::is_alive(*pid)));
        others.launcher.exited(SOON);
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn a_stopped_process_is_found_and_left_stopped() {
    on_processes(LIMIT, async |site| {
        let runs = waiting(site, 1);
        let pid = runs[0].pid();
        runs[0].signal(nix::sys::signal::Signal::SIGSTOP);
        proc::eventually(SOON, "it is stopped", || proc::state(pid) == Some('T'));
        let before = look_of(pid);
        let app = attach(site, &pid.to_string()).await;
        drop(app.session(SOON).await.expect("a session"));
        app.close(SOON).await.expect("close");
        assert_eq!(look_of(pid), before);
    });
}

#[test]
fn fifty_times_in_a_row_changes_nothing() {
    on_processes(LIMIT, async |site| {
        let runs = waiting(site, 2);
        let before: Vec<_> = runs.iter().map(|run| look_of(run.pid())).collect();
        let own = gantry_tests::fds::Census::take();
        for _ in 0..50 {
            let app = attach(site, &target(&runs)).await;
            assert_eq!(app.info().ranks.len(), 2);
            app.close(SOON).await.expect("close");
        }
        let after: Vec<_> = runs.iter().map(|run| look_of(run.pid())).collect();
        assert_eq!(after, before);
        own.assert_no_growth(SOON);
    });
}

#[test]
fn two_tools_attach_to_the_same_processes_at_once() {
    on_processes(LIMIT, async |site| {
        let runs = waiting(site, 2);
        let (one, two) = (attach(site, &target(&runs)).await, attach(site, &target(&runs)).await);
        assert_ne!(one.id(), two.id());
        one.close(SOON).await.expect("close");
        assert_eq!(two.state(), AppState::Running);
        two.signal(Signal::TERM, Some(&"1".parse().expect("a rank")), SOON).await.expect("a signal");
        proc::wait_gone(runs[1].pid(), SOON);
        assert!(proc::is_alive(runs[0].pid()));
        two.close(SOON).await.expect("close");
    });
}

#[test]
fn daemons_beside_attached_ranks_know_their_pids() {
    on_processes(LIMIT, async |site| {
        let runs = waiting(site, 2);
        let app = attach(site, &target(&runs)).await;
        let session = app.session(SOON).await.expect("a session");
        let request = DaemonRequest::new(binaries().dir.join("backend_probe")).output(DaemonOutput::Forward);
        let daemon = session.manifest().exec_daemon(request, SOON).await.expect("a daemon");
        let mut output = daemon.take_output().expect("the output");
        let piece = output.next().await.expect("a line");
        let said: serde_json::Value = serde_json::from_slice(&piece.data.0).expect("JSON");
        let told: Vec<i64> =
            said["ranks"].as_array().expect("ranks").iter().filter_map(|rank| rank["pid"].as_i64()).collect();
        assert_eq!(told, runs.iter().map(|run| i64::from(run.pid())).collect::<Vec<_>>());
        assert!(
            said["ranks"].as_array().expect("ranks").iter().all(|rank| rank["state"] == "Running"),
            "{said}"
        );
        let root = session.dirs(NodeId(0)).expect("directories").root.clone();
        app.close(SOON).await.expect("close");
        assert!(!root.exists());
        assert!(runs.iter().all(|run| proc::is_alive(run.pid())));
    });
}

#[test]
fn the_end_of_attached_ranks_is_seen() {
    on_processes(LIMIT, async |site| {
        let mut runs = waiting(site, 2);
        let app = attach(site, &target(&runs)).await;
        let mut events = app.events();
        runs[1].kill();
        loop {
            if let Event::RankExited { rank, status, .. } = events.next().await.expect("an event") {
                assert_eq!(rank.0, 1);
                // How it ended is its parent's to know; newer kernels tell others too.
                assert!(status.code.is_none(), "{status:?}");
                break;
            }
        }
        app.signal(Signal::TERM, None, SOON).await.expect("a signal");
        assert_eq!(runs[0].wait(SOON).code(), 128 + libc::SIGTERM);
        let exit = app.wait().await.expect("the end");
        assert_eq!(exit.ranks.len(), 2);
        assert_ne!(exit.code, 0, "{exit:?}");
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn an_attached_app_is_killed_when_that_is_asked_for() {
    on_processes(LIMIT, async |site| {
        let mut runs = waiting(site, 2);
        let app = attach(site, &target(&runs)).await;
        app.kill(SOON).await.expect("kill");
        for run in &mut runs {
            assert_eq!(run.wait(SOON).code(), 137);
        }
        app.close(SOON).await.expect("close");
    });
}

/// A launcher as there are many: it has a helper, which has the ranks, which have children.
fn launcher(site: &Site) -> PathBuf {
    let program = programs::get("loop_forever").display().to_string();
    let helper = format!(
        "#!/bin/sh\nfor rank in 2 0 1; do\n  PMI_SIZE=3 PMI_RANK=$rank sh -c 'sh -c \"sleep 600\" & exec {program}' &\ndone\nwait\n"
    );
    let helper = site.world.executable("helper", helper.as_bytes()).display().to_string();
    site.world.executable("launcher", format!("#!/bin/sh\n{helper} &\nwait\n").as_bytes())
}

#[test]
fn a_launchers_pid_stands_for_the_ranks_beneath_it() {
    on_processes(LIMIT, async |site| {
        let mut run = site.world.start(&launcher(site), [""; 0]);
        for _ in 0..3 {
            assert_eq!(run.next_line(SOON), "looping");
        }
        let app = attach(site, &run.pid().to_string()).await;
        let ranks = pids(&app);
        assert_eq!(ranks.len(), 3);
        for (rank, pid) in ranks.iter().enumerate() {
            assert_eq!(proc::variable(*pid, "PMI_RANK"), Some(rank.to_string()));
            assert!(proc::exe(*pid).is_some_and(|exe| exe.ends_with("loop_forever")));
        }
        app.close(SOON).await.expect("close");
        assert!(ranks.iter().all(|pid| proc::is_alive(*pid)) && proc::is_alive(run.pid()));
        // The script's children are no children of ours: the world ends them by their tag.
        for pid in site.world.processes() {
            proc::send(pid, nix::sys::signal::Signal::SIGKILL);
        }
    });
}

#[test]
fn mpiexecs_pid_stands_for_its_ranks() {
    let mpiexec = require!(tool("mpiexec.mpich").or_else(|_| tool("mpiexec.hydra")));
    on_processes(LIMIT, async |site| {
        let program = programs::get("loop_forever");
        let mut run = site.world.start(&mpiexec, ["-n".as_ref(), "4".as_ref(), program.as_os_str()]);
        for _ in 0..4 {
            assert_eq!(run.next_line(SOON), "looping");
        }
        let app = attach(site, &run.pid().to_string()).await;
        let ranks = pids(&app);
        assert_eq!(ranks.len(), 4);
        for (rank, pid) in ranks.iter().enumerate() {
            assert_eq!(proc::variable(*pid, "PMI_RANK"), Some(rank.to_string()));
        }
        app.close(SOON).await.expect("close");
        assert!(proc::is_alive(run.pid()) && ranks.iter().all(|pid| proc::is_alive(*pid)));
        run.signal(nix::sys::signal::Signal::SIGINT);
        run.exited(SOON);
    });
}

#[test]
fn an_invalid_target_is_refused_with_its_reason() {
    on_processes(LIMIT, async |site| {
        let mut gone = waiting(site, 1);
        let pid = gone[0].pid();
        gone[0].kill();
        gone[0].exited(SOON);
        let cases = [
            (pid.to_string(), Kind::NotFound, format!("no process {pid}")),
            ("x".to_owned(), Kind::Invalid, "'x' is not a pid".to_owned()),
            ("-1".to_owned(), Kind::Invalid, "is not a pid".to_owned()),
            (String::new(), Kind::Invalid, "is not a pid".to_owned()),
            ("nowlm:5".to_owned(), Kind::Invalid, "no workload manager is named 'nowlm'".to_owned()),
        ];
        for (target, kind, text) in cases {
            let error = site.frontend().attach(&target, SOON).await.expect_err("no such target");
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(&text), "{error} has no {text}");
        }
        let one = waiting(site, 1);
        let twice = format!("{0},{0}", one[0].pid());
        assert_eq!(site.frontend().attach(&twice, SOON).await.expect_err("twice").kind(), Kind::Invalid);
    });
}
