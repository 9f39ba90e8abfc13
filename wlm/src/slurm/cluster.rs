//! The cluster of a job, where a site has several.

use super::conf::own_cluster;
use crate::host::Host;
use crate::{Error, Result};

/// The variable that chooses the cluster of most commands.
const CLUSTERS: &str = "SLURM_CLUSTERS";

/// Checks that the variable does not name another cluster. sattach ignores it, and would describe the own cluster's job
/// of the same number. Source: sattach(1).
///
/// # Errors
/// It names another one.
pub(super) fn check_variable(host: &dyn Host) -> Result<()> {
    let (Some(named), Some(own)) = (host.env(CLUSTERS), own_cluster(host)) else { return Ok(()) };
    if named.eq_ignore_ascii_case(&own) {
        return Ok(());
    }
    let named = named.to_string_lossy();
    Err(Error::invalid_with(
        format!(
            "{CLUSTERS} is '{named}', and gantry attaches to jobs of its own cluster only, which is {own}"
        ),
        format!("unset it, or work on a login node of {named}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    /// A machine with these names of the variable and of its own cluster.
    fn host(variable: &str, own: &str) -> FakeHost {
        let host = FakeHost::default().with_env(CLUSTERS, variable);
        host.with_file("/etc/slurm/slurm.conf", format!("ClusterName={own}"))
    }

    #[test]
    fn a_variable_that_names_another_cluster_is_refused() {
        assert!(check_variable(&host("", "cpu")).is_ok());
        assert!(check_variable(&host("CPU", "cpu")).is_ok());
        assert!(check_variable(&FakeHost::default().with_env(CLUSTERS, "gpu")).is_ok());
        for other in ["gpu", "cpu,gpu"] {
            let error = check_variable(&host(other, "cpu")).unwrap_err();
            assert!(error.to_string().contains(&format!("SLURM_CLUSTERS is '{other}'")), "{error}");
        }
    }
}
