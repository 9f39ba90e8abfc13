use super::*;
use crate::host::fake::FakeHost;

fn words(args: &str) -> Vec<OsString> {
    args.split_whitespace().map(OsString::from).collect()
}

#[track_caller]
fn check_at(host: &FakeHost, args: &str, expected: std::result::Result<&str, &str>) {
    let placed = parse_args(&words(args), host).and_then(|options| options.place(&[], host));
    match (placed, expected) {
        (Ok(Placed { hosts, layout, .. }), Ok(text)) => {
            let show = |(host, ranks): (&String, &RankSet)| format!("{host}={ranks}");
            let got: Vec<_> = hosts.iter().zip(&layout).map(show).collect();
            assert_eq!(got.join(" "), text, "{args}");
        }
        (Err(error), Err(text)) => assert_eq!(error.to_string(), text, "{args}"),
        (got, expected) => panic!("{args}: {got:?}, expected {expected:?}"),
    }
}

#[track_caller]
fn check(args: &str, expected: std::result::Result<&str, &str>) {
    check_at(&FakeHost::default(), args, expected);
}

#[test]
fn ranks_fill_hosts_in_blocks() {
    check("--hosts n1:2,n2:2 -n 4 ./app args", Ok("n1=0-1 n2=2-3"));
    check("--hosts n1:2,n2:2 ./app", Ok("n1=0-1 n2=2-3"));
    check("--hosts n1,n2 ./app", Ok("n1=0 n2=1"));
    check("--hosts n1:2,n2:2 -n 3 ./app", Ok("n1=0-1 n2=2"));
    check("--hosts n1:2,n2:2 -n 2 ./app", Ok("n1=0-1"));
    check("--hosts n[1-3] -n 7 ./app", Ok("n1=0-2 n2=3-4 n3=5-6"));
    check("--hosts n[1-3] -n 1 ./app", Ok("n1=0"));
    check("--hosts n[1-2] --ppn 3 ./app", Ok("n1=0-2 n2=3-5"));
    check("--hosts n[1-3]:9 -ppn 2 -n 4 ./app", Ok("n1=0-1 n2=2-3"));
    check("--hosts n[1-4] -N 2 -n 4 ./app", Ok("n1=0-1 n2=2-3"));
    check("-H a -H b --host c x", Ok("a=0 b=1 c=2"));
}

#[test]
fn ranks_go_around_when_mapped_by_node() {
    check("--hosts n1:2,n2:2 --map-by node ./app", Ok("n1=0,2 n2=1,3"));
    check("--hosts n1:3,n2:1 --map-by=node ./app", Ok("n1=0,2-3 n2=1"));
    check("--hosts n[1-2] -n 5 --bynode ./app", Ok("n1=0,2,4 n2=1,3"));
    check("--hosts n[1-3]:2 --map-by node -n 2 ./app", Ok("n1=0 n2=1"));
}

#[test]
fn hosts_that_cannot_be_had_are_done_without_and_spare_ones_take_their_place() {
    let place = |args: &str, without: &[&str]| {
        let without: Vec<String> = without.iter().map(|&host| host.to_owned()).collect();
        let options = parse_args(&words(args), &FakeHost::default()).unwrap();
        options.place(&without, &FakeHost::default()).map_err(|error| error.to_string())
    };
    let check = |args, without: &[&str], expected: &str, spare: &[&str]| {
        let placed = place(args, without).unwrap();
        let show = |(host, ranks): (&String, &RankSet)| format!("{host}={ranks}");
        let got: Vec<_> = placed.hosts.iter().zip(&placed.layout).map(show).collect();
        assert_eq!(
            (got.join(" ").as_str(), &placed.spare[..]),
            (expected, &spare.iter().map(|&host| host.to_owned()).collect::<Vec<_>>()[..]),
            "{args}"
        );
    };
    check("--hosts n[1-3]:2 x", &[], "n1=0-1 n2=2-3 n3=4-5", &[]);
    check("--hosts n[1-3]:2 x", &["n2"], "n1=0-1 n3=2-3", &[]);
    check("--hosts n[1-3]:2 --map-by node x", &["n2"], "n1=0,2 n3=1,3", &[]);
    check("--hosts n[1-3] -n 6 x", &["n1"], "n2=0-2 n3=3-5", &[]);
    check("--hosts n[1-4]:2 -N 2 x", &[], "n1=0-1 n2=2-3", &["n3", "n4"]);
    check("--hosts n[1-4]:2 -N 2 x", &["n1"], "n2=0-1 n3=2-3", &["n4"]);
    check("--hosts n[1-4]:2 -N 2 x", &["n1", "n3"], "n2=0-1 n4=2-3", &[]);
    check("--hosts n[1-4]:2 -N 2 x", &["n1", "n3", "n4"], "n2=0-1", &[]);
    check("--hosts n[1-3]:2 -n 3 x", &[], "n1=0-1 n2=2", &["n3"]);
    // A host with fewer places needs another host in addition.
    check("--hosts n1:4,n2:2,n3:2 -n 4 x", &["n1"], "n2=0-1 n3=2-3", &[]);
    assert_eq!(place("--hosts n[1-3]:2 -n 6 x", &["n3"]).unwrap_err(), "6 ranks for 4 places on 2 hosts");
}

