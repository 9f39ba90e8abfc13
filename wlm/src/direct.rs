//! Parses the arguments of a launch without a launcher: the options that users of `mpiexec` would try, the programs and
//! their arguments.
//!
//! `[OPTIONS] PROGRAM ARGS [: [OPTIONS] PROGRAM ARGS]...`. After `--`, everything is one program and its arguments.
//! Pure.
//!
//! Sources: MPI 4.1, section 11.5; the common options of MPICH's `mpiexec` and of Open MPI's `mpirun`.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use gantry_types::id::Rank;
use gantry_types::launch::{Bind, MixedPart, Mpi};
use gantry_types::rank_set::RankSet;

use crate::slots::{HostSlots, MAX_RANKS, MapBy, parse_map_by, place};
use crate::{Error, Result};

/// The options before a program that every WLM accepts.
const COMMON: &str = "-n RANKS, --ppn RANKS, --map-by slot|node, --bind-to none|core, --mpi pmi|pmix, -env NAME VALUE, \
     -wdir FOLDER, --label, ':' before the next program, and '--' to end the options";

/// Spellings of the option for labels, as launchers have them.
const LABELS: [&str; 5] = ["--label", "-prepend-rank", "--prepend-rank", "-tag-output", "--tag-output"];

/// Separates programs.
const NEXT: &str = ":";

/// The additional options of a WLM.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dialect {
    /// Spellings of the option for the number of hosts.
    pub(crate) nodes: &'static [&'static str],
    /// The options that the WLM parses itself, for a hint. Empty, or with `, ` at the end.
    pub(crate) own: &'static str,
    /// Whether `-l` asks for labels, as in Hydra. For others it has another meaning.
    pub(crate) letter_labels: bool,
}

/// The parsed arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Ranks of all programs. `None`: as many as there are places.
    pub(crate) ranks: Option<u32>,
    per_host: Option<u32>,
    /// The number of hosts to use, from the first one on.
    pub(crate) nodes: Option<u32>,
    map_by: MapBy,
    pub(crate) bind: Bind,
    pub(crate) mpi: Mpi,
    /// Lines of output are to begin with the rank.
    pub(crate) labels: bool,
    programs: Vec<Program>,
}

/// One program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Program {
    ranks: Option<u32>,
    part: MixedPart,
}

/// An option, and the source of its value.
pub(crate) struct Given<'a, 'b> {
    /// The argument as it was written.
    pub(crate) arg: &'a OsString,
    /// The option's name, without a value behind `=`.
    pub(crate) name: &'b str,
    value: Option<OsString>,
    rest: &'b mut std::slice::Iter<'a, OsString>,
    hint: &'b str,
}

impl Given<'_, '_> {
    /// Its value: after `=`, or the next argument. `what` describes it for messages.
    ///
    /// # Errors
    /// There is no value.
    pub(crate) fn value(&mut self, what: &str) -> Result<OsString> {
        self.value
            .take()
            .or_else(|| self.rest.next().cloned())
            .ok_or_else(|| Error::invalid_with(format!("option '{}' needs {what}", self.name), self.hint))
    }

    /// The next argument.
    pub(crate) fn next(&mut self) -> Option<OsString> {
        self.rest.next().cloned()
    }

    fn count(&mut self, what: &str) -> Result<u32> {
        let value = self.value(what)?;
        parse_count(self.name, &value, MAX_RANKS, self.hint)
    }
}

/// The number of values of a common option. `None`: it is not a common option.
pub(crate) fn count_values(name: &str) -> Option<usize> {
    match name {
        "-n" | "-np" | "--np" | "--ntasks" | "-c" => Some(1),
        "-ppn" | "--ppn" | "-perhost" | "-npernode" | "--npernode" | "--ntasks-per-node" => Some(1),
        "-map-by" | "--map-by" | "--rank-by" | "-bind-to" | "--bind-to" => Some(1),
        "--mpi" => Some(1),
        "-wdir" | "--wdir" | "-wd" => Some(1),
        "-env" | "-genv" => Some(2),
        "-bynode" | "--bynode" | "-byslot" | "--byslot" | "-genvall" | "-envall" => Some(0),
        _ if LABELS.contains(&name) => Some(0),
        _ => None,
    }
}

