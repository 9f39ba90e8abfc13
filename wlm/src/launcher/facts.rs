//! How a process learns from its environment which rank it is.
//!
//! Variables are inherited: a program that `mpiexec` starts inside an allocation has the rank of the WLM's own task too, and a nested launch
//! has those of the outer one. So who knows which launcher has started the process says so; without that, the variables of what is usually
//! the innermost launcher win. Measured under Slurm 22.05, MPICH 4.0 and Open MPI 4.1, alone and nested.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::dialect::Launcher;

/// What a rank knows of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankFacts {
    /// Its number, from 0, over all parts of the launch.
    pub rank: u32,
    /// How many ranks there are, over all parts.
    pub size: u32,
    /// Its place on its node, where the launcher tells.
    pub local: Option<LocalFacts>,
}

/// A rank's place on its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalFacts {
    /// Its number among the ranks of this node, from 0.
    pub rank: u32,
    /// How many ranks of the launch this node has.
    pub size: u32,
}

/// An environment does not say which rank a process is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoRank {
    /// None of the launchers' variables is there.
    #[error("no rank in the environment: looked for {looked_for}")]
    Missing {
        /// The variables.
        looked_for: String,
    },
    /// A rank is there, but not how many there are.
    #[error("{rank} is '{value}', but the number of ranks is not set: looked for {looked_for}")]
    NoSize {
        /// The variable with the rank.
        rank: &'static str,
        /// Its value.
        value: String,
        /// The variables.
        looked_for: String,
    },
    /// A variable has a value that makes no sense.
    #[error("{name} is '{value}', which is {wanted}")]
    Nonsense {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it is not.
        wanted: &'static str,
    },
}

/// The variables of one launcher.
struct Family {
    launchers: &'static [Launcher],
    /// Only with all of these is it this launcher's rank and not a leftover.
    needs: &'static [&'static str],
    rank: &'static str,
    size: &'static [&'static str],
    local_rank: &'static str,
    local_size: &'static str,
}

/// The variable of PMIx, which names the rank but no size: that is in what the server tells, not in the environment.
const PMIX_RANK: &str = "PMIX_RANK";

/// The variable with the node's name.
const NODE_NAME: &str = "SLURMD_NODENAME";

/// Whether processes that a launcher's ranks leave behind are killed with them: whether they are in a control group of a step. `cgroup` is the
/// content of `/proc/self/cgroup`.
pub fn dies_with_step(cgroup: &str) -> bool {
    cgroup.lines().any(|line| line.contains("/slurm") && line.contains("/step_"))
}

/// In order: an outer launcher stands behind those that run inside it.
const FAMILIES: [Family; 4] = [
    Family {
        launchers: &[Launcher::OpenMpi, Launcher::Prrte],
        needs: &[],
        rank: "OMPI_COMM_WORLD_RANK",
        size: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
    },
    Family {
        launchers: &[Launcher::Hydra],
        needs: &[],
        rank: "PMI_RANK",
        size: &["PMI_SIZE"],
        local_rank: "MPI_LOCALRANKID",
        local_size: "MPI_LOCALNRANKS",
    },
    Family {
        launchers: &[Launcher::OpenMpi, Launcher::Prrte],
        needs: &[],
        rank: PMIX_RANK,
        size: &["PMIX_SIZE"],
        local_rank: "PMIX_LOCAL_RANK",
        local_size: "PMIX_LOCAL_SIZE",
    },
    // A batch script has SLURM_PROCID=0 and SLURM_NTASKS too, but is no step that srun has started.
    Family {
        launchers: &[Launcher::Srun],
        needs: &["SLURM_STEP_ID"],
        rank: "SLURM_PROCID",
        size: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        local_rank: "SLURM_LOCALID",
        local_size: "SLURM_STEP_TASKS_PER_NODE",
    },
];

/// The variables of an environment that are looked at.
type Variables = BTreeMap<String, String>;

/// The name by which the workload manager knows the node of a process with this environment, where it tells: it may differ from what the machine calls itself.
pub fn find_node_name(environment: &[(OsString, OsString)]) -> Option<String> {
    let (_, value) = environment.iter().find(|(name, value)| name == NODE_NAME && !value.is_empty())?;
    value.to_str().map(str::to_owned)
}

/// Which rank the process with this environment is. `by` is the launcher that has started it, if that is known; its variables alone count
/// then.
///
/// # Errors
/// [`NoRank`], which names what was looked for or what makes no sense.
pub fn parse_rank_facts(
    environment: &[(OsString, OsString)],
    by: Option<Launcher>,
) -> Result<RankFacts, NoRank> {
    let variables: Variables = environment
        .iter()
        .filter_map(|(name, value)| Some((name.to_str()?.to_owned(), value.to_str()?.to_owned())))
        .filter(|(_, value)| !value.is_empty())
        .collect();
    let mut families = FAMILIES.iter().filter(|family| by.is_none_or(|by| family.launchers.contains(&by)));
    let found = families.clone().find(|family| {
        variables.contains_key(family.rank) && family.needs.iter().all(|name| variables.contains_key(*name))
    });
    let Some(family) = found else {
        let looked_for: Vec<&str> =
            families.by_ref().flat_map(|family| family.needs.iter().copied().chain([family.rank])).collect();
        return Err(NoRank::Missing { looked_for: looked_for.join(", ") });
    };
    let rank = number(&variables, family.rank)?.unwrap_or_default();
    let size = size_of(&variables, family, rank)?;
    if rank >= size {
        return Err(nonsense(&variables, family.rank, "not below the number of ranks"));
    }
    Ok(RankFacts { rank, size, local: local_of(&variables, family, rank, size)? })
}

