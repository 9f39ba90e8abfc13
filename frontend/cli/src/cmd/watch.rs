//! `gantry why --watch`: watches a job and reports when nothing moves.

use std::collections::BTreeSet;
use std::time::Duration;

use gantry_stack::orders::Orders;
use gantry_types::rank_set::RankSet;
use serde::Serialize;
use tokio::time::Instant;

use super::child;
use super::interrupts::Interrupts;
use super::look::Looking;
use super::{close, say};
use crate::args::Why;
use crate::exit::{self, Fault, Outcome};
use crate::stack::report::Findings;
use crate::stack::stillness::Stillness;
use crate::stack::tree::ranks_text;
use crate::stack::why::{Explanation, Groups, explain};
use crate::view::{self, Page};

/// How long to wait for the news that the job has ended, after a look at it has failed.
const END_IS_KNOWN: Duration = Duration::from_secs(5);

/// The most letters of a set of ranks.
const MOST_RANKS: usize = 60;

/// The JSON report.
#[derive(Debug, Serialize)]
#[serde(tag = "watch", rename_all = "snake_case")]
enum News<'n> {
    Stalled {
        seconds: u64,
        #[serde(flatten)]
        explanation: &'n Explanation,
    },
    Moves,
    Ended,
}

/// Why watching ended without an error.
enum Over {
    /// The job has ended.
    Ended,
    /// Nothing moves, and the user asked to end then.
    Stalled,
}

/// Looks again and again, until the job ends or an interrupt arrives.
pub(super) async fn stay(
    mut looking: Looking,
    orders: Orders,
    limit: Duration,
    args: &Why,
    json: bool,
    interrupts: &mut Interrupts,
) -> Outcome {
    let end = looking.hand().end();
    let said = tokio::select! {
        over = watch(&mut looking, &orders, limit, args, json, end) => over.and_then(|over| match over {
            Over::Ended => tell(&News::Ended, json).map(|()| exit::SUCCESS),
            Over::Stalled => Ok(exit::STALLED),
        }),
        interrupt = interrupts.next() => Ok(interrupt.code(true)),
    };
    if let Some(app) = looking.into_app() {
        let closed = close(app, interrupts).await;
        return said.and_then(|code| closed.map(|()| code));
    }
    said
}

async fn watch(
    looking: &mut Looking,
    orders: &Orders,
    limit: Duration,
    args: &Why,
    json: bool,
    end: impl Future<Output = Result<(), Fault>>,
) -> Result<Over, Fault> {
    let mut end = Box::pin(end);
    let (mut since, mut notes) = (Standstill::default(), Notes::default());
    // The first order came with the daemons.
    let mut pause = None;
    loop {
        let looked = tokio::select! {
            ended = &mut end => return ended.map(|()| Over::Ended),
            looked = look(looking, orders, pause, &mut notes) => looked,
        };
        pause = Some(args.watch.interval(limit));
        let done = match looked {
            Ok((found, stillness)) => match since.take(&stillness, Instant::now(), limit) {
                Step::Nothing => Ok(()),
                Step::Moves => tell(&News::Moves, json),
                // Finish the actions of the user, even if they end the job.
                Step::Stalled(time) => match act(looking, args, time, &found, json).await {
                    Ok(()) if args.watch.exit => return Ok(Over::Stalled),
                    done => done,
                },
            },
            Err(fault) => Err(fault),
        };
        if let Err(fault) = done {
            // A failed look mostly means that the job has ended.
            let ended = tokio::time::timeout(END_IS_KNOWN, &mut end).await;
            return ended.unwrap_or(Err(fault)).map(|()| Over::Ended);
        }
    }
}

/// Looks once: after a pause and a new order, or at the first order.
async fn look(
    looking: &mut Looking,
    orders: &Orders,
    pause: Option<Duration>,
    notes: &mut Notes,
) -> Result<(Findings, Stillness), Fault> {
    if let Some(pause) = pause {
        tokio::time::sleep(pause).await;
        order(looking, orders, notes).await?;
    }
    let found = looking.findings(orders, false).await?;
    let stillness = looking.stillness(orders).await?;
    notes.take(&found, &stillness.unseen, looking.lacks_daemon());
    Ok((found, stillness))
}

/// Gives the next order. Where a daemon has ended, it goes to new daemons.
async fn order(looking: &mut Looking, orders: &Orders, notes: &mut Notes) -> Result<(), Fault> {
    if looking.lacks_daemon() {
        match looking.start_anew(orders).await {
            Ok(()) => return Ok(()),
            // The daemons on the other nodes go on.
            Err(Fault(failure)) => notes.say(format!("daemons are not started anew: {}", failure.message())),
        }
    }
    looking.again(orders).await
}

