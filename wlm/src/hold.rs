//! How ranks would be held: a report before a launch. It comes from the plan of a launch that is not carried out.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::host::Host;
use crate::launcher::{find_program, recognize};
use crate::{Launch, Plan, Result, Wlm};
use gantry_types::launch::{HoldChoice, HoldMethod};

/// How `wlm` would hold the ranks of a launch by `launcher`. `None`: by its own way of launching. Starts nothing.
///
/// # Errors
/// As [`Wlm::plan`]: the launcher does not exist, or its ranks cannot be held.
pub fn choose_hold(
    wlm: &dyn Wlm,
    launcher: Option<OsString>,
    method: HoldMethod,
    host: &dyn Host,
) -> Result<HoldChoice> {
    let launch = Launch {
        args: vec!["true".into()],
        hold: true,
        hold_method: method,
        launcher,
        agent: PathBuf::from("gantry-agent"),
        ..Launch::default()
    };
    // The launcher may be named without its path.
    let path = |argv: &[OsString]| {
        let name = argv.first().cloned().unwrap_or_default();
        find_program(&name, host).unwrap_or_else(|_| PathBuf::from(name))
    };
    let program = |argv: &[OsString]| path(argv).display().to_string();
    let recognized = |argv: &[OsString]| recognize(&path(argv), host);
    Ok(match wlm.plan(&launch, host)? {
        Plan::Direct(_) | Plan::Queued(_) => HoldChoice {
            method: "direct",
            why: "no launcher was named: gantry's agents start the ranks, already held".to_owned(),
        },
        Plan::Brought(plan) => HoldChoice {
            method: "exec",
            why: format!(
                "the options of {} are understood{}: gantry's agent takes the program's place among them",
                program(&plan.argv),
                recognized(&plan.argv).map(|it| format!(" (recognized {it})")).unwrap_or_default()
            ),
        },
        Plan::Driven(plan) if method == HoldMethod::MpirStop => HoldChoice {
            method: "mpir-stop",
            why: format!("chosen by the caller: {} stops together with its ranks", program(&plan.argv)),
        },
        Plan::Driven(plan) if method == HoldMethod::Mpir => HoldChoice {
            method: "mpir",
            why: format!("chosen by the caller: {} stops its ranks as for a debugger", program(&plan.argv)),
        },
        Plan::Driven(plan) => HoldChoice {
            method: "mpir",
            why: match recognized(&plan.argv) {
                Ok(recognized) => format!(
                    "agents among the ranks of {} (recognized {recognized}) would delay the end of each rank: it stops its ranks as for a debugger, and agents start beside them",
                    program(&plan.argv)
                ),
                Err(why) => format!(
                    "the options of {} are not known ({why}): the launcher that it runs stops its ranks as for a debugger",
                    program(&plan.argv)
                ),
            },
        },
    })
}
