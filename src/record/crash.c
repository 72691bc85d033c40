/* SPDX-License-Identifier: MIT */
/*
 * See crash.h. The process is stopped while its registers and stacks are read, which is bounded in frames and in time;
 * names come from the plans that are there anyway. Source lines are looked for afterwards, when nobody waits: the file
 * is then written a second time.
 *
 * Without ptrace (a debugger has the process) the thread that crashed is reported alone.
 */
#include "record/crash.h"

#include "base/clock.h"
#include "base/json.h"
#include "record/backtrace.h"
#include "record/frames.h"
#include "record/manifest.h"
#include "process/stop.h"
#include "process/ids.h"

#include <assert.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define STOP_MS        500
#define END_MS         2000
#define STOPPED_NS_MAX 3000000000ull /* how long other threads' stacks are looked at */
#define FRAMES_MAX     256           /* of the thread that crashed */
#define FRAMES_OTHERS  64
#define LINES_MAX      2000 /* frames that source lines are looked for */

struct crash {
  const struct ct_process *process;
  const struct ct_modules *modules;
  struct ct_backtracer *tracer; /* NULL: none to be had */
  struct ct_crash record;
  pid_t tid; /* of the thread; that of the record is its own id (process/ids.h) */
  json_t *json;
  json_t *threads;
};

bool
ct_crash_is_pending(const struct ct_ring_parts *ring)
{
  /* acquire: pairs with the agent's release, after the record */
  return __atomic_load_n(&ring->crash->state, __ATOMIC_ACQUIRE) == CT_CRASH_PENDING;
}

