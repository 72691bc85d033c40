/* SPDX-License-Identifier: MIT */
/*
 * See out.h. The writer owns the chunk that it fills. A full one belongs to the pool until it has been packed and
 * written: states go FREE, FULL, PACKED and FREE again, under the lock; bytes are only touched by who has the slot.
 * Chunks are written by the writer's thread, in order, when it needs a free slot; so there is no order to keep else.
 */
#include "export/out.h"

#include "base/json.h"
#include "export/pack.h"

#include <contrail/text.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { MAX_WORKERS = 4, SLOTS = 2 * MAX_WORKERS };
enum state { FREE, FULL, PACKING, PACKED };

struct slot {
  enum state state;
  uint8_t *raw;
  size_t raw_bytes;
  unsigned effort; /* for what is in it; each slot learns of its own chunks, so it is the same in each run */
  struct ct_packed packed;
};

struct ct_sink_pool {
  char *path; /* NULL: the caller's descriptor */
  int fd;
  bool is_linked; /* the file has its name already, or is none of ours */
  bool is_made;   /* the file is ours, under its name: it goes on failure */
  enum ct_out_packing packing;
  struct ct_packer packer; /* the writer's own, when there are no workers */
  struct slot slots[SLOTS];
  unsigned slot_count, fill, oldest; /* the one that is being filled; the first that is not written */
  unsigned worker_count;
  pthread_t workers[MAX_WORKERS];
  _Atomic int failed; /* errno of the first failure to write or pack */
  uint64_t bytes;
  int64_t spared;     /* packets: see pack.h */
  uint64_t raw_bytes; /* gzip: of the whole */
  uint32_t crc;
  /* Under the lock: the states, and */
  pthread_mutex_t lock;
  pthread_cond_t is_full, is_packed;
  bool is_over;
};

/* ---- packing ---- */

static int
pack(const struct ct_sink_pool *pool, struct ct_packer *packer, struct slot *slot)
{
  return ct_pack(packer, pool->packing, slot->effort, slot->raw, slot->raw_bytes, &slot->packed);
}

static int
failure(const struct ct_sink_pool *pool)
{
  return atomic_load_explicit(&pool->failed, memory_order_relaxed);
}

static void
fail(struct ct_sink_pool *pool, int error)
{
  int none = 0; /* nothing else is read because of it: workers may set it, an early answer is all */
  atomic_compare_exchange_strong_explicit(&pool->failed, &none, error, memory_order_relaxed, memory_order_relaxed);
}

static struct slot *
take_full(struct ct_sink_pool *pool)
{
  for (unsigned i = 0; i < pool->slot_count; i++) {
    struct slot *slot = &pool->slots[(pool->oldest + i) % pool->slot_count];
    if (slot->state == FULL) {
      slot->state = PACKING;
      return slot;
    }
  }
  return NULL;
}

static void *
work(void *arg)
{
  struct ct_sink_pool *pool = arg;
  struct ct_packer packer = {0};
  pthread_mutex_lock(&pool->lock);
  for (;;) {
    struct slot *slot = take_full(pool);
    if (slot != NULL) {
      pthread_mutex_unlock(&pool->lock);
      int code = pack(pool, &packer, slot);
      pthread_mutex_lock(&pool->lock);
      if (code != 0) {
        fail(pool, code);
      }
      slot->state = PACKED;
      pthread_cond_signal(&pool->is_packed);
    } else if (pool->is_over) {
      break;
    } else {
      pthread_cond_wait(&pool->is_full, &pool->lock);
    }
  }
  pthread_mutex_unlock(&pool->lock);
  ct_packer_destroy(&packer);
  return NULL;
}

/* ---- writing ---- */

static void
write_all(struct ct_sink_pool *pool, const void *data, size_t bytes)
{
  const uint8_t *at = data;
  while (failure(pool) == 0 && bytes != 0) {
    ssize_t n = write(pool->fd, at, bytes);
    if (n < 0 && errno != EINTR) {
      fail(pool, errno);
    } else if (n > 0) {
      at += n;
      bytes -= (size_t)n;
      pool->bytes += (uint64_t)n;
    }
  }
}

