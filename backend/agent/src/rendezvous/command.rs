//! `gantry-agent rendezvous`: the rendezvous for ranks that are scripts.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use gantry_backend::Error;
use gantry_backend::rendezvous::{MAX_ITEM_BYTES, Rank, Rendezvous, Standing, Status};
use gantry_types::error::Kind;
use gantry_types::foreign::ForeignText;

use crate::ranks::with_causes;

const HELP: &str = "gantry-agent rendezvous: exchange data among the ranks of an app. To be called by ranks, which find their app by GANTRY_JOB_HANDLE.

usage: gantry-agent rendezvous put  [OPTIONS] [FILE]   register FILE, or standard input, as this rank's item
       gantry-agent rendezvous get  [OPTIONS] [FILE]   wait until all have registered; write all items to FILE, or standard output
       gantry-agent rendezvous wait [OPTIONS]          wait until all have registered
       gantry-agent rendezvous list [OPTIONS]          show what there is and how it stands

  --item N        get: what rank N has registered, as it is, as soon as it has
  --name NAME     one of that name instead of the app's own
  --expected N    with --name: make it, for N ranks, if it is not there
  --multijob      the one above, of the app's multijob (rank 0 puts there what it gets here)
  --rank N        refuse unless this process belongs to rank N
  --timeout S     give up after S seconds; 300 if not given

All items come as: their number, a space, and for each its number of bytes, a space, its bytes; in the order of ranks.

exit codes: 0 done, 1 another error, 2 wrong arguments, 3 broken (a rank ended before it had registered), 4 late,
            5 no agent to ask, 6 refused (registered already, not a rank, no such rendezvous)

examples:
  hostname | gantry-agent rendezvous put && gantry-agent rendezvous get > everybody
  echo \"$PORT\" | gantry-agent rendezvous put; gantry-agent rendezvous get --item 0
  gantry-agent rendezvous put --name ready --expected 2 /dev/null && gantry-agent rendezvous wait --name ready
";

/// Timeout if the arguments set none.
const TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Put,
    Get,
    Wait,
    List,
}

/// The request on the command line.
#[derive(Debug, PartialEq, Eq)]
struct Words {
    verb: Verb,
    item: Option<u32>,
    name: Option<String>,
    expected: Option<u32>,
    multijob: bool,
    rank: Option<u32>,
    timeout: Duration,
    file: Option<PathBuf>,
}

/// How the command failed.
enum Ended {
    /// The arguments are wrong.
    Usage(String),
    /// The agent has refused, or could not be reached.
    Failed(Error),
    /// A file or a pipe failed.
    File(String),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Runs the command in `args`, and returns the exit code.
pub(crate) fn run(args: &[OsString]) -> u8 {
    if matches!(args, [help] if help == "--help" || help == "-h") {
        return match io::stdout().write_all(HELP.as_bytes()) {
            Ok(()) => 0,
            Err(_) => 1,
        };
    }
    let done = parse_words(args).map_err(Ended::Usage).and_then(|words| carry_out(&words));
    let (text, hint, code) = match done {
        Ok(()) => return 0,
        Err(Ended::Usage(text)) => (text, Some("see gantry-agent rendezvous --help".to_owned()), 2),
        Err(Ended::File(text)) => (text, None, 1),
        Err(Ended::Failed(error)) => {
            (with_causes(&error), error.hint().map(str::to_owned), exit_code(&error))
        }
    };
    let hint = hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
    let said = format!("gantry-agent rendezvous: {text}{hint}");
    drop(writeln!(io::stderr(), "{}", ForeignText::from(said.as_str())));
    code
}

fn exit_code(error: &Error) -> u8 {
    match error {
        Error::Broken(_) => 3,
        Error::TimedOut { .. } => 4,
        Error::NotStartedByGantry { .. }
        | Error::BadEnvironment { .. }
        | Error::Unreachable { .. }
        | Error::ForeignAgent { .. } => 5,
        Error::Lost(_) => 5,
        Error::Refused(failure) if failure.kind() == Kind::Gone => 5,
        Error::Refused(_) => 6,
        _ => 1,
    }
}

fn parse_words(args: &[OsString]) -> Result<Words, String> {
    let (verb, rest) = args.split_first().ok_or("use put, get, wait or list")?;
    let verb = match verb.to_str() {
        Some("put") => Verb::Put,
        Some("get") => Verb::Get,
        Some("wait") => Verb::Wait,
        Some("list") => Verb::List,
        _ => return Err(format!("{verb:?} is not one of put, get, wait and list")),
    };
    let mut words = Words {
        verb,
        item: None,
        name: None,
        expected: None,
        multijob: false,
        rank: None,
        timeout: TIMEOUT,
        file: None,
    };
    let mut rest = rest.iter();
    while let Some(arg) = rest.next() {
        let Some(option) = arg.to_str().filter(|text| text.starts_with("--")) else {
            if words.file.replace(arg.into()).is_some() || matches!(verb, Verb::Wait | Verb::List) {
                return Err(format!("{arg:?} is one argument too many"));
            }
            continue;
        };
        if option == "--multijob" {
            words.multijob = true;
            continue;
        }
        let (option, value) = match option.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (option, rest.next().and_then(|value| value.to_str())),
        };
        let value = value.ok_or_else(|| format!("{option} needs a value"))?;
        let number = || value.parse::<u32>().map_err(|_| format!("{option} needs a number, not {value:?}"));
        match option {
            "--item" if verb == Verb::Get => words.item = Some(number()?),
            "--name" => words.name = Some(value.to_owned()),
            "--expected" => words.expected = Some(number()?),
            "--rank" => words.rank = Some(number()?),
            "--timeout" => {
                words.timeout =
                    parse_seconds(value).ok_or_else(|| format!("{option} needs seconds, not {value:?}"))?;
            }
            _ => return Err(format!("{option} is not an option here")),
        }
    }
    match words {
        Words { name: Some(_), multijob: true, .. } => Err("--name and --multijob are two".to_owned()),
        Words { name: None, expected: Some(_), .. } => Err("--expected needs --name".to_owned()),
        words => Ok(words),
    }
}

