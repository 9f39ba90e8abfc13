//! Tool daemons: started beside the ranks, with knowledge of their place, with output, and ended.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use gantry_frontend::{App, Daemon, DaemonRequest, Event, Session};
use gantry_tests::{SOON, binaries, daemon_pids, on_every_wlm, on_every_wlm_but, proc, programs};
use gantry_types::error::Kind;
use gantry_types::id::NodeId;
use gantry_types::output::{DaemonOutput, Stream};
use gantry_types::signal::Signal;
use gantry_types::status::ExitStatus;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(90);

fn probe() -> DaemonRequest {
    DaemonRequest::new(binaries().dir.join("backend_probe")).output(DaemonOutput::Forward)
}

async fn start(session: &Session, request: DaemonRequest) -> Daemon {
    let started = session.manifest().exec_daemon(request, SOON).await;
    started.unwrap_or_else(|error| panic!("start a daemon: {error}, hint {:?}", error.hint()))
}

/// A daemon's output, by host and stream, until it has ended everywhere.
async fn heard(daemon: &Daemon) -> BTreeMap<(String, Stream), String> {
    let mut texts = BTreeMap::<_, Vec<u8>>::new();
    let mut output = daemon.take_output().expect("the output");
    assert!(daemon.take_output().is_none(), "output is taken once");
    while let Some(piece) = output.next().await {
        assert_eq!((piece.daemon, piece.rank), (Some(daemon.id()), None));
        texts.entry((piece.host, piece.stream)).or_default().extend(piece.data.0);
    }
    texts.into_iter().map(|(key, text)| (key, String::from_utf8(text).expect("text"))).collect()
}

/// The JSON that each node's probe printed, in the order of nodes.
async fn said(app: &App, daemon: &Daemon) -> Vec<Value> {
    let texts = heard(daemon).await;
    let hosts: Vec<String> = app.placement().hosts().map(str::to_owned).collect();
    let of = |(node, _): &(NodeId, _)| {
        let text = &texts[&(hosts[node.index()].clone(), Stream::Stdout)];
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
    };
    daemon.processes().iter().map(of).collect()
}

#[test]
fn a_daemon_on_every_node_agrees_with_the_frontend() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(site.spread(4, 8, &["/bin/true"])).await;
        let session = app.session(SOON).await.expect("a session");
        let daemon = start(&session, probe().args(["exit", "0"])).await;
        assert_eq!(daemon.processes().len(), 4);
        let placement = app.placement();
        for (node, said) in said(&app, &daemon).await.into_iter().enumerate() {
            let node = NodeId(u32::try_from(node).expect("a small number"));
            let expected: Vec<(u32, i32)> = placement
                .iter()
                .filter(|place| place.node == node)
                .map(|place| (place.rank.0, place.pid.expect("a pid").get()))
                .collect();
            let ranks: Vec<(u32, i32)> = said["ranks"]
                .as_array()
                .expect("ranks")
                .iter()
                .map(|rank| (number(&rank["rank"]), number(&rank["pid"])))
                .collect();
            assert_eq!(ranks, expected, "{said}");
            assert!(
                said["ranks"].as_array().expect("ranks").iter().all(|rank| rank["state"] == "Held"),
                "{said}"
            );
            assert_eq!(said["ranks"][0]["exe"], app.info().ranks[0].exe.as_str());
            assert_eq!(said["app"], app.id().to_string());
            assert_eq!(said["wlm"], app.wlm());
            assert_eq!(said["host"].as_str(), placement.host(node));
            assert_eq!(
                (number::<u32>(&said["node"]), number::<u32>(&said["nodes"]), number::<u32>(&said["size"])),
                (node.0, 4, 8)
            );
            assert_eq!((number::<u32>(&said["first"]), number::<u32>(&said["here"])), (expected[0].0, 2));
            assert_eq!(number::<i32>(&said["pid"]), daemon.processes()[node.index()].1.get());
            let dirs = session.dirs(node).expect("directories");
            assert_eq!(said["root"].as_str(), dirs.root.to_str());
            assert_eq!(said["TMPDIR"].as_str(), dirs.tmp.to_str());
            let first =
                |name: &str| said[name].as_str().and_then(|list| list.split(':').next()).map(str::to_owned);
            assert_eq!(first("PATH").as_deref(), dirs.bin.to_str());
            assert_eq!(first("LD_LIBRARY_PATH").as_deref(), dirs.lib.to_str());
            assert_eq!(said["cwd"].as_str(), dirs.root.to_str());
        }
        app.close(SOON).await.expect("close");
    });
}

