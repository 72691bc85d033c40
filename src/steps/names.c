/* SPDX-License-Identifier: MIT */
/* See names.h. A module is opened when the first address in it is asked for. */
#include "steps/names.h"

#include "base/demangle.h"
#include "base/name_glob.h"
#include "base/source_glob.h"
#include "target/functions.h"
#include "target/source.h"
#include "x86/decode.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct file {
  char *path;
  struct ct_elf *elf; /* NULL: cannot be opened, or not yet */
  bool is_tried, sources_tried;
  uint64_t *addresses; /* of the lines in sources, sorted */
  size_t count;
  struct ct_sources *sources;
};

/* A mapping of code. */
struct place {
  uint64_t start, end, offset;
  size_t file;
};

struct map {
  uint64_t first_step;
  struct place *places;
  size_t count;
};

struct ct_steps_names {
  struct ct_steps_reader *reader;
  struct file *files;
  size_t file_count;
  struct map *maps;
  size_t map_count;
  struct { /* the map that held at the last step that was asked about, and from which step up to which it does */
    size_t number;
    uint64_t first, end; /* end 0: none has been asked about */
  } period;
};

/* ---- maps ---- */

static bool
enter_file(struct ct_steps_names *names, const char *path, size_t length, size_t *number)
{
  for (size_t i = 0; i < names->file_count; i++) {
    if (strncmp(names->files[i].path, path, length) == 0 && names->files[i].path[length] == 0) {
      *number = i;
      return true;
    }
  }
  struct file *files = reallocarray(names->files, names->file_count + 1, sizeof(*files));
  char *copy = strndup(path, length);
  names->files = files != NULL ? files : names->files;
  if (files == NULL || copy == NULL) {
    free(copy);
    return false;
  }
  files[names->file_count] = (struct file){.path = copy};
  *number = names->file_count++;
  return true;
}

static bool
take_line(struct ct_steps_names *names, struct map *map, const char *line, size_t length)
{
  char text[4400], rights[5] = "";
  struct place place = {.start = 0};
  int path = 0;
  if (length >= sizeof(text)) {
    return true;
  }
  memcpy(text, line, length);
  text[length] = 0;
  if (sscanf(text, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %*s %*s %n", &place.start, &place.end, rights,
             &place.offset, &path) < 4 ||
      path == 0 || rights[2] != 'x' || place.start >= place.end) {
    return true;
  }
  struct place *places = reallocarray(map->places, map->count + 1, sizeof(*places));
  if (places == NULL) {
    return false;
  }
  map->places = places;
  if (!enter_file(names, text + path, strlen(text + path), &place.file)) {
    return false;
  }
  places[map->count++] = place;
  return true;
}

static bool
take_map(struct ct_steps_names *names, const struct ct_steps_modules *modules, struct map *map)
{
  map->first_step = modules->first_step;
  for (const char *line = modules->text; *line != 0;) {
    size_t length = strcspn(line, "\n");
    if (!take_line(names, map, line, length)) {
      return false;
    }
    line += length + (line[length] == '\n');
  }
  return true;
}

struct ct_steps_names *
ct_steps_names_create(struct ct_steps_reader *reader)
{
  const struct ct_steps_modules *modules;
  size_t count = reader != NULL ? ct_steps_reader_modules(reader, &modules) : 0;
  struct ct_steps_names *names = calloc(1, sizeof(*names));
  if (names == NULL) {
    return NULL;
  }
  names->reader = reader;
  for (size_t i = 0; i < count; i++) {
    if (ct_steps_names_add(names, &modules[i]) != 0) {
      ct_steps_names_free(names);
      return NULL;
    }
  }
  return names;
}

int
ct_steps_names_add(struct ct_steps_names *names, const struct ct_steps_modules *modules)
{
  struct map *maps = reallocarray(names->maps, names->map_count + 1, sizeof(*maps));
  if (maps == NULL) {
    return CT_ENOMEM;
  }
  names->maps = maps;
  maps[names->map_count] = (struct map){.count = 0};
  names->period.end = 0;
  return take_map(names, modules, &maps[names->map_count++]) ? 0 : CT_ENOMEM;
}

