//! Apps on hosts over ssh, launched by an ordinary user, with a real sshd on every node. Difficult hosts are in
//! `ssh_hosts`.

use gantry_tests::slurm::{error_of, lines_of, text_of};
use gantry_tests::ssh::{
    change, home_file, on_hosts, read_home, with_banner, with_login_shell, with_sshd_config,
};
use gantry_tests::testbed::{Config, program};
use gantry_tests::{SOON, binaries, eventually, proc, require};
use nix::sys::signal::Signal;

/// Parts of the command lines of ssh clients: gantry's own client, and the OpenSSH client with gantry's options.
const CLIENTS: [&str; 2] = ["gantry-ssh --", "BatchMode"];

/// Two ranks on each of four nodes.
const EIGHT: [&str; 3] = ["--", "--hosts", "n[001-004]:2"];

fn eight<'a>(words: &[&'a str]) -> Vec<&'a str> {
    EIGHT.iter().copied().chain(words.iter().copied()).collect()
}

#[test]
fn ranks_know_their_numbers_and_read_and_write_here() {
    on_hosts(Config::with_nodes(4), |cluster| {
        let script = "echo $GANTRY_RANK of $GANTRY_SIZE on $(hostname); [ $GANTRY_RANK != 0 ] || cat";
        let mut run = cluster.launch(&[
            "--",
            "--hosts",
            "n[001-004]:2",
            "--map-by",
            "node",
            "-n",
            "5",
            "sh",
            "-c",
            script,
        ]);
        run.next_event("started", SOON);
        run.write(b"to the first\n");
        run.close_stdin();
        let done = run.wait(SOON);
        let expected = [
            "0 of 5 on n001",
            "1 of 5 on n002",
            "2 of 5 on n003",
            "3 of 5 on n004",
            "4 of 5 on n001",
            "to the first",
        ];
        assert_eq!((done.code(), lines_of(&done)), (0, expected.map(str::to_owned).to_vec()), "{done:?}");
    });
}

#[test]
fn hosts_come_from_a_file_and_a_signal_reaches_the_ranks() {
    on_hosts(Config::with_nodes(4), |cluster| {
        let file = cluster.world.work_dir().join("hosts");
        std::fs::write(&file, "# mine\nn002 slots=2\nn004:1\n").expect("a file");
        let file = file.display().to_string();
        let mut run = cluster.launch(&["--wlm", "ssh", "--", "-f", &file, "/bin/sleep", "1000"]);
        let started = run.next_event("started", SOON);
        assert_eq!(started["wlm"], "ssh", "{started}");
        let nodes: Vec<String> = cluster.find("/bin/sleep 1000").into_iter().map(|(node, _)| node).collect();
        assert_eq!(nodes, ["n002", "n002", "n004"]);
        cluster.ask(&["kill", started["app"].as_str().expect("an id"), "-s", "TERM"]);
        assert_eq!(run.wait(SOON).code(), 128 + 15);
        // PBS writes one line for each rank.
        std::fs::write(&file, "n003\nn001\nn003\n").expect("a file");
        let args = ["launch", "--json", "--cwd", "/", "--wlm", "ssh", "--", "hostname"];
        let done = cluster.run(&binaries().gantry, args, &[("PBS_NODEFILE", &file)]).wait(SOON);
        assert_eq!(lines_of(&done), ["n001", "n003", "n003"], "{done:?}");
    });
}

/// Nodes that cannot see the repository, so they have no agent.
fn hidden(nodes: u16) -> Config {
    Config::with_nodes(nodes).without_gantry()
}

#[test]
fn an_agent_that_hosts_do_not_have_is_sent_and_removed() {
    on_hosts(hidden(3), |cluster| {
        let (mut run, app) = cluster.held(&["--", "--hosts", "n[001-003]", "/bin/true"]);
        cluster.assert_held("/bin/true", 3);
        assert!(!cluster.bed.node(1).path(&binaries().agent).expect("a node").exists());
        // The agent runs, and its file is already removed.
        for node in cluster.bed.nodes() {
            assert_eq!(node.user_files(), Vec::<std::path::PathBuf>::new(), "{}", node.name());
        }
        cluster.ask(&["release", &app]);
        assert_eq!(run.wait(SOON).code(), 0);
    });
}

