//! Workload managers in the reference interface, CTI: the numbers of its C types, and its names.
//!
//! Frontend and daemons of a tool written for CTI exchange these numbers, and users write these names into
//! `CTI_WLM_IMPL`. gantry's own numbers follow the reference's, which keep their values. gantry does not have all of
//! these workload managers.

/// Version of CTI's libraries that the C libraries follow.
pub const LIBRARY_VERSION: &str = "2.4.1";

/// No workload manager.
pub const NONE: i32 = 0;

/// A workload manager in CTI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CtiWlm {
    /// Its value in `cti_wlm_type_t`.
    pub number: i32,
    /// CTI's name.
    pub word: &'static str,
    /// gantry's name, if it differs.
    pub name: &'static str,
}

/// All numbered ones, without [`NONE`].
pub const CTI_WLMS: [CtiWlm; 8] = [
    CtiWlm { number: 1, word: "mock", name: "mock" },
    CtiWlm { number: 2, word: "slurm", name: "slurm" },
    CtiWlm { number: 3, word: "generic", name: "ssh" },
    CtiWlm { number: 4, word: "alps", name: "alps" },
    CtiWlm { number: 5, word: "pals", name: "pals" },
    CtiWlm { number: 6, word: "flux", name: "flux" },
    CtiWlm { number: 7, word: "localhost", name: "localhost" },
    // From here on the numbers are gantry's own.
    CtiWlm { number: 8, word: "pbs", name: "pbs" },
];

impl CtiWlm {
    /// The workload manager with that number.
    #[must_use]
    pub fn by_number(number: i32) -> Option<&'static Self> {
        CTI_WLMS.iter().find(|wlm| wlm.number == number)
    }

    /// The workload manager with that name in gantry.
    #[must_use]
    pub fn by_name(name: &str) -> Option<&'static Self> {
        CTI_WLMS.iter().find(|wlm| wlm.name == name)
    }
}

/// The name in gantry for a value of `CTI_WLM_IMPL`: `WLM` or `SYSTEM/WLM`, with CTI's names or gantry's. An unknown
/// name is returned unchanged.
#[must_use]
pub fn wlm_name(text: &str) -> &str {
    let word = text.rsplit_once('/').map_or(text, |(_, word)| word);
    CTI_WLMS.iter().find(|wlm| wlm.word.eq_ignore_ascii_case(word)).map_or(word, |wlm| wlm.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_reference() {
        let numbers: Vec<_> = CTI_WLMS.iter().map(|wlm| (wlm.number, wlm.word)).collect();
        let expected = ["mock", "slurm", "generic", "alps", "pals", "flux", "localhost", "pbs"];
        assert_eq!(numbers, (1..).zip(expected).collect::<Vec<_>>());
        assert_eq!(CtiWlm::by_number(NONE), None);
        assert_eq!(CtiWlm::by_name("ssh").map(|wlm| wlm.number), Some(3));
    }

    #[test]
    fn a_word_of_the_reference_becomes_a_name() {
        let check = |text: &str, expected: &str| assert_eq!(wlm_name(text), expected, "{text}");
        check("slurm", "slurm");
        check("linux/Slurm", "slurm");
        check("generic", "ssh");
        check("hpcm/ssh", "ssh");
        check("abacus", "abacus");
        check("/", "");
    }
}
