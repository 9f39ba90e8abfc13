//! Process groups for people, for scripts, and in XML.

use std::io;

use gantry_frontend::procgroup::xml::write_answer;
use gantry_frontend::procgroup::{Answer, Columns, GroupAttribute, Query, Told};
use gantry_types::error::{Failure, Kind};
use gantry_types::host_set::fold_hosts;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::{Page, colours, note, print, table, tell_failure};
use crate::exit::{self, Fault, Outcome};

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Table,
    Json,
    Xml,
}

impl Form {
    pub(crate) fn choose(xml: bool, json: bool) -> Self {
        match (xml, json) {
            (true, _) => Self::Xml,
            (false, true) => Self::Json,
            (false, false) => Self::Table,
        }
    }
}

/// Prints groups. Fails if an action on one of them failed.
pub(crate) fn tell(told: Told, query: &Query, form: Form) -> Outcome {
    let page = match form {
        Form::Table => build_table(&told, query),
        Form::Json => Page::json(&Listing(&told)),
        Form::Xml => Page::default(),
    };
    let failed = |e| Fault::io("cannot write to standard output", &e);
    let code = told.troubles.first().map_or(exit::SUCCESS, |(_, failure)| exit::of_kind(failure.kind()));
    if form == Form::Xml {
        let mut text = Vec::new();
        write_answer(&mut text, &Answer::Groups(told)).map_err(failed)?;
        print(&Page::data(String::from_utf8_lossy(&text).into_owned())).map_err(failed)?;
        return Ok(code);
    }
    print(&page).map_err(failed)?;
    for (pgid, failure) in &told.troubles {
        let message = format!("process group {pgid}: {}", failure.message());
        let named = Failure::new(failure.kind(), message);
        tell_failure(&failure.hint().map_or(named.clone(), |hint| named.with_hint(hint)), form == Form::Json);
    }
    for app in &told.silent {
        note(&format!("the frontend of app {app} gives no answer"));
    }
    Ok(code)
}

/// The columns that people always get.
const ALWAYS: [GroupAttribute; 4] =
    [GroupAttribute::Pgid, GroupAttribute::Submitter, GroupAttribute::State, GroupAttribute::Totalprocs];

/// A line for each group, or for each process if the query asks for a column of processes.
pub(crate) fn build_table(told: &Told, query: &Query) -> Page {
    let columns = told.found.iter().fold(Columns::default(), |all, found| all.union(found.columns));
    let others = columns.of_group().filter(|attribute| !ALWAYS.contains(attribute));
    let group: Vec<GroupAttribute> = ALWAYS.into_iter().chain(others).collect();
    let processes: Vec<_> =
        if query.asks_of_processes() { columns.of_process().collect() } else { Vec::new() };
    let mut headings: Vec<String> = group.iter().map(|attribute| attribute.name().to_uppercase()).collect();
    let mut rows = Vec::new();
    for found in &told.found {
        let text = |attribute| told.groups.attribute(found.at, attribute).unwrap_or_default();
        let cells: Vec<String> = group.iter().map(|attribute| text(*attribute)).collect();
        if processes.is_empty() {
            rows.push([cells, vec![fold_hosts(&told.groups.hosts(found.at))]].concat());
            continue;
        }
        for process in told.groups.processes(found.at) {
            let of_it = processes.iter().map(|it| process.attribute(*it).unwrap_or_default().into_owned());
            rows.push(cells.iter().cloned().chain(of_it).collect());
        }
    }
    match processes.is_empty() {
        true => headings.push("HOSTS".to_owned()),
        false => headings.extend(processes.iter().map(|attribute| {
            let name = attribute.name().to_uppercase();
            if headings_has(&group, &name) { format!("P{name}") } else { name }
        })),
    }
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    table::build_table(&headings, &rows, colours(&io::stdout()))
}

fn headings_has(group: &[GroupAttribute], name: &str) -> bool {
    group.iter().any(|attribute| attribute.name().eq_ignore_ascii_case(name))
}

/// A JSON array of groups. Names and values are those of the XML, except for numbers.
struct Listing<'a>(&'a Told);

impl Serialize for Listing<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let groups = self.0.found.iter();
        serializer.collect_seq(groups.map(|found| One { told: self.0, at: found.at, columns: found.columns }))
    }
}

struct One<'a> {
    told: &'a Told,
    at: usize,
    columns: Columns,
}

impl Serialize for One<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for attribute in self.columns.of_group() {
            if let Some(value) = self.told.groups.attribute(self.at, attribute) {
                map.serialize_entry(attribute.name(), &to_json(attribute.is_number(), value))?;
            }
        }
        if self.columns.lists_processes() {
            map.serialize_entry("processes", &Processes(self))?;
        }
        map.end()
    }
}

struct Processes<'a>(&'a One<'a>);

impl Serialize for Processes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let One { told, at, columns } = self.0;
        serializer.collect_seq(told.groups.processes(*at).map(|process| {
            let attributes = columns.of_process().filter_map(|attribute| {
                let value = process.attribute(attribute)?.into_owned();
                Some((attribute.name().to_owned(), to_json(attribute.is_number(), value)))
            });
            serde_json::Value::Object(attributes.collect())
        }))
    }
}

fn to_json(number: bool, value: String) -> serde_json::Value {
    match value.parse::<u32>() {
        Ok(value) if number => value.into(),
        _ => value.into(),
    }
}

impl Fault {
    /// The requested group does not exist.
    pub(crate) fn not_found(message: &str, hint: &str) -> Self {
        Self(Failure::new(Kind::NotFound, message).with_hint(hint))
    }
}
