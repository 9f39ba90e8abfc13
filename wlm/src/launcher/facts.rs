//! Finds the rank of a process in its environment.
//!
//! Variables are inherited. A program that `mpiexec` starts inside an allocation also has the rank of the WLM's own
//! task, and a nested launch also has the variables of the outer one. So a caller that knows the launcher of the
//! process names it. Otherwise the variables of the usually innermost launcher win. Measured with MPICH 4.0 and Open
//! MPI 4.1, alone and nested.

use std::ffi::{OsStr, OsString};

use super::table::RANK_SIDES;
use super::variables::{LocalFacts, NoRank, RankSide, RankVariables, Variables};

/// The rank facts of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankFacts {
    /// Its rank, from 0, over all parts of the launch.
    pub rank: u32,
    /// The number of ranks, over all parts.
    pub size: u32,
    /// Its place on its node, if the launcher tells it.
    pub local: Option<LocalFacts>,
}

/// The launcher's name for the node of a process whose environment has these values. It may differ from the machine's
/// own name.
pub fn find_node_name(value: impl Fn(&str) -> Option<OsString>) -> Option<String> {
    RANK_SIDES.iter().find_map(|side| value(side.node_name?)?.into_string().ok().filter(|it| !it.is_empty()))
}

/// Whether the launcher kills leftover processes together with its ranks. `cgroup` is the content of
/// `/proc/self/cgroup`.
pub fn dies_with_step(cgroup: &str) -> bool {
    RANK_SIDES.iter().any(|side| (side.kills_leftovers)(cgroup))
}

/// Finds the rank of a process with this environment. `by` is the launcher that started it, if that is known. Then only
/// that launcher's variables count.
///
/// # Errors
/// [`NoRank`] names the missing variables or the invalid value.
pub fn parse_rank_facts(
    environment: &[(&OsStr, &OsStr)],
    by: Option<&RankSide>,
) -> Result<RankFacts, NoRank> {
    let variables = Variables(environment);
    let families = families(by);
    let Some(family) = families.iter().find(|family| family.are_in(&variables)) else {
        let looked_for = families.iter().flat_map(|family| family.needs.iter().copied().chain([family.rank]));
        return Err(NoRank::Missing { looked_for: looked_for.collect::<Vec<_>>().join(", ") });
    };
    read_facts(&variables, family)
}

/// The variables of one launcher or of all, from the innermost to the outermost. Launchers may share some.
fn families(by: Option<&RankSide>) -> Vec<&'static RankVariables> {
    let launchers = RANK_SIDES.iter().filter(|side| by.is_none_or(|by| by == **side));
    let mut families: Vec<_> = launchers.flat_map(|side| side.variables).collect();
    families.sort_by_key(|family| family.outward);
    families.dedup_by_key(|family| family.rank);
    families
}

fn read_facts(variables: &Variables<'_>, family: &RankVariables) -> Result<RankFacts, NoRank> {
    let rank = variables.number(family.rank)?.unwrap_or_default();
    let served = find_served(variables, family, rank);
    let told = family.size.iter().find_map(|name| variables.number(name).transpose()).transpose()?;
    let size = told.or(served.map(|served| served.size)).ok_or_else(|| NoRank::NoSize {
        rank: family.rank,
        value: variables.get(family.rank).unwrap_or_default().to_owned(),
        looked_for: family.size.join(", "),
    })?;
    if rank >= size {
        return Err(variables.nonsense(family.rank, "not below the number of ranks"));
    }
    let local = match (variables.number(family.local_rank)?, (family.local_size)(variables)?) {
        (Some(rank), Some(size)) => Some(LocalFacts { rank, size }),
        _ => served.filter(|served| served.size == size).and_then(|served| served.local),
    };
    if local.is_some_and(|local| local.rank >= local.size || local.size > size) {
        return Err(variables.nonsense(family.local_rank, "no place among the ranks of a node"));
    }
    Ok(RankFacts { rank, size, local })
}

/// Finds the facts of a launcher whose PMI or PMIx server may have assigned this rank.
fn find_served(variables: &Variables<'_>, family: &RankVariables, rank: u32) -> Option<RankFacts> {
    let number = rank.to_string();
    let servers = families(None).into_iter().filter(|server| {
        server.rank != family.rank
            && server.are_in(variables)
            && variables.get(server.rank) == Some(&number)
            && (server.serves)(variables)
    });
    servers.filter_map(|server| read_facts(variables, server).ok()).next()
}

#[cfg(test)]
mod tests {
    use super::super::tests::check_facts as check;
    use super::super::{hydra, openmpi};

    #[test]
    fn each_launcher_tells_its_ranks() {
        const PMI: &str = "MPI_LOCALNRANKS=2 MPI_LOCALRANKID=1 PMI_RANK=1 PMI_SIZE=2";
        const OMPI: &str = "OMPI_COMM_WORLD_LOCAL_RANK=2 OMPI_COMM_WORLD_LOCAL_SIZE=3 OMPI_COMM_WORLD_RANK=2 \
            OMPI_COMM_WORLD_SIZE=3 PMIX_NAMESPACE=711589889 PMIX_RANK=2";
        check(PMI, None, Ok((1, 2, Some((1, 2)))));
        check(OMPI, None, Ok((2, 3, Some((2, 3)))));
        check("PMI_RANK=1 PMI_SIZE=2", None, Ok((1, 2, None)));
        // In a nesting, the inner launcher's variables count, unless the outer one is known to have started the
        // process.
        check(&format!("{PMI} {OMPI}"), Some(&hydra::RANKS), Ok((1, 2, Some((1, 2)))));
        check(&format!("{PMI} {OMPI}"), Some(&openmpi::RANKS), Ok((2, 3, Some((2, 3)))));
        check(&format!("{PMI} PMIX_RANK=0 PMIX_SIZE=1"), None, Ok((1, 2, Some((1, 2)))));
    }

    #[test]
    fn what_was_looked_for_is_said() {
        check("OTHER_RANK=1", Some(&hydra::RANKS), Err("no rank in the environment: looked for PMI_RANK"));
        check(
            "PMI_RANK=1",
            None,
            Err("PMI_RANK is '1', but the number of ranks is not set: looked for PMI_SIZE"),
        );
        check("PMI_RANK=x PMI_SIZE=2", None, Err("PMI_RANK is 'x', which is not a 32-bit number"));
        check("PMI_RANK=2 PMI_SIZE=2", None, Err("PMI_RANK is '2', which is not below the number of ranks"));
        check(
            "MPI_LOCALNRANKS=1 MPI_LOCALRANKID=1 PMI_RANK=1 PMI_SIZE=2",
            None,
            Err("MPI_LOCALRANKID is '1', which is no place among the ranks of a node"),
        );
    }
}
