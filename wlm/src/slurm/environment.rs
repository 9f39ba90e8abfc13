//! The variables that srun reads, and those that reach its tasks.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Variables that identify the cluster and the user. Without them a command may reach another controller or none.
const KEPT: [&str; 6] = [
    "SLURM_CLUSTERS",
    "SLURM_CONF",
    "SLURM_CONF_SERVER",
    "SLURM_JWT",
    "SLURM_WORKING_CLUSTER",
    "SLURM_SACK_SOCKET",
];

/// Whether a variable must be removed from the environment of an `srun` that starts agents in a user's job.
///
/// srun takes about eighty variables as options, and `salloc`, `sbatch` and an outer `srun` set many of them for the
/// user's own launches. With an overlapping step, SLURM_CPU_BIND, SLURM_EXCLUSIVE, SLURM_HET_SIZE, SLURM_JOB_NODELIST
/// and SLURM_SRUN_MULTI made it fail in tests. SLURM_TASK_PROLOG, SLURM_REMOTE_CWD, SLURM_STDOUTMODE and
/// SLURM_LABELIO changed the agents' behaviour or output. Each release adds new ones, so all are removed except those
/// that identify the cluster. The variables of process managers are removed, too: agents are no ranks.
pub(super) fn is_for_srun(name: &OsStr) -> bool {
    const PREFIXES: [&[u8]; 10] = [
        b"SLURM_", b"SLURMD_", b"SRUN_", b"SALLOC_", b"SBATCH_", b"SPANK_", b"PMI_", b"PMI2_", b"PMIX_",
        b"OMPI_",
    ];
    let bytes = name.as_bytes();
    !KEPT.iter().any(|kept| kept.as_bytes() == bytes)
        && PREFIXES.iter().any(|prefix| bytes.starts_with(prefix))
}

/// The value of `--export` with which the variables `names` reach the tasks, in addition to `current` (the user's
/// `--export`, else SRUN_EXPORT_ENV, else SLURM_EXPORT_ENV). `None`: all variables are exported anyway. Only `current`
/// can bring values into the list.
///
/// srun reads the list up to the first `NONE`, or `NIL` of 23.02 and later; `ALL` anywhere before it means everything.
/// SLURM_* variables always go.
pub(super) fn build_export(current: Option<&str>, names: &[&str]) -> Option<String> {
    let current = current?;
    let mut kept: Vec<&str> = Vec::new();
    for token in split_export(current) {
        if token.eq_ignore_ascii_case("ALL") {
            return None;
        }
        if ["NONE", "NIL"].iter().any(|word| token.eq_ignore_ascii_case(word)) {
            break;
        }
        if !token.is_empty() {
            kept.push(token);
        }
    }
    kept.extend_from_slice(names);
    Some(kept.join(","))
}

/// Splits at commas outside of quotes. Quotes stay in the text.
pub(super) fn split_export(text: &str) -> Vec<&str> {
    let (mut single, mut double, mut start) = (false, false, 0);
    let mut tokens = Vec::new();
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'\'' => single = !single,
            b'"' => double = !double,
            b',' if !single && !double => {
                tokens.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    tokens.push(&text[start..]);
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(current: Option<&str>, expected: Option<&str>) {
        assert_eq!(build_export(current, &["T", "U"]).as_deref(), expected, "{current:?}");
    }

    #[test]
    fn our_variables_reach_the_tasks_whatever_the_user_exports() {
        check(None, None);
        check(Some("ALL"), None);
        check(Some("A=1,all"), None);
        check(Some("NONE"), Some("T,U"));
        check(Some("none,A"), Some("T,U"));
        check(Some("A,NONE,ALL"), Some("A,T,U"));
        check(Some("NIL"), Some("T,U"));
        check(Some("A,B=2"), Some("A,B=2,T,U"));
        check(Some("A='x,ALL',B"), Some("A='x,ALL',B,T,U"));
        check(Some(""), Some("T,U"));
    }

    #[test]
    fn variables_that_our_srun_must_not_see() {
        let gone = |name: &str| is_for_srun(name.as_ref());
        assert!(
            ["SLURM_NTASKS", "SLURM_CPU_BIND", "SRUN_CPUS_PER_TASK", "PMI_RANK", "SLURM_JOB_ID"]
                .into_iter()
                .all(gone)
        );
        assert!(!["SLURM_CONF", "SLURM_JWT", "PATH", "HOME", "GANTRY_X"].into_iter().any(gone));
    }
}
