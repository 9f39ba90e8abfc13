//! The target of a look: a running program, one that is launched for it, or another tool's app.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::time::Duration;

use gantry_frontend::control::{Client, Registry};
use gantry_frontend::event::{Exit, RankInfo, StateName};
use gantry_frontend::info::{AppInfo, DaemonInfo};
use gantry_frontend::{App, AppHandle, Frontend};
use gantry_stack::DAEMON;
use gantry_stack::load::{HostLoad, Load, digits_for};
use gantry_stack::motion::Motion;
use gantry_stack::orders::Orders;
use gantry_stack::tags;
use gantry_types::error::{Failure, Kind};
use gantry_types::filter::PrefixTree;
use gantry_types::id::{AppId, Rank};
use gantry_types::rank_set::RankSet;
use gantry_types::signal::Signal;

use super::interrupts::Interrupts;
use super::queue::note_waits;
use super::{app_of_process, close, doubt_about, reach};
use crate::args::Look;
use crate::exit::{Fault, Outcome};
use crate::stack::classes::build_classes;
use crate::stack::daemons::{Daemons, Missing, Silent, add_nameless, timeout_after};
use crate::stack::report::Findings;
use crate::stack::resolve::Resolver;
use crate::stack::stillness::Stillness;
use crate::stack::tree::ranks_text;
use crate::view;

/// The most code addresses in one request to the nodes. It is small enough for a single message: unlike bulk data, that
/// reaches the others when a node does not answer.
const MOST_PLACES: usize = 800;

/// The most letters of a set of ranks in a message.
const MOST_RANKS: usize = 60;

/// Daemons beside the ranks of an app, and the knowledge about both.
pub(super) struct Looking {
    owner: Owner,
    daemons: Daemons,
    ranks: Vec<RankInfo>,
    resolver: Resolver,
    /// The daemons' last answer.
    tree: PrefixTree,
    /// Ranks have no daemon.
    lacks_daemon: bool,
    timeout: Duration,
    /// Daemons have not answered the last time.
    were_missing: bool,
}

/// An app, and what acts on it.
pub(super) struct Owner {
    /// The app, if this process owns it.
    app: Option<App>,
    hand: Hand,
}

/// Resource use of ranks and nodes.
#[derive(Debug)]
pub(super) struct Loads {
    pub(super) ranks: Vec<(Load, RankSet)>,
    /// Each node is represented by its first rank.
    pub(super) machines: Vec<(HostLoad, RankSet)>,
    pub(super) missing: Missing,
}

/// A handle to act on the app.
#[derive(Debug, Clone)]
pub(super) struct Hand {
    way: Way,
    timeout: Duration,
}

/// The way to an app.
#[derive(Debug, Clone)]
enum Way {
    /// This process owns it.
    Own(AppHandle),
    /// Another tool owns it. Its control socket reaches the app.
    Other(Registry, AppId),
}

impl Hand {
    /// The app's current state.
    pub(super) async fn info(&self) -> Result<AppInfo, Fault> {
        match &self.way {
            Way::Own(app) => Ok(app.info()),
            Way::Other(registry, app) => {
                Ok(Client::connect(registry, *app).await?.info(self.timeout).await?)
            }
        }
    }

    /// Sends a signal to ranks. None: to all of them.
    pub(super) async fn signal(&self, signal: Signal, ranks: Option<&RankSet>) -> Result<(), Fault> {
        match &self.way {
            Way::Own(app) => app.signal(signal, ranks, self.timeout).await?,
            Way::Other(registry, app) => {
                Client::connect(registry, *app).await?.signal(signal, ranks, self.timeout).await?;
            }
        }
        Ok(())
    }

    /// Releases all ranks that are held before their first instruction.
    pub(super) async fn release(&self) -> Result<(), Fault> {
        match &self.way {
            Way::Own(app) => app.release(self.timeout).await?,
            Way::Other(registry, app) => {
                Client::connect(registry, *app).await?.release(self.timeout).await?;
            }
        }
        Ok(())
    }

    /// Waits until all ranks have ended. Fails when the owning tool disappears before.
    pub(super) async fn end(self) -> Result<(), Fault> {
        self.exit().await.map(drop)
    }

    /// As [`end`](Self::end), and returns how the ranks ended.
    pub(super) async fn exit(self) -> Result<Exit, Fault> {
        match &self.way {
            Way::Own(app) => Ok(app.wait().await?),
            Way::Other(registry, app) => Ok(Client::connect(registry, *app).await?.wait().await?),
        }
    }
}

