/* SPDX-License-Identifier: MIT */
/*
 * The separate debug file and the mini debug info of a ct_elf.
 *
 * A debug file is looked for as DEBUG_ROOT/.build-id/xx/rest.debug, then by the name in .gnu_debuglink beside the
 * file, in .debug/ there, and in DEBUG_ROOT/folder. For a file in another process's root (base/rooted.h) all of these
 * but the first are in there, and so is a second DEBUG_ROOT/.build-id. Last comes what debuginfod's client has fetched
 * for this user (debuginfod.c). It is taken when it has the same build-id; only
 * when one of the two has none, by the checksum in .gnu_debuglink, which costs a pass over the whole file. Whatever is
 * missing, foreign or damaged is passed over silently: names are a convenience.
 */
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <lzma.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/rooted.h"
#include "target/target_internal.h"

enum {
  OTHER_ROOT = 4,                 /* of the candidates: by the build-id, in the root that the file is in */
  FETCHED = 5,                    /* ... and of debuginfod */
  MINIDEBUG_BYTES_MAX = 64 << 20, /* unpacked: a few MiB in practice */
};

struct debuglink {
  char name[256];
  uint32_t crc;
};

/* The name must be a plain one: the file is not trusted to lead us elsewhere. */
static bool
read_debuglink(const struct ct_image *image, struct debuglink *link)
{
  size_t size;
  const uint8_t *bytes = ct_image_section_bytes(image, ct_image_section(image, ".gnu_debuglink"), &size);
  if (bytes == NULL) {
    return false;
  }
  size_t length = strnlen((const char *)bytes, size);
  size_t crc_at = (length + 4) & ~(size_t)3;
  if (length == 0 || length >= sizeof(link->name) || size < 4 || crc_at > size - 4) {
    return false;
  }
  memcpy(link->name, bytes, length);
  link->name[length] = 0;
  memcpy(&link->crc, bytes + crc_at, sizeof(link->crc));
  return strchr(link->name, '/') == NULL && strcmp(link->name, ".") != 0 && strcmp(link->name, "..") != 0;
}

/* Whether the debug image was made from the main one. */
static bool
belongs(const struct ct_elf *elf, const struct ct_image *debug, const struct debuglink *link)
{
  uint8_t ours[CT_BUILD_ID_BYTES_MAX], theirs[CT_BUILD_ID_BYTES_MAX];
  size_t our_bytes = ct_image_build_id(&elf->main, ours);
  size_t their_bytes = ct_image_build_id(debug, theirs);

  if (our_bytes != 0 && their_bytes != 0) {
    return our_bytes == their_bytes && memcmp(ours, theirs, our_bytes) == 0;
  }
  return link != NULL && lzma_crc32(debug->bytes, debug->size, 0) == link->crc;
}

/* Returns true and keeps the file when it is the debug file. link: NULL when the build-id led here. */
static bool
try_path(struct ct_elf *elf, const char *path, const struct debuglink *link)
{
  int fd = ct_rooted_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) {
    return false;
  }
  struct ct_image image = {0};
  bool good = ct_image_map(&image, fd, path, NULL) == CT_OK && belongs(elf, &image, link);
  close(fd);
  /* A link to the file's own name would find the file itself, which has nothing to add. */
  if (good && image.size == elf->main.size && memcmp(image.bytes, elf->main.bytes, image.size) == 0) {
    good = false;
  }
  elf->debug_path = good ? strdup(path) : NULL;
  if (elf->debug_path == NULL) {
    ct_image_clear(&image);
    return false;
  }
  elf->debug = image;
  return true;
}

/* The places where a debug file may be, in the order in which they are tried: the first by the build-id, the others by
   the name in .gnu_debuglink. Empty where there is no such place. */
struct candidates {
  char paths[CT_DEBUG_CANDIDATES][2 * PATH_MAX + 300];
  struct debuglink link;
};

static void __attribute__((format(printf, 3, 4)))
set_candidate(struct candidates *candidates, int i, const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  int length = vsnprintf(candidates->paths[i], sizeof(candidates->paths[i]), fmt, ap);
  va_end(ap);
  if (length < 0 || (size_t)length >= sizeof(candidates->paths[i])) {
    candidates->paths[i][0] = 0;
  }
}

