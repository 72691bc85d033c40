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
  snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)pid);
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

/* The first page in [address, end) that is a copy of the process's own, or that is none; end when there is none. */
static uint64_t
find_page(pid_t pid, uint64_t address, uint64_t end, bool own)
{
  char path[64];
  uint64_t entries[512];
  snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  uint64_t found = end;
  for (uint64_t at = address; fd >= 0 && at < end && found == end;) {
    size_t want = (end - at + PAGE_BYTES - 1) / PAGE_BYTES;
    want = want < 512 ? want : 512;
    ssize_t got = pread(fd, entries, want * sizeof(entries[0]), (off_t)(at / PAGE_BYTES * sizeof(entries[0])));
    if (got < (ssize_t)sizeof(entries[0])) {
      break;
    }
    for (size_t i = 0; i < (size_t)got / sizeof(entries[0]) && found == end; i++, at += PAGE_BYTES) {
      bool is_own = (entries[i] & (PAGE_PRESENT | PAGE_SWAPPED)) != 0 && (entries[i] & PAGE_OF_FILE) == 0;
      found = is_own == own ? at : end;
    }
  }
  if (fd >= 0) {
    close(fd);
  }
  return found;
}

uint64_t
ct_process_next_own_page(pid_t pid, uint64_t address, uint64_t end)
{
  return find_page(pid, address, end, true);
}

uint64_t
ct_process_end_of_own_pages(pid_t pid, uint64_t address, uint64_t end)
{
  return find_page(pid, address, end, false);
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
  snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
  return kilobytes_of(path, "Private_Dirty");
}

uint64_t
ct_process_peak_bytes(pid_t pid)
{
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
  return kilobytes_of(path, "VmHWM");
}
