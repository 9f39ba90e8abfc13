//! One job of several subjobs, from the command line: held together and released together. Also covers a subjob that
//! fails, is deleted or is late, and a control process that is killed.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use gantry_tests::fault::Tool;
use gantry_tests::slurm::on_cluster;
use gantry_tests::testbed::Config;
use gantry_tests::{Run, SOON, World, proc, programs};
use nix::sys::signal::Signal;

/// A subjob on this machine that creates the file `ran` when it runs, and then waits for its end.
fn waiting(label: &str, ran: &Path, more: &str) -> String {
    let program = programs::get("touch_and_wait");
    let (program, ran) = (program.display(), ran.display());
    format!(
        "(&(resourceManagerContact=localhost)(label={label})(executable={program})(arguments=\"{ran}\"){more})"
    )
}

fn shell(label: &str, script: &str, more: &str) -> String {
    let script = script.replace('"', "\"\"");
    format!(
        "(&(resourceManagerContact=localhost)(label={label})(executable=/bin/sh)(arguments=-c \"{script}\"){more})"
    )
}

fn files(world: &World, names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(|name| world.work_dir().join(name)).collect()
}

/// Waits until all these subjobs have reached this state, in any order.
#[track_caller]
fn reach(run: &mut Run, labels: &[&str], state: &str) {
    let mut left = labels.to_vec();
    while !left.is_empty() {
        let event = run.next_event("subjob", SOON);
        left.retain(|label| event["label"] != *label || event["state"] != state);
    }
}

/// The states that a subjob went through.
fn states(run: &mut Run, label: &str) -> Vec<String> {
    let of_it =
        run.events().into_iter().filter(|event| event["event"] == "subjob" && event["label"] == label);
    let states = of_it.map(|event| event["state"].as_str().unwrap_or_default().to_owned());
    let mut states: Vec<String> = states.collect();
    states.dedup();
    states
}

#[test]
fn all_parts_wait_for_the_last_one_and_go_together() {
    let world = World::new();
    let ran = files(&world, &["a", "b"]);
    let gate = world.work_dir().join("gate");
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // The last subjob is late until its input can be opened: the launch waits for that.
    let late =
        shell("late", "exit 3", &format!("(subjobStartType=loose-barrier)(stdin=\"{}\")", gate.display()));
    let spec = format!("+{}{}{}", waiting("a", &ran[0], "(count=2)"), waiting("b", &ran[1], ""), late);
    let mut run = world.gantry(["coalloc", "--json", &spec]);
    reach(&mut run, &["a", "b"], "checked_in");
    assert_eq!(states(&mut run, "late"), ["pending"]);
    assert!(ran.iter().all(|file| !file.exists()), "somebody ran before the last one was there");
    drop(std::fs::OpenOptions::new().write(true).open(gate).unwrap());
    reach(&mut run, &["late"], "checked_in");
    for file in &ran {
        proc::wait_file(file, SOON);
    }
    // A subjob runs a moment before the event reports it.
    reach(&mut run, &["a"], "released");
    assert_eq!(states(&mut run, "a"), ["pending", "active", "checked_in", "released"]);
    run.signal(nix::sys::signal::Signal::SIGINT);
    assert_eq!(run.wait(SOON).code(), 130);
    world.finish();
}

#[test]
fn the_first_code_that_is_not_0_is_the_jobs_and_output_comes_where_it_was_sent() {
    let world = World::new();
    let out = world.work_dir().join("out");
    let to_file = format!("(directory=\"{}\")(stdout=out)", world.work_dir().display());
    let spec = format!(
        "+(rsl_substitution=(WORD hello)){}{}{}",
        shell("file", "echo in the file", &to_file),
        "(&(resourceManagerContact=localhost)(executable=/bin/echo)(count=2)(arguments=$(WORD) $(HOME)))",
        shell("bad", "echo $LEVEL >&2; exit 3", "(environment=(LEVEL three))"),
    );
    let done = world.gantry(["coalloc", "-s", &spec]).wait(SOON);
    assert_eq!(done.code(), 3, "{done:?}");
    let home = std::env::vars().find(|(name, _)| name == "HOME").map(|(_, value)| value).unwrap_or_default();
    assert_eq!(done.stdout, vec![format!("hello {home}"); 2]);
    assert_eq!(done.stderr, ["three"]);
    assert_eq!(std::fs::read_to_string(out).unwrap(), "in the file\n");
    world.finish();
}

