//! The C libraries as C programs use them: installed below a prefix, linked by a C compiler, with every function
//! called.
//!
//! Each test below belongs to a suite in `tests/c` and runs in its own process and world. Anything left behind is a
//! failure.
#![expect(clippy::disallowed_methods, reason = "a test is the user: it asks nm and pkg-config what they see")]

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use gantry_tests::capi::{compile, prefix, program, start, symbols};
use gantry_tests::{SOON, World, binaries, copy_program, require, skip, tool, within};
use nix::sys::signal::Signal;

/// The timeout of a whole test, including the compiler.
const LIMIT: Duration = Duration::from_secs(120);

/// The timeout under valgrind on a busy machine.
const SLOW: Duration = Duration::from_secs(300);

/// Runs one test of a suite. It must leave nothing behind.
#[track_caller]
fn run(suite: &'static str, test: &'static str, flags: &'static [&str], more: &'static [(&str, &str)]) {
    within(LIMIT, move || {
        let world = World::new();
        let view = program("view", "be", &[]);
        let (peer, meets) = (program("peer", "be", &["-pthread"]), program("meets", "be", &[]));
        let rank = program("rank", "be", &["-pthread"]);
        let mut variables = vec![("VIEW", view.as_os_str()), ("PEER", peer.as_os_str())];
        variables.extend([("MEETS", meets.as_os_str()), ("RANK", rank.as_os_str())]);
        variables.extend(more.iter().map(|(name, value)| (*name, OsStr::new(value))));
        let done = start(&world, &program(suite, "fe", flags), test, &variables).wait(LIMIT);
        assert_eq!(done.code(), 0, "{}\n{}", done.stdout.join("\n"), done.stderr.join("\n"));
        assert!(done.stdout.iter().any(|line| *line == format!("ok {test}")), "{done:?}");
        world.finish();
    });
}

/// Makes a Rust test for each test of a suite.
macro_rules! suite {
    ($suite:ident: $($test:ident)*) => {
        mod $suite {
            $(#[test]
            fn $test() {
                super::run(stringify!($suite), stringify!($test), &[], &[]);
            })*
        }
    };
}

suite!(app: launches holds reads_files_and_descriptors sets_environment_and_directory releases_once sends_signals tells_of_ranks
    attaches_twice attaches_to_what_is_held deregisters refuses_wrong_ids lets_go exits);
suite!(session: sessions manifests dependencies_are_an_attribute daemons preloads_are_the_tools_own two_daemons destroys_again daemons_in_containers
    logs logs_without_directory);
suite!(channel: speaks carries_a_megabyte names_who_is_missing merges_by_its_own_filter
    waits_for_a_filter_that_runs calls_from_a_filter puts_applications_together says_who_has_died);
suite!(host: leaves_signals_alone survives_readers_that_go waits_block_nobody serves_eight_threads errors_belong_to_threads texts_of_errors_stay forks forks_while_threads_log
    ends_and_begins_anew is_loaded_and_closed attributes tells_of_itself variables finds_symbols);
suite!(wrong: everything);
suite!(job: releases refuses changes releases_at_once several leaves_after_release leaves_after_cancel lets_go_on);

#[test]
fn a_launcher_s_two_programs_are_told_apart() {
    require!(tool("mpiexec.hydra"));
    run("app", "tells_of_two_programs", &[], &[("CTI_LAUNCHER_NAME", "mpiexec.hydra")]);
}

#[test]
fn launchers_daemons_and_ranks_are_wrapped_where_users_say_so() {
    require!(tool("mpiexec.hydra"));
    run("app", "wraps", &[], &[("CTI_LAUNCHER_NAME", "mpiexec.hydra")]);
}

#[test]
fn no_function_is_left_out_where_all_are_called_wrongly() {
    for (side, suite) in [("fe", "wrong.c"), ("be", "alone.c")] {
        let text = std::fs::read_to_string(source(suite)).expect("a source");
        let words: BTreeSet<&str> = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
        let listed =
            listed(&std::fs::read_to_string(symbols(&format!("commontools_{side}"))).expect("a list"));
        let names = listed.iter().map(|name| name.split('@').next().unwrap_or_default());
        let missing: Vec<&str> = names.filter(|name| !words.contains(name)).collect();
        assert_eq!(missing, [""; 0], "{suite}");
    }
}

