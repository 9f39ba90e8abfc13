//! Properties of the testbed: a cluster with a real Slurm and sshd that leaves nothing behind.
#![expect(clippy::disallowed_methods, reason = "a test starts foreign programs and reads the environment")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use gantry_tests::testbed::config::Proctrack;
use gantry_tests::testbed::{Config, Shared, Testbed, program, shared, usable};
use gantry_tests::{
    SOON, World, becomes_true, binaries, copy_program, eventually, proc, programs, require, tool, within,
};
use nix::sys::signal::Signal;
use serde_json::Value;

/// The timeout of a whole test, including a new testbed.
const LIMIT: Duration = Duration::from_secs(240);

/// This variable in the environment activates [`a_process_that_owns_a_bed`].
const INNER: &str = "GANTRY_TEST_OWNS_A_BED";

/// Two nodes that cannot see this repository.
fn hidden() -> Config {
    Config::with_nodes(2).without_gantry()
}

fn repository() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the repository").to_path_buf()
}

/// Runs a test on a testbed of this configuration. At its end the user may have left nothing on any host.
#[track_caller]
fn on_bed(config: Config, body: impl FnOnce(&mut Shared) + Send + 'static) {
    require!(usable(&config));
    within(LIMIT, move || {
        let mut bed = shared(&config);
        body(&mut bed);
        bed.assert_nothing_left(SOON);
    });
}

/// The stdout of a command of the ordinary user on the login node. It must succeed.
#[track_caller]
fn said<const N: usize>(bed: &Testbed, words: [&str; N]) -> String {
    let output = output(bed, words);
    assert!(output.status.success(), "{words:?}: {output:?}\n{}", bed.last_log_lines());
    String::from_utf8(output.stdout).expect("text")
}

#[track_caller]
fn output<const N: usize>(bed: &Testbed, words: [&str; N]) -> std::process::Output {
    // A hung test would keep the testbed, and block all other tests.
    let mut command = bed.login().command("timeout").expect("the login node");
    command.args(["--kill-after=5", "40"]).args(words).stdin(Stdio::null()).output().expect("nsenter")
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

const SSH: [&str; 5] = ["ssh", "-oBatchMode=yes", "-oStrictHostKeyChecking=yes", "-oConnectTimeout=3", "-q"];

fn ssh_works(bed: &Testbed, node: &str) -> bool {
    let [ssh, batch, check, patience, quiet] = SSH;
    output(bed, [ssh, batch, check, patience, quiet, node, "true"]).status.success()
}

#[test]
fn srun_runs_on_every_node_as_the_ordinary_user() {
    on_bed(hidden(), |bed| {
        let names = said(bed, ["srun", "-N2", "-n4", "--ntasks-per-node=2", "hostname"]);
        assert_eq!(sorted(&names), ["n001", "n001", "n002", "n002"]);
        assert_eq!(said(bed, ["srun", "-N2", "id", "-un"]), "tester\ntester\n");
    });
}

/// Slurm copies the program to the nodes. The leak check must find the copies until they are removed.
fn check_mpi(compiler: &str, how: &'static str) {
    let hello = require!(programs::get_mpi("mpi_hello", compiler));
    on_bed(hidden(), move |bed| {
        let hello = hello.to_str().expect("a path in UTF-8");
        let said_by_ranks =
            said(bed, ["srun", how, "-N2", "--ntasks-per-node=2", "--bcast=/tmp/mpi_hello", hello]);
        let expected: Vec<String> =
            (0..4).map(|rank| format!("rank {rank} of 4 on n00{}", rank / 2 + 1)).collect();
        // UCX prints its own errors when one rank is done before another has connected to it.
        let ranks: Vec<&str> = said_by_ranks.lines().filter(|line| line.starts_with("rank ")).collect();
        assert_eq!(ranks, expected, "{said_by_ranks}");
        for node in bed.nodes() {
            let files = node.user_files();
            assert!(files.contains(&PathBuf::from("/tmp/mpi_hello")), "{}: {files:?}", node.name());
        }
        // Slurm's PMIx server also leaves folders.
        said(bed, ["srun", "-N2", "sh", "-c", "rm -rf /tmp/mpi_hello /tmp/spmix_* /tmp/ompi.*"]);
    });
}

#[test]
fn mpich_programs_find_each_other_by_pmi2() {
    check_mpi("mpicc.mpich", "--mpi=pmi2");
}

#[test]
fn open_mpi_programs_find_each_other_by_pmix() {
    check_mpi("mpicc.openmpi", "--mpi=pmix");
}

#[test]
fn ssh_asks_nothing_and_checks_host_keys() {
    on_bed(hidden(), |bed| {
        let [ssh, batch, check, patience, quiet] = SSH;
        for (name, address) in [("n001", "10.42.1.1"), ("n002", "10.42.1.2")] {
            for host in [name, address] {
                assert_eq!(
                    said(bed, [ssh, batch, check, patience, quiet, host, "hostname"]),
                    format!("{name}\n")
                );
            }
        }
        let unknown = "-oGlobalKnownHostsFile=/dev/null";
        let refused = output(bed, [ssh, batch, check, patience, unknown, "n001", "true"]);
        let why = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && why.contains("Host key verification failed"), "{why}");
    });
}

