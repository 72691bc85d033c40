/* SPDX-License-Identifier: MIT */
/* See view.h. Values are hexadecimal; "?" stands for what is not known. */
#include "steps/view.h"

#include "base/json.h"
#include "steps/put.h"

#include <inttypes.h>
#include <string.h>
#include <sys/wait.h>

/*
 * A line without the source's: the part of the cache, and in JSON all registers twice: 32 vector registers of 140 bytes
 * and 16 others of 30 are some 5 KiB.
 */
enum { LINE_BYTES = CT_LINE_PART_BYTES + 16384 };

static const struct flag {
  const char *name;
  uint64_t bit;
} flags[] = {{"CF", CT_FLAG_CF}, {"PF", CT_FLAG_PF}, {"AF", CT_FLAG_AF}, {"ZF", CT_FLAG_ZF},
             {"SF", CT_FLAG_SF}, {"DF", CT_FLAG_DF}, {"OF", CT_FLAG_OF}};
enum { FLAGS = sizeof(flags) / sizeof(flags[0]) };

const char *
ct_steps_register_name(unsigned reg)
{
  static const char *const names[16] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
                                        "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};
  return names[reg & 15];
}

/* The highest byte first, without leading zeros. */
static char *
put_vector(char *at, const uint8_t *bytes, unsigned count)
{
  static const char digits[] = "0123456789abcdef";
  while (count > 1 && bytes[count - 1] == 0) {
    count--;
  }
  *at++ = '0';
  *at++ = 'x';
  for (; count > 0; count--) {
    *at++ = digits[bytes[count - 1] >> 4];
    *at++ = digits[bytes[count - 1] & 15];
  }
  return at;
}

static char *
put_vector_name(char *at, const struct ct_steps_state *state, unsigned i)
{
  *at++ = "xyz"[(state->vectors_known[i] > 16) + (state->vectors_known[i] > 32)];
  *at++ = 'm';
  *at++ = 'm';
  return ct_put_number(at, i, 0);
}

/* Letters of those that are set; "?" after those that are not known. */
static char *
put_flags(char *at, const struct ct_cpu *cpu)
{
  const char *begin = at;
  for (unsigned i = 0; i < FLAGS; i++) {
    bool is_unknown = (cpu->unknown & flags[i].bit) != 0;
    if (is_unknown || (cpu->flags & flags[i].bit) != 0) {
      at = at != begin ? ct_put_text(at, " ") : at;
      at = ct_put_bytes(at, flags[i].name, 2);
      at = is_unknown ? ct_put_text(at, "?") : at;
    }
  }
  return at;
}

/* ---- what has changed ---- */

/* Registers that the step wrote, a bit each. */
static uint16_t
registers_of(const struct ct_steps_step *step, const struct ct_steps_state *before, const struct ct_steps_state *after)
{
  uint16_t changed = step->effects != NULL ? step->effects->writes : 0;
  if (step->plan != NULL) {
    return changed;
  }
  for (unsigned i = 0; i < 16; i++) {
    bool same = before->cpu.reg[i] == after->cpu.reg[i] && ((before->unknown ^ after->unknown) >> i & 1) == 0;
    changed |= (uint16_t)(!same << i);
  }
  return changed;
}

static uint32_t
vectors_of(const struct ct_steps_step *step, const struct ct_steps_state *before, const struct ct_steps_state *after)
{
  uint32_t written = step->plan != NULL ? step->effects->vectors_written : ~0u, changed = 0;
  bool is_reported = step->plan != NULL && written != 0xffff; /* by name, whether it changes or not */
  for (uint32_t left = written; left != 0; left &= left - 1) {
    unsigned i = (unsigned)__builtin_ctz(left);
    bool differs = is_reported || before->vectors_known[i] != after->vectors_known[i] ||
                   memcmp(before->vector[i], after->vector[i], after->vectors_known[i]) != 0;
    changed |= (uint32_t)(after->vectors_known[i] != 0 && differs) << i;
  }
  return changed;
}

static bool
shows_flags(const struct ct_steps_step *step, const struct ct_steps_state *before, const struct ct_steps_state *after)
{
  return step->plan != NULL ? step->effects->flags_written != 0
                            : (step->effects != NULL && step->effects->flags_written != 0) ||
                                  before->cpu.flags != after->cpu.flags || before->cpu.unknown != after->cpu.unknown;
}

/* ---- text ---- */

