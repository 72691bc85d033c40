/* SPDX-License-Identifier: MIT */
/* See manifest.h. */
#include "record/manifest.h"

#include "base/clock.h"
#include "base/json.h"
#include "select/select.h"
#include "process/process.h"
#include "record/modules.h"
#include "trace/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COMMAND_BYTES 65536 /* of a command line that are kept */

/* Both clocks at one moment: the tightest of a few tries. */
static void
read_pair(uint64_t *tsc, uint64_t *ns)
{
  uint64_t best = UINT64_MAX;
  for (int i = 0; i < 8; i++) {
    uint64_t before = __builtin_ia32_rdtsc();
    uint64_t middle = ct_clock_ns(CLOCK_MONOTONIC);
    uint64_t after = __builtin_ia32_rdtsc();
    if (after - before < best) {
      best = after - before;
      *tsc = before + (after - before) / 2;
      *ns = middle;
    }
  }
}

double
ct_manifest_tick_ns(const struct ct_manifest *manifest)
{
  uint64_t tsc = 0, ns = 0;
  read_pair(&tsc, &ns);
  return tsc > manifest->tsc0 ? (double)(ns - manifest->ns0) / (double)(tsc - manifest->tsc0) : 0;
}

static json_t *
exclude_json(const struct ct_exclude *exclude)
{
  json_t *json = json_object();
  json_t *patterns = json_array();
  const char *pattern;
  for (size_t n = 0; (pattern = ct_exclude_pattern(exclude, n)) != NULL; n++) {
    json_array_append_new(patterns, ct_json_string(pattern));
  }
  json_object_set_new(json, "patterns", patterns);
  json_object_set_new(json, "hot", json_boolean(ct_exclude_has_hot(exclude)));
  return json;
}

static void
begin(struct ct_manifest *manifest, const struct ct_session_options *options, pid_t pid)
{
  manifest->exclude = exclude_json(options->exclude);
  manifest->selection = options->selection;
  manifest->max_depth = options->max_depth;
  manifest->command = json_array();
  manifest->images = json_array();
  manifest->pid = pid;
  manifest->start_wall_ns = ct_clock_ns(CLOCK_REALTIME);
  manifest->start_boot_ns = ct_clock_ns(CLOCK_BOOTTIME);
  read_pair(&manifest->tsc0, &manifest->ns0);
}

void
ct_manifest_start(struct ct_manifest *manifest, const struct ct_session_options *options, char *const argv[], pid_t pid)
{
  begin(manifest, options, pid);
  for (; *argv != NULL; argv++) {
    json_array_append_new(manifest->command, ct_json_string(*argv));
  }
}

void
ct_manifest_attach(struct ct_manifest *manifest, const struct ct_session_options *options, pid_t pid)
{
  begin(manifest, options, pid);
  manifest->attached = true;
  ct_manifest_command(manifest, pid);
}

/* Words ended by NUL. */
void
ct_manifest_command(struct ct_manifest *manifest, pid_t pid)
{
  char path[64], words[COMMAND_BYTES];
  snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
  FILE *file = fopen(path, "re");
  size_t size = file != NULL ? fread(words, 1, sizeof(words) - 1, file) : 0;
  words[size] = '\0';
  while (size > 1 && words[size - 1] == '\0' &&
         words[size - 2] == '\0') { /* what a new title has left of the old words */
    size--;
  }
  json_array_clear(manifest->command);
  for (size_t at = 0; at < size; at += strlen(words + at) + 1) {
    json_array_append_new(manifest->command, ct_json_string(words + at));
  }
  if (file != NULL) {
    fclose(file);
  }
}

void
ct_manifest_image(struct ct_manifest *manifest, pid_t pid, const char *path, const char *why_not)
{
  json_t *image = json_object();
  json_object_set_new(image, "pid", json_integer(pid));
  json_object_set_new(image, "path", ct_json_string(path));
  json_object_set_new(image, "recorded", json_boolean(why_not == NULL));
  if (why_not != NULL) {
    json_object_set_new(image, "not_recorded_because", ct_json_string(why_not));
  }
  json_array_append_new(manifest->images, image);
}

