/* SPDX-License-Identifier: MIT */
/* The program's code as the translator reads it, page by page, and whether it may change unseen. */
#include "itrace/tracer.h"

#include <string.h>

enum { PAGE_BYTES = 4096 };

static const uint8_t *
page_at(struct ct_code_pages *pages, uint64_t number)
{
  uint64_t slot = number % CT_CODE_PAGES;
  if (pages->pages[slot].page != number + 1) {
    pages->pages[slot].page = 0;
    if (ct_process_read(pages->process, number * PAGE_BYTES, pages->pages[slot].bytes, PAGE_BYTES) != 0) {
      return NULL;
    }
    pages->pages[slot].page = number + 1;
  }
  return pages->pages[slot].bytes;
}

/* NULL: it is not known. */
static const struct ct_mapping *
mapping_at(struct ct_code_pages *pages, uint64_t pc)
{
  const struct ct_mapping *mapping = pages->is_old ? NULL : ct_mappings_at(&pages->mappings, pc);
  if (mapping == NULL || !mapping->executable) { /* which another thread may have changed */
    pages->is_old = false;
    pages->is_renewed = true;
    ct_mappings_free(&pages->mappings);
    mapping =
        ct_process_mappings(pages->process->pid, &pages->mappings) == 0 ? ct_mappings_at(&pages->mappings, pc) : NULL;
  }
  return mapping;
}

/*
 * Code of a file that is mapped privately and cannot be written to changes only with its mapping, which the traced
 * thread, or another one that is traced, does by system calls that are looked at. What a thread that is not traced maps
 * is not seen at once (docs/limits.md).
 */
static bool
may_change(const struct ct_mapping *mapping)
{
  return mapping == NULL || mapping->writable || mapping->shared ||
         (mapping->path[0] != '/' && strcmp(mapping->path, "[vdso]") != 0);
}

/* Those that reach into the range begin at most so far before it. */
enum { PATCH_MAX = 8 };

static void
hide_patch(const struct ct_itrace_patch *patch, uint64_t pc, uint8_t *bytes, size_t size)
{
  for (size_t i = 0; i < patch->length && i < sizeof(patch->old); i++) {
    uint64_t at = patch->address + i - pc;
    if (at < size && bytes[at] == patch->bytes[i]) {
      bytes[at] = patch->old[i];
    }
  }
}

static void
hide_patches(const struct ct_code_pages *pages, uint64_t pc, uint8_t *bytes, size_t size)
{
  size_t low = 0, high = pages->hidden_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (pages->hidden[middle].address + PATCH_MAX <= pc) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  for (; low < pages->hidden_count && pages->hidden[low].address < pc + size; low++) {
    hide_patch(&pages->hidden[low], pc, bytes, size);
  }
}

size_t
ct_code_pages_read(void *context, uint64_t pc, uint8_t *bytes, size_t size, bool *changes)
{
  struct ct_code_pages *pages = context;
  const struct ct_mapping *mapping = mapping_at(pages, pc);
  size_t got = 0;
  *changes = may_change(mapping);
  if (mapping != NULL) { /* what cannot be executed faults where it is */
    size = !mapping->executable ? 0 : size < mapping->end - pc ? size : mapping->end - pc;
  }
  while (got < size) {
    uint64_t at = pc + got;
    size_t part = PAGE_BYTES - at % PAGE_BYTES;
    part = part < size - got ? part : size - got;
    if (*changes) { /* as it is now */
      if (ct_process_read(pages->process, at, bytes + got, part) != 0) {
        break;
      }
    } else {
      const uint8_t *page = page_at(pages, at / PAGE_BYTES);
      if (page == NULL) {
        break;
      }
      memcpy(bytes + got, page + at % PAGE_BYTES, part);
    }
    got += part;
  }
  hide_patches(pages, pc, bytes, got);
  return got;
}

bool
ct_code_pages_data(void *context, uint64_t address, void *bytes, size_t size)
{
  const struct ct_code_pages *pages = context;
  return ct_process_read(pages->process, address, bytes, size) == 0;
}

void
ct_code_pages_forget(struct ct_code_pages *pages)
{
  ct_mappings_free(&pages->mappings);
  pages->mappings = (struct ct_mappings){.count = 0};
  for (size_t i = 0; i < CT_CODE_PAGES; i++) {
    pages->pages[i].page = 0;
  }
}
