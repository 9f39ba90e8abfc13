//! A workload manager that needs no cluster: it plays one on this machine, as a file says, and fails as that file says.
//!
//! It has a queue, jobs, batch scripts and limits, and is a driver like any other: what runs in its jobs are gantry's own guard and agents.
//! Tests of the launch pipeline use it, and a porter can read it as an example. It is built with the feature `fake` only.
//!
//! `GANTRY_FAKE_SITE` names the folder that stands for the cluster. `site.json` in it says how the cluster behaves; each job has a folder
//! below `jobs`.
//!
//! | file | content |
//! | --- | --- |
//! | `site` | how the cluster behaves: nodes, the time in the queue, what it refuses |
//! | `job` | one job: its script, its files, its state |
//! | `wlm` | the driver |
//! | `agents` | in a job: starts agents and waits for them |

mod agents;
mod job;
mod site;
mod wlm;

pub(crate) use site::JOB_VARIABLES;
pub(crate) use wlm::Fake;
