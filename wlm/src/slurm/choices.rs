//! How ranks would be held with srun, as shown before a launch.

use std::ffi::OsString;

use crate::choose_hold;
use crate::host::fake::FakeHost;
use crate::registry::find;
use gantry_types::launch::HoldMethod;

#[track_caller]
fn check(
    wlm: &str,
    launcher: Option<&str>,
    method: HoldMethod,
    expected: std::result::Result<(&str, &str), &str>,
) {
    check_on(
        FakeHost::default().with_file("/etc/slurm/slurm.conf", "ProctrackType=proctrack/linuxproc"),
        wlm,
        launcher,
        method,
        expected,
    );
}

#[track_caller]
fn check_on(
    host: FakeHost,
    wlm: &str,
    launcher: Option<&str>,
    method: HoldMethod,
    expected: std::result::Result<(&str, &str), &str>,
) {
    let host = host
        .with_env("PATH", "/bin")
        .with_file("/bin/srun", "")
        .with_file("/bin/mpiexec.hydra", "")
        .with_file("/bin/my-run", "#!/bin/sh\n")
        .with_answer("/bin/my-run --version", "slurm 24.11\n", "");
    let found = choose_hold(find(wlm).unwrap(), launcher.map(OsString::from), method, &host);
    match (&found, expected) {
        (Ok(found), Ok((method, why))) => {
            assert!(found.method == method && found.why.contains(why), "{found:?}");
        }
        (Err(found), Err(expected)) => assert_eq!(found.to_string(), expected),
        _ => panic!("{found:?} {expected:?}"),
    }
}

#[test]
fn understood_options_are_held_by_exec() {
    let detect = HoldMethod::Detect;
    check("localhost", None, detect, Ok(("direct", "no launcher")));
    check("localhost", Some("mpiexec.hydra"), detect, Ok(("exec", "/bin/mpiexec.hydra")));
    check("slurm", None, detect, Ok(("exec", "the options of /bin/srun are understood")));
    check("slurm", None, HoldMethod::Mpir, Ok(("mpir", "chosen by the caller: /bin/srun")));
    check("slurm", None, HoldMethod::MpirStop, Ok(("mpir-stop", "chosen by the caller: /bin/srun")));
}

#[test]
fn srun_holds_its_ranks_itself_where_agents_beside_them_would_be_killed_with_them() {
    let strict = || FakeHost::default().with_file("/etc/slurm/slurm.conf", "ProctrackType=proctrack/cgroup");
    let why = "agents among the ranks of /bin/srun";
    check_on(strict(), "slurm", None, HoldMethod::Detect, Ok(("mpir", why)));
    check_on(strict(), "slurm", None, HoldMethod::Exec, Ok(("exec", "/bin/srun are understood")));
}

#[test]
fn a_script_in_front_of_the_launcher_makes_it_mpir() {
    let refused =
        "/bin/my-run is not a known launcher: it is a script, whose answer to --version is 'slurm 24.11'";
    check(
        "slurm",
        Some("my-run"),
        HoldMethod::Detect,
        Ok(("mpir", "the options of /bin/my-run are not known")),
    );
    check("slurm", Some("my-run"), HoldMethod::Exec, Err(refused));
    check(
        "localhost",
        Some("my-run"),
        HoldMethod::Detect,
        Ok(("mpir", "the options of /bin/my-run are not known")),
    );
    check("localhost", Some("my-run"), HoldMethod::Exec, Err(refused));
    check("localhost", Some("mpiexec.hydra"), HoldMethod::Mpir, Ok(("mpir", "chosen by the caller")));
    check("localhost", None, HoldMethod::Mpir, Err("no launcher is named that could hold its ranks"));
    check("slurm", Some("no-run"), HoldMethod::Detect, Err("launcher 'no-run' was not found"));
}