/* The oldest chunk, when it has been packed. */
static void
write_oldest(struct ct_sink_pool *pool)
{
  struct slot *slot = &pool->slots[pool->oldest];
  pthread_mutex_lock(&pool->lock);
  while (slot->state != PACKED) {
    pthread_cond_wait(&pool->is_packed, &pool->lock);
  }
  pthread_mutex_unlock(&pool->lock);
  if (pool->packing == CT_OUT_GZIP) {
    pool->crc = (uint32_t)crc32_combine(pool->crc, slot->packed.crc, (z_off_t)slot->raw_bytes);
    pool->raw_bytes += slot->raw_bytes;
  }
  write_all(pool, pool->packing == CT_OUT_PLAIN ? slot->raw : slot->packed.data,
            pool->packing == CT_OUT_PLAIN ? slot->raw_bytes : slot->packed.bytes);
  if (pool->packing == CT_OUT_PACKETS) {
    slot->effort = ct_pack_effort_after(slot->effort, &slot->packed, &pool->spared);
  }
  slot->state = FREE; /* nobody looks at it until it is full */
  pool->oldest = (pool->oldest + 1) % pool->slot_count;
}

void
ct_out_ship(struct ct_sink *out)
{
  struct ct_sink_pool *pool = out->pool;
  struct slot *slot = &pool->slots[pool->fill];
  slot->raw_bytes = (size_t)(out->at - out->chunk);
  if (slot->raw_bytes == 0) {
    return;
  }
  if (pool->worker_count == 0) {
    int code = failure(pool) == 0 ? pack(pool, &pool->packer, slot) : 0;
    if (code != 0) {
      fail(pool, code);
    }
    slot->state = PACKED;
  } else {
    pthread_mutex_lock(&pool->lock);
    slot->state = FULL;
    pthread_cond_signal(&pool->is_full);
    pthread_mutex_unlock(&pool->lock);
  }
  pool->fill = (pool->fill + 1) % pool->slot_count;
  if (pool->fill == pool->oldest) {
    write_oldest(pool);
  }
  out->chunk = out->at = pool->slots[pool->fill].raw;
  out->end = out->chunk + CT_OUT_CHUNK_BYTES;
}

void
ct_out_put_across(struct ct_sink *out, const void *data, size_t bytes)
{
  const uint8_t *from = data;
  while (bytes != 0) {
    if (out->at == out->end) {
      ct_out_ship(out);
    }
    size_t n = (size_t)(out->end - out->at) < bytes ? (size_t)(out->end - out->at) : bytes;
    memcpy(out->at, from, n);
    out->at += n;
    from += n;
    bytes -= n;
  }
}

bool
ct_out_failed(const struct ct_sink *out)
{
  return failure(out->pool) != 0;
}

/* ---- temporary files ---- */

int
ct_out_temporary(int *fd, struct ct_diag *diag)
{
  const char *folder = getenv("TMPDIR");
  folder = folder != NULL && folder[0] == '/' ? folder : "/var/tmp";
  int made = open(folder, O_RDWR | O_TMPFILE | O_CLOEXEC | O_EXCL, 0600);
  if (made < 0) {
    return ct_fail(diag, ct_err_from_errno(errno), "cannot make a temporary file in %s: %s", folder, strerror(errno));
  }
  *fd = made;
  return CT_OK;
}

int
ct_out_put_file(struct ct_sink *out, int fd)
{
  uint8_t buffer[1 << 14];
  off_t at = 0;
  for (;;) {
    ssize_t bytes = pread(fd, buffer, sizeof(buffer), at);
    if (bytes < 0 && errno == EINTR) {
      continue;
    }
    if (bytes <= 0) {
      return bytes == 0 ? CT_OK : CT_EIO;
    }
    ct_out_put(out, buffer, (size_t)bytes);
    at += bytes;
  }
}

/* ---- begin and end ---- */

/*
 * A file without a name, which gets one when it is whole; where the file system has none such, under its name at once.
 * Something that is there and no file (a terminal, a FIFO, /dev/null) is written to.
 */
static int
create(struct ct_sink_pool *pool, const char *path, struct ct_diag *diag)
{
  char folder[PATH_MAX];
  struct stat st;
  const char *slash = strrchr(path, '/');
  if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) {
    pool->fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    pool->is_linked = true;
  } else if (lstat(path, &st) == 0) {
    return ct_fail(diag, CT_EEXIST, "%s is there already: nothing is written over", path);
  } else {
    snprintf(folder, sizeof(folder), "%.*s",
             slash == NULL   ? 1
             : slash == path ? 1
                             : (int)(slash - path),
             slash == NULL ? "." : path);
    pool->fd = open(folder, O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
    if (pool->fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
      pool->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      pool->is_linked = pool->is_made = pool->fd >= 0;
    }
  }
  return pool->fd >= 0 ? CT_OK : ct_fail(diag, ct_err_from_errno(errno), "cannot write %s: %s", path, strerror(errno));
}

