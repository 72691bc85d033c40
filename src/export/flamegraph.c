/* SPDX-License-Identifier: MIT */
/*
 * A flame graph: one SVG that needs nothing else. The widths are weights (time, calls, time off the processor), callees
 * lie on their callers. A click goes into a frame, "search" marks names; both are done by a script of the picture,
 * which without it shows all the same. Names are text in it, never markup or script.
 *
 * What is thinner than a fifth of a pixel is left out; the last line says how much that is.
 *
 * Of two traces: the tree of both (difference.h). A frame is as wide as the wider of the two, and the part of it that
 * has no callee on it, its own, is hatched for what that has changed by: red lines for more, blue dots for less. So the
 * red area less the blue one is the whole change, and shows where it is. Labels say it once more, without colours.
 */
#include "export/difference.h"
#include "export/json.h"
#include "export/sums.h"
#include "views/text.h"

#include <contrail/text.h>
#include <contrail/version.h>

#include <stdio.h>

enum { WIDTH = 1200, MARGIN = 10, ROW = 17, TOP = 60, BOTTOM = 40, CHARACTER = 7, DEPTH_MAX = 2000 };
#define LEAST_PIXELS 0.2
enum { CHANGE_CHARS = CT_COUNT_CHARS + 64 };

struct flame {
  struct ct_sink *out;
  const struct ct_export_job *job;
  const struct ct_paths *paths;
  const struct ct_change *changes; /* of a difference: of each path; else NULL */
  uint64_t total;
  double scale; /* pixels for one of the weight */
  uint32_t rows, height;
  uint64_t thin, thin_weight; /* paths that are left out */
};

static const char style[] =
    "<style>\n"
    "svg{background:#fff;font:12px ui-monospace,monospace}text{fill:#111}rect.b{fill:#fff}\n"
    ".f rect{stroke:#fff;stroke-width:.5}.f text{fill:#111;pointer-events:none}.f{cursor:pointer}\n"
    ".f:hover rect{stroke:#000;stroke-width:1}.f.m rect{fill:#b040e0!important}.f.m text{fill:#fff}.f.p "
    "rect{opacity:.4}\n"
    ".c{cursor:pointer;text-decoration:underline}.h{display:none}\n"
    ".e{stroke:none!important;pointer-events:none}.e~text{paint-order:stroke;stroke:#eee;stroke-width:3px}\n"
    "@media (prefers-color-scheme:dark){svg,rect.b{background:#16181c;fill:#16181c}text{fill:#ddd}.f "
    "rect{stroke:#16181c}\n"
    ".f:hover rect{stroke:#fff}}\n"
    "</style>\n";

/* Of a difference: what the hatchings mean, and they. */
static const char legend[] =
    "<defs><pattern id=\"more\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\"><rect width=\"7\" "
    "height=\"7\" "
    "fill=\"#f28b74\"/><path d=\"M-1,1L1,-1M0,7L7,0M6,8L8,6\" stroke=\"#a01808\" stroke-width=\"1.8\"/></pattern>\n"
    "<pattern id=\"less\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\"><rect width=\"6\" height=\"6\" "
    "fill=\"#a9c8f5\"/><circle cx=\"3\" cy=\"3\" r=\"1.5\" fill=\"#1846a0\"/></pattern></defs>\n"
    "<rect x=\"10\" y=\"51\" width=\"28\" height=\"14\" fill=\"url(#more)\"/><text x=\"43\" y=\"62\">own: more</text>\n"
    "<rect x=\"120\" y=\"51\" width=\"28\" height=\"14\" fill=\"url(#less)\"/><text x=\"153\" y=\"62\">own: "
    "less</text>\n"
    "<text x=\"240\" y=\"62\">\u25b2 \u25bc more, less with all above it, + new, \u2212 gone; a frame is as wide as "
    "the "
    "wider of the two</text>\n";

