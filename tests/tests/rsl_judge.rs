//! Compares our reader of specifications with Debian's globus-rsl, the language's own reader: what it refuses, what
//! it reads, and the values of references. There are cases by hand and thousands of generated ones: pieces of the
//! language in any order, most of them nearly right. `GANTRY_RSL_CORPUS=DIRECTORY` adds every `.rsl` file below that
//! directory. The Grid Community Toolkit's sources have 145.
#![expect(clippy::disallowed_methods, reason = "more specifications are named in the environment")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use gantry_frontend::coallocation::rsl::{Specification, Value, parse};
use gantry_tests::programs;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// The number of generated texts.
const MADE_UP: usize = 10_000;

const BY_HAND: &[&str] = &[
    "+(&(resourceManagerContact=RM1)(count=3)(executable=myprog.sparc))\n(&(resourceManagerContact=RM2)(count=2)(executable=myprog.rs6000))",
    "(count=5)",
    "count=5",
    "count = 5 6",
    "&(a)",
    "&(a=b)(",
    "&(a=b))",
    "&(a=b) x",
    "&()",
    "",
    "&",
    "+(a=b)",
    "& (* c *) (a=b)",
    "(* c *)&(a=b)",
    "&(a=b)(* c *)",
    "&(a=b(* c)",
    "&(a=b(* c (* d *) e *)",
    "&(a=b(**))",
    "&(a=b(*)*))",
    "&(a=$(X))",
    "&(a=$(X \"d\" e))",
    "&(a=p$(X d)q)",
    "&(a=\"q\"$(X d))",
    "&(a=p$(X d)\"q\")",
    "&(a=p(**)$(X))",
    "&(a=$(X)(**)p)",
    "&(a=$(X)$(Y))",
    "&(a=$ (X))",
    "&(a=p$ (X))",
    "&(a=p #$(X)q)",
    "&(a=\"p\"#$(X)q)",
    "&(a=\"p\"#q$(X))",
    "&(a=p#\"q\"$(X))",
    "&(a=$(X)p\"q\"$(Y))",
    "&(a=$(X)\"p\"q)",
    "&(a=$(X)#\"p\"$(Y))",
    "&(a=$(X$(Z) d))",
    "&(a=$((X) d))",
    "&(a=())",
    "&(a=((b)c))",
    "&(a=(b)#c)",
    "&(a=b#(c))",
    "&(a=(b # c)#d)",
    "&(a=)",
    "&(=b)",
    "&(a==b)",
    "&(a=<b)",
    "&(a< =b)",
    "&(a!=b)(c<d)(e<=f)(g>h)(i>=j)",
    "&(\"a b\"=c)",
    "&('a'=c)",
    "&(^xax=c)",
    "&(a=^%x%%y%)",
    "&(a=^ x  y )",
    "&(a=^^x^^^)",
    "&(a=^\nx\n)",
    "&(a=\"\")",
    "&(a='')",
    "&(a=b\"c\")",
    "&(a=\"b\"c)",
    "&(a=\"b\"\"c\")",
    "&(a='b''c')",
    "&(a=b+c)",
    "&(a=+b)",
    "&(a=b &c)",
    "&(a=b?c)",
    "&(a=~b)",
    "&(a=b*c)",
    "&(a=b;c,d{e}[f]@g%h`i\\j)",
    "&(a b=c)",
    "&(a#b=c)",
    "&($(X)=c)",
    "&(a=-b .c /d :e)",
    "&(a=b\tc\nd)",
    "&(rsl_substitution=(H /home)(U $(H)/u))(d=$(U)/bin)",
    "&(RSLSubstitution=(H x))(d=$(H))",
    "&(d=$(H))(rsl_substitution=(H x))",
    "&(rsl_substitution=(H x)(H y))(a=$(H))",
    "&(rsl_substitution=(H x))(rsl_substitution=(H y))(a=$(H))",
    "|(rsl_substitution=(H x))(a=$(H))",
    "+(rsl_substitution=(H x))(&(a=$(H)))",
    "+(&(rsl_substitution=(H x))(a=$(H)))(&(b=$(H)))",
    "rsl_substitution=(H x)",
    "&(rsl_substitution=(H x))(&(a=$(H)))(|(b=$(H))(rsl_substitution=(H y))(c=$(H)))(d=$(H))",
    "&(rsl_substitution=H x)(a=b)",
    "&(rsl_substitution=(H))(a=b)",
    "&(rsl_substitution=(H x y))(a=b)",
    "&(rsl_substitution=(H (x)))(a=b)",
    "&(rsl_substitution!=(H x))(a=$(H))",
    "&(rsl_substitution=(H x))(a=$($(H)))",
    "&(rsl_substitution=(H N)(N x))(a=$($(H)))",
    "&(rsl_substitution=(H x))(a=($(H) ($(H)y)))",
];

