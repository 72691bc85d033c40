/* SPDX-License-Identifier: MIT */
/* See source_pages.h. */
#include "itrace/source_pages.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST = 4096, PAGE_SHIFT = 12 };

static uint64_t *
slot_of(const struct ct_source_pages *pages, uint64_t page)
{
  size_t at = (size_t)((page * 0x9e3779b97f4a7c15ull) >> 20) & (pages->count - 1);
  while (pages->pages[at] != 0 && pages->pages[at] != page + 1) {
    at = (at + 1) & (pages->count - 1);
  }
  return &pages->pages[at];
}

bool
ct_source_pages_create(struct ct_source_pages *pages)
{
  pthread_mutex_init(&pages->lock, NULL);
  pages->count = FIRST;
  pages->used = 0;
  pages->pages = calloc(FIRST, sizeof(*pages->pages));
  return pages->pages != NULL;
}

void
ct_source_pages_free(struct ct_source_pages *pages)
{
  free(pages->pages);
  pthread_mutex_destroy(&pages->lock);
}

static bool
grow(struct ct_source_pages *pages)
{
  struct ct_source_pages old = {.pages = pages->pages, .count = pages->count};
  uint64_t *wider = calloc(old.count * 2, sizeof(*wider));
  if (wider == NULL) {
    return false;
  }
  pages->pages = wider;
  pages->count = old.count * 2;
  for (size_t i = 0; i < old.count; i++) {
    if (old.pages[i] != 0) {
      *slot_of(pages, old.pages[i] - 1) = old.pages[i];
    }
  }
  free(old.pages);
  return true;
}

bool
ct_source_pages_add(struct ct_source_pages *pages, uint64_t start, uint64_t bytes)
{
  bool good = true;
  pthread_mutex_lock(&pages->lock);
  for (uint64_t page = start >> PAGE_SHIFT; page <= (start + (bytes != 0 ? bytes - 1 : 0)) >> PAGE_SHIFT; page++) {
    uint64_t *slot = slot_of(pages, page);
    if (*slot == 0) {
      *slot = page + 1;
      good &= ++pages->used * 2 < pages->count || grow(pages);
    }
  }
  pthread_mutex_unlock(&pages->lock);
  return good;
}

void
ct_source_pages_forget(struct ct_source_pages *pages)
{
  pthread_mutex_lock(&pages->lock);
  pages->used = 0;
  memset(pages->pages, 0, pages->count * sizeof(*pages->pages));
  pthread_mutex_unlock(&pages->lock);
}

static bool
has_any(const struct ct_source_pages *pages, uint64_t start, uint64_t end)
{
  if ((end - start) >> PAGE_SHIFT > pages->used) {
    for (size_t i = 0; i < pages->count; i++) {
      if (pages->pages[i] != 0 && (pages->pages[i] - 1) << PAGE_SHIFT < end && pages->pages[i] << PAGE_SHIFT > start) {
        return true;
      }
    }
    return false;
  }
  for (uint64_t page = start >> PAGE_SHIFT; page << PAGE_SHIFT < end; page++) {
    if (*slot_of(pages, page) != 0) {
      return true;
    }
  }
  return false;
}

bool
ct_source_pages_have(struct ct_source_pages *pages, uint64_t start, uint64_t end)
{
  pthread_mutex_lock(&pages->lock);
  bool found = has_any(pages, start, end);
  pthread_mutex_unlock(&pages->lock);
  return found;
}
