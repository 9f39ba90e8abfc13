//! The pages, each from its source.

use std::path::Path;
use std::process::Stdio;

use super::items::{Item, fields, module_doc, variants};
use super::source;
use super::text::{head, prose, without_links};
use crate::Result;

const EVENT: &str = "frontend/src/event.rs";
const INFO: &str = "frontend/src/info.rs";
const PROTOCOL: &str = "frontend/src/control/protocol.rs";

/// Every page by its file's name.
///
/// # Errors
/// A source is not there, or is not as it was.
pub(super) fn all(gantry: &Path) -> Result<[(&'static str, String); 7]> {
    let help = help_of(gantry, &[])?;
    let measured = super::measurements::read()?;
    Ok([
        ("command-line.md", command_line(gantry, &help)?),
        ("events.md", events()?),
        ("control-socket.md", control_socket()?),
        ("exit-codes.md", exit_codes(&help)?),
        ("errors.md", super::errors::page()?),
        ("../performance.md", super::measurements::page(&measured)?),
        ("../performance.svg", super::plot::draw(&measured)),
    ])
}

fn help_of(gantry: &Path, command: &[&str]) -> Result<String> {
    #[expect(clippy::disallowed_methods, reason = "a chore runs programs; no library is near")]
    let mut help = std::process::Command::new(gantry);
    help.args(command).arg("--help").env_remove("COLUMNS");
    // On a terminal, the lines would be as long as the terminal is wide.
    let output = help.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let output = output.map_err(|e| format!("{}: {e}", gantry.display()))?;
    Ok(String::from_utf8(output.stdout)?)
}

/// The names in the list of commands.
fn commands(help: &str) -> Vec<&str> {
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = list
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    lines.filter_map(|line| line.split_whitespace().next()).collect()
}

fn command_line(gantry: &Path, help: &str) -> Result<String> {
    let mut page = head("Command line", "the help of each command");
    page += "`gantry COMMAND --help` prints the same.\n\n";
    page += &format!("## gantry\n\n```text\n{}\n```\n", without_space(help));
    let names = commands(help);
    if names.is_empty() {
        return Err("gantry --help lists no commands".into());
    }
    for name in names {
        page +=
            &format!("\n## gantry {name}\n\n```text\n{}\n```\n", without_space(&help_of(gantry, &[name])?));
    }
    Ok(page)
}

/// The same without spaces at the ends of lines.
fn without_space(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().map(str::trim_end).collect();
    lines.join("\n")
}

fn exit_codes(help: &str) -> Result<String> {
    let (_, text) = help.split_once("Exit codes:").ok_or("gantry --help has no exit codes")?;
    let mut page = head("Exit codes", "`frontend/cli/src/exit.rs`");
    let mut is_table = false;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let code = line.split_once("  ").filter(|(code, _)| code.chars().all(|c| c.is_ascii_digit()));
        match code {
            Some((code, meaning)) => {
                let meaning = quoted(meaning);
                if !std::mem::replace(&mut is_table, true) {
                    page += "\n| code | meaning |\n| ---: | --- |\n";
                }
                page += &format!("| {code} | {meaning} |\n");
            }
            None => page += &format!("{}\n", quoted(line)),
        }
    }
    Ok(page)
}

/// Replaces single quotes by code quotes.
fn quoted(text: &str) -> String {
    let words =
        text.split(' ').map(|word| match word.strip_prefix('\'').and_then(|rest| rest.split_once('\'')) {
            Some((inner, rest)) => format!("`{inner}`{rest}"),
            None => word.to_owned(),
        });
    words.collect::<Vec<_>>().join(" ")
}

