//! Merges variables of many ranks into one list. Values that differ only in numbers become ranges.

use gantry_debug::fold::fold;
use gantry_gdb::answer::Answer;
use gantry_gdb::mi::{Fields, Record, Value, parse_line};
use gantry_types::rank_set::RankSet;

use crate::message::short;

/// The maximum length of a shown value.
const MAX_VALUE_BYTES: usize = 4 << 10;

/// The maximum number of different values that are shown for one variable.
const MAX_CLASSES: usize = 4;

/// gdb's answer to one command.
pub(crate) type Line = Result<Fields, String>;

/// A value that these ranks share.
pub(crate) type Of<T> = (T, RankSet);

/// A variable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) kind: String,
    /// The value. `None`: gdb shows none, because the variable has children.
    pub(crate) value: Option<String>,
    /// gdb's name of the variable object, if it has one.
    pub(crate) object: Option<String>,
    /// The variable has children.
    pub(crate) has_parts: bool,
}

/// The result lines of the ranks, those of the first rank first. Ranks without an answer are left out.
pub(crate) fn lines_of(answers: &[(Answer, RankSet)], of: &RankSet) -> Vec<(Vec<Line>, RankSet)> {
    let mut all = Vec::new();
    for (answer, ranks) in answers {
        let ranks = ranks.intersection(of);
        let Some(reply) = answer.reply.as_ref().filter(|_| !ranks.is_empty()) else { continue };
        let mut lines: Vec<Line> = reply.said.lines().map(parse).collect();
        if let Some(error) = &reply.error {
            lines.push(Err(error.clone()));
        }
        all.push((lines, ranks));
    }
    all.sort_by_key(|(_, ranks)| ranks.first());
    all
}

fn parse(line: &str) -> Line {
    match parse_line(line.as_bytes()) {
        Record::Done { class, results, .. } if class == "error" => {
            Err(results.text("msg").unwrap_or("gdb gives no reason").to_owned())
        }
        Record::Done { results, .. } => Ok(results),
        _ => Err(format!("gdb has said: {line}")),
    }
}

/// Picks one line of each rank. Returns the results, and the error messages of the ranks that failed.
pub(crate) fn pick(
    lines: &[(Vec<Line>, RankSet)],
    at: impl Fn(&[Line]) -> Option<&Line>,
) -> (Vec<Of<Fields>>, Vec<Of<String>>) {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for (lines, ranks) in lines {
        match at(lines) {
            Some(Ok(fields)) => good.push((fields.clone(), ranks.clone())),
            Some(Err(why)) => bad.push((why.clone(), ranks.clone())),
            None => bad.push(("gdb has not answered".to_owned(), ranks.clone())),
        }
    }
    (good, bad)
}

/// Merges the texts of ranks: `[0;63]`, or `10 [0-1,3] | x [2]`.
pub(crate) fn merge_texts(texts: &[(String, RankSet)]) -> String {
    let classes = fold(texts.iter().map(|(text, ranks)| (text.as_str(), ranks)));
    if let [only] = classes.as_slice() {
        return short(&only.text, MAX_VALUE_BYTES);
    }
    let most = MAX_VALUE_BYTES / MAX_CLASSES;
    let mut shown: Vec<String> = classes
        .iter()
        .take(MAX_CLASSES)
        .map(|class| format!("{} [{}]", short(&class.text, most), short(&class.ranks.to_string(), 60)))
        .collect();
    if classes.len() > MAX_CLASSES {
        shown.push(format!("{} more", classes.len() - MAX_CLASSES));
    }
    shown.join(" | ")
}

