/* SPDX-License-Identifier: MIT */
/* The columns of the tables of steps. Numbers of 64 bits are shown as SQLite has them, with a sign. */
#include "sql/steps_internal.h"

#include "ring/itrace_stream.h"
#include "steps/memory.h"
#include "x86/disassemble.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CODE_TEXT = 256 };

static const char *const names[CT_SQL_REGISTERS] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",   "r8",
                                                    "r9",  "r10", "r11", "r12", "r13", "r14", "r15", "rflags"};

int
ct_sql_register(const char *name)
{
  for (int reg = 0; reg < CT_SQL_REGISTERS; reg++) {
    if (strcmp(names[reg], name) == 0) {
      return reg;
    }
  }
  return -1;
}

static void
put_number(sqlite3_context *out, uint64_t value, bool known)
{
  if (known) {
    sqlite3_result_int64(out, (sqlite3_int64)value);
  }
}

static void
put_text(sqlite3_context *out, const char *text)
{
  if (text != NULL && text[0] != 0) {
    sqlite3_result_text(out, text, -1, SQLITE_TRANSIENT);
  }
}

/* As they lie in memory; known: a byte for each, NULL: all are. Nothing when none is. */
static void
put_bytes(sqlite3_context *out, const uint8_t *bytes, const uint8_t *known, size_t count)
{
  char text[2 * CT_SQL_BYTES_MAX + 1];
  bool any = known == NULL && count != 0;
  for (size_t i = 0; i < count; i++) {
    bool is_known = known == NULL || known[i] != 0;
    any |= is_known;
    snprintf(text + 2 * i, 3, is_known ? "%02x" : "??", bytes[i]);
  }
  if (any) {
    sqlite3_result_text(out, text, (int)(2 * count), SQLITE_TRANSIENT);
  }
}

/* function, offset, module of where the instruction is; NULL without one. */
static void
put_name(struct ct_sql_recorded *recorded, const struct ct_sql_row *row, int which, sqlite3_context *out)
{
  if (row->pc == 0) {
    return;
  }
  const struct ct_steps_name *name = ct_sql_recorded_name(recorded, row->step, row->pc);
  if (which == 0) {
    put_text(out, name->function);
  } else if (which == 1) {
    put_number(out, name->offset, name->module != NULL);
  } else if (name->module != NULL) {
    const char *slash = strrchr(name->module, '/');
    put_text(out, slash != NULL ? slash + 1 : name->module);
  }
}

static void
put_code(const struct ct_sql_row *row, sqlite3_context *out)
{
  char text[CODE_TEXT];
  if (row->length != 0) {
    ct_disassemble(row->code, row->length, row->pc, CT_SYNTAX_ATT, text, sizeof(text));
    put_text(out, text);
  }
}

static void
put_source(struct ct_sql_recorded *recorded, const struct ct_sql_row *row, bool is_line, sqlite3_context *out)
{
  uint32_t line;
  const char *file = row->pc != 0 ? ct_steps_names_source(recorded->names, row->step, row->pc, &line) : NULL;
  if (file != NULL && is_line) {
    sqlite3_result_int64(out, line);
  } else {
    put_text(out, file);
  }
}

/* ---- steps ---- */

/* After the common ones: see ct_sql_steps_columns. */
static void
step_column(struct ct_sql_recorded *recorded, const struct ct_sql_row *row, int column, sqlite3_context *out)
{
  static const uint8_t order[] = {0, 3, 1, 2, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15, CT_SQL_FLAGS};
  switch (column) {
  case 0:
  case 1:
    put_bytes(out, row->code, NULL, column == 0 ? row->length : 0);
    if (column == 1) {
      put_number(out, row->made.load_address, row->made.load_size != 0);
    }
    break;
  case 2:
    put_number(out, row->made.load_size, row->made.load_size != 0);
    break;
  case 3:
    put_number(out, row->made.loaded, row->made.load_size != 0);
    break;
  case 4:
  case 5:
    put_source(recorded, row, column == 5, out);
    break;
  default:
    if (column - 6 < (int)sizeof(order)) {
      unsigned reg = order[column - 6];
      put_number(out, row->made.before.value[reg], (row->made.before.unknown >> reg & 1) == 0);
    }
    break;
  }
}

/* ---- writes ---- */

static uint64_t
bytes_of(const struct ct_sql_row *row)
{
  uint64_t all;
  return __builtin_mul_overflow(row->write.size, row->write.count, &all) || all > INT64_MAX ? INT64_MAX : all;
}

