/* SPDX-License-Identifier: MIT */
/*
 * A session: one process that is recorded into one trace directory, from its first instruction on (spawn) or from now
 * on (attach), up to its end or until contrail detaches from it (detach).
 *
 *   create; spawn, install | attach;  resume;  wait | pause, resume ... | detach;  close
 *
 * Its states, and what leads from which to which:
 *
 *   initialized --spawn--> spawning --stopped--> suspended --install--> attaching --hooked--> attached
 *   initialized --attach-> attaching                                    attached <--resume/pause--> running
 *   attached, running --detach--> detaching --undone--> initialized
 *   any of a process --ended--> initialized
 *   spawning, attaching, detaching --fail--> failed --reset--> initialized
 *
 * suspended: the process is stopped before its first instruction, nothing is hooked. attached: it is stopped, and
 * hooked.
 *
 * A call that the state does not allow is CT_EINVAL, and changes nothing.
 *
 * Threads: each session has threads of its own, which do all the work (ptrace belongs to one thread). Every function
 * may be called from any thread; calls for one session take their turns, but for ct_session_get_status and
 * ct_session_children, which do not wait for the others, and ct_session_close, which is the last. No signal handler is
 * installed, no signal disposition changed. Units: times in nanoseconds where a name ends so, else milliseconds (_ms).
 */
#ifndef CONTRAIL_SESSION_H
#define CONTRAIL_SESSION_H

#include <contrail/cost.h>
#include <contrail/error.h>
#include <contrail/rule.h>
#include <contrail/select.h>
#include <contrail/trace.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CT_OUTPUT_MIB_DEFAULT     64
#define CT_CHILD_RING_MIB_DEFAULT 16
#define CT_DETAIL_MIB_DEFAULT     64
#define CT_DETAIL_STACK_DEFAULT   128 /* bytes */
#define CT_RING_MIB_DEFAULT       80  /* 1,280 segments: 1,024 threads and some to spare */
#define CT_LAST_BYTES_DEFAULT     (256u << 20)
#define CT_WINDOW_NS_DEFAULT      1000000000u
#define CT_WINDOWS_DEFAULT        60 /* a minute */
#define CT_WINDOWS_BYTES_DEFAULT  (4ull << 30)
#define CT_ITRACE_CALLS_DEFAULT   8 /* of a function, that are recorded as instructions */
#define CT_ITRACE_CALLS_MAX       1000000
#define CT_ITRACE_FUNCTIONS_MAX   8 /* patterns at a time, besides those of rules */

struct ct_exclude;   /* exclude.h */
struct ct_selection; /* select.h */
struct ct_session;   /* opaque */

enum ct_session_state {
  CT_STATE_UNINITIALIZED = 0,
  CT_STATE_INITIALIZED,
  CT_STATE_SPAWNING,
  CT_STATE_SUSPENDED,
  CT_STATE_ATTACHING,
  CT_STATE_ATTACHED,
  CT_STATE_RUNNING,
  CT_STATE_DETACHING,
  CT_STATE_FAILED,
  CT_STATE_COUNT
};

/* "running"; never NULL. */
const char *ct_state_name(enum ct_session_state state);

/* What a call of a session failed at. Each failure comes with a line that says what to do about it. */
enum ct_error_class {
  CT_ERROR_NONE = 0,
  CT_ERROR_INIT,       /* the session itself: memory, threads, a wrong option or state */
  CT_ERROR_SPAWN,      /* the program cannot be started */
  CT_ERROR_ATTACH,     /* the process cannot be attached to, or detached from */
  CT_ERROR_HOOK,       /* hooks cannot be put in, changed or taken out */
  CT_ERROR_PERMISSION, /* the system does not allow it */
  CT_ERROR_TIMEOUT,    /* it took too long; the process runs on, untouched */
};
/* "timeout"; never NULL. */
const char *ct_error_class_name(enum ct_error_class error);

/*
 * Calls that are recorded as instructions, too: the next `calls` ones of the functions that match, on whatever thread,
 * each from its begin to its return. condition (NULL: none): "arg1 > 5", "rdi == 0x10", of arg1 to arg6, rax, rbx, r10,
 * r11, rsp. They go into files steps.TID of the trace (steps.h); which call is where is in its itrace.tsv.
 */
