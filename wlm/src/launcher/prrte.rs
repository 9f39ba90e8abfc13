//! PRRTE's prterun. A rank under it has its own number in its environment, but not the number of ranks: programs ask its PMIx server.
//!
//! With the personality of Open MPI it also sets the variables that `mpirun` sets. So a launch asks for that, and the program gets an
//! environment without them. The personality maps and binds ranks as prterun's own does. One case differs: with `--map-by ppr` over several
//! hosts and no `--rank-by`, ranks are numbered as under `mpirun`. Source: PRRTE 3.0.14; PMIx 5's component for Open MPI.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::dialect::{Dialect, Environment, Launcher};
use super::openmpi;
use super::options::Part;

pub(super) static DIALECT: Dialect =
    Dialect { launcher: Launcher::Prrte, name: "prterun", ..openmpi::COMMON };

/// The option for the personality, and the one that tells ranks how many they are.
const PERSONALITY: &str = "personality";
const TELLS: &str = "ompi";

/// The variable by which a program that starts prterun chooses a personality, as Open MPI's `mpirun` does.
const CHOSEN: &str = "PRTE_MCA_schizo_proxy";

/// Beginnings of variables that this personality brings.
const BROUGHT_BEGINNINGS: [&str; 2] = ["OMPI_COMM_WORLD_", "OMPI_WORLD_"];

/// Other variables that it brings.
const BROUGHT: [&str; 10] = [
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

/// Has ranks told how many they are. Changes the user's own choice of a personality where there is one. Returns the options to add, and the
/// launcher whose variables the ranks will have.
pub(super) fn ask_for_sizes(
    args: &mut [OsString],
    parts: &[Part],
    environment: &Environment,
) -> (Vec<OsString>, Launcher) {
    let given = parts.iter().flat_map(|part| &part.given).find(|given| given.name == PERSONALITY);
    let Some((given, value)) = given.and_then(|given| Some((given, given.values.first()?))) else {
        let chosen = environment.iter().any(|(name, value)| name == CHOSEN && value == TELLS);
        return match chosen {
            true => (Vec::new(), Launcher::OpenMpi),
            false => (vec![format!("--{PERSONALITY}").into(), TELLS.into()], Launcher::Prrte),
        };
    };
    if value.to_string_lossy().contains(TELLS) {
        return (Vec::new(), Launcher::OpenMpi);
    }
    // The value stands behind `=` or is the next argument: both end with it.
    let at = if args[given.at].as_bytes().contains(&b'=') { given.at } else { given.at + 1 };
    let mut both = std::mem::take(&mut args[at]).into_vec();
    both.extend(format!(",{TELLS}").into_bytes());
    args[at] = OsString::from_vec(both);
    (Vec::new(), Launcher::Prrte)
}

/// Whether a rank has this variable only because gantry has asked the launcher `by` for it: the program is not to see it.
pub fn is_asked_for(by: Option<Launcher>, name: &OsStr) -> bool {
    by == Some(Launcher::Prrte)
        && name.to_str().is_some_and(|name| {
            BROUGHT.contains(&name) || BROUGHT_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
        })
}
