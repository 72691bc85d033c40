/* SPDX-License-Identifier: MIT */
/*
 * A slow recorder of instructions: single steps by ptrace, written as the instruction tracer's records
 * (ring/itrace_stream.h), with the state after each step beside them. What a reader makes of the records must be those
 * states. Independent of the translator; used for tests and where a small trace is wanted.
 *
 *   stepped record [-v] [-n STEPS] [-s BYTES] [-w STATES] FILE -- PROGRAM [ARG]...
 *   stepped compare FILE STATES        each step of the reader, forward; 1: they differ
 *   stepped hold OUTPUT PROGRAM [ARG]...   prints its process id; see machine_hold. The program writes to the file
 * OUTPUT stepped follow STEPS FILE OUTPUT PROGRAM [ARG]...   runs it by single steps, STEPS at most, along with its
 * recording FILE; 1: they differ; see follow.h stepped walk FILE                  each step of the reader, forward; 1:
 * a record contradicts those before it stepped repeat TIMES FILE FILE     the same records many times
 *
 * -v: vector registers too; -s: a segment's size. Signals are recorded; other threads and children are not. It ends at
 * an execve.
 */
#include "follow.h"
#include "stepping.h"

#include "base/error.h"
#include "steps/cursor.h"
#include "steps/writer.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

enum { UNIT_MAX = 24, UNITS_BITS = 16, SEGMENT_MAX = 1 << 20, VALUES_MAX = UNIT_MAX * 512, SPLIT_EACH = 13 };

/* A unit that was made: found by its first address. */
struct known_unit {
  uint64_t pc;
  uint32_t id;
  uint8_t insns;
  uint16_t bytes;
  uint8_t code[UNIT_MAX * 15];
};

/* What a step leaves for who compares. */
struct witness {
  uint64_t pc; /* before it */
  uint64_t reg[16], rip, flags, fs_base, gs_base;
  uint64_t vectors; /* a sum over them; 0: not asked for */
};

static struct {
  pid_t pid;
  bool with_vectors;
  struct ct_steps_writer *writer;
  FILE *states;
  struct ct_steps_state now;
  uint8_t segment[SEGMENT_MAX + 65536];
  size_t segment_bytes, segment_size;
  struct ct_stream_stamp stamps[4096];
  uint32_t stamp_count;
  /* The instructions that are not in a record yet, from run_pc on. */
  uint64_t run_pc;
  unsigned run_insns, runs;
  size_t run_code_bytes, run_values_bytes;
  uint32_t value_at[UNIT_MAX + 1];
  uint8_t run_code[UNIT_MAX * 15], run_values[VALUES_MAX];
  struct known_unit *known;
  uint32_t units;
} r;

static void
die(const char *text)
{
  fprintf(stderr, "stepped: %s\n", text);
  exit(2);
}

static void
put(const void *bytes, size_t size)
{
  memcpy(r.segment + r.segment_bytes, bytes, size);
  r.segment_bytes += size;
}

/* ---- events ---- */

static void
put_context(enum ct_context_reason reason)
{
  struct vectors_shape shape = r.with_vectors ? machine_shape() : (struct vectors_shape){0};
  uint32_t rest = (uint32_t)shape.vectors * shape.bytes + 8u * shape.masks;
  struct ct_stream_context context = {
      .event = {CT_STREAM_EVENT | CT_STREAM_CONTEXT, (uint32_t)sizeof(context) + rest},
      .tsc = __rdtsc(),
      .rip = r.now.cpu.rip,
      .flags = r.now.cpu.flags,
      .fs_base = r.now.cpu.fs_base,
      .gs_base = r.now.cpu.gs_base,
      .reason = reason,
      .vectors = shape.vectors,
      .vector_bytes = shape.bytes,
      .masks = shape.masks,
  };
  memcpy(context.reg, r.now.cpu.reg, sizeof(context.reg));
  put(&context, sizeof(context));
  for (unsigned i = 0; i < shape.vectors; i++) {
    put(r.now.vector[i], shape.bytes);
  }
  put(r.now.mask, 8u * shape.masks);
}

static void
end_segment(void)
{
  int code = ct_steps_writer_segment(r.writer, r.segment, r.segment_bytes, r.stamps, r.stamp_count);
  if (code != 0) {
    die(ct_err_text(code));
  }
  r.segment_bytes = 0;
  r.stamp_count = 0;
}

