//! `gantry why --watch`: watches a job and reports when nothing moves.

use std::time::Duration;

use gantry_stack::orders::Orders;
use gantry_types::rank_set::RankSet;
use serde::Serialize;
use tokio::time::Instant;

use super::child;
use super::interrupts::Interrupts;
use super::look::Looking;
use super::notes::Notes;
use super::say;
use super::starts::{Reasons, not_started};
use crate::args::Why;
use crate::exit::{self, Fault, Outcome};
use crate::stack::daemons::Missing;
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
        explanation: &'n Explanation<'n>,
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
    looking.close(said, interrupts).await
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
    let interval = args.watch.interval(limit);
    let (mut since, mut notes) = (Standstill::default(), Notes::default());
    let mut starts = Reasons::new(interval, limit);
    // The first order came with the daemons.
    let mut pause = None;
    loop {
        let looked = tokio::select! {
            ended = &mut end => return ended.map(|()| Over::Ended),
            looked = look(looking, orders, pause, &mut starts, &mut notes) => looked,
        };
        pause = Some(interval);
        let done = match looked {
            Ok((found, look)) => match since.take(&look, Instant::now(), limit) {
                Step::Nothing => Ok(()),
                Step::Moves => tell(&News::Moves, json),
                // Finish the actions of the user, even if they end the job.
                Step::Stalled(time, doubtful) => {
                    match act(looking, args, time, &doubtful, &found, json).await {
                        Ok(()) if args.watch.exit && doubtful.is_empty() => return Ok(Over::Stalled),
                        done => done,
                    }
                }
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
    starts: &mut Reasons,
    notes: &mut Notes,
) -> Result<(Findings, Looked), Fault> {
    let mut is_new = pause.is_none();
    if let Some(pause) = pause {
        tokio::time::sleep(pause).await;
        is_new = order(looking, orders, starts, notes).await?;
    }
    let found = looking.findings(orders, false).await?;
    let (stillness, missing) = looking.stillness(orders).await?;
    if stillness.unseen.is_empty() {
        starts.all_seen(Instant::now());
    }
    note_unseen(notes, [&found.missing, &missing], &stillness.unseen, looking.lacks_daemon());
    Ok((found, if is_new { Looked::First(stillness.ended) } else { Looked::Compared(stillness) }))
}

/// Gives the next order. Where a node has no daemon or takes no orders, it goes to new daemons: true.
async fn order(
    looking: &mut Looking,
    orders: &Orders,
    starts: &mut Reasons,
    notes: &mut Notes,
) -> Result<bool, Fault> {
    if starts.are_due(looking.lacks_daemon(), looking.has_backlog(), Instant::now()) {
        match looking.start_anew(orders).await {
            Ok(()) => {
                starts.succeeded();
                return Ok(true);
            }
            // The daemons that run go on.
            Err(Fault(failure)) => notes.say(not_started(&failure)),
        }
    }
    looking.again(orders).await.map(|()| false)
}

/// Reports that nothing moves, and runs the actions that the user asked for. Where gantry's own daemon has ended, the ranks
/// may work: beside such `doubtful` ranks, it runs none.
async fn act(
    looking: &Looking,
    args: &Why,
    time: Duration,
    doubtful: &RankSet,
    found: &Findings,
    json: bool,
) -> Result<(), Fault> {
    let groups = Groups::new(&found.classes);
    let explanation = explain(found, &groups, true);
    let report = News::Stalled { seconds: time.as_secs(), explanation: &explanation };
    tell(&report, json)?;
    if !doubtful.is_empty() {
        let ranks = ranks_text(doubtful, MOST_RANKS);
        view::note(&format!("ranks without a daemon may work, so gantry does nothing more: {ranks}"));
        return Ok(());
    }
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
fn note_unseen(notes: &mut Notes, missing: [&Missing; 2], unseen: &RankSet, lacks_daemon: bool) {
    if unseen.is_empty() {
        notes.clear();
        return;
    }
    missing.into_iter().for_each(|missing| notes.missing(missing));
    let (ranks, are) = if unseen.len() == 1 { ("rank", "is") } else { ("ranks", "are") };
    let mut text = format!("{ranks} {} {are} not seen", ranks_text(unseen, MOST_RANKS));
    if lacks_daemon {
        text.push_str(": gantry has no daemon there, and starts its daemons anew, more and more seldom");
    }
    notes.say(text);
}

/// The result of a look.
#[derive(Debug)]
enum Looked {
    /// The first one of daemons: they know of no movement yet. These ranks have ended.
    First(RankSet),
    Compared(Stillness),
}

/// How long no rank that daemons read has moved.
#[derive(Debug, Default)]
struct Standstill {
    /// When a look first saw the state that has not changed since.
    since: Option<Instant>,
    ended: RankSet,
    told: Told,
}

/// What was reported of a stall.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    #[default]
    Nothing,
    /// Ranks had no daemon.
    Doubtful,
    Sure,
}

/// The consequence of a look.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Nothing,
    /// Ranks move again after a reported stall.
    Moves,
    /// For how long, and the ranks whose daemon has ended.
    Stalled(Duration, RankSet),
}

impl Standstill {
    fn take(&mut self, look: &Looked, now: Instant, limit: Duration) -> Step {
        let (ended, compared) = match look {
            Looked::First(ended) => (ended, None),
            Looked::Compared(stillness) => (&stillness.ended, Some(stillness).filter(|it| !it.is_blind())),
        };
        let has_ended = *ended != self.ended;
        self.ended = ended.clone();
        match compared {
            _ if has_ended => self.moves(now),
            Some(stillness) if !stillness.is_still() => self.moves(now),
            Some(stillness) => {
                let time = now.saturating_duration_since(*self.since.get_or_insert(now));
                let doubtful = &stillness.without_daemon;
                let told = if doubtful.is_empty() { Told::Sure } else { Told::Doubtful };
                if time < limit || told <= self.told {
                    return Step::Nothing;
                }
                self.told = told;
                Step::Stalled(time, doubtful.clone())
            }
            // What the ranks do now is unknown.
            None => {
                self.since = Some(now);
                Step::Nothing
            }
        }
    }

    fn moves(&mut self, now: Instant) -> Step {
        self.since = Some(now);
        if std::mem::take(&mut self.told) > Told::Nothing { Step::Moves } else { Step::Nothing }
    }
}

fn build_page(news: &News<'_>, json: bool) -> Page {
    if json {
        return Page::json(news);
    }
    let mut page = Page::default();
    match news {
        News::Stalled { seconds, explanation } => {
            let nothing = match explanation.gaps.not_seen.is_empty() {
                true => "nothing",
                false => "nothing that gantry sees",
            };
            page.add(format_args!("{nothing} has moved for {seconds} s"));
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

    const LIMIT: Duration = Duration::from_secs(10);

    fn look(moved: &str, ended: &str, unseen: &str) -> Looked {
        let [moved, ended, unseen] = [moved, ended, unseen].map(|ranks| ranks.parse().unwrap());
        Looked::Compared(Stillness {
            live: RankSet::first_n(4),
            moved,
            ended,
            unseen,
            ..Stillness::default()
        })
    }

    /// All stand still for so long that it is reported.
    fn stalled() -> Step {
        Step::Stalled(LIMIT, RankSet::new())
    }

    /// Checks the consequences of looks at these seconds.
    fn check(looks: impl IntoIterator<Item = (u64, Looked, Step)>) {
        let (start, mut since) = (Instant::now(), Standstill::default());
        for (seconds, look, expected) in looks {
            let step = since.take(&look, start + Duration::from_secs(seconds), LIMIT);
            assert_eq!(step, expected, "{seconds} {look:?}");
        }
    }

    #[test]
    fn a_standstill_is_told_once_and_its_end_too() {
        let still = || look("", "", "");
        let all_over = Stillness { ended: RankSet::first_n(4), ..Stillness::default() };
        check([
            (0, Looked::First(RankSet::new()), Step::Nothing),
            (5, still(), Step::Nothing),
            (9, look("2", "", ""), Step::Nothing),
            (18, still(), Step::Nothing),
            (19, still(), stalled()),
            (40, still(), Step::Nothing),
            (45, look("1", "", ""), Step::Moves),
            // The end of a rank counts as a move.
            (54, look("", "3", ""), Step::Nothing),
            (60, look("", "3", ""), Step::Nothing),
            (64, look("", "3", ""), stalled()),
            (65, Looked::Compared(all_over), Step::Moves),
        ]);
    }

    #[test]
    fn ranks_that_are_not_seen_end_no_standstill_and_are_none_by_themselves() {
        let still = || look("", "", "");
        check([
            (0, still(), Step::Nothing),
            (10, still(), stalled()),
            (15, look("", "", "3"), Step::Nothing),
            (20, look("", "", "0-3"), Step::Nothing),
            (25, still(), Step::Nothing),
            (30, look("1", "", "3"), Step::Moves),
            // A job is stuck where a node hangs.
            (35, look("", "", "3"), Step::Nothing),
            (40, look("", "", "3"), stalled()),
            (45, look("3", "", ""), Step::Moves),
            // Nothing is known of the job.
            (50, look("", "", "0-3"), Step::Nothing),
            (90, look("", "", "0-3"), Step::Nothing),
            (95, still(), Step::Nothing),
            (100, still(), stalled()),
        ]);
    }

    #[test]
    fn new_daemons_end_no_standstill_that_was_told_and_begin_one_that_was_not() {
        let (still, first) = (|| look("", "", ""), || Looked::First(RankSet::new()));
        check([
            (0, first(), Step::Nothing),
            (8, still(), Step::Nothing),
            (9, first(), Step::Nothing),
            (18, still(), Step::Nothing),
            (19, still(), stalled()),
            (30, first(), Step::Nothing),
            (45, still(), Step::Nothing),
            (46, look("0", "", ""), Step::Moves),
        ]);
    }

    #[test]
    fn a_stall_beside_a_rank_without_a_daemon_is_told_once_more_when_there_is_no_doubt_left() {
        let still = || look("", "", "");
        let one: RankSet = "3".parse().unwrap();
        let doubtful = || match look("", "", "3") {
            Looked::Compared(it) => Looked::Compared(Stillness { without_daemon: one.clone(), ..it }),
            first => first,
        };
        check([
            (0, doubtful(), Step::Nothing),
            (10, doubtful(), Step::Stalled(LIMIT, one.clone())),
            (20, doubtful(), Step::Nothing),
            (21, Looked::First(RankSet::new()), Step::Nothing),
            (22, still(), Step::Nothing),
            (31, still(), stalled()),
            (41, doubtful(), Step::Nothing),
            (42, look("3", "", ""), Step::Moves),
            (52, doubtful(), Step::Stalled(LIMIT, one.clone())),
            (53, Looked::First(RankSet::new()), Step::Nothing),
            (54, look("3", "", ""), Step::Moves),
        ]);
    }
}
