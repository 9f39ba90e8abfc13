//! The configuration files of a bed, built from its [`Config`]. Pure, so their content is tested without a cluster.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::config::{Config, FLUX_UID, HOME, LOGIN, POSTGRES_UID, Proctrack, UID, USER, address};
use super::{flux, pbs};

/// User ids of the daemons. The bed has its own `/etc/passwd`, so they need not be this machine's.
pub(crate) const MUNGE_UID: u32 = 301;
pub(crate) const SLURM_UID: u32 = 302;
const SSHD_UID: u32 = 303;

/// Where slurmctld listens.
pub(crate) const SLURMCTLD_PORT: u16 = 6817;
/// Where slurmd listens.
pub(crate) const SLURMD_PORT: u16 = 6818;
/// Where srun listens: known, so that a firewall can let it through, as sites with firewalls do.
pub(crate) const SRUN_PORTS: (u16, u16) = (60001, 63000);

/// The file where daemons find the key of munge.
pub(crate) const MUNGE_KEY: &str = "/etc/munge/munge.key";
/// The folder of the nodes' ssh host keys.
pub(crate) const HOST_KEYS: &str = "/etc/ssh/testbed";
/// The configuration of sshd.
pub(crate) const SSHD_CONFIG: &str = "/etc/ssh/testbed/sshd_config";

/// The small files under `/etc` that are equal on all hosts: path and text.
pub(crate) fn build_etc(config: &Config) -> Vec<(&'static str, String)> {
    let mut files = vec![
        ("/etc/passwd", build_passwd()),
        ("/etc/group", build_group()),
        // No password matches a star. An exclamation mark would lock the account for sshd too.
        ("/etc/shadow", format!("root:*:1::::::\npostgres:*:1::::::\n{USER}:*:1::::::\n")),
        ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files\n".to_owned()),
        // Names come from /etc/hosts. With a name server in resolv.conf, programs would wait for a server that cannot
        // be reached.
        ("/etc/resolv.conf", String::new()),
        ("/etc/hosts", build_hosts(config)),
        ("/etc/slurm/slurm.conf", build_slurm_conf(config)),
        ("/etc/slurm/cgroup.conf", build_cgroup_conf(config)),
        // Two devices that every host has stand for GPUs, where `slurm.conf` has `GresTypes=gpu`.
        ("/etc/slurm/gres.conf", "Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n".to_owned()),
        ("/etc/slurm/plugstack.conf", String::new()),
        (SSHD_CONFIG, build_sshd_config()),
        (
            "/etc/profile",
            format!(
                "PATH={}/usr/local/bin:/usr/bin:/bin\nexport PATH\n",
                config.other_slurm.iter().map(|own| format!("{}/bin:", own.display())).collect::<String>()
            ),
        ),
    ];
    if let Some(installation) = &config.pbs {
        files.push(("/etc/pbs.conf", pbs::build_config(installation, None)));
    }
    if let Some(installation) = &config.flux {
        files.push((flux::CONFIG, flux::build_config(config, installation)));
        files.extend(flux::build_security(installation));
    }
    files
}

fn build_passwd() -> String {
    let mut text = "root:x:0:0:root:/root:/bin/sh\n".to_owned();
    for (name, uid) in [
        ("munge", MUNGE_UID),
        ("slurm", SLURM_UID),
        ("sshd", SSHD_UID),
        ("flux", FLUX_UID),
        ("nobody", 65534),
    ] {
        line(&mut text, format_args!("{name}:x:{uid}:{uid}::/nonexistent:/usr/sbin/nologin"));
    }
    // PBS's server must be able to log in as this user.
    line(&mut text, format_args!("postgres:x:{POSTGRES_UID}:{POSTGRES_UID}::/:/bin/sh"));
    line(&mut text, format_args!("{USER}:x:{UID}:{UID}:ordinary user:{HOME}:/bin/bash"));
    text
}

fn build_group() -> String {
    let mut text = "root:x:0:\ntty:x:5:\n".to_owned();
    for (name, gid) in [
        ("munge", MUNGE_UID),
        ("slurm", SLURM_UID),
        ("sshd", SSHD_UID),
        ("flux", FLUX_UID),
        ("postgres", POSTGRES_UID),
        ("nogroup", 65534),
    ] {
        line(&mut text, format_args!("{name}:x:{gid}:"));
    }
    line(&mut text, format_args!("{USER}:x:{UID}:"));
    text
}

fn build_hosts(config: &Config) -> String {
    let mut text = "127.0.0.1 localhost\n".to_owned();
    for host in config.host_names() {
        if let Some(address) = address(&host) {
            line(&mut text, format_args!("{address} {host}"));
        }
    }
    text
}

