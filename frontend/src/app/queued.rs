//! Launches on nodes that the WLM gives to jobs only. Gantry submits a job whose script starts the agents; the agents
//! start the ranks.
//!
//! Until the agents are there, the end of the launch cancels the job; if this process is gone, the guard cancels it. If
//! the guard is gone, the launch cancels it and ends. From then on the job lasts as long as the agents, which end with the app.

use std::ffi::OsString;

use gantry_shared::wire::hold::to_hex;
use gantry_shared::wire::message::Ticket;
use gantry_wlm::host::Machine;
use gantry_wlm::{Direct, Gifts, JobRef, JobStarter, Queue, Queued, Wlm, find_batch, find_queue};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::App;
use super::connected::Connected;
use super::context::LaunchContext;
use super::launch::{begin_direct, prepare_direct};
use super::prepare::{build_ticket, patience_until};
use super::waiting::{ASK_EVERY, JobNews, NotThere, QueueNews, Wait, ask};
use crate::clock::Clock;
use crate::config::Frontend;
use crate::error::{Error, Result, WlmError};
use crate::guard::{Guard, GuardEvent};
use crate::helpers;
use crate::request::LaunchRequest;
use crate::submission::{Submitted, cancel_unowned, submit_owned};

/// The job of a launch. Dropping it cancels the job.
struct Owned {
    job: JobRef,
    /// The command that cancels it.
    cancel: Vec<OsString>,
    guard: Guard,
    guard_events: mpsc::UnboundedReceiver<GuardEvent>,
    /// Files that its first node may fetch.
    _gifts: Gifts,
}

impl Frontend {
    pub(super) async fn launch_queued(
        &self,
        context: LaunchContext,
        mut request: LaunchRequest,
        plan: Queued,
        news: JobNews<'_>,
        clock: &Clock,
    ) -> Result<App> {
        let (app, wlm) = (context.app, context.wlm);
        let queue = find_queue(wlm)?;
        self.refuse_rank_wrapper()?;
        let prepared = prepare_direct(&mut request)?;
        let secret = context.secret.clone();
        let listener = self.listen(&context, &secret).await?;
        let base = self.config.stage_base.clone();
        let ticket = build_ticket(wlm, app, secret, listener.addresses(), base, "", context.subjob());
        let ticket = Ticket { patience: patience_until(clock.deadline()), ..ticket };
        let input = ticket.to_frame().map_err(|e| Error::Internal(e.to_string()))?;
        let program = helpers::find(helpers::GUARD)?;
        let addresses = listener.addresses().iter().map(|it| it.ip().to_string()).collect();
        let starter = JobStarter {
            program: program.clone(),
            agent: helpers::find(helpers::AGENT)?,
            send: self.choose_sending()?,
            addresses,
            input: to_hex(&input),
            cwd: prepared.cwd.clone(),
        };
        let guarded = Guard::start(&program, self.config.stage_base.clone()).await?;
        let submitting = tokio::spawn(submit(wlm, queue, plan.clone(), starter, guarded));
        let started = Instant::now();
        let owned =
            timeout_at(clock.deadline(), submitting).await.map_err(|_| late("submitting a job", started))?;
        let Owned { job, cancel, guard, mut guard_events, _gifts } = owned??;
        let strangers = listener.strangers();
        let assembling = async {
            let direct = wait_for_nodes(queue, &plan, &job, news, clock).await?;
            let assembled = tokio::select! {
                assembled = listener.assemble(&direct.hosts, clock.deadline()) => assembled,
                ended = wait_for_end(queue, &plan, &job) => Err(ended),
            };
            assembled.map(|overlay| (direct, overlay)).map_err(|error| strangers.explain(error))
        };
        let (direct, (overlay, overlay_events)) = tokio::select! {
            assembled = assembling => assembled?,
            _gone = guard_events.recv() => return Err(cancel_unowned(job, cancel).await),
        };
        let deadline = clock.deadline();
        // From here on agents notice by themselves when they are no longer needed.
        guard.at_loss(None).await?;
        let (hosts, left_out) = (direct.hosts.clone(), Vec::new());
        let joined = Connected { overlay, overlay_events, guard, guard_events, hosts, left_out };
        begin_direct(context, joined, request, direct, prepared, deadline).await
    }
}

/// Submits the job. The caller runs it as a separate task: an accepted job must get its owner, even if the caller stops
/// waiting.
async fn submit(
    wlm: &'static dyn Wlm,
    queue: &'static dyn Queue,
    plan: Queued,
    starter: JobStarter,
    (guard, guard_events): (Guard, mpsc::UnboundedReceiver<GuardEvent>),
) -> Result<Owned> {
    let runtime = tokio::runtime::Handle::current();
    let submit = move || runtime.block_on(queue.submit_starter(&plan, &starter, &Machine));
    let own = |cancel| guard.at_loss(Some(cancel));
    let Submitted { job, cancel, rest } = submit_owned(find_batch(wlm)?, submit, own).await?;
    Ok(Owned { job, cancel, guard, guard_events, _gifts: rest })
}

/// Asks until the job has nodes, and reports what it waits for. The clock stops while the WLM says that it is queued.
async fn wait_for_nodes(
    queue: &'static dyn Queue,
    plan: &Queued,
    job: &JobRef,
    mut news: JobNews<'_>,
    clock: &Clock,
) -> Result<Direct> {
    let tell = |not_yet: &str| {
        if let Some(tell) = &mut news {
            tell(&QueueNews { job: job.0.clone(), submitted: true, message: not_yet.to_owned() });
        }
        true
    };
    let found = Wait::new(clock).until("waiting for a job's nodes", || find_nodes(queue, plan, job), tell);
    found.await.map_err(NotThere::into_error)
}

/// Waits until the WLM says that the job has ended, or that there is none.
async fn wait_for_end(queue: &'static dyn Queue, plan: &Queued, job: &JobRef) -> Error {
    loop {
        tokio::time::sleep(ASK_EVERY).await;
        match find_nodes(queue, plan, job).await {
            Ok(_) => {}
            Err(Error::Wlm(WlmError(error))) if error.is_temporary() => {}
            Err(error) => return error,
        }
    }
}

async fn find_nodes(queue: &'static dyn Queue, plan: &Queued, job: &JobRef) -> Result<Direct> {
    let (plan, job) = (plan.clone(), job.clone());
    ask(move || queue.find_nodes(&plan, &job, &Machine)).await
}

fn late(phase: &'static str, started: Instant) -> Error {
    Error::TimedOut { phase, after: started.elapsed(), missing: Vec::new() }
}
