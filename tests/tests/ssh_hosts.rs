//! Hosts that ssh cannot use. Each must be reported with its reason, before its timeout, and must not delay other
//! hosts. Also hosts that work at the second attempt.

use gantry_tests::fault::Tool;
use gantry_tests::slurm::{Cluster, error_of, lines_of};
use gantry_tests::ssh::{change, home_file, noexec, on_hosts, stop_sshd, with_login_shell, with_sshd_config};
use gantry_tests::testbed::{Config, program};
use gantry_tests::{Finished, SOON, eventually, proc};
use nix::sys::signal::Signal;

/// The launch must fail, and its error must contain all of these parts.
#[track_caller]
fn check_error(done: &Finished, parts: &[&str]) {
    assert_ne!(done.code(), 0, "{done:?}");
    let text = error_of(done)["message"].as_str().expect("a message").to_owned();
    for part in parts {
        assert!(text.contains(part), "no '{part}' in {text}");
    }
}

/// Unknown, changed and revoked keys, and a wrong user.
fn make_strangers(cluster: &Cluster) -> [gantry_tests::ssh::HomeFile; 2] {
    let keys = cluster.bed.login().path("/etc/ssh/ssh_known_hosts").expect("the login node");
    let keys = std::fs::read_to_string(keys).expect("keys");
    let of_first = keys.lines().next().and_then(|line| line.split_once(' ')).expect("a key").1.to_owned();
    let wrong = home_file(cluster, ".ssh/wrong", &format!("n003 {of_first}\n"));
    let config = home_file(
        cluster,
        ".ssh/config",
        "Host n002\n GlobalKnownHostsFile /dev/null\n UserKnownHostsFile /dev/null\n\
         Host n003\n GlobalKnownHostsFile /dev/null\n UserKnownHostsFile ~/.ssh/wrong\n\
         Host n004\n User nobody\n",
    );
    [wrong, config]
}

#[test]
fn every_host_that_cannot_be_had_is_named_with_its_reason() {
    on_hosts(Config::with_nodes(6), |cluster| {
        let _strangers = make_strangers(cluster);
        cluster.bed.node(5).power_off().expect("off");
        let stopped = stop_sshd(cluster, 6);
        let args = ["launch", "-v", "--json", "--cwd", "/", "--", "--hosts", "n[001-006],n999"];
        let mut run = cluster.gantry(args.iter().chain(&["--connect-timeout", "4", "/bin/true"]));
        // The other hosts do not delay the usable one.
        run.stderr_line("connected 1/7", SOON);
        let done = run.wait(SOON);
        drop(stopped);
        check_error(
            &done,
            &[
                "6 of 7 hosts have no agent",
                "n002: the host's key is not known: ssh-ed25519 SHA256:",
                "n003: the host's key has changed: now it is ssh-ed25519 SHA256:",
                "n004: it refuses the login (it accepts publickey): nobody@n004: Permission denied",
                "n005: ssh: connect to host n005 port 22: ",
                "n006: it accepts connections and sends nothing",
                "n999: ssh: Could not resolve hostname n999",
            ],
        );
        cluster.bed.node(5).power_on().expect("on");
        cluster.bed.wait_idle(2 * SOON).expect("Slurm has it again");
    });
}

/// A tool with an app on four hosts.
#[track_caller]
fn tool_on_four(cluster: &Cluster) -> Tool {
    let mut variables = vec![("FAULT_TOOL_WLM", "ssh")];
    variables.extend(&cluster.variables);
    let mut tool = cluster.tool(&variables);
    tool.ask("hold --hosts n[001-004] /bin/sleep 1000");
    tool
}

#[test]
fn a_session_is_where_every_host_can_have_it() {
    on_hosts(Config::with_nodes(4), |cluster| {
        let file = cluster.world.work_dir().join("settings");
        std::fs::write(&file, "a = b").expect("a file");
        let mut tool = tool_on_four(cluster);
        let root = tool.check_session_path(&file, 4);
        assert!(root.starts_with("/tmp"), "{}", root.display());
        tool.ask("close");
        // The default directory is not usable on one host, so all hosts use another one.
        let no_tmp = noexec(cluster, 3, &["/tmp"]);
        tool.ask("hold --hosts n[001-004] /bin/sleep 1000");
        let root = tool.check_session_path(&file, 4);
        assert!(root.starts_with("/var/tmp"), "{}", root.display());
        tool.ask("close");
        let _no_var_tmp = noexec(cluster, 2, &["/var/tmp"]);
        tool.ask("hold --hosts n[001-004] /bin/sleep 1000");
        let refused = tool.refused("session");
        let message = refused["message"].as_str().expect("a message");
        for part in ["n003: use /tmp (as on other nodes) for storage: mounted noexec", "n002: use /var/tmp"] {
            assert!(message.contains(part), "{refused}");
        }
        assert!(refused["hint"].as_str().expect("a hint").contains("--stage-dir"), "{refused}");
        let files = || cluster.bed.nodes().iter().flat_map(|node| node.user_files()).count();
        eventually(SOON, "what some hosts have made is removed", || files() == 0);
        tool.ask("close");
        drop(no_tmp);
    });
}