#[test]
fn another_agent_at_the_same_path_is_not_taken_for_ours() {
    on_hosts(hidden(1), |cluster| {
        let agent = cluster.bed.node(1).path(&binaries().agent).expect("a node");
        std::fs::create_dir_all(agent.parent().expect("a folder")).expect("a folder on the node");
        std::fs::write(&agent, "#!/bin/sh\ntouch /tmp/wrong\nexec cat\n").expect("a file on the node");
        std::fs::set_permissions(&agent, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("executable");
        let done = cluster.launch(&["--", "--hosts", "n001", "/bin/true"]).wait(SOON);
        assert_eq!(done.code(), 0, "{done:?}");
        std::fs::remove_file(&agent).expect("it was not touched");
        // gantry ran it to identify it, which showed that it is another agent.
        std::fs::remove_file(cluster.bed.node(1).path("/tmp/wrong").expect("a node"))
            .expect("chosen by the caller");
    });
}

/// gantry would have to execute the agent to identify it.
#[test]
fn an_agent_that_another_user_could_have_put_there_is_not_even_asked() {
    use std::os::unix::fs::{PermissionsExt, chown};
    on_hosts(hidden(1), |cluster| {
        let agent = cluster.bed.node(1).path(&binaries().agent).expect("a node");
        let folder = agent.parent().expect("a folder").to_owned();
        std::fs::create_dir_all(&folder).expect("a folder on the node");
        std::fs::write(&agent, "#!/bin/sh\ntouch /tmp/wrong\nexec cat\n").expect("a file on the node");
        let set = |path: &std::path::Path, uid: u32, mode: u32| {
            chown(path, Some(uid), None).expect("an owner");
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("a mode");
        };
        for (owner, mode, folder_mode) in
            [(65533, 0o755, 0o755), (0, 0o777, 0o755), (0, 0o755, 0o777), (0, 0o755, 0o1777)]
        {
            set(&agent, owner, mode);
            set(&folder, 0, folder_mode);
            let done = cluster.launch(&["--", "--hosts", "n001", "/bin/true"]).wait(SOON);
            assert_eq!(done.code(), 0, "{done:?}");
            let ran = cluster.bed.node(1).path("/tmp/wrong").expect("a node").exists();
            assert!(!ran, "owner {owner}, mode {mode:o} in {folder_mode:o}");
        }
        set(&folder, 0, 0o755);
        std::fs::remove_file(&agent).expect("it was not touched");
    });
}

/// ssh starts another client for a jump host, without its own options. That one would open a window to ask in.
#[test]
fn clients_find_no_window_to_ask_in() {
    use std::os::unix::fs::PermissionsExt;
    let ssh = require!(gantry_tests::tool("ssh")).display().to_string();
    on_hosts(Config::with_nodes(1), move |cluster| {
        let folder = cluster.world.work_dir().join("in-front");
        let (client, seen) = (folder.join("ssh"), folder.join("seen"));
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::write(&seen, "").expect("a file");
        let script = format!("#!/bin/sh\nenv >>{}\nexec {ssh} \"$@\"\n", seen.display());
        std::fs::write(&client, script).expect("a script");
        for (path, mode) in [(&folder, 0o755), (&client, 0o755), (&seen, 0o666)] {
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("a mode");
        }
        let path = format!("{}:/usr/bin:/bin", folder.display());
        let args = ["launch", "--cwd", "/", "--wlm", "ssh", "--", "--hosts", "n001", "/bin/true"];
        let variables = [
            ("PATH", path.as_str()),
            ("DISPLAY", ":9"),
            ("WAYLAND_DISPLAY", "wayland-9"),
            ("SSH_ASKPASS", "/no/such"),
            ("SSH_ASKPASS_REQUIRE", "force"),
        ];
        let done = cluster.run(&binaries().gantry, args, &variables).wait(SOON);
        assert_eq!(done.code(), 0, "{done:?}");
        let seen = std::fs::read_to_string(seen).expect("what a client has seen");
        let asking = |line: &&str| line.contains("DISPLAY=") || line.starts_with("SSH_ASKPASS");
        let asking: std::collections::BTreeSet<&str> = seen.lines().filter(asking).collect();
        assert_eq!(asking.into_iter().collect::<Vec<_>>(), ["SSH_ASKPASS_REQUIRE=never"], "{seen}");
    });
}

#[test]
fn login_shells_of_all_kinds_will_do() {
    let tcsh = require!(gantry_tests::tool("tcsh")).display().to_string();
    let fish = require!(gantry_tests::tool("fish")).display().to_string();
    on_hosts(Config::with_nodes(3), move |cluster| {
        let _tcsh = with_login_shell(cluster, 1, &tcsh);
        let _fish = with_login_shell(cluster, 2, &fish);
        let _banner = with_banner(cluster);
        let done = cluster.launch(&["--", "--hosts", "n[001-003]", "/bin/echo", "here"]).wait(SOON);
        assert_eq!((done.code(), text_of(&done)), (0, "here\n".repeat(3)), "{done:?}");
    });
}

#[test]
fn a_host_without_bash_will_do() {
    on_hosts(Config::with_nodes(1), |cluster| {
        let _shell = with_login_shell(cluster, 1, "/bin/sh");
        let script = "mount --bind /dev/null /usr/bin/bash";
        let _none = change(cluster, 1, script, "umount /usr/bin/bash");
        let done = cluster.launch(&["--", "--hosts", "n001", "/bin/true"]).wait(SOON);
        assert_eq!(done.code(), 0, "{done:?}");
    });
}

#[test]
fn a_new_hosts_key_is_accepted_when_asked_and_remembered() {
    on_hosts(Config::with_nodes(1), |cluster| {
        let known = "Host *\n GlobalKnownHostsFile /dev/null\n UserKnownHostsFile ~/.ssh/known_mine\n";
        let _config = home_file(cluster, ".ssh/config", known);
        let _known = home_file(cluster, ".ssh/known_mine", "");
        let launch = |more: &[&str]| {
            let args: Vec<&str> = ["--", "--hosts", "n001"].iter().chain(more).copied().collect();
            cluster.launch(&args).wait(SOON)
        };
        let refused = error_of(&launch(&["/bin/true"]));
        let text = refused.to_string();
        for part in
            ["n001: the host's key is not known: ssh-ed25519 SHA256:", "--accept-new-host-keys", "ssh n001"]
        {
            assert!(text.contains(part), "no '{part}' in {text}");
        }
        assert_eq!(read_home(cluster, ".ssh/known_mine"), "");
        assert_eq!(launch(&["--accept-new-host-keys", "/bin/true"]).code(), 0);
        assert!(read_home(cluster, ".ssh/known_mine").contains(" ssh-ed25519 "));
        assert_eq!(launch(&["/bin/true"]).code(), 0);
    });
}

#[test]
fn a_host_is_known_by_a_key_of_any_type() {
    on_hosts(Config::with_nodes(1), |cluster| {
        let made = "for t in rsa ecdsa; do ssh-keygen -q -t $t -N '' -f /run/key_$t; done";
        let _keys = change(cluster, 1, made, "rm /run/key_*");
        let _sshd = with_sshd_config(cluster, 1, "$a HostKey /run/key_rsa\\nHostKey /run/key_ecdsa");
        let known = "Host *\n GlobalKnownHostsFile /dev/null\n UserKnownHostsFile ~/.ssh/known_mine\n";
        let _config = home_file(cluster, ".ssh/config", known);
        let read = |name: &str| {
            let path = cluster.bed.node(1).path(format!("/run/key_{name}.pub")).expect("a node");
            std::fs::read_to_string(path).expect("a key")
        };
        for name in ["rsa", "ecdsa"] {
            // Of the host's keys, the client requests the known one.
            let _known = home_file(cluster, ".ssh/known_mine", &format!("n001 {}", read(name)));
            let args = ["launch", "-v", "--json", "--cwd", "/", "--", "--hosts", "n001", "/bin/true"];
            let done = cluster.gantry(args).wait(SOON);
            assert_eq!(done.code(), 0, "{name}: {done:?}");
            // No fallback to the OpenSSH client is needed.
            let said = done.stderr.concat();
            assert!(
                said.contains("connected 1/1") && !said.contains("the OpenSSH client is used"),
                "{name}: {said}"
            );
        }
    });
}

#[test]
fn a_cut_connection_does_not_matter_once_agents_are_there() {
    on_hosts(Config::with_nodes(2), |cluster| {
        let (mut run, app) = cluster.held(&["--", "--hosts", "n[001-002]:2", "/bin/echo", "still here"]);
        let processes = cluster.bed.nodes().into_iter().flat_map(|node| node.user_processes());
        let sessions: Vec<_> = processes.filter(|process| process.line.starts_with("sshd: ")).collect();
        assert_eq!(sessions.len(), 2, "{:?}", cluster.bed.leftovers());
        sessions.iter().for_each(|session| proc::send(session.pid, Signal::SIGKILL));
        eventually(SOON, "the connections are gone", || {
            let processes = cluster.bed.login().user_processes();
            !processes.iter().any(|process| CLIENTS.iter().any(|client| process.line.contains(client)))
        });
        cluster.assert_held("still here", 4);
        cluster.ask(&["release", &app]);
        let done = run.wait(SOON);
        assert_eq!((done.code(), text_of(&done)), (0, "still here\n".repeat(4)), "{done:?}");
    });
}

#[test]
fn sixteen_hosts() {
    on_hosts(Config::with_nodes(16), |cluster| {
        let (mut run, app) = cluster.held(&["--", "--hosts", "n[001-016]", "--window", "4", "/bin/true"]);
        cluster.assert_held("/bin/true", 16);
        cluster.ask(&["release", &app]);
        assert_eq!(run.wait(SOON).code(), 0);
    });
}

#[test]
fn a_killed_tool_leaves_nothing_on_any_host() {
    on_hosts(Config::with_nodes(4), |cluster| {
        for daemon in [false, true] {
            let mut args = if daemon { vec!["--daemon", "/bin/sleep 999"] } else { Vec::new() };
            args.extend(eight(&["/bin/sleep", "1000"]));
            let (mut run, _) = cluster.held(&args);
            cluster.assert_held("/bin/sleep 1000", 8);
            if daemon {
                (0..4).for_each(|_| drop(run.next_event("daemon_started", SOON)));
            }
            proc::send(program(run.pid()).expect("the tool"), Signal::SIGKILL);
            run.exited(SOON);
            drop(run);
            cluster.ask(&["ps", "--json"]);
            cluster.bed.assert_nothing_left(SOON);
        }
    });
}
