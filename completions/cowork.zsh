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
'*--grant=[A folder to grant, as \`PATH\[\:ro|rw\]\[=NAME\]\`. Without any, the current folder is granted]:GRANT:_default' \
'--profile=[The walls around the session\: \`strict\`, or \`nested\` for programs that bring a sandbox of their own (Chromium, bwrap)]:PROFILE:_default' \
'--home=[Keep the session'\''s home in this folder instead of in memory]:FOLDER:_files' \
'--outputs=[Show this folder as mnt/outputs, so that deliverables stay]:FOLDER:_files' \
'--memory=[Most memory of the whole session, e.g. 4G]:BYTES:_default' \
'--cpus=[Most processors of the whole session, e.g. 1.5]:NUMBER:_default' \
'--processes=[Most processes and threads of the whole session]:NUMBER:_default' \
'--open-files=[Most open files of each process]:NUMBER:_default' \
'--scratch=[Most space for home, /tmp and the like together]:BYTES:_default' \
'--timeout=[End the session after this time, e.g. 90s, 5m]:TIME:_default' \
'--id=[The session'\''s id, e.g. zealous-ramanujan; made up without it]:ID:_default' \
'*--env=[Set a variable for the command, or pass one of yours by its name alone]:NAME[=VALUE]:_default' \
'--cd=[The folder in the session that the command starts in]:FOLDER:_files' \
'(--grant)--no-grants[Grant no folder at all, not even the current one]' \
'--debugger[Let debuggers and tracers work inside the session]' \
'--best-effort[Accept limits that this host can only approximate]' \
'-v[Say on standard error which protection is in force]' \
'--verbose[Say on standard error which protection is in force]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'*::command -- The command and its arguments; cowork'\''s own options end at its first word:_default' \
&& ret=0
;;
(explain)
_arguments "${_arguments_options[@]}" : \
'*--grant=[A folder to grant, as \`PATH\[\:ro|rw\]\[=NAME\]\`. Without any, the current folder is granted]:GRANT:_default' \
'--profile=[The walls around the session\: \`strict\`, or \`nested\` for programs that bring a sandbox of their own (Chromium, bwrap)]:PROFILE:_default' \
'--home=[Keep the session'\''s home in this folder instead of in memory]:FOLDER:_files' \
'--outputs=[Show this folder as mnt/outputs, so that deliverables stay]:FOLDER:_files' \
'--memory=[Most memory of the whole session, e.g. 4G]:BYTES:_default' \
'--cpus=[Most processors of the whole session, e.g. 1.5]:NUMBER:_default' \
'--processes=[Most processes and threads of the whole session]:NUMBER:_default' \
'--open-files=[Most open files of each process]:NUMBER:_default' \
'--scratch=[Most space for home, /tmp and the like together]:BYTES:_default' \
'--timeout=[End the session after this time, e.g. 90s, 5m]:TIME:_default' \
'--id=[The session'\''s id, e.g. zealous-ramanujan; made up without it]:ID:_default' \
'(--grant)--no-grants[Grant no folder at all, not even the current one]' \
'--debugger[Let debuggers and tracers work inside the session]' \
'--best-effort[Accept limits that this host can only approximate]' \
'--syscalls[Also list every rule of the filter of system calls with its reason]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(doctor)
_arguments "${_arguments_options[@]}" : \
'--json[Write the facts as JSON]' \
'-h[Print help]' \
'--help[Print help]' \
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
'run:Run a command in a session made for it, and leave nothing behind' \
'explain:Show the plan of a session step by step, and which protection is in force; run nothing' \
'doctor:Look at what this host can do for sessions, and how to get what is missing' \
'completions:Write a completion script for a shell' \
'man:Write the manual pages' \
    )
    _describe -t commands 'cowork commands' commands "$@"
}
(( $+functions[_cowork__subcmd__completions_commands] )) ||
_cowork__subcmd__completions_commands() {
    local commands; commands=()
    _describe -t commands 'cowork completions commands' commands "$@"
}
(( $+functions[_cowork__subcmd__doctor_commands] )) ||
_cowork__subcmd__doctor_commands() {
    local commands; commands=()
    _describe -t commands 'cowork doctor commands' commands "$@"
}
(( $+functions[_cowork__subcmd__explain_commands] )) ||
_cowork__subcmd__explain_commands() {
    local commands; commands=()
    _describe -t commands 'cowork explain commands' commands "$@"
}
(( $+functions[_cowork__subcmd__man_commands] )) ||
_cowork__subcmd__man_commands() {
    local commands; commands=()
    _describe -t commands 'cowork man commands' commands "$@"
}
(( $+functions[_cowork__subcmd__run_commands] )) ||
_cowork__subcmd__run_commands() {
    local commands; commands=()
    _describe -t commands 'cowork run commands' commands "$@"
}

if [ "$funcstack[1]" = "_cowork" ]; then
    _cowork "$@"
else
    compdef _cowork cowork
fi
