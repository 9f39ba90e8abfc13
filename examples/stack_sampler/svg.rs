//! The tree as a picture: a box for every stretch, callers above those whom they call, lines as thick as many ranks went there.

use std::collections::HashMap;

use gantry_frontend::types::rank_set::RankSet;

use crate::dot::thickness;
use crate::view::{Stretch, ranks_text};

/// Of a character of the fonts below, at their size, in pixels.
const CHAR_WIDTH: f64 = 7.3;
const LINE_HEIGHT: f64 = 17.0;
const PADDING: f64 = 10.0;
const GAP: f64 = 28.0;
/// From a caller's lower edge to the upper one of those whom it calls.
const DROP: f64 = 54.0;
/// Between the functions and the ranks of a box.
const RULE: f64 = 7.0;
const MARGIN: f64 = 24.0;
const TITLE_HEIGHT: f64 = 40.0;

/// The most characters of a name that are shown; the others are in its hint.
const MOST_CHARS: usize = 44;
/// The most characters of ranks that are shown.
const MOST_RANKS: usize = 28;
/// The most functions of a stretch that are shown: its ends, and how many are between.
const MOST_LINES: usize = 14;

/// A stretch with its place.
struct Placed<'a> {
    stretch: &'a Stretch,
    lines: Vec<String>,
    /// The box, in pixels from the upper left corner.
    x: f64,
    y: f64,
    width: f64,
    height: f64,
    calls: Vec<Placed<'a>>,
}

/// The tree as a picture.
pub(crate) fn write(title: &str, stretches: &[Stretch]) -> String {
    let mut x = MARGIN;
    let mut placed = Vec::new();
    for stretch in stretches {
        let (tree, width) = place(stretch, x, MARGIN + TITLE_HEIGHT);
        x += width + GAP;
        placed.push(tree);
    }
    let title_width = title.chars().count() as f64 * CHAR_WIDTH * 1.3;
    let width = (x - GAP).max(MARGIN + title_width) + MARGIN;
    let height = placed.iter().map(lowest).fold(MARGIN + TITLE_HEIGHT, f64::max) + MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\">\n\
         <style>\n  text {{ font: 12px 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: #1d2733; }}\n  \
         .title {{ font: 600 16px 'DejaVu Sans', Helvetica, Arial, sans-serif; }}\n  .ranks {{ fill: #51606f; }}\n</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text class=\"title\" x=\"{MARGIN}\" y=\"{:.0}\">{}</text>\n",
        MARGIN + 16.0,
        escaped(title)
    );
    // Lines first: boxes stand on them.
    let mut colours = Colours::default();
    placed.iter().for_each(|tree| write_lines(tree, &mut colours, &mut svg));
    placed.iter().for_each(|tree| write_boxes(tree, &mut colours, &mut svg));
    svg.push_str("</svg>\n");
    svg
}

/// Places a stretch and all below it, the leftmost at `x`; gives how wide that is.
fn place(stretch: &Stretch, x: f64, y: f64) -> (Placed<'_>, f64) {
    let lines = shown_lines(stretch);
    let longest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let width = longest as f64 * CHAR_WIDTH + 2.0 * PADDING;
    let height = lines.len() as f64 * LINE_HEIGHT + RULE + 2.0 * PADDING;
    let (mut calls, mut below) = (Vec::new(), 0.0);
    for call in &stretch.calls {
        if !calls.is_empty() {
            below += GAP;
        }
        let (call, call_width) = place(call, x + below, y + height + DROP);
        below += call_width;
        calls.push(call);
    }
    // Who is wider than all that it calls has them in its middle.
    if width > below {
        calls.iter_mut().for_each(|call| shift(call, (width - below) / 2.0));
    }
    // Above the middle of its first and last call.
    let middle = |call: &Placed<'_>| call.x + call.width / 2.0;
    let centre = match (calls.first(), calls.last()) {
        (Some(first), Some(last)) => f64::midpoint(middle(first), middle(last)),
        _ => x + width / 2.0,
    };
    let whole = width.max(below);
    let left = (centre - width / 2.0).min(x + whole - width).max(x);
    (Placed { stretch, lines, x: left, y, width, height, calls }, whole)
}

fn shift(tree: &mut Placed<'_>, by: f64) {
    tree.x += by;
    tree.calls.iter_mut().for_each(|call| shift(call, by));
}

fn lowest(tree: &Placed<'_>) -> f64 {
    tree.calls.iter().map(lowest).fold(tree.y + tree.height, f64::max)
}

/// The functions, the middle of long stretches left out, and the ranks.
fn shown_lines(stretch: &Stretch) -> Vec<String> {
    let all = stretch.lines();
    let mut lines: Vec<String> = if all.len() <= MOST_LINES {
        all.iter().map(|line| shortened(line)).collect()
    } else {
        let (above, below) = (&all[..MOST_LINES / 2], &all[all.len() - (MOST_LINES - 1 - MOST_LINES / 2)..]);
        let left_out = format!("... {} more ...", all.len() - above.len() - below.len());
        let above = above.iter().map(|line| shortened(line)).chain([left_out]);
        above.chain(below.iter().map(|line| shortened(line))).collect()
    };
    lines.push(stretch.ranks_line(MOST_RANKS));
    lines
}

fn shortened(line: &str) -> String {
    if line.chars().count() <= MOST_CHARS {
        return line.to_owned();
    }
    line.chars().take(MOST_CHARS - 3).chain("...".chars()).collect()
}

