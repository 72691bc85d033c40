/* SPDX-License-Identifier: MIT */
/* What the files of the tracer share; see tracer.c. */
#ifndef CT_ITRACE_TRACER_H
#define CT_ITRACE_TRACER_H

#include <contrail/itrace.h>
#include "itrace/calls.h"
#include "itrace/recorder.h"
#include "itrace/shared_units.h"
#include "itrace/space.h"
#include "itrace/watch.h"
#include <pthread.h>
#include <stdatomic.h>
#include <ucontext.h>

enum ct_tracer_state {
  CT_TRACER_TRANSLATED,
  CT_TRACER_STEPS,  /* one instruction where it is, or into a signal handler */
  CT_TRACER_NATIVE, /* runs where it is: it is being ended by a signal, or its program cannot be translated */
  CT_TRACER_DONE,
};

enum { CT_CODE_PAGES = 1024, CT_CHILDREN = 64 };

/* The program's code, as far as it has been read. */
struct ct_code_pages {
  const struct ct_process *process;
  const struct ct_itrace_patch *hidden; /* what is read as if it were not patched, sorted by address */
  size_t hidden_count;
  struct ct_mappings mappings;
  bool is_old;     /* mappings have been made or taken away since */
  bool is_renewed; /* code was found where none was known to be: for ct_tracer_note_mappings */
  struct {
    uint64_t page; /* its number plus 1; 0: none */
    uint8_t bytes[4096];
  } pages[CT_CODE_PAGES];
};

size_t ct_code_pages_read(void *pages, uint64_t pc, uint8_t *bytes, size_t size, bool *may_change);
/* What was read may have changed. */
void ct_code_pages_forget(struct ct_code_pages *pages);
/* As it is now, code or not. */
bool ct_code_pages_data(void *pages, uint64_t address, void *bytes, size_t size);

/* A recording: of one thread, or of all of a process; see itrace.c. */
struct ct_itrace {
  struct ct_itrace_options options;
  pid_t pid;
  int exec_errno;
  pthread_mutex_t lock;                 /* of what follows, and of a tracer's spaces while others look at them */
  struct ct_tracer *first;              /* the latest first */
  uint32_t running;                     /* tracers that are not done */
  uint32_t made;                        /* tracers there have been */
  struct ct_shared_units *shared_units; /* NULL: there is one thread only, or no memory for them */
  uint32_t crowd;                       /* spaces that the threads need that were there when this began */
  bool is_ending, has_left_spaces;
  struct ct_itrace_space *gone; /* what threads that have ended have left mapped in the process */
  struct ct_itrace_summary summary;
  int code_of_end;                         /* of the first thread that could not be traced to its end */
  struct ct_diag diag, unmade;             /* why; why a thread was not traced at all */
  struct ct_turn *first_turn, **last_turn; /* of those who wait to borrow their thread (borrow.c) */
  bool is_borrowed;
  pthread_t finder; /* others.c */
  bool has_finder;
  _Atomic uint32_t changes;   /* how often what is mapped has changed */
  _Atomic uint64_t stretches; /* of all threads */
  int done_fd;
  int directory_fd; /* held while something is recorded there; -1: there is none */
  /* Of calls (calls.h), one by one: */
  bool is_calls;
  void (*ended)(void *context);
  void *context;
  uint32_t image; /* programs that the process has become by exec */
  struct ct_kept_recorder *kept;
  struct ct_itrace_done *done_first, **done_last;
};

/* Of a thread whose calls are recorded, in between. */
struct ct_kept_recorder {
  struct ct_kept_recorder *next;
  pid_t tid;
  struct ct_recorder *recorder;
};

/* How the program's state was found out of a thread's. */
struct ct_found_state {
  struct ct_recovery recovery;
  uint64_t place;   /* where the record that is under way begins, or the next one */
  bool is_spoilt;   /* there is no way to tell */
  bool waits;       /* for what a system call has written to be read */
  bool is_sequence; /* before it something is not recorded */
  uint8_t apart;    /* bytes of an instruction before it, which is not; 0: there is none */
  bool has_left;    /* the thread had left by itself: all but the context is recorded */
};

