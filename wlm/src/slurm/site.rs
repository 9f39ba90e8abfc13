//! Options of agents' steps that depend on the site.

use std::ffi::{OsStr, OsString};

use super::ask::PATIENCE;
use crate::host::Host;

/// The first release in which steps that overlap share devices. Before it, `--overlap` is about processors only, and a
/// step asks for all devices of its job. Source: the release notes of 22.05; srun(1), `--gres`.
const SHARES_DEVICES: (u32, u32) = (22, 5);

/// What the site wants of agents' steps, by the variables of the reference interface. Without them the agents get no
/// devices if they would have to wait until the ranks have ended.
pub(super) fn build_site_options(srun: &OsStr, host: &dyn Host) -> Vec<OsString> {
    let text = |name| host.env(name).map(|value| value.to_string_lossy().into_owned());
    let would_wait = || ask_release(srun, host).is_some_and(|release| release < SHARES_DEVICES);
    let devices = text("CTI_SLURM_DAEMON_GRES").or_else(|| would_wait().then(|| "none".to_owned()));
    let devices = devices.map(|devices| OsString::from(format!("--gres={devices}")));
    let others = text("CTI_SLURM_DAEMON_ARGS").unwrap_or_default();
    devices.into_iter().chain(others.split_whitespace().map(OsString::from)).collect()
}

/// The release of an srun. `None`: it does not say.
fn ask_release(srun: &OsStr, host: &dyn Host) -> Option<(u32, u32)> {
    parse_release(&host.ask(&[srun.to_owned(), "--version".into()], PATIENCE).ok()?.stdout)
}

/// The release in `slurm 21.08.8-2`, or in `slurm-wlm 22.05.8` of Debian.
fn parse_release(said: &str) -> Option<(u32, u32)> {
    let line = said.lines().find(|line| line.starts_with("slurm"))?;
    let mut numbers = line.split_whitespace().next_back()?.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    #[track_caller]
    fn check(host: &FakeHost, expected: &[&str]) {
        assert_eq!(build_site_options("/bin/srun".as_ref(), host), expected);
    }

    #[test]
    fn agents_ask_for_no_devices_where_they_would_wait_for_those_of_the_ranks() {
        let with = |said: &str| FakeHost::default().with_answer("/bin/srun --version", said, "");
        check(&FakeHost::default(), &[]);
        check(&with(""), &[]);
        check(&with("slurm 20.11.9\n"), &["--gres=none"]);
        check(&with("site: hello\nslurm 21.08.8-2\n"), &["--gres=none"]);
        check(&with("slurm 22.05.0\n"), &[]);
        check(&with("slurm-wlm 22.05.8\n"), &[]);
        check(&with("slurm 25.05.8\n"), &[]);
        check(&with("slurm of the site\n"), &[]);
    }

    #[test]
    fn the_reference_interfaces_variables_decide() {
        let host = FakeHost::default().with_answer("/bin/srun --version", "slurm 21.08.8\n", "");
        let host = host.with_env("CTI_SLURM_DAEMON_ARGS", "--network=no_vni -q");
        check(&host, &["--gres=none", "--network=no_vni", "-q"]);
        check(&host.with_env("CTI_SLURM_DAEMON_GRES", "gpu:1"), &["--gres=gpu:1", "--network=no_vni", "-q"]);
    }
}