/// Pieces of generated texts. With many more opening than closing pieces, there would be only errors.
fn any_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => prop::sample::select(vec!["a", "b", "c+", "H", "x/y", "&", "+", "|"]),
        6 => prop::sample::select(vec![" ", "=", "(", ")", "(", ")", "#", "$(", "$(H)", "$(X d)", "\"q\"", "'q'", "^%q%", "(**)", "<=", "!=", ">"]),
        2 => prop::sample::select(vec!["&(a=", "(b=c)", "(H x)", "\"\"", "?", "^", "\"", "$", "!", "\n", "rsl_substitution", "((", "))"]),
    ];
    let values = prop::collection::vec(piece, 0..9).prop_map(|pieces| pieces.concat());
    prop_oneof![
        1 => values.clone(),
        3 => values.clone().prop_map(|text| format!("&(a={text})")),
        3 => (values.clone(), values).prop_map(|(first, second)| format!("+(&(rsl_substitution=(H x){first})(a={second}))")),
    ]
}

/// The specifications below `GANTRY_RSL_CORPUS`.
fn find_corpus() -> Vec<String> {
    let Some(folder) = std::env::var_os("GANTRY_RSL_CORPUS") else { return Vec::new() };
    let files = walkdir::WalkDir::new(folder)
        .into_iter()
        .map(|entry| entry.expect("the corpus can be walked").into_path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "rsl"));
    files.map(|path| std::fs::read_to_string(path).expect("a specification is UTF-8")).collect()
}

/// The judge's result for each text: how it is parsed, and its value with references replaced.
fn ask_judge(program: &std::path::Path, texts: &[String]) -> Vec<(String, String)> {
    let mut input = Vec::new();
    for text in texts {
        writeln!(input, "{}", text.len()).expect("memory takes it");
        input.extend_from_slice(text.as_bytes());
    }
    let mut judge = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // The judge also writes every error to stderr.
        .stderr(Stdio::null())
        .spawn()
        .expect("the judge was compiled a moment ago");
    let mut stdin = judge.stdin.take().expect("it is a pipe");
    let feeding = std::thread::spawn(move || stdin.write_all(&input));
    let output = judge.wait_with_output().expect("the judge can be waited for");
    feeding.join().expect("the thread is sound").expect("the judge reads all");
    assert!(output.status.success(), "{}", output.status);
    let lines = String::from_utf8(output.stdout).expect("it writes ASCII");
    let pair =
        |line: &str| line.split_once('\t').map(|(read, replaced)| (read.to_owned(), replaced.to_owned()));
    lines.lines().map(|line| pair(line).expect("a line has two parts")).collect()
}

/// Shows a specification in the judge's notation.
fn show(specification: &Specification) -> String {
    let (sign, parts) = match specification {
        Specification::Multi(parts) => ('+', parts),
        Specification::Conjunction(parts) => ('&', parts),
        Specification::Disjunction(parts) => ('|', parts),
        Specification::Relation(relation) => {
            let attribute = show_text(relation.attribute.as_str());
            return format!("({} {attribute} {})", relation.operator, show_all(&relation.values));
        }
    };
    let parts: String = parts.iter().map(|part| format!(" {}", show(part))).collect();
    format!("({sign}{parts})")
}

fn show_all(values: &[Value]) -> String {
    let values: Vec<String> = values.iter().map(show_value).collect();
    format!("[{}]", values.join(" "))
}