void
ct_steps_names_free(struct ct_steps_names *names)
{
  if (names == NULL) {
    return;
  }
  for (size_t i = 0; i < names->file_count; i++) {
    ct_sources_free(names->files[i].sources);
    ct_elf_close(names->files[i].elf);
    free(names->files[i].addresses);
    free(names->files[i].path);
  }
  for (size_t i = 0; i < names->map_count; i++) {
    free(names->maps[i].places);
  }
  free(names->files);
  free(names->maps);
  free(names);
}

static const struct place *
place_in(const struct map *map, uint64_t address)
{
  for (size_t i = 0; i < map->count; i++) {
    if (address >= map->places[i].start && address < map->places[i].end) {
      return &map->places[i];
    }
  }
  return NULL;
}

size_t
ct_steps_names_period(struct ct_steps_names *names, uint64_t step)
{
  if (step >= names->period.first && step < names->period.end) {
    return names->period.number;
  }
  size_t current = 0;
  while (current + 1 < names->map_count && names->maps[current + 1].first_step <= step) {
    current++;
  }
  names->period.number = current;
  names->period.first = current != 0 ? names->maps[current].first_step : 0;
  names->period.end = current + 1 < names->map_count ? names->maps[current + 1].first_step : UINT64_MAX;
  return current;
}

/* By the map that held there; or else the next one that has the address: a map is written some time after a change. */
static const struct place *
place_of(struct ct_steps_names *names, uint64_t step, uint64_t address)
{
  size_t current = ct_steps_names_period(names, step);
  const struct place *place = NULL;
  for (size_t i = current; i < names->map_count && place == NULL; i++) {
    place = place_in(&names->maps[i], address);
  }
  for (size_t i = current; i > 0 && place == NULL; i--) {
    place = place_in(&names->maps[i - 1], address);
  }
  return place;
}

/* ---- functions ---- */

static struct ct_elf *
elf_of(struct file *file)
{
  const struct ct_function *functions;
  size_t count;
  if (!file->is_tried) {
    file->is_tried = true;
    if (file->path[0] != '/' || ct_elf_open(file->path, &file->elf, NULL) != 0) {
      file->elf = NULL;
    } else if (ct_elf_functions(file->elf, &functions, &count, NULL) != 0) {
      ct_elf_close(file->elf);
      file->elf = NULL;
    }
  }
  return file->elf;
}

/* What is to be added to an address of the file to have that of the process; false: it is of no segment. */
static bool
bias_of(const struct ct_elf *elf, const struct place *place, uint64_t *bias)
{
  const struct ct_elf_segment *segments;
  size_t count = ct_elf_segments(elf, &segments);
  for (size_t i = 0; i < count; i++) {
    uint64_t first = segments[i].offset & ~(uint64_t)4095;
    if ((segments[i].flags & 1) != 0 && place->offset >= first &&
        place->offset < segments[i].offset + segments[i].file_bytes) {
      *bias = place->start - (segments[i].address - segments[i].offset + place->offset);
      return true;
    }
  }
  return false;
}

static void
put_function(const struct ct_function *function, char *text, size_t size)
{
  char *name = ct_demangle_name(function->name);
  const char *shown = name != NULL ? name : function->name;
  snprintf(text, size, "%.*s", (int)(name != NULL ? ct_demangled_name_length(name) : strlen(shown)), shown);
  free(name);
}

void
ct_steps_names_of(struct ct_steps_names *names, uint64_t step, uint64_t address, struct ct_steps_name *out)
{
  const struct place *place = place_of(names, step, address);
  uint64_t bias;
  out->module = NULL;
  out->offset = out->begin = out->end = 0;
  out->function[0] = 0;
  out->raw = NULL;
  out->base = 0;
  out->build_id = "";
  if (place == NULL) {
    return;
  }
  struct file *file = &names->files[place->file];
  struct ct_elf *elf = elf_of(file);
  out->module = file->path;
  out->offset = address - place->start + place->offset;
  if (elf == NULL || !bias_of(elf, place, &bias)) {
    return;
  }
  out->base = bias;
  out->build_id = ct_elf_build_id(elf);
  const struct ct_function *function = ct_elf_function_around(elf, address - bias);
  if (function != NULL && function->name != NULL) {
    put_function(function, out->function, sizeof(out->function));
    out->raw = function->name;
    out->begin = function->address + bias;
    out->end = out->begin + function->size;
    out->offset = address - out->begin;
  }
}