/// `slurm.conf`: the settings of a small real cluster, with short times where a test would have to wait for them.
pub(crate) fn build_slurm_conf(config: &Config) -> String {
    let login = address(LOGIN).map(|address| address.to_string()).unwrap_or_default();
    let (first, last) = SRUN_PORTS;
    let own = [
        ("ClusterName", "testbed".to_owned()),
        ("SlurmctldHost", format!("{LOGIN}({login})")),
        ("SlurmctldPort", SLURMCTLD_PORT.to_string()),
        ("SlurmdPort", SLURMD_PORT.to_string()),
        ("SrunPortRange", format!("{first}-{last}")),
        ("SlurmUser", "slurm".to_owned()),
        ("AuthType", "auth/munge".to_owned()),
        ("CredType", "cred/munge".to_owned()),
        ("MpiDefault", "none".to_owned()),
        ("ProctrackType", format!("proctrack/{}", config.proctrack)),
        ("TaskPlugin", if needs_cgroup(config) { "task/cgroup" } else { "task/none" }.to_owned()),
        ("SelectType", "select/cons_tres".to_owned()),
        ("SelectTypeParameters", "CR_CPU".to_owned()),
        ("SchedulerType", "sched/backfill".to_owned()),
        // Only the backfill scheduler starts jobs of several parts, every 30 s by default.
        ("SchedulerParameters", "bf_interval=1,sched_interval=2".to_owned()),
        ("JobAcctGatherType", "jobacct_gather/none".to_owned()),
        ("AccountingStorageType", "accounting_storage/none".to_owned()),
        ("MailProg", "/bin/true".to_owned()),
        // A node that comes back is usable again, even if it lacks the CPUs and the memory that it reports.
        ("ReturnToService", "2".to_owned()),
        ("SlurmdParameters", "config_overrides".to_owned()),
        ("SlurmctldPidFile", "/run/slurmctld.pid".to_owned()),
        ("SlurmctldLogFile", "/var/log/slurmctld.log".to_owned()),
        ("StateSaveLocation", "/var/spool/slurmctld".to_owned()),
        ("SlurmdPidFile", "/run/slurmd.pid".to_owned()),
        ("SlurmdLogFile", "/var/log/slurmd.log".to_owned()),
        ("SlurmdSpoolDir", "/var/spool/slurmd".to_owned()),
        ("InactiveLimit", "0".to_owned()),
        ("KillWait", "5".to_owned()),
        ("MessageTimeout", "30".to_owned()),
    ];
    let mut parameters: BTreeMap<&str, &str> =
        own.iter().map(|(name, value)| (*name, value.as_str())).collect();
    parameters.extend(config.slurm.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let mut text = String::new();
    for (name, value) in parameters {
        line(&mut text, format_args!("{name}={value}"));
    }
    let cpus = config.cpus;
    for node in config.slurm_nodes() {
        let address = address(&node).map(|address| address.to_string()).unwrap_or_default();
        line(
            &mut text,
            format_args!(
                "NodeName={node} NodeAddr={address} CPUs={cpus} CoresPerSocket={cpus} RealMemory=2000"
            ),
        );
    }
    line(&mut text, format_args!("PartitionName=main Nodes=ALL Default=YES OverSubscribe=FORCE:8 State=UP"));
    text
}

/// The plug-in is named for every proctrack: otherwise Slurm would look for systemd. Only memory is limited: nodes have
/// fewer cores than they report.
fn build_cgroup_conf(config: &Config) -> String {
    let memory = if needs_cgroup(config) { "yes" } else { "no" };
    format!(
        "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainCores=no\nConstrainRAMSpace={memory}\n"
    )
}

fn build_sshd_config() -> String {
    let lines = [
        "Port 22",
        "PidFile /run/sshd.pid",
        "UsePAM no",
        "PermitRootLogin no",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "AcceptEnv LANG LC_*",
        "Subsystem sftp internal-sftp",
        "MaxStartups 100",
        "UseDNS no",
    ];
    lines.join("\n") + "\n"
}

/// `known_hosts` for nodes with these public keys, each a line as ssh-keygen writes it (`TYPE KEY COMMENT`).
pub(crate) fn build_known_hosts(keys: &[(String, String)]) -> String {
    let mut text = String::new();
    for (host, key) in keys {
        let key: Vec<&str> = key.split_ascii_whitespace().take(2).collect();
        let address = address(host).map(|address| address.to_string()).unwrap_or_default();
        line(&mut text, format_args!("{host},{address} {}", key.join(" ")));
    }
    text
}

/// Whether this bed needs cgroups.
pub(crate) fn needs_cgroup(config: &Config) -> bool {
    config.proctrack == Proctrack::Cgroup
}

fn line(text: &mut String, words: std::fmt::Arguments<'_>) {
    writeln!(text, "{words}").expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(config: &Config, expected: &[&str]) {
        let text = build_slurm_conf(config);
        for wanted in expected {
            assert!(text.lines().any(|line| line == *wanted), "{wanted} in\n{text}");
        }
    }

    #[test]
    fn slurm_conf_names_every_node_and_takes_parameters_over_its_own() {
        check(
            &Config::with_nodes(2),
            &[
                "SlurmctldHost=login(10.42.0.1)",
                "KillWait=5",
                "ProctrackType=proctrack/linuxproc",
                "NodeName=n002 NodeAddr=10.42.1.2 CPUs=16 CoresPerSocket=16 RealMemory=2000",
            ],
        );
        let changed =
            Config { proctrack: Proctrack::Cgroup, ..Config::with_nodes(1).slurm("KillWait", "30") };
        check(&changed, &["KillWait=30", "ProctrackType=proctrack/cgroup", "TaskPlugin=task/cgroup"]);
        assert!(!build_slurm_conf(&changed).contains("KillWait=5"));
    }

    #[test]
    fn known_hosts_has_name_and_address_and_no_comment() {
        let keys = [("n001".to_owned(), "ssh-ed25519 AAAA root@here\n".to_owned())];
        assert_eq!(build_known_hosts(&keys), "n001,10.42.1.1 ssh-ed25519 AAAA\n");
    }

    #[test]
    fn the_user_is_known_by_name_and_number() {
        let user = format!("{USER}:x:{UID}:{UID}:ordinary user:{HOME}:/bin/bash");
        assert!(build_passwd().lines().any(|line| line == user));
    }
}
