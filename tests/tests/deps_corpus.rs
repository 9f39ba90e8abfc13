//! Small programs, one for each rule of ld.so(8). Our result must be the loader's, in the loader's order.

#![expect(clippy::unwrap_used, reason = "a test that finds something else fails")]
#![expect(clippy::disallowed_methods, reason = "programs are built with the system's compiler")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use gantry_frontend::staging::{Arch, Closure, How, Resolver, ResolverConfig, Why};
use gantry_tests::loader::{self, Listed};
use gantry_tests::{binaries, require, skip, tool};
use tempfile::TempDir;

/// A folder to build programs in. Paths are relative to it. `@` in flags stands for it.
struct Yard {
    folder: TempDir,
}

impl Yard {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        // The loader resolves links, and the temporary folder may be behind one.
        self.folder.path().canonicalize().unwrap().join(name)
    }

    fn text(&self, text: &str) -> String {
        text.replace('@', self.path("").to_str().unwrap().trim_end_matches('/'))
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, self.text(text)).unwrap();
        path
    }

    fn link(&self, name: &str, target: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        symlink(self.text(target), self.path(name)).unwrap();
    }

    fn compile(&self, name: &str, source: &str, flags: &str) -> Result<(), String> {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let source = self.write(&format!("{name}.c"), source);
        let mut cc = Command::new("cc");
        cc.current_dir(self.path("")).arg("-o").arg(&path).arg(source);
        cc.args(["-Wl,--no-as-needed", "-Wl,--unresolved-symbols=ignore-all"]);
        let output = cc.args(self.text(flags).split_whitespace()).output().unwrap();
        if output.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// A library whose SONAME is its file name.
    fn library(&self, name: &str, flags: &str) -> PathBuf {
        let soname = Path::new(name).file_name().unwrap().to_str().unwrap();
        self.library_as(name, soname, flags)
    }

    fn library_as(&self, name: &str, soname: &str, flags: &str) -> PathBuf {
        let soname = if soname.is_empty() { String::new() } else { format!("-Wl,-soname,{soname}") };
        // The library needs nothing by default.
        self.compile(name, "int here;", &format!("-shared -fPIC -nostdlib {soname} {flags}")).unwrap();
        self.path(name)
    }

    fn program(&self, name: &str, flags: &str) -> PathBuf {
        self.compile(name, "int main(void) { return 0; }", flags).unwrap();
        self.path(name)
    }
}

fn closure(program: &Path, variables: &[(&str, &str)]) -> Closure {
    let library_path = variables.iter().find(|(name, _)| *name == "LD_LIBRARY_PATH");
    let library_path = library_path.map(|(_, value)| (*value).into());
    Resolver::new(ResolverConfig { library_path, ..ResolverConfig::default() }).closure(program).unwrap()
}

/// The resolver and the loader must find the same files in the same order. Returns the resolver's result.
#[track_caller]
fn check(program: &Path, variables: &[(&str, &str)]) -> Closure {
    let theirs = loader::trace(program, program.parent().unwrap(), variables);
    let ours = closure(program, variables);
    compare(&ours, &theirs);
    ours
}

#[track_caller]
fn compare(ours: &Closure, theirs: &Listed) {
    assert!(theirs.is_whole, "{}", theirs.said);
    let paths: Vec<_> = ours.needed.iter().map(|it| it.path.clone()).collect();
    assert_eq!(paths, theirs.paths, "{}", theirs.said);
    let not_found = ours.missing.iter().filter(|it| matches!(it.why, Why::NotFound { .. }));
    let missing: std::collections::BTreeSet<_> =
        not_found.map(|it| it.name.to_string_lossy().into_owned()).collect();
    assert_eq!(missing, theirs.missing, "{}", theirs.said);
    let versions = ours.missing.iter().filter_map(|it| match &it.why {
        Why::Version { version, .. } => Some((version.to_string_lossy().into_owned(), it.needed_by.clone())),
        _ => None,
    });
    assert_eq!(versions.collect::<std::collections::BTreeSet<_>>(), theirs.versions, "{}", theirs.said);
}

