/* SPDX-License-Identifier: MIT */
/*
 * The tables of instructions: which of a WHERE is used to leave blocks out (by the letters of the plan), thread after
 * thread, the blocks forward or, for ORDER BY step DESC, backward. SQLite looks at every row again, but for the bytes
 * of writes(ADDRESS, SIZE), which are exact.
 */
#include "sql/sql_internal.h"
#include "sql/sql_steps.h"

#include "base/clock.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

#define COMMON      "step INTEGER, tid INTEGER, process INTEGER, time INTEGER, "
#define INSTRUCTION "function TEXT, \"offset\" INTEGER, module TEXT, code TEXT, "

/* Numbers of columns that are pushed down: step, tid, time are 0, 1, 3 in all tables but step_blocks. */
static const struct definition {
  const char *name, *columns;
  enum ct_sql_steps_table table;
  int address, function, reg, bytes, size; /* -1: it has none */
} definitions[] = {
    {"steps",
     COMMON "address INTEGER, " INSTRUCTION "bytes TEXT, load_address INTEGER, load_size INTEGER, loaded INTEGER, "
            "file TEXT, line INTEGER, rax INTEGER, rbx INTEGER, rcx INTEGER, rdx INTEGER, rsi INTEGER, rdi INTEGER, "
            "rbp INTEGER, rsp INTEGER, r8 INTEGER, r9 INTEGER, r10 INTEGER, r11 INTEGER, r12 INTEGER, r13 INTEGER, r14 "
            "INTEGER, r15 INTEGER, rflags INTEGER",
     CT_SQL_STEPS, 4, 5, -1, -1, -1},
    {"writes",
     COMMON "address INTEGER, " INSTRUCTION
            "size INTEGER, value INTEGER, at_address INTEGER HIDDEN, at_size INTEGER HIDDEN, old_value INTEGER HIDDEN, "
            "bytes TEXT, old_bytes TEXT HIDDEN, \"by\" TEXT, pc INTEGER",
     CT_SQL_STEP_WRITES, 4, 5, -1, 11, 12},
    {"changes", COMMON INSTRUCTION "register TEXT, value INTEGER, old_value INTEGER, \"by\" TEXT, pc INTEGER",
     CT_SQL_STEP_CHANGES, -1, 4, 8, -1, -1},
    {"vector_changes", COMMON INSTRUCTION "register TEXT, bytes TEXT, old_bytes TEXT, \"by\" TEXT, pc INTEGER",
     CT_SQL_STEP_VECTORS, -1, 4, 8, -1, -1},
    {"step_events", COMMON "type TEXT, address INTEGER, size INTEGER, signal INTEGER, code INTEGER, reason TEXT",
     CT_SQL_STEP_EVENTS, -1, -1, -1, -1, -1},
    {"step_blocks",
     "id INTEGER, tid INTEGER, process INTEGER, number INTEGER, first_step INTEGER, steps INTEGER, start INTEGER, "
     "\"end\" INTEGER, bytes INTEGER, file TEXT",
     CT_SQL_STEP_BLOCKS, -1, -1, -1, -1, -1},
};
enum { DEFINITIONS = sizeof(definitions) / sizeof(definitions[0]), DESCENDING = 1 };

struct steps_table {
  struct ct_sql_table base;
  const struct definition *definition;
};

struct steps_cursor {
  sqlite3_vtab_cursor base;
  struct ct_sql *sql;
  const struct definition *definition;
  struct ct_sql_steps_wanted wanted;
  size_t thread;                /* among sql->recorded; as many: the end */
  struct ct_sql_search *search; /* NULL: none has begun */
  size_t block, block_count;    /* the next one, counted from the end when it goes back */
  bool has_more;                /* of the block */
  struct ct_sql_step_rows rows;
  size_t at;
  int64_t blocks_before; /* rows of threads before this one, of step_blocks */
};

struct registration {
  struct ct_sql *sql;
  const struct definition *definition;
};

static int
steps_connect(sqlite3 *db, void *aux, int argc, const char *const *argv, sqlite3_vtab **out, char **error)
{
  (void)db;
  (void)argc;
  (void)argv;
  (void)error;
  const struct registration *registration = aux;
  int code = ct_sql_connect(registration->sql, registration->definition->columns, sizeof(struct steps_table), out);
  if (code == SQLITE_OK) {
    ((struct steps_table *)*out)->definition = registration->definition;
  }
  return code;
}

/* ---- plans ---- */

