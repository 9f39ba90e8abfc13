//! The pkg-config files: the arguments for a C compiler.

use std::path::Path;

/// The file for a library.
pub(crate) fn build_file(library: &str, prefix: &Path, libdir: &Path) -> String {
    let (side, description) = match library {
        "commontools_fe" => ("frontend", "launch parallel applications held, put tools next to their ranks"),
        _ => ("backend", "for tool daemons: where am I, which ranks are here"),
    };
    format!(
        "prefix={prefix}\n\
         includedir=${{prefix}}/include\n\
         libdir=${{prefix}}/{libdir}\n\
         \n\
         Name: common_tools {side} (gantry)\n\
         Description: {description}\n\
         Version: 2.4.1\n\
         Cflags: -I${{includedir}}\n\
         Libs: -L${{libdir}} -l{library}\n",
        prefix = prefix.display(),
        libdir = libdir.display(),
    )
}

/// The name of that file.
pub(crate) fn file_name(library: &str) -> String {
    format!("{}.pc", library.replace("commontools", "common_tools"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_where_things_are() {
        let file = build_file("commontools_be", Path::new("/opt/g"), Path::new("lib64"));
        assert!(file.starts_with("prefix=/opt/g\n"), "{file}");
        for line in
            ["libdir=${prefix}/lib64", "Libs: -L${libdir} -lcommontools_be", "Cflags: -I${includedir}"]
        {
            assert!(file.lines().any(|it| it == line), "{file}");
        }
        assert_eq!(file_name("commontools_fe"), "common_tools_fe.pc");
    }
}
