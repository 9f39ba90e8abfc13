//! How the agent gets ranks and daemons: it starts them, a launcher brings them, or it finds them running.

use std::ffi::OsString;

use gantry_shared::wire::backend::build_token;
use gantry_shared::wire::message::{Answer, FlowId, Found, Program, RankReport, Source, Ticket, Word};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::{DaemonId, Pid, Rank, RequestId, SessionId};
use gantry_wlm::host::{Host, Machine};
use gantry_wlm::launcher::dies_with_step;
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::leaving::ending;
use super::{Agent, Claim, Event, Following, START_DEADLINE, TRACED_PAUSE};
use crate::desk;
use crate::ending::Scope;
use crate::pmi::{Upcoming, World};
use crate::pmix;
use crate::process::HeldProof;
use crate::process::alone::new_start;
use crate::process::follow::{Follower, Pattern};
use crate::process::hold::{Hold, StartedRank};
use crate::process::strays::Marker;
use crate::ranks::{self, OurEnds, Ranks};
use crate::rendezvous::{Request, Socket};
use crate::stdio::{self, Input};
use crate::task;

impl Agent {
    /// Serves ranks as long as the agent lives.
    pub(super) fn serve_ranks(&mut self, socket: Socket) {
        self.owed = socket.owed();
        let events = self.events.clone();
        // After the agent has left, the event has no receiver.
        let up = self.up.clone();
        let ask = move |request| match request {
            // These are frequent, and change nothing here.
            Request::Word { link, word } if word != Word::End => up.flow(FlowId::Link(link), word),
            Request::Mpi { rank, socket } => drop(events.send(Event::MpiRank(rank, socket))),
            Request::NotAccepted(error) => drop(events.send(Event::NotAccepted(error))),
            request => drop(events.send(Event::Rendezvous(request))),
        };
        task::spawn(socket.serve(self.view.subscribe(), ask));
    }

    /// Waits for the commands that launchers run after their ranks.
    pub(super) fn receive_collectors(&self, desk: UnixListener) {
        let events = self.events.clone();
        let hurried =
            std::fs::read_to_string("/proc/self/cgroup").is_ok_and(|cgroup| dies_with_step(&cgroup));
        task::spawn_local(desk::receive_collectors(desk, move |collector| {
            // Dropping the collector releases it. After the agent has left, the event has no receiver.
            if hurried {
                drop(events.send(Event::RankCollected(collector)));
            }
        }));
    }

    /// Sets the variables that tell this node's processes their place.
    fn set_node_variables(&self, program: &mut Program) {
        if !self.ticket.node_variables.is_empty() {
            describe_node(program, &self.ticket.node_variables, Machine.environment());
        }
    }

    /// Marks ranks and daemons, so that the agent finds what they start. None if `/proc` does not identify the agent. The
    /// first rank or daemon needs it: an agent that attaches does not.
    fn marker(&self) -> Option<&Marker> {
        let new = || Marker::new(self.ticket.app, std::process::id().cast_signed()).ok();
        self.marker.get_or_init(new).as_ref()
    }