struct ct_session_itrace {
  const char *function; /* a pattern, as to select */
  const char *condition;
  uint32_t calls; /* 0: CT_ITRACE_CALLS_DEFAULT */
};

/* All zero but the first two: the defaults. */
struct ct_session_options {
  size_t struct_size;             /* to be set to sizeof(struct ct_session_options) */
  const char *directory;          /* of the trace; must not exist or be empty */
  uint32_t ring_mib;              /* shared memory for events, 1 to 256; 0: CT_RING_MIB_DEFAULT */
  struct ct_exclude *exclude;     /* functions not to be hooked; NULL: none. It learns which patterns match. Stays the
                                     caller's, who must leave it alone until the session is closed */
  struct ct_selection *selection; /* functions to be hooked; NULL: all. As exclude */
  bool no_cache;                  /* plan all files anew, and keep nothing */
  uint32_t max_depth;             /* calls deeper than that are left out of the trace; 0: none */
  bool no_output;                 /* what the process writes to its standard output and error is not recorded */
  uint32_t output_mib;            /* as much of it is recorded; 0: CT_OUTPUT_MIB_DEFAULT */
  bool no_sampling;               /* of light hooks */
  uint32_t sample;                /* fixed interval of sampling, a power of two up to 256; 0: adapted */
  bool lossless;                  /* threads wait (bounded) for the drain instead of overwriting */
  bool int3;               /* hook by int3 what no jump fits; the program must not handle, block or ignore SIGTRAP;
                              spawned programs only */
  uint32_t deadline_ms;    /* for the installation of hooks; 0: by the number of functions */
  bool follow;             /* children are recorded too, and theirs: each in a directory process-PID of its own in
                              `directory`. Those that live on when the session is closed are detached */
  bool wait_for_all;       /* with follow: ct_session_wait waits for all of them */
  uint32_t child_ring_mib; /* as ring_mib, for each child, and not more than that; 0: CT_CHILD_RING_MIB_DEFAULT */
  bool sources; /* at the end, write the source files of all functions into the trace, not only those of modules
                   that a pattern was about */
  bool replace; /* a trace in `directory` is moved to `directory`.old first, in place of the one that is there */
  bool give;    /* the trace is given to the user and group below when it is closed */
  uid_t owner;
  gid_t owner_group;
  const void *signal_mask; /* sigset_t, of the program that is spawned; NULL: as the thread has that calls for it */
  /* Detail of calls that the selection wants it of. It goes through memory of its own, and what is not written is
   * written over. */
  uint32_t detail_mib;   /* of that, 1 to 256; 0: CT_DETAIL_MIB_DEFAULT */
  uint32_t detail_stack; /* bytes of the stack, a multiple of 8 up to 512; 0: CT_DETAIL_STACK_DEFAULT */
  bool no_detail_stack;  /* none of it */
  bool detail_always;    /* detail is written although there are rules, not around marks only */
  bool detail_vectors;   /* xmm0 to xmm7 at calls, too (of each the low half) */
  uint64_t last_bytes;   /* keep the last stretch only, in so many bytes of memory, 1 MiB to 1 TiB; each child in a
                            quarter of that. 0: everything, in files. Not with lossless */
  uint64_t last_ns;      /* with last_bytes: and what is older than that goes; 0: nothing for its age */
  /* Rules (rule.h), rule_count of them; their texts are copied. They are held against the first process, not against
   * its children. Windows begin pre_ns before a mark, and end post_ns after it. */
  const char *const *rules;
  size_t rule_count;
  uint64_t pre_ns, post_ns; /* 0: CT_WINDOW_NS_DEFAULT; 1: no time */
  uint32_t max_windows;     /* that may be opened in a minute; 0: CT_WINDOWS_DEFAULT */
  double budget;      /* what hooks and their events may cost, as a share of the processor time that the process takes
                         without them, 0.001 to 10: functions that are called most are seen less. 0: no limit. Of each
                         process of a tree by itself */
  uint64_t max_bytes; /* of the trace's files, 1 MiB to 1 PiB: what is oldest goes when they would be larger; each child
                         has a quarter of that. 0: no limit. Not with last_bytes */
  bool debuginfod;    /* debug files that are missing are fetched from the servers of DEBUGINFOD_URLS */
  /* In place of pre_ns and post_ns, for marks of threads: so many events of the thread, 60 s at most. 0: by time. */
  uint64_t pre_events, post_events;
  uint64_t max_windows_bytes; /* that the dumps of rules and detail around marks may take on disk, together; 0:
                                 CT_WINDOWS_BYTES_DEFAULT. Later marks open no window */
  /* Of a program that is spawned; NULL and false: as this process has it. They must live until it is. */
  char *const *environment;      /* "NAME=value", ended by NULL */
  const char *working_directory; /* the program is looked up from this process's own */
  const int *streams;            /* three descriptors, which become its standard input, output and error */
  bool own_group;                /* a session of processes, and so a process group, of its own, without a terminal */
  /* Calls that are recorded as instructions, from the begin on; see also ct_session_itrace_open. Of the first process.
   */
  const struct ct_session_itrace *itrace;
  size_t itrace_count;    /* up to CT_ITRACE_FUNCTIONS_MAX */
  bool itrace_plain;      /* functions are not hooked in there: their calls are in the instructions only */
  bool itrace_no_vectors; /* without vector and mask registers */
  /* Of the file that a program that is spawned has to be, as by stat, whatever its path leads to by then; of a script
   * the interpreter is meant. program_inode 0: any. */
  uint64_t program_device, program_inode;
};

