/* SPDX-License-Identifier: MIT */
/*
 * See process_tree.h. Manifests come from files: members may be missing or of another type, and a name that is no plain
 * one is not opened.
 */
#include "views/process_tree.h"

#include "trace/batch.h"
#include "base/json.h"
#include "views/text.h"

#include <limits.h>
#include <string.h>

enum { SHOWN = 40, LABEL_COLUMNS = 10, COMMAND_BYTES = 80 };

const char *
ct_process_tree_directory(const json_t *child)
{
  const char *name = json_string_value(json_object_get(child, "directory"));
  return name == NULL || name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL ? NULL : name;
}

int
ct_process_tree_open(const struct ct_trace *first, const char *directory, struct ct_trace **out, struct ct_diag *diag)
{
  char path[PATH_MAX];
  if (snprintf(path, sizeof(path), "%s/%s", ct_trace_path(first), directory) >= (int)sizeof(path)) {
    return ct_fail(diag, CT_EINVAL, "the path of its trace, %s, is too long", directory);
  }
  return ct_trace_open(path, out, diag);
}

void
ct_process_tree_warn(json_t *list, json_int_t pid, const char *what, const char *text)
{
  enum { LINE_CHARS = 800 };
  char line[LINE_CHARS];
  snprintf(line, sizeof(line), "process %lld%s: %s", (long long)pid, what, text);
  json_array_append_new(list, ct_json_string(line));
}

void
ct_process_tree_warn_each(json_t *list, json_int_t pid, const json_t *texts)
{
  const json_t *text;
  size_t i;
  json_array_foreach((json_t *)texts, i, text)
  {
    ct_process_tree_warn(list, pid, "", json_string_value(text));
  }
}

size_t
ct_process_tree_size(const struct ct_trace *trace)
{
  const json_t *children = json_object_get(ct_trace_manifest(trace), "children");
  size_t size = 0;
  for (size_t i = 0; i < json_array_size(children); i++) {
    size += ct_process_tree_directory(json_array_get(children, i)) != NULL;
  }
  return size;
}

static json_t *
manifest_of(const struct ct_trace *trace, const char *name)
{
  char path[PATH_MAX];
  if (name == NULL ||
      snprintf(path, sizeof(path), "%s/%s/manifest.json", ct_trace_path(trace), name) >= (int)sizeof(path)) {
    return NULL;
  }
  return json_load_file(path, 0, NULL);
}

static json_t *
sum_of(const json_t *manifest, const char *key)
{
  const json_t *threads = json_object_get(manifest, "threads");
  json_int_t sum = 0;
  for (size_t i = 0; i < json_array_size(threads); i++) {
    sum += json_integer_value(json_object_get(json_array_get(threads, i), key));
  }
  return json_is_array(threads) ? json_integer(sum) : json_null();
}

static void
copy(json_t *to, const json_t *from, const char *key)
{
  json_t *value = json_object_get(from, key);
  json_object_set_new(to, key, value != NULL ? json_incref(value) : json_null());
}

static json_t *
child_info(const struct ct_trace *trace, const json_t *child)
{
  const char *name = ct_process_tree_directory(child);
  const char *state;
  json_t *manifest = manifest_of(trace, name);
  json_t *info = json_object();
  copy(info, child, "pid");
  copy(info, child, "parent");
  copy(info, child, "born");
  copy(info, child, "directory");
  copy(info, manifest, "command");
  copy(info, manifest, "exit");
  state = json_string_value(json_object_get(manifest, "state"));
  json_object_set_new(info, "complete", json_boolean(state != NULL && strcmp(state, "complete") == 0));
  json_object_set_new(info, "events", sum_of(manifest, "events"));
  copy(info, manifest, "dropped_total");
  if (json_is_array(json_object_get(manifest, "notes"))) {
    copy(info, manifest, "notes");
  }
  if (json_object_get(child, "not_recorded_because") != NULL) {
    copy(info, child, "not_recorded_because");
  }
  json_decref(manifest);
  return info;
}

json_t *
ct_process_tree_info(const struct ct_trace *trace)
{
  const json_t *children = json_object_get(ct_trace_manifest(trace), "children");
  if (!json_is_array(children)) {
    return NULL;
  }
  json_t *list = json_array();
  for (size_t i = 0; i < json_array_size(children); i++) {
    json_array_append_new(list, child_info(trace, json_array_get(children, i)));
  }
  return list;
}

static void
write_end(FILE *out, const json_t *child)
{
  const json_t *end = json_object_get(child, "exit");
  char text[32] = "?";
  if (json_is_integer(json_object_get(end, "signal"))) {
    snprintf(text, sizeof(text), "signal %lld", (long long)json_integer_value(json_object_get(end, "signal")));
  } else if (json_is_integer(json_object_get(end, "status"))) {
    snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(json_object_get(end, "status")));
  }
  fprintf(out, "%9s  ", text);
}

