/* SPDX-License-Identifier: MIT */
/*
 * Layout of a plan's bytes, little-endian:
 *
 *   struct plan_file                    magic, size, checksum, key, the parts' offsets, what is no array
 *   struct ct_planned   [functions]     name: its offset in the strings plus 1, 0 without one
 *   struct ct_springboard    [springboard]
 *   struct ct_foreign_run [foreign]
 *   struct ct_plan_alias [aliases]      name: likewise
 *   char                [strings]       names, each with its zero byte; the first one is the path
 *
 * The arrays are what struct ct_plan points to, byte for byte: a new field of struct ct_planned is stored without a
 * line here. That makes sense only to the program that wrote it: the key has the build-id of contrail in it, so another
 * build finds another key. So it is with the fields of struct ct_plan from uses_gs up to plan_ns; for one that is
 * elsewhere the assertion below asks.
 *
 * Nothing is believed: sizes, offsets, orders, enumerations and strings are checked, so that nothing that is read can
 * lead contrail outside of what it has mapped. The checksum finds damage by accident. Who makes up a file with a right
 * checksum can have functions hooked wrongly; it is their own directory, and their own programs.
 */
#include "plan/plan_file.h"

#include "base/crc32c.h"
#include "base/file.h"
#include "target/functions.h"
#include "x86/decode.h"

#include <assert.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define FORMAT         2
#define FUNCTIONS_MAX  (1u << 27)
#define WINDOW_MAX     64 /* bytes */
#define INSN_BYTES_MAX 15
#define CONTENT_CHUNK  (256u << 10) /* read at once; stays in the cache */

static const char magic[8] = "CTRLPLAN";

enum { PART_FUNCTIONS, PART_SPRINGBOARDS, PART_FOREIGN, PART_ALIASES, PART_STRINGS, PART_COUNT };
static const uint32_t element_bytes[PART_COUNT] = {sizeof(struct ct_planned), sizeof(struct ct_springboard),
                                                   sizeof(struct ct_foreign_run), sizeof(struct ct_plan_alias), 1};

/* What struct ct_plan says beside the arrays, and what does not follow from them. */
#define FACTS_AT    offsetof(struct ct_plan, uses_gs)
#define FACTS_BYTES (offsetof(struct ct_plan, plan_ns) - FACTS_AT)

struct part {
  uint64_t offset, count;
};

struct plan_file {
  char magic[8];
  uint32_t format;
  uint32_t checksum; /* CRC-32C of all that follows */
  uint64_t bytes;    /* of the whole */
  struct ct_plan_key key;
  struct part parts[PART_COUNT];
  uint8_t facts[FACTS_BYTES];
};
#define CHECKSUM_FROM offsetof(struct plan_file, bytes)
static_assert(sizeof(struct plan_file) % 8 == 0, "the arrays after it are aligned");
static_assert(sizeof(struct ct_plan) == 192 + sizeof(size_t) * CT_REFUSED_COUNT,
              "a new field of struct ct_plan? store it, best among the facts");
static_assert(sizeof(struct ct_plan_key) == 136 + 8 + 8 + 16 + sizeof(struct ct_file_stamp) * CT_DEBUG_CANDIDATES + 48,
              "compared as bytes, so without padding");

/* ---- the key ---- */

struct object_search {
  uint8_t *out;
  size_t size;
  const char *path; /* "" for the program itself */
};

static void
copy_build_id(const struct dl_phdr_info *object, const ElfW(Phdr) * segment, struct object_search *search)
{
  const uint8_t *at = (const uint8_t *)object->dlpi_addr + segment->p_vaddr;
  size_t left = segment->p_memsz;
  ElfW(Nhdr) note;
  while (left >= sizeof(note)) {
    memcpy(&note, at, sizeof(note));
    size_t name_bytes = (note.n_namesz + 3u) & ~(size_t)3, bytes = (note.n_descsz + 3u) & ~(size_t)3;
    if (name_bytes > left || bytes > left || sizeof(note) + name_bytes + bytes > left) {
      return;
    }
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(at + sizeof(note), "GNU", 4) == 0) {
      memcpy(search->out, at + sizeof(note) + name_bytes, note.n_descsz < search->size ? note.n_descsz : search->size);
      return;
    }
    at += sizeof(note) + name_bytes + bytes;
    left -= sizeof(note) + name_bytes + bytes;
  }
}