/* NULL: it is not known. */
static char *
put_stored(char *at, const struct ct_steps_step *step, const struct ct_mem_store *store,
           const struct ct_steps_state *after)
{
  uint8_t bytes[CT_STEPS_VECTOR_BYTES];
  size_t size = ct_steps_stored(step->effects, store, after, bytes);
  uint64_t value = 0;
  if (size > sizeof(value)) {
    return put_vector(at, bytes, (unsigned)size);
  }
  memcpy(&value, bytes, size);
  return size != 0 ? ct_put_hex(at, value) : NULL;
}

static char *
put_loads_and_stores(char *at, const struct ct_steps_step *step, const struct ct_steps_state *after)
{
  if (step->did.load_size != 0) {
    at = ct_put_hex(ct_put_text(at, " ("), step->did.load_address);
    at = ct_put_number(ct_put_text(at, ":"), step->did.load_size, 0);
    at = ct_put_hex(ct_put_text(at, ")="), step->did.loaded);
  }
  for (unsigned i = 0; i < step->did.store_count; i++) {
    const struct ct_mem_store *s = &step->did.stores[i];
    if (s->size == 0) {
      at = ct_put_text(at, " [?]");
      continue;
    }
    at = ct_put_hex(ct_put_text(at, " ["), s->address);
    at = ct_put_number(ct_put_text(at, ":"), s->size, 0);
    if (s->count != 1) {
      at = ct_put_number(ct_put_text(at, "*"), s->count, 0);
    }
    at = ct_put_text(at, s->part ? "]?:=" : "]:=");
    char *end = put_stored(at, step, s, after);
    at = end != NULL ? end : ct_put_text(at, "?");
  }
  return at;
}

static char *
put_changes(char *at, const struct ct_steps_step *step, const struct ct_steps_state *before,
            const struct ct_steps_state *after)
{
  for (uint32_t left = registers_of(step, before, after); left != 0; left &= left - 1) {
    unsigned i = (unsigned)__builtin_ctz(left);
    at = ct_put_text(ct_put_text(ct_put_text(at, " "), ct_steps_register_name(i)), "=");
    at = (after->unknown >> i & 1) != 0 ? ct_put_text(at, "?") : ct_put_hex(at, after->cpu.reg[i]);
  }
  for (uint32_t left = vectors_of(step, before, after); left != 0; left &= left - 1) {
    unsigned i = (unsigned)__builtin_ctz(left);
    at = ct_put_text(put_vector_name(ct_put_text(at, " "), after, i), "=");
    at = put_vector(at, after->vector[i], after->vectors_known[i]);
  }
  for (unsigned i = 0; i < CT_STEPS_MASKS && after->masks_known != 0; i++) {
    if ((after->masks_known >> i & 1) != 0 && before->mask[i] != after->mask[i]) {
      at = ct_put_text(ct_put_number(ct_put_text(at, " k"), i, 0), "=");
      at = ct_put_hex(at, after->mask[i]);
    }
  }
  if (shows_flags(step, before, after)) {
    at = ct_put_text(put_flags(ct_put_text(at, " {"), &after->cpu), "}");
  }
  return at;
}

static void
put_state(const struct ct_steps_state *state, FILE *out)
{
  char text[2 * CT_STEPS_VECTOR_BYTES + 64];
  for (unsigned i = 0; i < 16; i++) {
    fprintf(out, "%s%3s ", i % 4 == 0 ? "           " : "  ", ct_steps_register_name(i));
    if ((state->unknown >> i & 1) != 0) {
      fprintf(out, "%-18s", "?");
    } else {
      fprintf(out, "0x%-16" PRIx64, state->cpu.reg[i]);
    }
    fputs(i % 4 == 3 ? "\n" : "", out);
  }
  *put_flags(text, &state->cpu) = 0;
  fprintf(out, "           flags {%s}  fs 0x%" PRIx64 "  gs 0x%" PRIx64 "\n", text, state->cpu.fs_base,
          state->cpu.gs_base);
  for (unsigned i = 0; i < CT_STEPS_VECTORS; i++) {
    if (state->vectors_known[i] != 0) {
      *put_vector(text, state->vector[i], state->vectors_known[i]) = 0;
      fprintf(out, "           %cmm%-2u %s\n", "xyz"[(state->vectors_known[i] > 16) + (state->vectors_known[i] > 32)],
              i, text);
    }
  }
  for (unsigned i = 0; i < CT_STEPS_MASKS; i++) {
    if ((state->masks_known >> i & 1) != 0) {
      fprintf(out, "           k%u 0x%" PRIx64 "\n", i, state->mask[i]);
    }
  }
}