static void
put_signal(int signal)
{
  struct ct_stream_signal event = {.event = {CT_STREAM_EVENT | CT_STREAM_SIGNAL, sizeof(event)},
                                   .tsc = __rdtsc(),
                                   .pc = r.now.cpu.rip,
                                   .signal = signal};
  machine_signal_info(r.pid, &event.address, &event.code);
  put(&event, sizeof(event));
}

static void
put_memory(uint64_t address, uint64_t size)
{
  uint8_t bytes[4096];
  size_t kept = machine_peek(r.pid, address, bytes, size < sizeof(bytes) ? size : sizeof(bytes));
  struct ct_stream_memory event = {.event = {CT_STREAM_EVENT | CT_STREAM_MEMORY, (uint32_t)(sizeof(event) + kept)},
                                   .address = address,
                                   .size = size};
  put(&event, sizeof(event));
  put(bytes, kept);
}

static void
put_end(enum ct_stream_end_reason reason, int status)
{
  struct ct_stream_end event = {
      .event = {CT_STREAM_EVENT | CT_STREAM_END, sizeof(event)}, .tsc = __rdtsc(), .reason = reason, .status = status};
  put(&event, sizeof(event));
}

/* ---- units ---- */

static struct known_unit *
known_at(uint64_t pc)
{
  return &r.known[pc * 0x9e3779b97f4a7c15ull >> (64 - UNITS_BITS)];
}

/* The run goes on in the unit that is known from its beginning on. */
static bool
is_in(const struct known_unit *unit)
{
  return unit->pc == r.run_pc && unit->insns >= r.run_insns && unit->bytes >= r.run_code_bytes &&
         memcmp(unit->code, r.run_code, r.run_code_bytes) == 0;
}

static void
put_part(const struct known_unit *unit, unsigned first, unsigned end)
{
  struct ct_stream_part part = {CT_STREAM_PART, unit->id, (uint16_t)first, (uint16_t)end};
  put(&part, sizeof(part));
  put(r.run_values + r.value_at[first], r.value_at[end] - r.value_at[first]);
}

/* What was run becomes a record. */
static void
end_run(void)
{
  if (r.run_insns == 0) {
    return;
  }
  struct known_unit *unit = known_at(r.run_pc);
  if (!is_in(unit)) {
    struct {
      struct ct_steps_unit head;
      uint8_t code[UNIT_MAX * 15];
    } added = {
        .head = {
            .pc = r.run_pc, .id = r.units, .code_bytes = (uint16_t)r.run_code_bytes, .insns = (uint8_t)r.run_insns}};
    memcpy(added.code, r.run_code, r.run_code_bytes);
    ct_steps_writer_units(r.writer, &added, sizeof(added.head) + r.run_code_bytes);
    *unit = (struct known_unit){
        .pc = r.run_pc, .id = r.units++, .insns = (uint8_t)r.run_insns, .bytes = (uint16_t)r.run_code_bytes};
    memcpy(unit->code, r.run_code, r.run_code_bytes);
  }
  if (r.run_insns < unit->insns) {
    put_part(unit, 0, r.run_insns);
  } else if (r.runs++ % SPLIT_EACH == SPLIT_EACH - 1) { /* both forms mean the same */
    put_part(unit, 0, r.run_insns / 2);
    put_part(unit, r.run_insns / 2, r.run_insns);
  } else {
    put(&unit->id, sizeof(unit->id));
    put(r.run_values, r.run_values_bytes);
  }
  r.run_insns = 0;
}

/* ---- a step ---- */

static uint64_t
sum_of(const struct ct_steps_state *state)
{
  struct vectors_shape shape = machine_shape();
  uint64_t sum = 1469598103934665603ull, word;
  for (unsigned i = 0; i < shape.vectors; i++) {
    for (unsigned at = 0; at < shape.bytes; at += 8) {
      memcpy(&word, state->vector[i] + at, 8);
      sum = (sum ^ word) * 1099511628211ull;
      sum ^= sum >> 29;
    }
  }
  for (unsigned i = 0; i < shape.masks; i++) {
    sum = (sum ^ state->mask[i]) * 1099511628211ull;
  }
  return sum | 1;
}