/*
 * A signal with a handler has interrupted a system call. Whether that call has failed, or is made again when the
 * handler returns, is seen in the handler's frame; what was being executed, and the signal, are recorded then.
 */
struct ct_held_signal {
  bool is_held;
  siginfo_t info;
  struct user_regs_struct regs;
  struct ct_found_state found; /* if it was translated code */
  bool is_translated;
};

/* Of a recording that is read while it is made (live.c). */
struct ct_itrace_live {
  uint64_t handed_ns;  /* when records went to the file the last time */
  uint64_t allowed_ns; /* when it was counted how many ... */
  uint32_t allowed;    /* ... system calls may hand over, one after the other */
  bool passes_call;    /* the system call that it is at has */
};

/* Of one thread. */
struct ct_tracer {
  struct ct_itrace *all;
  struct ct_tracer *next;
  struct ct_process process;
  pid_t tid;                     /* for the tracer's thread alone */
  _Atomic pid_t waited_tid;      /* the same for the waiter */
  uint32_t number;               /* from 0 on */
  struct ct_tracer *maker;       /* that begins it, as long as it does */
  bool is_raised;                /* its tracer's thread is of the real-time class, as long as its thread is borrowed */
  bool is_found;                 /* its thread was there, and others.c has found it */
  bool is_taking, is_superseded; /* under the lock: it takes hold of its thread; another tracer has it, or will */
  uint32_t image;                /* programs that it has become by exec */
  struct ct_itrace_space spaces[2]; /* the second one: with records, if only some stretches have any */
  struct ct_itrace_space *space;    /* that it runs in */
  struct ct_watch *watch;           /* NULL: all is recorded, or nothing */
  struct ct_wanted_call wanted;     /* that is recorded, if all->is_calls */
  struct ct_itrace_patch own_patch; /* of wanted.own */
  bool is_at_call;                  /* it goes on at the function of the call, next */
  bool passes_watched;              /* it goes on at a watched address, next, and passes it */
  uint64_t first_step, steps;       /* of the call */
  _Atomic uint64_t stretches;       /* of this thread, if all->is_calls */
  struct ct_code_pages *code;
  enum ct_tracer_state state;
  struct ct_recorder *recorder;  /* NULL: there are no records */
  enum ct_context_reason reason; /* why it goes on translated, the next time */
  bool looks_again;              /* code has been mapped since the watched functions were looked for */
  bool has_new_mappings;         /* since they were noted with its records */
  uint64_t noted_ns;             /* when that was */
  bool wants_room;               /* has been interrupted for that: the segment of records is full */
  bool wants_sequence;           /* has been interrupted for that: it comes from what is not recorded */
  bool wants_watched;            /* has been interrupted for that: it is at a watched address */
  bool wants_end;                /* has been interrupted for that: it is about to go under a seccomp filter */
  bool is_filtered;              /* it was, and is not recorded from there on */
  bool wants_step; /* has been interrupted for that: the instruction where it waits is executed where it is */
  bool steps_call; /* the instruction is a system call */
  bool is_in_call; /* and has begun */
  struct ct_system_call call; /* that */
  bool steps_into_handler;
  bool has_own_trap; /* the program had set the trap flag itself when the step began */
  bool wants_flush;  /* has been interrupted for that: others have changed code */
  bool wants_back;   /* has been interrupted for that: it has left translated code by itself */
  bool is_parked;    /* it waits, with all signals blocked, for its first stop; mask is its own */
  uint64_t mask;
  bool hides_trap;  /* SIGTRAP is blocked, but for the step */
  bool to_release;  /* has been interrupted to be released */
  uint32_t changes; /* of all, that it knows */
  uint32_t child_count;
  pid_t children[CT_CHILDREN];         /* that it has made, and that have not stopped yet */
  bool flushes_after;                  /* the step that goes on may change code ... */
  uint64_t changed_start, changed_end; /* ... there */
  struct ct_held_signal held;
  struct ct_itrace_live live;
  bool is_reaped;     /* its end has been seen, with its status */
  bool has_new_image; /* the step that goes on ends at the first instruction of another program */
  uint64_t asked_ns;  /* when it was asked to stop */
  struct ct_itrace_summary summary;
  struct ct_code_cache_stats stats; /* of spaces that are gone */
  int code_of_end;
  struct ct_diag diag;
  /* Between threads. */
  pthread_t thread, waiter;
  bool has_thread, has_waiter;
  bool is_made, is_done;         /* under the lock of all: it has spaces; its thread is about to end */
  _Atomic uint32_t flush_asked;  /* counts: another thread has changed code that it may have translated ... */
  _Atomic uint32_t flush_made;   /* ... and that is forgotten */
  _Atomic uint32_t taken;        /* 1: it has hold of its thread, or has not got it */
  _Atomic uint32_t begun;        /* 1: yes, 2: it failed */
  _Atomic uint32_t stop;         /* is asked for */
  _Atomic bool is_released;      /* the thread has been released */
  _Atomic bool waiter_ends;      /* it waits for nothing any more */
  _Atomic uint32_t event;        /* 1: the waiter has seen that there is something to be waited for */
  pthread_mutex_t doorbell_lock; /* set by the tracer, rung by the waiter */
  _Atomic uint32_t *doorbell;    /* of the space, or no_doorbell: what the tracer waits for */
  _Atomic uint32_t no_doorbell;
};

