//! What is looked at: a program that runs, one that is launched for it, or an app of another tool.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::time::Duration;

use gantry_frontend::control::{Client, Registry};
use gantry_frontend::event::RankInfo;
use gantry_frontend::info::AppInfo;
use gantry_frontend::{App, AppHandle, Config, Frontend};
use gantry_stack::DAEMON;
use gantry_stack::load::{HostLoad, Load, digits_for};
use gantry_stack::motion::Motion;
use gantry_stack::orders::Orders;
use gantry_stack::tags;
use gantry_types::filter::PrefixTree;
use gantry_types::id::{AppId, Rank};
use gantry_types::rank_set::RankSet;
use gantry_types::signal::Signal;

use crate::args::Look;
use crate::exit::Fault;
use crate::stack::classes::build_classes;
use crate::stack::daemons::{Daemons, Missing};
use crate::stack::report::Findings;
use crate::stack::resolve::Resolver;
use crate::stack::stillness::Stillness;

/// The most places that nodes are asked for in one message.
const MOST_PLACES: usize = 4000;

/// Daemons beside the ranks of an app, and what is known of both.
pub(super) struct Looking {
    owner: Owner,
    daemons: Daemons,
    ranks: Vec<RankInfo>,
    resolver: Resolver,
    /// What daemons have found last.
    tree: PrefixTree,
    timeout: Duration,
}

/// Who has the app.
pub(super) enum Owner {
    /// We have.
    Own(App),
    /// Another tool, which is reached by its control socket.
    Other(Registry, AppId),
}

/// What ranks and nodes use.
#[derive(Debug)]
pub(super) struct Loads {
    pub(super) ranks: Vec<(Load, RankSet)>,
    /// The first rank of each node stands for it.
    pub(super) machines: Vec<(HostLoad, RankSet)>,
    pub(super) missing: Missing,
}

/// An app that is looked at, to act on it.
#[derive(Debug, Clone)]
pub(super) struct Hand {
    /// It is ours, or
    handle: Option<AppHandle>,
    /// another tool's.
    other: Option<(Registry, AppId)>,
    timeout: Duration,
}

impl Hand {
    async fn client(&self) -> Result<Client, Fault> {
        match &self.other {
            Some((registry, app)) => Ok(Client::connect(registry, *app).await?),
            None => Err(gantry_frontend::Error::Gone { what: "the app".to_owned() }.into()),
        }
    }

    /// What is known of it.
    pub(super) async fn info(&self) -> Result<AppInfo, Fault> {
        match &self.handle {
            Some(handle) => Ok(handle.info()),
            None => Ok(self.client().await?.info(self.timeout).await?),
        }
    }

    /// Sends ranks a signal; none: all of them.
    pub(super) async fn signal(&self, signal: Signal, ranks: Option<&RankSet>) -> Result<(), Fault> {
        match &self.handle {
            Some(handle) => handle.signal(signal, ranks, self.timeout).await?,
            None => self.client().await?.signal(signal, ranks, self.timeout).await?,
        }
        Ok(())
    }

    /// Lets all ranks go that are held before their first instruction.
    pub(super) async fn release(&self) -> Result<(), Fault> {
        match &self.handle {
            Some(handle) => handle.release(self.timeout).await?,
            None => self.client().await?.release(self.timeout).await?,
        }
        Ok(())
    }

    /// Waits until all ranks have ended; an error when the tool that has the app is gone before.
    pub(super) async fn end(self) -> Result<(), Fault> {
        match &self.handle {
            Some(handle) => drop(handle.wait().await?),
            None => drop(self.client().await?.wait().await?),
        }
        Ok(())
    }
}

/// How an app is reached from here.
pub(super) fn frontend(look: &Look, reach_args: Vec<OsString>) -> Frontend {
    let (hosts_policy, send_agent) = (look.hosts.hosts_policy, look.hosts.send_agent);
    Frontend::new(Config { wlm: look.wlm.clone(), hosts_policy, send_agent, reach_args, ..Config::default() })
}

impl Looking {
    /// Starts the daemons beside what runs already. They follow `orders` at once.
    pub(super) async fn at(
        frontend: &Frontend,
        target: &str,
        orders: &Orders,
        timeout: Duration,
    ) -> Result<Self, Fault> {
        let owner = Owner::reach(frontend, target, timeout).await?;
        Self::of(owner, orders, timeout).await
    }

    /// Starts the daemons beside the ranks of an app of ours.
    pub(super) async fn at_app(app: App, orders: &Orders, timeout: Duration) -> Result<Self, Fault> {
        Self::of(Owner::Own(app), orders, timeout).await
    }

    async fn of(owner: Owner, orders: &Orders, timeout: Duration) -> Result<Self, Fault> {
        let daemons = owner.start_daemons(DAEMON, orders.to_string().into(), timeout).await?;
        let ranks = owner.hand(timeout).info().await?.ranks;
        Ok(Self::new(owner, daemons, ranks, timeout))
    }

    fn new(owner: Owner, daemons: Daemons, ranks: Vec<RankInfo>, timeout: Duration) -> Self {
        Self { owner, daemons, ranks, resolver: Resolver::default(), tree: PrefixTree::new(), timeout }
    }

    /// Has the daemons look again.
    pub(super) async fn again(&mut self, orders: &Orders) -> Result<(), Fault> {
        self.daemons.tell(tags::ORDERS, orders.to_string().as_bytes(), self.timeout).await
    }

