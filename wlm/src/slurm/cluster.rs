//! The cluster of a job, where a site has several.

use std::ffi::{OsStr, OsString};

use super::conf::own_cluster;
use crate::host::Host;
use crate::launcher::Part;
use crate::{Error, Result};

/// The variable that chooses the cluster of most commands.
const CLUSTERS: &str = "SLURM_CLUSTERS";

/// Checks that the variable does not name another cluster. sattach ignores it, and would describe the own cluster's job
/// of the same number. Source: sattach(1).
///
/// # Errors
/// It names another one.
pub(super) fn check_variable(host: &dyn Host) -> Result<()> {
    let Some(named) = host.env(CLUSTERS) else { return Ok(()) };
    let Some(own) = own_cluster(host).filter(|own| !named.eq_ignore_ascii_case(own)) else { return Ok(()) };
    let named = named.to_string_lossy();
    Err(Error::invalid_with(
        format!(
            "{CLUSTERS} is '{named}', and gantry attaches to jobs of its own cluster only, which is {own}"
        ),
        format!("unset it, or work on a login node of {named}"),
    ))
}

/// Checks that srun's `--clusters` leads to the cluster of the other commands: gantry asks about the job, and cancels
/// it, by its number.
///
/// # Errors
/// It leads elsewhere.
pub(super) fn check_option(parts: &[Part], host: &dyn Host) -> Result<()> {
    let value = |part: &'_ Part| part.value("clusters").or_else(|| part.value("cluster")).map(OsString::from);
    let Some(named) = parts.iter().find_map(value) else { return Ok(()) };
    if is_asked(&named, host) {
        return Ok(());
    }
    Err(Error::invalid_with(
        "srun's --clusters sends the job to a cluster that gantry's own commands do not ask",
        format!("set {CLUSTERS}={} instead", named.to_string_lossy()),
    ))
}

/// Whether gantry's commands ask this cluster.
pub(super) fn is_asked(cluster: &OsStr, host: &dyn Host) -> bool {
    let asked = host.env(CLUSTERS).or_else(|| own_cluster(host).map(OsString::from));
    asked.is_some_and(|asked| asked.eq_ignore_ascii_case(cluster))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;
    use crate::launcher::locate;
    use crate::slurm::SRUN;

    /// A machine with these names of the variable and of its own cluster.
    fn host(variable: &str, own: &str) -> FakeHost {
        let host = FakeHost::default().with_env(CLUSTERS, variable);
        host.with_file("/etc/slurm/slurm.conf", format!("ClusterName={own}"))
    }

    #[test]
    fn a_variable_that_names_another_cluster_is_refused() {
        let unset = host("", "cpu");
        assert!(check_variable(&unset).is_ok() && unset.reads() == 0);
        assert!(check_variable(&host("CPU", "cpu")).is_ok());
        assert!(check_variable(&FakeHost::default().with_env(CLUSTERS, "gpu")).is_ok());
        for other in ["gpu", "cpu,gpu"] {
            let error = check_variable(&host(other, "cpu")).unwrap_err();
            assert!(error.to_string().contains(&format!("SLURM_CLUSTERS is '{other}'")), "{error}");
        }
    }

    #[test]
    fn an_option_leads_to_the_cluster_that_is_asked_or_is_refused() {
        let check = |args: &[&str], variable: &str, own: &str| {
            let args: Vec<_> = args.iter().map(OsString::from).collect();
            check_option(&locate(&SRUN, &args, &[]).unwrap(), &host(variable, own))
        };
        assert!(check(&["-n2", "a", "-M", "gpu"], "", "cpu").is_ok());
        assert!(check(&["-Mcpu", "a"], "", "cpu").is_ok());
        assert!(check(&["--clusters=GPU", "a"], "gpu", "cpu").is_ok());
        for option in ["-Mgpu", "--cluster=gpu", "--clusters=gpu"] {
            let error = check(&[option, "a"], "", "cpu").unwrap_err();
            assert_eq!(error.hint().as_deref(), Some("set SLURM_CLUSTERS=gpu instead"), "{option}");
        }
        assert!(check(&["a", ":", "-Mgpu", "b"], "", "").is_err());
        assert!(check(&["-Mcpu", "a"], "gpu", "cpu").is_err());
    }
}
