# SPDX-License-Identifier: MIT
"""The short set, part of `make test`: everyday commands, each some seconds at most."""
from commands.case import Cases

cases = Cases("short")

# What most of the cases below work on: a tree of small files with fixed times, and a file of some size.
TREE = r"""
mkdir -p tree/a/b/c tree/d
for i in {1..40}; do seq $i $((i * 7)) >tree/a/file$i; done
for i in {1..9}; do echo "text $i of d" >tree/d/$i.txt; done
cp tree/a/file7 tree/a/b/same; ln tree/a/b/same tree/a/b/c/hard; ln -s ../a tree/d/link; : >tree/empty
chmod 600 tree/a/file3; chmod 755 tree/a/b/same
find tree -exec touch -h -d 2001-02-03T04:05:06 {} +
"""
BIG = r"""
awk 'BEGIN { s = 1; for (i = 0; i < 40000; i++) { s = s * 1103515245 % 2147483648 + 12345; print s % 100003, "line", i } }' >big.txt
"""

# --- coreutils and their like

cases("inherited state", r"""
# What a process inherits: descriptors, signals, limits, ids, environment, name.
cat >state.py <<'END'
import os, resource, signal, sys
print(sorted(os.listdir("/proc/self/fd"))[:-1])
for line in open("/proc/self/status"):
    if line.startswith(("Name", "Umask", "Uid", "Gid", "Groups", "SigQ", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt",
                        "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "TracerPid")):
        key, value = line.split(None, 1)
        if key == "SigCgt:":  # but for the handlers of fatal signals, which show: docs/limits.md
            value = hex(int(value, 16) & ~0x400004f8)
        print(key, "" if key == "SigQ:" else value.strip())
print([resource.getrlimit(n) for n in range(16)])
print(open("/proc/self/cmdline").read().split("\0"), sorted(os.environ.items()), os.getcwd(), sys.argv)
print(os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0), os.sched_getaffinity(0))
print(open("/proc/self/oom_score_adj").read(), open("/proc/self/personality").read(), open("/proc/self/comm").read())
print([signal.getsignal(n) for n in (1, 2, 3, 13, 15, 17)], os.isatty(0), signal.getitimer(signal.ITIMER_REAL))
END
t python3 state.py three 'arguments with' blanks </dev/null
trap '' USR1 PIPE INT
ulimit -n 300; umask 027
exec 7<state.py
t python3 state.py
""", needs="python3")

cases("coreutils: ls, stat, du", r"""
t ls -la --time-style=full-iso -R tree
t ls -1S tree/a
t stat -c '%n %s %a %h %F %Y' tree/a/b/same tree/d/link
t du -a --apparent-size tree/d
t ls nothing-here
echo $?
""", prepare=TREE, normal=[(r"total \d+", "total", "blocks of folders")])

cases("coreutils: cp, mv, ln, rm, mkdir, chmod", r"""
t cp -a tree copy
t mkdir -p -m 750 x/y/z
t mv copy/d x/y
t ln -s target x/link
t chmod -R go-rwx copy
t rm -rf tree/a
t install -m 711 copy/a/file1 x/installed
t touch -d 2010-01-01T00:00:00 x/stamp
t rmdir x
echo $?
""", prepare=TREE)

cases("coreutils: sort of a large file", r"""
t sort -n -o sorted.txt big.txt
t sort --parallel=2 -S 1M -k3,3nr big.txt | t head -n 3
t sort -c sorted.txt; echo $?
t uniq -c -w 3 sorted.txt | t tail -n 2
t comm -12 <(sort big.txt) <(sort sorted.txt) | t wc
""", prepare=BIG)

cases("coreutils: a pipeline, each stage traced", r"""
t cat big.txt | t tr a-z A-Z | t cut -d' ' -f1,3 | t grep -v 7 | t sort -u | t tac | t nl | t sed 's/^ *//' | t head -n 5
echo "${PIPESTATUS[*]}"
t yes | t head -n 3
echo "${PIPESTATUS[*]}"
t seq 1 100000 | t tee copy.txt | t wc -c
t paste <(t seq 3) <(t seq 4 6) | t expand | t fold -w 4
""", prepare=BIG)