/// Whether it is a common option, so that it cannot be meant as a program.
fn is_option(word: &OsStr) -> bool {
    count_values(split(&word.to_string_lossy()).0).is_some()
}

/// Parses the arguments. `own` takes an option of the WLM, or returns that it is not one.
///
/// # Errors
/// An unknown option, an invalid value, no program.
pub(crate) fn parse_args(
    args: &[OsString],
    dialect: Dialect,
    own: &mut dyn FnMut(&mut Given<'_, '_>) -> Result<bool>,
) -> Result<Options> {
    let hint = format!("options before the program: {}{COMMON}", dialect.own);
    let mut options = Options::default();
    let mut for_all = Vec::new();
    let mut rest = args.iter();
    loop {
        let mut program = Program::default();
        let is_first = options.programs.is_empty();
        let is_whole = loop {
            let Some(arg) = rest.next() else {
                return Err(Error::invalid_with("no program to launch", &hint));
            };
            let text = arg.to_string_lossy();
            if text == "--" {
                let named = rest.next().cloned();
                let missing = || Error::invalid_with("no program after '--'", &hint);
                let named = named.ok_or_else(missing)?;
                if is_option(&named) {
                    let message =
                        format!("option '{}' stands behind '--', where the program begins", named.display());
                    return Err(Error::invalid_with(
                        message,
                        "write '--' before all options of the ranks, or right before the program: -- --mpi pmix -n 4 PROGRAM",
                    ));
                }
                program.part.program = named;
                break true;
            }
            if !text.starts_with('-') || text == "-" {
                program.part.program = arg.clone();
                break false;
            }
            let (name, value) = split(&text);
            let mut given = Given { arg, name, value, rest: &mut rest, hint: &hint };
            if name == "-genv" {
                for_all.push(read_variable(&mut given)?);
            } else if program.take(&mut given)? {
            } else if !is_first {
                let message = format!("option '{name}' is not one of a single program");
                return Err(Error::invalid_with(
                    message,
                    "options for all programs stand before the first one",
                ));
            } else if !options.take(&mut given, dialect)? && !own(&mut given)? {
                let remedy = find_remedy(name).unwrap_or(&hint);
                return Err(Error::invalid_with(
                    format!("unknown option '{name}' before the program"),
                    remedy,
                ));
            }
        };
        if program.part.program.is_empty() {
            return Err(Error::invalid_with("the program's name is empty", &hint));
        }
        let left = rest.as_slice();
        // A colon with nothing behind it is an argument, as in `sh -c :`.
        let end = left.iter().position(|arg| arg == NEXT).filter(|at| !is_whole && at + 1 < left.len());
        let (own_args, behind) = left.split_at(end.unwrap_or(left.len()));
        program.part.args = own_args.to_vec();
        options.programs.push(program);
        match behind {
            [] => break,
            [_, behind @ ..] => rest = behind.iter(),
        }
    }
    for program in &mut options.programs {
        let own = std::mem::take(&mut program.part.env);
        program.part.env = for_all.iter().cloned().chain(own).collect();
    }
    options.ranks = match options.programs.as_slice() {
        [only] => only.ranks,
        several => {
            let all = several.iter().map(|it| it.ranks.unwrap_or(1)).fold(0, u32::saturating_add);
            Some(all)
        }
    };
    Ok(options)
}

