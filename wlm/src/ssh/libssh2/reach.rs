//! The stream of bytes to a host: TCP, or a user's command that carries it (ProxyCommand, ProxyJump).

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use gantry_wlm::Host;
use gantry_wlm::host::{Machine, Orphan, spawn_orphan_with};
use nix::sys::socket::{MsgFlags, recv};

use crate::config::Config;
use crate::watch::{Phase, Watch};
use crate::words::{self, Peer};
use crate::{End, Way, say};

/// Longer than any timeout of the watch. In effect it is the kernel's own limit.
const CONNECT: Duration = Duration::from_secs(600);

/// The maximum length of a host's output before the protocol.
const SAID_BYTES: usize = 512;

/// An established connection.
#[derive(Debug)]
pub(crate) struct Reached {
    /// The stream's descriptor; libssh2 gets a copy.
    pub(crate) descriptor: OwnedFd,
    pub(crate) peer: Peer,
    proxy: Option<Orphan>,
}

impl Reached {
    /// Ends the command that carries the stream, if there is one.
    pub(crate) fn close(self) {
        if let Some(proxy) = self.proxy {
            // Usually it ends by itself when its input ends.
            drop(proxy.kill());
        }
    }
}

/// Connects, and waits until the peer sends something.
///
/// # Errors
/// The connection failed, with the OpenSSH client's message.
pub(crate) fn reach(config: &Config, watch: &Watch) -> Way<Reached> {
    let reached = match build_proxy(config, &Machine)? {
        Some(command) => {
            watch.enter(Phase::Banner(Peer::behind_a_proxy()));
            run_proxy(&command)
        }
        None => connect(config, watch)?,
    };
    let failed =
        |error: io::Error| words::not_connected(&config.hostname, config.port, &words::system(&error));
    let reached = reached.map_err(|error| End::Failed(failed(error)))?;
    watch.enter(Phase::Banner(reached.peer.clone()));
    greet(&reached)?;
    watch.enter(Phase::Login(reached.peer.clone()));
    Ok(reached)
}

/// The command that carries the stream.
fn build_proxy(config: &Config, machine: &dyn Host) -> Way<Option<Vec<OsString>>> {
    let shell = |command: &str| ["/bin/sh", "-c", &format!("exec {command}")].map(OsString::from).to_vec();
    if let Some(command) = &config.proxy_command {
        return Ok(Some(shell(command)));
    }
    let Some(jump) = &config.proxy_jump else { return Ok(None) };
    let ssh =
        machine.find_in_path("ssh").ok_or_else(|| End::Openssh("there is no ssh in PATH".to_owned()))?;
    let jump = build_jump(jump, &config.hostname, config.port);
    Ok(Some([ssh.into()].into_iter().chain(jump.into_iter().map(OsString::from)).collect()))
}

/// ssh's arguments for the last of these jump hosts. It is reached through the hosts before it.
fn build_jump(jump: &str, hostname: &str, port: u16) -> Vec<String> {
    let (before, last) = jump.rsplit_once(',').map_or((None, jump), |(before, last)| (Some(before), last));
    let last = last.strip_prefix("ssh://").unwrap_or(last).trim_end_matches('/');
    let (user, place) = last.rsplit_once('@').map_or((None, last), |(user, place)| (Some(user), place));
    let (host, at) = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => place.rsplit_once(':').map_or((place, None), |(host, at)| (host, Some(at))),
    };
    let mut args = vec!["-o".to_owned(), "BatchMode=yes".to_owned()];
    for (option, value) in [("-l", user), ("-p", at), ("-J", before)] {
        args.extend(value.into_iter().flat_map(|value| [option.to_owned(), value.to_owned()]));
    }
    args.extend(["-W".to_owned(), format!("[{hostname}]:{port}"), "--".to_owned(), host.to_owned()]);
    args
}

fn run_proxy(command: &[OsString]) -> io::Result<Reached> {
    let (ours, theirs) = UnixStream::pair()?;
    let theirs = OwnedFd::from(theirs);
    let errors = io::stderr().as_fd().try_clone_to_owned()?;
    let (program, args) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let stdio = [theirs.try_clone()?, theirs, errors];
    let proxy = spawn_orphan_with(Path::new(program), args, Machine.environment(), stdio)?;
    Ok(Reached { descriptor: ours.into(), peer: Peer::behind_a_proxy(), proxy: Some(proxy) })
}

/// Tries the host's addresses one after the other.
fn connect(config: &Config, watch: &Watch) -> Way<io::Result<Reached>> {
    let resolved = (config.hostname.as_str(), config.port).to_socket_addrs();
    let resolved = resolved
        .map_err(|error| End::Failed(words::not_resolved(&config.hostname, &words::system(&error))))?;
    watch.enter(Phase::Connect(config.hostname.clone(), config.port));
    let fits = |address: &SocketAddr| match config.address_family.as_str() {
        "inet" => address.is_ipv4(),
        "inet6" => address.is_ipv6(),
        _ => true,
    };
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in resolved.filter(fits) {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => {
                // Requests and answers alternate, so a delay before sending gains nothing.
                let quick = stream.set_nodelay(true);
                let peer = Peer { address: plain(address.ip()), port: address.port() };
                return Ok(quick.map(|()| Reached { descriptor: stream.into(), peer, proxy: None }));
            }
            Err(error) => last = error,
        }
    }
    Ok(Err(last))
}

fn plain(address: IpAddr) -> String {
    address.to_canonical().to_string()
}

/// Waits until the host sends something. Prints its output before the protocol, for example that it has too many
/// connections. Leaves libssh2's bytes unread.
fn greet(reached: &Reached) -> Way<()> {
    let mut bytes = [0; SAID_BYTES];
    let read = loop {
        match recv(reached.descriptor.as_raw_fd(), &mut bytes, MsgFlags::MSG_PEEK) {
            Err(nix::errno::Errno::EINTR) => {}
            other => break other,
        }
    };
    let read = read.map_err(|error| End::Failed(words::closed_early(&reached.peer, Some(&error.into()))))?;
    if read == 0 {
        return Err(End::Failed(words::closed_early(&reached.peer, None)));
    }
    let said = String::from_utf8_lossy(&bytes[..read]);
    for (number, line) in said.lines().take_while(|line| !line.starts_with("SSH-")).enumerate() {
        say(&format!("debug1: kex_exchange_identification: banner line {number}: {line}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_through_other_hosts() {
        let check = |jump: &str, expected: &str| {
            assert_eq!(build_jump(jump, "n1", 22).join(" "), format!("-o BatchMode=yes {expected}"));
        };
        check("gate", "-W [n1]:22 -- gate");
        check("me@gate:2222", "-l me -p 2222 -W [n1]:22 -- gate");
        check("a,b@c,ssh://[::1]:23/", "-p 23 -J a,b@c -W [n1]:22 -- ::1");
    }
}
