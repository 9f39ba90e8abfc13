//! The cluster's configuration in `site.json`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_types::error::{Failure, Kind};
use serde::Deserialize;

use crate::error::{Error, Result};
use crate::host::Host;

/// Names the folder that represents the cluster.
pub(super) const SITE: &str = "GANTRY_FAKE_SITE";

/// In a job: its number.
pub(super) const JOB: &str = "GANTRY_FAKE_JOB";

/// The variable in which a process finds its job.
pub(crate) const JOB_VARIABLES: &[&str] = &[JOB];

/// How often to look whether the cluster has changed.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The file in the cluster's folder.
const FILE: &str = "site.json";

/// How the cluster behaves. Times are in milliseconds.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Site {
    /// The number of nodes: `fake1`, `fake2` and so on.
    pub(super) nodes: u32,
    /// How long a job waits for its nodes.
    pub(super) queue_ms: u64,
    /// The reason for waiting that it reports.
    pub(super) reason: String,
    /// Refuses all jobs with this message.
    pub(super) refuse: Option<String>,
    /// The time limit of a job. `None`: no limit.
    pub(super) limit_ms: Option<u64>,
    /// Nodes on which no agent can be started.
    pub(super) broken: Vec<String>,
    /// The start of agents for an attachment waits as long as this holds.
    pub(super) stuck: bool,
    /// Accepts a job, and does not say so as long as this holds.
    pub(super) mute: bool,
    /// Answers no question about a job.
    pub(super) silent: bool,
    /// A question where a job's ranks are does not end.
    pub(super) hangs: bool,
}

impl Default for Site {
    fn default() -> Self {
        Self {
            nodes: 1024,
            queue_ms: 0,
            reason: "Resources".to_owned(),
            refuse: None,
            limit_ms: None,
            broken: Vec::new(),
            stuck: false,
            mute: false,
            silent: false,
            hangs: false,
        }
    }
}

/// The folder that represents the cluster.
pub(super) fn folder(host: &dyn Host) -> Result<PathBuf> {
    host.env(SITE).map(PathBuf::from).ok_or_else(|| {
        Error::invalid_with("there is no cluster to play", format!("let {SITE} name a folder with {FILE}"))
    })
}

/// The names of the first `nodes` nodes.
pub(super) fn hosts(nodes: u32) -> Vec<String> {
    (1..=nodes).map(|number| format!("fake{number}")).collect()
}

impl Site {
    /// Reads the file. Without a file it returns the defaults.
    pub(super) fn read(host: &dyn Host) -> Result<Self> {
        let path = folder(host)?.join(FILE);
        match host.read(&path) {
            Ok(text) => Self::parse(&path, &text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(Error::Read { path, source }),
        }
    }

    fn parse(path: &Path, text: &[u8]) -> Result<Self> {
        serde_json::from_slice(text).map_err(|error| {
            Error::invalid_with(
                format!("{}: {error}", path.display()),
                "see the fields of Site in wlm/src/fake/site.rs",
            )
        })
    }

    pub(super) fn check_submission(&self) -> Result<()> {
        self.refuse.as_ref().map_or(Ok(()), |words| Err(refused(words)))
    }

    /// Waits until it says that it has accepted a job.
    pub(super) fn wait_for_acceptance(host: &dyn Host) -> Result<()> {
        while Self::read(host)?.mute {
            #[expect(clippy::disallowed_methods, reason = "a submission blocks its thread")]
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    pub(super) fn check_answer(&self) -> Result<()> {
        if self.silent {
            let failure = Failure::new(Kind::TimedOut, "the cluster gives no answer");
            return Err(Error::Unanswered(failure.with_hint("see site.json: it is silent")));
        }
        Ok(())
    }

    /// Refuses hosts on which no agent can be started.
    pub(super) fn check_hosts(&self, hosts: &[String]) -> Result<()> {
        let broken = hosts.iter().filter(|host| self.broken.contains(host));
        let why = || {
            Failure::new(Kind::LauncherFailed, "the node does not start anything")
                .with_hint("see site.json: it is broken")
        };
        let missing: Vec<_> = broken.map(|host| (host.clone(), why())).collect();
        if missing.is_empty() { Ok(()) } else { Err(Error::Hosts { of: hosts.len(), missing }) }
    }
}

/// A refusal of the cluster.
pub(super) fn refused(message: impl Into<String>) -> Error {
    Error::Failed(
        Failure::new(Kind::LauncherFailed, message).with_hint("see how the cluster is played: site.json"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    #[test]
    fn a_site_is_as_its_file_says() {
        let read = |text: Option<&str>| {
            let host = FakeHost::default().with_env(SITE, "/site");
            let host = match text {
                Some(text) => host.with_file("/site/site.json", text),
                None => host,
            };
            Site::read(&host).map(|site| (site.nodes, site.queue_ms, site.broken))
        };
        assert_eq!(read(None).unwrap(), (1024, 0, Vec::new()));
        let text = "{\"nodes\": 2, \"queue_ms\": 70, \"broken\": [\"fake2\"]}";
        assert_eq!(read(Some(text)).unwrap(), (2, 70, vec!["fake2".to_owned()]));
        let error = read(Some("{\"node\": 2}")).unwrap_err();
        assert!(error.to_string().contains("unknown field `node`"), "{error}");
        assert!(Site::read(&FakeHost::default()).unwrap_err().hint().is_some());
    }

    #[test]
    fn an_error_in_the_file_is_named() {
        let site = Site { broken: vec!["fake2".to_owned()], ..Site::default() };
        assert!(site.check_hosts(&hosts(1)).is_ok());
        let text = site.check_hosts(&hosts(3)).unwrap_err().to_string();
        assert!(text.starts_with("1 of 3 hosts have no agent") && text.contains("fake2"), "{text}");
    }
}
