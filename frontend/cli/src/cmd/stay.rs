//! Stays with an app until it ends: starts its daemons, prints what happens, and takes Enter and signals.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use gantry_frontend::control::{Ended, Registry};
use gantry_frontend::event::{Ending, Event, Exit, RankInfo, StateName};
use gantry_frontend::info::AppState;
use gantry_frontend::{App, AppHandle, DaemonRequest, Events, OutputStream, Session};
use gantry_types::error::{Failure, Kind};
use gantry_types::id::{DaemonId, Rank};
use gantry_types::output::DaemonOutput;
use gantry_types::rank_set::RankSet;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::END;
use super::input::Enter;
use super::interrupts::{Interrupt, Interrupts};
use crate::args::Daemons;
use crate::exit::{self, Fault, Outcome};
use crate::starter::{Debugger, Starter};
use crate::view::{self, Screen, table};
use crate::words::split_words;

/// The timeout for the last output after everything has ended. The reader of a stopped terminal may still want it.
const LAST_OUTPUT: Duration = Duration::from_secs(10);

/// An app that runs for less time than this gets no table, unless the user wants to see its ranks.
const SHORT: Duration = Duration::from_millis(300);

/// At most this many failed ranks are reported one by one.
const MAX_TOLD: u64 = 10;

/// The plan for an app.
pub(super) struct Plan {
    /// Its daemons.
    pub(super) daemons: Vec<DaemonRequest>,
    /// Files for the daemons.
    pub(super) files: crate::args::Files,
    /// Hold until a release. Otherwise the app is released when its daemons run.
    pub(super) hold: bool,
    /// Release the app when its daemons have ended.
    pub(super) for_daemons: bool,
    /// Stay until the last daemon has ended.
    pub(super) linger: bool,
    /// Ctrl-C detaches from the app instead of ending it.
    pub(super) attached: bool,
    /// The timeout for starting daemons and releasing.
    pub(super) timeout: Duration,
    /// Enter releases the app.
    pub(super) enter: Option<Enter>,
    /// A debugger reads the proctable there.
    pub(super) starter: Option<Arc<Starter>>,
}

impl Plan {
    /// A plan from the daemon options of the command line.
    pub(super) fn new(daemons: Daemons, timeout: Duration) -> Result<Self, Fault> {
        let requests = daemons.daemon.iter().map(|command| {
            let words = split_words(command).map_err(|why| {
                Fault::invalid(
                    format!("bad daemon '{}': {why}", command.display()),
                    "quote it as for a shell",
                )
            })?;
            let mut words = words.into_iter();
            let program = words.next().ok_or_else(|| Fault::invalid("an empty daemon", "name a program"))?;
            Ok(DaemonRequest::new(program).args(words).output(DaemonOutput::Forward))
        });
        let requests = requests.collect::<Result<Vec<_>, Fault>>()?;
        let files = daemons.files;
        let some = [&files.file, &files.bin, &files.lib, &files.dir].iter().any(|paths| !paths.is_empty());
        if requests.is_empty() && some {
            return Err(Fault::invalid(
                "files for no daemon",
                "name the daemon that needs them with --daemon",
            ));
        }
        Ok(Self {
            daemons: requests,
            files,
            hold: false,
            for_daemons: false,
            linger: false,
            attached: false,
            timeout,
            enter: None,
            starter: None,
        })
    }

    /// Holds the ranks for a debugger, if there is one. With `releases`, it holds them until the debugger continues.
    /// Returns the source of interrupts.
    pub(super) fn take_debugger(
        &mut self,
        debugger: Option<Debugger>,
        releases: bool,
    ) -> Result<Interrupts, Fault> {
        let Some(Debugger { starter, heard }) = debugger else { return Interrupts::new() };
        if starter.is_debugged() && !self.attached {
            self.hold = true;
            if releases {
                self.enter = Some(Enter::of(heard.releases));
            }
        }
        self.starter = Some(starter);
        Interrupts::relayed(heard.signals)
    }

