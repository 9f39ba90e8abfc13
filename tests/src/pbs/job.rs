//! Jobs of a real PBS on a bed, over three hosts with two nodes each.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::becomes_true;
use crate::testbed::Testbed;
use crate::testbed::config::HOME;

/// Three hosts with two places each.
pub(super) const SELECT: &str = "select=3:ncpus=2:mpiprocs=2";

/// The file in the home with a script's output.
const SAID: &str = "said";

/// Submits a job with this script; [`said`] returns its output. Returns the job's id.
///
/// # Panics
/// When PBS refuses it, or it does not end.
#[track_caller]
pub fn submit(bed: &Testbed, script: &str) -> String {
    submit_as(bed, SELECT, script, SAID)
}

/// As [`submit`], on the hosts of `select`. The output goes to the file of that name in the home; the script is in
/// the same folder.
///
/// # Panics
/// As [`submit`].
#[track_caller]
pub(super) fn submit_as(bed: &Testbed, select: &str, script: &str, said: &str) -> String {
    let file = format!("{said}.sh");
    let path = bed.login().path(Path::new(HOME).join(&file)).expect("the login node");
    std::fs::write(&path, format!("({script}) > $HOME/{said} 2>&1; echo ended $? >> $HOME/{said}\n"))
        .expect("a script");
    let left = bed.login().path(Path::new(HOME).join(said)).expect("the login node");
    drop(std::fs::remove_file(left));
    // -f: otherwise a process stays in the background to make the next qsub faster.
    let mut qsub = bed.login().command("qsub").expect("the login node");
    qsub.args(["-f", "-l", select, "-l", "place=scatter", "-j", "oe", "-o", "/dev/null", &file]);
    let output = qsub.stdin(Stdio::null()).output().expect("qsub");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The script's output when it has ended.
///
/// # Panics
/// When PBS does not take it, or it does not end.
#[track_caller]
pub fn said(bed: &Testbed, patience: Duration) -> String {
    let path = bed.login().path(Path::new(HOME).join(SAID)).expect("the login node");
    let mut text = String::new();
    let ended = becomes_true(patience, || {
        text = std::fs::read(&path)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default();
        text.lines().any(|line| line.starts_with("ended "))
    });
    assert!(ended, "the job has not ended:\n{text}{}", bed.last_log_lines());
    text
}
