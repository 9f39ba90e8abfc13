//! Breakpoints, as editors request them and as gdbs have them.

use gantry_gdb::mi::{Fields, quote};
use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;
use serde_json::{Value, json};

use crate::args::{FunctionBreakpoint, SourceBreakpoint};
use crate::message::{Client, short};

/// The maximum number of breakpoints in a session.
pub(crate) const MAX_BREAKPOINTS: usize = 2000;

/// The maximum number of expressions in a log message.
const MAX_EXPRESSIONS: usize = 20;

/// A breakpoint as the editor requests it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) place: Place,
    pub(crate) condition: Option<String>,
    pub(crate) hits: Option<Hits>,
    pub(crate) log: Option<Vec<Piece>>,
}

/// The place of a breakpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// A line of a file, counted from 1.
    Source(String, i64),
    /// The start of a function.
    Function(String),
}

/// The hits that stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hits {
    /// That hit and all later ones.
    From(u64),
    /// Only that hit.
    Exactly(u64),
    /// Each multiple of that number.
    Each(u64),
}

/// A piece of a log message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    Expression(String),
}

/// The kind of breakpoints that one request replaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The breakpoints in a file.
    Source(String),
    /// The breakpoints at functions.
    Function,
}

/// A breakpoint that gdbs have or will get.
#[derive(Debug, Clone)]
pub(crate) struct Breakpoint {
    pub(crate) id: i64,
    pub(crate) owner: Client,
    pub(crate) wanted: Wanted,
    /// The ranks that it stops.
    pub(crate) ranks: RankSet,
    /// The numbers that gdbs gave it.
    pub(crate) numbers: Vec<(u32, RankSet)>,
    /// The line where it is set. 0: it is not set yet.
    line: i64,
    /// Why it is not set.
    message: Option<String>,
}

/// All breakpoints.
#[derive(Debug, Default)]
pub(crate) struct Breakpoints {
    all: Vec<Breakpoint>,
    last: i64,
}

impl Wanted {
    /// # Errors
    /// The hit count or the log message is invalid.
    pub(crate) fn of_source(path: &str, of: &SourceBreakpoint, first_line: i64) -> Result<Self, String> {
        Ok(Self {
            place: Place::Source(path.to_owned(), of.line.saturating_add(1 - first_line)),
            condition: some(of.condition.as_deref()),
            hits: some(of.hit_condition.as_deref()).map(|text| Hits::parse(&text)).transpose()?,
            log: some(of.log_message.as_deref()).map(|text| parse_log(&text)).transpose()?,
        })
    }

    /// # Errors
    /// The hit count is invalid.
    pub(crate) fn of_function(of: &FunctionBreakpoint) -> Result<Self, String> {
        Ok(Self {
            place: Place::Function(of.name.clone()),
            condition: some(of.condition.as_deref()),
            hits: some(of.hit_condition.as_deref()).map(|text| Hits::parse(&text)).transpose()?,
            log: None,
        })
    }

    /// The commands of gdb's machine interface. The result of the last one describes the breakpoint.
    pub(crate) fn build_commands(&self, id: i64) -> Vec<String> {
        let mut commands = Vec::new();
        let mut options = String::new();
        let counter = format!("$gantry_hits{id}");
        let counted = match self.hits {
            Some(Hits::From(count)) => {
                options = format!(" -i {}", count.saturating_sub(1));
                None
            }
            Some(Hits::Exactly(count)) => Some(format!("({counter} = {counter} + 1) == {count}")),
            Some(Hits::Each(count)) => Some(format!("({counter} = {counter} + 1) % {count} == 0")),
            None => None,
        };
        if counted.is_some() {
            commands.push(format!("-gdb-set var {counter} = 0"));
        }
        let condition = match (&self.condition, counted) {
            (Some(condition), Some(counted)) => Some(format!("({condition}) && ({counted})")),
            (Some(condition), None) => Some(condition.clone()),
            (None, counted) => counted,
        };
        if let Some(condition) = condition {
            options.push_str(&format!(" -c {}", quote(&condition)));
        }
        let place = match &self.place {
            Place::Source(path, line) => format!("--source {} --line {line}", quote(path)),
            Place::Function(name) => format!("--function {}", quote(name)),
        };
        commands.push(format!("-break-insert -f{options} {place}"));
        commands
    }

