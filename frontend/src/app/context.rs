//! What every kind of launch or attachment needs from the request on, and the steps that they share.

use std::sync::Arc;
use std::time::Duration;

use gantry_shared::rendezvous::handle::Subjob;
use gantry_shared::secret::Secret;
use gantry_shared::wire::message::{Answer, Order, Reply, To};
use gantry_types::error::Kind;
use gantry_types::id::AppId;
use gantry_types::placement::Placement;
use gantry_wlm::{JobRef, Wlm, has_job_names};
use tokio::time::Instant;

use super::App;
use super::connected::{Connected, Membership};
use super::core::{self, Core};
use super::listen::listen;
use super::prepare::own_pid;
use super::state::{Happening, Identity, State};
use super::stdio::launcher::Words;
use crate::coallocation::Member;
use crate::config::Frontend;
use crate::control::{self, Registry};
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::rendezvous::Seat;
use crate::request::{LaunchRequest, show_args};

/// How long ranks that the WLM reports may take to become processes. The WLM knows of ranks before its daemons have
/// executed them. An attachment that waits has no such limit: a prolog may run for long before the ranks.
const RANKS_STAND_WITHIN: Duration = Duration::from_secs(5);

/// Pause before nodes are asked again whose ranks are not there yet.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The same pause once the nodes have been asked for [`RANKS_STAND_WITHIN`].
const LOOK_LATER: Duration = Duration::from_millis(500);

/// What is known of an app before it has agents.
#[derive(Debug)]
pub(super) struct LaunchContext {
    pub(super) app: AppId,
    pub(super) wlm: &'static dyn Wlm,
    /// What was asked for, to be shown to people.
    command: Vec<String>,
    /// The app was attached to, not launched.
    attached: bool,
    /// Wait for ranks that are not there yet until the timeout expires.
    waits: bool,
    /// As [`LaunchRequest::linger`] has it.
    pub(super) linger: bool,
    /// Its place in a multijob.
    pub(super) seat: Option<Seat>,
    /// Its place in a co-allocated job.
    pub(super) member: Option<Member>,
    /// The secret by which its agents recognise it.
    pub(super) secret: Secret,
    /// Registry in which the app is served, and the name of its owner. None: the app is not served.
    served: Option<(Registry, Option<String>)>,
}

/// An app that has agents, with or without ranks. Dropping it ends everything.
#[derive(Debug)]
pub(super) struct Started {
    owner: App,
    served: Option<(Registry, Option<String>)>,
    /// See [`LaunchContext`].
    waits: bool,
}

impl LaunchContext {
    /// For a launch. Looks for the place of the control socket now: a bad place must not cost a launch.
    pub(super) fn launch(
        frontend: &Frontend,
        wlm: &'static dyn Wlm,
        app: AppId,
        request: &LaunchRequest,
    ) -> Result<Self> {
        let registry = open_registry(frontend)?;
        Ok(Self {
            app,
            wlm,
            command: show_args(&request.args),
            attached: false,
            waits: false,
            linger: request.linger,
            seat: request.take_seat()?,
            member: request.member.clone(),
            secret: new_secret()?,
            served: registry.map(|registry| (registry, request.submitter.clone())),
        })
    }

    /// For an app that runs already, or that will run if `waits`.
    pub(super) fn attach(
        frontend: &Frontend,
        wlm: &'static dyn Wlm,
        job: &JobRef,
        waits: bool,
    ) -> Result<Self> {
        let registry = open_registry(frontend)?;
        Ok(Self {
            app: new_id()?,
            wlm,
            command: vec![job.0.clone()],
            attached: true,
            waits,
            linger: false,
            seat: None,
            member: None,
            secret: new_secret()?,
            served: registry.map(|registry| (registry, None)),
        })
    }

    /// The app's place in a multijob, as its ranks are told.
    pub(super) fn subjob(&self) -> Option<Subjob> {
        self.seat.as_ref().map(Seat::subjob)
    }

    /// Makes the app. Its agents are connected and the place of its ranks is known.
    ///
    /// `job` is the WLM's name for it. `words` is the launcher's stderr, if there is a launcher.
    pub(super) async fn begin(
        self,
        joined: Connected,
        placement: Placement,
        job: Option<JobRef>,
        words: Option<Words>,
    ) -> Result<Started> {
        let identity = Identity {
            app: self.app,
            wlm: self.wlm.name(),
            attached: self.attached,
            owner: own_pid()?,
            command: self.command.clone(),
            job: job.filter(|_| has_job_names(self.wlm)).map(|job| job.0),
        };
        let state = State::new(identity, placement).without(joined.left_out.clone());
        let state = if words.is_some() { state.with_launcher() } else { state };
        let (waits, served) = (self.waits, self.served);
        let Self { app, wlm, linger, seat, member, .. } = self;
        let part = Membership { app, wlm, linger, seat, member };
        let Connected { overlay, overlay_events, guard, guard_events, .. } = joined;
        // Ranks of a launcher may have ended. In that case the listening task dismisses the guard.
        remember_socket(app, &guard, served.as_ref()).await?;
        let core = Core::new(part, (overlay, guard), state, words);
        tokio::spawn(listen(Arc::clone(&core), overlay_events, guard_events));
        // From here on, dropping the owner ends everything if a step fails.
        let owner = App::new(core);
        Ok(Started { owner, served, waits })
    }
}