/* The letter for a condition, 0: it is of no use here. */
static char
letter_of(const struct definition *d, int column, unsigned char op)
{
  bool eq = op == SQLITE_INDEX_CONSTRAINT_EQ;
  bool least = op == SQLITE_INDEX_CONSTRAINT_GE || op == SQLITE_INDEX_CONSTRAINT_GT;
  bool most = op == SQLITE_INDEX_CONSTRAINT_LE || op == SQLITE_INDEX_CONSTRAINT_LT;
  if (d->table == CT_SQL_STEP_BLOCKS) {
    return column == 1 && eq ? 't' : 0;
  }
  if (column == 0 || column == 3 || (column == d->address && column > 0)) {
    static const char letters[3][4] = {"isS", "xyX", "aAZ"};
    const char *own = letters[column == 0 ? 0 : column == 3 ? 1 : 2];
    return eq ? own[0] : least ? own[1] : most ? own[2] : 0;
  }
  return !eq                                  ? 0
         : column == 1                        ? 't'
         : column == d->function              ? 'f'
         : column == d->reg && d->reg > 0     ? 'r'
         : column == d->bytes && d->bytes > 0 ? 'b'
         : column == d->size && d->size > 0   ? 'n'
                                              : 0;
}

static double
share_of(char letter)
{
  switch (letter) {
  case 'i':
  case 'b':
    return 1e-6;
  case 'a':
    return 1e-4;
  case 'f':
    return 1e-2;
  default:
    return 0.3;
  }
}

static int
steps_best(sqlite3_vtab *base, sqlite3_index_info *info)
{
  const struct steps_table *table = (struct steps_table *)base;
  char letters[24];
  int count = 0;
  double rows = 1e9;
  for (int i = 0; i < info->nConstraint && count < (int)sizeof(letters) - 1; i++) {
    const struct sqlite3_index_constraint *constraint = &info->aConstraint[i];
    char letter = letter_of(table->definition, constraint->iColumn, constraint->op);
    if ((letter == 'b' || letter == 'n') && !constraint->usable) {
      return SQLITE_CONSTRAINT; /* arguments: not without them */
    }
    if (letter == 0 || !constraint->usable || !ct_sql_is_binary(info, i) ||
        memchr(letters, letter, (size_t)count) != NULL) {
      continue;
    }
    letters[count++] = letter;
    info->aConstraintUsage[i].argvIndex = count;
    info->aConstraintUsage[i].omit = letter == 'b' || letter == 'n';
    rows *= share_of(letter);
  }
  letters[count] = '\0';
  bool by_step =
      info->nOrderBy == 1 && info->aOrderBy[0].iColumn == 0 && table->definition->table != CT_SQL_STEP_BLOCKS;
  if (by_step && (table->base.sql->recorded_count <= 1 || memchr(letters, 't', (size_t)count) != NULL)) {
    info->idxNum = info->aOrderBy[0].desc ? DESCENDING : 0;
    info->orderByConsumed = 1;
  }
  info->idxStr = sqlite3_mprintf("%s", letters);
  info->needToFreeIdxStr = 1;
  info->estimatedRows = rows < 1 ? 1 : (sqlite3_int64)rows;
  info->estimatedCost = rows < 1000 ? 1000 : rows;
  return info->idxStr != NULL ? SQLITE_OK : SQLITE_NOMEM;
}

/* ---- the query ---- */

static int
steps_open(sqlite3_vtab *base, sqlite3_vtab_cursor **out)
{
  struct steps_cursor *cursor = calloc(1, sizeof(*cursor));
  if (cursor == NULL) {
    return SQLITE_NOMEM;
  }
  cursor->sql = ((struct ct_sql_table *)base)->sql;
  cursor->definition = ((struct steps_table *)base)->definition;
  *out = &cursor->base;
  return SQLITE_OK;
}

static void
close_search(struct steps_cursor *c)
{
  ct_sql_search_close(c->search);
  c->search = NULL;
  c->has_more = false;
}

static int
steps_close(sqlite3_vtab_cursor *base)
{
  struct steps_cursor *c = (struct steps_cursor *)base;
  close_search(c);
  free(c->wanted.function);
  free(c->rows.rows);
  free(c);
  return SQLITE_OK;
}

static void
take_function(struct ct_sql_steps_wanted *wanted, sqlite3_value *value)
{
  const char *name = sqlite3_value_type(value) == SQLITE_TEXT ? (const char *)sqlite3_value_text(value) : NULL;
  wanted->is_empty |= name == NULL;
  if (name != NULL && strpbrk(name, "*?[]\\{},!@:()<> ") == NULL && wanted->function == NULL) {
    wanted->function = strdup(name); /* without it all functions are looked at */
  }
}

static void
take_step(struct ct_sql_steps_wanted *wanted, char letter, sqlite3_int64 number)
{
  wanted->is_empty |= letter != 's' && number < 0;
  uint64_t step = number < 0 ? 0 : (uint64_t)number;
  if (letter != 'S' && step > wanted->from) {
    wanted->from = step;
  }
  if (letter != 's' && step < wanted->to) {
    wanted->to = step;
  }
}

