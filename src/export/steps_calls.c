/* SPDX-License-Identifier: MIT */
/* A recording of instructions as a trace of its calls: what steps/calls.h tells, encoded as a recorder would. */
#include "export/steps.h"

#include "base/error.h"
#include "base/json.h"
#include "steps/calls.h"
#include "trace/encoder.h"
#include "trace/tree.h"
#include "trace/writer.h"

#include <contrail/trace.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BUFFER_BYTES = 32 << 20 };

struct conversion {
  const struct ct_export_steps_job *job;
  struct ct_trace_writer *writer;
  struct ct_encoder *encoder; /* of the thread */
  json_t *modules, *threads;  /* of the manifest */
  json_t *numbers;            /* "path" and "path address": numbers of modules and functions */
  uint32_t functions;
  uint32_t *ids; /* of the thread's functions in the trace */
  size_t id_count, id_capacity;
  uint64_t lost, thread_lost;
  uint64_t start_tsc, end_tsc; /* of all threads */
  struct ct_steps_calls_facts first;
};

/* ---- functions ---- */

static uint32_t
module_of(struct conversion *c, const struct ct_steps_call_function *function)
{
  if (function->module == NULL || function->module[0] == '\0') {
    return UINT32_MAX;
  }
  json_t *known = json_object_get(c->numbers, function->module);
  if (known != NULL) {
    return (uint32_t)json_integer_value(known);
  }
  size_t index = json_array_size(c->modules);
  json_t *module = json_object();
  ct_json_put(module, "index", index);
  json_object_set_new(module, "path", ct_json_string(function->module));
  json_object_set_new(module, "build_id", json_string(function->build_id));
  ct_json_put(module, "base", function->base);
  json_array_append_new(c->modules, module);
  json_object_set_new_nocheck(c->numbers, function->module, json_integer((json_int_t)index));
  return (uint32_t)index;
}

static int
take_function(void *context, const struct ct_steps_call_function *function)
{
  struct conversion *c = context;
  char key[4200];
  if (function->id >= c->id_capacity) {
    size_t capacity = 2 * ((size_t)function->id + 512);
    uint32_t *ids = reallocarray(c->ids, capacity, sizeof(*ids));
    if (ids == NULL) {
      return CT_ENOMEM;
    }
    c->ids = ids;
    c->id_capacity = capacity;
  }
  snprintf(key, sizeof(key), "%s %" PRIx64, function->module != NULL ? function->module : "", function->address);
  const json_t *known = json_object_get(c->numbers, key);
  if (known != NULL) {
    c->ids[function->id] = (uint32_t)json_integer_value(known);
    return 0;
  }
  if (c->functions >= CT_FUNCTION_ID_MAX) {
    return CT_ERANGE;
  }
  c->ids[function->id] = c->functions;
  json_object_set_new_nocheck(c->numbers, key, json_integer((json_int_t)c->functions));
  return ct_trace_writer_function(c->writer, c->functions++, module_of(c, function), function->address, function->size,
                                  "full", function->raw != NULL ? function->raw : "");
}

/* ---- events ---- */

static int
take_event(void *context, const struct ct_steps_call *event)
{
  struct conversion *c = context;
  struct ct_encoder *encoder = c->encoder;
  uint64_t time = c->job->options->by_instructions ? event->step + 1 : event->tsc;
  bool has_top = ct_encoder_top(encoder) != NULL;
  switch (event->kind) {
  case CT_STEPS_CALL_ENTER:
    ct_encode_enter(encoder, time, c->ids[event->fn], 0);
    if (event->before) {
      ct_encode_value(encoder, CT_VALUE_BEFORE, 0);
    }
    break;
  case CT_STEPS_CALL_TAIL:
    ct_encode_tail(encoder, time, c->ids[event->fn]);
    break;
  case CT_STEPS_CALL_RETURN:
    if (has_top) {
      ct_encode_return(encoder, time);
    }
    break;
  case CT_STEPS_CALL_UNWOUND:
  case CT_STEPS_CALL_GONE:
    if (has_top) {
      ct_encode_unwound(encoder, time, event->kind == CT_STEPS_CALL_GONE ? CT_UNWOUND_LOST : CT_UNWOUND_JUMP);
    }
    break;
  case CT_STEPS_CALL_LOST:
    c->thread_lost++;
    ct_encode_lost(encoder, time, 1);
    break;
  case CT_STEPS_CALL_SWITCH:
    ct_encode_switch(encoder, time, event->stack);
    break;
  default:
    ct_encode_exec(encoder, time);
    break;
  }
  return ct_trace_writer_error(c->writer, NULL);
}