cases("coreutils: sums, dd, od, split", r"""
t md5sum big.txt tree/a/*
t sha256sum big.txt
t b2sum big.txt
t cksum big.txt
t dd if=big.txt of=part bs=1000 skip=3 count=20 status=none
t od -A d -t x1z -N 64 part
t split -n 7 big.txt piece.
t base64 part
t truncate -s 100K part
t csplit -s -f cs big.txt 100 200
""", prepare=TREE + BIG)

cases("coreutils: numbers, dates, words", r"""
t factor 1234567890123456789 987654321
t seq -f %g 1 .5 5
t date -u -d '2011-12-13 14:15:16 + 3 days' +'%F %T %j %U'
t expr 17 \* 23
t printf '%08.3f|%-10s|%q\n' 3.14159 left "it's"
t shuf --random-source=big.txt -n 4 big.txt
t numfmt --to=iec 1234567
t env -i A=b env
t basename /a/b/c.d .d
t false; echo $?
t timeout 1 sleep 30; echo $?
t nice -n 3 nice
t tsort <<< 'a b b c a d'
""", prepare=BIG, normal=[])

cases("tar", r"""
t tar czf one.tgz --sort=name --owner=0 --group=0 tree
t tar tvzf one.tgz
mkdir out; t tar xzf one.tgz -C out
t tar cf - tree | t tar tf - | t wc -l
t tar xf nothing.tar; echo $?
""", prepare=TREE, needs="tar gzip")

cases("compressors", r"""
t gzip -k -9 big.txt; t gunzip -c big.txt.gz | cmp - big.txt
t xz -T2 --block-size=128KiB -2 -k big.txt; t xz -dc big.txt.xz | cmp - big.txt
t bzip2 -k big.txt; t bzip2 -tv big.txt.bz2
t zstd -q -T2 big.txt -o big.zst; t zstd -q -dc big.zst | cmp - big.txt
t xz -d big.zst; echo $?
""", prepare=BIG, needs="gzip xz bzip2 zstd")

cases("find, grep", r"""
t find tree -name '*[13]' -newermt 2000-01-01 -printf '%p %s %TY\n'
t find tree -type f -exec wc -c {} +
t find tree -size -2 -print0 | t xargs -0 -n 3 echo
t grep -rn 'text [2-4]' tree
t grep -c -E '^(1|2)[0-9]*$' tree/a/file*
t grep -P '(?<=line )\d*77$' big.txt
t grep nothing big.txt; echo $?
""", prepare=TREE + BIG, needs="find grep xargs")

cases("sed, awk", r"""
t sed -E -i.orig 's/(line) ([0-9]+)/\2 \1/; /^7/d; 5,9y/0123456789/abcdefghij/' big.txt
t sed -n '$=;10{p;q;}' big.txt
t awk '{ n[$1 % 10] += $2; c++ } END { for (i = 0; i < 10; i++) printf "%d %.3f\n", i, n[i] / c }' big.txt
t awk 'BEGIN { while (("echo a; echo b" | getline x) > 0) print "got", x; exit 5 }'; echo $?
""", prepare=BIG, needs="sed awk")

cases("diff, patch, cmp", r"""
sed 's/line 1/LINE 1/; 20d' big.txt >other.txt
t diff -u --label a --label b big.txt other.txt | head -n 40
t diff -y -W 60 tree/a/file3 tree/a/file4
diff -u big.txt other.txt >change.patch
t patch -s big.txt change.patch; cmp big.txt other.txt
t cmp tree/a/file1 tree/a/file2; echo $?
""", prepare=TREE + BIG, needs="diff patch cmp", ignore=[("change.patch", "has the time of other.txt")])

cases("bc, dc", r"""
echo 'scale=50; 4*a(1); for (i = 1; i < 12; i++) i^i; define f(n) { if (n < 2) return n; return f(n-1)+f(n-2) }; f(15)' | t bc -l
echo '20 k 2 v p 100 ! p [la1+dsa*pla10>y]sy 0sa1 lyx' | t dc
t bc <<< '1/0'; echo $?
""", needs="bc dc")

# --- shells