/* data-x, data-w: pixels of the whole; data-d: the row. Names only ever become text content. */
static const char script[] =
    "<script><![CDATA[\n"
    "'use strict';\n"
    "const W=1180,X0=10,frames=[...document.querySelectorAll('.f')],info=document.getElementById('info'),\n"
    " found=document.getElementById('found'),reset=document.getElementById('reset');\n"
    "const of=g=>({x:+g.dataset.x,w:+g.dataset.w,d:+g.dataset.d});\n"
    "const nameOf=g=>g.dataset.n;\n"
    "function fit(g,w){const t=g.querySelector('text'),n=nameOf(g),m=g.dataset.m,k=Math.floor((w-6)/7)-m.length;\n"
    " t.textContent=k<3?'':m+(n.length<=k?n:n.slice(0,k-2)+'..');}\n"
    "function zoom(to){const a=of(to),s=W/a.w;\n"
    " for(const g of frames){const b=of(g),r=g.querySelector('rect');\n"
    "  const over=b.d<a.d&&b.x<=a.x+1e-6&&b.x+b.w>=a.x+a.w-1e-6;\n"
    "  const inside=b.d>=a.d&&b.x>=a.x-1e-6&&b.x+b.w<=a.x+a.w+1e-6;\n"
    "  g.classList.toggle('h',!(over||inside));g.classList.toggle('p',over);\n"
    "  if(over||inside){const x=over?X0:X0+(b.x-a.x)*s,w=over?W:b.w*s;\n"
    "   r.setAttribute('x',x);r.setAttribute('width',w);g.querySelector('text').setAttribute('x',x+3);fit(g,w);\n"
    "   const e=g.querySelector('.e');if(e){const c=of(e);e.classList.toggle('h',over);\n"
    "    e.setAttribute('x',X0+(c.x-a.x)*s);e.setAttribute('width',c.w*s);}}}\n"
    " reset.classList.toggle('h',a.d===0);}\n"
    "function search(text){let test;if(!text){for(const g of "
    "frames)g.classList.remove('m');found.textContent='';return;}\n"
    " try{const r=new RegExp(text);test=n=>r.test(n);}catch(e){test=n=>n.includes(text);}\n"
    " const hits=[];for(const g of frames){const "
    "m=of(g).d>0&&test(nameOf(g));g.classList.toggle('m',m);if(m)hits.push(of(g));}\n"
    " hits.sort((a,b)=>a.x-b.x||b.w-a.w);let end=-1,sum=0;\n"
    " for(const h of hits)if(h.x+h.w>end+1e-6){sum+=h.x+h.w-Math.max(h.x,end);end=h.x+h.w;}\n"
    " found.textContent=hits.length+' frames match: '+(100*sum/W).toFixed(2)+' %';}\n"
    "function ask(){const t=prompt('Names with this text, or regular expression:','');if(t!==null)search(t);}\n"
    "for(const g of frames){g.addEventListener('click',()=>zoom(g));\n"
    " g.addEventListener('mouseover',()=>{info.textContent=g.querySelector('title').textContent;});}\n"
    "document.getElementById('search').addEventListener('click',ask);\n"
    "reset.addEventListener('click',()=>zoom(frames[0]));\n"
    "addEventListener('keydown',e=>{if((e.ctrlKey&&e.key==='f')||e.key==='/'){e.preventDefault();ask();}\n"
    " else if(e.key==='Escape'){search('');zoom(frames[0]);}});\n"
    "]]></script>\n";

static void
put_pixels(struct ct_sink *out, double pixels)
{
  char text[40];
  snprintf(text, sizeof(text), "%.3f", pixels);
  ct_out_text(out, text);
}

/* A warm colour that is the same for a name in every picture; a grey one where colours are for changes. */
static void
put_colour(struct ct_sink *out, const char *name, bool is_grey)
{
  uint32_t hash = 2166136261u;
  char text[40];
  for (; *name != '\0' && *name != '('; name++) {
    hash = (hash ^ (uint8_t)*name) * 16777619u;
  }
  if (is_grey) {
    snprintf(text, sizeof(text), "hsl(45,10%%,%u%%)", 78 + hash % 12);
    ct_out_text(out, text);
    return;
  }
  snprintf(text, sizeof(text), "hsl(%u,%u%%,%u%%)", 10 + hash % 45, 65 + (hash >> 8) % 25, 62 + (hash >> 16) % 12);
  ct_out_text(out, text);
}

static uint64_t
weigh(const struct flame *flame, uint32_t at)
{
  const struct ct_path *path = &flame->paths->paths[at];
  return flame->changes != NULL ? path->total_ticks : ct_export_total_weight(flame->job, path);
}

static const char *
weight_text(const struct flame *flame, uint64_t weight, char text[CT_COUNT_CHARS + 8])
{
  char number[CT_COUNT_CHARS];
  if (flame->job->options->weight == CT_WEIGHT_CALLS) {
    snprintf(text, CT_COUNT_CHARS + 8, "%s call%s", ct_format_count(number, weight), weight == 1 ? "" : "s");
  } else {
    ct_format_duration(text, weight);
  }
  return text;
}

