//! The processor-specific subdirectories that a loader on this machine searches.
//!
//! Only this machine's processor is known. For any other system plain files are used: they run on every node.

/// Subdirectories of `glibc-hwcaps`, the best first (glibc: `sysdeps/x86_64/dl-hwcaps-subdirs.c`).
#[cfg(target_arch = "x86_64")]
pub(super) fn detect_hwcaps() -> Vec<&'static str> {
    macro_rules! has {
        ($($feature:tt)*) => { $(std::is_x86_feature_detected!($feature))&&* };
    }
    let v2 = has!("cmpxchg16b" "popcnt" "sse3" "sse4.1" "sse4.2" "ssse3");
    let v3 = v2 && has!("avx" "avx2" "bmi1" "bmi2" "f16c" "fma" "lzcnt" "movbe");
    let v4 = v3 && has!("avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl");
    let levels = [(v4, "x86-64-v4"), (v3, "x86-64-v3"), (v2, "x86-64-v2")];
    levels.into_iter().filter_map(|(has, name)| has.then_some(name)).collect()
}

/// The subdirectories of other processors are not known here. Plain files are used, which run on all of them.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn detect_hwcaps() -> Vec<&'static str> {
    Vec::new()
}

/// The names of this processor for loaders before glibc 2.37: `$PLATFORM`, and subdirectories that may be combined,
/// most important first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Legacy {
    pub(super) platform: &'static str,
    pub(super) parts: Vec<&'static str>,
}

#[cfg(target_arch = "x86_64")]
pub(super) fn detect_legacy(cpuinfo: &[u8]) -> Legacy {
    // Their names refer to processors of one maker only.
    let is_intel = cpuinfo.windows(12).any(|window| window == b"GenuineIntel");
    macro_rules! has {
        ($($feature:tt)*) => { is_intel $(&& std::is_x86_feature_detected!($feature))* };
    }
    let is_haswell = has!("avx2" "bmi1" "bmi2" "lzcnt" "movbe" "popcnt");
    let has_avx512 = has!("avx512f" "avx512cd" "avx512bw" "avx512dq" "avx512vl");
    let platform = if is_haswell { "haswell" } else { "x86_64" };
    let parts = [(true, "tls"), (is_haswell, "haswell"), (has_avx512, "avx512_1"), (true, "x86_64")];
    Legacy { platform, parts: parts.into_iter().filter_map(|(has, name)| has.then_some(name)).collect() }
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn detect_legacy(_cpuinfo: &[u8]) -> Legacy {
    let platform = super::Arch::NATIVE.facts().map_or("", |row| row.platform);
    Legacy { platform, parts: vec!["tls"] }
}

/// All combinations of the parts, in the loader's order: those with the first part before those without.
pub(super) fn build_combinations(parts: &[&str]) -> Vec<String> {
    let count = parts.len().min(8);
    let is_in = |number: usize, part: usize| number >> (count - 1 - part) & 1 == 1;
    let combine = |number: usize| {
        let chosen = parts[..count].iter().enumerate().filter(|(part, _)| is_in(number, *part));
        chosen.map(|(_, name)| *name).collect::<Vec<_>>().join("/")
    };
    (1..1_usize << count).rev().map(combine).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations() {
        assert_eq!(build_combinations(&[]), Vec::<String>::new());
        let expected = ["a/b/c", "a/b", "a/c", "a", "b/c", "b", "c"];
        assert_eq!(build_combinations(&["a", "b", "c"]), expected);
    }

    #[test]
    fn better_levels_come_first_and_include_the_lower_ones() {
        let found = detect_hwcaps();
        let all = ["x86-64-v4", "x86-64-v3", "x86-64-v2"];
        assert!(all.ends_with(&found), "{found:?}");
    }
}