static void
put_text(const struct ct_steps_lines *lines, const struct ct_steps_step *step, const struct ct_steps_state *before,
         const struct ct_steps_state *after)
{
  char line[LINE_BYTES], *at = line;
  size_t bytes = 0;
  uint32_t number;
  FILE *out = lines->out;
  const char *part = ct_line_cache_part(lines->cache, step, &bytes);
  if (lines->options->registers) {
    put_state(before, out);
  }
  at = ct_put_text(ct_put_number(at, step->number, 10), "  ");
  if (lines->has_many_threads) {
    at = ct_put_text(ct_put_number(at, (uint32_t)ct_steps_reader_head(lines->reader)->tid, 0), "  ");
  }
  at = ct_put_bytes(at, part != NULL ? part : "", bytes);
  at = put_loads_and_stores(at, step, after);
  at = put_changes(at, step, before, after);
  at = step->did.is_inconsistent ? ct_put_text(at, "  -- contradicts what comes before") : at;
  fwrite(line, 1, (size_t)(at - line), out);
  if (lines->options->source) {
    const char *file = ct_steps_names_source(lines->names, step->number, step->pc, &number);
    if (file != NULL) {
      fprintf(out, "  %s:%" PRIu32, file, number);
    }
  }
  fputc('\n', out);
}

/* ---- JSON ---- */

static char *
put_quoted_hex(char *at, uint64_t value)
{
  return ct_put_text(ct_put_hex(ct_put_text(at, "\""), value), "\"");
}

/* "name": before a member that is not the first one a comma. */
static char *
put_name(char *at, const char *name)
{
  if (at[-1] != '{') {
    *at++ = ',';
  }
  return ct_put_text(ct_put_text(ct_put_text(at, "\""), name), "\":");
}

static char *
put_stores_json(char *at, const struct ct_steps_step *step, const struct ct_steps_state *after)
{
  at = ct_put_text(put_name(at, "stores"), "[");
  for (unsigned i = 0; i < step->did.store_count; i++) {
    const struct ct_mem_store *s = &step->did.stores[i];
    at = ct_put_text(at, i != 0 ? ",{\"address\":" : "{\"address\":");
    at = s->size != 0 ? put_quoted_hex(at, s->address) : ct_put_text(at, "null");
    at = ct_put_number(put_name(at, "size"), s->size, 0);
    at = put_name(at, "value");
    char *end = put_stored(at + 1, step, s, after);
    if (end != NULL) {
      *at = '"';
      *end = '"';
      at = end + 1;
    } else {
      at = ct_put_text(at, "null");
    }
    at = s->count != 1 ? ct_put_number(put_name(at, "count"), s->count & INT64_MAX, 0) : at;
    at = s->part ? ct_put_text(put_name(at, "perhaps"), "true") : at;
    *at++ = '}';
  }
  return ct_put_text(at, "]");
}

static char *
put_registers_json(char *at, const struct ct_steps_state *state, uint16_t which, uint32_t vectors, bool with_flags)
{
  at = ct_put_text(at, "{");
  for (uint32_t left = which; left != 0; left &= left - 1) {
    unsigned i = (unsigned)__builtin_ctz(left);
    at = put_name(at, ct_steps_register_name(i));
    at = (state->unknown >> i & 1) == 0 ? put_quoted_hex(at, state->cpu.reg[i]) : ct_put_text(at, "null");
  }
  if (with_flags) {
    at = put_flags(ct_put_text(put_name(at, "flags"), "\""), &state->cpu);
    *at++ = '"';
  }
  for (uint32_t left = vectors; left != 0; left &= left - 1) {
    unsigned i = (unsigned)__builtin_ctz(left);
    if (state->vectors_known[i] != 0) {
      char name[8];
      *put_vector_name(name, state, i) = 0;
      at = put_vector(ct_put_text(put_name(at, name), "\""), state->vector[i], state->vectors_known[i]);
      *at++ = '"';
    }
  }
  return ct_put_text(at, "}");
}

static void
put_json_line(json_t *object, FILE *out)
{
  json_dumpf(object, out, JSON_COMPACT);
  fputc('\n', out);
  json_decref(object);
}

static void
put_source_json(const struct ct_steps_lines *lines, const struct ct_steps_step *step)
{
  uint32_t number;
  const char *file = ct_steps_names_source(lines->names, step->number, step->pc, &number);
  if (file != NULL) {
    json_t *text = ct_json_string(file);
    fputs(",\"file\":", lines->out);
    json_dumpf(text, lines->out, JSON_ENCODE_ANY);
    fprintf(lines->out, ",\"line\":%" PRIu32, number);
    json_decref(text);
  }
}

