/* SPDX-License-Identifier: MIT */
/*
 * Children that come into the agent in the image of a process that is recorded: what their sessions begin with. A
 * forked one has the hooks of the moment of its fork, which may have been changed since; and its parent may be gone.
 */
#include "record/session_internal.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define ORPHANS_NS   1000000000ull /* how long children of a process that is gone may take to their first hook */
#define PAST_MAX     64            /* changes within that time that are remembered */
#define START_ERR_NS 50000000ull   /* how exactly the time is known at which a process began */

/* ---- births ---- */

void
ct_birth_free(struct ct_birth *birth)
{
  if (birth != NULL) {
    ct_modules_free(&birth->modules);
    ct_agent_place_free(&birth->place);
    free(birth);
  }
}

static int
copy_place(const struct ct_agent_place *place, struct ct_agent_place *copy)
{
  *copy = *place;
  copy->stub_pages = malloc(place->stub_page_count * sizeof(*place->stub_pages) + 1);
  copy->stubs = malloc(place->stub_count * sizeof(*place->stubs) + 1);
  if (copy->stub_pages == NULL || copy->stubs == NULL) {
    free(copy->stub_pages);
    free(copy->stubs);
    memset(copy, 0, sizeof(*copy));
    return CT_ENOMEM;
  }
  if (place->stub_page_count != 0) {
    memcpy(copy->stub_pages, place->stub_pages, place->stub_page_count * sizeof(*place->stub_pages));
  }
  if (place->stub_count != 0) {
    memcpy(copy->stubs, place->stubs, place->stub_count * sizeof(*place->stubs));
  }
  return 0;
}

/* When the process began by CLOCK_MONOTONIC, at the earliest. The kernel tells it in ticks since the machine started.
 */
static uint64_t
began_ns(pid_t pid)
{
  uint64_t began = ct_process_start_time(pid) * (1000000000u / (uint64_t)sysconf(_SC_CLK_TCK));
  uint64_t since = ct_clock_ns(CLOCK_BOOTTIME) - ct_clock_ns(CLOCK_MONOTONIC) + START_ERR_NS;
  return began > since ? began - since : 0;
}

/* Of those who come. */
struct parent {
  pid_t pid;
  struct ct_image *image;
  const struct ct_modules *modules;
  uint32_t generation;
  uint64_t hooks_version;
  const struct ct_past *past;
};

/* What a forked child has, by the version that it tells. CT_ENOENT: that is too long ago. */
static int
inherit(const struct parent *parent, uint64_t version, struct ct_birth *birth)
{
  const struct ct_past *past = parent->past;
  bool is_now = version == parent->hooks_version;
  while (!is_now && past != NULL && past->hooks_version != version) {
    past = past->earlier;
  }
  if (!is_now && past == NULL) {
    return CT_ENOENT;
  }
  birth->generation = is_now ? parent->generation : past->generation;
  birth->hooks_version = version;
  int code = ct_modules_clone(is_now ? parent->modules : &past->modules, &birth->modules);
  return code != 0 ? code : copy_place(is_now ? &parent->image->place : &past->place, &birth->place);
}

static int
make_birth(const struct ct_visitor *visitor, uint64_t page, const struct parent *parent, struct ct_birth **out)
{
  struct ct_birth *birth = calloc(1, sizeof(*birth));
  if (birth == NULL) {
    return CT_ENOMEM;
  }
  birth->kind = (enum ct_visit_kind)visitor->kind;
  birth->pid = (pid_t)visitor->pid;
  birth->tid = (pid_t)visitor->tid;
  birth->parent = parent->pid;
  birth->visitor = page;
  birth->path = visitor->path;
  birth->since_ns = began_ns(birth->pid);
  *out = birth;
  return birth->kind == CT_VISIT_FORK ? inherit(parent, visitor->hooks_version, birth) : 0;
}

