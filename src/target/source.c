/* SPDX-License-Identifier: MIT */
/*
 * Source files and lines of functions; see source.h.
 *
 * Each unit is looked at in up to three steps, the next one only while a function inside the unit's ranges has no file:
 * its subprograms at the outermost level and in namespaces; those inside other entries (local classes, nested
 * functions); and its line table, for what has no entry (assembly, compilers asked to emit lines only). A function is
 * what its entry says by its declaration: an instance of a template or of an inline function belongs to the header that
 * it is written in.
 *
 * What the file says is not believed: the walk ends when it has seen more entries than the file has bytes.
 */
#include "target/source.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <stdlib.h>
#include <string.h>

#include "target/debuginfo.h"

struct reading {
  const uint64_t *addresses;
  struct ct_sources *sources;
  uint8_t *weak;   /* for each function: its file is that of what it lies in */
  uint32_t *table; /* of files by their hash: index + 1 */
  size_t table_size;
  const char *last_raw; /* the path that was entered last, and its index */
  uint32_t last_index;
  size_t budget; /* entries left */
  bool out_of_memory;
};

void
ct_source_path_normalize(char *path)
{
  bool absolute = path[0] == '/';
  char *begin = path + absolute, *out = begin;
  char *kept = begin; /* after the ".." that a relative path begins with */
  bool more = *begin != '\0';
  for (char *at = begin; more;) {
    size_t length = strcspn(at, "/");
    char *next = at + length + strspn(at + length, "/");
    bool up = length == 2 && memcmp(at, "..", 2) == 0;
    more = *next != '\0';
    if (up && out > kept) {
      do {
        out--;
      } while (out > kept && out[-1] != '/');
    } else if (length != 0 && !(length == 1 && at[0] == '.') && !(up && absolute)) {
      memmove(out, at, length);
      out += length;
      *out++ = '/';
      kept = up ? out : kept;
    }
    at = next;
  }
  out -= out > begin;
  *out = '\0';
}

static uint32_t
hash(const char *text)
{
  uint32_t value = 2166136261u;
  for (; *text != '\0'; text++) {
    value = (value ^ (unsigned char)*text) * 16777619u;
  }
  return value;
}

static bool
grow_files(struct reading *reading)
{
  struct ct_sources *sources = reading->sources;
  size_t size = reading->table_size == 0 ? 1024 : 2 * reading->table_size;
  char **files = reallocarray(sources->files, size / 2, sizeof(*files));
  if (files == NULL) {
    return false;
  }
  sources->files = files;
  uint32_t *table = calloc(size, sizeof(*table));
  if (table == NULL) {
    return false;
  }
  for (size_t i = 0; i < sources->file_count; i++) {
    size_t entry = hash(files[i]) & (size - 1);
    while (table[entry] != 0) {
      entry = (entry + 1) & (size - 1);
    }
    table[entry] = (uint32_t)i + 1;
  }
  free(reading->table);
  reading->table = table;
  reading->table_size = size;
  return true;
}

/* The index of a file, entered when it is new; CT_NO_SOURCE when memory is exhausted. */
static uint32_t
enter_file(struct reading *reading, const char *raw)
{
  struct ct_sources *sources = reading->sources;
  if (raw == reading->last_raw) {
    return reading->last_index;
  }
  char *path = strdup(raw);
  if (path == NULL || (2 * sources->file_count >= reading->table_size && !grow_files(reading))) {
    free(path);
    reading->out_of_memory = true;
    return CT_NO_SOURCE;
  }
  ct_source_path_normalize(path);
  size_t entry = hash(path) & (reading->table_size - 1);
  while (reading->table[entry] != 0 && strcmp(sources->files[reading->table[entry] - 1], path) != 0) {
    entry = (entry + 1) & (reading->table_size - 1);
  }
  if (reading->table[entry] == 0) {
    sources->files[sources->file_count++] = path;
    reading->table[entry] = (uint32_t)sources->file_count;
  } else {
    free(path);
  }
  reading->last_raw = raw;
  reading->last_index = reading->table[entry] - 1;
  return reading->last_index;
}