/// The bridge has a carrier, and the lower address.
#[test]
fn the_address_for_others_is_that_of_the_default_route() {
    const SCRIPT: &str = "ip link add net type veth peer name bridge
        ip address add 10.120.3.4/16 dev net; ip address add 10.88.0.1/16 dev bridge
        ip link set net up; ip link set bridge up; ip route add default via 10.120.0.1
        exec \"$0\" says_its_address";
    if !nix::unistd::geteuid().is_root() {
        skip!("only root has a network namespace");
    }
    require!(tool("ip").and_then(|_| tool("unshare")));
    within(LIMIT, || {
        let world = World::new();
        let mut command = world.command("unshare");
        command.args(["--net", "/bin/sh", "-ec", SCRIPT]).arg(program("host", "fe", &[]));
        let done = world.spawn(command).wait(SOON);
        assert_eq!(done.stdout, ["10.120.3.4", "ok says_its_address"], "{done:?}");
        world.finish();
    });
}

#[test]
fn a_killed_c_tool_leaves_nothing() {
    within(LIMIT, || {
        let world = World::new();
        let mut tool = start(&world, &program("app", "fe", &[]), "is_killed", &[]);
        assert_eq!(tool.next_line(SOON), "ready");
        tool.signal(Signal::SIGKILL);
        tool.exited(SOON);
        world.finish();
    });
}

#[test]
fn the_address_sanitizer_finds_no_error_in_data_for_c() {
    const FLAGS: &[&str] = &["-fsanitize=address", "-fno-omit-frame-pointer"];
    // The suites free little of their own memory. The valgrind tests look for leaks of the library.
    const OPTIONS: &[(&str, &str)] = &[("ASAN_OPTIONS", "detect_leaks=0")];
    for (suite, test) in [
        ("app", "launches"),
        ("session", "manifests"),
        ("host", "attributes"),
        ("host", "texts_of_errors_stay"),
        ("channel", "everything"),
        ("wrong", "everything"),
    ] {
        run(suite, test, FLAGS, OPTIONS);
    }
}

#[test]
fn outside_of_a_daemon_the_backend_library_says_so() {
    within(LIMIT, || {
        let world = World::new();
        let done = start(&world, &program("alone", "be", &[]), "", &[]).wait(SOON);
        assert_eq!(done.stdout, ["ok alone"], "{done:?}");
        world.finish();
    });
}

/// A lost block has no pointer to it. Valgrind reports the tables of handles as possibly lost, because the only
/// pointer to each does not point to its start.
#[test]
fn valgrind_finds_no_leak_and_no_wrong_access_in_tool_and_daemon() {
    require!(tool("valgrind"));
    within(SLOW, || {
        let world = World::new();
        let valgrind = valgrind(&world);
        let said = world.work_dir().join("said");
        let (view, folder) = (program("view", "be", &[]), world.work_dir());
        let daemon = format!(
            "{valgrind} --log-file={said}.%p {view} {folder} once; echo $? >> {said}",
            said = said.display(),
            view = view.display(),
            folder = folder.display()
        );
        let mut words = valgrind.split_whitespace();
        let mut command = world.command(words.next().expect("valgrind"));
        command.args(words).arg(program("leaks", "fe", &[])).env("VIEW", daemon);
        let mut tool = world.spawn(command);
        tool.close_stdin();
        let done = tool.wait(SLOW);
        assert_eq!(done.code(), 0, "{}", done.stderr.join("\n"));
        let daemons = std::fs::read_to_string(&said).expect("what daemons ended with");
        // Two nodes, twice.
        assert_eq!(daemons, "0\n0\n0\n0\n", "{:?}", read_all(&folder, "said."));
        world.finish();
    });
}

/// Runs the channel and rendezvous under valgrind: tool, daemons and ranks.
#[test]
fn valgrind_finds_nothing_in_the_calls_of_channel_and_rendezvous() {
    require!(tool("valgrind"));
    within(SLOW, || {
        let world = World::new();
        let valgrind = valgrind(&world);
        let (peer, meets) = (program("peer", "be", &["-pthread"]), program("meets", "be", &[]));
        let wrapper = |name: &str, under: &Path| {
            let said = world.work_dir().join("said");
            let text = format!(
                "#!/bin/sh\nexec {valgrind} --log-file={}.%p {} \"$@\"\n",
                said.display(),
                under.display()
            );
            world.executable(name, text.as_bytes())
        };
        let (peer, meets) = (wrapper("peer", &peer), wrapper("meets", &meets));
        let mut words = valgrind.split_whitespace();
        let mut command = world.command(words.next().expect("valgrind"));
        command.args(words).arg(program("channel", "fe", &[])).arg("everything");
        let mut tool = world.spawn({
            command.env("PEER", &peer).env("MEETS", &meets);
            command
        });
        tool.close_stdin();
        let done = tool.wait(SLOW);
        assert_eq!(done.code(), 0, "{}", done.stderr.join("\n"));
        // The logs of daemons and ranks. Some daemons are killed at the end, after all their output.
        let said = read_all(&world.work_dir(), "said.");
        assert!(said.len() > 12 && said.iter().all(String::is_empty), "{said:?}");
        world.finish();
    });
}

