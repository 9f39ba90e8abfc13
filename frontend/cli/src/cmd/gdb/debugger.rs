//! Executes commands: gives orders to the daemons, waits for the answers, and prints them.

use std::collections::BTreeMap;
use std::future::ready;
use std::time::{Duration, Instant};

use gantry_debug::input::{Input, Line};
use gantry_debug::round::Round;
use gantry_debug::session::Session;
use gantry_frontend::info::AppState;
use gantry_gdb::answer::{Answer, State};
use gantry_gdb::order::{MAX_LINE_BYTES, What};
use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;

use super::super::gdbs::{Gdbs, Said};
use super::super::interrupts::{Interrupt, Interrupts};
use super::super::look::Hand;
use super::super::say;
use super::show;
use crate::args::Gdb;
use crate::exit::Fault;
use crate::stack::daemons::Daemons;
use crate::view::{self, Page};

/// How long daemons wait for their ranks before they report progress. They answer at once when all ranks are done.
const STRIDE: Duration = Duration::from_millis(250);

/// The timeout for ranks to stop after an interrupt.
const STOPPING: Duration = Duration::from_secs(5);

/// The timeout for gdbs to detach from their ranks.
const LEAVING: Duration = Duration::from_secs(10);

/// The result of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Done {
    Well,
    /// It failed for some rank.
    Badly,
    /// The line is invalid.
    Refused(String),
    /// A signal interrupted the command.
    Interrupted(Interrupt),
}

impl Done {
    fn of(interrupted: Option<Interrupt>, has_failed: bool) -> Self {
        match interrupted {
            Some(interrupt) => Self::Interrupted(interrupt),
            None if has_failed => Self::Badly,
            None => Self::Well,
        }
    }
}

/// Why a line is not carried out.
enum Unfulfilled {
    /// The line is invalid.
    Refused(String),
    Fault(Fault),
}

impl From<Fault> for Unfulfilled {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

fn refused(why: impl ToString) -> Unfulfilled {
    Unfulfilled::Refused(why.to_string())
}

/// Prints an error.
pub(super) fn complain(why: &str, json: bool) -> Result<(), Fault> {
    match json {
        true => say(&Page::json(&BTreeMap::from([("error", why)]))),
        false => {
            view::note(why);
            Ok(())
        }
    }
}

/// The debugger of all ranks.
pub(super) struct Debugger {
    hand: Hand,
    gdbs: Gdbs,
    session: Session,
    patience: Duration,
    json: bool,
    is_released: bool,
}

impl Debugger {
    pub(super) fn new(hand: Hand, daemons: Daemons, ranks: RankSet, args: &Gdb, json: bool) -> Self {
        Self {
            gdbs: Gdbs::new(daemons, hand.clone(), ranks.clone(), args.timeout),
            hand,
            session: Session::new(ranks),
            patience: args.patience,
            json,
            is_released: false,
        }
    }

    pub(super) fn hand(&self) -> &Hand {
        &self.hand
    }

    pub(super) fn prompt(&self) -> String {
        self.session.prompt()
    }

    pub(super) fn focus_on(&mut self, set: &str) -> Result<(), Fault> {
        let focused = self.session.set_focus(set).map(drop);
        focused.map_err(|why| Fault::invalid(why.to_string(), "'gantry ps' shows the ranks"))
    }

    /// Prints an error.
    pub(super) fn complain(&self, why: &str) -> Result<(), Fault> {
        complain(why, self.json)
    }

    /// Whether no rank can be asked any more.
    pub(super) fn has_ended(&self) -> bool {
        self.session.end().is_some()
    }

    /// Asks the daemons for the state of all ranks.
    pub(super) async fn look(&mut self) -> Result<(), Fault> {
        self.order(What::Wait { ranks: RankSet::new() }, Duration::ZERO).await.map(drop)
    }

    /// Detaches from all ranks and leaves them in the right state. The end of the daemons does the same, but without
    /// waiting for it.
    pub(super) async fn leave(&mut self) {
        // The end of the session ends gdbs that do not answer.
        drop(self.order(What::Leave, LEAVING).await);
    }

    /// Sends an order and collects the answers of all daemons.
    async fn order(&mut self, what: What, patience: Duration) -> Result<Vec<(Answer, RankSet)>, Fault> {
        let Said { answers, news } = self.gdbs.order(what, patience).await?;
        news.iter().try_for_each(|why| self.complain(why))?;
        self.session.take(&answers);
        Ok(answers)
    }

