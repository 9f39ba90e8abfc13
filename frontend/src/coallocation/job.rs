//! A co-allocated job: its owner's calls, and the task that owns its state.

mod mpi;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gantry_shared::deadline::bounded;
use gantry_types::error::Kind;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep};

use super::exchange::Exchange;
use super::info::{JobEvent, JobExit, SubjobInfo};
use super::mpi_failure::MpiFailure;
use super::output::OutputFiles;
use super::planner::Planner;
use super::request::MOST_SUBJOBS;
use super::state::{Act, JobState, News, Refusal, StartType, State, SubjobId, SubjobState, Wish};
use super::subjob::{self, Inputs, Planned, Tell, Told};
use crate::app::AppHandle;
use crate::error::{Error, Result};
use crate::event::Exit;
use crate::lock::lock;

/// A subjob's name for people: its label, else its number.
pub(super) fn name_of(label: Option<&str>, id: SubjobId) -> String {
    label.map_or_else(|| id.0.to_string(), str::to_owned)
}

/// What to do about subjobs that have not checked in when a job is to be released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unready {
    /// The release waits for them.
    Await,
    /// The job is cancelled because of them.
    Cancel,
}

/// What happens to a job, in order. Ends with the job.
#[derive(Debug)]
pub struct JobEvents(mpsc::UnboundedReceiver<JobEvent>);

impl JobEvents {
    /// The next event. None: the job is over. Cancel-safe: no event is lost.
    pub async fn next(&mut self) -> Option<JobEvent> {
        self.0.recv().await
    }

    /// The next event, if one is queued.
    pub fn try_next(&mut self) -> Option<JobEvent> {
        self.0.try_recv().ok()
    }
}

/// The owner of a co-allocated job. Dropping it cancels the job, and does not wait for its end.
#[derive(Debug)]
#[must_use = "dropping the owner cancels the job"]
pub struct Job {
    wishes: mpsc::UnboundedSender<(Asked, oneshot::Sender<Result<()>>)>,
    board: Arc<Board>,
    planner: Planner,
}

/// Requests to the job's task.
enum Asked {
    Add(Box<Planned>),
    Delete(String),
    Release(Unready),
    Cancel(String),
    Detach { until: Instant, done: mpsc::UnboundedSender<Result<()>> },
}

/// What the job's handles share.
#[derive(Debug)]
struct Board {
    seen: Mutex<Seen>,
    job: watch::Sender<JobState>,
    /// True when every released subjob has received the release.
    let_go: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Seen {
    subjobs: BTreeMap<SubjobId, (SubjobInfo, Option<AppHandle>)>,
    why: Option<String>,
    /// The kind of the failure that is the reason.
    kind: Option<Kind>,
    subscribers: Vec<mpsc::UnboundedSender<JobEvent>>,
}

impl Job {
    pub(super) fn start(planned: Vec<Planned>, timeout: Duration, planner: Planner) -> Self {
        let (wishes, asked) = mpsc::unbounded_channel();
        let board = Arc::new(Board {
            seen: Mutex::default(),
            job: watch::Sender::new(JobState::Open),
            let_go: watch::Sender::new(false),
        });
        let mut keeper = Keeper::new(Arc::clone(&board), timeout);
        keeper.managers = planned.iter().filter(|plan| plan.joins_world).map(|plan| plan.wlm).collect();
        for plan in planned {
            // The job is open, so adding is never refused.
            drop(keeper.add(plan));
        }
        tokio::spawn(keeper.keep(asked));
        Self { wishes, board, planner }
    }

    /// The state of the job.
    pub fn state(&self) -> JobState {
        *self.board.job.borrow()
    }

    /// The states of its subjobs, in their order, without deleted ones.
    pub fn states(&self) -> Vec<SubjobInfo> {
        lock(&self.board.seen).subjobs.values().map(|(info, _)| info.clone()).collect()
    }

    /// The app of a subjob that has one, for sessions and daemons beside its processes.
    pub fn app(&self, label: &str) -> Option<AppHandle> {
        let seen = lock(&self.board.seen);
        seen.subjobs.values().find(|(info, _)| info.label == label).and_then(|(_, app)| app.clone())
    }

    /// The events of the job from now on. The stream ends with the job.
    pub fn events(&self) -> JobEvents {
        let (sender, receiver) = mpsc::unbounded_channel();
        if self.state() != JobState::Over {
            lock(&self.board.seen).subscribers.push(sender);
        }
        JobEvents(receiver)
    }

