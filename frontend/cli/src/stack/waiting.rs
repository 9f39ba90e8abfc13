//! Functions in which a program waits, functions that start a program, and sources outside the program.

/// Functions of systems and libraries that wait, beside those of MPI. Their callees are not shown: they do not help
/// the reader.
const WAITING: [&str; 91] = [
    "PySemaphore_Wait",
    "PyThread_acquire_lock_timed",
    "accept",
    "accept4",
    "clock_nanosleep",
    "connect",
    "creat",
    "cuCtxSynchronize",
    "cuEventSynchronize",
    "cuStreamSynchronize",
    "cudaDeviceSynchronize",
    "cudaEventSynchronize",
    "cudaStreamSynchronize",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "fcntl",
    "fdatasync",
    "fi_cq_sread",
    "fi_cq_sreadfrom",
    "flock",
    "fopen",
    "fsync",
    "futex_wait",
    "getaddrinfo",
    "hipDeviceSynchronize",
    "hipEventSynchronize",
    "hipStreamSynchronize",
    "io_uring_enter",
    "io_uring_submit_and_wait",
    "io_uring_wait_cqe",
    "io_uring_wait_cqes",
    "lockf",
    "mq_receive",
    "msgrcv",
    "nanosleep",
    "omp_set_lock",
    "omp_set_nest_lock",
    "open",
    "openat",
    "pause",
    "poll",
    "ppoll",
    "pread",
    "preadv",
    "preadv2",
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
    "pwrite",
    "pwritev",
    "pwritev2",
    "read",
    "readv",
    "recv",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "sched_yield",
    "select",
    "sem_clockwait",
    "sem_timedwait",
    "sem_wait",
    "semop",
    "semtimedop",
    "send",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "sigsuspend",
    "sigtimedwait",
    "sigwait",
    "sigwaitinfo",
    "sleep",
    "take_gil",
    "ucp_worker_wait",
    "usleep",
    "waitid",
    "waitpid",
    "write",
    "writev",
];

/// Libraries for messages whose functions wait, by the beginning of their names.
const FAMILIES: [&str; 8] =
    ["MPI_", "MPIX_", "shmem_", "nccl", "rccl", "gaspi_", "GOMP_barrier", "kmpc_barrier"];

/// Functions of the standard libraries of C++ and Rust that wait, as programs name them.
const STANDARD: [&str; 46] = [
    "std::atomic::wait",
    "std::atomic_flag::wait",
    "std::barrier::arrive_and_wait",
    "std::barrier::wait",
    "std::condition_variable::wait",
    "std::condition_variable::wait_for",
    "std::condition_variable::wait_until",
    "std::condition_variable_any::wait",
    "std::counting_semaphore::acquire",
    "std::counting_semaphore::try_acquire_for",
    "std::counting_semaphore::try_acquire_until",
    "std::future::get",
    "std::future::wait",
    "std::future::wait_for",
    "std::future::wait_until",
    "std::jthread::join",
    "std::latch::arrive_and_wait",
    "std::latch::wait",
    "std::mutex::lock",
    "std::recursive_mutex::lock",
    "std::recursive_timed_mutex::lock",
    "std::shared_future::get",
    "std::shared_future::wait",
    "std::shared_future::wait_for",
    "std::shared_future::wait_until",
    "std::shared_mutex::lock",
    "std::shared_mutex::lock_shared",
    "std::sync::Barrier::wait",
    "std::sync::Condvar::wait",
    "std::sync::Condvar::wait_timeout",
    "std::sync::Condvar::wait_timeout_while",
    "std::sync::Condvar::wait_while",
    "std::sync::Mutex::lock",
    "std::sync::RwLock::read",
    "std::sync::RwLock::write",
    "std::sync::mpsc::Receiver::recv",
    "std::sync::mpsc::Receiver::recv_timeout",
    "std::sync::mpsc::SyncSender::send",
    "std::this_thread::sleep_for",
    "std::this_thread::sleep_until",
    "std::thread::JoinHandle::join",
    "std::thread::join",
    "std::thread::park",
    "std::thread::park_timeout",
    "std::thread::sleep",
    "std::timed_mutex::lock",
];

/// Classes and functions of libraries of C++ behind those that programs name.
const INNER: [(&str, &str); 5] = [
    ("std::__1::", "std::"),
    ("std::__atomic_base::", "std::atomic::"),
    ("std::__atomic_semaphore::_M_acquire", "std::counting_semaphore::acquire"),
    ("std::__basic_future::", "std::future::"),
    ("std::__tree_barrier::", "std::barrier::"),
];

/// The functions of libstdc++ that wait for a value. The function of C++20 that calls one is in its template arguments.
const VALUE: &str = "std::__atomic_wait_address";

/// Runtimes of OpenMP, by the beginning of their files' names.
const TEAMS: [&str; 3] = ["libgomp", "libiomp5", "libomp"];

/// Libraries of systems and languages, by the beginning of their file names. Their sources never belong to the
/// program, at any path.
const SYSTEM: [&str; 12] = [
    "[vdso]",
    "ld-linux",
    "ld-musl",
    "libc.so",
    "libgcc_s",
    "libgfortran",
    "libgomp",
    "libm.so",
    "libpthread",
    "libpython",
    "libstdc++",
    "python3",
];

