//! Launches that wait for nodes: the clock stops meanwhile, and the tool is told what they wait for.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use gantry_types::error::{Failure, Kind};
use gantry_types::id::Pid;
use gantry_wlm::host::Machine;
use gantry_wlm::{JobRef, LauncherWait, LauncherWaits, Wlm};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::stdio::launcher::Words;
use crate::clock::{Clock, Late};
use crate::error::Error;
use crate::guard::Guard;

/// How often the WLM is asked whether a job has started. Every question costs the WLM some work.
pub(super) const ASK_EVERY: Duration = Duration::from_secs(2);

/// The same during the first [`SHORT_WAIT`]: a short wait must not be missed.
const ASK_SOON: Duration = Duration::from_millis(300);

/// For how long questions are asked every [`ASK_SOON`].
pub(super) const SHORT_WAIT: Duration = Duration::from_secs(10);

/// How often the WLM is asked during a long wait.
const ASK_SELDOM: Duration = Duration::from_secs(10);

/// After this time in the queue a few seconds more do not matter.
const LONG_WAIT: Duration = Duration::from_secs(5 * 60);

/// How long to wait before the WLM is asked again about a job that has waited this long.
pub(super) fn pause_after(waited: Duration) -> Duration {
    match waited {
        short if short < SHORT_WAIT => ASK_SOON,
        long if long >= LONG_WAIT => ASK_SELDOM,
        _ => ASK_EVERY,
    }
}

/// For how long a WLM that gives no answer leaves a clock as it is. It may be restarted meanwhile.
const SILENCE: Duration = Duration::from_secs(10 * 60);

/// Stops a clock while the WLM says that a job is in its queue. A WLM that gives no answer says nothing: it stops no
/// clock, and does not keep one stopped for longer than [`SILENCE`].
#[derive(Debug)]
pub(super) struct QueueWatch<'a> {
    clock: &'a Clock,
    answered: Instant,
}

impl<'a> QueueWatch<'a> {
    pub(super) fn new(clock: &'a Clock) -> Self {
        Self { clock, answered: Instant::now() }
    }

    /// Takes what the WLM says about a job that has no nodes or ranks yet.
    pub(super) fn take(&mut self, not_yet: &gantry_wlm::Error) {
        match not_yet {
            gantry_wlm::Error::NotYet { queued, .. } => {
                self.answered = Instant::now();
                if *queued { self.clock.stop() } else { self.clock.go_on() }
            }
            _ if self.answered.elapsed() >= SILENCE => self.clock.go_on(),
            _ => {}
        }
    }
}

/// What a launch waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueNews {
    /// The job that waits for nodes, or has no room for the step.
    pub job: String,
    /// Whether the launch has submitted this job. Otherwise it runs inside the job.
    pub submitted: bool,
    /// What the job waits for, in the words of the workload manager.
    pub message: String,
}

/// Receives news of a launch that waits, if the tool wants them.
pub(crate) type JobNews<'a> = Option<&'a mut (dyn FnMut(&QueueNews) + Send)>;

/// How often to check whether a silent launcher waits. Most launches are over before the first check.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Stops `clock` while the launcher waits, according to the launcher or the WLM, and reports what it waits for. The
/// launcher descends from `guard`. If this process ends meanwhile, the guard cancels the job that the launcher has
/// submitted: a killed launcher may leave its job in the queue.
pub(super) async fn watch_launcher(
    wlm: &dyn Wlm,
    guard: &Guard,
    words: &Words,
    clock: &Clock,
    mut news: JobNews<'_>,
) -> Infallible {
    let Some(waits) = wlm.capabilities().launcher_waits else { return pending().await };
    let own_job = waits.own_job(&Machine);
    let mut lines = words.waits();
    let (mut spoken, mut owned) = (false, false);
    loop {
        let said = lines.borrow_and_update().clone();
        if let Some(wait) = said.as_ref().filter(|wait| wait.submitted && !owned) {
            owned = true;
            own_job_of(wlm, guard, &wait.job).await;
        }
        let changed = match (said, &own_job) {
            (Some(wait), _) => {
                spoken = true;
                clock.stop();
                follow_said(waits, wait, clock, &mut lines, &mut news).await
            }
            // A launcher that reports its wait also reports the end of the wait.
            (None, None) if spoken => {
                clock.go_on();
                lines.changed().await
            }
            (None, job) => {
                let every = if clock.queued_for() < SHORT_WAIT { LOOK_EVERY } else { ASK_SELDOM };
                match timeout(every, lines.changed()).await {
                    Ok(changed) => changed,
                    Err(_nothing_said) => {
                        look(waits, job.as_ref(), guard.pid(), clock, &mut news).await;
                        Ok(())
                    }
                }
            }
        };
        if changed.is_err() {
            clock.go_on();
            return pending().await;
        }
    }
}