fn events() -> Result<String> {
    let text = source::read(EVENT)?;
    let mut page = head("Events", "`frontend/src/event.rs`");
    page += "`gantry launch --json`, `gantry attach --json` and the [control socket](control-socket.md) print one event on each line. Each is a JSON object; \
             the key `event` has its name. Skip names and keys that you do not know.\n\n";
    page += "```json\n{\"event\":\"held\",\"app\":\"7k2m9qxa\",\"wlm\":\"localhost\",\"ranks\":[{\"rank\":0,\"host\":\"n1\",\"pid\":4242,\"exe\":\"/usr/bin/sleep\",\"state\":\"held\"}]}\n```\n";
    for event in variants(&text, "Event")? {
        page += &format!("\n## `{}`\n\n{}\n\n", event.name, prose(&event.doc));
        page += &match event.of.as_str() {
            "" => table(&text, &event.fields)?,
            of => table(&text, &fields(&text, of)?)?,
        };
    }
    page += "\n# Objects in events\n";
    for (name, title) in [
        ("RankInfo", "rank"),
        ("RankExit", "end of a rank"),
        ("MissingHost", "missing host"),
        ("RankDiffers", "rank in two tables"),
    ] {
        page += &format!("\n## {title}\n\n{}", table(&text, &fields(&text, name)?)?);
    }
    page += &words("State of a rank", &variants(&text, "StateName")?, "_");
    page +=
        &words("Cause of an end", &variants(&source::read("shared/types/src/status.rs")?, "CauseKind")?, "_");
    page += &words("Kind of an error", &variants(&source::read("shared/types/src/error.rs")?, "Kind")?, "-");
    Ok(page)
}

fn control_socket() -> Result<String> {
    let text = source::read(PROTOCOL)?;
    let mut page = head("Control socket", "`frontend/src/control/protocol.rs`");
    page += &without_links(&module_doc(&text));
    page += "\n## Keys of `daemon`\n\n";
    page += &table(&text, &fields(&text, "DaemonOrder")?)?;
    let info = source::read(INFO)? + &source::read(EVENT)?;
    page += &format!("\n## An app\n\n{}", table(&info, &fields(&info, "AppInfo")?)?);
    page += &format!("\n## A daemon of an app\n\n{}", table(&info, &fields(&info, "DaemonInfo")?)?);
    // A type with a separate table is on the other page.
    Ok(page.replace("](#", "](events.md#"))
}

/// A table of words and their meaning. `between` joins the two parts of a word.
fn words(title: &str, items: &[Item], between: &str) -> String {
    let row = |item: &Item| format!("| `{}` | {} |\n", item.name.replace('_', between), prose(&item.doc));
    format!(
        "\n## {title}\n\n| word | meaning |\n| --- | --- |\n{}",
        items.iter().map(row).collect::<String>()
    )
}

/// A table of an object's keys.
fn table(text: &str, items: &[Item]) -> Result<String> {
    let mut rows = String::new();
    for item in items {
        if item.of == "Data" {
            rows += "| `text` | text, may be missing | The output, if it is UTF-8. |\n";
            rows += "| `bytes` | list of numbers, may be missing | The output, if it is not UTF-8. |\n";
            continue;
        }
        let inner = if item.is_flat { fields(text, &item.of).ok() } else { None };
        for item in inner.as_deref().unwrap_or(std::slice::from_ref(item)) {
            let optional = if item.is_optional { ", may be missing" } else { "" };
            rows +=
                &format!("| `{}` | {}{optional} | {} |\n", item.name, json_type(&item.of), prose(&item.doc));
        }
    }
    Ok(if rows.is_empty() {
        String::new()
    } else {
        format!("| key | value | meaning |\n| --- | --- | --- |\n{rows}")
    })
}

/// A type in words of JSON.
fn json_type(of: &str) -> String {
    let inside = |name: &str| of.strip_prefix(name)?.strip_prefix('<')?.strip_suffix('>');
    if let Some(inner) = inside("Vec") {
        return format!("list of {}", json_type(inner));
    }
    if let Some(inner) = inside("Option") {
        return json_type(inner);
    }
    match of.rsplit("::").next().unwrap_or(of) {
        "u32" | "u64" | "i32" | "Rank" | "Pid" | "DaemonId" | "SessionId" => "number",
        "bool" => "true or false",
        "RankInfo" => "[rank](#rank)",
        "RankExit" => "[end of a rank](#end-of-a-rank)",
        "MissingHost" => "[missing host](#missing-host)",
        "RankDiffers" => "[rank in two tables](#rank-in-two-tables)",
        "StateName" => "[word](#state-of-a-rank)",
        "CauseKind" => "[word](#cause-of-an-end)",
        "Kind" => "[word](#kind-of-an-error)",
        "Stream" | "AppState" => "word",
        "EndCause" | "Staging" | "Exit" | "DaemonInfo" => "object",
        "(Text, Text)" => "pairs of texts",
        _ => "text",
    }
    .to_owned()
}
