use gantry_shared::wire::staging::{Content, Mark};
use proptest::prelude::*;

use super::*;
use crate::staging::content::{Contents, Facts};

fn source(path: &str, content: u8) -> Arc<Source> {
    let state = Contents::default().look(Path::new("/etc/passwd")).unwrap().state;
    let content = Content { size: 1, mark: Mark::Blake3([content; 32]) };
    let facts = Facts { content, executable: false, state };
    Arc::new(Source { path: Path::new(path).into(), facts })
}

fn needed(name: &str, content: u8) -> Needed {
    Needed { name: name.into(), source: source(&format!("/{content}/{name}"), content) }
}

fn item(place: Place, name: &str, content: u8) -> Item {
    let source = source(&format!("/{content}/{name}"), content);
    Item { place, name: OsStr::new(name).into(), source, needs: None }
}

fn program(name: &str, content: u8, libraries: &[(&str, u8)]) -> Item {
    let libraries = libraries.iter().map(|(name, content)| needed(name, *content)).collect();
    let needs = Needs { libraries, ..Needs::default() };
    Item { needs: Some(Box::new(needs)), ..item(Place::Bin, name, content) }
}

fn glibc(version: &str) -> LibcNeeds {
    LibcNeeds {
        interpreter: "/lib/ld.so".into(),
        library: "/lib/libc.so.6".into(),
        version: version.to_owned(),
    }
}

fn with_libc(mut program: Item, version: &str) -> Item {
    if let Some(needs) = &mut program.needs {
        needs.libc = Some(glibc(version));
        needs.family = vec![needed("ld.so", 90), needed("libc.so.6", 91)];
    }
    program
}

/// The new files, such as `lib/libx.so of 1`.
fn told(plan: &Plan) -> Vec<String> {
    let tell = |want: &Want| {
        let Mark::Blake3([content, ..]) = want.source.facts.content.mark else { panic!("a build id") };
        format!("{:?}/{} of {content}", want.place, want.name.display()).to_lowercase()
    };
    plan.wants.iter().map(tell).collect()
}

fn dirs(plan: &Plan, program: &str) -> Vec<String> {
    plan.lib_dirs_of(OsStr::new(program)).iter().map(|dir| dir.display().to_string()).collect()
}

/// The new files with an existing copy, such as `x at lib/y`.
fn known(plan: &Plan) -> Vec<String> {
    let at = |want: &Want| want.known.as_ref().map(|(place, name)| format!("{place:?}/{}", name.display()));
    let tell = |want: &Want| format!("{} at {}", want.name.display(), at(want).unwrap_or_default());
    plan.wants.iter().map(tell).collect()
}

#[test]
fn a_new_name_for_existing_content_refers_to_the_copy() {
    let first = build_plan(&[program("a", 1, &[("x.so", 2)]), item(Place::Root, "f", 3)], &Ledger::default());
    let first = first.unwrap();
    assert_eq!(known(&first), ["a at ", "f at ", "x.so at "], "nothing is there yet");
    let items =
        [item(Place::Root, "g", 2), program("b", 4, &[("x.so", 2), ("y.so", 3)]), item(Place::Bin, "c", 1)];
    let later = build_plan(&items, &first.ledger).unwrap();
    assert_eq!(known(&later), ["g at Lib/x.so", "b at ", "c at Bin/a", "y.so at Root/f"]);
    // A copy that only some nodes may have does not count.
    let mut failed = Ledger::default();
    failed.failed(&first.ledger);
    assert_eq!(known(&build_plan(&[item(Place::Root, "g", 2)], &failed).unwrap()), ["g at "]);
    let aged = build_plan(&[with_libc(program("a", 1, &[]), "GLIBC_2.3")], &Ledger::default()).unwrap();
    assert_eq!(known(&build_plan(&[item(Place::Root, "g", 91)], &aged.ledger).unwrap()), ["g at "]);
}

#[test]
fn a_program_brings_its_libraries_once() {
    let items = [program("a", 1, &[("x.so", 2), ("y.so", 3)]), program("b", 4, &[("y.so", 3), ("x.so", 2)])];
    let plan = build_plan(&items, &Ledger::default()).unwrap();
    assert_eq!(told(&plan), ["bin/a of 1", "bin/b of 4", "lib/x.so of 2", "lib/y.so of 3"]);
    assert_eq!(plan.files, 4);
    assert!(dirs(&plan, "a").is_empty() && dirs(&plan, "b").is_empty());
    // A second manifest finds all of it there.
    let again = build_plan(&items, &plan.ledger).unwrap();
    assert_eq!((told(&again).len(), again.files), (0, 4));
}

