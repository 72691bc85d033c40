/* SPDX-License-Identifier: MIT */
/*
 * Tables of the instructions that threads have executed: steps, writes, changes, vector_changes, step_events,
 * step_blocks. What a query asks for (steps.c) is looked for a block of a thread's file at a time (steps_rows.c), and
 * all of its rows that are wanted are kept until they have been given: so rows may come from the last to the first,
 * too.
 */
#ifndef CT_SQL_SQL_STEPS_H
#define CT_SQL_SQL_STEPS_H

#include "base/error.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ct_sql_steps_table {
  CT_SQL_STEPS,
  CT_SQL_STEP_WRITES,
  CT_SQL_STEP_CHANGES,
  CT_SQL_STEP_VECTORS,
  CT_SQL_STEP_EVENTS,
  CT_SQL_STEP_BLOCKS,
};

struct ct_sql_recorded; /* a thread's file */

/* Memory that is followed (steps/shadow.h), which may take 45 MB: of one thread at a time. Of a database. */
struct ct_sql_followed {
  struct ct_steps_shadow *shadow; /* NULL: none */
  const struct ct_sql_recorded *of;
};
void ct_sql_followed_close(struct ct_sql_followed *followed); /* before the threads; accepts a zeroed one */

/*
 * The threads of a recording, after the *count of *list, which grows; tid not 0: only that one. 0, CT_ERANGE: there is
 * no such thread; and as ct_steps_reader_open. followed: what they share; it must outlive them.
 */
int ct_sql_recorded_add(struct ct_sql_recorded ***list, size_t *count, const char *path, uint32_t tid,
                        struct ct_sql_followed *followed, struct ct_diag *diag);
void ct_sql_recorded_free(struct ct_sql_recorded **list, size_t count);
/* Whether path has instructions. */
bool ct_sql_recorded_is(const char *path);
uint32_t ct_sql_recorded_tid(const struct ct_sql_recorded *recorded);
size_t ct_sql_recorded_blocks(const struct ct_sql_recorded *recorded);
const char *ct_sql_recorded_path(const struct ct_sql_recorded *recorded);
/* ns since the recording began. */
int64_t ct_sql_recorded_time(const struct ct_sql_recorded *recorded, uint64_t tsc);
/* The recording begins at that time of the clock. */
void ct_sql_recorded_start(struct ct_sql_recorded *recorded, uint64_t tsc);
const char *ct_sql_recorded_damage(const struct ct_sql_recorded *recorded); /* a line; "": none so far */

enum ct_sql_row_by {
  CT_SQL_BY_STEP,
  CT_SQL_BY_KERNEL,
  CT_SQL_BY_SIGNAL,
  CT_SQL_BY_EXEC,
  CT_SQL_BY_GAP,
  CT_SQL_BY_BEGIN
};

enum { CT_SQL_FLAGS = 16, CT_SQL_REGISTERS, CT_SQL_BYTES_MAX = 64, CT_SQL_VECTORS = 32, CT_SQL_MASKS = 8 };

/* Registers and flags; those that are not known have a bit. */
struct ct_sql_registers {
  uint64_t value[CT_SQL_REGISTERS];
  uint32_t unknown;
};

struct ct_sql_row {
  uint64_t step, pc, tsc;
  uint8_t code[15], length; /* 0: of no instruction */
  uint8_t by;               /* enum ct_sql_row_by */
  union {
    struct {
      struct ct_sql_registers before;
      uint64_t load_address, loaded;
      uint8_t load_size; /* 0: it has none that is known */
    } made;
    struct {
      uint64_t address, size, count; /* size: of each; 0: it is not known */
      uint8_t bytes[CT_SQL_BYTES_MAX];
      uint32_t known; /* bytes, all that were written or 0 */
      bool perhaps;
    } write;
    struct {
      uint64_t value, old;
      uint8_t reg;
      bool value_known, old_known;
    } change;
    struct {
      uint8_t reg;              /* CT_SQL_VECTORS on: a mask register */
      uint8_t known, old_known; /* bytes, from the low end */
      uint8_t bytes[CT_SQL_BYTES_MAX], old[CT_SQL_BYTES_MAX];
    } vector;
    struct {
      uint64_t address, size;
      int32_t number, code; /* of the signal; of the end: reason and status */
      uint8_t kind;         /* enum ct_stream_kind */
    } event;
    size_t block;
  };
};

/* What is asked of a table. */
struct ct_sql_steps_wanted {
  enum ct_sql_steps_table table;
  bool is_empty, descending;
  bool has_tid;
  uint32_t tid;
  uint64_t from, to;      /* steps, both inclusive */
  int64_t from_ns, to_ns; /* times, likewise */
  bool has_address;       /* of the instruction, or where a store begins; both inclusive */
  uint64_t address, address_end;
  bool has_bytes; /* some of these are written; inclusive */
  uint64_t bytes, bytes_end;
  int reg;        /* -1: any */
  char *function; /* without signs of a glob; NULL: any */
};

struct ct_sql_step_rows {
  struct ct_sql_row *rows;
  size_t count, capacity;
  bool failed; /* no memory */
};

struct ct_sql_search; /* what a table looks for in a thread's file */
/* NULL: out of memory. Both must outlive it. */
struct ct_sql_search *ct_sql_search_open(struct ct_sql_recorded *recorded, const struct ct_sql_steps_wanted *wanted);
void ct_sql_search_close(struct ct_sql_search *search); /* accepts NULL */
/* False: the block has no row that is wanted. */
bool ct_sql_search_may(const struct ct_sql_search *search, size_t block);
/*
 * The rows of the block, in the order of the steps, in place of what is in *rows. Forward not all at once: true when
 * there may be more, which ct_sql_search_more gives.
 */
bool ct_sql_search_block(struct ct_sql_search *search, size_t block, struct ct_sql_step_rows *rows);
bool ct_sql_search_more(struct ct_sql_search *search, struct ct_sql_step_rows *rows);

/* A column of a row; the first ones are the same for all tables but step_blocks. */
void ct_sql_step_column(struct ct_sql_recorded *recorded, enum ct_sql_steps_table table, const struct ct_sql_row *row,
                        int column, sqlite3_context *out);
/* Of what makes the row another than those of its step. */
uint64_t ct_sql_step_row_hash(enum ct_sql_steps_table table, const struct ct_sql_row *row);
/* A register by its name, CT_SQL_FLAGS for rflags; -1: there is none. */
int ct_sql_register(const char *name);
/* Likewise a vector or mask register: xmm0 .. xmm31, whatever its width, k0 .. k7. */
int ct_sql_vector_register(const char *name);

#endif
