//! `gantry kill` and `gantry signal`.

use std::io::{self, BufRead, IsTerminal};

use gantry_frontend::Event;
use gantry_frontend::procgroup::text::is_query;
use gantry_frontend::procgroup::{ProcessManager, Told};
use gantry_types::signal::Signal;

use super::ps::parse_query;
use super::{reach, say};
use crate::args::Hit;
use crate::exit::{self, Fault, Outcome};
use crate::view::groups::{self, Form};
use crate::view::{self, Page};

pub(super) async fn run(target: &[String], signal: Signal, hit: &Hit, json: bool) -> Outcome {
    match target {
        words if words.iter().any(|word| is_query(word)) => run_query(words, signal, hit, json).await,
        [app] => run_app(app, signal, hit, json).await,
        _ => Err(Fault::invalid("more than one app", "name one, or write a query: NAME=VALUE")),
    }
}

async fn run_app(app: &str, signal: Signal, hit: &Hit, json: bool) -> Outcome {
    if hit.dry_run || hit.xml {
        return Err(Fault::invalid("--dry-run and --xml are for queries", "write a query: app=ID"));
    }
    let mut client = reach(Some(app)).await?;
    if signal == Signal::KILL && hit.ranks.is_none() {
        let exit = client.kill(hit.patience.timeout).await?;
        client.gone(hit.patience.timeout).await?;
        if json {
            say(&Page::json(&Event::Exited(exit)))?;
        }
    } else {
        client.signal(signal, hit.ranks.as_ref(), hit.patience.timeout).await?;
    }
    Ok(exit::SUCCESS)
}

async fn run_query(words: &[String], signal: Signal, hit: &Hit, json: bool) -> Outcome {
    if hit.ranks.is_some() {
        return Err(Fault::invalid("--ranks are those of one app", "name the app by its id"));
    }
    let query = parse_query(words)?;
    let form = Form::choose(hit.xml, json);
    let manager = ProcessManager::open(None)?;
    let mut told = manager.select(&query).await?;
    // A group that has ended, and whose record is kept, gets no signal.
    let ended = |told: &Told, at| told.groups.pgid(at).is_some_and(|pgid| told.kept.contains(&pgid));
    told.found = told.found.iter().copied().filter(|found| !ended(&told, found.at)).collect();
    if hit.dry_run {
        return groups::tell(told, &query, form);
    }
    if told.found.is_empty() {
        let fault = Fault::not_found("no process group matches", "'gantry ps' lists your live apps");
        return Err(fault);
    }
    if !hit.yes && form == Form::Table && told.found.len() > 1 && !confirm(&told, &query, signal)? {
        view::note("nothing was done");
        return Ok(exit::SUCCESS);
    }
    let patience = hit.patience.timeout;
    let told = match signal {
        Signal::KILL => manager.kill(told, patience).await,
        signal => manager.signal(told, signal, patience).await,
    };
    groups::tell(told, &query, form)
}

/// Shows the groups and asks for confirmation if there is a terminal.
fn confirm(told: &Told, query: &gantry_frontend::procgroup::Query, signal: Signal) -> Result<bool, Fault> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(true);
    }
    say(&groups::build_table(told, query))?;
    view::ask(&format!("send {signal} to these {} process groups? [y/N] ", told.found.len()));
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map_err(|e| Fault::io("cannot read the answer", &e))?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}
