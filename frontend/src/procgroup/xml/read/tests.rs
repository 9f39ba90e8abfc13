//! Messages from the documents, and malformed messages.

use proptest::prelude::*;

use super::*;
use crate::procgroup::query::Numbers;
use crate::procgroup::text::parse_query;

#[track_caller]
fn check_query(xml: &str, expected: &str) {
    let query = match parse_request(xml.as_bytes()) {
        Ok(Request::Get(query) | Request::Kill(query) | Request::Signal { query, .. }) => query,
        other => panic!("{other:?}"),
    };
    assert_eq!(query, parse_query(expected).unwrap());
}

#[test]
fn queries_of_the_documents() {
    check_query(
        "<get-process-group>
          <process-group submitter='lusk' pgid='*' totalprocs='*' >
            <process-group-restriction pid='*' exec='*' host='ccn-70' />
            <process-group-restriction pid='*' exec='*' host='ccn-230' />
          </process-group>
          <process-group submitter='desai' pgid='*' />
        </get-process-group>",
        "submitter=lusk pgid=* totalprocs=* pid=* exec=* host=ccn-70 and pid=* exec=* host=ccn-230 or submitter=desai pgid=*",
    );
    let published = "<get-process-group-info> <process-group pgid='1'/> </get-process-group-info>";
    let group = vec![(GroupAttribute::Pgid, Term::of_group(GroupAttribute::Pgid, "1").unwrap())];
    let all = Query { patterns: vec![Pattern { group, everything: true, ..Pattern::default() }] };
    assert_eq!(parse_request(published.as_bytes()), Ok(Request::Get(all)));
    check_query("<get-process-group-info><process-group pgid='*'/></get-process-group-info>", "pgid=*");
    check_query(
        "<kill-process-group><process-group submitter='*'><process-group-restriction host='ccn-56'/></process-group></kill-process-group>",
        "submitter=* host=ccn-56",
    );
    check_query("<kill-process-group pgid='7'/>", "pgid=7");
    let signal =
        "<signal-process-group signal='3'><process-group submitter='lusk' pgid='*'/></signal-process-group>";
    check_query(signal, "submitter=lusk pgid=*");
    let by = |signal: &str| {
        let xml = format!("<signal-process-group signal='{signal}' pgid='1'/>");
        match parse_request(xml.as_bytes()) {
            Ok(Request::Signal { signal, .. }) => signal.number(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((by("3"), by("QUIT"), by("SIGQUIT")), (3, 3, 3));
}

#[test]
fn groups_are_created_in_both_forms() {
    let published = "<create-process-group submitter='desai' totalprocs='32' output='discard'>
          <process-spec exec='/bin/foo' cwd='/etc' path='/bin:/usr/sbin' range='1-32' co-process='tv-server'>
            <arg idx='1' value='-v'/>  <env name='A' value='b'/>
          </process-spec>
          <host-spec> node1 node2 </host-spec>
        </create-process-group>";
    let Ok(Request::Create(create)) = parse_request(published.as_bytes()) else { panic!("not read") };
    let expected = CreateGroup {
        submitter: Some("desai".to_owned()),
        totalprocs: Some(32),
        output: None,
        wlm: None,
        specs: vec![ProcessSpec {
            range: Some("1-32".parse::<Numbers>().unwrap()),
            exec: "/bin/foo".to_owned(),
            path: Some("/bin:/usr/sbin".to_owned()),
            cwd: Some("/etc".to_owned()),
            user: None,
            co_process: Some("tv-server".to_owned()),
            args: vec!["-v".to_owned()],
            env: vec![("A".to_owned(), "b".to_owned())],
        }],
        hosts: vec!["node1".to_owned(), "node2".to_owned()],
    };
    assert_eq!(create, expected);
    let draft = "<create-process-group submitter='desai' pgid='*' totalprocs='10'>
          <process-spec range='1' user='desai' exec='cpi_master'>
            <arg idx='2' val='1000'/> <arg idx='1' val='-loops'/>
          </process-spec>
          <process-spec range='2-10' exec='cpi_slave'> <env name='TV_LICENSE' val='23416784' /> </process-spec>
          <hostspec name='ccn-%d:64-73' />
        </create-process-group>";
    let Ok(Request::Create(create)) = parse_request(draft.as_bytes()) else { panic!("not read") };
    assert_eq!(create.specs[0].args, ["-loops", "1000"]);
    assert_eq!((create.hosts.len(), create.hosts[9].as_str()), (10, "ccn-73"));
}

#[test]
fn a_malformed_message_is_refused_with_line_and_reason() {
    let check = |xml: &str, line: u64, part: &str| {
        let error = parse_request(xml.as_bytes()).unwrap_err();
        assert!(error.line == line && error.reason.contains(part), "{xml}: {error}");
    };
    check("<make-coffee/>", 1, "<make-coffee> is not a message");
    check("<get-process-group/>", 1, "no process group is given");
    check(
        "<get-process-group>\n<process-group color='red'/></get-process-group>",
        2,
        "'color' is not an attribute of <process-group>",
    );
    check("<get-process-group><process-group pgid='1-'/></get-process-group>", 1, "pgid: '1-' is not a list");
    check(
        "<get-process-group><process-group pgid='1, 2'/></get-process-group>",
        1,
        "pgid: '1, 2' is not a list",
    );
    check(
        "<get-process-group>\n<process-group>\n<process/></process-group></get-process-group>",
        3,
        "<process> is not for <process-group>",
    );
    check(
        "<get-process-group><process-group><process-group-restriction pgid='1'/></process-group></get-process-group>",
        1,
        "'pgid' is not an attribute of <process-group-restriction>",
    );
    check("<get-process-group>all<process-group/></get-process-group>", 1, "the text 'all'");
    check(
        "<get-process-group pgid='1'><process-group/></get-process-group>",
        1,
        "'pgid' is not for <get-process-group>",
    );
    check("<signal-process-group pgid='1'/>", 1, "no signal is named");
    check("<signal-process-group signal='NONE' pgid='1'/>", 1, "signal: ");
    check("<wait-process-group timeout='0' pgid='1'/>", 1, "timeout: '0' is not a number of seconds");
    let create = |inside: &str| format!("<create-process-group>\n{inside}</create-process-group>");
    check(&create(""), 1, "there is no <process-spec>");
    check(&create("<process-spec/>"), 2, "needs 'exec'");
    check(&create("<process-spec exec='a' range='0-3'/>"), 2, "counted from 1");
    check(&create("<process-spec exec='a' range='1 2'/>"), 2, "range: ");
    check(&create("<process-spec exec='a'><arg idx='2' val='x'/></process-spec>"), 2, "argument 1 is due");
    check(
        &create("<process-spec exec='a'><arg idx='1' val='x'/><arg idx='1' val='y'/></process-spec>"),
        2,
        "argument 2 is due",
    );
    check(&create("<process-spec exec='a'><arg idx='1'/></process-spec>"), 2, "<arg> needs 'val'");
    check(
        &create("<process-spec exec='a'><env name='A=B' val='x'/></process-spec>"),
        2,
        "no variable's name",
    );
    check(&create("<process-spec exec='a'/><host-spec/>"), 2, "without a host");
    for name in ["-oProxyCommand=x", "-x", "$(id)", "me@other", "a;b"] {
        let hosts = create(&format!("<process-spec exec='a'/><host-spec>n1 {name}</host-spec>"));
        check(&hosts, 2, &format!("'{name}' is not"));
    }
    check(&create("<process-spec exec='a'/><host-spec>n%d</host-spec>"), 2, "without ':'");
    check(
        &create("<process-spec exec='a'/><host-spec>a</host-spec><host-spec>a</host-spec>"),
        2,
        "named twice",
    );
    check(
        "<create-process-group output='merged'><process-spec exec='a'/></create-process-group>",
        1,
        "output: 'merged'",
    );
    check(
        "<create-process-group totalprocs='0'><process-spec exec='a'/></create-process-group>",
        1,
        "totalprocs: '0'",
    );
    let many = "<process-group/>".repeat(1_001);
    check(&format!("<get-process-group>{many}</get-process-group>"), 1, "more than 1000 patterns");
}

fn text() -> impl Strategy<Value = String> {
    "[ -~\t\n\r\u{e4}\u{20ac}]{1,12}"
}

fn escaped(value: &str) -> String {
    let value = quick_xml::escape::escape(value);
    value.replace('\t', "&#9;").replace('\n', "&#10;").replace('\r', "&#13;")
}

proptest! {
    #[test]
    fn values_are_read_as_they_were_written(
        exec in text(),
        args in proptest::collection::vec(text(), 0..4),
        value in text(),
    ) {
        let inside: String =
            (1..).zip(&args).map(|(at, arg): (u32, _)| format!("<arg idx='{at}' val='{}'/>", escaped(arg))).collect();
        let xml = format!(
            "<create-process-group><process-spec exec='{}'>{inside}<env name='A' val='{}'/></process-spec></create-process-group>",
            escaped(&exec), escaped(&value),
        );
        let env = vec![("A".to_owned(), value)];
        let specs = vec![ProcessSpec { exec, args, env, ..ProcessSpec::default() }];
        let create = CreateGroup { specs, ..CreateGroup::default() };
        prop_assert_eq!(parse_request(xml.as_bytes()), Ok(Request::Create(create)), "{}", xml);
    }
}
