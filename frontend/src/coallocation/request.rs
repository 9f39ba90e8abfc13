//! Turns a specification into subjobs: the meaning of each attribute, and its allowed values.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use gantry_types::launch::{JobType, Wanted};

use super::rsl::{self, Operator, Position, Relation, RslError, Specification, Value};
use super::state::StartType;

/// A requested subjob.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Subrequest {
    /// Its name, for deleting it. None: the request gives no name.
    pub label: Option<String>,
    /// Its manager: the name of a workload manager, optionally followed by `://` and a place of it, or a name of the
    /// file of contacts.
    pub contact: String,
    /// How it takes part in the barrier.
    pub start: StartType,
    /// Whether it takes part in the messages between subjobs.
    pub comms: CommsType,
    /// Where its processes wait. None: at the program's call of the barrier, if the program needs the barrier's
    /// library, else before its first instruction.
    pub barrier: Option<BarrierPoint>,
    /// What to request from its manager. The place is the contact's.
    pub wanted: Wanted,
    /// The directory in which its processes start. None: this process's own.
    pub directory: Option<PathBuf>,
    /// Changes to their environment.
    pub environment: Vec<(OsString, OsString)>,
    /// What the first process reads. None: nothing.
    pub stdin: Option<PathBuf>,
    /// Where their output goes. None: where all other output of the job goes.
    pub stdout: Option<PathBuf>,
    /// The same for their standard error.
    pub stderr: Option<PathBuf>,
    /// Its position in the request.
    pub at: Position,
}

/// Whether a subjob takes part in the messages between subjobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommsType {
    /// It takes part, and all that do begin together.
    #[default]
    BlockingJoin,
    /// It does not take part.
    Independent,
}

/// Where a subjob's processes wait for the release.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BarrierPoint {
    /// Before their first instruction. Works for any program.
    #[default]
    Exec,
    /// Where the program calls the barrier.
    Runtime,
}

/// Most subjobs of a job: each is a launch of its own, with a launcher, a guard and connections on this machine.
pub(super) const MOST_SUBJOBS: usize = 1024;

/// Values for how a subjob takes part in the barrier.
const STARTS: [(&str, StartType); 3] = [
    ("strict-barrier", StartType::StrictBarrier),
    ("loose-barrier", StartType::LooseBarrier),
    ("no-barrier", StartType::NoBarrier),
];
const COMMS: [(&str, CommsType); 2] =
    [("blocking-join", CommsType::BlockingJoin), ("independent", CommsType::Independent)];
const BARRIERS: [(&str, BarrierPoint); 2] =
    [("exec", BarrierPoint::Exec), ("runtime", BarrierPoint::Runtime)];
const JOB_TYPES: [(&str, JobType); 3] =
    [("multiple", JobType::Multiple), ("single", JobType::Single), ("mpi", JobType::Mpi)];

/// Reads a request: a multi-request of conjunctions. `given` are names that are defined outside of it, such as the
/// environment's.
///
/// # Errors
/// What is wrong with it, and where: the text is no specification or no multi-request, or an attribute is unknown,
/// occurs twice, or has an invalid value.
pub fn parse_request(text: &str, given: &BTreeMap<String, String>) -> Result<Vec<Subrequest>, RslError> {
    let specification = rsl::parse(text)?.substitute(text, given)?;
    let start = Position { line: 1, column: 1 };
    let Specification::Multi(parts) = specification else {
        let message = "expected a multi-request, like +(&(resourceManagerContact=NAME)(executable=PROGRAM))";
        return Err(RslError::new(text, start, message));
    };
    let count = parts.iter().filter(|part| matches!(part, Specification::Conjunction(_))).count();
    if count > MOST_SUBJOBS {
        let message = format!(
            "the request has {count} subjobs; {MOST_SUBJOBS} are allowed, as each has a launcher and connections of its own here: \
             put ranks that share a program and a manager into one subjob by 'count'"
        );
        return Err(RslError::new(text, start, message));
    }
    let mut subrequests = Vec::with_capacity(count);
    for part in &parts {
        match part {
            Specification::Conjunction(attributes) => subrequests.push(read_subrequest(text, attributes)?),
            // It applies to the whole request: the names are already replaced.
            Specification::Relation(relation) if relation.attribute.is("rsl_substitution") => {}
            Specification::Relation(relation) => {
                let message = format!("'{}' is outside of every subjob", relation.attribute.as_str());
                return Err(RslError::new(text, relation.at, message));
            }
            _ => {
                let message = "a subjob is a conjunction: &(..)(..)";
                return Err(RslError::new(text, part.position().unwrap_or(start), message));
            }
        }
    }
    if subrequests.is_empty() {
        return Err(RslError::new(text, start, "the request has no subjob"));
    }
    Ok(subrequests)
}

