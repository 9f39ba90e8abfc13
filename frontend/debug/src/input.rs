//! Parses a typed line. A line that does not start with one of our own commands goes to gdb.

use gantry_types::id::Rank;

/// The action that a line asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The line is empty.
    Nothing,
    /// Show the current set, or make another set current.
    Focus(Option<String>),
    /// Give a set a name, or list all names.
    Group(Option<(String, String)>),
    /// Show the state of all ranks.
    Ranks,
    /// Interrupt ranks.
    Interrupt,
    /// Wait until the ranks are stopped.
    Wait,
    /// Show the raw output of a rank's gdb.
    Raw(Rank),
    /// Show which ranks of two sets have different values.
    Compare {
        /// The first set.
        one: String,
        /// The second set.
        other: String,
        /// The expression to compare.
        expression: String,
    },
    /// Continue ranks from stop to stop, until the values of this expression differ.
    RunUntilDifferent(String),
    /// Show the help.
    Help,
    /// Quit.
    Quit,
    /// Read commands from a file.
    Script(String),
    /// A command for gdb.
    Gdb(String),
}

/// A line: its action, and the ranks it is for. Without a set the current set is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The set before the command, as in `@0,3-5 bt`.
    pub set: Option<String>,
    /// The action.
    pub input: Input,
}

/// Why a line cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadLine {
    /// Wrong usage of one of our own commands.
    #[error("usage: {0}")]
    Usage(&'static str),
    /// A command for which gdb would read more lines.
    #[error(
        "'{0}' reads more lines, which cannot be typed here: write them to a file that the nodes see, and type: source FILE"
    )]
    NeedsLines(String),
    /// A command that starts programs.
    #[error("'{0}' starts a program: the ranks are there already")]
    Starts(String),
}

/// Our own commands: their usage and effect.
pub const OWN: [(&str, &str); 12] = [
    ("focus [SET]", "make a set of ranks the current one: commands go to it"),
    ("@SET COMMAND", "one command for another set; a set with a blank needs parentheses: @(at solve) bt"),
    ("group [NAME SET]", "give a set a name, or list the names"),
    ("ranks", "show which ranks stand, run and have ended, and where"),
    ("interrupt", "stop the current set where it is; so does Ctrl-C"),
    ("wait", "wait until the current set stands"),
    ("compare SET SET EXPRESSION", "show the ranks that have another value"),
    ("run-until-different EXPR", "continue from stop to stop, until ranks have different values"),
    ("raw RANK", "show all that a rank's gdb was told and has said"),
    ("script FILE", "read commands from a file on this machine"),
    ("help [COMMAND]", "show this, or gdb's own help of a command"),
    ("quit", "leave; ranks that were launched end, others go on as they were"),
];

/// Commands for which gdb always reads more lines.
const READ_LINES: [&str; 5] = ["commands", "define", "document", "python-interactive", "guile-repl"];

/// Commands for which gdb reads more lines only when they have no arguments.
const READ_LINES_ALONE: [&str; 5] = ["python", "py", "guile", "compile", "pi"];

/// Commands of gdb that start a program.
const START: [&str; 7] = ["run", "r", "start", "starti", "attach", "target", "create"];

impl Line {
    /// Reads a line.
    ///
    /// # Errors
    /// Wrong usage of one of our own commands, or a gdb command that cannot be used here.
    pub fn parse(text: &str) -> Result<Self, BadLine> {
        let text = text.trim();
        let Some(prefixed) = text.strip_prefix('@') else {
            return Ok(Self { set: None, input: parse_input(text)? });
        };
        let usage = BadLine::Usage("@SET COMMAND, such as: @0,3-5 bt");
        let (set, rest) = match prefixed.strip_prefix('(') {
            Some(inner) => inner.split_once(')').ok_or(usage)?,
            None => prefixed.split_once(char::is_whitespace).ok_or(usage)?,
        };
        Ok(Self { set: Some(set.trim().to_owned()), input: parse_input(rest.trim())? })
    }
}