#[test]
fn nodes_do_not_see_the_hidden_folder_and_have_homes_of_their_own() {
    on_bed(hidden(), |bed| {
        let manifest = repository().join("Cargo.toml");
        assert!(bed.login().path(&manifest).expect("login").exists());
        for node in bed.nodes() {
            assert!(!node.path(&manifest).expect("a node").exists(), "{}", node.name());
        }
        said(bed, ["touch", ".here"]);
        assert_eq!(
            said(bed, ["srun", "-N2", "--chdir=/run/home/tester", "sh", "-c", "ls -A"]),
            ".ssh\n.ssh\n"
        );
        said(bed, ["rm", ".here"]);
    });
}

#[test]
fn without_a_hidden_folder_nodes_see_the_repository_and_one_home() {
    on_bed(Config::with_nodes(2), |bed| {
        let manifest = repository().join("Cargo.toml");
        for node in bed.nodes() {
            assert!(node.path(&manifest).expect("a node").exists(), "{}", node.name());
        }
        said(bed, ["touch", "here"]);
        assert_eq!(said(bed, ["srun", "-N2", "--chdir=/run/home/tester", "ls"]), "here\nhere\n");
        said(bed, ["rm", "here"]);
    });
}

/// A clone may be below `/tmp`, of which every node has its own, or in a home that only its owner may enter.
#[test]
fn the_testbeds_own_programs_are_seen_by_every_host_wherever_they_lie() {
    require!(usable(&Config::default()));
    within(LIMIT, || {
        let closed = tempfile::tempdir_in("/tmp").expect("a folder");
        let own = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(closed.path(), own).expect("a mode");
        let folder = closed.path().join("clone");
        fs::create_dir(&folder).expect("a folder");
        let program = folder.join("testbed");
        copy_program(binaries().dir.join("testbed"), &program);
        let bed = Testbed::up(&Config::with_nodes(1), &program).expect("a bed");
        for host in bed.hosts() {
            let done = host.command(&program).expect("a host").arg("--help").output().expect("nsenter");
            assert!(done.status.success(), "{}: {done:?}", host.name());
        }
        assert_eq!(bed.leftovers(), [""; 0]);
        bed.down().expect("down");
        assert!(program.exists());
    });
}

#[test]
fn a_shared_folder_in_tmp_is_seen_by_nodes() {
    let world = World::new();
    fs::write(world.work_dir().join("here"), "hello").expect("a file");
    let config = Config { share: vec![world.work_dir()], ..Config::with_nodes(1) };
    let file = world.work_dir().join("here");
    on_bed(config, move |bed| {
        let path = bed.node(1).path(&file).expect("a node");
        assert_eq!(fs::read_to_string(path).expect("the file"), "hello");
        assert!(!bed.node(1).path(world.runtime_dir()).expect("a node").exists());
    });
}

