//! The state of an app, and the one function that changes it.
//!
//! Everything that can happen arrives as a [`Happening`], from any source and in any order. The answer is the events
//! that tools see. Tests need no process, socket or clock.

mod cause;

use std::collections::{BTreeMap, BTreeSet};

use gantry_shared::wire::channel::Member;
use gantry_shared::wire::message::RankReport;
use gantry_shared::wire::mpi::{MpiNote, MpiSubject};
use gantry_types::id::{AppId, DaemonId, NodeId, Pid, Rank, SessionId};
use gantry_types::placement::Placement;
use gantry_types::rank_set::NodeSet;
use gantry_types::status::{ExitStatus, RankEvent, RankState};

use gantry_types::status::EndCause;

use crate::event::{Ending, Event, Exit, MissingHost, RankExit, RankInfo, Staging, StagingEnd, StateName};
use crate::info::{AppInfo, AppState, DaemonInfo};

/// The parts of an app that never change.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) app: AppId,
    pub(crate) wlm: &'static str,
    pub(crate) attached: bool,
    pub(crate) owner: Pid,
    pub(crate) command: Vec<String>,
    /// The WLM's name for the job, if it has one.
    pub(crate) job: Option<String>,
}

/// Something that happened to an app.
#[derive(Debug)]
pub(crate) enum Happening {
    /// Ranks of a node are there.
    RanksThere(Vec<RankReport>),
    /// The release is about to be sent to nodes. From now on a rank may run, and end, before its node reports its
    /// release.
    Releasing,
    /// Held ranks of these nodes were released.
    Released(NodeSet),
    /// The release failed on all or some nodes.
    NotReleased,
    /// A rank ended.
    RankExited(Rank, ExitStatus),
    /// A daemon runs on these nodes.
    DaemonThere(DaemonId, Vec<(NodeId, Pid)>),
    /// A daemon ended.
    DaemonExited(NodeId, DaemonId, ExitStatus),
    /// Files are being sent to the nodes of a session.
    Staging(Staging),
    /// The sending is over, with success or without.
    StagingOver(SessionId, Option<StagingEnd>),
    /// Nodes are out of reach.
    NodesLost(NodeSet, String),
    /// Agents have cleaned up and left, as ordered. Processes whose end was not reported by then ended with them.
    AgentsLeft(NodeSet),
    /// The launcher ended. The second field is what it said about why its ranks were ended.
    LauncherEnded(ExitStatus, Option<EndCause>),
    /// A finding about the app that the tool should know. Later subscribers get it too.
    Found(Event),
    /// The WLM says why it has ended the app.
    EndedBy(EndCause),
    /// The ranks' MPI world has failed, and they are killed. The app's exit code follows from the reason.
    MpiFailed(Rank, i32, String),
    /// The user should know this about the ranks' MPI world.
    MpiNote(MpiNote),
}

/// The state of the launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Launcher {
    /// There is no launcher: agents started the ranks, or they ran before us.
    None,
    Running,
    Ended(ExitStatus),
}

/// How far the release is. The event for it must come before the end of the first released rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Release {
    NotYet,
    Ordered,
    Told,
}

#[derive(Debug, Clone, Copy)]
struct Daemon {
    pid: Pid,
    ended: Option<ExitStatus>,
}

/// The state of an app.
#[derive(Debug)]
pub(crate) struct State {
    identity: Identity,
    placement: Placement,
    ranks: Vec<RankState>,
    over: usize,
    daemons: BTreeMap<(DaemonId, NodeId), Daemon>,
    /// Ends that were reported before the answer to the daemon's start arrived. At most one for each node on which a
    /// daemon was ordered.
    early_ends: BTreeMap<(DaemonId, NodeId), ExitStatus>,
    /// What is being sent, by session: a session sends one thing at a time.
    staging: BTreeMap<SessionId, Staging>,
    lost: NodeSet,
    /// Hosts without which the app started.
    left_out: Vec<MissingHost>,
    /// Findings about the app. Later subscribers get them too.
    findings: Vec<Event>,
    announced: bool,
    release: Release,
    launcher: Launcher,
    /// Why the WLM ended the app, if it did.
    cause: Option<EndCause>,
    /// The exit code after a failure of the MPI world.
    failed: Option<i32>,
    /// Subjects of notes about the MPI world. Many ranks may cause the same note.
    noted: BTreeSet<MpiSubject>,
    exit: Option<Exit>,
}

