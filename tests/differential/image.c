/* SPDX-License-Identifier: MIT */
#include "image.h"

#include "target/elf.h"

#include <elf.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

enum { PAGE = 4096 };

uint8_t *
image_at(const struct image *image, uint64_t address)
{
  return address >= image->lo && address < image->hi ? (uint8_t *)address : NULL;
}

void
image_protect(const struct image *image, uint64_t address, uint64_t bytes, bool writable)
{
  uint64_t from = address & ~(uint64_t)(PAGE - 1), to = (address + bytes + PAGE - 1) & ~(uint64_t)(PAGE - 1);
  from = from > image->lo ? from : image->lo;
  to = to < image->hi ? to : image->hi;
  if (from < to && mprotect((void *)from, to - from, PROT_READ | PROT_EXEC | (writable ? PROT_WRITE : 0)) != 0) {
    abort();
  }
}

static bool
map(struct image *image)
{
  const struct ct_elf_segment *segments;
  size_t count = ct_elf_segments(image->plan->elf, &segments);
  uint64_t lo = UINT64_MAX, hi = 0;
  for (size_t i = 0; i < count; i++) {
    uint64_t end = segments[i].address + segments[i].memory_bytes;
    lo = segments[i].address < lo ? segments[i].address : lo;
    hi = end > hi ? end : hi;
  }
  lo &= ~(uint64_t)(PAGE - 1);
  hi = (hi + PAGE - 1) & ~(uint64_t)(PAGE - 1);
  image->lo = image->base + lo;
  image->hi = image->base + hi;
  void *at = mmap((void *)image->lo, hi - lo, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (at != (void *)image->lo) {
    return false;
  }
  for (size_t i = 0; i < count; i++) {
    const uint8_t *bytes = ct_elf_bytes(image->plan->elf, segments[i].address, segments[i].file_bytes);
    if (bytes != NULL) {
      memcpy((void *)(image->base + segments[i].address), bytes, segments[i].file_bytes);
    }
  }
  image_protect(image, image->lo, image->hi - image->lo, false);
  return true;
}

bool
image_load(struct image *image, const char *path, uint64_t base)
{
  struct ct_diag diag;
  memset(image, 0, sizeof(*image));
  if (ct_plan_create(path, &image->plan, &diag) != CT_OK) {
    return false;
  }
  image->base = ct_elf_type(image->plan->elf) == ET_EXEC ? 0 : base;
  if (image->plan->hooked != 0 && map(image)) {
    return true;
  }
  ct_plan_free(image->plan);
  image->plan = NULL;
  return false;
}

void
image_unload(struct image *image)
{
  if (image->plan == NULL) {
    return;
  }
  munmap((void *)image->lo, image->hi - image->lo);
  ct_plan_free(image->plan);
  image->plan = NULL;
}

size_t
image_paths(const char **paths, size_t max)
{
#define LIB "/usr/lib/x86_64-linux-gnu/"
  static const char *const known[] = {LIB "libc.so.6",
                                      LIB "libm.so.6",
                                      LIB "libcrypto.so.3",
                                      LIB "libstdc++.so.6",
                                      LIB "ld-linux-x86-64.so.2",
                                      LIB "libmvec.so.1",
                                      LIB "libz.so.1",
                                      LIB "liblzma.so.5",
                                      LIB "libzstd.so.1",
                                      LIB "libgcc_s.so.1",
                                      LIB "libjansson.so.4",
                                      LIB "libdw.so.1",
                                      LIB "libsqlite3.so.0",
                                      "/usr/bin/perl",
                                      "/usr/bin/git",
                                      "/usr/bin/python3.11",
                                      LIB "libgmp.so.10",
                                      LIB "libcrypt.so.1",
                                      LIB "libpcre2-8.so.0",
                                      "/usr/bin/bash"};
#undef LIB
  size_t count = 0;
  for (size_t i = 0; i < sizeof(known) / sizeof(known[0]) && count < max; i++) {
    if (access(known[i], R_OK) == 0) {
      paths[count++] = known[i];
    }
  }
  return count;
}