fn parse_input(text: &str) -> Result<Input, BadLine> {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let rest = rest.trim();
    let alone = |input, usage| if rest.is_empty() { Ok(input) } else { Err(BadLine::Usage(usage)) };
    match word {
        "" => Ok(Input::Nothing),
        _ if text.starts_with('#') => Ok(Input::Nothing),
        "focus" => Ok(Input::Focus((!rest.is_empty()).then(|| rest.to_owned()))),
        "group" if rest.is_empty() => Ok(Input::Group(None)),
        "group" => {
            let (name, set) = rest.split_once(char::is_whitespace).ok_or(BadLine::Usage("group NAME SET"))?;
            Ok(Input::Group(Some((name.to_owned(), set.trim().to_owned()))))
        }
        "ranks" => alone(Input::Ranks, "ranks"),
        "interrupt" => alone(Input::Interrupt, "interrupt"),
        "wait" => alone(Input::Wait, "wait"),
        "raw" => rest.parse().map(|rank| Input::Raw(Rank(rank))).map_err(|_| BadLine::Usage("raw RANK")),
        "compare" => parse_compare(rest).ok_or(BadLine::Usage("compare SET SET EXPRESSION")),
        "run-until-different" if rest.is_empty() => Err(BadLine::Usage("run-until-different EXPR")),
        "run-until-different" => Ok(Input::RunUntilDifferent(rest.to_owned())),
        "script" if rest.is_empty() => Err(BadLine::Usage("script FILE")),
        "script" => Ok(Input::Script(rest.to_owned())),
        "help" if rest.is_empty() => Ok(Input::Help),
        "quit" | "q" | "exit" => Ok(Input::Quit),
        _ if READ_LINES.contains(&word) || (rest.is_empty() && READ_LINES_ALONE.contains(&word)) => {
            Err(BadLine::NeedsLines(word.to_owned()))
        }
        _ if START.contains(&word) => Err(BadLine::Starts(word.to_owned())),
        _ => Ok(Input::Gdb(text.to_owned())),
    }
}

fn parse_compare(rest: &str) -> Option<Input> {
    let (one, rest) = take_set(rest)?;
    let (other, rest) = take_set(rest.trim())?;
    let expression = rest.trim();
    (!expression.is_empty()).then(|| Input::Compare { one, other, expression: expression.to_owned() })
}

fn take_set(text: &str) -> Option<(String, &str)> {
    let (set, rest) = match text.strip_prefix('(') {
        Some(inner) => inner.split_once(')')?,
        None => text.split_once(char::is_whitespace)?,
    };
    Some((set.to_owned(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_their_meaning() {
        let check = |text: &str, set: Option<&str>, input: Input| {
            let line = Line { set: set.map(str::to_owned), input };
            assert_eq!(Line::parse(text), Ok(line), "{text}");
        };
        let gdb = |text: &str| Input::Gdb(text.to_owned());
        check("  ", None, Input::Nothing);
        check("# a remark", None, Input::Nothing);
        check("bt 3", None, gdb("bt 3"));
        check("@0,3-5 bt", Some("0,3-5"), gdb("bt"));
        check("@(at solve) print x", Some("at solve"), gdb("print x"));
        check("focus", None, Input::Focus(None));
        check("focus 0,8-15", None, Input::Focus(Some("0,8-15".to_owned())));
        check("group odd class 1", None, Input::Group(Some(("odd".to_owned(), "class 1".to_owned()))));
        check("@all interrupt", Some("all"), Input::Interrupt);
        check("raw 7", None, Input::Raw(Rank(7)));
        check("@0,3 run-until-different a[n]", Some("0,3"), Input::RunUntilDifferent("a[n]".to_owned()));
        check("help break", None, gdb("help break"));
        check("python print(1)", None, gdb("python print(1)"));
        let compare =
            Input::Compare { one: "0".to_owned(), other: "at f".to_owned(), expression: "a + b".to_owned() };
        check("compare 0 (at f) a + b", None, compare);
    }

    #[test]
    fn lines_that_make_no_sense_are_refused() {
        for bad in [
            "@0",
            "@(0 bt",
            "raw",
            "raw x",
            "group x",
            "compare 0 1",
            "wait 3",
            "script",
            "run-until-different",
        ] {
            assert!(matches!(Line::parse(bad), Err(BadLine::Usage(_))), "{bad}");
        }
        assert_eq!(Line::parse("commands 1"), Err(BadLine::NeedsLines("commands".to_owned())));
        assert_eq!(Line::parse("python"), Err(BadLine::NeedsLines("python".to_owned())));
        assert_eq!(Line::parse("@0 run"), Err(BadLine::Starts("run".to_owned())));
    }
}