#[test]
fn every_host_has_its_own_processes_and_tmp() {
    on_bed(hidden(), |bed| {
        said(bed, ["srun", "-w", "n001", "touch", "/tmp/of-n001"]);
        let left = bed.leftovers();
        assert_eq!(left, ["n001: file /tmp/of-n001"]);
        assert!(!Path::new("/tmp/of-n001").exists());
        said(bed, ["srun", "-w", "n001", "rm", "/tmp/of-n001"]);
        // No host sees the daemons or any other process of another host.
        let daemons = said(bed, ["ps", "-e", "-o", "comm="]);
        assert!(daemons.contains("slurmctld") && !daemons.contains("slurmd"), "{daemons}");
        let all: Vec<_> = bed.hosts().iter().map(|host| host.processes()).collect();
        let numbers: BTreeSet<i32> = all.iter().flatten().map(|process| process.pid).collect();
        assert_eq!(numbers.len(), all.iter().map(Vec::len).sum::<usize>());
    });
}

#[test]
fn a_step_is_found_on_its_nodes_and_ends_by_scancel() {
    on_bed(hidden(), |bed| {
        let world = World::new();
        let mut command = bed.login().command_of(&world, "srun").expect("login");
        command.args(["-N2", "--job-name=long", "sleep", "1000"]);
        let mut run = world.spawn(command);
        let sleepers = |bed: &Testbed| -> Vec<i32> {
            let processes = bed.nodes().into_iter().flat_map(|node| node.user_processes());
            processes
                .filter(|process| process.line.ends_with("sleep 1000"))
                .map(|process| process.pid)
                .collect()
        };
        let runs = becomes_true(SOON, || sleepers(bed).len() == 2);
        assert!(runs, "{:?} {:?}\n{}", run.stderr(), bed.leftovers(), bed.last_log_lines());
        // The world's leak check sees processes on nodes.
        let tagged = world.processes();
        assert!(sleepers(bed).iter().all(|pid| tagged.contains(pid)), "{tagged:?}");
        assert_eq!(bed.nodes()[0].user_processes().len(), 1);
        said(bed, ["scancel", "--name=long"]);
        assert!(!run.exited(SOON).success());
        world.finish();
    });
}

#[test]
fn killing_a_command_kills_the_program_in_it() {
    on_bed(hidden(), |bed| {
        let world = World::new();
        let mut command = bed.login().command_of(&world, "sh").expect("login");
        command.args(["-c", "echo here; exec sleep 1000"]);
        let mut run = world.spawn(command);
        assert_eq!(run.next_line(SOON), "here");
        let inside = program(run.pid()).expect("the program");
        assert_eq!(
            bed.login().user_processes().iter().map(|process| process.pid).collect::<Vec<_>>(),
            [inside]
        );
        run.kill();
        proc::wait_gone(inside, SOON);
        world.finish();
    });
}

#[test]
fn a_cut_link_is_silent_and_can_be_mended() {
    on_bed(hidden(), |bed| {
        bed.node(2).cut_link().expect("cut");
        assert!(ssh_works(bed, "n001") && !ssh_works(bed, "n002"));
        bed.node(2).mend_link().expect("mended");
        eventually(SOON, "n002 is reached again", || ssh_works(bed, "n002"));
    });
}

#[test]
fn a_host_can_refuse_connections_while_slurm_works() {
    require!(tool("nft"));
    on_bed(hidden(), |bed| {
        if let Err(why) = bed.node(1).refuse_connections(&[]) {
            return gantry_tests::record_skip(&format!("no firewall: {why}"));
        }
        assert!(!ssh_works(bed, "n001"));
        assert_eq!(said(bed, ["srun", "-w", "n001", "hostname"]), "n001\n");
        bed.node(1).accept_connections().expect("accepted");
        assert!(ssh_works(bed, "n001"));
    });
}

#[test]
fn a_node_without_power_is_empty_and_comes_back_empty() {
    on_bed(hidden(), |bed| {
        said(bed, ["srun", "-w", "n002", "touch", "/tmp/lost"]);
        // Otherwise Slurm waits a minute or two for the end of a job on a node that has forgotten it.
        bed.wait_idle(SOON).expect("the job has ended");
        let before: Vec<i32> = bed.node(2).processes().iter().map(|process| process.pid).collect();
        assert!(!before.is_empty());
        bed.node(2).power_off().expect("off");
        assert_eq!(bed.node(2).init(), Err("n002 is off".to_owned()));
        assert!(before.iter().all(|pid| !proc::is_alive(*pid)));
        bed.node(2).power_on().expect("on");
        bed.wait_idle(Duration::from_secs(60)).expect("idle");
        assert_eq!(bed.node(2).user_files(), Vec::<PathBuf>::new());
    });
}