    /// Whether a debugger shows the held ranks.
    fn is_for_debugger(&self) -> bool {
        self.starter.as_ref().is_some_and(|starter| starter.is_debugged())
    }

    /// Whether the table of ranks appears at once.
    fn shows_ranks(&self) -> bool {
        (self.hold || self.attached) && !self.is_for_debugger()
    }

    /// The delay of the live table.
    fn delay(&self) -> Duration {
        if self.shows_ranks() { Duration::ZERO } else { SHORT }
    }
}

/// Stays until the app has ended and is cleaned up.
pub(super) async fn stay(
    app: App,
    mut plan: Plan,
    screen: Arc<Screen>,
    interrupts: &mut Interrupts,
) -> Outcome {
    let teller = Teller {
        screen: Arc::clone(&screen),
        hold: plan.hold && !plan.is_for_debugger(),
        live: screen.watch((*app).clone(), plan.shows_ranks(), plan.delay()),
        starter: plan.starter.clone(),
        lost: None,
        exit: None,
        told: RankSet::new(),
        own_daemons: None,
        ending: false,
    };
    let mut staying = Staying { events: app.events(), app, teller, printers: JoinSet::new() };
    let mut patience = Patience {
        app: (*staying.app).clone(),
        screen: Arc::clone(&screen),
        attached: plan.attached,
        asked: false,
    };
    let started = {
        let start = staying.start(&mut plan);
        tokio::pin!(start);
        tokio::select! {
            started = &mut start => Ok(started),
            interrupt = patience.next(interrupts) => Err(interrupt),
        }
    };
    let started = match started {
        Ok(started) => started,
        Err(interrupt) => {
            staying.end(interrupts).await;
            return Ok(interrupt.code(plan.attached));
        }
    };
    // The daemons' session lives as long as the app.
    let _session = match started {
        Ok(session) => session,
        Err(fault) => {
            staying.end(interrupts).await;
            return Err(fault);
        }
    };
    if !screen.started(staying.app.id()).await {
        // The starting process has gone without the app's id, so the user could not reach the app.
        staying.end(interrupts).await;
        return Ok(exit::of_signal(libc::SIGHUP));
    }
    let ended_by = staying.follow(&mut plan, &mut patience, interrupts).await;
    let exit = match ended_by {
        Some(_) => staying.end(interrupts).await,
        None => staying.close(interrupts).await,
    };
    match (ended_by, exit) {
        (Some(interrupt), _) => Ok(interrupt.code(plan.attached)),
        (None, Some(exit)) => Ok(exit::of_app(exit.code)),
        (None, None) => Err(Fault(Failure::new(Kind::Lost, "the app's end was not seen"))),
    }
}

struct Staying {
    app: App,
    events: Events,
    teller: Teller,
    printers: JoinSet<()>,
}

impl Staying {
    /// Shows the app's state, starts its daemons, and releases it if it was held only for them.
    async fn start(&mut self, plan: &mut Plan) -> Result<Option<Session>, Fault> {
        if let Some(event) = self.events.next().await {
            self.teller.tell(event);
        }
        let ranks = self.app.take_output();
        self.print(ranks);
        let session = match plan.daemons.is_empty() {
            true => None,
            false => Some(self.start_daemons(plan).await?),
        };
        self.teller.own_daemons.get_or_insert_default();
        if !plan.hold && !plan.attached && session.is_some() {
            self.app.release(plan.timeout).await?;
        }
        // Events up to now belong to the start.
        self.tell_news().await;
        if plan.for_daemons {
            self.teller.screen.note("held until its daemons have ended");
            self.release_after_daemons(plan).await;
        } else if plan.hold && self.app.state() == AppState::Held {
            let enter = match (&plan.enter, plan.is_for_debugger()) {
                (Some(_), true) => "the debugger releases, or",
                (Some(_), false) => "press Enter to release, or",
                (None, _) => "to release",
            };
            self.teller.screen.note(&format!("held: {enter}: gantry release {}", self.app.id()));
        }
        Ok(session)
    }