/* The program's state out of a stopped thread's. False: it was the program's. Nothing else changes. */
bool ct_tracer_find_state(const struct ct_tracer *tracer, struct user_regs_struct *regs, struct ct_found_state *out);
/*
 * The program's state out of a stopped thread's, which is going to have it; what it was recording is reconciled. False:
 * it was the program's. *spoilt: there is no way to tell. *is_before (may be NULL): a fault here is not the program's
 * yet.
 */
bool ct_tracer_recover(struct ct_tracer *tracer, struct user_regs_struct *regs, bool *spoilt, bool *is_before);
/*
 * Has the thread left translated code by itself, because the tracer did not run for long? It has, or is about to. What
 * it did since is not recorded.
 */
static inline bool
ct_tracer_has_left(const struct ct_tracer *tracer)
{
  return tracer->state == CT_TRACER_TRANSLATED && tracer->space->slots != NULL &&
         __atomic_load_n(&tracer->space->slots->request, __ATOMIC_ACQUIRE) == CT_ITRACE_LEFT;
}
/* It had, and is the tracer's again, with these registers: its records say so. */
void ct_tracer_is_back(struct ct_tracer *tracer, const struct user_regs_struct *regs);
/* The records of such a thread are closed: it waited with what is still in the slots. */
void ct_tracer_close_left(struct ct_tracer *tracer, const struct user_regs_struct *regs);
/*
 * Before a signal is delivered to a thread that ran translated: is it about to begin a restartable sequence, it has it
 * begin anew, as the kernel would natively, which may have forgotten the descriptor when the thread waited in our code.
 */
void ct_tracer_abort_sequence(struct ct_tracer *tracer, struct user_regs_struct *regs);
/* Code has been changed by the thread, which is not in translated code. */
void ct_tracer_make_changes(struct ct_tracer *tracer);
/* Is what it executes recorded? */
static inline bool
ct_tracer_records(const struct ct_tracer *tracer)
{
  return tracer->recorder != NULL && tracer->space->slots != NULL && tracer->space->block_bytes != 0;
}
/* wanted.c. It waits, and its stack pointer is elsewhere: has the call that is recorded been left? */
bool ct_tracer_has_returned(struct ct_tracer *tracer);
/* wanted.c. 0 or an error, with its line in the tracer's diag. */
int ct_tracer_begin_watch(struct ct_tracer *tracer);
int ct_tracer_begin_records(struct ct_tracer *tracer);
/* The system call with these registers puts the thread under a seccomp filter, or strict mode, which may end the
 * process for what translated code does besides (futex). */