static void
fill(const struct ct_steps_state *state, uint64_t pc, bool vectors, struct witness *out)
{
  *out = (struct witness){.pc = pc,
                          .rip = state->cpu.rip,
                          .flags = state->cpu.flags,
                          .fs_base = state->cpu.fs_base,
                          .gs_base = state->cpu.gs_base,
                          .vectors = vectors ? sum_of(state) : 0};
  memcpy(out->reg, state->cpu.reg, sizeof(out->reg));
}

static void
note_state(uint64_t pc)
{
  struct witness witness;
  if (r.states != NULL) {
    fill(&r.now, pc, r.with_vectors, &witness);
    fwrite(&witness, sizeof(witness), 1, r.states);
  }
}

/* The values that are read before the step: 8 bytes each, by their number. */
static void
read_before(const struct ct_steps_insn *insn, uint64_t loaded[CT_VALUES_MAX])
{
  for (unsigned i = 0; i < insn->value_count; i++) {
    if (insn->values[i].kind == CT_VALUE_LOADED) {
      const struct ct_access *access = &insn->effects.access[insn->values[i].reg];
      loaded[i] = 0;
      machine_peek(r.pid, ct_address(&insn->effects, access, &r.now.cpu), &loaded[i], access->size);
    }
  }
}

static void
put_value(const void *bytes, size_t size)
{
  memcpy(r.run_values + r.run_values_bytes, bytes, size);
  r.run_values_bytes += size;
}

static void
put_values(const struct ct_steps_insn *insn, const uint64_t loaded[CT_VALUES_MAX], const struct ct_steps_state *before)
{
  for (unsigned i = 0; i < insn->value_count; i++) {
    const struct ct_recorded_value *value = &insn->values[i];
    uint64_t number = 0, flags = r.now.cpu.flags;
    switch (value->kind) {
    case CT_VALUE_LOADED:
      put_value(&loaded[i], value->size);
      break;
    case CT_VALUE_REG:
      put_value(&r.now.cpu.reg[value->reg], value->size);
      break;
    case CT_VALUE_FLAGS:
      number = ((flags & CT_FLAGS_SIX & 0xff) | 2) << 8 | (flags & CT_FLAG_OF) / CT_FLAG_OF;
      put_value(&number, value->size);
      break;
    case CT_VALUE_VECTOR:
      put_value(r.now.vector[value->reg], value->size);
      break;
    case CT_VALUE_MASK:
      put_value(&r.now.mask[value->reg], value->size);
      break;
    case CT_VALUE_STORED:
      machine_peek(r.pid, ct_address(&insn->effects, &insn->effects.access[value->reg], &before->cpu), &number,
                   value->size);
      put_value(&number, value->size);
      break;
    default:
      number = __rdtsc();
      put_value(&number, value->size);
      break;
    }
  }
}

/* More than a result is there after it. */
static bool
changes_all(const struct ct_steps_insn *insn, const struct ct_steps_state *before)
{
  if (insn->effects.flow != CT_INSN_FLOW_SYSCALL) {
    return false;
  }
  uint16_t own = 1u << CT_RAX | 1u << CT_RCX | 1u << CT_R11;
  for (unsigned i = 0; i < 16; i++) {
    if ((own >> i & 1) == 0 && before->cpu.reg[i] != r.now.cpu.reg[i]) {
      return true;
    }
  }
  return before->cpu.fs_base != r.now.cpu.fs_base || before->cpu.gs_base != r.now.cpu.gs_base ||
         r.now.cpu.rip != before->cpu.rip + insn->effects.length || r.now.cpu.reg[CT_RCX] != r.now.cpu.rip ||
         ((before->cpu.flags ^ r.now.cpu.flags) & (CT_FLAGS_SIX | CT_FLAG_DF)) != 0;
}

static void
put_alone(uint64_t pc, const uint8_t *code, size_t length)
{
  struct ct_stream_step event = {.event = {CT_STREAM_EVENT | CT_STREAM_STEP, sizeof(event)},
                                 .tsc = __rdtsc(),
                                 .pc = pc,
                                 .length = (uint8_t)length};
  memcpy(event.code, code, length);
  put(&event, sizeof(event));
  put_context(CT_CONTEXT_STEP);
}

