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
complete -c cowork -n "__fish_cowork_needs_command" -f -a "run" -d 'Where a command starts'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "new" -d 'Make a session that stays until it is removed'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "ls" -d 'List sessions'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "status" -d 'Show a session at a glance: state, protection, limits, grants, commands'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "exec" -d 'Where a command starts'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "shell" -d 'Where a command starts'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "claude" -d 'Run Claude Code in a session on the current folder'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "codex" -d 'Run Codex in a session on the current folder'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "gemini" -d 'Run Gemini CLI in a session on the current folder'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "opencode" -d 'Run opencode in a session on the current folder'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "agent" -d 'Run an agent by its name in a session on the current folder'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "agents" -d 'List agents: where their programs are, and which credentials they have'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "ask" -d 'Give a task to an agent in a session on the current folder, and print its answer'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "tasks" -d 'List tasks of agents'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "task" -d 'Show a task of an agent, steer it, pause it, resume it, or call it off'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "srt" -d 'Run a command as `srt` would, with its settings'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "policy" -d 'Write a policy from settings of other sandboxes'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "logs" -d 'Show what a command wrote'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "attach" -d 'Connect to a command that runs'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "grant" -d 'Grant a folder to a session while it runs, or change what it may do with one'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "revoke" -d 'Take a granted folder away from a session while it runs'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "changes" -d 'Show what a session changed in folders, what cannot be undone, and what may run here'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "diff" -d 'Show how files differ from before a session changed them'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "undo" -d 'Take changes of a session back: of the last command, of a set, of some paths, or all'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "redo" -d 'Take the last undo back'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "history" -d 'Show which sessions changed a folder, also those that are gone'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "apply" -d 'Carry staged changes over into their folders'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "discard" -d 'Throw staged changes away'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "protect" -d 'Say which names are marked, asked about or refused when a session changes them'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "allow" -d 'Allow a session to reach hosts, at once'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "deny" -d 'Forbid a session to reach hosts, at once'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "net" -d 'Show what a session reaches and what it was refused; its rules; whether something would pass'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "secret" -d 'Keep secrets that sessions use without knowing them'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "publish" -d 'Let this host reach a port of a session'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "unpublish" -d 'Take a published port back'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "requests" -d 'List what sessions ask you for'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "decide" -d 'Answer a request of a session'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "cp" -d 'Copy files into a session or out of it'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "path" -d 'Translate a path between this host and a session'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "pause" -d 'Let every process of a session, or one command, stand still'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "resume" -d 'Let what stands still go on'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "cancel" -d 'End every process of a session, or one command: ask, wait, kill'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "stop" -d 'Stop a session: its processes end, its home is kept'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "start" -d 'Start a session that is stopped'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "rm" -d 'Remove a session with everything it kept'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "set" -d 'Change a session\'s limits, labels and network while it runs'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "usage" -d 'Show what sessions use: processor, memory, storage, processes'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "audit" -d 'Show the record of every decision and act, verify or export it'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "events" -d 'Show what happens, as it happens'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "init" -d 'Make the default session, with ~/cowork-workspace as /workspace'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "delete" -d 'Remove the default session'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "explain" -d 'Show the plan of a session step by step, and which protection is in force; run nothing'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "doctor" -d 'Look at what this host can do for sessions, and how to get what is missing'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "mcp" -d 'Let a client of the Model Context Protocol use sessions as tools'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "daemon" -d 'Run the daemon in the foreground, or stop it'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "help" -d 'Explain a verb'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "completions" -d 'Write a completion script for a shell'
complete -c cowork -n "__fish_cowork_needs_command" -f -a "man" -d 'Write the manual pages'
complete -c cowork -n "__fish_cowork_using_subcommand run" -l grant -d 'A folder to grant, as `PATH[:ro|rw|direct|staged][=NAME]`; without any, `run` and `explain` grant the current folder' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l profile -d 'The walls around the session: `strict`, or `nested` for programs that bring a sandbox of their own (Chromium, bwrap)' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l home -d 'Keep the session\'s home in this folder' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand run" -l outputs -d 'Show this folder as mnt/outputs, so that deliverables stay' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand run" -l skills -d 'Show this folder read-only as mnt/skills: what an agent is to know how to do' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand run" -l direct -d 'A folder below each `rw` grant that is written without a record, at full speed, e.g. `node_modules`' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand run" -l guard -d 'Ask when a command removes or overwrites more than so many files; `off` for never' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l quota -d 'Most bytes that may be added to a folder, e.g. 2G' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l quota-files -d 'Most files that may be added to a folder' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l block -d 'Refuse files that end in this too, e.g. `zip`' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l unblock -d 'Do not refuse files that end in this, e.g. `jar`' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l allow -d 'A host that the session may reach, e.g. `pypi.org`; without any rule there is no network' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l deny -d 'A host that it may not reach, whatever else allows it; all of its ports unless some are named' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l ask -d 'A host that it may reach if you say so when it tries' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l net -d 'What becomes of hosts that no rule is about; `off` without any rule, else `deny`' -r -f -a "off\t'There is no network at all'
deny\t'They are refused'
ask\t'You are asked; what wants to reach them waits for your answer'"
complete -c cowork -n "__fish_cowork_using_subcommand run" -l headless -d 'Nobody is there to be asked: what would wait for your answer is refused at once' -r -f -a "auto\t'Nobody is where `run` has no terminal, neither for input nor for errors, and no `--json`'
always\t'Nobody is'
never\t'Somebody is: at another terminal, or a program'"
complete -c cowork -n "__fish_cowork_using_subcommand run" -l preset -d 'Hosts that belong together, e.g. `github`; `cowork net presets` lists them' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l secret -d 'A secret that its requests get on their way, kept with `cowork secret set`' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l policy -d 'A file of rules in TOML; options add to it' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand run" -l memory -d 'Most memory of the whole session, e.g. 4G' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l cpus -d 'Most processors of the whole session, e.g. 1.5' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l processes -d 'Most processes and threads of the whole session' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l open-files -d 'Most open files of each process' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l scratch -d 'Most space in memory: /tmp and the like, together with a home that is not kept' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l timeout -d 'End the session after this time, e.g. 90s, 5m' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l id -d 'The session\'s id, e.g. zealous-ramanujan; made up without it' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l env -d 'Set a variable for the command, or pass one of yours by its name alone' -r
complete -c cowork -n "__fish_cowork_using_subcommand run" -l cd -d 'The folder in the session to start in; without it, the session\'s own' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand run" -l no-grants -d 'Grant no folder at all, not even the current one'
complete -c cowork -n "__fish_cowork_using_subcommand run" -l force -d 'Grant folders even if they hold keys, passwords or cowork\'s own state'
complete -c cowork -n "__fish_cowork_using_subcommand run" -l debugger -d 'Let debuggers and tracers work inside the session'
complete -c cowork -n "__fish_cowork_using_subcommand run" -l best-effort -d 'Accept limits that this host can only approximate'
complete -c cowork -n "__fish_cowork_using_subcommand run" -l here -d 'Start in the current folder, as the session sees it'
complete -c cowork -n "__fish_cowork_using_subcommand run" -s v -l verbose -d 'Say on standard error which protection is in force'
complete -c cowork -n "__fish_cowork_using_subcommand run" -l no-daemon -d 'Make the session without the daemon: nothing is recorded or listed'
complete -c cowork -n "__fish_cowork_using_subcommand run" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cowork -n "__fish_cowork_using_subcommand new" -l grant -d 'A folder to grant, as `PATH[:ro|rw|direct|staged][=NAME]`; without any, `run` and `explain` grant the current folder' -r
complete -c cowork -n "__fish_cowork_using_subcommand new" -l profile -d 'The walls around the session: `strict`, or `nested` for programs that bring a sandbox of their own (Chromium, bwrap)' -r
complete -c cowork -n "__fish_cowork_using_subcommand new" -l home -d 'Keep the session\'s home in this folder' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand new" -l outputs -d 'Show this folder as mnt/outputs, so that deliverables stay' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand new" -l skills -d 'Show this folder read-only as mnt/skills: what an agent is to know how to do' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand new" -l direct -d 'A folder below each `rw` grant that is written without a record, at full speed, e.g. `node_modules`' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand new" -l guard -d 'Ask when a command removes or overwrites more than so many files; `off` for never' -r
complete -c cowork -n "__fish_cowork_using_subcommand new" -l quota -d 'Most bytes that may be added to a folder, e.g. 2G' -r
complete -c cowork -n "__fish_cowork_using_subcommand new" -l quota-files -d 'Most files that may be added to a folder' -r
complete -c cowork -n "__fish_cowork_using_subcommand new" -l block -d 'Refuse files that end in this too, e.g. `zip`' -r
complete -c cowork -n "__fish_cowork_using_subcommand new" -l unblock -d 'Do not refuse files that end in this, e.g. `jar`' -r
complete -c cowork -n "__fish_cowork_using_subcommand new" -l allow -d 'A host that the session may reach, e.g. `pypi.org`; without any rule there is no network' -r
complete -c cowork -n "__fish_cowork_using_subcommand new" -l deny -d 'A host that it may not reach, whatever else allows it; all of its ports unless some are named' -r
complete -c cowork -n "__fish_cowork_using_subcommand new" -l ask -d 'A host that it may reach if you say so when it tries' -r
complete -c cowork -n "__fish_cowork_using_subcommand new" -l net -d 'What becomes of hosts that no rule is about; `off` without any rule, else `deny`' -r -f -a "off\t'There is no network at all'
deny\t'They are refused'
ask\t'You are asked; what wants to reach them waits for your answer'"
complete -c cowork -n "__fish_cowork_using_subcommand new" -l headless -d 'Nobody is there to be asked: what would wait for your answer is refused at once' -r -f -a "auto\t'Nobody is where `run` has no terminal, neither for input nor for errors, and no `--json`'
always\t'Nobody is'
never\t'Somebody is: at another terminal, or a program'"
complete -c cowork -n "__fish_cowork_using_subcommand new" -l preset -d 'Hosts that belong together, e.g. `github`; `cowork net presets` lists them' -r
complete -c cowork -n "__fish_cowork_using_subcommand new" -l secret -d 'A secret that its requests get on their way, kept with `cowork secret set`' -r
complete -c cowork -n "__fish_cowork_using_subcommand new" -l policy -d 'A file of rules in TOML; options add to it' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand new" -l memory -d 'Most memory of the whole session, e.g. 4G' -r
complete -c cowork -n "__fish_cowork_using_subcommand new" -l cpus -d 'Most processors of the whole session, e.g. 1.5' -r
complete -c cowork -n "__fish_cowork_using_subcommand new" -l processes -d 'Most processes and threads of the whole session' -r
complete -c cowork -n "__fish_cowork_using_subcommand new" -l open-files -d 'Most open files of each process' -r
complete -c cowork -n "__fish_cowork_using_subcommand new" -l scratch -d 'Most space in memory: /tmp and the like, together with a home that is not kept' -r
complete -c cowork -n "__fish_cowork_using_subcommand new" -l timeout -d 'End the session after this time, e.g. 90s, 5m' -r
complete -c cowork -n "__fish_cowork_using_subcommand new" -l id -d 'The session\'s id, e.g. zealous-ramanujan; made up without it' -r
complete -c cowork -n "__fish_cowork_using_subcommand new" -l disk -d 'Most space on disk of home and outputs together, e.g. 10G; the session is paused beyond it' -r
complete -c cowork -n "__fish_cowork_using_subcommand new" -l label -d 'A name and a value to find the session by' -r
complete -c cowork -n "__fish_cowork_using_subcommand new" -l workspace -d 'A name at the top of the session\'s file system for the first granted folder, e.g. workspace' -r
complete -c cowork -n "__fish_cowork_using_subcommand new" -l no-grants -d 'Grant no folder at all, not even the current one'
complete -c cowork -n "__fish_cowork_using_subcommand new" -l force -d 'Grant folders even if they hold keys, passwords or cowork\'s own state'
complete -c cowork -n "__fish_cowork_using_subcommand new" -l debugger -d 'Let debuggers and tracers work inside the session'
complete -c cowork -n "__fish_cowork_using_subcommand new" -l best-effort -d 'Accept limits that this host can only approximate'
complete -c cowork -n "__fish_cowork_using_subcommand new" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand new" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cowork -n "__fish_cowork_using_subcommand ls" -l state -d 'Only sessions in this state' -r -f -a "creating\t''
ready\t''
running\t''
paused\t''
stopped\t''
failed\t''
ended\t''"
complete -c cowork -n "__fish_cowork_using_subcommand ls" -l label -d 'Only sessions with this label' -r
complete -c cowork -n "__fish_cowork_using_subcommand ls" -s q -l quiet -d 'Only ids, one on a line'
complete -c cowork -n "__fish_cowork_using_subcommand ls" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand ls" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand status" -l process -d 'Only whether a process runs, by its name, or by its id in the session or on this host' -r
complete -c cowork -n "__fish_cowork_using_subcommand status" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand status" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand exec" -l env -d 'Set a variable for the command, or pass one of yours by its name alone' -r
complete -c cowork -n "__fish_cowork_using_subcommand exec" -l cd -d 'The folder in the session to start in; without it, the session\'s own' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand exec" -l timeout -d 'Cancel the command after this time, e.g. 90s, 5m' -r
complete -c cowork -n "__fish_cowork_using_subcommand exec" -l here -d 'Start in the current folder, as the session sees it'
complete -c cowork -n "__fish_cowork_using_subcommand exec" -s d -l detach -d 'Leave the command running and print its number'
complete -c cowork -n "__fish_cowork_using_subcommand exec" -s t -l terminal -d 'Give the command a terminal even if none of your streams is one'
complete -c cowork -n "__fish_cowork_using_subcommand exec" -s n -l no-stdin -d 'Send nothing of standard input'
complete -c cowork -n "__fish_cowork_using_subcommand exec" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand exec" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand shell" -l env -d 'Set a variable for the shell, or pass one of yours by its name alone' -r
complete -c cowork -n "__fish_cowork_using_subcommand shell" -l cd -d 'The folder in the session to start in; without it, the session\'s own' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand shell" -l here -d 'Start in the current folder, as the session sees it'
complete -c cowork -n "__fish_cowork_using_subcommand shell" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand claude" -l program -d 'The agent\'s program on this host, in place of the one on your PATH' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand claude" -l secret -d 'The secret that the agent proves itself with, if several are stored' -r
complete -c cowork -n "__fish_cowork_using_subcommand claude" -l env -d 'Set a variable for the agent, or pass one of yours by its name alone' -r
complete -c cowork -n "__fish_cowork_using_subcommand claude" -l new -d 'Make a new session, even if there is one for this folder'
complete -c cowork -n "__fish_cowork_using_subcommand claude" -l nested -d 'Let the agent use a sandbox of its own inside the session. Changes of the folder are not recorded then, unless they are staged'
complete -c cowork -n "__fish_cowork_using_subcommand claude" -l staged -d 'Let changes of the folder wait until `cowork apply`'
complete -c cowork -n "__fish_cowork_using_subcommand claude" -l force -d 'Grant the current folder even if it holds keys, passwords or cowork\'s own state'
complete -c cowork -n "__fish_cowork_using_subcommand claude" -l install -d 'Install the agent in the session\'s home with npm, and use that one'
complete -c cowork -n "__fish_cowork_using_subcommand claude" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand codex" -l program -d 'The agent\'s program on this host, in place of the one on your PATH' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand codex" -l secret -d 'The secret that the agent proves itself with, if several are stored' -r
complete -c cowork -n "__fish_cowork_using_subcommand codex" -l env -d 'Set a variable for the agent, or pass one of yours by its name alone' -r
complete -c cowork -n "__fish_cowork_using_subcommand codex" -l new -d 'Make a new session, even if there is one for this folder'
complete -c cowork -n "__fish_cowork_using_subcommand codex" -l nested -d 'Let the agent use a sandbox of its own inside the session. Changes of the folder are not recorded then, unless they are staged'
complete -c cowork -n "__fish_cowork_using_subcommand codex" -l staged -d 'Let changes of the folder wait until `cowork apply`'
complete -c cowork -n "__fish_cowork_using_subcommand codex" -l force -d 'Grant the current folder even if it holds keys, passwords or cowork\'s own state'
complete -c cowork -n "__fish_cowork_using_subcommand codex" -l install -d 'Install the agent in the session\'s home with npm, and use that one'
complete -c cowork -n "__fish_cowork_using_subcommand codex" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand gemini" -l program -d 'The agent\'s program on this host, in place of the one on your PATH' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand gemini" -l secret -d 'The secret that the agent proves itself with, if several are stored' -r
complete -c cowork -n "__fish_cowork_using_subcommand gemini" -l env -d 'Set a variable for the agent, or pass one of yours by its name alone' -r
complete -c cowork -n "__fish_cowork_using_subcommand gemini" -l new -d 'Make a new session, even if there is one for this folder'
complete -c cowork -n "__fish_cowork_using_subcommand gemini" -l nested -d 'Let the agent use a sandbox of its own inside the session. Changes of the folder are not recorded then, unless they are staged'
complete -c cowork -n "__fish_cowork_using_subcommand gemini" -l staged -d 'Let changes of the folder wait until `cowork apply`'
complete -c cowork -n "__fish_cowork_using_subcommand gemini" -l force -d 'Grant the current folder even if it holds keys, passwords or cowork\'s own state'
complete -c cowork -n "__fish_cowork_using_subcommand gemini" -l install -d 'Install the agent in the session\'s home with npm, and use that one'
complete -c cowork -n "__fish_cowork_using_subcommand gemini" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand opencode" -l program -d 'The agent\'s program on this host, in place of the one on your PATH' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand opencode" -l secret -d 'The secret that the agent proves itself with, if several are stored' -r
complete -c cowork -n "__fish_cowork_using_subcommand opencode" -l env -d 'Set a variable for the agent, or pass one of yours by its name alone' -r
complete -c cowork -n "__fish_cowork_using_subcommand opencode" -l new -d 'Make a new session, even if there is one for this folder'
complete -c cowork -n "__fish_cowork_using_subcommand opencode" -l nested -d 'Let the agent use a sandbox of its own inside the session. Changes of the folder are not recorded then, unless they are staged'
complete -c cowork -n "__fish_cowork_using_subcommand opencode" -l staged -d 'Let changes of the folder wait until `cowork apply`'
complete -c cowork -n "__fish_cowork_using_subcommand opencode" -l force -d 'Grant the current folder even if it holds keys, passwords or cowork\'s own state'
complete -c cowork -n "__fish_cowork_using_subcommand opencode" -l install -d 'Install the agent in the session\'s home with npm, and use that one'
complete -c cowork -n "__fish_cowork_using_subcommand opencode" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand agent" -l program -d 'The agent\'s program on this host, in place of the one on your PATH' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand agent" -l secret -d 'The secret that the agent proves itself with, if several are stored' -r
complete -c cowork -n "__fish_cowork_using_subcommand agent" -l env -d 'Set a variable for the agent, or pass one of yours by its name alone' -r
complete -c cowork -n "__fish_cowork_using_subcommand agent" -l new -d 'Make a new session, even if there is one for this folder'
complete -c cowork -n "__fish_cowork_using_subcommand agent" -l nested -d 'Let the agent use a sandbox of its own inside the session. Changes of the folder are not recorded then, unless they are staged'
complete -c cowork -n "__fish_cowork_using_subcommand agent" -l staged -d 'Let changes of the folder wait until `cowork apply`'
complete -c cowork -n "__fish_cowork_using_subcommand agent" -l force -d 'Grant the current folder even if it holds keys, passwords or cowork\'s own state'
complete -c cowork -n "__fish_cowork_using_subcommand agent" -l install -d 'Install the agent in the session\'s home with npm, and use that one'
complete -c cowork -n "__fish_cowork_using_subcommand agent" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand agents" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand agents" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand ask" -l session -d 'The session; without it one for the current folder' -r
complete -c cowork -n "__fish_cowork_using_subcommand ask" -l agent -d 'The agent' -r
complete -c cowork -n "__fish_cowork_using_subcommand ask" -l model -d 'The model, as the agent calls it' -r
complete -c cowork -n "__fish_cowork_using_subcommand ask" -l program -d 'The agent\'s program on this host, in place of the one on your PATH' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand ask" -l secret -d 'The secret that the agent proves itself with, in place of the first one that is stored' -r
complete -c cowork -n "__fish_cowork_using_subcommand ask" -l new -d 'Make a new session, even if there is one for this folder'
complete -c cowork -n "__fish_cowork_using_subcommand ask" -l yes -d 'Let the agent use every tool without asking; the session\'s limits hold as ever'
complete -c cowork -n "__fish_cowork_using_subcommand ask" -l no -d 'Refuse every tool that has to be asked for'
complete -c cowork -n "__fish_cowork_using_subcommand ask" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand ask" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand tasks" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand tasks" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand task; and not __fish_seen_subcommand_from show steer pause resume cancel" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand task; and not __fish_seen_subcommand_from show steer pause resume cancel" -f -a "show" -d 'Show a task: what was said and done, and what came of it'
complete -c cowork -n "__fish_cowork_using_subcommand task; and not __fish_seen_subcommand_from show steer pause resume cancel" -f -a "steer" -d 'Say something to the agent while it works'
complete -c cowork -n "__fish_cowork_using_subcommand task; and not __fish_seen_subcommand_from show steer pause resume cancel" -f -a "pause" -d 'Let the agent stand still'
complete -c cowork -n "__fish_cowork_using_subcommand task; and not __fish_seen_subcommand_from show steer pause resume cancel" -f -a "resume" -d 'Let the agent go on'
complete -c cowork -n "__fish_cowork_using_subcommand task; and not __fish_seen_subcommand_from show steer pause resume cancel" -f -a "cancel" -d 'Call the task off'
complete -c cowork -n "__fish_cowork_using_subcommand task; and __fish_seen_subcommand_from show" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand task; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand task; and __fish_seen_subcommand_from steer" -l say -d 'What is said; `-` to read it from standard input' -r
complete -c cowork -n "__fish_cowork_using_subcommand task; and __fish_seen_subcommand_from steer" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand task; and __fish_seen_subcommand_from steer" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand task; and __fish_seen_subcommand_from pause" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand task; and __fish_seen_subcommand_from pause" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand task; and __fish_seen_subcommand_from resume" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand task; and __fish_seen_subcommand_from resume" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand task; and __fish_seen_subcommand_from cancel" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand task; and __fish_seen_subcommand_from cancel" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand srt" -s s -l settings -d 'The settings [default: ~/.srt-settings.json, if it is there]' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand srt" -s c -d 'Run a line of the shell, as it is' -r
complete -c cowork -n "__fish_cowork_using_subcommand srt" -l control-fd -d 'Read settings from this open descriptor while the command runs, one document a line' -r
complete -c cowork -n "__fish_cowork_using_subcommand srt" -s V -l version -d 'Say which version of srt this stands in for'
complete -c cowork -n "__fish_cowork_using_subcommand srt" -s d -l debug -d 'Say on standard error what is done'
complete -c cowork -n "__fish_cowork_using_subcommand srt" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand policy; and not __fish_seen_subcommand_from import" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand policy; and not __fish_seen_subcommand_from import" -f -a "import" -d 'Write the policy that says what the settings of another sandbox say'
complete -c cowork -n "__fish_cowork_using_subcommand policy; and __fish_seen_subcommand_from import" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cowork -n "__fish_cowork_using_subcommand logs" -l from -d 'Start at this byte of the output' -r
complete -c cowork -n "__fish_cowork_using_subcommand logs" -l stream -d 'Only this stream' -r -f -a "all\t'In the order in which they were written'
stdout\t'Standard output'
stderr\t'Standard error'
terminal\t'The command\'s terminal'"
complete -c cowork -n "__fish_cowork_using_subcommand logs" -s f -l follow -d 'Go on until the command has ended'
complete -c cowork -n "__fish_cowork_using_subcommand logs" -l raw -d 'Write bytes as they are'
complete -c cowork -n "__fish_cowork_using_subcommand logs" -l force -d 'With --raw: also onto a terminal, which may act on them'
complete -c cowork -n "__fish_cowork_using_subcommand logs" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand logs" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cowork -n "__fish_cowork_using_subcommand attach" -l from -d 'Start at this byte of the output; without it only what is new is shown' -r
complete -c cowork -n "__fish_cowork_using_subcommand attach" -s n -l no-stdin -d 'Send nothing of standard input'
complete -c cowork -n "__fish_cowork_using_subcommand attach" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand attach" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand grant" -l for -d 'Revoke it by itself after this time, e.g. `2h`' -r
complete -c cowork -n "__fish_cowork_using_subcommand grant" -l direct -d 'A folder below each `rw` grant that is written without a record, at full speed, e.g. `node_modules`' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand grant" -l guard -d 'Ask when a command removes or overwrites more than so many files; `off` for never' -r
complete -c cowork -n "__fish_cowork_using_subcommand grant" -l quota -d 'Most bytes that may be added to a folder, e.g. 2G' -r
complete -c cowork -n "__fish_cowork_using_subcommand grant" -l quota-files -d 'Most files that may be added to a folder' -r
complete -c cowork -n "__fish_cowork_using_subcommand grant" -l block -d 'Refuse files that end in this too, e.g. `zip`' -r
complete -c cowork -n "__fish_cowork_using_subcommand grant" -l unblock -d 'Do not refuse files that end in this, e.g. `jar`' -r
complete -c cowork -n "__fish_cowork_using_subcommand grant" -l force -d 'Grant it even if it holds keys, passwords or cowork\'s own state'
complete -c cowork -n "__fish_cowork_using_subcommand grant" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand grant" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand revoke" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand revoke" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand changes" -l set -d 'Only the changes of this set' -r
complete -c cowork -n "__fish_cowork_using_subcommand changes" -s v -l verbose -d 'Show also which program made each change'
complete -c cowork -n "__fish_cowork_using_subcommand changes" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand changes" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand diff" -l set -d 'Only the changes of this set' -r
complete -c cowork -n "__fish_cowork_using_subcommand diff" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand diff" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand undo" -l set -d 'Only this set, from `cowork changes`' -r
complete -c cowork -n "__fish_cowork_using_subcommand undo" -l all -d 'Every set'
complete -c cowork -n "__fish_cowork_using_subcommand undo" -l ours -d 'Leave what you have changed since as it is'
complete -c cowork -n "__fish_cowork_using_subcommand undo" -l theirs -d 'Bring back what was, over what you have changed since; `cowork redo` takes that back'
complete -c cowork -n "__fish_cowork_using_subcommand undo" -l both -d 'Bring back what was, and keep what you have changed since beside it'
complete -c cowork -n "__fish_cowork_using_subcommand undo" -l dry-run -d 'Say what would be done, and do nothing'
complete -c cowork -n "__fish_cowork_using_subcommand undo" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand undo" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand redo" -l ours -d 'Leave what you have changed since as it is'
complete -c cowork -n "__fish_cowork_using_subcommand redo" -l theirs -d 'Bring back what was, over what you have changed since; `cowork redo` takes that back'
complete -c cowork -n "__fish_cowork_using_subcommand redo" -l both -d 'Bring back what was, and keep what you have changed since beside it'
complete -c cowork -n "__fish_cowork_using_subcommand redo" -l dry-run -d 'Say what would be done, and do nothing'
complete -c cowork -n "__fish_cowork_using_subcommand redo" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand redo" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand history" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand history" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand apply" -l ours -d 'Leave what you have changed since as it is'
complete -c cowork -n "__fish_cowork_using_subcommand apply" -l theirs -d 'Bring back what was, over what you have changed since; `cowork redo` takes that back'
complete -c cowork -n "__fish_cowork_using_subcommand apply" -l both -d 'Bring back what was, and keep what you have changed since beside it'
complete -c cowork -n "__fish_cowork_using_subcommand apply" -l dry-run -d 'Say what would be done, and do nothing'
complete -c cowork -n "__fish_cowork_using_subcommand apply" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand apply" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand discard" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand discard" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand protect; and not __fish_seen_subcommand_from list add remove" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand protect; and not __fish_seen_subcommand_from list add remove" -f -a "list" -d 'List the rules for names in a session, with their reasons'
complete -c cowork -n "__fish_cowork_using_subcommand protect; and not __fish_seen_subcommand_from list add remove" -f -a "add" -d 'Make a rule for names, in force at once'
complete -c cowork -n "__fish_cowork_using_subcommand protect; and not __fish_seen_subcommand_from list add remove" -f -a "remove" -d 'Take a rule back that you made'
complete -c cowork -n "__fish_cowork_using_subcommand protect; and __fish_seen_subcommand_from list" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand protect; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand protect; and __fish_seen_subcommand_from add" -l grant -d 'Only in this granted folder' -r
complete -c cowork -n "__fish_cowork_using_subcommand protect; and __fish_seen_subcommand_from add" -l reason -d 'Why, for whoever is asked or refused' -r
complete -c cowork -n "__fish_cowork_using_subcommand protect; and __fish_seen_subcommand_from add" -l ask -d 'Ask you before it is changed; so without another option'
complete -c cowork -n "__fish_cowork_using_subcommand protect; and __fish_seen_subcommand_from add" -l deny -d 'Refuse changes'
complete -c cowork -n "__fish_cowork_using_subcommand protect; and __fish_seen_subcommand_from add" -l flag -d 'Mark it among the changes'
complete -c cowork -n "__fish_cowork_using_subcommand protect; and __fish_seen_subcommand_from add" -l allow -d 'Nothing in particular'
complete -c cowork -n "__fish_cowork_using_subcommand protect; and __fish_seen_subcommand_from add" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand protect; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand protect; and __fish_seen_subcommand_from remove" -l grant -d 'Only the rule about this granted folder' -r
complete -c cowork -n "__fish_cowork_using_subcommand protect; and __fish_seen_subcommand_from remove" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand protect; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand allow" -l preset -d 'Hosts that belong together, e.g. `github`' -r
complete -c cowork -n "__fish_cowork_using_subcommand allow" -l method -d 'Only requests with this method, e.g. GET' -r
complete -c cowork -n "__fish_cowork_using_subcommand allow" -l path -d 'Only requests for this path; `*` is anything within one part of it, `**` anything' -r
complete -c cowork -n "__fish_cowork_using_subcommand allow" -l tls -d 'Whether what is inside TLS is looked into; where the rule needs it without this' -r -f -a "inspect\t'Always: by an authority that only this session trusts'
tunnel\t'Never: it passes as it is'"
complete -c cowork -n "__fish_cowork_using_subcommand allow" -l resolves-to -d 'Private addresses that the names may lead to, e.g. 10.20.0.0/16' -r
complete -c cowork -n "__fish_cowork_using_subcommand allow" -l secret -d 'A secret that the requests get on their way; without a RULE, those to all hosts of the secret' -r
complete -c cowork -n "__fish_cowork_using_subcommand allow" -l upload -d 'Most bytes sent in a time, e.g. 200M/1h' -r
complete -c cowork -n "__fish_cowork_using_subcommand allow" -l requests -d 'Most requests in a time, e.g. 120/1m' -r
complete -c cowork -n "__fish_cowork_using_subcommand allow" -l connections -d 'Most connections at a time' -r
complete -c cowork -n "__fish_cowork_using_subcommand allow" -l capture -d 'Keep so much of each body, at most 1MB; they are looked into for it, and `cowork net har` has them' -r
complete -c cowork -n "__fish_cowork_using_subcommand allow" -l remove -d 'Take these allowances away'
complete -c cowork -n "__fish_cowork_using_subcommand allow" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand allow" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cowork -n "__fish_cowork_using_subcommand deny" -l reason -d 'Told to whoever is refused' -r
complete -c cowork -n "__fish_cowork_using_subcommand deny" -l remove -d 'Take these denials away'
complete -c cowork -n "__fish_cowork_using_subcommand deny" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand deny" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand net; and not __fish_seen_subcommand_from rules standing explain har presets" -s w -l watch -d 'Look again every second, until interrupted'
complete -c cowork -n "__fish_cowork_using_subcommand net; and not __fish_seen_subcommand_from rules standing explain har presets" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand net; and not __fish_seen_subcommand_from rules standing explain har presets" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand net; and not __fish_seen_subcommand_from rules standing explain har presets" -a "rules" -d 'Show the rules in force'
complete -c cowork -n "__fish_cowork_using_subcommand net; and not __fish_seen_subcommand_from rules standing explain har presets" -a "standing" -d 'Show the rules that every session has, or take one away'
complete -c cowork -n "__fish_cowork_using_subcommand net; and not __fish_seen_subcommand_from rules standing explain har presets" -a "explain" -d 'Say whether something would pass, and by which rule'
complete -c cowork -n "__fish_cowork_using_subcommand net; and not __fish_seen_subcommand_from rules standing explain har presets" -a "har" -d 'Write what went over the network as an HTTP archive (HAR)'
complete -c cowork -n "__fish_cowork_using_subcommand net; and not __fish_seen_subcommand_from rules standing explain har presets" -a "presets" -d 'List the presets, with the hosts of each'
complete -c cowork -n "__fish_cowork_using_subcommand net; and __fish_seen_subcommand_from rules" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand net; and __fish_seen_subcommand_from rules" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand net; and __fish_seen_subcommand_from standing" -l remove -d 'Take this rule away, named as it is shown' -r
complete -c cowork -n "__fish_cowork_using_subcommand net; and __fish_seen_subcommand_from standing" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand net; and __fish_seen_subcommand_from standing" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand net; and __fish_seen_subcommand_from explain" -l method -d 'The method of the request, e.g. POST' -r
complete -c cowork -n "__fish_cowork_using_subcommand net; and __fish_seen_subcommand_from explain" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand net; and __fish_seen_subcommand_from explain" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand net; and __fish_seen_subcommand_from har" -s o -l output -d 'The file to write; standard output without it' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand net; and __fish_seen_subcommand_from har" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand net; and __fish_seen_subcommand_from presets" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand net; and __fish_seen_subcommand_from presets" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand secret; and not __fish_seen_subcommand_from set import ls rm" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand secret; and not __fish_seen_subcommand_from set import ls rm" -f -a "set" -d 'Keep a secret; its value comes from standard input'
complete -c cowork -n "__fish_cowork_using_subcommand secret; and not __fish_seen_subcommand_from set import ls rm" -f -a "import" -d 'Keep the tokens that a program on this host signed in with, and renew them here'
complete -c cowork -n "__fish_cowork_using_subcommand secret; and not __fish_seen_subcommand_from set import ls rm" -f -a "ls" -d 'List secrets, without their values'
complete -c cowork -n "__fish_cowork_using_subcommand secret; and not __fish_seen_subcommand_from set import ls rm" -f -a "rm" -d 'Forget a secret'
complete -c cowork -n "__fish_cowork_using_subcommand secret; and __fish_seen_subcommand_from set" -l host -d 'A host that may get it, as in `cowork run --allow`' -r
complete -c cowork -n "__fish_cowork_using_subcommand secret; and __fish_seen_subcommand_from set" -l mode -d 'How it is used' -r -f -a "swap\t'The placeholder that the session knows is replaced where it appears'
inject\t'Every request to the hosts gets it'
pin\t'Every request to the hosts gets it, and one that brings another credential is refused'"
complete -c cowork -n "__fish_cowork_using_subcommand secret; and __fish_seen_subcommand_from set" -l as -d 'Where it is put: `bearer`, `basic:USER`, `header:NAME`, `query:NAME` or `aws`' -r
complete -c cowork -n "__fish_cowork_using_subcommand secret; and __fish_seen_subcommand_from set" -l env -d 'A variable of the session\'s commands that holds the placeholder, e.g. `GITHUB_TOKEN`' -r
complete -c cowork -n "__fish_cowork_using_subcommand secret; and __fish_seen_subcommand_from set" -l for -d 'The program that is to find it: its file or variable holds the placeholder' -r -f -a "git\t'git over HTTPS: `.git-credentials`'
netrc\t'curl -n, wget, git, pip and Python\'s requests: `.netrc`'
npm\t'npm: `.npmrc`'
pypi\t'pip and twine: `.netrc`, as the user `__token__`'
cargo\t'cargo: `CARGO_REGISTRY_TOKEN`'"
complete -c cowork -n "__fish_cowork_using_subcommand secret; and __fish_seen_subcommand_from set" -l user -d 'The user that it belongs to, in files that name one' -r
complete -c cowork -n "__fish_cowork_using_subcommand secret; and __fish_seen_subcommand_from set" -l file -d 'A file in the session\'s home: `{secret}` in its contents stands for the placeholder' -r
complete -c cowork -n "__fish_cowork_using_subcommand secret; and __fish_seen_subcommand_from set" -l oauth -d 'The value is JSON with tokens of OAuth 2.0, which are renewed on this host'
complete -c cowork -n "__fish_cowork_using_subcommand secret; and __fish_seen_subcommand_from set" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand secret; and __fish_seen_subcommand_from set" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cowork -n "__fish_cowork_using_subcommand secret; and __fish_seen_subcommand_from import" -l from -d 'The file with its tokens [default: ~/.claude/.credentials.json]' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand secret; and __fish_seen_subcommand_from import" -l name -d 'The secret\'s name [default: the one that the agent looks for, `claude-oauth`]' -r
complete -c cowork -n "__fish_cowork_using_subcommand secret; and __fish_seen_subcommand_from import" -l host -d 'A host that may get it [default: those of the program]' -r
complete -c cowork -n "__fish_cowork_using_subcommand secret; and __fish_seen_subcommand_from import" -l token-url -d 'Where the tokens are renewed [default: that of the program]' -r
complete -c cowork -n "__fish_cowork_using_subcommand secret; and __fish_seen_subcommand_from import" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand secret; and __fish_seen_subcommand_from import" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cowork -n "__fish_cowork_using_subcommand secret; and __fish_seen_subcommand_from ls" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand secret; and __fish_seen_subcommand_from ls" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand secret; and __fish_seen_subcommand_from rm" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand secret; and __fish_seen_subcommand_from rm" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand publish" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand publish" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand unpublish" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand unpublish" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand requests" -s a -l all -d 'Also those that were answered'
complete -c cowork -n "__fish_cowork_using_subcommand requests" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand requests" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand decide" -l path -d 'The folder that is meant' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand decide" -l name -d 'Its name in the session' -r
complete -c cowork -n "__fish_cowork_using_subcommand decide" -l note -d 'A word to the one who asked' -r
complete -c cowork -n "__fish_cowork_using_subcommand decide" -l ro -d 'Grant it for reading only'
complete -c cowork -n "__fish_cowork_using_subcommand decide" -l rw -d 'Grant it for reading and writing'
complete -c cowork -n "__fish_cowork_using_subcommand decide" -l session -d 'The same answer whenever this session asks for the same'
complete -c cowork -n "__fish_cowork_using_subcommand decide" -l always -d 'The same answer whenever any session asks for the same'
complete -c cowork -n "__fish_cowork_using_subcommand decide" -l force -d 'Grant it even if it holds keys, passwords or cowork\'s own state'
complete -c cowork -n "__fish_cowork_using_subcommand decide" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand decide" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cowork -n "__fish_cowork_using_subcommand cp" -s r -l recursive -d 'Copy folders with everything in them'
complete -c cowork -n "__fish_cowork_using_subcommand cp" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand cp" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand path" -l inside -d 'It is the session\'s, whatever it looks like'
complete -c cowork -n "__fish_cowork_using_subcommand path" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand path" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand pause" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand pause" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand resume" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand resume" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand cancel" -l grace -d 'Time between asking and killing; 5s without it' -r
complete -c cowork -n "__fish_cowork_using_subcommand cancel" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand cancel" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand stop" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand stop" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand start" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand start" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand rm" -l keep-outputs -d 'Keep what the session left in mnt/outputs'
complete -c cowork -n "__fish_cowork_using_subcommand rm" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand rm" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand set" -l memory -d 'Most memory of the whole session, e.g. 4G' -r
complete -c cowork -n "__fish_cowork_using_subcommand set" -l cpus -d 'Most processors of the whole session, e.g. 1.5' -r
complete -c cowork -n "__fish_cowork_using_subcommand set" -l processes -d 'Most processes and threads of the whole session' -r
complete -c cowork -n "__fish_cowork_using_subcommand set" -l open-files -d 'Most open files of each process' -r
complete -c cowork -n "__fish_cowork_using_subcommand set" -l scratch -d 'Most space in memory: /tmp and the like, together with a home that is not kept' -r
complete -c cowork -n "__fish_cowork_using_subcommand set" -l timeout -d 'End the session after this time, e.g. 90s, 5m' -r
complete -c cowork -n "__fish_cowork_using_subcommand set" -l disk -d 'Most space on disk of home and outputs together, e.g. 10G' -r
complete -c cowork -n "__fish_cowork_using_subcommand set" -l label -d 'Set a label' -r
complete -c cowork -n "__fish_cowork_using_subcommand set" -l unlabel -d 'Take a label away' -r
complete -c cowork -n "__fish_cowork_using_subcommand set" -l net -d 'What becomes of hosts that no rule is about, from now on' -r -f -a "deny\t''
ask\t''"
complete -c cowork -n "__fish_cowork_using_subcommand set" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand set" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand usage" -l history -d 'What was measured over time'
complete -c cowork -n "__fish_cowork_using_subcommand usage" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand usage" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand audit; and not __fish_seen_subcommand_from verify export" -l since -d 'Only records since then: a span of time before now, e.g. 2h, or a moment in RFC 3339' -r
complete -c cowork -n "__fish_cowork_using_subcommand audit; and not __fish_seen_subcommand_from verify export" -l until -d 'Only records until then' -r
complete -c cowork -n "__fish_cowork_using_subcommand audit; and not __fish_seen_subcommand_from verify export" -l type -d 'Only records of this type, e.g. grant.added' -r
complete -c cowork -n "__fish_cowork_using_subcommand audit; and not __fish_seen_subcommand_from verify export" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand audit; and not __fish_seen_subcommand_from verify export" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand audit; and not __fish_seen_subcommand_from verify export" -a "verify" -d 'Check that no record was removed, changed or reordered'
complete -c cowork -n "__fish_cowork_using_subcommand audit; and not __fish_seen_subcommand_from verify export" -a "export" -d 'Write records for another program'
complete -c cowork -n "__fish_cowork_using_subcommand audit; and __fish_seen_subcommand_from verify" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand audit; and __fish_seen_subcommand_from verify" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand audit; and __fish_seen_subcommand_from export" -l since -d 'Only records since then: a span of time before now, e.g. 2h, or a moment in RFC 3339' -r
complete -c cowork -n "__fish_cowork_using_subcommand audit; and __fish_seen_subcommand_from export" -l until -d 'Only records until then' -r
complete -c cowork -n "__fish_cowork_using_subcommand audit; and __fish_seen_subcommand_from export" -l type -d 'Only records of this type, e.g. grant.added' -r
complete -c cowork -n "__fish_cowork_using_subcommand audit; and __fish_seen_subcommand_from export" -l format -d 'The format' -r -f -a "jsonl\t'One object of JSON on each line'
csv\t'Values separated by commas'"
complete -c cowork -n "__fish_cowork_using_subcommand audit; and __fish_seen_subcommand_from export" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cowork -n "__fish_cowork_using_subcommand events" -l type -d 'Only events of this type, e.g. session.state' -r
complete -c cowork -n "__fish_cowork_using_subcommand events" -l after -d 'Start after the event with this number; 0 for all that are kept' -r
complete -c cowork -n "__fish_cowork_using_subcommand events" -l no-follow -d 'Show what there is and end'
complete -c cowork -n "__fish_cowork_using_subcommand events" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand events" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand init" -l workspace -d 'The folder to work in; ~/cowork-workspace without it' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand init" -l cpus -d 'Most processors; 4 without it, or as many as the host has' -r
complete -c cowork -n "__fish_cowork_using_subcommand init" -l memory -d 'Most memory; 4G without it, or as much as the host has' -r
complete -c cowork -n "__fish_cowork_using_subcommand init" -l disk -d 'Most space on disk of home and outputs together; 10G without it' -r
complete -c cowork -n "__fish_cowork_using_subcommand init" -l skills -d 'Show this folder read-only as mnt/skills: what an agent is to know how to do' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand init" -l allow -d 'A host that the session may reach, e.g. `pypi.org`; without any rule there is no network' -r
complete -c cowork -n "__fish_cowork_using_subcommand init" -l deny -d 'A host that it may not reach, whatever else allows it; all of its ports unless some are named' -r
complete -c cowork -n "__fish_cowork_using_subcommand init" -l ask -d 'A host that it may reach if you say so when it tries' -r
complete -c cowork -n "__fish_cowork_using_subcommand init" -l net -d 'What becomes of hosts that no rule is about; `off` without any rule, else `deny`' -r -f -a "off\t'There is no network at all'
deny\t'They are refused'
ask\t'You are asked; what wants to reach them waits for your answer'"
complete -c cowork -n "__fish_cowork_using_subcommand init" -l headless -d 'Nobody is there to be asked: what would wait for your answer is refused at once' -r -f -a "auto\t'Nobody is where `run` has no terminal, neither for input nor for errors, and no `--json`'
always\t'Nobody is'
never\t'Somebody is: at another terminal, or a program'"
complete -c cowork -n "__fish_cowork_using_subcommand init" -l preset -d 'Hosts that belong together, e.g. `github`; `cowork net presets` lists them' -r
complete -c cowork -n "__fish_cowork_using_subcommand init" -l secret -d 'A secret that its requests get on their way, kept with `cowork secret set`' -r
complete -c cowork -n "__fish_cowork_using_subcommand init" -l policy -d 'A file of rules in TOML; options add to it' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand init" -l force -d 'Show the skills even if they are in a place with keys, passwords or cowork\'s own state'
complete -c cowork -n "__fish_cowork_using_subcommand init" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand init" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cowork -n "__fish_cowork_using_subcommand delete" -l keep-outputs -d 'Keep what the session left in mnt/outputs'
complete -c cowork -n "__fish_cowork_using_subcommand delete" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand delete" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l grant -d 'A folder to grant, as `PATH[:ro|rw|direct|staged][=NAME]`; without any, `run` and `explain` grant the current folder' -r
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l profile -d 'The walls around the session: `strict`, or `nested` for programs that bring a sandbox of their own (Chromium, bwrap)' -r
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l home -d 'Keep the session\'s home in this folder' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l outputs -d 'Show this folder as mnt/outputs, so that deliverables stay' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l skills -d 'Show this folder read-only as mnt/skills: what an agent is to know how to do' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l direct -d 'A folder below each `rw` grant that is written without a record, at full speed, e.g. `node_modules`' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l guard -d 'Ask when a command removes or overwrites more than so many files; `off` for never' -r
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l quota -d 'Most bytes that may be added to a folder, e.g. 2G' -r
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l quota-files -d 'Most files that may be added to a folder' -r
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l block -d 'Refuse files that end in this too, e.g. `zip`' -r
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l unblock -d 'Do not refuse files that end in this, e.g. `jar`' -r
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l allow -d 'A host that the session may reach, e.g. `pypi.org`; without any rule there is no network' -r
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l deny -d 'A host that it may not reach, whatever else allows it; all of its ports unless some are named' -r
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l ask -d 'A host that it may reach if you say so when it tries' -r
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l net -d 'What becomes of hosts that no rule is about; `off` without any rule, else `deny`' -r -f -a "off\t'There is no network at all'
deny\t'They are refused'
ask\t'You are asked; what wants to reach them waits for your answer'"
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l headless -d 'Nobody is there to be asked: what would wait for your answer is refused at once' -r -f -a "auto\t'Nobody is where `run` has no terminal, neither for input nor for errors, and no `--json`'
always\t'Nobody is'
never\t'Somebody is: at another terminal, or a program'"
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l preset -d 'Hosts that belong together, e.g. `github`; `cowork net presets` lists them' -r
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l secret -d 'A secret that its requests get on their way, kept with `cowork secret set`' -r
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l policy -d 'A file of rules in TOML; options add to it' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l memory -d 'Most memory of the whole session, e.g. 4G' -r
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l cpus -d 'Most processors of the whole session, e.g. 1.5' -r
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l processes -d 'Most processes and threads of the whole session' -r
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l open-files -d 'Most open files of each process' -r
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l scratch -d 'Most space in memory: /tmp and the like, together with a home that is not kept' -r
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l timeout -d 'End the session after this time, e.g. 90s, 5m' -r
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l id -d 'The session\'s id, e.g. zealous-ramanujan; made up without it' -r
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l no-grants -d 'Grant no folder at all, not even the current one'
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l force -d 'Grant folders even if they hold keys, passwords or cowork\'s own state'
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l debugger -d 'Let debuggers and tracers work inside the session'
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l best-effort -d 'Accept limits that this host can only approximate'
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l syscalls -d 'Also list every rule of the filter of system calls with its reason'
complete -c cowork -n "__fish_cowork_using_subcommand explain" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand explain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cowork -n "__fish_cowork_using_subcommand doctor" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l grant -d 'A folder to grant, as `PATH[:ro|rw|direct|staged][=NAME]`; without any, `run` and `explain` grant the current folder' -r
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l profile -d 'The walls around the session: `strict`, or `nested` for programs that bring a sandbox of their own (Chromium, bwrap)' -r
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l home -d 'Keep the session\'s home in this folder' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l outputs -d 'Show this folder as mnt/outputs, so that deliverables stay' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l skills -d 'Show this folder read-only as mnt/skills: what an agent is to know how to do' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l direct -d 'A folder below each `rw` grant that is written without a record, at full speed, e.g. `node_modules`' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l guard -d 'Ask when a command removes or overwrites more than so many files; `off` for never' -r
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l quota -d 'Most bytes that may be added to a folder, e.g. 2G' -r
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l quota-files -d 'Most files that may be added to a folder' -r
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l block -d 'Refuse files that end in this too, e.g. `zip`' -r
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l unblock -d 'Do not refuse files that end in this, e.g. `jar`' -r
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l allow -d 'A host that the session may reach, e.g. `pypi.org`; without any rule there is no network' -r
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l deny -d 'A host that it may not reach, whatever else allows it; all of its ports unless some are named' -r
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l ask -d 'A host that it may reach if you say so when it tries' -r
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l net -d 'What becomes of hosts that no rule is about; `off` without any rule, else `deny`' -r -f -a "off\t'There is no network at all'
deny\t'They are refused'
ask\t'You are asked; what wants to reach them waits for your answer'"
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l headless -d 'Nobody is there to be asked: what would wait for your answer is refused at once' -r -f -a "auto\t'Nobody is where `run` has no terminal, neither for input nor for errors, and no `--json`'
always\t'Nobody is'
never\t'Somebody is: at another terminal, or a program'"
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l preset -d 'Hosts that belong together, e.g. `github`; `cowork net presets` lists them' -r
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l secret -d 'A secret that its requests get on their way, kept with `cowork secret set`' -r
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l policy -d 'A file of rules in TOML; options add to it' -r -F
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l memory -d 'Most memory of the whole session, e.g. 4G' -r
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l cpus -d 'Most processors of the whole session, e.g. 1.5' -r
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l processes -d 'Most processes and threads of the whole session' -r
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l open-files -d 'Most open files of each process' -r
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l scratch -d 'Most space in memory: /tmp and the like, together with a home that is not kept' -r
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l timeout -d 'End the session after this time, e.g. 90s, 5m' -r
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l id -d 'The session\'s id, e.g. zealous-ramanujan; made up without it' -r
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l session -d 'A session of yours that the client may use' -r
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l no-grants -d 'Grant no folder at all, not even the current one'
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l force -d 'Grant folders even if they hold keys, passwords or cowork\'s own state'
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l debugger -d 'Let debuggers and tracers work inside the session'
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -l best-effort -d 'Accept limits that this host can only approximate'
complete -c cowork -n "__fish_cowork_using_subcommand mcp" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c cowork -n "__fish_cowork_using_subcommand daemon" -l stop -d 'Stop every session, and the daemon with them'
complete -c cowork -n "__fish_cowork_using_subcommand daemon" -l detached -d 'Leave the terminal first'
complete -c cowork -n "__fish_cowork_using_subcommand daemon" -l json -d 'Write JSON, as the daemon\'s API has it'
complete -c cowork -n "__fish_cowork_using_subcommand daemon" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand help" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand completions" -s h -l help -d 'Print help'
complete -c cowork -n "__fish_cowork_using_subcommand man" -s h -l help -d 'Print help'
