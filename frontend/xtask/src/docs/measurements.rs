//! Results of benches: `docs/measurements.jsonl` has a line of JSON for each row of the page. Its table and its picture
//! are made from them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::source;
use crate::Result;
use crate::build::root;

const FILE: &str = "docs/measurements.jsonl";
const PAGE: &str = "docs/src/performance.md";

/// The text between these lines of the page is generated.
const BEGIN: &str = "<!-- Written by `cargo xtask docs` from docs/measurements.jsonl, from here: -->\n";
const END: &str = "<!-- to here. -->\n";

/// A row as a bench prints it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Row {
    bench: String,
    row: String,
    pub(super) what: String,
    gantry: f64,
    plain: f64,
    unit: String,
    pub(super) way: String,
    machine: String,
    date: String,
}

impl Row {
    /// The time of gantry over that of the plain way.
    pub(super) fn ratio(&self) -> f64 {
        if self.unit.ends_with("/s") { self.plain / self.gantry } else { self.gantry / self.plain }
    }

    fn is_same(&self, other: &Self) -> bool {
        (&self.bench, &self.row) == (&other.bench, &other.row)
    }
}

/// All rows, in the order of the file.
///
/// # Errors
/// The file cannot be read, or a line is no row.
pub(super) fn read() -> Result<Vec<Row>> {
    source::read(FILE)?.lines().map(parse).collect()
}

fn parse(line: &str) -> Result<Row> {
    serde_json::from_str(line).map_err(|why| format!("{why} in '{line}'").into())
}

/// Copies the rows that a bench has printed into the file.
///
/// # Errors
/// There are none, or a file cannot be read or written.
pub(super) fn take(printed: &Path) -> Result<()> {
    let text = fs::read_to_string(printed).map_err(|e| format!("{}: {e}", printed.display()))?;
    let file = root().join(FILE);
    let kept = merge(&source::read(FILE)?, &text)?;
    fs::write(&file, kept).map_err(|e| format!("{}: {e}", file.display()).into())
}

/// The lines of the file, with the printed ones. A printed line replaces an older one with the same bench and row, or
/// is added at the end.
fn merge(kept: &str, printed: &str) -> Result<String> {
    let mut lines: Vec<&str> = kept.lines().collect();
    let mut rows = lines.iter().map(|line| parse(line)).collect::<Result<Vec<Row>>>()?;
    let mut count = 0;
    for line in printed.lines().filter(|line| line.starts_with('{')) {
        let row = parse(line)?;
        match rows.iter().position(|old| old.is_same(&row)) {
            Some(at) => lines[at] = line,
            None => {
                lines.push(line);
                rows.push(row);
            }
        }
        count += 1;
    }
    if count == 0 {
        return Err("the bench has printed no measurement: no line begins with {".into());
    }
    Ok(lines.join("\n") + "\n")
}

/// The page with its table as the rows have it.
///
/// # Errors
/// The page has no place for the table.
pub(super) fn page(rows: &[Row]) -> Result<String> {
    let text = source::read(PAGE)?;
    let place = text.split_once(BEGIN).and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
    let (head, tail) = place.ok_or_else(|| format!("{PAGE} has no place for the table"))?;
    Ok(format!("{head}{BEGIN}{}{END}{tail}", table(rows)))
}

fn table(rows: &[Row]) -> String {
    let mut text =
        "\n| what | gantry | plain way | ratio of times | the plain way |\n| --- | ---: | ---: | ---: | --- |\n"
            .to_owned();
    let mut places: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for row in rows {
        let [gantry, plain] = [row.gantry, row.plain].map(|value| match row.unit.as_str() {
            "" => number(value),
            unit => format!("{} {unit}", number(value)),
        });
        text += &format!("| {} | {gantry} | {plain} | {} | {} |\n", row.what, number(row.ratio()), row.way);
        let benches = places.entry((&row.machine, &row.date)).or_default();
        if !benches.contains(&row.bench.as_str()) {
            benches.push(&row.bench);
        }
    }
    text += "\nMeasured on:\n\n";
    for ((machine, date), benches) in places {
        text += &format!("- {machine}, {date}: `{}`\n", benches.join("`, `"));
    }
    text + "\n"
}

/// A number with three digits that count.
pub(super) fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".to_owned();
    }
    let rounded: f64 = format!("{value:.2e}").parse().unwrap_or(value);
    let text = format!("{rounded}");
    let (whole, rest) = text.split_once('.').map_or((text.as_str(), ""), |(whole, rest)| (whole, rest));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if rest.is_empty() { grouped } else { format!("{grouped}.{rest}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(row: &str, gantry: f64, unit: &str) -> String {
        format!(
            "{{\"bench\":\"launch\",\"row\":\"{row}\",\"what\":\"w\",\"gantry\":{gantry},\"plain\":2.0,\"unit\":\"{unit}\",\"way\":\"fork\",\"command\":\"c\",\"machine\":\"m\",\"date\":\"2026-11-22\"}}"
        )
    }

    #[test]
    fn a_later_measurement_takes_the_place_of_the_row() {
        let kept = format!("{}\n{}\n", line("1", 4.0, "ms"), line("2", 5.0, "ms"));
        let printed = format!("| a table |\n{}\n{}\n", line("1", 3.0, "ms"), line("3", 6.0, "ms"));
        let merged = merge(&kept, &printed).unwrap();
        let rows: Vec<(String, f64)> =
            merged.lines().map(|line| parse(line).unwrap()).map(|row| (row.row, row.gantry)).collect();
        assert_eq!(rows, [("1".into(), 3.0), ("2".into(), 5.0), ("3".into(), 6.0)]);
        assert!(merge(&kept, "| a table |\n").is_err());
    }

    #[test]
    fn more_is_better_where_a_rate_is_measured() {
        assert_eq!(parse(&line("1", 4.0, "ms")).unwrap().ratio(), 2.0);
        assert_eq!(parse(&line("1", 4.0, "/s")).unwrap().ratio(), 0.5);
    }

    #[test]
    fn the_table_has_each_row_and_where_it_was_measured() {
        let rows: Vec<Row> =
            [line("1", 4.0, "ms"), line("2", 341_000.0, "/s")].iter().map(|it| parse(it).unwrap()).collect();
        let table = table(&rows);
        assert!(table.contains("| w | 4 ms | 2 ms | 2 | fork |\n"), "{table}");
        assert!(table.contains("| w | 341,000 /s | 2 /s | 0.00000587 | fork |\n"), "{table}");
        assert!(table.contains("- m, 2026-11-22: `launch`\n"), "{table}");
    }

    #[test]
    fn numbers_have_three_digits_that_count() {
        for (value, text) in
            [(4.612, "4.61"), (0.042_22, "0.0422"), (341_234.0, "341,000"), (1.0, "1"), (59.0, "59")]
        {
            assert_eq!(number(value), text);
        }
    }
}