static void
note_kernel_writes(const struct ct_steps_state *before)
{
  uint64_t number = before->cpu.reg[CT_RAX];
  int64_t got = (int64_t)r.now.cpu.reg[CT_RAX];
  if ((number == SYS_read || number == SYS_pread64) && got > 0) {
    end_run();
    put_memory(before->cpu.reg[CT_RSI], (uint64_t)got);
  } else if (number == SYS_getrandom && got > 0) {
    end_run();
    put_memory(before->cpu.reg[CT_RDI], (uint64_t)got);
  } else if ((number == SYS_fstat) && got == 0) {
    end_run();
    put_memory(before->cpu.reg[CT_RSI], 144);
  }
}

/* The instruction that was stepped over becomes a part of the run, or an event. */
static void
note_step(const struct ct_steps_state *before, const uint8_t *code, const struct ct_steps_insn *insn, bool good,
          const uint64_t loaded[CT_VALUES_MAX])
{
  struct ct_effects effects;
  uint64_t pc = before->cpu.rip;
  if (!good || changes_all(insn, before)) {
    end_run();
    put_alone(pc, code, ct_effects_of(code, 15, &effects) ? effects.length : 0);
  } else {
    size_t length = insn->effects.length;
    const struct known_unit *unit = known_at(r.run_pc);
    bool goes_on = r.run_insns != 0 && r.run_insns < UNIT_MAX && pc == r.run_pc + r.run_code_bytes &&
                   !(unit->pc == r.run_pc && unit->insns == r.run_insns);
    if (!goes_on) {
      end_run();
      r.run_pc = pc;
      r.run_code_bytes = r.run_values_bytes = 0;
    }
    memcpy(r.run_code + r.run_code_bytes, code, length);
    r.run_code_bytes += length;
    put_values(insn, loaded, before);
    r.value_at[++r.run_insns] = (uint32_t)r.run_values_bytes;
    if (r.now.cpu.rip != pc + length || insn->effects.flow != CT_INSN_FLOW_NEXT) {
      if (insn->effects.flow == CT_INSN_FLOW_SYSCALL) {
        note_kernel_writes(before);
      }
      end_run();
    }
  }
  note_state(pc);
}

static bool
is_repeated(const struct ct_steps_insn *insn, bool good)
{
  return good && (insn->effects.traits & (CT_EFFECT_REP | CT_EFFECT_REPNE)) != 0;
}

/* A signal, and where it is handled. */
static int
deliver(int signal, int *value)
{
  bool handled = machine_handles(r.pid, signal);
  end_run();
  put_signal(signal);
  if (!handled) { /* fatal, or nothing comes of it: it is forgotten */
    put_context(CT_CONTEXT_GAP);
    return machine_step(r.pid, signal, value);
  }
  int result = machine_step(r.pid, signal, value);
  if (result == MACHINE_STEPPED && machine_state(r.pid, r.with_vectors, &r.now)) {
    put_context(CT_CONTEXT_HANDLER);
  }
  return result;
}

static int
record_step(int *value)
{
  uint8_t code[15] = {0};
  uint64_t loaded[CT_VALUES_MAX];
  struct ct_steps_insn insn;
  size_t size = machine_peek(r.pid, r.now.cpu.rip, code, sizeof(code));
  bool good = ct_steps_insn_of(code, size, r.now.cpu.rip, r.with_vectors, &insn);
  struct ct_steps_state before = r.now;
  if (good) {
    read_before(&insn, loaded);
  }
  int result;
  do {
    result = machine_step(r.pid, 0, value);
  } while (result == MACHINE_STEPPED && machine_state(r.pid, r.with_vectors, &r.now) && is_repeated(&insn, good) &&
           r.now.cpu.rip == before.cpu.rip);
  if (result == MACHINE_SIGNAL) {
    if (!machine_state(r.pid, r.with_vectors, &r.now)) {
      return MACHINE_ENDED;
    }
    return MACHINE_SIGNAL;
  }
  if (result == MACHINE_STEPPED) {
    if (good && insn.effects.flow == CT_INSN_FLOW_SYSCALL) {
      machine_clean_r11(r.pid);
      machine_state(r.pid, r.with_vectors, &r.now);
    }
    note_step(&before, code, &insn, good, loaded);
  }
  return result;
}