fn number<T: TryFrom<i64>>(value: &Value) -> T {
    value
        .as_i64()
        .and_then(|number| T::try_from(number).ok())
        .unwrap_or_else(|| panic!("{value} is no such number"))
}

#[test]
fn a_daemon_runs_on_the_nodes_that_were_named() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(site.spread(4, 8, &["/bin/true"])).await;
        let session = app.session(SOON).await.expect("a session");
        let request = probe().nodes("1,3".parse().expect("nodes"));
        let daemon = start(&session, request.args(["exit", "3"])).await;
        let nodes: Vec<u32> = daemon.processes().iter().map(|(node, _)| node.0).collect();
        assert_eq!(nodes, [1, 3]);
        let said = said(&app, &daemon).await;
        assert_eq!(said.iter().map(|said| number::<u32>(&said["node"])).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(daemon.wait().await, [(NodeId(1), ExitStatus::Code(3)), (NodeId(3), ExitStatus::Code(3))]);
        for (nodes, text) in [("7", "no node of number 7"), ("", "for no node")] {
            let request = probe().nodes(nodes.parse().expect("nodes"));
            let error = session.manifest().exec_daemon(request, SOON).await.expect_err("no such nodes");
            assert_eq!(error.kind(), Kind::Invalid);
            assert!(error.to_string().contains(text), "{error}");
        }
        app.close(SOON).await.expect("close");
    });
}

/// A daemon that prints `answer 42` with the help of a library that is beside it, in a folder that other nodes do not see.
#[expect(clippy::disallowed_methods, reason = "a test is the user: it compiles a program")]
fn asks(folder: &Path) -> PathBuf {
    let made = |words: &[&str]| {
        let done = Command::new("cc").current_dir(folder).args(words).output().expect("a compiler");
        assert!(done.status.success(), "{done:?}");
    };
    fs::write(folder.join("lib.c"), "int answer(void) { return 42; }\n").expect("a file");
    let text = "#include <stdio.h>\nint answer(void);\nint main(void) { printf(\"answer %d\\n\", answer()); return 0; }\n";
    fs::write(folder.join("main.c"), text).expect("a file");
    made(&["-shared", "-fPIC", "-o", "libanswer.so", "lib.c"]);
    made(&["-o", "asks", "main.c", "-L.", "-lanswer", "-Wl,--enable-new-dtags,-rpath,$ORIGIN"]);
    folder.join("asks")
}

