//! What pictures and pages have in common.

/// Text in XML and HTML, also in an attribute. Control characters, which no name should have, become spaces.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            sign if sign.is_control() => safe.push(' '),
            sign => safe.push(sign),
        }
    }
    safe
}

/// The colour of a class: neighbours are far from each other.
pub(crate) fn hue(class: usize) -> usize {
    class * 137 % 360
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_can_end_its_place() {
        assert_eq!(escaped("a<b>&\"'\n"), "a&lt;b&gt;&amp;&quot;&#39; ");
        assert_ne!(hue(0), hue(1));
    }
}