impl Looking {
    /// Starts the daemons beside a running target. They execute `orders` at once.
    pub(super) async fn at(
        target: &str,
        reach_args: &[OsString],
        orders: &Orders,
        look: &Look,
    ) -> Result<Self, Fault> {
        let frontend = Frontend::new(look.hosts.config(look.wlm.as_ref(), reach_args.to_vec()));
        let owner =
            Owner::reach(&frontend, target, look.waiting(), look.timeout, |doubt| view::note(&doubt)).await?;
        Self::of(owner, orders, look.timeout).await
    }

    /// Starts the daemons beside the ranks of an app of this process.
    pub(super) async fn at_app(app: App, orders: &Orders, timeout: Duration) -> Result<Self, Fault> {
        Self::of(Owner::own(app, timeout), orders, timeout).await
    }

    async fn of(owner: Owner, orders: &Orders, timeout: Duration) -> Result<Self, Fault> {
        let ranks = owner.hand().info().await?.ranks;
        let all: RankSet = ranks.iter().map(|rank| rank.rank).collect();
        let strange = orders.ranks.as_ref().map(|wanted| wanted.difference(&all)).unwrap_or_default();
        if !strange.is_empty() {
            let text = format!(
                "there is no rank {}: the ranks are {}",
                ranks_text(&strange, MOST_RANKS),
                ranks_text(&all, MOST_RANKS)
            );
            match orders.ranks.as_ref().is_some_and(|wanted| wanted.len() > strange.len()) {
                // The other ranks exist.
                true => view::note(&text),
                false => return Err(Fault(Failure::new(Kind::Invalid, text))),
            }
        }
        let daemons =
            owner.start_daemons(DAEMON, orders.to_string().into(), Silent::LeaveOut, timeout).await?;
        Ok(Self::new(owner, daemons, ranks, timeout))
    }

    fn new(owner: Owner, daemons: Daemons, ranks: Vec<RankInfo>, timeout: Duration) -> Self {
        let (resolver, tree) = (Resolver::default(), PrefixTree::new());
        Self { owner, daemons, ranks, resolver, tree, lacks_daemon: false, timeout, were_missing: false }
    }

    /// Starts other daemons in the place of those that run. They execute `orders` at once.
    pub(super) async fn start_anew(&mut self, orders: &Orders) -> Result<(), Fault> {
        let orders = orders.to_string().into();
        self.daemons = self.owner.start_daemons(DAEMON, orders, Silent::LeaveOut, self.timeout).await?;
        self.lacks_daemon = false;
        self.were_missing = false;
        Ok(())
    }

    /// The nodes without a daemon, because they gave no sign of life.
    pub(super) fn left_out(&self) -> &Missing {
        self.daemons.left_out()
    }

    /// The timeout for an answer of all daemons.
    fn patience(&self) -> Duration {
        timeout_after(self.timeout, self.were_missing)
    }

    /// Makes the daemons look again.
    pub(super) async fn again(&mut self, orders: &Orders) -> Result<(), Fault> {
        self.daemons.tell(tags::ORDERS, orders.to_string().as_bytes(), self.timeout).await
    }

    /// Whether the messages that one node has not taken may soon fill the window of all. New daemons clear it.
    pub(super) fn has_backlog(&self) -> bool {
        self.daemons.have_backlog()
    }

    /// The daemons' findings for these orders, which they have received.
    pub(super) async fn findings(&mut self, orders: &Orders, full: bool) -> Result<Findings, Fault> {
        let sampling = orders.every.saturating_mul(orders.samples);
        let stacks = self.daemons.ask(tags::STACKS, self.patience().saturating_add(sampling)).await?;
        self.were_missing = !stacks.missing.is_empty();
        let modules = self.daemons.ask(tags::MODULES, self.patience()).await?;
        let mut missing = self.with_left_out(stacks.missing);
        add_nameless(&mut missing, modules.missing);
        self.resolver.take_modules(&modules.tree);
        let elsewhere = self.resolver.look_up(&stacks.tree, self.timeout).await;
        for places in elsewhere.chunks(MOST_PLACES) {
            let limit = self.patience();
            let request = format!("{}\n{}", limit.as_millis(), places.join("\n"));
            self.daemons.tell(tags::LOOK_UP, request.as_bytes(), self.timeout).await?;
            let found = self.daemons.ask(tags::FOUND, limit).await?;
            self.resolver.take_found(&found.tree);
            // A node that is late now is not waited for as long with the next addresses.
            self.were_missing |= !found.missing.is_empty();
            add_nameless(&mut missing, found.missing);
        }
        let hosts: BTreeMap<Rank, String> =
            self.wanted(orders).map(|rank| (rank.rank, rank.host.clone())).collect();
        let programs: BTreeSet<String> = self.ranks.iter().map(|rank| rank.exe.clone()).collect();
        self.tree = stacks.tree;
        Ok(Findings {
            samples: orders.samples,
            threads: orders.threads,
            hosts,
            programs,
            classes: build_classes(&self.tree, &self.resolver, orders.samples, full),
            missing,
            nameless: self.resolver.nameless(),
        })
    }

