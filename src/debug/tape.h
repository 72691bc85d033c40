/* SPDX-License-Identifier: MIT */
/*
 * A recording of a thread's instructions as a debugger sees a program: it stands before a step, has registers and
 * memory there, and goes on in both directions to the next breakpoint or watchpoint.
 */
#ifndef CT_DEBUG_TAPE_H
#define CT_DEBUG_TAPE_H

#include "debug/image.h"
#include "steps/cursor.h"
#include "steps/index.h"

enum { CT_TAPE_STOPS_MAX = 256 };

enum ct_tape_kind { CT_TAPE_BREAK, CT_TAPE_WRITTEN, CT_TAPE_READ, CT_TAPE_ACCESSED }; /* as Z0 and Z1; Z2; Z3; Z4 */

struct ct_tape_stop {
  enum ct_tape_kind kind;
  uint64_t address, size;
};

enum ct_tape_end {
  CT_TAPE_STOPPED, /* at a breakpoint, or by a watchpoint */
  CT_TAPE_STEPPED,
  CT_TAPE_AT_BEGIN,
  CT_TAPE_AT_END,
  CT_TAPE_INTERRUPTED
};

/* Memory as it is at a place: the bytes, and of each whether it is known. */
struct ct_tape_span {
  uint8_t *bytes; /* 2 * size; NULL: nothing is kept */
  size_t size;
  uint64_t address, at;
};

struct ct_tape {
  struct ct_steps_reader *reader;
  struct ct_steps_cursor *cursor;
  struct ct_steps_index *index; /* NULL: not needed so far */
  struct ct_debug_image image;
  uint64_t steps, at; /* how many; it stands before that one, or at the end */
  int signal;         /* that ended the recording, 0: none */
  int signal_code;    /* its si_code */
  uint64_t signal_pc; /* where */
  struct ct_tape_stop stops[CT_TAPE_STOPS_MAX];
  size_t stop_count;
  const struct ct_tape_stop *hit;  /* of the last search, if it is a watchpoint */
  struct ct_tape_span span;        /* the last one that was searched */
  bool (*is_asked)(void *context); /* whether somebody wants it to stop */
  void *context;
};

/* path: a file steps.TID. 0 or an error. */
int ct_tape_open(const char *path, struct ct_tape *tape, struct ct_diag *diag);
void ct_tape_close(struct ct_tape *tape);
/* False: out of memory. */
void ct_tape_go(struct ct_tape *tape, uint64_t step);
const struct ct_steps_state *ct_tape_state(const struct ct_tape *tape);
/* size bytes, and of each whether it is known, 0 or 1. 0, CT_ENOMEM, CT_ECANCELED (by the reader's watch). */
int ct_tape_bytes(struct ct_tape *tape, uint64_t address, size_t size, uint8_t *bytes, uint8_t *known);
/* How many of size bytes, from the first on, are known; what is not written in the trace comes from the files. */
size_t ct_tape_memory(struct ct_tape *tape, uint64_t address, uint8_t *bytes, size_t size);
struct ct_tape_found {
  bool has_address;
  uint64_t address; /* of the first match, if there is one */
  uint64_t unknown; /* bytes before it, or in the range, that are not known: a match may begin there */
};

/* The first place of the pattern in the bytes from address on. False: it is not known, or is_asked said so. */
bool ct_tape_find(struct ct_tape *tape, uint64_t address, uint64_t bytes, const uint8_t *pattern, size_t size,
                  struct ct_tape_found *found);
/* False: there is no room, or it is not there. */
bool ct_tape_add(struct ct_tape *tape, const struct ct_tape_stop *stop);
bool ct_tape_remove(struct ct_tape *tape, const struct ct_tape_stop *stop);
enum ct_tape_end ct_tape_step(struct ct_tape *tape, bool back);
enum ct_tape_end ct_tape_continue(struct ct_tape *tape, bool back);

#endif
