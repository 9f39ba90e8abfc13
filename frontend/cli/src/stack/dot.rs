//! The tree for Graphviz: `dot -Tpdf` makes a picture of it.

use super::report::Findings;
use super::text::{describe_step, title};
use super::tree::{Stretch, build_tree, count, ranks_text};

/// The most letters of a set of ranks.
const MOST_RANKS: usize = 40;

/// The tree in the language of `dot`.
pub(crate) fn write(found: &Findings) -> String {
    let mut dot = format!(
        "digraph stacks {{\n  label=\"{}\"; labelloc=t; fontname=\"sans-serif\";\n  \
         node [shape=box, style=rounded, fontname=\"monospace\", fontsize=11];\n  \
         edge [fontname=\"sans-serif\", fontsize=9];\n",
        escaped(&title(found))
    );
    let mut next = 0;
    for stretch in build_tree(&found.classes) {
        add(&mut dot, found, &stretch, &mut next);
    }
    dot.push_str("}\n");
    dot
}

/// Adds a stretch and all below it. Returns its number.
fn add(dot: &mut String, found: &Findings, stretch: &Stretch, next: &mut usize) -> usize {
    let number = *next;
    *next += 1;
    let lines: String =
        stretch.steps.iter().map(|step| escaped(&describe_step(step, &found.programs)) + "\\l").collect();
    let ranks = escaped(&format!("{}: {}", count(&stretch.ranks), ranks_text(&stretch.ranks, MOST_RANKS)));
    dot.push_str(&format!("  n{number} [label=\"{lines}{ranks}\\l\"];\n"));
    for call in &stretch.calls {
        let below = add(dot, found, call, next);
        dot.push_str(&format!("  n{number} -> n{below} [label=\"{}\"];\n", count(&call.ranks)));
    }
    number
}

/// Text in a string of dot.
fn escaped(text: &str) -> String {
    let plain = text.replace('\\', "\\\\").replace('"', "\\\"");
    plain.chars().map(|sign| if sign.is_control() { ' ' } else { sign }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::classes::tests::class;
    use super::*;

    #[test]
    fn each_stretch_is_a_box() {
        let classes = vec![
            class(&[("main", 9), ("operator\"\"s", 0)], "3"),
            class(&[("main", 9), ("MPI_Wait", 0)], "0-2"),
        ];
        let dot = write(&Findings { samples: 1, classes, ..Findings::default() });
        assert!(dot.contains("n0 [label=\"main (heat.c:9)\\l4 ranks: 0-3\\l\"];"), "{dot}");
        assert!(dot.contains("operator\\\"\\\"s") && dot.contains("n0 -> n2 [label=\"3 ranks\"];"), "{dot}");
    }
}
