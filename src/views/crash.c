/* SPDX-License-Identifier: MIT */
/*
 * See crash.h. crash.json comes from a file: a member that is missing or of another type is passed over.
 *
 *   crashed    SIGSEGV: nothing is mapped there (SEGV_MAPERR), at address 0x10
 *              in thread worker/4711, 0.012345678 s after the start
 *              #0  store_wild+0x8 (prog+0x11b8) at crash.c:27
 *              #1  ...
 *              last calls:
 *                0.012345000     120 ns      helper()
 *                0.012345300      40 ns      store_wild()  -- unfinished
 */
#define _GNU_SOURCE 1 /* sigabbrev_np, sigdescr_np */
#include "views/crash.h"

#include "base/demangle.h"
#include "base/json.h"
#include "views/prototypes.h"
#include "views/text.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum {
  LABEL_COLUMNS = 10,
  CALLS_MAX = 16, /* last calls of a thread that are kept */
  CALLS_OTHERS = 3,
  CALLS_SHOWN = 10,
  FRAMES_SHOWN = 30,
  FRAMES_OTHERS = 5,
  FRAMES_ATTACHED = 12,
  OTHERS_SHOWN = 8,
  TAIL_OPS = 20000, /* among which the last calls are looked for */
  INDENT_MAX = 20,
};

/* The last calls of a thread, in a ring: the nth of all is at n % CALLS_MAX. */
struct call {
  uint64_t enter_tsc;
  uint64_t began, ticks; /* of the thread's own time: when it was entered, how long it took */
  uint32_t fn, depth;
  bool open, timed; /* not timed: a function of which only the enter is recorded; open: ticks are those to the end */
  struct ct_value_registers registers; /* what was recorded of its values */
};
struct calls {
  struct call ring[CALLS_MAX];
  uint64_t count;
  uint64_t last_tsc; /* of an event */
  struct ct_span_clock clock;
  struct ct_details *details; /* NULL: none */
};

static void
add_call(struct calls *calls, const struct ct_event *event, bool timed)
{
  calls->ring[calls->count++ % CALLS_MAX] = (struct call){.enter_tsc = event->tsc,
                                                          .began = calls->clock.now,
                                                          .fn = event->fn,
                                                          .depth = event->depth,
                                                          .open = timed,
                                                          .timed = timed};
}

static void
end_call(struct calls *calls, const struct ct_event *event)
{
  for (size_t i = 0; i < CALLS_MAX && i < calls->count; i++) {
    struct call *call = &calls->ring[i];
    if (call->open && call->depth == event->depth && call->enter_tsc == event->enter_tsc) {
      call->open = false;
      call->ticks = calls->clock.now - call->began;
    }
  }
}

/* The latest open call at a depth; NULL: it is not kept. */
static struct call *
open_call(struct calls *calls, uint32_t depth)
{
  for (uint64_t n = calls->count; n-- > 0 && n + CALLS_MAX >= calls->count;) {
    struct call *call = &calls->ring[n % CALLS_MAX];
    if (call->open && call->depth == depth) {
      return call;
    }
  }
  return NULL;
}

/* Its values, ahead of what becomes of the call by the event. */
static void
take_values(struct calls *calls, const struct ct_event *event)
{
  bool is_value = event->kind == CT_EV_VALUE;
  const struct ct_detail *detail = calls->details != NULL ? ct_details_of(calls->details, event) : NULL;
  struct call *call = is_value || detail != NULL ? open_call(calls, event->depth) : NULL;
  if (call != NULL && is_value) {
    ct_registers_add_value(&call->registers, event);
  } else if (call != NULL) {
    ct_registers_add(&call->registers, detail, NULL, 0);
  }
}

static void
take_event(struct calls *calls, const struct ct_event *event)
{
  calls->last_tsc = event->tsc;
  ct_span_clock_event(&calls->clock, event);
  switch (event->kind) {
  case CT_EV_ENTER:
    add_call(calls, event, true);
    take_values(calls, event);
    break;
  case CT_EV_TAIL:
    end_call(calls, event);
    add_call(calls, event, true);
    take_values(calls, event);
    break;
  case CT_EV_VALUE:
    take_values(calls, event);
    break;
  case CT_EV_POINT:
    add_call(calls, event, false);
    break;
  case CT_EV_RETURN:
  case CT_EV_UNWOUND:
    take_values(calls, event);
    end_call(calls, event);
    break;
  default:
    break;
  }
}