impl Options {
    fn take(&mut self, given: &mut Given<'_, '_>, dialect: Dialect) -> Result<bool> {
        match given.name {
            name if dialect.nodes.contains(&name) => self.nodes = Some(given.count("a number of hosts")?),
            "-ppn" | "--ppn" | "-perhost" | "-npernode" | "--npernode" | "--ntasks-per-node" => {
                self.per_host = Some(given.count("a number of ranks")?);
            }
            "-map-by" | "--map-by" | "--rank-by" => {
                let value = given.value("'slot' or 'node'")?;
                self.map_by = parse_map_by(given.name, &value, given.hint)?;
            }
            "-l" if dialect.letter_labels => self.labels = true,
            name if LABELS.contains(&name) => self.labels = true,
            "-bynode" | "--bynode" => self.map_by = MapBy::Node,
            "-byslot" | "--byslot" => self.map_by = MapBy::Slot,
            "-bind-to" | "--bind-to" => self.bind = parse_bind(given)?,
            "--mpi" => self.mpi = parse_mpi(given)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The first program.
    pub(crate) fn first_program(&self) -> &OsStr {
        self.programs.first().map_or(OsStr::new(""), |it| &it.part.program)
    }

    /// Returns the hosts that get ranks, and the ranks of each. `hint` is for requests that exceed the places.
    ///
    /// # Errors
    /// As [`place`].
    pub(crate) fn place(&self, hosts: Vec<HostSlots>, hint: &str) -> Result<(Vec<String>, Vec<RankSet>)> {
        place(hosts, self.ranks, self.per_host, self.map_by, hint)
    }

    /// The number of hosts needed for the requested number of ranks per host. 1 without such a number.
    pub(crate) fn nodes_needed(&self) -> u32 {
        self.nodes.or(self.per_host.map(|most| self.ranks.unwrap_or(1).div_ceil(most))).unwrap_or(1)
    }

    /// The programs with their ranks, for `size` ranks.
    pub(crate) fn build_parts(self, size: u64) -> Vec<MixedPart> {
        let only = self.programs.len() == 1;
        let mut next = 0;
        let parts = self.programs.into_iter().map(|Program { ranks, mut part }| {
            let count = match only {
                true => u32::try_from(size).unwrap_or(u32::MAX),
                false => ranks.unwrap_or(1),
            };
            part.ranks = RankSet::from_range(Rank(next)..=Rank(next + count.saturating_sub(1)));
            next += count;
            part
        });
        parts.collect()
    }
}

impl Program {
    fn take(&mut self, given: &mut Given<'_, '_>) -> Result<bool> {
        match given.name {
            "-n" | "-np" | "--np" | "--ntasks" | "-c" => self.ranks = Some(given.count("a number of ranks")?),
            // Ranks have the variables of the shell anyway.
            "-genvall" | "-envall" => {}
            "-env" => self.part.env.push(read_variable(given)?),
            "-wdir" | "--wdir" | "-wd" => self.part.cwd = Some(PathBuf::from(given.value("a folder")?)),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// What to write instead of an option of a launcher.
fn find_remedy(name: &str) -> Option<&'static str> {
    match name {
        "-configfile" | "--configfile" | "-app" | "--app" => {
            Some("write the programs here, with ':' between them: -n 2 ./a : -n 2 ./b")
        }
        "-genvnone" | "-envnone" | "-genvlist" | "-envlist" => Some(
            "ranks have all variables of gantry's shell: start gantry with few of them, env -i PATH=$PATH gantry launch ...",
        ),
        "-x" => Some("variables of your shell reach the ranks anyway; another one: -env NAME VALUE"),
        _ => None,
    }
}

/// A variable: `NAME VALUE`, or `NAME=VALUE`.
fn read_variable(given: &mut Given<'_, '_>) -> Result<(OsString, OsString)> {
    use std::os::unix::ffi::OsStrExt;
    let word = given.value("a variable's name and value")?;
    let bytes = word.as_bytes();
    let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) => (&bytes[..at], OsStr::from_bytes(&bytes[at + 1..]).to_owned()),
        None => (bytes, given.value("a variable's value")?),
    };
    match name.is_empty() {
        true => {
            Err(Error::invalid_with(format!("option '{}': no name of a variable", given.name), given.hint))
        }
        false => Ok((OsStr::from_bytes(name).to_owned(), value)),
    }
}

fn parse_bind(given: &mut Given<'_, '_>) -> Result<Bind> {
    let value = given.value("'none' or 'core'")?;
    match &*value.to_string_lossy() {
        "none" => Ok(Bind::None),
        "core" => Ok(Bind::Core),
        other => {
            let what = format!("'{} {other}': ranks can be bound to a core, or to none", given.name);
            Err(Error::invalid_with(what, given.hint))
        }
    }
}

fn parse_mpi(given: &mut Given<'_, '_>) -> Result<Mpi> {
    let value = given.value("'pmi' or 'pmix'")?;
    match &*value.to_string_lossy() {
        "pmi" | "pmi1" | "pmi2" => Ok(Mpi::Pmi),
        "pmix" => Ok(Mpi::Pmix),
        other => {
            let what = format!("'{} {other}': ranks can be served by PMI or by PMIx", given.name);
            Err(Error::invalid_with(what, given.hint))
        }
    }
}

/// An option's name, and its value if it is behind a '=', or a number right behind a letter (`-n4`).
pub(crate) fn split(text: &str) -> (&str, Option<OsString>) {
    let split = text.split_once('=').or_else(|| {
        let (name, number) = text.split_at_checked(2)?;
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        (is_number && !name.starts_with("--")).then_some((name, number))
    });
    match split {
        Some((name, value)) => (name, Some(OsString::from(value))),
        None => (text, None),
    }
}

/// A number from 1 to `limit`.
pub(crate) fn parse_count(option: &str, value: &OsStr, limit: u32, hint: &str) -> Result<u32> {
    let text = value.to_string_lossy();
    match text.parse::<u32>() {
        Ok(number) if (1..=limit).contains(&number) => Ok(number),
        _ => Err(Error::invalid_with(format!("'{option} {text}': not a number from 1 to {limit}"), hint)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIALECT: Dialect = Dialect { nodes: &["-N", "--nodes"], own: "", letter_labels: true };

    /// The programs with their ranks, of seven by default; then the other requested settings.
    #[track_caller]
    fn check(args: &str, expected: &str) {
        let args: Vec<OsString> = args.split_whitespace().map(OsString::from).collect();
        let shown = match parse_args(&args, DIALECT, &mut |_| Ok(false)) {
            Ok(options) => {
                let size = u64::from(options.ranks.unwrap_or(7));
                let besides = (options.per_host, options.nodes, options.map_by, options.bind);
                let labels = if options.labels { " with labels" } else { "" };
                let show = |part: MixedPart| {
                    let variables = part
                        .env
                        .iter()
                        .map(|(name, value)| format!("{}={} ", name.display(), value.display()));
                    let folder = part.cwd.map_or(String::new(), |cwd| format!("cd {} ", cwd.display()));
                    let words = [&[part.program], &part.args[..]].concat().join(OsStr::new(" "));
                    format!("{}: {}{folder}{}", part.ranks, variables.collect::<String>(), words.display())
                };
                let programs: Vec<_> = options.build_parts(size).into_iter().map(show).collect();
                let asked = match besides {
                    (None, None, MapBy::Slot, Bind::None) => String::new(),
                    other => format!(" {other:?}"),
                };
                programs.join(" | ") + &asked + labels
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{args:?}");
    }

    #[test]
    fn arguments_as_users_write_them() {
        check("./app", "0-6: ./app");
        check("-n 4 ./app -n 7", "0-3: ./app -n 7");
        check("--ntasks=8 -N 2 a b", "0-7: a b (None, Some(2), Slot, None)");
        check("-np 3 -- -odd-name --", "0-2: -odd-name --");
        check("-n 4 --ppn=2 -map-by node -bind-to core a", "0-3: a (Some(2), None, Node, Core)");
        check("-n 2 -env A 1 -genv B=2 -wdir /d ./app", "0-1: B=2 A=1 cd /d ./app");
    }

    #[test]
    fn the_server_of_mpi_is_named_as_for_the_launchers_of_jobs() {
        for (args, expected) in [
            ("a", Mpi::Detect),
            ("--mpi=pmix a", Mpi::Pmix),
            ("--mpi pmi2 a", Mpi::Pmi),
            ("a --mpi=pmix", Mpi::Detect),
        ] {
            let args: Vec<OsString> = args.split_whitespace().map(OsString::from).collect();
            assert_eq!(parse_args(&args, DIALECT, &mut |_| Ok(false)).unwrap().mpi, expected, "{args:?}");
        }
    }

    #[test]
    fn labels_are_asked_for_as_users_of_any_launcher_do() {
        for option in ["--label", "-l", "-prepend-rank", "--tag-output"] {
            check(&format!("{option} -n 2 a --label"), "0-1: a --label with labels");
        }
        check("-n 1 a : -n 1 --label b", "option '--label' is not one of a single program");
    }

    #[test]
    fn options_of_launchers_that_change_nothing_or_have_a_remedy() {
        check("-genvall -n 2 a : -envall b", "0-1: a | 2: b");
        for (option, remedy) in [
            ("-configfile", "with ':' between them"),
            ("-genvnone", "env -i"),
            ("-envlist", "env -i"),
            ("-x", "-env NAME VALUE"),
        ] {
            let refused = parse_args(&[option.into(), "a".into()], DIALECT, &mut |_| Ok(false)).unwrap_err();
            assert!(refused.hint().is_some_and(|hint| hint.contains(remedy)), "{option}: {refused:?}");
        }
    }

    #[test]
    fn several_programs_are_one_launch() {
        check("-n 2 ./a x : -n 3 ./b y", "0-1: ./a x | 2-4: ./b y");
        check("-n2 ./a -n5 : -n3 ./b", "0-1: ./a -n5 | 2-4: ./b");
        check("./a : ./b", "0: ./a | 1: ./b");
        check("-genv G 0 -n 1 -env A 1 ./a : -wdir /d ./b", "0: G=0 A=1 ./a | 1: G=0 cd /d ./b");
        // A colon that separates nothing, or behind a double dash, is an argument.
        check("-n 2 sh -c :", "0-1: sh -c :");
        check("-n 2 -- sh : -n 2 b", "0-1: sh : -n 2 b");
        check("./a : -n 2", "no program to launch");
        check("./a : -N 2 ./b", "option '-N' is not one of a single program");
    }

    #[test]
    fn arguments_that_are_refused() {
        check("", "no program to launch");
        check("-n 4", "no program to launch");
        check("-n 4 --", "no program after '--'");
        check("--mpi pmix -- -n 4 app", "option '-n' stands behind '--', where the program begins");
        check("-n", "option '-n' needs a number of ranks");
        check("-n 0 a", "'-n 0': not a number from 1 to 1000000");
        check("-n x a", "'-n x': not a number from 1 to 1000000");
        check("-n -3 a", "'-n -3': not a number from 1 to 1000000");
        check("-n 99999999999 a", "'-n 99999999999': not a number from 1 to 1000000");
        check("--wat a", "unknown option '--wat' before the program");
        check("-n0 a", "'-n 0': not a number from 1 to 1000000");
        check("-n2x a", "unknown option '-n2x' before the program");
        check("--map-by socket a", "'--map-by socket': ranks can be mapped by slot or by node");
        check("--bind-to socket a", "'--bind-to socket': ranks can be bound to a core, or to none");
        check("--mpi openmpi a", "'--mpi openmpi': ranks can be served by PMI or by PMIx");
        check("-env A", "option '-env' needs a variable's value");
        check("-env =1 a", "option '-env': no name of a variable");
        for empty in [&["-n", "4", "", "x"][..], &["--", ""]] {
            let args: Vec<OsString> = empty.iter().map(OsString::from).collect();
            let error = parse_args(&args, DIALECT, &mut |_| Ok(false)).unwrap_err();
            assert_eq!(error.to_string(), "the program's name is empty");
        }
    }
}