/* mark: what the label begins with. */
static void
put_label(struct ct_sink *out, const char *mark, const char *name, double pixels)
{
  size_t columns = pixels > 6 ? (size_t)((pixels - 6) / CHARACTER) : 0, taken = ct_text_columns(mark);
  char *clean = columns >= 3 + taken ? ct_utf8_copy(name) : NULL;
  if (clean == NULL) {
    return;
  }
  columns -= taken;
  bool is_cut = ct_text_columns(clean) > columns;
  if (is_cut) {
    clean[ct_text_bytes_of_columns(clean, columns - 2)] = '\0';
  }
  ct_out_text(out, mark);
  ct_out_xml(out, clean);
  ct_out_text(out, is_cut ? ".." : "");
  free(clean);
}

static double
percent(uint64_t part, uint64_t whole)
{
  return whole != 0 ? 100.0 * (double)part / (double)whole : 0;
}

/* "+3.1 ms (+12 %)"; of what was not there before, or is not any more, without the share. */
static const char *
change_text(const struct flame *flame, const uint64_t sides[2], char text[CHANGE_CHARS])
{
  char weight[CT_COUNT_CHARS + 8], share[40] = "";
  bool is_more = sides[1] >= sides[0];
  uint64_t by = is_more ? sides[1] - sides[0] : sides[0] - sides[1];
  if (sides[0] != 0 && sides[1] != 0) {
    snprintf(share, sizeof(share), " (%s%.1f %%)", is_more ? "+" : "-", percent(by, sides[0]));
  }
  snprintf(text, CHANGE_CHARS, "%s%s%s", by == 0 ? "" : is_more ? "+" : "-", weight_text(flame, by, weight), share);
  return text;
}

/* What a label of a difference begins with: a change by less than a hundredth has none. */
static const char *
mark_of(const struct ct_change *change)
{
  const uint64_t *total = change->total;
  uint64_t more = total[1] > total[0] ? total[1] - total[0] : 0, less = total[0] > total[1] ? total[0] - total[1] : 0;
  return total[0] == 0           ? "+ "
         : total[1] == 0         ? "\u2212 "
         : more > total[0] / 100 ? "\u25b2 "
         : less > total[0] / 100 ? "\u25bc "
                                 : "";
}

static void
put_title(const struct flame *flame, uint32_t at)
{
  char weights[2][CT_COUNT_CHARS + 8], calls[2][CT_COUNT_CHARS], change[2][CHANGE_CHARS], text[400];
  const struct ct_path *path = &flame->paths->paths[at];
  if (flame->changes == NULL) {
    uint64_t total = weigh(flame, at);
    snprintf(text, sizeof(text), ": %s, %.2f %%; %s calls", weight_text(flame, total, weights[0]),
             percent(total, flame->total), ct_format_count(calls[0], path->calls));
  } else {
    const struct ct_change *of = &flame->changes[at];
    snprintf(text, sizeof(text), ": %s, before %s: %s; own %s; %s calls, before %s",
             weight_text(flame, of->total[1], weights[1]), weight_text(flame, of->total[0], weights[0]),
             change_text(flame, of->total, change[0]), change_text(flame, of->self, change[1]),
             ct_format_count(calls[1], of->calls[1]), ct_format_count(calls[0], of->calls[0]));
  }
  ct_out_text(flame->out, text);
}

static void
put_rectangle(struct ct_sink *out, double x, uint32_t y, double pixels)
{
  char text[60];
  ct_out_literal(out, " x=\"");
  put_pixels(out, MARGIN + x);
  snprintf(text, sizeof(text), "\" y=\"%u\" height=\"%d\" width=\"", y, ROW - 1);
  ct_out_text(out, text);
  put_pixels(out, pixels);
}

/* The part of the frame that its own change is, at its right end, where no callee is. */
static void
put_change(const struct flame *flame, const struct ct_change *change, double end, uint32_t y)
{
  struct ct_sink *out = flame->out;
  bool is_more = change->self[1] > change->self[0];
  uint64_t by = is_more ? change->self[1] - change->self[0] : change->self[0] - change->self[1];
  double pixels = (double)by * flame->scale;
  if (pixels < LEAST_PIXELS) {
    return;
  }
  ct_out_literal(out, "<rect class=\"e\" data-x=\"");
  put_pixels(out, end - pixels);
  ct_out_literal(out, "\" data-w=\"");
  put_pixels(out, pixels);
  ct_out_literal(out, "\"");
  put_rectangle(out, end - pixels, y, pixels);
  ct_out_text(out, is_more ? "\" fill=\"url(#more)\"/>" : "\" fill=\"url(#less)\"/>");
}