cases("bash: expansions, arrays, loops", r"""
cat >script.bash <<'END'
declare -A count; total=0
for i in {1..300}; do total=$((total + i * i)); ((count[$((i % 7))]++)); done
echo $total; for k in "${!count[@]}"; do echo "$k=${count[$k]}"; done | sort
s="The quick brown fox"; echo "${s^^} ${s//o/0} ${#s} ${s:4:5} ${s%% *}"
[[ $s =~ ([a-z]+)\ ([a-z]+) ]] && echo "${BASH_REMATCH[@]}"
f() { local n=$1; if ((n < 2)); then echo $n; else echo $(($(f $((n - 1))) + $(f $((n - 2))))); fi; }; f 7
printf '%s\n' {z..m} | sort | tr a-z A-Z | paste -sd, -
diff <(seq 1 5) <(seq 1 2 7); echo "diff $?"
mapfile -t lines < <(seq 5); echo "${lines[@]:1:3}"
cat <<< "here $(echo nested $(basename /a/b))"; (exit 9); echo "subshell $?"
exec 3>file; echo to three >&3; exec 3>&-; shopt -s extglob; echo !(file); exit 6
END
t bash script.bash; echo $?
""", needs="bash")

cases("bash: traps, signals, jobs", r"""
cat >script.bash <<'END'
trap 'echo exit trap' EXIT; trap 'echo usr1' USR1; trap 'echo err $?' ERR; trap 'echo term' TERM
kill -USR1 $$; false
(trap 'echo inner; exit 3' TERM; : >ready; for i in {1..200}; do sleep 0.05; done) & child=$!
until [ -e ready ]; do sleep 0.05; done; kill -TERM $child; wait $child; echo "waited $?"
for i in {1..40}; do (exit $i) & pids[i]=$!; done; sum=0
for p in "${pids[@]}"; do wait $p; sum=$((sum + $?)); done; echo $sum
sleep 20 & kill -KILL $!; wait $! 2>/dev/null; echo $?
coproc cat; echo hello >&"${COPROC[1]}"; read -r line <&"${COPROC[0]}"; echo "$line"
for i in {1..50}; do kill -USR1 $$; done
bash -c 'kill -SEGV $$'; echo $?
kill -TERM $$; set -o pipefail; yes | head -n 1; echo "${PIPESTATUS[*]}"
exec bash -c 'trap "echo replaced" EXIT; exit 4'
END
t bash script.bash 2>err; echo $?
sed 's/.*line [0-9]*: *[0-9]* //' err
""", needs="bash", ignore=[("err", "has pids")])

cases("dash", r"""
cat >script.sh <<'END'
set -eu; i=0; while [ $i -lt 500 ]; do i=$((i + 1)); done; echo $i
f() { case $1 in a*) echo starts with a;; *b) echo ends with b;; *) return 3;; esac; }
f abc; f bb; f c || echo "f $?"; x=$(printf '%s-' one two three); echo "${x%-}"; trap 'echo bye' 0
ls /nothing 2>/dev/null || echo failed; { echo a; echo b; } | while read -r l; do echo "<$l>"; done
kill -15 $$
END
t sh script.sh; echo $?
""", needs="dash")

# --- interpreters

PERL = r"""
use strict; use warnings; use POSIX qw(floor :sys_wait_h); use List::Util qw(sum reduce); use Data::Dumper;
$Data::Dumper::Sortkeys = 1; $| = 1;
my %count; $count{$_ % 7}++ for 1 .. 20000;
my $text = join ' ', map { "word$_" } 1 .. 5000; my $n = () = $text =~ /\bword\d*7\b/g;
sub deep { my $d = shift; die { depth => $d } if $d == 50; deep($d + 1) }
my $died = 0; for (1 .. 100) { eval { deep(0) }; $died++ if ref $@ }
print Dumper(\%count), "$n $died ", sum(1 .. 1000), " ", floor(3.7), "\n";
local $SIG{ALRM} = sub { die "alarm\n" }; eval { alarm 1; select(undef, undef, undef, 5); }; print "got $@";
my $sum = 0; local $SIG{USR1} = sub { $sum++ }; kill 'USR1', $$ for 1 .. 100; print "$sum\n";
for my $i (1 .. 5) { my $pid = fork; if (!$pid) { exit $i } waitpid($pid, 0); print $? >> 8, "\n" }
open(my $p, '-|', 'echo piped; exit 3') or die; print <$p>; close $p; print $? >> 8, "\n";
open(my $o, '>', 'out.txt') or die; printf $o "%s\n", join ',', sort { $a <=> $b } map { $_ * 7919 % 1009 } 1 .. 300; close $o;
my $out = `echo from a child`; print $out; my $s = sprintf '%vd', '1.22.333'; print "$s\n"; warn "to stderr\n"; exit 4;
"""
cases("perl", r"""t perl script.pl; echo $?
t perl -pe 's/(\d+)/$1 * 2/ge' big.txt | md5sum
t perl -MEncode -MJSON::PP -e 'print JSON::PP->new->canonical->encode({map { $_ => [1..$_] } 1..9}), length(encode("UTF-16", "text")), "\n"'
t perl -e 'kill 9, $$'; echo $?
""", needs="perl", prepare="cat >script.pl <<'END'" + PERL + "END\n" + BIG)

