//! The tree as an SVG picture: a box for each stretch, callers to the left of their callees. Each class has a colour.

use super::markup::{escaped, hue};
use super::report::Findings;
use super::text::{describe_step, title};
use super::tree::{Stretch, build_tree, count, ranks_text};

/// Of a letter, and of a line, in pixels.
const LETTER: usize = 8;
const LINE: usize = 17;
const PADDING: usize = 10;
/// Between boxes, from left to right and from top to bottom.
const ACROSS: usize = 48;
const DOWN: usize = 14;
const MARGIN: usize = 24;
const TITLE: usize = 36;

/// The most lines of a box, and the most letters of one.
const MOST_LINES: usize = 16;
const MOST_LETTERS: usize = 60;

struct Drawing<'f> {
    found: &'f Findings,
    boxes: String,
    lines: String,
    width: usize,
    /// The height of the picture so far.
    next: usize,
    classes: usize,
}

/// The picture.
pub(crate) fn write(found: &Findings) -> String {
    let mut drawing = Drawing {
        found,
        boxes: String::new(),
        lines: String::new(),
        width: MARGIN + title(found).chars().count() * 10,
        next: MARGIN + TITLE,
        classes: 0,
    };
    for stretch in build_tree(&found.classes) {
        drawing.add(&stretch, MARGIN);
    }
    let Drawing { boxes, lines, width, next, .. } = drawing;
    let (width, height) = (width + MARGIN, next + MARGIN);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <style>text {{ font: 12px 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: #1d2733 }} \
         .title {{ font: 600 16px 'DejaVu Sans', Helvetica, Arial, sans-serif }} .ranks {{ fill: #51606f }}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text class=\"title\" x=\"{MARGIN}\" y=\"{}\">{}</text>\n{lines}{boxes}</svg>\n",
        MARGIN + 16,
        escaped(&title(found))
    )
}

impl Drawing<'_> {
    /// Draws a stretch and all its callees. Returns the middle of its left side.
    fn add(&mut self, stretch: &Stretch, left: usize) -> usize {
        let mut lines = self.shown(stretch);
        let ranks = format!("{}: {}", count(&stretch.ranks), ranks_text(&stretch.ranks, MOST_LETTERS / 2));
        lines.push(ranks);
        let letters = lines.iter().map(|line| line.chars().count()).max().unwrap_or_default();
        let (width, height) = (letters * LETTER + 2 * PADDING, lines.len() * LINE + 2 * PADDING);
        self.width = self.width.max(left + width);
        let colour = match stretch.calls.is_empty() {
            true => {
                self.classes += 1;
                format!("hsl({},70%,92%)", hue(self.classes - 1))
            }
            false => "#f4f6f8".to_owned(),
        };
        let begin = self.next;
        let right = left + width;
        let calls: Vec<usize> = stretch.calls.iter().map(|call| self.add(call, right + ACROSS)).collect();
        // In the middle of its callees, below all boxes above it.
        let middle = match (calls.first(), calls.last()) {
            (Some(first), Some(last)) => usize::midpoint(*first, *last).max(begin + height / 2),
            _ => begin + height / 2,
        };
        let top = middle - height / 2;
        self.next = self.next.max(top + height + DOWN);
        for call in calls {
            let half = right + ACROSS / 2;
            self.lines.push_str(&format!(
                "<path d=\"M{right} {middle} C{half} {middle} {half} {call} {} {call}\" fill=\"none\" stroke=\"#8796a5\"/>\n",
                right + ACROSS
            ));
        }
        self.boxes.push_str(&format!(
            "<g><title>{}</title><rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"{colour}\" stroke=\"#8796a5\"/>\n",
            escaped(&stretch.ranks.to_string())
        ));
        let last = lines.len() - 1;
        for (at, line) in lines.iter().enumerate() {
            let class = if at == last { " class=\"ranks\"" } else { "" };
            let (x, y) = (left + PADDING, top + PADDING + at * LINE + 12);
            self.boxes.push_str(&format!("<text{class} x=\"{x}\" y=\"{y}\">{}</text>\n", escaped(line)));
        }
        self.boxes.push_str("</g>\n");
        middle
    }

    /// The functions; of a long stretch its two ends.
    fn shown(&self, stretch: &Stretch) -> Vec<String> {
        let mut lines: Vec<String> = stretch
            .steps
            .iter()
            .map(|step| describe_step(step, &self.found.programs).chars().take(MOST_LETTERS).collect())
            .collect();
        if lines.len() > MOST_LINES {
            let (above, below) = (MOST_LINES / 2, MOST_LINES / 2 - 1);
            let left_out = lines.len() - above - below;
            lines.splice(above..above + left_out, [format!("... {left_out} more ...")]);
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::super::classes::tests::class;
    use super::*;

    #[test]
    fn each_stretch_is_a_box_within_the_picture() {
        let classes =
            vec![class(&[("main", 9), ("f<int>", 0)], "3"), class(&[("main", 9), ("MPI_Wait", 0)], "0-2")];
        let svg = write(&Findings { samples: 1, classes, ..Findings::default() });
        assert_eq!(svg.matches("<g>").count(), 3, "{svg}");
        assert!(svg.contains("f&lt;int&gt;") && svg.contains(">3 ranks: 0-2</text>"), "{svg}");
        assert_eq!(svg.matches("<path").count(), 2, "{svg}");
    }
}