impl Started {
    pub(super) fn core(&self) -> &Arc<Core> {
        &self.owner.core
    }

    /// Sends the order about the ranks to all agents and their answers to the state. Ends the app if an agent fails.
    pub(super) async fn order_ranks(
        self,
        order: Order,
        phase: &'static str,
        deadline: Instant,
    ) -> Result<Self> {
        match start_ranks(self.core(), order, phase, (self.waits, deadline)).await {
            Ok(()) => Ok(self),
            Err(error) => Err(close_after(self.owner, error).await),
        }
    }

    /// Serves the app's control socket, as long as its owner lives.
    pub(super) async fn serve(self) -> Result<App> {
        let mut app = self.owner;
        let Some((registry, submitter)) = self.served else { return Ok(app) };
        let handle = app.handle.clone();
        match app.core.make_socket(|| control::serve(handle, &registry, submitter)).await {
            Ok(socket) => {
                app.control = socket;
                Ok(app)
            }
            Err(error) => Err(close_after(app, error).await),
        }
    }
}

/// Makes an id for a new app.
pub(super) fn new_id() -> Result<AppId> {
    AppId::random().map_err(|e| Error::io("cannot make an id", std::io::Error::other(e)))
}

/// Makes the secret by which agents prove that they belong to the app.
fn new_secret() -> Result<Secret> {
    Secret::random().map_err(|e| Error::io("cannot make a secret", std::io::Error::other(e)))
}

fn open_registry(frontend: &Frontend) -> Result<Option<Registry>> {
    let config = &frontend.config;
    config.control.then(|| Registry::open(config.runtime_dir.as_deref())).transpose()
}

/// Has the guard remove the app's control socket should this process be killed.
async fn remember_socket(
    app: AppId,
    guard: &Guard,
    served: Option<&(Registry, Option<String>)>,
) -> Result<()> {
    let Some((registry, _)) = served else { return Ok(()) };
    for path in registry.socket_paths(app) {
        let path = std::path::absolute(&path)
            .map_err(|e| Error::io(format!("cannot find the absolute path of {}", path.display()), e))?;
        guard.remember_socket(path).await?;
    }
    Ok(())
}

async fn start_ranks(
    core: &Core,
    order: Order,
    phase: &'static str,
    (waits, deadline): (bool, Instant),
) -> Result<()> {
    // Ask every node, even one lost just now: an app without all its ranks is not what was asked for.
    let mut nodes = core.state().all_nodes();
    let soon = Instant::now() + RANKS_STAND_WITHIN;
    let until = if waits { deadline } else { deadline.min(soon) };
    let seeks = matches!(order, Order::SeekRanks(_));
    loop {
        core.check_alive()?;
        // Address nodes by number: `To::All` would skip a node that the overlay has lost and the state does not know of
        // yet.
        let to = To::Nodes(nodes.clone());
        let answers = core.overlay.request(to, order.clone(), phase, deadline).await?;
        let pause = if Instant::now() < soon { LOOK_AGAIN } else { LOOK_LATER };
        let has_time = seeks && until.saturating_duration_since(Instant::now()) > pause;
        let not_yet =
            |(_, reply): &(_, Reply)| has_time && reply.as_ref().is_err_and(|it| it.kind() == Kind::NotFound);
        let (later, answers): (Vec<_>, Vec<_>) = answers.into_iter().partition(not_yet);
        for (_, answer) in core.accept(answers)? {
            match answer {
                Answer::Ranks(reports) => core.happened(Happening::RanksThere(reports)),
                other => return Err(Error::Protocol(format!("an agent answered {other:?} while {phase}"))),
            }
        }
        let Some((_, Err(reason))) = later.first() else { return Ok(()) };
        tracing::debug!(app = %core.app, nodes = later.len(), %reason, "ranks are not stopped yet");
        nodes = later.iter().map(|(node, _)| *node).collect();
        tokio::time::sleep(pause).await;
    }
}

/// Cleans up after a launch that failed, and gives back why it did.
async fn close_after(app: App, error: Error) -> Error {
    let slack = core::DAEMON_GRACE;
    if let Err(second) = app.close(slack).await {
        tracing::warn!(%second, "cleaning up after a failed launch");
    }
    error
}
