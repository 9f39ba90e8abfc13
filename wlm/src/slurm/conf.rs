//! The relevant parts of Slurm's configuration: whether processes that a step leaves behind are killed at its end, and
//! the cluster's name.
//!
//! The files are read: `scontrol show config` would cost a program and a request to the controller in every launch.
//! In doubt, such processes are killed, which is always correct and slower. Source: slurm.conf(5).

use std::path::{Path, PathBuf};

use crate::host::Host;

/// Usual configurations: a package's, that of Debian before 11, and the one that a node gets from the controller.
const USUAL: [&str; 4] = [
    "/etc/slurm/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/usr/local/etc/slurm.conf",
    "/run/slurm/conf/slurm.conf",
];

/// Configurations in the installation of a program of Slurm, from its prefix.
const BESIDE: [&str; 2] = ["etc/slurm.conf", "etc/slurm/slurm.conf"];

/// How many links from a program to its installation are followed.
const MOST_LINKS: usize = 8;

/// Tracking plugins that only find processes related to a task, by parents or by process groups.
const LOOSE: [&str; 2] = ["linuxproc", "pgid"];

/// Parameters that can put tasks into control groups of their step, independent of the tracking plugin.
const BY_CGROUP: [&str; 2] = ["taskplugin", "jobacctgathertype"];

/// The maximum number of files read. Configurations may include each other.
const MOST_FILES: usize = 64;

/// Where the configuration for this `srun` may be. SLURM_CONF names the only one.
pub(super) fn candidates(srun: &Path, host: &dyn Host) -> Vec<PathBuf> {
    if let Some(told) = host.env("SLURM_CONF") {
        return vec![told.into()];
    }
    let mut found: Vec<PathBuf> = USUAL.iter().map(PathBuf::from).collect();
    let mut program = srun.to_owned();
    for _ in 0..MOST_LINKS {
        let folder = program.parent().unwrap_or(Path::new("/"));
        found.extend(folder.parent().iter().flat_map(|prefix| BESIDE.map(|it| prefix.join(it))));
        let Ok(target) = host.read_link(&program) else { break };
        program = folder.join(target);
    }
    found
}

/// Whether processes that a step leaves behind surely survive it. Then an agent in the app's step can clean up after
/// the step's end.
///
/// `srun` is the launcher's path: its configuration may be in its installation. If there are several configurations,
/// all must agree, since only the launcher knows the one that it was built for.
pub(super) fn leftovers_survive(srun: &Path, host: &dyn Host) -> bool {
    let candidates = candidates(srun, host);
    let mut read = candidates.iter().filter_map(|path| Some((path, host.read(path).ok()?))).peekable();
    read.peek().is_some() && read.all(|(path, text)| is_loose(path, text, host))
}

/// The name of this machine's own cluster, in lower case, as Slurm has it. `None`: no configuration has a name, or two
/// have different ones.
pub(super) fn own_cluster(host: &dyn Host) -> Option<String> {
    let srun = host.find_in_path("srun").unwrap_or_default();
    let mut names = candidates(&srun, host).into_iter().filter_map(|path| {
        let (parameters, _) = read_parameters(&path, host.read(&path).ok()?, host);
        let mut values = parameters.into_iter().filter(|(name, _)| name == "clustername");
        values.next().map(|(_, value)| value)
    });
    let first = names.next()?;
    names.all(|name| name == first).then_some(first)
}

/// Whether a configuration and all files that it includes allow that.
fn is_loose(path: &Path, text: Vec<u8>, host: &dyn Host) -> bool {
    let (parameters, are_all) = read_parameters(path, text, host);
    let (mut loose, mut strict) = (false, !are_all);
    for (name, value) in &parameters {
        if name == "proctracktype" {
            let kind = value.strip_prefix("proctrack/").unwrap_or(value);
            let is_known = LOOSE.contains(&kind);
            loose |= is_known;
            strict |= !is_known;
        } else if BY_CGROUP.contains(&name.as_str()) {
            strict |= value.contains("cgroup");
        }
    }
    loose && !strict
}

/// The parameters of a configuration and of the files that it includes, in lower case. `false`: some files could not be
/// read.
fn read_parameters(path: &Path, text: Vec<u8>, host: &dyn Host) -> (Vec<(String, String)>, bool) {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let (mut texts, mut files) = (vec![text], 1);
    let (mut parameters, mut are_all) = (Vec::new(), true);
    while let Some(text) = texts.pop() {
        for name in take_parameters(&String::from_utf8_lossy(&text), &mut parameters) {
            files += 1;
            // Names that contain the cluster's name (%c) do not exist in this form.
            match host.read(&folder.join(name)) {
                Ok(text) if files <= MOST_FILES => texts.push(text),
                _ => are_all = false,
            }
        }
    }
    (parameters, are_all)
}