struct ct_session_status {
  size_t struct_size; /* to be set to sizeof(struct ct_session_status) */
  enum ct_session_state state;
  pid_t pid;                 /* of the process, 0: none yet */
  bool attached;             /* it ran before us */
  bool ended;                /* the process has ended ... */
  bool has_status;           /* ... and wait_status is known: of a process that we have not started it may not be */
  int wait_status;           /* as from waitpid */
  bool detached;             /* contrail has detached from it */
  uint64_t events;           /* recorded so far */
  uint64_t dropped;          /* lost so far, for all reasons */
  uint32_t sample_interval;  /* of light hooks: of so many calls one is recorded ... */
  uint64_t sample_changes;   /* ... and how often that has changed */
  size_t functions;          /* of all modules that are loaded */
  size_t hooked;             /* of them */
  size_t threads;            /* when it was last stopped */
  uint64_t pause_ns;         /* the longest stop of the running process, for attaching, changing or detaching */
  uint64_t attach_ns;        /* how long it was stopped for attaching; 0: not attached to */
  uint64_t detach_ns;        /* the same for detaching */
  size_t children;           /* processes that were followed, so far ... */
  size_t children_live;      /* ... and how many of them have not ended */
  uint64_t child_events;     /* recorded in those that have ended ... */
  uint64_t child_dropped;    /* ... and lost */
  bool kept;                 /* detached, but a signal handler was in a place from where it will go on in our code */
  char note[256];            /* something the user should know although all is well; "" if nothing */
  enum ct_error_class error; /* of the last call that failed ... */
  char error_text[512];      /* ... and its line */
  size_t children_lost;      /* processes that should have been followed, and are not recorded */
  bool children_missed; /* the program had children, which without follow were not recorded: those that it has waited
                         * for, and of a process that was attached to those that there are at the end */
  uint64_t dropped_by[CT_DROP_COUNT]; /* by enum ct_drop; `dropped` is their sum */
  uint64_t child_dropped_by[CT_DROP_COUNT];
  uint64_t kept_limit_bytes; /* of a session that keeps the last stretch only (last_bytes, max_bytes); 0: all ... */
  uint64_t kept_bytes;       /* ... how much of that is in use ... */
  uint64_t kept_events;      /* ... and how many events these are, of all `events` ... */
  uint64_t kept_ns;          /* ... and how long a time they are */
  uint64_t marks, windows;   /* marks, and the windows that they made */
  uint64_t windows_refused;  /* marks that would have opened a window over the limit ... */
  struct ct_budget_status budget;
  struct ct_cost cost;                         /* what it costs the process so far; of the first one only */
  uint64_t windows_refused_size;               /* ... of them those for the size of what windows have on disk ... */
  uint64_t windows_bytes, windows_limit_bytes; /* ... which is that, of so many; the limit is 0 without rules' list */
  uint64_t detail_records;                     /* of calls and returns that were recorded with detail ... */
  uint64_t detail_lost;                        /* ... and those of which that is lost: there was no room for it */
};