/* ---- threads ---- */

static void
add_thread(struct conversion *c, uint32_t index, const struct ct_steps_calls_facts *facts)
{
  json_t *thread = json_object();
  uint64_t events = ct_encoder_events(c->encoder);
  uint64_t end = c->job->options->by_instructions ? facts->steps + 1 : facts->last_tsc;
  ct_json_put(thread, "index", index);
  ct_json_put(thread, "tid", (uint64_t)(uint32_t)facts->tid);
  json_object_set_new(thread, "name", json_string(""));
  ct_json_put(thread, "events", events);
  ct_json_put(thread, "dropped", c->thread_lost);
  ct_json_put(thread, "end_tsc", end);
  json_object_set_new(thread, "exited", json_boolean(facts->has_ended));
  json_array_append_new(c->threads, thread);
  c->job->summary->events += events;
  c->job->summary->threads++;
  c->lost += c->thread_lost;
  c->end_tsc = end > c->end_tsc ? end : c->end_tsc;
  if (index == 0 || facts->tsc < c->first.tsc) {
    c->first = *facts;
  }
}

static void
note(struct ct_export_summary *summary, const char *text)
{
  if (summary->mapped[0] == '\0') {
    snprintf(summary->mapped, sizeof(summary->mapped), "%s", text);
  }
}

static int
convert_thread(struct conversion *c, uint32_t index, struct ct_diag *diag)
{
  struct ct_steps_calls_facts facts;
  struct ct_diag head = {""};
  struct ct_steps_calls_callbacks callbacks = {take_function, take_event, c};
  const char *dot = strrchr(c->job->files[index], '.');
  uint32_t tid = dot != NULL ? (uint32_t)strtoul(dot + 1, NULL, 10) : 0;
  c->thread_lost = 0;
  int code = ct_trace_writer_thread(c->writer, index, tid, tid, &c->encoder);
  if (code == 0) {
    code = ct_steps_calls_read(c->job->files[index], &callbacks, &facts, &head);
  }
  if (code != 0) {
    return ct_fail(diag, code, "%s", head.text[0] != '\0' ? head.text : ct_err_text(code));
  }
  if (facts.damage[0] != '\0') {
    note(c->job->summary, facts.damage);
  }
  add_thread(c, index, &facts);
  return ct_encoder_close(c->encoder);
}

/* ---- the manifest ---- */

static void
put_clock(const struct conversion *c, json_t *manifest)
{
  const struct ct_steps_calls_facts *facts = &c->first;
  bool by_instructions = c->job->options->by_instructions;
  uint64_t hz = by_instructions || facts->tsc_hz == 0 ? 1000000000 : facts->tsc_hz;
  uint64_t tsc0 = by_instructions ? 0 : facts->tsc, ns0 = facts->clock_ns;
  json_t *clock = json_object();
  ct_json_put(clock, "tsc0", tsc0);
  ct_json_put(clock, "ns0", ns0);
  ct_json_put(clock, "tsc1", tsc0 + hz);
  ct_json_put(clock, "ns1", ns0 + 1000000000);
  json_object_set_new(manifest, "clock", clock);
  double length = c->end_tsc > tsc0 ? (double)(c->end_tsc - tsc0) * 1e9 / (double)hz : 0;
  ct_json_put(manifest, "start_ns", ns0);
  ct_json_put(manifest, "end_ns", ns0 + (uint64_t)length);
  ct_json_put(manifest, "start_wall_ns", (uint64_t)facts->wall_ns);
  ct_json_put(manifest, "end_tsc", c->end_tsc);
}