PYTHON_THREADS = r"""
import collections, concurrent.futures, queue, signal, subprocess, sys, threading, os, time, json, gc
lock, total, local = threading.Lock(), [0], threading.local()
def work(n):
    local.x = n
    for i in range(200):
        with lock: total[0] += i
    return local.x
with concurrent.futures.ThreadPoolExecutor(8) as pool: print(sum(pool.map(work, range(60))), total)
q = queue.Queue(3); done = []
def consume():
    while (item := q.get()) is not None: done.append(item)
t = threading.Thread(target=consume); t.start()
for i in range(300): q.put(i)
q.put(None); t.join(); print(len(done), sum(done))
hits = []
signal.signal(signal.SIGUSR1, lambda s, f: hits.append(s))
for _ in range(200): os.kill(os.getpid(), signal.SIGUSR1)
print(len(hits) > 0)
signal.signal(signal.SIGALRM, lambda s, f: (_ for _ in ()).throw(TimeoutError('alarm')))
signal.setitimer(signal.ITIMER_REAL, 0.2)
try: time.sleep(10)
except TimeoutError as e: print('raised', e)
print(subprocess.run(['sort', '-r'], input='a\nc\nb\n', text=True, capture_output=True).stdout.split())
p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(30)']); p.terminate(); print(p.wait())
print(subprocess.run('exit 7', shell=True).returncode, subprocess.run(['sh', '-c', 'kill -11 $$']).returncode)
for i in range(5):
    pid = os.fork()
    if pid == 0: os._exit(i * 3)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
gc.collect(); print(json.dumps(dict(collections.Counter('mississippi')), sort_keys=True))
def deep(n): return n if n == 0 else deep(n - 1)
try: deep(10**6)
except RecursionError as e: print('recursion')
sys.exit(5)
"""
cases("python: threads, signals, subprocesses", "t /usr/bin/python3 script.py; echo $?\n", needs="/usr/bin/python3",
      prepare="cat >script.py <<'END'" + PYTHON_THREADS + "END\n")

PYTHON_MORE = r"""
import ctypes, multiprocessing as mp, mmap, os, re, sqlite3, struct, zlib, hashlib, decimal, asyncio, tempfile, pickle, sys
libc = ctypes.CDLL(None)
compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
values = (ctypes.c_int * 50)(*[i * 7919 % 101 for i in range(50)])
libc.qsort(values, 50, 4, compare(lambda a, b: a[0] - b[0])); print(list(values))
libc.snprintf.argtypes = None; out = ctypes.create_string_buffer(64)
libc.snprintf(out, 64, b'%d %.3f %s', 5, ctypes.c_double(2.5), b'text'); print(out.value)
def square(x): return x * x
if __name__ == '__main__':
    for method in ('fork', 'spawn', 'forkserver'):
        with mp.get_context(method).Pool(2) as pool: print(method, sum(pool.map(square, range(100))), flush=True); pool.close(); pool.join()
    with mmap.mmap(-1, 4096) as m: m[10:14] = b'data'; print(m.find(b'data'))
    db = sqlite3.connect(':memory:'); db.create_function('twice', 1, lambda x: 2 * x)
    db.executescript('create table t(a); with recursive n(i) as (select 1 union all select i+1 from n where i<500) insert into t select i from n')
    print(db.execute('select sum(twice(a)) from t where a % 3 = 0').fetchone())
    print(zlib.crc32(zlib.compress(b'x' * 10000)), hashlib.sha512(b'y' * 999).hexdigest()[:16], struct.pack('<dI', 1.5, 7))
    decimal.getcontext().prec = 60; print(decimal.Decimal(2).sqrt())
    async def ping(n):
        for _ in range(n): await asyncio.sleep(0)
        return n
    async def main():
        server = await asyncio.start_unix_server(lambda r, w: w.write(b'hello') or w.close(), 'sock')
        reader, writer = await asyncio.open_unix_connection('sock'); print(await reader.read()); writer.close(); server.close()
        proc = await asyncio.create_subprocess_exec('echo', 'from asyncio', stdout=-1); print((await proc.communicate())[0])
        return sum(await asyncio.gather(*[ping(i) for i in range(50)]))
    print(asyncio.run(main())); os.unlink('sock') if os.path.exists('sock') else None
    print(re.sub(r'(\w+) (\w+)', r'\2 \1', 'hello world ' * 3), len(pickle.dumps(list(range(1000)))))
    sys.stdout.flush(); os.abort()
"""
cases("python: ctypes, multiprocessing, asyncio, abort", "t /usr/bin/python3 -u script.py; echo $?\n",
      needs="/usr/bin/python3", prepare="cat >script.py <<'END'" + PYTHON_MORE + "END\n")

