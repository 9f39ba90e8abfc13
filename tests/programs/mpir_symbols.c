/*
 * mpir_symbols: a launcher's symbols for debuggers (the MPIR interface). They are in a separate library, as in one
 * MPI, or included in mpir_launcher. The breakpoint's body prints "body". With STOPS_RANKS the launcher reports
 * that ranks are stopped before their first instruction.
 */
#include <unistd.h>

struct mpir_process {
    char *host_name;
    char *executable_name;
    int pid;
};

int MPIR_being_debugged = 0;
int MPIR_debug_state = 0;
int MPIR_i_am_starter = 0;
int MPIR_proctable_size = 0;
struct mpir_process *MPIR_proctable = 0;
char *MPIR_debug_abort_string = 0;
#ifdef STOPS_RANKS
int MPIR_acquired_pre_main = 0;
#endif
char *totalview_jobid = "77";
char *totalview_stepid = "3";

#ifdef ADRIFT
extern unsigned long mpir_stack;

__attribute__((naked, noinline)) void MPIR_Breakpoint(void)
{
    __asm__("mov mpir_stack(%rip), %rsp\n\tret");
}
#else
__attribute__((noinline)) void MPIR_Breakpoint(void)
{
    if (write(1, "body\n", 5) != 5)
        _exit(9);
}
#endif