    /// Compares the ranks' counters and call paths with those of the last call. Also returns the nodes without an answer.
    pub(super) async fn stillness(&mut self, orders: &Orders) -> Result<(Stillness, Missing), Fault> {
        self.daemons.tell(tags::MOTION_ASKED, b"", self.timeout).await?;
        let (motions, missing) = self.daemons.ask_by(tags::MOTION, Motion::parse, self.patience()).await?;
        let mut found = Stillness::of(&self.tree, &self.resolver, orders.samples, &motions);
        let wanted: RankSet = self.wanted(orders).map(|rank| rank.rank).collect();
        let unseen = wanted.difference(&found.seen());
        self.lacks_daemon = false;
        if !unseen.is_empty() {
            let info = self.hand().info().await?;
            let is_over = |rank: &&RankInfo| matches!(rank.state, StateName::Lost | StateName::Exited);
            let over = info.ranks.iter().filter(is_over).map(|rank| rank.rank).collect();
            found.add_unseen(&unseen, &over);
            let on = |hosts: BTreeSet<&String>| -> RankSet {
                let there = info.ranks.iter().filter(|rank| hosts.contains(&rank.host)).map(|rank| rank.rank);
                there.collect::<RankSet>().intersection(&found.unseen)
            };
            let has_ended = |it: &&DaemonInfo| it.daemon == self.daemons.id() && it.ended;
            let without = on(info.daemons.iter().filter(has_ended).map(|it| &it.host).collect());
            let left_out = on(self.daemons.left_out().iter().map(|(host, _)| host).collect());
            self.lacks_daemon = !(without.is_empty() && left_out.is_empty());
            found.without_daemon = without;
        }
        Ok((found, missing))
    }

    /// Whether ranks had no daemon at the last comparison: it has ended, or their node was left out.
    pub(super) fn lacks_daemon(&self) -> bool {
        self.lacks_daemon
    }

    /// The ranks to look at.
    fn wanted(&self, orders: &Orders) -> impl Iterator<Item = &RankInfo> {
        let ranks = orders.ranks.as_ref();
        self.ranks.iter().filter(move |rank| ranks.is_none_or(|ranks| ranks.contains(rank.rank)))
    }

    /// Resource use of ranks and machines since the last call.
    pub(super) async fn loads(&mut self) -> Result<Loads, Fault> {
        let digits = digits_for(self.ranks.len()).to_string();
        self.daemons.tell(tags::LOAD_ASKED, digits.as_bytes(), self.timeout).await?;
        let (ranks, missing) = self.daemons.ask_by(tags::LOAD, Load::parse, self.patience()).await?;
        self.were_missing = !missing.is_empty();
        let (machines, _missing) = self.daemons.ask_by(tags::HOSTS, HostLoad::parse, self.patience()).await?;
        Ok(Loads { ranks, machines, missing: self.with_left_out(missing) })
    }

    /// All nodes without an answer. `missing` are those of the ones with daemons.
    fn with_left_out(&self, missing: Missing) -> Missing {
        [self.daemons.left_out().clone(), missing].concat()
    }

    /// A handle for code that acts on the app and does not look at it.
    pub(super) fn hand(&self) -> Hand {
        self.owner.hand()
    }

    /// The ranks as they were at the start.
    pub(super) fn ranks(&self) -> &[RankInfo] {
        &self.ranks
    }

    /// Ends what this process started, or leaves what it attached to. Daemons in another tool's app end. Reports the
    /// outcome of the look, rather than that of the end.
    pub(super) async fn close(self, done: Outcome, interrupts: &mut Interrupts) -> Outcome {
        let Self { owner, daemons, .. } = self;
        // The session ends before the app does.
        drop(daemons);
        match owner.into_app() {
            Some(app) => {
                let closed = close(app, interrupts).await;
                done.and_then(|code| closed.map(|()| code))
            }
            None => done,
        }
    }
}

