/* SPDX-License-Identifier: MIT */
/*
 * See follow.h. Events between two steps are noted when the cursor passes them, and taken when the program has come to
 * there: what a system call has written, after it; a signal with its frame and the state in the handler, before the
 * handler's first step.
 */
#include "follow.h"

#include "inputs.h"
#include "stepping.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>

enum { SHOWN_MAX = 8, NOTED_MAX = 256, WRITTEN_MAX = 1 << 16, TRAP_FLAG = 0x100 };

struct noted {
  uint64_t step; /* that comes after it */
  uint8_t *data;
  uint32_t bytes;
  uint8_t kind;
};

static struct {
  pid_t pid;
  bool with_vectors;
  struct ct_steps_cursor *cursor;
  struct inputs inputs;
  struct ct_steps_state real; /* of the program */
  struct noted noted[NOTED_MAX];
  size_t noted_count;
  uint64_t call;      /* the number of the last system call */
  bool is_other_file; /* which has read something that is different each time */
  bool is_frame;      /* what is written next is the frame of this signal's handler */
  struct ct_stream_signal signal;
  int fault; /* the signal at which the program has stopped; 0: none */
  bool is_over, has_ended;
  uint64_t bad_step; /* the last one that differs, and one more */
  const char *end;
  struct {
    uint64_t steps, bad, unknown, unknown_vectors, loads, stores, written, signals;
    uint64_t counters, clocks, results, fields, not_made, sent; /* of the recording's */
  } count;
} f;

/* ---- differences ---- */

__attribute__((format(printf, 1, 2))) static void
differ(const char *format, ...)
{
  uint64_t here = ct_steps_cursor_at(f.cursor);
  if (f.bad_step == here + 1) {
    return;
  }
  f.bad_step = here + 1;
  if (f.count.bad++ < SHOWN_MAX) {
    va_list arguments;
    printf("step %" PRIu64 " (%" PRIu64 " of the file) at %" PRIx64 ": ", f.count.steps, here, f.real.cpu.rip);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
  }
}

static void
compare_vectors(const struct ct_steps_state *state)
{
  struct vectors_shape shape = machine_shape();
  bool is_unknown = false;
  for (unsigned i = 0; i < shape.vectors; i++) {
    size_t known = state->vectors_known[i] < shape.bytes ? state->vectors_known[i] : shape.bytes;
    is_unknown |= known < shape.bytes;
    if (memcmp(state->vector[i], f.real.vector[i], known) != 0) {
      differ("vector register %u", i);
    }
  }
  for (unsigned i = 0; i < shape.masks; i++) {
    is_unknown |= (state->masks_known >> i & 1) == 0;
    if ((state->masks_known >> i & 1) != 0 && state->mask[i] != f.real.mask[i]) {
      differ("mask register %u is %" PRIx64 ", not %" PRIx64, i, state->mask[i], f.real.mask[i]);
    }
  }
  f.count.unknown_vectors += is_unknown;
}

/* What the reader has against what the program has. */
static void
compare(const struct ct_steps_state *state)
{
  const struct ct_cpu *got = &state->cpu, *real = &f.real.cpu;
  for (unsigned i = 0; i < 16; i++) {
    if ((state->unknown >> i & 1) == 0 && got->reg[i] != real->reg[i]) {
      differ("register %u is %" PRIx64 ", not %" PRIx64, i, got->reg[i], real->reg[i]);
    }
  }
  if (((got->flags ^ real->flags) & (CT_FLAGS_SIX | CT_FLAG_DF) & ~(uint64_t)got->unknown) != 0) {
    differ("flags %" PRIx64 ", not %" PRIx64, got->flags, real->flags);
  }
  if (!state->rip_unknown && got->rip != real->rip) {
    differ("it goes to %" PRIx64 ", not %" PRIx64, got->rip, real->rip);
    f.end = "it goes elsewhere";
    f.is_over = true;
  }
  if (got->fs_base != real->fs_base || got->gs_base != real->gs_base) {
    differ("the base of fs or gs");
  }
  f.count.unknown += state->unknown != 0;
  if (f.with_vectors) {
    compare_vectors(state);
  }
}

