/* The symbols by which a debugger holds and finds ranks: MPIR Process Acquisition Interface 1.1, chapter 9.
   They are C because debuggers expect C's types in the debug information. docs/src/guide/mpir.md says which are here, and why. */

typedef struct {
    char *host_name;
    char *executable_name;
    int pid;
} MPIR_PROCDESC;

enum { MPIR_NULL = 0, MPIR_DEBUG_SPAWNED = 1, MPIR_DEBUG_ABORTING = 2 };

/* A debugger sets it before the ranks are started. */
volatile int MPIR_being_debugged = 0;

volatile int MPIR_debug_state = MPIR_NULL;
char *MPIR_debug_abort_string = 0;

MPIR_PROCDESC *MPIR_proctable = 0;
int MPIR_proctable_size = 0;

/* Their presence is the message. */
int MPIR_i_am_starter = 1;
int MPIR_partial_attach_ok = 1;
int MPIR_acquired_pre_main = 1;
int MPIR_force_to_main = 1;

/* The app's id, for the command that starts a debugger's servers: 'gantry daemon ID -- SERVER'. */
char *totalview_jobid = 0;

/* Releases the ranks; implemented in Rust. */
void gantry_mpir_release(void);

/* A debugger stops here. The body releases the ranks. If a tool skips the body, the ranks stay held. */
void MPIR_Breakpoint(void) {
    if (MPIR_debug_state == MPIR_DEBUG_SPAWNED)
        gantry_mpir_release();
}

int gantry_mpir_is_debugged(void) { return MPIR_being_debugged; }

void gantry_mpir_spawned(MPIR_PROCDESC *table, int size, char *app) {
    MPIR_proctable = table;
    MPIR_proctable_size = size;
    totalview_jobid = app;
    MPIR_debug_state = MPIR_DEBUG_SPAWNED;
}

void gantry_mpir_aborting(char *reason) {
    MPIR_debug_abort_string = reason;
    MPIR_debug_state = MPIR_DEBUG_ABORTING;
}
