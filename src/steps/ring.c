/* SPDX-License-Identifier: MIT */
/* A ring in a file that another program maps: contrail steps --ring. Layout: docs/format.md, "The ring of a stream". */
#include "base/error.h"

#include <contrail/steps.h>

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define WAIT_NS 1000000

/*
 *  0  head      bytes that have been read so far: the reader's
 *  8  tail      bytes that have been written so far: ours
 * 16  lost      0: nothing ever is
 * 24  capacity  of data
 * 32  data      byte N of the stream at N modulo capacity
 */
struct shared {
  _Atomic uint64_t head;
  _Atomic uint64_t tail;
  uint64_t lost;
  uint64_t capacity;
  uint8_t data[];
};
static_assert(sizeof(struct shared) == 32, "the data come after four words");

struct ring {
  struct shared *shared;
  uint64_t size, tail; /* ours, whatever is in the file */
  bool (*goes_on)(void *context);
  void *context;
};

/* Bytes that are free, at least `wanted`; 0: it does not go on. A head that cannot be leaves no room. */
static uint64_t
await_room(struct ring *ring, uint64_t wanted)
{
  const struct timespec wait = {0, WAIT_NS};
  for (;;) {
    uint64_t head = atomic_load_explicit(&ring->shared->head, memory_order_acquire); /* pairs with the reader's store */
    uint64_t used = ring->tail - head;
    uint64_t room = used <= ring->size ? ring->size - used : 0;
    if (room >= wanted) {
      return room;
    }
    if (ring->goes_on != NULL && !ring->goes_on(ring->context)) {
      return 0;
    }
    nanosleep(&wait, NULL);
  }
}

static ssize_t
ring_write(void *cookie, const char *bytes, size_t size)
{
  struct ring *ring = cookie;
  for (size_t done = 0; done < size;) {
    uint64_t room = await_room(ring, 1), at = ring->tail % ring->size;
    if (room == 0) {
      errno = EPIPE;
      return 0;
    }
    uint64_t part = size - done < room ? size - done : room;
    part = part < ring->size - at ? part : ring->size - at;
    memcpy(ring->shared->data + at, bytes + done, part);
    ring->tail += part;
    done += part;
    atomic_store_explicit(&ring->shared->tail, ring->tail, memory_order_release); /* pairs with the reader's load */
  }
  return (ssize_t)size;
}

static int
ring_close(void *cookie)
{
  struct ring *ring = cookie;
  await_room(ring, ring->size);
  munmap(ring->shared, sizeof(struct shared) + ring->size);
  free(ring);
  return 0;
}

static int
map_ring(const char *path, struct ring *ring, struct ct_diag *diag)
{
  int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) {
    return ct_fail(diag, ct_err_from_errno(errno), "cannot create %s: %s", path, strerror(errno));
  }
  size_t bytes = sizeof(struct shared) + ring->size;
  int failed = posix_fallocate(fd, 0, (off_t)bytes); /* a full disk is an error, and no SIGBUS */
  void *mapped = failed == 0 ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  failed = failed == 0 && mapped == MAP_FAILED ? errno : failed;
  close(fd);
  if (failed != 0) {
    unlink(path);
    return ct_fail(diag, ct_err_from_errno(failed), "cannot make a ring of %s: %s", path, strerror(failed));
  }
  ring->shared = mapped;
  ring->shared->capacity = ring->size;
  return 0;
}

int
ct_steps_ring_open(const char *path, uint64_t size, bool (*goes_on)(void *context), void *context, FILE **out,
                   struct ct_diag *diag)
{
  const cookie_io_functions_t functions = {.write = ring_write, .close = ring_close};
  struct ring *ring = calloc(1, sizeof(*ring));
  if (ring == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  *ring = (struct ring){.size = size, .goes_on = goes_on, .context = context};
  int code = size < CT_STEPS_RING_MIN || size > INT64_MAX / 2
                 ? ct_fail(diag, CT_EINVAL, "a ring has 4096 bytes or more")
                 : map_ring(path, ring, diag);
  FILE *file = code == 0 ? fopencookie(ring, "w", functions) : NULL;
  if (code == 0 && file == NULL) {
    munmap(ring->shared, sizeof(struct shared) + size);
    unlink(path);
    code = ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  if (code != 0) {
    free(ring);
    return code;
  }
  *out = file;
  return 0;
}