/// Takes the lines of one file, and returns the names of included files.
fn take_parameters(text: &str, parameters: &mut Vec<(String, String)>) -> Vec<String> {
    let mut included = Vec::new();
    for line in join_continued(text).lines() {
        let mut words = line.split_whitespace();
        if let Some(first) = words.next()
            && first.eq_ignore_ascii_case("include")
        {
            included.extend(words.next().map(str::to_owned));
            continue;
        }
        // The equals sign may have spaces around it.
        let line = line.split('=').map(str::trim).collect::<Vec<_>>().join("=").to_ascii_lowercase();
        let pairs = line.split_whitespace().filter_map(|word| word.split_once('='));
        parameters.extend(pairs.map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned())));
    }
    included
}

/// Removes comments, and joins lines that end in a backslash with the next ones.
fn join_continued(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    for line in text.lines() {
        let line = without_comment(line).trim_end();
        match line.strip_suffix('\\') {
            Some(begun) => joined.push_str(begun),
            None => {
                joined.push_str(line);
                joined.push('\n');
            }
        }
    }
    joined
}

/// A number sign begins a comment, unless a backslash precedes it.
fn without_comment(line: &str) -> &str {
    let begins = line.match_indices('#').find(|(at, _)| !line[..*at].ends_with('\\'));
    begins.map_or(line, |(at, _)| &line[..at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    fn check(host: &FakeHost, expected: bool) {
        assert_eq!(leftovers_survive(Path::new("/opt/s/bin/srun"), host), expected, "{host:?}");
    }

    #[track_caller]
    fn check_text(text: &str, expected: bool) {
        check(&FakeHost::default().with_file("/etc/slurm/slurm.conf", text), expected);
    }

    #[test]
    fn only_a_certain_configuration_leaves_processes_alone() {
        check_text("ProctrackType=proctrack/linuxproc\n", true);
        check_text("ClusterName=a  proctracktype = \"proctrack/pgid\" # by group\n", true);
        check_text("ProctrackType=linuxproc\nTaskPlugin=task/none\n", true);
        check_text("ProctrackType=\\\n  proctrack/linuxproc\n", true);
        check_text("ProctrackType=proctrack/cgroup\n", false);
        check_text("ProctrackType=proctrack/cray_aries\n", false);
        check_text("#ProctrackType=proctrack/linuxproc\n", false);
        check_text("", false);
        check_text("ProctrackType=proctrack/linuxproc\nTaskPlugin=task/affinity,task/cgroup\n", false);
        check_text("ProctrackType=proctrack/linuxproc\nJobAcctGatherType=jobacct_gather/cgroup\n", false);
        check_text("ProctrackType=proctrack/linuxproc\nProctrackType=proctrack/cgroup\n", false);
    }

    #[test]
    fn included_files_count_and_those_that_cannot_be_read_leave_a_doubt() {
        let with = |included: &str| {
            FakeHost::default()
                .with_file("/etc/slurm/slurm.conf", "INCLUDE track.conf\n")
                .with_file("/etc/slurm/track.conf", included)
        };
        check(&with("ProctrackType=proctrack/linuxproc\n"), true);
        check(&with("ProctrackType=proctrack/linuxproc\ninclude /gone.conf\n"), false);
        check(&with("ProctrackType=proctrack/linuxproc\ninclude slurm.conf\n"), false);
    }

    #[test]
    fn a_named_file_decides_and_otherwise_all_must_agree() {
        let (loose, strict) = ("ProctrackType=proctrack/linuxproc", "ProctrackType=proctrack/cgroup");
        let two = |second| {
            FakeHost::default()
                .with_file("/etc/slurm/slurm.conf", loose)
                .with_file("/opt/s/etc/slurm.conf", second)
        };
        check(&two(loose), true);
        check(&two(strict), false);
        check(&two(strict).with_env("SLURM_CONF", "/etc/slurm/slurm.conf"), true);
        check(&two(loose).with_env("SLURM_CONF", "/gone"), false);
        check(&FakeHost::default(), false);
    }

    #[test]
    fn a_cluster_has_the_name_on_which_all_configurations_agree() {
        let with = |path: &str, text: &str| FakeHost::default().with_file(path, text);
        let check = |host: &FakeHost, expected: Option<&str>| {
            assert_eq!(own_cluster(host).as_deref(), expected, "{host:?}");
        };
        check(&FakeHost::default(), None);
        check(&with(USUAL[0], "SlurmctldHost=a\n"), None);
        check(&with(USUAL[0], "SlurmctldHost=a clustername = \"GPU\" # b\n"), Some("gpu"));
        let included =
            with(USUAL[0], "include /gone\ninclude c\n").with_file("/etc/slurm/c", "ClusterName=a");
        check(&included, Some("a"));
        let two = |second| with(USUAL[0], "ClusterName=a").with_file(USUAL[1], second);
        check(&two("ClusterName=A"), Some("a"));
        check(&two("ClusterName=b"), None);
        check(&two("ClusterName=b").with_env("SLURM_CONF", USUAL[1]), Some("b"));
        let beside = with("/opt/s/etc/slurm.conf", "ClusterName=a").with_env("PATH", "/opt/s/bin");
        check(&beside.with_file("/opt/s/bin/srun", ""), Some("a"));
    }
}
