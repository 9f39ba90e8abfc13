//! The list of known launchers, and the functions that recognize them.

use std::ffi::OsStr;
use std::path::Path;

use super::dialect::Dialect;
use super::variables::RankSide;
use super::{hydra, openmpi, prrte};

/// Every launcher.
#[rustfmt::skip]
pub(super) static LAUNCHERS: &[&Dialect] = &[
    &openmpi::OPEN_MPI,
    &prrte::PRRTE,
    &hydra::HYDRA,
    &crate::slurm::SRUN,
    &crate::flux::FLUX_RUN,
];

/// The part of each launcher that its ranks see, in the same order. It is a separate list because agents do not contain
/// the rest.
#[rustfmt::skip]
pub(super) static RANK_SIDES: &[&RankSide] = &[
    &openmpi::RANKS,
    &prrte::RANKS,
    &hydra::RANKS,
    &crate::slurm::SRUN_RANKS,
    &crate::flux::FLUX_RANKS,
];

/// Finds the launcher with that word in `gantry-agent hold --by`.
pub fn find_by_word(word: &str) -> Option<&'static RankSide> {
    RANK_SIDES.iter().copied().find(|side| side.word == word)
}

/// Finds the dialect by file name. The caller has followed links: the name is the base name of the target of `mpirun`.
/// A name of several launchers (`mpiexec`) yields nothing: use [`find_by_version`].
pub(super) fn find_by_name(name: &OsStr) -> Option<&'static Dialect> {
    let base = Path::new(name).file_name()?.to_str()?;
    LAUNCHERS.iter().copied().find(|dialect| dialect.file_names.contains(&base))
}

/// Finds the dialect of the launcher with this answer to `--version`.
pub(crate) fn find_by_version(printed: &str) -> Option<&'static Dialect> {
    let first = printed.lines().find(|line| !line.trim().is_empty())?;
    let first = format!("\n{}", first.to_ascii_lowercase());
    LAUNCHERS.iter().copied().find(|dialect| dialect.versions.iter().any(|word| first.contains(word)))
}

/// Whether any launcher has an option of this name: `--time`, `--time=5`.
pub fn is_launcher_option(word: &str) -> bool {
    let name = word.trim_start_matches('-').split('=').next().unwrap_or_default();
    let mut rows = LAUNCHERS.iter().flat_map(|dialect| dialect.rows());
    word.starts_with("--") && rows.any(|(names, _)| names.split(' ').any(|known| known == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of `list` that occur twice among all launchers.
    fn twice(list: fn(&'static Dialect) -> Vec<&'static str>) -> Vec<&'static str> {
        let mut all: Vec<&str> = LAUNCHERS.iter().flat_map(|dialect| list(dialect)).collect();
        assert!(all.len() >= LAUNCHERS.len());
        all.sort_unstable();
        all.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect()
    }

    #[test]
    fn both_tables_have_the_same_launchers() {
        let of_dialects: Vec<&RankSide> = LAUNCHERS.iter().map(|dialect| dialect.ranks).collect();
        assert_eq!(of_dialects, RANK_SIDES);
    }

    #[test]
    fn no_two_launchers_are_told_by_the_same() {
        assert_eq!(twice(|dialect| vec![dialect.ranks.word]), [""; 0]);
        assert_eq!(twice(|dialect| vec![dialect.name]), [""; 0]);
        assert_eq!(twice(|dialect| dialect.file_names.to_vec()), [""; 0]);
        assert_eq!(twice(|dialect| dialect.versions.to_vec()), [""; 0]);
        for dialect in LAUNCHERS {
            assert_eq!(find_by_word(dialect.ranks.word), Some(dialect.ranks));
            for name in dialect.file_names {
                assert_eq!(find_by_name(name.as_ref()), Some(*dialect), "{name}");
            }
            // No launcher's word is part of another launcher's word.
            for word in dialect.versions {
                assert_eq!(find_by_version(&format!("{} 1.0", word.trim())), Some(*dialect), "{word}");
            }
        }
        assert_eq!(find_by_word("other"), None);
    }

    #[test]
    fn dialects_by_name_and_by_version() {
        let of = |name: &str| find_by_name(name.as_ref()).map(|dialect| dialect.ranks.word);
        assert_eq!(of("/usr/bin/mpiexec.hydra"), Some("hydra"));
        assert_eq!(of("/usr/bin/orterun"), Some("openmpi"));
        assert_eq!(of("prterun"), Some("prrte"));
        assert_eq!([of("mpiexec"), of("jsrun"), of("/")], [None; 3]);
        let says = |text: &str| find_by_version(text).map(|dialect| dialect.ranks.word);
        assert_eq!(says("HYDRA build details:\n    Version: 4.0.2\n"), Some("hydra"));
        assert_eq!(says("mpirun (Open MPI) 5.0.5\n"), Some("openmpi"));
        assert_eq!(says("prterun (PRRTE) 3.0.14\n"), Some("prrte"));
        assert_eq!(says("\nmpirun.openmpi (OpenRTE) 4.1.4\n"), Some("openmpi"));
        assert_eq!([says(""), says("hello")], [None; 2]);
    }

    #[test]
    fn no_option_stands_twice_in_a_dialect() {
        for dialect in LAUNCHERS {
            let mut names: Vec<&str> = dialect.rows().flat_map(|(names, _)| names.split(' ')).collect();
            names.sort_unstable();
            let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
            assert!(twice.is_empty(), "{dialect}: {twice:?}");
        }
    }
}
