//! Measurements as a picture: the time of gantry, compared to the plain way, with a bar for every row.

use super::measurements::{Row, number};

/// The least and the greatest ratio that have room, as powers of ten.
const EXPONENTS: (i32, i32) = (-3, 2);
/// Of a letter of a label, about.
const LETTER: f64 = 6.3;
const BARS: f64 = 360.0;
const VALUES: f64 = 90.0;
const ROW: f64 = 24.0;
const TOP: f64 = 44.0;

/// The picture of all rows.
pub(super) fn draw(rows: &[Row]) -> String {
    let height = TOP + rows.len() as f64 * ROW + 12.0;
    let letters = rows.iter().map(|row| label(row).chars().count()).max().unwrap_or(0);
    let labels = letters as f64 * LETTER + 32.0;
    let width = labels + BARS + VALUES;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\n\
         <style>text{{font:13px sans-serif;fill:#1f2328}}.axis{{fill:#59636e;font-size:11px}}</style>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#fff\" stroke=\"#6e7681\"/>\n\
         <text x=\"16\" y=\"24\" font-weight=\"600\">Time of gantry over time of the plain way</text>\n"
    );
    for exponent in EXPONENTS.0..=EXPONENTS.1 {
        let x = labels + place(10f64.powi(exponent));
        let bottom = height - 8.0;
        svg += &format!("<path d=\"M{x:.1} {TOP}V{bottom}\" stroke=\"#d1d9e0\"/>\n");
        svg += &format!(
            "<text class=\"axis\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
            TOP - 6.0,
            10f64.powi(exponent)
        );
    }
    for (index, row) in rows.iter().enumerate() {
        let y = TOP + index as f64 * ROW + 6.0;
        let ratio = row.ratio();
        let (one, end) = (labels + place(1.0), labels + place(ratio));
        let color = if ratio > 1.0 { "#bf8700" } else { "#1a7f37" };
        let (from, length) = (one.min(end), (one - end).abs().max(1.0));
        svg += &format!("<text x=\"16\" y=\"{:.1}\">{}</text>\n", y + 11.0, label(row));
        svg += &format!(
            "<rect x=\"{from:.1}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"14\" fill=\"{color}\"/>\n"
        );
        svg += &format!(
            "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
            labels + BARS + 14.0,
            y + 11.0,
            number(ratio)
        );
    }
    svg + "</svg>\n"
}

/// The horizontal position of a ratio, from the left end of the bars.
fn place(ratio: f64) -> f64 {
    let (least, most) = (f64::from(EXPONENTS.0), f64::from(EXPONENTS.1));
    (ratio.log10().clamp(least, most) - least) / (most - least) * BARS
}

/// The measured action, and the way that it is compared to.
fn label(row: &Row) -> String {
    let text = format!("{} / {}", row.what, row.way);
    text.replace('&', "&amp;").replace('<', "&lt;").replace('`', "")
}
