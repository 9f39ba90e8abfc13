//! The process manager: carries out requests for all groups of the user.
//!
//! There is no daemon. Every frontend of the user reports its app and accepts requests for it. Frontends of other
//! users are never asked: their sockets are in other directories.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gantry_types::error::{Failure, Kind};
use gantry_types::id::AppId;
use gantry_types::signal::Signal;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::create;
use super::group::GroupFacts;
use super::matching::{Found, find};
use super::query::Query;
use super::request::{Answer, CreateGroup, Request, Told};
use crate::control::{Client, GroupListing, Registry, Shelf, list_groups};
use crate::error::{Error, Result};
use crate::event::{Exit, StateName};
use crate::info::AppState;

/// How many groups are handled at a time.
const AT_A_TIME: usize = 64;

/// The timeout for a frontend's report about its group. A stopped frontend must not hide the others.
const ASKING: Duration = Duration::from_secs(5);

/// All process groups of the user on this machine.
#[derive(Debug, Clone)]
pub struct ProcessManager {
    registry: Registry,
}

impl ProcessManager {
    /// The groups with sockets in the user's runtime directory: `runtime_dir`, or the default one.
    ///
    /// # Errors
    /// The directory cannot be created, or is not private.
    pub fn open(runtime_dir: Option<&Path>) -> Result<Self> {
        Ok(Self { registry: Registry::open(runtime_dir)? })
    }

    /// Carries out a request. Its action on a group may take until the timeout expires; a wait has its own timeout.
    pub async fn carry_out(&self, request: &Request, timeout: Duration) -> Answer {
        let done = self.try_carry_out(request, timeout).await;
        done.unwrap_or_else(|error| Answer::Refused { line: None, failure: error.to_failure() })
    }

    async fn try_carry_out(&self, request: &Request, timeout: Duration) -> Result<Answer> {
        let told = match request {
            Request::Get(query) => self.select(query).await?,
            Request::Signal { query, signal } => {
                self.signal(self.select(query).await?, *signal, timeout).await
            }
            Request::Kill(query) => self.kill(self.select(query).await?, timeout).await,
            Request::Forget(query) => self.forget(self.select(query).await?, timeout).await,
            Request::Wait { query, limit } => self.wait(query, *limit).await?,
            Request::Checkpoint(_) => {
                return Err(unsupported(
                    "nothing here can save a process group so that it can be started again",
                    "have its program write checkpoints of its own; a signal may ask it to",
                ));
            }
            Request::Create(create) => {
                return Ok(Answer::Created { pgid: self.create(create, timeout).await? });
            }
        };
        Ok(Answer::Groups(told))
    }

    /// Starts a group in the background. Its frontend process is separate and ends with it. Returns its number when its
    /// processes run.
    ///
    /// # Errors
    /// The request is not valid, or the group cannot start; then nothing of it runs.
    pub async fn create(&self, group: &CreateGroup, timeout: Duration) -> Result<u32> {
        create::create(group, self.registry.path(), timeout).await
    }

    /// The groups that match a query, with the requested attributes.
    ///
    /// # Errors
    /// The runtime directory cannot be read.
    pub async fn select(&self, query: &Query) -> Result<Told> {
        Ok(tell(list_groups(&self.registry, ASKING).await?, query))
    }

    /// Sends a signal to all processes of the matching groups. Returns those that got it, with their state from before.
    /// An ended group gets none.
    pub async fn signal(&self, told: Told, signal: Signal, timeout: Duration) -> Told {
        self.each_live(told, move |mut client| async move { client.signal(signal, None, timeout).await })
            .await
    }

    /// Ends the matching groups: kills their processes and waits until nothing is left of them. Returns those that were
    /// ended, with their state from before.
    pub async fn kill(&self, told: Told, timeout: Duration) -> Told {
        self.each_live(told, move |mut client| async move {
            client.kill(timeout).await?;
            client.gone(timeout).await
        })
        .await
    }

    /// Forgets the matching groups. A group that has not ended cannot be forgotten.
    pub async fn forget(&self, mut told: Told, timeout: Duration) -> Told {
        let (kept, live) = split(&told, |told, pgid| told.kept.contains(&pgid));
        for found in live {
            let pgid = told.groups.pgid(found.at).unwrap_or_default();
            let failure = Failure::new(Kind::Invalid, format!("process group {pgid} has not ended"));
            told.troubles.push((pgid, failure.with_hint("wait for it, or kill it, first")));
        }
        told.found = kept;
        self.each(told, Shelf::Kept, move |mut client| async move {
            client.forget(timeout).await?;
            client.gone(timeout).await
        })
        .await
    }

    /// Waits until all groups have ended that match a query now. Returns their state from then.
    ///
    /// # Errors
    /// The runtime directory cannot be read; or the limit passes while some run.
    pub async fn wait(&self, query: &Query, limit: Option<Duration>) -> Result<Told> {
        let before = list_groups(&self.registry, ASKING).await?;
        let mut facts: Vec<(GroupFacts, Shelf)> = before.groups.clone();
        let told = tell(before, query);
        let meant: BTreeSet<u32> = pgids(&told).collect();
        facts.retain(|(facts, _)| meant.contains(&facts.pgid));
        let mut waiting = JoinSet::new();
        for (at, (group, _)) in facts.iter().enumerate().filter(|(_, (_, shelf))| *shelf == Shelf::Live) {
            let (registry, app) = (self.registry.clone(), group.app);
            waiting.spawn(async move { (at, wait_for(&registry, app).await) });
        }
        let mut left = meant.clone();
        let all = async {
            while let Some(ended) = waiting.join_next().await {
                let (at, exit) = ended?;
                if let Some((group, _)) = facts.get_mut(at) {
                    left.remove(&group.pgid);
                    end(group, exit?);
                }
            }
            Ok::<_, Error>(())
        };
        match limit {
            None => all.await?,
            Some(limit) => match timeout(limit, all).await {
                Ok(done) => done?,
                Err(_) => {
                    let missing = left.iter().map(|pgid| format!("process group {pgid}")).collect();
                    let phase = "waiting for process groups to end";
                    return Err(Error::TimedOut { phase, after: limit, missing });
                }
            },
        }
        self.complete(&mut facts).await?;
        let silent = told.silent;
        let columns: Vec<_> = told.found.iter().map(|found| found.columns).collect();
        let mut ended = tell(GroupListing { groups: facts, silent }, &Query::default());
        ended.found = columns.into_iter().enumerate().map(|(at, columns)| Found { at, columns }).collect();
        Ok(ended)
    }