#[test]
fn two_libraries_of_one_name_are_both_there_and_each_program_finds_its_own() {
    let items = [
        program("a", 1, &[("x.so", 2), ("z.so", 9)]),
        program("b", 4, &[("x.so", 3), ("z.so", 9)]),
        program("c", 5, &[("z.so", 9), ("x.so", 3)]),
    ];
    let plan = build_plan(&items, &Ledger::default()).unwrap();
    assert!(told(&plan).contains(&"lib/x.so of 2".to_owned()), "{:?}", told(&plan));
    assert!(told(&plan).contains(&"lib/.other-1/x.so of 3".to_owned()), "{:?}", told(&plan));
    assert_eq!(plan.wants.len(), 3 + 3);
    assert!(dirs(&plan, "a").is_empty());
    assert_eq!(
        (dirs(&plan, "b"), dirs(&plan, "c")),
        (vec![".other-1".to_owned()], vec![".other-1".to_owned()])
    );
    // A program that needs another second library cannot use a folder with the wrong first one.
    let items = [program("d", 6, &[("x.so", 2), ("z.so", 8)]), program("e", 7, &[("x.so", 3), ("z.so", 8)])];
    let later = build_plan(&items, &plan.ledger).unwrap();
    assert_eq!(dirs(&later, "d"), [".other-2"]);
    assert_eq!(dirs(&later, "e"), [".other-1", ".other-2"]);
}

#[test]
fn a_library_that_was_named_comes_first_and_one_whose_name_is_taken_has_a_folder() {
    let named = item(Place::Lib, "x.so", 2);
    let items = [program("a", 1, &[("x.so", 3)]), named.clone()];
    let plan = build_plan(&items, &Ledger::default()).unwrap();
    assert_eq!(told(&plan), ["bin/a of 1", "lib/x.so of 2", "lib/.other-1/x.so of 3"]);
    assert_eq!(dirs(&plan, "a"), [".other-1"]);
    // In a later manifest: its daemons search the named library first, except those with a choice of their own.
    let items = [program("b", 4, &[]), program("c", 5, &[("x.so", 2)]), item(Place::Lib, "x.so", 6)];
    let later = build_plan(&items, &plan.ledger).unwrap();
    let expected = ["bin/b of 4", "bin/c of 5", "lib/.other-2/x.so of 6", "lib/.other-3/x.so of 2"];
    assert_eq!(told(&later), expected);
    assert_eq!(
        (dirs(&later, "b"), dirs(&later, "c").remove(0)),
        (vec![".other-2".to_owned()], ".other-3".to_owned())
    );
}

#[test]
fn two_binaries_or_files_of_one_name_are_refused_and_both_are_named() {
    let check = |place: Place, name: &str, expected: bool| {
        let first = build_plan(&[item(place, name, 1)], &Ledger::default()).unwrap();
        for (items, session) in [
            (vec![item(place, name, 1), item(place, name, 2)], &Ledger::default()),
            (vec![item(place, name, 2)], &first.ledger),
        ] {
            match build_plan(&items, session) {
                Ok(_) => assert!(!expected, "{place:?} {name}"),
                Err(error) => {
                    assert!(expected, "{error}");
                    let text = error.to_string();
                    assert!(text.contains(&format!("/1/{name} and /2/{name}")), "{text}");
                }
            }
        }
        assert!(build_plan(&[item(place, name, 1)], &first.ledger).unwrap().wants.is_empty());
    };
    check(Place::Bin, "tool", true);
    check(Place::Root, "data", true);
    check(Place::Lib, "plugins/one.so", true);
    check(Place::Lib, "one.so", false);
}

#[test]
fn a_file_that_has_changed_since_it_was_sent_is_refused() {
    let session = build_plan(&[item(Place::Bin, "tool", 1)], &Ledger::default()).unwrap().ledger;
    let changed = Item { source: source("/1/tool", 2), ..item(Place::Bin, "tool", 2) };
    let error = build_plan(&[changed], &session).unwrap_err().to_string();
    assert!(error.contains("/1/tool is not what it was"), "{error}");
}

