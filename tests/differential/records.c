/* SPDX-License-Identifier: MIT */
/* See records.h. */
#include "records.h"

#include "steps/cursor.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WINDOW      ((uint64_t)CT_ITRACE_BLOCKS << CT_ITRACE_BLOCK_SHIFT_OLD) /* the larger ones */
#define SLACK       (1ull << 20)
#define WINDOWS_AT  0x180000000000ull
#define WINDOW_STEP (4 * WINDOW)

static struct {
  char path[64];
  struct ct_process process;
  bool has_process;
} records;

/* The tracer's own asks ptrace: this thread is not traced, but stopped in a handler. Linked in its place (--wrap). */
bool __wrap_ct_vectors_read(pid_t tid, uint8_t *state);
bool
__wrap_ct_vectors_read(pid_t tid, uint8_t *state)
{
  (void)tid;
  machine_picture(state);
  return true;
}

int
records_set_up(void)
{
  struct ct_diag diag;
  snprintf(records.path, sizeof(records.path), "/tmp/contrail-differential.%d", (int)getpid());
  records.has_process = ct_process_open(getpid(), &records.process, &diag) == 0;
  for (uint64_t i = 0; i < CT_SEGMENTS; i++) {
    void *at = (void *)(WINDOWS_AT + i * WINDOW_STEP);
    void *got = mmap(at, WINDOW + SLACK, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != at) {
      return -1;
    }
  }
  return records.has_process ? 0 : -1;
}

void
records_tear_down(void)
{
  for (uint64_t i = 0; i < CT_SEGMENTS; i++) {
    munmap((void *)(WINDOWS_AT + i * WINDOW_STEP), WINDOW + SLACK);
  }
  if (records.has_process) {
    ct_process_close(&records.process, false);
  }
  unlink(records.path);
}

bool
records_begin(struct ct_tracer *tracer, bool has_vectors, bool has_bmi2, struct ct_translation_place *place)
{
  struct ct_recorder_options options = {.path = records.path, .has_vectors = has_vectors, .is_lossless = true};
  struct ct_itrace_space *space = tracer->space;
  struct ct_diag diag;
  unlink(records.path);
  if (ct_recorder_create(&options, getpid(), getpid(), &tracer->recorder, &diag) != 0) {
    tracer->recorder = NULL;
    return false;
  }
  space->process = &records.process;
  space->block_bytes = 1ull << (has_bmi2 ? CT_ITRACE_BLOCK_SHIFT : CT_ITRACE_BLOCK_SHIFT_OLD);
  for (uint64_t i = 0; i < CT_SEGMENTS; i++) {
    uint64_t at = WINDOWS_AT + i * WINDOW_STEP + space->block_bytes;
    space->segments[i] = (struct ct_record_segment){at, (uint8_t *)at};
  }
  place->records = true;
  place->has_vectors = has_vectors;
  place->has_bmi2 = has_bmi2;
  return true;
}

void
records_enter(struct ct_tracer *tracer)
{
  ct_recorder_enter(tracer->recorder, tracer->space, getpid());
}

void
records_fill(struct ct_tracer *tracer, unsigned block)
{
  uint8_t *blocks = (uint8_t *)tracer->space->slots + CT_ITRACE_BLOCKS_AT;
  memset(blocks + block, 0, CT_ITRACE_BLOCKS - block);
  memset(blocks + CT_ITRACE_BLOCKS + block, CT_ITRACE_BLOCK_FULL, CT_ITRACE_BLOCKS - block);
}

const char *
records_end(struct ct_tracer *tracer)
{
  static struct ct_diag diag;
  struct ct_recorder_counts counts;
  ct_recorder_end(tracer->recorder, CT_STREAM_ASKED, 0);
  int code = ct_recorder_finish(tracer->recorder, &counts, &diag);
  tracer->recorder = NULL;
  tracer->space->block_bytes = 0;
  return code != 0 ? diag.text : counts.lost != 0 ? "records are lost" : NULL;
}

/* ---- the reader ---- */

static bool
has_vectors_of(const struct ct_steps_state *got, struct machine *real, char *text, size_t size, bool *is_all)
{
  unsigned bytes = 16 * machine_vector_parts();
  *is_all = true;
  for (unsigned n = 0; n < machine_vector_count(); n++) {
    unsigned known = got->vectors_known[n] < bytes ? got->vectors_known[n] : bytes;
    *is_all &= known == bytes;
    for (unsigned part = 0; 16 * part < known; part++) {
      if (memcmp(got->vector[n] + 16 * part, machine_vector(real, n, part), 16) != 0) {
        snprintf(text, size, "vector register %u, bytes %u on", n, 16 * part);
        return false;
      }
    }
  }
  for (unsigned n = 0; n < 8 && machine_mask(real, n) != NULL; n++) {
    bool is_known = (got->masks_known >> n & 1) != 0;
    *is_all &= is_known;
    if (is_known && memcmp(&got->mask[n], machine_mask(real, n), 8) != 0) {
      snprintf(text, size, "mask register %u", n);
      return false;
    }
  }
  return true;
}

