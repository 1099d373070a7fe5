package cli

import (
	"io"

	"github.com/spf13/cobra"
)

// bashAlone defines two functions for shells without the package bash-completion, because the
// script of the command-line library needs them: _get_comp_words_by_ref returns the words of the
// line up to the cursor, and _filedir completes names of files.
const bashAlone = `if ! declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
    _get_comp_words_by_ref()
    {
        local line="${COMP_LINE:0:COMP_POINT}"
        read -ra words <<<"$line"
        if [[ -z $line || $line == *[[:space:]] ]]; then words+=(""); fi
        cword=$((${#words[@]} - 1))
        cur="${words[cword]}"
        prev=""
        if ((cword > 0)); then prev="${words[cword - 1]}"; fi
    }
fi
if ! declare -F _filedir >/dev/null 2>&1; then
    _filedir()
    {
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen $([[ $1 == -d ]] && echo -d || echo -f) -- "$cur")
    }
fi

`

// bashCompletion replaces the library's completion script for bash by one that needs no other
// package.
func bashCompletion(root *cobra.Command) {
	cmd, _, err := root.Find([]string{"completion", "bash"})
	if err != nil || cmd.Name() != "bash" {
		return // the library has no such command
	}
	all := cmd.Parent()
	all.Use, all.DisableFlagsInUseLine = "completion SHELL", true
	all.Short = "Print a script that lets a shell complete commands, flags and names"
	all.Long = "completion prints a script for SHELL, which is bash, zsh, fish or powershell. With this script loaded, the tab key\n" +
		"completes commands, flags and names. `rdmalab completion SHELL --help` says how to load it."
	all.Example = "  source <(rdmalab completion bash)   # bash, this shell\n" +
		"  rdmalab completion fish | source    # fish, this shell\n" +
		"  rdmalab completion zsh --help       # how to load it in zsh; also for bash, fish and powershell"
	cmd.Long = "bash prints a script that lets bash complete commands, flags, and names of hosts, links, faults, rules and opcodes of\n" +
		"the rack that is up. It needs nothing but bash; with the package bash-completion, quoted words are complete, too."
	cmd.Example = "  source <(rdmalab completion bash)   # this shell\n" +
		"  mkdir -p ~/.local/share/bash-completion/completions\n" +
		"  rdmalab completion bash > ~/.local/share/bash-completion/completions/rdmalab   # new shells, with package bash-completion"
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		bare, err := cmd.Flags().GetBool("no-descriptions")
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if _, err := io.WriteString(out, bashAlone); err != nil {
			return err
		}
		return cmd.Root().GenBashCompletionV2(out, !bare)
	}
}