#[test]
fn output_files_are_emptied_when_their_first_subjob_starts_and_not_by_a_refused_request() {
    let world = World::new();
    let out = world.work_dir().join("out");
    let read = || std::fs::read_to_string(&out).unwrap();
    std::fs::write(&out, "old\n").unwrap();
    let stdout = format!("(stdout=\"{}\")", out.display());
    let both = format!("{stdout}(stderr=\"{}\")", out.display());
    let bad = "(&(resourceManagerContact=moon)(executable=x))";
    let done = world.gantry(["coalloc", &format!("+{}{bad}", shell("a", "echo new", &stdout))]).wait(SOON);
    assert_eq!((done.code(), read().as_str()), (64, "old\n"), "{done:?}");

    let mut run = world.gantry(["coalloc", "-i", &format!("+{}", shell("a", "echo new", ""))]);
    run.stderr_line("a on localhost: checked in", SOON);
    let again = shell("a", "echo new", &stdout);
    run.write(
        format!("A{}\n", again.trim_start_matches('(').trim_end_matches(')').to_owned() + ")").as_bytes(),
    );
    run.stderr_line("there is a subjob 'a' already", SOON);
    run.write(b"K\n");
    assert_eq!(run.wait(SOON).code(), 68);
    assert_eq!(read(), "old\n");

    let parts = [shell("a", "echo 1; echo 2 >&2; echo 3", &both), shell("b", "echo 4", &stdout)];
    let done = world.gantry(["coalloc", &format!("+{}", parts.concat())]).wait(SOON);
    assert_eq!(done.code(), 0, "{done:?}");
    let text = read();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["1", "2", "3", "4"]);
    world.finish();
}

/// A subjob that cannot be launched, beside a subjob that stays held until the failure is handled.
fn one_fails(start: &str) -> (World, Run, PathBuf) {
    let world = World::new();
    let ran = world.work_dir().join("ran");
    let bad = format!(
        "(&(resourceManagerContact=localhost)(label=bad)(executable=/nowhere/app)(subjobStartType={start}))"
    );
    let spec = format!("+{bad}{}", waiting("good", &ran, ""));
    let run = world.gantry(["coalloc", "--json", &spec]);
    (world, run, ran)
}

#[test]
fn a_strict_subjob_that_fails_takes_the_job_along() {
    let (world, mut run, ran) = one_fails("strict-barrier");
    let done = run.wait(SOON);
    assert_eq!(done.code(), 68, "{done:?}");
    let error = done.events().into_iter().find(|event| event["event"] == "error").expect("an error");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.starts_with("the job was killed: subjob bad failed: ") && message.contains("/nowhere/app"),
        "{message}"
    );
    assert_eq!(states(&mut run, "good").last().map(String::as_str), Some("failed"));
    assert!(!ran.exists(), "it ran though the job was killed before its release");
    world.finish();
}

#[test]
fn without_a_loose_subjob_the_others_go_on() {
    let (world, mut run, ran) = one_fails("loose-barrier");
    proc::wait_file(&ran, SOON);
    reach(&mut run, &["good"], "released");
    run.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(run.wait(SOON).code(), 143);
    assert_eq!(states(&mut run, "bad"), ["pending", "failed"]);
    world.finish();
}

#[test]
fn a_subjob_without_barrier_waits_for_nobody() {
    let world = World::new();
    let ran = files(&world, &["free", "bound"]);
    let spec = format!(
        "+{}{}",
        waiting("free", &ran[0], "(subjobStartType=no-barrier)"),
        waiting("bound", &ran[1], "")
    );
    let mut run = world.gantry(["coalloc", "-i", &spec]);
    proc::wait_file(&ran[0], SOON);
    run.stderr_line("bound on localhost: checked in", SOON);
    assert!(!ran[1].exists(), "it ran before its release");
    run.write(b"K\n");
    assert_eq!(run.wait(SOON).code(), 68);
    world.finish();
}