/// How and where a library was found.
#[track_caller]
fn found(closure: &Closure, name: &str) -> (How, PathBuf) {
    let found = closure.needed.iter().find(|it| it.name == name);
    found.map(|it| (it.how, it.path.clone())).unwrap_or_else(|| panic!("{name} not in {closure:?}"))
}

const OLD: &str = "-Wl,--disable-new-dtags";
const NEW: &str = "-Wl,--enable-new-dtags";

#[test]
fn rpath_goes_before_the_environment_and_runpath_behind_it() {
    require!(tool("cc"));
    let yard = Yard::new();
    yard.library("one/libb.so", "");
    yard.library("two/libb.so", "");
    let two = yard.text("@/two");
    let old = yard.program("old", &format!("one/libb.so -Wl,-rpath,@/one {OLD}"));
    let new = yard.program("new", &format!("one/libb.so -Wl,-rpath,@/one {NEW}"));
    let variables = [("LD_LIBRARY_PATH", two.as_str())];
    assert_eq!(found(&check(&old, &variables), "libb.so"), (How::Rpath, yard.path("one/libb.so")));
    assert_eq!(found(&check(&new, &variables), "libb.so"), (How::LibraryPath, yard.path("two/libb.so")));
    assert_eq!(found(&check(&new, &[]), "libb.so"), (How::Runpath, yard.path("one/libb.so")));
}

#[test]
fn rpath_is_inherited_along_the_chain_and_runpath_is_not() {
    require!(tool("cc"));
    let yard = Yard::new();
    yard.library("low/libc1.so", "");
    yard.library("mid/libb1.so", "low/libc1.so");
    yard.library("libs/liba1.so", &format!("mid/libb1.so -Wl,-rpath,@/mid {OLD}"));
    let inherited = format!("libs/liba1.so -Wl,-rpath,@/libs:@/low {OLD}");
    let program = yard.program("old", &inherited);
    assert_eq!(found(&check(&program, &[]), "libc1.so"), (How::Rpath, yard.path("low/libc1.so")));
    let program = yard.program("new", &inherited.replace(OLD, NEW));
    assert_eq!(check(&program, &[]).missing.len(), 1);
    // An object with a RUNPATH ignores all RPATHs of the chain when it loads its own needs. The libraries that it
    // loads use the RPATHs of the others again.
    yard.library("libs/liba1.so", &format!("mid/libb1.so -Wl,-rpath,@/nowhere {NEW}"));
    let program = yard.program("broken", &inherited);
    assert_eq!(check(&program, &[]).missing[0].name, "libb1.so");
}

#[test]
fn origin_is_the_programs_real_folder_and_a_librarys_named_one() {
    require!(tool("cc"));
    let yard = Yard::new();
    yard.library("app/lib/deep/libq.so", "");
    yard.library("store/libp.so", &format!("app/lib/deep/libq.so -Wl,-rpath,$ORIGIN/deep {NEW}"));
    yard.link("app/lib/libp.so", "../../store/libp.so");
    yard.program("app/bin/tool", &format!("store/libp.so -Wl,-rpath,$ORIGIN/../lib {NEW}"));
    yard.link("shortcut/bin/tool", "../../app/bin/tool");
    let closure = check(&yard.path("shortcut/bin/tool"), &[]);
    assert_eq!(found(&closure, "libq.so").1, yard.path("app/bin/../lib/deep/libq.so"));
}

#[test]
fn tokens_are_replaced_in_paths_in_names_and_in_the_environment() {
    require!(tool("cc"));
    let yard = Yard::new();
    let tokens = "${ORIGIN}/$LIB:$ORIGIN/p/$PLATFORM:$ORIGIN/$UNKNOWN";
    let built = yard.library("libt.so", "");
    let program = yard.program("tool", &format!("libt.so -Wl,-rpath,{tokens} {NEW}"));
    let native = if cfg!(target_arch = "x86_64") { "x86_64-linux-gnu" } else { "aarch64-linux-gnu" };
    let platforms = ["haswell", "x86_64", "xeon_phi", "aarch64"].map(|name| format!("p/{name}/libt.so"));
    for place in [format!("lib/{native}/libt.so"), "lib64/libt.so".to_owned(), "lib/libt.so".to_owned()]
        .iter()
        .chain(&platforms)
    {
        fs::create_dir_all(yard.path(place).parent().unwrap()).unwrap();
        fs::copy(&built, yard.path(place)).unwrap();
    }
    assert_eq!(found(&check(&program, &[]), "libt.so").0, How::Runpath);
    for folder in ["lib", "lib64"] {
        fs::remove_dir_all(yard.path(folder)).unwrap();
    }
    assert_eq!(found(&check(&program, &[]), "libt.so").0, How::Runpath);
    fs::remove_dir_all(yard.path("p")).unwrap();
    check(&program, &[("LD_LIBRARY_PATH", "$ORIGIN")]);
    yard.library_as("named.so", "$ORIGIN/named.so", "");
    let program = yard.program("by_token", "named.so");
    assert_eq!(check(&program, &[]).needed[0].path, yard.path("named.so"));
}