#[test]
fn a_daemon_brings_libraries_that_no_node_has() {
    on_every_wlm(LIMIT, async |site| {
        let folder = tempfile::tempdir().expect("a folder");
        let app = site.held(site.spread(2, 2, &["/bin/true"])).await;
        let session = app.session(SOON).await.expect("a session");
        let request = DaemonRequest::new(asks(folder.path())).output(DaemonOutput::Forward);
        let daemon = start(&session, request).await;
        let texts = heard(&daemon).await;
        assert_eq!(texts.len(), 2, "{texts:?}");
        assert!(texts.values().all(|text| text == "answer 42\n"), "{texts:?}");
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn a_daemon_gets_its_arguments_and_environment() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(["-n", "1", "/bin/true"]).await;
        let session = app.session(SOON).await.expect("a session");
        let args = ["a b", "", "--", "-n"];
        let request =
            probe().args(args).env("EXTRA", "x=y").env("TMPDIR", "/nowhere").env("LD_LIBRARY_PATH", "/mine");
        let daemon = start(&session, request).await;
        let said = &said(&app, &daemon).await[0];
        assert_eq!(said["args"], serde_json::json!(args));
        assert_eq!(said["EXTRA"], "x=y");
        let dirs = session.dirs(NodeId(0)).expect("directories");
        assert_eq!(said["TMPDIR"].as_str(), dirs.tmp.to_str(), "the session's directories win");
        assert_eq!(said["LD_LIBRARY_PATH"], format!("{}:/mine", dirs.lib.display()));
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn a_daemons_output_is_forwarded_logged_or_dropped() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(site.spread(2, 2, &["/bin/true"])).await;
        let session = app.session(SOON).await.expect("a session");
        let hosts: Vec<String> = app.placement().hosts().map(str::to_owned).collect();

        let forwarded = start(&session, probe()).await;
        let texts = heard(&forwarded).await;
        for host in &hosts {
            assert!(texts[&(host.clone(), Stream::Stdout)].starts_with('{'), "{texts:?}");
            assert_eq!(texts[&(host.clone(), Stream::Stderr)], "on stderr\n");
        }

        let folder = site.world.work_dir();
        let logged = start(&session, probe().output(DaemonOutput::Log(folder.clone().into()))).await;
        assert!(logged.take_output().is_none());
        assert!(logged.wait().await.iter().all(|(_, status)| status.is_success()));
        for host in &hosts {
            let read = |end: &str| {
                let name = format!("gantry-{}-d{}-{host}.{end}", app.id(), logged.id());
                fs::read_to_string(folder.join(&name)).unwrap_or_else(|error| panic!("{name}: {error}"))
            };
            assert!(read("out").starts_with('{') && read("out").ends_with("}\n"));
            assert_eq!(read("err"), "on stderr\n");
        }

        let dropped = start(&session, probe().output(DaemonOutput::Drop)).await;
        assert!(dropped.take_output().is_none());
        assert!(dropped.wait().await.iter().all(|(_, status)| status.is_success()));
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn much_output_of_a_daemon_is_neither_lost_nor_in_the_way_of_another() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(site.spread(2, 2, &["/bin/true"])).await;
        let session = app.session(SOON).await.expect("a session");
        let flood =
            DaemonRequest::new(programs::get("flood")).args(["5000000"]).output(DaemonOutput::Forward);
        let (stopped, read) = (start(&session, flood.clone()).await, start(&session, flood).await);
        // The first stream is not read while the second one is read to its end.
        let texts = heard(&read).await;
        assert!(texts.values().all(|text| text.len() == 5_000_000) && texts.len() == 2);
        let texts = heard(&stopped).await;
        assert!(texts.values().all(|text| text.len() == 5_000_000) && texts.len() == 2);
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn a_daemons_start_and_end_are_events_in_order() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(site.spread(2, 2, &["/bin/true"])).await;
        let mut events = app.events();
        let session = app.session(SOON).await.expect("a session");
        let quick = start(&session, DaemonRequest::new(programs::get("exit_with")).args(["5"])).await;
        assert!(quick.wait().await.iter().all(|(_, status)| *status == ExitStatus::Code(5)));
        let slow = start(&session, DaemonRequest::new(programs::get("loop_forever"))).await;
        slow.signal(Signal::TERM, SOON).await.expect("a signal");
        assert!(slow.wait().await.iter().all(|(_, status)| *status == ExitStatus::Signal(Signal::TERM)));
        let error = slow.signal(Signal::TERM, SOON).await.expect_err("it has ended");
        assert_eq!(error.kind(), Kind::Gone);
        let info = app.info();
        assert_eq!(info.daemons.len(), 4);
        assert!(info.daemons.iter().all(|daemon| daemon.ended));
        app.close(SOON).await.expect("close");
        let mut seen = BTreeMap::<(u32, String), Vec<String>>::new();
        while let Some(event) = events.next().await {
            match event {
                Event::DaemonStarted { daemon, host, .. } => {
                    seen.entry((daemon.0, host)).or_default().push("started".to_owned())
                }
                Event::DaemonExited { daemon, host, status, .. } => {
                    let how = format!(
                        "{:?} {}",
                        status.code,
                        status.signal.map_or_else(String::new, |signal| signal.to_string())
                    );
                    seen.entry((daemon.0, host)).or_default().push(how);
                }
                _ => {}
            }
        }
        assert_eq!(seen.len(), 4);
        for ((daemon, _), story) in seen {
            let end = if daemon == quick.id().0 { "Some(5) " } else { "None SIGTERM" };
            assert_eq!(story, ["started", end]);
        }
    });
}

