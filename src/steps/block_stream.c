/* SPDX-License-Identifier: MIT */
/*
 * The stream of a thread that readers of blocks and register writes take (docs/format.md has its layout): a record at
 * the end of each block with the values that its instructions wrote into general registers, and events.
 *
 * A block is a stretch of instructions that were executed one after the other. The records of an address have the
 * layout of the last compile event for it: where a block is left early (a signal, a fault), a compile event comes for
 * the part. Registers change outside of blocks where a handler is entered, a program is replaced, or steps are missing:
 * there another start event has all of them.
 */
#include "steps/block_stream.h"

#include "base/error.h"
#include "steps/cursor.h"
#include "steps/names.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EVENT_COMPILE = 1, EVENT_START, EVENT_END, EVENT_PANIC };
enum { REGISTERS = 17, WRITES_MAX = 256 * 16, CODE_MAX = 256 * 15, ANNOUNCED = 1 << 16 };

/* In the order of the stream's context: by numbers of the encoding, rip first. */
static const uint8_t order[REGISTERS - 1] = {15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0};
static const char *const register_names[REGISTERS] = {"rip", "r15", "r14", "r13", "r12", "r11", "r10", "r9", "r8",
                                                      "rdi", "rsi", "rbp", "rsp", "rbx", "rdx", "rcx", "rax"};

struct block {
  uint64_t pc, next; /* where it begins; the address after it so far */
  const struct ct_steps_plan *plan;
  uint32_t steps, writes, code_bytes;
  uint64_t first_step;
  uint32_t where[WRITES_MAX]; /* offset of the instruction in the low half, the register's index above */
  uint64_t values[WRITES_MAX];
  uint8_t code[CODE_MAX];
};

/* The block that the last compile event of an address was for. */
struct announced {
  uint64_t pc;
  const struct ct_steps_plan *plan; /* NULL: of no unit */
  uint32_t steps;
};

struct ct_steps_stream {
  FILE *out;
  struct ct_steps_reader *reader;
  struct ct_steps_names *names;
  size_t modules; /* maps of modules that the names have */
  struct ct_steps_cursor *cursor;
  size_t next; /* block */
  bool is_cut; /* what comes after it would not belong to what came before */
  struct announced *announced;
  struct block block;
  uint64_t context[REGISTERS];
  bool starts; /* a start event is due */
  bool is_new; /* nothing was written yet */
  uint64_t bytes, blocks, compiled, starts_written, unknown, signals, gaps;
  char failure[160];
};

/* ---- bytes ---- */

static void
put(struct ct_steps_stream *s, const void *bytes, size_t size)
{
  fwrite(bytes, 1, size, s->out);
  s->bytes += size;
}

static void
put16(struct ct_steps_stream *s, uint16_t value)
{
  put(s, &value, sizeof(value));
}

static void
put32(struct ct_steps_stream *s, uint32_t value)
{
  put(s, &value, sizeof(value));
}

static void
put64(struct ct_steps_stream *s, uint64_t value)
{
  put(s, &value, sizeof(value));
}

static void
put_event(struct ct_steps_stream *s, uint32_t type, size_t bytes)
{
  put64(s, 0);
  put32(s, type);
  put32(s, (uint32_t)bytes);
}

/* ---- events ---- */

static void
put_start(struct ct_steps_stream *s)
{
  char name[6];
  put_event(s, EVENT_START, 8 + REGISTERS * 8 + REGISTERS * 8);
  put32(s, REGISTERS);
  put32(s, REGISTERS * 8);
  for (unsigned i = 0; i < REGISTERS; i++) {
    uint8_t length = (uint8_t)strlen(register_names[i]), size = 8;
    memset(name, 0, sizeof(name));
    memcpy(name, register_names[i], length);
    put(s, &length, 1);
    put(s, name, sizeof(name));
    put(s, &size, 1);
  }
  put(s, s->context, sizeof(s->context));
  s->starts = false;
  s->starts_written++;
}

static void
put_compile(struct ct_steps_stream *s, const struct block *block)
{
  struct ct_steps_name name;
  char label[600] = "";
  ct_steps_names_of(s->names, block->first_step, block->pc, &name);
  if (name.module != NULL) {
    ct_steps_names_label(s->names, block->first_step, block->pc, label, sizeof(label));
  }
  const char *path = name.module != NULL ? name.module : "";
  size_t label_bytes = strlen(label), path_bytes = strnlen(path, UINT16_MAX);
  put_event(s, EVENT_COMPILE, 44 + 8 * (size_t)block->writes + label_bytes + path_bytes + block->code_bytes);
  put64(s, block->pc);
  put32(s, block->code_bytes);
  put32(s, 8 + 8 * block->writes);
  put16(s, (uint16_t)block->writes);
  put16(s, (uint16_t)label_bytes);
  put64(s, 0); /* where its copy was, which the recording does not keep */
  put32(s, 0);
  put64(s, name.base);
  put16(s, (uint16_t)path_bytes);
  put16(s, 0);
  for (uint32_t i = 0; i < block->writes; i++) {
    put32(s, block->where[i] & 0xffff);
    put32(s, block->where[i] >> 16);
  }
  put(s, label, label_bytes);
  put(s, path, path_bytes);
  put(s, block->code, block->code_bytes);
  s->compiled++;
}

