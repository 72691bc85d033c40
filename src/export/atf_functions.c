/* SPDX-License-Identifier: MIT */
/*
 * Function ids of ATF: module id << 32 | symbol index. The module id is the module's index in the trace, the symbol
 * index a function's rank among those that the trace knows of the module, by address: the same in each export of a
 * trace, of a piece of it, or of another recording that knows the same functions of the file.
 */
#include "export/atf.h"

#include "base/crc32.h"
#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct key {
  uint64_t address;
  uint32_t module, id;
};

static int
by_place(const void *a, const void *b)
{
  const struct key *x = a, *y = b;
  if (x->module != y->module) {
    return x->module < y->module ? -1 : 1;
  }
  if (x->address != y->address) {
    return x->address < y->address ? -1 : 1;
  }
  return (x->id > y->id) - (x->id < y->id);
}

int
ct_atf_ids_create(struct ct_trace *trace, struct ct_atf_ids *out)
{
  uint32_t count = ct_trace_function_count(trace), known = 0, symbol = 0;
  struct ct_atf_ids ids = {.of = calloc((size_t)count + 1, sizeof(*ids.of)),
                           .order = calloc((size_t)count + 1, sizeof(*ids.order))};
  struct key *keys = calloc((size_t)count + 1, sizeof(*keys));
  if (ids.of == NULL || ids.order == NULL || keys == NULL) {
    free(keys);
    ct_atf_ids_destroy(&ids);
    return CT_ENOMEM;
  }
  for (uint32_t id = 0; id < count; id++) {
    const struct ct_trace_function *function = ct_trace_function(trace, id);
    ids.of[id] = CT_ATF_NO_FUNCTION;
    if (function != NULL) {
      keys[known++] = (struct key){function->address, function->module, id};
    }
  }
  qsort(keys, known, sizeof(*keys), by_place);
  for (uint32_t i = 0; i < known; i++) {
    symbol = i > 0 && keys[i].module == keys[i - 1].module ? symbol + 1 : 0;
    ids.of[keys[i].id] = (uint64_t)keys[i].module << 32 | symbol;
    ids.order[i] = keys[i].id;
  }
  ids.count = known;
  free(keys);
  *out = ids;
  return CT_OK;
}

void
ct_atf_ids_destroy(struct ct_atf_ids *ids)
{
  free(ids->of);
  free(ids->order);
  *ids = (struct ct_atf_ids){NULL};
}

/* A module as the manifest has it, with what is found out from its functions; NULL when there is no memory. */
static json_t *
module_json(const struct ct_trace *trace, uint32_t id, uint32_t functions, uint32_t crc, uint64_t end)
{
  const struct ct_trace_module *module = ct_trace_module(trace, id);
  char hash[32];
  snprintf(hash, sizeof(hash), "crc32:%08" PRIx32, crc);
  json_t *json =
      json_pack("{s:I, s:o, s:s, s:I, s:I, s:{s:I, s:s, s:s}}", "id", (json_int_t)id, "path",
                ct_json_string(module != NULL ? module->path : ""), "build_id", module != NULL ? module->build_id : "",
                "base", (json_int_t)(module != NULL ? module->base : 0), "size", (json_int_t)end, "functions", "count",
                (json_int_t)functions, "hash", hash, "file", CT_ATF_FUNCTIONS);
  const json_t *known = json_array_get(json_object_get(ct_trace_manifest(trace), "modules"), id);
  const json_t *image = module != NULL ? json_object_get(known, "image") : NULL;
  if (image != NULL) {
    json_object_set(json, "image", (json_t *)image);
  }
  return json;
}

int
ct_atf_write_functions(struct ct_atf_process *process, json_t *modules)
{
  struct ct_trace *trace = process->trace;
  const struct ct_atf_ids *ids = &process->ids;
  int fd = openat(process->dir_fd, CT_ATF_FUNCTIONS, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;
  char *line = NULL;
  size_t room = 0;
  bool failed = out == NULL;
  uint32_t i = 0;
  for (uint32_t module = 0; !failed && (module < ct_trace_module_count(trace) || i < ids->count); module++) {
    uint32_t id = module < ct_trace_module_count(trace) ? module : (uint32_t)(ids->of[ids->order[i]] >> 32);
    uint32_t crc = 0, functions = 0;
    uint64_t end = 0;
    for (; i < ids->count && ids->of[ids->order[i]] >> 32 == id; i++, functions++) {
      const struct ct_trace_function *function = ct_trace_function(trace, ids->order[i]);
      size_t need = strlen(function->raw_name) + 96;
      char *larger = need > room ? realloc(line, need) : line;
      if (larger == NULL) {
        failed = true;
        break;
      }
      line = larger;
      room = need > room ? need : room;
      int length =
          snprintf(line, room, "%" PRIu32 "\t%" PRIu32 "\t%" PRIx64 "\t%" PRIu64 "\t%s\t%s\n", id, functions,
                   function->address, function->size, function->enter_only ? "enter" : "full", function->raw_name);
      crc = ct_crc32(crc, line, (size_t)length);
      end = function->address + function->size > end ? function->address + function->size : end;
      failed |= fwrite(line, 1, (size_t)length, out) != (size_t)length;
      process->bytes += (uint64_t)length;
    }
    failed |= json_array_append_new(modules, module_json(trace, id, functions, crc, end)) != 0;
  }
  free(line);
  int saved = errno;
  failed |= out != NULL && fclose(out) != 0;
  errno = errno != 0 ? errno : saved;
  return failed ? CT_EIO : CT_OK;
}