/* Addresses of the upper half are negative numbers here: a range is used when it is in the lower half only. */
static void
take_address(struct ct_sql_steps_wanted *wanted, char letter, sqlite3_int64 number)
{
  uint64_t address = (uint64_t)number;
  if (letter == 'a') {
    wanted->has_address = true;
    wanted->address = wanted->address_end = address;
  } else if (letter == 'A' && number >= 0 && !wanted->has_address) {
    wanted->has_address = true;
    wanted->address = address;
    wanted->address_end = INT64_MAX;
  }
}

static void
take_argument(struct ct_sql_steps_wanted *wanted, char letter, sqlite3_value *value)
{
  int type = sqlite3_value_type(value);
  sqlite3_int64 number = sqlite3_value_int64(value);
  if (letter == 'f') {
    take_function(wanted, value);
    return;
  }
  if (letter == 'r') {
    const char *name = type == SQLITE_TEXT ? (const char *)sqlite3_value_text(value) : NULL;
    bool is_vector = wanted->table == CT_SQL_STEP_VECTORS;
    wanted->reg = name == NULL ? -1 : is_vector ? ct_sql_vector_register(name) : ct_sql_register(name);
    wanted->is_empty |= wanted->reg < 0;
    return;
  }
  if (type != SQLITE_INTEGER) {
    wanted->is_empty |= type == SQLITE_NULL;
    return; /* SQLite compares it by its own rules */
  }
  switch (letter) {
  case 'i':
  case 's':
  case 'S':
    take_step(wanted, letter, number);
    break;
  case 'x':
  case 'y':
  case 'X':
    wanted->from_ns = letter != 'X' && number > wanted->from_ns ? number : wanted->from_ns;
    wanted->to_ns = letter != 'y' && number < wanted->to_ns ? number : wanted->to_ns;
    break;
  case 't':
    wanted->has_tid = true;
    wanted->tid = (uint32_t)number;
    wanted->is_empty |= number < 0 || number > UINT32_MAX;
    break;
  case 'b':
    wanted->has_bytes = true;
    wanted->bytes = (uint64_t)number;
    break;
  default:
    take_address(wanted, letter, number);
    break;
  }
}

static void
take_arguments(struct ct_sql_steps_wanted *wanted, const char *plan, int argc, sqlite3_value **argv)
{
  int64_t size = 1, most = -1;
  for (int i = 0; i < argc; i++) {
    take_argument(wanted, plan[i], argv[i]);
    size = plan[i] == 'n' ? sqlite3_value_int64(argv[i]) : size;
    most = plan[i] == 'Z' ? sqlite3_value_int64(argv[i]) : most;
  }
  if (wanted->has_address && wanted->address_end == INT64_MAX && most >= 0) {
    wanted->address_end = (uint64_t)most;
    wanted->is_empty |= wanted->address > wanted->address_end;
  }
  if (wanted->has_bytes) {
    wanted->is_empty |= size <= 0;
    wanted->bytes_end = wanted->bytes + (uint64_t)size - 1;
    wanted->bytes_end = wanted->bytes_end < wanted->bytes ? UINT64_MAX : wanted->bytes_end;
  }
}

/* ---- rows ---- */

bool
ct_sql_is_over(struct ct_sql *sql)
{
  sql->timed_out = sql->timed_out || (sql->deadline_ns != 0 && ct_now_ns() > sql->deadline_ns);
  return sql->timed_out || sql->interrupted != 0;
}

static int
begin_thread(struct steps_cursor *c)
{
  struct ct_sql_recorded *recorded = c->sql->recorded[c->thread];
  c->block = c->block_count = 0;
  if (c->wanted.has_tid && ct_sql_recorded_tid(recorded) != c->wanted.tid) {
    return SQLITE_OK;
  }
  c->search = ct_sql_search_open(recorded, &c->wanted);
  c->block_count = ct_sql_recorded_blocks(recorded);
  return c->search != NULL ? SQLITE_OK : SQLITE_NOMEM;
}

static void
end_thread(struct steps_cursor *c)
{
  c->blocks_before += (int64_t)ct_sql_recorded_blocks(c->sql->recorded[c->thread]);
  close_search(c);
  c->thread++;
}

