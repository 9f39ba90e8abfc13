//! The arguments of a launch without a launcher: `[-n RANKS] [-N NODES] [--] PROGRAM ARGS`.

use std::ffi::{OsStr, OsString};

use gantry_types::id::Rank;
use gantry_types::rank_set::RankSet;

use crate::{Error, Result};

/// Most ranks of one launch here; a bound against slips of the finger, far above what one machine holds.
const MAX_RANKS: u32 = 100_000;

/// Most played nodes of one launch here.
const MAX_NODES: u32 = 1_024;

const ACCEPTED: &str = "write: -n RANKS [-N NODES] PROGRAM [ARGS]";

/// What the arguments say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) ranks: u32,
    pub(crate) nodes: u32,
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
}

/// The options that take a number, under every spelling that users of launchers try.
const RANKS: [&str; 4] = ["-n", "-np", "--np", "--ntasks"];
const NODES: [&str; 2] = ["-N", "--nodes"];

/// Parses the arguments. Everything after the program's name belongs to the program.
pub(crate) fn parse_args(args: &[OsString]) -> Result<Options> {
    let (mut ranks, mut nodes) = (None, None);
    let mut rest = args.iter();
    let program = loop {
        let Some(arg) = rest.next() else {
            return Err(Error::invalid_with("no program to launch", ACCEPTED));
        };
        let text = arg.to_string_lossy();
        if text == "--" {
            match rest.next() {
                Some(program) => break program.clone(),
                None => return Err(Error::invalid_with("no program after '--'", ACCEPTED)),
            }
        }
        if !text.starts_with('-') || text == "-" {
            break arg.clone();
        }
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(OsString::from(value))),
            None => (text.into_owned(), None),
        };
        let (slot, limit, what) = match name.as_str() {
            n if RANKS.contains(&n) => (&mut ranks, MAX_RANKS, "ranks"),
            n if NODES.contains(&n) => (&mut nodes, MAX_NODES, "nodes"),
            _ => {
                return Err(Error::invalid_with(
                    format!("unknown option '{name}' before the program"),
                    ACCEPTED,
                ));
            }
        };
        let value = match value {
            Some(value) => value,
            None => rest.next().cloned().ok_or_else(|| {
                Error::invalid_with(format!("option '{name}' needs a number of {what}"), ACCEPTED)
            })?,
        };
        *slot = Some(parse_count(&name, &value, what, limit)?);
    };
    if program.is_empty() {
        return Err(Error::invalid_with("the program's name is empty", ACCEPTED));
    }
    let ranks = ranks.unwrap_or(1);
    let nodes = nodes.unwrap_or(1);
    if nodes > ranks {
        return Err(Error::invalid_with(
            format!("{nodes} nodes for {ranks} ranks: every node needs at least one"),
            ACCEPTED,
        ));
    }
    Ok(Options { ranks, nodes, program, args: rest.cloned().collect() })
}

fn parse_count(option: &str, value: &OsStr, what: &str, limit: u32) -> Result<u32> {
    let text = value.to_string_lossy();
    let bad = |why: &str| Error::invalid_with(format!("'{option} {text}': {why}"), ACCEPTED);
    let number: u64 = text.parse().map_err(|_| bad(&format!("not a number of {what}")))?;
    match u32::try_from(number) {
        Ok(0) => Err(bad(&format!("at least one of {what} is needed"))),
        Ok(number) if number <= limit => Ok(number),
        _ => Err(bad(&format!("at most {limit} {what} are possible here"))),
    }
}

/// The nodes' names: this machine's, or `NAME.0`, `NAME.1` and so on when it plays several.
pub(super) fn build_hosts(hostname: &str, nodes: u32) -> Vec<String> {
    match nodes {
        1 => vec![hostname.to_owned()],
        _ => (0..nodes).map(|i| format!("{hostname}.{i}")).collect(),
    }
}