fn size_of(variables: &Variables, family: &Family, rank: u32) -> Result<u32, NoRank> {
    for name in family.size {
        if let Some(size) = number(variables, name)? {
            return Ok(size);
        }
    }
    // Slurm's own PMIx server: the step is the launch.
    if family.rank == PMIX_RANK
        && of_slurm_step(variables, rank)
        && let Some(size) = number(variables, "SLURM_STEP_NUM_TASKS")?
    {
        return Ok(size);
    }
    Err(NoRank::NoSize {
        rank: family.rank,
        value: variables.get(family.rank).cloned().unwrap_or_default(),
        looked_for: family.size.join(", "),
    })
}

/// Whether the rank that PMI or PMIx tells is that of the Slurm task too.
fn of_slurm_step(variables: &Variables, rank: u32) -> bool {
    let told_by_slurm = variables.get("PMIX_NAMESPACE").is_none_or(|name| name.starts_with("slurm."));
    told_by_slurm
        && variables.contains_key("SLURM_STEP_ID")
        && variables.get("SLURM_PROCID").is_some_and(|id| *id == rank.to_string())
}

fn local_of(
    variables: &Variables,
    family: &Family,
    rank: u32,
    size: u32,
) -> Result<Option<LocalFacts>, NoRank> {
    let steps_size = number(variables, "SLURM_STEP_NUM_TASKS").unwrap_or_default();
    let local = if family.launchers == [Launcher::Srun] {
        slurm_local(variables)?
    } else if let (Some(rank), Some(size)) =
        (number(variables, family.local_rank)?, number(variables, family.local_size)?)
    {
        Some(LocalFacts { rank, size })
    } else if steps_size == Some(size) && of_slurm_step(variables, rank) {
        slurm_local(variables)?
    } else {
        None
    };
    match local {
        Some(local) if local.rank >= local.size || local.size > size => {
            Err(nonsense(variables, family.local_rank, "no place among the ranks of a node"))
        }
        local => Ok(local),
    }
}

/// A Slurm task's place: all of these variables count over all parts of a heterogeneous step.
fn slurm_local(variables: &Variables) -> Result<Option<LocalFacts>, NoRank> {
    let Some(rank) = number(variables, "SLURM_LOCALID")? else { return Ok(None) };
    let (Some(text), Some(node)) =
        (variables.get("SLURM_STEP_TASKS_PER_NODE"), number(variables, "SLURM_NODEID")?)
    else {
        return Ok(None);
    };
    match parse_tasks_on(text, node) {
        Some(size) => Ok(Some(LocalFacts { rank, size })),
        None => Err(nonsense(variables, "SLURM_STEP_TASKS_PER_NODE", "no list of tasks per node")),
    }
}

/// How many tasks `2(x3),1` says for the node with that number.
fn parse_tasks_on(text: &str, node: u32) -> Option<u32> {
    let mut first = 0_u32;
    for item in text.split(',') {
        let (tasks, nodes) = match item.split_once("(x") {
            Some((tasks, rest)) => (tasks, rest.strip_suffix(')')?.parse().ok()?),
            None => (item, 1_u32),
        };
        first = first.checked_add(nodes)?;
        if node < first {
            return tasks.parse().ok();
        }
    }
    None
}

fn number(variables: &Variables, name: &'static str) -> Result<Option<u32>, NoRank> {
    match variables.get(name).map(|value| value.parse()) {
        None => Ok(None),
        Some(Ok(number)) => Ok(Some(number)),
        Some(Err(_)) => Err(nonsense(variables, name, "not a 32-bit number")),
    }
}

