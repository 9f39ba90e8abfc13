//! PRRTE's prterun. A rank under it has its own number in its environment, but not the number of ranks: programs ask its PMIx server.
//!
//! With the personality of Open MPI it also sets the variables that `mpirun` sets. So a launch asks for that, and the program gets an
//! environment without them. The personality maps and binds ranks as prterun's own does. One case differs: with `--map-by ppr` over several
//! hosts and no `--rank-by`, ranks are numbered as under `mpirun`. Source: PRRTE 3.0.14; PMIx 5's component for Open MPI.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use super::dialect::{Adjusted, Dialect, Environment, Given};
use super::openmpi::{self, COMMON, COMMON_RANKS};
use super::variables::RankSide;

pub(super) static PRRTE: Dialect = Dialect {
    name: "prterun",
    file_names: &["prterun"],
    versions: &["prrte", "pmix reference"],
    adjust: Some(ask_for_sizes),
    ranks: &RANKS,
    ..COMMON
};

pub(super) static RANKS: RankSide = RankSide { word: "prrte", hides: BROUGHT, ..COMMON_RANKS };

/// The option for the personality, and the one that tells ranks how many they are.
const PERSONALITY: &str = "personality";
const TELLS: &str = "ompi";

/// The variable by which a program that starts prterun chooses a personality, as Open MPI's `mpirun` does.
const CHOSEN: &str = "PRTE_MCA_schizo_proxy";

/// Variables that this personality brings, or their beginnings.
const BROUGHT: &[&str] = &[
    "OMPI_COMM_WORLD_",
    "OMPI_WORLD_",
    "OMPI_UNIVERSE_SIZE",
    "OMPI_NUM_APP_CTX",
    "OMPI_FIRST_RANKS",
    "OMPI_APP_CTX_NUM_PROCS",
    "OMPI_FILE_LOCATION",
    "OMPI_COMMAND",
    "OMPI_ARGV",
    "OMPI_MCA_num_procs",
    "OMPI_MCA_initial_wdir",
    "OMPI_MCA_cpu_type",
];

/// Has ranks told how many they are. Changes the user's own choice of a personality where there is one.
fn ask_for_sizes(args: &mut [OsString], given: &[&Given], environment: &Environment) -> Adjusted {
    let as_it_is = || Adjusted { options: Vec::new(), by: &openmpi::RANKS };
    let given = given.iter().find(|given| given.name == PERSONALITY);
    let Some((given, value)) = given.and_then(|given| Some((given, given.values.first()?))) else {
        if environment.iter().any(|(name, value)| name == CHOSEN && value == TELLS) {
            return as_it_is();
        }
        return Adjusted { options: vec![format!("--{PERSONALITY}").into(), TELLS.into()], by: &RANKS };
    };
    if value.to_string_lossy().contains(TELLS) {
        return as_it_is();
    }
    // The value stands behind `=` or is the next argument: both end with it.
    let at = if args[given.at].as_bytes().contains(&b'=') { given.at } else { given.at + 1 };
    args[at].push(format!(",{TELLS}"));
    Adjusted { options: Vec::new(), by: &RANKS }
}