#[test]
fn folders_for_better_processors_come_first() {
    require!(tool("cc"));
    let yard = Yard::new();
    let plain = yard.library("lib/libh.so", "");
    let program = yard.program("tool", &format!("lib/libh.so -Wl,-rpath,@/lib {NEW}"));
    // In ascending order of priority: the loader prefers each new library to the one before.
    for below in [
        "x86_64",
        "haswell",
        "tls",
        "haswell/avx512_1/x86_64",
        "tls/haswell",
        "glibc-hwcaps/x86-64-v2",
        "glibc-hwcaps/x86-64-v3",
        "glibc-hwcaps/x86-64-v4",
    ] {
        let copy = yard.path("lib").join(below).join("libh.so");
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(&plain, copy).unwrap();
        check(&program, &[]);
        check(&program, &[("LD_LIBRARY_PATH", yard.path("lib").to_str().unwrap())]);
    }
}

#[test]
fn empty_and_relative_entries_of_the_environment_mean_the_working_directory() {
    require!(tool("cc"));
    let yard = Yard::new();
    yard.library("work/libe.so", "");
    yard.library("work/sub/libf.so", "");
    let program = yard.program("work/tool", "work/libe.so work/sub/libf.so");
    for list in [":/nowhere", "/nowhere;;sub", "/nowhere:sub:", "sub/:.", ";"] {
        let variables = [("LD_LIBRARY_PATH", list)];
        let theirs = loader::trace(&program, &yard.path("work"), &variables);
        let (code, rows) = deps_json(&yard.path("work"), &["./tool"], &variables);
        let paths: Vec<_> = rows.iter().filter_map(|row| row["path"].as_str()).map(PathBuf::from).collect();
        assert_eq!(paths, theirs.paths, "{list}: {}", theirs.said);
        assert_eq!(code == 0, theirs.missing.is_empty(), "{list}");
    }
}

/// Runs `gantry deps --json` and returns its exit code and its array.
fn deps_json(folder: &Path, args: &[&str], variables: &[(&str, &str)]) -> (i32, Vec<serde_json::Value>) {
    let mut gantry = Command::new(&binaries().gantry);
    gantry.args(["deps", "--json"]).args(args).current_dir(folder).env_remove("LD_LIBRARY_PATH");
    let output = gantry.envs(variables.iter().copied()).output().unwrap();
    let rows = serde_json::from_slice(&output.stdout);
    (output.status.code().unwrap(), rows.unwrap_or_else(|e| panic!("{e}: {output:?}")))
}

#[test]
fn a_missing_library_is_named_with_its_needing_file_and_search_path() {
    require!(tool("cc"));
    let yard = Yard::new();
    yard.library("gone/liblost.so", "");
    yard.library("lib/libhas.so", "gone/liblost.so");
    let program = yard.program("tool", &format!("lib/libhas.so -Wl,-rpath,@/lib {OLD}"));
    fs::remove_dir_all(yard.path("gone")).unwrap();
    let closure = check(&program, &[]);
    let said = closure.missing[0].to_string();
    let expected =
        yard.text("liblost.so, needed by @/lib/libhas.so, was not found; looked in @/lib (rpath), ");
    assert!(said.starts_with(&expected), "{said}");

    let gantry = |args: &[&str]| {
        Command::new(&binaries().gantry).arg("deps").args(args).arg(&program).output().unwrap()
    };
    for args in [&[][..], &["--tree"], &["--json"]] {
        let output = gantry(args);
        assert_eq!(output.status.code(), Some(65), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(&expected), "{output:?}");
    }
    let (_, rows) = deps_json(&yard.path(""), &["./tool"], &[]);
    let lost = rows.iter().find(|row| row["name"] == "liblost.so").unwrap();
    assert!(lost["path"].is_null() && lost["how"].is_null() && lost["missing"].is_string(), "{lost}");
    assert_eq!(lost["needed_by"], yard.text("@/lib/libhas.so"));
}

