//! Runs Flux's commands. If a command gives no answer, its message becomes the error.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use gantry_types::error::Failure;
use gantry_types::host_set::parse_host_list;

use super::command::{build_events, build_hosts, build_info};
use super::detect::URI;
use super::job::{Entry, Job, parse_events, parse_jobs};
use super::reference::{JobId, Target};
use super::words::parse_failure;
use crate::host::{Asked, Host};
use crate::{Error, Result};

/// The timeout for a command of Flux.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// An instance, as variables for Flux's commands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Instance(Option<String>);

impl Instance {
    /// The instance of this job. Asks Flux unless it is this process's own instance.
    ///
    /// # Errors
    /// A job on the path does not run, or is not an instance.
    pub(super) fn of(target: &Target, host: &dyn Host) -> Result<Self> {
        let Some(path) = target.instance_path() else { return Ok(Self(None)) };
        let own = Self(None);
        let said = own.ask(&["uri".into(), path.clone().into()], host)?;
        let uri = said.stdout.trim();
        if uri.is_empty() {
            return Err(refused(&["flux".into(), "uri".into(), path.into()], &said));
        }
        Ok(Self(Some(localize(uri, &host.hostname()))))
    }

    /// The instance at that address.
    pub(super) fn at(uri: &str, host: &dyn Host) -> Self {
        Self(Some(localize(uri, &host.hostname())))
    }

    /// The variables that direct a command to the instance, in addition to those of this process.
    pub(super) fn variables(&self) -> Vec<(OsString, OsString)> {
        self.0.iter().map(|uri| (OsString::from(URI), OsString::from(uri))).collect()
    }

    /// Runs `flux` with these words and returns its output.
    ///
    /// # Errors
    /// `flux` is not installed, or cannot be run. [`Error::Unanswered`]: it did not run to its end.
    pub(super) fn ask(&self, words: &[OsString], host: &dyn Host) -> Result<Asked> {
        let command = flux(words, host)?;
        let said = host.ask_in_with(Path::new("/"), &command, &self.variables(), PATIENCE);
        said.map_err(|error| Error::not_run(&command, &error))
    }

    /// The instance's record of a job.
    ///
    /// # Errors
    /// The job is unknown. [`Error::Unanswered`]: the instance does not answer.
    pub(super) fn ask_job(&self, job: JobId, host: &dyn Host) -> Result<Job> {
        let words = build_info(job);
        let said = self.ask(&words, host)?;
        let found = parse_jobs(&said.stdout)?.into_iter().find(|found| found.id == job.0);
        found.ok_or_else(|| refused(&with_program(&words), &said))
    }

    /// The events of a job.
    ///
    /// # Errors
    /// As [`ask_job`](Self::ask_job).
    pub(super) fn ask_events(&self, job: JobId, host: &dyn Host) -> Result<Vec<Entry>> {
        let words = build_events(job);
        let said = self.ask(&words, host)?;
        match parse_events(&said.stdout)? {
            events if events.is_empty() => Err(refused(&with_program(&words), &said)),
            events => Ok(events),
        }
    }
}

/// Whether all brokers of this process's instance are on one host, as `flux start --test-size` makes them.
///
/// # Errors
/// Some hosts have several brokers. Their ranks could not learn how many ranks their host has.
pub(super) fn is_one_host(host: &dyn Host) -> Result<bool> {
    // The system's instance has a broker on each host.
    if host.env(URI).is_none() {
        return Ok(false);
    }
    // If the instance does not answer, the launch says so.
    let Ok(said) = Instance::default().ask(&build_hosts(), host) else { return Ok(false) };
    let brokers = parse_host_list(said.stdout.trim()).unwrap_or_default();
    let hosts: BTreeSet<&String> = brokers.iter().collect();
    match hosts.len() {
        0 | 1 => Ok(brokers.len() > 1),
        some if some == brokers.len() => Ok(false),
        some => Err(Error::invalid_with(
            format!("the instance of Flux has {} brokers on {some} hosts", brokers.len()),
            "start one broker on each host, or all brokers on one host; or launch by 'flux run' and attach to the job",
        )),
    }
}

/// The command line with these words.
///
/// # Errors
/// `flux` is not in PATH.
pub(super) fn flux(words: &[OsString], host: &dyn Host) -> Result<Vec<OsString>> {
    let path = host.find_in_path("flux").ok_or_else(|| {
        Error::not_found(
            "there is no flux in PATH",
            "install flux-core, or add the folder of its commands to PATH",
        )
    })?;
    Ok(std::iter::once(path.into_os_string()).chain(words.iter().cloned()).collect())
}

fn with_program(words: &[OsString]) -> Vec<OsString> {
    std::iter::once("flux".into()).chain(words.iter().cloned()).collect()
}

/// The error for a command's output that does not have what was asked for.
pub(super) fn refused(command: &[OsString], said: &Asked) -> Error {
    Error::of_answer(explain(command, said))
}

/// A command's own message.
pub(super) fn explain(command: &[OsString], said: &Asked) -> Failure {
    let words: Vec<String> = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    parse_failure(&words, "an error", &said.stderr)
}

/// Converts an ssh address of an instance to a local one, if the instance is on this machine.
fn localize(uri: &str, hostname: &str) -> String {
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let local = uri.strip_prefix("ssh://").and_then(|rest| rest.split_once('/')).filter(|(there, _)| {
        let name = there.rsplit('@').next().unwrap_or_default();
        short(name.split(':').next().unwrap_or_default()) == short(hostname)
    });
    local.map_or_else(|| uri.to_owned(), |(_, path)| format!("local:///{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    #[test]
    fn an_instance_has_a_broker_on_each_host_or_all_on_one() {
        let host = || FakeHost::default().with_env("PATH", "/bin").with_file("/bin/flux", "");
        let check = |brokers: &str, expected: std::result::Result<bool, &str>| {
            let host = host().with_env(URI, "local:///x");
            let host = host.with_answer("/bin/flux getattr hostlist", brokers, "");
            let found = is_one_host(&host).map_err(|error| error.to_string());
            assert_eq!(found, expected.map_err(str::to_owned), "{brokers}");
        };
        check("n[1-3]\n", Ok(false));
        check("n1\n", Ok(false));
        check("n1,n1,n1\n", Ok(true));
        check("n1,n1,n2\n", Err("the instance of Flux has 3 brokers on 2 hosts"));
        check("", Ok(false));
        assert!(!is_one_host(&host()).unwrap());
    }

    #[test]
    fn an_instance_of_this_machine_is_reached_without_ssh() {
        assert_eq!(localize("ssh://n1/tmp/flux-x/local-0", "n1.site"), "local:///tmp/flux-x/local-0");
        assert_eq!(localize("ssh://me@n1:22/run/x", "n1"), "local:///run/x");
        assert_eq!(localize("ssh://n2/run/x", "n1"), "ssh://n2/run/x");
        assert_eq!(localize("local:///run/x", "n1"), "local:///run/x");
    }
}
