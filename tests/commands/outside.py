# SPDX-License-Identifier: MIT
"""More of the long set: programs that move their stacks, that have very many of them, that use gs or sandboxes."""
import os

from commands.case import Cases

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
cases = Cases("outside")

GREEN = r"""cat >green.py <<'END'
import sys
def ping(n):
    return n if n == 0 else 1 + ping(n - 1)
def greenlets():
    import greenlet
    main = greenlet.getcurrent()
    def body(depth, turns):
        total = 0
        for i in range(turns):
            total += ping(depth) + main.switch(i)
        return total
    green = [greenlet.greenlet(body) for _ in range(50)]
    last = [g.switch(10 + i % 40, 30) for i, g in enumerate(green)]
    while any(not g.dead for g in green):
        last = [g.switch(i) if not g.dead else last[i] for i, g in enumerate(green)]
    return sum(last)
def gevents():
    import gevent, gevent.queue, gevent.pool
    queue, out = gevent.queue.Queue(), []
    def worker(n):
        while True:
            item = queue.get()
            if item is None:
                return
            gevent.sleep(0)
            out.append(ping(item % 50) * n)
    workers = [gevent.spawn(worker, n) for n in range(20)]
    for i in range(2000):
        queue.put(i)
    for _ in workers:
        queue.put(None)
    gevent.joinall(workers)
    pool = gevent.pool.Pool(10)
    return len(out), sum(pool.imap_unordered(ping, range(100)))
def eventlets():
    import eventlet
    pool = eventlet.GreenPool(20)
    return sum(pool.imap(lambda x: (eventlet.sleep(0), ping(x % 30))[1], range(500)))
def alchemy():
    from sqlalchemy.util import greenlet_spawn, await_only
    import asyncio
    async def value(x):
        await asyncio.sleep(0)
        return x
    def work(n):
        return sum(await_only(value(i)) for i in range(n))
    async def main():
        return sum(await asyncio.gather(*[greenlet_spawn(work, n) for n in range(30)]))
    return asyncio.run(main())
print(sys.argv[1], globals()[sys.argv[1]]())
END
"""
for name, module in (("greenlets", "greenlet"), ("gevents", "gevent"), ("eventlets", "eventlet"), ("alchemy", "sqlalchemy")):
    cases(f"python3: {module}", f"t /usr/bin/python3 green.py {name}; echo $?",
          needs=f"/usr/lib/python3/dist-packages/{module}", prepare=GREEN)

cases("ruby: callcc, fibers, enumerators", r"""
t ruby -e 'require "continuation"
  def deep(n, k) n == 0 ? k.call(7) : 1 + deep(n - 1, k) end
  puts callcc { |k| deep(200, k) }
  count = 0; again = nil; x = callcc { |k| again = k; 0 }; count += 1; again.call(x + 1) if x < 300; puts count
  def walk(n, &b) n.times { |i| b.call(i) } end
  e = Enumerator.new { |y| walk(500) { |i| y << i * 2 } }; s = 0; loop { s += e.next }; puts s' 2>/dev/null; echo $?
t ruby -e 'f = (1..10000).map { |i| Fiber.new { x = i; while true do x += Fiber.yield(x) end } }; s = 0; 3.times { f.each { |g| s += g.resume(1) } }; puts s'; echo $?
""", needs="ruby")

cases("php: ten thousand fibers", r"""
t php -d memory_limit=4G -r '$f = []; for ($i = 0; $i < 10000; $i++) { $f[] = new Fiber(function () use ($i) { $x = $i; while (true) { $x += Fiber::suspend($x); } }); }
  $s = 0; foreach ($f as $g) $s += $g->start(); for ($r = 0; $r < 3; $r++) foreach ($f as $g) $s += $g->resume(1); echo $s, "\n"; exit(3);'; echo $?
""", needs="php")

cases("crystal: ten thousand fibers", r"""
t ./fibers; echo $?
""", needs="crystal", prepare=r"""
cat >fibers.cr <<'END'
channel = Channel(Int32).new
10000.times { |i| spawn { Fiber.yield; channel.send(i); Fiber.yield } }
sum = 0_i64
10000.times { sum += channel.receive }
puts sum
exit 4
END
crystal build --release -o fibers fibers.cr 2>&1 || crystal build -o fibers fibers.cr
""", timeout=300)

cases("pypy: continuations", r"""
t pypy3 -c '
from _continuation import continulet
def body(c, n):
    for i in range(n):
        c.switch(i)
    return "end"
total = 0
for n in range(200):
    c = continulet(body, n)
    while c.is_pending():
        v = c.switch()
        total += v if isinstance(v, int) else 1
print(total)'; echo $?
""", needs="pypy3")

cases("mariadb: bootstrap, server, queries", r"""
D=/tmp/contrail-torture-maria.$PPID; rm -rf $D; mkdir -m 700 $D; chown mysql $D; cd $D; export TMPDIR=$D
as() { runuser -u mysql -- "$@"; }
as mariadb-install-db --no-defaults --datadir=$D/data --auth-root-authentication-method=normal >/dev/null 2>&1; echo $?
as t mariadbd --no-defaults --datadir=$D/data --socket=$D/s --pid-file=$D/p --skip-networking --innodb-use-native-aio=0 >$D/log 2>&1 & server=$!
q() { mariadb --no-defaults -S $D/s -u root -N -e "$1" "${2:-mysql}"; }
wait_for q 'select 1'
q 'create table t (a int primary key, b varchar(50), c double) engine=innodb; insert into t select seq, md5(seq), seq / 7 from seq_1_to_20000; select count(*), sum(a), max(b) from t'
q 'select b, count(*) from (select left(b, 1) b from t) x group by b order by b limit 3; update t set c = c + 1 where a % 3 = 0; select round(sum(c)) from t'
q 'start transaction; delete from t where a > 100; rollback; select count(*) from t; create index i on t (b); select count(*) from t where b like "a%"'
mariadb-admin --no-defaults -S $D/s -u root shutdown; wait $server; echo $?; cd; rm -rf $D
""", needs="mariadbd mariadb-install-db mariadb root", shows=["20000\t200010000\tfff", "28579523"], timeout=120)