NODE = r"""
const rows = []; for (let i = 0; i < 20000; i++) rows.push({ id: i, name: 'name ' + (i * 7919 % 1009), list: [i, i * 2] });
const groups = new Map(); for (const r of rows) groups.set(r.name, (groups.get(r.name) || 0) + r.list[1]);
function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
let caught = 0; for (let i = 0; i < 2000; i++) try { null.x } catch (e) { caught++ }
const text = JSON.stringify(rows), back = JSON.parse(text);
let garbage = 0; for (let i = 0; i < 200; i++) garbage += Buffer.alloc(100000, i).length + new Array(10000).fill(i).length;
const { Worker } = require('worker_threads'), { execFileSync } = require('child_process'), zlib = require('zlib');
(async () => { let s = 0; for (let i = 0; i < 500; i++) s += await Promise.resolve(i);
  const w = await new Promise(done => new Worker("require('worker_threads').parentPort.postMessage(6 * 7)", { eval: true }).on('message', done));
  const wasm = await WebAssembly.instantiate(Buffer.from('0061736d0100000001070160027f7f017f030201000707010361646400000a09010700200020016a0b', 'hex'));
  console.log(groups.size, fib(24), caught, text.length, back.length, garbage, s, /(a+)b/.exec('xaaab')[1], w, wasm.instance.exports.add(2, 3));
  console.log(execFileSync('echo', ['from a child']).toString(), require('crypto').createHash('sha256').update('x').digest('hex'),
    zlib.gunzipSync(zlib.gzipSync(text)).length);
  console.error('to stderr'); setTimeout(() => process.exit(8), 20); })();
"""
cases("node", "t node script.js; echo $?\n", needs="node", prepare="cat >script.js <<'END'" + NODE + "END\n")

# --- tools

GIT = r"""
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=C GIT_COMMITTER_EMAIL=c@d GIT_PAGER=cat
export GIT_AUTHOR_DATE='1000000000 +0000' GIT_COMMITTER_DATE='1000000000 +0000' GIT_CONFIG_NOSYSTEM=1
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=pack.threads GIT_CONFIG_VALUE_0=1 # with more, packs differ from run to run
"""
cases("git", GIT + r"""
mkdir repo; cd repo
t git init -q -b main
cp -a ../tree/a ../tree/d .
t git add .
t git commit -q -m 'first'
for i in 1 2 3; do echo "$i" >>d/1.txt; git commit -q -am "change $i"; done
git checkout -q -b side HEAD~2
echo side >side; git add side; t git commit -q -m side
t git rebase -q main; echo $?
git checkout -q main; t git merge -q side
t git log --stat --oneline
t git diff HEAD~2
git mv d/2.txt d/moved; git rm -q d/3.txt; t git status --short
t git stash -q; git stash pop -q; git reset -q --hard
t git gc -q
t git clone -q . ../clone; cd ../clone; t git grep -n 'text 5'; t git nothing; echo $?
""", needs="git", prepare=TREE, ignore=[("*/.git/index", "has inode numbers and times")])

