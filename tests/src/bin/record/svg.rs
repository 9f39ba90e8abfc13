//! A recording as an animated picture without a script. Every line of text is visible at the times when it was on the
//! screen.

use std::time::Duration;

/// The content of both screens for some time.
#[derive(Debug)]
pub(super) struct Frame {
    /// The lines of each.
    pub(super) screens: [Vec<String>; 2],
    /// How long.
    pub(super) time: Duration,
}

/// Of a character, in pixels.
const WIDTH: usize = 8;
/// Of a line.
const HEIGHT: usize = 18;
const MARGIN: usize = 14;
/// Of the bar above a terminal.
const BAR: usize = 26;
/// Between the terminals.
const GAP: usize = 10;

/// A line of text, with its place and its times.
struct Line<'a> {
    text: &'a str,
    y: usize,
    from: Duration,
    to: Duration,
}

/// Draws the frames, over and over.
pub(super) fn draw(frames: &[Frame], columns: usize, rows: [usize; 2]) -> String {
    let whole: Duration = frames.iter().map(|frame| frame.time).sum();
    let width = columns * WIDTH + 2 * MARGIN;
    let tops = [0, BAR + rows[0] * HEIGHT + MARGIN + GAP];
    let height = tops[1] + BAR + rows[1] * HEIGHT + MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\n\
         <title>gantry holds four ranks; gdb stops one of them in main; Enter lets the others go</title>\n"
    );
    let mut lines = Vec::new();
    for pane in 0..2 {
        for row in 0..rows[pane] {
            lines.extend(lines_of(frames, pane, row, tops[pane] + BAR + (row + 1) * HEIGHT - 4));
        }
    }
    svg += &style(&lines, whole);
    for (pane, title) in ["gantry", "another terminal"].into_iter().enumerate() {
        let high = BAR + rows[pane] * HEIGHT + MARGIN;
        let top = tops[pane];
        svg += &format!(
            "<rect x=\".5\" y=\"{top}.5\" width=\"{}\" height=\"{}\" rx=\"8\" fill=\"#16191f\" stroke=\"#6e7681\"/>\n\
             <text class=\"bar\" x=\"{MARGIN}\" y=\"{}\">{title}</text>\n",
            width - 1,
            high - 1,
            top + 18
        );
    }
    for (number, line) in lines.iter().enumerate() {
        let kind = kind_of(line.text);
        svg += &format!(
            "<text class=\"{kind}\" id=\"l{number}\" x=\"{MARGIN}\" y=\"{}\">{}</text>\n",
            line.y,
            escaped(line.text)
        );
    }
    svg + "</svg>\n"
}

/// The texts of one row, each with the time when it is visible.
fn lines_of(frames: &[Frame], pane: usize, row: usize, y: usize) -> Vec<Line<'_>> {
    let mut found: Vec<Line> = Vec::new();
    let mut now = Duration::ZERO;
    for frame in frames {
        let text = frame.screens[pane].get(row).map_or("", String::as_str);
        let end = now + frame.time;
        match found.last_mut() {
            Some(last) if last.text == text && last.to == now => last.to = end,
            _ => found.push(Line { text, y, from: now, to: end }),
        }
        now = end;
    }
    found.retain(|line| !line.text.is_empty());
    found
}

/// The style of all texts, and when each is visible.
fn style(lines: &[Line], whole: Duration) -> String {
    let mut css = String::from(
        "<style>\ntext{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre;fill:#d5dae1}\n\
         .bar{fill:#8b949e;font-size:12px}.typed{fill:#fff;font-weight:600}.held{fill:#f2b84b}.done{fill:#7ec97e}.note{fill:#7db7ff}\n",
    );
    let percent = |time: Duration| time.as_secs_f64() * 100.0 / whole.as_secs_f64();
    for (number, line) in lines.iter().enumerate() {
        let (from, to) = (percent(line.from), percent(line.to));
        if from == 0.0 && line.to == whole {
            continue;
        }
        let before = if from > 0.0 {
            format!("0%{{visibility:hidden}}{from:.2}%{{visibility:visible}}")
        } else {
            "0%{visibility:visible}".to_owned()
        };
        let after = if line.to < whole {
            format!("{to:.2}%,to{{visibility:hidden}}")
        } else {
            "to{visibility:visible}".to_owned()
        };
        css += &format!(
            "@keyframes k{number}{{{before}{after}}}#l{number}{{animation:k{number} {:.2}s step-end infinite}}\n",
            whole.as_secs_f64()
        );
    }
    // Readers with reduced motion see the last frame.
    let last: Vec<String> = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| line.to < whole)
        .map(|(number, _)| format!("#l{number}"))
        .collect();
    css + "@media (prefers-reduced-motion:reduce){text{animation:none!important}"
        + &last.join(",")
        + "{visibility:hidden}}\n</style>\n"
}

/// The style of a line, by its text.
fn kind_of(text: &str) -> &'static str {
    if text.starts_with("$ ") || text.starts_with("(gdb) ") {
        "typed"
    } else if text.contains("  held  ") || text.ends_with(" held") {
        "held"
    } else if text.contains("  exit 0") || text.contains(" exited") {
        "done"
    } else if text.starts_with("gantry: ") {
        "note"
    } else {
        "out"
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