/* The first function at or after address. */
static size_t
find(const struct reading *reading, uint64_t address)
{
  size_t low = 0, high = reading->sources->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (reading->addresses[middle] < address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static const char *
declared_in(Dwarf_Die *die)
{
  Dwarf_Attribute attribute;
  Dwarf_Word index;
  Dwarf_Die unit;
  Dwarf_Half version;
  Dwarf_Files *files;
  size_t count;
  if (dwarf_attr_integrate(die, DW_AT_decl_file, &attribute) == NULL || dwarf_formudata(&attribute, &index) != 0 ||
      dwarf_cu_die(attribute.cu, &unit, &version, NULL, NULL, NULL, NULL, NULL) == NULL ||
      (index == 0 && version < 5) || dwarf_getsrcfiles(&unit, &files, &count) != 0 || index >= count) {
    return NULL;
  }
  return dwarf_filesrc(files, index, NULL, NULL);
}

static uint32_t
declared_at(Dwarf_Die *die)
{
  Dwarf_Attribute attribute;
  Dwarf_Word line;
  bool known =
      dwarf_attr_integrate(die, DW_AT_decl_line, &attribute) != NULL && dwarf_formudata(&attribute, &line) == 0;
  return known && line <= INT32_MAX ? (uint32_t)line : 0;
}

/* Those of the functions in [start, end) that are not known better get the line where the entry is declared. */
static void
note_range(struct reading *reading, Dwarf_Die *die, uint64_t start, uint64_t end)
{
  struct ct_source_line source = {CT_NO_SOURCE, 0};
  for (size_t i = find(reading, start); i < reading->sources->count && reading->addresses[i] < end; i++) {
    struct ct_source_line *known = &reading->sources->functions[i];
    bool exact = reading->addresses[i] == start;
    if (known->file != CT_NO_SOURCE && !(exact && reading->weak[i])) {
      continue;
    }
    if (source.file == CT_NO_SOURCE) {
      const char *file = declared_in(die);
      if (file == NULL || (source.file = enter_file(reading, file)) == CT_NO_SOURCE) {
        return;
      }
      source.line = declared_at(die);
    }
    *known = source;
    reading->weak[i] = !exact;
  }
}

static void
visit_function(void *context, Dwarf_Die *die)
{
  struct reading *reading = context;
  Dwarf_Addr base, start, end;
  ptrdiff_t offset = 0;
  if (!dwarf_hasattr(die, DW_AT_low_pc) && !dwarf_hasattr(die, DW_AT_ranges)) {
    return;
  }
  while ((offset = dwarf_ranges(die, offset, &base, &start, &end)) > 0 && reading->budget > 0) {
    reading->budget--;
    if (start != 0 && start < end) { /* 0: what the linker left out */
      note_range(reading, die, start, end);
    }
  }
}

/* Calls visit for each function in the unit's ranges that has no file, until it is false; gives whether one was. */
static bool
each_unknown(struct reading *reading, Dwarf_Die *unit, bool (*visit)(struct reading *, Dwarf_Die *, size_t))
{
  Dwarf_Addr base, start, end;
  ptrdiff_t offset = 0;
  bool found = false;
  while ((offset = dwarf_ranges(unit, offset, &base, &start, &end)) > 0 && reading->budget > 0) {
    reading->budget--;
    for (size_t i = find(reading, start); i < reading->sources->count && reading->addresses[i] < end; i++) {
      if (reading->sources->functions[i].file == CT_NO_SOURCE) {
        found = true;
        if (!visit(reading, unit, i)) {
          return true;
        }
      }
    }
  }
  return found;
}

static bool
stop(struct reading *reading, Dwarf_Die *unit, size_t i)
{
  return false;
}

static bool
take_line(struct reading *reading, Dwarf_Die *unit, size_t i)
{
  struct ct_source_line *source = &reading->sources->functions[i];
  Dwarf_Line *row = dwarf_getsrc_die(unit, reading->addresses[i]);
  const char *file = row != NULL ? dwarf_linesrc(row, NULL, NULL) : NULL;
  int line;
  if (file != NULL) {
    source->file = enter_file(reading, file);
    source->line = dwarf_lineno(row, &line) == 0 && line > 0 ? (uint32_t)line : 0;
  }
  return true;
}

static void
read_units(struct reading *reading, Dwarf *dwarf)
{
  struct ct_dwarf_walk walk = {.visit = visit_function, .context = reading, .budget = &reading->budget};
  Dwarf_CU *unit = NULL;
  Dwarf_Die die;
  while (!reading->out_of_memory && reading->budget > 0 && ct_dwarf_next_unit(dwarf, &unit, &die)) {
    reading->last_raw = NULL;
    ct_dwarf_walk_functions(&walk, &die, false);
    if (each_unknown(reading, &die, stop)) {
      ct_dwarf_walk_functions(&walk, &die, true);
      each_unknown(reading, &die, take_line);
    }
  }
}

int
ct_sources_read(struct ct_elf *elf, const uint64_t *addresses, size_t count, struct ct_sources **out)
{
  struct ct_debug_info files = {{0}};
  const struct ct_image *image = ct_debug_info_open(elf, &files);
  if (image == NULL) {
    ct_debug_info_close(&files);
    return CT_ENOENT;
  }
  struct ct_sources *sources = calloc(1, sizeof(*sources));
  struct reading reading = {.addresses = addresses, .sources = sources, .budget = image->size};
  reading.weak = calloc(count + 1, 1);
  if (sources != NULL) {
    sources->functions = malloc((count + 1) * sizeof(*sources->functions));
  }
  reading.out_of_memory = sources == NULL || sources->functions == NULL || reading.weak == NULL;
  if (!reading.out_of_memory) {
    sources->count = count;
    for (size_t i = 0; i < count; i++) {
      sources->functions[i] = (struct ct_source_line){CT_NO_SOURCE, 0};
    }
    read_units(&reading, files.own.dwarf);
    for (size_t i = 0; i < count; i++) {
      sources->known += sources->functions[i].file != CT_NO_SOURCE;
    }
  }
  free(reading.weak);
  free(reading.table);
  ct_debug_info_close(&files);
  if (reading.out_of_memory) {
    ct_sources_free(sources);
    return CT_ENOMEM;
  }
  *out = sources;
  return CT_OK;
}

void
ct_sources_free(struct ct_sources *sources)
{
  if (sources == NULL) {
    return;
  }
  for (size_t i = 0; i < sources->file_count; i++) {
    free(sources->files[i]);
  }
  free(sources->files);
  free(sources->functions);
  free(sources);
}