static void
put_panic(struct ct_steps_stream *s, const char *text)
{
  put_event(s, EVENT_PANIC, strlen(text));
  put(s, text, strlen(text));
}

/* ---- blocks ---- */

static void
end_block(struct ct_steps_stream *s)
{
  struct block *block = &s->block;
  if (block->steps == 0) {
    return;
  }
  struct announced *a = &s->announced[(block->pc ^ block->pc >> 16) % ANNOUNCED];
  if (a->pc != block->pc || a->plan != block->plan || block->plan == NULL || a->steps != block->steps) {
    put_compile(s, block);
    *a = (struct announced){block->pc, block->plan, block->steps};
  }
  put64(s, block->pc);
  put(s, block->values, 8 * (size_t)block->writes);
  s->blocks++;
  block->steps = 0;
}

static void
begin_block(struct ct_steps_stream *s, const struct ct_steps_step *step)
{
  struct block *block = &s->block;
  if (s->starts) {
    put_start(s);
  }
  block->pc = step->pc;
  block->plan = step->plan;
  block->first_step = step->number;
  block->writes = block->code_bytes = 0;
}

static void
add_step(struct ct_steps_stream *s, const struct ct_steps_step *step, const struct ct_steps_state *after)
{
  struct block *block = &s->block;
  uint16_t written = step->plan != NULL ? step->effects->writes : 0xffff;
  for (unsigned i = 0; i < REGISTERS - 1; i++) {
    if ((written >> order[i] & 1) != 0) {
      bool known = (after->unknown >> order[i] & 1) == 0;
      s->unknown += !known;
      block->where[block->writes] = block->code_bytes | (i + 1) << 16;
      block->values[block->writes++] = known ? after->cpu.reg[order[i]] : 0;
    }
  }
  memcpy(block->code + block->code_bytes, step->code, step->length);
  block->code_bytes += step->length;
  block->steps++;
  block->next = step->pc + step->length;
}

static bool
visit_step(void *context, const struct ct_steps_step *step, const struct ct_steps_cursor *cursor)
{
  struct ct_steps_stream *s = context;
  struct block *block = &s->block;
  bool goes_on = block->steps != 0 && step->plan != NULL && step->plan == block->plan && step->pc == block->next &&
                 step->pc != step->plan->pc && block->steps < 256;
  if (!goes_on) {
    end_block(s);
    begin_block(s, step);
  }
  add_step(s, step, ct_steps_cursor_state(cursor));
  return !ferror(s->out);
}

static void
visit_event(void *argument, const struct ct_steps_event *event)
{
  struct ct_steps_stream *s = argument;
  struct ct_stream_context context;
  struct ct_stream_end end;
  s->signals += event->kind == CT_STREAM_SIGNAL;
  s->gaps += event->kind == CT_STREAM_GAP;
  if (event->kind == CT_STREAM_END) {
    memcpy(&end, event->data, sizeof(end));
    if (end.reason == CT_STREAM_FAILED) {
      snprintf(s->failure, sizeof(s->failure), "the recorder failed");
    }
  }
  if (event->kind != CT_STREAM_CONTEXT) {
    return;
  }
  memcpy(&context, event->data, sizeof(context));
  if (context.reason == CT_CONTEXT_STEP || (context.reason == CT_CONTEXT_SEGMENT && !s->is_new)) {
    return;
  }
  end_block(s);
  s->is_new = false;
  s->starts = true;
  s->context[0] = context.rip;
  for (unsigned i = 0; i < REGISTERS - 1; i++) {
    s->context[i + 1] = context.reg[order[i]];
  }
}

/* ---- all of it ---- */