bool ct_tracer_begins_filter(const uint64_t regs[16]);
/* The arguments and the result that it has with these registers. */
struct ct_system_call ct_tracer_call_of(uint64_t number, const struct user_regs_struct *regs);
bool ct_tracer_is_syscall(const struct ct_tracer *tracer, uint64_t pc);
/* Code has changed: in both spaces nothing of it is left. */
void ct_tracer_flush(struct ct_tracer *tracer);
/* The thread has stopped, and its registers are the program's: it goes on translated. */
int ct_tracer_enter(struct ct_tracer *tracer);
/* A step has ended: if it was a system call, what that wrote belongs to the records; nothing, if it is made again. */
void ct_tracer_call_made(struct ct_tracer *tracer);
/* It is at the first instruction of a handler. */
void ct_tracer_in_handler(struct ct_tracer *tracer);
/* The thread waits: answers it. */
int ct_tracer_answer(struct ct_tracer *tracer);
/* What is mapped where belongs to the records, if that has changed; before it changes again. */
void ct_tracer_note_mappings(struct ct_tracer *tracer);
/* The instruction where it is, with these registers, is executed where it is, or what it does is done. */
int ct_tracer_step(struct ct_tracer *tracer, const struct user_regs_struct *regs, bool is_call);
/* A step is the last thing that is recorded: is it of the instruction at which the thread still is? Then it is taken
 * back. */
void ct_tracer_note_not_made(struct ct_tracer *tracer, const struct user_regs_struct *regs);
/* After a stop that changes nothing it goes on, with a signal that has no handler, or 0. */
int ct_tracer_go_on(struct ct_tracer *tracer, int signal);
/* What waits for a handler's frame is recorded; NULL: there is none, the thread ends. */
void ct_tracer_reconcile_held(struct ct_tracer *tracer, const ucontext_t *frame);
/* It is about to get a signal. */
int ct_tracer_signal(struct ct_tracer *tracer, struct ct_traced_event *event);

/* ---- tracer.c ---- */

/* The instruction has been executed. */
int ct_tracer_stepped(struct ct_tracer *tracer);
/* Begins with a thread that runs, with a program (both: the tracer's thread only), or with one that is parked. */
int ct_tracer_begin_thread(struct ct_tracer *tracer);
void ct_tracer_has_taken(struct ct_tracer *tracer);
int ct_tracer_begin_program(struct ct_tracer *tracer);
/* Makes the recorder and the spaces of the thread, which has stopped at an instruction of the program. */
int ct_tracer_make(struct ct_tracer *tracer);
/* Traces the thread, which has stopped or does so at once, until it ends or is released. */
void ct_tracer_loop(struct ct_tracer *tracer);
/* Others have changed code: if this thread's translations are to be forgotten for that, they are, or will be. */
void ct_tracer_serve_flush(struct ct_tracer *tracer);
/* Wakes the tracer's thread. */
void ct_tracer_ring(struct ct_tracer *tracer);
/* After a failure the thread goes on where it is, if it can. */
void ct_tracer_give_up(struct ct_tracer *tracer);
/* What it has in memory is given back; its file is written. */
void ct_tracer_leave_space(struct ct_tracer *tracer);
int ct_tracer_finish(struct ct_tracer *tracer);

/* ---- borrow.c ---- */

/* The thread has stopped, and makes system calls for us until it is given back; others wait for their turn meanwhile.
 */
int ct_tracer_borrow(struct ct_tracer *tracer, bool is_to_stay, struct ct_diag *diag);
int ct_tracer_give_back(struct ct_tracer *tracer);

/* ---- live.c ---- */

/* Of a space with records: system calls in which the thread may wait come to the tracer first. */
void ct_live_choose_calls(struct ct_tracer *tracer, struct ct_itrace_space *space);
/* Has that system call come for that alone? */
bool ct_live_is_call(const struct ct_tracer *tracer, uint64_t number);
/* It has: are the records to be handed over before it is made? Then it comes once more. */
bool ct_live_wants_records(struct ct_tracer *tracer);
/* Now and then, while the thread runs: it is called in, if its records are old. */
void ct_live_serve(struct ct_tracer *tracer);
/* The thread has stopped, and its records are reconciled. */
void ct_live_hand_over(struct ct_tracer *tracer);