    /// Executes a line.
    pub(super) async fn carry_out(
        &mut self,
        text: &str,
        line: &Line,
        interrupts: &mut Interrupts,
    ) -> Result<Done, Fault> {
        match self.obey(text, line, interrupts).await {
            Err(Unfulfilled::Refused(why)) => Ok(Done::Refused(why)),
            Err(Unfulfilled::Fault(fault)) => Err(fault),
            Ok(done) => Ok(done),
        }
    }

    async fn obey(
        &mut self,
        text: &str,
        line: &Line,
        interrupts: &mut Interrupts,
    ) -> Result<Done, Unfulfilled> {
        if line.input == Input::Nothing {
            return Ok(Done::Well);
        }
        let asks_nodes = !matches!(
            line.input,
            Input::Help | Input::Focus(_) | Input::Group(_) | Input::Ranks | Input::Quit | Input::Script(_)
        );
        match self.session.end() {
            // The daemons end with their ranks.
            Some(why) if asks_nodes => return Err(refused(why)),
            Some(_) => {}
            // Names of sets refer to the state at this moment.
            None => self.look().await?,
        }
        let meant = self.session.meant(line.set.as_deref()).map_err(refused)?;
        let done = match &line.input {
            Input::Nothing | Input::Quit | Input::Script(_) => Done::Well,
            Input::Help => self.show(show::help())?,
            Input::Focus(None) => self.show(show::set(text, self.session.focus(), self.json))?,
            Input::Focus(Some(set)) => {
                self.session.set_focus(set).map_err(refused)?;
                Done::Well
            }
            Input::Group(None) => self.show(show::names(text, self.session.sets(), self.json))?,
            Input::Group(Some((name, set))) => {
                self.session.sets_mut().name(name, set).map_err(refused)?;
                Done::Well
            }
            Input::Ranks => self.show_standings(text, &meant)?,
            Input::Interrupt => {
                self.order(What::Interrupt { ranks: meant.clone() }, STOPPING).await?;
                self.show_standings(text, &meant)?
            }
            Input::Wait => self.wait(text, &meant, interrupts).await?,
            Input::Raw(rank) => self.show_words(text, *rank).await?,
            Input::Compare { one, other, expression } => {
                let sets = self.session.sets();
                let (one, other) =
                    (sets.resolve(one).map_err(refused)?, sets.resolve(other).map_err(refused)?);
                self.compare(text, &one, &other, expression, interrupts).await?
            }
            Input::RunUntilDifferent(expression) => {
                self.run_until_different(text, meant, expression, interrupts).await?
            }
            Input::Gdb(command) => {
                let (round, interrupted) = self.command(meant, command, interrupts).await?;
                let outcome = round.outcome(command);
                self.session.take_classes(&outcome);
                self.show(show::outcome(text, &outcome, self.json))?;
                Done::of(interrupted, outcome.has_failed())
            }
        };
        Ok(done)
    }

    fn show(&self, page: Page) -> Result<Done, Fault> {
        say(&page).map(|()| Done::Well)
    }

    fn show_standings(&self, text: &str, of: &RankSet) -> Result<Done, Fault> {
        self.show(show::standings(text, &self.session.standings(of), self.json))
    }

    /// Runs a gdb command for some ranks. Waits until all of them are done, or until the others have been running for a
    /// while.
    async fn command(
        &mut self,
        ranks: RankSet,
        command: &str,
        interrupts: &mut Interrupts,
    ) -> Result<(Round, Option<Interrupt>), Unfulfilled> {
        if command.len() > MAX_LINE_BYTES {
            return Err(refused(format!("a command has {MAX_LINE_BYTES} bytes at most")));
        }
        let mut round = Round::new(ranks.clone());
        let mut interrupted = None;
        let what = What::Tell { ranks, line: command.to_owned() };
        let mut answers = self.order(what, STRIDE).await?;
        let mut left = round.pending().len();
        let mut since = Instant::now();
        loop {
            round.take(&answers);
            self.release_if_due().await?;
            let pending = round.pending().clone();
            if pending.is_empty() {
                break;
            }
            if pending.len() < left {
                (left, since) = (pending.len(), Instant::now());
            }
            if left < round.asked().len() && since.elapsed() >= self.patience && self.all_run(&pending) {
                break;
            }
            let interrupt = tokio::select! {
                biased;
                interrupt = interrupts.next() => Some(interrupt),
                () = ready(()) => None,
            };
            let what = match interrupt {
                Some(Interrupt::End(_)) => {
                    interrupted = interrupt;
                    break;
                }
                // After the second Ctrl-C, do not wait any longer.
                Some(Interrupt::Ask) if interrupted.is_some() => break,
                Some(Interrupt::Ask) => {
                    interrupted = interrupt;
                    What::Interrupt { ranks: pending }
                }
                None => What::Wait { ranks: pending },
            };
            answers = self.order(what, STRIDE).await?;
        }
        Ok((round, interrupted))
    }

