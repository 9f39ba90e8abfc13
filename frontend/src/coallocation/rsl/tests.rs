use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// The values of attribute `a` in `&(a=TEXT)`, as they are printed.
fn values(text: &str) -> Vec<String> {
    match parse(&format!("&(a={text})")) {
        Ok(Specification::Conjunction(parts)) => match parts.as_slice() {
            [Specification::Relation(relation)] => relation.values.iter().map(ToString::to_string).collect(),
            other => panic!("{other:?}"),
        },
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn values_are_words_quotes_sequences_and_references() {
    for (text, expected) in [
        ("b", vec!["b"]),
        ("b c", vec!["b", "c"]),
        (" b+c &", vec!["b+c"]),
        ("-b .c /d :e", vec!["-b", ".c", "/d", ":e"]),
        (r#"b"c""#, vec!["b", "c"]),
        (r#""x""y""#, vec![r#""x""y""#]),
        ("'x''y'", vec![r#""x'y""#]),
        ("^%x%%y%", vec!["x%y"]),
        (r#""""#, vec![r#""""#]),
        (r#""+b""#, vec![r#""+b""#]),
        ("(b c)(d (e))", vec!["(b c)", "(d (e))"]),
        ("((b)(c) d)", vec!["((b)(c) d)"]),
        ("b(* no value *)c", vec!["b", "c"]),
        (r#"p$(X "d")q"#, vec!["p # $(X d) # q"]),
        (r#""q"$(X)"q""#, vec!["\"q\"".trim_matches('"'), "$(X)", "q"]),
        ("$(X)$(Y) $(Z)", vec!["$(X) # $(Y)", "$(Z)"]),
        ("p (* apart *)$(X)", vec!["p", "$(X)"]),
        ("p # \"q\"#$ (X)", vec!["p # q # $(X)"]),
    ] {
        let text = text.strip_suffix(" &").unwrap_or(text);
        assert_eq!(values(text), expected, "{text}");
    }
}

#[test]
fn requests_nest() {
    let text = "+ (& (resourceManagerContact = RM1) (count=3))\n(|(a<1)(b>=2)) (c != 3)";
    let specification = parse(text).unwrap();
    assert_eq!(specification.to_string(), "+(&(resourceManagerContact=RM1)(count=3))(|(a<1)(b>=2))(c!=3)");
    assert_eq!(parse("count=5").unwrap().to_string(), "count=5");
}

#[test]
fn spellings_of_an_attribute_are_one() {
    let attribute = Attribute::new("max_Wall_time");
    assert!(attribute.is("maxWallTime"));
    assert_eq!(attribute, Attribute::new("MAXWALLTIME"));
    assert_eq!(attribute.canonical(), "maxwalltime");
    assert!(!attribute.is("maxTime"));
}

fn refused(text: &str) -> String {
    let error = parse(text).unwrap_err();
    format!("{error}\n{}", error.picture())
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let checks = [
        ("", "line 1, column 1: expected an attribute, found the end\n\n^"),
        ("(count=5)", "line 1, column 1: expected '+', '&' or '|' before '(', or an attribute\n(count=5)\n^"),
        ("&(a=b)\n (c=)", "line 2, column 5: expected a value, found ')'\n (c=)\n    ^"),
        ("&(a)", "line 1, column 4: expected an operator like '=' after \"a\", found ')'\n&(a)\n   ^"),
        ("&(a=b", "line 1, column 6: expected ')', found the end\n&(a=b\n     ^"),
        ("&(a=b))", "line 1, column 7: expected the end, found ')'\n&(a=b))\n      ^"),
        ("&(a=+b)", "line 1, column 5: expected a value, found '+'\n&(a=+b)\n    ^"),
        ("&(a=b?)", "line 1, column 6: '?' has no meaning here: quote it\n&(a=b?)\n     ^"),
        ("&(a=\"b)", "line 1, column 5: this quote has no end: \\\"\n&(a=\"b)\n    ^"),
        ("&(* a=b)", "line 1, column 2: this comment has no end: *)\n&(* a=b)\n ^"),
        (
            "&(a=ä)(b)",
            "line 1, column 9: expected an operator like '=' after \"b\", found ')'\n&(a=ä)(b)\n        ^",
        ),
    ];
    for (text, expected) in checks {
        assert_eq!(refused(text), expected, "{text}");
    }
    let long = format!("&(a={} b c ))", "x".repeat(300));
    assert!(
        refused(&long).ends_with(" b c ))\n                                      ^"),
        "{}",
        refused(&long)
    );
}

#[test]
fn text_is_bounded() {
    let deep = |n: usize| format!("{}a=b{}", "&(".repeat(n), ")".repeat(n));
    assert!(parse(&deep(DEEPEST - 1)).is_ok());
    assert!(refused(&deep(DEEPEST)).contains("nested more than"));
    for nested in ["(", "$("] {
        assert!(refused(&format!("&(a={}", nested.repeat(100_000))).contains("nested more than"));
    }
    // Long, but not deep.
    assert!(parse(&format!("&(a=b{})", "#c".repeat(100_000))).is_ok());
    assert!(refused(&"x".repeat(MOST_BYTES + 1)).contains("1048576 are allowed"));
}

fn substituted(text: &str) -> Result<String, String> {
    let given = BTreeMap::from([("HOME".to_owned(), "/home/me".to_owned())]);
    let specification = parse(text).unwrap();
    specification.substitute(text, &given).map(|it| it.to_string()).map_err(|error| error.to_string())
}

#[test]
fn references_take_what_stands_before_them() {
    for (text, expected) in [
        (
            "&(rsl_substitution=(H /h)(U $(H)/u))(d=$(U)/bin)",
            "&(rsl_substitution=(H /h)(U /h/u))(d=/h/u/bin)",
        ),
        ("&(rslSubstitution=(H x)(H y))(a=$(H))", "&(rslSubstitution=(H x)(H y))(a=x)"),
        (
            "&(rsl_substitution=(H x))(|(b=$(H))(rsl_substitution=(H y))(c=$(H)))(d=$(H))",
            "&(rsl_substitution=(H x))(|(b=x)(rsl_substitution=(H y))(c=y))(d=x)",
        ),
        ("&(a=$(HOME)/x)", "&(a=/home/me/x)"),
        ("&(a=$(NO \"the default\"))", "&(a=\"the default\")"),
        ("&(a=b\r\n c)", "&(a=b c)"),
    ] {
        assert_eq!(substituted(text).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn references_without_a_meaning_are_errors_with_their_place() {
    for (text, expected) in [
        (
            "&(d=$(H))(rsl_substitution=(H x))",
            "line 1, column 5: $(H) has no meaning here: no rsl_substitution before it, no default",
        ),
        (
            "&(|(rsl_substitution=(H x))(a=b))\n(a=$(H))",
            "line 2, column 4: $(H) has no meaning here: no rsl_substitution before it, no default",
        ),
        ("&(a=$(X y z))", "line 1, column 5: a reference has a name and perhaps one default"),
        ("&(a=$($(HOME)))", "line 1, column 5: a reference's name is a plain text, not $(HOME)"),
        ("&(a=$(X (y)))", "line 1, column 5: a text is wanted here, not the sequence (y)"),
        ("&(a=$((X)))", "line 1, column 5: a reference's name is a plain text, not (X)"),
        (
            "&(rsl_substitution=(H x y))",
            "line 1, column 3: rsl_substitution takes pairs like (NAME value), found (H x y)",
        ),
    ] {
        assert_eq!(substituted(text), Err(expected.to_owned()), "{text}");
    }
    // Each name is twice the one before: 2^40 bytes.
    let names: String = (1..40).map(|n| format!("(N{n} $(N{})$(N{}))", n - 1, n - 1)).collect();
    let bomb = format!("&(rsl_substitution=(N0 xx){names})");
    assert!(substituted(&bomb).unwrap_err().contains("longer than 16777216 bytes"));
}

fn any_specification() -> impl Strategy<Value = Specification> {
    let text = || prop_oneof!["[a-z/+&]{1,4}", "[ -~]{0,4}", "\\PC{0,3}"];
    let literal = text().prop_map(Value::Literal);
    let value = literal.clone().prop_recursive(3, 12, 3, move |inner| {
        let reference = prop::collection::vec(inner.clone(), 1..3)
            .prop_map(|parts| Value::Reference(Reference { parts, at: Position::default() }));
        let simple = prop_oneof![text().prop_map(Value::Literal), reference.clone()];
        prop_oneof![
            prop::collection::vec(inner, 1..3).prop_map(Value::Sequence),
            reference,
            prop::collection::vec(simple, 2..4).prop_map(Value::Concatenation),
        ]
    });
    let operator = prop_oneof![
        Just(Operator::Equal),
        Just(Operator::NotEqual),
        Just(Operator::Less),
        Just(Operator::LessOrEqual),
        Just(Operator::Greater),
        Just(Operator::GreaterOrEqual),
    ];
    let relation =
        (text(), operator, prop::collection::vec(value, 1..4)).prop_map(|(name, operator, values)| {
            Specification::Relation(Relation {
                attribute: Attribute::new(name),
                operator,
                values,
                at: Position::default(),
            })
        });
    relation.prop_recursive(3, 12, 3, |inner| {
        let parts = prop::collection::vec(inner, 1..4);
        prop_oneof![
            parts.clone().prop_map(Specification::Multi),
            parts.clone().prop_map(Specification::Conjunction),
            parts.prop_map(Specification::Disjunction),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_printed_is_read_as_the_same(specification in any_specification()) {
        let text = specification.to_string();
        prop_assert_eq!(parse(&text), Ok(specification), "{}", text);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[-+&|=<>!()\"'^*$# \nab?]{0,40}") {
        if let Ok(specification) = parse(&text) {
            prop_assert_eq!(parse(&specification.to_string()), Ok(specification));
        }
    }
}