/* The object that this code is in. */
static int
visit_object(struct dl_phdr_info *object, size_t size, void *context)
{
  (void)size;
  uintptr_t here = (uintptr_t)&visit_object;
  bool ours = false;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
    ours |= segment->p_type == PT_LOAD && here - object->dlpi_addr - segment->p_vaddr < segment->p_memsz;
  }
  if (ours) {
    ((struct object_search *)context)->path = object->dlpi_name;
  }
  for (int i = 0; i < object->dlpi_phnum && ours; i++) {
    if (object->dlpi_phdr[i].p_type == PT_NOTE) {
      copy_build_id(object, &object->dlpi_phdr[i], context);
    }
  }
  return ours;
}

/* | format u32 | element sizes u16 x 4 | decoder's version u64 | build-id of contrail, up to 28 bytes | */
static void
identify_planner(uint8_t out[48])
{
  uint32_t format = FORMAT;
  uint64_t decoder = ct_decoder_version();
  memset(out, 0, 48);
  memcpy(out, &format, sizeof(format));
  for (int i = 0; i < 4; i++) {
    uint16_t bytes = (uint16_t)element_bytes[i];
    memcpy(out + 4 + 2 * i, &bytes, sizeof(bytes));
  }
  memcpy(out + 12, &decoder, sizeof(decoder));
  struct object_search search = {out + 20, 28, ""};
  dl_iterate_phdr(visit_object, &search);
  if (out[20] == 0 && memcmp(out + 20, out + 21, 27) == 0) { /* built without one: the file's time must do */
    struct stat file;
    if (stat(search.path[0] != '\0' ? search.path : "/proc/self/exe", &file) == 0) {
      uint64_t stamp[3] = {(uint64_t)file.st_size, (uint64_t)file.st_mtim.tv_sec, (uint64_t)file.st_mtim.tv_nsec};
      memcpy(out + 20, stamp, sizeof(stamp));
    }
  }
}

/* Read, not mapped: whoever cuts the file short meanwhile must not kill us. */
static int
read_content(int fd, uint64_t bytes, uint64_t sum[2])
{
  XXH3_state_t content;
  uint8_t *buffer = malloc(CONTENT_CHUNK);
  if (buffer == NULL) {
    return CT_ENOMEM;
  }
  XXH3_128bits_reset(&content);
  uint64_t at = 0;
  int code = 0;
  while (at < bytes && code == 0) {
    size_t wanted = bytes - at < CONTENT_CHUNK ? bytes - at : CONTENT_CHUNK;
    size_t got = ct_read_at(fd, buffer, wanted, at);
    code = got == wanted ? 0 : CT_EIO;
    XXH3_128bits_update(&content, buffer, got);
    at += got;
  }
  XXH128_hash_t hash = XXH3_128bits_digest(&content);
  sum[0] = hash.low64;
  sum[1] = hash.high64;
  free(buffer);
  return code;
}

int
ct_plan_key_make(int fd, const struct ct_elf *elf, struct ct_plan_key *key)
{
  struct stat file;
  memset(key, 0, sizeof(*key));
  if (fstat(fd, &file) != 0) {
    return ct_err_from_errno(errno);
  }
  key->file_bytes = (uint64_t)file.st_size;
  size_t length = strlen(ct_elf_build_id(elf));
  if (length != 0 && length < sizeof(key->build_id)) {
    memcpy(key->build_id, ct_elf_build_id(elf), length);
    key->changed_ns = (int64_t)file.st_mtim.tv_sec * 1000000000 + file.st_mtim.tv_nsec;
  } else {
    int code = read_content(fd, key->file_bytes, key->content);
    if (code != 0) {
      return code;
    }
  }
  ct_elf_debug_stamps(elf, key->debug);
  identify_planner(key->planner);
  return 0;
}

/* ---- writing ---- */

static size_t
alias_count(const struct ct_plan *plan, size_t *name_bytes)
{
  size_t count = 0;
  const char *name;
  for (size_t i = 0; i < plan->count; i++) {
    for (size_t n = 0; (name = ct_plan_alias(plan, &plan->functions[i], n)) != NULL; n++) {
      count++;
      *name_bytes += strlen(name) + 1;
    }
  }
  return count;
}

