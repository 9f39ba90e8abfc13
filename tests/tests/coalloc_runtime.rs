//! How processes of a co-allocated job work together: the barrier that they call, and the messages between them.

use std::path::Path;

use gantry_tests::{Run, SOON, World, binaries, proc};

/// A subjob on this machine that performs these steps.
fn part(label: &str, steps: &str, more: &str) -> String {
    let program = binaries().dir.join("job_probe").display().to_string();
    format!(
        "(&(resourceManagerContact=localhost)(label={label})(barrierPoint=runtime)(executable=\"{program}\")(arguments={steps}){more})"
    )
}

#[track_caller]
fn ends_well(world: World, parts: &[String]) {
    let done = world.gantry(["coalloc", "-s", &format!("+{}", parts.concat())]).wait(SOON);
    assert_eq!((done.code(), done.stderr.join("\n").as_str()), (0, ""), "{done:?}");
    world.finish();
}

fn states(run: &mut Run, label: &str) -> Vec<String> {
    let of_it =
        run.events().into_iter().filter(|event| event["event"] == "subjob" && event["label"] == label);
    let states = of_it.map(|event| event["state"].as_str().unwrap_or_default().to_owned());
    let mut states: Vec<String> = states.collect();
    states.dedup();
    states
}

#[track_caller]
fn reach(run: &mut Run, label: &str, state: &str) {
    loop {
        let event = run.next_event("subjob", SOON);
        if event["label"] == label && event["state"] == state {
            return;
        }
    }
}

fn quoted(step: &str, path: &Path) -> String {
    format!("\"{step}:{}\"", path.display())
}

#[test]
fn programs_that_call_the_barrier_run_until_there_and_pass_it_together() {
    let world = World::new();
    let path = |name: &str| world.work_dir().join(name);
    let steps = |name: &str| {
        let (before, after) = (path(&format!("{name}-before")), path(&format!("{name}-after")));
        format!("{} barrier {}", quoted("mark-rank", &before), quoted("mark-rank", &after))
    };
    let spec = format!("+{}{}", part("a", &steps("a"), "(count=2)"), part("b", &steps("b"), ""));
    let mut run = world.gantry(["coalloc", "-i", &spec]);
    run.stderr_line("a on localhost: checked in", SOON);
    run.stderr_line("b on localhost: checked in", SOON);
    for file in ["a-before.0", "a-before.1", "b-before.0"] {
        proc::wait_file(&path(file), SOON);
    }
    let after = ["a-after.0", "a-after.1", "b-after.0"].map(path);
    assert!(after.iter().all(|file| !file.exists()), "somebody has passed a barrier that was not released");
    run.write(b"C\n");
    assert_eq!(run.wait(SOON).code(), 0);
    assert!(after.iter().all(|file| file.exists()), "somebody has not passed");
    world.finish();
}

#[test]
fn one_rank_that_does_not_come_keeps_its_subjob_from_checking_in() {
    let world = World::new();
    let gate = world.work_dir().join("gate");
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // Rank 1 first waits for the gate. Rank 0 does not.
    let script = format!(
        "if [ $GANTRY_RANK = 1 ]; then read x < '{}'; fi; exec '{}' barrier",
        gate.display(),
        binaries().dir.join("job_probe").display()
    );
    let spec = format!(
        "+(&(resourceManagerContact=localhost)(label=late)(barrierPoint=runtime)(count=2)(executable=/bin/sh)(arguments=-c \"{script}\")){}",
        part("other", "barrier", "")
    );
    let mut run = world.gantry(["coalloc", "--json", &spec]);
    reach(&mut run, "other", "checked_in");
    assert!(!states(&mut run, "late").contains(&"checked_in".to_owned()), "it is not whole");
    std::fs::write(&gate, "go\n").unwrap();
    assert_eq!(run.wait(SOON).code(), 0);
    assert_eq!(states(&mut run, "late"), ["pending", "active", "checked_in", "released", "done"]);
    world.finish();
}

#[test]
fn a_token_goes_through_all_processes_of_all_subjobs() {
    let steps = "barrier ring:5";
    ends_well(
        World::new(),
        &[part("a", steps, "(count=3)"), part("b", steps, ""), part("c", steps, "(count=2)")],
    );
}

#[test]
fn processes_find_each_other() {
    let steps = "barrier bootstrap bootstrap";
    ends_well(
        World::new(),
        &[part("a", steps, "(count=3)"), part("b", steps, "(count=2)"), part("c", steps, "")],
    );
}

#[test]
fn all_may_send_much_before_anybody_takes_anything() {
    let steps = "barrier big:5000000 big:0 big:65536 big:65537";
    ends_well(World::new(), &[part("a", steps, ""), part("b", steps, "(count=2)"), part("c", steps, "")]);
}

#[test]
fn what_is_much_comes_in_its_order() {
    // 300 messages of 12 KB on average in each of four directions, and the same amount within the subjob of two
    // ranks.
    let steps = "barrier flow:300:10000";
    ends_well(World::new(), &[part("a", steps, "(count=2)"), part("b", steps, ""), part("c", steps, "")]);
}

#[test]
fn who_closes_its_connection_and_opens_another_one_goes_on() {
    // The other side sends nothing before it knows of the new connection.
    let steps = |more: &str| format!("barrier flow:40:10000 {more} pingpong:40");
    ends_well(World::new(), &[part("a", &steps("disconnect"), ""), part("b", &steps(""), "")]);
}