impl State {
    /// Makes the state of an app whose ranks are not there yet.
    pub(crate) fn new(identity: Identity, placement: Placement) -> Self {
        let ranks = vec![RankState::Starting; placement.rank_count() as usize];
        Self {
            identity,
            placement,
            ranks,
            over: 0,
            daemons: BTreeMap::new(),
            early_ends: BTreeMap::new(),
            staging: BTreeMap::new(),
            lost: NodeSet::new(),
            left_out: Vec::new(),
            findings: Vec::new(),
            announced: false,
            release: Release::NotYet,
            launcher: Launcher::None,
            cause: None,
            failed: None,
            noted: BTreeSet::new(),
            exit: None,
        }
    }

    /// Adds a launcher. The app is then over only when its launcher is too, and has the launcher's exit code.
    pub(crate) fn with_launcher(self) -> Self {
        Self { launcher: Launcher::Running, ..self }
    }

    /// Adds hosts without which the app started. Their nodes in the placement are lost from the beginning.
    pub(crate) fn without(mut self, left_out: Vec<MissingHost>) -> Self {
        let nodes = left_out.iter().filter_map(|it| self.placement.find_host(&it.host)).collect();
        // There are no subscribers yet, and later ones get all of them.
        self.nodes_lost(&nodes, None, &mut Vec::new());
        Self { left_out, ..self }
    }

    /// All nodes that have ever had an agent, including lost ones.
    pub(crate) fn all_nodes(&self) -> NodeSet {
        let without = self.left_out.iter().filter_map(|it| self.placement.find_host(&it.host)).collect();
        NodeSet::first_n(self.placement.node_count()).difference(&without)
    }

    /// The event about the hosts without which the app started, if there are any.
    pub(crate) fn left_out(&self) -> Option<Event> {
        let hosts = self.left_out.clone();
        (!hosts.is_empty()).then_some(Event::HostsLeftOut { app: self.identity.app, hosts })
    }

    /// The findings about the app.
    pub(crate) fn findings(&self) -> &[Event] {
        &self.findings
    }

    /// Whether the app has a launcher that has not ended.
    pub(crate) fn is_launcher_running(&self) -> bool {
        self.launcher == Launcher::Running
    }

    /// Whether the app had a launcher, which has ended.
    pub(crate) fn has_launcher_ended(&self) -> bool {
        matches!(self.launcher, Launcher::Ended(_))
    }

    /// Whether every rank has ended, or is lost.
    pub(crate) fn are_ranks_over(&self) -> bool {
        self.over == self.ranks.len()
    }

    /// A rank that runs and is about to be lost with these nodes, and its host.
    pub(crate) fn find_missed(&self, nodes: &NodeSet) -> Option<(Rank, String)> {
        let runs = |rank: &Rank| self.ranks.get(rank.index()).is_some_and(|state| !state.is_over());
        let mut there =
            nodes.iter().flat_map(|node| self.placement.ranks_on(node).iter().collect::<Vec<_>>());
        let rank = there.find(runs).filter(|_| !self.has_launcher_ended())?;
        Some((rank, self.host(self.placement.get(rank)?.node)))
    }

