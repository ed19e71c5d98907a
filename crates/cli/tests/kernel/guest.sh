#!/bin/sh
# The first process of a machine of its own: makes it habitable, tries things, says how each went,
# and turns it off. Everything here is from one program (busybox) but for cowork itself.
export PATH=/usr/bin HOME=/root NO_COLOR=1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts pts /dev/pts
for place in tmp run home; do mount -t tmpfs $place /$place; done
chmod 1777 /tmp
mkdir -p /home/user/work
mount -t cgroup2 groups /sys/fs/cgroup
ip link set lo up
# What the machine's firmware said has no end of line.
echo

GROUPS_=/sys/fs/cgroup
ALL="+cpu +memory +pids"
cowork=/opt/cowork/cowork

# says NAME EXPECTED FOUND
says() {
    if [ "$2" = "$3" ]; then echo "ok $1"; else echo "FAILED $1: expected [$2], found [$3]"; fi
}

# has NAME PART TEXT
has() {
    case "$3" in
        *"$2"*) echo "ok $1" ;;
        *) echo "FAILED $1: [$2] is not in [$3]" ;;
    esac
}

# Runs a program in a group, as root or as an ordinary user.
# in_group WHO GROUP PROGRAM ARGUMENT…
in_group() {
    who=$1
    group=$2
    shift 2
    if [ "$who" = root ]; then
        sh -c 'echo $$ > "$0/cgroup.procs" && cd /tmp && exec "$@"' "$group" "$@"
    else
        words=""
        for word in "$@"; do words="$words '$word'"; done
        sh -c 'echo $$ > "$0/cgroup.procs" && exec su user -s /bin/sh -c "cd /home/user; exec $1"' \
            "$group" "$words"
    fi
}

# Makes a group that is WHO's, as systemd delegates one. group_of WHO PATH
group_of() {
    mkdir "$2"
    if [ "$1" = user ]; then
        chown user:user "$2" "$2/cgroup.procs" "$2/cgroup.threads" "$2/cgroup.subtree_control"
    fi
}

# The groups in a group. children GROUP
children() {
    for child in "$1"/*/; do [ -d "$child" ] && basename "$child"; done
}

# The limits of the session in a group, as soon as there is one. limits GROUP
limits() {
    tries=0
    while [ $tries -lt 300 ]; do
        for session in "$1"/cowork-*/; do
            if [ -n "$(cat "$session/s/cgroup.procs" 2> /dev/null)" ]; then
                echo $(cat "$session/cpu.max" "$session/memory.max" "$session/pids.max")
                return
            fi
        done
        sleep 0.1
        tries=$((tries + 1))
    done
}

once="$cowork run --no-daemon --no-grants"

# A group that is the programs' own: they move to a leaf of it, and sessions are beside that.
own_group() {
    group_of $1 $slice/unit
    has "$1: all controllers of an own group" "cgroup v2 with memory, pids, cpu" \
        "$(in_group $1 $slice/unit $cowork doctor 2>&1)"
    says "$1: the programs are in a leaf" cowork.programs "$(children $slice/unit)"
    says "$1: and nobody is in the group" "" "$(cat $slice/unit/cgroup.procs)"
    leaf=$slice/unit/cowork.programs
    in_group $1 $leaf $once --cpus 0.5 --memory 64M --processes 20 -- sleep 5 &
    says "$1: limits of a session" "50000 100000 67108864 20" "$(limits $slice/unit)"
    wait
    bomb='i=0; while [ $i -lt 60 ]; do sleep 30 & i=$((i + 1)); done'
    has "$1: processes beyond the limit" "can.t fork" \
        "$(in_group $1 $leaf $once --processes 20 -- sh -c "$bomb" 2>&1 | sed "s/can't/can.t/")"
    has "$1: memory beyond the limit" "Killed" \
        "$(in_group $1 $leaf $once --memory 64M -- sh -c 'head -c 300000000 /dev/zero | tail' 2>&1)"
    says "$1: nothing is left but the leaf" cowork.programs "$(children $slice/unit)"
}