impl Owner {
    /// An app of this process.
    pub(super) fn own(app: App, timeout: Duration) -> Self {
        let hand = Hand { way: Way::Own((*app).clone()), timeout };
        Self { app: Some(app), hand }
    }

    /// Finds the running target: another tool's app, or a job or process to attach to. For a job that has not started
    /// yet, waits as long as `wait` says. `note` gets what the user should know of a target that was attached to.
    pub(super) async fn reach(
        frontend: &Frontend,
        target: &str,
        wait: Option<Duration>,
        timeout: Duration,
        note: impl FnOnce(String),
    ) -> Result<Self, Fault> {
        if let Some(way) = find_app(target).await? {
            return Ok(Self { app: None, hand: Hand { way, timeout } });
        }
        let attached = match wait {
            Some(time) => frontend.attach_with_news(target, note_waits(), time).await,
            None => frontend.attach(target, timeout).await,
        }?;
        doubt_about(target, frontend).map(note);
        Ok(Self::own(attached, timeout))
    }

    /// Starts the named helper beside the ranks.
    pub(super) async fn start_daemons(
        &self,
        name: &str,
        argument: OsString,
        silent: Silent,
        timeout: Duration,
    ) -> Result<Daemons, Fault> {
        match &self.hand.way {
            Way::Own(app) => Daemons::start(app, name, argument, silent, timeout).await,
            Way::Other(registry, app) => {
                let client = Client::connect(registry, *app).await?;
                Daemons::start_in(client, name, argument, silent, timeout).await
            }
        }
    }

    /// A handle to act on the app.
    pub(super) fn hand(&self) -> Hand {
        self.hand.clone()
    }

    /// The app, if this process owns it.
    pub(super) fn app(&self) -> Option<&App> {
        self.app.as_ref()
    }

    /// The app, if this process owns it. Daemons in another tool's app end.
    pub(super) fn into_app(self) -> Option<App> {
        self.app
    }
}

/// The failure of a look. If the app is gone, it says that the ranks have ended: users of a look may not know the app.
pub(super) fn failure_of_look(fault: Fault) -> Fault {
    match fault.0.kind() {
        Kind::Gone => Fault(Failure::new(Kind::Gone, "the ranks have ended while they were read")),
        _ => fault,
    }
}

/// Another tool's app, if the target names one.
async fn find_app(target: &str) -> Result<Option<Way>, Fault> {
    let registry = Registry::open(None)?;
    let app = match Naming::of(target) {
        Naming::App => Some(reach(Some(target)).await?.app()),
        Naming::Number => match app_of_process(&registry, target).await {
            Some(app) => Some(app),
            // It may be an id.
            None if target.parse::<AppId>().is_err() => None,
            None => Client::find(&registry, Some(target)).await.ok().map(|client| client.app()),
        },
        Naming::Job => None,
    };
    Ok(app.map(|app| Way::Other(registry, app)))
}

/// The possible meanings of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Naming {
    /// The id of an app, or its beginning: it has a letter, and none of the signs of jobs and hosts. Or `pid:N`.
    App,
    /// A number: an app, by its process or its id, if there is one. Else a process or a job to attach to.
    Number,
    /// A job or process to attach to.
    Job,
}

impl Naming {
    fn of(target: &str) -> Self {
        let is_plain = !target.is_empty() && target.bytes().all(|letter| letter.is_ascii_alphanumeric());
        let is_number = target.bytes().all(|letter| letter.is_ascii_digit());
        match (is_plain, is_number) {
            _ if target.starts_with("pid:") => Self::App,
            (true, false) => Self::App,
            (true, true) => Self::Number,
            (false, _) => Self::Job,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_app_is_told_from_a_job() {
        let check = |target, expected| assert_eq!(Naming::of(target), expected, "{target}");
        for app in ["7k2m9qxa", "3kx9", "K", "pid:12"] {
            check(app, Naming::App);
        }
        for number in ["23456789", "4711"] {
            check(number, Naming::Number);
        }
        for other in ["", "4711,4712", "1234.0", "1234[1]", "wlm:12", "12.server", "wlm:n1:5", "12+1"] {
            check(other, Naming::Job);
        }
    }
}