fn nonsense(variables: &Variables, name: &'static str, wanted: &'static str) -> NoRank {
    NoRank::Nonsense { name, value: variables.get(name).cloned().unwrap_or_default(), wanted }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_control_group_of_a_step_is_told_by_its_path() {
        let check = |text: &str, expected| assert_eq!(super::dies_with_step(text), expected, "{text}");
        check("5:freezer:/slurm_n001/uid_1000/job_7/step_0\n1:name=systemd:/\n", true);
        check("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n", true);
        check("0::/user.slice/user-1000.slice/session-2.scope\n", false);
        check("0::/system.slice/slurmd.service\n", false);
        check("", false);
    }

    use super::*;

    /// rank, size, and the place on the node.
    type Expected = (u32, u32, Option<(u32, u32)>);

    fn check(text: &str, by: Option<Launcher>, expected: Result<Expected, &str>) {
        let environment: Vec<(OsString, OsString)> = text
            .split_whitespace()
            .filter_map(|entry| entry.split_once('='))
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        let found = parse_rank_facts(&environment, by)
            .map(|facts| (facts.rank, facts.size, facts.local.map(|local| (local.rank, local.size))))
            .map_err(|error| error.to_string());
        assert_eq!(found, expected.map_err(str::to_owned), "{text}");
    }

    // What the launchers really gave, other variables left out.
    const SRUN: &str = "SLURM_GTIDS=0,1 SLURM_LOCALID=1 SLURM_NODEID=0 SLURM_NTASKS=3 SLURM_PROCID=1 \
        SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=3 SLURM_STEP_TASKS_PER_NODE=2,1";
    const SRUN_HET: &str = "SLURM_LOCALID=0 SLURM_NODEID=2 SLURM_NTASKS=4 SLURM_PROCID=2 SLURM_STEP_ID=0 SLURM_HET_SIZE=2 \
        SLURM_STEP_NUM_TASKS=4 SLURM_STEP_TASKS_PER_NODE=1,2,1";
    const BATCH: &str =
        "SLURM_GTIDS=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_TASKS_PER_NODE=3,1";
    const HYDRA_IN_SLURM: &str = "MPI_LOCALNRANKS=1 MPI_LOCALRANKID=0 PMI_RANK=2 PMI_SIZE=3 SLURM_LOCALID=0 SLURM_NODEID=1 \
        SLURM_NTASKS=4 SLURM_PROCID=1 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=1(x2)";
    const OMPI_IN_SLURM: &str = "OMPI_COMM_WORLD_LOCAL_RANK=2 OMPI_COMM_WORLD_LOCAL_SIZE=3 OMPI_COMM_WORLD_RANK=2 \
        OMPI_COMM_WORLD_SIZE=3 PMIX_NAMESPACE=711589889 PMIX_RANK=2 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NTASKS=2 SLURM_PROCID=0 \
        SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=1(x2)";

    #[test]
    fn each_launcher_tells_its_ranks() {
        check(SRUN, None, Ok((1, 3, Some((1, 2)))));
        check(SRUN_HET, None, Ok((2, 4, Some((0, 1)))));
        check("MPI_LOCALNRANKS=2 MPI_LOCALRANKID=1 PMI_RANK=1 PMI_SIZE=2", None, Ok((1, 2, Some((1, 2)))));
        check(&format!("{SRUN} PMI_RANK=1 PMI_SIZE=3"), None, Ok((1, 3, Some((1, 2)))));
        check(&format!("{SRUN} PMIX_RANK=1 PMIX_NAMESPACE=slurm.pmix.6.0"), None, Ok((1, 3, Some((1, 2)))));
    }

    #[test]
    fn the_inner_launcher_wins() {
        check(HYDRA_IN_SLURM, None, Ok((2, 3, Some((0, 1)))));
        check(OMPI_IN_SLURM, None, Ok((2, 3, Some((2, 3)))));
        check(&format!("{BATCH} PMI_RANK=1 PMI_SIZE=2"), None, Ok((1, 2, None)));
        // srun inside a rank of mpiexec: only who knows the launcher can tell.
        check(&format!("{SRUN} PMI_RANK=0 PMI_SIZE=9"), Some(Launcher::Srun), Ok((1, 3, Some((1, 2)))));
    }

    #[test]
    fn what_was_looked_for_is_said() {
        check(
            BATCH,
            None,
            Err(
                "no rank in the environment: looked for OMPI_COMM_WORLD_RANK, PMI_RANK, PMIX_RANK, SLURM_STEP_ID, SLURM_PROCID",
            ),
        );
        check(SRUN, Some(Launcher::Hydra), Err("no rank in the environment: looked for PMI_RANK"));
        check(
            "PMI_RANK=1",
            None,
            Err("PMI_RANK is '1', but the number of ranks is not set: looked for PMI_SIZE"),
        );
        check(
            "PMIX_RANK=1 PMIX_NAMESPACE=prterun-1 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2",
            None,
            Err("PMIX_RANK is '1', but the number of ranks is not set: looked for PMIX_SIZE"),
        );
        check("PMI_RANK=x PMI_SIZE=2", None, Err("PMI_RANK is 'x', which is not a 32-bit number"));
        check("PMI_RANK=2 PMI_SIZE=2", None, Err("PMI_RANK is '2', which is not below the number of ranks"));
        check(
            "MPI_LOCALNRANKS=1 MPI_LOCALRANKID=1 PMI_RANK=1 PMI_SIZE=2",
            None,
            Err("MPI_LOCALRANKID is '1', which is no place among the ranks of a node"),
        );
    }

    #[test]
    fn tasks_of_a_node_in_the_short_form() {
        let at = |text, node| parse_tasks_on(text, node);
        assert_eq!(
            [at("2(x3),1", 0), at("2(x3),1", 2), at("2(x3),1", 3), at("2(x3),1", 4)],
            [Some(2), Some(2), Some(1), None]
        );
        assert_eq!([at("4(x4000000000),5(x4000000000)", 4_100_000_000), at("2(x", 0), at("", 0)], [None; 3]);
    }
}
