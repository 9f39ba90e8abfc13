//! `gantry why`.

use std::time::Duration;

use gantry_stack::orders::Orders;

use super::interrupts::Interrupts;
use super::look::{Looking, failure_of_look};
use super::notes::Notes;
use super::{say, watch};
use crate::args::Why;
use crate::exit::{self, Fault, Outcome};
use crate::stack::daemons::Missing;
use crate::stack::report::Findings;
use crate::stack::why::{Groups, explain};
use crate::view::{self, Page};

/// Samples per look: enough to see which ranks move.
const SAMPLES: u32 = 4;
const EVERY: Duration = Duration::from_millis(25);

/// The most looks until two consecutive ones agree.
const MOST_LOOKS: usize = 12;

pub(super) async fn run(args: Why, json: bool) -> Outcome {
    let mut interrupts = Interrupts::new()?;
    let orders =
        Orders { samples: SAMPLES, every: EVERY, threads: args.look.threads, ranks: args.look.ranks.clone() };
    let looking = Looking::at(&args.target, &args.rest, &orders, &args.look);
    let mut looking = tokio::select! {
        looking = looking => looking?,
        // The guard detaches from all that was attached by then. For a watch, Ctrl-C is a normal end.
        interrupt = interrupts.next() => return Ok(interrupt.code(args.watch.watch.is_some())),
    };
    if let Some(limit) = args.watch.watch {
        return watch::stay(looking, orders, limit, &args, json, &mut interrupts).await;
    }
    let mut notes = Notes::default();
    let said = tokio::select! {
        settled = settle(&mut looking, &orders, &mut notes, json) => {
            settled.map_err(failure_of_look).and_then(|settled| tell(&settled, &mut notes, json))
        }
        interrupt = interrupts.next() => Ok(interrupt.code(false)),
    };
    looking.close(said, &mut interrupts).await
}

/// The final findings.
struct Settled {
    found: Findings,
    groups: Groups,
    stable: bool,
}

/// Looks until two consecutive looks agree. The notes name nodes without an answer at once: the next looks take time.
async fn settle(
    looking: &mut Looking,
    orders: &Orders,
    notes: &mut Notes,
    json: bool,
) -> Result<Settled, Fault> {
    let mut note = |missing: &Missing| {
        if !json {
            notes.missing(missing);
        }
    };
    note(looking.left_out());
    let mut found = looking.findings(orders, false).await?;
    let mut groups = Groups::new(&found.classes);
    for _ in 1..MOST_LOOKS {
        note(&found.missing);
        looking.again(orders).await?;
        found = looking.findings(orders, false).await?;
        if groups.replace(Groups::new(&found.classes)) {
            return Ok(Settled { found, groups, stable: true });
        }
    }
    Ok(Settled { found, groups, stable: false })
}

fn tell(settled: &Settled, notes: &mut Notes, json: bool) -> Outcome {
    let Settled { found, groups, stable } = settled;
    let explanation = explain(found, groups, *stable);
    let mut page = Page::default();
    match json {
        true => page = Page::json(&explanation),
        false => explanation.sentences.iter().for_each(|sentence| page.add(sentence)),
    }
    say(&page)?;
    if !json {
        notes.gaps(found);
        if !stable {
            view::note("the ranks move: look again, or see 'gantry stack --samples'");
        }
    }
    Ok(exit::SUCCESS)
}