    /// The place of every rank.
    fn place(&self) -> ranks::Place<'_> {
        let Ticket { app, subjob, .. } = self.ticket;
        ranks::Place { app, node: self.node, service: &self.service, subjob, marker: self.marker() }
    }

    pub(super) fn start_ranks(
        &mut self,
        request: Option<RequestId>,
        mut order: gantry_shared::wire::message::StartRanks,
    ) -> Result<(), Failure> {
        for (_, program) in &mut order.programs {
            self.set_node_variables(program);
        }
        let request = request.ok_or_else(|| {
            Failure::new(Kind::Protocol, "ranks are due to start, and no request asks for them")
        })?;
        self.claim_app(Claim::Launched, order.size)?;
        self.started_here = true;
        let mine = order.layout.get(self.node.index());
        let mine: Vec<Rank> = mine.map(|ranks| ranks.iter().collect()).unwrap_or_default();
        let specs = ranks::build_specs(&order, &mine, &self.place(), self.nofile)?;
        self.world = match order.joins {
            true => Upcoming::Told(Vec::new()),
            false => {
                let parts: Vec<_> = order.programs.iter().map(|(ranks, _)| ranks).collect();
                Upcoming::Known(Box::new(World::new(self.name_world(), &order.layout, &parts, &mine)))
            }
        };
        let (mut specs, ends): (Vec<_>, Vec<_>) = specs.into_iter().unzip();
        let hold = if order.hold { Hold::AtEntry } else { Hold::No };
        let job = self.build_pmix(order, mine.is_empty())?;
        let thread = std::rc::Rc::clone(&self.thread);
        self.starting += 1;
        self.later(async move {
            let (server, prepared) = match job.map(|job| pmix::start(job, &thread)) {
                Some(starting) => match starting.await {
                    Ok(server) => {
                        let prepared = server.set_variables(&mut specs, &mine);
                        (Some(server), prepared)
                    }
                    Err(failure) => (None, Err(failure)),
                },
                None => (None, Ok(())),
            };
            let deadline = Instant::now() + START_DEADLINE;
            let result = match prepared {
                Ok(()) => thread.start(specs, hold, deadline).await.map_err(Failure::from),
                Err(failure) => Err(failure),
            };
            Event::RanksStarted(request, mine, ends, result, server)
        });
        Ok(())
    }

    /// What a PMIx server for these ranks needs. `None`: there is none.
    fn build_pmix(
        &self,
        order: gantry_shared::wire::message::StartRanks,
        idle: bool,
    ) -> Result<Option<pmix::Job>, Failure> {
        let Some(server) = order.pmix.filter(|_| !order.joins && !idle) else { return Ok(None) };
        let env = order.programs.first().map(|(_, program)| ranks::build_env(&program.env, &[]));
        Ok(Some(pmix::Job {
            app: self.ticket.app,
            name: self.name_world(),
            node: self.node,
            server,
            layout: order.layout,
            parts: order.programs.into_iter().map(|(ranks, _)| ranks).collect(),
            base: self.ticket.stage_base.clone(),
            env: env.transpose()?.unwrap_or_default(),
        }))
    }

    /// The name of the app's own MPI world.
    fn name_world(&self) -> String {
        format!("gantry_{}", self.ticket.app)
    }

    pub(super) fn take_ranks(
        &mut self,
        ranks: &[Rank],
        ends: Vec<OurEnds>,
        result: Result<Vec<StartedRank>, Failure>,
        server: Option<pmix::Started>,
    ) -> Result<Vec<RankReport>, Failure> {
        self.to_own.extend(server.as_ref().map(|server| server.pid));
        let started = result?;
        let pids: Vec<i32> = started.iter().map(|it| it.process.pid).collect();
        self.to_own.extend(&pids);
        let reports = self.ranks.started(ranks, started)?;
        let served = self.connect_all(ranks.iter().zip(pids), ends, server);
        if self.doomed || self.endings.iter().any(|ending| ending.scope == Scope::All) {
            // The end was ordered during the start.
            self.kill_ranks(None, None);
        }
        served.map(|()| reports)
    }

    /// Connects what the agent has of ranks that have started.
    fn connect_all<'r>(
        &mut self,
        ranks: impl Iterator<Item = (&'r Rank, i32)>,
        ends: Vec<OurEnds>,
        server: Option<pmix::Started>,
    ) -> Result<(), Failure> {
        let mut sockets = Vec::new();
        for ((rank, pid), mut ends) in ranks.zip(ends) {
            sockets.extend(ends.served.take().map(|socket| (*rank, socket)));
            self.connect(Source::Rank(*rank), pid, ends)?;
        }
        self.serve_started(sockets, server)
    }

    /// Connects a process's pipes.
    fn connect(&mut self, source: Source, pid: i32, ends: OurEnds) -> Result<(), Failure> {
        let failed = |error: std::io::Error| crate::failure::from_io("connect a process's pipes", &error);
        if let Some((stdout, stderr)) = ends.output {
            let streams =
                stdio::forward(source, stdout, stderr, &mut self.outputs, &self.up).map_err(failed)?;
            self.streams.insert(pid, streams);
        }
        if let (Some(stdin), Source::Rank(rank)) = (ends.stdin, source) {
            self.stdin.insert(rank, Input::start(rank, stdin, self.up.clone()).map_err(failed)?);
        }
        Ok(())
    }

    /// Takes over ranks. `None`: they are first followed to other programs, and `request` is answered after that.
    pub(super) fn adopt(
        &mut self,
        request: Option<RequestId>,
        order: &gantry_shared::wire::message::AdoptRanks,
    ) -> Result<Option<Vec<RankReport>>, Failure> {
        let mine = ranks::adoption_of(order, self.node.index());
        if order.found == Found::Running {
            self.claim_app(Claim::Attached, order.size)?;
            let reports = self.ranks.found(mine, order.wrapper.as_deref())?;
            self.watch_adopted();
            return Ok(Some(reports));
        }
        self.claim_app(Claim::Launched, order.size)?;
        (self.started_here, self.brought) = (true, true);
        let is_held = matches!(order.found, Found::Held | Found::HeldToRun);
        if let (true, Some(request), Some(pattern)) = (is_held, request, Pattern::of(order)) {
            self.follow(request, mine, pattern, order.found == Found::Held);
            return Ok(None);
        }
        let mut reports = match order.found {
            Found::Waiting => self.ranks.found_waiting(mine)?,
            Found::WaitingToRun => self.ranks.adopt(mine)?,
            Found::Held | Found::HeldToRun | Found::Running => self.ranks.found_held(mine)?,
        };
        self.watch_adopted();
        if order.found == Found::HeldToRun {
            reports.iter_mut().for_each(|report| report.held = None);
            self.ranks.release(false)?;
        }
        Ok(Some(reports))
    }

    /// Lets held ranks go on until each one has executed the wanted program.
    fn follow(&mut self, request: RequestId, ranks: &[(Rank, Pid)], pattern: Pattern, hold: bool) {
        let (ranks, pids): (Vec<Rank>, Vec<i32>) = ranks.iter().map(|(rank, pid)| (*rank, pid.get())).unzip();
        let (until, given_up) = oneshot::channel::<()>();
        self.following = Some(Following { hold, _until: until });
        self.starting += 1;
        self.later(async move {
            let held = async {
                let follower = Follower::start_held(pids, pattern).await?;
                follower.hold(Instant::now() + START_DEADLINE).await
            };
            let result = tokio::select! {
                held = held => held.map_err(Failure::from),
                // Dropping the follower kills the ranks.
                _ = given_up => Err(ending()),
            };
            Event::RanksFollowed(request, ranks, result)
        });
    }

    pub(super) fn take_followed(
        &mut self,
        ranks: &[Rank],
        result: Result<Vec<(i32, HeldProof)>, Failure>,
    ) -> Result<Vec<RankReport>, Failure> {
        let following = self.following.take();
        let (pids, proofs): (Vec<i32>, Vec<HeldProof>) = result?.into_iter().unzip();
        let pairs = ranks.iter().zip(pids).map(|(rank, pid)| Ok((*rank, ranks::to_pid(pid)?)));
        let mut reports = self.ranks.entered(&pairs.collect::<Result<Vec<_>, Failure>>()?, &proofs)?;
        self.watch_adopted();
        match following {
            Some(Following { hold: true, .. }) => {}
            Some(_) => {
                reports.iter_mut().for_each(|report| report.held = None);
                self.ranks.release(false)?;
            }
            // The end was ordered meanwhile.
            None => self.kill_ranks(None, None),
        }
        Ok(reports)
    }

    pub(super) fn seek(
        &mut self,
        order: &gantry_shared::wire::message::SeekRanks,
    ) -> Result<Vec<RankReport>, Failure> {
        let mine = order.layout.get(self.node.index()).cloned().unwrap_or_default();
        let found = crate::seek::find_ranks(&mine, &order.marks)?;
        self.claim_app(Claim::Attached, order.size)?;
        let reports = self.ranks.found(&found, order.wrapper.as_deref())?;
        self.watch_adopted();
        Ok(reports)
    }

    /// Takes ranks that a launcher has brought, as if the agent had started them.
    pub(super) fn take_brought(&mut self, ranks: Ranks, size: u32, hold: bool) -> Result<(), Failure> {
        self.claim_app(Claim::Launched, size)?;
        (self.started_here, self.brought) = (true, true);
        self.ranks = ranks;
        self.watch_adopted();
        self.show();
        if hold { Ok(()) } else { self.ranks.release(false).map(drop) }
    }

    /// Releases held ranks and answers. While one of them is traced, it tries again until that time.
    pub(super) fn release(&mut self, request: Option<RequestId>, until: Instant) {
        self.releasing = Instant::now() < until;
        let released = self.ranks.release(self.releasing);
        if released == Ok(false) {
            // The end of a trace is told to nobody.
            return self.later(async move {
                tokio::time::sleep(TRACED_PAUSE).await;
                Event::ReleaseAgain(request, until)
            });
        }
        self.releasing = false;
        self.look_at_mpi();
        self.answer(request, released.map(|_| Answer::Done));
    }

    /// Carries out an order to release ranks that waits for their tracers: what comes now must find them released.
    ///
    /// # Errors
    /// Held ranks were not released.
    pub(super) fn release_now(&mut self) -> Result<(), Failure> {
        match std::mem::take(&mut self.releasing) {
            true => self.ranks.release(false).map(drop),
            false => Ok(()),
        }
    }

    fn watch_adopted(&self) {
        for (rank, adopted) in self.ranks.adopted() {
            self.later(async move { Event::AdoptedEnded(rank, adopted.ended().await) });
        }
    }

    fn claim_app(&mut self, claim: Claim, size: u32) -> Result<(), Failure> {
        if self.claim != Claim::None {
            return Err(Failure::new(Kind::Protocol, "this agent has its ranks already"));
        }
        self.claim = claim;
        self.size = size;
        Ok(())
    }

    pub(super) fn start_daemon(
        &mut self,
        request: Option<RequestId>,
        mut order: gantry_shared::wire::message::StartDaemon,
    ) -> Result<(), Failure> {
        self.refuse_while_ending()?;
        self.set_node_variables(&mut order.program);
        let (session, daemon) = (order.session, order.daemon);
        let (dirs, socket) = (self.storage.dirs(session)?, self.storage.socket(session)?);
        let loader = self.storage.loader(session);
        let token = build_token(&self.ticket.secret, session, order.daemon);
        let (service, subjob, marker) = (self.service.clone(), self.ticket.subjob, self.marker().cloned());
        let (app, host, node, nofile) = (self.ticket.app, self.ticket.host.clone(), self.node, self.nofile);
        let (starter, pending) = new_start(order.program.program.clone().into());
        let begun = self.storage.in_session(session, move |turn| {
            let site = crate::daemons::site::Site {
                dirs: &dirs,
                loader: loader.as_deref(),
                app,
                node,
                socket: &socket,
                token: &token,
                rendezvous: (&service, subjob),
                marker: marker.as_ref(),
            };
            starter.start(|| turn.and_then(|()| crate::daemons::prepare(order, &site, &host, nofile)));
        });
        begun?;
        // The daemon may connect at once. The agent answers no connection before this function returns, so the view
        // contains the daemon by then.
        self.daemons.expect(daemon, session, pending.batch());
        self.up.channel(|hub| hub.expect(daemon, session));
        self.show();
        self.later(async move {
            let result = pending.wait(Instant::now() + START_DEADLINE).await;
            Event::DaemonStarted(request, session, daemon, result)
        });
        Ok(())
    }

    fn forget_start(&mut self, daemon: DaemonId) {
        self.daemons.forget(daemon);
        self.up.channel(|hub| hub.ended(daemon));
    }

    pub(super) fn take_daemon(
        &mut self,
        request: Option<RequestId>,
        session: SessionId,
        daemon: DaemonId,
        result: Result<(i32, OurEnds), Failure>,
    ) {
        let answer = match result {
            Ok((pid, ends)) => {
                self.to_own.push(pid);
                self.daemons.started(daemon, pid);
                let connected = self.connect(Source::Daemon(daemon), pid, ends);
                connected.and_then(|()| ranks::to_pid(pid)).map(Answer::Daemon)
            }
            Err(failure) => {
                let is_cancelled = self.daemons.is_cancelled(daemon);
                self.forget_start(daemon);
                let is_wanted = self.refuse_while_ending().and_then(|()| self.storage.check(session));
                Err(is_wanted.err().filter(|_| is_cancelled).unwrap_or(failure))
            }
        };
        self.answer(request, answer);
        // If its session was to end meanwhile, this daemon ends with it.
        for scope in self.endings.iter().map(|ending| ending.scope.clone()).collect::<Vec<_>>() {
            self.advance(&scope, false);
        }
    }
}

