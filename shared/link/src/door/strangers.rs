//! Statistics of connections that did not prove themselves, by source.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// The most sources with a line of their own; the others share one.
const MAX_SOURCES: usize = 32;
/// The most sources in a text.
const SHOWN: usize = 3;

/// The source of a connection, as far as the system knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// A process that this one has started passed it on.
    Brought,
    /// A user of this machine.
    User(u32),
    /// A host, or for IPv6 its network of 64 bits.
    Address(IpAddr),
}

impl Source {
    /// The source of a connection from this address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(ip) if !ip.is_loopback() => {
                let [a, b, c, d, ..] = ip.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
            ip => ip,
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Brought => write!(f, "programs that gantry has started"),
            Self::User(uid) => write!(f, "user {uid} of this machine"),
            Self::Address(IpAddr::V6(ip)) if !ip.is_loopback() => write!(f, "{ip}/64"),
            Self::Address(ip) => write!(f, "{ip}"),
        }
    }
}

/// Why a connection counts as unauthenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// It sent nothing.
    Silent,
    /// It began and did not finish.
    Unfinished,
    /// It uses another protocol.
    Garbage,
    /// It speaks another version of gantry's protocol.
    OtherVersion,
    /// It has another secret.
    WrongSecret,
    /// It has the secret and was refused.
    Refused,
    /// It closed the connection itself. An honest peer that tries several addresses does so, too.
    Left,
}

impl Reason {
    const ALL: [Self; 7] = [
        Self::Silent,
        Self::Unfinished,
        Self::Garbage,
        Self::OtherVersion,
        Self::WrongSecret,
        Self::Refused,
        Self::Left,
    ];

    fn show(self) -> &'static str {
        match self {
            Self::Silent => "sent nothing",
            Self::Unfinished => "stopped halfway",
            Self::Garbage => "used another protocol",
            Self::OtherVersion => "used another version of gantry's protocol",
            Self::WrongSecret => "used another secret",
            Self::Refused => "were refused",
            Self::Left => "closed again",
        }
    }
}

/// How many connections for each [`Reason`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Counts([u64; Reason::ALL.len()]);

impl Counts {
    fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = Reason::ALL.iter().zip(self.0).filter(|(_, count)| *count > 0);
        let (total, kinds) = (self.total(), seen.clone().count());
        for (at, (reason, count)) in seen.enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            match kinds {
                // The total precedes it already.
                1 if count == total => write!(f, "{}", reason.show())?,
                _ => write!(f, "{comma}{count} {}", reason.show())?,
            }
        }
        Ok(())
    }
}

/// Connections that did not prove themselves. Takes bounded memory.
#[derive(Debug, Clone, Default)]
pub struct Strangers {
    sources: Vec<(Source, Counts)>,
    others: Counts,
    evicted: u64,
}

impl Strangers {
    /// Counts one.
    pub fn count(&mut self, source: Source, reason: Reason) {
        let at = self.sources.iter().position(|(known, _)| *known == source);
        let counts = match at {
            Some(at) => self.sources.get_mut(at).map(|(_, counts)| counts),
            None if self.sources.len() < MAX_SOURCES => {
                self.sources.push((source, Counts::default()));
                self.sources.last_mut().map(|(_, counts)| counts)
            }
            None => None,
        };
        let Counts(counts) = counts.unwrap_or(&mut self.others);
        if let Some(count) = counts.get_mut(reason as usize) {
            *count = count.saturating_add(1);
        }
    }

    /// Counts a connection that was closed to make room for another one.
    pub fn count_evicted(&mut self) {
        self.evicted = self.evicted.saturating_add(1);
    }

    /// How many there were.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.sources.iter().fold(self.others.total(), |sum, (_, counts)| sum.saturating_add(counts.total()))
    }

    /// How many there were for this reason.
    #[must_use]
    pub fn total_of(&self, reason: Reason) -> u64 {
        let of = |Counts(counts): &Counts| counts.get(reason as usize).copied().unwrap_or(0);
        self.sources.iter().fold(of(&self.others), |sum, (_, counts)| sum.saturating_add(of(counts)))
    }

    /// How many of them were evicted.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Whether there is something to report: connections that only opened and closed do not count.
    #[must_use]
    pub fn matter(&self) -> bool {
        self.total() > self.total_of(Reason::Left)
    }
}

impl fmt::Display for Strangers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sources: Vec<_> = self.sources.iter().collect();
        sources.sort_by_key(|(source, counts)| (std::cmp::Reverse(counts.total()), *source));
        let shown = sources.get(..SHOWN.min(sources.len())).unwrap_or_default();
        for (at, (source, counts)) in shown.iter().enumerate() {
            let semicolon = if at > 0 { "; " } else { "" };
            write!(f, "{semicolon}{} from {source}: {counts}", connections(counts.total()))?;
        }
        let rest = shown.iter().fold(self.total(), |rest, (_, counts)| rest.saturating_sub(counts.total()));
        if rest > 0 {
            write!(f, "; {} from elsewhere", connections(rest))?;
        }
        if self.evicted > 0 {
            write!(f, "; {} of all these were closed to make room", self.evicted)?;
        }
        Ok(())
    }
}

fn connections(count: u64) -> String {
    if count == 1 { "1 connection".to_owned() } else { format!("{count} connections") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ip: &str) -> Source {
        Source::of(ip.parse().unwrap())
    }

    fn check(seen: &[(Source, Reason, u64)], evicted: u64, expected: &str) {
        let mut strangers = Strangers::default();
        for (source, reason, count) in seen {
            (0..*count).for_each(|_| strangers.count(*source, *reason));
        }
        (0..evicted).for_each(|_| strangers.count_evicted());
        assert_eq!(strangers.to_string(), expected);
        assert_eq!(strangers.total(), seen.iter().map(|(_, _, count)| count).sum::<u64>());
    }

    #[test]
    fn the_text_names_the_largest_sources_and_their_reasons() {
        let (a, b) = (at("10.1.2.3"), Source::User(1001));
        check(&[(a, Reason::Silent, 187)], 0, "187 connections from 10.1.2.3: sent nothing");
        check(
            &[(a, Reason::Silent, 1), (b, Reason::Garbage, 2), (b, Reason::WrongSecret, 1)],
            2,
            "3 connections from user 1001 of this machine: 2 used another protocol, 1 used another secret; \
             1 connection from 10.1.2.3: sent nothing; 2 of all these were closed to make room",
        );
        let many: Vec<_> =
            (1..=40).map(|last| (at(&format!("10.0.0.{last}")), Reason::Left, 100 - last)).collect();
        let mut strangers = Strangers::default();
        for (source, reason, count) in &many {
            (0..*count).for_each(|_| strangers.count(*source, *reason));
        }
        assert!(strangers.to_string().ends_with("; 2886 connections from elsewhere"), "{strangers}");
        assert!(!strangers.matter());
        assert_eq!(strangers.sources.len(), MAX_SOURCES);
    }

    #[test]
    fn sources_are_networks_of_hosts() {
        let check = |ip: &str, expected: &str| assert_eq!(at(ip).to_string(), expected);
        check("10.1.2.3", "10.1.2.3");
        check("::ffff:10.1.2.3", "10.1.2.3");
        check("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64");
        check("::1", "::1");
        assert_eq!(at("2001:db8::1"), at("2001:db8::2"));
    }
}