/* Of the program, where its first thread was recorded to the end. */
static json_t *
exit_of(const struct ct_steps_calls_facts *facts)
{
  if (!facts->has_ended || facts->pid != facts->tid) {
    return json_null();
  }
  return WIFSIGNALED(facts->status) ? json_pack("{s:i}", "signal", WTERMSIG(facts->status))
                                    : json_pack("{s:i}", "status", WEXITSTATUS(facts->status));
}

static json_t *
make_manifest(const struct conversion *c)
{
  json_t *manifest = json_object(), *steps = json_object();
  char *state = ct_export_steps_state(c->job->files, c->job->count);
  json_object_set_new(manifest, "format", json_string("contrail"));
  json_object_set_new(manifest, "version", json_integer(CT_TRACE_VERSION));
  json_object_set_new(manifest, "state", json_string("complete"));
  json_object_set_new(manifest, "command", json_pack("[o]", ct_json_string(c->first.program)));
  ct_json_put(manifest, "pid", (uint64_t)(uint32_t)c->first.pid);
  put_clock(c, manifest);
  json_object_set_new(manifest, "attached", json_false());
  json_object_set_new(manifest, "detached", json_false());
  json_object_set_new(manifest, "exit", exit_of(&c->first));
  json_object_set(manifest, "modules", c->modules);
  json_object_set(manifest, "threads", c->threads);
  ct_json_put(manifest, "dropped_total", c->lost);
  json_object_set_new(steps, "of", ct_json_string(c->job->recording));
  json_object_set_new(steps, "state", ct_json_string(state != NULL ? state : ""));
  json_object_set_new(steps, "clock", json_string(c->job->options->by_instructions ? "instructions" : "interpolated"));
  if (c->job->summary->mapped[0] != '\0') {
    json_object_set_new(steps, "damage", ct_json_string(c->job->summary->mapped));
  }
  json_object_set_new(manifest, "instructions", steps);
  free(state);
  return manifest;
}

/* ---- all ---- */

static int
convert(struct conversion *c, struct ct_diag *diag)
{
  int code = 0;
  for (size_t i = 0; i < c->job->count; i++) {
    code = convert_thread(c, (uint32_t)i, diag);
    if (code != 0) {
      goto sum_up;
    }
  }
  json_t *manifest = make_manifest(c);
  code = ct_trace_writer_flush_functions(c->writer);
  code = code == 0 ? ct_trace_writer_manifest(c->writer, manifest) : code;
  json_decref(manifest);
sum_up:
  c->job->summary->processes = 1;
  c->job->summary->bytes = ct_trace_writer_bytes(c->writer);
  return code == 0 || diag == NULL || diag->text[0] != '\0' ? code : ct_fail(diag, code, "%s", ct_err_text(code));
}

int
ct_export_steps_contrail(const struct ct_export_steps_job *job, struct ct_diag *diag)
{
  struct conversion c = {.job = job, .modules = json_array(), .threads = json_array(), .numbers = json_object()};
  struct ct_diag end = {""};
  int code = c.modules != NULL && c.threads != NULL && c.numbers != NULL
                 ? ct_trace_writer_create(job->options->path, BUFFER_BYTES, &c.writer, diag)
                 : ct_fail(diag, CT_ENOMEM, "out of memory for the calls");
  bool is_made = code == 0;
  int fd = is_made ? dup(ct_trace_writer_directory(c.writer)) : -1;
  if (is_made) {
    code = convert(&c, diag);
    int closed = ct_trace_writer_close(c.writer, &end);
    code = code != 0 || closed == 0 ? code : ct_fail(diag, closed, "%s", end.text);
  }
  if (is_made && code != 0 && fd >= 0) {
    ct_trace_empty(fd);
    rmdir(job->options->path);
  }
  if (fd >= 0) {
    close(fd);
  }
  json_decref(c.modules);
  json_decref(c.threads);
  json_decref(c.numbers);
  free(c.ids);
  return code;
}