/// Sources of systems and of language runtimes, by a part of their path.
const FOREIGN: [&str; 11] = [
    "/usr/include/",
    "/usr/lib/gcc/",
    "/include/c++/",
    "/rustc/",
    "/lib/rustlib/src/",
    "/.cargo/registry/",
    "/usr/local/go/src/",
    "/usr/lib/go-",
    "/lib/python3.",
    "/site-packages/",
    "/dist-packages/",
];

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

/// The documented name of a function that waits, without the prefixes and suffixes of its internal names. None: it
/// does not wait.
pub(crate) fn waiting_name(function: &str) -> Option<String> {
    if let Some(name) = mpi_name(function) {
        return Some(name);
    }
    if let Some(name) = standard_name(function) {
        return Some(name);
    }
    // Go's wrappers, by the names of the system calls.
    if let Some(call) = function.strip_prefix("syscall.") {
        return WAITING.contains(&call.to_ascii_lowercase().as_str()).then(|| function.to_owned());
    }
    let plain = function.trim_start_matches('_');
    let plain = plain.strip_prefix("GI_").map_or(plain, |rest| rest.trim_start_matches('_'));
    let plain = ["libc_", "new_"].iter().find_map(|it| plain.strip_prefix(it)).unwrap_or(plain);
    let plain = plain.split_once('.').map_or(plain, |(stem, _part)| stem);
    let plain = plain.strip_suffix("64").or(plain.strip_suffix("_cancel")).unwrap_or(plain);
    let plain = match plain.strip_suffix("_slow").unwrap_or(plain) {
        // Programs call the same functions by other names.
        "wait4" => "waitpid",
        "preadv64v2" => "preadv2",
        "pwritev64v2" => "pwritev2",
        "sys_io_uring_enter" => "io_uring_enter",
        plain => plain,
    };
    let known = WAITING.contains(&plain) || FAMILIES.iter().any(|family| plain.starts_with(family));
    known.then(|| plain.to_owned())
}

/// A function of the standard library of C++ or Rust, without its template arguments and internal modules.
fn standard_name(function: &str) -> Option<String> {
    if !function.contains("std::") {
        return None;
    }
    if let Some((_, arguments)) = function.strip_prefix(VALUE).and_then(|rest| rest.split_once('<')) {
        let callers = arguments.split(", ").filter_map(|argument| argument.split_once('('));
        let named = callers.filter_map(|(caller, _)| standard_name(caller)).next();
        return Some(named.unwrap_or_else(|| "std::atomic::wait".to_owned()));
    }
    let mut plain = without_types(function);
    for (inner, outer) in INNER {
        if let Some(rest) = plain.strip_prefix(inner) {
            plain = format!("{outer}{rest}");
        }
    }
    let plain = plain.as_str();
    let is_known = |name: &str| STANDARD.binary_search(&name).is_ok();
    if is_known(plain) {
        return Some(plain.to_owned());
    }
    let parts: Vec<&str> = plain.split("::").collect();
    let (function, modules) = parts.split_last()?;
    let is_named = |part: &&&str| {
        matches!(**part, "std" | "sync" | "thread" | "mpsc")
            || part.starts_with(|letter: char| letter.is_ascii_uppercase())
    };
    let kept: Vec<&str> = modules.iter().filter(is_named).chain([function]).copied().collect();
    Some(kept.join("::")).filter(|name| is_known(name))
}

/// `std::future<int>::get` without `<int>`; also `<std::thread::JoinHandle<T>>::join` without its outer brackets.
fn without_types(function: &str) -> String {
    let inner = function.strip_prefix('<').filter(|rest| !rest.contains(" as "));
    let (skip, function) = match inner {
        Some(rest) => (true, rest),
        None => (false, function),
    };
    let mut depth = 0_i32;
    let mut plain = String::new();
    for letter in function.chars() {
        match letter {
            '<' => depth += 1,
            '>' if depth == 0 && skip => {}
            '>' => depth -= 1,
            letter if depth == 0 => plain.push(letter),
            _ => {}
        }
    }
    // Rust's demangler shows a method of a type with types as `Mutex::<T>::lock`.
    plain.replace("::::", "::")
}

/// Whether a file is an OpenMP runtime. A thread that is only in such a file waits for its team.
pub(crate) fn is_team(module: &str) -> bool {
    TEAMS.iter().any(|team| file_name(module).starts_with(team))
}