    /// What the daemons find by these orders, which they have got.
    pub(super) async fn findings(&mut self, orders: &Orders, full: bool) -> Result<Findings, Fault> {
        let timeout = self.timeout.saturating_add(orders.every.saturating_mul(orders.samples));
        let (stacks, modules) = self.daemons.stacks(timeout).await?;
        self.resolver.take_modules(&modules);
        let elsewhere = self.resolver.look_up(&stacks.tree);
        for places in elsewhere.chunks(MOST_PLACES) {
            self.daemons.tell(tags::LOOK_UP, places.join("\n").as_bytes(), self.timeout).await?;
            let found = self.daemons.ask(tags::FOUND, self.timeout).await?;
            self.resolver.take_found(&found.tree);
        }
        let wanted = |rank: &&RankInfo| orders.ranks.as_ref().is_none_or(|ranks| ranks.contains(rank.rank));
        let hosts: BTreeMap<Rank, String> =
            self.ranks.iter().filter(wanted).map(|rank| (rank.rank, rank.host.clone())).collect();
        let programs: BTreeSet<String> = self.ranks.iter().map(|rank| rank.exe.clone()).collect();
        self.tree = stacks.tree;
        Ok(Findings {
            samples: orders.samples,
            threads: orders.threads,
            hosts,
            programs,
            classes: build_classes(&self.tree, &self.resolver, orders.samples, full),
            missing: stacks.missing,
        })
    }

    /// Which ranks have moved since this was asked before, by what they have done and by the last findings.
    pub(super) async fn stillness(&mut self, orders: &Orders) -> Result<Stillness, Fault> {
        self.daemons.tell(tags::MOTION_ASKED, b"", self.timeout).await?;
        let (motions, _missing) = self.daemons.ask_by(tags::MOTION, Motion::parse, self.timeout).await?;
        Ok(Stillness::of(&self.tree, &self.resolver, orders.samples, &motions))
    }

    /// What ranks and their machines use. The time counts from when this was asked before.
    pub(super) async fn loads(&mut self) -> Result<Loads, Fault> {
        let digits = digits_for(self.ranks.len()).to_string();
        self.daemons.tell(tags::LOAD_ASKED, digits.as_bytes(), self.timeout).await?;
        let (ranks, missing) = self.daemons.ask_by(tags::LOAD, Load::parse, self.timeout).await?;
        let (machines, _missing) = self.daemons.ask_by(tags::HOSTS, HostLoad::parse, self.timeout).await?;
        Ok(Loads { ranks, machines, missing })
    }

    /// The app, for who does not look at it.
    pub(super) fn hand(&self) -> Hand {
        self.owner.hand(self.timeout)
    }

    /// The ranks, as they were when it began.
    pub(super) fn ranks(&self) -> &[RankInfo] {
        &self.ranks
    }

    /// The app, where it is ours. Daemons in another tool's app end.
    pub(super) fn into_app(self) -> Option<App> {
        self.owner.into_app()
    }
}

impl Owner {
    /// What runs already: an app of another tool, or what is attached to.
    pub(super) async fn reach(frontend: &Frontend, target: &str, timeout: Duration) -> Result<Self, Fault> {
        let registry = Registry::open(None)?;
        let app = match Naming::of(target) {
            Naming::App => Some(Client::find(&registry, Some(target)).await?.app()),
            Naming::Either => Client::find(&registry, Some(target)).await.ok().map(|client| client.app()),
            Naming::Job => None,
        };
        match app {
            Some(app) => Ok(Self::Other(registry, app)),
            None => Ok(Self::Own(frontend.attach(target, timeout).await?)),
        }
    }

    /// Starts a helper of that name beside the ranks.
    pub(super) async fn start_daemons(
        &self,
        name: &str,
        argument: OsString,
        timeout: Duration,
    ) -> Result<Daemons, Fault> {
        match self {
            Self::Own(app) => Daemons::start(app, name, argument, timeout).await,
            Self::Other(registry, app) => {
                let client = Client::connect(registry, *app).await?;
                Daemons::start_in(client, name, argument, timeout).await
            }
        }
    }

    /// The app, to act on it.
    pub(super) fn hand(&self, timeout: Duration) -> Hand {
        match self {
            Self::Own(app) => Hand { handle: Some((**app).clone()), other: None, timeout },
            Self::Other(registry, app) => {
                Hand { handle: None, other: Some((registry.clone(), *app)), timeout }
            }
        }
    }

    /// The app, where it is ours. Daemons in another tool's app end.
    pub(super) fn into_app(self) -> Option<App> {
        match self {
            Self::Own(app) => Some(app),
            Self::Other(..) => None,
        }
    }
}

/// What a target can mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Naming {
    /// The id of an app, or its beginning: it has a letter, and no sign that jobs and hosts have.
    App,
    /// A number that is as long as an id: an app, if there is one, else a process or a job.
    Either,
    /// Something that is to be attached to.
    Job,
}

impl Naming {
    fn of(target: &str) -> Self {
        let is_plain = !target.is_empty() && target.bytes().all(|letter| letter.is_ascii_alphanumeric());
        let is_number = target.bytes().all(|letter| letter.is_ascii_digit());
        match (is_plain, is_number) {
            (true, false) => Self::App,
            (true, true) if target.parse::<AppId>().is_ok() => Self::Either,
            _ => Self::Job,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_app_is_told_from_a_job() {
        let check = |target, expected| assert_eq!(Naming::of(target), expected, "{target}");
        for app in ["7k2m9qxa", "3kx9", "K"] {
            check(app, Naming::App);
        }
        check("23456789", Naming::Either);
        for other in ["", "4711", "4711,4712", "1234.0", "1234[1]", "wlm:12", "12.server", "wlm:n1:5", "12+1"]
        {
            check(other, Naming::Job);
        }
    }
}