    /// The expressions to evaluate when ranks hit it.
    pub(crate) fn expressions(&self) -> Vec<&str> {
        let pieces = self.log.as_deref().unwrap_or_default().iter();
        pieces
            .filter_map(|piece| if let Piece::Expression(text) = piece { Some(text.as_str()) } else { None })
            .collect()
    }

    fn is_of(&self, kind: &Kind) -> bool {
        match (&self.place, kind) {
            (Place::Source(path, _), Kind::Source(of)) => path == of,
            (Place::Function(_), Kind::Function) => true,
            _ => false,
        }
    }
}

fn some(text: Option<&str>) -> Option<String> {
    text.map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
}

impl Hits {
    fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}' is no count of hits: write 5 or >=5, >5, ==5, or %5");
        let digits_from = text.find(|sign: char| sign.is_ascii_digit()).ok_or_else(bad)?;
        let count: u64 = text[digits_from..].trim().parse().map_err(|_| bad())?;
        match text[..digits_from].trim() {
            "" | ">=" => Ok(Self::From(count)),
            ">" => Ok(Self::From(count.saturating_add(1))),
            "=" | "==" => Ok(Self::Exactly(count)),
            "%" if count > 0 => Ok(Self::Each(count)),
            _ => Err(bad()),
        }
    }
}

/// Parses a text with expressions in braces.
fn parse_log(text: &str) -> Result<Vec<Piece>, String> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    while let Some((before, behind)) = rest.split_once('{') {
        let (expression, after) =
            behind.split_once('}').ok_or_else(|| format!("a brace of '{text}' has no end"))?;
        if !before.is_empty() {
            pieces.push(Piece::Text(before.to_owned()));
        }
        pieces.push(Piece::Expression(expression.to_owned()));
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.to_owned()));
    }
    let count = pieces.iter().filter(|piece| matches!(piece, Piece::Expression(_))).count();
    if count > MAX_EXPRESSIONS {
        return Err(format!("a log message has {MAX_EXPRESSIONS} expressions at most"));
    }
    Ok(pieces)
}

impl Breakpoint {
    /// Converts the breakpoint to the form that editors expect.
    pub(crate) fn to_json(&self, first_line: i64) -> Value {
        let mut json = json!({ "id": self.id, "verified": self.line > 0 });
        if self.line > 0 {
            json["line"] = (self.line - 1 + first_line).into();
        }
        if let Some(message) = &self.message {
            json["message"] = short(message, 1000).into();
        }
        json
    }

    /// Takes the result of these ranks' gdbs.
    pub(crate) fn take(&mut self, fields: &Fields, ranks: &RankSet) {
        let Some(tuple) = fields.tuple("bkpt") else { return };
        // A breakpoint with several locations has its line in the first location.
        let line = tuple.text("line").or_else(|| {
            let places = tuple.list("locations");
            places.iter().find_map(|(_, place)| crate::values::as_tuple(place)?.text("line"))
        });
        if let Some(number) = tuple.text("number").and_then(|number| number.parse().ok()) {
            self.add_number(number, ranks);
        }
        match line.and_then(|line| line.parse().ok()) {
            Some(line) => {
                self.line = line;
                self.message = None;
            }
            None if self.line > 0 => {}
            None if tuple.text("pending").is_some() => {
                self.message = Some("not in what is loaded yet: it is set when a library has it".to_owned());
            }
            // A function without debug information has only an address.
            None => self.line = self.wanted_line(),
        }
    }

    /// Takes the reason why gdb cannot set it.
    pub(crate) fn refuse(&mut self, why: &str) {
        if self.line == 0 {
            self.message = Some(why.to_owned());
        }
    }

    /// Handles a hit. Returns whether its line was unknown before.
    pub(crate) fn hit(&mut self, line: u32) -> bool {
        let is_news = self.line == 0;
        if is_news {
            self.line = i64::from(line).max(1);
            self.message = None;
        }
        is_news
    }

    fn wanted_line(&self) -> i64 {
        match self.wanted.place {
            Place::Source(_, line) => line,
            Place::Function(_) => 1,
        }
    }