    /// Whether all these ranks run. Then it is unknown when they will stop.
    fn all_run(&self, ranks: &RankSet) -> bool {
        let running = self.session.sets().resolve("running").unwrap_or_default();
        ranks.difference(&running).is_empty()
    }

    /// Releases the app once all held ranks have continued.
    async fn release_if_due(&mut self) -> Result<(), Fault> {
        if self.is_released || !self.session.all_have_gone_on() {
            return Ok(());
        }
        if self.hand.info().await?.state == AppState::Held {
            self.hand.release().await?;
        }
        self.is_released = true;
        Ok(())
    }

    /// Waits until the ranks are stopped.
    async fn wait(
        &mut self,
        text: &str,
        ranks: &RankSet,
        interrupts: &mut Interrupts,
    ) -> Result<Done, Fault> {
        loop {
            let answers = self.order(What::Wait { ranks: ranks.clone() }, STRIDE).await?;
            let runs = |answer: &Answer| answer.state == State::Running;
            if !answers.iter().any(|(answer, of)| runs(answer) && !of.is_disjoint(ranks)) {
                return self.show_standings(text, ranks);
            }
            let next = tokio::time::timeout(STRIDE, interrupts.next()).await;
            match next {
                Ok(Interrupt::Ask) => {
                    self.order(What::Interrupt { ranks: ranks.clone() }, STOPPING).await?;
                    self.show_standings(text, ranks)?;
                    return Ok(Done::Interrupted(Interrupt::Ask));
                }
                Ok(end) => return Ok(Done::Interrupted(end)),
                Err(_) => {}
            }
        }
    }

    async fn show_words(&mut self, text: &str, rank: Rank) -> Result<Done, Unfulfilled> {
        let (mut from, mut all) = (0, Vec::new());
        let mut forgotten = None;
        loop {
            let Some(piece) = self.gdbs.words(rank, from).await? else {
                return Err(refused(format!("rank {rank} has no gdb: give it a command first")));
            };
            forgotten = forgotten.or(Some(piece.from));
            all.extend_from_slice(&piece.text);
            from = piece.from + piece.text.len() as u64;
            if from >= piece.end || piece.text.is_empty() {
                break;
            }
        }
        Ok(self.show(show::words(text, &all, forgotten.unwrap_or_default(), self.json))?)
    }

    async fn compare(
        &mut self,
        text: &str,
        one: &RankSet,
        other: &RankSet,
        expression: &str,
        interrupts: &mut Interrupts,
    ) -> Result<Done, Unfulfilled> {
        let command = format!("print {expression}");
        let (round, interrupted) = self.command(one.union(other), &command, interrupts).await?;
        let found = round.compare(one, other).map_err(refused)?;
        let outcome = round.outcome(&command);
        self.show(show::comparison(text, &found, &outcome, self.json))?;
        Ok(Done::of(interrupted, outcome.has_failed()))
    }

    /// Continues ranks from stop to stop, until they have different values of an expression. Ends, too, when a rank has
    /// ended or does not stop.
    async fn run_until_different(
        &mut self,
        text: &str,
        ranks: RankSet,
        expression: &str,
        interrupts: &mut Interrupts,
    ) -> Result<Done, Unfulfilled> {
        let print = format!("print {expression}");
        let mut stops = 0_u64;
        loop {
            let (mut round, mut interrupted) = self.command(ranks.clone(), "continue", interrupts).await?;
            let ended = self.session.sets().resolve("ended").unwrap_or_default();
            let has_stopped =
                round.pending().is_empty() && ended.is_disjoint(&ranks) && interrupted.is_none();
            let mut command = "continue";
            if has_stopped {
                stops += 1;
                command = &print;
                (round, interrupted) = self.command(ranks.clone(), command, interrupts).await?;
            }
            let outcome = round.outcome(command);
            let goes_on = has_stopped
                && interrupted.is_none()
                && !outcome.has_failed()
                && !round.has_different_values();
            if !goes_on {
                self.session.take_classes(&outcome);
                self.show(show::outcome_after(text, &outcome, stops, self.json))?;
                return Ok(Done::of(interrupted, outcome.has_failed()));
            }
        }
    }
}