/* The rows of the next block that has any; at the end c->thread is the count of threads. */
static int
fill(struct steps_cursor *c)
{
  c->at = c->rows.count = 0;
  while (c->rows.count == 0 && c->thread < c->sql->recorded_count) {
    int code = c->search != NULL ? SQLITE_OK : begin_thread(c);
    if (code != SQLITE_OK) {
      return code;
    }
    while (c->has_more && c->rows.count == 0) {
      c->has_more = ct_sql_search_more(c->search, &c->rows);
    }
    while (c->search != NULL && c->rows.count == 0 && c->block < c->block_count) {
      size_t block = c->wanted.descending ? c->block_count - 1 - c->block : c->block;
      c->block++;
      if (ct_sql_is_over(c->sql)) {
        return SQLITE_INTERRUPT;
      }
      if (ct_sql_search_may(c->search, block)) {
        c->has_more = ct_sql_search_block(c->search, block, &c->rows);
      }
      if (c->rows.failed) {
        return SQLITE_NOMEM;
      }
    }
    if (c->rows.count == 0) {
      end_thread(c);
    }
  }
  return SQLITE_OK;
}

static int
steps_filter(sqlite3_vtab_cursor *base, int plan, const char *letters, int argc, sqlite3_value **argv)
{
  struct steps_cursor *c = (struct steps_cursor *)base;
  close_search(c);
  free(c->wanted.function);
  c->wanted = (struct ct_sql_steps_wanted){.table = c->definition->table,
                                           .descending = (plan & DESCENDING) != 0,
                                           .to = UINT64_MAX,
                                           .from_ns = INT64_MIN,
                                           .to_ns = INT64_MAX,
                                           .reg = -1};
  take_arguments(&c->wanted, letters, argc, argv);
  c->thread = c->wanted.is_empty || c->wanted.from > c->wanted.to ? c->sql->recorded_count : 0;
  c->rows.count = 0;
  c->blocks_before = 0;
  return fill(c);
}

static int
steps_next(sqlite3_vtab_cursor *base)
{
  struct steps_cursor *c = (struct steps_cursor *)base;
  c->at++;
  return c->at < c->rows.count ? SQLITE_OK : fill(c);
}

static int
steps_eof(sqlite3_vtab_cursor *base)
{
  const struct steps_cursor *c = (struct steps_cursor *)base;
  return c->thread >= c->sql->recorded_count;
}

static const struct ct_sql_row *
row_at(const struct steps_cursor *c)
{
  return &c->rows.rows[c->wanted.descending ? c->rows.count - 1 - c->at : c->at];
}

static int
steps_column(sqlite3_vtab_cursor *base, sqlite3_context *out, int column)
{
  struct steps_cursor *c = (struct steps_cursor *)base;
  const struct definition *d = c->definition;
  if (d->bytes > 0 && (column == d->bytes || column == d->size)) {
    if (c->wanted.has_bytes) {
      sqlite3_result_int64(
          out, (sqlite3_int64)(column == d->bytes ? c->wanted.bytes : c->wanted.bytes_end - c->wanted.bytes + 1));
    }
    return SQLITE_OK;
  }
  const struct ct_sql_row *row = row_at(c);
  if (d->table == CT_SQL_STEP_BLOCKS && column == 0) {
    sqlite3_result_int64(out, c->blocks_before + (int64_t)row->block);
  } else {
    ct_sql_step_column(c->sql->recorded[c->thread], d->table, row, column, out);
  }
  return SQLITE_OK;
}

/* The same whatever the query asks for: of rows of a step that are alike it asks for all, or for none. */
static int
steps_rowid(sqlite3_vtab_cursor *base, sqlite3_int64 *number)
{
  const struct steps_cursor *c = (const struct steps_cursor *)base;
  const struct ct_sql_row *row = row_at(c);
  if (c->wanted.table == CT_SQL_STEP_BLOCKS) {
    *number = c->blocks_before + (int64_t)row->block;
    return SQLITE_OK;
  }
  uint64_t hash = ct_sql_step_row_hash(c->wanted.table, row), alike = 0;
  for (const struct ct_sql_row *before = row; before-- != c->rows.rows && before->step == row->step;) {
    alike += ct_sql_step_row_hash(c->wanted.table, before) == hash;
  }
  int64_t asked = c->wanted.has_bytes ? ct_sql_row_number(c->wanted.bytes, c->wanted.bytes_end, 1) : 0;
  *number = ct_sql_row_number(c->thread, row->step, hash) ^ ct_sql_row_number(alike, (uint64_t)asked, 0);
  return SQLITE_OK;
}

CT_SQL_MODULE(steps);

int
ct_sql_steps_register(struct ct_sql *sql)
{
  for (int i = 0; i < DEFINITIONS; i++) {
    struct registration *registration = malloc(sizeof(*registration));
    if (registration == NULL) {
      return CT_ENOMEM;
    }
    *registration = (struct registration){sql, &definitions[i]};
    if (sqlite3_create_module_v2(sql->db, definitions[i].name, &steps_module, registration, free) != SQLITE_OK) {
      return CT_ENOMEM;
    }
  }
  return 0;
}