struct strings {
  char *bytes;
  size_t used;
};

/* As it is stored instead of the pointer. */
static const char *
add_string(struct strings *strings, const char *text)
{
  if (text == NULL) {
    return NULL;
  }
  size_t size = strlen(text) + 1;
  uintptr_t offset = strings->used + 1;
  memcpy(strings->bytes + strings->used, text, size);
  strings->used += size;
  return (const char *)offset;
}

static void
fill_aliases(const struct ct_plan *plan, struct ct_plan_alias *aliases, struct strings *strings)
{
  const char *name;
  for (size_t i = 0; i < plan->count; i++) {
    for (size_t n = 0; (name = ct_plan_alias(plan, &plan->functions[i], n)) != NULL; n++) {
      *aliases++ = (struct ct_plan_alias){plan->functions[i].address, add_string(strings, name)};
    }
  }
}

void *
ct_plan_encode(const struct ct_plan *plan, const struct ct_plan_key *key, const char *path, size_t *size)
{
  size_t string_bytes = strlen(path) + 1;
  for (size_t i = 0; i < plan->count; i++) {
    string_bytes += plan->functions[i].name != NULL ? strlen(plan->functions[i].name) + 1 : 0;
  }
  struct plan_file head = {.format = FORMAT, .key = *key};
  memcpy(head.magic, magic, sizeof(magic));
  memcpy(head.facts, (const uint8_t *)plan + FACTS_AT, FACTS_BYTES);
  size_t aliases = alias_count(plan, &string_bytes);
  size_t counts[PART_COUNT] = {plan->count, plan->springboard_count, plan->foreign_count, aliases, string_bytes};
  head.bytes = sizeof(head);
  for (int p = 0; p < PART_COUNT; p++) {
    head.parts[p] = (struct part){head.bytes, counts[p]};
    head.bytes += (counts[p] * element_bytes[p] + 7) & ~(size_t)7;
  }
  uint8_t *bytes = calloc(1, head.bytes);
  if (bytes == NULL) {
    return NULL;
  }
  struct ct_planned *functions = (struct ct_planned *)(bytes + head.parts[PART_FUNCTIONS].offset);
  struct strings strings = {(char *)bytes + head.parts[PART_STRINGS].offset, 0};
  add_string(&strings, path);
  if (plan->count != 0) {
    memcpy(functions, plan->functions, plan->count * sizeof(*functions));
  }
  for (size_t i = 0; i < plan->count; i++) {
    functions[i].name = add_string(&strings, plan->functions[i].name);
    if (functions[i].tactic == CT_TACTIC_INT3) { /* a recording's choice (ct_plan_use_int3), not the plan's */
      functions[i].refusal = functions[i].int3_fits;
      functions[i].tactic = CT_TACTIC_NONE;
      functions[i].int3_fits = true;
    }
  }
  if (plan->springboard_count != 0) {
    memcpy(bytes + head.parts[PART_SPRINGBOARDS].offset, plan->springboard,
           plan->springboard_count * sizeof(*plan->springboard));
  }
  if (plan->foreign_count != 0) {
    memcpy(bytes + head.parts[PART_FOREIGN].offset, plan->foreign, plan->foreign_count * sizeof(*plan->foreign));
  }
  fill_aliases(plan, (struct ct_plan_alias *)(bytes + head.parts[PART_ALIASES].offset), &strings);
  memcpy(bytes, &head, sizeof(head));
  head.checksum = ct_crc32c(0, bytes + CHECKSUM_FROM, head.bytes - CHECKSUM_FROM);
  memcpy(bytes, &head, sizeof(head));
  *size = head.bytes;
  return bytes;
}

/* ---- reading ---- */

