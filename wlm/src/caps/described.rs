//! Workload managers that run jobs from a description of resources instead of a launcher's options.

use std::ffi::OsString;
use std::fmt;

use crate::error::Result;
use crate::host::Host;
use crate::launch::{Launch, Plan};
use gantry_types::launch::{Mixed, Wanted};

/// A workload manager for the parts of a co-allocated job.
pub trait DescribedJobs: Send + Sync + fmt::Debug {
    /// Builds the arguments of a launch that runs this job.
    ///
    /// # Errors
    /// Names an attribute that this WLM does not support.
    fn build_args(&self, wanted: &Wanted) -> Result<Vec<OsString>>;
}

/// A workload manager that launches ranks which differ in program, directory, variables or host.
pub trait MixedJobs: Send + Sync + fmt::Debug {
    /// Plans the launch of these ranks. `launch` has everything else. Starts nothing.
    ///
    /// # Errors
    /// Names the part that this WLM does not support.
    fn plan_mixed(&self, mixed: &Mixed, launch: &Launch, host: &dyn Host) -> Result<Plan>;
}