SQL = r"""
create table t(id integer primary key, a integer, b text, c real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
  insert into t select i, i * 7919 % 20011, printf('text %d', i % 977), i / 7.0 from n;
create index t_a on t(a);
select count(*), sum(a), min(b), max(c) from t;
select b, count(*), avg(a) from t group by b order by 2 desc, 1 limit 10;
select count(*) from t x join t y on x.a = y.id where y.a % 11 = 3;
begin; update t set c = c + 1 where a between 1000 and 2000; savepoint s; delete from t; rollback to s; commit;
create virtual table f using fts5(x); insert into f select b from t limit 500; select count(*) from f where f match '12';
select json_group_array(a) from (select a from t where b like 'text 12%' order by a limit 5);
create trigger g after delete on t begin insert into f values(old.b); end; delete from t where id % 30 = 0;
select count(*) from f; pragma integrity_check; select no_such(1);
"""
cases("sqlite3", r"""
t sqlite3 data.db <script.sql; echo $?
t sqlite3 data.db .dump | md5sum
t sqlite3 -json data.db 'select * from t limit 3'
t sqlite3 data.db 'pragma journal_mode=wal; insert into t values(0,1,2,3); vacuum; select count(*) from t'
""", needs="sqlite3", prepare="cat >script.sql <<'END'" + SQL + "END\n")

cases("redis", r"""
t redis-server --port 0 --unixsocket $PWD/sock --save '' --appendonly yes --appendfsync always --daemonize no \
  --dir $PWD --logfile log &
wait_for redis-cli -s sock ping
t redis-cli -s sock <<'END'
set a 1
incr a
lpush list x y z
lrange list 0 -1
hset h f1 v1 f2 v2
hgetall h
zadd z 3 c 1 a 2 b
zrange z 0 -1 withscores
eval "local s = 0 for i = 1, 1000 do s = s + redis.call('incr', 'n') end return s" 0
sort list alpha
nothing
multi
set b 2
exec
bgrewriteaof
END
t redis-benchmark -s sock -n 3000 -c 20 -q -t set,get,lpush,zadd >/dev/null; echo $?
for i in {1..50}; do redis-cli -s sock info persistence | grep -q aof_rewrite_in_progress:0 && break; sleep 0.1; done
redis-cli -s sock dbsize
t redis-cli -s sock shutdown nosave
wait; echo $?
""", needs="redis-server redis-cli redis-benchmark",
      ignore=[("log", "has times and pids"), ("appendonlydir/*", "the order of what many clients write")])

cases("openssl", r"""
t openssl dgst -sha3-256 big.txt
t openssl enc -aes-256-cbc -pbkdf2 -S 0011223344556677 -k secret -in big.txt -out big.enc
t openssl enc -d -aes-256-cbc -pbkdf2 -S 0011223344556677 -k secret -in big.enc | cmp - big.txt
t openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out key.pem 2>/dev/null
t openssl req -x509 -key key.pem -subj /CN=test -days 10 -set_serial 5 -out cert.pem
t openssl verify -CAfile cert.pem cert.pem
t openssl x509 -in cert.pem -noout -subject
t openssl speed -seconds 1 -mr nothing 2>/dev/null; echo $?
t openssl prime -generate -bits 64 | wc -c
""", needs="openssl", prepare=BIG, ignore=[("*.pem", "keys are random")], normal=[(r"(?m)^2[01]$", "N", "a random number's digits")])

