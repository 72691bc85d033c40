/* SPDX-License-Identifier: MIT */
/* What the files of the tracer share; see tracer.c. */
#ifndef CT_ITRACE_TRACER_H
#define CT_ITRACE_TRACER_H

#include <contrail/itrace.h>
#include "itrace/recorder.h"
#include "itrace/space.h"
#include "itrace/watch.h"

#include <pthread.h>
#include <stdatomic.h>

enum ct_tracer_state {
  CT_TRACER_TRANSLATED,
  CT_TRACER_STEPS,  /* one instruction where it is, or into a signal handler */
  CT_TRACER_NATIVE, /* runs where it is: it is being ended by a signal, or its program cannot be translated */
  CT_TRACER_DONE,
};

enum { CT_CODE_PAGES = 1024 };

/* The program's code, as far as it has been read. */
struct ct_code_pages {
  const struct ct_process *process;
  struct ct_mappings mappings;
  bool is_old; /* mappings have been made or taken away since */
  struct {
    uint64_t page; /* its number plus 1; 0: none */
    uint8_t bytes[4096];
  } pages[CT_CODE_PAGES];
};

size_t ct_code_pages_read(void *pages, uint64_t pc, uint8_t *bytes, size_t size, bool *may_change);
/* What was read may have changed. */
void ct_code_pages_forget(struct ct_code_pages *pages);

struct ct_itrace {
  struct ct_itrace_options options;
  struct ct_process process;
  pid_t tid;
  bool is_child;                    /* we have started the process */
  struct ct_itrace_space spaces[2]; /* the second one: with records, if only some stretches have any */
  struct ct_itrace_space *space;    /* that it runs in */
  struct ct_watch *watch;           /* NULL: all is recorded, or nothing */
  struct ct_code_pages *code;
  enum ct_tracer_state state;
  struct ct_recorder *recorder;  /* NULL: there are no records */
  enum ct_context_reason reason; /* why it goes on translated, the next time */
  bool looks_again;              /* code has been mapped since the watched functions were looked for */
  bool has_new_mappings;         /* since they were noted with its records */
  bool wants_room;               /* has been interrupted for that: the segment of records is full */
  bool wants_watched;            /* has been interrupted for that: it is at a watched address */
  bool wants_step; /* has been interrupted for that: the instruction where it waits is executed where it is */
  bool steps_call; /* the instruction is a system call */
  bool is_in_call; /* and has begun */
  struct ct_system_call call; /* that */
  bool steps_into_handler;
  bool has_own_trap;  /* the program had set the trap flag itself when the step began */
  bool is_leaving;    /* has been interrupted to be let go */
  bool flushes_after; /* the step that goes on may change code */
  bool has_new_image; /* the step that goes on ends at the first instruction of another program */
  uint64_t asked_ns;  /* when it was asked to stop */
  struct ct_itrace_summary summary;
  struct ct_code_cache_stats stats; /* of spaces that are gone */
  int code_of_end;
  struct ct_diag diag;
  int exec_errno;
  /* Between threads. */
  pthread_t thread, waiter;
  bool has_waiter;
  _Atomic uint32_t begun;    /* 1: yes, 2: it failed */
  _Atomic uint32_t stop;     /* is asked for */
  _Atomic uint32_t event;    /* 1: the waiter has seen that there is something to be waited for */
  pthread_mutex_t bell_lock; /* set by the tracer, rung by the waiter */
  _Atomic uint32_t *bell;    /* of the space, or no_bell: what the tracer waits for */
  _Atomic uint32_t no_bell;
  int done_fd;
};

/*
 * The program's state out of a stopped thread's, which is going to have it; what it was recording is settled. False: it
 * was the program's. *spoilt: there is no way to tell. *is_before (may be NULL): a fault here is not the program's yet.
 */
bool ct_tracer_recover(struct ct_itrace *tracer, struct user_regs_struct *regs, bool *spoilt, bool *is_before);
/* Is what it executes recorded? */
static inline bool
ct_tracer_records(const struct ct_itrace *tracer)
{
  return tracer->recorder != NULL && tracer->space->slots != NULL && tracer->space->block_bytes != 0;
}
bool ct_tracer_is_syscall(const struct ct_itrace *tracer, uint64_t pc);
/* Code has changed: in both spaces nothing of it is left. */
void ct_tracer_flush(struct ct_itrace *tracer);
/* The thread has stopped, and its registers are the program's: it goes on translated. */
int ct_tracer_enter(struct ct_itrace *tracer);
/* A step has ended: if it was a system call, what that wrote belongs to the records. */
void ct_tracer_call_made(struct ct_itrace *tracer);
/* It is at the first instruction of a handler. */
void ct_tracer_in_handler(struct ct_itrace *tracer);
/* The thread waits: answers it. */
int ct_tracer_answer(struct ct_itrace *tracer);
/* What is mapped where belongs to the records, if that has changed; before it changes again. */
void ct_tracer_note_mappings(struct ct_itrace *tracer);
/* The instruction where it is, with these registers, is executed where it is. */
int ct_tracer_step(struct ct_itrace *tracer, const struct user_regs_struct *regs, bool is_call);
/* How it goes on after a stop that changes nothing. */
enum ct_traced_way ct_tracer_way(const struct ct_itrace *tracer);
/* It is about to get a signal. */
int ct_tracer_signal(struct ct_itrace *tracer, struct ct_traced_event *event);

#endif