/// As [`parse_request`], for one subjob that joins a job: a conjunction, or a multi-request of one.
///
/// # Errors
/// As [`parse_request`].
pub fn parse_subrequest(text: &str, given: &BTreeMap<String, String>) -> Result<Subrequest, RslError> {
    let many = match rsl::parse(text)?.substitute(text, given)? {
        Specification::Conjunction(attributes) => return read_subrequest(text, &attributes),
        Specification::Multi(parts) => parts,
        _ => Vec::new(),
    };
    if let [Specification::Conjunction(attributes)] = many.as_slice() {
        return read_subrequest(text, attributes);
    }
    Err(RslError::new(text, Position { line: 1, column: 1 }, "expected one subjob: &(..)(..)"))
}

fn read_subrequest(text: &str, attributes: &[Specification]) -> Result<Subrequest, RslError> {
    let mut reader = Reader { text, left: Vec::with_capacity(attributes.len()) };
    for attribute in attributes {
        match attribute {
            Specification::Relation(relation) => reader.push(relation)?,
            other => {
                let at = other.position().unwrap_or_default();
                return Err(RslError::new(
                    text,
                    at,
                    "a subjob has attributes only: choose one of its forms first",
                ));
            }
        }
    }
    let at = attributes.first().and_then(Specification::position).unwrap_or_default();
    let subrequest = reader.read(at)?;
    match reader.left.first() {
        None => Ok(subrequest),
        Some(unknown) => {
            let message = format!("'{}' is not an attribute of a subjob", unknown.attribute.as_str());
            Err(RslError::new(text, unknown.at, message))
        }
    }
}

/// Reads attributes, and knows which ones are still unread.
struct Reader<'a> {
    text: &'a str,
    left: Vec<&'a Relation>,
}

impl<'a> Reader<'a> {
    fn push(&mut self, relation: &'a Relation) -> Result<(), RslError> {
        let name = relation.attribute.as_str();
        if relation.attribute.is("rsl_substitution") {
            return Ok(());
        }
        if relation.operator != Operator::Equal {
            let message = format!("'{name}' takes '=', not '{}'", relation.operator);
            return Err(self.error(relation, message));
        }
        if self.left.iter().any(|known| known.attribute == relation.attribute) {
            return Err(self.error(relation, format!("'{name}' is given twice")));
        }
        self.left.push(relation);
        Ok(())
    }

    fn read(&mut self, at: Position) -> Result<Subrequest, RslError> {
        let missing = |name: &str| RslError::new(self.text, at, format!("a subjob needs '{name}'"));
        let (no_contact, no_program) = (missing("resourceManagerContact"), missing("executable"));
        let contact = self.text("resourceManagerContact")?.ok_or(no_contact)?;
        let wanted = Wanted {
            place: None,
            program: self.text("executable")?.ok_or(no_program)?.into(),
            args: self.texts("arguments")?.into_iter().map(OsString::from).collect(),
            count: self.number("count")?.unwrap_or(1),
            host_count: self.number("hostCount")?,
            job_type: self.choice("jobType", &JOB_TYPES)?,
            queue: self.text("queue")?,
            project: self.text("project")?,
            max_minutes: self.max_minutes()?,
            min_memory_mb: self.number("minMemory")?,
            max_memory_mb: self.number("maxMemory")?,
        };
        Ok(Subrequest {
            label: self.text("label")?,
            contact,
            start: self.choice("subjobStartType", &STARTS)?,
            comms: self.choice("subjobCommsType", &COMMS)?,
            barrier: self.barrier()?,
            wanted,
            directory: self.text("directory")?.map(PathBuf::from),
            environment: self.pairs("environment")?,
            stdin: self.text("stdin")?.map(PathBuf::from),
            stdout: self.text("stdout")?.map(PathBuf::from),
            stderr: self.text("stderr")?.map(PathBuf::from),
            at,
        })
    }

    /// Two attributes have this meaning.
    fn max_minutes(&mut self) -> Result<Option<u32>, RslError> {
        let second = self.left.iter().find(|relation| relation.attribute.is("maxTime")).copied();
        match (self.number("maxWallTime")?, self.number("maxTime")?, second) {
            (Some(one), Some(other), Some(relation)) if one != other => {
                Err(self.error(relation, "'maxTime' and 'maxWallTime' are the same, and differ here"))
            }
            (one, other, _) => Ok(one.or(other)),
        }
    }

