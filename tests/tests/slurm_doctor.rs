//! The report before a launch: the hold method on a real Slurm, and the missing parts of an incomplete one.

use std::fs;
use std::path::Path;

use gantry_tests::slurm::{Cluster, error_of, lines_of, on_cluster};
use gantry_tests::testbed::Config;
use gantry_tests::{Finished, SOON, write_executable};
use serde_json::Value;

/// The hold method in `gantry wlm --json`, with these variables.
#[track_caller]
fn hold_of(cluster: &Cluster, variables: &[(&str, &str)]) -> Value {
    let done = cluster.run(gantry(), ["wlm", "--json"], variables).wait(SOON);
    assert_eq!(done.code(), 0, "{done:?}");
    let report: Value = serde_json::from_str(&done.stdout.concat()).expect("JSON");
    report["hold"].clone()
}

fn gantry() -> &'static Path {
    &gantry_tests::binaries().gantry
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A script at a path that every host can access.
fn script(name: &str, lines: &str) -> String {
    let folder =
        gantry_tests::target_dir().join("test-programs").join(format!("doctor-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join(name);
    write_executable(&path, lines);
    path.display().to_string()
}

#[test]
fn the_hold_method_is_told_with_its_reason() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let hold = hold_of(cluster, &[]);
        assert_eq!(hold["method"], "exec", "{hold}");
        assert!(text(&hold["why"]).contains("srun are understood"), "{hold}");
        let wrapper = script("site-run", "#!/bin/sh\nexec srun \"$@\"\n");
        let hold = hold_of(cluster, &[("GANTRY_LAUNCHER", &wrapper)]);
        assert_eq!(hold["method"], "mpir", "{hold}");
        assert!(text(&hold["why"]).contains("site-run are not known"), "{hold}");
        let done = cluster.gantry(["doctor"]).wait(2 * SOON);
        let lines = done.stdout.join("\n");
        let told =
            format!("hold method: exec, because the options of {}", cluster.bed.config().srun().display());
        assert!(lines.contains(&told), "{done:?}");
    });
}

/// Holds four ranks by a launcher around srun, releases them, and returns their output.
#[track_caller]
fn held_by(cluster: &Cluster, launcher: &str) -> Vec<String> {
    let args = ["--launcher", launcher, "--", "-N2", "-n4", "/bin/sh", "-c", "echo $SLURM_PROCID of it"];
    let (mut run, app) = cluster.held(&args);
    cluster.assert_held("of it", 4);
    cluster.ask(&["release", &app]);
    let done = run.wait(SOON);
    assert_eq!(done.code(), 0, "{done:?}");
    lines_of(&done)
}

#[test]
fn a_script_in_front_of_srun_has_its_ranks_held_too() {
    let expected: Vec<String> = (0..4).map(|rank| format!("{rank} of it")).collect();
    on_cluster(Config::with_nodes(2), move |cluster| {
        // A wrapper that is named srun. The plan treats its options as srun's.
        let srun = cluster.bed.config().srun();
        let named = script("srun", &format!("#!/bin/sh\nexec {} \"$@\"\n", srun.display()));
        assert_eq!(held_by(cluster, &named), expected);
        // A wrapper with another name, which adds options in front. srun itself holds the ranks.
        let wrapper = script("site-srun", "#!/bin/sh\nexec srun --job-name=site \"$@\"\n");
        assert_eq!(held_by(cluster, &wrapper), expected);
    });
}

/// Runs gantry with an empty PATH and these additional variables.
fn without_path(cluster: &Cluster, variables: &[&str], args: &[&str]) -> Finished {
    let gantry = gantry().to_str().expect("a path");
    let words = [&["PATH=/nowhere"], variables, &[gantry], args].concat();
    cluster.run("/usr/bin/env", words, &[]).wait(2 * SOON)
}

#[test]
fn a_site_without_slurms_commands_learns_the_missing_ones() {
    on_cluster(Config::with_nodes(2), |cluster| {
        let done = without_path(cluster, &[], &["launch", "--json", "--wlm", "slurm", "--", "/bin/true"]);
        assert_eq!(done.code(), 65, "{done:?}");
        let error = error_of(&done).to_string();
        assert!(error.contains("launcher 'srun' was not found") && error.contains("PATH"), "{error}");
        let error = error_of(&without_path(cluster, &[], &["attach", "--json", "--wlm", "slurm", "7.0"]));
        assert!(error.to_string().contains("there is no scontrol in PATH"), "{error}");
        let done = without_path(cluster, &["GANTRY_WLM=slurm"], &["wlm"]);
        assert_eq!(done.code(), 0, "{done:?}");
        assert!(done.stdout.iter().any(|line| line.contains("cannot be held: launcher 'srun'")), "{done:?}");
        let done = without_path(cluster, &["GANTRY_WLM=slurm"], &["doctor"]);
        assert_eq!(done.code(), 1, "{done:?}");
        assert!(done.stdout.iter().any(|line| line.starts_with("fail  hold method: ")), "{done:?}");
    });
}
