# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_cowork_global_optspecs
    string join \n h/help V/version
end

function __fish_cowork_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_cowork_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_cowork_using_subcommand
    set -l cmd (__fish_cowork_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c cowork -n "__fish_cowork_needs_command" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_needs_command" -s V -l version -d 'Print version'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "run" -d 'Run a command in a session made for it, and leave nothing behind'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "explain" -d 'Show the plan of a session step by step, and which protection is in force; run nothing'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "doctor" -d 'Look at what this host can do for sessions, and how to get what is missing'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "completions" -d 'Write a completion script for a shell'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "man" -d 'Write the manual pages'
complete -c cowork -n "__fish_cowork_using_subcommand run" -l grant -d 'A folder to grant, as `PATH[:ro|rw][=NAME]`. Without any, the current folder is granted' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l profile -d 'The walls around the session: `strict`, or `nested` for programs that bring a sandbox of their own (Chromium, bwrap)' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l home -d 'Keep the session\'s home in this folder instead of in memory' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand run" -l outputs -d 'Show this folder as mnt/outputs, so that deliverables stay' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand run" -l memory -d 'Most memory of the whole session, e.g. 4G' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l cpus -d 'Most processors of the whole session, e.g. 1.5' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l processes -d 'Most processes and threads of the whole session' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l open-files -d 'Most open files of each process' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l scratch -d 'Most space for home, /tmp and the like together' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l timeout -d 'End the session after this time, e.g. 90s, 5m' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l id -d 'The session\'s id, e.g. zealous-ramanujan; made up without it' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l env -d 'Set a variable for the command, or pass one of yours by its name alone' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l cd -d 'The folder in the session that the command starts in' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand run" -l no-grants -d 'Grant no folder at all, not even the current one'
complete -c cowork -n "__fish_cowork_using_subcommand run" -l debugger -d 'Let debuggers and tracers work inside the session'
complete -c cowork -n "__fish_cowork_using_subcommand run" -l best-effort -d 'Accept limits that this host can only approximate'
complete -c cowork -n "__fish_cowork_using_subcommand run" -s v -l verbose -d 'Say on standard error which protection is in force'
complete -c cowork -n "__fish_cowork_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l grant -d 'A folder to grant, as `PATH[:ro|rw][=NAME]`. Without any, the current folder is granted' -r
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l profile -d 'The walls around the session: `strict`, or `nested` for programs that bring a sandbox of their own (Chromium, bwrap)' -r
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l home -d 'Keep the session\'s home in this folder instead of in memory' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l outputs -d 'Show this folder as mnt/outputs, so that deliverables stay' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l memory -d 'Most memory of the whole session, e.g. 4G' -r
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l cpus -d 'Most processors of the whole session, e.g. 1.5' -r
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l processes -d 'Most processes and threads of the whole session' -r
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l open-files -d 'Most open files of each process' -r
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l scratch -d 'Most space for home, /tmp and the like together' -r
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l timeout -d 'End the session after this time, e.g. 90s, 5m' -r
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l id -d 'The session\'s id, e.g. zealous-ramanujan; made up without it' -r
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l no-grants -d 'Grant no folder at all, not even the current one'
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l debugger -d 'Let debuggers and tracers work inside the session'
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l best-effort -d 'Accept limits that this host can only approximate'
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l syscalls -d 'Also list every rule of the filter of system calls with its reason'
complete -c cowork -n "__fish_cowork_using_subcommand explain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cowork -n "__fish_cowork_using_subcommand doctor" -l json -d 'Write the facts as JSON'
complete -c cowork -n "__fish_cowork_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand completions" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand man" -s h -l help -d 'Print help'