/// Refuses hosts that are not this machine, by its name, by `localhost`, or by the names of the nodes that it plays.
pub(super) fn check_hosts(hosts: &[String], hostname: &str) -> Result<()> {
    let played = |host: &str| {
        let number = host.strip_prefix(hostname).and_then(|rest| rest.strip_prefix('.'));
        number.is_some_and(|number| number.parse::<u32>().is_ok_and(|number| number < MAX_NODES))
    };
    match hosts.iter().find(|host| *host != hostname && *host != "localhost" && !played(host)) {
        None => Ok(()),
        Some(other) => Err(Error::invalid_with(
            format!("'{other}' is not this machine, and no workload manager is there to reach it"),
            format!("name {hostname}, or nodes that it plays: {hostname}.0, {hostname}.1"),
        )),
    }
}

/// Ranks in blocks, the first nodes getting one more when it does not come out even.
pub(crate) fn build_layout(ranks: u32, nodes: u32) -> Vec<RankSet> {
    let (each, more) = (ranks / nodes, ranks % nodes);
    let mut next = 0;
    (0..nodes)
        .map(|node| {
            let count = each + u32::from(node < more);
            let first = next;
            next += count;
            RankSet::from_range(Rank(first)..=Rank(first + count - 1))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(args: &[&str], expected: std::result::Result<(u32, u32, &str, &[&str]), &str>) {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        match (parse_args(&args), expected) {
            (Ok(got), Ok((ranks, nodes, program, rest))) => {
                assert_eq!((got.ranks, got.nodes), (ranks, nodes), "{args:?}");
                assert_eq!(got.program, program, "{args:?}");
                assert_eq!(got.args, rest.iter().map(OsString::from).collect::<Vec<_>>(), "{args:?}");
            }
            (Err(got), Err(text)) => assert_eq!(got.to_string(), text, "{args:?}"),
            (got, expected) => panic!("{args:?}: {got:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn arguments_as_users_write_them() {
        check(&["./app"], Ok((1, 1, "./app", &[])));
        check(&["-n", "4", "./app", "-n", "7"], Ok((4, 1, "./app", &["-n", "7"])));
        check(&["--ntasks=8", "-N", "2", "a", "b c"], Ok((8, 2, "a", &["b c"])));
        check(&["-np", "3", "--", "-odd-name", "--"], Ok((3, 1, "-odd-name", &["--"])));
    }

    #[test]
    fn arguments_that_are_refused() {
        check(&[], Err("no program to launch"));
        check(&["-n", "4"], Err("no program to launch"));
        check(&["-n", "4", "", "x"], Err("the program's name is empty"));
        check(&["--", ""], Err("the program's name is empty"));
        check(&["-n", "4", "--"], Err("no program after '--'"));
        check(&["-n"], Err("option '-n' needs a number of ranks"));
        check(&["-n", "0", "a"], Err("'-n 0': at least one of ranks is needed"));
        check(&["-n", "x", "a"], Err("'-n x': not a number of ranks"));
        check(&["-n", "-3", "a"], Err("'-n -3': not a number of ranks"));
        check(&["-n", "99999999999", "a"], Err("'-n 99999999999': at most 100000 ranks are possible here"));
        check(&["--wat", "a"], Err("unknown option '--wat' before the program"));
        check(&["-N2", "a"], Err("unknown option '-N2' before the program"));
        check(&["-N", "2", "a"], Err("2 nodes for 1 ranks: every node needs at least one"));
    }

    #[test]
    fn only_this_machine_and_what_it_plays_are_hosts() {
        let check = |host: &str, fits: bool| {
            assert_eq!(check_hosts(&[host.to_owned()], "vm").is_ok(), fits, "{host}");
        };
        for (host, fits) in [
            ("vm", true),
            ("localhost", true),
            ("vm.0", true),
            ("vm.1023", true),
            ("vm.1024", false),
            ("vm.x", false),
            ("vm0", false),
            ("n1", false),
        ] {
            check(host, fits);
        }
    }

    #[test]
    fn ranks_are_laid_out_in_blocks() {
        let text =
            |ranks, nodes| build_layout(ranks, nodes).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(text(4, 1), ["0-3"]);
        assert_eq!(text(7, 3), ["0-2", "3-4", "5-6"]);
        assert_eq!(text(2, 2), ["0", "1"]);
    }
}