#[test]
fn a_launch_goes_on_without_hosts_as_its_policy_says() {
    on_hosts(Config::with_nodes(2), |cluster| {
        let on = |hosts: &str, policy: &str, more: &[&str]| {
            let args = [&["--hosts-policy", policy, "--", "--hosts", hosts], more].concat();
            cluster.launch(&args)
        };
        let launch = |policy: &str, more: &[&str]| on("n001:2,n999:2,n002:2", policy, more);
        let by = ["--map-by", "node", "/bin/sleep", "1000"];
        let mut run = launch("quorum=66%", &by);
        let started = run.next_event("started", SOON);
        let hosts = |list: &serde_json::Value| {
            let list = list.as_array().expect("a list");
            list.iter().filter_map(|it| it["host"].as_str().map(str::to_owned)).collect::<Vec<_>>()
        };
        assert_eq!(hosts(&started["ranks"]), ["n001", "n002", "n001", "n002"]);
        let app = started["app"].as_str().expect("an id");
        let told = run.next_event("hosts_left_out", SOON);
        assert_eq!(hosts(&told["hosts"]), ["n999"]);
        assert!(told.to_string().contains("Could not resolve hostname n999"), "{told}");
        let listed = cluster.ask(&["ps", "--json"]).stdout.concat();
        let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
        assert_eq!(listed[0]["left_out"], told["hosts"], "{listed}");
        cluster.ask(&["kill", app]);
        run.exited(SOON);
        drop(run);
        let done = on("n001,n999,n002", "best-effort", &["-n", "4", "hostname"]).wait(SOON);
        assert_eq!(
            (done.code(), lines_of(&done)),
            (0, ["n001", "n001", "n002", "n002"].map(str::to_owned).to_vec())
        );
        let of_three = "1 of 3 hosts have no agent";
        check_error(&launch("quorum=3", &["/bin/true"]).wait(SOON), &[of_three, "n999: "]);
        let done = launch("best-effort", &["-n", "6", "/bin/true"]).wait(SOON);
        check_error(&done, &["6 ranks for 4 places on 2 hosts"]);
        let args = ["--wlm", "localhost", "--hosts-policy", "best-effort", "--", "/bin/true"];
        check_error(&cluster.launch(&args).wait(SOON), &["localhost cannot go on without hosts"]);
    });
}

#[test]
fn hosts_that_are_named_besides_take_the_place_of_those_that_cannot_be_had() {
    on_hosts(Config::with_nodes(3), |cluster| {
        let on = |policy: &str, args: &[&str]| {
            let mut run = cluster.launch(&[&["--hosts-policy", policy, "--"], args].concat());
            let told = if policy == "all" { None } else { Some(run.next_event("hosts_left_out", SOON)) };
            let done = run.wait(SOON);
            let hosts =
                told.map(|told| told["hosts"].as_array().expect("a list").clone()).unwrap_or_default();
            let without: Vec<String> =
                hosts.iter().filter_map(|it| it["host"].as_str().map(str::to_owned)).collect();
            (lines_of(&done).join(" "), without.join(" "), done)
        };
        let (ran, without, done) = on("quorum=2", &["--hosts", "n001,n999,n002,n003", "-N", "2", "hostname"]);
        assert_eq!((ran.as_str(), without.as_str(), done.code()), ("n001 n002", "n999", 0), "{done:?}");
        // A replacement host may be missing too, and the next one may have fewer slots.
        let hosts = ["--hosts", "n999:4,n998:4,n001:2,n002:2,n003:2", "-n", "4", "hostname"];
        let (ran, without, done) = on("best-effort", &hosts);
        assert_eq!(
            (ran.as_str(), without.as_str(), done.code()),
            ("n001 n001 n002 n002", "n999 n998", 0),
            "{done:?}"
        );
        // Fewer hosts than the policy requires, whatever the number of candidates.
        let args =
            ["--hosts-policy", "quorum=3", "--", "--hosts", "n001,n999,n002,n998", "-N", "3", "hostname"];
        check_error(&cluster.launch(&args).wait(SOON), &["2 of 4 hosts have no agent", "n998: ", "n999: "]);
        cluster.bed.assert_nothing_left(SOON);
        let (_, _, done) = on("all", &["--hosts", "n001,n999,n002", "-N", "2", "hostname"]);
        check_error(&done, &["1 of 2 hosts have no agent", "n999: "]);
    });
}