    /// The present states as events, and a stream of all later events, without a gap.
    pub fn follow(&self) -> (Vec<JobEvent>, JobEvents) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut seen = lock(&self.board.seen);
        let state = self.state();
        if state != JobState::Over {
            seen.subscribers.push(sender);
        }
        let subjobs = seen.subjobs.values().map(|(info, _)| JobEvent::Subjob(info.clone()));
        (subjobs.chain([JobEvent::Job { state }]).collect(), JobEvents(receiver))
    }

    /// Adds a subjob to a job that was not released.
    ///
    /// # Errors
    /// The description is wrong, its label is taken, or the job was released.
    pub async fn add(&self, description: &str) -> Result<()> {
        let planned = self.planner.plan_one(description)?;
        self.ask(Asked::Add(Box::new(planned))).await
    }

    /// Takes a subjob out of a job that was not released, and ends it.
    ///
    /// # Errors
    /// There is no such subjob, or the job was released.
    pub async fn delete(&self, label: &str) -> Result<()> {
        self.ask(Asked::Delete(label.to_owned())).await
    }

    /// Releases all subjobs together. Returns when every subjob has received the release, so this process may end then.
    ///
    /// With [`Unready::Await`] the timeout starts at the end of the last launch: launches have their own timeouts, and
    /// may be in a queue.
    ///
    /// # Errors
    /// It was released before. [`Error::Lost`]: the job was killed instead, with the reason. [`Error::TimedOut`] names
    /// the subjobs that have not checked in yet.
    pub async fn release(&self, unready: Unready, timeout: Duration) -> Result<()> {
        self.ask(Asked::Release(unready)).await?;
        let (mut states, mut let_go) = (self.board.job.subscribe(), self.board.let_go.subscribe());
        let settled = async {
            let settled = |state: &JobState| !matches!(state, JobState::Open | JobState::Releasing);
            // The board owns the senders, so waiting cannot fail.
            drop(states.wait_for(settled).await);
            tokio::select! {
                _ = let_go.wait_for(|heard| *heard) => {}
                _ = states.wait_for(|state| *state != JobState::Released) => {}
            }
        };
        let late = async {
            if unready == Unready::Await {
                self.launched().await;
            }
            sleep(timeout).await;
        };
        let in_time = tokio::select! {
            biased;
            () = settled => true,
            () = late => false,
        };
        if !in_time {
            let missing =
                |info: &SubjobInfo| matches!(info.state, SubjobState::Pending | SubjobState::Active);
            let missing = self.states().into_iter().filter(missing).map(|info| info.label).collect();
            return Err(Error::TimedOut {
                phase: "waiting for subjobs to check in",
                after: timeout,
                missing,
            });
        }
        match lock(&self.board.seen).why.clone() {
            None => Ok(()),
            Some(reason) => Err(Error::Lost { what: vec!["the job".to_owned()], reason }),
        }
    }

    /// Waits until no subjob is being launched.
    async fn launched(&self) {
        let mut events = self.events();
        let pending = || self.states().iter().any(|info| info.state == SubjobState::Pending);
        while pending() && events.next().await.is_some() {}
    }

    /// Ends all its subjobs. Does nothing to a job that has ended.
    ///
    /// # Errors
    /// Never fails today.
    pub async fn cancel(&self) -> Result<()> {
        self.ask(Asked::Cancel("it was cancelled".to_owned())).await
    }

    /// Waits until all subjobs have ended and are cleaned up. A job does not end before it is released or cancelled.
    pub async fn wait(&self) -> JobExit {
        // The board owns the sender.
        drop(self.board.job.subscribe().wait_for(|state| *state == JobState::Over).await);
        let subjobs = self.states();
        let failed = |info: &SubjobInfo| match (info.state, info.code) {
            (_, Some(code)) if code != 0 => Some(code),
            (SubjobState::Done, _) => None,
            _ => Some(1),
        };
        let codes = subjobs.iter().find_map(|info| info.code.filter(|code| *code != 0));
        let code = codes.or_else(|| subjobs.iter().find_map(failed)).unwrap_or(0);
        let seen = lock(&self.board.seen);
        JobExit { code, why: seen.why.clone(), kind: seen.kind, subjobs }
    }