static uint64_t
number_of(const uint8_t *bytes, size_t size)
{
  uint64_t value = 0;
  memcpy(&value, bytes, size <= 8 ? size : 8);
  return value;
}

static void
put_old_bytes(sqlite3_context *out, const uint8_t *bytes, const uint8_t *known, uint64_t size, bool as_number)
{
  if (!as_number) {
    put_bytes(out, bytes, known, size);
  } else {
    put_number(out, number_of(bytes, size), memchr(known, 0, size) == NULL);
  }
}

/* What was there before, as far as the trace shows it: the index says which blocks are to be read. */
static void
put_old(struct ct_sql_recorded *recorded, const struct ct_sql_row *row, bool as_number, sqlite3_context *out)
{
  uint8_t bytes[CT_SQL_BYTES_MAX], known[CT_SQL_BYTES_MAX];
  uint64_t size = bytes_of(row);
  if (size == 0 || size > (as_number ? 8 : CT_SQL_BYTES_MAX) || row->write.address + size < row->write.address) {
    return;
  }
  struct ct_sql_followed *followed = recorded->followed;
  if (followed->of != recorded) {
    ct_sql_followed_close(followed);
    *followed = (struct ct_sql_followed){ct_steps_shadow_open(recorded->reader), recorded};
  }
  if (followed->shadow != NULL &&
      ct_steps_shadow_memory(followed->shadow, row->write.address, size, row->step, bytes, known)) {
    put_old_bytes(out, bytes, known, size, as_number);
    return;
  }
  recorded->recall = recorded->recall != NULL ? recorded->recall : ct_steps_recall_open(recorded->reader);
  if (recorded->recall == NULL || ct_steps_recall_memory(recorded->recall, &recorded->index, row->write.address, size,
                                                         row->step, bytes, known) != 0) {
    sqlite3_result_error_nomem(out);
  } else {
    put_old_bytes(out, bytes, known, size, as_number);
  }
}

static void
write_column(struct ct_sql_recorded *recorded, const struct ct_sql_row *row, int column, sqlite3_context *out)
{
  uint32_t known = row->write.known;
  switch (column) {
  case 0:
    put_number(out, bytes_of(row), row->write.size != 0);
    break;
  case 1:
    put_number(out, number_of(row->write.bytes, known), known != 0 && known <= 8);
    break;
  case 4:
    put_old(recorded, row, true, out);
    break;
  case 5:
    put_bytes(out, row->write.bytes, NULL, known);
    break;
  case 6:
    put_old(recorded, row, false, out);
    break;
  case 7:
    put_text(out, row->by == CT_SQL_BY_KERNEL ? "kernel" : row->write.perhaps ? "perhaps" : "step");
    break;
  case 8:
    put_number(out, row->pc, row->pc != 0);
    break;
  default:
    break;
  }
}

static const char *const change_by[] = {"step", "kernel", "signal", "exec", "gap", "begin"};

static void
change_column(const struct ct_sql_row *row, int column, sqlite3_context *out)
{
  switch (column) {
  case 0:
    put_text(out, names[row->change.reg % CT_SQL_REGISTERS]);
    break;
  case 1:
    put_number(out, row->change.value, row->change.value_known);
    break;
  case 2:
    put_number(out, row->change.old, row->change.old_known);
    break;
  case 3:
    put_text(out, change_by[row->by]);
    break;
  case 4:
    put_number(out, row->pc, true);
    break;
  default:
    break;
  }
}

static void
vector_column(const struct ct_sql_row *row, int column, sqlite3_context *out)
{
  char name[8];
  unsigned reg = row->vector.reg;
  switch (column) {
  case 0:
    snprintf(name, sizeof(name), reg < CT_SQL_VECTORS ? "xmm%u" : "k%u", reg % CT_SQL_VECTORS);
    put_text(out, name);
    break;
  case 1:
    put_bytes(out, row->vector.bytes, NULL, row->vector.known);
    break;
  case 2:
    put_bytes(out, row->vector.old, NULL, row->vector.old_known);
    break;
  case 3:
    put_text(out, change_by[row->by]);
    break;
  case 4:
    put_number(out, row->pc, true);
    break;
  default:
    break;
  }
}

/* ---- events ---- */

