//! `gantry ps`.

use std::time::Duration;

use gantry_frontend::control::{Registry, list};
use gantry_wlm::host::Machine;

use super::say;
use crate::exit::{self, Outcome};
use crate::view::{self, json, table};

/// How long a frontend may take to answer; one that is stopped must not hide the others.
const DEADLINE: Duration = Duration::from_secs(5);

pub(super) async fn run(json: bool) -> Outcome {
    let listing = list(&Registry::open(None, &Machine)?, DEADLINE).await?;
    match json {
        true => say(&json::line(&listing.apps))?,
        false => say(&table::build_app_table(&listing.apps, view::colours(&std::io::stdout())))?,
    }
    for app in listing.silent {
        view::note(&format!("the frontend of app {app} gives no answer"));
    }
    Ok(exit::SUCCESS)
}