#[test]
fn a_daemon_stays_when_ranks_run_and_gets_time_when_they_have_ended() {
    // There agents have a step of their own in the job that srun makes, and that job ends with the ranks.
    on_every_wlm_but("slurm by mpir", LIMIT, async |site| {
        let app = site.held(["-n", "2", "/bin/true"]).await;
        let session = app.session(SOON).await.expect("a session");
        // It notices the ranks' end itself, and then takes its time to write its results.
        let report = site.world.work_dir().join("report");
        let script = format!(
            "#!/bin/sh\nwhile [ -d /proc/$1 ]; do sleep 0.01; done\nsleep 0.3\necho found > {}\n",
            report.display()
        );
        let rank = app.info().ranks[0].pid.expect("a pid").to_string();
        start(&session, DaemonRequest::new(site.world.executable("late", script.as_bytes())).args([rank]))
            .await;
        app.release(SOON).await.expect("release");
        app.wait().await.expect("the end");
        app.gone().await;
        assert_eq!(fs::read_to_string(report).expect("the report"), "found\n");
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn destroying_a_session_asks_its_daemons_to_end_and_no_others() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(["-n", "1", "/bin/true"]).await;
        let (one, two) =
            (app.session(SOON).await.expect("a session"), app.session(SOON).await.expect("a session"));
        let report = DaemonRequest::new(programs::get("report_signal")).output(DaemonOutput::Forward);
        let (ours, other) = (start(&one, report.clone()).await, start(&two, report).await);
        let mut output = ours.take_output().expect("the output");
        assert_eq!(output.next().await.expect("a line").data.0, b"ready\n");
        one.destroy(SOON).await.expect("destroy");
        assert_eq!(output.next().await.expect("a line").data.0, b"got SIGTERM\n");
        assert_eq!(ours.wait().await, [(NodeId(0), ExitStatus::Code(40 + libc::SIGTERM))]);
        assert!(proc::is_alive(daemon_pids(&app, &other)[0]));
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn a_daemon_that_ignores_sigterm_is_killed_after_its_grace() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(["-n", "1", "/bin/true"]).await;
        let session = app.session(SOON).await.expect("a session");
        let daemon =
            start(&session, DaemonRequest::new(programs::get("ignore_term")).output(DaemonOutput::Forward))
                .await;
        let mut output = daemon.take_output().expect("the output");
        assert_eq!(output.next().await.expect("a line").data.0, b"ready\n");
        let before = Instant::now();
        session.destroy(SOON).await.expect("destroy");
        let took = before.elapsed();
        assert_eq!(daemon.wait().await, [(NodeId(0), ExitStatus::Signal(Signal::KILL))]);
        assert!(took >= Duration::from_secs(10), "its grace time was only {took:?}");
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn background_children_of_a_daemon_end_with_the_app() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(["-n", "1", "/bin/true"]).await;
        let session = app.session(SOON).await.expect("a session");
        for how in ["end", "session", "stay"] {
            start(&session, DaemonRequest::new(programs::get("fork_child")).args([how])).await;
        }
        app.close(SOON).await.expect("close");
        site.world.assert_nothing_left();
    });
}