#[test]
fn a_killed_slurmd_can_be_started_again() {
    on_bed(hidden(), |bed| {
        bed.node(1).kill_daemon("slurmd").expect("killed");
        assert!(bed.node(1).kill_daemon("slurmd").is_err());
        bed.node(1).start_slurmd().expect("started");
        bed.wait_idle(Duration::from_secs(60)).expect("idle");
        assert_eq!(said(bed, ["srun", "-w", "n001", "hostname"]), "n001\n");
    });
}

#[test]
fn slurm_conf_can_be_changed_while_slurm_runs() {
    on_bed(hidden(), |bed| {
        bed.reconfigure(&[("KillWait", "33")]).expect("reconfigured");
        eventually(SOON, "KillWait is 33", || said(bed, ["scontrol", "show", "config"]).contains("= 33 sec"));
    });
}

/// Starts a process on both nodes that outlives its parent. It must outlive its step on this many nodes.
fn survivors(config: Config, expected: usize) {
    on_bed(config, move |bed| {
        let script = "setsid sleep 1000 </dev/null >/dev/null 2>&1 & sleep 0.2";
        said(bed, ["srun", "-N2", "sh", "-c", script]);
        bed.wait_idle(SOON).expect("the step has ended");
        let left: Vec<i32> =
            bed.nodes().iter().flat_map(|node| node.user_processes()).map(|process| process.pid).collect();
        assert_eq!(left.len(), expected);
        for pid in left {
            proc::send(pid, Signal::SIGKILL);
        }
    });
}

#[test]
fn a_daemonised_process_outlives_its_step_under_proctrack_linuxproc() {
    survivors(hidden(), 2);
}

#[test]
fn nothing_outlives_its_step_under_proctrack_cgroup() {
    survivors(Config { proctrack: Proctrack::Cgroup, ..hidden() }, 0);
}

/// Processes of this machine that are in one of these namespaces.
fn inhabitants(namespaces: &BTreeSet<String>) -> Vec<i32> {
    let lives_there = |pid: &i32| {
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/ns")) else { return false };
        let links = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        links.map(|link| link.to_string_lossy().into_owned()).any(|link| namespaces.contains(&link))
    };
    proc::all().into_iter().filter(lives_there).collect()
}

/// Nothing of a testbed may be left: processes, namespaces, folder, mounts. Its interfaces never belonged to this
/// machine.
#[track_caller]
fn assert_gone(dir: &Path, namespaces: &BTreeSet<String>) {
    assert!(namespaces.len() >= 10, "{namespaces:?}");
    eventually(SOON, "the bed's folder is gone", || !dir.exists());
    eventually(SOON, "its processes are gone", || inhabitants(namespaces).is_empty());
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    assert!(!mounts.contains(&*dir.to_string_lossy()) && !mounts.contains("testbed "), "{mounts}");
    let interfaces: Vec<_> = fs::read_dir("/sys/class/net").expect("interfaces").flatten().collect();
    let ours = interfaces
        .iter()
        .filter(|name| ["switch", "login", "n001"].iter().any(|our| name.file_name() == *our));
    assert_eq!(ours.count(), 0);
}

/// The next test runs this test in another process. In an ordinary run it does nothing.
#[test]
fn a_process_that_owns_a_bed() {
    if std::env::var_os(INNER).is_none() {
        return;
    }
    let bed = Testbed::up(&Config::with_nodes(2), &binaries().dir.join("testbed")).expect("a bed");
    let said = serde_json::json!({"dir": bed.dir(), "hall": bed.hall(), "namespaces": bed.namespaces()});
    println!("\n{said}");
    std::io::stdout().flush().expect("stdout");
    // Waits until this process is killed or its parent has gone.
    drop(std::io::stdin().read_to_end(&mut Vec::new()));
}

