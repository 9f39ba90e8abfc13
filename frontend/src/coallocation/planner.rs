//! Turns requests for subjobs into launches.

use std::collections::BTreeMap;
use std::sync::Arc;

use gantry_wlm::Host;
use gantry_wlm::host::Machine;

use super::contact::Contacts;
use super::output::SubjobOutput;
use super::request::{Subrequest, parse_request, parse_subrequest};
use super::rsl::RslError;
use super::subjob::Planned;
use crate::clock::QueueTime;
use crate::config::Config;
use crate::error::{Error, Result};

/// Names that a specification may refer to without defining them, from this process's environment.
const GIVEN: [&str; 3] = ["HOME", "LOGNAME", "USER"];

/// Turns requests for subjobs into launches.
#[derive(Debug, Clone)]
pub(super) struct Planner {
    config: Config,
    contacts: Contacts,
    given: BTreeMap<String, String>,
    output: Arc<SubjobOutput>,
    /// How time in queues counts.
    pub(super) queue: QueueTime,
}

impl Planner {
    /// Makes a planner with this configuration for every subjob's app. Reads the file of contacts.
    ///
    /// # Errors
    /// The file of contacts is malformed.
    pub(super) fn new(config: Config, output: SubjobOutput) -> Result<Self> {
        let given = GIVEN.iter().filter_map(|name| {
            let value = Machine.env(name)?.into_string().ok()?;
            Some(((*name).to_owned(), value))
        });
        Ok(Self {
            config,
            contacts: Contacts::load(&Machine)?,
            given: given.collect(),
            output: Arc::new(output),
            queue: QueueTime::Apart(None),
        })
    }

    /// The subrequests of a request.
    pub(super) fn read(&self, description: &str) -> Result<Vec<Subrequest>> {
        parse_request(description, &self.given).map_err(|error| invalid(&error))
    }

    /// Plans one subjob that joins a job.
    pub(super) fn plan_one(&self, description: &str) -> Result<Planned> {
        self.plan(parse_subrequest(description, &self.given).map_err(|error| invalid(&error))?)
    }

    /// Plans one subjob.
    pub(super) fn plan(&self, subrequest: Subrequest) -> Result<Planned> {
        Planned::new(subrequest, &self.contacts, &self.config, &self.output, self.queue)
    }
}

fn invalid(error: &RslError) -> Error {
    Error::Invalid { message: error.to_string(), hint: Some(format!("look here:\n{}", error.picture())) }
}