#[test]
fn libraries_that_need_each_other_end() {
    require!(tool("cc"));
    let yard = Yard::new();
    yard.library("libx.so", "");
    yard.library("liby.so", "libx.so");
    yard.library("libx.so", &format!("liby.so -Wl,-rpath,@ {NEW}"));
    let program = yard.program("tool", &format!("libx.so -Wl,-rpath,@ {NEW}"));
    let closure = check(&program, &[]);
    assert_eq!(found(&closure, "libx.so").0, How::Runpath);
    let tree = Command::new(&binaries().gantry).args(["deps", "--tree"]).arg(&program).output().unwrap();
    let tree = String::from_utf8_lossy(&tree.stdout).into_owned();
    assert!(tree.contains("\n    liby.so") && tree.contains("see above"), "{tree}");
}

#[test]
fn names_with_a_slash_are_paths() {
    require!(tool("cc"));
    let yard = Yard::new();
    yard.library_as("abs.so", "", "");
    yard.library_as("lib/rel.so", "", "");
    let program = yard.program("tool", "@/abs.so lib/rel.so");
    let theirs = loader::trace(&program, &yard.path(""), &[]);
    let (_, rows) = deps_json(&yard.path(""), &["./tool"], &[]);
    let paths: Vec<_> = rows.iter().filter_map(|row| row["path"].as_str()).map(PathBuf::from).collect();
    assert_eq!(paths, theirs.paths);
    assert_eq!(paths[..2], [yard.path("abs.so"), PathBuf::from("lib/rel.so")]);
    assert_eq!((&rows[0]["how"], &rows[1]["how"]), (&"absolute".into(), &"absolute".into()));
}

#[test]
fn a_library_without_default_folders_gets_none() {
    require!(tool("cc"));
    let yard = Yard::new();
    yard.library("lib/libn.so", "-Wl,-z,nodefaultlib -Wl,--no-as-needed -lc");
    let program = yard.program("tool", &format!("lib/libn.so -Wl,-rpath,@/lib {NEW} -Wl,-z,nodefaultlib"));
    assert!(check(&program, &[]).missing.iter().any(|it| it.name == "libc.so.6"));
    // A library that another object has loaded also satisfies this one.
    let program = yard.program("other", &format!("lib/libn.so -Wl,-rpath,@/lib {NEW}"));
    assert!(check(&program, &[]).missing.is_empty());
}

#[test]
fn one_file_with_two_names_is_loaded_once_and_both_names_are_told() {
    require!(tool("cc"));
    let yard = Yard::new();
    for name in ["libtwo.so.1", "libtwo.so.2"] {
        yard.library(name, "");
    }
    let program = yard.program("tool", &format!("libtwo.so.1 libtwo.so.2 -Wl,-rpath,@ {NEW}"));
    yard.library_as("real.so", "", "");
    for name in ["libtwo.so.1", "libtwo.so.2"] {
        fs::remove_file(yard.path(name)).unwrap();
        yard.link(name, "real.so");
    }
    let closure = check(&program, &[]);
    assert_eq!(closure.needed[0].other_names, ["libtwo.so.2"]);
    assert!(closure.needs.iter().take(2).all(|need| need.found == Some(0)));
}

