//! `gantry top`: the state and resource use of ranks, once or on a screen.

mod live;
mod taking;

use std::io::{IsTerminal, stdin, stdout};
use std::time::Duration;

use gantry_stack::orders::Orders;

use self::taking::{figures_of, take};
use super::interrupts::Interrupts;
use super::look::Looking;
use super::notes::Notes;
use super::say;
use crate::args::Top;
use crate::exit::{self, Fault, Outcome};
use crate::top::text::{self, Object};
use crate::view::{self, Page};

/// The interval for measuring processors when the output is printed once.
const MEASURED: Duration = Duration::from_millis(500);

pub(super) async fn run(args: Top, json: bool) -> Outcome {
    let mut interrupts = Interrupts::new()?;
    let orders = Orders { threads: args.look.threads, ranks: args.look.ranks.clone(), ..Orders::default() };
    let looking = Looking::at(&args.target, &args.rest, &orders, &args.look);
    let looking = tokio::select! {
        looking = looking => looking?,
        // The guard detaches from all that was attached by then.
        interrupt = interrupts.next() => return Ok(interrupt.code(true)),
    };
    let has_screen = stdin().is_terminal() && stdout().is_terminal() && view::has_sequences();
    let (looking, done) = match has_screen && !args.once && !json {
        true => live::stay(looking, orders, &args, &mut interrupts).await,
        false => once(looking, &orders, json, &mut interrupts).await,
    };
    match looking {
        Some(looking) => looking.close(done, &mut interrupts).await,
        None => done,
    }
}

/// Prints everything once.
async fn once(
    mut looking: Looking,
    orders: &Orders,
    json: bool,
    interrupts: &mut Interrupts,
) -> (Option<Looking>, Outcome) {
    let print = async {
        let found = looking.findings(orders, false).await?;
        looking.loads().await?;
        tokio::time::sleep(MEASURED).await;
        let loads = looking.loads().await?;
        let mut figures = figures_of(&looking, orders);
        let info = looking.hand().info().await?;
        take(&mut figures, loads, &info);
        say(&match json {
            true => Page::json(&Object::new(&figures, &found)),
            false => text::build(&figures, &found, view::colours(&stdout())),
        })?;
        if !json {
            let mut notes = Notes::default();
            notes.missing(&figures.missing);
            notes.gaps(&found);
        }
        Ok::<(), Fault>(())
    };
    let done = tokio::select! {
        printed = print => printed.map(|()| exit::SUCCESS),
        interrupt = interrupts.next() => Ok(interrupt.code(true)),
    };
    (Some(looking), done)
}