enum ct_out_packing
ct_out_packing_of(const char *path, enum ct_out_packing packing)
{
  size_t length = path != NULL ? strlen(path) : 0;
  if (length > 3 && strcmp(path + length - 3, ".gz") == 0) {
    return CT_OUT_GZIP;
  }
  return length > 4 && strcmp(path + length - 4, ".zst") == 0 ? CT_OUT_ZSTD : packing;
}

static int
make_slots(struct ct_sink_pool *pool)
{
  bool packs = pool->packing != CT_OUT_PLAIN;
  pool->slot_count = packs ? SLOTS : 2;
  for (unsigned i = 0; i < pool->slot_count; i++) {
    pool->slots[i].raw = malloc(CT_OUT_CHUNK_BYTES);
    pool->slots[i].effort = CT_PACK_EFFORTS - 2;
    pool->slots[i].packed.data = packs ? malloc(ct_packed_most()) : NULL;
    if (pool->slots[i].raw == NULL || (packs && pool->slots[i].packed.data == NULL)) {
      return CT_ENOMEM;
    }
  }
  return CT_OK;
}

static void
start_workers(struct ct_sink_pool *pool)
{
  cpu_set_t processors;
  int count = sched_getaffinity(0, sizeof(processors), &processors) == 0 ? CPU_COUNT(&processors) : 1;
  unsigned most = count > MAX_WORKERS ? MAX_WORKERS : (unsigned)count;
  while (pool->packing != CT_OUT_PLAIN && pool->worker_count < most &&
         pthread_create(&pool->workers[pool->worker_count], NULL, work, pool) == 0) {
    pool->worker_count++; /* none: the writer packs by itself */
  }
}

static void
free_pool(struct ct_sink_pool *pool)
{
  for (unsigned i = 0; i < pool->slot_count; i++) {
    free(pool->slots[i].raw);
    free(pool->slots[i].packed.data);
  }
  pthread_cond_destroy(&pool->is_full);
  pthread_cond_destroy(&pool->is_packed);
  pthread_mutex_destroy(&pool->lock);
  ct_packer_destroy(&pool->packer);
  free(pool->path);
  free(pool);
}

int
ct_out_open(struct ct_sink *out, const char *path, int fd, enum ct_out_packing packing, struct ct_diag *diag)
{
  static const char gzip_head[10] = "\37\213\10\0\0\0\0\0\0\377"; /* deflate, no name, no time, no system */
  struct ct_sink_pool *pool = calloc(1, sizeof(*pool));
  if (pool == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory to write an export");
  }
  pool->fd = fd;
  pool->path = path != NULL ? strdup(path) : NULL;
  pool->packing = ct_out_packing_of(path, packing);
  pthread_mutex_init(&pool->lock, NULL);
  pthread_cond_init(&pool->is_full, NULL);
  pthread_cond_init(&pool->is_packed, NULL);
  int code = make_slots(pool) == CT_OK && (path == NULL || pool->path != NULL)
                 ? CT_OK
                 : ct_fail(diag, CT_ENOMEM, "out of memory to write an export");
  code = code == CT_OK && path != NULL ? create(pool, path, diag) : code;
  if (code != CT_OK) {
    free_pool(pool);
    return code;
  }
  start_workers(pool);
  if (pool->packing == CT_OUT_GZIP) {
    write_all(pool, gzip_head, sizeof(gzip_head));
  }
  uint8_t *chunk = pool->slots[0].raw;
  *out = (struct ct_sink){.at = chunk, .end = chunk + CT_OUT_CHUNK_BYTES, .chunk = chunk, .pool = pool};
  return CT_OK;
}

static void
put_gzip_end(struct ct_sink_pool *pool)
{
  /* An empty last block, then the checksum and the size of all. */
  uint8_t end[10] = {3, 0};
  for (int i = 0; i < 4; i++) {
    end[2 + i] = (uint8_t)(pool->crc >> (8 * i));
    end[6 + i] = (uint8_t)(pool->raw_bytes >> (8 * i));
  }
  write_all(pool, end, sizeof(end));
}