/// Merges the variables of ranks. The list is that of the first rank. Each value covers all ranks with a variable of
/// that name.
pub(crate) fn merge(lists: &[(Vec<Variable>, RankSet)]) -> Vec<Variable> {
    let Some((first, _)) = lists.first() else { return Vec::new() };
    let merged = first.iter().enumerate().map(|(at, variable)| {
        let nth = first[..at].iter().filter(|it| it.name == variable.name).count();
        let texts: Vec<(String, RankSet)> = lists
            .iter()
            .map(|(list, ranks)| {
                let found = list.iter().filter(|it| it.name == variable.name).nth(nth);
                let text = found.map_or("not there", |it| it.value.as_deref().unwrap_or("{...}"));
                (text.to_owned(), ranks.clone())
            })
            .collect();
        let has_parts = variable.has_parts;
        Variable { value: Some(merge_texts(&texts)), has_parts, ..variable.clone() }
    });
    merged.collect()
}

/// Parses the result of `-stack-list-variables`.
pub(crate) fn parse_locals(fields: &Fields) -> Vec<Variable> {
    let tuples = fields.list("variables").iter().filter_map(|(_, value)| as_tuple(value));
    let variables = tuples.map(|tuple| {
        let kind = tuple.text("type").unwrap_or_default().to_owned();
        let value = tuple.text("value").map(str::to_owned);
        Variable {
            name: tuple.text("name").unwrap_or_default().to_owned(),
            has_parts: value.is_none() || is_pointer(&kind),
            kind,
            value,
            object: None,
        }
    });
    variables.collect()
}

/// Parses the result of `-var-create`, or a child of `-var-list-children`.
pub(crate) fn parse_object(fields: &Fields) -> Variable {
    let name = fields.text("exp").unwrap_or_default().to_owned();
    let text = |name| fields.text(name).unwrap_or_default();
    Variable {
        name,
        kind: text("type").to_owned(),
        value: fields.text("value").map(str::to_owned),
        object: fields.text("name").map(str::to_owned),
        has_parts: !["", "0"].contains(&text("numchild")) || text("has_more") == "1",
    }
}

/// Parses the children. Returns them, and whether there are more.
pub(crate) fn parse_children(fields: &Fields) -> (Vec<Variable>, bool) {
    let tuples = fields.list("children").iter().filter_map(|(_, value)| as_tuple(value));
    (tuples.map(parse_object).collect(), fields.text("has_more") == Some("1"))
}

/// Whether this is only a heading for the access of class members (`public`, `private`): it has no type and no value.
pub(crate) fn is_heading(variable: &Variable) -> bool {
    variable.kind.is_empty() && ["public", "private", "protected"].contains(&variable.name.as_str())
}

/// Parses the results of `-data-list-register-names` and `-data-list-register-values`.
pub(crate) fn parse_registers(names: &Fields, values: &Fields) -> Vec<Variable> {
    let names = names.list("register-names");
    let name_of = |tuple: &Fields| -> Option<String> {
        let number: usize = tuple.text("number")?.parse().ok()?;
        match &names.get(number)?.1 {
            Value::Text(name) if !name.is_empty() => Some(name.clone()),
            _ => None,
        }
    };
    let tuples = values.list("register-values").iter().filter_map(|(_, value)| as_tuple(value));
    let registers = tuples.filter_map(|tuple| {
        let value = Some(tuple.text("value")?.to_owned());
        Some(Variable { name: name_of(tuple)?, value, ..Variable::default() })
    });
    registers.collect()
}

pub(crate) fn as_tuple(value: &Value) -> Option<&Fields> {
    match value {
        Value::Tuple(fields) => Some(fields),
        _ => None,
    }
}

pub(crate) fn is_pointer(kind: &str) -> bool {
    kind.trim_end().ends_with('*')
}

/// The address at the start of a value.
pub(crate) fn address_in(value: &str) -> Option<&str> {
    let digits = value.strip_prefix("0x")?;
    let count = digits.bytes().take_while(u8::is_ascii_hexdigit).count();
    (count > 0).then(|| &value[..2 + count])
}

#[cfg(test)]
mod tests {
    use gantry_gdb::answer::{Reply, State};

