//! Names that other programs and machines have chosen, printed to a terminal. No name may move the cursor or forge a
//! line.

#![expect(clippy::unwrap_used, reason = "a test that finds something else fails")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_tests::{Finished, World, copy_program, in_a_world, require, tool};
use gantry_types::foreign::is_obeyed;
use serde_json::Value;

const SOON: Duration = Duration::from_secs(20);
const LIMIT: Duration = Duration::from_secs(90);

/// The name of a program. It clears a terminal, rings its bell and sets its title. It also forges a row of a listing
/// and of a log, and reverses the reading direction.
const EVIL: &str = "a\x1b[2J\x07\x1b]0;t\x07\n3kx9w0fz  localhost  running  1  n1  0  0  forged\r\u{9b}2J\u{202e}\u{2028}\u{200b}b";

/// The escaped form that gantry prints.
const SHOWN: &str = "a\\x1b[2J\\x07\\x1b]0;t\\x07\\n3kx9w0fz  localhost  running  1  n1  0  0  forged\\r\\u{9b}2J\\u{202e}\\u{2028}\\u{200b}b";

/// Runs a command. Its output may contain nothing that a terminal obeys, except the ends of lines.
#[track_caller]
fn gantry(world: &World, args: &[&str]) -> Finished {
    let done = world.gantry(args).wait(SOON);
    for line in done.stdout.iter().chain(&done.stderr) {
        assert!(!line.contains(is_obeyed), "{args:?}: {line:?}");
    }
    done
}

/// A copy of a program that keeps running, under the evil name.
fn evil(world: &World) -> PathBuf {
    let path = world.work_dir().join(EVIL);
    copy_program("/bin/sleep", &path);
    path
}

#[track_caller]
fn assert_shown(lines: &[String]) {
    assert!(lines.iter().any(|line| line.contains(SHOWN)), "{lines:#?}");
}

#[test]
fn the_name_of_a_program_stays_in_its_row() {
    in_a_world(LIMIT, |world| {
        let name = evil(world).display().to_string();
        let mut launch = world.gantry(["launch", "--hold", "--json", "--", "-n", "2", &name, "1000"]);
        let held = launch.next_event("held", SOON);
        let id = held["app"].as_str().unwrap().to_owned();
        // Programs get the name unchanged.
        assert_eq!(held["ranks"][0]["exe"].as_str().unwrap(), name);
        let listed = gantry(world, &["ps"]);
        assert_eq!(listed.stdout.len(), 2, "{listed:#?}");
        assert_shown(&listed.stdout);
        let ranks = gantry(world, &["ps", "pid=*", "exec=*"]);
        assert_eq!(ranks.stdout.len(), 3, "{ranks:#?}");
        assert_shown(&ranks.stdout);
        let json = gantry(world, &["ps", "--json"]);
        let apps: Value = serde_json::from_str(&json.stdout.join("\n")).unwrap();
        assert_eq!(apps[0]["ranks"][0]["exe"].as_str().unwrap(), name);
        let offered = gantry(world, &["--complete-query", "exec="]);
        assert_eq!(offered.stdout.len(), 1, "{offered:#?}");
        assert_eq!(gantry(world, &["kill", &id]).code(), 0);
        launch.wait(SOON);
    });
}

#[test]
fn the_table_of_held_ranks_has_a_row_for_each_whatever_their_name() {
    in_a_world(LIMIT, |world| {
        let name = evil(world).display().to_string();
        let mut launch = world.gantry(["launch", "--hold", "--", "-n", "2", &name, "1000"]);
        launch.stderr_line("gantry: held: ", SOON);
        assert_eq!(gantry(world, &["kill", "pgid=1"]).code(), 0);
        let done = launch.wait(SOON);
        let rows = done.stderr.iter().filter(|line| line.contains(SHOWN)).count();
        assert_eq!(rows, 2, "{done:#?}");
        assert!(!done.stderr.iter().any(|line| line.contains(is_obeyed)), "{done:#?}");
    });
}

#[test]
fn errors_and_logs_that_repeat_a_name_are_escaped() {
    in_a_world(LIMIT, |world| {
        let missing = gantry(world, &["launch", "--", &format!("/no/{EVIL}")]);
        assert_eq!(missing.code(), 65, "{missing:#?}");
        assert!(missing.stderr.concat().contains("forged"), "{missing:#?}");
        assert!(missing.stderr.iter().all(|line| line.starts_with("gantry: ") || line.starts_with("hint: ")));
        let script = world.executable("script", "#!/no/a\x1b[2J\u{202e}b\n".as_bytes());
        let refused = gantry(world, &["launch", "--", &script.display().to_string()]);
        assert_eq!(refused.code(), 65, "{refused:#?}");
        let logged = gantry(world, &["-vv", "launch", "--", &format!("/no/{EVIL}")]);
        assert!(logged.stderr.len() > 2, "{logged:#?}");
        assert_logged_escaped(world);
        let wrong = gantry(world, &["kill", "--ranks", EVIL, "x"]);
        assert_eq!(wrong.code(), 2, "{wrong:#?}");
        let app = gantry(world, &["wait", EVIL]);
        assert_ne!(app.code(), 0, "{app:#?}");
        let wlm = gantry(world, &["wlm", "--wlm", EVIL]);
        assert_ne!(wlm.code(), 0, "{wlm:#?}");
    });
}