static void
event_column(const struct ct_sql_row *row, int column, sqlite3_context *out)
{
  static const char *const contexts[] = {"", "", "handler", "exec", "after gap", "begin"};
  static const char *const ends[] = {"asked", "exited", "killed", "failed"};
  unsigned kind = row->event.kind;
  switch (column) {
  case 0:
    put_text(out, kind == CT_STREAM_CONTEXT  ? contexts[row->by]
                  : kind == CT_STREAM_SIGNAL ? "signal"
                  : kind == CT_STREAM_MEMORY ? "kernel wrote"
                  : kind == CT_STREAM_GAP    ? "gap"
                                             : "end");
    break;
  case 1:
    put_number(out, row->event.address, kind != CT_STREAM_GAP && kind != CT_STREAM_END);
    break;
  case 2:
    put_number(out, row->event.size, kind == CT_STREAM_MEMORY || (kind == CT_STREAM_GAP && row->event.size != 0));
    break;
  case 3:
    put_number(out, (uint64_t)(int64_t)row->event.number, kind == CT_STREAM_SIGNAL);
    break;
  case 4:
    put_number(out, (uint64_t)(int64_t)row->event.code, kind == CT_STREAM_SIGNAL || kind == CT_STREAM_END);
    break;
  case 5:
    put_text(out, kind == CT_STREAM_END ? ends[row->event.number & 3] : NULL);
    break;
  default:
    break;
  }
}

static void
block_column(const struct ct_sql_recorded *recorded, const struct ct_sql_row *row, int column, sqlite3_context *out)
{
  const struct ct_steps_place *place = ct_steps_reader_place(recorded->reader, row->block);
  const struct ct_steps_file *head = ct_steps_reader_head(recorded->reader);
  bool has_time = place->first_tsc != 0 && head->tsc_hz != 0;
  const uint64_t numbers[] = {0,
                              (uint64_t)(int64_t)head->tid,
                              (uint64_t)(int64_t)head->pid,
                              row->block,
                              place->first_step,
                              place->steps,
                              (uint64_t)ct_sql_recorded_time(recorded, place->first_tsc),
                              (uint64_t)ct_sql_recorded_time(recorded, place->last_tsc),
                              place->stored};
  if ((size_t)column < sizeof(numbers) / sizeof(numbers[0])) {
    put_number(out, numbers[column], has_time || (column != 6 && column != 7));
  } else {
    put_text(out, recorded->file);
  }
}

/* ---- all ---- */

/* step, tid, process, time, and of those with an instruction function, offset, module, code. */
static bool
common_column(struct ct_sql_recorded *recorded, enum ct_sql_steps_table table, const struct ct_sql_row *row,
              int *column, sqlite3_context *out)
{
  const struct ct_steps_file *head = ct_steps_reader_head(recorded->reader);
  switch (*column) {
  case 0:
    put_number(out, row->step, true);
    return true;
  case 1:
    sqlite3_result_int64(out, head->tid);
    return true;
  case 2:
    sqlite3_result_int64(out, head->pid);
    return true;
  case 3:
    put_number(out, (uint64_t)ct_sql_recorded_time(recorded, row->tsc), row->tsc != 0 && head->tsc_hz != 0);
    return true;
  case 4:
    if (table == CT_SQL_STEPS || table == CT_SQL_STEP_WRITES) {
      put_number(out, table == CT_SQL_STEPS ? row->pc : row->write.address,
                 table == CT_SQL_STEPS || row->write.size != 0);
      return true;
    }
    break;
  default:
    break;
  }
  *column -= table == CT_SQL_STEPS || table == CT_SQL_STEP_WRITES ? 5 : 4;
  if (table == CT_SQL_STEP_EVENTS) {
    return false;
  }
  if (*column < 3) {
    put_name(recorded, row, *column, out);
  } else if (*column == 3) {
    put_code(row, out);
  }
  *column -= 4;
  return *column < 0;
}

void
ct_sql_step_column(struct ct_sql_recorded *recorded, enum ct_sql_steps_table table, const struct ct_sql_row *row,
                   int column, sqlite3_context *out)
{
  if (table == CT_SQL_STEP_BLOCKS) {
    block_column(recorded, row, column, out);
  } else if (common_column(recorded, table, row, &column, out)) {
    return;
  } else if (table == CT_SQL_STEPS) {
    step_column(recorded, row, column, out);
  } else if (table == CT_SQL_STEP_WRITES) {
    write_column(recorded, row, column, out);
  } else if (table == CT_SQL_STEP_CHANGES) {
    change_column(row, column, out);
  } else if (table == CT_SQL_STEP_VECTORS) {
    vector_column(row, column, out);
  } else {
    event_column(row, column, out);
  }
}
