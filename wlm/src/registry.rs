//! All workload managers, and the choice of the one to use.

use std::ffi::OsString;

use gantry_shared::cti::wlm_name;

use crate::error::{Error, Result};
use crate::host::Host;
use crate::seam::{Evidence, Wlm};

/// Every workload manager, in order of detection. There is no other list.
pub static WLMS: &[&dyn Wlm] = &[
    #[cfg(feature = "fake")]
    &crate::fake::Fake,
    &crate::flux::Flux,
    &crate::slurm::Slurm,
    &crate::pbs::Pbs,
    &crate::ssh::Ssh,
    &crate::localhost::Localhost,
];

/// The variables in which a process finds its job and its step: a row for each WLM with jobs. Agents read them from
/// here. If they asked [`WLMS`], every agent would contain the code of all WLMs.
pub static WLMS_JOB_VARIABLES: &[&[&str]] = &[
    #[cfg(feature = "fake")]
    crate::fake::JOB_VARIABLES,
    crate::flux::JOB_VARIABLES,
    crate::slurm::JOB_VARIABLES,
    crate::pbs::JOB_VARIABLES,
];

/// The variables that name a WLM, in order. The second is the reference interface's.
pub const WLM_VARIABLES: [&str; 2] = ["GANTRY_WLM", "CTI_WLM_IMPL"];

/// The chosen WLM.
#[derive(Debug, Clone)]
pub struct Choice {
    /// The WLM.
    pub wlm: &'static dyn Wlm,
    /// Why it was chosen.
    pub why: Evidence,
    /// Another one may be meant. Only if this one was detected, and has no jobs.
    pub doubt: Option<Doubt>,
}

/// A WLM that may be meant although it is not detected.
#[derive(Debug, Clone)]
pub struct Doubt {
    /// Its name.
    pub wlm: &'static str,
    /// Why it may be meant, and how to choose it or the one that is used.
    pub text: String,
}

impl Choice {
    fn new(wlm: &'static dyn Wlm, why: Evidence) -> Self {
        Self { wlm, why, doubt: None }
    }
}

/// Chooses the WLM, in this order: `asked` by the caller; named by a variable of [`WLM_VARIABLES`], also by the
/// reference interface's names; the one whose job this process is in; the first of [`WLMS`] that is detected.
///
/// # Errors
/// There is none of that name. The hint lists the known names.
pub fn choose(asked: Option<&str>, host: &dyn Host) -> Result<Choice> {
    if let Some(name) = asked {
        return Ok(Choice::new(find(name)?, Evidence("it was chosen by the caller".to_owned())));
    }
    for variable in WLM_VARIABLES {
        if let Some(name) = host.env(variable) {
            let name = name.to_string_lossy();
            return Ok(Choice::new(find(wlm_name(&name))?, Evidence(format!("{variable} is '{name}'"))));
        }
    }
    let found: Vec<Choice> =
        detected(host).into_iter().filter_map(|(wlm, evidence)| Some(Choice::new(wlm, evidence?))).collect();
    let inside =
        found.iter().find(|choice| choice.wlm.capabilities().jobs.is_some_and(|jobs| jobs.is_inside(host)));
    let none = || unknown("(none detected)");
    let mut choice = inside.or(found.first()).cloned().ok_or_else(none)?;
    if choice.wlm.capabilities().jobs.is_none() {
        choice.doubt = find_doubt(choice.wlm.name(), host);
    }
    Ok(choice)
}

/// The WLM that may be meant in place of the one that is `used`.
fn find_doubt(used: &str, host: &dyn Host) -> Option<Doubt> {
    let [variable, _] = WLM_VARIABLES;
    WLMS.iter().find_map(|wlm| {
        let (doubt, name) = (wlm.doubt(host)?, wlm.name());
        let text = format!(
            "{doubt}; choose {name} by --wlm {name} or {variable}={name}, or {used} by {variable}={used}"
        );
        Some(Doubt { wlm: name, text })
    })
}

/// As [`choose`], for a launch with these arguments. A WLM whose hosts they name takes precedence over detected ones.
///
/// # Errors
/// As [`choose`].
pub fn choose_for(asked: Option<&str>, args: &[OsString], host: &dyn Host) -> Result<Choice> {
    let named = asked.is_some() || WLM_VARIABLES.iter().any(|variable| host.env(variable).is_some());
    let names_hosts = |wlm: &&'static dyn Wlm| {
        let option = wlm.capabilities().host_lists?.find_host_option(args)?;
        let why = Evidence(format!("{option} names hosts, which are reached by {}", wlm.name()));
        Some(Choice::new(*wlm, why))
    };
    match WLMS.iter().find_map(names_hosts).filter(|_| !named) {
        Some(choice) => Ok(choice),
        None => choose(asked, host),
    }
}

/// The evidence for every WLM on this machine, in order of detection.
pub fn detected(host: &dyn Host) -> Vec<(&'static dyn Wlm, Option<Evidence>)> {
    WLMS.iter().map(|wlm| (*wlm, wlm.detect(host))).collect()
}

/// Finds the WLM with that name, ignoring case.
///
/// # Errors
/// There is none. The hint lists the known names.
pub fn find(name: &str) -> Result<&'static dyn Wlm> {
    WLMS.iter().find(|wlm| wlm.name().eq_ignore_ascii_case(name)).copied().ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> Error {
    let message = format!("no workload manager is named '{name}'");
    Error::invalid_with(message, format!("known are: {}", names().join(", ")))
}

/// The names of all WLMs.
pub fn names() -> Vec<&'static str> {
    WLMS.iter().map(|wlm| wlm.name()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    #[test]
    fn caller_then_variables_then_detection() {
        let plain = FakeHost::default();
        assert_eq!(choose(None, &plain).unwrap().wlm.name(), "localhost");
        let by_variable = FakeHost::default().with_env("CTI_WLM_IMPL", "Localhost");
        assert_eq!(choose(None, &by_variable).unwrap().why.0, "CTI_WLM_IMPL is 'Localhost'");
        let as_cti = FakeHost::default().with_env("CTI_WLM_IMPL", "linux/localhost");
        assert_eq!(choose(None, &as_cti).unwrap().wlm.name(), "localhost");
        let wrong = FakeHost::default().with_env("GANTRY_WLM", "abacus");
        assert_eq!(choose(Some("localhost"), &wrong).unwrap().why.0, "it was chosen by the caller");
    }

    #[test]
    fn every_wlm_with_jobs_has_its_variables_in_the_table() {
        let with_jobs = WLMS.iter().filter(|wlm| wlm.capabilities().jobs.is_some()).count();
        assert_eq!(WLMS_JOB_VARIABLES.len(), with_jobs);
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let host = FakeHost::default().with_env("GANTRY_WLM", "abacus");
        let error = choose(None, &host).unwrap_err();
        assert_eq!(error.to_string(), "no workload manager is named 'abacus'");
        assert!(error.hint().unwrap().contains("localhost"));
    }
}