static void
put_json(const struct ct_steps_lines *lines, const struct ct_steps_step *step, const struct ct_steps_state *before,
         const struct ct_steps_cursor *cursor)
{
  char line[LINE_BYTES], *at = line;
  size_t bytes = 0;
  const struct ct_steps_state *after = ct_steps_cursor_state(cursor);
  const struct ct_steps_file *head = ct_steps_reader_head(lines->reader);
  const char *part = ct_line_cache_part(lines->cache, step, &bytes);
  at = ct_put_number(put_name(ct_put_text(at, "{"), "step"), step->number, 0);
  at = ct_put_number(put_name(at, "tid"), (uint32_t)head->tid, 0);
  at = put_quoted_hex(put_name(at, "pc"), step->pc);
  at = part != NULL ? ct_put_bytes(ct_put_text(at, ","), part, bytes) : at;
  at = put_registers_json(put_name(at, "changed"), after, registers_of(step, before, after),
                          vectors_of(step, before, after), shows_flags(step, before, after));
  if (step->did.load_size != 0) {
    at = put_quoted_hex(put_name(ct_put_text(put_name(at, "load"), "{"), "address"), step->did.load_address);
    at = ct_put_number(put_name(at, "size"), step->did.load_size, 0);
    at = ct_put_text(put_quoted_hex(put_name(at, "value"), step->did.loaded), "}");
  }
  at = step->did.store_count != 0 ? put_stores_json(at, step, after) : at;
  at = lines->options->registers ? put_registers_json(put_name(at, "before"), before, 0xffff, UINT32_MAX, true) : at;
  at = step->did.is_inconsistent ? ct_put_text(put_name(at, "inconsistent"), "true") : at;
  if (head->tsc_hz != 0 && step->tsc >= lines->start_tsc) {
    double ns = (double)(step->tsc - lines->start_tsc) * 1e9 / (double)head->tsc_hz;
    at = ct_put_number(put_name(at, "time_ns"), ns < (double)INT64_MAX ? (uint64_t)ns : INT64_MAX, 0);
  }
  fwrite(line, 1, (size_t)(at - line), lines->out);
  if (lines->options->source) {
    put_source_json(lines, step);
  }
  fputs("}\n", lines->out);
}

void
ct_steps_put_step(const struct ct_steps_lines *lines, const struct ct_steps_step *step,
                  const struct ct_steps_state *before, const struct ct_steps_cursor *cursor)
{
  if (lines->options->json) {
    put_json(lines, step, before, cursor);
  } else {
    put_text(lines, step, before, ct_steps_cursor_state(cursor));
  }
}

/* ---- events ---- */

static void
event_text(const struct ct_steps_event *event, char *text, size_t size)
{
  struct ct_stream_signal signal;
  struct ct_stream_memory memory;
  struct ct_stream_gap gap;
  struct ct_stream_end end;
  static const char *const ends[] = {"recording ended", "thread exited", "thread was killed", "recorder failed"};
  text[0] = 0;
  switch (event->kind) {
  case CT_STREAM_CONTEXT:
    snprintf(text, size, "%s", ct_steps_is_gap(event) ? "here the thread ran on unrecorded" : "");
    break;
  case CT_STREAM_SIGNAL:
    memcpy(&signal, event->data, sizeof(signal));
    snprintf(text, size, "signal %d, code %d, address 0x%" PRIx64, signal.signal, signal.code, signal.address);
    break;
  case CT_STREAM_MEMORY:
    memcpy(&memory, event->data, sizeof(memory));
    snprintf(text, size, "the kernel wrote %" PRIu64 " bytes at 0x%" PRIx64, memory.size, memory.address);
    break;
  case CT_STREAM_GAP:
    memcpy(&gap, event->data, sizeof(gap));
    snprintf(text, size, "here something is lost");
    break;
  case CT_STREAM_END:
    memcpy(&end, event->data, sizeof(end));
    snprintf(text, size, "the %s, %s %d", ends[end.reason & 3], WIFSIGNALED(end.status) ? "signal" : "status",
             ct_stream_end_code(&end));
    break;
  default:
    break;
  }
}

void
ct_steps_put_event(const struct ct_steps_lines *lines, const struct ct_steps_event *event)
{
  char text[160];
  event_text(event, text, sizeof(text));
  if (text[0] == 0) {
    return;
  }
  if (lines->options->json) {
    put_json_line(json_pack("{s:I, s:i, s:s}", "step", (json_int_t)event->step, "tid",
                            ct_steps_reader_head(lines->reader)->tid, "event", text),
                  lines->out);
  } else {
    fprintf(lines->out, "%10s  -- %s\n", "", text);
  }
}
