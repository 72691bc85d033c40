/* SPDX-License-Identifier: MIT */
/* See view.h. Values are hexadecimal; "?" stands for what is not known. */
#include "steps/view.h"

#include "base/json.h"
#include "x86/disassemble.h"

#include <inttypes.h>
#include <string.h>

enum { TEXT = 512, CODE_COLUMNS = 44, NAME_COLUMNS = 28 };

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
static void
bytes_text(const uint8_t *bytes, unsigned count, char *text)
{
  static const char digits[] = "0123456789abcdef";
  while (count > 1 && bytes[count - 1] == 0) {
    count--;
  }
  *text++ = '0';
  *text++ = 'x';
  for (; count > 0; count--) {
    *text++ = digits[bytes[count - 1] >> 4];
    *text++ = digits[bytes[count - 1] & 15];
  }
  *text = 0;
}

/* Letters of those that are set; a small letter and "?" for those that are not known. */
static void
flags_text(const struct ct_cpu *cpu, char *text, size_t size)
{
  size_t at = 0;
  text[0] = 0;
  for (unsigned i = 0; i < FLAGS && at < size; i++) {
    if ((cpu->unknown & flags[i].bit) != 0) {
      at += (size_t)snprintf(text + at, size - at, "%s%s?", at != 0 ? " " : "", flags[i].name);
    } else if ((cpu->flags & flags[i].bit) != 0) {
      at += (size_t)snprintf(text + at, size - at, "%s%s", at != 0 ? " " : "", flags[i].name);
    }
  }
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
  uint32_t changed = 0;
  for (unsigned i = 0; i < CT_STEPS_VECTORS; i++) {
    bool differs = before->vectors_known[i] != after->vectors_known[i] ||
                   memcmp(before->vector[i], after->vector[i], after->vectors_known[i]) != 0;
    bool written = step->plan != NULL && (step->effects->vectors_written >> i & 1) != 0;
    changed |=
        (uint32_t)(after->vectors_known[i] != 0 && (differs || (written && step->effects->vectors_written != 0xffff)))
        << i;
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

/* False: it is not known. */
static bool
stored_text(const struct ct_steps_step *step, const struct ct_mem_store *store, const struct ct_steps_state *after,
            char text[2 * CT_STEPS_VECTOR_BYTES + 3])
{
  uint8_t bytes[CT_STEPS_VECTOR_BYTES];
  size_t size = ct_steps_stored(step->effects, store, after, bytes);
  if (size > sizeof(store->value)) {
    bytes_text(bytes, (unsigned)size, text);
  } else if (size != 0) {
    uint64_t value = 0;
    memcpy(&value, bytes, size);
    snprintf(text, 2 * sizeof(value) + 3, "0x%" PRIx64, value);
  }
  return size != 0;
}

static void
put_loads_and_stores(const struct ct_steps_step *step, const struct ct_steps_state *after, FILE *out)
{
  char text[2 * CT_STEPS_VECTOR_BYTES + 3];
  if (step->did.load_size != 0) {
    fprintf(out, " (0x%" PRIx64 ":%u)=0x%" PRIx64, step->did.load_address, step->did.load_size, step->did.loaded);
  }
  for (unsigned i = 0; i < step->did.store_count; i++) {
    const struct ct_mem_store *s = &step->did.stores[i];
    if (s->size == 0) {
      fputs(" [?]", out);
      continue;
    }
    fprintf(out, " [0x%" PRIx64 ":%u", s->address, s->size);
    if (s->count != 1) {
      fprintf(out, "*%" PRIu64, s->count);
    }
    fputs(s->part ? "]?:=" : "]:=", out);
    fputs(stored_text(step, s, after, text) ? text : "?", out);
  }
}

static void
put_changes(const struct ct_steps_step *step, const struct ct_steps_state *before, const struct ct_steps_state *after,
            FILE *out)
{
  char text[2 * CT_STEPS_VECTOR_BYTES + 3];
  uint16_t changed = registers_of(step, before, after);
  for (unsigned i = 0; i < 16; i++) {
    if ((changed >> i & 1) == 0) {
      continue;
    }
    if ((after->unknown >> i & 1) != 0) {
      fprintf(out, " %s=?", ct_steps_register_name(i));
    } else {
      fprintf(out, " %s=0x%" PRIx64, ct_steps_register_name(i), after->cpu.reg[i]);
    }
  }
  uint32_t vectors = vectors_of(step, before, after);
  for (unsigned i = 0; i < CT_STEPS_VECTORS; i++) {
    if ((vectors >> i & 1) != 0) {
      bytes_text(after->vector[i], after->vectors_known[i], text);
      fprintf(out, " %cmm%u=%s", "xyz"[(after->vectors_known[i] > 16) + (after->vectors_known[i] > 32)], i, text);
    }
  }
  for (unsigned i = 0; i < CT_STEPS_MASKS; i++) {
    if ((after->masks_known >> i & 1) != 0 && before->mask[i] != after->mask[i]) {
      fprintf(out, " k%u=0x%" PRIx64, i, after->mask[i]);
    }
  }
  if (shows_flags(step, before, after)) {
    flags_text(&after->cpu, text, sizeof(text));
    fprintf(out, " {%s}", text);
  }
}

static void
put_state(const struct ct_steps_state *state, FILE *out)
{
  char text[2 * CT_STEPS_VECTOR_BYTES + 3];
  for (unsigned i = 0; i < 16; i++) {
    fprintf(out, "%s%3s ", i % 4 == 0 ? "           " : "  ", ct_steps_register_name(i));
    if ((state->unknown >> i & 1) != 0) {
      fprintf(out, "%-18s", "?");
    } else {
      fprintf(out, "0x%-16" PRIx64, state->cpu.reg[i]);
    }
    fputs(i % 4 == 3 ? "\n" : "", out);
  }
  flags_text(&state->cpu, text, sizeof(text));
  fprintf(out, "           flags {%s}  fs 0x%" PRIx64 "  gs 0x%" PRIx64 "\n", text, state->cpu.fs_base,
          state->cpu.gs_base);
  for (unsigned i = 0; i < CT_STEPS_VECTORS; i++) {
    if (state->vectors_known[i] != 0) {
      bytes_text(state->vector[i], state->vectors_known[i], text);
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
  char code[TEXT], name[TEXT];
  uint32_t line;
  FILE *out = lines->out;
  enum ct_syntax syntax = lines->options->intel ? CT_SYNTAX_INTEL : CT_SYNTAX_ATT;
  ct_disassemble(step->code, step->length, step->pc, syntax, code, sizeof(code));
  ct_steps_names_label(lines->names, step->number, step->pc, name, sizeof(name));
  if (lines->options->registers) {
    put_state(before, out);
  }
  fprintf(out, "%10" PRIu64 "  ", step->number);
  if (lines->has_many_threads) {
    fprintf(out, "%" PRId32 "  ", ct_steps_reader_head(lines->reader)->tid);
  }
  fprintf(out, "%-*s  %-*s", NAME_COLUMNS, name, CODE_COLUMNS, code);
  put_loads_and_stores(step, after, out);
  put_changes(step, before, after, out);
  if (step->did.is_inconsistent) {
    fputs("  -- contradicts what comes before", out);
  }
  if (lines->options->source) {
    const char *file = ct_steps_names_source(lines->names, step->number, step->pc, &line);
    if (file != NULL) {
      fprintf(out, "  %s:%" PRIu32, file, line);
    }
  }
  fputc('\n', out);
}

/* ---- JSON ---- */

static json_t *
hex(uint64_t value)
{
  return json_sprintf("0x%" PRIx64, value);
}

static json_t *
known_hex(uint64_t value, bool known)
{
  return known ? hex(value) : json_null();
}

static json_t *
stores_json(const struct ct_steps_step *step, const struct ct_steps_state *after)
{
  char text[2 * CT_STEPS_VECTOR_BYTES + 3];
  json_t *list = json_array();
  for (unsigned i = 0; i < step->did.store_count; i++) {
    const struct ct_mem_store *s = &step->did.stores[i];
    json_t *item =
        json_pack("{s:o, s:I, s:o}", "address", known_hex(s->address, s->size != 0), "size", (json_int_t)s->size,
                  "value", stored_text(step, s, after, text) ? json_string(text) : json_null());
    if (s->count != 1) {
      json_object_set_new(item, "count", json_integer((json_int_t)(s->count & INT64_MAX)));
    }
    if (s->part) {
      json_object_set_new(item, "perhaps", json_true());
    }
    json_array_append_new(list, item);
  }
  return list;
}

static void
add_vectors(json_t *object, const struct ct_steps_state *state, uint32_t which)
{
  char text[2 * CT_STEPS_VECTOR_BYTES + 3], name[8];
  for (unsigned i = 0; i < CT_STEPS_VECTORS; i++) {
    if ((which >> i & 1) != 0 && state->vectors_known[i] != 0) {
      bytes_text(state->vector[i], state->vectors_known[i], text);
      snprintf(name, sizeof(name), "%cmm%u", "xyz"[(state->vectors_known[i] > 16) + (state->vectors_known[i] > 32)], i);
      json_object_set_new(object, name, json_string(text));
    }
  }
}

static json_t *
registers_json(const struct ct_steps_state *state, uint16_t which, uint32_t vectors, bool with_flags)
{
  char text[64];
  json_t *object = json_object();
  for (unsigned i = 0; i < 16; i++) {
    if ((which >> i & 1) != 0) {
      json_object_set_new(object, ct_steps_register_name(i),
                          known_hex(state->cpu.reg[i], (state->unknown >> i & 1) == 0));
    }
  }
  if (with_flags) {
    flags_text(&state->cpu, text, sizeof(text));
    json_object_set_new(object, "flags", json_string(text));
  }
  add_vectors(object, state, vectors);
  return object;
}

static void
put_json_line(json_t *object, FILE *out)
{
  json_dumpf(object, out, JSON_COMPACT);
  fputc('\n', out);
  json_decref(object);
}

static void
put_json(const struct ct_steps_lines *lines, const struct ct_steps_step *step, const struct ct_steps_state *before,
         const struct ct_steps_cursor *cursor)
{
  char code[TEXT], name[TEXT];
  uint32_t line;
  const struct ct_steps_state *after = ct_steps_cursor_state(cursor);
  const struct ct_steps_file *head = ct_steps_reader_head(lines->reader);
  enum ct_syntax syntax = lines->options->intel ? CT_SYNTAX_INTEL : CT_SYNTAX_ATT;
  ct_disassemble(step->code, step->length, step->pc, syntax, code, sizeof(code));
  ct_steps_names_label(lines->names, step->number, step->pc, name, sizeof(name));
  json_t *object = json_pack("{s:I, s:i, s:o, s:o, s:s, s:o}", "step", (json_int_t)step->number, "tid", head->tid, "pc",
                             hex(step->pc), "function", ct_json_string(name), "code", code, "changed",
                             registers_json(after, registers_of(step, before, after), vectors_of(step, before, after),
                                            shows_flags(step, before, after)));
  if (step->did.load_size != 0) {
    json_object_set_new(object, "load",
                        json_pack("{s:o, s:i, s:o}", "address", hex(step->did.load_address), "size",
                                  (int)step->did.load_size, "value", hex(step->did.loaded)));
  }
  if (step->did.store_count != 0) {
    json_object_set_new(object, "stores", stores_json(step, after));
  }
  if (lines->options->registers) {
    json_object_set_new(object, "before", registers_json(before, 0xffff, UINT32_MAX, true));
  }
  if (step->did.is_inconsistent) {
    json_object_set_new(object, "inconsistent", json_true());
  }
  if (head->tsc_hz != 0 && step->tsc >= lines->start_tsc) {
    json_object_set_new(
        object, "time_ns",
        json_integer((json_int_t)((double)(step->tsc - lines->start_tsc) * 1e9 / (double)head->tsc_hz)));
  }
  const char *file = lines->options->source ? ct_steps_names_source(lines->names, step->number, step->pc, &line) : NULL;
  if (file != NULL) {
    json_object_set_new(object, "file", ct_json_string(file));
    json_object_set_new(object, "line", json_integer(line));
  }
  put_json_line(object, lines->out);
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
    snprintf(text, size, "the %s, status %d", ends[end.reason & 3], end.status);
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
