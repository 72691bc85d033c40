/* SPDX-License-Identifier: MIT */
/* manifest.json: what the recording was, its modules and its clock; see docs/format.md. */
#include "base/sized.h"
#include "trace/atf_internal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned __int128 u128;

#define COST_TICKS_MAX 1e6 /* of a hook */

/* A whole number, or one written as text ("0x7f..."). */
static uint64_t
get_number(const json_t *object, const char *key)
{
  const json_t *value = json_object_get(object, key);
  if (json_is_string(value)) {
    return strtoull(json_string_value(value), NULL, 0);
  }
  return (uint64_t)json_integer_value(value);
}

static const char *
get_text(const json_t *object, const char *key)
{
  const char *text = json_string_value(json_object_get(object, key));
  return text == NULL ? "" : text;
}

/* Without two readings apart in time, a tick counts as a nanosecond. */
static void
load_clock(struct ct_trace *trace)
{
  const json_t *clock = json_object_get(trace->manifest, "clock");
  uint64_t tsc1 = get_number(clock, "tsc1"), ns1 = get_number(clock, "ns1");
  trace->tsc0 = get_number(clock, "tsc0");
  trace->ns0 = get_number(clock, "ns0");
  trace->start_ns = get_number(trace->manifest, "start_ns");
  uint64_t ticks = 1, ns = 1;
  if (tsc1 > trace->tsc0 && ns1 > trace->ns0) {
    ticks = tsc1 - trace->tsc0;
    ns = ns1 - trace->ns0;
  }
  /* The most precise scale that fits: an error of a nanosecond takes centuries of ticks. */
  u128 scale;
  for (trace->tick_shift = 62;; trace->tick_shift--) {
    scale = ((u128)ns << trace->tick_shift) / ticks;
    if (scale <= INT64_MAX || trace->tick_shift == 0) {
      break;
    }
  }
  trace->tick_scale = (uint64_t)scale;
}

/* When the recording ended, if it ended in order. */
static void
load_end(struct ct_trace *trace)
{
  uint64_t end_ns = get_number(trace->manifest, "end_ns");
  if (!trace->complete) {
    return;
  }
  trace->end_tsc = get_number(trace->manifest, "end_tsc");
  if (trace->end_tsc == 0 && end_ns > trace->ns0 && trace->tick_scale != 0) {
    trace->end_tsc = trace->tsc0 + (uint64_t)(((u128)(end_ns - trace->ns0) << trace->tick_shift) / trace->tick_scale);
  }
}

int
ct_manifest_add_modules(struct ct_trace *trace, const json_t *modules)
{
  size_t count = json_array_size(modules), known = trace->module_count;
  if (count <= known) {
    return CT_OK;
  }
  struct ct_trace_module *grown =
      count <= UINT32_MAX ? reallocarray(trace->modules, count, sizeof(*trace->modules)) : NULL;
  if (grown == NULL) {
    return CT_ENOMEM;
  }
  trace->modules = grown;
  trace->module_count = (uint32_t)count;
  for (size_t i = known; i < count; i++) {
    trace->modules[i] = (struct ct_trace_module){.index = (uint32_t)i, .path = "", .build_id = ""};
  }
  size_t position;
  json_t *item;
  json_array_foreach((json_t *)modules, position, item)
  {
    uint64_t index = json_object_get(item, "index") == NULL ? position : get_number(item, "index");
    if (index < known || index >= count) {
      continue;
    }
    trace->modules[index] = (struct ct_trace_module){
        .index = (uint32_t)index,
        .image = (uint32_t)get_number(item, "image"),
        .path = get_text(item, "path"),
        .build_id = get_text(item, "build_id"),
        .base = get_number(item, "base"),
    };
  }
  return CT_OK;
}