fn write_lines<'a>(tree: &Placed<'a>, colours: &mut Colours<'a>, svg: &mut String) {
    colours.hue(tree.stretch);
    let (from_x, from_y) = (tree.x + tree.width / 2.0, tree.y + tree.height);
    for call in &tree.calls {
        let (to_x, to_y) = (call.x + call.width / 2.0, call.y);
        let half = f64::midpoint(from_y, to_y);
        let (stroke, width) = (
            format!("hsl({},45%,58%)", colours.hue(call.stretch)),
            1.5 * thickness(call.stretch.ranks.len()),
        );
        svg.push_str(&format!(
            "<path d=\"M{from_x:.1} {from_y:.1} C{from_x:.1} {half:.1} {to_x:.1} {half:.1} {to_x:.1} {to_y:.1}\" \
             fill=\"none\" stroke=\"{stroke}\" stroke-width=\"{width:.1}\"/>\n"
        ));
        write_lines(call, colours, svg);
    }
}

fn write_boxes<'a>(tree: &Placed<'a>, colours: &mut Colours<'a>, svg: &mut String) {
    let Placed { x, y, width, height, .. } = tree;
    let hue = colours.hue(tree.stretch);
    let hint = format!("{}\n{}", tree.stretch.lines().join("\n"), ranks_text(&tree.stretch.ranks));
    svg.push_str(&format!(
        "<g><title>{}</title>\n<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"7\" \
         fill=\"hsl({hue},70%,94%)\" stroke=\"hsl({hue},45%,50%)\" stroke-width=\"1.3\"/>\n",
        escaped(&hint)
    ));
    let rule = y + height - PADDING - LINE_HEIGHT - RULE / 2.0;
    svg.push_str(&format!(
        "<path d=\"M{x:.1} {rule:.1} h{width:.1}\" stroke=\"hsl({hue},45%,80%)\" stroke-width=\"1\"/>\n"
    ));
    for (number, line) in tree.lines.iter().enumerate() {
        let (class, down) =
            if number + 1 == tree.lines.len() { (" class=\"ranks\"", RULE) } else { ("", 0.0) };
        let (x, y) = (x + PADDING, y + PADDING + down + LINE_HEIGHT * (number as f64 + 0.75));
        svg.push_str(&format!("<text{class} x=\"{x:.1}\" y=\"{y:.1}\">{}</text>\n", escaped(line)));
    }
    svg.push_str("</g>\n");
    tree.calls.iter().for_each(|call| write_boxes(call, colours, svg));
}

/// A colour for every set of ranks, the same wherever the same ranks are.
#[derive(Default)]
struct Colours<'a>(HashMap<&'a RankSet, usize>);

impl<'a> Colours<'a> {
    /// From the first one on each is far from those before it on the wheel: 137.5 degrees further.
    fn hue(&mut self, stretch: &'a Stretch) -> usize {
        let next = self.0.len();
        let number = *self.0.entry(&stretch.ranks).or_insert(next);
        (210 + number * 275 / 2) % 360
    }
}

/// Text between tags. Control characters but the end of a line are not allowed there.
fn escaped(text: &str) -> String {
    let plain = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    plain.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::tree;

    /// All boxes below a stretch, with it.
    fn boxes<'a, 'b>(tree: &'b Placed<'a>, onto: &mut Vec<&'b Placed<'a>>) {
        onto.push(tree);
        tree.calls.iter().for_each(|call| boxes(call, onto));
    }

    #[test]
    fn no_box_stands_on_another_and_all_are_in_the_picture() {
        let tree = tree(&[
            ("main solve a_function_with_a_long_name wait", "0-3"),
            ("main solve b", "4"),
            ("main solve", "5-7"),
            ("main a_name_that_is_much_wider_than_what_it_calls x", "8"),
            ("main a_name_that_is_much_wider_than_what_it_calls y", "9"),
            ("main c", "9"),
        ]);
        let (placed, width) = place(&tree[0], 0.0, 0.0);
        let mut all = Vec::new();
        boxes(&placed, &mut all);
        assert_eq!(all.len(), 9);
        for (number, a) in all.iter().enumerate() {
            assert!(a.x >= 0.0 && a.x + a.width <= width + 0.001, "{:?}", a.lines);
            for b in &all[..number] {
                let apart_across = a.x + a.width < b.x || b.x + b.width < a.x;
                let apart_down = a.y + a.height < b.y || b.y + b.height < a.y;
                assert!(apart_across || apart_down, "{:?} and {:?}", a.lines, b.lines);
            }
        }
    }

    #[test]
    fn a_set_of_ranks_has_one_colour_and_another_set_another() {
        let tree = tree(&[("main a b", "0-3"), ("main c", "4"), ("main d", "0-3"), ("main e", "5")]);
        let mut colours = Colours::default();
        let hues: Vec<usize> = tree[0].calls.iter().map(|call| colours.hue(call)).collect();
        assert_eq!(hues, [210, 210, 347, 125]);
    }

    #[test]
    fn names_do_not_end_the_text_and_long_ones_are_cut() {
        let name = format!("operator<<&{}", "x".repeat(60));
        let path = format!("main {}", vec![name.as_str(); 40].join(" "));
        let svg = write("5 > 4", &tree(&[(&path, "0")]));
        assert!(svg.contains(">5 &gt; 4</text>"), "{svg}");
        assert!(svg.contains("operator&lt;&lt;&amp;xxx") && svg.contains("xxx...</text>"), "{svg}");
        assert!(svg.contains("... 28 more ...") && !svg.contains("<<"), "{svg}");
        assert_eq!(svg.matches("<text").count(), 1 + MOST_LINES + 1);
        assert!(svg.ends_with("</svg>\n"));
        assert!(write("nothing", &[]).contains("nothing</text>"));
    }
}