    /// Detaches from a released job. The output of its subjobs is dropped from now on. Daemons and sessions beside its
    /// processes stay until these end. The tool forwards messages between the processes, so they cannot exchange any
    /// after this: they get the error that the connection is lost.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the job was not released, and is cancelled. Any other error: an app was not detached within
    /// `timeout`; it then ends as if its owner had been dropped.
    pub async fn detach(self, timeout: Duration) -> Result<()> {
        self.let_be(timeout).await
    }

    /// As [`Job::detach`], but keeps the job: one that was not released is left as it is.
    ///
    /// # Errors
    /// As [`Job::detach`].
    pub async fn let_be(&self, timeout: Duration) -> Result<()> {
        let (done, mut outcomes) = mpsc::unbounded_channel();
        self.ask(Asked::Detach { until: Instant::now() + bounded(timeout), done }).await?;
        let mut outcome = Ok(());
        // Wait for every subjob, even after an error.
        while let Some(of_one) = outcomes.recv().await {
            outcome = outcome.and(of_one);
        }
        outcome
    }

    async fn ask(&self, asked: Asked) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        // A job that is over needs no cancellation.
        let over = match asked {
            Asked::Cancel(_) => Ok(()),
            _ => Err(Error::Gone { what: "the job".to_owned() }),
        };
        match self.wishes.send((asked, reply)) {
            // The job may be over before it handles the request.
            Ok(()) => answer.await.unwrap_or(over),
            Err(_over) => over,
        }
    }
}

/// The task that owns the state of a job.
struct Keeper {
    state: State,
    board: Arc<Board>,
    orders: BTreeMap<SubjobId, mpsc::UnboundedSender<Tell>>,
    plans: BTreeMap<SubjobId, Planned>,
    files: OutputFiles,
    exchange: Exchange,
    /// Parts of the job's MPI world, and how they take part in the barrier.
    members: BTreeMap<SubjobId, StartType>,
    /// Why the MPI world failed, and the part that reported it.
    failure: Option<(SubjobId, MpiFailure)>,
    /// Workload managers whose hosts the world uses.
    managers: BTreeSet<&'static str>,
    /// Parts of the world whose ranks use the network of their manager.
    native: BTreeSet<SubjobId>,
    /// Released subjobs that have not received the release yet.
    unheard: BTreeSet<SubjobId>,
    reports: subjob::Reports,
    told: mpsc::UnboundedReceiver<(SubjobId, Told)>,
    next: u32,
    timeout: Duration,
}

impl Keeper {
    fn new(board: Arc<Board>, timeout: Duration) -> Self {
        let (reports, told) = mpsc::unbounded_channel();
        let (orders, plans) = (BTreeMap::new(), BTreeMap::new());
        Self {
            state: State::new(),
            board,
            orders,
            plans,
            files: OutputFiles::default(),
            exchange: Exchange::default(),
            members: BTreeMap::new(),
            failure: None,
            managers: BTreeSet::new(),
            native: BTreeSet::new(),
            unheard: BTreeSet::new(),
            reports,
            told,
            next: 0,
            timeout,
        }
    }

    /// Runs until the job is over. Cancels the job when its owner is gone.
    async fn keep(mut self, mut asked: mpsc::UnboundedReceiver<(Asked, oneshot::Sender<Result<()>>)>) {
        let mut owned = true;
        while !self.state.is_over() {
            tokio::select! {
                Some((id, told)) = self.told.recv() => self.take(id, told),
                wish = asked.recv(), if owned => match wish {
                    Some((wish, reply)) => {
                        let done = self.grant(wish);
                        // The caller may have stopped waiting.
                        drop(reply.send(done));
                    }
                    None => {
                        owned = false;
                        // Cancelling is never refused.
                        drop(self.grant(Asked::Cancel("its owner has ended".to_owned())));
                    }
                },
            }
        }
        lock(&self.board.seen).subscribers.clear();
    }