void
ct_steps_names_label(struct ct_steps_names *names, uint64_t step, uint64_t address, char *text, size_t size)
{
  struct ct_steps_name name;
  ct_steps_names_of(names, step, address, &name);
  if (name.module == NULL) {
    snprintf(text, size, "0x%" PRIx64, address);
  } else if (name.function[0] != 0 && name.offset == 0) {
    snprintf(text, size, "%s", name.function);
  } else if (name.function[0] != 0) {
    snprintf(text, size, "%s+0x%" PRIx64, name.function, name.offset);
  } else {
    const char *slash = strrchr(name.module, '/'), *file = slash != NULL ? slash + 1 : name.module;
    snprintf(text, size, "%s+0x%" PRIx64, file[0] != 0 ? file : "anonymous", name.offset);
  }
}

/* ---- lines ---- */

static int
compare_addresses(const void *a, const void *b)
{
  uint64_t x, y;
  memcpy(&x, a, sizeof(x));
  memcpy(&y, b, sizeof(y));
  return x < y ? -1 : x > y;
}

/* Of all instructions of the module that the trace has, at once: each question walks over all units of the file. */
static void
read_lines(struct ct_steps_names *names, struct file *file, const struct place *place, uint64_t bias)
{
  size_t capacity = 0, count = 0;
  file->sources_tried = true;
  if (names->reader == NULL) {
    return;
  }
  struct ct_units *units = ct_steps_reader_units(names->reader);
  for (size_t i = 0; i < ct_units_count(units); i++) {
    struct ct_steps_plan *plan = ct_units_item(units, i);
    capacity += ct_steps_plan_touches(plan, place->start, place->end) ? plan->insns : 0u;
  }
  file->addresses = malloc((capacity + 1) * sizeof(*file->addresses));
  for (size_t i = 0; i < ct_units_count(units) && file->addresses != NULL; i++) {
    struct ct_steps_plan *plan = ct_units_item(units, i);
    if (!ct_steps_plan_touches(plan, place->start, place->end) || ct_units_decode(units, plan->id) == NULL) {
      continue;
    }
    for (unsigned k = 0; k < plan->insns; k++) {
      file->addresses[count] = plan->insn[k].pc - bias;
      count += plan->insn[k].pc >= place->start && plan->insn[k].pc < place->end;
    }
  }
  if (file->addresses == NULL) {
    return;
  }
  qsort(file->addresses, count, sizeof(*file->addresses), compare_addresses);
  for (size_t i = 0; i < count; i++) {
    if (file->count == 0 || file->addresses[file->count - 1] != file->addresses[i]) {
      file->addresses[file->count++] = file->addresses[i];
    }
  }
  if (ct_sources_read(file->elf, file->addresses, file->count, &file->sources) != 0) {
    file->sources = NULL;
  }
}

const char *
ct_steps_names_source(struct ct_steps_names *names, uint64_t step, uint64_t address, uint32_t *line)
{
  const struct place *place = place_of(names, step, address);
  struct file *file = place != NULL ? &names->files[place->file] : NULL;
  uint64_t bias;
  if (file == NULL || elf_of(file) == NULL || !bias_of(file->elf, place, &bias)) {
    return NULL;
  }
  if (!file->sources_tried) {
    read_lines(names, file, place, bias);
  }
  uint64_t key = address - bias;
  const uint64_t *found =
      file->sources != NULL ? bsearch(&key, file->addresses, file->count, sizeof(key), compare_addresses) : NULL;
  if (found == NULL) {
    return NULL;
  }
  const struct ct_source_line *source = &file->sources->functions[found - file->addresses];
  *line = source->line;
  return source->file != CT_NO_SOURCE ? file->sources->files[source->file] : NULL;
}

