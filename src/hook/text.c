/* SPDX-License-Identifier: MIT */
/*
 * A text that nobody has written to is still made of the file's own pages: /proc/PID/pagemap says so, and then the
 * bytes in our mapping of the file are the bytes that the process has, for there is only one copy of them. Otherwise
 * (text relocations, somebody else's patches) the whole text is read.
 *
 * Patches are written in runs, through a buffer that stays in the cache: one write for some sixty pages of text.
 *
 * We may be killed in the middle of it, between two pages (mm/gup.c looks for fatal signals at each), and the process
 * goes on with half of the patches. Each is good by itself but for two kinds: no trampoline may be in use before the
 * guards (CT_PATCH_GUARD) are in place; and a short jump must not be there without the jump that it goes to, where they
 * are on two pages. Those come first when patches are written, and last, or in the opposite order, when they are taken
 * back.
 */
#include "hook/text.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#define RUN_BYTES        (256u << 10)
#define GAP_BYTES        4096u /* between patches of one run: no page is written to for nothing */
#define PAGE_BYTES       4096u
#define SHORT_JUMP_BYTES 2
#define REACH            140u /* of a short jump, with all that is written on both ends */

int
ct_texts_open(const struct ct_process *process, const struct ct_elf *elf, uint64_t base, struct ct_texts *texts)
{
  const struct ct_elf_segment *segments;
  size_t count = ct_elf_segments(elf, &segments);
  memset(texts, 0, sizeof(*texts));
  texts->items = calloc(count + 1, sizeof(*texts->items));
  if (texts->items == NULL) {
    return CT_ENOMEM;
  }
  for (size_t s = 0; s < count; s++) {
    if ((segments[s].flags & PF_X) == 0 || segments[s].file_bytes == 0) {
      continue;
    }
    struct ct_text *text = &texts->items[texts->count++];
    text->start = base + segments[s].address;
    text->size = segments[s].file_bytes;
    text->file = ct_elf_bytes(elf, segments[s].address, segments[s].file_bytes);
    if (text->file != NULL && ct_process_pages_are_files(process->pid, text->start, text->size)) {
      continue;
    }
    text->memory = malloc(text->size);
    if (text->memory == NULL) {
      return CT_ENOMEM;
    }
    if (ct_process_read(process, text->start, text->memory, text->size) != 0) {
      return CT_EIO;
    }
  }
  return 0;
}

void
ct_texts_close(struct ct_texts *texts)
{
  for (size_t i = 0; i < texts->count; i++) {
    free(texts->items[i].memory);
  }
  free(texts->items);
  memset(texts, 0, sizeof(*texts));
}

static const struct ct_text *
find_text(const struct ct_texts *texts, uint64_t address, size_t size)
{
  for (size_t i = 0; i < texts->count; i++) {
    const struct ct_text *text = &texts->items[i];
    if (address >= text->start && address - text->start < text->size && size <= text->size - (address - text->start)) {
      return text;
    }
  }
  return NULL;
}

static const uint8_t *
bytes_of(const struct ct_text *text, uint64_t address)
{
  return (text->memory != NULL ? text->memory : text->file) + (address - text->start);
}

const uint8_t *
ct_texts_at(const struct ct_texts *texts, uint64_t address, size_t size)
{
  const struct ct_text *text = find_text(texts, address, size);
  return text != NULL ? bytes_of(text, address) : NULL;
}

const uint8_t *
ct_texts_unchanged(const struct ct_texts *texts, uint64_t address, size_t size)
{
  const struct ct_text *text = find_text(texts, address, size);
  if (text == NULL || text->file == NULL) {
    return NULL;
  }
  const uint8_t *file = text->file + (address - text->start);
  return text->memory == NULL || memcmp(file, bytes_of(text, address), size) == 0 ? file : NULL;
}

/* How many of the patches are written at once, and up to where. */
static size_t
run_of(const struct ct_text *text, const struct ct_patch *patches, size_t count, uint64_t *end)
{
  size_t n = 0;
  *end = patches[0].address;
  while (n < count && patches[n].address <= *end + GAP_BYTES &&
         patches[n].address + patches[n].length - patches[0].address <= RUN_BYTES &&
         patches[n].address + patches[n].length <= text->start + text->size) {
    *end = patches[n].address + patches[n].length;
    n++;
  }
  return n;
}

