//! Shells and the tools of coreutils, archives and copies.

use crate::for_everyone;
use crate::scenario::Scenario;
use cowork_testbed::Person;

for_everyone!(
    redirections,
    coreutils,
    copies_and_moves,
    removal_of_a_tree,
    many_files,
    links,
    modes_and_masks,
    temporary_files,
    in_place_edits,
    archives,
    rsync,
    strange_names,
    a_mix_that_is_hard_to_undo,
);

/// A folder with a bit of everything.
const SOME: &str = "
    mkdir -p a/b/c empty 'with space'
    echo one > a/one; echo two > a/b/two; echo three > a/b/c/three
    printf '#!/bin/sh\\necho hi\\n' > run.sh; chmod 755 run.sh
    ln -s a/one link; ln -s nowhere dangling; ln -s a folder-link
    ln a/one hard; ln a/b/two a/b/hard-two
    mkfifo pipe; chmod 600 a/b/two; chmod 700 a/b
    head -c 300000 /dev/zero | tr '\\0' x > large
    : > nothing
";

fn redirections(person: Person) {
    Scenario {
        before: SOME,
        script: "
            echo new > new; echo more >> a/one; echo over >| a/b/two
            set -C; (echo no > new) 2>/dev/null; echo $?; set +C
            exec 3<> a/b/c/three; read -r line <&3; echo \"$line\" ; echo appended >&3; exec 3>&-
            (echo err > /dev/stderr) 2>&1 | cat; echo out > /dev/stdout | cat; echo null > /dev/null
            cat < a/one > copy; diff <(cat a/one) copy && echo same
            echo through > /dev/fd/1 | cat
            : > large
            for n in 1 2 3; do echo $n >> loop; done
            cat > here <<< 'a here string'
            (cd a/b && echo down > ../up && echo x > ./c/../c/x)
            echo link > link; echo made > dangling; cat nowhere
            { echo a; echo b; } | tee tee1 tee2 | wc -l
            echo in > missing/file; echo $?
            echo dir > a; echo $?
        ",
        fails: &["( echo no > new )", "echo in > missing/file", "echo dir > a"],
        ..Scenario::default()
    }
    .check(person);
}

fn coreutils(person: Person) {
    Scenario {
        before: SOME,
        script: "
            mkdir -p deep/er/est; rmdir -p deep/er/est; mkdir -m 711 moded
            touch t1; touch -d '2020-02-03 04:05:06.789' t1 a/one; touch -h -d '2021-01-01' link
            truncate -s 10 large; truncate -s 5000 nothing
            dd if=/dev/zero of=dd bs=1k count=7 status=none; dd if=a/one of=dd conv=notrunc status=none
            install -m 640 a/one installed; install -d -m 750 i/n/s
            split -b 100000 -d large part; sort -r -o a/one a/one
            mktemp -p . XXXXXX.tmp | wc -c; mktemp -d -p . XXXXXX.d | wc -c; rm -rf ./*.tmp ./*.d
            ln -sf a/b/two link; ln -f a/b/two hard; ln -sfn empty folder-link
            chmod -R go-rwx a; chmod u+x nothing; chown \"$(id -u):$(id -g)\" nothing; echo $?
            shred -u nothing; csplit -s -f cs a/b/c/three 1; mknod p2 p
            cp --sparse=always large sparse; fallocate -l 4096 allocated 2>/dev/null || : > allocated
            test -w a && test -w a/one && test -x run.sh; echo $?
            stat -c '%a %F %s' moded installed i/n/s | sort
            echo x | timeout 5 tee a/b/c/timeout; sync
            unlink hard; link a/b/two linked
        ",
        ..Scenario::default()
    }
    .check(person);
}

fn copies_and_moves(person: Person) {
    Scenario {
        before: SOME,
        script: "
            cp -a a copied; cp -r a recursive; cp -al a linked; cp -p a/one kept; cp -u a/one hard2
            mv a/one a/renamed; mv copied a/inside; mv -n hard a/renamed; echo $?
            mv link moved-link; mv empty elsewhere; mv -T recursive elsewhere
            mkdir out; mv large out/; mv out /tmp/out && mv /tmp/out back; ls back
            cp /etc/passwd passwd-copy; cp -a /tmp/. tmp-copy; rm -r tmp-copy passwd-copy
            mv -f a/b/c/three run.sh; cp -f run.sh a/b/two
            mv nothing nothing; echo $?; mv a a/b 2>/dev/null; echo $?
            mv --exchange moved-link dangling 2>/dev/null || true
        ",
        fails: &["mv nothing nothing", "mv a a/b"],
        ..Scenario::default()
    }
    .check(person);
}

fn removal_of_a_tree(person: Person) {
    Scenario {
        before: "for d in $(seq 40); do mkdir -p t/$d/sub; for f in $(seq 25); do
                 echo $d $f > t/$d/f$f; ln -s f$f t/$d/sub/l$f; done; done; chmod 640 t/7/f*",
        script: "rm -rf t; ls -A | wc -l; rmdir t; echo $?; mkdir t; echo again > t/again",
        fails: &["rmdir t"],
        ..Scenario::default()
    }
    .check(person);
}

fn many_files(person: Person) {
    Scenario {
        before: "mkdir src; for f in $(seq 500); do echo $f > src/$f; done; tar -cf src.tar src",
        script: "
            mkdir out; tar -xf src.tar -C out; diff -r src out/src && echo same
            find src -name '*7' -delete; find src -type f -exec sed -i 's/1/one/' {} +
            for n in $(seq 300); do : > n$n; done; rm n*; ls | wc -l
            seq 200 | xargs -P 4 -I{} sh -c 'echo {} > par{}; mv par{} done{}; chmod 600 done{}'
        ",
        ..Scenario::default()
    }
    .check(person);
}

fn links(person: Person) {
    Scenario {
        before: SOME,
        script: "
            echo through > link; echo through-folder > folder-link/added; rm folder-link/one
            ln -s \"$PWD/a/b\" absolute; echo abs > absolute/abs; rm absolute/two
            ln -s ../project/a dotdot; echo via > dotdot/via
            ln -s /tmp outside; echo out > outside/out-$$; cat outside/out-$$ > got; rm outside/out-$$
            ln -s \"$PWD/a/one\" /tmp/in-$$; echo back > /tmp/in-$$; rm /tmp/in-$$; cat a/one
            ln -s loop1 loop2; ln -s loop2 loop1; echo x > loop1; echo $?
            rm link; ln -s new-target link; rm -f dangling; ln -s link2 dangling
            ln hard hard3; echo all > hard3; cat hard; rm hard; cat hard3; cp -P link link3
            ln -s x/ slash; rmdir slash; rm slash; ln a newdir 2>/dev/null; echo $?
            mv folder-link fl; echo moved > fl/moved; unlink fl
            readlink -f absolute | sed 's,.*/project,project,'
            cd -P absolute && echo physical > physical && cd .. && rm -r b && ls
        ",
        fails: &["echo x > loop1", "rmdir slash", "ln a newdir"],
        ..Scenario::default()
    }
    .check(person);
}