static uint64_t
timeval_ns(const struct timeval *t)
{
  return (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_usec * 1000u;
}

void
ct_manifest_change(struct ct_manifest *manifest, const char *what, const char *pattern, size_t hooked,
                   uint64_t pause_ns)
{
  json_t *change = json_object();
  manifest->changes = manifest->changes != NULL ? manifest->changes : json_array();
  json_object_set_new(change, "ns", json_integer((json_int_t)ct_clock_ns(CLOCK_MONOTONIC)));
  json_object_set_new(change, "what", json_string(what));
  json_object_set_new(change, "pattern", ct_json_string(pattern));
  json_object_set_new(change, "hooked", json_integer((json_int_t)hooked));
  json_object_set_new(change, "held_ns", json_integer((json_int_t)pause_ns));
  json_array_append_new(manifest->changes, change);
}

void
ct_manifest_exclude(struct ct_manifest *manifest, const struct ct_exclude *exclude)
{
  json_decref(manifest->exclude);
  manifest->exclude = exclude_json(exclude);
}

void
ct_manifest_stop(struct ct_manifest *manifest)
{
  manifest->end_tsc = manifest->end_tsc != 0 ? manifest->end_tsc : __builtin_ia32_rdtsc();
}

static void
end_now(struct ct_manifest *manifest)
{
  ct_manifest_stop(manifest);
  manifest->end_wall_ns = ct_clock_ns(CLOCK_REALTIME);
  manifest->end_boot_ns = ct_clock_ns(CLOCK_BOOTTIME);
  manifest->end_ns = ct_clock_ns(CLOCK_MONOTONIC);
}

void
ct_manifest_detach(struct ct_manifest *manifest)
{
  manifest->detached = true;
  manifest->has_end = true;
  end_now(manifest);
}

void
ct_manifest_end(struct ct_manifest *manifest, bool known, int wait_status)
{
  manifest->has_end = true;
  manifest->has_exit = known;
  manifest->wait_status = wait_status;
  struct rusage usage; /* the program is our only child, and has been waited for */
  if (!manifest->attached && getrusage(RUSAGE_CHILDREN, &usage) == 0) {
    manifest->user_ns = timeval_ns(&usage.ru_utime);
    manifest->system_ns = timeval_ns(&usage.ru_stime);
  }
  end_now(manifest);
}

static json_t *
exit_json(const struct ct_manifest *manifest)
{
  if (!manifest->has_exit) {
    return json_null();
  }
  json_t *json = json_object();
  if (WIFSIGNALED(manifest->wait_status)) {
    json_object_set_new(json, "signal", json_integer(WTERMSIG(manifest->wait_status)));
  } else {
    json_object_set_new(json, "status", json_integer(WEXITSTATUS(manifest->wait_status)));
  }
  return json;
}

static json_t *
clock_json(const struct ct_manifest *manifest, uint64_t tsc1, uint64_t ns1)
{
  json_t *json = json_object();
  json_object_set_new(json, "tsc0", json_integer((json_int_t)manifest->tsc0));
  json_object_set_new(json, "ns0", json_integer((json_int_t)manifest->ns0));
  json_object_set_new(json, "tsc1", json_integer((json_int_t)tsc1));
  json_object_set_new(json, "ns1", json_integer((json_int_t)ns1));
  return json;
}

json_t *
ct_manifest_thread(const struct ct_drain_thread_info *info)
{
  json_t *thread = json_object();
  json_object_set_new(thread, "index", json_integer(info->index));
  json_object_set_new(thread, "tid", json_integer(info->tid));
  json_object_set_new(thread, "name", ct_json_string(info->name));
  json_object_set_new(thread, "events", json_integer((json_int_t)info->events));
  json_object_set_new(thread, "dropped", json_integer((json_int_t)info->dropped));
  json_object_set_new(thread, "skipped", json_integer((json_int_t)info->skipped));
  json_object_set_new(thread, "swaps", json_integer((json_int_t)info->swaps));
  if (info->detail_swaps != 0) {
    json_object_set_new(thread, "detail_swaps", json_integer((json_int_t)info->detail_swaps));
  }
  if (info->end_tsc != 0) {
    json_object_set_new(thread, "end_tsc", json_integer((json_int_t)info->end_tsc));
    json_object_set_new(thread, "exited", json_boolean(info->exited));
  }
  if (info->cpu_ns != 0) {
    json_object_set_new(thread, "cpu_ns", json_integer((json_int_t)info->cpu_ns));
    json_object_set_new(thread, "delay_ns", json_integer((json_int_t)info->delay_ns));
  }
  return thread;
}

static json_t *
threads_json(const struct ct_drain_thread_info *threads, size_t count)
{
  json_t *list = json_array();
  for (size_t i = 0; i < count; i++) {
    json_array_append_new(list, ct_manifest_thread(&threads[i]));
  }
  return list;
}

static json_t *
drops_json(const struct ct_drain_stats *stats)
{
  json_t *json = json_object();
  for (int reason = 0; reason < CT_DROP_COUNT; reason++) {
    json_object_set_new(json, ct_drop_name(reason), json_integer((json_int_t)stats->dropped_by[reason]));
  }
  return json;
}

json_t *
ct_manifest_output(const struct ct_drain *drain)
{
  struct ct_capture_stats stats = ct_drain_capture_stats(drain), *capture = &stats;
  json_t *json = json_object();
  json_object_set_new(json, "stdout_bytes", json_integer((json_int_t)capture->given[0]));
  json_object_set_new(json, "stderr_bytes", json_integer((json_int_t)capture->given[1]));
  json_object_set_new(json, "recorded_bytes", json_integer((json_int_t)capture->recorded));
  json_object_set_new(json, "dropped_bytes", json_integer((json_int_t)capture->dropped));
  json_object_set_new(json, "limit_bytes", json_integer((json_int_t)capture->limit));
  return json;
}

json_t *
ct_manifest_detail(const struct ct_drain *drain, struct ct_detail_form form, bool is_marked)
{
  struct ct_detail_stats stats = ct_drain_detail_stats(drain);
  json_t *json = json_object();
  json_object_set_new(json, "records",
                      json_integer((json_int_t)(stats.recorded - stats.outside - stats.no_memory - stats.no_disk)));
  json_object_set_new(json, "overwritten", json_integer((json_int_t)stats.overwritten));
  json_object_set_new(json, "no_room", json_integer((json_int_t)stats.skipped));
  json_object_set_new(json, "refused", json_integer((json_int_t)stats.refused));
  if (is_marked) {
    json_object_set_new(json, "outside_windows", json_integer((json_int_t)stats.outside));
    json_object_set_new(json, "no_memory", json_integer((json_int_t)stats.no_memory));
    json_object_set_new(json, "over_size", json_integer((json_int_t)stats.no_disk));
  }
  json_object_set_new(json, "stack_bytes", json_integer(form.stack));
  json_object_set_new(json, "vectors", json_boolean(form.vectors));
  return json;
}

/* How many files were planned, and how many of the plans came from the cache. */
json_t *
ct_manifest_analysis(const struct ct_manifest *manifest)
{
  struct ct_cache_stats stats = ct_cache_stats(manifest->cache);
  const char *path = ct_cache_path(manifest->cache);
  json_t *json = json_object();
  json_object_set_new(json, "cache", path != NULL ? ct_json_string(path) : json_null());
  json_object_set_new(json, "hits", json_integer((json_int_t)stats.hits));
  json_object_set_new(json, "misses", json_integer((json_int_t)stats.misses));
  json_object_set_new(json, "uncacheable", json_integer((json_int_t)stats.uncacheable));
  json_object_set_new(json, "damaged", json_integer((json_int_t)stats.damaged));
  json_object_set_new(json, "stored", json_integer((json_int_t)stats.stored));
  json_object_set_new(json, "evictions", json_integer((json_int_t)stats.evicted));
  return json;
}

/* What recording takes: ours, and what the program has for itself, of which the hooks are a part (see "modules"). */
static json_t *
memory_json(const struct ct_manifest *manifest)
{
  json_t *json = json_object();
  json_object_set_new(json, "recorder_peak_bytes", json_integer((json_int_t)ct_process_peak_bytes(getpid())));
  json_object_set_new(json, "program_private_bytes",
                      manifest->private_bytes != 0 ? json_integer((json_int_t)manifest->private_bytes) : json_null());
  return json;
}

json_t *
ct_manifest_modules(const struct ct_modules *modules)
{
  json_t *list = json_array();
  for (size_t i = 0; i < modules->count; i++) {
    const struct ct_module *module = &modules->items[i];
    json_t *refused = json_object();
    for (int r = 1; r < CT_REFUSED_COUNT; r++) {
      if (module->refused[r] != 0) {
        json_object_set_new(refused, ct_refusal_key(r), json_integer((json_int_t)module->refused[r]));
      }
    }
    json_t *item = json_object();
    json_object_set_new(item, "index", json_integer(module->index));
    json_object_set_new(item, "image", json_integer(module->image));
    json_object_set_new(item, "path", ct_json_string(module->path));
    json_object_set_new(item, "build_id", json_string(module->build_id != NULL ? module->build_id : ""));
    json_object_set_new(item, "base", json_integer((json_int_t)module->base));
    json_object_set_new(item, "functions", json_integer((json_int_t)module->functions));
    json_object_set_new(item, "hooked", json_integer((json_int_t)module->hooked));
    json_object_set_new(item, "code_bytes", json_integer((json_int_t)module->code_bytes));
    json_object_set_new(item, "known_bytes", json_integer((json_int_t)module->known_bytes));
    json_object_set_new(item, "loads", json_integer(module->loads));
    json_object_set_new(item, "refused", refused);
    json_object_set_new(item, "plan_ns", json_integer((json_int_t)module->plan_ns));
    json_object_set_new(item, "install_ns", json_integer((json_int_t)module->install_ns));
    json_object_set_new(item, "trampoline_bytes", json_integer((json_int_t)module->trampoline_bytes));
    json_object_set_new(item, "text_bytes", json_integer((json_int_t)module->text_bytes));
    if (module->why_not != NULL) {
      json_object_set_new(item, "not_hooked_because", ct_json_string(module->why_not));
    }
    const char *enter_only = ct_runtime_text((enum ct_runtime)module->runtime);
    if (enter_only != NULL) {
      json_object_set_new(item, "enter_only_because", json_string(enter_only));
    }
    json_array_append_new(list, item);
  }
  return list;
}

json_t *
ct_manifest_json(const struct ct_manifest *manifest, json_t *modules, const struct ct_drain_thread_info *threads,
                 size_t thread_count, const struct ct_drain_stats *stats, int complete)
{
  uint64_t tsc1 = 0, ns1 = 0;
  read_pair(&tsc1, &ns1);
  json_t *json = json_object();
  json_object_set_new(json, "format", json_string("contrail"));
  json_object_set_new(json, "version", json_integer(CT_TRACE_VERSION));
  json_object_set_new(json, "state", json_string(complete ? "complete" : "recording"));
  json_object_set(json, "command", manifest->command);
  json_object_set_new(json, "pid", json_integer(manifest->pid));
  json_object_set_new(json, "start_wall_ns", json_integer((json_int_t)manifest->start_wall_ns));
  json_object_set_new(json, "start_ns", json_integer((json_int_t)manifest->ns0));
  json_object_set_new(json, "start_boot_ns", json_integer((json_int_t)manifest->start_boot_ns));
  json_object_set_new(json, "attached", json_boolean(manifest->attached));
  json_object_set_new(json, "detached", json_boolean(manifest->detached));
  if (manifest->born != NULL) {
    json_object_set_new(json, "born", json_string(manifest->born));
    json_object_set_new(json, "parent", json_integer(manifest->parent));
  }
  if (manifest->has_end) {
    json_object_set_new(json, "end_ns", json_integer((json_int_t)manifest->end_ns));
    json_object_set_new(json, "end_wall_ns", json_integer((json_int_t)manifest->end_wall_ns));
    json_object_set_new(json, "end_boot_ns", json_integer((json_int_t)manifest->end_boot_ns));
    json_object_set_new(json, "end_tsc", json_integer((json_int_t)manifest->end_tsc));
  }
  if (manifest->has_end && !manifest->attached && !manifest->detached) {
    json_object_set_new(json, "user_ns", json_integer((json_int_t)manifest->user_ns));
    json_object_set_new(json, "system_ns", json_integer((json_int_t)manifest->system_ns));
  }
  if (manifest->children_missed) {
    json_object_set_new(json, "children_missed", json_true());
  }
  json_object_set_new(json, "clock", clock_json(manifest, tsc1, ns1));
  json_object_set_new(json, "exit", exit_json(manifest));
  json_object_set_new(json, "install_ns", json_integer((json_int_t)manifest->install_ns));
  json_object_set_new(json, "hook_costs", ct_hook_costs_json(&manifest->costs));
  json_object_set_new(json, "analysis", ct_manifest_analysis(manifest));
  json_object_set(json, "exclude", manifest->exclude);
  if (!ct_selection_is_everything(manifest->selection)) {
    json_object_set_new(json, "patterns", ct_selection_list(manifest->selection));
  }
  json_object_set_new(json, "memory", memory_json(manifest));
  if (manifest->max_depth != 0) {
    json_object_set_new(json, "max_depth", json_integer(manifest->max_depth));
  }
  if (manifest->changes != NULL) {
    json_object_set(json, "changes", manifest->changes);
  }
  if (manifest->notes != NULL) {
    json_object_set(json, "notes", manifest->notes);
  }
  json_object_set(json, "images", manifest->images);
  json_object_set_new(json, "modules", modules);
  json_object_set_new(json, "threads", threads_json(threads, thread_count));
  if (tsc1 > manifest->tsc0) {
    double ratio = (double)(ns1 - manifest->ns0) / (double)(tsc1 - manifest->tsc0);
    json_object_set_new(json, "waited_ns", json_integer((json_int_t)((double)stats->waited_ticks * ratio)));
  }
  json_object_set_new(json, "dropped_total", json_integer((json_int_t)stats->dropped));
  json_object_set_new(json, "dropped_by_reason", drops_json(stats));
  return json;
}

void
ct_manifest_free(struct ct_manifest *manifest)
{
  json_decref(manifest->command);
  json_decref(manifest->images);
  json_decref(manifest->changes);
  json_decref(manifest->notes);
  json_decref(manifest->exclude);
}

json_t *
ct_manifest_switches(const struct ct_drain *drain)
{
  static const char *const sources[] = {"none", "threads", "processors", "totals"};
  struct ct_switch_stats stats = ct_drain_switches(drain);
  json_t *json = json_object();
  json_object_set_new(json, "source", json_string(sources[stats.source]));
  json_object_set_new(json, "switches", json_integer((json_int_t)stats.switches));
  json_object_set_new(json, "lost", json_integer((json_int_t)stats.lost));
  if (stats.is_given_up) {
    json_object_set_new(json, "given_up", json_true());
  }
  if (stats.error != 0) {
    json_object_set_new(json, "because", json_string(strerror(stats.error)));
  }
  return json;
}

json_t *
ct_manifest_sampling(const struct ct_drain *drain)
{
  struct ct_sampling_state state;
  ct_drain_sampling(drain, &state);
  json_t *json = json_object();
  json_t *last = json_array();
  for (uint32_t i = 0; i < state.last_count; i++) {
    json_array_append_new(
        last, json_pack("{s:I, s:i}", "ns", (json_int_t)state.last[i].ns, "interval", (int)state.last[i].interval));
  }
  json_object_set_new(json, "adapts", json_boolean(state.adapts));
  json_object_set_new(json, "interval", json_integer(state.interval));
  json_object_set_new(json, "changes", json_integer((json_int_t)state.changes));
  json_object_set_new(json, "last_changes", last);
  return json;
}

static json_t *
files_json(const struct ct_latency_figures *latency)
{
  return json_pack("{s:I, s:I, s:I, s:I}", "blocks", (json_int_t)latency->count, "p50_ns", (json_int_t)latency->p50_ns,
                   "p99_ns", (json_int_t)latency->p99_ns, "most_ns", (json_int_t)latency->most_ns);
}

json_t *
ct_manifest_lanes(const struct ct_drain *drain, const struct ct_trace_writer *writer)
{
  struct ct_drain_lane events, detail;
  struct ct_latency_figures files = ct_trace_writer_latency(writer);
  struct ct_latency_figures detail_files = ct_trace_writer_detail_latency(writer);
  ct_drain_lanes(drain, &events, &detail);
  json_t *json = json_pack("{s:{s:i, s:i, s:i, s:i, s:I}, s:o}", "events", "segments", (int)events.segments, "in_use",
                           (int)events.in_use, "full_most", (int)events.most, "high_times", (int)events.high_times,
                           "handed_over", (json_int_t)events.handed_over, "files", files_json(&files));
  if (detail.segments != 0) {
    struct ct_detail_stats stats = ct_drain_detail_stats(drain);
    json_object_set_new(json, "detail",
                        json_pack("{s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:I}", "segments", (int)detail.segments,
                                  "in_use", (int)detail.in_use, "used_most", (int)detail.most, "high_times",
                                  (int)detail.high_times, "handed_over", (json_int_t)detail.handed_over, "records",
                                  (json_int_t)stats.recorded, "overwritten", (json_int_t)stats.overwritten, "no_room",
                                  (json_int_t)stats.skipped));
    json_object_set_new(json, "detail_files", files_json(&detail_files));
  }
  return json;
}