    fn add_number(&mut self, number: u32, ranks: &RankSet) {
        // A gdb that was restarted gives other numbers.
        for (_, of) in &mut self.numbers {
            *of = of.difference(ranks);
        }
        self.numbers.retain(|(_, of)| !of.is_empty());
        match self.numbers.iter_mut().find(|(it, _)| *it == number) {
            Some((_, of)) => *of = of.union(ranks),
            None => self.numbers.push((number, ranks.clone())),
        }
    }
}

impl Breakpoints {
    pub(crate) fn all(&self) -> &[Breakpoint] {
        &self.all
    }

    pub(crate) fn get_mut(&mut self, id: i64) -> Option<&mut Breakpoint> {
        self.all.iter_mut().find(|it| it.id == id)
    }

    pub(crate) fn get(&self, id: i64) -> Option<&Breakpoint> {
        self.all.iter().find(|it| it.id == id)
    }

    /// The breakpoint to which a rank's gdb gave this number.
    pub(crate) fn of_number(&self, number: u32, rank: Rank) -> Option<&Breakpoint> {
        let has = |it: &&Breakpoint| it.numbers.iter().any(|(its, of)| *its == number && of.contains(rank));
        self.all.iter().find(has)
    }

    /// Replaces the breakpoints of one kind in a session. Returns the ids in the order of `wanted`, each with whether
    /// it is new, and the removed breakpoints.
    ///
    /// A breakpoint of another session is shared if it covers all these ranks.
    pub(crate) fn want(
        &mut self,
        owner: Client,
        kind: &Kind,
        wanted: &[Wanted],
        ranks: &RankSet,
    ) -> (Vec<(i64, bool)>, Vec<Breakpoint>) {
        let mut ids: Vec<(i64, bool)> = Vec::new();
        for wanted in wanted {
            let is_free = |it: &Breakpoint| !ids.iter().any(|(id, _)| *id == it.id);
            let serves = |it: &Breakpoint| it.owner == owner || ranks.difference(&it.ranks).is_empty();
            let found = self.all.iter().find(|it| it.wanted == *wanted && is_free(it) && serves(it));
            ids.push(match found {
                Some(found) => (found.id, false),
                None => (self.add(owner, wanted, ranks), true),
            });
        }
        let is_old = |it: &Breakpoint| {
            it.owner == owner && it.wanted.is_of(kind) && !ids.iter().any(|(id, _)| *id == it.id)
        };
        let old = self.all.iter().filter(|it| is_old(it)).cloned().collect();
        self.all.retain(|it| !is_old(it));
        (ids, old)
    }

    fn add(&mut self, owner: Client, wanted: &Wanted, ranks: &RankSet) -> i64 {
        self.last += 1;
        self.all.push(Breakpoint {
            id: self.last,
            owner,
            wanted: wanted.clone(),
            ranks: ranks.clone(),
            numbers: Vec::new(),
            line: 0,
            message: None,
        });
        self.last
    }

    /// Removes the breakpoints of a session that has ended.
    pub(crate) fn remove_of(&mut self, owner: Client) -> Vec<Breakpoint> {
        let (old, all) = std::mem::take(&mut self.all).into_iter().partition(|it| it.owner == owner);
        self.all = all;
        old
    }
}

/// The commands that delete breakpoints, and the ranks whose gdbs need them.
pub(crate) fn build_deletes(old: &[Breakpoint]) -> Vec<(String, RankSet)> {
    let mut by_ranks: Vec<(String, RankSet)> = Vec::new();
    for (number, ranks) in old.iter().flat_map(|it| &it.numbers) {
        match by_ranks.iter_mut().find(|(_, of)| of == ranks) {
            Some((command, _)) => command.push_str(&format!(" {number}")),
            None => by_ranks.push((format!("-break-delete {number}"), ranks.clone())),
        }
    }
    by_ranks
}

#[cfg(test)]
mod tests {
    use gantry_gdb::mi::{Record, parse_line};

    use super::*;

    fn set(text: &str) -> RankSet {
        text.parse().unwrap()
    }

    fn source(json: &str) -> Result<Wanted, String> {
        Wanted::of_source("/x/a b.c", &serde_json::from_str(json).unwrap(), 1)
    }