cases("LibreOffice: documents to CSV and text", r"""
convert() { # the first start with a new profile ends with 81, which asks for another one
  t /usr/lib/libreoffice/program/soffice.bin --headless --norestore -env:UserInstallation=file://$HOME/profile --convert-to "$1" --outdir out $2 >/dev/null 2>&1
}
convert csv sheet.fods; echo $?
convert csv sheet.fods; echo $?; cat out/sheet.csv
convert 'txt:Text (encoded):UTF8' text.html; echo $?; cat out/text.txt
""", needs="/usr/lib/libreoffice/program/soffice.bin", prepare=r"""
echo '<html><body><h1>Heading</h1><p>One paragraph of text.</p></body></html>' >text.html
cat >sheet.fods <<'END'
<?xml version="1.0" encoding="UTF-8"?>
<office:document xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0" xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" xmlns:of="urn:oasis:names:tc:opendocument:xmlns:of:1.2" office:version="1.2" office:mimetype="application/vnd.oasis.opendocument.spreadsheet"><office:body><office:spreadsheet><table:table table:name="a">
<table:table-row><table:table-cell office:value-type="float" office:value="6"/><table:table-cell table:formula="of:=[.A1]*7" office:value-type="float" office:value="0"/></table:table-row>
</table:table></office:spreadsheet></office:body></office:document>
END
""", shows=["6,42", "One paragraph of text."], ignore=[("profile*", "times"), ("out*", "shown above")], timeout=300)

PAGE = r"""
echo '<html><body><p id=p>before</p><script>let s = 0; for (let i = 0; i < 300000; i++) s += i % 7; document.getElementById("p").textContent = "sum " + s; document.title = "done";</script></body></html>' >page.html
"""
cases("firefox: a page to a picture", r"""
P=/tmp/contrail-torture-firefox.$PPID; rm -rf $P; mkdir -m 700 $P
t firefox-esr --headless --no-remote --profile $P --window-size=300,200 --screenshot $HOME/shot.png file://$HOME/page.html >/dev/null 2>&1; echo $?
rm -rf $P .cache .config .mozilla Downloads; file shot.png
""", needs="firefox-esr file", prepare=PAGE, shows=["shot.png: PNG image data, 300 x 200"], timeout=300,
      notes="it goes on without hooks when it sets gs, and contrail says so")

cases("chromium, its sandbox on: a page's text", r"""
P=/tmp/contrail-torture-chromium.$PPID; rm -rf $P; mkdir -m 700 $P; cp page.html $P; chown -R nobody $P
runuser -u nobody -- env HOME=$P TMPDIR=$P XDG_CACHE_HOME=$P t /usr/lib/chromium/chromium --headless --disable-gpu --user-data-dir=$P/data --dump-dom file://$P/page.html 2>/dev/null; echo $?
rm -rf $P
""", needs="/usr/lib/chromium/chromium root", prepare=PAGE, shows=["sum 899997"], timeout=300)

cases("wine: a command", r"""
export WINEPREFIX=$HOME/prefix WINEDEBUG=-all
t wine cmd /c echo hi 2>/dev/null; echo $?
wine wineboot --shutdown >/dev/null 2>&1; /usr/lib/wine/wineserver64 --wait; rm -rf prefix .cache
""", needs="wine /usr/lib/wine/wineserver64", shows=["hi"], timeout=300, notes="it goes on without hooks, since it uses gs, and contrail says so")

NPM = os.path.join(ROOT, "build", "sources", "npm", "node_modules")
ESBUILD, DENO, BUN = (os.path.join(NPM, name) for name in ("@esbuild/linux-x64/bin/esbuild", "@deno/linux-x64-glibc/deno", "bun/bin/bun.exe"))
cases("npm: esbuild, deno, bun", rf"""
t {ESBUILD} --bundle in.ts --minify; echo $?
t {BUN} build in.ts --minify; echo $?
for run in "{DENO} run --no-lock --allow-all" "{BUN} run"; do t $run job.ts; echo $?; done
rm -rf .bun .cache
""", needs=f"{ESBUILD} {DENO} {BUN}", shows=["=>", "100000 6 true"], prepare=r"""
cat >in.ts <<'END'
import { b } from "./b";
interface X { a: number }
const f = (x: X): number => x.a * b;
console.log([1, 2, 3].map(a => f({ a })).reduce((p, q) => p + q, 0));
END
echo 'export const b: number = 7;' >b.ts
cat >job.ts <<'END'
const m = new Map<string, number>(); let caught = false;
for (let i = 0; i < 100000; i++) m.set("k" + i, i);
try { throw new Error("x"); } catch (e) { caught = (e as Error).message === "x"; }
const r = await Promise.all([1, 2, 3].map(async x => { await new Promise(r => setTimeout(r, 10)); return x * 2; }));
console.log(m.size, r[2], caught);
END
""", notes="little of their text belongs to known functions, and contrail says so")