/// Has the guard cancel a launcher's job if this process ends.
async fn own_job_of(wlm: &dyn Wlm, guard: &Guard, job: &JobRef) {
    let Some(batch) = wlm.capabilities().batch else { return };
    let owned = match batch.plan_cancel(job, &Machine) {
        Ok(cancel) => guard.at_loss(Some(cancel)).await.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    if let Err(error) = owned {
        tracing::debug!(error, job = job.0, "the launcher's job has no owner");
    }
}

/// Reports a wait until the launcher writes something else. An error: the launcher's output has ended.
async fn follow_said(
    waits: &'static dyn LauncherWaits,
    wait: LauncherWait,
    clock: &Clock,
    lines: &mut watch::Receiver<Option<LauncherWait>>,
    news: &mut JobNews<'_>,
) -> Result<(), watch::error::RecvError> {
    let mut told = QueueNews { job: wait.job.0.clone(), submitted: wait.submitted, message: wait.message };
    if !told.message.is_empty() {
        tell(news, &told);
    }
    let begun = Instant::now();
    loop {
        // The launcher itself says when the wait ends.
        let every = if begun.elapsed() < SHORT_WAIT { ASK_SOON } else { ASK_SELDOM };
        match timeout(every, lines.changed()).await {
            Ok(changed) => return changed,
            Err(_) if !wait.submitted => {}
            Err(_) => match ask_reason(waits, &wait.job).await {
                Ok(Some(message)) => {
                    clock.stop();
                    told.message = message;
                    tell(news, &told);
                }
                // The launcher is about to report it.
                Ok(None) => clock.go_on(),
                Err(error) => {
                    tracing::debug!(%error, job = wait.job.0, "the WLM does not tell why a job waits")
                }
            },
        }
    }
}

/// Stops or restarts the clock, according to the WLM.
async fn look(
    waits: &'static dyn LauncherWaits,
    job: Option<&JobRef>,
    above: Pid,
    clock: &Clock,
    news: &mut JobNews<'_>,
) {
    let asked = job.cloned();
    let looking = tokio::task::spawn_blocking(move || waits.look(asked.as_ref(), above, &Machine));
    match looking.await.map_err(Error::from) {
        Ok(Ok(Some(LauncherWait { job, submitted, message }))) => {
            clock.stop();
            tell(news, &QueueNews { job: job.0, submitted, message });
        }
        Ok(Ok(None)) => clock.go_on(),
        Ok(Err(error)) => tracing::debug!(%error, ?job, "the WLM does not tell whether the launcher waits"),
        Err(error) => tracing::debug!(%error, "the WLM was not asked whether the launcher waits"),
    }
}

/// The error after the timeout of a wait. `said` is the WLM's last answer, which explains more than the question that
/// was interrupted.
pub(super) fn explain_late(
    clock: &Clock,
    late: Late,
    phase: &'static str,
    said: Option<&gantry_wlm::Error>,
) -> Error {
    let Some(said) = said else { return clock.explain(late, phase, Vec::new()) };
    match late {
        Late::Queue => {
            let after = clock.queued_for().as_secs();
            Error::Queued { message: format!("{said}, after waiting in the queue for {after} s") }
        }
        Late::Launch => {
            let message = format!("{said}, after {} s", clock.elapsed().as_secs());
            let failure = Failure::new(Kind::TimedOut, message).with_hint("--timeout gives it more time");
            gantry_wlm::Error::Refused(failure).into()
        }
    }
}

fn tell(news: &mut JobNews<'_>, told: &QueueNews) {
    if let Some(tell) = news {
        tell(told);
    }
}

async fn ask_reason(waits: &'static dyn LauncherWaits, job: &JobRef) -> crate::Result<Option<String>> {
    let job = job.clone();
    let asking = tokio::task::spawn_blocking(move || waits.ask_reason(&job, &Machine));
    Ok(asking.await??)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::QueueTime;

    #[tokio::test(start_paused = true)]
    async fn a_silent_wlm_stops_no_clock_and_keeps_none_stopped_for_ever() {
        let silent = gantry_wlm::Error::Unanswered(Failure::new(Kind::TimedOut, "no answer"));
        let queued = |queued| gantry_wlm::Error::NotYet { message: "waits".to_owned(), hint: None, queued };
        let timeout = Duration::from_secs(30);
        let clock = Clock::new(timeout, QueueTime::Apart(None));
        let mut watch = QueueWatch::new(&clock);
        let left = |clock: &Clock| clock.deadline() - Instant::now();
        let pass = |time| tokio::time::advance(time);
        watch.take(&silent);
        pass(Duration::from_secs(1)).await;
        assert_eq!(left(&clock), Duration::from_secs(29));
        watch.take(&queued(true));
        pass(SILENCE - Duration::from_secs(1)).await;
        watch.take(&silent);
        pass(Duration::from_secs(1)).await;
        assert_eq!(left(&clock), Duration::from_secs(29), "a restart is no reason to hurry");
        watch.take(&silent);
        pass(Duration::from_secs(1)).await;
        assert_eq!(left(&clock), Duration::from_secs(28));
        watch.take(&queued(true));
        pass(SILENCE).await;
        assert_eq!(left(&clock), Duration::from_secs(28));
        watch.take(&queued(false));
        pass(Duration::from_secs(1)).await;
        assert_eq!(left(&clock), Duration::from_secs(27));
    }

    #[test]
    fn a_short_wait_is_not_missed_and_a_long_one_costs_few_questions() {
        let count = |until: Duration| {
            let waits = std::iter::successors(Some(Duration::ZERO), |at| Some(*at + pause_after(*at)));
            waits.take_while(|at| *at < until).count()
        };
        assert!(count(Duration::from_secs(3)) >= 10);
        let day = count(Duration::from_secs(24 * 60 * 60));
        assert!(day < 10_000, "{day}");
    }
}