/* ---- by name ---- */

struct finder {
  struct ct_steps_names *names;
  struct ct_glob *owner; /* MODULE! before the pattern; NULL: any */
  struct ct_name_glob by_name;
  struct ct_source_glob source;
  bool is_about_sources;
  char *root; /* @usercode; NULL: the program itself */
  struct ct_steps_range *ranges;
  size_t count;
};

static int
compile(struct finder *finder, const char *text, struct ct_diag *diag)
{
  const char *separator = ct_glob_separator(text), *function = separator != NULL ? separator + 1 : text;
  if (text[0] == '\0' || separator == text) {
    return ct_fail(diag, CT_EINVAL, text[0] == '\0' ? "it is empty" : "no module before the '!'");
  }
  int code = separator != NULL ? ct_glob_compile(text, (size_t)(separator - text), &finder->owner, diag) : 0;
  if (code != 0 || (function[0] == '\0' && separator != NULL)) {
    return code; /* all functions of these modules */
  }
  if (function[0] != '@') {
    return ct_name_glob_compile(function, &finder->by_name, diag);
  }
  finder->is_about_sources = true;
  code = ct_source_glob_compile(function, &finder->source, diag);
  finder->root = code == 0 && finder->source.glob == NULL ? realpath(".", NULL) : NULL;
  return code;
}

static void
clear(struct finder *finder)
{
  ct_glob_free(finder->owner);
  ct_name_glob_free(&finder->by_name);
  ct_source_glob_free(&finder->source);
  free(finder->root);
}

/* Unless it is one of those from `first` on. False: out of memory. */
static bool
add_function(const struct ct_function *function, uint64_t bias, size_t first, struct ct_steps_range **ranges,
             size_t *count)
{
  uint64_t start = function->address + bias;
  for (size_t i = first; i < *count; i++) {
    if ((*ranges)[i].start == start) {
      return true;
    }
  }
  struct ct_steps_range *more = reallocarray(*ranges, *count + 1, sizeof(*more));
  if (more == NULL) {
    return false;
  }
  *ranges = more;
  more[(*count)++] = (struct ct_steps_range){.start = start, .end = start + (function->size | !function->size)};
  return true;
}

/*
 * The name is that of a resolver (STT_GNU_IFUNC), which gives one of several functions when the program is loaded:
 * those whose addresses it has in it, each in a lea. Callers come to one of them; which one, the processor decides.
 */
static bool
add_resolved(struct ct_elf *elf, const struct ct_function *resolver, uint64_t bias, struct ct_steps_range **ranges,
             size_t *count)
{
  enum { BYTES_MAX = 1024 };
  size_t first = *count;
  size_t size = ct_elf_code_left(elf, resolver->address);
  size = size < resolver->size ? size : resolver->size;
  const uint8_t *code = size <= BYTES_MAX ? ct_elf_bytes(elf, resolver->address, size) : NULL;
  for (size_t at = 0; code != NULL && at < size;) {
    struct ct_insn in;
    if (!ct_decode(code + at, size - at, size - at, &in)) {
      break;
    }
    at += in.length;
    uint64_t address = resolver->address + at + (uint64_t)(int64_t)ct_insn_disp(&in);
    bool has_address = ct_insn_op(&in) == CT_OP_LEA && ct_insn_base(&in) == CT_BASE_RIP;
    const struct ct_function *function = has_address ? ct_elf_function_around(elf, address) : NULL;
    if (function != NULL && function->address == address && !add_function(function, bias, first, ranges, count)) {
      return false;
    }
  }
  return true;
}

static bool
owns(const struct finder *finder, const char *path)
{
  const char *slash = strrchr(path, '/'), *last = slash != NULL ? slash + 1 : path;
  return finder->owner == NULL || ct_glob_matches(finder->owner, last, strlen(last)) ||
         ct_glob_matches(finder->owner, path, strlen(path));
}

/*
 * The sources of a file's functions, one for each; NULL: none are known. Of a process whose thread waits for the answer
 * (it goes on untraced after a second: no reader) only of files that have them themselves: those of the system's
 * libraries lie elsewhere, and are large.
 */