/// Seconds, with or without decimals. Code that parses any decimal number is large.
fn parse_seconds(text: &str) -> Option<Duration> {
    let (seconds, parts) = text.split_once('.').unwrap_or((text, "0"));
    let digits = u32::try_from(parts.len()).ok().filter(|digits| (1..=9).contains(digits))?;
    let nanos = parts.parse::<u32>().ok()?.checked_mul(10_u32.pow(9 - digits))?;
    Some(Duration::new(seconds.parse().ok()?, nanos))
}

fn carry_out(words: &Words) -> Result<(), Ended> {
    let rendezvous = match (&words.name, words.multijob) {
        (None, false) => Rendezvous::of_job()?,
        (_, true) => Rendezvous::of_multijob()?,
        (Some(name), false) => {
            let name = name.parse().map_err(|_| {
                Ended::Usage(format!("{name:?} is not a valid name: use letters, digits, '.', '_' and '-'"))
            })?;
            Rendezvous::of_job()?.named(name, words.expected)
        }
    };
    let rendezvous = match words.rank {
        Some(rank) => rendezvous.as_rank(Rank(rank)),
        None => rendezvous,
    };
    let timeout = words.timeout;
    match (words.verb, words.item) {
        (Verb::Put, _) => Ok(rendezvous.register(&read_input(words)?, timeout)?),
        (Verb::Wait, _) => Ok(rendezvous.wait(timeout)?),
        (Verb::Get, Some(item)) => {
            let item = rendezvous.get_item(item, timeout)?;
            open_output(words)?.write_all(&item).map_err(|error| cannot("write", &error))
        }
        (Verb::Get, None) => {
            let subscription = rendezvous.subscribe(timeout)?;
            let mut out = open_output(words)?;
            subscription.wait_into(&mut out)?;
            out.flush().map_err(|error| cannot("write", &error))
        }
        (Verb::List, _) => {
            let lines = rendezvous.list(timeout)?.into_iter().map(|status| show(&status));
            let text: String = lines.collect();
            io::stdout().write_all(text.as_bytes()).map_err(|error| cannot("write", &error))
        }
    }
}

fn show(status: &Status) -> String {
    let Status { resource, level, expected, registered, standing, above } = status;
    let standing = match standing {
        Standing::Open => "open".to_owned(),
        Standing::Complete => "complete".to_owned(),
        Standing::Broken(broken) => format!("broken: {} {} {}", broken.what, broken.member, broken.why),
    };
    let above =
        above.as_ref().map(|(above, number)| format!("\tmember {number} of {above}")).unwrap_or_default();
    format!("{resource}\tlevel {level}\t{registered} of {expected}\t{standing}{above}\n")
}

fn read_input(words: &Words) -> Result<Vec<u8>, Ended> {
    let mut item = Vec::new();
    // One byte above the limit, so that the refusal names the right reason.
    let most = MAX_ITEM_BYTES + 1;
    let read = match &words.file {
        Some(path) => File::open(path).and_then(|file| file.take(most).read_to_end(&mut item)),
        None => io::stdin().lock().take(most).read_to_end(&mut item),
    };
    read.map_err(|error| cannot("read the item", &error))?;
    Ok(item)
}

fn open_output(words: &Words) -> Result<Box<dyn Write>, Ended> {
    match &words.file {
        Some(path) => {
            let file =
                File::create(path).map_err(|error| cannot(&format!("write {}", path.display()), &error))?;
            Ok(Box::new(file))
        }
        None => Ok(Box::new(io::stdout())),
    }
}

fn cannot(what: &str, error: &io::Error) -> Ended {
    Ended::File(format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Words, String> {
        let args: Vec<OsString> = text.split_whitespace().map(OsString::from).collect();
        parse_words(&args)
    }

    #[test]
    fn words_are_understood_or_refused_with_the_reason() {
        let words = parse("get --item 3 --name=ring --expected 4 --timeout 0.5 --rank 1 out").unwrap();
        assert_eq!((words.verb, words.item, words.name.as_deref()), (Verb::Get, Some(3), Some("ring")));
        assert_eq!((words.expected, words.rank), (Some(4), Some(1)));
        assert_eq!((words.timeout, words.file), (Duration::from_millis(500), Some("out".into())));
        assert!(parse("put --multijob").unwrap().multijob);
        for (text, reason) in [
            ("", "use put"),
            ("push", "not one of put"),
            ("put --item 3", "--item is not an option here"),
            ("get --item", "--item needs a value"),
            ("get --item three", "needs a number"),
            ("get --timeout -1", "needs seconds"),
            ("put a b", "one argument too many"),
            ("wait a", "one argument too many"),
            ("put --expected 3", "--expected needs --name"),
            ("put --multijob --name a", "are two"),
        ] {
            let said = parse(text).unwrap_err();
            assert!(said.contains(reason), "{text}: {said}");
        }
    }
}
