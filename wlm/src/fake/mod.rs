//! A workload manager that needs no cluster. It simulates one on this machine, and fails where a file tells it to.
//!
//! It has a queue, jobs, batch scripts and a time limit. It is a driver like any other: gantry's own guard and agents
//! run in its jobs. Tests of the launch pipeline use it. It is also an example for people who port gantry. The feature
//! `fake` builds it.
//!
//! `GANTRY_FAKE_SITE` names the folder that represents the cluster. Its `site.json` configures the cluster; each job
//! has a folder below `jobs`.
//!
//! | file | content |
//! | --- | --- |
//! | `site` | the cluster's configuration: nodes, time in the queue, refusals |
//! | `job` | one job: its script, its files, its state |
//! | `wlm` | the driver |
//! | `agents` | in a job: starts agents and waits for them |

mod agents;
mod job;
mod site;
mod wlm;

pub(crate) use site::JOB_VARIABLES;
pub(crate) use wlm::Fake;