    /// Reports the events up to now without waiting.
    async fn tell_news(&mut self) {
        while let Ok(Some(event)) = timeout(Duration::ZERO, self.events.next()).await {
            self.teller.tell(event);
        }
    }

    /// Releases the app if it is still held and all its daemons have ended.
    async fn release_after_daemons(&self, plan: &Plan) {
        let info = self.app.info();
        if info.state == AppState::Held
            && info.daemons.iter().all(|daemon| daemon.ended)
            && let Err(error) = self.app.release(plan.timeout).await
        {
            self.teller.screen.failure(&error.to_failure());
        }
    }

    async fn start_daemons(&mut self, plan: &mut Plan) -> Result<Session, Fault> {
        let session = self.app.session(plan.timeout).await?;
        let new_manifest = || {
            let mut manifest = session.manifest();
            plan.files.set_options(&mut manifest);
            manifest
        };
        let mut manifest = new_manifest();
        for path in &plan.files.file {
            manifest.add_file(path)?;
        }
        for path in &plan.files.bin {
            manifest.add_binary(path)?;
        }
        for path in &plan.files.lib {
            manifest.add_library(path)?;
        }
        for path in &plan.files.dir {
            manifest.add_lib_dir(path)?;
        }
        let mut own = BTreeSet::new();
        for request in std::mem::take(&mut plan.daemons) {
            let daemon = self.telling(manifest.exec_daemon(request, plan.timeout)).await?;
            own.insert(daemon.id());
            // Report that a daemon runs before its first output.
            self.tell_news().await;
            self.print(daemon.take_output());
            manifest = new_manifest();
        }
        self.teller.own_daemons = Some(own);
        Ok(session)
    }

    /// Reports events while other work is in progress.
    async fn telling<T>(&mut self, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                Some(event) = self.events.next() => self.teller.tell(event),
            }
        }
    }

    /// Prints output on its own task, so that a slow reader of one stream does not stop the others.
    fn print(&mut self, stream: Option<OutputStream>) {
        if let Some(mut stream) = stream {
            let screen = Arc::clone(&self.teller.screen);
            self.printers.spawn(async move {
                while let Some(output) = stream.next().await {
                    screen.output(&output).await;
                }
            });
        }
    }

    /// Runs until the app is gone or an interrupt asks to leave. Returns that interrupt.
    async fn follow(
        &mut self,
        plan: &mut Plan,
        patience: &mut Patience,
        interrupts: &mut Interrupts,
    ) -> Option<Interrupt> {
        loop {
            if plan.linger && self.is_over() {
                return None;
            }
            tokio::select! {
                event = self.events.next() => match event {
                    Some(event) => {
                        let of_daemon = matches!(event, Event::DaemonExited { .. });
                        if let (Event::Released { .. }, Some(enter)) = (&event, &plan.enter) {
                            enter.released();
                        }
                        self.teller.tell(event);
                        if plan.for_daemons && of_daemon {
                            self.release_after_daemons(plan).await;
                        }
                    }
                    None => return None,
                },
                () = pressed(&mut plan.enter) => {
                    if let Err(error) = self.app.release(plan.timeout).await {
                        self.teller.screen.failure(&error.to_failure());
                    }
                }
                interrupt = patience.next(interrupts) => return Some(interrupt),
            }
        }
    }

    /// Whether all ranks and daemons have ended.
    fn is_over(&self) -> bool {
        let info = self.app.info();
        info.state == AppState::Ended && info.daemons.iter().all(|daemon| daemon.ended)
    }

    /// As `close`, for an app that has not ended by itself.
    async fn end(mut self, interrupts: &mut Interrupts) -> Option<Exit> {
        self.teller.ending = true;
        self.close(interrupts).await
    }

    /// Ends what this command started, waits until all of it is gone, and prints output meanwhile. Another signal skips
    /// the wait: the guard and the agents finish the work.
    async fn close(self, interrupts: &mut Interrupts) -> Option<Exit> {
        let Self { app, mut events, mut teller, mut printers } = self;
        let ending = async {
            let tell_all = async {
                while let Some(event) = events.next().await {
                    teller.tell(event);
                }
            };
            let (closed, ()) = tokio::join!(app.close(END), tell_all);
            let all_printed = async { while printers.join_next().await.is_some() {} };
            // A foreign process may keep an output pipe open for ever.
            drop(timeout(LAST_OUTPUT, all_printed).await);
            closed
        };
        tokio::select! {
            closed = ending => if let Err(error) = closed {
                teller.screen.failure(&error.to_failure());
            },
            _ = interrupts.next() => teller.screen.hurry(),
        }
        teller.screen.flush();
        teller.finish()
    }
}

