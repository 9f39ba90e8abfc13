//! Functions in which a program waits for others, and those that stand before a program's own.

/// Functions of systems and libraries that wait, beside those of MPI. What they call in turn tells nobody anything.
const WAITING: [&str; 58] = [
    "accept",
    "accept4",
    "clock_nanosleep",
    "connect",
    "epoll_pwait",
    "epoll_wait",
    "fcntl",
    "flock",
    "fsync",
    "futex_wait",
    "getaddrinfo",
    "lockf",
    "mq_receive",
    "msgrcv",
    "nanosleep",
    "omp_set_lock",
    "pause",
    "poll",
    "ppoll",
    "pread",
    "pselect",
    "pthread_barrier_wait",
    "pthread_clockjoin_ex",
    "pthread_cond_clockwait",
    "pthread_cond_timedwait",
    "pthread_cond_wait",
    "pthread_join",
    "pthread_mutex_lock",
    "pthread_mutex_timedlock",
    "pthread_rwlock_rdlock",
    "pthread_rwlock_wrlock",
    "pthread_spin_lock",
    "pthread_timedjoin_np",
    "read",
    "readv",
    "recv",
    "recvfrom",
    "recvmsg",
    "sched_yield",
    "select",
    "sem_timedwait",
    "sem_wait",
    "semop",
    "semtimedop",
    "send",
    "sendmsg",
    "sendto",
    "sigsuspend",
    "sigtimedwait",
    "sigwait",
    "sigwaitinfo",
    "sleep",
    "usleep",
    "wait4",
    "waitid",
    "waitpid",
    "write",
    "writev",
];

/// Libraries for messages whose functions wait, by the beginning of their names.
const FAMILIES: [&str; 8] =
    ["MPI_", "MPIX_", "shmem_", "nccl", "rccl", "gaspi_", "GOMP_barrier", "__kmpc_barrier"];

/// Functions that start a program or a thread.
const STARTING: [&str; 12] = [
    "_start",
    "__libc_start_main",
    "__libc_start_main_impl",
    "__libc_start_call_main",
    "__clone",
    "__clone3",
    "clone",
    "clone3",
    "start_thread",
    "_dl_start_user",
    "_start_c",
    "libc_start_main_stage2",
];

/// The name as the library's documentation has it, where this is a function that waits: without what its inner and second names have around it.
pub(crate) fn waiting_name(function: &str) -> Option<String> {
    if let Some(name) = mpi_name(function) {
        return Some(name);
    }
    let plain = function.trim_start_matches('_');
    let plain = plain.strip_prefix("GI_").map_or(plain, |rest| rest.trim_start_matches('_'));
    let plain = ["libc_", "new_"].iter().find_map(|it| plain.strip_prefix(it)).unwrap_or(plain);
    let plain = plain.split_once('.').map_or(plain, |(stem, _part)| stem);
    let plain = plain.strip_suffix("64").or(plain.strip_suffix("_cancel")).unwrap_or(plain);
    let known = WAITING.contains(&plain) || FAMILIES.iter().any(|family| plain.starts_with(family));
    known.then(|| plain.to_owned())
}

/// Whether a function is one of MPI, by any of its names: `PMPI_Recv`, and `mpi_recv_` of Fortran.
fn mpi_name(function: &str) -> Option<String> {
    let name = function.strip_prefix('P').unwrap_or(function);
    if name.starts_with("MPI_") || name.starts_with("MPIX_") {
        return Some(name.to_owned());
    }
    let fortran =
        function.trim_end_matches('_').strip_suffix("_f08ts").unwrap_or(function.trim_end_matches('_'));
    let fortran = fortran.strip_prefix("pmpi_").or_else(|| fortran.strip_prefix("mpi_"))?;
    let mut letters = fortran.chars();
    let first = letters.next().filter(char::is_ascii_lowercase)?;
    Some(format!("MPI_{}{}", first.to_ascii_uppercase(), letters.as_str()))
}

/// Whether a function only starts a program or a thread.
pub(crate) fn is_start(function: &str) -> bool {
    STARTING.contains(&function)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_wait_are_known_by_all_their_names() {
        let check = |function, expected: Option<&str>| {
            assert_eq!(waiting_name(function).as_deref(), expected, "{function}")
        };
        check("PMPI_Allreduce", Some("MPI_Allreduce"));
        check("MPIX_Barrier_init", Some("MPIX_Barrier_init"));
        check("mpi_allreduce_", Some("MPI_Allreduce"));
        check("pmpi_recv__", Some("MPI_Recv"));
        check("__poll", Some("poll"));
        check("__GI___poll", Some("poll"));
        check("__libc_read", Some("read"));
        check("___pthread_mutex_lock", Some("pthread_mutex_lock"));
        check("ncclGroupEnd", Some("ncclGroupEnd"));
        check("solve", None);
        check("P", None);
        check("mpi_", None);
        check("polling", None);
    }

    #[test]
    fn the_names_are_sorted() {
        assert!(WAITING.is_sorted());
    }
}