static void
link_file(struct ct_sink_pool *pool)
{
  char name[40];
  snprintf(name, sizeof(name), "/proc/self/fd/%d", pool->fd);
  if (linkat(AT_FDCWD, name, AT_FDCWD, pool->path, AT_SYMLINK_FOLLOW) != 0) {
    fail(pool, errno);
  }
}

int
ct_out_close(struct ct_sink *out, int code, uint64_t *bytes, struct ct_diag *diag)
{
  struct ct_sink_pool *pool = out->pool;
  ct_out_ship(out);
  while (pool->oldest != pool->fill) {
    write_oldest(pool);
  }
  pthread_mutex_lock(&pool->lock);
  pool->is_over = true;
  pthread_cond_broadcast(&pool->is_full);
  pthread_mutex_unlock(&pool->lock);
  for (unsigned i = 0; i < pool->worker_count; i++) {
    pthread_join(pool->workers[i], NULL);
  }
  if (pool->packing == CT_OUT_GZIP) {
    put_gzip_end(pool);
  }
  if (code == CT_OK && failure(pool) == 0 && pool->path != NULL && !pool->is_linked) {
    link_file(pool);
  }
  if (pool->path != NULL && close(pool->fd) != 0) {
    fail(pool, errno);
  }
  int failed = failure(pool);
  if (pool->is_made && (code != CT_OK || failed != 0)) {
    unlink(pool->path);
  }
  if (code == CT_OK && failed != 0) {
    code = ct_fail(diag, ct_err_from_errno(failed), "cannot write %s: %s",
                   pool->path != NULL ? pool->path : "the export", strerror(failed));
  }
  if (bytes != NULL) {
    *bytes = pool->bytes;
  }
  free_pool(pool);
  errno = failed;
  return code;
}

/* ---- texts ---- */

void
ct_out_json(struct ct_sink *out, const char *text)
{
  char *quoted = ct_json_quoted(text);
  ct_out_text(out, quoted != NULL ? quoted : "\"\"");
  fail(out->pool, quoted != NULL ? 0 : ENOMEM);
  free(quoted);
}

char *
ct_csv_quoted(const char *text)
{
  char *clean = ct_utf8_copy(text);
  if (clean == NULL || (strpbrk(clean, ",\"\r\n") == NULL && clean[0] != '\0')) {
    return clean;
  }
  char *quoted = malloc(2 * strlen(clean) + 3), *to = quoted;
  if (quoted != NULL) {
    *to++ = '"';
    for (const char *p = clean; *p != '\0'; p++) {
      *to = '"';
      to += *p == '"';
      *to++ = *p;
    }
    *to++ = '"';
    *to = '\0';
  }
  free(clean);
  return quoted;
}

void
ct_out_xml(struct ct_sink *out, const char *text)
{
  char *clean = ct_utf8_copy(text);
  if (clean == NULL) {
    fail(out->pool, ENOMEM);
    return;
  }
  for (const char *p = clean; *p != '\0'; p++) {
    const char *entity = *p == '&'    ? "&amp;"
                         : *p == '<'  ? "&lt;"
                         : *p == '>'  ? "&gt;"
                         : *p == '"'  ? "&quot;"
                         : *p == '\'' ? "&#39;"
                                      : NULL;
    bool is_control = (unsigned char)*p < 0x20 || *p == 0x7f;
    /* U+FFFE and U+FFFF are no characters of XML. */
    bool is_none = (uint8_t)p[0] == 0xEF && (uint8_t)p[1] == 0xBF && (uint8_t)p[2] >= 0xBE;
    if (entity != NULL) {
      ct_out_text(out, entity);
    } else if (is_none) {
      ct_out_byte(out, '?');
      p += 2;
    } else {
      ct_out_byte(out, is_control ? '?' : (uint8_t)*p);
    }
  }
  free(clean);
}

void
ct_out_line(struct ct_sink *out, const char *text, char c, char instead)
{
  char *clean = ct_utf8_copy(text);
  if (clean == NULL) {
    fail(out->pool, ENOMEM);
    return;
  }
  for (char *p = clean; *p != '\0'; p++) {
    bool is_control = (unsigned char)*p < 0x20 || *p == 0x7f;
    *p = is_control ? '?' : c != '\0' && *p == c ? instead : *p;
  }
  ct_out_text(out, clean);
  free(clean);
}
