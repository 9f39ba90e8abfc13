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

use super::asking::ask;
use super::stdio::launcher::Words;
use crate::clock::{Clock, Late};
use crate::error::{Error, Result, WlmError};
use crate::guard::Guard;
use crate::submission::owned;

/// How often the WLM is asked whether a job has started. Every question costs the WLM some work.
pub(super) const ASK_EVERY: Duration = Duration::from_secs(2);

/// The same during the first [`SHORT_WAIT`]: a short wait must not be missed.
const ASK_SOON: Duration = Duration::from_millis(300);

/// For how long questions are asked every [`ASK_SOON`].
const SHORT_WAIT: Duration = Duration::from_secs(10);

/// How often the WLM is asked during a long wait.
const ASK_SELDOM: Duration = Duration::from_secs(10);

/// After this time in the queue a few seconds more do not matter.
const LONG_WAIT: Duration = Duration::from_secs(5 * 60);

/// How long to wait before the WLM is asked again about a job that has waited this long.
fn pause_after(waited: Duration) -> Duration {
    match waited {
        short if short < SHORT_WAIT => ASK_SOON,
        long if long >= LONG_WAIT => ASK_SELDOM,
        _ => ASK_EVERY,
    }
}

/// For how long a WLM that gives no answer leaves a clock as it is. It may be restarted meanwhile.
const SILENCE: Duration = Duration::from_secs(10 * 60);

/// A wait for nodes or ranks. It stops the clock while the WLM says that a job is in its queue. A WLM that gives no
/// answer says nothing: it stops no clock, and does not keep one stopped for longer than [`SILENCE`].
#[derive(Debug)]
pub(super) struct Wait<'a> {
    clock: &'a Clock,
    started: Instant,
    answered: Instant,
}

/// Why a wait has ended without what it was for.
#[derive(Debug)]
pub(crate) enum NotThere {
    /// The WLM's last answer was that there is nothing yet. Then a timeout expired.
    NotYet(Error),
    /// The job's guard has ended meanwhile.
    Unowned,
    /// Something else. It says nothing about whether ranks run, or will.
    Failed(Error),
}

impl From<Error> for NotThere {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl NotThere {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::NotYet(error) | Self::Failed(error) => error,
            Self::Unowned => Error::Gone { what: "the guard".to_owned() },
        }
    }
}

impl<'a> Wait<'a> {
    pub(super) fn new(clock: &'a Clock) -> Self {
        let now = Instant::now();
        Self { clock, started: now, answered: now }
    }

    /// Asks the WLM by `ask` until its answer is final, or a timeout expires. `tell` gets what the job waits for, and
    /// says whether to wait. `phase` is the wait's name if a timeout expires before the first answer.
    pub(super) async fn until<T, F: Future<Output = Result<T>>>(
        mut self,
        phase: &'static str,
        mut ask: impl FnMut() -> F,
        mut tell: impl FnMut(&str) -> bool,
    ) -> std::result::Result<T, NotThere> {
        let clock = self.clock;
        // After a timeout the WLM's last word explains more than the question that was interrupted.
        let mut said = None;
        let asking = async {
            loop {
                let not_yet = match ask().await {
                    Err(Error::Wlm(WlmError(error))) if error.is_temporary() => error,
                    found => return found,
                };
                if !tell(&not_yet.to_string()) {
                    return Err(not_yet.into());
                }
                let pause = self.take(&not_yet);
                said = Some(not_yet);
                tokio::time::sleep(pause).await;
            }
        };
        let found = tokio::select! {
            found = asking => Ok(found),
            late = clock.run_out() => Err(late),
        };
        clock.go_on();
        match (found, said) {
            (Ok(found), _) => found.map_err(NotThere::Failed),
            (Err(late), None) => Err(clock.explain(late, phase, Vec::new()).into()),
            (Err(late), Some(said @ gantry_wlm::Error::NotYet { .. })) => {
                Err(NotThere::NotYet(explain_late(clock, late, &said)))
            }
            (Err(late), Some(said)) => Err(explain_late(clock, late, &said).into()),
        }
    }

    /// Takes a word of the WLM that is no final answer, and returns the pause before the next question.
    fn take(&mut self, said: &gantry_wlm::Error) -> Duration {
        let waited = self.started.elapsed();
        let gantry_wlm::Error::NotYet { queued, .. } = said else {
            self.silent();
            return pause_after(waited);
        };
        self.queued(*queued);
        pause_after(if *queued { waited } else { waited.min(SHORT_WAIT) })
    }

    /// Takes the answer to the question whether a launcher waits. None: it does not, or there is no answer.
    fn hear<T>(&mut self, answer: Result<Option<T>>) -> Option<T> {
        match answer {
            Ok(waits) => {
                self.queued(waits.is_some());
                waits
            }
            Err(error) => {
                tracing::debug!(%error, "the WLM does not tell whether a launcher waits");
                self.silent();
                None
            }
        }
    }

