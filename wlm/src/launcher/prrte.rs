//! PRRTE's prterun. Its ranks have their own number in the environment, but not the number of ranks: programs ask its
//! PMIx server.
//!
//! With the personality of Open MPI it also sets the variables that `mpirun` sets. So a launch requests that
//! personality, and the agent removes these variables again for the program. The personality maps and binds ranks as
//! prterun itself does. One case differs: with `--map-by ppr` over several hosts and without `--rank-by`, ranks are
//! numbered as under `mpirun`. Source: PRRTE 3.0.14; PMIx 5's component for Open MPI.

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

/// The option for the personality, and the personality that tells ranks the number of ranks.
const PERSONALITY: &str = "personality";
const TELLS: &str = "ompi";

/// The variable in which a caller of prterun chooses a personality, as Open MPI's `mpirun` does.
const CHOSEN: &str = "PRTE_MCA_schizo_proxy";

/// Variables that this personality sets, or their prefixes.
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

/// Makes prterun set the number of ranks in its ranks' environment. Extends the user's own choice of a personality, if
/// there is one.
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
    // The value is behind `=` or is the next argument. Both end with it.
    let at = if args[given.at].as_bytes().contains(&b'=') { given.at } else { given.at + 1 };
    args[at].push(format!(",{TELLS}"));
    Adjusted { options: Vec::new(), by: &RANKS }
}