# Among others' processes nothing is shared out. The group above holds none; a limit on processes is
# not escaped on the way there.
terminal() {
    group_of $1 $slice/app
    echo $ALL > $slice/app/cgroup.subtree_control
    group_of $1 $slice/app/terminal
    echo 50 > $slice/app/terminal/pids.max
    sleep 1000 &
    bystander=$!
    echo $bystander > $slice/app/terminal/cgroup.procs
    in_group $1 $slice/app/terminal $once --cpus 0.5 --memory 64M --processes 400 -- sleep 5 &
    session=$!
    says "$1: limits above a terminal" "50000 100000 67108864 50" "$(limits $slice/app)"
    wait $session
    says "$1: the terminal shares nothing out" "" "$(cat $slice/app/terminal/cgroup.subtree_control)"
    says "$1: nothing is left but the terminal" terminal "$(children $slice/app)"
    kill $bystander
}

# Where nothing may be shared out, or a limit would be escaped, sessions are made all the same.
nowhere() {
    group_of $1 $slice/only
    if [ $1 = root ]; then echo "90000 100000" > $slice/only/cpu.max; fi
    sleep 1000 &
    bystander=$!
    echo $bystander > $slice/only/cgroup.procs
    has "$1: a session without controllers" well "$(in_group $1 $slice/only $once -- echo well 2>&1)"
    has "$1: a layer that this kernel lacks" "without \`Landlock: signals, abstract sockets\`" \
        "$(in_group $1 $slice/only $once -- true 2>&1)"
    has "$1: a limit that cannot be kept" "cannot be enforced" \
        "$(in_group $1 $slice/only $once --cpus 0.5 -- echo never 2>&1)"
    kill $bystander
}

# A program of the host's that the kernel shows what has crashed to, as most desktops have one.
printf '#!/bin/sh\necho seen >> /run/crashes\n' > /run/handler
chmod +x /run/handler
echo "|/run/handler" > /proc/sys/kernel/core_pattern

# How many crashes it has seen.
crashes() {
    sleep 0.5
    echo $(cat /run/crashes 2> /dev/null | wc -l)
}

# How a crash in a session ends. crash WHO WHAT-IS-DONE-BEFORE
crash() {
    in_group $1 $GROUPS_ $once -- sh -c "$2 kill -SEGV \$\$" > /dev/null 2>&1
    echo $?
}

# Crashes in sessions end as ever, and are not shown to it.
crashing() {
    says "$1: a crash ends by its signal" 139 "$(crash $1 "")"
    says "$1: so does one without core files" 139 "$(crash $1 "ulimit -c 0;")"
    says "$1: and one with all that can be had" 139 "$(crash $1 "ulimit -c unlimited;")"
    says "$1: and no crash in a session is seen" 1 "$(crashes)"
}

# What an attack says of itself: outside, and in a session. outside WHO ATTACK; inside WHO ATTACK PROFILE
outside() { in_group $1 $GROUPS_ cowork-escape attack $2; }
inside() { in_group $1 $GROUPS_ $once --profile $3 -- cowork-escape attack $2 2> /dev/null; }

# The calls of x32, which have other numbers: no filter here allows one.
x32() {
    has "$1: outside there is x32" "WON " "$(outside $1 call.x32)"
    has "$1: and what is its own" "WON " "$(outside $1 call.x32-own-numbers)"
    says "$1: in a session there is none" "LOST ENOSYS" "$(inside $1 call.x32 strict)"
    says "$1: nor in a nested one" "LOST ENOSYS" "$(inside $1 call.x32 nested)"
    says "$1: nor what is its own" "LOST ENOSYS" "$(inside $1 call.x32-own-numbers strict)"
    says "$1: nor that in a nested one" "LOST ENOSYS" "$(inside $1 call.x32-own-numbers nested)"
}