/// gantry skips a helper in a directory of that name that others can change. The log reports that.
fn assert_logged_escaped(world: &World) {
    let folder = world.work_dir().join(EVIL.replace('a', "open"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("gantry-guard"), "").unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
    let mut command = world.command(&gantry_tests::binaries().gantry);
    command.args(["-vv", "launch", "--", "/bin/true"]).env("GANTRY_INSTALL_DIR", &folder);
    let done = world.spawn(command).wait(SOON);
    assert!(done.stderr.iter().any(|line| line.contains("skipped a gantry-guard")), "{done:#?}");
    assert!(!done.stderr.iter().any(|line| line.contains(is_obeyed)), "{done:#?}");
}

/// A library that needs another library of that name.
fn needs(world: &World, name: &str) -> PathBuf {
    let (source, needed) = (world.work_dir().join("one.c"), world.work_dir().join("needed.so"));
    std::fs::write(&source, "int one(void) { return 1; }\n").unwrap();
    let compile = |args: &[&str]| {
        let done = world.start(Path::new("/usr/bin/cc"), args).wait(SOON);
        assert_eq!(done.code(), 0, "{done:?}");
    };
    let (source, needed) = (source.display().to_string(), needed.display().to_string());
    compile(&["-shared", "-fPIC", "-o", &needed, &source, &format!("-Wl,-soname,{name}")]);
    let made = world.work_dir().join("made.so").display().to_string();
    compile(&["-shared", "-fPIC", "-Wl,--no-as-needed", "-o", &made, &source, &needed]);
    made.into()
}

#[test]
fn names_in_a_file_are_escaped_in_the_list_of_its_dependencies() {
    require!(tool("cc"));
    in_a_world(LIMIT, |world| {
        let made = needs(world, "lib\x1b[2J\x07\u{202e}x.so").display().to_string();
        let shown = "lib\\x1b[2J\\x07\\u{202e}x.so";
        for args in [&["deps", &made][..], &["deps", "--tree", &made]] {
            let done = gantry(world, args);
            assert_eq!(done.code(), 65, "{done:#?}");
            assert!(done.stderr.iter().any(|line| line.contains(shown)), "{done:#?}");
        }
        gantry(world, &["deps", "--json", &made]);
        let script = world.executable("script", b"#!/no/a\x1b[2Jb\n");
        gantry(world, &["deps", &script.display().to_string()]);
    });
}

#[test]
fn doctor_shows_foreign_settings_as_escapes() {
    in_a_world(LIMIT, |world| {
        let done = gantry(world, &["doctor", "--stage-dir", &format!("/no/{EVIL}")]);
        assert_eq!(done.code(), 1, "{done:#?}");
        assert_shown(&done.stdout);
    });
}

#[test]
fn a_shell_inserts_a_completion_as_one_inert_word() {
    let bash = require!(tool("bash"));
    in_a_world(LIMIT, move |world| {
        let name = "a b'$(touch forged)`touch forged`;\"c";
        let path = world.work_dir().join(name);
        copy_program("/bin/sleep", &path);
        let mut launch =
            world.gantry(["launch", "--hold", "--json", "--", &path.display().to_string(), "1000"]);
        let held = launch.next_event("held", SOON);
        let id = held["app"].as_str().unwrap().to_owned();
        let script = world.gantry(["completions", "bash"]).wait(SOON).stdout.join("\n");
        std::fs::write(world.work_dir().join("complete"), script).unwrap();
        let gantry_path = gantry_tests::binaries().gantry.display().to_string();
        for (words, typed) in [("kill exec = a", "exec="), ("kill exec = a\\\\\\ b", "exec=")] {
            // Types the completion into a line and runs the line.
            let line = format!(
                "source ./complete; COMP_WORDS=({gantry_path} {words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 )); \
                 _gantry_live {gantry_path} \"${{COMP_WORDS[COMP_CWORD]}}\" ''; \
                 eval \"printf '%s\\n' {typed}${{COMPREPLY[0]}}\"; echo ${{#COMPREPLY[@]}}"
            );
            let done = world.start(&bash, ["-c", &line]).wait(SOON);
            assert_eq!(done.stdout, [format!("exec={name}"), "1".to_owned()], "{words}: {done:?}");
        }
        assert!(!world.work_dir().join("forged").exists());
        assert_eq!(gantry(world, &["kill", &id]).code(), 0);
        launch.wait(SOON);
    });
}
