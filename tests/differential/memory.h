/* SPDX-License-Identifier: MIT */
/* The memory that a run may change: the arena, and what operands may write to in a file's copy. */
#ifndef CT_TESTS_MEMORY_H
#define CT_TESTS_MEMORY_H

#include "image.h"
#include "operands.h"

enum { KEPT_MAX = 16, KEPT_BYTES = 320 };

struct kept {
  uint8_t *at;
  size_t bytes;
  uint8_t before[KEPT_BYTES], first[KEPT_BYTES];
};

struct memory {
  struct arena arena;
  uint8_t *before, *first; /* the arena as runs begin, and as the first one has left it */
  const struct image *image;
  struct kept kept[KEPT_MAX];
  size_t kept_count;
};

/* 0 or -1. The arena is at address, with nothing around it. */
int memory_set_up(struct memory *memory, uint64_t address);
void memory_tear_down(struct memory *memory);

/* Random content, and what the piece may write to in the image (NULL: none) is kept and can be written. */
void memory_begin(struct memory *memory, const struct image *image, const struct piece *piece,
                  const struct machine *machine, struct rng *rng);
/* As it was at the beginning, for the next run. */
void memory_again(struct memory *memory);
/* The first run is over: what it has left is kept to be compared with. */
void memory_first_done(struct memory *memory);
/* Where the second run has left something else in the image; false when nowhere. */
bool memory_image_differs(const struct memory *memory, char *text, size_t size);
void memory_end(struct memory *memory);

void *memory_map(uint64_t address, size_t bytes, int protection);

#endif
