//! The same scenarios under every workload manager, and with every hold method. `on_every_wlm` lists the managers. A
//! scenario that skips some of them says why. Tests for a single workload manager are in its own suites.

#[path = "conformance/hold.rs"]
mod hold;
#[path = "conformance/launch.rs"]
mod launch;
#[path = "conformance/stdio.rs"]
mod stdio;
#[path = "conformance/signals.rs"]
mod signals;
#[path = "conformance/daemons.rs"]
mod daemons;
#[path = "conformance/sessions.rs"]
mod sessions;
#[path = "conformance/many.rs"]
mod many;
#[path = "conformance/attach.rs"]
mod attach;
#[path = "conformance/faults.rs"]
mod faults;

use gantry_tests::{is_on_beds, require};

#[test]
fn slurm_is_here() {
    require!(is_on_beds("slurm"));
}

#[test]
fn hosts_that_ssh_reaches_are_here() {
    require!(is_on_beds("ssh"));
}

#[test]
fn pbs_is_here() {
    require!(is_on_beds("pbs"));
}

#[test]
fn flux_is_here() {
    require!(is_on_beds("flux"));
}
