/* SPDX-License-Identifier: MIT */
/* What /proc says of a process's memory; see process.h. */
#include "process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PAGE_BYTES 4096u

/* Bits of an entry of /proc/PID/pagemap; Documentation/admin-guide/mm/pagemap.rst. */
#define PAGE_PRESENT (1ull << 63)
#define PAGE_SWAPPED (1ull << 62)
#define PAGE_OF_FILE (1ull << 61)

bool
ct_process_pages_are_files(pid_t pid, uint64_t address, uint64_t bytes)
{
  char path[64];
  uint64_t entries[512];
  ct_process_path(pid, "pagemap", path, sizeof(path));
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return false;
  }
  uint64_t page = address / PAGE_BYTES, end = (address + bytes + PAGE_BYTES - 1) / PAGE_BYTES;
  bool good = true;
  while (page < end && good) {
    size_t count = end - page < 512 ? (size_t)(end - page) : 512;
    ssize_t got = pread(fd, entries, count * sizeof(entries[0]), (off_t)(page * sizeof(entries[0])));
    if (got < (ssize_t)sizeof(entries[0])) {
      good = false;
      break;
    }
    count = (size_t)got / sizeof(entries[0]);
    for (size_t i = 0; i < count; i++) {
      good &= (entries[i] & (PAGE_PRESENT | PAGE_SWAPPED)) == 0 || (entries[i] & PAGE_OF_FILE) != 0;
    }
    page += count;
  }
  close(fd);
  return good;
}

void
ct_pagemap_open(struct ct_pagemap *map, pid_t pid)
{
  char path[64];
  ct_process_path(pid, "pagemap", path, sizeof(path));
  map->fd = open(path, O_RDONLY | O_CLOEXEC);
  map->first = map->count = 0;
}

void
ct_pagemap_close(struct ct_pagemap *map)
{
  if (map->fd >= 0) {
    close(map->fd);
  }
  map->fd = -1;
}

static bool
read_entries(struct ct_pagemap *map, uint64_t page)
{
  ssize_t got = pread(map->fd, map->entries, sizeof(map->entries), (off_t)(page * sizeof(map->entries[0])));
  map->first = page;
  map->count = got > 0 ? (uint64_t)got / sizeof(map->entries[0]) : 0;
  return map->count != 0;
}

uint64_t
ct_pagemap_find(struct ct_pagemap *map, uint64_t address, uint64_t end, bool own)
{
  uint64_t last = (end + PAGE_BYTES - 1) / PAGE_BYTES;
  for (uint64_t page = address / PAGE_BYTES; page < last; page++) {
    if (page - map->first >= map->count && !read_entries(map, page)) {
      break;
    }
    uint64_t entry = map->entries[page - map->first];
    bool is_own = (entry & (PAGE_PRESENT | PAGE_SWAPPED)) != 0 && (entry & PAGE_OF_FILE) == 0;
    if (is_own == own) {
      return page * PAGE_BYTES;
    }
  }
  return end;
}

/* A line "KEY:  123 kB" of a file in /proc, in bytes. */
static uint64_t
kilobytes_of(const char *path, const char *key)
{
  char line[256];
  uint64_t kilobytes = 0;
  size_t length = strlen(key);
  FILE *file = fopen(path, "re");
  if (file == NULL) {
    return 0;
  }
  while (fgets(line, sizeof(line), file) != NULL) {
    if (strncmp(line, key, length) == 0 && line[length] == ':' &&
        sscanf(line + length + 1, "%" SCNu64, &kilobytes) == 1) {
      break;
    }
  }
  fclose(file);
  return kilobytes * 1024;
}

uint64_t
ct_process_private_bytes(pid_t pid)
{
  char path[64];
  ct_process_path(pid, "smaps_rollup", path, sizeof(path));
  return kilobytes_of(path, "Private_Dirty");
}

uint64_t
ct_process_peak_bytes(pid_t pid)
{
  char path[64];
  ct_process_path(pid, "status", path, sizeof(path));
  return kilobytes_of(path, "VmHWM");
}