static void
answer(struct ct_visitor *visitor, enum ct_visitor_state state)
{
  uint32_t pending = CT_VISIT_PENDING;
  /* release: pairs with the agent's acquire */
  __atomic_compare_exchange_n(&visitor->state, &pending, state, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
  session_wake(&visitor->state);
}

/* Somebody has come into the agent in this image who is not its process. */
static void
receive(struct ct_family *family, const struct parent *parent, uint32_t index)
{
  struct ct_image *image = parent->image;
  struct ct_visitor *visitor =
      (struct ct_visitor *)((uint8_t *)image->ring + image->ring->visitors_offset + (size_t)index * CT_VISITOR_BYTES);
  struct ct_birth *birth = NULL;
  if (__atomic_load_n(&visitor->state, __ATOMIC_ACQUIRE) != CT_VISIT_PENDING) {
    return;
  }
  uint64_t page = image->place.ring + image->ring->visitors_offset + (uint64_t)index * CT_VISITOR_BYTES;
  int code = make_birth(visitor, page, parent, &birth);
  if (code == 0) {
    family_count_live(family, 1);
    code = family_add_session(family, birth);
    if (code != 0) {
      family_count_live(family, -1);
    }
  } else if (code == CT_ENOENT) {
    family_list(family, birth, NULL,
                "what is traced was changed after it had been forked, and long before its first hook");
  }
  if (code != 0) {
    ct_birth_free(birth);
    answer(visitor, CT_VISIT_REFUSED);
  }
}

/* Pages of visitors that were killed there are free again. */
static void
free_pages(struct ct_image *image)
{
  for (uint32_t i = 0; i < CT_VISITOR_COUNT; i++) {
    struct ct_visitor *visitor =
        (struct ct_visitor *)((uint8_t *)image->ring + image->ring->visitors_offset + (size_t)i * CT_VISITOR_BYTES);
    uint64_t owner = __atomic_load_n(&visitor->owner, __ATOMIC_ACQUIRE);
    if (owner != 0 && ct_process_state((pid_t)(owner >> 32)) == 0) {
      __atomic_compare_exchange_n(&visitor->owner, &owner, 0, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
    }
  }
}

static void
serve(struct ct_family *family, const struct parent *parent)
{
  /* acquire: pairs with the agent's release of the bit, behind the visit */
  uint64_t bits = __atomic_exchange_n(&parent->image->ring->visit_map, 0, __ATOMIC_ACQUIRE);
  if (bits == 0) {
    return;
  }
  for (; bits != 0; bits &= bits - 1) {
    receive(family, parent, (uint32_t)__builtin_ctzll(bits));
  }
  free_pages(parent->image);
}

void
session_serve_visitors(struct ct_session *session)
{
  struct parent parent = {session->process.pid, &session->image,        &session->modules,
                          session->generation,  session->hooks_version, session->past};
  if (session->family != NULL) {
    serve(session->family, &parent);
  }
}

/* ---- what was before a change ---- */

static void
free_past(struct ct_past *past)
{
  while (past != NULL) {
    struct ct_past *earlier = past->earlier;
    ct_modules_free(&past->modules);
    ct_agent_place_free(&past->place);
    free(past);
    past = earlier;
  }
}

void
session_forget(struct ct_session *session)
{
  free_past(session->past);
  session->past = NULL;
}

/* Those from which nobody comes any more. */
void
session_forget_the_old(struct ct_session *session)
{
  uint64_t now = ct_now_ns();
  struct ct_past **link = &session->past;
  for (size_t n = 0; *link != NULL && n < PAST_MAX && (*link)->until_ns > now; n++) {
    link = &(*link)->earlier;
  }
  free_past(*link);
  *link = NULL;
}

int
session_remember(struct ct_session *session)
{
  session_forget_the_old(session);
  struct ct_past *past = calloc(1, sizeof(*past));
  if (past == NULL) {
    return CT_ENOMEM;
  }
  past->modules.plans = session->modules.plans;
  past->hooks_version = session->hooks_version;
  past->generation = session->generation;
  past->until_ns = UINT64_MAX;
  int code = ct_modules_clone(&session->modules, &past->modules);
  if (code == 0) {
    code = copy_place(&session->image.place, &past->place);
  }
  if (code != 0) {
    free_past(past);
    return code;
  }
  past->earlier = session->past;
  session->past = past;
  return 0;
}

void
session_changes(struct ct_session *session)
{
  if (session->past != NULL) {
    session->past->until_ns = ct_now_ns() + ORPHANS_NS;
  }
}

/* ---- children that come late ---- */

void
session_keep_for_orphans(struct ct_session *session)
{
  struct ct_orphanage *kept = &session->orphanage;
  struct ct_ring_header *ring = session->image.ring;
  if (session->family == NULL || __atomic_load_n(&ring->forks, __ATOMIC_RELAXED) == 0) {
    return;
  }
  session_serve_orphans(session, true); /* of the image before */
  if (ct_modules_clone(&session->modules, &kept->modules) != 0) {
    ct_modules_free(&kept->modules);
    return;
  }
  kept->modules.plans = session->modules.plans;
  kept->image = session->image;
  memset(&session->image, 0, sizeof(session->image));
  kept->parent = session->process.pid;
  kept->generation = session->generation;
  kept->hooks_version = session->hooks_version;
  kept->past = session->past;
  session->past = NULL;
  kept->until_ns = ct_now_ns() + ORPHANS_NS;
  pthread_mutex_lock(&session->guard);
  session->awaits_orphans = true;
  pthread_mutex_unlock(&session->guard);
  /* The events have been read; what children need is the head. */
  madvise((uint8_t *)ring + ring->segments_offset, ring->total_bytes - ring->segments_offset, MADV_REMOVE);
}

void
session_serve_orphans(struct ct_session *session, bool now)
{
  struct ct_orphanage *kept = &session->orphanage;
  if (kept->image.ring == NULL) {
    return;
  }
  struct parent parent = {kept->parent,     &kept->image,        &kept->modules,
                          kept->generation, kept->hooks_version, kept->past};
  serve(session->family, &parent);
  if (now || ct_now_ns() > kept->until_ns) {
    __atomic_store_n(&kept->image.ring->closed, 1, __ATOMIC_RELEASE);
    serve(session->family, &parent);
    ct_image_free(&kept->image);
    ct_modules_free(&kept->modules);
    free_past(kept->past);
    memset(kept, 0, sizeof(*kept));
    pthread_mutex_lock(&session->guard);
    session->awaits_orphans = false;
    pthread_cond_broadcast(&session->changed);
    pthread_mutex_unlock(&session->guard);
  }
}