/* The head and the offsets of the parts. */
static int
check_head(const void *bytes, size_t size, struct plan_file *head)
{
  if (size < sizeof(*head)) {
    return CT_EFORMAT;
  }
  memcpy(head, bytes, sizeof(*head));
  if (memcmp(head->magic, magic, sizeof(magic)) != 0 || head->format != FORMAT || head->bytes != size) {
    return CT_EFORMAT;
  }
  uint64_t end = sizeof(*head);
  for (int p = 0; p < PART_COUNT; p++) {
    const struct part *part = &head->parts[p];
    if (part->offset < end || part->offset > size || part->offset % 8 != 0 ||
        part->count > (size - part->offset) / element_bytes[p]) {
      return CT_EFORMAT;
    }
    end = part->offset + part->count * element_bytes[p];
  }
  const struct part *strings = &head->parts[PART_STRINGS];
  bool ends = strings->count != 0 && ((const uint8_t *)bytes)[strings->offset + strings->count - 1] == 0;
  return ends && head->parts[PART_FUNCTIONS].count <= FUNCTIONS_MAX ? 0 : CT_EFORMAT;
}

struct extent {
  uint64_t lo, hi;
};

/* The addresses that the file's segments take. */
static struct extent
extent_of(const struct ct_elf *elf)
{
  struct extent extent = {UINT64_MAX, 0};
  const struct ct_elf_segment *segments;
  size_t count = ct_elf_segments(elf, &segments);
  for (size_t i = 0; i < count; i++) {
    uint64_t end = segments[i].address + segments[i].memory_bytes;
    extent.lo = segments[i].address < extent.lo ? segments[i].address : extent.lo;
    extent.hi = end > extent.hi ? end : extent.hi;
  }
  return extent;
}

static bool
is_inside(const struct extent *extent, uint64_t address, uint64_t bytes)
{
  return address >= extent->lo && address < extent->hi && bytes <= extent->hi - address;
}

static bool
is_window(const struct ct_window *window)
{
  if (window->count == 0 || window->count > CT_RELOCATED_MAX || window->length > WINDOW_MAX || window->offset[0] != 0 ||
      window->offset[window->count] != window->length || window->terminated > 1 || window->plain > 1) {
    return false;
  }
  for (uint32_t i = 0; i < window->count; i++) {
    if (window->offset[i + 1] <= window->offset[i] || window->offset[i + 1] - window->offset[i] > INSN_BYTES_MAX) {
      return false;
    }
  }
  return true;
}

/* Puts a pointer where the offset of a string is. False when it is none. */
static bool
relocate_name(const char **name, const char *strings, size_t bytes)
{
  uintptr_t offset = (uintptr_t)*name;
  if (offset > bytes) {
    return false;
  }
  *name = offset != 0 ? strings + offset - 1 : NULL;
  return true;
}

/* May the entry be changed as it says, for a tactic that it has or, by int3, might get? */
static bool
is_hook(const struct ct_planned *planned, const struct extent *extent, const struct ct_plan *plan)
{
  bool goes_on = planned->tactic == CT_TACTIC_SHORT || planned->tactic == CT_TACTIC_EVICT;
  uint64_t patched = planned->address + planned->patch_offset;
  if (planned->tactic == CT_TACTIC_INT3 || planned->tactic >= CT_TACTIC_COUNT || planned->patch_bytes == 0 ||
      planned->patch_bytes > CT_JUMP_BYTES || !is_window(&planned->window) ||
      !is_inside(extent, patched, planned->window.length) || !is_inside(extent, patched, planned->patch_bytes)) {
    return false;
  }
  if (!goes_on) {
    return true;
  }
  if (planned->springboard >= plan->springboard_count) {
    return false;
  }
  const struct ct_springboard *springboard = &plan->springboard[planned->springboard];
  return is_inside(extent, springboard->relay, CT_JUMP_BYTES) &&
         (planned->tactic != CT_TACTIC_EVICT ||
          (is_window(&springboard->window) && is_inside(extent, springboard->evicted, springboard->window.length)));
}