/* Those that are open have lasted to the end of the thread. */
static void
end_open_calls(struct calls *calls, const struct ct_trace *trace, uint32_t position, enum ct_cursor_state state)
{
  ct_span_clock_end(&calls->clock, trace, position, state, calls->last_tsc);
  for (size_t i = 0; i < CALLS_MAX && i < calls->count; i++) {
    if (calls->ring[i].open) {
      calls->ring[i].ticks = calls->clock.now - calls->ring[i].began;
    }
  }
}

/* Of the thread at this position of the trace. 0, or CT_ENOMEM; what cannot be read is not there. */
static int
read_calls(struct ct_trace *trace, enum ct_view_time time, uint32_t position, struct calls *calls)
{
  struct ct_cursor *cursor;
  const struct ct_event *events;
  size_t count;
  memset(calls, 0, sizeof(*calls));
  ct_span_clock_init(&calls->clock, trace, time);
  int code = ct_cursor_open(trace, position, 0, &cursor, NULL);
  if (code != 0) {
    return code;
  }
  if (ct_details_open(trace, position, &calls->details, NULL) != CT_OK) {
    calls->details = NULL;
  }
  if (ct_cursor_seek_tail(cursor, TAIL_OPS) == 0) {
    while ((count = ct_cursor_next(cursor, &events)) != 0) {
      for (size_t i = 0; i < count; i++) {
        take_event(calls, &events[i]);
      }
    }
    end_open_calls(calls, trace, position, ct_cursor_state(cursor));
  }
  ct_cursor_close(cursor);
  ct_details_close(calls->details);
  return 0;
}

/* The calls that are kept, oldest first: the nth of them. */
static const struct call *
call_at(const struct calls *calls, uint64_t n)
{
  uint64_t first = calls->count > CALLS_MAX ? calls->count - CALLS_MAX : 0;
  return first + n < calls->count ? &calls->ring[(first + n) % CALLS_MAX] : NULL;
}

static uint64_t
since_start_ns(const struct ct_trace *trace, uint64_t tsc)
{
  uint64_t ns = ct_trace_ns(trace, tsc), start = ct_trace_start_ns(trace);
  return ns > start ? ns - start : 0;
}

/* The position of a thread in the trace, of the last one with this tid; UINT32_MAX when there is none. */
static uint32_t
find_thread(const struct ct_trace *trace, uint32_t tid)
{
  for (uint32_t i = ct_trace_thread_count(trace); i-- > 0;) {
    if (ct_trace_thread(trace, i)->tid == tid) {
      return i;
    }
  }
  return UINT32_MAX;
}

/* The signal that ended the program, 0: none. */
static int
fatal_signal(const struct ct_trace *trace)
{
  const json_t *end = json_object_get(ct_trace_manifest(trace), "exit");
  return (int)json_integer_value(json_object_get(end, "signal"));
}

static const char *
text_of(const json_t *object, const char *key)
{
  return json_string_value(json_object_get(object, key));
}

static uint32_t
tid_of(const json_t *object)
{
  return (uint32_t)json_integer_value(json_object_get(object, "tid"));
}

/* ---- JSON ---- */

static bool
has_values(const struct call *call)
{
  const struct ct_value_registers *registers = &call->registers;
  return ct_registers_have_arguments(registers) || ct_registers_have_result(registers);
}

/* Whose values are shown. */
struct shown_call {
  struct ct_view_prototypes *prototypes;
  const struct ct_value_registers *registers;
};

static const char *
find_symbol(void *arg, uint64_t address, uint64_t *offset)
{
  const struct shown_call *shown = arg;
  return ct_view_prototypes_symbol(shown->prototypes, address, offset);
}

static size_t
read_memory(void *arg, uint64_t address, void *out, size_t bytes)
{
  const struct shown_call *shown = arg;
  return ct_registers_memory(shown->registers, address, out, bytes);
}

