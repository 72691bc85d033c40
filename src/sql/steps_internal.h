/* SPDX-License-Identifier: MIT */
/*
 * What the files share that look into recordings of instructions. They know nothing of traces of calls, nor do those
 * know of them: sql_steps.h is between.
 */
#ifndef CT_SQL_STEPS_INTERNAL_H
#define CT_SQL_STEPS_INTERNAL_H

#include "sql/sql_steps.h"

#include "steps/selected.h"
#include "steps/cursor.h"
#include "steps/memory.h"
#include "steps/shadow.h"

struct ct_sql_named {
  uint64_t pc;
  size_t period; /* plus 1; 0: free */
  struct ct_steps_name name;
};
enum { CT_SQL_NAMES = 256 };

/* A thread's file. */
struct ct_sql_recorded {
  char *path;
  const char *file; /* the end of path */
  struct ct_steps_reader *reader;
  struct ct_steps_names *names;
  struct ct_steps_index *index;   /* NULL: not needed yet */
  struct ct_steps_recall *recall; /* likewise */
  struct ct_sql_followed *followed;
  uint64_t start_tsc;         /* when its recording began; times are from then on */
  struct ct_sql_named *named; /* CT_SQL_NAMES of them, by address */
};

/* Until the next call. */
const struct ct_steps_name *ct_sql_recorded_name(struct ct_sql_recorded *recorded, uint64_t step, uint64_t pc);

struct ct_sql_vectors {
  uint8_t known[CT_SQL_VECTORS + CT_SQL_MASKS]; /* bytes, from the low end */
  uint8_t bytes[CT_SQL_VECTORS + CT_SQL_MASKS][CT_SQL_BYTES_MAX];
};

/* On the way through a block. */
struct ct_sql_way {
  struct ct_sql_step_rows *rows;
  struct ct_sql_registers before;
  uint64_t last_step, last_pc; /* the step before, its code ... */
  uint8_t last_code[15], last_length;
  size_t unplaced; /* rows from here on are of a step that comes only now */
  uint64_t tsc;
};

/* What a table looks for in a thread's file: the steps, and the index if it is of use. */
struct ct_sql_search {
  struct ct_sql_recorded *recorded;
  const struct ct_sql_steps_wanted *wanted;
  struct ct_steps_cursor *cursor;
  struct ct_steps_selected selected;
  struct ct_sql_way way;
  struct ct_sql_vectors vectors; /* before the step, of CT_SQL_STEP_VECTORS */
};

/* NULL: it is not wanted, or memory is exhausted. */
struct ct_sql_row *ct_sql_add_row(struct ct_sql_search *search, uint64_t step, uint64_t pc, enum ct_sql_row_by by);
void ct_sql_set_code(struct ct_sql_row *row, const uint8_t *code, uint8_t length);
/* Rows of the vector registers that the step has written, if it is wanted; or that a context has set. */
void ct_sql_add_vectors(struct ct_sql_search *search, const struct ct_steps_step *step,
                        const struct ct_steps_state *after, bool is_wanted);
void ct_sql_add_vectors_of_context(struct ct_sql_search *search, uint64_t step, const struct ct_steps_state *state,
                                   bool is_reported, enum ct_sql_row_by by);

#endif
