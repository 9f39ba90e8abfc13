//! The arguments of a launch on this machine without a launcher, and the nodes that it simulates.

use std::ffi::OsString;

use gantry_types::launch::Bind;

use crate::direct::{self, Dialect, Options};
use crate::launch::Direct;
use crate::slots::HostSlots;
use crate::{Error, Result};

/// The maximum number of ranks in one launch here. It catches typing errors, and is far above the capacity of one
/// machine.
const MAX_RANKS: u64 = 100_000;

/// The maximum number of simulated nodes in one launch here.
const MAX_NODES: u32 = 1_024;

const DIALECT: Dialect = Dialect { nodes: &["-N", "--nodes"], own: "-N NODES, ", letter_labels: true };

/// Parses the arguments.
pub(crate) fn parse_args(args: &[OsString]) -> Result<Options> {
    let options = direct::parse_args(args, DIALECT, &mut |_| Ok(false))?;
    match options.nodes_needed() {
        nodes if nodes > MAX_NODES => {
            let what = format!("{nodes} nodes are asked for, and at most {MAX_NODES} are possible here");
            Err(Error::invalid_with(what, "ask for fewer nodes"))
        }
        _ => Ok(options),
    }
}

/// Plans a launch on `hosts`, all of which this machine simulates. Ranks go in blocks. If they do not divide evenly,
/// the first nodes get one more.
///
/// # Errors
/// Not every host gets a rank, or ranks of several hosts would be bound to the same core.
pub(crate) fn lay_out(options: Options, hosts: Vec<String>) -> Result<Direct> {
    let nodes = hosts.len();
    if nodes > 1 && options.bind == Bind::Core {
        let what = "nodes that one machine plays have the same cores, and ranks of all would be bound to the first of them";
        return Err(Error::invalid_with(what, "leave out --bind-to, or -N"));
    }
    let slots = hosts.into_iter().map(|name| HostSlots { name, slots: 1, stated: false });
    let hint = "ask for fewer ranks, or for more nodes: -N NODES";
    let (hosts, layout) = options.place(slots.collect(), hint)?;
    let ranks: u64 = layout.iter().map(gantry_types::rank_set::RankSet::len).sum();
    if ranks > MAX_RANKS {
        let what = format!("{ranks} ranks: at most {MAX_RANKS} are possible here");
        return Err(Error::invalid_with(what, "ask for fewer ranks"));
    }
    if hosts.len() < nodes {
        let what = format!("{nodes} nodes for {ranks} ranks: every node needs at least one");
        return Err(Error::invalid_with(what, "ask for fewer nodes, or for more ranks"));
    }
    let (bind, mpi) = (options.bind, options.mpi);
    Ok(Direct { hosts, layout, bind, mpi, parts: options.build_parts(ranks), ..Direct::default() })
}

/// The nodes' names: this machine's, or `NAME.0`, `NAME.1` and so on if it simulates several.
pub(super) fn build_hosts(hostname: &str, nodes: u32) -> Vec<String> {
    match nodes {
        1 => vec![hostname.to_owned()],
        _ => (0..nodes).map(|i| format!("{hostname}.{i}")).collect(),
    }
}

/// Refuses hosts other than this machine. Accepted are its name, `localhost`, and the names of its simulated nodes.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The ranks of each node, or the error.
    #[track_caller]
    fn check(args: &str, expected: &str) {
        let args: Vec<OsString> = args.split_whitespace().map(OsString::from).collect();
        let planned = parse_args(&args).and_then(|options| {
            let hosts = build_hosts("vm", options.nodes_needed());
            lay_out(options, hosts)
        });
        let shown = match planned {
            Ok(plan) => plan.layout.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{args:?}");
    }

    #[test]
    fn ranks_are_laid_out_in_blocks() {
        check("a", "0");
        check("-n 4 a", "0-3");
        check("-n 7 -N 3 a", "0-2 3-4 5-6");
        check("-N 2 a", "0 1");
        check("-n 2 -N 2 a", "0 1");
        check("-n 4 -N 2 --map-by node a", "0,2 1,3");
        check("-n 5 --ppn 2 a", "0-1 2-3 4");
        check("-N 2 --ppn 3 a", "0-2 3-5");
        check("-n 2 a : -n 3 b", "0-4");
    }

    #[test]
    fn layouts_that_are_refused() {
        check("-N 2 -n 1 a", "2 nodes for 1 ranks: every node needs at least one");
        check("-N 1025 a", "1025 nodes are asked for, and at most 1024 are possible here");
        check("-n 100001 a", "100001 ranks: at most 100000 are possible here");
        check("-n 5 -N 2 --ppn 2 a", "5 ranks for 4 places on 2 hosts");
        check(
            "-n 2 -N 2 --bind-to core a",
            "nodes that one machine plays have the same cores, and ranks of all would be bound to the first of them",
        );
    }

    #[test]
    fn only_this_machine_and_its_simulated_nodes_are_hosts() {
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
}