static struct ct_sources *
sources_of(const struct finder *finder, struct ct_elf *elf, const struct ct_function *functions, size_t count)
{
  struct ct_sources *sources = NULL;
  if (finder->names->reader == NULL && !ct_elf_has_debug_info(elf)) {
    return NULL;
  }
  uint64_t *addresses = malloc((count + 1) * sizeof(*addresses));
  for (size_t i = 0; i < count && addresses != NULL; i++) {
    addresses[i] = functions[i].address;
  }
  if (addresses == NULL || ct_sources_read(elf, addresses, count, &sources) != 0) {
    sources = NULL;
  }
  free(addresses);
  return sources;
}

static bool
is_in_source(const struct finder *finder, const struct ct_sources *sources, size_t number)
{
  if (sources == NULL || sources->functions[number].file == CT_NO_SOURCE) {
    return false;
  }
  const char *file = sources->files[sources->functions[number].file];
  return finder->source.glob != NULL ? ct_source_glob_matches(&finder->source, file)
                                     : ct_source_is_below(file, finder->root);
}

static bool
add_functions(struct finder *finder, const struct place *place)
{
  struct file *file = &finder->names->files[place->file];
  const struct ct_function *functions;
  size_t count;
  uint64_t bias;
  struct ct_elf *elf = owns(finder, file->path) ? elf_of(file) : NULL;
  if (elf == NULL || !bias_of(elf, place, &bias) || ct_elf_functions(elf, &functions, &count, NULL) != 0) {
    return true;
  }
  bool is_program = finder->is_about_sources && finder->source.glob == NULL && finder->root == NULL, good = true;
  if (is_program && place->file != finder->names->maps[0].places[0].file) {
    return true;
  }
  struct ct_sources *sources =
      finder->is_about_sources && !is_program ? sources_of(finder, elf, functions, count) : NULL;
  for (size_t i = 0; i < count && good; i++) {
    const struct ct_function *function = &functions[i];
    bool matches =
        is_program || (finder->is_about_sources
                           ? is_in_source(finder, sources, i)
                           : function->name != NULL && ct_name_glob_matches(&finder->by_name, NULL, function->name));
    if (!matches) {
      continue;
    }
    good = add_function(function, bias, finder->count, &finder->ranges, &finder->count) &&
           ((function->flags & CT_FN_IFUNC) == 0 || add_resolved(elf, function, bias, &finder->ranges, &finder->count));
  }
  ct_sources_free(sources);
  return good;
}

/* In all modules that have come with the maps from first on. */
static int
find(struct finder *finder, size_t first)
{
  const struct ct_steps_names *names = finder->names;
  for (size_t i = first; i < names->map_count; i++) {
    for (size_t k = 0; k < names->maps[i].count; k++) {
      const struct place *place = &names->maps[i].places[k];
      bool again = i > 0 && place_in(&names->maps[i - 1], place->start) != NULL &&
                   place_in(&names->maps[i - 1], place->start)->file == place->file;
      if (!again && !add_functions(finder, place)) {
        return CT_ENOMEM;
      }
    }
  }
  return 0;
}

int
ct_steps_names_find(struct ct_steps_names *names, const char *pattern, size_t first, struct ct_steps_range **ranges,
                    size_t *count, struct ct_diag *diag)
{
  struct finder finder = {.names = names};
  struct ct_diag why = {""};
  int code = compile(&finder, pattern, &why);
  if (code == 0) {
    code = find(&finder, first);
  }
  if (code == 0 && finder.count == 0 && finder.root != NULL) { /* @usercode where no file is the user's: the program */
    free(finder.root);
    finder.root = NULL;
    code = find(&finder, first);
  }
  clear(&finder);
  if (code != 0) {
    free(finder.ranges);
    return code == CT_ENOMEM ? ct_fail(diag, code, "out of memory")
                             : ct_fail(diag, code, "'%.200s': %s", pattern, why.text);
  }
  *ranges = finder.ranges;
  *count = finder.count;
  return 0;
}