#[test]
fn a_library_without_a_version_that_is_needed_is_told() {
    require!(tool("cc"));
    let yard = Yard::new();
    let script = yard.write("both.map", "V1 { global: old_one; };\nV2 { global: new_one; } V1;\n");
    let source = "int old_one(void) { return 1; }\nint new_one(void) { return 2; }\n";
    let flags =
        format!("-shared -fPIC -nostdlib -Wl,-soname,libv.so -Wl,--version-script={}", script.display());
    yard.compile("libv.so", source, &flags).unwrap();
    let main = "int new_one(void); int main(void) { return new_one(); }";
    yard.compile("tool", main, &format!("libv.so -Wl,-rpath,@ {NEW}")).unwrap();
    let program = yard.path("tool");
    assert!(check(&program, &[]).missing.is_empty());
    yard.write("both.map", "V1 { global: old_one; };\n");
    yard.compile("libv.so", "int old_one(void) { return 1; }", &flags).unwrap();
    let closure = check(&program, &[]);
    let expected = yard.text("version V2 of @/libv.so, needed by @/tool, was not found");
    assert_eq!(closure.missing[0].to_string(), expected);
    // The loader accepts a library without any versions as one that has all of them.
    yard.library("libv.so", "");
    assert!(check(&program, &[]).missing.is_empty());
}

#[test]
fn filters_are_loaded_before_the_library_that_has_them() {
    require!(tool("cc"));
    let yard = Yard::new();
    yard.library("libdeep.so", "");
    yard.library("libreal.so", "libdeep.so");
    yard.library("libmaybe.so", "");
    yard.library("libother.so", "");
    let paths = format!("-Wl,-rpath,@ {NEW}");
    yard.library("libfilter.so", &format!("-Wl,-F,libreal.so -Wl,-f,libmaybe.so {paths}"));
    yard.library("libreal.so", &format!("libdeep.so {paths}"));
    let program = yard.program("tool", &format!("libfilter.so libother.so {paths}"));
    let closure = check(&program, &[]);
    let names: Vec<_> = closure.needed.iter().map(|it| it.name.to_str().unwrap()).collect();
    assert!(
        names.iter().position(|it| *it == "libreal.so") < names.iter().position(|it| *it == "libfilter.so")
    );
    // An auxiliary filter may be missing.
    fs::remove_file(yard.path("libmaybe.so")).unwrap();
    assert!(self::closure(&program, &[]).missing.is_empty());
}

#[test]
fn a_file_for_another_machine_is_passed_over_and_one_that_is_broken_ends_it() {
    require!(tool("cc"));
    let yard = Yard::new();
    let good = yard.library("good/libw.so", "");
    let program = yard.program("tool", &format!("good/libw.so -Wl,-rpath,@/bad:@/good {NEW}"));
    fs::create_dir_all(yard.path("bad")).unwrap();
    let spoil = |at: usize, value: u8| {
        let mut bytes = fs::read(&good).unwrap();
        bytes[at] = value;
        fs::write(yard.path("bad/libw.so"), bytes).unwrap();
    };
    for (at, value) in [(4, 1), (18, 0xb7)] {
        spoil(at, value);
        assert_eq!(found(&check(&program, &[]), "libw.so").1, yard.path("good/libw.so"));
    }
    for (at, value) in [(0, b'x'), (16, 4)] {
        spoil(at, value);
        let theirs = loader::trace(&program, &yard.path(""), &[]);
        let ours = closure(&program, &[]);
        assert!(!theirs.is_whole && matches!(ours.missing[0].why, Why::Unfit { .. }), "{}", theirs.said);
    }
    fs::remove_file(yard.path("bad/libw.so")).unwrap();
    fs::write(yard.path("bad/libw.so"), "").unwrap();
    assert!(matches!(closure(&program, &[]).missing[0].why, Why::Unfit { .. }));
    assert!(!loader::trace(&program, &yard.path(""), &[]).is_whole);
}

#[test]
fn a_static_program_needs_nothing() {
    require!(tool("cc"));
    let yard = Yard::new();
    for (name, flag) in [("static", "-static"), ("static_pie", "-static-pie")] {
        if let Err(said) = yard.compile(name, "int main(void) { return 0; }", flag) {
            skip!("no static C library: {}", said.lines().next().unwrap_or_default());
        }
        let closure = closure(&yard.path(name), &[]);
        assert_eq!((closure.needed.len(), closure.missing.len(), closure.interpreter), (0, 0, None));
    }
}