fn show_value(value: &Value) -> String {
    match value {
        Value::Literal(text) => show_text(text),
        Value::Sequence(values) => show_all(values),
        Value::Reference(reference) => format!("${}", show_all(&reference.parts)),
        // The judge joins two at a time, starting with the last ones.
        Value::Concatenation(parts) => {
            let parts: Vec<String> = parts.iter().map(show_value).collect();
            parts
                .into_iter()
                .rev()
                .reduce(|right, left| format!("#[{left} {right}]"))
                .expect("a concatenation has parts")
        }
    }
}

fn show_text(text: &str) -> String {
    text.bytes().fold(format!("{}:", text.len()), |mut shown, byte| {
        write!(shown, "{byte:02x}").expect("memory takes it");
        shown
    })
}

/// Whether a default is used anywhere. The judge refuses that.
fn has_default(value: &Value) -> bool {
    match value {
        Value::Literal(_) => false,
        Value::Sequence(values) | Value::Concatenation(values) => values.iter().any(has_default),
        Value::Reference(reference) => reference.parts.len() > 1 || reference.parts.iter().any(has_default),
    }
}

fn uses_default(specification: &Specification) -> bool {
    match specification {
        Specification::Multi(parts)
        | Specification::Conjunction(parts)
        | Specification::Disjunction(parts) => parts.iter().any(uses_default),
        Specification::Relation(relation) => relation.values.iter().any(has_default),
    }
}

/// For the judge, an invalid character ends the text. For us it is an error.
fn cut_as_the_judge_does(text: &str) -> &str {
    let Err(error) = parse(text) else { return text };
    if !["has no meaning here", "has no end", "wants a delimiter"]
        .iter()
        .any(|it| error.message().contains(it))
    {
        return text;
    }
    let place = error.position();
    let before: usize = text.split_inclusive('\n').take(place.line as usize - 1).map(str::len).sum();
    let line = &text[before..];
    &text[..before + line.char_indices().nth(place.column as usize - 1).map_or(line.len(), |(at, _)| at)]
}

#[test]
fn specifications_are_read_as_their_own_reader_reads_them() {
    let flags = ["-I/usr/include/globus", "-lglobus_rsl", "-lglobus_common"];
    let judge = match programs::get_with("rsl_judge", "rsl_judge", &flags) {
        Ok(judge) => judge,
        Err(reason) => gantry_tests::skip!("globus-rsl is not to be had: {reason}"),
    };
    let mut runner =
        TestRunner::new_with_rng(Config::default(), TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let made_up = (0..MADE_UP).map(|_| any_text().new_tree(&mut runner).unwrap().current());
    // The judge loses a quoted value at the end of the text, so every text gets a newline.
    let texts = BY_HAND.iter().map(|text| (*text).to_owned()).chain(find_corpus()).chain(made_up);
    let texts: Vec<String> = texts.map(|text| text + "\n").collect();
    let judged = ask_judge(&judge, &texts);
    assert_eq!(judged.len(), texts.len());
    let (mut read, mut replaced, mut different) = (0, 0, Vec::new());
    for (text, (their_reading, their_meaning)) in texts.iter().zip(judged) {
        let ours = parse(cut_as_the_judge_does(text));
        let our_reading = ours.as_ref().map_or_else(|_| "error".to_owned(), show);
        if our_reading != their_reading {
            different.push(format!("{text:?}\n  we:   {our_reading}\n  they: {their_reading}"));
            continue;
        }
        let Ok(specification) = ours else { continue };
        read += 1;
        if uses_default(&specification) {
            continue;
        }
        let our_meaning = specification.substitute(text, &BTreeMap::new());
        let our_meaning = our_meaning.as_ref().map_or_else(|_| "error".to_owned(), show);
        replaced += usize::from(our_meaning != "error");
        if our_meaning != their_meaning {
            different.push(format!("{text:?}\n  we make of it:   {our_meaning}\n  they: {their_meaning}"));
        }
    }
    println!("{} texts, {read} were read, in {replaced} all references had a meaning", texts.len());
    assert!(
        different.is_empty(),
        "{} differences:\n{}",
        different.len(),
        different[..different.len().min(20)].join("\n")
    );
    assert!(
        read > texts.len() / 20 && replaced > texts.len() / 40,
        "the texts that are made up are too wrong"
    );
}