/// Whether a file is a library of the system or of a language.
pub(crate) fn is_system(module: &str) -> bool {
    SYSTEM.iter().any(|library| file_name(module).starts_with(library))
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether a source belongs to the system or to a language, not to the program.
pub(crate) fn is_foreign(source: &str) -> bool {
    source.starts_with('<') || FOREIGN.iter().any(|part| source.contains(part))
}

/// The name of an MPI function, from any of its aliases: `PMPI_Recv`, and `mpi_recv_` of Fortran.
fn mpi_name(function: &str) -> Option<String> {
    let name = function.strip_prefix('P').unwrap_or(function);
    let of_c = name.strip_prefix("MPI_").or_else(|| name.strip_prefix("MPIX_"));
    if of_c.is_some_and(|rest| rest.contains(|letter: char| letter.is_ascii_lowercase())) {
        return Some(name.to_owned());
    }
    let fortran = function.to_ascii_lowercase();
    let fortran = fortran.trim_end_matches('_');
    let fortran = fortran.strip_suffix("_f08ts").unwrap_or(fortran);
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
        check("MPI_BARRIER", Some("MPI_Barrier"));
        check("PMPI_RECV", Some("MPI_Recv"));
        check("__poll", Some("poll"));
        check("__new_sem_wait_slow64", Some("sem_wait"));
        check("__GI___wait4", Some("waitpid"));
        check("__GI___poll", Some("poll"));
        check("__libc_read", Some("read"));
        check("___pthread_mutex_lock", Some("pthread_mutex_lock"));
        check("ncclGroupEnd", Some("ncclGroupEnd"));
        check("__kmpc_barrier", Some("kmpc_barrier"));
        check("std::future<int>::get", Some("std::future::get"));
        check("std::condition_variable::wait", Some("std::condition_variable::wait"));
        check("std::__1::condition_variable::wait", Some("std::condition_variable::wait"));
        check("std::jthread::join", Some("std::jthread::join"));
        check("std::latch::arrive_and_wait", Some("std::latch::arrive_and_wait"));
        check(
            "std::barrier<std::__empty_completion>::arrive_and_wait",
            Some("std::barrier::arrive_and_wait"),
        );
        check("std::__tree_barrier<std::__empty_completion>::wait", Some("std::barrier::wait"));
        check("std::counting_semaphore<(long)4>::acquire", Some("std::counting_semaphore::acquire"));
        check("std::__atomic_semaphore::_M_acquire", Some("std::counting_semaphore::acquire"));
        check("std::__basic_future<int>::wait", Some("std::future::wait"));
        check("std::__atomic_base<int>::wait", Some("std::atomic::wait"));
        check("std::atomic<bool>::wait", Some("std::atomic::wait"));
        check("std::atomic_flag::wait", Some("std::atomic_flag::wait"));
        for (suffix, arguments, expected) in [
            ("", "int, std::latch::wait() const", "std::latch::wait"),
            ("_bare", "std::__atomic_semaphore::_M_acquire()", "std::counting_semaphore::acquire"),
            (
                "",
                "std::__barrier_phase_t, std::__tree_barrier<std::__empty_completion>::wait(std::__barrier_phase_t&&) const",
                "std::barrier::wait",
            ),
            ("_v", "int, heat::Queue::take() const", "std::atomic::wait"),
        ] {
            let function = format!("std::__atomic_wait_address{suffix}<{arguments}::{{lambda()#1}}>");
            assert_eq!(waiting_name(&function).as_deref(), Some(expected), "{function}");
        }
        check("std::barrier<std::__empty_completion>::arrive", None);
        check("std::atomic<int>::notify_all", None);
        check("cudaStreamSynchronize", Some("cudaStreamSynchronize"));
        check("cudaStreamQuery", None);
        check("__libc_pwrite64", Some("pwrite"));
        check("preadv64v2", Some("preadv2"));
        check("__GI_epoll_pwait2", Some("epoll_pwait2"));
        check("__sys_io_uring_enter", Some("io_uring_enter"));
        check("std::sync::poison::mutex::Mutex<T>::lock", Some("std::sync::Mutex::lock"));
        check("<std::sync::poison::mutex::Mutex<i32>>::lock", Some("std::sync::Mutex::lock"));
        check("std::sync::mpsc::Receiver<T>::recv", Some("std::sync::mpsc::Receiver::recv"));
        check("std::thread::functions::sleep", Some("std::thread::sleep"));
        check("<std::fs::File as std::io::Read>::read", None);
        check("std::vector<int>::push_back", None);
        check("syscall.Read", Some("syscall.Read"));
        check("syscall.Getpid", None);
        check("solve", None);
        check("P", None);
        check("mpi_", None);
        check("polling", None);
    }

    #[test]
    fn the_names_are_sorted() {
        assert!(WAITING.is_sorted());
        assert!(STANDARD.is_sorted());
    }

    #[test]
    fn sources_of_systems_are_told_from_a_programs() {
        for foreign in [
            "/usr/include/c++/12/bits/std_mutex.h",
            "/rustc/0123/library/std/src/sync/poison/mutex.rs",
            "/usr/lib/python3.11/threading.py",
            "<frozen runpy>",
        ] {
            assert!(is_foreign(foreign), "{foreign}");
        }
        for own in ["/home/me/heat.c", "job.py", "/opt/app/include/mesh.h"] {
            assert!(!is_foreign(own), "{own}");
        }
        assert!(is_system("/lib/x86_64-linux-gnu/libc.so.6") && !is_system("/opt/app/libcompute.so"));
        assert!(is_team("/usr/lib/libgomp.so.1.0.0") && !is_team("/usr/lib/libc.so.6"));
    }
}