/* What it belongs together with may be on another page. */
static bool
is_near_border(const struct ct_patch *patch)
{
  return (patch->address - REACH) / PAGE_BYTES != (patch->address + REACH) / PAGE_BYTES;
}

static bool
is_first_relay(const struct ct_patch *patch)
{
  return ct_patch_is_relay(patch) && (ct_patch_is_guard(patch) || is_near_border(patch));
}

static bool
is_guard_relay(const struct ct_patch *patch)
{
  return ct_patch_is_relay(patch) && ct_patch_is_guard(patch);
}

static bool
is_guard_entry(const struct ct_patch *patch)
{
  return !ct_patch_is_relay(patch) && ct_patch_is_guard(patch);
}

static int
write_some(const struct ct_process *process, const struct ct_patch *patches, const uint8_t *which, size_t count,
           bool (*is)(const struct ct_patch *patch))
{
  int code = 0;
  for (size_t i = 0; i < count && code == 0; i++) {
    if ((which == NULL || which[i] != 0) && is(&patches[i])) {
      code = ct_process_write(process, patches[i].address, patches[i].bytes, patches[i].length);
    }
  }
  return code;
}

static int
write_first(const struct ct_process *process, const struct ct_patch *patches, const uint8_t *which, size_t count)
{
  int code = write_some(process, patches, which, count, is_first_relay);
  return code == 0 ? write_some(process, patches, which, count, is_guard_entry) : code;
}

static int
compare_patches(const void *a, const void *b)
{
  const struct ct_patch *left = a, *right = b;
  return left->address < right->address ? -1 : left->address > right->address;
}

void
ct_patches_sort(struct ct_patch *patches, size_t count)
{
  size_t steps = 0, enough = 16 * count;
  for (size_t i = 1; i < count; i++) {
    struct ct_patch patch = patches[i];
    size_t to = i;
    for (; to > 0 && patches[to - 1].address > patch.address; to--) {
      patches[to] = patches[to - 1];
      steps++;
    }
    patches[to] = patch;
    if (steps > enough) {
      qsort(patches, count, sizeof(*patches), compare_patches);
      return;
    }
  }
}

int
ct_patches_write_guards(const struct ct_process *process, const struct ct_patch *patches, size_t count)
{
  int code = write_some(process, patches, NULL, count, is_guard_relay);
  return code == 0 ? write_some(process, patches, NULL, count, is_guard_entry) : code;
}

int
ct_texts_patch(const struct ct_process *process, const struct ct_texts *texts, const struct ct_patch *patches,
               size_t count, uint64_t *bytes)
{
  uint64_t page = 0; /* up to which they are counted */
  *bytes = 0;
  uint8_t *buffer = malloc(RUN_BYTES);
  int code = buffer == NULL ? CT_ENOMEM : write_first(process, patches, NULL, count);
  for (size_t next = 0; next < count && code == 0;) {
    const struct ct_patch *first = &patches[next];
    const struct ct_text *text = find_text(texts, first->address, first->length);
    uint64_t end;
    size_t run = text != NULL ? run_of(text, first, count - next, &end) : 0;
    if (run == 0) {
      code = CT_ERANGE;
      break;
    }
    memcpy(buffer, bytes_of(text, first->address), end - first->address);
    for (size_t i = 0; i < run; i++) {
      memcpy(buffer + (first[i].address - first->address), first[i].bytes, first[i].length);
    }
    code = ct_process_write(process, first->address, buffer, end - first->address);
    uint64_t from = first->address / PAGE_BYTES, to = (end + PAGE_BYTES - 1) / PAGE_BYTES;
    from = from < page ? page : from;
    *bytes += (to - from) * PAGE_BYTES;
    page = to;
    next += run;
  }
  free(buffer);
  return code;
}

void
ct_texts_without(struct ct_texts *texts, const struct ct_patch *patches, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    const struct ct_text *text = find_text(texts, patches[i].address, patches[i].length);
    if (text != NULL && text->memory != NULL) {
      uint8_t *at = text->memory + (patches[i].address - text->start);
      if (memcmp(at, patches[i].bytes, patches[i].length) == 0) {
        memcpy(at, patches[i].old, patches[i].length);
      }
    }
  }
}