/// The first Ctrl-C on a launched app shows its state. Only the second one ends it.
struct Patience {
    app: AppHandle,
    screen: Arc<Screen>,
    attached: bool,
    asked: bool,
}

impl Patience {
    /// Waits for an interrupt that counts. Cancel-safe.
    async fn next(&mut self, interrupts: &mut Interrupts) -> Interrupt {
        loop {
            let interrupt = interrupts.next().await;
            if interrupt != Interrupt::Ask || self.asked || self.attached {
                return interrupt;
            }
            self.asked = true;
            let info = self.app.info();
            let living: Vec<_> = info.ranks.iter().filter(|rank| lives(rank)).collect();
            let are_held = living.iter().all(|rank| rank.state == StateName::Held);
            let ranks = match (living.len(), are_held) {
                (1, true) => "rank is held",
                (1, false) => "rank runs",
                (_, true) => "ranks are held",
                (_, false) => "ranks run",
            };
            self.screen.insist(&format!("{} {ranks}; Ctrl-C once more ends all", living.len()));
        }
    }
}

async fn pressed(enter: &mut Option<Enter>) {
    match enter {
        Some(enter) => enter.pressed().await,
        None => std::future::pending().await,
    }
}

fn lives(rank: &RankInfo) -> bool {
    matches!(rank.state, StateName::Starting | StateName::Held | StateName::Running)
}

/// Reports events to people and scripts.
struct Teller {
    screen: Arc<Screen>,
    /// The table of ranks is wanted.
    hold: bool,
    /// The live table exists and refreshes itself.
    live: bool,
    /// A debugger reads the proctable and the cause of a failure there.
    starter: Option<Arc<Starter>>,
    /// The first event of lost output.
    lost: Option<Event>,
    exit: Option<Exit>,
    /// Failed ranks that were reported.
    told: RankSet,
    /// The daemons that this command has started. Other commands tell how theirs end. `None`: it is still starting them.
    own_daemons: Option<BTreeSet<DaemonId>>,
    /// The app ends on request, so failed ranks are not reported.
    ending: bool,
}

impl Teller {
    fn tell(&mut self, event: Event) {
        self.screen.changed();
        log(&event);
        if let Some(starter) = &self.starter {
            starter.hear(&event);
        }
        if let Event::Exited(exit) = event {
            // The last line is printed after all output.
            self.exit = Some(exit);
            return self.record_end();
        }
        if matches!(event, Event::OutputLost { .. }) && self.lost.is_none() {
            self.lost = Some(event.clone());
            self.record_end();
        }
        self.screen.event(&event);
        self.tell_people(&event);
    }

    /// Records the end of an app in the background for `gantry wait`. The app's socket still exists, so a client finds the
    /// socket, the record or both.
    fn record_end(&self) {
        let Some(exit) = self.exit.as_ref().filter(|_| self.screen.is_of_background()) else { return };
        let ended = Ended::new(exit.clone(), self.lost.clone());
        if let Err(error) = Registry::open(None).and_then(|registry| registry.record_end(&ended)) {
            tracing::warn!(%error, "a later 'gantry wait' will not find the app");
        }
    }

