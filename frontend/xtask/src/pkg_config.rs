//! The pkg-config files: the arguments for a C compiler.

use std::path::Path;

use crate::library::Library;

/// The file for a library. Without a prefix, it finds the library from its own place.
pub(crate) fn build_file(library: &Library, prefix: Option<&Path>, libdir: &Path) -> String {
    let [name, description] = library.words;
    let prefix = match prefix {
        Some(prefix) => prefix.display().to_string(),
        None => format!("${{pcfiledir}}{}", "/..".repeat(libdir.join("pkgconfig").components().count())),
    };
    format!(
        "prefix={prefix}\n\
         includedir=${{prefix}}/include\n\
         libdir=${{prefix}}/{libdir}\n\
         \n\
         Name: {name}\n\
         Description: {description}\n\
         Version: {version}\n\
         Cflags: -I${{includedir}}\n\
         Libs: -L${{libdir}} -l{library}\n",
        libdir = libdir.display(),
        version = library.version,
        library = library.name,
    )
}

/// The name of that file.
pub(crate) fn file_name(library: &str) -> String {
    format!("{}.pc", library.replace("commontools", "common_tools"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::root;
    use crate::library::LIBRARIES;

    #[test]
    fn a_file_says_where_things_are() {
        let [_, library, _] = LIBRARIES;
        let file = build_file(&library, Some(Path::new("/opt/g")), Path::new("lib64"));
        assert!(file.starts_with("prefix=/opt/g\n"), "{file}");
        for line in
            ["libdir=${prefix}/lib64", "Libs: -L${libdir} -lcommontools_be", "Cflags: -I${includedir}"]
        {
            assert!(file.lines().any(|it| it == line), "{file}");
        }
        let file = build_file(&library, None, Path::new("lib/x"));
        assert!(file.starts_with("prefix=${pcfiledir}/../../..\n"), "{file}");
        assert_eq!(file_name("commontools_fe"), "common_tools_fe.pc");
    }

    /// Tools ask pkg-config for the version that the interface has in its header.
    #[test]
    fn the_version_is_that_of_the_header() {
        let header = root().join("shared/include/common_tools_version.h");
        let header = std::fs::read_to_string(header).unwrap();
        for library in LIBRARIES.iter().filter(|library| library.name.starts_with("commontools")) {
            let line = format!("#define CTI_PACKAGE_VERSION \"{}\"", library.version);
            assert!(header.lines().any(|it| it == line), "{line}");
        }
    }
}
