//! Editors, and programs that save as editors do.

use crate::for_everyone;
use crate::scenario::Scenario;
use cowork_testbed::Person;

for_everyone!(vim, atomic_saves);

fn vim(person: Person) {
    Scenario {
        before: "printf 'one\\ntwo\\n' > a; cp a b; cp a c; cp a d; chmod 600 b; ln d d2",
        script: "
            vi() { vim -n -u NONE -es -c \"set nocompatible\" \"$@\"; }
            vi -c '1s/one/ONE/' -c wq a; vi -c 'set backupcopy=no' -c '$d' -c wq b
            vi -c 'set backup backupcopy=yes' -c 'normal Gohello' -c wq c; vi -c 'set backupcopy=auto' -c '1d' -c wq d
            vim -u NONE -es -c 'set swapfile directory=.' -c 'normal ix' -c wq e; cat a b c d e d2; ls -A
        ",
        ..Scenario::default()
    }
    .check(person);
}

fn atomic_saves(person: Person) {
    Scenario {
        before: "mkdir s; for n in 1 2 3 4; do echo $n > s/$n; done; chmod 640 s/2; ln -s 3 s/link",
        script: "
            python3 - <<'END'
import os
def save(path, text, keep):
    tmp = path + '.tmp'
    with open(tmp, 'w') as f:
        f.write(text); f.flush(); os.fsync(f.fileno())
    if keep: os.chmod(tmp, os.stat(path).st_mode & 0o777)
    os.replace(tmp, path)
    d = os.open(os.path.dirname(path), os.O_RDONLY); os.fsync(d); os.close(d)
save('s/1', 'saved', False); save('s/2', 'saved', True); save(os.path.realpath('s/link'), 'saved', True)
os.rename('s/4', 's/4~'); open('s/4', 'w').write('new'); os.unlink('s/4~')
END
            ls -l s | awk '{print $1, $9}'
        ",
        ..Scenario::default()
    }
    .check(person);
}