/* As replay has them. */
static void
put_values_json(struct ct_view_prototypes *prototypes, const struct call *call, json_t *item)
{
  const struct ct_value_registers *registers = &call->registers;
  const struct ct_prototype *prototype = ct_view_prototype(prototypes, call->fn);
  struct shown_call shown = {prototypes, &call->registers};
  struct ct_value_context context = {.arg = &shown, .symbol = find_symbol, .memory = read_memory};
  if (prototype == NULL) {
    return;
  }
  if (ct_registers_have_arguments(registers)) {
    json_object_set_new(item, "arguments", ct_values_json_arguments(prototype, registers, &context));
  }
  if (ct_registers_have_result(registers)) {
    json_object_set_new(item, "returned", ct_values_json_result(prototype, registers, &context));
  }
}

static json_t *
calls_json(struct ct_trace *trace, const struct calls *calls)
{
  json_t *list = json_array();
  struct ct_view_prototypes prototypes;
  ct_view_prototypes_init(&prototypes, trace);
  const struct call *call;
  for (uint64_t n = 0; (call = call_at(calls, n)) != NULL; n++) {
    const struct ct_trace_function *fn = ct_trace_function(trace, call->fn);
    json_t *item = json_object();
    json_object_set_new(item, "time_ns", json_integer((json_int_t)since_start_ns(trace, call->enter_tsc)));
    json_object_set_new(item, "name", ct_json_string(fn != NULL ? fn->name : "?"));
    json_object_set_new(item, "module",
                        ct_json_string(ct_trace_module_name(trace, fn != NULL ? fn->module : UINT32_MAX)));
    json_object_set_new(item, "depth", json_integer(call->depth));
    json_object_set_new(item, "open", json_boolean(call->open));
    json_object_set_new(item, "duration_ns",
                        call->timed ? json_integer((json_int_t)ct_trace_ticks_ns(trace, call->ticks)) : json_null());
    if (has_values(call)) {
      put_values_json(&prototypes, call, item);
    }
    json_array_append_new(list, item);
  }
  ct_view_prototypes_destroy(&prototypes);
  return list;
}

static void
put_calls_json(struct ct_trace *trace, enum ct_view_time time, json_t *thread)
{
  struct calls calls;
  uint32_t position = find_thread(trace, tid_of(thread));
  if (position != UINT32_MAX && read_calls(trace, time, position, &calls) == 0) {
    json_object_set_new(thread, "last_calls", calls_json(trace, &calls));
  }
}

/* With the threads of the trace that the list does not have. */
static void
add_threads(const struct ct_trace *trace, json_t *threads)
{
  for (uint32_t i = 0; i < ct_trace_thread_count(trace); i++) {
    const struct ct_trace_thread *thread = ct_trace_thread(trace, i);
    json_array_append_new(
        threads, json_pack("{s:I, s:o}", "tid", (json_int_t)thread->tid, "thread_name", ct_json_string(thread->name)));
  }
}

json_t *
ct_crash_json(struct ct_trace *trace, enum ct_view_time time)
{
  const json_t *crash = ct_trace_crash(trace);
  int number = fatal_signal(trace);
  if (crash == NULL && number == 0) {
    return json_null();
  }
  json_t *json = crash != NULL ? json_deep_copy(crash) : json_object();
  if (crash == NULL) {
    char name[32];
    const char *abbreviation = sigabbrev_np(number);
    snprintf(name, sizeof(name), "SIG%s", abbreviation != NULL ? abbreviation : "?");
    json_object_set_new(json, "signal", json_integer(number));
    json_object_set_new(json, "name", json_string(name));
    json_object_set_new(json, "threads", json_array());
    add_threads(trace, json_object_get(json, "threads"));
  }
  json_int_t tsc = json_integer_value(json_object_get(json, "tsc"));
  if (tsc > 0) {
    json_object_set_new(json, "time_ns", json_integer((json_int_t)since_start_ns(trace, (uint64_t)tsc)));
  }
  size_t i;
  json_t *thread;
  json_array_foreach(json_object_get(json, "threads"), i, thread) put_calls_json(trace, time, thread);
  return json;
}

/* ---- Text ---- */

static void
begin_line(FILE *out, const char *text)
{
  fprintf(out, "%-*s ", LABEL_COLUMNS, text);
}

static void
put_seconds(FILE *out, uint64_t ns)
{
  fprintf(out, "%" PRIu64 ".%09" PRIu64, ns / 1000000000u, ns % 1000000000u);
}