static void
put_modules(void)
{
  char path[64];
  static char text[1 << 16];
  snprintf(path, sizeof(path), "/proc/%d/maps", (int)r.pid);
  FILE *file = fopen(path, "r");
  size_t size = file != NULL ? fread(text, 1, sizeof(text), file) : 0;
  if (file != NULL) {
    fclose(file);
  }
  ct_steps_writer_modules(r.writer, text, size);
}

static void
run(uint64_t steps)
{
  int value = 0, result = MACHINE_STEPPED;
  uint64_t calls = 0;
  if (!machine_state(r.pid, r.with_vectors, &r.now)) {
    die("no registers");
  }
  put_modules();
  put_context(CT_CONTEXT_BEGIN);
  for (uint64_t i = 0; i < steps; i++) {
    uint64_t number = r.now.cpu.reg[CT_RAX];
    result = record_step(&value);
    while (result == MACHINE_SIGNAL) {
      result = deliver(value, &value);
    }
    if (result != MACHINE_STEPPED) {
      break;
    }
    if (r.run_insns == 0 && (number == SYS_mmap || number == SYS_munmap) && r.now.cpu.reg[CT_RCX] == r.now.cpu.rip) {
      calls++;
    }
    if (r.segment_bytes >= r.segment_size) {
      end_run();
      end_segment();
      if (calls != 0) {
        put_modules();
        calls = 0;
      }
      put_context(CT_CONTEXT_SEGMENT);
    } else if (r.run_insns == 0 && r.stamp_count < 4096 && i % 1000 == 0) {
      r.stamps[r.stamp_count++] = (struct ct_stream_stamp){__rdtsc(), r.segment_bytes};
    }
  }
  end_run();
  put_end(result == MACHINE_STEPPED ? CT_STREAM_ASKED
          : WIFSIGNALED(value)      ? CT_STREAM_KILLED
                                    : CT_STREAM_EXITED,
          result == MACHINE_STEPPED ? 0 : value);
  end_segment();
  if (result == MACHINE_STEPPED || result == MACHINE_EXEC) {
    kill(r.pid, SIGKILL);
    waitpid(r.pid, &value, 0);
  }
}