/* Makes the session, in state initialized. The directory is made by spawn or attach. *out goes to ct_session_close. */
int ct_session_create(const struct ct_session_options *options, struct ct_session **out, struct ct_diag *diag);

/*
 * Starts argv[0] (looked up in PATH) with the signal mask of the options, or the calling thread's, and stops it before
 * its first instruction: suspended. *exec_errno: why it cannot be executed, as errno; 0 when that is not the reason of
 * a failure.
 */
int ct_session_spawn(struct ct_session *session, char *const argv[], int *exec_errno, struct ct_diag *diag);
/*
 * Puts the hooks into a suspended process: attached. When that fails the process is ended, since nobody has seen it
 * run; on CT_ETIMEOUT it runs on, untouched.
 */
int ct_session_install(struct ct_session *session, struct ct_diag *diag);
/* Stops a running process and puts the hooks in: attached. When it fails the process runs on, untouched. */
int ct_session_attach(struct ct_session *session, pid_t pid, struct ct_diag *diag);
/* attached: the process goes on. */
int ct_session_resume(struct ct_session *session, struct ct_diag *diag);
/* running: all threads of the process are stopped. */
int ct_session_pause(struct ct_session *session, struct ct_diag *diag);
/* Takes all hooks out and detaches from the process. The trace is complete then. */
int ct_session_detach(struct ct_session *session, struct ct_diag *diag);
/*
 * From now on a detach or close, one that is under way too, waits for the process for a moment only: somebody wants it
 * to end. Where a thread has not left the hooks by then the rest of them stays (`kept`). A signal handler may call it.
 */
void ct_session_expedite(struct ct_session *session);
/*
 * An install or attach that is under way, in another thread, or comes yet gives up soon (CT_ECANCELED): between two
 * files that it plans or hooks. Once the hooks are in it does nothing.
 */
void ct_session_cancel(struct ct_session *session);
/* Out of failed. */
int ct_session_reset(struct ct_session *session, struct ct_diag *diag);

/*
 * What is traced may be changed while the session is attached or running: the process is stopped for a moment. The
 * session's selection and exclusion (those of the options, or its own) are changed. While there has been no pattern
 * everything is traced; the first one that is added narrows that down. 0; CT_EINVAL: a wrong pattern, or the session is
 * in another state; CT_ENOENT: there is no such pattern to be removed.
 *
 * With `follow` the children's processes are changed too, one after the other, each stopped for itself; those that come
 * later begin with it. A child that could not be changed keeps what it has, with a note in the status.
 */
struct ct_session_change {
  size_t struct_size; /* to be set to sizeof(struct ct_session_change) */
  size_t hooked;      /* of all functions of the first process, after the change; 0 when it has ended */
  size_t before;      /* and before it */
  size_t busy;        /* could not be hooked because a thread stood in their first bytes all the time */
  uint64_t pause_ns;  /* how long a process was stopped, at most */
  size_t children;    /* further processes that were changed */
  bool unmatched;     /* the pattern that was added matches no function of the first process ... */
  char likely[256];   /* ... and "perhaps a, b", or "" */
};
/* change may be NULL. */
int ct_session_trace_add(struct ct_session *session, const char *pattern, enum ct_select_mode mode,
                         struct ct_session_change *change, struct ct_diag *diag);
int ct_session_trace_remove(struct ct_session *session, const char *pattern, struct ct_session_change *change,
                            struct ct_diag *diag);
int ct_session_exclude_add(struct ct_session *session, const char *pattern, struct ct_session_change *change,
                           struct ct_diag *diag);