static const char *
last_part(const char *path)
{
  const char *slash = strrchr(path, '/');
  return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

static void
write_frame(FILE *out, size_t n, const json_t *frame)
{
  const char *raw = text_of(frame, "function"), *module = text_of(frame, "module"), *offset = text_of(frame, "offset");
  const char *file = text_of(frame, "file"), *pc = text_of(frame, "pc");
  begin_line(out, "");
  fprintf(out, "#%-3zu ", n);
  if (raw != NULL) {
    char *name = ct_demangle(raw);
    ct_put_printable(out, name != NULL ? name : raw, SIZE_MAX);
    free(name);
    fprintf(out, "+0x%llx ", (long long)json_integer_value(json_object_get(frame, "function_offset")));
  }
  if (module != NULL) {
    fputs(raw != NULL ? "(" : "", out);
    ct_put_printable(out, last_part(module), SIZE_MAX);
    putc('+', out);
    ct_put_printable(out, offset != NULL ? offset : "?", SIZE_MAX);
    fputs(raw != NULL ? ")" : "", out);
  } else {
    ct_put_printable(out, pc != NULL ? pc : "?", SIZE_MAX);
  }
  if (file != NULL) {
    fputs(" at ", out);
    ct_put_printable(out, last_part(file), SIZE_MAX);
    fprintf(out, ":%lld", (long long)json_integer_value(json_object_get(frame, "line")));
  }
  putc('\n', out);
}

static void
write_backtrace(FILE *out, const json_t *thread, size_t max)
{
  const json_t *list = json_object_get(thread, "backtrace");
  size_t count = json_array_size(list);
  for (size_t i = 0; i < count && i < max; i++) {
    write_frame(out, i, json_array_get(list, i));
  }
  if (count > max || json_is_true(json_object_get(thread, "cut"))) {
    begin_line(out, "");
    fputs("...\n", out);
  }
  const char *why = text_of(thread, "ends_because");
  if (why != NULL && count <= max) {
    begin_line(out, "");
    fputs("further out it is not known: ", out);
    ct_put_printable(out, why, SIZE_MAX);
    putc('\n', out);
  }
}

/* The function's name, and its values where there are some. */
static void
write_call_name(struct ct_view_prototypes *prototypes, const struct call *call, FILE *out)
{
  const struct ct_trace_function *fn = ct_trace_function(prototypes->trace, call->fn);
  const char *name = fn != NULL ? fn->name : "?";
  const struct ct_prototype *prototype = has_values(call) ? ct_view_prototype(prototypes, call->fn) : NULL;
  struct shown_call shown = {prototypes, &call->registers};
  struct ct_value_context context = {.arg = &shown, .symbol = find_symbol, .memory = read_memory};
  struct ct_value_text text = {NULL, 0, 0};
  if (prototype == NULL) {
    ct_put_printable(out, name, SIZE_MAX);
    return;
  }
  ct_put_printable(out, name, strchr(name, '(') != NULL ? ct_demangled_name_length(name) : SIZE_MAX);
  ct_values_put_arguments(&text, prototype, &call->registers, &context);
  fprintf(out, "(%s)", text.data != NULL ? text.data : "");
  text.length = 0;
  if (call->registers.results_known != 0) {
    ct_values_put_result(&text, prototype, &call->registers, &context);
    fputs(text.length != 0 ? text.data : "", out);
  }
  ct_value_text_free(&text);
}

static int
write_calls(struct ct_trace *trace, enum ct_view_time time, FILE *out, uint32_t position, uint64_t max)
{
  struct calls calls;
  const struct call *call;
  uint32_t outermost = UINT32_MAX;
  int code = position == UINT32_MAX ? 0 : read_calls(trace, time, position, &calls);
  if (code != 0 || position == UINT32_MAX || calls.count == 0) {
    return code;
  }
  uint64_t kept = calls.count < CALLS_MAX ? calls.count : CALLS_MAX, first = kept > max ? kept - max : 0;
  for (uint64_t n = first; (call = call_at(&calls, n)) != NULL; n++) {
    outermost = call->depth < outermost ? call->depth : outermost;
  }
  struct ct_view_prototypes prototypes;
  ct_view_prototypes_init(&prototypes, trace);
  begin_line(out, "");
  fputs("last calls (time, duration, depth):\n", out);
  for (uint64_t n = first; (call = call_at(&calls, n)) != NULL; n++) {
    const struct ct_trace_function *fn = ct_trace_function(trace, call->fn);
    char duration[CT_DURATION_CHARS] = "";
    uint32_t indent = call->depth - outermost;
    if (call->timed) {
      ct_format_duration(duration, ct_trace_ticks_ns(trace, call->ticks));
    }
    begin_line(out, "");
    fputs("  ", out);
    put_seconds(out, since_start_ns(trace, call->enter_tsc));
    fprintf(out, " %10s %4u  %*s", duration, call->depth, 2 * (int)(indent < INDENT_MAX ? indent : INDENT_MAX), "");
    write_call_name(&prototypes, call, out);
    fputs(" (", out);
    ct_put_printable(out, ct_trace_module_name(trace, fn != NULL ? fn->module : UINT32_MAX), SIZE_MAX);
    fputs(call->open ? ")  -- unfinished\n" : ")\n", out);
  }
  ct_view_prototypes_destroy(&prototypes);
  return 0;
}

static void
write_thread_name(FILE *out, const char *name, uint32_t tid)
{
  ct_put_printable(out, name != NULL ? name : "", SIZE_MAX);
  fprintf(out, "%s%u", name != NULL && name[0] != '\0' ? "/" : "", tid);
}

static void
write_registers(FILE *out, const json_t *registers)
{
  static const char *const names[] = {"rip", "rsp", "rbp", "rax", "rbx", "rcx", "rdx", "rsi", "rdi",
                                      "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15", "eflags"};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    const char *value = text_of(registers, names[i]);
    if (i % 3 == 0) {
      begin_line(out, "");
    }
    char shown[24];
    snprintf(shown, sizeof(shown), "%s", value != NULL ? value : "?");
    ct_make_printable(shown);
    fprintf(out, i % 3 == 2 ? "%-6s %s\n" : "%-6s %-18s  ", names[i], shown);
  }
}