C_SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct node { struct node *left, *right; int key; };
static struct node *insert(struct node *n, int key) {
  if (!n) { n = calloc(1, sizeof *n); n->key = key; return n; }
  if (key < n->key) n->left = insert(n->left, key); else n->right = insert(n->right, key);
  return n;
}
static long sum(const struct node *n) { return n ? n->key + sum(n->left) + sum(n->right) : 0; }
int main(int c, char **v) {
  struct node *root = NULL;
  for (int i = 0; i < 1000; i++) root = insert(root, (i * 7919) % 10007);
  printf("%ld %d %s\n", sum(root), c, v[0]);
  return strlen(v[0]);
}
"""
cases("gcc, as, nm, the program", r"""
t gcc -O2 -Wall -S source.c; echo $?
t as -o source.o source.s; t gcc source.o -o program
t ./program; echo $?
t gcc -c broken.c; echo $?
t nm program | head -n 5
""", needs="gcc nm", prepare="cat >source.c <<'END'" + C_SOURCE + "END\necho 'int f( { return x; }' >broken.c\n")

CPP_SOURCE = r"""
#include <algorithm>
#include <cstdio>
#include <future>
#include <iostream>
#include <map>
#include <regex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>
struct Guard { int &n; ~Guard() { n++; } };
static int parse(const std::string &s, size_t at, int &unwound) {
  Guard guard{unwound};
  if (at >= s.size()) throw std::out_of_range("end of " + s);
  if (s[at] < '0' || s[at] > '9') throw std::invalid_argument(s.substr(at));
  return at + 1 < s.size() ? (s[at] - '0') * 2 + parse(s, at + 1, unwound) : s[at] - '0';
}
int main() {
  std::map<std::string, int> kinds; long sum = 0; int unwound = 0;
  for (int i = 0; i < 500; i++)
    for (auto &text : {std::to_string(i), std::to_string(i) + "x", std::string()})
      try { sum += parse(text, 0, unwound); kinds["fine"]++; }
      catch (const std::invalid_argument &e) { kinds[e.what()]++; }
      catch (const std::logic_error &e) { kinds[e.what()]++; }
  for (auto &[kind, count] : kinds) std::cout << kind << ": " << count << '\n';
  std::cout << sum << ' ' << unwound << ' ' << std::regex_replace("a1b22c333", std::regex("[0-9]+"), "<$&>") << '\n';
  auto thrower = std::async(std::launch::async, [] { throw std::runtime_error("from a thread"); return 1; });
  try { thrower.get(); } catch (std::exception &e) { std::cout << e.what() << '\n'; }
  std::vector<std::thread> threads; std::vector<long> parts(4);
  for (int t = 0; t < 4; t++) threads.emplace_back([&, t] { for (int i = 0; i < 1000; i++) parts[t] += std::hash<int>()(i) % 7; });
  for (auto &t : threads) t.join();
  std::cout << parts[0] + parts[3] << std::endl;
  try { try { throw 5; } catch (int) { std::throw_with_nested(std::runtime_error("outer")); } }
  catch (const std::exception &e) { try { std::rethrow_if_nested(e); } catch (int n) { std::cout << n << '\n'; } }
  std::cout.flush();
  [] () noexcept { throw std::runtime_error("the end"); }();
}
"""
cases("C++: exceptions, threads, futures, terminate", r"""
t ./program; echo $?
t ./static; echo $?
""", needs="g++", prepare="cat >source.cpp <<'END'" + CPP_SOURCE + """END
g++ -O1 -std=c++17 -pthread source.cpp -o program
g++ -O2 -static -std=c++17 -pthread source.cpp -o static
""")

cases("make -j2 of a small project, each command traced", r"""
t make -s -j2 CC='t gcc' AR='t ar' SHELL='/bin/sh' && ./main 5; echo $?
touch two.c; t make -n CC=gcc; t make -s -j2; t make broken; echo $?
""", needs="make gcc", prepare=r"""
for n in one two three four; do echo "int $n(int x) { return x * ${#n}; }" >$n.c; done
echo '#include <stdio.h>
#include <stdlib.h>
int one(int), two(int), three(int), four(int);
int main(int c, char **v) { printf("%d\n", one(two(three(four(c > 1 ? atoi(v[1]) : 1))))); }' >main.c
printf 'O = main.o one.o two.o\nmain: $O lib.a\n\t$(CC) -o $@ $^\nlib.a: three.o four.o\n\t$(AR) rc $@ $^\nbroken:\n\t@false\nclean:\n\trm -f main *.o *.a\n' >Makefile
""", ignore=[("*.a", "has times"), ("main", "")])

cases("binaries: static, static-pie, stripped, musl", r"""
t ./static; echo $?
t ./static-pie; echo $?
t ./stripped; echo $?
t ./no-pie; echo $?
t ./musl; echo $?
""", needs="gcc musl-gcc", prepare="cat >source.c <<'END'" + C_SOURCE + r"""END
gcc -O2 -static source.c -o static
gcc -O2 -static-pie source.c -o static-pie
gcc -O2 -s source.c -o stripped
gcc -O0 -no-pie -fno-pie source.c -o no-pie
musl-gcc -O2 source.c -o musl
""")

cases("valgrind", r"""
t valgrind -q --error-exitcode=9 ./program; echo $?
t valgrind -q ./broken 2>&1 | sed -E 's/==[0-9]+==/==/; s/0x[0-9A-F]+/ADDR/g' | head -n 3
""", needs="valgrind gcc", notes="its tools are not recorded", prepare="cat >source.c <<'END'" + C_SOURCE + "END\n" + r"""
gcc -g -O1 source.c -o program
echo '#include <stdlib.h>
int main(void) { char *p = malloc(10); free(p); return p[3]; }' >broken.c
gcc -g -O0 -Wno-use-after-free broken.c -o broken
""")

# --- what else is on nearly every system

cases("signals: how a program ends", r"""
for s in HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT XCPU VTALRM PROF IO PWR SYS RTMIN RTMAX; do
  t sh -c "kill -$s \$\$"; echo "$s $?"
