//! PBS. There is [`tm`], a client of its task management: a job's processes are started, signalled and waited for on all hosts of the job.
//! It needs neither a library nor a command of PBS.
//!
//! Facts were measured with OpenPBS, its master branch after version 23.06.06; what the tests read are recordings of it. PBS is not among the WLMs
//! that gantry chooses from.

pub mod tm;