sh -c 'ulimit -c 0; kill -SEGV $$' 2> /dev/null
says "outside, a crash is seen whatever the limit on core files is" 1 "$(crashes)"

for person in user root; do
    crashing $person
    x32 $person
    slice=$GROUPS_/$person
    mkdir $slice
    echo $ALL > $GROUPS_/cgroup.subtree_control
    # Below it groups are the person's; the one above them all is not.
    echo $ALL > $slice/cgroup.subtree_control
    own_group $person
    nowhere $person
    if [ $person = user ]; then
        mkdir $slice/managed
        echo $ALL > $slice/managed/cgroup.subtree_control
        chown user:user $slice/managed $slice/managed/*.procs $slice/managed/cgroup.subtree_control
        slice=$slice/managed
    fi
    terminal $person
done

# Who has every capability sets a floor to how readily sessions are ended, which supervisors of other
# machines keep from root.
score="cowork-escape attack oom-score-of-the-host oom-score=0"
has "outside, a process takes its score back" "WON " "$(in_group root $GROUPS_ $score)"
says "a session of root's keeps its own" "LOST EACCES" \
    "$(in_group root $GROUPS_ $once -- $score inside=yes 2> /dev/null)"

# The daemon, live folders and undo. As an ordinary user: this kernel cannot show the files of a file
# system in memory as another's, which root's sessions need.
chown -R user:user /home/user
as_user() { in_group user $GROUPS_ "$@" 2>&1; }
echo before > /home/user/work/kept
echo gone > /home/user/work/removed
chown -R user:user /home/user
as_user $cowork new --id tried-here --grant work > /dev/null
as_user $cowork exec tried-here -- sh -c \
    'cd mnt/work; echo more >> kept; rm removed; mkdir d; echo x > d/x; mv d/x d/y; ln -s kept link'
says "changes are real" "before more d kept link y" \
    "$(echo $(cat /home/user/work/kept; ls /home/user/work /home/user/work/d | grep -v : ))"
has "and can be undone" "names brought back" "$(as_user $cowork undo tried-here)"
says "undone is as it was" "before kept removed" \
    "$(echo $(cat /home/user/work/kept; ls /home/user/work))"
mkdir /home/user/late
echo canary > /home/user/late/file
chown -R user:user /home/user/late
as_user $cowork grant tried-here late:ro > /dev/null
says "a folder appears" canary "$(as_user $cowork exec tried-here -- cat mnt/late/file)"
has "and goes" "the kernel says so" "$(as_user $cowork revoke tried-here late)"
has "for good" "No such file" "$(as_user $cowork exec tried-here -- cat mnt/late/file)"
as_user $cowork pause tried-here > /dev/null
has "it is paused" "paused" "$(as_user $cowork status tried-here)"
as_user $cowork resume tried-here > /dev/null
says "and goes on" well "$(as_user $cowork exec tried-here -- echo well)"
# A file that the broker refuses, opened by a call that it is not handed.
canary=/home/user/mnt/yard/ground-x32/protected/canary
mkdir -p ${canary%/*}
echo untouched > $canary
chown -R user:user /home/user/mnt
as_user $cowork grant tried-here mnt/yard > /dev/null
as_user $cowork protect add tried-here 'protected/**' --deny --grant yard > /dev/null
says "a refused file is not opened by x32" "LOST ENOSYS" \
    "$(as_user $cowork exec tried-here -- cowork-escape attack handle.x32 token=x32)"
says "and stays as it was" untouched "$(cat $canary)"
has "outside, it is opened" "WON " "$(as_user cowork-escape attack handle.x32 token=x32)"
says "and changed" "x32ouched" "$(cat $canary)"
as_user $cowork rm tried-here > /dev/null
has "the record is whole" "whole" "$(as_user $cowork audit verify)"
as_user $cowork daemon --stop > /dev/null
echo "all of it was tried"
poweroff -f
