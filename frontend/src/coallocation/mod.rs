//! Co-allocation: one job over several workload managers.
//!
//! | module | what is there |
//! | --- | --- |
//! | [`rsl`] | the language in which such a job is asked for |

pub mod rsl;
