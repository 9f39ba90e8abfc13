//! `gantry ps`.

use std::time::Duration;

use gantry_frontend::control::{Registry, list, sweep_machine};
use gantry_frontend::procgroup::{GroupAttribute, ProcessManager};

use super::say;
use crate::args::Ps;
use crate::exit::{self, Fault, Outcome};
use crate::view::{self, Page, groups, table};

/// The timeout for one frontend's answer. A stopped frontend must not hide the others.
const DEADLINE: Duration = Duration::from_secs(5);

pub(super) async fn run(args: &Ps, json: bool) -> Outcome {
    if !args.query.is_empty() {
        return run_query(args, json).await;
    }
    let listing = list(&Registry::open(None)?, DEADLINE).await?;
    // If all processes of an app were killed at once, its files are still there.
    sweep_machine();
    match json {
        true => say(&Page::json(&listing.apps))?,
        false => say(&table::build_app_table(&listing.apps, view::colours(&std::io::stdout())))?,
    }
    for app in listing.silent {
        view::note(&format!("the frontend of app {app} gives no answer"));
    }
    Ok(exit::SUCCESS)
}

async fn run_query(args: &Ps, json: bool) -> Outcome {
    let query = parse_query(&args.query)?;
    let told = ProcessManager::open(None)?.select(&query).await?;
    groups::tell(told, &query, groups::Form::choose(args.xml, json))
}

/// Parses the words of a command line as a query.
pub(super) fn parse_query(words: &[String]) -> Result<gantry_frontend::procgroup::Query, Fault> {
    let known = GroupAttribute::Pgid.name();
    gantry_frontend::procgroup::text::parse_query(&words.join(" ")).map_err(|error| {
        Fault::invalid(
            format!("bad query: {error}"),
            &format!("write NAME=VALUE, such as {known}=7; see 'gantry ps --help'"),
        )
    })
}