static void
put_frame(const struct flame *flame, uint32_t at, double x, double pixels, uint32_t row)
{
  struct ct_sink *out = flame->out;
  const char *name = at == CT_PATH_TOP ? "all" : ct_paths_name(flame->paths, flame->paths->paths[at].name);
  const struct ct_change *change = flame->changes != NULL ? &flame->changes[at] : NULL;
  const char *mark = change != NULL ? mark_of(change) : "";
  char text[160];
  uint32_t y = flame->height - BOTTOM - (row + 1) * ROW;
  ct_out_literal(out, "<g class=\"f\" data-x=\"");
  put_pixels(out, x);
  ct_out_literal(out, "\" data-w=\"");
  put_pixels(out, pixels);
  snprintf(text, sizeof(text), "\" data-d=\"%u\" data-m=\"%s\" data-n=\"", row, mark);
  ct_out_text(out, text);
  ct_out_xml(out, name);
  ct_out_literal(out, "\"><title>");
  ct_out_xml(out, name);
  put_title(flame, at);
  ct_out_literal(out, "</title><rect");
  put_rectangle(out, x, y, pixels);
  ct_out_literal(out, "\" fill=\"");
  put_colour(out, name, change != NULL);
  ct_out_literal(out, "\"/>");
  if (change != NULL) {
    put_change(flame, change, x + pixels, y);
  }
  ct_out_literal(out, "<text x=\"");
  put_pixels(out, MARGIN + x + 3);
  snprintf(text, sizeof(text), "\" y=\"%u\">", y + 12);
  ct_out_text(out, text);
  put_label(out, mark, name, pixels);
  ct_out_literal(out, "</text></g>\n");
}

/*
 * Visits the paths that are wide enough, each before what is on it: with `draws` it draws them; else it finds how many
 * rows there are, and what is left out.
 */
static int
visit(struct flame *flame, bool draws)
{
  const struct ct_paths *paths = flame->paths;
  double *next = calloc(DEPTH_MAX + 2, sizeof(*next)); /* by row: where the next frame begins */
  uint32_t row = 0;
  if (next == NULL) {
    return CT_ENOMEM;
  }
  for (uint32_t at = CT_PATH_TOP; at != CT_PATH_NONE;) {
    const struct ct_path *path = &paths->paths[at];
    uint64_t weight = weigh(flame, at);
    double pixels = (double)weight * flame->scale, x = next[row];
    bool is_wide = pixels >= LEAST_PIXELS && row < DEPTH_MAX;
    next[row] = x + pixels;
    if (is_wide && draws) {
      put_frame(flame, at, x, pixels, row);
    } else if (is_wide) {
      flame->rows = row + 1 > flame->rows ? row + 1 : flame->rows;
    } else if (!draws && weight != 0) {
      flame->thin++;
      flame->thin_weight += weight;
    }
    bool goes_in = is_wide && path->first != CT_PATH_NONE;
    if (goes_in) {
      next[++row] = x;
      at = path->first;
      continue;
    }
    while (at != CT_PATH_TOP && paths->paths[at].next == CT_PATH_NONE) {
      at = paths->paths[at].parent;
      row--;
    }
    at = at != CT_PATH_TOP ? paths->paths[at].next : CT_PATH_NONE;
  }
  free(next);
  return ct_out_failed(flame->out) ? CT_EIO : CT_OK;
}

static void
put_line(struct ct_sink *out, double x, uint32_t y, const char *attributes, const char *text)
{
  char at[160];
  snprintf(at, sizeof(at), "<text x=\"%.0f\" y=\"%u\"%s>", x, y, attributes);
  ct_out_text(out, at);
  ct_out_xml(out, text);
  ct_out_literal(out, "</text>\n");
}