int ct_session_exclude_remove(struct ct_session *session, const char *pattern, struct ct_session_change *change,
                              struct ct_diag *diag);
/* The patterns, as ct_selection_json; those of the exclusion, as a JSON array of strings. By malloc(); NULL: out of
 * memory. */
char *ct_session_trace_list(struct ct_session *session);
char *ct_session_exclude_list(struct ct_session *session);

/*
 * Of a session that keeps the last stretch only (last_bytes): writes what it holds now as a trace, while the recording
 * goes on; all of it is on the disk when this returns. directory: new or empty; NULL: the first of DIR.dump-1,
 * DIR.dump-2 ... that there is not, beside the trace's own. Children that are followed are not in it. dump may be NULL.
 * CT_EINVAL: the session keeps all.
 */
struct ct_session_dump {
  size_t struct_size;   /* to be set to sizeof(struct ct_session_dump) */
  char directory[4096]; /* where it is */
  uint64_t events;      /* in it */
  uint64_t not_kept;    /* recorded before these */
  uint64_t bytes;       /* of the threads' files */
  uint64_t ns;          /* how long a time it holds */
};
int ct_session_dump(struct ct_session *session, const char *directory, struct ct_session_dump *dump,
                    struct ct_diag *diag);

/* A mark by hand, now. name: what for; NULL: nothing. CT_EINVAL: nothing is recorded; CT_ERANGE: over the limit. */
int ct_session_mark(struct ct_session *session, const char *name, struct ct_diag *diag);
/*
 * Rules of a session that is recorded. The functions that a new one is about are hooked in full, as by a pattern that
 * is added; change, which may be NULL, has how many it matches in `hooked`, and whether that is none. To be removed a
 * rule is given by its text.
 */
int ct_session_trigger_add(struct ct_session *session, const char *rule, struct ct_session_change *change,
                           struct ct_diag *diag);
int ct_session_trigger_remove(struct ct_session *session, const char *rule, struct ct_diag *diag);
/* The rules, as a JSON array of objects: rule, functions, marks, refused. By malloc(); NULL: out of memory. */
char *ct_session_trigger_list(struct ct_session *session);

/*
 * Calls that are recorded as instructions, of a session that is recorded: opens one more probe (CT_ERANGE: there are
 * CT_ITRACE_FUNCTIONS_MAX), of that number; no more of its calls are begun when it is closed, and one that is being
 * recorded is cut. change (may be NULL) as of ct_session_trigger_add.
 */
int ct_session_itrace_open(struct ct_session *session, const struct ct_session_itrace *wanted, uint32_t *number,
                           struct ct_session_change *change, struct ct_diag *diag);
int ct_session_itrace_close(struct ct_session *session, uint32_t number, struct ct_diag *diag);
/*
 * Waits until all calls of the probe have been recorded, or it has been closed, or nothing more is recorded. For at
 * most timeout_ms, negative: any time. 0, CT_ETIMEOUT, CT_ENOENT: there is no such probe.
 */
int ct_session_itrace_wait(struct ct_session *session, uint32_t number, int timeout_ms);

/*
 * The ends of these calls as they come, to those who do not want to ask again and again: a feed has a descriptor that
 * can be read while there is something to take. Feeds are independent of each other, and of who waits; one that nobody
 * empties keeps CT_ITRACE_FEED_CALLS calls, and counts the later ones.
 */
struct ct_itrace_feed; /* opaque */
#define CT_ITRACE_EVERY      UINT32_MAX
#define CT_ITRACE_FEED_CALLS 1024

enum ct_itrace_event_kind {
  CT_ITRACE_CALL_ENDED, /* a call has ended */
  CT_ITRACE_PROBE_OVER, /* no more calls of this probe will come */
};

struct ct_itrace_event {
  size_t struct_size;
  enum ct_itrace_event_kind kind;
  uint32_t number; /* of the probe */
  uint64_t missed; /* calls of the feed before this event that there was no room for */
  /* CT_ITRACE_PROBE_OVER: "done", "closed", "ended" (nothing more is recorded). CT_ITRACE_CALL_ENDED: "returned",
   * "cut", "ended" (its thread has). It lives for ever. */
  const char *outcome;
  /* CT_ITRACE_CALL_ENDED: which call of the probe, from 1 on; its steps are in the file of that thread */
  uint64_t call, first_step, steps;
  int tid;
  uint32_t fn;        /* the function's id in the trace */
  char function[256]; /* its name, cut to that; "": it has none */
};

