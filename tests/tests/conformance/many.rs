//! Many at once: sessions in an app, apps in a tool, tools on a machine, and no crossed wires.

use std::collections::BTreeSet;
use std::time::Duration;

use gantry_frontend::{AppHandle, DaemonRequest, LaunchRequest, OutputTo};
use gantry_tests::{SOON, binaries, daemon_pids, on_every_wlm, outside, path_on, pids, proc, programs};
use gantry_types::id::NodeId;
use gantry_types::output::DaemonOutput;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(120);

#[test]
fn five_sessions_in_one_app_do_not_see_each_other() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(["-n", "2", "/bin/true"]).await;
        let mut sessions = Vec::new();
        for number in 0..5 {
            let session = app.session(SOON).await.expect("a session");
            let folder = site.world.work_dir().join(number.to_string());
            std::fs::create_dir(&folder).expect("a folder");
            std::fs::write(folder.join("same"), number.to_string()).expect("a file");
            let mut manifest = session.manifest();
            manifest.add_file(folder.join("same")).expect("a file");
            let request =
                DaemonRequest::new(binaries().dir.join("backend_probe")).output(DaemonOutput::Forward);
            let request = request.env("EXTRA", number.to_string()).args(["wait"]);
            let daemon = manifest.exec_daemon(request, SOON).await.expect("a daemon");
            sessions.push((session, daemon));
        }
        for (number, (session, daemon)) in sessions.iter().enumerate() {
            let dirs = session.dirs(NodeId(0)).expect("directories");
            let mut output = daemon.take_output().expect("the output");
            let piece = output.next().await.expect("a line");
            assert_eq!(piece.daemon, Some(daemon.id()));
            let said: Value = serde_json::from_slice(&piece.data.0).expect("JSON");
            assert_eq!(said["EXTRA"], number.to_string());
            assert_eq!(said["root"].as_str(), dirs.root.to_str());
            assert_eq!(said["pid"].as_i64(), Some(i64::from(daemon.processes()[0].1.get())));
            let same = outside::read_text(path_on(&app, NodeId(0), dirs.root.join("same")));
            assert_eq!(same, Some(number.to_string()));
        }
        // The end of one is the end of no other.
        let (third, ended) = sessions.remove(2);
        third.destroy(SOON).await.expect("destroy");
        assert!(!proc::is_alive(daemon_pids(&app, &ended)[0]));
        for (session, daemon) in &sessions {
            assert!(proc::is_alive(daemon_pids(&app, daemon)[0]));
            let root = &session.dirs(NodeId(0)).expect("directories").root;
            assert!(outside::exists(path_on(&app, NodeId(0), root.join("same"))));
        }
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn ten_apps_in_one_tool_keep_to_themselves() {
    on_every_wlm(LIMIT, async |site| {
        let program = programs::get("exit_with").display().to_string();
        let frontend = site.frontend();
        let mut launching = tokio::task::JoinSet::new();
        for number in 0..10_i32 {
            let (frontend, program) = (frontend.clone(), program.clone());
            launching.spawn(async move {
                let request = LaunchRequest::new(["-n", "4", &program, &number.to_string()]).hold(true);
                (number, frontend.launch(request.output(OutputTo::Stream), 2 * SOON).await.expect("a launch"))
            });
        }
        let apps = launching.join_all().await;
        let processes: BTreeSet<i32> = apps.iter().flat_map(|(_, app)| pids(app)).collect();
        let ids: BTreeSet<_> = apps.iter().map(|(_, app)| app.id()).collect();
        assert_eq!((processes.len(), ids.len()), (40, 10));
        assert!(processes.iter().all(|pid| proc::why_not_held(*pid).is_none()));
        // Half of them run to their end while the others stay as they are.
        let (run, stay): (Vec<_>, Vec<_>) = apps.into_iter().partition(|(number, _)| number % 2 == 0);
        for (number, app) in &run {
            app.release(SOON).await.expect("release");
            assert_eq!(app.wait().await.expect("the end").code, *number);
        }
        for (number, app) in stay {
            let mut alone = pids(&app);
            assert!(alone.iter().all(|pid| proc::why_not_held(*pid).is_none()));
            if number == 1 {
                drop(app);
                proc::eventually(SOON, "a dropped app has ended", || {
                    alone.retain(|pid| proc::is_alive(*pid));
                    alone.is_empty()
                });
                continue;
            }
            app.release(SOON).await.expect("release");
            assert_eq!(app.wait().await.expect("the end").code, number);
        }
    });
}

#[test]
fn handles_are_shared_by_tasks() {
    on_every_wlm(LIMIT, async |site| {
        let app = site.held(["-n", "2", "/bin/true"]).await;
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let app = AppHandle::clone(&app);
            tasks.spawn(async move {
                let session = app.session(SOON).await.expect("a session");
                let request = DaemonRequest::new("true");
                let daemon = session.manifest().exec_daemon(request, SOON).await.expect("a daemon");
                assert!(daemon.wait().await[0].1.is_success());
                session.destroy(SOON).await.expect("destroy");
                daemon.id().0
            });
        }
        let daemons: BTreeSet<u32> = tasks.join_all().await.into_iter().collect();
        assert_eq!(daemons.len(), 20);
        // Of two releases at once one is the first, and only that one may succeed or both see it done.
        let (one, two) = tokio::join!(app.release(SOON), app.release(SOON));
        assert!(one.is_ok() || two.is_ok());
        assert_eq!(app.wait().await.expect("the end").code, 0);
        app.close(SOON).await.expect("close");
    });
}

#[test]
fn two_tools_at_once_have_nothing_to_do_with_each_other() {
    on_every_wlm(LIMIT, async |site| {
        let program = programs::get("loop_forever").display().to_string();
        let ours = site.held(["-n", "2", "/bin/true"]).await;
        let session = ours.session(SOON).await.expect("a session");
        let mut other = site.tool();
        let held = other.ask(&format!("hold -n 3 {program}"));
        let theirs = site.seen(&held);
        let root = other.ask("session")["root"].as_str().expect("a folder").to_owned();
        let root = outside::path_on(held["hosts"][0].as_str().expect("a host"), root);
        let daemon = site.seen(&other.ask(&format!("daemon {program}")))[0];
        assert_eq!(theirs.len(), 3);
        assert!(theirs.iter().chain(&pids(&ours)).all(|pid| proc::why_not_held(*pid).is_none()));
        let our_root = path_on(&ours, NodeId(0), &session.dirs(NodeId(0)).expect("directories").root);
        assert_ne!(root.parent(), our_root.parent());
        ours.release(SOON).await.expect("release");
        assert_eq!(ours.wait().await.expect("the end").code, 0);
        ours.close(SOON).await.expect("close");
        assert!(!outside::exists(our_root) && outside::exists(root));
        assert!(theirs.iter().all(|pid| proc::why_not_held(*pid).is_none()));
        assert!(proc::is_alive(daemon));
        other.run.close_stdin();
        other.run.wait(SOON);
        for pid in theirs {
            proc::wait_gone(pid, SOON);
        }
    });
}