/// Options that make valgrind report leaks and invalid accesses by exit code 9.
fn valgrind(world: &World) -> String {
    let known = world.work_dir().join("valgrind.supp");
    std::fs::write(&known, include_str!("../../frontend/capi/valgrind.supp")).expect("a file");
    format!(
        "valgrind --quiet --leak-check=full --show-leak-kinds=definite,indirect --error-exitcode=9 \
         --errors-for-leak-kinds=definite,indirect --child-silent-after-fork=yes --vgdb=no --suppressions={}",
        known.display()
    )
}

fn read_all(folder: &Path, start: &str) -> Vec<String> {
    let files = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file"));
    let files = files.filter(|file| file.file_name().to_string_lossy().starts_with(start));
    files.map(|file| std::fs::read_to_string(file.path()).unwrap_or_default()).collect()
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("c").join(name)
}

/// Compiles a source with the installed headers. It is not run.
#[track_caller]
fn compiles(compiler: &str, name: &str, args: &[&str]) {
    let include = OsString::from_iter([OsStr::new("-I"), prefix().join("include").as_os_str()]);
    let mut all: Vec<OsString> = args.iter().map(Into::into).collect();
    all.extend([include, "-c".into()]);
    let made = tempfile::tempdir().expect("a folder");
    compile(compiler, &source(name), &made.path().join("made.o"), &all);
}

#[test]
fn headers_are_taken_by_every_standard_without_a_warning() {
    for standard in ["-std=c99", "-std=c11"] {
        compiles("cc", "headers.c", &["-pedantic", standard]);
    }
    require!(tool("c++"));
    for standard in ["-std=c++11", "-std=c++17"] {
        compiles("c++", "headers.c", &["-pedantic", "-xc++", standard]);
    }
}

#[test]
fn values_layouts_and_signatures_are_those_of_the_reference() {
    compiles("cc", "abi.c", &["-std=c11", "-pedantic"]);
}

/// The symbols of a version script, as `NAME@VERSION`.
fn listed(map: &str) -> BTreeSet<String> {
    let mut version = "";
    let mut found = BTreeSet::new();
    for line in map.lines().map(str::trim) {
        if let Some(name) = line.strip_suffix(" {") {
            version = name;
        } else if let Some(name) = line.strip_suffix(';').filter(|name| name.contains('_')) {
            found.insert(format!("{name}@{version}"));
        }
    }
    found
}

/// The symbols that a library exports, with their versions.
fn exported(library: &Path) -> BTreeSet<String> {
    let nm =
        Command::new("nm").args(["-D", "--defined-only", "--with-symbol-versions"]).arg(library).output();
    let said = String::from_utf8(nm.expect("nm").stdout).expect("text");
    // `nm` also lists the versions, as absolute symbols.
    let functions = said.lines().filter(|line| !line.contains(" A "));
    functions.filter_map(|line| Some(line.split_whitespace().nth(2)?.replace("@@", "@"))).collect()
}

/// The functions that headers declare.
fn declared(headers: &[&str]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for header in headers {
        let text = std::fs::read_to_string(prefix().join("include").join(header)).expect("a header");
        for line in text.lines().filter(|line| !line.starts_with([' ', '/', '*', '#'])) {
            let name =
                line.split('(').next().unwrap_or_default().rsplit([' ', '*']).next().unwrap_or_default();
            if line.contains('(') && ["cti_", "gantry_", "tm_"].iter().any(|begin| name.starts_with(begin)) {
                found.insert(name.to_owned());
            }
        }
    }
    found
}

#[test]
fn no_symbol_appears_or_vanishes_unnoticed() {
    require!(tool("nm"));
    for (library, major, headers, count) in [
        ("commontools_fe", 2, &["common_tools_fe.h", "gantry.h"][..], 44),
        ("commontools_be", 2, &["common_tools_be.h", "gantry_be.h"], 14),
        ("gantry_tm", 0, &["tm.h"], 0),
    ] {
        let listed = listed(&std::fs::read_to_string(symbols(library)).expect("a list"));
        assert_eq!(
            listed.iter().filter(|name| name.ends_with("@COMMON_TOOLS_2")).count(),
            count,
            "{listed:?}"
        );
        let soname = format!("lib{library}.so.{major}");
        assert_eq!(exported(&prefix().join("lib").join(&soname)), listed);
        let names: BTreeSet<String> =
            listed.iter().map(|name| name.split('@').next().unwrap_or_default().to_owned()).collect();
        assert_eq!(declared(headers), names);
        // The library in cargo's build folder has the same symbols, without versions.
        assert_eq!(exported(&binaries().dir.join(format!("lib{library}.so"))), names);
        // Programs that link with it look for it by that name.
        let dynamic = Command::new("readelf").arg("-d").arg(prefix().join("lib").join(&soname)).output();
        let dynamic = String::from_utf8(dynamic.expect("readelf").stdout).expect("text");
        assert!(dynamic.contains(&format!("soname: [{soname}]")), "{dynamic}");
    }
}