/// Replaces variables whose names begin like this by those of `own`. What was set for the program stays. An agent that
/// has no such variables, because it was started outside of the job, changes nothing.
fn describe_node(program: &mut Program, beginnings: &[String], mut own: Vec<(OsString, OsString)>) {
    let begins = |(name, _): &(OsString, OsString)| {
        let name = name.as_encoded_bytes();
        beginnings.iter().any(|beginning| name.starts_with(beginning.as_bytes()))
    };
    own.retain(begins);
    if own.is_empty() {
        return;
    }
    let others = program.env.len().saturating_sub(program.chosen as usize);
    let chosen = program.env.split_off(others);
    program.env.retain(|variable| !begins(variable));
    own.retain(|(name, _)| !chosen.iter().any(|(set, _)| set == name));
    program.env.extend(own);
    program.env.extend(chosen);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    #[test]
    fn variables_of_the_node_replace_the_frontends_and_none_that_was_set_for_the_program() {
        let check = |chosen, own: &[(&str, &str)], expected: &[(&str, &str)]| {
            let given =
                env(&[("HOME", "/h"), ("W_NODE", "1"), ("W_TASK", "1"), ("GPUS", "9"), ("W_CPUS", "none")]);
            let (program, args) = (OsString::from("d"), Vec::new());
            let mut program = Program { program, args, env: given, chosen, cwd: None };
            describe_node(&mut program, &["W_".to_owned(), "GPUS".to_owned()], env(own));
            assert_eq!(program.env, env(expected), "{chosen} {own:?}");
        };
        let own = [("W_NODE", "2"), ("GPUS", "0,1"), ("W_CPUS", "all"), ("HOME", "/other")];
        let kept = [("HOME", "/h"), ("W_NODE", "2"), ("GPUS", "9"), ("W_CPUS", "none")];
        check(2, &own, &kept);
        check(0, &own, &[("HOME", "/h"), ("W_NODE", "2"), ("GPUS", "0,1"), ("W_CPUS", "all")]);
        let same = [("HOME", "/h"), ("W_NODE", "1"), ("W_TASK", "1"), ("GPUS", "9"), ("W_CPUS", "none")];
        check(2, &[("HOME", "/other")], &same);
        check(u32::MAX, &own, &same);
    }
}
