/* SPDX-License-Identifier: MIT */
/*
 * Private copies of the system's programs and libraries in this process: their segments as the file has them, not
 * relocated, at an address of our own. Nothing calls them; pieces of their code are run from made-up states.
 */
#ifndef CT_TESTS_IMAGE_H
#define CT_TESTS_IMAGE_H

#include "plan/plan.h"
#include "random.h"

struct image {
  struct ct_plan *plan;
  uint64_t base;   /* load bias */
  uint64_t lo, hi; /* mapped, in this process */
};

/* Plans the file and maps it at base, or at the file's own addresses when it has fixed ones. False: cannot be had. */
bool image_load(struct image *image, const char *path, uint64_t base);
void image_unload(struct image *image);
/* Its bytes in this process. */
uint8_t *image_at(const struct image *image, uint64_t address);
/* Reading and running only, or writing too; whole pages around [address, address + bytes). */
void image_protect(const struct image *image, uint64_t address, uint64_t bytes, bool writable);

/* The files named in the environment or on the command line, else a fixed choice of those there are. */
size_t image_paths(const char **paths, size_t max);

#endif