#[test]
fn messages_are_taken_in_any_order_by_any_thread() {
    let steps = "barrier order threads strangers barrier";
    ends_well(World::new(), &[part("a", steps, "(count=2)"), part("b", steps, "(count=2)")]);
}

#[test]
fn what_was_sent_is_delivered_though_its_sender_has_ended() {
    let steps = "barrier last-words:3000000";
    ends_well(World::new(), &[part("a", steps, ""), part("b", steps, "")]);
}

#[test]
fn who_takes_nothing_stops_who_sends_to_it() {
    let world = World::new();
    let file = world.work_dir().join("sent");
    let steps = format!("barrier {}", quoted("patient", &file));
    let spec = format!("+{}{}", part("a", &steps, ""), part("b", &steps, ""));
    let mut run = world.gantry(["coalloc", "-s", &spec]);
    proc::wait_file(&file, SOON);
    let sent: u64 = std::fs::read_to_string(&file).unwrap().parse().unwrap();
    // At most one mailbox, two windows, and the sockets' buffers are in flight.
    assert!((500_000..4_000_000).contains(&sent), "{sent} bytes are on their way");
    let done = run.wait(SOON);
    assert_eq!(done.code(), 0, "{done:?}");
    world.finish();
}

#[test]
fn an_independent_subjob_has_the_barrier_and_no_messages_of_others() {
    let independent = part("own", "barrier alone", "(count=2)(subjobCommsType=independent)");
    let steps = "barrier ring:2";
    ends_well(World::new(), &[part("a", steps, ""), independent, part("b", steps, "")]);
}

#[test]
fn a_subjob_without_barrier_passes_at_once_and_joins_with_the_others() {
    let world = World::new();
    let passed = world.work_dir().join("passed");
    let free =
        part("free", &format!("barrier {} ring:2", quoted("mark", &passed)), "(subjobStartType=no-barrier)");
    let spec = format!("+{}{free}", part("bound", "barrier ring:2", ""));
    let mut run = world.gantry(["coalloc", "-i", &spec]);
    proc::wait_file(&passed, SOON);
    run.stderr_line("bound on localhost: checked in", SOON);
    run.write(b"C\n");
    let done = run.wait(SOON);
    assert_eq!(done.code(), 0, "{done:?}");
    world.finish();
}

#[test]
fn the_end_of_a_subjob_is_told_to_those_that_wait_for_it() {
    ends_well(World::new(), &[part("a", "barrier outlive", ""), part("b", "barrier connect", "")]);
}

#[test]
fn who_waits_for_a_rank_is_told_that_it_has_ended() {
    let steps = "barrier leaves:1";
    ends_well(World::new(), &[part("a", steps, "(count=3)"), part("b", steps, "(count=2)")]);
}

#[test]
fn a_program_that_calls_the_barrier_is_a_job_by_itself_where_there_is_no_other() {
    let world = World::new();
    let probe = binaries().dir.join("job_probe").display().to_string();
    let done = world.gantry(["launch", "--", "-n", "3", &probe, "barrier", "ring:2", "bootstrap"]).wait(SOON);
    assert_eq!((done.code(), done.stderr.as_slice()), (0, [].as_slice()), "{done:?}");
    world.finish();
}

/// A subjob whose rank 1 ends before it reaches the barrier, beside a subjob that waits there.
fn one_ends_early(start: &str) -> (World, Run, std::path::PathBuf) {
    let world = World::new();
    let ran = world.work_dir().join("ran");
    let bad = part("bad", "exit-of-rank:1 barrier", &format!("(count=2)(subjobStartType={start})"));
    let good = part("good", &format!("barrier {}", quoted("mark", &ran)), "");
    let run = world.gantry(["coalloc", "--json", &format!("+{bad}{good}")]);
    (world, run, ran)
}

#[test]
fn a_rank_that_ends_before_the_barrier_ends_a_strict_job_for_all() {
    let (world, mut run, ran) = one_ends_early("strict-barrier");
    let done = run.wait(SOON);
    assert_eq!(done.code(), 68, "{done:?}");
    let error = done.events().into_iter().find(|event| event["event"] == "error").expect("an error");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("subjob bad failed") && message.contains("rank 1"), "{message}");
    assert_eq!(states(&mut run, "good").last().map(String::as_str), Some("failed"));
    assert!(!ran.exists(), "the other one has passed the barrier of a job that was killed");
    world.finish();
}

#[test]
fn a_rank_that_ends_before_the_barrier_ends_a_loose_subjob_alone() {
    let (world, mut run, ran) = one_ends_early("loose-barrier");
    assert_eq!(run.wait(SOON).code(), 137);
    assert_eq!(states(&mut run, "good"), ["pending", "active", "checked_in", "released", "done"]);
    assert_eq!(states(&mut run, "bad").last().map(String::as_str), Some("failed"));
    assert!(ran.exists());
    world.finish();
}

#[test]
fn a_rank_of_a_subjob_without_barrier_may_end_when_it_likes() {
    let (world, mut run, ran) = one_ends_early("no-barrier");
    assert_eq!(run.wait(SOON).code(), 7);
    assert_eq!(states(&mut run, "bad").last().map(String::as_str), Some("done"));
    assert!(ran.exists());
    world.finish();
}

#[test]
fn programs_that_wait_at_their_barrier_do_not_outlive_a_killed_control_side() {
    let world = World::new();
    let spec = format!("+{}{}", part("a", "barrier wait", "(count=2)"), part("b", "barrier wait", ""));
    let mut run = world.gantry(["coalloc", "-i", &spec]);
    run.stderr_line("a on localhost: checked in", SOON);
    run.kill();
    world.finish();
}