void
ct_steps_stream_more(struct ct_steps_stream *s)
{
  const struct ct_steps_modules *modules;
  size_t count = ct_steps_reader_modules(s->reader, &modules);
  while (s->modules < count && ct_steps_names_add(s->names, &modules[s->modules]) == 0) {
    s->modules++;
  }
  for (; s->next < ct_steps_reader_blocks(s->reader) && !s->is_cut && !ferror(s->out); s->next++) {
    s->is_cut = ct_steps_reader_place(s->reader, s->next)->after_hole || ct_steps_cursor_holes(s->cursor) != 0;
    if (!s->is_cut) {
      ct_steps_cursor_scan(s->cursor, s->next, UINT64_MAX, visit_step, s);
    }
  }
}

static void
fill(const struct ct_steps_stream *s, struct ct_steps_streamed *streamed)
{
  streamed->blocks = s->blocks;
  streamed->bytes = s->bytes;
  int n = snprintf(streamed->left_out, sizeof(streamed->left_out),
                   "flags, vector registers, memory, times; %" PRIu64 " signals and %" PRIu64 " gaps are start events",
                   s->signals, s->gaps);
  if (s->unknown != 0) {
    n += snprintf(streamed->left_out + n, sizeof(streamed->left_out) - (size_t)n,
                  "; %" PRIu64 " register values that are not known are 0", s->unknown);
  }
  if (ct_steps_reader_damage(s->reader)[0] != '\0') {
    snprintf(streamed->left_out + n, sizeof(streamed->left_out) - (size_t)n, "; DAMAGED, it ends there: %s",
             ct_steps_reader_damage(s->reader));
  }
}

static int
open_output(const char *path, FILE **out, struct ct_diag *diag)
{
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  *out = fd >= 0 ? fdopen(fd, "w") : NULL;
  if (*out != NULL) {
    return 0;
  }
  int saved = errno;
  if (fd >= 0) {
    close(fd);
    unlink(path);
  }
  return ct_fail(diag, ct_err_from_errno(saved), "cannot create %s: %s", path, strerror(saved));
}

void
ct_steps_stream_free(struct ct_steps_stream *s)
{
  if (s != NULL) {
    ct_steps_cursor_close(s->cursor);
    ct_steps_names_free(s->names);
    free(s->announced);
    free(s);
  }
}

int
ct_steps_stream_create(struct ct_steps_reader *reader, FILE *out, struct ct_steps_stream **created)
{
  struct ct_steps_stream *s = calloc(1, sizeof(*s));
  if (s == NULL) {
    return CT_ENOMEM;
  }
  s->reader = reader;
  s->out = out;
  s->starts = s->is_new = true;
  s->names = ct_steps_names_create(NULL);
  s->announced = calloc(ANNOUNCED, sizeof(*s->announced));
  s->cursor = ct_steps_cursor_open(reader);
  if (s->names == NULL || s->announced == NULL || s->cursor == NULL) {
    ct_steps_stream_free(s);
    return CT_ENOMEM;
  }
  ct_steps_cursor_events(s->cursor, visit_event, s);
  *created = s;
  return 0;
}

void
ct_steps_stream_end(struct ct_steps_stream *s, struct ct_steps_streamed *streamed)
{
  end_block(s);
  if (ct_steps_reader_damage(s->reader)[0] != '\0') {
    put_panic(s, ct_steps_reader_damage(s->reader));
  } else if (s->failure[0] != '\0') {
    put_panic(s, s->failure);
  } else {
    put_event(s, EVENT_END, 0);
  }
  fill(s, streamed);
}

/* The code, or what closing has come to; a file that is not whole goes. */
static int
close_output(FILE *out, const char *path, int code, struct ct_diag *diag)
{
  bool failed = fflush(out) != 0 || ferror(out) != 0;
  int saved = errno;
  failed = fclose(out) != 0 || failed;
  if (failed && code == 0) {
    code = ct_fail(diag, saved == ENOSPC ? CT_ENOSPC : CT_EIO, "cannot write %s: %s", path, strerror(saved));
  }
  if (code != 0) {
    unlink(path);
  }
  return code;
}

int
ct_steps_stream_write(const char *file, const char *path, struct ct_steps_streamed *streamed, struct ct_diag *diag)
{
  struct ct_steps_reader *reader;
  struct ct_steps_stream *s = NULL;
  FILE *out;
  int code = ct_steps_reader_open(file, &reader, diag);
  if (code != 0) {
    return code;
  }
  code = open_output(path, &out, diag);
  if (code != 0) {
    goto close_reader;
  }
  code = ct_steps_stream_create(reader, out, &s);
  if (code != 0) {
    ct_fail(diag, code, "out of memory for the stream");
    goto close_out;
  }
  ct_steps_stream_more(s);
  ct_steps_stream_end(s, streamed);
close_out:
  code = close_output(out, path, code, diag);
  ct_steps_stream_free(s);
close_reader:
  ct_steps_reader_close(reader);
  return code;
}
