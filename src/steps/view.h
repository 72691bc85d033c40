/* SPDX-License-Identifier: MIT */
/* The view of a thread's steps: which are selected (view.c), and a line for each (lines.c). */
#ifndef CT_STEPS_VIEW_H
#define CT_STEPS_VIEW_H

#include "steps/cursor.h"
#include "steps/index.h"
#include "steps/line_cache.h"
#include "steps/names.h"

#include <contrail/steps.h>

/* What lines are written with. */
struct ct_steps_lines {
  const struct ct_steps_options *options;
  struct ct_steps_reader *reader;
  struct ct_steps_names *names;
  struct ct_line_cache *cache; /* of what is the same in many lines */
  FILE *out;
  uint64_t start_tsc; /* times are from then on */
  bool has_many_threads;
};

/* before: the state before it; the cursor stands after it. */
void ct_steps_put_step(const struct ct_steps_lines *lines, const struct ct_steps_step *step,
                       const struct ct_steps_state *before, const struct ct_steps_cursor *cursor);
void ct_steps_put_event(const struct ct_steps_lines *lines, const struct ct_steps_event *event);
/* What a register is called: 0 to 15 general ones. */
const char *ct_steps_register_name(unsigned reg);

/* ---- last writer ---- */

enum ct_steps_write_kind {
  CT_STEPS_WRITE_NONE,    /* not in the trace */
  CT_STEPS_WRITE_STEP,    /* by the step */
  CT_STEPS_WRITE_KERNEL,  /* by the kernel, in the step (a system call) */
  CT_STEPS_WRITE_CONTEXT, /* before the step came a signal's handler, or a gap */
};
struct ct_steps_write {
  enum ct_steps_write_kind kind;
  uint64_t step;
  bool has_gap; /* between it and the end of the search something is not recorded, that may have written it ... */
  uint64_t gap; /* ... before this step */
};
/* What is asked for: a register, or bytes of memory. */
struct ct_steps_target {
  enum { CT_STEPS_REGISTER, CT_STEPS_FLAGS, CT_STEPS_VECTOR_REGISTER, CT_STEPS_MEMORY_BYTES } kind;
  unsigned reg;
  uint64_t address, size;
};
/* False: it is none of these. */
bool ct_steps_parse_target(const char *text, struct ct_steps_target *target);
/*
 * The last step before `before` that wrote it, or a part of it. The index is opened when it is needed and kept in
 * *index. 0 or CT_ENOMEM.
 */
int ct_steps_last_write(struct ct_steps_reader *reader, struct ct_steps_index **index,
                        const struct ct_steps_target *target, uint64_t before, struct ct_steps_write *write);

#endif