fn modes_and_masks(person: Person) {
    Scenario {
        before: SOME,
        script: "
            umask; touch m1; mkdir d1
            umask 077; touch m2; mkdir d2; (umask 002; touch m3; mkdir d3); touch m4
            umask 022; touch m5; sh -c 'umask 0; : > m6; mkdir d6; mkfifo f6'
            python3 -c 'import os; os.umask(0o27); open(\"m7\",\"w\").close(); os.mkdir(\"d7\")
os.close(os.open(\"m8\", os.O_CREAT|os.O_WRONLY, 0o777)); os.chmod(\"m8\", 0o611)'
            chmod 4755 run.sh 2>/dev/null; echo $?; chmod +t d1; chmod 000 m1; cat m1 2>/dev/null; echo $?
            chmod 644 m1; echo ok > m1; chmod 555 d2; touch d2/x 2>/dev/null; echo $?; chmod 755 d2
            chmod 444 m2; (echo no > m2) 2>/dev/null; echo $?; rm -f m2
        ",
        fails: &["chmod 4755 run.sh", "cat m1", "touch d2/x", "( echo no > m2 )"],
        ..Scenario::default()
    }
    .check(person);
}

fn temporary_files(person: Person) {
    Scenario {
        before: SOME,
        script: "
            python3 - <<'END'
import os, tempfile
with tempfile.TemporaryDirectory(dir='.') as d:
    open(d + '/x', 'w').write('x')
with tempfile.NamedTemporaryFile(dir='.') as f:
    f.write(b'gone'); f.flush()
    assert os.path.getsize(f.name) == 4
with tempfile.TemporaryFile(dir='.') as f:
    f.write(b'nameless'); f.seek(0); assert f.read() == b'nameless'
fd = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o640)
os.write(fd, b'named later')
import ctypes; print(ctypes.CDLL(None).linkat(-100, b'/proc/self/fd/%d' % fd, -100, b'later', 0x400))
os.close(fd)
fd = os.open('a', os.O_TMPFILE | os.O_WRONLY, 0o600); os.write(fd, b'never'); os.close(fd)
fd, name = tempfile.mkstemp(dir='a'); os.write(fd, b'kept'); os.close(fd); os.rename(name, 'a/kept')
print(open('later').read(), oct(os.stat('later').st_mode))
END
            cp a/one .#one.tmp && mv .#one.tmp a/one
        ",
        ..Scenario::default()
    }
    .check(person);
}

fn in_place_edits(person: Person) {
    Scenario {
        before: "mkdir d; for n in $(seq 60); do printf 'line %s\\nfoo\\n' $n > d/$n; done; cp -a d e",
        script: "
            sed -i 's/foo/bar/' d/*; sed -i.bak 's/line/LINE/' e/1 e/2 e/3
            perl -i -pe 's/line/row/' e/[4-9]; perl -i.orig -ne 'print unless /foo/' e/1?
            printf '%s\\n' '1d' 'w' 'q' | ed -s e/20 2>/dev/null || sed -i 1d e/20
            awk '{print > \"awk-\" NR}' d/1; tac d/2 | sponge d/2 2>/dev/null || tac e/50 > d/2
            python3 -c 'import fileinput
for l in fileinput.input(\"e/30\", inplace=True): print(l.upper(), end=\"\")'
            patch -s -p0 <<'END' 2>/dev/null || sed -i 's/foo/patched/' e/40
--- e/40
+++ e/40
@@ -1,2 +1,2 @@
 line 40
-foo
+patched
END
        ",
        ..Scenario::default()
    }
    .check(person);
}

fn archives(person: Person) {
    Scenario {
        before: "
            mkdir -p s/sub; echo x > s/x; ln s/x s/sub/hard; ln -s x s/sym; mkfifo s/fifo
            python3 -c 'import os; os.setxattr(\"s/x\", b\"user.note\", b\"kept\")
os.setxattr(\"s/sub\", b\"user.dir\", b\"too\")'
            touch -d 2001-01-01 s/x; chmod 500 s/sub/. ; touch -d 2002-02-02 s/sub
            tar --xattrs -cpf s.tar s; gzip -k s.tar; chmod 700 s/sub",
        script: "
            mkdir o1 o2; tar --xattrs -xpf s.tar -C o1; tar -xzf s.tar.gz -C o2
            tar -cf again.tar s; tar -rf again.tar s.tar.gz; tar --delete -f again.tar s/x
            tar -xf s.tar s/x; tar --overwrite -xf s.tar; gunzip -f s.tar.gz; gzip -f s.tar
            python3 -c 'import os; print(os.getxattr(\"o1/s/x\", b\"user.note\"))
os.chmod(\"s/sub\", 0o700); os.setxattr(\"s/x\", b\"user.note\", b\"other\"); os.setxattr(\"s/x\", b\"user.more\", b\"1\")
os.removexattr(\"s/sub\", b\"user.dir\")
import zipfile; z = zipfile.ZipFile(\"z.zip\", \"w\"); z.write(\"s/x\"); z.close()'
        ",
        any_contents: &["again.tar", "s.tar.gz", "z.zip"],
        ..Scenario::default()
    }
    .check(person);
}

fn rsync(person: Person) {
    Scenario {
        before: SOME,
        script: "
            rsync -a --exclude pipe ./a/ synced/; echo changed > synced/one; rm synced/b/two
            rsync -aH --delete --exclude pipe a/ synced/; rsync -a --inplace a/one synced/one
            mkdir t; rsync -rt --remove-source-files large t/; rsync -a --backup run.sh t/large; ls t
        ",
        ..Scenario::default()
    }
    .check(person);
}

fn strange_names(person: Person) {
    Scenario {
        before: "printf x > $'new\\nline'; printf y > 'per%cent'; mkdir $'tab\\tdir'; printf z > ./-dash",
        script: "
            echo a > $'new\\nline'; mv 'per%cent' $'\\x01control'; echo b > $'tab\\tdir/\\xff\\xfe'
            rm -- -dash; echo c > 'ümläut'; echo d > '(deleted)'; mkdir 'x (deleted)'
            echo e > 'x (deleted)/e'; cd 'x (deleted)'; echo f > f; cd ..; mv '(deleted)' '\\040'
            name=$(printf 'n%.0s' $(seq 255)); echo long > \"$name\"; echo > \"${name}n\"; echo $?
            d=.; for n in $(seq 12); do d=$d/$(printf 'd%.0s' $(seq 200)); mkdir \"$d\"; done
            echo deep > \"$d/deep\"; cat \"$d/deep\"; (cd \"$d\" && echo deeper > relative)
            ls -A | wc -l
        ",
        fails: &["echo > \"${name}n\""],
        ..Scenario::default()
    }
    .check(person);
}

fn a_mix_that_is_hard_to_undo(person: Person) {
    Scenario {
        before: SOME,
        script: "
            mv a z; mkdir a; mv z a/z; echo one > a/one; mv a/z/b a/b; rm a/z/one
            mv large tmp; mv run.sh large; mv tmp run.sh; chmod 600 run.sh
            rm link; mkdir link; echo in > link/in; rm -r empty; echo file > empty
            rm pipe; mkdir pipe; rm folder-link; ln -s pipe folder-link; echo p > folder-link/p
            echo hard >> hard; rm hard; echo new > hard; ln hard a/b/hard-two -f
            rm -rf 'with space'; mv a/b 'with space'; rm nothing; mkdir -p nothing/at/all
            python3 -c 'import os; os.setxattr(\"large\", b\"user.x\", b\"y\")'
            touch -d 1999-01-01 run.sh .; chmod 711 .
        ",
        ..Scenario::default()
    }
    .check(person);
}
