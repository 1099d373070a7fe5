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