static bool
is_state(const struct ct_steps_state *got, const struct records_state *real, char *text, size_t size)
{
  for (unsigned r = 0; r < 16; r++) {
    if ((got->unknown >> r & 1) == 0 && got->cpu.reg[r] != real->reg[r]) {
      snprintf(text, size, "register %u is %#llx, not %#llx", r, (unsigned long long)got->cpu.reg[r],
               (unsigned long long)real->reg[r]);
      return false;
    }
  }
  if (((got->cpu.flags ^ real->flags) & MACHINE_FLAGS & ~(uint64_t)got->cpu.unknown) != 0) {
    snprintf(text, size, "flags are %#llx, not %#llx", (unsigned long long)got->cpu.flags,
             (unsigned long long)real->flags);
    return false;
  }
  if (!got->rip_unknown && got->cpu.rip != real->rip) {
    snprintf(text, size, "it goes to %#llx, not %#llx", (unsigned long long)got->cpu.rip,
             (unsigned long long)real->rip);
    return false;
  }
  return true;
}

static void
count_context(void *context, const struct ct_steps_event *event)
{
  struct records_count *counts = context;
  counts->contexts += event->kind == CT_STREAM_CONTEXT;
}

/* NULL: every step was as it should be; *at is the last native state. */
static const char *
walk(struct ct_steps_cursor *cursor, bool has_vectors, unsigned count, unsigned *at, records_state_of *state_of,
     struct records_count *counts)
{
  static char text[160];
  const struct ct_steps_step *step;
  struct records_state here, next;
  bool is_all;
  while ((step = ct_steps_cursor_next(cursor)) != NULL) {
    state_of(*at, &here);
    if (step->pc != here.rip || *at + 1 >= count) {
      snprintf(text, sizeof(text), "a step at %#llx", (unsigned long long)step->pc);
      return text;
    }
    bool is_repeated = step->effects != NULL && (step->effects->traits & (CT_EFFECT_REP | CT_EFFECT_REPNE)) != 0;
    do {
      state_of(++*at, &next);
    } while (is_repeated && next.rip == here.rip && *at + 1 < count);
    const struct ct_steps_state *state = ct_steps_cursor_state(cursor);
    if (!is_state(state, &next, text, sizeof(text)) ||
        (has_vectors && !has_vectors_of(state, next.vectors, text, sizeof(text), &is_all))) {
      return text;
    }
    counts->steps++;
    counts->vectors += has_vectors && is_all;
  }
  return ct_steps_cursor_inconsistent(cursor) != 0 ? "records contradict each other" : NULL;
}

/* Of a string instruction that has not ended there is no step. */
static unsigned
repeats_after(unsigned at, unsigned count, records_state_of *state_of)
{
  struct records_state here, next;
  unsigned repeats = 0;
  state_of(at, &here);
  while (at + repeats + 1 < count) {
    state_of(at + repeats + 1, &next);
    if (next.rip != here.rip) {
      break;
    }
    repeats++;
  }
  return repeats;
}

bool
records_compare(unsigned count, unsigned hidden, records_state_of *state_of, struct records_count *counts, char *text,
                size_t size)
{
  struct ct_steps_reader *reader;
  struct ct_diag diag = {""};
  unsigned at = 0;
  if (ct_steps_reader_open(records.path, &reader, &diag) != 0) {
    snprintf(text, size, "the reader: %s", diag.text);
    return false;
  }
  struct ct_steps_cursor *cursor = ct_steps_cursor_open(reader);
  ct_steps_cursor_events(cursor, count_context, counts);
  const char *why = walk(cursor, ct_steps_reader_head(reader)->has_vectors != 0, count, &at, state_of, counts);
  const char *damage = ct_steps_reader_damage(reader);
  if (why != NULL || damage[0] != 0) {
    snprintf(text, size, "the reader, state %u: %s%s", at, why != NULL ? why : "", damage);
  } else if (at + 1 + hidden + repeats_after(at, count, state_of) < count) {
    snprintf(text, size, "the reader ends at state %u of %u", at, count);
    why = text;
  }
  ct_steps_cursor_close(cursor);
  ct_steps_reader_close(reader);
  return why == NULL && damage[0] == 0;
}
