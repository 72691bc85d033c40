/* SPDX-License-Identifier: MIT */
/* contrail cache: what the analysis cache holds; clears it. */
#include "cli/command.h"

#include <contrail/cache.h>
#include <contrail/text.h>

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct listing {
  json_t *files; /* NULL: as text */
  uint64_t count, bytes, functions;
};

static json_t *
file_json(const struct ct_cache_entry *entry)
{
  json_t *json = json_object();
  json_object_set_new(json, "file", ct_json_text(entry->file));
  json_object_set_new(json, "bytes", json_integer((json_int_t)entry->bytes));
  json_object_set_new(json, "used_wall_ns", json_integer((json_int_t)entry->used_wall_ns));
  json_object_set_new(json, "damaged", json_boolean(entry->damaged));
  if (!entry->damaged) {
    json_object_set_new(json, "path", ct_json_text(entry->path));
    json_object_set_new(json, "build_id", entry->build_id[0] != 0 ? ct_json_text(entry->build_id) : json_null());
    json_object_set_new(json, "functions", json_integer((json_int_t)entry->functions));
    json_object_set_new(json, "current", json_boolean(entry->current));
  }
  return json;
}

static void
write_line(const struct ct_cache_entry *entry)
{
  char size[CT_DURATION_CHARS], count[CT_COUNT_CHARS], when[32] = "?";
  time_t seconds = (time_t)(entry->used_wall_ns / 1000000000);
  struct tm local;
  if (localtime_r(&seconds, &local) != NULL) {
    strftime(when, sizeof(when), "%Y-%m-%d %H:%M", &local);
  }
  printf("%16s %11s %10s  ", when, ct_format_bytes(size, entry->bytes),
         entry->damaged ? "damaged" : ct_format_count(count, entry->functions));
  ct_put_printable(stdout, entry->damaged ? entry->file : entry->path, SIZE_MAX);
  puts(!entry->damaged && !entry->current ? "  (of another build of contrail)" : "");
}

static void
visit(void *context, const struct ct_cache_entry *entry)
{
  struct listing *listing = context;
  if (listing->files != NULL) {
    json_array_append_new(listing->files, file_json(entry));
  } else {
    if (listing->count == 0) {
      printf("%16s %11s %10s  %s\n", "last used", "size", "functions", "planned file");
    }
    write_line(entry);
  }
  listing->count++;
  listing->bytes += entry->bytes;
  listing->functions += entry->functions;
}

static int
list(struct ct_cache *cache, bool json)
{
  struct listing listing = {.files = json ? json_array() : NULL};
  int code = ct_cache_list(cache, visit, &listing);
  if (code != 0) {
    json_decref(listing.files);
    return ct_command_failed(&ct_command_cache, "cannot read %s: %s", ct_cache_path(cache), ct_err_text(code));
  }
  if (json) {
    json_t *all = json_object();
    json_object_set_new(all, "directory", ct_json_text(ct_cache_path(cache)));
    json_object_set_new(all, "bytes", json_integer((json_int_t)listing.bytes));
    json_object_set_new(all, "bytes_max", json_integer((json_int_t)CT_CACHE_BYTES_MAX));
    json_object_set_new(all, "files", listing.files);
    json_dumpf(all, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(all);
    return CT_EXIT_OK;
  }
  char bytes[CT_DURATION_CHARS], most[CT_DURATION_CHARS], count[CT_COUNT_CHARS];
  printf("%s%s: %" PRIu64 " files with %s functions, ", listing.count != 0 ? "\n" : "", ct_cache_path(cache),
         listing.count, ct_format_count(count, listing.functions));
  printf("%s of at most %s\n", ct_format_bytes(bytes, listing.bytes), ct_format_bytes(most, CT_CACHE_BYTES_MAX));
  return CT_EXIT_OK;
}

static int
clear(struct ct_cache *cache, bool json)
{
  int64_t removed = ct_cache_clear(cache);
  if (removed < 0) {
    return ct_command_failed(&ct_command_cache, "cannot clear %s: %s", ct_cache_path(cache), ct_err_text((int)removed));
  }
  if (json) {
    json_t *all = json_object();
    json_object_set_new(all, "directory", ct_json_text(ct_cache_path(cache)));
    json_object_set_new(all, "removed", json_integer((json_int_t)removed));
    json_dumpf(all, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(all);
  } else {
    printf("%s: %" PRId64 " files removed\n", ct_cache_path(cache), removed);
  }
  return CT_EXIT_OK;
}

/* What the options choose. */
struct wanted {
  bool json, clear;
};

static const struct ct_option options[] = {
    {.name = "clear",
     .help = "remove all files of the cache",
     .apply = ct_apply_flag,
     .offset = offsetof(struct wanted, clear)},
    CT_OPTION_JSON(struct wanted, json, "print one JSON object"),
    CT_OPTIONS_END,
};

static int
run_cache(int argc, char **argv)
{
  struct wanted wanted = {false};
  int code = ct_parse(&ct_command_cache, argc, argv, &wanted);
  if (code != -1 || (code = ct_no_operands(&ct_command_cache, argc, argv)) != CT_EXIT_OK) {
    return code;
  }
  struct ct_diag diag = {""};
  struct ct_cache *cache = ct_cache_open(NULL, &diag);
  if (cache == NULL) {
    return ct_command_failed(&ct_command_cache, "no cache is used: %s", diag.text);
  }
  code = wanted.clear ? clear(cache, wanted.json) : list(cache, wanted.json);
  ct_cache_close(cache);
  return code == CT_EXIT_OK && (fflush(stdout) != 0 || ferror(stdout)) ? CT_EXIT_FAILED : code;
}

const struct ct_command ct_command_cache = {
    .name = "cache",
    .summary = "show or clear the analysis cache",
    .synopsis = "[--clear] [--json]",
    .about = "record and plan keep what they found out about each file. They use it again when neither the file,\n"
             "its separate debug file nor contrail has changed. Shows what is kept, last used first.\n",
    .options = options,
    .closing = "It lies in $CONTRAIL_CACHE, or $XDG_CACHE_HOME/contrail, or ~/.cache/contrail, and\n"
               "takes at most 512 MiB: the least recently used files go first.\n",
    .run = run_cache,
};