#[test]
fn a_file_that_has_changed_is_read_again() {
    require!(tool("cc"));
    let yard = Yard::new();
    yard.library("libm1.so", "");
    let flags = format!("-Wl,-rpath,@ {NEW}");
    let program = yard.program("tool", &flags);
    let resolver = Resolver::new(ResolverConfig::default());
    let count = || resolver.closure(&program).unwrap().needed.len();
    let before = count();
    yard.program("tool", &format!("libm1.so {flags}"));
    assert_eq!(count(), before + 1);
}

#[test]
fn a_library_is_found_by_its_name() {
    let resolver = Resolver::new(ResolverConfig::default());
    let libc = resolver.find_library("libc.so.6", Arch::NATIVE).unwrap();
    assert!(libc.is_glibc && libc.path.ends_with("libc.so.6"), "{libc:?}");
    let missing = resolver.find_library("libno-such-thing.so.9", Arch::NATIVE).unwrap_err();
    assert!(missing.to_string().contains("was not found; looked in "), "{missing}");
}

#[test]
fn a_library_with_a_name_of_the_c_librarys_family_is_an_ordinary_one() {
    require!(tool("cc"));
    let yard = Yard::new();
    let own = ["libutil.so", "librt.so.20", "libutil.so.1", "libnsl.so.1"];
    own.iter().for_each(|name| drop(yard.library(name, "")));
    let flags = own.map(|name| format!("{name} ")).concat();
    let program = yard.program("tool", &format!("{flags} -lm -Wl,-rpath,@ {NEW}"));
    for dependency in check(&program, &[]).needed {
        let is_own = own.iter().any(|name| dependency.path == yard.path(name));
        assert_eq!(dependency.is_glibc, !is_own, "{dependency:?}");
    }
}

#[test]
fn a_script_brings_its_program_with_dependencies() {
    require!(tool("cc"));
    let yard = Yard::new();
    yard.library("libs1.so", "");
    yard.program("bin/runner", &format!("libs1.so -Wl,-rpath,@ {NEW}"));
    let script = yard.write("script", "#!@/middle -x\n");
    for (middle, how) in [
        ("#!@/bin/runner\n", How::Absolute),
        ("#!/usr/bin/env runner\n", How::Path),
        ("#!/usr/bin/env -S A=b runner -u\n", How::Path),
    ] {
        let path = yard.write("middle", middle);
        make_executable(&path);
        let config = ResolverConfig { path: Some(yard.path("bin").into()), ..ResolverConfig::default() };
        let closure = Resolver::new(config).closure(&script).unwrap();
        assert_eq!(closure.missing, []);
        assert_eq!(closure.script.first(), Some(&path));
        assert_eq!(closure.script.last(), Some(&yard.path("bin/runner")));
        let runner = closure.needed.iter().find(|it| it.path == yard.path("bin/runner")).unwrap();
        assert_eq!(runner.how, how);
        let library = runner.needs[0].found.unwrap();
        assert_eq!(closure.needed[library].path, yard.path("libs1.so"));
        let libcs = closure.needed.iter().filter(|it| it.name == "libc.so.6");
        assert_eq!(libcs.count(), 1);
    }
    yard.write("middle", "#!/usr/bin/env no-such-runner\n");
    let closure = closure(&script, &[]);
    assert_eq!(closure.missing[0].name, "no-such-runner");
    assert_eq!(closure.missing[0].needed_by, Path::new("/usr/bin/env"));
    let myself = yard.write("myself", "#!@/myself\n");
    make_executable(&myself);
    assert!(Resolver::new(ResolverConfig::default()).closure(&myself).is_err());
}

fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn optional_libraries_are_listed_and_not_missing() {
    require!(tool("cc"));
    let yard = Yard::new();
    yard.library("liblater.so.1", "");
    let source = r#"
        __attribute__((used, aligned(4), section(".note.dlopen")))
        static const struct { unsigned name, size, kind; char owner[4]; char text[128]; } note = {
            4, 128, 0x407c0c0a, "FDO",
            "[{\"soname\":[\"liblater.so.2\",\"liblater.so.1\"],\"feature\":\"late\",\"priority\":\"recommended\"}]" };
        int main(void) { return 0; }"#;
    yard.compile("tool", source, &format!("-Wl,-rpath,@ {NEW}")).unwrap();
    let closure = check(&yard.path("tool"), &[]);
    let later = &closure.optional[0];
    assert_eq!((later.feature.as_deref(), later.priority.as_deref()), (Some("late"), Some("recommended")));
    assert_eq!(later.found, Some(yard.path("liblater.so.1")));
    let (code, rows) = deps_json(&yard.path(""), &["--optional", "./tool"], &[]);
    let later = rows.iter().find(|row| row["optional"] == true).unwrap();
    assert_eq!((code, later["path"].as_str().map(PathBuf::from)), (0, Some(yard.path("liblater.so.1"))));
}

#[test]
fn inside_a_sysroot_every_link_and_every_folder_is_its_own() {
    require!(tool("cc"));
    let yard = Yard::new();
    let source = "int main(void) { return 0; }";
    yard.compile("root/usr/bin/tool", source, "root/usr/bin/../../../libo.so").unwrap_err();
    yard.library("root/opt/x/libo.so", "");
    yard.compile("root/usr/bin/tool", source, "root/opt/x/libo.so").unwrap();
    // An older system: its loader and C library are other files, with fewer versions.
    let loader = closure(&yard.path("root/usr/bin/tool"), &[]).interpreter.unwrap();
    let script = yard.write("old.map", "GLIBC_2.2.5 { };\n");
    let old = format!("-Wl,--version-script={}", script.display());
    yard.library_as("root/usr/lib64/libc.so.6", "libc.so.6", &old);
    yard.library_as("root/usr/lib64/ld.so", loader.file_name().unwrap().to_str().unwrap(), "");
    fs::create_dir_all(yard.path("root").join(loader.parent().unwrap().strip_prefix("/").unwrap())).unwrap();
    yard.link(&format!("root{}", loader.display()), "/usr/lib64/ld.so");
    yard.write("root/etc/ld.so.conf", "include /etc/conf.d/*.conf\n");
    yard.write("root/etc/conf.d/x.conf", "/opt/link\n");
    yard.link("root/opt/link", "/opt/x");
    let config = ResolverConfig { sysroot: Some(yard.path("root")), ..ResolverConfig::default() };
    let closure = Resolver::new(config).closure(Path::new("/usr/bin/tool")).unwrap();
    let libo = closure.needed.iter().find(|it| it.name == "libo.so").unwrap();
    assert_eq!((libo.how, libo.path.to_str()), (How::Cache, Some("/opt/link/libo.so")));
    assert_eq!(libo.file, yard.path("root/opt/x/libo.so"));
    let libc = closure.needed.iter().find(|it| it.name == "libc.so.6").unwrap();
    assert_eq!((libc.how, libc.file.clone()), (How::Default, yard.path("root/usr/lib64/libc.so.6")));
    assert!(closure.needed.iter().all(|it| it.file.starts_with(yard.path("root"))));
    let provided = closure.libc.provided.unwrap();
    assert!(closure.libc.newest.unwrap() > provided, "{:?}", closure.libc);
    assert!(
        closure.missing.iter().any(|it| matches!(&it.why, Why::Version { .. }) && it.name == "libc.so.6")
    );
    let root = yard.path("root");
    for binary in ["/usr/bin/tool", root.join("usr/bin/tool").to_str().unwrap()] {
        let (code, rows) = deps_json(&yard.path(""), &["--sysroot", root.to_str().unwrap(), binary], &[]);
        assert_eq!((code, rows[0]["path"].as_str()), (65, Some("/opt/link/libo.so")));
    }
}

#[test]
fn other_files_are_refused() {
    let yard = Yard::new();
    yard.write("text", "hello\n");
    let check = |name: &str, code: i32, said: &str| {
        let path = yard.path(name);
        let output = Command::new(&binaries().gantry).arg("deps").arg(&path).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(code) && text.contains(said), "{output:?}");
    };
    check("text", 64, "file too short");
    yard.write("text", &"hello ".repeat(100));
    check("text", 64, "invalid ELF header");
    check("nothing", 65, "No such file");
    check("", 64, "directory");
}