#[test]
fn pkg_config_names_all_that_a_compiler_needs() {
    require!(tool("pkg-config"));
    let folder = tempfile::tempdir().expect("a folder");
    for (name, least, source_name) in [
        ("common_tools_fe", "2.15", "headers.c"),
        ("common_tools_be", "2.21", "alone.c"),
        ("gantry_tm", "0.1", "../programs/tm_calls.c"),
    ] {
        let asked = format!("{name} >= {least}");
        let mut command = Command::new("pkg-config");
        command.args(["--cflags", "--libs", &asked]).env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"));
        let said = command.stdin(Stdio::null()).output().expect("pkg-config");
        assert!(said.status.success(), "{said:?}");
        let said = String::from_utf8(said.stdout).expect("text");
        let mut flags: Vec<OsString> = said.split_whitespace().map(Into::into).collect();
        assert!(
            flags.contains(&format!("-l{}", name.replace("common_tools", "commontools")).into()),
            "{said}"
        );
        if source_name == "headers.c" {
            // This source includes the headers of both libraries.
            flags.push("-c".into());
        }
        compile("cc", &source(source_name), &folder.path().join(name), &flags);
    }
}

/// A library that was copied away from its installation has no helpers beside it.
#[test]
fn cti_install_dir_says_where_the_rest_of_gantry_is() {
    within(LIMIT, || {
        let world = World::new();
        let alone = world.work_dir().join("alone");
        std::fs::create_dir(&alone).expect("a folder");
        std::fs::copy(prefix().join("lib/libcommontools_fe.so.2"), alone.join("libcommontools_fe.so.2"))
            .expect("a copy");
        let program = program("app", "fe", &["-Wl,--enable-new-dtags"]);
        let copy = world.work_dir().join("app");
        copy_program(program, &copy);
        for there in [None, Some(prefix())] {
            let mut command = world.command(&copy);
            command.arg("releases_once").env("LD_LIBRARY_PATH", &alone).env_remove("GANTRY_INSTALL_DIR");
            command.envs(there.map(|prefix| ("CTI_INSTALL_DIR", prefix)));
            let done = world.spawn(command).wait(LIMIT);
            assert_eq!(done.code() == 0, there.is_some(), "{done:?}");
            assert!(there.is_some() || done.stderr.concat().contains("gantry-guard"), "{done:?}");
        }
        world.finish();
    });
}

/// Packages are moved after the build. The files of a moved prefix must still find each other.
#[test]
fn a_moved_prefix_works() {
    within(LIMIT, || {
        let world = World::new();
        let moved = world.work_dir().join("moved");
        let copied = Command::new("cp").arg("-a").arg(prefix()).arg(&moved).status().expect("cp");
        assert!(copied.success());
        let mut command = world.command(program("app", "fe", &["-Wl,--enable-new-dtags"]));
        // With these linker flags, `LD_LIBRARY_PATH` takes precedence over the path in the program.
        command.arg("releases_once").env("LD_LIBRARY_PATH", moved.join("lib")).env("LD_DEBUG", "libs");
        let done = world.spawn(command).wait(LIMIT);
        assert_eq!(done.code(), 0, "{done:?}");
        let library = format!("calling init: {}", moved.join("lib/libcommontools_fe.so.2").display());
        assert!(done.stderr.iter().any(|line| line.contains(&library)), "{:?}", done.stderr);
        // Scripts of ranks find the agent in PATH.
        let mut command = world.command("/usr/bin/env");
        command.arg(format!("PATH={}:/usr/bin:/bin", moved.join("bin").display()));
        let script = "echo data | gantry-agent rendezvous put && gantry-agent rendezvous get --item 1";
        command.args(["gantry", "launch", "--", "-n", "2", "sh", "-c", script]);
        let mut run = world.spawn(command);
        run.close_stdin();
        assert_eq!(run.wait(LIMIT).code(), 0);
        world.finish();
    });
}