#[test]
fn a_failed_file_is_requested_again_and_may_be_another_one() {
    let planned =
        build_plan(&[item(Place::Bin, "tool", 1), program("a", 2, &[("x.so", 3)])], &Ledger::default());
    let mut session = Ledger::default();
    session.failed(&planned.unwrap().ledger);
    let items =
        [item(Place::Bin, "tool", 4), program("a", 2, &[("x.so", 3)]), program("b", 2, &[("x.so", 5)])];
    let plan = build_plan(&items, &session).unwrap();
    let expected = ["bin/tool of 4", "bin/a of 2", "bin/b of 2", "lib/x.so of 3", "lib/.other-1/x.so of 5"];
    assert_eq!(told(&plan), expected);
    // A node may have the failed library, so its name is not reused for another one.
    let plan = build_plan(&items[2..], &session).unwrap();
    assert_eq!(told(&plan), ["bin/b of 2", "lib/.other-1/x.so of 5"]);
}

#[test]
fn interpreters_go_to_bin_unless_one_was_named() {
    let script = |content| {
        let needs = Needs { programs: vec![needed("python3", 7)], ..Needs::default() };
        Item { needs: Some(Box::new(needs)), ..item(Place::Bin, "script", content) }
    };
    let plan = build_plan(&[script(1)], &Ledger::default()).unwrap();
    assert_eq!(told(&plan), ["bin/script of 1", "bin/python3 of 7"]);
    let plan = build_plan(&[script(1), item(Place::Bin, "python3", 8)], &Ledger::default()).unwrap();
    assert_eq!(told(&plan), ["bin/script of 1", "bin/python3 of 8"]);
}

#[test]
fn the_c_librarys_family_goes_to_its_own_place_and_is_asked_for_by_version() {
    let old = with_libc(program("old", 1, &[("x.so", 2)]), "GLIBC_2.9");
    let new = with_libc(program("new", 3, &[]), "GLIBC_2.34");
    let check = |items: &[Item], session: &Ledger, version: Option<&str>, family: usize| {
        let plan = build_plan(items, session).unwrap();
        assert_eq!(plan.libc.as_ref().map(|libc| libc.version.as_str()), version);
        let loader = plan.wants.iter().filter(|want| want.place == Place::Loader);
        assert_eq!(loader.count(), family);
        let in_lib = |want: &Want| {
            want.place == Place::Lib && ["ld.so", "libc.so.6"].map(OsStr::new).contains(&&*want.name)
        };
        assert!(!plan.wants.iter().any(in_lib), "{:?}", told(&plan));
        plan.ledger
    };
    let nothing = Ledger::default();
    check(&[program("none", 1, &[])], &nothing, None, 0);
    let session = check(std::slice::from_ref(&old), &nothing, Some("GLIBC_2.9"), 2);
    check(std::slice::from_ref(&old), &session, None, 0);
    // Nodes that did not link the family the first time are asked again.
    let session = check(&[old.clone(), new.clone()], &session, Some("GLIBC_2.34"), 2);
    check(&[new.clone(), old.clone()], &session, None, 0);
    check(&[old.clone(), new], &nothing, Some("GLIBC_2.34"), 2);
    // A library counts when a program comes with it, whichever is first. Alone it runs in no daemon.
    let plugin = Item { place: Place::Lib, ..with_libc(program("plugin.so", 5, &[]), "GLIBC_2.38") };
    check(&[old.clone(), plugin.clone()], &nothing, Some("GLIBC_2.38"), 2);
    check(&[plugin.clone(), old], &nothing, Some("GLIBC_2.38"), 2);
    check(&[plugin], &nothing, None, 0);
}

#[test]
fn missing_libraries_are_reported_with_the_files_that_need_them() {
    let absent = |name: &str, by: &str| {
        let told = format!("{name}, needed by {by}, was not found; looked in /lib");
        Absent { name: name.into(), needed_by: by.into(), told }
    };
    let nothing = Ledger::default();
    assert!(check_missing(&[], &nothing).is_ok());
    let both = [absent("y.so", "/b"), absent("x.so", "/a"), absent("x.so", "/a")];
    let error = check_missing(&both, &nothing).unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    let expected = "x.so, needed by /a, was not found; looked in /lib; y.so, needed by /b, neither";
    assert_eq!(error.to_string(), expected);
    assert!(error.hint().is_some());
    let many: Vec<_> = (10..30).map(|n| absent(&format!("{n}.so"), "/a")).collect();
    assert!(check_missing(&many, &nothing).unwrap_err().to_string().ends_with("; nor 11 more"));
}

