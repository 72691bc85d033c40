/* SPDX-License-Identifier: MIT */
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

void *
memory_map(uint64_t address, size_t bytes, int protection)
{
  void *at = mmap((void *)address, bytes, protection,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (address != 0 ? MAP_FIXED_NOREPLACE : 0), -1, 0);
  return at != MAP_FAILED && (address == 0 || at == (void *)address) ? at : NULL;
}

int
memory_set_up(struct memory *memory, uint64_t address)
{
  memory->arena.bytes = memory_map(address, ARENA_BYTES, PROT_READ | PROT_WRITE);
  memory->before = malloc(ARENA_BYTES);
  memory->first = malloc(ARENA_BYTES);
  return memory->arena.bytes != NULL && memory->before != NULL && memory->first != NULL ? 0 : -1;
}

void
memory_tear_down(struct memory *memory)
{
  if (memory->arena.bytes != NULL) {
    munmap(memory->arena.bytes, ARENA_BYTES);
  }
  free(memory->before);
  free(memory->first);
}

void
memory_begin(struct memory *memory, const struct image *image, const struct piece *piece, const struct machine *machine,
             struct rng *rng)
{
  struct touch touches[KEPT_MAX];
  size_t count = image == NULL ? 0 : piece_touches(piece, machine, touches, KEPT_MAX);
  memory->image = image;
  memory->kept_count = 0;
  rng_fill(rng, memory->before, ARENA_BYTES);
  for (size_t i = 0; i < count; i++) {
    uint64_t from = touches[i].address - 64, to = touches[i].address + KEPT_BYTES - 64;
    from = from > image->lo ? from : image->lo;
    to = to < image->hi ? to : image->hi;
    if (touches[i].address < image->lo || touches[i].address >= image->hi || !touches[i].written) {
      continue;
    }
    image_protect(image, from, to - from, true);
    struct kept *kept = &memory->kept[memory->kept_count++];
    kept->at = (uint8_t *)from;
    kept->bytes = to - from;
    memcpy(kept->before, kept->at, kept->bytes);
  }
  memory_again(memory);
}

void
memory_again(struct memory *memory)
{
  memcpy(memory->arena.bytes, memory->before, ARENA_BYTES);
  for (size_t i = memory->kept_count; i-- > 0;) {
    memcpy(memory->kept[i].at, memory->kept[i].before, memory->kept[i].bytes);
  }
}

void
memory_first_done(struct memory *memory)
{
  memcpy(memory->first, memory->arena.bytes, ARENA_BYTES);
  for (size_t i = 0; i < memory->kept_count; i++) {
    memcpy(memory->kept[i].first, memory->kept[i].at, memory->kept[i].bytes);
  }
  memory_again(memory);
}

bool
memory_image_differs(const struct memory *memory, char *text, size_t size)
{
  for (size_t k = 0; k < memory->kept_count; k++) {
    for (size_t i = 0; i < memory->kept[k].bytes; i++) {
      if (memory->kept[k].at[i] != memory->kept[k].first[i]) {
        snprintf(text, size, "memory at %p is %02x, not %02x", (void *)(memory->kept[k].at + i), memory->kept[k].at[i],
                 memory->kept[k].first[i]);
        return true;
      }
    }
  }
  return false;
}

void
memory_end(struct memory *memory)
{
  memory_again(memory);
  for (size_t i = 0; i < memory->kept_count; i++) {
    image_protect(memory->image, (uint64_t)memory->kept[i].at, memory->kept[i].bytes, false);
  }
}