    fn grant(&mut self, asked: Asked) -> Result<()> {
        match asked {
            Asked::Add(planned) => self.add(*planned),
            Asked::Delete(label) => {
                let id = self.find(&label)?;
                let acts = self.state.ask(Wish::Delete(id)).map_err(|refusal| explain(refusal, &label))?;
                lock(&self.board.seen).subjobs.remove(&id);
                self.carry_out(acts);
                Ok(())
            }
            Asked::Release(unready) => {
                let wish = Wish::Release { wait: unready == Unready::Await };
                let acts = self.state.ask(wish).map_err(|refusal| explain(refusal, ""))?;
                if self.state.job() == JobState::Ending {
                    self.note_why(
                        "it was to be released, and not all subjobs had checked in".to_owned(),
                        None,
                    );
                }
                self.carry_out(acts);
                Ok(())
            }
            Asked::Detach { until, done } => {
                if self.state.job() != JobState::Released {
                    let message = format!("the job is {}, and cannot be left alone", self.state.job());
                    let hint =
                        "processes that wait for their release would do so for ever: release it before";
                    return Err(Error::Invalid { message, hint: Some(hint.to_owned()) });
                }
                // Later reports describe the detachment, not the job.
                lock(&self.board.seen).subscribers.clear();
                for orders in self.orders.values() {
                    // A subjob that has ended needs no order.
                    drop(orders.send(Tell::Detach { until, done: done.clone() }));
                }
                Ok(())
            }
            Asked::Cancel(why) => {
                let acts = self.state.ask(Wish::Cancel).map_err(|refusal| explain(refusal, ""))?;
                if !acts.is_empty() {
                    self.note_why(why, None);
                }
                self.carry_out(acts);
                Ok(())
            }
        }
    }

    fn add(&mut self, mut planned: Planned) -> Result<()> {
        let id = SubjobId(self.next);
        let label = name_of(planned.label.as_deref(), id);
        if self.find(&label).is_ok() {
            return Err(Error::invalid(format!("there is a subjob '{label}' already")));
        }
        if lock(&self.board.seen).subjobs.len() >= MOST_SUBJOBS {
            return Err(Error::invalid(format!(
                "the job has {MOST_SUBJOBS} subjobs, and no more are allowed"
            )));
        }
        if planned.joins_world {
            self.choose_transport(id, &mut planned)?;
        }
        let acts =
            self.state.ask(Wish::Add(id, planned.start)).map_err(|refusal| explain(refusal, &label))?;
        self.next += 1;
        if planned.joins_world {
            self.members.insert(id, planned.start);
            self.managers.insert(planned.wlm);
        }
        let info = SubjobInfo {
            label,
            wlm: planned.wlm,
            state: SubjobState::Pending,
            why: None,
            kind: None,
            code: None,
        };
        lock(&self.board.seen).subjobs.insert(id, (info, None));
        self.plans.insert(id, planned);
        self.carry_out(acts);
        Ok(())
    }

    fn find(&self, label: &str) -> Result<SubjobId> {
        let seen = lock(&self.board.seen);
        let found = seen.subjobs.iter().find(|(_, (info, _))| info.label == label);
        found.map(|(id, _)| *id).ok_or_else(|| explain(Refusal::Unknown, label))
    }

    fn take(&mut self, id: SubjobId, told: Told) {
        match told {
            Told::News(news) => {
                let acts = self.state.take(id, news);
                if news == News::Ended {
                    self.unheard.remove(&id);
                }
                // After the failure of the last subjob the job is over at once.
                if acts.contains(&Act::TellJob(JobState::Ending)) {
                    let seen = lock(&self.board.seen);
                    let failed = seen.subjobs.get(&id).map(|(info, _)| (describe_failure(info), info.kind));
                    drop(seen);
                    let (why, kind) = failed.unwrap_or_default();
                    self.note_why(why, kind);
                }
                self.carry_out(acts);
            }
            Told::LetGo => self.heard(id),
            Told::App(app) => self.know(id, |(_, known)| *known = Some(app)),
            // A part that ends because its MPI world failed has the world's exit code.
            Told::Exit(Exit { code, .. }) => self.know(id, |(info, _)| info.code = info.code.or(Some(code))),
            Told::MpiFailed(failure) => self.mpi_failed(id, failure),
            Told::Event(build) => self.publish(&build(self.label(id))),
            Told::NoWorld(why) => {
                let label = self.label(id);
                self.note_why(format!("subjob {label} cannot be part of the MPI world: {why}"), None);
                // Cancelling is never refused.
                drop(self.grant(Asked::Cancel(String::new())));
            }
            Told::Why(error) => {
                tracing::debug!(subjob = id.0, %error, "a subjob failed");
                self.know(id, |(info, _)| {
                    (info.why, info.kind) = (Some(error.to_string()), Some(error.kind()));
                });
            }
        }
    }

