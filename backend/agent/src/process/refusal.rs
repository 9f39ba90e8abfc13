//! Why ptrace was refused. EPERM has several causes; this module finds out which one it was.

use super::procfs;

/// The facts that can be read after ptrace was refused.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PtraceFacts {
    /// The rank's tracer, 0 for none.
    pub(crate) tracer: i32,
    /// `/proc/sys/kernel/yama/ptrace_scope`, where there is Yama.
    pub(crate) yama: Option<u32>,
    /// Whether `/sys/fs/selinux/booleans/deny_ptrace` is on.
    pub(crate) selinux_denies: bool,
    /// `Seccomp:` of our own `/proc/self/status`.
    pub(crate) seccomp: Option<u32>,
}

impl PtraceFacts {
    /// Reads the facts for the rank `pid`.
    pub(crate) fn read(pid: i32) -> Self {
        let number = |path: &str| std::fs::read_to_string(path).ok()?.split_whitespace().next()?.parse().ok();
        Self {
            tracer: procfs::read_status(pid).map_or(0, |status| status.tracer),
            yama: number("/proc/sys/kernel/yama/ptrace_scope"),
            selinux_denies: number("/sys/fs/selinux/booleans/deny_ptrace") == Some(1),
            seccomp: procfs::read_own_seccomp(),
        }
    }

    /// The most likely reason, and the setting to change. Yama's levels 0 and 1 allow a parent to trace its child, so
    /// they are no reason.
    pub(super) fn explain(self) -> (String, Option<&'static str>) {
        let (why, hint) = match self {
            Self { tracer, .. } if tracer != 0 => (
                format!("it is already traced by process {tracer}"),
                "do not run the agent under strace -f or a debugger that follows forks",
            ),
            Self { yama: Some(2), .. } => (
                "kernel.yama.ptrace_scope is 2: only administrators may trace".to_owned(),
                "ask for sysctl kernel.yama.ptrace_scope=1 on this node",
            ),
            Self { yama: Some(scope @ 3..), .. } => (
                format!("kernel.yama.ptrace_scope is {scope}: tracing is disabled"),
                "kernel.yama.ptrace_scope=3 stays until a reboot: ask for 1 in /etc/sysctl.d",
            ),
            Self { selinux_denies: true, .. } => {
                ("SELinux's deny_ptrace is on".to_owned(), "ask for setsebool deny_ptrace off on this node")
            }
            Self { seccomp: Some(1..), .. } => (
                "a seccomp filter does not let ptrace through".to_owned(),
                "allow ptrace in the container's seccomp profile (or --cap-add=SYS_PTRACE)",
            ),
            _ => return ("the kernel does not let it be traced".to_owned(), None),
        };
        (why, Some(hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ptrace_refusal_names_its_knob() {
        let check = |facts: PtraceFacts, why: &str, knob: &str| {
            let told = facts.explain();
            assert!(told.0.contains(why) && told.1.unwrap_or_default().contains(knob), "{told:?}");
        };
        let none = PtraceFacts::default();
        let yama = |scope| PtraceFacts { yama: Some(scope), seccomp: Some(2), ..none };
        check(yama(3), "kernel.yama.ptrace_scope is 3: tracing is disabled", "a reboot");
        check(yama(2), "ptrace_scope is 2: only administrators", "ptrace_scope=1");
        check(yama(1), "a seccomp filter", "SYS_PTRACE");
        check(PtraceFacts { seccomp: Some(2), ..none }, "a seccomp filter", "SYS_PTRACE");
        check(PtraceFacts { seccomp: Some(0), ..none }, "the kernel does not let it", "");
        check(PtraceFacts { selinux_denies: true, ..none }, "SELinux", "deny_ptrace off");
        check(PtraceFacts { tracer: 7, yama: Some(3), ..none }, "by process 7", "strace");
    }
}