static void
load_kept(struct ct_trace *trace)
{
  const json_t *kept = json_object_get(trace->manifest, "kept");
  trace->kept = (struct ct_trace_kept){.struct_size = sizeof(trace->kept),
                                       .is_kept = json_is_object(kept),
                                       .not_kept = get_number(kept, "not_kept"),
                                       .begin_tsc = get_number(kept, "begin_tsc"),
                                       .limit_bytes = get_number(kept, "limit_bytes"),
                                       .limit_ns = get_number(kept, "limit_ns")};
}

int
ct_trace_get_kept(const struct ct_trace *trace, struct ct_trace_kept *kept)
{
  return ct_sized_give(kept, &trace->kept, sizeof(trace->kept), NULL);
}

bool
ct_trace_is_atf(const struct ct_trace *trace)
{
  return trace->atf != NULL;
}

bool
ct_trace_is_recovered(const struct ct_trace *trace)
{
  return trace->recovered;
}

static int
check_format(const struct ct_trace *trace, struct ct_diag *diag)
{
  if (strcmp(get_text(trace->manifest, "format"), CT_TRACE_FORMAT_NAME) != 0) {
    return ct_fail(diag, CT_EFORMAT, "%s is not a contrail trace: its " CT_TRACE_MANIFEST " is of another program",
                   trace->path);
  }
  json_int_t version = json_integer_value(json_object_get(trace->manifest, "version"));
  if (version < CT_TRACE_VERSION_OLD || version > CT_TRACE_VERSION_PIECES) {
    return ct_fail(diag, CT_EUNSUPPORTED, "%s has format version %lld; this program reads versions %u to %u",
                   trace->path, (long long)version, CT_TRACE_VERSION_OLD, CT_TRACE_VERSION_PIECES);
  }
  return CT_OK;
}

int
ct_manifest_load(struct ct_trace *trace, struct ct_diag *diag)
{
  char *text;
  size_t size;
  int err = ct_trace_read_file(trace, CT_TRACE_MANIFEST, &text, &size);
  if (err == CT_ENOENT) {
    return ct_fail(diag, err, "%s is not a contrail trace: it has no " CT_TRACE_MANIFEST, trace->path);
  }
  if (err != CT_OK) {
    return ct_fail(diag, err, "cannot read %s/" CT_TRACE_MANIFEST ": %s", trace->path, ct_err_text(err));
  }
  json_error_t where;
  trace->manifest = json_loadb(text, size, JSON_REJECT_DUPLICATES, &where);
  free(text);
  if (!json_is_object(trace->manifest)) {
    return ct_fail(diag, CT_EFORMAT, "%s/" CT_TRACE_MANIFEST " is cut or damaged: line %d: %s", trace->path, where.line,
                   trace->manifest == NULL ? where.text : "not an object");
  }
  trace->bytes += size;
  err = ct_atf_is_manifest(trace->manifest) ? ct_atf_manifest(trace, diag) : CT_OK;
  if (err != CT_OK) {
    return err;
  }
  err = check_format(trace, diag);
  if (err != CT_OK) {
    return err;
  }
  trace->recovered = strcmp(get_text(trace->manifest, "state"), "recovered") == 0;
  trace->complete = trace->recovered || strcmp(get_text(trace->manifest, "state"), "complete") == 0;
  load_kept(trace);
  load_clock(trace);
  load_end(trace);
  err = ct_manifest_add_modules(trace, json_object_get(trace->manifest, "modules"));
  if (err != CT_OK) {
    return ct_fail(diag, err, "out of memory for the modules of %s", trace->path);
  }
  return CT_OK;
}

/* An object, or NULL. */
static json_t *
load_object(struct ct_trace *trace, const char *name)
{
  char *text;
  size_t size;
  if (ct_trace_read_file(trace, name, &text, &size) != CT_OK) {
    return NULL;
  }
  trace->bytes += size;
  json_t *json = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
  free(text);
  if (!json_is_object(json)) {
    json_decref(json);
    return NULL;
  }
  return json;
}