    fn fields(line: &str) -> Fields {
        match parse_line(line.as_bytes()) {
            Record::Done { results, .. } => results,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn gdb_gets_commands() {
        let check =
            |json: &str, expected: &[&str]| assert_eq!(source(json).unwrap().build_commands(7), expected);
        let place = "--source \"/x/a b.c\" --line 3";
        check(r#"{"line":3}"#, &[&format!("-break-insert -f {place}")]);
        check(
            r#"{"line":3,"condition":"s == \"x\""}"#,
            &[&format!("-break-insert -f -c \"s == \\\"x\\\"\" {place}")],
        );
        check(r#"{"line":3,"hitCondition":">= 5"}"#, &[&format!("-break-insert -f -i 4 {place}")]);
        check(
            r#"{"line":3,"hitCondition":"%5","condition":"n"}"#,
            &[
                "-gdb-set var $gantry_hits7 = 0",
                &format!(
                    "-break-insert -f -c \"(n) && (($gantry_hits7 = $gantry_hits7 + 1) % 5 == 0)\" {place}"
                ),
            ],
        );
        for bad in [
            r#"{"line":3,"hitCondition":"often"}"#,
            r#"{"line":3,"hitCondition":"%0"}"#,
            r#"{"line":3,"logMessage":"{a"}"#,
        ] {
            assert!(source(bad).is_err(), "{bad}");
        }
        let log = source(r#"{"line":3,"logMessage":"n = {n}, {m}"}"#).unwrap();
        assert_eq!(log.expressions(), ["n", "m"]);
        let function = FunctionBreakpoint { name: "main".to_owned(), condition: None, hit_condition: None };
        let commands = Wanted::of_function(&function).unwrap().build_commands(1);
        assert_eq!(commands, ["-break-insert -f --function \"main\""]);
    }

    #[test]
    fn what_is_wanted_again_stays() {
        let mut all = Breakpoints::default();
        let kind = Kind::Source("/x/a b.c".to_owned());
        let wanted = |lines: &[i64]| -> Vec<Wanted> {
            lines.iter().map(|line| source(&format!("{{\"line\":{line}}}")).unwrap()).collect()
        };
        let (ids, old) = all.want(Client(1), &kind, &wanted(&[3, 5]), &set("0-3"));
        assert_eq!((ids, old.len()), (vec![(1, true), (2, true)], 0));
        all.get_mut(1).unwrap().take(&fields("^done,bkpt={number=\"2\",line=\"4\"}"), &set("0-3"));
        assert_eq!(all.get(1).unwrap().to_json(0), json!({"id": 1, "verified": true, "line": 3}));
        all.get_mut(2).unwrap().take(&fields("^done,bkpt={number=\"3\",pending=\"x\"}"), &set("0-2"));
        assert_eq!(all.get(2).unwrap().to_json(1)["verified"], false);
        assert!(all.get_mut(2).unwrap().hit(9) && !all.get_mut(2).unwrap().hit(9));
        assert_eq!(all.of_number(3, Rank(1)).map(|it| it.id), Some(2));
        assert!(all.of_number(3, Rank(3)).is_none());
        // A partial session requests the same breakpoint.
        let (ids, _) = all.want(Client(2), &kind, &wanted(&[5, 6]), &set("1"));
        assert_eq!(ids, [(2, false), (3, true)]);
        let (ids, old) = all.want(Client(1), &kind, &wanted(&[5]), &set("0-3"));
        assert_eq!((ids, old.len(), old[0].id), (vec![(2, false)], 1, 1));
        assert_eq!(build_deletes(&old), [("-break-delete 2".to_owned(), set("0-3"))]);
        assert_eq!(all.remove_of(Client(2)).len(), 1);
        assert_eq!(all.all().len(), 1);
    }

    #[test]
    fn numbers_are_those_of_the_gdb_that_a_rank_has_now() {
        let mut all = Breakpoints::default();
        all.want(Client(1), &Kind::Function, &[source(r#"{"line":1}"#).unwrap()], &set("0-3"));
        let it = all.get_mut(1).unwrap();
        it.add_number(1, &set("0-3"));
        it.add_number(4, &set("2"));
        it.add_number(4, &set("3"));
        assert_eq!(it.numbers, [(1, set("0-1")), (4, set("2-3"))]);
        it.refuse("no");
        assert_eq!(it.to_json(1)["message"], "no");
    }
}
