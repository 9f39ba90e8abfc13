//! The table of measurements as a picture: how long gantry takes beside the plain way, a bar for every row that has a time in both columns.

use crate::Result;

const PAGE: &str = "docs/src/performance.md";

/// The least and the greatest ratio that have room, as powers of ten.
const EXPONENTS: (i32, i32) = (-3, 2);
const LABELS: f64 = 560.0;
const BARS: f64 = 360.0;
const VALUES: f64 = 90.0;
const ROW: f64 = 24.0;
const TOP: f64 = 44.0;

/// A row of the table.
#[derive(Debug, PartialEq)]
struct Row {
    label: String,
    ratio: f64,
}

/// The picture of the page's table.
///
/// # Errors
/// The page cannot be read, or has no such table.
pub(super) fn draw() -> Result<String> {
    let rows = rows(&super::source::read(PAGE)?);
    if rows.is_empty() {
        return Err(format!("{PAGE} has no table of times").into());
    }
    let height = TOP + rows.len() as f64 * ROW + 12.0;
    let width = LABELS + BARS + VALUES;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\n\
         <style>text{{font:13px sans-serif;fill:#1f2328}}.axis{{fill:#59636e;font-size:11px}}</style>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#fff\" stroke=\"#6e7681\"/>\n\
         <text x=\"16\" y=\"24\" font-weight=\"600\">Time of gantry over time of the plain way</text>\n"
    );
    for exponent in EXPONENTS.0..=EXPONENTS.1 {
        let x = place(10f64.powi(exponent));
        let bottom = height - 8.0;
        svg += &format!("<path d=\"M{x:.1} {TOP}V{bottom}\" stroke=\"#d1d9e0\"/>\n");
        svg += &format!(
            "<text class=\"axis\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
            TOP - 6.0,
            10f64.powi(exponent)
        );
    }
    for (number, row) in rows.iter().enumerate() {
        let y = TOP + number as f64 * ROW + 6.0;
        let (one, end) = (place(1.0), place(row.ratio));
        let color = if row.ratio > 1.0 { "#bf8700" } else { "#1a7f37" };
        let (from, length) = (one.min(end), (one - end).abs().max(1.0));
        svg += &format!("<text x=\"16\" y=\"{:.1}\">{}</text>\n", y + 11.0, row.label);
        svg += &format!(
            "<rect x=\"{from:.1}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"14\" fill=\"{color}\"/>\n"
        );
        svg += &format!(
            "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
            LABELS + BARS + 14.0,
            y + 11.0,
            short(row.ratio)
        );
    }
    Ok(svg + "</svg>\n")
}

/// Where a ratio stands.
fn place(ratio: f64) -> f64 {
    let (least, most) = (f64::from(EXPONENTS.0), f64::from(EXPONENTS.1));
    LABELS + (ratio.log10().clamp(least, most) - least) / (most - least) * BARS
}

fn short(ratio: f64) -> String {
    if ratio < 0.1 { format!("{ratio:.3}") } else { format!("{ratio:.2}") }
}

/// The rows that have a time in both columns.
fn rows(page: &str) -> Vec<Row> {
    let mut found: Vec<Row> = Vec::new();
    let mut subject = String::new();
    let table = page
        .lines()
        .skip_while(|line| !line.starts_with("| what |"))
        .take_while(|line| line.starts_with('|'));
    for line in table {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [what, gantry, plain, way] = cells[..] else { continue };
        // A row that repeats one above names it.
        if !what.starts_with("the same") {
            subject = what.to_owned();
        }
        let label = what.replacen("the same", subject.split([',', ':']).next().unwrap_or_default(), 1);
        if let (Some(gantry), Some(plain)) = (milliseconds(gantry), milliseconds(plain)) {
            let label = format!("{label} / {}", way.split(';').next().unwrap_or_default())
                .replace('&', "&amp;")
                .replace('<', "&lt;")
                .replace('`', "");
            found.push(Row { label, ratio: gantry / plain });
        }
    }
    found
}

/// A time, of several the first.
fn milliseconds(cell: &str) -> Option<f64> {
    let (value, unit) = cell.split(';').next()?.trim().split_once(' ')?;
    let scale = match unit {
        "s" => 1000.0,
        "ms" => 1.0,
        "us" => 0.001,
        _ => return None,
    };
    Some(value.parse::<f64>().ok()? * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_two_times_have_a_bar() {
        let page = "| what | gantry | plain | way |\n| --- | ---: | ---: | --- |\n| hold, release | 4 ms | 2 ms | fork |\n| the same, 64 | 1 s | 500 ms; 1 s | `fork` |\n\
                    | messages | 5 /s | 6 /s | TCP |\n";
        let row = |label: &str, ratio| Row { label: label.to_owned(), ratio };
        assert_eq!(rows(page), [row("hold, release / fork", 2.0), row("hold, 64 / fork", 2.0)]);
    }

    #[test]
    fn a_time_has_a_unit() {
        assert_eq!(milliseconds("1.5 s"), Some(1500.0));
        assert_eq!(milliseconds("0.5, 0.8"), None);
        assert_eq!(milliseconds("59 MB/s each"), None);
    }
}
