/*
 * mpir_narrow: a launcher of two ranks without a C library. It can be built for 32 bits (-m32 -static -nostdlib)
 * even if only the compiler supports that. x86 only. Exit codes: 7 if the breakpoint's body has run, 3 if it has
 * not, 4 without a debugger.
 */
struct mpir_process {
    const char *host_name;
    const char *executable_name;
    int pid;
};

int MPIR_being_debugged = 0, MPIR_debug_state = 0, MPIR_proctable_size = 0;
const struct mpir_process *MPIR_proctable = 0;
static const struct mpir_process ranks[] = {{"n0", "./app", 1001}, {"n1", "./app", 1002}};
static volatile int code = 3;

__attribute__((noinline)) void MPIR_Breakpoint(void)
{
    code = 7;
}

static void end(int with)
{
#ifdef __i386__
    __asm__ volatile("int $0x80" : : "a"(1), "b"(with));
#else
    __asm__ volatile("syscall" : : "a"(60), "D"(with) : "rcx", "r11");
#endif
}

__attribute__((force_align_arg_pointer)) void _start(void)
{
    MPIR_proctable = ranks;
    MPIR_proctable_size = 2;
    MPIR_debug_state = 1;
    MPIR_Breakpoint();
    end(MPIR_being_debugged ? code : 4);
    for (;;)
        ;
}