#[test]
fn options_that_say_how_hosts_are_reached_may_stand_alone() {
    let parse = |text: &str| Reaching::parse(&words(text)).map_err(|error| error.to_string());
    let reaching = parse("--window=4 --transport ssh -l me --accept-new-host-keys").unwrap();
    assert_eq!((reaching.window, reaching.transport, reaching.accept_new), (4, Transport::Ssh, true));
    assert_eq!(reaching.login.as_deref(), Some("me"));
    assert_eq!(parse("").unwrap(), Reaching::default());
    assert_eq!(parse("--window").unwrap_err(), "option '--window' needs a number of connections");
    assert_eq!(parse("--hosts n1").unwrap_err(), "'--hosts' does not say how hosts are reached");
    assert_eq!(parse("./app").unwrap_err(), "'./app' does not say how hosts are reached");
}

#[test]
fn hosts_come_from_files_and_from_pbs() {
    let host = FakeHost::default()
        .with_file("/h", "n1 slots=2\nn2:1\n")
        .with_file("/nodes", "a\na\nb\n")
        .with_env("PBS_NODEFILE", "/nodes");
    check_at(&host, "--hostfile /h ./app", Ok("n1=0-1 n2=2"));
    check_at(&host, "-f /h -n 1 ./app", Ok("n1=0"));
    check_at(&host, "./app", Ok("a=0-1 b=2"));
    check_at(&host, "--hostfile /none ./app", Err("cannot read /none"));
}

#[test]
fn arguments_that_are_refused() {
    check("./app", Err("no hosts are named"));
    check("--hosts n1", Err("no program to launch"));
    check("--hosts", Err("option '--hosts' needs hosts"));
    check("--hosts n1 --", Err("no program after '--'"));
    check("--hosts n1:2 -n 3 ./app", Err("3 ranks for 2 places on 1 hosts"));
    check("--hosts n1 --ppn 2 -n 3 ./app", Err("3 ranks for 2 places on 1 hosts"));
    check("--hosts n1 -n 0 ./app", Err("'-n 0': not a number from 1 to 1000000"));
    check("--hosts n1 -N 2 ./app", Err("2 hosts are asked for, and 1 are named"));
    check(
        "--hosts n1 --map-by socket ./app",
        Err("'--map-by socket': ranks can be mapped by slot or by node"),
    );
    check("--hosts n1 --wat ./app", Err("unknown option '--wat' before the program"));
    check(
        "--hosts n1 --transport udp ./app",
        Err("'--transport udp': links go by tcp or by ssh, or auto: ssh where tcp does not get through"),
    );
    check("--hosts n1 --login -x ./app", Err("'-x' is not a login name"));
    check("--hosts n1:4000000000,n2:4000000000 ./app", Err("at most 1000000 ranks are possible"));
}

#[test]
fn how_hosts_are_reached_travels_as_words() {
    let args =
        words("--hosts a --accept-new-host-keys --login me --window 4 --connect-timeout 7 --transport ssh x");
    let reaching = parse_args(&args, &FakeHost::default()).unwrap().reaching;
    assert_eq!((reaching.accept_new, reaching.window, reaching.transport), (true, 4, Transport::Ssh));
    assert_eq!(Reaching::from_words(&reaching.to_words()), reaching);
    assert_eq!(Reaching::from_words(&[]), Reaching::default());
}

#[test]
fn only_an_option_before_the_program_names_hosts() {
    let named = |text| names_hosts(&words(text));
    assert_eq!(named("--hosts n1 ./app").as_deref(), Some("--hosts"));
    assert_eq!(named("--hostfile=f ./app").as_deref(), Some("--hostfile"));
    assert_eq!(named("-n 4 --hosts n1 ./app").as_deref(), Some("--hosts"));
    assert_eq!(named("./app --hosts n1"), None);
    assert_eq!(named("-n 4 ./app --hosts n1"), None);
    assert_eq!(named("-n 4 ./app"), None);
}
