/* SPDX-License-Identifier: MIT */
/*
 * manifest.json of ATF V2, docs/atf.md: what the trace's own manifest says, under the same names, with times in the
 * clock of the files and without what is about files that are not here; the threads, lanes and windows as they are
 * written; how it was recorded, in one place.
 */
#include "export/atf.h"

#include "base/json.h"
#include "trace/format.h"

#include <contrail/version.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const ct_atf_loss_names[ATF_LOSSES] = {
    [ATF_TAIL] = "tail_calls",
    [ATF_POINT] = "enter_only",
    [ATF_SAMPLED] = "sampled_calls_left_out",
    [ATF_BEFORE] = "open_before",
    [ATF_LEFT] = "ended_without_return",
    [ATF_UNSEEN] = "returns_not_seen",
    [ATF_ORPHAN] = "returns_without_call",
    [ATF_SWITCH] = "stack_switches_left_out",
    [ATF_EXEC] = "execs_left_out",
    [ATF_AWAY] = "times_off_processor_left_out",
    [ATF_VALUE] = "values_left_out",
    [ATF_LOST] = "lost_events",
    [ATF_COUNTED] = "counted_calls_left_out",
};

/* What is not taken over: in ticks, with ids of ours, about our files, or written anew. */
static const char *const dropped_keys[] = {"format",     "version", "clock",   "end_tsc", "files", "function_count",
                                           "modules",    "threads", "windows", "kept",    "cost",  "children",
                                           "hook_costs", "output",  "memory",  NULL};
static const char *const option_keys[] = {"exclude", "patterns", "max_depth", "rules", "detail", "budget", NULL};

static json_t *
threads_json(const struct ct_atf_process *process)
{
  json_t *list = json_array();
  for (uint32_t i = 0; i < ct_trace_thread_count(process->trace); i++) {
    const struct ct_trace_thread *thread = ct_trace_thread(process->trace, i);
    const struct ct_atf_thread *written = &process->threads[i];
    if (!written->is_written) {
      continue;
    }
    char index[64], detail[64];
    snprintf(index, sizeof(index), CT_TRACE_THREAD_DIR "%" PRIu32 "/" CT_ATF_INDEX, thread->index);
    snprintf(detail, sizeof(detail), CT_TRACE_THREAD_DIR "%" PRIu32 "/" CT_ATF_DETAIL, thread->index);
    json_t *json = json_pack("{s:I, s:I, s:o, s:s}", "index", (json_int_t)thread->index, "tid", (json_int_t)thread->tid,
                             "name", ct_json_string(thread->name), "index_file", index);
    json_object_set_new(json, "detail_file", written->details != 0 ? json_string(detail) : json_null());
    ct_json_put(json, "first_ns", written->first_ns);
    ct_json_put(json, "last_ns", written->last_ns);
    ct_json_put(json, "events", written->calls + written->returns + written->exceptions);
    ct_json_put(json, "calls", written->calls);
    ct_json_put(json, "returns", written->returns);
    ct_json_put(json, "exceptions", written->exceptions);
    ct_json_put(json, "details", written->details);
    ct_json_put(json, "dropped", thread->dropped);
    ct_json_put(json, "end_time", ct_atf_time(process, thread->end_tsc));
    json_object_set_new(json, "exited", json_boolean(thread->exited));
    json_array_append_new(list, json);
  }
  return list;
}

static json_t *
lanes_json(const struct ct_atf_process *process, const json_t *own)
{
  uint64_t events = 0, details = 0;
  for (uint32_t i = 0; i < ct_trace_thread_count(process->trace); i++) {
    const struct ct_atf_thread *written = &process->threads[i];
    events += written->calls + written->returns + written->exceptions;
    details += written->details;
  }
  json_t *mapped = json_object();
  for (int i = 0; i < ATF_LOSSES; i++) {
    ct_json_put(mapped, ct_atf_loss_names[i], process->losses[i]);
  }
  json_t *reasons = json_object_get(own, "dropped_by_reason"), *detail = json_object_get(own, "detail");
  json_t *lanes = json_object(), *index = json_object(), *second = json_object();
  ct_json_put(index, "events", events);
  ct_json_put(index, "dropped", ct_json_get(own, "dropped_total"));
  json_object_set_new(index, "dropped_by_reason", reasons != NULL ? json_deep_copy(reasons) : json_object());
  json_object_set_new(index, "mapped", mapped);
  ct_json_put(second, "events", details);
  ct_json_put(second, "dropped",
              ct_json_get(detail, "overwritten") + ct_json_get(detail, "no_room") + ct_json_get(detail, "refused") +
                  ct_json_get(detail, "outside_windows") + ct_json_get(detail, "no_memory"));
  json_object_set_new(lanes, "index", index);
  json_object_set_new(lanes, "detail", second);
  return lanes;
}

static json_t *
reasons_json(const struct ct_atf_process *process, const json_t *own)
{
  json_t *list = json_array();
  for (size_t i = 0; i < json_array_size(own); i++) {
    json_t *reason = json_deep_copy(json_array_get(own, i));
    const json_t *function = json_object_get(reason, "function");
    uint64_t id = (uint64_t)json_integer_value(function);
    ct_json_put(reason, "time", ct_atf_time(process, ct_json_get(reason, "tsc")));
    json_object_del(reason, "tsc");
    if (json_is_integer(function) && id < ct_trace_function_count(process->trace)) {
      ct_json_put(reason, "function", process->ids.of[id]);
    }
    json_array_append_new(list, reason);
  }
  return list;
}