/* Checks the functions, and counts what the plan says of them. */
static bool
take_functions(struct ct_plan *plan, const struct extent *extent, const char *strings, size_t string_bytes)
{
  for (size_t i = 0; i < plan->count; i++) {
    struct ct_planned *planned = &plan->functions[i];
    bool hooked = planned->refusal == CT_REFUSED_NOT;
    if ((i != 0 && planned->address <= plan->functions[i - 1].address) || planned->refusal >= CT_REFUSED_COUNT ||
        planned->mode > CT_HOOK_STACKLESS || planned->callout >= CT_CALLOUT_KINDS || planned->event_last > 1 ||
        planned->self_branch > 1 || planned->patch_offset > 4 ||
        !relocate_name(&planned->name, strings, string_bytes) || hooked != (planned->tactic != CT_TACTIC_NONE) ||
        (hooked && planned->int3_fits) || ((hooked || planned->int3_fits) && !is_hook(planned, extent, plan))) {
      return false;
    }
    plan->hooked += hooked;
    plan->refused[planned->refusal] += !hooked;
  }
  return true;
}

static bool
take_others(struct ct_plan *plan, const struct extent *extent, const char *strings, size_t string_bytes)
{
  for (size_t i = 0; i < plan->foreign_count; i++) {
    const struct ct_foreign_run *run = &plan->foreign[i];
    if (run->start >= run->end || !is_inside(extent, run->start, run->end - run->start)) {
      return false;
    }
  }
  for (size_t i = 0; i < plan->alias_count; i++) {
    struct ct_plan_alias *alias = &plan->aliases[i];
    if ((i != 0 && alias->address < plan->aliases[i - 1].address) ||
        !relocate_name(&alias->name, strings, string_bytes) || alias->name == NULL) {
      return false;
    }
  }
  return (plan->r_debug == 0 || is_inside(extent, plan->r_debug, sizeof(struct r_debug))) &&
         (plan->errno_slot == 0 || is_inside(extent, plan->errno_slot, sizeof(uint64_t)));
}

int
ct_plan_decode(void *bytes, size_t size, const struct ct_plan_key *key, struct ct_plan *plan)
{
  struct plan_file head;
  uint8_t *base = bytes;
  int code = check_head(bytes, size, &head);
  if (code != 0) {
    return code;
  }
  if (memcmp(&head.key, key, sizeof(*key)) != 0) {
    return CT_ENOENT;
  }
  if (ct_crc32c(0, base + CHECKSUM_FROM, size - CHECKSUM_FROM) != head.checksum) {
    return CT_EFORMAT;
  }
  struct ct_plan taken = *plan;
  struct extent extent = extent_of(plan->elf);
  const char *strings = (const char *)base + head.parts[PART_STRINGS].offset;
  size_t string_bytes = head.parts[PART_STRINGS].count;
  taken.functions = (struct ct_planned *)(base + head.parts[PART_FUNCTIONS].offset);
  taken.count = head.parts[PART_FUNCTIONS].count;
  taken.springboard = (struct ct_springboard *)(base + head.parts[PART_SPRINGBOARDS].offset);
  taken.springboard_count = head.parts[PART_SPRINGBOARDS].count;
  taken.foreign = (struct ct_foreign_run *)(base + head.parts[PART_FOREIGN].offset);
  taken.foreign_count = head.parts[PART_FOREIGN].count;
  taken.aliases = (struct ct_plan_alias *)(base + head.parts[PART_ALIASES].offset);
  taken.alias_count = head.parts[PART_ALIASES].count;
  memcpy((uint8_t *)&taken + FACTS_AT, head.facts, FACTS_BYTES);
  if (taken.runtime < 0 || taken.runtime >= CT_RUNTIME_COUNT ||
      !take_functions(&taken, &extent, strings, string_bytes) || !take_others(&taken, &extent, strings, string_bytes)) {
    return CT_EFORMAT;
  }
  *plan = taken;
  return 0;
}

int
ct_plan_file_info(const void *bytes, size_t size, struct ct_plan_file_info *info)
{
  struct plan_file head;
  uint8_t planner[48];
  int code = check_head(bytes, size, &head);
  if (code != 0) {
    return code;
  }
  identify_planner(planner);
  const char *path = (const char *)bytes + head.parts[PART_STRINGS].offset;
  memset(info, 0, sizeof(*info));
  strncpy(info->path, path, sizeof(info->path) - 1);
  memcpy(info->build_id, head.key.build_id, sizeof(info->build_id) - 1);
  info->functions = head.parts[PART_FUNCTIONS].count;
  info->current = memcmp(planner, head.key.planner, sizeof(planner)) == 0;
  return 0;
}
