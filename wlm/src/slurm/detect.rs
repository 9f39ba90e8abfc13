//! Whether a machine uses Slurm: it has `srun`, and a configuration of a cluster.

use std::path::PathBuf;

use crate::Evidence;
use crate::host::Host;

/// Possible configurations: a package's, that of Debian before 11, and the one that a node gets from the controller.
pub(super) const CONFIGURATIONS: [&str; 4] = [
    "/etc/slurm/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/usr/local/etc/slurm.conf",
    "/run/slurm/conf/slurm.conf",
];

/// Evidence that this machine can launch through Slurm. Runs no program, and does not contact the controller.
pub(super) fn detect(host: &dyn Host) -> Option<Evidence> {
    let srun = host.find_in_path("srun")?;
    let told_by = allocation(host).or_else(|| configuration(host))?;
    Some(Evidence(format!("{told_by}, and srun is {}", srun.display())))
}

fn allocation(host: &dyn Host) -> Option<String> {
    let job = host.env("SLURM_JOB_ID")?;
    Some(format!("SLURM_JOB_ID is '{}'", job.to_string_lossy()))
}

fn configuration(host: &dyn Host) -> Option<String> {
    if let Some(path) = host.env("SLURM_CONF") {
        return Some(format!("SLURM_CONF is '{}'", path.to_string_lossy()));
    }
    if let Some(server) = host.env("SLURM_CONF_SERVER") {
        return Some(format!("SLURM_CONF_SERVER is '{}'", server.to_string_lossy()));
    }
    let found = CONFIGURATIONS.into_iter().find(|path| host.read(&PathBuf::from(path)).is_ok())?;
    Some(format!("{found} is there"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    fn check(host: &FakeHost, expected: Option<&str>) {
        assert_eq!(detect(host).map(|evidence| evidence.0).as_deref(), expected);
    }

    #[test]
    fn srun_and_a_cluster_make_slurm() {
        let with_srun = || FakeHost::default().with_env("PATH", "/bin:/opt/s").with_file("/opt/s/srun", "");
        check(&FakeHost::default(), None);
        check(&with_srun(), None);
        check(
            &with_srun().with_env("SLURM_JOB_ID", "7"),
            Some("SLURM_JOB_ID is '7', and srun is /opt/s/srun"),
        );
        check(&with_srun().with_env("SLURM_CONF", "/x"), Some("SLURM_CONF is '/x', and srun is /opt/s/srun"));
        check(
            &with_srun().with_file("/etc/slurm/slurm.conf", ""),
            Some("/etc/slurm/slurm.conf is there, and srun is /opt/s/srun"),
        );
        check(&FakeHost::default().with_env("SLURM_JOB_ID", "7"), None);
    }
}