    fn tell_people(&mut self, event: &Event) {
        match event {
            Event::Held { ranks, .. } if self.hold => self.show(ranks),
            Event::Attached { ranks, .. } => self.show(ranks),
            Event::Staged(end) => self.screen.note(&view::describe_end(end)),
            Event::Released { .. } if self.hold => self.screen.note("released"),
            Event::RankExited { rank, status, .. } => self.tell_end(*rank, status),
            Event::DaemonExited { daemon, host, status, .. }
                if !is_success(status)
                    && self.own_daemons.as_ref().is_none_or(|own| own.contains(daemon)) =>
            {
                self.screen.note(&format!("daemon {daemon} on {host}: {}", describe(status)));
            }
            Event::HostsLeftOut { hosts, .. } => {
                for missing in hosts {
                    self.screen.note(&format!("without {}: {}", missing.host, missing.reason));
                }
            }
            Event::NodesLost { hosts, reason, .. } => {
                self.screen.note(&format!("lost {}: {reason}", gantry_types::host_set::fold_hosts(hosts)));
            }
            Event::TableDiffers(differs) => self.screen.note(&differs.message),
            Event::MpiNote { message, .. } => self.screen.note(message),
            Event::MpiFailed { message, .. } => {
                self.screen.note(&describe_mpi_failure(message));
                // The ranks' exit status is no news now.
                self.ending = true;
            }
            Event::EndedBy { message, .. } => {
                self.screen.note(&format!("ended by the workload manager: {message}"));
            }
            Event::EventsMissed { count, .. } => {
                self.screen.note(&format!("{count} events were left out: gantry ps shows the app's state"));
            }
            Event::OutputLost { stream, message, .. } => self.screen.output_lost(*stream, message),
            Event::Detached { .. } => self.screen.note("the app continues on its own"),
            Event::Error { kind, message, hint, .. } => {
                self.screen.failure(&Failure::new(*kind, message).with_hint_of(hint.as_ref()));
            }
            // Users of the launcher know that their app runs. The other events need no message.
            _ => {}
        }
    }

    fn show(&self, ranks: &[RankInfo]) {
        if self.live {
            return;
        }
        self.screen.show(table::build_rank_table(ranks, view::colours(&std::io::stderr())));
    }

    /// Reports a failed rank, up to a limit: thousands of lines would say nothing more.
    fn tell_end(&mut self, rank: Rank, status: &Ending) {
        if self.ending || is_success(status) || self.told.contains(rank) {
            return;
        }
        if let Some(starter) = self.starter.as_ref().filter(|_| status.signal.is_some()) {
            starter.fail(&format!("rank {rank}: {}", describe(status)));
        }
        if self.told.len() < MAX_TOLD {
            self.screen.note(&format!("rank {rank}: {}", describe(status)));
        }
        self.told.insert(rank);
    }

    fn finish(mut self) -> Option<Exit> {
        let exit = self.exit.take()?;
        // Ranks that ended before the subscription have no event of their own.
        for rank in &exit.ranks {
            self.tell_end(rank.rank, &rank.status);
        }
        if self.told.len() > MAX_TOLD {
            self.screen.note(&format!("{} ranks ended badly: {}", self.told.len(), self.told));
        }
        self.screen.event(&Event::Exited(exit.clone()));
        Some(exit)
    }
}

/// Logs an event. It names ranks by number only, since there may be a million.
fn log(event: &Event) {
    match event {
        Event::Held { app, ranks, .. } => tracing::debug!(%app, ranks = ranks.len(), "held"),
        Event::Started { app, ranks, .. } => tracing::debug!(%app, ranks = ranks.len(), "started"),
        Event::Attached { app, ranks, .. } => tracing::debug!(%app, ranks = ranks.len(), "attached"),
        Event::Exited(exit) => tracing::debug!(app = %exit.app, code = exit.code, "exited"),
        event => tracing::debug!(?event),
    }
}

fn is_success(status: &Ending) -> bool {
    status.code == Some(0)
}

/// What it means for the app that MPI has failed.
pub(super) fn describe_mpi_failure(message: &str) -> String {
    format!("{message}: all ranks are killed")
}

/// How a process ended, in words.
pub(super) fn describe(status: &Ending) -> String {
    match (status.code, status.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by {signal}"),
        (None, None) => "ended, exit status unknown".to_owned(),
    }
}