/* ---- children.c ---- */

/* A new thread or process, which has stopped, or is about to. */
void ct_tracer_has_child(struct ct_tracer *tracer, pid_t child);
/* Those that had not stopped when they were made: on a busy machine that may take seconds. */
void ct_tracer_see_to_children(struct ct_tracer *tracer);
/* One that nobody has reported; see ct_traced_stray. */
void ct_tracer_see_to_stray(struct ct_tracer *tracer);
/* The system call that it has made, with that result, has made a thread in a way that no tracer is notified of. */
bool ct_tracer_has_made_untraced(const struct ct_tracer *tracer, int64_t result);

/* ---- itrace.c ---- */

/*
 * The thread has made another one, which has stopped: that is traced too, if it is to be; else it runs where it is.
 * False: it has been killed meanwhile, and stops once more.
 */
bool ct_itrace_child(struct ct_tracer *tracer, pid_t child, int signal);
/* A thread has been made that cannot be traced (CLONE_UNTRACED). */
void ct_itrace_untraced(struct ct_itrace *all);
/* Has any thread translated code in that range? */
bool ct_itrace_covers(struct ct_itrace *all, uint64_t start, uint64_t end);
/*
 * Code in that range has changed, by a system call of this tracer's thread, which has stopped outside of the cache:
 * returns when no other thread has translations of it.
 */
void ct_itrace_changed(struct ct_tracer *tracer, uint64_t start, uint64_t end);
/* Is more than one thread traced? */
static inline bool
ct_itrace_is_many(const struct ct_itrace *all)
{
  return all->options.all_threads || all->is_calls;
}
/* The tracer of a thread is begun, and reports when it has: 0, or an error, then there is none. */
int ct_itrace_begin_tracer(struct ct_itrace *all, pid_t tid, const struct ct_wanted_call *call, struct ct_diag *diag);
/* The same in two steps, of a thread that was found. NULL: not started, since it is traced already or for want of
 * memory. */
struct ct_tracer *ct_itrace_start(struct ct_itrace *all, pid_t tid, struct ct_diag *diag);
int ct_itrace_started(struct ct_tracer *tracer, struct ct_diag *diag);
/* All threads are being released: what is ours stays in the process until they all are (ct_itrace_end). */
bool ct_itrace_leaves_spaces(struct ct_tracer *tracer);
/* Has the thread a tracer? */
bool ct_itrace_is_known(struct ct_itrace *all, pid_t tid);
/* A thread is not recorded; NULL: it was not to be. */
void ct_itrace_not_recorded(struct ct_itrace *all, const struct ct_diag *why);
/* A tracer is done, or others.c, or a tracer has failed to begin because its thread has just ended: are there more?
 * Under the lock. */
void ct_itrace_has_one_less(struct ct_itrace *all);
/* Joins those whose threads have ended, or with `waits` all: until there is none. */
void ct_itrace_join(struct ct_itrace *all, bool waits);
/* All are asked to let their threads go. Under the lock. */
void ct_itrace_ask_all(struct ct_itrace *all);
struct ct_itrace *ct_itrace_new(const struct ct_itrace_options *options, struct ct_diag *diag);
void ct_itrace_free(struct ct_itrace *all);

/* ---- others.c ---- */

uint32_t ct_itrace_count_threads(pid_t pid);
/* All threads that are there get tracers; returns before they have. */
void ct_itrace_find_others(struct ct_itrace *all);
/* The recording is ending. */
void ct_itrace_join_others(struct ct_itrace *all);

/* ---- calls.c ---- */

/* The recorder of the thread's calls, NULL: there is none yet; and back. */
struct ct_recorder *ct_calls_take_recorder(struct ct_itrace *all, pid_t tid);
int ct_calls_keep_recorder(struct ct_tracer *tracer, struct ct_recorder *recorder);
/* The tracer has done with its call. Under the lock. */
void ct_calls_done(struct ct_tracer *tracer);

#endif
