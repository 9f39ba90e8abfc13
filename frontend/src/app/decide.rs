//! Decides how a launch is carried out. It asks files and programs, so it blocks.

use std::ffi::OsString;

use gantry_shared::storage::GANTRY_SEND_AGENT;
use gantry_types::error::Failure;
use gantry_types::id::AppId;
use gantry_types::launch::{HoldMethod, SendAgent};
use gantry_wlm::host::Machine;
use gantry_wlm::{Brought, Direct, Driven, Host, Launch, Plan, Wlm, find_mixed};
use tokio::time::Instant;

use super::asking::ask_until;
use super::prepare::{choose_scratch, find_launcher};
use crate::config::Frontend;
use crate::error::{Error, Result};
use crate::helpers;
use crate::request::{LaunchRequest, show_args};

/// What a launch that plans waits for, in errors.
pub(super) const PLANNING: &str = "planning the launch";

/// How a launch is carried out.
pub(super) struct Decision {
    /// The workload manager.
    pub(super) wlm: &'static dyn Wlm,
    /// What it was asked.
    pub(super) launch: Launch,
    /// Its answer.
    pub(super) plan: Plan,
}

impl Frontend {
    /// Decides how to carry out a launch, until `deadline`.
    pub(super) async fn decide(
        &self,
        app: AppId,
        request: LaunchRequest,
        deadline: Instant,
    ) -> Result<(Decision, LaunchRequest)> {
        let frontend = self.clone();
        ask_until(PLANNING, deadline, move |host| {
            Ok::<_, Error>((frontend.decide_on(app, &request, host)?, request))
        })
        .await
    }

    fn decide_on(&self, app: AppId, request: &LaunchRequest, host: &dyn Host) -> Result<Decision> {
        let wlm = self.choose_for(request)?.wlm;
        // Look for these first, in the order of their use: an installation lacks both or neither.
        helpers::find(helpers::GUARD)?;
        let send_agent = self.choose_sending()?;
        let launch = Launch {
            args: request.args.clone(),
            hold: request.hold,
            hold_method: choose_method(request, send_agent),
            hold_behind: request.hold_at.is_some() || self.config.rank_wrapper.is_some(),
            linger: request.linger,
            without: Vec::new(),
            launcher: request.launcher.clone().or_else(find_launcher),
            agent: helpers::find(helpers::AGENT)?,
            send_agent,
            scratch: choose_scratch(app),
        };
        let plan = match &request.mixed {
            Some(mixed) => find_mixed(wlm, mixed.size())?(mixed, &launch, host)?,
            None => wlm.plan(&launch, host)?,
        };
        self.check_policy(wlm, matches!(plan, Plan::Direct(_)) && request.mixed.is_none())?;
        let plan = match request.launcher_wrapper.is_empty() {
            true => plan,
            false => wrap(plan, &request.launcher_wrapper)?,
        };
        Ok(Decision { wlm, launch, plan })
    }

    /// Whether to send the agent to nodes.
    pub(super) fn choose_sending(&self) -> Result<SendAgent> {
        match (self.config.send_agent, Machine.env(GANTRY_SEND_AGENT)) {
            (Some(asked), _) => Ok(asked),
            (None, Some(said)) => {
                let parsed = said.to_string_lossy().parse();
                parsed.map_err(|failure: Failure| Error::Invalid {
                    message: format!("{GANTRY_SEND_AGENT}: {failure}"),
                    hint: failure.hint().map(str::to_owned),
                })
            }
            (None, None) => Ok(SendAgent::Auto),
        }
    }
}

/// The plan without unreachable hosts.
pub(super) fn plan_without(
    wlm: &dyn Wlm,
    launch: &Launch,
    without: Vec<String>,
    host: &dyn Host,
) -> Result<Direct> {
    match wlm.plan(&Launch { without, ..launch.clone() }, host)? {
        Plan::Direct(plan) => Ok(plan),
        _ => Err(Error::Internal("the launch method has changed in the meantime".to_owned())),
    }
}

/// Chooses how ranks are held. With a launcher wrapper, the process that gantry starts is not the launcher, so holding
/// through its memory does not work. MPI programs get their server from the agent that the launcher starts in their
/// place. An agent that must be sent is never there: then the plan shows whether that is possible.
fn choose_method(request: &LaunchRequest, send_agent: SendAgent) -> HoldMethod {
    let in_place = request.joins_world && send_agent != SendAgent::Always;
    match request.hold_method {
        HoldMethod::Detect if in_place || !request.launcher_wrapper.is_empty() => HoldMethod::Exec,
        method => method,
    }
}

/// The same plan, with the launcher's command line as arguments of the wrapper.
fn wrap(plan: Plan, wrapper: &[OsString]) -> Result<Plan> {
    let words = || wrapper.iter().cloned();
    match plan {
        Plan::Brought(plan) => {
            let argv = words().chain(plan.argv).collect();
            Ok(Plan::Brought(Brought { argv, ..plan }))
        }
        Plan::Driven(plan) => Ok(Plan::Driven(Driven { argv: words().chain(plan.argv).collect(), ..plan })),
        _ => Err(Error::Invalid {
            message: format!("there is no launcher for '{}' to start", show_args(wrapper).join(" ")),
            hint: Some("name a launcher, or no wrapper".to_owned()),
        }),
    }
}