/* Where debuginfod's client keeps files: debuginfod_find_debuginfo(3). */
static void
set_fetched(const struct ct_elf *elf, struct candidates *candidates)
{
  const char *folder = getenv("DEBUGINFOD_CACHE_PATH"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  if (folder != NULL && folder[0] == '/') {
    set_candidate(candidates, FETCHED, "%s/%s/debuginfo", folder, elf->build_id);
  } else if (cache != NULL && cache[0] == '/') {
    set_candidate(candidates, FETCHED, "%s/debuginfod_client/%s/debuginfo", cache, elf->build_id);
  } else if (home != NULL && home[0] == '/') {
    set_candidate(candidates, FETCHED, "%s/.cache/debuginfod_client/%s/debuginfo", home, elf->build_id);
  }
}

static void
find_candidates(const struct ct_elf *elf, struct candidates *candidates)
{
  char real[PATH_MAX];

  for (int i = 0; i < CT_DEBUG_CANDIDATES; i++) {
    candidates->paths[i][0] = 0;
  }
  if (strlen(elf->build_id) > 2) {
    set_candidate(candidates, 0, "%s/.build-id/%.2s/%s.debug", elf->debug_root, elf->build_id, elf->build_id + 2);
  }
  if (strlen(elf->build_id) > 2) {
    set_fetched(elf, candidates);
  }
  size_t root = ct_rooted_prefix(elf->path); /* of another process: it has debug files of its own */
  if (root != 0 && strlen(elf->build_id) > 2) {
    set_candidate(candidates, OTHER_ROOT, "%.*s%s/.build-id/%.2s/%s.debug", (int)root, elf->path, elf->debug_root,
                  elf->build_id, elf->build_id + 2);
  }
  if (!read_debuglink(&elf->main, &candidates->link)) {
    return;
  }
  if (root != 0) {
    snprintf(real, sizeof(real), "%s", elf->path);
  } else if (realpath(elf->path, real) == NULL) {
    return;
  }
  char *folder = dirname(real);
  set_candidate(candidates, 1, "%s/%s", folder, candidates->link.name);
  set_candidate(candidates, 2, "%s/.debug/%s", folder, candidates->link.name);
  set_candidate(candidates, 3, "%.*s%s%s/%s", (int)root, real, elf->debug_root, folder + root, candidates->link.name);
}

int
ct_debugfile_find(struct ct_elf *elf)
{
  struct candidates candidates;
  bool found = false;

  find_candidates(elf, &candidates);
  for (int i = 0; i < CT_DEBUG_CANDIDATES && !found; i++) {
    found = candidates.paths[i][0] != 0 &&
            try_path(elf, candidates.paths[i], i == 0 || i == OTHER_ROOT || i == FETCHED ? NULL : &candidates.link);
  }
  return CT_OK;
}

void
ct_elf_debug_stamps(const struct ct_elf *elf, struct ct_file_stamp stamps[CT_DEBUG_CANDIDATES])
{
  struct candidates candidates;

  find_candidates(elf, &candidates);
  for (int i = 0; i < CT_DEBUG_CANDIDATES; i++) {
    struct stat file;
    stamps[i] = (struct ct_file_stamp){0};
    int fd = candidates.paths[i][0] != 0 ? ct_rooted_open(candidates.paths[i], O_PATH | O_CLOEXEC) : -1;
    if (fd >= 0 && fstat(fd, &file) == 0) {
      stamps[i] = (struct ct_file_stamp){(uint64_t)file.st_size,
                                         (int64_t)file.st_mtim.tv_sec * 1000000000 + file.st_mtim.tv_nsec};
    }
    if (fd >= 0) {
      close(fd);
    }
  }
}

/* Unpacks one xz stream. NULL when it is damaged, too large, or memory is exhausted. */
static uint8_t *
unpack_xz(const uint8_t *packed, size_t packed_bytes, size_t *bytes)
{
  lzma_stream stream = LZMA_STREAM_INIT;
  uint8_t *out = NULL;
  size_t size = 0;

  if (lzma_stream_decoder(&stream, MINIDEBUG_BYTES_MAX, 0) != LZMA_OK) {
    return NULL;
  }
  stream.next_in = packed;
  stream.avail_in = packed_bytes;
  lzma_ret status = LZMA_OK;
  while (status == LZMA_OK && size < MINIDEBUG_BYTES_MAX) {
    size_t larger = size == 0 ? 1 << 20 : 2 * size;
    uint8_t *grown = realloc(out, larger);
    if (grown == NULL) {
      break;
    }
    out = grown;
    stream.next_out = out + size;
    stream.avail_out = larger - size;
    size = larger;
    while (status == LZMA_OK && stream.avail_out != 0) {
      status = lzma_code(&stream, LZMA_FINISH);
    }
  }
  *bytes = size - stream.avail_out;
  lzma_end(&stream);
  if (status == LZMA_STREAM_END) {
    return out;
  }
  free(out);
  return NULL;
}

int
ct_minidebug_unpack(struct ct_elf *elf)
{
  size_t packed_bytes, bytes;
  const uint8_t *packed =
      ct_image_section_bytes(&elf->main, ct_image_section(&elf->main, ".gnu_debugdata"), &packed_bytes);
  if (packed == NULL) {
    return CT_OK;
  }
  uint8_t *unpacked = unpack_xz(packed, packed_bytes, &bytes);
  if (unpacked == NULL) {
    return CT_OK;
  }
  elf->mini.mapping = unpacked;
  elf->mini.bytes = unpacked;
  elf->mini.size = bytes;
  if (ct_image_parse(&elf->mini, elf->path, NULL) != CT_OK) {
    ct_image_clear(&elf->mini);
  }
  return CT_OK;
}
