/* SPDX-License-Identifier: MIT */
/*
 * The instruction tracer: a thread, or all of a process, runs translated copies of the program's code, until it is let
 * go or ends. The program cannot tell; the thread is under ptrace meanwhile, so no debugger can have it.
 *
 * A tracer is used by one thread at a time.
 */
#ifndef CONTRAIL_ITRACE_H
#define CONTRAIL_ITRACE_H

#include <contrail/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ct_itrace;

struct ct_itrace_options {
  size_t struct_size;
  pid_t pid, tid; /* of a thread that runs; pid 0: argv */
  char *const
      *argv; /* a program to start, whose first thread is traced from its first instruction; looked up in PATH */
  const void *signal_mask; /* sigset_t, its signal mask; NULL: that of the caller */
  const char *directory;   /* where its steps go (contrail/steps.h), as file steps.TID; NULL: nothing is recorded */
  bool no_vectors;         /* without vector and mask registers */
  bool is_lossless;        /* it waits when the file does not keep up */
  /*
   * Only stretches are recorded; the thread is slower between them, too. Calls of the functions that the pattern
   * `function` (as of record --trace) matches, from their first instruction to their return, with what they call; or
   * else from each time that it comes to `from` up to `to`: "0x401000", "main", "main+0x12". condition (NULL: none):
   * "arg1 > 5", "rsi == 0x10", as registers are there. stretches: so many, 0 for all; then a thread that runs is
   * released.
   */
  const char *function, *from, *to, *condition;
  uint64_t stretches;
  /*
   * All threads of the process, from now on or from their first instruction on, each with a file; tid is of one that is
   * certain to be there. A thread that it makes while this ends runs as it is.
   */
  bool all_threads;
  /* Of a program that is started, as in struct ct_session_options. */
  const int *streams;
  bool own_group;
  /* The files are read while they grow (ct_steps_follow): what a thread has executed is there after some 0.1 s, and
   * before it waits in a system call. */
  bool is_live;
  uint64_t program_device, program_inode; /* of a program that is started, as in struct ct_session_options */
  /* Asked while the first thread does not stop, some times a second, in the thread that begins: true ends that with
   * CT_ECANCELED. NULL: it is waited for, 10 seconds at most. */
  bool (*enough)(void *context);
  void *enough_context;
};

struct ct_itrace_summary {
  size_t struct_size;    /* to be filled in */
  bool has_ended;        /* the thread, or the program */
  int wait_status;       /* then: of a program that was started, as waitpid gives it */
  uint64_t units;        /* blocks that were translated */
  uint64_t instructions; /* in them */
  uint64_t source_bytes, code_bytes;
  uint64_t requests;                             /* how often the thread waited for the tracer */
  uint64_t steps;                                /* instructions that were executed where they are, one by one */
  uint64_t signals;                              /* that came to a handler */
  uint64_t flushes;                              /* how often all translations were forgotten */
  uint64_t record_bytes, lost_bytes, file_bytes; /* of records */
  uint64_t recorded;                             /* instructions in the file */
  uint64_t stretches;                            /* that were recorded, if not all was to be */
  uint64_t places;                               /* where they could begin: 0: no such function was mapped */
  uint64_t threads;                              /* that were traced */
  uint64_t unrecorded; /* threads of the process, made by a traced one or (all_threads) there, that were not */
  uint64_t incomplete; /* threads that were not traced up to their end, though they were to be */
  char why[256];       /* one of those was not; "" */
  /* How often a thread has gone on untraced for a while, unrecorded, because the tracer got no processor for a second.
   */
  uint64_t left;
  uint64_t shared_units; /* of the units: made of what another thread had translated */
};

/* Begins; the strings are the caller's until the end. 0 or an error; *exec_errno (may be NULL): of a program that could
 * not be started, else 0. Of all threads of a process the first one is recorded then, and others follow, one after the
 * other, within a second or two. */
int ct_itrace_begin(const struct ct_itrace_options *options, struct ct_itrace **tracer, int *exec_errno,
                    struct ct_diag *diag);
/* The id of the process. */
pid_t ct_itrace_pid(const struct ct_itrace *tracer);
/* Readable when the thread has ended or cannot be traced any longer. The tracer's own. */
int ct_itrace_fd(const struct ct_itrace *tracer);
/* Lets the thread go, if it still runs, and frees the tracer. 0, or why it could not be traced to the end. */
int ct_itrace_end(struct ct_itrace *tracer, struct ct_itrace_summary *summary, struct ct_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
