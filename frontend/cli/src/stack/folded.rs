//! The classes as folded stacks, which programs that draw flame graphs read: a line for each class, with how many samples were in it.

use super::report::Findings;
use super::text::describe_step;

/// The lines.
pub(crate) fn write(found: &Findings) -> String {
    let mut text = String::new();
    for class in &found.classes {
        let steps: Vec<String> =
            class.steps.iter().map(|step| in_one_word(&describe_step(step, &found.programs))).collect();
        text.push_str(&format!("{} {}\n", steps.join(";"), class.numbers.len()));
    }
    text
}

/// Replaces the characters that would end a frame or a line.
fn in_one_word(name: &str) -> String {
    name.chars().map(|sign| if sign == ';' || sign.is_control() { ':' } else { sign }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::classes::tests::class;
    use super::*;

    #[test]
    fn a_class_is_a_line_with_its_samples() {
        let classes = vec![class(&[("main", 9), ("a;b", 0)], "3"), class(&[("main", 7)], "0-2")];
        let programs = ["/bin/heat".to_owned()].into();
        let found = Findings { samples: 1, classes, programs, ..Findings::default() };
        assert_eq!(write(&found), "main (heat.c:9);a:b 1\nmain (heat.c:7) 3\n");
    }
}