/* The first lines: what happened, where to, in which thread, when. */
static void
write_heading(struct ct_trace *trace, FILE *out, const json_t *crash)
{
  const char *name = text_of(crash, "name"), *meaning = text_of(crash, "meaning"), *code = text_of(crash, "code_name");
  const char *address = text_of(crash, "address");
  const json_t *thread = json_array_get(json_object_get(crash, "threads"), 0);
  json_int_t tsc = json_integer_value(json_object_get(crash, "tsc"));
  begin_line(out, "crashed");
  ct_put_printable(out, name != NULL ? name : "by a signal", SIZE_MAX);
  if (meaning != NULL) {
    fputs(": ", out);
    ct_put_printable(out, meaning, SIZE_MAX);
  }
  if (code != NULL) {
    fputs(" (", out);
    ct_put_printable(out, code, SIZE_MAX);
    fputs(")", out);
  }
  if (address != NULL) {
    fputs(", address ", out);
    ct_put_printable(out, address, SIZE_MAX);
  }
  if (json_is_integer(json_object_get(crash, "sender_pid"))) {
    fprintf(out, ", by process %lld of user %lld", (long long)json_integer_value(json_object_get(crash, "sender_pid")),
            (long long)json_integer_value(json_object_get(crash, "sender_uid")));
  }
  putc('\n', out);
  begin_line(out, "");
  fputs("in thread ", out);
  write_thread_name(out, text_of(thread, "thread_name"), tid_of(crash));
  fputs(", ", out);
  put_seconds(out, since_start_ns(trace, tsc > 0 ? (uint64_t)tsc : 0));
  fputs(" s after the start\n", out);
}

