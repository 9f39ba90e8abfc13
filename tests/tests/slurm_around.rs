//! Tests must not use the cluster of the machine that runs them. Here, suites for the local machine run on a login
//! node with a live Slurm and a PBS, and in a job. They must pass, and neither queue may get a job.
#![expect(clippy::disallowed_methods, reason = "a test starts foreign programs and reads the environment")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use gantry_tests::testbed::{Config, Shared, shared, usable};
use gantry_tests::{binaries, require, target_dir, within, write_executable};

/// The timeout of a whole test, including a new testbed.
const LIMIT: Duration = Duration::from_secs(240);

/// A qsub that records that it was called. A site's other commands do not matter.
const QSUB: &str = "#!/bin/sh\necho \"$@\" >>/run/site/asked\nexit 1\n";

/// The environment of a PBS job. The port of its mom is the port of Slurm's controller.
const JOB_OF_PBS: [&str; 7] = [
    "PBS_JOBID=7.head",
    "PBS_JOBCOOKIE=00000000000000000000000000000001",
    "PBS_MOMPORT=6817",
    "PBS_NODENUM=0",
    "PBS_TASKNUM=00000001",
    "PBS_ENVIRONMENT=PBS_BATCH",
    "PBS_NODEFILE=/run/site/nodes",
];

/// The newest build of the test program with this name, beside this one.
#[track_caller]
fn suite(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("this test");
    let changed = |path: &PathBuf| fs::metadata(path).and_then(|it| it.modified()).ok();
    let is_it = |path: &PathBuf| {
        let stem = path.file_name().and_then(|file| file.to_str()).and_then(|file| file.rsplit_once('-'));
        stem.is_some_and(|(stem, hash)| stem == name && !hash.contains('.'))
    };
    let all = fs::read_dir(own.parent().expect("a folder")).expect("the folder of test programs");
    let found = all.flatten().map(|entry| entry.path()).filter(is_it).max_by_key(changed);
    found.unwrap_or_else(|| panic!("{name} is not built: cargo test --workspace --no-run"))
}

/// A login node that can also submit PBS jobs.
fn site() -> Shared {
    let bed = shared(&Config::with_nodes(1));
    let file = |path: &str| bed.login().path(path).expect("the login node");
    fs::create_dir_all(file("/run/site/bin")).expect("a folder");
    fs::write(file("/etc/pbs.conf"), "PBS_SERVER=login\nPBS_EXEC=/run/site\n").expect("a file");
    fs::write(file("/run/site/nodes"), "n001\n").expect("a file");
    write_executable(&file("/run/site/bin/qsub"), QSUB);
    bed
}

/// Runs a suite's tests with one of these words in their names, as root on the login node, with these variables. Uses
/// a launcher if one is named.
#[track_caller]
fn passes(bed: &Shared, launcher: &[&str], suite: &Path, tests: &[&str], variables: &[&str]) {
    let mut command = bed.login().root_command("env").expect("the login node");
    command
        .arg("-C")
        .arg(target_dir())
        .arg("PATH=/run/site/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .args(variables);
    command.arg(format!("GANTRY_BIN_DIR={}", binaries().dir.display()));
    // The test command looks for leftovers there.
    for name in ["GANTRY_TEST_RUN", "TMPDIR"] {
        command.args(std::env::var(name).map(|value| format!("{name}={value}")));
    }
    command.args(["timeout", "--kill-after=5", "120"]).args(launcher).arg(suite).args(tests);
    let output = command.stdin(Stdio::null()).output().expect("nsenter");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{}: {}\n{said}", suite.display(), output.status);
    assert!(!said.contains("test result: ok. 0 passed"), "{} has none of {tests:?}", suite.display());
}

/// The number of jobs that Slurm has ever had.
fn jobs_of_slurm(bed: &Shared) -> u32 {
    let mut scontrol: Command = bed.login().root_command("scontrol").expect("the login node");
    let said = scontrol.args(["show", "config"]).output().expect("scontrol").stdout;
    let said = String::from_utf8_lossy(&said).into_owned();
    let next = said.lines().find_map(|line| line.strip_prefix("NEXT_JOB_ID")?.trim().strip_prefix("= "));
    let next: u32 =
        next.and_then(|next| next.parse().ok()).unwrap_or_else(|| panic!("no next job in {said}"));
    next - 1
}

#[test]
fn suites_that_mean_this_machine_submit_nothing_to_the_cluster_around_them() {
    require!(usable(&Config::with_nodes(1)));
    let [launch, cli, capi] = ["conformance", "cli", "capi"].map(suite);
    within(LIMIT, move || {
        // This needs cargo, which a testbed does not have.
        let _installed = gantry_tests::capi::prefix();
        let bed = site();
        passes(&bed, &[], &launch, &["launch::"], &JOB_OF_PBS);
        passes(&bed, &[], &cli, &[], &[]);
        passes(&bed, &[], &capi, &["app::"], &[]);
        assert_eq!(jobs_of_slurm(&bed), 0);
        passes(&bed, &["srun", "-n1", "--mpi=pmi2"], &launch, &["launch::"], &[]);
        assert_eq!(jobs_of_slurm(&bed), 1);
        let asked = fs::read_to_string(bed.login().path("/run/site/asked").expect("the login node"));
        assert!(asked.is_err(), "qsub was asked: {asked:?}");
    });
}