/* What the picture is of. */
static void
put_caption(const struct flame *flame)
{
  static const char *const names[] = {
      [CT_WEIGHT_TIME] = "time", [CT_WEIGHT_CALLS] = "calls", [CT_WEIGHT_OFF] = "time off the processor"};
  const struct ct_export_job *job = flame->job;
  char text[600], weights[2][CT_COUNT_CHARS + 8], calls[CT_COUNT_CHARS], change[CHANGE_CHARS];
  bool is_calls = job->options->weight == CT_WEIGHT_CALLS;
  if (flame->changes != NULL) {
    const struct ct_change *all = &flame->changes[CT_PATH_TOP];
    snprintf(text, sizeof(text), "%.100s by %s: %s, before %s: %s", ct_export_program(job->trace),
             names[job->options->weight], weight_text(flame, all->total[1], weights[1]),
             weight_text(flame, all->total[0], weights[0]), change_text(flame, all->total, change));
  } else {
    const struct ct_export_summary *summary = job->summary;
    snprintf(text, sizeof(text), "%.100s by %s: %s%s%s%s of %llu thread%s", ct_export_program(job->trace),
             names[job->options->weight], weight_text(flame, flame->total, weights[0]), is_calls ? "" : " in ",
             is_calls ? "" : ct_format_count(calls, summary->events), is_calls ? "" : " calls",
             (unsigned long long)summary->threads, summary->threads == 1 ? "" : "s");
  }
  put_line(flame->out, MARGIN, 20, " font-weight=\"bold\"", text);
}

static void
put_head(const struct flame *flame)
{
  struct ct_sink *out = flame->out;
  char text[400];
  snprintf(text, sizeof(text),
           "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
           "height=\"%u\" "
           "viewBox=\"0 0 %d %u\">\n",
           WIDTH, flame->height, WIDTH, flame->height);
  ct_out_text(out, text);
  ct_out_literal(out, style);
  ct_out_literal(out, "<rect class=\"b\" width=\"100%\" height=\"100%\"/>\n");
  put_caption(flame);
  put_line(out, WIDTH - 120, 20, " class=\"c\" id=\"search\"", "search (/)");
  put_line(out, WIDTH - 200, 20, " class=\"c h\" id=\"reset\"", "show all");
  put_line(out, MARGIN, 42, " id=\"info\"", "a click goes into a frame");
  put_line(out, WIDTH - 320, 42, " id=\"found\"", "");
  if (flame->changes != NULL) {
    ct_out_literal(out, legend);
  }
}

/* What is not in the picture, or not to be believed of it. */
static void
put_foot(const struct flame *flame)
{
  char text[700] = "", count[CT_COUNT_CHARS];
  int length = 0;
  if (flame->thin != 0) {
    length = snprintf(text, sizeof(text), "%s paths are too thin to be drawn (%.2f %%); ",
                      ct_format_count(count, flame->thin), 100.0 * (double)flame->thin_weight / (double)flame->total);
  }
  if (flame->job->summary->lost != 0) {
    length += snprintf(text + length, sizeof(text) - (size_t)length, "%s events were lost; ",
                       ct_format_count(count, flame->job->summary->lost));
  }
  snprintf(text + length, sizeof(text) - (size_t)length, "recursion is one frame; %scontrail " CT_VERSION,
           flame->changes != NULL ? "noise is not taken out: contrail diff says what is beyond it; " : "");
  put_line(flame->out, MARGIN, flame->height - 15, "", text);
}

static int
draw(struct flame *flame)
{
  flame->total = weigh(flame, CT_PATH_TOP);
  flame->scale = flame->total != 0 ? (WIDTH - 2.0 * MARGIN) / (double)flame->total : 0;
  int err = visit(flame, false);
  if (err == CT_OK) {
    flame->height = TOP + (flame->changes != NULL ? ROW : 0) + BOTTOM + (flame->rows + 1) * ROW;
    put_head(flame);
    err = visit(flame, true);
    put_foot(flame);
    ct_out_literal(flame->out, script);
    ct_out_literal(flame->out, "</svg>\n");
  }
  return err;
}

static int
put_paths(void *arg, struct ct_paths *paths, const struct ct_change *changes)
{
  struct flame *flame = arg;
  flame->paths = paths;
  flame->changes = changes;
  return draw(flame);
}

static int
write_flamegraph(const struct ct_export_job *job, struct ct_sink *out, struct ct_diag *diag)
{
  struct flame flame = {.out = out, .job = job};
  return ct_difference_put(job, put_paths, &flame, diag);
}

static int
write_format(const struct ct_export_job *job, struct ct_diag *diag)
{
  return ct_export_file(job, CT_OUT_PLAIN, write_flamegraph, diag);
}

const struct ct_export_writer ct_export_flamegraph = {
    .format = {.name = "flamegraph",
               .summary = "a flame graph, an SVG that needs nothing else",
               .has_weight = true,
               .takes_filters = true,
               .takes_two = true},
    .write = write_format,
};