static void
write_command(FILE *out, const json_t *child)
{
  const json_t *command = json_object_get(child, "command");
  const char *why = json_string_value(json_object_get(child, "not_recorded_because"));
  size_t room = COMMAND_BYTES;
  for (size_t i = 0; i < json_array_size(command) && room > 0; i++) {
    const char *word = json_string_value(json_array_get(command, i));
    size_t length = word != NULL ? strlen(word) : 0;
    fputs(i == 0 ? "" : " ", out);
    ct_put_printable(out, word != NULL ? word : "?", length < room ? length : room);
    room = length < room ? room - length : 0;
  }
  fputs(room == 0 ? "..." : "", out);
  if (why != NULL) {
    fputs("not recorded: ", out);
    ct_put_printable(out, why, SIZE_MAX);
  }
  putc('\n', out);
}

/* Of each note how many children have it, and the first one's id, by its text. */
static json_t *
find_notes(const json_t *children)
{
  json_t *found = json_object(), *child, *note;
  size_t i, n;
  json_array_foreach((json_t *)children, i, child)
  {
    json_array_foreach(json_object_get(child, "notes"), n, note)
    {
      const char *text = json_string_value(note);
      json_t *entry = json_object_get(found, text);
      if (entry != NULL) {
        json_integer_set(json_array_get(entry, 0), json_integer_value(json_array_get(entry, 0)) + 1);
      } else if (text != NULL && json_object_size(found) < SHOWN) {
        json_object_set_new(found, text, json_pack("[i, O?]", 1, json_object_get(child, "pid")));
      }
    }
  }
  return found;
}

static void
write_notes(FILE *out, const json_t *children)
{
  json_t *found = find_notes(children), *entry;
  const char *text;
  json_object_foreach(found, text, entry)
  {
    long long others = (long long)json_integer_value(json_array_get(entry, 0)) - 1;
    fprintf(out, "%*s note of %lld", LABEL_COLUMNS, "", (long long)json_integer_value(json_array_get(entry, 1)));
    if (others > 0) {
      fprintf(out, " and %lld other%s", others, others == 1 ? "" : "s");
    }
    fputs(": ", out);
    ct_put_printable(out, text, SIZE_MAX);
    putc('\n', out);
  }
  json_decref(found);
}

void
ct_process_tree_write(const struct ct_trace *trace, FILE *out)
{
  json_t *children = ct_process_tree_info(trace);
  size_t count = json_array_size(children);
  char a[CT_COUNT_CHARS];
  if (children == NULL) {
    return;
  }
  json_int_t events = 0;
  size_t followed = 0;
  for (size_t i = 0; i < count; i++) {
    events += json_integer_value(json_object_get(json_array_get(children, i), "events"));
    followed += json_object_get(json_array_get(children, i), "not_recorded_because") == NULL;
  }
  fprintf(out, "%-*s %zu followed, with %s events\n", LABEL_COLUMNS, "children", followed,
          ct_format_count(a, (uint64_t)(events > 0 ? events : 0)));
  if (count != 0) {
    fprintf(out, "%*s %9s %9s %15s %12s %9s  %s\n", LABEL_COLUMNS, "", "pid", "parent", "events", "dropped", "exit",
            "command");
  }
  for (size_t i = 0; i < count && i < SHOWN; i++) {
    const json_t *child = json_array_get(children, i);
    json_int_t here = json_integer_value(json_object_get(child, "events"));
    json_int_t dropped = json_integer_value(json_object_get(child, "dropped_total"));
    fprintf(out, "%*s %9lld %9lld ", LABEL_COLUMNS, "", (long long)json_integer_value(json_object_get(child, "pid")),
            (long long)json_integer_value(json_object_get(child, "parent")));
    fprintf(out, "%15s ", ct_format_count(a, (uint64_t)(here > 0 ? here : 0)));
    fprintf(out, "%12s ", ct_format_count(a, (uint64_t)(dropped > 0 ? dropped : 0)));
    write_end(out, child);
    write_command(out, child);
  }
  if (count > SHOWN) {
    fprintf(out, "%*s ... and %zu more; --json has all\n", LABEL_COLUMNS, "", count - SHOWN);
  }
  write_notes(out, children);
  json_int_t lost = json_integer_value(json_object_get(ct_trace_manifest(trace), "children_lost"));
  if (lost > 0) {
    fprintf(out, "%*s %lld more %s not recorded: nobody answered in time\n", LABEL_COLUMNS, "", (long long)lost,
            lost == 1 ? "was" : "were");
  }
  json_decref(children);
}