void
ct_stacks_load(struct ct_trace *trace)
{
  trace->crash = load_object(trace, CT_TRACE_CRASH);
  trace->stacks = load_object(trace, CT_TRACE_STACKS);
}

const json_t *
ct_trace_stacks(const struct ct_trace *trace)
{
  return trace->stacks;
}

const json_t *
ct_trace_crash(const struct ct_trace *trace)
{
  return trace->crash;
}

const json_t *
ct_trace_manifest(const struct ct_trace *trace)
{
  return trace->manifest;
}

bool
ct_trace_is_complete(const struct ct_trace *trace)
{
  return trace->complete;
}

uint32_t
ct_trace_module_count(const struct ct_trace *trace)
{
  return trace->module_count;
}

const struct ct_trace_module *
ct_trace_module(const struct ct_trace *trace, uint32_t index)
{
  return index < trace->module_count ? &trace->modules[index] : NULL;
}

const char *
ct_trace_module_name(const struct ct_trace *trace, uint32_t module)
{
  if (module >= trace->module_count || trace->modules[module].path[0] == '\0') {
    return "?";
  }
  const char *path = trace->modules[module].path;
  const char *slash = strrchr(path, '/');
  return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

uint64_t
ct_trace_ticks_ns(const struct ct_trace *trace, uint64_t ticks)
{
  return (uint64_t)((u128)ticks * trace->tick_scale >> trace->tick_shift);
}

uint64_t
ct_trace_ns(const struct ct_trace *trace, uint64_t tsc)
{
  if (tsc >= trace->tsc0) {
    return trace->ns0 + ct_trace_ticks_ns(trace, tsc - trace->tsc0);
  }
  uint64_t before = ct_trace_ticks_ns(trace, trace->tsc0 - tsc);
  return before < trace->ns0 ? trace->ns0 - before : 0;
}

uint64_t
ct_trace_tsc(const struct ct_trace *trace, uint64_t ns)
{
  if (trace->tick_scale == 0) {
    return trace->tsc0;
  }
  bool later = ns >= trace->ns0;
  u128 ticks = ((u128)(later ? ns - trace->ns0 : trace->ns0 - ns) << trace->tick_shift) / trace->tick_scale;
  uint64_t bounded = ticks > UINT64_MAX ? UINT64_MAX : (uint64_t)ticks;
  if (later) {
    return bounded > UINT64_MAX - trace->tsc0 ? UINT64_MAX : trace->tsc0 + bounded;
  }
  return bounded < trace->tsc0 ? trace->tsc0 - bounded : 0;
}

uint64_t
ct_trace_start_ns(const struct ct_trace *trace)
{
  return trace->start_ns;
}

bool
ct_trace_has_bounds(const struct ct_trace *trace)
{
  return strcmp(get_text(json_object_get(trace->manifest, "switches"), "source"), "totals") == 0;
}

uint64_t
ct_trace_end_tsc(const struct ct_trace *trace)
{
  return trace->end_tsc;
}

/* Bounded: nothing that a damaged manifest says makes sums of it overflow. */
static int64_t
get_cost(const json_t *object, const char *key)
{
  double ticks = json_number_value(json_object_get(object, key));
  return ticks > -COST_TICKS_MAX && ticks < COST_TICKS_MAX ? (int64_t)(ticks * CT_COST_UNIT) : 0;
}

void
ct_trace_costs(const struct ct_trace *trace, struct ct_trace_costs *costs)
{
  const json_t *json = json_object_get(trace->manifest, "hook_costs");
  *costs = (struct ct_trace_costs){.enter_before = get_cost(json, "enter_before"),
                                   .enter_after = get_cost(json, "enter_after"),
                                   .return_before = get_cost(json, "return_before"),
                                   .return_after = get_cost(json, "return_after"),
                                   .value = get_cost(json, "value"),
                                   .point = get_cost(json, "point"),
                                   .sampled = get_cost(json, "sampled"),
                                   .passed_over = get_cost(json, "passed_over")};
}
