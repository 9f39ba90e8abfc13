//! Whether a machine uses Slurm: it has `srun`, and a configuration of a cluster.

use std::path::Path;

use super::conf;
use crate::Evidence;
use crate::host::Host;

/// Evidence that this machine can launch through Slurm. Runs no program, and does not contact the controller.
pub(super) fn detect(host: &dyn Host) -> Option<Evidence> {
    let srun = host.find_in_path("srun")?;
    let told_by = allocation(host).or_else(|| configuration(&srun, host))?;
    Some(Evidence(format!("{told_by}, and srun is {}", srun.display())))
}

/// A cluster may have its configuration elsewhere, for example only on its controller. Only srun would find it there.
pub(super) fn doubt(host: &dyn Host) -> Option<String> {
    let srun = host.find_in_path("srun")?;
    let is_lost = detect(host).is_none();
    is_lost.then(|| format!("srun is {}, but no configuration of Slurm was found", srun.display()))
}

fn allocation(host: &dyn Host) -> Option<String> {
    let job = host.env("SLURM_JOB_ID")?;
    Some(format!("SLURM_JOB_ID is '{}'", job.to_string_lossy()))
}

fn configuration(srun: &Path, host: &dyn Host) -> Option<String> {
    if let Some(path) = host.env("SLURM_CONF") {
        return Some(format!("SLURM_CONF is '{}'", path.to_string_lossy()));
    }
    if let Some(server) = host.env("SLURM_CONF_SERVER") {
        return Some(format!("SLURM_CONF_SERVER is '{}'", server.to_string_lossy()));
    }
    let found = conf::candidates(srun, host).into_iter().find(|path| host.read(path).is_ok())?;
    Some(format!("{} is there", found.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;
    use crate::registry::choose;

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

    #[test]
    fn a_configuration_in_the_installation_of_srun_counts() {
        let host = |link: &str| {
            FakeHost::default()
                .with_env("PATH", "/usr/bin")
                .with_file("/usr/bin/srun", "")
                .with_file("/opt/slurm/etc/slurm.conf", "")
                .with_link("/usr/bin/srun", link)
        };
        let found = Some("/opt/slurm/etc/slurm.conf is there, and srun is /usr/bin/srun");
        check(&host("/opt/slurm/bin/srun"), found);
        check(
            &host("/etc/alternatives/srun").with_link("/etc/alternatives/srun", "/opt/slurm/bin/srun"),
            found,
        );
        check(&host("srun"), None);
    }

    #[test]
    fn a_machine_with_srun_alone_is_chosen_with_a_doubt() {
        let host = || FakeHost::default().with_env("PATH", "/bin").with_file("/bin/srun", "");
        let doubt = |host: &FakeHost, asked| choose(asked, host).unwrap().doubt.map(|doubt| doubt.text);
        let said = "srun is /bin/srun, but no configuration of Slurm was found; choose slurm by --wlm slurm or GANTRY_WLM=slurm, or localhost by GANTRY_WLM=localhost";
        assert_eq!(doubt(&host(), None).as_deref(), Some(said));
        assert_eq!(doubt(&FakeHost::default(), None), None);
        assert_eq!(doubt(&host(), Some("localhost")), None);
        assert_eq!(doubt(&host().with_env("GANTRY_WLM", "localhost"), None), None);
        assert_eq!(doubt(&host().with_file("/etc/slurm/slurm.conf", ""), None), None);
    }
}