/* With start and end, what triggered it, and how long before its first mark it begins and after its last one it ends.
 */
static json_t *
windows_json(const struct ct_atf_process *process, const json_t *own)
{
  json_t *list = json_array();
  for (size_t i = 0; i < ct_trace_window_count(process->trace); i++) {
    struct ct_trace_window window;
    const json_t *item = json_array_get(json_object_get(own, "windows"), i);
    if (!ct_trace_window(process->trace, i, &window) || !ct_trace_in_range(process->trace, window.begin_tsc)) {
      continue;
    }
    json_t *reasons = reasons_json(process, json_object_get(item, "reasons"));
    uint64_t start = ct_atf_time(process, window.begin_tsc), end = ct_atf_time(process, window.end_tsc);
    const json_t *first = json_array_get(reasons, 0), *last = json_array_get(reasons, json_array_size(reasons) - 1);
    json_t *json = json_object(), *rule = json_object_get(first, "rule");
    uint64_t first_time = ct_json_get(first, "time"), last_time = ct_json_get(last, "time");
    ct_json_put(json, "number", ct_json_get(item, "number"));
    ct_json_put(json, "start", start);
    ct_json_put(json, "end", end);
    ct_json_put(json, "marks", window.marks);
    json_object_set_new(json, "trigger", rule != NULL ? json_incref(rule) : json_null());
    ct_json_put(json, "pre_roll_ns", first_time > start ? first_time - start : 0);
    ct_json_put(json, "post_roll_ns", last_time != 0 && end > last_time ? end - last_time : 0);
    json_object_set_new(json, "reasons", reasons);
    json_array_append_new(list, json);
  }
  return list;
}

/* What the hooks took, from ticks to nanoseconds. */
static json_t *
costs_json(const struct ct_atf_process *process, const json_t *own)
{
  enum { TICKS = 1 << 30 };
  double scale = (double)ct_trace_ticks_ns(process->trace, TICKS) / TICKS;
  const char *key;
  json_t *value, *costs = json_object_get(own, "hook_costs"), *out = json_object();
  json_object_foreach(costs, key, value)
  {
    json_object_set_new(out, key, json_real(json_number_value(value) * scale));
  }
  return out;
}

static json_t *
options_json(json_t *manifest, const json_t *own)
{
  json_t *options = json_object(), *kept = json_object_get(own, "kept");
  for (const char *const *key = option_keys; *key != NULL; key++) {
    json_t *value = json_object_get(manifest, *key);
    if (value != NULL) {
      json_object_set(options, *key, value);
    }
  }
  if (kept != NULL) {
    json_object_set_new(options, "kept",
                        json_pack("{s:I, s:I}", "limit_bytes", (json_int_t)ct_json_get(kept, "limit_bytes"), "limit_ns",
                                  (json_int_t)ct_json_get(kept, "limit_ns")));
  }
  return options;
}

static json_t *
host_json(const struct ct_atf_process *process)
{
  return json_pack("{s:s, s:s, s:s, s:b}", "os", "linux", "arch", "x86_64", "clock",
                   process->has_boot ? "boottime" : "monotonic", "clock_is_converted", process->has_boot);
}

static json_t *
manifest_json(struct ct_atf_process *process, json_t *modules)
{
  const json_t *own = ct_trace_manifest(process->trace);
  json_t *manifest = json_deep_copy(own), *budget = json_object_get(manifest, "budget");
  for (const char *const *key = dropped_keys; *key != NULL; key++) {
    json_object_del(manifest, *key);
  }
  json_object_del(budget, "were_out");
  json_object_del(budget, "out_during");
  json_object_del(budget, "last_steps");
  json_object_set_new(manifest, "format", json_string(CT_ATF_FORMAT_NAME));
  json_object_set_new(manifest, "version", json_integer(CT_ATF_VERSION));
  json_object_set_new(manifest, "writer", json_pack("{s:s, s:s}", "name", "contrail", "version", ct_version()));
  json_object_set_new(manifest, "host", host_json(process));
  ct_json_put(manifest, "end_time", ct_atf_time(process, ct_trace_end_tsc(process->trace)));
  json_object_set_new(manifest, "hook_costs", costs_json(process, own));
  json_object_set_new(manifest, "modules", modules);
  json_object_set_new(manifest, "threads", threads_json(process));
  json_object_set_new(manifest, "lanes", lanes_json(process, own));
  json_object_set_new(manifest, "windows", windows_json(process, own));
  json_object_set_new(manifest, "options", options_json(manifest, own));
  if (process->children != NULL) {
    json_object_set(manifest, "children", process->children);
  }
  return manifest;
}

int
ct_atf_write_manifest(struct ct_atf_process *process)
{
  json_t *modules = json_array();
  int err = modules != NULL ? ct_atf_write_functions(process, modules) : CT_ENOMEM;
  if (err != CT_OK) {
    json_decref(modules);
    return err;
  }
  json_t *manifest = manifest_json(process, modules);
  char *text = manifest != NULL ? json_dumps(manifest, JSON_INDENT(1)) : NULL;
  json_decref(manifest);
  if (text == NULL) {
    return CT_ENOMEM;
  }
  int fd = openat(process->dir_fd, CT_TRACE_MANIFEST, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;
  bool failed = out == NULL || fprintf(out, "%s\n", text) < 0;
  process->bytes += strlen(text) + 1;
  free(text);
  failed |= out != NULL && fclose(out) != 0;
  return failed ? CT_EIO : CT_OK;
}