static int
write_crash(struct ct_trace *trace, enum ct_view_time time, FILE *out, const json_t *crash)
{
  const json_t *threads = json_object_get(crash, "threads");
  size_t count = json_array_size(threads);
  write_heading(trace, out, crash);
  write_backtrace(out, json_array_get(threads, 0), FRAMES_SHOWN);
  write_registers(out, json_object_get(crash, "registers"));
  int code = write_calls(trace, time, out, find_thread(trace, tid_of(crash)), CALLS_SHOWN);
  for (size_t i = 1; i < count && i <= OTHERS_SHOWN && code == 0; i++) {
    const json_t *thread = json_array_get(threads, i);
    const json_t *number = json_object_get(thread, "system_call");
    begin_line(out, "");
    fputs("thread ", out);
    write_thread_name(out, text_of(thread, "thread_name"), tid_of(thread));
    if (json_is_integer(number)) {
      fprintf(out, ", in system call %lld", (long long)json_integer_value(number));
    }
    fputs(":\n", out);
    write_backtrace(out, thread, FRAMES_OTHERS);
    code = write_calls(trace, time, out, find_thread(trace, tid_of(thread)), CALLS_OTHERS);
  }
  if (count > OTHERS_SHOWN + 1) {
    begin_line(out, "");
    fprintf(out, "... and %zu more thread%s; --json has all\n", count - OTHERS_SHOWN - 1,
            count == OTHERS_SHOWN + 2 ? "" : "s");
  }
  const char *missing = text_of(crash, "others_missing");
  if (missing != NULL) {
    begin_line(out, "");
    fputs("other threads are not here: ", out);
    ct_put_printable(out, missing, SIZE_MAX);
    putc('\n', out);
  }
  return code;
}

/* Only the wait status is known. */
static int
write_killed(struct ct_trace *trace, enum ct_view_time time, FILE *out, int number)
{
  const char *name = sigabbrev_np(number), *text = sigdescr_np(number);
  uint32_t count = ct_trace_thread_count(trace);
  int code = 0;
  bool has_steps = json_object_get(ct_trace_manifest(trace), "instructions") != NULL;
  begin_line(out, "killed");
  fprintf(out, "by SIG%s (%s); %s\n", name != NULL ? name : "?", text != NULL ? text : "unknown",
          has_steps ? "contrail steps --tail shows the last instructions, contrail debug what they had"
                    : "nothing more is known of it");
  if (number == SIGSEGV && !has_steps) {
    begin_line(out, "");
    fputs("(a stack without room for a signal frame, or the program blocked or had handled the signal)\n", out);
  }
  for (uint32_t i = 0; i < count && i < OTHERS_SHOWN && code == 0; i++) {
    const struct ct_trace_thread *thread = ct_trace_thread(trace, i);
    begin_line(out, "");
    fputs("thread ", out);
    write_thread_name(out, thread->name, thread->tid);
    fputs(":\n", out);
    code = write_calls(trace, time, out, i, i == 0 ? CALLS_SHOWN : CALLS_OTHERS);
  }
  if (count > OTHERS_SHOWN) {
    begin_line(out, "");
    fprintf(out, "... and %u more thread%s; --json has all\n", count - OTHERS_SHOWN,
            count == OTHERS_SHOWN + 1 ? "" : "s");
  }
  return code;
}

int
ct_crash_write(struct ct_trace *trace, enum ct_view_time time, FILE *out)
{
  const json_t *crash = ct_trace_crash(trace);
  int number = fatal_signal(trace), code = 0;
  if (crash != NULL) {
    code = write_crash(trace, time, out, crash);
  } else if (number != 0) {
    code = write_killed(trace, time, out, number);
  } else {
    return 0;
  }
  putc('\n', out);
  return code;
}

void
ct_stacks_write(const struct ct_trace *trace, FILE *out)
{
  const json_t *threads = json_object_get(ct_trace_stacks(trace), "threads"), *thread;
  size_t count = json_array_size(threads), i;
  json_array_foreach(threads, i, thread)
  {
    const json_t *number = json_object_get(thread, "system_call");
    if (i == OTHERS_SHOWN) {
      break;
    }
    begin_line(out, i == 0 ? "stacks" : "");
    fputs(i == 0 ? "when contrail attached: thread " : "thread ", out);
    write_thread_name(out, text_of(thread, "thread_name"), tid_of(thread));
    if (json_is_integer(number)) {
      fprintf(out, ", in system call %lld", (long long)json_integer_value(number));
    }
    fputs(":\n", out);
    write_backtrace(out, thread, FRAMES_ATTACHED);
  }
  if (count > OTHERS_SHOWN) {
    begin_line(out, "");
    fprintf(out, "... and %zu more thread%s; --json has all\n", count - OTHERS_SHOWN,
            count == OTHERS_SHOWN + 1 ? "" : "s");
  }
}