#[test]
fn a_host_that_is_full_of_connections_is_tried_again() {
    on_hosts(Config::with_nodes(2), |cluster| {
        let _few = with_sshd_config(cluster, 1, "s/^MaxStartups.*/MaxStartups 1/");
        let mut taken = cluster.bed.login().command("bash").expect("the login node");
        // The place may still be that of whoever has looked whether the server runs.
        let take =
            "until exec 3<>/dev/tcp/n001/22; read -r line <&3; [[ $line == SSH-2.0* ]]; do sleep 0.1; done";
        taken.args(["-c", &format!("{take}; echo taken; read -r line")]);
        taken.envs(cluster.world.variables());
        let mut taken = cluster.world.spawn(taken);
        assert_eq!(taken.next_line(SOON), "taken");
        let args = ["launch", "-v", "--json", "--cwd", "/", "--", "--hosts", "n[001-002]", "/bin/true"];
        let mut run = cluster.gantry(args);
        run.stderr_line("is tried again", SOON);
        run.stderr_line("is tried again", SOON);
        taken.close_stdin();
        taken.exited(SOON);
        let done = run.wait(SOON);
        assert_eq!(done.code(), 0, "{done:?}");
    });
}

#[test]
fn a_host_whose_sshd_is_down_is_given_up_soon() {
    on_hosts(Config::with_nodes(1), |cluster| {
        let _none = with_sshd_config(cluster, 1, "s/^Port.*/Port 23/");
        let done = cluster.launch(&["--", "--hosts", "n001", "/bin/true"]).wait(SOON);
        check_error(&done, &["n001: ssh: connect to host n001 port 22: Connection refused"]);
    });
}

#[test]
fn a_way_that_does_not_lead_there_is_told_in_its_own_words() {
    on_hosts(Config::with_nodes(1), |cluster| {
        let _config = home_file(cluster, ".ssh/config", "Host n001\n ProxyJump n999\n");
        let done = cluster.launch(&["--", "--hosts", "n001", "/bin/true"]).wait(SOON);
        check_error(&done, &["n001: ssh: Could not resolve hostname n999"]);
    });
}

#[test]
fn a_login_shell_that_does_not_serve_is_quoted() {
    on_hosts(Config::with_nodes(2), |cluster| {
        let script = "mkdir -p /run/shells; printf '#!/bin/sh\\necho No logins today; exit 3\\n' >/run/shells/no; chmod 755 /run/shells/no";
        let _shell = change(cluster, 1, script, "rm -r /run/shells");
        let _user = with_login_shell(cluster, 1, "/run/shells/no");
        let done = cluster.launch(&["--", "--hosts", "n[001-002]", "/bin/true"]).wait(SOON);
        check_error(&done, &["1 of 2 hosts", "n001: your login shell there ended: No logins today"]);
    });
}

#[test]
fn a_tool_killed_while_hosts_are_reached_leaves_nothing() {
    on_hosts(Config::with_nodes(2), |cluster| {
        let stopped = stop_sshd(cluster, 2);
        let args = ["launch", "-v", "--json", "--cwd", "/", "--", "--hosts", "n[001-002]", "/bin/true"];
        let mut run = cluster.gantry(args);
        // The first host's agent has its ticket, and cannot reach the frontend yet.
        run.stderr_line("connected 1/2", SOON);
        proc::send(program(run.pid()).expect("the tool"), Signal::SIGKILL);
        run.exited(SOON);
        drop(run);
        eventually(SOON / 3, "the agent has left", || cluster.bed.node(1).user_processes().is_empty());
        drop(stopped);
    });
}

/// Nodes that cannot see the repository, so they have no agent.
fn hidden() -> Config {
    Config::with_nodes(2).without_gantry()
}

#[test]
fn an_agent_goes_where_programs_may_be_executed_and_there_is_room() {
    on_hosts(hidden(), |cluster| {
        let _noexec = noexec(cluster, 1, &["/tmp"]);
        let full = "mount -o remount,size=1m /tmp";
        let _full = change(cluster, 2, full, "mount -o remount,size=50% /tmp");
        let done = cluster.launch(&["--", "--hosts", "n[001-002]", "/bin/true"]).wait(SOON);
        assert_eq!(done.code(), 0, "{done:?}");
    });
}

#[test]
fn a_host_without_a_place_for_the_agent_says_why_of_each() {
    on_hosts(hidden(), |cluster| {
        let noexec = noexec(cluster, 1, &["/tmp", "/var/tmp", "/dev/shm", "/run"]);
        let done = cluster.launch(&["--", "--hosts", "n[001-002]", "/bin/true"]).wait(SOON);
        check_error(
            &done,
            &[
                "1 of 2 hosts",
                "n001: no place for the agent; /tmp is mounted noexec; /var/tmp is mounted noexec",
            ],
        );
        drop(noexec);
        // The data on its way to the other host is removed there, too.
        cluster.bed.assert_nothing_left(SOON);
        let small = "mount -o remount,size=1m ";
        let folders = ["/tmp", "/var/tmp", "/dev/shm"];
        let script =
            |size: &str| folders.map(|folder| format!("mount -o remount,size={size} {folder}")).join("; ");
        let _full = change(cluster, 2, &script("1m"), &script("50%"));
        let _home = change(cluster, 2, &format!("{small} /run"), "mount -o remount,size=50% /run");
        let done = cluster.launch(&["--", "--hosts", "n[001-002]", "/bin/true"]).wait(SOON);
        check_error(&done, &["n002: no place for the agent; /tmp has 10", "KiB left"]);
    });
}