    /// Reads from kept records how groups ended that were gone before they could be waited for.
    async fn complete(&self, facts: &mut [(GroupFacts, Shelf)]) -> Result<()> {
        let after = list_groups(&self.registry, ASKING).await?;
        for (group, _) in facts.iter_mut().filter(|(group, _)| group.exit_code.is_none()) {
            let known = after.groups.iter().find(|(known, _)| known.pgid == group.pgid);
            if let Some((known, _)) = known.filter(|(known, _)| known.state == AppState::Ended) {
                group.clone_from(known);
            }
        }
        Ok(())
    }

    /// Runs an action on groups that have not ended, and drops the others from the answer.
    async fn each_live<D, F>(&self, mut told: Told, deed: D) -> Told
    where
        D: Fn(Client) -> F + Clone + Send + 'static,
        F: Future<Output = Result<()>> + Send + 'static,
    {
        told.found = split(&told, |told, pgid| !told.kept.contains(&pgid)).0;
        self.each(told, Shelf::Live, deed).await
    }

    /// Runs an action on all matching groups, many at a time, and keeps those where it succeeded.
    async fn each<D, F>(&self, mut told: Told, shelf: Shelf, deed: D) -> Told
    where
        D: Fn(Client) -> F + Clone + Send + 'static,
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let places = Arc::new(Semaphore::new(AT_A_TIME));
        let mut doing = JoinSet::new();
        for found in std::mem::take(&mut told.found) {
            let Some(app) = told.groups.app(found.at) else { continue };
            let (registry, deed, places) = (self.registry.clone(), deed.clone(), Arc::clone(&places));
            doing.spawn(async move {
                let _place = places.acquire().await;
                let done = match Client::connect_to(&registry, app, shelf).await {
                    Ok(client) => deed(client).await,
                    Err(error) => Err(error),
                };
                (found, done)
            });
        }
        while let Some(done) = doing.join_next().await {
            // The task does not panic and is not cancelled.
            let Ok((found, done)) = done else { continue };
            let pgid = told.groups.pgid(found.at).unwrap_or_default();
            match done {
                Ok(()) => told.found.push(found),
                Err(error) if ended_meanwhile(&error) => tracing::debug!(pgid, %error, "it has ended"),
                Err(error) => told.troubles.push((pgid, error.to_failure())),
            }
        }
        told.found.sort_by_key(|found| found.at);
        told.troubles.sort_by_key(|(pgid, _)| *pgid);
        told
    }
}

/// Answers a query for these groups.
fn tell(listing: GroupListing, query: &Query) -> Told {
    let mut told = Told { silent: listing.silent, ..Told::default() };
    for (facts, shelf) in listing.groups {
        match told.groups.push(&facts) {
            Ok(()) if shelf == Shelf::Kept || facts.state == AppState::Ended => {
                told.kept.insert(facts.pgid);
            }
            Ok(()) => {}
            Err(why) => {
                tracing::warn!(app = %facts.app, why, "its frontend reports an impossible state");
                told.silent.push(facts.app);
            }
        }
    }
    told.found = find(&told.groups, query).found;
    told
}

fn pgids(told: &Told) -> impl Iterator<Item = u32> {
    told.found.iter().filter_map(|found| told.groups.pgid(found.at))
}

/// Splits the matching groups by a condition.
fn split(told: &Told, is_so: impl Fn(&Told, u32) -> bool) -> (Vec<Found>, Vec<Found>) {
    told.found.iter().partition(|found| told.groups.pgid(found.at).is_some_and(|pgid| is_so(told, pgid)))
}

fn ended_meanwhile(error: &Error) -> bool {
    matches!(error, Error::UnknownApp { .. }) || matches!(error.kind(), Kind::Gone | Kind::Lost)
}

/// The end of an app. None: it was gone before, or its tool detached from it.
async fn wait_for(registry: &Registry, app: AppId) -> Result<Option<Exit>> {
    let waited = match Client::connect(registry, app).await {
        Ok(client) => client.wait().await,
        Err(error) => Err(error),
    };
    match waited {
        Ok(exit) => Ok(Some(exit)),
        Err(error) if ended_meanwhile(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Marks a group as ended.
fn end(group: &mut GroupFacts, exit: Option<Exit>) {
    group.state = AppState::Ended;
    if let Some(exit) = exit {
        group.exit_code = Some(exit.code.unsigned_abs());
        group.runs.iter_mut().filter(|run| run.state != StateName::Lost).for_each(|run| {
            run.state = StateName::Exited;
        });
    }
}

fn unsupported(message: &str, hint: &str) -> Error {
    let failure = Failure::new(Kind::Unsupported, message).with_hint(hint);
    Error::Node { hosts: Vec::new(), failure }
}
