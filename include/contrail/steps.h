/* SPDX-License-Identifier: MIT */
/*
 * Steps: the instructions that a thread has executed, as the instruction tracer recorded them, one a line: number,
 * thread, function, disassembly, the registers and memory that it changed, with values. What is not known is shown as
 * such, never guessed. Also who last wrote a register or some bytes of memory before a step.
 *
 * The first question about a large file of steps makes an index, which is kept beside it (steps.TID.index; for the last
 * writer of memory, which is sooner made, steps.TID.writes.index).
 */
#ifndef CONTRAIL_STEPS_H
#define CONTRAIL_STEPS_H

#include <contrail/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ct_steps_options {
  size_t struct_size;
  uint32_t tid;  /* of the thread; 0: all, merged by time stamps; with step, tail, back and the like each by itself */
  bool has_step; /* step is given: the first one that is shown, or before which something was written */
  bool has_address; /* address is given */
  bool back;        /* from the step (or the end) towards the beginning */
  bool tail;        /* the last ones */
  bool registers;   /* the whole state before each step */
  bool source;      /* lines of the source, by the modules' files as they are now */
  bool intel;       /* syntax; else that of AT&T */
  bool json;        /* a step a line */
  uint64_t step;
  uint64_t limit;         /* so many of them; 0: all */
  uint64_t address;       /* only steps at this address */
  const char *function;   /* only in functions that this pattern of record --trace matches; NULL: all */
  const char *last_write; /* "rax", "rflags", "xmm3", or "0x7ffe12345678:8" (8 bytes): the step that last wrote it */
  const char *memory;     /* "0x7ffe12345678:64": these bytes (8) before the step, as far as the trace shows them */
  /* Called now and then, by the thread that asks: blocks read, of all there are in the thread's file; what is looked at
   * again counts again. Not 0: no more is wanted, and the answer is CT_ECANCELED. NULL: it is not. */
  int (*progress)(void *context, uint64_t done, uint64_t total);
  void *progress_context;
  /*
   * In place of lines the stream of blocks and register writes of one thread (docs/format.md), to which tid, live and
   * goes_on apply.
   */
  bool stream;
  /*
   * What is recorded while this runs, too, until the recording ends or goes_on (NULL: always true), which is called
   * some times a second, says false. From its beginning, from a step, or with tail: from what comes from now on. Steps
   * of several threads are in the order of pieces, some 0.1 s each, by the time when they begin. Not with back,
   * last_write, memory. How soon is up to the recording: ct_itrace_options.is_live.
   */
  bool live;
  bool (*goes_on)(void *context);
  void *context;
  /*
   * In place of lines: makes the index by which the last writer of memory is found within a moment, of each file that
   * has none (some 8 ns of a processor a step). Without it the first question about what was written long ago makes it.
   */
  bool index;
};

/* What there is to tell besides the output; text lives in here. */
struct ct_steps_notes {
  size_t struct_size;
  uint64_t shown;
  uint64_t inconsistent; /* places at which the records contradict each other, of what was read */
  char damage[256];      /* "": none */
  uint64_t merged;       /* so many threads by their time stamps: between two of these their order is not known */
  bool stopped;          /* with live: the recording goes on */
  uint64_t waited;       /* so many of the threads asked for executed nothing while they were recorded */
};

/*
 * Writes the steps of the trace (a folder with files steps.TID, or one such file) to out. 0; CT_ENOENT, CT_EACCES,
 * CT_EFORMAT: it cannot be read; CT_EINVAL: an option cannot be understood; CT_ERANGE: there is no such thread or step;
 * CT_EIO: it cannot be written; CT_ECANCELED: by progress, with what was found until then written.
 */
int ct_steps_write(const char *path, const struct ct_steps_options *options, FILE *out, struct ct_steps_notes *notes,
                   struct ct_diag *diag);

/*
 * A ring of size bytes (CT_STEPS_RING_MIN and more) in a new file, for a program that maps it and reads what is written
 * to *ring (docs/format.md). Writing waits while there is no room, or fails with EPIPE once goes_on says false (NULL:
 * never). Closing waits until all is read, likewise. 0, or as creating a file fails.
 */
enum { CT_STEPS_RING_MIN = 4096 };
int ct_steps_ring_open(const char *path, uint64_t size, bool (*goes_on)(void *context), void *context, FILE **ring,
                       struct ct_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