    fn queued(&mut self, queued: bool) {
        self.answered = Instant::now();
        if queued { self.clock.stop() } else { self.clock.go_on() }
    }

    fn silent(&self) {
        if self.answered.elapsed() >= SILENCE {
            self.clock.go_on();
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
    let mut wait = Wait::new(clock);
    let mut lines = words.waits();
    let (mut spoken, mut owned) = (false, false);
    loop {
        let said = lines.borrow_and_update().clone();
        if let Some(said) = said.as_ref().filter(|said| said.submitted && !owned) {
            owned = true;
            own_job_of(wlm, guard, &said.job).await;
        }
        let changed = match (said, &own_job) {
            (Some(said), _) => {
                spoken = true;
                follow_said(waits, said, guard.pid(), &mut wait, &mut lines, &mut news).await
            }
            // A launcher that reports its wait also reports the end of the wait.
            (None, None) if spoken => {
                wait.queued(false);
                lines.changed().await
            }
            (None, job) => {
                let every = if clock.queued_for() < SHORT_WAIT { LOOK_EVERY } else { ASK_SELDOM };
                match timeout(every, lines.changed()).await {
                    Ok(changed) => changed,
                    Err(_nothing_said) => {
                        let looked = look(waits, job.clone(), guard.pid()).await;
                        if let Some(LauncherWait { job, submitted, message }) = wait.hear(looked) {
                            tell(&mut news, &QueueNews { job: job.0, submitted, message });
                        }
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
    if wlm.capabilities().batch.is_none() {
        return;
    }
    if let Err(error) = guard.at_loss(Some(owned(wlm, job))).await {
        tracing::debug!(%error, job = job.0, "the launcher's job has no owner");
    }
}

/// Reports a wait until the launcher writes something else. An error: the launcher's output has ended.
async fn follow_said(
    waits: &'static dyn LauncherWaits,
    said: LauncherWait,
    above: Pid,
    wait: &mut Wait<'_>,
    lines: &mut watch::Receiver<Option<LauncherWait>>,
    news: &mut JobNews<'_>,
) -> std::result::Result<(), watch::error::RecvError> {
    let mut told = QueueNews { job: said.job.0.clone(), submitted: said.submitted, message: said.message };
    // Without a message the launcher may not wait at all.
    if !told.message.is_empty() {
        wait.queued(true);
        tell(news, &told);
    }
    let begun = Instant::now();
    loop {
        // The launcher itself says when the wait ends.
        let every = if said.submitted && begun.elapsed() < SHORT_WAIT { ASK_SOON } else { ASK_SELDOM };
        match timeout(every, lines.changed()).await {
            Ok(changed) => return changed,
            // Not every WLM lists a step that waits. So only the lack of an answer counts.
            Err(_) if !said.submitted => {
                let looked = look(waits, Some(said.job.clone()), above).await;
                wait.hear(looked.map(Some));
            }
            Err(_) => {
                let job = said.job.clone();
                // None: the launcher is about to report it.
                if let Some(message) = wait.hear(ask(move |host| waits.ask_reason(&job, host)).await) {
                    told.message = message;
                    tell(news, &told);
                }
            }
        }
    }
}

/// Asks the WLM whether a launcher waits below the process `above`.
async fn look(
    waits: &'static dyn LauncherWaits,
    job: Option<JobRef>,
    above: Pid,
) -> Result<Option<LauncherWait>> {
    ask(move |host| waits.look(job.as_ref(), above, host)).await
}

/// The error after the timeout of a wait. `said` is the WLM's last word.
fn explain_late(clock: &Clock, late: Late, said: &gantry_wlm::Error) -> Error {
    match late {
        Late::Queue => {
            let after = clock.queued_for().as_secs();
            Error::Queued { message: format!("{said}, after waiting in the queue for {after} s") }
        }
        Late::Launch => {
            let message = format!("{said}, after {} s", clock.elapsed().as_secs());
            let hint = "--timeout gives it more time, or --wait=TIME where that is an option";
            gantry_wlm::Error::Failed(Failure::new(Kind::TimedOut, message).with_hint(hint)).into()
        }
    }
}

fn tell(news: &mut JobNews<'_>, told: &QueueNews) {
    if let Some(tell) = news {
        tell(told);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::QueueTime;

    #[tokio::test(start_paused = true)]
    async fn a_silent_wlm_stops_no_clock_and_keeps_none_stopped_for_ever() {
        let silent = gantry_wlm::Error::Unanswered(Failure::new(Kind::TimedOut, "no answer"));
        let queued = |queued| gantry_wlm::Error::not_yet("waits", None, queued);
        let timeout = Duration::from_secs(30);
        let clock = Clock::new(timeout, QueueTime::Apart(None));
        let mut wait = Wait::new(&clock);
        let left = |clock: &Clock| clock.deadline() - Instant::now();
        let pass = |time| tokio::time::advance(time);
        wait.take(&silent);
        pass(Duration::from_secs(1)).await;
        assert_eq!(left(&clock), Duration::from_secs(29));
        wait.take(&queued(true));
        pass(SILENCE - Duration::from_secs(1)).await;
        wait.take(&silent);
        pass(Duration::from_secs(1)).await;
        assert_eq!(left(&clock), Duration::from_secs(29), "a restart is no reason to hurry");
        wait.take(&silent);
        pass(Duration::from_secs(1)).await;
        assert_eq!(left(&clock), Duration::from_secs(28));
        wait.take(&queued(true));
        pass(SILENCE).await;
        assert_eq!(left(&clock), Duration::from_secs(28));
        wait.take(&queued(false));
        pass(Duration::from_secs(1)).await;
        assert_eq!(left(&clock), Duration::from_secs(27));
    }

    #[tokio::test(start_paused = true)]
    async fn a_launcher_of_a_silent_wlm_has_a_timeout() {
        let silent = || Err::<Option<()>, _>(Error::Gone { what: "the controller".to_owned() });
        let clock = Clock::new(Duration::from_secs(30), QueueTime::Apart(None));
        let mut wait = Wait::new(&clock);
        wait.hear(silent());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(clock.elapsed(), Duration::from_secs(1));
        wait.hear(Ok(Some(())));
        tokio::time::advance(SILENCE).await;
        wait.hear(silent());
        let begun = Instant::now();
        assert_eq!(clock.run_out().await, Late::Launch);
        assert_eq!(begun.elapsed(), Duration::from_secs(29));
    }

    /// A WLM that gives no answer. It tells when it is asked.
    #[derive(Debug, Default)]
    struct Silent(tokio::sync::Notify);

    impl LauncherWaits for Silent {
        fn read_line(&self, _line: &str) -> Option<gantry_wlm::WaitLine> {
            None
        }

        fn ask_reason(
            &self,
            _job: &JobRef,
            _host: &dyn gantry_wlm::Host,
        ) -> gantry_wlm::Result<Option<String>> {
            self.0.notify_one();
            Err(gantry_wlm::Error::Unanswered(Failure::new(Kind::TimedOut, "no answer")))
        }

        fn own_job(&self, _host: &dyn gantry_wlm::Host) -> Option<JobRef> {
            None
        }

        fn look(
            &self,
            job: Option<&JobRef>,
            _above: Pid,
            host: &dyn gantry_wlm::Host,
        ) -> gantry_wlm::Result<Option<LauncherWait>> {
            job.map_or(Ok(None), |job| self.ask_reason(job, host).map(|_| None))
        }
    }

    #[tokio::test]
    async fn a_launcher_that_names_its_job_alone_may_not_wait_at_all() {
        for (message, stops) in [("", false), ("job 7 waits", true)] {
            let clock = Clock::new(Duration::from_secs(30), QueueTime::Apart(None));
            let silent: &'static Silent = Box::leak(Box::default());
            let said =
                LauncherWait { job: JobRef("7".to_owned()), submitted: true, message: message.to_owned() };
            let (_words, mut lines) = watch::channel(None);
            let (mut wait, mut news) = (Wait::new(&clock), None);
            let above = Pid::new(1).unwrap();
            tokio::select! {
                _ = follow_said(silent, said, above, &mut wait, &mut lines, &mut news) => panic!("it says no more"),
                () = silent.0.notified() => {}
            }
            assert_eq!(clock.queued_for() > Duration::ZERO, stops, "{message}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_last_word_not_yet_says_that_there_are_no_ranks() {
        let ask = async |then_silent: bool, queue: QueueTime| {
            let clock = Clock::new(Duration::from_secs(30), queue);
            let mut asked = 0;
            let question = || {
                asked += 1;
                let silent = gantry_wlm::Error::Unanswered(Failure::new(Kind::TimedOut, "no answer"));
                let queued = gantry_wlm::Error::not_yet("waits", None, true);
                std::future::ready(Err::<(), _>(
                    if then_silent && asked > 1 { silent } else { queued }.into(),
                ))
            };
            Wait::new(&clock).until("waiting", question, |_| true).await.unwrap_err()
        };
        for queue in [QueueTime::Counts, QueueTime::Apart(Some(Duration::from_secs(60)))] {
            assert!(matches!(ask(false, queue).await, NotThere::NotYet(_)), "{queue:?}");
            assert!(matches!(ask(true, queue).await, NotThere::Failed(_)), "{queue:?}");
        }
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