/// Reports that nothing moves, and runs the actions that the user asked for.
async fn act(
    looking: &Looking,
    args: &Why,
    time: Duration,
    found: &Findings,
    json: bool,
) -> Result<(), Fault> {
    let explanation = explain(found, &Groups::new(&found.classes), true);
    let report = News::Stalled { seconds: time.as_secs(), explanation: &explanation };
    tell(&report, json)?;
    if let Some(command) = &args.watch.run {
        let odd = explanation.odd_ranks();
        let variables = [
            ("GANTRY_WATCH_TARGET", args.target.clone()),
            ("GANTRY_WATCH_SECONDS", time.as_secs().to_string()),
            ("GANTRY_WATCH_SIZE", found.hosts.len().to_string()),
            ("GANTRY_WATCH_ODD_RANKS", odd.unwrap_or_default().to_owned()),
        ];
        let shell = child::shell(command, &variables);
        let status = child::run_with_input(shell, build_page(&report, json).as_str()).await;
        let status = status.map_err(|error| Fault::io("cannot run /bin/sh", &error))?;
        if !status.success() {
            view::note(&format!("the command of --run ended with {status}"));
        }
    }
    if let Some(signal) = args.watch.signal {
        let ranks: Option<RankSet> = args.look.ranks.clone();
        looking.hand().signal(signal, ranks.as_ref()).await?;
        view::note(&format!("sent {signal} to the ranks"));
    }
    Ok(())
}

/// Notes about ranks that no daemon reads, each of them once until all ranks are read again.
#[derive(Debug, Default)]
struct Notes(BTreeSet<String>);

impl Notes {
    fn take(&mut self, found: &Findings, unseen: &RankSet, lacks_daemon: bool) {
        if unseen.is_empty() {
            self.0.clear();
            return;
        }
        for (host, why) in &found.missing {
            self.say(format!("no answer from {host}: {why}"));
        }
        let ranks = ranks_text(unseen, MOST_RANKS);
        let mut text = match unseen.len() {
            1 => format!("rank {ranks} is not seen, so it counts as moving"),
            _ => format!("ranks {ranks} are not seen, so they count as moving"),
        };
        if lacks_daemon {
            text.push_str("; gantry's daemon has ended there, and is started anew");
        }
        self.say(text);
    }

    fn say(&mut self, text: String) {
        if !self.0.contains(&text) {
            view::note(&text);
            self.0.insert(text);
        }
    }
}

/// How long nothing has moved.
#[derive(Debug, Default)]
struct Standstill {
    /// When a look first saw the state that has not changed since.
    since: Option<Instant>,
    ended: RankSet,
    /// The stall was reported.
    is_told: bool,
}

/// The consequence of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Nothing,
    /// Ranks move again after a reported stall.
    Moves,
    Stalled(Duration),
}

impl Standstill {
    fn take(&mut self, look: &Stillness, now: Instant, limit: Duration) -> Step {
        let is_still = look.is_complete() && look.ended == self.ended;
        self.ended = look.ended.clone();
        if !is_still {
            self.since = Some(now);
            return if std::mem::take(&mut self.is_told) { Step::Moves } else { Step::Nothing };
        }
        let time = now.saturating_duration_since(*self.since.get_or_insert(now));
        if self.is_told || time < limit {
            return Step::Nothing;
        }
        self.is_told = true;
        Step::Stalled(time)
    }
}

fn build_page(news: &News<'_>, json: bool) -> Page {
    if json {
        return Page::json(news);
    }
    let mut page = Page::default();
    match news {
        News::Stalled { seconds, explanation } => {
            page.add(format_args!("nothing has moved for {seconds} s"));
            explanation.sentences.iter().for_each(|sentence| page.add(sentence));
        }
        News::Moves => page.add("ranks move again"),
        News::Ended => page.add("the job has ended"),
    }
    page
}

fn tell(news: &News<'_>, json: bool) -> Result<(), Fault> {
    say(&build_page(news, json))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(moved: &str, ended: &str) -> Stillness {
        let (moved, ended) = (moved.parse().unwrap(), ended.parse().unwrap());
        Stillness { live: RankSet::first_n(4), moved, ended, unseen: RankSet::new() }
    }

    #[test]
    fn a_standstill_is_told_once_and_its_end_too() {
        let (start, limit) = (Instant::now(), Duration::from_secs(10));
        let mut since = Standstill::default();
        let mut check = |seconds, look: Stillness, expected| {
            assert_eq!(since.take(&look, start + Duration::from_secs(seconds), limit), expected, "{seconds}");
        };
        let still = || look("", "");
        check(0, look("0-3", ""), Step::Nothing);
        check(5, still(), Step::Nothing);
        check(9, look("2", ""), Step::Nothing);
        check(18, still(), Step::Nothing);
        check(19, still(), Step::Stalled(Duration::from_secs(10)));
        check(40, still(), Step::Nothing);
        check(45, look("1", ""), Step::Moves);
        // The end of a rank counts as a move.
        check(54, look("", "3"), Step::Nothing);
        check(60, look("", "3"), Step::Nothing);
        check(64, look("", "3"), Step::Stalled(Duration::from_secs(10)));
        // All ranks have ended.
        check(65, Stillness { live: RankSet::new(), ..look("", "3") }, Step::Moves);
    }
}