#[test]
fn a_library_named_under_that_name_is_not_missing() {
    let absent =
        |name: &str| Absent { name: name.into(), needed_by: "/a".into(), told: format!("no {name}") };
    let check = |items: &[Item], session: &Ledger, expected: Option<&str>| {
        let plan = build_plan(items, session).unwrap();
        let error = check_missing(&[absent("x.so"), absent("y.so")], &plan.ledger).err();
        assert_eq!(error.map(|it| it.to_string()).as_deref(), expected);
        plan.ledger
    };
    let nothing = Ledger::default();
    check(&[item(Place::Bin, "y.so", 1)], &nothing, Some("no x.so; y.so, needed by /a, neither"));
    // The loader does not search a folder below.
    check(&[item(Place::Lib, "more/x.so", 1), item(Place::Lib, "y.so", 2)], &nothing, Some("no x.so"));
    let session = check(&[item(Place::Lib, "x.so", 1), item(Place::Lib, "y.so", 2)], &nothing, None);
    check(&[program("later", 3, &[])], &session, None);
    // A failed manifest may not have placed it on any node.
    let mut failed = Ledger::default();
    failed.failed(&session);
    check(&[], &failed, Some("no x.so; y.so, needed by /a, neither"));
}

#[test]
fn versions_are_compared_by_number() {
    let check = |one: &str, other: &str| assert!(parse_version(one) < parse_version(other), "{one} {other}");
    check("GLIBC_2.9", "GLIBC_2.34");
    check("GLIBC_2.2.5", "GLIBC_2.3");
    check("GLIBC_2.2", "GLIBC_2.2.5");
    check("", "GLIBC_2.2");
}

/// The content that a program finds for a name: in its own folders, then in `lib`.
fn find(plan: &Plan, program: &OsStr, name: &OsStr) -> Option<Content> {
    let folders = plan.lib_dirs_of(program);
    let targets = folders.iter().map(|folder| Path::new(folder).join(name).into_os_string());
    let mut targets = targets.chain([name.to_owned()]);
    targets.find_map(|target| plan.ledger.content_at(Place::Lib, &target).cloned())
}

type Libraries = Vec<(u8, u8)>;

fn manifests() -> impl Strategy<Value = Vec<(Vec<(u8, Libraries)>, Libraries)>> {
    let libraries = || proptest::collection::vec((0..5_u8, 0..4_u8), 0..6);
    let programs = proptest::collection::vec((0..4_u8, libraries()), 0..4);
    proptest::collection::vec((programs, libraries()), 1..5)
}

proptest! {
    #[test]
    fn whatever_is_asked_for_every_program_finds_its_libraries_and_no_target_has_two_contents(manifests in manifests()) {
        let mut session = Ledger::default();
        let mut number = 0;
        for (programs, named) in manifests {
            let mut items = Vec::new();
            for (_, libraries) in programs {
                number += 1;
                let libraries: Vec<_> = libraries.iter().map(|(name, content)| (format!("l{name}.so"), *content)).collect();
                let libraries: Vec<_> = libraries.iter().map(|(name, content)| (name.as_str(), *content)).collect();
                items.push(program(&format!("p{number}"), 100, &libraries));
            }
            let named: BTreeMap<u8, u8> = named.into_iter().collect();
            items.extend(named.iter().map(|(name, content)| item(Place::Lib, &format!("l{name}.so"), *content)));
            let plan = build_plan(&items, &session).unwrap();

            let mut contents: BTreeMap<_, Content> = BTreeMap::new();
            for entry in plan.wants.iter().map(Want::build_entry) {
                let target = (entry.place, entry.name.clone());
                prop_assert!(contents.insert(target.clone(), entry.content.clone()).is_none(), "{:?} twice", target);
                let before = session.at(entry.place, &entry.name);
                prop_assert!(before.is_none(), "{:?} is there", target);
            }
            for item in &items {
                let Some(needs) = &item.needs else { continue };
                let mut seen = BTreeSet::new();
                for library in needs.libraries.iter().filter(|library| seen.insert(&library.name)) {
                    prop_assert_eq!(find(&plan, &item.name, &library.name), Some(library.source.facts.content.clone()));
                }
            }
            for (target, taken) in &session.taken {
                prop_assert_eq!(plan.ledger.taken.get(target), Some(taken), "what is there stays");
            }
            session = plan.ledger;
        }
    }
}