    /// Applies what happened. No other function changes the state.
    pub(crate) fn handle(&mut self, happening: Happening) -> Vec<Event> {
        let mut events = Vec::new();
        match happening {
            Happening::RanksThere(reports) => self.ranks_there(reports),
            Happening::Releasing if self.release == Release::NotYet => self.release = Release::Ordered,
            Happening::NotReleased if self.release == Release::Ordered => self.release = Release::NotYet,
            Happening::Releasing | Happening::NotReleased => {}
            Happening::Released(nodes) => self.released(&nodes, &mut events),
            Happening::RankExited(rank, status) => self.rank_exited(rank, status, &mut events),
            Happening::DaemonThere(daemon, places) => self.daemon_there(daemon, places, &mut events),
            Happening::DaemonExited(node, daemon, status) => {
                self.daemon_exited(node, daemon, status, &mut events)
            }
            // Agents that a launcher started may end at any time.
            Happening::NodesLost(nodes, reason) => {
                let reason = (!matches!(self.launcher, Launcher::Ended(_))).then_some(reason);
                self.nodes_lost(&nodes, reason, &mut events);
            }
            Happening::Staging(news) => {
                self.staging.insert(news.session, news.clone());
                events.push(Event::Staging(news));
            }
            Happening::StagingOver(session, staged) => {
                self.staging.remove(&session);
                events.extend(staged.map(Event::Staged));
            }
            Happening::AgentsLeft(nodes) => self.nodes_lost(&nodes, None, &mut events),
            Happening::LauncherEnded(status, cause) if self.launcher == Launcher::Running => {
                self.launcher = Launcher::Ended(status);
                if let Some(cause) = cause.filter(|_| status != ExitStatus::Code(0)) {
                    self.ended_by(cause, &mut events);
                }
            }
            Happening::LauncherEnded(..) => {}
            Happening::Found(event) => {
                self.findings.push(event.clone());
                events.push(event);
            }
            Happening::EndedBy(cause) => self.ended_by(cause, &mut events),
            // Further failures only follow from the first one.
            Happening::MpiFailed(rank, code, message) if self.failed.is_none() && self.exit.is_none() => {
                self.failed = Some(code);
                let event = Event::MpiFailed { app: self.identity.app, rank, code, message };
                // Keep it for later subscribers: a rank may fail before the tool subscribes.
                self.findings.push(event.clone());
                events.push(event);
            }
            Happening::MpiFailed(..) => {}
            Happening::MpiNote(note) if self.noted.insert(note.subject) => {
                let event = Event::MpiNote { app: self.identity.app, rank: note.rank, message: note.text };
                self.findings.push(event.clone());
                events.push(event);
            }
            Happening::MpiNote(_) => {}
        }
        if !self.announced && !self.ranks.contains(&RankState::Starting) {
            self.announced = true;
            events.insert(0, self.standing());
        }
        let is_over = self.are_ranks_over() && self.launcher != Launcher::Running;
        if self.exit.is_none() && self.announced && is_over {
            let exit = self.build_exit();
            self.exit = Some(exit.clone());
            events.push(Event::Exited(exit));
        }
        events
    }

    /// The event that describes the app, with its ranks as they are now.
    pub(crate) fn standing(&self) -> Event {
        let (app, wlm, ranks) = (self.identity.app, self.identity.wlm.to_owned(), self.rank_infos());
        if self.identity.attached {
            Event::Attached { app, wlm, ranks }
        } else if self.ranks.contains(&RankState::Held) {
            Event::Held { app, wlm, ranks }
        } else {
            Event::Started { app, wlm, ranks }
        }
    }

    /// The present state of the app.
    pub(crate) fn app_state(&self) -> AppState {
        if self.exit.is_some() {
            AppState::Ended
        } else if self.ranks.contains(&RankState::Starting) {
            AppState::Starting
        } else if self.ranks.contains(&RankState::Held) {
            AppState::Held
        } else {
            AppState::Running
        }
    }

    /// Everything there is to know.
    pub(crate) fn info(&self) -> AppInfo {
        let daemons = self.daemons.iter().map(|((daemon, node), it)| DaemonInfo {
            daemon: *daemon,
            host: self.host(*node),
            pid: it.pid,
            ended: it.ended.is_some(),
            ending: it.ended.map(Ending::from).unwrap_or_default(),
        });
        AppInfo {
            app: self.identity.app,
            wlm: self.identity.wlm.to_owned(),
            state: self.app_state(),
            attached: self.identity.attached,
            owner: self.identity.owner,
            command: self.identity.command.clone(),
            job: self.identity.job.clone(),
            ranks: self.rank_infos(),
            left_out: self.left_out.clone(),
            daemons: daemons.collect(),
            staging: self.staging.values().cloned().collect(),
            exit: self.exit.clone(),
        }
    }

