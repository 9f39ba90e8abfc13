//! Hosts over libssh2, through `gantry-ssh`: all tests of `ssh`, `ssh_hosts` and `ssh_links` for the OpenSSH client,
//! and tests for this client alone.

#[path = "ssh_hosts.rs"]
mod hosts;
#[path = "ssh.rs"]
mod launched;
#[path = "ssh_links.rs"]
mod links;

use std::io::Write;
use std::process::Stdio;

use gantry_tests::slurm::{Cluster, error_of};
use gantry_tests::ssh::{HomeFile, home_file, on_hosts, read_home, with_sshd_config};
use gantry_tests::testbed::Config;
use gantry_tests::{Finished, SOON, binaries};

/// The number of the user's ssh sessions on a node.
fn sessions(cluster: &Cluster, node: u16) -> usize {
    let processes = cluster.bed.node(node).user_processes();
    processes.iter().filter(|process| process.line.starts_with("sshd: ")).count()
}

fn launch_true(cluster: &Cluster, hosts: &str) -> Finished {
    cluster.launch(&["--", "--hosts", hosts, "/bin/true"]).wait(SOON)
}

#[track_caller]
fn check_refused(done: &Finished, part: &str) {
    assert_ne!(done.code(), 0, "{done:?}");
    let text = error_of(done).to_string();
    assert!(text.contains(part), "no '{part}' in {text}");
}

