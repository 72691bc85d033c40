/* SPDX-License-Identifier: MIT */
/*
 * Calls of a process that somebody else records, hooks and all: a thread that waits at a call's begin is taken, goes on
 * in translated code, records its instructions from there to the call's return, and is released there. Each thread has
 * one file, to which its calls are added. What threads execute are the program's own bytes, or what hooks have made of
 * them, as is wanted.
 */
#ifndef CT_ITRACE_CALLS_H
#define CT_ITRACE_CALLS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ct_itrace;

/* Code that hooks have changed: from old to bytes. */
struct ct_itrace_patch {
  uint64_t address;
  uint8_t length;
  uint8_t bytes[8], old[8];
};

struct ct_itrace_calls_options {
  const char *directory; /* the caller's until the end */
  bool no_vectors, is_lossless;
  void (*ended)(void *context); /* a call has; from another thread */
  void *context;
};

struct ct_wanted_call {
  pid_t pid, tid;
  uint64_t number;   /* the caller's own */
  uint64_t place;    /* the thread comes there next, with the state that it has at the function's begin */
  uint64_t function; /* where that is: the call's steps begin there */
  uint64_t *flag;    /* cleared, before the thread is released; NULL: none */
  const struct ct_itrace_patch *own; /* what is patched there; it is the program's own bytes that are executed, once */
  /* Further patches that the call meets as if they were not there, sorted by address; to be freed. NULL: none. */
  struct ct_itrace_patch *hidden;
  size_t hidden_count;
};

enum ct_itrace_outcome {
  CT_ITRACE_RETURNED, /* the call's steps are there from its begin to its end, by whatever way that came */
  CT_ITRACE_CUT,      /* the thread was released before */
  CT_ITRACE_ENDED,    /* the thread has ended in the call */
  CT_ITRACE_MISSED,   /* the thread has not come there */
};

struct ct_itrace_done {
  struct ct_itrace_done *next;
  pid_t tid;
  uint64_t number;
  uint64_t first_step, steps; /* in the thread's file */
  enum ct_itrace_outcome outcome;
  struct ct_diag why; /* "": nothing went wrong */
};

struct ct_itrace_calls_summary {
  uint64_t threads, steps, lost_bytes, file_bytes;
};

int ct_itrace_calls_create(const struct ct_itrace_calls_options *options, struct ct_itrace **out, struct ct_diag *diag);
/* The thread is traced from here on. 0, or an error: it is as it was. Takes call->hidden in any case. */
int ct_itrace_call_begin(struct ct_itrace *calls, const struct ct_wanted_call *call, struct ct_diag *diag);
/* Some thread is traced. */
bool ct_itrace_calls_live(struct ct_itrace *calls);
/* Releases all threads. Nobody is traced afterwards. */
void ct_itrace_calls_stop(struct ct_itrace *calls);
/* Calls that have ended since the last time, the first one first; each to be freed. */
struct ct_itrace_done *ct_itrace_calls_done(struct ct_itrace *calls);
/* Has the process ended, as one of its traced threads has shown? *status as waitpid gives it. */
bool ct_itrace_calls_process_ended(struct ct_itrace *calls, int *status);
/* The process has become another program by exec: nobody is traced, and nothing of ours is left in it. */
void ct_itrace_calls_image(struct ct_itrace *calls);
/* As ct_itrace_calls_stop; files get their ends. Frees it; accepts NULL. 0, or why a file is not whole. */
int ct_itrace_calls_end(struct ct_itrace *calls, struct ct_itrace_calls_summary *summary, struct ct_diag *diag);

#endif