    /// Whether the app ran before gantry attached to it.
    pub(crate) fn is_attached(&self) -> bool {
        self.identity.attached
    }

    /// Where ranks are.
    pub(crate) fn placement(&self) -> &Placement {
        &self.placement
    }

    /// The app's exit, once it has ended.
    pub(crate) fn exit(&self) -> Option<&Exit> {
        self.exit.as_ref()
    }

    /// Whether a daemon is known to have ended on a node.
    pub(crate) fn has_daemon_ended(&self, member: Member) -> bool {
        self.daemons.get(&(member.daemon, member.node)).is_some_and(|it| it.ended.is_some())
    }

    /// How a daemon ended on each of its nodes. None: it still runs somewhere, or is unknown.
    pub(crate) fn daemon_ends(&self, daemon: DaemonId) -> Option<Vec<(NodeId, ExitStatus)>> {
        let of_it = self.daemons.range((daemon, NodeId(0))..=(daemon, NodeId(u32::MAX)));
        let ends: Option<Vec<_>> = of_it.map(|((_, node), it)| Some((*node, it.ended?))).collect();
        ends.filter(|ends| !ends.is_empty())
    }

    /// A node's name.
    pub(crate) fn host(&self, node: NodeId) -> String {
        self.placement.host(node).unwrap_or("?").to_owned()
    }

    /// Names of nodes.
    pub(crate) fn hosts(&self, nodes: &NodeSet) -> Vec<String> {
        nodes.iter().map(|node| self.host(node)).collect()
    }

    /// All nodes that are not lost.
    pub(crate) fn live_nodes(&self) -> NodeSet {
        NodeSet::first_n(self.placement.node_count()).difference(&self.lost)
    }

    /// The `nodes` whose ranks have all ended.
    pub(crate) fn nodes_without_ranks(&self, nodes: &NodeSet) -> NodeSet {
        let is_over = |rank: Rank| self.ranks.get(rank.index()).is_some_and(|state| state.is_over());
        nodes.iter().filter(|node| self.placement.ranks_on(*node).iter().all(is_over)).collect()
    }

    fn rank_infos(&self) -> Vec<RankInfo> {
        let infos = self.placement.iter().zip(&self.ranks).map(|(place, state)| RankInfo {
            rank: place.rank,
            host: place.host.to_owned(),
            pid: place.pid,
            exe: place.exe.to_owned(),
            state: StateName::from(*state),
            ending: state.exit_status().map(Ending::from).unwrap_or_default(),
        });
        infos.collect()
    }

    /// Moves a rank to its next state. An illegal move comes from an outdated report and changes nothing.
    fn step(&mut self, rank: Rank, event: RankEvent) -> bool {
        let Some(state) = self.ranks.get_mut(rank.index()) else { return false };
        match state.next(event) {
            Ok(next) if next != *state => {
                self.over += usize::from(next.is_over());
                self.over -= usize::from(state.is_over());
                *state = next;
                true
            }
            Ok(_) => false,
            Err(old_news) => {
                tracing::debug!(%rank, %old_news, "ignored");
                false
            }
        }
    }

    fn ranks_there(&mut self, reports: Vec<RankReport>) {
        for report in reports {
            let exe = report.exe.to_string_lossy();
            if let Err(error) = self.placement.set_process(report.rank, Some(report.pid), &exe) {
                tracing::warn!(rank = %report.rank, %error, "a report that matches no rank");
                continue;
            }
            let event = if report.held.is_some() { RankEvent::Held } else { RankEvent::Started };
            self.step(report.rank, event);
        }
    }

