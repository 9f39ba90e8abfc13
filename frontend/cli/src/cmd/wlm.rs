//! `gantry wlm`.

use gantry_frontend::{Config, Frontend, HoldChoice};
use gantry_wlm::host::Machine;
use gantry_wlm::registry::detected;
use serde::Serialize;

use super::say;
use crate::args::Wlm;
use crate::exit::{self, Outcome};
use crate::view::{self, Page, table};

#[derive(Serialize)]
struct Report {
    wlm: &'static str,
    why: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    doubt: Option<String>,
    hold: Hold,
    known: Vec<Known>,
}

/// How ranks would be held, or why that is impossible.
#[derive(Serialize)]
#[serde(untagged)]
enum Hold {
    Choice(HoldChoice),
    Failure { failure: String, hint: Option<String> },
}

#[derive(Serialize)]
struct Known {
    wlm: &'static str,
    detected: bool,
    evidence: Option<String>,
}

pub(super) fn run(args: Wlm, json: bool) -> Outcome {
    let frontend = Frontend::new(Config { wlm: args.wlm, ..Config::default() });
    let choice = frontend.choice()?;
    let hold = match frontend.hold_choice(None) {
        Ok(choice) => Hold::Choice(choice),
        Err(error) => Hold::Failure { failure: error.to_string(), hint: error.hint() },
    };
    let known = detected(&Machine).into_iter().map(|(wlm, evidence)| Known {
        wlm: wlm.name(),
        detected: evidence.is_some(),
        evidence: evidence.map(|evidence| evidence.0),
    });
    let report =
        Report { wlm: choice.wlm, why: choice.why, doubt: choice.doubt, hold, known: known.collect() };
    say(&if json { Page::json(&report) } else { for_people(&report) })?;
    Ok(exit::SUCCESS)
}

fn for_people(report: &Report) -> Page {
    let row = |known: &Known| {
        let used = if known.wlm == report.wlm { "*" } else { "" };
        let evidence = known.evidence.as_deref().unwrap_or("not detected");
        vec![used.to_owned(), known.wlm.to_owned(), evidence.to_owned()]
    };
    let rows: Vec<_> = report.known.iter().map(row).collect();
    let bold = view::colours(&std::io::stdout());
    let table = table::build_table(&["", "WLM", "EVIDENCE"], &rows, bold);
    let hold = match &report.hold {
        Hold::Choice(HoldChoice { method, why }) => format!("ranks are held by '{method}', because {why}"),
        Hold::Failure { failure, hint } => {
            let hint = hint.iter().map(|hint| format!(" ({hint})")).collect::<String>();
            format!("ranks cannot be held: {failure}{hint}")
        }
    };
    let mut page = Page::line(format_args!("{} is used, because {}", report.wlm, report.why));
    report.doubt.iter().for_each(|doubt| page.add(doubt));
    page.add(hold);
    page.add("");
    page.append(&table);
    page
}