static uint64_t
clock_of(clockid_t clock)
{
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t
tsc_hz(void)
{
  uint64_t tsc = __rdtsc(), ns = clock_of(CLOCK_MONOTONIC);
  usleep(20000);
  return (uint64_t)((double)(__rdtsc() - tsc) * 1e9 / (double)(clock_of(CLOCK_MONOTONIC) - ns));
}

static int
record(int argc, char **argv)
{
  uint64_t steps = UINT64_MAX;
  struct ct_diag diag = {""};
  int option;
  r.segment_size = 1 << 16;
  while ((option = getopt(argc, argv, "+vn:s:w:")) != -1) {
    switch (option) {
    case 'v':
      r.with_vectors = true;
      break;
    case 'n':
      steps = strtoull(optarg, NULL, 10);
      break;
    case 's':
      r.segment_size = strtoull(optarg, NULL, 10) % SEGMENT_MAX;
      break;
    case 'w':
      r.states = fopen(optarg, "w");
      break;
    default:
      return 2;
    }
  }
  if (argc - optind < 2) {
    die("record [-v] [-n STEPS] [-s BYTES] [-w STATES] FILE -- PROGRAM [ARG]...");
  }
  const char *path = argv[optind++];
  optind += strcmp(argv[optind], "--") == 0;
  r.known = calloc(1u << UNITS_BITS, sizeof(*r.known));
  r.pid = machine_start(NULL, argv + optind);
  if (r.pid < 0 || r.known == NULL) {
    die("it cannot be started");
  }
  struct ct_steps_file head = {.pid = r.pid,
                               .tid = r.pid,
                               .has_vectors = r.with_vectors,
                               .tsc_hz = tsc_hz(),
                               .tsc = __rdtsc(),
                               .clock_ns = clock_of(CLOCK_MONOTONIC),
                               .wall_ns = (int64_t)clock_of(CLOCK_REALTIME)};
  if (ct_steps_writer_open(path, &head, &r.writer, &diag) != 0) {
    die(diag.text);
  }
  run(steps);
  struct ct_steps_written written = ct_steps_writer_written(r.writer);
  if (ct_steps_writer_close(r.writer, &diag) != 0) {
    die(diag.text);
  }
  if (r.states != NULL && fclose(r.states) != 0) {
    die("the states cannot be written");
  }
  printf("%" PRIu64 " steps, %" PRIu64 " bytes of records, %" PRIu64 " of the file, %" PRIu32 " units\n", written.steps,
         written.raw_bytes, written.bytes, r.units);
  return 0;
}

/* ---- compare ---- */

/* NULL: what is known is as it was. */
static const char *
difference(const struct ct_steps_state *state, const struct witness *real, bool vectors)
{
  static char text[128];
  struct witness got;
  fill(state, real->pc, vectors, &got);
  for (unsigned i = 0; i < 16; i++) {
    if ((state->unknown >> i & 1) == 0 && got.reg[i] != real->reg[i]) {
      snprintf(text, sizeof(text), "register %u is %" PRIx64 ", not %" PRIx64, i, got.reg[i], real->reg[i]);
      return text;
    }
  }
  if (((got.flags ^ real->flags) & (CT_FLAGS_SIX | CT_FLAG_DF) & ~state->cpu.unknown) != 0) {
    snprintf(text, sizeof(text), "flags %" PRIx64 ", not %" PRIx64, got.flags, real->flags);
    return text;
  }
  if (!state->rip_unknown && got.rip != real->rip) {
    snprintf(text, sizeof(text), "it goes to %" PRIx64 ", not %" PRIx64, got.rip, real->rip);
    return text;
  }
  if (got.fs_base != real->fs_base || got.gs_base != real->gs_base) {
    return "the base of fs or gs";
  }
  return got.vectors != real->vectors ? "vector registers" : NULL;
}

static int
compare(const char *path, const char *states_path)
{
  struct ct_steps_reader *reader;
  struct ct_diag diag = {""};
  struct witness witness;
  FILE *states = fopen(states_path, "r");
  if (states == NULL || ct_steps_reader_open(path, &reader, &diag) != 0) {
    die(diag.text[0] != 0 ? diag.text : "no states");
  }
  bool vectors = ct_steps_reader_head(reader)->has_vectors != 0;
  struct ct_steps_cursor *cursor = ct_steps_cursor_open(reader);
  const struct ct_steps_step *step;
  uint64_t count = 0, bad = 0, unknown = 0;
  while ((step = ct_steps_cursor_next(cursor)) != NULL && fread(&witness, sizeof(witness), 1, states) == 1) {
    const struct ct_steps_state *state = ct_steps_cursor_state(cursor);
    const char *why = step->number != count    ? "its number"
                      : step->pc != witness.pc ? "its address"
                                               : difference(state, &witness, vectors);
    unknown += state->unknown != 0;
    if (why != NULL && bad++ < 5) {
      printf("step %" PRIu64 " at %" PRIx64 ": %s\n", count, step->pc, why);
    }
    count++;
  }
  bool both_end = step == NULL && fread(&witness, sizeof(witness), 1, states) == 0;
  uint64_t odd = ct_steps_cursor_inconsistent(cursor);
  printf("%" PRIu64 " steps, %" PRIu64 " differ, %" PRIu64 " inconsistent, %" PRIu64 " with unknown registers%s%s%s\n",
         count, bad, odd, unknown, both_end ? "" : ", one of them ends early",
         ct_steps_reader_damage(reader)[0] != 0 ? "; " : "", ct_steps_reader_damage(reader));
  /* Any place, from any other. */
  uint64_t at = 0, wrong = 0;
  for (int i = 0; i < 300 && count != 0; i++) {
    bool is_first = at == 0;
    at = i % 3 == 0 ? (at * 6364136223846793005ull + 1442695040888963407ull) % count : is_first ? 0 : at - 1;
    fseek(states, (long)(at * sizeof(witness)), SEEK_SET);
    bool there = i % 3 == 0 ? ct_steps_cursor_seek(cursor, at) : is_first || ct_steps_cursor_back(cursor);
    wrong += !there || ct_steps_cursor_at(cursor) != at || (step = ct_steps_cursor_next(cursor)) == NULL ||
             step->number != at || fread(&witness, sizeof(witness), 1, states) != 1 ||
             difference(ct_steps_cursor_state(cursor), &witness, vectors) != NULL;
    ct_steps_cursor_seek(cursor, at);
  }
  printf("300 places, %" PRIu64 " wrong\n", wrong);
  ct_steps_cursor_close(cursor);
  ct_steps_reader_close(reader);
  fclose(states);
  return bad != 0 || odd != 0 || wrong != 0 || !both_end || count == 0;
}

/* ---- repeat ---- */

static int
repeat(uint64_t times, const char *from, const char *to)
{
  struct ct_steps_reader *reader;
  struct ct_steps_writer *writer;
  struct ct_steps_unpacked unpacked = {0};
  const struct ct_steps_modules *modules;
  struct ct_diag diag = {""};
  if (ct_steps_reader_open(from, &reader, &diag) != 0 ||
      ct_steps_writer_open(to, ct_steps_reader_head(reader), &writer, &diag) != 0) {
    die(diag.text);
  }
  struct ct_units *units = ct_steps_reader_units(reader);
  for (size_t i = 0; i < ct_units_count(units); i++) {
    const struct ct_steps_plan *plan = ct_units_item(units, i);
    uint8_t bytes[sizeof(struct ct_steps_unit) + UINT8_MAX * sizeof(struct ct_steps_joint) + UINT16_MAX];
    struct ct_steps_unit unit = {.pc = plan->pc,
                                 .id = plan->id,
                                 .code_bytes = plan->code_bytes,
                                 .insns = (uint8_t)plan->insns,
                                 .joints = plan->joint_count};
    memcpy(bytes, &unit, sizeof(unit));
    memcpy(bytes + sizeof(unit), plan->joints, ct_steps_unit_rest(&unit));
    ct_steps_writer_units(writer, bytes, sizeof(unit) + ct_steps_unit_rest(&unit));
  }
  if (ct_steps_reader_modules(reader, &modules) != 0) {
    ct_steps_writer_modules(writer, modules[0].text, strlen(modules[0].text));
  }
  for (uint64_t turn = 0; turn < times; turn++) {
    for (size_t i = 0; i < ct_steps_reader_blocks(reader); i++) {
      if (ct_steps_reader_unpack(reader, i, &unpacked) != 0 ||
          ct_steps_writer_segment(writer, unpacked.bytes, unpacked.size, unpacked.stamps, unpacked.stamp_count) != 0) {
        die("a block");
      }
    }
  }
  ct_steps_unpacked_free(&unpacked);
  ct_steps_reader_close(reader);
  return ct_steps_writer_close(writer, &diag) != 0;
}

static int
walk(const char *path)
{
  struct ct_steps_reader *reader;
  struct ct_diag diag = {""};
  uint64_t count = 0;
  if (ct_steps_reader_open(path, &reader, &diag) != 0) {
    die(diag.text);
  }
  struct ct_steps_cursor *cursor = ct_steps_cursor_open(reader);
  while (cursor != NULL && ct_steps_cursor_next(cursor) != NULL) {
    count++;
  }
  uint64_t inconsistent = ct_steps_cursor_inconsistent(cursor), all = ct_steps_reader_steps(reader);
  const char *damage = ct_steps_reader_damage(reader);
  printf("%" PRIu64 " steps of %" PRIu64 ", %" PRIu64 " inconsistent%s%s\n", count, all, inconsistent,
         damage[0] != 0 ? ", " : "", damage);
  bool is_good = count == all && inconsistent == 0 && damage[0] == 0;
  ct_steps_cursor_close(cursor);
  ct_steps_reader_close(reader);
  return is_good ? 0 : 1;
}

int
main(int argc, char **argv)
{
  if (argc >= 4 && strcmp(argv[1], "record") == 0) {
    return record(argc - 1, argv + 1);
  }
  if (argc == 4 && strcmp(argv[1], "compare") == 0) {
    return compare(argv[2], argv[3]);
  }
  if (argc >= 4 && strcmp(argv[1], "hold") == 0) {
    return machine_hold(argv[2], argv + 3);
  }
  if (argc >= 6 && strcmp(argv[1], "follow") == 0) {
    return follow_run(argv[3], strtoull(argv[2], NULL, 10), argv[4], argv + 5);
  }
  if (argc == 3 && strcmp(argv[1], "walk") == 0) {
    return walk(argv[2]);
  }
  if (argc == 5 && strcmp(argv[1], "repeat") == 0) {
    return repeat(strtoull(argv[2], NULL, 10), argv[3], argv[4]);
  }
  die("record, compare, hold, follow, walk or repeat; see stepped.c");
  return 2;
}