/* The thread goes on. Its state may be somebody else's by now, if it has waited for too long. */
static void
answer(struct ct_crash *crash)
{
  uint32_t expected = CT_CRASH_PENDING;
  __atomic_compare_exchange_n(&crash->state, &expected, CT_CRASH_DONE, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
  syscall(SYS_futex, &crash->state, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void
ct_crash_dismiss(const struct ct_ring_parts *ring)
{
  answer(ring->crash);
}

/* ---- what the kernel said ---- */

struct code_text {
  int signal; /* 0: any */
  int code;
  const char *name, *text;
};

/* Of siginfo(2) and asm-generic/siginfo.h. */
static const struct code_text codes[] = {
    {SIGSEGV, SEGV_MAPERR, "SEGV_MAPERR", "nothing is mapped there"},
    {SIGSEGV, SEGV_ACCERR, "SEGV_ACCERR", "the mapping does not allow it"},
    {SIGSEGV, 3, "SEGV_BNDERR", "address bounds"},
    {SIGSEGV, 4, "SEGV_PKUERR", "a protection key does not allow it"},
    {SIGSEGV, SI_KERNEL, "SI_KERNEL", "general protection: no valid address, or a privileged instruction"},
    {SIGBUS, BUS_ADRALN, "BUS_ADRALN", "not aligned"},
    {SIGBUS, BUS_ADRERR, "BUS_ADRERR", "no such place in the mapped file"},
    {SIGBUS, BUS_OBJERR, "BUS_OBJERR", "hardware error"},
    {SIGBUS, 4, "BUS_MCEERR_AR", "memory failure"},
    {SIGBUS, 5, "BUS_MCEERR_AO", "memory failure, found elsewhere"},
    {SIGILL, ILL_ILLOPC, "ILL_ILLOPC", "illegal opcode"},
    {SIGILL, ILL_ILLOPN, "ILL_ILLOPN", "illegal operand"},
    {SIGILL, ILL_ILLADR, "ILL_ILLADR", "illegal addressing mode"},
    {SIGILL, ILL_ILLTRP, "ILL_ILLTRP", "illegal trap"},
    {SIGILL, ILL_PRVOPC, "ILL_PRVOPC", "privileged opcode"},
    {SIGFPE, FPE_INTDIV, "FPE_INTDIV", "integer division by zero"},
    {SIGFPE, FPE_INTOVF, "FPE_INTOVF", "integer overflow"},
    {SIGFPE, FPE_FLTDIV, "FPE_FLTDIV", "floating-point division by zero"},
    {SIGFPE, FPE_FLTOVF, "FPE_FLTOVF", "floating-point overflow"},
    {SIGFPE, FPE_FLTUND, "FPE_FLTUND", "floating-point underflow"},
    {SIGFPE, FPE_FLTRES, "FPE_FLTRES", "floating-point inexact result"},
    {SIGFPE, FPE_FLTINV, "FPE_FLTINV", "invalid floating-point operation"},
    {SIGTRAP, TRAP_BRKPT, "TRAP_BRKPT", "breakpoint"},
    {SIGTRAP, TRAP_TRACE, "TRAP_TRACE", "trace trap"},
    {SIGTRAP, SI_KERNEL, "SI_KERNEL", "breakpoint"},
    {SIGSYS, 1, "SYS_SECCOMP", "a seccomp filter"},
    {0, SI_USER, "SI_USER", "sent by kill"},
    {0, SI_KERNEL, "SI_KERNEL", "sent by the kernel"},
    {0, SI_QUEUE, "SI_QUEUE", "sent by sigqueue"},
    {0, SI_TIMER, "SI_TIMER", "a timer"},
    {0, SI_MESGQ, "SI_MESGQ", "a message queue"},
    {0, SI_ASYNCIO, "SI_ASYNCIO", "asynchronous input or output"},
    {0, SI_SIGIO, "SI_SIGIO", "input or output is possible"},
    {0, SI_TKILL, "SI_TKILL", "sent by tgkill"},
};

static void
put_signal(struct crash *crash)
{
  siginfo_t info;
  char name[32];
  static_assert(sizeof(info) == CT_CRASH_SIGINFO_BYTES, "siginfo");
  memcpy(&info, crash->record.siginfo, sizeof(info));
  int number = (int)crash->record.signal;
  const char *short_name = sigabbrev_np(number);
  snprintf(name, sizeof(name), "SIG%s", short_name != NULL ? short_name : "?");
  json_object_set_new(crash->json, "signal", json_integer(number));
  json_object_set_new(crash->json, "name", json_string(name));
  json_object_set_new(crash->json, "code", json_integer(info.si_code));
  for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
    if ((codes[i].signal == 0 || codes[i].signal == number) && codes[i].code == info.si_code) {
      json_object_set_new(crash->json, "code_name", json_string(codes[i].name));
      json_object_set_new(crash->json, "meaning", json_string(codes[i].text));
      break;
    }
  }
  if (info.si_code == SI_USER || info.si_code == SI_TKILL || info.si_code == SI_QUEUE) {
    json_object_set_new(crash->json, "sender_pid", json_integer(info.si_pid));
    json_object_set_new(crash->json, "sender_uid", json_integer(info.si_uid));
  } else if (info.si_code > 0 && info.si_code != SI_KERNEL && number != SIGSYS) {
    ct_json_set_address(crash->json, "address", (uint64_t)(uintptr_t)info.si_addr);
  }
}

static json_t *
registers_json(const struct ct_crash *record)
{
  static const struct {
    const char *name;
    int at;
  } names[] = {{"rip", CT_CRASH_RIP},
               {"rsp", CT_CRASH_RSP},
               {"rbp", CT_CRASH_RBP},
               {"rax", CT_CRASH_RAX},
               {"rbx", CT_CRASH_RBX},
               {"rcx", CT_CRASH_RCX},
               {"rdx", CT_CRASH_RDX},
               {"rsi", CT_CRASH_RSI},
               {"rdi", CT_CRASH_RDI},
               {"r8", CT_CRASH_R8},
               {"r9", 1},
               {"r10", 2},
               {"r11", 3},
               {"r12", 4},
               {"r13", 5},
               {"r14", 6},
               {"r15", 7},
               {"eflags", CT_CRASH_EFLAGS},
               {"error", CT_CRASH_ERROR},
               {"trap", CT_CRASH_TRAP},
               {"cr2", CT_CRASH_CR2}};
  json_t *json = json_object();
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    ct_json_set_address(json, names[i].name, record->registers[names[i].at]);
  }
  return json;
}

static struct ct_registers
dwarf_registers(const struct ct_crash *record)
{
  const uint64_t *r = record->registers;
  return (struct ct_registers){{r[CT_CRASH_RAX], r[CT_CRASH_RDX], r[CT_CRASH_RCX], r[CT_CRASH_RBX], r[CT_CRASH_RSI],
                                r[CT_CRASH_RDI], r[CT_CRASH_RBP], r[CT_CRASH_RSP], r[CT_CRASH_R8], r[1], r[2], r[3],
                                r[4], r[5], r[6], r[7], r[CT_CRASH_RIP]}};
}

/* ---- frames ---- */

static json_t *
put_thread(struct crash *crash, pid_t tid, uint32_t own_tid, const struct ct_registers *registers, size_t max)
{
  struct ct_stack_frame frames[FRAMES_MAX];
  char name[32];
  json_t *json = json_object(), *list = json_array();
  const char *why = "its stack could not be looked at";
  size_t count = crash->tracer != NULL ? ct_backtrace(crash->tracer, registers, NULL, frames, max, &why) : 0;
  ct_process_thread_name(crash->process->pid, tid, name, sizeof(name));
  json_object_set_new(json, "tid", json_integer(own_tid));
  json_object_set_new(json, "thread_name", ct_json_string(name));
  for (size_t i = 0; i < count; i++) {
    json_array_append_new(list, ct_frame_json(crash->modules, crash->tracer, &frames[i]));
  }
  json_object_set_new(json, "backtrace", list);
  if (count == max) {
    json_object_set_new(json, "cut", json_true());
  }
  if (why != NULL) {
    json_object_set_new(json, "ends_because", ct_json_string(why));
  }
  json_array_append_new(crash->threads, json);
  return json;
}

/* The stacks of the threads that only happened to be there. */
static void
put_others(struct crash *crash, const struct ct_stopped *stopped)
{
  uint64_t deadline = ct_now_ns() + STOPPED_NS_MAX;
  for (size_t i = 0; i < stopped->thread_count; i++) {
    if (ct_now_ns() >= deadline) {
      json_object_set_new(crash->json, "others_missing", json_string("they were not looked at in time"));
      return;
    }
    struct ct_registers registers;
    int64_t number;
    pid_t tid = stopped->threads[i].tid;
    if (tid == crash->tid || ct_stopped_registers(stopped, i, &registers, &number) != 0) {
      continue;
    }
    uint32_t own = (uint32_t)ct_thread_own_id(crash->process->pid, tid);
    json_t *thread = put_thread(crash, tid, own, &registers, FRAMES_OTHERS);
    if (number >= 0) {
      json_object_set_new(thread, "system_call", json_integer(number));
    }
  }
}

/* Where the source is known: a second pass, when the process is gone. False when nothing was found. */
static bool
put_lines(struct crash *crash)
{
  size_t i, n, left = LINES_MAX;
  json_t *thread, *frame;
  bool found = false;
  json_array_foreach(crash->threads, i, thread)
  {
    json_array_foreach(json_object_get(thread, "backtrace"), n, frame)
    {
      uint64_t pc = strtoull(json_string_value(json_object_get(frame, "pc")), NULL, 16);
      int line = 0;
      if (left-- == 0) {
        return found;
      }
      const char *file = ct_backtrace_line(crash->tracer, pc - (n == 0 ? 0 : 1), &line);
      if (file != NULL) {
        json_object_set_new(frame, "file", ct_json_string(file));
        json_object_set_new(frame, "line", json_integer(line));
        found = true;
      }
    }
  }
  return found;
}

int
ct_crash_serve(struct ct_process *process, const struct ct_ring_parts *ring, const struct ct_agent_layout *layout,
               const struct ct_modules *modules, struct ct_trace_writer *writer, struct ct_drain *drain,
               struct ct_diag *diag)
{
  struct crash crash = {.process = process, .modules = modules, .json = json_object(), .threads = json_array()};
  struct ct_stopped stopped;
  struct ct_diag why = {""};
  crash.record = *ring->crash;
  struct ct_registers registers = dwarf_registers(&crash.record);
  uint64_t since = __builtin_ia32_rdtsc();
  bool is_stopped = ct_process_stop(process, STOP_MS, &stopped, &why) == 0;
  if (ct_backtracer_open(process, layout, &crash.tracer, &why) != 0) {
    crash.tracer = NULL;
  }
  json_object_set_new(crash.json, "version", json_integer(1));
  put_signal(&crash);
  json_object_set_new(crash.json, "pid", json_integer(process->pid));
  json_object_set_new(crash.json, "tid", json_integer(crash.record.tid));
  json_object_set_new(crash.json, "tsc", json_integer((json_int_t)crash.record.tsc));
  json_object_set_new(crash.json, "registers", registers_json(&crash.record));
  json_object_set(crash.json, "threads", crash.threads);
  crash.tid = ct_thread_by_own_id(process->pid, (pid_t)crash.record.tid);
  put_thread(&crash, crash.tid, crash.record.tid, &registers, FRAMES_MAX);
  if (is_stopped) {
    put_others(&crash, &stopped);
  } else {
    json_object_set_new(crash.json, "others_missing", ct_json_string(why.text));
  }
  int code = ct_trace_writer_crash(writer, crash.json);
  if (is_stopped) {
    ct_drain_add_stop(drain, since, __builtin_ia32_rdtsc());
  }
  answer(ring->crash);
  if (is_stopped) {
    if (crash.tid != 0) {
      ct_stopped_await_end(&stopped, crash.tid, END_MS);
    }
    ct_process_resume(&stopped);
  }
  if (crash.tracer != NULL && put_lines(&crash)) {
    code = ct_trace_writer_crash(writer, crash.json);
  }
  ct_backtracer_close(crash.tracer);
  json_decref(crash.threads);
  json_decref(crash.json);
  return code == 0 ? 0 : ct_fail(diag, code, "cannot write crash.json: %s", ct_err_text(code));
}