static void
look(void)
{
  if (!machine_state(f.pid, f.with_vectors, &f.real)) {
    f.end = "the program has ended";
    f.is_over = true;
  }
}

/* ---- what is noted ---- */

static void
note(void *context, const struct ct_steps_event *event)
{
  (void)context;
  uint8_t *data = malloc(event->bytes);
  if (data == NULL || f.noted_count == NOTED_MAX) {
    free(data);
    f.end = "too many events between two steps";
    f.is_over = true;
    return;
  }
  memcpy(data, event->data, event->bytes);
  f.noted[f.noted_count++] = (struct noted){event->step, data, event->bytes, event->kind};
}

/*
 * The reserved bytes of a signal frame's vector state, of which the processor says nothing and the kernel writes none.
 * They are what was on the stack before; that was not the same once, in some dozens of runs, and why is not known.
 */
static bool
is_reserved(uint64_t address, uint64_t at)
{
  enum { INFO_BYTES = 128, ALIGNMENT = 64, RESERVED = 416, RESERVED_END = 464 };
  uint64_t end_of_info = f.real.cpu.reg[CT_RSI] + INFO_BYTES;
  uint64_t state = (end_of_info + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
  return address + at >= state + RESERVED && address + at < state + RESERVED_END;
}

static bool
is_input(uint64_t address, uint64_t at, uint8_t bits)
{
  const struct ct_cpu *cpu = &f.real.cpu;
  return f.is_frame ? is_reserved(address, at) ||
                          inputs_is_of_frame(f.signal.signal, f.signal.code, at, cpu->reg[CT_RSI] - address,
                                             cpu->reg[CT_RDX] - address, bits)
                    : f.is_other_file || inputs_is_written(f.call, at);
}

/* What the kernel has written is there, but for what is an input: that is put there. */
static void
take_memory(const struct noted *noted)
{
  static uint8_t real[WRITTEN_MAX];
  struct ct_stream_memory memory;
  memcpy(&memory, noted->data, sizeof(memory));
  const uint8_t *reported = noted->data + sizeof(memory);
  size_t size = noted->bytes - sizeof(memory);
  bool has_input = false;
  if (size > sizeof(real) || machine_peek(f.pid, memory.address, real, size) != size) {
    differ("what is written at %" PRIx64 " cannot be read", memory.address);
    return;
  }
  for (size_t i = 0; i < size; i++) {
    if (real[i] != reported[i] && is_input(memory.address, i, real[i] ^ reported[i])) {
      real[i] = reported[i];
      has_input = true;
    } else if (real[i] != reported[i]) {
      differ("byte %zu of %zu written at %" PRIx64 " by %s %" PRIu64 " is %x, not %x", i, size, memory.address,
             f.is_frame ? "signal" : "system call", f.is_frame ? (uint64_t)f.signal.signal : f.call, reported[i],
             real[i]);
      return;
    }
  }
  f.count.written += size;
  f.count.fields += has_input;
  if (has_input && !machine_poke(f.pid, memory.address, real, size)) {
    differ("what is written at %" PRIx64 " cannot be changed", memory.address);
  }
}

static bool
frame_register(const struct noted *frame, int number, uint64_t *value)
{
  size_t at = sizeof(struct ct_stream_memory) + sizeof(uint64_t) + offsetof(ucontext_t, uc_mcontext.gregs) +
              8ull * (unsigned)number;
  if (frame == NULL || frame->kind != CT_STREAM_MEMORY || frame->bytes < at + sizeof(*value)) {
    return false;
  }
  memcpy(value, frame->data + at, sizeof(*value));
  return true;
}

/*
 * An instruction that the signal has found half done, as its frame tells: a string instruction, or a system call that
 * is made again, and has left its two registers as it does.
 */
static void
go_into(const struct noted *frame)
{
  uint64_t left, flags;
  uint8_t code[15];
  struct ct_effects effects;
  int value;
  size_t size = machine_peek(f.pid, f.real.cpu.rip, code, sizeof(code));
  if (!frame_register(frame, REG_RCX, &left) || !frame_register(frame, REG_R11, &flags) ||
      !ct_effects_of(code, size, &effects)) {
    return;
  }
  if (effects.flow == CT_INSN_FLOW_SYSCALL && left == f.real.cpu.rip + effects.length) {
    f.real.cpu.reg[CT_RCX] = left;
    f.real.cpu.reg[CT_R11] = flags;
    machine_set(f.pid, &f.real.cpu);
  }
  if ((effects.traits & (CT_EFFECT_REP | CT_EFFECT_REPNE)) == 0) {
    return;
  }
  uint64_t pc = f.real.cpu.rip;
  while (!f.is_over && f.real.cpu.rip == pc && f.real.cpu.reg[CT_RCX] > left) {
    if (machine_step(f.pid, 0, &value) != MACHINE_STEPPED) {
      differ("signal %d in a string instruction", value);
      return;
    }
    look();
  }
}

/* Stopped for it: it has sent the signal to itself, or it is a fault, which the instruction makes. */
static bool
is_at_signal(void)
{
  int value = f.fault;
  uint64_t pc = f.real.cpu.rip, address;
  int32_t code;
  bool is_fault = inputs_is_fault(f.signal.signal, f.signal.code);
  if (f.fault == 0 && !is_fault && !machine_is_pending(f.pid, f.signal.signal)) {
    return false;
  }
  if (f.fault == 0 && machine_step(f.pid, 0, &value) != MACHINE_SIGNAL) {
    differ("signal %d has not come", f.signal.signal);
    return false;
  }
  look();
  f.fault = 0;
  machine_signal_info(f.pid, &address, &code);
  if (value != f.signal.signal || code != f.signal.code || pc != f.real.cpu.rip ||
      (is_fault && address != f.signal.address)) {
    differ("signal %d code %d, not %d code %d", f.signal.signal, f.signal.code, value, code);
  }
  return true;
}

static void
take_signal(const struct noted *noted, const struct noted *frame)
{
  int value;
  memcpy(&f.signal, noted->data, sizeof(f.signal));
  f.count.signals++;
  if (f.signal.pc != f.real.cpu.rip) {
    differ("signal %d is at %" PRIx64, f.signal.signal, f.signal.pc);
    return;
  }
  go_into(frame);
  if (!is_at_signal()) {
    if (f.signal.code == SI_TKILL || !machine_send(f.pid, f.signal.signal, f.signal.code)) {
      differ("signal %d has not come", f.signal.signal);
      return;
    }
    f.count.sent++;
  }
  if (machine_step(f.pid, f.signal.signal, &value) != MACHINE_STEPPED) {
    f.end = WIFSIGNALED(value) ? "a signal has ended it" : "a signal came where a handler begins";
    f.is_over = true;
    f.has_ended = WIFSIGNALED(value);
    return;
  }
  look();
  f.is_frame = true;
}

static void
take_context(const struct noted *noted)
{
  static struct ct_steps_state state;
  struct ct_stream_context context;
  memcpy(&context, noted->data, sizeof(context));
  if (context.reason == CT_CONTEXT_HANDLER) {
    f.is_frame = false;
    ct_steps_take_context(&state, noted->data);
    compare(&state);
  } else if (context.reason == CT_CONTEXT_EXEC || context.reason == CT_CONTEXT_GAP) {
    f.end = context.reason == CT_CONTEXT_EXEC ? "another program" : "a gap";
    f.is_over = true;
  }
}

/* The events before that step. */
static void
take_noted(uint64_t step)
{
  size_t taken = 0;
  while (taken < f.noted_count && f.noted[taken].step <= step && !f.is_over) {
    const struct noted *noted = &f.noted[taken++];
    if (noted->kind == CT_STREAM_MEMORY) {
      take_memory(noted);
    } else if (noted->kind == CT_STREAM_SIGNAL) {
      take_signal(noted, taken < f.noted_count ? noted + 1 : NULL);
    } else if (noted->kind == CT_STREAM_CONTEXT) {
      take_context(noted);
    } else {
      f.end = noted->kind == CT_STREAM_END ? "the end of the recording" : "a gap";
      f.is_over = true;
      differ("%s", f.end); /* unless it has ended, too, it is not over here */
    }
  }
  for (size_t i = 0; i < taken; i++) {
    free(f.noted[i].data);
  }
  f.noted_count -= taken;
  memmove(f.noted, f.noted + taken, f.noted_count * sizeof(f.noted[0]));
}

/* ---- a step ---- */

static void
compare_load(const struct ct_steps_step *step)
{
  uint64_t real = 0;
  size_t size = step->did.load_size;
  if (size == 0 || size > sizeof(real)) {
    return;
  }
  f.count.loads++;
  if (machine_peek(f.pid, step->did.load_address, &real, size) != size || memcmp(&real, &step->did.loaded, size) != 0) {
    differ("it loads %" PRIx64 " from %" PRIx64 ", not %" PRIx64, step->did.loaded, step->did.load_address, real);
  }
}

static void
compare_stores(const struct ct_steps_step *step, const struct ct_steps_state *after)
{
  uint8_t reported[CT_STEPS_VECTOR_BYTES], real[CT_STEPS_VECTOR_BYTES];
  for (unsigned i = 0; i < step->did.store_count; i++) {
    const struct ct_mem_store *store = &step->did.stores[i];
    size_t size = store->count == 1 ? ct_steps_stored(step->effects, store, after, reported) : 0;
    if (size == 0) {
      continue;
    }
    f.count.stores++;
    if (machine_peek(f.pid, store->address, real, size) != size || memcmp(reported, real, size) != 0) {
      differ("what it stores, %zu bytes at %" PRIx64, size, store->address);
    }
  }
}

/* What came in by the instruction is as in the recording. */
static void
take_registers(const struct ct_effects *e, const struct ct_steps_state *after, uint64_t *count)
{
  struct ct_cpu cpu = f.real.cpu;
  uint64_t flags = e->flow == CT_INSN_FLOW_SYSCALL ? 0 : e->flags_written & ~(uint64_t)after->cpu.unknown;
  uint16_t registers = e->flow == CT_INSN_FLOW_SYSCALL ? 1u << CT_RAX : (uint16_t)(e->writes & ~after->unknown);
  for (unsigned i = 0; i < 16; i++) {
    if ((registers >> i & 1) != 0) {
      cpu.reg[i] = after->cpu.reg[i];
    }
  }
  cpu.flags = (cpu.flags & ~flags) | (after->cpu.flags & flags);
  if (memcmp(&cpu, &f.real.cpu, sizeof(cpu)) != 0) {
    (*count)++;
    machine_set(f.pid, &cpu);
    f.real.cpu = cpu;
  }
}

static void
skip_call(const struct ct_steps_state *after)
{
  struct ct_cpu cpu = f.real.cpu;
  cpu.rip += 2;
  cpu.reg[CT_RAX] = after->cpu.reg[CT_RAX];
  cpu.reg[CT_RCX] = cpu.rip;
  cpu.reg[CT_R11] = cpu.flags;
  machine_set(f.pid, &cpu);
  f.real.cpu = cpu;
  f.count.not_made++;
}

/* Its ids are those of the program; afterwards they are as they were. */
static void
put_ids(struct ct_cpu *cpu)
{
  static const uint8_t arguments[] = {CT_RDI, CT_RSI};
  bool has_other = false;
  for (unsigned i = 0; i < inputs_id_arguments(cpu->reg[CT_RAX]); i++) {
    uint64_t real = inputs_real_id(&f.inputs, cpu->reg[arguments[i]]);
    has_other |= real != cpu->reg[arguments[i]];
    cpu->reg[arguments[i]] = real;
  }
  if (has_other) {
    machine_set(f.pid, cpu);
  }
}

/* One instruction, to its end; false: the program has ended, or f.fault stopped it. */
static bool
go(const struct ct_effects *e)
{
  uint64_t pc = f.real.cpu.rip;
  bool is_repeated = e != NULL && (e->traits & (CT_EFFECT_REP | CT_EFFECT_REPNE)) != 0;
  int value, result, signal = 0;
  do {
    result = machine_step(f.pid, signal, &value);
    signal = 0;
    if (result == MACHINE_SIGNAL && !machine_handles(f.pid, value)) {
      signal = value; /* it is ignored, or the end; a fault is the end by that, which the recording has */
    }
    if (result == MACHINE_STEPPED) {
      look();
    }
  } while (!f.is_over && (signal != 0 || (result == MACHINE_STEPPED && is_repeated && f.real.cpu.rip == pc)));
  if (result == MACHINE_SIGNAL) {
    f.fault = value;
  } else if (result != MACHINE_STEPPED) {
    f.end = result == MACHINE_EXEC ? "another program" : "the program has ended";
    f.is_over = true;
    f.has_ended = result == MACHINE_ENDED;
  }
  return result == MACHINE_STEPPED && !f.is_over;
}

static void
call(const struct ct_steps_step *step, const struct ct_steps_state *after)
{
  struct ct_cpu before = f.real.cpu, with_ids = before;
  uint64_t number = f.call = before.reg[CT_RAX];
  f.is_other_file = inputs_is_other_file(f.pid, number, before.reg[CT_RDI]);
  bool is_interrupted = number != SYS_rt_sigreturn && (int64_t)after->cpu.reg[CT_RAX] == -EINTR;
  f.is_other_file |= is_interrupted;
  if (inputs_is_not_made(number) || is_interrupted) {
    skip_call(after);
    return;
  }
  put_ids(&with_ids);
  if (!go(step->effects)) {
    return;
  }
  struct ct_cpu cpu = f.real.cpu;
  for (unsigned i = 0; i < inputs_id_arguments(number); i++) {
    cpu.reg[i == 0 ? CT_RDI : CT_RSI] = before.reg[i == 0 ? CT_RDI : CT_RSI];
  }
  bool may_be_own = (after->cpu.reg[CT_R11] & TRAP_FLAG) != 0; /* of sigreturn, to behind a jmp *%rcx, say */
  if ((cpu.reg[CT_R11] & TRAP_FLAG) != 0 && cpu.reg[CT_RCX] == cpu.rip && !may_be_own) {
    cpu.reg[CT_R11] &= ~(uint64_t)TRAP_FLAG; /* of the step */
  }
  if (memcmp(&cpu, &f.real.cpu, sizeof(cpu)) != 0) {
    machine_set(f.pid, &cpu);
    f.real.cpu = cpu;
  }
  if (f.is_other_file || inputs_is_other(number)) {
    if (inputs_returns_id(number)) {
      inputs_add_id(&f.inputs, after->cpu.reg[CT_RAX], cpu.reg[CT_RAX]);
    }
    take_registers(step->effects, after, &f.count.results);
  }
}

/* The flag of the step, where the instruction has let the program see it or keep it. */
static void
hide_step(const struct ct_steps_step *step)
{
  uint64_t flags;
  size_t at = step->length > 1 && step->code[0] == 0x66;
  uint8_t op = step->code[at];
  if (op == 0x9c && machine_peek(f.pid, f.real.cpu.reg[CT_RSP], &flags, sizeof(flags)) == sizeof(flags)) {
    flags &= ~(uint64_t)TRAP_FLAG;
    machine_poke(f.pid, f.real.cpu.reg[CT_RSP], &flags, sizeof(flags));
  } else if (op == 0x9d) {
    machine_set(f.pid, &f.real.cpu);
  }
}

/* int3 ends with the same signal as a step does. */
static void
look_for_trap(const struct ct_steps_step *step)
{
  uint64_t address;
  int32_t code;
  if (step->code[0] == 0xcc) {
    machine_signal_info(f.pid, &address, &code);
    f.fault = code == SI_KERNEL ? SIGTRAP : 0;
  }
}

static void
one_step(const struct ct_steps_step *step)
{
  const struct ct_steps_state *after = ct_steps_cursor_state(f.cursor);
  const struct ct_effects *e = step->effects;
  if (step->pc != f.real.cpu.rip) {
    differ("the next step is at %" PRIx64, step->pc);
    f.end = "it is elsewhere";
    f.is_over = true;
    return;
  }
  bool is_clock = e != NULL && inputs_is_clock(&f.inputs, e, &f.real.cpu);
  if (e != NULL && e->flow == CT_INSN_FLOW_SYSCALL) {
    call(step, after);
  } else {
    if (!is_clock) {
      compare_load(step);
    }
    if (go(e)) {
      look_for_trap(step);
      hide_step(step);
      if (is_clock) {
        take_registers(e, after, &f.count.clocks);
      } else if (e != NULL && inputs_is_counter(e, step->code)) {
        take_registers(e, after, &f.count.counters);
      }
    } else if (f.fault != 0) {
      differ("signal %d: it has not been executed", f.fault);
    }
  }
  if (!f.is_over) {
    compare(after);
    compare_stores(step, after);
  }
  f.count.steps++;
}

/* ---- all of it ---- */

/* To before the program's first instruction; false: the recording does not come to it. */
static bool
find_first(void)
{
  while (ct_steps_cursor_next(f.cursor) != NULL) {
    if (ct_steps_cursor_state(f.cursor)->cpu.rip == f.real.cpu.rip) {
      return true;
    }
  }
  return false;
}

static void
report(void)
{
  uint64_t odd = ct_steps_cursor_inconsistent(f.cursor);
  printf("%" PRIu64 " steps, %" PRIu64 " differ, %" PRIu64 " inconsistent, %" PRIu64 " with unknown registers, %" PRIu64
         " with unknown vector registers%s%s\n",
         f.count.steps, f.count.bad, odd, f.count.unknown, f.count.unknown_vectors, f.end != NULL ? "; " : "",
         f.end != NULL ? f.end : "");
  printf("the same: %" PRIu64 " loads, %" PRIu64 " stores, %" PRIu64 " bytes by the kernel, %" PRIu64 " signals\n",
         f.count.loads, f.count.stores, f.count.written, f.count.signals);
  printf("of the recording: %" PRIu64 " of counters, %" PRIu64 " of clock pages, %" PRIu64 " results, %" PRIu64
         " fields, %" PRIu64 " calls not made, %" PRIu64 " signals sent\n",
         f.count.counters, f.count.clocks, f.count.results, f.count.fields, f.count.not_made, f.count.sent);
}

int
follow_run(const char *path, uint64_t steps, const char *output, char *const argv[])
{
  struct ct_steps_reader *reader;
  struct ct_diag diag = {""};
  const struct ct_steps_step *step;
  int value;
  if (ct_steps_reader_open(path, &reader, &diag) != 0) {
    fprintf(stderr, "stepped: %s\n", diag.text);
    return 2;
  }
  const struct ct_steps_file *head = ct_steps_reader_head(reader);
  f.cursor = ct_steps_cursor_open(reader);
  f.with_vectors = head->has_vectors != 0;
  f.pid = machine_start(output, argv);
  if (f.cursor == NULL || f.pid < 0 || !machine_state(f.pid, f.with_vectors, &f.real) || !find_first()) {
    fprintf(stderr, "stepped: it cannot be started, or the recording does not have its first instruction\n");
    return 2;
  }
  inputs_begin(&f.inputs, f.pid);
  inputs_add_id(&f.inputs, (uint64_t)head->pid, (uint64_t)f.pid);
  compare(ct_steps_cursor_state(f.cursor));
  ct_steps_cursor_events(f.cursor, note, NULL);
  while (!f.is_over && f.count.steps < steps) {
    step = ct_steps_cursor_next(f.cursor);
    take_noted(step != NULL ? step->number : UINT64_MAX);
    if (step == NULL) {
      f.end = f.end != NULL ? f.end : "the recording stops";
      break;
    }
    if (!f.is_over) {
      one_step(step);
    }
  }
  if (f.has_ended && ct_steps_cursor_next(f.cursor) != NULL) {
    differ("the program has ended");
  }
  kill(f.pid, SIGKILL);
  waitpid(f.pid, &value, 0);
  report();
  if (ct_steps_reader_damage(reader)[0] != 0) {
    printf("%s\n", ct_steps_reader_damage(reader));
  }
  bool is_good = f.count.bad == 0 && ct_steps_cursor_inconsistent(f.cursor) == 0 && f.count.steps != 0;
  ct_steps_cursor_close(f.cursor);
  ct_steps_reader_close(reader);
  return is_good ? 0 : 1;
}