/*
 * Of that probe: first the calls that have ended already, as far as they are among the last 256 of the session; its
 * last event is CT_ITRACE_PROBE_OVER. CT_ITRACE_EVERY: of all probes, also later ones, from now on. CT_ENOENT: there is
 * no such probe.
 */
int ct_session_itrace_subscribe(struct ct_session *session, uint32_t number, struct ct_itrace_feed **out,
                                struct ct_diag *diag);
/* To wait on by poll(): it can be read while ct_itrace_feed_next has something to give, CT_ESRCH too. It is the feed's.
 */
int ct_itrace_feed_fd(const struct ct_itrace_feed *feed);
/* The next event. Waits for nothing: CT_ENOENT: there is none yet; CT_ESRCH: none will come any more. Any thread's. */
int ct_itrace_feed_next(struct ct_itrace_feed *feed, struct ct_itrace_event *event);
/* Also after the session was closed. Accepts NULL. */
void ct_itrace_feed_close(struct ct_itrace_feed *feed);

/*
 * The probes, those of rules too, as a JSON array of objects: number, function, condition, state ("open", "done",
 * "closed"), functions, calls, begun, recorded, cut, failed, steps. By malloc(); NULL: out of memory.
 */
char *ct_session_itrace_list(struct ct_session *session);

/*
 * Of the first process, as a JSON object: lanes, thread_metrics, analysis (docs/format.md). It waits for a moment for
 * those of now; else they are those of the last call, or none. By malloc(); NULL: out of memory.
 */
char *ct_session_metrics(struct ct_session *session);

/*
 * Waits until the process has ended, or was detached (one that the session has started: until it has ended). For at
 * most timeout_ms, negative: any time. 0, CT_ETIMEOUT; CT_ESRCH: somebody else has waited for it.
 */
int ct_session_wait(struct ct_session *session, int timeout_ms);
/* The directory of its trace, as it was given; lives as long as the session. */
const char *ct_session_directory(const struct ct_session *session);
/* 0, or CT_EINVAL when struct_size is not set. */
int ct_session_get_status(struct ct_session *session, struct ct_session_status *status);
/* A further process that the session records (follow). */
struct ct_session_child {
  size_t struct_size; /* set to sizeof(struct ct_session_child) by the library */
  pid_t pid, parent;  /* parent: the process that made it */
  enum ct_session_state state;
  uint64_t events, dropped; /* recorded and lost so far */
  size_t functions, hooked; /* of all modules that it has loaded */
};
typedef void ct_session_child_visit(void *context, const struct ct_session_child *child);
/*
 * Visits those of the session's further processes that have not ended, by their pids. Like ct_session_get_status it
 * waits for nothing. 0, or CT_ENOMEM: none is visited.
 */
int ct_session_children(struct ct_session *session, ct_session_child_visit *visit, void *context);
/*
 * The last call: a process that is still stopped or recorded is detached, the trace is completed. Returns the first
 * failure of the recording (the disk was full, say) with the line in diag, or 0. *status (may be NULL): the last one.
 */
int ct_session_close(struct ct_session *session, struct ct_session_status *status, struct ct_diag *diag);

/* Takes out of a process what a session left there that died. CT_ENOENT: there is nothing; CT_EEXIST: it is in use. */
struct ct_clean_report {
  size_t struct_size;
  size_t patches, frames, threads;
  uint64_t pause_ns;
  bool kept;
  uint64_t itrace_bytes; /* address space of a recorder of instructions that was taken out */
  bool itrace_kept;      /* a thread is still in its code, or is to come back to it: nothing of it is taken out */
  bool is_filtered;      /* kept, but for a seccomp filter that we may not suspend: the hooks are out all the same */
};
int ct_clean(pid_t pid, struct ct_clean_report *report, struct ct_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
