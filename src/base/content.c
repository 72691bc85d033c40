/* SPDX-License-Identifier: MIT */
/*
 * Four lanes take every fourth word each, so that their multiplications overlap. A step is a bijection of the lane for
 * each word: two contents that differ in one word of a lane never agree. See content.h.
 */
#include "base/content.h"

#include <string.h>

static inline uint64_t
step(uint64_t lane, uint64_t word)
{
  lane = (lane ^ word) * 0x9e3779b97f4a7c15ull; /* both odd */
  return (lane ^ lane >> 32) * 0xd6e8feb86659fd93ull;
}

void
ct_content_begin(struct ct_content *content)
{
  *content = (struct ct_content){{1, 2, 3, 4}, 0};
}

void
ct_content_add(struct ct_content *content, const void *data, size_t size)
{
  const uint8_t *at = data;
  uint64_t a = content->lanes[0], b = content->lanes[1], c = content->lanes[2], d = content->lanes[3], words[4];
  content->bytes += size;
  for (; size >= sizeof(words); size -= sizeof(words), at += sizeof(words)) {
    memcpy(words, at, sizeof(words));
    a = step(a, words[0]);
    b = step(b, words[1]);
    c = step(c, words[2]);
    d = step(d, words[3]);
  }
  if (size != 0) { /* the last ones, filled with zeros: the number of bytes tells them from zeros */
    memset(words, 0, sizeof(words));
    memcpy(words, at, size);
    a = step(a, words[0]);
    b = step(b, words[1]);
    c = step(c, words[2]);
    d = step(d, words[3]);
  }
  content->lanes[0] = a;
  content->lanes[1] = b;
  content->lanes[2] = c;
  content->lanes[3] = d;
}

void
ct_content_end(const struct ct_content *content, uint64_t sum[2])
{
  const uint64_t *lanes = content->lanes;
  sum[0] = step(step(step(step(lanes[0], lanes[1]), lanes[2]), lanes[3]), content->bytes);
  sum[1] = step(step(step(step(lanes[3], content->bytes), lanes[0]), lanes[1]), lanes[2]);
}
