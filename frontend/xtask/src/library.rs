//! Links the C libraries from cargo's static ones, so that symbols get versions.
//!
//! For a shared library rustc gives the linker its own list of symbols. It has no versions, and no linker accepts it
//! together with a list that has them. So cargo's shared library is only for trials, and the installed one is linked
//! here.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::build::{root, run};

/// A C library of this repository.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Library {
    /// Its name without `lib`.
    pub(crate) name: &'static str,
    /// What its users read about it: a name, and a description.
    pub(crate) words: [&'static str; 2],
    /// The version that its users ask for.
    pub(crate) version: &'static str,
    /// The version in its file name. Its first part is in the name by which programs ask for it.
    number: &'static str,
    /// Its crate's folder.
    folder: &'static str,
    /// Linker arguments of this library, in addition to the common ones.
    flags: &'static [&'static str],
}

/// The version of the Common Tools Interface. Existing tools ask for that.
const INTERFACE: &str = "2.21.1";

/// The number of the reference's libraries: programs that were linked with those run with ours.
const REFERENCE: &str = "2.4.1";

/// The version of gantry.
const OWN: &str = env!("CARGO_PKG_VERSION");

/// All of them.
pub(crate) const LIBRARIES: [Library; 3] = [
    Library {
        name: "commontools_fe",
        words: [
            "common_tools frontend (gantry)",
            "launch parallel applications held, put tools next to their ranks",
        ],
        version: INTERFACE,
        number: REFERENCE,
        folder: "frontend/capi",
        // Its threads run code that dlclose would take away under them.
        flags: &["-Wl,-z,nodelete"],
    },
    Library {
        name: "commontools_be",
        words: ["common_tools backend (gantry)", "for tool daemons: where am I, which ranks are here"],
        version: INTERFACE,
        number: REFERENCE,
        folder: "backend/capi",
        flags: &[],
    },
    Library {
        name: "gantry_tm",
        words: ["tm (gantry)", "task management inside of a job, by the calls of tm(3)"],
        version: OWN,
        number: OWN,
        folder: "wlm/capi",
        flags: &[],
    },
];

/// The libraries that Rust's standard library needs: `rustc --print native-static-libs`.
const NEEDED: [&str; 5] = ["-lgcc_s", "-lpthread", "-lm", "-ldl", "-lc"];

impl Library {
    /// The name of its file.
    pub(crate) fn file_name(&self) -> String {
        format!("lib{}.so.{}", self.name, self.number)
    }

    /// The names under which it is found: by programs, and by linkers.
    pub(crate) fn links(&self) -> [String; 2] {
        [self.soname(), format!("lib{}.so", self.name)]
    }

    /// Its name for programs, in two parts.
    pub(crate) fn name_and_major(&self) -> (String, &'static str) {
        (format!("lib{}", self.name), self.number.split('.').next().unwrap_or_default())
    }

    fn soname(&self) -> String {
        let (name, major) = self.name_and_major();
        format!("{name}.so.{major}")
    }

    /// The list of its symbols.
    fn map(&self) -> PathBuf {
        root().join(self.folder).join(format!("lib{}.map", self.name))
    }

    /// Links it from the static library in `built` to `to`.
    ///
    /// # Errors
    /// The linker's.
    pub(crate) fn link(&self, linker: &[OsString], built: &Path, to: &Path, strip: bool) -> Result<()> {
        let (cc, first) = linker.split_first().ok_or("no linker")?;
        let map = self.map();
        let text = std::fs::read_to_string(&map)?;
        let mut args = [first, &["-shared".into(), "-o".into(), to.into()]].concat();
        // The linker takes only requested symbols from a static library, and the ones that those need.
        args.extend(parse_symbols(&text).into_iter().map(|symbol| format!("-Wl,-u,{symbol}").into()));
        args.push(built.join(format!("lib{}.a", self.name)).into());
        args.push(format!("-Wl,-soname,{}", self.soname()).into());
        args.push(format!("-Wl,--version-script={}", map.display()).into());
        args.extend(["-Wl,--gc-sections", "-Wl,-z,relro", "-Wl,-z,now", "-Wl,-z,defs"].map(Into::into));
        args.extend(self.flags.iter().map(Into::into));
        args.extend(strip.then(|| "-s".into()));
        args.push("-Wl,--as-needed".into());
        args.extend(NEEDED.iter().map(Into::into));
        run(cc, &args).map(drop)
    }
}

/// The names in a version script.
fn parse_symbols(map: &str) -> Vec<&str> {
    let lines = map.lines().filter_map(|line| line.trim().strip_suffix(';'));
    lines.filter(|name| name.contains('_')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_read_from_the_list() {
        let map = "/* cti_x; */\nA {\n global:\n  cti_a;\n local:\n  *;\n};\nB {\n  gantry_b;\n};\n";
        assert_eq!(parse_symbols(map), ["cti_a", "gantry_b"]);
        for library in LIBRARIES {
            let map = std::fs::read_to_string(library.map()).unwrap();
            assert!(parse_symbols(&map).len() > 10, "{library:?}");
        }
    }
}
