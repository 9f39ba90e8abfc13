//! `gantry wlm`.

use gantry_frontend::{Config, Frontend};
use gantry_wlm::detect::detected;
use gantry_wlm::host::Machine;
use serde::Serialize;

use super::say;
use crate::args::Wlm;
use crate::exit::{self, Outcome};
use crate::view::{self, json, table};

#[derive(Serialize)]
struct Report {
    wlm: &'static str,
    why: String,
    known: Vec<Known>,
}

#[derive(Serialize)]
struct Known {
    wlm: &'static str,
    detected: bool,
    evidence: Option<String>,
}

pub(super) fn run(args: Wlm, json: bool) -> Outcome {
    let choice = Frontend::new(Config { wlm: args.wlm, ..Config::default() }).choice()?;
    let known = detected(&Machine).into_iter().map(|(wlm, evidence)| Known {
        wlm: wlm.name(),
        detected: evidence.is_some(),
        evidence: evidence.map(|evidence| evidence.0),
    });
    let report = Report { wlm: choice.wlm.name(), why: choice.why.0, known: known.collect() };
    say(&if json { json::line(&report) } else { for_people(&report) })?;
    Ok(exit::SUCCESS)
}

fn for_people(report: &Report) -> String {
    let row = |known: &Known| {
        let used = if known.wlm == report.wlm { "*" } else { "" };
        let evidence = known.evidence.as_deref().unwrap_or("not detected");
        vec![used.to_owned(), known.wlm.to_owned(), evidence.to_owned()]
    };
    let rows: Vec<_> = report.known.iter().map(row).collect();
    let bold = view::colours(&std::io::stdout());
    let table = table::build_table(&["", "WLM", "EVIDENCE"], &rows, bold);
    format!("{} is used, because {}\n\n{table}", report.wlm, report.why)
}