#[test]
fn an_interactive_job_is_changed_before_its_release_and_not_after() {
    let world = World::new();
    let ran = files(&world, &["kept", "out", "new"]);
    let spec = format!("+{}{}", waiting("kept", &ran[0], ""), waiting("out", &ran[1], ""));
    let mut run = world.gantry(["coalloc", "-i", &spec]);
    run.stderr_line("out on localhost: checked in", SOON);
    run.write(b"Dnobody\nDout\n");
    run.stderr_line("the job has no subjob 'nobody'", SOON);
    let mut add = String::from("A");
    writeln!(
        add,
        "{}",
        waiting("new", &ran[2], "").trim_start_matches('(').trim_end_matches(')').to_owned() + ")"
    )
    .unwrap();
    run.write(add.as_bytes());
    run.stderr_line("new on localhost: checked in", SOON);
    assert!(ran.iter().all(|file| !file.exists()), "somebody ran before the release");
    run.write(b"C\n");
    proc::wait_file(&ran[0], SOON);
    proc::wait_file(&ran[2], SOON);
    assert!(!ran[1].exists(), "what was taken out ran");
    run.write(b"Dkept\nC\n");
    run.stderr_line("the job is released", SOON);
    run.write(b"Q\n");
    assert_eq!(run.wait(SOON).code(), 0);
    world.finish();
}

#[test]
fn nothing_is_started_when_one_part_cannot_be_honoured() {
    let world = World::new();
    let ran = world.work_dir().join("ran");
    let check = |spec: &str, parts: &[&str]| {
        let done = world.gantry(["coalloc", spec]).wait(SOON);
        assert_eq!(done.code(), 64, "{done:?}");
        let said = done.stderr.join("\n");
        for part in parts {
            assert!(said.contains(part), "no {part:?} in {said}");
        }
    };
    let good = waiting("good", &ran, "(subjobStartType=no-barrier)");
    check(
        &format!("+{good}(&(resourceManagerContact=moon)(executable=x))"),
        &["subjob 1: no workload manager and no contact is named 'moon'", "known: "],
    );
    check(
        &format!("+{good}{}", waiting("b", &ran, "(project=x)")),
        &["subjob b: localhost cannot honour project"],
    );
    check(&format!("+{good}{good}"), &["two subjobs have the label 'good'"]);
    check(
        &format!("+{good}(&(resourceManagerContact=localhost)(executable=$(NOBODY)))"),
        &["$(NOBODY) has no meaning here", "^"],
    );
    check(
        &format!("+{good}{}", waiting("b", &ran, "(barrierPoint=somewhere)")),
        &["'barrierPoint' is one of exec, runtime"],
    );
    assert!(!ran.exists());
    world.finish();
}

#[test]
fn when_the_control_side_is_killed_nothing_goes_on() {
    let world = World::new();
    let ran = files(&world, &["held", "free"]);
    let spec = format!(
        "+{}{}",
        waiting("held", &ran[0], "(count=3)"),
        waiting("free", &ran[1], "(subjobStartType=no-barrier)")
    );
    let mut run = world.gantry(["coalloc", "-i", &spec]);
    run.stderr_line("held on localhost: checked in", SOON);
    proc::wait_file(&ran[1], SOON);
    run.kill();
    // The leak check waits until all processes of the job have ended.
    world.finish();
    assert!(!ran[0].exists());
}

#[test]
fn a_job_that_was_let_go_may_go_on_without_its_tool_and_no_other() {
    let world = World::new();
    let ran = files(&world, &["a", "b", "never"]);
    let program = programs::get("touch_and_wait").display().to_string();
    let of_program = || -> Vec<i32> {
        let all = world.processes().into_iter();
        all.filter(|pid| proc::command_line(*pid).starts_with(&program)).collect()
    };
    let mut tool = Tool::start(&world);
    tool.ask(&format!("coalloc +{}", waiting("never", &ran[2], "")));
    let refused = tool.refused("leave")["message"].to_string();
    assert!(refused.contains("the job is open, and cannot be left alone"), "{refused}");
    tool.ask(&format!("coalloc +{}{}", waiting("a", &ran[0], "(count=2)"), waiting("b", &ran[1], "")));
    tool.ask("let-go");
    tool.ask("leave");
    tool.run.kill();
    tool.run.exited(SOON);
    ran[..2].iter().for_each(|file| proc::wait_file(file, SOON));
    // Runs another job from start to end, so that effects of the kill have had time to happen.
    let done =
        world.gantry(["coalloc", "+(&(resourceManagerContact=localhost)(executable=/bin/true))"]).wait(SOON);
    assert_eq!(done.code(), 0, "{done:?}");
    assert!(!ran[2].exists(), "what was not let go has run");
    let left = of_program();
    assert_eq!(left.len(), 3, "it was left alone");
    proc::send_those_left(left, Signal::SIGKILL);
    world.finish();
}

