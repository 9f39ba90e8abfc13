//! Launches that wait for nodes: the clock stands still meanwhile, and the tool hears what they wait for.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use gantry_shared::error::{Failure, Kind};
use gantry_wlm::host::Machine;
use gantry_wlm::{JobRef, LauncherWaits, Wlm};
use tokio::time::{Instant, timeout};

use super::stdio::launcher::Words;
use crate::clock::{Clock, Late};
use crate::error::Error;

/// How often the WLM is asked whether a job has started. Every question costs the WLM some work.
pub(super) const ASK_EVERY: Duration = Duration::from_secs(2);

/// The same while the wait has not been long: a short one must not be missed.
pub(super) const ASK_SOON: Duration = Duration::from_millis(300);

/// How long that is.
pub(super) const SHORT_WAIT: Duration = Duration::from_secs(10);

/// How often the WLM is asked why a job waits, once it has waited for long. The launcher itself says when the wait ends.
const ASK_SELDOM: Duration = Duration::from_secs(10);

/// What a launch waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueNews {
    /// The job that waits for nodes, or has no room for the step.
    pub job: String,
    /// Whether the launch has submitted this job. Otherwise it runs inside it.
    pub submitted: bool,
    /// What it waits for, in the words of the workload manager.
    pub message: String,
}

/// Takes the news of a launch that waits, if the tool wants them.
pub(crate) type JobNews<'a> = Option<&'a mut (dyn FnMut(&QueueNews) + Send)>;

/// Stops `clock` while the launcher says that it waits, and tells what it waits for.
pub(super) async fn watch_launcher(
    wlm: &dyn Wlm,
    words: &Words,
    clock: &Clock,
    mut news: JobNews<'_>,
) -> Infallible {
    let Some(waits) = wlm.launcher_waits() else { return pending().await };
    let mut lines = words.waits();
    loop {
        let wait = lines.borrow_and_update().clone();
        let Some(wait) = wait else {
            clock.go_on();
            if lines.changed().await.is_err() {
                return pending().await;
            }
            continue;
        };
        clock.stop();
        let mut told =
            QueueNews { job: wait.job.0.clone(), submitted: wait.submitted, message: wait.message };
        tell(&mut news, &told);
        let begun = Instant::now();
        loop {
            let every = if begun.elapsed() < SHORT_WAIT { ASK_SOON } else { ASK_SELDOM };
            match timeout(every, lines.changed()).await {
                Ok(Ok(())) => break,
                Ok(Err(_)) => {
                    clock.go_on();
                    return pending().await;
                }
                Err(_) if !wait.submitted => {}
                Err(_) => match ask_reason(waits, &wait.job).await {
                    Ok(Some(message)) => {
                        clock.stop();
                        told.message = message;
                        tell(&mut news, &told);
                    }
                    // The launcher is about to say so.
                    Ok(None) => clock.go_on(),
                    Err(error) => {
                        tracing::debug!(%error, job = wait.job.0, "the WLM does not tell why a job waits")
                    }
                },
            }
        }
    }
}

/// The error of a wait whose time is up; `said` is the WLM's last answer, which tells more than that it was asked once more.
pub(super) fn explain_late(
    clock: &Clock,
    late: Late,
    phase: &'static str,
    said: Option<&gantry_wlm::Error>,
) -> Error {
    let Some(said) = said else { return clock.explain(late, phase, Vec::new()) };
    let (message, hint) = match late {
        Late::Queue => (
            format!("{said}, after {} s in the queue", clock.queued_for().as_secs()),
            "--queue-timeout gives it more time; without that option it waits as long as it takes",
        ),
        Late::Launch => {
            (format!("{said}, after {} s", clock.elapsed().as_secs()), "--timeout gives it more time")
        }
    };
    gantry_wlm::Error::Refused(Failure::new(Kind::TimedOut, message).with_hint(hint)).into()
}

fn tell(news: &mut JobNews<'_>, told: &QueueNews) {
    if let Some(tell) = news {
        tell(told);
    }
}

async fn ask_reason(waits: &'static dyn LauncherWaits, job: &JobRef) -> crate::Result<Option<String>> {
    let job = job.clone();
    let asking = tokio::task::spawn_blocking(move || waits.ask_reason(&job, &Machine));
    Ok(asking.await.map_err(|e| Error::Protocol(e.to_string()))??)
}
