/* SPDX-License-Identifier: MIT */
/* Which pages of the program's code units were made of. Other threads' tracers ask for those of this one. */
#ifndef CT_ITRACE_SOURCE_PAGES_H
#define CT_ITRACE_SOURCE_PAGES_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_source_pages {
  pthread_mutex_t lock;
  uint64_t *pages; /* a hash: their numbers plus 1; 0: none */
  size_t count, used;
};

/* False: out of memory; it can be freed all the same. */
bool ct_source_pages_create(struct ct_source_pages *pages);
void ct_source_pages_free(struct ct_source_pages *pages);
/* Those from start on. False: out of memory. */
bool ct_source_pages_add(struct ct_source_pages *pages, uint64_t start, uint64_t bytes);
void ct_source_pages_forget(struct ct_source_pages *pages);
bool ct_source_pages_have(struct ct_source_pages *pages, uint64_t start, uint64_t end);

#endif