#[test]
fn a_job_in_the_background_is_told_by_its_apps_and_ends_with_them() {
    let world = World::new();
    let ran = files(&world, &["a", "b"]);
    let spec = format!("+{}{}", waiting("a", &ran[0], ""), waiting("b", &ran[1], "(count=2)"));
    let done = world.gantry(["coalloc", "--background", &spec]).wait(SOON);
    assert_eq!((done.code(), done.stdout.len()), (0, 2), "{done:?}");
    ran.iter().for_each(|file| proc::wait_file(file, SOON));
    for app in &done.stdout {
        assert_eq!(world.gantry(["kill", app]).wait(SOON).code(), 0, "{app}");
    }
    // If the launch fails, the command reports it.
    let bad = "+(&(resourceManagerContact=localhost)(label=bad)(executable=/nowhere/app))";
    let done = world.gantry(["coalloc", "--background", bad]).wait(SOON);
    assert_eq!(done.code(), 68, "{done:?}");
    assert!(done.stderr.join("\n").contains("subjob bad failed"), "{done:?}");
    world.finish();
}

#[test]
fn a_fifo_that_nobody_opens_stops_nobody() {
    let world = World::new();
    let (gate, ran) = (world.work_dir().join("gate"), world.work_dir().join("ran"));
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let stdin = format!("(stdin=\"{}\")", gate.display());
    let spec = format!("+{}{}", shell("late", "exit 0", &stdin), waiting("good", &ran, ""));
    let mut run = world.gantry(["coalloc", "-i", &spec]);
    run.stderr_line("good on localhost: checked in", SOON);
    run.write(b"Dlate\nK\n");
    assert_eq!(run.wait(SOON).code(), 68);
    let done = world.gantry(["coalloc", "--timeout", "1", &spec]).wait(SOON);
    let said = done.stderr.join("\n");
    assert_eq!(done.code(), 67, "{said}");
    assert!(said.contains("waiting for a writer of the FIFO that is standard input"), "{said}");
    assert!(!ran.exists());
    world.finish();
}

#[test]
fn a_name_of_the_users_own_stands_for_a_manager() {
    let world = World::new();
    let contacts = world.work_dir().join("contacts");
    std::fs::write(&contacts, "laptop localhost # this one\n").unwrap();
    let mut command = world.gantry_command([
        "coalloc",
        "-s",
        "+(&(resourceManagerContact=laptop)(executable=/bin/echo)(arguments=here))",
    ]);
    command.env("GANTRY_CONTACTS", &contacts);
    let done = world.spawn(command).wait(SOON);
    assert_eq!((done.code(), done.stdout.as_slice()), (0, ["here".to_owned()].as_slice()), "{done:?}");
    // With `-q` gantry prints nothing, and the subjob's output is discarded.
    let spec = "+(&(resourceManagerContact=localhost)(executable=/bin/echo)(arguments=here))";
    let done = world.gantry(["coalloc", "-q", spec]).wait(SOON);
    assert_eq!((done.code(), done.stdout.len(), done.stderr.len()), (0, 0, 0), "{done:?}");
    let done = world.gantry(["coalloc", spec]).wait(SOON);
    assert!(done.stdout.is_empty() && done.stderr.join("\n").contains("the job is released"), "{done:?}");
    world.finish();
}

#[test]
fn a_job_spans_slurm_and_the_login_node() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let spec = "+(&(resourceManagerContact=slurm)(label=cluster)(count=2)(hostCount=2)(directory=/)(executable=/bin/sh)(arguments=-c \"hostname; exit 5\"))
            (&(resourceManagerContact=localhost)(label=login)(directory=/)(executable=/bin/sleep)(arguments=0.1))";
        let mut run = cluster.gantry(["coalloc", "--json", spec]);
        let done = run.wait(SOON);
        assert_eq!(done.code(), 5, "{done:?}");
        assert_eq!(states(&mut run, "cluster"), ["pending", "active", "checked_in", "released", "done"]);
        assert_eq!(states(&mut run, "login"), ["pending", "active", "checked_in", "released", "done"]);

        // The error has Slurm's own text. No local part is left.
        let bad = spec.replace("resourceManagerContact=slurm", "resourceManagerContact=\"slurm://nowhere\"");
        let done = cluster.gantry(["coalloc", &bad]).wait(SOON);
        assert_eq!(done.code(), 68, "{done:?}");
        assert!(done.stderr.join("\n").contains("invalid partition specified: nowhere"), "{done:?}");
    });
}
