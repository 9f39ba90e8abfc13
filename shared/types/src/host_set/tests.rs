use proptest::prelude::*;

use super::*;

#[test]
fn lists_are_read_in_order_and_keep_their_padding() {
    let check =
        |text: &str, expected: &[&str]| assert_eq!(parse_host_list(text).unwrap(), expected, "{text:?}");
    check("", &[]);
    check("  ", &[]);
    check("n1", &["n1"]);
    check("n[001-004,7],m1", &["n001", "n002", "n003", "n004", "n7", "m1"]);
    check(" b , a,b ", &["b", "a", "b"]);
    check("n[8-11]", &["n8", "n9", "n10", "n11"]);
    check("n[08-11]", &["n08", "n09", "n10", "n11"]);
    check("n[99-101]x", &["n99x", "n100x", "n101x"]);
    check("n[098-100]", &["n098", "n099", "n100"]);
    check("n[ 1 , 3-4 ]", &["n1", "n3", "n4"]);
    check("r[1-2]n[1-2].x", &["r1n1.x", "r1n2.x", "r2n1.x", "r2n2.x"]);
    check("[1-2][3-4]", &["13", "14", "23", "24"]);
    check("10.0.0.[1-2],fe80::1,::1", &["10.0.0.1", "10.0.0.2", "fe80::1", "::1"]);
}

#[test]
fn bad_lists_are_refused_with_the_place() {
    let check = |text: &str, expected: &str| {
        assert_eq!(parse_host_list(text).unwrap_err().to_string(), expected, "{text:?}");
    };
    check("a,,b", "a host name is missing at character 3");
    check("a, ", "a host name is missing at character 4");
    check(",a", "a host name is missing at character 1");
    check("a, -oProxyCommand", "a host name starts with '-' at character 4");
    check("n1:2", "a host name has no ':' at character 3");
    check("a,n[1-2]é", "a host name has no 'é' at character 9");
    check("a b", "a host name has no ' ' at character 2");
    check("n[1-[2]]", "brackets within brackets at character 5");
    check("n[1-2", "a bracket that is not closed at character 2");
    check("a,n1]", "a bracket that was not opened at character 5");
    check("n[4-1]", "the range 4-1 ends before it starts at character 3");
    check("n[1-010]", "the ends of the range 1-010 are padded to different widths at character 3");
    let number = "expected a number of at most 18 digits, found";
    check("n[]", &format!("{number} \"\" at character 3"));
    check("é,n[1]", "a host name has no 'é' at character 1");
    check("n[1,x]", &format!("{number} \"x\" at character 5"));
    check("n[1-2-3]", &format!("{number} \"2-3\" at character 5"));
    check("n[1,+3]", &format!("{number} \"+3\" at character 5"));
    check("n[1]m[1- 3]", &format!("{number} \" 3\" at character 9"));
    check("n[1234567890123456789]", &format!("{number} \"1234567890123456789\" at character 3"));
}

#[test]
fn lists_are_bounded_before_they_are_expanded() {
    let many = "the list stands for more than 1000000 hosts at character";
    let check = |text: &str, expected: &str| {
        assert_eq!(parse_host_list(text).map(|hosts| hosts.len()).unwrap_err().to_string(), expected);
    };
    assert_eq!(parse_host_list("n[1-1000000]").map(|hosts| hosts.len()), Ok(1_000_000));
    check("n[0-1000000]", &format!("{many} 1"));
    check("a,n[1-1000000]", &format!("{many} 3"));
    check("n[0-999999999999999999]", &format!("{many} 1"));
    check(&"[0-9]".repeat(100), &format!("{many} 1"));
    check(&format!("n[{}0]", "0-999999999999999999,".repeat(50)), &format!("{many} 1"));
    let long = "a host name has more than 255 characters at character 3";
    check(&format!("a,{}", "n".repeat(256)), long);
    check(&format!("a,{}[9-10]", "n".repeat(254)), long);
    assert_eq!(parse_host_list(&format!("{}[8-9]", "n".repeat(254))).map(|hosts| hosts.len()), Ok(2));
}

#[test]
fn hosts_fold_to_sorted_ranges_whatever_their_order() {
    let check = |hosts: &[&str], expected: &str| assert_eq!(fold_hosts(hosts), expected, "{hosts:?}");
    check(&[], "");
    check(&["n1"], "n1");
    check(&["login", "n3", "n1", "n2", "n1"], "login,n[1-3]");
    check(&["n10", "n9", "n8", "n12"], "n[8-10,12]");
    check(&["n099", "n100", "n098"], "n[098-100]");
    check(&["n1", "n01", "n02"], "n[1,01-02]");
    check(&["n1", "n2", "m1"], "m1,n[1-2]");
    check(&["r1n1", "r1n2", "r2n1"], "r1n[1-2],r2n1");
    check(&["n1.c2.org", "n2.c2.org", "n1.c3.org"], "n[1-2].c2.org,n1.c3.org");
    check(&["n1-ib", "n2-ib"], "n[1-2]-ib");
    check(&["10.0.0.2", "10.0.0.1"], "10.0.0.[1-2]");
    check(&["fe80::2", "fe80::1"], "fe80::1,fe80::2");
    check(&["n1234567890123456789", "n1"], "n1,n1234567890123456789");
}

fn host() -> impl Strategy<Value = String> {
    prop_oneof![
        "n0{0,2}[0-9]{1,2}",
        "r[0-2]n[0-9]{1,2}(-ib)?",
        "[a-z][a-z0-9._-]{0,9}",
        "10\\.0\\.0\\.[0-9]{1,2}"
    ]
}

proptest! {
    #[test]
    fn folded_lists_read_back(mut hosts in prop::collection::vec(host(), 0..60)) {
        let folded = fold_hosts(&hosts);
        let mut read = parse_host_list(&folded).unwrap();
        prop_assert_eq!(&fold_hosts(&read), &folded);
        hosts.reverse();
        prop_assert_eq!(&fold_hosts(&hosts), &folded);
        hosts.sort();
        hosts.dedup();
        read.sort();
        prop_assert_eq!(read, hosts);
    }

    #[test]
    fn no_text_panics(text in "[n0-9\\[\\], :-]{0,16}|\\PC{0,16}") {
        let _outcome = parse_host_list(&text);
    }

    #[test]
    fn no_hosts_panic_the_fold(hosts in prop::collection::vec("[n0-9.:]{0,24}|\\PC{0,12}", 0..9)) {
        let _folded = fold_hosts(&hosts);
    }
}