static size_t
run_in_memory(const struct ct_patch *patches, size_t count, uint64_t *end)
{
  size_t n = 0;
  *end = patches[0].address;
  while (n < count && patches[n].address <= *end + GAP_BYTES &&
         patches[n].address + patches[n].length - patches[0].address <= RUN_BYTES) {
    uint64_t patch_end = patches[n].address + patches[n].length;
    *end = patch_end > *end ? patch_end : *end;
    n++;
  }
  return n;
}

/* True when something has changed. */
static bool
apply(uint8_t *memory, const struct ct_patch *patches, const uint8_t *which, size_t count, bool back, size_t *strange)
{
  bool changed = false;
  for (size_t i = 0; i < count; i++) {
    const struct ct_patch *patch = &patches[i];
    uint8_t *at = memory + (patch->address - patches[0].address);
    const uint8_t *to = back ? patch->old : patch->bytes;
    if ((which != NULL && which[i] == 0) || memcmp(at, to, patch->length) == 0) {
      continue;
    }
    if (back && memcmp(at, patch->bytes, patch->length) != 0) {
      (*strange)++;
      continue;
    }
    memcpy(at, to, patch->length);
    changed = true;
  }
  return changed;
}

static int
take_back_one(const struct ct_process *process, const struct ct_patch *patch)
{
  uint8_t now[sizeof(patch->bytes)];
  return ct_process_read(process, patch->address, now, patch->length) == 0 &&
                 memcmp(now, patch->bytes, patch->length) == 0
             ? ct_process_write(process, patch->address, patch->old, patch->length)
             : 0;
}

static bool
is_enough(const struct ct_enough *enough, size_t step)
{
  return enough != NULL && step % 256 == 0 && enough->is(enough->context);
}

/*
 * Short jumps before what they go to, and that before the instructions that made room for it, which lie lower. After
 * each step all that is still in place is a whole hook. *stop: it was enough.
 */
static int
take_back_first(const struct ct_process *process, const struct ct_patch *patches, const uint8_t *which, size_t count,
                const struct ct_enough *enough, bool *stop)
{
  int code = 0;
  for (size_t i = 0; i < count && code == 0 && !*stop; i++) {
    *stop = is_enough(enough, i);
    if ((which == NULL || which[i] != 0) && patches[i].length == SHORT_JUMP_BYTES && is_near_border(&patches[i])) {
      code = take_back_one(process, &patches[i]);
    }
  }
  for (size_t i = count; i-- > 0 && code == 0 && !*stop;) {
    *stop = is_enough(enough, i);
    if ((which == NULL || which[i] != 0) && ct_patch_is_relay(&patches[i]) && is_near_border(&patches[i])) {
      code = take_back_one(process, &patches[i]);
    }
  }
  return code;
}

/* Both ways; see the two below. */
static int
write_all(const struct ct_process *process, const struct ct_patch *patches, const uint8_t *which, size_t count,
          bool back, const struct ct_enough *enough, size_t *strange)
{
  bool stop = false;
  uint64_t end = 0;
  *strange = 0;
  uint8_t *buffer = malloc(RUN_BYTES);
  int code = buffer == NULL ? CT_ENOMEM
             : back         ? take_back_first(process, patches, which, count, enough, &stop)
                            : write_first(process, patches, which, count);
  for (size_t next = 0; next < count && code == 0 && !stop;) {
    if (which != NULL && which[next] == 0) {
      next++;
      continue;
    }
    uint64_t start = patches[next].address;
    if (start > end + REACH && is_enough(enough, 0)) { /* nothing before it belongs together with what is left */
      break;
    }
    size_t run = run_in_memory(patches + next, count - next, &end);
    if (ct_process_read(process, start, buffer, end - start) == 0 &&
        apply(buffer, patches + next, which != NULL ? which + next : NULL, run, back, strange)) {
      code = ct_process_write(process, start, buffer, end - start);
    }
    next += run;
  }
  free(buffer);
  return code;
}

int
ct_patches_write(const struct ct_process *process, const struct ct_patch *patches, const uint8_t *which, size_t count,
                 bool back, size_t *strange)
{
  return write_all(process, patches, which, count, back, NULL, strange);
}

int
ct_patches_take_back(const struct ct_process *process, const struct ct_patch *patches, const uint8_t *which,
                     size_t count, const struct ct_enough *enough, size_t *strange)
{
  return write_all(process, patches, which, count, true, enough, strange);
}
