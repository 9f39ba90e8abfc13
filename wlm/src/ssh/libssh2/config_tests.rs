//! Configurations as OpenSSH 9.2 resolved them.

use gantry_wlm::host::Machine;

use super::*;

fn recorded(name: &str) -> Config {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/ssh/openssh-9.2p1/config");
    let text = std::fs::read_to_string(format!("{folder}/{name}.stdout")).unwrap();
    Config::parse("n001", &text, &Machine).unwrap()
}

#[test]
fn nothing_configured() {
    let config = recorded("plain");
    let got = (config.hostname.as_str(), config.port, config.user.as_str(), config.known_as.as_str());
    assert_eq!(got, ("n001", 22, "tester", "n001"));
    assert_eq!((config.strict, config.accepts_new(), config.identities_only), (Strict::Ask, false, false));
    assert_eq!((config.proxy_command.as_ref(), config.proxy_jump.as_ref()), (None, None));
    let files: Vec<_> = config.known_hosts_files.iter().map(|file| file.display().to_string()).collect();
    let expected = [
        "/run/home/tester/.ssh/known_hosts",
        "/run/home/tester/.ssh/known_hosts2",
        "/etc/ssh/ssh_known_hosts",
        "/etc/ssh/ssh_known_hosts2",
    ];
    assert_eq!(files, expected);
    assert_eq!(config.identity_files.len(), 7);
    assert!(config.identity_files.iter().all(|file| file.is_absolute()), "{:?}", config.identity_files);
    assert!(config.kex.contains(&"curve25519-sha256".to_owned()) && config.public_keys);
    assert_eq!(config.lacks(), None);
}

#[test]
fn everything_configured() {
    let config = recorded("much");
    let got = (config.hostname.as_str(), config.port, config.user.as_str(), config.known_as.as_str());
    assert_eq!(got, ("10.1.2.3", 2222, "me", "cluster"));
    assert_eq!(config.proxy_command.as_deref(), Some("nc 10.1.2.3 2222 me n001 %"));
    assert_eq!((config.strict, config.accepts_new()), (Strict::AcceptNew, true));
    assert_eq!(config.agent.as_deref(), Some("/run/agent-me".as_ref()));
    assert_eq!(config.identity_files, [PathBuf::from("/keys/cluster/id me")]);
    assert!(config.identities_only && config.gssapi && config.host_based && !config.public_keys);
    assert_eq!(config.certificate_files, [PathBuf::from("/keys/me-cert.pub")]);
    assert_eq!(config.pkcs11.as_deref(), Some("/usr/lib/card.so"));
    assert_eq!(config.ciphers, ["aes256-ctr"]);
    assert!(config.variables(&Machine).contains(&("A".to_owned(), "b c".to_owned())));
    assert_eq!(config.lacks().as_deref(), Some("libssh2 does not have 'bindaddress 10.0.0.9'"));
}

#[test]
fn a_way_through_another_host_and_another_port() {
    let config = recorded("jump");
    assert_eq!(
        (config.proxy_jump.as_deref(), config.known_as.as_str()),
        (Some("me@gate:23,inner"), "[n001]:2200")
    );
    assert_eq!(config.agent, None);
}

#[test]
fn configurations_that_only_the_openssh_client_supports() {
    let check = |line: &str, expected: &str| {
        let text = format!("hostname n\nport 22\nuser me\n{line}\n");
        let failed =
            Config::parse("n", &text, &Machine).and_then(|config| config.lacks().map_or(Ok(()), Err));
        assert_eq!(failed.unwrap_err(), expected);
    };
    check("identityfile /k/%C", "the configuration has the token %C");
    check("identityfile ~other/k", "the configuration has ~other/k, a path in another user's home");
    check("verifyhostkeydns true", "libssh2 does not have 'verifyhostkeydns true'");
}