#[test]
fn input_output_errors_and_the_exit_status_are_the_commands() {
    on_hosts(Config::with_nodes(1), |cluster| {
        let program = binaries().dir.join("gantry-ssh");
        let mut command = cluster.bed.login().command(program).expect("the login node");
        command.args(["--", "n001", "cat; echo to errors >&2; exit 7"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("nsenter");
        let sent: Vec<u8> =
            (0..16_000_000_u32).flat_map(|number| number.to_le_bytes()).take(16_000_000).collect();
        let mut stdin = child.stdin.take().expect("its input");
        let copy = sent.clone();
        let writer = std::thread::spawn(move || stdin.write_all(&copy).expect("it reads"));
        let output = child.wait_with_output().expect("its end");
        writer.join().expect("everything was taken");
        assert_eq!(output.status.code(), Some(7));
        assert!(output.stdout == sent, "{} bytes came back", output.stdout.len());
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(errors.ends_with("using \"publickey\".\nto errors\n"), "{errors}");
    });
}

#[test]
fn a_revoked_key_is_refused() {
    on_hosts(Config::with_nodes(1), |cluster| {
        let keys = cluster.bed.login().path("/etc/ssh/ssh_known_hosts").expect("the login node");
        let keys = std::fs::read_to_string(keys).expect("keys");
        let of_first = keys.lines().find(|line| line.starts_with("n001")).expect("a key of n001");
        let _revoked = home_file(cluster, ".ssh/known_hosts", &format!("@revoked {of_first}\n"));
        check_refused(&launch_true(cluster, "n001"), "n001: the host's key is revoked: ssh-");
    });
}

#[test]
fn hashed_names_are_found() {
    on_hosts(Config::with_nodes(1), |cluster| {
        let keys = cluster.bed.login().path("/etc/ssh/ssh_known_hosts").expect("the login node");
        let keys = std::fs::read_to_string(keys).expect("keys");
        let _config = home_file(
            cluster,
            ".ssh/config",
            "Host *\n GlobalKnownHostsFile /dev/null\n UserKnownHostsFile ~/.ssh/known_hashed\n",
        );
        let _known = home_file(cluster, ".ssh/known_hashed", &keys);
        cluster.said("sh", ["-c", "ssh-keygen -q -H -f ~/.ssh/known_hashed; rm ~/.ssh/known_hashed.old"]);
        assert!(read_home(cluster, ".ssh/known_hashed").starts_with("|1|"));
        let done = launch_true(cluster, "n001");
        assert_eq!(done.code(), 0, "{done:?}");
    });
}

#[test]
fn name_port_and_key_are_those_of_the_configuration() {
    on_hosts(Config::with_nodes(2), |cluster| {
        let _port = with_sshd_config(cluster, 2, "s/^Port.*/Port 2222/");
        let text = "Host other\n HostName n002\n Port 2222\n User tester\n HostKeyAlias n002\n\
                    Host stranger\n HostName n002\n Port 2222\n";
        let _config = home_file(cluster, ".ssh/config", text);
        let done = launch_true(cluster, "other");
        assert_eq!(done.code(), 0, "{done:?}");
        // The host's key is known only by another name.
        check_refused(&launch_true(cluster, "stranger"), "stranger: the host's key is not known: ssh-");
    });
}

fn check_through_first(cluster: &Cluster, config: &str) {
    let _config = home_file(cluster, ".ssh/config", config);
    let (mut run, app) = cluster.held(&["--", "--hosts", "n002", "/bin/true"]);
    assert!(sessions(cluster, 1) > 0, "{:?}", cluster.bed.leftovers());
    cluster.ask(&["release", &app]);
    assert_eq!(run.wait(SOON).code(), 0);
}

#[test]
fn hosts_behind_others_are_reached_through_them() {
    on_hosts(Config::with_nodes(2), |cluster| {
        check_through_first(cluster, "Host n002\n ProxyJump tester@n001:22\n");
        check_through_first(cluster, "Host n002\n ProxyCommand ssh -o BatchMode=yes -l %r -W %h:%p n001\n");
    });
}

/// A configuration in which ssh does not find the user's key.
fn without_key(cluster: &Cluster) -> HomeFile {
    home_file(cluster, ".ssh/config", "Host *\n IdentityFile ~/.ssh/locked\n")
}

#[test]
fn a_key_of_the_agent_is_used_without_asking_for_a_passphrase() {
    on_hosts(Config::with_nodes(1), |cluster| {
        let _config = without_key(cluster);
        cluster.said("sh", ["-c", "ssh-keygen -q -t rsa -N secret -f ~/.ssh/locked"]);
        check_refused(&launch_true(cluster, "n001"), "n001: it refuses the login (it accepts publickey)");
        let gantry = binaries().gantry.display().to_string();
        let script = "ssh-add -q ~/.ssh/id_ed25519; \"$0\" launch --json --cwd / -- --hosts n001 /bin/true; \
                      code=$?; kill $SSH_AGENT_PID; exit $code";
        let mut run = cluster.run("ssh-agent", ["sh", "-c", script, &gantry], &[]);
        let done = run.wait(SOON);
        cluster.said("sh", ["-c", "rm ~/.ssh/locked ~/.ssh/locked.pub"]);
        assert_eq!(done.code(), 0, "{done:?}");
    });
}

#[test]
fn the_users_ssh_does_what_libssh2_lacks_and_the_reason_is_reported() {
    on_hosts(Config::with_nodes(1), |cluster| {
        let _config = home_file(cluster, ".ssh/config", "Host n001\n BindAddress 0.0.0.0\n");
        let args = ["launch", "-v", "--json", "--cwd", "/", "--", "--hosts", "n001", "/bin/true"];
        let mut run = cluster.gantry(args);
        run.stderr_line("libssh2 does not have 'bindaddress 0.0.0.0'", SOON);
        let done = run.wait(SOON);
        assert_eq!(done.code(), 0, "{done:?}");
    });
}

/// ssh itself resolves the configuration, and so runs the command of `Match exec`. That asks the user nothing.
#[test]
fn the_result_of_match_exec_is_followed() {
    on_hosts(Config::with_nodes(1), |cluster| {
        let _port = with_sshd_config(cluster, 1, "s/^Port.*/Port 2222/");
        let text = "Match originalhost other exec \"test %n = another\"\n Port 23\n\
                    Match originalhost other exec \"test %n = other && echo asked >>~/.ssh/asked\"\n Port 2222\n\
                    Host other\n HostName n001\n HostKeyAlias n001\n\
                    Match originalhost slow exec \"sleep 1000\"\n Port 23\n";
        let _config = home_file(cluster, ".ssh/config", text);
        let _asked = home_file(cluster, ".ssh/asked", "");
        let args = ["launch", "-v", "--json", "--cwd", "/", "--", "--hosts", "other", "/bin/true"];
        let done = cluster.gantry(args).wait(SOON);
        assert_eq!(done.code(), 0, "{done:?}");
        let said = format!("{done:?}");
        assert!(said.contains("hosts are reached by libssh2") && !said.contains("takes over"), "{said}");
        assert_eq!(read_home(cluster, ".ssh/asked"), "asked\n");
        let slow = ["--", "--hosts", "slow", "--connect-timeout", "2", "/bin/true"];
        check_refused(&cluster.launch(&slow).wait(SOON), "slow: ");
    });
}

#[test]
fn the_client_is_the_one_that_is_asked_for() {
    on_hosts(Config::with_nodes(1), |cluster| {
        let mut launch = |client: &'static str| {
            cluster.variables = vec![("GANTRY_SSH", client)];
            let args = ["launch", "-v", "--json", "--cwd", "/", "--", "--hosts", "n001", "/bin/true"];
            cluster.gantry(args).wait(SOON)
        };
        check_refused(&launch("putty"), "GANTRY_SSH is 'putty', which is not an ssh client");
        for (client, name) in
            [("", "libssh2 (/"), ("libssh2", "libssh2 (/"), ("openssh", "the OpenSSH client (/")]
        {
            let done = launch(client);
            assert_eq!(done.code(), 0, "{done:?}");
            let told = format!("hosts are reached by {name}");
            assert!(format!("{done:?}").contains(&told), "no '{told}' in {done:?}");
        }
    });
}