    fn take(&mut self, name: &str) -> Option<&'a Relation> {
        let at = self.left.iter().position(|relation| relation.attribute.is(name))?;
        Some(self.left.remove(at))
    }

    /// The text of an attribute with one value.
    fn text(&mut self, name: &str) -> Result<Option<String>, RslError> {
        let Some(relation) = self.take(name) else { return Ok(None) };
        match relation.values.as_slice() {
            [Value::Literal(text)] => Ok(Some(text.clone())),
            _ => Err(self.error(relation, format!("'{name}' has one value"))),
        }
    }

    fn texts(&mut self, name: &str) -> Result<Vec<String>, RslError> {
        let Some(relation) = self.take(name) else { return Ok(Vec::new()) };
        let texts = relation.values.iter().map(|value| {
            let text = value.as_text().map(str::to_owned);
            text.ok_or_else(|| self.error(relation, format!("'{name}' has plain values, not {value}")))
        });
        texts.collect()
    }

    fn pairs(&mut self, name: &str) -> Result<Vec<(OsString, OsString)>, RslError> {
        let Some(relation) = self.take(name) else { return Ok(Vec::new()) };
        let pairs = relation.values.iter().map(|value| match value {
            Value::Sequence(pair) => match pair.as_slice() {
                [Value::Literal(name), Value::Literal(value)] if !name.is_empty() && !name.contains('=') => {
                    Ok((name.into(), value.into()))
                }
                _ => Err(self.error(relation, format!("'{name}' has pairs (NAME VALUE), not {value}"))),
            },
            value => Err(self.error(relation, format!("'{name}' has pairs (NAME VALUE), not {value}"))),
        });
        pairs.collect()
    }

    fn number(&mut self, name: &str) -> Result<Option<u32>, RslError> {
        let relation = self.left.iter().find(|relation| relation.attribute.is(name)).copied();
        let (Some(text), Some(relation)) = (self.text(name)?, relation) else { return Ok(None) };
        match text.parse::<u32>() {
            Ok(number) if number > 0 => Ok(Some(number)),
            _ => Err(self
                .error(relation, format!("'{name}' is a number above 0, not \"{}\"", text.escape_debug()))),
        }
    }

    fn barrier(&mut self) -> Result<Option<BarrierPoint>, RslError> {
        let given = self.left.iter().any(|relation| relation.attribute.is("barrierPoint"));
        let point = self.choice("barrierPoint", &BARRIERS)?;
        Ok(given.then_some(point))
    }

    /// One of several values, in any case. The default if the attribute is missing.
    fn choice<T: Copy + Default>(&mut self, name: &str, choices: &[(&str, T)]) -> Result<T, RslError> {
        let relation = self.left.iter().find(|relation| relation.attribute.is(name)).copied();
        let (Some(text), Some(relation)) = (self.text(name)?, relation) else { return Ok(T::default()) };
        let chosen = choices.iter().find(|(word, _)| word.eq_ignore_ascii_case(&text));
        chosen.map(|(_, choice)| *choice).ok_or_else(|| {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            let message = format!("'{name}' is one of {}, not \"{}\"", words.join(", "), text.escape_debug());
            self.error(relation, message)
        })
    }

    fn error(&self, relation: &Relation, message: impl Into<String>) -> RslError {
        RslError::new(self.text, relation.at, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<Subrequest>, String> {
        parse_request(text, &BTreeMap::new()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_example_of_the_document_is_read() {
        let text = "+(&(resourceManagerContact=RM1)(count=3)(executable=myprog.sparc))\n(&(resourceManagerContact=RM2)(count=2)(executable=myprog.rs6000))";
        let subrequests = parse(text).unwrap();
        let [first, second] = subrequests.as_slice() else { panic!("{subrequests:?}") };
        assert_eq!((first.contact.as_str(), first.wanted.count), ("RM1", 3));
        assert_eq!(
            (second.contact.as_str(), second.wanted.program.as_os_str()),
            ("RM2", "myprog.rs6000".as_ref())
        );
        assert_eq!((first.start, first.comms), (StartType::StrictBarrier, CommsType::BlockingJoin));
        assert_eq!((first.wanted.job_type, first.label.clone()), (JobType::Multiple, None));
    }

    #[test]
    fn more_subjobs_than_a_machine_can_launch_are_refused_with_the_limit() {
        let many = |count: usize| format!("+{}", "(&(resourceManagerContact=a)(executable=b))".repeat(count));
        assert_eq!(parse(&many(MOST_SUBJOBS)).unwrap().len(), MOST_SUBJOBS);
        let error = parse(&many(MOST_SUBJOBS + 1)).unwrap_err();
        assert!(error.contains("the request has 1025 subjobs; 1024 are allowed"), "{error}");
    }

    #[test]
    fn every_attribute_has_its_place() {
        let text = "+(rsl_substitution=(D /data))(& (resource_manager_contact=here)(LABEL=one)(subjobStartType=Loose-Barrier)
            (subjobCommsType=independent)(barrierPoint=runtime)(executable=$(D)/app)(arguments=-v \"two words\" $(D))(directory=$(D))
            (environment=(LEVEL 3)(EMPTY \"\"))(stdin=in)(stdout=out)(stderr=err)(count=8)(hostCount=2)(jobType=mpi)(queue=q)(project=p)
            (maxTime=5)(max_memory=100)(minMemory=50))";
        let subrequest = parse(text).unwrap().pop().unwrap();
        let wanted = Wanted {
            place: None,
            count: 8,
            host_count: Some(2),
            job_type: JobType::Mpi,
            queue: Some("q".into()),
            project: Some("p".into()),
            max_minutes: Some(5),
            min_memory_mb: Some(50),
            max_memory_mb: Some(100),
            program: "/data/app".into(),
            args: vec!["-v".into(), "two words".into(), "/data".into()],
        };
        let expected = Subrequest {
            label: Some("one".into()),
            contact: "here".into(),
            start: StartType::LooseBarrier,
            comms: CommsType::Independent,
            barrier: Some(BarrierPoint::Runtime),
            wanted,
            directory: Some("/data".into()),
            environment: vec![("LEVEL".into(), "3".into()), ("EMPTY".into(), "".into())],
            stdin: Some("in".into()),
            stdout: Some("out".into()),
            stderr: Some("err".into()),
            at: Position::default(),
        };
        assert_eq!(subrequest, expected);
    }

    #[test]
    fn what_is_wrong_with_a_subjob_is_named() {
        let with = |attributes: &str| {
            parse(&format!("+(&(resourceManagerContact=x)(executable=y){attributes})")).unwrap_err()
        };
        let place = "line 1, column 45: ";
        for (attributes, expected) in [
            ("(cuont=3)", "'cuont' is not an attribute of a subjob"),
            ("(count=0)", "'count' is a number above 0, not \"0\""),
            ("(count=many)", "'count' is a number above 0, not \"many\""),
            ("(count<3)", "'count' takes '=', not '<'"),
            ("(Execu_table=z)", "'Execu_table' is given twice"),
            ("(arguments=a (b))", "'arguments' has plain values, not (b)"),
            ("(environment=A b)", "'environment' has pairs (NAME VALUE), not A"),
            ("(environment=(\"A=b\" c))", "'environment' has pairs (NAME VALUE), not (\"A=b\" c)"),
            (
                "(subjobStartType=never)",
                "'subjobStartType' is one of strict-barrier, loose-barrier, no-barrier, not \"never\"",
            ),
            ("(stdout=a b)", "'stdout' has one value"),
            ("(maxTime=1)(maxWallTime=2)", "'maxTime' and 'maxWallTime' are the same, and differ here"),
            ("(|(count=1)(count=2))", "a subjob has attributes only: choose one of its forms first"),
        ] {
            let got = with(attributes);
            let expected = match attributes.starts_with("(|") {
                true => format!("line 1, column 47: {expected}"),
                false => format!("{place}{expected}"),
            };
            assert_eq!(got, expected, "{attributes}");
        }
        let check = |text: &str, expected: &str| assert_eq!(parse(text).unwrap_err(), expected);
        check(
            "&(executable=x)",
            "line 1, column 1: expected a multi-request, like +(&(resourceManagerContact=NAME)(executable=PROGRAM))",
        );
        check("+(&(executable=x))", "line 1, column 5: a subjob needs 'resourceManagerContact'");
        check("+(&(resourceManagerContact=x))", "line 1, column 5: a subjob needs 'executable'");
        check("+(count=5)", "line 1, column 3: 'count' is outside of every subjob");
        check("+(rsl_substitution=(A b))", "line 1, column 1: the request has no subjob");
    }

    #[test]
    fn one_subjob_comes_with_a_prefix_or_two() {
        let inner = "(resourceManagerContact=x)(executable=y)";
        let one = parse_subrequest(&format!("&{inner}"), &BTreeMap::new());
        assert_eq!(parse_subrequest(&format!("+(&{inner})"), &BTreeMap::new()), one);
        let two = parse_subrequest(&format!("+(&{inner})(&{inner})"), &BTreeMap::new());
        assert_eq!(two.unwrap_err().to_string(), "line 1, column 1: expected one subjob: &(..)(..)");
    }
}
