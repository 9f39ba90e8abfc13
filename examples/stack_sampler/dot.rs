//! The tree for Graphviz: `dot -Tpdf` makes a picture of it.

use crate::view::{MOST_CHARS, Stretch, count, ranks_text};

/// The tree in the language of `dot`.
pub(crate) fn write(title: &str, stretches: &[Stretch]) -> String {
    let mut dot = format!(
        "digraph stacks {{\n  label={}; labelloc=t; fontname=\"sans-serif\";\n  \
         node [shape=box, style=\"rounded\", fontname=\"monospace\", fontsize=11];\n  \
         edge [fontname=\"sans-serif\", fontsize=9];\n",
        quoted(title)
    );
    let mut next = 0;
    for stretch in stretches {
        write_stretch(stretch, &mut next, &mut dot);
    }
    dot.push_str("}\n");
    dot
}

/// Writes a stretch and what is below it; gives its number.
fn write_stretch(stretch: &Stretch, next: &mut usize, dot: &mut String) -> usize {
    let number = *next;
    *next += 1;
    let lines: Vec<String> = stretch.lines().iter().map(|line| format!("{}\\l", escaped(line))).collect();
    let (label, ranks) = (lines.concat(), escaped(&stretch.ranks_line(MOST_CHARS)));
    let hint = quoted(&ranks_text(&stretch.ranks));
    dot.push_str(&format!("  n{number} [label=\"{label}{ranks}\\l\", tooltip={hint}];\n"));
    for call in &stretch.calls {
        let below = write_stretch(call, next, dot);
        let width = thickness(call.ranks.len());
        dot.push_str(&format!(
            "  n{number} -> n{below} [label={}, penwidth={width:.1}];\n",
            quoted(&count(&call.ranks))
        ));
    }
    number
}

/// How thick a line for so many ranks is: it grows by the same for every doubling.
pub(crate) fn thickness(ranks: u64) -> f64 {
    let doublings = f64::from(64 - ranks.leading_zeros());
    0.6 + 0.4 * doublings
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", escaped(text))
}

/// Text in a string of dot. Control characters, which no name should have, become spaces.
fn escaped(text: &str) -> String {
    let plain = text.replace('\\', "\\\\").replace('"', "\\\"");
    plain.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::tree;

    #[test]
    fn boxes_and_lines_are_written() {
        let dot = write("a \"title\"", &tree(&[("main a\\b", "0-2"), ("main io", "3")]));
        assert!(dot.starts_with("digraph stacks {\n  label=\"a \\\"title\\\"\";"), "{dot}");
        for line in [
            "  n0 [label=\"main\\l4 ranks: 0-3\\l\", tooltip=\"0-3\"];\n",
            "  n1 [label=\"a\\\\b\\l3 ranks: 0-2\\l\", tooltip=\"0-2\"];\n",
            "  n0 -> n1 [label=\"3 ranks\", penwidth=1.4];\n",
            "  n0 -> n2 [label=\"1 rank\", penwidth=1.0];\n",
        ] {
            assert!(dot.contains(line), "{line} is not in {dot}");
        }
        assert!(dot.ends_with("}\n"));
    }
}
