#compdef cowork

autoload -U is-at-least

_cowork() {
    typeset -A opt_args
    typeset -a _arguments_options
    local ret=1

    if is-at-least 5.2; then
        _arguments_options=(-s -S -C)
    else
        _arguments_options=(-s -C)
    fi

    local context curcontext="$curcontext" state line
    _arguments "${_arguments_options[@]}" : \
'-h[Print help]' \
'--help[Print help]' \
'-V[Print version]' \
'--version[Print version]' \
":: :_cowork_commands" \
"*::: :->cowork" \
&& ret=0
    case $state in
    (cowork)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:cowork-command-$line[1]:"
        case $line[1] in
            (run)
_arguments "${_arguments_options[@]}" : \
'*--grant=[A folder to grant, as \`PATH\[\:ro|rw|direct|staged\]\[=NAME\]\`; without any, \`run\` and \`explain\` grant the current folder]:GRANT:_default' \
'--profile=[The walls around the session\: \`strict\`, or \`nested\` for programs that bring a sandbox of their own (Chromium, bwrap)]:PROFILE:_default' \
'--home=[Keep the session'\''s home in this folder]:FOLDER:_files' \
'--outputs=[Show this folder as mnt/outputs, so that deliverables stay]:FOLDER:_files' \
'--skills=[Show this folder read-only as mnt/skills\: what an agent is to know how to do]:FOLDER:_files' \
'*--direct=[A folder below each \`rw\` grant that is written without a record, at full speed, e.g. \`node_modules\`]:SUBFOLDER:_files' \
'--guard=[Ask when a command removes or overwrites more than so many files; \`off\` for never]:NUMBER|off:_default' \
'--quota=[Most bytes that may be added to a folder, e.g. 2G]:BYTES:_default' \
'--quota-files=[Most files that may be added to a folder]:NUMBER:_default' \
'*--block=[Refuse files that end in this too, e.g. \`zip\`]:ENDING:_default' \
'*--unblock=[Do not refuse files that end in this, e.g. \`jar\`]:ENDING:_default' \
'*--allow=[A host that the session may reach, e.g. \`pypi.org\`; without any rule there is no network]:RULE:_default' \
'*--deny=[A host that it may not reach, whatever else allows it; all of its ports unless some are named]:RULE:_default' \
'*--ask=[A host that it may reach if you say so when it tries]:RULE:_default' \
'--net=[What becomes of hosts that no rule is about; \`off\` without any rule, else \`deny\`]:WORD:((off\:"There is no network at all"
deny\:"They are refused"
ask\:"You are asked; what wants to reach them waits for your answer"))' \
'--headless=[Nobody is there to be asked\: what would wait for your answer is refused at once]::WHEN:((auto\:"Nobody is where \`run\` has no terminal, neither for input nor for errors, and no \`--json\`"
always\:"Nobody is"
never\:"Somebody is\: at another terminal, or a program"))' \
'*--preset=[Hosts that belong together, e.g. \`github\`; \`cowork net presets\` lists them]:NAME:_default' \
'*--secret=[A secret that its requests get on their way, kept with \`cowork secret set\`]:NAME:_default' \
'--policy=[A file of rules in TOML; options add to it]:FILE:_files' \
'--memory=[Most memory of the whole session, e.g. 4G]:BYTES:_default' \
'--cpus=[Most processors of the whole session, e.g. 1.5]:NUMBER:_default' \
'--processes=[Most processes and threads of the whole session]:NUMBER:_default' \
'--open-files=[Most open files of each process]:NUMBER:_default' \
'--scratch=[Most space in memory\: /tmp and the like, together with a home that is not kept]:BYTES:_default' \
'--timeout=[End the session after this time, e.g. 90s, 5m]:TIME:_default' \
'--id=[The session'\''s id, e.g. zealous-ramanujan; made up without it]:ID:_default' \
'*--env=[Set a variable for the command, or pass one of yours by its name alone]:NAME[=VALUE]:_default' \
'--cd=[The folder in the session to start in; without it, the session'\''s own]:FOLDER:_files' \
'(--grant)--no-grants[Grant no folder at all, not even the current one]' \
'--force[Grant folders even if they hold keys, passwords or cowork'\''s own state]' \
'--debugger[Let debuggers and tracers work inside the session]' \
'--best-effort[Accept limits that this host can only approximate]' \
'(--cd)--here[Start in the current folder, as the session sees it]' \
'-v[Say on standard error which protection is in force]' \
'--verbose[Say on standard error which protection is in force]' \
'(--json)--no-daemon[Make the session without the daemon\: nothing is recorded or listed]' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'*::command -- The command and its arguments; cowork'\''s own options end at its first word:_default' \
&& ret=0
;;
(new)
_arguments "${_arguments_options[@]}" : \
'*--grant=[A folder to grant, as \`PATH\[\:ro|rw|direct|staged\]\[=NAME\]\`; without any, \`run\` and \`explain\` grant the current folder]:GRANT:_default' \
'--profile=[The walls around the session\: \`strict\`, or \`nested\` for programs that bring a sandbox of their own (Chromium, bwrap)]:PROFILE:_default' \
'--home=[Keep the session'\''s home in this folder]:FOLDER:_files' \
'--outputs=[Show this folder as mnt/outputs, so that deliverables stay]:FOLDER:_files' \
'--skills=[Show this folder read-only as mnt/skills\: what an agent is to know how to do]:FOLDER:_files' \
'*--direct=[A folder below each \`rw\` grant that is written without a record, at full speed, e.g. \`node_modules\`]:SUBFOLDER:_files' \
'--guard=[Ask when a command removes or overwrites more than so many files; \`off\` for never]:NUMBER|off:_default' \
'--quota=[Most bytes that may be added to a folder, e.g. 2G]:BYTES:_default' \
'--quota-files=[Most files that may be added to a folder]:NUMBER:_default' \
'*--block=[Refuse files that end in this too, e.g. \`zip\`]:ENDING:_default' \
'*--unblock=[Do not refuse files that end in this, e.g. \`jar\`]:ENDING:_default' \
'*--allow=[A host that the session may reach, e.g. \`pypi.org\`; without any rule there is no network]:RULE:_default' \
'*--deny=[A host that it may not reach, whatever else allows it; all of its ports unless some are named]:RULE:_default' \
'*--ask=[A host that it may reach if you say so when it tries]:RULE:_default' \
'--net=[What becomes of hosts that no rule is about; \`off\` without any rule, else \`deny\`]:WORD:((off\:"There is no network at all"
deny\:"They are refused"
ask\:"You are asked; what wants to reach them waits for your answer"))' \
'--headless=[Nobody is there to be asked\: what would wait for your answer is refused at once]::WHEN:((auto\:"Nobody is where \`run\` has no terminal, neither for input nor for errors, and no \`--json\`"
always\:"Nobody is"
never\:"Somebody is\: at another terminal, or a program"))' \
'*--preset=[Hosts that belong together, e.g. \`github\`; \`cowork net presets\` lists them]:NAME:_default' \
'*--secret=[A secret that its requests get on their way, kept with \`cowork secret set\`]:NAME:_default' \
'--policy=[A file of rules in TOML; options add to it]:FILE:_files' \
'--memory=[Most memory of the whole session, e.g. 4G]:BYTES:_default' \
'--cpus=[Most processors of the whole session, e.g. 1.5]:NUMBER:_default' \
'--processes=[Most processes and threads of the whole session]:NUMBER:_default' \
'--open-files=[Most open files of each process]:NUMBER:_default' \
'--scratch=[Most space in memory\: /tmp and the like, together with a home that is not kept]:BYTES:_default' \
'--timeout=[End the session after this time, e.g. 90s, 5m]:TIME:_default' \
'--id=[The session'\''s id, e.g. zealous-ramanujan; made up without it]:ID:_default' \
'--disk=[Most space on disk of home and outputs together, e.g. 10G; the session is paused beyond it]:BYTES:_default' \
'*--label=[A name and a value to find the session by]:NAME=VALUE:_default' \
'--workspace=[A name at the top of the session'\''s file system for the first granted folder, e.g. workspace]:NAME:_default' \
'(--grant)--no-grants[Grant no folder at all, not even the current one]' \
'--force[Grant folders even if they hold keys, passwords or cowork'\''s own state]' \
'--debugger[Let debuggers and tracers work inside the session]' \
'--best-effort[Accept limits that this host can only approximate]' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(ls)
_arguments "${_arguments_options[@]}" : \
'--state=[Only sessions in this state]:STATE:(creating ready running paused stopped failed ended)' \
'*--label=[Only sessions with this label]:NAME=VALUE:_default' \
'(--json)-q[Only ids, one on a line]' \
'(--json)--quiet[Only ids, one on a line]' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(status)
_arguments "${_arguments_options[@]}" : \
'--process=[Only whether a process runs, by its name, or by its id in the session or on this host]:NAME|PID:_default' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
'::session -- The session; without it the one named `default`:_default' \
&& ret=0
;;
(exec)
_arguments "${_arguments_options[@]}" : \
'*--env=[Set a variable for the command, or pass one of yours by its name alone]:NAME[=VALUE]:_default' \
'--cd=[The folder in the session to start in; without it, the session'\''s own]:FOLDER:_files' \
'--timeout=[Cancel the command after this time, e.g. 90s, 5m]:TIME:_default' \
'(--cd)--here[Start in the current folder, as the session sees it]' \
'-d[Leave the command running and print its number]' \
'--detach[Leave the command running and print its number]' \
'-t[Give the command a terminal even if none of your streams is one]' \
'--terminal[Give the command a terminal even if none of your streams is one]' \
'-n[Send nothing of standard input]' \
'--no-stdin[Send nothing of standard input]' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
'*::words -- The session; without it the one named `default`. Without a command\: a line for the shell of the default session:_default' \
&& ret=0
;;
(shell)
_arguments "${_arguments_options[@]}" : \
'*--env=[Set a variable for the shell, or pass one of yours by its name alone]:NAME[=VALUE]:_default' \
'--cd=[The folder in the session to start in; without it, the session'\''s own]:FOLDER:_files' \
'(--cd)--here[Start in the current folder, as the session sees it]' \
'-h[Print help]' \
'--help[Print help]' \
'::session -- The session; without it the one named `default`:_default' \
&& ret=0
;;
(claude)
_arguments "${_arguments_options[@]}" : \
'--program=[The agent'\''s program on this host, in place of the one on your PATH]:PATH:_files' \
'--secret=[The secret that the agent proves itself with, if several are stored]:NAME:_default' \
'*--env=[Set a variable for the agent, or pass one of yours by its name alone]:NAME[=VALUE]:_default' \
'()--new[Make a new session, even if there is one for this folder]' \
'()--nested[Let the agent use a sandbox of its own inside the session. Changes of the folder are not recorded then, unless they are staged]' \
'()--staged[Let changes of the folder wait until \`cowork apply\`]' \
'()--force[Grant the current folder even if it holds keys, passwords or cowork'\''s own state]' \
'(--program)--install[Install the agent in the session'\''s home with npm, and use that one]' \
'-h[Print help]' \
'--help[Print help]' \
'::session -- The session; without it one for the current folder:_default' \
'*::arguments -- Arguments for the agent:_default' \
&& ret=0
;;
(codex)
_arguments "${_arguments_options[@]}" : \
'--program=[The agent'\''s program on this host, in place of the one on your PATH]:PATH:_files' \
'--secret=[The secret that the agent proves itself with, if several are stored]:NAME:_default' \
'*--env=[Set a variable for the agent, or pass one of yours by its name alone]:NAME[=VALUE]:_default' \
'()--new[Make a new session, even if there is one for this folder]' \
'()--nested[Let the agent use a sandbox of its own inside the session. Changes of the folder are not recorded then, unless they are staged]' \
'()--staged[Let changes of the folder wait until \`cowork apply\`]' \
'()--force[Grant the current folder even if it holds keys, passwords or cowork'\''s own state]' \
'(--program)--install[Install the agent in the session'\''s home with npm, and use that one]' \
'-h[Print help]' \
'--help[Print help]' \
'::session -- The session; without it one for the current folder:_default' \
'*::arguments -- Arguments for the agent:_default' \
&& ret=0
;;
(gemini)
_arguments "${_arguments_options[@]}" : \
'--program=[The agent'\''s program on this host, in place of the one on your PATH]:PATH:_files' \
'--secret=[The secret that the agent proves itself with, if several are stored]:NAME:_default' \
'*--env=[Set a variable for the agent, or pass one of yours by its name alone]:NAME[=VALUE]:_default' \
'()--new[Make a new session, even if there is one for this folder]' \
'()--nested[Let the agent use a sandbox of its own inside the session. Changes of the folder are not recorded then, unless they are staged]' \
'()--staged[Let changes of the folder wait until \`cowork apply\`]' \
'()--force[Grant the current folder even if it holds keys, passwords or cowork'\''s own state]' \
'(--program)--install[Install the agent in the session'\''s home with npm, and use that one]' \
'-h[Print help]' \
'--help[Print help]' \
'::session -- The session; without it one for the current folder:_default' \
'*::arguments -- Arguments for the agent:_default' \
&& ret=0
;;
(opencode)
_arguments "${_arguments_options[@]}" : \
'--program=[The agent'\''s program on this host, in place of the one on your PATH]:PATH:_files' \
'--secret=[The secret that the agent proves itself with, if several are stored]:NAME:_default' \
'*--env=[Set a variable for the agent, or pass one of yours by its name alone]:NAME[=VALUE]:_default' \
'()--new[Make a new session, even if there is one for this folder]' \
'()--nested[Let the agent use a sandbox of its own inside the session. Changes of the folder are not recorded then, unless they are staged]' \
'()--staged[Let changes of the folder wait until \`cowork apply\`]' \
'()--force[Grant the current folder even if it holds keys, passwords or cowork'\''s own state]' \
'(--program)--install[Install the agent in the session'\''s home with npm, and use that one]' \
'-h[Print help]' \
'--help[Print help]' \
'::session -- The session; without it one for the current folder:_default' \
'*::arguments -- Arguments for the agent:_default' \
&& ret=0
;;
(agent)
_arguments "${_arguments_options[@]}" : \
'--program=[The agent'\''s program on this host, in place of the one on your PATH]:PATH:_files' \
'--secret=[The secret that the agent proves itself with, if several are stored]:NAME:_default' \
'*--env=[Set a variable for the agent, or pass one of yours by its name alone]:NAME[=VALUE]:_default' \
'()--new[Make a new session, even if there is one for this folder]' \
'()--nested[Let the agent use a sandbox of its own inside the session. Changes of the folder are not recorded then, unless they are staged]' \
'()--staged[Let changes of the folder wait until \`cowork apply\`]' \
'()--force[Grant the current folder even if it holds keys, passwords or cowork'\''s own state]' \
'(--program)--install[Install the agent in the session'\''s home with npm, and use that one]' \
'-h[Print help]' \
'--help[Print help]' \
':name -- The agent, as `cowork agents` lists it:_default' \
'::session -- The session; without it one for the current folder:_default' \
'*::arguments -- Arguments for the agent:_default' \
&& ret=0
;;
(agents)
_arguments "${_arguments_options[@]}" : \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(ask)
_arguments "${_arguments_options[@]}" : \
'--session=[The session; without it one for the current folder]:SESSION:_default' \
'--agent=[The agent]:NAME:_default' \
'--model=[The model, as the agent calls it]:MODEL:_default' \
'--program=[The agent'\''s program on this host, in place of the one on your PATH]:FILE:_files' \
'--secret=[The secret that the agent proves itself with, in place of the first one that is stored]:NAME:_default' \
'(--session)--new[Make a new session, even if there is one for this folder]' \
'(--no)--yes[Let the agent use every tool without asking; the session'\''s limits hold as ever]' \
'--no[Refuse every tool that has to be asked for]' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
':prompt -- What is to be done; `-` to read it from standard input:_default' \
&& ret=0
;;
(tasks)
_arguments "${_arguments_options[@]}" : \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
'::session -- The session; without it all:_default' \
&& ret=0
;;
(task)
_arguments "${_arguments_options[@]}" : \
'-h[Print help]' \
'--help[Print help]' \
":: :_cowork__subcmd__task_commands" \
"*::: :->task" \
&& ret=0

    case $state in
    (task)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:cowork-task-command-$line[1]:"
        case $line[1] in
            (show)
_arguments "${_arguments_options[@]}" : \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
':session -- The session:_default' \
'::task -- The number of the task; without it the last one:_default' \
&& ret=0
;;
(steer)
_arguments "${_arguments_options[@]}" : \
'--say=[What is said; \`-\` to read it from standard input]:TEXT:_default' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
':session -- The session:_default' \
'::task -- The number of the task; without it the last one:_default' \
&& ret=0
;;
(pause)
_arguments "${_arguments_options[@]}" : \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
':session -- The session:_default' \
'::task -- The number of the task; without it the last one:_default' \
&& ret=0
;;
(resume)
_arguments "${_arguments_options[@]}" : \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
':session -- The session:_default' \
'::task -- The number of the task; without it the last one:_default' \
&& ret=0
;;
(cancel)
_arguments "${_arguments_options[@]}" : \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
':session -- The session:_default' \
'::task -- The number of the task; without it the last one:_default' \
&& ret=0
;;
        esac
    ;;
esac
;;
(srt)
_arguments "${_arguments_options[@]}" : \
'-s+[The settings \[default\: ~/.srt-settings.json, if it is there\]]:FILE:_files' \
'--settings=[The settings \[default\: ~/.srt-settings.json, if it is there\]]:FILE:_files' \
'-c+[Run a line of the shell, as it is]:LINE:_default' \
'--control-fd=[Read settings from this open descriptor while the command runs, one document a line]:DESCRIPTOR:_default' \
'-V[Say which version of srt this stands in for]' \
'--version[Say which version of srt this stands in for]' \
'-d[Say on standard error what is done]' \
'--debug[Say on standard error what is done]' \
'-h[Print help]' \
'--help[Print help]' \
'*::command -- The command and its arguments; options end at its first word:_default' \
&& ret=0
;;
(policy)
_arguments "${_arguments_options[@]}" : \
'-h[Print help]' \
'--help[Print help]' \
":: :_cowork__subcmd__policy_commands" \
"*::: :->policy" \
&& ret=0

    case $state in
    (policy)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:cowork-policy-command-$line[1]:"
        case $line[1] in
            (import)
_arguments "${_arguments_options[@]}" : \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':from -- Whose settings:((srt\:"Those of srt"
claude-code\:"Those of Claude Code"))' \
'::file -- The file \[default\: ~/.srt-settings.json, or ~/.claude/settings.json\]:_files' \
&& ret=0
;;
        esac
    ;;
esac
;;
(logs)
_arguments "${_arguments_options[@]}" : \
'--from=[Start at this byte of the output]:OFFSET:_default' \
'--stream=[Only this stream]:STREAM:((all\:"In the order in which they were written"
stdout\:"Standard output"
stderr\:"Standard error"
terminal\:"The command'\''s terminal"))' \
'-f[Go on until the command has ended]' \
'--follow[Go on until the command has ended]' \
'--raw[Write bytes as they are]' \
'--force[With --raw\: also onto a terminal, which may act on them]' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'::session -- The session; without it the one named `default`:_default' \
'::number -- The command'\''s number; without it the last one that was started:_default' \
&& ret=0
;;
(attach)
_arguments "${_arguments_options[@]}" : \
'--from=[Start at this byte of the output; without it only what is new is shown]:OFFSET:_default' \
'-n[Send nothing of standard input]' \
'--no-stdin[Send nothing of standard input]' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
'::session -- The session; without it the one named `default`:_default' \
'::number -- The command'\''s number; without it the last one that was started:_default' \
&& ret=0
;;
(grant)
_arguments "${_arguments_options[@]}" : \
'--for=[Revoke it by itself after this time, e.g. \`2h\`]:TIME:_default' \
'*--direct=[A folder below each \`rw\` grant that is written without a record, at full speed, e.g. \`node_modules\`]:SUBFOLDER:_files' \
'--guard=[Ask when a command removes or overwrites more than so many files; \`off\` for never]:NUMBER|off:_default' \
'--quota=[Most bytes that may be added to a folder, e.g. 2G]:BYTES:_default' \
'--quota-files=[Most files that may be added to a folder]:NUMBER:_default' \
'*--block=[Refuse files that end in this too, e.g. \`zip\`]:ENDING:_default' \
'*--unblock=[Do not refuse files that end in this, e.g. \`jar\`]:ENDING:_default' \
'--force[Grant it even if it holds keys, passwords or cowork'\''s own state]' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
':session -- The session:_default' \
':folder -- The folder, as `PATH\[\:ro|rw|direct|staged\]\[=NAME\]`:_default' \
&& ret=0
;;
(revoke)
_arguments "${_arguments_options[@]}" : \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
':session -- The session:_default' \
':name -- The name of the granted folder in the session:_default' \
&& ret=0
;;
(changes)
_arguments "${_arguments_options[@]}" : \
'--set=[Only the changes of this set]:NUMBER:_default' \
'-v[Show also which program made each change]' \
'--verbose[Show also which program made each change]' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
':session -- The session:_default' \
'::path -- Only this path and what is below\: of this host, or /sessions/ID/mnt/...:_files' \
&& ret=0
;;
(diff)
_arguments "${_arguments_options[@]}" : \
'--set=[Only the changes of this set]:NUMBER:_default' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
':session -- The session:_default' \
'*::paths -- Only these paths and what is below\: of this host, or /sessions/ID/mnt/...:_files' \
&& ret=0
;;
(undo)
_arguments "${_arguments_options[@]}" : \
'*--set=[Only this set, from \`cowork changes\`]:NUMBER:_default' \
'(--set)--all[Every set]' \
'(--theirs --both)--ours[Leave what you have changed since as it is]' \
'(--both)--theirs[Bring back what was, over what you have changed since; \`cowork redo\` takes that back]' \
'--both[Bring back what was, and keep what you have changed since beside it]' \
'--dry-run[Say what would be done, and do nothing]' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
':session -- The session:_default' \
'*::paths -- Only these paths and what is below\: of this host, or /sessions/ID/mnt/...:_files' \
&& ret=0
;;
(redo)
_arguments "${_arguments_options[@]}" : \
'(--theirs --both)--ours[Leave what you have changed since as it is]' \
'(--both)--theirs[Bring back what was, over what you have changed since; \`cowork redo\` takes that back]' \
'--both[Bring back what was, and keep what you have changed since beside it]' \
'--dry-run[Say what would be done, and do nothing]' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
':session -- The session:_default' \
&& ret=0
;;
(history)
_arguments "${_arguments_options[@]}" : \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
'::path -- Only what is about this file or folder:_files' \
&& ret=0
;;
(apply)
_arguments "${_arguments_options[@]}" : \
'(--theirs --both)--ours[Leave what you have changed since as it is]' \
'(--both)--theirs[Bring back what was, over what you have changed since; \`cowork redo\` takes that back]' \
'--both[Bring back what was, and keep what you have changed since beside it]' \
'--dry-run[Say what would be done, and do nothing]' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
':session -- The session:_default' \
'*::paths -- Only these paths and what is below\: of this host, or /sessions/ID/mnt/...:_files' \
&& ret=0
;;
(discard)
_arguments "${_arguments_options[@]}" : \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
':session -- The session:_default' \
'*::folders -- Only these granted folders:_files' \
&& ret=0
;;
(protect)
_arguments "${_arguments_options[@]}" : \
'-h[Print help]' \
'--help[Print help]' \
":: :_cowork__subcmd__protect_commands" \
"*::: :->protect" \
&& ret=0

    case $state in
    (protect)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:cowork-protect-command-$line[1]:"
        case $line[1] in
            (list)
_arguments "${_arguments_options[@]}" : \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
':session -- The session:_default' \
&& ret=0
;;
(add)
_arguments "${_arguments_options[@]}" : \
'--grant=[Only in this granted folder]:NAME:_default' \
'--reason=[Why, for whoever is asked or refused]:TEXT:_default' \
'(--deny --flag --allow)--ask[Ask you before it is changed; so without another option]' \
'(--flag --allow)--deny[Refuse changes]' \
'(--allow)--flag[Mark it among the changes]' \
'--allow[Nothing in particular]' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
':session -- The session:_default' \
':pattern -- Which names:_default' \
&& ret=0
;;
(remove)
_arguments "${_arguments_options[@]}" : \
'--grant=[Only the rule about this granted folder]:NAME:_default' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
':session -- The session:_default' \
':pattern -- The rule'\''s pattern:_default' \
&& ret=0
;;
        esac
    ;;
esac
;;
(allow)
_arguments "${_arguments_options[@]}" : \
'*--preset=[Hosts that belong together, e.g. \`github\`]:NAME:_default' \
'(--remove)*--method=[Only requests with this method, e.g. GET]:METHOD:_default' \
'(--remove)*--path=[Only requests for this path; \`*\` is anything within one part of it, \`**\` anything]:PATH:_default' \
'(--remove)--tls=[Whether what is inside TLS is looked into; where the rule needs it without this]:WORD:((inspect\:"Always\: by an authority that only this session trusts"
tunnel\:"Never\: it passes as it is"))' \
'(--remove)*--resolves-to=[Private addresses that the names may lead to, e.g. 10.20.0.0/16]:NETWORK:_default' \
'(--remove)--secret=[A secret that the requests get on their way; without a RULE, those to all hosts of the secret]:NAME:_default' \
'(--remove)--upload=[Most bytes sent in a time, e.g. 200M/1h]:BYTES/TIME:_default' \
'(--remove)--requests=[Most requests in a time, e.g. 120/1m]:NUMBER/TIME:_default' \
'(--remove)--connections=[Most connections at a time]:NUMBER:_default' \
'(--remove)--capture=[Keep so much of each body, at most 1MB; they are looked into for it, and \`cowork net har\` has them]:BYTES:_default' \
'--remove[Take these allowances away]' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':session -- The session:_default' \
'*::rules -- The hosts, as in `cowork run --allow`:_default' \
&& ret=0
;;
(deny)
_arguments "${_arguments_options[@]}" : \
'(--remove)--reason=[Told to whoever is refused]:TEXT:_default' \
'--remove[Take these denials away]' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
':session -- The session:_default' \
'*::rules -- The hosts, as in `cowork run --allow`:_default' \
&& ret=0
;;
(net)
_arguments "${_arguments_options[@]}" : \
'-w[Look again every second, until interrupted]' \
'--watch[Look again every second, until interrupted]' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
'::session -- The session; without it the one named `default`:_default' \
":: :_cowork__subcmd__net_commands" \
"*::: :->net" \
&& ret=0

    case $state in
    (net)
        words=($line[2] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:cowork-net-command-$line[2]:"
        case $line[2] in
            (rules)
_arguments "${_arguments_options[@]}" : \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
'::session -- The session; without it the one named `default`:_default' \
&& ret=0
;;
(standing)
_arguments "${_arguments_options[@]}" : \
'--remove=[Take this rule away, named as it is shown]:RULE:_default' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(explain)
_arguments "${_arguments_options[@]}" : \
'--method=[The method of the request, e.g. POST]:METHOD:_default' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
':session -- The session:_default' \
':url -- Where to\: an address of the web, or `HOST\:PORT`:_default' \
&& ret=0
;;
(har)
_arguments "${_arguments_options[@]}" : \
'-o+[The file to write; standard output without it]:FILE:_files' \
'--output=[The file to write; standard output without it]:FILE:_files' \
'-h[Print help]' \
'--help[Print help]' \
'::session -- The session; without it the one named `default`:_default' \
&& ret=0
;;
(presets)
_arguments "${_arguments_options[@]}" : \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
        esac
    ;;
esac
;;
(secret)
_arguments "${_arguments_options[@]}" : \
'-h[Print help]' \
'--help[Print help]' \
":: :_cowork__subcmd__secret_commands" \
"*::: :->secret" \
&& ret=0

    case $state in
    (secret)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:cowork-secret-command-$line[1]:"
        case $line[1] in
            (set)
_arguments "${_arguments_options[@]}" : \
'*--host=[A host that may get it, as in \`cowork run --allow\`]:HOST:_default' \
'--mode=[How it is used]:MODE:((swap\:"The placeholder that the session knows is replaced where it appears"
inject\:"Every request to the hosts gets it"
pin\:"Every request to the hosts gets it, and one that brings another credential is refused"))' \
'--as=[Where it is put\: \`bearer\`, \`basic\:USER\`, \`header\:NAME\`, \`query\:NAME\` or \`aws\`]:PLACE:_default' \
'--env=[A variable of the session'\''s commands that holds the placeholder, e.g. \`GITHUB_TOKEN\`]:VARIABLE:_default' \
'*--for=[The program that is to find it\: its file or variable holds the placeholder]:CLIENT:((git\:"git over HTTPS\: \`.git-credentials\`"
netrc\:"curl -n, wget, git, pip and Python'\''s requests\: \`.netrc\`"
npm\:"npm\: \`.npmrc\`"
pypi\:"pip and twine\: \`.netrc\`, as the user \`__token__\`"
cargo\:"cargo\: \`CARGO_REGISTRY_TOKEN\`"))' \
'--user=[The user that it belongs to, in files that name one]:NAME:_default' \
'*--file=[A file in the session'\''s home\: \`{secret}\` in its contents stands for the placeholder]:NAME=CONTENTS:_default' \
'--oauth[The value is JSON with tokens of OAuth 2.0, which are renewed on this host]' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':name -- Its name:_default' \
'*::values -- Values that do not belong here\: they are refused without being repeated:_default' \
&& ret=0
;;
(import)
_arguments "${_arguments_options[@]}" : \
'--from=[The file with its tokens \[default\: ~/.claude/.credentials.json\]]:FILE:_files' \
'--name=[The secret'\''s name \[default\: the one that the agent looks for, \`claude-oauth\`\]]:NAME:_default' \
'*--host=[A host that may get it \[default\: those of the program\]]:HOST:_default' \
'--token-url=[Where the tokens are renewed \[default\: that of the program\]]:URL:_default' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':program -- The program:((claude\:"Claude Code\: what \`claude\` signed in with on this host"))' \
&& ret=0
;;
(ls)
_arguments "${_arguments_options[@]}" : \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(rm)
_arguments "${_arguments_options[@]}" : \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
':name -- Its name:_default' \
&& ret=0
;;
        esac
    ;;
esac
;;
(publish)
_arguments "${_arguments_options[@]}" : \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
':session -- The session:_default' \
':ports -- The port in the session, and the one at this host'\''s loopback if it is another:_default' \
&& ret=0
;;
(unpublish)
_arguments "${_arguments_options[@]}" : \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
':session -- The session:_default' \
':outside -- The port at this host'\''s loopback:_default' \
&& ret=0
;;
(requests)
_arguments "${_arguments_options[@]}" : \
'-a[Also those that were answered]' \
'--all[Also those that were answered]' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
'::session -- Only requests of this session:_default' \
&& ret=0
;;
(decide)
_arguments "${_arguments_options[@]}" : \
'--path=[The folder that is meant]:FOLDER:_files' \
'--name=[Its name in the session]:NAME:_default' \
'--note=[A word to the one who asked]:TEXT:_default' \
'(--rw)--ro[Grant it for reading only]' \
'--rw[Grant it for reading and writing]' \
'(--always)--session[The same answer whenever this session asks for the same]' \
'--always[The same answer whenever any session asks for the same]' \
'--force[Grant it even if it holds keys, passwords or cowork'\''s own state]' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':request -- The request'\''s number, from `cowork requests`:_default' \
':answer -- The answer:((allow\:"Yes"
reject\:"No"))' \
&& ret=0
;;
(cp)
_arguments "${_arguments_options[@]}" : \
'-r[Copy folders with everything in them]' \
'--recursive[Copy folders with everything in them]' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
'*::paths -- What to copy, and where to:_default' \
&& ret=0
;;
(path)
_arguments "${_arguments_options[@]}" : \
'--inside[It is the session'\''s, whatever it looks like]' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
':session -- The session:_default' \
':path -- The path; one that starts with /sessions/SESSION is the session'\''s, any other the host'\''s:_files' \
&& ret=0
;;
(pause)
_arguments "${_arguments_options[@]}" : \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
'::session -- The session; without it the one named `default`:_default' \
'::number -- Only this command:_default' \
&& ret=0
;;
(resume)
_arguments "${_arguments_options[@]}" : \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
'::session -- The session; without it the one named `default`:_default' \
'::number -- Only this command:_default' \
&& ret=0
;;
(cancel)
_arguments "${_arguments_options[@]}" : \
'--grace=[Time between asking and killing; 5s without it]:TIME:_default' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
'::session -- The session; without it the one named `default`:_default' \
'::number -- Only this command:_default' \
&& ret=0
;;
(stop)
_arguments "${_arguments_options[@]}" : \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
'::session -- The session; without it the one named `default`:_default' \
&& ret=0
;;
(start)
_arguments "${_arguments_options[@]}" : \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
'::session -- The session; without it the one named `default`:_default' \
&& ret=0
;;
(rm)
_arguments "${_arguments_options[@]}" : \
'--keep-outputs[Keep what the session left in mnt/outputs]' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
'*::sessions -- The sessions:_default' \
&& ret=0
;;
(set)
_arguments "${_arguments_options[@]}" : \
'--memory=[Most memory of the whole session, e.g. 4G]:BYTES:_default' \
'--cpus=[Most processors of the whole session, e.g. 1.5]:NUMBER:_default' \
'--processes=[Most processes and threads of the whole session]:NUMBER:_default' \
'--open-files=[Most open files of each process]:NUMBER:_default' \
'--scratch=[Most space in memory\: /tmp and the like, together with a home that is not kept]:BYTES:_default' \
'--timeout=[End the session after this time, e.g. 90s, 5m]:TIME:_default' \
'--disk=[Most space on disk of home and outputs together, e.g. 10G]:BYTES:_default' \
'*--label=[Set a label]:NAME=VALUE:_default' \
'*--unlabel=[Take a label away]:NAME:_default' \
'--net=[What becomes of hosts that no rule is about, from now on]:WORD:(deny ask)' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
':session -- The session:_default' \
&& ret=0
;;
(usage)
_arguments "${_arguments_options[@]}" : \
'--history[What was measured over time]' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
'::session -- The session; without it all that live:_default' \
'::command -- One command of the session, while it runs or afterwards:_default' \
&& ret=0
;;
(audit)
_arguments "${_arguments_options[@]}" : \
'--since=[Only records since then\: a span of time before now, e.g. 2h, or a moment in RFC 3339]:TIME:_default' \
'--until=[Only records until then]:TIME:_default' \
'--type=[Only records of this type, e.g. grant.added]:TYPE:_default' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
'::session -- Only records of this session:_default' \
":: :_cowork__subcmd__audit_commands" \
"*::: :->audit" \
&& ret=0

    case $state in
    (audit)
        words=($line[2] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:cowork-audit-command-$line[2]:"
        case $line[2] in
            (verify)
_arguments "${_arguments_options[@]}" : \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(export)
_arguments "${_arguments_options[@]}" : \
'--since=[Only records since then\: a span of time before now, e.g. 2h, or a moment in RFC 3339]:TIME:_default' \
'--until=[Only records until then]:TIME:_default' \
'--type=[Only records of this type, e.g. grant.added]:TYPE:_default' \
'--format=[The format]:FORMAT:((jsonl\:"One object of JSON on each line"
csv\:"Values separated by commas"))' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'::session -- Only records of this session:_default' \
&& ret=0
;;
        esac
    ;;
esac
;;
(events)
_arguments "${_arguments_options[@]}" : \
'--type=[Only events of this type, e.g. session.state]:TYPE:_default' \
'--after=[Start after the event with this number; 0 for all that are kept]:NUMBER:_default' \
'--no-follow[Show what there is and end]' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
'::session -- Only events of this session:_default' \
&& ret=0
;;
(init)
_arguments "${_arguments_options[@]}" : \
'--workspace=[The folder to work in; ~/cowork-workspace without it]:FOLDER:_files' \
'--cpus=[Most processors; 4 without it, or as many as the host has]:NUMBER:_default' \
'--memory=[Most memory; 4G without it, or as much as the host has]:BYTES:_default' \
'--disk=[Most space on disk of home and outputs together; 10G without it]:BYTES:_default' \
'--skills=[Show this folder read-only as mnt/skills\: what an agent is to know how to do]:FOLDER:_files' \
'*--allow=[A host that the session may reach, e.g. \`pypi.org\`; without any rule there is no network]:RULE:_default' \
'*--deny=[A host that it may not reach, whatever else allows it; all of its ports unless some are named]:RULE:_default' \
'*--ask=[A host that it may reach if you say so when it tries]:RULE:_default' \
'--net=[What becomes of hosts that no rule is about; \`off\` without any rule, else \`deny\`]:WORD:((off\:"There is no network at all"
deny\:"They are refused"
ask\:"You are asked; what wants to reach them waits for your answer"))' \
'--headless=[Nobody is there to be asked\: what would wait for your answer is refused at once]::WHEN:((auto\:"Nobody is where \`run\` has no terminal, neither for input nor for errors, and no \`--json\`"
always\:"Nobody is"
never\:"Somebody is\: at another terminal, or a program"))' \
'*--preset=[Hosts that belong together, e.g. \`github\`; \`cowork net presets\` lists them]:NAME:_default' \
'*--secret=[A secret that its requests get on their way, kept with \`cowork secret set\`]:NAME:_default' \
'--policy=[A file of rules in TOML; options add to it]:FILE:_files' \
'--force[Show the skills even if they are in a place with keys, passwords or cowork'\''s own state]' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(delete)
_arguments "${_arguments_options[@]}" : \
'--keep-outputs[Keep what the session left in mnt/outputs]' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(explain)
_arguments "${_arguments_options[@]}" : \
'*--grant=[A folder to grant, as \`PATH\[\:ro|rw|direct|staged\]\[=NAME\]\`; without any, \`run\` and \`explain\` grant the current folder]:GRANT:_default' \
'--profile=[The walls around the session\: \`strict\`, or \`nested\` for programs that bring a sandbox of their own (Chromium, bwrap)]:PROFILE:_default' \
'--home=[Keep the session'\''s home in this folder]:FOLDER:_files' \
'--outputs=[Show this folder as mnt/outputs, so that deliverables stay]:FOLDER:_files' \
'--skills=[Show this folder read-only as mnt/skills\: what an agent is to know how to do]:FOLDER:_files' \
'*--direct=[A folder below each \`rw\` grant that is written without a record, at full speed, e.g. \`node_modules\`]:SUBFOLDER:_files' \
'--guard=[Ask when a command removes or overwrites more than so many files; \`off\` for never]:NUMBER|off:_default' \
'--quota=[Most bytes that may be added to a folder, e.g. 2G]:BYTES:_default' \
'--quota-files=[Most files that may be added to a folder]:NUMBER:_default' \
'*--block=[Refuse files that end in this too, e.g. \`zip\`]:ENDING:_default' \
'*--unblock=[Do not refuse files that end in this, e.g. \`jar\`]:ENDING:_default' \
'*--allow=[A host that the session may reach, e.g. \`pypi.org\`; without any rule there is no network]:RULE:_default' \
'*--deny=[A host that it may not reach, whatever else allows it; all of its ports unless some are named]:RULE:_default' \
'*--ask=[A host that it may reach if you say so when it tries]:RULE:_default' \
'--net=[What becomes of hosts that no rule is about; \`off\` without any rule, else \`deny\`]:WORD:((off\:"There is no network at all"
deny\:"They are refused"
ask\:"You are asked; what wants to reach them waits for your answer"))' \
'--headless=[Nobody is there to be asked\: what would wait for your answer is refused at once]::WHEN:((auto\:"Nobody is where \`run\` has no terminal, neither for input nor for errors, and no \`--json\`"
always\:"Nobody is"
never\:"Somebody is\: at another terminal, or a program"))' \
'*--preset=[Hosts that belong together, e.g. \`github\`; \`cowork net presets\` lists them]:NAME:_default' \
'*--secret=[A secret that its requests get on their way, kept with \`cowork secret set\`]:NAME:_default' \
'--policy=[A file of rules in TOML; options add to it]:FILE:_files' \
'--memory=[Most memory of the whole session, e.g. 4G]:BYTES:_default' \
'--cpus=[Most processors of the whole session, e.g. 1.5]:NUMBER:_default' \
'--processes=[Most processes and threads of the whole session]:NUMBER:_default' \
'--open-files=[Most open files of each process]:NUMBER:_default' \
'--scratch=[Most space in memory\: /tmp and the like, together with a home that is not kept]:BYTES:_default' \
'--timeout=[End the session after this time, e.g. 90s, 5m]:TIME:_default' \
'--id=[The session'\''s id, e.g. zealous-ramanujan; made up without it]:ID:_default' \
'(--grant)--no-grants[Grant no folder at all, not even the current one]' \
'--force[Grant folders even if they hold keys, passwords or cowork'\''s own state]' \
'--debugger[Let debuggers and tracers work inside the session]' \
'--best-effort[Accept limits that this host can only approximate]' \
'--syscalls[Also list every rule of the filter of system calls with its reason]' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(doctor)
_arguments "${_arguments_options[@]}" : \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(mcp)
_arguments "${_arguments_options[@]}" : \
'*--grant=[A folder to grant, as \`PATH\[\:ro|rw|direct|staged\]\[=NAME\]\`; without any, \`run\` and \`explain\` grant the current folder]:GRANT:_default' \
'--profile=[The walls around the session\: \`strict\`, or \`nested\` for programs that bring a sandbox of their own (Chromium, bwrap)]:PROFILE:_default' \
'--home=[Keep the session'\''s home in this folder]:FOLDER:_files' \
'--outputs=[Show this folder as mnt/outputs, so that deliverables stay]:FOLDER:_files' \
'--skills=[Show this folder read-only as mnt/skills\: what an agent is to know how to do]:FOLDER:_files' \
'*--direct=[A folder below each \`rw\` grant that is written without a record, at full speed, e.g. \`node_modules\`]:SUBFOLDER:_files' \
'--guard=[Ask when a command removes or overwrites more than so many files; \`off\` for never]:NUMBER|off:_default' \
'--quota=[Most bytes that may be added to a folder, e.g. 2G]:BYTES:_default' \
'--quota-files=[Most files that may be added to a folder]:NUMBER:_default' \
'*--block=[Refuse files that end in this too, e.g. \`zip\`]:ENDING:_default' \
'*--unblock=[Do not refuse files that end in this, e.g. \`jar\`]:ENDING:_default' \
'*--allow=[A host that the session may reach, e.g. \`pypi.org\`; without any rule there is no network]:RULE:_default' \
'*--deny=[A host that it may not reach, whatever else allows it; all of its ports unless some are named]:RULE:_default' \
'*--ask=[A host that it may reach if you say so when it tries]:RULE:_default' \
'--net=[What becomes of hosts that no rule is about; \`off\` without any rule, else \`deny\`]:WORD:((off\:"There is no network at all"
deny\:"They are refused"
ask\:"You are asked; what wants to reach them waits for your answer"))' \
'--headless=[Nobody is there to be asked\: what would wait for your answer is refused at once]::WHEN:((auto\:"Nobody is where \`run\` has no terminal, neither for input nor for errors, and no \`--json\`"
always\:"Nobody is"
never\:"Somebody is\: at another terminal, or a program"))' \
'*--preset=[Hosts that belong together, e.g. \`github\`; \`cowork net presets\` lists them]:NAME:_default' \
'*--secret=[A secret that its requests get on their way, kept with \`cowork secret set\`]:NAME:_default' \
'--policy=[A file of rules in TOML; options add to it]:FILE:_files' \
'--memory=[Most memory of the whole session, e.g. 4G]:BYTES:_default' \
'--cpus=[Most processors of the whole session, e.g. 1.5]:NUMBER:_default' \
'--processes=[Most processes and threads of the whole session]:NUMBER:_default' \
'--open-files=[Most open files of each process]:NUMBER:_default' \
'--scratch=[Most space in memory\: /tmp and the like, together with a home that is not kept]:BYTES:_default' \
'--timeout=[End the session after this time, e.g. 90s, 5m]:TIME:_default' \
'--id=[The session'\''s id, e.g. zealous-ramanujan; made up without it]:ID:_default' \
'*--session=[A session of yours that the client may use]:SESSION:_default' \
'(--grant)--no-grants[Grant no folder at all, not even the current one]' \
'--force[Grant folders even if they hold keys, passwords or cowork'\''s own state]' \
'--debugger[Let debuggers and tracers work inside the session]' \
'--best-effort[Accept limits that this host can only approximate]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(daemon)
_arguments "${_arguments_options[@]}" : \
'()--stop[Stop every session, and the daemon with them]' \
'--detached[Leave the terminal first]' \
'--json[Write JSON, as the daemon'\''s API has it]' \
'-h[Print help]' \
'--help[Print help]' \
'*::arguments -- Options of coworkd itself:_default' \
&& ret=0
;;
(help)
_arguments "${_arguments_options[@]}" : \
'-h[Print help]' \
'--help[Print help]' \
'::verb -- The verb:_default' \
&& ret=0
;;
(completions)
_arguments "${_arguments_options[@]}" : \
'-h[Print help]' \
'--help[Print help]' \
':shell -- The shell:(bash elvish fish powershell zsh)' \
&& ret=0
;;
(man)
_arguments "${_arguments_options[@]}" : \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
        esac
    ;;
esac
}

(( $+functions[_cowork_commands] )) ||
_cowork_commands() {
    local commands; commands=(
'run:Where a command starts' \
'new:Make a session that stays until it is removed' \
'ls:List sessions' \
'status:Show a session at a glance\: state, protection, limits, grants, commands' \
'exec:Where a command starts' \
'shell:Where a command starts' \
'claude:Run Claude Code in a session on the current folder' \
'codex:Run Codex in a session on the current folder' \
'gemini:Run Gemini CLI in a session on the current folder' \
'opencode:Run opencode in a session on the current folder' \
'agent:Run an agent by its name in a session on the current folder' \
'agents:List agents\: where their programs are, and which credentials they have' \
'ask:Give a task to an agent in a session on the current folder, and print its answer' \
'tasks:List tasks of agents' \
'task:Show a task of an agent, steer it, pause it, resume it, or call it off' \
'srt:Run a command as \`srt\` would, with its settings' \
'policy:Write a policy from settings of other sandboxes' \
'logs:Show what a command wrote' \
'attach:Connect to a command that runs' \
'grant:Grant a folder to a session while it runs, or change what it may do with one' \
'revoke:Take a granted folder away from a session while it runs' \
'changes:Show what a session changed in folders, what cannot be undone, and what may run here' \
'diff:Show how files differ from before a session changed them' \
'undo:Take changes of a session back\: of the last command, of a set, of some paths, or all' \
'redo:Take the last undo back' \
'history:Show which sessions changed a folder, also those that are gone' \
'apply:Carry staged changes over into their folders' \
'discard:Throw staged changes away' \
'protect:Say which names are marked, asked about or refused when a session changes them' \
'allow:Allow a session to reach hosts, at once' \
'deny:Forbid a session to reach hosts, at once' \
'net:Show what a session reaches and what it was refused; its rules; whether something would pass' \
'secret:Keep secrets that sessions use without knowing them' \
'publish:Let this host reach a port of a session' \
'unpublish:Take a published port back' \
'requests:List what sessions ask you for' \
'decide:Answer a request of a session' \
'cp:Copy files into a session or out of it' \
'path:Translate a path between this host and a session' \
'pause:Let every process of a session, or one command, stand still' \
'resume:Let what stands still go on' \
'cancel:End every process of a session, or one command\: ask, wait, kill' \
'stop:Stop a session\: its processes end, its home is kept' \
'start:Start a session that is stopped' \
'rm:Remove a session with everything it kept' \
'set:Change a session'\''s limits, labels and network while it runs' \
'usage:Show what sessions use\: processor, memory, storage, processes' \
'audit:Show the record of every decision and act, verify or export it' \
'events:Show what happens, as it happens' \
'init:Make the default session, with ~/cowork-workspace as /workspace' \
'delete:Remove the default session' \
'explain:Show the plan of a session step by step, and which protection is in force; run nothing' \
'doctor:Look at what this host can do for sessions, and how to get what is missing' \
'mcp:Let a client of the Model Context Protocol use sessions as tools' \
'daemon:Run the daemon in the foreground, or stop it' \
'help:Explain a verb' \
'completions:Write a completion script for a shell' \
'man:Write the manual pages' \
    )
    _describe -t commands 'cowork commands' commands "$@"
}
(( $+functions[_cowork__subcmd__agent_commands] )) ||
_cowork__subcmd__agent_commands() {
    local commands; commands=()
    _describe -t commands 'cowork agent commands' commands "$@"
}
(( $+functions[_cowork__subcmd__agents_commands] )) ||
_cowork__subcmd__agents_commands() {
    local commands; commands=()
    _describe -t commands 'cowork agents commands' commands "$@"
}
(( $+functions[_cowork__subcmd__allow_commands] )) ||
_cowork__subcmd__allow_commands() {
    local commands; commands=()
    _describe -t commands 'cowork allow commands' commands "$@"
}
(( $+functions[_cowork__subcmd__apply_commands] )) ||
_cowork__subcmd__apply_commands() {
    local commands; commands=()
    _describe -t commands 'cowork apply commands' commands "$@"
}
(( $+functions[_cowork__subcmd__ask_commands] )) ||
_cowork__subcmd__ask_commands() {
    local commands; commands=()
    _describe -t commands 'cowork ask commands' commands "$@"
}
(( $+functions[_cowork__subcmd__attach_commands] )) ||
_cowork__subcmd__attach_commands() {
    local commands; commands=()
    _describe -t commands 'cowork attach commands' commands "$@"
}
(( $+functions[_cowork__subcmd__audit_commands] )) ||
_cowork__subcmd__audit_commands() {
    local commands; commands=(
'verify:Check that no record was removed, changed or reordered' \
'export:Write records for another program' \
    )
    _describe -t commands 'cowork audit commands' commands "$@"
}
(( $+functions[_cowork__subcmd__audit__subcmd__export_commands] )) ||
_cowork__subcmd__audit__subcmd__export_commands() {
    local commands; commands=()
    _describe -t commands 'cowork audit export commands' commands "$@"
}
(( $+functions[_cowork__subcmd__audit__subcmd__verify_commands] )) ||
_cowork__subcmd__audit__subcmd__verify_commands() {
    local commands; commands=()
    _describe -t commands 'cowork audit verify commands' commands "$@"
}
(( $+functions[_cowork__subcmd__cancel_commands] )) ||
_cowork__subcmd__cancel_commands() {
    local commands; commands=()
    _describe -t commands 'cowork cancel commands' commands "$@"
}
(( $+functions[_cowork__subcmd__changes_commands] )) ||
_cowork__subcmd__changes_commands() {
    local commands; commands=()
    _describe -t commands 'cowork changes commands' commands "$@"
}
(( $+functions[_cowork__subcmd__claude_commands] )) ||
_cowork__subcmd__claude_commands() {
    local commands; commands=()
    _describe -t commands 'cowork claude commands' commands "$@"
}
(( $+functions[_cowork__subcmd__codex_commands] )) ||
_cowork__subcmd__codex_commands() {
    local commands; commands=()
    _describe -t commands 'cowork codex commands' commands "$@"
}
(( $+functions[_cowork__subcmd__completions_commands] )) ||
_cowork__subcmd__completions_commands() {
    local commands; commands=()
    _describe -t commands 'cowork completions commands' commands "$@"
}
(( $+functions[_cowork__subcmd__cp_commands] )) ||
_cowork__subcmd__cp_commands() {
    local commands; commands=()
    _describe -t commands 'cowork cp commands' commands "$@"
}
(( $+functions[_cowork__subcmd__daemon_commands] )) ||
_cowork__subcmd__daemon_commands() {
    local commands; commands=()
    _describe -t commands 'cowork daemon commands' commands "$@"
}
(( $+functions[_cowork__subcmd__decide_commands] )) ||
_cowork__subcmd__decide_commands() {
    local commands; commands=()
    _describe -t commands 'cowork decide commands' commands "$@"
}
(( $+functions[_cowork__subcmd__delete_commands] )) ||
_cowork__subcmd__delete_commands() {
    local commands; commands=()
    _describe -t commands 'cowork delete commands' commands "$@"
}
(( $+functions[_cowork__subcmd__deny_commands] )) ||
_cowork__subcmd__deny_commands() {
    local commands; commands=()
    _describe -t commands 'cowork deny commands' commands "$@"
}
(( $+functions[_cowork__subcmd__diff_commands] )) ||
_cowork__subcmd__diff_commands() {
    local commands; commands=()
    _describe -t commands 'cowork diff commands' commands "$@"
}
(( $+functions[_cowork__subcmd__discard_commands] )) ||
_cowork__subcmd__discard_commands() {
    local commands; commands=()
    _describe -t commands 'cowork discard commands' commands "$@"
}
(( $+functions[_cowork__subcmd__doctor_commands] )) ||
_cowork__subcmd__doctor_commands() {
    local commands; commands=()
    _describe -t commands 'cowork doctor commands' commands "$@"
}
(( $+functions[_cowork__subcmd__events_commands] )) ||
_cowork__subcmd__events_commands() {
    local commands; commands=()
    _describe -t commands 'cowork events commands' commands "$@"
}
(( $+functions[_cowork__subcmd__exec_commands] )) ||
_cowork__subcmd__exec_commands() {
    local commands; commands=()
    _describe -t commands 'cowork exec commands' commands "$@"
}
(( $+functions[_cowork__subcmd__explain_commands] )) ||
_cowork__subcmd__explain_commands() {
    local commands; commands=()
    _describe -t commands 'cowork explain commands' commands "$@"
}
(( $+functions[_cowork__subcmd__gemini_commands] )) ||
_cowork__subcmd__gemini_commands() {
    local commands; commands=()
    _describe -t commands 'cowork gemini commands' commands "$@"
}
(( $+functions[_cowork__subcmd__grant_commands] )) ||
_cowork__subcmd__grant_commands() {
    local commands; commands=()
    _describe -t commands 'cowork grant commands' commands "$@"
}
(( $+functions[_cowork__subcmd__help_commands] )) ||
_cowork__subcmd__help_commands() {
    local commands; commands=()
    _describe -t commands 'cowork help commands' commands "$@"
}
(( $+functions[_cowork__subcmd__history_commands] )) ||
_cowork__subcmd__history_commands() {
    local commands; commands=()
    _describe -t commands 'cowork history commands' commands "$@"
}
(( $+functions[_cowork__subcmd__init_commands] )) ||
_cowork__subcmd__init_commands() {
    local commands; commands=()
    _describe -t commands 'cowork init commands' commands "$@"
}
(( $+functions[_cowork__subcmd__logs_commands] )) ||
_cowork__subcmd__logs_commands() {
    local commands; commands=()
    _describe -t commands 'cowork logs commands' commands "$@"
}
(( $+functions[_cowork__subcmd__ls_commands] )) ||
_cowork__subcmd__ls_commands() {
    local commands; commands=()
    _describe -t commands 'cowork ls commands' commands "$@"
}
(( $+functions[_cowork__subcmd__man_commands] )) ||
_cowork__subcmd__man_commands() {
    local commands; commands=()
    _describe -t commands 'cowork man commands' commands "$@"
}
(( $+functions[_cowork__subcmd__mcp_commands] )) ||
_cowork__subcmd__mcp_commands() {
    local commands; commands=()
    _describe -t commands 'cowork mcp commands' commands "$@"
}
(( $+functions[_cowork__subcmd__net_commands] )) ||
_cowork__subcmd__net_commands() {
    local commands; commands=(
'rules:Show the rules in force' \
'standing:Show the rules that every session has, or take one away' \
'explain:Say whether something would pass, and by which rule' \
'har:Write what went over the network as an HTTP archive (HAR)' \
'presets:List the presets, with the hosts of each' \
    )
    _describe -t commands 'cowork net commands' commands "$@"
}
(( $+functions[_cowork__subcmd__net__subcmd__explain_commands] )) ||
_cowork__subcmd__net__subcmd__explain_commands() {
    local commands; commands=()
    _describe -t commands 'cowork net explain commands' commands "$@"
}
(( $+functions[_cowork__subcmd__net__subcmd__har_commands] )) ||
_cowork__subcmd__net__subcmd__har_commands() {
    local commands; commands=()
    _describe -t commands 'cowork net har commands' commands "$@"
}
(( $+functions[_cowork__subcmd__net__subcmd__presets_commands] )) ||
_cowork__subcmd__net__subcmd__presets_commands() {
    local commands; commands=()
    _describe -t commands 'cowork net presets commands' commands "$@"
}
(( $+functions[_cowork__subcmd__net__subcmd__rules_commands] )) ||
_cowork__subcmd__net__subcmd__rules_commands() {
    local commands; commands=()
    _describe -t commands 'cowork net rules commands' commands "$@"
}
(( $+functions[_cowork__subcmd__net__subcmd__standing_commands] )) ||
_cowork__subcmd__net__subcmd__standing_commands() {
    local commands; commands=()
    _describe -t commands 'cowork net standing commands' commands "$@"
}
(( $+functions[_cowork__subcmd__new_commands] )) ||
_cowork__subcmd__new_commands() {
    local commands; commands=()
    _describe -t commands 'cowork new commands' commands "$@"
}
(( $+functions[_cowork__subcmd__opencode_commands] )) ||
_cowork__subcmd__opencode_commands() {
    local commands; commands=()
    _describe -t commands 'cowork opencode commands' commands "$@"
}
(( $+functions[_cowork__subcmd__path_commands] )) ||
_cowork__subcmd__path_commands() {
    local commands; commands=()
    _describe -t commands 'cowork path commands' commands "$@"
}
(( $+functions[_cowork__subcmd__pause_commands] )) ||
_cowork__subcmd__pause_commands() {
    local commands; commands=()
    _describe -t commands 'cowork pause commands' commands "$@"
}
(( $+functions[_cowork__subcmd__policy_commands] )) ||
_cowork__subcmd__policy_commands() {
    local commands; commands=(
'import:Write the policy that says what the settings of another sandbox say' \
    )
    _describe -t commands 'cowork policy commands' commands "$@"
}
(( $+functions[_cowork__subcmd__policy__subcmd__import_commands] )) ||
_cowork__subcmd__policy__subcmd__import_commands() {
    local commands; commands=()
    _describe -t commands 'cowork policy import commands' commands "$@"
}
(( $+functions[_cowork__subcmd__protect_commands] )) ||
_cowork__subcmd__protect_commands() {
    local commands; commands=(
'list:List the rules for names in a session, with their reasons' \
'add:Make a rule for names, in force at once' \
'remove:Take a rule back that you made' \
    )
    _describe -t commands 'cowork protect commands' commands "$@"
}
(( $+functions[_cowork__subcmd__protect__subcmd__add_commands] )) ||
_cowork__subcmd__protect__subcmd__add_commands() {
    local commands; commands=()
    _describe -t commands 'cowork protect add commands' commands "$@"
}
(( $+functions[_cowork__subcmd__protect__subcmd__list_commands] )) ||
_cowork__subcmd__protect__subcmd__list_commands() {
    local commands; commands=()
    _describe -t commands 'cowork protect list commands' commands "$@"
}
(( $+functions[_cowork__subcmd__protect__subcmd__remove_commands] )) ||
_cowork__subcmd__protect__subcmd__remove_commands() {
    local commands; commands=()
    _describe -t commands 'cowork protect remove commands' commands "$@"
}
(( $+functions[_cowork__subcmd__publish_commands] )) ||
_cowork__subcmd__publish_commands() {
    local commands; commands=()
    _describe -t commands 'cowork publish commands' commands "$@"
}
(( $+functions[_cowork__subcmd__redo_commands] )) ||
_cowork__subcmd__redo_commands() {
    local commands; commands=()
    _describe -t commands 'cowork redo commands' commands "$@"
}
(( $+functions[_cowork__subcmd__requests_commands] )) ||
_cowork__subcmd__requests_commands() {
    local commands; commands=()
    _describe -t commands 'cowork requests commands' commands "$@"
}
(( $+functions[_cowork__subcmd__resume_commands] )) ||
_cowork__subcmd__resume_commands() {
    local commands; commands=()
    _describe -t commands 'cowork resume commands' commands "$@"
}
(( $+functions[_cowork__subcmd__revoke_commands] )) ||
_cowork__subcmd__revoke_commands() {
    local commands; commands=()
    _describe -t commands 'cowork revoke commands' commands "$@"
}
(( $+functions[_cowork__subcmd__rm_commands] )) ||
_cowork__subcmd__rm_commands() {
    local commands; commands=()
    _describe -t commands 'cowork rm commands' commands "$@"
}
(( $+functions[_cowork__subcmd__run_commands] )) ||
_cowork__subcmd__run_commands() {
    local commands; commands=()
    _describe -t commands 'cowork run commands' commands "$@"
}
(( $+functions[_cowork__subcmd__secret_commands] )) ||
_cowork__subcmd__secret_commands() {
    local commands; commands=(
'set:Keep a secret; its value comes from standard input' \
'import:Keep the tokens that a program on this host signed in with, and renew them here' \
'ls:List secrets, without their values' \
'rm:Forget a secret' \
    )
    _describe -t commands 'cowork secret commands' commands "$@"
}
(( $+functions[_cowork__subcmd__secret__subcmd__import_commands] )) ||
_cowork__subcmd__secret__subcmd__import_commands() {
    local commands; commands=()
    _describe -t commands 'cowork secret import commands' commands "$@"
}
(( $+functions[_cowork__subcmd__secret__subcmd__ls_commands] )) ||
_cowork__subcmd__secret__subcmd__ls_commands() {
    local commands; commands=()
    _describe -t commands 'cowork secret ls commands' commands "$@"
}
(( $+functions[_cowork__subcmd__secret__subcmd__rm_commands] )) ||
_cowork__subcmd__secret__subcmd__rm_commands() {
    local commands; commands=()
    _describe -t commands 'cowork secret rm commands' commands "$@"
}
(( $+functions[_cowork__subcmd__secret__subcmd__set_commands] )) ||
_cowork__subcmd__secret__subcmd__set_commands() {
    local commands; commands=()
    _describe -t commands 'cowork secret set commands' commands "$@"
}
(( $+functions[_cowork__subcmd__set_commands] )) ||
_cowork__subcmd__set_commands() {
    local commands; commands=()
    _describe -t commands 'cowork set commands' commands "$@"
}
(( $+functions[_cowork__subcmd__shell_commands] )) ||
_cowork__subcmd__shell_commands() {
    local commands; commands=()
    _describe -t commands 'cowork shell commands' commands "$@"
}
(( $+functions[_cowork__subcmd__srt_commands] )) ||
_cowork__subcmd__srt_commands() {
    local commands; commands=()
    _describe -t commands 'cowork srt commands' commands "$@"
}
(( $+functions[_cowork__subcmd__start_commands] )) ||
_cowork__subcmd__start_commands() {
    local commands; commands=()
    _describe -t commands 'cowork start commands' commands "$@"
}
(( $+functions[_cowork__subcmd__status_commands] )) ||
_cowork__subcmd__status_commands() {
    local commands; commands=()
    _describe -t commands 'cowork status commands' commands "$@"
}
(( $+functions[_cowork__subcmd__stop_commands] )) ||
_cowork__subcmd__stop_commands() {
    local commands; commands=()
    _describe -t commands 'cowork stop commands' commands "$@"
}
(( $+functions[_cowork__subcmd__task_commands] )) ||
_cowork__subcmd__task_commands() {
    local commands; commands=(
'show:Show a task\: what was said and done, and what came of it' \
'steer:Say something to the agent while it works' \
'pause:Let the agent stand still' \
'resume:Let the agent go on' \
'cancel:Call the task off' \
    )
    _describe -t commands 'cowork task commands' commands "$@"
}
(( $+functions[_cowork__subcmd__task__subcmd__cancel_commands] )) ||
_cowork__subcmd__task__subcmd__cancel_commands() {
    local commands; commands=()
    _describe -t commands 'cowork task cancel commands' commands "$@"
}
(( $+functions[_cowork__subcmd__task__subcmd__pause_commands] )) ||
_cowork__subcmd__task__subcmd__pause_commands() {
    local commands; commands=()
    _describe -t commands 'cowork task pause commands' commands "$@"
}
(( $+functions[_cowork__subcmd__task__subcmd__resume_commands] )) ||
_cowork__subcmd__task__subcmd__resume_commands() {
    local commands; commands=()
    _describe -t commands 'cowork task resume commands' commands "$@"
}
(( $+functions[_cowork__subcmd__task__subcmd__show_commands] )) ||
_cowork__subcmd__task__subcmd__show_commands() {
    local commands; commands=()
    _describe -t commands 'cowork task show commands' commands "$@"
}
(( $+functions[_cowork__subcmd__task__subcmd__steer_commands] )) ||
_cowork__subcmd__task__subcmd__steer_commands() {
    local commands; commands=()
    _describe -t commands 'cowork task steer commands' commands "$@"
}
(( $+functions[_cowork__subcmd__tasks_commands] )) ||
_cowork__subcmd__tasks_commands() {
    local commands; commands=()
    _describe -t commands 'cowork tasks commands' commands "$@"
}
(( $+functions[_cowork__subcmd__undo_commands] )) ||
_cowork__subcmd__undo_commands() {
    local commands; commands=()
    _describe -t commands 'cowork undo commands' commands "$@"
}
(( $+functions[_cowork__subcmd__unpublish_commands] )) ||
_cowork__subcmd__unpublish_commands() {
    local commands; commands=()
    _describe -t commands 'cowork unpublish commands' commands "$@"
}
(( $+functions[_cowork__subcmd__usage_commands] )) ||
_cowork__subcmd__usage_commands() {
    local commands; commands=()
    _describe -t commands 'cowork usage commands' commands "$@"
}

if [ "$funcstack[1]" = "_cowork" ]; then
    _cowork "$@"
else
    compdef _cowork cowork
fi
