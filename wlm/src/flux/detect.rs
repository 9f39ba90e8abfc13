//! Detects Flux on a machine: its command, and an instance.

use std::path::Path;

use crate::Evidence;
use crate::host::Host;

/// The variable with the address of a process's instance.
pub(super) const URI: &str = "FLUX_URI";

/// The directory of the system instance's socket. Source: flux-broker-attributes(7), `rundir`.
const SYSTEM_FOLDER: &str = "/run/flux";
const SYSTEM_SOCKET: &str = "local";

/// Evidence that this machine can launch through Flux. Runs no program, and does not ask whether a broker answers.
pub(super) fn detect(host: &dyn Host) -> Option<Evidence> {
    let flux = host.find_in_path("flux")?;
    let told_by = match host.env(URI) {
        Some(uri) => format!("{URI} is '{}'", uri.to_string_lossy()),
        None => find_system_instance(host)?,
    };
    Some(Evidence(format!("{told_by}, and flux is {}", flux.display())))
}

fn find_system_instance(host: &dyn Host) -> Option<String> {
    let names = host.list(Path::new(SYSTEM_FOLDER)).ok()?;
    let is_there = names.iter().any(|name| name == SYSTEM_SOCKET);
    is_there.then(|| format!("{SYSTEM_FOLDER}/{SYSTEM_SOCKET} is there"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    fn check(host: &FakeHost, expected: Option<&str>) {
        assert_eq!(detect(host).map(|evidence| evidence.0).as_deref(), expected);
    }

    #[test]
    fn a_command_and_an_instance_make_flux() {
        let with_command = || FakeHost::default().with_env("PATH", "/opt/f").with_file("/opt/f/flux", "");
        check(&with_command(), None);
        check(
            &with_command().with_env(URI, "local:///x"),
            Some("FLUX_URI is 'local:///x', and flux is /opt/f/flux"),
        );
        check(
            &with_command().with_file("/run/flux/local", ""),
            Some("/run/flux/local is there, and flux is /opt/f/flux"),
        );
        check(&FakeHost::default().with_env(URI, "local:///x"), None);
    }
}