    use super::*;

    fn set(text: &str) -> RankSet {
        text.parse().unwrap()
    }

    fn fields(line: &str) -> Fields {
        parse(line).unwrap()
    }

    #[test]
    fn values_of_ranks_are_one() {
        let texts = |of: &[(&str, &str)]| {
            merge_texts(&of.iter().map(|(text, ranks)| ((*text).to_owned(), set(ranks))).collect::<Vec<_>>())
        };
        assert_eq!(texts(&[("1", "0"), ("7", "1-3")]), "[1;7]");
        assert_eq!(texts(&[("x", "0,2-3"), ("y", "1")]), "y [1] | x [0,2-3]");
        let many: Vec<(String, RankSet)> =
            ('a'..'h').zip(0..).map(|(it, rank)| (it.to_string(), set(&format!("{rank}")))).collect();
        assert!(merge_texts(&many).ends_with(" | 3 more"));
    }

    #[test]
    fn variables_are_those_of_the_first_rank() {
        let of = |line| parse_locals(&fields(line));
        let one = of(
            "^done,variables=[{name=\"n\",arg=\"1\",type=\"int\",value=\"1\"},{name=\"a\",type=\"int [4]\"},{name=\"p\",type=\"int *\",value=\"0x10\"}]",
        );
        let other = of("^done,variables=[{name=\"n\",type=\"int\",value=\"3\"}]");
        let merged = merge(&[(one, set("0")), (other, set("1-2"))]);
        let shown: Vec<(&str, &str, bool)> =
            merged.iter().map(|it| (it.name.as_str(), it.value.as_deref().unwrap(), it.has_parts)).collect();
        assert_eq!(
            shown,
            [
                ("n", "[1;3]", false),
                ("a", "{...} [0] | not there [1-2]", true),
                ("p", "0x10 [0] | not there [1-2]", true)
            ]
        );
    }

    #[test]
    fn children_and_registers_are_read() {
        let (children, more) = parse_children(&fields(
            "^done,numchild=\"2\",children=[child={name=\"v.0\",exp=\"0\",numchild=\"0\",value=\"5\",type=\"int\"},child={name=\"v.public\",exp=\"public\",numchild=\"1\"}],has_more=\"1\"",
        ));
        assert!(more && children.len() == 2 && !is_heading(&children[0]) && is_heading(&children[1]));
        assert_eq!((children[0].object.as_deref(), children[0].has_parts), (Some("v.0"), false));
        let registers = parse_registers(
            &fields("^done,register-names=[\"rax\",\"\",\"rip\"]"),
            &fields(
                "^done,register-values=[{number=\"0\",value=\"0x1\"},{number=\"1\",value=\"0x2\"},{number=\"2\",value=\"0x3\"}]",
            ),
        );
        assert_eq!(registers.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["rax", "rip"]);
        assert_eq!((address_in("0x1f <f+1>"), address_in("0x"), address_in("5")), (Some("0x1f"), None, None));
    }

    #[test]
    fn what_could_not_be_done_has_its_reason() {
        let answer = |said: &str, error: Option<&str>| Answer {
            state: State::Running,
            reply: Some(Reply { said: said.to_owned(), error: error.map(str::to_owned), hint: None }),
        };
        let answers = [
            (answer("^done\n^error,msg=\"no\"\n", None), set("2")),
            (answer("^done\n^done,x=\"1\"\n", None), set("0-1")),
            (answer("", Some("there is no gdb")), set("3")),
            (Answer { state: State::Running, reply: None }, set("4")),
        ];
        let lines = lines_of(&answers, &set("0-9"));
        let (good, bad) = pick(&lines, |lines| lines.last());
        assert_eq!((good.len(), good[0].1.clone()), (1, set("0-1")));
        assert_eq!(bad, [("no".to_owned(), set("2")), ("there is no gdb".to_owned(), set("3"))]);
    }
}
