//! Launches on nodes that the WLM gives to jobs only. Gantry submits a job whose script starts the agents; the agents
//! start the ranks.
//!
//! Until the agents are there, the end of the launch cancels the job; if this process is gone, the guard cancels it. If
//! the guard is gone, the launch cancels it and ends. From then on the job lasts as long as the agents, which end with the app.

use gantry_guard::submission::Order;
use gantry_shared::wire::hold::to_hex;
use gantry_shared::wire::message::Ticket;
use gantry_wlm::host::Machine;
use gantry_wlm::{Direct, JobRef, JobStarter, Queue, Queued, build_starter_script, find_queue};
use tokio::time::{Instant, timeout_at};

use super::App;
use super::asking::ask;
use super::connected::Connected;
use super::context::LaunchContext;
use super::launch::{begin_direct, prepare_direct};
use super::prepare::{build_ticket, patience_until};
use super::waiting::{ASK_EVERY, JobNews, NotThere, QueueNews, Wait};
use crate::clock::Clock;
use crate::config::Frontend;
use crate::error::{Error, Result, WlmError};
use crate::guard::Guard;
use crate::helpers;
use crate::request::LaunchRequest;
use crate::submission::{cancel_unowned, submit};

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
        let addresses: Vec<_> = listener.addresses().iter().map(|it| it.ip().to_string()).collect();
        let (agent, send) = (helpers::find(helpers::AGENT)?, self.choose_sending()?);
        // The job's first node may fetch files as long as the gifts exist.
        let (prepare, _gifts) = build_starter_script(&program, &agent, send, &addresses, &Machine).await?;
        let (input, cwd) = (to_hex(&input), prepared.cwd.clone().into());
        let starter = JobStarter { program: program.clone().into(), prepare, input, cwd };
        let (guard, mut guard_events) = Guard::start(&program, self.config.stage_base.clone()).await?;
        let submitting = submit(&program, wlm, Order::Starter(plan.clone(), starter), &guard);
        let started = Instant::now();
        let job = timeout_at(clock.deadline(), submitting)
            .await
            .map_err(|_| late("submitting a job", started))??;
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
            _gone = guard_events.recv() => return Err(cancel_unowned(wlm, &job).await),
        };
        let deadline = clock.deadline();
        // From here on agents notice by themselves when they are no longer needed.
        guard.at_loss(None).await?;
        let (hosts, left_out) = (direct.hosts.clone(), Vec::new());
        let joined = Connected { overlay, overlay_events, guard, guard_events, hosts, left_out };
        begin_direct(context, joined, request, direct, prepared, deadline).await
    }
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
    ask(move |host| queue.find_nodes(&plan, &job, host)).await
}

fn late(phase: &'static str, started: Instant) -> Error {
    Error::TimedOut { phase, after: started.elapsed(), missing: Vec::new() }
}
