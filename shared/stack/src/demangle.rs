//! Names as in the source, for C++, Rust and Fortran. Symbols of C and Go are not mangled.

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

/// The longest name that is demangled.
const MAX_NAME: usize = 4096;

/// The deepest nesting of types in a name: names come from untrusted files.
const MAX_NESTING: u32 = 96;

/// The name of a symbol in the source.
#[must_use]
pub fn demangle(symbol: &str) -> String {
    let plain = symbol.split_once('@').map_or(symbol, |(name, _version)| name);
    if plain.len() > MAX_NAME {
        return plain.to_owned();
    }
    if let Ok(name) = rustc_demangle::try_demangle(plain) {
        // The alternate form leaves out the hash.
        return format!("{name:#}");
    }
    fortran(plain).or_else(|| cpp(plain)).unwrap_or_else(|| plain.to_owned())
}

/// A function of a module of gfortran: `__heat_MOD_solve`.
fn fortran(symbol: &str) -> Option<String> {
    let (module, procedure) = symbol.strip_prefix("__")?.split_once("_MOD_")?;
    Some(format!("{module}::{procedure}"))
}

/// A C++ name without parameter types, which would make a line too long.
fn cpp(symbol: &str) -> Option<String> {
    if !symbol.starts_with("_Z") {
        return None;
    }
    let options = ParseOptions::default().recursion_limit(MAX_NESTING);
    let parsed = Symbol::new_with_options(symbol, &options).ok()?;
    parsed.demangle_with_options(&DemangleOptions::default().no_params().no_return_type()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_their_authors_wrote_them() {
        let check = |symbol, expected| assert_eq!(demangle(symbol), expected, "{symbol}");
        check("main", "main");
        check("poll@@GLIBC_2.2.5", "poll");
        check("_ZN4heat6Solver5solveEi", "heat::Solver::solve");
        check("_ZN4heat5solve17h0123456789abcdefE", "heat::solve");
        check("_RNvC6_123foo3bar", "123foo::bar");
        check("__heat_MOD_solve", "heat::solve");
        check("main.(*Solver).Solve", "main.(*Solver).Solve");
        check("_Zbroken", "_Zbroken");
        check(&"_Z".repeat(MAX_NAME), &"_Z".repeat(MAX_NAME));
    }
}