#[test]
fn a_killed_owner_leaves_nothing_of_its_bed() {
    require!(usable(&Config::default()));
    within(2 * LIMIT, || {
        let world = World::new();
        let mut command = world.command(std::env::current_exe().expect("this test"));
        command.args(["--exact", "a_process_that_owns_a_bed", "--nocapture"]);
        command.env(INNER, "1").env("GANTRY_BIN_DIR", &binaries().dir);
        let mut run = world.spawn(command);
        let bed: Value = loop {
            // As long as a bed may take itself.
            let line = run.next_line(LIMIT);
            if line.starts_with('{') {
                break serde_json::from_str(&line).expect("JSON");
            }
        };
        let dir = PathBuf::from(bed["dir"].as_str().expect("a folder"));
        let namespaces: BTreeSet<String> = bed["namespaces"]
            .as_array()
            .expect("names")
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        assert!(dir.exists() && inhabitants(&namespaces).len() > 8);
        let hall = i32::try_from(bed["hall"].as_i64().expect("a pid")).expect("a pid");
        let hall = proc::Pidfd::open(hall).expect("the hall's init");
        run.kill();
        assert!(hall.wait_end(2 * SOON), "the hall waits for processes of its hosts");
        assert_gone(&dir, &namespaces);
        world.finish();
    });
}

/// Runs the command `testbed` with a separate base folder.
fn testbed<const N: usize>(base: &Path, words: [&str; N]) -> String {
    let mut command = Command::new(binaries().dir.join("testbed"));
    let output = command.arg("--base").arg(base).args(words).stdin(Stdio::null()).output().expect("testbed");
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

fn status(base: &Path) -> (i64, BTreeSet<String>) {
    let status: Value = serde_json::from_str(&testbed(base, ["status", "--json"])).expect("JSON");
    let bed = Testbed::find(base, "bed", &binaries().dir.join("testbed")).expect("a bed");
    (status["hall"].as_i64().expect("a pid"), bed.namespaces())
}

#[test]
fn up_and_down_are_idempotent() {
    require!(usable(&Config::default()));
    within(LIMIT, || {
        let folder = tempfile::tempdir().expect("a folder");
        let base = folder.path().join("beds");
        assert!(testbed(&base, ["up", "2"]).starts_with("2 nodes are up after"));
        let (hall, first) = status(&base);
        assert_eq!(testbed(&base, ["up", "2"]), "2 nodes are up already\n");
        assert_eq!(status(&base).0, hall);
        assert!(testbed(&base, ["up", "1"]).starts_with("1 nodes are up after"));
        let (_, second) = status(&base);
        assert_eq!(testbed(&base, ["exec", "--user", "login", "srun", "hostname"]), "n001\n");
        assert_eq!(testbed(&base, ["exec", "n001", "id", "-u"]), "0\n");
        assert_eq!(testbed(&base, ["down"]), "down\n");
        assert_eq!(testbed(&base, ["down"]), "nothing was up\n");
        for namespaces in [first, second] {
            assert_gone(&base, &namespaces);
        }
    });
}

#[test]
fn a_bed_whose_hall_was_killed_is_swept() {
    require!(usable(&Config::default()));
    within(LIMIT, || {
        let folder = tempfile::tempdir().expect("a folder");
        let base = folder.path().join("beds");
        for (command, answer) in [("up", "2 nodes are up after"), ("down", "down")] {
            testbed(&base, ["up", "2"]);
            let (hall, namespaces) = status(&base);
            proc::send(i32::try_from(hall).expect("a pid"), Signal::SIGKILL);
            eventually(SOON, "its processes are gone", || inhabitants(&namespaces).is_empty());
            assert!(base.join("bed").exists());
            assert!(testbed(&base, [command]).starts_with(answer));
        }
        assert!(!base.exists());
    });
}

#[test]
fn a_bed_that_does_not_come_up_says_why_and_leaves_nothing() {
    require!(usable(&Config::default()));
    within(LIMIT, || {
        let folder = tempfile::tempdir().expect("a folder");
        let base = folder.path().join("beds");
        let config = Config::with_nodes(1).slurm("SelectType", "select/nonsense");
        let refused = Testbed::stand(&base, "bed", &config, &binaries().dir.join("testbed"));
        let why = refused.expect_err("a bed without a scheduler");
        assert!(
            why.contains("login") && why.contains("slurmctld") && why.contains("select/nonsense"),
            "{why}"
        );
        assert!(!base.exists());
    });
}
