/* SPDX-License-Identifier: MIT */
#include "hook/delivery.h"

#include "base/error.h"
#include "base/worker.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#define PAGE_BYTES 4096u
#define TOUCH_RUN  16 /* pages between two looks for something to write */

struct ct_delivery {
  const struct ct_process *process;
  const struct ct_plan *plan;
  const struct ct_filter_result *filter_result;
  const struct ct_texts *texts;
  uint64_t base;
  size_t next;      /* of the plan's functions: whose page is touched next */
  uint64_t touched; /* the last page */
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  /* Under the lock. */
  void *spare; /* NULL while the other buffer is being written */
  void *full;
  uint64_t address;
  size_t bytes;
  bool ending;
  int code;
};

/*
 * A byte of the page is written over itself, as the patches will be (ct_texts_patch). What comes of it does not matter:
 * it is done again when it is patched.
 */
static void
touch(const struct ct_delivery *delivery, uint64_t address)
{
  const uint8_t *byte = ct_texts_at(delivery->texts, address, 1);
  if (byte != NULL) {
    (void)ct_process_write(delivery->process, address, byte, 1);
  }
}

/* Only pages that will be patched: the others stay shared with the file. */
static void
touch_some(struct ct_delivery *delivery)
{
  const struct ct_plan *plan = delivery->plan;
  for (int n = 0; n < TOUCH_RUN && delivery->next < plan->count; delivery->next++) {
    const struct ct_planned *planned = &plan->functions[delivery->next];
    uint64_t address = delivery->base + planned->address;
    uint64_t page = address - address % PAGE_BYTES;
    bool wanted = ct_filter_result_mode(delivery->filter_result, delivery->next) != CT_REQUESTED_NONE;
    if (planned->refusal == CT_REFUSED_NOT && wanted && page != delivery->touched) {
      touch(delivery, address);
      delivery->touched = page;
      n++;
    }
  }
}

static void *
deliver(void *context)
{
  struct ct_delivery *delivery = context;
  pthread_mutex_lock(&delivery->lock);
  while (delivery->full != NULL || !delivery->ending) {
    if (delivery->full != NULL) {
      pthread_mutex_unlock(&delivery->lock);
      int code = ct_process_write(delivery->process, delivery->address, delivery->full, delivery->bytes);
      pthread_mutex_lock(&delivery->lock);
      delivery->code = delivery->code != 0 ? delivery->code : code;
      delivery->spare = delivery->full;
      delivery->full = NULL;
      pthread_cond_signal(&delivery->changed);
    } else if (delivery->next < delivery->plan->count) {
      pthread_mutex_unlock(&delivery->lock);
      touch_some(delivery);
      pthread_mutex_lock(&delivery->lock);
    } else {
      pthread_cond_wait(&delivery->changed, &delivery->lock);
    }
  }
  pthread_mutex_unlock(&delivery->lock);
  return NULL;
}

struct ct_delivery *
ct_delivery_start(const struct ct_process *process, const struct ct_plan *plan,
                  const struct ct_filter_result *filter_result, const struct ct_texts *texts, uint64_t base,
                  size_t buffer_bytes)
{
  struct ct_delivery *delivery = calloc(1, sizeof(*delivery));
  void *spare = malloc(buffer_bytes);
  if (delivery == NULL || spare == NULL) {
    free(spare);
    free(delivery);
    return NULL;
  }
  delivery->process = process;
  delivery->plan = plan;
  delivery->filter_result = filter_result;
  delivery->texts = texts;
  delivery->base = base;
  delivery->spare = spare;
  pthread_mutex_init(&delivery->lock, NULL);
  pthread_cond_init(&delivery->changed, NULL);
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int failed = ct_worker_create(&delivery->thread, NULL, deliver, delivery);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (failed != 0) {
    free(spare);
    free(delivery);
    return NULL;
  }
  return delivery;
}

void
ct_delivery_put(struct ct_delivery *delivery, uint64_t address, void **buffer, size_t bytes)
{
  pthread_mutex_lock(&delivery->lock);
  while (delivery->full != NULL) {
    pthread_cond_wait(&delivery->changed, &delivery->lock);
  }
  delivery->full = *buffer;
  delivery->address = address;
  delivery->bytes = bytes;
  *buffer = delivery->spare;
  delivery->spare = NULL;
  pthread_cond_signal(&delivery->changed);
  pthread_mutex_unlock(&delivery->lock);
}

int
ct_delivery_end(struct ct_delivery *delivery)
{
  pthread_mutex_lock(&delivery->lock);
  delivery->ending = true;
  pthread_cond_signal(&delivery->changed);
  pthread_mutex_unlock(&delivery->lock);
  pthread_join(delivery->thread, NULL);
  int code = delivery->code;
  pthread_mutex_destroy(&delivery->lock);
  pthread_cond_destroy(&delivery->changed);
  free(delivery->spare);
  free(delivery);
  return code;
}
