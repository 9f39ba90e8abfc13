//! Tests whether other apps' nodes can be connected to.
//!
//! The agent does so before MPI libraries connect: they wait for ever if a firewall drops packets silently.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use gantry_link::addresses::find_addresses;
use gantry_link::tcp::listen as listen_at;
use gantry_types::error::Failure;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::failure;

/// The limit on other nodes to try, and on addresses of each.
const MOST_OTHERS: usize = 1024;
const MOST_ADDRESSES: usize = 16;

/// Accepts connections for a while, and returns the addresses. Call it in a tokio runtime.
pub(crate) fn listen(within: Duration) -> Result<Vec<SocketAddr>, Failure> {
    let failed = |error: std::io::Error| failure::from_io("listen for other nodes", &error);
    let any = [IpAddr::from(Ipv6Addr::UNSPECIFIED), Ipv4Addr::UNSPECIFIED.into()];
    let listener = any.into_iter().map(|ip| listen_at((ip, 0).into())).reduce(Result::or);
    let listener = listener.unwrap_or_else(|| Err(std::io::ErrorKind::Unsupported.into())).map_err(failed)?;
    let mut addresses = find_addresses(listener.local_addr().map_err(failed)?).map_err(failed)?;
    // At a loopback address a node reaches only itself.
    if addresses.iter().any(|address| !address.ip().is_loopback()) {
        addresses.retain(|address| !address.ip().is_loopback());
    }
    tokio::spawn(timeout(within, async move {
        loop {
            drop(failure::accept(|| listener.accept()).await);
        }
    }));
    Ok(addresses)
}

/// The other nodes that cannot be reached at any of their addresses.
pub(crate) async fn try_all(others: Vec<Vec<SocketAddr>>, within: Duration) -> Vec<u32> {
    let mut tries = JoinSet::new();
    for (number, addresses) in (0..).zip(others).take(MOST_OTHERS) {
        tries.spawn(async move { (number, is_reached(addresses, within).await) });
    }
    let mut unreached: Vec<u32> = Vec::new();
    while let Some(tried) = tries.join_next().await {
        match tried {
            Ok((_, true)) => {}
            Ok((number, false)) => unreached.push(number),
            // The attempt has panicked, and says nothing about the node.
            Err(_) => {}
        }
    }
    unreached.sort_unstable();
    unreached
}

async fn is_reached(addresses: Vec<SocketAddr>, within: Duration) -> bool {
    let mut dialling = JoinSet::new();
    for address in addresses.into_iter().take(MOST_ADDRESSES) {
        dialling.spawn(timeout(within, TcpStream::connect(address)));
    }
    while let Some(dialled) = dialling.join_next().await {
        if matches!(dialled, Ok(Ok(Ok(_)))) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{rerun_alone, without_descriptors};

    #[tokio::test]
    async fn who_listens_is_reached_and_who_does_not_is_named() {
        let second = Duration::from_secs(1);
        let here = listen(second).unwrap();
        assert!(!here.is_empty());
        // A port that was in use a moment ago.
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let gone = vec![taken.local_addr().unwrap()];
        drop(taken);
        assert_eq!(try_all(vec![here.clone(), gone, here, Vec::new()], second).await, [1, 3]);
    }

    #[test]
    fn a_node_is_reached_after_its_descriptors_were_short() {
        if rerun_alone("reach::tests::a_node_is_reached_after_its_descriptors_were_short") {
            return;
        }
        let minute = Duration::from_secs(60);
        let (tell, told) = std::sync::mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let node = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let here = listen(minute).unwrap();
                tell.send(here[0]).unwrap();
                stopped.await.unwrap_err();
                try_all(vec![here], minute).await
            })
        });
        let here = told.recv().unwrap();
        drop(without_descriptors(|| std::net::TcpStream::connect(here).unwrap()));
        drop(stop);
        assert_eq!(node.join().unwrap(), [0_u32; 0]);
    }
}