    fn know(&self, id: SubjobId, change: impl FnOnce(&mut (SubjobInfo, Option<AppHandle>))) {
        // Reports about a deleted subjob are ignored.
        if let Some(known) = lock(&self.board.seen).subjobs.get_mut(&id) {
            change(known);
        }
    }

    /// Keeps the first reason: it is the cause of the others.
    fn note_why(&self, why: String, kind: Option<Kind>) {
        let mut seen = lock(&self.board.seen);
        if seen.why.is_none() {
            (seen.why, seen.kind) = (Some(why), kind);
        }
    }

    fn carry_out(&mut self, acts: Vec<Act>) {
        let mut seats = match self.form_world(&acts) {
            Ok(seats) => seats,
            Err(error) => {
                self.note_why(error.to_string(), Some(error.kind()));
                // Cancelling is never refused.
                return drop(self.grant(Asked::Cancel(String::new())));
            }
        };
        for act in acts {
            match act {
                Act::Start(id) => self.start(id),
                Act::Release(id) => {
                    self.unheard.insert(id);
                    self.tell(id, Tell::Release(seats.remove(&id)));
                }
                Act::End(id) => {
                    let seen = lock(&self.board.seen);
                    let own = seen.subjobs.get(&id).and_then(|(info, _)| info.why.clone());
                    let why = seen.why.clone().or(own);
                    drop(seen);
                    self.exchange.abort(id, why.as_deref().unwrap_or("its subjob was deleted"));
                    self.tell(id, Tell::End);
                }
                Act::Tell(id, state) => {
                    let mut told = None;
                    self.know(id, |(info, _)| {
                        info.state = state;
                        told = Some(info.clone());
                    });
                    if let Some(info) = told {
                        self.publish(&JobEvent::Subjob(info));
                    }
                }
                Act::TellJob(state) => {
                    if state == JobState::Released {
                        let members = lock(&self.board.seen).subjobs.keys().copied().collect();
                        self.exchange.release(members);
                    }
                    // In this order, so that a new subscriber may get the state twice but never misses it.
                    self.board.job.send_replace(state);
                    self.publish(&JobEvent::Job { state });
                }
            }
        }
        self.check_heard();
    }

    /// A released subjob has received the release, or has ended.
    fn heard(&mut self, id: SubjobId) {
        self.unheard.remove(&id);
        self.check_heard();
    }

    fn check_heard(&self) {
        if self.state.job() == JobState::Released && self.unheard.is_empty() {
            self.board.let_go.send_replace(true);
        }
    }

    fn start(&mut self, id: SubjobId) {
        let Some(planned) = self.plans.remove(&id) else { return };
        let (sender, orders) = mpsc::unbounded_channel();
        self.orders.insert(id, sender);
        let deadline = Instant::now() + bounded(self.timeout);
        let barrier = planned.start != StartType::NoBarrier;
        let (member, arrivals) = self.exchange.add(id, planned.comms, barrier);
        let inputs = Inputs { orders, member, arrivals, files: self.files.clone() };
        tokio::spawn(subjob::run(id, planned, deadline, inputs, self.reports.clone()));
    }

    fn tell(&self, id: SubjobId, tell: Tell) {
        if let Some(orders) = self.orders.get(&id) {
            // It has ended meanwhile, and is about to report that.
            drop(orders.send(tell));
        }
    }

    fn publish(&self, event: &JobEvent) {
        lock(&self.board.seen).subscribers.retain(|subscriber| subscriber.send(event.clone()).is_ok());
    }
}

fn describe_failure(info: &SubjobInfo) -> String {
    let why = match (&info.why, info.code) {
        (Some(why), _) => format!(": {why}"),
        (None, Some(code)) => format!(": it ended before the release, with code {code}"),
        (None, None) => String::new(),
    };
    format!("subjob {} failed{why}", info.label)
}

fn explain(refusal: Refusal, label: &str) -> Error {
    match refusal {
        Refusal::Unknown => Error::invalid(format!("the job has no subjob '{label}'")),
        Refusal::TooLate(JobState::Over) => Error::Gone { what: "the job".to_owned() },
        Refusal::TooLate(state) => Error::Invalid {
            message: format!("the job is {state}"),
            hint: Some("it can be changed and released once, before it is released".to_owned()),
        },
    }
}