    fn released(&mut self, nodes: &NodeSet, events: &mut Vec<Event>) {
        let ranks: Vec<Rank> =
            nodes.iter().flat_map(|node| self.placement.ranks_on(node).iter().collect::<Vec<_>>()).collect();
        let mut any = false;
        for rank in ranks {
            if self.ranks.get(rank.index()) == Some(&RankState::Held) {
                any |= self.step(rank, RankEvent::Released);
            }
        }
        if any && !self.ranks.contains(&RankState::Held) {
            self.tell_release(events);
        }
    }

    fn tell_release(&mut self, events: &mut Vec<Event>) {
        if self.release != Release::Told {
            self.release = Release::Told;
            events.push(Event::Released { app: self.identity.app });
        }
    }

    fn rank_exited(&mut self, rank: Rank, status: ExitStatus, events: &mut Vec<Event>) {
        if self.release == Release::Ordered && self.ranks.get(rank.index()) == Some(&RankState::Held) {
            self.tell_release(events);
        }
        if self.step(rank, RankEvent::Exited(status)) {
            events.push(Event::RankExited { app: self.identity.app, rank, status: status.into() });
        }
    }

    fn daemon_there(&mut self, daemon: DaemonId, places: Vec<(NodeId, Pid)>, events: &mut Vec<Event>) {
        let app = self.identity.app;
        for (node, pid) in places {
            self.daemons.insert((daemon, node), Daemon { pid, ended: None });
            events.push(Event::DaemonStarted { app, daemon, host: self.host(node), pid });
            if let Some(status) = self.early_ends.remove(&(daemon, node)) {
                self.daemon_exited(node, daemon, status, events);
            }
        }
    }

    fn daemon_exited(&mut self, node: NodeId, daemon: DaemonId, status: ExitStatus, events: &mut Vec<Event>) {
        match self.daemons.get_mut(&(daemon, node)) {
            Some(it) if it.ended.is_none() => {
                it.ended = Some(status);
                let host = self.host(node);
                events.push(Event::DaemonExited {
                    app: self.identity.app,
                    daemon,
                    host,
                    status: status.into(),
                });
            }
            Some(_) => {}
            None => {
                self.early_ends.insert((daemon, node), status);
            }
        }
    }

    /// Marks nodes as lost. Without a reason the loss is expected, and only its consequences become events.
    fn nodes_lost(&mut self, nodes: &NodeSet, reason: Option<String>, events: &mut Vec<Event>) {
        let fresh = nodes.difference(&self.lost);
        if fresh.is_empty() {
            return;
        }
        self.lost = self.lost.union(&fresh);
        if let Some(reason) = reason {
            events.push(Event::NodesLost { app: self.identity.app, hosts: self.hosts(&fresh), reason });
        }
        for node in fresh.iter() {
            for rank in self.placement.ranks_on(node).iter() {
                self.step(rank, RankEvent::Lost);
            }
        }
        let there: Vec<(DaemonId, NodeId)> =
            self.daemons.keys().filter(|(_, node)| fresh.contains(*node)).copied().collect();
        for (daemon, node) in there {
            self.daemon_exited(node, daemon, ExitStatus::Unknown, events);
        }
    }

    fn build_exit(&self) -> Exit {
        let status = |state: &RankState| state.exit_status().unwrap_or(ExitStatus::Unknown);
        let codes = self.ranks.iter().map(status);
        // It is unknown how a lost rank ended, so an app with lost ranks counts as failed.
        let lost = self.ranks.contains(&RankState::Lost);
        let code = gantry_types::status::overall_code(codes.clone()).map_or(0, i32::from);
        let said = match self.launcher {
            Launcher::Ended(status) => status.code().map(i32::from),
            Launcher::None | Launcher::Running => None,
        };
        let ranks = codes.zip(0..).map(|(status, rank)| RankExit { rank: Rank(rank), status: status.into() });
        Exit {
            app: self.identity.app,
            ranks: ranks.collect(),
            // A launcher only knows that its ranks were killed.
            code: self.failed.or(said).unwrap_or(if lost && code == 0 { 1 } else { code }),
            cause: self.cause.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