done
t sh -c 'exit 200'; echo $?
t ./nothing; echo $?
t /etc/passwd; echo $?
""", notes="not found and not executable are told in contrail's words",
      normal=[(r".*(nothing|/etc/passwd).*\n", "", "the words of sh and of contrail differ")])

cases("stop and continue, terminal signals", r"""
t python3 -c "
import os, signal, time
print('begin', flush=True)
open('pid', 'w').write(str(os.getpid()))
signal.signal(signal.SIGTERM, lambda *a: (print('terminated', flush=True), os._exit(9)))
while True: time.sleep(0.01)" &
wait_for test -s pid
kill -STOP $(cat pid); sleep 0.3; kill -CONT $(cat pid); sleep 0.1
kill -TERM $!; wait $!; echo $?
""", needs="python3", ignore=[("pid", "a pid")])

cases("column, getopt, id, ps, iconv, ldd", r"""
t column -t <<< $'a bb ccc\ndddd e f'
t getopt -o ab: --long one,two: -- -a -b x --two=3 rest
t id; t whoami; t getent passwd root; t hostname | wc -l
t locale -a | wc -l
t uname -m
t ps -o comm= -p $$
t mktemp -u | wc -c
t iconv -f UTF-8 -t UTF-16LE <<< 'Grüße' | t od -c
t ldd /bin/ls | sed 's/(0x.*//'
""", prepare=TREE + BIG)

cases("lua, tcl, ruby and other small ones, where installed", r"""
for p in lua5.4 tclsh busybox; do command -v $p >/dev/null || continue
  case $p in
  lua5.4) t lua5.4 -e 'local t = {} for i = 1, 3000 do t[i] = i * 7919 % 3001 end table.sort(t) print(#t, t[1], select(2, pcall(error, {})) ~= nil)
    local co = coroutine.wrap(function() for i = 1, 100 do coroutine.yield(i) end end) local s = 0 for i = 1, 100 do s = s + co() end print(s)
    print(string.rep("x", 10):gsub("x", "%0y"))';;
  tclsh) echo 'proc f n {expr {$n < 2 ? $n : [f [expr {$n-1}]] + [f [expr {$n-2}]]}}; puts [f 14]; catch {error oops} e; puts $e; puts [exec echo child]' | t tclsh;;
  busybox) t busybox sh -c 'for i in 1 2 3; do echo $i; done | busybox sort -r'; t busybox md5sum big.txt; t busybox awk 'BEGIN{print 2^10}';;
  esac
done
""", prepare=BIG, notes="busybox has no symbols: that little of its text is known is said")

cases("rust", r"""
t ./program; echo $?
""", needs="rustc", timeout=120, prepare=r"""
cat >source.rs <<'END'
use std::{collections::BTreeMap, panic, sync::mpsc, thread};
struct Loud(&'static str);
impl Drop for Loud { fn drop(&mut self) { println!("drop {}", self.0); } }
fn deep(n: u32) -> u32 { let _l = if n == 3 { Some(Loud("three")) } else { None }; if n == 0 { panic!("bottom") } deep(n - 1) + 1 }
fn main() {
    let r = panic::catch_unwind(|| deep(9)); println!("{}", r.is_err());
    let (tx, rx) = mpsc::channel();
    for i in 0..8u64 { let tx = tx.clone(); thread::spawn(move || for j in 0..200 { tx.send(i * j).unwrap() }); }
    drop(tx); println!("{}", rx.iter().sum::<u64>());
    let t = thread::spawn(|| { panic!("in a thread") }); println!("{}", t.join().is_err());
    let mut m = BTreeMap::new(); for i in 0..5000u32 { *m.entry(i * 7919 % 101).or_insert(0) += i; } println!("{:?}", m.iter().take(3).collect::<Vec<_>>());
    std::process::exit(7);
}
END
rustc -O -C debuginfo=0 --edition 2021 source.rs -o program
""", normal=[(r"thread '(\S+)' \(\d+\)", r"thread '\1'", "thread ids")])
