//! `gantry-ssh`: runs a command on a host by libssh2, as gantry uses the OpenSSH client. Its standard input and
//! output are the command's. Its messages on standard error are those of the OpenSSH client, so that one parser
//! understands both.
//!
//! It is a separate program because libssh2 needs OpenSSL, and neither may be loaded into a tool's process. The
//! user's own ssh tells how a host is reached (`ssh -G`). If libssh2 does not support that, this process becomes ssh.
//!
//! | module | what is there |
//! | --- | --- |
//! | `config`, `tokens` | the output of `ssh -G`; pure |
//! | `known_hosts`, `keys` | known keys of a host, formats of keys; pure |
//! | `end` | how this program ends, and its lines on standard error |
//! | `words` | the OpenSSH client's messages; pure |
//! | `watch` | the timeout for the login |
//! | `reach`, `host_key`, `login` | the stream of bytes to the host; the host's identity; the user's identity |
//! | `relay` | the command's input and output |

mod config;
mod end;
mod tokens;
mod known_hosts;
mod keys;
mod words;
mod watch;
mod reach;
mod host_key;
mod login;
mod relay;

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use gantry_wlm::Host;
use gantry_wlm::host::{Machine, close_inherited_descriptors};
use gantry_wlm::ssh::{Call, TAKEOVER, build_openssh_args};
use ssh2::{Channel, MethodType, Session};

use config::Config;
use end::{End, FAILED, Way, run_found, say};
use watch::{Phase, Watch};

/// The timeout for the host to start the command after the login.
const START: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    // If that fails they stay open.
    drop(close_inherited_descriptors());
    let call = match Call::parse_args(std::env::args_os().skip(1)) {
        Ok(call) => call,
        Err(error) => {
            say(&format!("gantry-ssh: {error}: {}", error.hint().unwrap_or_default()));
            return ExitCode::from(FAILED);
        }
    };
    let began = Instant::now();
    match serve(&call) {
        Ok(code) => ExitCode::from(code),
        Err(End::Failed(words)) => {
            words.iter().for_each(|line| say(line));
            ExitCode::from(FAILED)
        }
        Err(End::Openssh(reason)) => {
            let connect = call.connect.saturating_sub(began.elapsed());
            hand_over(&Call { connect, ..call }, &reason)
        }
    }
}

fn serve(call: &Call) -> Way<u8> {
    let watch = Watch::start(call);
    let config = ask_config(call, &watch)?;
    if let Some(reason) = config.lacks() {
        return Err(End::Openssh(reason));
    }
    let known = host_key::find_known(&config)?;
    let mut session = Session::new().map_err(|error| End::Openssh(error.to_string()))?;
    prefer(&session, &config, &known)?;
    let reached = reach::reach(&config, &watch)?;
    let peer = reached.peer.clone();
    let stream = reached.descriptor.try_clone().map_err(|error| End::Openssh(error.to_string()))?;
    session.set_tcp_stream(stream);
    session.handshake().map_err(|error| words::explain_handshake(&error, &peer))?;
    host_key::check(&session, &config, &known)?;
    watch.enter(Phase::Login(peer.clone()));
    let method = login::log_in(&session, &config, &peer)?;
    watch.end();
    say(&format!("Authenticated to {} ({peer}) using \"{method}\".", call.host));
    session.set_timeout(u32::try_from(START.as_millis()).unwrap_or(u32::MAX));
    let channel =
        start(&session, &config, &call.command).map_err(|error| words::explain_lost(&error, &call.host))?;
    let ended = relay::relay(&session, channel, reached.descriptor.as_fd(), &call.host);
    reached.close();
    ended
}

/// The user's configuration for this host, as ssh resolves it.
fn ask_config(call: &Call, watch: &Watch) -> Way<Config> {
    let mut args = vec!["-G".to_owned()];
    args.extend(call.login.iter().flat_map(|login| ["-l".to_owned(), login.clone()]));
    args.extend(["--".to_owned(), call.host.to_string()]);
    let (status, said) = run_found("ssh", &args, call.connect)?;
    if !status {
        return Err(End::Openssh("the configuration cannot be read".to_owned()));
    }
    let mut config =
        Config::parse(&call.host, &String::from_utf8_lossy(&said), &Machine).map_err(End::Openssh)?;
    config.accept_new |= call.accept_new;
    watch.enter(Phase::Resolve(config.hostname.clone()));
    Ok(config)
}

/// Sets libssh2's algorithms to the allowed ones, with those of known host keys first.
fn prefer(session: &Session, config: &Config, known: &known_hosts::Known) -> Way<()> {
    let host_keys = known.order(&config.host_key_algorithms);
    let wishes = [
        (MethodType::Kex, &config.kex),
        (MethodType::HostKey, &host_keys),
        (MethodType::CryptCs, &config.ciphers),
        (MethodType::CryptSc, &config.ciphers),
        (MethodType::MacCs, &config.macs),
        (MethodType::MacSc, &config.macs),
    ];
    let failed = |error: ssh2::Error| End::Openssh(format!("libssh2: {error}"));
    for (kind, wanted) in wishes {
        // Algorithms without a setting are libssh2's own choice.
        if wanted.is_empty() {
            continue;
        }
        let supported = session.supported_algs(kind).map_err(failed)?;
        let both: Vec<&str> =
            wanted.iter().map(String::as_str).filter(|name| supported.contains(name)).collect();
        if both.is_empty() {
            return Err(End::Openssh(
                "libssh2 supports none of the algorithms that the configuration allows".to_owned(),
            ));
        }
        session.method_pref(kind, &both.join(",")).map_err(failed)?;
    }
    Ok(())
}

/// Makes the host start the command.
fn start(session: &Session, config: &Config, command: &OsStr) -> Result<Channel, ssh2::Error> {
    let mut channel = session.channel_session()?;
    for (name, value) in config.variables(&Machine) {
        // sshd accepts those in its AcceptEnv. Like the OpenSSH client, ignore refusals.
        drop(channel.setenv(&name, &value));
    }
    channel.exec(&command.to_string_lossy())?;
    Ok(channel)
}

/// Execs the user's OpenSSH client, after a line with the reason.
fn hand_over(call: &Call, reason: &str) -> ExitCode {
    say(&format!("debug1: {TAKEOVER}{reason}"));
    let Some(program) = Machine.find_in_path("ssh") else {
        say("gantry-ssh: there is no ssh in PATH");
        return ExitCode::from(FAILED);
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "this process execs another program, and no library is involved"
    )]
    let error = std::process::Command::new(program).args(build_openssh_args(call)).exec();
    say(&format!("gantry-ssh: cannot run ssh: {error}"));
    ExitCode::from(FAILED)
}
